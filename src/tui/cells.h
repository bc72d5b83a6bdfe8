/* Tokens x layers on a screen: the map, the text above it and the read-out beside it.  The Depth
 * map and the Stepper draw the same picture with this; what a cell can show is read from the probe
 * (run or skip, then every matrix it carries), so no method is known here by name. */
#ifndef DS_TUI_CELLS_H
#define DS_TUI_CELLS_H

#include <stdint.h>

#include "io/runview.h"
#include "tui/canvas.h"
#include "tui/keymap.h"

/* ---- fields: what a cell can show (cells_fields.c) ---- */
/* Field 0 is run or skip, then the probe's matrices, last the margin score - threshold if it has
 * both. */
int cells_fields(const struct probe *p);
const char *cells_field_name(const struct probe *p, int field);
double cells_value(const struct probe *p, int field, int layer,
                   int token); /* NaN where there is none */
/* Unit of a metric, as the run's other records name it; "" when unknown. */
const char *cells_unit(const struct runview *r, const char *name);
/* Range of a field over a probe in round numbers (so that colours hold still); around 0 when it has
 * both signs.  Returns the theme's map to be used, NULL when no cell has a value. */
const char *cells_range(const struct probe *p, int field, const struct look *look, double *lo,
                        double *hi);
enum cell_state {
    CELL_SKIP,
    CELL_RUN,
    CELL_RULE
}; /* rule: run without a choice, as in an always-on layer */
double cells_depth(const struct probe *p, const unsigned char *run, int token); /* layers run */
/* Ink of text whose depth is unit (0 shallow .. 1 deep, NaN unknown): also without colours. */
struct ink cells_depth_ink(const struct look *look, double unit);
/* 1 when K and V of skipped tokens are kept, 0 when not, -1 unknown: the run's configuration says.
 */
int cells_kv(const struct runview *r);


/* ---- the picture ---- */
enum { CELLS_WIDE_MAX = 3 };
struct cells {
    /* what: borrowed, set before every draw */
    const struct probe *probe;
    const struct probe
        *other; /* the same text undisturbed, or its beginning: for differences; or NULL */
    const unsigned char
        *run;            /* (layers, tokens) supposed decisions instead of the probe's; or NULL  */
    const int8_t *force; /* (layers, tokens) what a person forced: 1, 0, -1; or NULL              */
    const unsigned char *mark;  /* (tokens) marked ones; or NULL  */
    const struct runview *view; /* for units and the configuration; or NULL */
    /* how: may be settings of a view */
    int field, is_upward, token, layer;
    int wide;      /* columns of a token: 0 as many as fit, else 4, 8, 16 */
    int has_focus; /* the terminal's own cursor points at the cell: it costs next to nothing */
    /* kept from draw to draw */
    int is_moving; /* the cursor has not come to rest: details stay where they were seen */
    int seen_token, seen_layer;
    double rests_at; /* is_moving: when it will have come to rest, by clock_mono */
    int first_token, first_layer, text_top;
    unsigned char *by_rule; /* (layers): every token of this probe ran there */
    int by_rule_n;
    /* of the last draw, in coordinates of the area given to cells_draw */
    struct cells_at {
        int map_y, map_x, rows, tokens; /* cells area, and tokens that show             */
        int width, gap;                 /* columns of a token, the last `gap` blank      */
        int height, per_row;            /* rows of a layer; 2 = two layers share one row */
        int text_y, text_x, text_rows, text_cols;
    } at;
};

/* A step of the cursor sends the cursor and the titles at once, and all that hangs on it when the
 * cursor rests (on slow lines a held key would else send every number it passes).  cells_moved says
 * that it moved, cells_due is the view's deadline, cells_rested returns 1 once when it has come to rest. */
void cells_moved(struct cells *c, int is_scripted);
double cells_due(const struct cells *c); /* HUGE_VAL: none */
int cells_rested(struct cells *c);
/* Clamps the cursor and prepares what draw needs.  DS_EMEM only. */
int cells_fit(struct cells *c) DS_CHECK;
void cells_release(struct cells *c);
enum cell_state cells_state(const struct cells *c, int layer, int token);
/* Text, map and read-out, arranged for the room there is. */
void cells_draw(struct area a, struct cells *c);
/* The probe's name in at most `most` columns, and a warning behind it when its decisions are not those
 * of use; returns the columns taken.  It all ends before x_end. */
int cells_title(struct area line, int x, int most, int x_end, const struct probe *p);
/* That warning alone, nothing (0) when there is none. */
int cells_caveat(struct area line, int x, int x_end, const struct probe *p);
/* What the colours mean; ends before x_end, returns the column it starts at. */
int cells_legend(struct area line, int x_end, struct cells *c);

void cells_map_draw(struct area a, struct cells *c); /* cells_map.c  */
int cells_map_rows(const struct cells *c, const struct look *look, int most);
int cells_map_least(const struct cells *c,
                    const struct look *look);         /* rows that show every layer */
void cells_text_draw(struct area a, struct cells *c); /* cells_text.c */
int cells_text_rows(const struct cells *c, int cols, int most);
int cells_text_hit(const struct cells *c, int y, int x); /* token or -1  */
void cells_piece(struct area a, int y, int x, int width, struct ink i, const struct probe *p,
                 int token);
void cells_readout_draw(struct area a, struct cells *c); /* cells_readout.c */
int cells_readout_rows(const struct cells *c, int cols);

/* ---- motion ---- */
enum cells_move {
    CELLS_LEFT,
    CELLS_RIGHT,
    CELLS_UP,
    CELLS_DOWN,
    CELLS_PAGE_LEFT,
    CELLS_PAGE_RIGHT,
    CELLS_FIRST,
    CELLS_LAST,
    CELLS_JUMP_UP,
    CELLS_JUMP_DOWN
};
void cells_go(struct cells *c, enum cells_move m);
/* Click and wheel; 1 = taken. */
int cells_event(struct cells *c, const struct event *ev);
/* First token of the next occurrence of a text; 1 = moved there. */
int cells_search(struct cells *c, const char *text, int direction);
/* The present field as a table: a row per layer, tab-separated. */
void cells_copy(const struct cells *c, struct str *out);

#endif
