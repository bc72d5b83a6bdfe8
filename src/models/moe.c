/* Forward and backward of a mixture of experts; step numbers match.
 *
 *   1 scores of all experts     3 the experts, each on its rows     5 shared expert
 *   2 choice, rows of each      4 weighted sum                                           */
#include "models/moe.h"

#include <math.h>
#include <string.h>

#include "base/pool.h"
#include "engine/ops.h"

enum { ROWS = 16 }; /* of one task */

static int experts_of(const struct model *m)
{
    return (int)m->config.experts;
}

/* What the router scores: the experts, then the no-ops. */
static int choices_of(const struct model *m)
{
    return (int)model_config_choices(&m->config);
}

static int used_of(const struct model *m)
{
    return (int)m->config.experts_used;
}

static real *grad_of(const struct model *m, int i)
{
    return i < 0 ? NULL : m->params.p[i].grad;
}

void moe_expert(const struct model *m, const struct block_params *b, int i, int at[3])
{
    int has_gate = model_config_gated(&m->config), first = b->expert + i * (2 + has_gate);
    at[0] = has_gate ? first : -1;
    at[1] = first + has_gate;
    at[2] = first + has_gate + 1;
}

int moe_is_router(const struct model *m, int i)
{
    if (experts_of(m) == 0)
        return 0;
    for (int l = 0; l < model_config_depth(&m->config); l++)
        if (m->block[l].router == i || m->block[l].shared_gate == i)
            return 1;
    return 0;
}

/* A router or gate: few rows, fp32 whatever the matrices are. */
static struct linear router_of(const struct model *m, int i, int bias)
{
    const struct param *p = &m->params.p[i];
    return (struct linear){.C = p->shape[1],
                           .O = p->shape[0],
                           .format = GEMM_FP32,
                           .w = p->value,
                           .b = bias < 0 ? NULL : m->params.p[bias].value};
}

/* Slots [start, ...) of an expert: its n rows of `in`, and where its values are. */
static struct ffn expert_of(const struct model *m, int l, int i, const real *in,
                            const struct moe_work *rows, const struct moe_work *w)
{
    int at[3], s = rows->start[i];
    size_t from = (size_t)s * (size_t)m->config.expert_ffn;
    moe_expert(m, &m->block[l], i, at);
    return (struct ffn){.gate = at[0],
                        .up = at[1],
                        .down = at[2],
                        .gate_b = -1,
                        .up_b = -1,
                        .down_b = -1,
                        .F = (int)m->config.expert_ffn,
                        .in = in,
                        .row = rows->row + s,
                        .a = w->a ? w->a + from : NULL,
                        .b = w->b + from,
                        .hid = w->hid + from};
}

/* ---- 1, 2: choice ---- */

struct choice {
    struct model *m;
    int l;
    const struct plan *p;
    struct moe_work *w;
};

/* Of the pass: the first of a row's k places. */
static size_t place_of(const struct model *m, int l, int row)
{
    return ((size_t)l * (size_t)m->R + (size_t)row) * (size_t)m->config.experts_used;
}

/* The k largest logits, ascending by expert; of equal ones the lowest.  NaN is below all others.
 * forced >= 0 is one of them in any case. */
static void choose(const real *x, int E, int k, int forced, int32_t *to)
{
    to[0] = forced;
    for (int n = forced >= 0; n < k; n++) {
        int best = -1, at = n;
        for (int i = 0, j = 0; i < E; i++) {
            if (j < n && to[j] == i)
                j++;
            else if (best < 0 || x[i] > x[best] || (x[best] != x[best] && x[i] == x[i]))
                best = i;
        }
        for (; at > 0 && to[at - 1] > best; at--)
            to[at] = to[at - 1];
        to[at] = best;
    }
}

static int forced_at(const struct model *m, int l, int row)
{
    const int16_t *x = m->route.pass.inference.force_expert;
    return x ? x[(size_t)l * (size_t)m->R + (size_t)row] : -1;
}

