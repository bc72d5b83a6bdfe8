/* Base64 encoding and decoding. */
#include "base/base64.h"

#include <stdint.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int base64_bytes(char *out, const char *s, size_t n)
{
    uint32_t bits = 0;
    int have = 0, made = 0;
    while (n > 0 && s[n - 1] == '=')
        n--;
    for (size_t i = 0; i < n; i++) {
        int d = base64_digit(s[i]);
        if (d < 0)
            return -1;
        bits = bits << 6 | (uint32_t)d;
        have += 6;
        if (have >= 8) {
            have -= 8;
            out[made++] = (char)(bits >> have & 255);
        }
    }
    return have < 6 ? made : -1;
}

int base64_decode(struct str *out, const char *s, size_t n, struct err *e)
{
    int rc = 0;
    for (size_t at = 0, part; rc >= 0 && at < n; at += part) { /* 4 characters per 3 bytes */
        char some[768];
        part = n - at < 1024 ? n - at : 1024;
        int made = base64_bytes(some, s + at, part);
        if (made < 0)
            rc = err_set(e, DS_EFORMAT, "invalid base64 at byte %zu of %zu", at, n);
        else
            str_add_bytes(out, some, (size_t)made);
    }
    return rc < 0 || !out->failed ? rc : err_set(e, DS_EMEM, "out of memory for %zu bytes", n);
}

void base64_encode(struct str *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i += 3) {
        uint32_t bits = 0;
        for (size_t k = 0; k < 3; k++)
            bits = bits << 8 | (i + k < n ? (unsigned char)s[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            str_add_char(out, i + k <= n ? digits[bits >> (18 - 6 * k) & 63] : '=');
    }
}
