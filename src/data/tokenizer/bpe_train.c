/* Training of byte-level BPE.  Words are counted once; each merge then touches only the places
 * where its pair occurs.  The word array has the layout of bpe_long.c: one slot per byte, -(length)
 * in the last slot of a longer token; a WALL slot ends every word. */
#include "base/mem.h"
#include "data/tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum { WALL = INT32_MIN, INSIDE = INT32_MIN + 1, FIRST_BYTE_ID = 1, LEAST_COUNT = 2 };

struct word {
    uint64_t hash;
    uint32_t start, len; /* into the slot array */
    int64_t count;       /* 0: a free table entry */
};
struct pair {
    int32_t left, right;
    int64_t count;
    uint32_t *pos; /* positions where it occurred at some time; checked when used */
    size_t n, cap;
    int touched;
};
struct top {
    int64_t count;
    int32_t left, right;
    uint32_t pair;
};
struct train {
    struct word *word; /* open addressing, a power of two */
    size_t words, word_cap;
    struct str text; /* the distinct words, each followed by a 0: the slots' bytes */
    int32_t *slot;
    uint32_t *word_at; /* word of a slot */
    size_t n;
    uint32_t *length; /* of each id */
    int32_t vocab, vocab_max;
    struct map id_of; /* bytes of a token -> id */
    struct bpe_slot *index;
    size_t index_cap;
    struct pair *pair;
    size_t pairs, pair_cap;
    struct top *heap;
    size_t heap_n, heap_cap;
    uint32_t *touched;
    size_t touched_n, touched_cap;
    struct tokenizer *t;
};

/* --- counting words ------------------------------------------------------------------------------
 */

static struct word *word_find(const struct train *r, uint64_t hash, const char *s, size_t n)
{
    size_t at = hash & (r->word_cap - 1);
    while (r->word[at].count && (r->word[at].hash != hash || r->word[at].len != n ||
                                 memcmp(r->text.p + r->word[at].start, s, n) != 0))
        at = (at + 1) & (r->word_cap - 1);
    return &r->word[at];
}

static int words_grow(struct train *r)
{
    if (r->words * 2 < r->word_cap)
        return 0;
    size_t cap = r->word_cap ? r->word_cap * 2 : 1024;
    struct word *old = r->word, *grown = mem_alloc(cap, sizeof *grown);
    if (!grown)
        return DS_EMEM;
    for (size_t i = 0; i < r->word_cap; i++) {
        if (!old[i].count)
            continue;
        size_t at = old[i].hash & (cap - 1);
        while (grown[at].count)
            at = (at + 1) & (cap - 1);
        grown[at] = old[i];
    }
    mem_free(old);
    r->word = grown;
    r->word_cap = cap;
    return 0;
}

static int count_word(void *ctx, const char *s, size_t n, struct err *e)
{
    struct train *r = ctx;
    if (words_grow(r) < 0)
        return err_set(e, DS_EMEM, "out of memory for %zu distinct words", r->words);
    uint64_t hash = hash64(s, n, 0);
    struct word *w = word_find(r, hash, s, n);
    if (w->count++)
        return 0;
    if (r->text.len + n + 1 > INT32_MAX)
        return err_set(e, DS_ERANGE, "more than 2 GiB of distinct words; train on a sample");
    *w =
        (struct word){.hash = hash, .start = (uint32_t)r->text.len, .len = (uint32_t)n, .count = 1};
    r->words++;
    str_add_bytes(&r->text, s, n);
    str_add_char(&r->text, '\0');
    return r->text.failed ? err_set(e, DS_EMEM, "out of memory for %zu distinct words", r->words)
                          : 0;
}

/* --- pairs
 * ---------------------------------------------------------------------------------------- */

static uint64_t key_of(int32_t left, int32_t right)
{
    return ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
}

static size_t key_slot(uint64_t key, size_t cap)
{
    key *= 0x9E3779B97F4A7C15u;
    return (size_t)(key ^ key >> 29) & (cap - 1);
}

