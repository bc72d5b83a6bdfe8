/* stochastic: a control.  Stochastic depth (Huang et al. 2016): training drops random layers for
 * whole sequences; inference runs all layers, or the share of cells that a budget allows, for
 * comparison with a router at equal utilisation.
 *
 *   uniform   p_l = p
 *   linear    p_l = p k / (M - 1), k = 0..M-1 the layers after the kept ones
 *   budget    p_l = min(1, c p'_l), p' from the mask's schedule and c such that target_ratio of all
 *             cells run.  Draws depend on (seed, layer, position, token) alone: they are causal and
 *             the same in every kind of pass */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "routing/drop.h"
#include "routing/route.h"

enum { SCHEDULE_UNIFORM, SCHEDULE_LINEAR };
enum { UNIT_SEQUENCE, UNIT_BATCH };
enum { INFERENCE_FULL, INFERENCE_BUDGET };
enum { MASK_SAME, MASK_RANDOM, MASK_LINEAR };

struct stochastic_opts {
    int64_t keep;
    int schedule, unit, inference, scale, mask, kv, train;
    double p, target_ratio;
};
struct stochastic {
    uint8_t *want; /* (R) */
    double *skip;  /* (L) drop probability in the current pass */
    double runs;   /* executed layers so far, mean over rows */
};

#define AT(field) offsetof(struct stochastic_opts, field)
static const struct opt stochastic_opts_table[] = {
    // clang-format off
    {"keep", OPT_INT, AT(keep), "4", 0, 4096, NULL,
     "first layers that are never dropped (published 4)", "always_keep"},
    {"p", OPT_REAL, AT(p), "0.5", 0, 1, NULL,
     "drop probability of a layer; with schedule=linear that of the last (published 0.5)"},
    {"schedule", OPT_ENUM, AT(schedule), "uniform", 0, 0, "uniform|linear",
     "one drop probability for all layers after the kept ones, or rising from 0 to p"},
    {"unit", OPT_ENUM, AT(unit), "sequence", 0, 0, "sequence|batch",
     "draws are made per sequence, or once for the batch (published)"},
    {"inference", OPT_ENUM, AT(inference), "full", 0, 0, "full|budget",
     "inference runs all layers (published), or target_ratio of the cells", "stochastic.use"},
    {"scale", OPT_BOOL, AT(scale), "false", 0, 0, NULL,
     "inference=full: increments are multiplied by the share of steps in which their layer ran in "
     "training"},
    {"target_ratio", OPT_REAL, AT(target_ratio), "0.6", 0, 1, NULL,
     "inference=budget: whole-block ratio, executed cells / all cells", "target_ratio",
     .is_live = 1},
    {"mask", OPT_ENUM, AT(mask), "same", 0, 0, "same|random|linear",
     "inference=budget: random draws per token, with the training schedule; one probability for "
     "all layers; rising with depth"},
    {"kv", OPT_ENUM, AT(kv), "all", 0, 0, "all|plan",
     "skipped tokens write keys and values too, or only executed tokens are keys"},
    {"train", OPT_ENUM, AT(train), "sparse", 0, 0, "masked|sparse",
     "compute all rows while training, or only those that run"},
    // clang-format on
};

enum { M_ACTIVE, M_SKIP, M_GATE };
static const struct metric stochastic_metrics[] = {
    [M_ACTIVE] = {"active_layers", "layers", "layers that a token runs", METRIC_STEP},
    [M_SKIP] = {"drop_probability", "", "drop probability", METRIC_LAYER},
    [M_GATE] = {"gate", "", "1 = executed", METRIC_CELL},
};

static const struct stochastic_opts *opts_of(const struct route *r)
{
    return r->opts;
}

static int stochastic_always_on(const struct route *r, int l)
{
    return l < opts_of(r)->keep;
}

static int schedule_of(const struct stochastic_opts *o, int in_training)
{
    if (in_training || o->mask == MASK_SAME)
        return o->schedule;
    return o->mask == MASK_LINEAR ? SCHEDULE_LINEAR : SCHEDULE_UNIFORM;
}

/* The schedule's factor for layer l, at most 1. */
static double shape_at(const struct route *r, int l, int schedule)
{
    int keep = (int)opts_of(r)->keep, M = r->L - keep;
    if (l < keep)
        return 0;
    return schedule == SCHEDULE_UNIFORM || M < 2 ? 1 : (double)(l - keep) / (M - 1);
}

/* A linear schedule never drops its first layer, so one more always runs. */
static int least_depth(const struct route *r)
{
    const struct stochastic_opts *o = opts_of(r);
    int M = r->L - (int)o->keep;
    return (int)o->keep + (schedule_of(o, 0) == SCHEDULE_LINEAR && M > 1);
}

