/* UTF-8 decoding, widths and sanitising. */
#include "t.h"

#include <locale.h>

#include "base/utf8.h"

static char got[70000];

static const char *safe_n(const char *s, size_t n, int cells, int ascii)
{
    struct str out = {0};
    utf8_sanitise(&out, s, n, cells, ascii);
    ck_assert(!out.failed && out.len < sizeof got);
    memcpy(got, str_text(&out), out.len + 1);
    str_release(&out);
    return got;
}

static const char *safe(const char *s)
{
    return safe_n(s, strlen(s), -1, 0);
}

T(utf8_decode_is_strict)
{
    static const char *const bad[] = {"\x80",
                                      "\xc0\xaf",
                                      "\xc1\xbf",
                                      "\xe0\x80\x80",
                                      "\xed\xa0\x80",
                                      "\xf0\x80\x80\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xff",
                                      "\xe2\x82",
                                      "\xc3"};
    uint32_t cp;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        t_eq(utf8_decode(bad[i], strlen(bad[i]), &cp), 0);
        t_eq(cp, (unsigned char)bad[i][0]);
    }
}

T(utf8_encode_and_decode_agree_on_every_code_point)
{
    for (uint32_t cp = 0; cp <= 0x110000; cp++) {
        char b[4];
        uint32_t back;
        int n = utf8_encode(b, cp);
        if (cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff)) {
            t_eq(n, 0);
            continue;
        }
        if (utf8_decode(b, (size_t)n, &back) != n || back != cp)
            ck_abort_msg("U+%04X", (unsigned)cp);
        if (n > 1 && utf8_decode(b, (size_t)n - 1, &back) != 0)
            ck_abort_msg("cut U+%04X", (unsigned)cp);
    }
}

T(utf8_valid_gives_the_offset)
{
    t_eq(utf8_valid("ab\xc3\xa9", 4), 4);
    t_eq(utf8_valid("ab\xc3\xa9\xff z", 7), 4);
    t_eq(utf8_valid("", 0), 0);
    t_eq(utf8_valid("abc\xe2\x82", 5), 3);
}

T(utf8_width_does_not_depend_on_the_locale)
{
    setlocale(LC_ALL, "C");
    t_eq(utf8_width('a'), 1);
    t_eq(utf8_width(0xe9), 1);
    t_eq(utf8_width(0x4e2d), 2);
    t_eq(utf8_width(0x1f600), 2);
    t_eq(utf8_width(0x301), 0);
    t_eq(utf8_width(7), 0);
    t_eq(utf8_width(0xffffffff), 0);
    t_eq(utf8_cells("a\xe4\xb8\xad"
                    "e\xcc\x81\xff",
                    8),
         5);
}

T(sanitised_escapes_cannot_reach_the_terminal)
{
    t_str(safe("\x1b]0;x\x07"), "<0x1B>]0;x<0x07>");
    t_str(safe("\x1b[2J\x7f\r\b"), "<0x1B>[2J<0x7F><0x0D><0x08>");
    t_str(safe("\xc2\x9b"
               "2J"),
          "<U+009B>2J");
    t_str(safe("\x9b"
               "2J"),
          "<0x9B>2J");
    t_str(safe("a\nb\tc"), "a\\nb\\tc");
    t_str(safe_n("a\0b", 3, -1, 0), "a<0x00>b");
    t_str(safe("\x1bPq\x1b\\"), "<0x1B>Pq<0x1B>\\");
    t_str(safe("\x1b_Gf=100;AAAA\x1b\\"), "<0x1B>_Gf=100;AAAA<0x1B>\\");
    t_str(safe("\xe2\x80\xa8"), "<U+2028>");
}

T(sanitised_text_has_no_hidden_direction_or_joiners)
{
    t_str(safe("a\xe2\x80\xae"
               "b"),
          "a<U+202E>b");
    t_str(safe("\xe2\x81\xa6\xe2\x81\xa9\xd8\x9c"), "<U+2066><U+2069><U+061C>");
    t_str(safe("a\xe2\x80\x8d\xe2\x80\x8b\xef\xb8\x8f\xef\xbb\xbf"
               "b"),
          "ab");
    t_str(safe("x\xf3\xa0\x81\x81"), "x"); /* tag letter */
    t_str(safe("\xee\x80\x80\xf4\x8f\xbf\xbf"), "U+E000U+10FFFF");
    t_str(safe("\xcd\xb8"), "U+0378");
}

