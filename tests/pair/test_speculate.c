/* Speculative decoding against ordinary decoding: over the registry of methods, all kinds of drafts
 * and number formats. */
#include "kit.h"

#include "base/statistics.h"
#include "eval/generation.h"
#include "models/speculate.h"

enum { V = 257, MADE = 32, L = 8 };

static struct numeric_options formats[] = {
    {.compute = COMPUTE_FP32},
    {.compute = COMPUTE_BF16},
    {.compute = COMPUTE_FP32, .kv_cache = KV_CACHE_BF16},
    {.compute = COMPUTE_BF16, .kv_cache = KV_CACHE_FP32},
    {.compute = COMPUTE_FP32, .weights = QUANT_Q8_0},
    {.compute = COMPUTE_BF16, .weights = QUANT_Q4_0},
    {.compute = COMPUTE_FP32, .weights = QUANT_Q4_K},
    {.compute = COMPUTE_BF16, .weights = QUANT_Q6_K},
};

static struct kit_batch batch;

static void fill(void *ctx, int k, struct batch *b)
{
    (void)ctx;
    kit_fill(&batch, 2, 64, V, (uint64_t)k);
    *b = batch.b;
}

/* Makes what each layer adds small, so that drafts are often right and often wrong. */
static void weaken(struct model *m, real by)
{
    for (int i = 0; i < m->params.n; i++) {
        struct param *p = &m->params.p[i];
        if (strstr(p->name, "o_proj") || strstr(p->name, "down_proj"))
            for (size_t k = 0; k < p->n; k++)
                p->value[k] *= by;
    }
    params_changed(&m->params);
}

/* A model of bytes. */
static struct subject subject_of(const char *method, const char *more,
                                 const struct numeric_options *numbers)
{
    char text[400];
    struct subject s = {0};
    struct err e = {0};
    int is_k = numbers->weights >= QUANT_Q4_K;
    snprintf(text, sizeof text,
             "model.layers=%d model.dim=%d model.heads=4 model.kv_heads=2 model.vocab=%d "
             "model.max_seq=128 model.init_std=%g model.tied=false model.method=%s %s",
             L, is_k ? 256 : 64, V, is_k ? 0.05 : 0.1, method, more);
    s.model = kit_model(text, 7, 128, 0, 0);
    weaken(s.model, (real)(is_k ? 0.05 : 0.1));
    if (s.model->route.ops->calibrate)
        t_ok(model_calibrate(s.model, 2, fill, NULL, 3, NULL, &e), &e);
    t_ok(weights_use(s.model, numbers, &e), &e);
    t_ok(tokenizer_new_bytes(&s.tokenizer, &e), &e);
    return s;
}

static void subject_done(struct subject *s)
{
    model_free(s->model);
    tokenizer_free(s->tokenizer);
}

static struct gen_options options(int routing)
{
    return (struct gen_options){
        .top_p = 1, .capacity = -1, .max_tokens = MADE, .seed = 11, .batch = 4, .routing = routing};
}

static struct gen_result run(struct subject *s, const char *say, const struct gen_options *o,
                             const struct gen_rules *rules)
{
    struct gen_result r;
    struct err e = {0};
    struct ids ids = {0};
    t_ok(gen_prompt(s, say, strlen(say), &ids, &e), &e);
    t_ok(gen_run(&r, s, &ids, 1, o, rules, NULL, &e), &e);
    ids_release(&ids);
    return r;
}

static void same_text(const struct gen_result *a, const struct gen_result *b, const char *what)
{
    size_t i = 0;
    while (i < a->ids.n && i < b->ids.n && a->ids.v[i] == b->ids.v[i])
        i++;
    t_truef(a->ids.n == b->ids.n && i == a->ids.n, "%s: token %zu of %zu and %zu differs", what, i,
            a->ids.n, b->ids.n);
    t_truef(memcmp(a->depth, b->depth, a->ids.n * sizeof *a->depth) == 0, "%s: depths", what);
    t_truef(a->text.len == b->text.len &&
                memcmp(str_text(&a->text), str_text(&b->text), a->text.len) == 0,
            "%s: text", what);
    t_truef(a->stop == b->stop, "%s: stop", what);
}

