/* Logs of other programs, whatever their format: torn ends, files that are replaced, folders, pipes,
 * steps out of order, the names of metrics, and rows of the list of runs. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "io/foreign.h"
#include "io/metric.h"
#include "io/runindex.h"
#include "io/runlog.h"
#include "io/runview.h"
#include "foreign_bytes.h"

static const char *in_dir(const char *name)
{
    static char path[4][700];
    static int k;
    k = (k + 1) % 4;
    snprintf(path[k], sizeof path[k], "%s/%s", t_tmpdir(), name);
    return path[k];
}

static void add(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    t_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

/* As if nobody had written it for a minute. */
static void rest(const char *path)
{
    struct timespec then[2];
    clock_gettime(CLOCK_REALTIME, &then[0]);
    then[0].tv_sec -= 60;
    then[1] = then[0];
    t_eq(utimensat(AT_FDCWD, path, then, 0), 0);
}

static struct runview *open_view(const char *path)
{
    struct runview *v = NULL;
    struct err e = {0};
    t_ok(runview_open(&v, path, &e), &e);
    return v;
}

static void poll_view(struct runview *v)
{
    struct err e = {0};
    t_true(runview_poll(v, HUGE_VAL, &e) >= 0);
}

T(a_growing_console_log_has_the_time_left)
{
    char path[600];
    struct run_row row;
    struct err e = {0};
    snprintf(path, sizeof path, "%s/train.log", t_tmpdir());
    add(path, "[2026-05-01 10:00:00] step 10/100 | loss 3.0\n"
              "[2026-05-01 10:00:20] step 20/100 | loss 2.5\n");
    t_ok(run_row_read(&row, path, &e), &e);
    t_eq(row.state, RUN_LIVE);
    t_near(row.number[RUN_ETA], 80 * 2, 1e-6);
    run_row_release(&row);
}

T(a_growing_table_is_followed_and_its_torn_end_waited_for)
{
    const char *path = in_dir("a.csv");
    add(path, "step,loss\n1,0.5\n2,0.2");
    struct runview *v = open_view(path);
    const struct series *s = runview_series(v, "loss");
    t_eq(s->n, 1); /* the second line may go on: 0.2 or 0.25 */
    add(path, "5\n3,0.125\n");
    poll_view(v);
    s = runview_series(v, "loss");
    t_eq(s->n, 3);
    t_near(s->value[1], 0.25, 0);
    t_near(s->value[2], 0.125, 0);
    t_eq(v->step, 3);
    runview_free(v);
}

T(a_file_at_rest_is_complete_without_its_last_newline)
{
    const char *path = in_dir("b.csv");
    add(path, "step,loss\n1,0.5\n2,0.2");
    rest(path);
    struct runview *v = open_view(path);
    t_eq(runview_series(v, "loss")->n, 2);
    t_near(runview_series(v, "loss")->value[1], 0.2, 0);
    /* it was not complete after all: what was read is read again */
    add(path, "5\n3,0.1\n");
    poll_view(v);
    t_eq(runview_series(v, "loss")->n, 3);
    t_near(runview_series(v, "loss")->value[1], 0.25, 0);
    /* ... and a newline after a line that was taken changes nothing */
    add(path, "4,1");
    rest(path);
    poll_view(v);
    add(path, "\n5,2\n");
    poll_view(v);
    const struct series *s = runview_series(v, "loss");
    t_eq(s->n, 5);
    t_near(s->value[3], 1, 0);
    t_near(s->value[4], 2, 0);
    t_eq(v->n_events, 0); /* nothing was replaced or truncated */
    runview_free(v);
}

T(replaced_and_shrunk_files_are_read_again)
{
    const char *path = in_dir("c.csv"), *other = in_dir("c.new");
    add(path, "step,loss\n1,1\n2,2\n3,3\n");
    struct runview *v = open_view(path);
    t_eq(runview_series(v, "loss")->n, 3);
    add(other, "step,loss\n7,7\n8,8\n9,9\n10,10\n");
    t_eq(rename(other, path), 0);
    poll_view(v);
    t_eq(runview_series(v, "loss")->n, 4);
    t_eq(runview_series(v, "loss")->step[0], 7);
    t_eq(truncate(path, 14), 0);
    poll_view(v);
    t_eq(runview_series(v, "loss")->n, 1);
    t_eq(unlink(path), 0); /* gone: what was read stays */
    poll_view(v);
    t_eq(runview_series(v, "loss")->n, 1);
    runview_free(v);
}

