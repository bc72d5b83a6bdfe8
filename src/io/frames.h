/* Frames of a log by offset, private to io.  Whole records up to FRAMES_WHOLE bytes are checked,
 * and evaluations with their maps; other large ones are stepped over by their heads and judged by
 * their first keys. */
#ifndef DS_SRC_IO_FRAMES_H
#define DS_SRC_IO_FRAMES_H

#include "io/record.h"

enum {
    FRAMES_BLOCK = 4096, /* one read; a metric record is smaller */
    FRAMES_WHOLE = 16 << 10,
    FRAMES_SYNC = 64 << 10 /* bytes searched for a frame from one offset */
};

/* Starts with fd and size, the rest zeroed. */
struct frames {
    int fd;
    uint64_t size;
    unsigned char *buf; /* holds [at, at + len) of the file */
    size_t len, cap;
    uint64_t at;
    unsigned char brief[256];
    uint64_t bytes_read, reads;
    int no_memory;
};
/* Bytes at `off`, at least min(n, what the file has); *got says how many.  Valid until the next
 * call. */
const unsigned char *frames_peek(struct frames *f, uint64_t off, size_t n, size_t *got);
/* The frame at `off`: its length and body, of a large one only kind, step and time (valid until the
 * next call); 0 at the end of what has been written, negative without a valid frame. */
int64_t frames_at(struct frames *f, uint64_t off, struct value *body);
/* Offset of the first frame that begins in [from, to), `to` when none is found within FRAMES_SYNC
 * bytes. */
uint64_t frames_sync(struct frames *f, uint64_t from, uint64_t to);
void frames_release(struct frames *f);

#endif
