/* Normalizers: form C, text in front, and one text for another. */
#include "base/mem.h"
#include "base/nfc.h"
#include "data/bpe.h"

#include <string.h>

/* Text may grow this much in all steps together: no real one does, and hostile ones multiply. */
enum { GROWTH = 16, GROWTH_FREE = 4096 };

int norm_add(struct norm *m, struct norm_step s, struct err *e)
{
    if (m->n >= NORM_STEPS)
        return err_set(e, DS_ERANGE, "more than %d normalizers or decoders", NORM_STEPS);
    if (s.from_len > NORM_TEXT || s.to_len > NORM_TEXT)
        return err_set(e, DS_ERANGE, "a normalizer's text has %zu bytes, the limit is %d",
                       s.from_len > s.to_len ? s.from_len : s.to_len, NORM_TEXT);
    if (s.kind == NORM_REPLACE && s.from_len == 0)
        return err_set(e, DS_EFORMAT, "a Replace with an empty pattern");
    s.from = mem_dup(s.from ? s.from : "", s.from_len + 1);
    s.to = mem_dup(s.to ? s.to : "", s.to_len + 1);
    if (!s.from || !s.to) {
        mem_free(s.from);
        mem_free(s.to);
        return err_set(e, DS_EMEM, "no memory for a normalizer");
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

static int changes(const struct norm_step *s, const char *p, size_t n)
{
    switch (s->kind) {
    case NORM_NFC: return nfc_needed(p, n);
    case NORM_PREPEND: return n > 0 && s->to_len > 0;
    default: return n >= s->from_len && find_text(p, n, s) != NULL;
    }
}

int norm_apply(const struct norm *m, const char **p, size_t *n, struct str *own, struct err *e)
{
    size_t most = *n > SIZE_MAX / GROWTH - GROWTH_FREE ? *n : *n * GROWTH + GROWTH_FREE;
    for (int i = 0; i < m->n; i++) {
        const struct norm_step *s = &m->step[i];
        struct str next = {0};
        if (!changes(s, *p, *n))
            continue;
        if (s->kind == NORM_NFC)
            nfc_compose(&next, *p, *n);
        if (s->kind == NORM_PREPEND)
            str_add_bytes(&next, s->to, s->to_len);
        if (s->kind == NORM_PREPEND)
            str_add_bytes(&next, *p, *n);
        if (s->kind == NORM_REPLACE)
            replace(&next, *p, *n, s, most);
        str_release(own);
        *own = next;
        *p = str_text(own);
        *n = own->len;
        if (own->failed)
            return err_set(e, DS_EMEM, "no memory to normalise %zu bytes", *n);
        if (*n > most)
            return err_set(e, DS_ERANGE, "the normalizer makes text more than %d times as long",
                           GROWTH);
    }
    return 0;
}

void norm_release(struct norm *m)
{
    for (int i = 0; i < m->n; i++) {
        mem_free(m->step[i].from);
        mem_free(m->step[i].to);
    }
    m->n = 0;
}
