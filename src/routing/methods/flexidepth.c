/* flexidepth: a router and an adapter in each of the upper layers of a frozen model.  A token that
 * the router skips takes no part as a query, and a narrow MLP replaces its FFN:
 *
 *     s = head(dec(tanh(norm(enc(n1)))))       n1: what the layer's attention reads of x
 *     w = sigmoid(s);   the token runs when w > threshold
 *     runs:     u = x + attention(x)      y = u + w ffn(n2)          n2: what its FFN reads of u
 *     skipped:  u = x                     y = u + (1 - w) up(silu(gate(n2)) down(n2))
 *
 * Skipped tokens write keys and values (kv=all, published).  Weights come with a checkpoint, under
 * its own names; training runs every layer without routers, and leaves them as they are. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/linear.h"
#include "routing/route.h"

struct flexidepth_opts {
    int64_t first, router_reduction, proj_reduction, ffn;
    double threshold, eps;
    int kv;
};

/* Params of one layer. */
struct maps {
    int enc, norm, dec, head; /* (E,C), (E), (C,E), (1,C) */
    int gate, down, up;       /* (M,C), (M,C), (C,M) */
};

struct flexidepth {
    int first, E, M;      /* the first layer with a router; widths of router and adapter */
    struct maps *maps;    /* (L), from `first` on */
    uint8_t *run;         /* (R) */
    real *score, *factor; /* (R) s; zeros: gates have no gradient */
    real *gate;           /* (L,R) w, for the adapters of a replay */
    real *gates;          /* (R) of the FFN's plan */
    int32_t *row;         /* (R) */
    real *x, *wide;       /* (R,C) */
    real *narrow, *other; /* (R, max of E and M) */
};

#define AT(field) offsetof(struct flexidepth_opts, field)
static const struct opt flexidepth_opts_table[] = {
    // clang-format off
    {"first", OPT_INT, AT(first), "0", 0, 4096, NULL,
     "the first layer with a router and an adapter; 0 = half of the layers (published 16 of 32)"},
    {"threshold", OPT_REAL, AT(threshold), "0.5", 0, 1, NULL,
     "a token runs a layer when the router's sigmoid is above it (published 0.5)", .is_live = 1},
    {"router_reduction", OPT_INT, AT(router_reduction), "16", 1, 4096, NULL,
     "model.dim / width of the router's bottleneck (at least 1)"},
    {"proj_reduction", OPT_INT, AT(proj_reduction), "16", 1, 4096, NULL,
     "model.ffn / width of the adapter (at least 1)"},
    {"ffn", OPT_INT, AT(ffn), "0", 0, 1 << 24, NULL,
     "width that proj_reduction divides; 0 = 4 model.dim"},
    {"eps", OPT_REAL, AT(eps), "1e-5", 0, 1, NULL, "epsilon of the router's norm"},
    {"kv", OPT_ENUM, AT(kv), "all", 0, 0, "all|plan",
     "skipped tokens write keys and values too (published), or only executed tokens are keys"},
    // clang-format on
};

enum { M_SHARE, M_GATE, M_SCORE, M_TAU };
static const struct metric flexidepth_metrics[] = {
    // clang-format off
    [M_SHARE] = {"ffn_share", "", "share of rows that ran the layer", METRIC_LAYER},
    [M_GATE] = {"gate", "", "sigmoid of the router", METRIC_CELL},
    [M_SCORE] = {"score", "", "the router's output", METRIC_CELL},
    [M_TAU] = {"threshold", "", "threshold that the score is compared with", METRIC_CELL},
    // clang-format on
};

static struct flexidepth *state_of(const struct route *r)
{
    return r->state;
}

static const struct flexidepth_opts *opts_of(const struct route *r)
{
    return r->opts;
}

static int flexidepth_always_on(const struct route *r, int l)
{
    return l < state_of(r)->first;
}

/* ---- set-up ---- */

static int add(struct route *r, int l, const char *name, int rows, int cols, enum param_init init)
{
    char full[96];
    double scale = 1 / sqrt(cols > 0 ? (double)cols : 1);
    snprintf(full, sizeof full, "model.layers.%d.%s.weight", l, name);
    int i = params_add(r->params, full, rows, cols, PARAM_ROUTER, init, scale);
    if (i >= 0)
        r->params->p[i].train = 0;
    return i;
}

static int narrowed(int64_t width, int64_t by)
{
    return width >= by ? (int)(width / by) : 1;
}

