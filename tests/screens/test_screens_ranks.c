/* Compares scripted screens of the Monitor's panel of ranks with committed ones.
 *
 *   GENERATE=1 test_screens_ranks    regenerates the screens; inspect the diff.
 */
#include "t.h"

#include "base/fs.h"
#include "screens/golden.h"
#include "screens/timelines.h"
#include "tui/app.h"

enum made { FOUR, FORTY, STRANGE, WRONG, MISSING };

struct screen {
    const char *name, *size, *script, *glyphs;
    enum made made;
};

/* clang-format off */
static const struct screen screens[] = {
    {"monitor-ranks-80x24",   "80x24",  "keys j j Enter", NULL,    FOUR},
    {"monitor-ranks-200x50",  "200x50", "",               NULL,    FORTY},
    {"monitor-ranks-ascii",   "80x24",  "keys j j Enter", "ascii", FORTY},
    {"monitor-ranks-strange", "80x24",  "keys j j Enter", NULL,    STRANGE},
    {"monitor-ranks-wrong",   "80x24",  "",               NULL,    WRONG},
    {"monitor-ranks-missing", "80x24",  "keys j j Enter", NULL,    MISSING},
};
/* clang-format on */

static void put_ranks(struct fixture *f, enum made made, int step)
{
    float ms[40], wait[40], bytes[40];
    int n = made == FORTY || made == MISSING ? 40 : 4;
    record_begin(f->record, "ranks", step, 1000 + step);
    record_int(f->record, "steps", 5);
    record_array(f->record, "host");
    for (int r = 0; r < n; r++) {
        char host[32];
        snprintf(host, sizeof host, "node-%02d", r / 2);
        record_str(f->record, NULL,
                   made == STRANGE && r == 2 ? "\x1b[31mred\xe2\x80\xaename of a host that is much "
                                               "longer than its place, and more of it"
                                             : host);
        ms[r] = 250;
        wait[r] = (float)(r == 2 ? 2 : 40 + r);
        bytes[r] = 25e6f;
        if (made == MISSING) { /* the slowest are last, and there are more than rows */
            ms[r] = r % 3 == 1 ? NAN : 250;
            wait[r] = (float)(80 - r);
        }
    }
    record_close(f->record);
    if (made == STRANGE) {
        ms[0] = wait[1] = bytes[3] = NAN;
        wait[3] = 500; /* longer than the step */
    }
    record_f32s(f->record, "step_ms", ms, made == WRONG ? 2 : (size_t)n);
    record_f32s(f->record, "wait_ms", wait, (size_t)n);
    if (made != WRONG)
        record_f32s(f->record, "bytes", bytes, (size_t)n);
    fixture_put(f);
    if (made != WRONG)
        return;
    record_begin(f->record, "ranks", step, 1000 + step); /* without hosts: skipped and counted */
    record_str(f->record, "host", "node");
    fixture_put(f);
}

static void make(struct fixture *f, enum made made)
{
    const struct fixture_head head = {
        .run = "fixture-ranks", .method = "dense", .seed = 1, .layers = 8, .steps = 20};
    fixture_head(f, 0, &head);
    for (int step = 1; step <= 20; step++) {
        record_begin(f->record, "metric", step, 1000 + step);
        record_num(f->record, "loss", 5 - 0.1 * step);
        fixture_put(f);
        if (step % 5 == 0)
            put_ranks(f, made, step);
    }
    record_begin(f->record, "end", 20, 1020);
    record_str(f->record, "status", "done");
    fixture_put(f);
}

T_SECONDS(screens_of_the_ranks_are_as_committed, 120)
{
    const char *dir = t_tmpdir();
    setenv("DEPTHSCOPE_RUNS", "/nonexistent/runs", 1);
    for (size_t i = 0; i < DS_LEN(screens); i++) {
        const struct screen *s = &screens[i];
        char dump[256], golden[256], run[256], script[256];
        const char *paths[1] = {run};
        struct tui_options o = {.view = "monitor",
                                .size = s->size,
                                .glyphs = s->glyphs,
                                .paths = paths,
                                .n = 1,
                                .script = script,
                                .dump = dump};
        struct fixture f;
        struct str got = {0};
        struct err e = {0};
        t_true(fixture_begin(&f));
        make(&f, s->made);
        struct str log = fixture_end(&f);
        snprintf(dump, sizeof dump, "%s/out.screen", dir);
        snprintf(golden, sizeof golden, "tests/screens/%s.screen", s->name);
        snprintf(run, sizeof run, "%s/run.mp", dir);
        snprintf(script, sizeof script, "%s/keys.txt", dir);
        t_ok(fs_write_file(run, log.p, log.len, &e), &e);
        t_ok(fs_write_file(script, s->script, strlen(s->script), &e), &e);
        t_ok(tui_run(&o, &e), &e);
        t_ok(fs_read_file(&got, dump, 16 << 20, &e), &e);
        golden_compare(golden, &got, 0);
        str_release(&log);
        str_release(&got);
    }
}
