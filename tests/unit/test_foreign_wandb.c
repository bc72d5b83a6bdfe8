/* W&B offline runs of hand-made bytes; files of the library are read by test_foreign_wandb.py. */
#include "foreign_bytes.h"

#include "base/fs.h"
#include "base/hash.h"
#include "io/alert.h"
#include "io/protobuf.h"
#include "io/runindex.h"

#define NAME "run-abc.wandb"

enum {
    BLOCK = 32768,
    HISTORY = 2,
    SUMMARY = 3,
    CONFIG = 5,
    STATS = 7,
    ALERT = 10,
    TELEMETRY = 11,
    RUN = 17,
    EXIT = 18,
    HEADER = 21,
    PREEMPTING = 23,
    ENVIRONMENT = 26
};

static void add_part(struct str *out, int type, const void *p, size_t n)
{
    unsigned char kind = (unsigned char)type;
    uint32_t crc = hash_crc32(hash_crc32(0, &kind, 1), p, n);
    for (int i = 0; i < 4; i++)
        str_add_char(out, (char)(crc >> 8 * i & 0xff));
    str_add_char(out, (char)(n & 0xff));
    str_add_char(out, (char)(n >> 8 & 0xff));
    str_add_char(out, (char)type);
    str_add_bytes(out, p, n);
}

/* A message, in as many parts as the blocks of the file need. */
static void add_message(struct str *out, const char *p, size_t n)
{
    for (int is_first = 1;; is_first = 0) {
        size_t left = BLOCK - out->len % BLOCK;
        for (; left < 7; left = BLOCK - out->len % BLOCK)
            str_add_char(out, '\0');
        size_t fits = left - 7 < n ? left - 7 : n;
        int is_last = fits == n;
        add_part(out, is_first && is_last ? 1 : is_first ? 2 : is_last ? 4 : 3, p, fits);
        p += fits;
        n -= fits;
        if (is_last)
            return;
    }
}

static void begin_file(struct str *out)
{
    str_add_bytes(out, ":W&B\xE1\xBE\0", 7);
}

/* A record whose content is field `number`. */
static void add_record(struct str *out, uint32_t number, const struct str *content)
{
    struct str record = {0};
    pb_add_varint(&record, 1, 7); /* num */
    pb_add_bytes(&record, number, str_text(content), content->len);
    pb_add_bytes(&record, 200, "", 0); /* _info */
    add_message(out, record.p, record.len);
    str_release(&record);
}

/* An item (field `number`) with up to two parts of a key and a JSON text. */
static void add_item(struct str *to, uint32_t number, const char *a, const char *b,
                     const char *json)
{
    struct str item = {0};
    if (b) {
        pb_add_text(&item, 2, a);
        pb_add_text(&item, 2, b);
    } else {
        pb_add_text(&item, 1, a);
    }
    pb_add_text(&item, 16, json);
    pb_add_bytes(to, number, item.p, item.len);
    str_release(&item);
}

static void add_step(struct str *to, int64_t step)
{
    struct str number = {0};
    pb_add_varint(&number, 1, (uint64_t)step);
    pb_add_bytes(to, 2, number.p, number.len);
    str_release(&number);
}

static void add_loss(struct str *out, int64_t step, const char *loss)
{
    struct str history = {0};
    add_item(&history, 1, "loss", NULL, loss);
    add_item(&history, 1, "_timestamp", NULL, "1700000000.5");
    add_step(&history, step);
    add_record(out, HISTORY, &history);
    str_release(&history);
}

static struct runview *open_run(const struct str *s)
{
    return open_bytes(NAME, s->p, s->len);
}

static void t_value(const struct runview *v, const char *name, int64_t step, double x)
{
    const struct series *s = runview_series(v, name);
    t_truef(s && s->n == 1, "%s: missing", name);
    t_eq(s->step[0], step);
    t_truef(same_bits(s->value[0], x), "%s: %.17g, expected %.17g", name, s->value[0], x);
}

