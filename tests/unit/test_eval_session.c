/* A tiny random model through every interface: sessions in another process, generation, perplexity. */
#include "t.h"

#include <poll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "eval/generation.h"
#include "eval/job.h"
#include "eval/perplexity.h"
#include "eval/serve.h"
#include "fake_method.h"
#include "models/load.h"

enum { LAYERS = 5, CONTEXT = 48 };

static const char *vocab = "257", *ends = "";

/* Byte tokens, five layers, nothing learned: decisions and numbers are real all the same. */
static const char *make_model(const char *method)
{
    static char dir[512];
    char path[600];
    const char *keys[][2] = {{"model.layers", "5"},   {"model.dim", "16"},
                             {"model.heads", "2"},    {"model.vocab", vocab},
                             {"model.max_seq", "48"}, {"model.init_std", "0.3"},
                             {"model.end_ids", ends}};
    struct model_config c = {0};
    struct config k = {0};
    struct model *m = NULL;
    struct tokenizer *t = NULL;
    struct err e = {0};
    t_ok(opt_defaults(&model_group, &c, &e), &e);
    for (size_t i = 0; i < DS_LEN(keys); i++)
        t_ok(config_set(&k, keys[i][0], keys[i][1], "test", &e), &e);
    t_ok(config_set(&k, "model.method", method, "test", &e), &e);
    t_ok(config_apply(&k, &model_group, &c, &e), &e);
    t_ok(model_new(&m, &c, NULL, 7, 0, &e), &e);
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
    config_release(&k);
    return dir;
}

/* ---- in this process ---- */

static struct subject open_subject(const char *method)
{
    struct subject s;
    struct err e = {0};
    t_ok(subject_open(&s, make_model(method), NULL, &e), &e);
    return s;
}

static struct gen_result generate(struct subject *s, const char *prompt, struct gen_options o)
{
    struct ids ids = {0};
    struct gen_result r;
    struct err e = {0};
    o.top_p = 1;
    o.capacity = -1;
    t_ok(gen_prompt(s, prompt, strlen(prompt), &ids, &e), &e);
    t_ok(gen_run(&r, s, &ids, 1, &o, NULL, NULL, &e), &e);
    ids_release(&ids);
    return r;
}

T(the_same_seed_gives_the_same_text_and_another_another)
{
    struct subject s = open_subject("edp");
    struct gen_result a =
        generate(&s, "abc", (struct gen_options){.temperature = 1, .max_tokens = 20, .seed = 4});
    struct gen_result b =
        generate(&s, "abc", (struct gen_options){.temperature = 1, .max_tokens = 20, .seed = 4});
    struct gen_result c =
        generate(&s, "abc", (struct gen_options){.temperature = 1, .max_tokens = 20, .seed = 5});
    t_eq(a.ids.n, b.ids.n);
    t_true(memcmp(a.ids.v, b.ids.v, a.ids.n * sizeof *a.ids.v) == 0);
    t_true(a.ids.n != c.ids.n || memcmp(a.ids.v, c.ids.v, a.ids.n * sizeof *a.ids.v) != 0);
    gen_result_release(&a);
    gen_result_release(&b);
    gen_result_release(&c);
    subject_close(&s);
}

T(cached_generation_equals_the_whole_text_run_at_once)
{
    static const char *const method[] = {"dense", "edp", "static"};
    for (size_t k = 0; k < DS_LEN(method); k++) {
        struct subject s = open_subject(method[k]);
        struct gen_result r =
            generate(&s, "the cat", (struct gen_options){.temperature = 0, .max_tokens = 12});
        struct err e = {0};
        real *logits = mem_alloc(257, sizeof *logits);
        struct pass pass = {.kind = PASS_SPARSE};
        struct batch b = {.B = 1, .T = (int)r.ids.n, .id = r.ids.v};
        t_ok(model_reserve(s.model, CONTEXT, 0, 0, &e), &e);
        model_forward(s.model, &b, &pass);
        for (size_t t = r.n_prompt - 1; t + 1 < r.ids.n; t++) {
            int best = 0, depth = 0;
            model_logits(s.model, (int)t, logits);
            for (int v = 1; v < 257; v++)
                best = logits[v] > logits[best] ? v : best;
            t_eq(best, r.ids.v[t + 1]);
            for (int l = 0; l < LAYERS; l++)
                for (int i = 0; i < s.model->plan[l].n; i++)
                    depth += s.model->plan[l].row[i] == (int)t && s.model->plan[l].gate[i] != 0;
            t_eq(depth, r.depth[t]);
        }
        mem_free(logits);
        gen_result_release(&r);
        subject_close(&s);
    }
}

