/* JSON documents as a borrowed tree, parsed by jansson. */
#include "base/json.h"

#include <jansson.h>
#include <string.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/mem.h"

enum { DEPTH_MAX = 256, INDEX_FROM = 8 };

struct member {
    const char *key;
    size_t len;
    const struct json_node *value;
};

/* Strings point into jansson's tree, which lives as long as this one.  This tree exists because
 * jansson has no access to members by position, and its object iterator is not a borrowed value. */
struct json_node {
    enum json_kind kind;
    size_t n; /* items, members, bytes */
    union {
        int64_t integer;
        double real;
        const char *text;
        const struct json_node *item;
        const struct member *member;
    } u;
    const uint32_t *index; /* members by hash of the key, 1 + place, 0 free; NULL for small ones */
};

struct json {
    json_t *tree;
    struct json_node *node;
    struct member *member;
    uint32_t *slot;
    size_t nodes, members, slots; /* used so far; blocks are allocated at the counted size */
};

/* A power of two with at least half of the slots free; 0 where a linear search is as fast. */
static size_t slots_for(size_t members)
{
    size_t n = INDEX_FROM * 2;
    if (members <= INDEX_FROM)
        return 0;
    while (n < members * 2)
        n *= 2;
    return n;
}

static void count(struct json *j, json_t *t)
{
    size_t i;
    const char *key;
    json_t *v;
    if (json_is_array(t)) {
        j->nodes += json_array_size(t);
        json_array_foreach(t, i, v) count(j, v);
    } else if (json_is_object(t)) {
        j->nodes += json_object_size(t);
        j->members += json_object_size(t);
        j->slots += slots_for(json_object_size(t));
        json_object_foreach(t, key, v) count(j, v);
    }
}

static size_t slot_of(const struct json_node *o, size_t cap, const char *key, size_t len)
{
    size_t i = (size_t)hash64(key, len, 0) & (cap - 1);
    while (o->index[i]) {
        const struct member *m = &o->u.member[o->index[i] - 1];
        if (m->len == len && memcmp(m->key, key, len) == 0)
            break;
        i = (i + 1) & (cap - 1);
    }
    return i;
}

static void fill(struct json *j, struct json_node *out, json_t *t);

static void fill_object(struct json *j, struct json_node *out, json_t *t)
{
    size_t n = json_object_size(t), cap = slots_for(n), k = 0;
    struct member *member = j->member + j->members;
    struct json_node *value = j->node + j->nodes;
    uint32_t *slot = j->slot + j->slots;
    const char *key;
    json_t *v;
    *out = (struct json_node){.kind = JSON_KIND_OBJECT, .n = n, .u.member = member};
    out->index = cap ? slot : NULL;
    j->members += n;
    j->nodes += n;
    j->slots += cap;
    json_object_foreach(t, key, v)
    {
        member[k] = (struct member){.key = key, .len = strlen(key), .value = &value[k]};
        if (cap)
            slot[slot_of(out, cap, key, member[k].len)] = (uint32_t)k + 1;
        fill(j, &value[k++], v);
    }
}

static void fill_array(struct json *j, struct json_node *out, json_t *t)
{
    size_t n = json_array_size(t), i;
    struct json_node *item = j->node + j->nodes;
    json_t *v;
    *out = (struct json_node){.kind = JSON_KIND_ARRAY, .n = n, .u.item = item};
    j->nodes += n;
    json_array_foreach(t, i, v) fill(j, &item[i], v);
}

