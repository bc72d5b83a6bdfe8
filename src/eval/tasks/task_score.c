/* Scores continuations, greedy texts and whole texts with a shared KV-cache prefix. */
#include "eval/tasks/task_score.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum {
    CHUNK = 256,
    SHARED_MIN = 32,  /* a shorter prefix is not worth sharing */
    SHARED_JOINT = 4, /* tokenization of the last ones depends on what follows */
};

/* A position in the KV cache to rewind to. */
struct mark {
    int len, *keys; /* (L) */
    void *memory;
};

struct scorer {
    struct subject *s;
    struct task_options o;
    struct kv_cache *cache;
    struct mark mark;
    int max, depth[CHUNK]; /* tokens per chunk; executed layers per row of the last chunk */
    real *logits, *first;  /* (V) of a row; after the mark */
    double first_sum;      /* logsumexp(first) */
    int32_t first_best;
    int first_depth;
    int32_t target[CHUNK];
    struct ids prompt, whole, line;

    struct ids shared;      /* common prefix of several prompts */
    struct mark shared_end; /* after shared_n of these, when shared_n > 0 */
    size_t shared_n;
    struct task_cost shared_cost;
};

static int mark_new(struct mark *x, const struct kv_cache *c, struct err *e)
{
    x->keys = mem_alloc((size_t)c->L, sizeof *x->keys);
    x->memory = mem_alloc(1, c->memory_bytes);
    return x->keys && x->memory ? 0 : err_set(e, DS_EMEM, "out of memory for the evaluation");
}

static void mark_free(struct mark *x)
{
    mem_free(x->keys);
    mem_free(x->memory);
}

int scorer_open(struct scorer **out, struct subject *s, const struct task_options *o, struct err *e)
{
    struct model *m = s->model;
    struct pass pass = {.kind = o->is_dense ? PASS_DENSE : PASS_SPARSE,
                        .inference.has_capacity = o->capacity != -1,
                        .inference.capacity = o->capacity};
    if (o->seq > m->config.max_seq)
        return err_set(e, DS_ERANGE, "seq=%lld: must be at most %lld, the model's context",
                       (long long)o->seq, (long long)m->config.max_seq);
    int rc = route_ready(&m->route, &pass, e);
    if (rc < 0)
        return rc;
    struct scorer *c = mem_alloc(1, sizeof *c);
    if (!c)
        return err_set(e, DS_EMEM, "out of memory for the evaluation");
    c->s = s;
    c->o = *o;
    c->max = (int)(o->seq ? o->seq : m->config.max_seq);
    rc = kv_cache_new(&c->cache, m, c->max, e);
    if (rc == 0)
        rc = model_reserve(m, c->max < CHUNK ? c->max : CHUNK, 0, 0, e);
    c->logits = mem_alloc((size_t)m->config.vocab, sizeof *c->logits);
    c->first = mem_alloc((size_t)m->config.vocab, sizeof *c->first);
    if (rc == 0)
        rc = mark_new(&c->mark, c->cache, e);
    if (rc == 0)
        rc = mark_new(&c->shared_end, c->cache, e);
    if (rc == 0 && !(c->logits && c->first))
        rc = err_set(e, DS_EMEM, "out of memory for the evaluation");
    if (rc < 0)
        scorer_close(c);
    else
        *out = c;
    return rc;
}

void scorer_close(struct scorer *s)
{
    if (!s)
        return;
    kv_cache_free(s->cache);
    mem_free(s->logits);
    mem_free(s->first);
    mark_free(&s->mark);
    mark_free(&s->shared_end);
    ids_release(&s->shared);
    ids_release(&s->prompt);
    ids_release(&s->whole);
    ids_release(&s->line);
    mem_free(s);
}

/* ---- one piece of a sequence ---- */

static void mark_set(struct mark *x, const struct kv_cache *c)
{
    x->len = c->len;
    for (int l = 0; l < c->L; l++)
        x->keys[l] = c->layer[l].n;
    if (c->memory)
        memcpy(x->memory, c->memory, c->memory_bytes);
}

/* Keys are in order: those after the mark are overwritten. */
static void mark_return(const struct mark *x, struct kv_cache *c)
{
    c->len = x->len;
    for (int l = 0; l < c->L; l++)
        c->layer[l].n = x->keys[l];
    if (c->memory)
        memcpy(c->memory, x->memory, c->memory_bytes);
}

