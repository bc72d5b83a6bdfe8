/* Drafts, verifies and rolls back; knows no method. */
#include "models/speculate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

/* ---- drafts ---- */

/* The number after `text`; *end is what follows. */
static int whole_number(const char *text, const char **end)
{
    char *stop;
    long n = *text >= '0' && *text <= '9' ? strtol(text, &stop, 10) : -1;
    *end = n < 0 ? text : stop;
    return n > 1 << 20 ? 1 << 20 : (int)n;
}

static int parse_exit(struct spec_draft *out, const char *text, const char *list,
                      const struct model *m, struct err *e)
{
    int L = m->route.loop.end; /* blocks behind a loop always run */
    const char *end;
    out->kind = SPEC_EXIT;
    out->exit = whole_number(list, &end);
    if (out->exit < 0 || *end)
        return err_set(e, DS_EUSAGE, "draft=%s: expected exit:E, a number of layers", text);
    if (out->exit < 1 || out->exit >= L)
        return err_set(e, DS_ERANGE, "draft=%s: must be 1 to %d layers, fewer than the model's %d",
                       text, L - 1, L);
    return 0;
}

/* "3,5-8" */
static int parse_skip(struct spec_draft *out, const char *text, const char *list,
                      const struct model *m, struct err *e)
{
    int L = model_config_depth(&m->config), n = 0;
    out->kind = SPEC_SKIP;
    out->closed = mem_alloc((size_t)L, 1);
    if (!out->closed)
        return err_set(e, DS_EMEM, "draft: out of memory");
    if (m->config.loop > 1)
        return err_set(e, DS_EUSAGE, "draft=%s: unsupported with looped blocks, expected exit:E",
                       text);
    for (const char *p = list;; p++) {
        int first = whole_number(p, &p), last = first;
        if (first >= 0 && *p == '-')
            last = whole_number(p + 1, &p);
        if (first < 0 || last < first || (*p && *p != ','))
            return err_set(e, DS_EUSAGE, "draft=%s: expected skip: and layers, such as skip:3,5-8",
                           text);
        if (last >= L)
            return err_set(e, DS_ERANGE, "draft=%s: layer %d: must be 0 to %d, the model's layers",
                           text, last, L - 1);
        memset(out->closed + first, 1, (size_t)(last - first + 1));
        if (!*p)
            break;
    }
    for (int l = 0; l < L; l++)
        n += out->closed[l];
    return n < L ? 0 : err_set(e, DS_ERANGE, "draft=%s: must leave at least one layer", text);
}

static int parse_capacity(struct spec_draft *out, const char *text, const char *list,
                          const struct model *m, const struct pass *target, struct err *e)
{
    char *end;
    struct pass pass = *target;
    out->kind = SPEC_CAPACITY;
    out->capacity = strtod(list, &end);
    if (end == list || *end)
        return err_set(e, DS_EUSAGE, "draft=%s: expected capacity:C, a number from 0 to 1", text);
    pass.kind = PASS_SPARSE;
    pass.inference.has_capacity = 1;
    pass.inference.capacity = out->capacity;
    int rc = route_ready(&m->route, &pass, e);
    return rc < 0 ? err_add(e, rc, "draft=%s", text) : 0;
}

static int parse_routed(struct spec_draft *out, const char *text, const struct model *m,
                        const struct pass *target, struct err *e)
{
    struct pass pass = *target;
    out->kind = SPEC_ROUTED;
    pass.kind = PASS_SPARSE;
    if (!(m->route.ops->flags & ROUTE_GATED))
        return err_set(e, DS_EUSAGE, "draft=%s: %s skips nothing, so its draft would be the model",
                       text, m->route.ops->name);
    if (target->kind != PASS_DENSE)
        return err_set(e, DS_EUSAGE,
                       "draft=%s: the target makes the same decisions; expected routing=dense",
                       text);
    int rc = route_ready(&m->route, &pass, e);
    return rc < 0 ? err_add(e, rc, "draft=%s", text) : 0;
}

