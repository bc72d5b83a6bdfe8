/* Compares scripted screens of the Experts view, and of categorical cells elsewhere, with committed
 * ones.
 *
 *   GENERATE=1 test_screens_experts    regenerates the screens; inspect the diff.
 */
#include "t.h"

#include "base/fs.h"
#include "screens/golden.h"
#include "screens/mixtures.h"
#include "tui/app.h"

/* clang-format off */
static const struct mixture both = {MIX_LAYERS, MIX_EXPERTS, 800, 100, MIX_COLLAPSES},
    wide = {95, 256, 400, 100, MIX_NO_PROBES}, counted = {MIX_LAYERS, MIX_EXPERTS, 300, 100, MIX_NO_LOADS | MIX_INFERRED},
    unknown = {MIX_LAYERS, MIX_EXPERTS, 300, 100, MIX_NO_LOADS | MIX_NO_COUNT},
    norun = {MIX_LAYERS, MIX_EXPERTS, 300, 100, MIX_NO_LOADS | MIX_NO_RUN},
    loads = {MIX_LAYERS, 8, 300, 100, MIX_NO_PROBES}, noops = {MIX_LAYERS, 8, 300, 100, MIX_NO_PROBES, 2}, none = {MIX_LAYERS, MIX_EXPERTS, 300, 100, MIX_NO_PROBES | MIX_NO_LOADS};

struct screen {
    const char *name, *size, *view, *script, *glyphs, *color, *theme;
    const struct mixture *made;
};

static const struct screen screens[] = {
    {"experts-80x24",   "80x24",  "experts", "shot\nkeys j l l l l l\nshot\nkeys , ,\nshot\nkeys g g\nshot\nkeys G w w\nshot\nkeys w o ] h =", NULL, NULL, NULL, &both},
    {"experts-tokens",  "80x24",  "experts", "keys l l l Enter\nshot\nkeys ] t j\nshot\nkeys } / d o g Enter\nshot\nkeys Esc", NULL, NULL, NULL, &both},
    {"experts-120x40",  "120x40", "experts", "keys j l\nshot\nkeys l l Enter l",         NULL,     NULL,    NULL,    &both},
    {"experts-200x50",  "200x50", "experts", "keys j j l l\nshot\nkeys Enter",           NULL,     NULL,    NULL,    &both},
    {"experts-20x5",    "20x5",   "experts", "keys j l\nshot\nkeys Enter",               NULL,     NULL,    NULL,    &both},
    {"experts-light",   "80x24",  "experts", "keys j",                                   NULL,     NULL,    "light", &both},
    {"experts-16",      "80x24",  "experts", "keys j",                                   "shades", "16",    NULL,    &both},
    {"experts-mono",    "80x24",  "experts", "keys j\nshot\nkeys l l l Enter",           "ascii",  "never", NULL,    &both},
    {"experts-wide",    "80x24",  "experts", "keys j j l l\nshot\nkeys L L w\nshot\nkeys w\nshot\nkeys / 1 2 8 Enter", NULL, NULL, NULL, &wide},
    {"experts-wide-200x50", "200x50", "experts", "keys j",                               NULL,     NULL,    NULL,    &wide},
    {"experts-wide-20x5", "20x5", "experts", "keys j l l",                               NULL,     NULL,    NULL,    &wide},
    {"experts-wide-mono", "80x24", "experts", "keys j",                                  "ascii",  "never", NULL,    &wide},
    {"experts-probes",  "80x24",  "experts", "keys j l l\nshot\nkeys Enter",             NULL,     NULL,    NULL,    &counted},
    {"experts-unknown", "80x24",  "experts", "keys j l l",                               NULL,     NULL,    NULL,    &unknown},
    {"experts-loads",   "80x24",  "experts", "keys j l\nshot\nkeys Enter",               NULL,     NULL,    NULL,    &loads},
    {"experts-noops",   "80x24",  "experts", "keys G\nshot\nsize 60x12",                 NULL,     NULL,    NULL,    &noops},
    {"experts-none",    "80x24",  "experts", "keys j l , Enter ] h ] t } w o =",         NULL,     NULL,    NULL,    &none},
    {"experts-mouse",   "80x24",  "experts", "click 7 30\nshot\nwheel down 7 30\nshot\nclick 10 20\nclick 10 20", NULL, NULL, NULL, &both},
    {"experts-play",    "80x24",  "experts", "keys p\nshot\nkeys j\nshot\nkeys p\nshot\nkeys G p", NULL, NULL, NULL, &both},
    {"experts-log",     "80x24",  "log",     "",                                         NULL,     NULL,    NULL,    &both},
    {"cells-category",  "80x24",  "depth",   "keys j j l c\nshot\nkeys c",               NULL,     NULL,    NULL,    &counted},
    {"cells-category-16", "80x24", "depth",  "keys j j l c",                             "shades", "16",    NULL,    &counted},
    {"cells-category-mono", "80x24", "depth", "keys j j l c",                            "ascii",  "never", NULL,    &counted},
    {"cells-unknown",   "80x24",  "depth",   "keys j l =\nshot\nkeys Esc c",             NULL,     NULL,    NULL,    &norun},
    {"cells-category-200x50", "200x50", "depth", "keys j j l c =",                       NULL,     NULL,    NULL,    &counted},
    {"cells-category-20x5", "20x5", "depth", "keys j j l c",                             NULL,     NULL,    NULL,    &counted},
    {"signals-category", "80x24", "signals", "keys l\nshot\nkeys p",                     NULL,     NULL,    NULL,    &counted},
};
/* clang-format on */

