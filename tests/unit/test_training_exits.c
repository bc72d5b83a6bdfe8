/* Runs with exit losses: what a step and a validation record. */
#include <math.h>

#include "../kit_train.h"
#include "io/runview.h"

static const char *const tiny[KEYS_MAX] = {
    "model.layers=4",       "model.dim=16",          "model.heads=2",
    "model.vocab=300",      "model.max_seq=64",      "data.docs=12",
    "data.tokenizer=bytes", "data.val_fraction=0.2", "train.batch=4",
    "train.seq=32",         "train.warmup=3",        "train.steps=12",
    "train.eval_every=4",   "train.eval_tokens=300", "train.samples=16",
    "train.time_rounds=0",  "train.probes=1",        "train.final_tokens=200",
    "train.lr=1e-2",        "train.layer_every=4",   "train.probe_every=12"};

static struct runview *trained(const char *const *more)
{
    struct runview *v = NULL;
    struct err e = {0};
    char dir[600];
    snprintf(dir, sizeof dir, "%s/run", t_tmpdir());
    t_ok(go(dir, more, 0, 0, &e), &e);
    t_ok(runview_open(&v, dir, &e), &e);
    return v;
}

T(a_step_records_its_exits_and_a_validation_the_loss_of_each)
{
    struct runview *v = trained((const char *const[]){
        "model.method=layerskip", "train.exit_loss=rotate", "train.exit_scale=1", NULL});
    const struct series *exit = runview_series(v, "exit_loss"),
                        *val = runview_series(v, "val_loss");
    const struct layer_series *by = runview_layer(v, "layer_exit_loss"),
                              *ratio = runview_layer(v, "gate_ratio");
    t_true(exit && exit->n == 12 && val && val->n == 3);
    for (int i = 0; i < 12;
         i++) /* with four layers every third step has the turn of the first, without weight */
        t_truef((exit->value[i] > 0) == ((i + 1) % 3 != 0), "step %d: %g", i + 1, exit->value[i]);
    t_true(by && by->n == 3 && by->layers == 4);
    t_true(ratio && ratio->n == 3);
    for (int i = 0; i < 3; i++) {
        const float *x = &by->value[(size_t)i * 4];
        t_near(x[3], val->value[i], 1e-4);
        t_true(x[0] > 1 && x[0] < 12 && x[0] != x[1] && x[1] != x[2] && x[2] != x[3]);
    }
    t_true(by->value[8 + 2] < by->value[2]); /* the exits learn */
    runview_free(v);
}

T(a_loop_has_exits_at_the_ends_of_its_iterations_only)
{
    struct runview *v = trained((const char *const[]){
        "model.method=dense", "model.layers=3", "model.loop=3", "model.loop_first=1",
        "train.exit_loss=all", "train.exit_weights=equal", NULL});
    const struct layer_series *by = runview_layer(v, "layer_exit_loss");
    t_true(by && by->n == 3 && by->layers == 7);
    for (int l = 0; l < 7; l++)
        t_truef(isfinite(by->value[l]) == (l == 2 || l == 4 || l == 6), "layer %d: %g", l,
                (double)by->value[l]);
    runview_free(v);
}

T(a_run_without_exit_losses_records_none)
{
    struct runview *v = trained((const char *const[]){"model.method=dense", NULL});
    t_true(runview_series(v, "exit_loss") == NULL || runview_series(v, "exit_loss")->n == 0);
    t_true(runview_layer(v, "layer_exit_loss") == NULL ||
           runview_layer(v, "layer_exit_loss")->n == 0);
    t_true(runview_layer(v, "gate_ratio") && runview_series(v, "loss"));
    runview_free(v);
}
