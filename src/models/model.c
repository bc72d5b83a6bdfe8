/* Creates a model, reserves its buffers and runs forward and backward passes. */
#include "models/model.h"

#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "bulk.h"
#include "engine/ops.h"
#include "models/block.h"
#include "models/exits.h"
#include "models/loop.h"
#include "models/moe.h"

static int register_params(struct model *m, struct err *e)
{
    const struct model_config *c = &m->config;
    struct params *ps = &m->params;
    int C = (int)c->dim, V = (int)c->vocab;
    m->embed = params_add(ps, "model.embed_tokens.weight", V, C, PARAM_PLAIN, INIT_NORMAL,
                          c->embed_std > 0 ? c->embed_std : c->init_std);
    m->pos_embed = m->norm_b = m->head = -1;
    if (c->position == POS_LEARNED)
        m->pos_embed = params_add(ps, "model.embed_positions.weight", (int)c->max_seq, C,
                                  PARAM_PLAIN, INIT_NORMAL, c->init_std);
    for (int l = 0; l < c->layers; l++) {
        int rc = block_params_add(&m->block[l], ps, c, l, e);
        if (rc < 0)
            return rc;
    }
    for (int l = model_config_depth(c) - 1; l >= 0; l--) /* a source is never behind its copies */
        m->block[l] = m->block[model_config_block(c, l)];
    enum param_init norm_init = c->norm_offset ? INIT_ZERO : INIT_ONE;
    m->norm = params_add(ps, "model.norm.weight", C, 0, PARAM_PLAIN, norm_init, 0);
    if (c->norm == NORM_LAYER)
        m->norm_b = params_add(ps, "model.norm.bias", C, 0, PARAM_PLAIN, INIT_ZERO, 0);
    m->loop_norm = m->loop_norm_b = -1;
    if (c->loop > 1 && c->loop_norm == LOOP_NORM_FINAL) {
        m->loop_norm = m->norm;
        m->loop_norm_b = m->norm_b;
    } else if (c->loop > 1 && c->loop_norm) {
        m->loop_norm = params_add(ps, "model.loop_norm.weight", C, 0, PARAM_PLAIN, norm_init, 0);
        if (c->norm == NORM_LAYER)
            m->loop_norm_b =
                params_add(ps, "model.loop_norm.bias", C, 0, PARAM_PLAIN, INIT_ZERO, 0);
    }
    if (!c->tied)
        m->head = params_add(ps, "lm_head.weight", (int)model_config_outputs(c, NULL), C,
                             PARAM_MATRIX, INIT_NORMAL, c->init_std);
    m->n_base = ps->n;
    return ps->failed ? err_set(e, DS_EMEM, "parameter table: out of memory") : 0;
}

static void freeze_base(struct model *m)
{
    for (int i = 0; i < m->n_base; i++)
        m->params.p[i].train = adapters_saves(m, i);
}

static int make_route(struct model *m, struct config *route_options, uint64_t seed, struct err *e)
{
    char prefix[40];
    const struct route_ops *ops = route_find(m->config.method);
    struct opt_group g = route_group(ops, prefix);
    struct config none = {0};
    void *opts = mem_alloc(1, ops->opts_size ? ops->opts_size : 1);
    if (!opts)
        return err_set(e, DS_EMEM, "options of %s: out of memory", ops->name);
    int rc = opt_defaults(&g, opts, e);
    if (rc == 0)
        rc = config_apply(route_options ? route_options : &none, &g, opts, e);
    if (rc < 0) {
        opt_release(&g, opts);
        mem_free(opts);
        return rc;
    }
    struct route_loop loop = model_config_loop(&m->config);
    return route_init(&m->route, ops, opts, &m->params, model_config_depth(&m->config),
                      (int)m->config.dim, &loop, seed, e);
}

static int make_rope(struct model *m, struct err *e)
{
    size_t n = (size_t)m->config.rope_dims / 2;
    double *inv_freq = mem_alloc(n + 1, sizeof *inv_freq);
    int rc = inv_freq ? 0 : DS_EMEM;
    for (int local = 1; local >= 0 && rc == 0; local--) {
        m->inv_freq[local] = mem_alloc(n + 1, sizeof(real));
        rc = m->inv_freq[local] ? 0 : DS_EMEM;
        m->rope_scale = (real)model_config_rope(&m->config, local, 0, inv_freq);
        for (size_t i = 0; i < n && rc == 0; i++)
            m->inv_freq[local][i] = (real)inv_freq[i];
    }
    mem_free(inv_freq);
    m->rope_context = model_config_rope_context(&m->config, 0);
    return rc < 0 ? err_set(e, rc, "rotary table: out of memory") : 0;
}

