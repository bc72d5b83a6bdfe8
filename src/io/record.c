/* Builds and frames records: the writing half of io/record.h.  msgpack-c packs into a struct str;
 * it never unpacks. */
#include "io/record.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <msgpack.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/utf8.h"

enum { FRAME_MARK = 0xc9, FRAME_TYPE = 0x44, ITEMS_16 = 0xffff, ITEMS_32 = 0x10000 };

/* An open container: its head was packed with a place-holder count that closing fills in. */
struct open {
    size_t at;
    uint32_t items;
    int is_map;
};

struct record {
    struct str body;
    msgpack_packer pk;
    struct open open[RECORD_DEPTH];
    int depth;
    int rc; /* the first error */
    char why[96];
};

static int record_write(void *ctx, const char *p, size_t n)
{
    struct str *body = ctx;
    str_add_bytes(body, p, n);
    return body->failed ? -1 : 0;
}

struct record *record_new(void)
{
    struct record *r = mem_alloc(1, sizeof *r);
    if (r)
        msgpack_packer_init(&r->pk, &r->body, record_write);
    return r;
}

void record_free(struct record *r)
{
    if (!r)
        return;
    str_release(&r->body);
    mem_free(r);
}

static void fail(struct record *r, int rc, const char *why, const char *key)
{
    if (r->rc < 0)
        return;
    r->rc = rc;
    snprintf(r->why, sizeof r->why, "%s%s%.40s", why, key ? " at key " : "", key ? key : "");
}

/* ---- items ---------------------------------------------------------------------------------- */

/* msgpack strings are UTF-8; other bytes are packed as bin, which every reader takes too. */
static void pack_text(struct record *r, const char *p, size_t n)
{
    if (utf8_valid(p, n) == n) {
        msgpack_pack_str(&r->pk, n);
        msgpack_pack_str_body(&r->pk, p, n);
    } else {
        msgpack_pack_bin(&r->pk, n);
        msgpack_pack_bin_body(&r->pk, p, n);
    }
}

/* Counts one item of the open container and packs its key; 0 when the record is already lost. */
static int item(struct record *r, const char *key)
{
    if (r->rc < 0)
        return 0;
    if (r->depth == 0) {
        fail(r, DS_ERANGE, "item outside of record_begin and record_end", key);
        return 0;
    }
    struct open *o = &r->open[r->depth - 1];
    if (o->is_map != (key != NULL)) {
        fail(r, DS_ERANGE, key ? "key inside an array" : "item without key in a map", key);
        return 0;
    }
    if (r->body.len > RECORD_MAX || (o->is_map && o->items >= ITEMS_16)) {
        fail(r, DS_ERANGE, r->body.len > RECORD_MAX ? "record over 16 MiB" : "too many keys", key);
        return 0;
    }
    o->items++;
    if (key)
        pack_text(r, key, strlen(key));
    return 1;
}

static void open_container(struct record *r, int is_map)
{
    if (r->depth == RECORD_DEPTH) {
        fail(r, DS_ERANGE, "containers nested too deeply", NULL);
        return;
    }
    r->open[r->depth++] = (struct open){.at = r->body.len, .is_map = is_map};
    if (is_map)
        msgpack_pack_map(&r->pk, ITEMS_16);
    else
        msgpack_pack_array(&r->pk, ITEMS_32);
}

static void put_be(unsigned char *p, uint64_t x, int bytes)
{
    for (int i = bytes - 1; i >= 0; i--, x >>= 8)
        p[i] = (unsigned char)x;
}

static void close_container(struct record *r)
{
    struct open *o = &r->open[--r->depth];
    unsigned char count[4];
    int bytes = o->is_map ? 2 : 4;
    put_be(count, o->items, bytes);
    if (!r->body.failed)
        memcpy(r->body.p + o->at + 1, count, (size_t)bytes);
}

void record_begin(struct record *r, const char *kind, int64_t step, double time)
{
    str_reset(&r->body);
    r->body.failed = 0;
    r->depth = 0;
    r->rc = 0;
    open_container(r, 1);
    record_str(r, "kind", kind);
    record_int(r, "step", step);
    record_num(r, "time", time);
}