/* Feeds at most CHUNK ids; the only place that adds up what their plans executed. */
static int feed(struct scorer *s, const int32_t *id, int n, struct task_cost *cost, struct err *e)
{
    struct model *m = s->s->model;
    struct pass pass = {.kind = s->o.is_dense ? PASS_DENSE : PASS_SPARSE,
                        .seed = s->o.seed,
                        .inference.offset = s->o.threshold_offset,
                        .inference.has_capacity = s->o.capacity != -1,
                        .inference.capacity = s->o.capacity};
    int rc = model_decode(m, s->cache, id, n, &pass, e);
    if (rc < 0)
        return rc;
    memset(s->depth, 0, sizeof s->depth);
    for (int l = 0; l < model_config_depth(&m->config); l++) {
        const struct plan *p = model_plan(m, l);
        for (int i = 0; i < p->n; i++)
            s->depth[p->row[i]] += p->gate[i] != 0;
    }
    for (int i = 0; i < n; i++)
        cost->run += s->depth[i];
    cost->cells += (double)n * (double)model_config_depth(&m->config);
    cost->flops += flops_total(&m->flops);
    cost->dense += m->flops.dense;
    cost->tokens += n;
    return 0;
}

static int32_t most_likely(const struct scorer *s, const real *logits)
{
    int64_t best = 0;
    for (int64_t v = 1; v < s->s->model->config.vocab; v++)
        best = logits[v] > logits[best] ? v : best;
    return (int32_t)best;
}

/* logsumexp over the vocabulary, and the argmax. */
static double log_sum(const struct scorer *s, const real *logits, int32_t *best)
{
    int64_t V = s->s->model->config.vocab;
    double sum = 0;
    *best = most_likely(s, logits);
    for (int64_t v = 0; v < V; v++)
        sum += exp((double)logits[v] - (double)logits[*best]);
    return (double)logits[*best] + log(sum);
}

static int damaged(const struct scorer *s, double ll, struct err *e)
{
    return ll < 1 && ll > -1e30 /* rounding may put it above 0 */
               ? 0
               : err_set(e, DS_ENUMERIC, "%s: log-probability is %g: corrupt model weights",
                         s->s->dir, ll);
}

/* Appends any number of ids; *last: rows of the last chunk. */
static int feed_all(struct scorer *s, const int32_t *id, size_t n, int *last,
                    struct task_cost *cost, struct err *e)
{
    int rc = 0;
    for (size_t at = 0; at < n && rc == 0; at += (size_t)*last) {
        *last = (int)(n - at < CHUNK ? n - at : CHUNK);
        rc = feed(s, id + at, *last, cost, e);
    }
    return rc;
}

/* Number of ids that belong to the shared prefix: all but its last few, or none.  Independent of
 * what was scored before, so that chunks, and with them rounding, are the same in every run. */
static size_t shared_of(const struct scorer *s, const int32_t *id, size_t n)
{
    size_t c = s->shared.n > SHARED_JOINT ? s->shared.n - SHARED_JOINT : 0;
    return c >= SHARED_MIN && c < n && memcmp(id, s->shared.v, c * sizeof *id) == 0 ? c : 0;
}

/* Rewinds the cache to the end of the shared ids.  Their cost is counted for every prompt that uses
 * them. */
static int start_shared(struct scorer *s, size_t n, struct task_cost *cost, struct err *e)
{
    int rc = 0, last;
    if (n > 0 && s->shared_n == n)
        mark_return(&s->shared_end, s->cache);
    else {
        kv_cache_reset(s->cache);
        s->shared_n = 0;
        s->shared_cost = (struct task_cost){0};
        rc = feed_all(s, s->shared.v, n, &last, &s->shared_cost, e);
        mark_set(&s->shared_end, s->cache);
    }
    if (rc < 0)
        return rc;
    s->shared_n = n;
    task_cost_add(cost, &s->shared_cost);
    return 0;
}