int spec_draft_parse(struct spec_draft *out, const char *text, const struct model *m,
                     const struct pass *target, struct err *e)
{
    struct spec_draft d = {0};
    int rc;
    if (strncmp(text, "exit:", 5) == 0)
        rc = parse_exit(&d, text, text + 5, m, e);
    else if (strncmp(text, "skip:", 5) == 0)
        rc = parse_skip(&d, text, text + 5, m, e);
    else if (strncmp(text, "capacity:", 9) == 0)
        rc = parse_capacity(&d, text, text + 9, m, target, e);
    else if (strcmp(text, "routed") == 0)
        rc = parse_routed(&d, text, m, target, e);
    else
        rc = err_set(e, DS_EUSAGE,
                     "unknown draft \"%.40s\"; expected exit:E, skip:LAYERS, capacity:C or routed",
                     text);
    if (rc < 0)
        spec_draft_release(&d);
    else
        *out = d;
    return rc;
}

void spec_draft_release(struct spec_draft *d)
{
    mem_free(d->closed);
    *d = (struct spec_draft){0};
}

/* ---- the state ---- */

struct spec {
    struct model *m;
    struct pass target, draft;
    struct kv_cache *cache, *own; /* own: the draft's */
    uint8_t *closed;              /* (L) layers that the draft never runs */
    int shared;                   /* layers below it are computed once, for both; 0: none */
    int has_rest;                 /* the draft runs layers from `shared` on */
    int most, fed;                /* fed: rows of this round that the draft has seen */
    int32_t *id;                  /* (most + 1) the last token, then the drafted ones */
    real *states;                 /* (most + 1, C) after the shared layers */
    real *logits;                 /* (most + 1, V) of the target */
    double *q, *p; /* (most, V) the draft's distributions, (V) the target's; sampling only */
    struct kv_mark before, *after; /* the cache before the round; (most + 2) own after i rows */
    struct sampler sampler;
    struct spec_counts counts;
    int drafted;
    double judged, kept; /* drafted tokens up to the first rejected one, and accepted; fading */
    /* FLOPs of all rows so far: of the draft, its shared layers included, and of the target's pass
     * over the other layers */
    double draft_flops, shared_flops, draft_rows, target_flops, target_rows;
};

/* What the draft runs, and from which layer on it differs from the target. */
static void set_draft(struct spec *s, const struct spec_draft *d)
{
    int L = model_config_depth(&s->m->config);
    int is_gated = s->target.kind != PASS_DENSE && (s->m->route.ops->flags & ROUTE_GATED);
    s->draft = s->target;
    s->draft.is_stepwise = 0;
    for (int l = 0; l < L; l++)
        s->closed[l] = d->kind == SPEC_EXIT   ? l >= d->exit && l < s->m->route.loop.end
                       : d->kind == SPEC_SKIP ? d->closed[l]
                                              : 0;
    if (d->kind == SPEC_CAPACITY || d->kind == SPEC_ROUTED) {
        s->draft.kind = PASS_SPARSE;
        s->draft.inference.has_capacity |= d->kind == SPEC_CAPACITY;
        if (d->kind == SPEC_CAPACITY)
            s->draft.inference.capacity = d->capacity;
        return;
    }
    if (d->kind == SPEC_EXIT) {
        s->draft.inference.exit = d->exit;
    } else { /* a method may not decide without the layers that it reads: they all run */
        s->draft.kind = is_gated ? PASS_DENSE : s->draft.kind;
        s->draft.inference.closed = s->closed;
    }
    /* an iteration of a loop reads the one before, and what was injected */
    int most = s->m->config.loop > 1 ? s->m->route.loop.start : L;
    while (!is_gated && s->shared < most && !s->closed[s->shared])
        s->shared++;
    for (int l = s->shared; l < L; l++)
        s->has_rest |= !s->closed[l];
}

static int reserve(struct spec *s, struct err *e)
{
    size_t V = (size_t)s->m->config.vocab, C = (size_t)s->m->config.dim, n = (size_t)s->most + 1;
    s->id = mem_alloc(n, sizeof *s->id);
    s->states = mem_alloc(n * C, sizeof *s->states);
    s->logits = mem_alloc(n * V, sizeof *s->logits);
    s->after = mem_alloc(n + 1, sizeof *s->after);
    if (!s->id || !s->states || !s->logits || !s->after)
        return err_set(e, DS_EMEM, "out of memory for %d drafted tokens", s->most);
    int rc = kv_cache_over(&s->own, s->m, s->cache, s->shared, s->closed, e);
    if (rc == 0)
        rc = kv_mark_init(&s->before, s->cache, e);
    for (size_t i = 0; i <= n && rc == 0; i++)
        rc = kv_mark_init(&s->after[i], s->own, e);
    if (rc == 0)
        rc = sampler_init(&s->sampler, (int)V, e);
    return rc == 0 ? model_reserve(s->m, (int)n + 1, 0, 0, e) : rc;
}

