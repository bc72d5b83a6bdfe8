/* Temperature, top-k and top-p sampling, and llama2.c's sampler. */
#include "models/sample.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

enum { ORDERED_FIRST = 256 }; /* most nuclei are smaller */

struct sample_cell {
    double w;
    int32_t id;
}; /* w: logit, then weight */

int sampler_init(struct sampler *s, int V, struct err *e)
{
    s->V = V;
    s->cell = mem_alloc((size_t)V, sizeof *s->cell);
    return s->cell ? 0 : err_set(e, DS_EMEM, "out of memory for sampling over %d tokens", V);
}

void sampler_release(struct sampler *s)
{
    mem_free(s->cell);
    s->cell = NULL;
}

/* Index of the largest logit, ties to the lower id; DS_ENUMERIC as in the header. */
static int check_logits(const real *logits, int V, int *best, struct err *e)
{
    *best = -1;
    for (int v = 0; v < V; v++) {
        if (isnan(logits[v]) || (isinf(logits[v]) && logits[v] > 0))
            return err_set(e, DS_ENUMERIC,
                           "logit of token %d is %s: the model's weights are corrupt", v,
                           isnan(logits[v]) ? "NaN" : "infinite");
        if (!isinf(logits[v]) && (*best < 0 || logits[v] > logits[*best]))
            *best = v;
    }
    return *best < 0
               ? err_set(e, DS_ENUMERIC, "no logit is finite: the model's weights are corrupt")
               : 0;
}

static double plain_probability(const real *logits, int V, int best, int32_t id)
{
    double sum = 0, max = (double)logits[best];
    for (int v = 0; v < V; v++)
        sum += exp((double)logits[v] - max);
    return exp((double)logits[id] - max) / sum;
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

/* How many of cell[0, n) reach the mass top_p.  `all` is their sum up to summation order: -1 when
 * the answer depends on that rounding. */
static int nucleus(struct sample_cell *cell, int n, int done, double top_p, double all)
{
    double sum = 0, slack = all * n * DBL_EPSILON;
    for (int i = 0; i < n; i++) {
        if (i == done)
            done = order_more(cell, n, done);
        sum += cell[i].w;
        if (sum >= top_p * all + slack)
            return i + 1;
        if (sum >= top_p * all - slack)
            return -1;
    }
    return -1;
}

/* Fills the cells, sorted if a cut needs it; returns how many remain. */
static int cut(struct sampler *s, const real *logits, double max, const struct sample_options *o)
{
    int n = 0, k = o->top_k > 0 && o->top_k < s->V ? o->top_k : s->V, done = 0;
    double all = 0, sum = 0;
    for (int v = 0; v < s->V; v++)
        if (!isinf(logits[v]))
            s->cell[n++] = (struct sample_cell){exp(((double)logits[v] - max) / o->temperature), v};
    if (k < n) {
        select_first(s->cell, n, k);
        done = n = k;
    }
    if (!(o->top_p < 1))
        return n;
    for (int i = 0; i < n; i++)
        all += s->cell[i].w;
    int stay = nucleus(s->cell, n, done, o->top_p, all);
    if (stay > 0)
        return stay;
    qsort(s->cell, (size_t)n, sizeof *s->cell, by_weight);
    all = 0;
    for (int i = 0; i < n; i++)
        all += s->cell[i].w;
    for (int i = 0; i < n; i++) {
        sum += s->cell[i].w;
        if (sum >= o->top_p * all)
            return i + 1;
    }
    return n;
}

int sampler_pick(struct sampler *s, const real *logits, const struct sample_options *o,
                 uint64_t step, int32_t *id, double *p, struct err *e)
{
    int best, rc = check_logits(logits, s->V, &best, e);
    if (rc < 0)
        return rc;
    *id = best;
    if (o->temperature > 0) {
        struct rng r;
        int n = cut(s, logits, (double)logits[best], o);
        double sum = 0;
        for (int i = 0; i < n; i++)
            sum += s->cell[i].w;
        rng_init(&r, o->seed, RNG_SAMPLE, step, 0);
        double at = rng_uniform(&r) * sum;
        *id = s->cell[n - 1].id; /* rounding may leave a remainder of `at` */
        for (int i = 0; i < n; i++) {
            at -= s->cell[i].w;
            if (at < 0) {
                *id = s->cell[i].id;
                break;
            }
        }
    }
    if (p)
        *p = plain_probability(logits, s->V, best, *id);
    return 0;
}

int sampler_probs(struct sampler *s, const real *logits, const struct sample_options *o, double *p,
                  struct err *e)
{
    int best, rc = check_logits(logits, s->V, &best, e);
    if (rc < 0)
        return rc;
    memset(p, 0, (size_t)s->V * sizeof *p);
    if (!(o->temperature > 0)) {
        p[best] = 1;
        return 0;
    }
    int n = cut(s, logits, (double)logits[best], o);
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += s->cell[i].w;
    for (int i = 0; i < n; i++)
        p[s->cell[i].id] = s->cell[i].w / sum;
    return 0;
}

int32_t sample_at(const double *p, int V, double at)
{
    double sum = 0;
    int32_t last = 0;
    for (int v = 0; v < V; v++)
        sum += p[v];
    at *= sum;
    for (int v = 0; v < V; v++) {
        if (!(p[v] > 0))
            continue;
        last = v;
        at -= p[v];
        if (at < 0)
            break;
    }
    return last; /* rounding may leave a remainder of `at` */
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
    int best, n = s->V, rc = check_logits(logits, s->V, &best, e);
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