static struct gen_options drafted(const struct gen_options *o, char *speculate, char *draft)
{
    struct gen_options d = *o;
    d.speculate = speculate;
    d.draft = draft;
    return d;
}

static const char *const drafts[] = {"exit:1", "exit:6",       "skip:2,4-5",
                                     "skip:0", "capacity:0.4", "routed"};

/* Does this draft exist for the method and target? */
static int applies(const struct subject *s, const struct gen_options *o, const char *draft)
{
    unsigned flags = s->model->route.ops->flags;
    if (strcmp(draft, "routed") == 0)
        return o->routing == GEN_DENSE && (flags & ROUTE_GATED);
    if (draft[0] == 's' && s->model->config.loop > 1)
        return 0;
    return draft[0] != 'c' || (flags & ROUTE_CAPACITY);
}

static int64_t all_drafted, all_accepted;

static void check_drafts(struct subject *s, const struct gen_options *o, const char *what)
{
    static const char *const lengths[] = {"1", "4", "auto", "9"};
    struct gen_result plain = run(s, "the cat sat", o, NULL);
    for (size_t d = 0; d < DS_LEN(drafts); d++) {
        char name[160], draft[32], length[8];
        snprintf(draft, sizeof draft, "%s", drafts[d]);
        snprintf(length, sizeof length, "%s", lengths[d % DS_LEN(lengths)]);
        struct gen_options with = drafted(o, length, draft);
        if (!applies(s, o, draft))
            continue;
        struct gen_result r = run(s, "the cat sat", &with, NULL);
        snprintf(name, sizeof name, "%s, speculate=%s draft=%s", what, length, draft);
        same_text(&plain, &r, name);
        t_truef(r.rounds > 0 && r.accepted <= r.drafted, "%s: nothing was drafted", name);
        all_drafted += r.drafted;
        all_accepted += r.accepted;
        gen_result_release(&r);
    }
    gen_result_release(&plain);
}

/* All methods in one number format, also with a dense target. */
static void check_methods(int format)
{
    for (const struct route_ops *const *ops = route_all(); *ops; ops++) {
        if (format > 0 && (ops - route_all() + format) % kit_every())
            continue;
        struct subject s = subject_of((*ops)->name, "", &formats[format]);
        for (int dense = 0; dense < 2; dense++) {
            char what[96];
            struct gen_options o = options(dense ? GEN_DENSE : GEN_CAUSAL);
            o.max_tokens = MADE / kit_every();
            snprintf(what, sizeof what, "%s, format %d%s", (*ops)->name, format,
                     dense ? ", dense" : "");
            check_drafts(&s, &o, what);
        }
        subject_done(&s);
    }
    t_truef(all_accepted * 20 > all_drafted && all_accepted * 20 < all_drafted * 19,
            "%lld of %lld drafted tokens were accepted", (long long)all_accepted,
            (long long)all_drafted);
}

/* Ten tokens at a tenth of the cost: 1 + .9 + .9^2 ... over 1 + n / 10 is largest at n = 10. */
T(the_best_draft_length_follows_acceptance_and_cost)
{
    t_eq(spec_best_length(0, 0.1, 16), 1);
    t_eq(spec_best_length(1, 0.1, 16), 16);
    t_eq(spec_best_length(0.9, 0.1, 16), 10);
    t_eq(spec_best_length(0.9, 0.1, 4), 4);
    t_eq(spec_best_length(0.9, 1, 16), 1);
    for (int i = 1; i < 20; i++) {
        t_true(spec_best_length(i / 20.0, 0.2, 64) >= spec_best_length((i - 1) / 20.0, 0.2, 64));
        t_true(spec_best_length(0.8, i / 20.0, 64) <= spec_best_length(0.8, (i - 1) / 20.0, 64));
    }
}