void model_set_context(struct model *m, int64_t context)
{
    double inv_freq[ROPE_PAIRS_MAX];
    int64_t is = model_config_rope_context(&m->config, context);
    if (is == m->rope_context)
        return;
    (void)model_config_rope(&m->config, 0, context, inv_freq);
    for (int64_t i = 0; i < m->config.rope_dims / 2; i++)
        m->inv_freq[0][i] = (real)inv_freq[i];
    m->rope_context = is;
}

/* None when the head has a row for every id. */
static int make_outputs(struct model *m, struct err *e)
{
    m->n_out = (int)model_config_outputs(&m->config, NULL);
    if (m->n_out == m->config.vocab)
        return 0;
    m->out_id = mem_alloc((size_t)m->n_out, sizeof *m->out_id);
    if (!m->out_id)
        return err_set(e, DS_EMEM, "outputs of the head: out of memory");
    model_config_outputs(&m->config, m->out_id);
    return 0;
}

int model_new_table(struct model **out, struct model_config *c, struct config *route_options,
                    uint64_t seed, int train, struct err *e)
{
    int rc = model_config_check(c, e);
    struct model *m = rc < 0 ? NULL : mem_alloc(1, sizeof *m);
    if (rc < 0)
        return rc;
    if (!m)
        return err_set(e, DS_EMEM, "model: out of memory");
    m->config = *c;
    m->shape = model_config_flops(&m->config);
    m->is_training = train == MODEL_TRAIN || train == MODEL_TRAIN_OWN;
    m->stream.lens = model_lens_of(m);
    memset(c, 0, sizeof *c);
    m->block = mem_alloc((size_t)model_config_depth(&m->config), sizeof *m->block);
    m->plan = mem_alloc((size_t)model_config_depth(&m->config), sizeof *m->plan);
    if (route_find(m->config.method)->flags & ROUTE_SPLIT)
        m->ffn = mem_alloc((size_t)model_config_depth(&m->config), sizeof *m->ffn);
    rc = m->block && m->plan && (m->ffn || !(route_find(m->config.method)->flags & ROUTE_SPLIT))
             ? make_rope(m, e)
             : err_set(e, DS_EMEM, "out of memory");
    if (rc == 0)
        rc = make_outputs(m, e);
    if (rc == 0)
        rc = register_params(m, e);
    if (rc == 0)
        rc = adapters_add(m, e);
    if (rc == 0)
        rc = make_route(m, route_options, seed, e);
    if (rc == 0 && m->params.failed)
        rc = err_set(e, DS_EMEM, "parameter table: out of memory");
    if (rc == 0 && train == MODEL_TRAIN_OWN)
        freeze_base(m);
    if (rc < 0) {
        model_free(m);
        return err_add(e, rc, "model");
    }
    *out = m;
    return 0;
}

int model_reserve_values(struct model *m, struct err *e)
{
    int rc = params_reserve_unset(&m->params, m->is_training, e);
    if (rc == 0)
        rc = weights_init(m, e);
    return rc < 0 ? err_add(e, rc, "model") : 0;
}

int model_new(struct model **out, struct model_config *c, struct config *route_options,
              uint64_t seed, int train, struct err *e)
{
    struct model *m = NULL;
    int rc = model_new_table(&m, c, route_options, seed, train, e);
    if (rc < 0)
        return rc;
    rc = params_reserve(&m->params, m->is_training, e);
    if (rc == 0) {
        params_init(&m->params, seed);
        adapters_start(m);
        rc = weights_init(m, e);
    }
    if (rc < 0) {
        model_free(m);
        return err_add(e, rc, "model");
    }
    *out = m;
    return 0;
}

static void release_buffers(struct model *m)
{
    arena_release(&m->stream_arena);
    arena_release(&m->work_arena);
    mem_free(m->work);
    m->work = NULL;
    m->stream.dh = NULL;
    m->keep = m->R_max = 0;
}

