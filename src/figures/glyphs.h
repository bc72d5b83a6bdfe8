/* The built-in typeface of the figures: a proportional single-stroke face with round ends, so that
 * a figure has the same bytes on every machine, even without fonts.
 *
 * A glyph is a text of path commands on a grid of 1000 units to the em (glyphs_latin.c says how to
 * read them).  Covered: ASCII, Latin-1 and Latin Extended-A (by composition), Greek, arrows, the
 * signs of mathematics, super- and subscript digits.  Anything else is drawn as a box with its hex
 * code, never left out. */
#ifndef DS_FIGURES_GLYPHS_H
#define DS_FIGURES_GLYPHS_H

#include <stdint.h>

#include "figures/pen.h"

/* Heights as fractions of the size. */
#define GLYPH_CAP 0.68
#define GLYPH_X 0.49
#define GLYPH_DESCENT 0.22
#define GLYPH_WEIGHT 0.078

struct glyph {
    uint32_t code;
    int advance;
    const char *path;
};
extern const struct glyph glyphs_latin[], glyphs_greek[], glyphs_symbol[], glyphs_mark[];
extern const int glyphs_latin_count, glyphs_greek_count, glyphs_symbol_count, glyphs_mark_count;

/* A composed letter: a base with a mark above or below; or a reduced and shifted digit. */
struct glyph_made {
    uint32_t code;
    uint16_t base, mark;
};
extern const struct glyph_made glyphs_made[];
extern const int glyphs_made_count;

/* 1 when the code point has a glyph (not the box). */
int glyph_has(uint32_t code);
/* Width of a text in points at `size`. */
double glyph_width(const char *utf8, double size);
/* Draws with move, line, curve, stroke and fill only; sets width and dash, uses the colour of the
 * pen. */
void glyph_draw(struct pen *p, double x, double y, const struct text_style *s, const char *utf8);

#endif
