/* JSON parsing: traversal, strictness, limits and escapes. */
#include "t.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"

static struct json *parse(const char *text)
{
    struct err e = {0};
    struct json *j = NULL;
    t_ok(json_parse(&j, text, strlen(text), "t.json", &e), &e);
    return j;
}

static void refuse(const char *text, size_t n, const char *part)
{
    struct err e = {0};
    struct json *j = NULL;
    t_fails(json_parse(&j, text, n, "t.json", &e), &e, DS_EFORMAT, part);
    t_true(j == NULL && strstr(e.text, "t.json") != NULL);
}

T(json_tree_is_traversed)
{
    struct json *j = parse("{\"i\":-7,\"r\":2.5,\"s\":\"h\\u00e9\",\"b\":true,\"z\":null,"
                           "\"a\":[1,[2],{\"k\":3}],\"o\":{}}");
    const struct json_node *r = json_root(j), *a = json_get(r, "a");
    size_t len = 0;
    t_eq(json_kind_of(r), JSON_KIND_OBJECT);
    t_eq(json_len(r), 7);
    t_eq(json_int(json_get(r, "i"), 0), -7);
    t_true(json_num(json_get(r, "i"), 0) == -7 && json_num(json_get(r, "r"), 0) == 2.5);
    t_eq(json_int(json_get(r, "r"), 99), 99);
    t_str(json_str(json_get(r, "s"), &len), "h\xc3\xa9");
    t_eq(len, 3);
    t_eq(json_bool(json_get(r, "b"), 0), 1);
    t_eq(json_bool(json_get(r, "i"), 5), 5);
    t_eq(json_kind_of(json_get(r, "z")), JSON_KIND_NULL);
    t_eq(json_len(a), 3);
    t_eq(json_int(json_at(json_at(a, 1), 0), 0), 2);
    t_eq(json_int(json_get(json_at(a, 2), "k"), 0), 3);
    t_true(!json_at(a, 3) && !json_get(r, "none") && !json_get(a, "k") && !json_at(r, 0));
    t_true(!json_str(a, NULL) && !json_get(NULL, "x") && !json_at(NULL, 0) && json_len(NULL) == 0);
    json_free(j);
    json_free(NULL);
}

T(json_members_come_in_file_order_at_any_size)
{
    struct str s = {0};
    const char *key;
    size_t len;
    double begin = clock_mono();
    str_add_char(&s, '{');
    for (int i = 0; i < 50000; i++)
        str_addf(&s, "%s\"k%d\":{\"v\":%d}", i ? "," : "", (i * 7919) % 50000, i);
    str_add_char(&s, '}');
    struct json *j = parse(str_text(&s));
    const struct json_node *v;
    size_t i = 0;
    for (void *at = NULL; (v = json_next(json_root(j), &at, &key, &len)) != NULL; i++) {
        char want[16];
        int n = snprintf(want, sizeof want, "k%d", (int)(i * 7919 % 50000));
        t_true(len == (size_t)n && strcmp(key, want) == 0);
        t_eq(json_int(json_get(v, "v"), -1), i);
        t_true(json_get(json_root(j), want) == v);
    }
    t_eq(i, 50000);
    t_true(clock_mono() - begin < 20);
    json_free(j);
    str_release(&s);
}

T(json_is_strict)
{
#define REFUSE(text, part) refuse(text, sizeof(text) - 1, part)
    REFUSE("", "t.json:1:");
    REFUSE("{\"a\":1,\"a\":2}", "duplicate");
    REFUSE("\"\xff\"", "decode byte");
    REFUSE("\"\xc0\xaf\"", "decode byte");
    REFUSE("\"\\ud800\"", "t.json");
    REFUSE("\"\x1b\"", "control");
    REFUSE("NaN", "t.json");
    REFUSE("[1e999]", "overflow");
    REFUSE("99999999999999999999", "big");
    REFUSE("[01]", "t.json");
    REFUSE("\"\\u0000\"", "t.json");
    REFUSE("[1,]", "t.json");
    REFUSE("{} x", "t.json");
    REFUSE("{}\0", "t.json");
    REFUSE("8\0", "byte 0 (offset 1)");
    REFUSE("[1\0]", "byte 0 (offset 2)");
    REFUSE("\xef\xbb\xbf{}", "t.json");
    REFUSE("{\"a\":\n  [1 2]}", "t.json:2:");
    REFUSE("{\"a\":[1 2]}", "offset");
}

