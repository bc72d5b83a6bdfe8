/* Panels: layout of title, axes and legend, and drawing in data coordinates. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "figures/glyphs.h"
#include "figures/plot.h"

enum { TICK_LENGTH = 3, GAP = 3, LEAST = 6 /* type, points */ };

static double widest_label(const struct sheet *s, const struct axis *a)
{
    double most = 0;
    for (int i = 0; i < a->ticks; i++)
        most = fmax(most, glyph_width(a->tick[i].text, s->venue->small));
    return most;
}

/* Of labels that touch, from the left, the later one goes; its tick stays. */
static void drop_labels(const struct sheet *s, struct axis *a, double length)
{
    double gap = s->venue->small * 0.25, end = -(double)INFINITY, before = end;
    a->from = 0;
    a->to = length;
    for (;;) {
        struct tick *next = NULL; /* on a logarithmic axis they are not in order */
        for (int i = 0; i < a->ticks; i++)
            if (a->tick[i].text[0] && a->tick[i].value > before &&
                (!next || a->tick[i].value < next->value))
                next = &a->tick[i];
        if (!next)
            return;
        double half = glyph_width(next->text, s->venue->small) / 2, x = axis_at(a, next->value);
        before = next->value;
        if (x - half < end + gap)
            next->text[0] = '\0';
        else
            end = x + half;
    }
}

static void choose_ticks(const struct sheet *s, struct axis *a, double length, int is_x,
                         int is_whole)
{
    double per = is_x ? s->venue->small * 5 : s->venue->small * 3.4;
    int want = (int)fmax(3, fmin(9, length / per));
    /* Long labels on a horizontal axis: reduces their number until they do not overlap. */
    for (;; want--) {
        if (is_whole)
            axis_ticks_whole(a, want);
        else
            axis_ticks(a, want, 1);
        int labels = 0;
        double used = 0;
        for (int i = 0; i < a->ticks; i++)
            if (a->tick[i].text[0]) {
                used += glyph_width(a->tick[i].text, s->venue->small) + s->venue->small;
                labels++;
            }
        if (!is_x || want <= 2 || labels <= 2 || used <= length)
            break;
    }
    if (is_x) /* the fewest that can be asked for may still be many */
        drop_labels(s, a, length);
}

/* Number of rows of a legend above a plot of this width. */
static int legend_rows(const struct sheet *s, const char *const *text, int n, double w)
{
    double x = 0, small = s->venue->small;
    int rows = n > 0 ? 1 : 0;
    for (int i = 0; i < n; i++) {
        double need = glyph_width(text[i], small) + small * 3.6;
        if (x > 0 && x + need > w + small) {
            rows++;
            x = 0;
        }
        x += need;
    }
    return rows;
}

static int panel_legend_rows(const struct sheet *s, const struct panel *p, double w)
{
    const char *text[LEGEND_MAX];
    for (int i = 0; i < p->entries; i++)
        text[i] = p->entry[i].text;
    return legend_rows(s, text, p->entries, w);
}

double legend_more(const struct sheet *s, const char *const *text, int n, double w)
{
    enum { USUAL = 3 };
    int rows = s->legend_above ? legend_rows(s, text, n, w - s->venue->small * 5) : 0;
    return rows > USUAL ? (rows - USUAL) * s->venue->small * 1.5 : 0;
}

double panel_legend_more(const struct sheet *s, const struct panel *p)
{
    const char *text[LEGEND_MAX];
    for (int i = 0; i < p->entries; i++)
        text[i] = p->entry[i].text;
    return legend_more(s, text, p->entries, s->width);
}

void panel_layout(struct sheet *s, struct panel *p, double x, double y, double w, double h)
{
    double small = s->venue->small, base = s->venue->base, top, left, right;
    double title = small * 0.5 + (p->title[0] ? base * 1.35 : 0);
    double bottom = TICK_LENGTH + GAP + small * GLYPH_CAP + (p->x_label ? base * 1.5 : small * 0.4);
    /* The rows of a legend above the plot depend on its width, its labels on its height. */
    for (int rows = -1, turn = 0, now = 0; rows != now && turn < 3; turn++) {
        rows = turn ? now : panel_legend_rows(s, p, w - small * 5);
        p->head = p->sub[0] ? small * 1.5 : 0;
        if (s->legend_above)
            p->head += rows * small * 1.5 + small * 0.3;
        top = title + p->head;
        choose_ticks(s, &p->ay, h - top - bottom, 0, p->ticks_whole_y);
        left =
            widest_label(s, &p->ay) + TICK_LENGTH + GAP + (p->y_label ? base * 1.6 : small * 0.3);
        right = p->right + small * 0.6;
        choose_ticks(s, &p->ax, w - left - right, 1, p->ticks_whole_x);
        /* The last label of the horizontal axis must not be clipped at the edge of the sheet. */
        for (int i = 0; i < p->ax.ticks; i++) {
            const struct tick *t = &p->ax.tick[i];
            p->ax.from = 0;
            p->ax.to = w - left - right;
            double over = axis_at(&p->ax, t->value) + glyph_width(t->text, small) / 2 - p->ax.to;
            if (t->text[0] && over > right)
                right = over;
        }
        now = panel_legend_rows(s, p, w - left - right);
    }
    p->x = x + left;
    p->y = y + top;
    p->w = w - left - right;
    p->h = h - top - bottom;
    p->ax.from = p->x;
    p->ax.to = p->x + p->w;
    p->ay.from = p->y + p->h;
    p->ay.to = p->y;
    memset(p->occ, 0, sizeof p->occ);
}

