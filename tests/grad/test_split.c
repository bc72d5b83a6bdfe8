/* Split layers against central differences, in double: an attention and an FFN with a plan each,
 * from any method; and the identities that hold bit for bit. */
#include "engine/gemm.h"
#include "engine/ops.h"
#include "kit_grad.h"
#include "models/block.h"

enum { B = 2, T = 7, V = 11, L = 2, R = B * T, SAMPLES = 16 };

static struct kit_batch batch;
static real captured[4][2][R]; /* dgate by layer and span, by place in the plan */
static real push[4][2];        /* what decide_bwd adds to its input state, times dgate's place */

static void capture(struct route *r, int l, const struct plan *p, const real *dgate,
                    struct stream *s)
{
    int is_ffn = p->span == ROUTE_SPAN_FFN;
    real *to = is_ffn ? s->dmid : s->dh[l];
    (void)r;
    memcpy(captured[l][is_ffn], dgate, (size_t)p->n * sizeof *dgate);
    for (int i = 0; i < R * s->C; i++)
        to[i] += push[l][is_ffn] * (real)(i % 5 - 2);
}

static const struct route_ops witness = {
    .name = "witness", .flags = ROUTE_GRAD | ROUTE_SPLIT, .decide_bwd = capture};

/* Any split method gives a model of split layers; its own parameters do not matter here. */
static const char *a_split_method(void)
{
    for (const struct route_ops *const *o = route_all(); *o; o++)
        if ((*o)->flags & ROUTE_SPLIT)
            return (*o)->name;
    t_skip("no method splits its layers");
}

/* The original method releases its memory. */
static void give_back(struct model *m)
{
    m->route.ops = route_find(m->config.method);
    model_free(m);
}

static struct model *small(const char *more, int keep)
{
    char text[512];
    snprintf(text, sizeof text,
             "model.layers=%d model.dim=8 model.heads=2 model.ffn=12 model.vocab=%d "
             "model.max_seq=%d model.init_std=0.4 model.method=%s %s",
             L, V, T, a_split_method(), more);
    struct model *m = kit_model(text, 7, R, 1, keep);
    kit_shake(m, 0.2, 9);
    for (int i = 0; i < m->params.n; i++)
        if (m->params.p[i].group == PARAM_ROUTER)
            m->params.p[i].train = 0;
    memset(push, 0, sizeof push);
    return m;
}

static struct plan *plan_of(struct model *m, int l, int is_ffn)
{
    return is_ffn ? &m->ffn[l] : &m->plan[l];
}

static void random_plan(struct model *m, int l, int is_ffn, enum kv_policy kv, int masked, int soft)
{
    struct plan *p = plan_of(m, l, is_ffn);
    struct rng r;
    rng_init(&r, 11, RNG_TEST, (uint64_t)(10 * kv + 2 * masked + soft), (uint32_t)(2 * l + is_ffn));
    p->n = p->active = 0;
    p->layer = l;
    p->span = is_ffn ? ROUTE_SPAN_FFN : ROUTE_SPAN_ATTENTION;
    p->kv = kv;
    for (int i = 0; i < R; i++) {
        double lot = rng_uniform(&r), gate = soft ? 0.2 + rng_uniform(&r) : 1;
        int runs = lot<0.55, is_probe = lot> 0.8;
        if (!runs && !masked && !is_probe)
            continue;
        p->row[p->n] = i;
        p->gate[p->n] = runs ? (real)gate : 0;
        p->weight[p->n++] = 1;
        p->active += runs;
    }
}

static void replay(struct model *m, enum kv_policy kv, int masked, int soft)
{
    for (int l = 0; l < m->config.layers; l++)
        for (int is_ffn = 0; is_ffn < 2; is_ffn++)
            random_plan(m, l, is_ffn, kv, masked, soft);
    m->route.ops = &witness;
    m->route.frozen = 1;
}

static double loss_of(struct model *m, struct pass *pass)
{
    model_forward(m, &batch.b, pass);
    return model_loss(m, 0, 0);
}

