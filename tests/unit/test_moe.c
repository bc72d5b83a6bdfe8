/* Choices of experts, what they cost and leave alone, the load-balancing loss, and their records. */
#include "io/experts.h"
#include "io/runlog.h"
#include "kit_train.h"
#include "kit.h"
#include "models/moe.h"
#include "models/trace.h"

enum { B = 2, T = 20, V = 31, E = 6, K = 2, C = 16 };

static const char *const tiny[KEYS_MAX] = {
    "model.method=dense",    "model.layers=2",         "model.dim=16",
    "model.heads=2",         "model.vocab=300",        "model.experts=4",
    "model.expert_ffn=8",    "model.max_seq=64",       "data.docs=20",
    "data.tokenizer=bytes",  "data.val_fraction=0.2",  "train.batch=2",
    "train.seq=32",          "train.steps=6",          "train.layer_every=3",
    "train.eval_tokens=128", "train.final_tokens=256", "train.samples=100",
    "train.time_rounds=1",   "train.probes=1",         "train.probe_tokens=16",
};

static struct kit_batch batch;

static struct model *make(const char *more)
{
    char text[400];
    snprintf(text, sizeof text,
             "model.method=dense model.layers=2 model.dim=%d model.heads=2 model.vocab=%d "
             "model.init_std=0.4 model.experts=%d model.experts_used=%d model.expert_ffn=12 %s",
             (int)C, (int)V, (int)E, (int)K, more);
    kit_fill(&batch, B, T, V, 4);
    return kit_model(text, 3, B * T, 1, 1);
}

static void run(struct model *m)
{
    struct pass pass = kit_pass(PASS_DENSE);
    model_forward(m, &batch.b, &pass);
}

static const int32_t *chosen(const struct model *m, int l, int row)
{
    return m->experts.chosen + ((size_t)l * (size_t)m->R + (size_t)row) * K;
}

static struct param *router(const struct model *m, int l)
{
    return &m->params.p[m->block[l].router];
}

T(ties_go_to_the_lowest_experts)
{
    struct model *m = make("");
    struct param *p = router(m, 1);
    memset(p->value, 0, p->n * sizeof *p->value);
    memcpy(p->value + 5 * C, router(m, 0)->value, C * sizeof *p->value);
    params_changed(&m->params);
    run(m);
    int last = 0;
    for (int i = 0; i < B * T; i++) { /* expert 5 is above or below the five equal ones */
        const int32_t *x = chosen(m, 1, i);
        t_true(x[0] == 0 && (x[1] == 1 || x[1] == 5));
        last += x[1] == 5;
    }
    t_true(last > 0 && last < B * T);
    model_free(m);
}

T(the_chosen_have_the_largest_scores_and_weights_that_sum_to_one)
{
    struct model *m = make("");
    run(m);
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < B * T; i++) {
            const real *score = m->work[l].moe.score + (size_t)i * E;
            const int32_t *x = chosen(m, l, i);
            double sum = 0, all = 0, least = 1;
            for (int k = 0; k < K; k++) {
                least = fmin(least, (double)score[x[k]]);
                sum += (double)m->work[l].moe.weight[i * K + k];
            }
            for (int e = 0; e < E; e++) {
                all += (double)score[e];
                t_true(e == x[0] || e == x[1] || (double)score[e] <= least);
            }
            t_near(sum, 1, 1e-6);
            t_near(all, 1, 1e-6);
        }
    model_free(m);
}

