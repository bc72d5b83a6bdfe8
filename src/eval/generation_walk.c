/* Alternates forward passes and sampling for all active texts. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "generation_impl.h"

enum { CHUNK = 256, CHUNK_LOGITS = 32 };

struct pass gen_pass(const struct gen_options *o, uint64_t seed)
{
    return (struct pass){.kind = o->routing == GEN_DENSE ? PASS_DENSE : PASS_SPARSE,
                         .seed = seed,
                         .inference.exit = (int)o->exit_layer,
                         .inference.offset = o->threshold_offset,
                         .inference.has_capacity = o->capacity != -1,
                         .inference.capacity = o->capacity};
}

/* ---- lifetime ---- */

int gen_walk_init(struct gen_walk *w, int slots, size_t most, struct err *e)
{
    struct model *m = w->s->model;
    size_t V = (size_t)m->config.vocab, n = (size_t)slots;
    size_t rows = most < CHUNK / n ? most * n : CHUNK; /* of the prompts of all texts */
    size_t at_once = w->o->logprobs > 0 && n < CHUNK_LOGITS ? CHUNK_LOGITS : n;
    w->slots = slots;
    w->logits = mem_alloc(V, at_once * sizeof *w->logits);
    w->id = mem_alloc(n > CHUNK ? n : CHUNK, sizeof *w->id);
    w->cache = mem_alloc(n, sizeof *w->cache);
    w->seq = mem_alloc(n, sizeof *w->seq);
    w->active = mem_alloc(n, sizeof *w->active);
    if (!w->logits || !w->id || !w->cache || !w->seq || !w->active)
        return err_set(e, DS_EMEM, "out of memory for batched decoding of %d texts", slots);
    int rc = sampler_init(&w->sampler, (int)V, e);
    return rc < 0 ? rc : model_reserve(m, (int)(rows > n ? rows : n), 0, 0, e);
}

void gen_walk_release(struct gen_walk *w)
{
    for (int i = 0; w->seq && i < w->slots; i++)
        gen_seq_release(&w->seq[i]);
    sampler_release(&w->sampler);
    mem_free(w->logits);
    mem_free(w->id);
    mem_free(w->cache);
    mem_free(w->seq);
    mem_free(w->active);
    memset(w, 0, sizeof *w);
}

void gen_seq_release(struct gen_seq *q)
{
    spec_free(q->spec);
    kv_cache_free(q->cache);
    gen_text_release(&q->text);
    mem_free(q->logits);
    memset(q, 0, sizeof *q);
}

static int open_draft(struct gen_walk *w, struct gen_seq *q, struct err *e)
{
    struct spec_draft draft = {0};
    struct pass pass = gen_pass(w->o, q->seed);
    int most, adapts, rc = gen_draft_length(w->o, &most, &adapts, e);
    if (rc < 0 || most == 0)
        return rc;
    rc = spec_draft_parse(&draft, w->o->draft, w->s->model, &pass, e);
    if (rc == 0)
        rc = spec_new(&q->spec, w->s->model, &draft, &pass, q->cache, most, e);
    spec_draft_release(&draft);
    return rc;
}

int gen_seq_begin(struct gen_walk *w, struct gen_seq *q, size_t k, struct gen_result *out,
                  size_t cap, struct err *e)
{
    struct model *m = w->s->model;
    size_t K = (size_t)w->o->logprobs;
    memset(out, 0, sizeof *out);
    *q = (struct gen_seq){.k = k, .out = out, .cap = cap, .next = -1};
    q->seed = (w->o->seed < 0 ? 0 : (uint64_t)w->o->seed) + k;
    q->state = q->seed;
    out->time_ratio = out->tok_s = (double)NAN;
    q->logits = mem_alloc((size_t)m->config.vocab, sizeof *q->logits);
    out->depth = mem_alloc(cap + 1, sizeof *out->depth);
    out->mark = mem_alloc(cap + 1, sizeof *out->mark);
    int ok = q->logits && out->depth && out->mark;
    if (K > 0) {
        out->logprob = mem_alloc(cap + 1, sizeof *out->logprob);
        out->n_top = mem_alloc(cap + 1, sizeof *out->n_top);
        out->top = mem_alloc(cap + 1, K * sizeof *out->top);
        ok = ok && out->logprob && out->n_top && out->top;
    }
    gen_text_reset(&q->text, &out->text);
    int rc = ok ? kv_cache_new(&q->cache, m, (int)cap, e)
                : err_set(e, DS_EMEM, "out of memory for %zu tokens", cap);
    return rc == 0 ? open_draft(w, q, e) : rc;
}

