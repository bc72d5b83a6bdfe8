/* A screen as a grid of cells.  Views draw into an area (a clipped rectangle of a canvas) and never
 * see a terminal: the canvas is sent as a difference (term.h) or written to a text fixture.
 * area_text* sanitise every text, so callers may pass untrusted text. */
#ifndef DS_TUI_CANVAS_H
#define DS_TUI_CANVAS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "figures/palette.h"

/* Glyph sets, richest first: braille and half-blocks, three shades, plain ASCII. */
enum glyphs { GLYPHS_BRAILLE, GLYPHS_SHADES, GLYPHS_ASCII };

/* Capabilities of the terminal; views rarely need them. */
struct look {
    enum glyphs glyphs;
    int colours; /* 0 mono, 8, 16, 256 or 1 << 24 */
    const struct theme *theme;
};

/* A colour of a cell: a role (0..ROLE_COUNT-1), or INK_RGB | 0xRRGGBB, or one of these. */
enum {
    INK_RGB = 1 << 24,
    INK_KEEP = -1,     /* keep the colour of the cell (default: ROLE_TEXT on ROLE_BACKGROUND) */
    INK_CONTRAST = -2, /* foreground only: black or white, whichever is readable on bg    */
};
enum { ATTR_BOLD = 1, ATTR_DIM = 2, ATTR_UNDERLINE = 4, ATTR_REVERSE = 8 };
struct ink {
    int32_t fg, bg;
    uint32_t attr;
};

struct ink ink(enum role fg);
struct ink ink_on(enum role fg, enum role bg);
struct ink ink_attr(struct ink i, unsigned attr);
/* The ink of run number `i` in overlays: its series role, stable. */
struct ink ink_series(int i);

struct cell {
    uint32_t rune;    /* 0 = right half of a wide rune */
    uint32_t mark[3]; /* combining marks, 0 = none     */
    int32_t fg, bg;   /* as above, never INK_KEEP      */
    uint32_t attr;
};

struct canvas {
    int rows, cols;
    struct cell *cell; /* (rows, cols) */
    struct look look;
    int cursor_y, cursor_x; /* text cursor to show, -1 = hidden */
};

enum { CANVAS_ROWS_MAX = 500, CANVAS_COLS_MAX = 1000 };

/* Blank canvas of a size (clamped to 1..MAX). 0 or DS_EMEM. */
int canvas_resize(struct canvas *c, int rows, int cols) DS_CHECK;
void canvas_clear(struct canvas *c);
void canvas_release(struct canvas *c);
/* The text plane: one line per row, trailing blanks cut. */
void canvas_text(const struct canvas *c, struct str *out);
/* The role plane: one character per cell, see canvas.c's table; '#' = a colour from a map. */
void canvas_roles(const struct canvas *c, struct str *out);

/* ---- areas: all coordinates are relative, everything outside is dropped ---- */
struct area {
    struct canvas *canvas;
    int y, x, rows, cols;
};

struct area canvas_area(struct canvas *c);
struct area area_sub(struct area a, int y, int x, int rows, int cols); /* clipped */
struct area area_inset(struct area a, int rows, int cols);             /* a margin on each side */
int area_contains(struct area a, int screen_y, int screen_x);

void area_put(struct area a, int y, int x, uint32_t rune, struct ink i);
/* At most `max` cells (max < 0: to the edge), cut with an ellipsis.  Returns the cells used. */
int area_text(struct area a, int y, int x, int max, struct ink i, const char *text);
int area_bytes(struct area a, int y, int x, int max, struct ink i, const char *p, size_t n);
int area_textf(struct area a, int y, int x, int max, struct ink i, const char *fmt, ...)
    DS_PRINTF(6, 7);
/* Ends before column x_end; returns the column it starts at. */
int area_right(struct area a, int y, int x_end, struct ink i, const char *text);
void area_fill(struct area a, uint32_t rune, struct ink i);
void area_hline(struct area a, int y, int x, int n, struct ink i);
void area_vline(struct area a, int y, int x, int n, struct ink i);
/* Frame with a title in its upper edge (NULL: none). */
void area_box(struct area a, struct ink i, const char *title, struct ink title_ink);
/* Changes only colours and attributes (cursor bars, selections). */
void area_tint(struct area a, int y, int x, int rows, int cols, struct ink i);
/* Marks a row as selected: a bar at x (leave that cell free) and its first cells highlighted;
 * readable in every theme and without colour. */
void area_select(struct area a, int y, int x, int cols);
/* `fancy` where the glyph set is braille or shades, else `ascii`. */
uint32_t area_rune(struct area a, uint32_t fancy, char ascii);

/* One cell (width w) that shows v in [0,1] through a colour map ("viridis"; diverging: 0.5 is the
 * centre): coloured block, or a shade / ASCII ramp without colour.  NaN = ROLE_DIM dot.  Colours
 * are quantised to HEAT_LEVELS so that frames stay small. */
enum { HEAT_LEVELS = 16 };
void area_heat(struct area a, int y, int x, int w, const char *map, double v);
/* The quantised colour of v as an ink value for fg/bg, or INK_KEEP for NaN. */
int32_t heat_ink(const char *map, double v);

/* ---- dots: the sub-cell raster of charts, 2 x 4 points a cell ---- */
struct dots {
    struct area area;
    unsigned char *bits;  /* (rows, cols) braille bits           */
    int16_t *fg;          /* (rows, cols) role of the last point */
    unsigned char *owner; /* (rows, cols) layer of the last point */
    int layer;            /* a point of a later layer clears a cell of earlier ones, so curves
                             that cross stay crisp */
};
/* Points are x in 0..2*cols-1 from the left, y in 0..4*rows-1 from the top. 0 or DS_EMEM. */
int dots_begin(struct dots *d, struct area a) DS_CHECK;
void dots_point(struct dots *d, int x, int y, enum role r);
void dots_column(struct dots *d, int x, int y0, int y1, enum role r);
void dots_line(struct dots *d, int x0, int y0, int x1, int y1, enum role r);
/* Puts the raster on the canvas (blank cells untouched) by the glyph ladder, releases it. */
void dots_end(struct dots *d);

#endif
