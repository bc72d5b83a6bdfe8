/* Draws the Timeline: the strip over training, the values at its cursor, the layers that collapsed or
 * specialised, and the depth map. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tui/timeline.h"

enum { TALL_ROWS = 14 };

static void draw_empty(struct view *v, struct area a)
{
    const struct runview *r = app_run(v->app);
    int y = a.rows > 6 ? a.rows / 2 - 2 : 0;
    if (app_draw_nothing(v->app, a))
        return;
    area_text(a, y, 2, a.cols - 3, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), "No probe yet");
    const char *every = r ? runview_config(r, "train.probe_every") : NULL;
    struct scroll lines = {0};
    char text[320];
    snprintf(text, sizeof text,
             "A timeline is made of probes: all decisions over a fixed text%s%.12s%s. %s",
             every ? ", recorded every train.probe_every steps (" : "", every ? every : "",
             every ? " in this run)" : "", app_probe_hint(v->app, NULL));
    scroll_text(&lines, area_sub(a, y + 2, 2, a.rows - y - 2, a.cols - 4), text, ink(ROLE_TEXT));
}

static void draw_title(struct view *v, struct area line)
{
    struct view_of_time *s = v->state;
    const struct runview *r = app_run(v->app);
    const struct probe *p = timeline_probe(s, r, s->pos);
    struct pick_place at = pick_place(&s->pick, r);
    /* the long words where there is room, else the short ones */
    struct {
        char words[2][48];
    } part[6];
    memset(part, 0, sizeof part);
    int end = line.cols >= 76 ? cells_legend(line, line.cols - 1, &s->strip) - 1 : line.cols, x = 1;
    x += cells_title(line, x, line.cols > 100 ? 24 : 12, end, p) + 2;
    snprintf(part[0].words[0], 48, "step %lld", (long long)p->step);
    if (s->is_playing)
        snprintf(part[1].words[0], 48, "playing %g/s", timeline_speeds[s->speed]);
    else if (s->pick.is_held)
        snprintf(part[1].words[0], 48, "probe %zu/%zu", s->pos + 1, s->line.n);
    else
        snprintf(part[1].words[0], 48, "newest of %zu", s->line.n);
    if (s->per > 1) {
        snprintf(part[2].words[0], 48, "column: %s of %d probes", timeline_reduce[s->reduce],
                 s->per);
        snprintf(part[2].words[1], 48, "%s of %d", timeline_reduce[s->reduce], s->per);
    }
    if (s->line.superseded) {
        snprintf(part[3].words[0], 48, "%zu superseded by a resume", s->line.superseded);
        snprintf(part[3].words[1], 48, "%zu superseded", s->line.superseded);
    }
    snprintf(part[4].words[0], 48, "text %d/%d", at.text, at.texts);
    if (r->thinned)
        snprintf(part[5].words[0], 48, "%llu older ones dropped", (unsigned long long)r->thinned);
    for (int i = 0; i < 6; i++) {
        int is_state = i == 1 && (s->pick.is_held || s->is_playing);
        for (int k = 0; k < 2; k++) {
            int n = (int)strlen(part[i].words[k]);
            if (n == 0 || x + n + 1 > end)
                continue;
            x += area_text(line, 0, x, n, ink(is_state ? ROLE_WARN : ROLE_DIM), part[i].words[k]) +
                 2;
            break;
        }
    }
}

/* The step of the first probe of a column, where labels stand apart. */
static void draw_steps(struct view *v, struct area line)
{
    struct view_of_time *s = v->state;
    const struct runview *r = app_run(v->app);
    const struct cells_at *at = &s->strip.at;
    int gutter = line.cols >= 30 ? TIMELINE_GUTTER : 3, width = at->width > 0 ? at->width : 1,
        digits = snprintf(NULL, 0, "%lld", (long long)timeline_probe(s, r, s->line.n - 1)->step),
        every = 1, last = s->strip.first_token + at->tokens;
    while (every * width < digits + 2)
        every += every < 2 ? 1 : every < 5 ? 3 : every;
    if (gutter >= TIMELINE_GUTTER)
        area_text(line, 0, 0, gutter - 1, ink(ROLE_DIM), "step");
    for (int c = (s->strip.first_token + every - 1) / every * every; c < last; c += every) {
        size_t i = (size_t)c * (size_t)s->per;
        char text[24];
        int x = gutter + (c - s->strip.first_token) * width,
            n = snprintf(text, sizeof text, "%lld", (long long)timeline_probe(s, r, i)->step);
        if (x + n <= line.cols)
            area_text(line, 0, x, n, ink(ROLE_AXIS), text);
    }
}

