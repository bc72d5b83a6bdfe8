/* Text logs of other programs: what each format reads, how its bytes may be cut, and what is not a
 * log. */
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "t.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "io/foreign.h"
#include "io/runlog.h"
#include "io/runview.h"
#include "io/tfevents.h"

/* ---- files ---- */

static const char *in_dir(const char *name)
{
    static char path[8][700];
    static const char *dir;
    static int k;
    k = (k + 1) % 8;
    dir = dir ? dir : t_tmpdir();
    snprintf(path[k], sizeof path[k], "%s/%s", dir, name);
    return path[k];
}

/* Writes a file (its folders are made) that nobody has touched for a minute. */
static const char *put(const char *name, const char *text)
{
    struct err e = {0};
    const char *path = in_dir(name);
    char dir[700];
    snprintf(dir, sizeof dir, "%s", path);
    *strrchr(dir, '/') = '\0';
    t_ok(fs_mkdirs(dir, &e), &e);
    t_ok(fs_write_file(path, text, strlen(text), &e), &e);
    struct timespec then[2];
    clock_gettime(CLOCK_REALTIME, &then[0]);
    then[0].tv_sec -= 60;
    then[1] = then[0];
    t_eq(utimensat(AT_FDCWD, path, then, 0), 0);
    return path;
}

static struct runview *open_path(const char *path)
{
    struct runview *v = NULL;
    struct err e = {0};
    t_ok(runview_read(&v, path, &e), &e);
    return v;
}

static struct runview *open_text(const char *name, const char *text)
{
    return open_path(put(name, text));
}

static const struct series *series(const struct runview *v, const char *name)
{
    for (size_t i = 0; i < v->n_series; i++)
        if (strcmp(v->series[i].name, name) == 0)
            return &v->series[i];
    t_truef(0, "no series %s", name);
    return NULL;
}

static int has(const struct runview *v, const char *name)
{
    for (size_t i = 0; i < v->n_series; i++)
        if (strcmp(v->series[i].name, name) == 0)
            return 1;
    return 0;
}

/* Point i of a series, superseded ones not counted. */
static void point(const struct runview *v, const char *name, size_t i, int64_t step, double value)
{
    const struct series *s = series(v, name);
    size_t k = 0;
    for (; k < s->n && (s->is_old[k] || i > 0); k++)
        i -= !s->is_old[k];
    t_truef(k < s->n, "%s has %zu points", name, s->n);
    t_eq(s->step[k], step);
    t_truef(s->value[k] == value || (isnan(value) && isnan(s->value[k])), "%s[%zu] = %.17g, not %g",
            name, k, s->value[k], value);
}

static const char *format_of(const char *name, const char *text)
{
    const struct foreign_format *f = NULL;
    return foreign_find(put(name, text), &f) ? f->name : "";
}

/* ---- JSON ---- */

T(json_lines_have_step_and_time_by_name_and_nested_names)
{
    struct runview *v = open_text(
        "a.jsonl",
        "{\"step\": 1, \"time\": 1700000000.5, \"train\": {\"loss\": 2.5, \"x\": {\"y\": 3}}, "
        "\"ok\": true, \"note\": \"text\", \"none\": null}\n"
        "{\"train\": {\"loss\": NaN}, \"step\": 2, \"inf\": -Infinity, \"lr\": \"NaN\"}\r\n"
        "\n"
        "{\"val_loss\": 1.5}\n");
    point(v, "train.loss", 0, 1, 2.5);
    point(v, "train.loss", 1, 2, (double)NAN);
    point(v, "train.x.y", 0, 1, 3);
    point(v, "ok", 0, 1, 1);
    point(v, "inf", 0, 2, -HUGE_VAL);
    point(v, "lr", 0, 2, (double)NAN);
    point(v, "val_loss", 0, 2, 1.5); /* no step of its own: that of the line before */
    t_near(series(v, "train.loss")->time[0], 1700000000.5, 0);
    t_true(!has(v, "note") && !has(v, "step") && !has(v, "time") && !has(v, "none"));
    t_true(runview_series(v, "loss") == series(v, "train.loss"));
    t_eq(v->invalid, 0);
    runview_free(v);
}

/* "loss\0..." is not "loss", and no more of a kept name is read than it has. */
T(a_name_with_a_nul_is_invalid)
{
    struct str text = {0};
    str_add(&text, "{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\\u0000\":3}\n"
                   "{\"step\":3,\"loss\\u0000");
    for (int i = 0; i < 1 << 22; i++)
        str_add_char(&text, 'x');
    str_add(&text, "\":4}\n");
    struct runview *v = open_text("nul.jsonl", str_text(&text));
    t_eq(v->n_series, 1);
    t_eq(series(v, "loss")->n, 1);
    t_eq(v->invalid, 2);
    runview_free(v);
    str_release(&text);
}

T(steps_have_many_names)
{
    static const char *const name[] = {"Step",        "global_step",  "trainer/global_step",
                                       "iteration",   "train_step",   "train/step",
                                       "num_updates", "training_step"};
    for (size_t i = 0; i < DS_LEN(name); i++) {
        char text[200];
        snprintf(text, sizeof text,
                 "{\"epoch\":1,\"%s\":50,\"loss\":2}\n{\"epoch\":1,\"%s\":100,\"loss\":1}\n",
                 name[i], name[i]);
        struct runview *v = open_text("names.jsonl", text);
        point(v, "loss", 1, 100, 1);
        runview_free(v);
    }
}

T(a_table_whose_names_come_again_is_that_of_a_run_started_again)
{
    struct runview *v =
        open_text("again.csv", "step,loss,val\n0,5,\n1,4,9\n2,3,\n3,2,8\nstep,loss,val\n2,1.5,\n");
    t_eq(v->step, 2);
    t_eq(v->invalid, 0);
    point(v, "loss", 2, 2, 1.5);
    int valid = 0;
    for (size_t i = 0; i < series(v, "loss")->n; i++)
        valid += !series(v, "loss")->is_old[i];
    t_eq(valid, 3);
    point(v, "val", 0, 1, 9);
    runview_free(v);
    v = open_text("on.csv", "step,loss\n0,5\n1,4\nstep,loss\n2,3\n1,2\n");
    t_eq(v->step, 2);
    point(v, "loss", 1, 1, 2); /* rows may be in any order */
    point(v, "loss", 2, 2, 3);
    runview_free(v);
}

/* What is logged once per epoch, beside what has steps. */
T(an_epoch_alone_is_at_the_newest_step)
{
    struct runview *v =
        open_text("epoch.jsonl", "{\"step\":200,\"loss\":1.5}\n{\"epoch\":1,\"val_loss\":2.5}\n"
                                 "{\"step\":300,\"loss\":1.25}\n{\"lr\":4}\n");
    point(v, "val_loss", 0, 200, 2.5);
    point(v, "epoch", 0, 200, 1);
    point(v, "lr", 0, 300, 4);
    runview_free(v);
    v = open_text("epochs.jsonl", "{\"epoch\":1,\"loss\":2}\n{\"epoch\":2,\"loss\":1}\n");
    point(v, "loss", 1, 2, 1);
    runview_free(v);
}

T(the_best_name_of_a_step_wins_and_lines_without_one_are_numbered)
{
    struct runview *v = open_text("b.jsonl", "{\"epoch\":3,\"global_step\":30,\"loss\":1}\n"
                                             "{\"epoch\":4,\"global_step\":40,\"loss\":2}\n");
    point(v, "loss", 1, 40, 2);
    point(v, "epoch", 1, 40, 4);
    runview_free(v);
    v = open_text("c.jsonl", "{\"epoch\":3,\"loss\":1}\n{\"epoch\":4,\"loss\":2}\n");
    point(v, "loss", 1, 4, 2);
    runview_free(v);
    v = open_text("d.jsonl", "{\"epoch\":0.25,\"loss\":1}\n{\"epoch\":0.5,\"loss\":2}\n");
    point(v, "loss", 0, 0, 1);
    point(v, "loss", 1, 1, 2);
    point(v, "epoch", 1, 1, 0.5);
    runview_free(v);
}

T(keys_may_change_their_places_from_line_to_line)
{
    struct str text = {0};
    struct runview *v =
        open_text("places.jsonl", "{\"step\":1,\"time\":1700000000,\"iter\":5}\n"
                                  "{\"time\":1700000001,\"step\":2,\"loss\":6}\n"
                                  "{\"loss\":7,\"iter\":8,\"step\":3,\"\":4}\n"
                                  "{\"args\":9,\"st\\u0065p\":4,\"loss\":10}\n"
                                  "{\"args\":{\"n_layer\":3},\"st\\u0065p\":5,\"loss\":11}\n");
    point(v, "iter", 0, 1, 5);
    point(v, "iter", 1, 3, 8);
    point(v, "loss", 0, 2, 6);
    point(v, "loss", 1, 3, 7);
    point(v, "loss", 2, 4, 10);
    point(v, "loss", 3, 5, 11);
    point(v, "args", 0, 4, 9);
    t_near(series(v, "loss")->time[0], 1700000001, 0);
    t_str(runview_config(v, "n_layer"), "3");
    t_true(!has(v, "step") && !has(v, "time"));
    runview_free(v);
    for (int line = 0; line < 2; line++) { /* long names, and a step after many of them */
        str_add(&text, "{");
        for (int k = 0; k < 200; k++)
            str_addf(&text, "\"a_name_of_more_bytes_than_anyone_would_want_to_write_%d\":%d,", k,
                     k + line);
        str_addf(&text, "\"%s\":%d}\n", line ? "iter" : "step", 7 + line);
    }
    v = open_text("long.jsonl", text.p);
    point(v, "a_name_of_more_bytes_than_anyone_would_want_to_write_199", 0, 7, 199);
    point(v, "a_name_of_more_bytes_than_anyone_would_want_to_write_3", 1, 8, 4);
    t_true(!has(v, "step") && !has(v, "iter"));
    runview_free(v);
    str_release(&text);
}

T(times_are_recognised_by_size_and_as_text)
{
    struct runview *v =
        open_text("e.jsonl", "{\"step\":1,\"loss\":1,\"timestamp\":1700000000123}\n"
                             "{\"step\":2,\"loss\":1,\"ts\":\"2023-11-14T22:13:20.5Z\"}\n"
                             "{\"step\":3,\"loss\":1,\"date\":\"2023-11-15 00:13:20+02:00\"}\n"
                             "{\"step\":4,\"loss\":1,\"time\":30.5}\n");
    const struct series *s = series(v, "loss");
    t_near(s->time[0], 1700000000.123, 1e-6);
    t_near(s->time[1], 1700000000.5, 1e-6);
    t_near(s->time[2], 1700000000, 0);
    t_true(isnan(s->time[3]));
    point(v, "time_", 0, 4, 30.5); /* a duration, not a point in time */
    runview_free(v);
}

T(a_config_and_values_per_layer_are_read_from_json_lines)
{
    struct runview *v = open_text(
        "f.jsonl",
        "{\"config\":{\"model\":{\"n_layer\":3,\"act\":\"gelu\"},\"max_steps\":100,"
        "\"betas\":[0.9, 0.95]},\"seed\":1}\n"
        "{\"step\":10,\"loss\":1,\"alpha\":[1,2,3],\"betas\":[1,2],\"names\":[\"a\",1,2]}\n");
    t_eq(v->layers, 3);
    t_eq(v->steps_planned, 100);
    t_str(runview_config(v, "model.act"), "gelu");
    t_str(runview_config(v, "model.n_layer"), "3");
    t_str(runview_config(v, "betas"), "[0.9, 0.95]");
    t_eq(v->n_layer, 1);
    const struct layer_series *l = runview_layer(v, "alpha");
    t_true(l && l->n == 1 && l->layers == 3 && l->step[0] == 10 && l->value[2] == 3);
    runview_free(v);
    v = open_text("g.jsonl",
                  "{\"step\":10,\"loss\":1,\"other\":[7,8],\"gate_ratio\":[0.5,1],\"x\":[1]}\n"
                  "{\"step\":20,\"loss\":1,\"gate_ratio\":[0.25,null]}\n");
    t_true(runview_layer(v, "gate_ratio") && runview_layer(v, "gate_ratio")->n == 2);
    t_true(runview_layer(v, "other") && !runview_layer(v, "x"));
    runview_free(v);
}

T(lines_that_are_not_json_are_counted_and_two_objects_of_a_line_both_count)
{
    struct runview *v = open_text("h.jsonl", "\xEF\xBB\xBF{\"step\":1,\"loss\":1}\nWARNING: x\n"
                                             "{\"step\":2,\"loss\":2}{\"step\":3,\"loss\":3}\n"
                                             "{\"step\":4,\"loss\":\n{\"step\":5,\"loss\":01}\n"
                                             "{\"step\":6,\"loss\":6}\n");
    const struct series *s = series(v, "loss");
    t_eq(s->n, 4);
    point(v, "loss", 2, 3, 3);
    point(v, "loss", 3, 6, 6);
    runview_free(v);
}

