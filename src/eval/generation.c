/* Options, whole runs over many texts, and talks. */
#include "eval/generation.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "data/chat.h"
#include "generation_impl.h"
#include "models/measure.h"

enum { TIMED_MIN = 4, TIMED_MAX = 32, ROUNDS_MAX = 32 };

#define AT(field) offsetof(struct gen_options, field)
static const struct opt gen_opts[] = {
    // clang-format off
    {"temperature", OPT_REAL, AT(temperature), "0.8", 0, 100, NULL, "0 = always the most likely token", NULL},
    {"top_k",       OPT_INT,  AT(top_k),       "0",   0, 1 << 24, NULL, "only the k most likely; 0 = all", NULL},
    {"top_p",       OPT_REAL, AT(top_p),       "1",   1e-6, 1, NULL, "only the smallest set of tokens with this mass", NULL},
    {"sampler",     OPT_ENUM, AT(sampler),     "own", 0, 0, "own|llama2c", "how tokens are drawn; llama2c: with that program's numbers, for its published texts", NULL},
    {"max_tokens",  OPT_INT,  AT(max_tokens),  "256", 0, 1 << 24, NULL, "tokens to make", NULL},
    {"seed",        OPT_INT,  AT(seed),        "1",   0, 1e15, NULL, "the same seed gives the same text; of several texts the next ones have the next seeds", NULL},
    {"logprobs",    OPT_INT,  AT(logprobs),    "0",   0, GEN_LOGPROBS_MAX, NULL, "--json: log-probability of every token, and of the k most likely in its place", NULL},
    {"echo",        OPT_INT,  AT(echo),        "-1",  -1, 1, NULL, "the prompt before its text: 1 yes, with its log-probabilities; 0 no; -1 yes, not in --chat and --json", NULL},
    {"together",    OPT_INT,  AT(together),    "16",  1, DECODE_TOGETHER, NULL, "texts that are decoded at the same time", NULL},
    {"template",    OPT_ENUM, AT(template),    "auto", 0, 0, CHAT_CHOICES, "form of --chat; auto: as the model's own", NULL},
    {"routing",     OPT_ENUM, AT(routing),     "causal", 0, 0, "causal|topk|dense", "decisions of use, or everything runs (topk: of whole texts only, see eval and trace)", NULL},
    {"capacity",    OPT_REAL, AT(capacity),    "-1", 0, 0, NULL, "share of the routed cells to ask for, 0 to 1; -1 = the method's own", NULL},
    {"target_speedup", OPT_REAL, AT(target_speedup), "0", 0, 1e6, NULL, "look for the capacity with this speedup over dense on the run's held-out text; 0 = no", NULL},
    {"speedup_by",  OPT_ENUM, AT(speedup_by),  "flops", 0, 0, "flops|time", "what target_speedup counts: FLOPs of the whole model, or measured decoding", NULL},
    {"threshold_offset", OPT_REAL, AT(threshold_offset), "0", -100, 100, NULL, "added to every threshold (what-if), in standard deviations of the signal", NULL},
    {"time_rounds", OPT_INT,  AT(time_rounds), "3",   0, ROUNDS_MAX, NULL, "rounds of the timing against the dense model; 0 = not timed", NULL},
    {"threads",     OPT_INT,  AT(threads),     "0",   0, 4096, NULL, "0 = what affinity and quota allow", NULL},
    NUMBER_OPTS(AT(numbers)),
    // clang-format on
};
const struct opt_group gen_group = {
    .prefix = "", .title = "generation", .opts = gen_opts, .n = DS_LEN(gen_opts)};
const char *const gen_stop_name[] = {"length", "end of text", "context full", "stopped",
                                     "stop string"};

int gen_check(const struct subject *s, const struct gen_options *o, struct err *e)
{
    struct pass pass = gen_pass(o, o->routing == GEN_DENSE ? PASS_DENSE : PASS_SPARSE, 0);
    if (o->routing == GEN_TOPK)
        return err_set(e, DS_EUSAGE,
                       "routing=topk looks at later tokens, which are not there yet when text is "
                       "made (routing=causal or dense; eval and trace score whole texts by it)");
    if (o->sampler == GEN_SAMPLER_LLAMA2C && (o->seed == 0 || o->top_k > 0))
        return err_set(e, DS_EUSAGE, "sampler=llama2c knows no %s",
                       o->seed == 0 ? "seed=0" : "top_k");
    return route_ready(&s->model->route, &pass, e);
}

void gen_result_release(struct gen_result *r)
{
    ids_release(&r->ids);
    mem_free(r->depth);
    mem_free(r->logprob);
    mem_free(r->top);
    mem_free(r->n_top);
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
                "prompt%s is empty and the tokenizer has no end-of-text token to begin with",
                n > 1 ? which : "");
        if (prompt[k].n > context)
            return err_set(e, DS_ERANGE, "prompt%s has %zu tokens, the model's context holds %zu",
                           which, prompt[k].n, context);
        *longest = prompt[k].n > *longest ? prompt[k].n : *longest;
    }
    return gen_check(w->s, w->o, e);
}

