/* Encodes a split and cuts it into the windows that task=ppl scores. */
#include "eval/perplexity_windows.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

const char *const windows_name[] = {"packed", "documents", "sliding"};

/* Tokens [at, at + n) of the stream go in; the first `skip` of them predict nothing. */
struct window {
    uint64_t at, bytes;
    int32_t n, skip;
};

struct windows {
    struct windows_spec spec;
    struct loader *loader; /* packed only */
    const struct tokenizer *tokenizer;
    struct ids stream; /* documents, sliding: each document after its prefix */
    struct window *v;
    size_t n, cap;
};

int windows_rows_new(struct windows_rows *x, size_t n, struct err *e)
{
    struct loader_rows *r = &x->r;
    r->input = mem_alloc(n, sizeof *r->input);
    r->target = mem_alloc(n, sizeof *r->target);
    r->doc_start = mem_alloc(n, sizeof *r->doc_start);
    r->true_entropy = mem_alloc(n, sizeof *r->true_entropy);
    r->needed = mem_alloc(n, sizeof *r->needed);
    r->class_of = mem_alloc(n, 1);
    r->target_class = mem_alloc(n, 1);
    x->private_start = mem_alloc(n, sizeof *x->private_start);
    return r->input && r->target && r->doc_start && r->true_entropy && r->needed && r->class_of &&
                   r->target_class && x->private_start
               ? 0
               : err_set(e, DS_EMEM, "out of memory for a batch of %zu tokens", n);
}

void windows_rows_free(struct windows_rows *x)
{
    mem_free(x->r.input);
    mem_free(x->r.target);
    mem_free(x->r.doc_start);
    mem_free(x->r.true_entropy);
    mem_free(x->r.needed);
    mem_free(x->r.class_of);
    mem_free(x->r.target_class);
    mem_free(x->private_start);
}

/* ---- documents ---- */

static int add_window(struct windows *w, uint64_t at, int64_t n, int64_t skip, struct err *e)
{
    void *v = w->v;
    if (mem_grow(&v, &w->cap, w->n + 1, sizeof *w->v) < 0)
        return err_set(e, DS_EMEM, "out of memory for %zu windows", w->n + 1);
    w->v = v;
    w->v[w->n++] = (struct window){
        .at = at,
        .n = (int32_t)n,
        .skip = (int32_t)skip,
    };
    return 0;
}

/* Cuts the n tokens from `at` into windows; all but the first token can be predicted. */
static int cut_document(struct windows *w, uint64_t at, int64_t n_all, struct err *e)
{
    const struct windows_spec *s = &w->spec;
    int64_t all = (s->kind == WINDOWS_DOCUMENTS && n_all > s->seq ? s->seq : n_all) - 1;
    int rc = 0;
    for (int64_t done = 0; done < all && rc == 0;) {
        int64_t most = done == 0 ? s->seq : s->stride;
        int64_t n = all - done < most ? all - done : most;
        int64_t end = done + n, inputs = end < s->seq ? end : s->seq;
        rc = add_window(w, at + (uint64_t)(end - inputs), inputs, inputs - n, e);
        done = end;
    }
    return rc;
}

static int check_ids(const struct windows *w, uint64_t from, size_t doc, struct err *e)
{
    for (uint64_t i = from; i < w->stream.n; i++)
        if (w->stream.v[i] < 0 || w->stream.v[i] >= w->spec.vocab)
            return err_set(e, DS_ERANGE,
                           "token %d of document %zu: must be below the model's vocabulary of %d",
                           w->stream.v[i], doc, w->spec.vocab);
    return 0;
}

/* Bytes of the piece at `at`, without a space that the tokenizer put in front of the text, which
 * begins at `text`. */
static size_t piece_bytes(const struct windows *w, const struct document *d, uint64_t text,
                          uint64_t at)
{
    size_t n = 0;
    const char *piece = tokenizer_piece(w->tokenizer, w->stream.v[at], &n);
    return n - (at == text && n > 0 && piece[0] == ' ' && d->text[0] != ' ');
}

/* Counts the bytes of text that the windows from `first` on predict.  Unknown tokens share what the
 * other pieces lack; without them, normalisation has changed the text and all are scaled.  Sums are
 * rounded, so that windows over all of a document have all its bytes. */
static void count_bytes(struct windows *w, const struct document *d, size_t first, uint64_t text)
{
    int32_t unk = tokenizer_unk(w->tokenizer);
    double known = 0, unknown = 0, each = 0, scale = 1, sum = 0, len = (double)d->len;
    uint64_t given = 0;
    for (uint64_t i = text; i < w->stream.n; i++)
        if (w->stream.v[i] == unk)
            unknown++;
        else
            known += (double)piece_bytes(w, d, text, i);
    if (unknown > 0 && known < len)
        each = (len - known) / unknown;
    else if (known > 0)
        scale = len / known;
    for (size_t k = first; k < w->n; k++) {
        struct window *x = &w->v[k];
        for (int32_t i = x->skip + 1; i <= x->n; i++)
            sum += w->stream.v[x->at + (uint64_t)i] == unk
                       ? each
                       : scale * (double)piece_bytes(w, d, text, x->at + (uint64_t)i);
        x->bytes = (uint64_t)llround(sum) - given;
        given += x->bytes;
    }
}

