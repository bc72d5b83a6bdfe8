/* dtf against central differences, in double.  Gates are smooth, so whole models are checked as
 * they are: with every gate soft, by rank away from ties, and with D replayed.  What the loss
 * detaches (the moving average, a prior's target) is checked on its own functions. */
#include "kit.h"
#include "routing/change.h"
#include "routing/surprise.h"

enum { B = 2, T = 8, V = 11, L = 5, SAMPLES = 20 };

static struct kit_batch batch;
static int has_spans; /* private ones, in place of documents */

/* ---- differences ----------------------------------------------------------------------------- */

struct checked {
    double (*value)(void *ctx);
    void *ctx;
};

static double slope(const struct checked *f, real *x, const real *direction, size_t n)
{
    static const double at[4] = {-2, -1, 1, 2}, weight[4] = {1, -8, 8, -1};
    const double eps = 1e-4;
    double sum = 0;
    real *keep = kit_copy(x, n);
    for (int k = 0; k < 4; k++) {
        for (size_t i = 0; i < n; i++)
            x[i] = keep[i] + at[k] * eps * direction[i];
        sum += weight[k] * f->value(f->ctx);
    }
    memcpy(x, keep, n * sizeof *x);
    free(keep);
    return sum / (12 * eps);
}

static void check_close(const char *what, const char *name, double num, double den)
{
    double rel =
        sqrt(num) / fmax(sqrt(den), 3e-4); /* below that the error of the difference dominates */
    t_truef(rel <= 1e-7, "%s: %s: relative error %.2e (of %.2e)", what, name, rel, sqrt(den));
}

/* Some elements one by one, then the whole tensor along one direction.  Returns the norm of the
 * compared gradient. */
static double check_tensor(const char *what, const char *name, const struct checked *f, real *x,
                           const real *grad, size_t n, uint32_t salt)
{
    struct rng r;
    double num = 0, den = 0, along = 0;
    real *d = calloc(n, sizeof *d);
    rng_init(&r, 3, RNG_TEST, 3, salt);
    for (size_t k = 0; k < SAMPLES && k < n; k++) {
        size_t i = n <= SAMPLES ? k : rng_below(&r, (uint32_t)n);
        memset(d, 0, n * sizeof *d);
        d[i] = 1;
        double want = slope(f, x, d, n);
        num += (grad[i] - want) * (grad[i] - want);
        den += want * want;
    }
    check_close(what, name, num, den);
    for (size_t i = 0; i < n; i++) {
        d[i] = rng_normal(&r) / sqrt((double)n);
        along += grad[i] * d[i];
    }
    double want = slope(f, x, d, n);
    check_close(what, name, (along - want) * (along - want), want * want);
    free(d);
    return sqrt(den);
}

/* ---- whole models ---------------------------------------------------------------------------- */

struct whole {
    struct model *m;
    struct pass pass;
};

static double objective(void *ctx)
{
    struct whole *w = ctx;
    struct losses x = {.R = B * T, .L = L};
    model_forward(w->m, &batch.b, &w->pass);
    double loss = model_loss(w->m, 0, 0);
    w->m->route.ops->aux(&w->m->route, &x);
    return loss + x.aux;
}

/* Switches the moving average off: backward detaches it, but differences would move it. */
#define NO_AVERAGE "dtf.m_cu=1e-9 dtf.learn_m_cu=false "

static struct model *small_at(const char *more, uint64_t seed)
{
    char text[700];
    snprintf(text, sizeof text,
             "model.layers=%d model.dim=8 model.heads=2 model.ffn=12 model.vocab=%d "
             "model.max_seq=%d model.init_std=0.3 model.method=dtf dtf.prior_factor=0.5 "
             "dtf.prior_std=0.3 dtf.beta_ce=0.4 dtf.beta_cu=0.2 dtf.ma_window=3 %s",
             L, V, T, more);
    kit_fill(&batch, B, T, V, 1);
    if (has_spans)
        kit_spans(&batch, 2, 2);
    else
        kit_documents(&batch);
    struct model *m = kit_model(text, 7, B * T, 1, 1);
    kit_shake(m, 0.1, seed);
    return m;
}

/* All trained parameters whose name holds `part`; each must be reached. */
static void check_params(const char *what, struct whole *w, const char *part)
{
    const struct checked f = {objective, w};
    int seen = 0;
    kit_step(w->m, &batch.b, &w->pass);
    for (int i = 0; i < w->m->params.n; i++) {
        struct param *p = &w->m->params.p[i];
        if (!p->train || !strstr(p->name, part))
            continue;
        real *grad = kit_copy(p->grad, p->n);
        double size = check_tensor(what, p->name, &f, p->value, grad, p->n, (uint32_t)i);
        t_truef(size > 1e-7, "%s: %s is not reached", what, p->name);
        free(grad);
        seen++;
    }
    t_true(seen > 0);
}