T(a_file_that_is_empty_at_first_is_recognised_when_it_is_written)
{
    const char *path = in_dir("later.csv");
    add(path, "");
    struct runview *v = open_view(path);
    t_true(runview_foreign(v) == NULL);
    add(path, "step,loss\n4,0.5\n");
    poll_view(v);
    t_true(runview_foreign(v) != NULL);
    t_eq(runview_series(v, "loss")->n, 1);
    runview_free(v);
}

T(steps_in_any_order_are_sorted_and_the_last_of_several_at_one_counts)
{
    const char *path = in_dir("d.csv");
    add(path, "step,loss\n5,0.5\n1,0.1\n3,0.3\n3,0.33\n2,0.2\n");
    struct runview *v = open_view(path);
    const struct series *s = runview_series(v, "loss");
    static const double want[] = {0.1, 0.2, 0.3, 0.33, 0.5};
    t_eq(s->n, 5);
    for (int i = 0; i < 5; i++)
        t_near(s->value[i], want[i], 0);
    t_eq(s->is_old[2], 1);
    t_eq(s->is_old[0] + s->is_old[1] + s->is_old[3] + s->is_old[4], 0);
    t_eq(v->step, 5);
    t_near(series_range(s, 0, 5).min, 0.1, 0);
    /* more come, out of order again, after the pyramid was built */
    add(path, "4,0.4\n0,9\n");
    poll_view(v);
    s = runview_series(v, "loss");
    t_eq(s->n, 7);
    t_eq(s->step[0], 0);
    t_near(s->value[5], 0.4, 0);
    t_near(series_range(s, 0, 7).max, 9, 0);
    runview_free(v);
}

T(what_a_resume_supersedes_is_in_one_piece)
{
    const char *path = in_dir("resumed.csv");
    char row[32];
    add(path, "step,loss\n");
    for (int i = 1; i <= 30; i++) { /* 1..20, then 11..20 again */
        snprintf(row, sizeof row, "%d,%d\n", i <= 20 ? i : i - 10, i);
        add(path, row);
    }
    struct runview *v = open_view(path);
    const struct series *s = runview_series(v, "loss");
    t_eq(s->n, 30);
    for (int i = 0; i < 30; i++) {
        t_eq(s->is_old[i], i >= 10 && i < 20);
        t_near(s->value[i], i + 1, 0);
    }
    t_eq(series_find(s, 15), 24);
    t_eq(series_find(s, 5), 4);
    runview_free(v);
}

T(the_stream_of_such_a_log_has_the_same_values)
{
    const char *path = in_dir("e.csv");
    struct runlog_reader *r = NULL;
    struct runlog_entry entry;
    struct err e = {0};
    double third = 1.0 / 3;
    char line[200];
    int heads = 0, metrics = 0;
    snprintf(line, sizeof line,
             "step,train/loss,lr,time\n10,%.17g,1e-3,1700000000.25\n20,nan,inf,\n", third);
    add(path, line);
    t_ok(runlog_reader_open(&r, path, &e), &e);
    while (runlog_next(r, &entry, &e) > 0) {
        t_eq(entry.points, 0);
        heads += value_is(value_get(entry.body, "kind"), "head");
        if (!value_is(value_get(entry.body, "kind"), "metric"))
            continue;
        double loss = value_num(value_get(entry.body, "train/loss"), 0);
        if (metrics++ == 0) {
            t_near(loss, third, 0);
            t_near(value_num(value_get(entry.body, "time"), 0), 1700000000.25, 0);
            t_near(value_num(value_get(entry.body, "lr"), 0), 1e-3, 0);
        } else {
            t_true(isnan(loss));
            t_true(isinf(value_num(value_get(entry.body, "lr"), 0)));
        }
    }
    t_eq(heads, 1);
    t_eq(metrics, 2);
    runlog_reader_close(r);
}

T(a_pipe_is_recognised_after_lines_of_other_text)
{
    int fd[2];
    struct err e = {0};
    struct runview *v = NULL;
    int saved = dup(STDIN_FILENO);
    t_eq(pipe(fd), 0);
    t_true(dup2(fd[0], STDIN_FILENO) >= 0);
    close(fd[0]);
    t_ok(runview_open(&v, "-", &e), &e);
    t_eq(write(fd[1], "step,loss\n1,2\n", 14), 14);
    poll_view(v);
    t_eq(v->state, RUN_LIVE);
    t_eq(runview_series(v, "loss")->n, 1);
    t_eq(write(fd[1], "2,4\n3,6", 7), 7);
    poll_view(v);
    t_eq(runview_series(v, "loss")->n, 2); /* the third may go on */
    close(fd[1]);
    poll_view(v);
    poll_view(v);
    t_eq(runview_series(v, "loss")->n, 3);
    t_near(runview_series(v, "loss")->value[2], 6, 0);
    t_true(v->state != RUN_LIVE);
    runview_free(v);
    t_true(dup2(saved, STDIN_FILENO) >= 0);
    close(saved);
}

