/* Generation options, batched decoding of many prompts, and chats. */
#include "eval/generation.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/statistics.h"
#include "data/chat.h"
#include "generation_impl.h"
#include "models/measure.h"

enum { TIMED_MIN = 4, TIMED_MAX = 32, ROUNDS_MAX = 32 };

#define AT(field) offsetof(struct gen_options, field)
static const struct opt gen_opts[] = {
    // clang-format off
    {"temperature", OPT_REAL, AT(temperature), "0.8", 0, 100, NULL, "sampling temperature; 0 = greedy", NULL},
    {"top_k",       OPT_INT,  AT(top_k),       "0",   0, 1 << 24, NULL, "sample from the k most likely tokens; 0 = all", NULL},
    {"top_p",       OPT_REAL, AT(top_p),       "1",   1e-6, 1, NULL, "sample from the smallest set of tokens with this probability mass", NULL},
    {"min_p",       OPT_REAL, AT(min_p),       "0",   0, 1, NULL, "sample from the tokens with at least this share of the most likely one's probability; 0 = all", NULL},
    {"sampler",     OPT_ENUM, AT(sampler),     "own", 0, 0, "own|llama2c", "random sampler; llama2c: that program's random numbers, to reproduce its published texts", NULL},
    {"max_tokens",  OPT_INT,  AT(max_tokens),  "256", 0, 1 << 24, NULL, "most tokens to generate", NULL},
    {"seed",        OPT_INT,  AT(seed),        "1",   0, 1e15, NULL, "random seed; of several texts, number k (from 0) uses seed + k", NULL},
    {"logprobs",    OPT_INT,  AT(logprobs),    "0",   0, GEN_LOGPROBS_MAX, NULL, "--json: log-probability of every token and of the k most likely alternatives", NULL},
    {"echo",        OPT_INT,  AT(echo),        "-1",  -1, 1, NULL, "print the prompt before its text: 1 yes, with its log-probabilities; 0 no; -1 yes except in --chat and --json", NULL},
    {"batch",       OPT_INT,  AT(batch),       "16",  1, DECODE_BATCH, NULL, "texts decoded in one batch", "together"},
    {"template",    OPT_ENUM, AT(template),    "auto", 0, 0, CHAT_CHOICES, "chat template of --chat; auto: the model's own", NULL},
    {"thinking",    OPT_ENUM, AT(thinking),    "auto", 0, 0, CHAT_THINKING_CHOICES, "enable_thinking of --chat; auto: as the template decides", NULL},
    {"routing",     OPT_ENUM, AT(routing),     "causal", 0, 0, "causal|topk|dense", "causal: inference-time decisions; dense: all cells (topk: whole texts only, see eval and trace)", NULL},
    {"capacity",    OPT_REAL, AT(capacity),    "-1", 0, 0, NULL, "requested share of the routed cells, 0 to 1; -1 = what calibrate risk= stored, else the method's own", NULL},
    {"target_speedup", OPT_REAL, AT(target_speedup), "0", 0, 1e6, NULL, "search for the capacity with this speedup over dense on the run's held-out text, or its training text where none is held out; 0 = off", NULL},
    {"speedup_by",  OPT_ENUM, AT(speedup_by),  "flops", 0, 0, "flops|time", "measure of target_speedup: FLOPs of the whole model, or decoding time", NULL},
    {"threshold_offset", OPT_REAL, AT(threshold_offset), "0", -100, 100, NULL, "offset added to every threshold (what-if), in standard deviations of the signal", NULL},
    {"exit.layer",  OPT_INT,  AT(exit_layer),  "0",   0, 1 << 20, NULL, "run the first E layers, then the head; 0 = all", NULL},
    {"speculate",   OPT_STRING, AT(speculate), "off", 0, 0, NULL, "tokens that draft= drafts for one verifying pass: 1 to 64, auto (by acceptance and cost of the last rounds) or off; at temperature=0 the text is that of ordinary decoding, above it one of the same distribution; one text at a time, batch= has no effect", NULL},
    {"draft",       OPT_STRING, AT(draft),     "",    0, 0, NULL, "exit:E (first E layers), skip:3,5-8 (all layers but these), capacity:C, or routed (for routing=dense)", NULL},
    {"draft.confidence", OPT_REAL, AT(confidence), "0", 0, 1, NULL, "a draft ends where its most likely token is less probable; 0 = never", NULL},
    {"time_rounds", OPT_INT,  AT(time_rounds), "3",   0, ROUNDS_MAX, NULL, "timing rounds against the dense model; 0 = not timed", NULL},
    {"threads",     OPT_INT,  AT(threads),     "0",   0, 4096, NULL, "worker threads; 0 = as many as CPU affinity and quota allow", NULL},
    NUMERIC_OPTS(AT(numbers)),
    // clang-format on
};
const struct opt_group gen_group = {
    .prefix = "", .title = "generation", .opts = gen_opts, .n = DS_LEN(gen_opts)};