T(an_array_of_objects_is_read_whole_and_a_half_written_one_waited_for)
{
    const char *whole = "[\n  {\"step\": 1, \"eval/loss\": 2.5},\n  7, [1],\n"
                        "  {\"step\": 2, \"eval/loss\": NaN}\n]";
    struct runview *v = open_text("i.json", whole);
    point(v, "eval/loss", 0, 1, 2.5);
    point(v, "eval/loss", 1, 2, (double)NAN);
    runview_free(v);
    for (size_t n = 37; n < strlen(whole); n++) { /* never a value of a half file */
        char text[200];
        struct err e = {0};
        snprintf(text, sizeof text, "%.*s", (int)n, whole);
        t_ok(runview_open(&v, put("half.json", text), &e), &e);
        t_eq(v->n_series, 0);
        runview_free(v);
    }
    struct err e = {0};
    t_fails(runview_read(&v, put("bad.json", "[{\"step\":1,\"loss\":1},{\"step\":1,}]"), &e), &e,
            DS_EFORMAT, "offset");
}

T(a_file_that_is_read_whole_may_be_larger_than_what_is_read_at_once)
{
    struct str text = {0};
    str_add_char(&text, '[');
    for (int i = 0; i < 100000; i++)
        str_addf(&text, "%s{\"step\": %d, \"loss\": %d.5}", i ? ",\n" : "", i, i);
    str_add_char(&text, ']');
    struct runview *v = open_text("big.json", text.p);
    t_eq(series(v, "loss")->n, 100000);
    point(v, "loss", 99999, 99999, 99999.5);
    runview_free(v);
    str_release(&text);
}

T(documents_and_data_sets_of_json_are_not_logs)
{
    t_str(format_of("config.json", "{\"hidden_size\": 64, \"vocab_size\": 100}"), "");
    t_str(format_of("pretty.json", "{\n  \"step\": 64,\n  \"loss\": 100\n}\n"), "");
    t_str(format_of("results.json", "{\"results\":{\"acc\":0.5},\"config\":{\"n\":1}}"), "");
    t_str(format_of("data.jsonl", "{\"text\":\"abc\",\"label\":1}\n{\"text\":\"d\",\"label\":0}\n"),
          "");
    t_str(format_of("data.json", "[{\"question\":\"abc\",\"label\":1},{\"question\":\"d\"}]"), "");
    t_str(format_of("words.jsonl", "{\"a\":\"b\"}\n{\"a\":\"c\"}\n"), "");
    t_str(format_of("one.jsonl", "{\"step\":0,\"loss\":1}\n"), "jsonl");
    t_str(format_of("two.txt", "{\"loss\":2,\"acc\":1}\n{\"loss\":1,\"acc\":1}\n"), "jsonl");
}

/* ---- tables ---- */

T(tables_are_read_with_any_separator_quotes_and_decimal_commas)
{
    struct runview *v =
        open_text("a.tsv", "step\t\"lo\tss\"\t\"a \"\"b\"\"\"\r\n0\t1\t2\r\n5\t\"3\"\t\r\n");
    point(v, "lo\tss", 1, 5, 3);
    point(v, "a \"b\"", 0, 0, 2);
    t_eq(series(v, "a \"b\"")->n, 1);
    runview_free(v);
    v = open_text("b.csv", "\xEF\xBB\xBFstep;loss;lr\n0;1,5;1e-3\n1;1,25;2.5\n");
    point(v, "loss", 1, 1, 1.25);
    point(v, "lr", 1, 1, 2.5);
    runview_free(v);
    v = open_text("c.csv", "step,note,loss\n0,\"two\nlines, quoted\",1\n1,\"x\",2\n");
    point(v, "loss", 1, 1, 2);
    t_eq(v->invalid, 0);
    runview_free(v);
    v = open_text("d.csv", "# made by numpy\n# step|loss\n0|2.5\n10|2.25\n");
    point(v, "loss", 1, 10, 2.25);
    runview_free(v);
    v = open_text("e.csv", "step,mmlu|acc|5,arc|acc|25\n0,0.5,0.25\n9,0.75,0.5\n");
    point(v, "arc|acc|25", 1, 9, 0.5);
    runview_free(v);
    v = open_text("f.csv", "step,0,1,nan\n0,0.5,0.25,3\n9,0.75,0.5,4\n");
    point(v, "1", 1, 9, 0.5);
    point(v, "nan", 1, 9, 4);
    runview_free(v);
}

T(the_step_of_a_table_is_named_or_first_or_the_line)
{
    struct runview *v =
        open_text("a.csv", "loss,epoch,Step,time\n1,0,10,1700000000\n2,1,20,1700000001\n");
    point(v, "loss", 1, 20, 2);
    point(v, "epoch", 1, 20, 1);
    t_near(series(v, "loss")->time[1], 1700000001, 0);
    runview_free(v);
    v = open_text("b.csv", "Schritt,loss\n5,1\n10,2\n");
    point(v, "loss", 1, 10, 2);
    t_true(!has(v, "Schritt"));
    runview_free(v);
    v = open_text("c.csv", "loss,acc\n5,1\n2.5,0.5\n");
    point(v, "loss", 0, 0, 5);
    point(v, "loss", 1, 1, 2.5);
    runview_free(v);
    v = open_text("d.csv", ",global_step,loss\n0,100,1\n1,200,2\n"); /* the index of a data frame */
    point(v, "loss", 1, 200, 2);
    t_eq(v->n_series, 1);
    runview_free(v);
}

T(cells_that_are_not_numbers_are_missing_counted_or_named)
{
    struct runview *v =
        open_text("a.csv", "step,loss,ok,phase,lr\n1,nan,True,warm,1\n2,N/A,False,main,x\n"
                           "3,,True,main,2\n4,-inf,True\nx,1,True,y,1\n5,1,True,y,1,9\n"
                           "-1,1,True,y,1\n1.5,1,True,y,1\n6,,True,y,1\n,8,True,y,1\n");
    const struct series *s = series(v, "loss");
    t_eq(s->n, 3);
    point(v, "loss", 0, 1, (double)NAN);
    point(v, "loss", 1, 4, -HUGE_VAL);
    point(v, "loss", 2, 6, 8); /* without a step: that of the line before */
    point(v, "ok", 1, 2, 0);
    point(v, "lr", 1, 3, 2);
    t_true(!has(v, "phase"));
    int named = 0;
    for (size_t i = 0; i < v->n_events; i++)
        named += strcmp(v->event[i].name, "columns") == 0 && strstr(v->event[i].text, ": phase");
    t_eq(named, 1);
    runview_free(v);
}

T(texts_in_a_column_count_as_invalid_once_it_has_one_number)
{
    struct runview *v = open_text("a.csv", "step,loss,acc\n1,x,1\n2,y,1\n");
    t_eq(v->invalid, 0);
    runview_free(v);
    v = open_text("b.csv", "step,loss,acc\n1,x,1\n2,y,1\n3,5,1\n");
    t_eq(v->invalid, 2);
    runview_free(v);
}

T(exports_of_tensorboard_and_wandb_have_the_names_of_their_metrics)
{
    struct runview *v =
        open_text("run-train-tag-loss_a.csv",
                  "Wall time,Step,Value\n1700000000.5,0,2.5\n1700000001.5,10,2.25\n");
    point(v, "loss_a", 1, 10, 2.25);
    t_near(series(v, "loss_a")->time[1], 1700000001.5, 0);
    runview_free(v);
    v = open_text("wandb.csv",
                  "\"Step\",\"fine-run - loss\",\"fine-run - loss__MIN\",\"fine-run - loss__MAX\","
                  "\"fine-run - lr\",\"fine-run - lr__MIN\",\"fine-run - lr__MAX\"\n"
                  "\"0\",\"2.5\",\"2.5\",\"2.5\",\"\",\"\",\"\"\n\"1\",\"2\",\"2\",\"2\",\"1\","
                  "\"1\",\"1\"\n");
    point(v, "loss", 1, 1, 2);
    point(v, "lr", 0, 1, 1);
    t_eq(v->n_series, 2);
    runview_free(v);
    v = open_text("two.csv",
                  "Step,a - loss,a - loss__MIN,a - loss__MAX,b - loss,b - loss__MIN,b - loss__MAX\n"
                  "0,1,1,1,2,2,2\n");
    point(v, "a - loss", 0, 0, 1);
    point(v, "b - loss", 0, 0, 2);
    runview_free(v);
}

T(a_folder_of_lightning_has_its_settings)
{
    put("version_0/hparams.yaml", "model:\n  layers: 4\nlr: 0.001\n");
    put("version_0/metrics.csv", "epoch,step,train_loss,val_loss\n0,0,2.5,\n0,10,,2.25\n");
    struct runview *v = open_path(in_dir("version_0"));
    point(v, "train_loss", 0, 0, 2.5);
    point(v, "val_loss", 0, 10, 2.25);
    t_str(runview_config(v, "model.layers"), "4");
    t_true(runview_series(v, "loss") == series(v, "train_loss"));
    runview_free(v);
}

/* RFC 4180: 5" is a length. */
T(a_comma_is_not_decimal_next_to_points)
{
    struct runview *v =
        open_text("point.tsv", "step\ttokens\tloss\n1\t12,500\t2.5\n2\t25,000\t2\n");
    point(v, "loss", 1, 2, 2);
    t_true(!has(v, "tokens")); /* neither 12.5 nor a guess */
    runview_free(v);
    v = open_text("comma.tsv", "step\tlr\tloss\n1\t0,5\t2,25\n");
    point(v, "lr", 0, 1, 0.5);
    point(v, "loss", 0, 1, 2.25);
    runview_free(v);
}

T(a_quote_inside_of_a_cell_is_a_character)
{
    struct runview *v =
        open_text("inch.csv", "step,loss,note\n1,2.0,5\" pipe\n2,1.5,x\n"
                              "3,1.25,6\" pipe\n4,1,\"a\nb\"\n5,0.5, \"c\"\"\n\"\n");
    t_eq(series(v, "loss")->n, 5);
    point(v, "loss", 1, 2, 1.5);
    point(v, "loss", 4, 5, 0.5);
    t_eq(v->invalid, 0);
    runview_free(v);
}

T(text_with_commas_is_not_a_table)
{
    t_str(format_of("a.txt", "Dear all,\nthanks, and see you, soon\n"), "");
    t_str(format_of("b.txt", "a,b\n1,2,3\n"), "");
    t_str(format_of("c.py", "import os, sys\nx = 1, 2\n"), "");
    t_str(format_of("questions.csv", "Which?,a,b,A\nWho?,c,d,B\n"), "");
    t_str(format_of("experts.csv", "token,layer,expert,weight\n0,0,1,0.5\n"), "");
    t_str(format_of("experts.csv", "step,token,layer_id,expert\n0,0,0,1\n"), "");
    t_str(format_of("moe.csv", "step,loss,experts\n1,2.5,8\n2,2.25,8\n"), "csv"); /* a metric */
    t_str(format_of("data.bin", "step,loss\n\x01\x02,2\n"), "");
    t_str(format_of("d.txt", "step,loss\n1,2\n"), "csv");
    t_str(format_of("e.csv", "step,loss\n"), "csv");
}

/* ---- epochs ---- */

static void steps_are(const char *name, const char *text, const char *metric, int n,
                      const int64_t *step)
{
    struct runview *v = open_text(name, text);
    for (int i = 0; i < n; i++)
        point(v, metric, (size_t)i, step[i], 10 - i);
    int valid = 0;
    for (size_t i = 0; i < series(v, metric)->n; i++)
        valid += !series(v, metric)->is_old[i];
    t_eq(valid, n);
    runview_free(v);
}

T(steps_that_tables_and_objects_count_anew_in_each_epoch_go_on)
{
    static const int64_t six[] = {0, 10, 20, 21, 31, 41}, four[] = {1, 2, 3, 4};
    steps_are("anew.csv", "epoch,step,loss\n0,0,10\n0,10,9\n0,20,8\n1,0,7\n1,10,6\n1,20,5\n",
              "loss", 6, six);
    steps_are("anew.jsonl",
              "{\"epoch\":0,\"step\":0,\"loss\":10}\n{\"epoch\":0,\"step\":10,\"loss\":9}\n"
              "{\"epoch\":0,\"step\":20,\"loss\":8}\n{\"step\":0,\"epoch\":1,\"loss\":7}\n"
              "{\"loss\":6,\"step\":10,\"epoch\":1}\n{\"epoch\":1,\"step\":20,\"loss\":5}\n",
              "loss", 6, six);
    steps_are("one.csv", "epoch,iter,loss\n1,1,10\n1,2,9\n2,1,8\n2,2,7\n", "loss", 4, four);
    steps_are("back.csv",
              "epoch,step,loss\n1,1,1\n1,2,1\n2,1,1\n2,2,1\n1,1,10\n1,2,9\n2,1,8\n2,2,7\n", "loss",
              4, four);
    steps_are("global.csv", "epoch,step,loss\n0,1,10\n0,2,9\n1,3,8\n1,4,7\n", "loss", 4, four);
    steps_are("results.jsonl", /* of an epoch, at its number */
              "{\"epoch\":0,\"step\":50,\"a\":1}\n{\"epoch\":1,\"step\":1,\"loss\":10}\n"
              "{\"epoch\":1,\"step\":100,\"a\":1}\n{\"epoch\":2,\"step\":2,\"loss\":9}\n",
              "loss", 2, four);
}