void model_free(struct model *m)
{
    if (!m)
        return;
    release_buffers(m);
    route_release(&m->route);
    weights_release(&m->weights);
    stored_free(m);
    params_release(&m->params);
    opt_release(&model_group, &m->config);
    mem_free(m->block);
    mem_free(m->plan);
    mem_free(m->ffn);
    mem_free(m->inv_freq[0]);
    mem_free(m->inv_freq[1]);
    mem_free(m->out_id);
    adapters_release(m);
    mem_free(m);
}

int64_t model_non_embedding(const struct model *m)
{
    const int table[] = {m->embed, m->pos_embed, m->head};
    int64_t n = params_count(&m->params);
    for (size_t i = 0; i < DS_LEN(table); i++)
        n -= table[i] < 0 ? 0 : (int64_t)m->params.p[table[i]].n;
    return n;
}

static real *reals(struct arena *a, size_t n, size_t k)
{
    return arena_alloc(a, n * k, sizeof(real));
}

static int32_t *ints(struct arena *a, size_t n)
{
    return arena_alloc(a, n, sizeof(int32_t));
}

static struct plan layout_plan(struct arena *a, size_t R)
{
    return (struct plan){.row = ints(a, R), .gate = reals(a, R, 1), .weight = reals(a, R, 1)};
}

static void layout_plans(struct model *m, struct arena *a, size_t R, size_t L)
{
    for (size_t l = 0; l < L; l++) {
        m->plan[l] = layout_plan(a, R);
        if (m->ffn)
            m->ffn[l] = layout_plan(a, R);
    }
    struct block_ranges *g = &m->ranges;
    g->lo = ints(a, R);
    g->hi = ints(a, R);
    g->self = ints(a, R);
    g->qpos = ints(a, R);
    g->kpos = ints(a, R);
    g->seg_q = ints(a, R + 1);
    g->seg_k = ints(a, R + 1);
    g->cached = ints(a, R);
    g->passed = ints(a, R);
    g->on_store = arena_alloc(a, R, 1);
    g->own_store = ints(a, R);
}

static void layout_exits(struct exit_values *x, struct arena *a, size_t n)
{
    x->nll = reals(a, n, 1);
    x->doubt = reals(a, n, 1);
    x->entropy = reals(a, n, 1);
    x->kl = reals(a, n, 1);
    x->best = ints(a, n);
}

/* Lays out the stream arena, everything that lives for one step; called once to measure and once to
 * allocate. */
static void layout_stream(struct model *m, struct arena *a, size_t R, int train)
{
    size_t L = (size_t)model_config_depth(&m->config), C = (size_t)m->config.dim,
           V = (size_t)m->config.vocab;
    m->stream.h = arena_alloc(a, L + 1, sizeof(real *));
    m->stream.dh = train ? arena_alloc(a, L + 1, sizeof(real *)) : NULL;
    for (size_t l = 0; l <= L; l++) {
        real *h = reals(a, R, C), *dh = train ? reals(a, R, C) : NULL;
        if (a->measuring)
            continue;
        m->stream.h[l] = h;
        if (train)
            m->stream.dh[l] = dh;
    }
    layout_plans(m, a, R, L);
    loop_layout(m, a, R);
    moe_layout(m, a, R);
    m->pos = ints(a, R);
    m->first_row = ints(a, R);
    m->private_store = ints(a, R);
    m->xf = reals(a, R, C);
    m->dxf = train ? reals(a, R, C) : NULL;
    m->rstdf = reals(a, R, 1);
    m->meanf = reals(a, R, 1);
    size_t chunk = (size_t)head_chunk(m->config.vocab);
    m->logits = reals(a, chunk < R ? chunk : R > 1 ? R : 2, V); /* a lens compares two rows */
    m->capped = train && m->config.logit_cap > 0 ? reals(a, chunk < R ? chunk : R, V) : NULL;
    m->nll = reals(a, R, 1);
    m->is_correct = arena_alloc(a, R, 1);
    m->entropy = reals(a, R, 1);
    m->entropy_rel = reals(a, R, 1);
    m->dgate = reals(a, R, 1);
    if (m->route.wants_exits || m->route.ops->observe)
        layout_exits(&m->exits, a, (L + 1) * R);
    m->flops.part = arena_alloc(a, (L + 1) * FLOPS_PARTS, sizeof(double));
    m->flops.token = arena_alloc(a, R, sizeof(double));
    m->flops.cell = arena_alloc(a, L * R, sizeof(double));
    m->flops.dense_token = arena_alloc(a, R, sizeof(double));
}

