/* The heap, checked arithmetic, arenas, the map and strings. */
#include "t.h"

#include <errno.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/checked.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"

T(mem_rejects_sizes_that_overflow)
{
    t_true(mem_alloc(SIZE_MAX / 2, 3) == NULL);
    t_true(mem_alloc_aligned(SIZE_MAX, 1) == NULL);
    t_true(mem_alloc_aligned(SIZE_MAX / 8 + 1, 8) == NULL);
    t_true(mem_realloc(NULL, SIZE_MAX / 2, 4) == NULL);
    t_eq(errno, ENOMEM);
}

T(mem_of_zero_bytes_is_a_valid_pointer)
{
    void *p = mem_alloc(0, 8), *q = mem_dup("", 0), *r = mem_alloc_aligned(0, 4);
    t_true(p && q && r);
    p = mem_realloc(p, 0, 1);
    t_true(p != NULL);
    mem_free(p);
    mem_free(q);
    mem_free_aligned(r);
    mem_free(NULL);
}

T(mem_is_zeroed_and_aligned)
{
    unsigned char *p = mem_alloc_aligned(5000000, 1);
    t_true(p && (uintptr_t)p % 64 == 0);
    for (size_t i = 0; i < 5000000; i += 4099)
        t_eq(p[i], 0);
    mem_free_aligned(p);
}

T(mem_fails_at_the_requested_call)
{
    mem_fail_at(mem_calls() + 2, 0);
    void *a = mem_alloc(1, 1), *b = mem_alloc(1, 1), *c = mem_alloc(1, 1);
    t_true(a && !b && c);
    mem_fail_at(mem_calls() + 1, 1);
    t_true(!mem_alloc(1, 1) && !mem_strdup("x") && !mem_alloc_aligned(1, 1));
    mem_fail_at(0, 0);
    mem_free(a);
    mem_free(c);
}

T(mem_reads_fault_rules_from_the_environment)
{
    uint64_t calls = mem_calls();
    char spec[40];
    snprintf(spec, sizeof spec, "alloc:%llu", (unsigned long long)calls + 2);
    setenv("DEPTHSCOPE_FAIL", spec, 1);
    void *a = mem_alloc(1, 1);
    t_true(a && !mem_alloc(1, 1));
    mem_free(a);
}

T(mem_grow_doubles_and_keeps_the_old_on_failure)
{
    void *p = NULL;
    size_t cap = 0;
    t_eq(mem_grow(&p, &cap, 1, 8), 0);
    t_eq(cap, 8);
    t_eq(mem_grow(&p, &cap, 9, 8), 0);
    t_eq(cap, 16);
    void *old = p;
    t_eq(mem_grow(&p, &cap, SIZE_MAX, 8), DS_EMEM);
    t_true(p == old && cap == 16);
    mem_free(p);
}

T(checked_arithmetic_detects_overflow)
{
    uint64_t x;
    t_true(checked_mul(UINT64_MAX, 2, &x) && checked_add(UINT64_MAX, 1, &x));
    t_true(checked_round(UINT64_MAX - 3, 64, &x));
    t_true(!checked_round(65, 64, &x) && x == 128);
    t_true(!checked_round(64, 64, &x) && x == 64);
}

static size_t three(struct arena *a)
{
    (void)arena_alloc(a, 10, 4);
    size_t mark = arena_mark(a);
    (void)arena_alloc(a, 1000, 8);
    arena_rewind(a, mark);
    (void)arena_zalloc(a, 1, 1);
    return a->peak;
}

T(arena_holds_what_was_measured)
{
    struct err e = {0};
    struct arena a;
    arena_measure(&a, "work");
    size_t peak = three(&a);
    t_eq(peak, 64 + 8000);
    t_ok(arena_reserve(&a, "work", 0, &e), &e);
    t_eq(three(&a), peak);
    t_true(a.size >= peak);
    arena_reset(&a);
    char *p = arena_alloc(&a, 3, 1), *q = arena_zalloc(&a, 64, 1);
    t_true((uintptr_t)p % 64 == 0 && q == p + 64);
    for (int i = 0; i < 64; i++)
        t_eq(q[i], 0);
    arena_release(&a);
    arena_release(&a);
}

T(arena_of_an_impossible_shape_is_an_error_not_a_crash)
{
    struct err e = {0};
    struct arena a;
    arena_measure(&a, "weights");
    (void)arena_alloc(&a, SIZE_MAX / 2, 8);
    (void)arena_alloc(&a, SIZE_MAX / 2, 1);
    t_fails(arena_reserve(&a, "weights", 0, &e), &e, DS_EMEM, "weights");
}