const char *const gen_stop_name[] = {"length", "end of text", "context full", "stopped",
                                     "stop string"};

const char *const gen_mark_name[] = {"ordinary", "accepted", "corrected"};

int gen_speculates(const struct gen_options *o)
{
    return o->speculate && strcmp(o->speculate, "off") != 0;
}

int gen_draft_length(const struct gen_options *o, int *most, int *adapts, struct err *e)
{
    enum { AUTO_MOST = 16 };
    int is_auto = *adapts = gen_speculates(o) && strcmp(o->speculate, "auto") == 0;
    char *end = NULL;
    long n = is_auto ? AUTO_MOST : gen_speculates(o) ? strtol(o->speculate, &end, 10) : 0;
    *most = (int)n;
    if (gen_speculates(o) && !is_auto && (*end || end == o->speculate || n < 1 || n > SPEC_MOST))
        return err_set(e, DS_EUSAGE, "speculate=%s: must be 1 to %d, auto or off", o->speculate,
                       SPEC_MOST);
    return 0;
}

static int check_draft(const struct subject *s, const struct gen_options *o, struct err *e)
{
    struct spec_draft draft = {0};
    struct pass pass = gen_pass(o, 0);
    int most, adapts, has_draft = o->draft && o->draft[0];
    int rc = gen_draft_length(o, &most, &adapts, e);
    if (rc < 0)
        return rc;
    if (most == 0)
        return has_draft || o->confidence > 0
                   ? err_set(e, DS_EUSAGE, "%s has no effect without speculate=N",
                             has_draft ? "draft" : "draft.confidence")
                   : 0;
    if (!has_draft)
        return err_set(e, DS_EUSAGE,
                       "speculate=%s: missing draft: set draft=exit:E, skip:LAYERS, capacity:C or "
                       "routed",
                       o->speculate);
    if (o->sampler == GEN_SAMPLER_LLAMA2C && o->temperature > 0)
        return err_set(e, DS_EUSAGE,
                       "sampler=llama2c does not support speculate, which draws other numbers");
    if (o->exit_layer > 0)
        return err_set(e, DS_EUSAGE,
                       "exit.layer=%lld does not support speculate: use draft=exit:%lld",
                       (long long)o->exit_layer, (long long)o->exit_layer);
    rc = spec_draft_parse(&draft, o->draft, s->model, &pass, e);
    spec_draft_release(&draft);
    return rc;
}

int gen_check(const struct subject *s, const struct gen_options *o, struct err *e)
{
    struct pass pass = gen_pass(o, 0);
    if (o->routing == GEN_TOPK)
        return err_set(e, DS_EUSAGE,
                       "%srouting=topk depends on later tokens, which do not exist yet during "
                       "generation; use routing=causal or dense (eval and trace support topk)",
                       gen_speculates(o) ? "speculate: " : "");
    if (o->sampler == GEN_SAMPLER_LLAMA2C && (o->seed == 0 || o->top_k > 0 || o->min_p > 0))
        return err_set(e, DS_EUSAGE, "sampler=llama2c does not support %s",
                       o->seed == 0   ? "seed=0"
                       : o->top_k > 0 ? "top_k"
                                      : "min_p");
    int rc = route_ready(&s->model->route, &pass, e);
    if (rc == 0)
        rc = model_check_exit(s->model, o->exit_layer, e);
    return rc == 0 ? check_draft(s, o, e) : rc;
}