T(json_nesting_is_bounded)
{
    static char deep[100001];
    memset(deep, '[', 100000);
    refuse(deep, 100000, "nesting depth must be at most 256 (offset 256)");
    memset(deep + 256, ']', 256);
    struct err e = {0};
    struct json *j = NULL;
    t_ok(json_parse(&j, deep, 512, "t.json", &e), &e);
    json_free(j);
    /* Brackets in strings do not count. */
    memset(deep, '[', 1000);
    deep[0] = deep[999] = '"';
    t_ok(json_parse(&j, deep, 1000, "t.json", &e), &e);
    json_free(j);
}

/* Long enough for many blocks, with strings that grow past several of them. */
T(json_survives_every_failed_allocation)
{
    struct str text = {0};
    int rc = -1, failed = 0;
    str_add(&text, "{\"a\":[1,2.5,\"x\",{\"b\":null}],\"c\":true");
    for (int i = 0; i < 2000; i++)
        str_addf(&text, ",\"key %d\":\"long enough to grow a buffer\"", i);
    for (int i = 0; i < 4; i++) {
        str_addf(&text, ",\"long %d\":\"", i);
        for (int k = 0; k < 3000 << 2 * i; k++)
            str_add_char(&text, (char)('a' + k % 26));
        str_add(&text, "\"");
    }
    str_add(&text, "}");
    for (uint64_t n = 1; rc < 0; n++) {
        struct err e = {0};
        struct json *j = NULL;
        uint64_t before = mem_calls();
        mem_fail_at(before + n, 0);
        rc = json_parse(&j, text.p, text.len, "t.json", &e);
        int reached = mem_calls() >= before + n;
        mem_fail_at(0, 0);
        t_eq(reached, rc < 0);
        if (rc == 0)
            t_eq(json_len(json_root(j)), 2006);
        else
            t_truef(j == NULL && rc == DS_EMEM && strcmp(e.text, "t.json: out of memory") == 0,
                    "%d %s", rc, e.text);
        failed += rc < 0;
        json_free(j);
    }
    t_true(failed >= 8);
    str_release(&text);
}

T(json_file_has_a_size_limit)
{
    struct err e = {0};
    struct json *j = NULL;
    char path[600];
    snprintf(path, sizeof path, "%s/f.json", t_tmpdir());
    t_ok(fs_write_file(path, "[1,2]", 5, &e), &e);
    t_ok(json_read_file(&j, path, 5, &e), &e);
    t_eq(json_len(json_root(j)), 2);
    json_free(j);
    t_fails(json_read_file(&j, path, 4, &e), &e, DS_ERANGE, "must be at most 4");
    t_ok(fs_write_file(path, "[1,2", 4, &e), &e);
    t_fails(json_read_file(&j, path, 5, &e), &e, DS_EFORMAT, "f.json:1:");
}

T(large_integers_parse_only_with_json_parse_wide)
{
    static const char text[] =
        "{\"model_max_length\": 1000000000000000019884624838656, \"x\": \"y\"}";
    struct json *j = NULL;
    struct err e = {0};
    t_fails(json_parse(&j, text, sizeof text - 1, "a", &e), &e, DS_EFORMAT, "too big");
    t_ok(json_parse_wide(&j, text, sizeof text - 1, "a", &e), &e);
    t_near(json_num(json_get(json_root(j), "model_max_length"), 0) / 1e30, 1, 1e-12);
    t_str(json_str(json_get(json_root(j), "x"), NULL), "y");
    json_free(j);
    t_fails(json_parse_wide(&j, "[1e999]", 7, "a", &e), &e, DS_EFORMAT, "a:1");
}

T(json_escapes_round_trip)
{
    static const char in[] =
        "a\xe2\x80\xae\xe2\x80\x8b\xf3\xa0\x81\x81\xef\xb8\x8f\xf0\x9f\x98\x80";
    struct str text = {0};
    struct json *j = NULL;
    struct err e = {0};
    size_t n;
    str_add_json(&text, in, sizeof in - 1);
    t_true(!strstr(str_text(&text), "\xe2\x80"));
    struct str list = {0};
    str_addf(&list, "[%s]", str_text(&text));
    t_ok(json_parse(&j, list.p, list.len, "list", &e), &e);
    t_str(json_str(json_at(json_root(j), 0), &n), in);
    t_eq(n, sizeof in - 1);
    json_free(j);
    str_release(&list);
    str_release(&text);
}
