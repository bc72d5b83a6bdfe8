/* Parses fault injection rules, counts calls and decides which of them fails. */
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/mem.h"

static const struct {
    const char *name;
    int number;
} numbers[] = {
    {"EIO", EIO},           {"ENOSPC", ENOSPC}, {"EINTR", EINTR},   {"EACCES", EACCES},
    {"EROFS", EROFS},       {"EDQUOT", EDQUOT}, {"EMFILE", EMFILE}, {"ENOMEM", ENOMEM},
    {"EINVAL", EINVAL},     {"EEXIST", EEXIST}, {"ESTALE", ESTALE}, {"EXDEV", EXDEV},
    {"SHORT", FAULT_SHORT},
};

static const char *const call_name[FAULT_CALLS] = {
    [FAULT_OPEN] = "open",       [FAULT_READ] = "read",   [FAULT_WRITE] = "write",
    [FAULT_FSYNC] = "fsync",     [FAULT_CLOSE] = "close", [FAULT_FDATASYNC] = "fdatasync",
    [FAULT_RENAME] = "rename",   [FAULT_MKDIR] = "mkdir", [FAULT_UNLINK] = "unlink",
    [FAULT_RMDIR] = "rmdir",     [FAULT_LINK] = "link",   [FAULT_FTRUNCATE] = "ftruncate",
    [FAULT_PREAD] = "pread",     [FAULT_MMAP] = "mmap",   [FAULT_FLOCK] = "flock",
    [FAULT_STAT] = "stat",       [FAULT_FSTAT] = "fstat", [FAULT_OPENDIR] = "opendir",
    [FAULT_READDIR] = "readdir", [FAULT_FORK] = "fork",   [FAULT_PIPE] = "pipe",
    [FAULT_SOCKET] = "socket",
};

static struct fault_rule rules[FAULT_CALLS];
static atomic_uint_fast64_t counts[FAULT_CALLS];
static int is_on;
static char count_path[1024];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int number_of(const char *text, size_t len)
{
    for (size_t i = 0; i < DS_LEN(numbers); i++)
        if (strlen(numbers[i].name) == len && memcmp(numbers[i].name, text, len) == 0)
            return numbers[i].number;
    return EIO;
}

int fault_find(const char *spec, const char *name, struct fault_rule *rule)
{
    size_t len = strlen(name);
    if (!spec)
        spec = getenv("DEPTHSCOPE_FAIL");
    for (const char *p = spec; p && *p;) {
        size_t n = strcspn(p, ",");
        if (n > len + 1 && memcmp(p, name, len) == 0 && p[len] == ':') {
            char *end;
            rule->at = strtoull(p + len + 1, &end, 10);
            rule->persistent = *end == '+';
            end += rule->persistent;
            rule->number = *end == '=' ? number_of(end + 1, strcspn(end + 1, ",")) : EIO;
            return 1;
        }
        p += n + (p[n] == ',');
    }
    return 0;
}

int fault_hits(const struct fault_rule *rule, uint64_t call)
{
    if (rule->at == 0)
        return 0;
    return rule->persistent ? call >= rule->at : call == rule->at;
}

/* At exit; past the calls that are counted. */
static void write_counts(void)
{
    char line[1024];
    int n = 0;
    for (int c = 0; c < FAULT_CALLS; c++)
        n += snprintf(line + n, sizeof line - (size_t)n, "%s=%" PRIuFAST64 " ", call_name[c],
                      atomic_load(&counts[c]));
    n += snprintf(line + n, sizeof line - (size_t)n, "alloc=%" PRIu64 "\n", mem_calls());
    int fd = open(count_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    ssize_t put = fd < 0 ? -1 : write(fd, line, (size_t)n);
    if (put != n)
        fprintf(stderr, "depthscope: %s: cannot write the counts of calls\n", count_path);
    if (fd >= 0)
        close(fd);
}

static void read_environment(void)
{
    static const char word[] = "count=";
    const char *spec = getenv("DEPTHSCOPE_FAIL");
    for (int c = 0; c < FAULT_CALLS; c++)
        is_on |= fault_find(spec ? spec : "", call_name[c], &rules[c]);
    for (const char *p = spec; p && *p; p += strcspn(p, ","), p += *p == ',')
        if (strncmp(p, word, sizeof word - 1) == 0) {
            p += sizeof word - 1;
            snprintf(count_path, sizeof count_path, "%.*s", (int)strcspn(p, ","), p);
            is_on = atexit(write_counts) == 0;
        }
}

int fault_is_on(void)
{
    pthread_once(&once, read_environment);
    return is_on;
}

int fault_fails_transfer(enum fault_call call, size_t *n)
{
    if (!fault_is_on() || !fault_hits(&rules[call], atomic_fetch_add(&counts[call], 1) + 1))
        return 0;
    if (rules[call].number == FAULT_SHORT) {
        if (n && *n > 1)
            *n /= 2;
        return 0;
    }
    errno = rules[call].number;
    return 1;
}

int fault_fails(enum fault_call call)
{
    return fault_fails_transfer(call, NULL);
}
