/* What an agent on another machine sends.  First byte: bit 0 whether the rest is the stream itself or bodies of records,
 * which get frames with their checksums; bit 1 whether it has greeted already; bit 2 whether the first run is followed.
 * Names never become paths as they are, mirrors hold whole records, requests are JSON lines. */
#include "base/child.h"

static void close_nothing(struct child *c, int signal)
{
    (void)signal;
    *c = (struct child)CHILD_NONE;
}
#define child_close close_nothing /* there is no process */
#include "io/host.c"
#undef child_close

#include "kit.h"

enum { TALK = 7 };

static void check_mirror(const struct mirror *m)
{
    struct str log = {0};
    char path[1100];
    need(fs_join(path, sizeof path, m->dir, "log.mp", NULL) == 0);
    need(fs_read_file(&log, path, 1 << 26, NULL) == 0);
    for (size_t at = 0; at < log.len;) {
        uint64_t seq;
        struct value body;
        int64_t n = record_parse(log.p + at, log.len - at, &seq, &body, NULL);
        need(n > 0);
        at += (size_t)n;
    }
    str_release(&log);
}

static void check_requests(const struct str *out)
{
    for (size_t at = 0; at < out->len;) {
        const char *end = memchr(out->p + at, '\n', out->len - at);
        struct json *j = NULL;
        need(end != NULL);
        need(json_parse(&j, out->p + at, (size_t)(end - (out->p + at)), "request", NULL) == 0);
        need(json_str(json_get(json_root(j), "do"), NULL) != NULL);
        json_free(j);
        at = (size_t)(end - out->p) + 1;
    }
}

static void check_rows(const struct host *h)
{
    size_t n;
    const struct run_row *const *row = host_rows(h, &n);
    char label[512];
    for (size_t i = 0; i < n; i++) {
        const char *tail = row[i]->path + strlen(h->dir);
        need(host_owns(h, row[i]->path) && !strstr(tail, "/../") && row[i]->sparks >= 0 &&
             row[i]->sparks <= RUN_ROW_SPARK && row[i]->notes.tags <= RUN_TAGS_MAX);
        need(strchr(tail + 1, '/') != NULL && !strchr(strchr(tail + 1, '/') + 1, '/'));
        host_label(h, row[i]->path, label, sizeof label);
        run_row_age(row[i], 1e9);
    }
    const char *only = host_only(h);
    need(!only || host_owns(h, only));
}

/* Once there is a row: what a workbench does with it. */
static void follow(struct host *h, int64_t *id)
{
    struct err e = {0};
    const char *path = h->rows ? h->row[0]->path : NULL;
    if (!path || h->mirrors > 0 || h->ssh.pid <= 0)
        return;
    h->far = FAR_PYTHON; /* no socket beside the mirror */
    need(host_follow(h, path, &e) == 0);
    host_want_probes(h, path, 1);
    host_want_detail(h, path, 10, 20);
    *id = host_command(h, path, "set train.lr 1e-4", &e);
    need_line((int)*id, &e);
}

static void frame(struct host *h, const uint8_t *data, size_t size)
{
    struct value body;
    size_t used, at = 0;
    for (uint64_t seq = 1; at < size && value_check(data + at, size - at, &body, &used, NULL) == 0;
         at += used)
        record_copy(&h->in, seq++, body);
    str_add_bytes(&h->in, data + at, size - at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct host *h = mem_alloc(1, sizeof *h);
    struct str text = {0};
    struct err e = {0};
    int64_t id = 0;
    int pair[2];
    if (!h || size == 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        return mem_free(h), 0;
    need(fcntl(pair[0], F_SETFL, O_NONBLOCK) == 0 && parse_target(h, "me@box:runs", &e) == 0);
    h->ssh = (struct child){.pid = 1, .in = -1, .out = -1, .err = -1};
    h->heard = h->latency_s = h->skew_s = (double)NAN;
    h->wait_s = first_wait_s;
    h->is_greeted = (data[0] & 2) != 0;
    h->state = h->is_greeted ? HOST_UP : HOST_CONNECTING;
    h->given = NOISE_MAX + 1;
    h->models.talk[0] = (struct host_talk){.id = TALK, .fd = pair[0]};
    str_copy(h->dir, sizeof h->dir, fuzz_path("host"));
    need(fs_mkdirs(h->dir, &e) == 0);
    if (data[0] & 1)
        frame(h, data + 1, size - 1);
    else
        str_add_bytes(&h->in, data + 1, size - 1);
    struct str all = h->in;
    h->in = (struct str){0};
    size_t pieces = data[0] & 4 ? 8 : 1;
    for (size_t i = 0; i < pieces && h->ssh.pid > 0; i++) {
        size_t from = all.len * i / pieces, to = all.len * (i + 1) / pieces;
        str_add_bytes(&h->in, str_text(&all) + from, to - from);
        take_records(h);
        if (data[0] & 4)
            follow(h, &id);
    }
    if (h->ssh.pid > 0) {
        host_models_poll(&h->models, &h->out);
        ask_details(h, clock_mono() + 1);
        measure_latency(h);
        acknowledge(h);
        check_requests(&h->out);
    }
    if (id > 0)
        need_line(host_answer(h, id, &text, &e), &e);
    if (h->mirrors > 0)
        check_mirror(&h->mirror[0]);
    check_rows(h);
    if (!h->is_silent)
        fall_silent(h);
    str_release(&all);
    str_release(&text);
    host_close(h);
    close(pair[1]);
    return 0;
}
