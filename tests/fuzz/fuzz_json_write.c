/* What is written as JSON is read again as it was: strings (of other bytes: valid UTF-8), integers, and other numbers to nine
 * digits.  Input: a double and an integer of 8 bytes each, then a string. */
#include <math.h>

#include "base/json.h"
#include "base/utf8.h"
#include "io/json_scan.h"

#include "kit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json *j = NULL;
    struct str out = {0};
    struct err e = {0};
    double x;
    int64_t i;
    if (size < 16)
        return 0;
    memcpy(&x, data, 8);
    memcpy(&i, data + 8, 8);
    const char *p = (const char *)data + 16;
    size_t n = size - 16, got = 0;
    int is_text = utf8_valid(p, n) == n && !memchr(p, 0, n);
    str_add(&out, "{");
    json_add_num(&out, "real", x);
    json_add_int(&out, "whole", i);
    json_key(&out, "text");
    str_add_json(&out, p, n);
    json_add_str(&out, "end", "");
    str_add(&out, "}");
    need(!out.failed && utf8_valid(out.p, out.len) == out.len);
    for (size_t k = 0; k < out.len; k++)
        need((unsigned char)out.p[k] >= 0x20);
    /* the parser refuses NUL in strings; the scanner is for what it refuses */
    int rc = json_parse(&j, out.p, out.len, "input", &e);
    need(rc == 0 || memchr(p, 0, n) != NULL);
    const struct json_node *root = rc == 0 ? json_root(j) : NULL;
    const char *text = json_str(json_get(root, "text"), &got);
    if (rc == 0) {
        need(json_int(json_get(root, "whole"), ~i) == i);
        double back = json_num(json_get(root, "real"), 0.5);
        int is_whole = fabs(x) < 0x1p53 && x == floor(x);
        need(isfinite(x) ? fabs(back - x) <= (is_whole ? 0 : 5e-9 * fabs(x) + 5e-324)
                         : json_kind_of(json_get(root, "real")) == JSON_KIND_NULL);
        need(text && (!is_text || (got == n && memcmp(text, p, n) == 0)));
    }
    struct json_scan s = {.p = out.p, .end = out.p + out.len};
    enum json_token t;
    while ((t = json_scan_next(&s)) != JSON_SCAN_DONE)
        need(t != JSON_SCAN_BAD && t != JSON_SCAN_CUT);
    json_free(j);
    str_release(&out);
    return 0;
}
