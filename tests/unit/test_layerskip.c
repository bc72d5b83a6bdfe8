/* Layer dropout that rises with depth: rates of each layer, whole sequences, dense inference. */
#include "kit.h"

enum { B = 16, T = 16, R = B * T, V = 53, L = 5, STEPS = 80 };

static struct kit_batch batch;

static struct model *model_of(const char *more)
{
    char text[400];
    snprintf(text, sizeof text,
             "model.layers=%d model.dim=8 model.heads=2 model.vocab=%d model.init_std=0.2 "
             "model.method=layerskip %s",
             L, V, more);
    kit_fill(&batch, B, T, V, 3);
    return kit_model(text, 3, R, 1, 0);
}

/* Sequences that run layer l; every row of one does the same. */
static int sequences_run(const struct model *m, int l)
{
    const struct plan *p = &m->plan[l];
    t_eq(p->n % T, 0);
    t_eq(p->n, p->active);
    for (int k = 0; k < p->n; k++) {
        t_eq(p->row[k] % T, k % T);
        t_eq(p->row[k] / T, p->row[k - k % T] / T);
        t_near(p->gate[k], 1, 0); /* not rescaled */
    }
    return p->n / T;
}

/* 2^(l / 4) - 1, by hand. */
static const double rises[L] = {0, 0.189207115, 0.414213562, 0.681792831, 1};

static void rates_are(const char *more, double progress, double times)
{
    double skipped[L] = {0};
    int mixed = 0;
    struct model *m = model_of(more);
    for (int step = 1; step <= STEPS; step++) {
        struct pass pass = kit_pass(PASS_TRAIN);
        pass.step = step;
        pass.progress = progress;
        model_forward(m, &batch.b, &pass);
        for (int l = 0; l < L; l++) {
            int n = sequences_run(m, l);
            skipped[l] += B - n;
            mixed += n > 0 && n < B;
        }
    }
    t_true(mixed > 0);
    for (int l = 0; l < L; l++) {
        double p = times * rises[l], sd = sqrt(p * (1 - p) / (B * STEPS));
        t_truef(fabs(skipped[l] / (B * STEPS) - p) <= 4 * sd, "%s: layer %d: %g, not %g", more, l,
                skipped[l] / (B * STEPS), p);
        t_near(m->route.metric[1][l], p, 1e-8);
    }
    model_free(m);
}

T(training_drops_whole_sequences_at_the_rate_of_each_layer)
{
    rates_are("layerskip.dropout=0.5", 0.25, 0.5);
    rates_are("", 1, 0.1);
}

T(the_schedule_raises_the_rates_over_training)
{
    rates_are("layerskip.dropout=0.8 layerskip.schedule=exp", 1, 0.8);
    rates_are("layerskip.dropout=0.8 layerskip.schedule=exp", 0.5, 0.8 * 0.414213562);
}

T(a_single_layer_is_never_dropped)
{
    struct model *m = kit_model("model.layers=1 model.dim=8 model.heads=2 model.vocab=53 "
                                "model.method=layerskip layerskip.dropout=0.9",
                                3, R, 1, 0);
    struct pass pass = kit_pass(PASS_TRAIN);
    kit_fill(&batch, B, T, V, 3);
    model_forward(m, &batch.b, &pass);
    t_eq(m->plan[0].n, R);
    t_near(m->route.metric[1][0], 0, 0);
    model_free(m);
}

T(layers_and_steps_draw_on_their_own)
{
    int runs[2][L][B] = {{{0}}}, differ[2] = {0};
    struct model *m = model_of("layerskip.dropout=0.5");
    for (int step = 0; step < 2; step++) {
        struct pass pass = kit_pass(PASS_TRAIN);
        pass.step = step + 1;
        model_forward(m, &batch.b, &pass);
        for (int l = 0; l < L; l++)
            for (int k = 0; k < m->plan[l].n; k++)
                runs[step][l][m->plan[l].row[k] / T] = 1;
    }
    for (int b = 0; b < B; b++) {
        differ[0] += runs[0][4][b] != runs[1][4][b];
        differ[1] += runs[0][3][b] != runs[0][4][b];
    }
    t_true(differ[0] > 0 && differ[1] > 0);
    model_free(m);
}

T(inference_is_dense)
{
    struct pass dense = kit_pass(PASS_DENSE), use = kit_pass(PASS_SPARSE);
    struct model *m = model_of("layerskip.dropout=1");
    model_forward(m, &batch.b, &dense);
    real *want = kit_copy(m->stream.h[L], kit_states(m));
    model_forward(m, &batch.b, &use);
    t_true(kit_same(want, m->stream.h[L], kit_states(m)));
    t_near(flops_model_ratio(&m->flops), 1, 1e-12);
    free(want);
    model_free(m);
}