static int check(struct route *r, struct err *e)
{
    const struct stochastic_opts *o = opts_of(r);
    if (o->keep >= r->L)
        return err_set(e, DS_ERANGE,
                       "stochastic.keep=%lld leaves no layer of model.layers=%d to drop",
                       (long long)o->keep, r->L);
    if (o->scale && o->inference == INFERENCE_BUDGET)
        return err_set(e, DS_EUSAGE, "stochastic.scale=true needs stochastic.inference=full");
    return o->inference == INFERENCE_FULL ? 0
                                          : route_check_target(o->target_ratio, least_depth(r),
                                                               r->L, "stochastic.target_ratio", e);
}

static void stochastic_layout(struct route *r, struct arena *a, int R)
{
    struct stochastic *s = r->state;
    s->want = arena_zalloc(a, (size_t)R, 1);
    s->skip = arena_zalloc(a, (size_t)r->L, sizeof *s->skip);
}

static double skipped_at(const struct route *r, int schedule, double c)
{
    double sum = 0;
    for (int l = 0; l < r->L; l++)
        sum += fmin(1, c * shape_at(r, l, schedule));
    return sum;
}

/* The factor on the schedule that drops (1 - target) L layers on average. */
static double factor_of(const struct route *r)
{
    const struct stochastic_opts *o = opts_of(r);
    int schedule = schedule_of(o, 0);
    double want = (1 - o->target_ratio) * r->L, low = 0, high = r->L;
    for (int step = 0; step < 60; step++) {
        double middle = 0.5 * (low + high);
        if (skipped_at(r, schedule, middle) < want)
            low = middle;
        else
            high = middle;
    }
    return high;
}

static void stochastic_begin(struct route *r)
{
    const struct stochastic_opts *o = opts_of(r);
    struct stochastic *s = r->state;
    int training = r->pass.kind == PASS_TRAIN, full = !training && o->inference == INFERENCE_FULL;
    int schedule = schedule_of(o, training);
    double c = training ? o->p : full ? 0 : factor_of(r);
    for (int l = 0; l < r->L; l++) {
        s->skip[l] = fmin(1, c * shape_at(r, l, schedule));
        if (training)
            r->metric[M_SKIP][l] = s->skip[l];
    }
    s->runs = 0;
}

/* A training draw belongs to the sequence and changes from step to step; at inference it depends on
 * the token and its position. */
static int is_run(const struct route *r, int l, int i)
{
    const struct stochastic *s = r->state;
    const struct pass *p = &r->pass;
    int training = p->kind == PASS_TRAIN;
    uint32_t sequence = opts_of(r)->unit == UNIT_BATCH ? 0 : drop_sequence(r, i);
    uint32_t place = training ? sequence : (uint32_t)p->id[i] * 2654435761u + (uint32_t)p->pos[i];
    return drop_keeps(r, l, place, s->skip[l]);
}

/* Multiplies each increment by its layer's expected gate in training. */
static void scale_gates(const struct route *r, int l, struct plan *out)
{
    const struct stochastic_opts *o = opts_of(r);
    double keep = 1 - fmin(1, o->p * shape_at(r, l, o->schedule));
    for (int k = 0; k < out->n; k++)
        out->gate[k] *= (real)keep;
}

static void stochastic_decide(struct route *r, int l, struct plan *out, const struct stream *st)
{
    const struct stochastic_opts *o = opts_of(r);
    struct stochastic *s = r->state;
    int R = r->pass.R, training = r->pass.kind == PASS_TRAIN;
    int sparse = training ? o->train == 1 : r->pass.kind == PASS_SPARSE;
    (void)st;
    out->kv = o->kv == 0 ? KV_ALL : KV_PLAN;
    for (int i = 0; i < R; i++) {
        int forced = route_forced(r, l, i);
        s->want[i] = (uint8_t)(forced >= 0 ? forced : is_run(r, l, i));
        if (r->pass.record)
            r->cell[M_GATE][(size_t)l * (size_t)R + (size_t)i] = s->want[i];
    }
    plan_from_mask(out, s->want, NULL, NULL, R, !sparse);
    s->runs += (double)out->active / (R > 0 ? R : 1);
    if (!training && o->scale)
        scale_gates(r, l, out);
}

static void stochastic_finish(struct route *r, const struct stream *st)
{
    (void)st;
    if (r->pass.kind == PASS_TRAIN)
        r->metric[M_ACTIVE][0] = ((struct stochastic *)r->state)->runs;
}

const struct route_ops route_stochastic = {
    .name = "stochastic",
    .summary = "control: stochastic depth, random layers dropped in training; inference whole or "
               "at a budget",
    .paper = "Deep Networks with Stochastic Depth (2016)",
    .flags = ROUTE_GATED | ROUTE_CONTROL | ROUTE_SOFT,
    .opts_size = sizeof(struct stochastic_opts),
    .state_size = sizeof(struct stochastic),
    .opts = stochastic_opts_table,
    .n_opts = DS_LEN(stochastic_opts_table),
    .metrics = stochastic_metrics,
    .n_metrics = DS_LEN(stochastic_metrics),
    .init = check,
    .layout = stochastic_layout,
    .begin = stochastic_begin,
    .decide = stochastic_decide,
    .finish = stochastic_finish,
    .changed = check,
    .always_on = stochastic_always_on,
};
