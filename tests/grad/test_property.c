/* Random models against central differences, in double: shapes, switches, a method and its options
 * are drawn from a seed.  With the plan fixed, every weight outside the method must have its true
 * derivative; with soft gates also the method's own, as in test_methods.c.  A draw that fails is
 * made smaller, as long as it fails, before it is printed.
 *
 *   PROOF_SEED=n PROOF_SECONDS=s   draws from seed n on for so long; then lines
 *                                  "method NAME DRAWS", "gradients DRAWS REFUSED TENSORS KINKS WORST",
 *                                  "seed NEXT"
 *   PROOF_VERBOSE=1                prints each draw that is refused or wrong, and goes on */
#include <time.h>

#include "kit_grad.h"
#include "models/moe.h"
#include "routing/route.h"

enum { ROWS = 3, TIME = 9, DEPTH = 24 };

/* The first choice is the default and what a smaller draw takes. */
static const struct {
    const char *key, *choices;
} switches[] = {
    // clang-format off
    {"norm", "rms|layer"},
    {"position", "rope|rope_interleaved|learned|none"},
    {"mlp", "swiglu|gelu|gelu_tanh|geglu"}, {"norm_place", "before|after|both"},
    {"parallel", "false|true|shared"}, {"norm_offset", "false|true"},
    {"qk_norm", "none|head|whole"}, {"attn_bias", "false|true|qkv"}, {"mlp_bias", "false|true"},
    {"tied", "true|false"}, {"attn_scale", "0|0.7"}, {"attn_cap", "0|1.5"}, {"logit_cap", "0|2"},
    {"window", "0|2|4"}, {"window_layers", "|0"}, {"nope_layers", "|0"}, {"rope_dims", "0|2"},
    {"rope_local", "0|100"}, {"embed_scale", "1|2.5"},
    {"loop_norm", "true|false|final"}, {"loop_inject", "none|add"}, {"loop_min", "0|1"},
    {"experts", "0|3|5"}, {"experts_used", "1|2"}, {"experts_score", "softmax|sigmoid"},
    {"experts_norm", "true|false"}, {"experts_bias", "false|true"}, {"experts_noop", "0|2"},
    {"experts_balance", "layer|model"}, {"experts_aux", "0.01|0.7|0"}, {"dense_layers", "|0"},
    {"shared_ffn", "0|4"}, {"shared_gate", "false|true"}, {"lora_r", "0|2"},
    {"lora_targets", "q,k,v,o|q,v,up,down"}, {"lora_bias", "false|true"},
    // clang-format on
};
enum { SWITCHES = DS_LEN(switches) };

/* A switch that needs another: `key` keeps its default unless `needs` is (or, with `is` NULL, is not
 * its default) as named.  What else a model refuses is not drawn again but counted. */
static const struct {
    const char *key, *needs, *is;
} needed[] = {
    // clang-format off
    {"window_layers", "window", NULL}, {"rope_local", "window", NULL},
    {"nope_layers", "position", "rope"}, {"rope_local", "position", "rope"},
    {"norm_offset", "norm", "rms"}, {"norm_place", "norm", "rms"},
    {"parallel", "norm_place", "before"},
    {"dense_layers", "experts", NULL}, {"experts_noop", "experts", NULL},
    {"shared_ffn", "experts", NULL}, {"shared_gate", "shared_ffn", NULL},
    {"mlp_bias", "experts", "0"},
    // clang-format on
};

/* With these a method's own gradient is not the derivative of this objective: what `attach` reads
 * is neither held nor follows the weights in a replay, other estimators are not the slope of the
 * soft gate, and probes of sparse training are weighted.  tests/grad/test_METHOD.c checks them by
 * their own definition; they are drawn with fixed gates alone. */
static const char *const not_soft[] = {"dlr.attach", "dlr.estimator", "edp.attach",
                                       "edp.train",  "hat.attach",    NULL};

/* What a replay with soft gates does not hold, as in test_methods.c. */
static const struct {
    const char *method, *text;
} held[] = {{"dtf", "dtf.detach=true dtf.prior_weight=0 dtf.prior_weight_final=0"}};

enum dim { B_, T_, HEADS, HEAD_DIM, FFN, VOCAB, LAYERS, LOOP, FIRST, LAST, DIMS };
static const int least[DIMS] = {1, 1, 1, 2, 1, 2, 1, 1, 0, 0};

struct draw {
    uint64_t seed;
    const struct route_ops *ops;
    int dim[DIMS], choice[SWITCHES];
    int soft, keep, documents, spans, exits, grouped; /* grouped: one key head for all */
    char own[500];                                    /* the method's options */
};

