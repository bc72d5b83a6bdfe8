/* What a block needs before it is executed: parameters, buffers, and each query's key range. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "models/moe.h"

static int add(struct params *ps, int l, const char *name, int64_t rows, int64_t cols,
               enum param_group group, enum param_init init, double scale)
{
    char full[96];
    snprintf(full, sizeof full, "model.layers.%d.%s", l, name);
    return params_add(ps, full, (int)rows, (int)cols, group, init, scale);
}

/* With an offset of 1 the weight begins at 0. */
static int add_norm(struct params *ps, const struct model_config *c, int l, const char *name,
                    int64_t width, int wanted)
{
    return wanted
               ? add(ps, l, name, width, 0, PARAM_PLAIN, c->norm_offset ? INIT_ZERO : INIT_ONE, 0)
               : -1;
}

static int add_bias(struct params *ps, int l, const char *name, int64_t rows, int wanted)
{
    return wanted ? add(ps, l, name, rows, 0, PARAM_PLAIN, INIT_ZERO, 0) : -1;
}

/* Adds the matrices of one MLP; at: gate (-1: none), up, down. */
static void add_mlp(struct params *ps, int l, const struct model_config *c, const char *where,
                    int64_t F, double out_std, int at[3])
{
    static const char *const part[3] = {"gate", "up", "down"};
    char name[64];
    for (int i = 0; i < 3; i++) {
        int is_down = i == 2;
        snprintf(name, sizeof name, "%s.%s_proj.weight", where, part[i]);
        at[i] = i == 0 && !model_config_gated(c)
                    ? -1
                    : add(ps, l, name, is_down ? c->dim : F, is_down ? F : c->dim, PARAM_MATRIX,
                          INIT_NORMAL, is_down ? out_std : c->init_std);
    }
}

/* The experts' matrices are consecutive: moe_expert.  Returns the parameters that it adds. */
static int64_t add_experts(struct block_params *b, struct params *ps, const struct model_config *c,
                           int l, double out_std)
{
    int at[3] = {-1, -1, -1};
    char where[48];
    int64_t choices = model_config_choices(c);
    b->router =
        add(ps, l, "mlp.gate.weight", choices, c->dim, PARAM_MATRIX, INIT_NORMAL, c->init_std);
    b->router_b = add_bias(ps, l, "mlp.gate.bias", choices, c->experts_bias);
    b->expert = ps->n;
    for (int64_t i = 0; i < c->experts; i++) {
        snprintf(where, sizeof where, "mlp.experts.%lld", (long long)i);
        add_mlp(ps, l, c, where, c->expert_ffn, out_std, at);
    }
    at[0] = at[1] = at[2] = -1;
    if (c->shared_ffn > 0)
        add_mlp(ps, l, c, "mlp.shared_expert", c->shared_ffn, out_std, at);
    b->gate = at[0];
    b->up = at[1];
    b->down = at[2];
    b->gate_b = b->up_b = b->down_b = -1;
    b->shared_gate = c->shared_gate ? add(ps, l, "mlp.shared_expert_gate.weight", 1, c->dim,
                                          PARAM_MATRIX, INIT_NORMAL, c->init_std)
                                    : -1;
    return 1 + c->experts_bias + c->shared_gate +
           (2 + model_config_gated(c)) * (c->experts + (c->shared_ffn > 0));
}

static int64_t add_dense(struct block_params *b, struct params *ps, const struct model_config *c,
                         int l, double out_std)
{
    int at[3], has_gate = model_config_gated(c);
    add_mlp(ps, l, c, "mlp", c->ffn, out_std, at);
    b->gate = at[0];
    b->up = at[1];
    b->down = at[2];
    b->gate_b = add_bias(ps, l, "mlp.gate_proj.bias", c->ffn, c->mlp_bias && has_gate);
    b->up_b = add_bias(ps, l, "mlp.up_proj.bias", c->ffn, c->mlp_bias);
    b->down_b = add_bias(ps, l, "mlp.down_proj.bias", c->dim, c->mlp_bias);
    b->router = b->router_b = b->expert = b->shared_gate = -1;
    return (2 + has_gate) * (1 + c->mlp_bias);
}

