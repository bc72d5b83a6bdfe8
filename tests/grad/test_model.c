/* Whole models against central differences, in double: every switch, every kind of plan. */
#include "engine/ops.h"
#include "kit_grad.h"
#include "models/moe.h"

enum { B = 2, T = 7, V = 11, SAMPLES = 24 };

static struct kit_batch batch;
static real captured[8][B * T]; /* dgate of each layer, by place in the plan */

static void capture(struct route *r, int l, const struct plan *p, const real *dgate,
                    struct stream *s)
{
    (void)r;
    (void)s;
    memcpy(captured[l], dgate, (size_t)p->n * sizeof *dgate);
}

/* Receives dgate, decides nothing. */
static const struct route_ops witness = {
    .name = "witness", .flags = ROUTE_GRAD, .decide_bwd = capture};

static double loss_of(struct model *m, struct pass *pass)
{
    model_forward(m, &batch.b, pass);
    return model_loss(m, 0, 0) + m->config.experts_aux * moe_balance(m);
}

static void check_params(const char *what, struct model *m, struct pass *pass)
{
    kit_step(m, &batch.b, pass);
    kit_check_params(what, loss_of, m, pass, SAMPLES);
}

static void setup(int with_documents)
{
    kit_fill(&batch, B, T, V, 1);
    batch.target[3] = -1; /* a row without a target */
    if (with_documents)
        kit_documents(&batch);
}

static struct model *small(const char *more, int keep)
{
    char text[512];
    snprintf(
        text, sizeof text,
        "model.layers=2 model.dim=8 model.heads=2 model.ffn=12 model.vocab=%d model.max_seq=%d "
        "model.init_std=0.4 %s %s",
        V, T, strstr(more, "model.method") ? "" : "model.method=dense", more);
    struct model *m = kit_model(text, 7, B * T, 1, keep);
    kit_shake(m, 0.2, 9);
    return m;
}

static void check_switches(const char *switches, int with_documents, int keep)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    setup(with_documents);
    struct model *m = small(switches, keep);
    check_params(switches, m, &pass);
    model_free(m);
}

T(a_llama_model_has_the_right_gradients)
{
    check_switches("model.norm=rms model.position=rope model.mlp=swiglu", 0, 0);
}

T(a_gpt_model_has_the_right_gradients)
{
    check_switches("model.norm=layer model.position=learned model.mlp=gelu model.attn_bias=true "
                   "model.mlp_bias=true "
                   "model.embed_scale=2.5",
                   1, 1);
}

T(every_norm_position_and_mlp_has_the_right_gradients)
{
    check_switches(
        "model.norm=layer model.position=rope_interleaved model.mlp=gelu_tanh model.mlp_bias=true",
        1, 0);
    check_switches("model.norm=rms model.position=none model.mlp=gelu model.attn_bias=true", 0, 1);
    check_switches("model.norm=rms model.position=learned model.mlp=gelu_tanh", 1, 1);
}

T(grouped_queries_untied_heads_and_free_head_sizes_have_the_right_gradients)
{
    check_switches("model.heads=4 model.kv_heads=2 model.tied=false model.attn_bias=true", 1, 0);
    check_switches("model.heads=4 model.kv_heads=1 model.head_dim=6", 0, 1);
}

T(the_blocks_of_newer_families_have_the_right_gradients)
{
    check_switches("model.qk_norm=head model.kv_heads=1 model.head_dim=6", 1, 0);
    check_switches("model.qk_norm=whole model.norm_place=after model.attn_bias=true", 1, 1);
    check_switches(
        "model.norm_place=both model.norm_offset=true model.mlp=geglu model.attn_cap=1.5 "
        "model.logit_cap=2 model.attn_scale=0.7 model.embed_scale=2.8 model.window=3 "
        "model.window_layers=0",
        1, 0);
    check_switches(
        "model.norm_place=both model.norm_offset=true model.qk_norm=head model.mlp=geglu "
        "model.window=2 model.rope_local=100 model.window_layers=1",
        0, 1);
    check_switches(
        "model.nope_layers=1 model.rope_dims=2 model.rope_scaling=yarn model.rope_factor=4 "
        "model.rope_original=8 model.rope_low=1 model.rope_high=2",
        0, 0);
    check_switches(
        "model.rope_dims=2 model.rope_scaling=longrope model.rope_short=1 model.rope_long=3 "
        "model.rope_original=2 model.rope_factor=8",
        0, 0);
    check_switches(
        "model.layers=1 model.loop=3 model.norm_place=both model.qk_norm=head model.window=4", 1,
        0);
}

