/* Properties of every registered method, whatever it decides.  The tests run over the registry, so
 * a new method is tested once it is listed there.  Gradients are in tests/grad. */
#include "io/runlog.h"
#include "io/runview.h"
#include "kit.h"
#include "models/load.h"
#include "models/trace.h"

enum { B = 2, T = 33, V = 53, L = 8 };

/* Redefined by test_methods_loop.c: L executed layers of another shape. */
#ifndef METHODS_SHAPE
#define METHODS_SHAPE "model.layers=8"
#endif

static struct kit_batch batch;

#ifdef METHODS_VARIANT
#define METHODS_STEP kit_every()
#else
#define METHODS_STEP 1
#endif
#define EACH_METHOD(name)                                                                          \
    for (const struct route_ops *const *o_ = route_all(); *o_; o_++)                               \
        for (const char *name = (o_ - route_all()) % METHODS_STEP ? NULL : (*o_)->name; name;      \
             name = NULL)

static void same_batch(void *ctx, int k, struct batch *b)
{
    (void)ctx;
    (void)k;
    *b = batch.b;
}

/* A model with default options after three steps; calibrated if it learns from exits alone. */
static struct model *prepared(const char *name, int keep)
{
    char text[512];
    snprintf(text, sizeof text,
             METHODS_SHAPE " model.dim=32 model.heads=2 model.vocab=%d model.init_std=0.1 "
                           "model.method=%s",
             V, name);
    struct model *m = kit_model(text, 3, B * T, 1, keep);
    t_eq(model_config_depth(&m->config), L);
    for (int step = 1; step <= 3; step++) {
        kit_fill(&batch, B, T, V, (uint64_t)step);
        kit_documents(&batch);
        kit_train(m, &batch.b, step, 10, 1e-3);
    }
    struct err e = {0};
    if (m->route.ops->flags & ROUTE_EXITS)
        t_ok(model_calibrate(m, 1, same_batch, NULL, 1, NULL, &e), &e);
    return m;
}

static void run(struct model *m, enum pass_kind kind)
{
    struct pass pass = kit_pass(kind);
    model_forward(m, &batch.b, &pass);
}

static real *states(const struct model *m)
{
    return kit_copy(m->stream.h[L], kit_states(m));
}

static int has(const struct model *m, unsigned flag)
{
    return (m->route.ops->flags & flag) != 0;
}

T(the_tables_of_a_method_are_complete)
{
    EACH_METHOD(name)
    {
        const struct route_ops *ops = route_find(name);
        t_true(ops && ops->summary && *ops->summary && ops->paper && ops->decide);
        t_true(strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(name));
        t_true(ops->n_metrics <= ROUTE_METRICS_MAX);
        for (const struct route_ops *const *q = route_all(); *q; q++)
            t_true(*q == ops || strcmp((*q)->name, name) != 0);
        for (size_t i = 0; i < ops->n_opts; i++)
            t_truef(ops->opts[i].help && *ops->opts[i].help && ops->opts[i].otherwise, "%s.%s",
                    name, ops->opts[i].key);
        for (size_t i = 0; i < ops->n_metrics; i++)
            t_truef(ops->metrics[i].name && ops->metrics[i].unit && ops->metrics[i].help,
                    "%s: metric %zu", name, i);
        t_truef(!(ops->flags & ROUTE_GRAD) || ops->decide_bwd, "%s wants gradients and takes none",
                name);
        t_truef(!(ops->flags & ROUTE_GATED) || ops->always_on, "%s skips and does not say where",
                name);
    }
}

T(every_option_prints_the_value_it_read)
{
    EACH_METHOD(name)
    {
        struct err e = {0};
        struct model *m = prepared(name, 0);
        char prefix[40], text[256], again[256];
        struct opt_group g = route_group(m->route.ops, prefix);
        for (size_t i = 0; i < g.n; i++) {
            opt_print(&g.opts[i], m->route.opts, text, sizeof text);
            t_ok(opt_set(&g.opts[i], m->route.opts, text, "test", &e), &e);
            opt_print(&g.opts[i], m->route.opts, again, sizeof again);
            t_str(again, text);
        }
        model_free(m);
    }
}