T(numbers_of_the_history_are_points_under_their_joined_keys)
{
    struct str s = {0}, h = {0};
    begin_file(&s);
    add_item(&h, 1, "loss", NULL, "0.1");
    add_item(&h, 1, "train", "acc", "1e-3");
    add_item(&h, 1, "eval", NULL,
             "{\"acc\": 0.5, \"deep\": {\"x\": 2, \"nan\": NaN}, \"name\": \"a\"}");
    add_item(&h, 1, "nan", NULL, "NaN");
    add_item(&h, 1, "inf", NULL, "\"-Infinity\"");
    add_item(&h, 1, "yes", NULL, "true");
    add_item(&h, 1, "big", NULL, "1152921504606846977");
    add_item(&h, 1, "text", NULL, "\"3.5\"");
    add_item(&h, 1, "list", NULL, "[1, 2]");
    add_item(&h, 1, "none", NULL, "null");
    add_item(&h, 1, "_runtime", NULL, "3.5");
    add_item(&h, 1, "_wandb", "runtime", "3");
    add_item(&h, 1, "_step", NULL, "70");
    add_item(&h, 1, "_timestamp", NULL, "1700000000.5");
    add_record(&s, HISTORY, &h);
    struct runview *v = open_run(&s);
    t_true(v != NULL);
    t_eq(v->n_series, 9);
    t_value(v, "nan", 70, NAN);
    t_value(v, "loss", 70, 0.1);
    t_value(v, "train.acc", 70, 1e-3);
    t_value(v, "eval.acc", 70, 0.5);
    t_value(v, "eval.deep.x", 70, 2);
    t_value(v, "eval.deep.nan", 70, NAN);
    t_value(v, "inf", 70, -INFINITY);
    t_value(v, "yes", 70, 1);
    t_value(v, "big", 70, 1152921504606846977.0);
    t_near(v->series[0].time[0], 1700000000.5, 0);
    t_eq(v->invalid, 0);
    t_str(runview_foreign(v), "Weights & Biases");
    runview_free(v);
    str_release(&s);
    str_release(&h);
}

static void add_typed(struct str *history, const char *key, const struct str *value)
{
    struct str item = {0};
    pb_add_text(&item, 1, key);
    str_add_bytes(&item, value->p, value->len);
    pb_add_bytes(history, 1, item.p, item.len);
    str_release(&item);
}

T(typed_values_are_taken_as_they_are)
{
    struct str s = {0}, h = {0}, value = {0};
    begin_file(&s);
    pb_add_double(&value, 6, 0.1);
    pb_add_text(&value, 16, "0.25"); /* the typed value is the exact one */
    add_typed(&h, "number", &value);
    str_reset(&value);
    pb_add_varint(&value, 5, 13); /* zigzag */
    add_typed(&h, "integer", &value);
    str_reset(&value);
    pb_add_varint(&value, 4, 1);
    add_typed(&h, "flag", &value);
    str_reset(&value);
    pb_add_text(&value, 7, "12");
    add_typed(&h, "text", &value);
    str_reset(&value);
    pb_add_text(&value, 8, "{\"a\": 3}");
    add_typed(&h, "json", &value);
    add_step(&h, 4);
    add_record(&s, HISTORY, &h);
    struct runview *v = open_run(&s);
    t_eq(v->n_series, 4);
    t_value(v, "number", 4, 0.1);
    t_value(v, "integer", 4, -7);
    t_value(v, "flag", 4, 1);
    t_value(v, "json.a", 4, 3);
    runview_free(v);
    struct str *all[] = {&s, &h, &value};
    for (size_t i = 0; i < 3; i++)
        str_release(all[i]);
}

T(media_are_named_and_their_parts_are_not_metrics)
{
    struct str s = {0}, h = {0};
    begin_file(&s);
    add_item(&h, 1, "picture", "size", "123");
    add_item(&h, 1, "picture", "_type", "\"image-file\"");
    add_item(&h, 1, "weights", NULL, "{\"_type\": \"histogram\", \"values\": [1], \"n\": 5}");
    add_item(&h, 1, "loss", NULL, "1");
    add_step(&h, 1);
    add_record(&s, HISTORY, &h);
    struct runview *v = open_run(&s);
    t_eq(v->n_series, 1);
    t_value(v, "loss", 1, 1);
    t_str(event_text(v, "not_shown"), "1 image-file key, 1 histogram key not shown");
    runview_free(v);
    str_release(&s);
    str_release(&h);
}