int gen_is_stopped(const struct gen_walk *w)
{
    return w->watch && w->watch->is_stopped && w->watch->is_stopped(w->watch->ctx);
}

/* ---- cost and log-probabilities ---- */

/* Counts the n rows of the last pass from `row` on: tokens at, at + 1, ... of q. */
static void count_rows(struct gen_walk *w, struct gen_seq *q, int row, size_t at, int n)
{
    const struct model *m = w->s->model;
    int *depth = q->out->depth + at;
    for (int l = 0; l < model_config_depth(&m->config); l++) {
        const struct plan *p = model_plan(m, l);
        for (int i = 0; i < p->n; i++)
            if (p->row[i] >= row && p->row[i] < row + n)
                depth[p->row[i] - row] += p->gate[i] != 0;
    }
    for (int i = 0; i < n; i++) {
        q->run += depth[i];
        q->cells += (double)model_config_depth(&m->config);
        q->flops += m->flops.token[row + i];
        q->dense += m->flops.dense_token[row + i];
    }
}

/* Counts what the draft has computed since, and rows that were rejected. */
static void count_draft(struct gen_seq *q)
{
    const struct spec_counts *c = spec_counts(q->spec);
    q->flops += c->wasted - q->wasted;
    q->wasted = c->wasted;
}

/* Log-probability of token `at` from the logits before it. */
static void note_logprob(struct gen_walk *w, struct gen_result *out, size_t at, const real *logits)
{
    int V = (int)w->s->model->config.vocab, K = (int)w->o->logprobs;
    if (K > 0)
        out->n_top[at] = sample_ranks(logits, V, out->ids.v[at], &out->logprob[at],
                                      out->top + at * (size_t)K, K);
}

static int add_text(struct gen_walk *w, struct gen_seq *q, size_t at, int *found, struct err *e)
{
    struct gen_result *out = q->out;
    const struct tokenizer *t = w->s->tokenizer;
    int32_t id = out->ids.v[at];
    struct str piece = {0};
    *found = 0;
    if (tokenizer_is_special(t, id))
        return 0;
    (q->begins ? tokenizer_decode : tokenizer_decode_on)(t, &id, 1, &piece);
    q->begins = 0;
    int rc = piece.failed ? err_set(e, DS_EMEM, "out of memory for the text")
                          : gen_text_add(&q->text, w->rules, str_text(&piece), piece.len,
                                         out->depth[at], found, e);
    str_release(&piece);
    return rc;
}

/* Shows the watcher the text of the non-special ids. */
static int show_prompt(struct gen_walk *w, const struct gen_seq *q, const struct ids *prompt,
                       int *is_empty, struct err *e)
{
    struct str text = {0};
    const struct tokenizer *t = w->s->tokenizer;
    int rc = 0, first = 1;
    for (size_t i = 0; i < prompt->n; i++)
        if (!tokenizer_is_special(t, prompt->v[i])) {
            (first ? tokenizer_decode : tokenizer_decode_on)(t, &prompt->v[i], 1, &text);
            first = 0;
        }
    *is_empty = first;
    if (text.failed)
        rc = err_set(e, DS_EMEM, "out of memory for the prompt");
    else if (text.len > 0 && w->watch && w->watch->text)
        rc = w->watch->text(w->watch->ctx, q->k, text.p, text.len, 0, 1);
    str_release(&text);
    return rc < 0 ? rc : 0;
}

/* ---- the prompt ---- */

/* Log-probabilities of what follows n rows of the last pass from `row` on, whose first is token
 * at. */
