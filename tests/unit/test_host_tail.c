/* The far end without a program: what the shell is asked, and what is made of what it prints. */
#include "base/mem.h"
#include "io/host_tail.h"
#include "io/record.h"
#include "t.h"

static struct host_tail *tail;
static struct str out, frames;
static size_t frames_at;

/* What the shell is asked at `now`, its four lines joined by blanks. */
static const char *asked(double now)
{
    str_reset(&out);
    host_tail_tick(tail, now, &out);
    for (size_t i = 0; i < out.len; i++)
        out.p[i] = out.p[i] == '\n' ? ' ' : out.p[i];
    return str_text(&out);
}

static void feed(const char *text)
{
    host_tail_feed(tail, text, strlen(text), &frames);
}

static void request(const char *line)
{
    struct str all = {0};
    str_add(&all, line);
    host_tail_ask(tail, &all, &frames);
    t_eq(all.len, 0);
    str_release(&all);
}

/* The next frame that was sent; its kind must be `kind`. */
static struct value next(const char *kind)
{
    uint64_t seq;
    struct value body;
    struct err e = {0};
    int64_t n = record_parse(frames.p + frames_at, frames.len - frames_at, &seq, &body, &e);
    t_truef(n > 0, "no frame of kind %s: %s", kind, e.text);
    t_truef(value_is(value_get(body, "kind"), kind), "expected %s", kind);
    frames_at += (size_t)n;
    return body;
}

static void nothing_more(void)
{
    t_eq(frames_at, frames.len);
}

static void begin(void)
{
    tail = host_tail_new();
    t_true(tail != NULL);
    t_str(asked(0), ""); /* before the shell has said who it is */
    feed("Welcome\ndepthscope-tail 1\n");
    request("{\"do\":\"open\",\"root\":\"~/runs\"}\n{\"do\":\"list\"}\nno JSON\n");
    t_str(asked(0), "open 0 0 ~/runs ");
    t_str(asked(0), ""); /* one question at a time */
    feed("ok\n");
    struct value hello = next("agent");
    t_true(value_is(value_get(hello, "version"), "tail"));
}

static void end(void)
{
    nothing_more();
    host_tail_free(tail);
    str_release(&out);
    str_release(&frames);
}

/* A log of a head and two metrics. */
static void make_log(struct str *log)
{
    struct record *r = record_new();
    struct err e = {0};
    for (int i = 0; i < 3; i++) {
        record_begin(r, i ? "metric" : "head", i, 1000 + i);
        if (i == 0) {
            record_str(r, "method", "mod");
            record_str(r, "run_id", "abc");
            record_int(r, "steps", 9);
            record_int(r, "seed", 4);
        } else {
            record_num(r, "loss", 3.0 / i);
        }
        t_ok(record_end(r, (uint64_t)i + 1, log, &e), &e);
    }
    record_free(r);
}

static void feed_data(const struct str *log, size_t from, size_t n, size_t size)
{
    char line[64];
    snprintf(line, sizeof line, "data %zu %zu\n", n, size);
    feed(line);
    host_tail_feed(tail, log->p + from, n, &frames);
}

T(rows_are_listed_read_and_gone)
{
    struct str log = {0};
    make_log(&log);
    begin();
    t_str(asked(100), "list 0 0  ");
    char line[128];
    snprintf(line, sizeof line, "%zu 1002 7 ./a/log.mp\n", log.len);
    feed(line);
    feed("5 900 8 ./deep/b/log.mp\nno line of a list\n1 1 1 ./log.mp\n1 2 3 /abs/log.mp\n");
    feed("end 1003.5\n");
    t_true(value_is(value_get(next("row"), "name"), "a"));
    struct value row = next("row");
    t_true(value_is(value_get(row, "name"), "deep/b"));
    next("listed");
    nothing_more();
    t_str(asked(100), "data 0 4096 a "); /* the newest log first */
    feed_data(&log, 0, log.len, log.len);
    row = next("row");
    t_true(value_is(value_get(row, "method"), "mod"));
    t_true(value_is(value_get(row, "run_id"), "abc"));
    t_true(value_is(value_get(row, "name"), "a"));
    t_str(asked(100), "data 0 4096 deep/b ");
    feed("data 0 0\n");
    next("row");
    t_str(asked(101), ""); /* a list every five seconds */
    t_str(asked(106), "list 0 0  ");
    feed("end 1010\n"); /* as before */
    next("beat");
    t_str(asked(112), "list 0 0  ");
    snprintf(line, sizeof line, "%zu 1011 7 ./a/log.mp\nend 1012\n", log.len);
    feed(line);
    next("row");
    t_true(value_is(value_get(next("gone"), "name"), "deep/b"));
    next("beat");
    end();
    str_release(&log);
}

