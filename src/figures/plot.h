/* Shared by the figure files: the sheet they draw on, panels with axes and legend, groups of runs
 * that differ only in seed, and access to the data (every value used is hashed). */
#ifndef DS_FIGURES_PLOT_H
#define DS_FIGURES_PLOT_H

#include "base/hash.h"
#include "base/statistics.h"
#include "figures/axes.h"
#include "figures/figure.h"
#include "figures/palette.h"

struct venue {
    const char *name;
    double width;       /* inches */
    double base, small; /* text, points; small >= 6 */
    double line, axis;  /* strokes, points */
    double dpi;
};
const struct venue *venue_find(const char *name);
const struct venue *venue_at(int i); /* NULL past the end */

/* The sheet a figure is drawn on.  draw() sets `height` to the end of its drawing; the caption
 * follows below. */
struct sheet {
    struct pen *pen;
    const struct figure_ops *ops;
    struct theme theme;
    const struct venue *venue;
    struct figure_options opt;
    const struct figure_run *run;
    int runs;
    double width, height;   /* inside the margin */
    int is_log_x, is_log_y; /* of curves, and the range of their x axis */
    double x_from, x_to;
    int background;
    struct str caption;
    struct sha256 data;
    int legend_above; /* no space was free inside the plot: draw() is called again with this set */
    int again;
};

/* Options that some figures read and others have no use for. */
enum {
    FIGURE_METRIC = 1 << 0,
    FIGURE_X = 1 << 1,
    FIGURE_AXES = 1 << 2, /* of curves: log, range, smooth */
    FIGURE_PROBE = 1 << 3,
    FIGURE_STEP = 1 << 4,
    FIGURE_CURVES = FIGURE_X | FIGURE_AXES
};

/* One row of the registry. */
struct figure_ops {
    const char *name, *title, *needs;
    unsigned options; /* that it reads */
    int (*draw)(struct sheet *s, struct err *e);
    /* NULL: it reads runs.  Otherwise it reads JSON files, and this is 1 for those it can read. */
    int (*takes)(const struct json *j);
};

/* ---- sheet
 * ------------------------------------------------------------------------------------------- */
int sheet_colour(const struct sheet *s, enum role r);
int sheet_series(const struct sheet *s, int i); /* colour of the i-th series, cyclic */
/* Mixes the background (0) and a colour (1). */
int sheet_tint(const struct sheet *s, int rgb, double share);
void sheet_text(struct sheet *s, double x, double y, enum text_h h, enum text_v v, int is_small,
                int rgb, const char *text);
/* Adds a sentence to the caption. */
void sheet_note(struct sheet *s, const char *fmt, ...) DS_PRINTF(2, 3);
/* Sets the dash of the i-th line style (0 solid). */
void sheet_dash(struct sheet *s, int i);
/* Draws the i-th marker, filled or hollow. */
void sheet_marker(struct sheet *s, int i, double x, double y, double r, int rgb, int is_hollow);
/* "figure NAME: run RUN: " + text. */
int sheet_fail(const struct sheet *s, int run, struct err *e, const char *fmt, ...) DS_PRINTF(4, 5);
/* The name of the run, or of the JSON file without its extension, sanitised and truncated. */
void sheet_run_name(const struct sheet *s, int run, char *out, size_t size);
/* What each of a run's `layers` layers is: "layer", or "iteration" of a model that is one looped layer;
 * and as the label of an axis. */
const char *sheet_layer_word(const struct sheet *s, int run, int layers);
const char *sheet_layer_label(const struct sheet *s, int run, int layers);
/* What the depth of a run counts, or with run -1 that of all: "layers", "iterations", or either. */
const char *sheet_depth_unit(const struct sheet *s, int run);

/* ---- rows of horizontal bars: labels at the left of one or two panels
 * ------------------------------------------------------------------------------------------- */
/* Lays out `columns` (1 or 2) panels with n rows of height `row` below y and draws their axes;
 * returns the end of the drawing. The caller has set ax and x_label of each panel. */
struct panel;
struct bar_rows {
    const char *const *label;
    int n;
    double row;
};
double bars_layout(struct sheet *s, const struct bar_rows *r, struct panel *p, int columns,
                   double y);

/* ---- panel
 * ------------------------------------------------------------------------------------------- */