T(an_epoch_of_several_rows_is_not_a_step)
{
    static const int64_t five[] = {1, 2, 3, 4, 5};
    steps_are("batches.csv", "epoch,batch,loss\n1,0,10\n1,1,9\n1,2,8\n2,0,7\n2,1,6\n", "loss", 5,
              five);
    steps_are("batches.jsonl",
              "{\"epoch\":1,\"loss\":10}\n{\"epoch\":1,\"loss\":9}\n{\"epoch\":1,\"loss\":8}\n"
              "{\"epoch\":2,\"loss\":7}\n{\"epoch\":2,\"loss\":6}\n",
              "loss", 5, five);
    steps_are("named.csv",
              "epoch,model,time,loss\n1,a,0:01,10\n1,a,0:02,9\n1,a,0:03,8\n2,a,0:04,7\n", "loss", 4,
              five);
    steps_are("named.jsonl",
              "{\"epoch\":1,\"run\":\"a\",\"time\":\"0:01\",\"loss\":10}\n"
              "{\"epoch\":1,\"run\":\"a\",\"time\":\"0:02\",\"loss\":9}\n"
              "{\"epoch\":2,\"run\":\"a\",\"time\":\"0:03\",\"loss\":8}\n",
              "loss", 3, five);
    steps_are("writers.csv", "epoch,loss,val_loss\n1,10,\n1,,3\n2,9,\n2,,2\n", "loss", 2, five);
    steps_are("writers.jsonl",
              "{\"epoch\":1,\"loss\":10}\n{\"epoch\":1,\"val_loss\":3}\n{\"epoch\":2,\"loss\":9}\n",
              "loss", 2, five);
    steps_are("phase.csv", "epoch,phase,loss\n1,train,5\n1,val,10\n2,train,4\n2,val,9\n",
              "val/loss", 2, five);
    steps_are("phase.jsonl",
              "{\"epoch\":1,\"phase\":\"train\",\"loss\":5}\n{\"epoch\":1,\"phase\":\"val\","
              "\"loss\":10}\n"
              "{\"epoch\":2,\"phase\":\"val\",\"loss\":9}\n",
              "val/loss", 2, five);
}

/* ---- console ---- */

T(the_lines_of_nanogpt_are_points)
{
    struct runview *v = open_text(
        "nano.log", "Overriding: batch_size = 12\ntokens per iteration will be: 12,288\n"
                    "number of parameters: 10.65M\n"
                    "step 0: train loss 4.2874, val loss 4.2823\n"
                    "iter 0: loss 4.2664, time 28812.40ms, mfu -100.00%\n"
                    "\033"
                    "7\x1b]0;a title\a\x1b[32miter 10: loss nan, time 1.5s, mfu 12.50%\x1b[0m\033"
                    "8\n"
                    "saving checkpoint 3 to out\n"
                    "step 250: train loss 2.0, val loss 2.125\n");
    t_eq(v->n_series, 5);
    point(v, "train loss", 1, 250, 2);
    point(v, "val loss", 1, 250, 2.125);
    point(v, "loss", 0, 0, 4.2664);
    point(v, "loss", 1, 10, (double)NAN);
    point(v, "step_ms", 1, 10, 1500);
    t_eq(series(v, "mfu")->n, 1); /* -100 %: not known yet */
    point(v, "mfu", 0, 10, 0.125);
    t_str(runview_config(v, "batch_size"), "12");
    t_true(runview_series(v, "val_loss") == series(v, "val loss"));
    runview_free(v);
}

T(the_lines_of_llm_c_are_points)
{
    struct runview *v =
        open_text("llmc.log", "| sequence length T     | 1024                 |\nval loss 11.009\n"
                              "step    1/100 | loss 11.0 (+nanz)| norm 15.5 (+nanz)| lr 8.5e-07 | "
                              "3056.5 ms | 42.5% bf16 MFU | 171547 tok/s\n"
                              "step    2/100 | loss 10.5 (+0.13z)| norm 15.0 (-1.2z)| lr 1e-06 | "
                              "2991.5 ms | 43.5% bf16 MFU | 175276 tok/s\nval loss 10.25\n");
    t_eq(v->n_series, 7);
    t_eq(v->steps_planned, 100);
    point(v, "loss", 1, 2, 10.5);
    point(v, "norm", 1, 2, 15);
    point(v, "lr", 1, 2, 1e-6);
    point(v, "step_ms", 1, 2, 2991.5);
    point(v, "mfu", 1, 2, 0.435);
    point(v, "tok/s", 1, 2, 175276);
    point(v, "val loss", 0, 0, 11.009);
    point(v, "val loss", 1, 2, 10.25);
    t_str(runview_config(v, "sequence length T"), "1024");
    runview_free(v);
    v = open_text("main.log",
                  "s:0 tel:11.0008\ns:0 trl:10.99 lr:0.000001 norm:15.4\ns:250 tel:6.5\n"
                  "s:250 eval:0.25\n");
    point(v, "tel", 1, 250, 6.5);
    point(v, "trl", 0, 0, 10.99);
    point(v, "eval", 0, 250, 0.25);
    t_true(runview_series(v, "val_loss") == series(v, "tel"));
    t_true(runview_series(v, "loss") == series(v, "trl"));
    runview_free(v);
}

T(the_lines_of_other_trainers_are_points)
{
    struct runview *v = open_text(
        "megatron.log",
        "  hidden_size ............................. 768\n"
        " [2024-05-01 12:00:00] iteration       10/  1000 | consumed samples:          80 | "
        "elapsed "
        "time per iteration (ms): 123.5 | learning rate: 1.000000E-04 | lm loss: 1.037500E+01 | "
        "grad "
        "norm: 1.25 | number of nan iterations:   0 |\n"
        " validation loss at iteration 10 | lm loss value: 2.5E+00 | lm loss PPL: 1.0E+01 | \n"
        " [2024-05-01 12:00:01] iteration       20/  1000 | lm loss: 9.5E+00 |\n"
        " validation loss at iteration 20 on validation set | lm loss value: 2.25E+00 | \n"
        " validation loss at iteration 20 on test set | lm loss value: 3.5E+00 | \n");
    point(v, "lm loss", 0, 10, 10.375);
    point(v, "consumed samples", 0, 10, 80);
    point(v, "step_ms", 0, 10, 123.5);
    point(v, "number of nan iterations", 0, 10, 0);
    point(v, "lm loss validation", 0, 10, 2.5);
    point(v, "lm loss validation", 1, 20, 2.25);
    point(v, "lm loss test", 0, 20, 3.5);
    t_near(series(v, "lm loss")->time[1] - series(v, "lm loss")->time[0], 1, 0);
    t_str(runview_config(v, "hidden_size"), "768");
    t_true(runview_series(v, "loss") == series(v, "lm loss"));
    runview_free(v);
    v = open_text("modded.txt", "step:0/1395 val_loss:10.8258 train_time:0ms step_avg:nanms\n"
                                "step:1/1395 train_loss:10.75 train_time:123ms step_avg:61.5ms\n");
    point(v, "val_loss", 0, 0, 10.8258);
    point(v, "step_avg", 0, 0, (double)NAN);
    point(v, "step_avg", 1, 1, 61.5);
    point(v, "train_time", 1, 1, 123);
    runview_free(v);
    v = open_text("litgpt.log",
                  "Epoch 1 | iter 1 step 1 | loss train: 10.5, val: n/a | iter time: 454.5 ms "
                  "(step) remaining time: 0:12:34\n"
                  "Epoch 1 | iter 2 step 1 | loss train: 10.25, val: 10.75 | iter time: 1.5 ms\n");
    t_eq(v->n_series, 3);
    point(v, "train loss", 1, 2, 10.25);
    point(v, "val loss", 0, 2, 10.75);
    point(v, "step_ms", 0, 1, 454.5);
    runview_free(v);
    v = open_text(
        "titan.log",
        "\x1b[31m[rank0]:\x1b[39m2024-12-01 10:00:00,125 - root - INFO - \x1b[32mstep: 10  "
        "\x1b[33mloss: 7.125  grad_norm:  1.25  memory: 40.5GiB(42.30%)  tps: 5,123\x1b[0m\n"
        "step 12: train loss 4.5 (123.5 ms, 45 tok/s)\n");
    point(v, "loss", 0, 10, 7.125);
    point(v, "tps", 0, 10, 5123);
    point(v, "memory", 0, 10, 40.5);
    point(v, "tok/s", 0, 12, 45);
    runview_free(v);
}

T(thousands_and_the_letters_after_numbers_are_read)
{
    struct runview *v =
        open_text("big.log", "step 900 | loss 2.5 | tokens: 900K\nstep 1,000/12,500 | loss 2.25 | "
                             "tok/s: 1.5M | tokens: 1.25B\nstep 12,500 | loss 2 | mem: 10GB\n");
    point(v, "loss", 1, 1000, 2.25);
    point(v, "loss", 2, 12500, 2);
    point(v, "tokens", 0, 900, 9e5);
    point(v, "tokens", 1, 1000, 1.25e9);
    point(v, "tok/s", 0, 1000, 1.5e6);
    point(v, "mem", 0, 12500, 10);
    t_eq(v->steps_planned, 12500);
    runview_free(v);
}

T(steps_that_begin_anew_in_each_epoch_go_on)
{
    struct runview *v = open_text("epochs.log", "Epoch [1/3], Step [100/300], Loss: 4\n"
                                                "Epoch [1/3], Step [300/300], Loss: 3\n"
                                                "Epoch [2/3], Step [100/300], Loss: 2.5\n"
                                                "Epoch [2/3], Step [300/300], Loss: 2\n"
                                                "Epoch [3/3], Step [100/300], Loss: 1\n");
    for (size_t i = 0; i < 5; i++)
        point(v, "Loss", i, (int64_t[]){100, 300, 400, 600, 700}[i],
              (double[]){4, 3, 2.5, 2, 1}[i]);
    t_eq(v->steps_planned, 900);
    runview_free(v);
    v = open_text("epochs2.log", "Epoch 1, step 100/900, loss: 4\nEpoch 2, step 400/900, loss: 3\n"
                                 "Epoch 3, step 700/900, loss: 2\n");
    point(v, "loss", 2, 700, 2);
    t_eq(v->steps_planned, 900);
    runview_free(v);
}

T(a_run_that_was_started_again_supersedes_its_later_steps)
{
    static const char resumed[] =
        "step 0: train loss 9, val loss 9\niter 0: loss 5\niter 1: loss 4\niter 2: loss 3\n"
        "step 3: train loss 8, val loss 8\niter 3: loss 2.5\niter 4: loss 2\nTraceback (most "
        "recent)\n"
        "Resuming training from out\nstep 2: train loss 7, val loss 7\niter 2: loss 1.5\n";
    struct runview *v = open_text("resumed.log", resumed);
    t_eq(v->step, 2);
    point(v, "loss", 0, 0, 5);
    point(v, "loss", 1, 1, 4);
    point(v, "loss", 2, 2, 1.5);
    point(v, "val loss", 1, 2, 7);
    int valid = 0;
    for (size_t i = 0; i < series(v, "loss")->n; i++)
        valid += !series(v, "loss")->is_old[i];
    t_eq(valid, 3);
    runview_free(v);
    v = open_text("lags.log", /* evaluations and ranks are behind, no run is */
                  "[rank0] step 10 loss 3\n[rank1] step 9 loss 4\n[rank0] step 11 loss 2\n"
                  "saving\n[eval] step 5: acc: 0.5\nstep 12 loss 1\n[rank1] step 10 loss 5\n");
    t_eq(v->step, 12);
    point(v, "loss", 0, 10, 3);
    point(v, "loss", 2, 12, 1);
    point(v, "loss.rank1", 0, 9, 4);
    point(v, "loss.rank1", 1, 10, 5);
    point(v, "eval acc", 0, 5, 0.5);
    runview_free(v);
    v = open_text("evals.log",
                  "step 10/90 loss 3\nstep 20/90 loss 2\nevaluating\neval step 1: loss 7\n"
                  "eval step 2: loss 7\nstep 30/90 loss 1\nevaluating\neval step 1: loss 6\n"
                  "step 1/5 loss 6\nstep 40/90 loss 0.5\n");
    t_eq(v->step, 40);
    point(v, "loss", 1, 10, 3);
    point(v, "loss", 4, 40, 0.5);
    t_eq(series(v, "eval loss")->n, 3);
    runview_free(v);
}

