/* BPE over characters with byte fallback, as in SentencePiece. */
#include "base/hash.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "data/tokenizer/bpe.h"

#include <string.h>

static const char lower_block[] = "\xE2\x96\x81"; /* U+2581, which replaces a space */

struct bpe_chars *bpe_chars_new(int vocab, struct err *e)
{
    struct bpe_chars *c = mem_alloc(1, sizeof *c);
    if (c) {
        c->unk = -1;
        memset(c->ascii, 0xff, sizeof c->ascii);
        c->length = mem_alloc((size_t)vocab, sizeof *c->length);
    }
    if (!c || !c->length) {
        err_set(e, DS_EMEM, "out of memory for a vocabulary of %d tokens", vocab);
        bpe_chars_free(c);
        return NULL;
    }
    return c;
}

void bpe_chars_free(struct bpe_chars *c)
{
    if (!c)
        return;
    unigram_free(c->unigram);
    map_release(&c->symbol);
    mem_free(c->length);
    mem_free(c->split);
    mem_free(c);
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int bpe_fallback_byte(const char *s, size_t n)
{
    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>' || hex(s[3]) < 0 || hex(s[4]) < 0)
        return -1;
    return hex(s[3]) << 4 | hex(s[4]);
}

/* --- vocabulary
 * --------------------------------------------------------------------------------------- */

int bpe_chars_add(struct bpe *b, int32_t id, const char *s, size_t n, struct err *e)
{
    struct bpe_chars *c = b->chars;
    int byte = c->byte_fallback ? bpe_fallback_byte(s, n) : -1;
    c->length[id] = byte < 0 ? (uint32_t)n : 1;
    if (byte >= 0)
        b->byte_id[byte] = id;
    if (n == 1 && (unsigned char)s[0] < 128)
        c->ascii[(unsigned char)s[0]] = id;
    return map_set(&c->symbol, s, n, id) < 0
               ? err_set(e, DS_EMEM, "out of memory for the vocabulary")
               : 0;
}

/* All tokens are checked for a mark inside them, merged or not.  A mark that is not a
 * token itself is an unknown character, and those may be fused across words. */
void bpe_chars_ready(struct bpe *b, int metaspace, int split)
{
    struct bpe_chars *c = b->chars;
    int64_t id;
    int block = map_get(&c->symbol, lower_block, 3, &id);
    if (!block && !metaspace && !map_get(&c->symbol, " ", 1, &id))
        return;
    c->mark_len = block || metaspace ? 3 : 1;
    memcpy(c->mark, block || metaspace ? lower_block : " ", c->mark_len);
    c->all_words = metaspace && split;
    if (c->all_words)
        return;
    if (metaspace && !block)
        memset(c->joined, 1, sizeof c->joined);
    for (size_t i = 0; i < c->symbol.cap; i++) {
        const struct map_slot *s = &c->symbol.slot[i];
        for (size_t k = 1; s->key && k + c->mark_len <= s->len; k++)
            if (memcmp(s->key + k, c->mark, c->mark_len) == 0)
                c->joined[(unsigned char)s->key[k - 1]] = 1;
    }
    /* A character that is dropped lets the ones around it merge. */
    int joins = memchr(c->joined, 1, sizeof c->joined) != NULL;
    for (int i = 0; i < 256 && joins && c->unk < 0; i++)
        c->joined[i] |= b->byte_id[i] < 0 && (i >= 128 || c->ascii[i] < 0);
}

/* --- unused tokens
 * ------------------------------------------------------------------------------------ */

enum { UNMARKED = -1, MARKED = -2 };

int bpe_chars_unused(struct bpe *b, int32_t id, int vocab, struct err *e)
{
    struct bpe_chars *c = b->chars;
    if (!c->split) {
        c->split = mem_alloc((size_t)vocab, sizeof *c->split);
        if (!c->split)
            return err_set(e, DS_EMEM, "out of memory for %d tokens", vocab);
        for (int i = 0; i < vocab; i++)
            c->split[i][0] = UNMARKED;
    }
    c->split[id][0] = MARKED;
    return 0;
}

/* The pair whose merge gives id when its text is a word of its own; 0: none. */
static int find_split(const struct bpe *b, int32_t id, const char *s, size_t n, int32_t *part)
{
    int32_t word[BPE_UNUSED_BYTES] = {0};
    int count = 0;
    for (size_t at = 0, len; at < n; at += len, count++) {
        uint32_t rune;
        int64_t one;
        int k = utf8_decode(s + at, n - at, &rune);
        len = k > 0 ? (size_t)k : 1;
        if (count == BPE_UNUSED_BYTES || !map_get(&b->chars->symbol, s + at, len, &one))
            return 0;
        word[count] = (int32_t)one;
    }
    for (;;) {
        const struct bpe_slot *best = NULL;
        int where = 0;
        for (int i = 0; i + 1 < count; i++) {
            const struct bpe_slot *m = bpe_find(b, word[i], word[i + 1]);
            if (m && m->id != id && (!best || m->rank < best->rank)) {
                best = m;
                where = i;
            }
        }
        if (!best)
            break;
        word[where] = best->id;
        count--;
        memmove(word + where + 1, word + where + 2, (size_t)(count - where - 1) * sizeof *word);
    }
    const struct bpe_slot *last = count == 2 ? bpe_find(b, word[0], word[1]) : NULL;
    part[0] = word[0];
    part[1] = word[1];
    return last && last->id == id;
}

void bpe_chars_split(struct bpe *b)
{
    const struct bpe_chars *c = b->chars;
    for (size_t i = 0; c->split && i < c->symbol.cap; i++) {
        const struct map_slot *s = &c->symbol.slot[i];
        int32_t part[2];
        if (!s->key || c->split[s->value][0] != MARKED)
            continue;
        c->split[s->value][0] = UNMARKED;
        if (find_split(b, (int32_t)s->value, s->key, s->len, part))
            memcpy(c->split[s->value], part, sizeof part);
    }
}

static int push_split(const struct bpe_chars *c, int32_t id, struct ids *out, struct err *e)
{
    if (c->split[id][0] < 0)
        return bpe_push_ids(out, &id, 1, e);
    int rc = push_split(c, c->split[id][0], out, e);
    return rc < 0 ? rc : push_split(c, c->split[id][1], out, e);
}

/* Replaces unused ids by their parts, from out->v[before] on. */
static int split_unused(const struct bpe_chars *c, size_t before, struct ids *out, struct err *e)
{
    struct ids whole = {0};
    size_t at = before;
    while (at < out->n && c->split[out->v[at]][0] < 0)
        at++;
    if (at == out->n)
        return 0;
    int rc = bpe_push_ids(&whole, out->v + at, (int)(out->n - at), e);
    out->n = at;
    for (size_t i = 0; rc >= 0 && i < whole.n; i++)
        rc = push_split(c, whole.v[i], out, e);
    ids_release(&whole);
    return rc;
}

/* --- encoding ----------------------------------------------------------------------------------
 */

/* Characters of one word between unknown ones, waiting to be merged. */
struct word {
    const struct bpe *b;
    const char *s;
    size_t n;
    int32_t *slot; /* one per byte, as bpe_merge_long requires */
    size_t start;  /* of the current run */
    int last_unk;
    struct ids *out;
};

static int flush(struct word *w, size_t end, struct err *e)
{
    size_t n = end - w->start;
    int32_t *slot = w->slot + w->start;
    w->start = end;
    if (n == 0)
        return 0;
    if (n > BPE_WORD_SMALL)
        return bpe_merge_long(w->b, slot, n, w->out, e);
    int32_t id[BPE_WORD_SMALL];
    int count = 0;
    for (size_t i = 0; i < n; i += w->b->length[slot[i]])
        id[count++] = slot[i];
    return bpe_push_ids(w->out, id, bpe_merge_small(w->b, id, count), e);
}

static size_t char_len(const struct word *w, size_t p)
{
    uint32_t rune;
    int k = utf8_decode(w->s + p, w->n - p, &rune);
    return k > 0 ? (size_t)k : 1;
}

/* Puts the tokens of the character at p into its slots; 0 if there are none. */
static int place(struct word *w, size_t p, size_t len)
{
    const struct bpe_chars *c = w->b->chars;
    unsigned char first = (unsigned char)w->s[p];
    int64_t id = first < 128 ? c->ascii[first] : -1;
    if (first >= 128 && !map_get(&c->symbol, w->s + p, len, &id))
        id = -1;
    if (id >= 0) {
        w->slot[p] = (int32_t)id;
        for (size_t i = 1; i < len; i++)
            w->slot[p + i] = i + 1 < len ? INT32_MIN : -(int32_t)len;
        return 1;
    }
    for (size_t i = 0; i < len; i++)
        if ((w->slot[p + i] = w->b->byte_id[(unsigned char)w->s[p + i]]) < 0)
            return 0;
    return 1;
}

/* A character has no token and there is no unknown token: it must be dropped. */
enum { IS_LACKING = 1 };

static int unknown(struct word *w, size_t p, size_t len, struct err *e)
{
    const struct bpe_chars *c = w->b->chars;
    if (c->unk < 0)
        return IS_LACKING;
    int rc = flush(w, p, e);
    w->start = p + len;
    if (rc >= 0 && !(c->fuse_unk && w->last_unk))
        rc = bpe_push_ids(w->out, &c->unk, 1, e);
    w->last_unk = 1;
    return rc;
}

static int encode_slots(struct word *w, struct err *e)
{
    int rc = 0;
    for (size_t p = 0, len; rc == 0 && p < w->n; p += len) {
        len = char_len(w, p);
        if (place(w, p, len))
            w->last_unk = 0;
        else
            rc = unknown(w, p, len, e);
    }
    return rc != 0 ? rc : flush(w, w->n, e);
}

/* Characters without a token are dropped before merging, so that their neighbours may merge, as in
 * Hugging Face's tokenizers. */
static int encode_known(struct word *w, struct err *e)
{
    char *known = mem_alloc(w->n, 1);
    size_t k = 0;
    if (!known)
        return err_set(e, DS_EMEM, "out of memory for %zu bytes of text", w->n);
    for (size_t p = 0, len; p < w->n; p += len) {
        len = char_len(w, p);
        if (place(w, p, len)) {
            memcpy(known + k, w->s + p, len);
            k += len;
        } else {
            bpe_drop(w->b, w->s + p, len);
        }
    }
    struct word left = *w;
    left.s = known;
    left.n = k;
    left.start = 0;
    int rc = encode_slots(&left, e);
    mem_free(known);
    return rc;
}

static int encode_word(const struct bpe *b, const char *s, size_t n, struct ids *out, struct err *e)
{
    int32_t some[4 * BPE_WORD_SMALL];
    struct word w = {.b = b, .s = s, .n = n, .out = out, .slot = some};
    struct bpe_cached *c = NULL;
    uint64_t hash = 0;
    size_t before = out->n;
    if (n <= BPE_CACHE_KEY) {
        hash = hash64(s, n, 0);
        c = &b->cache[hash & (BPE_CACHE_SLOTS - 1)];
        if (c->n && c->hash == hash && c->len == n && memcmp(c->key, s, n) == 0)
            return bpe_push_ids(out, c->id, c->n, e);
    }
    if (n > DS_LEN(some) && !(w.slot = mem_alloc(n, sizeof *w.slot)))
        return err_set(e, DS_EMEM, "out of memory encoding a word of %zu bytes", n);
    int rc = encode_slots(&w, e);
    if (rc == IS_LACKING) {
        c = NULL; /* not cached, so that dropped bytes are counted each time */
        rc = encode_known(&w, e);
    }
    if (w.slot != some)
        mem_free(w.slot);
    if (rc >= 0 && b->chars->split)
        rc = split_unused(b->chars, before, out, e);
    size_t count = out->n - before;
    if (rc >= 0 && c && count > 0 && count <= BPE_CACHE_IDS) {
        *c = (struct bpe_cached){.hash = hash, .len = (uint8_t)n, .n = (uint8_t)count};
        memcpy(c->key, s, n);
        memcpy(c->id, out->v + before, count * sizeof *c->id);
    }
    return rc;
}

/* The first mark after s[0] where a word may begin, or n. */
static size_t word_end(const struct bpe_chars *c, const char *s, size_t n)
{
    for (size_t i = 1; c->mark_len && i + c->mark_len <= n; i++) {
        const char *hit = memchr(s + i, c->mark[0], n - i - c->mark_len + 1);
        if (!hit)
            return n;
        i = (size_t)(hit - s);
        if (!c->joined[(unsigned char)s[i - 1]] && memcmp(hit, c->mark, c->mark_len) == 0)
            return i;
    }
    return n;
}

int bpe_encode_chars(const struct bpe *b, const char *s, size_t n, struct ids *out, struct err *e)
{
    int rc = 0;
    int64_t whole;
    int by_word = b->chars->all_words;
    if (b->chars->unigram && !by_word) /* sums are over the whole text, so it is not cut */
        return unigram_encode(b, s, n, out, e);
    if (b->ignore_merges && !by_word && map_get(&b->chars->symbol, s, n, &whole))
        return bpe_push_ids(out, &(int32_t){(int32_t)whole}, 1, e);
    for (size_t at = 0, len; rc >= 0 && at < n; at += len) {
        len = word_end(b->chars, s + at, n - at);
        if (b->ignore_merges && by_word && map_get(&b->chars->symbol, s + at, len, &whole))
            rc = bpe_push_ids(out, &(int32_t){(int32_t)whole}, 1, e);
        else if (b->chars->unigram)
            rc = unigram_encode(b, s + at, len, out, e);
        else
            rc = encode_word(b, s + at, len, out, e);
    }
    return rc;
}