static void note_prompt(struct gen_walk *w, struct gen_seq *q, int row, size_t at, int n)
{
    size_t V = (size_t)w->s->model->config.vocab, end = q->out->ids.n;
    for (int i = 0; i < n; i += CHUNK_LOGITS) {
        int rows = n - i < CHUNK_LOGITS ? n - i : CHUNK_LOGITS;
        model_logits_rows(w->s->model, row + i, rows, w->logits);
        for (int k = 0; k < rows && at + (size_t)(i + k) + 1 < end; k++)
            note_logprob(w, q->out, at + (size_t)(i + k) + 1, w->logits + (size_t)k * V);
    }
}

static int report_tokens(struct gen_walk *w, const struct gen_seq *q, size_t at, int n)
{
    int rc = 0;
    for (int i = 0; w->watch && w->watch->token && i < n && rc >= 0; i++)
        rc = w->watch->token(w->watch->ctx, q->k, q->out, at + (size_t)i);
    return rc < 0 ? rc : 0;
}

static int add_prompt(struct gen_seq *q, const struct ids *prompt, struct err *e)
{
    struct gen_result *out = q->out;
    for (size_t i = 0; i < prompt->n; i++) {
        if (ids_add(&out->ids, prompt->v[i]) < 0)
            return err_set(e, DS_EMEM, "out of memory for the prompt");
        if (out->logprob)
            out->logprob[out->ids.n - 1] = (double)NAN;
    }
    out->n_prompt = out->ids.n;
    return 0;
}

int gen_seq_feed(struct gen_walk *w, struct gen_seq *q, const struct ids *prompt, struct err *e)
{
    int rc = show_prompt(w, q, prompt, &q->begins, e);
    if (q->spec)
        q->before = *spec_counts(q->spec);
    q->next = -1; /* drawn for another continuation */
    q->mark = GEN_ORDINARY;
    q->out->stop = GEN_STOP_ASKED;
    q->made = 0;
    q->is_fed = 0;
    return rc < 0 ? rc : add_prompt(q, prompt, e);
}

/* Ids of the prompt that the cache lacks. */
static size_t missing(const struct gen_seq *q)
{
    return q->out->n_prompt - (size_t)q->cache->len;
}

/* Lists the texts whose prompts share the next pass; returns how many tokens each adds.  bf16 over
 * a bf16 cache takes prompts one by one, because there the order of attention's sums depends on
 * the length of a piece (engine/ops.h), and a text must not depend on the others. */
static int next_pieces(struct gen_walk *w, int *n)
{
    const struct model *m = w->s->model;
    size_t least = CHUNK < m->R_max ? CHUNK : (size_t)m->R_max, most = least;
    *n = 0;
    for (int i = 0; i < w->slots; i++) {
        struct gen_seq *q = &w->seq[i];
        int is_single = m->weights.format == GEMM_BF16 && q->cache && q->cache->layer[0].k16;
        if (!q->out || q->is_fed || missing(q) == 0 || (*n > 0 && is_single))
            continue;
        w->active[*n] = q;
        w->cache[*n] = q->cache;
        *n += 1;
        least = missing(q) < least ? missing(q) : least;
    }
    size_t share = *n > 0 ? most / (size_t)*n : 1;
    return (int)(least < share ? least : share);
}

/* After the pass of a piece: row `row` is its first. */
static int take_piece(struct gen_walk *w, struct gen_seq *q, int row, int n, struct err *e)
{
    struct gen_result *out = q->out;
    size_t at = (size_t)(q->cache->len - n);
    count_rows(w, q, row, at, n);
    if (w->o->logprobs > 0 && w->o->echo > 0)
        note_prompt(w, q, row, at, n);
    if (missing(q) == 0)
        model_logits(w->s->model, row + n - 1, q->logits);
    int rc = report_tokens(w, q, at, n);
    if (rc == 0 && q->spec) {
        rc = spec_follow(q->spec, out->ids.v + at, n, e);
        count_draft(q);
    }
    return rc;
}

static int feed_pieces(struct gen_walk *w, int n, int T, struct err *e)
{
    struct pass pass = gen_pass(w->o, w->active[0]->seed);
    for (int i = 0; i < n; i++) {
        const struct gen_seq *q = w->active[i];
        memcpy(w->id + (size_t)i * (size_t)T, q->out->ids.v + q->cache->len,
               (size_t)T * sizeof *w->id);
    }
    int rc = model_decode_batch(w->s->model, w->cache, n, w->id, T, &pass, e);
    for (int i = 0; i < n && rc == 0; i++)
        rc = take_piece(w, w->active[i], i * T, T, e);
    return rc;
}