/* Feeds ids to an empty cache; sets s->first to the logits after the last one, and the mark. */
static int start(struct scorer *s, const int32_t *id, size_t n, struct task_cost *cost,
                 struct err *e)
{
    size_t c = shared_of(s, id, n);
    int last = 0;
    int rc = start_shared(s, c, cost, e);
    if (rc == 0)
        rc = feed_all(s, id + c, n - c, &last, cost, e);
    if (rc < 0)
        return rc;
    model_logits(s->s->model, last - 1, s->first);
    s->first_sum = log_sum(s, s->first, &s->first_best);
    s->first_depth = s->depth[last - 1];
    mark_set(&s->mark, s->cache);
    return 0;
}

/* Sum of log-probabilities of s->target over the k rows fed last. */
static double log_probs(struct scorer *s, const int32_t *id, int k)
{
    struct model *m = s->s->model;
    struct batch b = {.B = 1, .T = k, .id = id, .target = s->target};
    double ll = 0;
    m->batch = &b;
    model_loss(m, 0, 0);
    m->batch = NULL;
    for (int i = 0; i < k; i++)
        ll -= s->target[i] >= 0 ? (double)m->nll[i] : 0;
    return ll;
}

/* 1 when each target is the most likely token; stops at the first that is not. */
static int are_best(struct scorer *s, int k)
{
    int32_t best;
    for (int i = 0; i < k; i++) {
        model_logits(s->s->model, i, s->logits);
        best = most_likely(s, s->logits);
        if (best != s->target[i])
            return 0;
    }
    return 1;
}

/* Scores n ids from the mark; the last one is only predicted, not fed. */
static int continuation(struct scorer *s, const int32_t *id, size_t n, double *ll, int *greedy,
                        struct task_cost *cost, struct err *e)
{
    int rc = 0;
    *ll = (double)s->first[id[0]] - s->first_sum;
    *greedy = id[0] == s->first_best;
    cost->scored += (double)n;
    cost->scored_depth += s->first_depth;
    mark_return(&s->mark, s->cache);
    for (size_t at = 0; at + 1 < n && rc == 0;) {
        int k = (int)(n - 1 - at < CHUNK ? n - 1 - at : CHUNK);
        rc = feed(s, id + at, k, cost, e);
        if (rc < 0)
            break;
        for (int i = 0; i < k; i++)
            cost->scored_depth += s->depth[i];
        memcpy(s->target, id + at + 1, (size_t)k * sizeof *id);
        *ll += log_probs(s, id + at, k);
        *greedy = *greedy && are_best(s, k);
        at += (size_t)k;
    }
    return rc == 0 ? damaged(s, *ll, e) : rc;
}

/* ---- texts ---- */

static int32_t prefix_of(const struct scorer *s)
{
    const struct tokenizer *t = s->s->tokenizer;
    return tokenizer_bos(t) >= 0 ? tokenizer_bos(t) : tokenizer_eot(t);
}

/* Encodes with the tokenizer's prefix; an empty text gives the prefix alone. */
static int encode(struct scorer *s, const char *text, size_t n, struct ids *out, struct err *e)
{
    out->n = 0;
    int32_t bos = n > 0 ? tokenizer_bos(s->s->tokenizer) : prefix_of(s);
    if (n == 0 && bos < 0)
        return err_set(e, DS_EUSAGE,
                       "the prompt is empty and the tokenizer has no beginning-of-text token");
    if (bos >= 0 && ids_add(out, bos) < 0)
        return err_set(e, DS_EMEM, "out of memory for a prompt");
    return n > 0 ? tokenizer_encode(s->s->tokenizer, text, n, 0, out, e) : 0;
}

/* Length of the prompt without trailing white space, which moves to the continuation; all-blank
 * prompts are kept. */
static size_t prompt_end(const char *prompt)
{
    size_t from = 0, end = strlen(prompt);
    task_strip(prompt, &from, &end);
    return from == end ? strlen(prompt) : end;
}

/* Encodes prompt + text into s->whole and the prompt into s->prompt; the continuation's ids are the
 * surplus, from *from on in s->whole. */
