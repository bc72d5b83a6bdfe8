/* Rotary position embedding.  MATH.md 5.  The loops are in engine/vec.h. */
#include "base/pool.h"
#include "engine/ops.h"
#include "engine/scratch.h"
#include "engine/vec.h"

struct rope_job {
    const struct vec_set *by;
    real *x;
    const int32_t *pos;
    const real *inv_freq;
    int N, heads, D, half, step;
    real sign;
};

static void rope_rows(void *ctx, int task, int worker)
{
    const struct rope_job *j = ctx;
    int pairs = j->D / 2, begin = task * j->step;
    int end = j->N - begin < j->step ? j->N : begin + j->step;
    real *sine = scratch_get(SCRATCH_ROW, (size_t)j->D, sizeof *sine), *cosine = sine + pairs;
    (void)worker;
    for (int i = begin; i < end; i++) {
        real *x = j->x + (size_t)i * j->heads * j->D;
        if (i == begin || j->pos[i] != j->pos[i - 1]) /* once for all heads */
            j->by->angles(sine, cosine, j->inv_freq, (real)j->pos[i], j->sign, pairs);
        j->by->rotate(x, sine, cosine, j->heads, pairs, j->half);
    }
}

static void rope(real *x, const int32_t *pos, const real *inv_freq, int N, int heads, int D,
                 int half, real sign)
{
    struct rope_job j = {vec(), x, pos, inv_freq, N, heads, D, half, task_rows(heads * D), sign};
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
