/* The index of runs: what a row shows, bounded reading, refreshing, sorting, grouping. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "io/runindex.h"
#include "io/runlog.h"
#include "io/runview.h"
#include "t.h"

static struct record *r;
static double when = 1e9;

static struct runlog_writer *open_log(const char *root, const char *name)
{
    char path[700];
    struct runlog_writer *w = NULL;
    struct err e = {0};
    snprintf(path, sizeof path, "%s/%s", root, name);
    t_ok(fs_mkdirs(path, &e), &e);
    snprintf(path, sizeof path, "%s/%s/log.mp", root, name);
    t_ok(runlog_writer_open(&w, path, &e), &e);
    r = r ? r : record_new();
    return w;
}

static void append(struct runlog_writer *w)
{
    struct err e = {0};
    t_ok(runlog_append(w, r, &e), &e);
}

static void put_head(struct runlog_writer *w, const char *method, int64_t step, int64_t steps)
{
    record_begin(r, "head", step, when);
    record_str(r, "method", method);
    record_str(r, "host", "there");
    record_str(r, "run_id", "0123456789abcdef");
    record_int(r, "steps", steps);
    record_int(r, "seed", 7);
    record_map(r, "config");
    record_str(r, "model.method", method);
    record_str(r, "train.lr", "1e-3");
    record_close(r);
    append(w);
}

static void put_metric(struct runlog_writer *w, int64_t step, double loss, double val)
{
    record_begin(r, "metric", step, when + (double)step);
    record_num(r, "loss", loss);
    record_num(r, "tok_s", 1000);
    record_num(r, "step_ms", 500);
    record_num(r, "flops_ratio", 0.5);
    if (isfinite(val)) {
        record_num(r, "val_loss", val);
        record_num(r, "time_ratio", 0.75);
    }
    append(w);
}

/* A record of `bytes` bytes whose values look like heads of frames here and there. */
static void put_large(struct runlog_writer *w, const char *kind, int64_t step, size_t bytes)
{
    char *noise = calloc(bytes, 1);
    for (size_t i = 0; i + 6 < bytes; i += 97)
        memcpy(noise + i, i % 2 ? "\xc9\0\0\1\0\x44" : "\xc9\0\0\0\x40\x44", 6);
    record_begin(r, kind, step, when + (double)step);
    record_bytes(r, "noise", noise, bytes);
    append(w);
    free(noise);
}

static void put_eval(struct runlog_writer *w, const char *task, const char *routing, int64_t step,
                     double loss)
{
    record_begin(r, "eval", step, when + (double)step);
    record_str(r, "task", task);
    record_str(r, "routing", routing);
    record_num(r, "loss", loss);
    record_num(r, "flops_ratio", 0.625);
    record_num(r, "time_ratio", 0.5);
    static const char map[40000]; /* as one of 20 layers x 500 positions */
    record_bytes(r, "gate_map", map, sizeof map);
    append(w);
}

static void put_end(struct runlog_writer *w, int64_t step, const char *status)
{
    record_begin(r, "end", step, when + (double)step);
    record_str(r, "status", status);
    append(w);
}

static struct run_row *read_row(const char *root, const char *name)
{
    static struct run_row row;
    char path[700];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/%s", root, name);
    t_ok(run_row_read(&row, path, &e), &e);
    return &row;
}