static int flexidepth_init(struct route *r, struct err *e)
{
    const struct flexidepth_opts *o = opts_of(r);
    struct flexidepth *s = state_of(r);
    s->first = o->first > 0 ? (int)o->first : r->L / 2;
    s->E = narrowed(r->C, o->router_reduction);
    s->M = narrowed(o->ffn > 0 ? o->ffn : 4 * (int64_t)r->C, o->proj_reduction);
    if (s->first >= r->L)
        return err_set(e, DS_ERANGE, "flexidepth.first=%d: must be less than the %d layers",
                       s->first, r->L);
    s->maps = mem_alloc((size_t)r->L, sizeof *s->maps);
    if (!s->maps)
        return err_set(e, DS_EMEM, "parameters of flexidepth");
    for (int l = s->first; l < r->L; l++) {
        struct maps *x = &s->maps[l];
        *x = (struct maps){.enc = add(r, l, "router.router_enc", s->E, r->C, INIT_NORMAL),
                           .norm = add(r, l, "router.router_norm", s->E, 0, INIT_ONE),
                           .dec = add(r, l, "router.router_dec", r->C, s->E, INIT_NORMAL),
                           .head = add(r, l, "router.router_head", 1, r->C, INIT_NORMAL),
                           .gate = add(r, l, "router_proj.gate_proj", s->M, r->C, INIT_NORMAL),
                           .down = add(r, l, "router_proj.down_proj", s->M, r->C, INIT_NORMAL),
                           .up = add(r, l, "router_proj.up_proj", r->C, s->M, INIT_NORMAL)};
        if (x->up < 0)
            return err_set(e, DS_EMEM, "parameters of flexidepth");
    }
    return 0;
}

static void flexidepth_layout(struct route *r, struct arena *a, int rows)
{
    struct flexidepth *s = state_of(r);
    size_t R = (size_t)rows, narrow = (size_t)(s->E > s->M ? s->E : s->M);
    s->run = arena_zalloc(a, R, 1);
    s->score = arena_zalloc(a, R, sizeof(real));
    s->factor = arena_zalloc(a, R, sizeof(real));
    s->gate = arena_zalloc(a, (size_t)r->L * R, sizeof(real));
    s->gates = arena_zalloc(a, R, sizeof(real));
    s->row = arena_zalloc(a, R, sizeof(int32_t));
    s->x = arena_zalloc(a, R * (size_t)r->C, sizeof(real));
    s->wide = arena_zalloc(a, R * (size_t)r->C, sizeof(real));
    s->narrow = arena_zalloc(a, R * narrow, sizeof(real));
    s->other = arena_zalloc(a, R * narrow, sizeof(real));
}

static void flexidepth_release(struct route *r)
{
    mem_free(state_of(r)->maps);
    state_of(r)->maps = NULL;
}

/* y (n,O) = x (n,C) w^T */
static void map(const struct route *r, int i, real *y, const real *x, int n)
{
    const struct param *p = &r->params->p[i];
    struct linear w = {.O = p->shape[0], .C = p->shape[1], .format = GEMM_FP32, .w = p->value};
    linear_fwd(y, x, &w, n, 0, NULL);
}

/* ---- router ---- */

/* tanh(norm(x)) of a row of the bottleneck. */
static void squash(const struct route *r, const real *weight, real *x, int E)
{
    real sum = 0;
    for (int k = 0; k < E; k++)
        sum += x[k] * x[k];
    real scale = 1 / sqrt_r(sum / (real)E + (real)opts_of(r)->eps);
    for (int k = 0; k < E; k++)
        x[k] = tanh_r(weight[k] * (x[k] * scale));
}

static void score_rows(struct route *r, int l, const struct stream *st)
{
    struct flexidepth *s = state_of(r);
    const struct maps *w = &s->maps[l];
    int R = r->pass.R;
    for (int i = 0; i < R; i++)
        s->row[i] = i;
    st->lens.normed(st->lens.ctx, ROUTE_NORM_ATTENTION, l, s->row, R, s->x);
    map(r, w->enc, s->narrow, s->x, R);
    for (int i = 0; i < R; i++)
        squash(r, r->params->p[w->norm].value, s->narrow + (size_t)i * (size_t)s->E, s->E);
    map(r, w->dec, s->wide, s->narrow, R);
    map(r, w->head, s->score, s->wide, R);
    st->lens.count(st->lens.ctx, l, s->row, R, 2.0 * r->C * (2.0 * s->E + 1));
    for (int i = 0; i < R; i++)
        s->gate[(size_t)l * (size_t)R + (size_t)i] = 1 / (1 + exp_r(-s->score[i]));
}

/* The threshold of the score; what-if offsets shift it. */
static double threshold_of(const struct route *r)
{
    double t = opts_of(r)->threshold;
    return log(t) - log1p(-t) + r->pass.inference.offset;
}