T(parallel_blocks_have_the_right_gradients)
{
    check_switches("model.parallel=true model.norm=layer model.mlp=gelu model.attn_bias=true "
                   "model.mlp_bias=true model.rope_dims=2",
                   1, 0);
    check_switches("model.parallel=shared model.norm=layer model.heads=4 model.kv_heads=2 "
                   "model.attn_bias=qkv",
                   1, 1);
    check_switches("model.parallel=shared model.experts=3 model.shared_ffn=4", 0, 0);
    check_switches("model.parallel=true model.layers=1 model.loop=3 model.loop_inject=add", 1, 0);
    check_switches("model.parallel=shared model.layers=3 model.loop=2 model.loop_first=1 "
                   "model.norm=layer",
                   0, 1);
    check_switches("model.parallel=true model.lora_r=2 model.lora_targets=q,v,up,down", 0, 0);
}

T(heads_of_some_ids_have_the_right_gradients)
{
    static const int32_t id[] = {2, 3, 4, 7, 9};
    struct pass pass = kit_pass(PASS_TRAIN);
    setup(1);
    for (int i = 0; i < B * T; i++)
        batch.target[i] = batch.target[i] < 0 ? -1 : id[batch.target[i] % 5];
    struct model *m = small("model.tied=false model.outputs=2-4,7,9", 0);
    t_eq(m->params.p[m->head].shape[0], 5);
    check_params("outputs", m, &pass);
    model_free(m);
}

T(loops_have_the_right_gradients)
{
    check_switches("model.layers=1 model.loop=4", 0, 0);
    check_switches("model.layers=1 model.loop=4 model.loop_norm=false", 1, 1);
    check_switches("model.layers=1 model.loop=4 model.loop_norm=false model.loop_inject=add", 1, 0);
    check_switches("model.layers=1 model.loop=4 model.loop_inject=add", 1, 1);
    check_switches("model.layers=4 model.loop=2 model.loop_first=1 model.loop_last=1", 1, 0);
    check_switches("model.layers=4 model.loop=3 model.loop_first=1 model.loop_last=1 "
                   "model.loop_inject=add model.norm=layer model.position=learned model.mlp=gelu",
                   0, 0);
    check_switches("model.layers=1 model.loop=2 model.lora_r=2 model.lora_alpha=4", 0, 1);
    check_switches("model.layers=2 model.loop=3 model.loop_norm=final model.norm_place=both", 1, 1);
    check_switches("model.layers=3 model.loop=2 model.loop_first=1 model.loop_norm=final "
                   "model.loop_inject=add model.norm=layer",
                   0, 0);
}

/* Each step draws its number of iterations; those behind it are closed. */
T(loops_of_random_length_have_the_right_gradients)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    int seen[5] = {0};
    setup(1);
    struct model *m =
        small("model.layers=3 model.loop=4 model.loop_min=1 model.loop_first=1 model.loop_last=1 "
              "model.loop_inject=add",
              0);
    for (pass.step = 1; pass.step <= 40; pass.step++) {
        int active = 0;
        model_forward(m, &batch.b, &pass);
        for (int l = 1; l < 5; l++)
            active += m->plan[l].active > 0;
        t_true(m->plan[0].active == B * T && m->plan[5].active == B * T);
        if (seen[active]++ == 0)
            check_params("random iterations", m, &pass);
    }
    t_true(!seen[0] && seen[1] > 2 && seen[2] > 2 && seen[3] > 2 && seen[4] > 2);
    pass = kit_pass(PASS_MASKED);
    model_forward(m, &batch.b, &pass);
    t_eq(m->plan[4].active, B * T);
    model_free(m);
}

/* Each iteration of the loop adds to the same parameters: the gradient is the sum of those of a
 * stack whose blocks have the same values. */
T(the_gradient_of_a_loop_is_the_sum_over_its_iterations)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    setup(1);
    struct model *loop =
        small("model.layers=3 model.loop=2 model.loop_first=1 model.loop_norm=false", 0);
    struct model *stack = small("model.layers=5", 0);
    for (int l = 0; l < 5; l++) {
        const int *from = (const int *)&loop->block[l], *to = (const int *)&stack->block[l];
        for (size_t i = 0; i < sizeof(struct block_params) / sizeof(int); i++)
            if (to[i] >= 0)
                memcpy(stack->params.p[to[i]].value, loop->params.p[from[i]].value,
                       stack->params.p[to[i]].n * sizeof(real));
    }
    memcpy(stack->params.p[stack->embed].value, loop->params.p[loop->embed].value,
           stack->params.p[stack->embed].n * sizeof(real));
    memcpy(stack->params.p[stack->norm].value, loop->params.p[loop->norm].value,
           stack->params.p[stack->norm].n * sizeof(real));
    params_changed(&stack->params);
    t_near(kit_step(loop, &batch.b, &pass), kit_step(stack, &batch.b, &pass), 1e-14);
    for (int l = 1; l < 3; l++) {
        const struct param *x = &loop->params.p[loop->block[l].q];
        const real *a = stack->params.p[stack->block[l].q].grad,
                   *b = stack->params.p[stack->block[l + 2].q].grad;
        for (size_t i = 0; i < x->n; i++)
            t_near(x->grad[i], a[i] + b[i], 1e-13);
    }
    model_free(loop);
    model_free(stack);
}

