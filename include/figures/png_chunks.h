/* PNG with what cairo leaves out: the print resolution (pHYs) and the recipe (iTXt). */
#ifndef DS_FIGURES_PNG_CHUNKS_H
#define DS_FIGURES_PNG_CHUNKS_H

#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

#define PNG_RECIPE_KEY "depthscope"

/* Appends a PNG of 8-bit RGB to *out: pixels 0xRRGGBB, row after row; recipe: UTF-8, or NULL. */
int pngfile_write(struct str *out, const unsigned *rgb, int width, int height, double dpi,
                  const char *recipe, struct err *e) DS_CHECK;

/* What can be read back without decoding pixels. */
struct pngfile {
    unsigned width, height;
    unsigned long per_metre_x, per_metre_y; /* 0 when there is no pHYs                  */
    struct str recipe;                      /* empty when there is none; caller releases */
};
/* Any bytes may come: DS_EFORMAT when they are no PNG or are cut. */
int pngfile_read(struct pngfile *info, const void *p, size_t n, const char *what,
                 struct err *e) DS_CHECK;

#endif
