/* Several texts at once, stop strings, log-probabilities, talk: over a small random model of bytes. */
#include "kit.h"

#include "eval/generation.h"

enum { V = 257, MADE = 40 };

static struct subject subject_of(const char *method)
{
    char text[400];
    struct subject s = {0};
    struct err e = {0};
    snprintf(text, sizeof text,
             "model.layers=5 model.dim=16 model.heads=2 model.vocab=%d model.max_seq=128 "
             "model.init_std=0.3 model.method=%s",
             V, method);
    s.model = kit_model(text, 7, 1, 0, 0);
    t_ok(tokenizer_new_bytes(&s.tokenizer, &e), &e);
    return s;
}

static struct gen_options options(void)
{
    struct gen_options o = {0};
    struct err e = {0};
    t_ok(opt_defaults(&gen_group, &o, &e), &e);
    opt_release(&gen_group, &o); /* the strings: no drafts */
    o.temperature = 1;
    o.max_tokens = MADE;
    o.time_rounds = 0;
    o.seed = 11;
    return o;
}

static struct ids ids_of(const struct subject *s, const char *text)
{
    struct ids ids = {0};
    struct err e = {0};
    t_ok(gen_prompt(s, text, strlen(text), &ids, &e), &e);
    return ids;
}

static void same_result(const struct gen_result *a, const struct gen_result *b)
{
    t_eq(a->ids.n, b->ids.n);
    t_true(memcmp(a->ids.v, b->ids.v, a->ids.n * sizeof *a->ids.v) == 0);
    t_true(memcmp(a->depth, b->depth, a->ids.n * sizeof *a->depth) == 0);
    t_true(a->text.len == b->text.len && memcmp(a->text.p, b->text.p, a->text.len) == 0);
    t_true(a->block_ratio == b->block_ratio && a->flops_ratio == b->flops_ratio);
    t_eq(a->stop, b->stop);
}

/* Five texts in three slots: each is what it is alone, at its own seed. */
T(batched_decoding_equals_decoding_alone)
{
    static const char *const say[] = {"a", "the cat sat", "xyz", "0123456789", "end"};
    enum { N = DS_LEN(say) };
    static const char *const method[] = {
        "dense", "edp", "dtf", "dlr",
        "dense model.rope_scaling=longrope model.rope_original=45 model.rope_factor=2 "
        "model.rope_short=1,1,2,3 model.rope_long=4,5,6,7"}; /* contexts of 41 to 51 */
    for (size_t k = 0; k < DS_LEN(method); k++) {
        struct subject s = subject_of(method[k]);
        struct err e = {0};
        struct ids prompt[N];
        struct gen_result all[N], one;
        struct gen_options o = options();
        o.batch = 3;
        o.logprobs = 2;
        for (size_t i = 0; i < N; i++)
            prompt[i] = ids_of(&s, say[i]);
        t_ok(gen_run(all, &s, prompt, N, &o, NULL, NULL, &e), &e);
        for (size_t i = 0; i < N; i++) {
            o.seed = 11 + (int64_t)i;
            t_ok(gen_run(&one, &s, &prompt[i], 1, &o, NULL, NULL, &e), &e);
            same_result(&one, &all[i]);
            gen_result_release(&one);
        }
        for (size_t i = 0; i < N; i++) {
            gen_result_release(&all[i]);
            ids_release(&prompt[i]);
        }
        model_free(s.model);
        tokenizer_free(s.tokenizer);
    }
}

/* Tokens far beyond a window, some blocks without one, some without experts. */
T(a_dense_model_generates_at_the_cost_of_the_dense_model)
{
    static const char *const more[] = {
        "dense", "dense model.window=32", "dense model.window=3 model.window_layers=0,3",
        "dense model.experts=4 model.dense_layers=1,4"};
    for (size_t k = 0; k < DS_LEN(more); k++) {
        struct subject s = subject_of(more[k]);
        struct err e = {0};
        struct gen_result r;
        struct gen_options o = options();
        struct ids prompt = ids_of(&s, "the cat sat on the mat, and then there was nothing more");
        t_ok(gen_run(&r, &s, &prompt, 1, &o, NULL, NULL, &e), &e);
        t_near(r.block_ratio, 1, 0);
        t_near(r.flops_ratio, 1, 0);
        gen_result_release(&r);
        ids_release(&prompt);
        model_free(s.model);
        tokenizer_free(s.tokenizer);
    }
}