/* Experts that no row chose may hold anything: nothing reads them. */
T(other_experts_are_not_computed)
{
    struct model *m = make("model.experts_bias=true");
    int at[3];
    for (int l = 0; l < 2; l++)
        for (int e = 0; e < E; e++)
            m->params.p[m->block[l].router_b].value[e] = (real)(e == 1 || e == 4 ? 50 : 0);
    params_changed(&m->params);
    run(m);
    real *before = kit_copy(m->stream.h[2], kit_states(m));
    for (int l = 0; l < 2; l++)
        for (int e = 0; e < E; e++) {
            t_near(m->experts.load[l * E + e], e == 1 || e == 4 ? B * T : 0, 0);
            moe_expert(m, &m->block[l], e, at);
            for (int k = 0; k < 3; k++)
                for (size_t i = 0; i < m->params.p[at[k]].n && e != 1 && e != 4; i++)
                    m->params.p[at[k]].value[i] = NAN;
        }
    params_changed(&m->params);
    run(m);
    t_true(kit_same(before, m->stream.h[2], kit_states(m)));
    free(before);
    model_free(m);
}

T(a_forced_expert_is_run_in_place_of_the_last_of_its_own)
{
    static int16_t force[2 * B * T];
    struct model *m = make("");
    struct pass pass = kit_pass(PASS_SPARSE);
    int32_t first[B * T], second[B * T];
    run(m);
    for (int i = 0; i < B * T; i++) {
        const int32_t *x = chosen(m, 0, i);
        const real *score = m->work[0].moe.score + (size_t)i * E;
        first[i] = score[x[0]] >= score[x[1]] ? x[0] : x[1];
        second[i] = x[0] + x[1] - first[i];
        force[i] = (int16_t)(i % 3 ? i % E : -1);
        force[B * T + i] = -1;
    }
    pass.inference.force_expert = force;
    model_forward(m, &batch.b, &pass);
    for (int i = 0; i < B * T; i++) {
        const int32_t *x = chosen(m, 0, i);
        int want = force[i] < 0 || force[i] == first[i] ? second[i] : force[i];
        t_true(x[0] < x[1] && x[0] + x[1] == first[i] + want && (x[0] == want || x[1] == want));
    }
    model_free(m);
}

/* A row whose choices are no-ops skips its MLP; one no-op of two halves it. */
T(no_ops_run_nothing_and_cost_nothing)
{
    struct model *m = make("model.experts_noop=2 model.experts_bias=true");
    struct flops_shape shape = model_config_flops(&m->config);
    int at[3];
    for (int noops = 1; noops <= 2; noops++) { /* 1: expert 3 and the last */
        for (int e = 0; e < E + 2; e++)
            m->params.p[m->block[1].router_b].value[e] =
                (real)(e == E + 1 || e == (noops == 1 ? 3 : E) ? 50 : 0);
        for (int e = 0; e < E; e++) {
            moe_expert(m, &m->block[1], e, at);
            for (int k = 0; k < 3 && !(noops == 1 && e == 3); k++)
                for (size_t i = 0; i < m->params.p[at[k]].n; i++)
                    m->params.p[at[k]].value[i] = NAN;
        }
        params_changed(&m->params);
        run(m);
        for (int i = 0; i < B * T * C; i++) { /* two: nothing is added after the attention */
            t_true(isfinite(m->stream.h[2][i]));
            t_true((fabs((double)(m->stream.h[2][i] - m->work[1].u[i])) < 1e-6) == (noops == 2));
        }
        t_near(m->flops.part[FLOPS_PARTS + FLOPS_MLP],
               B * T * (flops_mlp_row(&shape) - noops * flops_expert_row(&shape)), 0);
        t_near(m->experts.load[E + 2 + E + 1], B * T, 0);
    }
    model_free(m);
}

/* Switch Transformer's formula for each layer, and transformers' load_balancing_loss_func, which is
 * that over the rows of all layers; from the states and the router. */
