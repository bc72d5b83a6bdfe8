/* Decisions by rank, and the stored thresholds that replace them at inference. */
#include "routing/rank.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

/* ---- ranks ---- */

struct ranked {
    real score;
    int32_t row;
};

/* Highest first; NaN last; ties go to the earlier row. */
static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    int xn = isnan(x->score) != 0, yn = isnan(y->score) != 0;
    if (xn != yn)
        return xn - yn;
    if (!xn && x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

/* First row after the document that begins at row i; documents end with their sequence. */
static int document_end(const struct pass *p, int i)
{
    int end = i + 1;
    while (end < p->R && end % p->T != 0 && p->pos[end] != 0)
        end++;
    return end;
}

static int share_of(int n, double gamma)
{
    int k = (int)floor(gamma * n + 1e-9);
    return gamma <= 0 ? 0 : k < 1 ? 1 : k > n ? n : k;
}

/* What is ranked, and where the decisions go. */
struct ranking {
    const struct route *route;
    int layer;
    const real *score;
    const uint8_t *active; /* rows that compete; NULL: all */
    int keep_forced;       /* forced cells keep their value */
    uint8_t *want;
    struct ranked *scratch;
};

/* Active rows of begin..end compete for k places, minus those of rows forced to run. */
static int rank_rows(const struct ranking *x, int begin, int end, int k)
{
    int n = 0, nan = 0;
    for (int i = begin; i < end; i++) {
        int forced = x->keep_forced ? route_forced(x->route, x->layer, i) : -1;
        x->want[i] = forced == 1;
        if (x->active && !x->active[i])
            continue;
        k -= forced == 1;
        nan += isnan(x->score[i]) != 0;
        if (forced < 0)
            x->scratch[n++] = (struct ranked){x->score[i], i};
    }
    qsort(x->scratch, (size_t)n, sizeof *x->scratch, by_rank);
    for (int j = 0; j < k && j < n; j++)
        x->want[x->scratch[j].row] = 1;
    return nan;
}

/* Places for n rows, rounded to the nearest. */
static int rounded_share(int n, double gamma)
{
    int k = (int)floor(gamma * n + 0.5);
    return gamma <= 0 || n == 0 ? 0 : k < 1 ? 1 : k > n ? n : k;
}

/* Ranks each document, or the whole batch.  Places are a share of the rows, rounded down, or of the
 * active ones, rounded to the nearest. */
static int rank_all(struct ranking *x, double gamma, int whole)
{
    const struct pass *p = &x->route->pass;
    int size = whole ? p->R : p->T, nan = 0;
    struct ranked small[512];
    x->scratch = size <= 512 ? small : mem_alloc((size_t)size, sizeof *x->scratch);
    BUG_IF(!x->scratch, "out of memory ranking %d rows", size);
    for (int i = 0; i < p->R;) {
        int end = whole ? p->R : document_end(p, i), n = 0;
        for (int j = i; x->active && j < end; j++)
            n += x->active[j] != 0;
        nan += rank_rows(x, i, end, x->active ? rounded_share(n, gamma) : share_of(end - i, gamma));
        i = end;
    }
    if (x->scratch != small)
        mem_free(x->scratch);
    return nan;
}

int rank_topk(const struct route *r, int l, const real *score, double gamma, uint8_t *want)
{
    struct ranking x = {.route = r, .layer = l, .score = score, .keep_forced = 1, .want = want};
    return rank_all(&x, gamma, 0);
}

void rank_target(const struct route *r, const real *score, double gamma, uint8_t *target)
{
    struct ranking x = {.route = r, .score = score, .want = target};
    (void)rank_all(&x, gamma, 0);
}

int rank_active(const struct route *r, int l, const real *score, const uint8_t *active,
                double gamma, int whole, int keep_forced, uint8_t *want)
{
    struct ranking x = {.route = r,
                        .layer = l,
                        .score = score,
                        .active = active,
                        .keep_forced = keep_forced,
                        .want = want};
    return rank_all(&x, gamma, whole);
}

/* ---- noise ---- */

/* Box-Muller, using one of the two values. */
static double normal_at(uint64_t seed, uint64_t step, int l, uint32_t place)
{
    enum { SECOND = 1 << 16 }; /* separates the second draw */
    double u = rng_at(seed, RNG_ROUTE, step, (uint32_t)l, place);
    double v = rng_at(seed, RNG_ROUTE, step, (uint32_t)(SECOND + l), place);
    return sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v);
}

