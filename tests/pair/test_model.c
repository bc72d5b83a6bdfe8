/* Two ways to the same result: gathered and masked, kept and recomputed, cached and whole, alone
 * and in a batch, one thread and many.  Bits are compared wherever sums have the same order. */
#include "base/pool.h"
#include "kit.h"

enum { B = 3, T = 37, V = 61, L = 6 };

static struct kit_batch batch;

static const char *const shapes[] = {
    "model.dim=48 model.heads=3",
    "model.dim=64 model.heads=4 model.kv_heads=2 model.norm=layer model.position=learned "
    "model.mlp=gelu "
    "model.attn_bias=true model.mlp_bias=true model.tied=false",
    "model.dim=48 model.heads=3 model.layers=4 model.loop=2 model.loop_first=1 model.loop_last=1 "
    "model.loop_inject=add",
    "model.dim=48 model.heads=3 model.layers=1 model.loop=6",
    "model.dim=48 model.heads=3 model.experts=5 model.experts_used=2 model.expert_ffn=32 "
    "model.shared_ffn=16",
};
static const char *const methods[] = {
    "model.method=dense",
    "model.method=edp edp.target_ratio=0.7",
    "model.method=edp edp.target_ratio=0.7 edp.kv=plan edp.signal=velocity edp.step_code=every",
    "model.method=edp edp.history=literal edp.signal=speed edp.step_code=every edp.budget=off",
    "model.method=random random.target_ratio=0.6",
    "model.method=random random.target_ratio=0.6 random.kv=plan",
    "model.method=static static.target_ratio=0.6",
    "model.method=static static.target_ratio=0.6 static.kv=plan",
    "model.method=static static.target_ratio=0.5 static.pattern=layers",
};

/* Weights large enough that layers matter, and statistics that are not the initial ones. */
static struct model *prepared(const char *shape, const char *method, int keep)
{
    char text[512];
    snprintf(text, sizeof text,
             "model.layers=%d model.vocab=%d model.max_seq=64 model.init_std=0.1 %s %s", L, V,
             shape, method);
    struct model *m = kit_model(text, 3, B * T, 1, keep);
    struct pass pass = kit_pass(PASS_TRAIN);
    kit_shake(m, 0.02, 4);
    kit_step(m, &batch.b, &pass);
    if (m->route.ops->update)
        m->route.ops->update(&m->route);
    return m;
}

static void inputs(int with_documents)
{
    kit_fill(&batch, B, T, V, 2);
    if (with_documents)
        kit_documents(&batch);
}

#define EACH_MODEL(shape, method)                                                                  \
    for (size_t s_ = 0; s_ < sizeof shapes / sizeof *shapes; s_++)                                 \
        for (size_t m_ = 0; m_ < sizeof methods / sizeof *methods; m_++)                           \
            for (const char *shape = shapes[s_], *method = methods[m_]; shape; shape = NULL)

static void run(struct model *m, enum pass_kind kind)
{
    struct pass pass = kit_pass(kind);
    model_forward(m, &batch.b, &pass);
}

static real *last_states(const struct model *m)
{
    return kit_copy(m->stream.h[L], kit_states(m));
}

static void expect_same(const char *what, const char *method, const real *a, const real *b,
                        size_t n)
{
    size_t differ = 0;
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        differ += memcmp(a + i, b + i, sizeof *a) != 0;
        worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
    }
    t_truef(differ == 0, "%s: %s: %zu of %zu differ, most by %.3g", what, method, differ, n, worst);
}

static int rows_skipped(const struct model *m)
{
    return (int)(m->flops.rows - m->flops.rows_run);
}

T(gathered_rows_equal_masked_rows)
{
    EACH_MODEL(shape, method)
    for (int documents = 0; documents < 2; documents++) {
        inputs(documents);
        struct model *m = prepared(shape, method, 0);
        run(m, PASS_MASKED);
        real *masked = last_states(m);
        double flops = flops_total(&m->flops);
        run(m, PASS_SPARSE);
        expect_same("gathered", method, m->stream.h[L], masked, kit_states(m));
        t_true(flops == flops_total(&m->flops));
        t_truef(strstr(method, "dense") || rows_skipped(m) > 50, "%s: %d cells skipped", method,
                rows_skipped(m));
        free(masked);
        model_free(m);
    }
}

