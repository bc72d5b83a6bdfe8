/* depthscope figure: draws figures from runs, CSV tables and JSON results, lists them, and redraws
 * a PNG from its own recipe. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/cli.h"
#include "cli/version.h"
#include "figures/figure.h"
#include "io/experiment.h"

enum { PNG_BYTES_MAX = 256 << 20 };
#define STEP_MAX 9007199254740992.0 /* every integer up to it is a double */

struct cli_option figure_options[] = {
    {.name = "o",
     .has_value = 1,
     .help = "DIR|FILE  output directory (default: exports), FILE.png, .svg or .pdf, or - for "
             "standard output"},
    {.name = "out", .has_value = 1, .help = "DIR|FILE  same as -o"},
    {.name = "format", .has_value = 1, .help = "png,svg,pdf  output formats"},
    {.name = "venue", .has_value = 1, .help = "NAME  sizes and fonts of a venue (see figure list)"},
    {.name = "theme", .has_value = 1, .help = "NAME  theme in themes/, or a file"},
    {.name = "metric",
     .has_value = 1,
     .help = "a,b  metrics of figure training; also of loss_flops, loss_time, tradeoff, pareto, "
             "task_bars and exit_rules"},
    {.name = "x",
     .has_value = 1,
     .help = "NAME  x axis of curves: step, tokens, seconds, progress, flops or a metric"},
    {.name = "log", .has_value = 1, .help = "x|y|x,y  logarithmic axes of curves"},
    {.name = "range", .has_value = 1, .help = "A..B  range of the x axis of curves"},
    {.name = "smooth", .has_value = 1, .help = "X  smoothing of curves, 0 to 1"},
    {.name = "probe", .has_value = 1, .help = "N  index of the probe text of a map"},
    {.name = "step",
     .has_value = 1,
     .help = "N  the newest probes or expert loads up to this step"},
    {.name = "dpi", .has_value = 1, .help = "N  resolution of the PNG, 300 to 2400"},
    {.name = "again", .has_value = 1, .help = "FILE.png  redraw it from its own recipe"},
    {.name = "dry-run",
     .help = "draw, but write nothing: which figures the data allows, and why not"},
    {.name = "preview",
     .has_value = 1,
     .help = "N  an image N pixels wide on standard output: PPM, or PNG with --format png"},
    {.name = "json", .help = "one JSON object: files, data, captions; figures skipped, and why"},
    {.name = NULL},
};

struct request {
    struct figure_options opt;
    const char *name, *dir, *again, *formats;
    const char *file; /* the one file to write instead of those in dir, or NULL */
    const char *path[FIGURE_RUNS_MAX];
    int paths, json, is_dry;
    double preview; /* width in pixels, 0 = write files */
};

struct opened {
    struct figure_run run[FIGURE_RUNS_MAX];
    int n;
};

/* ---- command line
 * ---------------------------------------------------------------------------- */

static int number(const struct cli_args *a, const char *name, double most, double *out,
                  struct err *e)
{
    const char *text = cli_value(a, name);
    char *end;
    if (!text)
        return 0;
    *out = strtod(text, &end);
    if (end == text || *end || !(*out >= 0 && *out <= most))
        return err_set(e, DS_EUSAGE, "--%s: \"%s\": number out of range or malformed", name, text);
    return 0;
}

static void words(const struct cli_args *a, const char *name, const char **out)
{
    if (cli_value(a, name))
        *out = cli_value(a, name);
}

static int check_formats(const char *list, struct err *e)
{
    const char *at = list;
    do {
        size_t len = strcspn(at, ",");
        if (pen_format_find(at, len) < 0)
            return err_set(e, DS_EUSAGE,
                           "figure: unknown format \"%.*s\", expected png, svg or pdf",
                           (int)(len > 40 ? 40 : len), at);
        at += len + (at[len] == ',');
    } while (*at);
    return 0;
}

/* -o FILE.png, or -o - for a figure on standard output.  A directory that exists is one, whatever its
 * name. */
