/* depthscope show: prints a view of the workbench without a terminal, as text, ANSI, HTML or PNG. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "cli/cli.h"
#include "figures/cell.h"
#include "training/options.h"
#include "tui/screen.h"

enum { RUNS_MAX = 16 };

struct cli_option show_options[] = {
    {.name = "size", .has_value = 1, .help = "COLUMNSxROWS  size of the screen (default: 120x40)"},
    {.name = "format",
     .has_value = 1,
     .help = "text|ansi|html|png  (default: by the name of FILE, else text)"},
    {.name = "theme",
     .has_value = 1,
     .help = "NAME  dark, light, high-contrast, colour-blind, 16-colour, or a file"},
    {.name = "keys",
     .has_value = 1,
     .help = "SCRIPT  pressed before the picture: key names, \":COMMAND\", \"click ROW COLUMN\", "
             "\"type TEXT\", separated by ;"},
    {.name = "text",
     .has_value = 1,
     .help = "TEXT  with the view compare and two models: run both on this text"},
    {.name = "glyphs", .has_value = 1, .help = "braille|shades|ascii"},
    {.name = "o", .has_value = 1, .help = "FILE  instead of standard output"},
    {.name = NULL},
};

/* ---- PNG ---- */

/* A cell in points; at this resolution it is 10 x 20 pixels, so that blocks join without seams. */
static const double cell_w = 5, cell_h = 10, png_dpi = 144;

static void draw_cell(struct pen *p, const struct screen *s, int y, int x)
{
    const struct screen_cell *c = &s->cell[(size_t)y * (size_t)s->cols + (size_t)x];
    int fg, bg, wide = x + 1 < s->cols && c[1].rune == 0, marks = 0;
    if (c->rune == 0)
        return;
    while (marks < 3 && c->mark[marks])
        marks++;
    struct cell_glyph g = {.x = x * cell_w,
                           .y = y * cell_h,
                           .w = cell_w * (1 + wide),
                           .h = cell_h,
                           .rune = c->rune,
                           .mark = c->mark,
                           .marks = marks,
                           .is_bold = (int)c->bold};
    screen_colours(s, c, &fg, &bg);
    g.rgb = fg;
    if (bg != s->bg)
        pen_box(p, g.x, g.y, g.w, g.h, bg, 1);
    cell_draw(p, &g);
    if (c->underline)
        pen_box(p, g.x, g.y + 0.9 * g.h, g.w, 0.07 * g.h, fg, 1);
}

static int add_png(const struct screen *s, struct str *out, struct err *e)
{
    struct pen_list *l = pen_list_new();
    int rc = l ? 0 : err_set(e, DS_EMEM, "picture: out of memory");
    for (int y = 0; rc == 0 && y < s->rows; y++)
        for (int x = 0; x < s->cols; x++)
            draw_cell(pen_list_pen(l), s, y, x);
    if (rc == 0 && pen_list_failed(l))
        rc = err_set(e, DS_EMEM, "picture of %d x %d cells: out of memory", s->cols, s->rows);
    struct pen_page page = {
        .w = s->cols * cell_w, .h = s->rows * cell_h, .dpi = png_dpi, .background = s->bg};
    if (rc == 0)
        rc = pen_cairo_write(l, PEN_PNG, &page, out, e);
    pen_list_free(l);
    return rc;
}

/* ---- formats ---- */

enum format { FORMAT_TEXT, FORMAT_ANSI, FORMAT_HTML, FORMAT_PNG };
static const struct {
    const char *name, *ending;
} formats[] = {[FORMAT_TEXT] = {"text", ".txt"},
               [FORMAT_ANSI] = {"ansi", ".ansi"},
               [FORMAT_HTML] = {"html", ".html"},
               [FORMAT_PNG] = {"png", ".png"}};

static int choose_format(const struct cli_args *a, enum format *out, struct err *e)
{
    const char *name = cli_value(a, "format"), *file = cli_value(a, "o");
    *out = FORMAT_TEXT;
    for (size_t i = 0; i < DS_LEN(formats); i++) {
        size_t n = strlen(formats[i].ending), all = file ? strlen(file) : 0;
        if (name ? strcmp(name, formats[i].name) == 0
                 : all > n && strcmp(file + all - n, formats[i].ending) == 0) {
            *out = (enum format)i;
            return 0;
        }
    }
    return name ? err_set(e, DS_EUSAGE, "--format=%s: expected text, ansi, html or png", name) : 0;
}