/* ---- what a watcher sees ---- */

struct seen {
    struct str text;
    size_t tokens;
    const char *never; /* must not have been shown, not even its beginning at the end */
};

static int see_text(void *ctx, size_t k, const char *p, size_t n, int depth, int is_prompt)
{
    struct seen *x = ctx;
    t_true(k == 0 && n > 0 && (is_prompt || (depth >= 1 && depth <= 5)));
    if (!is_prompt)
        str_add_bytes(&x->text, p, n);
    return 0;
}

static int see_token(void *ctx, size_t k, const struct gen_result *r, size_t at)
{
    struct seen *x = ctx;
    t_true(k == 0 && at < r->ids.n);
    x->tokens++;
    return 0;
}

static struct gen_result run(struct subject *s, const char *say, const struct gen_options *o,
                             const struct gen_rules *rules, struct seen *seen)
{
    struct gen_watch watch = {.text = see_text, .token = see_token, .ctx = seen};
    struct gen_result r;
    struct err e = {0};
    struct ids ids = ids_of(s, say);
    t_ok(gen_run(&r, s, &ids, 1, o, rules, seen ? &watch : NULL, &e), &e);
    if (seen) {
        t_eq(seen->text.len, r.text.len);
        t_true(memcmp(str_text(&seen->text), str_text(&r.text), r.text.len) == 0);
        t_eq(seen->tokens, r.ids.n);
    }
    ids_release(&ids);
    return r;
}

/* ---- passes over prompts ---- */

struct order {
    size_t text[512]; /* of the tokens, as they went through the model */
    size_t n;
};

static int note_text(void *ctx, size_t k, const struct gen_result *r, size_t at)
{
    struct order *o = ctx;
    if (at < r->n_prompt && o->n < DS_LEN(o->text))
        o->text[o->n++] = k;
    return 0;
}

/* The first pass takes the shortest prompt's length of each, the next ones what is left. */
T(prompts_share_passes)
{
    static const char *const say[] = {"the cat sat on it", "abc", "0123456789"};
    static const size_t length[] = {17, 3, 10},
                        pass[][2] = {{0, 3}, {1, 3}, {2, 3}, {0, 7}, {2, 7}, {0, 7}};
    struct subject s = subject_of("edp");
    struct gen_options o = options();
    struct order seen = {{0}, 0};
    struct gen_watch watch = {.token = note_text, .ctx = &seen};
    struct gen_result r[DS_LEN(say)];
    struct ids prompt[DS_LEN(say)];
    struct err e = {0};
    for (size_t i = 0; i < DS_LEN(say); i++) {
        prompt[i] = ids_of(&s, say[i]);
        t_eq(prompt[i].n, length[i]);
    }
    t_ok(gen_run(r, &s, prompt, DS_LEN(say), &o, NULL, &watch, &e), &e);
    size_t at = 0;
    for (size_t i = 0; i < DS_LEN(pass); i++)
        for (size_t k = 0; k < pass[i][1]; k++)
            t_eq(seen.text[at++], pass[i][0]);
    t_eq(seen.n, at);
    for (size_t i = 0; i < DS_LEN(say); i++) {
        gen_result_release(&r[i]);
        ids_release(&prompt[i]);
    }
    model_free(s.model);
    tokenizer_free(s.tokenizer);
}

