/* SentencePiece's precompiled_charsmap: a double-array trie from texts to what replaces them.
 *     u32 bytes of the trie, the trie's u32 units, NUL-terminated replacements
 * All numbers are little-endian and validated. */
#include "base/utf8.h"
#include "data/tokenizer/bpe.h"

#include <string.h>

struct charsmap {
    const unsigned char *unit;
    size_t units;
    const char *text;
    size_t text_len;
};

static uint32_t u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static int open_map(struct charsmap *m, const char *p, size_t n)
{
    const unsigned char *b = (const unsigned char *)p;
    uint32_t trie = n >= 4 ? u32(b) : 0;
    if (n < 4 || trie < 4 || trie % 4 != 0 || trie > n - 4)
        return 0;
    *m = (struct charsmap){b + 4, trie / 4, p + 4 + trie, n - 4 - trie};
    return 1;
}

int charsmap_check(const char *p, size_t n, struct err *e)
{
    struct charsmap m;
    if (!open_map(&m, p, n) || m.text_len == 0 || m.text[m.text_len - 1] != '\0')
        return err_set(e, DS_EFORMAT, "corrupt precompiled_charsmap of %zu bytes", n);
    return 0;
}

/* A unit's fields, as Darts packs them. */
static uint32_t unit_offset(uint32_t u)
{
    return (u >> 10) << ((u & 1u << 9) >> 6);
}

static uint32_t unit_label(uint32_t u)
{
    return u & (1u << 31 | 0xff);
}

/* Bytes of the longest (or the shortest) entry that s begins with, 0: none; its replacement is at
 * *to. */
static size_t find_entry(const struct charsmap *m, const char *s, size_t n, int shortest,
                         const char **to)
{
    size_t found = 0;
    uint32_t at = unit_offset(u32(m->unit));
    for (size_t i = 0; i < n && !(shortest && found); i++) {
        at ^= (unsigned char)s[i];
        if (at >= m->units)
            break;
        uint32_t u = u32(m->unit + 4 * (size_t)at);
        if (unit_label(u) != (unsigned char)s[i])
            break;
        at ^= unit_offset(u);
        if (!(u >> 8 & 1))
            continue;
        uint32_t value = at < m->units ? u32(m->unit + 4 * (size_t)at) & ~(1u << 31) : UINT32_MAX;
        if (value >= m->text_len)
            break;
        *to = m->text + value;
        found = i + 1;
    }
    return found;
}

void charsmap_apply(struct str *out, const struct norm_step *step, const char *s, size_t n,
                    size_t most)
{
    struct charsmap m;
    if (!open_map(&m, step->from, step->from_len))
        return;
    for (size_t i = 0, len; i < n && out->len <= most; i += len) {
        const char *to = NULL;
        uint32_t rune;
        int64_t which;
        len = step->keep ? added_match(step->keep, s + i, n - i, &which) : 0;
        if (len > 0) {
            str_add_bytes(out, s + i, len);
            continue;
        }
        len = find_entry(&m, s + i, n - i, 0, &to);
        if (len > 0) {
            str_add(out, to);
            continue;
        }
        int k = utf8_decode(s + i, n - i, &rune);
        len = k > 0 ? (size_t)k : 1;
        str_add_bytes(out, s + i, len);
    }
}

/* Bytes of the grapheme cluster that s begins with; invalid bytes stand alone. */
static size_t cluster(const char *s, size_t n)
{
    uint32_t a, b;
    int32_t state = 0;
    int k = utf8_decode(s, n, &a);
    size_t at = k > 0 ? (size_t)k : 1;
    for (; k > 0 && at < n; at += (size_t)k, a = b) {
        k = utf8_decode(s + at, n - at, &b);
        if (k == 0 || utf8_breaks_between(a, b, &state))
            break;
    }
    return at;
}

void charsmap_clusters(struct str *out, const struct norm_step *step, const char *s, size_t n,
                       size_t most)
{
    enum { WHOLE = 6 };
    struct charsmap m;
    if (!open_map(&m, step->from, step->from_len))
        return;
    for (size_t i = 0, len; i < n && out->len <= most; i += len) {
        const char *to = NULL;
        uint32_t rune;
        len = cluster(s + i, n - i);
        if (len < WHOLE && find_entry(&m, s + i, len, 1, &to)) {
            str_add(out, to);
            continue;
        }
        for (size_t at = i, k; at < i + len; at += k) {
            int bytes = utf8_decode(s + at, n - at, &rune);
            k = bytes > 0 ? (size_t)bytes : 1;
            if (find_entry(&m, s + at, k, 1, &to))
                str_add(out, to);
            else
                str_add_bytes(out, s + at, k);
        }
    }
}
