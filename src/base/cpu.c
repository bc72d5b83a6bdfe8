/* Detects processor features and quotas, and applies the cap of DEPTHSCOPE_CPU. */
#define _GNU_SOURCE /* syscall */
#include "base/cpu.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/cgroup.h"
#include "base/compiler.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/str.h"
#include "base/utf8.h"

/* Features that kernels test for, and that explain a measured speed in reports. */
static const char *const shown[] = {
    "sse4_2",      "avx",      "f16c",     "fma",      "avx2",     "avx512f",     "avx512bw",
    "avx512_vnni", "avx_vnni", "amx_tile", "amx_int8", "amx_bf16", "avx512_bf16", "avx512_fp16",
    "asimd",       "asimdhp",  "asimddp",  "bf16",     "i8mm",     "sve",         "sve2",
};

static char model[128];
static char features[8192]; /* " flag flag ... " */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The value after "key : " on a line of /proc/cpuinfo, or NULL. */
static const char *value_of(const char *line, const char *key)
{
    size_t n = strlen(key);
    if (strncmp(line, key, n) != 0 || (line[n] != '\t' && line[n] != ' ' && line[n] != ':'))
        return NULL;
    const char *colon = strchr(line, ':');
    return colon ? colon + 1 + strspn(colon + 1, " ") : NULL;
}

#if defined(__x86_64__)
enum { EAX, EBX, ECX, EDX };
/* Register state that the system must save (XCR0): of AVX, AVX-512, AMX. */
enum { AVX_STATE = 0x6, AVX512_STATE = 0xe6, AMX_STATE = 0x60000 };
static const struct {
    unsigned leaf, subleaf;
    int reg, bit;
    unsigned state;
    const char *name;
} cpuid_bit[] = {
    {1, 0, ECX, 20, 0, "sse4_2"},
    {1, 0, ECX, 28, AVX_STATE, "avx"},
    {1, 0, ECX, 29, AVX_STATE, "f16c"},
    {1, 0, ECX, 12, AVX_STATE, "fma"},
    {7, 0, EBX, 5, AVX_STATE, "avx2"},
    {7, 0, EBX, 16, AVX512_STATE, "avx512f"},
    {7, 0, EBX, 30, AVX512_STATE, "avx512bw"},
    {7, 0, ECX, 11, AVX512_STATE, "avx512_vnni"},
    {7, 1, EAX, 4, AVX_STATE, "avx_vnni"},
    {7, 1, EAX, 5, AVX512_STATE, "avx512_bf16"},
    {7, 0, EDX, 23, AVX512_STATE, "avx512_fp16"},
    {7, 0, EDX, 24, AMX_STATE, "amx_tile"},
    {7, 0, EDX, 25, AMX_STATE, "amx_int8"},
    {7, 0, EDX, 22, AMX_STATE, "amx_bf16"},
};

void cpu_cpuid_features(char *out, size_t size)
{
    enum { OSXSAVE = 1 << 27 };
    unsigned r[4] = {0}, saved = 0, high = 0;
    struct str s = {0};
    if (__get_cpuid(1, &r[EAX], &r[EBX], &r[ECX], &r[EDX]) && (r[ECX] & OSXSAVE))
        DS_XGETBV(saved, high);
    (void)high;
    for (size_t i = 0; i < DS_LEN(cpuid_bit); i++)
        if (__get_cpuid_count(cpuid_bit[i].leaf, cpuid_bit[i].subleaf, &r[EAX], &r[EBX], &r[ECX],
                              &r[EDX]) &&
            (r[cpuid_bit[i].reg] >> cpuid_bit[i].bit & 1) &&
            (saved & cpuid_bit[i].state) == cpuid_bit[i].state)
            str_addf(&s, " %s ", cpuid_bit[i].name);
    str_copy(out, size, s.failed ? "" : str_text(&s));
    str_release(&s);
}
#else
void cpu_cpuid_features(char *out, size_t size)
{
    if (size > 0)
        out[0] = '\0';
}
#endif

static void read_cpuinfo(void)
{
    char line[8000];
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && fgets(line, sizeof line, f) && !(model[0] && features[0])) {
        line[strcspn(line, "\n")] = '\0';
        const char *v = value_of(line, "model name");
        if (!v)
            v = value_of(line, "CPU implementer");
        if (v && !model[0])
            str_copy(model, sizeof model, v);
        v = value_of(line, "flags");
        if (!v)
            v = value_of(line, "Features");
        if (v && !features[0])
            snprintf(features, sizeof features, " %s ", v);
    }
    if (f)
        fclose(f);
    if (!features[0])
        cpu_cpuid_features(features, sizeof features);
    utf8_scrub(model);
}

