/* Unicode normalisation forms, by utf8proc. */
#include "base/nfc.h"

#include <stdlib.h>
#include <utf8proc.h>

#include "base/utf8.h"

/* Lead bytes up to 0xCB encode code points below U+0300, which form C does not change. */
int nfc_needed(enum nfc_form form, const char *s, size_t n)
{
    unsigned char first = form == NFC_FORM_C ? 0xCC : 0x80;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] >= first)
            return 1;
    return 0;
}

static utf8proc_option_t options(enum nfc_form form)
{
    int composed = form == NFC_FORM_C || form == NFC_FORM_KC,
        compatible = form == NFC_FORM_KC || form == NFC_FORM_KD;
    return UTF8PROC_STABLE | (composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
           (compatible ? UTF8PROC_COMPAT : 0);
}

/* utf8proc takes whole strings, so large inputs are split at newlines, which no form crosses. */
static size_t piece_end(const char *s, size_t n, size_t from)
{
    size_t end = from;
    while (end < n && s[end] != '\n')
        end++;
    return end < n ? end + 1 : n;
}

static void apply_valid(enum nfc_form form, struct str *out, const char *s, size_t n)
{
    for (size_t at = 0, end; at < n; at = end) {
        end = piece_end(s, n, at);
        if (!nfc_needed(form, s + at, end - at)) {
            str_add_bytes(out, s + at, end - at);
            continue;
        }
        utf8proc_uint8_t *made = NULL;
        utf8proc_ssize_t len = utf8proc_map((const utf8proc_uint8_t *)s + at,
                                            (utf8proc_ssize_t)(end - at), &made, options(form));
        if (len >= 0)
            str_add_bytes(out, made, (size_t)len);
        else
            out->failed = 1; /* out of memory: the text is valid UTF-8 */
        free(made);
    }
}

void nfc_apply(enum nfc_form form, struct str *out, const char *s, size_t n)
{
    size_t at = 0;
    while (at < n && !out->failed) {
        size_t run = utf8_valid(s + at, n - at);
        apply_valid(form, out, s + at, run);
        at += run;
        if (at < n)
            str_add_bytes(out, s + at++, 1);
    }
}