struct verdict {
    enum { REFUSED, RIGHT, WRONG } is;
    char text[300]; /* of the worst tensor */
    double worst;
    int tensors, kinks;
};

static struct kit_batch batch;
static real entropy[ROWS * TIME], nll[ROWS * TIME];

/* ---- a draw ---------------------------------------------------------------------------------- */

static void nth_choice(const char *choices, int n, char *out, size_t size)
{
    while (n-- > 0)
        choices = strchr(choices, '|') + 1;
    snprintf(out, size, "%.*s", (int)strcspn(choices, "|"), choices);
}

static int choices_of(const char *choices)
{
    int n = 1;
    while ((choices = strchr(choices, '|')) != NULL)
        n++, choices++;
    return n;
}

static int is_listed(const char *const *list, const char *word)
{
    while (*list && strcmp(*list, word) != 0)
        list++;
    return *list != NULL;
}

static int switch_of(const char *key)
{
    int i = 0;
    while (strcmp(switches[i].key, key) != 0)
        i++;
    return i;
}

static void mend(struct draw *d)
{
    char value[40];
    for (size_t i = 0; i < DS_LEN(needed); i++) {
        int of = switch_of(needed[i].needs);
        nth_choice(switches[of].choices, d->choice[of], value, sizeof value);
        if (needed[i].is ? strcmp(value, needed[i].is) != 0 : d->choice[of] == 0)
            d->choice[switch_of(needed[i].key)] = 0;
    }
    if (d->choice[switch_of("position")] < 2)
        d->dim[HEAD_DIM] += d->dim[HEAD_DIM] % 2; /* rotary positions turn pairs */
    if (d->dim[LOOP] < 2)
        d->choice[switch_of("loop_inject")] = d->choice[switch_of("loop_min")] = 0;
    if (d->choice[switch_of("experts_score")])
        d->choice[switch_of("experts_aux")] = 2;
    if (d->dim[LAYERS] < 1 + d->dim[FIRST] + d->dim[LAST])
        d->dim[LAYERS] = 1 + d->dim[FIRST] + d->dim[LAST];
}

/* A third of the method's options at another value; sizes and rates stay near the default. */
static void draw_own(struct draw *d, struct rng *r)
{
    size_t used = 0;
    d->own[0] = '\0';
    for (size_t i = 0; i < d->ops->n_opts; i++) {
        const struct opt *o = &d->ops->opts[i];
        char full[80], value[60] = "";
        double x = strtod(o->otherwise, NULL), by = 0.5 + 1.5 * rng_uniform(r);
        uint32_t pick = rng_below(r, 64);
        snprintf(full, sizeof full, "%s.%s", d->ops->name, o->key);
        if (pick % 3 != 0 || (d->soft && is_listed(not_soft, full)))
            continue;
        if (o->type == OPT_ENUM)
            nth_choice(o->choices, (int)(pick / 3) % choices_of(o->choices), value, sizeof value);
        else if (o->type == OPT_BOOL)
            snprintf(value, sizeof value, "%s", pick & 4 ? "true" : "false");
        else if (o->type == OPT_REAL)
            x = x != 0 ? x * by : 0.3 * rng_uniform(r);
        else if (o->type == OPT_INT)
            x = opt_is_limited(o) ? o->min + pick / 3 % 3 : x;
        if (opt_is_limited(o))
            x = x < o->min ? o->min : x > o->max ? o->max : x;
        if (o->type == OPT_REAL || o->type == OPT_INT)
            snprintf(value, sizeof value, "%.6g", x);
        if (o->type != OPT_STRING && used + strlen(full) + strlen(value) + 3 < sizeof d->own)
            used += (size_t)snprintf(d->own + used, sizeof d->own - used, " %s=%s", full, value);
    }
}