/* Drafted tokens in the last of ten rounds whose drafts are accepted or rejected by order. */
static int length_after(struct subject *s, int forced)
{
    struct spec *spec = NULL;
    struct spec_draft draft;
    struct spec_round r = {0};
    struct kv_cache *cache = NULL;
    struct pass pass = {.kind = PASS_DENSE};
    struct err e = {0};
    int32_t id[MADE * 4] = {0};
    t_ok(kv_cache_new(&cache, s->model, DS_LEN(id), &e), &e);
    t_ok(spec_draft_parse(&draft, "exit:1", s->model, &pass, &e), &e);
    t_ok(spec_new(&spec, s->model, &draft, &pass, cache, 6, &e), &e);
    for (int i = 0, n = 1; i < 10; i++, n += r.accepted + 1) {
        struct spec_ask ask = {
            .id = id, .n = (size_t)n, .most = 6, .adapts = 1, .sample.top_p = 1, .forced = forced};
        t_ok(spec_run(spec, &ask, &r, &e), &e);
        t_ok(spec_keep(spec, r.accepted + 1, &e), &e);
    }
    spec_free(spec);
    spec_draft_release(&draft);
    kv_cache_free(cache);
    return r.drafted;
}

T(an_adaptive_draft_grows_while_it_is_accepted)
{
    struct subject s = subject_of("dense", "", &formats[0]);
    t_eq(length_after(&s, 6), 6);
    t_eq(length_after(&s, 0), 1);
    subject_done(&s);
}

T(greedy_text_is_that_of_ordinary_decoding_in_fp32)
{
    check_methods(0);
}

T(greedy_text_is_that_of_ordinary_decoding_in_bf16)
{
    check_methods(1);
}

T(greedy_text_is_that_of_ordinary_decoding_with_a_cache_in_another_format)
{
    check_methods(2);
    check_methods(3);
}

T(greedy_text_is_that_of_ordinary_decoding_with_q8_0)
{
    check_methods(4);
}

T(greedy_text_is_that_of_ordinary_decoding_with_q4_0)
{
    check_methods(5);
}

T(greedy_text_is_that_of_ordinary_decoding_with_q4_k)
{
    check_methods(6);
}

T(greedy_text_is_that_of_ordinary_decoding_with_q6_k)
{
    check_methods(7);
}

/* Executed layers: 1 before the loop of 2 x 3, 1 after it. */
T(greedy_text_of_looped_blocks_is_that_of_ordinary_decoding)
{
    static const char *const loops[] = {
        "model.layers=4 model.loop=3 model.loop_first=1 model.loop_last=1",
        "model.layers=4 model.loop=3 model.loop_first=1 model.loop_last=1 model.loop_inject=add",
        "model.layers=2 model.loop=4"};
    for (const struct route_ops *const *ops = route_all(); *ops; ops++)
        for (size_t k = 0; k < DS_LEN(loops); k++) {
            if ((ops - route_all() + (int)k) % kit_every())
                continue;
            struct subject s = subject_of((*ops)->name, loops[k], &formats[k % 2]);
            struct gen_options o = options(GEN_CAUSAL);
            check_drafts(&s, &o, (*ops)->name);
            subject_done(&s);
        }
}

T(drafts_that_a_loop_cannot_have_are_refused_by_name)
{
    static const struct {
        const char *draft;
        int code;
        const char *says;
    } rows[] = {
        {"skip:1", DS_EUSAGE, "draft=skip:1: unsupported with looped blocks, expected exit:E"},
        {"exit:7", DS_ERANGE, "draft=exit:7: must be 1 to 6 layers"},
        {"exit:0", DS_ERANGE, "draft=exit:0: must be 1 to 6 layers"},
    };
    struct subject s = subject_of(
        "dense", "model.layers=4 model.loop=3 model.loop_first=1 model.loop_last=1", &formats[0]);
    struct pass target = kit_pass(PASS_SPARSE);
    for (size_t k = 0; k < DS_LEN(rows); k++) {
        struct spec_draft d = {0};
        struct err e = {0};
        t_fails(spec_draft_parse(&d, rows[k].draft, s.model, &target, &e), &e, rows[k].code,
                rows[k].says);
        t_true(!d.closed && !strchr(e.text, '\n'));
    }
    subject_done(&s);
}

/* ---- bits ---- */