static void fill(struct json *j, struct json_node *out, json_t *t)
{
    *out = (struct json_node){.kind = JSON_KIND_NULL};
    switch (json_typeof(t)) {
    case JSON_OBJECT: fill_object(j, out, t); break;
    case JSON_ARRAY: fill_array(j, out, t); break;
    case JSON_STRING:
        out->kind = JSON_KIND_STRING;
        out->u.text = json_string_value(t);
        out->n = json_string_length(t);
        break;
    case JSON_INTEGER:
        out->kind = JSON_KIND_INT;
        out->u.integer = json_integer_value(t);
        break;
    case JSON_REAL:
        out->kind = JSON_KIND_REAL;
        out->u.real = json_real_value(t);
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        out->kind = JSON_KIND_BOOL;
        out->u.integer = json_is_true(t);
        break;
    case JSON_NULL: break;
    }
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

static int parse_tree(json_t **tree, const char *p, size_t n, int wide, const char *what,
                      struct err *e)
{
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY;
    json_error_t bad;
    size_t deep = too_deep(p, n);
    if (deep < n)
        return err_set(e, DS_EFORMAT, "%s: nesting depth must be at most %d (offset %zu)", what,
                       DEPTH_MAX, deep);
    *tree = json_loadb(n ? p : "", n, flags, &bad);
    if (!*tree && wide && json_error_code(&bad) == json_error_numeric_overflow)
        *tree = json_loadb(p, n, flags | JSON_DECODE_INT_AS_REAL, &bad);
    if (*tree)
        return 0;
    if (json_error_code(&bad) == json_error_out_of_memory)
        return err_set(e, DS_EMEM, "%s: out of memory", what);
    return err_set(e, DS_EFORMAT, "%s:%d:%d: %s (offset %d)", what, bad.line > 0 ? bad.line : 1,
                   bad.column > 0 ? bad.column : 1, bad.text[0] ? bad.text : "invalid JSON",
                   bad.position > 0 ? bad.position : 0);
}

static int parse(struct json **out, const char *p, size_t n, int wide, const char *what,
                 struct err *e)
{
    struct json *j = mem_alloc(1, sizeof *j);
    int rc = j ? 0 : err_set(e, DS_EMEM, "%s: out of memory", what);
    if (rc == 0)
        rc = parse_tree(&j->tree, p, n, wide, what, e);
    if (rc < 0)
        goto out;
    j->nodes = 1;
    count(j, j->tree);
    j->node = mem_alloc(j->nodes, sizeof *j->node);
    j->member = mem_alloc(j->members, sizeof *j->member);
    j->slot = mem_alloc(j->slots, sizeof *j->slot);
    if (!j->node || !j->member || !j->slot) {
        rc = err_set(e, DS_EMEM, "%s: out of memory", what);
        goto out;
    }
    j->nodes = 1;
    j->members = j->slots = 0;
    fill(j, j->node, j->tree);
    *out = j;
    j = NULL;
out:
    json_free(j);
    return rc;
}

int json_parse(struct json **out, const char *p, size_t n, const char *what, struct err *e)
{
    return parse(out, p, n, 0, what, e);
}

int json_parse_wide(struct json **out, const char *p, size_t n, const char *what, struct err *e)
{
    return parse(out, p, n, 1, what, e);
}

static int read_file(struct json **out, const char *path, uint64_t cap, int is_wide, struct err *e)
{
    struct str text = {0};
    int rc = fs_read_file(&text, path, cap, e);
    if (rc == 0)
        rc = parse(out, text.p, text.len, is_wide, path, e);
    str_release(&text);
    return rc;
}

int json_read_file(struct json **out, const char *path, uint64_t cap, struct err *e)
{
    return read_file(out, path, cap, 0, e);
}

int json_read_wide(struct json **out, const char *path, uint64_t cap, struct err *e)
{
    return read_file(out, path, cap, 1, e);
}

void json_free(struct json *j)
{
    if (!j)
        return;
    json_decref(j->tree);
    mem_free(j->node);
    mem_free(j->member);
    mem_free(j->slot);
    mem_free(j);
}

const struct json_node *json_root(const struct json *j)
{
    return j ? j->node : NULL;
}

enum json_kind json_kind_of(const struct json_node *n)
{
    return n ? n->kind : JSON_KIND_NULL;
}

const struct json_node *json_get(const struct json_node *object, const char *key)
{
    if (json_kind_of(object) != JSON_KIND_OBJECT)
        return NULL;
    size_t len = strlen(key);
    if (object->index) {
        uint32_t at = object->index[slot_of(object, slots_for(object->n), key, len)];
        return at ? object->u.member[at - 1].value : NULL;
    }
    for (size_t i = 0; i < object->n; i++) {
        const struct member *m = &object->u.member[i];
        if (m->len == len && memcmp(m->key, key, len) == 0)
            return m->value;
    }
    return NULL;
}

const struct json_node *json_at(const struct json_node *array, size_t i)
{
    if (json_kind_of(array) != JSON_KIND_ARRAY || i >= array->n)
        return NULL;
    return &array->u.item[i];
}

size_t json_len(const struct json_node *n)
{
    enum json_kind kind = json_kind_of(n);
    return kind == JSON_KIND_ARRAY || kind == JSON_KIND_OBJECT ? n->n : 0;
}

const struct json_node *json_member(const struct json_node *object, size_t i, const char **key,
                                    size_t *key_len)
{
    if (json_kind_of(object) != JSON_KIND_OBJECT || i >= object->n)
        return NULL;
    if (key)
        *key = object->u.member[i].key;
    if (key_len)
        *key_len = object->u.member[i].len;
    return object->u.member[i].value;
}

const char *json_str(const struct json_node *n, size_t *len)
{
    if (json_kind_of(n) != JSON_KIND_STRING)
        return NULL;
    if (len)
        *len = n->n;
    return n->u.text;
}

int64_t json_int(const struct json_node *n, int64_t otherwise)
{
    return json_kind_of(n) == JSON_KIND_INT ? n->u.integer : otherwise;
}

double json_num(const struct json_node *n, double otherwise)
{
    if (json_kind_of(n) == JSON_KIND_INT)
        return (double)n->u.integer;
    return json_kind_of(n) == JSON_KIND_REAL ? n->u.real : otherwise;
}

int json_bool(const struct json_node *n, int otherwise)
{
    return json_kind_of(n) == JSON_KIND_BOOL ? (int)n->u.integer : otherwise;
}