int block_params_add(struct block_params *b, struct params *ps, const struct model_config *c, int l,
                     struct err *e)
{
    int64_t C = c->dim, HD = c->heads * c->head_dim, KD = c->kv_heads * c->head_dim;
    double std = c->init_std,
           out_std = c->depth_init ? std / sqrt(2.0 * model_config_depth(c)) : std;
    int layer = c->norm == NORM_LAYER, first = ps->n;
    int before = c->norm_place != NORM_AFTER, after = c->norm_place != NORM_BEFORE;
    int is_shared = c->parallel == PARALLEL_SHARED, second = before && !is_shared;
    b->window = (int)model_config_window(c, l);
    b->rope = (c->position != POS_ROPE && c->position != POS_ROPE_INTERLEAVED) ||
                      model_config_has(c->nope_layers, l)
                  ? BLOCK_NO_ROPE
              : b->window && c->rope_local > 0 ? BLOCK_ROPE_LOCAL
                                               : BLOCK_ROPE;
    b->norm1 = add_norm(ps, c, l, "input_layernorm.weight", C, before);
    b->norm1_b = add_bias(ps, l, "input_layernorm.bias", C, layer);
    b->q = add(ps, l, "self_attn.q_proj.weight", HD, C, PARAM_MATRIX, INIT_NORMAL, std);
    b->k = add(ps, l, "self_attn.k_proj.weight", KD, C, PARAM_MATRIX, INIT_NORMAL, std);
    b->v = add(ps, l, "self_attn.v_proj.weight", KD, C, PARAM_MATRIX, INIT_NORMAL, std);
    b->o = add(ps, l, "self_attn.o_proj.weight", C, HD, PARAM_MATRIX, INIT_NORMAL, out_std);
    b->q_b = add_bias(ps, l, "self_attn.q_proj.bias", HD, c->attn_bias);
    b->k_b = add_bias(ps, l, "self_attn.k_proj.bias", KD, c->attn_bias);
    b->v_b = add_bias(ps, l, "self_attn.v_proj.bias", KD, c->attn_bias);
    b->o_b = add_bias(ps, l, "self_attn.o_proj.bias", C, c->attn_bias == ATTN_BIAS_ALL);
    int q_norm = c->qk_norm == QK_NORM_NONE   ? 0
                 : c->qk_norm == QK_NORM_HEAD ? (int)c->head_dim
                                              : -1;
    b->q_norm =
        add_norm(ps, c, l, "self_attn.q_norm.weight", q_norm < 0 ? HD : q_norm, q_norm != 0);
    b->k_norm =
        add_norm(ps, c, l, "self_attn.k_norm.weight", q_norm < 0 ? KD : q_norm, q_norm != 0);
    b->out1 = add_norm(ps, c, l, "attention_output_layernorm.weight", C, after);
    b->norm2 =
        is_shared ? b->norm1 : add_norm(ps, c, l, "post_attention_layernorm.weight", C, second);
    b->norm2_b =
        is_shared ? b->norm1_b : add_bias(ps, l, "post_attention_layernorm.bias", C, layer);
    int64_t mlp = (model_config_has_experts(c, l) ? add_experts : add_dense)(b, ps, c, l, out_std);
    b->out2 = add_norm(ps, c, l, "mlp_output_layernorm.weight", C, after);
    int biases = c->attn_bias == ATTN_BIAS_NONE ? 0 : c->attn_bias == ATTN_BIAS_ALL ? 4 : 3;
    /* a failed row leaves the table short */
    int64_t want = 4 + mlp + (2 - is_shared) * layer + before + second + 2 * after +
                   2 * (q_norm != 0) + biases;
    if (ps->n - first != want)
        return err_set(e, DS_EMEM, "out of memory for the parameters of layer %d", l);
    return 0;
}

static real *reals(struct arena *a, int64_t n, int64_t m)
{
    return arena_alloc(a, (size_t)n * (size_t)m, sizeof(real));
}

void block_work_alloc(struct block_work *w, struct arena *a, const struct model_config *c, int R,
                      int split)
{
    int64_t C = c->dim, HD = c->heads * c->head_dim, KD = c->kv_heads * c->head_dim,
            F = c->experts > 0 ? c->shared_ffn : c->ffn;
    if (c->experts > 0 && c->dense_layers && c->dense_layers[0] && c->ffn > F)
        F = c->ffn;
    w->gathered = reals(a, R, C);
    w->xn = reals(a, R, C);
    w->rstd1 = reals(a, R, 1);
    w->mean1 = reals(a, R, 1);
    int enters = c->loop > 1 && (c->loop_norm || c->loop_inject != LOOP_INJECT_NONE);
    w->in = enters ? reals(a, R, C) : NULL;
    w->rstd0 = enters ? reals(a, R, 1) : NULL;
    w->mean0 = enters ? reals(a, R, 1) : NULL;
    int qk = c->qk_norm != QK_NORM_NONE, each = c->qk_norm == QK_NORM_HEAD,
        after = c->norm_place != NORM_BEFORE;
    w->q_in = qk ? reals(a, R, HD) : NULL;
    w->k_in = qk ? reals(a, R, KD) : NULL;
    w->rstd_q = qk ? reals(a, R, each ? c->heads : 1) : NULL;
    w->rstd_k = qk ? reals(a, R, each ? c->kv_heads : 1) : NULL;
    w->f_in = after ? reals(a, R, C) : NULL;
    w->g_in = after ? reals(a, R, C) : NULL;
    w->g_out = after && !split ? reals(a, R, C) : NULL;
    w->rstd_f = after ? reals(a, R, 1) : NULL;
    w->rstd_g = after ? reals(a, R, 1) : NULL;
    w->q = reals(a, R, HD);
    w->k = reals(a, R, KD);
    w->v = reals(a, R, KD);
    w->att = reals(a, R, HD);
    w->lse = reals(a, R, c->heads);
    w->u = reals(a, R, C);
    w->un = reals(a, R, C);
    w->rstd2 = reals(a, R, 1);
    w->mean2 = reals(a, R, 1);
    w->a = model_config_gated(c) ? reals(a, R, F) : NULL;
    w->b = reals(a, R, F);
    w->hid = reals(a, R, F);
    moe_work_alloc(&w->moe, a, c, R);
    w->f = reals(a, R, C);
    w->mid = split ? reals(a, R, C) : NULL;
    w->g = split ? reals(a, R, C) : NULL;
    w->x = w->gathered;
    w->xq = NULL;
}