/* One step and its update, so that running statistics exist. */
static struct whole prepared(const char *options, uint64_t seed)
{
    struct whole w = {.m = small_at(options, seed), .pass = kit_pass(PASS_TRAIN)};
    kit_step(w.m, &batch.b, &w.pass);
    w.m->route.ops->update(&w.m->route);
    return w;
}

/* Every row runs, its increment multiplied by its G: scalars, networks, norms and, through D, both
 * blocks. */
static void check_soft(const char *options)
{
    struct whole w = prepared(options, 9);
    w.pass.soft = 1;
    check_params(options, &w, "");
    model_free(w.m);
}

T(soft_gates_have_the_right_gradients_down_to_the_blocks_and_networks)
{
    check_soft(NO_AVERAGE "dtf.prior_weight=0");
    check_soft(NO_AVERAGE "dtf.prior_weight=0 dtf.kv=all model.norm=layer model.mlp=gelu "
                          "model.attn_bias=true model.tied=false");
    check_soft(NO_AVERAGE "dtf.prior_weight=0 dtf.prior=transition");
    check_soft(NO_AVERAGE "dtf.prior_weight=0 dtf.normalize=true");
    check_soft(NO_AVERAGE "dtf.prior_weight=0 dtf.g_weight=0.3");
}

T(soft_gates_have_the_right_gradients_with_private_spans)
{
    has_spans = 1;
    check_soft(NO_AVERAGE "dtf.prior_weight=0 dtf.prior=transition");
    has_spans = 0;
}

/* The smallest margin within a document between a selected and a rejected score. */
static double margin(const struct model *m)
{
    const real *score = NULL, *topk = NULL;
    double least = 1;
    for (size_t k = 0; k < m->route.ops->n_metrics; k++) {
        if (m->route.ops->metrics[k].scope != METRIC_CELL)
            continue;
        score = strcmp(m->route.ops->metrics[k].name, "score") ? score : m->route.cell[k];
        topk = strcmp(m->route.ops->metrics[k].name, "topk") ? topk : m->route.cell[k];
    }
    for (int l = 1; l < L; l += 2)
        for (int i = 0; i < B * T; i++)
            for (int j = 0; j < i; j++) {
                const real *s = score + (size_t)l * B * T, *t = topk + (size_t)l * B * T;
                if (m->first_row[i] == m->first_row[j] && t[i] != t[j])
                    least = fmin(least, fabs(s[i] - s[j]));
            }
    return least;
}

/* By rank: in a model with clear margins the executed rows do not change within the differences. */
static void check_ranked(const char *options)
{
    for (uint64_t seed = 9; seed < 60; seed++) {
        struct whole w = prepared(options, seed);
        w.pass.record = 1;
        model_forward(w.m, &batch.b, &w.pass);
        int is_clear = margin(w.m) > 0.004;
        w.pass.record = 0;
        if (is_clear)
            check_params(options, &w, "");
        model_free(w.m);
        if (is_clear)
            return;
    }
    t_truef(0, "%s: every model has a tie", options);
}

T(ranked_gates_have_the_right_gradients_through_executed_rows)
{
    check_ranked(NO_AVERAGE "dtf.prior_weight=0");
    check_ranked(NO_AVERAGE "dtf.prior_weight=0 dtf.prior=transition dtf.kv=all");
    check_ranked(NO_AVERAGE "dtf.prior_weight=0 dtf.score=ce");
}

/* D is replayed, which leaves the gate's scalars, with the factor on the average, and the
 * blocks. */
static void check_held(const char *options)
{
    struct whole w = prepared(options, 9);
    w.pass.soft = 1;
    model_forward(w.m, &batch.b, &w.pass);
    w.m->route.frozen = 1;
    check_params(options, &w, "model.");
    check_params(options, &w, "dtf.beta");
    check_params(options, &w, "dtf.log");
    model_free(w.m);
}

T(detached_gates_have_the_right_gradients_with_d_replayed)
{
    check_held("dtf.detach=true dtf.prior_weight=0");
    check_held("dtf.detach=true dtf.prior_weight=0 dtf.pad=replicate dtf.ma_window=100");
    check_held("dtf.detach=true dtf.prior_weight=0 dtf.normalize=true dtf.prior=transition");
}