static void play(const struct screen *s, const char *dump)
{
    char script[256], run[256];
    const char *dir = t_tmpdir(), *paths[1] = {run};
    struct tui_options o = {.view = s->view,
                            .size = s->size,
                            .glyphs = s->glyphs,
                            .color = s->color,
                            .theme = s->theme,
                            .paths = paths,
                            .n = 1,
                            .script = script,
                            .dump = dump};
    struct fixture f;
    struct err e = {0};
    setenv("DEPTHSCOPE_RUNS", "/nonexistent/runs", 1);
    t_true(fixture_begin(&f));
    mix_run(&f, s->made);
    struct str log = fixture_end(&f);
    t_true(log.len > 0);
    snprintf(run, sizeof run, "%s/run.mp", dir);
    snprintf(script, sizeof script, "%s/keys.txt", dir);
    t_ok(fs_write_file(run, log.p, log.len, &e), &e);
    t_ok(fs_write_file(script, s->script, strlen(s->script), &e), &e);
    t_ok(tui_run(&o, &e), &e);
    str_release(&log);
}

/* The record stream of the picture of this view. */
T(the_mixture_matches_its_formula)
{
    const struct mixture m = {24, 64, 600, 300, MIX_ONE_TEXT};
    const char *path = "tests/screens/mixture.mp";
    struct fixture f;
    struct str want = {0};
    struct err e = {0};
    t_true(fixture_begin(&f));
    mix_run(&f, &m);
    struct str log = fixture_end(&f);
    if (getenv("GENERATE"))
        t_ok(fs_write_file(path, log.p, log.len, &e), &e);
    t_ok(fs_read_file(&want, path, 1 << 20, &e), &e);
    t_true(want.len == log.len && memcmp(want.p, log.p, log.len) == 0);
    str_release(&want);
    str_release(&log);
}

T_SECONDS(screens_of_experts_are_as_committed, 120)
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

/* One expert of 94 x 256 takes ten times its share, all others are even: its sign is on the map. */
T_SECONDS(a_hot_expert_is_visible_at_every_size, 120)
{
    enum { ROWS = 94, COLS = 256 };
    static const char *const sizes[] = {"20x5", "33x8", "80x24", "200x50", "400x120"};
    static const int hot[][2] = {{0, 0}, {93, 255}, {47, 130}, {12, 40}, {60, 201}};
    static float value[ROWS * COLS];
    char run[256], script[256], dump[256];
    const char *dir = t_tmpdir(), *paths[1] = {run};
    struct err e = {0};
    snprintf(run, sizeof run, "%s/run.mp", dir);
    snprintf(script, sizeof script, "%s/keys.txt", dir);
    snprintf(dump, sizeof dump, "%s/out.screen", dir);
    t_ok(fs_write_file(script, "", 0, &e), &e);
    for (size_t i = 0; i < DS_LEN(hot); i++) {
        struct fixture f;
        t_true(fixture_begin(&f));
        for (int k = 0; k < ROWS * COLS; k++)
            value[k] = 100;
        value[hot[i][0] * COLS + hot[i][1]] = 1000;
        record_begin(f.record, "matrix", 1, 1000);
        record_str(f.record, "name", "expert_load");
        record_int(f.record, "rows", ROWS);
        record_int(f.record, "cols", COLS);
        record_f32s(f.record, "value", value, ROWS * COLS);
        fixture_put(&f);
        struct str log = fixture_end(&f);
        t_ok(fs_write_file(run, log.p, log.len, &e), &e);
        str_release(&log);
        for (size_t k = 0; k < DS_LEN(sizes); k++) {
            struct tui_options o = {.view = "experts",
                                    .size = sizes[k],
                                    .glyphs = "ascii",
                                    .color = "never",
                                    .paths = paths,
                                    .n = 1,
                                    .script = script,
                                    .dump = dump};
            struct str got = {0};
            int signs = 0, cursor = hot[i][0] == 0 && hot[i][1] == 0; /* it is on that cell */
            t_ok(tui_run(&o, &e), &e);
            t_ok(fs_read_file(&got, dump, 16 << 20, &e), &e);
            const char *roles = strstr(str_text(&got), "-- roles");
            for (const char *c = str_text(&got); c < roles; c++)
                signs += *c == '#';
            int legend = strstr(str_text(&got), "# >4x") != NULL;
            t_truef(signs - legend + cursor >= 1, "expert %d of layer %d at %s", hot[i][1],
                    hot[i][0], sizes[k]);
            str_release(&got);
        }
    }
}

