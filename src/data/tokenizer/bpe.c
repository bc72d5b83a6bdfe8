/* Byte-level BPE: the merge table, and encoding of one piece with a cache of earlier words. */
#include "base/hash.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "data/tokenizer/bpe.h"

#include <string.h>

/* --- the byte alphabet of GPT-2 ------------------------------------------------------------- */

static int byte_is_printable(int b)
{
    return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
}

/* Bytes without a printable Latin-1 character take U+0100, U+0101, ... in order. */
uint32_t bpe_byte_rune(unsigned char byte)
{
    if (byte_is_printable(byte))
        return byte;
    if (byte <= 0x20)
        return 0x100u + byte;
    if (byte <= 0xA0)
        return 0x121u + (byte - 0x7Fu);
    return 0x143; /* 0xAD, the soft hyphen */
}

int bpe_rune_byte(uint32_t rune)
{
    if (rune < 0x100)
        return byte_is_printable((int)rune) ? (int)rune : -1;
    if (rune <= 0x120)
        return (int)(rune - 0x100);
    if (rune <= 0x142)
        return (int)(rune - 0x121 + 0x7F);
    return rune == 0x143 ? 0xAD : -1;
}

int bpe_printable_bytes(struct str *out, const char *s, size_t n)
{
    str_reset(out);
    for (size_t at = 0; at < n;) {
        uint32_t rune;
        int len = utf8_decode(s + at, n - at, &rune);
        int byte = len > 0 ? bpe_rune_byte(rune) : -1;
        if (byte < 0) {
            str_reset(out);
            str_add_bytes(out, s, n);
            return 0;
        }
        str_add_char(out, (char)byte);
        at += (size_t)len;
    }
    return 1;
}

/* --- merges ------------------------------------------------------------------------------------
 */

static uint64_t pair_key(int32_t left, int32_t right)
{
    return ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
}

static size_t pair_slot(uint64_t key, size_t slots)
{
    key *= 0x9E3779B97F4A7C15u;
    return (size_t)(key ^ key >> 29) & (slots - 1);
}

int bpe_add_merge(struct bpe *b, int32_t left, int32_t right, int32_t id, struct err *e)
{
    void *p = b->merge;
    if (mem_grow(&p, &b->merge_cap, b->merges + 1, sizeof *b->merge) < 0)
        return err_set(e, DS_EMEM, "out of memory for %zu merges", b->merges + 1);
    b->merge = p;
    b->merge[b->merges++] = (struct bpe_merge){.left = left, .right = right, .id = id};
    return 0;
}

int bpe_ready(struct bpe *b, struct err *e)
{
    size_t slots = 64;
    while (slots < b->merges * 2 + 2)
        slots *= 2;
    mem_free(b->slot);
    b->slots = 0;
    b->slot = mem_alloc(slots, sizeof *b->slot);
    if (!b->cache)
        b->cache = mem_alloc(BPE_CACHE_SLOTS, sizeof *b->cache);
    if (!b->dropped)
        b->dropped = mem_alloc(1, sizeof *b->dropped);
    mem_free(b->of_rank);
    b->of_rank = mem_alloc(b->merges + 1, sizeof *b->of_rank);
    if (!b->slot || !b->cache || !b->of_rank || !b->dropped)
        return err_set(e, DS_EMEM, "out of memory for a table of %zu merges", b->merges);
    b->slots = slots;
    memset(b->of_rank, 0xff, (b->merges + 1) * sizeof *b->of_rank);
    for (size_t i = 0; i < b->merges; i++) {
        uint64_t key = pair_key(b->merge[i].left, b->merge[i].right);
        size_t at = pair_slot(key, slots);
        while (b->slot[at].key && b->slot[at].key != key)
            at = (at + 1) & (slots - 1);
        b->slot[at] = (struct bpe_slot){
            .key = key, .rank = b->rank ? b->rank[i] : (int32_t)i, .id = b->merge[i].id};
    }
    return 0;
}

const struct bpe_slot *bpe_find(const struct bpe *b, int32_t left, int32_t right)
{
    uint64_t key = pair_key(left, right);
    size_t at = pair_slot(key, b->slots);
    while (b->slot[at].key) {
        if (b->slot[at].key == key)
            return &b->slot[at];
        at = (at + 1) & (b->slots - 1);
    }
    return NULL;
}

/* --- encoding ----------------------------------------------------------------------------------
 */

/* Rank and result of merging a pair; rank INT32_MAX when the pair is not a merge. */
struct next {
    int32_t rank, id;
};

static struct next pair_next(const struct bpe *b, int32_t left, int32_t right)
{
    const struct bpe_slot *s = bpe_find(b, left, right);
    return s ? (struct next){s->rank, s->id} : (struct next){INT32_MAX, -1};
}

