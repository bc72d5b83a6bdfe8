/* The SIGBUS handler for mapped files.  It uses a table of fixed size, since it must not allocate
 * or lock. */
#include "base/guard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/str.h"
#include "base/utf8.h"

enum { REGIONS = 1024, NAME_SIZE = 300, LINE_SIZE = 512 };

struct region {
    _Atomic uintptr_t begin; /* 0: free; written last */
    uintptr_t end;
    int fd;
    char name[NAME_SIZE];
};

static struct region region[REGIONS];
static struct sigaction before;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int is_ending;

/* ---- in the handler: async-signal-safe calls only ---- */

struct line {
    char text[LINE_SIZE];
    size_t n;
};

static void add_text(struct line *l, const char *text)
{
    size_t n = strlen(text);
    n = n < LINE_SIZE - l->n ? n : LINE_SIZE - l->n;
    memcpy(l->text + l->n, text, n);
    l->n += n;
}

static void add_number(struct line *l, uint64_t v)
{
    char digits[24];
    size_t at = sizeof digits - 1;
    digits[at] = '\0';
    do
        digits[--at] = (char)('0' + v % 10);
    while ((v /= 10) > 0);
    add_text(l, digits + at);
}

static void print_fault(const struct region *r)
{
    struct line l = {.n = 0};
    struct stat now;
    uint64_t was = r->end - r->begin;
    add_text(&l, "depthscope: ");
    add_text(&l, r->name);
    if (fstat(r->fd, &now) != 0 || (uint64_t)now.st_size >= was) {
        add_text(&l, ": read failed (I/O error)\n");
    } else {
        add_text(&l, ": changed while it was read (was ");
        add_number(&l, was);
        add_text(&l, " bytes, is ");
        add_number(&l, (uint64_t)now.st_size);
        add_text(&l, ")\n");
    }
    ssize_t ignored = write(STDERR_FILENO, l.text, l.n);
    (void)ignored; /* no way to report an error here */
}

static const struct region *find(uintptr_t at)
{
    for (size_t i = 0; i < REGIONS; i++) {
        uintptr_t begin = atomic_load(&region[i].begin);
        if (begin && at >= begin && at < region[i].end)
            return &region[i];
    }
    return NULL;
}

static void on_bus(int signo, siginfo_t *info, void *context)
{
    int saved = errno;
    const struct region *r = find((uintptr_t)info->si_addr);
    if (r) {
        if (atomic_exchange(&is_ending, 1))
            for (;;)
                pause(); /* another thread already reports it */
        bug_run_restore();
        print_fault(r);
        _exit(1);
    }
    errno = saved;
    if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(signo, info, context);
    else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
        before.sa_handler(signo);
    else
        signal(signo, SIG_DFL); /* the instruction faults again and ends the program */
}

/* ---- set-up ---- */

static void install(void)
{
    struct sigaction now, ours;
    if (sigaction(SIGBUS, NULL, &now) != 0 ||
        ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_bus))
        return;
    before = now;
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = on_bus;
    ours.sa_flags = SA_SIGINFO | (now.sa_flags & SA_ONSTACK);
    sigemptyset(&ours.sa_mask);
    sigaction(SIGBUS, &ours, NULL);
}

void guard_renew(void)
{
    pthread_mutex_lock(&lock);
    install();
    pthread_mutex_unlock(&lock);
}

/* Keeps the end of a path that is too long, which is more informative. */
static void set_name(struct region *r, const char *path)
{
    size_t n = strlen(path), cut = n < NAME_SIZE ? 0 : n - (NAME_SIZE - 1);
    str_copy(r->name, sizeof r->name, path + cut);
    utf8_scrub(r->name);
}

void guard_add(const void *p, size_t n, int fd, const char *path)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < REGIONS; i++) {
        struct region *r = &region[i];
        if (atomic_load(&r->begin))
            continue;
        r->end = (uintptr_t)p + n;
        r->fd = fd;
        set_name(r, path);
        atomic_store(&r->begin, (uintptr_t)p);
        break;
    }
    install();
    pthread_mutex_unlock(&lock);
}

void guard_remove(const void *p)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < REGIONS; i++)
        if (atomic_load(&region[i].begin) == (uintptr_t)p)
            atomic_store(&region[i].begin, 0);
    pthread_mutex_unlock(&lock);
}

int guard_file(const void *p, size_t n, int *fd, size_t *at)
{
    const struct region *r = find((uintptr_t)p);
    if (!r || n > r->end - (uintptr_t)p)
        return 0;
    *fd = r->fd;
    *at = (uintptr_t)p - atomic_load(&r->begin);
    return 1;
}