static void same_cache(const struct model *m, const struct kv_cache *a, const struct kv_cache *b,
                       const char *what)
{
    size_t width = (size_t)(m->config.kv_heads * m->config.head_dim);
    t_truef(a->len == b->len, "%s: %d and %d tokens", what, a->len, b->len);
    for (int l = 0; l < a->L; l++) {
        const struct kv_layer *x = &a->layer[l], *y = &b->layer[l];
        size_t n = (size_t)x->n * width;
        t_truef(x->n == y->n, "%s: layer %d: %d and %d keys", what, l, x->n, y->n);
        t_truef(x->k16 ? memcmp(x->k16, y->k16, 2 * n) == 0 && memcmp(x->v16, y->v16, 2 * n) == 0
                       : kit_same(x->k, y->k, n) && kit_same(x->v, y->v, n),
                "%s: keys of layer %d", what, l);
    }
    t_truef(!a->memory || memcmp(a->memory, b->memory, a->memory_bytes) == 0, "%s: memory", what);
}

/* Decodes the same text a second time, token by token, and compares logits and caches. */
struct twice {
    struct model *m;
    struct kv_cache *plain, *cache;
    struct spec *spec;
    struct pass pass;
    int32_t text[160];
    size_t n;
    const char *what;
};

static void one_round(struct twice *w, int most, int forced)
{
    struct err e = {0};
    struct spec_ask ask = {.id = w->text, .n = w->n, .most = most, .forced = forced};
    struct spec_round r;
    real plain[V];
    t_ok(spec_run(w->spec, &ask, &r, &e), &e);
    t_truef(r.accepted <= r.drafted && r.drafted <= most, "%s: %d of %d", w->what, r.accepted,
            r.drafted);
    int rows = r.accepted + 1;
    memcpy(w->text + w->n, r.id, (size_t)r.accepted * sizeof *r.id);
    t_ok(spec_keep(w->spec, rows, &e), &e);
    for (int i = 0; i < rows; i++) {
        t_ok(model_decode(w->m, w->plain, &w->text[w->n - 1 + (size_t)i], 1, &w->pass, &e), &e);
        model_logits(w->m, 0, plain);
        t_truef(kit_same(plain, r.logits + (size_t)i * V, V), "%s: logits after token %zu", w->what,
                w->n - 1 + (size_t)i);
    }
    same_cache(w->m, w->plain, w->cache, w->what);
    w->n += (size_t)r.accepted;
    w->text[w->n++] = kit_best(plain, V);
}

/* A prompt in one pass, then rounds of which some tokens are accepted, until the cache is full.
 * is_late: the draft begins after the prompt. */
static void check_bits(struct subject *s, int routing, const char *draft, int is_late,
                       const char *what)
{
    enum { PROMPT = 21, CAP = 90 };
    struct err e = {0};
    struct spec_draft d;
    struct twice w = {.m = s->model, .what = what};
    w.pass = (struct pass){.kind = routing == GEN_DENSE ? PASS_DENSE : PASS_SPARSE, .seed = 4};
    t_ok(spec_draft_parse(&d, draft, w.m, &w.pass, &e), &e);
    t_ok(kv_cache_new(&w.plain, w.m, CAP, &e), &e);
    t_ok(kv_cache_new(&w.cache, w.m, CAP, &e), &e);
    if (!is_late)
        t_ok(spec_new(&w.spec, w.m, &d, &w.pass, w.cache, 12, &e), &e);
    kit_fill(&batch, 1, PROMPT + 1, V, 9);
    memcpy(w.text, batch.id, (PROMPT + 1) * sizeof *w.text);
    w.n = PROMPT + 1;
    t_ok(model_decode(w.m, w.plain, w.text, PROMPT, &w.pass, &e), &e);
    t_ok(model_decode(w.m, w.cache, w.text, PROMPT, &w.pass, &e), &e);
    t_ok(is_late ? spec_new(&w.spec, w.m, &d, &w.pass, w.cache, 12, &e)
                 : spec_follow(w.spec, w.text, PROMPT, &e),
         &e);
    for (int round = 0; w.n <= CAP; round++)
        one_round(&w, 1 + round * 5 % 12, round % 6);
    struct spec_ask more = {.id = w.text, .n = w.n, .most = 4, .forced = -1};
    struct spec_round r;
    t_fails(spec_run(w.spec, &more, &r, &e), &e, DS_ERANGE, "context is full");
    spec_free(w.spec);
    spec_draft_release(&d);
    kv_cache_free(w.plain);
    kv_cache_free(w.cache);
}

