/* Pre-tokenization: splits text into pieces by regular expressions, as in Hugging Face
 * tokenizers. */
#include "base/mem.h"
#include "base/utf8.h"
#include "data/tokenizer/bpe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char pretok_gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* Llama 3's and Qwen2's patterns differ from each other in this. */
#define CL100K(numbers)                                                                            \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers                          \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* The patterns for which ascii_match is right. */
static const char *const plain_words[] = {pretok_gpt2, CL100K("\\p{N}{1,3}"), CL100K("\\p{N}")};

/* Word characters as the tokenizers' own engine (Oniguruma) has them: PCRE2 leaves out marks.  Of
 * the other numbers only those of Latin-1 are in, and these not inside a class. */
#define WORD_IN_CLASS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define WORD WORD_IN_CLASS "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}"

/* PCRE2's form of the escape after a backslash, NULL if both engines agree, "" if it cannot be
 * expressed. */
static const char *translate_escape(char c, int in_class)
{
    switch (c) {
    case 'w': return in_class ? WORD_IN_CLASS : "[" WORD "]";
    case 'W': return in_class ? "" : "[^" WORD "]";
    case 'h': return in_class ? "0-9A-Fa-f" : "[0-9A-Fa-f]";
    case 'H': return in_class ? "" : "[^0-9A-Fa-f]";
    case 'b':
        return in_class ? NULL : "(?:(?<=[" WORD "])(?![" WORD "])|(?<![" WORD "])(?=[" WORD "]))";
    case 'B':
        return in_class ? NULL : "(?:(?<=[" WORD "])(?=[" WORD "])|(?<![" WORD "])(?![" WORD "]))";
    default: return NULL;
    }
}

/* \\p{NAME} at p[0] with the name of a script, longer than those of categories: PCRE2 means the
 * characters that scripts share too, and sc: those of one script only.  The length of the name, 0: no
 * script; *failed becomes 1 when memory runs out. */
