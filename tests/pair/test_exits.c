/* The prediction of every exit, against one computed row by row from the logit lens. */
#include "kit.h"
#include "models/exits.h"

enum { B = 3, T = 21, R = B * T, V = 53, L = 4 };

static struct kit_batch batch;

static struct model *small_with(const char *more)
{
    char text[300];
    snprintf(text, sizeof text,
             "model.layers=4 model.dim=32 model.heads=2 model.vocab=53 model.init_std=0.3 "
             "model.method=dense %s",
             more);
    struct model *m = kit_model(text, 3, R, 0, 0);
    kit_fill(&batch, B, T, V, 1);
    batch.target[5] = -1;
    struct pass pass = kit_pass(PASS_DENSE);
    model_forward(m, &batch.b, &pass);
    return m;
}

static struct model *small(void)
{
    return small_with("");
}

/* ln p (V) of row i after l layers, in double. */
static void log_probabilities(struct model *m, int l, int i, double *p)
{
    real logits[V];
    double top = -1e30, sum = 0;
    model_lens(m, l, i, logits);
    for (int v = 0; v < V; v++)
        top = fmax(top, (double)logits[v]);
    for (int v = 0; v < V; v++)
        sum += exp((double)logits[v] - top);
    for (int v = 0; v < V; v++)
        p[v] = (double)logits[v] - top - log(sum);
}

struct tables {
    real nll[(L + 1) * R], doubt[(L + 1) * R], confidence[(L + 1) * R], entropy[(L + 1) * R],
        kl[(L + 1) * R];
    int32_t best[(L + 1) * R];
    uint8_t correct[(L + 1) * R];
};
static struct tables table;

static struct exit_values values_of(struct tables *t)
{
    return (struct exit_values){t->nll, t->doubt, t->confidence, t->entropy,
                                t->kl,  t->best,  t->correct};
}

/* A head of some ids reads columns; what it says are ids. */
static void check_exits(struct model *m)
{
    struct exit_values x = values_of(&table);
    model_exits(m, &x);
    for (int l = 0; l <= L; l++)
        for (int i = 0; i < R; i++) {
            double p[V], q[V], entropy = 0, kl = 0;
            int best = 0, target = batch.target[i], at = l * R + i;
            log_probabilities(m, l, i, p);
            log_probabilities(m, l > 0 ? l - 1 : 0, i, q);
            for (int v = 0; v < V; v++) {
                best = p[v] > p[best] ? v : best;
                entropy -= exp(p[v]) * p[v];
                kl += exp(p[v]) * (p[v] - q[v]);
            }
            if (target >= 0 && p[target] < -1e29)
                t_true(isnan(table.nll[at]));
            else
                t_near(table.nll[at], target < 0 ? 0 : -p[target], 1e-4);
            t_near(table.doubt[at], -p[best], 1e-4);
            t_near(table.confidence[at], exp(p[best]), 1e-5);
            t_near(table.entropy[at], entropy, 1e-4);
            t_eq(table.best[at], best);
            t_eq(table.correct[at], best == target);
            if (l > 0)
                t_near(table.kl[at], kl, 1e-4);
            else
                t_true(isnan(table.kl[at]));
        }
    model_free(m);
}

T(every_exit_is_what_the_logit_lens_says)
{
    check_exits(small());
    check_exits(small_with("model.tied=false model.outputs=0,2-17,30-51"));
}

T(the_last_exit_is_the_models_own_loss)
{
    struct model *m = small();
    model_loss(m, 0, 1);
    struct exit_values x = {.nll = table.nll};
    model_exits(m, &x);
    for (int i = 0; i < R; i++) {
        if (batch.target[i] >= 0)
            t_near(table.nll[L * R + i], m->nll[i], 1e-5);
    }
    model_free(m);
}