/* Configurations, checkpoints and command lines of earlier versions. */
T(former_names_of_options_and_values_are_read)
{
    static const struct {
        const char *former, *key, *text;
    } rows[] = {
        {"model.method=edp edp.history=held", "edp.history", "kept"},
        {"model.method=dtf dtf.prior_input=held", "dtf.prior_input", "detached"},
        {"model.method=dtf dtf.normalise=true", "dtf.normalize", "true"},
        {"model.method=mod mod.normalise=true", "mod.normalize", "true"},
        {"model.method=stochastic stochastic.use=budget", "stochastic.inference", "budget"},
    };
    for (size_t i = 0; i < DS_LEN(rows); i++) {
        char prefix[40], text[64];
        struct model *m = kit_model(rows[i].former, 1, 8, 0, 0);
        struct opt_group g = route_group(m->route.ops, prefix);
        opt_print(opt_find(&g, rows[i].key), m->route.opts, text, sizeof text);
        t_str(text, rows[i].text);
        model_free(m);
    }
}

/* A live row needs nothing but its flag: its value is written where the row says. */
T(live_settings_are_written_within_their_range_or_not_at_all)
{
    int rows = 0;
    EACH_METHOD(name)
    {
        struct err e = {0};
        struct model *m = prepared(name, 0);
        struct opt_group g = {.opts = m->route.ops->opts, .n = m->route.ops->n_opts};
        for (size_t i = 0; i < g.n; i++) {
            const struct opt *o = &g.opts[i];
            char before[64], after[64];
            if (!o->is_live)
                continue;
            rows++;
            t_truef((o->type == OPT_REAL || o->type == OPT_INT) && o->min < o->max,
                    "%s.%s: a live setting is a number with a range", name, o->key);
            opt_print(o, m->route.opts, before, sizeof before);
            t_fails(route_set(&m->route, o, o->max + 1, &e), &e, DS_ERANGE, o->key);
            opt_print(o, m->route.opts, after, sizeof after);
            t_str(after, before);
            t_ok(route_set(&m->route, o, o->max, &e), &e);
            opt_print(o, m->route.opts, after, sizeof after);
            t_near(strtod(after, NULL), o->max, 0);
        }
        model_free(m);
    }
    t_true(rows >= 10 / METHODS_STEP);
}

T(gathered_equals_masked)
{
    EACH_METHOD(name)
    {
        struct model *m = prepared(name, 0);
        run(m, PASS_MASKED);
        real *masked = states(m);
        run(m, PASS_SPARSE);
        t_truef(kit_same(masked, m->stream.h[L], kit_states(m)), "%s", name);
        free(masked);
        model_free(m);
    }
}

T(recomputed_equals_kept)
{
    EACH_METHOD(name)
    {
        real *grad[2];
        size_t n;
        for (int keep = 0; keep < 2; keep++) {
            struct model *m = prepared(name, keep);
            struct pass pass = kit_pass(PASS_TRAIN);
            kit_step(m, &batch.b, &pass);
            grad[keep] = kit_gradients(m, &n);
            model_free(m);
        }
        t_truef(kit_same(grad[0], grad[1], n), "%s", name);
        free(grad[0]);
        free(grad[1]);
    }
}

T(a_frozen_plan_is_replayed_bit_for_bit)
{
    EACH_METHOD(name)
    {
        struct model *m = prepared(name, 0);
        struct pass pass = kit_pass(PASS_TRAIN);
        size_t n;
        kit_step(m, &batch.b, &pass);
        real *grad = kit_gradients(m, &n), *last = states(m);
        m->route.frozen = 1;
        kit_step(m, &batch.b, &pass);
        real *again = kit_gradients(m, &n);
        t_truef(kit_same(last, m->stream.h[L], kit_states(m)), "%s", name);
        t_truef(kit_same(grad, again, n), "%s", name);
        free(grad);
        free(again);
        free(last);
        model_free(m);
    }
}

