/* Speed-up of speculative decoding against acceptance: measured texts of depthscope generate
 * --compare, and the lines of depthscope bench, whose acceptances are given. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "figures/plot.h"

enum {
    POINTS_MAX = 4096,
    SERIES_MAX = LEGEND_MAX - 1,
    MARKERS = 6,
    NAME_BYTES = 80,
    KEY_BYTES = 400
};

struct point {
    double x, y;
    int series;
};
struct points {
    struct point p[POINTS_MAX];
    int n;
    char key[SERIES_MAX][KEY_BYTES];   /* tells series apart */
    char name[SERIES_MAX][NAME_BYTES]; /* what is drawn: its beginning */
    int bench[SERIES_MAX];             /* its file; -1: texts */
    int is_bench[SERIES_MAX], series;
    int texts, different;
};

static const char bench_prefix[] = "speculative ";

static int is_generation(const struct json_node *x)
{
    return json_str(json_get(x, "draft"), NULL) &&
           json_kind_of(json_get(x, "marks")) == JSON_KIND_ARRAY;
}

static int takes(const struct json *j)
{
    const struct json_node *root = json_root(j), *rows = json_get(root, "results");
    int ok = json_kind_of(root) == JSON_KIND_ARRAY && json_len(root) > 0;
    for (size_t i = 0; ok && i < json_len(root); i++)
        ok = is_generation(json_at(root, i));
    for (size_t i = 0; !ok && i < json_len(rows); i++) {
        const char *group = json_str(json_get(json_at(rows, i), "group"), NULL);
        ok = group && strcmp(group, "speculate") == 0;
    }
    return ok || is_generation(root);
}

/* ---- data ---- */

static int series_of(struct points *all, const char *name, int bench)
{
    int i = 0;
    while (i < all->series && !(all->bench[i] == bench && strcmp(all->key[i], name) == 0))
        i++;
    if (i == SERIES_MAX)
        return -1;
    if (i == all->series) {
        struct str clean = str_in(all->name[i], sizeof all->name[i]);
        utf8_sanitise(&clean, name, strlen(name), 48, 0);
        str_copy(all->key[i], sizeof all->key[i], name);
        all->bench[i] = bench;
        all->is_bench[i] = bench >= 0;
        all->series++;
    }
    return i;
}

static int add(struct sheet *s, struct points *all, const char *name, int bench, double x, double y,
               struct err *e)
{
    int series = series_of(all, name, bench);
    if (series < 0)
        return err_set(e, DS_EUSAGE, "figure %s: too many drafts: expected at most %d",
                       s->ops->name, SERIES_MAX);
    if (all->n == POINTS_MAX)
        return err_set(e, DS_EUSAGE, "figure %s: too many measurements: expected at most %d",
                       s->ops->name, POINTS_MAX);
    all->p[all->n++] = (struct point){x, y, series};
    const double v[2] = {x, y};
    data_hash(s, all->name[series], v, sizeof v);
    return 0;
}

/* Accepted among the drafted tokens that were compared: those after a rejected one were not. */
static double acceptance(const struct json_node *x)
{
    const struct json_node *marks = json_get(x, "marks");
    double accepted = 0, rejected = 0;
    for (size_t i = 0; i < json_len(marks); i++) {
        const char *mark = json_str(json_at(marks, i), NULL);
        accepted += mark && strcmp(mark, "accepted") == 0;
        rejected += mark && strcmp(mark, "corrected") == 0;
    }
    return accepted / (accepted + rejected);
}

static int take_generation(struct sheet *s, struct points *all, int run, const struct json_node *x,
                           struct err *e)
{
    double speedup = json_num(json_get(x, "speedup"), (double)NAN), share = acceptance(x);
    long long layers = json_int(json_get(x, "layers"), 0);
    char name[KEY_BYTES];
    if (!(speedup > 0 && speedup < 1e6))
        return sheet_fail(s, run, e, "no number 'speedup' (depthscope generate --compare --json)");
    if (!isfinite(share))
        return sheet_fail(s, run, e, "no drafted token was accepted or rejected");
    snprintf(name, sizeof name, "%.300s of %lld", json_str(json_get(x, "draft"), NULL), layers);
    all->texts++;
    all->different += json_bool(json_get(x, "same_text"), 1) == 0;
    return add(s, all, name, -1, share, speedup, e);
}

/* "speculative 0.5, exit 4, 3 drafted" */
static int take_result(struct sheet *s, struct points *all, int run, const struct json_node *x,
                       struct err *e)
{
    const char *group = json_str(json_get(x, "group"), NULL);
    const char *name = json_str(json_get(x, "name"), NULL);
    char file[200], series[KEY_BYTES], *end;
    if (!group || !name || strcmp(group, "speculate") != 0 ||
        strncmp(name, bench_prefix, sizeof bench_prefix - 1) != 0)
        return 0;
    name += sizeof bench_prefix - 1;
    double share = strtod(name, &end), speedup = 1 / json_num(json_get(x, "time_ratio"), 0);
    if (end == name || strncmp(end, ", ", 2) != 0) /* ordinary decoding, the reference */
        return 0;
    if (!(share >= 0 && share <= 1 && speedup > 0 && speedup < 1e6))
        return sheet_fail(s, run, e, "result \"%s%s\": no 'time_ratio', or an acceptance beyond 1",
                          bench_prefix, name);
    end += 2;
    sheet_run_name(s, run, file, sizeof file);
    snprintf(series, sizeof series, "%s: %.*s", file, (int)strcspn(end, ","), end);
    return add(s, all, series, run, share, speedup, e);
}

