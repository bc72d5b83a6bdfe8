/* Stochastic depth: dropped layers in training, full depth or a budget at inference. */
#include "kit.h"

enum { B = 16, T = 32, R = B * T, V = 53, L = 8, KEEP = 4, M = L - KEEP, STEPS = 60 };

static struct kit_batch batch;

static struct model *model_of(const char *more)
{
    char text[400];
    snprintf(text, sizeof text,
             "model.layers=%d model.dim=8 model.heads=2 model.vocab=%d model.init_std=0.2 "
             "model.method=stochastic %s",
             L, V, more);
    kit_fill(&batch, B, T, V, 3);
    return kit_model(text, 3, R, 1, 0);
}

/* Sequences of layer l that ran in a training step; all rows of a sequence do the same. */
static int sequences_run(struct model *m, int l)
{
    const struct plan *p = &m->plan[l];
    t_eq(p->n % T, 0);
    for (int k = 0; k < p->n; k++)
        t_eq(p->row[k] % T, k % T);
    return p->n / T;
}

static void count_runs(struct model *m, double share[L], int *all_or_none)
{
    *all_or_none = 1;
    memset(share, 0, L * sizeof *share);
    for (int step = 1; step <= STEPS; step++) {
        struct pass pass = kit_pass(PASS_TRAIN);
        pass.step = step;
        model_forward(m, &batch.b, &pass);
        for (int l = 0; l < L; l++) {
            int n = sequences_run(m, l);
            share[l] += (double)n / (B * STEPS);
            *all_or_none &= n == 0 || n == B;
        }
    }
}

static double chance_near(double p, int n)
{
    return 4 * sqrt(p * (1 - p) / n) + 1e-9;
}

T(training_drops_whole_sequences_at_the_layers_probability)
{
    double share[L];
    int all_or_none;
    struct model *m = model_of("stochastic.p=0.3");
    count_runs(m, share, &all_or_none);
    for (int l = 0; l < L; l++)
        t_near(share[l], l < KEEP ? 1 : 0.7, l < KEEP ? 1e-9 : chance_near(0.7, B * STEPS));
    t_true(!all_or_none);
    model_free(m);
    m = model_of("stochastic.p=0.6 stochastic.schedule=linear");
    count_runs(m, share, &all_or_none);
    for (int l = KEEP; l < L; l++) {
        double want = 1 - 0.6 * (l - KEEP) / (M - 1);
        t_near(share[l], want, chance_near(want, B * STEPS));
        t_near(m->route.metric[1][l], 1 - want, 1e-12);
    }
    model_free(m);
}

T(one_draw_can_drop_the_whole_batch)
{
    double share[L];
    int all_or_none;
    struct model *m = model_of("stochastic.unit=batch");
    count_runs(m, share, &all_or_none);
    t_true(all_or_none);
    t_near(share[L - 1], 0.5, chance_near(0.5, STEPS));
    model_free(m);
}

T(inference_runs_every_layer)
{
    struct pass dense = kit_pass(PASS_DENSE), use = kit_pass(PASS_SPARSE);
    struct model *m = model_of("");
    model_forward(m, &batch.b, &dense);
    real *want = kit_copy(m->stream.h[L], kit_states(m));
    model_forward(m, &batch.b, &use);
    t_true(kit_same(want, m->stream.h[L], kit_states(m)));
    free(want);
    model_free(m);
}

T(increments_are_scaled_by_how_often_they_ran_in_training)
{
    struct pass use = kit_pass(PASS_MASKED), train = kit_pass(PASS_TRAIN);
    struct model *m = model_of("stochastic.scale=true stochastic.schedule=linear stochastic.p=0.6");
    model_forward(m, &batch.b, &use);
    for (int l = 0; l < L; l++)
        t_near(m->plan[l].gate[5], l < KEEP ? 1 : 1 - 0.6 * (l - KEEP) / (M - 1), 1e-6);
    model_forward(m, &batch.b, &train);
    for (int l = 0; l < L; l++)
        t_true(m->plan[l].n == 0 || m->plan[l].gate[0] == 1);
    model_free(m);
}

/* mask=random: the same everywhere; mask=linear: falling with depth; both at the budget. */
static void check_budget(const char *more, int falls)
{
    char text[200];
    struct pass use = kit_pass(PASS_SPARSE);
    snprintf(text, sizeof text, "stochastic.inference=budget stochastic.target_ratio=0.7 %s", more);
    struct model *m = model_of(text);
    model_forward(m, &batch.b, &use);
    t_near(flops_block_ratio(&m->flops), 0.7, 0.02);
    double first = (double)m->plan[KEEP].active / R, last = (double)m->plan[L - 1].active / R;
    t_truef(falls ? first == 1 && last < 0.3 : fabs(first - 0.4) < 0.1 && fabs(last - 0.4) < 0.1,
            "%s: %g to %g", more, first, last);
    model_free(m);
}

T(a_budget_is_met_by_every_mask)
{
    check_budget("stochastic.mask=random", 0);
    check_budget("stochastic.mask=linear", 1);
    check_budget("stochastic.schedule=linear", 1);
    check_budget("stochastic.schedule=uniform", 0);
}

/* Draws at inference depend on token and position alone. */
T(decisions_at_a_budget_are_the_same_in_every_kind_of_pass)
{
    struct err e = {0};
    struct kv_cache *cache = NULL;
    struct model *m =
        model_of("stochastic.inference=budget stochastic.mask=linear stochastic.target_ratio=0.7");
    struct pass masked = kit_pass(PASS_MASKED), use = kit_pass(PASS_SPARSE);
    struct batch one = {.B = 1, .T = T, .id = batch.id};
    model_forward(m, &batch.b, &masked);
    real *want = kit_copy(m->stream.h[L], kit_states(m));
    use.seed = 77;
    model_forward(m, &batch.b, &use);
    t_true(kit_same(want, m->stream.h[L], kit_states(m)));
    model_forward(m, &one, &use);
    t_true(kit_same(want, m->stream.h[L], kit_states(m)));
    t_ok(kv_cache_new(&cache, m, T, &e), &e);
    for (int t = 0; t < T; t++) {
        t_ok(model_decode(m, cache, batch.id + t, 1, &use, &e), &e);
        for (int c = 0; c < 8; c++)
            t_near(m->stream.h[L][c], want[t * 8 + c], KIT_NEAR);
    }
    kv_cache_free(cache);
    free(want);
    model_free(m);
}

T(invalid_option_combinations_are_refused)
{
    struct err e = {0};
    struct model *m = NULL;
    t_fails(kit_try(&m, "model.method=stochastic model.layers=4", 1, 0, &e), &e, DS_ERANGE,
            "stochastic.keep=4 leaves no layer of model.layers=4");
    t_fails(kit_try(&m,
                    "model.method=stochastic model.layers=8 stochastic.inference=budget "
                    "stochastic.target_ratio=0.4",
                    1, 0, &e),
            &e, DS_ERANGE, "4 of 8 layers");
    t_fails(kit_try(&m,
                    "model.method=stochastic model.layers=8 stochastic.inference=budget "
                    "stochastic.schedule=linear stochastic.target_ratio=0.5",
                    1, 0, &e),
            &e, DS_ERANGE, "5 of 8 layers");
    t_fails(kit_try(&m,
                    "model.method=stochastic model.layers=8 stochastic.inference=budget "
                    "stochastic.scale=true",
                    1, 0, &e),
            &e, DS_EUSAGE, "stochastic.scale");
}