T(recomputed_blocks_give_the_gradients_of_kept_ones)
{
    EACH_MODEL(shape, method)
    {
        size_t n;
        real *grad[2];
        inputs(1);
        for (int keep = 0; keep < 2; keep++) {
            struct pass pass = kit_pass(PASS_TRAIN);
            struct model *m = prepared(shape, method, keep);
            t_eq(m->keep, keep);
            kit_step(m, &batch.b, &pass);
            grad[keep] = kit_gradients(m, &n);
            model_free(m);
        }
        expect_same("recomputed", method, grad[0], grad[1], n);
        free(grad[0]);
        free(grad[1]);
    }
}

T(sparse_and_masked_training_have_the_same_gradients_without_gate_gradients)
{
    static const char *const pair[][2] = {
        {"model.method=random random.train=sparse", "model.method=random random.train=masked"},
        {"model.method=random random.train=sparse random.kv=plan",
         "model.method=random random.train=masked random.kv=plan"},
        {"model.method=static static.train=sparse", "model.method=static static.train=masked"},
    };
    inputs(1);
    for (size_t k = 0; k < 3; k++) {
        struct pass pass = kit_pass(PASS_TRAIN);
        size_t n;
        real *grad[2];
        for (int i = 0; i < 2; i++) {
            struct model *m = prepared(shapes[0], pair[k][i], 0);
            kit_step(m, &batch.b, &pass);
            grad[i] = kit_gradients(m, &n);
            model_free(m);
        }
        double num = 0, den = 0; /* sums over rows are cut elsewhere: close, not equal */
        for (size_t i = 0; i < n; i++) {
            num += pow((double)grad[0][i] - (double)grad[1][i], 2);
            den += pow((double)grad[1][i], 2);
        }
        t_truef(sqrt(num / den) < 1e-5, "%s: %.3g", pair[k][0], sqrt(num / den));
        free(grad[0]);
        free(grad[1]);
    }
}

static double largest(const real *x, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)x[i]));
    return most;
}

/* Feeds the first row of the batch in chunks of the given sizes (the last one repeats) and compares
 * each chunk's last logits. */
static void check_decode(struct model *m, const char *method, enum pass_kind kind, const int *chunk,
                         int chunks)
{
    struct err e = {0};
    struct kv_cache *cache = NULL;
    real whole[T][V], got[V];
    struct batch one = {.B = 1, .T = T, .id = batch.id};
    struct pass pass = kit_pass(kind);
    double flops = 0;
    model_forward(m, &one, &pass);
    double want_flops = flops_total(&m->flops), want_dense = m->flops.dense, dense = 0;
    for (int t = 0; t < T; t++)
        model_logits(m, t, whole[t]);
    t_ok(kv_cache_new(&cache, m, T, &e), &e);
    for (int at = 0, k = 0; at < T; k++) {
        int n = chunk[k < chunks ? k : chunks - 1];
        n = at + n > T ? T - at : n;
        struct pass part = kit_pass(kind);
        t_ok(model_decode(m, cache, batch.id + at, n, &part, &e), &e);
        flops += flops_total(&m->flops);
        dense += m->flops.dense;
        at += n;
        model_logits(m, n - 1, got);
        double scale = largest(whole[at - 1], V);
        for (int v = 0; v < V; v++)
            t_truef(fabs((double)got[v] - (double)whole[at - 1][v]) <= KIT_NEAR / 5 * scale,
                    "%s: token %d: %g, want %g", method, at - 1, (double)got[v],
                    (double)whole[at - 1][v]);
    }
    t_near(flops, want_flops, 1e-9 * want_flops);
    t_near(dense, want_dense, 1e-9 * want_dense);
    t_fails(model_decode(m, cache, batch.id, 1, &pass, &e), &e, DS_ERANGE, "context is full");
    kv_cache_free(cache);
}