static int index_grow(struct train *r)
{
    if (r->pairs * 2 < r->index_cap)
        return 0;
    size_t cap = r->index_cap ? r->index_cap * 2 : 4096;
    struct bpe_slot *grown = mem_alloc(cap, sizeof *grown);
    if (!grown)
        return DS_EMEM;
    mem_free(r->index);
    r->index = grown;
    r->index_cap = cap;
    for (size_t i = 0; i < r->pairs; i++) {
        uint64_t key = key_of(r->pair[i].left, r->pair[i].right);
        size_t at = key_slot(key, cap);
        while (grown[at].key)
            at = (at + 1) & (cap - 1);
        grown[at] = (struct bpe_slot){.key = key, .id = (int32_t)i};
    }
    return 0;
}

/* Index of a pair, created if new; negative when out of memory. */
static int64_t pair_of(struct train *r, int32_t left, int32_t right)
{
    if (index_grow(r) < 0)
        return DS_EMEM;
    uint64_t key = key_of(left, right);
    size_t at = key_slot(key, r->index_cap);
    while (r->index[at].key && r->index[at].key != key)
        at = (at + 1) & (r->index_cap - 1);
    if (r->index[at].key)
        return r->index[at].id;
    void *p = r->pair;
    if (mem_grow(&p, &r->pair_cap, r->pairs + 1, sizeof *r->pair) < 0)
        return DS_EMEM;
    r->pair = p;
    r->pair[r->pairs] = (struct pair){.left = left, .right = right};
    r->index[at] = (struct bpe_slot){.key = key, .id = (int32_t)r->pairs};
    return (int64_t)r->pairs++;
}

/* Adds `by` to the count of the pair at p, and records the position if the count grows. */
static int pair_count(struct train *r, int32_t left, int32_t right, int64_t by, uint32_t p)
{
    int64_t at = pair_of(r, left, right);
    if (at < 0)
        return DS_EMEM;
    struct pair *q = &r->pair[at];
    q->count += by;
    if (by < 0)
        return 0; /* the heap entry is corrected when it is popped */
    void *v = q->pos;
    if (mem_grow(&v, &q->cap, q->n + 1, sizeof *q->pos) < 0)
        return DS_EMEM;
    q->pos = v;
    q->pos[q->n++] = p;
    if (q->touched)
        return 0;
    q->touched = 1;
    v = r->touched;
    if (mem_grow(&v, &r->touched_cap, r->touched_n + 1, sizeof *r->touched) < 0)
        return DS_EMEM;
    r->touched = v;
    r->touched[r->touched_n++] = (uint32_t)at;
    return 0;
}

/* --- the heap: highest count first, then the lower pair of ids
 * --------------------------------------- */

static int top_before(const struct top *a, const struct top *b)
{
    if (a->count != b->count)
        return a->count > b->count;
    return a->left != b->left ? a->left < b->left : a->right < b->right;
}

static int heap_push(struct train *r, uint32_t pair)
{
    const struct pair *q = &r->pair[pair];
    void *p = r->heap;
    if (mem_grow(&p, &r->heap_cap, r->heap_n + 1, sizeof *r->heap) < 0)
        return DS_EMEM;
    r->heap = p;
    struct top t = {q->count, q->left, q->right, pair};
    size_t i = r->heap_n++;
    for (; i > 0 && top_before(&t, &r->heap[(i - 1) / 2]); i = (i - 1) / 2)
        r->heap[i] = r->heap[(i - 1) / 2];
    r->heap[i] = t;
    return 0;
}

static struct top heap_pop(struct train *r)
{
    struct top best = r->heap[0], last = r->heap[--r->heap_n];
    size_t i = 0;
    for (size_t c; (c = 2 * i + 1) < r->heap_n; i = c) {
        if (c + 1 < r->heap_n && top_before(&r->heap[c + 1], &r->heap[c]))
            c++;
        if (!top_before(&r->heap[c], &last))
            break;
        r->heap[i] = r->heap[c];
    }
    r->heap[i] = last;
    return best;
}