/* Whatever else a method does in a split layer (exit early, say) is separate from its FFN gates, so
 * every attention runs here. */
static void all_attention(struct model *m)
{
    for (int l = 0; m->ffn && l < L; l++)
        t_eq(m->plan[l].active, B * T);
}

T(all_gates_one_equals_dense_and_all_gates_zero_equals_the_embedding)
{
    static int8_t force[L * B * T];
    EACH_METHOD(name)
    {
        struct model *m = prepared(name, 0);
        run(m, PASS_DENSE);
        real *dense = states(m);
        for (int one = 0; one < 2; one++)
            for (int kind = PASS_TRAIN; kind <= PASS_SPARSE; kind++) {
                struct pass pass = kit_pass((enum pass_kind)kind);
                memset(force, one, sizeof force);
                pass.inference.force = force;
                pass.unit = 1;
                model_forward(m, &batch.b, &pass);
                t_eq(m->flops.rows_run, one ? L * B * T : 0);
                if (m->ffn && !one)
                    continue; /* attention still runs */
                all_attention(m);
                t_truef(kit_same(m->stream.h[L], one ? dense : m->stream.h[0], kit_states(m)),
                        "%s: %d", name, one);
            }
        free(dense);
        model_free(m);
    }
}

static void check_plan(const char *name, const struct model *m, const struct plan *p, int kind)
{
    int here = 0;
    for (int k = 0; k < p->n; k++) {
        t_true(p->row[k] >= 0 && p->row[k] < B * T && (k == 0 || p->row[k] > p->row[k - 1]));
        t_truef(kind == PASS_TRAIN || p->gate[k] == 1 || kind == PASS_MASKED || has(m, ROUTE_SOFT),
                "%s", name);
        t_truef(isfinite(p->gate[k]), "%s", name);
        here += p->gate[k] != 0;
    }
    t_eq(p->active, here);
    t_truef(kind != PASS_SPARSE || p->n == here, "%s computes rows in use that it skips", name);
}

T(plans_are_ascending_and_agree_with_the_flops)
{
    EACH_METHOD(name)
    for (int kind = PASS_DENSE; kind <= PASS_SPARSE; kind++) {
        struct model *m = prepared(name, 0);
        int64_t active = 0;
        run(m, (enum pass_kind)kind);
        for (int l = 0; l < L; l++) {
            const struct plan *p = model_plan(m, l);
            t_eq(p->layer, l);
            t_true((m->plan[l].span == ROUTE_SPAN_BLOCK) == (m->ffn == NULL));
            check_plan(name, m, p, kind);
            check_plan(name, m, &m->plan[l], kind);
            /* training may drop layers that inference always runs */
            t_truef(!m->route.ops->always_on || !m->route.ops->always_on(&m->route, l) ||
                        p->active == B * T || kind == PASS_TRAIN,
                    "%s: layer %d", name, l);
            active += p->active;
        }
        t_eq(m->flops.rows_run, active);
        t_near(flops_block_ratio(&m->flops), (double)active / (L * B * T), 1e-12);
        model_free(m);
    }
}

T(no_later_token_changes_what_came_before)
{
    EACH_METHOD(name)
    {
        struct model *m = prepared(name, 0);
        size_t C = 32;
        kit_fill(&batch, B, T, V, 7);
        run(m, PASS_SPARSE);
        real *want = states(m);
        for (int j = 1; j < T; j += 8) {
            kit_fill(&batch, B, T, V, 7);
            for (int t = j; t < T; t++)
                batch.id[t] = (batch.id[t] + 1) % V;
            run(m, PASS_SPARSE);
            t_truef(kit_same(m->stream.h[L], want, (size_t)j * C), "%s: token %d", name, j);
            t_truef(kit_same(m->stream.h[L] + T * C, want + T * C, T * C), "%s: another row", name);
        }
        free(want);
        model_free(m);
    }
}

