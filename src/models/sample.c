/* Temperature, top-k, top-p and min-p sampling, and llama2.c's sampler. */
#include "models/sample.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/ops.h"

enum { ORDERED_FIRST = 256 /* most nuclei are smaller */, BINS = 4096, BLOCK = 256 };

struct sample_cell {
    double w;
    int32_t id;
}; /* w: logit, then weight */

/* Tokens by the distance of their logit from the largest: only the bins that a cut or a draw falls
 * into are sorted.  start: in sampler.cell, once gathered. */
struct sample_bins {
    double mass[BINS], top, range, per_unit;
    int count[BINS], start[BINS + 1];
};

int sampler_init(struct sampler *s, int V, struct err *e)
{
    *s = (struct sampler){.V = V};
    s->cell = mem_alloc((size_t)V, sizeof *s->cell);
    s->weight = mem_alloc((size_t)V, sizeof *s->weight);
    s->bins = mem_alloc(1, sizeof *s->bins);
    if (s->cell && s->weight && s->bins)
        return 0;
    sampler_release(s);
    return err_set(e, DS_EMEM, "out of memory for sampling over %d tokens", V);
}

void sampler_release(struct sampler *s)
{
    mem_free(s->cell);
    mem_free(s->weight);
    mem_free(s->bins);
    *s = (struct sampler){.V = s->V};
}

/* best: index of the largest logit, ties to the lower id; n and least: of those above -Inf. */
struct span {
    int best, n;
    real least;
};

/* One block's largest and least logit, and whether all are below +Inf: loops of independent lanes,
 * which compilers vectorise. */
static int scan_block(const real *x, int n, real *most, struct span *all)
{
    enum { LANES = 16 };
    real top[LANES], low[LANES], inf = (real)INFINITY;
    int ok[LANES], finite[LANES], is_ok = 1;
    for (int l = 0; l < LANES; l++) {
        top[l] = -inf;
        low[l] = inf;
        ok[l] = 1;
        finite[l] = 0;
    }
    for (int i = 0; i < n; i += LANES) {
        int m = n - i < LANES ? n - i : LANES;
        for (int l = 0; l < m; l++) {
            real v = x[i + l], w = v > -inf ? v : inf;
            top[l] = v > top[l] ? v : top[l];
            low[l] = w < low[l] ? w : low[l];
            ok[l] &= v < inf;
            finite[l] += v > -inf;
        }
    }
    *most = -inf;
    for (int l = 0; l < LANES; l++) {
        *most = top[l] > *most ? top[l] : *most;
        all->least = low[l] < all->least ? low[l] : all->least;
        all->n += finite[l];
        is_ok &= ok[l];
    }
    return is_ok;
}

/* DS_ENUMERIC as in the header. */
static int check_logits(const real *logits, int V, struct span *all, struct err *e)
{
    enum { SCAN = 1024 };
    real most = -(real)INFINITY, here;
    int block = 0;
    *all = (struct span){.least = (real)INFINITY};
    for (int i = 0; i < V; i += SCAN) {
        int end = V - i < SCAN ? V : i + SCAN;
        if (!scan_block(logits + i, end - i, &here, all)) {
            while (logits[i] < (real)INFINITY)
                i++;
            return err_set(e, DS_ENUMERIC,
                           "logit of token %d is %s: the model's weights are corrupt", i,
                           isnan(logits[i]) ? "NaN" : "infinite");
        }
        block = here > most ? i : block;
        most = here > most ? here : most;
    }
    if (all->n == 0)
        return err_set(e, DS_ENUMERIC, "no logit is finite: the model's weights are corrupt");
    for (all->best = block; logits[all->best] != most;)
        all->best++;
    return 0;
}

/* Sums in blocks, so that a draw can skip whole blocks and still meets the same sums. */
static double block_sum(const double *w, int n)
{
    double lane[8] = {0};
    int i = 0;
    for (; i + 8 <= n; i += 8)
        for (int l = 0; l < 8; l++)
            lane[l] += w[i + l];
    for (int l = 0; i < n; i++, l++)
        lane[l] += w[i];
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) +
           ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

