/* Preloaded into programs whose functions begin with a trap instruction (mutants_map.py wrote it
 * there): the first call of each function marks the source it is of, puts the byte back and goes
 * on.  A program's traps are listed in PROGRAM.traps. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <ucontext.h>
#include <unistd.h>

struct trap { /* in the order of offset */
    uint32_t offset, source, byte;
};

static const struct trap *traps;
static size_t n_traps;
static unsigned char *hits, *base;

static void on_trap(int signal, siginfo_t *info, void *context)
{
    greg_t *ip = &((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    uint32_t offset = (uint32_t)((unsigned char *)*ip - 1 - base);
    size_t low = 0, high = n_traps;
    (void)signal, (void)info;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (traps[mid].offset < offset)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == n_traps || traps[low].offset != offset)
        _exit(99);
    hits[traps[low].source] = 1;
    base[offset] = (unsigned char)traps[low].byte;
    --*ip;
}

static int main_program(struct dl_phdr_info *info, size_t size, void *ctx)
{
    (void)size, (void)ctx;
    base = (unsigned char *)info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t begin = (info->dlpi_addr + p->p_vaddr) & ~(uintptr_t)4095;
        if (p->p_type == PT_LOAD && (p->p_flags & PF_X))
            mprotect((void *)begin, info->dlpi_addr + p->p_vaddr + p->p_memsz - begin,
                     PROT_READ | PROT_WRITE | PROT_EXEC);
    }
    return 1; /* the first is the program */
}

static void *mapped(const char *path, int prot, size_t *size)
{
    struct stat st;
    int fd = open(path, (prot & PROT_WRITE ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    void *p = MAP_FAILED;
    if (fd >= 0 && fstat(fd, &st) == 0)
        p = mmap(NULL, *size = (size_t)st.st_size, prot, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return p == MAP_FAILED ? NULL : p;
}

/* Before the program's own constructors, which may be functions with traps. */
__attribute__((constructor(101))) static void begin(void)
{
    char path[4096];
    size_t size;
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 8);
    const char *at = getenv("MUTANTS_HITS");
    if (n < 0 || !at)
        return;
    strcpy(path + n, ".traps");
    traps = mapped(path, PROT_READ, &n_traps);
    if (!traps)
        return;
    n_traps /= sizeof *traps;
    hits = mapped(at, PROT_READ | PROT_WRITE, &size);
    if (!hits)
        _exit(98);
    dl_iterate_phdr(main_program, NULL);
    struct sigaction sa = {.sa_sigaction = on_trap,
                           .sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART};
    sigset_t set;
    sigaction(SIGTRAP, &sa, NULL);
    sigemptyset(&set);
    sigaddset(&set, SIGTRAP);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

/* A thread that blocks every signal would be killed by its first trap. */
#define WITHOUT_TRAP(name)                                                                         \
    int name(int how, const sigset_t *set, sigset_t *old)                                          \
    {                                                                                              \
        int (*next)(int, const sigset_t *, sigset_t *);                                            \
        sigset_t copy;                                                                             \
        *(void **)&next = dlsym(RTLD_NEXT, #name);                                                 \
        if (set && how != SIG_UNBLOCK) {                                                           \
            copy = *set;                                                                           \
            sigdelset(&copy, SIGTRAP);                                                             \
            set = &copy;                                                                           \
        }                                                                                          \
        return next(how, set, old);                                                                \
    }
WITHOUT_TRAP(pthread_sigmask)
WITHOUT_TRAP(sigprocmask)
