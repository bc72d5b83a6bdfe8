/* TensorBoard event files of hand-made bytes; files of the library are read by
 * test_foreign_tensorboard.py. */
#include "foreign_bytes.h"

#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "io/protobuf.h"
#include "io/runindex.h"
#include "io/tfevents.h"
#include "io/tfevents_fields.h"

#define NAME "events.out.tfevents.1700000000.box"

static void add_little(struct str *s, int bytes, uint64_t v)
{
    for (int i = 0; i < bytes; i++)
        str_add_char(s, (char)(v >> 8 * i & 0xff));
}

static void add_record(struct str *out, const struct str *event)
{
    struct str head = {0};
    add_little(&head, 8, event->len);
    str_add_bytes(out, head.p, 8);
    add_little(out, 4, tfrecord_crc(head.p, 8));
    str_add_bytes(out, str_text(event), event->len);
    add_little(out, 4, tfrecord_crc(str_text(event), event->len));
    str_release(&head);
}

/* An event with one field that holds a message or text. */
static void add_event(struct str *out, int64_t step, uint32_t field, const void *p, size_t n)
{
    struct str event = {0};
    pb_add_double(&event, EVENT_WALL_TIME, 1700000000.25 + (double)step);
    if (step)
        pb_add_varint(&event, EVENT_STEP, (uint64_t)step);
    pb_add_bytes(&event, field, p, n);
    add_record(out, &event);
    str_release(&event);
}

static void add_version(struct str *out)
{
    add_event(out, 0, EVENT_FILE_VERSION, "brain.Event:2", 13);
}

/* A summary of one value: `field` of Summary.Value and, when there is one, a plugin. */
static void add_value(struct str *out, int64_t step, const char *tag, const char *plugin,
                      const struct str *field)
{
    struct str value = {0}, data = {0}, metadata = {0}, summary = {0};
    pb_add_text(&value, VALUE_TAG, tag);
    if (plugin) {
        pb_add_text(&data, 1, plugin);
        pb_add_bytes(&metadata, METADATA_PLUGIN, data.p, data.len);
        pb_add_bytes(&value, VALUE_METADATA, metadata.p, metadata.len);
    }
    str_add_bytes(&value, str_text(field), field->len);
    pb_add_bytes(&summary, SUMMARY_VALUE, value.p, value.len);
    add_event(out, step, EVENT_SUMMARY, summary.p, summary.len);
    str_release(&value);
    str_release(&data);
    str_release(&metadata);
    str_release(&summary);
}

static void add_simple(struct str *out, int64_t step, const char *tag, float x)
{
    struct str field = {0};
    pb_add_float(&field, VALUE_SIMPLE, x);
    add_value(out, step, tag, NULL, &field);
    str_release(&field);
}

static void add_tensor(struct str *out, int64_t step, const char *tag, const char *plugin,
                       const struct str *tensor)
{
    struct str field = {0};
    pb_add_bytes(&field, VALUE_TENSOR, str_text(tensor), tensor->len);
    add_value(out, step, tag, plugin, &field);
    str_release(&field);
}

static struct runview *open_events(const struct str *s)
{
    return open_bytes(NAME, s->p, s->len);
}

static void t_point(const struct runview *v, const char *name, size_t i, int64_t step, double x)
{
    const struct series *s = runview_series(v, name);
    t_truef(s && i < s->n, "%s: point %zu is missing", name, i);
    t_eq(s->step[i], step);
    t_truef(same_bits(s->value[i], x), "%s: %.17g, expected %.17g", name, s->value[i], x);
    t_near(s->time[i], 1700000000.25 + (double)step, 0);
}

T(a_simple_value_is_a_point_of_its_tag_step_and_time)
{
    struct str s = {0};
    add_version(&s);
    add_simple(&s, 0, "loss/train", 2.7f);
    add_simple(&s, 300, "loss/train", NAN);
    add_simple(&s, 1LL << 30, "loss/train", -INFINITY);
    add_simple(&s, 300,
               "a tag of 100 bytes "
               "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
               1);
    struct runview *v = open_events(&s);
    t_true(v != NULL);
    t_eq(v->n_series, 2);
    t_point(v, "loss/train", 0, 0, (double)2.7f);
    t_point(v, "loss/train", 1, 300, NAN);
    t_point(v, "loss/train", 2, 1LL << 30, -INFINITY);
    t_eq(strlen(v->series[1].name), 101);
    t_str(v->host, "box");
    t_eq(v->invalid, 0);
    t_str(runview_foreign(v), "TensorBoard events");
    runview_free(v);
    str_release(&s);
}

