/* Lists how programs that read only GGUF's keys, as llama.cpp does, tokenize differently.  It never
 * touches a file. */
#include <string.h>

#include "base/utf8.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/pieces.h"

static void add_reason(struct str *out, const char *reason)
{
    str_add(out, out->len ? ", " : "");
    str_add(out, reason);
}

/* 1 when merges alone produce every token: then looking up whole words first makes no
 * difference. */
static int merges_make_all(const struct tokenizer *t)
{
    for (int32_t id = 0; id < t->vocab; id++) {
        int32_t part[BPE_WORD_SMALL];
        int n = t->present[id] ? (int)t->length[id] : 0, known = n > 1;
        if (n > BPE_WORD_SMALL || tokenizer_is_special(t, id))
            continue;
        for (int i = 0; i < n && known; i++) {
            part[i] = t->bpe->byte_id[(unsigned char)t->bytes.p[t->offset[id] + (size_t)i]];
            known = part[i] >= 0;
        }
        if (known && (bpe_merge_small(t->bpe, part, n) != 1 || part[0] != id))
            return 0;
    }
    return 1;
}

static int strips(const struct tokenizer *t)
{
    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].lstrip || t->added[i].rstrip || t->added[i].single_word)
            return 1;
    return 0;
}

static void of_bytes(struct str *out, const struct tokenizer *t, const struct vocab_pre *pre)
{
    if (t->bpe->pre.add_prefix_space)
        add_reason(out, "they add no leading space");
    if (norm_has_nfc(&t->norm))
        add_reason(out, "they do not normalise to NFC");
    if (t->norm.n > norm_has_nfc(&t->norm))
        add_reason(out, "they do not normalise");
    if (pre && pre->ignore_merges != t->bpe->ignore_merges && !merges_make_all(t))
        add_reason(out, pre->ignore_merges ? "they look up whole words before merging"
                                           : "they do not look up whole words before merging");
    if (pre && !vocab_pre_splits_alike(pre, t))
        add_reason(out, "their pattern of that name cuts some texts differently");
}

/* 1 for the steps that the keys can express: spaces become marks and one is put in front. */
static int is_usual(const struct norm_step *s)
{
    return s->kind == NORM_PREPEND ||
           (s->kind == NORM_REPLACE && s->from_len == 1 && s->from[0] == ' ' && s->to_len == 3 &&
            memcmp(s->to, "\xE2\x96\x81", 3) == 0);
}

static void of_chars(struct str *out, const struct tokenizer *t)
{
    const struct bpe_chars *c = t->bpe->chars;
    int usual = 1, defined = 0;
    for (int i = 0; i < t->norm.n; i++)
        usual &= is_usual(&t->norm.step[i]);
    for (size_t i = 0; i < t->n_added; i++)
        defined |= t->added[i].as_piece;
    if (!usual)
        add_reason(out, c->unigram ? "they may normalise differently" : "they do not normalise");
    if (defined)
        add_reason(out, "they match user-defined pieces differently");
    if (c->unigram && (c->unigram->single || c->byte_fallback))
        add_reason(out, "they add scores as doubles and replace unknown text by one token");
    if (!c->unigram && !c->byte_fallback)
        add_reason(out, "they expect a token for every byte");
    if (t->bpe->pre.n > 0)
        add_reason(out, "they do not split by its patterns");
    if (t->has_gaps)
        add_reason(out, "they put no space between decoded tokens");
    if (t->metaspace.on && t->metaspace.when != METASPACE_NEVER)
        add_reason(out, "they add a leading space even to text that has one");
    if (t->metaspace.on && t->metaspace.when == METASPACE_FIRST)
        add_reason(out, "they add a space after each special token");
}

void tokenizer_differs(struct str *out, const struct tokenizer *t, const struct vocab_pre *pre)
{
    if (!t->bpe)
        return;
    if (t->bpe->chars)
        of_chars(out, t);
    else
        of_bytes(out, t, pre);
    if (t->after >= 0 && t->after != t->eot)
        add_reason(out, "they add no token after a text");
    if (strips(t))
        add_reason(out, "they keep spaces next to added tokens");
}

/* ---- patterns ---- */

static int hex(char c)
{
    return c >= '0' && c <= '9'                 ? c - '0'
           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                : -1;
}

/* The code point written as \xHH, \x{H...} or \uHHHH after the backslash; 0: none.  *n: bytes
 * read. */
static uint32_t by_number(const char *p, size_t *n)
{
    uint32_t c = 0;
    size_t i = 1, most = p[0] == 'x' ? 2 : p[0] == 'u' ? 4 : 0, braces = p[0] == 'x' && p[1] == '{';
    if (braces) {
        i = 2;
        most = 6;
    }
    size_t first = i;
    for (; i < first + most && hex(p[i]) >= 0; i++)
        c = c << 4 | (uint32_t)hex(p[i]);
    if (i == first || (braces ? p[i] != '}' : i < first + most))
        return 0;
    *n = i + braces;
    return c;
}

/* The code point of a literal character or escape of a pattern; 0: it is a metacharacter. */
static uint32_t literal(const char *p, size_t *n)
{
    static const char name[] = "rntfva", value[] = "\r\n\t\f\v\a";
    uint32_t c = 0;
    *n = 1;
    if (p[0] != '\\') {
        int k = utf8_decode(p, strnlen(p, 4), &c);
        *n = k > 0 ? (size_t)k : 1;
        return k > 0 ? c : (unsigned char)p[0];
    }
    const char *at = p[1] ? strchr(name, p[1]) : NULL;
    *n = p[1] ? 2 : 1; /* a lone backslash at the end */
    if (at)
        return (unsigned char)value[at - name];
    if (p[1] && strchr("/'\"!,:;<=>@_`~%", p[1]))
        return (unsigned char)p[1];
    c = by_number(p + 1, n);
    *n += c ? 1 : 0;
    return c < 128 && c >= ' '
               ? 0
               : c; /* an ASCII character may be a metacharacter without its backslash */
}

int pretok_same(const char *a, const char *b)
{
    while (*a && *b) {
        size_t na, nb;
        uint32_t x = literal(a, &na), y = literal(b, &nb);
        if (x != y || (x == 0 && (na != nb || memcmp(a, b, na) != 0)))
            return 0;
        a += na;
        b += nb;
    }
    return *a == *b;
}