static void copy_counts(struct kv_cache *to, const struct kv_cache *from, int layers)
{
    for (int l = 0; l < layers; l++)
        to->layer[l].n = from->layer[l].n;
}

int spec_new(struct spec **out, struct model *m, const struct spec_draft *d,
             const struct pass *target, struct kv_cache *cache, int most, struct err *e)
{
    if (!gemm_has_row_guarantee(gemm_provider(m->weights.format)))
        return err_set(e, DS_EUSAGE,
                       "speculate: with the %s GEMMs several rows have other bits than one; set "
                       "DEPTHSCOPE_GEMM to another provider",
                       gemm_name(gemm_provider(m->weights.format)));
    struct spec *s = mem_alloc(1, sizeof *s);
    BUG_IF(most < 1 || most > SPEC_MOST, "%d drafted tokens", most);
    if (!s)
        return err_set(e, DS_EMEM, "out of memory for speculative decoding");
    s->m = m;
    s->target = *target;
    s->target.is_stepwise = 1;
    s->cache = cache;
    s->most = most;
    s->closed = mem_alloc((size_t)model_config_depth(&m->config), 1);
    int rc = s->closed ? 0 : err_set(e, DS_EMEM, "out of memory for speculative decoding");
    if (rc == 0) {
        set_draft(s, d);
        rc = reserve(s, e);
    }
    if (rc == 0 && cache->len > 0) { /* all that the draft reads is shared */
        BUG_IF(s->shared == 0 || s->has_rest, "the draft has not seen %d tokens", cache->len);
        s->own->len = cache->len;
    }
    if (rc < 0)
        spec_free(s);
    else
        *out = s;
    return rc;
}

void spec_free(struct spec *s)
{
    if (!s)
        return;
    for (int i = 0; s->after && i < s->most + 2; i++)
        kv_mark_release(&s->after[i]);
    kv_mark_release(&s->before);
    kv_cache_free(s->own);
    sampler_release(&s->sampler);
    mem_free(s->closed);
    mem_free(s->id);
    mem_free(s->states);
    mem_free(s->logits);
    mem_free(s->after);
    mem_free(s->q);
    mem_free(s->p);
    mem_free(s);
}

const struct spec_counts *spec_counts(const struct spec *s)
{
    return &s->counts;
}

/* ---- what is shared ---- */

/* FLOPs of layers from .. to - 1 in the last pass, all rows. */
static double layer_flops(const struct flops *f, int from, int to)
{
    double sum = 0;
    for (size_t i = (size_t)from * FLOPS_PARTS; i < (size_t)to * FLOPS_PARTS; i++)
        sum += f->part[i];
    return sum;
}

/* Counts FLOPs of the last pass that no kept row has: from layer `from` on, and the head for as
 * many rows. */
static void count_waste(struct spec *s, int from, int heads)
{
    const struct flops *f = &s->m->flops;
    double head = f->part[(size_t)f->L * FLOPS_PARTS + FLOPS_HEAD];
    double sum = layer_flops(f, from, f->L) + head * heads / s->m->R;
    s->counts.flops += sum;
    s->counts.wasted += sum;
}

int spec_follow(struct spec *s, const int32_t *id, int n, struct err *e)
{
    struct pass pass = s->draft;
    int rc = 0;
    if (s->shared == 0) {
        rc = model_decode(s->m, s->own, id, n, &pass, e);
    } else {
        copy_counts(s->own, s->cache, s->shared);
        if (s->has_rest)
            rc = model_decode_from(s->m, s->own, id, n, s->shared, &pass, e);
        else
            s->own->len += n;
    }
    if (rc == 0 && (s->shared == 0 || s->has_rest))
        count_waste(s, s->shared, 0);
    return rc;
}

void spec_reset(struct spec *s)
{
    kv_cache_reset(s->own);
    s->own->context = s->cache->context;
    s->counts = (struct spec_counts){0};
    s->judged = s->kept = 0;
}

/* ---- drafting ---- */

/* The draft's next token after the last pass; 0: it is not sure enough, or its logits are not
 * finite, which is the target's to report. */