T(private_spans_have_the_right_gradients)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    for (int keep = 0; keep < 2; keep++) {
        setup(0);
        kit_spans(&batch, 2, 2);
        struct model *m = small("model.heads=2 model.kv_heads=1", keep);
        check_params("private spans", m, &pass);
        model_free(m);
    }
}

/* A frozen plan: rows listed with probability 3/4; gates hard, soft, or 0 for some. */
static void random_plan(struct model *m, int l, enum kv_policy kv, int masked, int soft,
                        uint32_t salt)
{
    struct plan *p = &m->plan[l];
    struct rng r;
    rng_init(&r, 11, RNG_TEST, salt, (uint32_t)l);
    p->n = p->active = 0;
    p->layer = l;
    p->kv = kv;
    for (int i = 0; i < B * T; i++) {
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

/* Gates are inputs like any other. */
static void check_gates(const char *what, struct model *m, struct pass *pass)
{
    kit_step(m, &batch.b, pass);
    for (int l = 0; l < m->config.layers; l++) {
        struct plan *p = &m->plan[l];
        double num = 0, den = 0;
        real one = 1;
        for (int i = 0; i < p->n; i++) {
            if (p->gate[i] == 0 && p->kv == KV_PLAN)
                continue; /* a gate that becomes non-zero would also add a key */
            double want = kit_slope(loss_of, m, pass, &p->gate[i], &one, 1);
            num += (captured[l][i] - want) * (captured[l][i] - want);
            den += want * want;
        }
        kit_close(what, "gates", num, den);
    }
}

/* The choice of experts is piecewise constant: it is made once and repeated.  Rows that run only as
 * probes (gate 0) are not in the load-balancing loss. */
static void check_experts(const char *switches, int plans, int keep)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    char text[256];
    snprintf(text, sizeof text, "model.init_std=0.8 model.experts=5 model.expert_ffn=6 %s",
             switches);
    setup(1);
    struct model *m = small(text, keep);
    if (plans) {
        m->route.ops = &witness;
        for (int l = 0; l < m->config.layers; l++)
            random_plan(m, l, KV_PLAN, l, 1, 8);
        m->route.frozen = 1;
    }
    model_forward(m, &batch.b, &pass);
    m->route.frozen = 1;
    kit_step(m, &batch.b, &pass);
    kit_check_params(text, loss_of, m, &pass, 6);
    if (plans)
        check_gates(text, m, &pass);
    model_free(m);
}

T(experts_have_the_right_gradients)
{
    check_experts("model.experts_aux=0.7", 0, 0);
    check_experts("model.experts_aux=0.7 model.experts_balance=model", 0, 0);
    check_experts("model.experts_norm=false model.experts_used=3 model.experts_aux=0", 0, 1);
    check_experts("model.experts_norm=false model.experts_used=1 model.experts_bias=true "
                  "model.experts_aux=0.3 model.mlp=gelu",
                  0, 0);
    check_experts("model.experts_score=sigmoid model.experts_aux=0 model.experts_bias=true", 0, 0);
    check_experts("model.experts_score=sigmoid model.experts_norm=false model.experts_aux=0 "
                  "model.shared_ffn=4",
                  0, 1);
    check_experts("model.experts_used=5 model.shared_ffn=7 model.shared_gate=true", 0, 0);
    check_experts("model.layers=1 model.loop=3", 0, 0);
    check_experts("model.qk_norm=head model.norm_place=both model.mlp=geglu model.shared_ffn=4", 0,
                  0);
    check_experts("model.lora_r=2 model.lora_alpha=4", 0, 1);
    check_experts("model.experts_noop=2 model.experts_used=3 model.experts_aux=0.7 "
                  "model.noop_share=0.5",
                  0, 0);
    check_experts("model.dense_layers=0 model.ffn=9 model.experts_aux=0.7", 0, 0);
    check_experts("model.dense_layers=1 model.ffn=4 model.shared_ffn=7 model.qk_norm=head", 0, 1);
    check_experts("model.experts_noop=1 model.experts_norm=false model.experts_bias=true "
                  "model.experts_aux=0.7 model.shared_ffn=4",
                  0, 1);
}

T(experts_of_planned_rows_have_the_right_gradients)
{
    check_experts("model.experts_aux=0.7 model.shared_ffn=4 model.shared_gate=true", 1, 0);
    check_experts("model.experts_norm=false model.experts_noop=2 model.experts_aux=0.3", 1, 1);
    check_experts("model.experts_aux=0.7 model.experts_balance=model", 1, 1);
}

static void check_plans(const char *switches, enum kv_policy kv, int masked, int soft, int keep)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    char what[256];
    snprintf(what, sizeof what, "kv %d masked %d soft %d keep %d %s", kv, masked, soft, keep,
             switches);
    setup(1);
    struct model *m = small(switches, keep);
    for (int l = 0; l < m->config.layers; l++)
        random_plan(m, l, kv, masked, soft, (uint32_t)(10 * kv + 2 * masked + soft));
    m->route.ops = &witness;
    m->route.frozen = 1;
    check_params(what, m, &pass);
    check_gates(what, m, &pass);
    model_free(m);
}

