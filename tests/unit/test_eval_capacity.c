/* Requested capacities: the search for a speedup, the table, and what is refused. */
#include "../kit.h"
#include "base/fs.h"
#include "base/mem.h"
#include "eval/capacity.h"
#include "eval/generation.h"
#include "fake_method.h"
#include "models/load.h"

/* ---- the search alone ---- */

static int calls;

/* A share of 0.2 is always paid. */
static int smooth(void *ctx, double capacity, double *speedup, struct err *e)
{
    (void)ctx;
    (void)e;
    calls++;
    *speedup = 1 / (0.2 + 0.8 * capacity);
    return 0;
}

static int stairs(void *ctx, double capacity, double *speedup, struct err *e)
{
    (void)ctx;
    (void)e;
    calls++;
    *speedup = capacity < 0.3 ? 3 : 1;
    return 0;
}

static int broken(void *ctx, double capacity, double *speedup, struct err *e)
{
    (void)ctx;
    (void)speedup;
    return capacity < 1 ? err_set(e, DS_ENUMERIC, "the loss is nan")
                        : smooth(ctx, capacity, speedup, e);
}

T(bisection_finds_the_capacity_of_a_speedup)
{
    static const double target[] = {1.0, 1.3, 2, 3.7, 4.95};
    struct capacity_found f;
    struct err e = {0};
    for (size_t i = 0; i < DS_LEN(target); i++) {
        calls = 0;
        t_ok(capacity_bisect(&f, target[i], smooth, NULL, &e), &e);
        t_true(f.is_met && calls == f.passes && calls <= 12);
        t_near(f.speedup, target[i], 0.02 * target[i]);
        t_near(f.speedup, 1 / (0.2 + 0.8 * f.capacity), 1e-12);
    }
}

T(an_unreachable_speedup_reports_the_possible_range)
{
    struct capacity_found f;
    struct err e = {0};
    t_fails(capacity_bisect(&f, 6, smooth, NULL, &e), &e, DS_ERANGE,
            "unreachable: expected a value in [1.000, 5.000]");
    e = (struct err){0};
    t_fails(capacity_bisect(&f, 0.5, smooth, NULL, &e), &e, DS_ERANGE, "unreachable");
    e = (struct err){0};
    t_fails(capacity_bisect(&f, (double)NAN, smooth, NULL, &e), &e, DS_ERANGE, "greater than 0");
    e = (struct err){0};
    t_fails(capacity_bisect(&f, 2, broken, NULL, &e), &e, DS_ENUMERIC, "nan");
}