static int draft_token(struct spec *s, const struct spec_ask *ask, int i)
{
    struct model *m = s->m;
    int V = (int)m->config.vocab;
    real *logits = s->logits; /* free until the target's are known */
    struct sample_options greedy = {.top_p = 1};
    double sure;
    model_logits(m, m->R - 1, logits);
    if (sampler_pick(&s->sampler, logits, &greedy, 0, &s->id[i + 1], &sure, NULL) < 0 ||
        sure < ask->confidence)
        return 0;
    if (!(ask->sample.temperature > 0))
        return 1;
    double *q = s->q + (size_t)i * (size_t)V;
    if (sampler_probs(&s->sampler, logits, &ask->sample, q, NULL) < 0)
        return 0;
    s->id[i + 1] = sample_at(q, V, rng_at(ask->sample.seed, RNG_SAMPLE, ask->n + (size_t)i, 1, 0));
    return 1;
}

/* Feeds the draft its row i of the round, and what it has missed before. */
static int feed(struct spec *s, const struct spec_ask *ask, int i, struct err *e)
{
    struct model *m = s->m;
    struct pass pass = s->draft;
    size_t C = (size_t)m->config.dim, missed = ask->n - 1 - (size_t)s->own->len;
    int rc = i == 0 ? model_decode(m, s->own, ask->id + s->own->len, (int)missed + 1, &pass, e)
                    : model_decode(m, s->own, &s->id[i], 1, &pass, e);
    if (rc < 0)
        return rc;
    if (s->shared > 0)
        memcpy(s->states + (size_t)i * C, m->stream.h[s->shared] + (size_t)(m->R - 1) * C,
               C * sizeof *s->states);
    s->fed = i + 1;
    kv_mark_set(&s->after[i + 1], s->own);
    return 0;
}

static int draft(struct spec *s, const struct spec_ask *ask, int most, struct err *e)
{
    struct model *m = s->m;
    int is_shared = s->shared > 0, rc = 0;
    s->drafted = s->fed = 0;
    s->id[0] = ask->id[ask->n - 1];
    for (int i = 0; i < most + is_shared && rc == 0; i++) {
        int has_head = i < most;
        rc = feed(s, ask, i, e);
        if (rc < 0)
            break;
        count_waste(s, s->shared, has_head);
        s->draft_flops += flops_total(&m->flops);
        s->shared_flops += layer_flops(&m->flops, 0, s->shared);
        s->draft_rows += m->R;
        if (!has_head || !draft_token(s, ask, i))
            break;
        s->drafted = i + 1;
    }
    return rc;
}

int spec_best_length(double a, double cost, int most)
{
    double best = 0, expected = 1, power = 1; /* tokens of a round: 1 + a + a^2 ... */
    int length = 1;
    for (int n = 1; n <= most; n++) {
        power *= a;
        expected += power;
        if (expected / (1 + n * cost) > best) {
            best = expected / (1 + n * cost);
            length = n;
        }
    }
    return length;
}

/* The first round has no measurements: it drafts as if two thirds were accepted at a third of the
 * cost. */
static int adapted_length(const struct spec *s, int most)
{
    enum { PRIOR = 4 }; /* drafted tokens that the guess weighs */
    double a = (s->kept + PRIOR * 2.0 / 3) / (s->judged + PRIOR), cost = 1.0 / 3;
    if (s->draft_rows > 0 && s->target_rows > 0)
        cost = s->draft_flops / s->draft_rows /
               (s->target_flops / s->target_rows + s->shared_flops / s->draft_rows);
    return spec_best_length(a, cost, most);
}

static void note_round(struct spec *s, const struct spec_round *r)
{
    const double fade = 0.9; /* a change of the text is followed within ten rounds */
    s->judged = fade * s->judged + r->accepted + (r->accepted < r->drafted);
    s->kept = fade * s->kept + r->accepted;
    s->target_flops += flops_total(&s->m->flops);
    s->target_rows += s->m->R;
    s->counts.rounds++;
    s->counts.drafted += r->drafted;
    s->counts.accepted += r->accepted;
    s->counts.flops += flops_total(&s->m->flops);
}

/* ---- verification ---- */

static int verify(struct spec *s, struct err *e)
{
    struct model *m = s->m;
    struct pass pass = s->target;
    int n = s->drafted + 1;
    if (s->shared == 0)
        return model_decode(m, s->cache, s->id, n, &pass, e);
    copy_counts(s->cache, s->own, s->shared);
    memcpy(m->stream.h[s->shared], s->states,
           (size_t)n * (size_t)m->config.dim * sizeof *s->states);
    return model_decode_from(m, s->cache, s->id, n, s->shared, &pass, e);
}

