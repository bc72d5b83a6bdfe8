#include "eval/task_score.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { CHUNK = 256 };

/* A place in a sequence to come back to. */
struct mark {
    int len, *keys; /* (L) */
    void *memory;
};

struct scorer {
    struct subject *s;
    struct task_options o;
    struct kv_cache *cache;
    struct mark mark;
    int max, depth[CHUNK]; /* tokens at once; layers that ran, by row of the last piece */
    real *logits, *first;  /* (V) of a row; behind the mark */
    int first_depth;
    int32_t target[CHUNK];
    struct ids prompt, whole, line;
};

int scorer_open(struct scorer **out, struct subject *s, const struct task_options *o, struct err *e)
{
    struct model *m = s->model;
    struct pass use = {.kind = o->is_dense ? PASS_DENSE : PASS_SPARSE,
                       .has_capacity = o->capacity != -1,
                       .capacity = o->capacity};
    if (o->seq > m->config.max_seq)
        return err_set(e, DS_ERANGE, "seq=%lld: the model's context holds %lld tokens",
                       (long long)o->seq, (long long)m->config.max_seq);
    int rc = route_ready(&m->route, &use, e);
    if (rc < 0)
        return rc;
    struct scorer *c = mem_alloc(1, sizeof *c);
    if (!c)
        return err_set(e, DS_EMEM, "evaluation");
    c->s = s;
    c->o = *o;
    c->max = (int)(o->seq ? o->seq : m->config.max_seq);
    rc = kv_cache_new(&c->cache, m, c->max, e);
    if (rc == 0)
        rc = model_reserve(m, c->max < CHUNK ? c->max : CHUNK, 0, 0, e);
    c->logits = mem_alloc((size_t)m->config.vocab, sizeof *c->logits);
    c->first = mem_alloc((size_t)m->config.vocab, sizeof *c->first);
    c->mark.keys = mem_alloc((size_t)m->config.layers, sizeof *c->mark.keys);
    c->mark.memory = rc == 0 ? mem_alloc(1, c->cache->memory_bytes) : NULL;
    if (rc == 0 && !(c->logits && c->first && c->mark.keys && c->mark.memory))
        rc = err_set(e, DS_EMEM, "evaluation");
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
    mem_free(s->mark.keys);
    mem_free(s->mark.memory);
    ids_release(&s->prompt);
    ids_release(&s->whole);
    ids_release(&s->line);
    mem_free(s);
}

/* ---- one piece of a sequence ---- */

static void mark_set(struct scorer *s)
{
    s->mark.len = s->cache->len;
    for (int l = 0; l < s->cache->L; l++)
        s->mark.keys[l] = s->cache->layer[l].n;
    if (s->cache->memory)
        memcpy(s->mark.memory, s->cache->memory, s->cache->memory_bytes);
}

/* Keys are kept in order: those behind the mark are written over. */
static void mark_return(struct scorer *s)
{
    s->cache->len = s->mark.len;
    for (int l = 0; l < s->cache->L; l++)
        s->cache->layer[l].n = s->mark.keys[l];
    if (s->cache->memory)
        memcpy(s->cache->memory, s->mark.memory, s->cache->memory_bytes);
}

/* At most CHUNK ids; what their plans ran is added up here and nowhere else. */
static int feed(struct scorer *s, const int32_t *id, int n, struct task_spent *spent, struct err *e)
{
    struct model *m = s->s->model;
    struct pass pass = {.kind = s->o.is_dense ? PASS_DENSE : PASS_SPARSE,
                        .seed = s->o.seed,
                        .offset = s->o.threshold_offset,
                        .has_capacity = s->o.capacity != -1,
                        .capacity = s->o.capacity};
    int rc = model_decode(m, s->cache, id, n, &pass, e);
    if (rc < 0)
        return rc;
    memset(s->depth, 0, sizeof s->depth);
    for (int l = 0; l < m->config.layers; l++) {
        const struct plan *p = model_plan(m, l);
        for (int i = 0; i < p->n; i++)
            s->depth[p->row[i]] += p->gate[i] != 0;
    }
    for (int i = 0; i < n; i++)
        spent->run += s->depth[i];
    spent->cells += (double)n * (double)m->config.layers;
    spent->flops += flops_total(&m->flops);
    spent->dense += m->flops.dense;
    spent->tokens += n;
    return 0;
}

