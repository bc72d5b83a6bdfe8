/* A pass that exits after the first layers, or closes some, against the model without the others. */
#include "kit.h"

enum { B = 2, T = 19, V = 53, L = 7, EXIT = 3 };

static struct kit_batch batch;

static struct model *model_of(const char *method, int layers)
{
    char text[256];
    snprintf(text, sizeof text,
             "model.layers=%d model.dim=32 model.heads=4 model.kv_heads=2 model.vocab=%d "
             "model.init_std=0.1 model.method=%s",
             layers, V, method);
    return kit_model(text, 3, B * T, 0, 0);
}

/* Copies every parameter that both have; layer l of `to` is layer of[l] of `from`. */
static void copy_params(struct model *to, const struct model *from, const int *of)
{
    for (int i = 0; i < to->params.n; i++) {
        struct param *p = &to->params.p[i];
        char name[128];
        int l, used = 0, found = 0;
        snprintf(name, sizeof name, "%s", p->name);
        if (sscanf(p->name, "model.layers.%d.%n", &l, &used) == 1 && used > 0)
            snprintf(name, sizeof name, "model.layers.%d.%s", of[l], p->name + used);
        for (int k = 0; k < from->params.n; k++)
            if (strcmp(from->params.p[k].name, name) == 0) {
                memcpy(p->value, from->params.p[k].value, p->n * sizeof *p->value);
                found++;
            }
        t_truef(found == 1, "%s", name);
    }
    params_changed(&to->params);
}

static void same_logits(struct model *a, struct model *b, const char *what)
{
    real x[V], y[V];
    for (int i = 0; i < a->R; i++) {
        model_logits(a, i, x);
        model_logits(b, i, y);
        t_truef(kit_same(x, y, V), "%s: row %d", what, i);
    }
}

T(an_exit_gives_the_logits_of_the_truncated_model)
{
    static const int first[] = {0, 1, 2}, some[] = {0, 2, 5};
    static const uint8_t closed[L] = {0, 1, 0, 1, 1, 0, 1};
    struct model *m = model_of("dense", L), *cut = model_of("dense", EXIT);
    kit_fill(&batch, B, T, V, 1);
    kit_documents(&batch);
    for (int is_mask = 0; is_mask < 2; is_mask++) {
        struct pass pass = kit_pass(PASS_DENSE), whole = kit_pass(PASS_DENSE);
        copy_params(cut, m, is_mask ? some : first);
        if (is_mask)
            pass.inference.closed = closed;
        else
            pass.inference.exit = EXIT;
        model_forward(m, &batch.b, &pass);
        model_forward(cut, &batch.b, &whole);
        same_logits(m, cut, is_mask ? "closed layers" : "exit");
        t_near(flops_total(&m->flops), flops_total(&cut->flops), 0);
        t_eq(m->flops.rows_run, cut->flops.rows_run);
    }
    model_free(m);
    model_free(cut);
}

T(layers_after_an_exit_cost_nothing_with_any_method)
{
    for (const struct route_ops *const *ops = route_all(); *ops; ops++)
        for (int exit = 1; exit <= L; exit++) {
            struct model *m = model_of((*ops)->name, L);
            struct pass pass = kit_pass(PASS_SPARSE);
            kit_fill(&batch, B, T, V, 2);
            pass.inference.exit = exit;
            model_forward(m, &batch.b, &pass);
            for (int l = 0; l < L; l++) {
                double sum = 0;
                for (int k = 0; k < FLOPS_PARTS; k++)
                    sum += m->flops.part[l * FLOPS_PARTS + k];
                t_truef(l < exit ? sum > 0 || !model_plan(m, l)->active : !(sum > 0),
                        "%s: exit %d: layer %d costs %g", (*ops)->name, exit, l, sum);
                t_truef(l < exit || (m->plan[l].n == 0 && model_plan(m, l)->n == 0),
                        "%s: exit %d: layer %d runs", (*ops)->name, exit, l);
            }
            model_free(m);
        }
}

T(a_cached_exit_pass_is_the_whole_one)
{
    for (const struct route_ops *const *ops = route_all(); *ops; ops++) {
        struct err e = {0};
        struct model *m = model_of((*ops)->name, L);
        struct kv_cache *cache = NULL;
        struct pass pass = kit_pass(PASS_SPARSE);
        struct batch one = {.B = 1, .T = T, .id = batch.id};
        real whole[T][V], got[V];
        kit_fill(&batch, 1, T, V, 3);
        pass.inference.exit = EXIT;
        model_forward(m, &one, &pass);
        for (int i = 0; i < T; i++)
            model_logits(m, i, whole[i]);
        t_ok(kv_cache_new(&cache, m, T, &e), &e);
        t_ok(model_decode(m, cache, batch.id, 8, &pass, &e), &e);
        for (int i = 8; i < T; i++) {
            t_ok(model_decode(m, cache, &batch.id[i], 1, &pass, &e), &e);
            model_logits(m, 0, got);
            for (int v = 0; v < V; v++)
                t_near(got[v], whole[i][v], KIT_NEAR);
        }
        for (int l = EXIT; l < L; l++)
            t_truef(cache->layer[l].n == 0, "%s: layer %d has keys", (*ops)->name, l);
        kv_cache_free(cache);
        model_free(m);
    }
}

T(an_exit_beyond_the_model_is_refused)
{
    struct err e = {0};
    struct model *m = model_of("dense", L);
    t_ok(model_check_exit(m, L, &e), &e);
    t_fails(model_check_exit(m, L + 1, &e), &e, DS_ERANGE,
            "exit.layer=8: must be at most 7, the model's layers");
    model_free(m);
}
