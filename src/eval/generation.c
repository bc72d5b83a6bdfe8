#include "eval/generation.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "models/measure.h"
#include "models/sample.h"

enum { CHUNK = 256, TIMED_MIN = 4, TIMED_MAX = 32, ROUNDS_MAX = 32 };

#define AT(field) offsetof(struct gen_options, field)
static const struct opt gen_opts[] = {
    // clang-format off
    {"temperature", OPT_REAL, AT(temperature), "0.8", 0, 100, NULL, "0 = always the most likely token", NULL},
    {"top_k",       OPT_INT,  AT(top_k),       "0",   0, 1 << 24, NULL, "only the k most likely; 0 = all", NULL},
    {"top_p",       OPT_REAL, AT(top_p),       "1",   1e-6, 1, NULL, "only the smallest set of tokens with this mass", NULL},
    {"max_tokens",  OPT_INT,  AT(max_tokens),  "200", 0, 1 << 24, NULL, "tokens to make", NULL},
    {"seed",        OPT_INT,  AT(seed),        "1",   0, 1e15, NULL, "the same seed gives the same text", NULL},
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
const char *const gen_stop_name[] = {"length", "end of text", "context full", "stopped"};

/* One text on its way: the cache, what it cost so far. */
struct walk {
    struct subject *s;
    struct kv_cache *cache;
    struct sampler sampler;
    real *logits;
    const struct gen_options *o;
    struct gen_result *out;
    gen_token_fn *each;
    void *ctx;
    double run, cells, flops, dense;
};

static struct pass pass_of(const struct gen_options *o, enum pass_kind kind)
{
    return (struct pass){.kind = kind,
                         .seed = o->seed < 0 ? 0 : (uint64_t)o->seed,
                         .offset = o->threshold_offset,
                         .has_capacity = o->capacity != -1,
                         .capacity = o->capacity};
}

static enum pass_kind kind_of(const struct gen_options *o)
{
    return o->routing == GEN_DENSE ? PASS_DENSE : PASS_SPARSE;
}

int gen_check(const struct subject *s, const struct gen_options *o, struct err *e)
{
    struct pass pass = pass_of(o, kind_of(o));
    if (o->routing == GEN_TOPK)
        return err_set(e, DS_EUSAGE,
                       "routing=topk looks at later tokens, which are not there yet when text is "
                       "made (routing=causal or dense; eval and trace score whole texts by it)");
    return route_ready(&s->model->route, &pass, e);
}

static int feed(struct walk *w, const int32_t *id, int n, enum pass_kind kind, struct err *e)
{
    struct pass pass = pass_of(w->o, kind);
    return model_decode(w->s->model, w->cache, id, n, &pass, e);
}

/* Feeds ids and keeps what the plans say of each; hands every token on. 1 = the caller's callback wants to stop. */
static int feed_counted(struct walk *w, const int32_t *id, size_t at, int n, struct err *e)
{
    struct model *m = w->s->model;
    int rc = feed(w, id + at, n, kind_of(w->o), e), stop = 0;
    if (rc < 0)
        return rc;
    for (int l = 0; l < m->config.layers; l++)
        for (int i = 0; i < model_plan(m, l)->n; i++)
            w->out->depth[at + (size_t)model_plan(m, l)->row[i]] += model_plan(m, l)->gate[i] != 0;
    w->run += (double)m->flops.rows_run;
    w->cells += (double)m->flops.rows;
    w->flops += flops_total(&m->flops);
    w->dense += m->flops.dense;
    for (int i = 0; i < n && w->each && !stop; i++) {
        size_t t = at + (size_t)i;
        stop = w->each(w->ctx, t < w->out->n_prompt, id[t], w->out->depth[t]);
    }
    return stop != 0;
}

static int feed_prompt(struct walk *w, struct err *e)
{
    const int32_t *id = w->out->ids.v;
    size_t n = w->out->n_prompt;
    int rc = 0;
    for (size_t at = 0; at < n && rc == 0; at += CHUNK) {
        int k = (int)(n - at < CHUNK ? n - at : CHUNK);
        rc = feed_counted(w, id, at, k, e);
    }
    return rc;
}

/* Sampling and feeding in turn until something ends it. */
static int continue_text(struct walk *w, size_t cap, struct err *e)
{
    struct gen_result *out = w->out;
    struct sample_options so = {.temperature = w->o->temperature,
                                .top_k = (int)w->o->top_k,
                                .top_p = w->o->top_p,
                                .seed = (uint64_t)w->o->seed};
    int32_t eot = tokenizer_eot(w->s->tokenizer), id;
    for (int64_t made = 0;; made++) {
        struct model *m = w->s->model;
        if (made == w->o->max_tokens || out->ids.n >= cap) {
            out->stop = made == w->o->max_tokens ? GEN_STOP_LENGTH : GEN_STOP_CONTEXT;
            return 0;
        }
        model_logits(m, m->R - 1, w->logits);
        int rc = sampler_pick(&w->sampler, w->logits, &so, out->ids.n, &id, NULL, e);
        if (rc < 0)
            return rc;
        if (id == eot) {
            out->stop = GEN_STOP_EOT;
            return 0;
        }
        rc = ids_add(&out->ids, id) < 0 ? err_set(e, DS_EMEM, "text")
                                        : feed_counted(w, out->ids.v, out->ids.n - 1, 1, e);
        if (rc != 0) {
            out->stop = GEN_STOP_ASKED;
            return rc < 0 ? rc : 0;
        }
    }
}

/* The same tokens decoded again, logits each, dense and routed in turn. */
static int measure_ratio(struct walk *w, struct err *e)
{
    struct measure m = {.decode_ratio = (double)NAN};
    struct pass pass = pass_of(w->o, PASS_SPARSE);
    int from = (int)w->out->n_prompt, made = (int)(w->out->ids.n - w->out->n_prompt);
    int n = made < TIMED_MAX ? made : TIMED_MAX;
    if (w->o->time_rounds == 0 || n < TIMED_MIN)
        return 0;
    int rc = measure_decode(&m, w->s->model, w->out->ids.v, from, from + n, (int)w->o->time_rounds,
                            &pass, e);
    w->out->time_ratio = m.decode_ratio;
    return rc;
}

static int prepare(struct walk *w, const struct ids *prompt, size_t cap, struct err *e)
{
    struct model *m = w->s->model;
    int rows = (int)(prompt->n < CHUNK ? prompt->n : CHUNK);
    w->logits = mem_alloc((size_t)m->config.vocab, sizeof *w->logits);
    w->out->depth = mem_alloc(cap + 1, sizeof *w->out->depth);
    if (!w->logits || !w->out->depth)
        return err_set(e, DS_EMEM, "generation of %zu tokens", cap);
    for (size_t i = 0; i < prompt->n; i++)
        if (ids_add(&w->out->ids, prompt->v[i]) < 0)
            return err_set(e, DS_EMEM, "prompt");
    int rc = sampler_init(&w->sampler, (int)m->config.vocab, e);
    if (rc == 0)
        rc = model_reserve(m, rows, 0, 0, e);
    return rc == 0 ? kv_cache_new(&w->cache, m, (int)cap, e) : rc;
}

int gen_run(struct gen_result *out, struct subject *s, const struct ids *prompt,
            const struct gen_options *o, gen_token_fn *each, void *ctx, struct err *e)
{
    struct walk w = {.s = s, .o = o, .out = out, .each = each, .ctx = ctx};
    size_t context = (size_t)s->model->config.max_seq, cap = prompt->n + (size_t)o->max_tokens;
    memset(out, 0, sizeof *out);
    out->n_prompt = prompt->n;
    out->time_ratio = out->tok_s = (double)NAN;
    if (prompt->n == 0)
        return err_set(
            e, DS_EUSAGE,
            "the prompt is empty and the tokenizer has no end-of-text token to begin with");
    if (prompt->n > context)
        return err_set(e, DS_ERANGE, "the prompt has %zu tokens, the model's context holds %zu",
                       prompt->n, context);
    cap = cap < context ? cap : context;
    int rc = gen_check(s, o, e);
    if (rc < 0)
        return rc;
    rc = prepare(&w, prompt, cap, e);
    if (rc == 0)
        rc = feed_prompt(&w, e);
    double t = clock_mono();
    if (rc == 0)
        rc = continue_text(&w, cap, e);
    else if (rc > 0)
        out->stop = GEN_STOP_ASKED;
    if (rc >= 0) {
        double seconds = clock_mono() - t;
        out->tok_s = seconds > 0 ? (double)(out->ids.n - out->n_prompt) / seconds : (double)NAN;
        out->block_ratio = w.cells > 0 ? w.run / w.cells : 1;
        out->flops_ratio = w.dense > 0 ? w.flops / w.dense : 1;
        rc = out->stop == GEN_STOP_ASKED || o->routing == GEN_DENSE ? 0 : measure_ratio(&w, e);
    }
    sampler_release(&w.sampler);
    kv_cache_free(w.cache);
    mem_free(w.logits);
    if (rc < 0)
        gen_result_release(out);
    return rc;
}

void gen_result_release(struct gen_result *r)
{
    ids_release(&r->ids);
    mem_free(r->depth);
    r->depth = NULL;
}

int gen_prompt(const struct subject *s, const char *text, size_t n, struct ids *out, struct err *e)
{
    int32_t first = tokenizer_bos(s->tokenizer) >= 0 ? tokenizer_bos(s->tokenizer)
                    : n == 0                         ? tokenizer_eot(s->tokenizer)
                                                     : -1;
    if (first >= 0 && ids_add(out, first) < 0)
        return err_set(e, DS_EMEM, "prompt");
    return n > 0 ? tokenizer_encode(s->tokenizer, text, n, 0, out, e) : 0;
}
