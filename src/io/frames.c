/* Finds and follows frames from any offset of a log, reading as little of it as that takes. */
#include "io/frames.h"

#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"

/* The first record carries the configuration, an evaluation its maps. */
enum { LARGE_MAX = 1 << 20 };

const unsigned char *frames_peek(struct frames *f, uint64_t off, size_t n, size_t *got)
{
    *got = 0;
    if (off >= f->size)
        return f->buf;
    if (n > f->size - off)
        n = (size_t)(f->size - off);
    if (off < f->at || off + n > f->at + f->len) {
        size_t ask = n > FRAMES_BLOCK ? n : FRAMES_BLOCK;
        void *p = f->buf;
        if (mem_grow(&p, &f->cap, ask, 1) < 0) {
            f->no_memory = 1;
            return f->buf;
        }
        f->buf = p;
        ssize_t r = fs_pread(f->fd, f->buf, ask, off);
        f->at = off;
        f->len = r > 0 ? (size_t)r : 0;
        f->bytes_read += f->len;
        f->reads++;
    }
    *got = f->at + f->len > off ? (size_t)(f->at + f->len - off) : 0;
    return f->buf + (off - f->at);
}

/* The kind, step and time at the beginning of a body that is not read whole. */
static struct value brief_of(struct frames *f, const unsigned char *p, size_t n)
{
    static const char *const wanted[] = {"kind", "step", "time"};
    struct value key, item, out = {0};
    size_t at = n == 0 ? 0 : p[0] >> 4 == 8 ? 1 : p[0] == 0xde ? 3 : p[0] == 0xdf ? 5 : n;
    size_t used, fill = 1, count = 0;
    while (at < n && count < DS_LEN(wanted) &&
           value_check(p + at, n - at, &key, &used, NULL) >= 0) {
        size_t start = at, k = 0;
        at += used;
        if (at >= n || value_check(p + at, n - at, &item, &used, NULL) < 0)
            break;
        at += used;
        while (k < DS_LEN(wanted) && !value_is(key, wanted[k]))
            k++;
        if (k == DS_LEN(wanted) || fill + (at - start) > sizeof f->brief)
            continue;
        memcpy(f->brief + fill, p + start, at - start);
        fill += at - start;
        count++;
    }
    f->brief[0] = (unsigned char)(0x80 | count);
    if (value_check(f->brief, fill, &out, &used, NULL) < 0)
        out = (struct value){0};
    return out;
}

int64_t frames_at(struct frames *f, uint64_t off, struct value *body)
{
    size_t got, want;
    const unsigned char *p = frames_peek(f, off, RECORD_OVERHEAD + sizeof f->brief, &got);
    int64_t whole = got ? record_length(p, got) : 0;
    if (whole <= 0)
        return whole;
    if ((uint64_t)whole > f->size - off)
        return 0;
    want = (size_t)whole;
    if (want > (off == 0 ? (size_t)LARGE_MAX : (size_t)FRAMES_WHOLE)) {
        size_t n =
            got < RECORD_OVERHEAD + sizeof f->brief ? got : RECORD_OVERHEAD + sizeof f->brief;
        struct value brief =
            brief_of(f, p + RECORD_OVERHEAD, n > RECORD_OVERHEAD ? n - RECORD_OVERHEAD : 0);
        if (want > LARGE_MAX || !value_is(value_get(brief, "kind"), "eval")) {
            *body = brief;
            return whole;
        }
    }
    p = frames_peek(f, off, want, &got);
    if (got < want)
        return 0;
    return record_parse(p, want, NULL, body, NULL) > 0 ? whole : -1;
}

/* Is there a frame at `off`?  A large one is believed when another begins where it ends. */
static int is_frame(struct frames *f, uint64_t off)
{
    struct value body;
    size_t got;
    int64_t whole = frames_at(f, off, &body);
    if (whole <= 0)
        return 0;
    if (whole <= FRAMES_WHOLE || off + (uint64_t)whole == f->size)
        return 1;
    const unsigned char *p = frames_peek(f, off + (uint64_t)whole, RECORD_HEAD, &got);
    return got >= RECORD_HEAD && record_length(p, got) > 0;
}

uint64_t frames_sync(struct frames *f, uint64_t from, uint64_t to)
{
    uint64_t limit = to - from > FRAMES_SYNC ? from + FRAMES_SYNC : to;
    while (from < limit) {
        size_t got, n;
        const unsigned char *p = frames_peek(f, from, 1, &got);
        if (got == 0)
            break;
        n = got < limit - from ? got : (size_t)(limit - from);
        const unsigned char *mark = memchr(p, 0xC9, n);
        if (!mark) {
            from += n;
            continue;
        }
        from += (uint64_t)(mark - p);
        if (is_frame(f, from))
            return from;
        from++;
    }
    return to;
}

void frames_release(struct frames *f)
{
    mem_free(f->buf);
}
