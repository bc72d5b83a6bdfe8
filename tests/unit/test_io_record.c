#include "t.h"

#include <time.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "io/record.h"

static void make(struct str *out, uint64_t seq, int64_t step, const char *kind)
{
    struct err e = {0};
    struct record *r = record_new();
    record_begin(r, kind, step, 1700000000.5);
    record_num(r, "loss", 2.5);
    record_str(r, "text", "hello");
    t_ok(record_end(r, seq, out, &e), &e);
    record_free(r);
}

/* A frame around any bytes, with a right checksum. */
static void frame(struct str *out, uint64_t seq, const void *body, size_t n)
{
    unsigned char h[RECORD_OVERHEAD] = {0xc9};
    size_t len = 12 + n;
    for (int i = 0; i < 4; i++)
        h[1 + i] = (unsigned char)(len >> (24 - 8 * i));
    h[5] = 0x44;
    for (int i = 0; i < 8; i++)
        h[10 + i] = (unsigned char)(seq >> (56 - 8 * i));
    uint32_t crc = hash_crc32c(hash_crc32c(0, h + 10, 8), body, n);
    for (int i = 0; i < 4; i++)
        h[6 + i] = (unsigned char)(crc >> (24 - 8 * i));
    str_add_bytes(out, h, sizeof h);
    str_add_bytes(out, body, n);
}

T(record_round_trip_keeps_every_kind)
{
    struct err e = {0};
    struct str s = {0};
    struct record *r = record_new();
    float f[3] = {1.5f, -2, NAN};
    int32_t ids[4] = {0, -1, 70000, 2147483647};
    double d[2] = {1e300, -INFINITY};
    const char *pieces[2] = {"\xff\x00z", ""};
    size_t len[2] = {3, 0};
    record_begin(r, "probe", INT64_MIN, 12.25);
    record_int(r, "big", INT64_MAX);
    record_num(r, "nan", NAN);
    record_bool(r, "yes", 1);
    record_str(r, "none", NULL);
    record_str(r, "bad_utf8", "a\xff");
    record_bytes(r, "bin", "\0\1\2", 3);
    record_f32s(r, "f", f, 3);
    record_i32s(r, "ids", ids, 4);
    record_nums(r, "d", d, 2);
    record_pieces(r, "text", pieces, len, 2);
    record_map(r, "m");
    record_array(r, "rows");
    record_nums(r, NULL, d, 1);
    record_nums(r, NULL, d + 1, 1);
    record_close(r);
    record_int(r, "after", 7);
    record_close(r);
    t_ok(record_end(r, 42, &s, &e), &e);
    record_free(r);

    uint64_t seq;
    struct value b, v;
    t_eq(record_parse(s.p, s.len, &seq, &b, &e), (int64_t)s.len);
    t_eq(seq, 42);
    t_true(value_is(value_get(b, "kind"), "probe"));
    t_true(value_int(value_get(b, "step"), 0) == INT64_MIN);
    t_near(value_num(value_get(b, "time"), 0), 12.25, 0);
    t_true(value_int(value_get(b, "big"), 0) == INT64_MAX);
    t_true(isnan(value_num(value_get(b, "nan"), 0)));
    t_eq(value_kind(value_get(b, "yes")), VALUE_BOOL);
    t_eq(value_kind(value_get(b, "none")), VALUE_NIL);
    t_eq(value_kind(value_get(b, "bad_utf8")), VALUE_BIN);
    t_eq(value_kind(value_get(b, "absent")), VALUE_NONE);
    float got[3];
    t_eq(value_f32s(value_get(b, "f"), got, 3), 3);
    t_true(got[0] == 1.5f && got[1] == -2 && isnan(got[2]));
    int32_t gi[4];
    t_eq(value_i32s(value_get(b, "ids"), gi, 4), 4);
    t_true(memcmp(gi, ids, sizeof ids) == 0);
    t_eq(value_i32s(value_get(b, "bin"), gi, 4), 3);
    t_eq(gi[2], 2);
    v = value_at(value_get(b, "text"), 0);
    size_t n;
    t_true(memcmp(value_bytes(v, &n), "\xff\x00z", 3) == 0 && n == 3);
    v = value_get(value_get(b, "m"), "rows");
    t_eq(value_len(v), 2);
    t_eq(value_f32s(v, got, 3), 2);
    t_true(isinf(got[0]) && isinf(got[1]) && got[1] < 0);
    t_eq(value_int(value_get(value_get(b, "m"), "after"), 0), 7);
    t_eq(value_f32s(value_get(b, "m"), got, 3), -1);
    str_release(&s);
}