T(map_keeps_many_keys)
{
    struct map m = {0};
    int64_t v = 0;
    char key[32];
    t_eq(map_get(&m, "a", 1, &v), 0);
    for (int i = 0; i < 5000; i++) {
        int n = snprintf(key, sizeof key, "key-%d", i);
        t_eq(map_set(&m, key, (size_t)n, i), 0);
    }
    t_eq(map_set(&m, "key-7", 5, -7), 0);
    t_eq(map_set(&m, "", 0, 1), 0);
    t_eq(map_set(&m, "a\0b", 3, 2), 0);
    t_eq(map_set(&m, "a\0c", 3, 3), 0);
    t_eq(m.n, 5003);
    for (int i = 0; i < 5000; i++) {
        int n = snprintf(key, sizeof key, "key-%d", i);
        t_true(map_get(&m, key, (size_t)n, &v));
        t_eq(v, i == 7 ? -7 : i);
    }
    t_true(map_get(&m, "", 0, &v) && v == 1);
    t_true(map_get(&m, "a\0c", 3, &v) && v == 3);
    t_true(!map_get(&m, "key-5000", 8, &v));
    map_release(&m);
}

T(map_survives_every_failed_allocation)
{
    for (uint64_t n = 1, done = 0; !done; n++) {
        struct map m = {0};
        char key[16];
        int64_t v;
        uint64_t before = mem_calls();
        mem_fail_at(before + n, 0);
        int set = 0;
        for (int i = 0; i < 40; i++) {
            int len = snprintf(key, sizeof key, "%d", i);
            set += map_set(&m, key, (size_t)len, i) == 0;
        }
        done = mem_calls() < before + n;
        mem_fail_at(0, 0);
        t_eq(set, done ? 40 : 39);
        t_eq(m.n, set);
        t_true(map_get(&m, "39", 2, &v) || set == 39);
        map_release(&m);
    }
}

T(str_grows_and_stays_terminated)
{
    struct str s = {0};
    t_str(str_text(&s), "");
    for (int i = 0; i < 1000; i++)
        str_addf(&s, "%d,", i % 10);
    str_add_char(&s, '!');
    str_add_bytes(&s, "a\0b", 3);
    t_eq(s.len, 2004);
    t_eq(s.p[2004], '\0');
    t_true(!s.failed);
    str_reset(&s);
    t_str(str_text(&s), "");
    str_release(&s);
    str_release(&s);
}

T(failed_str_stays_failed_and_unchanged)
{
    struct str s = {0};
    str_add(&s, "abc");
    mem_fail_at(mem_calls() + 1, 0);
    str_addf(&s, "%0100d", 1);
    mem_fail_at(0, 0);
    t_true(s.failed);
    str_add(&s, "x");
    t_str(str_text(&s), "abc");
    str_release(&s);
}

T(reset_str_keeps_its_failure_and_a_renewed_one_forgets_it)
{
    struct str s = {0};
    mem_fail_at(mem_calls() + 1, 0);
    str_add(&s, "lost");
    mem_fail_at(0, 0);
    str_reset(&s);
    str_add(&s, "x");
    t_true(s.failed);
    t_str(str_text(&s), "");
    str_renew(&s);
    str_add(&s, "x");
    t_true(!s.failed);
    t_str(str_text(&s), "x");
    str_release(&s);
}

T(piece_that_failed_fails_the_str_it_is_added_to)
{
    struct str s = {0}, piece = {0};
    str_add_str(&s, &piece);
    str_add(&piece, "b");
    str_add(&s, "a");
    str_add_str(&s, &piece);
    t_str(str_text(&s), "ab");
    t_true(!s.failed);
    piece.failed = 1;
    str_add_str(&s, &piece);
    t_true(s.failed);
    str_release(&s);
    str_release(&piece);
}

T(str_in_a_room_is_cut_off_where_it_is_full)
{
    char room[6], one[1];
    mem_fail_at(mem_calls() + 1, 1); /* needs no memory */
    struct str s = str_in(room, sizeof room);
    str_add(&s, "abc");
    str_addf(&s, "%d", 12);
    t_true(!s.failed);
    t_str(room, "abc12");
    str_add(&s, "x");
    t_true(s.failed);
    t_str(room, "abc12");
    s = str_in(room, sizeof room);
    str_addf(&s, "%s", "abcdefgh");
    str_add(&s, "x");
    t_str(room, "abcde");
    t_eq(s.len, 5);
    s = str_in(room, sizeof room);
    str_add(&s, "ab");
    str_add(&s, "cdefgh");
    t_str(room, "abcde");
    s = str_in(one, sizeof one);
    str_add(&s, "x");
    t_str(one, "");
    mem_fail_at(0, 0);
    str_release(&s);
}