T(cached_decode_equals_the_whole_pass)
{
    static const int prefill[] = {20, 1}, mixed[] = {7, 11, 1, 1, 5}, single[] = {1}, all[] = {T};
    EACH_MODEL(shape, method)
    {
        inputs(0);
        struct model *m = prepared(shape, method, 0);
        check_decode(m, method, PASS_SPARSE, prefill, 2);
        check_decode(m, method, PASS_SPARSE, mixed, 5);
        check_decode(m, method, PASS_SPARSE, single, 1);
        check_decode(m, method, PASS_SPARSE, all, 1);
        check_decode(m, method, PASS_DENSE, prefill, 2);
        model_free(m);
    }
}

T(a_reset_cache_starts_afresh)
{
    struct err e = {0};
    struct kv_cache *cache = NULL;
    real first[V], again[V];
    inputs(0);
    struct model *m = prepared(shapes[0], methods[2], 0);
    struct pass pass = kit_pass(PASS_SPARSE);
    t_ok(kv_cache_new(&cache, m, T, &e), &e);
    t_ok(model_decode(m, cache, batch.id, 9, &pass, &e), &e);
    model_logits(m, 8, first);
    t_ok(model_decode(m, cache, batch.id + 9, 9, &pass, &e), &e);
    kv_cache_reset(cache);
    t_ok(model_decode(m, cache, batch.id, 9, &pass, &e), &e);
    model_logits(m, 8, again);
    t_true(kit_same(first, again, V));
    kv_cache_free(cache);
    model_free(m);
}

T(learned_positions_end_where_their_table_ends)
{
    struct err e = {0};
    struct kv_cache *cache = NULL;
    inputs(0);
    struct model *m =
        kit_model("model.layers=2 model.dim=16 model.heads=2 model.vocab=61 model.max_seq=8 "
                  "model.position=learned model.method=dense",
                  1, 16, 0, 0);
    struct pass pass = kit_pass(PASS_SPARSE);
    t_ok(kv_cache_new(&cache, m, 16, &e), &e);
    t_ok(model_decode(m, cache, batch.id, 8, &pass, &e), &e);
    t_fails(model_decode(m, cache, batch.id, 1, &pass, &e), &e, DS_ERANGE, "model.max_seq=8");
    kv_cache_free(cache);
    model_free(m);
}

T(any_number_of_threads_gives_the_same_bits)
{
    static const int threads[] = {1, 2, 3, 7};
    struct err e = {0};
    EACH_MODEL(shape, method)
    {
        real *want = NULL, *states = NULL;
        inputs(1);
        for (size_t k = 0; k < 4; k++) {
            struct pass pass = kit_pass(PASS_TRAIN);
            size_t n;
            t_ok(pool_start(threads[k], &e), &e);
            struct model *m = prepared(shape, method, 0);
            kit_step(m, &batch.b, &pass);
            real *grad = kit_gradients(m, &n);
            if (!want) {
                want = kit_copy(grad, n);
                states = last_states(m);
            }
            expect_same("threads", method, grad, want, n);
            expect_same("threads", method, m->stream.h[L], states, kit_states(m));
            free(grad);
            model_free(m);
            pool_stop();
        }
        free(want);
        free(states);
    }
}

T(all_gates_one_is_the_dense_model)
{
    static int8_t force[L * B * T];
    memset(force, 1, sizeof force);
    EACH_MODEL(shape, method)
    {
        inputs(1);
        struct model *m = prepared(shape, method, 0);
        if (strstr(method, "step_code=every")) { /* not the identity unless its code is 0 */
            struct param *codes = &m->params.p[params_find(&m->params, "edp.step_codes")];
            memset(codes->value, 0, codes->n * sizeof(real));
        }
        run(m, PASS_DENSE);
        real *dense = last_states(m);
        for (int kind = PASS_TRAIN; kind <= PASS_SPARSE; kind++) {
            struct pass pass = kit_pass((enum pass_kind)kind);
            pass.inference.force = force;
            model_forward(m, &batch.b, &pass);
            expect_same("forced", method, m->stream.h[L], dense, kit_states(m));
            t_eq(rows_skipped(m), 0);
        }
        free(dense);
        model_free(m);
    }
}

