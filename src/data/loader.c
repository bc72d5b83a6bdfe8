/* Encodes documents into a stream of ids and serves windows of it in batches. */
#include "data/loader.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "data/shards.h"
#include "data/token_class.h"

struct loader {
    struct shards_split split; /* instead of a stream, when the corpus is tokens already */
    int32_t eot;
    struct ids stream; /* doc eot doc eot ..., each after the tokenizer's bos, if any */
    float *entropy;    /* of each id of the stream; NULL when unknown */
    size_t entropy_cap;
    struct token_note *note; /* of each id of the stream; NULL: plain text */
    size_t note_cap, noted;
    int is_words, answers_only, has_private;
    uint64_t longest; /* tokens of the longest document of words */
    uint64_t targets; /* tokens with a target in an epoch */
    uint64_t *doc;    /* where each document begins in the stream */
    size_t docs, doc_cap;
    uint32_t *text_len;     /* bytes of text per id; 0 for special tokens */
    int vocab;              /* entries of text_len */
    int32_t bos;            /* -1: none */
    uint64_t bytes, pieces; /* of the texts, and of their pieces */
    uint64_t windows, seed;
    int seq, ordered;
};

/* --- encoding the split
 * --------------------------------------------------------------------------------- */

static int check_ids(const struct loader *l, size_t from, int vocab, size_t doc, struct err *e)
{
    for (size_t i = from; i < l->stream.n; i++)
        if (l->stream.v[i] < 0 || l->stream.v[i] >= vocab)
            return err_set(e, DS_ERANGE,
                           "token id %d (number %zu of document %zu): must be below the model's "
                           "vocabulary of %d",
                           l->stream.v[i], i - from, doc, vocab);
    return 0;
}

static void sum_entropy(struct loader *l, const struct document *d, size_t from, size_t n)
{
    float *out = l->entropy + from;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        uint32_t len = l->text_len[l->stream.v[from + i]];
        for (uint32_t k = 0; k < len && at < d->len; k++)
            sum += (double)d->bits[at++];
        out[i] = (float)sum;
    }
    if (at != d->len) /* the tokenizer changed the text: tokens do not map to its bytes */
        for (size_t i = 0; i < n; i++)
            out[i] = NAN;
}

static int add_entropy(struct loader *l, const struct document *d, size_t from, size_t n,
                       struct err *e)
{
    void *p = l->entropy;
    if (!d->bits)
        return 0;
    if (mem_grow(&p, &l->entropy_cap, l->stream.n, sizeof *l->entropy) < 0)
        return err_set(e, DS_EMEM, "out of memory for %zu tokens", l->stream.n);
    l->entropy = p;
    sum_entropy(l, d, from, n);
    if (from + n < l->stream.n)
        l->entropy[from + n] = d->bits[d->len];
    return 0;
}

/* A token belongs to the span of its last byte. */
static int note_tokens(const struct tokenizer *t, const struct document *d, const int32_t *id,
                       size_t n, struct token_note *out)
{
    size_t at = 0, text = 0, s = 0, end = d->span[0].len;
    for (size_t i = 0; i < n; i++) {
        size_t len = 0;
        tokenizer_piece(t, id[i], &len);
        text += len;
    }
    size_t added = text > d->len ? text - d->len : 0; /* a space put before the text */
    for (size_t i = 0; i < n; i++) {
        size_t len = 0;
        tokenizer_piece(t, id[i], &len);
        at += i == 0 && len >= added ? len - added : len;
        while (s + 1 < d->spans && at > end)
            end += d->span[++s].len;
        const struct span *x = &d->span[s];
        out[i] = (struct token_note){.kind = x->kind, .needed = x->needed, .hidden = x->hidden};
    }
    const struct span *last = &d->span[d->spans - 1];
    out[n] = (struct token_note){.kind = last->len == 0 ? last->kind : SPAN_TEXT};
    return added <= 1 && text - added == d->len;
}

