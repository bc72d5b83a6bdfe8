/* Adapters: what they must not change, equal results however rows are grouped, and refusals. */
#include "base/pool.h"
#include "engine/ops.h"
#include "kit.h"
#include "models/peft.h"

enum { B = 2, T = 24, V = 60, R = B * T };

#define SHAPE                                                                                      \
    "model.layers=4 model.dim=64 model.heads=4 model.ffn=96 model.vocab=60 model.max_seq=64 "
#define ALL " model.lora_r=4 model.lora_alpha=8 model.lora_targets=q,k,v,o,gate,up,down "

static struct kit_batch batch;

static struct model *make(const char *more, int train)
{
    char text[600];
    kit_fill(&batch, B, T, V, 3);
    snprintf(text, sizeof text, SHAPE "%s", more);
    return kit_model(text, 5, R, train, 1);
}

/* Gives every B non-zero values. */
static void wake(struct model *m)
{
    for (int i = 0; i < m->adapters; i++) {
        struct param *b = &m->params.p[m->adapter[i].b];
        struct rng r;
        rng_init(&r, 3, RNG_TEST, 4, (uint32_t)i);
        for (size_t k = 0; k < b->n; k++)
            b->value[k] = (real)(0.3 * rng_normal(&r));
    }
    params_changed(&m->params);
}

static const real *last(struct model *m, struct pass *pass)
{
    model_forward(m, &batch.b, pass);
    return m->stream.h[m->config.layers];
}

static real *states(struct model *m, struct pass *pass)
{
    const real *h = last(m, pass);
    return kit_copy(h, kit_states(m));
}

static int repeats(struct model *m, struct pass *pass, const real *want)
{
    const real *h = last(m, pass);
    return kit_same(h, want, kit_states(m));
}

T(a_zero_adapter_changes_no_bit)
{
    static const char *const weights[] = {"none", "q8_0"};
    for (int k = 0; k < 2; k++) {
        struct model *m = make("model.method=dense" ALL, 0), *base = make("model.method=dense", 0);
        struct numeric_options o = {.compute = KIT_COMPUTE, .weights = k ? QUANT_Q8_0 : QUANT_NONE};
        struct pass pass = kit_pass(PASS_SPARSE);
        struct err e = {0};
        t_ok(weights_use(m, &o, &e), &e);
        t_ok(weights_use(base, &o, &e), &e);
        real *want = states(base, &pass);
        t_truef(repeats(m, &pass, want), "weights %s", weights[k]);
        wake(m);
        t_ok(weights_use(m, &o, &e), &e);
        t_true(!repeats(m, &pass, want));
        pass.adapters_off = 1;
        t_true(repeats(m, &pass, want));
        free(want);
        model_free(m);
        model_free(base);
    }
}

/* The base with W + (alpha / r) B A in place of W. */
T(an_adapter_equals_the_matrix_plus_its_low_rank_product)
{
    struct model *m = make("model.method=dense" ALL, 0), *base = make("model.method=dense", 0);
    struct pass pass = kit_pass(PASS_SPARSE);
    wake(m);
    for (int k = 0; k < m->adapters; k++) {
        const struct adapter *x = &m->adapter[k];
        const struct param *a = &m->params.p[x->a], *b = &m->params.p[x->b];
        struct param *w = &base->params.p[params_find(&base->params, m->params.p[x->matrix].name)];
        for (int o = 0; o < w->shape[0]; o++)
            for (int c = 0; c < w->shape[1]; c++) {
                double sum = 0;
                for (int j = 0; j < 4; j++)
                    sum += (double)b->value[o * 4 + j] * (double)a->value[j * w->shape[1] + c];
                w->value[o * w->shape[1] + c] += (real)(2 * sum);
            }
    }
    params_changed(&base->params);
    real *want = states(base, &pass);
    const real *have = last(m, &pass);
    double num = 0, den = 0;
    for (size_t i = 0; i < kit_states(m); i++) {
        num += pow((double)have[i] - (double)want[i], 2);
        den += pow((double)want[i], 2);
    }
    t_truef(sqrt(num / den) < KIT_NEAR, "%g", sqrt(num / den));
    free(want);
    model_free(m);
    model_free(base);
}