T(a_speedup_between_steps_gives_the_nearest_and_says_that_it_is_not_met)
{
    struct capacity_found f;
    struct err e = {0};
    calls = 0;
    t_ok(capacity_bisect(&f, 2.2, stairs, NULL, &e), &e);
    t_true(!f.is_met && calls == 12);
    t_near(f.speedup, 3, 0);
    t_true(f.capacity < 0.3);
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

static void set_capacities(struct ppl_options *o, const char *text)
{
    mem_free(o->capacities);
    o->capacities = mem_strdup(text);
}

T(the_table_has_what_each_capacity_really_did)
{
    struct subject s = subject();
    struct ppl_options o = options();
    struct capacity_table t;
    struct ppl_result r;
    struct err e = {0};
    set_capacities(&o, "0,0.25,1");
    t_ok(capacity_benchmark(&t, &s, &o, &e), &e);
    t_eq(t.n, 3);
    t_near(t.tokens, 640, 0);
    for (size_t i = 0; i < 3; i++) {
        /* layer 0 of 5 is always on */
        t_near(t.row[i].realised, (1 + 4 * t.row[i].target) / 5, 0.05);
        t_true(t.row[i].time_ratio > 0 && t.row[i].decode_time_ratio > 0);
        o.capacity = t.row[i].target;
        t_ok(ppl_run(&r, &s, &o, &e), &e);
        t_near(t.row[i].loss, measure_loss(&r.measure), 1e-12);
        t_near(t.row[i].flops_ratio, measure_model_ratio(&r.measure), 1e-12);
        t_near(t.row[i].control_random_loss, contrast_loss(&r.measure.contrast, CONTRAST_RANDOM),
               1e-12);
        t_near(t.row[i].delta, t.row[i].loss / t.dense_loss - 1, 1e-9);
        t_near(t.row[i].ppl_delta, exp(t.row[i].loss) / exp(t.dense_loss) - 1, 1e-9);
        ppl_result_release(&r);
    }
    t_near(t.row[2].loss, t.dense_loss, 1e-9); /* everything ran */
    t_near(t.row[2].delta, 0, 1e-9);
    t_near(t.row[0].control_random_loss, t.row[0].loss, 1e-9); /* nothing to choose */
    opt_release(&ppl_group, &o);
    subject_close(&s);
}

/* More than an evaluation takes for its controls. */
T(the_columns_are_of_one_text_however_long)
{
    struct subject s = subject();
    struct ppl_options o = options();
    struct capacity_table t;
    struct err e = {0};
    o.docs = 2000;
    o.tokens = 70000;
    set_capacities(&o, "1");
    t_ok(capacity_benchmark(&t, &s, &o, &e), &e);
    t_truef(t.tokens >= 70000, "%g", t.tokens);
    t_near(t.row[0].loss, t.dense_loss, 1e-9); /* everything ran */
    t_near(t.row[0].control_random_loss, t.row[0].loss, 1e-9);
    t_near(t.row[0].control_static_loss, t.row[0].loss, 1e-9);
    opt_release(&ppl_group, &o);
    subject_close(&s);
}

T(a_list_of_capacities_is_checked)
{
    static const char *const bad[] = {"", "0.5,", "x", "1.5", "-0.1", "0.5;0.6", "nan"};
    struct subject s = subject();
    struct ppl_options o = options();
    struct capacity_table t;
    for (size_t i = 0; i < DS_LEN(bad); i++) {
        struct err e = {0};
        set_capacities(&o, bad[i]);
        t_fails(capacity_benchmark(&t, &s, &o, &e), &e, DS_EUSAGE, "capacit");
    }
    struct err e = {0};
    set_capacities(&o, "0.5");
    o.routing = PPL_DENSE;
    t_fails(capacity_benchmark(&t, &s, &o, &e), &e, DS_EUSAGE, "needs routing=causal");
    o.routing = PPL_CAUSAL;
    s.model->route.ops = route_find("dense");
    t_fails(capacity_benchmark(&t, &s, &o, &e), &e, DS_EUSAGE, "no capacity");
    opt_release(&ppl_group, &o);
    subject_close(&s);
}

T(the_search_on_a_model_ends_at_a_capacity_with_that_many_flops)
{
    struct subject s = subject();
    struct ppl_options o = options();
    struct capacity_found f;
    struct ppl *p = NULL;
    struct ppl_result r;
    struct err e = {0};
    t_ok(ppl_open(&p, &s, &o, &e), &e);
    t_ok(capacity_search(&f, p, 1.1, SPEEDUP_OF_FLOPS, 0, &e), &e);
    t_true(f.is_met && f.capacity > 0 && f.capacity < 1);
    t_ok(ppl_measure(&r, p, &(struct ppl_request){.capacity = f.capacity}, &e), &e);
    t_near(1 / measure_model_ratio(&r.measure), f.speedup, 1e-12);
    t_near(f.speedup, 1.1, 0.022);
    t_near(r.capacity, f.capacity, 0);
    ppl_result_release(&r);
    t_fails(capacity_search(&f, p, 1000, SPEEDUP_OF_FLOPS, 0, &e), &e, DS_ERANGE, "unreachable");
    ppl_close(p);
    opt_release(&ppl_group, &o);
    subject_close(&s);
}

T(top_k_is_for_whole_texts_and_uncalibrated_routing_is_refused)
{
    struct route_ops unready = fake_ops;
    struct subject s = subject();
    struct ppl_options o = options();
    struct gen_options g = {.top_p = 1, .capacity = -1, .max_tokens = 1};
    struct ppl_result r;
    struct err e = {0};
    unready.ready = fake_ready;
    s.model->route.ops = &unready;
    t_fails(ppl_run(&r, &s, &o, &e), &e, DS_EUSAGE, "depthscope calibrate MODEL");
    e = (struct err){0};
    t_fails(gen_check(&s, &g, &e), &e, DS_EUSAGE, "depthscope calibrate MODEL");
    g.routing = GEN_DENSE;
    e = (struct err){0};
    t_ok(gen_check(&s, &g, &e), &e);
    g.routing = GEN_TOPK;
    t_fails(gen_check(&s, &g, &e), &e, DS_EUSAGE, "depends on later tokens");
    g.routing = GEN_CAUSAL;
    g.capacity = -0.5;
    e = (struct err){0};
    t_fails(gen_check(&s, &g, &e), &e, DS_ERANGE, "must be between 0 and 1");
    o.routing = PPL_TOPK; /* needs no calibration */
    e = (struct err){0};
    t_ok(ppl_run(&r, &s, &o, &e), &e);
    t_true(r.measure.is_topk && isnan(contrast_loss(&r.measure.contrast, CONTRAST_TOPK)));
    t_str(r.routing, "topk");
    ppl_result_release(&r);
    opt_release(&ppl_group, &o);
    subject_close(&s);
}