void gen_result_release(struct gen_result *r)
{
    ids_release(&r->ids);
    mem_free(r->depth);
    mem_free(r->logprob);
    mem_free(r->top);
    mem_free(r->n_top);
    mem_free(r->mark);
    str_release(&r->text);
    *r = (struct gen_result){0};
}

int gen_prompt(const struct subject *s, const char *text, size_t n, struct ids *out, struct err *e)
{
    int32_t first = tokenizer_bos(s->tokenizer) >= 0 ? tokenizer_bos(s->tokenizer)
                    : n == 0                         ? tokenizer_eot(s->tokenizer)
                                                     : -1;
    if (first >= 0 && ids_add(out, first) < 0)
        return err_set(e, DS_EMEM, "out of memory for the prompt");
    return n > 0 ? tokenizer_encode(s->tokenizer, text, n, 0, out, e) : 0;
}

/* ---- many texts ---- */

static int check_prompts(const struct gen_walk *w, const struct ids *prompt, size_t n,
                         size_t *longest, struct err *e)
{
    size_t context = (size_t)w->s->model->config.max_seq;
    *longest = 1;
    for (size_t k = 0; k < n; k++) {
        char which[32] = "";
        if (n > 1)
            snprintf(which, sizeof which, " %zu", k + 1);
        if (prompt[k].n == 0)
            return err_set(
                e, DS_EUSAGE,
                "prompt%s is empty and the tokenizer has no end-of-text token to start from",
                n > 1 ? which : "");
        if (prompt[k].n > context)
            return err_set(e, DS_ERANGE,
                           "prompt%s has %zu tokens, expected at most %zu, the model's context",
                           which, prompt[k].n, context);
        *longest = prompt[k].n > *longest ? prompt[k].n : *longest;
    }
    return gen_check(w->s, w->o, e);
}

/* Times decoding of the same tokens again, alternating dense and routed. */
static int measure_ratio(const struct gen_walk *w, struct gen_result *out, struct err *e)
{
    struct measure m = {.decode_ratio = (double)NAN};
    struct pass pass = gen_pass(w->o, w->o->seed < 0 ? 0 : (uint64_t)w->o->seed);
    int from = (int)out->n_prompt, made = (int)(out->ids.n - out->n_prompt);
    int n = made < TIMED_MAX ? made : TIMED_MAX;
    if (w->o->time_rounds == 0 || n < TIMED_MIN || out->stop == GEN_STOP_ASKED ||
        w->o->routing == GEN_DENSE || gen_speculates(w->o))
        return 0;
    int rc = measure_decode(&m, w->s->model, out->ids.v, from, from + n, (int)w->o->time_rounds,
                            &pass, e);
    out->time_ratio = m.decode_ratio;
    return rc;
}

/* Ends a text and frees its slot. */
static int finish(struct gen_walk *w, struct gen_seq *q, size_t n, struct err *e)
{
    struct gen_result *out = q->out;
    size_t k = q->k;
    int rc = gen_seq_end(w, q);
    gen_seq_release(q);
    if (rc == 0 && n == 1 && !gen_is_stopped(w))
        rc = measure_ratio(w, out, e);
    if (rc == 0 && w->watch && w->watch->done)
        rc = w->watch->done(w->watch->ctx, k, out);
    return rc < 0 ? rc : 0;
}

static size_t context_of(const struct gen_walk *w, const struct ids *prompt)
{
    size_t context = (size_t)w->s->model->config.max_seq;
    size_t cap = prompt->n + (size_t)w->o->max_tokens;
    return cap < context ? cap : context;
}

/* A text whose context has other rotary frequencies than those being decoded waits for their end. */
static int may_join(const struct gen_walk *w, const struct ids *prompt)
{
    const struct model_config *c = &w->s->model->config;
    int64_t is = model_config_rope_context(c, (int64_t)context_of(w, prompt));
    for (int i = 0; i < w->slots; i++)
        if (w->seq[i].out && model_config_rope_context(c, (int64_t)w->seq[i].cap) != is)
            return 0;
    return 1;
}