static void score_row(real *x, int E, int kind)
{
    double sum = 0;
    real max = x[0];
    for (int i = 1; i < E; i++)
        max = x[i] > max ? x[i] : max;
    for (int i = 0; i < E; i++) {
        x[i] = kind == EXPERTS_SIGMOID ? 1 / (1 + (real)exp(-(double)x[i]))
                                       : (real)exp((double)(x[i] - max));
        sum += (double)x[i];
    }
    for (int i = 0; kind == EXPERTS_SOFTMAX && i < E; i++)
        x[i] = (real)((double)x[i] / sum);
}

static void choose_rows(void *ctx, int task, int worker)
{
    const struct choice *c = ctx;
    const struct model *m = c->m;
    int E = choices_of(m), k = used_of(m);
    int end = (task + 1) * ROWS < c->p->n ? (task + 1) * ROWS : c->p->n;
    (void)worker;
    for (int i = task * ROWS; i < end; i++) {
        real *x = c->w->score + (size_t)i * (size_t)E,
             *weight = c->w->weight + (size_t)i * (size_t)k;
        int32_t *to = c->w->expert + (size_t)i * (size_t)k,
                *kept = m->experts.chosen + place_of(m, c->l, c->p->row[i]);
        double sum = 0;
        if (m->route.frozen && kept[0] >= 0)
            memcpy(to, kept, (size_t)k * sizeof *to);
        else
            choose(x, E, k, forced_at(m, c->l, c->p->row[i]), to);
        memcpy(kept, to, (size_t)k * sizeof *to);
        score_row(x, E, m->config.experts_score);
        for (int j = 0; j < k; j++)
            sum += (double)x[to[j]];
        for (int j = 0; j < k; j++)
            weight[j] = m->config.experts_norm ? (real)((double)x[to[j]] / sum) : x[to[j]];
        memcpy(m->experts.weight + place_of(m, c->l, c->p->row[i]), weight,
               (size_t)k * sizeof *weight);
    }
}

/* Row lists of the experts, ascending. */
static void list_rows(struct moe_work *w, int N, int E, int k)
{
    memset(w->start, 0, (size_t)(E + 1) * sizeof *w->start);
    for (int s = 0; s < N * k; s++)
        w->start[w->expert[s]]++;
    for (int i = 0, at = 0; i <= E; i++) { /* its end for now: filled from the last row on */
        at += i < E ? w->start[i] : 0;
        w->start[i] = at;
    }
    for (int s = N * k - 1; s >= 0; s--) {
        w->slot[s] = --w->start[w->expert[s]];
        w->row[w->slot[s]] = s / k;
    }
}

/* ---- 3: experts ---- */

static void experts_fwd(const struct model *m, int l, const struct block_work *w)
{
    const struct moe_work *x = &w->moe;
    struct ffn expert[FFN_MANY];
    int N[FFN_MANY], n = 0, E = experts_of(m);
    real *y[FFN_MANY];
    for (int i = 0; i < E; i++) {
        if (x->start[i + 1] > x->start[i]) {
            expert[n] = expert_of(m, l, i, w->un, x, x);
            N[n] = x->start[i + 1] - x->start[i];
            y[n++] = x->y + (size_t)x->start[i] * (size_t)m->config.dim;
        }
        if (n == FFN_MANY || (i == E - 1 && n > 0)) {
            ffn_fwd_many(m, expert, N, y, 0, n);
            n = 0;
        }
    }
}

/* ---- 4: weighted sum ---- */

struct sum {
    const struct model *m;
    const struct moe_work *w;
    real *f;
    const real *x; /* (S,C) */
    real beta;
    int N, is_weighted;
};