T(a_row_has_what_the_log_states_and_nan_for_the_rest)
{
    const char *root = t_tmpdir();
    struct runlog_writer *w = open_log(root, "a");
    put_head(w, "edp", 0, 10);
    for (int i = 1; i <= 10; i++)
        put_metric(w, i, 5.0 - 0.25 * i, i == 5 ? 4.5 : (double)NAN);
    put_end(w, 10, "done");
    runlog_writer_close(w);
    struct run_row *row = read_row(root, "a");
    t_str(row->name, "a");
    t_str(row->method, "edp");
    t_str(row->host, "there");
    t_str(row->run_id, "0123456789abcdef");
    t_eq(row->state, RUN_DONE);
    t_near(row->number[RUN_STEP], 10, 0);
    t_near(row->number[RUN_STEPS], 10, 0);
    t_near(row->number[RUN_LOSS], 2.5, 0);
    t_near(row->number[RUN_VAL_LOSS], 4.5, 0);
    t_near(row->number[RUN_TIME_RATIO], 0.75, 0);
    t_near(row->number[RUN_SEED], 7, 0);
    t_true(isnan(row->number[RUN_ETA])); /* it has ended */
    t_eq(row->sparks, 10);
    t_near(row->spark[0], 4.75, 1e-6);
    t_near(row->spark[9], 2.5, 1e-6);
    t_near(run_row_age(row, when + 70), 60, 1e-3);
    t_str(run_row_config(row, "train.lr"), "1e-3"); /* no config.yaml: from the head */
    t_true(!run_row_config(row, "train.nothing"));
    run_row_release(row);
}

T(a_live_run_has_the_time_left_and_a_silent_one_has_none)
{
    const char *root = t_tmpdir();
    when = clock_wall() - 100;
    struct runlog_writer *w = open_log(root, "a");
    put_head(w, "edp", 0, 100);
    for (int i = 1; i <= 20; i++)
        put_metric(w, i, 3, (double)NAN);
    struct run_row *row = read_row(root, "a");
    t_true(row->is_live);
    t_eq(row->state, RUN_LIVE);
    t_near(row->number[RUN_ETA], 80 * 0.5, 1e-6);
    runlog_writer_close(w);
    row = read_row(root, "a");
    t_eq(row->state, RUN_SILENT);
    t_true(isnan(row->number[RUN_ETA]));
}

T(the_final_evaluation_is_found_before_large_samples_and_probes)
{
    const char *root = t_tmpdir();
    for (int steps = 40; steps <= 4000; steps *= 10) { /* followed whole, and sampled */
        struct runlog_writer *w = open_log(root, steps == 40 ? "a" : steps == 400 ? "b" : "c");
        put_head(w, "edp", 0, steps);
        for (int i = 1; i <= steps; i++) {
            put_metric(w, i, 4 - (double)i / steps, i % 20 == 0 ? 9 : (double)NAN);
            if (i % 20 == 0)
                put_large(w, "probe", i, 40000);
        }
        put_eval(w, "final", "topk", steps, 1.0); /* not what holds at inference */
        put_eval(w, "final", "causal", steps, 2.5);
        put_large(w, "sample", steps, 3000000);
        put_large(w, "probe", steps, 40000);
        put_metric(w, steps, 3, 9);
        put_end(w, steps, "done");
        runlog_writer_close(w);
        struct run_row *row = read_row(root, steps == 40 ? "a" : steps == 400 ? "b" : "c");
        t_eq(row->state, RUN_DONE);
        t_near(row->number[RUN_STEP], steps, 0);
        t_near(row->number[RUN_VAL_LOSS], 2.5, 0);
        t_near(row->number[RUN_FLOPS_RATIO], 0.625, 0);
        t_near(row->number[RUN_TIME_RATIO], 0.5, 0);
        t_near(row->number[RUN_LOSS], 3, 0);
        t_truef(row->bytes_read < 1500000, "%d steps: %llu bytes", steps,
                (unsigned long long)row->bytes_read);
        t_truef(row->sparks >= 8, "%d sparks", row->sparks);
        for (int i = 1; i < row->sparks; i++)
            t_true(row->spark[i] < row->spark[i - 1] + 1e-6F);
        run_row_release(row);
    }
}

T(the_newest_validation_of_a_long_run_is_found_though_it_is_far_from_the_end)
{
    const char *root = t_tmpdir();
    struct runlog_writer *w = open_log(root, "a");
    put_head(w, "dense", 0, 100000);
    for (int i = 1; i <= 20000; i++)
        put_metric(w, i, 4, i % 1000 == 1 ? 4 - i / 1e5 : (double)NAN);
    runlog_writer_close(w);
    struct run_row *row = read_row(root, "a");
    t_near(row->number[RUN_VAL_LOSS], 4 - 19001 / 1e5, 1e-12);
    t_eq(row->state, RUN_SILENT);
    t_truef(row->bytes_read < 1500000, "%llu bytes", (unsigned long long)row->bytes_read);
    run_row_release(row);
}