static int begin(struct gen_walk *w, struct gen_seq *q, struct gen_result *out, size_t k,
                 const struct ids *prompt, struct err *e)
{
    int rc = gen_seq_begin(w, q, k, out, context_of(w, prompt), e);
    return rc < 0 ? rc : gen_seq_feed(w, q, prompt, e);
}

/* Fills free slots with the next texts, then decodes one step for all.  When stopped, active texts
 * end as they are and no further text starts; the first text is always started, so that there is a
 * result. */
static int walk(struct gen_walk *w, struct gen_result *out, const struct ids *prompt, size_t n,
                struct err *e)
{
    size_t next = 0, left = n;
    int rc = 0, is_over = 0;
    while (left > 0 && rc == 0 && !is_over) {
        for (int i = 0; i < w->slots && next < n && rc == 0; i++)
            if (!w->seq[i].out && may_join(w, &prompt[next]) && (next == 0 || !gen_is_stopped(w))) {
                rc = begin(w, &w->seq[i], &out[next], next, &prompt[next], e);
                next++;
            }
        if (rc == 0)
            rc = gen_walk_feed(w, e);
        if (rc == 0 && !gen_is_stopped(w))
            rc = gen_walk_step(w, e);
        is_over =
            gen_is_stopped(w); /* asked once per step, so that all texts see the same answer */
        for (int i = 0; i < w->slots && rc == 0; i++)
            if (w->seq[i].out && (w->seq[i].is_done || is_over)) {
                rc = finish(w, &w->seq[i], n, e);
                left--;
            }
    }
    return rc;
}

int gen_run(struct gen_result *out, struct subject *s, const struct ids *prompt, size_t n,
            const struct gen_options *o, const struct gen_rules *rules,
            const struct gen_watch *watch, struct err *e)
{
    struct gen_walk w = {.s = s, .o = o, .rules = rules, .watch = watch};
    size_t longest, slots = (size_t)(o->batch > 0 && !gen_speculates(o) ? o->batch : 1);
    memset(out, 0, n * sizeof *out);
    int rc = check_prompts(&w, prompt, n, &longest, e);
    if (rc == 0)
        rc = gen_walk_init(&w, (int)(slots < n ? slots : n > 0 ? n : 1), longest, e);
    if (rc == 0)
        rc = walk(&w, out, prompt, n, e);
    gen_walk_release(&w);
    for (size_t k = 0; rc < 0 && k < n; k++)
        gen_result_release(&out[k]);
    return rc;
}

/* ---- speculative against ordinary ---- */

/* One of a pair; *speed (2, rounds): of speculative and ordinary decoding. */
static int decode_one(struct gen_result *r, struct subject *s, const struct ids *prompt,
                      const struct gen_options *o, const struct gen_rules *rules, int is_ordinary,
                      struct err *e)
{
    struct gen_options plain = *o;
    plain.logprobs = plain.time_rounds = 0;
    if (is_ordinary) {
        plain.speculate = plain.draft = NULL;
        plain.confidence = 0;
    }
    return gen_run(r, s, prompt, 1, &plain, rules, NULL, e);
}

static int is_same(const struct gen_result *a, const struct gen_result *b)
{
    return a->ids.n == b->ids.n && memcmp(a->ids.v, b->ids.v, a->ids.n * sizeof *a->ids.v) == 0;
}

int gen_compare(struct gen_pair *out, struct subject *s, const struct ids *prompt,
                const struct gen_options *o, const struct gen_rules *rules, int rounds,
                struct err *e)
{
    double speed[3][ROUNDS_MAX];
    int rc = 0, n = rounds < ROUNDS_MAX ? rounds : ROUNDS_MAX;
    *out = (struct gen_pair){.is_same = 1};
    for (int i = 0; i < n && rc == 0; i++) {
        struct gen_result r[2] = {{.n_prompt = 0}};
        for (int k = 0; k < 2 && rc == 0; k++) {
            int which = (i + k) % 2; /* drift of the machine affects both */
            rc = decode_one(&r[which], s, prompt, o, rules, which, e);
        }
        if (rc == 0) {
            speed[0][i] = r[0].tok_s;
            speed[1][i] = r[1].tok_s;
            speed[2][i] = r[0].tok_s / r[1].tok_s;
            out->flops_token = r[0].flops_token;
            out->ordinary_flops_token = r[1].flops_token;
            out->acceptance =
                r[0].drafted > 0 ? (double)r[0].accepted / (double)r[0].drafted : (double)NAN;
            out->is_same &= is_same(&r[0], &r[1]);
        }
        gen_result_release(&r[0]);
        gen_result_release(&r[1]);
    }
    if (rc < 0 || n == 0)
        return rc;
    out->tok_s = stat_median(speed[0], (size_t)n);
    out->ordinary_tok_s = stat_median(speed[1], (size_t)n);
    out->speedup = stat_median(speed[2], (size_t)n);
    return 0;
}

