/* Growing strings, JSON literals, and formatting of numbers and durations. */
#include "base/str.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

int str_reserve(struct str *s, size_t more)
{
    void *p = s->p;
    if (s->failed)
        return 0;
    if (s->is_fixed) {
        s->failed = more > s->cap - s->len - 1;
        return !s->failed;
    }
    if (more > SIZE_MAX - s->len - 1 || mem_grow(&p, &s->cap, s->len + more + 1, 1) < 0) {
        s->failed = 1;
        return 0;
    }
    s->p = p;
    return 1;
}

struct str str_in(char *room, size_t size)
{
    room[0] = '\0';
    return (struct str){.p = room, .cap = size, .is_fixed = 1};
}

void str_add_bytes(struct str *s, const void *bytes, size_t n)
{
    int had_failed = s->failed;
    if (!str_reserve(s, n)) {
        if (!s->is_fixed || had_failed)
            return;
        n = s->cap - s->len - 1; /* what fits */
    }
    if (n)
        memcpy(s->p + s->len, bytes, n);
    s->len += n;
    s->p[s->len] = '\0';
}

void str_add(struct str *s, const char *text)
{
    str_add_bytes(s, text, strlen(text));
}

void str_add_char(struct str *s, char c)
{
    str_add_bytes(s, &c, 1);
}

void str_add_str(struct str *s, const struct str *piece)
{
    str_add_bytes(s, str_text(piece), piece->len);
    s->failed |= piece->failed;
}

void str_vaddf(struct str *s, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int had_failed = s->failed, n = vsnprintf(NULL, 0, fmt, ap);
    if (n < 0)
        s->failed = 1;
    else if (str_reserve(s, (size_t)n)) {
        vsnprintf(s->p + s->len, (size_t)n + 1, fmt, again);
        s->len += (size_t)n;
    } else if (s->is_fixed && !had_failed) {
        vsnprintf(s->p + s->len, s->cap - s->len, fmt, again);
        s->len = s->cap - 1;
    }
    va_end(again);
}

void str_addf(struct str *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    str_vaddf(s, fmt, ap);
    va_end(ap);
}

static const char *json_escape(char c)
{
    switch (c) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default: return NULL;
    }
}

/* JSON encodes code points beyond 16 bits as surrogate pairs. */
static void add_json_escape(struct str *s, uint32_t cp)
{
    if (cp > 0xffff)
        str_addf(s, "\\u%04x", (unsigned)(0xd800 + ((cp - 0x10000) >> 10)));
    str_addf(s, "\\u%04x", (unsigned)(cp > 0xffff ? 0xdc00 + (cp & 0x3ff) : cp));
}

void str_add_json(struct str *s, const char *text, size_t n)
{
    str_add_char(s, '"');
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        const char *escape = json_escape(text[i]);
        int len = utf8_decode(text + i, n - i, &cp);
        if (escape)
            str_add(s, escape);
        else if (len == 0)
            str_add(s, "\xef\xbf\xbd");
        else if (cp < 0x20 || cp == 0x7f || (cp >= 0x80 && utf8_is_hidden(cp)))
            add_json_escape(s, cp);
        else
            str_add_bytes(s, text + i, (size_t)len);
        i += len ? (size_t)len : 1;
    }
    str_add_char(s, '"');
}

void str_add_shell(struct str *s, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_./,:=+@%-";
    if (*word && strspn(word, plain) == strlen(word)) {
        str_add(s, word);
        return;
    }
    str_add_char(s, '\'');
    for (; *word; word++)
        if (*word == '\'')
            str_add(s, "'\\''");
        else
            str_add_char(s, *word);
    str_add_char(s, '\'');
}

void str_add_json_num(struct str *s, double x)
{
    char text[40];
    if (!isfinite(x)) {
        str_add(s, "null");
        return;
    }
    /* Integers (tokens, steps, bytes) are printed exactly: nine digits would round them. */
    if (fabs(x) < 9007199254740992.0 && x == floor(x))
        snprintf(text, sizeof text, "%.0f", x == 0 ? 0.0 : x);
    else
        snprintf(text, sizeof text, "%.9g", x);
    for (char *p = text; *p; p++)
        if (*p == ',') /* decimal comma of the locale */
            *p = '.';
    str_add(s, text);
}

static int reads_back(const char *text, double x, int is_float)
{
    return is_float ? (double)strtof(text, NULL) == x : strtod(text, NULL) == x;
}

