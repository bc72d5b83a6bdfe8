/* Timeline: the decisions over one text as training goes on: executed share of every layer and probe
 * above, the depth map of the probe at the cursor below; played, scrubbed, or following the newest. */
#include "tui/timeline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "tui/cells.h"
#include "tui/cells_pick.h"
#include "tui/view.h"
#include "tui/widgets.h"

enum { FINDINGS_MAX = 256, GUTTER = 6, TALL_ROWS = 14, SPEEDS = 6 };
static const double speeds[SPEEDS] = {1, 2, 4, 8, 16, 32}; /* probes a second */

enum { STRIP_SHARE, STRIP_CLASS, STRIP_FIELDS };
enum { REDUCE_MEAN, REDUCE_LEAST, REDUCE_MOST, REDUCES };
static const char *const reduce_name[REDUCES] = {"mean", "min", "max"};

struct view_of_time {
    struct timeline line;
    struct pick pick;
    struct cells strip, map;
    int shown, reduce; /* STRIP_*, REDUCE_*          */
    int speed, is_playing, is_listing;
    double next; /* is_playing: the time of the next probe, by clock_mono */
    /* the strip as a probe whose tokens are columns of one or more probes */
    struct probe picture;
    struct matrix matrix;
    char name[24]; /* of the matrix */
    int8_t *sign;  /* (layers, columns) 1: executed for every token, 0: never, -1: neither */
    size_t room;
    int per; /* probes per column */
    struct timeline_finding found[FINDINGS_MAX];
    size_t findings; /* of which at most FINDINGS_MAX are stored */
    struct list list;
    size_t pos; /* of the probe at the cursor */
    /* of the depth map and the read-out: the cursor's when it rests */
    size_t drawn;
    int drawn_layer;
    unsigned char *mark;
    size_t marks;
    /* of the last draw, rows of the view */
    int strip_end, map_top, list_top;
};

static int timeline_open(struct view *v, struct err *e)
{
    struct view_of_time *s = v->state;
    (void)e;
    s->speed = 2;
    pick_load(&s->pick, v->app);
    return 0;
}

static void timeline_close(struct view *v)
{
    struct view_of_time *s = v->state;
    timeline_release(&s->line);
    cells_release(&s->strip);
    cells_release(&s->map);
    mem_free(s->matrix.v);
    mem_free(s->sign);
    mem_free(s->mark);
}

/* The probes may be those of another run now. */
static void timeline_run_changed(struct view *v)
{
    struct view_of_time *s = v->state;
    s->is_playing = s->strip.is_moving = 0;
}

/* ---- the picture of the strip ---- */

/* In steps of a third to a half, so that the columns of a live run seldom move. */
static int probes_per_column(size_t n, int cols)
{
    int per = 1, next = 2; /* 1 2 3 4 6 8 12 16 ... */
    while (cols > 0 && (n + (size_t)per - 1) / (size_t)per > (size_t)cols) {
        int after = per >= 2 ? 2 * per : 3;
        per = next;
        next = after;
    }
    return per;
}

static float reduced(const struct view_of_time *s, const float *v, size_t first, size_t end, int l)
{
    double sum = 0, least = (double)INFINITY, most = -(double)INFINITY;
    int n = 0;
    for (size_t i = first; i < end; i++) {
        double x = (double)v[i * (size_t)s->line.layers + (size_t)l];
        if (!isfinite(x))
            continue;
        sum += x;
        least = x < least ? x : least;
        most = x > most ? x : most;
        n++;
    }
    return n == 0                      ? (float)NAN
           : s->reduce == REDUCE_LEAST ? (float)least
           : s->reduce == REDUCE_MOST  ? (float)most
                                       : (float)(sum / n);
}

/* Signs where a layer has collapsed for long enough to be named. */
static void put_signs(struct view_of_time *s)
{
    size_t columns = (size_t)s->picture.tokens;
    size_t n = s->findings < FINDINGS_MAX ? s->findings : FINDINGS_MAX;
    memset(s->sign, -1, columns * (size_t)s->line.layers);
    for (size_t k = 0; k < n; k++) {
        const struct timeline_finding *f = &s->found[k];
        if ((f->kind == TIMELINE_SPECIALISED) != (s->shown == STRIP_CLASS))
            continue;
        for (size_t c = f->first / (size_t)s->per; c <= f->last / (size_t)s->per; c++)
            s->sign[(size_t)f->layer * columns + c] = f->kind != TIMELINE_NEVER;
    }
}

