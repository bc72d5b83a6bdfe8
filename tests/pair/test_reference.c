/* Says in one notation what the readers make of bytes, so that tests/proof/part_differential.py can compare them with other
 * libraries: REFERENCE_IN holds cases, "KIND BYTES\n" and the bytes; REFERENCE_OUT gets a line for each, "+ VALUES" or
 * "- CAUSE".  Without them, a few cases whose answers are known.
 *
 * Values: n(ull) t(rue) f(alse) i<decimal> r<bits of a double> s<hex> b<hex> x<hex> [items ] {s<key> value }. */
#include <inttypes.h>
#include <unistd.h>

#include "base/config.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/tokenizer.h"
#include "io/gguf.h"
#include "io/record.h"
#include "io/safetensors.h"
#include "t.h"

enum { VALUES_MAX = 4096 };
static struct tokenizer *tokenizer;

static void add_hex(struct str *out, const void *p, size_t n)
{
    const unsigned char *b = p;
    for (size_t i = 0; i < n; i++)
        str_addf(out, "%02x", b[i]);
}

static void add_text(struct str *out, const char *p, size_t n)
{
    str_add_char(out, 's');
    add_hex(out, p, n);
}

static void add_real(struct str *out, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, 8);
    if (isnan(x))
        str_add(out, "rnan");
    else
        str_addf(out, "r%016" PRIx64, bits);
}

/* ---- MessagePack ---- */

static void add_value(struct str *out, struct value v)
{
    struct value_iter it = {0};
    struct value key, item;
    enum value_kind kind = value_kind(v);
    size_t n = 0;
    const char *p = value_bytes(v, &n);
    switch (kind) {
    case VALUE_NIL: str_add(out, "n"); break;
    case VALUE_BOOL: str_add(out, value_num(v, 9) == 1 ? "t" : "f"); break;
    case VALUE_REAL: add_real(out, value_num(v, 0.5)); break;
    case VALUE_STR: add_text(out, p, n); break;
    case VALUE_EXT:
        n = v.p[0] >= 0xd4 ? 1 : v.p[0] == 0xc7 ? 2 : v.p[0] == 0xc8 ? 3 : 5; /* before the type */
        str_add(out, "x");
        add_hex(out, v.p + n, (size_t)(v.end - v.p) - n);
        break;
    case VALUE_BIN:
        str_add(out, "b");
        add_hex(out, p, n);
        break;
    case VALUE_INT:
        if (v.p[0] == 0xcf && v.p[1] >= 0x80) /* beyond int64: only as a number */
            add_real(out, value_num(v, 0.5));
        else
            str_addf(out, "i%" PRId64, value_int(v, INT64_MIN));
        break;
    case VALUE_ARRAY:
    case VALUE_MAP:
        str_add(out, kind == VALUE_MAP ? "{" : "[");
        while (value_next(v, &it, &key, &item)) {
            if (kind == VALUE_MAP) {
                add_value(out, key);
                str_add(out, " ");
            }
            add_value(out, item);
            str_add(out, " ");
        }
        str_add(out, kind == VALUE_MAP ? "}" : "]");
        break;
    case VALUE_NONE: str_add(out, "?"); break;
    }
}

static int say_record(struct str *out, const char *p, size_t n, struct err *e)
{
    struct value v;
    size_t used = 0;
    int rc = value_check(p, n, &v, &used, e);
    if (rc == 0) {
        str_addf(out, "%zu ", used);
        add_value(out, v);
    }
    return rc;
}

/* ---- JSON, YAML ---- */

static void add_node(struct str *out, const struct json_node *n)
{
    const struct json_node *v;
    const char *key;
    size_t len = 0;
    switch (json_kind_of(n)) {
    case JSON_KIND_NULL: str_add(out, "n"); break;
    case JSON_KIND_BOOL: str_add(out, json_bool(n, 0) ? "t" : "f"); break;
    case JSON_KIND_INT: str_addf(out, "i%" PRId64, json_int(n, 0)); break;
    case JSON_KIND_REAL: add_real(out, json_num(n, 0.5)); break;
    case JSON_KIND_STRING:
        key = json_str(n, &len);
        add_text(out, key, len);
        break;
    case JSON_KIND_ARRAY:
        str_add(out, "[");
        for (size_t i = 0; (v = json_at(n, i)) != NULL; i++) {
            add_node(out, v);
            str_add(out, " ");
        }
        str_add(out, "]");
        break;
    case JSON_KIND_OBJECT:
        str_add(out, "{");
        for (void *at = NULL; (v = json_next(n, &at, &key, &len)) != NULL;) {
            add_text(out, key, len);
            str_add(out, " ");
            add_node(out, v);
            str_add(out, " ");
        }
        str_add(out, "}");
        break;
    }
}