int gen_walk_feed(struct gen_walk *w, struct err *e)
{
    int n, T, rc = 0;
    while ((T = next_pieces(w, &n)) > 0 && n > 0 && rc == 0 && !gen_is_stopped(w))
        rc = feed_pieces(w, n, T, e);
    for (int i = 0; i < w->slots && rc == 0; i++) {
        struct gen_seq *q = &w->seq[i];
        if (!q->out || q->is_fed)
            continue;
        q->is_fed = 1;
        q->is_done = missing(q) > 0; /* stopped */
        q->flops_before = q->flops;
        q->began = clock_mono();
    }
    return rc;
}

/* ---- a step ---- */

static int is_end(const struct gen_walk *w, int32_t id)
{
    int found = subject_is_end(w->s, id);
    for (size_t i = 0; w->rules && i < w->rules->n_end; i++)
        found |= id == w->rules->end[i];
    return found;
}

static struct sample_options sampling_of(const struct gen_walk *w, const struct gen_seq *q)
{
    return (struct sample_options){.temperature = w->o->temperature,
                                   .top_k = (int)w->o->top_k,
                                   .top_p = w->o->top_p,
                                   .min_p = w->o->min_p,
                                   .seed = q->seed};
}

static int pick(struct gen_walk *w, struct gen_seq *q, int32_t *id, struct err *e)
{
    struct sample_options so = sampling_of(w, q);
    if (q->next >= 0) {
        *id = q->next;
        q->next = -1;
        return 0;
    }
    return w->o->sampler == GEN_SAMPLER_LLAMA2C
               ? sampler_pick_llama2c(&w->sampler, q->logits, &so, &q->state, id, e)
               : sampler_pick(&w->sampler, q->logits, &so, q->out->ids.n, id, NULL, e);
}

/* Appends a token that q->logits were for. */
static int add_token(struct gen_walk *w, struct gen_seq *q, int32_t id, enum gen_mark mark,
                     struct err *e)
{
    struct gen_result *out = q->out;
    if (ids_add(&out->ids, id) < 0)
        return err_set(e, DS_EMEM, "out of memory for the text");
    note_logprob(w, out, out->ids.n - 1, q->logits);
    out->mark[out->ids.n - 1] = (uint8_t)mark;
    q->made++;
    return 0;
}

/* Samples the next token of q, not yet fed to the model; or ends q. */
static int choose(struct gen_walk *w, struct gen_seq *q, struct err *e)
{
    struct gen_result *out = q->out;
    int32_t id;
    q->is_done = 1;
    if (q->made == (size_t)w->o->max_tokens || out->ids.n >= q->cap) {
        out->stop = q->made == (size_t)w->o->max_tokens ? GEN_STOP_LENGTH : GEN_STOP_CONTEXT;
        return 0;
    }
    int rc = pick(w, q, &id, e);
    if (rc < 0)
        return rc;
    if (is_end(w, id)) {
        out->stop = GEN_STOP_EOT;
        return 0;
    }
    rc = add_token(w, q, id, q->mark, e);
    q->mark = GEN_ORDINARY;
    q->is_done = rc < 0;
    return rc;
}

/* Takes the results of row `row` of the last pass, which was the last token of q, and the logits
 * after it. */
static int take_row(struct gen_walk *w, struct gen_seq *q, int row, const real *logits,
                    struct err *e)
{
    size_t at = q->out->ids.n - 1, V = (size_t)w->s->model->config.vocab;
    int found;
    memcpy(q->logits, logits, V * sizeof *q->logits);
    count_rows(w, q, row, at, 1);
    int rc = add_text(w, q, at, &found, e);
    if (rc == 0)
        rc = gen_text_settle(&q->text, w->rules, found, w->watch, q->k, 0);
    if (rc == 0)
        rc = report_tokens(w, q, at, 1);
    if (found) {
        q->is_done = 1;
        q->out->stop = GEN_STOP_TEXT;
    }
    return rc;
}