static void same_bits_alone(const char *more)
{
    char text[300];
    snprintf(text, sizeof text, "model.method=random random.early=0 random.late=0" ALL "%s", more);
    struct model *m = make(text, 0);
    struct pass masked = kit_pass(PASS_MASKED), sparse = kit_pass(PASS_SPARSE);
    wake(m);
    real *want = states(m, &masked);
    t_true(m->plan[1].active < R);
    t_true(repeats(m, &sparse, want));
    free(want);
    /* one sequence alone */
    struct pass dense = kit_pass(PASS_DENSE);
    want = states(m, &dense);
    batch.b.B = 1;
    t_true(repeats(m, &dense, want));
    free(want);
    model_free(m);
}

T(a_row_has_the_same_bits_whatever_the_other_rows)
{
    same_bits_alone("");
    same_bits_alone("model.lora_dora=true");
    same_bits_alone("model.lora_bias=true");
}

static void decodes_alike(const char *more)
{
    struct model *m = make(more, 0);
    struct pass pass = kit_pass(PASS_SPARSE);
    struct kv_cache *cache;
    struct err e = {0};
    static real want[V], have[V];
    wake(m);
    batch.b.B = 1;
    last(m, &pass);
    model_logits(m, T - 1, want);
    t_ok(kv_cache_new(&cache, m, T, &e), &e);
    for (int i = 0; i < T; i++)
        t_ok(model_decode(m, cache, &batch.id[i], 1, &pass, &e), &e);
    model_logits(m, 0, have);
    for (int v = 0; v < V; v++)
        t_near(have[v], want[v], KIT_NEAR * 10);
    kv_cache_free(cache);
    model_free(m);
}

T(cached_decoding_uses_the_adapters)
{
    decodes_alike("model.method=dense" ALL);
    decodes_alike("model.method=dense model.lora_dora=true" ALL);
    decodes_alike("model.method=dense model.lora_bias=true model.attn_bias=true" ALL);
}

/* Its magnitudes start as the norms of the rows. */
T(a_fresh_dora_adapter_changes_nothing_and_a_trained_one_sets_the_norms_of_rows)
{
    struct model *m = make("model.method=dense model.lora_dora=true" ALL, 0),
                 *base = make("model.method=dense", 0);
    struct pass pass = kit_pass(PASS_SPARSE);
    real *want = states(base, &pass), row[96];
    const real *have = last(m, &pass);
    double most = 0;
    for (size_t i = 0; i < kit_states(m); i++)
        most = fmax(most, fabs((double)have[i] - (double)want[i]));
    t_truef(most < KIT_NEAR, "%g", most);
    wake(m);
    for (int k = 0; k < m->adapters; k++) {
        const struct adapter *x = &m->adapter[k];
        struct param *p = &m->params.p[x->magnitude];
        for (size_t o = 0; o < p->n; o++) {
            double sum = 0;
            p->value[o] = (real)(0.5 + 0.01 * (double)o);
            model_values_merged(m, x->matrix, o, 1, row);
            for (int c = 0; c < m->params.p[x->matrix].shape[1]; c++)
                sum += (double)row[c] * (double)row[c];
            t_near(sqrt(sum), (double)p->value[o], 1e-5);
        }
    }
    params_changed(&m->params);
    t_true(!repeats(m, &pass, want));
    pass.adapters_off = 1;
    t_true(repeats(m, &pass, want));
    free(want);
    model_free(m);
    model_free(base);
}

#define DROPS "model.method=random random.early=0 random.late=0 model.lora_dropout=0.5" ALL

