/* A state machine over JSON text: which token may come next, and where it ends. */
#include "io/json_scan.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/decimal.h"
#include "base/utf8.h"

/* What may come next. */
enum { VALUE, VALUE_OR_CLOSE, KEY, KEY_OR_CLOSE, COMMA_OR_CLOSE, NOTHING };

static enum json_token after_value(struct json_scan *s, enum json_token token)
{
    s->state = s->depth > 0 ? COMMA_OR_CLOSE : NOTHING;
    return token;
}

static int is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* p is after the opening quote; afterwards after the closing one. */
static enum json_token string(struct json_scan *s, enum json_token token)
{
    const char *p = s->p, *end = s->end;
    s->text = p;
    s->has_escape = 0;
    for (; p < end && *p != '"'; p++) {
        if ((unsigned char)*p < 0x20) {
            s->p = p;
            return JSON_SCAN_BAD;
        }
        if (*p != '\\')
            continue;
        s->has_escape = 1;
        if (++p == end)
            break;
        if (*p != 'u' && (!*p || !strchr("\"\\/bfnrt", *p))) {
            s->p = p;
            return JSON_SCAN_BAD;
        }
        for (int k = 0; *p == 'u' && k < 4; k++) {
            if (end - p - 1 <= k)
                return JSON_SCAN_CUT;
            if (!is_hex(p[k + 1])) {
                s->p = p;
                return JSON_SCAN_BAD;
            }
        }
    }
    if (p >= end)
        return JSON_SCAN_CUT;
    s->n = (size_t)(p - s->text);
    s->p = p + 1;
    return token;
}

/* The grammar is narrower than decimal_read's: no sign "+", no leading zero or point. */
static enum json_token number(struct json_scan *s)
{
    const char *p = s->p, *end = s->end;
    p += *p == '-';
    if (p == end)
        return JSON_SCAN_CUT;
    const char *whole = p;
    while (p < end && is_digit(*p))
        p++;
    int is_bad = p == whole || (*whole == '0' && p - whole > 1);
    if (p < end && !is_bad && *p == '.') {
        const char *fraction = ++p;
        while (p < end && is_digit(*p))
            p++;
        is_bad = p == fraction && p < end;
    }
    if (p < end && !is_bad && (*p == 'e' || *p == 'E')) {
        p++;
        p += p < end && (*p == '+' || *p == '-');
        const char *exponent = p;
        while (p < end && is_digit(*p))
            p++;
        is_bad = p == exponent && p < end;
    }
    if (is_bad)
        return JSON_SCAN_BAD;
    if (p == end) /* more digits may follow */
        return JSON_SCAN_CUT;
    if (decimal_read(s->p, (size_t)(p - s->p), '.', &s->value) == 0)
        return JSON_SCAN_BAD;
    s->text = s->p;
    s->n = (size_t)(p - s->p);
    s->p = p;
    return after_value(s, JSON_SCAN_NUMBER);
}

static enum json_token word(struct json_scan *s)
{
    static const struct {
        const char *text;
        enum json_token token;
        double value;
    } words[] = {
        {"true", JSON_SCAN_BOOL, 1},
        {"false", JSON_SCAN_BOOL, 0},
        {"null", JSON_SCAN_NULL, 0},
        {"NaN", JSON_SCAN_NUMBER, (double)NAN},
        {"Infinity", JSON_SCAN_NUMBER, HUGE_VAL},
        {"-Infinity", JSON_SCAN_NUMBER, -HUGE_VAL},
    };
    size_t left = (size_t)(s->end - s->p);
    for (size_t i = 0; i < DS_LEN(words); i++) {
        size_t n = strlen(words[i].text), k = n < left ? n : left;
        if (memcmp(s->p, words[i].text, k) != 0)
            continue;
        if (k < n)
            return JSON_SCAN_CUT;
        s->text = s->p;
        s->n = n;
        s->p += n;
        s->value = words[i].value;
        return after_value(s, words[i].token);
    }
    return *s->p == '-' ? number(s) : JSON_SCAN_BAD;
}

