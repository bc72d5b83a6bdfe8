/* The oracle against an exhaustive choice, and its cells as they are executed. */
#include "eval/oracle.h"
#include "kit.h"

enum { B = 4, T = 32, R = B * T, V = 53, L = 5, BATCHES = 2 };

static struct kit_batch batch;

static void fill(int k)
{
    kit_fill(&batch, B, T, V, 3 + (uint64_t)k);
    batch.target[4] = -1;
}

static struct model *model_of(const char *method)
{
    char text[256];
    snprintf(text, sizeof text,
             "model.layers=5 model.dim=32 model.heads=2 model.vocab=53 model.init_std=0.3 "
             "model.method=%s",
             method);
    return kit_model(text, 3, R, 0, 0);
}

static void consult(struct oracle *o, struct model *m)
{
    struct err e = {0};
    oracle_init(o, m);
    for (int k = 0; k < BATCHES; k++) {
        fill(k);
        t_ok(oracle_add(o, m, &batch.b, &e), &e);
    }
    t_eq(o->n, R * BATCHES);
}

T(every_token_leaves_where_loss_and_price_are_least)
{
    struct model *m = model_of("dense");
    struct oracle o;
    consult(&o, m);
    t_true(o.first == 1 && o.end == L);
    for (int c = 0; c <= 10; c++) {
        oracle_solve(&o, 0.1 * c);
        t_truef(oracle_share(&o) <= 0.1 * c + 1e-12, "%g at %g", oracle_share(&o), 0.1 * c);
        for (size_t i = 0; i < o.n; i++) {
            const float *nll = o.nll + i * L;
            int at = o.exit[i] - o.first;
            for (int t = 0; t < L; t++)
                t_true((double)nll[at] + o.lambda * at <= (double)nll[t] + o.lambda * t);
        }
    }
    oracle_release(&o);
    model_free(m);
}

/* The price is no higher than it must be: within two tokens of the capacity. */
T(the_capacity_is_used)
{
    struct model *m = model_of("dense");
    struct oracle o;
    consult(&o, m);
    oracle_solve(&o, 1);
    double free_share = oracle_share(&o);
    t_near(o.lambda, 0, 0);
    t_true(free_share > 0.3);
    oracle_solve(&o, 0.25);
    t_truef(oracle_share(&o) > 0.25 - 2.0 / (double)o.n, "%g", oracle_share(&o));
    oracle_solve(&o, 0);
    t_near(oracle_share(&o), 0, 0);
    oracle_release(&o);
    model_free(m);
}

T(its_cells_are_executed_and_losses_without_a_context_are_met)
{
    struct err e = {0};
    struct model *m = model_of("dense");
    struct oracle o;
    consult(&o, m);
    oracle_solve(&o, 0.5);
    for (int k = 0; k < BATCHES; k++) {
        struct pass pass = kit_pass(PASS_SPARSE);
        fill(k);
        t_ok(oracle_next(&o, m, &batch.b, &pass, &e), &e);
        model_forward(m, &batch.b, &pass);
        model_loss(m, 0, 0);
        for (int l = 0; l < L; l++) {
            int runs = 0;
            for (int i = 0; i < R; i++)
                runs += l < o.exit[k * R + i];
            t_eq(m->plan[l].active, runs);
        }
        /* the first token of a sequence sees itself alone */
        for (int s = 0; s < B; s++) {
            size_t i = (size_t)k * R + (size_t)s * T;
            t_near(m->nll[s * T], o.nll[i * L + (size_t)(o.exit[i] - 1)], 1e-4);
        }
    }
    t_eq(o.at, o.n);
    oracle_release(&o);
    model_free(m);
}

/* Where attention and FFN are chosen apart, a token that has left runs neither. */
T(split_layers_are_left_whole)
{
    struct err e = {0};
    static const char *const split[] = {"hat", "gateskip"};
    for (size_t k = 0; k < DS_LEN(split); k++) {
        struct model *m = model_of(split[k]);
        struct pass pass = kit_pass(PASS_SPARSE);
        struct oracle o;
        consult(&o, m);
        oracle_solve(&o, 0.5);
        fill(0);
        t_ok(oracle_next(&o, m, &batch.b, &pass, &e), &e);
        model_forward(m, &batch.b, &pass);
        model_loss(m, 0, 0);
        for (int l = 0; l < L; l++) {
            int runs = 0;
            for (int i = 0; i < R; i++)
                runs += l < o.exit[i];
            t_truef(m->plan[l].active == runs, "attention of %s in layer %d: %d rows, not %d",
                    split[k], l, m->plan[l].active, runs);
            t_eq(m->ffn[l].active, runs);
        }
        for (int s = 0; s < B; s++)
            t_near(m->nll[s * T], o.nll[(size_t)(s * T) * L + (size_t)(o.exit[s * T] - 1)], 1e-4);
        oracle_release(&o);
        model_free(m);
    }
}

/* Layers that a method never skips are not its choice. */
T(always_on_layers_come_before_the_first_exit)
{
    struct model *m = model_of("halt halt.min=3");
    struct oracle o;
    oracle_init(&o, m);
    t_eq(o.first, 3);
    oracle_release(&o);
    model_free(m);
}