static double sum_of(const double *w, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i += BLOCK)
        sum += block_sum(w + i, n - i < BLOCK ? n - i : BLOCK);
    return sum;
}

/* The index at which the running sum of w (n) passes `at`; the last with a weight when rounding
 * leaves a remainder. */
static int32_t index_at(const double *w, int n, double at)
{
    for (int i = 0; i < n; i += BLOCK) {
        int end = n - i < BLOCK ? n : i + BLOCK;
        double sum = block_sum(w + i, end - i);
        if (at >= sum) {
            at -= sum;
            continue;
        }
        for (int k = i; k < end; k++)
            if (w[k] > 0 && (at -= w[k]) < 0)
                return k;
        n = end;
    }
    while (n > 1 && !(w[n - 1] > 0))
        n--;
    return n - 1;
}

static double plain_probability(struct sampler *s, const real *logits, int best, int32_t id)
{
    sample_weights(s->weight, logits, logits[best], 1, s->V);
    return s->weight[id] / sum_of(s->weight, s->V);
}

static int by_weight(const void *a, const void *b)
{
    const struct sample_cell *x = a, *y = b;
    if (x->w != y->w)
        return x->w < y->w ? 1 : -1;
    return (x->id > y->id) - (x->id < y->id);
}

/* ---- top-k selection without a full sort ---- */

static void swap(struct sample_cell *a, struct sample_cell *b)
{
    struct sample_cell t = *a;
    *a = *b;
    *b = t;
}

/* Partitions cell[0, n) at the median of three; returns the pivot's index, with only cells that
 * come before it to its left. */
static int part(struct sample_cell *cell, int n)
{
    struct sample_cell *mid = cell + n / 2, *last = cell + n - 1;
    int at = 0;
    if (by_weight(mid, cell) < 0)
        swap(mid, cell);
    if (by_weight(last, cell) < 0)
        swap(last, cell);
    if (by_weight(last, mid) < 0)
        swap(last, mid);
    swap(mid, last);
    for (int i = 0; i < n - 1; i++)
        if (by_weight(&cell[i], last) < 0)
            swap(&cell[i], &cell[at++]);
    swap(&cell[at], last);
    return at;
}

/* The first k of cell[0, n) come first, in order; the rest in any.  Cells differ by their ids, so
 * the order is the one a sort of all gives.  After repeated bad pivots the range is sorted: n log n
 * in the worst case. */
static void select_first(struct sample_cell *cell, int n, int k)
{
    struct sample_cell *from = cell;
    int left = n, need = k, tries = 64;
    while (left > 16 && need > 0 && need < left) {
        if (tries-- == 0) {
            qsort(from, (size_t)left, sizeof *from, by_weight);
            break;
        }
        int at = part(from, left);
        if (need <= at) {
            left = at;
        } else {
            from += at + 1;
            left -= at + 1;
            need -= at + 1;
        }
    }
    if (left <= 16)
        qsort(from, (size_t)left, sizeof *from, by_weight);
    qsort(cell, (size_t)(k < n ? k : n), sizeof *cell, by_weight);
}

/* Sorts more of cell[0, n), whose first `done` are in order; returns how many are now. */
static int order_more(struct sample_cell *cell, int n, int done)
{
    int k = done < ORDERED_FIRST ? ORDERED_FIRST : 4 * done;
    k = k < n ? k : n;
    select_first(cell + done, n - done, k - done);
    return k;
}

/* ---- bins ---- */

static int bin_of(const struct sample_bins *b, real logit)
{
    double gap = b->top - (double)logit;
    return gap < b->range ? (int)(gap * b->per_unit) : BINS - 1;
}

