/* Early-exit losses: which layers have one in which step, with what weight, and what they leave as it was. */
#include "kit.h"
#include "training/cost.h"
#include "training/exit_loss.h"

enum { LAYERS = 4, MORE = 8 };

static struct train_config config(const char *const *more)
{
    const char *key[MORE + 4] = {"model.layers=4", "model.method=dense", "train.steps=80"};
    struct train_config c;
    struct err e = {0};
    size_t n = 3;
    while (*more)
        key[n++] = *more++;
    t_ok(train_config_make(&c, NULL, 0, key, n, &e), &e);
    return c;
}

static void weights_are(const struct train_config *c, int64_t step, const double want[LAYERS])
{
    real weight[LAYERS + 1];
    int n = 0;
    int exits = exit_loss_weights(weight, c, step);
    t_near(weight[0], 0, 0);
    for (int k = 0; k < LAYERS; k++) {
        t_truef(fabs((double)weight[k + 1] - want[k]) < 1e-6, "step %lld, layer %d: %g, not %g",
                (long long)step, k, (double)weight[k + 1], want[k]);
        n += k < LAYERS - 1 && want[k] > 0;
    }
    t_eq(exits, n);
}

/* Four layers, scale 0.5: e = 0, 0.5, 1.5 and 3 + 0.5 (0 + 1 + 2) = 4.5. */
T(weights_are_the_published_ones)
{
    struct train_config c =
        config((const char *const[]){"train.exit_loss=all", "train.exit_scale=0.5", NULL});
    weights_are(&c, 1, (const double[]){0, 0.5 / 6.5, 1.5 / 6.5, 4.5 / 6.5});
    train_config_release(&c);
    c = config((const char *const[]){"train.exit_loss=all", "train.exit_scale=0.5",
                                     "train.exit_weights=equal", NULL});
    weights_are(&c, 1, (const double[]){0.2, 0.2, 0.2, 0.4});
    train_config_release(&c);
}

T(a_scale_of_zero_is_ordinary_training)
{
    struct train_config c =
        config((const char *const[]){"train.exit_loss=all", "train.exit_scale=0", NULL});
    weights_are(&c, 1, (const double[]){0, 0, 0, 1});
    train_config_release(&c);
}

T(a_rotation_has_each_layer_in_its_turn)
{
    struct train_config c = config((const char *const[]){
        "train.exit_loss=rotate", "train.exit_scale=0.5", "train.exit_every=2", NULL});
    weights_are(&c, 1, (const double[]){0, 0.1, 0, 0.9}); /* layers 1 and 3 */
    weights_are(&c, 2, (const double[]){0, 0, 0.25, 0.75});
    weights_are(&c, 3, (const double[]){0, 0.1, 0, 0.9});
    t_near(exit_loss_mean(&c.train, &c.model, 5), 1, 0);
    train_config_release(&c);
    /* the default: layers - 1, of which the first layer's turn has no weight */
    c = config((const char *const[]){"train.exit_loss=rotate", "train.exit_scale=0.5", NULL});
    weights_are(&c, 3, (const double[]){0, 0, 0, 1});
    weights_are(&c, 4, (const double[]){0, 0.1, 0, 0.9});
    weights_are(&c, 5, (const double[]){0, 0, 0.25, 0.75});
    train_config_release(&c);
}

/* One more layer every 80 / (2 * 4) = 10 steps. */
T(a_gradual_curriculum_goes_from_the_last_layer_to_the_first)
{
    struct train_config c = config((const char *const[]){
        "train.exit_loss=gradual", "train.exit_scale=0.5", "train.exit_weights=equal", NULL});
    weights_are(&c, 1, (const double[]){0, 0, 0, 1});
    weights_are(&c, 10, (const double[]){0, 0, 0, 1});
    weights_are(&c, 11, (const double[]){0, 0, 1.0 / 3, 2.0 / 3});
    weights_are(&c, 20, (const double[]){0, 0, 1.0 / 3, 2.0 / 3});
    weights_are(&c, 21, (const double[]){0, 0.25, 0.25, 0.5});
    weights_are(&c, 31, (const double[]){0.2, 0.2, 0.2, 0.4});
    weights_are(&c, 80, (const double[]){0.2, 0.2, 0.2, 0.4});
    train_config_release(&c);
}

T(a_random_exit_is_one_layer_a_step_and_each_as_often)
{
    enum { STEPS = 3000 };
    struct train_config c = config((const char *const[]){"train.exit_loss=random", NULL});
    struct train_config other =
        config((const char *const[]){"train.exit_loss=random", "seed=2", NULL});
    int count[LAYERS + 1] = {0}, differ = 0;
    for (int64_t step = 1; step <= STEPS; step++) {
        real weight[LAYERS + 1], again[LAYERS + 1];
        t_eq(exit_loss_weights(weight, &c, step), 1);
        exit_loss_weights(again, &c, step);
        t_true(kit_same(weight, again, LAYERS + 1));
        exit_loss_weights(again, &other, step);
        differ += !kit_same(weight, again, LAYERS + 1);
        for (int l = 1; l < LAYERS; l++)
            count[l] += weight[l] > 0;
    }
    t_eq(count[1], 0); /* the first layer has no weight */
    for (int l = 2; l < LAYERS; l++)
        t_near((double)count[l] / STEPS, 0.5, 4 * sqrt(0.25 / STEPS));
    t_true(differ > STEPS / 3);
    train_config_release(&c);
    train_config_release(&other);
}

