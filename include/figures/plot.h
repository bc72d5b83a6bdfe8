/* What the figure files share: the sheet they draw on, panels with axes and legend, groups of runs
 * that differ only in seed, and the doors through which data comes (each value that passes is
 * hashed). */
#ifndef DS_FIGURES_PLOT_H
#define DS_FIGURES_PLOT_H

#include "base/hash.h"
#include "figures/axes.h"
#include "figures/figure.h"
#include "figures/palette.h"
#include "figures/stats.h"

struct venue {
    const char *name;
    double width;       /* inches */
    double base, small; /* text, points; small >= 6 */
    double line, axis;  /* strokes, points */
    double dpi;
};
const struct venue *venue_find(const char *name);
const struct venue *venue_at(int i); /* NULL past the end */

/* The sheet a figure is drawn on.  draw() sets `height` to where its drawing ends; the caption
 * follows below. */
struct sheet {
    struct pen *pen;
    const struct figure_ops *ops;
    struct theme theme;
    const struct venue *venue;
    struct figure_options opt;
    const struct figure_run *run;
    int runs;
    double width, height; /* inside the margin */
    int background;
    struct str caption;
    struct sha256 data;
    int legend_above; /* no place inside was free: draw() is called again with this set */
    int again;
};

/* One row of the registry. */
struct figure_ops {
    const char *name, *title, *needs;
    int (*draw)(struct sheet *s, struct err *e);
};
extern const struct figure_ops figure_loss_flops, figure_loss_time, figure_signal_depth,
    figure_layer_map, figure_entropy_depth, figure_flops_hist, figure_routing_map, figure_training,
    figure_ablation_bars;

/* ---- sheet
 * ------------------------------------------------------------------------------------------- */
int sheet_colour(const struct sheet *s, enum role r);
int sheet_series(const struct sheet *s, int i); /* colour of the i-th series, going round */
/* Between the background (0) and a colour (1). */
int sheet_tint(const struct sheet *s, int rgb, double share);
void sheet_text(struct sheet *s, double x, double y, enum text_h h, enum text_v v, int is_small,
                int rgb, const char *text);
/* Adds a sentence to the caption. */
void sheet_note(struct sheet *s, const char *fmt, ...) DS_PRINTF(2, 3);
/* Sets the dash of the i-th line style (0 solid). */
void sheet_dash(struct sheet *s, int i);
/* The i-th marker at a place: filled, or hollow. */
void sheet_marker(struct sheet *s, int i, double x, double y, double r, int rgb, int is_hollow);
/* "figure NAME: run RUN: " + text. */
int sheet_refuse(const struct sheet *s, int run, struct err *e, const char *fmt, ...)
    DS_PRINTF(4, 5);
/* The run's name, sanitised, cut to size. */
void sheet_run_name(const struct sheet *s, int run, char *out, size_t size);

/* ---- panel
 * ------------------------------------------------------------------------------------------- */
enum { LEGEND_MAX = 16, OCC_COLS = 64, OCC_ROWS = 40 };
struct legend_entry {
    char text[80];
    int rgb, dash, marker, is_line, is_box;
}; /* marker -1: none */
struct panel {
    double x, y, w, h; /* of the plot itself, once laid out */
    struct axis ax, ay;
    const char *x_label, *y_label;
    char title[96], sub[160]; /* above the plot: what it is, and one line of result in small type */
    double head;              /* room between the plot and its title, set by the layout */
    double right;             /* room kept at the right, points: a colour bar */
    int ticks_whole_x, ticks_whole_y, no_grid;
    struct legend_entry entry[LEGEND_MAX];
    int entries, left_out; /* entries beyond LEGEND_MAX */
    unsigned short occ[OCC_ROWS][OCC_COLS];
};
void panel_entry(struct panel *p, const char *text, int rgb, int dash, int marker, int is_line);
/* Chooses ticks and margins inside the outer box and fixes the axes. */
void panel_layout(struct sheet *s, struct panel *p, double x, double y, double w, double h);
void panel_axes(struct sheet *s, struct panel *p);
void panel_legend(struct sheet *s, struct panel *p);
/* Says that something is drawn here, for the legend to avoid. */
void panel_mark(struct panel *p, double x, double y);
void panel_mark_line(struct panel *p, double x0, double y0, double x1, double y1);
void panel_mark_box(struct panel *p, double x, double y, double w, double h);
/* A line through data points; NaN breaks it.  Colour, width and dash are the pen's. */
void panel_line(struct sheet *s, struct panel *p, const double *x, const double *y, size_t n);
/* The area between two curves. */
void panel_band(struct sheet *s, struct panel *p, const double *x, const double *lo,
                const double *hi, size_t n, int rgb, double alpha);
/* A vertical or horizontal line across the plot at v. */
void panel_rule(struct sheet *s, struct panel *p, double v, int is_vertical, int rgb, int dash);
/* A bar of colours right of the plot: lo..hi of the axis, with ticks and a label; and the room it
 * takes, to be put into `right` before the layout. */
double panel_bar_room(const struct sheet *s, const struct axis *a);
void panel_colour_bar(struct sheet *s, const struct panel *p, struct axis *a, const char *label);
/* Boxes for n panels under each other and beside each other; returns the sheet's height. */
double panel_grid(const struct sheet *s, int n, int max_cols, double ratio, int i, double box[4]);
/* An interval bar with caps. */
void panel_whisker(struct sheet *s, double x0, double y0, double x1, double y1, int rgb);

/* ---- runs and their data
 * -------------------------------------------------------------------------------- */
struct group {
    char label[80];
    const char *method;
    int layers;
    double target;    /* edp.target_ratio or NaN */
    int *run, runs;   /* indices into sheet.run; within the group's own memory */
    int method_index; /* dense 0 and so on, in order of appearance */
};
struct groups {
    struct group *g;
    int n;
    int *index;
    int methods;
};
/* Groups runs whose configurations differ only in seed. */
int groups_make(struct groups *out, const struct sheet *s, struct err *e) DS_CHECK;
void groups_release(struct groups *g);
/* 1 for keys that do not make two runs different experiments: seed, run name, threads, ... */
int config_is_incidental(const char *key);

/* Newest evaluation `final`; DS_ENOTFOUND with a line that names run and scalar. */
int data_eval(struct sheet *s, int run, const char *scalar, double *out, struct err *e) DS_CHECK;
int data_has_eval(const struct sheet *s, int run, const char *scalar);
int data_eval_vector(struct sheet *s, int run, const char *name, const struct vector **out,
                     struct err *e) DS_CHECK;
/* Column of the newest sample `val`. */
int data_column(struct sheet *s, int run, const char *name, const struct vector **out,
                struct err *e) DS_CHECK;
/* Layers of a run; FLOPs a token of its dense counterpart (eval 'final' flops_dense_per_token where
 * all runs have it, else the head's flops_dense); refused when missing. */
int data_layers(struct sheet *s, int run, int *out, struct err *e) DS_CHECK;
int data_flops_dense(struct sheet *s, int run, double *out, struct err *e) DS_CHECK;
/* Whole number from the configuration; 0 and `otherwise` when absent or no number. */
int data_config_int(struct sheet *s, int run, const char *key, int otherwise, int *out);
void data_hash(struct sheet *s, const char *what, const void *p, size_t n);

#endif