static size_t script_at(const char *p, int *failed)
{
    char alone[64];
    struct regex *re = NULL;
    size_t from = p[1] && p[2] == '{' ? 3 + (p[3] == '^') : 0;
    size_t n = from ? strspn(p + from, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_") : 0;
    if (n < 3 || n > 40 || p[from + n] != '}')
        return 0;
    int len = snprintf(alone, sizeof alone, "\\p{sc:%.*s}", (int)n, p + from);
    int rc = regex_new(&re, alone, (size_t)len, "script", NULL);
    regex_free(re);
    *failed |= rc == DS_EMEM;
    return rc < 0 ? 0 : n;
}

/* A repetition that Oniguruma reads otherwise: {,m} is {0,m}, and a + after {n,m} repeats it
 * instead of making it possessive.  The bytes read, 0: both engines agree, or negative. */
static int repetition(struct str *out, const char *p, struct err *e)
{
    static const char digits[] = "0123456789";
    size_t low = strspn(p + 1, digits), comma = p[1 + low] == ',';
    size_t high = comma ? strspn(p + 2 + low, digits) : 0, n = 1 + low + comma + high;
    if (p[n] != '}' || low + high == 0)
        return 0;
    if (p[++n] != '+') {
        if (low == 0)
            str_addf(out, "{0,%.*s}", (int)high, p + 2);
        return low == 0 ? (int)n : 0;
    }
    if (p[n + 1] == '?' || (strtol(p + 1, NULL, 10) > 1 && (!comma || high > 0)))
        return err_set(e, DS_EFORMAT, "tokenizer pattern: \"%.*s\": unsupported repetition",
                       (int)(n < 20 ? n + 1 : 20), p);
    str_addf(out, "{%.*s,}", low ? (int)low : 1, low ? p + 1 : "0");
    return (int)n + 1;
}

/* Patterns are written for Oniguruma.  Where PCRE2 differs, the pattern is rewritten, or rejected:
 * negated classes inside classes, and intersections of classes.  Other nested classes are unions. */
static int translate(struct str *out, const char *p, struct err *e)
{
    int in_class = 0 /* depth */, failed = 0, is_number = 0;
    for (; *p; p++) {
        const char *other = *p == '\\' && p[1] ? translate_escape(p[1], in_class) : NULL;
        if ((other && !*other) || (in_class && *p == '[' && (p[1] == '^' || p[1] == ']')) ||
            (in_class && *p == '&' && p[1] == '&'))
            return err_set(e, DS_EFORMAT, "tokenizer pattern: \"%.2s\" inside []: unsupported", p);
        if ((in_class && *p == '[' && p[1] != ':') || (in_class > 1 && *p == ']')) {
            in_class += *p == '[' ? 1 : -1;
            continue;
        }
        if (other) {
            str_add(out, other);
            p++;
            continue;
        }
        if (p[0] == '\\' && p[1] == 'u' && strspn(p + 2, "0123456789abcdefABCDEF") >= 4) {
            str_addf(out, "\\x{%.4s}", p + 2);
            p += 5;
            continue;
        }
        size_t script = p[0] == '\\' && (p[1] == 'p' || p[1] == 'P') ? script_at(p, &failed) : 0;
        if (script) {
            int negated = p[3] == '^';
            str_addf(out, "\\%c{sc:%.*s}", (p[1] == 'P') != negated ? 'P' : 'p', (int)script,
                     p + 3 + negated);
            p += 3 + (size_t)negated + script;
            continue;
        }
        int read = in_class || *p != '{' || is_number ? 0 : repetition(out, p, e);
        is_number = *p == '\\' && (p[1] == 'x' || p[1] == 'o'); /* of a character, in braces */
        if (read < 0)
            return read;
        if (read > 0) {
            p += read - 1;
            continue;
        }
        if (!in_class && (*p == '^' || *p == '$')) { /* of every line */
            str_add(out, *p == '^' ? "(?m:^)" : "(?m:$)");
            continue;
        }
        str_add_char(out, *p);
        if (*p == '\\' && p[1]) {
            str_add_char(out, *++p);
        } else if (!in_class && *p == '[') {
            in_class = 1;
            if (p[1] == '^')
                str_add_char(out, *++p);
            if (p[1] == ']')
                str_add_char(out, *++p);
        } else if (in_class && *p == '[') { /* [:alpha:] */
            while (p[1] && p[1] != ']')
                str_add_char(out, *++p);
            if (p[1])
                str_add_char(out, *++p);
        } else if (*p == ']') {
            in_class = 0;
        }
    }
    return out->failed || failed ? err_set(e, DS_EMEM, "out of memory for a pattern") : 0;
}

int pretok_regex(struct regex **out, const char *pattern, const char *what, struct err *e)
{
    struct str text = {0};
    int rc = translate(&text, pattern, e);
    if (rc >= 0)
        rc = regex_new(out, str_text(&text), text.len, what, e);
    str_release(&text);
    return rc;
}

int pretok_add(struct pretok *p, const struct pretok_stage *stage, struct err *e)
{
    if (p->n >= PRETOK_STAGES)
        return err_set(e, DS_ERANGE, "too many pre-tokenizer stages: must be at most %d",
                       PRETOK_STAGES);
    struct regex *re = NULL;
    int rc = pretok_regex(&re, stage->pattern, "pre-tokenizer", e);
    if (rc < 0)
        return rc;
    char *copy = mem_strdup(stage->pattern);
    if (!copy) {
        regex_free(re);
        return err_set(e, DS_EMEM, "out of memory for a pre-tokenizer pattern");
    }
    struct pretok_stage *own = &p->stage[p->n++];
    *own = *stage;
    own->re = re;
    own->pattern = copy;
    own->plain_words = 0;
    own->printable = p->byte_level;
    for (size_t i = 0; i < DS_LEN(plain_words) && !own->drop_matches && !own->join; i++)
        own->plain_words |= strcmp(copy, plain_words[i]) == 0;
    return 0;
}

enum { OTHER, LETTER, SIGN };

static int ascii_class(unsigned char c)
{
    if ((c | 32) >= 'a' && (c | 32) <= 'z')
        return LETTER;
    return (c > ' ' && c < '0') || (c > '9' && c < 127) ? SIGN : OTHER;
}

/* Fast path, ten times as fast as the regex: length of a match of ASCII letters with an optional
 * leading space, of signs before a space, or of spaces up to the one that belongs to what follows,
 * which the regex looks for with as many steps as there are spaces.  0: use the regex. */
static size_t ascii_match(const char *s, size_t n)
{
    const unsigned char *c = (const unsigned char *)s;
    size_t i = 0;
    while (i < n && c[i] == ' ')
        i++;
    if (i > 1 && (i == n || (c[i] > ' ' && c[i] < 127)))
        return i == n ? n : i - 1;
    i = c[0] == ' ';
    size_t start = i;
    while (i < n && ascii_class(c[i]) == LETTER)
        i++;
    if (i > start)
        return i < n && c[i] < 128 ? i : 0; /* a non-ASCII letter could continue it */
    if (start || c[0] == '\'')
        return 0;
    while (i < n && ascii_class(c[i]) == SIGN)
        i++;
    return i < n && c[i] == ' ' ? i : 0;
}

static size_t rune_bytes(const char *s, size_t n)
{
    uint32_t cp;
    int len = utf8_decode(s, n, &cp);
    return len > 0 ? (size_t)len : 1;
}

/* A pending piece that the next one may extend. */
struct joiner {
    const struct pretok *p;
    int stage;
    size_t from, to;
    int is_match, any;
    pretok_fn *fn;
    void *ctx;
};

static int walk_stage(const struct pretok *p, int stage, const char *s, size_t n, pretok_fn *fn,
                      void *ctx, struct err *e);

/* Gives the bytes of a piece of printable text to the caller's function. */
struct unprint {
    pretok_fn *fn;
    void *ctx;
};

static int on_printable(void *ctx, const char *s, size_t n, struct err *e)
{
    const struct unprint *u = ctx;
    struct str bytes = {0};
    bpe_printable_bytes(&bytes, s, n);
    int rc = bytes.failed ? err_set(e, DS_EMEM, "out of memory for %zu bytes of text", n)
                          : u->fn(u->ctx, bytes.p, bytes.len, e);
    str_release(&bytes);
    return rc;
}

static int walk_patterns(const struct pretok *p, int stage, const char *s, size_t n, pretok_fn *fn,
                         void *ctx, struct err *e);

/* s is valid UTF-8, from the first printable stage on in printable form. */
static int walk_stage(const struct pretok *p, int stage, const char *s, size_t n, pretok_fn *fn,
                      void *ctx, struct err *e)
{
    if (n == 0)
        return 0;
    if (stage == p->n)
        return fn(ctx, s, n, e);
    if (!p->stage[stage].printable || (stage > 0 && p->stage[stage - 1].printable))
        return walk_patterns(p, stage, s, n, fn, ctx, e);
    struct unprint u = {fn, ctx};
    struct str text = {0};
    tokenizer_add_printable(&text, s, n);
    int rc = text.failed ? err_set(e, DS_EMEM, "out of memory for %zu bytes of text", n)
                         : walk_patterns(p, stage, text.p, text.len, on_printable, &u, e);
    str_release(&text);
    return rc;
}

static int join_end(struct joiner *j, const char *s, struct err *e)
{
    int any = j->any;
    j->any = 0;
    return any ? walk_stage(j->p, j->stage + 1, s + j->from, j->to - j->from, j->fn, j->ctx, e) : 0;
}

/* Takes the next piece s[from, to). */
static int join_next(struct joiner *j, const char *s, size_t from, size_t to, int is_match,
                     struct err *e)
{
    const struct pretok_stage *st = &j->p->stage[j->stage];
    int joins = st->join == JOIN_PREVIOUS ? is_match && !j->is_match
                : st->join == JOIN_NEXT   ? !is_match && j->is_match
                : st->join == JOIN_SAME   ? is_match == j->is_match
                                          : 0;
    int rc = 0;
    if (!j->any || !joins) {
        rc = join_end(j, s, e);
        j->from = from;
    }
    j->to = to;
    j->is_match = is_match;
    j->any = 1;
    return rc;
}

/* walk_stage for joined matches.  An empty match separates the gaps around it, but directly after
 * another match it is ignored. */
static int walk_joined(const struct pretok *p, int stage, const char *s, size_t n, pretok_fn *fn,
                       void *ctx, struct err *e)
{
    const struct pretok_stage *st = &p->stage[stage];
    struct joiner j = {.p = p, .stage = stage, .fn = fn, .ctx = ctx};
    size_t done = 0, from = 0, a, b;
    int rc = 0, more = 1, any = 0;
    while (rc >= 0 && from < n && (more = regex_next(st->re, s, n, from, 1, &a, &b, e)) > 0) {
        if (a > done)
            rc = join_next(&j, s, done, a, 0, e);
        if (rc >= 0 && (b > a || !any || done < a))
            rc = st->drop_matches ? join_end(&j, s, e) : join_next(&j, s, a, b, 1, e);
        done = b;
        any = 1;
        from = b > a ? b : b + (b < n ? rune_bytes(s + b, n - b) : 1);
    }
    rc = rc < 0 ? rc : more;
    if (rc >= 0 && done < n)
        rc = join_next(&j, s, done, n, 0, e);
    return rc < 0 ? rc : join_end(&j, s, e);
}

/* An empty match cuts, and the search continues one code point later. */
static int walk_patterns(const struct pretok *p, int stage, const char *s, size_t n, pretok_fn *fn,
                         void *ctx, struct err *e)
{
    const struct pretok_stage *st = &p->stage[stage];
    size_t done = 0, from = 0, a = 0, b = 0;
    if (st->drop_matches || st->join)
        return walk_joined(p, stage, s, n, fn, ctx, e);
    while (from < n) {
        size_t plain = st->plain_words && from == done ? ascii_match(s + from, n - from) : 0;
        a = from;
        b = from + plain;
        int rc = plain ? 1 : regex_next(st->re, s, n, from, 1, &a, &b, e);
        if (rc < 0)
            return rc;
        if (rc == 0)
            break;
        if (a > done && !st->drop_gaps &&
            (rc = walk_stage(p, stage + 1, s + done, a - done, fn, ctx, e)) < 0)
            return rc;
        if (b > a && (rc = walk_stage(p, stage + 1, s + a, b - a, fn, ctx, e)) < 0)
            return rc;
        done = b;
        from = b > a ? b : b + (b < n ? rune_bytes(s + b, n - b) : 1);
    }
    if (st->drop_gaps || done >= n)
        return 0;
    return walk_stage(p, stage + 1, s + done, n - done, fn, ctx, e);
}

static int walk_bytes(const struct pretok *p, const char *s, size_t n, pretok_fn *fn, void *ctx,
                      struct err *e)
{
    size_t at = 0;
    int rc = 0;
    while (rc >= 0 && at < n) {
        size_t run = utf8_valid(s + at, n - at);
        if (run > 0)
            rc = walk_stage(p, 0, s + at, run, fn, ctx, e);
        at += run;
        if (rc >= 0 && at < n)
            rc = fn(ctx, s + at++, 1, e);
    }
    return rc < 0 ? rc : 0;
}

int pretok_walk(const struct pretok *p, const char *s, size_t n, pretok_fn *fn, void *ctx,
                struct err *e)
{
    if (!p->add_prefix_space || n == 0 || s[0] == ' ')
        return walk_bytes(p, s, n, fn, ctx, e);
    struct str spaced = {0};
    str_add_char(&spaced, ' ');
    str_add_bytes(&spaced, s, n);
    int rc = spaced.failed ? err_set(e, DS_EMEM, "out of memory for %zu bytes of text", n)
                           : walk_bytes(p, spaced.p, spaced.len, fn, ctx, e);
    str_release(&spaced);
    return rc;
}

void pretok_release(struct pretok *p)
{
    for (int i = 0; i < p->n; i++) {
        regex_free(p->stage[i].re);
        mem_free(p->stage[i].pattern);
    }
    p->n = 0;
}
