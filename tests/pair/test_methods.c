/* What every registered method must keep, whatever it decides: the list runs over the registry, so a new method is tested
 * by its line there.  Its gradients are in tests/grad. */
#include "kit.h"
#include "models/load.h"

enum { B = 2, T = 33, V = 53, L = 8 };

static struct kit_batch batch;

#define EACH_METHOD(name)                                                                          \
    for (const struct route_ops *const *o_ = route_all(); *o_; o_++)                               \
        for (const char *name = (*o_)->name; name; name = NULL)

/* Default options, a model that has seen three steps. */
static struct model *prepared(const char *name, int keep)
{
    char text[256];
    snprintf(text, sizeof text,
             "model.layers=%d model.dim=32 model.heads=2 model.vocab=%d model.init_std=0.1 "
             "model.method=%s",
             L, V, name);
    struct model *m = kit_model(text, 3, B * T, 1, keep);
    for (int step = 1; step <= 3; step++) {
        kit_fill(&batch, B, T, V, (uint64_t)step);
        kit_documents(&batch);
        kit_train(m, &batch.b, step, 10, 1e-3);
    }
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

T(the_tables_of_a_method_are_whole)
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

T(every_option_prints_what_it_reads)
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

T(all_gates_one_is_dense_and_all_gates_zero_is_the_embedding)
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
                pass.force = force;
                model_forward(m, &batch.b, &pass);
                t_truef(kit_same(m->stream.h[L], one ? dense : m->stream.h[0], kit_states(m)),
                        "%s: %d", name, one);
                t_eq(m->flops.rows_run, one ? L * B * T : 0);
            }
        free(dense);
        model_free(m);
    }
}

T(plans_are_ascending_and_agree_with_the_flops)
{
    EACH_METHOD(name)
    for (int kind = PASS_DENSE; kind <= PASS_SPARSE; kind++) {
        struct model *m = prepared(name, 0);
        int64_t active = 0;
        run(m, (enum pass_kind)kind);
        for (int l = 0; l < L; l++) {
            const struct plan *p = &m->plan[l];
            int here = 0;
            t_eq(p->layer, l);
            for (int k = 0; k < p->n; k++) {
                t_true(p->row[k] >= 0 && p->row[k] < B * T &&
                       (k == 0 || p->row[k] > p->row[k - 1]));
                t_truef(kind == PASS_TRAIN || p->gate[k] == 1 || kind == PASS_MASKED, "%s", name);
                here += p->gate[k] != 0;
            }
            t_eq(p->active, here);
            t_truef(kind != PASS_SPARSE || p->n == here, "%s computes rows in use that it skips",
                    name);
            t_truef(!m->route.ops->always_on || !m->route.ops->always_on(&m->route, l) ||
                        here == B * T,
                    "%s: layer %d", name, l);
            active += here;
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
        for (int at = 0, n = 9; at < T; at += n, n = at + 5 < T ? 5 : 1)
            t_ok(model_decode(m, cache, batch.id + at, n, &pass, &e), &e);
        model_logits(m, m->R - 1, got);
        for (int v = 0; v < V; v++)
            t_near(got[v], whole[v], KIT_NEAR);
        kv_cache_free(cache);
        model_free(m);
    }
}

/* Everything a method needs in use is in its parameters. */
T(a_saved_model_decides_as_before)
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
            m->route.seed; /* lots are drawn from the run's seed, which is the caller's to give */
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