T(logits_and_caches_are_those_of_ordinary_decoding_to_the_bit)
{
    static const int some[] = {0, 1, 5};
    for (const struct route_ops *const *ops = route_all(); *ops; ops++)
        for (size_t f = 0; f < DS_LEN(some); f++) {
            if ((ops - route_all() + (int)f) % kit_every())
                continue;
            struct subject s = subject_of((*ops)->name, "", &formats[some[f]]);
            for (int dense = 0; dense < 2; dense++) {
                struct gen_options o = options(dense ? GEN_DENSE : GEN_CAUSAL);
                for (size_t d = 0; d < DS_LEN(drafts); d++) {
                    char what[120];
                    snprintf(what, sizeof what, "%s, format %d%s, %s", (*ops)->name, some[f],
                             dense ? ", dense" : "", drafts[d]);
                    if (applies(&s, &o, drafts[d]))
                        check_bits(&s, o.routing, drafts[d], 0, what);
                }
            }
            subject_done(&s);
        }
}

T(a_draft_of_the_first_layers_can_begin_after_a_prompt)
{
    struct subject s = subject_of("dense", "", &formats[0]);
    check_bits(&s, GEN_CAUSAL, "exit:1", 1, "one layer");
    check_bits(&s, GEN_CAUSAL, "exit:6", 1, "six layers");
    subject_done(&s);
}

/* ---- ends ---- */

T(a_drafted_text_ends_where_the_ordinary_one_does)
{
    static const char *const method[] = {"dense", "mod", "dlr"};
    char length[] = "5", draft[] = "exit:6";
    for (size_t k = 0; k < DS_LEN(method); k++) {
        struct subject s = subject_of(method[k], "", &formats[0]);
        struct gen_options o = options(GEN_CAUSAL), with;
        struct gen_result whole = run(&s, "the cat sat", &o, NULL);
        /* most tokens; an id that ends; a stop string */
        for (size_t n = 0; n < MADE; n += (size_t)kit_every()) {
            o.max_tokens = (int64_t)n;
            with = drafted(&o, length, draft);
            struct gen_result a = run(&s, "the cat sat", &o, NULL),
                              b = run(&s, "the cat sat", &with, NULL);
            same_text(&a, &b, "max_tokens");
            gen_result_release(&a);
            gen_result_release(&b);
            o.max_tokens = MADE;
            with = drafted(&o, length, draft);
            int32_t end = whole.ids.v[whole.n_prompt + n];
            char stop[3] = {(char)end, 0, 0};
            const char *list[] = {stop};
            struct gen_rules by_id = {.end = &end, .n_end = 1},
                             by_text = {.stop = list, .n_stop = stop[0] != 0};
            a = run(&s, "the cat sat", &o, &by_id);
            b = run(&s, "the cat sat", &with, &by_id);
            t_eq(a.stop, GEN_STOP_EOT);
            same_text(&a, &b, "an id that ends");
            gen_result_release(&a);
            gen_result_release(&b);
            if (end >= 0x80 && n + 1 < MADE) /* two bytes */
                stop[1] = (char)whole.ids.v[whole.n_prompt + n + 1];
            a = run(&s, "the cat sat", &o, &by_text);
            b = run(&s, "the cat sat", &with, &by_text);
            same_text(&a, &b, "a stop string");
            gen_result_release(&a);
            gen_result_release(&b);
        }
        gen_result_release(&whole);
        subject_done(&s);
    }
}

T(a_drafted_text_fills_the_context)
{
    static const char *const method[] = {"dense", "dtf", "hat"};
    char length[] = "7", draft[] = "exit:6";
    int full = 0;
    for (size_t k = 0; k < DS_LEN(method); k++)
        for (int learned = 0; learned < 2; learned++) {
            struct subject s = subject_of(
                method[k], learned ? "model.position=learned" : "model.position=rope", &formats[1]);
            struct gen_options o = options(GEN_CAUSAL);
            o.max_tokens = 1000;
            struct gen_options with = drafted(&o, length, draft);
            struct gen_result a = run(&s, "the cat sat", &o, NULL),
                              b = run(&s, "the cat sat", &with, NULL);
            full += a.stop == GEN_STOP_CONTEXT && a.ids.n == 128;
            same_text(&a, &b, method[k]);
            gen_result_release(&a);
            gen_result_release(&b);
            subject_done(&s);
        }
    t_true(full >= 3);
}

