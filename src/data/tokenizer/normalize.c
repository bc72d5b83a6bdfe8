/* Normalizers: Unicode forms, case, prefixes, replacements and replacement tables. */
#include "base/mem.h"
#include "base/nfc.h"
#include "base/utf8.h"
#include "data/tokenizer/bpe.h"

#include <string.h>

/* Limit of growth over all steps: real normalizers stay far below it, hostile ones multiply. */
enum { GROWTH = 16, GROWTH_FREE = 4096 };

int norm_add(struct norm *m, struct norm_step s, struct err *e)
{
    if (m->n >= NORM_STEPS)
        return err_set(e, DS_ERANGE, "too many normalizers or decoders: must be at most %d",
                       NORM_STEPS);
    int is_map = s.kind == NORM_CHARSMAP || s.kind == NORM_CHARSMAP_CLUSTERS;
    int rc = is_map ? charsmap_check(s.from, s.from_len, e) : 0;
    if (rc < 0)
        return rc;
    if ((s.from_len > NORM_TEXT && !is_map) || s.to_len > NORM_TEXT)
        return err_set(e, DS_ERANGE, "normalizer text of %zu bytes: must be at most %d",
                       s.from_len > s.to_len ? s.from_len : s.to_len, NORM_TEXT);
    if (s.kind == NORM_REPLACE && s.from_len == 0)
        return err_set(e, DS_EFORMAT, "Replace with an empty pattern");
    s.from = mem_dup(s.from ? s.from : "", s.from_len + 1);
    s.to = mem_dup(s.to ? s.to : "", s.to_len + 1);
    if (!s.from || !s.to)
        rc = err_set(e, DS_EMEM, "out of memory for a normalizer");
    if (rc >= 0 && s.kind == NORM_REPLACE_REGEX)
        rc = pretok_regex(&s.re, s.from, "normalizer", e);
    if (rc < 0) {
        mem_free(s.from);
        mem_free(s.to);
        return rc;
    }
    m->step[m->n++] = s;
    return 0;
}

int norm_has_nfc(const struct norm *m)
{
    for (int i = 0; i < m->n; i++)
        if (m->step[i].kind == NORM_NFC)
            return 1;
    return 0;
}

static const char *find_text(const char *p, size_t n, const struct norm_step *s)
{
    const char *end = p + n;
    while ((size_t)(end - p) >= s->from_len &&
           (p = memchr(p, s->from[0], (size_t)(end - p) - s->from_len + 1)) != NULL) {
        if (memcmp(p, s->from, s->from_len) == 0)
            return p;
        p++;
    }
    return NULL;
}

static void replace(struct str *out, const char *p, size_t n, const struct norm_step *s,
                    size_t most)
{
    const char *end = p + n;
    for (const char *hit; out->len <= most && (hit = find_text(p, (size_t)(end - p), s)) != NULL;
         p = hit + s->from_len) {
        str_add_bytes(out, p, (size_t)(hit - p));
        str_add_bytes(out, s->to, s->to_len);
    }
    str_add_bytes(out, p, (size_t)(end - p));
}

static size_t rune_bytes(const char *p, size_t n)
{
    uint32_t rune;
    int k = utf8_decode(p, n, &rune);
    return k > 0 ? (size_t)k : 1;
}

/* p is valid UTF-8.  An empty match directly after another match is ignored. */
static int replace_matches(struct str *out, const char *p, size_t n, const struct norm_step *s,
                           size_t most, struct err *e)
{
    size_t done = 0, from = 0, a, b;
    int rc = 0, any = 0;
    while (from <= n && out->len <= most &&
           (rc = regex_next(s->re, p, n, from, 1, &a, &b, e)) > 0) {
        if (!(any && a == b && a == done)) {
            str_add_bytes(out, p + done, a - done);
            str_add_bytes(out, s->to, s->to_len);
            done = b;
            any = 1;
        }
        from = b > a ? b : b + (b < n ? rune_bytes(p + b, n - b) : 1);
    }
    str_add_bytes(out, p + done, n - done);
    return rc;
}

/* Invalid bytes are kept; the valid text between them is searched. */
static int replace_regex(struct str *out, const char *p, size_t n, const struct norm_step *s,
                         size_t most, struct err *e)
{
    int rc = 0;
    for (size_t at = 0; rc >= 0 && at < n;) {
        size_t run = utf8_valid(p + at, n - at);
        if (run > 0)
            rc = replace_matches(out, p + at, run, s, most, e);
        at += run;
        if (at < n)
            str_add_char(out, p[at++]);
    }
    return rc;
}