/* The values of the strip at the cursor, and what the signs on it mean. */
static void draw_readout(struct view *v, struct area line)
{
    struct view_of_time *s = v->state;
    const struct runview *r = app_run(v->app);
    const struct probe *p = timeline_probe(s, r, s->drawn);
    int l = s->drawn_layer, x = 0, end = line.cols;
    if (line.cols >= 76)
        end = cells_legend(line, line.cols, &s->map) - 1;
    size_t at = s->drawn * (size_t)s->line.layers + (size_t)l;
    double share = (double)s->line.share[at], part = (double)s->line.class_[at];
    struct area text = area_sub(line, 0, 0, 1, end);
    x += area_textf(text, 0, x, -1, ink(ROLE_TEXT), "%s %d ", runview_layer_word(r, p->layers), l);
    if (isnan(share))
        x += area_text(text, 0, x, -1, ink(ROLE_DIM), "no decisions") + 2;
    else if (s->line.always_on[l])
        x += area_text(text, 0, x, -1, ink(ROLE_TEXT), "always on") + 2;
    else
        x += area_textf(text, 0, x, -1, ink(ROLE_TEXT), "executed %.3f", share) + 2;
    if (isfinite(part) && x + 19 <= end)
        x += area_textf(text, 0, x, -1, ink(ROLE_TEXT), "class explains %.2f", part) + 2;
    char more[64];
    snprintf(more, sizeof more, "%.0f of %d tokens", share * p->tokens, p->tokens);
    if (isfinite(share) && x + (int)strlen(more) <= end)
        x += area_text(text, 0, x, -1, ink(ROLE_DIM), more) + 2;
    static const char *const signs[STRIP_FIELDS] = {"signs: - never executed, + for every token",
                                                    "sign: + specialised"};
    if (s->findings && x + (int)strlen(signs[s->shown]) <= end)
        area_text(text, 0, x, -1, ink(ROLE_DIM), signs[s->shown]);
}

/* The findings from `top` on; the last row counts those that are cut. */
static void draw_findings(struct view *v, struct area a, size_t top, long cursor)
{
    struct view_of_time *s = v->state;
    const struct runview *r = app_run(v->app);
    char text[256];
    size_t n = s->findings < FINDINGS_MAX ? s->findings : FINDINGS_MAX, rows = (size_t)a.rows;
    if (a.rows < 1)
        return;
    if (n == 0) {
        static const char no_class[] = "; token classes not recorded";
        int len = snprintf(text, sizeof text, "no %s collapsed%s for %d probes",
                           runview_layer_word(r, s->line.layers),
                           s->line.has_classes ? " or specialised" : "", TIMELINE_PROBES);
        if (!s->line.has_classes && len + (int)sizeof no_class <= a.cols)
            snprintf(text + len, sizeof text - (size_t)len, "%s", no_class);
        area_text(a, 0, 0, a.cols, ink(ROLE_DIM), text);
        return;
    }
    for (size_t i = top; i < n && i - top < rows; i++) {
        const struct timeline_finding *f = &s->found[i];
        int is_cut = cursor < 0 && i - top + 1 == rows && i + 1 < s->findings, end = a.cols;
        if (is_cut) {
            snprintf(text, sizeof text, "+%zu: c lists", s->findings - i - 1);
            end = area_right(area_sub(a, (int)(i - top), 0, 1, a.cols), 0, a.cols, ink(ROLE_DIM),
                             text) -
                  2;
        }
        timeline_words(text, sizeof text, end - 2, &s->line, r, f);
        enum role k = !f->is_now                        ? ROLE_DIM
                      : f->kind == TIMELINE_SPECIALISED ? ROLE_GOOD
                                                        : ROLE_WARN;
        if (f->kind != TIMELINE_SPECIALISED || s->shown == STRIP_CLASS) /* its sign on the strip */
            area_put(a, (int)(i - top), 0, f->kind == TIMELINE_NEVER ? '-' : '+', ink(k));
        area_text(a, (int)(i - top), 2, end - 2, ink(k), text);
        if ((long)i == cursor)
            area_tint(a, (int)(i - top), 0, 1, 10, ink_attr(ink(ROLE_SELECTED), ATTR_BOLD));
    }
}