T(masked_and_sparse_plans_have_the_right_gradients)
{
    for (int kv = KV_ALL; kv <= KV_PLAN; kv++)
        for (int masked = 0; masked < 2; masked++)
            check_plans("model.kv_heads=1", (enum kv_policy)kv, masked, 1, masked);
}

T(hard_plans_with_probes_have_the_right_gradients)
{
    for (int kv = KV_ALL; kv <= KV_PLAN; kv++)
        for (int masked = 0; masked < 2; masked++)
            check_plans("model.norm=layer model.mlp=gelu model.attn_bias=true", (enum kv_policy)kv,
                        masked, 0, !masked);
}

T(plans_of_parallel_blocks_have_the_right_gradients)
{
    for (int kv = KV_ALL; kv <= KV_PLAN; kv++)
        for (int masked = 0; masked < 2; masked++)
            check_plans(masked ? "model.parallel=true model.kv_heads=1"
                               : "model.parallel=shared model.norm=layer",
                        (enum kv_policy)kv, masked, 1, masked);
}

T(plans_without_any_row_have_the_right_gradients)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    setup(0);
    for (int kv = KV_ALL; kv <= KV_PLAN; kv++) {
        struct model *m = small("model.layers=3", 0);
        m->route.ops = &witness;
        m->route.frozen = 1;
        for (int l = 0; l < 3; l++)
            random_plan(m, l, (enum kv_policy)kv, 0, 1, 4);
        m->plan[1].n = m->plan[1].active = 0;
        check_params("an empty plan", m, &pass);
        model_free(m);
    }
}

/* ---- sum rules ------------------------------------------------------------------------------- */

static int find(const struct model *m, const char *name)
{
    int i = params_find(&m->params, name);
    t_truef(i >= 0, "%s", name);
    return i;
}

T(a_zero_increment_has_no_gate_gradient)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    setup(0);
    struct model *m = small("", 1);
    struct param *o = &m->params.p[find(m, "model.layers.1.self_attn.o_proj.weight")];
    struct param *down = &m->params.p[find(m, "model.layers.1.mlp.down_proj.weight")];
    memset(o->value, 0, o->n * sizeof(real));
    memset(down->value, 0, down->n * sizeof(real));
    m->route.ops = &witness;
    m->route.frozen = 1;
    for (int l = 0; l < 2; l++)
        random_plan(m, l, KV_ALL, 1, 1, 1);
    kit_step(m, &batch.b, &pass);
    double other = 0;
    for (int i = 0; i < m->plan[1].n; i++) {
        t_true(captured[1][i] == 0);
        other += fabs(captured[0][i]);
    }
    t_true(other > 1e-3);
    model_free(m);
}

T(a_skipped_row_passes_its_gradient_on_unchanged)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    setup(1);
    struct model *m = small("model.layers=3", 1);
    m->route.ops = &witness;
    m->route.frozen = 1;
    for (int l = 0; l < 3; l++)
        random_plan(m, l, KV_PLAN, 0, 1, 2);
    kit_step(m, &batch.b, &pass);
    int skipped = 0;
    for (int l = 0; l < 3; l++)
        for (int row = 0, k = 0; row < B * T; row++) {
            const struct plan *p = &m->plan[l];
            if (k < p->n && p->row[k] == row) {
                k++;
                continue;
            }
            size_t C = (size_t)m->config.dim, at = (size_t)row * C;
            t_true(kit_same(m->stream.h[l] + at, m->stream.h[l + 1] + at, C));
            t_true(kit_same(m->stream.dh[l] + at, m->stream.dh[l + 1] + at, C));
            skipped++;
        }
    t_true(skipped > 3);
    model_free(m);
}

