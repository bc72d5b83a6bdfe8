/* The far end without a program: what the shell is asked, and what is made of what it prints. */
#include "base/mem.h"
#include "io/host_tail.h"
#include "io/record.h"
#include "io/runindex.h"
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
    feed("5 900 8 ./deep/b/log.mp\n9 900 9 ./a/inner/log.mp\n300 950 10 ./new/config.yaml\n");
    feed("no line of a list\n1 1 1 ./log.mp\n1 2 3 /abs/log.mp\nend 1003.5\n");
    nothing_more();                                           /* what they are is not known yet */
    t_str(asked(100), "data 0 16384 a data 0 16384 deep/b "); /* the newest log first, at once */
    feed_data(&log, 0, log.len, log.len);
    struct value row = next("row");
    t_true(value_is(value_get(row, "method"), "mod"));
    t_true(value_is(value_get(row, "run_id"), "abc"));
    t_true(value_is(value_get(row, "name"), "a"));
    t_true(value_is(value_get(row, "state"), "live"));
    t_near(value_num(value_at(value_get(row, "numbers"), RUN_STEPS), 0), 9, 0);
    nothing_more();
    feed("data 0 0\n");
    t_true(value_is(value_get(next("row"), "name"), "deep/b"));
    row = next("row");
    t_true(value_is(value_get(row, "name"), "new") && value_is(value_get(row, "state"), "empty"));
    next("listed");
    t_str(asked(101), ""); /* a list every five seconds */
    t_str(asked(106), "list 0 0  ");
    feed("end 1010\n"); /* as before */
    next("beat");
    t_str(asked(112), "list 0 0  ");
    feed("end 1025\n"); /* but time passes */
    row = next("row");
    t_true(value_is(value_get(row, "name"), "a") && value_is(value_get(row, "state"), "silent"));
    next("beat");
    t_str(asked(118), "list 0 0  ");
    feed("locks\nlock 5\nlock 7\nend 1030\n"); /* and a process holds it after all */
    row = next("row");
    t_true(value_is(value_get(row, "name"), "a") && value_is(value_get(row, "state"), "live"));
    t_true(value_num(value_get(row, "live"), 0) == 1);
    next("beat");
    t_str(asked(124), "list 0 0  ");
    snprintf(line, sizeof line, "%zu 1011 7 ./a/log.mp\nend 1035\n", log.len);
    feed(line);
    t_true(value_is(value_get(next("gone"), "name"), "deep/b"));
    t_true(value_is(value_get(next("gone"), "name"), "new"));
    next("row");
    next("beat");
    end();
    str_release(&log);
}

T(a_list_is_complete_though_values_are_late)
{
    begin();
    t_str(asked(100), "list 0 0  ");
    for (int i = 0; i < 20; i++) {
        char line[64];
        snprintf(line, sizeof line, "70000 %d %d ./r%02d/log.mp\n", 100 + i, 10 + i, i);
        feed(line);
    }
    feed("end 1000\n");
    t_true(strncmp(asked(100), "data 0 16384 r19 data 65904 4096 r19 data 0 16384 r18 ", 53) == 0);
    for (int i = 0; i < 16; i++) {
        nothing_more();
        feed("data 0 70000\n");
        if (i % 2)
            next("row");
    }
    t_true(strncmp(asked(161), "data 0 16384 r11 ", 17) == 0);
    feed("data 0 70000\n");
    for (int i = 0; i < 12; i++)
        t_true(value_is(value_get(next("row"), "state"), "silent"));
    next("listed");
    end();
}

T(of_more_logs_than_there_is_room_for_the_newest_are_listed)
{
    begin();
    t_str(asked(100), "list 0 0  ");
    for (int i = 0; i < 2010; i++) {
        char line[64];
        snprintf(line, sizeof line, "0 %d %d ./r%04d/log.mp\n",
                 i < 2000 ? 100 + i : 50 + 100 * (i % 2), 10 + i, i);
        feed(line);
    }
    feed("end 5000\n");
    int n = 0, is_new = 0;
    for (; frames_at < frames.len; n++) {
        uint64_t seq;
        struct value body;
        int64_t length =
            record_parse(frames.p + frames_at, frames.len - frames_at, &seq, &body, NULL);
        is_new += value_is(value_get(body, "name"), "r2009");
        t_true(!value_is(value_get(body, "name"), "r0000"));
        frames_at += (size_t)length;
    }
    t_eq(n, 2001); /* and "listed" */
    t_eq(is_new, 1);
    end();
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
        snprintf(line, sizeof line, "%d %d 7 ./a/log.mp\nend %d\n", 90000 + i, 1001 + i, 1002 + i);
        feed(line);
        if (i) {
            next("row");
            next("beat");
        }
        snprintf(line, sizeof line, "%sdata %d 4096 a ", i ? "" : "data 0 16384 a ",
                 90000 + i - 4096);
        t_str(asked(100 + 10 * i), line);
        if (!i)
            feed("data 0 90000\n");
        feed_data(&log, 0, log.len, 90000);
        t_true(value_is(value_get(next("row"), "state"), state[i]));
        if (!i)
            next("listed");
        str_release(&log);
    }
    end();
}

