/* Reading: io/safetensors.h.  The rules are those of the reference reader (offsets start at 0,
 * leave no hole and end with the file), so no byte of a file is unaccounted for. */
#include "io/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/map.h"
#include "io/filekind.h"
#include "io/st_dtype.h"

/* Limits.  A count is made from the bytes of the header before it is parsed. */
enum { HEADER_MAX = 64 << 20, TENSORS_MAX = 200000, NAME_MAX_BYTES = 512, META_MAX = 4096 };

struct st {
    char *path;
    struct fs_map file;
    struct st_tensor *tensor; /* sorted by data offset */
    size_t n;
    struct map names; /* name -> index */
    char **meta;      /* key, value, key, value, ... */
    size_t n_meta;
};

/* ---- header -----------------------------------------------------------------------------------
 */

static uint64_t le64(const unsigned char *p)
{
    uint64_t x = 0;
    for (int i = 7; i >= 0; i--)
        x = x << 8 | p[i];
    return x;
}

static int header_find(const struct st *s, uint64_t *length, struct err *e)
{
    const struct fs_map *f = &s->file;
    uint64_t n = f->n < 8 ? 0 : le64(f->p);
    /* a length may begin as a pickle does: what is there says more */
    int is_header =
        n > 0 && n <= HEADER_MAX && n <= f->n - 8 && memchr("{ \t\r\n", f->p[8], 5) != NULL;
    const char *kind = is_header ? NULL : file_kind(f->p, f->n);
    if (kind)
        return err_set(e, DS_EFORMAT, "not safetensors but %s", kind);
    if (f->n < 8)
        return err_set(e, DS_EFORMAT, "header too short: the file has %zu bytes", f->n);
    if (n > HEADER_MAX)
        return err_set(e, DS_EFORMAT, "header of %" PRIu64 " bytes is over the limit of %d", n,
                       (int)HEADER_MAX);
    if (n > f->n - 8)
        return err_set(e, DS_EFORMAT, "header of %" PRIu64 " bytes goes beyond the file's %zu", n,
                       f->n);
    *length = n;
    return 0;
}

static int header_count(const unsigned char *p, size_t n, struct err *e)
{
    size_t braces = 0;
    for (const unsigned char *q = p; (q = memchr(q, '{', (size_t)(p + n - q))); q++)
        braces++;
    if (braces > TENSORS_MAX + 2)
        return err_set(e, DS_EFORMAT, "more than %d tensors", (int)TENSORS_MAX);
    return 0;
}

/* ---- tensors ----------------------------------------------------------------------------------
 */

static int uint_of(const struct json_node *n, uint64_t *out)
{
    int64_t x = json_int(n, -1);
    if (json_kind_of(n) != JSON_KIND_INT || x < 0)
        return 0;
    *out = (uint64_t)x;
    return 1;
}

static int parse_shape(struct st_tensor *t, const struct json_node *shape, struct err *e)
{
    if (json_kind_of(shape) != JSON_KIND_ARRAY)
        return err_set(e, DS_EFORMAT, "shape is no array");
    if (json_len(shape) > ST_RANK_MAX)
        return err_set(e, DS_EFORMAT, "rank %zu is over the limit of %d", json_len(shape),
                       (int)ST_RANK_MAX);
    t->rank = (int)json_len(shape);
    t->items = 1;
    for (int i = 0; i < t->rank; i++) {
        if (!uint_of(json_at(shape, (size_t)i), &t->shape[i]))
            return err_set(e, DS_EFORMAT, "dimension %d is no size", i);
        if (checked_mul(t->items, t->shape[i], &t->items))
            return err_set(e, DS_EFORMAT, "shape overflows 64 bits");
    }
    return 0;
}

