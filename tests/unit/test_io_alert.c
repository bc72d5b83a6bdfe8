/* Rules of alerts: when an episode begins and ends, and that nothing else is one. */
#include "io/alert.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "io/record.h"
#include "io/runindex.h"
#include "io/runlog.h"
#include "io/runview.h"
#include "t.h"

static const double nan_ = (double)NAN, start = 1e6;
static struct alert_options options;

static struct alert_watch fresh(void)
{
    struct alert_watch w;
    struct err e = {0};
    t_ok(opt_defaults(&alert_group, &options, &e), &e);
    options.loss_above = 4;
    options.layer_records = 3;
    alert_watch_init(&w, &options);
    return w;
}

/* A watch of a live run whose first look is over. */
static struct alert_watch begin(void)
{
    struct alert_watch w = fresh();
    alert_clock(&w, RUN_LIVE, start);
    return w;
}

/* What was raised (+) and what is over (-) since the last call: "+nan -loss". */
static const char *news(struct alert_watch *w)
{
    static char text[200];
    struct alert a;
    size_t n = 0;
    text[0] = '\0';
    while (alert_next(w, &a))
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s%s", n ? " " : "",
                              a.is_over ? "-" : "+", alert_name(a.rule));
    return text;
}

static void losses(struct alert_watch *w, int n, double loss)
{
    for (int i = 0; i < n; i++)
        alert_take_loss(w, i, start + i, loss);
}

T(nan_is_one_alert_until_ten_losses_are_finite)
{
    struct alert_watch w = begin();
    losses(&w, 3, 2);
    t_str(news(&w), "");
    losses(&w, 5, nan_);
    t_str(news(&w), "+nan");
    losses(&w, 9, 2);
    losses(&w, 1, (double)INFINITY); /* it is above every limit, too */
    t_str(news(&w), "+loss");
    losses(&w, 9, 2);
    t_str(news(&w), "");
    losses(&w, 1, 2);
    t_str(news(&w), "-nan -loss");
    losses(&w, 1, nan_);
    t_str(news(&w), "+nan");
    t_eq(alert_set(&w), 1U << ALERT_NAN);
    alert_watch_release(&w);
}

T(the_first_record_may_be_bad)
{
    struct alert_watch w = begin();
    struct alert a;
    alert_take_loss(&w, 7, start + 7, nan_);
    t_true(alert_next(&w, &a) == 1);
    t_true(a.rule == ALERT_NAN && a.step == 7 && a.time == start + 7 && a.level == LOG_ERROR);
    t_true(isnan(a.value) && !a.is_over && !a.is_old);
    t_str(a.text, "loss is NaN");
    t_eq(alert_next(&w, &a), 0);
    alert_watch_release(&w);
}

T(a_loss_is_above_its_limit_once)
{
    struct alert_watch w = begin();
    struct alert a;
    losses(&w, 2, 4); /* the limit itself is not above */
    t_str(news(&w), "");
    losses(&w, 20, 4.5);
    t_eq(alert_next(&w, &a), 1);
    t_str(a.text, "loss 4.5, above 4");
    t_near(a.value, 4.5, 0);
    t_eq(a.level, LOG_WARN);
    t_eq(alert_next(&w, &a), 0);
    losses(&w, 10, 3);
    t_str(news(&w), "-loss");
    w.o.loss_above = 0;
    losses(&w, 3, 1e9);
    t_str(news(&w), ""); /* off */
    alert_watch_release(&w);
}

T(an_episode_between_two_looks_is_reported_as_both)
{
    struct alert_watch w = begin();
    losses(&w, 1, 9);
    losses(&w, 10, 1);
    t_str(news(&w), "+loss -loss");
    losses(&w, 1, 9);
    losses(&w, 10, 1);
    losses(&w, 1, 9);
    t_str(news(&w), "+loss"); /* it holds */
    alert_watch_release(&w);
}

T(no_metric_for_long_is_a_stall)
{
    struct alert_watch w = begin();
    struct alert a;
    alert_take_progress(&w, start);
    alert_clock(&w, RUN_LIVE, start + 599);
    t_str(news(&w), "");
    alert_clock(&w, RUN_SILENT, start + 601); /* a run that was killed, too */
    t_eq(alert_next(&w, &a), 1);
    t_str(a.text, "no metric for 10m01s");
    alert_clock(&w, RUN_LIVE, start + 900);
    t_str(news(&w), "");
    alert_take_progress(&w, start + 901);
    alert_clock(&w, RUN_LIVE, start + 901);
    t_str(news(&w), "-stall");
    alert_watch_release(&w);
}

