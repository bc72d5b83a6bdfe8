/* Parallel copies, gathers and scatters of rows. */
#include "bulk.h"

#include <string.h>

#include "base/pool.h"

enum { PART = 1 << 15, ROWS = 64 };

struct bulk {
    real *to;
    const real *from; /* NULL: zero */
    size_t n;
    const struct plan *plan;
    int C;
};

static void move_part(void *ctx, int task, int worker)
{
    const struct bulk *b = ctx;
    size_t at = (size_t)task * PART, n = b->n - at < PART ? b->n - at : PART;
    (void)worker;
    if (b->from)
        memcpy(b->to + at, b->from + at, n * sizeof(real));
    else
        memset(b->to + at, 0, n * sizeof(real));
}

void bulk_zero(real *x, size_t n)
{
    struct bulk b = {.to = x, .n = n};
    pool_run((int)((n + PART - 1) / PART), move_part, &b);
}

void bulk_copy(real *to, const real *from, size_t n)
{
    struct bulk b = {.to = to, .from = from, .n = n};
    pool_run((int)((n + PART - 1) / PART), move_part, &b);
}

static void gather_part(void *ctx, int task, int worker)
{
    const struct bulk *b = ctx;
    const struct plan *p = b->plan;
    int end = (task + 1) * ROWS < p->n ? (task + 1) * ROWS : p->n, C = b->C;
    (void)worker;
    for (int i = task * ROWS; i < end; i++) {
        const real *from = b->from + (size_t)p->row[i] * (size_t)C;
        real *to = b->to + (size_t)i * (size_t)C;
        for (int c = 0; c < C; c++)
            to[c] = p->gate[i] * from[c];
    }
}

void bulk_gather_scaled(real *y, const real *x, const struct plan *p, int C)
{
    struct bulk b = {.to = y, .from = x, .plan = p, .C = C};
    pool_run((p->n + ROWS - 1) / ROWS, gather_part, &b);
}