static int push_touched(struct train *r)
{
    for (size_t i = 0; i < r->touched_n; i++) {
        r->pair[r->touched[i]].touched = 0;
        if (heap_push(r, r->touched[i]) < 0)
            return DS_EMEM;
    }
    r->touched_n = 0;
    return 0;
}

/* Entries are pushed when counts rise and checked when popped: a stale one is pushed again with
 * the current count.  1 with *which, 0 when no remaining pair is worth a token. */
static int best_pair(struct train *r, uint32_t *which)
{
    while (r->heap_n) {
        struct top t = heap_pop(r);
        const struct pair *q = &r->pair[t.pair];
        if (q->count < LEAST_COUNT)
            continue;
        if (q->count < t.count && heap_push(r, t.pair) < 0)
            return DS_EMEM;
        if (q->count != t.count)
            continue;
        *which = t.pair;
        return 1;
    }
    return 0;
}

/* --- merging
 * ------------------------------------------------------------------------------------------ */

static uint32_t before(const struct train *r, uint32_t p)
{
    int32_t last = r->slot[p - 1];
    return last >= 0 ? p - 1 : p - (uint32_t)-last;
}

static int merge_at(struct train *r, uint32_t p, int32_t a, int32_t b, int32_t id)
{
    if (r->slot[p] != a)
        return 0;
    uint32_t q = p + r->length[a];
    if (r->slot[q] != b)
        return 0;
    uint32_t end = q + r->length[b];
    int64_t count = r->word[r->word_at[p]].count;
    int rc = pair_count(r, a, b, -count, 0);
    r->slot[q] = INSIDE;
    r->slot[p] = id;
    r->slot[end - 1] = -(int32_t)(end - p);
    if (rc >= 0 && p > 0 && r->slot[p - 1] != WALL) {
        uint32_t o = before(r, p);
        rc = pair_count(r, r->slot[o], a, -count, 0);
        if (rc >= 0)
            rc = pair_count(r, r->slot[o], id, count, o);
    }
    if (rc >= 0 && r->slot[end] != WALL) {
        rc = pair_count(r, b, r->slot[end], -count, 0);
        if (rc >= 0)
            rc = pair_count(r, id, r->slot[end], count, p);
    }
    return rc;
}

static int by_position(const void *x, const void *y)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return (a > b) - (a < b);
}

static int merge_pair(struct train *r, uint32_t which, int32_t id)
{
    struct pair *q = &r->pair[which];
    uint32_t *pos = q->pos;
    size_t n = q->n;
    int32_t a = q->left, b = q->right;
    q->pos = NULL;
    q->n = q->cap = 0;
    qsort(pos, n, sizeof *pos, by_position);
    int rc = 0;
    for (size_t i = 0; rc >= 0 && i < n; i++)
        rc = merge_at(r, pos[i], a, b, id);
    mem_free(pos);
    return rc < 0 ? rc : push_touched(r);
}

/* Id of the merged bytes: a new one, or that of an earlier pair with the same bytes. */
static int32_t merged_id(struct train *r, int32_t a, int32_t b, struct err *e)
{
    char text[2 * BPE_TRAIN_BYTES];
    size_t na, nb;
    int64_t id;
    const char *pa = tokenizer_piece(r->t, a, &na), *pb = tokenizer_piece(r->t, b, &nb);
    memcpy(text, pa, na);
    memcpy(text + na, pb, nb);
    if (map_get(&r->id_of, text, na + nb, &id))
        return (int32_t)id;
    id = r->vocab;
    if (map_set(&r->id_of, text, na + nb, id) < 0)
        return err_set(e, DS_EMEM, "out of memory for the vocabulary");
    int rc = tokenizer_set_piece(r->t, (int32_t)id, text, na + nb, e);
    if (rc < 0)
        return rc;
    r->length[id] = (uint32_t)(na + nb);
    r->vocab++;
    return (int32_t)id;
}

