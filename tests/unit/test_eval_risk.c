/* A capacity for a risk: the order of the tests, what they promise, and what is executed for them. */
#include "../kit.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/statistics.h"
#include "eval/risk.h"
#include "fake_method.h"
#include "models/load.h"

/* ---- the tests alone ---- */

/* Losses with a mean that the test knows; each capacity and data set has draws of its own. */
struct known {
    double (*risk)(double capacity);
    uint64_t set;
    int is_soft; /* uniform on [0, 2 risk], else 0 and 1 */
    int calls;
};

static int draw(void *ctx, double capacity, double *loss, size_t n, struct err *e)
{
    struct known *k = ctx;
    uint32_t at = (uint32_t)lround(20 * capacity);
    (void)e;
    k->calls++;
    for (size_t i = 0; i < n; i++) {
        double u = rng_at(k->set, RNG_TEST, k->set, at, (uint32_t)i), r = k->risk(capacity);
        loss[i] = k->is_soft ? 2 * r * u : u < r;
    }
    return 0;
}

/* Below 0.7 every capacity misses a limit of 0.1, by as little as can be. */
static double step_at(double capacity)
{
    return capacity > 0.675 ? 0.02 : 0.1001;
}

static double slope(double capacity)
{
    return 0.2 * (1 - capacity);
}

static double none(double capacity)
{
    (void)capacity;
    return 0.1001;
}

/* In how many of `sets` data sets the chosen capacity misses the limit; *mean: of those chosen. */
static int misses(struct known *k, size_t units, int sets, double delta, double *mean)
{
    double loss[400];
    int bad = 0, chosen = 0;
    *mean = 0;
    for (int i = 0; i < sets; i++) {
        struct risk_table t = {.limit = 0.1, .delta = delta};
        struct err e = {0};
        k->set = (uint64_t)i;
        t_ok(risk_test(&t, draw, k, loss, units, &e), &e);
        bad += !isnan(t.capacity) && k->risk(t.capacity) > t.limit;
        chosen += !isnan(t.capacity);
        *mean += isnan(t.capacity) ? 0 : t.capacity;
    }
    *mean /= chosen ? chosen : 1;
    return bad;
}

T(the_share_of_broken_promises_is_at_most_delta)
{
    static double (*const risk[])(double) = {step_at, slope, none};
    enum { SETS = 2000 };
    for (size_t i = 0; i < DS_LEN(risk); i++)
        for (int soft = 0; soft < 2; soft++) {
            const double delta = 0.2;
            struct known k = {.risk = risk[i], .is_soft = soft};
            double mean;
            int bad = misses(&k, 400, SETS, delta, &mean);
            t_truef(bad <= SETS * delta + 3 * sqrt(SETS * delta * (1 - delta)),
                    "curve %zu: %d of %d", i, bad, (int)SETS);
            /* and the promise is worth something */
            if (risk[i] != none)
                t_truef(mean < 0.75, "curve %zu: capacity %g on average", i, mean);
        }
}

static double falling(double capacity)
{
    return capacity > 0.925 || capacity < 0.5 ? 0 : 0.5;
}

T(the_first_capacity_that_is_not_certified_ends_the_sequence)
{
    struct known k = {.risk = falling};
    struct risk_table t = {.limit = 0.1, .delta = 0.05};
    struct err e = {0};
    double loss[100];
    t_ok(risk_test(&t, draw, &k, loss, 100, &e), &e);
    t_near(t.capacity, 0.95, 1e-12); /* not 0, although its risk is 0 */
    t_eq(t.rows, 3);
    t_eq(k.calls, 3);
    t_true(t.row[0].is_certified && t.row[1].is_certified && !t.row[2].is_certified);
    t_near(t.row[1].p, pow(0.9, 100), 1e-12);
    t_near(t.row[2].risk, 0.5, 0.2);
    t_eq(t.units, 100);
    t_near(t.least, 1 - pow(0.05, 0.01), 1e-9);
    t.limit = 0.02; /* 100 units without a loss are too few */
    t_ok(risk_test(&t, draw, &k, loss, 100, &e), &e);
    t_true(isnan(t.capacity) && t.rows == 1);
    t.limit = t.least + 1e-9;
    t_ok(risk_test(&t, draw, &k, loss, 100, &e), &e);
    t_near(t.capacity, 0.95, 1e-12);
}