static int find_file(struct request *r, const struct cli_args *a, struct err *e)
{
    const char *slash = strrchr(r->dir, '/'), *dot = strrchr(slash ? slash : r->dir, '.');
    int format = dot ? pen_format_find(dot + 1, strlen(dot + 1)) : -1;
    int is_stream = fs_stream_fd(r->dir) >= 0;
    if (fs_is_dir(r->dir) || (format < 0 && !is_stream) || r->preview > 0)
        return 0;
    r->file = r->dir;
    if (!cli_value(a, "format"))
        r->formats = format < 0 ? "png" : dot + 1;
    if (strcmp(r->name, "all") == 0)
        return err_set(e, DS_EUSAGE, "figure all: -o %s: expected a directory", r->dir);
    if (strchr(r->formats, ',') || (format >= 0 && strcmp(r->formats, dot + 1) != 0))
        return err_set(e, DS_EUSAGE, "figure: --format %s: unexpected with -o %s", r->formats,
                       r->dir);
    if (is_stream && r->json)
        return err_set(e, DS_EUSAGE, "figure: --json: unexpected with -o %s", r->dir);
    return 0;
}

/* What --again draws is in the recipe: anything else on the line would be ignored. */
static int check_again(const struct cli_args *a, struct err *e)
{
    static const char *const given[] = {"o",      "out",     "format", "venue", "theme",
                                        "metric", "x",       "log",    "range", "smooth",
                                        "dpi",    "preview", "probe",  "step"};
    if (!cli_value(a, "again"))
        return 0;
    for (size_t i = 0; i < DS_LEN(given); i++)
        if (cli_value(a, given[i]))
            return err_set(
                e, DS_EUSAGE,
                "%s%s: unexpected with --again, which redraws its file by the recipe inside",
                given[i][1] ? "--" : "-", given[i]);
    return a->n_rest == 0
               ? 0
               : err_set(e, DS_EUSAGE,
                         "%s: unexpected with --again, which redraws its file by the recipe inside",
                         a->rest[0]);
}

/* `all` draws some figures that read an option and others that do not. */
static int check_used(const struct request *r, struct err *e)
{
    for (int i = 0; figure_name(i); i++) {
        const char *option =
            strcmp(figure_name(i), r->name) == 0 ? figure_unused(i, &r->opt) : NULL;
        if (option)
            return err_set(e, DS_EUSAGE, "figure %s: %s: unexpected, this figure has no use for it",
                           r->name, option);
    }
    return 0;
}

static int read_request(struct request *r, const struct cli_args *a, struct err *e)
{
    double probe = r->opt.probe, step = (double)r->opt.step;
    words(a, "out", &r->dir);
    words(a, "o", &r->dir);
    words(a, "format", &r->formats);
    words(a, "again", &r->again);
    words(a, "venue", &r->opt.venue);
    words(a, "theme", &r->opt.theme);
    words(a, "metric", &r->opt.metric);
    words(a, "x", &r->opt.x);
    words(a, "log", &r->opt.log);
    words(a, "range", &r->opt.range);
    r->json = cli_flag(a, "json");
    r->is_dry = cli_flag(a, "dry-run");
    int rc = check_again(a, e);
    if (rc == 0)
        rc = number(a, "smooth", 1e6, &r->opt.smooth, e);
    if (rc == 0)
        rc = number(a, "probe", 1e6, &probe, e);
    if (rc == 0)
        rc = number(a, "step", STEP_MAX, &step, e);
    if (rc == 0 && (probe != floor(probe) || step != floor(step)))
        rc = err_set(e, DS_EUSAGE, "--%s %s: must be an integer",
                     probe != floor(probe) ? "probe" : "step",
                     cli_value(a, probe != floor(probe) ? "probe" : "step"));
    if (rc == 0)
        rc = number(a, "dpi", 1e6, &r->opt.dpi, e);
    if (rc == 0)
        rc = number(a, "preview", 1e6, &r->preview, e);
    if (rc == 0 && cli_value(a, "preview") && r->preview < 1)
        rc = err_set(e, DS_EUSAGE, "--preview 0: expected a width in pixels, from 16 to 16384");
    if (rc == 0 && r->preview > 0 && r->json)
        rc = err_set(e, DS_EUSAGE,
                     "figure: --json: unexpected with --preview, which fills standard output");
    if (rc == 0)
        rc = check_formats(r->formats, e);
    if (rc == 0 && a->n_override > 0)
        rc = err_set(e, DS_EUSAGE, "figure: unexpected setting %s", a->override[0]);
    if (rc == 0 && a->n_rest == 0 && !r->again)
        rc = err_set(
            e, DS_EUSAGE,
            "figure: missing argument: expected NAME, all or list (depthscope help figure)");
    if (rc == 0 && a->n_rest > FIGURE_RUNS_MAX + 1)
        rc = err_set(e, DS_EUSAGE, "figure: too many runs, must be at most %d", FIGURE_RUNS_MAX);
    r->opt.probe = (int)probe;
    r->opt.step = (int64_t)step;
    r->name = a->n_rest > 0 ? a->rest[0] : NULL;
    if (rc == 0 && r->name && strcmp(r->name, "list") == 0 && a->n_rest > 1)
        rc = err_set(e, DS_EUSAGE, "figure list: unexpected %s", a->rest[1]);
    if (rc == 0 && r->name)
        rc = check_used(r, e);
    if (rc == 0 && r->name)
        rc = find_file(r, a, e);
    for (int i = 1; rc == 0 && i < a->n_rest; i++)
        r->path[r->paths++] = a->rest[i];
    return rc;
}