/* A chat continues from a cache that was rolled back. */
T(a_chat_with_drafts_is_that_without)
{
    static const char *const method[] = {"dense", "dlr", "edp"};
    char length[] = "6", draft[] = "skip:1,3";
    for (size_t k = 0; k < DS_LEN(method); k++) {
        struct err e = {0};
        struct subject s = subject_of(method[k], "", &formats[0]);
        struct gen_options o = options(GEN_CAUSAL), with = drafted(&o, length, draft);
        struct gen_chat *chat[2] = {NULL, NULL};
        o.max_tokens = with.max_tokens = 17;
        t_ok(gen_chat_open(&chat[0], &s, &o, NULL, NULL, &e), &e);
        t_ok(gen_chat_open(&chat[1], &s, &with, NULL, NULL, &e), &e);
        for (int turn = 0; turn < 4; turn++) {
            struct gen_result *r[2];
            struct ids more = {0};
            if (turn == 2) {
                gen_chat_reset(chat[0]);
                gen_chat_reset(chat[1]);
            }
            t_ok(gen_prompt(&s, turn % 2 ? " and then" : "hello", 5, &more, &e), &e);
            for (int i = 0; i < 2; i++)
                t_ok(gen_chat_turn(chat[i], &more, &r[i], &e), &e);
            same_text(r[0], r[1], method[k]);
            ids_release(&more);
        }
        gen_chat_close(chat[0]);
        gen_chat_close(chat[1]);
        subject_done(&s);
    }
}

T(marks_and_counts_agree)
{
    char length[] = "4", draft[] = "exit:6";
    struct subject s = subject_of("dense", "", &formats[0]);
    struct gen_options o = options(GEN_CAUSAL), with = drafted(&o, length, draft);
    struct gen_result a = run(&s, "the cat sat", &o, NULL), b = run(&s, "the cat sat", &with, NULL);
    int64_t n[3] = {0};
    for (size_t i = 0; i < b.ids.n; i++) {
        t_true(b.mark[i] == GEN_ORDINARY || i >= b.n_prompt);
        n[b.mark[i]] += i >= b.n_prompt;
    }
    t_eq(n[GEN_ACCEPTED], b.accepted);
    t_eq(n[GEN_ORDINARY] + n[GEN_CORRECTED], b.rounds);
    t_true(n[GEN_CORRECTED] > 0 && n[GEN_ACCEPTED] > 0);
    t_eq(a.drafted, 0);
    t_true(b.flops_token > a.flops_token && a.flops_token > 0);
    gen_result_release(&a);
    gen_result_release(&b);
    subject_done(&s);
}

/* What a draft costs and shares depends on the layers, which a dense model runs in any routing. */
T(a_draft_of_a_dense_model_shares_its_layers_in_any_routing)
{
    char length[] = "4", exit[] = "exit:6", skip[] = "skip:4-5";
    char *draft[] = {exit, skip};
    struct subject s = subject_of("dense", "", &formats[0]);
    for (size_t k = 0; k < DS_LEN(draft); k++) {
        struct gen_options o = options(GEN_CAUSAL), with = drafted(&o, length, draft[k]);
        struct gen_result causal = run(&s, "the cat sat", &with, NULL);
        with.routing = GEN_DENSE;
        struct gen_result dense = run(&s, "the cat sat", &with, NULL);
        same_text(&causal, &dense, draft[k]);
        t_truef(causal.flops_token == dense.flops_token, "%s: %g and %g FLOPs per token", draft[k],
                causal.flops_token, dense.flops_token);
        gen_result_release(&causal);
        gen_result_release(&dense);
    }
    subject_done(&s);
}

/* ---- the distribution ---- */

enum { TINY = 7, DRAWS = 6000 };

