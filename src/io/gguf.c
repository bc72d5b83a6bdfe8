/* Reads GGUF files.  Every length is taken from what is left of the file; memory is allocated only
 * after a count was compared with the bytes that so many entries need at least. */
#include "io/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/fs.h"
#include "base/map.h"
#include "base/mem.h"
#include "io/filekind.h"

enum {
    KEY_MAX = 65535,
    NAME_MAX_BYTES = 64,
    NEST_MAX = 4,
    ALIGN_DEFAULT = 32,
    ALIGN_LEAST = 8,
    PARTS_MAX = 1024,           /* files of a split model */
    META_LEAST = 8 + 1 + 4 + 1, /* bytes of the shortest entry: one-byte key, type, value */
    INFO_LEAST = 8 + 1 + 4 + 4 + 8
};

struct gguf {
    struct fs_map file;
    struct gguf **rest; /* further files of a split model, whose tensors are ours */
    size_t n_rest;
    int version;
    struct gguf_meta *meta;
    struct gguf_tensor *tensor;
    size_t n_meta, n;
    struct map keys, names; /* -> index */
};

static const struct {
    const char *name;
    int bytes; /* 0: variable */
} kinds[GGUF_KINDS] = {
    [GGUF_U8] = {"u8", 1},   [GGUF_I8] = {"i8", 1},       [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2}, [GGUF_U32] = {"u32", 4},     [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4}, [GGUF_BOOL] = {"bool", 1},   [GGUF_STRING] = {"string", 0},
    [GGUF_U64] = {"u64", 8}, [GGUF_ARRAY] = {"array", 0}, [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

static uint64_t le(const unsigned char *p, int n)
{
    uint64_t x = 0;
    for (int i = n - 1; i >= 0; i--)
        x = x << 8 | p[i];
    return x;
}

/* ---- consuming bytes ------------------------------------------------------------------------- */

struct scan {
    const unsigned char *at, *end;
};

static size_t left(const struct scan *s)
{
    return (size_t)(s->end - s->at);
}

static int take(struct scan *s, int n, uint64_t *out, const char *what, struct err *e)
{
    if (left(s) < (size_t)n)
        return err_set(e, DS_EFORMAT, "truncated inside %s", what);
    *out = le(s->at, n);
    s->at += n;
    return 0;
}

static int take_text(struct scan *s, struct gguf_text *out, const char *what, struct err *e)
{
    uint64_t n = 0;
    int rc = take(s, 8, &n, what, e);
    if (rc < 0)
        return rc;
    if (n > left(s))
        return err_set(e, DS_EFORMAT, "%s of %" PRIu64 " bytes exceeds the remaining %zu", what, n,
                       left(s));
    *out = (struct gguf_text){(const char *)s->at, (size_t)n};
    s->at += n;
    return 0;
}

/* ---- metadata -------------------------------------------------------------------------------- */

static int key_is_sound(const struct gguf_text *k)
{
    if (k->n == 0 || k->n > KEY_MAX)
        return 0;
    for (size_t i = 0; i < k->n; i++)
        if (k->p[i] <= ' ' || k->p[i] > '~')
            return 0;
    return 1;
}

static int skip_value(struct scan *s, uint64_t kind, int depth, struct err *e);

static int skip_array(struct scan *s, int depth, struct err *e)
{
    uint64_t item = 0, n = 0, bytes;
    int rc = take(s, 4, &item, "an array", e);
    if (rc == 0)
        rc = take(s, 8, &n, "an array", e);
    if (rc < 0)
        return rc;
    if (item >= GGUF_KINDS)
        return err_set(e, DS_EFORMAT, "unknown array element type %" PRIu64, item);
    if (depth >= NEST_MAX)
        return err_set(e, DS_EFORMAT, "arrays nested deeper than %d", (int)NEST_MAX);
    uint64_t least = kinds[item].bytes ? (uint64_t)kinds[item].bytes : item == GGUF_STRING ? 8 : 12;
    if (checked_mul(n, least, &bytes) || bytes > left(s))
        return err_set(e, DS_EFORMAT, "array of %" PRIu64 " values exceeds the remaining %zu bytes",
                       n, left(s));
    if (kinds[item].bytes && item != GGUF_BOOL) {
        s->at += bytes;
        return 0;
    }
    for (uint64_t i = 0; i < n && rc == 0; i++)
        rc = skip_value(s, item, depth + 1, e);
    return rc;
}

static int skip_value(struct scan *s, uint64_t kind, int depth, struct err *e)
{
    struct gguf_text text;
    uint64_t bits = 0;
    if (kind == GGUF_STRING)
        return take_text(s, &text, "a string", e);
    if (kind == GGUF_ARRAY)
        return skip_array(s, depth, e);
    int rc = take(s, kinds[kind].bytes, &bits, "a value", e);
    if (rc == 0 && kind == GGUF_BOOL && bits > 1)
        return err_set(e, DS_EFORMAT, "boolean is %" PRIu64 ": must be 0 or 1", bits);
    return rc;
}

/* Copies a key or name of the file to a NUL-terminated string and enters it in `seen` under index
 * i. */
static int enter(struct map *seen, const struct gguf_text *text, size_t i, char **out,
                 const char *what, struct err *e)
{
    int64_t other;
    if (map_get(seen, text->p, text->n, &other))
        return err_set(e, DS_EFORMAT, "duplicate %s %.*s", what, (int)text->n, text->p);
    char *own = mem_alloc(text->n + 1, 1);
    if (!own || map_set(seen, text->p, text->n, (int64_t)i) < 0) {
        mem_free(own);
        return err_set(e, DS_EMEM, "out of memory for names");
    }
    memcpy(own, text->p, text->n);
    *out = own;
    return 0;
}

static int parse_meta(struct gguf *g, struct scan *s, struct err *e)
{
    struct gguf_meta *m = &g->meta[g->n_meta];
    struct gguf_text key;
    uint64_t kind = 0;
    int rc = take_text(s, &key, "a key", e);
    if (rc < 0)
        return rc;
    if (!key_is_sound(&key))
        return err_set(e, DS_EFORMAT, "key of %zu bytes: must be 1 to %d bytes of printable ASCII",
                       key.n, (int)KEY_MAX);
    rc = enter(&g->keys, &key, g->n_meta, &m->key, "key", e);
    if (rc < 0)
        return rc;
    g->n_meta++;
    rc = take(s, 4, &kind, m->key, e);
    if (rc == 0 && kind >= GGUF_KINDS)
        rc = err_set(e, DS_EFORMAT, "unknown type %" PRIu64, kind);
    if (rc == 0) {
        m->kind = m->item = (enum gguf_kind)kind;
        m->count = 1;
        m->data = s->at;
        rc = skip_value(s, kind, 0, e);
    }
    if (rc == 0 && kind == GGUF_ARRAY) {
        m->item = (enum gguf_kind)le(m->data, 4);
        m->count = le(m->data + 4, 8);
        m->data += 12;
    }
    return rc < 0 ? err_add(e, rc, "key %.120s", m->key) : 0;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static int tensor_size(struct gguf_tensor *t, struct err *e)
{
    int items, bytes;
    uint64_t columns = t->rank > 0 ? t->shape[t->rank - 1] : 1;
    if (!gguf_type_block(t->type, &items, &bytes))
        return err_set(e, DS_EFORMAT, "unknown type %" PRIu32, t->type);
    t->type_name = gguf_type_name(t->type);
    t->items = 1;
    for (int i = 0; i < t->rank; i++) {
        if (t->shape[i] > INT64_MAX)
            return err_set(e, DS_EFORMAT, "shape[%d] = %" PRId64 ": must be a non-negative integer",
                           i, (int64_t)t->shape[i]);
        if (checked_mul(t->items, t->shape[i], &t->items))
            return err_set(e, DS_EFORMAT, "its shape overflows 64 bits");
    }
    if (columns % (uint64_t)items != 0)
        return err_set(e, DS_EFORMAT,
                       "row length %" PRIu64 ": must be a multiple of the block size %d of %s",
                       columns, items, t->type_name);
    if (checked_mul(t->items / (uint64_t)items, (uint64_t)bytes, &t->bytes))
        return err_set(e, DS_EFORMAT, "its size in bytes overflows 64 bits");
    return 0;
}

/* Tensor offsets are relative to the data section and resolved once all infos are read. */
static int parse_info(struct gguf *g, struct scan *s, uint64_t *offset, struct err *e)
{
    struct gguf_tensor *t = &g->tensor[g->n];
    struct gguf_text name;
    uint64_t rank = 0, type = 0;
    int rc = take_text(s, &name, "a tensor name", e);
    if (rc < 0)
        return rc;
    if (name.n == 0 || name.n > NAME_MAX_BYTES || memchr(name.p, '\0', name.n))
        return err_set(e, DS_EFORMAT, "tensor name of %zu bytes: must be 1 to %d bytes without NUL",
                       name.n, (int)NAME_MAX_BYTES);
    rc = enter(&g->names, &name, g->n, &t->name, "tensor", e);
    if (rc < 0)
        return rc;
    g->n++;
    rc = take(s, 4, &rank, "a tensor info", e);
    if (rc == 0 && rank > GGUF_RANK_MAX)
        rc = err_set(e, DS_EFORMAT, "rank %" PRIu64 ": must be at most %d", rank,
                     (int)GGUF_RANK_MAX);
    t->rank = rc == 0 ? (int)rank : 0;
    for (int i = t->rank - 1; i >= 0 && rc == 0; i--)
        rc = take(s, 8, &t->shape[i], "a tensor info", e);
    if (rc == 0)
        rc = take(s, 4, &type, "a tensor info", e);
    if (rc == 0)
        rc = take(s, 8, offset, "a tensor info", e);
    if (rc == 0) {
        t->type = (uint32_t)type;
        rc = tensor_size(t, e);
    }
    return rc < 0 ? err_add(e, rc, "tensor %s", t->name) : 0;
}

static int find_alignment(const struct gguf *g, uint64_t *align, struct err *e)
{
    const struct gguf_meta *m = gguf_meta_find(g, "general.alignment");
    int64_t v = ALIGN_DEFAULT;
    if (m && m->kind != GGUF_U32)
        return err_set(e, DS_EFORMAT, "general.alignment: must be a u32, found %s",
                       gguf_kind_name(m->kind));
    if (m && (!gguf_int(m, 0, &v) || v < ALIGN_LEAST || (v & (v - 1)) != 0))
        return err_set(e, DS_EFORMAT,
                       "general.alignment = %" PRId64 ": must be a u32 power of two of at least %d",
                       v, (int)ALIGN_LEAST);
    *align = (uint64_t)v;
    return 0;
}

static int place(struct gguf_tensor *t, uint64_t offset, uint64_t align, const unsigned char *data,
                 uint64_t have, struct err *e)
{
    if (offset % align != 0)
        return err_set(e, DS_EFORMAT,
                       "tensor %s: offset %" PRIu64 " must be a multiple of the alignment %" PRIu64,
                       t->name, offset, align);
    if (offset > have || t->bytes > have - offset)
        return err_set(e, DS_EFORMAT,
                       "tensor %s: %" PRIu64 " bytes at offset %" PRIu64
                       " exceed the file's %" PRIu64 " bytes of data",
                       t->name, t->bytes, offset, have);
    t->data = data + offset;
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a,
                             *y = *(const struct gguf_tensor *const *)b;
    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int check_overlap(const struct gguf *g, struct err *e)
{
    const struct gguf_tensor **sorted = mem_alloc(g->n, sizeof *sorted);
    int rc = sorted ? 0 : err_set(e, DS_EMEM, "out of memory for %zu tensors", g->n);
    for (size_t i = 0; i < g->n && sorted; i++)
        sorted[i] = &g->tensor[i];
    if (sorted)
        qsort(sorted, g->n, sizeof *sorted, by_place);
    for (size_t i = 1; i < g->n && rc == 0; i++)
        if (sorted[i - 1]->data + sorted[i - 1]->bytes > sorted[i]->data)
            rc = err_set(e, DS_EFORMAT, "tensor %s overlaps %s", sorted[i]->name,
                         sorted[i - 1]->name);
    mem_free(sorted);
    return rc;
}

static int parse_tensors(struct gguf *g, struct scan *s, uint64_t count, struct err *e)
{
    uint64_t *offset = mem_alloc((size_t)count, sizeof *offset), align = ALIGN_DEFAULT, at;
    int rc = 0;
    g->tensor = mem_alloc((size_t)count, sizeof *g->tensor);
    if (!offset || !g->tensor)
        rc = err_set(e, DS_EMEM, "out of memory for %" PRIu64 " tensors", count);
    if (rc == 0)
        rc = find_alignment(g, &align, e);
    for (uint64_t i = 0; i < count && rc == 0; i++)
        rc = parse_info(g, s, &offset[i], e);
    at = (uint64_t)(s->at - g->file.p);
    at += (align - at % align) % align; /* cannot overflow: a u32 plus a file offset */
    uint64_t have = at < g->file.n ? g->file.n - at : 0;
    for (size_t i = 0; i < g->n && rc == 0; i++) /* never form a pointer past the file */
        rc = place(&g->tensor[i], offset[i], align, g->file.p + (have ? at : g->file.n), have, e);
    if (rc == 0)
        rc = check_overlap(g, e);
    mem_free(offset);
    return rc;
}

/* ---- file ------------------------------------------------------------------------------------ */

static int check_head(const struct gguf *g, struct err *e)
{
    const struct fs_map *f = &g->file;
    if (f->n < 4 || memcmp(f->p, "GGUF", 4) != 0) {
        const char *kind = file_kind(f->p, f->n);
        return kind ? err_set(e, DS_EFORMAT, "not a GGUF file: this is %s", kind)
                    : err_set(e, DS_EFORMAT, "not a GGUF file: magic \"GGUF\" is missing");
    }
    if (f->n < 24)
        return err_set(e, DS_EFORMAT, "truncated inside the header: %zu bytes", f->n);
    uint64_t version = le(f->p + 4, 4);
    if (version != 0 && (version & 0xffff) == 0)
        return err_set(e, DS_EFORMAT,
                       "unsupported byte order: expected little-endian, found big-endian");
    if (version != 2 && version != 3)
        return err_set(e, DS_EFORMAT, "unsupported version %" PRIu64 ": expected 2 or 3", version);
    return 0;
}

static int load(struct gguf *g, struct err *e)
{
    int rc = check_head(g, e);
    if (rc < 0)
        return rc;
    g->version = (int)le(g->file.p + 4, 4);
    uint64_t tensors = le(g->file.p + 8, 8), metas = le(g->file.p + 16, 8);
    struct scan s = {g->file.p + 24, g->file.p + g->file.n};
    if (metas > left(&s) / META_LEAST)
        return err_set(e, DS_EFORMAT, "truncated: %" PRIu64 " keys do not fit in %zu bytes", metas,
                       left(&s));
    if (tensors > left(&s) / INFO_LEAST)
        return err_set(e, DS_EFORMAT, "truncated: %" PRIu64 " tensors do not fit in %zu bytes",
                       tensors, left(&s));
    g->meta = mem_alloc((size_t)metas, sizeof *g->meta);
    if (!g->meta)
        return err_set(e, DS_EMEM, "out of memory for %" PRIu64 " keys", metas);
    for (uint64_t i = 0; i < metas && rc == 0; i++)
        rc = parse_meta(g, &s, e);
    return rc == 0 ? parse_tensors(g, &s, tensors, e) : rc;
}

static int open_one(struct gguf **out, const char *path, struct err *e)
{
    struct gguf *g = mem_alloc(1, sizeof *g);
    if (!g)
        return err_set(e, DS_EMEM, "%s: out of memory", path);
    int rc = fs_map_open(&g->file, path, e);
    if (rc < 0) {
        mem_free(g);
        return rc;
    }
    rc = load(g, e);
    if (rc == 0) {
        *out = g;
        return 0;
    }
    gguf_close(g);
    return err_add(e, rc, "%s", path);
}

/* ---- split models ---------------------------------------------------------------------------- */

/* Which file of how many g is; of 1 when it is not split. */
static int split_of(const struct gguf *g, int64_t *no, int64_t *count, struct err *e)
{
    const struct gguf_meta *n = gguf_meta_find(g, "split.count"),
                           *i = gguf_meta_find(g, "split.no");
    *no = 0;
    *count = 1;
    if (!n && !i)
        return 0;
    if (!gguf_int(n, 0, count) || *count < 0 || *count > PARTS_MAX)
        return err_set(e, DS_EFORMAT, "split.count must be an integer of at most %d",
                       (int)PARTS_MAX);
    if (*count <= 1) { /* 0: a file that was merged */
        *count = 1;
        return 0;
    }
    if (!gguf_int(i, 0, no) || *no < 0 || *no >= *count)
        return err_set(e, DS_EFORMAT, "split.no must be an integer below split.count %" PRId64,
                       *count);
    return 0;
}

enum { SPLIT_END_MAX = 40 };

static void split_end(char out[SPLIT_END_MAX], int64_t no, int64_t count)
{
    snprintf(out, SPLIT_END_MAX, "-%05d-of-%05d.gguf", (int)no + 1, (int)count);
}

/* Opens file `no` of `count`, which has the keys of that. */
static int open_part(struct gguf **out, const char *path, int64_t no, int64_t count, struct err *e)
{
    struct gguf *g = NULL;
    int64_t is_no, is_count;
    if (!fs_exists(path))
        return err_set(e, DS_ENOTFOUND, "%s: part %d of %d is missing", path, (int)no + 1,
                       (int)count);
    int rc = open_one(&g, path, e);
    if (rc < 0)
        return rc;
    rc = split_of(g, &is_no, &is_count, e);
    if (rc == 0 && (is_no != no || is_count != count))
        rc = err_set(e, DS_EFORMAT, "part %d of %d, expected part %d of %d", (int)is_no + 1,
                     (int)is_count, (int)no + 1, (int)count);
    if (rc == 0) {
        *out = g;
        return 0;
    }
    gguf_close(g);
    return err_add(e, rc, "%s", path);
}

/* Takes the tensors of `from` behind those of g; names must differ. */
static int take_tensors(struct gguf *g, struct gguf *from, struct err *e)
{
    for (size_t i = 0; i < from->n; i++) {
        struct gguf_tensor *t = &from->tensor[i];
        if (gguf_find(g, t->name))
            return err_set(e, DS_EFORMAT, "tensor %s is in two parts", t->name);
        if (map_set(&g->names, t->name, strlen(t->name), (int64_t)g->n) < 0)
            return err_set(e, DS_EMEM, "out of memory for names");
        g->tensor[g->n++] = *t;
        t->name = NULL;
    }
    return 0;
}

/* Moves the tensors of all other files to the first one's. */
static int join(struct gguf *g, struct err *e)
{
    size_t n = g->n;
    int64_t total;
    for (size_t i = 0; i < g->n_rest; i++)
        n += g->rest[i]->n;
    if (gguf_int(gguf_meta_find(g, "split.tensors.count"), 0, &total) && total != (int64_t)n)
        return err_set(e, DS_EFORMAT, "split.tensors.count = %" PRId64 ", found %zu", total, n);
    struct gguf_tensor *all = mem_alloc(n + 1, sizeof *all);
    if (!all)
        return err_set(e, DS_EMEM, "out of memory for %zu tensors", n);
    if (g->n > 0)
        memcpy(all, g->tensor, g->n * sizeof *all);
    mem_free(g->tensor);
    g->tensor = all;
    int rc = 0;
    for (size_t i = 0; i < g->n_rest && rc == 0; i++)
        rc = take_tensors(g, g->rest[i], e);
    return rc;
}

/* *g is file `no` of `count`: opens the others, next to it; *g is the first then, and owns them. */
static int open_rest(struct gguf **g, const char *path, int64_t no, int64_t count, struct err *e)
{
    char end[SPLIT_END_MAX], other[4096];
    split_end(end, no, count);
    size_t n = strlen(path), k = strlen(end);
    if (n < k || strcmp(path + n - k, end) != 0)
        return err_set(
            e, DS_EFORMAT,
            "%s: part %d of %d: expected a file name that ends in %s, next to the others", path,
            (int)no + 1, (int)count, end);
    if (n >= sizeof other)
        return err_set(e, DS_ERANGE, "%s: path too long", path);
    struct gguf **part = mem_alloc((size_t)count, sizeof(struct gguf *)), *first;
    if (!part)
        return err_set(e, DS_EMEM, "%s: out of memory", path);
    int rc = 0;
    part[no] = *g;
    for (int64_t i = 0; i < count && rc == 0; i++) {
        split_end(end, i, count);
        snprintf(other, sizeof other, "%.*s%s", (int)(n - k), path, end);
        if (i != no)
            rc = open_part(&part[i], other, i, count, e);
    }
    first = part[0] ? part[0] : *g;
    for (int64_t i = 0; i < count; i++) /* compacted: some may be missing */
        if (part[i] && part[i] != first)
            part[first->n_rest++] = part[i];
    first->rest = part;
    *g = first;
    if (rc == 0 && (rc = join(first, e)) < 0)
        rc = err_add(e, rc, "%s", path);
    return rc;
}

int gguf_open(struct gguf **out, const char *path, struct err *e)
{
    struct gguf *g = NULL;
    int64_t no, count;
    int rc = open_one(&g, path, e);
    if (rc < 0)
        return rc;
    rc = split_of(g, &no, &count, e);
    if (rc < 0)
        err_add(e, rc, "%s", path);
    else if (count > 1)
        rc = open_rest(&g, path, no, count, e);
    if (rc == 0)
        *out = g;
    else
        gguf_close(g);
    return rc;
}

void gguf_close(struct gguf *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < g->n_rest; i++)
        gguf_close(g->rest[i]);
    mem_free(g->rest);
    fs_map_close(&g->file);
    for (size_t i = 0; i < g->n_meta; i++)
        mem_free(g->meta[i].key);
    for (size_t i = 0; i < g->n; i++)
        mem_free(g->tensor[i].name);
    mem_free(g->meta);
    mem_free(g->tensor);
    map_release(&g->keys);
    map_release(&g->names);
    mem_free(g);
}

int gguf_unchanged(const struct gguf *g, struct err *e)
{
    int rc = fs_map_unchanged(&g->file, e);
    for (size_t i = 0; i < g->n_rest && rc == 0; i++)
        rc = fs_map_unchanged(&g->rest[i]->file, e);
    return rc;
}

/* ---- look-up --------------------------------------------------------------------------------- */

int gguf_version(const struct gguf *g)
{
    return g->version;
}

size_t gguf_bytes(const struct gguf *g)
{
    size_t n = g->file.n;
    for (size_t i = 0; i < g->n_rest; i++)
        n += g->rest[i]->file.n;
    return n;
}

size_t gguf_meta_count(const struct gguf *g)
{
    return g->n_meta;
}

const struct gguf_meta *gguf_meta_at(const struct gguf *g, size_t i)
{
    return i < g->n_meta ? &g->meta[i] : NULL;
}

const struct gguf_meta *gguf_meta_find(const struct gguf *g, const char *key)
{
    int64_t i;
    return map_get(&g->keys, key, strlen(key), &i) ? &g->meta[i] : NULL;
}

size_t gguf_count(const struct gguf *g)
{
    return g->n;
}

const struct gguf_tensor *gguf_at(const struct gguf *g, size_t i)
{
    return i < g->n ? &g->tensor[i] : NULL;
}

const struct gguf_tensor *gguf_find(const struct gguf *g, const char *name)
{
    int64_t i;
    return map_get(&g->names, name, strlen(name), &i) ? &g->tensor[i] : NULL;
}

const char *gguf_kind_name(enum gguf_kind kind)
{
    return kind < GGUF_KINDS ? kinds[kind].name : "?";
}

int gguf_int(const struct gguf_meta *m, uint64_t i, int64_t *out)
{
    if (!m || i >= m->count || kinds[m->item].bytes == 0 || m->item == GGUF_F32 ||
        m->item == GGUF_F64)
        return 0;
    int n = kinds[m->item].bytes;
    uint64_t bits = le(m->data + (uint64_t)n * i, n);
    switch (m->item) {
    case GGUF_I8: *out = (int8_t)bits; return 1;
    case GGUF_I16: *out = (int16_t)bits; return 1;
    case GGUF_I32: *out = (int32_t)bits; return 1;
    case GGUF_U64:
        if (bits > INT64_MAX)
            return 0;
        break;
    default: break;
    }
    *out = (int64_t)bits;
    return 1;
}

int gguf_big(const struct gguf_meta *m, uint64_t i, uint64_t *out)
{
    if (!m || i >= m->count || m->item != GGUF_U64)
        return 0;
    *out = le(m->data + 8 * i, 8);
    return *out > INT64_MAX;
}

int gguf_num(const struct gguf_meta *m, uint64_t i, double *out)
{
    int64_t whole;
    uint64_t big;
    if (m && i < m->count && m->item == GGUF_F32) {
        uint32_t bits = (uint32_t)le(m->data + 4 * i, 4);
        float f;
        memcpy(&f, &bits, sizeof f);
        *out = (double)f;
        return 1;
    }
    if (m && i < m->count && m->item == GGUF_F64) {
        uint64_t bits = le(m->data + 8 * i, 8);
        memcpy(out, &bits, sizeof *out);
        return 1;
    }
    if (gguf_big(m, i, &big)) {
        *out = (double)big;
        return 1;
    }
    if (!gguf_int(m, i, &whole))
        return 0;
    *out = (double)whole;
    return 1;
}

int gguf_strings_next(struct gguf_strings *s, struct gguf_text *out)
{
    if (s->left == 0)
        return 0;
    size_t n = (size_t)le(s->at, 8); /* compared with the file when it was opened */
    *out = (struct gguf_text){(const char *)s->at + 8, n};
    s->at += 8 + n;
    s->left--;
    return 1;
}

int gguf_string(const struct gguf_meta *m, struct gguf_text *out)
{
    if (!m || m->kind != GGUF_STRING)
        return 0;
    struct gguf_strings s = {m->data, 1};
    return gguf_strings_next(&s, out);
}