static struct draw draw_of(uint64_t seed)
{
    static const int most[DIMS] = {ROWS, TIME, 4, 7, 13, 17, 6, 3, 1, 1};
    struct draw d = {.seed = seed};
    struct rng r;
    int methods = 0;
    rng_init(&r, seed, RNG_TEST, 30, 0);
    for (int i = 0; i < DIMS; i++)
        d.dim[i] = least[i] + (int)rng_below(&r, (uint32_t)(most[i] - least[i] + 1));
    if (d.dim[LOOP] == 1 || rng_below(&r, 2)) /* most models have no loop */
        d.dim[LOOP] = 1, d.dim[FIRST] = d.dim[LAST] = 0;
    for (int i = 0; i < SWITCHES; i++)
        if (rng_below(&r, 4) == 0)
            d.choice[i] = (int)rng_below(&r, (uint32_t)choices_of(switches[i].choices));
    while (route_all()[methods])
        methods++;
    d.ops = route_all()[rng_below(&r, (uint32_t)methods)];
    d.soft = (d.ops->flags & ROUTE_GRAD) && rng_below(&r, 2);
    d.keep = (int)rng_below(&r, 2);
    d.documents = (int)rng_below(&r, 2);
    d.spans = !d.documents && rng_below(&r, 3) == 0;
    d.exits = rng_below(&r, 3) == 0;
    d.grouped = rng_below(&r, 3) == 0;
    draw_own(&d, &r);
    mend(&d);
    return d;
}

static void describe(const struct draw *d, char *out, size_t size)
{
    int at = snprintf(
        out, size,
        "model.dim=%d model.heads=%d model.kv_heads=%d model.head_dim=%d model.ffn=%d "
        "model.vocab=%d model.layers=%d model.loop=%d model.loop_first=%d model.loop_last=%d "
        "model.max_seq=%d model.init_std=0.4 model.method=%s%s",
        d->dim[HEADS] * d->dim[HEAD_DIM], d->dim[HEADS], d->grouped ? 1 : d->dim[HEADS],
        d->dim[HEAD_DIM], d->dim[FFN], d->dim[VOCAB], d->dim[LAYERS], d->dim[LOOP], d->dim[FIRST],
        d->dim[LAST], TIME, d->ops->name, d->own);
    for (size_t i = 0; d->soft && i < DS_LEN(held); i++)
        if (strcmp(held[i].method, d->ops->name) == 0)
            at += snprintf(out + at, size - (size_t)at, " %s", held[i].text);
    if (d->soft && d->ops->flags & ROUTE_EXITS)
        at += snprintf(out + at, size - (size_t)at, " halt.fit=train");
    for (int i = 0; i < SWITCHES; i++) {
        char value[40];
        nth_choice(switches[i].choices, d->choice[i], value, sizeof value);
        if (d->choice[i])
            at += snprintf(out + at, size - (size_t)at, " model.%s=%s", switches[i].key, value);
    }
}

/* ---- the check ------------------------------------------------------------------------------- */

/* The predictive entropy and a reward are detached, so they are constant here too. */
static double objective(struct model *m, struct pass *pass)
{
    int L = model_config_depth(&m->config);
    struct losses x = {.entropy = entropy, .nll = nll, .target = batch.target, .R = m->R, .L = L};
    model_forward(m, &batch.b, pass);
    x.rows = model_loss_rows(m);
    if (m->route.wants_exits) { /* labels: what the last step with a backward pass found */
        x.exit_nll = m->exits.nll;
        x.exit_doubt = m->exits.doubt;
        x.exit_entropy = m->exits.entropy;
        x.exit_kl = m->exits.kl;
        x.exit_best = m->exits.best;
    }
    double loss = model_exit_weight(m, L) * model_loss(m, 0, 0) + kit_exit_loss(m) +
                  m->config.experts_aux * moe_balance(m);
    if (m->route.ops->aux)
        m->route.ops->aux(&m->route, &x);
    return loss + x.aux;
}

/* Five points at steps of eps. */
static double slope(struct model *m, struct pass *pass, real *x, const real *along, size_t n,
                    double eps)
{
    static const double at[4] = {-2, -1, 1, 2}, weight[4] = {1, -8, 8, -1};
    double sum = 0;
    real *keep = kit_copy(x, n);
    for (int k = 0; k < 4; k++) {
        for (size_t i = 0; i < n; i++)
            x[i] = keep[i] + (real)(at[k] * eps) * along[i];
        params_changed(&m->params);
        sum += weight[k] * objective(m, pass);
    }
    memcpy(x, keep, n * sizeof *x);
    params_changed(&m->params);
    free(keep);
    return sum / (12 * eps);
}

/* Error of the gradient along a direction, relative to the slope or to a thousandth of the whole
 * gradient's norm; or INFINITY. */
static double error_along(struct model *m, struct pass *pass, struct param *p, const real *grad,
                          const real *along, double eps, double norm)
{
    double got = 0, want = slope(m, pass, p->value, along, p->n, eps);
    for (size_t i = 0; i < p->n; i++)
        got += (double)grad[i] * (double)along[i];
    double e = fabs(got - want) / fmax(fabs(want), 1e-3 * fmax(norm, 1));
    return isfinite(e) ? e : INFINITY;
}