/* Pearson's statistic of counts against p; cells that p excludes must be empty. */
static double chi_square(const double *count, const double *p, int *df)
{
    double n = 0, sum = 0;
    for (int v = 0; v < TINY; v++)
        n += count[v];
    for (int v = 0; v < TINY; v++) {
        t_truef(p[v] > 0 || !(count[v] > 0), "token %d has no probability", v);
        if (!(p[v] > 0))
            continue;
        sum += (count[v] - n * p[v]) * (count[v] - n * p[v]) / (n * p[v]);
        ++*df;
    }
    --*df;
    return sum;
}

/* Wilson and Hilferty's normal approximation: standard deviations above the mean. */
static double deviation(double chi, int df)
{
    double s = 2.0 / (9 * df);
    return (cbrt(chi / df) - 1 + s) / sqrt(s);
}

/* Draws the two tokens after a fixed text many times.  The second given the first, where that was
 * accepted, has the target's distribution too. */
static void check_distribution(struct sample_options sample, const char *draft)
{
    struct err e = {0};
    struct model *m = kit_model("model.layers=5 model.dim=32 model.heads=2 model.vocab=7 "
                                "model.max_seq=32 model.init_std=0.25 model.tied=false",
                                5, 16, 0, 0);
    struct kv_cache *cache = NULL;
    struct spec *spec = NULL;
    struct spec_draft d;
    struct pass pass = {.kind = PASS_SPARSE};
    struct sampler sampler;
    double first[TINY] = {0}, second[TINY][TINY] = {{0}}, p[TINY], q[TINY][TINY];
    int has_second[TINY] = {0}, rejected = 0, draws = DRAWS / kit_every();
    t_ok(spec_draft_parse(&d, draft, m, &pass, &e), &e);
    t_ok(kv_cache_new(&cache, m, 16, &e), &e);
    t_ok(spec_new(&spec, m, &d, &pass, cache, 3, &e), &e);
    t_ok(sampler_init(&sampler, TINY, &e), &e);
    for (int i = 0; i < draws; i++) {
        int32_t text[8] = {3, 1, 4, 1};
        struct spec_ask ask = {.id = text, .n = 4, .most = 3, .sample = sample, .forced = -1};
        struct spec_round r;
        ask.sample.seed = (uint64_t)i;
        kv_cache_reset(cache);
        spec_reset(spec);
        t_eq(spec_counts(spec)->rounds, 0);
        t_ok(model_decode(m, cache, text, 3, &pass, &e), &e);
        t_ok(spec_follow(spec, text, 3, &e), &e);
        t_ok(spec_run(spec, &ask, &r, &e), &e);
        t_eq(r.drafted, 3);
        t_true((r.next >= 0) == (r.accepted < r.drafted));
        t_ok(sampler_probs(&sampler, r.logits, &sample, p, &e), &e);
        int32_t one = r.accepted > 0 ? r.id[0] : r.next;
        first[one]++;
        rejected += r.accepted == 0;
        if (r.accepted == 0)
            continue;
        t_ok(sampler_probs(&sampler, r.logits + TINY, &sample, q[one], &e), &e);
        has_second[one] = 1;
        second[one][r.accepted > 1 ? r.id[1] : r.next]++;
    }
    int df = 0;
    double chi = chi_square(first, p, &df), z = deviation(chi, df);
    t_truef(z < 4, "%s: first token: %.2f standard deviations", draft, z);
    chi = df = 0;
    for (int v = 0; v < TINY; v++)
        chi += has_second[v] ? chi_square(second[v], q[v], &df) : 0;
    z = deviation(chi, df);
    t_truef(z < 4, "%s: second token: %.2f standard deviations", draft, z);
    t_true(rejected > draws / 50 && rejected < draws * 49 / 50);
    sampler_release(&sampler);
    spec_free(spec);
    spec_draft_release(&d);
    kv_cache_free(cache);
    model_free(m);
}

T(sampled_tokens_have_the_distribution_of_the_model)
{
    check_distribution((struct sample_options){.temperature = 1, .top_p = 1}, "exit:1");
    check_distribution((struct sample_options){.temperature = 1, .top_p = 1}, "skip:0,3");
}

T(sampled_tokens_have_it_with_temperature_top_k_and_top_p)
{
    check_distribution((struct sample_options){.temperature = 0.6, .top_p = 0.95}, "exit:2");
    check_distribution((struct sample_options){.temperature = 1.5, .top_k = 4, .top_p = 0.9},
                       "exit:1");
}