static int say_json(struct str *out, const char *p, size_t n, struct err *e)
{
    struct json *j = NULL;
    int rc = json_parse(&j, p, n, "input", e);
    if (rc == 0)
        add_node(out, json_root(j));
    json_free(j);
    return rc;
}

static int say_yaml(struct str *out, const char *p, size_t n, struct err *e)
{
    struct config c = {0};
    int rc = config_read_yaml_text(&c, p, n, "input", e);
    str_add(out, "{");
    for (size_t i = 0; rc == 0 && i < c.n; i++) {
        add_text(out, c.entry[i].key, strlen(c.entry[i].key));
        str_add(out, " ");
        add_text(out, c.entry[i].value, strlen(c.entry[i].value));
        str_add(out, " ");
    }
    str_add(out, "}");
    config_release(&c);
    return rc;
}

/* ---- files of tensors ---- */

static void add_shape(struct str *out, const uint64_t *shape, int rank)
{
    str_add(out, "[");
    for (int i = 0; i < rank; i++)
        str_addf(out, "i%" PRIu64 " ", shape[i]);
    str_add(out, "] ");
}

static int say_safetensors(struct str *out, const char *path, struct err *e)
{
    static double values[VALUES_MAX];
    struct st *s = NULL;
    int rc = st_open(&s, path, e);
    if (rc < 0)
        return rc;
    str_add(out, "{");
    for (size_t i = 0; i < st_count(s); i++) {
        const struct st_tensor *t = st_at(s, i);
        add_text(out, t->name, strlen(t->name));
        str_add(out, " [");
        add_text(out, t->dtype_name, strlen(t->dtype_name));
        str_add(out, " ");
        add_shape(out, t->shape, t->rank);
        str_add(out, "b");
        add_hex(out, t->data, t->bytes);
        str_add(out, " [");
        if (t->items <= VALUES_MAX && st_read_f64(t, values, t->items, NULL) == 0)
            for (uint64_t k = 0; k < t->items; k++) {
                add_real(out, values[k]);
                str_add(out, " ");
            }
        str_add(out, "] ] ");
    }
    str_add(out, "}");
    st_close(s);
    return 0;
}

static void add_meta(struct str *out, const struct gguf_meta *m)
{
    struct gguf_strings strings = {m->data, m->item == GGUF_STRING ? m->count : 0};
    struct gguf_text text;
    str_addf(out, "[i%d i%d [", (int)m->kind, (int)m->item);
    while (gguf_strings_next(&strings, &text)) {
        add_text(out, text.p, text.n);
        str_add(out, " ");
    }
    for (uint64_t i = 0; m->item != GGUF_STRING && m->item != GGUF_ARRAY && i < m->count; i++) {
        int64_t whole;
        double number = 0;
        if (gguf_int(m, i, &whole))
            str_addf(out, "i%" PRId64 " ", whole);
        else if (gguf_num(m, i, &number)) {
            add_real(out, number);
            str_add(out, " ");
        }
    }
    str_add(out, "] ] ");
}

static int say_gguf(struct str *out, const char *path, struct err *e)
{
    static real values[VALUES_MAX];
    struct gguf *g = NULL;
    int rc = gguf_open(&g, path, e);
    if (rc < 0)
        return rc;
    str_addf(out, "[i%d {", gguf_version(g));
    for (size_t i = 0; i < gguf_meta_count(g); i++) {
        const struct gguf_meta *m = gguf_meta_at(g, i);
        add_text(out, m->key, strlen(m->key));
        str_add(out, " ");
        add_meta(out, m);
    }
    str_add(out, "} {");
    for (size_t i = 0; i < gguf_count(g); i++) {
        const struct gguf_tensor *t = gguf_at(g, i);
        add_text(out, t->name, strlen(t->name));
        str_addf(out, " [i%u ", t->type);
        add_shape(out, t->shape, t->rank);
        str_add(out, "b");
        add_hex(out, t->data, t->bytes);
        str_add(out, " [");
        if (t->items <= VALUES_MAX && gguf_type_known(t->type) &&
            gguf_read(t, values, t->items, NULL) == 0)
            for (uint64_t k = 0; k < t->items; k++) {
                add_real(out, (double)values[k]);
                str_add(out, " ");
            }
        str_add(out, "] ] ");
    }
    str_add(out, "} ]");
    gguf_close(g);
    return 0;
}

/* ---- tokenizers: a case names the file, those after it are texts ---- */