T(memory_for_activations_does_not_grow_with_the_prompt)
{
    size_t used[2];
    for (int i = 0; i < 2; i++) {
        struct subject s = subject_of("edp model.max_seq=4096");
        struct gen_options o = options();
        struct str text = {0};
        for (int k = 0; k < (i ? 4000 : 300); k++)
            str_add_char(&text, (char)('a' + k % 26));
        o.max_tokens = 2;
        struct gen_result r = run(&s, str_text(&text), &o, NULL, NULL);
        t_true(r.ids.n > text.len && s.model->R_max <= 256);
        used[i] = s.model->stream_arena.peak + s.model->work_arena.peak;
        gen_result_release(&r);
        str_release(&text);
        model_free(s.model);
        tokenizer_free(s.tokenizer);
    }
    t_eq(used[0], used[1]);
}

/* Tokens are bytes: every stop string of several bytes crosses borders. */
T(a_text_ends_before_the_first_stop_string)
{
    struct subject s = subject_of("edp");
    struct gen_options o = options();
    struct gen_result whole = run(&s, "abc", &o, NULL, NULL);
    t_true(whole.text.len > 20);
    for (size_t from = 0; from < 12; from += 3)
        for (size_t n = 1; n <= 4; n++) {
            char stop[8] = "", near[16] = "";
            const char *both[2] = {near, stop};
            struct gen_rules rules = {.stop = both, .n_stop = 2};
            struct seen seen = {0};
            memcpy(stop, whole.text.p + from, n);
            if (strlen(stop) != n) /* the random text has a zero byte there */
                continue;
            snprintf(near, sizeof near, "%s\x01\x02", stop); /* begins the same, never comes */
            struct gen_result r = run(&s, "abc", &o, &rules, &seen);
            char *first = strstr(whole.text.p, stop);
            t_true(first != NULL);
            t_eq(r.text.len, first - whole.text.p);
            t_true(memcmp(r.text.p, whole.text.p, r.text.len) == 0);
            t_eq(r.stop, GEN_STOP_TEXT);
            t_eq(r.ids.n - r.n_prompt, r.text.len + n);
            str_release(&seen.text);
            gen_result_release(&r);
        }
    gen_result_release(&whole);
    model_free(s.model);
    tokenizer_free(s.tokenizer);
}

T(what_never_became_a_stop_string_is_shown_in_the_end)
{
    struct subject s = subject_of("dense");
    struct gen_options o = options();
    struct gen_result whole = run(&s, "abc", &o, NULL, NULL);
    char stop[8] = "";
    memcpy(stop, whole.text.p + whole.text.len - 2,
           2); /* the last bytes, and one that is not made */
    if (strlen(stop) == 2) {
        struct seen seen = {0};
        const char *list[] = {stop};
        struct gen_rules rules = {.stop = list, .n_stop = 1};
        stop[2] = 'Q';
        struct gen_result r = run(&s, "abc", &o, &rules, &seen);
        same_result(&r, &whole);
        str_release(&seen.text);
        gen_result_release(&r);
    }
    gen_result_release(&whole);
    model_free(s.model);
    tokenizer_free(s.tokenizer);
}

T(an_id_that_ends_a_turn_ends_the_text_and_is_not_part_of_it)
{
    struct subject s = subject_of("edp");
    struct gen_options o = options();
    struct gen_result whole = run(&s, "abc", &o, NULL, NULL);
    int32_t end = whole.ids.v[whole.n_prompt + 5];
    struct gen_rules rules = {.end = &end, .n_end = 1};
    struct gen_result r = run(&s, "abc", &o, &rules, NULL);
    t_eq(r.stop, GEN_STOP_EOT);
    t_true(r.ids.n <= whole.n_prompt + 5);
    for (size_t i = r.n_prompt; i < r.ids.n; i++)
        t_true(r.ids.v[i] != end);
    gen_result_release(&r);
    gen_result_release(&whole);
    model_free(s.model);
    tokenizer_free(s.tokenizer);
}

/* ---- log-probabilities ---- */

static double logprob(const real *x, int id, int *rank)
{
    double sum = 0, max = (double)x[kit_best(x, V)];
    *rank = 0;
    for (int v = 0; v < V; v++) {
        sum += exp((double)x[v] - max);
        *rank += x[v] > x[id] || (!(x[v] < x[id]) && v < id);
    }
    return (double)x[id] - max - log(sum);
}

