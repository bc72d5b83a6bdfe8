/* Selects which remaining tokens run in each layer, by rank or by threshold. */
#include "routing/selector.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

int selector_init(struct selector *x, struct params *ps, const char *prefix, int L, int C,
                  double gain, struct err *e)
{
    char name[64];
    memset(x, 0, sizeof *x);
    snprintf(name, sizeof name, "%s.router", prefix);
    int rc = linear_router_init(&x->router, ps, name, L, C, gain, e);
    if (rc == 0)
        rc = quantiles_init(&x->table, ps, prefix, L, e);
    if (rc < 0)
        return rc;
    x->excess = mem_alloc(3 * (size_t)L, sizeof *x->excess);
    if (!x->excess)
        return err_set(e, DS_EMEM, "%s: %d layers", prefix, L);
    for (int l = 0; l < L; l++)
        x->excess[l] = (double)NAN;
    x->above = x->excess + L;
    x->seen = x->above + L;
    return 0;
}

void selector_layout(struct selector *x, struct arena *a, int R)
{
    x->want = arena_zalloc(a, (size_t)R, 1);
    x->here = arena_zalloc(a, (size_t)R, 1);
    x->top = arena_zalloc(a, (size_t)R, 1);
    x->row = arena_zalloc(a, (size_t)R, sizeof *x->row);
    quantiles_layout(&x->table, a, R);
    linear_router_layout(&x->router, a, R);
}

void selector_release(struct selector *x)
{
    mem_free(x->excess);
    x->excess = NULL;
    quantiles_release(&x->table);
    linear_router_release(&x->router);
}

void selector_begin(struct selector *x, int R)
{
    linear_router_begin(&x->router, R);
    memset(x->above, 0, 2 * (size_t)x->router.L * sizeof *x->above);
    x->nan = 0;
}

void selector_update(struct selector *x, const real *alive)
{
    for (int i = 0; i < x->router.R; i++)
        x->here[i] = alive[i] > 0;
}

/* Collects the scores of remaining tokens into x->row. */
static int gather_present(struct selector *x, int l)
{
    const real *score = linear_router_score(&x->router, l);
    int n = 0;
    for (int i = 0; i < x->router.R; i++)
        if (x->here[i])
            x->row[n++] = score[i];
    return n;
}

int selector_unknown(const struct selector *x, double capacity)
{
    for (int l = 0; l < x->router.L && capacity > 0 && capacity < 1; l++)
        if (!quantiles_known(&x->table, l))
            return l;
    return -1;
}

/* Capacities 0 and 1 need no table; without one, the threshold is p = 1/2. */
static double stored_cut(const struct selector *x, int l)
{
    int is_known = x->capacity <= 0 || x->capacity >= 1 || quantiles_known(&x->table, l);
    return is_known ? quantiles_at(&x->table, l, x->capacity) : 0;
}

static void choose_above(struct selector *x, const struct route *r, int l)
{
    const real *score = linear_router_score(&x->router, l);
    if (r->pass.inference.calibrate) {
        int n = gather_present(x, l);
        x->cut = quantiles_calibrate(&x->table, l, r->pass.inference.calibrate - 1, x->row, n);
    } else {
        x->cut = stored_cut(x, l);
        if (r->pass.inference.offset != 0)
            x->cut += r->pass.inference.offset * quantiles_spread(&x->table, l);
    }
    for (int i = 0; i < x->router.R; i++) { /* capacity 1 runs every row, even NaN scores */
        x->want[i] = x->here[i] && ((double)score[i] > x->cut || x->cut == -(double)INFINITY);
        x->nan += x->here[i] && isnan(score[i]);
    }
}

static void choose_ranked(struct selector *x, const struct route *r, int l, double noise)
{
    const real *score = linear_router_score(&x->router, l);
    for (int i = 0; i < x->router.R; i++)
        x->row[i] = score[i] + (real)(noise > 0 ? noise * linear_router_gumbel(r, l, i) : 0);
    x->nan += rank_active(r, l, x->row, x->here, x->capacity, x->whole, 1, x->want);
    x->cut = (double)NAN;
}

/* Adds the scores to the statistics. */
static void note_scores(struct selector *x, int l)
{
    double cut = stored_cut(x, l);
    int n = gather_present(x, l);
    for (int i = 0; i < n; i++)
        x->above[l] += (double)x->row[i] > cut;
    x->seen[l] += n;
    quantiles_note(&x->table, l, x->row, n);
}

void selector_counts(struct selector *x, route_count_fn *each, void *ctx)
{
    quantiles_counts(&x->table, each, ctx);
    each(ctx, x->above, 2 * (size_t)x->router.L, 0);
}

/* How far the causal rule is from the capacity, over the whole step on all ranks. */
void selector_learn(struct selector *x, double ema)
{
    for (int l = 0; l < x->router.L; l++) {
        int is_known = x->seen[l] > 0 && quantiles_known(&x->table, l);
        x->excess[l] = is_known ? x->above[l] / x->seen[l] - x->capacity : (double)NAN;
    }
    quantiles_update(&x->table, ema);
}

void selector_choose(struct selector *x, const struct route *r, int l)
{
    int is_training = r->pass.kind == PASS_TRAIN;
    if (is_training)
        note_scores(x, l);
    if (is_training || r->pass.inference.topk)
        choose_ranked(x, r, l, is_training ? x->noise : 0);
    else
        choose_above(x, r, l);
    for (int i = 0; i < x->router.R; i++) { /* forced cells are obeyed by threshold too */
        int forced = route_forced(r, l, i);
        x->want[i] = forced >= 0 ? (uint8_t)forced : x->want[i];
    }
}

void selector_rank(struct selector *x, const struct route *r, int l)
{
    (void)rank_active(r, l, linear_router_score(&x->router, l), x->here, x->capacity, x->whole, 0,
                      x->top);
}