T(generation_ends_where_the_context_does)
{
    struct subject s = open_subject("edp");
    struct gen_result r =
        generate(&s, "0123456789", (struct gen_options){.temperature = 0, .max_tokens = 1000});
    t_true(r.stop == GEN_STOP_CONTEXT || r.stop == GEN_STOP_EOT);
    t_true(r.ids.n <= CONTEXT);
    t_true(r.block_ratio > 0 && r.block_ratio <= 1 && r.flops_ratio > 0 && r.flops_ratio < 1.2);
    gen_result_release(&r);
    struct ids ids = {0};
    struct gen_options o = {.max_tokens = 1, .top_p = 1, .capacity = -1};
    struct err e = {0};
    for (int i = 0; i <= CONTEXT; i++)
        t_eq(ids_add(&ids, 65), 0);
    t_fails(gen_run(&r, &s, &ids, 1, &o, NULL, NULL, &e), &e, DS_ERANGE, "at most 48");
    ids.n = 0;
    t_fails(gen_run(&r, &s, &ids, 1, &o, NULL, NULL, &e), &e, DS_EUSAGE, "empty");
    ids_release(&ids);
    subject_close(&s);
}

static int runs_never(const struct route *r, int l, int i)
{
    (void)r, (void)l, (void)i;
    return 0;
}

/* Nearly all of this model's work is in its logits, which no routing saves. */
T_SECONDS(the_measured_time_of_generation_counts_the_logits, 60)
{
    vocab = "16384";
    struct subject s = open_subject("dense");
    vocab = "257";
    s.model->route.ops = &fake_ops;
    s.model->route.R_max = 0;
    fake_runs = runs_never;
    struct gen_result r = generate(
        &s, "abc", (struct gen_options){.temperature = 1, .max_tokens = 6, .time_rounds = 31});
    t_true(r.ids.n - r.n_prompt >= 4 && r.block_ratio < 0.3);
    t_true(r.time_ratio > 0.6); /* without them it is nearer to the block ratio */
    gen_result_release(&r);
    subject_close(&s);
}

T(a_model_of_damaged_weights_says_so)
{
    struct subject s = open_subject("dense");
    struct ids ids = {0};
    struct gen_options o = {.max_tokens = 3, .top_p = 1, .capacity = -1};
    struct gen_result r;
    struct err e = {0};
    t_eq(ids_add(&ids, 65), 0);
    s.model->params.p[s.model->norm].value[0] = (real)NAN;
    t_fails(gen_run(&r, &s, &ids, 1, &o, NULL, NULL, &e), &e, DS_ENUMERIC, "weights are corrupt");
    ids_release(&ids);
    subject_close(&s);
}