/* f (+)= sum over the row's slots, in the order of the experts; no-ops add nothing. */
static void sum_rows(void *ctx, int task, int worker)
{
    const struct sum *t = ctx;
    int k = used_of(t->m), end = (task + 1) * ROWS < t->N ? (task + 1) * ROWS : t->N;
    size_t C = (size_t)t->m->config.dim;
    (void)worker;
    for (int i = task * ROWS; i < end; i++) {
        real *f = t->f + (size_t)i * C;
        for (size_t c = 0; t->beta == 0 && c < C; c++)
            f[c] = 0;
        for (int j = 0; j < k; j++) {
            size_t s = (size_t)i * (size_t)k + (size_t)j;
            if (t->w->expert[s] >= experts_of(t->m))
                break;
            const real *x = t->x + (size_t)t->w->slot[s] * C;
            real weight = t->is_weighted ? t->w->weight[s] : 1;
            for (size_t c = 0; c < C; c++)
                f[c] += weight * x[c];
        }
    }
}

static void sum_slots(const struct model *m, const struct moe_work *w, int N, const real *x,
                      int is_weighted, real *f, real beta)
{
    struct sum t = {m, w, f, x, beta, N, is_weighted};
    pool_run((N + ROWS - 1) / ROWS, sum_rows, &t);
}

/* ---- 5: shared expert ---- */

static void shared_fwd(const struct model *m, int l, int N, struct block_work *w, real *f)
{
    const struct block_params *b = &m->block[l];
    struct ffn x = block_ffn(m, l, w);
    struct moe_work *s = &w->moe;
    size_t C = (size_t)m->config.dim;
    if (b->shared_gate < 0) {
        ffn_fwd(m, &x, N, f, 1);
        return;
    }
    struct linear gate = router_of(m, b->shared_gate, -1);
    ffn_fwd(m, &x, N, s->shared, 0);
    linear_fwd(s->shared_gate, w->un, &gate, N, 0, NULL);
    for (int i = 0; i < N; i++) {
        s->shared_gate[i] = 1 / (1 + (real)exp(-(double)s->shared_gate[i]));
        for (size_t c = 0; c < C; c++)
            f[(size_t)i * C + c] += s->shared_gate[i] * s->shared[(size_t)i * C + c];
    }
}

static void shared_bwd(const struct model *m, int l, int N, struct block_work *d,
                       const struct block_work *w, const real *df)
{
    const struct block_params *b = &m->block[l];
    struct ffn x = block_ffn(m, l, w), dx = block_ffn(m, l, d);
    const struct moe_work *s = &w->moe;
    size_t C = (size_t)m->config.dim;
    if (b->shared_gate < 0) {
        ffn_bwd(m, &x, &dx, N, df, d->un, 1);
        return;
    }
    for (int i = 0; i < N; i++) {
        double dot = 0, g = (double)s->shared_gate[i];
        for (size_t c = 0; c < C; c++) {
            size_t at = (size_t)i * C + c;
            dot += (double)df[at] * (double)s->shared[at];
            d->moe.shared[at] = s->shared_gate[i] * df[at];
        }
        d->moe.shared_gate[i] = (real)(dot * g * (1 - g));
    }
    ffn_bwd(m, &x, &dx, N, d->moe.shared, d->un, 1);
    struct linear gate = router_of(m, b->shared_gate, -1);
    struct linear_rows un = linear_rows(gate.format, w->un, NULL, N, (int)C);
    linear_bwd_w(grad_of(m, b->shared_gate), NULL, d->moe.shared_gate, &un, &gate);
    linear_bwd_x(d->un, d->moe.shared_gate, &gate, N, 1, NULL);
}

/* ---- forward ---- */