/* ---- runs
 * ------------------------------------------------------------------------------------------ */

static void close_runs(struct opened *o)
{
    for (int i = 0; i < o->n; i++)
        figure_close(&o->run[i]);
    o->n = 0;
}

static int open_run(struct opened *o, const char *path, struct err *e)
{
    char full[2048];
    int rc = cli_run_path(full, sizeof full, path, e);
    if (rc == 0)
        rc = figure_open(&o->run[o->n], full, path, e);
    o->n += rc == 0;
    return rc;
}

/* Runs of one name get their folders into their labels. */
static void name_runs(const struct opened *o)
{
    struct runview *view[FIGURE_RUNS_MAX];
    const char *path[FIGURE_RUNS_MAX];
    size_t n = 0;
    for (int i = 0; i < o->n; i++)
        if (o->run[i].view) {
            view[n] = o->run[i].view;
            path[n++] = o->run[i].path;
        }
    experiment_name_views(view, path, n);
}

static int open_runs(struct opened *o, const char *const *paths, int n, struct err *e)
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < n; i++)
        rc = open_run(o, paths[i], e);
    if (rc < 0)
        close_runs(o);
    else
        name_runs(o);
    return rc;
}

/* ---- drawing
 * ---------------------------------------------------------------------------------------- */

/* Raw for a script, sanitised for a terminal. */
static int print_path(const char *path, struct err *e)
{
    struct str line = {0};
    if (isatty(STDOUT_FILENO))
        cli_add_safe(&line, path, strlen(path), -1);
    else
        str_add(&line, path);
    str_add_char(&line, '\n');
    int rc = cli_write_text(&line, e);
    str_release(&line);
    return rc;
}

static int write_formats(const struct request *r, const struct figure *f, struct str *files,
                         struct err *e)
{
    char path[4096], name[128];
    int rc = 0;
    for (const char *at = r->formats; rc == 0 && *at;) {
        size_t len = strcspn(at, ",");
        struct str bytes = {0};
        int format = pen_format_find(at, len);
        snprintf(name, sizeof name, "%s.%s", f->name, pen_format_name((enum pen_format)format));
        const char *to = r->file ? r->file : path;
        rc = r->file ? 0 : fs_join(path, sizeof path, r->dir, name, e);
        if (rc == 0)
            rc = figure_bytes(f, (enum pen_format)format, &bytes, e);
        if (rc == 0)
            rc = fs_write_text(to, &bytes, e);
        str_release(&bytes);
        if (rc == 0 && r->json) {
            str_add(files, files->len ? "," : "");
            str_add_json(files, to, strlen(to));
        } else if (rc == 0 && fs_stream_fd(to) < 0) {
            rc = print_path(to, e);
        }
        at += len + (at[len] == ',');
    }
    return rc;
}