T(the_newest_values_are_those_of_the_last_evaluation)
{
    struct str log = {0};
    struct record *r = record_new();
    static const struct {
        const char *kind, *task;
        double loss, flops;
    } put[] = {{"eval", "final", 2.5, 0.5},
               {"metric", NULL, 3, 0.9},
               {"head", NULL, 0, 0},
               {"eval", "val", 2.25, 0.25},
               {"metric", NULL, 4, 0.75}};
    for (size_t i = 0; i < DS_LEN(put); i++) {
        record_begin(r, put[i].kind, (int64_t)i, 1000);
        record_str(r, "task", put[i].task ? put[i].task : "");
        record_str(r, "routing", "causal");
        record_num(r, "loss", put[i].loss);
        record_num(r, "val_loss", 9);
        record_num(r, "flops_ratio", put[i].flops);
        t_true(record_end(r, i + 1, &log, NULL) == 0);
    }
    record_free(r);
    begin();
    t_str(asked(100), "list 0 0  ");
    char line[128];
    snprintf(line, sizeof line, "%zu 1002 7 ./a/log.mp\nend 1003\n", log.len);
    feed(line);
    t_str(asked(100), "data 0 16384 a ");
    feed_data(&log, 0, log.len, log.len);
    struct value numbers = value_get(next("row"), "numbers");
    next("listed");
    t_near(value_num(value_at(numbers, RUN_VAL_LOSS), 0), 2.25, 0);
    t_near(value_num(value_at(numbers, RUN_FLOPS_RATIO), 0), 0.25, 0);
    t_near(value_num(value_at(numbers, RUN_LOSS), 0), 4, 0);
    end();
    str_release(&log);
}

/* The head of a followed log that is larger than a piece. */
T(a_large_head_of_a_long_log_comes_before_its_end)
{
    struct str log = {0};
    struct record *r = record_new();
    char text[30001];
    memset(text, 'x', sizeof text - 1);
    text[30000] = '\0';
    record_begin(r, "head", 0, 1000);
    record_str(r, "config", text);
    t_true(record_end(r, 1, &log, NULL) == 0);
    record_free(r);
    size_t head = log.len;
    str_add_bytes(&log, text, 30000);
    str_add_bytes(&log, text, 30000);
    begin();
    request("{\"do\":\"follow\",\"run\":\"a\",\"from\":0,\"id\":0}\n");
    t_str(asked(100), "list 0 0  ");
    feed("900000 1002 7 ./a/log.mp\nend 1003\n");
    t_str(asked(100), "data 0 16384 a ");
    feed_data(&log, 0, 16384, 900000);
    next("log"); /* that it begins anew */
    t_str(asked(100), "data 0 65536 a ");
    feed_data(&log, 0, 65536, 900000);
    size_t n = 0;
    (void)value_bytes(value_get(next("log"), "frames"), &n);
    t_eq(n, head);
    t_str(asked(100), "data 834464 16384 a ");
    end();
    str_release(&log);
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

/* What is asked of log a is answered, until records of it come: how many bytes they are. */
static size_t followed(const struct str *log, double *now)
{
    for (int i = 0; i < 9 && frames_at == frames.len; i++) {
        size_t at, most;
        t_eq(sscanf(asked(++*now), "data %zu %zu a ", &at, &most), 2);
        size_t n = log->len - at < most ? log->len - at : most;
        feed_data(log, at, n, log->len);
    }
    size_t n = 0;
    (void)value_bytes(value_get(next("log"), "frames"), &n);
    return n;
}

T(a_record_of_any_size_is_passed_whole_or_left_out)
{
    struct str log = {0};
    struct record *r = record_new();
    struct err e = {0};
    const size_t bytes[] = {9 << 20, 9 << 20, RECORD_MAX - 200, 5};
    size_t place[5];
    make_log(&log);
    place[0] = log.len;
    char *p = mem_alloc(RECORD_MAX, 1);
    t_true(p != NULL);
    for (int i = 0; i < 4; i++) {
        record_begin(r, "matrix", i, 1010);
        record_bytes(r, "value", p, bytes[i]);
        t_ok(record_end(r, 4 + (uint64_t)i, &log, &e), &e);
        place[i + 1] = log.len;
    }
    begin();
    char line[128];
    snprintf(line, sizeof line, "{\"do\":\"follow\",\"run\":\"a\",\"from\":%zu,\"id\":7}\n",
             place[0]);
    request(line);
    t_str(asked(100), "list 0 0  ");
    snprintf(line, sizeof line, "%zu 1002 7 ./a/log.mp\nend 1003\n", log.len);
    feed(line);
    double now = 101;
    t_eq(followed(&log, &now), place[1] - place[0]);
    t_eq(followed(&log, &now), place[2] - place[1]);
    t_eq(followed(&log, &now), place[4] - place[3]); /* a message is no larger than a record */
    t_true(!frames.failed);
    end();
    str_release(&log);
    record_free(r);
    mem_free(p);
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
    t_str(asked(4), "");
    t_str(asked(10), "open 0 0 nowhere "); /* it may be made yet */
    feed("ok\n");
    t_str(asked(10), "list 0 0  ");
    feed("end 1003\n");
    next("listed");
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