static int make_picture(struct view_of_time *s, int cols)
{
    const float *v = s->shown == STRIP_CLASS ? s->line.class_ : s->line.share;
    s->per = probes_per_column(s->line.n, cols);
    size_t per = (size_t)s->per, columns = (s->line.n + per - 1) / per,
           cells = columns * (size_t)s->line.layers;
    if (cells > s->room) {
        float *value = mem_realloc(s->matrix.v, cells, sizeof *value);
        s->matrix.v = value ? value : s->matrix.v;
        int8_t *sign = mem_realloc(s->sign, cells, 1);
        s->sign = sign ? sign : s->sign;
        if (!value || !sign)
            return 0;
        s->room = cells;
    }
    for (size_t c = 0; c < columns; c++) {
        size_t first = c * per, end = first + per < s->line.n ? first + per : s->line.n;
        for (int l = 0; l < s->line.layers; l++)
            s->matrix.v[(size_t)l * columns + c] = reduced(s, v, first, end, l);
    }
    s->matrix.name = s->name;
    str_copy(s->name, sizeof s->name,
             s->shown == STRIP_CLASS ? "explained by class" : "executed share");
    s->matrix.rows = s->line.layers;
    s->matrix.cols = (int)columns;
    s->picture = (struct probe){
        .layers = s->line.layers, .tokens = (int)columns, .cell = &s->matrix, .cells = 1};
    put_signs(s);
    return 1;
}

/* ---- preparation ---- */

static const struct probe *probe_at(const struct view_of_time *s, const struct runview *r, size_t i)
{
    return r->probe[s->line.at[i]];
}

static size_t position_of(const struct view_of_time *s, const struct runview *r,
                          const struct probe *p)
{
    for (size_t i = s->line.n; i-- > 0;)
        if (probe_at(s, r, i) == p)
            return i;
    return s->line.n ? s->line.n - 1 : 0;
}

static int fit_map(struct view_of_time *s, const struct runview *r)
{
    if (!s->strip.is_moving || s->drawn >= s->line.n || s->drawn_layer >= s->line.layers) {
        s->drawn = s->pos;
        s->drawn_layer = s->pick.layer;
    }
    s->map.view = r;
    s->map.probe = probe_at(s, r, s->drawn);
    s->map.token = s->pick.token;
    s->map.layer = s->drawn_layer;
    if (!s->map.probe || s->map.probe->tokens < 1 || cells_fit(&s->map) < 0)
        return 0;
    size_t tokens = (size_t)s->map.probe->tokens;
    unsigned char *mark = tokens > s->marks ? mem_realloc(s->mark, tokens, 1) : s->mark;
    if (!mark)
        return 0;
    s->marks = tokens > s->marks ? tokens : s->marks;
    s->mark = mark;
    for (size_t t = 0; t < tokens; t++)
        mark[t] = (unsigned char)pick_is_marked(&s->pick, (int)t);
    s->map.mark = mark;
    return 1;
}

/* 0: there is nothing to show. */
static int prepare(struct view *v)
{
    struct view_of_time *s = v->state;
    const struct runview *r = app_run(v->app);
    pick_load(&s->pick, v->app); /* another view may have moved it */
    const struct probe *p = pick_probe(&s->pick, r);
    if (!p || p->tokens < 1 || p->layers < 1)
        return 0;
    uint64_t was = s->line.generation;
    const struct runview *of = s->line.of;
    int text = s->line.text;
    if (timeline_update(&s->line, r, p->index) < 0 || s->line.n == 0)
        return 0;
    if (was != s->line.generation || of != s->line.of || text != s->line.text)
        s->findings = timeline_findings(&s->line, s->found, FINDINGS_MAX);
    s->pos = position_of(s, r, p);
    s->pick.layer = s->pick.layer >= s->line.layers ? s->line.layers - 1 : s->pick.layer;
    if (!make_picture(s, v->cols > GUTTER + 4 ? v->cols - GUTTER - 2 : 1))
        return 0;
    s->strip.probe = &s->picture;
    s->strip.view = r;
    s->strip.field = 1;
    s->strip.full = 1;
    s->strip.hides = CELLS_HIDES_TOKENS | CELLS_HIDES_BELOW;
    s->strip.token = (int)(s->pos / (size_t)s->per);
    s->strip.layer = s->pick.layer;
    s->strip.is_upward = s->map.is_upward;
    s->strip.force = s->sign;
    s->strip.fixed = s->line.always_on;
    return cells_fit(&s->strip) == 0 && fit_map(s, r);
}