/* ---- chat ---- */

struct gen_chat {
    struct gen_walk walk;
    struct gen_result result;
    size_t cap;
};

int gen_chat_open(struct gen_chat **out, struct subject *s, const struct gen_options *o,
                  const struct gen_rules *rules, const struct gen_watch *watch, struct err *e)
{
    int rc = gen_check(s, o, e);
    if (rc < 0)
        return rc;
    struct gen_chat *t = mem_alloc(1, sizeof *t);
    if (!t)
        return err_set(e, DS_EMEM, "out of memory for a chat");
    t->walk = (struct gen_walk){.s = s, .o = o, .rules = rules, .watch = watch};
    t->cap = (size_t)s->model->config.max_seq;
    rc = gen_walk_init(&t->walk, 1, t->cap, e);
    if (rc == 0)
        rc = gen_seq_begin(&t->walk, &t->walk.seq[0], 0, &t->result, t->cap, e);
    if (rc < 0) {
        gen_chat_close(t);
        return rc;
    }
    *out = t;
    return 0;
}

/* Forgets all that was computed, not the ids. */
static void forget(struct gen_chat *t)
{
    struct gen_seq *q = &t->walk.seq[0];
    kv_cache_reset(q->cache);
    if (q->spec)
        spec_reset(q->spec);
    q->wasted = 0;
    memset(t->result.depth, 0, (t->cap + 1) * sizeof *t->result.depth);
    q->run = q->cells = q->flops = q->dense = 0;
}

/* Rotary frequencies that depend on the context are those for the tokens so far and an answer; with
 * others than before all is computed again. */
static void choose_context(struct gen_chat *t, size_t tokens)
{
    const struct model_config *c = &t->walk.s->model->config;
    struct kv_cache *cache = t->walk.seq[0].cache;
    size_t need = tokens + (size_t)t->walk.o->max_tokens;
    need = need < t->cap ? need : t->cap;
    if (model_config_rope_context(c, (int64_t)need) == model_config_rope_context(c, cache->context))
        return;
    cache->context = (int)need;
    forget(t);
}

int gen_chat_turn(struct gen_chat *t, const struct ids *more, struct gen_result **r, struct err *e)
{
    struct gen_seq *q = &t->walk.seq[0];
    if (t->result.ids.n + more->n > t->cap)
        return err_set(e, DS_ERANGE, "%zu more tokens after %zu exceed the model's context of %zu",
                       more->n, t->result.ids.n, t->cap);
    choose_context(t, t->result.ids.n + more->n);
    gen_text_reset(&q->text, &t->result.text);
    int rc = gen_seq_feed(&t->walk, q, more, e);
    if (rc == 0)
        rc = gen_walk_feed(&t->walk, e);
    q->begins = 1;
    while (rc == 0 && !q->is_done && !gen_is_stopped(&t->walk))
        rc = gen_walk_step(&t->walk, e);
    if (rc == 0)
        rc = gen_seq_end(&t->walk, q);
    if (rc == 0)
        *r = &t->result;
    return rc;
}

void gen_chat_reset(struct gen_chat *t)
{
    struct gen_seq *q = &t->walk.seq[0];
    forget(t);
    q->next = -1;
    q->mark = GEN_ORDINARY;
    t->result.ids.n = t->result.n_prompt = 0;
    q->state = q->seed;
    gen_text_reset(&q->text, &t->result.text);
}

void gen_chat_close(struct gen_chat *t)
{
    if (!t)
        return;
    gen_walk_release(&t->walk);
    gen_result_release(&t->result);
    mem_free(t);
}