T(all_gates_zero_leave_the_embedding)
{
    static int8_t force[L * B * T];
    memset(force, 0, sizeof force);
    EACH_MODEL(shape, method)
    {
        inputs(1);
        struct model *m = prepared(shape, method, 0);
        for (int kind = PASS_TRAIN; kind <= PASS_SPARSE; kind++) {
            struct pass pass = kit_pass((enum pass_kind)kind);
            pass.inference.force = force;
            model_forward(m, &batch.b, &pass);
            t_eq(m->flops.rows_run, 0);
            if (!strstr(method, "step_code=every"))
                expect_same("forced", method, m->stream.h[L], m->stream.h[0], kit_states(m));
        }
        model_free(m);
    }
}

/* The executed cells, as one string of bits. */
static void decisions(const struct model *m, uint8_t *out)
{
    memset(out, 0, (size_t)L * B * T);
    for (int l = 0; l < L; l++)
        for (int k = 0; k < m->plan[l].n; k++)
            out[l * m->R + m->plan[l].row[k]] = m->plan[l].gate[k] != 0;
}

T(a_later_token_changes_no_earlier_state_or_gate)
{
    static uint8_t before[L * B * T], after[L * B * T];
    EACH_MODEL(shape, method)
    {
        inputs(0);
        struct model *m = prepared(shape, method, 0);
        size_t C = (size_t)m->config.dim;
        run(m, PASS_SPARSE);
        real *want = last_states(m);
        decisions(m, before);
        for (int j = T - 1; j > 0; j -= 9) {
            inputs(0);
            for (int i = 0; i < B; i++)
                batch.id[i * T + j] = (batch.id[i * T + j] + 7) % V;
            run(m, PASS_SPARSE);
            decisions(m, after);
            for (int i = 0; i < B; i++) {
                size_t at = (size_t)i * T * C;
                expect_same("prefix", method, m->stream.h[L] + at, want + at, (size_t)j * C);
                t_true(
                    !kit_same(m->stream.h[L] + at + (size_t)j * C, want + at + (size_t)j * C, C));
                for (int l = 0; l < L; l++)
                    t_true(memcmp(before + l * B * T + i * T, after + l * B * T + i * T,
                                  (size_t)j) == 0);
            }
        }
        free(want);
        model_free(m);
    }
}

T(a_sequence_is_the_same_alone_and_in_a_batch)
{
    EACH_MODEL(shape, method)
    {
        inputs(0);
        struct model *m = prepared(shape, method, 0);
        size_t C = (size_t)m->config.dim;
        run(m, PASS_SPARSE);
        real *want = last_states(m);
        for (int i = 0; i < B; i++) {
            struct batch one = {.B = 1, .T = T, .id = batch.id + i * T};
            struct pass pass = kit_pass(PASS_SPARSE);
            model_forward(m, &one, &pass);
            expect_same("alone", method, m->stream.h[L], want + (size_t)i * T * C, (size_t)T * C);
        }
        free(want);
        model_free(m);
    }
}

T(permuting_the_sequences_permutes_the_results)
{
    EACH_MODEL(shape, method)
    {
        static int32_t id[B * T];
        inputs(0);
        struct model *m = prepared(shape, method, 0);
        size_t part = (size_t)T * (size_t)m->config.dim;
        run(m, PASS_SPARSE);
        real *want = last_states(m);
        for (int i = 0; i < B * T; i++)
            id[i] = batch.id[(i / T + 1) % B * T + i % T];
        struct batch turned = {.B = B, .T = T, .id = id};
        struct pass pass = kit_pass(PASS_SPARSE);
        model_forward(m, &turned, &pass);
        for (size_t i = 0; i < B; i++)
            expect_same("permuted", method, m->stream.h[L] + i * part, want + (i + 1) % B * part,
                        part);
        free(want);
        model_free(m);
    }
}