/* After the last network nothing is detached, so its part of both losses is a plain derivative. */
T(a_network_learns_from_its_own_loss_and_through_the_gate)
{
    static const char *const options[] = {
        "dtf.prior_weight=2", "dtf.prior_weight=2 dtf.reduce=sum dtf.prior_input=attached",
        "dtf.prior_weight=2 dtf.prior=transition",
        "dtf.prior_weight=0.5 dtf.prior_weight_final=3 dtf.prior_decay_steps=10"};
    for (size_t k = 0; k < DS_LEN(options); k++) {
        struct whole w = prepared(options[k], 9);
        w.pass.soft = 1;
        w.pass.step = 6;
        check_params(options[k], &w, "dtf.prior.2.");
        model_free(w.m);
    }
}

T(detached_networks_learn_from_their_own_loss_alone)
{
    struct whole w = prepared("dtf.detach=true dtf.prior_weight=0", 9);
    kit_step(w.m, &batch.b, &w.pass);
    const struct param *p = &w.m->params.p[params_find(&w.m->params, "dtf.prior.2.up.weight")];
    for (size_t i = 0; i < p->n; i++)
        t_true(p->grad[i] == 0);
    model_free(w.m);
    w = prepared("dtf.detach=true dtf.prior_weight=1", 9);
    kit_step(w.m, &batch.b, &w.pass);
    p = &w.m->params.p[params_find(&w.m->params, "dtf.prior.2.up.weight")];
    double sum = 0;
    for (size_t i = 0; i < p->n; i++)
        sum += fabs(p->grad[i]);
    t_true(sum > 1e-6);
    model_free(w.m);
}

/* ---- how far a block moved a token, alone ---------------------------------------------------- */

enum { C = 6, D = 4, R = B * T };

struct parts {
    struct change x;
    struct arena rows;
    struct params ps;
    struct pass pass;
    int32_t pos[R];
    real orig[R * C], post[R * C], dorig[R * C], dpost[R * C];
    double dst, dch,
        weight; /* the objective: sum over rows of i-dependent multiples, and weight * error */
};

static struct parts parts;

static void parts_new(int by_last)
{
    struct err e = {0};
    struct rng r;
    struct change_shape shape = {
        .pairs = 1, .net = {C, D, 0.5, 1}, .by_last = by_last, .window = 3};
    memset(&parts, 0, sizeof parts);
    t_ok(change_init(&parts.x, &parts.ps, "x", &shape, &e), &e);
    t_ok(params_reserve(&parts.ps, 1, &e), &e);
    params_init(&parts.ps, 3);
    t_ok(arena_reserve(&parts.rows, "rows", 1 << 24, &e), &e);
    change_layout(&parts.x, &parts.rows, R);
    rng_init(&r, 1, RNG_TEST, 9, 0);
    for (int i = 0; i < R * C; i++) {
        parts.orig[i] = rng_normal(&r);
        parts.post[i] = parts.orig[i] + rng_normal(&r);
    }
    for (int i = 0; i < R; i++)
        parts.pos[i] = i % T < 5 ? i % T : i % T - 5;
    parts.pass = (struct pass){.kind = PASS_TRAIN, .B = B, .T = T, .R = R, .pos = parts.pos};
}

static void parts_free(void)
{
    change_release(&parts.x);
    arena_release(&parts.rows);
    params_release(&parts.ps);
}

static double of_parts(void *ctx)
{
    struct parts *p = ctx;
    change_measure(&p->x, &p->pass, 0, p->orig, p->post, 1);
    double sum = p->weight * p->x.error[0];
    for (int i = 0; i < R; i++)
        sum += p->dst * sin(1 + i) * p->x.d_st[i] + p->dch * cos(1 + i) * p->x.d_ch[i];
    return sum;
}

static void parts_back(int is_held)
{
    params_zero_grad(&parts.ps);
    memset(parts.dorig, 0, sizeof parts.dorig);
    memset(parts.dpost, 0, sizeof parts.dpost);
    of_parts(&parts);
    for (int i = 0; i < R; i++) {
        parts.x.dd_st[i] = parts.dst * sin(1 + i);
        parts.x.dd_ch[i] = parts.dch * cos(1 + i);
    }
    if (parts.dst != 0 || parts.dch != 0)
        change_bwd(&parts.x, &parts.pass, 0, parts.dorig, parts.dpost, parts.orig, parts.post);
    if (parts.weight > 0)
        change_loss_bwd(&parts.x, &parts.pass, 0, parts.weight, is_held ? NULL : parts.dorig,
                        is_held ? NULL : parts.dpost, parts.orig, parts.post);
}