static void check_params(const char *what, struct model *m, struct pass *pass)
{
    kit_step(m, &batch.b, pass);
    kit_check_params(what, loss_of, m, pass, SAMPLES);
}

/* Gates are inputs like any other. */
static void check_gates(const char *what, struct model *m, struct pass *pass, int is_ffn)
{
    kit_step(m, &batch.b, pass);
    for (int l = 0; l < m->config.layers; l++) {
        struct plan *p = plan_of(m, l, is_ffn);
        double num = 0, den = 0;
        real one = 1;
        for (int i = 0; i < p->n; i++) {
            if (p->gate[i] == 0 && p->kv == KV_PLAN && !is_ffn)
                continue; /* a gate that becomes non-zero would also add a key */
            double want = kit_slope(loss_of, m, pass, &p->gate[i], &one, 1);
            num += (captured[l][is_ffn][i] - want) * (captured[l][is_ffn][i] - want);
            den += want * want;
        }
        t_true(den > 1e-8);
        kit_close(what, is_ffn ? "gates of the FFN" : "gates of attention", num, den);
    }
}

static void check_plans(const char *switches, enum kv_policy kv, int masked, int soft, int keep)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    char what[256];
    snprintf(what, sizeof what, "kv %d masked %d soft %d keep %d %s", kv, masked, soft, keep,
             switches);
    kit_fill(&batch, B, T, V, 1);
    kit_documents(&batch);
    batch.target[3] = -1;
    struct model *m = small(switches, keep);
    replay(m, kv, masked, soft);
    check_params(what, m, &pass);
    check_gates(what, m, &pass, 0);
    check_gates(what, m, &pass, 1);
    give_back(m);
}

T(soft_plans_of_both_spans_have_the_right_gradients_kept_and_recomputed)
{
    for (int kv = KV_ALL; kv <= KV_PLAN; kv++)
        for (int masked = 0; masked < 2; masked++)
            for (int keep = 0; keep < 2; keep++)
                check_plans("model.kv_heads=1", (enum kv_policy)kv, masked, 1, keep);
}

T(hard_plans_of_both_spans_have_the_right_gradients)
{
    for (int kv = KV_ALL; kv <= KV_PLAN; kv++)
        for (int masked = 0; masked < 2; masked++)
            check_plans("model.norm=layer model.mlp=gelu model.attn_bias=true model.mlp_bias=true",
                        (enum kv_policy)kv, masked, 0, !masked);
}

T(plans_of_parallel_blocks_have_the_right_gradients)
{
    for (int kv = KV_ALL; kv <= KV_PLAN; kv++)
        for (int keep = 0; keep < 2; keep++)
            check_plans(keep ? "model.parallel=true model.norm=layer" : "model.parallel=shared",
                        (enum kv_policy)kv, !keep, 1, keep);
}

/* One span of the first layer is empty; then both spans of a middle layer. */
T(empty_plans_have_the_right_gradients)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    kit_fill(&batch, B, T, V, 1);
    for (int kv = KV_ALL; kv <= KV_PLAN; kv++)
        for (int which = 0; which < 3; which++) {
            struct model *m = small("model.layers=3", which & 1);
            replay(m, (enum kv_policy)kv, 0, 1);
            for (int is_ffn = 0; is_ffn < 2; is_ffn++)
                if (which == 2 || which == is_ffn)
                    plan_of(m, 1, is_ffn)->n = plan_of(m, 1, is_ffn)->active = 0;
            check_params("an empty plan", m, &pass);
            give_back(m);
        }
}

