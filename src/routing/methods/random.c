/* random: a control.  Random routing at a method's utilisation: gated cells run with one
 * probability, drawn from (seed, layer, position, token), so decisions are causal and the same in
 * every kind of pass. */
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "routing/budget.h"
#include "routing/route.h"

struct random_opts {
    int64_t early, late;
    double target_ratio, anneal;
    int kv, train;
};
struct random {
    uint8_t *want;
    double rate;
};

#define AT(field) offsetof(struct random_opts, field)
static const struct opt random_opts_table[] = {
    // clang-format off
    {"early", OPT_INT, AT(early), "1", 0, 4096, NULL, "first layers that every token runs"},
    {"late", OPT_INT, AT(late), "1", 0, 4096, NULL, "last layers that every token runs"},
    {"target_ratio", OPT_REAL, AT(target_ratio), "0.6", 0, 1, NULL,
     "whole-block ratio: executed cells / all cells, including always-on layers", "target_ratio",
     .is_live = 1},
    {"anneal", OPT_REAL, AT(anneal), "0.1", 0, 1, NULL,
     "share of the run over which the target falls from 1"},
    {"kv", OPT_ENUM, AT(kv), "all", 0, 0, "all|plan",
     "skipped tokens write keys and values too, or only executed tokens are keys"},
    {"train", OPT_ENUM, AT(train), "sparse", 0, 0, "masked|sparse",
     "compute all rows while training, or only those that run"},
    // clang-format on
};

enum { M_TARGET, M_GATE };
static const struct metric random_metrics[] = {
    [M_TARGET] = {"target_ratio", "", "current target of the whole-block ratio", METRIC_STEP},
    [M_GATE] = {"gate", "", "1 = executed", METRIC_CELL},
};

static const struct random_opts *opts_of(const struct route *r)
{
    return r->opts;
}

static int random_always_on(const struct route *r, int l)
{
    return l < opts_of(r)->early || l >= r->L - opts_of(r)->late;
}

static int check(struct route *r, struct err *e)
{
    const struct random_opts *o = opts_of(r);
    int on = (int)(o->early + o->late);
    if (on >= r->L)
        return err_set(e, DS_ERANGE, "random.early + random.late = %d leave no gated layer of %d",
                       on, r->L);
    return route_check_target(o->target_ratio, on, r->L, "random.target_ratio", e);
}

static void random_layout(struct route *r, struct arena *a, int R)
{
    struct random *s = r->state;
    s->want = arena_zalloc(a, (size_t)R, 1);
}

static void random_begin(struct route *r)
{
    const struct random_opts *o = opts_of(r);
    struct random *s = r->state;
    int on = (int)(o->early + o->late);
    double target = r->pass.kind == PASS_TRAIN
                        ? budget_target(o->target_ratio, r->pass.progress, o->anneal)
                        : o->target_ratio;
    s->rate = (target * r->L - on) / (r->L - on);
    if (r->pass.kind == PASS_TRAIN)
        r->metric[M_TARGET][0] = target;
}

static void random_decide(struct route *r, int l, struct plan *out, const struct stream *st)
{
    struct random *s = r->state;
    int R = r->pass.R, training = r->pass.kind == PASS_TRAIN;
    int sparse = training ? opts_of(r)->train == 1 : r->pass.kind == PASS_SPARSE;
    (void)st;
    out->kv = opts_of(r)->kv == 0 ? KV_ALL : KV_PLAN;
    for (int i = 0; i < R; i++) {
        int forced = route_forced(r, l, i);
        /* Training draws anew in each step; at inference a draw depends on the token and position
         * only. */
        uint64_t step = training ? (uint64_t)r->pass.step : 0;
        uint32_t place = training
                             ? route_place(&r->pass, i)
                             : (uint32_t)r->pass.id[i] * 2654435761u + (uint32_t)r->pass.pos[i];
        s->want[i] =
            (uint8_t)(forced >= 0 ? forced
                                  : random_always_on(r, l) || rng_at(r->seed, RNG_ROUTE, step,
                                                                     (uint32_t)l, place) < s->rate);
        if (r->pass.record)
            r->cell[M_GATE][(size_t)l * (size_t)R + (size_t)i] = s->want[i];
    }
    plan_from_mask(out, s->want, NULL, NULL, R, !sparse);
}

const struct route_ops route_random = {
    .name = "random",
    .summary = "control: random routing at a given utilisation",
    .paper = "-",
    .flags = ROUTE_GATED | ROUTE_CONTROL,
    .opts_size = sizeof(struct random_opts),
    .state_size = sizeof(struct random),
    .opts = random_opts_table,
    .n_opts = DS_LEN(random_opts_table),
    .metrics = random_metrics,
    .n_metrics = DS_LEN(random_metrics),
    .init = check,
    .layout = random_layout,
    .begin = random_begin,
    .decide = random_decide,
    .changed = check,
    .always_on = random_always_on,
};