void rank_noise(const struct route *r, int l, real *noise)
{
    const struct pass *p = &r->pass;
    for (int i = 0; i < p->R; i++)
        noise[i] = (real)(p->kind == PASS_TRAIN
                              ? normal_at(r->seed, (uint64_t)p->step, l, route_place(p, i))
                              : normal_at(r->seed, 0, l,
                                          (uint32_t)p->id[i] * 2654435761u + (uint32_t)p->pos[i]));
}

double rank_noise_above(double share)
{
    double low = -40, high = 40;
    for (int i = 0; i < 64; i++) {
        double x = 0.5 * (low + high);
        if (0.5 * erfc(x / 1.4142135623730951) > share)
            low = x;
        else
            high = x;
    }
    return 0.5 * (low + high);
}

/* ---- thresholds ---- */

int quantiles_init(struct quantiles *q, struct params *ps, const char *prefix, int L, struct err *e)
{
    size_t n = (size_t)L * ROUTE_GRID;
    memset(q, 0, sizeof *q);
    q->params = ps;
    q->L = L;
    q->table = params_add_buffer(ps, prefix, "quantiles", L, ROUTE_GRID);
    q->weight = params_add_buffer(ps, prefix, "quantiles_weight", L, 0);
    q->step = mem_alloc(n, sizeof *q->step);
    q->n = mem_alloc(n, sizeof *q->n);
    if (q->table < 0 || q->weight < 0 || !q->step || !q->n)
        return err_set(e, DS_EMEM, "thresholds of %s", prefix);
    return 0;
}

void quantiles_layout(struct quantiles *q, struct arena *a, int R)
{
    q->sorted = arena_zalloc(a, (size_t)R, sizeof *q->sorted);
    q->R_max = R;
}

void quantiles_release(struct quantiles *q)
{
    mem_free(q->step);
    mem_free(q->n);
    memset(q, 0, sizeof *q);
}

void quantiles_begin(struct quantiles *q)
{
    memset(q->step, 0, (size_t)q->L * ROUTE_GRID * sizeof *q->step);
    memset(q->n, 0, (size_t)q->L * ROUTE_GRID * sizeof *q->n);
}

static int ascending(const void *a, const void *b)
{
    real x = *(const real *)a, y = *(const real *)b;
    return (x > y) - (x < y);
}

/* Sorts the finite scores into q->sorted; returns their number. */
static int sort_scores(struct quantiles *q, const real *score, int n)
{
    int m = 0;
    BUG_IF(n > q->R_max, "quantiles of %d scores, reserved %d", n, q->R_max);
    for (int i = 0; i < n; i++)
        if (isfinite(score[i]))
            q->sorted[m++] = score[i];
    qsort(q->sorted, (size_t)m, sizeof *q->sorted, ascending);
    return m;
}

/* Halfway between the last rejected score and the first accepted one; the ends are just outside the
 * observed range.  Rows that always run leave fewer places to those with a score. */
static double cut_of(const struct quantiles *q, int m, int i)
{
    double capacity = (double)i / (ROUTE_GRID - 1);
    int runs = (int)floor(capacity * (m + q->always) + 0.5) - q->always;
    int at = m - (runs > 0 ? runs : 0);
    double low = (double)q->sorted[0], high = (double)q->sorted[m - 1];
    double margin = 1e-3 * (high - low) + 1e-6 * (fabs(high) + fabs(low)) + 1e-9;
    if (at <= 0)
        return low - margin;
    if (at >= m)
        return high + margin;
    return 0.5 * ((double)q->sorted[at - 1] + (double)q->sorted[at]);
}

