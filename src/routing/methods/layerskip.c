/* layerskip: layer dropout that rises with depth (LayerSkip, 2404.16710, section 4.1.1), for models
 * that are to exit early or to draft for themselves.  In training step t a sequence skips layer l
 * of L with probability
 *
 *     p(l,t) = dropout * D(l) * S(t)      D(l) = 2^(l / (L-1)) - 1, from 0 to 1
 *     S(t) = 1, or with schedule=exp 2^(t / steps) - 1
 *
 * Executed increments are not rescaled, as in the paper and its implementation.  Inference is dense.
 * The exit losses of the recipe are the trainer's (train.exit_loss): the preset sets both. */
#include <math.h>

#include "base/mem.h"
#include "routing/drop.h"
#include "routing/route.h"

enum { SCHEDULE_NONE, SCHEDULE_EXP };

struct layerskip_opts {
    double dropout;
    int schedule;
};
struct layerskip {
    uint8_t *want; /* (R) */
    double *skip;  /* (L) drop probability in the current pass */
    double runs;   /* executed layers so far, mean over rows */
};

#define AT(field) offsetof(struct layerskip_opts, field)
static const struct opt layerskip_opts_table[] = {
    // clang-format off
    {"dropout", OPT_REAL, AT(dropout), "0.1", 0, 1, NULL,
     "drop probability of the last layer while training (published 0.1 to 0.2); that of layer l of "
     "L is this times (2^(l / (L - 1)) - 1)", .is_live = 1},
    {"schedule", OPT_ENUM, AT(schedule), "none", 0, 0, "none|exp",
     "over training the probabilities stay, or rise from 0 as 2^(step / steps) - 1 (published from "
     "scratch)"},
    // clang-format on
};

enum { M_ACTIVE, M_SKIP };
static const struct metric layerskip_metrics[] = {
    [M_ACTIVE] = {"active_layers", "layers", "layers that a token runs", METRIC_STEP},
    [M_SKIP] = {"drop_probability", "", "drop probability", METRIC_LAYER},
};

static void layerskip_layout(struct route *r, struct arena *a, int R)
{
    struct layerskip *s = r->state;
    s->want = arena_zalloc(a, (size_t)R, 1);
    s->skip = arena_zalloc(a, (size_t)r->L, sizeof *s->skip);
}

static void layerskip_begin(struct route *r)
{
    const struct layerskip_opts *o = r->opts;
    struct layerskip *s = r->state;
    int training = r->pass.kind == PASS_TRAIN, last = r->L > 1 ? r->L - 1 : 1;
    double now = o->schedule == SCHEDULE_EXP ? exp2(r->pass.progress) - 1 : 1;
    for (int l = 0; l < r->L; l++) {
        s->skip[l] = training ? o->dropout * now * (exp2((double)l / last) - 1) : 0;
        if (training)
            r->metric[M_SKIP][l] = s->skip[l];
    }
    s->runs = 0;
}

static void layerskip_decide(struct route *r, int l, struct plan *out, const struct stream *st)
{
    struct layerskip *s = r->state;
    int R = r->pass.R;
    (void)st;
    /* A dropped sequence has no row that could read its keys. */
    out->kv = r->pass.kind == PASS_TRAIN ? KV_PLAN : KV_ALL;
    for (int i = 0; i < R; i++) {
        int forced = route_forced(r, l, i);
        s->want[i] =
            (uint8_t)(forced >= 0 ? forced : drop_keeps(r, l, drop_sequence(r, i), s->skip[l]));
    }
    plan_from_mask(out, s->want, NULL, NULL, R, r->pass.kind == PASS_MASKED);
    s->runs += (double)out->active / (R > 0 ? R : 1);
}

static void layerskip_finish(struct route *r, const struct stream *st)
{
    (void)st;
    if (r->pass.kind == PASS_TRAIN)
        r->metric[M_ACTIVE][0] = ((struct layerskip *)r->state)->runs;
}

const struct route_ops route_layerskip = {
    .name = "layerskip",
    .summary = "layer dropout that rises with depth, for early exits; inference runs every layer",
    .paper = "LayerSkip: Enabling Early Exit Inference and Self-Speculative Decoding (2024)",
    .opts_size = sizeof(struct layerskip_opts),
    .state_size = sizeof(struct layerskip),
    .opts = layerskip_opts_table,
    .n_opts = DS_LEN(layerskip_opts_table),
    .metrics = layerskip_metrics,
    .n_metrics = DS_LEN(layerskip_metrics),
    .layout = layerskip_layout,
    .begin = layerskip_begin,
    .decide = layerskip_decide,
    .finish = layerskip_finish,
};
