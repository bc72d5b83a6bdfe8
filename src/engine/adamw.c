/* Gradient health and the AdamW step: one pool run each, over the spans of all tensors.  MATH.md
 * 11. */
#include <string.h>

#include "base/pool.h"
#include "engine/ops.h"
#include "engine/param.h"
#include "engine/scratch.h"
#include "engine/vec.h"

/* A span is TASK_ELEMENTS of one tensor (its last span is shorter); sums are kept per chunk of
 * it. */
enum { SQUARES_CHUNK = 4096, SPAN_CHUNKS = TASK_ELEMENTS / SQUARES_CHUNK };

static int chunk_count(size_t n)
{
    return (int)(n / SQUARES_CHUNK + (n % SQUARES_CHUNK != 0));
}

/* Adds the squares of a span to its chunks' sums; returns how many elements are not finite. */
static uint32_t span_squares(const struct vec_set *by, const real *x, size_t n, double *sum)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i += SQUARES_CHUNK) {
        size_t m = n - i < SQUARES_CHUNK ? n - i : SQUARES_CHUNK;
        *sum = by->squares(x + i, m);
        if (!isfinite(*sum++)) /* rare, so only then count one by one */
            for (size_t k = i; k < i + m; k++)
                bad += !isfinite(x[k]);
    }
    return bad;
}

/* Pairwise summation: the tree depends on the count alone. */
static double tree_sum(double *x, int n)
{
    for (; n > 1; n = (n + 1) / 2)
        for (int i = 0; i < n / 2 + (n & 1); i++)
            x[i] = 2 * i + 1 < n ? x[2 * i] + x[2 * i + 1] : x[2 * i];
    return n ? x[0] : 0;
}

struct squares_job {
    const struct vec_set *by;
    const real *x;
    size_t n;
    double *sum;   /* per chunk */
    uint32_t *bad; /* per span */
};

static void squares_task(void *ctx, int task, int worker)
{
    const struct squares_job *j = ctx;
    size_t begin, end = span_of(j->n, task, &begin);
    (void)worker;
    j->bad[task] = span_squares(j->by, j->x + begin, end - begin, j->sum + task * SPAN_CHUNKS);
}

double sum_squares(const real *x, size_t n, uint64_t *bad)
{
    int spans = span_tasks(n), chunks = chunk_count(n);
    double *sum =
        scratch_get(SCRATCH_PART, (size_t)chunks + (size_t)spans, sizeof *sum + sizeof(uint32_t));
    struct squares_job j = {vec(), x, n, sum, (uint32_t *)(sum + chunks)};
    uint64_t count = 0;
    pool_run(spans, squares_task, &j);
    for (int i = 0; i < spans; i++)
        count += j.bad[i];
    if (bad)
        *bad = count;
    return tree_sum(sum, chunks);
}

/* All tensors with gradients as one list of spans: tensor i has first[i] <= span < first[i + 1]. */
struct step_job {
    const struct vec_set *by;
    struct param *p;
    int n;
    int *first;
    double *sum; /* SPAN_CHUNKS per span; health: of the gradient, a measured step: of the update */
    double *value_sum; /* of the values before a measured step, else NULL */
    uint32_t *bad;
    struct vec_adamw rates[PARAM_GROUPS];
    int begin, end; /* spans that are worked on */
};

static int spans_of(const struct param *p)
{
    return p->grad ? span_tasks(p->n) : 0;
}

static void step_init(struct step_job *j, const struct params *ps, const struct adamw_part *part)
{
    *j = (struct step_job){.by = vec(), .p = ps->p, .n = ps->n};
    j->first = scratch_get(SCRATCH_INDEX, (size_t)ps->n + 1, sizeof *j->first);
    j->first[0] = 0;
    for (int i = 0; i < ps->n; i++)
        j->first[i + 1] = j->first[i] + spans_of(&ps->p[i]);
    j->begin = part ? part->first : 0;
    j->end = part ? part->end : j->first[ps->n];
}

