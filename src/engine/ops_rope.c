/* Rotary position embedding.  MATH.md 5. */
#include "base/pool.h"
#include "engine/ops.h"
#include "engine/scratch.h"
#include "engine/vmath.h"

struct rope_job {
    real *x;
    const int32_t *pos;
    const real *inv_freq;
    int N, heads, D, half, step;
    real sign;
};

static void rope_angles(real *sine, real *cosine, const real *inv_freq, int32_t pos, int pairs,
                        real sign)
{
    V_SIMD
    for (int i = 0; i < pairs; i++) {
        real s, c;
        v_sincos((real)pos * inv_freq[i], &s, &c);
        sine[i] = sign * s;
        cosine[i] = c;
    }
}

static void rotate_halves(real *x, const real *sine, const real *cosine, int pairs)
{
    real *y = x + pairs;
#pragma omp simd
    for (int i = 0; i < pairs; i++) {
        real a = x[i], b = y[i];
        x[i] = a * cosine[i] - b * sine[i];
        y[i] = b * cosine[i] + a * sine[i];
    }
}

static void rotate_pairs(real *x, const real *sine, const real *cosine, int pairs)
{
    for (int i = 0; i < pairs; i++) {
        real a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * cosine[i] - b * sine[i];
        x[2 * i + 1] = b * cosine[i] + a * sine[i];
    }
}

static void rope_rows(void *ctx, int task, int worker)
{
    const struct rope_job *j = ctx;
    int pairs = j->D / 2, i = task * j->step, end = j->N - i < j->step ? j->N : i + j->step;
    real *sine = scratch_get(SCRATCH_ROW, (size_t)j->D, sizeof *sine), *cosine = sine + pairs;
    (void)worker;
    for (; i < end; i++) {
        rope_angles(sine, cosine, j->inv_freq, j->pos[i], pairs, j->sign); /* once for all heads */
        real *x = j->x + (size_t)i * j->heads * j->D;
        for (int h = 0; h < j->heads; h++, x += j->D) {
            if (j->half)
                rotate_halves(x, sine, cosine, pairs);
            else
                rotate_pairs(x, sine, cosine, pairs);
        }
    }
}

static void rope(real *x, const int32_t *pos, const real *inv_freq, int N, int heads, int D,
                 int half, real sign)
{
    struct rope_job j = {x, pos, inv_freq, N, heads, D, half, task_rows(heads * D), sign};
    if (N > 0 && heads > 0 && D > 1)
        pool_run(task_count(N, j.step), rope_rows, &j);
}

void rope_fwd(real *x, const int32_t *pos, const real *inv_freq, int N, int heads, int D, int half)
{
    rope(x, pos, inv_freq, N, heads, D, half, 1); /* 5.1 */
}

void rope_bwd(real *dx, const int32_t *pos, const real *inv_freq, int N, int heads, int D, int half)
{
    rope(dx, pos, inv_freq, N, heads, D, half, -1); /* 5.2 */
}