T(the_only_validation_of_a_log_that_is_read_in_two_parts_is_shown)
{
    const char *root = t_tmpdir();
    struct runlog_writer *w = open_log(root, "a");
    put_head(w, "dense", 0, 1000);
    put_large(w, "probe", 0, 70000); /* smaller logs are read at once */
    for (int i = 1; i <= 120; i++) {
        put_metric(w, i, 4, i == 80 ? 3.5 : (double)NAN);
        struct run_row *row = i >= 80 ? read_row(root, "a") : NULL;
        if (row)
            t_near(row->number[RUN_VAL_LOSS], 3.5, 0);
        if (row)
            run_row_release(row);
    }
    runlog_writer_close(w);
}

/* Wherever the part of the log that is read begins, its FLOPs are those at inference. */
T(the_evaluation_before_the_newest_validation_is_found)
{
    const char *root = t_tmpdir();
    struct runlog_writer *w = open_log(root, "a");
    put_head(w, "edp", 0, 1000);
    put_large(w, "probe", 0, 70000); /* smaller logs are read at once */
    for (int i = 1; i <= 140; i++) {
        if (i % 40 == 0)
            put_eval(w, "val", "causal", i, 3.5);
        put_metric(w, i, 4, i % 40 == 0 ? 3.5 : (double)NAN);
        struct run_row *row = i >= 40 ? read_row(root, "a") : NULL;
        if (row)
            t_near(row->number[RUN_FLOPS_RATIO], 0.625, 0);
        if (row)
            run_row_release(row);
    }
    runlog_writer_close(w);
}

static void put_event(struct runlog_writer *w, const char *name)
{
    record_begin(r, "event", 200, clock_wall());
    record_str(r, "name", name);
    append(w);
}

T(a_run_stays_paused_while_it_logs_its_machine)
{
    const char *root = t_tmpdir();
    struct runlog_writer *w = open_log(root, "b");
    put_head(w, "dense", 0, 1000);
    put_event(w, "pause");
    put_large(w, "system", 0, 70000);
    for (int i = 0; i < 120; i++)
        put_large(w, "system", 0, 100);
    struct run_row *early = read_row(root, "b");
    t_eq(early->state, RUN_PAUSED);
    run_row_release(early);
    runlog_writer_close(w);
    w = open_log(root, "a");
    put_head(w, "dense", 0, 1000);
    for (int i = 1; i <= 200; i++)
        put_metric(w, i, 4, 3.5);
    for (int turn = 0; turn < 2; turn++) {
        put_event(w, turn ? "resume" : "pause");
        for (int i = 0; i < 40; i++) {
            put_large(w, "system", 200, 500);
            struct run_row *row = read_row(root, "a");
            t_eq(row->state, turn ? RUN_LIVE : RUN_PAUSED);
            run_row_release(row);
        }
    }
    runlog_writer_close(w);
}