static int check_bytes(struct st_tensor *t, uint64_t begin, uint64_t end, uint64_t data_bytes,
                       struct err *e)
{
    uint64_t bits;
    if (begin > end || end > data_bytes)
        return err_set(e, DS_EFORMAT,
                       "offsets [%" PRIu64 ", %" PRIu64 ") are not in the %" PRIu64
                       " bytes of data",
                       begin, end, data_bytes);
    t->bytes = end - begin;
    int per_item = st_dtype_bits(t->dtype_name);
    if (per_item == 0)
        return 0; /* unknown dtype: listed, its size cannot be checked */
    if (checked_mul(t->items, (uint64_t)per_item, &bits))
        return err_set(e, DS_EFORMAT, "shape times %s overflows 64 bits", t->dtype_name);
    if (bits % 8)
        return err_set(e, DS_EFORMAT, "%" PRIu64 " items of %s do not end on a byte", t->items,
                       t->dtype_name);
    if (bits / 8 != t->bytes)
        return err_set(e, DS_EFORMAT,
                       "shape and %s need %" PRIu64 " bytes, the offsets give %" PRIu64,
                       t->dtype_name, bits / 8, t->bytes);
    return 0;
}

static int parse_tensor(struct st *s, struct st_tensor *t, const struct json_node *node,
                        uint64_t data_at, struct err *e)
{
    uint64_t begin, end;
    size_t len = 0;
    const char *dtype = json_str(json_get(node, "dtype"), &len);
    const struct json_node *range = json_get(node, "data_offsets");
    if (!dtype || len == 0 || len >= sizeof t->dtype_name || strlen(dtype) != len)
        return err_set(e, DS_EFORMAT, "no dtype");
    str_copy(t->dtype_name, sizeof t->dtype_name, dtype);
    t->dtype = st_dtype_find(dtype);
    int rc = parse_shape(t, json_get(node, "shape"), e);
    if (rc < 0)
        return rc;
    if (json_len(range) != 2 || !uint_of(json_at(range, 0), &begin) ||
        !uint_of(json_at(range, 1), &end))
        return err_set(e, DS_EFORMAT, "data_offsets are not two sizes");
    rc = check_bytes(t, begin, end, s->file.n - data_at, e);
    if (rc == 0)
        t->data = s->file.p + data_at + begin;
    return rc;
}

static int parse_meta(struct st *s, const struct json_node *node, struct err *e)
{
    const struct json_node *v;
    const char *key;
    size_t n = json_len(node), len;
    if (json_kind_of(node) == JSON_KIND_NULL)
        return 0;
    if (json_kind_of(node) != JSON_KIND_OBJECT || n > META_MAX)
        return err_set(e, DS_EFORMAT, "__metadata__ is no map of at most %d strings",
                       (int)META_MAX);
    s->meta = mem_alloc(2 * n + 1, sizeof *s->meta);
    if (!s->meta)
        return err_set(e, DS_EMEM, "no memory for metadata");
    void *at = NULL;
    for (size_t i = 0; (v = json_next(node, &at, &key, &len)); i++) {
        if (!json_str(v, NULL))
            return err_set(e, DS_EFORMAT, "__metadata__ %.60s is no string", key);
        s->meta[2 * i] = mem_strdup(key);
        s->meta[2 * i + 1] = mem_strdup(json_str(v, NULL));
        s->n_meta = i + 1;
        if (!s->meta[2 * i] || !s->meta[2 * i + 1])
            return err_set(e, DS_EMEM, "no memory for metadata");
    }
    return 0;
}

