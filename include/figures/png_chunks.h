/* PNG files with two chunks that cairo does not write: print resolution (pHYs) and recipe
 * (iTXt). */
#ifndef DS_FIGURES_PNG_CHUNKS_H
#define DS_FIGURES_PNG_CHUNKS_H

#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

#define PNG_RECIPE_KEY "depthscope"

/* Appends a PNG of 8-bit RGB to *out: pixels 0xRRGGBB, row after row; recipe: UTF-8, or NULL. */
int pngfile_write(struct str *out, const unsigned *rgb, int width, int height, double dpi,
                  const char *recipe, struct err *e) DS_CHECK;

/* The contents that are read without decoding pixels. */
struct pngfile {
    unsigned width, height;
    unsigned long per_metre_x, per_metre_y; /* 0 = missing pHYs                         */
    struct str recipe;                      /* empty = none; released by the caller      */
};
/* Accepts untrusted bytes: DS_EFORMAT when they are not a PNG or truncated. */
int pngfile_read(struct pngfile *info, const void *p, size_t n, const char *what,
                 struct err *e) DS_CHECK;

#endif
