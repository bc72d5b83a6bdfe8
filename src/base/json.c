/* JSON documents as trees of jansson values. */
#include "base/json.h"

#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"

enum { DEPTH_MAX = 256 };

/* A struct json_node is a json_t. */
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

/* ---- memory ----
 *
 * Without memory jansson cuts strings short and can write beyond them, so that no allocation may
 * fail in it: the parser is left by longjmp, which stays within this file, and the document's
 * blocks are released together. */

enum { BLOCK_MIN = 4 << 10, BLOCK_MAX = 1 << 20 };

struct block {
    struct block *older;
    size_t size, used;
    max_align_t data[];
};
struct json {
    struct block *block; /* the newest */
    json_t *tree;
};

static _Thread_local struct json *parsed;
static _Thread_local jmp_buf no_memory;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void *tree_alloc(size_t n)
{
    const size_t unit = sizeof(max_align_t);
    struct block *b = parsed->block;
    n = n > SIZE_MAX / 2 ? SIZE_MAX / 2 : (n + unit - 1) / unit * unit;
    if (!b || n > b->size - b->used) {
        size_t size = !b ? BLOCK_MIN : b->size < BLOCK_MAX ? 2 * b->size : BLOCK_MAX;
        size = n > size ? n : size;
        b = mem_realloc(NULL, sizeof *b + size, 1);
        if (!b)
            longjmp(no_memory, 1);
        *b = (struct block){.older = parsed->block, .size = size};
        parsed->block = b;
    }
    b->used += n;
    return (char *)b->data + b->used - n;
}

static void tree_free(void *p)
{
    (void)p; /* with its document */
}

static void use_blocks(void)
{
    json_set_alloc_funcs(tree_alloc, tree_free);
}

void json_free(struct json *j)
{
    for (struct block *b = j ? j->block : NULL, *older; b; b = older) {
        older = b->older;
        mem_free(b);
    }
    mem_free(j);
}

/* What a parser accepts beyond strict JSON of 64 bits. */
enum { WIDE = 1, NULS = 2 };

/* 0 when there was no memory: j->tree and *bad are as before. */
static int load(struct json *j, const char *p, size_t n, size_t flags, json_error_t *bad)
{
    pthread_once(&once, use_blocks);
    parsed = j;
    if (setjmp(no_memory))
        return 0;
    j->tree = json_loadb(p, n, flags, bad);
    return 1;
}

static int parse_tree(struct json *j, const char *p, size_t n, int more, const char *what,
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
    int done = load(j, n ? p : "", n, flags, &bad);
    if (done && !j->tree && more & WIDE && json_error_code(&bad) == json_error_numeric_overflow)
        done = load(j, p, n, flags | JSON_DECODE_INT_AS_REAL, &bad);
    if (!done)
        return err_set(e, DS_EMEM, "%s: out of memory", what);
    if (j->tree)
        return 0;
    return err_set(e, DS_EFORMAT, "%s:%d:%d: %s (offset %d)", what, bad.line > 0 ? bad.line : 1,
                   bad.column > 0 ? bad.column : 1, bad.text[0] ? bad.text : "invalid JSON",
                   bad.position > 0 ? bad.position : 0);
}

static int parse(struct json **out, const char *p, size_t n, int more, const char *what,
                 struct err *e)
{
    struct json *j = mem_alloc(1, sizeof *j);
    int rc =
        j ? parse_tree(j, p, n, more, what, e) : err_set(e, DS_EMEM, "%s: out of memory", what);
    if (rc == 0)
        *out = j;
    else
        json_free(j);
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

const struct json_node *json_root(const struct json *j)
{
    return j ? node_of(j->tree) : NULL;
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