static int take_file(struct sheet *s, struct points *all, int run, struct err *e)
{
    const struct json_node *root = json_root(s->run[run].json), *rows = json_get(root, "results");
    int before = all->n, rc = 0;
    if (is_generation(root))
        return take_generation(s, all, run, root, e);
    for (size_t i = 0; rc == 0 && json_kind_of(root) == JSON_KIND_ARRAY && i < json_len(root); i++)
        rc = take_generation(s, all, run, json_at(root, i), e);
    for (size_t i = 0; rc == 0 && i < json_len(rows); i++)
        rc = take_result(s, all, run, json_at(rows, i), e);
    if (rc == 0 && all->n == before)
        return sheet_fail(s, run, e, "no result of a given acceptance in the group 'speculate'");
    return rc;
}

/* ---- drawing ---- */

static int colour_of(const struct sheet *s, const struct points *all, int series)
{
    int i = 0;
    for (int k = 0; k < series; k++)
        i += all->is_bench[k] == all->is_bench[series];
    return all->is_bench[series] ? sheet_tint(s, sheet_colour(s, ROLE_REFERENCE), pow(0.6, i))
                                 : sheet_series(s, i);
}

/* Acceptances of a bench are in ascending order in its file. */
static void draw_series(struct sheet *s, struct panel *p, const struct points *all, int series)
{
    double last[2] = {(double)NAN, (double)NAN}, r = s->venue->line * 1.8;
    int rgb = colour_of(s, all, series);
    for (int i = 0; i < all->n; i++) {
        const struct point *v = &all->p[i];
        if (v->series != series)
            continue;
        if (all->is_bench[series]) {
            const double x[2] = {last[0], v->x}, y[2] = {last[1], v->y};
            pen_colour(s->pen, rgb, 1);
            pen_width(s->pen, s->venue->line);
            sheet_dash(s, 1);
            panel_line(s, p, x, y, 2);
            pen_dash(s->pen, NULL, 0);
        }
        double ux = axis_at(&p->ax, v->x), uy = axis_at(&p->ay, v->y);
        sheet_marker(s, series % MARKERS, ux, uy, r, rgb, 0);
        panel_mark_box(p, ux - r, uy - r, 2 * r, 2 * r);
        last[0] = v->x;
        last[1] = v->y;
    }
}

static int draw_points(struct sheet *s, const struct points *all, struct err *e)
{
    struct panel *p = mem_alloc(1, sizeof *p);
    if (!p)
        return err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    axis_reset(&p->ax);
    axis_reset(&p->ay);
    axis_include(&p->ay, 1);
    for (int i = 0; i < all->n; i++) {
        axis_include(&p->ax, all->p[i].x);
        axis_include(&p->ay, all->p[i].y);
    }
    axis_pad(&p->ax, 0.06);
    axis_pad(&p->ay, 0.1);
    for (int i = 0; i < all->series; i++)
        panel_entry(p, all->name[i], colour_of(s, all, i), all->is_bench[i] ? 1 : 0, i % MARKERS,
                    all->is_bench[i]);
    p->x_label = "Acceptance of a drafted token";
    p->y_label = "Speed-up over ordinary decoding";
    s->height = s->width * 0.68 + panel_legend_more(s, p);
    panel_layout(s, p, 0, 0, s->width, s->height);
    panel_axes(s, p);
    panel_rule(s, p, 1, 0, sheet_colour(s, ROLE_BORDER), 2);
    for (int i = all->series; i-- > 0;)
        draw_series(s, p, all, i);
    panel_legend(s, p);
    mem_free(p);
    return 0;
}

static void note_bench(struct sheet *s)
{
    for (int i = 0; i < s->runs; i++) {
        const struct json_node *root = json_root(s->run[i].json);
        const char *model = json_str(json_get(root, "model"), NULL);
        char file[200], room[2048];
        struct str clean = str_in(room, sizeof room);
        utf8_sanitise(&clean, model ? model : "", model ? strlen(model) : 0, 120, 0);
        sheet_run_name(s, i, file, sizeof file);
        if (clean.len && json_get(root, "results"))
            sheet_note(s, "%s: %s.", file, str_text(&clean));
    }
}

static void note(struct sheet *s, const struct points *all)
{
    int benches = 0;
    for (int i = 0; i < all->series; i++)
        benches += all->is_bench[i];
    if (all->texts > 0)
        sheet_note(s,
                   "Marks without a line: %d measured text%s, speed in tokens per second over "
                   "ordinary decoding in the same process (median of pairs); tokens after a "
                   "rejected one do not count.",
                   all->texts, all->texts == 1 ? "" : "s");
    if (all->different > 0)
        sheet_note(s, "%d of them differ from ordinary decoding.", all->different);
    if (benches > 0) {
        sheet_note(s, "Dashed: bench at given acceptances, random weights.");
        note_bench(s);
    }
}

static int draw(struct sheet *s, struct err *e)
{
    struct points *all = mem_alloc(1, sizeof *all);
    int rc = all ? 0 : err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    for (int i = 0; rc == 0 && i < s->runs; i++)
        rc = take_file(s, all, i, e);
    if (rc == 0)
        rc = draw_points(s, all, e);
    if (rc == 0)
        note(s, all);
    mem_free(all);
    return rc;
}

const struct figure_ops figure_speculation = {
    .name = "speculation",
    .title = "Speed-up of speculative decoding against acceptance",
    .needs = "JSON files of depthscope generate speculate=N --compare --json, or of bench "
             "only=speculate --json",
    .draw = draw,
    .takes = takes,
};
