/* Encoding: added tokens first, then normalisation, then the rest piece by piece. */
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "data/tokenizer/bpe.h"

#include <string.h>

/* --- the index of added tokens
 * ------------------------------------------------------------------------ */

static unsigned first_two(const char *s)
{
    return (unsigned)(unsigned char)s[0] << 8 | (unsigned char)s[1];
}

/* Maintains the distinct lengths, longest first, and the bitmap that excludes most positions. */
static int index_one(struct added_index *x, const char *s, size_t len, size_t which, size_t n_added)
{
    if (!x->len)
        x->len = mem_alloc(n_added + 1, sizeof *x->len);
    if (!x->pair)
        x->pair = mem_alloc(8192, 1);
    if (!x->len || !x->pair)
        return DS_EMEM;
    size_t at = 0;
    while (at < x->n_len && x->len[at] > len)
        at++;
    if (at == x->n_len || x->len[at] != len) {
        memmove(x->len + at + 1, x->len + at, (x->n_len - at) * sizeof *x->len);
        x->len[at] = len;
        x->n_len++;
    }
    unsigned two = first_two(len > 1 ? s : (const char[2]){s[0], 0});
    for (unsigned low = 0; low < (len > 1 ? 1u : 256u); low++, two += len == 1)
        x->pair[two >> 3] |= (unsigned char)(1u << (two & 7));
    return map_set(&x->map, s, len, (int64_t)which);
}

static const char word_pattern[] = "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200C}\\x{200D}]";

int tokenizer_index_added(struct tokenizer *t, struct err *e)
{
    struct str own = {0};
    int rc = 0;
    for (size_t i = 0; rc >= 0 && i < t->n_added; i++) {
        if (t->added[i].single_word && !t->word)
            rc = regex_new(&t->word, word_pattern, sizeof word_pattern - 1, "a word", e);
        if (rc < 0)
            break;
        const struct added_token *a = &t->added[i];
        struct added_index *x = &t->find[a->normalized != 0];
        const char *s = a->text;
        size_t n = a->len;
        rc = a->normalized && !a->as_piece ? norm_apply(&t->norm, &s, &n, &own, e) : 0;
        if (rc < 0 || n == 0)
            continue;
        x->has_plain |= !a->special;
        if (index_one(x, s, n, i, t->n_added) < 0)
            rc = err_set(e, DS_EMEM, "out of memory for added tokens");
    }
    t->by_length = t->by_length && added_overlap(t);
    for (int i = 0; i < t->norm.n; i++)
        t->norm.step[i].keep = t->find[1].pair ? &t->find[1] : NULL;
    str_release(&own);
    return rc;
}

void added_index_release(struct added_index *x)
{
    map_release(&x->map);
    mem_free(x->len);
    mem_free(x->pair);
    *x = (struct added_index){0};
}

static int is_word(const struct tokenizer *t, const char *s, size_t n)
{
    uint32_t c;
    size_t a, b;
    return utf8_decode(s, n, &c) == (int)n && regex_next(t->word, s, n, 0, 1, &a, &b, NULL) == 1;
}

/* 1 when s[from, to) has no word character on either side. */
static int stands_alone(const struct tokenizer *t, const char *s, size_t n, size_t from, size_t to)
{
    size_t before = from, len = 1;
    uint32_t c;
    while (before > 0 && from - before < 4 && ((unsigned char)s[--before] & 0xC0) == 0x80)
        ;
    if (from > 0 && is_word(t, s + before, from - before))
        return 0;
    int k = to < n ? utf8_decode(s + to, n - to, &c) : 0;
    len = k > 0 ? (size_t)k : 1;
    return to >= n || !is_word(t, s + to, len);
}

int added_may_begin(const struct added_index *x, const char *s, size_t n)
{
    unsigned two = first_two(n > 1 ? s : (const char[2]){s[0], 0});
    return (x->pair[two >> 3] & 1u << (two & 7)) != 0;
}

size_t added_match(const struct added_index *x, const char *s, size_t n, int64_t *which)
{
    if (!added_may_begin(x, s, n))
        return 0;
    for (size_t k = 0; k < x->n_len; k++)
        if (x->len[k] <= n && map_get(&x->map, s, x->len[k], which))
            return x->len[k];
    return 0;
}