/* The head of the resume is further back than what is read. */
T(a_run_that_was_resumed_has_not_ended)
{
    static const char *const state[] = {"done", "live"};
    char line[128];
    begin();
    for (int i = 0; i < 2; i++) {
        struct str log = {0};
        struct record *r = record_new();
        record_begin(r, i ? "metric" : "end", i, 1000 + i);
        record_str(r, "status", "done");
        t_true(record_end(r, 1, &log, NULL) == 0);
        record_free(r);
        t_str(asked(100 + 10 * i), "list 0 0  ");
        snprintf(line, sizeof line, "%d %d 7 ./a/log.mp\nend %d\n", 9000 + i, 1001 + i, 1002 + i);
        feed(line);
        next("row");
        next(i ? "beat" : "listed");
        snprintf(line, sizeof line, "data %d 4096 a ", 9000 + i - 4096);
        t_str(asked(100 + 10 * i), line);
        feed_data(&log, 0, log.len, 9000);
        t_true(value_is(value_get(next("row"), "state"), state[i]));
        str_release(&log);
    }
    end();
}

T(a_followed_log_comes_in_whole_records_and_begins_anew_when_it_is_another)
{
    struct str log = {0};
    size_t n;
    make_log(&log);
    begin();
    request("{\"do\":\"follow\",\"run\":\"a\",\"from\":0,\"id\":0}\n");
    request("{\"do\":\"follow\",\"run\":\"unlisted\",\"from\":5,\"id\":3}\n");
    request("{\"do\":\"drop\",\"run\":\"unlisted\"}\n{\"do\":\"drop\",\"run\":\"never\"}\n");
    t_str(asked(100), "list 0 0  ");
    char line[128];
    snprintf(line, sizeof line, "%zu 1002 7 ./a/log.mp\nend 1003\n", log.len);
    feed(line);
    next("row");
    next("listed");
    t_true(strncmp(asked(100), "data 0 ", 7) == 0);
    feed_data(&log, 0, log.len - 3, log.len); /* the last record is cut */
    struct value v = next("log");
    size_t whole = 0;
    (void)value_bytes(value_get(v, "frames"), &whole);
    t_true(whole > 0 && whole < log.len - 3);
    t_eq(value_int(value_get(v, "id"), 0), 7);
    t_eq(value_int(value_get(v, "at"), 0), (int64_t)whole);
    snprintf(line, sizeof line, "data %zu ", whole);
    t_true(strncmp(asked(100), line, strlen(line)) == 0); /* at once, as there is more */
    feed_data(&log, whole, log.len - whole, log.len);
    v = next("log");
    (void)value_bytes(value_get(v, "frames"), &n);
    t_eq(n + whole, log.len);
    (void)asked(102); /* grown by nothing */
    feed_data(&log, 0, 0, log.len);
    nothing_more();
    (void)asked(104);
    feed_data(&log, 0, 0, 10); /* shorter: another log */
    nothing_more();
    t_true(strncmp(asked(104), "data 0 ", 7) == 0);
    log.p[log.len - 1] ^= 1; /* damaged: the rest is passed, and it is left out */
    feed_data(&log, 0, log.len, log.len);
    v = next("log");
    (void)value_bytes(value_get(v, "frames"), &n);
    t_eq(n, whole);
    end();
    str_release(&log);
}

T(what_needs_a_program_is_refused)
{
    begin();
    request("{\"do\":\"command\",\"id\":3,\"run\":\"a\",\"line\":\"stop\"}\n"
            "{\"do\":\"model\",\"id\":4,\"run\":\"a\"}\n{\"do\":\"echo\",\"id\":5}\n");
    struct value v = next("answer");
    t_eq(value_int(value_get(v, "id"), 0), 3);
    v = next("said");
    t_eq(value_int(value_get(v, "id"), 0), 4);
    size_t n = 0;
    const char *why = value_bytes(value_get(v, "end"), &n);
    t_true(why && n > 20 && memcmp(why, "only logs can be read there", 27) == 0);
    for (int i = 0; i < 20; i++) { /* sixteen find a place */
        char line[80];
        snprintf(line, sizeof line, "{\"do\":\"follow\",\"run\":\"r%d\",\"from\":0,\"id\":0}\n", i);
        request(line);
    }
    char wide[3001];
    memset(wide, 'x', sizeof wide - 1);
    wide[3000] = '\0';
    feed(wide); /* no line of ours */
    t_str(asked(100), "list 0 0  ");
    feed("end 1\n");
    next("listed");
    end();
}

T(a_folder_that_is_not_there_is_an_error)
{
    tail = host_tail_new();
    feed("depthscope-tail 1\n");
    request("{\"do\":\"open\",\"root\":\"nowhere\"}\n{\"do\":\"list\"}\n");
    t_str(asked(0), "open 0 0 nowhere ");
    feed("none\n");
    next("agent");
    t_true(value_is(value_get(next("error"), "text"), "no such folder"));
    t_str(asked(10), "");
    end();
}

T(without_memory_there_is_none)
{
    for (uint64_t n = 1; n <= 2; n++) {
        mem_fail_at(mem_calls() + n, 0);
        t_true(host_tail_new() == NULL);
        mem_fail_at(0, 0);
    }
}
