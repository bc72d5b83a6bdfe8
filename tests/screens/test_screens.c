/* Compares scripted screens with committed ones, text plane and role plane.
 *
 *   GENERATE=1 test_screens    regenerates the streams and screens; inspect the diff.
 */
#include "t.h"

#include "base/fs.h"
#include "base/str.h"
#include "screens/golden.h"
#include "screens/streams.h"
#include "tui/app.h"

/* Tests run in the repository root. */
static const char folder[] = "tests/screens";

struct screen {
    const char *name, *size, *view, *script, *glyphs, *color;
    const char *run[3];
};

/* clang-format off */
static const struct screen screens[] = {
    {"monitor-80x24",   "80x24",  NULL,      "",                         NULL,     NULL,   {"training"}},
    {"monitor-200x50",  "200x50", NULL,      "",                         NULL,     NULL,   {"training"}},
    {"monitor-20x5",    "20x5",   NULL,      "",                         NULL,     NULL,   {"training"}},
    {"monitor-1x1",     "1x1",    NULL,      "",                         NULL,     NULL,   {"training"}},
    {"monitor-ascii",   "80x24",  NULL,      "keys s",                   "ascii",  "never", {"training"}},
    {"monitor-shades",  "80x24",  NULL,      "keys x x",                 "shades", "16",   {"training"}},
    {"monitor-one",     "80x24",  NULL,      "keys Enter l l l l L\nshot\nkeys Esc u", NULL, NULL, {"training"}},
    {"monitor-log-x",   "80x24",  NULL,      "keys Enter X l l l l\nshot\nkeys Esc o\nshot\nkeys 0 X o X", NULL, NULL, {"training"}},
    {"monitor-keys",    "80x24",  NULL,      "keys j l c\nshot\nkeys u u ?\nshot\nkeys Esc PgDn", NULL, NULL, {"training"}},
    {"monitor-step",    "80x24",   NULL,      "keys G\nshot\nkeys h Enter\nshot\nsize 200x50", NULL, NULL, {"training"}},
    {"monitor-seeds",   "100x30", NULL,      "shot\nkeys b",             NULL,     NULL,   {"seed1", "seed2", "seed3"}},
    {"monitor-empty",   "80x24",  NULL,      "",                         NULL,     NULL,   {"empty"}},
    {"monitor-hostile", "80x24",  NULL,      "",                         NULL,     NULL,   {"hostile"}},
    {"log",             "80x24",  "log",     "keys k k\nshot\nkeys v v", NULL,     NULL,   {"training"}},
    {"log-hostile",     "80x24",  "log",     "",                         NULL,     NULL,   {"hostile"}},
    {"log-entry",       "80x24",  "log",     "keys k Enter\nshot\nsize 20x5\nshot\nkeys Esc\nsize 60x10\nkeys l", NULL, NULL, {"training"}},
    {"explain",         "80x24",  NULL,      "keys =\nshot\nsize 120x40\nshot\nsize 200x50\nshot\nsize 20x5\nshot\nkeys Esc\nsize 80x24\ncommand view depth\nkeys l j =\nshot\nkeys Esc\ncommand explain val_loss", NULL, NULL, {"training"}},
    {"form",            "80x24",  "home",    "command new quick\nshot\nsize 120x40\nkeys j j Enter Down\nshot\nsize 200x50\nkeys Enter\nshot\nsize 20x5\nshot\nsize 80x24\nkeys j j Enter\ntype x\nshot\nkeys Esc /\ntype max_seq\nkeys Enter", NULL, NULL, {NULL}},
    {"form-ascii",      "80x24",  "home",    "command new quick\nkeys j j Enter", "ascii", "never", {NULL}},
    {"flops",           "80x24",  "flops",   "shot\nkeys s\nshot\nsize 50x20\nshot\nsize 160x45", NULL, NULL, {"training"}},
    {"flops-sizes",     "120x40", "flops",   "shot\nsize 200x50\nshot\nsize 20x5\nshot\nsize 80x24\ncommand theme light", NULL, NULL, {"training"}},
    {"flops-16",        "80x24",  "flops",   "",                         NULL,     "16",   {"training"}},
    {"flops-mono",      "80x24",  "flops",   "",                         "ascii",  "never", {"training"}},
    {"monitor-sizes",   "120x40", NULL,      "shot\nsize 80x24\ncommand theme light", NULL, NULL, {"training"}},
    {"log-sizes",       "120x40", "log",     "keys k Enter\nshot\nsize 200x50\nshot\nkeys Esc\nsize 20x5", NULL, NULL, {"training"}},
    {"help-sizes",      "80x24",  "manual",    "shot\nsize 120x40\nshot\nsize 20x5", NULL, NULL,  {"training"}},
    {"flops-empty",     "80x24",  "flops",   "",                         NULL,     NULL,   {"empty"}},
    {"split",           "120x30", NULL,      "keys |\ncommand log\nkeys Tab\nshot\nkeys + ", NULL, NULL, {"training"}},
    {"command",         "80x24",  NULL,      "keys : s m Tab\nshot\nkeys Esc :\ntype nosuch\nkeys Enter", NULL, NULL, {"training"}},
    {"views",           "80x24",  NULL,      "keys V\nshot\ntype log\nshot\nkeys Down Enter\nshot\ncommand view log\nkeys Esc 9\nshot\nkeys V\ntype zzz", NULL, NULL, {"training"}},
    {"command-set",     "120x12", NULL,      "keys :\ntype set \nshot\ntype lr\nkeys Tab\nshot\ntype  \nkeys Tab", NULL, NULL, {"live"}},
    {"command-set-old", "120x12", NULL,      "keys :\ntype set \nkeys Tab", NULL, NULL, {"training"}},
    {"bar",             "60x16",  NULL,      "shot\nsize 40x14\nshot\nclick 1 15\nshot\nsize 40x11", NULL, NULL, {"training"}},
    {"figures",         "80x24",  "figures", "shot\nkeys j j v t f\nshot\nkeys G\nshot\nkeys u u Enter", NULL, NULL, {"training"}},
    {"figures-120x40",  "120x40", "figures", "",                         NULL,     NULL,   {"training"}},
    {"figures-200x50",  "200x50", "figures", "",                         NULL,     "truecolor", {"training"}},
    {"figures-20x5",    "20x5",   "figures", "shot\nkeys Enter",         NULL,     NULL,   {"training"}},
    {"figures-16",      "80x24",  "figures", "command theme light",      "shades", "16",   {"training"}},
    {"figures-mono",    "80x24",  "figures", "",                         "ascii",  "never", {"training"}},
    {"figures-hostile", "80x24",  "figures", "",                         NULL,     NULL,   {"hostile"}},
    {"figures-none",    "80x24",  "figures", "",                         NULL,     NULL,   {NULL}},
    {"nothing-open",    "80x24",  "monitor", "",                         NULL,     NULL,   {NULL}},
};
/* clang-format on */