T(damage_and_torn_ends_cost_only_the_records_they_hit)
{
    char path[700];
    const char *root = t_tmpdir();
    struct runlog_writer *w = open_log(root, "a");
    put_head(w, "mod", 0, 5000);
    for (int i = 1; i <= 5000; i++)
        put_metric(w, i, 4 - i / 5000.0, i == 4990 ? 3.25 : (double)NAN);
    off_t size = (off_t)runlog_writer_offset(w);
    runlog_writer_close(w);
    snprintf(path, sizeof path, "%s/a/log.mp", root);
    int fd = open(path, O_WRONLY);
    for (off_t at = 3000; at < size - 9000; at += 20000) /* a broken length, and a broken body */
        t_eq(pwrite(fd, "\xc9\x01\xff\xff\xff\x44 damage", 13, at), 13);
    t_eq(pwrite(fd, "\xc9\0\0\1\0\x44torn", 10, size), 10);
    close(fd);
    struct run_row *row = read_row(root, "a");
    t_str(row->method, "mod");
    t_near(row->number[RUN_STEP], 5000, 0);
    t_near(row->number[RUN_VAL_LOSS], 3.25, 0);
    t_near(row->number[RUN_LOSS], 3, 1e-9);
    t_truef(row->sparks > 8, "%d sparks", row->sparks);
    run_row_release(row);
    /* nothing but noise, and an empty file */
    fd = open(path, O_WRONLY | O_TRUNC);
    for (int i = 0; i < 5000; i++)
        t_eq(write(fd, "\xc9\0\0\0\x20\x44noise", 11), 11);
    close(fd);
    row = read_row(root, "a");
    t_eq(row->state, RUN_EMPTY);
    t_true(isnan(row->number[RUN_STEP]));
    run_row_release(row);
    t_eq(truncate(path, 0), 0);
    row = read_row(root, "a");
    t_eq(row->state, RUN_EMPTY);
    run_row_release(row);
}

T(the_new_length_of_a_small_log_is_read)
{
    const char *root = t_tmpdir();
    struct runlog_writer *w = open_log(root, "a");
    put_head(w, "edp", 0, 500);
    for (int i = 1; i <= 150; i++)
        put_metric(w, i, 3, 3.5);
    put_head(w, "edp", 150, 900);
    for (int i = 151; i <= 250; i++)
        put_metric(w, i, 3, 3.5);
    struct run_row *row = read_row(root, "a");
    t_near(row->number[RUN_STEPS], 900, 0);
    run_row_release(row);
    runlog_writer_close(w);
}

T(a_run_that_was_resumed_for_longer_shows_the_new_length_and_not_the_old_result)
{
    const char *root = t_tmpdir();
    struct runlog_writer *w = open_log(root, "a");
    put_head(w, "edp", 0, 10);
    for (int i = 1; i <= 10; i++)
        put_metric(w, i, 3, 3.5);
    put_eval(w, "final", "causal", 10, 3.25);
    put_end(w, 10, "done");
    put_head(w, "edp", 10, 20);
    for (int i = 11; i <= 12; i++)
        put_metric(w, i, 2, 2.5);
    runlog_writer_close(w);
    struct run_row *row = read_row(root, "a");
    t_eq(row->state, RUN_SILENT);
    t_near(row->number[RUN_STEPS], 20, 0);
    t_near(row->number[RUN_VAL_LOSS], 2.5, 0);
    run_row_release(row);
}

/* The end of a log is read in parts, the last one first. */
T(a_resume_far_from_the_end_is_a_process_of_its_own)
{
    const char *root = t_tmpdir();
    struct runlog_writer *w = open_log(root, "a");
    put_head(w, "edp", 0, 800);
    for (int i = 1; i <= 800; i++)
        put_metric(w, i, 3, (double)NAN);
    put_eval(w, "final", "causal", 800, 3.25);
    put_end(w, 800, "done");
    put_head(w, "edp", 800, 2000);
    for (int i = 801; i <= 1500; i++) {
        put_metric(w, i, 2, i == 810 ? 2.5 : i == 828 ? 2.25 : (double)NAN);
        struct run_row *row = i % 50 == 0 || i == 830 ? read_row(root, "a") : NULL;
        if (!row)
            continue;
        t_near(row->number[RUN_VAL_LOSS], 2.25, 0);
        if (i == 830) /* its head is read */
            t_near(row->number[RUN_STEPS], 2000, 0);
        run_row_release(row);
    }
    runlog_writer_close(w);
}

/* ---- the index ---- */

static void put_run(const char *root, const char *name, const char *method, double val,
                    const char *status)
{
    struct runlog_writer *w = open_log(root, name);
    put_head(w, method, 0, 10);
    put_metric(w, 10, 3, val);
    if (status)
        put_end(w, 10, status);
    runlog_writer_close(w);
}