/* Of row `row` of the last piece. */
static double log_prob(const struct scorer *s, const real *logits, int32_t id, int *is_best)
{
    int64_t V = s->s->model->config.vocab;
    double top = (double)logits[0], sum = 0;
    int64_t best = 0;
    for (int64_t v = 1; v < V; v++)
        if ((double)logits[v] > top) {
            top = (double)logits[v];
            best = v;
        }
    for (int64_t v = 0; v < V; v++)
        sum += exp((double)logits[v] - top);
    *is_best = best == id;
    return (double)logits[id] - top - log(sum);
}

static int damaged(const struct scorer *s, double ll, struct err *e)
{
    return ll < 1 && ll > -1e30 /* rounding may put it above 0 */
               ? 0
               : err_set(e, DS_ENUMERIC, "%s: a log-probability is %g: the model is damaged",
                         s->s->dir, ll);
}

/* Feeds ids behind an empty cache; s->first are the logits of the last one, and the mark is there. */
static int start(struct scorer *s, const int32_t *id, size_t n, struct task_spent *spent,
                 struct err *e)
{
    int rc = 0, k = 0;
    kv_cache_reset(s->cache);
    for (size_t at = 0; at < n && rc == 0; at += (size_t)k) {
        k = (int)(n - at < CHUNK ? n - at : CHUNK);
        rc = feed(s, id + at, k, spent, e);
    }
    if (rc < 0)
        return rc;
    model_logits(s->s->model, k - 1, s->first);
    s->first_depth = s->depth[k - 1];
    mark_set(s);
    return 0;
}