/* A method may add to the gradient of the state that each decision reads. */
T(state_gradients_added_by_a_method_reach_every_weight)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    size_t n;
    kit_fill(&batch, B, T, V, 1);
    struct model *m = small("", 0);
    replay(m, KV_ALL, 1, 1);
    kit_step(m, &batch.b, &pass);
    real *without = kit_gradients(m, &n);
    for (int is_ffn = 0; is_ffn < 2; is_ffn++) {
        memset(push, 0, sizeof push);
        push[1][is_ffn] = 0.3;
        kit_step(m, &batch.b, &pass);
        real *with = kit_gradients(m, &n);
        int at = params_find(&m->params, "model.layers.0.mlp.down_proj.weight"), moved = 0;
        size_t first = 0;
        for (int i = 0; i < at; i++)
            first += m->params.p[i].train ? m->params.p[i].n : 0;
        for (size_t i = first; i < first + m->params.p[at].n; i++)
            moved += with[i] != without[i];
        t_true(moved > 10);
        /* and by the right amount: the extra loss is 0.3 sum (i % 5 - 2) state[i] */
        struct param *p = &m->params.p[at];
        double eps = 1e-5, sum[2] = {0, 0}, grad = with[first + 1] - without[first + 1];
        for (int s = 0; s < 2; s++) {
            p->value[1] += s ? 2 * eps : -eps;
            model_forward(m, &batch.b, &pass);
            const real *state = m->stream.h[1];
            if (is_ffn) /* scratch memory holds the last layer's values */
                state = m->work[0].mid;
            for (int i = 0; i < R * 8; i++)
                sum[s] += 0.3 * (i % 5 - 2) * state[i];
        }
        t_near(grad, (sum[1] - sum[0]) / (2 * eps), 1e-7);
        p->value[1] -= eps;
        free(with);
    }
    free(without);
    give_back(m);
}

/* ---- sum rules ------------------------------------------------------------------------------- */

T(a_row_skipped_by_both_spans_is_unchanged)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    int carried = 0;
    kit_fill(&batch, B, T, V, 1);
    struct model *m = small("model.layers=3", 1);
    replay(m, KV_PLAN, 0, 1);
    kit_step(m, &batch.b, &pass);
    for (int l = 0; l < 3; l++)
        for (int row = 0; row < R; row++) {
            int listed = 0;
            for (int is_ffn = 0; is_ffn < 2; is_ffn++)
                for (int k = 0; k < plan_of(m, l, is_ffn)->n; k++)
                    listed |= plan_of(m, l, is_ffn)->row[k] == row;
            if (listed)
                continue;
            t_true(kit_same(m->stream.h[l] + 8 * row, m->stream.h[l + 1] + 8 * row, 8));
            t_true(kit_same(m->stream.dh[l] + 8 * row, m->stream.dh[l + 1] + 8 * row, 8));
            carried++;
        }
    t_true(carried > 0);
    give_back(m);
}

/* Rows with gate 0 in the list add nothing: the states are those of the list without them. */
/* BLAS, which multiplies in the double build, promises no such thing on every processor. */
T(masked_equals_gathered_bit_for_bit)
{
    struct err e = {0};
    t_ok(gemm_use("ref", &e), &e);
    struct pass pass = kit_pass(PASS_MASKED);
    kit_fill(&batch, B, T, V, 1);
    kit_documents(&batch);
    for (int kv = KV_ALL; kv <= KV_PLAN; kv++) {
        struct model *m = small("model.layers=3", 0);
        replay(m, (enum kv_policy)kv, 1, 1);
        model_forward(m, &batch.b, &pass);
        real *masked = kit_copy(m->stream.h[3], kit_states(m));
        for (int l = 0; l < 3; l++)
            for (int is_ffn = 0; is_ffn < 2; is_ffn++) {
                struct plan *p = plan_of(m, l, is_ffn);
                int n = 0;
                for (int k = 0; k < p->n; k++)
                    if (p->gate[k] != 0) {
                        p->row[n] = p->row[k];
                        p->gate[n++] = p->gate[k];
                    }
                t_true(n < p->n && n == p->active);
                p->n = n;
            }
        model_forward(m, &batch.b, &pass);
        t_truef(kit_same(masked, m->stream.h[3], kit_states(m)), "kv %d", kv);
        free(masked);
        give_back(m);
    }
}

/* A block adds x + (a + f), two spans (x + a) + f: another order of the same sum, so they agree up
 * to rounding and not to the bit. */
