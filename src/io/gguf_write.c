/* Writes GGUF version 3, little-endian. */
#include "io/gguf_write.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/mem.h"
#include "base/str.h"

enum { ALIGN = 32, VERSION = 3 };

struct gguf_out {
    struct str meta, info;
    uint64_t metas, tensors, data_bytes; /* data_bytes: of all tensors, padded */
    uint64_t *size;                      /* (tensors) bytes of each */
    size_t cap;
    uint64_t at, in_tensor; /* the tensor being written, and its bytes so far */
    struct fs_new file;
};

int gguf_out_new(struct gguf_out **out, struct err *e)
{
    struct gguf_out *w = mem_alloc(1, sizeof *w);
    if (!w)
        return err_set(e, DS_EMEM, "GGUF writer: out of memory");
    w->file.fd = -1;
    *out = w;
    return 0;
}

void gguf_out_free(struct gguf_out *w)
{
    if (!w)
        return;
    fs_new_abort(&w->file);
    str_release(&w->meta);
    str_release(&w->info);
    mem_free(w->size);
    mem_free(w);
}

static void add_uint(struct str *s, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        str_add_char(s, (char)(v >> 8 * i & 255));
}

static void add_f32(struct str *s, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    add_uint(s, bits, 4);
}

static void add_text(struct str *s, const char *p, size_t n)
{
    add_uint(s, n, 8);
    str_add_bytes(s, p, n);
}

/* ---- metadata -------------------------------------------------------------------------------- */

static void put_key(struct gguf_out *w, const char *key, enum gguf_kind kind)
{
    add_text(&w->meta, key, strlen(key));
    add_uint(&w->meta, kind, 4);
    w->metas++;
}

void gguf_put_u32(struct gguf_out *w, const char *key, uint32_t v)
{
    put_key(w, key, GGUF_U32);
    add_uint(&w->meta, v, 4);
}

void gguf_put_f32(struct gguf_out *w, const char *key, float v)
{
    put_key(w, key, GGUF_F32);
    add_f32(&w->meta, v);
}

void gguf_put_bool(struct gguf_out *w, const char *key, int v)
{
    put_key(w, key, GGUF_BOOL);
    add_uint(&w->meta, v != 0, 1);
}

void gguf_put_text(struct gguf_out *w, const char *key, const char *p, size_t n)
{
    put_key(w, key, GGUF_STRING);
    add_text(&w->meta, p, n);
}

void gguf_put_array(struct gguf_out *w, const char *key, enum gguf_kind item, uint64_t n)
{
    put_key(w, key, GGUF_ARRAY);
    add_uint(&w->meta, item, 4);
    add_uint(&w->meta, n, 8);
}

void gguf_item_text(struct gguf_out *w, const char *p, size_t n)
{
    add_text(&w->meta, p, n);
}

void gguf_item_bool(struct gguf_out *w, int v)
{
    add_uint(&w->meta, v != 0, 1);
}

void gguf_item_i32(struct gguf_out *w, int32_t v)
{
    add_uint(&w->meta, (uint32_t)v, 4);
}