static void layout_work(struct model *m, struct arena *a, int R, int train, int keep)
{
    int blocks = train && keep ? model_config_depth(&m->config) : 1;
    for (int l = 0; l < blocks; l++)
        block_work_alloc(&m->work[l], a, &m->config, R, m->ffn != NULL);
    if (train)
        block_work_alloc(&m->dwork, a, &m->config, R, m->ffn != NULL);
}

/* Bytes of the two arenas. */
struct buffer_sizes {
    size_t stream, work;
};

static struct buffer_sizes measure_buffers(struct model *m, int rows, int train, int keep)
{
    struct arena stream, work;
    arena_measure(&stream, "stream");
    layout_stream(m, &stream, (size_t)rows, train);
    arena_measure(&work, "work");
    layout_work(m, &work, rows, train, keep);
    return (struct buffer_sizes){stream.peak, work.peak};
}

int model_reserve(struct model *m, int rows, int train, int keep, struct err *e)
{
    keep = (train && keep) || m->keep;
    train = train || m->stream.dh;
    if (rows <= m->R_max && (!train || m->stream.dh) && keep == m->keep)
        return 0;
    rows = rows > m->R_max ? rows : m->R_max;
    release_buffers(m);
    m->keep = keep;
    m->work = mem_alloc((size_t)model_config_depth(&m->config), sizeof *m->work);
    int rc = m->work ? 0 : err_set(e, DS_EMEM, "out of memory");
    if (rc < 0)
        goto out;
    struct buffer_sizes size = measure_buffers(m, rows, train, keep);
    rc = arena_reserve(&m->stream_arena, "stream", size.stream, e);
    if (rc < 0)
        goto out;
    layout_stream(m, &m->stream_arena, (size_t)rows, train);
    rc = arena_reserve(&m->work_arena, "work", size.work, e);
    if (rc < 0)
        goto out;
    layout_work(m, &m->work_arena, rows, train, keep);
    rc = route_reserve(&m->route, rows, e);
out:
    if (rc < 0) {
        release_buffers(m);
        return err_add(e, rc, "buffers for %d rows", rows);
    }
    m->R_max = rows;
    m->stream.C = (int)m->config.dim;
    m->stream.L = model_config_depth(&m->config);
    return 0;
}

int model_bytes(size_t *bytes, const struct model_config *c, struct config *route_options, int rows,
                int train, int keep, struct err *e)
{
    struct model_config copy = {0};
    struct model *m = NULL;
    struct arena routing;
    int rc = model_config_copy(&copy, c, e);
    if (rc == 0)
        rc = model_new_table(&m, &copy, route_options, 0, MODEL_TRAIN, e);
    if (rc < 0)
        goto out;
    m->work = mem_alloc((size_t)model_config_depth(&m->config), sizeof *m->work);
    rc = m->work ? 0 : err_set(e, DS_EMEM, "out of memory");
    if (rc < 0)
        goto out;
    struct buffer_sizes size = measure_buffers(m, rows, train, keep);
    arena_measure(&routing, "routing");
    route_layout(&m->route, &routing, rows);
    *bytes = size.stream + size.work + routing.peak;
out:
    opt_release(&model_group, &copy);
    model_free(m);
    return rc;
}

/* Rows that no later row sees, other than those of their span, take no position from it. */
static void place_rows(struct model *m, const struct batch *b)
{
    m->private_row = b->private_start ? m->private_store : NULL;
    for (int s = 0, i = 0; s < b->B; s++)
        for (int t = 0, hidden = 0; t < b->T; t++, i++) {
            int start = b->doc_start ? b->doc_start[i] : 0;
            int span = b->private_start ? b->private_start[i] : -1;
            hidden = t == start ? 0 : hidden;
            m->first_row[i] = s * b->T + start;
            m->pos[i] = t - start - hidden + (span >= 0 ? t - span : 0);
            BUG_IF(m->pos_embed >= 0 && m->pos[i] >= m->config.max_seq,
                   "position %d exceeds the table of %d", m->pos[i], (int)m->config.max_seq);
            BUG_IF(span > t || (span >= 0 && span < start),
                   "row %d: private span from %d, document from %d", t, span, start);
            m->private_store[i] = span < 0 ? -1 : s * b->T + span;
            hidden += span >= 0;
        }
}

