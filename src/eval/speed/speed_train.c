/* Times one block, and whole training steps. */
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "speed_impl.h"

struct tokens {
    struct batch b;
    int32_t *id, *target;
};

static int make_tokens(struct tokens *t, const struct speed *s, int vocab, struct err *e)
{
    size_t n = (size_t)(s->o.batch * s->o.seq);
    t->id = mem_alloc(n, sizeof *t->id);
    t->target = mem_alloc(n, sizeof *t->target);
    if (!t->id || !t->target)
        return err_set(e, DS_EMEM, "out of memory for the batch");
    speed_fill_ids(t->id, n, vocab);
    speed_fill_ids(t->target, n, vocab);
    t->b =
        (struct batch){.B = (int)s->o.batch, .T = (int)s->o.seq, .id = t->id, .target = t->target};
    return 0;
}

static void free_tokens(struct tokens *t)
{
    mem_free(t->id);
    mem_free(t->target);
}

/* Seconds of a complete training step, without data loading and records. */
static double step_s(struct model *m, const struct batch *b, struct pass *pass)
{
    static const struct adamw a = {.lr = 1e-4,
                                   .beta1 = 0.9,
                                   .beta2 = 0.95,
                                   .eps = 1e-8,
                                   .weight_decay = 0.1,
                                   .router_lr = 1,
                                   .clip = 1};
    double t = clock_mono();
    model_forward(m, b, pass);
    model_loss(m, 1, 0);
    model_backward(m);
    struct grad_health h = params_grad_health(&m->params);
    if (h.bad == 0)
        adamw_step(&m->params, &a, pass->step, &h);
    else
        params_zero_grad(&m->params);
    if (m->route.ops->update)
        m->route.ops->update(&m->route);
    t = clock_mono() - t;
    m->batch = NULL;
    return t;
}

static int time_method(struct speed *s, const char *method, int which, struct err *e)
{
    struct speed_figures f = {.tokens = (double)(s->o.batch * s->o.seq), .unit = s->unit};
    struct speed_subject u;
    struct tokens t = {0};
    char what[64];
    int rows = (int)(s->o.batch * s->o.seq);
    (void)which;
    snprintf(what, sizeof what, "train step %.40s", method);
    const struct speed_plan p = {
        .group = "train", .what = what, .method = method, .train = 1, .rows = rows, .cells = rows};
    int rc = speed_subject_open(&u, s, &p, e);
    if (rc == 0 && u.n > 0)
        rc = make_tokens(&t, s, (int)s->o.vocab, e);
    for (int i = -1; i < s->o.rounds && rc == 0; i++) /* the first warms up */
        for (int k = 0; k < u.n; k++) {
            struct pass pass;
            speed_subject_set(&u, &u.way[k], &pass, 1);
            pass.step = i + 2;
            f.seconds[k][i < 0 ? 0 : i] = step_s(u.model, &t.b, &pass);
            /* backward has two GEMMs for each of the forward pass */
            f.flops[k] = 3 * speed_flops(u.model, u.way[k].is_masked, 1);
            f.dense[k] = 3 * speed_flops(u.model, 1, 1);
        }
    if (rc == 0)
        rc = speed_add_figures(s, &u, &f, e);
    speed_subject_close(&u);
    free_tokens(&t);
    return rc;
}

int speed_dense_steps(struct speed *s, int (*meet)(struct err *e), double *seconds, double *weights,
                      struct err *e)
{
    int rows = (int)(s->o.batch * s->o.seq);
    const struct speed_plan p = {
        .group = "ranks", .what = "ranks", .method = "dense", .train = 1, .rows = rows, .cells = rows};
    struct speed_subject u;
    struct tokens t = {0};
    int rc = speed_subject_open(&u, s, &p, e);
    if (rc == 0)
        rc = make_tokens(&t, s, (int)s->o.vocab, e);
    for (int i = -1; i < s->o.rounds && rc == 0; i++) { /* the first warms up */
        struct pass pass;
        speed_subject_set(&u, &u.way[0], &pass, 1);
        pass.step = i + 2;
        rc = meet(e);
        seconds[i < 0 ? 0 : i] = step_s(u.model, &t.b, &pass);
    }
    *weights = rc == 0 ? (double)params_count(&u.model->params) : 0;
    speed_subject_close(&u);
    free_tokens(&t);
    return rc;
}

int speed_training(struct speed *s, struct err *e)
{
    return speed_each_method(s, time_method, 0, e);
}

/* ---- one block ---- */

static double block_s(struct model *m, const struct batch *b, struct pass *pass, int backward)
{
    double t = clock_mono();
    model_forward(m, b, pass);
    if (backward)
        model_backward(m);
    t = clock_mono() - t;
    m->batch = NULL;
    return t;
}

/* Times a model of one gated layer without its head, whose gradient is preset; the embedding costs
 * almost nothing. */
static int time_block(struct speed *s, int backward, struct err *e)
{
    struct speed_figures f = {.tokens = (double)(s->o.batch * s->o.seq), .unit = s->unit};
    struct speed_subject u;
    struct tokens t = {0};
    int rows = (int)(s->o.batch * s->o.seq), times = backward ? 3 : 1;
    const struct speed_plan p = {.group = "blocks",
                                 .what = backward ? "block forward+backward" : "block forward",
                                 .method = "static",
                                 .train = 1,
                                 .is_block = 1,
                                 .rows = rows,
                                 .cells = rows};
    int rc = speed_subject_open(&u, s, &p, e);
    if (rc == 0 && u.n > 0)
        rc = make_tokens(&t, s, 64, e);
    for (int i = -1; i < s->o.rounds && rc == 0; i++)
        for (int k = 0; k < u.n; k++) {
            struct pass pass;
            struct model *m = u.model;
            speed_subject_set(&u, &u.way[k], &pass, 1);
            pass.step = i + 2;
            speed_fill(m->stream.dh[1], (size_t)rows * (size_t)s->o.dim, 1e-3);
            f.seconds[k][i < 0 ? 0 : i] = block_s(m, &t.b, &pass, backward);
            f.flops[k] = times * speed_flops(m, 0, 0);
            f.dense[k] = times * speed_flops(m, 1, 0);
        }
    if (rc == 0)
        rc = speed_add_figures(s, &u, &f, e);
    speed_subject_close(&u);
    free_tokens(&t);
    return rc;
}

int speed_blocks(struct speed *s, struct err *e)
{
    int rc = time_block(s, 0, e);
    return rc == 0 ? time_block(s, 1, e) : rc;
}
