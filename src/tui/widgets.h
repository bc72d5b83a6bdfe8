/* Building blocks of the views.  A widget is a function that draws, with a small struct in the
 * view if it has a cursor.  Only those with a _release function allocate. */
#ifndef DS_TUI_WIDGETS_H
#define DS_TUI_WIDGETS_H

#include <stddef.h>
#include <stdint.h>

#include "io/runview.h"
#include "tui/canvas.h"
#include "tui/keymap.h"

/* ---- numbers for people ---- */
/* A tick or read-out: 3 or 4 significant digits, SI suffix from 10^5, 1e-4 below 10^-3; "NaN",
 * "inf". */
const char *num_print(char out[24], double x);
/* The first part of a duration: "42m"; `out` at least 16 bytes. */
const char *num_age(char out[16], double seconds);
/* Nice ticks (1, 2, 2.5, 5 x 10^k; decades on a log axis) inside [lo, hi], at most `max`; the
 * count. */
int ticks_nice(double lo, double hi, int is_log, double *tick, int max);
/* The one routine for the ticks of an axis: evenly spaced, at most `max`, with labels of one
 * precision and one suffix that are never wider than `cols` (fewer ticks are chosen instead).
 * Where values share more digits than fit, the first label is rounded and the others are distances
 * from it: 1.23G, +10k, +20k. */
enum { AXIS_TICKS_MAX = 16, AXIS_COLS = 6 };
struct axis_labels {
    int n;
    double at[AXIS_TICKS_MAX];
    char label[AXIS_TICKS_MAX][24];
};
void axis_labels(struct axis_labels *t, double lo, double hi, int is_log, int max, int cols);
/* The axis left of a plot of `rows` rows from row `top`: labels in the first AXIS_COLS columns, the
 * line in the next one. */
void axis_draw_y(struct area a, int top, int rows, double lo, double hi, int is_log);
/* The labels of the axis below a plot of `cols` columns from column `left`, in row y, and its name
 * (NULL: none) at the right end where there is room.  As many ticks as stand apart, and by `least`
 * or more; one at the left end when lo equals hi (a single point). */
void axis_draw_x(struct area a, int y, int left, int cols, double lo, double hi, int is_log,
                 double least, const char *name);

/* ---- line chart ---- */
/* Smoothed values, extended as the series grows: a bias-corrected EMA that skips non-finite
 * values. */
struct smooth {
    const struct series *series;
    double weight; /* 0 = none .. 0.999 */
    size_t n, cap;
    int64_t step; /* of the last one */
    double *v;
    double acc, norm;
};
int smooth_update(struct smooth *s, const struct series *series, double weight) DS_CHECK;
void smooth_release(struct smooth *s);

enum { CHART_CURVES_MAX = 48, CHART_SEEDS_MAX = 16, CHART_MARKS_MAX = 64 };
struct curve {
    const struct series *series;
    const struct smooth *smooth; /* NULL or weight 0: raw only; else raw is drawn faintly */
    const char *label;           /* legend, untrusted, NULL = none */
    enum role role;
    char letter;    /* at its end where there are no colours; 0 = none */
    int has_newest; /* `newest` is in the title: the series has no point of it */
    double newest;
    int is_validation;     /* "val" in front of its label, next to curves of training */
    int is_reference;      /* drawn dashed (time_ratio next to flops_ratio) */
    int group;             /* >= 0: curves of the same group are seeds, drawn as mean and band
                              where all have values */
    int64_t steps_planned; /* for AXIS_PROGRESS */
    double time_start;     /* for AXIS_SECONDS */
};
struct chart {
    const char *title, *unit;
    struct curve curve[CHART_CURVES_MAX];
    int curves;
    enum run_axis x_axis;
    int is_log_y, is_log_x;
    double x0, x1;    /* visible range; x0 >= x1: everything */
    double y0, y1;    /* the same */
    double reference; /* horizontal line (target ratio); NaN = none */
    const char *reference_label;
    double mark[CHART_MARKS_MAX]; /* x of events */
    int marks;
    double cursor; /* x of the read-out line; NaN = none */
    int has_focus;
    int is_compact; /* one line of title, no x labels */
    struct ink title_ink;
};
struct chart chart_new(const char *title); /* zeroed, with NaN where NaN means none */
/* The layout of a drawn chart, for hit tests and cursors. */
struct chart_view {
    struct area plot;
    double x0, x1, y0, y1;
    int has_points; /* in the range of x */
};
/* Draws; single-point spikes and NaN are visible at any zoom.  out may be NULL. */
void chart_draw(struct area a, const struct chart *c, struct chart_view *out);
/* x in axis units of point i; NaN when unknown. */
double chart_x_of(const struct curve *c, enum run_axis axis, size_t i);
/* Index of the live point nearest to x, or n when there is none. */
size_t chart_index_at(const struct curve *c, enum run_axis axis, double x);