void moe_fwd(struct model *m, int l, const struct plan *p, struct block_work *w, real *f, real beta)
{
    const struct block_params *b = &m->block[l];
    struct moe_work *x = &w->moe;
    struct linear router = router_of(m, b->router, b->router_b);
    struct choice c = {m, l, p, x};
    int N = p->n;
    linear_fwd(x->score, w->un, &router, N, 0, NULL); /* 1 */
    pool_run((N + ROWS - 1) / ROWS, choose_rows, &c); /* 2 */
    list_rows(x, N, choices_of(m), used_of(m));
    experts_fwd(m, l, w);                 /* 3 */
    sum_slots(m, x, N, x->y, 1, f, beta); /* 4 */
    if (m->config.shared_ffn > 0)
        shared_fwd(m, l, N, w, f); /* 5 */
}

/* ---- backward ---- */

struct back {
    const struct model *m;
    int l;
    const struct plan *p;
    struct block_work *d;
    const struct block_work *w;
    const real *df;        /* (N,C) */
    const double *balance; /* (E) d loss / d score of every row that ran; NULL: no such loss */
};

/* d loss / d logits from dscore (E), in place: dweight of the chosen is there already. */
static void score_bwd(real *dx, const real *x, int E, int kind)
{
    double dot = 0;
    for (int i = 0; i < E && kind == EXPERTS_SOFTMAX; i++)
        dot += (double)x[i] * (double)dx[i];
    for (int i = 0; i < E; i++) {
        double s = (double)x[i];
        dx[i] = (real)(kind == EXPERTS_SOFTMAX ? s * ((double)dx[i] - dot)
                                               : s * (1 - s) * (double)dx[i]);
    }
}

/* 4 to 1 of some rows: d->moe.y, the gradient of each slot's output; d->moe.score of the logits. */
static void back_rows(void *ctx, int task, int worker)
{
    const struct back *t = ctx;
    const struct model *m = t->m;
    const struct moe_work *w = &t->w->moe;
    int E = choices_of(m), k = used_of(m), N = t->p->n;
    int end = (task + 1) * ROWS < N ? (task + 1) * ROWS : N;
    size_t C = (size_t)m->config.dim;
    (void)worker;
    for (int i = task * ROWS; i < end; i++) {
        const real *df = t->df + (size_t)i * C, *x = w->score + (size_t)i * (size_t)E;
        real *dx = t->d->moe.score + (size_t)i * (size_t)E;
        double mean = 0, sum = 0;
        for (int e = 0; e < E; e++)
            dx[e] = t->balance && t->p->gate[i] != 0 ? (real)t->balance[e] : 0;
        for (int j = 0; j < k; j++) {
            size_t s = (size_t)i * (size_t)k + (size_t)j, at = (size_t)w->slot[s] * C;
            double dot = 0;
            for (size_t c = 0; w->expert[s] < experts_of(m) && c < C; c++) {
                dot += (double)df[c] * (double)w->y[at + c];
                t->d->moe.y[at + c] = w->weight[s] * df[c];
            }
            t->d->moe.weight[s] = (real)dot;
            mean += (double)w->weight[s] * dot;
            sum += (double)x[w->expert[s]];
        }
        for (int j = 0; j < k; j++) {
            size_t s = (size_t)i * (size_t)k + (size_t)j;
            double dw = (double)t->d->moe.weight[s];
            dx[w->expert[s]] += (real)(m->config.experts_norm ? (dw - mean) / sum : dw);
        }
        score_bwd(dx, x, E, m->config.experts_score);
    }
}

