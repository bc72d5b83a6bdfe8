/* What a server of control.sock, or anything else behind that socket, sends to a client: first
 * byte: the size of the pieces. The answer is the first line; without one the connection's end
 * is an error in one line. */
#include "training/request.c"

#include "kit.h"

static struct job_request *new_request(int fd)
{
    struct job_request *r = mem_alloc(1, sizeof *r);
    need(r != NULL && fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    *r = (struct job_request){
        .fd = fd, .is_connected = 1, .dir = "runs/x", .timeout_s = 60, .end = clock_mono() + 60};
    return r;
}

static void check(const struct str *answer, const uint8_t *p, size_t n)
{
    const uint8_t *end = memchr(p, '\n', n);
    need(end != NULL && answer->len == (size_t)(end - p) &&
         memcmp(str_text(answer), p, answer->len) == 0);
    need(job_pending(str_text(answer)) >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str answer = {0};
    struct err e = {0};
    int pair[2], rc = 0;
    if (size == 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        return 0;
    struct job_request *r = new_request(pair[0]);
    size_t piece = data[0] ? data[0] : 4096;
    for (size_t at = 1; rc == 0 && at < size; at += piece) {
        size_t n = at + piece < size ? piece : size - at;
        need(send(pair[1], data + at, n, MSG_NOSIGNAL) == (ssize_t)n);
        for (int k = 0; rc == 0 && k <= 4096 / LINE_MAX_BYTES + 1; k++)
            rc = job_request_poll(r, &answer, &e);
    }
    close(pair[1]);
    for (size_t k = 0; rc == 0; k++) {
        rc = job_request_poll(r, &answer, &e);
        need(k <= size);
    }
    need(rc == 1 || !memchr(data + 1, '\n', size - 1));
    if (rc == 1)
        check(&answer, data + 1, size - 1);
    need_line(rc, &e);
    job_request_close(r);
    str_release(&answer);
    return 0;
}