static int add_format(const struct screen *s, enum format f, const char *title, struct str *out,
                      struct err *e)
{
    switch (f) {
    case FORMAT_TEXT: screen_text(s, out); break;
    case FORMAT_ANSI: screen_ansi(s, out); break;
    case FORMAT_HTML: screen_html(s, title, out); break;
    case FORMAT_PNG: return add_png(s, out, e);
    }
    return 0;
}

/* ---- the command ---- */

/* Views that show something without a run. */
static int is_view_alone(const char *name)
{
    return strcmp(name, "home") == 0 || strcmp(name, "manual") == 0 || strcmp(name, "log") == 0 ||
           strcmp(name, "machine") == 0;
}

static int open_paths(const struct cli_args *a, char path[][1024], const char **paths, size_t *n,
                      struct err *e)
{
    int rc = 0;
    if (a->n_rest - 1 > RUNS_MAX)
        return err_set(e, DS_EUSAGE, "too many runs, must be at most %d", RUNS_MAX);
    for (int i = 1; rc == 0 && i < a->n_rest; i++) {
        rc = cli_run_path(path[*n], 1024, a->rest[i], e);
        paths[*n] = path[*n];
        (*n)++;
    }
    return rc;
}

static int check(const struct cli_args *a, struct err *e)
{
    if (a->n_rest == 0)
        return err_set(e, DS_EUSAGE, "show: missing view (depthscope help views lists them)");
    if (a->n_override > 0)
        return err_set(e, DS_EUSAGE, "show: unexpected setting %s", a->override[0]);
    if (cli_value(a, "text") && (a->n_rest != 3 || strcmp(a->rest[0], "compare") != 0))
        return err_set(e, DS_EUSAGE, "show: --text: expected the view compare and two models");
    return 0;
}

static int show(const struct cli_args *a, struct str *out, struct err *e)
{
    char path[RUNS_MAX][1024], data[1024];
    const char *paths[RUNS_MAX];
    struct screen s = {0};
    size_t n = 0;
    enum format f = FORMAT_TEXT;
    int rc = check(a, e);
    if (rc == 0)
        rc = tui_check_view(a->rest[0], e);
    if (rc == 0)
        rc = choose_format(a, &f, e);
    if (rc == 0)
        rc = open_paths(a, path, paths, &n, e);
    if (rc < 0)
        return rc;
    if (cli_data_dir(data, sizeof data, "data", NULL) == 0)
        train_config_preset_dir(data);
    struct tui_options o = {.paths = paths,
                            .n = n,
                            .view = a->rest[0],
                            .theme = cli_value(a, "theme"),
                            .color =
                                f == FORMAT_TEXT ? "never" : NULL, /* signs and letters instead */
                            .glyphs = cli_value(a, "glyphs"),
                            .text = cli_value(a, "text"),
                            .keys = cli_value(a, "keys"),
                            .size = cli_value(a, "size") ? cli_value(a, "size") : "120x40",
                            .readonly = 1};
    if (n == 0 && !is_view_alone(o.view))
        rc = err_set(e, DS_EUSAGE, "show %s: missing run, trace or model", o.view);
    if (rc == 0 && f == FORMAT_PNG && !cli_value(a, "o") && isatty(STDOUT_FILENO))
        rc = err_set(e, DS_EUSAGE,
                     "--format=png: standard output is a terminal, expected -o FILE or a pipe");
    if (rc == 0)
        rc = screen_make(&s, &o, e);
    if (rc == 0)
        rc = add_format(&s, f, o.view, out, e);
    screen_release(&s);
    if (rc == 0 && cli_value(a, "o"))
        rc = fs_write_text(cli_value(a, "o"), out, e);
    else if (rc == 0)
        rc = cli_write_text(out, e);
    return rc;
}

int show_command(int argc, char **argv)
{
    struct cli_args a = {0};
    struct err e = {0};
    struct str out = {0};
    if (cli_parse(&a, show_options, argc, argv, &e) < 0)
        return command_fail(&e);
    int rc = show(&a, &out, &e);
    str_release(&out);
    cli_release(&a);
    return rc < 0 ? command_fail(&e) : 0;
}