static void check_networks(const char *what, const struct checked *f)
{
    for (int i = 0; i < parts.ps.n; i++) {
        struct param *p = &parts.ps.p[i];
        real *grad = kit_copy(p->grad, p->n);
        t_true(check_tensor(what, p->name, f, p->value, grad, p->n, (uint32_t)i) > 1e-4);
        free(grad);
    }
}

T(both_distances_have_the_right_gradients)
{
    const struct checked f = {of_parts, &parts};
    for (int by_last = 0; by_last < 2; by_last++) {
        parts_new(by_last);
        parts.dst = 0.7;
        parts.dch = 1.3;
        parts_back(0);
        check_networks("D", &f);
        check_tensor("D", "orig", &f, parts.orig, parts.dorig, R * C, 1);
        check_tensor("D", "post", &f, parts.post, parts.dpost, R * C, 2);
        parts_free();
    }
}

/* With post detached the loss is a function of orig and the network; post gets no gradient. */
T(the_prior_loss_has_gradients_for_network_and_input_but_not_its_target)
{
    const struct checked f = {of_parts, &parts};
    parts_new(0);
    parts.weight = 1.7;
    parts_back(0);
    check_networks("prior loss", &f);
    check_tensor("prior loss", "orig", &f, parts.orig, parts.dorig, R * C, 1);
    for (int i = 0; i < R * C; i++)
        t_true(parts.dpost[i] == 0);
    parts_free();
}

T(a_detached_input_has_no_gradient_and_the_network_has_all_of_it)
{
    const struct checked f = {of_parts, &parts};
    for (int by_last = 0; by_last < 2; by_last++) {
        parts_new(by_last);
        parts.weight = 1.7;
        parts.dch = 0.4;
        parts_back(1);
        check_networks("held", &f);
        real *dorig = kit_copy(parts.dorig, R * C), *dpost = kit_copy(parts.dpost, R * C);
        parts.weight = 0;
        parts_back(1);
        t_true(kit_same(dorig, parts.dorig, R * C) && kit_same(dpost, parts.dpost, R * C));
        free(dorig);
        free(dpost);
        parts_free();
    }
}

/* dx is detached: the gradient of D_ch minus its part through dx remains at the previous row. */
T(the_transition_loss_has_gradients_for_network_and_previous_token_but_not_its_target)
{
    static real dorig[R * C], dpost[R * C];
    const struct checked f = {of_parts, &parts};
    parts_new(1);
    of_parts(&parts);
    for (int i = 0; i < R; i++) {
        parts.x.dd_st[i] = 0;
        parts.x.dd_ch[i] = 1.7 / R;
    }
    change_bwd(&parts.x, &parts.pass, 0, dorig, dpost, parts.orig, parts.post);
    parts.weight = 1.7;
    parts_back(0);
    check_networks("transition loss", &f);
    double sum = 0;
    for (int i = 0; i < R * C; i++) {
        t_true(parts.dorig[i] == 0);
        t_near(parts.dpost[i], dpost[i] + dorig[i], 1e-14);
        sum += fabs(parts.dpost[i]);
    }
    t_true(sum > 1e-3);
    parts_free();
}

/* ---- one token's surprise -------------------------------------------------------------------- */

struct one {
    struct surprise_scalars x;
    real v[6]; /* beta_ce, beta_cu, log_o_ce, log_m_cu, d_st, d_ch */
};

static struct surprise_scalars scalars_of(const struct one *o)
{
    struct surprise_scalars x = o->x;
    x.beta_ce = o->v[0];
    x.beta_cu = o->v[1];
    x.log_o_ce = o->v[2];
    x.log_m_cu = o->v[3];
    return x;
}

static double g_of(void *ctx)
{
    const struct one *o = ctx;
    struct surprise_scalars x = scalars_of(o);
    return surprise_of(&x, o->v[4], o->v[5], 0.6).g;
}

/* The average is not a variable, as it is detached. */
T(surprise_has_the_right_gradients_of_scalars_and_distances)
{
    for (int kind = SURPRISE_BOTH; kind <= SURPRISE_CU; kind++) {
        struct one o = {.x = {.kind = (enum surprise_kind)kind, .scale = 1.4},
                        .v = {-0.3, 0.8, 0.025, 0.1, 0.9, 0.4}};
        const struct checked f = {g_of, &o};
        struct surprise_scalars x = scalars_of(&o);
        struct surprise_grad d = {0};
        surprise_bwd(&d, &x, 1, o.v[4], o.v[5], 0.6);
        real grad[6] = {d.beta_ce, d.beta_cu, d.log_o_ce, d.log_m_cu, d.d_st, d.d_ch};
        t_true(check_tensor("G", "scalars", &f, o.v, grad, 6, 1) > 1e-2);
    }
}
