/* A log made of pieces: [0] a body, which gets a frame with its checksum; [1] other bytes; [2] the file loses bytes; [3] a
 * byte changes.  Each piece is its kind, its length in two bytes, and its bytes.  Every whole record is read, in order,
 * whatever is between them, and a writer continues after the last. */
#include "base/hash.h"
#include "base/mem.h"
#include "io/record.h"
#include "io/runlog.h"

#include "kit.h"

enum { WHOLE_MAX = 4096 };

struct log {
    struct str bytes, frame;
    size_t from[WHOLE_MAX], to[WHOLE_MAX]; /* of whole records */
    size_t whole;
    uint64_t seq;
};

static void put_be(char *p, uint64_t x, int bytes)
{
    for (int i = bytes - 1; i >= 0; i--, x >>= 8)
        p[i] = (char)x;
}

static void add_frame(struct log *l, const uint8_t *p, size_t n)
{
    struct value v;
    size_t used = 0;
    char head[RECORD_OVERHEAD] = {(char)0xc9};
    int is_whole =
        value_check(p, n, &v, &used, NULL) == 0 && used == n && value_kind(v) == VALUE_MAP;
    put_be(head + 10, ++l->seq, 8);
    str_reset(&l->frame);
    str_add_bytes(&l->frame, head + 10, 8);
    str_add_bytes(&l->frame, p, n);
    put_be(head + 1, n + 12, 4);
    head[5] = 0x44;
    put_be(head + 6, hash_crc32c(0, l->frame.p, l->frame.len), 4);
    if (is_whole && l->whole < WHOLE_MAX) {
        l->from[l->whole] = l->bytes.len;
        l->to[l->whole++] = l->bytes.len + RECORD_OVERHEAD + n;
    }
    str_add_bytes(&l->bytes, head, 10);
    str_add_bytes(&l->bytes, l->frame.p, l->frame.len);
}

/* The records that bytes [from, to) were part of are no longer whole. */
static void damage(struct log *l, size_t from, size_t to)
{
    size_t kept = 0;
    for (size_t i = 0; i < l->whole; i++) {
        if (l->from[i] < to && l->to[i] > from)
            continue;
        l->from[kept] = l->from[i];
        l->to[kept++] = l->to[i];
    }
    l->whole = kept;
}

static void build(struct log *l, const uint8_t *p, size_t n)
{
    while (n >= 3) {
        size_t len = (size_t)p[1] << 8 | p[2], kind = p[0] % 4;
        len = len < n - 3 ? len : n - 3;
        if (kind == 0)
            add_frame(l, p + 3, len);
        else if (kind == 1)
            str_add_bytes(&l->bytes, p + 3, len);
        size_t lost = kind == 2 && len < l->bytes.len ? len : 0;
        damage(l, l->bytes.len - lost, l->bytes.len);
        l->bytes.len -= lost;
        if (kind == 3 && len > 0 && len <= l->bytes.len) {
            l->bytes.p[l->bytes.len - len] ^= 0x20;
            damage(l, l->bytes.len - len, l->bytes.len - len + 1);
        }
        size_t used = kind < 2 ? len : 0;
        p += 3 + used;
        n -= 3 + used;
    }
}

/* Reads the log; the expected records are found among those that come. */
static size_t read_log(const char *path, const struct log *l, struct value *last)
{
    struct runlog_reader *r = NULL;
    struct runlog_entry x;
    struct err e = {0};
    size_t next = 0, records = 0;
    int rc = runlog_reader_open(&r, path, &e);
    need_line(rc, &e);
    if (rc < 0)
        return 0;
    while ((rc = runlog_next(r, &x, &e)) == 1) {
        if (x.is_gap)
            continue;
        records++;
        need(value_kind(x.body) == VALUE_MAP);
        if (next < l->whole && x.offset == l->from[next])
            next++;
        *last = x.body;
    }
    need_line(rc, &e);
    if (runlog_reader_format(r)) { /* another program's log, with no record before it */
        runlog_reader_close(r);
        return SIZE_MAX;
    }
    need(rc < 0 || next == l->whole);
    need(value_is(value_get(*last, "kind"), "the end") ||
         runlog_reader_position(r) <= l->bytes.len);
    runlog_reader_close(r);
    return records;
}

/* A writer takes what is whole and goes on, but not in the log of another program. */
static void go_on(const char *path, int is_other)
{
    struct runlog_writer *w = NULL;
    struct runlog_reader *reader = NULL;
    struct runlog_entry x;
    struct record *r = record_new();
    struct err e = {0};
    int rc = runlog_writer_open(&w, path, &e), is_there = 0;
    need_line(rc, &e);
    need(!is_other || rc < 0);
    if (rc == 0) {
        record_begin(r, "the end", 1, 2);
        need(runlog_append(w, r, &e) == 0);
        runlog_writer_close(w);
        need(runlog_reader_open(&reader, path, &e) == 0);
        while ((rc = runlog_next(reader, &x, &e)) == 1)
            is_there = !x.is_gap && value_is(value_get(x.body, "kind"), "the end");
        need(is_there && runlog_reader_tail(reader) == 0);
        runlog_reader_close(reader);
    }
    record_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct log *l = mem_alloc(1, sizeof *l);
    struct value last = {0};
    const char *path = fuzz_path("log.mp");
    if (!l)
        return 0;
    log_to(fuzz_hush, NULL);
    build(l, data, size);
    fuzz_put(path, str_text(&l->bytes), l->bytes.len);
    go_on(path, read_log(path, l, &last) == SIZE_MAX);
    str_release(&l->bytes);
    str_release(&l->frame);
    mem_free(l);
    return 0;
}