T(dropout_depends_on_step_seed_and_map_alone)
{
    struct model *m = make("model.method=dense model.lora_dropout=0.5" ALL, MODEL_TRAIN);
    struct pass pass = kit_pass(PASS_TRAIN), use = kit_pass(PASS_SPARSE);
    wake(m);
    real *first = states(m, &pass), *quiet = states(m, &use);
    t_true(repeats(m, &pass, first));
    t_true(!kit_same(quiet, first, kit_states(m)));
    struct model *whole = make("model.method=dense" ALL, MODEL_TRAIN); /* without dropout */
    wake(whole);
    t_true(repeats(whole, &use, quiet)); /* no dropout at inference */
    t_true(repeats(whole, &pass, quiet));
    model_free(whole);
    pass.step = 2;
    t_true(!repeats(m, &pass, first));
    pass.step = 1;
    pass.seed++;
    t_true(!repeats(m, &pass, first));
    free(first);
    free(quiet);
    model_free(m);
}

/* A batch that is cut into pieces (train.pieces) draws one mask, not one for each piece. */
T(dropout_of_a_piece_is_that_of_its_place_in_the_batch)
{
    struct model *m = make("model.method=dense model.lora_dropout=0.5" ALL, MODEL_TRAIN);
    struct pass pass = kit_pass(PASS_TRAIN);
    wake(m);
    real *whole = states(m, &pass);
    size_t each = kit_states(m) / B;
    for (int s = 0; s < B; s++) {
        struct batch piece = {
            .B = 1, .T = T, .id = batch.b.id + s * T, .target = batch.b.target + s * T};
        pass.first_row = s * T;
        model_forward(m, &piece, &pass);
        t_true(kit_same(m->stream.h[m->config.layers], whole + (size_t)s * each, each));
    }
    free(whole);
    model_free(m);
}

T(dropout_drops_half_of_the_inputs_and_doubles_the_rest)
{
    enum { N = 64, C = 96 };
    static real x[N * C], y[N * C], a[C * C], b[C * C], w[C * C];
    int zeros = 0;
    for (int i = 0; i < N * C; i++)
        x[i] = 1;
    for (int i = 0; i < C; i++)
        a[i * C + i] = b[i * C + i] = 1;
    struct lora l = {.r = C, .scale = 1, .a = a, .b = b, .dropout = 0.5, .seed = 1, .step = 1};
    struct linear map = {.C = C, .O = C, .w = w, .lora = &l};
    linear_fwd(y, x, &map, N, 0, NULL);
    for (int i = 0; i < N * C; i++) {
        t_true(y[i] == 0 || y[i] == 2);
        zeros += y[i] == 0;
    }
    t_near((double)zeros / (N * C), 0.5, 0.03);
}

static void same_gradients(const char *more)
{
    struct err e = {0};
    real *want = NULL;
    size_t n = 0;
    for (int k = 0; k < 4; k++) {
        char text[600];
        t_ok(pool_start(k < 2 ? 1 : 3, &e), &e);
        kit_fill(&batch, B, T, V, 3);
        snprintf(text, sizeof text, SHAPE DROPS "%s", more);
        struct model *m = kit_model(text, 5, R, MODEL_TRAIN, k % 2);
        struct pass pass = kit_pass(PASS_TRAIN);
        wake(m);
        kit_step(m, &batch.b, &pass);
        real *have = kit_gradients(m, &n);
        if (want)
            t_truef(kit_same(have, want, n), "threads %d, keep %d", k < 2 ? 1 : 3, k % 2);
        free(k ? have : NULL);
        want = k ? want : have;
        model_free(m);
        pool_stop();
    }
    free(want);
}

T(recomputation_and_thread_count_do_not_change_gradients)
{
    same_gradients("");
    same_gradients("model.lora_dora=true");
}