static void path_of(char out[256], const char *name, const char *suffix)
{
    snprintf(out, 256, "%s/%s.%s", folder, name, suffix);
}

static void play(const struct screen *s)
{
    char script[256], dump[256], golden[256], run[3][256];
    const char *dir = t_tmpdir(), *paths[3];
    struct tui_options o = {.view = s->view,
                            .size = s->size,
                            .glyphs = s->glyphs,
                            .color = s->color,
                            .paths = paths,
                            .script = script,
                            .dump = dump};
    struct err e = {0};
    struct str got = {0};
    setenv("DEPTHSCOPE_RUNS", "/nonexistent/runs", 1);
    snprintf(script, sizeof script, "%s/keys.txt", dir);
    snprintf(dump, sizeof dump, "%s/out.screen", dir);
    for (; o.n < 3 && s->run[o.n]; o.n++) {
        path_of(run[o.n], s->run[o.n], "mp");
        paths[o.n] = run[o.n];
    }
    t_ok(fs_write_file(script, s->script, strlen(s->script), &e), &e);
    t_ok(tui_run(&o, &e), &e);
    t_ok(fs_read_file(&got, dump, 16 << 20, &e), &e);
    path_of(golden, s->name, "screen");
    golden_compare(golden, &got, strcmp(s->name, "views") == 0 || strcmp(s->name, "bar") == 0);
    str_release(&got);
}

T(streams_match_their_formula)
{
    for (int i = 0; i < STREAMS; i++) {
        char path[256];
        struct str out = {0};
        t_eq(stream_make(i, &out), 0);
        path_of(path, stream_rows[i].name, "mp");
        golden_compare(path, &out, 1);
        str_release(&out);
    }
}

T_SECONDS(screens_are_as_committed, 120)
{
    const char *only = getenv("SCREEN");
    for (size_t i = 0; i < DS_LEN(screens); i++)
        if (!only || strcmp(only, screens[i].name) == 0)
            play(&screens[i]);
}

T(errors_in_scripts_name_the_line)
{
    char script[256];
    struct err e = {0};
    snprintf(script, sizeof script, "%s/keys.txt", t_tmpdir());
    t_ok(fs_write_file(script, "keys j\nkeys Nonsense\n", 21, &e), &e);
    struct tui_options o = {.script = script, .dump = "/dev/null", .view = "log"};
    t_fails(tui_run(&o, &e), &e, DS_EUSAGE, "keys.txt:2");
    o.view = "nonsense";
    t_fails(tui_run(&o, &e), &e, DS_EUSAGE, "nonsense");
    o.view = NULL;
    o.color = "pink";
    t_fails(tui_run(&o, &e), &e, DS_EUSAGE, "pink");
}

T(links_and_sizes_are_parsed)
{
    int c, r;
    t_near(tui_parse_bandwidth("20k"), 20000, 0);
    t_near(tui_parse_bandwidth("1.5M"), 1.5e6, 0);
    t_near(tui_parse_bandwidth("300"), 300, 0);
    t_true(tui_parse_bandwidth("") < 0 && tui_parse_bandwidth("k") < 0 &&
           tui_parse_bandwidth("-5") < 0 && tui_parse_bandwidth("5x") < 0);
    t_true(tui_parse_size("100x30", &c, &r) && c == 100 && r == 30);
    t_true(!tui_parse_size("100", &c, &r) && !tui_parse_size("0x5", &c, &r) &&
           !tui_parse_size("5x5x", &c, &r));
}