T(the_run_its_configuration_and_its_end_are_known)
{
    struct str s = {0}, run = {0}, config = {0}, stats = {0}, when = {0}, summary = {0},
               alert = {0};
    struct str end = {0};
    begin_file(&s);
    add_item(&config, 1, "lr", NULL, "0.0003");
    add_item(&config, 1, "opt", NULL, "{\"name\": \"adamw\", \"betas\": [0.9, 0.95]}");
    add_item(&config, 1, "_wandb", NULL, "{\"t\": 1}");
    pb_add_text(&run, 1, "abc");
    pb_add_text(&run, 3, "moe");
    pb_add_bytes(&run, 4, config.p, config.len);
    pb_add_text(&run, 8, "warm-lake-3");
    pb_add_text(&run, 13, "node7");
    add_record(&s, RUN, &run);
    add_loss(&s, 8, "1.5");
    str_reset(&config);
    add_item(&config, 1, "lr", NULL, "0.0001");
    add_record(&s, CONFIG, &config);
    add_item(&stats, 3, "gpu.0.temp", NULL, "61.5");
    pb_add_varint(&when, 1, 1700000100);
    pb_add_varint(&when, 2, 500000000);
    pb_add_bytes(&stats, 2, when.p, when.len);
    add_record(&s, STATS, &stats);
    add_item(&summary, 1, "best", NULL, "0.75");
    add_item(&summary, 1, "loss", NULL, "1.5");
    add_item(&summary, 1, "_step", NULL, "8");
    add_record(&s, SUMMARY, &summary);
    pb_add_text(&alert, 1, "slow");
    pb_add_text(&alert, 2, "disk");
    pb_add_text(&alert, 3, "WARN");
    add_record(&s, ALERT, &alert);
    pb_add_varint(&end, 1, 3);
    add_record(&s, EXIT, &end);
    struct runview *v = open_run(&s);
    t_str(v->name, "warm-lake-3");
    t_str(v->host, "node7");
    t_eq(v->configs, 3);
    t_str(runview_config(v, "lr"), "0.0001");
    t_str(runview_config(v, "opt.name"), "adamw");
    t_str(runview_config(v, "opt.betas"), "[0.9, 0.95]");
    t_eq(v->n_series, 2);
    t_value(v, "system/gpu.0.temp", 8, 61.5);
    t_near(runview_series(v, "system/gpu.0.temp")->time[0], 1700000100.5, 0);
    t_eq(v->n_evals, 1);
    t_eq(v->eval[0].values, 1);
    t_near(runview_eval(v, "summary", "best"), 0.75, 0);
    t_str(event_text(v, "alert"), "slow: disk");
    t_eq(v->state, RUN_FAILED);
    runview_free(v);
    struct str *all[] = {&s, &run, &config, &stats, &when, &summary, &alert, &end};
    for (size_t i = 0; i < 8; i++)
        str_release(all[i]);
}

/* The alerts that hold in the row of a run with a notice of that level. */
static unsigned alerts_after(const char *level, const char *event)
{
    struct str s = {0}, run = {0}, alert = {0};
    struct run_row row;
    struct err e = {0};
    begin_file(&s);
    pb_add_text(&run, 1, "abc");
    add_record(&s, RUN, &run);
    add_loss(&s, 1, "1.5");
    pb_add_text(&alert, 1, "slow");
    if (level)
        pb_add_text(&alert, 3, level);
    add_record(&s, ALERT, &alert);
    add_loss(&s, 2, "1.25"); /* the head follows, at the end of what was read */
    struct runview *v = open_run(&s);
    t_str(event_text(v, event), "slow");
    t_ok(run_row_read(&row, v->path, &e), &e);
    unsigned alerts = (unsigned)row.number[RUN_ALERTS];
    run_row_release(&row);
    runview_free(v);
    str_release(&s);
    str_release(&run);
    str_release(&alert);
    return alerts;
}