static const char *names(const struct runindex *x)
{
    static char out[400];
    out[0] = '\0';
    for (size_t i = 0; i < x->n; i++)
        snprintf(out + strlen(out), sizeof out - strlen(out), "%s%s", i ? " " : "",
                 x->row[i]->name);
    return out;
}

T(a_refresh_reads_only_what_changed)
{
    const char *root = t_tmpdir();
    struct runindex x = {0};
    struct err e = {0};
    char path[700], to[700];
    for (int i = 0; i < 20; i++) {
        snprintf(path, sizeof path, "run-%02d", i);
        put_run(root, path, "edp", 3, "done");
    }
    t_ok(runindex_refresh(&x, root, &e), &e);
    t_eq(x.n, 20);
    t_eq(x.rows_read, 20);
    const struct run_row *kept = runindex_find(&x, "run-07");
    t_ok(runindex_refresh(&x, root, &e), &e);
    t_eq(x.rows_read, 0);
    t_eq(x.bytes_read, 0);
    t_true(runindex_find(&x, "run-07") == kept);
    /* one grows, one gets a note, one vanishes, one is renamed, one is replaced */
    struct runlog_writer *w = open_log(root, "run-00");
    put_end(w, 11, "stopped");
    runlog_writer_close(w);
    struct run_notes notes = {0};
    t_ok(run_notes_tag(&notes, "paper", &e), &e);
    snprintf(path, sizeof path, "%s/run-01", root);
    t_ok(run_notes_write(&notes, path, &e), &e);
    snprintf(path, sizeof path, "%s/run-02", root);
    t_ok(fs_remove_tree(path, &e), &e);
    snprintf(path, sizeof path, "%s/run-03", root);
    snprintf(to, sizeof to, "%s/renamed", root);
    t_eq(rename(path, to), 0);
    snprintf(path, sizeof path, "%s/run-04", root);
    t_ok(fs_remove_tree(path, &e), &e);
    put_run(root, "run-04", "mod", 2, NULL);
    t_ok(runindex_refresh(&x, root, &e), &e);
    t_eq(x.n, 19);
    t_eq(x.rows_read, 4);
    t_eq(runindex_find(&x, "run-00")->state, RUN_STOPPED);
    t_str(runindex_find(&x, "run-01")->notes.tag[0], "paper");
    t_true(!runindex_find(&x, "run-02") && !runindex_find(&x, "run-03"));
    t_true(runindex_find(&x, "renamed") != NULL);
    t_str(runindex_find(&x, "run-04")->method, "mod");
    runindex_release(&x);
}

T(without_memory_for_a_row_the_list_is_refused_rather_than_short)
{
    const char *root = t_tmpdir();
    struct runindex x = {0};
    struct err e = {0};
    int failed = 0, n = 0;
    uint64_t at;
    put_run(root, "a", "edp", 3, "done");
    put_run(root, "b", "mod", 2, "done");
    do {
        at = mem_calls() + (uint64_t)++n;
        mem_fail_at(at, 0);
        int rc = runindex_refresh(&x, root, &e);
        mem_fail_at(0, 0);
        t_truef(rc == DS_EMEM || (rc == 0 && x.n == 2), "allocation %d: %d, %zu runs", n, rc, x.n);
        failed += rc < 0;
        runindex_release(&x);
        x = (struct runindex){0};
    } while (mem_calls() >= at && n < 500);
    t_true(failed > 3 && n < 500);
}