/* Finds the tensor of a span and the span's elements [*begin, *end). */
static struct param *span_param(const struct step_job *j, int span, size_t *begin, size_t *end)
{
    int low = 0;
    /* binary search for the last tensor that begins at or before it */
    for (int high = j->n - 1; low < high;) {
        int mid = low + (high - low + 1) / 2;
        if (j->first[mid] <= span)
            low = mid;
        else
            high = mid - 1;
    }
    *end = span_of(j->p[low].n, span - j->first[low], begin);
    return &j->p[low];
}

static void health_task(void *ctx, int task, int worker)
{
    const struct step_job *j = ctx;
    size_t begin, end;
    task += j->begin;
    const struct param *p = span_param(j, task, &begin, &end);
    (void)worker;
    j->bad[task] =
        span_squares(j->by, p->grad + begin, end - begin, j->sum + (size_t)task * SPAN_CHUNKS);
}

int params_spans(const struct params *ps)
{
    int n = 0;
    for (int i = 0; i < ps->n; i++)
        n += spans_of(&ps->p[i]);
    return n;
}

const struct param *params_span(const struct params *ps, int span, size_t *begin)
{
    const struct param *last = NULL;
    for (int i = 0; i < ps->n; i++) {
        int n = spans_of(&ps->p[i]);
        if (span < n) {
            (void)span_of(ps->p[i].n, span, begin);
            return &ps->p[i];
        }
        span -= n;
        last = n > 0 ? &ps->p[i] : last;
    }
    *begin = last ? last->n : 0;
    return last;
}

struct grad_health params_grad_health(const struct params *ps)
{
    return params_grad_health_part(ps, NULL);
}

struct grad_health params_grad_health_part(const struct params *ps, const struct adamw_part *part)
{
    struct grad_health h = {0};
    struct step_job j;
    double sum = 0, router = 0;
    step_init(&j, ps, part);
    int spans = j.first[j.n];
    j.sum = scratch_get(SCRATCH_PART, (size_t)spans, SPAN_CHUNKS * sizeof *j.sum + sizeof *j.bad);
    j.bad = (uint32_t *)(j.sum + (size_t)spans * SPAN_CHUNKS);
    pool_run(j.end - j.begin, health_task, &j);
    if (part) {
        part->share(part->ctx, j.sum, SPAN_CHUNKS * sizeof *j.sum);
        part->share(part->ctx, j.bad, sizeof *j.bad);
    }
    for (int i = 0; i < ps->n; i++) {
        const struct param *p = &ps->p[i];
        uint64_t bad = 0;
        if (!p->grad)
            continue;
        for (int s = j.first[i]; s < j.first[i + 1]; s++)
            bad += j.bad[s];
        double squares = tree_sum(j.sum + (size_t)j.first[i] * SPAN_CHUNKS, chunk_count(p->n));
        ps->p[i].grad_squares = squares;
        if (p->lr > 0)
            *(p->group == PARAM_ROUTER ? &router : &sum) += squares;
        h.bad += bad;
        if (bad && !h.first_bad)
            h.first_bad = p->name;
    }
    h.norm = sqrt(sum);
    h.router_norm = sqrt(router);
    return h;
}

/* A chunk at a time, so that the values before the step stay in the cache.  A chunk is a multiple
 * of every vector width: the same instructions compute each element as without measuring. */
static void measured_step(const struct step_job *j, struct param *p, size_t begin, size_t end,
                          const struct vec_adamw *rates, size_t chunk)
{
    real before[SQUARES_CHUNK];
    for (size_t i = begin; i < end; i += SQUARES_CHUNK, chunk++) {
        size_t n = end - i < SQUARES_CHUNK ? end - i : SQUARES_CHUNK;
        memcpy(before, p->value + i, n * sizeof *before);
        j->value_sum[chunk] = j->by->squares(before, n);
        j->by->adamw(p->value + i, p->grad + i, p->m + i, p->v + i, rates, n);
        for (size_t k = 0; k < n; k++)
            before[k] = p->value[i + k] - before[k];
        j->sum[chunk] = j->by->squares(before, n);
    }
}