/* Backward is linear in its input: twice the head's gradient, twice everything (powers of two are
 * exact). */
T(doubling_the_loss_doubles_every_gradient)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    size_t n, n2;
    setup(0);
    struct model *m = small("", 1);
    kit_step(m, &batch.b, &pass);
    real *once = kit_gradients(m, &n);
    params_zero_grad(&m->params);
    model_forward(m, &batch.b, &pass);
    model_loss(m, 1, 0);
    for (int i = 0; i < m->params.n; i++)
        for (size_t k = 0; k < m->params.p[i].n; k++)
            m->params.p[i].grad[k] *= 2;
    for (size_t i = 0; i < kit_states(m); i++)
        m->stream.dh[2][i] *= 2;
    model_backward(m);
    real *twice = kit_gradients(m, &n2);
    for (size_t i = 0; i < n; i++)
        t_true(twice[i] == 2 * once[i]);
    free(once);
    free(twice);
    model_free(m);
}

T(gradients_accumulate)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    size_t n;
    setup(0);
    struct model *m = small("model.tied=false", 0);
    kit_step(m, &batch.b, &pass);
    real *once = kit_gradients(m, &n);
    model_forward(m, &batch.b, &pass);
    model_loss(m, 1, 0);
    model_backward(m);
    real *sum = kit_gradients(m, &n);
    for (size_t i = 0; i < n; i++)
        t_near(sum[i], 2 * once[i], 1e-13);
    free(once);
    free(sum);
    model_free(m);
}

/* data.loss=answers: rows without a target count neither in the sum nor in the number. */
T(the_mean_and_its_gradients_are_over_counted_targets)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    size_t n;
    setup(0);
    for (int i = 0; i < B * T; i++)
        batch.target[i] = i % 5 == 2 ? batch.target[i] : -1;
    struct model *m = small("", 1);
    check_params("answers", m, &pass);
    double sum = 0, counted = 0;
    model_forward(m, &batch.b, &pass);
    double loss = model_loss(m, 0, 0);
    for (int i = 0; i < B * T; i++)
        if (batch.target[i] >= 0) {
            sum += (double)m->nll[i];
            counted++;
        }
    t_near(loss, sum / counted, 1e-14);
    t_eq(counted, 3);
    for (int i = 0; i < B * T; i++)
        batch.target[i] = -1;
    params_zero_grad(&m->params);
    model_forward(m, &batch.b, &pass);
    t_true(isnan(model_loss(m, 1, 0)));
    model_backward(m);
    real *none = kit_gradients(m, &n);
    for (size_t i = 0; i < n; i++)
        t_true(none[i] == 0);
    free(none);
    model_free(m);
}

T(permuting_the_rows_of_a_batch_permutes_their_gradients)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    setup(0);
    struct model *m = small("", 1);
    size_t half = (size_t)T * (size_t)m->config.dim;
    kit_step(m, &batch.b, &pass);
    real *dh = kit_copy(m->stream.dh[0], 2 * half);
    for (int t = 0; t < T; t++) {
        int32_t id = batch.id[t], target = batch.target[t];
        batch.id[t] = batch.id[T + t];
        batch.target[t] = batch.target[T + t];
        batch.id[T + t] = id;
        batch.target[T + t] = target;
    }
    kit_step(m, &batch.b, &pass);
    t_true(kit_same(m->stream.dh[0], dh + half, half));
    t_true(kit_same(m->stream.dh[0] + half, dh, half));
    free(dh);
    model_free(m);
}

T(rows_without_a_target_have_no_loss_and_no_gradient)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    setup(0);
    for (int i = 0; i < T; i++)
        batch.target[i] = -1; /* the whole first row of the batch */
    struct model *m = small("", 1);
    kit_step(m, &batch.b, &pass);
    for (size_t i = 0; i < (size_t)T * (size_t)m->config.dim; i++)
        t_true(m->stream.dh[0][i] == 0);
    for (int i = 0; i < B * T; i++)
        batch.target[i] = -1;
    t_true(isnan(kit_step(m, &batch.b, &pass)));
    for (size_t i = 0; i < kit_states(m); i++)
        t_true(m->stream.dh[0][i] == 0);
    model_free(m);
}