/* Read up to 1 MiB; a larger one costs only the preset. */
T(a_row_has_the_preset_of_a_long_meta_json)
{
    static const size_t padding[] = {(1 << 20) - 100, 1 << 20};
    char path[700];
    const char *root = t_tmpdir();
    struct err e = {0};
    put_run(root, "a", "edp", 3, "done");
    snprintf(path, sizeof path, "%s/a/meta.json", root);
    for (size_t i = 0; i < DS_LEN(padding); i++) {
        struct str s = {0};
        str_add(&s, "{\"preset\": \"small\", \"host\": \"elsewhere\",");
        for (size_t k = 0; k < padding[i]; k++)
            str_add_char(&s, ' ');
        str_add(&s, "\"more\": 1}");
        t_ok(fs_write_file(path, s.p, s.len, &e), &e);
        struct run_row *row = read_row(root, "a");
        t_str(row->preset, i == 0 ? "small" : "");
        t_str(row->host, "there"); /* the log's */
        run_row_release(row);
        str_release(&s);
    }
}

T(a_list_survives_what_else_lies_below_the_root)
{
    char path[700];
    const char *root = t_tmpdir();
    struct runindex x = {0};
    struct err e = {0};
    put_run(root, "good", "edp", 3, "done");
    put_run(root, "\x1b[2Jname", "edp", 3, "done");
    snprintf(path, sizeof path, "%s/plain", root);
    t_ok(fs_mkdirs(path, &e), &e);
    snprintf(path, sizeof path, "%s/.hidden", root);
    t_ok(fs_mkdirs(path, &e), &e);
    snprintf(path, sizeof path, "%s/dangling", root);
    t_eq(symlink("nowhere", path), 0);
    snprintf(path, sizeof path, "%s/loop", root);
    t_eq(symlink("loop", path), 0);
    snprintf(path, sizeof path, "%s/directory", root);
    t_ok(fs_mkdirs(path, &e), &e);
    snprintf(path, sizeof path, "%s/directory/log.mp", root);
    t_ok(fs_mkdirs(path, &e), &e);
    snprintf(path, sizeof path, "%s/notes", root);
    t_ok(fs_mkdirs(path, &e), &e);
    snprintf(path, sizeof path, "%s/notes/config.yaml", root);
    t_ok(fs_write_file(path, "\xff: [", 4, &e), &e);
    snprintf(path, sizeof path, "%s/notes/notes.json", root);
    t_ok(fs_write_file(path, "[1,", 3, &e), &e);
    t_ok(runindex_refresh(&x, root, &e), &e);
    t_eq(x.n, 3);
    t_eq(runindex_find(&x, "notes")->state, RUN_EMPTY);
    t_ok(runindex_refresh(&x, "/nonexistent/runs", &e), &e);
    t_eq(x.n, 0);
    runindex_release(&x);
}

T(what_a_path_is_too_long_for_is_not_an_empty_list)
{
    char root[1200], name[300];
    struct runindex x = {0};
    struct err e = {0};
    memset(name, 'n', sizeof name);
    snprintf(root, sizeof root, "%s", t_tmpdir());
    for (size_t n; (n = strlen(root)) < 880;)
        snprintf(root + n, sizeof root - n, "/%.*s", n < 700 ? 200 : 100, name);
    size_t n = strlen(root);
    snprintf(root + n, sizeof root - n, "/short");
    t_ok(fs_mkdirs(root, &e), &e);
    snprintf(root + n, sizeof root - n, "/short/config.yaml");
    t_ok(fs_write_file(root, "", 0, &e), &e);
    root[n] = '\0';
    t_ok(runindex_refresh(&x, root, &e), &e);
    t_eq(x.n, 1);
    t_true(!x.is_cut);
    snprintf(root + n, sizeof root - n, "/%.*s", 200, name);
    t_eq(mkdir(root, 0755), 0);
    root[n] = '\0';
    t_ok(runindex_refresh(&x, root, &e), &e);
    t_eq(x.n, 1);
    t_true(x.is_cut);
    root[n] = '/';
    t_fails(runindex_refresh(&x, root, &e), &e, DS_ERANGE, "path too long, expected at most 1023");
    runindex_release(&x);
}