/* dtype, field of single values, bytes in tensor_content; x as bits of either. */
static const struct {
    int dtype;
    uint32_t field;
    int bytes;
    uint64_t bits;
    double x;
} encodings[] = {
    {1, 5, 4, 0x40200000, 2.5},
    {2, 6, 8, 0x3FB999999999999Aull, 0.1},
    {3, 7, 4, (uint64_t)-7, -7},
    {4, 7, 1, 200, 200},
    {5, 7, 2, (uint64_t)-300, -300},
    {6, 7, 1, (uint64_t)-100, -100},
    {9, 10, 8, (uint64_t)-5000000000ll, -5e9},
    {10, 11, 1, 1, 1},
    {14, 13, 2, 0x3FC0, 1.5},
    {17, 7, 2, 65535, 65535},
    {19, 13, 2, 0xC100, -2.5},
    {22, 16, 4, 4294967295u, 4294967295.0},
    {23, 17, 8, 1ull << 63, 9223372036854775808.0},
};

T(every_type_of_tensor_with_one_number_is_a_point)
{
    struct str s = {0}, tensor = {0}, shape = {0}, dim = {0}, packed = {0};
    char tag[32];
    add_version(&s);
    pb_add_varint(&dim, 1, 1);
    pb_add_bytes(&shape, 2, dim.p, dim.len);
    for (size_t i = 0; i < sizeof encodings / sizeof *encodings; i++)
        for (int form = 0; form < 3; form++) { /* tensor_content, one value, a packed value */
            int dtype = encodings[i].dtype, is_float = dtype == 1 || dtype == 2;
            str_reset(&tensor);
            str_reset(&packed);
            pb_add_varint(&tensor, 1, (uint64_t)dtype);
            if (form > 0) /* [1], else the shape of a scalar, which is not written */
                pb_add_bytes(&tensor, 2, shape.p, shape.len);
            if (form == 0) {
                add_little(&packed, encodings[i].bytes, encodings[i].bits);
                pb_add_bytes(&tensor, 4, packed.p, packed.len);
            } else if (form == 1 && dtype == 1) {
                pb_add_float(&tensor, encodings[i].field, pb_float(encodings[i].bits));
            } else if (form == 1 && dtype == 2) {
                pb_add_double(&tensor, encodings[i].field, pb_double(encodings[i].bits));
            } else if (form == 1) {
                pb_add_varint(&tensor, encodings[i].field, encodings[i].bits);
            } else if (is_float) {
                add_little(&packed, encodings[i].bytes, encodings[i].bits);
                pb_add_bytes(&tensor, encodings[i].field, packed.p, packed.len);
            } else {
                pb_add_varint(&packed, 1, encodings[i].bits); /* its key is one byte */
                pb_add_bytes(&tensor, encodings[i].field, packed.p + 1, packed.len - 1);
            }
            snprintf(tag, sizeof tag, "%d/%d", dtype, form);
            add_tensor(&s, 5, tag, form == 1 ? NULL : "scalars", &tensor);
        }
    struct runview *v = open_events(&s);
    t_eq(v->n_series, 3 * sizeof encodings / sizeof *encodings);
    for (size_t i = 0; i < sizeof encodings / sizeof *encodings; i++)
        for (int form = 0; form < 3; form++) {
            snprintf(tag, sizeof tag, "%d/%d", encodings[i].dtype, form);
            t_point(v, tag, 0, 5, encodings[i].x);
        }
    runview_free(v);
    struct str *all[] = {&s, &tensor, &shape, &dim, &packed};
    for (size_t i = 0; i < 5; i++)
        str_release(all[i]);
}

