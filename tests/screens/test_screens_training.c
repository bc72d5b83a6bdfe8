/* Compares scripted screens of the Timeline and of Pareto with committed ones.
 *
 *   GENERATE=1 test_screens_training    regenerates the screens; inspect the diff.
 */
#include "t.h"

#include "base/fs.h"
#include "screens/golden.h"
#include "screens/timelines.h"
#include "tui/app.h"

enum made { TIME, RESUMED, LONG, NO_PROBE, TRADES, SIZES, NO_EVAL, ZEROS, TWICE, MADE };

struct screen {
    const char *name, *size, *view, *script, *glyphs, *color, *theme;
    enum made made;
};

/* clang-format off */
static const struct screen screens[] = {
    {"timeline-80x24",   "80x24",  "timeline", "shot\nkeys h h h j j j\nshot\nkeys s\nshot\nkeys s c j\nshot\nkeys Enter\nshot\nkeys v v o", NULL, NULL, NULL, TIME},
    {"timeline-120x40",  "120x40", "timeline", "keys h j j ] t ] t\nshot\nkeys j =\nshot\nkeys Esc s =",            NULL,     NULL,    NULL,    TIME},
    {"timeline-200x50",  "200x50", "timeline", "keys h h j j j",              NULL,     NULL,    NULL,    TIME},
    {"timeline-20x5",    "20x5",   "timeline", "keys h j",                    NULL,     NULL,    NULL,    TIME},
    {"timeline-light",   "80x24",  "timeline", "keys h j j",                  NULL,     NULL,    "light", TIME},
    {"timeline-16",      "80x24",  "timeline", "keys h j j",                  "shades", "16",    NULL,    TIME},
    {"timeline-mono",    "80x24",  "timeline", "keys h j j\nshot\nkeys s",    "ascii",  "never", NULL,    TIME},
    {"timeline-play",    "80x24",  "timeline", "keys p\nshot\nkeys j\nshot\nkeys > p\nshot\nkeys g g\nshot\nkeys G p p p", NULL, NULL, NULL, TIME},
    {"timeline-go",      "80x24",  "timeline", "command step 420\nshot\nkeys }\nshot\nkeys } / d o g Enter\nshot\nkeys { g g H\nshot\ncommand step x\nshot\nkeys L L Space", NULL, NULL, NULL, TIME},
    {"timeline-mouse",   "80x24",  "timeline", "click 5 40\nshot\nclick 18 30\nshot\nwheel up 5 40\nshot\nclick 4 8", NULL, NULL, NULL, TIME},
    {"timeline-resumed", "80x24",  "timeline", "keys h",                      NULL,     NULL,    NULL,    RESUMED},
    {"timeline-long",    "80x24",  "timeline", "keys h h H\nshot\nkeys m",    NULL,     NULL,    NULL,    LONG},
    {"timeline-twice",   "80x24",  "timeline", "keys h\nshot\nkeys h\nshot\nkeys l", NULL, NULL,  NULL,    TWICE},
    {"timeline-empty",   "80x24",  "timeline", "keys h j p s c Enter v o ] t Space }\nshot\nkeys Esc y", NULL, NULL, NULL, NO_PROBE},
    {"pareto-80x24",     "80x24",  "pareto",   "shot\nkeys l l\nshot\nkeys x\nshot\nkeys x m\nshot\nkeys u u X L", NULL, NULL, NULL, TRADES},
    {"pareto-120x40",    "120x40", "pareto",   "keys j\nshot\nkeys =",                      NULL,     NULL,    NULL,    TRADES},
    {"pareto-200x50",    "200x50", "pareto",   "keys j j",                    NULL,     NULL,    NULL,    TRADES},
    {"pareto-20x5",      "20x5",   "pareto",   "keys j",                      NULL,     NULL,    NULL,    TRADES},
    {"pareto-light",     "80x24",  "pareto",   "keys j j",                    NULL,     NULL,    "light", TRADES},
    {"pareto-16",        "80x24",  "pareto",   "keys j j",                    "shades", "16",    NULL,    TRADES},
    {"pareto-mono",      "80x24",  "pareto",   "keys j j",                    "ascii",  "never", NULL,    TRADES},
    {"pareto-keys",      "80x24",  "pareto",   "keys ] f ] f\nshot\nkeys / m o d Enter\nshot\nkeys Space\nshot\nkeys 0\ncommand axis time-ratio\ncommand metric accuracy\nshot\ncommand axis depth\nshot\ncommand metric nothing\nshot\nkeys G Enter", NULL, NULL, NULL, TRADES},
    {"pareto-mouse",     "80x24",  "pareto",   "click 5 60\nshot\nclick 18 10\nshot\nwheel down 10 10", NULL, NULL, NULL, TRADES},
    {"pareto-iso",       "120x40", "pareto",   "command axis parameters\nkeys l\nshot\nkeys l", NULL, NULL, NULL, SIZES},
    {"pareto-zero",      "80x24",  "pareto",   "keys L X",                    NULL,     NULL,    NULL,    ZEROS},
    {"pareto-empty",     "80x24",  "pareto",   "keys j Enter Space x m y",    NULL,     NULL,    NULL,    NO_EVAL},
};
/* clang-format on */

