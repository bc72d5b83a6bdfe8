/* The state of a run from its records: the whole log and the row of it give one answer. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "io/runindex.h"
#include "io/runlog.h"
#include "io/runview.h"
#include "t.h"

static char dir[512], log_path[600];
static struct record *r;

static struct runlog_writer *open_log(void)
{
    struct runlog_writer *w = NULL;
    struct err e = {0};
    snprintf(dir, sizeof dir, "%s/run", t_tmpdir());
    snprintf(log_path, sizeof log_path, "%s/log.mp", dir);
    t_ok(fs_mkdirs(dir, &e), &e);
    unlink(log_path);
    t_ok(runlog_writer_open(&w, log_path, &e), &e);
    return w;
}

/* "metric", "head 100" (planned steps), "event pause", "end done", "probe", ... */
static void put(struct runlog_writer *w, int64_t step, const char *what, double age)
{
    struct err e = {0};
    char kind[32];
    const char *blank = strchr(what, ' ');
    snprintf(kind, sizeof kind, "%.*s", (int)(blank ? blank - what : (int)strlen(what)), what);
    r = r ? r : record_new();
    record_begin(r, kind, step, clock_wall() - age);
    if (strcmp(kind, "head") == 0)
        record_int(r, "steps", blank ? strtol(blank, NULL, 10) : 0);
    else if (strcmp(kind, "event") == 0)
        record_str(r, "name", blank ? blank + 1 : "checkpoint");
    else if (strcmp(kind, "end") == 0)
        record_str(r, "status", blank ? blank + 1 : "");
    else
        record_num(r, "loss", 1.0);
    t_ok(runlog_append(w, r, &e), &e);
}

/* The state determined both ways; -1 when they differ. */
static int state_now(void)
{
    struct err e = {0};
    struct runview *v = NULL;
    struct run_row row;
    t_ok(runview_open(&v, dir, &e), &e);
    t_ok(run_row_read(&row, dir, &e), &e);
    int state = v->state == row.state && v->step == row.phase.step ? (int)v->state : -1;
    run_row_release(&row);
    runview_free(v);
    return state;
}

T(each_log_has_its_state_with_and_without_a_writer)
{
    static const struct {
        const char *record[6];
        double age;
        enum run_state with, without;
    } row[] = {
        {{NULL}, 0, RUN_LIVE, RUN_EMPTY},
        {{"head 100", "metric"}, 3600, RUN_LIVE, RUN_SILENT},
        {{"head 100", "metric"}, 1, RUN_LIVE, RUN_LIVE},
        {{"head 100", "metric", "event pause"}, 3600, RUN_PAUSED, RUN_SILENT},
        {{"head 100", "event pause", "event resume"}, 3600, RUN_LIVE, RUN_SILENT},
        {{"head 100", "metric", "end done"}, 3600, RUN_DONE, RUN_DONE},
        {{"head 100", "metric", "end failed"}, 3600, RUN_FAILED, RUN_FAILED},
        {{"head 100", "metric", "end stopped"}, 1, RUN_STOPPED, RUN_STOPPED},
        {{"head 100", "end stopped", "head 200", "metric"}, 3600, RUN_LIVE, RUN_SILENT},
        {{"head 0", "probe"}, 1, RUN_LIVE, RUN_TRACE},
        {{"probe"}, 3600, RUN_LIVE, RUN_TRACE},
        {{"head 0", "eval", "sample"}, 1, RUN_LIVE, RUN_TRACE},
        {{"head 0", "matrix"}, 1, RUN_LIVE, RUN_TRACE},
        {{"head 100", "metric", "matrix"}, 1, RUN_LIVE, RUN_LIVE},
        {{"head 100", "probe"}, 3600, RUN_LIVE, RUN_SILENT},
        {{"head 0", "metric", "probe"}, 3600, RUN_LIVE, RUN_SILENT},
        {{"head 0"}, 3600, RUN_LIVE, RUN_SILENT},
    };
    struct err e = {0};
    for (size_t i = 0; i < DS_LEN(row); i++) {
        struct runlog_writer *w = open_log();
        for (int k = 0; k < 6 && row[i].record[k]; k++)
            put(w, k, row[i].record[k], row[i].age);
        t_eq(state_now(), row[i].with);
        runlog_writer_close(w);
        t_eq(state_now(), row[i].without);
    }
    t_fails(run_row_read(&(struct run_row){0}, "/nonexistent", &e), &e, DS_ENOTFOUND,
            "/nonexistent");
}

T(a_row_of_a_long_log_finds_its_end_before_gigabytes_of_zeros)
{
    struct err e = {0};
    struct run_row row;
    struct runlog_writer *w = open_log();
    put(w, 0, "head 20000", 3600);
    for (int i = 1; i <= 20000; i++)
        put(w, i, "metric", 3600);
    put(w, 20000, "end done", 3600);
    off_t size = (off_t)runlog_writer_offset(w);
    runlog_writer_close(w);
    t_eq(truncate(log_path, size + ((off_t)20 << 30)), 0);
    t_ok(run_row_read(&row, dir, &e), &e);
    t_eq(row.state, RUN_DONE);
    t_near(row.number[RUN_STEP], 20000, 0);
    t_near(row.number[RUN_STEPS], 20000, 0);
    t_truef(row.bytes_read < 2 << 20, "%llu bytes read", (unsigned long long)row.bytes_read);
    run_row_release(&row);
    t_eq(state_now(), RUN_DONE);
}

T(a_record_without_a_step_leaves_the_step)
{
    static const char bytes[] = "\x81\xa4kind\xa6metric";
    struct run_phase p = {.step = 7};
    struct value body;
    struct err e = {0};
    size_t used;
    t_ok(value_check(bytes, sizeof bytes - 1, &body, &used, &e), &e);
    run_phase_update(&p, body);
    t_eq(p.records, 1);
    t_eq(p.step, 7);
}

T(every_state_has_a_name_of_its_own)
{
    for (int i = 0; i < RUN_STATES; i++) {
        t_true(run_state_name((enum run_state)i)[0] != '\0');
        for (int k = 0; k < i; k++)
            t_true(strcmp(run_state_name((enum run_state)i), run_state_name((enum run_state)k)));
    }
    t_str(run_state_name(RUN_STATES), "");
}