/* The newest point that counts. */
static void newest(const struct runview *v, const char *name, int64_t step, double value)
{
    const struct series *s = series(v, name);
    size_t i = s->n;
    while (i > 0 && s->is_old[i - 1])
        i--;
    t_true(i > 0);
    t_eq(s->step[i - 1], step);
    t_near(s->value[i - 1], value, 1e-12);
}

T(earlier_steps_once_more_are_those_of_a_run_started_again)
{
    static const char first[] = "{\"step\":10,\"loss\":5}\n{\"step\":20,\"loss\":4}\n"
                                "{\"step\":20,\"val\":9}\n{\"step\":30,\"loss\":3}\n"
                                "{\"step\":40,\"loss\":2}\n{\"step\":40,\"val\":8}\n";
    char text[1000];
    snprintf(text, sizeof text, "%s{\"step\":20,\"loss\":4.5}\n{\"step\":30,\"loss\":3.5}\n",
             first);
    struct runview *v = open_text("started.jsonl", text);
    newest(v, "loss", 30, 3.5);
    newest(v, "val", 20, 9);
    t_eq(v->step, 30);
    runview_free(v);
    v = open_text("started.log", "step 10: loss 5\nstep 20: loss 4\nstep 30: loss 3\n"
                                 "step 40: loss 2\nstep 10: loss 5.5\nstep 20: loss 4.5\n");
    newest(v, "loss", 20, 4.5);
    runview_free(v);
    v = open_text("started.csv",
                  "step,loss,val\n10,5,\n20,4,\n20,,9\n30,3,\n40,2,\n40,,8\n20,4.5,\n30,3.5,\n");
    newest(v, "loss", 30, 3.5);
    runview_free(v);
    /* no run goes back here: checkpoints in the order of their names, a rank that lags by a step,
     * evaluations that count for themselves */
    v = open_text("names.jsonl", "{\"step\":1000,\"acc\":1}\n{\"step\":10000,\"acc\":4}\n"
                                 "{\"step\":2000,\"acc\":2}\n{\"step\":3000,\"acc\":3}\n");
    newest(v, "acc", 10000, 4);
    runview_free(v);
    /* one known step alone, before or after another, is no way through them again */
    v = open_text("known.jsonl", "{\"step\":10,\"acc\":1}\n{\"step\":90,\"acc\":4}\n"
                                 "{\"step\":10,\"acc\":2}\n{\"step\":30,\"acc\":3}\n");
    newest(v, "acc", 90, 4);
    runview_free(v);
    v = open_text("known3.jsonl", "{\"step\":20,\"acc\":1}\n{\"step\":30,\"acc\":2}\n"
                                  "{\"step\":90,\"acc\":4}\n{\"step\":30,\"acc\":2}\n"
                                  "{\"step\":20,\"acc\":1}\n");
    newest(v, "acc", 90, 4);
    runview_free(v);
    v = open_text("known2.jsonl", "{\"step\":30,\"acc\":1}\n{\"step\":90,\"acc\":4}\n"
                                  "{\"step\":10,\"acc\":2}\n{\"step\":30,\"acc\":3}\n");
    newest(v, "acc", 90, 4);
    runview_free(v);
    snprintf(text, sizeof text, "%s{\"step\":30,\"loss\":7}\n{\"step\":40,\"loss\":6}\n", first);
    v = open_text("lag.jsonl", text);
    newest(v, "loss", 40, 6);
    t_eq(series(v, "loss")->n, 6);
    t_eq(series(v, "loss")->is_old[4] + series(v, "loss")->is_old[5], 0);
    runview_free(v);
    snprintf(text, sizeof text,
             "%s{\"step\":1,\"eval\":7}\n{\"step\":2,\"eval\":7}\n{\"step\":3,\"eval\":7}\n"
             "{\"step\":1,\"eval\":6}\n{\"step\":2,\"eval\":6}\n",
             first);
    v = open_text("counts.jsonl", text);
    newest(v, "loss", 40, 2);
    runview_free(v);
}

T(lines_of_other_ranks_have_names_of_their_own)
{
    struct runview *v = open_text(
        "ranks.jsonl", "{\"step\":1,\"rank\":0,\"loss\":4}\n{\"step\":1,\"rank\":1,\"loss\":5}\n"
                       "{\"step\":2,\"rank\":1,\"loss\":3}\n{\"step\":2,\"rank\":0,\"loss\":2}\n");
    newest(v, "loss", 2, 2);
    newest(v, "loss.rank1", 2, 3);
    t_eq(series(v, "loss")->n, 2);
    t_eq(v->n_series, 3);
    runview_free(v);
    v = open_text("marked.jsonl", "{\"step\":1,\"loss\":4}\n{\"step\":1,\"rank\":1,\"loss\":5}\n");
    newest(v, "loss", 1, 4);
    newest(v, "loss.rank1", 1, 5);
    runview_free(v);
    v = open_text("marked.log",
                  "step 1: loss 4\n[rank1]: step 1: loss 5\n[rank0]: step 2: loss 3\n");
    newest(v, "loss", 2, 3);
    newest(v, "loss.rank1", 1, 5);
    runview_free(v);
    v = open_text("lora.jsonl",
                  "{\"step\":1,\"rank\":8,\"loss\":4}\n{\"step\":2,\"rank\":8,\"loss\":3}\n");
    newest(v, "loss", 2, 3);
    newest(v, "rank", 2, 8);
    runview_free(v);
    v = open_text("ranks.log", "[default0]:step 1: loss 4\n[default1]:step 1: loss 5\n"
                               "[default1]:step 2: loss 3\n[default0]:step 2: loss 2\n");
    newest(v, "loss", 2, 2);
    newest(v, "loss.rank1", 2, 3);
    runview_free(v);
}

T(planned_steps_are_no_metric)
{
    struct runview *v = open_text(
        "factory.jsonl",
        "{\"current_steps\":10,\"total_steps\":300,\"loss\":2.5,\"lr\":0.5,\"epoch\":0.1,"
        "\"elapsed_time\":\"0:00:10\"}\n"
        "{\"current_steps\":20,\"total_steps\":300,\"loss\":2,\"lr\":0.5,\"epoch\":0.2}\n");
    newest(v, "loss", 20, 2);
    t_eq(v->steps_planned, 300);
    t_eq(v->n_series, 3);
    runview_free(v);
}

T(arrays_that_are_not_per_layer_are_named)
{
    struct runview *v = open_text(
        "arrays.jsonl",
        "{\"step\":1,\"loss\":4,\"gate_ratio\":[0.5,0.25],\"bins\":[1,2,3],\"tags\":[\"a\"]}\n"
        "{\"step\":2,\"loss\":3,\"gate_ratio\":[0.5,0.25],\"bins\":[1,2,3]}\n");
    t_eq(v->n_events, 1);
    t_str(v->event[0].text,
          "arrays that do not hold one number per layer are not shown: bins (3 numbers)");
    t_true(runview_layer(v, "gate_ratio") != NULL);
    runview_free(v);
}

T(the_steps_of_an_epoch_are_known_once_a_line_has_said_them)
{
    struct runview *v =
        open_text("said.log", "epoch 1 step 100/300: loss 4\nepoch 1 step 200: loss 3\n"
                              "epoch 2 step 100: loss 2\nepoch 0 step 100: loss 5\n");
    for (size_t i = 0; i < 3; i++)
        point(v, "loss", i, (int64_t[]){100, 200, 400}[i], (double[]){5, 3, 2}[i]);
    runview_free(v);
}

T(epochs_without_a_number_of_steps_go_on_after_their_last)
{
    struct runview *v = open_text(
        "epochs3.log", "epoch 1 step 100: loss 4\nepoch 1 step 200: loss 3\nstep 200 val loss 9\n"
                       "epoch 2 step 100: loss 2.5\nepoch 2 step 200: loss 2\n"
                       "epoch 3 step 100: loss 1\nepoch 2 step 100: loss 0.5\n");
    for (size_t i = 0; i < 5; i++)
        point(v, "loss", i, (int64_t[]){100, 200, 300, 400, 500}[i],
              (double[]){4, 3, 0.5, 2, 1}[i]);
    point(v, "val loss", 0, 200, 9);
    t_eq(v->steps_planned, 0);
    runview_free(v);
    v = open_text("epochs4.log", "epoch 0 step 0: loss 4\nepoch 0 step 1: loss 3\n"
                                 "epoch 1 step 0: loss 2\nepoch 1 step 1: loss 1\n");
    point(v, "loss", 3, 3, 1);
    runview_free(v);
}

T(times_and_units_are_no_part_of_the_next_name)
{
    struct runview *v = open_text(
        "times.log",
        "step 1 eta: 1 day, 0:12:01 lr: 0.5 elapsed=00:01:02 remaining=01:02:03.5 loss=2.5\n"
        "step 2 eta: 0:12:00 lr: 0.25 elapsed=2m30s remaining=1h02m loss=2\n"
        "step 3 at 2024-05-01T12:00:00Z loss: 1.5 | 14:00:00+02:00 lr: 0.125\n"
        "step 4 throughput 5123 tok/s loss 1 time 30.5 ms speed: 12.5k tok/s mem: 10 GB ppl: 3\n");
    point(v, "lr", 0, 1, 0.5);
    point(v, "lr", 1, 2, 0.25);
    point(v, "lr", 2, 3, 0.125);
    for (size_t i = 0; i < 4; i++)
        point(v, "loss", i, (int64_t)i + 1, (double[]){2.5, 2, 1.5, 1}[i]);
    point(v, "throughput", 0, 4, 5123);
    point(v, "step_ms", 0, 4, 30.5);
    point(v, "speed", 0, 4, 12500);
    point(v, "mem", 0, 4, 10);
    point(v, "ppl", 0, 4, 3);
    t_eq(v->n_series, 7);
    runview_free(v);
}

T(fields_in_brackets_and_results_with_a_colon_are_read)
{
    struct runview *v = open_text("brackets.log", "[step 1/100] [loss 2.5] [lr 0.5] [12:00:01]\n"
                                                  "Validation loss: 2.25\nval lossless: 3\n");
    point(v, "loss", 0, 1, 2.5);
    point(v, "lr", 0, 1, 0.5);
    point(v, "Validation loss", 0, 1, 2.25);
    t_eq(v->n_series, 3);
    runview_free(v);
}

T(numbers_are_read_as_they_are_printed)
{
    struct runview *v =
        open_text("numbers.log",
                  "step 1 | loss 1,234.5 | reward: -1,048,576.25 | grad_norm 3 | a: 1.#QNAN\n"
                  "step 2 | loss nan | Acc@1: 40.5 | Acc@5:60 | top5:80 | learning rate 1e-3\n");
    point(v, "loss", 0, 1, 1234.5);
    point(v, "loss", 1, 2, (double)NAN);
    point(v, "reward", 0, 1, -1048576.25);
    point(v, "grad_norm", 0, 1, 3);
    point(v, "Acc@1", 0, 2, 40.5);
    point(v, "Acc@5", 0, 2, 60);
    point(v, "top5", 0, 2, 80);
    point(v, "learning rate", 0, 2, 1e-3);
    t_eq(v->n_series, 7);
    runview_free(v);
}

T(the_zone_after_a_time_counts)
{
    static const char *const line[] = {"2024-05-01T12:00:00.25Z step 1 loss 2.5\n",
                                       "2024-05-01T14:00:00.25+02:00 step 1 loss 2.5\n",
                                       "[2024-05-01 08:00:00.25-0400] step 1 loss 2.5\n"};
    for (size_t i = 0; i < DS_LEN(line); i++) {
        struct runview *v = open_text("zone.log", line[i]);
        t_near(series(v, "loss")->time[0], 1714564800.25, 1e-6);
        runview_free(v);
    }
}

T(a_progress_bar_without_a_newline_is_followed)
{
    struct str text = {0};
    for (int i = 0; i < 60000; i++)
        str_addf(&text, "\rstep %d:  10%%|#  | 1/10 [00:01<00:09, 9.9it/s, ppl=2.5, loss=%d.5]", i,
                 i % 8);
    struct runview *v = open_text("bar.log", text.p); /* 4.5 MB */
    t_eq(series(v, "loss")->n, 60000);
    point(v, "loss", 59999, 59999, 59999 % 8 + 0.5);
    t_eq(v->invalid, 0);
    runview_free(v);
    str_release(&text);
    v = open_text("bar2.log", "step 1 loss 3\rstep 2 loss 2\rstep 3 lo");
    FILE *f = fopen(in_dir("bar2.log"), "a");
    t_true(f && fputs("ss 1.5\rstep 4 loss 1\r", f) >= 0 && fflush(f) == 0);
    struct err e = {0};
    t_true(runview_poll(v, HUGE_VAL, &e) >= 0);
    t_eq(v->step, 4);
    point(v, "loss", 2, 3, 1.5);
    t_true(f && fputs("\nstep 5 loss 0.5\n", f) >= 0 && fclose(f) == 0);
    t_true(runview_poll(v, HUGE_VAL, &e) >= 0);
    t_eq(series(v, "loss")->n, 5);
    point(v, "loss", 4, 5, 0.5);
    runview_free(v);
}