T(what_is_not_a_scalar_is_counted_and_named_once)
{
    struct str s = {0}, field = {0}, tensor = {0}, shape = {0}, dim = {0};
    add_version(&s);
    pb_add_text(&field, VALUE_HISTOGRAM, "");
    add_value(&s, 0, "h/1", NULL, &field);
    add_value(&s, 0, "h/2", NULL, &field);
    str_reset(&field);
    pb_add_text(&field, VALUE_IMAGE, "");
    add_value(&s, 0, "picture", NULL, &field);
    pb_add_varint(&tensor, 1, 1); /* two floats */
    pb_add_varint(&dim, 1, 2);
    pb_add_bytes(&shape, 2, dim.p, dim.len);
    pb_add_bytes(&tensor, 2, shape.p, shape.len);
    pb_add_bytes(&tensor, 4, "\0\0\0\0\0\0\0\0", 8);
    add_tensor(&s, 0, "h/3", "histograms", &tensor);
    add_tensor(&s, 0, "pair", NULL, &tensor);
    str_reset(
        &tensor); /* one number, but a plugin's own: also later, when the plugin is not named */
    pb_add_varint(&tensor, 1, 1);
    pb_add_float(&tensor, 5, 1);
    add_tensor(&s, 0, "own", "pr_curves", &tensor);
    add_tensor(&s, 1, "own", NULL, &tensor);
    add_simple(&s, 1, "loss", 1);
    struct runview *v = open_events(&s);
    t_eq(v->n_series, 1);
    t_str(v->series[0].name, "loss");
    t_eq(v->n_events, 1);
    t_str(event_text(v, "not_shown"),
          "3 histogram tags, 1 image tag, 1 tensor tag, 1 pr_curve tag not shown");
    t_eq(v->invalid, 0);
    runview_free(v);
    struct str *all[] = {&s, &field, &tensor, &shape, &dim};
    for (size_t i = 0; i < 5; i++)
        str_release(all[i]);
}

static void add_hparam(struct str *info, const char *key, const struct str *value)
{
    struct str pair = {0};
    pb_add_text(&pair, 1, key);
    pb_add_bytes(&pair, 2, value->p, value->len);
    pb_add_bytes(info, 1, pair.p, pair.len);
    str_release(&pair);
}

/* A message of the hparams plugin: field 3 starts a session, 4 ends it. */
static void add_session(struct str *out, uint32_t field, const char *tag, const struct str *info)
{
    struct str content = {0}, data = {0}, metadata = {0}, value = {0}, summary = {0};
    pb_add_bytes(&content, field, info->p, info->len);
    pb_add_text(&data, 1, "hparams");
    pb_add_bytes(&data, 2, content.p, content.len);
    pb_add_bytes(&metadata, METADATA_PLUGIN, data.p, data.len);
    pb_add_text(&value, VALUE_TAG, tag);
    pb_add_bytes(&value, VALUE_METADATA, metadata.p, metadata.len);
    pb_add_bytes(&summary, SUMMARY_VALUE, value.p, value.len);
    add_event(out, 0, EVENT_SUMMARY, summary.p, summary.len);
    struct str *all[] = {&content, &data, &metadata, &value, &summary};
    for (size_t i = 0; i < 5; i++)
        str_release(all[i]);
}

T(hyperparameters_and_logged_arguments_are_the_configuration)
{
    struct str s = {0}, value = {0}, info = {0}, tensor = {0}, end = {0};
    add_version(&s);
    pb_add_double(&value, 2, 0.1);
    add_hparam(&info, "lr", &value);
    str_reset(&value);
    pb_add_text(&value, 3, "adamw");
    add_hparam(&info, "optimizer", &value);
    str_reset(&value);
    pb_add_varint(&value, 4, 1);
    add_hparam(&info, "bias", &value);
    add_session(&s, 3, "_hparams_/session_start_info", &info);
    pb_add_varint(&tensor, 1, 7);
    pb_add_text(&tensor, 8,
                "{\"seed\": 42, \"nested\": {\"x\": NaN, \"list\": [1, 2.5, \"NaN\"]}}");
    add_tensor(&s, 0, "args/text_summary", "text", &tensor);
    struct runview *v = open_events(&s);
    t_true(v != NULL);
    t_str(runview_config(v, "lr"), "0.1");
    t_str(runview_config(v, "optimizer"), "adamw");
    t_str(runview_config(v, "bias"), "true");
    t_str(runview_config(v, "seed"), "42");
    t_str(runview_config(v, "nested.x"), "NaN");
    t_str(runview_config(v, "nested.list"), "[1, 2.5, \"NaN\"]");
    t_str(event_text(v, "not_shown"), "");
    runview_free(v);
    pb_add_varint(&end, 1, 1); /* success; without a time it says nothing of the run */
    add_session(&s, 4, "_hparams_/session_end_info", &end);
    v = open_events(&s);
    t_true(v->state != RUN_DONE);
    runview_free(v);
    pb_add_double(&end, 2, 1700000009);
    add_session(&s, 4, "_hparams_/session_end_info", &end);
    v = open_events(&s);
    t_eq(v->state, RUN_DONE);
    runview_free(v);
    struct str *all[] = {&s, &value, &info, &tensor, &end};
    for (size_t i = 0; i < 5; i++)
        str_release(all[i]);
}

