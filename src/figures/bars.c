/* Rows of horizontal bars: one or two panels side by side that share their row labels. */
#include <math.h>

#include "figures/glyphs.h"
#include "figures/plot.h"

double bars_layout(struct sheet *s, const struct bar_rows *r, struct panel *p, int columns,
                   double y)
{
    double names = 0, small = s->venue->small;
    double h = fmax(r->n * r->row, small * 4) + s->venue->base * (p[0].title[0] ? 4.6 : 3.2);
    for (int i = 0; i < r->n; i++)
        names = fmax(names, glyph_width(r->label[i], small));
    double gap = columns > 1 ? small : 0, wide = (s->width - names - small * 0.4 - gap) / columns;
    for (int i = 0; i < columns; i++) {
        p[i].ay = (struct axis){.lo = 0, .hi = 1};
        double x = names + small * 0.4 + i * (wide + gap);
        panel_layout(s, &p[i], x, y, wide, h);
        p[i].ay.ticks = 0; /* the rows have labels: the room of the ticks goes to the bars */
        p[i].w += p[i].x - (x + small * 0.7);
        p[i].x = p[i].ax.from = x + small * 0.7;
        panel_axes(s, &p[i]);
    }
    for (int i = 0; i < r->n; i++)
        sheet_text(s, p[0].x - small * 0.7, p[0].y + p[0].h * (i + 0.5) / r->n, TEXT_RIGHT,
                   TEXT_MIDDLE, 1, sheet_colour(s, ROLE_TEXT), r->label[i]);
    return y + h;
}