T(a_warning_is_an_alert_and_a_notice_a_message)
{
    t_eq(alerts_after("WARN", "alert"), 1U << ALERT_OTHER);
    t_eq(alerts_after("ERROR", "alert"), 1U << ALERT_OTHER);
    t_eq(alerts_after("INFO", "message"), 0);
    t_eq(alerts_after(NULL, "message"), 0);
}

/* A message that is the field `number` of `to`, of one text field. */
static void add_inner_text(struct str *to, uint32_t number, uint32_t field, const char *text)
{
    struct str inner = {0};
    pb_add_text(&inner, field, text);
    pb_add_bytes(to, number, inner.p, inner.len);
    str_release(&inner);
}

T(the_library_the_framework_and_the_machine_are_in_the_head)
{
    static const struct {
        uint32_t field, gpus;
        const char *python, *framework, *gpu;
    } row[] = {
        {1, 4, "3.11.2", "PyTorch, Python 3.11.2", "4 x A100"},
        {3, 1, "3.9", "TensorFlow, Python 3.9", "A100"},
        {12, 1, "", "JAX", "A100"},
        {7, 1, "3.12", "Python 3.12", "A100"},
    };
    for (size_t i = 0; i < DS_LEN(row); i++) {
        struct str s = {0}, part = {0}, imports = {0}, run = {0}, when = {0};
        begin_file(&s);
        add_inner_text(&part, 1, 1, "0.19.1+abc");
        add_record(&s, HEADER, &part);
        str_reset(&part);
        pb_add_varint(&imports, row[i].field, 1);
        pb_add_varint(&imports, 9, 1); /* another library */
        pb_add_bytes(&part, 1, imports.p, imports.len);
        pb_add_varint(&part, 3, 5);
        if (row[i].python[0])
            pb_add_text(&part, 4, row[i].python);
        if (i == 0) { /* in the record of the run, else in one of its own */
            pb_add_bytes(&run, 19, part.p, part.len);
        } else {
            add_record(&s, TELEMETRY, &part);
        }
        str_reset(&part);
        pb_add_text(&part, 12, "node3");
        pb_add_text(&part, 18, "A100");
        pb_add_varint(&part, 19, row[i].gpus);
        add_record(&s, ENVIRONMENT, &part);
        pb_add_text(&run, 1, "abc"); /* without a name */
        pb_add_varint(&when, 1, 1700000000);
        pb_add_varint(&when, 2, 250000000);
        pb_add_bytes(&run, 17, when.p, when.len);
        pb_add_varint(&run, 2, 3);
        pb_add_text(&run, 7, "unknown");
        add_record(&s, RUN, &run);
        add_loss(&s, 1, "0.5");
        add_record(&s, PREEMPTING, &when);
        struct runview *v = open_run(&s);
        t_true(v != NULL);
        t_str(v->name, "abc");
        t_str(v->host, "node3");
        t_str(v->gpu, row[i].gpu);
        t_str(v->framework, row[i].framework);
        t_str(v->writer, "wandb 0.19.1");
        t_str(event_text(v, "preempting"), "the machine is taken away");
        runview_free(v);
        struct str *all[] = {&s, &part, &imports, &run, &when};
        for (size_t k = 0; k < DS_LEN(all); k++)
            str_release(all[k]);
    }
}

T(messages_cross_blocks_wherever_a_block_ends)
{
    struct str s = {0}, filler = {0};
    for (size_t before = BLOCK - 60; before <= BLOCK; before++) { /* where the message begins */
        str_reset(&s);
        str_reset(&filler);
        begin_file(&s);
        for (size_t i = s.len + 7 + 2 + 4; i < before; i++)
            str_add_char(&filler, 'x');
        struct str record = {0};
        pb_add_varint(&record, 1, 7);
        pb_add_bytes(&record, 13, filler.p, filler.len); /* output_raw */
        add_message(&s, record.p, record.len);
        t_true(s.len <= BLOCK && s.len + 80 > BLOCK);
        add_loss(&s, 3, "0.5");
        add_loss(&s, 4, "0.25");
        struct runview *v = open_run(&s);
        const struct series *loss = runview_series(v, "loss");
        t_truef(loss && loss->n == 2 && v->invalid == 0, "block ends after %zu bytes", s.len);
        t_near(loss->value[0] + loss->value[1], 0.75, 0);
        runview_free(v);
        str_release(&record);
    }
    str_release(&s);
    str_release(&filler);
}

