/* Makes a figure from runs: the registry, options, caption, recipe and file formats. */
#include "figures/figure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/decimal.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "figures/glyphs.h"
#include "figures/plot.h"

enum {
    MARGIN = 3
}; /* margin in points, so that strokes are not clipped at the edge */

/* All figures, one line each. */
/* clang-format off */
#define FIGURES(X) \
    X(loss_flops) \
    X(loss_time) \
    X(signal_depth) \
    X(layer_map) \
    X(entropy_depth) \
    X(flops_hist) \
    X(routing_map) \
    X(training) \
    X(ablation_bars) \
    X(router_hist) \
    X(topk_causal) \
    X(gates_dtf) \
    X(prior_loss) \
    X(capacity_layer) \
    X(exit_map) \
    X(exit_hist) \
    X(tradeoff) \
    X(pareto) \
    X(layer_skip) \
    X(category_depth) \
    X(isoflop) \
    X(bench_bars) \
    X(task_bars) \
    X(expert_load) \
    X(expert_map) \
    X(depth_needed) \
    X(hops_accuracy) \
    X(exit_rules) \
    X(depth_by_need) \
    X(speculation)

#define DECLARE(name) extern const struct figure_ops figure_##name;
#define ROW(name) &figure_##name,

FIGURES(DECLARE)

static const struct figure_ops *const table[] = { FIGURES(ROW) };
/* clang-format on */

const char *figure_name(int i)
{
    return i >= 0 && (size_t)i < DS_LEN(table) ? table[i]->name : NULL;
}

const char *figure_title(int i)
{
    return i >= 0 && (size_t)i < DS_LEN(table) ? table[i]->title : NULL;
}

const char *figure_needs(int i)
{
    return i >= 0 && (size_t)i < DS_LEN(table) ? table[i]->needs : NULL;
}

const char *figure_unused(int i, const struct figure_options *o)
{
    const struct {
        int is_set;
        unsigned option;
        const char *word;
    } given[] = {
        {o->metric != NULL, FIGURE_METRIC, "--metric"}, {o->x != NULL, FIGURE_X, "-x"},
        {o->log != NULL, FIGURE_AXES, "--log"},         {o->range != NULL, FIGURE_AXES, "--range"},
        {o->smooth >= 0, FIGURE_AXES, "--smooth"},      {o->probe >= 0, FIGURE_PROBE, "--probe"},
        {o->step >= 0, FIGURE_STEP, "--step"},
    };
    for (size_t k = 0; figure_name(i) && k < DS_LEN(given); k++)
        if (given[k].is_set && !(table[i]->options & given[k].option))
            return given[k].word;
    return NULL;
}

int figure_takes(int i, const struct figure_run *r)
{
    const struct figure_ops *ops = i >= 0 && (size_t)i < DS_LEN(table) ? table[i] : NULL;
    if (!ops || !ops->takes)
        return ops && r->view;
    return r->json && ops->takes(r->json);
}

void figure_options_default(struct figure_options *o)
{
    *o = (struct figure_options){.smooth = -1, .probe = -1, .step = -1};
}

static const struct figure_ops *find(const char *name, struct err *e)
{
    char hint[NEAREST_MAX + 32];
    struct nearest best = nearest_to(name);
    for (size_t i = 0; i < DS_LEN(table); i++) {
        if (strcmp(name, table[i]->name) == 0)
            return table[i];
        nearest_try(&best, table[i]->name);
    }
    err_set(e, DS_EUSAGE, "unknown figure \"%s\"%s; see depthscope figure list", name,
            nearest_hint(&best, hint, sizeof hint));
    return NULL;
}

static int end_of_range(const char *p, size_t n, double *out)
{
    return n == 0 || (decimal_read(p, n, '.', out) == n && isfinite(*out));
}

static int take_axes(struct sheet *s, struct err *e)
{
    const char *log = s->opt.log ? s->opt.log : "", *range = s->opt.range ? s->opt.range : "..";
    const char *dots = strstr(range, "..");
    s->is_log_x = strcmp(log, "x") == 0 || strcmp(log, "x,y") == 0;
    s->is_log_y = strcmp(log, "y") == 0 || strcmp(log, "x,y") == 0;
    if (s->opt.log && !s->is_log_x && !s->is_log_y)
        return err_set(e, DS_EUSAGE, "log = %s: expected x, y or x,y", log);
    s->x_from = -(double)INFINITY;
    s->x_to = (double)INFINITY;
    if (!dots || !end_of_range(range, (size_t)(dots - range), &s->x_from) ||
        !end_of_range(dots + 2, strlen(dots + 2), &s->x_to) || !(s->x_from < s->x_to))
        return err_set(e, DS_EUSAGE, "range = %s: expected A..B with A below B", range);
    return 0;
}