static double router_flops(const struct model *m, int l)
{
    const struct route *r = &m->route;
    int is_asked = r->ops->flops && r->pass.kind != PASS_DENSE && !route_is_closed(r, l);
    return is_asked ? r->ops->flops(r, l) : 0;
}

/* Counts one span of layer l, whose caches (if any) held `cached` keys before it. */
static void count_layer(struct model *m, int l, const struct plan *p, struct kv_cache *const *cache,
                        const int32_t *cached, double router)
{
    m->flops.window = m->block[l].window;
    m->flops.shape.E = m->block[l].router < 0 ? 0 : (int)model_config_choices(&m->config);
    adapters_layer_flops(m, l, &m->flops.shape);
    m->flops.passed = block_passed(m, l, cache);
    flops_layer(&m->flops, p, m->first_row, cached, router);
}

static void run_block(struct model *m, int l, struct kv_cache *const *cache)
{
    struct plan *p = &m->plan[l];
    route_decide(&m->route, l, ROUTE_SPAN_BLOCK, p, &m->stream);
    loop_settle(m, l, p);
    count_layer(m, l, p, cache, block_cached(m, l, cache), router_flops(m, l));
    block_fwd(m, l, p, &m->work[m->keep ? l : 0], cache);
    moe_note(m, l, p, &m->work[m->keep ? l : 0]);
    loop_note(m, l, p, NULL);
}

static void run_split(struct model *m, int l, struct kv_cache *const *cache)
{
    struct plan *p = &m->plan[l], *f = &m->ffn[l];
    struct block_work *w = &m->work[m->keep ? l : 0];
    route_decide(&m->route, l, ROUTE_SPAN_ATTENTION, p, &m->stream);
    loop_settle(m, l, p);
    const int32_t *cached = block_cached(m, l, cache);
    count_layer(m, l, p, cache, cached, router_flops(m, l));
    attention_half_fwd(m, l, p, w, cache);
    route_decide(&m->route, l, ROUTE_SPAN_FFN, f, &m->stream);
    count_layer(m, l, f, cache, cached, 0);
    ffn_half_fwd(m, l, f, w, 1);
    moe_note(m, l, f, w);
    loop_note(m, l, p, f);
}

struct embed_job {
    struct model *m;
    const int32_t *id;
};

/* Reads a row of an embedding that stays in its file. */
static void embed_stored(void *ctx, int task, int worker)
{
    const struct embed_job *j = ctx;
    struct model *m = j->m;
    size_t C = (size_t)m->config.dim;
    real *x = m->stream.h[0] + (size_t)task * C, scale = (real)m->config.embed_scale;
    (void)worker;
    model_values(m, m->embed, (size_t)j->id[task], 1, x);
    const real *pos =
        m->pos_embed < 0 ? NULL : m->params.p[m->pos_embed].value + (size_t)m->pos[task] * C;
    for (size_t c = 0; c < C; c++)
        x[c] = scale * x[c] + (pos ? pos[c] : 0);
}

static void embed_ids(struct model *m, const int32_t *id)
{
    struct embed_job j = {m, id};
    if (!m->params.p[m->embed].value)
        pool_run(m->R, embed_stored, &j);
    else
        embed_fwd(m->stream.h[0], id, m->pos, m->params.p[m->embed].value,
                  m->pos_embed < 0 ? NULL : m->params.p[m->pos_embed].value,
                  (real)m->config.embed_scale, m->R, (int)m->config.dim);
}

/* A loop ends after the iterations of this step, or at the exit asked for; the blocks behind it
 * always run. */
static void close_layers(const struct model *m, struct pass *pass)
{
    const struct route_loop *x = &m->route.loop;
    int exit = pass->inference.exit, iterations = loop_iterations(m, pass);
    pass->stop = pass->resume = x->end;
    if (iterations < m->config.loop)
        pass->stop = x->start + iterations * x->group;
    if (exit > 0 && exit < pass->stop)
        pass->stop = exit;
}

