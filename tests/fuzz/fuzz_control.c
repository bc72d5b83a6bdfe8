/* Arbitrary bytes from a client of control.sock, in pieces whose size is the first byte; the second says what the
 * trainer does.  Every line gets one answer of one line: ok, confirm or error, or that as a JSON object. */
#include "training/control.c"
#include "training/job.h"

#include "kit.h"

static int mode;

static int check(void *ctx, const char *line, struct str *answer)
{
    (void)ctx;
    if (mode & 1 && strncmp(line, "set ", 4) == 0)
        str_addf(answer, "confirm %s; to set it: %s yes", line, line);
    else if (mode & 2 || line[0] == '\0')
        str_addf(answer, "error unknown command %s", line);
    return answer->len > 0;
}

static void handle(void *ctx, const char *line, struct str *answer)
{
    (void)ctx;
    need(strlen(line) < LINE_MAX_BYTES && !strchr(line, '\n'));
    str_addf(answer, "ok %s", line);
}

static void applied(void *ctx, int64_t id, const char *line, const char *answer)
{
    (void)ctx;
    need(id > 0 && strlen(line) < LINE_MAX_BYTES && strlen(answer) < LINE_MAX_BYTES);
}

static void check_answer(const char *line)
{
    struct json *j = NULL;
    if (line[0] == '{') {
        need(json_parse(&j, line, strlen(line), "answer", NULL) == 0);
        int ok = json_bool(json_get(json_root(j), "ok"), 9);
        need(ok != 9 && json_str(json_get(json_root(j), ok ? "text" : "error"), NULL) != NULL);
        json_free(j);
        return;
    }
    need(strncmp(line, "ok", 2) == 0 || strncmp(line, "confirm ", 8) == 0 ||
         strncmp(line, "error ", 6) == 0);
    need(job_pending(line) >= 0);
}

/* Counts the answers that have come. */
static size_t answers(int fd, struct str *got)
{
    char chunk[4096];
    size_t lines = 0, at = 0;
    for (ssize_t n; (n = recv(fd, chunk, sizeof chunk, MSG_DONTWAIT)) > 0;)
        str_add_bytes(got, chunk, (size_t)n);
    for (char *end; at < got->len && (end = memchr(got->p + at, '\n', got->len - at)) != NULL;
         at = (size_t)(end - got->p) + 1, lines++) {
        *end = '\0';
        need(memchr(got->p + at, '\0', (size_t)(end - got->p) - at) == NULL);
        check_answer(got->p + at);
    }
    need(at == got->len);
    str_reset(got);
    return lines;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct control_calls calls = {.handle = handle, .applied = applied};
    struct control *c = mem_alloc(1, sizeof *c);
    struct str got = {0};
    size_t lines = 0, said = 0;
    int pair[2];
    if (size < 2 || !c || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        return mem_free(c), 0;
    need(set_nonblocking(pair[0]) == 0);
    mode = data[1];
    c->fd = c->wake[0] = c->wake[1] = -1;
    c->check = check;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->arrived, NULL);
    control_set_status(c, "ok step 3 of 10, loss 4.2, lr 0.001, running");
    c->client[c->clients++] = (struct client){.fd = pair[0]};
    size_t piece = data[0] ? data[0] : 256;
    for (size_t at = 2; at < size && c->clients > 0; at += piece) {
        size_t n = at + piece < size ? piece : size - at;
        while (c->clients > 0 && send(pair[1], data + at, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
            need(errno == EAGAIN); /* nothing is read while a command waits for the trainer */
            control_poll(c, 0, &calls);
            said += answers(pair[1], &got);
        }
        for (size_t i = 0; i < n; i++)
            lines += data[at + i] == '\n';
        listen_once(c, 0);
        if (mode & 4)
            control_poll(c, 0, &calls);
        said += answers(pair[1], &got);
    }
    for (int i = 0; i < 600 && c->clients > 0 && said < lines; i++) {
        control_poll(c, 0, &calls);
        said += answers(pair[1], &got);
    }
    need(c->clients > 0 ? said == lines
                        : said <= lines + 1); /* a line too long is told, then dropped */
    str_release(&got);
    control_close(c);
    close(pair[1]);
    return 0;
}