T(the_balance_loss_is_the_published_formula)
{
    struct model *m = make("");
    double load[2][E] = {0}, mean[2][E] = {0}, layers = 0, all = 0;
    run(m);
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < B * T; i++) {
            double x[E], sum = 0;
            for (int e = 0; e < E; e++) {
                x[e] = 0;
                for (int c = 0; c < C; c++)
                    x[e] +=
                        (double)m->work[l].un[i * C + c] * (double)router(m, l)->value[e * C + c];
                sum += exp(x[e]);
            }
            for (int e = 0; e < E; e++) {
                int before = 0;
                for (int o = 0; o < E; o++)
                    before += x[o] > x[e];
                load[l][e] += before < K;
                mean[l][e] += exp(x[e]) / sum;
            }
        }
    for (int e = 0; e < E; e++) {
        all +=
            E * (load[0][e] + load[1][e]) / (2 * B * T) * (mean[0][e] + mean[1][e]) / (2 * B * T);
        for (int l = 0; l < 2; l++)
            layers += E * load[l][e] / (B * T) * mean[l][e] / (B * T) / 2;
    }
    t_true(fabs(layers - all) > 1e-3);
    t_near(moe_balance(m), layers, 1e-5);
    m->config.experts_balance = EXPERTS_BALANCE_MODEL;
    t_near(moe_balance(m), all, 1e-5);
    model_free(m);
}

/* The load of each expert relative to an even one: its largest in any layer. */
static double busiest(const struct model *m)
{
    double most = 0;
    for (int i = 0; i < 2 * E; i++)
        most = fmax(most, m->experts.load[i] * E / (double)(m->R * K));
    return most;
}

static double train(const char *aux)
{
    struct model *m = make(aux);
    for (int l = 0; l < 2; l++)
        for (int e = 0; e < E; e++) /* nearly collapsed to begin with */
            m->params.p[m->block[l].router_b].value[e] = (real)(e < K ? 2 : 0);
    params_changed(&m->params);
    for (int step = 1; step <= 60; step++)
        kit_train(m, &batch.b, step, 60, 1e-2);
    double most = busiest(m);
    model_free(m);
    return most;
}

T(the_balance_loss_spreads_a_collapsed_router)
{
    double even = train("model.experts_bias=true model.experts_aux=1"),
           off = train("model.experts_bias=true model.experts_aux=0");
    t_truef(even < 1.8 && off > 1.9 && off > even + 0.4, "busiest expert: %g with, %g without",
            even, off);
}

T(probes_hold_the_experts_of_each_token_by_weight)
{
    struct err e = {0};
    struct model *m = make("");
    const char *piece[T];
    size_t len[T];
    struct record *rec = record_new();
    struct runlog_writer *w = NULL;
    struct runview *v = NULL;
    char path[512];
    for (int i = 0; i < T; i++) {
        piece[i] = "x";
        len[i] = 1;
    }
    struct trace_text text = {
        .name = "text", .id = batch.id, .piece = piece, .piece_len = len, .n = T};
    struct trace_options o = {.kind = PASS_DENSE, .seed = 5};
    snprintf(path, sizeof path, "%s/x.mp", t_tmpdir());
    trace_run(m, &text, &o, rec);
    t_ok(runlog_writer_open(&w, path, &e), &e);
    t_ok(runlog_append(w, rec, &e), &e);
    runlog_writer_close(w);
    t_ok(runview_open(&v, path, &e), &e);
    const struct probe *p = runview_probe(v, -1);
    t_true(p && probe_expert_ranks(p) == K && probe_expert_weight(p, 0));
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < T; i++) {
            const int32_t *x = chosen(m, l, i);
            int first = probe_expert_of(p, 0, l, i), second = probe_expert_of(p, 1, l, i);
            t_true((first == x[0] && second == x[1]) || (first == x[1] && second == x[0]));
            t_true(m->work[l].moe.score[i * E + first] >= m->work[l].moe.score[i * E + second]);
        }
    runview_free(v);
    record_free(rec);
    model_free(m);
}

