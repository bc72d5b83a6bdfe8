/* Arbitrary bytes token by token: the scanner agrees with the JSON parser on what is JSON and on every
 * value, and a text that is cut is never taken for a whole one. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "io/json_scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(int ok)
{
    if (!ok)
        abort();
}

static void same_text(const struct json_scan *s, const char *want, size_t n)
{
    struct str got = {0};
    json_scan_text(s, &got);
    need(got.len == n && memcmp(str_text(&got), want, n) == 0);
    str_release(&got);
}

/* The value that begins with token t is that of the tree. */
static void same(struct json_scan *s, enum json_token t, const struct json_node *n)
{
    const char *key;
    size_t len, i = 0;
    void *at = NULL;
    switch (json_kind_of(n)) {
    case JSON_KIND_NULL: need(t == JSON_SCAN_NULL); return;
    case JSON_KIND_BOOL: need(t == JSON_SCAN_BOOL && s->value == json_bool(n, 9)); return;
    case JSON_KIND_INT: need(t == JSON_SCAN_NUMBER && s->value == (double)json_int(n, 0)); return;
    case JSON_KIND_REAL: need(t == JSON_SCAN_NUMBER && s->value == json_num(n, 0)); return;
    case JSON_KIND_STRING:
        need(t == JSON_SCAN_STRING);
        key = json_str(n, &len);
        same_text(s, key, len);
        return;
    case JSON_KIND_ARRAY:
        need(t == JSON_SCAN_ARRAY);
        while ((t = json_scan_next(s)) != JSON_SCAN_CLOSE)
            same(s, t, json_at(n, i++));
        need(i == json_len(n));
        return;
    case JSON_KIND_OBJECT:
        need(t == JSON_SCAN_OBJECT);
        for (const struct json_node *v; (v = json_next(n, &at, &key, &len)) != NULL;) {
            need(json_scan_next(s) == JSON_SCAN_KEY);
            same_text(s, key, len);
            same(s, json_scan_next(s), v);
        }
        need(json_scan_next(s) == JSON_SCAN_CLOSE);
        return;
    }
}

static enum json_token run(struct json_scan *s)
{
    enum json_token t;
    while ((t = json_scan_next(s)) != JSON_SCAN_BAD && t != JSON_SCAN_CUT && t != JSON_SCAN_DONE)
        need(s->p <= s->end && s->depth >= 0 && s->depth <= JSON_SCAN_DEPTH);
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *p = (const char *)data;
    struct json *j = NULL;
    struct err e = {0};
    struct json_scan s = {.p = p, .end = p + size};
    enum json_token t = run(&s);
    if (t == JSON_SCAN_DONE && size > 0) { /* without its last byte it is not whole */
        size_t whole = (size_t)(s.p - p);
        struct json_scan cut = {.p = p, .end = p + whole - 1};
        need(run(&cut) == JSON_SCAN_CUT);
    }
    if (json_parse_wide(&j, p, size, "input", &e) < 0) {
        /* what the parser refuses beyond the grammar */
        static const char *const more[] = {"unable to decode byte",
                                           "duplicate object key",
                                           "invalid Unicode",
                                           "\\u0000",
                                           "NUL byte",
                                           "real number overflow",
                                           "end of file",
                                           "nesting depth"};
        int is_known = strstr(e.text, "invalid token") && memchr(p, 'N', size) != NULL;
        is_known |= strstr(e.text, "invalid token") && memchr(p, 'I', size) != NULL;
        for (size_t i = 0; i < sizeof more / sizeof *more; i++)
            is_known |= strstr(e.text, more[i]) != NULL;
        while (t == JSON_SCAN_DONE && s.p < s.end && strchr(" \t\r\n", *s.p) && *s.p)
            s.p++;
        need(t != JSON_SCAN_DONE || is_known || s.p < s.end); /* or something follows */
        return 0;
    }
    enum json_kind kind = json_kind_of(json_root(j));
    if (kind == JSON_KIND_OBJECT ||
        kind == JSON_KIND_ARRAY) { /* a number may go on after the end */
        s = (struct json_scan){.p = p, .end = p + size};
        if (t == JSON_SCAN_DONE)
            same(&s, json_scan_next(&s), json_root(j));
        else
            need(t == JSON_SCAN_BAD); /* deeper, or a number longer, than the scanner takes */
    }
    json_free(j);
    return 0;
}
