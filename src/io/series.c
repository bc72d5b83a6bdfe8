/* Series of a run view: growth, resume marks, and a pyramid of minima and maxima for drawing. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "io/runview_parts.h"

enum { FAN = 16, LEVELS = 10, RESUMES_MAX = 1000 };

/* Level k holds one node for every FAN^(k+1) whole values. */
struct node {
    double min, max;
    size_t nonfinite;
};
struct series_index {
    struct node *node[LEVELS];
    size_t n[LEVELS], cap[LEVELS];
    size_t section[RESUMES_MAX]; /* first point of each section after steps went back */
    int sections, is_resumed;
};

static int grow(void **p, size_t *cap, size_t need, size_t size)
{
    return *cap >= need ? 0 : mem_grow(p, cap, need, size);
}

/* The six columns share one capacity: each is grown from the old one, the new one is kept last. */
static int series_grow(struct series *s, size_t need)
{
    size_t cap = 0;
    void *column[] = {s->step, s->value, s->tokens, s->flops, s->time, s->is_old};
    static const size_t size[] = {sizeof *s->step,  sizeof *s->value, sizeof *s->tokens,
                                  sizeof *s->flops, sizeof *s->time,  1};
    int rc = 0;
    for (size_t i = 0; i < DS_LEN(column) && rc == 0; i++) {
        cap = s->cap;
        rc = mem_grow(&column[i], &cap, need, size[i]);
    }
    s->step = column[0];
    s->value = column[1];
    s->tokens = column[2];
    s->flops = column[3];
    s->time = column[4];
    s->is_old = column[5];
    if (rc == 0)
        s->cap = cap;
    return rc;
}

static struct series_index *index_of(struct series *s)
{
    if (!s->index)
        s->index = mem_alloc(1, sizeof *s->index);
    return s->index;
}

/* Points of steps > step that are still valid become old, from the newest back. */
static void mark_old(struct series *s, int64_t step)
{
    for (size_t i = s->n; i-- > 0 && (s->is_old[i] || s->step[i] > step);)
        s->is_old[i] = 1;
}

void series_resume(struct series *s, int64_t step)
{
    struct series_index *x = index_of(s);
    /* bounded: each resume may walk over all that was superseded before */
    if (!x || s->n == 0 || s->step[s->n - 1] <= step || x->sections == RESUMES_MAX)
        return;
    mark_old(s, step);
    x->is_resumed = 1;
}

int series_add(struct series *s, int64_t step, double value, double tokens, double flops,
               double time)
{
    if (s->n == s->cap && series_grow(s, s->n + 1) < 0)
        return DS_EMEM;
    if (!index_of(s))
        return DS_EMEM;
    if (s->n > 0 && step <= s->step[s->n - 1] && s->is_free_order && !s->index->is_resumed)
        s->is_unordered = 1;
    else if (s->n > 0 && step < s->step[s->n - 1]) {
        series_resume(s, step - 1);          /* a writer that went back without a resume head */
        s->is_unordered |= s->is_free_order; /* the head may have come after its first point */
    }
    struct series_index *x = s->index;
    if (x->is_resumed)
        x->section[x->sections++] = s->n;
    x->is_resumed = 0;
    size_t i = s->n++;
    s->step[i] = step;
    s->value[i] = value;
    s->tokens[i] = tokens;
    s->flops[i] = flops;
    s->time[i] = time;
    s->is_old[i] = 0;
    s->nonfinite += !isfinite(value);
    s->infinite += isinf(value) != 0;
    return 0;
}

/* ---- order ---- */

struct place {
    int64_t step;
    size_t from;
    int is_old;
};

static int by_step(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->step != y->step ? (x->step > y->step) - (x->step < y->step)
                              : (x->from > y->from) - (x->from < y->from);
}

static void reorder(double *column, double *spare, const struct place *place, size_t n)
{
    if (!column)
        return;
    memcpy(spare, column, n * sizeof *spare);
    for (size_t i = 0; i < n; i++)
        column[i] = spare[place[i].from];
}

/* The order that one resume leaves: from the first superseded point on, all of them, then the
 * others.  Returns where the others begin, or n. */
static size_t old_first(struct place *place, struct place *spare, size_t first, size_t n)
{
    size_t old = first, live = 0;
    for (size_t i = first; i < n; i++)
        if (place[i].is_old)
            place[old++] = place[i];
        else
            spare[live++] = place[i];
    memcpy(place + old, spare, live * sizeof *place);
    return first < n ? old : n;
}

int series_sort(struct series *s)
{
    struct place *place = mem_alloc(s->n + 1, sizeof *place);
    struct place *spare_place = mem_alloc(s->n + 1, sizeof *spare_place);
    double *spare = mem_alloc(s->n + 1, sizeof *spare);
    int rc = place && spare_place && spare ? 0 : DS_EMEM;
    for (size_t i = 0; rc == 0 && i < s->n; i++)
        place[i] = (struct place){s->step[i], i, 0};
    if (rc == 0) {
        qsort(place, s->n, sizeof *place, by_step);
        size_t first = s->n;                           /* superseded point */
        for (size_t i = s->n, next = s->n; i-- > 0;) { /* next: the newer valid point */
            place[i].is_old =
                s->is_old[place[i].from] || (next < s->n && place[i].step == place[next].step);
            next = place[i].is_old ? next : i;
            first = place[i].is_old ? i : first;
        }
        size_t live = old_first(place, spare_place, first, s->n);
        reorder(s->value, spare, place, s->n);
        reorder(s->tokens, spare, place, s->n);
        reorder(s->flops, spare, place, s->n);
        reorder(s->time, spare, place, s->n);
        for (size_t i = 0; i < s->n; i++) {
            s->step[i] = place[i].step;
            s->is_old[i] = (unsigned char)place[i].is_old;
        }
        for (int k = 0; k < LEVELS; k++)
            s->index->n[k] = 0; /* the pyramid is built again */
        s->index->is_resumed = 0;
        s->index->section[0] = live;
        s->index->sections = live < s->n;
        s->is_unordered = 0;
    }
    mem_free(place);
    mem_free(spare_place);
    mem_free(spare);
    return rc;
}