T(builder_mistakes_are_reported_at_the_end)
{
    struct err e = {0};
    struct str s = {0};
    struct record *r = record_new();
    record_begin(r, "x", 0, 0);
    record_map(r, "open");
    t_fails(record_end(r, 1, &s, &e), &e, DS_ERANGE, "left open");
    record_begin(r, "x", 0, 0);
    record_close(r);
    t_fails(record_end(r, 1, &s, &e), &e, DS_ERANGE, "record_close");
    record_begin(r, "x", 0, 0);
    record_int(r, NULL, 1);
    t_fails(record_end(r, 1, &s, &e), &e, DS_ERANGE, "without key");
    record_begin(r, "x", 0, 0);
    for (int i = 0; i < 40; i++)
        record_array(r, i ? NULL : "a");
    t_fails(record_end(r, 1, &s, &e), &e, DS_ERANGE, "too deep");
    static const char big[1];
    record_begin(r, "x", 0, 0);
    record_bytes(r, "a", big, (size_t)17 << 20);
    t_fails(record_end(r, 1, &s, &e), &e, DS_ERANGE, "16 MiB");
    t_fails(record_end(r, 1, &s, &e), &e, DS_ERANGE, "");
    t_eq(s.len, 0);
    record_begin(r, "x", 0, 0);
    t_ok(record_end(r, 1, &s, &e), &e); /* and the builder still works */
    record_free(r);
    str_release(&s);
}

T(memory_failure_at_every_call_is_clean)
{
    for (uint64_t n = 1; n < 40; n++) {
        struct str s = {0};
        mem_fail_at(mem_calls() + n, 1);
        struct record *r = record_new();
        int rc = DS_EMEM;
        if (r) {
            record_begin(r, "x", 0, 0);
            for (int i = 0; i < 200; i++)
                record_str(r, "key", "a text of some length");
            rc = record_end(r, 1, &s, NULL);
        }
        mem_fail_at(0, 0);
        record_free(r);
        str_release(&s);
        if (rc == 0)
            return;
        t_eq(rc, DS_EMEM);
    }
    t_truef(0, "never succeeded");
}

T(every_prefix_asks_for_more_bytes)
{
    struct str s = {0};
    make(&s, 1, 5, "metric");
    for (size_t n = 0; n < s.len; n++)
        t_eq(record_parse(s.p, n, NULL, NULL, NULL), 0);
    str_release(&s);
}

T(every_bit_flip_is_caught) /* C6 */
{
    struct str s = {0};
    make(&s, 1, 5, "metric");
    for (size_t bit = 0; bit < 8 * s.len; bit++) {
        s.p[bit / 8] = (char)(s.p[bit / 8] ^ (1 << bit % 8));
        int64_t rc = record_parse(s.p, s.len, NULL, NULL, NULL);
        t_truef(rc <= 0, "bit %zu: %lld", bit, (long long)rc);
        s.p[bit / 8] = (char)(s.p[bit / 8] ^ (1 << bit % 8));
    }
    str_release(&s);
}

T(hostile_counts_and_depths_are_refused) /* C1 C2 C3 C4 */
{
    static const struct {
        const char *p;
        size_t n;
    } bad[] = {
        {"\xdd\xff\xff\xff\xff", 5},
        {"\xdf\xff\xff\xff\xff", 5},
        {"\xdf\x80\x00\x00\x00\x00\x00", 7},
        {"\xdb\xff\xff\xff\xff"
         "abcde",
         10},
        {"\xc6\xff\xff\xff\xff"
         "abcde",
         10},
        {"\xc1", 1},
        {"\xc9\xff\xff\xff\xff\x44", 6},
        {"\x82\xa1", 2},
        {"\x91", 1},
        {"\xd8", 1},
        {"\xcb\0\0", 3},
        {"", 0},
        {"\x81\xa1"
         "a",
         3},
        {"\xd9", 1},
        {"\xc7\xff\x01", 3},
        {"\xdc\x00", 2},
    };
    uint64_t calls = mem_calls();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct err e = {0};
        struct value v = {NULL, NULL};
        t_eq(value_check(bad[i].p, bad[i].n, &v, NULL, &e), DS_EFORMAT);
        t_true(v.p == NULL);
    }
    char deep[10000];
    memset(deep, '\x91', sizeof deep);
    t_eq(value_check(deep, sizeof deep, NULL, NULL, NULL), DS_EFORMAT);
    deep[RECORD_DEPTH] = '\x01';
    t_eq(value_check(deep, sizeof deep, NULL, NULL, NULL), 0);
    deep[RECORD_DEPTH] = '\x91';
    deep[RECORD_DEPTH + 1] = '\x01';
    t_eq(value_check(deep, sizeof deep, NULL, NULL, NULL), DS_EFORMAT);
    for (int i = 0; i + 5 <= 200; i += 5)
        memcpy(deep + i, "\xdd\x00\xff\xff\xff", 5);
    t_eq(value_check(deep, 200, NULL, NULL, NULL), DS_EFORMAT);
    t_eq(mem_calls(), calls); /* nothing was allocated for any of them */
}

