/* Encodes documents into a stream of ids and serves windows of it in batches. */
#include "data/loader.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "data/shards.h"

struct loader {
    struct shards_split split; /* instead of a stream, when the corpus is tokens already */
    int32_t eot;
    struct ids stream; /* doc eot doc eot ..., each after the tokenizer's bos, if any */
    float *entropy;    /* of each id of the stream; NULL when unknown */
    size_t entropy_cap;
    uint64_t *doc; /* where each document begins in the stream */
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

static int add_document(struct loader *l, const struct corpus *c, size_t i,
                        const struct tokenizer *t, int vocab, struct err *e)
{
    struct document d = corpus_at(c, i);
    size_t from = l->stream.n;
    void *p = l->doc;
    if (mem_grow(&p, &l->doc_cap, l->docs + 1, sizeof *l->doc) < 0)
        return err_set(e, DS_EMEM, "out of memory for %zu documents", l->docs + 1);
    l->doc = p;
    l->doc[l->docs++] = from;
    if (l->bos >= 0 && ids_add(&l->stream, l->bos) < 0)
        return err_set(e, DS_EMEM, "out of memory for %zu tokens", l->stream.n);
    size_t text = l->stream.n;
    int rc = tokenizer_encode(t, d.text, d.len, 0, &l->stream, e);
    if (rc < 0)
        return err_add(e, rc, "document %zu", i);
    size_t n = l->stream.n - text;
    if (tokenizer_eot(t) >= 0 && ids_add(&l->stream, tokenizer_eot(t)) < 0)
        return err_set(e, DS_EMEM, "out of memory for %zu tokens", l->stream.n);
    rc = check_ids(l, from, vocab, i, e);
    if (rc < 0)
        return rc;
    l->bytes += d.len;
    for (size_t k = text; k < text + n; k++)
        l->pieces += l->text_len[l->stream.v[k]];
    return add_entropy(l, &d, text, n, e);
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
    l->split = shards_split(shards_share(corpus_shards(c)), o->is_val, o->val_fraction);
    if (l->split.n < (uint64_t)l->seq + 1)
        return err_set(e, DS_ERANGE, "the %s split has %llu tokens; one window needs %d",
                       o->is_val ? "validation" : "training", (unsigned long long)l->split.n,
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
    if (rc < 0)
        return rc;
    if (l->stream.n < (size_t)l->seq + 1)
        return err_set(e, DS_ERANGE,
                       "the %s split has %zu tokens in %zu of %zu documents; one window needs %d",
                       o->is_val ? "validation" : "training", l->stream.n, l->docs, corpus_count(c),
                       l->seq + 1);
    l->windows = (l->stream.n - 1) / (size_t)l->seq;
    return 0;
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

static void fill_doc_start(const struct loader *l, uint64_t start, int32_t *out)
{
    size_t d = document_of(l, start);
    int32_t first = 0;
    for (int t = 0; t < l->seq; t++) {
        while (d + 1 < l->docs && l->doc[d + 1] <= start + (uint64_t)t) {
            d++;
            first = t;
        }
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
    size_t seq = (size_t)l->seq;
    for (int b = 0; b < batch; b++) {
        if (pos->window >= l->windows) {
            pos->epoch++;
            pos->window = 0;
        }
        uint64_t start = window_at(l, pos->epoch, pos->window++) * seq;
        size_t row = (size_t)b * seq;
        if (l->split.shards) {
            read_row(l, start, input + row, target + row, doc_start ? doc_start + row : NULL);
        } else {
            memcpy(input + row, l->stream.v + start, seq * sizeof *input);
            memcpy(target + row, l->stream.v + start + 1, seq * sizeof *target);
            mask_bos(l, start + 1, target + row);
            if (doc_start)
                fill_doc_start(l, start, doc_start + row);
        }
        for (size_t t = 0; true_entropy && t < seq; t++)
            true_entropy[row + t] = l->entropy ? l->entropy[start + 1 + t] : NAN;
    }
}