static int learn(struct train *r, struct err *e)
{
    while (r->vocab < r->vocab_max) {
        uint32_t best = 0;
        int found = best_pair(r, &best);
        if (found < 0)
            return err_set(e, DS_EMEM, "out of memory training a tokenizer");
        if (!found)
            return 0;
        int32_t a = r->pair[best].left, b = r->pair[best].right;
        if (r->length[a] + r->length[b] > BPE_TRAIN_BYTES)
            continue; /* removed from the heap until its count rises */
        int32_t id = merged_id(r, a, b, e);
        if (id < 0)
            return id;
        int rc = bpe_add_merge(r->t->bpe, a, b, id, e);
        if (rc < 0)
            return rc;
        if (merge_pair(r, best, id) < 0)
            return err_set(e, DS_EMEM, "out of memory training a tokenizer");
    }
    return 0;
}

/* --- setting up
 * ---------------------------------------------------------------------------------------- */

/* Slots from the words' text, then every pair counted once, in text order. */
static int lay_out(struct train *r)
{
    r->n = r->text.len;
    r->slot = mem_alloc(r->n + 1, sizeof *r->slot);
    r->word_at = mem_alloc(r->n + 1, sizeof *r->word_at);
    r->length = mem_alloc((size_t)r->vocab_max, sizeof *r->length);
    if (!r->slot || !r->word_at || !r->length)
        return DS_EMEM;
    for (size_t i = 0; i < r->word_cap; i++) {
        const struct word *w = &r->word[i];
        if (!w->count)
            continue;
        for (uint32_t k = 0; k < w->len; k++) {
            r->slot[w->start + k] = FIRST_BYTE_ID + (unsigned char)r->text.p[w->start + k];
            r->word_at[w->start + k] = (uint32_t)i;
        }
        r->slot[w->start + w->len] = WALL;
    }
    for (int i = 0; i < 256; i++)
        r->length[FIRST_BYTE_ID + i] = 1;
    for (uint32_t p = 0; p + 1 < r->n; p++)
        if (r->slot[p] != WALL && r->slot[p + 1] != WALL &&
            pair_count(r, r->slot[p], r->slot[p + 1], r->word[r->word_at[p]].count, p) < 0)
            return DS_EMEM;
    return push_touched(r);
}

static int start(struct train *r, int vocab, size_t words, struct err *e)
{
    struct tokenizer *t = tokenizer_new("bpe", vocab + (int)words, e);
    r->t = t;
    r->vocab = FIRST_BYTE_ID + 256;
    r->vocab_max = vocab;
    if (!t)
        return DS_EMEM;
    t->bpe = mem_alloc(1, sizeof *t->bpe);
    if (!t->bpe)
        return err_set(e, DS_EMEM, "out of memory for a tokenizer");
    t->bpe->unk = -1;
    struct added_token end = {.text = (char[]){"<|endoftext|>"}, .len = 13, .id = 0, .special = 1};
    t->eot = 0;
    int rc = tokenizer_set_piece(t, 0, end.text, end.len, e);
    if (rc >= 0)
        rc = tokenizer_add_special(t, &end, e);
    for (int b = 0; rc >= 0 && b < 256; b++) {
        rc = tokenizer_set_piece(t, FIRST_BYTE_ID + b, &(char){(char)b}, 1, e);
        t->bpe->byte_id[b] = FIRST_BYTE_ID + b;
    }
    return rc < 0
               ? rc
               : pretok_add(&t->bpe->pre,
                            &(struct pretok_stage){.pattern = (char *)(uintptr_t)pretok_gpt2}, e);
}