T(sanitised_marks_are_at_most_three_a_cell)
{
    char zalgo[2001] = "e";
    for (int i = 0; i < 1000; i++)
        memcpy(zalgo + 1 + 2 * i - (i == 999), "\xcc\x81", i == 999 ? 0 : 2);
    zalgo[1999] = '\0';
    t_str(safe(zalgo), "e\xcc\x81\xcc\x81\xcc\x81");
    t_str(safe("a\xcc\x81"
               "b\xcc\x81"),
          "a\xcc\x81"
          "b\xcc\x81");
    /* A mark with nothing before it would sit on a stranger's cell. */
    t_str(safe("\xcc\x81x"), "\xe2\x97\x8c\xcc\x81x");
}

T(sanitised_text_is_truncated_by_cells)
{
    t_str(safe_n("hello", 5, 5, 0), "hello");
    t_str(safe_n("hello!", 6, 5, 0), "hell\xe2\x80\xa6");
    t_str(safe_n("hello!", 6, 5, 1), "hel..");
    t_str(safe_n("\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad", 9, 5, 0),
          "\xe4\xb8\xad\xe4\xb8\xad\xe2\x80\xa6");
    t_str(safe_n("\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad", 9, 4, 0), "\xe4\xb8\xad\xe2\x80\xa6");
    t_str(safe_n("ab\x01", 3, 5, 0), "ab\xe2\x80\xa6"); /* an escape is whole or absent */
    t_str(safe_n("hello", 5, 0, 0), "");
    t_str(safe_n("hello", 5, 1, 0), "\xe2\x80\xa6");
    t_str(safe_n("hello", 5, 1, 1), ".");
    t_str(safe_n("", 0, 0, 0), "");
}

T(sanitised_ascii_is_ascii)
{
    t_str(safe_n("caf\xc3\xa9 \xcc\x81", 8, -1, 1), "caf<U+00E9> <U+0301>");
    t_str(safe_n("\xef\xbb\xbf"
                 "a",
                 4, -1, 1),
          "a");
}

/* Whatever goes in: valid UTF-8, nothing but shown characters, and not wider than asked. */
T(sanitised_text_of_any_bytes_is_safe_and_fits)
{
    static const char hostile[] = "\xe2\x80\xae\xf3\xa0\xcc\x81\x1b";
    uint32_t x = 12345;
    for (int round = 0; round < 3000; round++) {
        char in[40];
        size_t n = (size_t)round % sizeof in;
        for (size_t i = 0; i < n; i++) {
            x = x * 1664525 + 1013904223;
            in[i] = (char)(round % 3 ? (int)(x >> 24) : hostile[x >> 29]);
        }
        int cells = round % 20 - 1;
        safe_n(in, n, cells, 0);
        size_t len = strlen(got);
        t_eq(utf8_valid(got, len), len);
        t_true(cells < 0 || utf8_cells(got, len) <= cells);
        for (size_t i = 0; i < len;) {
            uint32_t cp;
            int k = utf8_decode(got + i, len - i, &cp);
            t_true(cp >= 0x20 && (cp < 0x7f || cp > 0x9f) && cp != 0x202e && cp != 0x200d);
            i += (size_t)k;
        }
    }
}

T(scrub_works_in_place)
{
    char a[] = "a\nb\x1b\xff\xc2\x9b\xe2\x80\xae\xc3\xa9\xe2\x82";
    utf8_scrub(a);
    t_str(a, "a b????\?\?\?\xc3\xa9??");
    /* zero width space, tag letter, variation selector, byte order mark, line separator, isolate */
    char hidden[] =
        "x\xe2\x80\x8b\xf3\xa0\x81\x81\xef\xb8\x8f\xef\xbb\xbfy\xe2\x80\xa8\xe2\x81\xa6z";
    utf8_scrub(hidden);
    t_str(hidden, "xy\?\?\?\?\?\?z");
}