T(progress_and_prose_are_passed_over)
{
    struct runview *v =
        open_text("cr.log", "step 10 loss 2.5\rstep 11 loss 2.0\r\nIn step 3 we use 4 of 5\n"
                            " 10%|#  | 1/10 [00:01<00:09, 9.9it/s, loss=2.3]\nstep 7 of 9\n");
    t_eq(v->n_series, 1);
    t_eq(series(v, "loss")->n, 2);
    point(v, "loss", 1, 11, 2);
    runview_free(v);
    t_str(
        format_of("prose.txt", "The first step 1 is to install 3 packages.\nIn step 2, run it.\n"),
        "");
    t_str(format_of("steps.md", "step 1: open the file\nstep 2: close 1 file\n"), "");
}

/* ---- other ways to print it ---- */

T(places_in_brackets_are_read)
{
    struct runview *v = open_text(
        "imagenet.log",
        "Epoch: [0][ 10/100]\tTime  0.5 ( 0.6)\tLoss 6.5e+00 (7.0e+00)\tAcc@1   0.5 (  0.10)\n"
        "Epoch: [0][ 20/100]\tTime  0.5 ( 0.6)\tLoss 6.0e+00 (7.0e+00)\tAcc@1   1.5 (  0.10)\n"
        "Test: [ 0/98]\tTime 0.5\tLoss 5.0\n * Acc@1 10.1 Acc@5 20.2\n"
        "Epoch: [1][ 10/100]\tTime  0.5 ( 0.6)\tLoss 5.0e+00 (7.0e+00)\tAcc@1   2.5 (  0.10)\n");
    for (size_t i = 0; i < 3; i++)
        point(v, "Loss", i, (int64_t[]){10, 20, 110}[i], (double[]){6.5, 6, 5}[i]);
    point(v, "Acc@1", 2, 110, 2.5);
    t_eq(series(v, "Loss")->n, 3);
    t_eq(v->steps_planned, 0);
    runview_free(v);
    v = open_text("swin.log",
                  "[2024-01-01 10:00:00 swin] (main.py 200): INFO Train: [0/2][10/50]\teta 0:20:00 "
                  "lr 0.5\t time 0.5 (0.6)\tloss 6.5 (6.95)\tmem 1000MB\n"
                  "[2024-01-01 10:00:00 swin] (main.py 200): INFO Train: [1/2][10/50]\teta 0:20:00 "
                  "lr 0.25\t time 0.5 (0.6)\tloss 5.5 (6.95)\tmem 1000MB\n");
    point(v, "loss", 1, 60, 5.5);
    point(v, "lr", 1, 60, 0.25);
    t_eq(v->steps_planned, 100);
    runview_free(v);
    v = open_text("timm.log",
                  "Train: 0 [  50/100 (  4%)]  Loss: 6.5 (6.95)  Time: 0.5s, 500/s  LR: 0.5\n"
                  "Train: 1 [  50/100 (  4%)]  Loss: 6.0 (6.95)  Time: 0.5s, 500/s  LR: 0.25\n");
    point(v, "Loss", 1, 150, 6);
    point(v, "LR", 1, 150, 0.25);
    point(v, "step_ms", 0, 50, 500);
    runview_free(v);
    v = open_text("tutorial.log",
                  "Epoch 1\n-----\nloss: 2.5  [   64/60000]\nloss: 2.25  [ 6464/60000]\n"
                  "Test Error: \n Accuracy: 50.9%, Avg loss: 2.1 \n\n"
                  "Epoch 2\n-----\nloss: 2.0  [   64/60000]\n");
    for (size_t i = 0; i < 3; i++)
        point(v, "loss", i, (int64_t[]){64, 6464, 60064}[i], (double[]){2.5, 2.25, 2}[i]);
    runview_free(v);
    v = open_text("mm.log",
                  "2024/01/01 10:00:00 - mmengine - INFO - Iter(train) [   50/40000]  lr: 0.5  "
                  "eta: 5:00:00  time: 0.5  loss: 2.5\n"
                  "2024/01/01 10:00:09 - mmengine - INFO - Iter(train) [  100/40000]  lr: 0.5  "
                  "eta: 5:00:00  time: 0.5  loss: 2\n");
    point(v, "loss", 1, 100, 2);
    t_eq(v->steps_planned, 40000);
    runview_free(v);
}

T(places_are_told_from_epochs)
{
    struct runview *v =
        open_text("batch.log", "[2025-01-01 10:00:00] Epoch [1/10] Batch [100/1000] Loss: 2.5\n"
                               "[2025-01-01 10:00:01] Epoch [2/10] Batch [100/1000] Loss: 2\n");
    point(v, "Loss", 1, 1100, 2);
    t_eq(v->steps_planned, 10000);
    runview_free(v);
    v = open_text("round.log", "Epoch:[1/2](100/1000) loss:2.5 lr:0.5 epoch_Time:12.3min:\n"
                               "Epoch:[2/2](100/1000) loss:2 lr:0.5 epoch_Time:12.3min:\n");
    point(v, "loss", 1, 1100, 2);
    runview_free(v);
    v = open_text("llama2c.log", "1000 | loss 2.5 | lr 5e-04 | 123.5ms | mfu 12.5%\n"
                                 "1010 | loss 2 | lr 5e-04 | 123.5ms | mfu 12.5%\n");
    point(v, "loss", 1, 1010, 2);
    point(v, "mfu", 0, 1000, 0.125);
    point(v, "step_ms", 0, 1000, 123.5);
    runview_free(v);
}

T(progress_bars_with_metrics_are_read)
{
    struct runview *v = open_text(
        "bars.log", "Epoch 1/2:  50%|#  | 50/100 [00:01<00:01, 50it/s, v_num=3, loss=2.5]\r"
                    "Epoch 1/2: 100%|#  | 100/100 [00:01<00:00, 50it/s, v_num=3, loss=2.25]\n"
                    "Validation: 100%|#| 10/10 [00:01<00:00, 9it/s, loss=9]\n"
                    "Epochs: 50%|#| 1/2 [00:01<00:01, 1s/it, loss=2.4, val_loss=2.3]\r"
                    "Epoch 2/2:  50%|#  | 50/100 [00:01<00:01, 50it/s, v_num=3, loss=2]\r");
    for (size_t i = 0; i < 3; i++)
        point(v, "loss", i, (int64_t[]){50, 100, 150}[i], (double[]){2.5, 2.25, 2}[i]);
    point(v, "val_loss", 0, 100, 2.3);
    t_eq(v->n_series, 2);
    t_eq(v->steps_planned, 200);
    runview_free(v);
    v = open_text("described.log", "1|5|Loss: 2.5:   1%|  | 5/500 [00:10<10:00, 1.0it/s]\r"
                                   "1|6|Loss: 2.0:   1%|  | 6/500 [00:10<10:00, 1.0it/s]\r");
    point(v, "Loss", 1, 6, 2);
    runview_free(v);
    v = open_text("sets.log", "Fitting value: 50%|#  | 50/100 [00:01<00:01, 50it/s, loss=2.5]\r"
                              "[dev]: 40%|#  | 4/10 [00:01<00:01, 50it/s, loss=9]\r"
                              "Evaluate: 40%|#  | 4/10 [00:01<00:01, 50it/s, loss=9]\r"
                              "Fitting value: 60%|#  | 60/100 [00:01<00:01, 50it/s, loss=2]\r");
    point(v, "loss", 0, 50, 2.5);
    point(v, "loss", 1, 60, 2);
    t_eq(v->n_series, 1);
    runview_free(v);
    t_str(format_of("files.log", "a: 10%|# | 1/10 [00:01<00:09, 9it/s, file=3]\n"
                                 "a: 20%|# | 2/10 [00:01<00:09, 9it/s, file=4]\n"),
          "");
}

T(bars_of_lightning_are_read)
{
    struct runview *v =
        open_text("lightning.log", "Epoch 0: 100%|#| 8/8 [00:00<00:00, 9it/s, v_num=0, loss=2.5]\r"
                                   "Epoch 1: 100%|#| 8/8 [00:00<00:00, 9it/s, v_num=0, loss=2]"
                                   "`Trainer.fit` stopped: `max_epochs=2` reached.\n");
    point(v, "loss", 1, 16, 2);
    t_eq(v->n_series, 1);
    runview_free(v);
    v = open_text("rich.log",
                  "\rEpoch 0/1  \x1b[35m━━━╸\x1b[0m\x1b[90m━\x1b[0m 8/8 "
                  "\x1b[2m0:00:00 • 0:00:01\x1b[0m 58.43it/s v_num: 4 train_loss: 2.5\r\n"
                  "Validation ━━━━ 2/2 0:00:00 • 0:00:00 9.00it/s\r\n"
                  "Epoch 1/1  ━━━━ 8/8 0:00:00 • 0:00:00 9.00it/s v_num: 4 "
                  "train_loss: 2 val_loss: 3`Trainer.fit` stopped: `max_epochs=2` reached.\r\n");
    point(v, "train_loss", 0, 8, 2.5);
    point(v, "train_loss", 1, 16, 2);
    point(v, "val_loss", 0, 16, 3);
    t_eq(v->n_series, 2);
    t_eq(v->steps_planned, 0);
    runview_free(v);
}

T(numbers_with_a_sign_and_words_as_values_are_read)
{
    struct runview *v = open_text(
        "signs.log", "step 1: val=None mode=pre-train loss=-nan, a: -inf, b: +inf, c: -.5, d: -3\n"
                     "step 2: val=None mode=pre-train loss=2, a: -inf, b: +inf, c: +.5, d: +3\n"
                     "Step 3 (1.2 s/step): loss=1.5, e (mean): 4\n");
    for (int i = 0; i < 2; i++) {
        point(v, "a", (size_t)i, i + 1, -HUGE_VAL);
        point(v, "b", (size_t)i, i + 1, HUGE_VAL);
        point(v, "c", (size_t)i, i + 1, i ? 0.5 : -0.5);
        point(v, "d", (size_t)i, i + 1, i ? 3 : -3);
    }
    point(v, "loss", 1, 2, 2);
    point(v, "loss", 2, 3, 1.5);
    point(v, "e (mean)", 0, 3, 4);
    t_eq(v->n_series, 6);
    runview_free(v);
}

T(lines_of_epochs_are_steps_where_nothing_finer_is_logged)
{
    struct runview *v =
        open_text("epoch.log", "Epoch 1/3, Loss: 2.5, Acc: 0.5\nEpoch 2/3, Loss: 2, Acc: 0.75\n");
    point(v, "Loss", 1, 2, 2);
    point(v, "Acc", 0, 1, 0.5);
    t_eq(v->steps_planned, 3);
    runview_free(v);
    v = open_text("means.log",
                  "Epoch 1\nstep 10: loss 3\nstep 20: loss 2\nEpoch 1: loss 2.5 val_loss 2.25\n");
    t_eq(series(v, "loss")->n, 2);
    point(v, "val_loss", 0, 20, 2.25);
    runview_free(v);
    v = open_text("anew.log",
                  "epoch: 0, loss: 3\nepoch: 1, loss: 2\nepoch: 2, loss: 1\nepoch: 0, loss: 3.5\n"
                  "epoch: 1, loss: 2.5\n");
    newest(v, "loss", 1, 2.5);
    runview_free(v);
}

T(counts_ranks_and_places_of_loggers_are_told_apart)
{
    struct runview *v = open_text(
        "draft.log", "Epoch: 1/50, batch 3/100 completed (loss: 1.25: 3%| | 3/100 [00:01<01:40]\n"
                     "Epoch: 1/50, batch 4/100 completed (loss: 1.5: 4%| | 4/100 [00:02<01:40]\n");
    point(v, "loss", 1, 4, 1.5);
    t_eq(v->n_series, 1);
    runview_free(v);
    v = open_text("sample.log", "opt: iter=  1 sample=1/100 sched=0.5 loss=8.5 dt=00:00:05\n"
                                "opt: iter=  2 sample=5/100 sched=0.25 loss=7.5 dt=00:00:05\n");
    point(v, "sched", 1, 2, 0.25);
    t_eq(v->n_series, 2);
    runview_free(v);
    v = open_text("rank.log", "INFO [train.py:9] (0/4) Epoch 1, batch 50, loss=0.5, lr: 3e-03\n"
                              "INFO [train.py:9] (0/4) Epoch 1, batch 100, loss=0.25, lr: 3e-03\n");
    point(v, "loss", 1, 100, 0.25);
    runview_free(v);
    v = open_text("clu.log", "I0101 10:00:00.1 140 logging_writer.py:48] [100] lr=0.5, loss=5\n"
                             "I0101 10:00:10.1 140 logging_writer.py:48] [200] lr=0.5, loss=4\n");
    point(v, "loss", 1, 200, 4);
    runview_free(v);
    v = open_text("pipe.log",
                  "steps: 10 loss: 2.5 iter time (s): 0.512\n"
                  "total steps: 900, loss: 9\nsteps: 20 loss: 2.25 iter time (s): 0.5\n");
    newest(v, "loss", 20, 2.25);
    t_eq(series(v, "loss")->n, 2);
    runview_free(v);
    v = open_text("said.log",
                  "train | step: 100 | output: {'training_loss': 5, 'learning_rate': 0.5}\n"
                  "train | step: 200 | output: {'training_loss': 4, 'learning_rate': 0.5}\n");
    point(v, "training_loss", 1, 200, 4);
    t_eq(v->n_series, 2);
    runview_free(v);
}