T(documents_do_not_attend_to_each_other)
{
    EACH_MODEL(shape, method)
    {
        inputs(1);
        struct model *m = prepared(shape, method, 0);
        size_t C = (size_t)m->config.dim;
        run(m, PASS_SPARSE);
        real *want = last_states(m);
        for (int i = 0; i < B;
             i++) { /* documents of the first row start at 0, 2 and 5, and so on */
            int s = 2 + i, start[4] = {0, s, 2 * s + 1, T};
            for (int d = 0; d < 3; d++) {
                struct batch one = {
                    .B = 1, .T = start[d + 1] - start[d], .id = batch.id + i * T + start[d]};
                struct pass pass = kit_pass(PASS_SPARSE);
                model_forward(m, &one, &pass);
                expect_same("document", method, m->stream.h[L],
                            want + ((size_t)i * T + (size_t)start[d]) * C, (size_t)one.T * C);
            }
        }
        free(want);
        model_free(m);
    }
}

/* Shared rows, then one span: what its rows give and cost is the same with other spans before it,
 * up to the order of sums, and bitwise the same masked and gathered. */
T(a_private_span_sees_what_it_would_see_alone)
{
    enum { SHARED = 7, SPAN = 5 };
    for (size_t k = 0; k < 2; k++) {
        inputs(0);
        struct model *m = prepared(shapes[k], methods[k ? 7 : 0], 0); /* dense; static, kv=plan */
        kit_spans(&batch, SHARED, SPAN);
        run(m, PASS_MASKED);
        real *masked = last_states(m);
        run(m, PASS_SPARSE);
        expect_same("masked", methods[k ? 7 : 0], masked, m->stream.h[L], kit_states(m));
        real *all = last_states(m);
        double cost[B * T];
        memcpy(cost, m->flops.token, sizeof cost);
        size_t C = (size_t)m->config.dim;
        for (int from = SHARED; from < T; from += SPAN) {
            struct kit_batch one = batch;
            struct pass pass = kit_pass(PASS_SPARSE);
            memcpy(one.id + SHARED, batch.id + from, SPAN * sizeof *one.id);
            one.b = (struct batch){.B = 1, .T = SHARED + SPAN, .id = one.id};
            model_forward(m, &one.b, &pass);
            for (int i = SHARED; i < SHARED + SPAN; i++) {
                int row = from + i - SHARED;
                t_near(m->flops.token[i], cost[row], 0);
                for (size_t d = 0; d < C; d++)
                    t_near(m->stream.h[L][(size_t)i * C + d], all[(size_t)row * C + d],
                           KIT_COMPUTE == COMPUTE_BF16 ? 2e-2 : 2e-5);
            }
        }
        free(masked);
        free(all);
        model_free(m);
    }
}

T(a_pass_does_not_affect_the_next)
{
    EACH_MODEL(shape, method)
    {
        inputs(1);
        struct model *m = prepared(shape, method, 0);
        run(m, PASS_SPARSE);
        real *want = last_states(m);
        static const enum pass_kind between[] = {PASS_DENSE, PASS_TRAIN, PASS_MASKED, PASS_SPARSE};
        for (int k = 0; k < 4; k++) {
            run(m, between[k]);
            run(m, PASS_SPARSE);
            expect_same("after another pass", method, m->stream.h[L], want, kit_states(m));
        }
        free(want);
        model_free(m);
    }
}

T(buffers_only_grow)
{
    struct err e = {0};
    inputs(0);
    struct model *m = prepared(shapes[0], methods[1], 1);
    struct pass pass = kit_pass(PASS_TRAIN);
    size_t n;
    kit_step(m, &batch.b, &pass);
    real *want = kit_gradients(m, &n);
    t_ok(model_reserve(m, 2 * B * T, 0, 0, &e), &e); /* a longer evaluation between two steps */
    t_ok(model_reserve(m, 5, 0, 0, &e), &e);
    t_true(m->keep && m->stream.dh && m->R_max >= 2 * B * T);
    kit_step(m, &batch.b, &pass);
    real *got = kit_gradients(m, &n);
    expect_same("after growing", methods[1], got, want, n);
    free(want);
    free(got);
    model_free(m);
}