T(a_restarted_session_supersedes_what_came_after_its_step)
{
    struct str s = {0}, session = {0};
    add_version(&s);
    for (int i = 0; i < 4; i++)
        add_simple(&s, i, "loss", (float)i);
    pb_add_varint(&session, SESSION_STATUS, SESSION_START);
    add_event(&s, 2, EVENT_SESSION_LOG, session.p, session.len);
    add_simple(&s, 2, "loss", 20);
    struct runview *v = open_events(&s);
    const struct series *loss = runview_series(v, "loss");
    t_eq(loss->n, 5);
    double sum = 0;
    for (size_t i = 0; i < loss->n; i++)
        sum += loss->is_old[i] ? 0 : loss->value[i];
    t_near(sum, 0 + 1 + 20, 0);
    t_eq(v->step, 2);
    struct run_row row;
    struct err e = {0};
    t_ok(run_row_read(&row, v->path, &e), &e);
    t_near(row.number[RUN_STEP], 2, 0);
    t_near(row.number[RUN_LOSS], 20, 0);
    run_row_release(&row);
    runview_free(v);
    str_release(&s);
    str_release(&session);
}

static void add_run(struct str *s, int steps)
{
    add_version(s);
    for (int i = 0; i < steps; i++) {
        add_simple(s, i, "loss", 3 - 0.01f * (float)i);
        add_simple(s, i, "lr", 1e-3f);
    }
}

T(runs_in_the_folder_of_a_run_are_listed_next_to_it)
{
    static const char *const dir[] = {"nest/run", "nest/run/loss_train", "nest/run/loss_val/deep"};
    struct runindex x = {0};
    struct err e = {0};
    struct str s = {0};
    char path[1200];
    const char *root = t_tmpdir();
    add_version(&s);
    add_simple(&s, 1, "loss", 2);
    for (size_t i = 0; i < DS_LEN(dir); i++) {
        snprintf(path, sizeof path, "%s/%s", root, dir[i]);
        t_ok(fs_mkdirs(path, &e), &e);
        snprintf(path, sizeof path, "%s/%s/" NAME, root, dir[i]);
        t_ok(fs_write_file(path, s.p, s.len, &e), &e);
    }
    snprintf(path, sizeof path, "%s/nest", root);
    for (int again = 0; again < 2; again++) {
        t_ok(runindex_refresh(&x, path, &e), &e);
        t_eq(x.n, 3);
        t_true(runindex_find(&x, "run") && runindex_find(&x, "run/loss_train") &&
               runindex_find(&x, "run/loss_val/deep"));
    }
    runindex_release(&x);
    str_release(&s);
}

T(a_file_cut_at_any_byte_holds_the_beginning_and_waits_for_the_rest)
{
    struct str s = {0};
    add_run(&s, 6);
    struct runview *whole = open_events(&s);
    size_t most = 0;
    for (size_t n = TFRECORD_HEAD + 1; n < s.len; n++) {
        struct runview *v = open_bytes(NAME, s.p, n);
        t_truef(v != NULL, "cut at %zu: not recognised", n);
        t_is_beginning(v, whole);
        t_eq(v->invalid, 0);
        t_eq(event_text(v, "unreadable")[0], 0);
        size_t points = v->n_series ? v->series[0].n : 0;
        t_truef(points >= most, "cut at %zu: fewer points than before", n);
        most = points;
        runview_free(v);
    }
    t_eq(most, 6);
    runview_free(whole);
    str_release(&s);
}

