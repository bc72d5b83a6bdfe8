/* Figures for papers, drawn from records only.  Data that a figure needs and a run lacks is a
 * one-line error; nothing is invented, clipped or silently omitted. */
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
    const char *x;       /* curves over training: a run_axis (io/runview.h) or a metric; "step" */
    const char *log;     /* curves: "x", "y" or "x,y", logarithmic axes                       */
    const char *range;   /* curves: "A..B" on the x axis, also "A.." and "..B"                */
    const char *version; /* of the program, for the recipe                                   */
    const char *label;   /* first sentence of the caption: "Quick: 90 steps per run."        */
    double smooth;       /* training: smoothing weight, 0 <= x < 1; < 0 = 0.9                */
    int probe;           /* routing_map: index of the text; < 0 = the newest                 */
    int64_t step;        /* of probes: the newest up to this step; < 0 = of all              */
    double dpi;          /* of PNG; 0 = that of the venue (at least 300)                     */
};
void figure_options_default(struct figure_options *o);

enum { FIGURE_RUNS_MAX = 1024 }; /* arguments of one figure */
/* One argument of a figure, a run or a JSON file of results, and its path as given by the user
 * (stored in the recipe).  One of view and json is NULL. */
struct json;
struct figure_run {
    struct runview *view;
    struct json *json;
    const char *path;
};
/* Opens FILE by its extension: .json is a file of results, .csv a table of metrics that becomes a
 * run (io/foreign.h), everything else a run.  `given` is borrowed.  Close with figure_close. */
int figure_open(struct figure_run *out, const char *file, const char *given,
                struct err *e) DS_CHECK;
void figure_close(struct figure_run *r);
/* 1 when the i-th figure has a use for this argument: runs for most, JSON files of one shape for
 * the others. */
int figure_takes(int i, const struct figure_run *r);

/* A drawn figure.  Free with figure_release. */
struct figure {
    const char *name, *title;
    double width, height; /* points */
    double dpi;
    int background; /* 0xRRGGBB */
    struct pen_list *list;
    struct str caption; /* one paragraph: n, intervals, meaning of the marks */
    struct str recipe;  /* JSON: how to reproduce it                       */
    char data_hash[65]; /* SHA-256 of every value used                     */
};

/* Draws NAME from the runs.  DS_EUSAGE: unknown figure, venue or option.  DS_ENOTFOUND: missing
 * data; the message names the figure, the run and the record or column. */
int figure_make(struct figure *out, const char *name, const struct figure_run *runs, int n,
                const struct figure_options *o, struct err *e) DS_CHECK;
void figure_release(struct figure *f);
/* Bytes of a file in one format, appended to *out. */
int figure_bytes(const struct figure *f, enum pen_format format, struct str *out,
                 struct err *e) DS_CHECK;
/* figure_make, then writes one file; the format follows from the extension of the path. */
int figure_draw(const char *name, const struct figure_run *runs, int n,
                const struct figure_options *o, const char *path, struct err *e) DS_CHECK;
/* Pixels for a preview, `width_px` wide; the caller frees *rgb with mem_free. */
int figure_pixels(const struct figure *f, int width_px, unsigned **rgb, int *width, int *height,
                  struct err *e) DS_CHECK;

/* Name, title and required data of the i-th figure; NULL past the end. */
const char *figure_name(int i);
const char *figure_title(int i);
const char *figure_needs(int i);
/* The first option of `o` that the i-th figure has no use for: "--metric", "-x"; NULL: none. */
const char *figure_unused(int i, const struct figure_options *o);
/* Name and description of the i-th venue; NULL past the end. */
const char *figure_venue(int i, char *words, size_t size);

/* The recipe of a PNG.  Free with figure_recipe_release. */
struct figure_recipe {
    char *name, *venue, *theme, *metric, *x, *log, *range, *version, *label, *data_hash;
    char **path, **run; /* path as given; name of the run */
    int runs;
    double smooth, dpi;
    int probe;
    int64_t step;
};
/* Reads the recipe from the bytes of a PNG; DS_ENOTFOUND when it has none, DS_EFORMAT when the
 * bytes are not a PNG. */
int figure_recipe_read(struct figure_recipe *r, const void *png, size_t n, const char *what,
                       struct err *e) DS_CHECK;
void figure_recipe_release(struct figure_recipe *r);

#endif
