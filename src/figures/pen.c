/* The front end of all pens: rounds and checks coordinates, sanitises text. */
#include "figures/pen.h"

#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "figures/glyphs.h"

/* Rounds to 1/1000 point.  The offset makes decimal halves round the same way whatever the last bit
 * of the arithmetic is. */
static double grid(double x)
{
    return floor(x * 1000 + 0.5 + 1e-5) / 1000;
}

/* 1 and rounded when all n coordinates are drawable; else counts them as bad and returns 0. */
static int take(struct pen *p, double *v, int n)
{
    for (int i = 0; i < n; i++) {
        if (!(fabs(v[i]) <= PEN_LIMIT)) {
            p->bad++;
            return 0;
        }
        v[i] = grid(v[i]);
    }
    return 1;
}

void pen_move(struct pen *p, double x, double y)
{
    double v[2] = {x + p->dx, y + p->dy};
    if (take(p, v, 2))
        p->ops->move(p, v[0], v[1]);
}

void pen_line(struct pen *p, double x, double y)
{
    double v[2] = {x + p->dx, y + p->dy};
    if (take(p, v, 2))
        p->ops->line(p, v[0], v[1]);
}

void pen_curve(struct pen *p, double x1, double y1, double x2, double y2, double x, double y)
{
    double v[6] = {x1 + p->dx, y1 + p->dy, x2 + p->dx, y2 + p->dy, x + p->dx, y + p->dy};
    if (take(p, v, 6))
        p->ops->curve(p, v);
}

void pen_close(struct pen *p)
{
    p->ops->close(p);
}

void pen_rect(struct pen *p, double x, double y, double w, double h)
{
    double v[4] = {x + p->dx, y + p->dy, w, h};
    if (take(p, v, 4))
        p->ops->rect(p, v[0], v[1], v[2], v[3]);
}

void pen_circle(struct pen *p, double x, double y, double r)
{
    double v[3] = {x + p->dx, y + p->dy, r};
    if (take(p, v, 3))
        p->ops->circle(p, v[0], v[1], v[2]);
}

void pen_stroke(struct pen *p)
{
    p->ops->stroke(p);
}

void pen_fill(struct pen *p)
{
    p->ops->fill(p);
}

void pen_clip(struct pen *p)
{
    p->ops->clip(p);
}

void pen_save(struct pen *p)
{
    p->ops->save(p);
}

void pen_restore(struct pen *p)
{
    p->ops->restore(p);
}

void pen_width(struct pen *p, double w)
{
    if (take(p, &w, 1))
        p->ops->width(p, w);
}

void pen_dash(struct pen *p, const double *len, int n)
{
    p->ops->dash(p, len, n);
}

void pen_colour(struct pen *p, int rgb, double alpha)
{
    if (take(p, &alpha, 1))
        p->ops->colour(p, rgb < 0 ? 0 : rgb, alpha);
}

void pen_text(struct pen *p, double x, double y, const struct text_style *s, const char *utf8)
{
    double v[3] = {x + p->dx, y + p->dy, s->size};
    struct str clean = {0};
    struct text_style style = *s;
    if (!take(p, v, 3))
        return;
    style.size = v[2];
    utf8_sanitise(&clean, utf8, strlen(utf8), -1, 0);
    if (clean.failed)
        p->failed = 1;
    else if (clean.len > 0) {
        if (p->ops->text)
            p->ops->text(p, v[0], v[1], &style, str_text(&clean));
        else {
            pen_save(p); /* text must not change colour, width and dash */
            pen_colour(p, style.rgb, 1);
            glyph_draw(p, x, y, &style, str_text(&clean)); /* adds the margin itself */
            pen_restore(p);
        }
    }
    str_release(&clean);
}

void pen_segment(struct pen *p, double x0, double y0, double x1, double y1)
{
    pen_move(p, x0, y0);
    pen_line(p, x1, y1);
    pen_stroke(p);
}

void pen_box(struct pen *p, double x, double y, double w, double h, int rgb, double alpha)
{
    pen_colour(p, rgb, alpha);
    pen_rect(p, x, y, w, h);
    pen_fill(p);
}