T(item_budget_bounds_a_dense_array)
{
    size_t n = (size_t)12 << 20;
    char *p = mem_alloc(n + 5, 1);
    memcpy(p, "\xdd\x00\xc0\x00\x00", 5);
    t_eq(value_check(p, n + 5, NULL, NULL, NULL), DS_EFORMAT);
    mem_free(p);
}

T(frames_with_wrong_bodies_are_refused)
{
    struct str s = {0};
    struct err e = {0};
    frame(&s, 1, "\x01", 1);
    t_fails((int)record_parse(s.p, s.len, NULL, NULL, &e), &e, DS_EFORMAT, "not one map");
    str_reset(&s);
    frame(&s, 1, "\x80\x80", 2);
    t_fails((int)record_parse(s.p, s.len, NULL, NULL, &e), &e, DS_EFORMAT, "not one map");
    str_reset(&s);
    frame(&s, 1, "\x80", 1);
    t_eq(record_parse(s.p, s.len, NULL, NULL, &e), (int64_t)s.len);
    t_eq(record_parse("\xc9\x01\x00\x00\x01\x44", 6, NULL, NULL, NULL), DS_EFORMAT);
    t_eq(record_parse("\xc9\x00\x00\x00\x0c\x44", 6, NULL, NULL, NULL), DS_EFORMAT);
    t_eq(record_parse("\xc9\x00\x00\x00\x20\x45", 6, NULL, NULL, NULL), DS_EFORMAT);
    t_eq(record_parse("\xc9\x02", 2, NULL, NULL, NULL), DS_EFORMAT);
    str_release(&s);
}

T(resync_finds_the_next_good_record)
{
    struct str s = {0};
    make(&s, 1, 1, "metric");
    size_t second = s.len;
    make(&s, 2, 2, "metric");
    s.p[20] ^= 1;
    t_eq(record_resync(s.p, s.len, 0), second);
    t_eq(record_resync(s.p, s.len, second + 1), s.len);
    size_t pending;
    t_eq(record_scan(s.p, s.len - 1, 0, &pending), s.len - 1);
    t_eq(pending, second);
    str_release(&s);
}

T_SECONDS(forged_heads_do_not_cost_quadratic_time, 30)
{
    size_t n = (size_t)8 << 20;
    unsigned char *p = mem_alloc(n, 1);
    for (size_t i = 0; i + 6 <= n; i += 6)
        memcpy(p + i, "\xc9\x00\x3f\xff\xff\x44", 6);
    clock_t t = clock();
    t_eq(record_resync(p, n, 0), n);
    printf("  8 MiB of forged heads: %.2f s\n", (double)(clock() - t) / CLOCKS_PER_SEC);
    mem_free(p);
}

T(numbers_convert_at_their_edges)
{
    struct value v;
    t_eq(value_check("\xcf\xff\xff\xff\xff\xff\xff\xff\xff", 9, &v, NULL, NULL), 0);
    t_eq(value_int(v, -7), -7);
    t_near(value_num(v, 0), 0x1p64, 0);
    t_eq(value_check("\xd3\x80\0\0\0\0\0\0\0", 9, &v, NULL, NULL), 0);
    t_true(value_int(v, 0) == INT64_MIN);
    t_eq(value_check("\xcb\x43\xe0\0\0\0\0\0\0", 9, &v, NULL, NULL), 0); /* 2^63 */
    t_eq(value_int(v, -7), -7);
    t_eq(value_check("\xcb\x40\x08\0\0\0\0\0\0", 9, &v, NULL, NULL), 0); /* 3.0 */
    t_eq(value_int(v, -7), 3);
    t_eq(value_check("\xa3NaN", 4, &v, NULL, NULL), 0);
    t_true(isnan(value_num(v, 0)));
    t_eq(value_check("\xa4-Inf", 5, &v, NULL, NULL), 0);
    t_true(value_num(v, 0) < 0 && isinf(value_num(v, 0)));
    t_eq(value_check("\xa3one", 4, &v, NULL, NULL), 0);
    t_near(value_num(v, 9), 9, 0);
    t_near(value_num((struct value){NULL, NULL}, 9), 9, 0);
}

/* ---- conformance ------------------------------------------------------------------------------
 */

static size_t unhex(const char *text, unsigned char *out)
{
    size_t n = 0;
    for (; *text; text += text[2] == '-' ? 3 : 2) {
        unsigned x;
        sscanf(text, "%2x", &x);
        out[n++] = (unsigned char)x;
        if (!text[2])
            break;
    }
    return n;
}

static void same(struct value v, const struct json_node *want);

static void same_map(struct value v, const struct json_node *want)
{
    const char *key;
    size_t key_len;
    const struct json_node *item;
    t_eq(value_kind(v), VALUE_MAP);
    t_eq(value_len(v), json_len(want));
    for (void *at = NULL; (item = json_next(want, &at, &key, &key_len));)
        same(value_get(v, key), item);
}