static int check_words(const struct document *d, size_t len, const struct token_note *note,
                       size_t n, const struct tokenizer *t, const int32_t *id, struct err *e)
{
    size_t i = 0, at = 0;
    for (size_t s = 0; s < d->spans && (at += d->span[s].len) <= len; s++) {
        size_t bytes = 0, tokens = 0, piece;
        for (; i < n && bytes < d->span[s].len; i++, tokens++)
            bytes += tokenizer_piece(t, id[i], &piece) ? piece : 0;
        if (d->span[s].kind != SPAN_FILLER && (tokens != 1 || note[i - 1].kind != d->span[s].kind))
            return err_set(e, DS_EUSAGE,
                           "\"%.*s\" is %zu tokens: data.path=hops needs the vocabulary of its own "
                           "words; set data.tokenizer=bpe",
                           (int)d->span[s].len, d->text + at - d->span[s].len, tokens);
    }
    return 0;
}

int loader_encode(const struct tokenizer *t, const struct document *d, size_t len, int words,
                  struct ids *out, struct token_note **note, struct err *e)
{
    size_t from = out->n;
    int rc = tokenizer_encode(t, d->text, len, 0, out, e);
    *note = NULL;
    if (rc < 0 || d->spans == 0)
        return rc;
    size_t n = out->n - from;
    struct token_note *own = mem_alloc(n + 1, sizeof *own);
    if (!own)
        return err_set(e, DS_EMEM, "out of memory for %zu tokens", n);
    struct document part = *d;
    part.len = len;
    if (!note_tokens(t, &part, out->v + from, n, own))
        rc = err_set(e, DS_EFORMAT,
                     "the tokenizer changes its text, so that answers in it cannot be "
                     "located");
    if (rc >= 0 && words)
        rc = check_words(d, len, own, n, t, out->v + from, e);
    if (rc < 0)
        mem_free(own);
    else
        *note = own;
    return rc;
}

static int grow_notes(struct loader *l, size_t n, struct err *e)
{
    void *p = l->note;
    if (mem_grow(&p, &l->note_cap, n, sizeof *l->note) < 0)
        return err_set(e, DS_EMEM, "out of memory for %zu tokens", n);
    l->note = p;
    return 0;
}

/* note: of the n ids from `from` on and of the end-of-text token, or NULL.  Tokens before `from`
 * that have none yet are plain text. */
static int add_notes(struct loader *l, size_t from, size_t n, const struct token_note *note,
                     struct err *e)
{
    if (!note && !l->note)
        return 0;
    int rc = grow_notes(l, l->stream.n, e);
    for (; rc >= 0 && l->noted < l->stream.n; l->noted++) {
        int has = note && l->noted >= from && l->noted <= from + n;
        l->note[l->noted] = has ? note[l->noted - from] : (struct token_note){0};
        l->has_private |= l->note[l->noted].hidden != 0;
    }
    return rc;
}

/* Padding up to `n` tokens; its entropies are unknown. */
static int pad_to(struct loader *l, size_t n, const struct tokenizer *t, struct err *e)
{
    int32_t id = tokenizer_eot(t) >= 0 ? tokenizer_eot(t) : 0;
    void *p = l->entropy;
    if (mem_grow(&p, &l->entropy_cap, n, sizeof *l->entropy) < 0)
        return err_set(e, DS_EMEM, "out of memory for %zu tokens", n);
    l->entropy = p;
    int rc = grow_notes(l, n, e);
    for (; rc >= 0 && l->stream.n < n; l->noted = l->stream.n) {
        l->entropy[l->stream.n] = NAN;
        l->note[l->stream.n] = (struct token_note){.kind = SPAN_PAD};
        if (ids_add(&l->stream, id) < 0)
            rc = err_set(e, DS_EMEM, "out of memory for %zu tokens", n);
    }
    return rc;
}

/* End of the window that holds token `at`. */
static size_t window_end(const struct loader *l, size_t at)
{
    return (at / (size_t)l->seq + 1) * (size_t)l->seq;
}

/* A document of words whose tokens begin at `from` and that would cross the end of its window moves
 * to the next one. */
