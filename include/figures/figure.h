/* Figures of a paper, drawn from records and from nothing else.  What a figure needs and a run
 * lacks is an error of one line; nothing is made up, clipped or left out in silence. */
#ifndef DS_FIGURES_FIGURE_H
#define DS_FIGURES_FIGURE_H

#include <stddef.h>

#include "base/err.h"
#include "base/str.h"
#include "figures/pen.h"
#include "io/runview.h"

/* All strings are borrowed and may be NULL (the default). */
struct figure_options {
    const char *venue;   /* "icml" (default), "icml-wide", "neurips", ...: figure_venue_list */
    const char *theme;   /* "light" (default)                                                */
    const char *metric;  /* training: "loss,val_loss"; loss_*: the scalar of the evaluation   */
    const char *version; /* of the program, for the recipe                                   */
    double smooth;       /* training: weight of the past, 0 <= x < 1; < 0 = 0.9              */
    int probe;           /* routing_map: index of the text; < 0 = the newest                 */
    double dpi;          /* of PNG; 0 = that of the venue (at least 300)                     */
};
void figure_options_default(struct figure_options *o);

/* A run and how the user named it (the recipe stores this). */
struct figure_run {
    struct runview *view;
    const char *path;
};

/* What one drawing gave.  Owned; figure_release. */
struct figure {
    const char *name, *title;
    double width, height; /* points */
    double dpi;
    int background; /* 0xRRGGBB */
    struct pen_list *list;
    struct str caption; /* one paragraph: n, intervals, what the marks are */
    struct str recipe;  /* JSON: how to draw it again                      */
    char data_hash[65]; /* SHA-256 of every number that was drawn          */
};

/* Draws NAME from the runs.  DS_EUSAGE: unknown figure, venue or option.  DS_ENOTFOUND: data that
 * is missing; the text names the figure, the run and the record or column. */
int figure_make(struct figure *out, const char *name, const struct figure_run *runs, int n,
                const struct figure_options *o, struct err *e) DS_CHECK;
void figure_release(struct figure *f);
/* Bytes of a file in one format, appended to *out. */
int figure_bytes(const struct figure *f, enum pen_format format, struct str *out,
                 struct err *e) DS_CHECK;
/* figure_make and one file: the format follows from the path's ending. */
int figure_draw(const char *name, const struct figure_run *runs, int n,
                const struct figure_options *o, const char *path, struct err *e) DS_CHECK;
/* Pixels for a preview, `width_px` wide; *rgb is the caller's (mem_free). */
int figure_pixels(const struct figure *f, int width_px, unsigned **rgb, int *width, int *height,
                  struct err *e) DS_CHECK;

/* The table: i-th figure's name, title and what it needs; NULL past the end. */
const char *figure_name(int i);
const char *figure_title(int i);
const char *figure_needs(int i);
/* The i-th venue's name and measure in words; NULL past the end. */
const char *figure_venue(int i, char *words, size_t size);

/* What a PNG says of itself.  Owned; figure_recipe_release. */
struct figure_recipe {
    char *name, *venue, *theme, *metric, *version, *data_hash;
    char **path, **run; /* as given; the run's own name */
    int runs;
    double smooth, dpi;
    int probe;
};
/* Reads the recipe in the bytes of a PNG; DS_ENOTFOUND when it has none, DS_EFORMAT when it is not
 * one. */
int figure_recipe_read(struct figure_recipe *r, const void *png, size_t n, const char *what,
                       struct err *e) DS_CHECK;
void figure_recipe_release(struct figure_recipe *r);

#endif