/* A reading of chosen rows has the bits of a reading of all, and counts one head per state. */
T(the_lens_reads_the_rows_it_is_given)
{
    struct model *m = small();
    struct exit_values x = values_of(&table);
    const int32_t row[] = {0, 7, 8, 40, R - 1};
    real doubt[5], entropy[5], kl[5];
    struct lens_values out = {doubt, entropy, kl};
    model_exits(m, &x);
    double before = flops_total(&m->flops), token = m->flops.token[7], other = m->flops.token[6];
    m->stream.lens.read(m->stream.lens.ctx, 2, 1, row, 5, &out);
    for (int k = 0; k < 5; k++) {
        t_true(doubt[k] == table.doubt[2 * R + row[k]]);
        t_true(entropy[k] == table.entropy[2 * R + row[k]]);
        t_true(kl[k] == table.kl[2 * R + row[k]]);
    }
    t_near(m->flops.decisions, 10 * 2.0 * 32 * V, 1e-6);
    t_near(flops_total(&m->flops) - before, 10 * 2.0 * 32 * V, 1e-6);
    t_near(m->flops.token[7] - token, 2 * 2.0 * 32 * V, 1e-6);
    t_near(m->flops.token[6], other, 0);
    model_free(m);
}

/* Inside an iteration of a loop nothing can be left, and nothing is known. */
T(only_the_ends_of_iterations_are_exits)
{
    struct model *m = small();
    struct exit_values x = values_of(&table);
    m->route.loop = (struct route_loop){1, 2, 3};
    t_eq(route_exits(&m->route), 2);
    model_exits(m, &x);
    for (int l = 0; l <= L; l++)
        t_eq(isnan(table.nll[l * R]), l != 1 && l != 3);
    model_free(m);
}

/* Chunks of rows, which a large vocabulary makes small, leave no trace. */
T(a_single_row_compares_two_states)
{
    struct model *m = kit_model("model.layers=4 model.dim=32 model.heads=2 model.vocab=53 "
                                "model.init_std=0.3 model.method=dense",
                                3, 1, 0, 0);
    struct exit_values x = values_of(&table);
    struct pass pass = kit_pass(PASS_DENSE);
    real kl[L + 1];
    kit_fill(&batch, B, T, V, 1);
    batch.b.B = batch.b.T = 1;
    model_forward(m, &batch.b, &pass);
    model_exits(m, &x);
    memcpy(kl, table.kl, sizeof kl);
    model_free(m);
    m = small();
    model_exits(m, &x);
    for (int l = 1; l <= L; l++)
        t_true(kl[l] == table.kl[l * R]);
    model_free(m);
}

/* Blocks after a loop run on what the tokens left with. */
T(blocks_after_a_loop_belong_to_every_exit)
{
    enum { DEPTH = 8 }; /* 1 + 3 x 2 + 1 */
    static real nll[(DEPTH + 1) * R], kl[(DEPTH + 1) * R];
    struct model *m = kit_model("model.layers=4 model.loop=3 model.loop_first=1 model.loop_last=1 "
                                "model.dim=32 model.heads=2 model.vocab=53 model.init_std=0.3 "
                                "model.method=dense",
                                3, R, 0, 0);
    struct exit_values x = {.nll = nll, .kl = kl};
    struct pass pass = kit_pass(PASS_DENSE);
    t_eq(model_config_depth(&m->config), DEPTH);
    kit_fill(&batch, B, T, V, 1);
    model_forward(m, &batch.b, &pass);
    real *last = kit_copy(m->stream.h[DEPTH], kit_states(m));
    model_exits(m, &x);
    t_true(kit_same(last, m->stream.h[DEPTH], kit_states(m)));
    for (int l = 1; l <= 7; l += 2) {
        pass.inference.exit = l;
        model_forward(m, &batch.b, &pass);
        model_loss(m, 0, 0);
        for (int i = 0; i < R; i++)
            t_near(nll[l * R + i], m->nll[i], 1e-5);
    }
    t_true(isnan(nll[8 * R]) && isnan(nll[0]) && kl[3 * R] > 0);
    pass = kit_pass(PASS_TRAIN); /* a step needs its states */
    model_forward(m, &batch.b, &pass);
    model_exits(m, &x);
    t_true(isnan(nll[3 * R]) && kl[3 * R] > 0 && m->route.pass.kind == PASS_TRAIN);
    free(last);
    model_free(m);
}