static int keep_whole(struct loader *l, size_t *from, const struct tokenizer *t, struct err *e)
{
    size_t n = l->stream.n - *from, end = window_end(l, *from);
    l->longest = n > l->longest ? n : l->longest;
    if (l->stream.n <= end || n > (size_t)l->seq)
        return 0;
    int32_t *own = mem_dup(l->stream.v + *from, n * sizeof *own);
    if (!own)
        return err_set(e, DS_EMEM, "out of memory for %zu tokens", l->stream.n);
    l->stream.n = *from;
    int rc = pad_to(l, end, t, e);
    *from = l->stream.n;
    for (size_t i = 0; i < n && rc >= 0; i++)
        if (ids_add(&l->stream, own[i]) < 0)
            rc = err_set(e, DS_EMEM, "out of memory for %zu tokens", l->stream.n);
    mem_free(own);
    return rc;
}

static int add_document(struct loader *l, const struct corpus *c, size_t i,
                        const struct tokenizer *t, int vocab, struct err *e)
{
    struct document d = corpus_at(c, i);
    size_t from = l->stream.n;
    struct token_note *note = NULL;
    void *p = l->doc;
    if (mem_grow(&p, &l->doc_cap, l->docs + 1, sizeof *l->doc) < 0)
        return err_set(e, DS_EMEM, "out of memory for %zu documents", l->docs + 1);
    l->doc = p;
    if (l->bos >= 0 && ids_add(&l->stream, l->bos) < 0)
        return err_set(e, DS_EMEM, "out of memory for %zu tokens", l->stream.n);
    size_t text = l->stream.n;
    int rc = loader_encode(t, &d, d.len, l->is_words, &l->stream, &note, e);
    if (rc < 0)
        return err_add(e, rc, "document %zu", i);
    size_t n = l->stream.n - text, prefix = text - from;
    if (tokenizer_eot(t) >= 0 && ids_add(&l->stream, tokenizer_eot(t)) < 0)
        rc = err_set(e, DS_EMEM, "out of memory for %zu tokens", l->stream.n);
    if (rc >= 0)
        rc = check_ids(l, from, vocab, i, e);
    if (rc >= 0 && l->is_words)
        rc = keep_whole(l, &from, t, e);
    text = from + prefix;
    l->doc[l->docs++] = from;
    for (size_t k = text; k < text + n && rc >= 0; k++)
        l->pieces += l->text_len[l->stream.v[k]];
    l->bytes += d.len;
    if (rc >= 0)
        rc = add_entropy(l, &d, text, n, e);
    if (rc >= 0)
        rc = add_notes(l, text, n, note, e);
    mem_free(note);
    return rc;
}

static int is_pad(const struct loader *l, uint64_t at)
{
    return l->note && l->note[at].kind == SPAN_PAD;
}

static int is_target(const struct loader *l, uint64_t at)
{
    if (!l->note)
        return !l->answers_only;
    if (is_pad(l, at) || (at > 0 && is_pad(l, at - 1)))
        return 0;
    return !l->answers_only || l->note[at].kind == SPAN_ANSWER;
}

const char *loader_split(int is_val, double val_fraction)
{
    return is_val ? "validation split" : val_fraction > 0 ? "training split" : "text";
}

static int no_answers(const struct loader_options *o, struct err *e)
{
    return err_set(e, DS_EUSAGE,
                   "the %s has no answers (data.loss=answers): expected hops, or JSON Lines "
                   "with prompt and completion, or messages",
                   loader_split(o->is_val, o->val_fraction));
}