static int encode_pair(struct scorer *s, const char *prompt, const char *text, size_t *from,
                       struct err *e)
{
    struct str all = {0};
    str_addf(&all, "%s%s", prompt, text);
    int rc = all.failed ? err_set(e, DS_EMEM, "out of memory for a prompt")
                        : encode(s, str_text(&all), all.len, &s->whole, e);
    *from = prompt[0] || tokenizer_bos(s->s->tokenizer) >= 0 ? s->prompt.n : 0;
    if (rc == 0 && s->whole.n <= *from)
        rc = err_set(e, DS_ERANGE, "choice \"%.40s\" adds no tokens to the prompt", text);
    str_release(&all);
    return rc;
}

/* Truncates the prompt on the left so that it and n ids, except the last, fit. */
static int cut(const struct scorer *s, size_t n, size_t *from, struct err *e)
{
    size_t all = s->prompt.n + n - 1, max = (size_t)s->max;
    if (n > max)
        return err_set(e, DS_ERANGE, "a choice has %zu tokens, must be at most %zu", n, max);
    *from = all > max ? all - max : 0;
    return 0;
}

int scorer_share(struct scorer *s, const char *text, struct err *e)
{
    s->shared_n = 0;
    s->shared.n = 0;
    return text[0] ? encode(s, text, strlen(text), &s->shared, e) : 0;
}

int scorer_choices(struct scorer *s, const char *prompt, const struct task_doc *d,
                   struct task_answer *a, struct task_cost *cost, struct err *e)
{
    size_t started = SIZE_MAX, from = 0, at = 0;
    int rc = encode(s, prompt, prompt_end(prompt), &s->prompt, e);
    for (int k = 0; k < d->choices && rc == 0; k++) {
        struct str text = {0};
        str_addf(&text, " %s", d->choice[k]);
        rc = text.failed ? err_set(e, DS_EMEM, "out of memory for a choice")
                         : encode_pair(s, prompt, str_text(&text), &from, e);
        str_release(&text);
        if (rc == 0)
            rc = cut(s, s->whole.n - from, &at, e);
        if (rc == 0 && at != started)
            rc = start(s, s->prompt.v + at, s->prompt.n - at, cost, e);
        started = at;
        if (rc == 0)
            rc = continuation(s, s->whole.v + from, s->whole.n - from, &a->ll[k], &a->greedy[k],
                              cost, e);
    }
    return rc;
}

/* Byte offset of the first stop string, or SIZE_MAX.  The text of the end-of-text token is one too,
 * as in lm-evaluation-harness: a model may spell it with other tokens. */
static size_t stop_at(const struct scorer *s, const char *text, const char *const *until)
{
    const struct tokenizer *t = s->s->tokenizer;
    size_t first = SIZE_MAX, n = 0;
    const char *end = tokenizer_piece(t, tokenizer_eot(t), &n), *hit = NULL;
    for (const char *p = text; n > 0 && *p && !hit; p++)
        hit = strncmp(p, end, n) == 0 ? p : NULL;
    if (hit)
        first = (size_t)(hit - text);
    for (; *until; until++) {
        hit = strstr(text, *until);
        if (hit && (size_t)(hit - text) < first)
            first = (size_t)(hit - text);
    }
    return first;
}

/* lm-evaluation-harness stops at the tokenizer's end of text as well as at the model's ids. */
static int is_end(const struct scorer *s, int32_t id)
{
    return id == tokenizer_eot(s->s->tokenizer) || subject_is_end(s->s, id);
}

static int text_on(struct scorer *s, const char *const *until, struct str *out,
                   struct task_cost *cost, struct err *e)
{
    int rc = 0;
    s->line.n = 0;
    for (int64_t made = 0; made < s->o.max_gen && rc == 0; made++) {
        const real *logits = made ? s->logits : s->first;
        int32_t id;
        double sum = log_sum(s, logits, &id);
        rc = damaged(s, (double)logits[id] - sum, e);
        if (rc < 0 || is_end(s, id))
            break;
        cost->scored++;
        cost->scored_depth += made ? s->depth[0] : s->first_depth;
        if (ids_add(&s->line, id) < 0)
            return err_set(e, DS_EMEM, "out of memory for a text");
        str_reset(out);
        tokenizer_decode(s->s->tokenizer, s->line.v, s->line.n, out);
        if (stop_at(s, str_text(out), until) != SIZE_MAX || made + 1 == s->o.max_gen)
            break;
        rc = feed(s, &id, 1, cost, e);
        model_logits(s->s->model, 0, s->logits);
    }
    return rc;
}