T(pauses_and_a_clock_set_back_are_no_stall)
{
    struct alert_watch w = begin();
    alert_take_progress(&w, start);
    alert_clock(&w, RUN_PAUSED, start + 5000);
    alert_clock(&w, RUN_LIVE, start + 5500); /* counts from the end of the pause */
    t_str(news(&w), "");
    alert_clock(&w, RUN_LIVE, start - 8000);
    alert_clock(&w, RUN_LIVE, start - 7500);
    t_str(news(&w), "");
    alert_clock(&w, RUN_LIVE, start - 7300);
    t_str(news(&w), "+stall");
    alert_take_progress(&w, start);
    t_str(news(&w), "-stall");
    alert_clock(&w, RUN_LIVE, start + 500);
    alert_hold(&w, start + 5000); /* its host cannot be heard */
    alert_clock(&w, RUN_LIVE, start + 5500);
    t_str(news(&w), "");
    alert_watch_release(&w);
}

T(without_a_clock_nothing_stalls)
{
    struct alert_watch w = fresh();
    alert_take_progress(&w, 0);
    alert_clock(&w, RUN_LIVE, 0);
    alert_clock(&w, RUN_LIVE, 1e9);
    t_str(news(&w), "");
    alert_watch_release(&w);
}

static void shares(struct alert_watch *w, int n, float a, float b, float c)
{
    const float share[3] = {a, b, c};
    for (int i = 0; i < n; i++)
        alert_take_layers(w, i, start + i, share, 3, NULL);
}

T(a_layer_that_stops_routing_is_named)
{
    struct alert_watch w = begin();
    struct alert a;
    shares(&w, 1, 1, 0.5F, 0.5F);
    shares(&w, 2, 1, 0.4F, 0);
    t_str(news(&w), "");
    shares(&w, 1, 1, 0.4F, 0.1F); /* not in a row */
    shares(&w, 2, 1, 0.4F, 0);
    t_str(news(&w), "");
    shares(&w, 1, 1, 0.4F, 0);
    t_eq(alert_next(&w, &a), 1);
    t_str(a.text, "layer 2: executed share 0 in the last 3 records");
    t_near(a.value, 2, 0);
    shares(&w, 5, 1, 1, 0);
    t_str(news(&w), "");
    shares(&w, 1, 1, 0.5F, 0.5F);
    t_str(news(&w), "-layer");
    shares(&w, 3, 1, 1, 0);
    t_eq(alert_next(&w, &a), 1);
    t_str(a.text, "layer 1 (and 1 more): executed share 1 in the last 3 records");
    alert_watch_release(&w);
}

T(layers_that_never_route_and_dense_models_do_not_alert)
{
    struct alert_watch w = begin();
    static const unsigned char on[3] = {0, 1, 1};
    const float later[3] = {0.5F, 1, 1}, missing[3] = {nan_, nan_, nan_};
    shares(&w, 50, 1, 1, 1); /* dense */
    shares(&w, 50, 1, 0, 1); /* warm-up of a method: not routed yet */
    t_str(news(&w), "");
    for (int i = 0; i < 50; i++)
        alert_take_layers(&w, i, start, later, 3, on);
    for (int i = 0; i < 50; i++)
        alert_take_layers(&w, i, start, missing, 3, NULL);
    t_str(news(&w), "");
    shares(&w, 1, 0.5F, 0.5F, 0.5F);
    const float other[2] = {0, 1}; /* another number of layers: another model */
    for (int i = 0; i < 50; i++)
        alert_take_layers(&w, i, start, other, 2, NULL);
    alert_take_layers(&w, 0, start, other, 0, NULL);
    t_str(news(&w), "");
    alert_watch_release(&w);
}