/* By place; empty tensors before the one that begins where they are. */
static int by_offset(const void *a, const void *b)
{
    const struct st_tensor *x = a, *y = b;
    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int check_cover(struct st *s, uint64_t data_at, struct err *e)
{
    const unsigned char *next = s->file.p + data_at, *end = s->file.p + s->file.n;
    qsort(s->tensor, s->n, sizeof *s->tensor, by_offset);
    for (size_t i = 0; i < s->n; i++) {
        const struct st_tensor *t = &s->tensor[i];
        if (t->data != next)
            return err_set(e, DS_EFORMAT, "tensor %.120s %s", t->name,
                           t->data < next ? "overlaps the one before" : "leaves a hole before it");
        next += t->bytes;
        int rc = map_set(&s->names, t->name, strlen(t->name), (int64_t)i);
        if (rc < 0)
            return err_set(e, rc, "no memory for %zu names", s->n);
    }
    if (next != end)
        return err_set(e, DS_EFORMAT, "%zu bytes behind the last tensor", (size_t)(end - next));
    return 0;
}

static int parse_header(struct st *s, const struct json_node *root, uint64_t data_at, struct err *e)
{
    const struct json_node *node;
    const char *key;
    size_t len;
    if (json_kind_of(root) != JSON_KIND_OBJECT)
        return err_set(e, DS_EFORMAT, "header is no JSON object");
    s->tensor = mem_alloc(json_len(root) + 1, sizeof *s->tensor);
    if (!s->tensor)
        return err_set(e, DS_EMEM, "no memory for %zu tensors", json_len(root));
    for (void *at = NULL; (node = json_next(root, &at, &key, &len));) {
        int rc;
        if (strcmp(key, "__metadata__") == 0 && len == 12) {
            rc = parse_meta(s, node, e);
            if (rc < 0)
                return rc;
            continue;
        }
        if (len > NAME_MAX_BYTES || strlen(key) != len)
            return err_set(e, DS_EFORMAT, "tensor name of %zu bytes or with a NUL", len);
        struct st_tensor *t = &s->tensor[s->n];
        t->name = mem_strdup(key);
        if (!t->name)
            return err_set(e, DS_EMEM, "no memory for names");
        s->n++;
        rc = parse_tensor(s, t, node, data_at, e);
        if (rc < 0)
            return err_add(e, rc, "tensor %.120s", t->name);
    }
    return check_cover(s, data_at, e);
}

static int load(struct st *s, struct err *e)
{
    struct json *j = NULL;
    uint64_t n = 0;
    int rc = header_find(s, &n, e);
    if (rc == 0)
        rc = header_count(s->file.p + 8, (size_t)n, e);
    if (rc == 0)
        rc = json_parse(&j, (const char *)s->file.p + 8, (size_t)n, "header", e);
    if (rc == 0)
        rc = parse_header(s, json_root(j), 8 + n, e);
    json_free(j);
    return rc;
}

int st_open(struct st **out, const char *path, struct err *e)
{
    struct st *s = mem_alloc(1, sizeof *s);
    int rc = DS_EMEM;
    if (!s || !(s->path = mem_strdup(path))) {
        rc = err_set(e, DS_EMEM, "no memory");
        goto out;
    }
    rc = fs_map_open(&s->file, path, e);
    if (rc < 0) {
        mem_free(s->path);
        mem_free(s);
        return rc;
    }
    rc = load(s, e);
    if (rc == 0) {
        *out = s;
        return 0;
    }
out:
    rc = err_add(e, rc, "%s", path);
    st_close(s);
    return rc;
}

void st_close(struct st *s)
{
    if (!s)
        return;
    if (s->file.p)
        fs_map_close(&s->file);
    for (size_t i = 0; i < s->n; i++)
        mem_free(s->tensor[i].name);
    mem_free(s->tensor);
    for (size_t i = 0; s->meta && i < 2 * s->n_meta; i++)
        mem_free(s->meta[i]);
    mem_free(s->meta);
    map_release(&s->names);
    mem_free(s->path);
    mem_free(s);
}

/* ---- looking ------------------------------------------------------------------------------------
 */

size_t st_count(const struct st *s)
{
    return s->n;
}

const struct st_tensor *st_at(const struct st *s, size_t i)
{
    return i < s->n ? &s->tensor[i] : NULL;
}

const struct st_tensor *st_find(const struct st *s, const char *name)
{
    int64_t i;
    return map_get(&s->names, name, strlen(name), &i) ? &s->tensor[i] : NULL;
}

const char *st_meta(const struct st *s, const char *key)
{
    for (size_t i = 0; i < s->n_meta; i++)
        if (strcmp(s->meta[2 * i], key) == 0)
            return s->meta[2 * i + 1];
    return NULL;
}

int st_unchanged(const struct st *s, struct err *e)
{
    int rc = fs_map_unchanged(&s->file, e);
    if (rc < 0)
        return err_add(e, rc, "%s", s->path);
    if (fs_exists(s->path) && !fs_map_is_at(&s->file, s->path))
        return err_set(e, DS_EFORMAT, "%s was replaced since it was opened", s->path);
    return 0;
}

int st_intact(const struct st *s, struct err *e)
{
    int rc = fs_map_unchanged(&s->file, e);
    return rc < 0 ? err_add(e, rc, "%s", s->path) : 0;
}