int scorer_text(struct scorer *s, const char *prompt, const char *const *until, struct str *out,
                struct task_cost *cost, struct err *e)
{
    if (s->o.max_gen >= s->max)
        return err_set(e, DS_ERANGE,
                       "max_gen=%lld leaves no room for a prompt: the model's context is %d tokens",
                       (long long)s->o.max_gen, s->max);
    size_t room = (size_t)(s->max - s->o.max_gen);
    str_reset(out);
    int rc = encode(s, prompt, strlen(prompt), &s->prompt, e);
    size_t from = rc == 0 && s->prompt.n > room ? s->prompt.n - room : 0;
    if (rc == 0)
        rc = start(s, s->prompt.v + from, s->prompt.n - from, cost, e);
    if (rc == 0)
        rc = text_on(s, until, out, cost, e);
    size_t end = stop_at(s, str_text(out), until);
    if (rc == 0 && end != SIZE_MAX) {
        out->len = end;
        out->p[end] = '\0';
    }
    return rc == 0 && out->failed ? err_set(e, DS_EMEM, "out of memory for a text") : rc;
}

/* ---- whole texts ---- */

/* Sums the log-probabilities of n ids after `context` ids, which are only fed. */
static int window(struct scorer *s, const int32_t *id, size_t context, size_t n, double *ll,
                  struct task_cost *cost, struct err *e)
{
    size_t inputs = context + n - 1;
    int rc = 0;
    kv_cache_reset(s->cache);
    s->shared_n = 0;
    for (size_t at = 0; at < inputs && rc == 0;) {
        int k = (int)(inputs - at < CHUNK ? inputs - at : CHUNK);
        rc = feed(s, id + at, k, cost, e);
        for (int i = 0; i < k && rc == 0; i++) {
            int is_scored = at + (size_t)i + 1 >= context;
            s->target[i] = is_scored ? id[at + (size_t)i + 1] : -1;
            cost->scored += is_scored;
            cost->scored_depth += is_scored ? s->depth[i] : 0;
        }
        if (rc < 0)
            break;
        *ll += log_probs(s, id + at, k);
        at += (size_t)k;
    }
    return rc == 0 ? damaged(s, *ll, e) : rc;
}

/* s->whole: the prefix, then the text.  Windows predict `max` tokens each; the first sees the
 * prefix, later ones the token before them, and the last, shorter one as much context as fits. */
int scorer_rolling(struct scorer *s, const char *text, double *ll, struct task_cost *cost,
                   struct err *e)
{
    size_t max = (size_t)s->max;
    int32_t prefix = prefix_of(s);
    s->whole.n = 0;
    *ll = 0;
    if (prefix < 0)
        return err_set(e, DS_EUSAGE, "the tokenizer has no beginning-of-text token");
    int rc = ids_add(&s->whole, prefix) < 0 ? err_set(e, DS_EMEM, "out of memory for a text")
             : text[0] ? tokenizer_encode(s->s->tokenizer, text, strlen(text), 0, &s->whole, e)
                       : 0;
    size_t all = rc == 0 ? s->whole.n - 1 : 0;
    for (size_t done = 0; done < all && rc == 0;) {
        size_t n = all - done < max ? all - done : max;
        size_t context = done == 0 ? 1 : max - n + 1;
        /* token i of the text is whole[1 + i] */
        rc = window(s, s->whole.v + 1 + done - context, context, n, ll, cost, e);
        done += n;
    }
    return rc;
}

int scorer_fingerprint(struct scorer *s, char out[64], struct err *e)
{
    enum { IDS = 24 };
    int32_t id[IDS];
    double ll = 0;
    struct task_cost cost = {0};
    size_t n = (size_t)(s->max < IDS ? s->max : IDS);
    for (size_t i = 0; i < n; i++)
        id[i] =
            (int32_t)((uint64_t)(i * i * 7919 + i * 31 + 5) % (uint64_t)s->s->model->config.vocab);
    int rc = n > 1 ? window(s, id, 1, n - 1, &ll, &cost, e) : 0;
    snprintf(out, 64, "%.5g of %.0f cells", ll, cost.run);
    return rc;
}
