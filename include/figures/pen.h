/* The drawing interface of figures: paths, strokes, fills and text, in points (1/72 inch), y
 * downwards, origin at the top left.  The output is a list of commands (goldens, replay) or cairo
 * (PNG, SVG, PDF, pixels).  Coordinates are rounded to 1/1000 point before they reach a pen, so
 * that files do not depend on the last bits of the arithmetic. */
#ifndef DS_FIGURES_PEN_H
#define DS_FIGURES_PEN_H

#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

struct pen;

enum text_h { TEXT_LEFT, TEXT_CENTRE, TEXT_RIGHT };
enum text_v { TEXT_BASELINE, TEXT_MIDDLE, TEXT_TOP }; /* middle and top of the capitals */

struct text_style {
    double size;   /* points                                             */
    double weight; /* stroke, as a fraction of the size; 0 = the regular */
    double angle;  /* degrees, counter-clockwise, about the anchor       */
    int rgb;
    enum text_h h;
    enum text_v v;
};

struct pen_ops {
    void (*move)(struct pen *p, double x, double y);
    void (*line)(struct pen *p, double x, double y);
    void (*curve)(struct pen *p, const double xy[6]);
    void (*close)(struct pen *p);
    void (*rect)(struct pen *p, double x, double y, double w, double h);
    void (*circle)(struct pen *p, double x, double y, double r);
    void (*stroke)(struct pen *p); /* each of these three consumes the current path */
    void (*fill)(struct pen *p);
    void (*clip)(struct pen *p);
    void (*save)(struct pen *p); /* clip, colour, width, dash */
    void (*restore)(struct pen *p);
    void (*width)(struct pen *p, double w);
    void (*dash)(struct pen *p, const double *len, int n); /* n = 0: solid */
    void (*colour)(struct pen *p, int rgb, double alpha);
    /* NULL: the text is drawn as strokes by glyphs.c. */
    void (*text)(struct pen *p, double x, double y, const struct text_style *s, const char *utf8);
};

/* First member of every pen. */
struct pen {
    const struct pen_ops *ops;
    size_t bad;    /* number of coordinates not finite or beyond PEN_LIMIT; they are not drawn */
    int failed;    /* out of memory for a text */
    double dx, dy; /* offset added to coordinates (not to sizes): the margin of a sheet */
};

#define PEN_LIMIT 20000.0

void pen_move(struct pen *p, double x, double y);
void pen_line(struct pen *p, double x, double y);
void pen_curve(struct pen *p, double x1, double y1, double x2, double y2, double x, double y);
void pen_close(struct pen *p);
void pen_rect(struct pen *p, double x, double y, double w, double h);
void pen_circle(struct pen *p, double x, double y, double r);
void pen_stroke(struct pen *p);
void pen_fill(struct pen *p);
void pen_clip(struct pen *p);
void pen_save(struct pen *p);
void pen_restore(struct pen *p);
void pen_width(struct pen *p, double w);
void pen_dash(struct pen *p, const double *len, int n);
void pen_colour(struct pen *p, int rgb, double alpha);
/* Sanitises the text (utf8_sanitise), so that untrusted names stay on one line. */
void pen_text(struct pen *p, double x, double y, const struct text_style *s, const char *utf8);

/* Shortcuts for the most common paths: straight strokes and filled boxes. */
void pen_segment(struct pen *p, double x0, double y0, double x1, double y1);
void pen_box(struct pen *p, double x, double y, double w, double h, int rgb, double alpha);

/* ---- a pen that remembers: the commands, to be replayed or printed ---- */
struct pen_list;
struct pen_list *pen_list_new(void); /* NULL: out of memory */
void pen_list_free(struct pen_list *l);
void pen_list_reset(struct pen_list *l);
struct pen *pen_list_pen(struct pen_list *l);
/* Replays all commands with another pen. */
void pen_list_replay(const struct pen_list *l, struct pen *to);
/* Prints one command per line, the format of golden files. */
void pen_list_print(const struct pen_list *l, struct str *out);
size_t pen_list_count(const struct pen_list *l);
/* 1 when recording ran out of memory: the list must not be used. */
int pen_list_failed(const struct pen_list *l);

/* ---- cairo ---- */
enum pen_format { PEN_PNG, PEN_SVG, PEN_PDF };
struct pen_page {
    double w, h, dpi;   /* points; dots per inch of a PNG */
    int background;     /* 0xRRGGBB, -1: transparent, in a PNG white */
    const char *recipe; /* stored in a PNG's iTXt and as the PDF's subject; NULL: none */
};
/* Replays the list on the page and appends the file's bytes to *out. */
int pen_cairo_write(const struct pen_list *l, enum pen_format format, const struct pen_page *page,
                    struct str *out, struct err *e) DS_CHECK;
/* The same as pixels: 0xRRGGBB each, (*height, *width), freed by the caller with mem_free. */
int pen_cairo_pixels(const struct pen_list *l, const struct pen_page *page, unsigned **rgb,
                     int *width, int *height, struct err *e) DS_CHECK;
/* "png" -> PEN_PNG; -1 unknown. */
int pen_format_find(const char *name, size_t len);
const char *pen_format_name(enum pen_format format);
/* The version of the library that draws: "1.16.0". */
const char *pen_cairo_version(void);

#endif