static void same(struct value v, const struct json_node *want)
{
    size_t n, m;
    switch (json_kind_of(want)) {
    case JSON_KIND_NULL: t_eq(value_kind(v), VALUE_NIL); break;
    case JSON_KIND_BOOL:
        t_eq(value_kind(v), VALUE_BOOL);
        t_near(value_num(v, 9), json_bool(want, 0), 0);
        break;
    case JSON_KIND_INT:
        t_true(value_int(v, ~json_int(want, 0)) == json_int(want, 0)); /* and as a number */
        /* fall through */
    case JSON_KIND_REAL: t_near(value_num(v, NAN), json_num(want, 0), 0); break;
    case JSON_KIND_STRING: {
        const char *p = json_str(want, &m), *q = value_bytes(v, &n);
        t_eq(value_kind(v), VALUE_STR);
        t_true(n == m && memcmp(p, q, n) == 0);
        break;
    }
    case JSON_KIND_ARRAY:
        t_eq(value_kind(v), VALUE_ARRAY);
        t_eq(value_len(v), json_len(want));
        for (size_t i = 0; i < json_len(want); i++)
            same(value_at(v, i), json_at(want, i));
        break;
    case JSON_KIND_OBJECT: same_map(v, want); break;
    }
}

static void check_case(const struct json_node *c, struct value v)
{
    static const char *const direct[] = {"nil", "bool", "string", "array", "map"};
    const struct json_node *x;
    const char *key;
    size_t key_len, n;
    unsigned char bytes[65536];
    for (size_t i = 0; i < sizeof direct / sizeof direct[0]; i++)
        for (void *at = NULL; (x = json_next(c, &at, &key, &key_len));)
            if (strcmp(key, direct[i]) == 0) {
                same(v, x);
                return;
            }
    if ((x = json_get(c, "bignum"))) {
        t_near(value_num(v, NAN), strtod(json_str(x, NULL), NULL), 0);
    } else if ((x = json_get(c, "number"))) {
        t_near(value_num(v, NAN), json_num(x, 0), 0);
    } else if ((x = json_get(c, "binary"))) {
        size_t m = unhex(json_str(x, NULL), bytes);
        t_eq(value_kind(v), VALUE_BIN);
        t_true(memcmp(value_bytes(v, &n), bytes, m) == 0 && n == m);
    } else {
        t_eq(value_kind(v), VALUE_EXT); /* timestamps are extensions too */
    }
}

T(msgpack_test_suite_is_read)
{
    struct json *j;
    struct err e = {0};
    const char *path = t_shared("conformance/msgpack/msgpack-test-suite.json");
    t_ok(json_read_file(&j, path, 1 << 22, &e), &e);
    int n = 0;
    const struct json_node *group;
    for (void *at = NULL; (group = json_next(json_root(j), &at, NULL, NULL));)
        for (size_t i = 0; i < json_len(group); i++) {
            const struct json_node *c = json_at(group, i), *forms = json_get(c, "msgpack");
            for (size_t k = 0; k < json_len(forms); k++, n++) {
                unsigned char bytes[65536];
                size_t len = unhex(json_str(json_at(forms, k), NULL), bytes), used;
                struct value v;
                t_ok(value_check(bytes, len, &v, &used, &e), &e);
                t_eq(used, len);
                check_case(c, v);
                for (size_t cut = 0; cut < len; cut++)
                    t_eq(value_check(bytes, cut, NULL, NULL, NULL), DS_EFORMAT);
            }
        }
    t_truef(n > 200, "only %d forms", n);
    json_free(j);
}

/* ---- speed: printed, not judged -----------------------------------------------------------------
 */

T(packing_speed_is_printed)
{
    enum { CELLS = 128 * 12, ROUNDS = 200 };
    static float m[CELLS];
    static unsigned char run[CELLS];
    struct str s = {0};
    struct err e = {0};
    struct record *r = record_new();
    static const char *const names[] = {"gate",     "score",        "threshold",
                                        "velocity", "acceleration", "norm"};
    clock_t t = clock();
    for (int i = 0; i < ROUNDS; i++) {
        str_reset(&s);
        record_begin(r, "probe", i, 0);
        record_bytes(r, "run", run, CELLS);
        record_map(r, "cell");
        for (int k = 0; k < 6; k++)
            record_f32s(r, names[k], m, CELLS);
        record_close(r);
        t_ok(record_end(r, 1, &s, &e), &e);
    }
    printf("  probe of 128 x 12 x 6: %.1f us, %zu bytes\n",
           1e6 * (double)(clock() - t) / CLOCKS_PER_SEC / ROUNDS, s.len);
    record_free(r);
    str_release(&s);
}