T(limits_are_probabilities)
{
    static const double bad[] = {0, 1, -0.1, 1.5, (double)NAN, (double)INFINITY};
    for (size_t i = 0; i < DS_LEN(bad); i++) {
        struct err e = {0};
        t_fails(risk_check(&(struct risk_table){.limit = bad[i], .delta = 0.1}, &e), &e, DS_ERANGE,
                "greater than 0 and less than 1");
        e = (struct err){0};
        t_fails(risk_check(&(struct risk_table){.limit = 0.1, .delta = bad[i]}, &e), &e, DS_ERANGE,
                "delta=");
    }
}

/* ---- a model ---- */

static struct subject subject(void)
{
    char dir[512], path[600];
    struct model *m = kit_model("model.layers=5 model.dim=16 model.heads=2 model.vocab=257 "
                                "model.max_seq=64 model.init_std=0.3 model.method=dense",
                                7, 1, 0, 0);
    struct tokenizer *t = NULL;
    struct subject s;
    struct err e = {0};
    t_ok(tokenizer_new_bytes(&t, &e), &e);
    snprintf(dir, sizeof dir, "%s/model", t_tmpdir());
    t_ok(fs_mkdirs(dir, &e), &e);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    t_ok(model_write_weights(m, path, 0, &e), &e);
    snprintf(path, sizeof path, "%s/config.json", dir);
    t_ok(model_write_config(m, path, &e), &e);
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    t_ok(tokenizer_save(t, path, &e), &e);
    model_free(m);
    tokenizer_free(t);
    t_ok(subject_open(&s, dir, NULL, &e), &e);
    s.model->route.ops = &fake_ops;
    fake_runs = fake_by_capacity;
    return s;
}

static struct ppl_options options(void)
{
    struct ppl_options o = {0};
    struct err e = {0};
    t_ok(opt_defaults(&ppl_group, &o, &e), &e);
    mem_free(o.path);
    o.path = mem_strdup("synth");
    o.docs = 20;
    o.seq = 32;
    o.tokens = 640;
    o.time_rounds = 1;
    return o;
}

/* Which sequences a pass saw, by their first ids. */
enum { SEEN = 4096 };
static uint32_t fitted[SEEN], tested[SEEN];
static size_t n_fitted, n_tested;

static int by_capacity_seen(const struct route *r, int l, int i)
{
    if (l == fake_on && i % 32 == 0) {
        uint32_t hash = 0;
        for (int k = i; k < i + 32; k++)
            hash = hash * 31 + (uint32_t)r->pass.id[k] + 1;
        if (r->pass.inference.calibrate && n_fitted < SEEN)
            fitted[n_fitted++] = hash;
        else if (!r->pass.inference.calibrate && n_tested < SEEN)
            tested[n_tested++] = hash;
    }
    return fake_by_capacity(r, l, i);
}

T(no_sequence_is_both_fitted_and_tested)
{
    struct subject s = subject();
    struct ppl_options o = options();
    struct risk_table t = {.limit = 0.9, .delta = 0.5};
    struct ppl *p = NULL;
    struct err e = {0};
    n_fitted = n_tested = 0;
    fake_begun = fake_ended = 0;
    fake_runs = by_capacity_seen;
    o.routing = PPL_DENSE;
    t_ok(ppl_open(&p, &s, &o, &e), &e);
    t_ok(risk_calibrate(&t, p, &e), &e);
    t_eq(t.fitted, 8); /* a batch of the 20 windows */
    t_eq(t.units, 12);
    t_eq(fake_begun + fake_ended, 2);
    t_eq(n_fitted, 8 * ROUTE_GRID);
    t_eq(n_tested, 12 * t.rows);
    for (size_t i = 0; i < n_fitted; i++)
        for (size_t k = 0; k < n_tested; k++)
            t_true(fitted[i] != tested[k]);
    ppl_close(p);
    opt_release(&ppl_group, &o);
    subject_close(&s);
}

