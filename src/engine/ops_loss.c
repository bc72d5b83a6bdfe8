/* Softmax cross-entropy, and the norm of a gradient.  MATH.md 9. */
#include "base/pool.h"
#include "engine/ops.h"
#include "engine/scratch.h"
#include "engine/vmath.h"

struct xent_job {
    real *logits, *nll, *entropy;
    const int32_t *target;
    const real *weight;
    real scale;
    int N, V, step;
};

enum { EXP_CHUNK = 512 };

/* Sum of exp(x - top), and of exp(x - top) (x - top); with `keep` the exponentials replace x.  Logits of -Inf
 * (forbidden tokens) add nothing to either.  By chunks, so that both sums read what is still in the nearest cache. */
static void row_exp(real *x, real top, int n, int keep, double *sum, double *moment)
{
    real d[EXP_CHUNK], e[EXP_CHUNK];
    *sum = *moment = 0;
    for (int i = 0; i < n; i += EXP_CHUNK) {
        int m = n - i < EXP_CHUNK ? n - i : EXP_CHUNK;
        real *to = keep ? x + i : e;
        V_SIMD
        for (int k = 0; k < m; k++) {
            real t = x[i + k] - top;
            d[k] = t < -1000 ? -1000 : t;
        }
        V_SIMD
        for (int k = 0; k < m; k++)
            to[k] = v_exp(d[k]);
        *sum += (double)v_sum(to, (size_t)m);
        *moment += (double)v_dot(to, d, (size_t)m);
    }
}

static void row_scale(real *x, int n, real by)
{
#pragma omp simd
    for (int i = 0; i < n; i++)
        x[i] *= by;
}

static void row_zero(real *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = 0;
}

static void xent_row(const struct xent_job *j, int i)
{
    real *x = j->logits + (size_t)i * j->V;
    int target = j->target[i], wants_grad = j->scale != 0;
    if (target < 0 && !j->entropy) {
        if (j->nll)
            j->nll[i] = 0;
        if (wants_grad)
            row_zero(x, j->V);
        return;
    }
    real top = v_max(x, (size_t)j->V), at = target >= 0 ? x[target] : 0;
    double sum, moment;
    row_exp(x, top, j->V, wants_grad && target >= 0, &sum, &moment);
    double log_sum = log(sum);
    if (j->nll)
        j->nll[i] = target >= 0 ? (real)(log_sum + (double)(top - at)) : 0; /* 9.1 */
    if (j->entropy)
        j->entropy[i] = (real)(log_sum - moment / sum); /* 9.2 */
    if (!wants_grad)
        return;
    if (target < 0) {
        row_zero(x, j->V);
        return;
    }
    real by = j->scale * (j->weight ? j->weight[i] : 1);
    row_scale(x, j->V, (real)((double)by / sum)); /* 9.3 */
    x[target] -= by;
}

static void xent_rows(void *ctx, int task, int worker)
{
    const struct xent_job *j = ctx;
    int i = task * j->step, end = j->N - i < j->step ? j->N : i + j->step;
    (void)worker;
    for (; i < end; i++)
        xent_row(j, i);
}

void xent_fwd_bwd(real *logits, const int32_t *target, const real *weight, real scale, real *nll,
                  real *entropy, int N, int V)
{
    struct xent_job j = {logits, nll, entropy, target, weight, scale, N, V, task_rows(V)};
    if (N > 0 && V > 0)
        pool_run(task_count(N, j.step), xent_rows, &j);
}

enum { SQUARES_CHUNK = 4096 };

struct squares_job {
    const real *x;
    double *sum;
    uint32_t *bad;
    size_t n;
};

static void squares_part(void *ctx, int task, int worker)
{
    const struct squares_job *j = ctx;
    size_t begin = (size_t)task * SQUARES_CHUNK;
    size_t n = j->n - begin < SQUARES_CHUNK ? j->n - begin : SQUARES_CHUNK;
    const real *x = j->x + begin;
    double lane[V_LANES] = {0};
    uint32_t bad = 0;
    size_t i = 0;
    (void)worker;
    for (; i + V_LANES <= n; i += V_LANES)
#pragma omp simd
        for (size_t l = 0; l < V_LANES; l++)
            lane[l] += (double)x[i + l] * (double)x[i + l];
    for (size_t l = 0; i + l < n; l++)
        lane[l] += (double)x[i + l] * (double)x[i + l];
    for (int half = V_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    if (!isfinite(lane[0])) /* rare: only then are they counted one by one */
        for (i = 0; i < n; i++)
            bad += !isfinite(x[i]);
    j->sum[task] = lane[0];
    j->bad[task] = bad;
}

/* Pairs, then pairs of pairs: the tree depends on the count alone. */
static double tree_sum(double *x, int n)
{
    for (; n > 1; n = (n + 1) / 2)
        for (int i = 0; i < n / 2 + (n & 1); i++)
            x[i] = 2 * i + 1 < n ? x[2 * i] + x[2 * i + 1] : x[2 * i];
    return n ? x[0] : 0;
}

double sum_squares(const real *x, size_t n, uint64_t *bad)
{
    int tasks = (int)(n / SQUARES_CHUNK + (n % SQUARES_CHUNK != 0));
    double *sum = scratch_get(SCRATCH_PART, (size_t)tasks, sizeof *sum + sizeof(uint32_t));
    struct squares_job j = {x, sum, (uint32_t *)(sum + tasks), n};
    uint64_t count = 0;
    pool_run(tasks, squares_part, &j);
    for (int i = 0; i < tasks; i++)
        count += j.bad[i];
    if (bad)
        *bad = count;
    return tree_sum(sum, tasks);
}