static void json_field(struct str *out, const char *key, const char *value)
{
    str_addf(out, "\"%s\":", key);
    str_add_json(out, value, strlen(value));
}

/* A binary PPM, which needs no decoder, or a PNG, which is smaller. */
static int write_preview(struct figure *f, int width, int is_png, struct err *e)
{
    unsigned *rgb = NULL;
    struct str out = {0};
    int w, h, rc = figure_pixels(f, width, &rgb, &w, &h, e);
    if (rc == 0 && is_png) {
        f->dpi = width * 72.0 / f->width;
        rc = figure_bytes(f, PEN_PNG, &out, e);
        rc = rc == 0 ? cli_write_text(&out, e) : rc;
        str_release(&out);
        mem_free(rgb);
        return rc;
    }
    if (rc < 0)
        return rc;
    str_addf(&out, "P6\n%d %d\n255\n", w, h);
    for (size_t i = 0; i < (size_t)w * (size_t)h; i++) {
        str_add_char(&out, (char)(rgb[i] >> 16 & 255));
        str_add_char(&out, (char)(rgb[i] >> 8 & 255));
        str_add_char(&out, (char)(rgb[i] & 255));
    }
    rc = cli_write_text(&out, e);
    str_release(&out);
    mem_free(rgb);
    return rc;
}

static int draw_one(const struct request *r, const struct opened *o, const char *name,
                    struct str *drawn, struct err *e)
{
    struct figure f = {0};
    struct str files = {0};
    int rc = figure_make(&f, name, o->run, o->n, &r->opt, e);
    if (rc == 0 && r->preview > 0)
        rc = write_preview(&f, (int)r->preview, strcmp(r->formats, "png") == 0, e);
    else if (rc == 0 && !r->is_dry) {
        rc = r->file ? 0 : fs_mkdirs(r->dir, e);
        rc = rc == 0 ? write_formats(r, &f, &files, e) : rc;
    } else if (rc == 0 && !r->json)
        printf("%s\n", name);
    if (rc == 0) {
        str_add(drawn, drawn->len ? ",{" : "{");
        json_field(drawn, "name", name);
        str_add(drawn, ",\"files\":[");
        str_add_str(drawn, &files);
        str_add(drawn, "],");
        json_field(drawn, "data", f.data_hash);
        str_add_char(drawn, ',');
        json_field(drawn, "caption", str_text(&f.caption));
        str_add_char(drawn, '}');
    }
    figure_release(&f);
    str_release(&files);
    return rc;
}

/* The arguments that figure i of `all` reads; DS_ENOTFOUND when there are none. */
static int choose_inputs(const struct opened *o, int i, struct opened *out, struct err *e)
{
    out->n = 0;
    for (int k = 0; k < o->n; k++)
        if (figure_takes(i, &o->run[k]))
            out->run[out->n++] = o->run[k];
    return out->n ? 0 : err_set(e, DS_ENOTFOUND, "needs %s", figure_needs(i));
}

/* "figure NAME: " in front of a reason is dropped: the line names the figure already. */
static void skip_one(const char *name, const char *why, struct str *skipped)
{
    struct str line = {0};
    size_t n = strlen(name);
    if (strncmp(why, "figure ", 7) == 0 && strncmp(why + 7, name, n) == 0 &&
        strncmp(why + 7 + n, ": ", 2) == 0)
        why += 9 + n;
    cli_add_safe(&line, why, strlen(why), -1);
    fprintf(stderr, "skipped %s: %s\n", name, str_text(&line));
    str_release(&line);
    str_add(skipped, skipped->len ? ",{" : "{");
    json_field(skipped, "name", name);
    str_add_char(skipped, ',');
    json_field(skipped, "why", why);
    str_add_char(skipped, '}');
}