static int check_windows(struct loader *l, const struct loader_options *o, size_t all,
                         const struct tokenizer *t, struct err *e)
{
    if (l->is_words && l->longest > (uint64_t)l->seq)
        return err_set(e, DS_ERANGE,
                       "the longest document has %llu tokens: must be at most %d, the tokens per "
                       "window (train.seq)",
                       (unsigned long long)l->longest, l->seq);
    /* the last window needs a target as well */
    int rc =
        l->is_words && l->stream.n > 0 ? pad_to(l, window_end(l, l->stream.n - 1) + 1, t, e) : 0;
    if (rc < 0)
        return rc;
    if (l->stream.n < (size_t)l->seq + 1)
        return err_set(
            e, DS_ERANGE, "the %s has %zu tokens in %zu of %zu document%s; one window needs %d%s",
            loader_split(o->is_val, o->val_fraction), l->stream.n, l->docs, all,
            all == 1 ? "" : "s", l->seq + 1,
            l->docs > 0 || all > 1
                ? ""
                : "; blank lines end documents, and with data.format=lines every line does");
    l->windows = (l->stream.n - 1) / (size_t)l->seq;
    for (uint64_t at = 1; at <= l->windows * (uint64_t)l->seq; at++)
        l->targets += (uint64_t)is_target(l, at);
    return l->answers_only && l->targets == 0 ? no_answers(o, e) : 0;
}

static int measure_pieces(struct loader *l, const struct tokenizer *t, struct err *e)
{
    l->vocab = tokenizer_vocab(t);
    l->bos = tokenizer_bos(t);
    l->eot = tokenizer_eot(t);
    l->text_len = mem_alloc((size_t)l->vocab, sizeof *l->text_len);
    if (!l->text_len)
        return err_set(e, DS_EMEM, "out of memory for a vocabulary of %d tokens", l->vocab);
    for (int32_t id = 0; id < l->vocab; id++) {
        size_t n = 0;
        if (id != tokenizer_eot(t) && id != l->bos && tokenizer_piece(t, id, &n))
            l->text_len[id] = (uint32_t)n;
    }
    return 0;
}

/* Tokens already: nothing is encoded or copied. */
static int fill_from_shards(struct loader *l, const struct corpus *c,
                            const struct loader_options *o, struct err *e)
{
    if (l->answers_only)
        return no_answers(o, e);
    l->split = shards_split(shards_share(corpus_shards(c)), o->is_val, o->val_fraction);
    if (l->split.n < (uint64_t)l->seq + 1)
        return err_set(e, DS_ERANGE, "the %s has %llu tokens; one window needs %d",
                       loader_split(o->is_val, o->val_fraction), (unsigned long long)l->split.n,
                       l->seq + 1);
    l->vocab = l->vocab < o->vocab ? l->vocab : o->vocab;
    l->windows = (l->split.n - 1) / (uint64_t)l->seq;
    return 0;
}

static int fill(struct loader *l, const struct corpus *c, const struct tokenizer *t,
                const struct loader_options *o, struct err *e)
{
    int rc = measure_pieces(l, t, e);
    if (rc >= 0 && corpus_shards(c))
        return fill_from_shards(l, c, o, e);
    for (size_t i = 0; rc >= 0 && i < corpus_count(c); i++)
        if (corpus_is_val(c, i, o->val_fraction) == (o->is_val != 0))
            rc = add_document(l, c, i, t, o->vocab, e);
    return rc < 0 ? rc : check_windows(l, o, corpus_count(c), t, e);
}

int loader_open(struct loader **out, const struct corpus *c, const struct tokenizer *t,
                const struct loader_options *o, struct err *e)
{
    if (o->seq < 1 || o->seq > (1 << 24) || !(o->val_fraction >= 0 && o->val_fraction <= 0.5))
        return err_set(
            e, DS_ERANGE,
            "windows of %d tokens, validation fraction %g: must be at least 1, and 0 to 0.5",
            o->seq, o->val_fraction);
    struct loader *l = mem_alloc(1, sizeof *l);
    if (!l)
        return err_set(e, DS_EMEM, "out of memory for a loader");
    l->seq = o->seq;
    l->seed = o->seed;
    l->ordered = o->is_val;
    l->is_words = corpus_is_words(c);
    l->answers_only = o->answers_only;
    int rc = fill(l, c, t, o, e);
    if (rc < 0)
        loader_close(l);
    else
        *out = l;
    return rc;
}

void loader_close(struct loader *l)
{
    if (!l)
        return;
    shards_close(l->split.shards);
    ids_release(&l->stream);
    mem_free(l->entropy);
    mem_free(l->note);
    mem_free(l->doc);
    mem_free(l->text_len);
    mem_free(l);
}