static enum json_token enter(struct json_scan *s, int is_array)
{
    if (s->depth == JSON_SCAN_DEPTH)
        return JSON_SCAN_BAD;
    s->is_array[s->depth++] = (char)is_array;
    s->state = is_array ? VALUE_OR_CLOSE : KEY_OR_CLOSE;
    s->p++;
    return is_array ? JSON_SCAN_ARRAY : JSON_SCAN_OBJECT;
}

static void skip_space(struct json_scan *s)
{
    while (s->p < s->end && is_space(*s->p))
        s->p++;
}

static enum json_token key(struct json_scan *s)
{
    if (*s->p != '"')
        return JSON_SCAN_BAD;
    const char *start = s->p++;
    enum json_token got = string(s, JSON_SCAN_KEY);
    if (got != JSON_SCAN_KEY)
        return got;
    skip_space(s);
    if (s->p == s->end) {
        s->p = start;
        return JSON_SCAN_CUT;
    }
    if (*s->p != ':')
        return JSON_SCAN_BAD;
    s->p++;
    s->state = VALUE;
    return JSON_SCAN_KEY;
}

static enum json_token value(struct json_scan *s)
{
    char c = *s->p;
    if (c == '{' || c == '[')
        return enter(s, c == '[');
    if (is_digit(c))
        return number(s);
    if (c != '"')
        return word(s);
    s->p++;
    return after_value(s, string(s, JSON_SCAN_STRING));
}

enum json_token json_scan_next(struct json_scan *s)
{
    if (s->state == NOTHING)
        return JSON_SCAN_DONE;
    skip_space(s);
    if (s->p == s->end)
        return JSON_SCAN_CUT;
    int is_array = s->depth > 0 && s->is_array[s->depth - 1];
    if (*s->p == (is_array ? ']' : '}') && s->state != VALUE && s->state != KEY) {
        s->p++;
        s->depth--;
        return after_value(s, JSON_SCAN_CLOSE);
    }
    if (s->state == COMMA_OR_CLOSE) {
        if (*s->p != ',')
            return JSON_SCAN_BAD;
        s->p++;
        s->state = is_array ? VALUE : KEY;
        skip_space(s);
        if (s->p == s->end)
            return JSON_SCAN_CUT;
    }
    return s->state == KEY || s->state == KEY_OR_CLOSE ? key(s) : value(s);
}

enum json_token json_scan_skip(struct json_scan *s)
{
    int depth = s->depth - 1;
    enum json_token t;
    do
        t = json_scan_next(s);
    while (t != JSON_SCAN_BAD && t != JSON_SCAN_CUT && s->depth > depth);
    return t;
}

/* ---- text ---- */

static uint32_t hex4(const char *p)
{
    uint32_t v = 0;
    for (int i = 0; i < 4; i++)
        v = v * 16 + (uint32_t)(is_digit(p[i]) ? p[i] - '0' : (p[i] | 0x20) - 'a' + 10);
    return v;
}

void json_scan_text(const struct json_scan *s, struct str *out)
{
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    const char *p = s->text, *end = p + s->n;
    char utf8[4];
    if (!s->has_escape) {
        str_add_bytes(out, p, s->n);
        return;
    }
    while (p < end) {
        if (*p != '\\') {
            str_add_char(out, *p++);
            continue;
        }
        const char *known = strchr(from, p[1]);
        if (p[1] != 'u') {
            str_add_char(out, known ? to[known - from] : p[1]);
            p += 2;
            continue;
        }
        uint32_t c = hex4(p + 2), low = 0;
        p += 6;
        if (c >= 0xD800 && c < 0xDC00 && end - p >= 6 && p[0] == '\\' && p[1] == 'u')
            low = hex4(p + 2);
        if (low >= 0xDC00 && low < 0xE000) {
            c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
            p += 6;
        }
        str_add_bytes(out, utf8, (size_t)utf8_encode(utf8, c >= 0xD800 && c < 0xE000 ? 0xFFFD : c));
    }
}

int json_scan_is(const struct json_scan *s, const char *text)
{
    return strlen(text) == s->n && memcmp(s->text, text, s->n) == 0;
}