/* Another text in one private span: all rows outside it keep their bits. */
static void check_spans(const char *name)
{
    enum { SHARED = 9, SPAN = 4, FROM = SHARED + 2 * SPAN };
    struct model *m = prepared(name, 0);
    size_t C = 32, before = FROM * C, after = (FROM + SPAN) * C;
    kit_fill(&batch, B, T, V, 7);
    kit_spans(&batch, SHARED, SPAN);
    run(m, PASS_SPARSE);
    real *want = states(m);
    for (int t = FROM; t < FROM + SPAN; t++)
        batch.id[t] = (batch.id[t] + 1) % V;
    run(m, PASS_SPARSE);
    t_truef(kit_same(m->stream.h[L], want, before), "%s: rows before the span", name);
    t_truef(!kit_same(m->stream.h[L] + before, want + before, SPAN * C), "%s: the span", name);
    t_truef(kit_same(m->stream.h[L] + after, want + after, kit_states(m) - after),
            "%s: rows after the span", name);
    free(want);
    model_free(m);
}

T(no_other_row_changes_with_a_private_span)
{
    static const char *const more[] = {"dlr dlr.level=prefix", "dlr dlr.level=prompt dlr.prompt=11",
                                       "dtf dtf.prior=transition dtf.ma_window=5"};
    if (strstr(METHODS_SHAPE, "model.window=")) /* unsupported together */
        return;
    EACH_METHOD(name)
    {
        check_spans(name);
    }
    for (size_t k = 0; k < DS_LEN(more); k++)
        check_spans(more[k]);
}

T(a_prefix_has_the_same_bits_alone)
{
    EACH_METHOD(name)
    {
        struct model *m = prepared(name, 0);
        kit_fill(&batch, B, T, V, 7);
        run(m, PASS_SPARSE);
        real *whole = states(m);
        for (int n = 1; n < T; n += 8) {
            struct batch prefix = {.B = 1, .T = n, .id = batch.id};
            struct pass pass = kit_pass(PASS_SPARSE);
            model_forward(m, &prefix, &pass);
            t_truef(kit_same(m->stream.h[L], whole, (size_t)n * 32), "%s: %d tokens", name, n);
        }
        free(whole);
        model_free(m);
    }
}

/* By rank a later token can displace an earlier one, which is why `topk` is labelled. */
T(decisions_by_rank_are_not_causal)
{
    EACH_METHOD(name)
    {
        struct model *m = prepared(name, 0);
        int changed = 0;
        struct pass pass = kit_pass(PASS_SPARSE);
        struct err e = {0};
        pass.inference.topk = 1;
        if (!has(m, ROUTE_TOPK)) {
            t_fails(route_ready(&m->route, &pass, &e), &e, DS_EUSAGE, "causal");
            model_free(m);
            continue;
        }
        t_ok(route_ready(&m->route, &pass, &e), &e);
        for (uint64_t seed = 20; seed < 60 && !changed; seed++) {
            kit_fill(&batch, B, T, V, seed);
            model_forward(m, &batch.b, &pass);
            real *want = states(m);
            batch.id[T - 1] = (batch.id[T - 1] + 1) % V;
            model_forward(m, &batch.b, &pass);
            changed = !kit_same(m->stream.h[L], want, (size_t)(T - 1) * 32);
            free(want);
        }
        t_truef(changed, "%s: topk keeps the promise of causality, and is labelled otherwise",
                name);
        model_free(m);
    }
}