/* --- queries --- */

uint64_t loader_tokens(const struct loader *l)
{
    return l->split.shards ? l->split.n : l->stream.n;
}

uint64_t loader_bytes(const struct loader *l)
{
    return l->bytes;
}

uint64_t loader_windows(const struct loader *l)
{
    return l->windows;
}

int loader_has_private(const struct loader *l)
{
    return l->has_private;
}

void loader_answers(const struct loader *l, uint8_t *is_answer)
{
    for (uint64_t at = 1; l->note && at <= l->windows * (uint64_t)l->seq; at++)
        if (l->note[at].kind == SPAN_ANSWER && is_target(l, at))
            is_answer[l->stream.v[at]] = 1;
}

uint64_t loader_target_bytes(const struct loader *l, const int32_t *target, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        if (target[i] >= 0 && target[i] < l->vocab)
            sum += l->text_len[target[i]];
    if (l->pieces == l->bytes || l->pieces == 0)
        return sum;
    return (uint64_t)llround((double)sum * ((double)l->bytes / (double)l->pieces));
}

/* --- batches
 * ------------------------------------------------------------------------------------------------
 */

static uint32_t round_function(const struct loader *l, uint64_t epoch, uint32_t round,
                               uint32_t half)
{
    uint32_t out[4], counter[4] = {half, round, (uint32_t)epoch, (uint32_t)(epoch >> 32)};
    uint32_t key[2] = {(uint32_t)l->seed ^ RNG_DATA, (uint32_t)(l->seed >> 32)};
    rng_philox(out, counter, key);
    return out[0];
}

/* Window number `i` of an epoch: a four-round Feistel network over the next even power of two,
 * walked until it falls inside.  A permutation of any size that needs no memory and can start
 * anywhere. */
static uint64_t window_at(const struct loader *l, uint64_t epoch, uint64_t i)
{
    if (l->ordered || l->windows < 2)
        return i;
    int half = 1;
    while (half < 31 && (uint64_t)1 << 2 * half < l->windows)
        half++;
    uint32_t mask = ((uint32_t)1 << half) - 1;
    do {
        uint32_t left = (uint32_t)(i >> half), right = (uint32_t)i & mask;
        for (uint32_t round = 0; round < 4; round++) {
            uint32_t mixed = left ^ (round_function(l, epoch, round, right) & mask);
            left = right;
            right = mixed;
        }
        i = (uint64_t)left << half | right;
    } while (i >= l->windows);
    return i;
}

