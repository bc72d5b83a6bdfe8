/* Sparse files: finds data without reading gigabytes of zeros. */
#define _GNU_SOURCE /* SEEK_DATA */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"

uint64_t fs_next_data(int fd, uint64_t from, uint64_t size)
{
    off_t at = lseek(fd, (off_t)from, SEEK_DATA);
    if (at >= 0)
        return (uint64_t)at < size ? (uint64_t)at : size;
    return errno == ENXIO && from < size ? size : from;
}

static size_t nonzero_end(const char *p, size_t n)
{
    while (n > 0 && p[n - 1] == 0)
        n--;
    return n;
}

int fs_nonzero_end(int fd, uint64_t from, uint64_t size, uint64_t read_max, uint64_t *end,
                   const char *path, struct err *e)
{
    enum { STEP = 1 << 16 };
    char buf[STEP];
    uint64_t hi = size, done = 0, step = STEP;
    while (hi > from && (read_max == 0 || done < read_max)) {
        uint64_t lo = hi - from < step ? from : hi - step;
        if (fs_next_data(fd, lo, hi) == hi) { /* only a hole: double the step */
            hi = lo;
            step *= 2;
            continue;
        }
        if (step > STEP) {
            step = STEP;
            continue;
        }
        for (size_t n = 0, got; n < hi - lo; n += got, done += got) {
            if (lseek(fd, (off_t)(lo + n), SEEK_SET) < 0)
                return err_errno(e, "seek in %s", path);
            int rc = fs_read_some(fd, buf + n, (size_t)(hi - lo) - n, &got, path, e);
            if (rc < 0)
                return rc;
            if (got == 0) { /* truncated meanwhile */
                memset(buf + n, 0, (size_t)(hi - lo) - n);
                break;
            }
        }
        size_t n = nonzero_end(buf, (size_t)(hi - lo));
        if (n > 0) {
            hi = lo + n;
            break;
        }
        hi = lo;
    }
    *end = hi;
    return 0;
}