enum { LEGEND_MAX = 16, OCC_COLS = 64, OCC_ROWS = 40 };
struct legend_entry {
    char text[80];
    int rgb, dash, marker, is_line, is_box;
}; /* marker -1: none */
struct panel {
    double x, y, w, h; /* of the plot area, after layout */
    struct axis ax, ay;
    const char *x_label, *y_label;
    char title[96], sub[160]; /* above the plot: the title, and one line of result in small type */
    double head;              /* space between the plot and its title, set by the layout */
    double right;             /* space reserved at the right in points, for a colour bar */
    const char *bar_map;      /* its colour map; NULL = the sequential one of the theme */
    double bar_gap;           /* space between the plot and it for something else, 0 = none */
    int ticks_whole_x, ticks_whole_y, no_grid;
    struct legend_entry entry[LEGEND_MAX];
    int entries, left_out; /* entries beyond LEGEND_MAX */
    unsigned short occ[OCC_ROWS][OCC_COLS];
};
void panel_entry(struct panel *p, const char *text, int rgb, int dash, int marker, int is_line);
/* Extra height that a sheet needs for a long legend above the plot. */
double panel_legend_more(const struct sheet *s, const struct panel *p);
/* The same for these entries above a panel w wide. */
double legend_more(const struct sheet *s, const char *const *text, int n, double w);
/* Chooses ticks and margins inside the outer box and fixes the axes. */
void panel_layout(struct sheet *s, struct panel *p, double x, double y, double w, double h);
void panel_axes(struct sheet *s, struct panel *p);
void panel_legend(struct sheet *s, struct panel *p);
/* Marks a place as drawn on, so that the legend avoids it. */
void panel_mark(struct panel *p, double x, double y);
void panel_mark_line(struct panel *p, double x0, double y0, double x1, double y1);
void panel_mark_box(struct panel *p, double x, double y, double w, double h);
/* A line through data points; NaN breaks it.  Colour, width and dash are the pen's. */
void panel_line(struct sheet *s, struct panel *p, const double *x, const double *y, size_t n);
/* The area between two curves. */
void panel_band(struct sheet *s, struct panel *p, const double *x, const double *lo,
                const double *hi, size_t n, int rgb, double alpha);
/* Draws a vertical or horizontal line across the plot at v. */
void panel_rule(struct sheet *s, struct panel *p, double v, int is_vertical, int rgb, int dash);
/* A colour bar to the right of the plot, with the ticks of an axis (chosen unless it has some) and a
 * label; and the width it needs, to be assigned to `right` before the layout. */
double panel_bar_room(const struct sheet *s, const struct axis *a);
void panel_colour_bar(struct sheet *s, const struct panel *p, struct axis *a, const char *label);
/* Boxes for n panels, stacked or side by side; returns the height of the sheet. */
double panel_grid(const struct sheet *s, int n, int max_cols, double ratio, int i, double box[4]);
/* An interval bar with caps, and an arrow where the edge of the plot cuts it; it is marked. */
void panel_whisker(struct sheet *s, struct panel *p, double x0, double y0, double x1, double y1,
                   int rgb);

/* ---- runs and their data
 * -------------------------------------------------------------------------------- */
struct group {
    char label[80];
    const char *method;
    int layers;
    double target;    /* edp.target_ratio or NaN */
    int *run, runs;   /* indices into sheet.run; owned by the group */
    int method_index; /* dense 0 and so on, in order of appearance */
    int family;       /* the same for groups that differ only in size and budget; from 0 */
    char family_label[80];
};
struct groups {
    struct group *g;
    int n;
    int *index;
    int methods, families;
};
/* Groups runs whose configurations differ only in seed. */
int groups_make(struct groups *out, const struct sheet *s, struct err *e) DS_CHECK;
void groups_release(struct groups *g);
/* DS_EUSAGE when there are more than `most` groups, the limit of the figure. */
int groups_check(const struct groups *g, const struct sheet *s, int most, struct err *e) DS_CHECK;
/* Adds "Mean over n = 3 seeds; bars: ..." to the caption, or that one seed has no interval. */
void groups_note(struct sheet *s, const struct groups *g);
/* The same for any points of lo to hi seeds each. */
void seeds_note(struct sheet *s, int lo, int hi);
/* Mean over the seeds of a group of a scalar of the evaluation `final`, with its interval. */
int group_eval(struct sheet *s, const struct group *g, const char *scalar, struct interval *out,
               struct err *e) DS_CHECK;
/* The same for a vector (n = layers) of `final`.  *n: 0 = not known yet; free out with mem_free. */
int group_eval_vector(struct sheet *s, const struct group *g, const char *name,
                      struct interval **out, int *n, struct err *e) DS_CHECK;
typedef int groups_panel_fn(struct sheet *s, const struct groups *set, int i, struct err *e);
typedef void groups_note_fn(struct sheet *s, const struct groups *set);
/* A figure with one panel per group, at most `most`; note (or NULL) then extends the caption. */
int groups_draw(struct sheet *s, int most, groups_panel_fn *panel, groups_note_fn *note,
                struct err *e) DS_CHECK;
/* Dense is drawn in the reference colour, the methods in series colours. */
int group_is_dense(const struct group *g);
int group_colour(const struct sheet *s, const struct group *g);

/* Newest evaluation `final`; DS_ENOTFOUND with a line that names run and scalar. */
int data_eval(struct sheet *s, int run, const char *scalar, double *out, struct err *e) DS_CHECK;
int data_has_eval(const struct sheet *s, int run, const char *scalar);
int data_has_vector(const struct sheet *s, int run, const char *name);
int data_eval_vector(struct sheet *s, int run, const char *name, const struct vector **out,
                     struct err *e) DS_CHECK;
