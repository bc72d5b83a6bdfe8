/* Unigram models: the segmentation of a text into pieces with the highest sum of scores, as in
 * SentencePiece and Hugging Face's tokenizers. */
#include "base/hash.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "data/tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

struct unigram *unigram_new(int32_t ids, struct err *e)
{
    struct unigram *u = mem_alloc(1, sizeof *u);
    if (u)
        u->score = mem_alloc((size_t)ids, sizeof *u->score);
    if (!u || !u->score) {
        err_set(e, DS_EMEM, "out of memory for a vocabulary of %d tokens", ids);
        unigram_free(u);
        return NULL;
    }
    return u;
}

void unigram_free(struct unigram *u)
{
    if (!u)
        return;
    mem_free(u->piece);
    mem_free(u->score);
    mem_free(u);
}

static int by_text(const void *x, const void *y)
{
    const struct unigram_piece *a = x, *b = y;
    int order = memcmp(a->s, b->s, a->n < b->n ? a->n : b->n);
    return order ? order : (a->n > b->n) - (a->n < b->n);
}

int unigram_ready(struct bpe_chars *c, const unsigned char *skip, struct err *e)
{
    struct unigram *u = c->unigram;
    u->piece = mem_alloc(c->symbol.n, sizeof *u->piece);
    if (!u->piece && c->symbol.n)
        return err_set(e, DS_EMEM, "out of memory for %zu pieces", c->symbol.n);
    for (size_t i = 0; i < c->symbol.cap; i++) {
        const struct map_slot *s = &c->symbol.slot[i];
        if (s->key && s->len > 0 && !(skip && skip[s->value]))
            u->piece[u->pieces++] =
                (struct unigram_piece){s->key, (uint32_t)s->len, (int32_t)s->value};
    }
    if (u->pieces)
        qsort(u->piece, u->pieces, sizeof *u->piece, by_text);
    return 0;
}

uint64_t unigram_hash(const struct unigram *u, uint64_t h)
{
    double last[2] = {u->unk_score, u->single};
    for (size_t i = 0; i < u->pieces; i++) {
        h = hash64(&u->piece[i].id, sizeof u->piece[i].id, h);
        h = hash64(&u->score[u->piece[i].id], sizeof *u->score, h);
    }
    return hash64(last, sizeof last, h);
}

/* --- the best path -----------------------------------------------------------------------------
 */

/* The best path to the end of a piece. */
struct node {
    double score;
    int32_t id;
    uint32_t length; /* of its last piece; 0: not reached */
};
struct path {
    const struct bpe *b;
    const char *s;
    size_t n;
    struct node *node; /* n + 1 */
    struct ids *out;
};

/* 1 when this path is the best one so far.  Of equal paths the first stays.  SentencePiece keeps sums as floats; only its scores of
 * user-defined pieces, which are no floats, are added as doubles. */
static int reach(struct path *p, size_t from, size_t length, double score, int32_t id)
{
    struct node *to = &p->node[from + length];
    double sum = p->node[from].score + score;
    int single = p->b->chars->unigram->single;
    if (single && (double)(float)score == score)
        sum = (double)(float)sum;
    if (to->length > 0 && !(sum > to->score))
        return 0;
    *to = (struct node){single ? (double)(float)sum : sum, id, (uint32_t)length};
    return 1;
}

/* The first of the sorted pieces in [low, high) whose byte at `depth` is at least c; all begin with
 * the same `depth` bytes. */
static size_t lower(const struct unigram *u, size_t low, size_t high, size_t depth, int c)
{
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const struct unigram_piece *x = &u->piece[mid];
        if (x->n > depth && (unsigned char)x->s[depth] >= c)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

/* Reaches the ends of all pieces that begin at `from`; 1 when one of them is the character there.
 */
static int reach_pieces(struct path *p, size_t from, size_t char_len)
{
    const struct unigram *u = p->b->chars->unigram;
    size_t low = 0, high = u->pieces;
    int found = 0;
    for (size_t depth = 0; from + depth < p->n && low < high; depth++) {
        int c = (unsigned char)p->s[from + depth];
        low = lower(u, low, high, depth, c);
        high = lower(u, low, high, depth, c + 1);
        if (low == high || u->piece[low].n != depth + 1)
            continue;
        (void)reach(p, from, depth + 1, u->score[u->piece[low].id], u->piece[low].id);
        found |= depth + 1 == char_len;
    }
    return found;
}

static int find_path(struct path *p, struct err *e)
{
    const struct bpe_chars *c = p->b->chars;
    for (size_t at = 0, len; at < p->n; at += len) {
        uint32_t rune;
        int k = utf8_decode(p->s + at, p->n - at, &rune);
        len = k > 0 ? (size_t)k : 1;
        if (!reach_pieces(p, at, len) && reach(p, at, len, c->unigram->unk_score, c->unk) &&
            c->unk < 0)
            return err_set(e, DS_EFORMAT,
                           "the unigram vocabulary has neither a piece for \"%.*s\" nor an unknown "
                           "token",
                           k > 0 ? k : 0, p->s + at);
    }
    return 0;
}

/* Text without a piece: bytes if the vocabulary has them, else one unknown token. */
static int push_unknown(struct path *p, size_t from, size_t to, struct err *e)
{
    const struct bpe_chars *c = p->b->chars;
    const int32_t *byte_id = p->b->byte_id;
    size_t before = p->out->n;
    int64_t whole;
    if (!c->unigram->single && map_get(&c->symbol, p->s + from, to - from, &whole))
        return bpe_push_ids(p->out, &(int32_t){(int32_t)whole}, 1, e);
    int rc = 0, known = c->byte_fallback;
    for (size_t i = from; rc >= 0 && known && i < to; i++) {
        known = byte_id[(unsigned char)p->s[i]] >= 0;
        if (known)
            rc = bpe_push_ids(p->out, &byte_id[(unsigned char)p->s[i]], 1, e);
    }
    if (rc < 0 || known)
        return rc;
    p->out->n = before;
    return bpe_push_ids(p->out, &c->unk, 1, e);
}

/* Turns the path around: each node then has the length of the piece that begins there. */
static void turn(struct path *p)
{
    uint32_t length = p->node[p->n].length;
    int32_t id = p->node[p->n].id;
    for (size_t at = p->n; at > 0;) {
        at -= length;
        struct node before = p->node[at];
        p->node[at].length = length;
        p->node[at].id = id;
        length = before.length;
        id = before.id;
    }
}

static int push_path(struct path *p, struct err *e)
{
    int rc = 0;
    int32_t unk = p->b->chars->unk;
    turn(p);
    for (size_t at = 0, from; rc >= 0 && at < p->n;) {
        from = at;
        if (p->node[at].id != unk) {
            rc = bpe_push_ids(p->out, &p->node[at].id, 1, e);
            at += p->node[at].length;
            continue;
        }
        while (at < p->n && p->node[at].id == unk)
            at += p->node[at].length;
        rc = push_unknown(p, from, at, e);
    }
    return rc;
}

int unigram_encode(const struct bpe *b, const char *s, size_t n, struct ids *out, struct err *e)
{
    struct node some[256];
    struct path p = {b, s, n, some, out};
    if (n + 1 > DS_LEN(some))
        p.node = mem_alloc(n + 1, sizeof *p.node);
    if (!p.node)
        return err_set(e, DS_EMEM, "out of memory encoding %zu bytes of text", n);
    memset(p.node, 0, (n + 1) * sizeof *p.node);
    int rc = find_path(&p, e);
    if (rc >= 0)
        rc = push_path(&p, e);
    if (p.node != some)
        mem_free(p.node);
    return rc;
}
