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
#include "io/runview.h"
#include "models/load.h"
#include "unit/gguf_vocab.h"

enum { LAYERS = 5, CONTEXT = 48, MADE_MAX = 256 };

static const char *vocab = "257", *ends = "", *context = "48", *experts = "0", *noops = "0",
                  *window = "0";

/* Byte tokens, five layers, nothing learned: decisions and numbers are real all the same. */
static uint64_t weights_seed = 7;

static const char *make_model(const char *method)
{
    static char dir[512];
    char path[600];
    const char *keys[][2] = {{"model.layers", "5"},         {"model.dim", "16"},
                             {"model.heads", "2"},          {"model.vocab", vocab},
                             {"model.max_seq", context},    {"model.init_std", "0.3"},
                             {"model.end_ids", ends},       {"model.experts", experts},
                             {"model.experts_noop", noops}, {"model.window", window}};
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
    t_ok(model_new(&m, &c, NULL, weights_seed, 0, &e), &e);
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

T(the_first_id_may_begin_texts)
{
    struct token_part token[] = {{.text = "<s>", .n = 3, .type = TOKEN_CONTROL},
                                 {.text = "a", .n = 1, .type = TOKEN_NORMAL},
                                 {.text = "b", .n = 1, .type = TOKEN_NORMAL},
                                 {.text = "ab", .n = 2, .type = TOKEN_NORMAL}},
                      merge = {.text = "a b", .n = 3};
    struct tokenizer_parts kept = {0}, p = {.model = "gpt2",
                                            .pre = "gpt-2",
                                            .token = token,
                                            .tokens = 4,
                                            .merge = &merge,
                                            .merges = 1,
                                            .eos = -1,
                                            .unk = -1,
                                            .add_bos = 1};
    struct gguf_file f = {0};
    struct subject s = {0};
    struct ids ids = {0};
    struct err e = {0};
    gv_keys(&f, &p);
    t_ok(tokenizer_load(&s.tokenizer, gf_write(&f), &e), &e);
    t_ok(subject_encode(&s, "ab", 2, 0, &ids, &e), &e);
    t_eq(ids.n, 2);
    t_eq(ids.v[0], 0);
    t_eq(ids.v[1], 3);
    t_ok(tokenizer_parts(&kept, s.tokenizer, &e), &e);
    t_true(kept.add_bos && kept.bos == 0);
    tokenizer_parts_release(&kept);
    ids_release(&ids);
    tokenizer_free(s.tokenizer);
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
    float expert[2][LAYERS * CONTEXT], flops[LAYERS * CONTEXT];
    int64_t has_delta, has_drafted, layers, lens;
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
        struct value cell = value_get(body, "cell");
        value_f32s(value_get(cell, "expert"), r.expert[0], LAYERS * CONTEXT);
        value_f32s(value_get(cell, "expert_2"), r.expert[1], LAYERS * CONTEXT);
        value_f32s(value_get(cell, "flops"), r.flops, LAYERS * CONTEXT);
        float mark[CONTEXT];
        r.has_drafted = value_f32s(value_get(value_get(body, "token"), "drafted"), mark, CONTEXT);
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
    r = ask(s, "{\"do\":\"exit\",\"layers\":2}");
    t_eq(r.tokens, 12);
    for (int i = 0; i < LAYERS * 12; i++)
        t_true(!r.run[i] || i / 12 < 2);
    r = ask(s, "{\"do\":\"exit\",\"layers\":0}");
    r = ask(s, "{\"do\":\"next\",\"speculate\":3,\"draft\":\"exit:2\"}");
    t_true(r.tokens > 12 && r.tokens <= 16); /* fewer: the text ended */
    t_eq(r.has_drafted, r.tokens);
    r = ask(s, "{\"do\":\"trace\",\"ids\":[1,2,3],\"generate\":2}");
    t_eq(r.tokens, 5);
    t_eq(r.has_drafted, -1);
    t_eq(session_busy(s), 0);
    session_close(s);
}

static float executed(const struct reply *r)
{
    float n = 0;
    for (size_t i = 0; i < LAYERS * r->tokens; i++)
        n += r->run[i];
    return n;
}

T(options_of_the_method_change_while_a_session_lives)
{
    static const char *const bad[][2] = {
        {"halt.rul=kl", "did you mean halt.rule"},
        {"edp.max_skip=2", "whose method is halt"},
        {"train.lr=1", "unknown key"},
        {"halt.min=5", "leaves no exit"},
        {"halt.capacity=2", "halt.capacity"},
        {"halt.rule", "option"},
    };
    struct session *s = start(make_model("halt"));
    struct reply r = ask(s, "{\"do\":\"option\",\"set\":\"halt.rule=velocity\"}");
    t_str(r.kind, "head"); /* there is no text yet */
    r = ask(s, "{\"do\":\"trace\",\"ids\":[1,2,3,4]}");
    t_near(executed(&r), LAYERS * 4, 0); /* not calibrated: no threshold to leave at */
    struct reply plain = r;
    r = ask(s, "{\"do\":\"option\",\"set\":\"halt.capacity=0\"}");
    t_str(r.kind, "probe");
    t_near(executed(&r), 4, 0);
    r = ask(s, "{\"do\":\"option\",\"set\":\"halt.min=3\"}"); /* next to the other */
    t_near(executed(&r), 3 * 4, 0);
    for (size_t i = 0; i < DS_LEN(bad); i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"do\":\"option\",\"set\":\"%s\"}", bad[i][0]);
        r = ask(s, text);
        t_truef(strstr(r.error, bad[i][1]) != NULL, "%s: %s", bad[i][0], r.error);
        t_true(!strchr(r.error, '\n'));
    }
    r = ask(s, "{\"do\":\"offset\",\"value\":0}");
    t_near(executed(&r), 3 * 4, 0);
    r = ask(s, "{\"do\":\"option\"}");
    t_near(executed(&r), LAYERS * 4, 0);
    for (int t = 1; t < 4; t++)
        t_near(r.nll[t], plain.nll[t], 0);
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

static int runs_expert(const struct reply *r, int cell, int expert)
{
    return (int)r->expert[0][cell] == expert || (int)r->expert[1][cell] == expert;
}

T(a_session_forces_the_experts_of_a_token)
{
    enum { N = 11, AT = 2 * N + 4 };
    experts = "5";
    noops = "1";
    struct session *s = start(make_model("dense"));
    struct reply plain = ask(s, "{\"do\":\"trace\",\"text\":\"hello there\"}"), r;
    char text[128];
    int other = 0, best = (int)plain.expert[0][AT];
    while (runs_expert(&plain, AT, other))
        other++;
    t_true(other < 5);
    snprintf(text, sizeof text, "{\"do\":\"force\",\"layer\":2,\"token\":4,\"expert\":%d}", other);
    r = ask(s, text);
    t_truef(runs_expert(&r, AT, other) && runs_expert(&r, AT, best), "experts %g and %g",
            (double)r.expert[0][AT], (double)r.expert[1][AT]);
    t_eq(r.has_delta, N);
    double later = 0;
    for (int t = 1; t < N; t++) {
        t_near(r.delta[t], r.nll[t] - plain.nll[t], 1e-5);
        t_true(t > 4 || fabs((double)r.delta[t]) < 1e-6);
        later += fabs((double)r.delta[t]);
    }
    t_true(later > 1e-6);
    for (int i = 0; i < 3 * N; i++) /* no other choice up to this layer */
        t_true(i == AT ||
               (r.expert[0][i] == plain.expert[0][i] && r.expert[1][i] == plain.expert[1][i]));
    r = ask(s, "{\"do\":\"force\",\"layer\":2,\"token\":4,\"expert\":5}"); /* the no-op */
    t_true(runs_expert(&r, AT, 5));
    t_true(runs_expert(&plain, AT, 5) || r.flops[AT] < plain.flops[AT]);
    r = ask(s, "{\"do\":\"force\",\"layer\":2,\"token\":4,\"expert\":-1}");
    t_eq(r.has_delta, -1);
    for (int i = 0; i < LAYERS * N; i++)
        t_true(r.expert[0][i] == plain.expert[0][i]);
    r = ask(s, "{\"do\":\"force\",\"layer\":2,\"token\":4,\"expert\":6}");
    t_truef(strstr(r.error, "expert must be 0..5") != NULL, "%s", r.error);
    session_close(s);
    experts = noops = "0";
    s = start(make_model("edp"));
    ask(s, "{\"do\":\"trace\",\"text\":\"hello\"}");
    r = ask(s, "{\"do\":\"force\",\"layer\":2,\"token\":4,\"expert\":1}");
    t_truef(strstr(r.error, "layer 2 has no experts") != NULL, "%s", r.error);
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
        {"{\"do\":\"exit\"}", "\"layers\" must be"},
        {"{\"do\":\"exit\",\"layers\":6}", "must be at most 5"},
        {"{\"do\":\"generate\",\"text\":\"a\",\"speculate\":65}", "must be 0 to 64"},
        {"{\"do\":\"generate\",\"text\":\"a\",\"speculate\":4,\"draft\":\"exit:9\"}",
         "draft=exit:9"},
        {"{\"do\":\"generate\"}", "expected \"text\""},
        {"{\"do\":\"generate\",\"text\":\"a\",\"keep\":1}", "keep"},
        {"{\"do\":\"generate\",\"text\":\"a\",\"top\":21}", "0 to 20"},
        {"{\"do\":\"generate\",\"text\":\"a\",\"top_p\":0}", "top_p above 0"},
        {"{\"do\":\"generate\",\"text\":\"a\",\"max_tokens\":-1}", "max_tokens"},
        {"{\"do\":\"generate\",\"ids\":[257]}", "ids[0]"},
        {"{\"do\":\"chat\"}", "the message"},
        {"{\"do\":\"compare\",\"text\":\"a\"}", "the second model"},
        {"{\"do\":\"compare\",\"text\":\"a\",\"other\":\"/nowhere/at/all\"}", "/nowhere/at/all"},
        {"{\"do\":\"compare\",\"other\":\"/nowhere\"}", "expected \"text\""},
        {"{\"do\":\"save\"}", "no text yet"},
        {"{\"do\":\"save\",\"file\":\"\"}", "expected \"file\""},
        {"{\"do\":\"save\",\"file\":5}", "expected \"file\""},
        {"{\"do\":\"refuse\",\"text\":\"not from there\"}", "not from there"},
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

/* ---- generation ---- */

struct made {
    size_t tokens;
    int32_t id[MADE_MAX], top[MADE_MAX];
    int depth[MADE_MAX];
    double logprob[MADE_MAX], top_logprob[MADE_MAX], flops[MADE_MAX], dense[MADE_MAX];
    char stop[32], text[MADE_MAX + 1];
    int64_t prompt;
};

static void take_token(struct made *m, struct value body)
{
    int64_t at = value_int(value_get(body, "index"), -1);
    unsigned char run[LAYERS] = {0};
    size_t n = 0;
    const char *bits = value_bytes(value_get(body, "run"), &n);
    t_true(at >= 0 && at < MADE_MAX && n == LAYERS);
    memcpy(run, bits, n);
    m->id[at] = (int32_t)value_int(value_get(body, "id"), -1);
    m->depth[at] = (int)value_int(value_get(body, "depth"), -1);
    t_eq(m->depth[at], run[0] + run[1] + run[2] + run[3] + run[4]);
    m->flops[at] = value_num(value_get(body, "flops"), 0);
    m->dense[at] = value_num(value_get(body, "flops_dense"), 0);
    t_true(m->flops[at] <= 1.01 * m->dense[at]);
    m->logprob[at] = value_num(value_get(body, "logprob"), (double)NAN);
    m->top[at] = (int32_t)value_int(value_at(value_get(body, "top_id"), 0), -1);
    m->top_logprob[at] = value_num(value_at(value_get(body, "top_logprob"), 0), (double)NAN);
    t_eq((int)at, (int)m->tokens);
    m->tokens++;
}

/* Reads the tokens of a generate or chat request; stop_after: asks to stop after so many. */
static struct made make_text(struct session *s, const char *json, size_t stop_after)
{
    struct made m = {0};
    struct err e = {0};
    struct value body;
    size_t n;
    t_ok(session_send(s, json, &e), &e);
    for (;;) {
        t_eq(next_record(s, &body, &e), 1);
        struct value kind = value_get(body, "kind");
        if (value_is(kind, "token")) {
            take_token(&m, body);
            if (m.tokens == stop_after)
                t_ok(session_send(s, "{\"do\":\"stop\"}", &e), &e);
        } else if (value_is(kind, "generated")) {
            const char *p = value_bytes(value_get(body, "stop"), &n);
            snprintf(m.stop, sizeof m.stop, "%.*s", (int)n, p);
            p = value_bytes(value_get(body, "text"), &n);
            t_true(n <= MADE_MAX);
            memcpy(m.text, p, n);
            m.prompt = value_int(value_get(body, "prompt"), -1);
            t_eq((size_t)value_int(value_get(body, "tokens"), 0), m.tokens);
            double blocks = value_num(value_get(body, "block_ratio"), (double)NAN);
            double flops = value_num(value_get(body, "flops_ratio"), (double)NAN);
            t_truef(blocks > 0 && blocks <= 1 && flops > 0 && flops < 1.5, "%g %g", blocks, flops);
        } else {
            t_truef(value_is(kind, "done"), "%s", value_bytes(value_get(body, "text"), &n));
            if (!value_is(value_get(body, "do"), "stop") && stop_after)
                continue;
            return m;
        }
    }
}

T(a_session_streams_the_text_that_generation_makes)
{
    struct subject own = open_subject("edp");
    struct gen_result want =
        generate(&own, "abc", (struct gen_options){.temperature = 1, .max_tokens = 20, .seed = 4});
    struct session *s = start(make_model("edp"));
    struct made m = make_text(s,
                              "{\"do\":\"generate\",\"text\":\"abc\",\"max_tokens\":20,"
                              "\"temperature\":1,\"seed\":4,\"top\":3}",
                              0);
    t_eq(m.tokens, want.ids.n);
    t_eq((size_t)m.prompt, want.n_prompt);
    for (size_t i = 0; i < m.tokens; i++) {
        t_eq(m.id[i], want.ids.v[i]);
        t_eq(m.depth[i], want.depth[i]);
    }
    t_true(isnan(m.logprob[0]) && m.top[0] == -1);
    for (size_t i = 1; i < m.tokens; i++) /* the sampled token, and the likeliest, given the past */
        t_true(m.logprob[i] < 0 && m.top_logprob[i] >= m.logprob[i] && m.top[i] >= 0);
    t_str(m.stop, gen_stop_name[want.stop]);
    /* the trace of the same text agrees with what was streamed */
    struct reply r = ask(s, "{\"do\":\"offset\",\"value\":0}");
    t_eq(r.tokens, m.tokens);
    for (size_t i = 1; i < m.tokens; i++)
        t_near(r.nll[i], -m.logprob[i], 1e-3);
    session_close(s);
    gen_result_release(&want);
    subject_close(&own);
}

T(tokens_beyond_the_window_of_a_dense_model_cost_what_the_dense_one_costs)
{
    window = "6";
    struct session *s = start(make_model("dense"));
    window = "0";
    struct made m = make_text(s, "{\"do\":\"generate\",\"text\":\"abc\",\"max_tokens\":20}", 0);
    for (size_t i = 0; i < m.tokens; i++) {
        t_near(m.flops[i], m.dense[i], 0);
        t_true(i == 0 || (m.dense[i] > m.dense[i - 1]) == (i < 6));
    }
    session_close(s);
}

T(a_session_regenerates_from_any_token_and_edits_it)
{
    struct session *s = start(make_model("edp"));
    struct made a = make_text(
        s, "{\"do\":\"generate\",\"text\":\"abc\",\"max_tokens\":12,\"temperature\":1,\"seed\":2}",
        0);
    struct made b = make_text(
        s, "{\"do\":\"generate\",\"keep\":7,\"max_tokens\":8,\"temperature\":1,\"seed\":2}", 0);
    t_eq(a.tokens, 15);
    t_eq(b.tokens, 15);
    t_eq(b.prompt, 7); /* the same seed at the same place draws the same tokens */
    t_true(memcmp(a.id, b.id, 15 * sizeof *a.id) == 0);
    struct made c = make_text(
        s, "{\"do\":\"generate\",\"keep\":5,\"text\":\"XY\",\"max_tokens\":3,\"seed\":2}", 0);
    t_eq(c.tokens, 10);
    t_true(memcmp(a.id, c.id, 5 * sizeof *a.id) == 0);
    t_eq(c.id[5], 'X');
    t_eq(c.id[6], 'Y');
    struct made d = make_text(s, "{\"do\":\"generate\",\"max_tokens\":2}", 0);
    t_eq(d.tokens, 12); /* all of the text, and two more */
    t_true(memcmp(c.id, d.id, 10 * sizeof *c.id) == 0);
    struct made f =
        make_text(s, "{\"do\":\"generate\",\"keep\":2,\"ids\":[200],\"max_tokens\":1}", 0);
    t_eq(f.tokens, 4); /* a byte that is no character */
    t_eq(f.id[2], 200);
    session_close(s);
}

T(a_stop_request_ends_generation_at_once)
{
    struct session *s = start(make_model("edp"));
    struct made m = make_text(s, "{\"do\":\"generate\",\"text\":\"abc\",\"max_tokens\":1000}", 3);
    t_str(m.stop, m.tokens < CONTEXT ? "stopped" : "context full");
    struct reply r = ask(s, "{\"do\":\"offset\",\"value\":0}"); /* the text so far is current */
    t_eq(r.tokens, m.tokens);
    /* queued with its request: the answer is the prompt alone, whatever the speed */
    struct err e = {0};
    t_ok(session_send(s, "{\"do\":\"generate\",\"text\":\"abcdefgh\",\"max_tokens\":1000}\r", &e),
         &e);
    t_ok(session_send(s, "{\"do\":\"stop\"}", &e), &e);
    struct value body;
    int done = 0;
    for (; done < 2;) {
        t_eq(next_record(s, &body, &e), 1);
        done += value_is(value_get(body, "kind"), "done");
    }
    t_eq(session_busy(s), 0);
    session_close(s);
}

/* ChatML, with the markers as bytes: the byte tokenizer has no special tokens. */
static void add_template(const char *dir)
{
    static const char text[] =
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    char path[600];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/chat_template.jinja", dir);
    t_ok(fs_write_file(path, text, sizeof text - 1, &e), &e);
}

T(a_session_chats_in_the_model_s_template_and_continues_the_conversation)
{
    const char *dir = make_model("edp");
    struct session *s = start(dir);
    struct reply r = ask(s, "{\"do\":\"chat\",\"text\":\"a\"}");
    t_str(r.kind, "error");
    t_truef(strstr(r.error, "no chat template") != NULL, "%s", r.error);
    session_close(s);
    context = "200";
    dir = make_model("edp");
    context = "48";
    add_template(dir);
    s = start(dir);
    struct made a = make_text(s, "{\"do\":\"chat\",\"text\":\"hi\",\"max_tokens\":4}", 0);
    char text[MADE_MAX + 1] = {0};
    for (size_t i = 0; i < a.tokens; i++)
        text[i] = (char)a.id[i];
    t_truef(strstr(text, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n") == text, "%s",
            text);
    struct made b = make_text(s, "{\"do\":\"chat\",\"text\":\"so\",\"max_tokens\":4}", 0);
    t_true((size_t)b.prompt > a.tokens); /* the question and its answer stay */
    t_true(memcmp(a.id, b.id, a.tokens * sizeof *a.id) == 0);
    char next[64] = {0};
    for (size_t i = a.tokens; i < (size_t)b.prompt; i++)
        next[i - a.tokens] = (char)b.id[i];
    t_truef(strstr(next, "<|im_start|>user\nso<|im_end|>\n<|im_start|>assistant\n") != NULL, "%s",
            next);
    /* regenerating inside the first answer drops what follows */
    struct made c = make_text(s, "{\"do\":\"generate\",\"keep\":54,\"max_tokens\":2}", 0);
    t_eq((size_t)c.prompt, 54);
    struct made d = make_text(s, "{\"do\":\"chat\",\"text\":\"no\",\"max_tokens\":2}", 0);
    t_true(memcmp(c.id, d.id, c.tokens * sizeof *c.id) == 0);
    t_true((size_t)d.prompt > c.tokens);
    struct made f =
        make_text(s, "{\"do\":\"chat\",\"text\":\"hi\",\"new\":true,\"max_tokens\":4}", 0);
    t_eq(f.tokens, a.tokens);
    t_true(memcmp(f.id, a.id, a.tokens * sizeof *a.id) == 0);
    session_close(s);
}

/* Of answers before the last only the first two bytes are written. */
T(a_conversation_goes_on_from_an_answer_that_was_made_again)
{
    static const char text[] =
        "{% for m in messages %}{{ m.role }}:{{ m.content[:2] if m.role == 'assistant' and not "
        "loop.last else m.content }};{% endfor %}{% if add_generation_prompt %}assistant:{% endif "
        "%}";
    static const char want[] = "user:hi;assistant:AB;user:so;assistant:";
    char path[600], json[200];
    struct err e = {0};
    context = "200";
    const char *dir = make_model("edp");
    context = "48";
    snprintf(path, sizeof path, "%s/chat_template.jinja", dir);
    t_ok(fs_write_file(path, text, sizeof text - 1, &e), &e);
    struct session *s = start(dir);
    struct made a = make_text(s, "{\"do\":\"chat\",\"text\":\"hi\",\"max_tokens\":4}", 0);
    snprintf(json, sizeof json,
             "{\"do\":\"generate\",\"keep\":%d,\"ids\":[65,66,67],\"max_tokens\":0}",
             (int)a.prompt);
    make_text(s, json, 0);
    struct made b = make_text(s, "{\"do\":\"chat\",\"text\":\"so\",\"max_tokens\":2}", 0);
    t_eq((size_t)b.prompt, sizeof want - 1);
    for (size_t i = 0; i < sizeof want - 1; i++)
        t_eq(b.id[i], want[i]);
    /* what is changed before the last answer is in no message: the text goes on as it is */
    struct made c =
        make_text(s, "{\"do\":\"generate\",\"keep\":5,\"ids\":[72,73,74],\"max_tokens\":0}", 0);
    struct made d = make_text(s, "{\"do\":\"chat\",\"text\":\"no\",\"max_tokens\":2}", 0);
    t_true((size_t)d.prompt > c.tokens);
    t_true(memcmp(c.id, d.id, c.tokens * sizeof *c.id) == 0);
    session_close(s);
}

/* A vocabulary that puts a space before every text, as SentencePiece does. */
T(text_in_place_of_a_token_has_no_space_of_its_own)
{
    static const char text[] =
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"\xe2\x96\x81\":0,\"a\":1,\"b\":2,"
        "\"\xe2\x96\x81"
        "a\":3,\"\xe2\x96\x81"
        "b\":4},\"merges\":[\"\xe2\x96\x81 a\","
        "\"\xe2\x96\x81 b\"]},\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["
        "{\"type\":\"Prepend\",\"prepend\":\"\xe2\x96\x81\"},{\"type\":\"Replace\",\"pattern\":"
        "{\"String\":\" \"},\"content\":\"\xe2\x96\x81\"}]},\"decoder\":{\"type\":\"Sequence\","
        "\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xe2\x96\x81\"},"
        "\"content\":\" \"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \","
        "\"start\":1,\"stop\":0}]}}";
    char path[600];
    struct err e = {0};
    const char *dir = make_model("edp");
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    t_ok(fs_write_file(path, text, sizeof text - 1, &e), &e);
    struct session *s = start(dir);
    struct made a = make_text(s, "{\"do\":\"generate\",\"text\":\"a b a\",\"max_tokens\":0}", 0);
    t_eq(a.tokens, 3);
    struct made b =
        make_text(s, "{\"do\":\"generate\",\"keep\":1,\"text\":\" b\",\"max_tokens\":0}", 0);
    t_eq(b.tokens, 2); /* the token in its own place */
    t_true(memcmp(a.id, b.id, 2 * sizeof *a.id) == 0);
    b = make_text(s, "{\"do\":\"generate\",\"keep\":1,\"text\":\"  b\",\"max_tokens\":0}", 0);
    t_eq(b.tokens, 3);
    session_close(s);
}

/* ---- two models ---- */

/* Two models of one tokenizer, with other weights and another method. */
static void check_kl(const struct reply *a, const float *kl, int64_t n)
{
    t_eq(n, (int64_t)a->tokens);
    t_true(isnan(kl[0]));
    for (size_t t = 1; t < a->tokens; t++)
        t_true(kl[t] >= 0 && isfinite(kl[t]));
}

T(a_session_compares_two_models_and_measures_their_divergence)
{
    char first[600], json[1400];
    struct err e = {0};
    struct value body;
    struct reply side[2] = {{{0}, {0}, 0, {0}, {0}, {0}, {0}, {{0}, {0}}, {0}, 0, 0, 0, 0}};
    float kl[CONTEXT];
    int64_t n = -1;
    int heads = 0, probes = 0;
    const char *dir = make_model("edp");
    snprintf(first, sizeof first, "%s-a", dir);
    t_eq(rename(dir, first), 0);
    weights_seed = 8; /* with the same weights and no trained router nothing would diverge */
    dir = make_model("dense");
    weights_seed = 7;
    struct session *s = start(first);
    snprintf(json, sizeof json, "{\"do\":\"compare\",\"other\":\"%s\",\"text\":\"hello there\"}",
             dir);
    t_ok(session_send(s, json, &e), &e);
    for (int is_done = 0; !is_done;) {
        t_eq(next_record(s, &body, &e), 1);
        struct value kind = value_get(body, "kind");
        heads += value_is(kind, "head");
        is_done = value_is(kind, "done");
        if (!value_is(kind, "probe"))
            continue;
        t_eq(heads, probes + 1);
        struct reply *r = &side[probes++];
        r->tokens = value_len(value_get(body, "ids"));
        value_f32s(value_get(body, "nll"), r->nll, CONTEXT);
        if (probes == 1)
            n = value_f32s(value_get(value_get(body, "token"), "kl"), kl, CONTEXT);
    }
    t_eq(heads, 2);
    t_eq(probes, 2);
    check_kl(&side[0], kl, n);
    /* against the definition, from the logits of both models in this process */
    struct subject a, b;
    t_ok(subject_open(&a, first, NULL, &e), &e);
    t_ok(subject_open(&b, dir, NULL, &e), &e);
    int32_t id[11];
    real p[257], q[257];
    for (int t = 0; t < 11; t++)
        id[t] = (unsigned char)"hello there"[t];
    struct pass pass = {.kind = PASS_SPARSE};
    struct batch batch = {.B = 1, .T = 11, .id = id};
    t_ok(model_reserve(a.model, 11, 0, 0, &e), &e);
    t_ok(model_reserve(b.model, 11, 0, 0, &e), &e);
    model_forward(a.model, &batch, &pass);
    model_forward(b.model, &batch, &pass);
    for (int t = 1; t < 11; t++) {
        double sum_p = 0, sum_q = 0, want = 0;
        model_logits(a.model, t - 1, p);
        model_logits(b.model, t - 1, q);
        for (int v = 0; v < 257; v++) {
            sum_p += exp((double)p[v]);
            sum_q += exp((double)q[v]);
        }
        for (int v = 0; v < 257; v++) {
            double x = exp((double)p[v]) / sum_p, y = exp((double)q[v]) / sum_q;
            want += x * log(x / y);
        }
        t_true(want > 0.01);
        t_near(kl[t], want, 1e-5 * want);
    }
    subject_close(&a);
    subject_close(&b);
    struct reply same = {0};
    snprintf(json, sizeof json, "{\"do\":\"compare\",\"other\":\"%s\",\"text\":\"hello there\"}",
             first);
    t_ok(session_send(s, json, &e), &e);
    for (int is_done = 0; !is_done;) {
        t_eq(next_record(s, &body, &e), 1);
        is_done = value_is(value_get(body, "kind"), "done");
        if (!value_is(value_get(body, "kind"), "probe") || same.tokens)
            continue;
        same.tokens = value_len(value_get(body, "ids"));
        value_f32s(value_get(value_get(body, "token"), "kl"), kl, CONTEXT);
    }
    for (size_t t = 1; t < same.tokens; t++)
        t_near(kl[t], 0, 1e-6); /* a model does not diverge from itself */
    session_close(s);
}

/* Two letters after a begin of text, the token of that id. */
static void begin_texts_with(const char *dir, int id)
{
    char path[600], text[700];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    snprintf(text, sizeof text,
             "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]},"
             "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
             "\"added_tokens\":[{\"id\":2,\"content\":\"<2>\",\"special\":true},"
             "{\"id\":3,\"content\":\"<3>\",\"special\":true}],"
             "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
             "{\"SpecialToken\":{\"id\":\"<%d>\",\"type_id\":0}},"
             "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":{\"<%d>\":"
             "{\"id\":\"<%d>\",\"ids\":[%d],\"tokens\":[\"<%d>\"]}}}}",
             id, id, id, id, id);
    t_ok(fs_write_file(path, text, strlen(text), &e), &e);
}

T(models_whose_texts_begin_with_other_tokens_have_no_divergence)
{
    char first[600], json[1400];
    struct err e = {0};
    struct value body;
    const char *dir = make_model("edp");
    begin_texts_with(dir, 2);
    snprintf(first, sizeof first, "%s-a", dir);
    t_eq(rename(dir, first), 0);
    dir = make_model("dense");
    for (int id = 2; id < 4; id++) {
        int probes = 0, has_kl = 0;
        begin_texts_with(dir, id);
        struct session *s = start(first);
        snprintf(json, sizeof json, "{\"do\":\"compare\",\"other\":\"%s\",\"text\":\"ab\"}", dir);
        t_ok(session_send(s, json, &e), &e);
        for (int is_done = 0; !is_done;) {
            t_eq(next_record(s, &body, &e), 1);
            is_done = value_is(value_get(body, "kind"), "done");
            if (!value_is(value_get(body, "kind"), "probe"))
                continue;
            t_eq(value_len(value_get(body, "ids")), 3);
            has_kl |= value_get(value_get(body, "token"), "kl").p != NULL;
            probes++;
        }
        t_eq(probes, 2);
        t_eq(has_kl, id == 2);
        session_close(s);
    }
}

T(a_session_saves_its_text_as_a_trace)
{
    char path[600], json[1400];
    struct err e = {0};
    struct runview *v = NULL;
    struct session *s = start(make_model("edp"));
    snprintf(path, sizeof path, "%s/exports/one.mp", t_tmpdir());
    snprintf(json, sizeof json, "{\"do\":\"save\",\"file\":\"%s\",\"lens\":2}", path);
    struct reply r = ask(s, json);
    t_truef(strstr(r.error, "no text yet") != NULL, "%s", r.error);
    r = ask(s, "{\"do\":\"trace\",\"text\":\"hello\"}");
    t_eq(r.tokens, 5);
    t_str(ask(s, json).kind, ""); /* done, without another record */
    t_ok(runview_open(&v, path, &e), &e);
    t_eq(v->state, RUN_TRACE);
    t_true(runview_probe(v, -1) != NULL);
    t_eq(runview_probe(v, -1)->tokens, 5);
    t_eq(runview_probe(v, -1)->lens_k, 2);
    t_str(probe_caveat(runview_probe(v, -1)), "");
    runview_free(v);
    r = ask(s, json);
    t_truef(strstr(r.error, "exists") != NULL, "%s", r.error);
    session_close(s);
}

T(a_saved_trace_tells_what_was_asked_for)
{
    char path[600], json[1400];
    struct err e = {0};
    struct runview *v = NULL;
    struct session *s = start(make_model("edp"));
    snprintf(path, sizeof path, "%s/exports/asked.mp", t_tmpdir());
    snprintf(json, sizeof json, "{\"do\":\"save\",\"file\":\"%s\"}", path);
    t_eq(ask(s, "{\"do\":\"trace\",\"text\":\"hello\"}").tokens, 5);
    t_str(ask(s, "{\"do\":\"force\",\"layer\":1,\"token\":2,\"run\":0}").kind, "probe");
    t_str(ask(s, "{\"do\":\"force\",\"layer\":2,\"token\":4,\"run\":1}").kind, "probe");
    t_str(ask(s, "{\"do\":\"offset\",\"value\":0.25}").kind, "probe");
    t_str(ask(s, json).kind, "");
    t_ok(runview_open(&v, path, &e), &e);
    const struct probe *p = runview_probe(v, -1);
    t_str(probe_caveat(p), "what-if, threshold offset +0.25, 2 cells forced");
    for (int i = 0; p->forced && i < p->layers * p->tokens; i++)
        t_eq(p->forced[i], i == 1 * 5 + 2 ? 0 : i == 2 * 5 + 4 ? 1 : -1);
    t_true(p->forced && !p->run[1 * 5 + 2] && p->run[2 * 5 + 4]);
    runview_free(v);
    session_close(s);
}

/* As for a model on another machine: the trace comes as records and is written by this process. */
T(a_session_saves_a_trace_of_its_model_here)
{
    char path[600], log[700], dir[512];
    struct err e = {0};
    struct value body;
    struct runview *v = NULL;
    struct session *s = start(make_model("edp"));
    struct reply r = {0};
    snprintf(dir, sizeof dir, "%s/here", t_tmpdir());
    snprintf(path, sizeof path, "%s/one.mp", dir);
    snprintf(log, sizeof log, "%s/log.mp", dir);
    t_ok(session_save(s, path, 2, &e), &e);
    t_fails(session_save(s, path, 2, &e), &e, DS_EBUSY, "is being saved");
    t_eq(next_record(s, &body, &e), 1);
    t_true(value_is(value_get(body, "kind"), "error")); /* no text yet */
    t_true(!fs_exists(path));
    t_ok(session_send(s, "{\"do\":\"trace\",\"text\":\"hello\"}", &e), &e);
    t_ok(session_save(s, path, 2, &e),
         &e); /* queued behind the trace, whose records are delivered */
    t_eq(next_record(s, &body, &e), 1);
    t_true(value_is(value_get(body, "kind"), "probe"));
    t_eq(next_record(s, &body, &e), 1);
    t_true(value_is(value_get(body, "do"), "trace"));
    t_eq(next_record(s, &body, &e), 1);
    t_true(value_is(value_get(body, "kind"), "done") && value_is(value_get(body, "do"), "save"));
    t_ok(runview_open(&v, path, &e), &e);
    t_eq(v->state, RUN_TRACE);
    t_eq(runview_probe(v, -1)->tokens, 5);
    t_eq(runview_probe(v, -1)->lens_k, 2);
    runview_free(v);
    t_fails(session_save(s, path, 2, &e), &e, DS_EEXIST, "exists");
    t_fails(session_save(s, log, 2, &e), &e, DS_EEXIST, "name of a run's log");
    snprintf(log, sizeof log, "%s/two.mp", path);
    t_ok(session_save(s, log, 2, &e), &e);
    r = ask(s, "{\"do\":\"info\"}"); /* what cannot be written is an error in its turn */
    t_str(r.kind, "error");
    t_truef(strstr(r.error, "one.mp") != NULL, "%s", r.error);
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