T(a_seed_is_shown_in_full_and_a_link_beside_a_longer_name_is_followed)
{
    char path[700], to[700], text[80];
    const char *root = t_tmpdir();
    struct runindex x = {0};
    struct err e = {0};
    struct run_row *row;
    put_run(root, "exp/a", "edp", 3, "done");
    row = read_row(root, "exp/a");
    row->number[RUN_SEED] = 1714579201;
    t_str(run_row_text(row, "seed", 0, text, sizeof text), "1714579201");
    row->number[RUN_VAL_LOSS] = 1.0 / 3;
    t_str(run_row_text(row, "val_loss", 0, text, sizeof text), "0.333333333");
    run_row_release(row);
    snprintf(path, sizeof path, "%s/exp2", root);
    t_ok(fs_mkdirs(path, &e), &e);
    snprintf(to, sizeof to, "%s/exp2/base", root); /* "exp" begins the name of "exp2" */
    t_eq(symlink("../exp", to), 0);
    t_ok(runindex_refresh(&x, path, &e), &e);
    t_eq(x.n, 1);
    snprintf(to, sizeof to, "%s/exp/up", root);
    t_eq(symlink("..", to), 0);
    snprintf(path, sizeof path, "%s/exp", root);
    t_ok(runindex_refresh(&x, path, &e), &e);
    t_eq(x.n, 1);
    runindex_release(&x);
}

/* The newest part of a long log says nothing of an alert that its first part raised. */
T(an_alert_of_the_first_records_of_a_long_log_does_not_hold_for_ever)
{
    const char *root = t_tmpdir();
    struct runlog_writer *w = open_log(root, "a");
    put_head(w, "edp", 0, 2000);
    for (int i = 1; i <= 2000; i++) {
        put_metric(w, i, 3, (double)NAN);
        if (i != 20 && i != 300)
            continue;
        record_begin(r, "event", i, when + i);
        record_str(r, "level", i == 20 ? "warn" : "info");
        record_str(r, "name", "alert");
        record_str(r, "rule", "gpu");
        record_bool(r, "over", i == 300);
        record_str(r, "text", "idle");
        append(w);
    }
    struct run_row *row = read_row(root, "a");
    t_near(row->number[RUN_ALERTS], 0, 0);
    run_row_release(row);
    runlog_writer_close(w);
}

T(sorting_by_any_column_puts_missing_values_last_and_keeps_equal_ones)
{
    const char *root = t_tmpdir();
    struct runindex x = {0};
    struct err e = {0};
    put_run(root, "a", "mod", 3.5, "done");
    put_run(root, "b", "edp", (double)NAN, "failed");
    put_run(root, "c", "edp", 2.5, "done");
    put_run(root, "d", "dense", 3.0, "stopped");
    t_ok(runindex_refresh(&x, root, &e), &e);
    t_ok(runindex_sort(&x, "name", 0, &e), &e);
    t_str(names(&x), "a b c d");
    t_ok(runindex_sort(&x, "val_loss", 0, &e), &e);
    t_str(names(&x), "c d a b");
    t_ok(runindex_sort(&x, "-val_loss", 0, &e), &e);
    t_str(names(&x), "a d c b");
    t_ok(runindex_sort(&x, "method", 0, &e), &e);
    t_str(names(&x), "d c b a");
    t_ok(runindex_group(&x, "state", 0, &e), &e);
    t_str(names(&x), "d c a b");
    t_ok(runindex_sort(&x, "-train.lr", 0, &e), &e);
    t_str(names(&x), "d c a b");
    t_fails(runindex_sort(&x, "vall_loss", 0, &e), &e, DS_EUSAGE, "did you mean val_loss?");
    t_fails(runindex_group(&x, "no.such.key", 0, &e), &e, DS_EUSAGE, "unknown column");
    for (const struct run_column *c = run_columns; c->key; c++) {
        t_ok(runindex_sort(&x, c->key, 1e9, &e), &e);
        t_eq(x.n, 4);
        t_true(run_column_find(c->title) == c);
    }
    t_ok(runindex_sort(&x, "-run", 1e9, &e), &e); /* as the lists call it */
    t_str(names(&x), "d c b a");
    t_true(run_column_find("newest") == run_column_find("age"));
    runindex_release(&x);
}

