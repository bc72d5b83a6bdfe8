/* What is made of the facts about AMX, and of DEPTHSCOPE_CPU.  A cap is read once: each test is its own process. */
#include "base/cpu.h"
#include "base/log.h"
#include "t.h"

#include <unistd.h>

static int asked, answer, warnings;
static char said[256];

static int ask(void)
{
    asked++;
    return answer;
}

static void hear(void *ctx, enum log_level level, const char *text)
{
    (void)ctx;
    warnings += level == LOG_WARN;
    snprintf(said, sizeof said, "%s", text);
}

T(amx_is_requested_only_where_it_is_listed_and_allowed)
{
    log_to(hear, NULL);
    answer = 1;
    t_true(!cpu_amx_decide(0, 1, ask) && !cpu_amx_decide(1, 0, ask) && !cpu_amx_decide(0, 0, ask));
    t_true(asked == 0 && warnings == 0);
    t_true(cpu_amx_decide(1, 1, ask));
    t_true(asked == 1 && warnings == 0);
}

T(a_kernel_that_denies_amx_causes_one_warning)
{
    log_to(hear, NULL);
    t_true(!cpu_amx_decide(1, 1, ask));
    t_true(asked == 1 && warnings == 1);
    t_true(strstr(said, "denied its tiles") != NULL);
}

T(amx_is_not_used_where_the_processor_does_not_list_it_or_a_cap_forbids_it)
{
    log_to(hear, NULL);
    setenv("DEPTHSCOPE_CPU", "avx512", 1);
    t_true(!cpu_allows(CPU_AMX) && cpu_allows(CPU_AVX512) && cpu_allows(CPU_REF));
    t_true(!cpu_has_amx());
}

T(a_cap_allows_its_own_level_and_those_below)
{
    setenv("DEPTHSCOPE_CPU", "ref", 1);
    t_true(cpu_allows(CPU_REF) && !cpu_allows(CPU_AVX2) && !cpu_allows(CPU_AVX512));
}

T(an_unknown_cap_is_reported_and_ignored)
{
    log_to(hear, NULL);
    setenv("DEPTHSCOPE_CPU", "abacus", 1);
    t_true(cpu_allows(CPU_AMX) && cpu_allows(CPU_AVX2));
    t_true(warnings == 1 && strstr(said, "abacus") && strstr(said, "ignored"));
}

T(no_cap_allows_everything)
{
    log_to(hear, NULL);
    unsetenv("DEPTHSCOPE_CPU");
    t_true(cpu_allows(CPU_AMX) && warnings == 0);
}

T(cpuid_agrees_with_the_kernel)
{
    static const char *const name[] = {"sse4_2",   "avx",         "f16c",     "fma",
                                       "avx2",     "avx512f",     "avx512bw", "avx512_vnni",
                                       "avx_vnni", "avx512_bf16", "amx_tile", "avx512_fp16",
                                       "amx_int8", "amx_bf16"};
    char asked_for[1024], padded[32];
    t_skip_if_emulated("the processor is another than the kernel's");
    cpu_cpuid_features(asked_for, sizeof asked_for);
    if (!asked_for[0] || access("/proc/cpuinfo", R_OK) != 0)
        return; /* not an x86, or nothing to compare with */
    for (size_t i = 0; i < DS_LEN(name); i++) {
        snprintf(padded, sizeof padded, " %s ", name[i]);
        t_truef((strstr(asked_for, padded) != NULL) == cpu_has(name[i]), "%s: \"%s\"", name[i],
                asked_for);
    }
}