static int add_document(struct windows *w, const struct document *d, size_t i, struct err *e)
{
    const struct tokenizer *t = w->tokenizer;
    int32_t prefix = tokenizer_bos(t) >= 0 ? tokenizer_bos(t) : tokenizer_eot(t);
    uint64_t at = w->stream.n, text = at + (prefix >= 0);
    size_t first = w->n;
    int rc = prefix >= 0 && ids_add(&w->stream, prefix) < 0
                 ? err_set(e, DS_EMEM, "out of memory for a document")
                 : 0;
    if (rc == 0)
        rc = tokenizer_encode(t, d->text, d->len, 0, &w->stream, e);
    if (rc == 0)
        rc = check_ids(w, at, i, e);
    if (rc == 0 && w->stream.n > at)
        rc = cut_document(w, at, (int64_t)(w->stream.n - at), e);
    if (rc < 0)
        return err_add(e, rc, "document %zu", i);
    count_bytes(w, d, first, text);
    return 0;
}

static int read_documents(struct windows *w, const struct corpus *c, struct err *e)
{
    const struct windows_spec *s = &w->spec;
    int rc = 0;
    for (size_t i = 0; i < corpus_count(c) && rc == 0; i++) {
        struct document d = corpus_at(c, i);
        if (corpus_is_val(c, i, s->val_fraction) == (s->is_val != 0))
            rc = add_document(w, &d, i, e);
    }
    if (rc == 0 && w->n == 0)
        rc = err_set(e, DS_ERANGE, "the %s has no document with a token to predict",
                     loader_split(s->is_val, s->val_fraction));
    return rc;
}

int windows_open(struct windows **out, const struct corpus *c, const struct tokenizer *t,
                 const struct windows_spec *s, struct err *e)
{
    if (s->kind != WINDOWS_PACKED && (corpus_is_words(c) || s->answers_only))
        return err_set(e, DS_EUSAGE, "windows=%s: %s needs windows=packed", windows_name[s->kind],
                       s->answers_only ? "data.loss=answers" : "data.path=hops");
    struct windows *w = mem_alloc(1, sizeof *w);
    if (!w)
        return err_set(e, DS_EMEM, "out of memory for windows");
    w->spec = *s;
    w->tokenizer = t;
    const struct loader_options o = {.is_val = s->is_val,
                                     .val_fraction = s->val_fraction,
                                     .seq = s->seq,
                                     .vocab = s->vocab,
                                     .answers_only = s->answers_only};
    int rc = s->kind != WINDOWS_PACKED && corpus_shards(c)
                 ? err_set(e, DS_EUSAGE, "token shards have no documents: expected windows=packed")
             : s->kind == WINDOWS_PACKED ? loader_open(&w->loader, c, t, &o, e)
                                         : read_documents(w, c, e);
    if (rc < 0)
        windows_close(w);
    else
        *out = w;
    return rc;
}

void windows_close(struct windows *w)
{
    if (!w)
        return;
    loader_close(w->loader);
    ids_release(&w->stream);
    mem_free(w->v);
    mem_free(w);
}

int windows_check(const struct windows *w, struct err *e)
{
    return w->loader ? loader_check(w->loader, e) : 0;
}

/* ---- queries ---- */

int windows_has_private(const struct windows *w)
{
    return w->loader && loader_has_private(w->loader);
}

int64_t windows_count(const struct windows *w)
{
    return w->loader ? (int64_t)loader_windows(w->loader) : (int64_t)w->n;
}

static int64_t predicts(const struct windows *w, int64_t i)
{
    const struct window *x = w->loader ? NULL : &w->v[(size_t)i % w->n];
    return x ? x->n - x->skip : w->spec.seq;
}

int64_t windows_for(const struct windows *w, int64_t tokens)
{
    int64_t n = 0, all = windows_count(w);
    if (w->loader) {
        n = (tokens + w->spec.seq - 1) / w->spec.seq;
        return n < all ? n : all;
    }
    for (int64_t sum = 0; n < all && sum < tokens; n++)
        sum += predicts(w, n);
    return n;
}

int64_t windows_tokens(const struct windows *w, int64_t from, int64_t n)
{
    int64_t sum = 0;
    for (int64_t i = from; i < from + n; i++)
        sum += predicts(w, i);
    return sum;
}

/* ---- batches ---- */

static int add_rows(const struct windows *w, const struct window *x, int at,
                    struct windows_rows *rows)
{
    for (int i = 0; i < x->n; i++, at++) {
        const int32_t *id = &w->stream.v[x->at + (uint64_t)i];
        rows->r.input[at] = id[0];
        rows->r.target[at] = i < x->skip ? -1 : id[1];
        rows->r.doc_start[at] = at - i;
    }
    return at;
}

uint64_t windows_next(struct windows *w, struct loader_pos *at, int n, struct windows_rows *x,
                      struct batch *b)
{
    uint64_t bytes = 0;
    int rows = n * w->spec.seq;
    *b = (struct batch){.B = n,
                        .T = w->spec.seq,
                        .id = x->r.input,
                        .target = x->r.target,
                        .doc_start = x->r.doc_start};
    x->known = (struct measure_known){0};
    if (w->loader) {
        x->r.private_start = windows_has_private(w) ? x->private_start : NULL;
        b->private_start = x->r.private_start;
        loader_read(w->loader, at, n, &x->r);
        x->known = (struct measure_known){x->r.true_entropy, x->r.needed, x->r.class_of,
                                          x->r.target_class};
        return loader_target_bytes(w->loader, x->r.target, (size_t)rows);
    }
    rows = 0;
    for (int i = 0; i < n; i++) {
        const struct window *y = &w->v[at->window++ % w->n];
        rows = add_rows(w, y, rows, x);
        bytes += y->bytes;
    }
    b->B = 1;
    b->T = rows;
    return bytes;
}