T(str_json_escapes_hidden_and_control_characters)
{
    struct str s = {0};
    static const char in[] = "a\xe2\x80\xae"             /* U+202E right-to-left override */
                             "\xe2\x80\x8b"              /* U+200B zero-width space */
                             "\xf3\xa0\x81\x81"          /* U+E0041 tag A */
                             "\xef\xb8\x8f"              /* U+FE0F variation selector */
                             "\xe2\x80\xa8"              /* U+2028 line separator */
                             "\xc2\x9b"                  /* U+009B CSI */
                             "\xf0\x9f\x98\x80\xc3\xa9"; /* U+1F600, U+00E9 */
    str_add_json(&s, in, sizeof in - 1);
    t_str(str_text(&s), "\"a\\u202e\\u200b\\udb40\\udc41\\ufe0f\\u2028\\u009b"
                        "\xf0\x9f\x98\x80\xc3\xa9\"");
    str_release(&s);
}

T(str_json_escapes_what_must_not_be_raw)
{
    struct str s = {0};
    const char in[] = "a\"\\\n\t\r\x01\x7f\xc2\x85 \xff\xe2\x82 \xc3\xa9\0z";
    str_add_json(&s, in, sizeof in - 1);
    t_str(str_text(&s), "\"a\\\"\\\\\\n\\t\\r\\u0001\\u007f\\u0085 \xef\xbf\xbd\xef\xbf\xbd"
                        "\xef\xbf\xbd \xc3\xa9\\u0000z\"");
    str_release(&s);
}

static const char *num(double x)
{
    static char text[64];
    struct str s = {0};
    str_add_json_num(&s, x);
    snprintf(text, sizeof text, "%s", str_text(&s));
    str_release(&s);
    return text;
}

T(str_json_numbers)
{
    t_str(num(0.1), "0.1");
    t_str(num(-0.0), "0");
    t_str(num(1234567890123.0), "1234567890123");
    t_str(num(1e300), "1e+300");
    t_str(num((double)NAN), "null");
    t_str(num((double)INFINITY), "null");
}

T(str_si_and_duration_are_short)
{
    char b[16];
    t_str(str_si(b, 0), "0");
    t_str(str_si(b, 999), "999");
    t_str(str_si(b, 999.7), "1.00k");
    t_str(str_si(b, 1234), "1.23k");
    t_str(str_si(b, 12345678), "12.3M");
    t_str(str_si(b, -999999), "-1.00M");
    t_str(str_si(b, 99.96e9), "100G");
    t_str(str_si(b, 0.00123), "0.00123");
    t_str(str_si(b, (double)NAN), "nan");
    t_true(strlen(str_si(b, -1.2345e300)) < 16 && strlen(str_si(b, -(double)INFINITY)) < 16);
    t_str(str_duration(b, 0), "0.00s");
    t_str(str_duration(b, 12.34), "12.3s");
    t_str(str_duration(b, 59.99), "1m00s");
    t_str(str_duration(b, 192), "3m12s");
    t_str(str_duration(b, 7500), "2h05m");
    t_str(str_duration(b, 273600), "3d04h");
    t_str(str_duration(b, -1), "-");
    t_str(str_duration(b, (double)NAN), "-");
    t_str(str_duration(b, 1e300), "-");
}

T(str_copy_reports_truncation)
{
    char b[4] = "zzz";
    t_true(!str_copy(b, sizeof b, "abc"));
    t_true(str_copy(b, sizeof b, "abcd"));
    t_str(b, "abc");
    t_true(str_copy(b, 0, "x"));
}

T(str_distance_counts_edits_and_swaps)
{
    static char large[5000];
    t_eq(str_distance("", ""), 0);
    t_eq(str_distance("", "abc"), 3);
    t_eq(str_distance("lr", "lr"), 0);
    t_eq(str_distance("steps", "setps"), 1);
    t_eq(str_distance("kitten", "sitting"), 3);
    memset(large, 'x', sizeof large - 1);
    t_true(str_distance(large, "lr") > 1000);
}
