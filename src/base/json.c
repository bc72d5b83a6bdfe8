/* JSON documents as trees of jansson values. */
#include "base/json.h"

#include <jansson.h>
#include <string.h>

#include "base/fs.h"

enum { DEPTH_MAX = 256 };

/* struct json and struct json_node are both json_t. */
static const struct json_node *node_of(const json_t *t)
{
    return (const struct json_node *)t;
}

/* jansson's accessors take json_t * but do not modify it. */
static json_t *tree_of(const struct json_node *n)
{
    return (json_t *)(uintptr_t)n;
}

/* Offset of the first bracket beyond the depth limit, or n.  Checked before parsing, since the
 * parser recurses. */
static size_t too_deep(const char *p, size_t n)
{
    int depth = 0, in_string = 0;
    for (size_t i = 0; i < n; i++) {
        if (in_string) {
            if (p[i] == '\\')
                i++;
            else if (p[i] == '"')
                in_string = 0;
        } else if (p[i] == '"') {
            in_string = 1;
        } else if (p[i] == '[' || p[i] == '{') {
            if (++depth > DEPTH_MAX)
                return i;
        } else if (p[i] == ']' || p[i] == '}') {
            depth--;
        }
    }
    return n;
}

/* What a parser accepts beyond strict JSON of 64 bits. */
enum { WIDE = 1, NULS = 2 };

static int parse_tree(json_t **tree, const char *p, size_t n, int more, const char *what,
                      struct err *e)
{
    const size_t flags =
        JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | (more & NULS ? JSON_ALLOW_NUL : 0);
    json_error_t bad;
    size_t deep = too_deep(p, n);
    const char *zero = n ? memchr(p, 0, n) : NULL; /* jansson takes one for the end of a number */
    if (zero)
        return err_set(e, DS_EFORMAT, "%s: invalid byte 0 (offset %zu)", what, (size_t)(zero - p));
    if (deep < n)
        return err_set(e, DS_EFORMAT, "%s: nesting depth must be at most %d (offset %zu)", what,
                       DEPTH_MAX, deep);
    *tree = json_loadb(n ? p : "", n, flags, &bad);
    if (!*tree && more & WIDE && json_error_code(&bad) == json_error_numeric_overflow)
        *tree = json_loadb(p, n, flags | JSON_DECODE_INT_AS_REAL, &bad);
    if (*tree)
        return 0;
    if (json_error_code(&bad) == json_error_out_of_memory)
        return err_set(e, DS_EMEM, "%s: out of memory", what);
    return err_set(e, DS_EFORMAT, "%s:%d:%d: %s (offset %d)", what, bad.line > 0 ? bad.line : 1,
                   bad.column > 0 ? bad.column : 1, bad.text[0] ? bad.text : "invalid JSON",
                   bad.position > 0 ? bad.position : 0);
}

static int parse(struct json **out, const char *p, size_t n, int more, const char *what,
                 struct err *e)
{
    json_t *tree = NULL;
    int rc = parse_tree(&tree, p, n, more, what, e);
    if (rc == 0)
        *out = (struct json *)tree;
    return rc;
}

int json_parse(struct json **out, const char *p, size_t n, const char *what, struct err *e)
{
    return parse(out, p, n, 0, what, e);
}

int json_parse_wide(struct json **out, const char *p, size_t n, const char *what, struct err *e)
{
    return parse(out, p, n, WIDE, what, e);
}

int json_parse_nul(struct json **out, const char *p, size_t n, const char *what, struct err *e)
{
    return parse(out, p, n, NULS, what, e);
}

static int read_file(struct json **out, const char *path, uint64_t cap, int more, struct err *e)
{
    struct str text = {0};
    int rc = fs_read_file(&text, path, cap, e);
    if (rc == 0)
        rc = parse(out, text.p, text.len, more, path, e);
    str_release(&text);
    return rc;
}

int json_read_file(struct json **out, const char *path, uint64_t cap, struct err *e)
{
    return read_file(out, path, cap, 0, e);
}

int json_read_wide(struct json **out, const char *path, uint64_t cap, struct err *e)
{
    return read_file(out, path, cap, WIDE, e);
}

void json_free(struct json *j)
{
    json_decref((json_t *)j);
}

const struct json_node *json_root(const struct json *j)
{
    return (const struct json_node *)j;
}

enum json_kind json_kind_of(const struct json_node *n)
{
    if (!n)
        return JSON_KIND_NULL;
    switch (json_typeof(tree_of(n))) {
    case JSON_OBJECT: return JSON_KIND_OBJECT;
    case JSON_ARRAY: return JSON_KIND_ARRAY;
    case JSON_STRING: return JSON_KIND_STRING;
    case JSON_INTEGER: return JSON_KIND_INT;
    case JSON_REAL: return JSON_KIND_REAL;
    case JSON_TRUE:
    case JSON_FALSE: return JSON_KIND_BOOL;
    case JSON_NULL: break;
    }
    return JSON_KIND_NULL;
}

const struct json_node *json_get(const struct json_node *object, const char *key)
{
    return node_of(json_object_get(tree_of(object), key));
}

const struct json_node *json_at(const struct json_node *array, size_t i)
{
    return node_of(json_array_get(tree_of(array), i));
}

size_t json_len(const struct json_node *n)
{
    json_t *t = tree_of(n);
    return json_is_array(t) ? json_array_size(t) : json_is_object(t) ? json_object_size(t) : 0;
}

const struct json_node *json_next(const struct json_node *object, void **at, const char **key,
                                  size_t *key_len)
{
    json_t *t = tree_of(object);
    *at = *at ? json_object_iter_next(t, *at) : json_object_iter(t);
    if (!*at)
        return NULL;
    if (key)
        *key = json_object_iter_key(*at);
    if (key_len)
        *key_len = strlen(json_object_iter_key(*at)); /* jansson rejects NUL in keys */
    return node_of(json_object_iter_value(*at));
}

const char *json_str(const struct json_node *n, size_t *len)
{
    const char *text = json_is_string(tree_of(n)) ? json_string_value(tree_of(n)) : NULL;
    if (!text || strlen(text) != json_string_length(tree_of(n)))
        return NULL;
    if (len)
        *len = json_string_length(tree_of(n));
    return text;
}

const char *json_get_text(const struct json_node *object, const char *key)
{
    const char *text = json_str(json_get(object, key), NULL);
    return text ? text : "";
}

int64_t json_int(const struct json_node *n, int64_t otherwise)
{
    return json_is_integer(tree_of(n)) ? (int64_t)json_integer_value(tree_of(n)) : otherwise;
}

double json_num(const struct json_node *n, double otherwise)
{
    return json_is_number(tree_of(n)) ? json_number_value(tree_of(n)) : otherwise;
}

int json_bool(const struct json_node *n, int otherwise)
{
    return json_is_boolean(tree_of(n)) ? json_is_true(tree_of(n)) : otherwise;
}