static void release(struct train *r)
{
    for (size_t i = 0; i < r->pairs; i++)
        mem_free(r->pair[i].pos);
    mem_free(r->word);
    str_release(&r->text);
    mem_free(r->slot);
    mem_free(r->word_at);
    mem_free(r->length);
    map_release(&r->id_of);
    mem_free(r->index);
    mem_free(r->pair);
    mem_free(r->heap);
    mem_free(r->touched);
    tokenizer_free(r->t);
}

static int add_words(struct tokenizer *t, int first, const char *const *word, size_t n,
                     struct err *e)
{
    int rc = 0;
    for (size_t i = 0; i < n && rc >= 0; i++) {
        struct added_token a = {
            .text = (char *)(uintptr_t)word[i], .len = strlen(word[i]), .id = first + (int)i};
        rc = tokenizer_set_piece(t, a.id, a.text, a.len, e);
        if (rc >= 0)
            rc = tokenizer_add_special(t, &a, e);
    }
    return rc;
}

int tokenizer_train_bpe(struct tokenizer **out, const char *const *texts, const size_t *len,
                        size_t n, int vocab, struct err *e)
{
    return tokenizer_new_words(out, NULL, 0, texts, len, n, vocab, e);
}

/* Without texts: only end-of-text and the words. */
static int new_words_only(struct tokenizer **out, const char *const *word, size_t words,
                          struct err *e)
{
    struct tokenizer *t = tokenizer_new("bpe", 1 + (int)words, e);
    struct added_token end = {.text = (char[]){"<|endoftext|>"}, .len = 13, .id = 0, .special = 1};
    if (!t)
        return DS_EMEM;
    t->eot = 0;
    t->bpe = mem_alloc(1, sizeof *t->bpe);
    int rc = t->bpe ? 0 : err_set(e, DS_EMEM, "out of memory for a tokenizer");
    for (int b = 0; b < 256 && rc >= 0; b++)
        t->bpe->byte_id[b] = -1;
    if (rc >= 0) {
        t->bpe->unk = -1;
        rc = tokenizer_set_piece(t, 0, end.text, end.len, e);
    }
    if (rc >= 0)
        rc = tokenizer_add_special(t, &end, e);
    if (rc >= 0)
        rc = add_words(t, 1, word, words, e);
    if (rc >= 0)
        rc = pretok_add(&t->bpe->pre,
                        &(struct pretok_stage){.pattern = (char *)(uintptr_t)pretok_gpt2}, e);
    if (rc >= 0)
        rc = tokenizer_ready(t, e);
    if (rc < 0)
        tokenizer_free(t);
    else
        *out = t;
    return rc;
}

int tokenizer_new_words(struct tokenizer **out, const char *const *word, size_t words,
                        const char *const *texts, const size_t *len, size_t n, int vocab,
                        struct err *e)
{
    struct train r = {0};
    if (n == 0 && words > 0)
        return new_words_only(out, word, words, e);
    if (vocab < FIRST_BYTE_ID + 256 || vocab > BPE_IDS_MAX)
        return err_set(e, DS_ERANGE, "byte-level vocabulary size must be %d to %d, not %d",
                       FIRST_BYTE_ID + 256, BPE_IDS_MAX, vocab);
    int rc = start(&r, vocab, words, e);
    for (size_t i = 0; rc >= 0 && i < n; i++)
        rc = pretok_walk(&r.t->bpe->pre, texts[i], len[i], count_word, &r, e);
    if (rc >= 0 && lay_out(&r) < 0)
        rc = err_set(e, DS_EMEM, "out of memory training a tokenizer");
    if (rc >= 0)
        rc = learn(&r, e);
    if (rc >= 0) {
        /* fewer than requested if the text has too few pairs */
        r.t->vocab = r.vocab + (int)words;
        rc = add_words(r.t, r.vocab, word, words, e);
    }
    if (rc >= 0) {
        rc = tokenizer_ready(r.t, e);
    }
    if (rc >= 0) {
        *out = r.t;
        r.t = NULL;
    }
    release(&r);
    return rc < 0 ? rc : 0;
}