/* The plan and FLOPs of a layer that all rows went through in earlier passes. */
static void count_earlier(struct model *m, int l, struct kv_cache *const *cache)
{
    struct plan *p = &m->plan[l];
    p->layer = l;
    p->span = ROUTE_SPAN_BLOCK;
    p->kv = KV_ALL;
    p->settled = NULL;
    plan_all(p, m->R);
    for (int s = 0; s < m->B; s++)
        m->ranges.cached[s] = cache[s]->len;
    if (m->ffn) {
        struct plan *f = &m->ffn[l];
        p->span = ROUTE_SPAN_ATTENTION;
        f->layer = l;
        f->span = ROUTE_SPAN_FFN;
        f->kv = KV_ALL;
        plan_all(f, m->R);
        count_layer(m, l, f, cache, m->ranges.cached, 0);
    }
    count_layer(m, l, p, cache, m->ranges.cached, 0);
}

void model_run(struct model *m, const int32_t *id, struct pass *pass, struct kv_cache *const *cache,
               int from)
{
    pass->id = id;
    pass->pos = m->pos;
    pass->private_row = m->private_row;
    close_layers(m, pass);
    m->stream.R = m->R;
    weights_refresh(m);
    adapters_begin(m, pass);
    if (from == 0)
        embed_ids(m, id);
    flops_begin(&m->flops, &m->shape, m->R);
    m->flops.T = m->T;
    m->flops.private_row = m->private_row;
    route_begin(&m->route, pass);
    loop_begin(m);
    moe_begin(m);
    for (int l = 0; l < from; l++)
        count_earlier(m, l, cache);
    for (int l = from; l < model_config_depth(&m->config); l++)
        (m->ffn ? run_split : run_block)(m, l, cache);
    if (m->route.ops->finish && pass->kind != PASS_DENSE && !m->route.frozen)
        m->route.ops->finish(&m->route, &m->stream);
    m->flops.shape = m->shape;
    flops_head(&m->flops);
}

int model_check_exit(const struct model *m, int64_t layers, struct err *e)
{
    int L = model_config_depth(&m->config);
    return layers <= L
               ? 0
               : err_set(e, DS_ERANGE, "exit.layer=%lld: must be at most %d, the model's layers",
                         (long long)layers, L);
}

void model_forward(struct model *m, const struct batch *b, struct pass *pass)
{
    m->B = pass->B = b->B;
    m->T = pass->T = b->T;
    m->R = pass->R = b->B * b->T;
    BUG_IF(m->R > m->R_max, "%d rows exceed buffers for %d", m->R, m->R_max);
    m->batch = b;
    model_set_context(m, b->T);
    place_rows(m, b);
    pass->memory = NULL;
    model_run(m, b->id, pass, NULL, 0);
}

/* Passes the gate gradient of a finished span to the method. */
static void gates_bwd(struct model *m, int l, const struct plan *p, int routed)
{
    const struct route_ops *ops = m->route.ops;
    if (!routed || route_is_closed(&m->route, l))
        return;
    for (int i = 0; i < p->n; i++)
        m->dgate[i] *= p->weight[i];
    if (ops->enter_bwd && p->span != ROUTE_SPAN_FFN)
        ops->enter_bwd(&m->route, l, p, &m->stream);
    if (ops->decide_bwd)
        ops->decide_bwd(&m->route, l, p, m->dgate, &m->stream);
}

static void block_back(struct model *m, int l, int routed)
{
    const struct plan *p = &m->plan[l];
    struct block_work *w = &m->work[m->keep ? l : 0];
    if (!m->keep)
        block_increment(m, l, p, w, NULL);
    block_bwd(m, l, p, w, routed ? m->dgate : NULL);
    gates_bwd(m, l, p, routed);
}

static void split_back(struct model *m, int l, int routed)
{
    const struct plan *p = &m->plan[l], *f = &m->ffn[l];
    struct block_work *w = &m->work[m->keep ? l : 0];
    if (!m->keep) {
        attention_half_fwd(m, l, p, w, NULL);
        ffn_half_fwd(m, l, f, w, 0);
    }
    ffn_half_bwd(m, l, f, w, routed ? m->dgate : NULL);
    gates_bwd(m, l, f, routed);
    attention_half_bwd(m, l, p, w, routed ? m->dgate : NULL);
    gates_bwd(m, l, p, routed);
}

