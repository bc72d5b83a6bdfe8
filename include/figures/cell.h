/* The glyph of one terminal cell, drawn with a pen: a picture of a screen needs no font. */
#ifndef DS_FIGURES_CELL_H
#define DS_FIGURES_CELL_H

#include <stdint.h>

#include "figures/pen.h"

/* A glyph in the box (x, y, w, h) in points; w spans both cells of a wide rune.  Block elements,
 * box lines and braille dots fill the box exactly, so that neighbours join; letters are those of
 * the figures, squeezed where they are wider than the box. */
struct cell_glyph {
    double x, y, w, h;
    uint32_t rune;
    const uint32_t *mark; /* combining marks, n of them */
    int marks;
    int rgb;
    int is_bold;
};
void cell_draw(struct pen *p, const struct cell_glyph *g);

#endif