/* Lower case, or without combining marks; invalid bytes are kept. */
static void by_rune(struct str *out, const struct norm_step *s, const char *p, size_t n)
{
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t rune;
        char utf8[4];
        int k = utf8_decode(p + i, n - i, &rune);
        len = k > 0 ? (size_t)k : 1;
        if (k == 0) {
            str_add_char(out, p[i]);
        } else if (s->kind == NORM_STRIP_ACCENTS) {
            if (!utf8_is_mark(rune))
                str_add_bytes(out, p + i, len);
        } else if (rune == 0x130) {
            str_add(out, "i\xCC\x87"); /* the only lower case of two characters */
        } else {
            str_add_bytes(out, utf8, (size_t)utf8_encode(utf8, utf8_lower(rune)));
        }
    }
}

static void strip(struct str *out, const struct norm_step *s, const char *p, size_t n)
{
    size_t from = 0, len;
    while (strchr(s->from, 'l') && from < n && tokenizer_is_space(p + from, n - from, &len))
        from += len;
    if (strchr(s->from, 'r'))
        n = tokenizer_trim_end(p, from, n);
    str_add_bytes(out, p + from, n - from);
}

static enum nfc_form form_of(enum norm_kind kind)
{
    return kind == NORM_NFD    ? NFC_FORM_D
           : kind == NORM_NFKC ? NFC_FORM_KC
           : kind == NORM_NFKD ? NFC_FORM_KD
                               : NFC_FORM_C;
}

static int changes(const struct norm_step *s, const char *p, size_t n)
{
    switch (s->kind) {
    case NORM_NFC:
    case NORM_NFD:
    case NORM_NFKC:
    case NORM_NFKD: return nfc_needed(form_of(s->kind), p, n);
    case NORM_PREPEND: return n > 0 && s->to_len > 0;
    case NORM_REPLACE_REGEX:
    case NORM_LOWERCASE:
    case NORM_STRIP:
    case NORM_STRIP_ACCENTS:
    case NORM_CHARSMAP_CLUSTERS:
    case NORM_CHARSMAP: return n > 0;
    default: return n >= s->from_len && find_text(p, n, s) != NULL;
    }
}

static int apply(struct str *out, const struct norm_step *s, const char *p, size_t n, size_t most,
                 struct err *e)
{
    switch (s->kind) {
    case NORM_NFC:
    case NORM_NFD:
    case NORM_NFKC:
    case NORM_NFKD: nfc_apply(form_of(s->kind), out, p, n); break;
    case NORM_LOWERCASE:
    case NORM_STRIP_ACCENTS: by_rune(out, s, p, n); break;
    case NORM_STRIP: strip(out, s, p, n); break;
    case NORM_REPLACE: replace(out, p, n, s, most); break;
    case NORM_REPLACE_REGEX: return replace_regex(out, p, n, s, most, e);
    case NORM_CHARSMAP: charsmap_apply(out, s, p, n, most); break;
    case NORM_CHARSMAP_CLUSTERS: charsmap_clusters(out, s, p, n, most); break;
    case NORM_PREPEND:
        str_add_bytes(out, s->to, s->to_len);
        str_add_bytes(out, p, n);
        break;
    }
    return 0;
}

int norm_apply(const struct norm *m, const char **p, size_t *n, struct str *own, struct err *e)
{
    size_t most = *n > SIZE_MAX / GROWTH - GROWTH_FREE ? *n : *n * GROWTH + GROWTH_FREE;
    for (int i = 0; i < m->n; i++) {
        const struct norm_step *s = &m->step[i];
        struct str next = {0};
        if (!changes(s, *p, *n))
            continue;
        int rc = apply(&next, s, *p, *n, most, e);
        str_release(own);
        *own = next;
        *p = str_text(own);
        *n = own->len;
        if (rc < 0)
            return rc;
        if (own->failed)
            return err_set(e, DS_EMEM, "out of memory normalising %zu bytes", *n);
        if (*n > most)
            return err_set(e, DS_ERANGE,
                           "the normalizer lengthens text by more than a factor of %d", GROWTH);
    }
    return 0;
}

void norm_release(struct norm *m)
{
    for (int i = 0; i < m->n; i++) {
        mem_free(m->step[i].from);
        mem_free(m->step[i].to);
        regex_free(m->step[i].re);
    }
    m->n = 0;
}
