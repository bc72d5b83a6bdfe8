/* State shared by the two halves of the Monitor view: keys and layout (views/monitor.c) and panels
 * (views/monitor_panels.c). */
#ifndef DS_TUI_MONITOR_H
#define DS_TUI_MONITOR_H

#include "tui/view.h"
#include "tui/widgets.h"

enum {
    PANELS_MAX = 256, /* further metrics are named where the panels are counted */
    PANEL_METRICS = 6,
    METRIC_BYTES = 256, /* names of other programs' metrics are long */
    MONITOR_FLIPS = (PANELS_MAX + 30) / 31,
    SMOOTH_SLOTS = 512, /* the charts of a screen, of all runs */
};

enum panel_kind {
    PANEL_LINES,
    PANEL_LAYERS,
    PANEL_SHARES, /* the metrics add up to the duration of a step */
    PANEL_RANKS,  /* the processes of the run, from its newest record of them */
};
struct panel {
    enum panel_kind kind;
    char title[METRIC_BYTES];
    char metric[PANEL_METRICS][METRIC_BYTES]; /* "" = unused */
    unsigned reference;                       /* bit i: metric i is drawn as a reference */
    int has_target;                           /* line at edp.target_ratio */
    int is_log;                               /* y axis is logarithmic by default */
};

struct smooth_slot {
    const struct runview *run;
    uint64_t life; /* of the run */
    char name[METRIC_BYTES];
    struct smooth smooth;
};

struct monitor {
    /* settings */
    int columns;         /* 0 = automatic */
    int focus, is_alone; /* panel, and whether it fills the view */
    int x_axis, smoothing, is_log_x, has_bands, has_events;
    int log_flip[MONITOR_FLIPS]; /* bit i % 31 of i / 31: panel i differs from its default */
    double x0, x1, cursor;
    /* not saved */
    int top; /* first panel shown */
    int shown_columns, shown_rows, origin_y, origin_x;
    struct panel panel[PANELS_MAX];
    int panels, is_cut; /* is_cut: there are more metrics */
    struct smooth_slot slot[SMOOTH_SLOTS];
    int slots;
    struct chart_view at[PANELS_MAX];
    struct area area[PANELS_MAX];
    /* of an export */
    char names[PANEL_METRICS * METRIC_BYTES], weight[16], range[64];
};

extern const double monitor_weights[];
enum { MONITOR_WEIGHTS = 5 };

/* Lists the panels that the open runs have data for: known panels first, then all other metrics. */
void monitor_find_panels(struct view *v);
/* is_compact: without labels of the x axis. */
void monitor_draw_panel(struct view *v, int index, struct area a, int is_compact);
/* 0 when panels a and b are line charts of different x ranges: the labels of one do not hold for
 * the other. */
int monitor_same_x(struct view *v, int a, int b);
/* Draws the values at the cursor, one per curve. */
void monitor_draw_readout(struct view *v, int index, struct area line);
int monitor_log_y(const struct monitor *m, int index);
/* The point of a series at the cursor of the chart that is shown alone; else the newest. */
size_t monitor_point(struct view *v, const struct series *s);
double monitor_target(const struct runview *r); /* NaN = none */
/* monitor_ranks.c */
void monitor_draw_ranks(struct view *v, const struct panel *p, struct area a, int has_focus);
void monitor_forget(struct monitor *m);
char monitor_letter(const struct open_run *run); /* names it where there are no colours */
/* The runs to draw: the current one and the marked ones. */
int monitor_runs(struct view *v, const struct open_run *out[APP_RUNS_MAX]);
/* The number of runs that are drawn as one band with the first; 0 when bands are off. */
int monitor_seeds(struct view *v, const struct open_run *const *run, int runs);

#endif