/* Counts the tokens and sums the weights of each bin. */
static void fill_bins(struct sampler *s, const real *logits, const struct span *all,
                      double temperature)
{
    struct sample_bins *b = s->bins;
    b->top = (double)logits[all->best];
    b->range = fmin(b->top - (double)all->least, 64 * fmax(temperature, 1));
    b->per_unit = b->range > 0 ? (BINS - 1) / b->range : 0;
    memset(b->mass, 0, sizeof b->mass);
    memset(b->count, 0, sizeof b->count);
    for (int v = 0; v < s->V; v++) {
        if (isinf(logits[v]))
            continue;
        int k = bin_of(b, logits[v]);
        b->count[k]++;
        b->mass[k] += s->weight[v];
    }
}

/* Puts the tokens of bins [0, last] into the cells, in the order of their bins. */
static void gather(struct sampler *s, const real *logits, int last)
{
    struct sample_bins *b = s->bins;
    int *next = b->count; /* counts become positions */
    b->start[0] = 0;
    for (int k = 0; k < BINS; k++) {
        b->start[k + 1] = b->start[k] + (k <= last ? b->count[k] : 0);
        next[k] = b->start[k];
    }
    double most = last < BINS - 1 ? (last + 2) / b->per_unit : (double)INFINITY;
    for (int v = 0; v < s->V; v++) {
        if (isinf(logits[v]) || b->top - (double)logits[v] > most)
            continue;
        int k = bin_of(b, logits[v]);
        if (k <= last)
            s->cell[next[k]++] = (struct sample_cell){s->weight[v], v};
    }
}

/* The bin in which the n-th token is. */
static int bin_of_count(const struct sample_bins *b, int n)
{
    int k = 0;
    for (int sum = b->count[0]; sum < n && k < BINS - 1;)
        sum += b->count[++k];
    return k;
}

/* The sum of the first n gathered cells. */
static double cells_sum(const struct sampler *s, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += s->cell[i].w;
    return sum;
}

/* How many of the first n tokens reach the mass top_p of their sum `all`; -1 when the answer depends
 * on rounding. */
static int nucleus(struct sampler *s, const real *logits, int n, int is_gathered, double top_p,
                   double all)
{
    struct sample_bins *b = s->bins;
    double sum = 0, slack = all * s->V * DBL_EPSILON, want = top_p * all;
    int k = 0, done = 0;
    while (k < BINS - 1 && sum + b->mass[k] < want - slack)
        sum += b->mass[k++];
    if (!is_gathered)
        gather(s, logits, k);
    struct sample_cell *cell = s->cell + b->start[k];
    int size = (b->start[k + 1] < n ? b->start[k + 1] : n) - b->start[k];
    for (int i = 0; i < size; i++) {
        if (i == done)
            done = order_more(cell, size, done);
        sum += cell[i].w;
        if (sum >= want + slack)
            return b->start[k] + i + 1;
        if (sum >= want - slack)
            return -1;
    }
    return -1;
}

/* The same by a sort of all tokens, or of the first n gathered ones. */
static int nucleus_sorted(struct sampler *s, const real *logits, int n, int is_gathered,
                          double top_p)
{
    double all = 0, sum = 0;
    int k = 0;
    for (int v = 0; v < s->V && !is_gathered; v++)
        if (!isinf(logits[v]))
            s->cell[k++] = (struct sample_cell){s->weight[v], v};
    qsort(s->cell, (size_t)n, sizeof *s->cell, by_weight);
    s->bins->start[0] = 0; /* one bin */
    for (k = 1; k <= BINS; k++)
        s->bins->start[k] = n;
    all = cells_sum(s, n);
    for (int i = 0; i < n; i++) {
        sum += s->cell[i].w;
        if (sum >= top_p * all)
            return i + 1;
    }
    return n;
}

/* Moves the cells of the first n that have at least `least` to the front; returns their number.
 * At most one bin is divided. */
static int drop_small(struct sampler *s, int n, double least)
{
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (s->cell[i].w >= least)
            swap(&s->cell[i], &s->cell[kept++]);
    return kept;
}

