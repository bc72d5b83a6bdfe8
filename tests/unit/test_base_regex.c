/* Regular expressions: splitting, limits and invalid input. */
#include "t.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/regex.h"
#include "base/str.h"

static struct regex *make(const char *pattern)
{
    struct err e = {0};
    struct regex *r = NULL;
    t_ok(regex_new(&r, pattern, strlen(pattern), "tokenizer.json", &e), &e);
    return r;
}

/* The pieces of a text, joined by '|'. */
static const char *pieces(const char *pattern, const char *text)
{
    static struct str out;
    struct err e = {0};
    struct regex *r = make(pattern);
    size_t at = 0, start, end, n = strlen(text);
    int rc;
    str_reset(&out);
    while ((rc = regex_next(r, text, n, at, 0, &start, &end, &e)) == 1 && end > at) {
        str_addf(&out, "%.*s|", (int)(end - start), text + start);
        at = end;
    }
    t_ok(rc, &e);
    regex_free(r);
    return str_text(&out);
}

static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
                           "\\s+(?!\\S)|\\s+";

T(regex_splits_as_gpt2_does)
{
    t_str(pieces(gpt2, "Hello  world's 42!"), "Hello| | world|'s| 42|!|");
    t_str(pieces(gpt2, "\xd0\xbf\xd1\x80 \xe4\xb8\xad"), "\xd0\xbf\xd1\x80| \xe4\xb8\xad|");
}

T(regex_space_is_unicode_white_space)
{
    t_str(pieces("\\s", "a\xe1\xa0\x8e"
                        "b"),
          ""); /* U+180E is none */
    t_str(pieces("[^\\s]+", "a\xe1\xa0\x8e"
                            "b c"),
          "a\xe1\xa0\x8e"
          "b|c|");
    t_str(pieces("\\S+", "a\xc2\x85\xe1\xa0\x8e"), "a|\xe1\xa0\x8e|");
    t_str(pieces("\\\\s", "\\s x"), "\\s|"); /* an escaped backslash and an s */
    t_str(pieces("\\Q\\s\\E+", "\\sss"), "\\sss|");
    t_str(pieces("[[:alpha:]\\s]+", "a b1c"), "a b|c|");
    t_str(pieces("[]\\s]+", "a] ]b"), "] ]|");
}

T(regex_rejects_recursion_and_oversized_patterns)
{
    static const char *const bad[] = {
        "\\C", "(a(?R)?b)", "(a)(?1)", "(?<n>a)(?&n)", "(?P<n>a)(?P>n)", "(a)\\g<1>", "(a)(?-1)",
        "(",   "[",         "a{9,1}",  "\\",           "(?<=a+)b"};
    struct err e = {0};
    struct regex *r = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        t_fails(regex_new(&r, bad[i], strlen(bad[i]), "t.json", &e), &e, DS_EFORMAT, "t.json: ");
    struct str s = {0};
    for (int i = 0; i < 5000; i++)
        str_add_char(&s, '(');
    t_fails(regex_new(&r, s.p, s.len, "t.json", &e), &e, DS_EFORMAT, "nested");
    for (int i = 0; i < 70000; i++)
        str_add_char(&s, 'a');
    t_fails(regex_new(&r, s.p, s.len, "t.json", &e), &e, DS_EFORMAT, "must be at most 65536");
    str_release(&s);
    t_true(r == NULL);
}

T(endless_backtracking_is_an_error_not_no_match)
{
    struct err e = {0};
    struct regex *r = make("(a+)+$");
    const char *text = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!";
    size_t start, end;
    double begin = clock_mono();
    t_fails(regex_next(r, text, strlen(text), 0, 0, &start, &end, &e), &e, DS_ERANGE,
            "tokenizer.json: pattern exceeds the matching limits");
    t_true(clock_mono() - begin < 2);
    regex_free(r);
}

T(regex_on_bad_utf8_names_the_offset)
{
    struct err e = {0};
    struct regex *r = make("a");
    size_t start, end;
    t_fails(regex_next(r, "bb\xff", 3, 0, 0, &start, &end, &e), &e, DS_EFORMAT, "offset 2");
    t_eq(regex_next(r, "bb", 2, 5, 0, &start, &end, &e), 0);
    t_eq(regex_next(r, NULL, 0, 0, 0, &start, &end, &e), 0);
    t_eq(regex_next(r, "bab", 3, 1, 1, &start, &end, &e), 1);
    t_true(start == 1 && end == 2);
    regex_free(r);
    regex_free(NULL);
}

T(regex_takes_long_runs)
{
    struct err e = {0};
    struct regex *r = make(gpt2);
    size_t n = 1 << 20, start, end;
    char *text = mem_alloc(n, 1);
    t_true(text != NULL);
    for (const char *c = " a!\n"; *c; c++) {
        memset(text, *c, n);
        t_eq(regex_next(r, text, n, 0, 1, &start, &end, &e), 1);
        t_true(start == 0 && end == n);
    }
    mem_free(text);
    regex_free(r);
}

T(regex_survives_every_failed_allocation)
{
    int rc = -1;
    for (uint64_t n = 1; rc < 0; n++) {
        struct err e = {0};
        struct regex *r = NULL;
        size_t start, end;
        uint64_t before = mem_calls();
        mem_fail_at(before + n, 0);
        rc = regex_new(&r, gpt2, sizeof gpt2 - 1, "t", &e);
        t_true(rc == 0 || rc == DS_EMEM);
        if (rc == 0)
            rc = regex_next(r, "ab cd", 5, 0, 0, &start, &end, &e) == 1 ? 0 : -1;
        t_truef(rc == 0 || strstr(e.text, "memory"), "%d %s", rc, e.text);
        int reached = mem_calls() >= before + n;
        mem_fail_at(0, 0);
        regex_free(r);
        if (reached)
            rc = -1; /* done without that block, which is fine: go on */
        t_true(n < 1000);
    }
}