T(a_row_has_the_same_bits_alone_and_in_a_batch)
{
    EACH_METHOD(name)
    {
        struct model *m = prepared(name, 0);
        kit_fill(&batch, B, T, V, 7);
        run(m, PASS_SPARSE);
        real *both = states(m);
        for (int s = 0; s < B; s++) {
            struct batch one = {.B = 1, .T = T, .id = batch.id + s * T};
            struct pass pass = kit_pass(PASS_SPARSE);
            model_forward(m, &one, &pass);
            t_truef(kit_same(m->stream.h[L], both + (size_t)s * T * 32, (size_t)T * 32), "%s: %d",
                    name, s);
        }
        free(both);
        model_free(m);
    }
}

T(sequences_of_one_token_work)
{
    EACH_METHOD(name)
    {
        struct model *m = prepared(name, 0);
        for (int kind = PASS_DENSE; kind <= PASS_SPARSE; kind++) {
            struct pass pass = kit_pass((enum pass_kind)kind);
            kit_fill(&batch, 3, 1, V, 7);
            if (kind == PASS_TRAIN)
                kit_step(m, &batch.b, &pass);
            else
                model_forward(m, &batch.b, &pass);
            for (size_t i = 0; i < kit_states(m); i++)
                t_truef(isfinite(m->stream.h[L][i]), "%s", name);
        }
        model_free(m);
    }
}

static int runs_at(const struct plan *p, int row)
{
    for (int k = 0; k < p->n; k++)
        if (p->row[k] == row)
            return p->gate[k] != 0;
    return 0;
}

/* In a loop: did nothing change the row since this block last saw it, one iteration ago? */
static int keeps_keys(const struct model *m, int l, int row)
{
    struct route_loop loop = model_config_loop(&m->config);
    if (m->config.loop == 1 || l < loop.start + loop.group || l >= loop.end)
        return 0;
    if (m->plan[l - loop.group].kv != KV_ALL || m->route.ops->enter)
        return 0;
    for (int k = l - loop.group; k < l; k++)
        if (runs_at(&m->plan[k], row) || runs_at(model_plan(m, k), row))
            return 0;
    return 1;
}

/* The router, the gate of the shared expert, and the experts that the row chose. */
static double expert_flops(const struct model *m, int l, int row)
{
    int k = (int)m->config.experts_used, C = (int)m->config.dim;
    const int32_t *chosen =
        m->experts.chosen + ((size_t)l * (size_t)m->R + (size_t)row) * (size_t)k;
    int64_t choices = m->config.experts + m->config.experts_noop;
    double sum = 2.0 * C * (double)(choices + m->config.shared_gate);
    for (int j = 0; j < k; j++) {
        t_true(chosen[j] >= 0 && chosen[j] < choices);
        t_true(j == 0 || chosen[j] > chosen[j - 1]);
        sum += chosen[j] < m->config.experts ? 6.0 * C * (double)m->config.expert_ffn : 0;
    }
    return sum;
}

/* An independent count: from the documents of the batch and the lists of rows, without
 * routing/flops.c. */
static double counted(const struct model *m)
{
    const struct flops_shape s = model_config_flops(&m->config);
    double sum = 2.0 * s.C * s.V * m->R + m->flops.decisions;
    for (int l = 0; l < L; l++) {
        const struct plan *p = &m->plan[l], *f = model_plan(m, l);
        for (int i = 0; i < m->R; i++)
            sum += m->route.ops->flops && m->route.pass.kind != PASS_DENSE
                       ? m->route.ops->flops(&m->route, l)
                       : 0;
        for (int i = 0; i < m->R; i++)
            if (runs_at(p, i) || (p->kv == KV_ALL && !keeps_keys(m, l, i)))
                sum += 4.0 * s.C * s.K * s.D;
        for (int k = 0; k < p->n; k++) {
            int keys = 0, window = (int)model_config_window(&m->config, l), row = p->row[k];
            int first = m->first_row[row];
            if (window > 0 && first < row - window + 1)
                first = row - window + 1;
            for (int j = 0; p->kv == KV_PLAN && j <= k; j++)
                keys += p->gate[j] != 0 && p->row[j] >= first;
            if (p->kv == KV_ALL)
                keys = row - first + 1;
            if (p->gate[k] != 0)
                sum += 4.0 * s.C * s.H * s.D + 4.0 * keys * s.H * s.D;
        }
        int has_experts = model_config_has_experts(&m->config, model_config_block(&m->config, l));
        sum += f->active * 2.0 * s.mlp_mats * s.C * (has_experts ? s.shared_F : s.F);
        for (int k = 0; k < f->n && has_experts; k++)
            sum += f->gate[k] != 0 ? expert_flops(m, l, f->row[k]) : 0;
    }
    return sum;
}