T(a_damaged_byte_loses_one_record_and_changes_no_value)
{
    struct str s = {0};
    add_run(&s, 4);
    struct runview *whole = open_events(&s);
    for (size_t i = 0; i < s.len; i++) {
        s.p[i] ^= 0x10;
        struct runview *v = open_events(&s);
        t_truef(v != NULL, "byte %zu: not recognised", i);
        t_is_subset(v, whole);
        size_t points = 0;
        for (size_t k = 0; k < v->n_series; k++)
            points += v->series[k].n;
        t_truef(points >= 7, "byte %zu: %zu points are left", i, points);
        t_truef(points == 8 || v->invalid > 0 || v->tail > 0, "byte %zu: not counted", i);
        runview_free(v);
        s.p[i] ^= 0x10;
    }
    runview_free(whole);
    str_release(&s);
}

T(a_record_torn_by_a_crash_does_not_hide_what_another_writer_appended)
{
    struct str s = {0}, all = {0};
    add_run(&s, 3);
    for (size_t cut = s.len - 39; cut < s.len; cut++) {
        str_reset(&all);
        str_add_bytes(&all, s.p, cut);
        add_simple(&all, 100, "loss", 0.5f);
        add_simple(&all, 101, "loss", 0.25f);
        struct runview *v = open_events(&all);
        const struct series *loss = runview_series(v, "loss");
        t_near(loss->value[loss->n - 1], 0.25, 0);
        t_near(loss->value[loss->n - 2], 0.5, 0);
        t_eq(v->invalid, 1);
        runview_free(v);
    }
    str_release(&s);
    str_release(&all);
}

T(a_graph_of_many_megabytes_is_passed_over)
{
    struct str s = {0}, graph = {0};
    enum { BYTES = 17 << 20 };
    t_true(str_reserve(&graph, BYTES));
    memset(graph.p, 'g', BYTES);
    graph.len = BYTES;
    add_version(&s);
    add_event(&s, 0, EVENT_GRAPH, graph.p, graph.len);
    add_simple(&s, 1, "loss", 1.5f);
    struct runview *v = open_events(&s);
    t_point(v, "loss", 0, 1, 1.5);
    t_str(event_text(v, "not_shown"), "a record of more than 16 MiB was passed over");
    t_eq(v->invalid, 0);
    runview_free(v);
    str_release(&s);
    str_release(&graph);
}

T(zeros_at_the_end_are_not_damage)
{
    struct str s = {0};
    add_run(&s, 2);
    for (int i = 0; i < 100; i++)
        str_add_char(&s, '\0');
    struct runview *v = open_events(&s);
    t_eq(v->series[0].n, 2);
    t_eq(v->invalid, 0);
    runview_free(v);
    str_release(&s);
}

T(records_of_other_things_are_not_an_event_file)
{
    struct str s = {0}, example = {0};
    pb_add_text(&example, 1, "features of a tf.train.Example");
    add_record(&s, &example);
    t_true(open_bytes("train.tfrecord", s.p, s.len) == NULL);
    t_true(open_events(&s) == NULL);
    str_release(&s);
    str_release(&example);
}

T(a_name_gives_the_host_without_process_and_suffix)
{
    static const char *const names[][2] = {
        {"events.out.tfevents.1700000000.node7.123.0", "node7"},
        {"events.out.tfevents.1700000000.node7.lab.org.123.0.v2", "node7.lab.org"},
        {"events.out.tfevents.1700000000.node7.123.0.my.suffix", "node7"},
        {"events.out.tfevents.1700000000.node7.v2", "node7"},
        {"events.out.tfevents.1700000000.10.0.0.1", ""},
        {"other", ""},
    };
    struct str s = {0};
    add_run(&s, 1);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct runview *v = open_bytes(names[i][0], s.p, s.len);
        t_true(v != NULL);
        t_str(v->host ? v->host : "", names[i][1]);
        runview_free(v);
    }
    str_release(&s);
}

/* ---- writing ---- */