T(a_gpu_is_idle_after_it_was_busy)
{
    struct alert_watch w = begin();
    for (int i = 0; i < 100; i++)
        alert_take_gpu(&w, 0, i, start + 10 * i, 0); /* never used by the run */
    t_str(news(&w), "");
    alert_take_gpu(&w, 1, 1, start + 1000, 0.9);
    alert_take_gpu(&w, 1, 2, start + 1010, 0.01);
    alert_take_gpu(&w, 1, 3, start + 1300, 0.01);
    alert_take_gpu(&w, 1, 3, nan_, 0.01);
    alert_take_gpu(&w, 1, 3, start + 2000, nan_); /* missing values change nothing */
    t_str(news(&w), "");
    alert_take_gpu(&w, 1, 4, start + 1310, 0.04);
    t_str(news(&w), "+gpu");
    alert_take_gpu(&w, 1, 5, start + 1320, 0.05);
    t_str(news(&w), "-gpu");
    alert_take_gpu(&w, 1, 6, start + 1330, 0);
    alert_take_gpu(&w, 1, 6, start, 0); /* time goes backwards: counted anew */
    alert_take_gpu(&w, 1, 7, start + 299, 0);
    t_str(news(&w), "");
    alert_take_gpu(&w, 2, 7, start + 299, 1); /* one of two still works */
    alert_take_gpu(&w, 1, 8, start + 400, 0);
    t_str(news(&w), "");
    alert_take_gpu(&w, MACHINE_GPUS, 8, start, 0);
    alert_take_gpu(&w, -1, 8, start, 0);
    alert_watch_release(&w);
}

T(only_gpus_with_a_process_of_the_run_are_its_own)
{
    struct alert_watch w = begin();
    static struct machine_sample s;
    machine_clear(&s);
    s.gpus = 2;
    s.gpu[0].use = 0.9;
    s.gpu[1].use = 0;
    s.time = start;
    alert_take_system(&w, 1, &s, 42);
    s.gpu[0].use = 0;
    s.time = start + 1000;
    alert_take_system(&w, 2, &s, 42); /* another program's */
    t_str(news(&w), "");
    s.gpu[1].processes = 1;
    s.gpu[1].process[0].pid = 42;
    alert_take_system(&w, 3, &s, 42);
    t_str(news(&w), "+gpu"); /* idle since the first sample */
    alert_watch_release(&w);
}

T(a_disk_is_nearly_full_until_there_is_a_tenth_more)
{
    struct alert_watch w = begin();
    struct alert a;
    alert_take_disk(&w, 1, start, nan_);
    alert_take_disk(&w, 1, start, 2.0e9);
    t_str(news(&w), "");
    alert_take_disk(&w, 1, start, 1.9e9);
    t_eq(alert_next(&w, &a), 1);
    t_str(a.text, "1.9 GB free on the disk of the run, below 2");
    alert_take_disk(&w, 1, start, 2.1e9);
    alert_take_disk(&w, 1, start, 1.9e9);
    alert_take_disk(&w, 1, start, nan_);
    t_str(news(&w), "");
    alert_take_disk(&w, 1, start, 2.3e9);
    t_str(news(&w), "-disk");
    alert_watch_release(&w);
}

T(a_run_that_ended_is_watched_no_longer)
{
    struct alert_watch w = begin();
    losses(&w, 1, nan_);
    alert_clock(&w, RUN_FAILED, start + 1);
    t_str(news(&w), "+nan"); /* what ended it is news */
    t_eq(alert_set(&w), 0);
    alert_clock(&w, RUN_FAILED, start + 9000);
    t_str(news(&w), "");
    losses(&w, 1, nan_);
    alert_clock(&w, RUN_LIVE, start + 9001); /* resumed */
    t_str(news(&w), "+nan");
    alert_watch_release(&w);
}

T(what_held_before_the_first_look_is_old)
{
    struct alert_watch w = fresh();
    struct alert a;
    losses(&w, 1, nan_);
    alert_take_progress(&w, start - 700);
    alert_clock(&w, RUN_LIVE, start);
    int n = 0;
    for (; alert_next(&w, &a); n++)
        t_true(a.is_old);
    t_eq(n, 2);
    alert_watch_release(&w);
    /* of a run that has ended it is not even that */
    alert_watch_init(&w, &options);
    losses(&w, 1, nan_);
    alert_clock(&w, RUN_DONE, start);
    t_str(news(&w), "");
    alert_watch_release(&w);
    /* nor of one that fell silent long ago, however often it is looked at */
    alert_watch_init(&w, &options);
    losses(&w, 1, nan_);
    alert_take_progress(&w, start);
    alert_clock(&w, RUN_SILENT, start + 100000);
    alert_clock(&w, RUN_SILENT, start + 100001);
    alert_clock(&w, RUN_SILENT, start + 200000);
    t_str(news(&w), "");
    alert_watch_release(&w);
}