T(perplexity_of_stories_is_a_number_and_its_options_are_checked)
{
    struct subject s = open_subject("edp");
    struct ppl_options o = {0};
    struct ppl_result r;
    struct err e = {0};
    t_ok(opt_defaults(&ppl_group, &o, &e), &e);
    t_fails(ppl_run(&r, &s, &o, &e), &e, DS_EUSAGE, "data.path=FILE");
    mem_free(o.path);
    o.path = mem_strdup("synth");
    o.docs = 20;
    o.seq = 32;
    o.tokens = 320;
    o.time_rounds = 1;
    t_ok(ppl_run(&r, &s, &o, &e), &e);
    t_eq((int)r.measure.tokens, 320);
    t_true(measure_loss(&r.measure) > 1 && measure_loss(&r.measure) < 50);
    t_true(measure_block_ratio(&r.measure) <= 1 && r.measure.time_ratio > 0);
    ppl_result_release(&r);
    o.routing = PPL_TOPK;
    t_fails(ppl_run(&r, &s, &o, &e), &e, DS_EUSAGE, "no top-k");
    o.routing = PPL_DENSE;
    o.seq = 64;
    t_fails(ppl_run(&r, &s, &o, &e), &e, DS_ERANGE, "at most 48");
    o.seq = 16;
    t_ok(ppl_run(&r, &s, &o, &e), &e);
    t_near(measure_block_ratio(&r.measure), 1, 0);
    ppl_result_release(&r);
    opt_release(&ppl_group, &o);
    subject_close(&s);
}

/* ---- in another process ---- */

static struct session *start(const char *model)
{
    struct session *s = NULL;
    struct err e = {0};
    if (!getenv("DEPTHSCOPE"))
        t_skip("$DEPTHSCOPE names no program");
    t_ok(session_open(&s, model, &e), &e);
    return s;
}

static int next_record(struct session *s, struct value *body, struct err *e)
{
    double until = clock_mono() + 30;
    for (;;) {
        struct pollfd p = {.fd = session_fd(s), .events = POLLIN};
        int rc = session_next(s, body, e);
        if (rc != 0)
            return rc;
        t_truef(clock_mono() < until, "no answer");
        poll(&p, 1, 1000);
    }
}

/* Sends, keeps the wanted numbers of the first record, and reads to the "done". */
struct reply {
    char kind[16], error[512];
    size_t tokens;
    int32_t id[CONTEXT];
    float run[LAYERS * CONTEXT], nll[CONTEXT], delta[CONTEXT];
    int64_t has_delta, layers, lens;
};

static struct reply ask(struct session *s, const char *json)
{
    struct reply r = {0};
    struct err e = {0};
    struct value body;
    size_t n;
    t_ok(session_send(s, json, &e), &e);
    for (;;) {
        t_eq(next_record(s, &body, &e), 1);
        struct value kind = value_get(body, "kind");
        if (value_is(kind, "done"))
            return r;
        const char *k = value_bytes(kind, &n);
        snprintf(r.kind, sizeof r.kind, "%.*s", (int)n, k);
        if (value_is(kind, "error")) {
            const char *p = value_bytes(value_get(body, "text"), &n);
            snprintf(r.error, sizeof r.error, "%.*s", (int)n, p);
            return r;
        }
        r.layers = value_int(value_get(body, "layers"), -1);
        r.tokens = value_len(value_get(body, "ids"));
        value_i32s(value_get(body, "ids"), r.id, CONTEXT);
        r.lens = value_int(value_get(body, "lens_k"), 0);
        int32_t run[LAYERS * CONTEXT];
        int64_t cells = value_i32s(value_get(body, "run"), run, LAYERS * CONTEXT);
        for (int64_t i = 0; i < cells; i++)
            r.run[i] = (float)run[i];
        value_f32s(value_get(body, "nll"), r.nll, CONTEXT);
        r.has_delta =
            value_f32s(value_get(value_get(body, "token"), "delta_loss"), r.delta, CONTEXT);
    }
}