static int is_stepped(const struct param *p)
{
    return p->train && p->lr > 0;
}

static void adamw_task(void *ctx, int task, int worker)
{
    const struct step_job *j = ctx;
    size_t i, end;
    struct param *p = span_param(j, task, &i, &end);
    (void)worker;
    struct vec_adamw rates = j->rates[p->group];
    if (p->lr != 1) {
        rates.rate *= (real)p->lr;
        rates.keep = 1 - (1 - rates.keep) * (real)p->lr;
    }
    int is_own = task >= j->begin && task < j->end;
    if (is_own && is_stepped(p) && j->value_sum)
        measured_step(j, p, i, end, &rates, (size_t)task * SPAN_CHUNKS);
    else if (is_own && is_stepped(p))
        j->by->adamw(p->value + i, p->grad + i, p->m + i, p->v + i, &rates, end - i);
    else
        memset(p->grad + i, 0, (end - i) * sizeof *p->grad);
}

static double clip_factor(double norm, double limit)
{
    return limit > 0 && norm > limit ? limit / norm : 1;
}

/* The factors for the tensors of a group. */
static struct vec_adamw rates_of(enum param_group group, const struct adamw *o, int64_t step,
                                 const struct grad_health *health)
{
    int is_router = group == PARAM_ROUTER;
    double bias1 = 1 - pow(o->beta1, (double)step), bias2 = 1 - pow(o->beta2, (double)step);
    double lr = o->lr * (is_router ? o->router_lr : 1);
    double decay = group == PARAM_MATRIX ? o->weight_decay : 0;
    return (struct vec_adamw){
        .beta1 = (real)o->beta1,
        .rest1 = 1 - (real)o->beta1,
        .beta2 = (real)o->beta2,
        .rest2 = 1 - (real)o->beta2,
        .eps = (real)o->eps,
        .keep = (real)(1 - lr * decay),
        .rate = (real)(lr / bias1),
        .root = (real)(1 / sqrt(bias2)),
        .clip = (real)clip_factor(is_router ? health->router_norm : health->norm, o->clip),
    };
}

void adamw_step(struct params *ps, const struct adamw *o, int64_t step,
                const struct grad_health *health)
{
    adamw_step_part(ps, o, step, health, NULL);
}

void adamw_step_part(struct params *ps, const struct adamw *o, int64_t step,
                     const struct grad_health *health, const struct adamw_part *part)
{
    ps->version++;
    struct step_job j;
    step_init(&j, ps, part);
    for (int group = 0; group < PARAM_GROUPS; group++)
        j.rates[group] = rates_of((enum param_group)group, o, step, health);
    size_t chunks = (size_t)j.first[j.n] * SPAN_CHUNKS;
    if (o->measure) {
        j.sum = scratch_get(SCRATCH_PART, 2 * chunks, sizeof *j.sum);
        j.value_sum = j.sum + chunks;
    }
    pool_run(j.first[j.n], adamw_task, &j);
    if (part && o->measure) {
        part->share(part->ctx, j.sum, SPAN_CHUNKS * sizeof *j.sum);
        part->share(part->ctx, j.value_sum, SPAN_CHUNKS * sizeof *j.value_sum);
    }
    for (int i = 0; o->measure && i < ps->n; i++) {
        struct param *p = &ps->p[i];
        size_t first = (size_t)j.first[i] * SPAN_CHUNKS;
        int n = p->grad && is_stepped(p) ? chunk_count(p->n) : 0;
        p->update_squares = tree_sum(j.sum + first, n);
        p->value_squares = tree_sum(j.value_sum + first, n);
    }
}
