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
        t_ok(model_calibrate(s.model, 2, fill, NULL, 3, &e), &e);
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
    return (struct gen_options){.top_p = 1,
                                .capacity = -1,
                                .max_tokens = MADE,
                                .seed = 11,
                                .batch = 4,
                                .routing = routing};
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

static const char *const drafts[] = {"exit:1", "exit:6", "skip:2,4-5", "skip:0", "capacity:0.4",
                                     "routed"};

/* Does this draft exist for the method and target? */
static int applies(const struct subject *s, const struct gen_options *o, const char *draft)
{
    unsigned flags = s->model->route.ops->flags;
    if (strcmp(draft, "routed") == 0)
        return o->routing == GEN_DENSE && (flags & ROUTE_GATED);
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

/* All methods in one number format; by_routing: also with a dense target. */
static void check_methods(int format)
{
    for (const struct route_ops *const *ops = route_all(); *ops; ops++)
        for (int dense = 0; dense < 2; dense++) {
            char what[96];
            struct subject s = subject_of((*ops)->name, "", &formats[format]);
            struct gen_options o = options(dense ? GEN_DENSE : GEN_CAUSAL);
            snprintf(what, sizeof what, "%s, format %d%s", (*ops)->name, format,
                     dense ? ", dense" : "");
            check_drafts(&s, &o, what);
            subject_done(&s);
        }
    t_truef(all_accepted * 20 > all_drafted && all_accepted * 20 < all_drafted * 19,
            "%lld of %lld drafted tokens were accepted", (long long)all_accepted,
            (long long)all_drafted);
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