T(adapters_are_counted_in_flops)
{
    struct model *m = make("model.method=dense" ALL, 0), *base = make("model.method=dense", 0);
    struct pass pass = kit_pass(PASS_SPARSE);
    double weights = 0;
    last(m, &pass);
    last(base, &pass);
    for (int i = 0; i < m->adapters; i++)
        weights += (double)(m->params.p[m->adapter[i].a].n + m->params.p[m->adapter[i].b].n);
    t_near(flops_total(&m->flops) - flops_total(&base->flops), 2 * R * weights, 1e-6);
    t_near(flops_model_ratio(&m->flops), 1, 1e-12);
    t_near(adapters_weights(&m->config), weights, 0);
    t_eq(params_count(&m->params) - params_count(&base->params), weights);
    model_free(m);
    model_free(base);
}

T(adapters_of_some_layers_are_counted_there)
{
    struct model *m = make("model.method=dense model.lora_r=4 model.lora_targets=1.q,3.down:2", 0),
                 *base = make("model.method=dense", 0);
    struct pass pass = kit_pass(PASS_SPARSE);
    last(m, &pass);
    last(base, &pass);
    for (int l = 0; l < 4; l++)
        for (int k = 0; k < FLOPS_PARTS; k++) {
            double more = l == 1 && k == FLOPS_QO    ? 2.0 * R * 4 * (64 + 64)
                          : l == 3 && k == FLOPS_MLP ? 2.0 * R * 2 * (64 + 96)
                                                     : 0;
            t_near(m->flops.part[l * FLOPS_PARTS + k], base->flops.part[l * FLOPS_PARTS + k] + more,
                   1e-6);
        }
    t_near(adapters_weights(&m->config), 4 * 128 + 2 * 160, 0);
    model_free(m);
    model_free(base);
}

static void refused(const char *options, int code, const char *part)
{
    struct model *m = NULL;
    struct err e = {0};
    t_fails(kit_try(&m, options, 1, 0, &e), &e, code, part);
}

T(impossible_adapters_are_refused_in_one_line)
{
    refused(SHAPE "model.method=dense model.lora_r=4 model.lora_targets=q,w", DS_EUSAGE,
            "unknown matrix w: expected q, k, v, o, gate, up, down");
    refused(SHAPE "model.method=dense model.lora_targets=attention", DS_EUSAGE,
            "unknown matrix attention");
    refused(SHAPE "model.method=dense model.lora_r=4 model.mlp=gelu model.lora_targets=gate",
            DS_EUSAGE, "only with model.mlp=swiglu");
    static const char *const malformed[] = {
        "0-.q", "1-0.q", "x.q",    "0+.q", "q:",   "q:0",   "q:-1",
        "q:2:", "q:2:x", "q:2:-1", ".q",   "q:4x", "1.q.v", "0:2"};
    for (size_t i = 0; i < DS_LEN(malformed); i++) {
        char text[300];
        snprintf(text, sizeof text, SHAPE "model.method=dense model.lora_r=4 model.lora_targets=%s",
                 malformed[i]);
        refused(text, DS_EUSAGE, malformed[i]);
    }
    refused(SHAPE "model.method=dense model.lora_r=4 model.lora_targets=0-4.q", DS_ERANGE,
            "0-4.q: layer 4 not found: expected 0 to 3");
    refused(SHAPE "model.method=dense model.lora_r=4 model.lora_targets=2.q:4097", DS_ERANGE,
            "2.q:4097: rank must be at most 4096");
    refused(SHAPE "model.method=dense model.lora_r=4 model.lora_save=lm_head", DS_EUSAGE,
            "unknown module lm_head");
    refused(SHAPE "model.method=dense model.lora_r=4 model.lora_save=norm,layernorm", DS_EUSAGE,
            "unknown module layernorm: expected e.g. embed_tokens, norm");
    refused(SHAPE "model.method=dense model.lora_r=4 model.lora_bias=true model.lora_dora=true",
            DS_EUSAGE, "model.lora_bias=true: not defined with model.lora_dora=true");
    refused(SHAPE "model.method=dense model.lora_r=4 model.lora_targets=,", DS_EUSAGE,
            "must name at least one matrix");
}