/* As the tutorials of PyTorch print them. */
T(results_below_the_name_of_an_epoch_are_those_of_it)
{
    struct runview *v =
        open_text("below.log", "Epoch 0/24\n----------\ntrain Loss: 0.5 Acc: 0.75 lr: 0.1\n"
                               "val Loss: 0.25 Acc: 0.875\n\n"
                               "Epoch 1/24\n----------\ntrain Loss: 0.375 Acc: 0.8 lr: 0.01\n"
                               "val Loss: 0.125 train Loss: 0.3125 Acc: 0.9375\n");
    point(v, "train Loss", 0, 0, 0.5);
    newest(v, "train Loss", 1, 0.3125);
    newest(v, "train Acc", 1, 0.8);
    newest(v, "val Loss", 1, 0.125);
    point(v, "val Acc", 0, 0, 0.875);
    newest(v, "val Acc", 1, 0.9375);
    newest(v, "lr", 1, 0.01);
    t_eq(v->n_series, 5);
    t_eq(v->steps_planned, 24);
    runview_free(v);
    v = open_text("finer.log", "Epoch 1\nloss: 2.5  [   64/  128]\nloss: 2  [  128/  128]\n"
                               "Test Error: \n Accuracy: 50%, Avg loss: 2.25\n");
    point(v, "Accuracy", 0, 128, 50);
    point(v, "Avg loss", 0, 128, 2.25);
    runview_free(v);
    v = open_text("anew.log", "Epoch 0\ntrain loss: 3\nEpoch 1\ntrain loss: 2\n"
                              "Epoch 0\ntrain loss: 3.5\nEpoch 1\ntrain loss: 2.5\n");
    newest(v, "train loss", 1, 2.5);
    t_eq(series(v, "train loss")->n, 4);
    runview_free(v);
    t_str(format_of("prose.log", "val loss: 2\nval loss: 3\n"), "");
}

T(bars_of_keras_are_read)
{
    static const char *const bar[] = {"[===>.....] - ETA: 0s - ", "[=========] - 1s 2ms/step - ",
                                      "\xE2\x94\x81\xE2\x94\x81 1s 2ms/step - ", "- 1s - "};
    for (size_t i = 0; i < DS_LEN(bar); i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "Epoch 1/3\n100/200 %sloss: 2.5\r200/200 %sloss: 2.25 - val_loss: 2.125\n"
                 "Epoch 2/3\n100/200 %sloss: 2\r200/200 %sloss: 1.75 - val_loss: 1.625\n"
                 "10/10 %sloss: 9\n",
                 bar[i], bar[i], bar[i], bar[i], bar[i]);
        struct runview *v = open_text("keras.log", text);
        t_eq(series(v, "loss")->n, 4);
        point(v, "loss", 1, 200, 2.25);
        point(v, "val_loss", 0, 200, 2.125);
        point(v, "loss", 2, 300, 2);
        newest(v, "loss", 400, 1.75);
        t_eq(v->steps_planned, 600);
        runview_free(v);
    }
    t_str(format_of("files.log", "1/20 - file: 3\n2/20 - file: 4\n"), "");
}

T(dictionaries_of_the_trainer_are_read)
{
    static const char lines[] =
        "{'loss': 2.5, 'grad_norm': 1.5, 'learning_rate': 5e-05, 'epoch': 0.02}\n"
        "{'eval_loss': 2.25, 'eval_runtime': 3.0, 'epoch': 0.02}\n"
        "[INFO|2025-01-01 10:00:11] callbacks:143 >> {'loss': '2.0', 'learning_rate': '2.5e-05', "
        "'epoch': '0.04'}\n"
        "{'train_runtime': 30.5, 'train_loss': 2.125, 'epoch': 0.04}\n";
    char text[1000];
    struct runview *v = open_text("trainer.log", lines);
    point(v, "loss", 0, 1, 2.5);
    point(v, "eval_loss", 0, 1, 2.25);
    point(v, "loss", 1, 2, 2);
    point(v, "learning_rate", 1, 2, 2.5e-5);
    point(v, "train_loss", 0, 2, 2.125);
    t_eq(v->n_events, 1);
    t_str(v->event[0].text, "lines without a step are counted: step N is line N");
    runview_free(v);
    snprintf(
        text, sizeof text,
        "***** Running training *****\n  Num Epochs = 3\n  Total optimization steps = 1,500\n%s",
        lines);
    v = open_text("trainer2.log", text);
    point(v, "loss", 0, 10, 2.5);
    point(v, "loss", 1, 20, 2);
    t_eq(v->steps_planned, 1500);
    t_eq(v->n_events, 0);
    runview_free(v);
    v = open_text("trainer3.log", "{'step': 100, 'loss': 2.5}\n{'eval_loss': 2.25}\n{'step': 200, "
                                  "'loss': nan, 'sub': {'a': 1}}\n");
    point(v, "loss", 0, 100, 2.5);
    point(v, "loss", 1, 200, (double)NAN);
    point(v, "eval_loss", 0, 100, 2.25);
    point(v, "sub a", 0, 200, 1);
    t_eq(v->n_series, 3);
    runview_free(v);
}

T(results_of_other_data_are_no_results_of_training)
{
    static const char *const logs[] = {
        "Epoch 1 [train] loss: 2.5 acc: 0.25 [val] loss: 3.5 acc: 0.125\n"
        "Epoch 2 [train] loss: 2 acc: 0.5 [val] loss: 3 acc: 0.375\n",
        "Epoch 1 | train: loss 2.5 acc 0.25 | val: loss 3.5 acc 0.125\n"
        "Epoch 2 | train: loss 2 acc 0.5 | val: loss 3 acc 0.375\n",
        "Epoch 1 - train loss: 2.5, acc: 0.25, val loss: 3.5, acc: 0.125\n"
        "Epoch 2 - train loss: 2, acc: 0.5, val loss: 3, acc: 0.375\n",
        "epoch 1 train(loss=2.5, acc=0.25) val(loss=3.5, acc=0.125)\n"
        "epoch 2 train(loss=2, acc=0.5) val(loss=3, acc=0.375)\n",
        "Epoch 1 train: loss=2.5, acc=0.25\nEpoch 1 val: loss=3.5, acc=0.125\n"
        "Epoch 2 train: loss=2, acc=0.5\nEpoch 2 val: loss=3, acc=0.375\n",
        "{'step': 1, 'train': {'loss': np.float64(2.5), 'acc': 0.25}, 'val': {'loss': tensor(3.5, "
        "device='cuda:0'), 'acc': 0.125}}\n"
        "{'step': 2, 'train': {'loss': 2, 'acc': 0.5}, 'val': {'loss': 3, 'acc': 0.375}}\n"};
    for (size_t i = 0; i < DS_LEN(logs); i++) {
        struct runview *v = open_text("sets.log", logs[i]);
        point(v, "train loss", 0, 1, 2.5);
        point(v, "train acc", 1, 2, 0.5);
        point(v, "val loss", 0, 1, 3.5);
        point(v, "val acc", 1, 2, 0.375);
        t_eq(v->n_series, 4);
        runview_free(v);
    }
}

T(lines_of_an_evaluation_are_told_from_those_of_training)
{
    static const char *const logs[] = {
        "[train] Epoch 1: loss=2.5, acc=0.25, lr=1\n[val] Epoch 1: loss=3.5, acc=0.125\n"
        "[train] Epoch 2: loss=2, acc=0.5, lr=1\n[val] Epoch 2: loss=3, acc=0.375\n",
        "step 1: loss=2.5 acc=0.25 lr=1\nval step 1: loss=3.5 acc=0.125\n"
        "step 2: loss=2 acc=0.5 lr=1\nval step 2: loss=3 acc=0.375\n",
        "train.py: step 1 loss=2.5 acc=0.25 lr=1\n/val/test.py: val | step 1 loss=3.5 acc=0.125\n"
        "train.py: step 2 loss=2 acc=0.5 lr=1\n/val/test.py: val | step 2 loss=3 acc=0.375\n",
        "Step 1: {'loss': 2.5, 'acc': 0.25, 'lr': 1}\nStep 1 val: {'loss': 3.5, 'acc': 0.125}\n"
        "Step 2: {'loss': 2, 'acc': 0.5, 'lr': 1}\nStep 2 val: {'loss': 3, 'acc': 0.375}\n",
        "{'step': 1, 'loss': 2.5, 'acc': 0.25, 'lr': 1}\n"
        "{'split': 'val', 'step': 1, 'loss': 3.5, 'acc': 0.125}\n"
        "{'step': 2, 'loss': 2, 'acc': 0.5, 'lr': 1}\n"
        "{'split': 'val', 'step': 2, 'loss': 3, 'acc': 0.375}\n"};
    for (size_t i = 0; i < DS_LEN(logs); i++) {
        struct runview *v = open_text("lines.log", logs[i]);
        point(v, "loss", 0, 1, 2.5);
        point(v, "acc", 1, 2, 0.5);
        point(v, "val loss", 0, 1, 3.5);
        point(v, "val acc", 1, 2, 0.375);
        t_eq(v->n_series, 5);
        runview_free(v);
    }
    struct runview *v = open_text(
        "icefall.log",
        "INFO (0/4) Epoch 1, batch 0, loss[loss=7, simple_loss=6, over 4000.00 frames. ], "
        "tot_loss[loss=8, simple_loss=5, over 4000.00 frames. ], batch size: 43, lr: 3e-03\n"
        "INFO (0/4) Epoch 1, batch 50, loss[loss=1, simple_loss=2, over 4000.00 frames. ], "
        "tot_loss[loss=4, simple_loss=3, over 184000.00 frames. ], batch size: 40, lr: 3e-03\n"
        "INFO (0/4) Epoch 1, validation: loss=1.5, simple_loss=2.5, over 944034.00 frames. \n");
    point(v, "loss", 1, 50, 1);
    point(v, "loss simple_loss", 1, 50, 2);
    point(v, "tot_loss", 1, 50, 4);
    point(v, "tot_loss simple_loss", 1, 50, 3);
    point(v, "validation loss", 0, 50, 1.5);
    point(v, "validation simple_loss", 0, 50, 2.5);
    t_eq(v->n_series, 8);
    t_eq(v->steps_planned, 0);
    runview_free(v);
}

T(objects_and_rows_of_an_evaluation_are_told_from_those_of_training)
{
    struct runview *v =
        open_text("split.jsonl", "{\"step\": 1, \"split\": \"train\", \"loss\": 2.5}\n"
                                 "{\"step\": 1, \"split\": \"val\", \"loss\": 3.5}\n"
                                 "{\"step\": 2, \"split\": \"train\", \"loss\": 2}\n"
                                 "{\"loss\": 3, \"step\": 2, \"split\": \"val\"}\n");
    point(v, "loss", 1, 2, 2);
    point(v, "val/loss", 0, 1, 3.5);
    point(v, "val/loss", 1, 2, 3);
    t_eq(v->n_series, 2);
    t_true(runview_series(v, "val_loss") == series(v, "val/loss"));
    runview_free(v);
    v = open_text("mode.csv", "mode,epoch,lr,loss\ntrain,1,0.5,2.5\nval,1,,3.5\ntrain,2,0.5,2\n"
                              "test_other,2,,3\n");
    point(v, "loss", 1, 2, 2);
    point(v, "val/loss", 0, 1, 3.5);
    point(v, "test_other/loss", 0, 2, 3);
    t_eq(v->n_series, 4);
    t_eq(v->n_events, 0);
    runview_free(v);
}

T(tables_with_a_row_for_each_number_name_their_metrics)
{
    static const char *const logs[][2] = {
        {"long.csv", "step,metric,value\n1,loss,2.5\n2,loss,2\n1,acc,0.25\n2,acc,0.5\n"},
        {"split.csv", "split,step,metric,value\ntrain,1,loss,2.5\nval,1,loss,3.5\ntrain,2,loss,2\n"
                      "train,2,acc,0.5\n"},
        {"long.jsonl", "{\"step\": 1, \"name\": \"loss\", \"value\": 2.5}\n"
                       "{\"step\": 1, \"name\": \"acc\", \"value\": 0.25}\n"
                       "{\"step\": 2, \"value\": 2, \"name\": \"loss\"}\n"
                       "{\"step\": 2, \"name\": \"acc\", \"value\": 0.5}\n"}};
    for (size_t i = 0; i < DS_LEN(logs); i++) {
        struct runview *v = open_text(logs[i][0], logs[i][1]);
        point(v, "loss", 0, 1, 2.5);
        point(v, "loss", 1, 2, 2);
        point(v, "acc", series(v, "acc")->n - 1, 2, 0.5);
        t_eq(v->n_series, i == 1 ? 3 : 2);
        t_eq(v->n_events, 0);
        runview_free(v);
    }
}