static void spans_equal_the_block(const char *parallel)
{
    struct pass pass = kit_pass(PASS_DENSE);
    double worst = 0;
    kit_fill(&batch, B, T, V, 1);
    kit_documents(&batch);
    char text[256];
    snprintf(text, sizeof text, "model.layers=3 model.parallel=%s", parallel);
    struct model *m = small(text, 0), *whole = NULL;
    snprintf(text, sizeof text,
             "model.layers=3 model.dim=8 model.heads=2 model.ffn=12 model.vocab=%d "
             "model.max_seq=%d model.init_std=0.4 model.method=dense model.parallel=%s",
             V, T, parallel);
    whole = kit_model(text, 7, R, 1, 0);
    for (int i = 0; i < whole->params.n; i++) {
        struct param *p = &whole->params.p[i];
        memcpy(p->value, m->params.p[params_find(&m->params, p->name)].value, p->n * sizeof(real));
    }
    params_changed(&whole->params);
    model_forward(m, &batch.b, &pass);
    model_forward(whole, &batch.b, &pass);
    for (size_t i = 0; i < kit_states(m); i++)
        worst = fmax(worst, fabs(m->stream.h[3][i] - whole->stream.h[3][i]));
    t_truef(worst <= 1e-13, "%.2e", worst);
    t_near(m->flops.dense, whole->flops.dense, 1e-6);
    t_near(flops_total(&m->flops), flops_total(&whole->flops), 1e-6);
    double a = kit_step(m, &batch.b, &pass), b = kit_step(whole, &batch.b, &pass);
    t_near(a, b, 1e-13);
    for (int i = 0; i < whole->params.n; i++) {
        const struct param *p = &whole->params.p[i],
                           *q = &m->params.p[params_find(&m->params, p->name)];
        for (size_t k = 0; k < p->n; k++)
            t_near(q->grad[k], p->grad[k], 1e-12);
    }
    give_back(m);
    give_back(whole);
}

T(two_spans_with_every_gate_one_equal_the_block)
{
    spans_equal_the_block("false");
    spans_equal_the_block("true");
    spans_equal_the_block("shared");
}

/* A cached pass continues where the whole pass would: every plan lists a prefix-closed choice of
 * rows. */
static void choose(struct route *r, int l, struct plan *out, const struct stream *s)
{
    int n = 0;
    (void)s;
    for (int i = 0; i < r->pass.R; i++)
        if ((r->pass.pos[i] * 7 + 3 * l + (out->span == ROUTE_SPAN_FFN)) % 3 != 0) {
            out->row[n] = i;
            out->gate[n] = 1;
            out->weight[n++] = 1;
        }
    out->n = out->active = n;
    out->kv = (enum kv_policy)r->seed;
}

static const struct route_ops chooser = {
    .name = "chooser", .flags = ROUTE_GATED | ROUTE_SPLIT, .decide = choose};

T(cached_equals_whole)
{
    struct pass pass = kit_pass(PASS_SPARSE);
    kit_fill(&batch, B, T, V, 1);
    for (int kv = KV_ALL; kv <= KV_PLAN; kv++) {
        struct err e = {0};
        struct kv_cache *cache = NULL;
        struct batch one = {.B = 1, .T = T, .id = batch.id};
        struct model *m = small("model.layers=3", 0);
        real want[V], got[V];
        m->route.ops = &chooser;
        m->route.seed = (uint64_t)kv;
        model_forward(m, &one, &pass);
        double whole = flops_total(&m->flops), parts = 0;
        model_logits(m, T - 1, want);
        t_ok(kv_cache_new(&cache, m, T, &e), &e);
        for (int at = 0, n = 3; at < T; at += n, n = 1) {
            t_ok(model_decode(m, cache, batch.id + at, n, &pass, &e), &e);
            parts += flops_total(&m->flops);
        }
        model_logits(m, m->R - 1, got);
        for (int v = 0; v < V; v++)
            t_near(got[v], want[v], 1e-12);
        t_near(parts, whole, 1e-6);
        kv_cache_free(cache);
        give_back(m);
    }
}
