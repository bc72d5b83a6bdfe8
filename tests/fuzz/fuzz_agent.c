/* Arbitrary requests to an agent that may only read, over a folder with two runs: whole records come back.  Requests
 * that would start a process (of a model) or read other folders are left out. */
#define DEPTHSCOPE_VERSION "fuzz"
#include "cli/agent/agent.c"

#include "cli/commands.h"
#include "kit.h"

/* Those of the program are in its main file. */
const struct command commands[] = {{.name = NULL}};

int command_fail(const struct err *e)
{
    return e->code ? 1 : 0;
}

static void make_run(const char *name, int steps)
{
    static const float gates[4] = {0.5f, 1, 0.25f, 0};
    struct runlog_writer *w = NULL;
    struct record *r = record_new();
    struct err e = {0};
    char dir[1024];
    snprintf(dir, sizeof dir, "%s/runs/%s", fuzz_dir(), name);
    need(r != NULL && fs_mkdirs(dir, &e) == 0);
    snprintf(dir, sizeof dir, "%s/runs/%s/log.mp", fuzz_dir(), name);
    need(runlog_writer_open(&w, dir, &e) == 0);
    record_begin(r, "head", 0, 1000);
    record_str(r, "run_id", name);
    record_int(r, "steps", steps);
    need(runlog_append(w, r, &e) == 0);
    for (int i = 0; i < steps; i++) {
        record_begin(r, i % 5 == 4 ? "probe" : "metric", i, 1000 + i);
        if (i % 5 == 4)
            record_f32s(r, "gate", gates, 4);
        else
            record_num(r, "loss", 5.0 - i / 50.0);
        need(runlog_append(w, r, &e) == 0);
    }
    runlog_writer_close(w);
    record_free(r);
}

static void make_runs(char root[1024])
{
    static int is_made;
    snprintf(root, 1024, "%s/runs", fuzz_dir());
    if (is_made)
        return;
    is_made = 1;
    make_run("a", 40);
    make_run("b", 3000); /* long enough for a summary */
}

static int is_harmless(const char *line, size_t n)
{
    struct json *j = NULL;
    if (json_parse(&j, line, n, "request", NULL) < 0)
        return 1;
    const char *what = json_get_text(json_root(j), "do");
    int yes = strcmp(what, "model") != 0 &&
              (strcmp(what, "open") != 0 || json_get_text(json_root(j), "root")[0] == '\0');
    json_free(j);
    return yes;
}

static void work(struct agent *a)
{
    struct err e = {0};
    if (a->lists)
        need(send_rows(a, &e) == 0);
    for (int i = a->follows - 1; i >= 0; i--) {
        a->follow[i].due = 0;
        need(send_log(a, &a->follow[i], &e) == 0);
    }
    need(poll_commands(a, &e) == 0 && poll_starts(a, &e) == 0 && poll_models(a, &e) == 0);
}

static void check_records(const char *p, size_t n, int depth)
{
    for (size_t at = 0; at < n;) {
        uint64_t seq;
        struct value body;
        size_t inner = 0;
        int64_t used = record_parse(p + at, n - at, &seq, &body, NULL);
        need(used > 0 && value_kind(value_get(body, "kind")) == VALUE_STR);
        const char *frames = depth ? NULL : value_bytes(value_get(body, "frames"), &inner);
        if (frames)
            check_records(frames, inner, 1);
        at += (size_t)used;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct agent a;
    const char *p = (const char *)data, *answers = fuzz_path("answers");
    struct str got = {0};
    struct err e = {0};
    a = (struct agent){.readonly = 1, .rec = record_new()};
    log_to(fuzz_hush, NULL);
    make_runs(a.root);
    need(a.rec && fs_open_write(&a.out, answers, O_CREAT | O_TRUNC, &e) == 0);
    for (int lines = 0; size > 0 && lines < 64; lines++) {
        const char *end = memchr(p, '\n', size);
        size_t n = end ? (size_t)(end - p) : size;
        if (is_harmless(p, n))
            need(take_request(&a, p, n, &e) == 0);
        work(&a);
        p += n + (end != NULL);
        size -= n + (end != NULL);
    }
    close(a.out);
    need(fs_read_file(&got, answers, 1 << 28, &e) == 0 && got.len == a.sent_bytes);
    check_records(got.p, got.len, 0);
    str_release(&got);
    release(&a);
    return 0;
}