T(exits_of_a_loop_are_the_ends_of_its_iterations)
{
    struct train_config c = config((const char *const[]){
        "model.layers=3", "model.loop=3", "model.loop_first=1", "train.exit_loss=all",
        "train.exit_weights=equal", "train.exit_scale=1", NULL});
    real weight[8];
    static const double want[8] = {0, 0, 0, 1, 0, 1, 0, 1}; /* a block, then three times two */
    t_eq(model_config_depth(&c.model), 7);
    t_eq(exit_loss_weights(weight, &c, 1), 2);
    for (int l = 0; l < 8; l++)
        t_near(weight[l], want[l] / 3, 1e-6);
    train_config_release(&c);
}

static void refused(const char *const *more, const char *why)
{
    struct train_config c;
    struct err e = {0};
    size_t n = 0;
    while (more[n])
        n++;
    t_fails(train_config_make(&c, NULL, 0, more, n, &e), &e, DS_EUSAGE, why);
}

T(a_model_without_a_layer_for_an_exit_is_refused)
{
    refused(
        (const char *const[]){"model.method=dense", "model.layers=1", "train.exit_loss=all",
                              "train.exit_weights=equal", NULL},
        "train.exit_loss=all: needs at least 2 layers where an exit can be, model.layers=1 has 1");
    refused((const char *const[]){"model.method=dense", "model.layers=2", "train.exit_loss=rotate",
                                  NULL},
            "train.exit_weights=rising gives the first one no weight");
    refused((const char *const[]){"model.method=dense", "model.layers=4", "model.loop=3",
                                  "model.loop_last=1", "train.exit_loss=all", NULL},
            "train.exit_loss=all: unsupported with model.loop_last");
}

/* One more head pass, forward and two products backward, per exit and step. */
T(exits_are_counted_as_training_flops)
{
    const char *const base[] = {"model.method=dense", "model.layers=4", "model.dim=32",
                                "model.heads=2",      "data.docs=20",   "data.tokenizer=bytes",
                                "train.batch=2",      "train.seq=48",   "train.exit_loss=none"};
    const char *key[DS_LEN(base)];
    struct train_cost cost[2];
    struct train_cost_cache cache = {0};
    for (int k = 0; k < 2; k++) {
        struct train_config c;
        struct err e = {0};
        memcpy(key, base, sizeof base);
        key[DS_LEN(base) - 1] = k ? "train.exit_loss=all" : "train.exit_loss=none";
        t_ok(train_config_make(&c, NULL, 0, key, DS_LEN(base), &e), &e);
        t_ok(train_cost(&cost[k], &c, &cache, &e), &e);
        train_config_release(&c);
    }
    t_near(cost[1].dense, cost[0].dense, 0);
    t_near(cost[1].flops - cost[0].flops, 2.0 * 3 * 96 * 2 * 32 * (double)cache.vocab, 1);
}

/* ---- in the model ---- */

static struct kit_batch batch;

static real *gradients(const char *more, const real *weight, int keep, size_t *n, double *exit_loss)
{
    char text[300];
    struct pass pass = kit_pass(PASS_TRAIN);
    snprintf(text, sizeof text, "model.layers=6 model.dim=16 model.heads=2 model.vocab=37 %s",
             more);
    kit_fill(&batch, 3, 17, 37, 4);
    struct model *m = kit_model(text, 3, 51, 1, keep);
    m->exit_weight = weight;
    kit_step(m, &batch.b, &pass);
    real *grad = kit_gradients(m, n);
    *exit_loss = m->exit_loss;
    model_free(m);
    return grad;
}

T(without_exits_nothing_changes_and_with_them_recomputed_equals_kept)
{
    static const real ordinary[] = {0, 0, 0, 0, 0, 0, 1}, exits[] = {0, 0.05, 0, 0.1, 0, 0.15, 0.7};
    static const char *const methods[] = {"model.method=dense", "model.method=edp",
                                          "model.method=layerskip", "model.method=hat"};
    for (size_t i = 0; i < DS_LEN(methods); i++) {
        size_t n;
        double none, loss;
        real *want = gradients(methods[i], NULL, 0, &n, &none);
        real *same = gradients(methods[i], ordinary, 0, &n, &none);
        t_near(none, 0, 0);
        t_truef(kit_same(want, same, n), "%s", methods[i]);
        real *other = gradients(methods[i], exits, 0, &n, &loss);
        real *kept = gradients(methods[i], exits, 1, &n, &none);
        t_true(loss > 0.5 && loss < 3 && loss == none);
        t_truef(!kit_same(want, other, n) && kit_same(other, kept, n), "%s", methods[i]);
        free(want);
        free(same);
        free(other);
        free(kept);
    }
}