/* The last document that begins at or before `at`. */
static size_t document_of(const struct loader *l, uint64_t at)
{
    size_t low = 0, high = l->docs;
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (l->doc[mid] <= at)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* Padding is a document of its own, so that it takes no place in the ranks of the one before. */
static void fill_doc_start(const struct loader *l, uint64_t start, int32_t *out)
{
    size_t d = document_of(l, start);
    int32_t first = 0;
    for (int t = 0; t < l->seq; t++) {
        while (d + 1 < l->docs && l->doc[d + 1] <= start + (uint64_t)t) {
            d++;
            first = t;
        }
        if (t > 0 && is_pad(l, start + (uint64_t)t) && !is_pad(l, start + (uint64_t)t - 1))
            first = t;
        out[t] = first;
    }
}

/* A beginning-of-text token is not predicted: it carries no information and is not text. */
static void mask_bos(const struct loader *l, uint64_t from, int32_t *target)
{
    for (size_t d = document_of(l, from); l->bos >= 0 && d < l->docs; d++) {
        if (l->doc[d] >= from + (uint64_t)l->seq)
            break;
        if (l->doc[d] >= from)
            target[l->doc[d] - from] = -1;
    }
}

static void mask_targets(const struct loader *l, uint64_t from, int32_t *target)
{
    for (uint64_t t = 0; l->note && t < (uint64_t)l->seq; t++)
        if (!is_target(l, from + t))
            target[t] = -1;
}

/* Neighbours of one document with the same number are one span. */
static void fill_private(const struct loader *l, uint64_t start, int32_t *out)
{
    size_t d = document_of(l, start);
    for (int t = 0; t < l->seq; t++) {
        uint64_t at = start + (uint64_t)t;
        int is_first = t == 0;
        while (d + 1 < l->docs && l->doc[d + 1] <= at) {
            d++;
            is_first = 1;
        }
        int hidden = l->note ? l->note[at].hidden : 0;
        out[t] = !hidden ? -1 : !is_first && hidden == l->note[at - 1].hidden ? out[t - 1] : t;
    }
}

uint8_t loader_class(const struct token_note *note)
{
    int is_text = note->kind == SPAN_TEXT || note->kind == SPAN_PAD;
    return is_text ? CLASS_UNKNOWN : (uint8_t)(CLASS_OTHER + note->kind);
}

static void fill_notes(const struct loader *l, uint64_t start, size_t row,
                       const struct loader_rows *r)
{
    const struct token_note *in = l->note ? l->note + start : NULL, *out = in ? in + 1 : NULL;
    for (size_t t = 0; t < (size_t)l->seq; t++) {
        if (r->true_entropy)
            r->true_entropy[row + t] = l->entropy ? l->entropy[start + 1 + t] : NAN;
        if (r->needed)
            r->needed[row + t] = l->is_words && out[t].kind != SPAN_PAD ? out[t].needed : NAN;
        if (r->class_of)
            r->class_of[row + t] = in ? loader_class(&in[t]) : CLASS_UNKNOWN;
        if (r->target_class)
            r->target_class[row + t] = in ? loader_class(&out[t]) : CLASS_UNKNOWN;
    }
}

/* The same for token shards, whose documents are known by the end-of-text tokens in the row. */
static void read_row(const struct loader *l, uint64_t start, int32_t *input, int32_t *target,
                     int32_t *doc_start)
{
    int seq = l->seq;
    int32_t first = 0;
    shards_read(&l->split, start, (size_t)seq, l->vocab, input);
    memcpy(target, input + 1, (size_t)(seq - 1) * sizeof *target);
    shards_read(&l->split, start + (uint64_t)seq, 1, l->vocab, target + seq - 1);
    for (int t = 0; t < seq; t++) {
        if (doc_start)
            doc_start[t] = first;
        if (input[t] == l->eot)
            first = t + 1;
        if (l->bos >= 0 && l->bos != l->eot && target[t] == l->bos)
            target[t] = -1;
    }
}

int loader_check(const struct loader *l, struct err *e)
{
    return l->split.shards ? shards_check(l->split.shards, e) : 0;
}

void loader_next(struct loader *l, struct loader_pos *pos, int batch, int32_t *input,
                 int32_t *target, int32_t *doc_start, float *true_entropy)
{
    loader_read(l, pos, batch,
                &(struct loader_rows){.input = input,
                                      .target = target,
                                      .doc_start = doc_start,
                                      .true_entropy = true_entropy});
}

void loader_read(struct loader *l, struct loader_pos *pos, int batch, const struct loader_rows *r)
{
    size_t seq = (size_t)l->seq;
    for (int b = 0; b < batch; b++) {
        if (pos->window >= l->windows) {
            pos->epoch++;
            pos->window = 0;
        }
        uint64_t start = window_at(l, pos->epoch, pos->window++) * seq;
        size_t row = (size_t)b * seq;
        if (l->split.shards) {
            read_row(l, start, r->input + row, r->target + row,
                     r->doc_start ? r->doc_start + row : NULL);
        } else {
            memcpy(r->input + row, l->stream.v + start, seq * sizeof *r->input);
            memcpy(r->target + row, l->stream.v + start + 1, seq * sizeof *r->target);
            mask_bos(l, start + 1, r->target + row);
            mask_targets(l, start + 1, r->target + row);
            if (r->doc_start)
                fill_doc_start(l, start, r->doc_start + row);
        }
        if (r->private_start)
            fill_private(l, start, r->private_start + row);
        fill_notes(l, start, row, r);
    }
}