int cpu_has(const char *feature)
{
    char padded[64];
    pthread_once(&once, read_cpuinfo);
    int n = snprintf(padded, sizeof padded, " %s ", feature);
    return n > 0 && (size_t)n < sizeof padded && strstr(features, padded) != NULL;
}

static enum cpu_level cap = CPU_AMX;
static pthread_once_t cap_once = PTHREAD_ONCE_INIT, amx_once = PTHREAD_ONCE_INIT;
static int amx_granted;

static void read_cap(void)
{
    static const char *const name[] = {"ref", "avx2", "avx512", "amx"};
    static const char *const needs[] = {NULL, "avx2", "avx512f", "amx_tile"};
    const char *word = getenv("DEPTHSCOPE_CPU");
    if (!word || !*word)
        return;
    for (size_t i = 0; i < DS_LEN(name); i++)
        if (strcmp(word, name[i]) == 0) {
            cap = (enum cpu_level)i;
            if (needs[i] && !cpu_has(needs[i]))
                log_warn(
                    "DEPTHSCOPE_CPU=%s: unsupported by this processor; using the best supported",
                    word);
            return;
        }
    log_warn("DEPTHSCOPE_CPU=%s: expected ref, avx2, avx512 or amx; ignored", word);
}

int cpu_allows(enum cpu_level level)
{
    pthread_once(&cap_once, read_cap);
    return level <= cap;
}

int cpu_amx_decide(int listed, int allowed, int (*ask)(void))
{
    if (!listed || !allowed)
        return 0;
    if (ask())
        return 1;
    log_warn("AMX is supported, but the kernel denied its tiles; using slower GEMM kernels");
    return 0;
}

/* The kernel saves tile data only for processes that requested it (Linux 5.16). */
static int ask_kernel(void)
{
#if defined(__linux__) && defined(__x86_64__) && defined(SYS_arch_prctl)
    enum { REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return 0;
#endif
}

static void ask_amx(void)
{
    amx_granted =
        cpu_amx_decide(cpu_has("amx_tile") && cpu_has("amx_bf16"), cpu_allows(CPU_AMX), ask_kernel);
}

int cpu_has_amx(void)
{
    pthread_once(&amx_once, ask_amx);
    return amx_granted;
}

void cpu_describe(char *out, size_t size)
{
    struct str s = {0};
    pthread_once(&once, read_cpuinfo);
    long all = sysconf(_SC_NPROCESSORS_CONF);
    str_addf(&s, "%s, %d of %ld processors", model[0] ? model : "unknown processor", pool_cpus(),
             all > 0 ? all : 1);
    for (size_t i = 0, first = 1; i < DS_LEN(shown); i++) {
        if (!cpu_has(shown[i]))
            continue;
        str_addf(&s, "%s%s", first ? ", " : " ", shown[i]);
        first = 0;
    }
    str_copy(out, size, s.failed ? "unknown processor" : str_text(&s));
    str_release(&s);
}

/* Processors from "quota period" (microseconds); 0 for "max", -1 or malformed text. */
static double share(const char *quota, const char *period)
{
    double q = strtod(quota, NULL), p = strtod(period, NULL);
    return q > 0 && p > 0 ? q / p : 0;
}

static double limit_v2(const char *dir)
{
    char line[128];
    if (!cgroup_line(line, sizeof line, dir, "cpu.max"))
        return 0;
    const char *space = strchr(line, ' ');
    return space ? share(line, space) : 0;
}

static double limit_v1(const char *dir)
{
    char quota[128], period[128];
    if (!cgroup_line(quota, sizeof quota, dir, "cpu.cfs_quota_us") ||
        !cgroup_line(period, sizeof period, dir, "cpu.cfs_period_us"))
        return 0;
    return share(quota, period);
}

int cpu_quota(const char *mount, const char *self)
{
    double least = cgroup_min(mount, self, "cpu", limit_v2, limit_v1);
    return least > 0 && least < 1e6 ? (int)ceil(least - 1e-9) : 0;
}