T(flops_match_an_independent_count)
{
    EACH_METHOD(name)
    for (int kind = PASS_DENSE; kind <= PASS_SPARSE; kind++) {
        struct model *m = prepared(name, 0);
        run(m, (enum pass_kind)kind);
        double want = counted(m);
        t_near(flops_total(&m->flops) / want, 1, 1e-12);
        t_true((m->experts.noops > 0) == (m->config.experts_noop > 0));
        t_truef(kind != PASS_DENSE || m->experts.noops > 0 ||
                    fabs(flops_model_ratio(&m->flops) - 1) < 1e-12,
                "%s", name);
        model_free(m);
    }
}

T(cached_equals_whole)
{
    EACH_METHOD(name)
    {
        struct err e = {0};
        struct kv_cache *cache = NULL;
        struct model *m = prepared(name, 0);
        struct batch one = {.B = 1, .T = T, .id = batch.id};
        struct pass pass = kit_pass(PASS_SPARSE);
        real whole[V], got[V];
        model_forward(m, &one, &pass);
        model_logits(m, T - 1, whole);
        t_ok(kv_cache_new(&cache, m, T, &e), &e);
        for (int by_token = 0; by_token < 2; by_token++) {
            kv_cache_reset(cache);
            for (int at = 0, n = by_token ? 1 : 9; at < T;
                 at += n, n = !by_token && at + 5 < T ? 5 : 1)
                t_ok(model_decode(m, cache, batch.id + at, n, &pass, &e), &e);
            model_logits(m, m->R - 1, got);
            for (int v = 0; v < V; v++)
                t_near(got[v], whole[v], KIT_NEAR);
        }
        kv_cache_free(cache);
        model_free(m);
    }
}

enum { SEQUENCES = 3, STEPS = 12 };

/* Continues sequences of 2, 5 and 8 tokens, alone (which >= 0) or batched; logits and FLOPs of
 * every step. */
static void go_on(struct model *m, struct kv_cache **c, int which, real *logits, double *flops)
{
    struct pass pass = kit_pass(PASS_SPARSE);
    struct err e = {0};
    int from = which < 0 ? 0 : which, n = which < 0 ? SEQUENCES : 1;
    int32_t id[SEQUENCES];
    for (int s = from; s < from + n; s++) {
        kv_cache_reset(c[s]);
        t_ok(model_decode(m, c[s], batch.id + 20 * s, 2 + 3 * s, &pass, &e), &e);
    }
    for (int k = 0; k < STEPS; k++) {
        for (int s = 0; s < n; s++)
            id[s] = batch.id[(20 * (from + s) + 2 + 3 * (from + s) + k) % (B * T)];
        t_ok(model_decode_batch(m, c + from, n, id, 1, &pass, &e), &e);
        model_logits_rows(m, 0, n, logits + (k * SEQUENCES + from) * V);
        for (int s = 0; s < n; s++)
            flops[k * SEQUENCES + from + s] = m->flops.token[s];
    }
}

