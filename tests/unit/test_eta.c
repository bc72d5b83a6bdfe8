/* The time that is left, from what steps of this process took. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "io/record.h"
#include "io/runlog.h"
#include "t.h"
#include "tui/app.h"

T(the_newest_steps_count_and_other_work_is_added)
{
    double ms[200];
    for (int i = 0; i < 200; i++)
        ms[i] = i < 150 ? 1e6 : 100;
    t_near(eta_seconds(ms, 200, 0, 30), 3, 1e-9);
    t_near(eta_seconds(ms, 200, 0.25, 30), 4, 1e-9);
    t_near(eta_seconds(ms, 200, 0.99, 30), 3, 1e-9); /* one evaluation at the begin is no rate */
    t_near(eta_seconds(ms + 150, 1, 0, 30), 3, 1e-9);
    ms[199] = (double)NAN;
    t_near(eta_seconds(ms, 200, 0, 30), 3, 1e-9);
    t_true(isnan(eta_seconds(ms, 0, 0, 30)));
    t_true(isnan(eta_seconds(ms + 199, 1, 0, 30)));
}

static struct record *record;
static struct runlog_writer *log_file;

static void append(struct err *e)
{
    t_ok(runlog_append(log_file, record, e), e);
}

static void add_head(int64_t step, double time, struct err *e)
{
    record_begin(record, "head", step, time);
    record_int(record, "format", 1);
    record_str(record, "run", "eta");
    record_bool(record, "resume", step > 0);
    record_int(record, "steps", 130);
    append(e);
}

static void add_steps(int from, int to, double time, double step_s, int with_ms, struct err *e)
{
    for (int i = from; i <= to; i++) {
        record_begin(record, "metric", i, time + step_s * (i - from + 1));
        record_num(record, "loss", 2);
        if (with_ms)
            record_num(record, "step_ms", 1e3 * step_s);
        append(e);
    }
}

/* Slow steps, then `gap` seconds without a process, or a pause within one, then 30 steps of 0.1 s; 100 are left. */
static void check_screen(int with_ms, int has_resume, double gap, const char *want)
{
    struct err e = {0};
    struct str dump = {0};
    char path[1200], script[1200], out[1200];
    const char *dir = t_tmpdir(), *paths[1] = {dir};
    snprintf(path, sizeof path, "%s/log.mp", dir);
    snprintf(script, sizeof script, "%s/script", dir);
    snprintf(out, sizeof out, "%s/dump", dir);
    t_ok(runlog_writer_open(&log_file, path, &e), &e); /* and its lock is held: the run lives */
    record = record_new();
    add_head(0, 1000, &e);
    if (has_resume) {
        add_steps(1, 5, 1000, 60, with_ms, &e);
        add_head(5, 1300 + gap, &e);
    } else {
        add_steps(1, 5, 1000, 0.1, with_ms, &e);
    }
    add_steps(6, 30, 1300 + gap, 0.1, with_ms, &e);
    t_ok(runlog_writer_sync(log_file, &e), &e);
    t_ok(fs_write_file(script, "shot\n", 5, &e), &e);
    struct tui_options o = {
        .paths = paths, .n = 1, .size = "120x30", .script = script, .dump = out};
    t_ok(tui_run(&o, &e), &e);
    t_ok(fs_read_file(&dump, out, 1 << 20, &e), &e);
    t_truef(strstr(str_text(&dump), want) != NULL, "no \"%s\" in %.300s", want, str_text(&dump));
    str_release(&dump);
    record_free(record);
    runlog_writer_close(log_file);
}

T(downtime_and_pauses_do_not_count_in_the_estimate)
{
    check_screen(1, 1, 3600, "ETA 10.0s");
    check_screen(1, 0, 3600, "ETA 10.0s");
}

T(records_without_step_durations_use_timestamps)
{
    check_screen(0, 1, 3600, "ETA 10.0s");
    check_screen(0, 0, 3600, "ETA 10.0s");
}
