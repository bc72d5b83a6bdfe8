/* Normalises inherited process state: descriptors, signals, umask and stack; finds the
 * executable. */
#define _GNU_SOURCE /* pthread_setattr_default_np, dl_iterate_phdr */
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#ifdef __linux__
#include <link.h>
#endif
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/auxv.h>
#endif
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/str.h"

enum { PATH_BYTES = 1100, STACK_LEAST = 2 << 20, STACK_BYTES = 8 << 20 };

/* ---- descriptors ---- */

static int stdout_was_closed;

/* open() returns `fd`, the lowest free one, since those below it are open.  Falls back to "/"
 * without /dev. */
static void fill(int fd, int flags)
{
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF)
        return;
    if (open("/dev/null", flags) < 0)
        (void)open("/", O_RDONLY | O_DIRECTORY);
    stdout_was_closed |= fd == STDOUT_FILENO;
}

void process_discard_stdout(void)
{
    if (!stdout_was_closed)
        return;
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)dup2(fd, STDOUT_FILENO);
    close(fd);
}

/* ---- signals ---- */

const int process_end_signals[] = {
    SIGTERM, SIGUSR2, SIGALRM, SIGXCPU, /* the soft limit of processor time: some is left */
#ifdef SIGPWR
    SIGPWR,
#endif
    0,
};

/* ---- the executable ---- */

static int is_program(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static int take(char *out, size_t size, const char *dir, size_t n, const char *cwd,
                const char *name)
{
    char path[PATH_BYTES];
    const char *base = cwd ? cwd : "";
    int is_relative = n == 0 || dir[0] != '/';
    int len = snprintf(path, sizeof path, "%s%s%.*s%s%s", is_relative ? base : "",
                       is_relative ? "/" : "", (int)n, dir, n ? "/" : "", name);
    return len > 0 && (size_t)len < sizeof path && is_program(path) && !str_copy(out, size, path);
}

static int by_link(char *out, size_t size, const char *link)
{
    char path[PATH_BYTES];
    static const char deleted[] = " (deleted)"; /* appended by Linux once the file was replaced */
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0 || (size_t)n >= sizeof path - 1)
        return 0;
    path[n] = '\0';
    if (is_program(path))
        return !str_copy(out, size, path);
    size_t end = sizeof deleted - 1;
    if ((size_t)n <= end || strcmp(path + n - end, deleted) != 0)
        return 0;
    path[(size_t)n - end] = '\0';
    return is_program(path) && !str_copy(out, size, path);
}

int process_find(char *out, size_t size, const char *link, const char *argv0, const char *path,
                 const char *cwd)
{
    if (size == 0)
        return 0;
    if (link && by_link(out, size, link))
        return 1;
    const char *slash = argv0 ? strrchr(argv0, '/') : NULL;
    if (slash && argv0[0] == '/' && is_program(argv0) && !str_copy(out, size, argv0))
        return 1;
    if (slash && argv0[0] != '/' && cwd && take(out, size, "", 0, cwd, argv0))
        return 1;
    for (const char *p = path; !slash && argv0 && argv0[0] && p;) {
        size_t n = strcspn(p, ":");
        if (take(out, size, p, n, cwd, argv0))
            return 1;
        p = p[n] ? p + n + 1 : NULL;
    }
    out[0] = '\0';
    return 0;
}

static char at_start[PATH_BYTES]; /* found before the working directory changes */

/* The path the kernel was given; NULL when unknown. */
static const char *executed_path(void)
{
#ifdef __linux__
    unsigned long at = getauxval(AT_EXECFN);
    return at ? (const char *)at : NULL;
#else
    return NULL;
#endif
}

int process_path(char *out, size_t size)
{
    if (process_find(out, size, "/proc/self/exe", NULL, NULL, NULL))
        return 1;
    return at_start[0] && !str_copy(out, size, at_start);
}

#ifdef __linux__
/* Called first for the program itself; a dynamic one names its loader. */
static int find_loader(struct dl_phdr_info *of, size_t size, void *found)
{
    (void)size;
    for (int i = 0; i < of->dlpi_phnum; i++)
        if (of->dlpi_phdr[i].p_type == PT_INTERP)
            *(int *)found = 1;
    return 1; /* no further object */
}

int process_is_static(void)
{
    int has_loader = 0;
    dl_iterate_phdr(find_loader, &has_loader);
    return !has_loader;
}
#else
int process_is_static(void)
{
    return 0; /* macOS has no static programs */
}
#endif

/* ---- the start ---- */

void process_begin(const char *argv0)
{
    char cwd[PATH_BYTES];
    sigset_t none;
    struct sigaction act;
    fill(STDIN_FILENO, O_WRONLY);
    fill(STDOUT_FILENO, O_RDONLY);
    fill(STDERR_FILENO, O_WRONLY);
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    if (sigaction(SIGCHLD, NULL, &act) == 0 && act.sa_handler == SIG_IGN)
        signal(SIGCHLD, SIG_DFL); /* when ignored, exit statuses of children are lost */
    signal(SIGXFSZ, SIG_IGN);
    umask(umask(0) | 022);
    const char *here = getcwd(cwd, sizeof cwd), *executed = executed_path();
    if (!executed || !strchr(executed, '/') ||
        !process_find(at_start, sizeof at_start, NULL, executed, NULL, here))
        (void)process_find(at_start, sizeof at_start, NULL, argv0, getenv("PATH"), here);
}

#if defined(__x86_64__) && defined(__AVX2__)
/* Elsewhere the first instruction that is missing would end the program without a word of why. */
DS_BEFORE_MAIN DS_ANY_X86 static void refuse_older_processors(void)
{
    static const char text[] =
        "depthscope: this build needs a processor with AVX2, FMA and BMI2 (x86-64-v3); "
        "one for any processor: make ARCH=x86-64\n";
    if (DS_CPU_HAS("avx2") && DS_CPU_HAS("fma") && DS_CPU_HAS("bmi2"))
        return;
    ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
    (void)ignored;
    _exit(1);
}
#endif

/* ---- the stack ---- */

struct call {
    int (*fn)(int argc, char **argv);
    int argc, status;
    char **argv;
};

static void *run_call(void *arg)
{
    struct call *c = arg;
    c->status = c->fn(c->argc, c->argv);
    return NULL;
}

/* The new thread inherits the open mask; the waiting one blocks signals, so that they interrupt the
 * calls of the new one. */
static int run_on_large_stack(struct call *c)
{
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, before;
    if (pthread_attr_init(&attr) != 0)
        return 0;
    int rc = pthread_attr_setstacksize(&attr, STACK_BYTES);
#ifdef __GLIBC__
    if (rc == 0) /* otherwise library threads get the size of `ulimit -s` */
        (void)pthread_setattr_default_np(&attr);
#endif
    if (rc == 0)
        rc = pthread_create(&thread, &attr, run_call, c);
    pthread_attr_destroy(&attr);
    if (rc != 0)
        return 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_join(thread, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return 1;
}

int process_run(int (*main_fn)(int argc, char **argv), int argc, char **argv)
{
    struct rlimit limit;
    struct call c = {.fn = main_fn, .argc = argc, .argv = argv};
    if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        limit.rlim_cur < (rlim_t)STACK_LEAST && run_on_large_stack(&c))
        return c.status;
    return main_fn(argc, argv);
}