T(a_log_in_a_pipe_may_follow_its_whole_script)
{
    char source[8192];
    int fd[2], saved = dup(STDIN_FILENO);
    struct err e = {0};
    struct runview *v = NULL;
    for (size_t i = 0; i < sizeof source; i++)
        source[i] = "x = f(1)\n"[i % 9];
    t_eq(pipe(fd), 0);
    t_true(dup2(fd[0], STDIN_FILENO) >= 0);
    close(fd[0]);
    t_ok(runview_open(&v, "-", &e), &e);
    for (int i = 0; i < 40; i++) {
        t_eq(write(fd[1], source, sizeof source), (ssize_t)sizeof source);
        poll_view(v);
    }
    t_eq(write(fd[1], "\niter 7: loss 2.5, time 1ms\n", 28), 28);
    poll_view(v);
    t_true(runview_series(v, "loss") && runview_series(v, "loss")->step[0] == 7);
    close(fd[1]);
    runview_free(v);
    t_true(dup2(saved, STDIN_FILENO) >= 0);
    close(saved);
}

T(names_of_other_programs_stand_for_ours)
{
    static const struct {
        const char *logged, *ours;
    } row[] = {{"Loss/train", "loss"},
               {"train/loss", "loss"},
               {"train.loss", "loss"},
               {"eval/loss", "val_loss"},
               {"loss/val", "val_loss"},
               {"validation_loss", "val_loss"},
               {"learning_rate", "lr"},
               {"train/grad_norm", "grad_norm"},
               {"lm loss", "loss"},
               {"loss", NULL},
               {"val_loss", NULL},
               {"accuracy", NULL},
               {"", NULL},
               {"///", NULL},
               {"LOSS", "loss"}};
    for (size_t i = 0; i < DS_LEN(row); i++) {
        int rank = -1;
        const char *got = metric_canonical(row[i].logged, &rank);
        t_true(row[i].ours ? got && strcmp(got, row[i].ours) == 0 : got == NULL);
    }
    const char *path = in_dir("f.csv");
    add(path, "step,loss/train,train_loss,val/loss\n1,1,2,3\n");
    struct runview *v = open_view(path);
    t_near(runview_series(v, "loss")->value[0], 2, 0); /* the more usual name is preferred */
    t_near(runview_series(v, "val_loss")->value[0], 3, 0);
    t_str(runview_series(v, "loss/train")->name, "loss/train");
    t_true(runview_series(v, "lr") == NULL);
    runview_free(v);
}

T(long_names_keep_apart_and_too_many_are_counted)
{
    const char *path = in_dir("g.csv");
    struct str text = {0};
    str_add(&text, "step");
    for (int i = 0; i < 3; i++) {
        str_add(&text, ",");
        for (int k = 0; k < 200; k++)
            str_addf(&text, "%c", 'a' + k % 26);
        str_addf(&text, "%d", i);
    }
    str_add(&text, "\n1,1,2,3\n");
    add(path, str_text(&text));
    struct runlog_reader *r = NULL;
    struct runlog_entry entry;
    struct err e = {0};
    t_ok(runlog_reader_open(&r, path, &e), &e);
    while (runlog_next(r, &entry, &e) > 0)
        if (value_is(value_get(entry.body, "kind"), "metric"))
            t_eq(value_len(entry.body), 3 + 3); /* cut to 63 bytes, and still three */
    runlog_reader_close(r);
    str_release(&text);
}

/* ---- the list of runs ---- */