/* Rows of each part, from top to bottom. */
struct parts {
    int title, strip, steps, readout, found, gap, map;
};

static struct parts share_rows(const struct view_of_time *s, struct area a)
{
    const struct look *look = &a.canvas->look;
    struct parts p = {.title = a.rows >= 4, .steps = a.rows >= 8, .readout = a.rows >= 10};
    int least = cells_map_least(&s->strip, look) - 3, full = s->line.layers, most;
    int found = s->findings > 8 ? 8 : s->findings < 1 ? 1 : (int)s->findings;
    p.found = a.rows < 12 ? 0 : a.rows < 20 ? 1 : a.rows < 34 ? (found > 2 ? 2 : found) : found;
    int room = a.rows - p.title - p.steps - p.readout - p.found;
    if (room < 2 * full + 1 && room + p.found - 1 >= 2 * full + 1 && p.found > 1) {
        room += p.found - 1;
        p.found = 1;
    }
    if (a.rows < 8) { /* only the strip */
        p.strip = room;
        return p;
    }
    /* every layer a row in both, then the map pairs layers, then both do: the strip has signs */
    most = room - full >= least + 1 ? full : room / 2;
    while (most + full <= 3 * full && room - most - full >= full + 1 + TALL_ROWS)
        most += full;
    p.strip = cells_map_rows(&s->strip, look, most > 0 ? most : 1);
    p.map = room - p.strip;
    p.gap = p.map > full + 4;
    p.map -= p.gap;
    return p;
}

static void draw_map(struct view_of_time *s, struct area a, int y)
{
    s->map_top = y;
    if (a.rows < 2)
        return;
    if (a.rows >= s->line.layers + TALL_ROWS - 4) {
        s->map.hides = 0;
        cells_draw(a, &s->map);
        return;
    }
    s->map.hides = a.rows < s->line.layers + 3 ? CELLS_HIDES_BELOW : 0;
    s->map.at = (struct cells_at){.map_y = 0, .map_x = 1};
    cells_map_draw(area_sub(a, 0, 1, a.rows, a.cols - 2), &s->map);
}

void timeline_draw(struct view *v, struct area a)
{
    struct view_of_time *s = v->state;
    s->strip_end = s->map_top = s->list_top = 0;
    if (!timeline_prepare(v)) {
        draw_empty(v, a);
        return;
    }
    struct parts p = share_rows(s, a);
    int y = p.title;
    s->strip.has_focus = v->has_focus && !app_is_scripted(v->app);
    s->map.has_focus = 0;
    s->strip.at = (struct cells_at){.map_y = y, .map_x = 1};
    cells_map_draw(area_sub(a, y, 1, p.strip, a.cols - 2), &s->strip);
    if (p.title)
        draw_title(v, area_sub(a, 0, 0, 1, a.cols));
    y += p.strip;
    s->strip_end = y;
    if (p.steps)
        draw_steps(v, area_sub(a, y++, 1, 1, a.cols - 2));
    if (p.readout)
        draw_readout(v, area_sub(a, y++, 1, 1, a.cols - 2));
    if (s->is_listing) {
        struct area rest = area_sub(a, y, 1, a.rows - y, a.cols - 3);
        size_t n = s->findings < FINDINGS_MAX ? s->findings : FINDINGS_MAX;
        s->list_top = y;
        list_fit(&s->list, n, rest.rows);
        draw_findings(v, rest, s->list.top, n ? (long)s->list.cursor : -1);
        scrollbar_draw(area_sub(a, y, 0, rest.rows, a.cols), a.cols - 1, n, s->list.top, rest.rows);
        return;
    }
    draw_findings(v, area_sub(a, y, 1, p.found, a.cols - 2), 0, -1);
    y += p.found + p.gap;
    draw_map(s, area_sub(a, y, 0, p.map, a.cols), y);
}