T(log_probabilities_are_those_of_the_whole_text)
{
    static const char *const method[] = {"dense", "edp"};
    for (size_t k = 0; k < DS_LEN(method); k++) {
        struct subject s = subject_of(method[k]);
        struct err e = {0};
        struct gen_options o = options();
        o.logprobs = 5;
        o.echo = 1;
        struct gen_result r = run(&s, "the cat sat on the mat and looked", &o, NULL, NULL);
        struct pass pass = {.kind = PASS_SPARSE};
        struct batch b = {.B = 1, .T = (int)r.ids.n, .id = r.ids.v};
        real x[V];
        t_ok(model_reserve(s.model, (int)r.ids.n, 0, 0, &e), &e);
        model_forward(s.model, &b, &pass);
        t_true(isnan(r.logprob[0]));
        for (size_t at = 1; at < r.ids.n; at++) {
            int rank;
            model_logits(s.model, (int)at - 1, x);
            t_near(r.logprob[at], logprob(x, r.ids.v[at], &rank), 1e-3);
            t_eq(r.n_top[at], 5);
            for (int i = 0; i < 5; i++) {
                const struct sample_rank *y = &r.top[at * 5 + (size_t)i];
                t_near(y->logprob, logprob(x, y->id, &rank), 1e-3);
                t_true(rank == i || i == 0 || y->logprob <= y[-1].logprob);
                t_true(y->id != r.ids.v[at] || fabs(y->logprob - r.logprob[at]) < 1e-12);
            }
        }
        gen_result_release(&r);
        model_free(s.model);
        tokenizer_free(s.tokenizer);
    }
}

/* ---- talk ---- */

static void turn(struct gen_chat *t, const struct subject *s, const char *say,
                 struct gen_result **r)
{
    struct err e = {0};
    struct ids more = ids_of(s, say);
    t_ok(gen_chat_turn(t, &more, r, &e), &e);
    ids_release(&more);
}

T(a_chat_equals_the_whole_conversation_at_once)
{
    static const char *const method[] = {"dense", "edp", "dtf"};
    for (size_t k = 0; k < DS_LEN(method); k++) {
        struct subject s = subject_of(method[k]);
        struct err e = {0};
        struct gen_options o = options();
        struct gen_chat *t = NULL;
        struct gen_result *r, alone;
        struct ids ids = {0};
        o.max_tokens = 15;
        t_ok(gen_chat_open(&t, &s, &o, NULL, NULL, &e), &e);
        turn(t, &s, "hello", &r);
        turn(t, &s, " and then", &r);
        for (size_t i = 0; i < r->n_prompt; i++)
            t_eq(ids_add(&ids, r->ids.v[i]), 0);
        t_ok(gen_run(&alone, &s, &ids, 1, &o, NULL, NULL, &e), &e);
        t_eq(alone.ids.n, r->ids.n);
        t_true(memcmp(alone.ids.v, r->ids.v, r->ids.n * sizeof *r->ids.v) == 0);
        t_true(memcmp(alone.depth, r->depth, r->ids.n * sizeof *r->depth) == 0);
        t_str(str_text(&alone.text), str_text(&r->text));
        gen_chat_reset(t);
        turn(t, &s, "hello", &r);
        t_eq(r->n_prompt, 5);
        gen_result_release(&alone);
        ids_release(&ids);
        gen_chat_close(t);
        model_free(s.model);
        tokenizer_free(s.tokenizer);
    }
}

T(a_question_that_does_not_fit_changes_nothing)
{
    struct subject s = subject_of("edp");
    struct err e = {0};
    struct gen_options o = options();
    struct gen_chat *t = NULL;
    struct gen_result *r;
    struct ids more = {0};
    o.max_tokens = 10;
    t_ok(gen_chat_open(&t, &s, &o, NULL, NULL, &e), &e);
    turn(t, &s, "hello", &r);
    size_t before = r->ids.n;
    for (int i = 0; i < 125; i++)
        t_eq(ids_add(&more, 65), 0);
    t_fails(gen_chat_turn(t, &more, &r, &e), &e, DS_ERANGE, "context of 128");
    t_eq(r->ids.n, before);
    turn(t, &s, "x", &r);
    t_eq(r->n_prompt, before + 1);
    ids_release(&more);
    gen_chat_close(t);
    model_free(s.model);
    tokenizer_free(s.tokenizer);
}