T(training_records_the_load_of_each_expert)
{
    struct err e = {0};
    struct runview *v = NULL;
    struct expert_load x;
    char dir[600], path[700];
    snprintf(dir, sizeof dir, "%s/run", t_tmpdir());
    t_ok(go(dir, (const char *const[]){NULL}, 0, 0, &e), &e);
    snprintf(path, sizeof path, "%s/log.mp", dir);
    t_ok(runview_open(&v, path, &e), &e);
    t_eq(expert_loads(v), 2);
    t_eq(expert_loads_step(v, 0), 3);
    for (size_t i = 0; i < 2; i++) {
        t_ok(expert_load_read(&x, v, i, &e), &e);
        t_true(x.rows == 2 && x.experts == 4 && x.per_token == 2 && x.probes == 0);
        for (int l = 0; l < 2; l++)
            t_near(expert_row_of(&x, l).sum, 3 * 2 * 32 * 2, 0); /* steps, batch, tokens, experts */
        expert_load_release(&x);
    }
    runview_free(v);
}

static double noop_share(const char *share)
{
    char text[160];
    snprintf(text, sizeof text, "model.experts_noop=2 model.experts_aux=2 model.noop_share=%s",
             share);
    struct model *m = make(text);
    double noops = 0;
    for (int step = 1; step <= 80; step++)
        kit_train(m, &batch.b, step, 80, 1e-2);
    for (int l = 0; l < 2; l++)
        noops += m->experts.load[l * (E + 2) + E] + m->experts.load[l * (E + 2) + E + 1];
    t_near(noops, m->experts.noops, 0);
    model_free(m);
    return noops / (2 * B * T * K);
}

T(the_balance_loss_holds_the_share_of_no_ops)
{
    double few = noop_share("0.1"), even = noop_share("0"), many = noop_share("0.7");
    t_truef(fabs(few - 0.1) < 0.1 && fabs(even - 2.0 / (E + 2)) < 0.1 && fabs(many - 0.7) < 0.15,
            "shares of no-ops: %g, %g, %g", few, even, many);
}

T(impossible_experts_are_refused_by_name)
{
    static const struct {
        const char *options, *part;
    } rows[] = {
        {"model.experts=4 model.experts_used=5", "experts_used=5: must be at most 4"},
        {"model.experts=4 model.mlp_bias=true", "mlp_bias=true: unsupported with model.experts"},
        {"model.dense_layers=1", "dense_layers=1: needs model.experts"},
        {"model.experts=4 model.dense_layers=0-7", "dense_layers=0-7: no block has experts"},
        {"model.experts=4 model.dense_layers=8", "dense_layers=8: blocks must be below 8"},
        {"model.experts=4 model.dense_layers=x", "dense_layers=x: expected ascending blocks"},
        {"model.experts_noop=1", "experts_noop=1: needs model.experts"},
        {"model.experts=4 model.noop_share=0.2", "noop_share=0.2: needs model.experts_noop"},
        {"model.experts=4 model.experts_noop=1 model.noop_share=0.2 model.experts_aux=0",
         "noop_share=0.2: needs model.experts_aux above 0"},
        {"model.shared_ffn=8", "shared_ffn=8: needs model.experts"},
        {"model.experts=4 model.shared_gate=true", "shared_gate=true: needs model.shared_ffn"},
        {"model.experts=4 model.experts_score=sigmoid", "experts_score=softmax"},
        {"model.experts=4 model.lora_r=2 model.lora_targets=q,up",
         "up is unsupported with model.experts"},
    };
    for (size_t i = 0; i < DS_LEN(rows); i++) {
        struct err e = {0};
        struct model *m = NULL;
        t_true(kit_try(&m, rows[i].options, 1, 0, &e) < 0);
        t_truef(strstr(e.text, rows[i].part) && !strchr(e.text, '\n'), "%s: %s", rows[i].options,
                e.text);
    }
}

T(parameters_are_counted_by_the_configuration)
{
    struct model *m = make("model.shared_ffn=8 model.shared_gate=true model.experts_bias=true");
    t_eq(model_config_params(&m->config), params_count(&m->params));
    model_free(m);
    m = make("model.experts_noop=3 model.experts_bias=true model.dense_layers=1 model.ffn=20");
    t_true(m->block[0].router >= 0 && m->block[1].router < 0);
    t_eq(m->params.p[m->block[1].up].shape[0], 20);
    t_eq(model_config_params(&m->config), params_count(&m->params));
    model_free(m);
}