static int check_options(struct sheet *s, struct err *e)
{
    const struct figure_options *o = &s->opt;
    if (!s->venue) {
        char hint[NEAREST_MAX + 32];
        struct nearest best = nearest_to(o->venue);
        for (int i = 0; venue_at(i); i++)
            nearest_try(&best, venue_at(i)->name);
        return err_set(e, DS_EUSAGE, "unknown venue \"%s\"%s (depthscope figure list)", o->venue,
                       nearest_hint(&best, hint, sizeof hint));
    }
    if (!(o->smooth < 1))
        return err_set(e, DS_EUSAGE, "smooth: must be at least 0 and less than 1");
    if (!(o->dpi == 0 || (o->dpi >= 300 && o->dpi <= 2400)))
        return err_set(e, DS_EUSAGE, "dpi: must be between 300 and 2400");
    return take_axes(s, e);
}

/* Runs for a figure of runs, JSON files of its shape for the others. */
static int check_inputs(const struct sheet *s, struct err *e)
{
    for (int i = 0; i < s->runs; i++) {
        const char *path = s->run[i].path ? s->run[i].path : "-";
        if (s->ops->takes && !(s->run[i].json && s->ops->takes(s->run[i].json)))
            return err_set(e, DS_EFORMAT, "figure %s: %s: expected %s", s->ops->name, path,
                           s->ops->needs);
        if (!s->ops->takes && !s->run[i].view)
            return err_set(e, DS_EFORMAT, "figure %s: %s: expected a run, found a JSON file",
                           s->ops->name, path);
    }
    return 0;
}

/* Wraps the caption below the figure. */
static void draw_caption(struct sheet *s)
{
    char line[512];
    const char *text = str_text(&s->caption);
    double size = fmax(6, s->venue->small * 0.95), y = s->height + size * 1.25, width = s->width;
    struct text_style style = {.size = size, .rgb = sheet_colour(s, ROLE_DIM)};
    while (*text) {
        size_t fit = 0, at = 0;
        while (text[at]) {
            size_t word = at + strspn(text + at, " ");
            word += strcspn(text + word, " ");
            if (word >= sizeof line)
                break;
            memcpy(line, text, word);
            line[word] = '\0';
            if (fit > 0 && glyph_width(line, size) > width)
                break;
            fit = at = word;
        }
        if (fit == 0) /* a word longer than the line is drawn anyway */
            fit = strlen(text) < sizeof line ? strlen(text) : sizeof line - 1;
        memcpy(line, text, fit);
        line[fit] = '\0';
        pen_text(s->pen, 0, y, &style, line);
        y += size * 1.35;
        text += fit + strspn(text + fit, " ");
    }
    s->height = y - size * 0.9;
}

