/* The tokens x layers picture of the Depth map and the Stepper: the map, the text above it and the
 * read-out next to it.  The fields of a cell come from the probe (executed or skipped, then every
 * recorded matrix), so no routing method is named here. */
#ifndef DS_TUI_CELLS_H
#define DS_TUI_CELLS_H

#include <stdint.h>

#include "io/runview.h"
#include "tui/canvas.h"
#include "tui/keymap.h"
#include "tui/view.h"

/* ---- fields: what a cell can show (cells_fields.c) ---- */
/* Field 0 is executed or skipped, then the matrices of the probe, last the margin score -
 * threshold if it has both. */
int cells_fields(const struct probe *p);
const char *cells_field_name(const struct probe *p, int field);
double cells_value(const struct probe *p, int field, int layer, int token); /* NaN = no value */
/* 1: the values are numbers of categories, which have no order, mean or difference. */
int cells_is_category(const struct probe *p, int field);
int cells_is_inferred(const struct probe *p, int field);
/* "expert 17 (0.42), 3 (0.31)": the experts of a token in a layer by rank, with their weights where
 * recorded; "no expert".  Returns out. */
const char *cells_experts(char *out, size_t size, const struct runview *r, const struct probe *p,
                          int layer, int token);
/* Unit of a metric as declared in the head record of the run; "" when unknown. */
const char *cells_unit(const struct runview *r, const char *name);
/* Range of a field over a probe, rounded so that the colours are stable; symmetric about 0 when it
 * has both signs.  Returns the colour map of the theme to use, NULL when no cell has a value. */
const char *cells_range(const struct probe *p, int field, const struct look *look, double *lo,
                        double *hi);
enum cell_state {
    CELL_SKIP,
    CELL_RUN,
    CELL_ALWAYS_ON, /* executed without a decision, in an always-on layer */
    CELL_FORCED,    /* executed without a decision, in another layer: by max_skip, say */
    CELL_UNKNOWN    /* the probe has no decisions */
};
const char *cells_state_word(enum cell_state s);                                /* "skipped" */
double cells_depth(const struct probe *p, const unsigned char *run, int token); /* layers */
/* Ink of text of depth `unit` (0 shallow .. 1 deep, NaN unknown), also without colours. */
struct ink cells_depth_ink(const struct look *look, double unit);
/* Role of a generated token's text: 1 drafted and accepted, 2 in place of a rejected draft. */
enum role cells_mark_role(int mark);
/* "6 drafted  1 corrected" in these roles from x on; returns the column after it. */
int cells_mark_legend(struct area line, int x, const int count[3]);
/* The colour of a skipped cell (0) turning into that of a role (1). */
int32_t cells_mix(const struct look *look, enum role to, double unit);
/* From the configuration: 1 when K and V of skipped tokens are cached, 0 when not, -1 unknown. */
int cells_kv(const struct runview *r);