static int stop_now(void *ctx)
{
    return --*(int *)ctx < 0;
}

T(a_stopped_text_is_returned_as_far_as_it_was_generated)
{
    struct subject s = subject_of("edp");
    struct err e = {0};
    struct gen_options o = options();
    struct gen_result r[2];
    struct ids prompt[2] = {ids_of(&s, "ab"), ids_of(&s, "abc")};
    for (int steps = 0; steps < 30; steps += 7) {
        int left = steps;
        struct gen_watch watch = {.is_stopped = stop_now, .ctx = &left};
        t_ok(gen_run(r, &s, prompt, 2, &o, NULL, &watch, &e), &e);
        for (int i = 0; i < 2; i++) {
            t_true(!r[i].depth || r[i].stop == GEN_STOP_ASKED || r[i].stop == GEN_STOP_EOT);
            gen_result_release(&r[i]);
        }
    }
    ids_release(&prompt[0]);
    ids_release(&prompt[1]);
    model_free(s.model);
    tokenizer_free(s.tokenizer);
}

/* The signal comes while a step is made, as it nearly always does. */
struct broken {
    size_t tokens, done;
    int is_done[5];
};

static int count_token(void *ctx, size_t k, const struct gen_result *r, size_t at)
{
    struct broken *x = ctx;
    t_true(k < 5 && at < r->ids.n);
    x->tokens += at >= r->n_prompt;
    return 0;
}

static int count_done(void *ctx, size_t k, struct gen_result *r)
{
    struct broken *x = ctx;
    t_true(k < 5 && r->depth);
    x->is_done[k]++;
    x->done++;
    return 0;
}

static int is_seventh(void *ctx)
{
    return ((struct broken *)ctx)->tokens >= 7;
}

T(texts_that_are_stopped_in_a_step_are_finished)
{
    struct subject s = subject_of("edp");
    struct err e = {0};
    struct gen_options o = options();
    struct gen_result r[5];
    struct ids prompt[5];
    struct broken x = {0};
    struct gen_watch watch = {
        .token = count_token, .done = count_done, .is_stopped = is_seventh, .ctx = &x};
    o.batch = 3;
    for (int i = 0; i < 5; i++)
        prompt[i] = ids_of(&s, "the cat");
    t_ok(gen_run(r, &s, prompt, 5, &o, NULL, &watch, &e), &e);
    t_true(x.done >= 3 && x.tokens >= 7 && x.tokens <= 9);
    for (size_t k = 0; k < 5; k++) {
        t_eq(x.is_done[k], k < x.done);
        t_true((r[k].depth != NULL) == (k < x.done));
        if (k < x.done) {
            t_true(r[k].stop == GEN_STOP_ASKED || r[k].stop == GEN_STOP_EOT);
            t_true(r[k].block_ratio > 0 && r[k].flops_ratio > 0);
        }
        gen_result_release(&r[k]);
        ids_release(&prompt[k]);
    }
    model_free(s.model);
    tokenizer_free(s.tokenizer);
}

T(the_llama2c_sampler_reports_unsupported_options)
{
    struct subject s = subject_of("dense");
    struct err e = {0};
    struct gen_options o = options();
    o.sampler = GEN_SAMPLER_LLAMA2C;
    o.top_k = 3;
    t_fails(gen_check(&s, &o, &e), &e, DS_EUSAGE, "top_k");
    o.top_k = 0;
    o.min_p = 0.1;
    t_fails(gen_check(&s, &o, &e), &e, DS_EUSAGE, "min_p");
    o.min_p = 0;
    o.seed = 0;
    t_fails(gen_check(&s, &o, &e), &e, DS_EUSAGE, "seed=0");
    model_free(s.model);
    tokenizer_free(s.tokenizer);
}
