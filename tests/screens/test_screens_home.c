/* Home on crafted runs at several sizes: table, details, filter, groups and pickers as goldens, and
 * its actions by key, command and mouse.
 *
 *   GENERATE=1 test_screens_home    regenerates the screens; inspect the diff. */
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/utf8.h"
#include "io/alert.h"
#include "io/record.h"
#include "io/runlog.h"
#include "io/runnotes.h"
#include "screens/golden.h"
#include "t.h"
#include "training/preset.h"
#include "tui/app.h"

static char here[PATH_MAX]; /* the repository root */

static void write_text(const char *path, const char *text)
{
    struct err e = {0};
    t_ok(fs_write_file(path, text, strlen(text), &e), &e);
}

static void take_stream(const char *stream, const char *to)
{
    char path[PATH_MAX + 300];
    struct str log = {0};
    struct err e = {0};
    snprintf(path, sizeof path, "%s/tests/screens/%s.mp", here, stream);
    t_ok(fs_read_file(&log, path, 1 << 24, &e), &e);
    t_ok(fs_write_file(to, str_text(&log), log.len, &e), &e);
    str_release(&log);
}

static void make_run(const char *name, const char *stream, time_t modified)
{
    char path[300];
    struct err e = {0};
    struct timespec times[2] = {{.tv_sec = modified}, {.tv_sec = modified}};
    snprintf(path, sizeof path, "runs/%s", name);
    t_ok(fs_mkdirs(path, &e), &e);
    snprintf(path, sizeof path, "runs/%s/log.mp", name);
    if (stream)
        take_stream(stream, path);
    else
        write_text(path, "");
    t_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void make_checkpoint(const char *run, int step, int bytes)
{
    char path[300], text[200];
    struct err e = {0};
    snprintf(path, sizeof path, "runs/%s/checkpoints/step-%08d", run, step);
    t_ok(fs_mkdirs(path, &e), &e);
    snprintf(path, sizeof path, "runs/%s/checkpoints/step-%08d/manifest.json", run, step);
    snprintf(text, sizeof text,
             "{\"format\":1,\"step\":%d,\"files\":{\"a\":{\"bytes\":%d},\"b\":{\"bytes\":%d}}}",
             step, bytes, bytes);
    write_text(path, text);
}

/* A fresh directory with runs, presets and files, which is the current one afterwards. */
static void make_world(int has_runs)
{
    struct err e = {0};
    if (!here[0])
        t_true(getcwd(here, sizeof here) != NULL);
    t_eq(chdir(t_tmpdir()), 0);
    setenv("DEPTHSCOPE_RUNS", "runs", 1);
    setenv("XDG_STATE_HOME", "state", 1);
    t_ok(fs_mkdirs("data", &e), &e);
    t_ok(fs_mkdirs("model", &e), &e);
    write_text("data/tiny.yaml", "# A run of a minute. And more.\nmodel:\n  layers: 6\n  dim: 64\n "
                                 " heads: 2\n  vocab: 1024\n");
    write_text("model/config.json", "{}");
    take_stream("seed1", "trace.mp");
    train_config_preset_dir("data");
    if (!has_runs)
        return;
    make_run("edp-1", "training", 5000);
    make_run("mod-seed1", "seed1", 4000);
    make_run("mod-seed2", "seed2", 3000);
    make_run("created", NULL, 2000);
    make_run("\x1b[31mred", "hostile", 1000);
    write_text("runs/edp-1/meta.json", "{\"preset\":\"quick\",\"host\":\"box\"}");
    write_text("runs/edp-1/notes.json", "{\"tags\":[\"paper\"],\"note\":\"the best so far\"}");
    write_text("runs/edp-1/config.yaml",
               "train:\n  lr: 0.02\n  steps: 200\nmodel:\n  method: edp\n");
    write_text("runs/edp-1/best.json", "{\"step\":100,\"val_loss\":2.5}");
    make_checkpoint("edp-1", 100, 1000000);
    make_checkpoint("edp-1", 150, 1000000);
}

/* The screens of a script. */
static const char *play(const char *size, const char *script)
{
    static struct str got;
    struct tui_options o = {
        .view = "home", .size = size, .script = "keys.txt", .dump = "out.screen"};
    struct err e = {0};
    write_text("keys.txt", script);
    t_ok(tui_run(&o, &e), &e);
    str_reset(&got);
    t_ok(fs_read_file(&got, "out.screen", 16 << 20, &e), &e);
    return str_text(&got);
}

static void compare(const char *name, const char *screen)
{
    char path[PATH_MAX + 100];
    struct str got = {0};
    str_add(&got, screen);
    snprintf(path, sizeof path, "%s/tests/screens/%s.screen", here, name);
    golden_compare(path, &got, 0);
    str_release(&got);
}

T(home_is_as_committed_at_every_size)
{
    static const char *const size[] = {"80x24", "120x40", "200x50", "20x5"};
    make_world(1);
    for (size_t i = 0; i < DS_LEN(size); i++) {
        char name[40];
        snprintf(name, sizeof name, "home-%s", size[i]);
        compare(name, play(size[i], ""));
    }
}

T(home_filters_groups_and_sorts_as_committed)
{
    make_world(1);
    compare("home-filter",
            play("100x12", "keys f\ntype method=e\nkeys Tab\nshot\ntype  step>x\nshot\n"
                           "keys Esc b\nshot\nkeys b b b b b s s s s s\nshot\nkeys u\n"));
    compare("home-resume", play("80x16", "keys R\n"));
}

/* A batch of four runs: one done, one trained by a worker on another host, one that failed there, and
 * one that waits; and a batch that nobody works on and that has no run. */
static void make_batch(void)
{
    static const char held[] = "{\"counter\":\"0000000003\",\"held\":true,\"owner\":"
                               "\"deadbeef-7-7-0\",\"host\":\"boxa\",\"pid\":7,\"nonce\":\"a\","
                               "\"patience\":30}";
    struct err e = {0};
    t_ok(fs_mkdirs("runs/.batches/sweep-000000000001", &e), &e);
    t_ok(fs_mkdirs("runs/.batches/sweep-000000000002", &e), &e);
    t_ok(fs_mkdirs("runs/.batches/sweep-damaged", &e), &e);
    t_ok(fs_mkdirs("runs/.batches/leases", &e), &e);
    write_text("runs/.batches/sweep-000000000001/plan.json",
               "{\"format\":1,\"kind\":\"sweep\",\"preset\":\"tiny\",\"id\":\"0123456789abcdef\","
               "\"version\":\"1\",\"first\":\"\",\"runs\":[\"edp-1\",\"mod-seed1\",\"created\","
               "\"later\",\"\"]}");
    write_text("runs/.batches/sweep-000000000002/plan.json",
               "{\"format\":1,\"kind\":\"sweep\",\"preset\":\"old\",\"runs\":[\"removed\"]}");
    write_text("runs/.batches/sweep-damaged/plan.json", "{\"runs\":[\"../../etc\"]}");
    write_text("runs/.batches/leases/created@2", held);
    write_text("runs/.batches/leases/later@1",
               "{\"counter\":\"0000000009\",\"held\":false,\"owner\":\"deadbeef-7-7-0\",\"host\":"
               "\"boxa\",\"pid\":7,\"nonce\":\"b\",\"patience\":30,\"note\":\"killed by signal 9\"}");
}

T(home_shows_the_progress_of_batches)
{
    make_world(1);
    make_batch();
    compare("home-batch", play("100x16", ""));
    compare("home-batch-20x5", play("20x5", ""));
}

T(an_empty_home_welcomes)
{
    make_world(0);
    compare("home-empty", play("80x24", ""));
    compare("home-empty-20x5", play("20x5", ""));
}

static int exists(const char *path)
{
    return fs_exists(path);
}

T(every_action_works_by_key_and_by_command)
{
    struct run_notes n;
    struct err e = {0};
    make_world(1);
    t_true(strstr(
        play("80x24", "keys t\ntype v2 -paper\nkeys Enter i\nkeys C-u\ntype my note\nkeys Enter\n"),
        "note saved"));
    t_ok(run_notes_read(&n, "runs/edp-1", &e), &e);
    t_true(run_notes_has(&n, "v2") && !run_notes_has(&n, "paper"));
    t_str(n.note, "my note");
    play("80x24", "command tag +v3\ncommand note other words\n");
    t_ok(run_notes_read(&n, "runs/edp-1", &e), &e);
    t_true(run_notes_has(&n, "v3"));
    t_str(n.note, "other words");
    play("80x24", "keys m\nkeys C-u\ntype best\nkeys Enter\n");
    t_true(exists("runs/best") && !exists("runs/edp-1"));
    t_true(strstr(play("80x24", "command rename a b\n"), "expected 1 to 64"));
    play("80x24", "command rename edp-1\n");
    t_true(exists("runs/edp-1"));
    t_true(exists("runs/edp-1/checkpoints/step-00000100"));
    play("80x24", "keys D n\n");
    t_true(exists("runs/edp-1"));
    t_true(strstr(play("80x24", "keys D y\n"), "is in the trash"));
    t_true(!exists("runs/edp-1"));
    play("80x24", "command restore edp-1\n");
    t_true(exists("runs/edp-1"));
    play("80x24", "command trash\nkeys y u\n"); /* and back */
    t_true(exists("runs/edp-1"));
    t_true(strstr(play("80x24", "keys X\n"), "edp-1 is not live"));
    t_true(strstr(play("80x24", "command stop-run\n"), "edp-1 is not live"));
    t_true(strstr(play("100x30", "keys c\n"), "0.02")); /* the run's own learning rate */
    t_true(strstr(play("80x24", "command sort -val_loss\n"), "val loss\xE2\x86\x93"));
    t_true(strstr(play("80x24", "command group train.lr\n"), "train.lr = "));
    t_true(strstr(play("80x24", "command filter state=done\n"), "3 of 5"));
    t_true(strstr(play("80x24", "command filter nonsense=1\n"), "column 1: unknown key nonsense"));
    t_true(strstr(play("80x24", "keys f z z z\ntype =1\n"), "the filter cannot be read"));
    t_true(strstr(play("120x24", "keys :\ntype resume-from 777\nkeys Enter\n"),
                  "no checkpoint of step 777"));
}

T(the_mouse_selects_sorts_and_chooses_actions)
{
    make_world(1);
    const char *screens = play("80x24", "click 2 4\nshot\nclick 2 4\nshot\nclick 5 10\nkeys y\n");
    t_true(strstr(screens, "run\xE2\x86\x91"));
    t_true(strstr(screens, "run\xE2\x86\x93"));
    /* the hint of the bottom line */
    const char *line = play("160x24", "");
    for (const char *next; (next = strchr(line, '\n')) && strncmp(next + 1, "-- roles", 8) != 0;)
        line = next + 1;
    const char *at = strstr(line, "trash");
    if (at) {
        char script[64];
        snprintf(script, sizeof script, "click 23 %d\n", (int)(at - line));
        t_true(strstr(play("160x24", script), "Move edp-1 to the trash?"));
    }
    t_true(at != NULL);
}

/* A click on the first place of `text` in the picture that `keys` leave behind. */
static void click_text(struct str *script, const char *size, const char *text)
{
    const char *screen = play(size, str_text(script)), *at = strstr(screen, text), *line = screen;
    int row = -1; /* the first line names the screen */
    t_truef(at != NULL, "no \"%s\" on:\n%s", text, screen);
    for (const char *next; at && (next = strchr(line, '\n')) && next < at; line = next + 1)
        row++;
    if (at)
        str_addf(script, "click %d %d\n", row, utf8_cells(line, (size_t)(at - line)));
}

T(a_click_runs_a_row_of_the_key_overlay)
{
    static const struct {
        const char *text, *result;
    } row[] = {{":trash", "Move edp-1 to the trash?"}, /* no hint at 80 columns */
               {":view ", "\xE2\x94\x80 views \xE2\x94\x80"},
               {"one", "\xE2\x94\x80 views \xE2\x94\x80"}, /* the second line of that row */
               {"All views", "keys: click"}};              /* a heading */
    make_world(1);
    for (size_t i = 0; i < DS_LEN(row); i++) {
        struct str script = {0};
        str_add(&script, i ? "keys ? G k k k k k k k k k k k k k k k k k k k k k k\n" : "keys ?\n");
        click_text(&script, "80x40", row[i].text);
        t_true(strstr(play("80x40", str_text(&script)), row[i].result));
        str_release(&script);
    }
}

T(a_name_adds_no_line_to_the_overlay_that_explains)
{
    make_world(1);
    make_run("two\nvalue       9", "seed1", 9000);
    const char *screen = play("120x24", "keys =\n");
    t_true(strstr(screen, "run two\\nvalue       9"));
    t_true(strstr(screen, "metric records of the run"));
}

T(a_question_is_answered_by_a_click)
{
    struct str script = {0};
    make_world(1);
    str_add(&script, "keys D\nclick 5 5\n"); /* elsewhere: the question stays */
    click_text(&script, "80x24", "n\n-- roles");
    t_true(!strstr(play("80x24", str_text(&script)), "to the trash?"));
    t_true(exists("runs/edp-1"));
    str_reset(&script);
    str_add(&script, "keys D\n");
    click_text(&script, "80x24", "y / n");
    play("80x24", str_text(&script));
    t_true(!exists("runs/edp-1"));
    str_release(&script);
}

T(runs_that_vanish_or_are_renamed_while_shown_cost_nothing)
{
    make_world(1);
    struct err e = {0};
    char script[200];
    t_ok(fs_remove_tree("runs/mod-seed1", &e), &e);
    snprintf(script, sizeof script, "keys j\nshot\nkeys F5 D y\nshot\nkeys F5\n");
    t_true(strstr(play("120x30", script), "mod-seed2"));
    t_true(strstr(play("120x30", "keys G g g Enter\n"), "==") != NULL);
}

T(a_run_renamed_while_open_is_open_under_its_new_name)
{
    make_world(1);
    const char *screen =
        play("100x24", "keys Enter\ncommand view home\nkeys Space k\ncommand rename other\n");
    t_true(strstr(screen, "depthscope \xE2\x80\xBA other \xE2\x80\xBA Home"));
    t_true(strstr(screen, "\xE2\x96\xA0 other")); /* and still marked */
}

/* A run that reported an alert and whose loss is NaN. */
static void make_alerts(void)
{
    struct runlog_writer *w = NULL;
    struct err e = {0};
    struct record *r = record_new();
    t_ok(fs_mkdirs("runs/watched", &e), &e);
    t_ok(runlog_writer_open(&w, "runs/watched/log.mp", &e), &e);
    for (int step = 0; step < 40; step++) {
        record_begin(r, step ? "metric" : "head", step, 1000 + step);
        if (step)
            record_num(r, "loss", step < 39 ? 5 - 0.1 * step : (double)NAN);
        record_str(r, step ? "note" : "run", "watched");
        t_ok(runlog_append(w, r, &e), &e);
    }
    struct alert a = {.rule = ALERT_DISK, .level = LOG_ERROR, .step = 39, .value = 1.21};
    str_copy(a.text, sizeof a.text, "1.21 GB free on the disk of the run, below 2");
    alert_record(r, &a, 1039.5);
    t_ok(runlog_append(w, r, &e), &e);
    runlog_writer_close(w);
    record_free(r);
}

T(an_alert_is_marked_in_home_until_it_is_looked_at_and_is_an_event)
{
    make_world(1);
    make_alerts();
    const char *got = play("80x24", "");
    t_true(strstr(got, "!nan+1   watched"));
    t_true(strstr(got, " alert: watched: "));
    compare("home-alert", got);
    t_true(!strstr(play("80x24", "keys A\n"), "!nan"));
    t_true(!strstr(play("80x24", "command acknowledge all\n"), "!nan"));
    t_true(strstr(play("80x24", "keys / w a t c h e d Enter A A\n"), "the run has no alert"));
    t_true(!strstr(play("80x24", "keys Enter j\ncommand view home\n"), "!nan"));
    t_true(strstr(play("80x24", "command filter alert~disk\n"), "watched"));
    t_true(!strstr(play("80x24", "command filter alert~disk\n"), "edp-1 "));
    got = play("100x20", "keys Enter\ncommand view log\n");
    t_true(strstr(got, "alert        1.21 GB free on the disk of the run"));
    compare("log-alert", got);
}

T(a_thousand_runs_open_and_scroll)
{
    char name[40];
    make_world(0);
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "run-%03d", i);
        make_run(name, i % 2 ? "seed1" : "seed2", 1000 + i);
    }
    const char *got =
        play("120x40", "keys PgDn PgDn PgDn G\ncommand first\nkeys f\ntype name~run-77\n");
    t_true(strstr(got, "run-770"));
}
