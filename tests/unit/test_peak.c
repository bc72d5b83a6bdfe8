/* Measured peak rates: their names, plausibility and caps. */
#include "t.h"

#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "base/pool.h"
#include "engine/peak.h"

enum { TRIES = 4 };

/* The best of a few: another process may take the CPU during any of them. */
static double best(enum peak_unit unit)
{
    double top = 0;
    for (int i = 0; i < TRIES; i++) {
        double g = peak_gflops(unit, 0.02);
        top = g > top ? g : top;
    }
    return top;
}

static int names(enum peak_unit unit, const char *word)
{
    return strstr(peak_instruction(unit), word) != NULL;
}

T(units_have_names_instructions_and_positive_rates)
{
    static const char *const want[] = {"fp32", "bf16", "int8"};
    for (int u = 0; u < PEAK_UNITS; u++) {
        t_str(peak_name[u], want[u]);
        t_true(strlen(peak_instruction((enum peak_unit)u)) > 4);
        double g = best((enum peak_unit)u);
        t_truef(g > (getenv("T_SLOW_FACTOR") ? 0.005 : 0.05), "%s: %g", peak_name[u], g);
    }
}

/* Detects a miscounted instruction, or chains that the compiler merged: no CPU has two 512-bit
 * units at more than 7 GHz (fp32), nor int8 multiplications at less than 0.4 of the fp32 rate. */
T(rates_are_plausible_for_a_cpu)
{
    double fp32 = best(PEAK_FP32), bf16 = best(PEAK_BF16), int8 = best(PEAK_INT8);
    t_truef(fp32 < 7.0 * 2 * 2 * 16 * pool_threads(), "fp32 %g", fp32);
    t_truef(bf16 >= 0.4 * fp32, "bf16 %g beside fp32 %g", bf16, fp32);
    t_truef(int8 >= 0.4 * fp32, "int8 %g beside fp32 %g", int8, fp32);
    t_truef(bf16 < 60 * fp32, "bf16 %g beside fp32 %g", bf16, fp32);
    t_truef(int8 < 120 * fp32, "int8 %g beside fp32 %g", int8, fp32);
}

T(a_cap_names_the_remaining_instructions)
{
    setenv("DEPTHSCOPE_CPU", "ref", 1);
    for (int u = 0; u < PEAK_UNITS; u++)
        t_str(peak_instruction((enum peak_unit)u), "plain c");
    t_true(peak_gflops(PEAK_INT8, 0.002) > 0);
}

T(an_avx2_cap_allows_at_most_avx2)
{
    setenv("DEPTHSCOPE_CPU", "avx2", 1);
    for (int u = 0; u < PEAK_UNITS; u++) {
        t_true(!names((enum peak_unit)u, "avx512") && !names((enum peak_unit)u, "amx"));
#ifdef __x86_64__
        if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
            t_true(names((enum peak_unit)u, "avx"));
#endif
        t_true(peak_gflops((enum peak_unit)u, 0.002) > 0);
    }
}

T(an_avx512_cap_allows_at_most_avx512)
{
    setenv("DEPTHSCOPE_CPU", "avx512", 1);
    for (int u = 0; u < PEAK_UNITS; u++) {
        t_true(!names((enum peak_unit)u, "amx"));
        t_true(peak_gflops((enum peak_unit)u, 0.002) > 0);
    }
#ifdef __x86_64__
    t_eq(names(PEAK_FP32, "avx512"), __builtin_cpu_supports("avx512f") != 0);
#endif
}

T(amx_is_named_only_when_permitted)
{
    t_eq(names(PEAK_BF16, "amx"), cpu_has_amx());
    t_true(!names(PEAK_FP32, "amx"));
}

/* Memory of exactly this size, so that sanitizers catch reading past it. */
T(reading_stays_within_its_bytes)
{
    static const size_t size[] = {0, 1, 63, 64, 65, 127, 4096, 4097, 64 * 1023 + 5, 1 << 20};
    struct err e = {0};
    for (int threads = 1; threads <= 5; threads += 2) {
        t_ok(pool_start(threads, &e), &e);
        for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
            unsigned char *p = mem_alloc(size[i] + 1, 1);
            t_true(p != NULL);
            double g = peak_read_gbs(p + 1, size[i]);
            t_true(size[i] < 64 ? g == 0 : g > 0);
            mem_free(p);
        }
        pool_stop();
    }
}

T(a_stopped_clock_gives_no_rate_and_terminates)
{
    setenv("DEPTHSCOPE_CLOCK", "fixed", 1);
    for (int u = 0; u < PEAK_UNITS; u++)
        t_true(peak_gflops((enum peak_unit)u, 0.01) == 0);
}