/* ---- small widgets ---- */
/* One row of eighths (or shades, ASCII) for v[0..n); NaN is an x.  Range from the data if lo >= hi.
 */
void spark_draw(struct area a, const double *v, size_t n, double lo, double hi, enum role r);
/* "block ratio [#####|---] 0.712 of 0.70": value and target as fractions of `full`. */
void gauge_draw(struct area a, const char *label, double value, double target, double full,
                enum role r);
/* The bar of a gauge alone, as wide as the area: full at 1. */
void meter_draw(struct area a, double unit, enum role r);
/* Horizontal bars, one row each, value at the right; reference is a vertical line (NaN none). */
struct bar {
    const char *label;
    double value;
    double note;
    enum role role;
};
void bars_draw(struct area a, const struct bar *b, size_t n, double full, double reference,
               size_t top);
/* Vertical histogram of counts with labelled x range; marks are vertical lines with labels. */
struct hist_mark {
    double x;
    const char *label;
    enum role role;
};
void hist_draw(struct area a, const double *count, int bins, double x0, double x1,
               const struct hist_mark *mark, int marks, enum role r);

/* ---- lists and tables ---- */
struct list {
    size_t n, cursor, top;
    int page;        /* rows of the last draw */
    int follow_tail; /* cursor stays on the last item while set; moving up clears it */
};
/* Clamp to n items and scroll so that the cursor shows (and the tail while following). */
void list_fit(struct list *l, size_t n, int rows);
/* Motion keys (j k arrows Home End PgUp PgDn C-d C-u, without gg) and the wheel: 1 = handled. */
int list_event(struct list *l, const struct event *ev);
void list_move(struct list *l, long by);
void list_end(struct list *l, int is_last);
/* A thin scroll bar in column x of the area, when not all rows fit. */
void scrollbar_draw(struct area a, int x, size_t n, size_t top, int rows);

/* Columns: width < 0 = share of the remaining width; `right` aligns numbers. */
struct column {
    const char *title;
    int width;
    int right;
    int priority; /* the lowest is hidden first */
};
/* Widths (0 = hidden) and start columns x for `cols` cells, with one blank between columns. */
void columns_fit(const struct column *c, int n, int cols, int *width, int *x);
void columns_head(struct area a, int y, const struct column *c, int n, const int *width,
                  const int *x);
void columns_text(struct area a, int y, const struct column *c, int i, const int *width,
                  const int *x, struct ink k, const char *text);

struct tab {
    const char *title;
    int brief; /* first cells of the title that stand for it; 0 = all */
};
/* Start and width of each tab of a bar of `cols` cells; the first `numbered` begin with a digit and
 * a blank.  What does not fit becomes shorter in this order: gaps, titles to their brief forms, those of
 * tabs without a number away, titles to 3 cells at least and then away, except that of the current
 * tab.  A tab without number and title is hidden (width 0), and 4 cells at the end of the bar are
 * then free for their count. */
void tabs_fit(const struct tab *t, int n, int current, int numbered, int cols, int *x, int *width);

/* ---- text entry ---- */
struct field {
    struct str text; /* UTF-8, as typed */
    size_t cursor;   /* byte offset */
    int scroll;      /* first cell shown */
};
void field_set(struct field *f, const char *text);
/* 1 = handled.  Emacs motions, arrows, Home, End, C-w, C-u, C-k, paste (newlines become blanks). */
int field_event(struct field *f, const struct event *ev);
/* Draws on one row and, when focused, sets the canvas cursor. */
void field_draw(struct field *f, struct area a, int y, int x, int cols, int has_focus);
void field_release(struct field *f);

/* Wrapped text with a scroll position; rows of tables are continued below their last column. */
struct scroll {
    int top, lines, page, cols;
};
void scroll_text(struct scroll *s, struct area a, const char *text, struct ink i);
int scroll_event(struct scroll *s, const struct event *ev);
/* The screen line of byte `at` of `text` in the last draw. */
int scroll_line_of(const struct scroll *s, const char *text, const char *at);

/* A centred, framed and cleared area above the rest, for dialogs. */
struct area popup_begin(struct area whole, int rows, int cols, const char *title);

#endif