/* First new key of each query's document and the first one after it.  Rows and keys ascend, so both
 * ends only move forward. */
static void ranges_fill(struct model *m, const struct plan *p, const int32_t *krow, int window)
{
    struct block_ranges *g = &m->ranges;
    int lo = 0, hi = 0, own = 0;
    for (int i = 0; i < p->n; i++) {
        int row = p->row[i], span = m->private_row ? m->private_row[row] : -1;
        int least = m->first_row[row]; /* without private spans positions are distances of rows */
        if (window > 0 && row - window >= least)
            least = row - window + 1;
        while (lo < g->new_keys && (krow ? krow[lo] : lo) < least)
            lo++;
        while (hi < g->new_keys && (krow ? krow[hi] : hi) <= row)
            hi++;
        g->lo[i] = lo;
        g->hi[i] = hi;
        g->self[i] = hi - 1; /* the row itself is always among the keys */
        while (own < g->new_keys && (krow ? krow[own] : own) < (span < 0 ? row : span))
            own++;
        g->own_store[i] = own;
        g->qpos[i] = m->pos[row];
    }
}

static void segments_fill(struct model *m, const struct plan *p, const int32_t *krow)
{
    struct block_ranges *g = &m->ranges;
    int q = 0, k = 0;
    for (int s = 0; s <= m->B; s++) {
        while (q < p->n && p->row[q] < s * m->T)
            q++;
        while (k < g->new_keys && (krow ? krow[k] : k) < s * m->T)
            k++;
        g->seg_q[s] = q;
        g->seg_k[s] = k;
    }
}

/* Keys of a cached layer before position `least`, which ascend. */
static int keys_before(const struct kv_layer *y, int n, int least)
{
    int from = 0, to = n;
    while (from < to) {
        int at = (from + to) / 2;
        if (y->pos[at] < least)
            from = at + 1;
        else
            to = at;
    }
    return from;
}

/* Every sequence has its own list of keys and sees all that precede it, or the window's. */
static void ranges_to_caches(struct model *m, int l, struct kv_cache *const *cache)
{
    struct block_ranges *g = &m->ranges;
    int window = m->block[l].window;
    for (int s = 0; s < m->B; s++)
        for (int i = g->seg_q[s]; i < g->seg_q[s + 1]; i++) {
            int by = g->cached[s] - g->seg_k[s], least = g->qpos[i] - window + 1;
            /* lo so far skips new keys; those of the cache come before them */
            int skips_new = window > 0 && g->lo[i] > g->seg_k[s];
            g->lo[i] = skips_new    ? g->lo[i] + by
                       : window > 0 ? keys_before(&cache[s]->layer[l], g->cached[s], least)
                                    : 0;
            g->hi[i] += by;
            g->self[i] += by;
        }
}

const int32_t *block_cached(struct model *m, int l, struct kv_cache *const *cache)
{
    for (int s = 0; cache && s < m->B; s++)
        m->ranges.cached[s] = cache[s]->layer[l].n;
    return cache ? m->ranges.cached : NULL;
}

const int32_t *block_passed(struct model *m, int l, struct kv_cache *const *cache)
{
    struct block_ranges *g = &m->ranges;
    int window = m->block[l].window;
    if (!cache || window == 0)
        return NULL;
    for (int i = 0; i < m->R; i++)
        g->passed[i] =
            keys_before(&cache[i / m->T]->layer[l], g->cached[i / m->T], m->pos[i] - window + 1);
    return g->passed;
}

void block_ranges_make(struct model *m, int l, const struct plan *p, struct kv_cache *const *cache)
{
    struct block_ranges *g = &m->ranges;
    const int32_t *krow = p->kv == KV_ALL ? NULL : p->row;
    g->M = g->new_keys = p->kv == KV_ALL ? m->R : p->n;
    for (int j = 0; j < g->new_keys; j++)
        g->kpos[j] = m->pos[krow ? krow[j] : j];
    ranges_fill(m, p, krow, m->block[l].window);
    segments_fill(m, p, krow);
    g->on = NULL;
    g->own = m->private_row ? g->own_store : NULL;
    int has_off = p->kv == KV_PLAN && p->active < p->n;
    BUG_IF(cache && has_off, "the KV cache holds executed rows only");
    if (has_off || m->private_row) {
        g->on = g->on_store;
        for (int j = 0; j < g->new_keys; j++) {
            int is_private = m->private_row && m->private_row[krow ? krow[j] : j] >= 0;
            g->on[j] = has_off && p->gate[j] == 0 ? 0 : 1 + is_private;
        }
    }
    if (cache)
        ranges_to_caches(m, l, cache);
}