static void draw_x_ticks(struct sheet *s, struct panel *p)
{
    double y = p->y + p->h, small = s->venue->small;
    for (int i = 0; i < p->ax.ticks; i++) {
        const struct tick *t = &p->ax.tick[i];
        double x = axis_at(&p->ax, t->value);
        pen_colour(s->pen, sheet_colour(s, ROLE_AXIS), 1);
        pen_segment(s->pen, x, y, x, y + (t->is_minor ? TICK_LENGTH * 0.5 : TICK_LENGTH));
        if (t->text[0])
            sheet_text(s, x, y + TICK_LENGTH + GAP + small * GLYPH_CAP, TEXT_CENTRE, TEXT_BASELINE,
                       1, sheet_colour(s, ROLE_TEXT), t->text);
        pen_width(s->pen, s->venue->axis);
    }
}

static void draw_y_ticks(struct sheet *s, struct panel *p)
{
    for (int i = 0; i < p->ay.ticks; i++) {
        const struct tick *t = &p->ay.tick[i];
        double y = axis_at(&p->ay, t->value);
        pen_colour(s->pen, sheet_colour(s, ROLE_AXIS), 1);
        pen_segment(s->pen, p->x, y, p->x - (t->is_minor ? TICK_LENGTH * 0.5 : TICK_LENGTH), y);
        if (t->text[0])
            sheet_text(s, p->x - TICK_LENGTH - GAP, y, TEXT_RIGHT, TEXT_MIDDLE, 1,
                       sheet_colour(s, ROLE_TEXT), t->text);
        pen_width(s->pen, s->venue->axis);
    }
}

/* In smaller type when it is wider than the panel, and cut when it is in the smallest. */
static void draw_title(struct sheet *s, const struct panel *p)
{
    double base = s->venue->base, room = p->w + p->right, wide = glyph_width(p->title, base);
    struct text_style head = {.size = wide > room ? fmax(LEAST, base * room / wide) : base,
                              .weight = GLYPH_WEIGHT * 1.25,
                              .rgb = sheet_colour(s, ROLE_TEXT),
                              .h = TEXT_LEFT};
    char text[sizeof p->title];
    str_copy(text, sizeof text, p->title);
    for (int cells = utf8_cells(text, strlen(text));
         cells > 1 && glyph_width(text, head.size) > room + 1e-6;) {
        struct str cut = str_in(text, sizeof text);
        utf8_sanitise(&cut, p->title, strlen(p->title), --cells, 0);
    }
    pen_text(s->pen, p->x, p->y - base * 0.55 - p->head, &head, text);
}

static void draw_labels(struct sheet *s, struct panel *p)
{
    double small = s->venue->small, base = s->venue->base;
    int ink = sheet_colour(s, ROLE_TEXT);
    if (p->x_label) {
        /* A label wider than the plot is set in smaller type. */
        double wide = glyph_width(p->x_label, base), room = p->w + fmin(p->right, base * 2);
        struct text_style style = {.size = wide > room ? fmax(LEAST, base * room / wide) : base,
                                   .rgb = ink,
                                   .h = TEXT_CENTRE};
        pen_text(s->pen, p->x + p->w / 2,
                 p->y + p->h + TICK_LENGTH + GAP + small * GLYPH_CAP + base * 1.25, &style,
                 p->x_label);
    }
    if (p->y_label) {
        double wide = glyph_width(p->y_label, base),
               room = p->h + fmin(small * 2, small + 6); /* within the margin */
        struct text_style up = {.size = wide > room ? fmax(LEAST, base * room / wide) : base,
                                .angle = 90,
                                .rgb = ink,
                                .h = TEXT_CENTRE,
                                .v = TEXT_BASELINE};
        pen_text(s->pen, p->x - widest_label(s, &p->ay) - TICK_LENGTH - GAP - base * 0.65,
                 p->y + p->h / 2, &up, p->y_label);
    }
    if (p->sub[0]) { /* above the legend if that is above the plot */
        struct text_style sub = {.size = small, .rgb = ink, .h = TEXT_LEFT};
        double size = glyph_width(p->sub, small);
        if (size > p->w + p->right)
            sub.size = fmax(LEAST, small * (p->w + p->right) / size);
        pen_text(s->pen, p->x, p->y - p->head + small * 0.75, &sub, p->sub);
    }
    if (p->title[0])
        draw_title(s, p);
}