/* ---- motion in time ---- */

static void go(struct view *v, long to, int is_scrub)
{
    struct view_of_time *s = v->state;
    const struct runview *r = app_run(v->app);
    long last = (long)s->line.n - 1;
    to = to > last ? last : to < 0 ? 0 : to;
    s->pick.is_held = to < last; /* at the newest it follows again */
    s->pick.step = probe_at(s, r, (size_t)to)->step;
    s->pos = (size_t)to;
    pick_save(&s->pick, v->app);
    if (is_scrub) {
        s->is_playing = 0;
        cells_moved(&s->strip, app_is_scripted(v->app));
    }
}

static void keep_cell(struct view *v)
{
    struct view_of_time *s = v->state;
    s->pick.token = s->map.token;
    s->pick.layer = s->map.layer;
    cells_moved(&s->map, app_is_scripted(v->app));
    pick_save(&s->pick, v->app);
}

static int play_one(struct view *v)
{
    struct view_of_time *s = v->state;
    if (!prepare(v)) {
        s->is_playing = 0;
        return 1;
    }
    go(v, (long)s->pos + 1, 0);
    if (s->pos + 1 >= s->line.n) {
        s->is_playing = 0;
        app_notify(v->app, LOG_INFO, "the newest probe%s",
                   app_has_process(v->app) ? "; newer ones are shown as they arrive" : "");
    }
    return 1;
}

/* A script has no clock: each of its events is a tick. */
static int timeline_poll(struct view *v)
{
    struct view_of_time *s = v->state;
    double now = clock_mono();
    int changed = cells_settled(&s->strip) | cells_settled(&s->map);
    if (!s->is_playing || (now < s->next && !app_is_scripted(v->app)))
        return changed;
    s->next = now + 1 / speeds[s->speed];
    return play_one(v);
}

static double timeline_due(struct view *v)
{
    const struct view_of_time *s = v->state;
    double a = cells_due(&s->strip), b = cells_due(&s->map);
    a = a < b ? a : b;
    return s->is_playing && s->next < a ? s->next : a;
}

/* ---- drawing ---- */

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
             "A timeline is made of probes: all decisions over a fixed text, recorded every "
             "train.probe_every steps%s%.12s%s. :probe records one now in a running process.",
             every ? " (" : "", every ? every : "", every ? " in this run)" : "");
    scroll_text(&lines, area_sub(a, y + 2, 2, a.rows - y - 2, a.cols - 4), text, ink(ROLE_TEXT));
}

