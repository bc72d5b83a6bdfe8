/* State and parts of the Pareto view, private to pareto*.c.  First its points: experiments with the
 * intervals of their seeds, which of them are dominated, and isoFLOP curves; tested on numbers,
 * without drawing. */
#ifndef DS_TUI_PARETO_H
#define DS_TUI_PARETO_H

#include "base/statistics.h"
#include "io/runview.h"
#include "tui/chart_scan.h"
#include "tui/view.h"
#include "tui/widgets.h"

enum { PARETO_RUNS_MAX = 64, PARETO_ISOS_MAX = 12, PARETO_SIZES_TO_FIT = 3 };

enum pareto_x {
    PARETO_FLOPS_RATIO,
    PARETO_FLOPS,
    PARETO_TIME_RATIO,
    PARETO_TIME,
    PARETO_PARAMS,
    PARETO_TRAINING,
    PARETO_STEPS,
    PARETO_TOKENS,
    PARETO_WALL,
    PARETO_AXES
};
struct pareto_axis {
    const char *name;                /* "flops-ratio", as typed after :axis */
    const char *title, *unit, *head; /* head: of a narrow column */
    int is_size;                     /* budgets make isoFLOP curves over this axis */
};
extern const struct pareto_axis pareto_axes[PARETO_AXES];
/* The coordinate of a run; NaN when it is not recorded. */
double pareto_x_of(const struct runview *v, enum pareto_x x);
/* The result of a run: experiment_result, and for "loss" the newest training loss.  NaN when it is not
 * recorded. */
double pareto_y_of(const struct runview *v, const char *metric);
/* Names of the scalars that evaluations of the runs have, "val_loss" first, and "loss"; at most
 * max. */
int pareto_metrics(const struct runview *const *run, int runs, char name[][64], int max);

/* Seeds of one experiment. */
struct pareto_point {
    int run[PARETO_RUNS_MAX], runs; /* those that have both coordinates */
    struct interval x, y;
    int is_front, dominated_by; /* the point that dominates it, -1 none */
    int method;                 /* the same for points of one method, from 0 */
    int is_dense;
    double budget; /* train.flops_budget, 0 = none */
    char label[80];
};
/* Points of one experiment and budget that differ in size, in order of x. */
struct pareto_iso {
    int point[PARETO_RUNS_MAX], n;
    double budget;
    int has_fit, is_enclosed; /* the minimum is between the smallest and the largest size */
    struct parabola fit;      /* over log10 x */
    double best;              /* x of the minimum */
};
struct pareto_set {
    struct pareto_point point[PARETO_RUNS_MAX]; /* in order of x */
    int n;
    struct pareto_iso iso[PARETO_ISOS_MAX];
    int isos;
    struct pareto_left {
        int run;
        const char *why; /* "failed", "no val_loss", ... */
        char text[48];
    } left[PARETO_RUNS_MAX]; /* runs that are not in any point */
    int lefts;
};
/* At most PARETO_RUNS_MAX runs. */
void pareto_make(struct pareto_set *out, const struct runview *const *run, int runs,
                 enum pareto_x x, const char *metric);

/* ---- the view ---- */

struct pareto {
    int axis, log_flip; /* log_flip: bit of an axis differs from its default */
    int is_log_y;
    char metric[64], names[128]; /* names: of an export */
    struct pareto_set set;
    const struct runview *run[PARETO_RUNS_MAX];
    int open[PARETO_RUNS_MAX]; /* index of the run among the open ones */
    int runs, is_marked;       /* is_marked: only marked runs are shown */
    uint64_t made_of;          /* what `set` was made of */
    char selected[80];         /* label of the point at the cursor: points move as runs are added */
    struct list list;
    int seen;        /* the point of the read-out: that of the cursor when it rests */
    double rests_at; /* when it will have come to rest, by clock_mono; 0 = it rests */
    /* of the last draw, in coordinates of the view */
    struct area plot;
    int plot_y, plot_x, table_y, table_x;
    struct scan_axis x, y;
};

void pareto_prepare(struct view *v); /* the points of the runs that are open now */
/* The point at the cursor, NULL when there is none. */
struct pareto_point *pareto_selected(struct pareto *p);
/* pareto_draw.c */
void pareto_draw(struct view *v, struct area a);
/* Position of a point in the last plot, in dots: 2 x 4 a cell. */
int pareto_dot_x(const struct pareto *p, double x);
int pareto_dot_y(const struct pareto *p, double y);

#endif