/* ---- a step with drafted tokens ---- */

/* Appends the tokens of a round up to the last accepted one, or to where ordinary decoding would
 * have ended the text.  *rows: those taken. */
static int take_round(struct gen_walk *w, struct gen_seq *q, const struct spec_round *r, int *rows,
                      struct err *e)
{
    size_t V = (size_t)w->s->model->config.vocab;
    int rc = 0;
    for (int i = 0; i <= r->accepted && rc == 0 && !q->is_done; i++) {
        if (i > 0 && is_end(w, r->id[i - 1])) {
            q->is_done = 1;
            q->out->stop = GEN_STOP_EOT;
            break;
        }
        if (i > 0)
            rc = add_token(w, q, r->id[i - 1], GEN_ACCEPTED, e);
        if (rc == 0)
            rc = take_row(w, q, i, r->logits + (size_t)i * V, e);
        *rows = i + 1;
    }
    return rc;
}

/* Feeds the last token of q, which was chosen, with drafted ones after it. */
static int speculate(struct gen_walk *w, struct gen_seq *q, struct err *e)
{
    struct gen_result *out = q->out;
    struct spec_ask ask = {.id = out->ids.v,
                           .n = out->ids.n,
                           .confidence = w->o->confidence,
                           .sample = sampling_of(w, q),
                           .forced = -1};
    size_t left = (size_t)w->o->max_tokens - q->made;
    struct spec_round r;
    int rows = 1, rc = gen_draft_length(w->o, &ask.most, &ask.adapts, e);
    ask.most = (size_t)ask.most < left ? ask.most : (int)left;
    if (rc == 0)
        rc = spec_run(q->spec, &ask, &r, e);
    if (rc == 0)
        rc = take_round(w, q, &r, &rows, e);
    if (rc < 0)
        return rc;
    if (rows == r.accepted + 1) {
        q->next = r.next;
        q->mark = r.accepted < r.drafted ? GEN_CORRECTED : GEN_ORDINARY;
    }
    rc = spec_keep(q->spec, rows, e);
    count_draft(q);
    return rc;
}

int gen_walk_step(struct gen_walk *w, struct err *e)
{
    struct model *m = w->s->model;
    struct pass pass;
    int n = 0, rc = 0;
    for (int i = 0; i < w->slots && rc == 0; i++) {
        struct gen_seq *q = &w->seq[i];
        if (!q->out || q->is_done)
            continue;
        rc = choose(w, q, e);
        if (rc < 0 || q->is_done)
            continue;
        if (q->spec) {
            rc = speculate(w, q, e);
            continue;
        }
        w->active[n] = q;
        w->cache[n] = q->cache;
        w->id[n++] = q->out->ids.v[q->out->ids.n - 1];
    }
    if (rc < 0 || n == 0)
        return rc;
    pass = gen_pass(w->o, w->active[0]->seed);
    rc = model_decode_batch(m, w->cache, n, w->id, 1, &pass, e);
    if (rc < 0)
        return rc;
    model_logits_rows(m, 0, n, w->logits);
    for (int i = 0; i < n && rc == 0; i++)
        rc = take_row(w, w->active[i], i, w->logits + (size_t)i * (size_t)m->config.vocab, e);
    return rc;
}

int gen_seq_end(struct gen_walk *w, struct gen_seq *q)
{
    struct gen_result *out = q->out;
    double seconds = clock_mono() - q->began;
    out->tok_s = seconds > 0 ? (double)q->made / seconds : (double)NAN;
    out->block_ratio = q->cells > 0 ? q->run / q->cells : 1;
    out->flops_token = q->made > 0 ? (q->flops - q->flops_before) / (double)q->made : (double)NAN;
    if (q->spec) {
        const struct spec_counts *c = spec_counts(q->spec);
        out->rounds = c->rounds - q->before.rounds;
        out->drafted = c->drafted - q->before.drafted;
        out->accepted = c->accepted - q->before.accepted;
    }
    out->flops_ratio = q->dense > 0 ? q->flops / q->dense : 1;
    return gen_text_settle(&q->text, w->rules, 1, w->watch, q->k, 0);
}