T(rows_of_several_runs_are_several_curves)
{
    static const char *const logs[][2] = {
        {"runs.csv", "run,step,loss\na,1,2.5\na,2,2\nb,1,3.5\nb,2,3\n"},
        {"mixed.csv", "step,model,loss\n1,a,2.5\n1,b,3.5\n2,a,2\n2,b,3\n"},
        {"runs.jsonl", "{\"run_id\": \"a\", \"step\": 1, \"loss\": 2.5}\n"
                       "{\"run_id\": \"a\", \"step\": 2, \"loss\": 2}\n"
                       "{\"run_id\": \"b\", \"step\": 1, \"loss\": 3.5}\n"
                       "{\"run_id\": \"b\", \"step\": 2, \"loss\": 3}\n"}};
    for (size_t i = 0; i < DS_LEN(logs); i++) {
        struct runview *v = open_text(logs[i][0], logs[i][1]);
        point(v, "loss", 0, 1, 2.5);
        point(v, "loss", 1, 2, 2);
        point(v, "b/loss", 0, 1, 3.5);
        point(v, "b/loss", 1, 2, 3);
        t_eq(v->n_series, 2);
        runview_free(v);
    }
    struct runview *s = open_text("seeds.csv", "seed,step,loss\n0,1,2.5\n0,2,2\n1,1,3.5\n1,2,3\n");
    point(s, "loss", 1, 2, 2);
    point(s, "seed1/loss", 1, 2, 3);
    runview_free(s);
    s = open_text("seeds.jsonl",
                  "{\"seed\":0,\"step\":1,\"loss\":2.5}\n{\"seed\":1,\"step\":1,\"loss\":3.5}\n"
                  "{\"seed\":0,\"step\":2,\"loss\":2}\n{\"seed\":1,\"step\":2,\"loss\":3}\n");
    point(s, "loss", 1, 2, 2);
    point(s, "seed1/loss", 1, 2, 3);
    runview_free(s);
    /* one that goes on under a new name is the same */
    struct runview *v = open_text("on.csv", "run,step,loss\na,1,3\na,2,2.5\nb,3,2\nb,4,1.5\n");
    point(v, "loss", 3, 4, 1.5);
    t_eq(v->n_series, 1);
    runview_free(v);
}

T(results_without_a_colon_are_known_by_their_last_word)
{
    struct runview *v = open_text(
        "rl.log", "update 100 | policy loss -0.5 | value loss 0.5 | the worst of 3 losses 9\n"
                  "update 200 | policy loss -0.25 | value loss 0.25 | gpu 3\n");
    point(v, "policy loss", 1, 200, -0.25);
    point(v, "value loss", 0, 100, 0.5);
    t_eq(v->n_series, 2);
    runview_free(v);
    v = open_text("lm.log",
                  "| epoch   1 |   200/ 2928 batches | lr 20.00 | ms/batch  3.33 | loss  7.5 |\n"
                  "| epoch   1 |   400/ 2928 batches | lr 20.00 | ms/batch  3.13 | loss  6.5 |\n"
                  "| end of epoch   1 | time: 15.55s | valid loss  5.5 | valid ppl   336.5\n");
    point(v, "loss", 0, 200, 7.5);
    point(v, "loss", 1, 400, 6.5);
    point(v, "valid ppl", 0, 400, 336.5);
    t_eq(v->n_series, 4); /* the time of an epoch is none of a step */
    runview_free(v);
}

T(the_results_of_pytorchs_examples_are_read)
{
    struct runview *v = open_text(
        "cifar.log",
        "[1,  2000] loss: 2.5\n[1,  4000] loss: 2\n[2,  2000] loss: 1.5\nFinished Training\n"
        "Accuracy of the network on the 10000 test images: 55 %\n");
    point(v, "loss", 1, 4000, 2);
    point(v, "loss", 2, 6000, 1.5);
    point(v, "Accuracy", 0, 6000, 55);
    t_eq(v->n_series, 2);
    runview_free(v);
    v = open_text("mnist.log", "Train Epoch: 1 [640/60000 (1%)]\tLoss: 1.5\n\n"
                               "Test set: Average loss: 0.5, Accuracy: 9830/10000 (98%)\n\n"
                               "Train Epoch: 2 [640/60000 (1%)]\tLoss: 0.5\n");
    point(v, "Test Average loss", 0, 640, 0.5);
    point(v, "Test Accuracy", 0, 640, 98);
    point(v, "Loss", 1, 60640, 0.5);
    t_eq(v->n_series, 3);
    runview_free(v);
    v = open_text("imagenet.log",
                  "Epoch: [0][ 10/100]\tLoss 6.5 (7.0)\tAcc@1   0.5 (  0.25)\n"
                  "Epoch: [0][ 20/100]\tLoss 6.0 (7.0)\tAcc@1   1.5 (  0.5)\n"
                  "Test: [ 0/79]\tLoss 6.1\n *   Acc@1 10.5 Acc@5 30.25\n* a remark 3\n"
                  "val: loss 6.25 acc 0.5\nvalid images: 300\n");
    point(v, "val Acc@1", 0, 20, 10.5);
    point(v, "val Acc@5", 0, 20, 30.25);
    point(v, "val loss", 0, 20, 6.25);
    t_eq(v->n_series, 6);
    runview_free(v);
}

T(json_that_a_logger_prints_is_read)
{
    struct runview *v =
        open_text("fairseq.log",
                  "2024-05-01 10:00:00 | INFO | train_inner | {\"epoch\": 1, \"loss\": \"8.5\", "
                  "\"num_updates\": \"100\", \"note\": \"a \\\"b\\\", c}\", \"lr\": \"1e-05\"}\n"
                  "2024-05-01 10:00:20 | INFO | train_inner | {\"epoch\": 1, \"loss\": \"7.5\", "
                  "\"num_updates\": \"200\", \"x\": [1, {\"a\": \"}\"}], \"lr\": \"2e-05\"}\n"
                  "2024-05-01 10:00:30 | INFO | valid | {\"epoch\": 1, \"valid_loss\": \"6.5\"}\n");
    point(v, "loss", 1, 200, 7.5);
    point(v, "lr", 1, 200, 2e-5);
    point(v, "valid_loss", 0, 200, 6.5);
    t_eq(v->n_series, 4);
    runview_free(v);
}

T(blocks_below_a_line_with_a_step_are_read)
{
    struct runview *v = open_text(
        "olmo.log", "2025-01-01T10:00:00.000Z INFO [olmo.train:966, rank=0] [step=10/90,epoch=0]\n"
                    "    optim/total_grad_norm=1.5\n    train/CrossEntropyLoss=10.5\n"
                    "    throughput/total_tokens=41,943,040\nSaved\n    folder=5\n"
                    "2025-01-01T10:00:09.000Z INFO [olmo.train:966, rank=0] [step=20/90,epoch=0]\n"
                    "    train/CrossEntropyLoss=9.5\n");
    point(v, "train/CrossEntropyLoss", 1, 20, 9.5);
    point(v, "throughput/total_tokens", 0, 10, 41943040);
    t_eq(v->n_series, 4);
    t_eq(v->steps_planned, 90);
    runview_free(v);
    v = open_text("composer.log",
                  "[batch=10/4800]:\n\t Train time/epoch: 0\n\t Train loss/train/total: 10.5\n"
                  "[batch=20/4800]:\n\t Train loss/train/total: 9.5\n");
    point(v, "loss/train/total", 1, 20, 9.5);
    point(v, "time/epoch", 0, 10, 0);
    runview_free(v);
    t_str(format_of("block.log", "[batch=10/90]:\n\t Train loss/a: 10.5\n\t Train loss/b: 9.5\n"),
          "console");
}

T(a_step_among_or_after_the_metrics_is_found)
{
    struct runview *v = open_text(
        "after.log", "loss: 2.5 | lr: 0.5 | step: 10 | tok/s: 20k\nloss=2, lr=0.25, step=20\n");
    point(v, "loss", 0, 10, 2.5);
    point(v, "loss", 1, 20, 2);
    point(v, "lr", 1, 20, 0.25);
    point(v, "tok/s", 0, 10, 20000);
    runview_free(v);
    v = open_text(
        "fairseq.log",
        "2020-01-01 10:00:00 | INFO | train_inner | epoch 001:    100 / 3450 loss=9.5, "
        "nll_loss=8.5, "
        "ppl=480.5, wps=12345, num_updates=100, lr=0.5, wall=35\n"
        "2020-01-01 10:00:30 | INFO | train_inner | epoch 001:    200 / 3450 loss=8.5, "
        "nll_loss=7.5, "
        "ppl=380.5, wps=12345, num_updates=200, lr=0.5, wall=65\n"
        "2020-01-01 10:10:30 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 6.5 | "
        "ppl 60.5 | num_updates 200 | best_loss 6.5\n");
    point(v, "loss", 1, 200, 8.5);
    point(v, "nll_loss", 0, 100, 8.5);
    point(v, "valid loss", 0, 200, 6.5);
    t_eq(series(v, "loss")->n, 2);
    runview_free(v);
    v = open_text("number.log", "100: loss 2.5 lr 0.5\n200: loss 2 lr 0.5\n");
    point(v, "loss", 1, 200, 2);
    runview_free(v);
    t_str(format_of("build.log",
                    "[1/2] Building C object foo.c.o: 3\n[2/2] Linking 3: 4\nEpoch 5 seconds\n"
                    "10: foo\n20: bar 3\nnote: 30% loss of 3 packets at step: 5\n"),
          "");
}

/* ---- folders ---- */

#define STATE(step, stop)                                                                          \
    "{\n  \"best_metric\": 2.5,\n  \"epoch\": 1.0,\n  \"global_step\": " step                      \
    ",\n  \"log_history\": [\n"                                                                    \
    "    {\"epoch\": 0.5, \"grad_norm\": NaN, \"learning_rate\": 5e-05, \"loss\": 3.5, \"step\": " \
    "5},\n"                                                                                        \
    "    {\"epoch\": 1.0, \"eval_loss\": 2.5, \"step\": " step "}\n  ],\n"                         \
    "  \"max_steps\": 20,\n  \"num_train_epochs\": 2,\n  \"stateful_callbacks\": "                 \
    "{\"TrainerControl\": "                                                                        \
    "{\"args\": {\"should_training_stop\": " stop                                                  \
    "}, \"attributes\": {}}},\n  \"trial_params\": null\n}"

static void state_is(const struct runview *v, int64_t step, enum run_state state)
{
    point(v, "loss", 0, 5, 3.5);
    point(v, "grad_norm", 0, 5, (double)NAN);
    point(v, "eval_loss", 0, step, 2.5);
    t_true(runview_series(v, "val_loss") == series(v, "eval_loss"));
    t_true(runview_series(v, "lr") == series(v, "learning_rate"));
    t_eq(v->steps_planned, 20);
    t_eq(v->step, step);
    t_str(run_state_name(v->state), run_state_name(state));
    t_str(runview_config(v, "best_metric"), "2.5");
}

T(the_state_of_a_trainer_and_its_newest_checkpoint_are_read)
{
    struct runview *v = open_text("trainer_state.json", STATE("10", "false"));
    state_is(v, 10, RUN_SILENT);
    runview_free(v);
    v = open_text("stopped.json", STATE("10", "true"));
    state_is(v, 10, RUN_DONE);
    runview_free(v);
    put("out/checkpoint-9/trainer_state.json", STATE("9", "false"));
    put("out/checkpoint-10/trainer_state.json", STATE("10", "false"));
    put("out/checkpoint-10/model.safetensors", "");
    put("out/runs/x/other.txt", "");
    v = open_path(in_dir("out"));
    state_is(v, 10, RUN_SILENT);
    put("out/checkpoint-20/trainer_state.json", STATE("20", "false"));
    struct err e = {0};
    double until = clock_mono() + 5;
    while (v->step < 20 && clock_mono() < until) { /* folders are listed once a second */
        clock_sleep(0.1);
        t_true(runview_poll(v, HUGE_VAL, &e) >= 0);
    }
    state_is(v, 20, RUN_DONE);
    runview_free(v);
    v = open_path(in_dir("out/checkpoint-9"));
    state_is(v, 9, RUN_SILENT);
    runview_free(v);
    put("out/trainer_state.json", STATE("10", "false")); /* of an earlier part of the run */
    v = open_path(in_dir("out"));
    state_is(v, 20, RUN_DONE);
    runview_free(v);
    put("out/trainer_state.json", STATE("20", "true"));
    put("out/checkpoint-20/trainer_state.json", STATE("20", "false"));
    v = open_path(in_dir("out"));
    state_is(v, 20, RUN_DONE);
    runview_free(v);
}