/* ---- the picture ---- */
enum { CELLS_WIDE_MAX = 3, CELLS_HIDES_TOKENS = 1, CELLS_HIDES_BELOW = 2 };
struct cells {
    /* input: borrowed, set before every draw */
    const struct probe *probe;
    const struct probe *other; /* the same text or its beginning without interventions; or NULL */
    const unsigned char
        *run;            /* (layers, tokens) estimated decisions instead of the probe's; or NULL  */
    const int8_t *force; /* (layers, tokens) forced by the user: 1 run, 0 skip, -1 free; or NULL  */
    const unsigned char *mark; /* (tokens) marked ones; or NULL  */
    const float
        *shade; /* (tokens) 0..1 shown by the text in place of the depth, NaN = dim; or NULL */
    const unsigned char *tone;  /* (tokens) role of the text in place of the depth; or NULL */
    const struct runview *view; /* for units and the configuration; or NULL */
    /* appearance: may be settings of a view */
    int field, is_upward, token, layer;
    int wide;      /* columns per token: 0 = automatic, else 4, 8, 16 */
    int has_focus; /* marks the cell with the cursor of the terminal, which costs few bytes */
    /* of a map of differences */
    double span; /* > 0: cells have a sign and ROLE_SERIES_1 (-) or _2 (+), full at span */
    /* of a map over training */
    double full;                /* > 0: colours run from 0 to it, instead of the probe's range */
    const unsigned char *fixed; /* (layers) 1 = drawn as always on, whatever the field; or NULL */
    const char *depth_label;    /* of the bars below the map; NULL = "depth"                 */
    int hides;                  /* CELLS_HIDES_*: lines that another map next to it has      */
    /* kept between draws */
    int is_moving; /* the cursor is still moving: details still show the previous cell */
    int seen_token, seen_layer;
    double rests_at; /* is_moving: when it will have come to rest, by clock_mono */
    int first_token, first_layer, text_top;
    unsigned char *always_on; /* (layers): 1 = always on in this probe */
    int always_on_n;
    /* of the last draw, in coordinates of the area given to cells_draw */
    struct cells_at {
        int map_y, map_x, rows, tokens; /* area of the cells, number of visible tokens  */
        int width, gap;                 /* columns per token, the last `gap` are blank   */
        int height, per_row;            /* rows per layer; 2 = two layers share one row  */
        int text_y, text_x, text_rows, text_cols;
    } at;
};

/* A cursor step updates the details only when the cursor rests; otherwise a held key would send
 * every value that it passes over a slow line.  Call cells_moved after a step; cells_due is then
 * the view's deadline, and cells_settled returns 1 once when the cursor has come to rest. */
void cells_moved(struct cells *c, int is_scripted);
double cells_due(const struct cells *c); /* HUGE_VAL: none */
int cells_settled(struct cells *c);
/* Clamps the cursor and prepares what draw needs.  DS_EMEM only. */
int cells_fit(struct cells *c) DS_CHECK;
void cells_release(struct cells *c);
enum cell_state cells_state(const struct cells *c, int layer, int token);
/* Draws text, map and read-out, arranged for the size of the area. */
void cells_draw(struct area a, struct cells *c);
/* Draws the name of the probe in at most `most` columns, followed by a warning when its decisions
 * are not the inference-time ones; returns the columns used.  Everything ends before x_end. */
int cells_title(struct area line, int x, int most, int x_end, const struct probe *p);
/* Only the warning; returns 0 when there is none. */
int cells_caveat(struct area line, int x, int x_end, const struct probe *p);
/* Draws the colour legend ending before x_end; returns the column where it starts. */
int cells_legend(struct area line, int x_end, struct cells *c);

void cells_map_draw(struct area a, struct cells *c); /* cells_map.c  */
int cells_map_rows(const struct cells *c, const struct look *look, int most);
int cells_map_least(const struct cells *c, const struct look *look); /* rows that show all layers */
void cells_text_draw(struct area a, struct cells *c);                /* cells_text.c */
int cells_text_rows(const struct cells *c, int cols, int most);
int cells_text_hit(const struct cells *c, int y, int x); /* token or -1  */
/* A token's part of running text: the bytes of one character are joined across tokens. */
void cells_joined(const struct probe *p, int token, struct str *out);
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
/* Moves to the first token of the next occurrence of a text; 1 = found. */
int cells_search(struct cells *c, const char *text, int direction);
/* 1 when each row of the map is one iteration of a loop. */
int cells_is_iterated(const struct cells *c);
/* "layer 5", "layer 5, iteration 1 of block 2" in a loop of several blocks, or "iteration 5". */
const char *cells_place(const struct cells *c, int layer, char out[64]);
/* The field under the cursor, for the overlay that explains it. */
int cells_subject(const struct cells *c, struct subject *out);
/* The current field as a table: one row per layer, tab-separated. */
void cells_copy(const struct cells *c, struct str *out);

#endif