T(losses_are_those_of_executed_passes)
{
    struct subject s = subject();
    struct ppl_options o = options();
    struct risk_table t = {.limit = 0.4, .delta = 0.4};
    struct ppl *p = NULL;
    struct ppl_result r;
    struct err e = {0};
    double dense[20], routed[20], sum = 0;
    o.routing = PPL_CAUSAL;
    t_ok(ppl_open(&p, &s, &o, &e), &e);
    t_ok(ppl_window_losses(p, 0, 20, (double)NAN, dense, &e), &e);
    t_ok(ppl_window_losses(p, 0, 20, 0.5, routed, &e), &e);
    t_ok(ppl_measure(&r, p, &(struct ppl_request){.capacity = 0.5}, &e), &e);
    t_near(stat_mean(routed, 20), measure_loss(&r.measure), 1e-6);
    ppl_result_release(&r);
    t_ok(risk_calibrate(&t, p, &e), &e);
    t_true(t.rows > 1 && t.row[0].risk == 0); /* everything ran */
    t_near(t.dense, stat_mean(dense + 8, 12), 1e-9);
    t_ok(ppl_window_losses(p, 8, 12, t.row[1].capacity, routed + 8, &e), &e);
    for (int i = 8; i < 20; i++)
        sum += fmin(1, fmax(0, routed[i] - dense[i]));
    t_near(t.row[1].risk, sum / 12, 1e-9);
    t_true(t.row[1].risk > 0);
    t_near(t.row[1].loss, stat_mean(routed + 8, 12), 1e-9);
    ppl_close(p);
    opt_release(&ppl_group, &o);
    subject_close(&s);
}

T(text_for_less_than_two_batches_is_refused)
{
    struct subject s = subject();
    struct ppl_options o = options();
    struct risk_table t = {.limit = 0.4, .delta = 0.4};
    struct ppl *p = NULL;
    struct err e = {0};
    o.tokens = 15 * 32;
    t_ok(ppl_open(&p, &s, &o, &e), &e);
    t_fails(risk_calibrate(&t, p, &e), &e, DS_ERANGE, "expected 16 or more");
    ppl_close(p);
    o.tokens = 3 * 32;
    e = (struct err){0};
    t_ok(ppl_open(&p, &s, &o, &e), &e);
    t_fails(risk_calibrate(&t, p, &e), &e, DS_ERANGE, "3 sequences of 32 tokens");
    ppl_close(p);
    opt_release(&ppl_group, &o);
    subject_close(&s);
}

T(a_stored_capacity_is_that_of_passes_that_ask_for_none)
{
    struct subject s = subject();
    struct ppl_options o = options();
    struct ppl *p = NULL;
    struct ppl_result own, asked, stored, other;
    struct err e = {0};
    t_ok(ppl_open(&p, &s, &o, &e), &e);
    t_ok(ppl_measure(&own, p, &(struct ppl_request){.capacity = (double)NAN}, &e), &e);
    t_ok(ppl_measure(&asked, p, &(struct ppl_request){.capacity = 0.25}, &e), &e);
    s.model->route.capacity = 0.25;
    t_ok(ppl_measure(&stored, p, &(struct ppl_request){.capacity = (double)NAN}, &e), &e);
    t_ok(ppl_measure(&other, p, &(struct ppl_request){.capacity = 1}, &e), &e);
    t_near(measure_loss(&stored.measure), measure_loss(&asked.measure), 0);
    t_near(stored.capacity, 0.25, 0);
    t_true(isnan(own.capacity) && measure_loss(&own.measure) != measure_loss(&asked.measure));
    t_near(measure_block_ratio(&other.measure), 1, 0);
    ppl_result_release(&own);
    ppl_result_release(&asked);
    ppl_result_release(&stored);
    ppl_result_release(&other);
    ppl_close(p);
    opt_release(&ppl_group, &o);
    subject_close(&s);
}