void panel_axes(struct sheet *s, struct panel *p)
{
    struct pen *pen = s->pen;
    pen_dash(pen, NULL, 0);
    pen_width(pen, s->venue->axis * 0.8);
    pen_colour(pen, sheet_colour(s, ROLE_GRID), 1);
    for (int i = 0; !p->no_grid && i < p->ay.ticks; i++)
        if (!p->ay.tick[i].is_minor)
            pen_segment(pen, p->x, axis_at(&p->ay, p->ay.tick[i].value), p->x + p->w,
                        axis_at(&p->ay, p->ay.tick[i].value));
    for (int i = 0; !p->no_grid && i < p->ax.ticks; i++)
        if (!p->ax.tick[i].is_minor)
            pen_segment(pen, axis_at(&p->ax, p->ax.tick[i].value), p->y,
                        axis_at(&p->ax, p->ax.tick[i].value), p->y + p->h);
    pen_width(pen, s->venue->axis);
    pen_colour(pen, sheet_colour(s, ROLE_AXIS), 1);
    pen_move(pen, p->x, p->y);
    pen_line(pen, p->x, p->y + p->h);
    pen_line(pen, p->x + p->w, p->y + p->h);
    pen_stroke(pen);
    draw_x_ticks(s, p);
    draw_y_ticks(s, p);
    draw_labels(s, p);
}

void panel_line(struct sheet *s, struct panel *p, const double *x, const double *y, size_t n)
{
    int is_down = 0;
    double px = 0, py = 0;
    for (size_t i = 0; i < n; i++) {
        int ok = isfinite(x[i]) && isfinite(y[i]) && !(p->ax.is_log && x[i] <= 0) &&
                 !(p->ay.is_log && y[i] <= 0);
        if (!ok) {
            is_down = 0;
            continue;
        }
        double ux = axis_at(&p->ax, x[i]), uy = axis_at(&p->ay, y[i]);
        if (is_down) {
            pen_line(s->pen, ux, uy);
            panel_mark_line(p, px, py, ux, uy);
        } else
            pen_move(s->pen, ux, uy);
        is_down = 1;
        px = ux;
        py = uy;
    }
    pen_stroke(s->pen);
}

static void band_piece(struct sheet *s, struct panel *p, const double *x, const double *lo,
                       const double *hi, size_t a, size_t b)
{
    for (size_t i = a; i < b; i++)
        if (i == a)
            pen_move(s->pen, axis_at(&p->ax, x[i]), axis_at(&p->ay, lo[i]));
        else
            pen_line(s->pen, axis_at(&p->ax, x[i]), axis_at(&p->ay, lo[i]));
    for (size_t i = b; i-- > a;)
        pen_line(s->pen, axis_at(&p->ax, x[i]), axis_at(&p->ay, hi[i]));
    pen_close(s->pen);
    pen_fill(s->pen);
}

void panel_band(struct sheet *s, struct panel *p, const double *x, const double *lo,
                const double *hi, size_t n, int rgb, double alpha)
{
    pen_colour(s->pen, rgb, alpha);
    for (size_t a = 0; a < n;) {
        size_t b = a;
        while (b < n && isfinite(x[b]) && isfinite(lo[b]) && isfinite(hi[b]) &&
               !(p->ay.is_log && lo[b] <= 0))
            b++;
        if (b - a >= 2)
            band_piece(s, p, x, lo, hi, a, b);
        a = b + 1;
    }
}

void panel_rule(struct sheet *s, struct panel *p, double v, int is_vertical, int rgb, int dash)
{
    double at = axis_at(is_vertical ? &p->ax : &p->ay, v);
    pen_width(s->pen, s->venue->line * 0.8);
    pen_colour(s->pen, rgb, 1);
    sheet_dash(s, dash);
    if (is_vertical)
        pen_segment(s->pen, at, p->y, at, p->y + p->h);
    else
        pen_segment(s->pen, p->x, at, p->x + p->w, at);
    pen_dash(s->pen, NULL, 0);
    panel_mark_line(p, is_vertical ? at : p->x, is_vertical ? p->y : at,
                    is_vertical ? at : p->x + p->w, is_vertical ? p->y + p->h : at);
}