/* Two elements and a random direction. */
static void check_tensor(struct verdict *v, struct model *m, struct pass *pass, int index,
                         double norm, struct rng *r)
{
    enum { STEPS = 4 };
    struct param *p = &m->params.p[index];
    real *grad = kit_copy(p->grad, p->n), *along = calloc(p->n, sizeof *along);
    for (int k = 0; k < 3 && v->is != WRONG; k++) {
        for (size_t i = 0; i < p->n; i++)
            along[i] = k < 2 ? 0 : (real)(rng_normal(r) / sqrt((double)p->n));
        if (k < 2)
            along[rng_below(r, (uint32_t)p->n)] = 1;
        /* A difference over a wide step is wrong where the function curves much or has a kink; a
         * wrong gradient is wrong at every step, and smaller steps allow for rounding. */
        static const double step[STEPS] = {1.5e-4, 1e-5, 1e-6, 2e-7};
        static const double most[STEPS] = {1e-7, 1e-6, 1e-5, 1e-5};
        double e[STEPS];
        size_t n = 0;
        while (n < STEPS &&
               !((e[n] = error_along(m, pass, p, grad, along, step[n], norm)) <= most[n]))
            n++;
        if (n == STEPS) {
            v->is = WRONG;
            snprintf(v->text, sizeof v->text, "%s: relative error %.2e, %.2e, %.2e and %.2e",
                     p->name, e[0], e[1], e[2], e[3]);
        } else if (n > 0) {
            v->kinks++;
        } else {
            v->worst = fmax(v->worst, e[0]);
        }
    }
    v->tensors++;
    free(grad);
    free(along);
}

static void fill(const struct draw *d, struct rng *r)
{
    kit_fill(&batch, d->dim[B_], d->dim[T_], d->dim[VOCAB], d->seed);
    for (int i = 0; i < d->dim[B_] * d->dim[T_]; i++)
        if (i > 0 && rng_below(r, 8) == 0)
            batch.target[i] = -1;
    if (d->documents)
        kit_documents(&batch);
    if (d->spans)
        kit_spans(&batch, d->dim[T_] < 2 ? d->dim[T_] : 2, 2);
}

static struct verdict check(const struct draw *d)
{
    static real weight[DEPTH + 1];
    struct verdict v = {.is = REFUSED};
    struct err e = {0};
    struct model *m = NULL;
    struct pass pass = kit_pass(PASS_TRAIN);
    struct rng r;
    char text[2000];
    rng_init(&r, d->seed, RNG_TEST, 31, 0);
    describe(d, text, sizeof text);
    fill(d, &r);
    int rc = kit_try(&m, text, d->seed, 1, &e);
    if (rc == 0 && d->spans)
        rc = model_config_check_private(&m->config, &e);
    int L = m ? model_config_depth(&m->config) : 0;
    if (rc < 0 || L > DEPTH) {
        snprintf(v.text, sizeof v.text, "%.250s", e.text);
        if (m)
            model_free(m);
        return v;
    }
    t_ok(model_reserve(m, d->dim[B_] * d->dim[T_], 1, d->keep, &e), &e);
    weight[L] = (real)0.7;
    for (int l = 1; l < L; l++)
        weight[l] = exit_is_candidate(&m->config, l) ? (real)(0.3 * rng_uniform(&r)) : 0;
    m->exit_weight = d->exits && L > 1 ? weight : NULL;
    kit_shake(m, 0.2, d->seed + 1);
    kit_step(m, &batch.b, &pass); /* with its update, so that running statistics exist */
    if (m->route.ops->update)
        m->route.ops->update(&m->route);
    struct route_ops silent = *d->ops;
    pass.soft = d->soft;
    model_forward(m, &batch.b, &pass);
    m->route.frozen = 1;
    if (!d->soft) { /* the method's own gradients are those of its soft gates */
        silent.flags &= ~(unsigned)ROUTE_GRAD;
        silent.aux = NULL;
        m->route.ops = &silent;
        for (int i = 0; i < m->params.n; i++)
            if (strncmp(m->params.p[i].name, silent.name, strlen(silent.name)) == 0)
                m->params.p[i].train = 0;
    } else {
        for (int i = 0; i < m->params.n; i++) /* fitted to labels, not by the loss: test_edp.c */
            if (strncmp(m->params.p[i].name, "edp.regret.", 11) == 0)
                m->params.p[i].train = 0;
        kit_step(m, &batch.b, &pass);
        if (m->entropy_rel)
            memcpy(entropy, m->entropy_rel, (size_t)m->R * sizeof *entropy);
        memcpy(nll, m->nll, (size_t)m->R * sizeof *nll);
    }
    kit_step(m, &batch.b, &pass);
    struct grad_health health = params_grad_health(&m->params);
    double norm = sqrt(health.norm * health.norm + health.router_norm * health.router_norm);
    v.is = health.bad ? WRONG : RIGHT;
    if (health.bad)
        snprintf(v.text, sizeof v.text, "%s: not finite", health.first_bad);
    for (int i = 0; i < m->params.n && v.is == RIGHT; i++)
        if (m->params.p[i].train)
            check_tensor(&v, m, &pass, i, norm, &r);
    m->route.ops = d->ops;
    model_free(m);
    return v;
}