/* Some history before, across and after the end of a block. */
static void add_run(struct str *s)
{
    struct str note = {0};
    begin_file(s);
    for (int i = 0; i < 4; i++)
        add_loss(s, i, "0.5");
    for (int i = 0; i < 33000; i++)
        str_add_char(&note, 'x');
    add_record(s, 13, &note); /* output_raw: over two blocks */
    for (int i = 4; i < 8; i++)
        add_loss(s, i, "0.25");
    str_release(&note);
}

T(a_file_cut_at_any_byte_holds_the_beginning_and_waits_for_the_rest)
{
    struct str s = {0};
    add_run(&s);
    struct runview *whole = open_run(&s);
    t_eq(runview_series(whole, "loss")->n, 8);
    size_t most = 0;
    for (size_t n = 7; n<s.len; n += n> 400 && n < s.len - 400 && n % BLOCK > 20 ? 101 : 1) {
        struct runview *v = open_bytes(NAME, s.p, n);
        t_truef(v != NULL, "cut at %zu: not recognised", n);
        t_is_beginning(v, whole);
        t_eq(v->invalid, 0);
        size_t points = v->n_series ? v->series[0].n : 0;
        t_truef(points >= most, "cut at %zu: fewer points than before", n);
        most = points;
        runview_free(v);
    }
    t_eq(most, 7);
    runview_free(whole);
    str_release(&s);
}

T(a_damaged_byte_changes_no_value_and_is_counted)
{
    struct str s = {0};
    add_run(&s);
    struct runview *whole = open_run(&s);
    for (size_t i = 7; i<s.len; i += i> 400 && i < s.len - 400 ? 101 : 1) {
        s.p[i] ^= 0x10;
        struct runview *v = open_run(&s);
        t_truef(v != NULL, "byte %zu: not recognised", i);
        t_is_subset(v, whole);
        size_t points = v->n_series ? v->series[0].n : 0;
        t_truef(points >= 4, "byte %zu: %zu points are left", i, points);
        t_truef(v->invalid == 1 || (v->invalid == 0 && v->tail > 0), "byte %zu: %d counted", i,
                (int)v->invalid);
        runview_free(v);
        s.p[i] ^= 0x10;
    }
    runview_free(whole);
    str_release(&s);
}

T(a_file_of_another_version_is_refused_with_a_reason)
{
    struct err e = {0};
    struct runview *v = NULL;
    char path[1200];
    snprintf(path, sizeof path, "%s/" NAME, t_tmpdir());
    t_ok(fs_write_file(path, ":W&B\xE1\xBE\x01", 7, &e), &e);
    t_fails(runview_open(&v, path, &e), &e, DS_EFORMAT, "unsupported version 1, expected 0");
}

T(every_failed_allocation_is_an_error_or_changes_nothing)
{
    struct str s = {0}, config = {0}, run = {0};
    char path[600];
    add_run(&s);
    add_item(&config, 1, "opt", NULL, "{\"name\": \"adamw\", \"betas\": [0.9, 0.95]}");
    pb_add_bytes(&run, 4, config.p, config.len);
    pb_add_text(&run, 8, "warm");
    add_record(&s, RUN, &run);
    add_loss(&s, 9, "0.125");
    snprintf(path, sizeof path, "%s/" NAME, t_tmpdir());
    FILE *f = fopen(path, "wb");
    t_true(f && fwrite(s.p, 1, s.len, f) == s.len && fclose(f) == 0);
    t_fails_without_memory(path);
    str_release(&run);
    str_release(&config);
    str_release(&s);
}