T(batched_decoding_equals_separate_decoding)
{
    EACH_METHOD(name)
    {
        enum { CELLS = SEQUENCES * STEPS };
        struct err e = {0};
        struct kv_cache *c[SEQUENCES] = {NULL};
        struct model *m = prepared(name, 0);
        real alone[CELLS * V], together[CELLS * V];
        double cost[2][CELLS];
        for (int s = 0; s < SEQUENCES; s++)
            t_ok(kv_cache_new(&c[s], m, T, &e), &e);
        for (int s = 0; s < SEQUENCES; s++)
            go_on(m, c, s, alone, cost[0]);
        go_on(m, c, -1, together, cost[1]);
        t_truef(kit_same(alone, together, CELLS * V), "%s: logits", name);
        t_truef(memcmp(cost[0], cost[1], sizeof cost[0]) == 0, "%s: FLOPs", name);
        for (int s = 0; s < SEQUENCES; s++)
            kv_cache_free(c[s]);
        model_free(m);
    }
}

/* Everything a method needs at inference is in its parameters. */
T(a_saved_and_loaded_model_makes_the_same_decisions)
{
    EACH_METHOD(name)
    {
        struct err e = {0};
        char path[512];
        const char *dir = t_tmpdir();
        struct model *m = prepared(name, 0), *copy = NULL;
        run(m, PASS_SPARSE);
        snprintf(path, sizeof path, "%s/config.json", dir);
        t_ok(model_write_config(m, path, &e), &e);
        snprintf(path, sizeof path, "%s/model.safetensors", dir);
        t_ok(model_write_weights(m, path, 0, &e), &e);
        t_ok(model_open(&copy, dir, NULL, 0, &e), &e);
        t_ok(weights_use(copy, &m->weights.numbers, &e), &e);
        t_ok(model_reserve(copy, B * T, 0, 0, &e), &e);
        copy->route.seed =
            m->route.seed; /* random draws depend on the run's seed, which the caller supplies */
        run(copy, PASS_SPARSE);
        t_truef(kit_same(m->stream.h[L], copy->stream.h[L], kit_states(m)), "%s", name);
        model_free(copy);
        model_free(m);
    }
}

T(a_recorded_pass_fills_its_cells_and_changes_nothing)
{
    EACH_METHOD(name)
    {
        struct model *m = prepared(name, 0);
        struct pass pass = kit_pass(PASS_SPARSE);
        const struct route_ops *ops = m->route.ops;
        run(m, PASS_SPARSE);
        real *want = states(m);
        pass.record = 1;
        model_forward(m, &batch.b, &pass);
        t_truef(kit_same(m->stream.h[L], want, kit_states(m)), "%s", name);
        for (size_t k = 0; k < ops->n_metrics; k++) {
            int filled = 0;
            for (int i = 0; ops->metrics[k].scope == METRIC_CELL && i < L * B * T; i++)
                filled += isfinite(m->route.cell[k][i]) != 0;
            t_truef(ops->metrics[k].scope != METRIC_CELL || filled > 0, "%s: %s is empty", name,
                    ops->metrics[k].name);
        }
        free(want);
        model_free(m);
    }
}

/* A reader gets back which cells ran and every cell value, to the last bit of a float. */
static void check_read(const char *name, const struct model *m, const struct probe *p)
{
    const struct route_ops *ops = m->route.ops;
    for (int l = 0; l < L; l++)
        for (int i = 0, k = 0; i < T; i++) {
            const struct plan *plan = model_plan(m, l);
            int listed = k < plan->n && plan->row[k] == i, runs = listed && plan->gate[k] != 0;
            k += listed;
            t_truef(p->run[l * T + i] == runs, "%s: layer %d, token %d", name, l, i);
        }
    for (size_t k = 0; k < ops->n_metrics; k++) {
        if (ops->metrics[k].scope != METRIC_CELL)
            continue;
        const struct matrix *x = probe_cell(p, ops->metrics[k].name);
        t_truef(x && x->rows == L && x->cols == T, "%s: %s", name, ops->metrics[k].name);
        for (int i = 0; i < L * T; i++) {
            float want = (float)m->route.cell[k][i];
            t_true(memcmp(&x->v[i], &want, sizeof want) == 0 || (isnan(x->v[i]) && isnan(want)));
        }
    }
}