/* Is the drafted token after row i accepted?  *next: what is drawn when not. */
static int is_accepted(struct spec *s, const struct spec_ask *ask, int i, int32_t *next)
{
    int V = (int)s->m->config.vocab;
    size_t step = ask->n + (size_t)i;
    const real *logits = s->logits + (size_t)i * (size_t)V;
    int32_t id = s->id[i + 1], best;
    *next = -1;
    if (!(ask->sample.temperature > 0))
        return sampler_pick(&s->sampler, logits, &ask->sample, step, &best, NULL, NULL) == 0 &&
               best == id;
    const double *q = s->q + (size_t)i * (size_t)V;
    double *p = s->p, sum = 0;
    if (sampler_probs(&s->sampler, logits, &ask->sample, p, NULL) < 0)
        return 0; /* reported when the next token is drawn */
    if (rng_at(ask->sample.seed, RNG_SAMPLE, step, 2, 0) * q[id] < p[id])
        return 1;
    for (int v = 0; v < V; v++)
        sum += p[v] > q[v] ? p[v] - q[v] : 0;
    for (int v = 0; v < V && sum > 0; v++) /* 0: p and q are the same up to rounding */
        p[v] = p[v] > q[v] ? p[v] - q[v] : 0;
    *next = sample_at(p, V, rng_at(ask->sample.seed, RNG_SAMPLE, step, 3, 0));
    return 0;
}

static int accept(struct spec *s, const struct spec_ask *ask, struct spec_round *out)
{
    int n = 0;
    out->next = -1;
    if (ask->forced >= 0)
        return ask->forced < s->drafted ? ask->forced : s->drafted;
    while (n < s->drafted && is_accepted(s, ask, n, &out->next))
        n++;
    return n;
}

static int reserve_probs(struct spec *s, const struct spec_ask *ask, struct err *e)
{
    size_t V = (size_t)s->m->config.vocab;
    if ((s->q && s->p) || !(ask->sample.temperature > 0))
        return 0;
    if (!s->q)
        s->q = mem_alloc((size_t)s->most * V, sizeof *s->q);
    if (!s->p)
        s->p = mem_alloc(V, sizeof *s->p);
    return s->q && s->p ? 0 : err_set(e, DS_EMEM, "out of memory for %d drafted tokens", s->most);
}

int spec_run(struct spec *s, const struct spec_ask *ask, struct spec_round *out, struct err *e)
{
    int most = ask->most < s->most ? ask->most : s->most, cap = s->cache->cap;
    if (s->m->pos_embed >= 0 && s->m->config.max_seq < cap)
        cap = (int)s->m->config.max_seq;
    int room = cap - (int)ask->n;
    BUG_IF(ask->n != (size_t)s->cache->len + 1, "%zu tokens, the cache has seen %d", ask->n,
           s->cache->len);
    most = most < room ? most : room;
    if (ask->adapts && most > 1)
        most = adapted_length(s, most);
    kv_mark_set(&s->before, s->cache);
    int rc = reserve_probs(s, ask, e);
    if (rc == 0)
        rc = draft(s, ask, most > 0 ? most : 0, e);
    if (rc == 0)
        rc = verify(s, e);
    if (rc < 0)
        return rc;
    model_logits_rows(s->m, 0, s->drafted + 1, s->logits);
    *out = (struct spec_round){.drafted = s->drafted, .id = s->id + 1, .logits = s->logits};
    out->accepted = accept(s, ask, out);
    note_round(s, out);
    return 0;
}

/* ---- roll back ---- */

int spec_keep(struct spec *s, int rows, struct err *e)
{
    int n = s->drafted + 1, rc = 0;
    BUG_IF(rows < 1 || rows > n, "%d of %d rows", rows, n);
    for (int i = rows; i < n; i++)
        s->counts.wasted += s->m->flops.token[i];
    if (rows < s->fed)
        kv_cache_return(s->own, &s->after[rows]);
    if (rows == n)
        return 0;
    if (s->cache->memory && s->target.kind != PASS_DENSE) {
        struct pass pass = s->target;
        kv_cache_return(s->cache, &s->before);
        rc = model_decode(s->m, s->cache, s->id, rows, &pass, e);
        count_waste(s, 0, 0);
    } else {
        kv_cache_keep(s->cache, &s->before, s->m, rows);
    }
    copy_counts(s->own, s->cache, s->shared);
    return rc;
}