void quantiles_note(struct quantiles *q, int l, const real *score, int n)
{
    int m = sort_scores(q, score, n);
    for (int i = 0; i < ROUTE_GRID && m > 0; i++) {
        q->step[l * ROUTE_GRID + i] += cut_of(q, m, i);
        q->n[l * ROUTE_GRID + i] += 1;
    }
}

void quantiles_counts(struct quantiles *q, route_count_fn *each, void *ctx)
{
    each(ctx, q->step, (size_t)q->L * ROUTE_GRID, 0);
    each(ctx, q->n, (size_t)q->L * ROUTE_GRID, 0);
}

void quantiles_update(struct quantiles *q, double ema)
{
    real *table = q->params->p[q->table].value, *weight = q->params->p[q->weight].value;
    for (int l = 0; l < q->L; l++) {
        if (q->n[l * ROUTE_GRID] <= 0)
            continue;
        /* as in a bias-corrected average, the first step has full weight */
        double w = ema * (double)weight[l] + (1 - ema), share = (1 - ema) / w;
        weight[l] = (real)w;
        for (int i = l * ROUTE_GRID; i < (l + 1) * ROUTE_GRID; i++)
            table[i] = (real)((1 - share) * (double)table[i] + share * q->step[i] / q->n[i]);
    }
    quantiles_begin(q);
}

double quantiles_calibrate(struct quantiles *q, int l, int i, const real *score, int n)
{
    int m = sort_scores(q, score, n);
    double cut = m > 0 ? cut_of(q, m, i) : 0;
    if (m > 0) {
        q->step[l * ROUTE_GRID + i] += cut;
        q->n[l * ROUTE_GRID + i] += 1;
    }
    if (i == 0)
        return (double)INFINITY;
    return i == ROUTE_GRID - 1 ? -(double)INFINITY : cut;
}

/* A layer without data at every grid point (all its scores were NaN) keeps its table. */
static int is_whole(const struct quantiles *q, int l)
{
    for (int i = l * ROUTE_GRID; i < (l + 1) * ROUTE_GRID; i++)
        if (q->n[i] <= 0)
            return 0;
    return 1;
}

void quantiles_store(struct quantiles *q)
{
    real *table = q->params->p[q->table].value, *weight = q->params->p[q->weight].value;
    for (int l = 0; l < q->L; l++) {
        if (!is_whole(q, l))
            continue;
        weight[l] = 1;
        for (int i = l * ROUTE_GRID; i < (l + 1) * ROUTE_GRID; i++)
            table[i] = (real)(q->step[i] / q->n[i]);
    }
    quantiles_begin(q);
}

int quantiles_known(const struct quantiles *q, int l)
{
    return (double)q->params->p[q->weight].value[l] > 0;
}

/* Between grid points i and i + 1: i, and how far from it. */
static int grid_below(double capacity, double *rest)
{
    double at = capacity * (ROUTE_GRID - 1);
    int i = at < ROUTE_GRID - 2 ? (int)floor(at) : ROUTE_GRID - 2;
    *rest = at - i;
    return i;
}

double quantiles_at(const struct quantiles *q, int l, double capacity)
{
    const real *row = q->params->p[q->table].value + (size_t)l * ROUTE_GRID;
    double rest;
    if (capacity <= 0)
        return (double)INFINITY;
    if (capacity >= 1)
        return -(double)INFINITY;
    int i = grid_below(capacity, &rest);
    return (double)row[i] + rest * ((double)row[i + 1] - (double)row[i]);
}

double quantiles_of(struct quantiles *q, const real *score, int n, double capacity)
{
    double rest;
    int m = sort_scores(q, score, n);
    if (capacity <= 0 || m == 0)
        return (double)INFINITY;
    if (capacity >= 1)
        return -(double)INFINITY;
    int i = grid_below(capacity, &rest);
    return cut_of(q, m, i) + rest * (cut_of(q, m, i + 1) - cut_of(q, m, i));
}

double quantiles_spread(const struct quantiles *q, int l)
{
    const double between = 2.0729; /* standard deviations between a normal's upper and lower 15 % */
    return quantiles_known(q, l) ? (quantiles_at(q, l, 0.15) - quantiles_at(q, l, 0.85)) / between
                                 : 1;
}
