/* Arbitrary bytes through the sanitiser: the output is valid UTF-8, no wider than requested, without
 * cursor movement or bidi controls. */
#include <stdint.h>
#include <stdlib.h>

#include "base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct str *out, int cells, int ascii)
{
    const char *s = str_text(out);
    if (utf8_valid(s, out->len) != out->len || (cells >= 0 && utf8_cells(s, out->len) > cells))
        abort();
    for (size_t i = 0; i < out->len;) {
        uint32_t cp;
        int n = utf8_decode(s + i, out->len - i, &cp);
        if (cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || (ascii && cp > 0x7f))
            abort();
        if ((cp >= 0x200b && cp <= 0x200f) || (cp >= 0x2028 && cp <= 0x202e) ||
            (cp >= 0x2066 && cp <= 0x2069) || (cp >= 0xe0000 && cp <= 0xe0fff))
            abort();
        i += (size_t)n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str out = {0};
    if (size == 0)
        return 0;
    int cells = data[0] % 32 - 1, ascii = data[0] >> 7;
    utf8_sanitise(&out, (const char *)data + 1, size - 1, cells, ascii);
    check(&out, cells, ascii);
    str_reset(&out);
    str_add_json(&out, (const char *)data, size);
    if (utf8_valid(str_text(&out), out.len) != out.len)
        abort();
    str_reset(&out);
    str_add_bytes(&out, data, size);
    utf8_scrub(out.p);
    str_release(&out);
    return 0;
}
