/* static: a control.  A content-independent static mask over (layer, position): at each gated layer
 * a token runs when frac(position * 0.618 + layer * 0.414) < rate, which spreads skips evenly over
 * tokens and layers.  pattern=layers drops whole layers instead, which makes a shallower dense
 * model. */
#include <math.h>

#include "base/mem.h"
#include "routing/route.h"

enum { PATTERN_STRIPES, PATTERN_LAYERS };
struct static_opts {
    int64_t early, late;
    double target_ratio;
    int pattern, kv, train;
};
struct static_state {
    uint8_t *want;
};

#define AT(field) offsetof(struct static_opts, field)
static const struct opt static_opts_table[] = {
    // clang-format off
    {"early", OPT_INT, AT(early), "1", 0, 4096, NULL, "first layers that every token runs"},
    {"late", OPT_INT, AT(late), "1", 0, 4096, NULL, "last layers that every token runs"},
    {"target_ratio", OPT_REAL, AT(target_ratio), "0.6", 0, 1, NULL,
     "whole-block ratio: executed cells / all cells, including always-on layers", "target_ratio"},
    {"pattern", OPT_ENUM, AT(pattern), "stripes", 0, 0, "stripes|layers",
     "fixed mask over positions and layers, or whole layers"},
    {"kv", OPT_ENUM, AT(kv), "all", 0, 0, "all|plan",
     "skipped tokens write keys and values too, or only executed tokens are keys"},
    {"train", OPT_ENUM, AT(train), "sparse", 0, 0, "masked|sparse",
     "compute all rows while training, or only those that run"},
    // clang-format on
};

static const struct static_opts *opts_of(const struct route *r)
{
    return r->opts;
}

static int static_always_on(const struct route *r, int l)
{
    return l < opts_of(r)->early || l >= r->L - opts_of(r)->late;
}

static int static_init(struct route *r, struct err *e)
{
    int on = (int)(opts_of(r)->early + opts_of(r)->late);
    if (on >= r->L)
        return err_set(e, DS_ERANGE, "static.early + static.late = %d leave no gated layer of %d",
                       on, r->L);
    return route_check_target(opts_of(r)->target_ratio, on, r->L, "static.target_ratio", e);
}

static void static_layout(struct route *r, struct arena *a, int R)
{
    struct static_state *s = r->state;
    s->want = arena_zalloc(a, (size_t)R, 1);
}

static int runs(const struct route *r, int l, int pos)
{
    const struct static_opts *o = opts_of(r);
    int on = (int)(o->early + o->late), gated = r->L - on;
    double rate = (o->target_ratio * r->L - on) / gated;
    if (static_always_on(r, l))
        return 1;
    if (o->pattern == PATTERN_LAYERS) { /* even spacing: layer k runs when the rounded sum grows */
        int k = l - (int)o->early;
        return floor((k + 1) * rate + 0.5) > floor(k * rate + 0.5);
    }
    double phase = pos * 0.6180339887498949 + l * 0.41421356237309503;
    return phase - floor(phase) < rate;
}

static void static_decide(struct route *r, int l, struct plan *out, const struct stream *st)
{
    struct static_state *s = r->state;
    int training = r->pass.kind == PASS_TRAIN;
    int sparse = training ? opts_of(r)->train == 1 : r->pass.kind == PASS_SPARSE;
    (void)st;
    out->kv = opts_of(r)->kv == 0 ? KV_ALL : KV_PLAN;
    for (int i = 0; i < r->pass.R; i++) {
        int forced = route_forced(r, l, i);
        s->want[i] = (uint8_t)(forced >= 0 ? forced : runs(r, l, r->pass.pos[i]));
    }
    plan_from_mask(out, s->want, NULL, NULL, r->pass.R, !sparse);
}

const struct route_ops route_static = {
    .name = "static",
    .summary = "control: content-independent static mask, at a given utilisation",
    .paper = "-",
    .flags = ROUTE_GATED | ROUTE_CONTROL,
    .opts_size = sizeof(struct static_opts),
    .state_size = sizeof(struct static_state),
    .opts = static_opts_table,
    .n_opts = DS_LEN(static_opts_table),
    .init = static_init,
    .layout = static_layout,
    .decide = static_decide,
    .always_on = static_always_on,
};