T(what_is_written_is_read_back_bit_for_bit)
{
    struct str s = {0}, again = {0};
    struct err e = {0};
    const double values[] = {0.1, 1e300, -0.0, 5e-324, NAN, INFINITY, 2.5, 1.0 / 3};
    struct runview *v = runview_new();
    struct record *r = record_new();
    struct value body;
    uint64_t seq;
    for (int i = 0; i < 8; i++) {
        str_reset(&s);
        record_begin(r, "metric", i * 10, i == 3 ? (double)NAN : 1700000000.125 + i);
        record_num(r, "loss", values[i]);
        if (i % 2)
            record_num(r, "eval/acc", values[7 - i]);
        t_ok(record_end(r, (uint64_t)i, &s, &e), &e);
        t_true(record_parse(s.p, s.len, &seq, &body, &e) > 0);
        runview_take(v, body);
    }
    str_reset(&s);
    t_ok(tfevents_write(&s, v, &e), &e);
    struct runview *back = open_events(&s);
    t_eq(back->n_series, 2);
    t_eq(back->invalid, 0);
    t_is_beginning(back, v);
    t_is_beginning(v, back);
    t_ok(tfevents_write(&again, back, &e), &e);
    t_true(again.len == s.len && memcmp(again.p, s.p, s.len) == 0);
    runview_free(v);
    runview_free(back);
    record_free(r);
    str_release(&s);
    str_release(&again);
}

T(a_written_file_holds_floats_in_order_of_steps_and_no_superseded_point)
{
    struct str s = {0};
    struct err e = {0};
    struct runview *v = runview_new();
    struct record *r = record_new();
    static const int steps[] = {0, 1, 2, 1, 2, 2, 2}; /* of one step: as they were logged */
    for (int i = 0; i < 7; i++) {
        struct value body;
        uint64_t seq;
        str_reset(&s);
        record_begin(r, "metric", steps[i], NAN);
        record_num(r, "loss", i + 0.1);
        t_ok(record_end(r, (uint64_t)i, &s, &e), &e);
        t_true(record_parse(s.p, s.len, &seq, &body, &e) > 0);
        runview_take(v, body);
    }
    str_reset(&s);
    t_ok(tfevents_write(&s, v, &e), &e);
    struct pb m = {(unsigned char *)s.p, (unsigned char *)s.p + s.len};
    static const float want[] = {0.1f, 3.1f, 4.1f, 5.1f, 6.1f};
    for (int i = -1; i < 5; i++) { /* -1: the version */
        uint64_t length, crc;
        t_true(pb_fixed(&m, 8, &length) && pb_fixed(&m, 4, &crc));
        struct pb event = {m.p, m.p + length};
        struct pb_field f, g, h;
        m.p += length + 4;
        int64_t step = 0;
        while (pb_next(&event, &f) > 0)
            if (f.number == EVENT_STEP)
                step = (int64_t)f.value;
            else if (f.number == EVENT_SUMMARY)
                while (pb_next(&f.bytes, &g) > 0)
                    while (pb_next(&g.bytes, &h) > 0)
                        if (h.number == VALUE_SIMPLE)
                            t_near(pb_float(h.value), want[i], 0);
        t_eq(step, i < 0 ? 0 : i < 2 ? i : 2);
    }
    t_true(m.p == m.end);
    runview_free(v);
    record_free(r);
    str_release(&s);
}

T(messages_of_the_program_are_events_of_their_level)
{
    static const struct {
        uint64_t level;
        const char *text;
        enum log_level want;
    } row[] = {{50, "out of disk", LOG_ERROR},
               {40, "lost", LOG_ERROR},
               {30, "slow", LOG_WARN},
               {20, "begun", LOG_INFO},
               {0, "", LOG_INFO}};
    for (size_t i = 0; i < DS_LEN(row); i++) {
        struct str s = {0}, message = {0};
        add_version(&s);
        add_simple(&s, 3, "loss", 1);
        pb_add_varint(&message, LOG_LEVEL, row[i].level);
        pb_add_text(&message, LOG_TEXT, row[i].text);
        add_event(&s, 3, EVENT_LOG_MESSAGE, message.p, message.len);
        struct runview *v = open_events(&s);
        size_t k = 0;
        while (k < v->n_events && strcmp(v->event[k].name, "message") != 0)
            k++;
        t_true(k < v->n_events);
        t_str(v->event[k].text, row[i].text);
        t_eq(v->event[k].level, row[i].want);
        runview_free(v);
        str_release(&message);
        str_release(&s);
    }
}