void moe_bwd(struct model *m, int l, const struct plan *p, struct block_work *d,
             const struct block_work *w, const real *df)
{
    const struct block_params *b = &m->block[l];
    const struct moe_work *x = &w->moe;
    int N = p->n, C = (int)m->config.dim;
    size_t at = (size_t)l * (size_t)choices_of(m);
    struct back t = {m, l, p, d, w, df, m->config.experts_aux > 0 ? m->experts.balance + at : NULL};
    pool_run((N + ROWS - 1) / ROWS, back_rows, &t); /* 4, 2 */
    for (int i = 0; i < experts_of(m); i++) {       /* 3 */
        struct ffn expert = expert_of(m, l, i, w->un, x, x);
        struct ffn dexpert = expert_of(m, l, i, NULL, x, &d->moe);
        int n = x->start[i + 1] - x->start[i];
        real *dy = d->moe.y + (size_t)x->start[i] * (size_t)C;
        if (n > 0)
            ffn_bwd(m, &expert, &dexpert, n, dy, dy, 0);
    }
    struct linear router = router_of(m, b->router, b->router_b);
    struct linear_rows un = linear_rows(router.format, w->un, NULL, N, C);
    linear_bwd_w(grad_of(m, b->router), grad_of(m, b->router_b), d->moe.score, &un,
                 &router); /* 1 */
    linear_bwd_x(d->un, d->moe.score, &router, N, 0, NULL);
    sum_slots(m, x, N, d->moe.y, 0, d->un, 1);
    if (m->config.shared_ffn > 0)
        shared_bwd(m, l, N, d, w, df); /* 5 */
}

/* ---- the pass ---- */

void moe_begin(struct model *m)
{
    struct model_experts *x = &m->experts;
    size_t L = (size_t)model_config_depth(&m->config), E = (size_t)choices_of(m);
    if (E == 0)
        return;
    x->noops = 0;
    memset(x->load, 0, L * E * sizeof *x->load);
    memset(x->score, 0, L * E * sizeof *x->score);
    memset(x->balance, 0, L * E * sizeof *x->balance);
    int repeats = m->route.frozen && x->has_chosen;
    for (size_t i = 0; !repeats && i < L * (size_t)m->R * (size_t)used_of(m); i++)
        x->chosen[i] = -1;
    x->has_chosen = 1;
}

void moe_note(struct model *m, int l, const struct plan *p, const struct block_work *w)
{
    size_t E = (size_t)choices_of(m), k = (size_t)m->config.experts_used;
    if (m->block[l].router < 0)
        return;
    for (size_t i = 0; i < (size_t)p->n; i++) {
        int noops = 0;
        for (size_t j = 0; j < k; j++)
            noops += w->moe.expert[i * k + j] >= experts_of(m);
        m->experts.noops += noops;
        if (p->gate[i] == 0)
            continue;
        flops_noops(&m->flops, l, p->row[i], noops);
        for (size_t j = 0; j < k; j++)
            m->experts.load[(size_t)l * E + (size_t)w->moe.expert[i * k + j]] += 1;
        for (size_t e = 0; e < E; e++)
            m->experts.score[(size_t)l * E + e] += (double)w->moe.score[i * E + e];
    }
}

/* The inverse of a choice's share: the loss is least where loads and scores have these shares. */
static double inverse_share(const struct model *m, int e)
{
    double share = m->config.noop_share;
    if (share == 0)
        return choices_of(m);
    return e < experts_of(m) ? experts_of(m) / (1 - share) : (double)m->config.experts_noop / share;
}

/* Layers that are balanced together. */
static int together(const struct model *m)
{
    return m->config.experts_balance == EXPERTS_BALANCE_LAYER ? 1 : model_config_depth(&m->config);
}

/* The rows that ran in the layers from l on that are balanced with it. */
static double rows_from(const struct model *m, int l)
{
    size_t E = (size_t)choices_of(m), from = (size_t)l * E, n = (size_t)together(m) * E;
    double choices = 0;
    for (size_t i = from; i < from + n; i++)
        choices += m->experts.load[i];
    return choices / used_of(m);
}

/* Groups of layers in which a row ran. */
static int groups_run(const struct model *m)
{
    int n = 0;
    for (int l = 0; l < model_config_depth(&m->config); l += together(m))
        n += rows_from(m, l) > 0;
    return n;
}

static double sum_from(const struct model *m, const double *x, int l, int e)
{
    double sum = 0;
    for (int i = l; i < l + together(m); i++)
        sum += x[(size_t)i * (size_t)choices_of(m) + (size_t)e];
    return sum;
}