T(recorded_cells_are_read_back)
{
    static const char *piece[T];
    static size_t len[T];
    EACH_METHOD(name)
    {
        struct err e = {0};
        struct model *m = prepared(name, 0);
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
        struct trace_options o = {.kind = PASS_SPARSE, .seed = 5};
        snprintf(path, sizeof path, "%s/%s.mp", t_tmpdir(), name);
        trace_run(m, &text, &o, rec);
        t_ok(runlog_writer_open(&w, path, &e), &e);
        t_ok(runlog_append(w, rec, &e), &e);
        runlog_writer_close(w);
        t_ok(runview_open(&v, path, &e), &e);
        const struct probe *p = runview_probe(v, -1);
        t_true(p && p->layers == L && p->tokens == T);
        check_read(name, m, p);
        runview_free(v);
        record_free(rec);
        model_free(m);
    }
}

T(any_capacity_can_be_requested)
{
    EACH_METHOD(name)
    {
        struct err e = {0};
        struct model *m = prepared(name, 0);
        struct pass pass = kit_pass(PASS_SPARSE);
        int64_t last = -1;
        pass.inference.has_capacity = 1;
        pass.inference.capacity = 0.5;
        if (!has(m, ROUTE_CAPACITY)) {
            t_fails(route_ready(&m->route, &pass, &e), &e, DS_EUSAGE, "capacity");
            model_free(m);
            continue;
        }
        for (int i = 0; i <= 4; i++) {
            pass.inference.capacity = 0.25 * i;
            t_ok(route_ready(&m->route, &pass, &e), &e);
            model_forward(m, &batch.b, &pass);
            for (size_t k = 0; k < kit_states(m); k++)
                t_truef(isfinite(m->stream.h[L][k]), "%s at %g", name, pass.inference.capacity);
            t_truef(i == 0 || m->flops.rows_run > last || last == L * B * T, "%s at %g: %lld", name,
                    pass.inference.capacity, (long long)m->flops.rows_run);
            last = m->flops.rows_run;
            for (int l = 0; i == 0 && l < L; l++)
                t_truef(model_plan(m, l)->active == 0 || m->route.ops->always_on(&m->route, l),
                        "%s: layer %d runs at 0", name, l);
        }
        for (int i = 0; i < 2; i++) {
            pass.inference.capacity = i ? 1.5 : -0.5;
            t_fails(route_ready(&m->route, &pass, &e), &e, DS_ERANGE, "capacity");
        }
        model_free(m);
    }
}

T(a_higher_threshold_runs_less)
{
    EACH_METHOD(name)
    {
        struct model *m = prepared(name, 0);
        struct pass pass = kit_pass(PASS_SPARSE);
        int64_t ran[3];
        if (!has(m, ROUTE_GATED) || has(m, ROUTE_CONTROL)) {
            model_free(m);
            continue;
        }
        for (int i = 0; i < 3; i++) {
            pass.inference.offset = 50.0 * (i - 1);
            model_forward(m, &batch.b, &pass);
            ran[i] = m->flops.rows_run;
        }
        t_truef(ran[0] > ran[2] && ran[0] >= ran[1] && ran[1] >= ran[2], "%s: %lld, %lld, %lld",
                name, (long long)ran[0], (long long)ran[1], (long long)ran[2]);
        model_free(m);
    }
}

T(an_unknown_option_of_a_method_is_refused)
{
    EACH_METHOD(name)
    {
        struct err e = {0};
        struct model *m = NULL;
        char text[128];
        snprintf(text, sizeof text, "model.method=%s model.layers=8 %s.no_such=1", name, name);
        t_fails(kit_try(&m, text, 1, 0, &e), &e, DS_EUSAGE, "no_such");
        model_free(m);
    }
}
