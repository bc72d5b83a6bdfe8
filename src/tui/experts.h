/* State and parts of the Experts view, private to experts*.c: the load of every expert relative to
 * ideal at one step, and the tokens that the expert at the cursor takes. */
#ifndef DS_TUI_EXPERTS_H
#define DS_TUI_EXPERTS_H

#include "io/experts.h"
#include "tui/cells.h"
#include "tui/cells_pick.h"
#include "tui/view.h"
#include "tui/widgets.h"

/* What a cell of the map shows: as many experts and layers as needed to show the whole map, always
 * one, or one with its value. */
enum { EXPERTS_WHOLE, EXPERTS_SINGLE, EXPERTS_VALUES, EXPERTS_ZOOMS };
enum { EXPERTS_PLAYED = 4 }; /* records a second */

struct experts {
    /* the place in time, and its load */
    struct expert_load load;
    const struct runview *of;
    uint64_t generation;
    size_t n, pos; /* places in time */
    int64_t step;  /* of pos while held */
    int is_held;
    int is_playing;
    double next; /* is_playing: the time of the next record, by clock_mono */
    /* cursor and appearance */
    int row, expert;
    int zoom, is_upward;
    int first_row, first_expert;
    /* the details follow when the cursor rests, as those of cells do */
    int seen_row, seen_expert, is_moving;
    double rests_at;
    double *trend; /* (trend_n) of the seen expert over time */
    size_t trend_n;
    int trend_row, trend_expert;
    uint64_t trend_generation;
    /* tokens of the expert: a text of the newest probe */
    int is_open;
    struct pick pick;
    struct cells cells;
    float *shade;        /* (tokens) of the expert's weight */
    unsigned char *mark; /* (tokens) 1: the expert takes it */
    char text[16];       /* for the export: index of the text, */
    char held[24];       /* step of the place in time */
    /* of the last draw, in coordinates of the view */
    struct experts_at {
        int y, x, rows, cols; /* of the cells */
        int width, height;    /* of a cell */
        int per_col, per_row; /* experts and layers of a cell */
        int text_y, text_x;   /* of the tokens */
    } at;
};

/* Brings everything up to date with the run; 0: it has no experts. */
int experts_prepare(struct view *v);
/* The same for the tokens: the probe, or NULL when no probe has cells of experts. */
const struct probe *experts_probe(struct view *v);
/* Row r of the map as shown from the top, and back. */
int experts_row_at(const struct experts *s, int shown);
/* Highest and lowest relative load among the experts of a cell; NaN without assignments. */
struct experts_span {
    double most, least;
    int most_row, most_expert, least_row, least_expert;
};
struct experts_span experts_span(const struct experts *s, const double *relative, int shown,
                                 int expert);
/* (rows, experts) relative loads; NULL: out of memory.  Free with mem_free. */
double *experts_relative(const struct expert_load *x);

/* Brings the tokens up to date, after experts_prepare: how many the expert takes, and the mean of
 * their weights; -1 and no probe when that is not known. */
int experts_tokens_prepare(struct view *v, double *mean);

void experts_draw(struct view *v, struct area a);        /* experts_draw.c */
void experts_tokens_draw(struct view *v, struct area a); /* experts_tokens.c */

#endif