void series_release(struct series *s)
{
    for (int k = 0; s->index && k < LEVELS; k++)
        mem_free(s->index->node[k]);
    mem_free(s->index);
    mem_free(s->name);
    mem_free(s->unit);
    mem_free(s->help);
    mem_free(s->step);
    mem_free(s->value);
    mem_free(s->tokens);
    mem_free(s->flops);
    mem_free(s->time);
    mem_free(s->is_old);
}

/* ---- axes ---- */

const char *const run_axis_name[RUN_AXES] = {"step", "tokens", "seconds", "progress", "flops"};
const char *const run_axis_label[RUN_AXES] = {
    "Training step", "Training data (tokens)", "Wall time (s)",
    "Progress (fraction of the planned steps)", "Training compute (FLOPs)"};

int run_axis_find(const char *name)
{
    for (int i = 0; i < RUN_AXES; i++)
        if (strcmp(run_axis_name[i], name) == 0)
            return i;
    return -1;
}

double series_x(const struct series *s, size_t i, enum run_axis axis, int64_t steps_planned,
                double start)
{
    switch (axis) {
    case AXIS_TOKENS: return s->tokens ? s->tokens[i] : (double)NAN;
    case AXIS_FLOPS: return s->flops ? s->flops[i] : (double)NAN;
    case AXIS_SECONDS: return s->time ? s->time[i] - start : (double)NAN;
    case AXIS_PROGRESS:
        return steps_planned > 0 ? (double)s->step[i] / (double)steps_planned : (double)NAN;
    default: return (double)s->step[i];
    }
}

/* ---- pyramid ----------------------------------------------------------------------------------
 */

static const struct node nothing = {HUGE_VAL, -HUGE_VAL, 0};

static struct node leaf(double v)
{
    return isfinite(v) ? (struct node){v, v, 0} : (struct node){HUGE_VAL, -HUGE_VAL, 1};
}

/* Node i of a level; level -1 are the values themselves. */
static struct node node_at(const struct series *s, int level, size_t i)
{
    return level < 0 ? leaf(s->value[i]) : s->index->node[level][i];
}

static void join(struct node *a, struct node b)
{
    a->min = b.min < a->min ? b.min : a->min;
    a->max = b.max > a->max ? b.max : a->max;
    a->nonfinite += b.nonfinite;
}

/* Brings the pyramid up to date; returns how many levels are usable. */
static int build(const struct series *s)
{
    struct series_index *x = s->index;
    size_t below = s->n;
    for (int k = 0; k < LEVELS; k++) {
        size_t want = below / FAN;
        void *p = x->node[k];
        if (want == 0)
            return k;
        if (grow(&p, &x->cap[k], want, sizeof *x->node[k]) < 0)
            return k;
        x->node[k] = p;
        for (; x->n[k] < want; x->n[k]++) {
            struct node sum = nothing;
            for (size_t i = 0; i < FAN; i++)
                join(&sum, node_at(s, k - 1, x->n[k] * FAN + i));
            x->node[k][x->n[k]] = sum;
        }
        below = want;
    }
    return LEVELS;
}

/* The last finite value of [i0, i1), skipping whole blocks that have none. */
static double last_finite(const struct series *s, size_t i0, size_t i1, int levels)
{
    while (i1 > i0) {
        size_t block = 1;
        if (isfinite(s->value[i1 - 1]))
            return s->value[i1 - 1];
        for (int k = 0; k < levels; k++) {
            size_t wider = block * FAN;
            if (i1 % wider || i1 - i0 < wider ||
                s->index->node[k][i1 / wider - 1].nonfinite < wider)
                break;
            block = wider;
        }
        i1 -= block;
    }
    return (double)NAN;
}

struct series_span series_range(const struct series *s, size_t i0, size_t i1)
{
    struct node sum = nothing;
    i1 = i1 < s->n ? i1 : s->n;
    i0 = i0 < i1 ? i0 : i1;
    int levels = s->index ? build(s) : 0;
    size_t a = i0, b = i1;
    for (int k = -1; a < b; k++, a /= FAN, b /= FAN) {
        int is_top = k + 1 >= levels;
        while (a < b && (is_top || a % FAN))
            join(&sum, node_at(s, k, a++));
        while (a < b && b % FAN)
            join(&sum, node_at(s, k, --b));
    }
    struct series_span span = {.n = i1 - i0, .nonfinite = sum.nonfinite};
    int has_any = span.n > span.nonfinite;
    span.min = has_any ? sum.min : (double)NAN;
    span.max = has_any ? sum.max : (double)NAN;
    span.last = has_any ? last_finite(s, i0, i1, levels) : (double)NAN;
    return span;
}

size_t series_find(const struct series *s, int64_t step)
{
    size_t lo = 0, hi = s->n;
    const struct series_index *x = s->index;
    int k = x ? x->sections - 1 : -1, sections = k + 1;
    /* within one section steps never go back; the last one that begins at or below is right */
    for (; k >= 0 && s->step[x->section[k]] > step; k--)
        hi = x->section[k];
    if (k >= 0)
        lo = x->section[k];
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (s->step[mid] < step)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo < s->n && s->is_old[lo]) /* everything after it in its section is superseded, too */
        for (int j = k + 1; j < sections; j++)
            if (!s->is_old[x->section[j]])
                return x->section[j];
    return lo;
}
