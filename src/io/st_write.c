/* Writes safetensors files. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/utf8.h"
#include "io/safetensors.h"
#include "io/st_dtype.h"

static int tensor_bytes(const struct st_out *t, uint64_t *bytes, struct err *e)
{
    uint64_t n = 1;
    if (t->dtype >= ST_F8_E4M3)
        return err_set(e, DS_ERANGE, "tensor %s: unsupported dtype", t->name);
    if (t->rank < 0 || t->rank > ST_RANK_MAX)
        return err_set(e, DS_ERANGE, "tensor %s: unsupported rank %d", t->name, t->rank);
    for (int i = 0; i < t->rank; i++)
        if (checked_mul(n, t->shape[i], &n))
            return err_set(e, DS_ERANGE, "tensor %s: shape overflows", t->name);
    uint64_t size = (uint64_t)st_dtype_bits(st_dtype_name(t->dtype)) / 8;
    if (checked_mul(n, size, bytes))
        return err_set(e, DS_ERANGE, "tensor %s: size overflows", t->name);
    return 0;
}

static void add_meta(struct str *h, const char *const *pairs, size_t n)
{
    if (n == 0)
        return;
    str_add(h, "\"__metadata__\":{");
    for (size_t i = 0; i < n; i++) {
        if (i)
            str_add_char(h, ',');
        str_add_json(h, pairs[2 * i], strlen(pairs[2 * i]));
        str_add_char(h, ':');
        str_add_json(h, pairs[2 * i + 1], strlen(pairs[2 * i + 1]));
    }
    str_add_char(h, '}');
}

static void add_tensor(struct str *h, const struct st_out *t, uint64_t begin, uint64_t end)
{
    if (h->len > 1)
        str_add_char(h, ',');
    str_add_json(h, t->name, strlen(t->name));
    str_addf(h, ":{\"dtype\":\"%s\",\"shape\":[", st_dtype_name(t->dtype));
    for (int i = 0; i < t->rank; i++)
        str_addf(h, "%s%" PRIu64, i ? "," : "", t->shape[i]);
    str_addf(h, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin, end);
}

/* The header with its 8-byte length, padded with spaces so that the data starts aligned. */
static int build_header(struct str *h, const struct st_out *t, size_t n, const char *const *meta,
                        size_t n_meta, struct err *e)
{
    uint64_t at = 0, bytes = 0, end;
    str_add_char(h, '{');
    add_meta(h, meta, n_meta);
    for (size_t i = 0; i < n; i++, at = end) {
        int rc = tensor_bytes(&t[i], &bytes, e);
        if (rc < 0)
            return rc;
        if (checked_add(at, bytes, &end))
            return err_set(e, DS_ERANGE, "tensor %s: file size overflows", t[i].name);
        if (utf8_valid(t[i].name, strlen(t[i].name)) != strlen(t[i].name))
            return err_set(e, DS_ERANGE, "tensor name %s: must be UTF-8", t[i].name);
        add_tensor(h, &t[i], at, end);
    }
    str_add_char(h, '}');
    while (h->len % 8 && !h->failed)
        str_add_char(h, ' ');
    return h->failed ? err_set(e, DS_EMEM, "out of memory for the header") : 0;
}

static int host_is_little(void)
{
    const uint16_t one = 1;
    unsigned char low;
    memcpy(&low, &one, 1);
    return low == 1;
}

/* Big-endian hosts byte-swap every item. */
static int write_items(int fd, const unsigned char *p, uint64_t bytes, size_t size,
                       const char *path, struct err *e)
{
    unsigned char buf[4096];
    int rc = 0;
    if (host_is_little() || size == 1)
        return fs_write_all(fd, p, (size_t)bytes, path, e);
    for (uint64_t at = 0; at < bytes && rc == 0;) {
        size_t n = bytes - at < sizeof buf ? (size_t)(bytes - at) : sizeof buf;
        for (size_t i = 0; i < n; i++)
            buf[i] = p[at + i - i % size + (size - 1 - i % size)];
        rc = fs_write_all(fd, buf, n, path, e);
        at += n;
    }
    return rc;
}

/* Data of one tensor, whole or row by row. */
static int write_data(int fd, const struct st_out *t, const char *path, struct err *e)
{
    uint64_t bytes = 0, rows = t->rank > 1 ? t->shape[0] : 1;
    size_t size = (size_t)st_dtype_bits(st_dtype_name(t->dtype)) / 8;
    int rc = tensor_bytes(t, &bytes, e);
    if (rc < 0 || bytes == 0)
        return rc;
    if (!t->row)
        return write_items(fd, t->data, bytes, size, path, e);
    void *row = mem_alloc((size_t)(bytes / rows), 1);
    if (!row)
        return err_set(e, DS_EMEM, "out of memory for a row of %s", t->name);
    for (uint64_t i = 0; i < rows && rc == 0; i++) {
        t->row(t->data, i, row);
        rc = write_items(fd, row, bytes / rows, size, path, e);
    }
    mem_free(row);
    return rc;
}

static int write_file(int fd, const struct str *h, const struct st_out *t, size_t n,
                      const char *path, struct err *e)
{
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)h->len >> 8 * i);
    int rc = fs_write_all(fd, length, sizeof length, path, e);
    if (rc == 0)
        rc = fs_write_all(fd, h->p, h->len, path, e);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = write_data(fd, &t[i], path, e);
    return rc;
}

/* Checked before anything is written; if the disk fills up later, the failing write reports it. */
static int check_room(const char *path, const struct st_out *t, size_t n, size_t header,
                      struct err *e)
{
    char dir[4096];
    uint64_t need = 8 + header, bytes = 0;
    for (size_t i = 0; i < n; i++) {
        int rc = tensor_bytes(&t[i], &bytes, e);
        if (rc < 0)
            return rc;
        need += bytes; /* the header's offsets are these sums, checked */
    }
    char *slash = str_copy(dir, sizeof dir, path) ? NULL : strrchr(dir, '/');
    if (slash)
        slash[slash == dir] = '\0';
    uint64_t left = fs_free_bytes(slash ? dir : ".");
    if (left == 0 || need <= left)
        return 0;
    return err_set(e, DS_EIO, "%s needs %" PRIu64 " bytes, but the disk has only %" PRIu64 " free",
                   path, need, left);
}

int st_write(const char *path, const struct st_out *t, size_t n, const char *const *meta_pairs,
             size_t n_meta, struct err *e)
{
    struct str h = {0};
    struct fs_new f = {.fd = -1};
    int rc = build_header(&h, t, n, meta_pairs, n_meta, e);
    if (rc < 0) {
        rc = err_add(e, rc, "%s", path);
        goto out;
    }
    rc = check_room(path, t, n, h.len, e);
    if (rc == 0) /* never in place: a reader may have the old file mapped */
        rc = fs_new_open(&f, path, e);
    if (rc == 0)
        rc = write_file(f.fd, &h, t, n, path, e);
    if (rc == 0)
        rc = fs_new_commit(&f, e);
out:
    fs_new_abort(&f);
    str_release(&h);
    return rc;
}