T(a_session_traces_forces_slides_and_continues)
{
    struct session *s = start(make_model("edp"));
    struct reply r = ask(s, "{\"do\":\"info\"}");
    t_str(r.kind, "head");
    t_eq(r.layers, LAYERS);
    r = ask(s, "{\"do\":\"trace\",\"text\":\"hello there\",\"lens\":3}");
    t_str(r.kind, "probe");
    t_eq(r.tokens, 11);
    t_eq(r.lens, 3);
    t_eq(r.has_delta, -1);
    struct reply plain = r;
    int at = 2 * 11 + 4, was = r.run[at] != 0;
    char text[128];
    snprintf(text, sizeof text, "{\"do\":\"force\",\"layer\":2,\"token\":4,\"run\":%d}", !was);
    r = ask(s, text);
    t_eq((int)r.run[at], !was);
    t_eq(r.has_delta, 11);
    for (int t = 1; t < 11; t++) {
        t_near(r.delta[t], r.nll[t] - plain.nll[t], 1e-5);
        if (t <= 4) /* what comes later changes nothing earlier */
            t_near(r.delta[t], 0, 1e-6);
    }
    r = ask(s, "{\"do\":\"force\",\"layer\":2,\"token\":4,\"run\":-1}");
    t_eq((int)r.run[at], was);
    t_eq(r.has_delta, -1);
    r = ask(s, "{\"do\":\"offset\",\"value\":50}");
    float low = 0, high = 0;
    for (int i = 0; i < LAYERS * 11; i++)
        low += r.run[i];
    r = ask(s, "{\"do\":\"offset\",\"value\":-50}");
    for (int i = 0; i < LAYERS * 11; i++)
        high += r.run[i];
    t_true(low < high);
    r = ask(s, "{\"do\":\"next\",\"temperature\":0.8,\"top_k\":40,\"top_p\":0.95,\"seed\":1}");
    t_eq(r.tokens, 12);
    r = ask(s, "{\"do\":\"trace\",\"ids\":[1,2,3],\"generate\":2}");
    t_eq(r.tokens, 5);
    t_eq(session_busy(s), 0);
    session_close(s);
}

T(a_session_continues_to_the_end_that_the_model_s_files_name)
{
    char id[16];
    struct session *s = start(make_model("edp"));
    struct reply r = ask(s, "{\"do\":\"trace\",\"ids\":[1,2,3],\"generate\":6}");
    t_eq(r.tokens, 9);
    session_close(s);
    snprintf(id, sizeof id, "%d", r.id[3]);
    ends = id;
    s = start(make_model("edp"));
    ends = "";
    r = ask(s, "{\"do\":\"trace\",\"ids\":[1,2,3],\"generate\":6}");
    t_eq(r.tokens, 4);
    session_close(s);
}

T(a_session_answers_wrong_requests_and_lives_on)
{
    struct session *s = start(make_model("edp"));
    static const char *const bad[][2] = {
        {"{\"do\":\"next\"}", "no text yet"},
        {"{\"do\":\"dance\"}", "trace, next"},
        {"{", "request"},
        {"[]", "\"do\""},
        {"{\"do\":\"trace\",\"text\":\"\"}", "empty"},
        {"{\"do\":\"trace\",\"ids\":[999]}", "ids[0]"},
        {"{\"do\":\"trace\",\"text\":\"01234567890123456789012345678901234567890123456789\"}",
         "at most 48"},
        {"{\"do\":\"force\",\"layer\":0,\"token\":0,\"run\":1}", "no text yet"},
        {"{\"do\":\"offset\",\"value\":1e9}", "offset"},
    };
    for (size_t i = 0; i < DS_LEN(bad); i++) {
        struct reply r = ask(s, bad[i][0]);
        t_str(r.kind, "error");
        t_truef(strstr(r.error, bad[i][1]) != NULL, "%s: %s", bad[i][0], r.error);
    }
    struct reply r = ask(s, "{\"do\":\"trace\",\"text\":\"ok\"}");
    t_eq(r.tokens, 2);
    struct reply f = ask(s, "{\"do\":\"force\",\"layer\":9,\"token\":0,\"run\":1}");
    t_truef(strstr(f.error, "layer must be 0..4") != NULL, "%s", f.error);
    session_close(s);
}

T(a_session_without_a_model_reports_why_and_then_that_it_ended)
{
    char dir[600];
    struct err e = {0};
    struct value body;
    snprintf(dir, sizeof dir, "%s/nothing", t_tmpdir());
    struct session *s = start(dir);
    t_eq(next_record(s, &body, &e), 1);
    t_true(value_is(value_get(body, "kind"), "error"));
    t_fails(next_record(s, &body, &e), &e, DS_EIO, "model not found");
    session_close(s);
}
