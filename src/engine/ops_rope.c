/* Rotary position embedding.  MATH.md 5.  The loops are in engine/vec.h. */
#include "base/pool.h"
#include "engine/ops.h"
#include "engine/scratch.h"
#include "engine/vec.h"

struct rope_job {
    const struct vec_set *by;
    const struct rope *r;
    real *x;
    const int32_t *pos;
    int N, heads, step;
    real sign;
};

static void rope_rows(void *ctx, int task, int worker)
{
    const struct rope_job *j = ctx;
    int D = j->r->D, pairs = j->r->dims / 2, begin = task * j->step;
    int end = j->N - begin < j->step ? j->N : begin + j->step;
    real *sine = scratch_get(SCRATCH_ROW, 2 * (size_t)pairs, sizeof *sine), *cosine = sine + pairs;
    (void)worker;
    for (int i = begin; i < end; i++) {
        real *x = j->x + (size_t)i * (size_t)j->heads * (size_t)D;
        if (i == begin || j->pos[i] != j->pos[i - 1]) { /* once for all heads */
            j->by->angles(sine, cosine, j->r->inv_freq, (real)j->pos[i], j->sign, pairs);
            if (j->r->scale != 1)
                j->by->scale(sine, j->r->scale, 2 * (size_t)pairs);
        }
        j->by->rotate(x, sine, cosine, j->heads, D, pairs, j->r->half);
    }
}

static void rope(real *x, const int32_t *pos, const struct rope *r, int N, int heads, real sign)
{
    struct rope_job j = {vec(), r, x, pos, N, heads, task_rows(heads * r->D), sign};
    if (N > 0 && heads > 0 && r->dims > 1)
        pool_run(task_count(N, j.step), rope_rows, &j);
}

void rope_fwd(real *x, const int32_t *pos, const struct rope *r, int N, int heads)
{
    rope(x, pos, r, N, heads, 1); /* 5.1 */
}

void rope_bwd(real *dx, const int32_t *pos, const struct rope *r, int N, int heads)
{
    rope(dx, pos, r, N, heads, -1); /* 5.2 */
}