static void record_rows(struct route *r, int l, double tau)
{
    struct flexidepth *s = state_of(r);
    for (int i = 0; i < r->pass.R; i++) {
        size_t cell = (size_t)l * (size_t)r->pass.R + (size_t)i;
        r->cell[M_GATE][cell] = s->gate[cell];
        r->cell[M_SCORE][cell] = s->score[i];
        r->cell[M_TAU][cell] = (real)tau;
    }
}

/* Which rows run layer l: decided once, before the attention. */
static void choose(struct route *r, int l, const struct stream *st)
{
    struct flexidepth *s = state_of(r);
    int R = r->pass.R, is_routed = l >= s->first && r->pass.kind != PASS_TRAIN;
    double tau = threshold_of(r), share = 0;
    if (is_routed)
        score_rows(r, l, st);
    if (is_routed && r->pass.record)
        record_rows(r, l, tau);
    for (int i = 0; i < R; i++) {
        int forced = route_forced(r, l, i);
        s->run[i] = (uint8_t)(forced >= 0 ? forced : !is_routed || (double)s->score[i] > tau);
        share += s->run[i] / (double)R;
    }
    r->metric[M_SHARE][l] = share;
}

static void flexidepth_decide(struct route *r, int l, struct plan *out, const struct stream *st)
{
    struct flexidepth *s = state_of(r);
    int R = r->pass.R, is_routed = l >= s->first && r->pass.kind != PASS_TRAIN;
    if (out->span == ROUTE_SPAN_ATTENTION)
        choose(r, l, st);
    for (int i = 0; i < R; i++) {
        int forced = route_forced_attention(r, l, i);
        real gate = is_routed ? s->gate[(size_t)l * (size_t)R + (size_t)i] : 1;
        if (out->span == ROUTE_SPAN_ATTENTION)
            s->gates[i] = forced >= 0 ? (real)forced : (real)s->run[i];
        else
            s->gates[i] = s->run[i] ? gate : 0;
    }
    plan_from_gates(out, s->gates, s->factor, R, r->pass.kind != PASS_SPARSE);
    out->kv = opts_of(r)->kv == 0 ? KV_ALL : KV_PLAN;
}

/* ---- adapter ---- */

/* Rows without an executed gate; 0 where no adapter is. */
static int skipped_rows(const struct route *r, int l, const struct plan *p)
{
    struct flexidepth *s = state_of(r);
    int n = 0, next = 0;
    if (p->span != ROUTE_SPAN_FFN || l < s->first || r->pass.kind == PASS_TRAIN)
        return 0;
    for (int i = 0; i < r->pass.R; i++) {
        int is_listed = next < p->n && p->row[next] == i;
        if (!is_listed || p->gate[next] == 0)
            s->row[n++] = i;
        next += is_listed;
    }
    return n;
}

static void flexidepth_enter(struct route *r, int l, const struct plan *p, struct stream *st)
{
    struct flexidepth *s = state_of(r);
    const struct maps *w = &s->maps[l];
    int n = skipped_rows(r, l, p);
    if (n == 0)
        return;
    st->lens.normed(st->lens.ctx, ROUTE_NORM_FFN, l, s->row, n, s->x);
    map(r, w->gate, s->narrow, s->x, n);
    map(r, w->down, s->other, s->x, n);
    for (size_t k = 0; k < (size_t)n * (size_t)s->M; k++)
        s->narrow[k] = s->narrow[k] / (1 + exp_r(-s->narrow[k])) * s->other[k];
    map(r, w->up, s->wide, s->narrow, n);
    for (int k = 0; k < n; k++) {
        real rest = 1 - s->gate[(size_t)l * (size_t)r->pass.R + (size_t)s->row[k]];
        real *to = st->mid + (size_t)s->row[k] * (size_t)r->C;
        const real *add = s->wide + (size_t)k * (size_t)r->C;
        for (int c = 0; c < r->C; c++)
            to[c] += rest * add[c];
    }
    st->lens.count(st->lens.ctx, l, s->row, n, 6.0 * r->C * s->M);
}

const struct route_ops route_flexidepth = {
    .name = "flexidepth",
    .summary = "routers and adapters in the upper layers of a frozen model",
    .paper = "Luo, Wang, Yan 2025, arXiv 2503.23798",
    .flags = ROUTE_GATED | ROUTE_SPLIT | ROUTE_SOFT,
    .opts_size = sizeof(struct flexidepth_opts),
    .state_size = sizeof(struct flexidepth),
    .opts = flexidepth_opts_table,
    .n_opts = DS_LEN(flexidepth_opts_table),
    .metrics = flexidepth_metrics,
    .n_metrics = DS_LEN(flexidepth_metrics),
    .init = flexidepth_init,
    .layout = flexidepth_layout,
    .decide = flexidepth_decide,
    .enter = flexidepth_enter,
    .always_on = flexidepth_always_on,
    .release = flexidepth_release,
};