T(numbers_of_a_setting_are_sorted_before_its_other_values)
{
    static const char *const before[] = {"name", "-name"};
    const char *root = t_tmpdir();
    struct runindex x = {0};
    struct err e = {0};
    put_run(root, "a", "9", 3, "done");
    put_run(root, "b", "10", 3, "done");
    put_run(root, "c", "10,3", 3, "done"); /* as text between 10 and 9 */
    t_ok(runindex_refresh(&x, root, &e), &e);
    for (size_t i = 0; i < DS_LEN(before); i++) {
        t_ok(runindex_sort(&x, before[i], 0, &e), &e);
        t_ok(runindex_sort(&x, "model.method", 0, &e), &e);
        t_str(names(&x), "a b c");
    }
    runindex_release(&x);
}

T(notes_are_sorted_by_all_of_their_text)
{
    const char *root = t_tmpdir();
    struct runindex x = {0};
    struct err e = {0};
    for (int i = 0; i < 2; i++) {
        char path[700], text[RUN_NOTE_MAX + 1];
        struct run_notes notes = {0};
        memset(text, 'a', RUN_NOTE_MAX);
        text[RUN_NOTE_MAX - 1] = i ? 'a' : 'b'; /* they differ in the last letter */
        text[RUN_NOTE_MAX] = '\0';
        put_run(root, i ? "second" : "first", "edp", 3, "done");
        snprintf(path, sizeof path, "%s/%s", root, i ? "second" : "first");
        t_ok(run_notes_set(&notes, text, &e), &e);
        t_ok(run_notes_write(&notes, path, &e), &e);
    }
    t_ok(runindex_refresh(&x, root, &e), &e);
    t_ok(runindex_sort(&x, "note", 0, &e), &e);
    t_str(names(&x), "second first");
    runindex_release(&x);
}

/* Time is printed, work is asserted: the budget is 300 ms from a warm cache. */
T(a_thousand_runs_are_listed_from_a_bounded_part_of_their_logs)
{
    const char *root = t_tmpdir();
    char path[700];
    struct runindex x = {0};
    struct err e = {0};
    struct str log = {0};
    struct runlog_writer *w = open_log(root, "r0");
    put_head(w, "edp", 0, 300);
    for (int i = 1; i <= 300; i++) {
        put_metric(w, i, 4, i % 100 == 0 ? 3 : (double)NAN);
        if (i % 100 == 0)
            put_large(w, "probe", i, 38000);
    }
    put_end(w, 300, "done");
    runlog_writer_close(w);
    snprintf(path, sizeof path, "%s/r0/log.mp", root);
    t_ok(fs_read_file(&log, path, 1 << 24, &e), &e);
    for (int i = 1; i < 1000; i++) {
        snprintf(path, sizeof path, "%s/r%d", root, i);
        t_ok(fs_mkdirs(path, &e), &e);
        snprintf(path, sizeof path, "%s/r%d/log.mp", root, i);
        int fd = open(path, O_CREAT | O_WRONLY, 0644);
        t_eq(write(fd, log.p, log.len), (ssize_t)log.len);
        close(fd);
    }
    double started = clock_mono();
    t_ok(runindex_refresh(&x, root, &e), &e);
    double first = clock_mono() - started;
    t_eq(x.n, 1000);
    t_eq(x.rows_read, 1000);
    t_truef(x.bytes_read < 1000 * (uint64_t)300000, "%llu bytes", (unsigned long long)x.bytes_read);
    uint64_t bytes = x.bytes_read;
    started = clock_mono();
    t_ok(runindex_refresh(&x, root, &e), &e);
    t_eq(x.rows_read, 0);
    printf("1000 runs of %zu kB: %.0f ms, %llu kB read; again: %.0f ms\n", log.len / 1000,
           1e3 * first, (unsigned long long)bytes / 1000, 1e3 * (clock_mono() - started));
    runindex_release(&x);
    str_release(&log);
}