static void add_real(struct str *s, double x, int is_float)
{
    char text[40];
    int digits = is_float ? 6 : 15, most = is_float ? 9 : 17;
    if (!isfinite(x)) {
        str_add(s, isnan(x) ? "NaN" : x > 0 ? "Infinity" : "-Infinity");
        return;
    }
    if (fabs(x) < 1e15 && x == floor(x)) /* Python's json reads -0 as the integer */
        snprintf(text, sizeof text, x == 0 && signbit(x) ? "-0.0" : "%.0f", x);
    else
        do
            snprintf(text, sizeof text, "%.*g", digits, x);
        while (!reads_back(text, x, is_float) && ++digits <= most);
    for (char *p = text; *p; p++)
        if (*p == ',') /* decimal comma of the locale */
            *p = '.';
    str_add(s, text);
}

void str_add_real(struct str *s, double x)
{
    add_real(s, x, 0);
}

void str_add_real32(struct str *s, float x)
{
    add_real(s, (double)x, 1);
}

void str_reset(struct str *s)
{
    s->len = 0;
    if (s->p)
        s->p[0] = '\0';
}

void str_renew(struct str *s)
{
    str_reset(s);
    s->failed = 0;
}

void str_release(struct str *s)
{
    if (!s->is_fixed)
        mem_free(s->p);
    *s = (struct str){0};
}

const char *str_text(const struct str *s)
{
    return s->p ? s->p : "";
}

const char *str_si(char out[16], double x)
{
    static const char unit[] = "\0kMGTPE";
    double a = fabs(x);
    size_t u = 0;
    if (isnan(x)) {
        snprintf(out, 16, "nan");
        return out;
    }
    /* 999.5 would print as 1000, so it uses the next unit. */
    while (a >= 999.5 && u + 1 < sizeof unit - 1) {
        a /= 1000;
        u++;
    }
    const char *sign = x < 0 ? "-" : "";
    if (a >= 999.5)
        snprintf(out, 16, "%.3g", x);
    else if (u == 0)
        snprintf(out, 16, "%s%.3g", sign, a);
    else
        snprintf(out, 16, "%s%.*f%c", sign, a < 9.995 ? 2 : a < 99.95 ? 1 : 0, a, unit[u]);
    return out;
}

const char *str_duration(char out[16], double seconds)
{
    if (!(seconds >= 0) || seconds > 1e9) {
        snprintf(out, 16, "-");
    } else if (seconds < 59.95) {
        snprintf(out, 16, seconds < 0.995 ? "%.2fs" : "%.1fs", seconds);
    } else {
        unsigned s = (unsigned)(seconds + 0.5); /* at most 11574 days, see above */
        if (s < 3600)
            snprintf(out, 16, "%um%02us", s / 60, s % 60);
        else if (s < 86400)
            snprintf(out, 16, "%uh%02um", s / 3600, s / 60 % 60);
        else
            snprintf(out, 16, "%ud%02uh", s / 86400, s / 3600 % 24);
    }
    return out;
}

int str_copy(char *dst, size_t size, const char *src)
{
    size_t n = strlen(src);
    if (size == 0)
        return 1;
    int cut = n >= size;
    if (cut)
        n = size - 1;
    memcpy(dst, src, n);
    dst[n] = '\0';
    return cut;
}

enum { DISTANCE_MAX = 128 }; /* longer than any key; the rest counts by its length */

static int min2(int a, int b)
{
    return a < b ? a : b;
}

int str_distance(const char *a, const char *b)
{
    int row[3][DISTANCE_MAX + 1];
    int na = (int)strnlen(a, DISTANCE_MAX), nb = (int)strnlen(b, DISTANCE_MAX);
    int *before = row[0], *above = row[1], *here = row[2];
    memset(row, 0, sizeof row);
    for (int j = 0; j <= nb; j++)
        here[j] = j;
    for (int i = 1; i <= na; i++) {
        int *spare = before;
        before = above;
        above = here;
        here = spare;
        here[0] = i;
        for (int j = 1; j <= nb; j++) {
            int d = above[j - 1] + (a[i - 1] != b[j - 1]);
            d = min2(d, min2(above[j], here[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d = min2(d, before[j - 2] + 1);
            here[j] = d;
        }
    }
    size_t rest_a = strlen(a + na), rest_b = strlen(b + nb);
    size_t rest = rest_a > rest_b ? rest_a : rest_b;
    return here[nb] + (int)(rest < 1000000 ? rest : 1000000);
}