T(home_lists_logs_of_other_programs_below_its_folder)
{
    struct runindex x = {0};
    struct err e = {0};
    char root[600], path[700];
    snprintf(root, sizeof root, "%s/home", t_tmpdir());
    snprintf(path, sizeof path, "%s/exp/deep", root);
    t_ok(fs_mkdirs(path, &e), &e);
    snprintf(path, sizeof path, "%s/exp/deep/one.csv", root);
    add(path, "step,train/loss,val/loss,tokens_per_second\n1,4,5,100\n2,3,4,200\n");
    snprintf(path, sizeof path, "%s/exp/around", root);
    t_eq(symlink("..", path), 0); /* leads in circles */
    snprintf(path, sizeof path, "%s/notes.md", root);
    add(path, "step,loss\n1,1\n");
    snprintf(path, sizeof path, "%s/words.txt", root);
    add(path, "Only some words.\n");
    t_ok(runindex_refresh(&x, root, &e), &e);
    t_eq(x.n, 1);
    t_str(x.row[0]->name, "exp/deep/one.csv");
    t_near(x.row[0]->number[RUN_STEP], 2, 0);
    t_near(x.row[0]->number[RUN_LOSS], 3, 0);
    t_near(x.row[0]->number[RUN_VAL_LOSS], 4, 0);
    t_near(x.row[0]->number[RUN_TOK_S], 200, 0);
    t_true(isnan(x.row[0]->number[RUN_FLOPS_RATIO]));
    t_eq(x.row[0]->state, RUN_LIVE);
    struct run_row *row = x.row[0];
    snprintf(path, sizeof path, "%s/exp/deep/one.csv", root);
    add(path, "3,2,3.5,250\n");
    t_ok(runindex_refresh(&x, root, &e), &e);
    t_true(x.row[0] == row); /* read on, not read again */
    t_near(row->number[RUN_STEP], 3, 0);
    t_near(row->number[RUN_VAL_LOSS], 3.5, 0);
    t_eq(row->sparks, 3);
    rest(path);
    t_ok(runindex_refresh(&x, root, &e), &e);
    t_eq(row->state, RUN_SILENT);
    t_true(run_row_age(row, clock_wall()) > 55);
    t_eq(truncate(path, 0), 0);
    add(path, "step,loss\n1,9\n");
    t_ok(runindex_refresh(&x, root, &e), &e);
    t_near(x.row[0]->number[RUN_LOSS], 9, 0);
    t_true(isnan(x.row[0]->number[RUN_VAL_LOSS]));
    t_eq(unlink(path), 0);
    t_ok(runindex_refresh(&x, root, &e), &e);
    t_eq(x.n, 0);
    runindex_release(&x);
}

T(a_list_reads_a_long_log_bit_by_bit_and_has_the_same_row_in_the_end)
{
    struct runindex some = {.poll_bytes = 1 << 20}, all = {0};
    struct err e = {0};
    char root[600], path[700], line[80];
    snprintf(root, sizeof root, "%s/long", t_tmpdir());
    snprintf(path, sizeof path, "%s/a.jsonl", root);
    t_ok(fs_mkdirs(root, &e), &e);
    FILE *f = fopen(path, "w");
    t_true(f != NULL);
    for (int i = 1; i <= 400000; i++) {
        snprintf(line, sizeof line, "{\"step\": %d, \"loss\": %.4f, \"lr\": 0.001}\n", i, 1e3 / i);
        t_true(fputs(line, f) >= 0);
    }
    t_eq(fclose(f), 0);
    t_ok(runindex_refresh(&some, root, &e), &e);
    t_eq(some.n, 1);
    t_true(runindex_is_behind(&some) && some.row[0]->is_behind);
    t_true(some.row[0]->number[RUN_STEP] > 1000 && some.row[0]->number[RUN_STEP] < 200000);
    int polls = 1;
    for (; runindex_is_behind(&some) && polls < 100; polls++)
        t_ok(runindex_refresh(&some, root, &e), &e);
    t_true(polls > 3 && polls < 30);
    t_ok(runindex_refresh(&all, root, &e), &e);
    t_true(!runindex_is_behind(&all));
    for (int i = 0; i < RUN_NUMBERS; i++)
        if (i != RUN_ETA && !isnan(all.row[0]->number[i]))
            t_near(some.row[0]->number[i], all.row[0]->number[i], 0);
    t_near(some.row[0]->number[RUN_STEP], 400000, 0);
    t_eq(some.row[0]->sparks, RUN_ROW_SPARK); /* evenly over the run, not only its ends */
    t_eq(memcmp(some.row[0]->spark, all.row[0]->spark, sizeof all.row[0]->spark), 0);
    runindex_release(&some);
    runindex_release(&all);
}

T(settings_that_come_late_do_not_take_a_run_back_to_its_start)
{
    static const char *const file[][2] = {
        {"meta.yaml", "run_name: warm\n"},
        {"metrics/loss", "1700000100000 2 7\n1700000200000 1 8\n"},
        {"params/lr", "0.1"}};
    struct err e = {0};
    struct run_row row;
    char dir[700], path[800];
    str_copy(dir, sizeof dir, in_dir("late"));
    for (size_t i = 0; i < DS_LEN(file); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, file[i][0]);
        *strrchr(path, '/') = '\0';
        t_ok(fs_mkdirs(path, &e), &e);
        snprintf(path, sizeof path, "%s/%s", dir, file[i][0]);
        add(path, file[i][1]);
        rest(path);
    }
    t_ok(run_row_read(&row, dir, &e), &e);
    t_near(row.number[RUN_STEP], 8, 0);
    t_near(row.phase.last_time, 1700000200, 0);
    run_row_release(&row);
    struct runview *v = open_view(dir);
    t_eq(v->step, 8);
    t_str(runview_config(v, "lr"), "0.1");
    runview_free(v);
}