/* Gathers the tokens that remain after the cuts, by bins; returns their number. */
static int cut(struct sampler *s, const real *logits, const struct span *span,
               const struct sample_options *o)
{
    struct sample_bins *b = s->bins;
    int n = span->n, is_gathered = 0, stay;
    double all = 0;
    fill_bins(s, logits, span, o->temperature);
    if (o->top_k > 0 && o->top_k < n) {
        int last = bin_of_count(b, o->top_k);
        n = o->top_k;
        gather(s, logits, last);
        select_first(s->cell + b->start[last], b->start[last + 1] - b->start[last],
                     n - b->start[last]);
        is_gathered = 1;
        all = cells_sum(s, n);
    }
    for (int k = 0; k < BINS && !is_gathered; k++)
        all += b->mass[k];
    if (o->top_p < 1) {
        stay = nucleus(s, logits, n, is_gathered, o->top_p, all);
        n = stay > 0 ? stay : nucleus_sorted(s, logits, n, is_gathered, o->top_p);
        is_gathered = 1;
    }
    if (!is_gathered) { /* min_p alone: two bins more, for rounding */
        double gap = -log(o->min_p) * o->temperature;
        int last = gap < b->range ? (int)(gap * b->per_unit) + 2 : BINS - 1;
        gather(s, logits, last < BINS - 1 ? last : BINS - 1);
        n = b->start[BINS];
    }
    return o->min_p > 0 ? drop_small(s, n, o->min_p) : n;
}

/* The token of the n gathered ones, in order, at which the running sum passes `at`. */
static int32_t cell_at(struct sampler *s, int n, double at)
{
    const struct sample_bins *b = s->bins;
    int32_t last = s->cell[0].id;
    for (int k = 0; k < BINS && b->start[k] < n; k++) {
        struct sample_cell *cell = s->cell + b->start[k];
        int size = (b->start[k + 1] < n ? b->start[k + 1] : n) - b->start[k], done = 0;
        int is_last = b->start[k + 1] >= n;
        double sum = 0;
        for (int i = 0; i < size; i++)
            sum += cell[i].w;
        if (at >= sum && !is_last) {
            at -= sum;
            continue;
        }
        for (int i = 0; i < size; i++) {
            if (i == done)
                done = order_more(cell, size, done);
            last = cell[i].id;
            at -= cell[i].w;
            if (at < 0)
                return last;
        }
        if (size > 0)
            break;
    }
    return last; /* rounding may leave a remainder of `at` */
}

static int is_cut(const struct span *span, const struct sample_options *o)
{
    return (o->top_k > 0 && o->top_k < span->n) || o->top_p < 1 || o->min_p > 0;
}

int sampler_pick(struct sampler *s, const real *logits, const struct sample_options *o,
                 uint64_t step, int32_t *id, double *p, struct err *e)
{
    struct span span;
    int rc = check_logits(logits, s->V, &span, e), best = span.best;
    if (rc < 0)
        return rc;
    *id = best;
    if (o->temperature > 0) {
        struct rng r;
        rng_init(&r, o->seed, RNG_SAMPLE, step, 0);
        double at = rng_uniform(&r);
        sample_weights(s->weight, logits, logits[best], o->temperature, s->V);
        if (is_cut(&span, o)) {
            int n = cut(s, logits, &span, o);
            *id = cell_at(s, n, at * cells_sum(s, n));
        } else {
            *id = index_at(s->weight, s->V, at * sum_of(s->weight, s->V));
        }
    }
    if (p)
        *p = plain_probability(s, logits, best, *id);
    return 0;
}