/* From the mark: n ids, of which the last is only predicted. */
static int continuation(struct scorer *s, const int32_t *id, size_t n, double *ll, int *greedy,
                        struct task_spent *spent, struct err *e)
{
    int is_best, rc = 0;
    *ll = log_prob(s, s->first, id[0], greedy);
    spent->scored += (double)n;
    spent->scored_depth += s->first_depth;
    mark_return(s);
    for (size_t at = 0; at + 1 < n && rc == 0;) {
        int k = (int)(n - 1 - at < CHUNK ? n - 1 - at : CHUNK);
        rc = feed(s, id + at, k, spent, e);
        for (int i = 0; i < k && rc == 0; i++) {
            model_logits(s->s->model, i, s->logits);
            *ll += log_prob(s, s->logits, id[at + (size_t)i + 1], &is_best);
            *greedy &= is_best;
            spent->scored_depth += s->depth[i];
        }
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

/* What the tokenizer's template puts in front is there; an empty text is the prefix alone. */
static int encode(struct scorer *s, const char *text, size_t n, struct ids *out, struct err *e)
{
    out->n = 0;
    int32_t bos = n > 0 ? tokenizer_bos(s->s->tokenizer) : prefix_of(s);
    if (n == 0 && bos < 0)
        return err_set(e, DS_EUSAGE,
                       "the prompt is empty and the tokenizer has no token to begin a text with");
    if (bos >= 0 && ids_add(out, bos) < 0)
        return err_set(e, DS_EMEM, "a prompt");
    return n > 0 ? tokenizer_encode(s->s->tokenizer, text, n, 0, out, e) : 0;
}

/* s->prompt of the prompt, and in s->whole from *from on the ids of the continuation: those by which the ids of both
 * together are longer.  White space at the prompt's end goes to the continuation. */
static int encode_pair(struct scorer *s, const char *prompt, const char *text, size_t *from,
                       struct err *e)
{
    struct str all = {0};
    size_t start_at = 0, end = strlen(prompt);
    task_strip(prompt, &start_at, &end);
    if (start_at == end) /* white space alone stays where it is */
        end = strlen(prompt);
    str_addf(&all, "%s%s", prompt, text);
    int rc = all.failed ? err_set(e, DS_EMEM, "a prompt") : encode(s, prompt, end, &s->prompt, e);
    if (rc == 0)
        rc = encode(s, str_text(&all), all.len, &s->whole, e);
    *from = end > 0 || tokenizer_bos(s->s->tokenizer) >= 0 ? s->prompt.n : 0;
    if (rc == 0 && s->whole.n <= *from)
        rc = err_set(e, DS_ERANGE, "the choice \"%.40s\" has no tokens of its own", text);
    str_release(&all);
    return rc;
}

/* Where the prompt is cut so that it and n ids, but for the last, fit. */
static int cut(const struct scorer *s, size_t n, size_t *from, struct err *e)
{
    size_t all = s->prompt.n + n - 1, max = (size_t)s->max;
    if (n > max)
        return err_set(e, DS_ERANGE, "a choice has %zu tokens, the model sees %zu at once", n, max);
    *from = all > max ? all - max : 0;
    return 0;
}

int scorer_choices(struct scorer *s, const char *prompt, const struct task_doc *d,
                   struct task_answer *a, struct task_spent *spent, struct err *e)
{
    size_t started = SIZE_MAX, from, at = 0;
    int rc = 0;
    for (int k = 0; k < d->choices && rc == 0; k++) {
        struct str text = {0};
        str_addf(&text, " %s", d->choice[k]);
        rc = encode_pair(s, prompt, str_text(&text), &from, e);
        str_release(&text);
        if (rc == 0)
            rc = cut(s, s->whole.n - from, &at, e);
        if (rc == 0 && at != started)
            rc = start(s, s->prompt.v + at, s->prompt.n - at, spent, e);
        started = at;
        if (rc == 0)
            rc = continuation(s, s->whole.v + from, s->whole.n - from, &a->ll[k], &a->greedy[k],
                              spent, e);
    }
    return rc;
}

/* Byte offset of the first stop string, or SIZE_MAX. */
static size_t stop_at(const char *text, const char *const *until)
{
    size_t first = SIZE_MAX;
    for (; *until; until++) {
        const char *hit = strstr(text, *until);
        if (hit && (size_t)(hit - text) < first)
            first = (size_t)(hit - text);
    }
    return first;
}

static int32_t most_likely(const struct scorer *s, const real *logits)
{
    int64_t best = 0;
    for (int64_t v = 1; v < s->s->model->config.vocab; v++)
        best = logits[v] > logits[best] ? v : best;
    return (int32_t)best;
}

static int text_on(struct scorer *s, const char *const *until, struct str *out,
                   struct task_spent *spent, struct err *e)
{
    int is_best, rc = 0;
    s->line.n = 0;
    for (int64_t made = 0; made < s->o.max_gen && rc == 0; made++) {
        const real *logits = made ? s->logits : s->first;
        int32_t id = most_likely(s, logits);
        rc = damaged(s, log_prob(s, logits, id, &is_best), e);
        if (rc < 0 || id == tokenizer_eot(s->s->tokenizer))
            break;
        spent->scored++;
        spent->scored_depth += made ? s->depth[0] : s->first_depth;
        if (ids_add(&s->line, id) < 0)
            return err_set(e, DS_EMEM, "a text");
        str_reset(out);
        tokenizer_decode(s->s->tokenizer, s->line.v, s->line.n, out);
        if (stop_at(str_text(out), until) != SIZE_MAX || made + 1 == s->o.max_gen)
            break;
        rc = feed(s, &id, 1, spent, e);
        model_logits(s->s->model, 0, s->logits);
    }
    return rc;
}

int scorer_text(struct scorer *s, const char *prompt, const char *const *until, struct str *out,
                struct task_spent *spent, struct err *e)
{
    if (s->o.max_gen >= s->max)
        return err_set(e, DS_ERANGE,
                       "max_gen=%lld leaves no room for a prompt: the model sees %d tokens at once",
                       (long long)s->o.max_gen, s->max);
    size_t room = (size_t)(s->max - s->o.max_gen);
    str_reset(out);
    int rc = encode(s, prompt, strlen(prompt), &s->prompt, e);
    size_t from = rc == 0 && s->prompt.n > room ? s->prompt.n - room : 0;
    if (rc == 0)
        rc = start(s, s->prompt.v + from, s->prompt.n - from, spent, e);
    if (rc == 0)
        rc = text_on(s, until, out, spent, e);
    size_t end = stop_at(str_text(out), until);
    if (rc == 0 && end != SIZE_MAX) {
        out->len = end;
        out->p[end] = '\0';
    }
    return rc == 0 && out->failed ? err_set(e, DS_EMEM, "a text") : rc;
}

/* ---- whole texts ---- */

/* Sum over the last n of the ids that the window predicts; context ids are in front of them (and shift by one). */
static int window(struct scorer *s, const int32_t *id, size_t context, size_t n, double *ll,
                  struct task_spent *spent, struct err *e)
{
    struct model *m = s->s->model;
    size_t inputs = context + n - 1;
    int rc = 0;
    kv_cache_reset(s->cache);
    for (size_t at = 0; at < inputs && rc == 0;) {
        int k = (int)(inputs - at < CHUNK ? inputs - at : CHUNK);
        rc = feed(s, id + at, k, spent, e);
        for (int i = 0; i < k && rc == 0; i++) {
            int is_scored = at + (size_t)i + 1 >= context;
            s->target[i] = is_scored ? id[at + (size_t)i + 1] : -1;
            spent->scored += is_scored;
            spent->scored_depth += is_scored ? s->depth[i] : 0;
        }
        if (rc < 0)
            break;
        struct batch b = {.B = 1, .T = k, .id = id + at, .target = s->target};
        m->batch = &b;
        model_loss(m, 0, 0);
        m->batch = NULL;
        for (int i = 0; i < k; i++)
            *ll -= s->target[i] >= 0 ? (double)m->nll[i] : 0;
        at += (size_t)k;
    }
    return rc == 0 ? damaged(s, *ll, e) : rc;
}

/* s->whole: the prefix, then the text.  Windows predict `max` tokens each; the first sees the prefix, those behind it the
 * token before them, and the last, which is shorter, all that still fits. */
int scorer_rolling(struct scorer *s, const char *text, double *ll, struct task_spent *spent,
                   struct err *e)
{
    size_t max = (size_t)s->max;
    int32_t prefix = prefix_of(s);
    s->whole.n = 0;
    *ll = 0;
    if (prefix < 0)
        return err_set(e, DS_EUSAGE, "the tokenizer has no token to begin a text with");
    int rc = ids_add(&s->whole, prefix) < 0 ? err_set(e, DS_EMEM, "a text")
             : text[0] ? tokenizer_encode(s->s->tokenizer, text, strlen(text), 0, &s->whole, e)
                       : 0;
    size_t all = rc == 0 ? s->whole.n - 1 : 0;
    for (size_t done = 0; done < all && rc == 0;) {
        size_t n = all - done < max ? all - done : max;
        size_t context = done == 0 ? 1 : max - n + 1;
        /* token i of the text is whole[1 + i] */
        rc = window(s, s->whole.v + 1 + done - context, context, n, ll, spent, e);
        done += n;
    }
    return rc;
}

int scorer_fingerprint(struct scorer *s, char out[64], struct err *e)
{
    enum { IDS = 24 };
    int32_t id[IDS];
    double ll = 0;
    struct task_spent spent = {0};
    size_t n = (size_t)(s->max < IDS ? s->max : IDS);
    for (size_t i = 0; i < n; i++)
        id[i] =
            (int32_t)((uint64_t)(i * i * 7919 + i * 31 + 5) % (uint64_t)s->s->model->config.vocab);
    int rc = n > 1 ? window(s, id, 1, n - 1, &ll, &spent, e) : 0;
    snprintf(out, 64, "%.5g of %.0f cells", ll, spent.run);
    return rc;
}