static int runs_of(enum made made)
{
    return made == TRADES                     ? TRADE_RUNS
           : made == SIZES                    ? ISO_RUNS
           : made == NO_EVAL || made == ZEROS ? 2
                                              : 1;
}

static void make(struct fixture *f, enum made made, int i)
{
    static const struct fixture_head bare = {
        .run = "fixture-bare", .method = "edp", .seed = 1, .layers = 8, .steps = 100};
    struct fixture_head second = bare;
    switch (made) {
    case TIME: time_run(f, 600, 50, 0); break;
    case RESUMED: time_run(f, 600, 50, 1); break;
    case LONG: time_run(f, 6000, 10, 0); break;
    case TWICE: /* two probes at step 50, one of them on request */
        fixture_head(f, 0, &bare);
        for (int k = 0; k < 4; k++)
            time_probe(f, k < 2 ? 50 * k : 50 * (k - 1), 0, 600);
        break;
    case TRADES: trade_run(f, i); break;
    case SIZES: iso_run(f, i); break;
    case ZEROS: /* a loss without a logarithm */
        second.run = i ? "fixture-other" : bare.run;
        second.method = i ? "mod" : bare.method;
        fixture_head(f, 0, &second);
        fixture_eval(f, 100, "final", "causal", i, 1 - 0.5 * i, 1);
        fixture_close(f, 100, "done");
        break;
    default:
        second.run = i ? "fixture-other" : bare.run;
        fixture_head(f, 0, &second);
        fixture_close(f, 10, "stopped");
    }
}

static void write_run(const char *path, enum made made, int i)
{
    struct fixture f;
    struct err e = {0};
    t_true(fixture_begin(&f));
    make(&f, made, i);
    struct str log = fixture_end(&f);
    t_true(log.len > 0);
    t_ok(fs_write_file(path, log.p, log.len, &e), &e);
    str_release(&log);
}

static void play(const struct screen *s, const char *dump)
{
    static char run[TRADE_RUNS][256];
    char script[256];
    const char *dir = t_tmpdir(), *paths[TRADE_RUNS];
    struct tui_options o = {.view = s->view,
                            .size = s->size,
                            .glyphs = s->glyphs,
                            .color = s->color,
                            .theme = s->theme,
                            .paths = paths,
                            .n = (size_t)runs_of(s->made),
                            .script = script,
                            .dump = dump};
    struct err e = {0};
    setenv("DEPTHSCOPE_RUNS", "/nonexistent/runs", 1);
    for (int i = 0; i < (int)o.n; i++) {
        snprintf(run[i], sizeof run[i], "%s/run-%d-%02d.mp", dir, (int)s->made, i);
        if (!fs_exists(run[i]))
            write_run(run[i], s->made, i);
        paths[i] = run[i];
    }
    snprintf(script, sizeof script, "%s/keys.txt", dir);
    t_ok(fs_write_file(script, s->script, strlen(s->script), &e), &e);
    t_ok(tui_run(&o, &e), &e);
}

T_SECONDS(screens_of_training_are_as_committed, 120)
{
    const char *only = getenv("SCREEN");
    for (size_t i = 0; i < DS_LEN(screens); i++) {
        char dump[256], golden[256];
        struct str got = {0};
        struct err e = {0};
        if (only && strcmp(only, screens[i].name) != 0)
            continue;
        snprintf(dump, sizeof dump, "%s/out.screen", t_tmpdir());
        snprintf(golden, sizeof golden, "tests/screens/%s.screen", screens[i].name);
        play(&screens[i], dump);
        t_ok(fs_read_file(&got, dump, 16 << 20, &e), &e);
        golden_compare(golden, &got, 0);
        str_release(&got);
    }
}

/* Every key of both views, at sizes from empty to large, with and without data. */
T_SECONDS(no_key_at_any_size_does_harm, 120)
{
    static const char *const sizes[] = {"1x1", "7x3", "33x8", "80x12", "80x24", "250x70"};
    static const char keys[] =
        "keys h l , . k j PgUp PgDn C-u C-d H L g g G F p j < > p c j k Enter s m m } { v o ] t [ "
        "t "
        "Space x x x x x x X L m M ] f [ f Space 0 / a n N Esc y u u C-r Home End = Esc\ncommand "
        "step 5\n"
        "shot\nsize 30x9\nkeys l j c\nclick 4 4\nsize 80x24\nkeys k\nclick 9 40\nwheel down 9 40";
    static const enum made made[] = {TIME, RESUMED, NO_PROBE, TRADES, SIZES, NO_EVAL};
    for (size_t i = 0; i < DS_LEN(sizes); i++)
        for (size_t k = 0; k < DS_LEN(made); k++)
            for (int view = 0; view < 2; view++) {
                const struct screen s = {.name = "keys",
                                         .size = sizes[i],
                                         .view = view ? "pareto" : "timeline",
                                         .script = keys,
                                         .made = made[k]};
                play(&s, "/dev/null");
            }
}