int sampler_probs(struct sampler *s, const real *logits, const struct sample_options *o, double *p,
                  struct err *e)
{
    struct span span;
    int rc = check_logits(logits, s->V, &span, e), best = span.best;
    if (rc < 0)
        return rc;
    memset(p, 0, (size_t)s->V * sizeof *p);
    if (!(o->temperature > 0)) {
        p[best] = 1;
        return 0;
    }
    sample_weights(s->weight, logits, logits[best], o->temperature, s->V);
    if (is_cut(&span, o)) {
        int n = cut(s, logits, &span, o);
        double sum = cells_sum(s, n);
        for (int i = 0; i < n; i++)
            p[s->cell[i].id] = s->cell[i].w / sum;
        return 0;
    }
    double sum = sum_of(s->weight, s->V);
    for (int v = 0; v < s->V; v++)
        p[v] = s->weight[v] / sum;
    return 0;
}

int32_t sample_at(const double *p, int V, double at)
{
    return index_at(p, V, at * sum_of(p, V));
}

/* ---- llama2.c's sampler ---- */

/* xorshift64* (Vigna 2016): the top 24 bits of the product as a float in [0, 1). */
static float llama2c_coin(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return (float)((uint32_t)((x * 0x2545F4914F6CDD1DULL) >> 32) >> 8) / 16777216.0f;
}

/* Softmax in float, in the order of ids. */
static void llama2c_softmax(struct sampler *s, const real *logits, int best, double temperature)
{
    float t = (float)temperature, max = (float)logits[best] / t, sum = 0;
    for (int v = 0; v < s->V; v++) {
        float w = expf((float)logits[v] / t - max);
        s->cell[v] = (struct sample_cell){(double)w, v};
        sum += w;
    }
    for (int v = 0; v < s->V; v++)
        s->cell[v].w = (double)((float)s->cell[v].w / sum);
}

/* Tokens that cannot be in the nucleus are dropped before sorting; the rest is cut where the mass
 * first exceeds top_p.  *mass: of those kept. */
static int llama2c_cut(struct sampler *s, double top_p, float *mass)
{
    float p = (float)top_p, least = (1.0f - p) / (float)(s->V - 1);
    int n = 0;
    for (int v = 0; v < s->V; v++)
        if ((float)s->cell[v].w >= least)
            s->cell[n++] = s->cell[v];
    *mass = 0;
    for (int i = 0, done = 0; i < n; i++) {
        if (i == done)
            done = order_more(s->cell, n, done);
        *mass += (float)s->cell[i].w;
        if (*mass > p)
            return i + 1;
    }
    return n;
}

int sampler_pick_llama2c(struct sampler *s, const real *logits, const struct sample_options *o,
                         uint64_t *state, int32_t *id, struct err *e)
{
    struct span span;
    int n = s->V, rc = check_logits(logits, s->V, &span, e), best = span.best;
    if (rc < 0)
        return rc;
    *id = best;
    if (!(o->temperature > 0))
        return 0;
    float mass = 1, sum = 0, coin = llama2c_coin(state);
    llama2c_softmax(s, logits, best, o->temperature);
    if (o->top_p > 0 && o->top_p < 1 && s->V > 1)
        n = llama2c_cut(s, o->top_p, &mass);
    *id = n > 0 ? s->cell[n - 1].id : best;
    for (int i = 0; i < n; i++) {
        sum += (float)s->cell[i].w;
        if (coin * mass < sum) {
            *id = s->cell[i].id;
            break;
        }
    }
    return 0;
}

int sample_ranks(const real *logits, int V, int32_t id, double *logprob, struct sample_rank *top,
                 int k)
{
    double max = (double)-INFINITY, sum = 0;
    int n = 0;
    for (int v = 0; v < V; v++)
        max = (double)logits[v] > max ? (double)logits[v] : max;
    for (int v = 0; v < V; v++)
        sum += exp((double)logits[v] - max);
    double all = max + log(sum);
    *logprob = (double)logits[id] - all;
    for (int v = 0; v < V && k > 0; v++) {
        double x = (double)logits[v] - all;
        int at = n;
        if (n == k && !(x > top[n - 1].logprob))
            continue;
        for (; at > 0 && x > top[at - 1].logprob; at--)
            if (at < k)
                top[at] = top[at - 1];
        top[at] = (struct sample_rank){v, x};
        n += n < k;
    }
    return n;
}