/* A shape says how many numbers a tensor has: of unknown rank or more than one it is no point. */
T(only_tensors_of_one_number_are_points)
{
    static const struct {
        int64_t size[2]; /* -1: none */
        int is_unknown, points;
    } row[] = {{{-1, -1}, 0, 1}, {{1, -1}, 0, 1}, {{1, 1}, 0, 1},
               {{1, 2}, 0, 0},   {{0, -1}, 0, 0}, {{-1, -1}, 1, 0}};
    for (size_t i = 0; i < DS_LEN(row); i++) {
        struct str s = {0}, tensor = {0}, shape = {0}, field = {0}, summary = {0}, value = {0};
        add_version(&s);
        add_simple(&s, 3, "loss", 1);
        for (int d = 0; d < 2; d++) {
            struct str size = {0};
            if (row[i].size[d] < 0)
                continue;
            pb_add_varint(&size, 1, (uint64_t)row[i].size[d]);
            pb_add_text(&size, 2, "name");
            pb_add_bytes(&shape, 2, str_text(&size), size.len);
            str_release(&size);
        }
        if (row[i].is_unknown)
            pb_add_varint(&shape, 3, 1);
        pb_add_varint(&tensor, 1, 1);
        pb_add_bytes(&tensor, 2, str_text(&shape), shape.len);
        pb_add_float(&tensor, 5, 2.5f);
        pb_add_text(&value, VALUE_NODE_NAME, "old/name"); /* where the tag was before 1.0 */
        pb_add_bytes(&value, VALUE_TENSOR, tensor.p, tensor.len);
        pb_add_bytes(&summary, SUMMARY_VALUE, value.p, value.len);
        add_event(&s, 4, EVENT_SUMMARY, summary.p, summary.len);
        struct runview *v = open_events(&s);
        t_eq(v->n_series, 1 + (size_t)row[i].points);
        if (row[i].points)
            t_point(v, "old/name", 0, 4, 2.5);
        runview_free(v);
        struct str *all[] = {&s, &tensor, &shape, &field, &summary, &value};
        for (size_t k = 0; k < DS_LEN(all); k++)
            str_release(all[k]);
    }
}

T(a_malformed_event_is_counted_and_the_next_one_read)
{
    struct str s = {0}, bad = {0}, value = {0}, summary = {0}, audio = {0};
    add_version(&s);
    add_simple(&s, 1, "loss", 1);
    str_add_bytes(&bad, "\x0A\x7F", 2); /* a field of 127 bytes that is not there */
    add_record(&s, &bad);
    add_event(&s, 2, EVENT_SUMMARY, bad.p, bad.len);
    pb_add_text(&value, VALUE_TAG, "x");
    str_add_bytes(&value, bad.p, bad.len);
    pb_add_bytes(&summary, SUMMARY_VALUE, value.p, value.len);
    add_event(&s, 3, EVENT_SUMMARY, summary.p, summary.len);
    add_event(&s, 3, EVENT_GRAPH, "graph", 5);
    pb_add_text(&audio, VALUE_AUDIO, "wave");
    add_value(&s, 3, "sound", NULL, &audio);
    add_simple(&s, 4, "loss", 2);
    struct runview *v = open_events(&s);
    t_eq(v->n_series, 1);
    t_point(v, "loss", 1, 4, 2);
    t_eq(v->invalid, 3);
    t_str(event_text(v, "not_shown"), "1 audio tag not shown");
    runview_free(v);
    struct str *all[] = {&s, &bad, &value, &summary, &audio};
    for (size_t k = 0; k < DS_LEN(all); k++)
        str_release(all[k]);
}

T(every_failed_allocation_is_an_error_or_changes_nothing)
{
    struct str s = {0};
    char path[600];
    add_run(&s, 3);
    snprintf(path, sizeof path, "%s/" NAME, t_tmpdir());
    FILE *f = fopen(path, "wb");
    t_true(f && fwrite(s.p, 1, s.len, f) == s.len && fclose(f) == 0);
    t_fails_without_memory(path);
    str_release(&s);
}