static void draw_title(struct view *v, struct area line)
{
    struct view_of_time *s = v->state;
    const struct runview *r = app_run(v->app);
    const struct probe *p = probe_at(s, r, s->pos);
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
        snprintf(part[1].words[0], 48, "playing %g/s", speeds[s->speed]);
    else if (s->pick.is_held)
        snprintf(part[1].words[0], 48, "probe %zu/%zu", s->pos + 1, s->line.n);
    else
        snprintf(part[1].words[0], 48, "newest of %zu", s->line.n);
    if (s->per > 1) {
        snprintf(part[2].words[0], 48, "column: %s of %d probes", reduce_name[s->reduce], s->per);
        snprintf(part[2].words[1], 48, "%s of %d", reduce_name[s->reduce], s->per);
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
    int gutter = line.cols >= 30 ? GUTTER : 3, width = at->width > 0 ? at->width : 1,
        digits = snprintf(NULL, 0, "%lld", (long long)probe_at(s, r, s->line.n - 1)->step),
        every = 1, last = s->strip.first_token + at->tokens;
    while (every * width < digits + 2)
        every += every < 2 ? 1 : every < 5 ? 3 : every;
    if (gutter >= GUTTER)
        area_text(line, 0, 0, gutter - 1, ink(ROLE_DIM), "step");
    for (int c = (s->strip.first_token + every - 1) / every * every; c < last; c += every) {
        size_t i = (size_t)c * (size_t)s->per;
        char text[24];
        int x = gutter + (c - s->strip.first_token) * width,
            n = snprintf(text, sizeof text, "%lld", (long long)probe_at(s, r, i)->step);
        if (x + n <= line.cols)
            area_text(line, 0, x, n, ink(ROLE_AXIS), text);
    }
}

/* The values of the strip at the cursor, and what the signs on it mean. */
static void draw_readout(struct view *v, struct area line)
{
    struct view_of_time *s = v->state;
    const struct runview *r = app_run(v->app);
    const struct probe *p = probe_at(s, r, s->drawn);
    int l = s->drawn_layer, x = 0, end = line.cols;
    if (line.cols >= 76)
        end = cells_legend(line, line.cols, &s->map) - 1;
    size_t at = s->drawn * (size_t)s->line.layers + (size_t)l;
    double share = (double)s->line.share[at], part = (double)s->line.class_[at];
    struct area text = area_sub(line, 0, 0, 1, end);
    x += area_textf(text, 0, x, -1, ink(ROLE_TEXT), "layer %d ", l);
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
        snprintf(text, sizeof text, "no layer collapsed%s for %d probes%s",
                 s->line.has_classes ? " or specialised" : "", TIMELINE_PROBES,
                 s->line.has_classes ? "" : "; token classes not recorded");
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
        timeline_words(text, sizeof text, &s->line, r, f);
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

static void timeline_draw(struct view *v, struct area a)
{
    struct view_of_time *s = v->state;
    s->strip_end = s->map_top = s->list_top = 0;
    if (!prepare(v)) {
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

/* ---- keys ---- */

static void key_time(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    (void)args;
    if (prepare(v))
        go(v, (long)s->pos + k->value, 1);
}

/* By columns of the strip: a tenth of those that are shown. */
static void key_page(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    (void)args;
    if (!prepare(v))
        return;
    long by = (long)s->line.n / 10;
    go(v, (long)s->pos + k->value * (by < 1 ? 1 : by), 1);
}

static void key_end(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    (void)args;
    if (prepare(v))
        go(v, k->value ? (long)s->line.n - 1 : 0, 1);
}

static void key_step(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    const struct runview *r = app_run(v->app);
    char *end = NULL;
    long long step = args ? strtoll(args, &end, 10) : 0;
    (void)k;
    if (!args || end == args || *end) {
        app_notify(v->app, LOG_WARN, "step %.40s: expected a training step", args ? args : "");
        return;
    }
    if (!prepare(v))
        return;
    size_t best = 0;
    for (size_t i = 0; i < s->line.n; i++)
        if (llabs((long long)probe_at(s, r, i)->step - step) <
            llabs((long long)probe_at(s, r, best)->step - step))
            best = i;
    go(v, (long)best, 1);
    if (probe_at(s, r, best)->step != step)
        app_notify(v->app, LOG_INFO, "no probe at step %lld: the nearest is at step %lld", step,
                   (long long)probe_at(s, r, best)->step);
}

static void key_play(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    (void)k, (void)args;
    if (!prepare(v))
        return;
    s->is_playing = !s->is_playing;
    s->strip.is_moving = 0;
    s->next = clock_mono() + 1 / speeds[s->speed];
    if (s->is_playing && s->pos + 1 >= s->line.n) /* from the beginning */
        go(v, 0, 0);
}

static void key_speed(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    int to = s->speed + k->value;
    (void)args;
    s->speed = to < 0 ? 0 : to >= SPEEDS ? SPEEDS - 1 : to;
    app_notify(v->app, LOG_INFO, "%g probe%s a second", speeds[s->speed], s->speed ? "s" : "");
}

static void key_layer(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    (void)args;
    if (!prepare(v))
        return;
    if (s->is_listing) {
        list_move(&s->list, k->value);
        return;
    }
    cells_go(&s->strip, k->value < 0 ? CELLS_UP : CELLS_DOWN);
    s->pick.layer = s->strip.layer;
    pick_save(&s->pick, v->app);
    cells_moved(&s->strip, app_is_scripted(v->app));
}

static void key_token(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    (void)args;
    if (!prepare(v))
        return;
    cells_go(&s->map, k->value < 0 ? CELLS_LEFT : CELLS_RIGHT);
    keep_cell(v);
}

static void key_text(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    (void)args;
    if (prepare(v) && !pick_text(&s->pick, app_run(v->app), k->value))
        app_notify(v->app, LOG_INFO,
                   k->value < 0 ? "this is the first probe text" : "this is the last probe text");
    pick_save(&s->pick, v->app);
}

static void key_strip(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    (void)k, (void)args;
    if (prepare(v) && !s->line.has_classes)
        app_notify(v->app, LOG_INFO, "token classes are not recorded in these probes");
    else
        s->shown = (s->shown + 1) % STRIP_FIELDS;
}

static void key_reduce(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    (void)k, (void)args;
    s->reduce = (s->reduce + 1) % REDUCES;
    app_notify(v->app, LOG_INFO, "a column of several probes shows their %s",
               reduce_name[s->reduce]);
}

static void key_field(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    (void)args;
    if (!prepare(v))
        return;
    int n = cells_fields(s->map.probe);
    s->map.field = (s->map.field + k->value + n) % n;
}

static void key_flip(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    (void)k, (void)args;
    s->map.is_upward = !s->map.is_upward;
}

static void key_list(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    (void)k, (void)args;
    s->is_listing = !s->is_listing;
}

/* From the list to the layer and the probe where the state begins. */
static void key_enter(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    (void)k, (void)args;
    if (!prepare(v))
        return;
    if (!s->is_listing || s->list.cursor >= s->findings) {
        app_show(v->app, "depth");
        return;
    }
    s->is_listing = 0;
    s->pick.layer = s->found[s->list.cursor].layer;
    go(v, (long)s->found[s->list.cursor].first, 1);
}

static void key_mark(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    (void)k, (void)args;
    if (!prepare(v))
        return;
    if (!pick_toggle(&s->pick, s->map.token))
        app_notify(v->app, LOG_WARN, "at most %d tokens are marked: unmark one", PICK_MARKS_MAX);
    pick_save(&s->pick, v->app);
}

/* ---- mouse, search, copy ---- */

static int strip_event(struct view *v, const struct event *ev)
{
    struct view_of_time *s = v->state;
    int was = s->strip.token;
    if (!cells_event(&s->strip, ev))
        return 0;
    s->pick.layer = s->strip.layer;
    if (s->strip.token == was) {
        pick_save(&s->pick, v->app);
        cells_moved(&s->strip, app_is_scripted(v->app));
    } else {
        go(v, (long)s->strip.token * s->per, 1);
    }
    return 1;
}

static int timeline_event(struct view *v, const struct event *ev)
{
    struct view_of_time *s = v->state;
    if (!prepare(v))
        return 0;
    if (ev->kind == EVENT_KEY && ev->key == KEYCODE_ESC && s->is_listing) {
        s->is_listing = 0;
        return 1;
    }
    if (s->is_listing && s->list_top > 0 && ev->kind == EVENT_MOUSE && ev->y >= s->list_top) {
        size_t at = s->list.top + (size_t)(ev->y - s->list_top);
        if (ev->action == MOUSE_PRESS && at < s->list.n) {
            s->list.cursor = at;
            if (ev->is_double)
                key_enter(v, NULL, NULL);
            return 1;
        }
        return list_event(&s->list, ev);
    }
    if (ev->kind == EVENT_MOUSE && (ev->y <= s->strip_end || s->map_top == 0))
        return strip_event(v, ev);
    struct event at = *ev;
    at.y -= s->map_top;
    if (ev->kind != EVENT_MOUSE || !cells_event(&s->map, &at))
        return 0;
    keep_cell(v);
    return 1;
}

static int timeline_search(struct view *v, const char *text, int direction)
{
    struct view_of_time *s = v->state;
    if (!prepare(v) || !cells_search(&s->map, text, direction))
        return 0;
    keep_cell(v);
    return 1;
}

/* One row per probe: its step and the executed share of every layer. */
static void timeline_copy(struct view *v, struct str *out)
{
    struct view_of_time *s = v->state;
    const struct runview *r = app_run(v->app);
    if (!prepare(v))
        return;
    str_add(out, "step");
    for (int l = 0; l < s->line.layers; l++)
        str_addf(out, "\tlayer %d", l);
    for (size_t i = 0; i < s->line.n; i++) {
        str_addf(out, "\n%lld", (long long)probe_at(s, r, i)->step);
        for (int l = 0; l < s->line.layers; l++)
            str_addf(out, "\t%.6g", (double)s->line.share[i * (size_t)s->line.layers + (size_t)l]);
    }
    str_add_char(out, '\n');
}

/* clang-format off */
static const struct key timeline_keys[] = {
    {"h Left ,",   "left",       NULL, "earlier probe",                         NULL,     0, KEY_HIDDEN, -1, key_time},
    {"l Right .",  "right",      NULL, "later probe; the newest is followed",   NULL,     0, KEY_HIDDEN, 1, key_time},
    {"k Up",       "up",         NULL, "layer above on the screen",             NULL,     0, KEY_HIDDEN, -1, key_layer},
    {"j Down",     "down",       NULL, "layer below on the screen",             NULL,     0, KEY_HIDDEN, 1, key_layer},
    {"PgUp C-u H", "page-left",  NULL, "back by a tenth of the probes",         NULL,     0, KEY_HIDDEN, -1, key_page},
    {"PgDn C-d L", "page-right", NULL, "forward by a tenth of the probes",      NULL,     0, KEY_HIDDEN, 1, key_page},
    {"gg Home",    "first",      NULL, "first probe",                           NULL,     0, KEY_HIDDEN, 0, key_end},
    {"G End F",    "last",       NULL, "follow the newest probe",               NULL,     0, KEY_HIDDEN, 1, key_end},
    {"p",          "play",       NULL, "play the probes, or stop; from the newest: from the first", "play", 72, 0, 0, key_play},
    {"<",          "slower",     NULL, "half as many probes a second",          NULL,     0, KEY_VIEW_CHANGE, -1, key_speed},
    {">",          "faster",     NULL, "twice as many probes a second",         "faster", 42, KEY_VIEW_CHANGE, 1, key_speed},
    {"",           "step",       "N",  "go to the probe nearest to a training step", NULL, 0, 0, 0, key_step},
    {"c",          "collapsed",  NULL, "list the layers that collapsed or specialised", "collapsed", 68, 0, 0, key_list},
    {"Enter",      "enter",      NULL, "in the list: go to where it begins; else open the Depth map", NULL, 0, 0, 0, key_enter},
    {"s",          "strip",      NULL, "strip: executed share, or the part explained by the token class", "strip", 66, KEY_VIEW_CHANGE, 0, key_strip},
    {"m",          "column",     NULL, "columns of several probes: mean, minimum or maximum", NULL, 0, KEY_VIEW_CHANGE, 0, key_reduce},
    {"}",          "next-text",  NULL, "next probe text",                       "text",   64, 0, 1, key_text},
    {"{",          "prev-text",  NULL, "previous probe text",                   NULL,     0, 0, -1, key_text},
    {"v",          "field",      NULL, "cycle the value that the cells of the map show", "values", 60, KEY_VIEW_CHANGE, 1, key_field},
    {"]t",         "next-token", NULL, "next token of the map",                 NULL,     0, 0, 1, key_token},
    {"[t",         "prev-token", NULL, "previous token of the map",             NULL,     0, 0, -1, key_token},
    {"Space",      "mark",       NULL, "mark the token for Signals",            NULL,     0, 0, 0, key_mark},
    {"o",          "flip",       NULL, "layer 0 at the top or the bottom",      NULL,     0, KEY_VIEW_CHANGE, 0, key_flip},
    {0},
};
static const struct setting timeline_settings[] = {
    {"strip",  SETTING_INT, offsetof(struct view_of_time, shown),         0, STRIP_FIELDS - 1},
    {"column", SETTING_INT, offsetof(struct view_of_time, reduce),        0, REDUCES - 1},
    {"speed",  SETTING_INT, offsetof(struct view_of_time, speed),         0, SPEEDS - 1},
    {"field",  SETTING_INT, offsetof(struct view_of_time, map.field),     0, 255},
    {"upward", SETTING_INT, offsetof(struct view_of_time, map.is_upward), 0, 1},
    {0},
};

const struct view_ops view_timeline = {
    .name = "timeline",  .title = "Timeline",
    .summary = "Probes over training: executed share of every layer and step, collapse and specialisation named, the depth map of any step.",
    .keys = timeline_keys,  .settings = timeline_settings,  .state_size = sizeof(struct view_of_time),
    .open = timeline_open,  .close = timeline_close,  .draw = timeline_draw,  .event = timeline_event,
    .poll = timeline_poll,  .due = timeline_due,  .run_changed = timeline_run_changed,
    .search = timeline_search,  .copy = timeline_copy,
};
/* clang-format on */