/* What a method learns from: the losses of the pass and, where it asks, of every exit. */
static struct losses losses_of(struct model *m, int exits)
{
    struct losses x = {.entropy = m->entropy_rel,
                       .nll = m->nll,
                       .target = m->batch->target,
                       .R = m->R,
                       .L = model_config_depth(&m->config),
                       .rows = model_loss_rows(m)};
    if (!exits)
        return x;
    model_exits(m, &m->exits);
    x.exit_nll = m->exits.nll;
    x.exit_doubt = m->exits.doubt;
    x.exit_entropy = m->exits.entropy;
    x.exit_kl = m->exits.kl;
    x.exit_best = m->exits.best;
    return x;
}

void model_backward(struct model *m)
{
    const struct route_ops *ops = m->route.ops;
    int L = model_config_depth(&m->config), C = (int)m->config.dim;
    int routed = m->route.pass.kind != PASS_DENSE && (ops->flags & ROUTE_GRAD);
    m->aux_loss = 0;
    if (routed && ops->aux) {
        struct losses x = losses_of(m, m->route.wants_exits);
        ops->aux(&m->route, &x);
        m->aux_loss = x.aux;
    }
    m->aux_loss += moe_balance_begin(m);
    for (int l = 0; l < L; l++)
        if (l == 0 || model_exit_weight(m, l) <= 0) /* else it holds the gradient of an exit */
            bulk_zero(m->stream.dh[l], (size_t)m->R * (size_t)C);
    for (int l = L - 1; l >= 0; l--) {
        (m->ffn ? split_back : block_back)(m, l, routed);
        if (m->block_done && m->config.loop <= 1)
            m->block_done(m->block_done_ctx, l);
    }
    struct params *ps = &m->params;
    embed_bwd(ps->p[m->embed].grad, m->pos_embed < 0 ? NULL : ps->p[m->pos_embed].grad,
              m->stream.dh[0], m->batch->id, m->pos, (real)m->config.embed_scale, m->R, C);
}

/* Dense trajectories with the loss of every exit. */
static int observe_text(struct model *m, int batches, calibrate_batch_fn *fill, void *ctx,
                        uint64_t seed, struct err *e)
{
    int rc = 0;
    for (int k = 0; k < batches && rc == 0; k++) {
        struct batch b = {0};
        struct pass pass = {.kind = PASS_DENSE, .seed = seed};
        fill(ctx, k, &b);
        model_forward(m, &b, &pass);
        struct losses x = losses_of(m, 1);
        x.planned = (int64_t)batches * m->R;
        rc = m->route.ops->observe(&m->route, &m->stream, &x, e);
        m->batch = NULL;
    }
    return rc;
}

/* Inference-time decisions at each capacity. */
static int run_capacities(struct model *m, int batches, calibrate_batch_fn *fill, void *ctx,
                          uint64_t seed, const struct calibrate_share *share, struct err *e)
{
    for (int g = share->part; g < ROUTE_GRID; g += share->parts)
        for (int k = 0; k < batches; k++) {
            struct batch b = {0};
            struct pass pass = {.kind = PASS_SPARSE,
                                .seed = seed,
                                .inference.has_capacity = 1,
                                .inference.capacity = (double)g / (ROUTE_GRID - 1),
                                .inference.calibrate = 1 + g};
            fill(ctx, k, &b);
            model_forward(m, &b, &pass);
            m->batch = NULL;
        }
    return share->join ? share->join(share->ctx, &m->route, e) : 0;
}

int model_calibrate(struct model *m, int batches, calibrate_batch_fn *fill, void *ctx,
                    uint64_t seed, const struct calibrate_share *share, struct err *e)
{
    static const struct calibrate_share alone = {.parts = 1};
    struct route *r = &m->route;
    if (!r->ops->calibrate)
        return err_set(e, DS_EUSAGE, "%s has nothing to calibrate", r->ops->name);
    if (batches <= 0)
        return err_set(e, DS_ERANGE, "calibration of %s: missing held-out text", r->ops->name);
    int rc = r->ops->calibrate(r, 1, e);
    if (rc == 0 && r->ops->observe)
        rc = observe_text(m, batches, fill, ctx, seed, e);
    else if (rc == 0)
        rc = run_capacities(m, batches, fill, ctx, seed, share ? share : &alone, e);
    if (rc == 0)
        rc = r->ops->calibrate(r, 0, e);
    return rc < 0 ? err_add(e, rc, "calibration of %s", r->ops->name) : 0;
}
