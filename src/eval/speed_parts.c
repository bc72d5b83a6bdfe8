/* Peaks of the machine, and matrix products against them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/str.h"
#include "engine/gemm.h"
#include "eval/speed.h"
#include "eval/statistics.h"

int speed_add(struct speed_list *l, const char *name, const char *unit, double *sample, int n,
              const char *reference, double reference_median, struct err *e)
{
    void *p = l->v;
    if (mem_grow(&p, &l->cap, l->n + 1, sizeof *l->v) < 0)
        return err_set(e, DS_EMEM, "results");
    l->v = p;
    struct speed_result *r = &l->v[l->n++];
    memset(r, 0, sizeof *r);
    str_copy(r->name, sizeof r->name, name);
    r->unit = unit;
    r->median = estimate_median(sample, (size_t)n); /* sorts */
    r->min = sample[0];
    r->max = sample[n - 1];
    r->reference = reference_median > 0 ? reference : NULL;
    r->vs = reference_median > 0 ? r->median / reference_median : (double)NAN;
    return 0;
}

int speed_wants(const struct speed_options *o, const char *name)
{
    return !o->only[0] || strstr(name, o->only) != NULL;
}

/* ---- peaks ---- */

enum { FMA_LANES = 80, FMA_STEPS = 200000 };

/* Ten vectors of eight lanes: enough independent chains to keep two units busy. */
static float fma_chains(int steps, float a, float b)
{
    float x[FMA_LANES], sum = 0;
    for (int i = 0; i < FMA_LANES; i++)
        x[i] = (float)i;
    for (int k = 0; k < steps; k++)
#pragma omp simd
        for (int i = 0; i < FMA_LANES; i++)
            x[i] = x[i] * a + b;
    for (int i = 0; i < FMA_LANES; i++)
        sum += x[i];
    return sum;
}

static void fma_task(void *ctx, int task, int worker)
{
    (void)worker;
    ((float *)ctx)[task] = fma_chains(FMA_STEPS, 0.999F, 0.001F);
}

double speed_fma_gflops(void)
{
    float sink[256];
    int tasks = pool_threads() < 256 ? pool_threads() : 256;
    double t = clock_mono();
    pool_run(tasks, fma_task, sink);
    t = clock_mono() - t;
    return t > 0 ? 2e-9 * FMA_LANES * FMA_STEPS * tasks / t : 0;
}

struct reading {
    const float *p;
    size_t n;
    float sum[256];
    int tasks;
};

static void read_task(void *ctx, int task, int worker)
{
    struct reading *r = ctx;
    size_t part = r->n / (size_t)r->tasks;
    const float *p = r->p + part * (size_t)task;
    float sum[16] = {0}, all = 0;
    (void)worker;
    for (size_t i = 0; i + 16 <= part; i += 16)
#pragma omp simd
        for (int k = 0; k < 16; k++)
            sum[k] += p[i + (size_t)k];
    for (int k = 0; k < 16; k++)
        all += sum[k];
    r->sum[task] = all;
}

double speed_read_gbs(const float *buffer, size_t n)
{
    struct reading r = {.p = buffer, .n = n, .tasks = pool_threads() < 256 ? pool_threads() : 256};
    double t = clock_mono();
    pool_run(r.tasks, read_task, &r);
    t = clock_mono() - t;
    return t > 0 ? 1e-9 * (double)(n * sizeof *buffer) / t : 0;
}

/* ---- products ---- */

struct product {
    const char *what;
    int M, N, K;
};

static double product_gflops(const struct product *p, const real *a, const real *b, real *c)
{
    double flops = 2.0 * p->M * p->N * p->K, t = clock_mono(), end;
    int calls = 0;
    do {
        gemm(0, 1, p->M, p->N, p->K, 1, a, p->K, b, p->K, 0, c, p->N);
        calls++;
        end = clock_mono();
    } while (end - t < 4e-3 && end > t); /* a fixed clock ends it */
    return end > t ? 1e-9 * flops * calls / (end - t) : 0;
}

/* All providers in turn within a round. */
static int time_product(struct speed_list *l, const struct speed_options *o,
                        const struct product *p, double peak, const real *a, const real *b, real *c,
                        struct err *e)
{
    enum { PROVIDERS = 8, ROUNDS = 64 };
    double sample[PROVIDERS][ROUNDS];
    const struct gemm_provider *const *all = gemm_providers();
    int rounds = (int)(o->rounds < ROUNDS ? o->rounds : ROUNDS), rc = 0;
    for (int i = 0; i < rounds && rc == 0; i++)
        for (int k = 0; k < PROVIDERS && all[k] && rc == 0; k++) {
            if (!gemm_available(all[k]) || gemm_format_of(all[k]) != GEMM_FP32 ||
                strcmp(gemm_name(all[k]), "ref") == 0)
                continue;
            rc = gemm_use(gemm_name(all[k]), e);
            if (rc == 0)
                sample[k][i] = product_gflops(p, a, b, c);
        }
    for (int k = 0; k < PROVIDERS && all[k] && rc == 0; k++) {
        char name[64];
        if (!gemm_available(all[k]) || gemm_format_of(all[k]) != GEMM_FP32 ||
            strcmp(gemm_name(all[k]), "ref") == 0)
            continue;
        snprintf(name, sizeof name, "gemm %s %s %dx%dx%d", gemm_name(all[k]), p->what, p->M, p->N,
                 p->K);
        rc = speed_add(l, name, "GFLOP/s", sample[k], rounds, "fma peak", peak, e);
    }
    return rc;
}

int speed_products(struct speed_list *l, const struct speed_options *o, double peak, struct err *e)
{
    int C = (int)o->dim, F = (int)(o->dim * 8 / 3 + 31) / 32 * 32, T = (int)o->prefill,
        V = (int)o->vocab;
    const struct product shapes[] = {
        {"attention", T, C, C}, {"mlp", T, F, C}, {"head", 64, V, C}, {"decode", 1, F, C}};
    const char *used = gemm_name(gemm_provider(GEMM_FP32));
    size_t na = (size_t)T * (size_t)F, nb = (size_t)C * (size_t)(V > F ? V : F),
           nc = (size_t)T * (size_t)F + 64 * (size_t)V;
    real *a = mem_alloc(na, sizeof *a), *b = mem_alloc(nb, sizeof *b),
         *c = mem_alloc(nc, sizeof *c);
    int rc = a && b && c ? 0 : err_set(e, DS_EMEM, "matrices");
    for (size_t i = 0; rc == 0 && i < na; i++)
        a[i] = (real)((double)(i % 97) / 97 - 0.5);
    for (size_t i = 0; rc == 0 && i < nb; i++)
        b[i] = (real)((double)(i % 89) / 89 - 0.5);
    for (size_t i = 0; i < DS_LEN(shapes) && rc == 0; i++)
        rc = time_product(l, o, &shapes[i], peak, a, b, c, e);
    if (gemm_use(used, e) < 0 && rc == 0)
        rc = DS_ENOTFOUND;
    mem_free(a);
    mem_free(b);
    mem_free(c);
    return rc;
}