void record_int(struct record *r, const char *key, int64_t v)
{
    if (item(r, key))
        msgpack_pack_int64(&r->pk, v);
}

void record_num(struct record *r, const char *key, double v)
{
    if (item(r, key))
        msgpack_pack_double(&r->pk, v);
}

void record_bool(struct record *r, const char *key, int v)
{
    if (!item(r, key))
        return;
    if (v)
        msgpack_pack_true(&r->pk);
    else
        msgpack_pack_false(&r->pk);
}

void record_str(struct record *r, const char *key, const char *v)
{
    if (!item(r, key))
        return;
    if (v)
        pack_text(r, v, strlen(v));
    else
        msgpack_pack_nil(&r->pk);
}

/* Checks a size against the cap before anything is packed. */
static int item_of(struct record *r, const char *key, size_t n, size_t size)
{
    if (r->rc == 0 && n > RECORD_MAX / size) {
        fail(r, DS_ERANGE, "record over 16 MiB", key);
        return 0;
    }
    return item(r, key);
}

void record_bytes(struct record *r, const char *key, const void *p, size_t n)
{
    if (!item_of(r, key, n, 1))
        return;
    msgpack_pack_bin(&r->pk, n);
    msgpack_pack_bin_body(&r->pk, n ? p : "", n);
}

void record_f32s(struct record *r, const char *key, const float *v, size_t n)
{
    unsigned char le[256][4];
    if (!item_of(r, key, n, 4))
        return;
    msgpack_pack_bin(&r->pk, 4 * n);
    for (size_t i = 0; i < n;) {
        size_t m = n - i < 256 ? n - i : 256;
        for (size_t j = 0; j < m; j++) {
            uint32_t bits;
            memcpy(&bits, &v[i + j], sizeof bits);
            le[j][0] = (unsigned char)bits;
            le[j][1] = (unsigned char)(bits >> 8);
            le[j][2] = (unsigned char)(bits >> 16);
            le[j][3] = (unsigned char)(bits >> 24);
        }
        msgpack_pack_bin_body(&r->pk, le, 4 * m);
        i += m;
    }
}

void record_i32s(struct record *r, const char *key, const int32_t *v, size_t n)
{
    if (!item_of(r, key, n, 1))
        return;
    msgpack_pack_array(&r->pk, n);
    for (size_t i = 0; i < n; i++)
        msgpack_pack_int32(&r->pk, v[i]);
}

void record_nums(struct record *r, const char *key, const double *v, size_t n)
{
    if (!item_of(r, key, n, 9))
        return;
    msgpack_pack_array(&r->pk, n);
    for (size_t i = 0; i < n; i++)
        msgpack_pack_double(&r->pk, v[i]);
}

void record_pieces(struct record *r, const char *key, const char *const *p, const size_t *len,
                   size_t n)
{
    if (!item_of(r, key, n, 2))
        return;
    msgpack_pack_array(&r->pk, n);
    for (size_t i = 0; i < n && r->body.len <= RECORD_MAX; i++) {
        msgpack_pack_bin(&r->pk, len[i]);
        msgpack_pack_bin_body(&r->pk, len[i] ? p[i] : "", len[i]);
    }
}

void record_map(struct record *r, const char *key)
{
    if (item(r, key))
        open_container(r, 1);
}

void record_array(struct record *r, const char *key)
{
    if (item(r, key))
        open_container(r, 0);
}

void record_close(struct record *r)
{
    if (r->rc < 0)
        return;
    if (r->depth < 2)
        fail(r, DS_ERANGE, "record_close without a container", NULL);
    else
        close_container(r);
}

/* ---- frame ---------------------------------------------------------------------------------- */

static void add_frame(struct str *out, uint64_t seq, const void *body, size_t n)
{
    unsigned char head[RECORD_OVERHEAD];
    head[0] = FRAME_MARK;
    put_be(head + 1, RECORD_OVERHEAD - RECORD_HEAD + n, 4);
    head[5] = FRAME_TYPE;
    put_be(head + 10, seq, 8);
    put_be(head + 6, hash_crc32c(hash_crc32c(0, head + 10, 8), body, n), 4);
    str_add_bytes(out, head, sizeof head);
    str_add_bytes(out, body, n);
}