/* ---- making a failure smaller ---------------------------------------------------------------- */

static int still_wrong(const struct draw *d, struct verdict *v)
{
    struct verdict now = check(d);
    if (now.is == WRONG)
        *v = now;
    return now.is == WRONG;
}

static void shrink(struct draw *d, struct verdict *v)
{
    for (int again = 1; again;) {
        struct draw next = *d;
        again = 0;
        for (int i = 0; i < DIMS; i++, next = *d) {
            next.dim[i] = d->dim[i] / 2 > least[i] ? d->dim[i] / 2 : least[i];
            if (next.dim[i] != d->dim[i] && still_wrong(&next, v))
                *d = next, again = 1;
        }
        for (int i = 0; i < SWITCHES; i++, next = *d) {
            next.choice[i] = 0;
            if (d->choice[i] && still_wrong(&next, v))
                *d = next, again = 1;
        }
        for (int i = 0; i < 6; i++, next = *d) {
            int *const flag[] = {&next.keep, &next.documents, &next.spans, &next.exits,
                                 &next.grouped};
            int had = i < 5 ? *flag[i] : d->own[0];
            if (i < 5)
                *flag[i] = 0;
            else
                next.own[0] = '\0';
            if (had && still_wrong(&next, v))
                *d = next, again = 1;
        }
    }
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

T_SECONDS(random_models_have_the_right_gradients, 120)
{
    enum { DRAWS = 20, METHODS = 40 };
    const char *from = getenv("PROOF_SEED"), *limit = getenv("PROOF_SECONDS");
    const char *verbose = getenv("PROOF_VERBOSE");
    double end = seconds() + (limit ? atof(limit) : 0), worst = 0;
    uint64_t seed = from ? strtoull(from, NULL, 10) : 1;
    int draws = 0, refused = 0, tensors = 0, kinks = 0, per[METHODS] = {0}, wrong = 0;
    while (limit ? seconds() < end : draws < DRAWS) {
        struct draw d = draw_of(seed++);
        struct verdict v = check(&d);
        char text[2000];
        if (v.is == REFUSED) { /* what refuses is most often a depth or an option of the method */
            d.own[0] = '\0';
            d.dim[LAYERS] = 6;
            v = check(&d);
        }
        if (verbose && v.is != RIGHT) {
            printf("%llu %s %s %s\n", (unsigned long long)d.seed, d.ops->name,
                   v.is == REFUSED ? "refused:" : "wrong:", v.text);
            fflush(stdout);
        }
        if (v.is == WRONG && !verbose) {
            shrink(&d, &v);
            describe(&d, text, sizeof text);
            t_truef(0,
                    "seed %llu, %s gates, B %d T %d keep %d documents %d spans %d exits %d: %s\n%s",
                    (unsigned long long)d.seed, d.soft ? "soft" : "fixed", d.dim[B_], d.dim[T_],
                    d.keep, d.documents, d.spans, d.exits, v.text, text);
        }
        refused += v.is == REFUSED;
        wrong += v.is == WRONG;
        if (v.is != RIGHT)
            continue;
        draws++, tensors += v.tensors, kinks += v.kinks, worst = fmax(worst, v.worst);
        for (int i = 0; route_all()[i]; i++)
            per[i] += route_all()[i] == d.ops;
    }
    t_truef(kinks <= 200 + tensors * 3 / 20, "%d of %d directions need a smaller step", kinks,
            tensors * 3);
    t_truef(refused <= 3 * draws + 20, "%d draws, %d refused", draws, refused);
    for (int i = 0; limit && route_all()[i]; i++)
        printf("method %s %d\n", route_all()[i]->name, per[i]);
    if (limit)
        printf("gradients %d %d %d %d %.3g\nseed %llu\n", draws, refused, tensors, kinks, worst,
               (unsigned long long)seed);
    t_eq(wrong, 0);
}