/* Every figure that the arguments allow; the others are reported with the reason.  The number of
 * figures drawn; *status: an error that is not for lack of data (a full disk). */
static int draw_all(const struct request *r, const struct opened *o, struct str *drawn,
                    struct str *skipped, int *status)
{
    static struct opened some;
    int count = 0;
    for (int i = 0; figure_name(i) && *status == 0; i++) {
        struct err e = {0};
        int rc = choose_inputs(o, i, &some, &e);
        if (rc == 0)
            rc = draw_one(r, &some, figure_name(i), drawn, &e);
        if (rc == 0)
            count++;
        else if (rc == DS_EIO || rc == DS_EMEM)
            *status = command_fail(&e);
        else
            skip_one(figure_name(i), e.text, skipped);
    }
    return count;
}

/* DS_EFORMAT for an argument that no figure reads. */
static int check_readable(const struct opened *o, struct err *e)
{
    for (int k = 0; k < o->n; k++) {
        int i = 0;
        while (figure_name(i) && !figure_takes(i, &o->run[k]))
            i++;
        if (!figure_name(i))
            return err_set(e, DS_EFORMAT,
                           "figure all: %s: no figure reads it, expected a run, a CSV table of "
                           "metrics, or JSON results of bench, eval or generate",
                           o->run[k].path);
    }
    return 0;
}

/* A single figure must succeed; of `all` at least one. */
static int draw_command(const struct request *r)
{
    static struct opened o;
    struct str drawn = {0}, skipped = {0};
    struct err e = {0};
    int all = strcmp(r->name, "all") == 0, status = 0;
    if (r->paths == 0)
        err_set(&e, DS_EUSAGE, "figure %s: name at least one run", r->name);
    else if (all && r->preview > 0)
        err_set(&e, DS_EUSAGE, "figure --preview: expected the name of one figure, not all");
    if (e.code < 0)
        return command_fail(&e);
    if (open_runs(&o, r->path, r->paths, &e) < 0 || (all && check_readable(&o, &e) < 0)) {
        close_runs(&o);
        return command_fail(&e);
    }
    if (all && draw_all(r, &o, &drawn, &skipped, &status) == 0 && status == 0)
        status = EXIT_FAILURE;
    else if (!all && draw_one(r, &o, r->name, &drawn, &e) < 0)
        status = command_fail(&e);
    if (r->json && (drawn.failed || skipped.failed)) {
        err_set(&e, DS_EMEM, "figure: out of memory for the list of figures");
        status = command_fail(&e);
    } else if (r->json && (all || status == 0))
        printf("{\"figures\":[%s],\"skipped\":[%s]}\n", str_text(&drawn), str_text(&skipped));
    str_release(&drawn);
    str_release(&skipped);
    close_runs(&o);
    return status;
}

static int list_command(const struct request *r)
{
    char words[96];
    struct str out = {0};
    for (int i = 0; figure_name(i); i++)
        if (r->json) {
            str_add(&out, i ? ",{" : "{\"figures\":[{");
            json_field(&out, "name", figure_name(i));
            str_add_char(&out, ',');
            json_field(&out, "title", figure_title(i));
            str_add_char(&out, ',');
            json_field(&out, "needs", figure_needs(i));
            str_add_char(&out, '}');
        } else {
            struct str needs = {0};
            str_addf(&needs, "needs %s", figure_needs(i));
            cli_add_entry(&out, figure_name(i), figure_title(i), 16, cli_columns(0));
            cli_add_entry(&out, "", str_text(&needs), 16, cli_columns(0));
            str_release(&needs);
        }
    str_add(&out, r->json ? "],\"venues\":[" : "\nvenues:\n");
    for (int i = 0; figure_venue(i, words, sizeof words); i++)
        if (r->json) {
            str_add(&out, i ? "," : "");
            str_add_json(&out, figure_venue(i, words, sizeof words),
                         strlen(figure_venue(i, words, sizeof words)));
        } else
            str_addf(&out, "  %-12s %s\n", figure_venue(i, words, sizeof words), words);
    str_add(&out, r->json ? "]}\n" : "");
    return cli_print(&out);
}

