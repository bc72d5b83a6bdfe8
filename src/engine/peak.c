/* Measures the peak arithmetic rate of the CPU and its memory bandwidth. */
#include "engine/peak.h"

#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/pool.h"
#include "engine/peak_impl.h"

const char *const peak_name[PEAK_UNITS] = {
    [PEAK_FP32] = "fp32", [PEAK_BF16] = "bf16", [PEAK_INT8] = "int8"};

enum { TASKS_MAX = 1024, LINE = 64, BURSTS = 8 };

/* ---- portable loops ---- */

enum { LANES = 80 }; /* ten vectors of eight: enough chains for two units */

static int always(void)
{
    return 1;
}

static double plain_fp32(long steps)
{
    float x[LANES], sum = 0;
    for (int i = 0; i < LANES; i++)
        x[i] = (float)i;
    for (long k = 0; k < steps; k++)
#pragma omp simd
        for (int i = 0; i < LANES; i++)
            x[i] = x[i] * 0.999F + 0.001F;
    for (int i = 0; i < LANES; i++)
        sum += x[i];
    return (double)sum;
}

/* Without int8 instructions a multiplication takes a whole 32-bit lane. */
static double plain_int(long steps)
{
    uint32_t x[LANES], sum = 0;
    for (int i = 0; i < LANES; i++)
        x[i] = (uint32_t)i;
    for (long k = 0; k < steps; k++)
#pragma omp simd
        for (int i = 0; i < LANES; i++)
            x[i] = x[i] * 2654435761U + 12345U;
    for (int i = 0; i < LANES; i++)
        sum += x[i];
    return sum;
}

static const struct peak_kernel plain_kernels[] = {
    {PEAK_FP32, "plain c", 2.0 * LANES, always, plain_fp32},
    {PEAK_INT8, "plain c", 2.0 * LANES, always, plain_int},
};

static uint64_t plain_read(const unsigned char *p, size_t lines)
{
    uint64_t x[8] = {0}, y[8];
    for (size_t i = 0; i < lines; i++) {
        memcpy(y, p + i * LINE, LINE);
        for (int k = 0; k < 8; k++)
            x[k] ^= y[k];
    }
    return x[0] ^ x[1] ^ x[2] ^ x[3] ^ x[4] ^ x[5] ^ x[6] ^ x[7];
}

/* ---- selection ---- */

static const struct peak_kernel *find(enum peak_unit unit)
{
#ifdef PEAK_X86
    for (int i = 0; peak_x86_kernels[i]; i++)
        if (peak_x86_kernels[i]->unit == unit && peak_x86_kernels[i]->available())
            return peak_x86_kernels[i];
#endif
    for (size_t i = 0; i < DS_LEN(plain_kernels); i++)
        if (plain_kernels[i].unit == unit)
            return &plain_kernels[i];
    return find(PEAK_FP32); /* no bf16 instructions */
}

const char *peak_instruction(enum peak_unit unit)
{
    return find(unit)->name;
}

/* ---- measurement ---- */

struct burst {
    const struct peak_kernel *kernel;
    long steps;
    double sink[TASKS_MAX];
};

static void burst_task(void *ctx, int task, int worker)
{
    struct burst *b = ctx;
    (void)worker;
    b->sink[task] = b->kernel->run(b->steps);
}

static int tasks_of_pool(void)
{
    return pool_threads() < TASKS_MAX ? pool_threads() : TASKS_MAX;
}

static double burst_s(struct burst *b)
{
    double t = clock_mono();
    pool_run(tasks_of_pool(), burst_task, b);
    return clock_mono() - t;
}

/* The shortest of a few bursts: losing the CPU makes a burst longer, nothing makes it shorter.
 * Bursts are long compared with waking a thread. */
double peak_gflops(enum peak_unit unit, double seconds)
{
    enum { STEPS_MAX = 1 << 28 };
    struct burst b = {.kernel = find(unit), .steps = 1024};
    double wanted = seconds / (BURSTS + 2), t = burst_s(&b), best;
    while (t < wanted && b.steps < STEPS_MAX) {
        b.steps *= 2;
        t = burst_s(&b);
        if (t <= 0)
            return 0; /* the clock did not advance */
    }
    best = t;
    for (int i = 0; i < BURSTS; i++) {
        t = burst_s(&b);
        best = t < best ? t : best;
    }
    return best > 0 ? 1e-9 * b.kernel->ops * (double)b.steps * tasks_of_pool() / best : 0;
}

struct reading {
    const unsigned char *p;
    size_t lines;
    int tasks;
    uint64_t (*read)(const unsigned char *p, size_t lines);
    uint64_t sink[TASKS_MAX];
};

static void read_task(void *ctx, int task, int worker)
{
    struct reading *r = ctx;
    size_t part = r->lines / (size_t)r->tasks, first = part * (size_t)task;
    (void)worker;
    r->sink[task] = r->read(r->p + first * LINE, task == r->tasks - 1 ? r->lines - first : part);
}

double peak_read_gbs(const void *p, size_t bytes)
{
    struct reading r = {
        .p = p, .lines = bytes / LINE, .tasks = tasks_of_pool(), .read = plain_read};
#ifdef PEAK_X86
    if (peak_x86_reader.available())
        r.read = peak_x86_reader.read;
#endif
    double t = clock_mono();
    pool_run(r.tasks, read_task, &r);
    t = clock_mono() - t;
    return t > 0 ? 1e-9 * (double)(r.lines * LINE) / t : 0;
}