void gguf_item_f32(struct gguf_out *w, float v)
{
    add_f32(&w->meta, v);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static int tensor_bytes(const char *name, uint32_t type, uint64_t rows, uint64_t columns,
                        uint64_t *bytes, struct err *e)
{
    int items, block;
    uint64_t line = columns ? columns : rows, n = columns ? rows : 1;
    if (!gguf_type_block(type, &items, &block))
        return err_set(e, DS_ERANGE, "tensor %s: unknown type %" PRIu32, name, type);
    if (line % (uint64_t)items != 0)
        return err_set(e, DS_ERANGE,
                       "tensor %s: row length %" PRIu64 ": must be a multiple of the block size %d",
                       name, line, items);
    if (checked_mul(line / (uint64_t)items, (uint64_t)block, bytes) ||
        checked_mul(*bytes, n, bytes))
        return err_set(e, DS_ERANGE, "tensor %s: size overflows", name);
    return 0;
}

int gguf_out_tensor(struct gguf_out *w, const char *name, uint32_t type, uint64_t rows,
                    uint64_t columns, struct err *e)
{
    uint64_t bytes = 0, end;
    void *size = w->size;
    int rc = tensor_bytes(name, type, rows, columns, &bytes, e);
    if (rc < 0)
        return rc;
    if (mem_grow(&size, &w->cap, (size_t)w->tensors + 1, sizeof *w->size) < 0)
        return err_set(e, DS_EMEM, "GGUF writer: out of memory");
    w->size = size;
    if (checked_add(w->data_bytes, bytes, &end) || checked_round(end, ALIGN, &end))
        return err_set(e, DS_ERANGE, "tensor %s: file size overflows", name);
    w->size[w->tensors++] = bytes;
    add_text(&w->info, name, strlen(name));
    add_uint(&w->info, columns ? 2 : 1, 4);
    if (columns) /* the contiguous dimension comes first */
        add_uint(&w->info, columns, 8);
    add_uint(&w->info, rows, 8);
    add_uint(&w->info, type, 4);
    add_uint(&w->info, w->data_bytes, 8);
    w->data_bytes = end;
    return 0;
}

static uint64_t padding(uint64_t n)
{
    return (ALIGN - n % ALIGN) % ALIGN;
}

static uint64_t head_bytes(const struct gguf_out *w)
{
    return 24 + (uint64_t)w->meta.len + (uint64_t)w->info.len;
}

uint64_t gguf_out_bytes(const struct gguf_out *w)
{
    return head_bytes(w) + padding(head_bytes(w)) + w->data_bytes;
}

static int pad(struct gguf_out *w, uint64_t n, struct err *e)
{
    static const char zeros[ALIGN];
    return fs_new_write(&w->file, zeros, (size_t)padding(n), e);
}

/* Advances past tensors that are full or empty. */
static int pass_full(struct gguf_out *w, struct err *e)
{
    int rc = 0;
    while (rc == 0 && w->at < w->tensors && w->in_tensor == w->size[w->at]) {
        rc = pad(w, w->size[w->at], e);
        w->at++;
        w->in_tensor = 0;
    }
    return rc;
}

int gguf_out_begin(struct gguf_out *w, const char *path, struct err *e)
{
    struct str head = {0};
    str_add(&head, "GGUF");
    add_uint(&head, VERSION, 4);
    add_uint(&head, w->tensors, 8);
    add_uint(&head, w->metas, 8);
    int rc = head.failed || w->meta.failed || w->info.failed
                 ? err_set(e, DS_EMEM, "%s: out of memory for its metadata", path)
                 : fs_new_open(&w->file, path, e);
    if (rc < 0 || (rc = fs_new_write(&w->file, head.p, head.len, e)) < 0 ||
        (rc = fs_new_write(&w->file, str_text(&w->meta), w->meta.len, e)) < 0 ||
        (rc = fs_new_write(&w->file, str_text(&w->info), w->info.len, e)) < 0 ||
        (rc = pad(w, head_bytes(w), e)) < 0)
        goto out;
    rc = pass_full(w, e);
out:
    str_release(&head);
    return rc;
}

int gguf_out_data(struct gguf_out *w, const void *p, size_t n, struct err *e)
{
    BUG_IF(w->at >= w->tensors || n > w->size[w->at] - w->in_tensor,
           "GGUF: more data than tensor %" PRIu64 " holds", w->at);
    int rc = fs_new_write(&w->file, p, n, e);
    w->in_tensor += n;
    return rc < 0 ? rc : pass_full(w, e);
}

int gguf_out_end(struct gguf_out *w, struct err *e)
{
    BUG_IF(w->at != w->tensors, "GGUF: tensor %" PRIu64 " was not written", w->at);
    return fs_new_commit(&w->file, e);
}