static int draw_once(struct sheet *s, struct pen_list *list, struct err *e)
{
    pen_list_reset(list);
    str_release(&s->caption);
    s->caption = (struct str){0};
    s->again = 0;
    s->height = s->width * 0.618;
    sha256_init(&s->data);
    if (s->opt.label)
        sheet_note(s, "%s", s->opt.label);
    int rc = s->ops->draw(s, e);
    if (rc < 0)
        return rc;
    if (s->pen->bad > 0)
        return err_set(e, DS_ENUMERIC, "figure %s: %zu coordinates are not finite", s->ops->name,
                       s->pen->bad);
    if (pen_list_failed(list) || s->caption.failed)
        return err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    return 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* SHA-256 over "key=value" sorted by key; "" for lack of memory. */
static void config_hash(const struct runview *v, char out[65])
{
    struct sha256 h = {0};
    const char **keys = mem_alloc(v->configs, sizeof *keys);
    sha256_init(&h);
    for (size_t i = 0; keys && i < v->configs; i++)
        keys[i] = v->config_key[i];
    if (keys)
        qsort(keys, v->configs, sizeof *keys, by_text);
    for (size_t i = 0; keys && i < v->configs; i++) {
        const char *value = runview_config(v, keys[i]);
        sha256_add(&h, keys[i], strlen(keys[i]) + 1);
        sha256_add(&h, value ? value : "", strlen(value ? value : "") + 1);
    }
    sha256_hex(&h, out);
    if (!keys)
        out[0] = '\0';
    mem_free(keys);
}

static void add_word(struct str *out, const char *word)
{
    str_add_char(out, ' ');
    str_add_shell(out, word);
}

static void command_text(const struct sheet *s, struct str *out)
{
    str_addf(out, "depthscope figure %s", s->ops->name);
    for (int i = 0; i < s->runs; i++)
        add_word(out, s->run[i].path ? s->run[i].path : "-");
    str_addf(out, " --venue %s --theme", s->venue->name);
    add_word(out, s->opt.theme);
    if (s->opt.metric) {
        str_add(out, " --metric");
        add_word(out, s->opt.metric);
    }
    if (s->opt.x) {
        str_add(out, " --x");
        add_word(out, s->opt.x);
    }
    if (s->opt.log)
        str_addf(out, " --log %s", s->opt.log);
    if (s->opt.range)
        str_addf(out, " --range %s", s->opt.range);
    if (s->opt.smooth >= 0)
        str_addf(out, " --smooth %.9g", s->opt.smooth);
    if (s->opt.probe >= 0)
        str_addf(out, " --probe %d", s->opt.probe);
    if (s->opt.step >= 0)
        str_addf(out, " --step %lld", (long long)s->opt.step);
    if (s->opt.dpi > 0)
        str_addf(out, " --dpi %.9g", s->opt.dpi);
}

static void write_recipe(const struct sheet *s, struct figure *f)
{
    struct str command = {0}, *out = &f->recipe;
    char hash[65];
    command_text(s, &command);
    str_add(out, "{");
    json_add_str(out, "figure", s->ops->name);
    json_add_str(out, "command", str_text(&command));
    out->failed |= command.failed;
    json_add_str(out, "venue", s->venue->name);
    json_add_str(out, "theme", s->opt.theme ? s->opt.theme : "");
    if (s->opt.metric)
        json_add_str(out, "metric", s->opt.metric);
    if (s->opt.label)
        json_add_str(out, "label", s->opt.label);
    if (s->opt.x)
        json_add_str(out, "x", s->opt.x);
    if (s->opt.log)
        json_add_str(out, "log", s->opt.log);
    if (s->opt.range)
        json_add_str(out, "range", s->opt.range);
    json_add_num(out, "smooth", s->opt.smooth);
    json_add_int(out, "probe", s->opt.probe);
    if (s->opt.step >= 0)
        json_add_int(out, "step", s->opt.step);
    json_add_num(out, "dpi", s->opt.dpi);
    json_key(out, "runs");
    str_add(out, "[");
    for (int i = 0; i < s->runs; i++) {
        const char *path = s->run[i].path;
        const struct runview *view = s->run[i].view;
        json_key(out, NULL);
        str_add(out, "{");
        json_add_str(out, "path", path ? path : "");
        json_add_str(out, "run", view && view->name ? view->name : "");
        if (view) {
            config_hash(view, hash);
            json_add_str(out, "config", hash);
            out->failed |= !hash[0];
        }
        str_add(out, "}");
    }
    str_add(out, "]");
    json_add_str(out, "data", f->data_hash);
    json_add_str(out, "caption", str_text(&f->caption));
    json_add_str(out, "version", s->opt.version ? s->opt.version : "");
    str_add(out, "}");
    str_release(&command);
}

static int finish(struct sheet *s, struct figure *out, struct pen_list *list, struct err *e)
{
    struct figure f = {.name = s->ops->name,
                       .title = s->ops->title,
                       .width = s->width + 2 * MARGIN,
                       .list = list,
                       .background = s->background,
                       .dpi = s->opt.dpi > 0 ? s->opt.dpi : s->venue->dpi};
    draw_caption(s);
    f.height = s->height + 2 * MARGIN;
    f.caption = s->caption;
    sha256_hex(&s->data, f.data_hash);
    write_recipe(s, &f);
    if (f.recipe.failed || pen_list_failed(list) || !f.data_hash[0]) {
        str_release(&f.recipe);
        return err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    }
    *out = f;
    return 0;
}

/* What is wrong in a theme's file is said once; the rest of it is used. */
static int take_theme(struct sheet *s, struct err *e)
{
    struct str wrong = {0};
    int rc = theme_load(&s->theme, s->opt.theme, &wrong, e);
    if (rc == 0)
        theme_warn(&wrong);
    str_release(&wrong);
    return rc;
}

int figure_make(struct figure *out, const char *name, const struct figure_run *runs, int n,
                const struct figure_options *o, struct err *e)
{
    struct sheet s = {.run = runs, .runs = n, .opt = *o};
    struct pen_list *list = NULL;
    int rc = DS_EUSAGE;
    s.opt.theme = o->theme ? o->theme : "light";
    s.opt.venue = o->venue ? o->venue : "icml";
    s.venue = venue_find(s.opt.venue);
    s.ops = find(name, e);
    if (!s.ops || (rc = check_options(&s, e)) < 0)
        return rc;
    if (n < 1 || n > FIGURE_RUNS_MAX)
        return err_set(e, DS_EUSAGE, "figure %s: %s", name,
                       n >= 1          ? "too many runs: expected at most 1024"
                       : !s.ops->takes ? "name at least one run"
                                       : s.ops->needs);
    rc = check_inputs(&s, e);
    if (rc < 0)
        return rc;
    rc = take_theme(&s, e);
    if (rc < 0)
        return rc;
    list = pen_list_new();
    if (!list)
        return err_set(e, DS_EMEM, "figure %s: out of memory", name);
    s.pen = pen_list_pen(list);
    s.width = s.venue->width * 72 - 2 * MARGIN;
    s.pen->dx = s.pen->dy = MARGIN;
    s.background =
        colour_rgb(&s.theme.role[ROLE_BACKGROUND], s.theme.is_light ? 0xFFFFFF : 0x14181E);
    rc = draw_once(&s, list, e);
    if (rc == 0 && s.again) {
        s.legend_above = 1;
        rc = draw_once(&s, list, e);
    }
    if (rc == 0)
        rc = finish(&s, out, list, e);
    sha256_release(&s.data);
    if (rc < 0) {
        pen_list_free(list);
        str_release(&s.caption);
    }
    return rc;
}

void figure_release(struct figure *f)
{
    pen_list_free(f->list);
    str_release(&f->caption);
    str_release(&f->recipe);
    *f = (struct figure){0};
}

static struct pen_page page_of(const struct figure *f, double dpi)
{
    return (struct pen_page){f->width, f->height, dpi, f->background, str_text(&f->recipe)};
}

int figure_bytes(const struct figure *f, enum pen_format format, struct str *out, struct err *e)
{
    const struct pen_page page = page_of(f, f->dpi);
    int rc = pen_cairo_write(f->list, format, &page, out, e);
    return rc < 0 ? err_add(e, rc, "figure %s", f->name) : 0;
}

int figure_pixels(const struct figure *f, int width_px, unsigned **rgb, int *width, int *height,
                  struct err *e)
{
    if (width_px < 16 || width_px > 16384)
        return err_set(e, DS_ERANGE, "figure %s: width = %d pixels: must be between 16 and 16384",
                       f->name, width_px);
    const struct pen_page page = page_of(f, width_px * 72.0 / f->width);
    return pen_cairo_pixels(f->list, &page, rgb, width, height, e);
}

int figure_draw(const char *name, const struct figure_run *runs, int n,
                const struct figure_options *o, const char *path, struct err *e)
{
    struct figure f = {0};
    struct str bytes = {0};
    const char *dot = strrchr(path, '.');
    int format = dot ? pen_format_find(dot + 1, strlen(dot + 1)) : -1;
    if (format < 0)
        return err_set(e, DS_EUSAGE, "%s: unsupported: expected a .png, .svg or .pdf file", path);
    int rc = figure_make(&f, name, runs, n, o, e);
    if (rc == 0)
        rc = figure_bytes(&f, (enum pen_format)format, &bytes, e);
    if (rc == 0)
        rc = fs_write_text(path, &bytes, e);
    figure_release(&f);
    str_release(&bytes);
    return rc;
}