T(a_half_written_state_is_waited_for)
{
    const char *whole = STATE("10", "false");
    struct err e = {0};
    struct runview *v = NULL;
    for (size_t n = 120; n < strlen(whole); n += 7) {
        char text[1500];
        snprintf(text, sizeof text, "%.*s", (int)n, whole);
        t_ok(runview_open(&v, put("trainer_state.json", text), &e), &e);
        t_eq(v->n_series, 0);
        put("trainer_state.json", whole);
        t_true(runview_poll(v, HUGE_VAL, &e) >= 0);
        state_is(v, 10, RUN_SILENT);
        runview_free(v);
    }
}

T(a_run_of_mlflow_has_metrics_parameters_and_state)
{
    put("0/abc/metrics/loss", "1700000000000 2.5 0\n1700000001500 NaN 10\n");
    put("0/abc/metrics/val/acc/top1",
        "1700000000000 0.5 0\n1700000000000 bad 1\n1700000000000 0.75\n");
    put("0/abc/metrics/layers/0/attn/q/norm", "1700000000000 1.5 10\n");
    put("0/abc/params/model/lr", "0.001");
    put("0/abc/params/name", "two words");
    put("0/abc/tags/mlflow.runName", "fine-run");
    put("0/abc/tags/mlflow.user", "me");
    put("0/abc/artifacts/x", "1700000000000 1 1\n");
    put("0/abc/meta.yaml",
        "end_time: 1700000002000\nrun_name: 'fine-run'\nstart_time: 1\nstatus: 3\n");
    for (int k = 0; k < 2; k++) {
        struct runview *v = open_path(in_dir(k ? "0/abc/metrics" : "0/abc/"));
        point(v, "loss", 0, 0, 2.5);
        point(v, "loss", 1, 10, (double)NAN);
        point(v, "val/acc/top1", 0, 0, 0.75); /* of two at one step the last counts */
        point(v, "layers/0/attn/q/norm", 0, 10, 1.5);
        t_near(series(v, "loss")->time[1], 1700000001.5, 0);
        t_eq(v->n_series, 3);
        t_str(runview_config(v, "model/lr"), "0.001");
        t_str(runview_config(v, "name"), "two words");
        t_str(run_state_name(v->state), "done");
        runview_free(v);
    }
    put("0/abc/meta.yaml", "run_name: fine-run\nstatus: FAILED\n");
    struct runview *v = open_path(in_dir("0/abc"));
    t_str(run_state_name(v->state), "failed");
    put("0/abc/meta.yaml", "run_name: fine-run\nstatus: 1\n");
    struct err e = {0};
    t_true(runview_poll(v, HUGE_VAL, &e) >= 0);
    t_str(run_state_name(v->state), "silent");
    t_eq(v->n_series, 3);
    runview_free(v);
    for (char name[] = "0/many/params/a"; name[14] < 'm'; name[14]++)
        put(name, "1");
    put("0/many/metrics/loss", "1700000000000 2.5 0\n");
    put("0/many/tags/mlflow.runName", "many-parameters");
    put("0/many/meta.yaml", "run_name: many-parameters\nstatus: 3\n");
    for (int k = 0; k < 2; k++) {
        v = open_path(in_dir(k ? "0/many/metrics" : "0/many"));
        point(v, "loss", 0, 0, 2.5);
        runview_free(v);
    }
}

/* ---- files that change ---- */

static size_t points_after_poll(struct runview *v, const char *name)
{
    struct err e = {0};
    size_t n = 0;
    t_true(runview_poll(v, HUGE_VAL, &e) >= 0);
    for (size_t i = 0; has(v, name) && i < series(v, name)->n; i++)
        n += !series(v, name)->is_old[i];
    return n;
}

T(a_table_that_got_another_column_is_read_anew)
{
    static const char names[] =
        "epoch,learning_rate_group_0,loss_component_a,loss_component_b,loss";
    char text[700];
    snprintf(text, sizeof text, "step,%s\n1,0,1,2,3,4\n2,0,1,2,3,5\n", names);
    struct runview *v = open_text("metrics.csv", text);
    t_eq(series(v, "loss")->n, 2);
    FILE *f = fopen(in_dir("metrics.csv"), "w"); /* the same file, with the same beginning */
    t_true(f && fprintf(f, "step,%s,val_loss\n1,0,1,2,3,4,\n2,0,1,2,3,5,\n", names) > 0);
    t_true(fputs("2,,,,,,2.5\n3,0,1,2,3,6,\n", f) > 0);
    t_eq(fclose(f), 0);
    t_eq(points_after_poll(v, "val_loss"), 1);
    point(v, "val_loss", 0, 2, 2.5);
    t_eq(points_after_poll(v, "loss"), 3);
    point(v, "loss", 2, 3, 6);
    point(v, "epoch", 2, 3, 0);
    t_eq(v->invalid, 0);
    runview_free(v);
}

T(a_log_that_is_written_anew_is_read_anew)
{
    struct runview *v = open_text("train.log", "config a\nstep 1 loss 4.5\nstep 2 failed: 1\n");
    t_true(has(v, "failed"));
    FILE *f = fopen(in_dir("train.log"), "w"); /* the same file */
    t_true(f && fputs("config b\nstep 1 loss 3.5\nstep 2 loss 3.25\nstep 3 loss 3\n", f) > 0);
    t_eq(fclose(f), 0);
    t_eq(points_after_poll(v, "loss"), 3);
    point(v, "loss", 0, 1, 3.5);
    t_eq(points_after_poll(v, "failed"), 0);
    runview_free(v);
}

/* Out of an archive of another zone, or of a host whose clock is ahead. */
T(a_file_of_the_future_is_at_rest_when_it_no_longer_changes)
{
    const char *path = put("future.csv", "step,loss\n1,2\n2,1.5");
    struct timespec then[2];
    clock_gettime(CLOCK_REALTIME, &then[0]);
    then[0].tv_sec += 5 * 3600;
    then[1] = then[0];
    t_eq(utimensat(AT_FDCWD, path, then, 0), 0);
    struct err e = {0};
    struct runview *v = NULL;
    t_ok(runview_open(&v, path, &e), &e);
    size_t n = points_after_poll(v, "loss");
    t_eq(n, 1);
    for (double until = clock_mono() + 10; n < 2 && clock_mono() < until;) {
        clock_sleep(0.1);
        n = points_after_poll(v, "loss");
    }
    t_eq(n, 2);
    runview_free(v);
}

/* ---- cuts ---- */

static const char *const samples[] = {
    "{\"step\":1,\"loss\":2.25,\"train\":{\"x\":1}}\n{\"step\":12,\"loss\":-1.5e-3}\nnot json\n"
    "{\"step\":13,\"loss\":\"NaN\"}\n",
    "step,loss,\"a\nb\"\n1,2.25,3\n12,\"1.5\",\"4\"\nx,y\n13,,\"5\"\"\n\"\n14,6,7\n",
    "Schritt;loss\n1;2,25\n12;1,5\n",
    "iter 1: loss 2.25, time 12.5ms\r\niter 12: loss 1.5, time 3ms\niter 13: loss 1\riter 14: loss "
    "0.5\n",
    "1700000000000 2.25 1\n1700000001000 1.5 12\n",
};

/* Pushes text in two pieces and then lets it end, or not; the points as text. */
static void points_of(const char *text, size_t cut, size_t n, int is_end, struct str *out)
{
    struct err e = {0};
    struct runlog_entry entry;
    struct foreign_reader *r = NULL;
    t_ok(foreign_reader_stream(&r, text, strlen(text), 0, &e), &e);
    foreign_wants_points(r);
    for (int k = 0; k < 2; k++) {
        t_ok(foreign_push(r, text + (k ? cut : 0), k ? n - cut : cut, k && is_end, &e), &e);
        while (foreign_next(r, &entry, &e) > 0)
            for (size_t i = 0; i < entry.points; i++)
                str_addf(out, "%s %lld %.17g\n", entry.point[i].name,
                         (long long)entry.point[i].step, entry.point[i].value);
    }
    foreign_reader_close(r);
}

T(bytes_may_be_cut_anywhere_without_a_wrong_or_missing_value)
{
    for (size_t s = 0; s < sizeof samples / sizeof samples[0]; s++) {
        size_t n = strlen(samples[s]);
        struct str want = {0}, got = {0}, part = {0};
        points_of(samples[s], 0, n, 1, &want);
        t_true(want.len > 10);
        for (size_t cut = 0; cut <= n; cut++) {
            str_reset(&got);
            points_of(samples[s], cut, n, 1, &got);
            t_str(str_text(&got), str_text(&want));
            str_reset(&part); /* as far as it was written: a beginning of the same */
            points_of(samples[s], cut / 2, cut, 0, &part);
            t_truef(part.len <= want.len && memcmp(str_text(&part), want.p, part.len) == 0,
                    "cut at %zu: %s", cut, part.p);
        }
        str_release(&want);
        str_release(&got);
        str_release(&part);
    }
}

T(a_line_of_a_hundred_megabytes_is_passed_over)
{
    static const char *const line[][2] = {
        {"{\"step\":1,\"loss\":1}\n", "{\"step\":2,\"loss\":2}\n"},
        {"step,loss\n1,1\n", "2,2\n"},
        {"iter 1: loss 1, time 1ms\n", "iter 2: loss 2, time 1ms\n"},
    };
    size_t n = (size_t)1 << 20;
    char *block = malloc(n);
    memset(block, 'x', n);
    for (size_t k = 0; k < 3; k++) {
        struct err e = {0};
        struct runlog_entry entry;
        struct foreign_reader *r = NULL;
        size_t points = 0;
        t_ok(foreign_reader_stream(&r, line[k][0], strlen(line[k][0]), 0, &e), &e);
        foreign_wants_points(r);
        t_ok(foreign_push(r, line[k][0], strlen(line[k][0]), 0, &e), &e);
        for (int i = 0; i < 100; i++)
            t_ok(foreign_push(r, block, n, 0, &e), &e);
        t_true(foreign_left(r) < (8 << 20));
        t_ok(foreign_push(r, "\n", 1, 0, &e), &e);
        t_ok(foreign_push(r, line[k][1], strlen(line[k][1]), 1, &e), &e);
        while (foreign_next(r, &entry, &e) > 0)
            for (size_t i = 0; i < entry.points; i++, points++)
                if (strcmp(entry.point[i].name, "loss") == 0)
                    t_eq(entry.point[i].step, (int64_t)entry.point[i].value);
        t_true(points >= 2);
        t_eq(foreign_skipped(r), 1);
        foreign_reader_close(r);
    }
    free(block);
}

T(names_without_end_are_counted)
{
    struct str text = {0};
    struct err e = {0};
    struct runlog_entry entry;
    size_t points = 0;
    for (int i = 0; i < 100; i++) {
        str_addf(&text, "{\"step\":%d", i);
        for (int k = 0; k < 1000; k++)
            str_addf(&text, ",\"t%d\":%d", i * 1000 + k, k);
        str_add(&text, "}\n");
    }
    struct foreign_reader *r = NULL;
    t_ok(foreign_reader_stream(&r, text.p, text.len, 1, &e), &e);
    foreign_wants_points(r);
    t_ok(foreign_push(r, text.p, text.len, 1, &e), &e);
    while (foreign_next(r, &entry, &e) > 0)
        points += entry.points;
    t_eq(points, FOREIGN_NAMES_MAX);
    t_eq(foreign_others(r), 100000 - FOREIGN_NAMES_MAX);
    foreign_reader_close(r);
    str_release(&text);
}

static void open_million(const char *name, const char *path)
{
    double began = clock_mono();
    struct runview *v = open_path(path);
    double took = clock_mono() - began;
    t_eq(series(v, "loss")->n, 1000000);
    t_truef(series(v, "loss")->value[777] == 3.0 / 778, "not the value that was written");
    printf("1000000 points of %s (%.1f MB): open %.0f ms\n", name, (double)v->bytes / 1e6,
           1e3 * took);
    runview_free(v);
}

T(a_million_points_are_what_was_written)
{
    struct str text = {0}, table = {0}, events = {0};
    struct err e = {0};
    str_add(&table, "step,loss\n");
    for (int i = 0; i < 1000000; i++) {
        str_addf(&text, "{\"step\": %d, \"loss\": %.17g}\n", i, 3.0 / (1 + i));
        str_addf(&table, "%d,%.17g\n", i, 3.0 / (1 + i));
    }
    t_ok(fs_write_file(in_dir("big.jsonl"), text.p, text.len, &e), &e);
    t_ok(fs_write_file(in_dir("big.csv"), table.p, table.len, &e), &e);
    struct runview *v = open_path(in_dir("big.csv"));
    t_ok(tfevents_write(&events, v, &e), &e);
    t_ok(fs_write_file(in_dir("big.tfevents"), events.p, events.len, &e), &e);
    runview_free(v);
    open_million("JSON lines", in_dir("big.jsonl"));
    open_million("CSV", in_dir("big.csv"));
    open_million("TensorBoard events", in_dir("big.tfevents"));
    str_release(&text);
    str_release(&table);
    str_release(&events);
}
