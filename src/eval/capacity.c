/* Capacity table of --benchmark and the search for a target speedup. */
#include "eval/capacity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS_MAX = 10, SEARCH_TOKENS = 1 << 14 };
static const double tolerance = 0.02;

static int parse(struct capacity_table *t, const char *text, struct err *e)
{
    t->n = 0;
    for (const char *p = text; *p;) {
        char *end;
        double x = strtod(p, &end);
        if (end == p || (*end && (*end != ',' || !end[1])) || !(x >= 0 && x <= 1))
            return err_set(e, DS_EUSAGE,
                           "capacities=%s: expected numbers from 0 to 1, separated by commas",
                           text);
        if (t->n == CAPACITY_ROWS)
            return err_set(e, DS_ERANGE, "capacities: must be at most %d values",
                           (int)CAPACITY_ROWS);
        t->row[t->n++].target = x;
        p = *end ? end + 1 : end;
    }
    return t->n > 0
               ? 0
               : err_set(e, DS_EUSAGE,
                         "capacities is empty: expected numbers from 0 to 1, separated by commas");
}

/* Checked before any text is read. */
static int check_method(const struct subject *s, struct err *e)
{
    struct pass pass = {
        .kind = PASS_SPARSE, .inference.has_capacity = 1, .inference.capacity = 0.5};
    return route_ready(&s->model->route, &pass, e);
}

static int fill_row(struct capacity_table *t, size_t i, struct ppl *p, const struct ppl_options *o,
                    struct err *e)
{
    struct capacity_row *x = &t->row[i];
    struct ppl_result r;
    struct ppl_request w = {.capacity = x->target,
                            .controls = o->controls ? 2 : 0,
                            .dense = i == 0,
                            .is_whole = 1,
                            .prefill_rounds = (int)o->time_rounds,
                            .decode_rounds = (int)o->time_rounds};
    int rc = ppl_measure(&r, p, &w, e);
    if (rc < 0)
        return rc;
    const struct measure *m = &r.measure;
    if (i == 0)
        t->dense_loss = contrast_loss(&m->contrast, CONTRAST_DENSE);
    t->tokens = m->tokens;
    x->realised = measure_block_ratio(m);
    x->loss = measure_loss(m);
    x->delta = x->loss / t->dense_loss - 1;
    x->ppl_delta = expm1(x->loss - t->dense_loss);
    x->flops_ratio = measure_model_ratio(m);
    x->time_ratio = m->time_ratio;
    x->decode_time_ratio = m->decode_ratio;
    x->control_random_loss = contrast_loss(&m->contrast, CONTRAST_RANDOM);
    x->control_static_loss = contrast_loss(&m->contrast, CONTRAST_STATIC);
    x->control_random_flops_ratio = contrast_flops_ratio(&m->contrast, CONTRAST_RANDOM);
    ppl_result_release(&r);
    return 0;
}

int capacity_benchmark(struct capacity_table *out, struct subject *s, const struct ppl_options *o,
                       struct err *e)
{
    struct ppl *p = NULL;
    memset(out, 0, sizeof *out);
    int rc = parse(out, o->capacities, e);
    if (rc == 0 && o->routing != PPL_CAUSAL)
        rc = err_set(e, DS_EUSAGE, "--benchmark needs routing=causal, not routing=%s",
                     ppl_routing_name[o->routing]);
    if (rc == 0)
        rc = check_method(s, e);
    if (rc == 0)
        rc = ppl_open(&p, s, o, e);
    for (size_t i = 0; i < out->n && rc == 0; i++)
        rc = fill_row(out, i, p, o, e);
    if (rc == 0)
        str_copy(out->data, sizeof out->data, ppl_data(p));
    ppl_close(p);
    return rc;
}

/* ---- the search ---- */

struct search {
    struct ppl *p;
    enum speedup_of of;
    int rounds;
};

static int speedup_at(void *ctx, double capacity, double *speedup, struct err *e)
{
    const struct search *s = ctx;
    struct ppl_result r;
    struct ppl_request w = {.capacity = capacity,
                            .tokens = SEARCH_TOKENS,
                            .prefill_rounds = s->of == SPEEDUP_OF_PREFILL ? s->rounds : 0,
                            .decode_rounds = s->of == SPEEDUP_OF_DECODE ? s->rounds : 0};
    int rc = ppl_measure(&r, s->p, &w, e);
    if (rc < 0)
        return rc;
    const struct measure *m = &r.measure;
    *speedup = 1 / (s->of == SPEEDUP_OF_FLOPS     ? measure_model_ratio(m)
                    : s->of == SPEEDUP_OF_PREFILL ? m->time_ratio
                                                  : m->decode_ratio);
    ppl_result_release(&r);
    return isfinite(*speedup)
               ? 0
               : err_set(e, DS_ENUMERIC, "the speedup at capacity %.3f is not finite", capacity);
}

/* Measures the speedup and keeps the capacity nearest to the target. */
static int try_capacity(struct capacity_found *f, double capacity, double target,
                        capacity_speedup_fn *measure, void *ctx, double *speedup, struct err *e)
{
    int rc = measure(ctx, capacity, speedup, e);
    if (rc < 0)
        return rc;
    if (f->passes++ == 0 || fabs(*speedup - target) < fabs(f->speedup - target)) {
        f->capacity = capacity;
        f->speedup = *speedup;
    }
    f->is_met = fabs(f->speedup - target) <= tolerance * target;
    return 0;
}

int capacity_bisect(struct capacity_found *out, double target, capacity_speedup_fn *measure,
                    void *ctx, struct err *e)
{
    double least = 0, most = 0, low = 0, high = 1;
    memset(out, 0, sizeof *out);
    if (!(target > 0 && isfinite(target)))
        return err_set(e, DS_ERANGE, "target_speedup=%g: must be greater than 0", target);
    int rc = try_capacity(out, high, target, measure, ctx, &least, e);
    if (rc == 0)
        rc = try_capacity(out, low, target, measure, ctx, &most, e);
    if (rc < 0)
        return rc;
    if (!out->is_met && (target > fmax(least, most) || target < fmin(least, most)))
        return err_set(e, DS_ERANGE,
                       "target_speedup=%g is unreachable: expected a value in [%.3f, %.3f]", target,
                       fmin(least, most), fmax(least, most));
    for (int i = 0; i < STEPS_MAX && !out->is_met && rc == 0; i++) {
        double middle = 0.5 * (low + high), speedup = 0;
        rc = try_capacity(out, middle, target, measure, ctx, &speedup, e);
        *(speedup > target ? &low : &high) = middle; /* more capacity is slower */
    }
    return rc;
}

int capacity_search(struct capacity_found *out, struct ppl *p, double target, enum speedup_of of,
                    int rounds, struct err *e)
{
    struct search s = {.p = p, .of = of, .rounds = rounds > 0 ? rounds : 1};
    return capacity_bisect(out, target, speedup_at, &s, e);
}