static int open_tokenizer(const char *p, size_t n, struct err *e)
{
    char path[1024];
    snprintf(path, sizeof path, "%.*s", (int)n, p);
    if (tokenizer)
        tokenizer_free(tokenizer);
    tokenizer = NULL;
    return tokenizer_load(&tokenizer, path, e);
}

static int say_ids(struct str *out, const char *p, size_t n, struct err *e)
{
    struct ids ids = {0};
    int rc = tokenizer ? tokenizer_encode(tokenizer, p, n, 1, &ids, e)
                       : err_set(e, DS_EUSAGE, "no tokenizer");
    str_add(out, "[");
    for (size_t i = 0; rc >= 0 && i < ids.n; i++)
        str_addf(out, "i%d ", ids.v[i]);
    str_add(out, "]");
    ids_release(&ids);
    return rc;
}

/* ---- cases ---- */

static int say_file(struct str *out, const char *kind, const char *p, size_t n, struct err *e)
{
    char path[1100];
    snprintf(path, sizeof path, "%s/case.%s", t_tmpdir(), kind);
    FILE *f = fopen(path, "wb"); /* without a sync for each */
    t_true(f && fwrite(p, 1, n, f) == n && fclose(f) == 0);
    return strcmp(kind, "gguf") == 0 ? say_gguf(out, path, e) : say_safetensors(out, path, e);
}

static int say(struct str *out, const char *kind, const char *p, size_t n, struct err *e)
{
    if (strcmp(kind, "record") == 0)
        return say_record(out, p, n, e);
    if (strcmp(kind, "json") == 0)
        return say_json(out, p, n, e);
    if (strcmp(kind, "yaml") == 0)
        return say_yaml(out, p, n, e);
    if (strcmp(kind, "tokenizer") == 0)
        return open_tokenizer(p, n, e);
    if (strcmp(kind, "ids") == 0)
        return say_ids(out, p, n, e);
    return say_file(out, kind, p, n, e);
}

static void answer(struct str *out, const char *kind, const char *p, size_t n)
{
    struct str values = {0};
    struct err e = {0};
    /* a block of its own, so that a sanitizer sees a read past its end */
    char *copy = mem_alloc(n ? n : 1, 1);
    t_true(copy != NULL);
    memcpy(copy, p, n);
    int rc = say(&values, kind, copy, n, &e);
    t_true(rc >= 0 || (e.text[0] && !strchr(e.text, '\n')));
    str_addf(out, "%s %s\n", rc < 0 ? "-" : "+", rc < 0 ? e.text : str_text(&values));
    t_true(!values.failed && !out->failed);
    str_release(&values);
    mem_free(copy);
}

T_SECONDS(cases_are_answered_for_comparison, 3600)
{
    const char *in = getenv("REFERENCE_IN"), *to = getenv("REFERENCE_OUT");
    struct str cases = {0}, out = {0};
    struct err e = {0};
    if (!in || !to)
        return;
    t_ok(fs_read_file(&cases, in, 1 << 28, &e), &e);
    for (size_t at = 0; at < cases.len;) {
        char kind[16];
        size_t n;
        int head = 0;
        t_eq(sscanf(cases.p + at, "%15s %zu%n", kind, &n, &head), 2);
        at += (size_t)head + 1;
        t_true(at + n <= cases.len);
        answer(&out, kind, cases.p + at, n);
        at += n;
    }
    t_ok(fs_write_file(to, str_text(&out), out.len, &e), &e);
    if (tokenizer)
        tokenizer_free(tokenizer);
    str_release(&cases);
    str_release(&out);
}

static void is_said(const char *kind, const char *p, size_t n, const char *want)
{
    struct str out = {0};
    answer(&out, kind, p, n);
    t_str(str_text(&out), want);
    str_release(&out);
}

T(values_have_one_notation)
{
    static const char map[] = "\x82\xa1k\xcb\x3f\xf8\0\0\0\0\0\0\xa1l\x93\x01\xc0\xc4\x01z";
    static const char header[] =
        "\x39\0\0\0\0\0\0\0"
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}   "
        "\0\0\x80\x3f";
    is_said("record", map, sizeof map - 1, "+ 20 {s6b r3ff8000000000000 s6c [i1 n b7a ] }\n");
    is_said("record", "\xc1", 1, "- MessagePack object is corrupt, too deep or too large\n");
    is_said("json", "{\"a\":[1,true,-0.5]}", 19, "+ {s61 [i1 t rbfe0000000000000 ] }\n");
    is_said("yaml", "a: {b: x}", 9, "+ {s612e62 s78 }\n");
    is_said("safetensors", header, sizeof header - 1,
            "+ {s61 [s463332 [i1 ] b0000803f [r3ff0000000000000 ] ] }\n");
    is_said("gguf", "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24, "+ [i3 {} {} ]\n");
}
