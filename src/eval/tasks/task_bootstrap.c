/* Bootstrap standard error of a perplexity, with the same random numbers as lm-evaluation-harness
 * (Python's random). */
#include <math.h>

#include "base/mem.h"
#include "base/mt19937.h"
#include "base/pool.h"
#include "eval/task.h"

enum { CHUNKS = 100, DRAWS = 1000 };

struct draws {
    const double *x;
    size_t n;
    double *value; /* (CHUNKS, DRAWS) */
};

/* random.random() */
static double unit(struct mt19937 *g)
{
    uint32_t high = mt19937_u32(g) >> 5, low = mt19937_u32(g) >> 6;
    return ((double)high * 67108864.0 + (double)low) / 9007199254740992.0;
}

/* Chunk i uses random.Random(i), and each of its draws choices(x, k=n). */
static void draw_chunk(void *ctx, int chunk, int worker)
{
    struct draws *d = ctx;
    struct mt19937 g;
    double n = (double)d->n;
    (void)worker;
    mt19937_init(&g, (uint64_t)chunk);
    for (int k = 0; k < DRAWS; k++) {
        double sum = 0;
        for (size_t i = 0; i < d->n; i++)
            sum += d->x[(size_t)(unit(&g) * n)];
        d->value[chunk * DRAWS + k] = exp(-sum / n);
    }
}

int task_bootstrap_error(double *error, const double *x, size_t n, struct err *e)
{
    struct task_sum s = {0};
    struct draws d = {x, n, NULL};
    *error = (double)NAN;
    if (n < 2)
        return 0;
    d.value = mem_alloc((size_t)CHUNKS * DRAWS, sizeof *d.value);
    if (!d.value)
        return err_set(e, DS_EMEM, "out of memory for %d draws", CHUNKS * DRAWS);
    pool_run(CHUNKS, draw_chunk, &d);
    for (size_t i = 0; i < (size_t)CHUNKS * DRAWS; i++)
        task_sum_add(&s, (struct task_value){d.value[i], 1});
    *error = sqrt(s.ss / (s.n - 1));
    mem_free(d.value);
    return 0;
}