/* The wings of an arrow with its tip at x, y, which points in the direction dx, dy. */
static void arrow(struct pen *pen, double x, double y, double dx, double dy)
{
    pen_move(pen, x - dx - dy, y - dy - dx);
    pen_line(pen, x, y);
    pen_line(pen, x - dx + dy, y - dy + dx);
    pen_stroke(pen);
}

void panel_whisker(struct sheet *s, struct panel *p, double x0, double y0, double x1, double y1,
                   int rgb)
{
    const double cap = s->venue->line * 1.5, almost = 0.01;
    int is_upright = x0 == x1;
    double dx = is_upright ? cap : 0, dy = is_upright ? 0 : cap;
    const double end[2][2] = {{x0, y0}, {x1, y1}};
    if (fmax(x0, x1) < p->x - almost || fmin(x0, x1) > p->x + p->w + almost ||
        fmax(y0, y1) < p->y - almost || fmin(y0, y1) > p->y + p->h + almost)
        return;
    x0 = fmax(p->x, fmin(p->x + p->w, x0));
    x1 = fmax(p->x, fmin(p->x + p->w, x1));
    y0 = fmax(p->y, fmin(p->y + p->h, y0));
    y1 = fmax(p->y, fmin(p->y + p->h, y1));
    pen_dash(s->pen, NULL, 0);
    pen_width(s->pen, s->venue->line * 0.75);
    pen_colour(s->pen, rgb, 1);
    pen_segment(s->pen, x0, y0, x1, y1);
    panel_mark_line(p, x0, y0, x1, y1);
    for (int i = 0; i < 2; i++) {
        double x = i ? x1 : x0, y = i ? y1 : y0, cut = is_upright ? end[i][1] - y : end[i][0] - x;
        if (fabs(cut) > almost)
            arrow(s->pen, x, y, copysign(dy, cut), copysign(dx, cut));
        else
            pen_segment(s->pen, x - dx, y - dy, x + dx, y + dy);
    }
}

double panel_bar_room(const struct sheet *s, const struct axis *a)
{
    struct axis probe = *a;
    if (a->ticks == 0)
        choose_ticks(s, &probe, 100, 0, 0);
    return s->venue->small * 3.4 + 4 + widest_label(s, &probe);
}

void panel_colour_bar(struct sheet *s, const struct panel *p, struct axis *a, const char *label)
{
    enum { STEPS = 64 };
    double small = s->venue->small, x = p->x + p->w + p->bar_gap + small * 0.9, w = small * 0.9;
    a->from = p->y + p->h;
    a->to = p->y;
    if (a->ticks == 0)
        choose_ticks(s, a, p->h, 0, 0);
    for (int i = 0; i < STEPS; i++) {
        double top = p->y + p->h * (STEPS - 1 - i) / STEPS, h = p->h / STEPS;
        pen_box(s->pen, x, top, w, i ? h + 0.2 : h,
                cmap_rgb(p->bar_map ? p->bar_map : s->theme.sequential, (i + 0.5) / STEPS), 1);
    }
    pen_width(s->pen, s->venue->axis);
    for (int i = 0; i < a->ticks; i++) {
        double y = axis_at(a, a->tick[i].value);
        if (!a->tick[i].text[0])
            continue;
        pen_colour(s->pen, sheet_colour(s, ROLE_AXIS), 1);
        pen_width(s->pen, s->venue->axis);
        pen_segment(s->pen, x + w, y, x + w + 2, y);
        sheet_text(s, x + w + 4, y, TEXT_LEFT, TEXT_MIDDLE, 1, sheet_colour(s, ROLE_TEXT),
                   a->tick[i].text);
    }
    struct text_style up = {
        .size = small, .angle = 90, .rgb = sheet_colour(s, ROLE_TEXT), .h = TEXT_CENTRE};
    pen_text(s->pen, x + w + 4 + widest_label(s, a) + small * 1.15, p->y + p->h / 2, &up, label);
}

double panel_grid(const struct sheet *s, int n, int max_cols, double ratio, int i, double box[4])
{
    double gap = s->venue->base, least = s->venue->base * 18;
    int cols = (int)fmax(1, fmin(fmin(n, max_cols), floor((s->width + gap) / (least + gap))));
    int rows = (n + cols - 1) / cols;
    double w = (s->width - gap * (cols - 1)) / cols, h = w * ratio;
    if (i >= 0) {
        box[0] = (i % cols) * (w + gap);
        box[1] = (i / cols) * (h + gap * 0.6);
        box[2] = w;
        box[3] = h;
    }
    return rows * h + (rows - 1) * gap * 0.6;
}