/* The lowest rank first, the leftmost among equals; quadratic, for short words only. */
int bpe_merge_small(const struct bpe *b, int32_t *id, int n)
{
    struct next next[BPE_WORD_SMALL];
    for (int i = 0; i + 1 < n; i++)
        next[i] = pair_next(b, id[i], id[i + 1]);
    while (n > 1) {
        int best = 0;
        for (int i = 1; i + 1 < n; i++)
            if (next[i].rank < next[best].rank)
                best = i;
        if (next[best].rank == INT32_MAX)
            break;
        id[best] = next[best].id;
        n--;
        memmove(id + best + 1, id + best + 2, (size_t)(n - best - 1) * sizeof *id);
        memmove(next + best, next + best + 1, (size_t)(n - best - 1) * sizeof *next);
        if (best + 1 < n)
            next[best] = pair_next(b, id[best], id[best + 1]);
        if (best > 0)
            next[best - 1] = pair_next(b, id[best - 1], id[best]);
    }
    return n;
}

int bpe_push_ids(struct ids *out, const int32_t *id, int n, struct err *e)
{
    for (int i = 0; i < n; i++)
        if (ids_add(out, id[i]) < 0)
            return err_set(e, DS_EMEM, "out of memory for %zu token ids", out->n + 1);
    return 0;
}

void bpe_drop(const struct bpe *b, const char *s, size_t n)
{
    if (b->dropped->bytes == 0)
        b->dropped->first = (unsigned char)s[0];
    b->dropped->bytes += n;
}

static int has_bytes(const struct bpe *b, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (b->byte_id[(unsigned char)s[i]] < 0)
            return 0;
    return 1;
}

/* Bytes without a token become the unknown token; without that they are dropped before merging, so
 * that their neighbours may merge, as in Hugging Face's tokenizers. */
static int encode_known(const struct bpe *b, const char *s, size_t n, struct ids *out,
                        struct err *e)
{
    char *known = mem_alloc(n, 1);
    size_t k = 0;
    int rc = known ? 0 : err_set(e, DS_EMEM, "out of memory for %zu bytes of text", n);
    int last_unk = 0;
    for (size_t i = 0; rc >= 0 && i < n; i++) {
        if (b->byte_id[(unsigned char)s[i]] >= 0) {
            known[k++] = s[i];
            last_unk = 0;
        } else if (b->unk < 0) {
            bpe_drop(b, s + i, 1);
        } else {
            rc = k > 0 ? bpe_encode_piece(b, known, k, out, e) : 0;
            if (rc >= 0 && !(b->fuse_unk && last_unk))
                rc = bpe_push_ids(out, &b->unk, 1, e);
            last_unk = 1;
            k = 0;
        }
    }
    if (rc >= 0 && k > 0)
        rc = bpe_encode_piece(b, known, k, out, e);
    mem_free(known);
    return rc;
}

int bpe_encode_piece(const struct bpe *b, const char *s, size_t n, struct ids *out, struct err *e)
{
    int64_t whole;
    struct bpe_cached *c = NULL;
    uint64_t hash = 0;
    if (n <= BPE_CACHE_KEY) {
        hash = hash64(s, n, 0);
        c = &b->cache[hash & (BPE_CACHE_SLOTS - 1)];
        if (c->n && c->hash == hash && c->len == n && memcmp(c->key, s, n) == 0)
            return bpe_push_ids(out, c->id, c->n, e);
    }
    if (b->ignore_merges && map_get(&b->whole, s, n, &whole))
        return bpe_push_ids(out, &(int32_t){(int32_t)whole}, 1, e);
    if (!has_bytes(b, s, n))
        return encode_known(b, s, n, out, e);
    if (n > BPE_WORD_SMALL)
        return bpe_encode_long(b, s, n, out, e);
    int32_t id[BPE_WORD_SMALL];
    for (size_t i = 0; i < n; i++)
        id[i] = b->byte_id[(unsigned char)s[i]];
    int count = bpe_merge_small(b, id, (int)n);
    if (c && count <= BPE_CACHE_IDS) {
        *c = (struct bpe_cached){.hash = hash, .len = (uint8_t)n, .n = (uint8_t)count};
        memcpy(c->key, s, n);
        memcpy(c->id, id, (size_t)count * sizeof *id);
    }
    return bpe_push_ids(out, id, count, e);
}

void bpe_release(struct bpe *b)
{
    pretok_release(&b->pre);
    mem_free(b->merge);
    mem_free(b->slot);
    mem_free(b->cache);
    mem_free(b->dropped);
    mem_free(b->of_rank);
    mem_free(b->rank);
    map_release(&b->whole);
    bpe_chars_free(b->chars);
    *b = (struct bpe){0};
}