void record_copy(struct str *out, uint64_t seq, struct value body)
{
    add_frame(out, seq, body.p, (size_t)(body.end - body.p));
}

void record_no_memory(struct record *r)
{
    r->body.failed = 1;
}

int record_end(struct record *r, uint64_t seq, struct str *out, struct err *e)
{
    if (r->rc == 0 && r->depth != 1)
        fail(r, DS_ERANGE, "container left open", NULL);
    if (r->rc == 0)
        close_container(r);
    r->depth = 0;
    if (r->body.failed)
        return err_set(e, DS_EMEM, "record: out of memory");
    if (r->rc == 0 && r->body.len > RECORD_MAX - RECORD_OVERHEAD)
        fail(r, DS_ERANGE, "record over 16 MiB", NULL);
    if (r->rc < 0)
        return err_set(e, r->rc, "record: %s", r->why);
    size_t before = out->len;
    add_frame(out, seq, r->body.p, r->body.len);
    if (out->failed) {
        out->len = before;
        return err_set(e, DS_EMEM, "record: out of memory for %zu bytes", r->body.len);
    }
    return 0;
}

static uint64_t get_be(const unsigned char *p, int bytes)
{
    uint64_t x = 0;
    for (int i = 0; i < bytes; i++)
        x = x << 8 | p[i];
    return x;
}

int64_t record_length(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    if (n > 0 && p[0] != FRAME_MARK)
        return -1;
    if (n > 1 && p[1] > RECORD_MAX >> 24)
        return -1;
    if (n < RECORD_HEAD)
        return 0;
    uint64_t length = get_be(p + 1, 4);
    if (p[5] != FRAME_TYPE || length <= RECORD_OVERHEAD - RECORD_HEAD || length > RECORD_MAX)
        return -1;
    return (int64_t)(RECORD_HEAD + length);
}

int64_t record_parse(const void *p, size_t n, uint64_t *seq, struct value *body, struct err *e)
{
    const unsigned char *b = p;
    struct value v;
    size_t used;
    int64_t whole = record_length(b, n);
    if (whole < 0)
        return err_set(e, DS_EFORMAT, "not a record frame");
    if (whole == 0 || (uint64_t)whole > n)
        return 0;
    size_t size = (size_t)whole - RECORD_OVERHEAD;
    if (hash_crc32c(0, b + 10, 8 + size) != get_be(b + 6, 4))
        return err_set(e, DS_EFORMAT, "record of %" PRId64 " bytes: checksum mismatch", whole);
    if (value_check(b + RECORD_OVERHEAD, size, &v, &used, e) < 0)
        return err_add(e, DS_EFORMAT, "record body");
    if (used != size || value_kind(v) != VALUE_MAP)
        return err_set(e, DS_EFORMAT, "record body must be a single map");
    if (seq)
        *seq = get_be(b + 10, 8);
    if (body)
        *body = v;
    return whole;
}

size_t record_scan(const void *p, size_t n, size_t from, size_t *pending)
{
    const unsigned char *b = p;
    /* Heads can be forged, so that checksums of overlapping frames cost n^2: past the budget only
     * short frames are tried. */
    uint64_t budget = (UINT64_C(64) << 20) + 4 * (uint64_t)n;
    *pending = n;
    for (size_t i = from; i < n; i++) {
        const unsigned char *mark = memchr(b + i, FRAME_MARK, n - i);
        if (!mark)
            return n;
        i = (size_t)(mark - b);
        int64_t whole = record_length(mark, n - i);
        if (whole < 0 || (whole > 512 && budget < (uint64_t)whole))
            continue;
        if (whole == 0 || (uint64_t)whole > n - i) {
            if (*pending == n)
                *pending = i;
            continue;
        }
        budget -= budget < (uint64_t)whole ? budget : (uint64_t)whole;
        if (record_parse(mark, n - i, NULL, NULL, NULL) > 0)
            return i;
    }
    return n;
}

size_t record_resync(const void *p, size_t n, size_t from)
{
    size_t pending;
    return record_scan(p, n, from, &pending);
}