double moe_balance(const struct model *m)
{
    int groups = groups_run(m);
    double sum = 0;
    for (int l = 0; l < model_config_depth(&m->config); l += together(m)) {
        double rows = rows_from(m, l);
        for (int e = 0; rows > 0 && e < choices_of(m); e++)
            sum += inverse_share(m, e) * (sum_from(m, m->experts.load, l, e) / rows) *
                   (sum_from(m, m->experts.score, l, e) / rows);
    }
    return groups > 0 ? sum / groups : 0;
}

double moe_balance_begin(struct model *m)
{
    if (m->config.experts == 0 || m->config.experts_aux <= 0)
        return 0;
    int groups = groups_run(m);
    for (int l = 0; l < model_config_depth(&m->config); l++) {
        int first = l / together(m) * together(m);
        double rows = rows_from(m, first),
               *to = m->experts.balance + (size_t)l * (size_t)choices_of(m);
        for (int e = 0; e < choices_of(m); e++)
            to[e] = rows > 0 ? m->config.experts_aux * inverse_share(m, e) *
                                   sum_from(m, m->experts.load, first, e) / (rows * rows * groups)
                             : 0;
    }
    return m->config.experts_aux * moe_balance(m);
}

/* ---- memory ---- */

void moe_layout(struct model *m, struct arena *a, size_t R)
{
    size_t L = (size_t)model_config_depth(&m->config), E = (size_t)choices_of(m);
    struct model_experts *x = &m->experts;
    if (E == 0)
        return;
    x->chosen = arena_alloc(a, L * R * (size_t)m->config.experts_used, sizeof *x->chosen);
    x->weight = arena_alloc(a, L * R * (size_t)m->config.experts_used, sizeof *x->weight);
    x->load = arena_alloc(a, L * E, sizeof *x->load);
    x->score = arena_alloc(a, L * E, sizeof *x->score);
    x->balance = arena_alloc(a, L * E, sizeof *x->balance);
    x->has_chosen = 0;
}

static real *reals(struct arena *a, size_t n, size_t m)
{
    return arena_alloc(a, n * m, sizeof(real));
}

void moe_work_alloc(struct moe_work *w, struct arena *a, const struct model_config *c, int R)
{
    size_t N = (size_t)R, E = (size_t)model_config_choices(c), k = (size_t)c->experts_used,
           C = (size_t)c->dim, S = N * k, F = (size_t)c->expert_ffn;
    *w = (struct moe_work){0};
    if (c->experts == 0)
        return;
    w->score = reals(a, N, E);
    w->weight = reals(a, N, k);
    w->expert = arena_alloc(a, S, sizeof *w->expert);
    w->slot = arena_alloc(a, S, sizeof *w->slot);
    w->row = arena_alloc(a, S, sizeof *w->row);
    w->start = arena_alloc(a, E + 1, sizeof *w->start);
    w->a = model_config_gated(c) ? reals(a, S, F) : NULL;
    w->b = reals(a, S, F);
    w->hid = reals(a, S, F);
    w->y = reals(a, S, C);
    w->shared = c->shared_gate ? reals(a, N, C) : NULL;
    w->shared_gate = c->shared_gate ? reals(a, N, 1) : NULL;
}

int moe_check_routers(const struct model *m, struct err *e)
{
    for (int l = 0; m->config.experts > 0 && l < model_config_depth(&m->config); l++) {
        if (m->block[l].router < 0)
            continue;
        const struct param *p = &m->params.p[m->block[l].router];
        for (size_t i = 0; i < p->n; i++)
            if (!(p->value[i] - p->value[i] == 0))
                return err_set(e, DS_EFORMAT,
                               "tensor %s: non-finite value at [%zu,%zu]: a router must be finite",
                               p->name, i / (size_t)p->shape[1], i % (size_t)p->shape[1]);
    }
    return 0;
}