T(what_the_run_reports_and_what_is_judged_is_one_episode)
{
    struct alert_watch w = begin();
    alert_take_event(&w, ALERT_NAN, 0, LOG_ERROR, 5, start, "loss is NaN");
    losses(&w, 1, nan_);
    t_str(news(&w), "+nan");
    alert_take_event(&w, ALERT_NAN, 1, LOG_INFO, 6, start, "loss 2");
    t_str(news(&w), "");
    losses(&w, 10, 2);
    t_str(news(&w), "-nan");
    for (int i = 0; i < 3; i++) { /* of a script each one counts */
        alert_take_event(&w, ALERT_OTHER, 0, LOG_WARN, i, start, "look\x1b[31m here");
        struct alert a;
        t_eq(alert_next(&w, &a), 1);
        t_str(a.text, "look?[31m here");
    }
    alert_watch_release(&w);
}

T(a_hundred_thousand_events_are_one_alert_a_look)
{
    struct alert_watch w = begin();
    char text[5000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (int i = 0; i < 100000; i++)
        alert_take_event(&w, ALERT_OTHER, i & 1, LOG_ERROR, i, start, text);
    t_str(news(&w), "+other -other");
    alert_watch_release(&w);
}

/* ---- records, views, rows ---- */

static struct record *r;
static char dir[512];

static struct runlog_writer *open_log(const char *name)
{
    struct runlog_writer *w = NULL;
    struct err e = {0};
    char path[600];
    snprintf(dir, sizeof dir, "%s/%s", t_tmpdir(), name);
    snprintf(path, sizeof path, "%s/log.mp", dir);
    t_ok(fs_mkdirs(dir, &e), &e);
    t_ok(runlog_writer_open(&w, path, &e), &e);
    r = r ? r : record_new();
    return w;
}

static void put_loss(struct runlog_writer *w, int64_t step, double loss)
{
    struct err e = {0};
    record_begin(r, "metric", step, clock_wall());
    record_num(r, "loss", loss);
    t_ok(runlog_append(w, r, &e), &e);
}

static void put_alert(struct runlog_writer *w, enum alert_rule rule, int is_over)
{
    struct err e = {0};
    struct alert a = {.rule = rule, .level = LOG_WARN, .is_over = is_over, .text = "as it is"};
    alert_record(r, &a, clock_wall());
    t_ok(runlog_append(w, r, &e), &e);
}

T(a_view_and_a_row_of_a_log_say_the_same)
{
    struct runlog_writer *log = open_log("same");
    struct runview *v = NULL;
    struct run_row row;
    struct err e = {0};
    struct alert_watch by_view = fresh(), by_row = fresh();
    put_loss(log, 1, 3);
    t_ok(runview_open(&v, dir, &e), &e);
    for (int turn = 0; turn < 4; turn++) {
        static const char *const want[] = {"", "+nan", "+disk", "-disk"};
        if (turn == 1)
            put_loss(log, 2, nan_);
        else if (turn > 1)
            put_alert(log, ALERT_DISK, turn == 3);
        t_true(runview_poll(v, 1, &e) >= 0);
        t_ok(run_row_read(&row, dir, &e), &e);
        t_eq(row.state, RUN_LIVE);
        alert_watch_view(&by_view, v, clock_wall());
        alert_watch_row(&by_row, &row, clock_wall());
        t_str(news(&by_view), want[turn]);
        t_str(news(&by_row), want[turn]);
        t_eq(alert_set(&by_view), alert_set(&by_row));
        run_row_release(&row);
    }
    /* nothing new: nothing is judged again */
    alert_watch_view(&by_view, v, clock_wall());
    t_str(news(&by_view), "");
    alert_watch_view(&by_view, v, clock_wall() + 700);
    t_str(news(&by_view), "+stall");
    /* a resume: what its first process reported is its own affair */
    put_alert(log, ALERT_GPU, 0);
    t_true(runview_poll(v, 1, &e) >= 0);
    alert_watch_view(&by_view, v, clock_wall());
    t_true(alert_set(&by_view) & 1U << ALERT_GPU);
    clock_sleep(0.01);
    record_begin(r, "head", 2, clock_wall());
    record_bool(r, "resume", 1);
    t_ok(runlog_append(log, r, &e), &e);
    t_true(runview_poll(v, 1, &e) >= 0);
    alert_watch_view(&by_view, v, clock_wall());
    t_true(!(alert_set(&by_view) & 1U << ALERT_GPU));
    runlog_writer_close(log);
    runview_free(v);
    alert_watch_release(&by_view);
    alert_watch_release(&by_row);
}

/* Only the last records of a long log are read: what they do not say is not over. */
T(an_alert_of_a_long_log_is_over_where_the_run_says_so)
{
    struct runlog_writer *log = open_log("long");
    struct alert_watch w = fresh();
    struct run_row row;
    struct err e = {0};
    for (int i = 1; i <= 200; i++)
        put_loss(log, i, 3);
    for (int turn = 0; turn < 3; turn++) {
        static const char *const want[] = {"+layer", "", "-layer"};
        if (turn != 1)
            put_alert(log, ALERT_LAYER, turn == 2);
        for (int i = 0; turn == 1 && i < 500; i++) {
            record_begin(r, "metric", 201 + i, clock_wall());
            record_num(r, "loss", 3);
            record_num(r, "val_loss", 3);
            t_ok(runlog_append(log, r, &e), &e);
        }
        t_ok(run_row_read(&row, dir, &e), &e);
        alert_watch_row(&w, &row, clock_wall());
        t_str(news(&w), want[turn]);
        run_row_release(&row);
    }
    runlog_writer_close(log);
    alert_watch_release(&w);
}

T(a_row_of_a_hostile_host_is_only_numbers)
{
    struct alert_watch w = fresh();
    struct run_row row = {.state = RUN_LIVE, .last_time = 1e300};
    for (int i = 0; i < RUN_NUMBERS; i++)
        row.number[i] = i % 2 ? 1e300 : -1e300;
    row.number[RUN_ALERTS] = 1e300;
    alert_watch_row(&w, &row, start);
    row.number[RUN_ALERTS] = 0x1FFFF;
    row.last_time = -1;
    alert_watch_row(&w, &row, start + 1);
    t_true(alert_set(&w) != 0);
    row.number[RUN_ALERTS] = nan_;
    row.phase.step = 9;
    alert_watch_row(&w, &row, start + 2);
    alert_watch_release(&w);
}

T(an_event_names_its_rule)
{
    struct str out = {0};
    struct err e = {0};
    struct alert a = {.rule = ALERT_STALL, .level = LOG_WARN, .value = 3, .text = "x"};
    for (int over = 0; over < 2; over++) {
        uint64_t seq;
        struct value body;
        a.is_over = over;
        r = r ? r : record_new();
        alert_record(r, &a, start);
        str_reset(&out);
        t_ok(record_end(r, 1, &out, &e), &e);
        t_true(record_parse(out.p, out.len, &seq, &body, &e) > 0);
        t_eq(alert_of_event(body), over ? -1 - ALERT_STALL : 1 + ALERT_STALL);
    }
    for (int k = 0; k < ALERT_RULES; k++) {
        const char *name = alert_name((enum alert_rule)k);
        t_eq(alert_find(name, strlen(name)), k);
    }
    t_eq(alert_find("nanx", 4), ALERT_OTHER);
    char names[64];
    t_str(alert_names(1U << ALERT_NAN | 1U << ALERT_DISK, names, sizeof names), "nan disk");
    t_str(alert_names(~0U, names, 8), "nan los");
    str_release(&out);
}

/* ---- settings ---- */

static int settings(const char *text, struct alert_options *a, struct notify_options *n,
                    struct err *e)
{
    static char root[512];
    char path[700];
    if (!root[0])
        snprintf(root, sizeof root, "%s", t_tmpdir());
    setenv("XDG_CONFIG_HOME", root, 1);
    snprintf(path, sizeof path, "%s/depthscope", root);
    *e = (struct err){0};
    t_ok(fs_mkdirs(path, e), e);
    snprintf(path, sizeof path, "%s/depthscope/settings.yaml", root);
    t_ok(fs_replace_file(path, text, strlen(text), e), e);
    return alert_settings(a, n, e);
}

T(settings_are_the_users_file_and_nothing_else)
{
    struct alert_options a = {0};
    struct notify_options n = {0};
    struct err e = {0};
    t_eq(settings("alert:\n  loss_above: 3\n  nan: false\nnotify:\n  terminal: osc9\n"
                  "  command: echo \"$1\"\n",
                  &a, &n, &e),
         0);
    t_near(a.loss_above, 3, 0);
    t_true(!a.nan && n.terminal == NOTIFY_OSC9);
    t_str(n.command, "echo \"$1\"");
    t_true(settings("alert:\n  loss_abov: 3\n", &a, &n, &e) < 0);
    t_true(strstr(e.text, "settings.yaml") && strstr(e.text, "alert.loss_above"));
    t_true(a.loss_above == 0 && a.nan && n.command[0] == '\0');
    t_true(settings("notify:\n  terminal: loud\n", &a, &n, &e) < 0);
    t_true(strstr(e.text, "bell|osc9|osc777|off") != NULL);
    opt_release(&notify_group, &n);
}