/* Column of the newest sample `val`. */
int data_column(struct sheet *s, int run, const char *name, const struct vector **out,
                struct err *e) DS_CHECK;
/* Layers of a run; FLOPs per token of its dense counterpart (flops_dense_per_token of eval 'final'
 * if all runs have it, else flops_dense of the head); an error when missing. */
int data_layers(struct sheet *s, int run, int *out, struct err *e) DS_CHECK;
int data_flops_dense(struct sheet *s, int run, double *out, struct err *e) DS_CHECK;
void data_hash(struct sheet *s, const char *what, const void *p, size_t n);
/* The step of --step, INT64_MAX without; the words about it for a caption, "" without. */
int64_t data_last_step(const struct sheet *s);
void data_step_words(const struct sheet *s, char *out, size_t size);
/* The newest probe of a text (index < 0: of any) up to that step; NULL if none. */
const struct probe *data_probe_of(const struct sheet *s, int run, int index);
/* That of the i-th text that has one, in order of index; NULL past the end. */
const struct probe *data_probe(const struct sheet *s, int run, int i);
/* The layer before which the token exited (cell "exited"); -1: it never exited. */
int data_exit_layer(const struct matrix *exited, int token);
/* A scalar of the final evaluation, else of the newest one that has both scalars; NaN if none. */
double data_eval_pair(struct sheet *s, int run, const char *scalar, const char *with,
                      double *other);

/* ---- one text: layers by tokens, in as many strips as its length needs, with token labels below
 * -------------------------------------------------------------------------------- */
/* Colour of a cell, -1 = empty. */
typedef int strip_colour(const struct sheet *s, const struct probe *p, int l, int t,
                         const void *ctx);
/* Draws from y downwards and sets the height of the sheet; an error when the text is too long. */
int strips_draw(struct sheet *s, const struct probe *p, int run, double y, strip_colour *colour,
                const void *ctx, struct err *e) DS_CHECK;
/* Adds a note to the caption when the decisions of a probe are not inference-time ones. */
void strips_caveat(struct sheet *s, const struct probe *p);
/* The probe selected by --probe and --step (default: newest) of the only run; an error without
 * text, or with needs_run without decisions. */
int strips_probe(struct sheet *s, int needs_run, const struct probe **out, struct err *e) DS_CHECK;
/* A legend above the strips, boxes with labels in rows; returns its height. */
struct strip_key {
    int rgb;
    const char *text;
};
double strips_key(struct sheet *s, const struct strip_key *k, int n);

/* ---- curves over training
 * -------------------------------------------------------------------------------- */
/* smooth is the drawn curve; with has_band lo and hi are an interval over seeds or the range over
 * layers, otherwise y is the raw curve in the background. */
struct curve {
    double *x, *y, *smooth, *lo, *hi, *step;
    size_t n, nonfinite;
    double weight;
    int has_band;
};
/* Without --smooth: smoothing weight, used for curves of at least this many points. */
#define CURVE_WEIGHT 0.9
enum { CURVE_SMOOTH_FROM = 100 };
/* A step metric: one run smoothed, several seeds as mean with interval. */
int curve_metric(struct sheet *s, const struct group *g, const char *metric, struct curve *out,
                 struct err *e) DS_CHECK;
/* A layer metric: mean and range over the layers that have it, over all seeds. */
int curve_layer(struct sheet *s, const struct group *g, const char *metric, struct curve *out,
                struct err *e) DS_CHECK;
/* Label of the x axis: --x, a run_axis or a metric; default: the step. */
void curve_x_label(const struct sheet *s, char *out, size_t size);
/* 1 when every run of the sheet logged it. */
int curve_has_metric(const struct sheet *s, const char *metric);
/* 1 when every run has a point of it that --range and --log show. */
int curve_is_shown(struct sheet *s, const char *metric);
int curve_has_layer(const struct sheet *s, const char *metric);
/* Empty axes, logarithmic as --log says, the vertical one also with is_log; then the curves, and the
 * space around them. */
void curve_axes(const struct sheet *s, struct panel *p, int is_log);
void curve_include(struct panel *p, const struct curve *c);
void curve_pad(const struct sheet *s, struct panel *p);
/* Dash of the i-th curve: another one where its colour comes round again. */
int curve_dash(int i);
void curve_draw(struct sheet *s, struct panel *p, const struct curve *c, int i);
void curve_release(struct curve *c);
/* Adds to the caption what lines and bands of curve_metric are, of what the caption calls NAME. */
void curve_note(struct sheet *s, const struct groups *set, const char *name);
/* One panel of curves c (n) with labels; owns nothing. */
struct curve_panel {
    const struct curve *curve;
    const char *const *label; /* NULL: no legend */
    int n, is_log, from_zero; /* from_zero: the vertical axis holds 0 */
    const char *title, *y_label;
};
int curve_panel(struct sheet *s, const struct curve_panel *v, const double box[4],
                struct err *e) DS_CHECK;

#endif