static void write_run(const char *path, const struct mixture *m)
{
    struct fixture f;
    struct err e = {0};
    t_true(fixture_begin(&f));
    mix_run(&f, m);
    struct str log = fixture_end(&f);
    t_ok(fs_write_file(path, log.p, log.len, &e), &e);
    str_release(&log);
}

/* The line of a screen that begins so, after these keys. */
static void line_after(char out[256], const char **paths, size_t n, const char *keys,
                       const char *begin)
{
    char script[256], dump[256];
    const char *dir = t_tmpdir();
    struct tui_options o = {
        .view = "experts", .size = "80x24", .paths = paths, .n = n, .script = script, .dump = dump};
    struct str got = {0};
    struct err e = {0};
    snprintf(script, sizeof script, "%s/keys.txt", dir);
    snprintf(dump, sizeof dump, "%s/out.screen", dir);
    t_ok(fs_write_file(script, keys, strlen(keys), &e), &e);
    t_ok(tui_run(&o, &e), &e);
    t_ok(fs_read_file(&got, dump, 1 << 20, &e), &e);
    const char *at = strstr(str_text(&got), begin);
    t_true(at != NULL);
    snprintf(out, 256, "%.*s", at ? (int)strcspn(at, "\n") : 0, at ? at : "");
    str_release(&got);
}

/* Two runs with records at the same steps, of which one collapses: the curve of the expert at the
 * cursor is that of the run that is shown. */
T(another_run_has_its_own_curve)
{
    const struct mixture even = {MIX_LAYERS, MIX_EXPERTS, 400, 100, MIX_NO_PROBES},
                         collapses = {MIX_LAYERS, MIX_EXPERTS, 400, 100,
                                      MIX_NO_PROBES | MIX_COLLAPSES};
    char a[256], b[256], alone[256], after[256];
    snprintf(a, sizeof a, "%s/a.mp", t_tmpdir());
    snprintf(b, sizeof b, "%s/b.mp", t_tmpdir());
    write_run(a, &even);
    write_run(b, &collapses);
    const char *one[] = {a}, *two[] = {b, a};
    line_after(alone, one, 1, "keys j\n", "over steps");
    line_after(after, two, 2, "keys j\n", "over steps");
    t_true(strcmp(alone, after) != 0);
    line_after(after, two, 2, "keys j\nkeys ] r\n", "over steps");
    t_str(after, alone);
}

/* Every key, at sizes from empty to large, with and without data. */
T_SECONDS(no_key_at_any_size_does_harm, 120)
{
    static const char *const sizes[] = {"1x1", "7x3", "33x8", "80x12", "80x24", "250x70"};
    static const char keys[] =
        "keys h l , . p k p j PgUp PgDn C-u C-d H L g g G F ] h [ h w w w o Enter h l k j ] t [ t "
        "} { "
        "H "
        "L / a Enter n N Esc / 3 Enter y u u C-r Home End = Esc\ncommand step 250\ncommand step x\n"
        "shot\nsize 30x9\nkeys l j w\nclick 4 4\nsize 80x24\nkeys k Enter\nclick 9 40\n"
        "wheel down 9 40";
    static const struct mixture *const made[] = {&both, &wide, &counted, &unknown, &loads, &none};
    for (size_t i = 0; i < DS_LEN(sizes); i++)
        for (size_t k = 0; k < DS_LEN(made); k++) {
            const struct screen s = {.name = "keys",
                                     .size = sizes[i],
                                     .view = "experts",
                                     .script = keys,
                                     .made = made[k]};
            play(&s, "/dev/null");
        }
}