/* ---- again
 * ------------------------------------------------------------------------------------------- */

static int print_again(const char *path, const struct figure *f, const struct figure_recipe *recipe,
                       int changed, struct err *e)
{
    struct str out = {0};
    str_add_char(&out, '{');
    json_field(&out, "file", path);
    str_add_char(&out, ',');
    json_field(&out, "name", f->name);
    str_addf(&out, ",\"changed\":%s,", changed ? "true" : "false");
    json_field(&out, "before", recipe->data_hash);
    str_add_char(&out, ',');
    json_field(&out, "data", f->data_hash);
    str_add(&out, "}\n");
    int rc = cli_write_text(&out, e);
    str_release(&out);
    return rc;
}

static int print_drawn(const char *path, int is_dry, int changed, struct err *e)
{
    struct str line = {0};
    cli_add_safe(&line, path, strlen(path), -1);
    str_addf(&line, ": %sdata %s\n", is_dry ? "" : "redrawn; ", changed ? "changed" : "unchanged");
    int rc = cli_write_text(&line, e);
    str_release(&line);
    return rc;
}

/* Redraws from the recipe and replaces the file; reports whether the data changed since the old
 * picture. */
static int redraw(const struct request *r, const struct figure_recipe *recipe, struct err *e)
{
    static struct opened o;
    struct figure f = {0};
    struct str bytes = {0};
    struct figure_options opt = {.venue = recipe->venue,
                                 .theme = recipe->theme,
                                 .metric = recipe->metric,
                                 .label = recipe->label,
                                 .x = recipe->x,
                                 .log = recipe->log,
                                 .range = recipe->range,
                                 .version = r->opt.version,
                                 .smooth = recipe->smooth,
                                 .probe = recipe->probe,
                                 .step = recipe->step,
                                 .dpi = recipe->dpi};
    int changed = 0, rc = open_runs(&o, (const char *const *)recipe->path, recipe->runs, e);
    if (rc == 0)
        rc = figure_make(&f, recipe->name, o.run, o.n, &opt, e);
    if (rc == 0)
        rc = figure_bytes(&f, PEN_PNG, &bytes, e);
    if (rc == 0 && !r->is_dry)
        rc = fs_write_text(r->again, &bytes, e);
    if (rc == 0) {
        changed = strcmp(f.data_hash, recipe->data_hash) != 0;
        rc = r->json ? print_again(r->again, &f, recipe, changed, e)
                     : print_drawn(r->again, r->is_dry, changed, e);
    }
    figure_release(&f);
    str_release(&bytes);
    close_runs(&o);
    return rc < 0 ? rc : changed;
}

static int again_command(const struct request *r)
{
    struct str png = {0};
    struct figure_recipe recipe = {0};
    struct err e = {0};
    int rc = fs_read_file(&png, r->again, PNG_BYTES_MAX, &e);
    if (rc == 0)
        rc = figure_recipe_read(&recipe, png.p, png.len, r->again, &e);
    if (rc == 0)
        rc = redraw(r, &recipe, &e);
    figure_recipe_release(&recipe);
    str_release(&png);
    if (rc < 0) {
        command_fail(&e);
        return EXIT_FAILURE;
    }
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}

int figure_command(int argc, char **argv)
{
    static struct request r;
    struct cli_args a;
    struct err e = {0};
    r = (struct request){.dir = "exports", .formats = "png,svg,pdf"};
    figure_options_default(&r.opt);
    r.opt.version = DEPTHSCOPE_VERSION;
    if (cli_parse(&a, figure_options, argc, argv, &e) < 0)
        return command_fail(&e);
    int status = read_request(&r, &a, &e) < 0  ? command_fail(&e)
                 : r.again                     ? again_command(&r)
                 : strcmp(r.name, "list") == 0 ? list_command(&r)
                                               : draw_command(&r);
    cli_release(&a);
    return status;
}