/* SentencePiece's unigram models have their user-defined pieces among the others. */
static int in_lattice(const struct tokenizer *t, const struct added_token *a)
{
    const struct bpe_chars *c = t->bpe ? t->bpe->chars : NULL;
    return a->as_piece && c && c->unigram && c->unigram->single;
}

/* The leftmost added token at or after `from`, the longest one there; NULL if none.  *len: of the
 * text found. */
static const struct added_token *find_added(const struct tokenizer *t, const struct added_index *x,
                                            const char *s, size_t n, size_t from, int special,
                                            size_t *where, size_t *len)
{
    for (size_t i = from, found; i<n; i += found> 0 ? found : 1) {
        int64_t at;
        found = added_match(x, s + i, n - i, &at);
        if (found == 0 || (t->added[at].special && !special) || in_lattice(t, &t->added[at]) ||
            (t->added[at].single_word && !stands_alone(t, s, n, i, i + found)))
            continue; /* a rejected match is skipped as a whole */
        *where = i;
        *len = found;
        return &t->added[at];
    }
    return NULL;
}

/* --- spaces around added tokens ------------------------------------------------------------- */

int tokenizer_is_space(const char *s, size_t n, size_t *len)
{
    uint32_t c;
    int k = utf8_decode(s, n, &c);
    *len = k > 0 ? (size_t)k : 1;
    return k > 0 && ((c >= 9 && c <= 13) || c == 32 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
                     (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
                     c == 0x205F || c == 0x3000);
}

size_t tokenizer_trim_end(const char *s, size_t from, size_t end)
{
    for (size_t k; end > from; end -= k) {
        for (k = 1; k < 4 && end - k > from && ((unsigned char)s[end - k] & 0xC0) == 0x80;)
            k++;
        size_t len;
        if (!tokenizer_is_space(s + end - k, k, &len) || len != k)
            break;
    }
    return end;
}

/* --- encoding ----------------------------------------------------------------------------------
 */

struct sink {
    const struct tokenizer *t;
    int special;
    struct ids *out;
    const char *begin; /* of the whole text, when pieces are marked; NULL: s is not its beginning */
};

/* Replaces spaces by marks, and puts one in front if requested. */
static void add_metaspace(const struct tokenizer *t, struct str *out, const char *s, size_t n,
                          int first)
{
    const struct bpe_chars *c = t->bpe->chars;
    int begins = n >= c->mark_len && memcmp(s, c->mark, c->mark_len) == 0;
    if (!begins && s[0] != ' ' &&
        (t->metaspace.when == METASPACE_ALWAYS || (t->metaspace.when == METASPACE_FIRST && first)))
        str_add_bytes(out, c->mark, c->mark_len);
    for (const char *end = s + n, *hit; s < end; s = hit + 1) {
        hit = memchr(s, ' ', (size_t)(end - s));
        str_add_bytes(out, s, (size_t)((hit ? hit : end) - s));
        if (!hit)
            return;
        str_add_bytes(out, c->mark, c->mark_len);
    }
}

static int on_text(void *ctx, const char *s, size_t n, struct err *e)
{
    const struct sink *c = ctx;
    const struct bpe *b = c->t->bpe;
    return b->chars ? bpe_encode_chars(b, s, n, c->out, e) : bpe_encode_piece(b, s, n, c->out, e);
}

static int on_piece(void *ctx, const char *s, size_t n, struct err *e)
{
    const struct sink *c = ctx;
    struct str marked = {0};
    if (!c->t->metaspace.of_pieces)
        return on_text(ctx, s, n, e);
    add_metaspace(c->t, &marked, s, n, s == c->begin);
    int rc = marked.failed ? err_set(e, DS_EMEM, "out of memory for %zu bytes of text", n)
                           : on_text(ctx, marked.p, marked.len, e);
    str_release(&marked);
    return rc;
}

static int encode_plain(struct sink *c, const char *s, size_t n, int first, struct err *e)
{
    const struct tokenizer *t = c->t;
    struct str marked = {0};
    int rc = 0;
    if (n == 0)
        return 0;
    if (!t->bpe) {
        for (size_t i = 0; rc >= 0 && i < n; i++)
            rc = bpe_push_ids(c->out, &(int32_t){(unsigned char)s[i]}, 1, e);
        return rc;
    }
    c->begin = first ? s : NULL;
    if (!t->metaspace.on || t->metaspace.of_pieces)
        return pretok_walk(&t->bpe->pre, s, n, on_piece, c, e);
    add_metaspace(t, &marked, s, n, first);
    rc = marked.failed ? err_set(e, DS_EMEM, "out of memory for %zu bytes of text", n)
                       : pretok_walk(&t->bpe->pre, marked.p, marked.len, on_piece, c, e);
    str_release(&marked);
    return rc;
}

static int encode_round(struct sink *c, int round, const char *s, size_t n, int first,
                        struct err *e);

/* Text between the added tokens of one round: normalised for the next round, or encoded. */
static int encode_rest(struct sink *c, int round, const char *s, size_t n, int first, struct err *e)
{
    struct str own = {0};
    if (n == 0)
        return 0;
    if (round == 1)
        return encode_plain(c, s, n, first, e);
    int rc = norm_apply(&c->t->norm, &s, &n, &own, e);
    if (rc >= 0)
        rc = encode_round(c, 1, s, n, first, e);
    str_release(&own);
    return rc;
}

/* Round 0 matches added tokens in the raw text, round 1 in the normalised
 * rest.  first: s begins the whole text. */
static int encode_round(struct sink *c, int round, const char *s, size_t n, int first,
                        struct err *e)
{
    const struct added_index *x = &c->t->find[round];
    size_t at = 0, from = 0, where = 0,
           len = 0; /* at: start of unencoded text; from: start of the search */
    int rc = 0;
    const struct added_token *a = NULL;
    int search = x->pair && (c->special || x->has_plain), by_length = round == 0 && c->t->by_length;
    struct added_found *list = NULL;
    size_t listed = 0, next = 0;
    if (search && by_length)
        rc = added_longest_first(c->t, x, s, n, c->special, &list, &listed, e);
    while (rc >= 0 && search) {
        if (by_length) {
            a = next < listed ? list[next].a : NULL;
            where = a ? list[next].at : n;
            len = a ? list[next++].len : 0;
        } else {
            a = find_added(c->t, x, s, n, from, c->special, &where, &len);
        }
        if (!a)
            break;
        size_t start = where, stop = from = where + len;
        if (a->lstrip) /* spaces before the token may have been consumed by the previous one */
            start = at < where ? tokenizer_trim_end(s, at, where) : at;
        for (size_t k; a->rstrip && stop < n && tokenizer_is_space(s + stop, n - stop, &k);)
            stop += k;
        if (at < start)
            rc = encode_rest(c, round, s + at, start - at, first && at == 0, e);
        if (rc >= 0 && start < stop)
            rc = bpe_push_ids(c->out, &a->id, 1, e);
        at = stop;
    }
    mem_free(list);
    return rc < 0 ? rc : encode_rest(c, round, s + at, n - at, first && at == 0, e);
}

uint64_t tokenizer_dropped_bytes(const struct tokenizer *t)
{
    return t->bpe ? t->bpe->dropped->bytes : 0;
}

/* Warns once per tokenizer; further bytes are only counted. */
static void warn_dropped(const struct tokenizer *t)
{
    struct bpe_dropped *d = t->bpe ? t->bpe->dropped : NULL;
    if (!d || d->bytes == 0 || d->is_reported)
        return;
    d->is_reported = 1;
    log_warn("the vocabulary has no token for byte 0x%02X: such bytes are dropped from texts, as "
             "in other programs (%llu byte%s so far)",
             (unsigned)d->first, (unsigned long long)d->bytes, d->bytes == 1 ? "" : "s");
}

static int encode(const struct tokenizer *t, const char *s, size_t n, int allow_special, int first,
                  struct ids *out, struct err *e)
{
    size_t before = out->n;
    struct sink c = {t, allow_special, out, NULL};
    int rc = encode_round(&c, 0, s, n, first, e);
    if (rc < 0)
        out->n = before;
    else
        warn_dropped(t);
    return rc;
}

int tokenizer_encode(const struct tokenizer *t, const char *s, size_t n, int allow_special,
                     struct ids *out, struct err *e)
{
    return encode(t, s, n, allow_special, 1, out, e);
}

int tokenizer_encode_on(const struct tokenizer *t, const char *s, size_t n, int allow_special,
                        struct ids *out, struct err *e)
{
    return encode(t, s, n, allow_special, 0, out, e);
}