T(a_folder_of_many_files_does_not_hide_the_next)
{
    struct runindex x = {0};
    struct err e = {0};
    char root[600], path[700];
    snprintf(root, sizeof root, "%s/crowd", t_tmpdir());
    snprintf(path, sizeof path, "%s/a", root);
    t_ok(fs_mkdirs(path, &e), &e);
    for (int i = 0; i < 5000; i++) {
        snprintf(path, sizeof path, "%s/a/%d.csv", root, i);
        FILE *f = fopen(path, "wb");
        t_true(f && fclose(f) == 0);
    }
    snprintf(path, sizeof path, "%s/b.csv", root);
    add(path, "step,loss\n1,1\n");
    t_ok(runindex_refresh(&x, root, &e), &e);
    t_true(x.is_cut);
    t_true(runindex_find(&x, "b.csv") != NULL);
    runindex_release(&x);
}

T(further_paths_are_listed_next_to_the_folder)
{
    struct runindex x = {0};
    struct err e = {0};
    char one[600], two[700];
    snprintf(one, sizeof one, "%s/also", t_tmpdir());
    snprintf(two, sizeof two, "%s/b.csv", one);
    t_ok(fs_mkdirs(one, &e), &e);
    add(two, "step,loss\n1,9\n");
    const char *also[] = {two, one};
    x.also = also;
    x.alsos = 2;
    t_ok(runindex_refresh(&x, NULL, &e), &e);
    t_eq(x.n, 1); /* the folder lists the same file: once is enough */
    runindex_release(&x);
}

T(packed_files_are_named_with_what_to_do)
{
    const char *path = in_dir("packed.csv.gz");
    struct runview *v = NULL;
    struct err e = {0};
    add(path, "\x1f\x8b\x08 not really");
    t_fails(runview_open(&v, path, &e), &e, DS_EFORMAT, "gunzip -k");
}

T(a_script_may_print_anything_before_its_first_step)
{
    const char *path = in_dir("train.log");
    struct str text = {0};
    for (int i = 0; i < 3000; i++)
        str_addf(&text, "# line %d of the script\n", i);
    for (int i = 0; i < 3000; i++)
        str_addf(&text, "iter %d: loss %.4f, time 20.00ms, mfu 10.00%%\n", i, 1.0 / (1 + i));
    add(path, str_text(&text));
    struct runview *v = open_view(path);
    t_eq(runview_series(v, "loss")->n, 3000);
    t_near(runview_series(v, "loss")->value[0], 1, 0);
    runview_free(v);
    str_release(&text);
}

T(every_failed_allocation_is_an_error_or_changes_nothing)
{
    static const char *const file[][2] = {
        {"a.csv", "step,loss,val/acc,note\n1,2.5,0.1,x\n2,2.25,0.2,\"a \"\"b\"\"\"\n3,2,0.3,z\n"},
        {"b.jsonl",
         "{\"step\": 1, \"loss\": 2.5, \"eval\": {\"acc\": 0.5}}\n{\"step\": 2, \"loss\": "
         "2.25, \"eval\": {\"acc\": 0.75}}\n"},
        {"c.log", "step 1 loss 2.5 lr 0.1\nstep 2 loss 2.25 lr 0.1\nstep 3 loss 2 lr 0.1\n"},
        {"trainer_state.json",
         "{\"log_history\": [{\"step\": 1, \"loss\": 2.5, \"epoch\": 0.5}, "
         "{\"step\": 2, \"loss\": 2.25, \"eval_loss\": 3}], \"global_step\": 2}"},
        {"run/meta.yaml", "run_name: warm\n"},
        {"run/metrics/loss", "1700000100000 2 7\n1700000200000 1 8\n"},
        {"run/params/lr", "0.1"},
    };
    struct err e = {0};
    char dir[500], path[800];
    str_copy(dir, sizeof dir, t_tmpdir());
    for (size_t i = 0; i < DS_LEN(file); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, file[i][0]);
        *strrchr(path, '/') = '\0';
        t_ok(fs_mkdirs(path, &e), &e);
        snprintf(path, sizeof path, "%s/%s", dir, file[i][0]);
        add(path, file[i][1]);
        rest(path);
    }
    for (size_t i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s/%.*s", dir, i < 4 ? 99 : 3, file[i][0]);
        t_fails_without_memory(path);
    }
}