/* The same tokens decoded again, logits each, dense and routed in turn. */
static int measure_ratio(const struct gen_walk *w, struct gen_result *out, struct err *e)
{
    struct measure m = {.decode_ratio = (double)NAN};
    struct pass pass = gen_pass(w->o, PASS_SPARSE, w->o->seed < 0 ? 0 : (uint64_t)w->o->seed);
    int from = (int)out->n_prompt, made = (int)(out->ids.n - out->n_prompt);
    int n = made < TIMED_MAX ? made : TIMED_MAX;
    if (w->o->time_rounds == 0 || n < TIMED_MIN || out->stop == GEN_STOP_ASKED ||
        w->o->routing == GEN_DENSE)
        return 0;
    int rc = measure_decode(&m, w->s->model, out->ids.v, from, from + n, (int)w->o->time_rounds,
                            &pass, e);
    out->time_ratio = m.decode_ratio;
    return rc;
}

/* A text leaves its slot. */
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

static int begin(struct gen_walk *w, struct gen_seq *q, struct gen_result *out, size_t k,
                 const struct ids *prompt, struct err *e)
{
    size_t context = (size_t)w->s->model->config.max_seq;
    size_t cap = prompt->n + (size_t)w->o->max_tokens;
    int rc = gen_seq_begin(w, q, k, out, cap < context ? cap : context, e);
    return rc < 0 ? rc : gen_seq_feed(w, q, prompt, e);
}

/* Slots that are free take the next texts; then everyone makes a step.  When that is stopped, all that is on its way ends
 * as it is, and nothing follows; the first text is begun in any case, so that there is something to tell. */
static int walk(struct gen_walk *w, struct gen_result *out, const struct ids *prompt, size_t n,
                struct err *e)
{
    size_t next = 0, left = n;
    int rc = 0, is_over = 0;
    while (left > 0 && rc == 0 && !is_over) {
        for (int i = 0; i < w->slots && next < n && rc == 0; i++)
            if (!w->seq[i].out && (next == 0 || !gen_is_stopped(w))) {
                rc = begin(w, &w->seq[i], &out[next], next, &prompt[next], e);
                next++;
            }
        if (rc == 0 && !gen_is_stopped(w))
            rc = gen_walk_step(w, e);
        is_over = gen_is_stopped(w); /* asked once: what it ends here is what it ends at all */
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
    size_t longest, slots = (size_t)(o->together > 0 ? o->together : 1);
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

/* ---- one text by turns ---- */

struct gen_talk {
    struct gen_walk walk;
    struct gen_result result;
    size_t cap;
};

int gen_talk_open(struct gen_talk **out, struct subject *s, const struct gen_options *o,
                  const struct gen_rules *rules, const struct gen_watch *watch, struct err *e)
{
    int rc = gen_check(s, o, e);
    if (rc < 0)
        return rc;
    struct gen_talk *t = mem_alloc(1, sizeof *t);
    if (!t)
        return err_set(e, DS_EMEM, "out of memory for a chat");
    t->walk = (struct gen_walk){.s = s, .o = o, .rules = rules, .watch = watch};
    t->cap = (size_t)s->model->config.max_seq;
    rc = gen_walk_init(&t->walk, 1, t->cap, e);
    if (rc == 0)
        rc = gen_seq_begin(&t->walk, &t->walk.seq[0], 0, &t->result, t->cap, e);
    if (rc < 0) {
        gen_talk_close(t);
        return rc;
    }
    *out = t;
    return 0;
}

int gen_talk_turn(struct gen_talk *t, const struct ids *more, struct gen_result **r, struct err *e)
{
    struct gen_seq *q = &t->walk.seq[0];
    if (t->result.ids.n + more->n > t->cap)
        return err_set(
            e, DS_ERANGE,
            "%zu tokens more and the %zu so far do not fit into the model's context of %zu",
            more->n, t->result.ids.n, t->cap);
    gen_text_reset(&q->text, &t->result.text);
    int rc = gen_seq_feed(&t->walk, q, more, e);
    q->begins = 1;
    while (rc == 0 && !q->is_done && !gen_is_stopped(&t->walk))
        rc = gen_walk_step(&t->walk, e);
    if (rc == 0)
        rc = gen_seq_end(&t->walk, q);
    if (rc == 0)
        *r = &t->result;
    return rc;
}

void gen_talk_reset(struct gen_talk *t)
{
    struct gen_seq *q = &t->walk.seq[0];
    kv_cache_reset(q->cache);
    memset(t->result.depth, 0, (t->cap + 1) * sizeof *t->result.depth);
    t->result.ids.n = t->result.n_prompt = 0;
    q->run = q->cells = q->flops = q->dense = 0;
    q->state = q->seed;
    gen_text_reset(&q->text, &t->result.text);
}

void gen_talk_close(struct gen_talk *t)
{
    if (!t)
        return;
    gen_walk_release(&t->walk);
    gen_result_release(&t->result);
    mem_free(t);
}
