/* Places the legend: of nine positions the one that covers the least drawing; above the plot when
 * all are covered. */
#include <math.h>
#include <stdio.h>

#include "figures/glyphs.h"
#include "figures/plot.h"

void panel_entry(struct panel *p, const char *text, int rgb, int dash, int marker, int is_line)
{
    if (p->entries == LEGEND_MAX) {
        p->left_out++;
        return;
    }
    struct legend_entry *e = &p->entry[p->entries++];
    *e = (struct legend_entry){.rgb = rgb,
                               .dash = dash,
                               .marker = marker,
                               .is_line = is_line,
                               .is_box = !is_line && marker < 0};
    str_copy(e->text, sizeof e->text, text);
}

void panel_mark(struct panel *p, double x, double y)
{
    int col = (int)floor((x - p->x) / p->w * OCC_COLS),
        row = (int)floor((y - p->y) / p->h * OCC_ROWS);
    if (col >= 0 && col < OCC_COLS && row >= 0 && row < OCC_ROWS && p->occ[row][col] < 60000)
        p->occ[row][col]++;
}

void panel_mark_line(struct panel *p, double x0, double y0, double x1, double y1)
{
    double steps = ceil(fmax(fabs(x1 - x0) / p->w * OCC_COLS, fabs(y1 - y0) / p->h * OCC_ROWS)) + 1;
    if (!(steps < 1000))
        steps = 1000;
    for (int i = 0; i <= (int)steps; i++)
        panel_mark(p, x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps);
}

void panel_mark_box(struct panel *p, double x, double y, double w, double h)
{
    double dx = p->w / OCC_COLS, dy = p->h / OCC_ROWS;
    if (!(dx > 0 && dy > 0))
        return;
    for (double v = y; v <= y + h; v += dy)
        for (double u = x; u <= x + w; u += dx)
            panel_mark(p, u, v);
}

/* The amount of drawing under a box with a margin of one cell. */
static double covered(const struct panel *p, double x, double y, double w, double h)
{
    int c0 = (int)floor((x - p->x) / p->w * OCC_COLS) - 1,
        c1 = (int)ceil((x + w - p->x) / p->w * OCC_COLS) + 1;
    int r0 = (int)floor((y - p->y) / p->h * OCC_ROWS) - 1,
        r1 = (int)ceil((y + h - p->y) / p->h * OCC_ROWS) + 1;
    double sum = 0;
    for (int r = r0 < 0 ? 0 : r0; r < r1 && r < OCC_ROWS; r++)
        for (int c = c0 < 0 ? 0 : c0; c < c1 && c < OCC_COLS; c++)
            sum += p->occ[r][c];
    return sum;
}

static double sample_width(const struct sheet *s)
{
    return s->venue->small * 2.6;
}

static void draw_entry(struct sheet *s, const struct legend_entry *e, double x, double y)
{
    double w = sample_width(s) - s->venue->small * 0.6;
    if (e->is_box)
        pen_box(s->pen, x + w * 0.2, y - s->venue->small * 0.36, w * 0.6, s->venue->small * 0.72,
                e->rgb, 1);
    if (e->is_line) {
        pen_colour(s->pen, e->rgb, 1);
        pen_width(s->pen, s->venue->line);
        sheet_dash(s, e->dash);
        pen_segment(s->pen, x, y, x + w, y);
        pen_dash(s->pen, NULL, 0);
    }
    if (e->marker >= 0)
        sheet_marker(s, e->marker, x + w / 2, y, s->venue->line * 1.8, e->rgb, 0);
    sheet_text(s, x + sample_width(s), y, TEXT_LEFT, TEXT_MIDDLE, 1, sheet_colour(s, ROLE_TEXT),
               e->text);
}

static void legend_above(struct sheet *s, struct panel *p)
{
    double small = s->venue->small, x = p->x, step = small * 1.5, y = p->y - small * 0.9;
    int rows = 1;
    for (int i = 0, first = 1; i < p->entries; i++, first = 0) {
        double need = glyph_width(p->entry[i].text, small) + small * 3.6;
        if (!first && x + need > p->x + p->w + small) {
            rows++;
            x = p->x;
        }
        x += need;
    }
    x = p->x;
    y -= (rows - 1) * step;
    for (int i = 0, first = 1; i < p->entries; i++, first = 0) {
        double need = glyph_width(p->entry[i].text, small) + small * 3.6;
        if (!first && x + need > p->x + p->w + small) {
            x = p->x;
            y += step;
        }
        /* one that would pass the edge of the sheet begins further left */
        draw_entry(s, &p->entry[i], fmax(0, fmin(x, s->width - need + small)), y);
        x += need;
    }
}

void panel_legend(struct sheet *s, struct panel *p)
{
    static const signed char place[9][2] = {{2, 0}, {0, 0}, {2, 2}, {0, 2}, {2, 1},
                                            {0, 1}, {1, 0}, {1, 2}, {1, 1}};
    double small = s->venue->small, step = small * 1.45, inset = small * 0.8, w = 0, best = -1,
           bx = 0, by = 0;
    if (p->entries == 0)
        return;
    if (p->left_out > 0)
        sheet_note(s, "The legend names %d of %d.", p->entries, p->entries + p->left_out);
    if (s->legend_above) {
        legend_above(s, p);
        return;
    }
    for (int i = 0; i < p->entries; i++)
        w = fmax(w, glyph_width(p->entry[i].text, small));
    w += sample_width(s);
    double h = step * p->entries;
    for (int i = 0; i < 9 && w + 2 * inset <= p->w && h + inset <= p->h; i++) {
        double x = p->x + inset + (p->w - w - 2 * inset) * place[i][0] / 2;
        double y = p->y + inset * 0.5 + (p->h - h - inset) * place[i][1] / 2;
        double cost = covered(p, x, y, w, h);
        if (best < 0 || cost < best) {
            best = cost;
            bx = x;
            by = y;
        }
    }
    if (best != 0) {
        s->again = 1;
        return;
    }
    for (int i = 0; i < p->entries; i++)
        draw_entry(s, &p->entry[i], bx, by + step * (i + 0.5));
}
