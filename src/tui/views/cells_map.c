/* The map: one column per token, one row per layer; two layers share a row when space is short. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tui/cells.h"
#include "tui/widgets.h"

enum { GUTTER = 6, HEIGHT_MAX = 3 };

/* How a field is mapped to colours, computed once per draw. */
struct paint {
    struct cells *c;
    const char *map;
    double lo, hi;
    int has_colour, is_category;
    const struct look *look;
};

/* Categories, except in a map of differences, whose values are amounts. */
static int is_category(const struct cells *c)
{
    return cells_is_category(c->probe, c->field) && !(c->span > 0) && !(c->full > 0);
}

/* Colours that the map needs to be shown by colour. */
static int colours_of(const struct cells *c)
{
    return c->field > 0 && !(c->span > 0) && !is_category(c) ? 256 : 16;
}

static struct paint paint_of(struct cells *c, const struct look *look)
{
    struct paint p = {
        .c = c, .lo = 0, .hi = 1, .has_colour = look->colours >= colours_of(c), .look = look};
    p.is_category = is_category(c);
    if (c->field > 0)
        p.map = cells_range(c->probe, c->field, look, &p.lo, &p.hi);
    if (c->full > 0) {
        p.map = look->theme ? look->theme->sequential : "viridis";
        p.lo = 0;
        p.hi = c->full;
    }
    return p;
}

static double unit_of(const struct paint *p, int layer, int token)
{
    return (cells_value(p->c->probe, p->c->field, layer, token) - p->lo) / (p->hi - p->lo);
}

/* The number of a category, -1 where there is none. */
static long category_of(const struct cells *c, int layer, int token)
{
    double x = cells_value(c->probe, c->field, layer, token);
    return x >= 0 && x <= 1e9 ? (long)x : -1;
}

/* Its colour repeats every 8 and its letter every 62, so that 248 of them differ; the number itself
 * where it fits. */
static int32_t category_colour(long n)
{
    return n < 0 ? ROLE_BACKGROUND : ROLE_SERIES_0 + (int32_t)(n % ROLE_SERIES_COUNT);
}

static void put_category(struct area a, int y, int x, int w, long n, int has_colour)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    char text[24];
    struct ink i = has_colour ? (struct ink){.fg = INK_CONTRAST, .bg = category_colour(n)}
                              : ink(n < 0 ? ROLE_GRID : ROLE_TEXT);
    int len = snprintf(text, sizeof text, "%ld", n);
    if (n < 0 || len > w)
        len = snprintf(text, sizeof text, "%c",
                       n < 0 ? '.' : letters[n % (long)(sizeof letters - 1)]);
    for (int k = 0; k < w; k++)
        area_put(a, y, x + k, ' ', i);
    for (int k = 0; k < len; k++)
        area_put(a, y, x + (w - len) / 2 + k,
                 n < 0 ? area_rune(a, 0xB7, '.') : (uint32_t)(unsigned char)text[k],
                 n < 0 ? ink(ROLE_GRID) : i);
}

static int forced(const struct cells *c, int layer, int token)
{
    return c->force ? c->force[(size_t)layer * (size_t)c->probe->tokens + (size_t)token] : -1;
}

/* Of a map of differences. */
static int32_t ground_signed(const struct paint *p, int layer, int token)
{
    double x = cells_value(p->c->probe, p->c->field, layer, token) / p->c->span;
    enum role role = x < 0 ? ROLE_SERIES_1 : ROLE_SERIES_2;
    if (isnan(x))
        return ROLE_BACKGROUND;
    if (x == 0 || fabs(x) >= 1 || p->look->colours < 256)
        return x == 0 ? ROLE_SKIP : role;
    return cells_mix(p->look, role, floor(fabs(x) * HEAT_LEVELS + 0.5) / HEAT_LEVELS);
}

/* The background of a cell: a role, a colour of the map, or the default without a value. */
static int32_t ground(const struct paint *p, int layer, int token)
{
    static const enum role role[] = {[CELL_SKIP] = ROLE_SKIP,
                                     [CELL_RUN] = ROLE_RUN,
                                     [CELL_ALWAYS_ON] = ROLE_FORCED,
                                     [CELL_FORCED] = ROLE_FORCED,
                                     [CELL_UNKNOWN] = ROLE_BACKGROUND};
    if (p->c->fixed && p->c->fixed[layer])
        return ROLE_FORCED;
    if (p->c->span > 0)
        return ground_signed(p, layer, token);
    if (p->is_category)
        return category_colour(category_of(p->c, layer, token));
    if (p->c->field <= 0)
        return (int32_t)role[cells_state(p->c, layer, token)];
    double u = p->map ? unit_of(p, layer, token) : (double)NAN;
    return isnan(u) ? ROLE_BACKGROUND : heat_ink(p->map, u);
}

/* Without colours a value is shown by the density of its glyph. */
static void put_plain(struct area a, int y, int x, int w, const struct paint *p, int layer,
                      int token)
{
    if (p->c->span > 0) { /* its sign, if any, is put on top */
        for (int k = 0; k < w; k++)
            area_put(a, y, x + k, area_rune(a, 0xB7, '.'), ink(ROLE_DIM));
        return;
    }
    if (p->c->fixed && p->c->fixed[layer]) { /* not a glyph that stands for a value */
        int is_ground = a.canvas->look.colours >= 16;
        for (int k = 0; k < w; k++)
            area_put(a, y, x + k, is_ground ? ' ' : area_rune(a, 0x2550, '|'),
                     is_ground ? ink_on(ROLE_TEXT, ROLE_FORCED) : ink(ROLE_TEXT));
        return;
    }
    if (p->c->field > 0) {
        area_heat(a, y, x, w, "grey", p->map ? unit_of(p, layer, token) : (double)NAN);
        return;
    }
    enum cell_state s = cells_state(p->c, layer, token);
    uint32_t rune = s == CELL_UNKNOWN ? ' '
                    : s == CELL_SKIP  ? area_rune(a, 0xB7, '.')
                    : s == CELL_RUN   ? area_rune(a, 0x2588, '#')
                                      : area_rune(a, 0x2592, '=');
    for (int k = 0; k < w; k++)
        area_put(a, y, x + k, rune, ink(s == CELL_SKIP ? ROLE_DIM : ROLE_TEXT));
}

/* The sign on a cell: forced by the user, or estimated to differ from the recorded decision. */
static char sign_of(const struct cells *c, int layer, int token)
{
    size_t at = (size_t)layer * (size_t)c->probe->tokens + (size_t)token;
    int f = forced(c, layer, token);
    if (c->span > 0) {
        double x = cells_value(c->probe, c->field, layer, token);
        return (char)(x > 0 ? '+' : x < 0 ? '-' : 0);
    }
    if (f >= 0)
        return f ? '+' : '-';
    return c->run && c->probe->run && (c->run[at] != 0) != (c->probe->run[at] != 0) ? '~' : 0;
}

static void put_cell(struct area a, int y, int x, int w, const struct paint *p, int layer,
                     int token, int is_middle)
{
    char sign = is_middle ? sign_of(p->c, layer, token) : 0;
    int32_t bg = ground(p, layer, token);
    if (p->is_category && !(p->c->fixed && p->c->fixed[layer])) {
        put_category(a, y, x, w, is_middle || !p->has_colour ? category_of(p->c, layer, token) : -1,
                     p->has_colour);
        for (int k = 0; !is_middle && k < w; k++)
            area_put(a, y, x + k, ' ', (struct ink){.fg = INK_CONTRAST, .bg = bg});
    } else if (p->has_colour) {
        for (int k = 0; k < w; k++)
            area_put(a, y, x + k, ' ', (struct ink){.fg = INK_CONTRAST, .bg = bg});
        if (bg == ROLE_BACKGROUND && is_middle)
            area_put(a, y, x + w / 2, area_rune(a, 0xB7, '.'), ink(ROLE_GRID));
    } else {
        put_plain(a, y, x, w, p, layer, token);
    }
    if (sign)
        area_put(a, y, x + w / 2, (uint32_t)(unsigned char)sign,
                 p->has_colour ? (struct ink){.fg = INK_CONTRAST, .bg = bg, .attr = ATTR_BOLD}
                               : ink_attr(ink(ROLE_MARKED), ATTR_BOLD));
}

/* The cursor: that of the terminal where this view has the focus, else a sign in the cell. */
static void put_cursor(struct area a, int y, int x, int w, const struct paint *p, int32_t bg)
{
    struct ink i = p->has_colour ? (struct ink){.fg = INK_CONTRAST, .bg = bg, .attr = ATTR_BOLD}
                                 : ink_attr(ink(ROLE_TITLE), ATTR_BOLD | ATTR_REVERSE);
    if (p->c->has_focus && y >= 0 && y < a.rows && x + w / 2 < a.cols) {
        a.canvas->cursor_y = a.y + y;
        a.canvas->cursor_x = a.x + x + w / 2;
    } else if (w == 1) {
        area_put(a, y, x, 'o', i);
    } else {
        area_put(a, y, x, '[', i);
        area_put(a, y, x + w - 1, ']', i);
    }
}

/* ---- layout ---- */

static int can_pair(const struct look *look, const struct cells *c)
{
    /* half a cell has no room for the letter of a category */
    return look->glyphs != GLYPHS_ASCII && look->colours >= colours_of(c) && !is_category(c);
}

/* Lines around the cells, as space allows: tokens above, depth and token numbers below; spare rows
 * first make the cells taller, then show loss and entropy in the same columns. */
struct frame {
    int above, below, tracks, track_rows, lines, height, per_row;
};

enum { TRACKS_MAX = 4, TRACK_ROWS_MAX = 4 };

/* The i-th per-token series below the map; 0 past the last one. */
static int track(const struct cells *c, int i, const char **label, const float **v)
{
    const struct probe *p = c->probe;
    const struct vector *truth = probe_token(p, "true_entropy");
    const struct vector *needed = probe_token(p, "needed");
    static const char *const names[TRACKS_MAX] = {"loss", "entr.", "true", "need"};
    const float *values[TRACKS_MAX] = {p->nll, p->entropy, truth ? truth->v : NULL,
                                       needed ? needed->v : NULL};
    for (int k = 0; k < TRACKS_MAX; k++) {
        if (!values[k] || i-- > 0)
            continue;
        *label = names[k];
        *v = values[k];
        return 1;
    }
    return 0;
}

static struct frame frame_of(const struct cells *c, const struct look *look, int rows)
{
    struct frame f = {.above = rows >= 4 && !(c->hides & CELLS_HIDES_TOKENS),
                      .below = c->hides & CELLS_HIDES_BELOW ? 0 : (rows >= 3) + (rows >= 7),
                      .height = 1,
                      .per_row = 1};
    const char *label;
    const float *v;
    int layers = c->probe->layers, room = rows - f.above - f.below, has = 0;
    f.per_row = layers > room && can_pair(look, c) ? 2 : 1;
    f.lines = (layers + f.per_row - 1) / f.per_row;
    while (track(c, has, &label, &v))
        has++;
    if (c->hides & CELLS_HIDES_BELOW)
        has = 0;
    int spare = room - f.lines;
    if (spare < 0)
        return f;
    f.tracks = spare >= has ? has : 0;
    spare -= f.tracks;
    while (f.height < HEIGHT_MAX && spare >= f.lines) {
        f.height++;
        spare -= f.lines;
    }
    f.track_rows = 1;
    if (c->hides & CELLS_HIDES_BELOW)
        return f;
    while (f.track_rows < TRACK_ROWS_MAX && spare >= f.tracks + 1) {
        f.track_rows++;
        spare -= f.tracks + 1;
    }
    f.below = (f.tracks + 1) * f.track_rows + (f.below > 1);
    return f;
}

int cells_map_least(const struct cells *c, const struct look *look)
{
    int layers = c->probe->layers;
    return 3 + (can_pair(look, c) ? (layers + 1) / 2 : layers);
}

int cells_map_rows(const struct cells *c, const struct look *look, int most)
{
    struct frame f = frame_of(c, look, most);
    int rows = f.lines * f.height + f.above + f.below;
    return rows > most ? most : rows;
}

static int token_width(int room, int tokens)
{
    static const int widths[] = {8, 6, 4, 3, 2};
    for (size_t i = 0; i < DS_LEN(widths); i++)
        if ((long)widths[i] * tokens <= room)
            return widths[i];
    return 1;
}

/* The layout and the visible part; it scrolls by half a window, so that few steps scroll. */
static void arrange(struct cells *c, struct area a, const struct frame *f, int y0, int x0)
{
    struct cells_at *at = &c->at;
    int gutter = a.cols >= 30 ? GUTTER : 3, layers = c->probe->layers;
    int room = a.cols - gutter, rows = a.rows - f->above - f->below;
    at->width = c->wide ? 2 << c->wide : token_width(room, c->probe->tokens);
    at->width = at->width > room ? room < 1 ? 1 : room : at->width;
    at->gap = at->width >= 3;
    at->tokens = room / at->width < c->probe->tokens ? room / at->width : c->probe->tokens;
    at->tokens = at->tokens < 1 ? 1 : at->tokens;
    if (c->token < c->first_token || c->token >= c->first_token + at->tokens)
        c->first_token = c->token - at->tokens / 2;
    if (c->first_token > c->probe->tokens - at->tokens)
        c->first_token = c->probe->tokens - at->tokens;
    c->first_token = c->first_token < 0 ? 0 : c->first_token;
    at->per_row = f->per_row;
    at->height = f->height;
    at->rows = f->lines * f->height < rows ? f->lines * f->height : rows < 0 ? 0 : rows;
    int shown = c->is_upward ? layers - 1 - c->layer : c->layer,
        fit = at->rows / at->height * at->per_row;
    if (shown < c->first_layer || shown >= c->first_layer + fit)
        c->first_layer = (shown - fit / 2) / at->per_row * at->per_row;
    if (c->first_layer + fit > layers)
        c->first_layer = (layers - fit + at->per_row - 1) / at->per_row * at->per_row;
    c->first_layer = c->first_layer < 0 ? 0 : c->first_layer;
    at->map_y = y0 + f->above;
    at->map_x = x0 + gutter;
}

/* ---- parts ---- */

static int layer_at(const struct cells *c, int line, int half)
{
    int shown = c->first_layer + line * c->at.per_row + half, layers = c->probe->layers;
    return shown >= layers ? -1 : c->is_upward ? layers - 1 - shown : shown;
}

static void draw_header(struct area a, const struct cells *c, int gutter)
{
    if (gutter >= GUTTER)
        area_text(a, 0, 0, gutter - 1, ink(ROLE_DIM), cells_is_iterated(c) ? "iter." : "layer");
    for (int k = 0; k < c->at.tokens; k++) {
        int t = c->first_token + k;
        struct ink i = ink(c->mark && c->mark[t] ? ROLE_MARKED : ROLE_AXIS);
        if (t == c->seen_token)
            i = ink_attr(ink(ROLE_TITLE), ATTR_BOLD | ATTR_REVERSE);
        else if (c->mark && c->mark[t])
            i.attr |= ATTR_UNDERLINE | ATTR_BOLD;
        cells_piece(a, 0, gutter + k * c->at.width, c->at.width - c->at.gap, i, c->probe, t);
    }
}

static void draw_axis(struct area a, const struct cells *c, int gutter)
{
    int lines = c->at.rows / c->at.height, every = c->at.per_row;
    for (int i = 0; i < lines; i++) {
        int l = layer_at(c, i, 0), low = layer_at(c, i, every - 1),
            is_here = l == c->layer || low == c->layer;
        char text[16];
        snprintf(text, sizeof text, "%d", l);
        int x = gutter - 1 - (int)strlen(text), y = i * c->at.height + c->at.height / 2;
        area_text(a, y, x < 0 ? 0 : x, gutter - 1, ink(ROLE_AXIS), text);
        if (is_here && gutter >= GUTTER)
            area_put(a, y, 0, area_rune(a, 0x203A, '>'), ink(ROLE_AXIS));
    }
}

static void draw_pair(struct area a, int y, int x, int w, const struct paint *p, int upper,
                      int lower, int token)
{
    const struct cells *c = p->c;
    int32_t top = ground(p, upper, token),
            bottom = lower >= 0 ? ground(p, lower, token) : ROLE_BACKGROUND;
    int f = forced(c, upper, token),
        g = lower >= 0 ? forced(c, lower, token) : -1; /* too narrow for signs: uses colours */
    top = f < 0 ? top : f ? ROLE_MARKED : ROLE_BAD;
    bottom = g < 0 ? bottom : g ? ROLE_MARKED : ROLE_BAD;
    int is_here = token == c->token && (upper == c->layer || lower == c->layer);
    if (is_here && !c->has_focus && upper == c->layer)
        top = ROLE_TITLE;
    else if (is_here && !c->has_focus)
        bottom = ROLE_TITLE;
    else if (is_here)
        put_cursor(a, y, x, w, p, top);
    for (int k = 0; k < w; k++)
        area_put(a, y, x + k, top == bottom ? ' ' : 0x2580,
                 (struct ink){.fg = top == bottom ? INK_CONTRAST : top, .bg = bottom});
    if (top == ROLE_BACKGROUND && bottom == ROLE_BACKGROUND)
        area_put(a, y, x + w / 2, 0xB7, ink(ROLE_GRID));
}

static void draw_cells(struct area a, const struct paint *p)
{
    const struct cells *c = p->c;
    const struct cells_at *at = &c->at;
    int w = at->width - at->gap;
    for (int y = 0; y < at->rows; y++) {
        int upper = layer_at(c, y / at->height, 0),
            lower = at->per_row == 2 ? layer_at(c, y / at->height, 1) : -1;
        for (int k = 0; k < at->tokens && upper >= 0; k++) {
            int t = c->first_token + k, is_middle = y % at->height == at->height / 2;
            if (at->per_row == 2)
                draw_pair(a, y, k * at->width, w, p, upper, lower, t);
            else
                put_cell(a, y, k * at->width, w, p, upper, t, is_middle);
            if (at->per_row == 1 && t == c->token && upper == c->layer && is_middle)
                put_cursor(a, y, k * at->width, w, p, ground(p, upper, t));
        }
    }
}

static void draw_numbers(struct area a, const struct cells *c, int gutter)
{
    static const int steps[] = {1,   2,   5,    10,   20,   50,    100,
                                200, 500, 1000, 2000, 5000, 10000, 100000};
    int last = c->first_token + c->at.tokens, digits = snprintf(NULL, 0, "%d", last), every = 1;
    for (size_t i = 0; i < DS_LEN(steps); i++) {
        every = steps[i];
        if (every * c->at.width >= digits + 2 && (every == 1 || every >= 5 || c->at.width > 1))
            break;
    }
    if (gutter >= GUTTER)
        area_text(a, 0, 0, gutter - 1, ink(ROLE_DIM), "token");
    for (int t = (c->first_token + every - 1) / every * every; t < last; t += every)
        area_textf(a, 0, gutter + (t - c->first_token) * c->at.width, -1, ink(ROLE_DIM), "%d", t);
}

/* A vertical bar of a few rows; empty without a value. */
static void put_bar(struct area a, int x, int w, double unit, enum role r)
{
    for (int y = a.rows - 1; y >= 0 && !isnan(unit); y--) {
        double part = unit * a.rows - (a.rows - 1 - y);
        if (part > 0 || y == a.rows - 1)
            spark_draw(area_sub(a, y, x, 1, w),
                       (double[]){part > 1   ? 1
                                  : part < 0 ? 0
                                             : part},
                       1, 0, 1, r);
    }
}

static void draw_track(struct area a, const struct cells *c, int gutter, const char *label,
                       const float *v, enum role r)
{
    double top = v ? 0 : c->probe->layers;
    for (int t = 0; v && t < c->probe->tokens; t++)
        top = isfinite(v[t]) && (double)v[t] > top ? (double)v[t] : top;
    if (a.rows >= 3) /* a blank line between tall ones */
        a = area_sub(a, 1, 0, a.rows - 1, a.cols);
    if (gutter >= GUTTER)
        area_text(a, a.rows / 2, 0, gutter - 1, ink(ROLE_DIM), label);
    for (int k = 0; k < c->at.tokens; k++) {
        int t = c->first_token + k;
        double x = v ? (double)v[t] : cells_depth(c->probe, c->run, t);
        put_bar(a, gutter + k * c->at.width, c->at.width - c->at.gap, top > 0 ? x / top : x,
                t == c->seen_token ? ROLE_TITLE : r);
    }
}

static void draw_below(struct area a, const struct cells *c, const struct frame *f, int gutter)
{
    static const enum role role[TRACKS_MAX] = {ROLE_SERIES_1, ROLE_SERIES_4, ROLE_SERIES_2,
                                               ROLE_SERIES_3};
    const char *label;
    const float *v;
    int y = 0, rows = f->track_rows < 1 ? 1 : f->track_rows;
    draw_track(area_sub(a, y, 0, rows, a.cols), c, gutter,
               c->depth_label ? c->depth_label : "depth", NULL, ROLE_RUN);
    y += rows;
    for (int i = 0; i < f->tracks && track(c, i, &label, &v); i++, y += rows)
        draw_track(area_sub(a, y, 0, rows, a.cols), c, gutter, label, v, role[i]);
    if (y < a.rows)
        draw_numbers(area_sub(a, y, 0, 1, a.cols), c, gutter);
}

void cells_map_draw(struct area a, struct cells *c)
{
    struct frame f = frame_of(c, &a.canvas->look, a.rows);
    int y0 = c->at.map_y, x0 = c->at.map_x; /* the caller stored the origin of the area there */
    arrange(c, a, &f, y0, x0);
    int gutter = c->at.map_x - x0;
    struct paint p = paint_of(c, &a.canvas->look);
    if (f.above)
        draw_header(a, c, gutter);
    draw_axis(area_sub(a, f.above, 0, c->at.rows, gutter), c, gutter);
    draw_cells(area_sub(a, f.above, gutter, c->at.rows, a.cols - gutter), &p);
    if (f.below)
        draw_below(area_sub(a, f.above + c->at.rows, 0, f.below, a.cols), c, &f, gutter);
}

/* ---- legend ---- */

/* 1 where a cell is CELL_FORCED. */
static int has_forced(const struct cells *c)
{
    const struct probe *p = c->probe;
    const unsigned char *run = c->run ? c->run : p->run;
    const struct matrix *forced = probe_cell(p, "forced");
    size_t tokens = (size_t)p->tokens;
    for (size_t i = 0; forced && run && i < (size_t)p->layers * tokens; i++)
        if (run[i] && forced->v[i] > 0 && !(c->force && c->force[i] >= 0) &&
            !(i / tokens < (size_t)c->always_on_n && c->always_on[i / tokens]))
            return 1;
    return 0;
}

/* What its colour means here: NULL where no layer is always on and no cell forced. */
static const char *forced_word(const struct cells *c)
{
    int any = 0;
    for (int l = 0; c->fixed && l < c->probe->layers; l++)
        any |= c->fixed[l];
    for (int l = 0; l < c->always_on_n; l++)
        any |= c->always_on[l];
    if (has_forced(c))
        return any ? "always on, forced" : "forced";
    return any ? "always on" : NULL;
}

static int legend_states(struct area line, int x_end, const struct cells *c)
{
    const struct {
        const char *text;
        enum role role;
        uint32_t rune;
        char ascii;
    } row[] = {{"executed", ROLE_RUN, 0x2588, '#'},
               {forced_word(c), ROLE_FORCED, 0x2592, '='},
               {"skipped", ROLE_SKIP, 0xB7, '.'}};
    int x = x_end, has_colour = line.canvas->look.colours >= 16;
    if (!c->run && !c->probe->run)
        return area_right(line, 0, x, ink(ROLE_WARN), "decisions not recorded");
    if (c->probe->run_is_inferred)
        x = area_right(line, 0, x, ink(ROLE_WARN), "inferred") - 2;
    for (size_t i = DS_LEN(row); i-- > 0;) {
        if (!row[i].text)
            continue;
        x = area_right(line, 0, x, ink(ROLE_DIM), row[i].text) - 2;
        if (has_colour)
            area_put(line, 0, x, ' ', ink_on(ROLE_TEXT, row[i].role));
        else
            area_put(line, 0, x, area_rune(line, row[i].rune, row[i].ascii), ink(ROLE_TEXT));
        x -= 2;
    }
    return x + 2;
}

/* The first numbers with their colours and letters. */
static int legend_categories(struct area line, int x_end, int has_colour)
{
    int x = area_right(line, 0, x_end, ink(ROLE_DIM), "...") - 1;
    for (int n = ROLE_SERIES_COUNT; n-- > 0;)
        put_category(line, 0, --x, 1, n, has_colour);
    return x;
}

int cells_legend(struct area line, int x_end, struct cells *c)
{
    enum { STEPS = 8 };
    char lo[24], hi[24];
    if (c->field <= 0)
        return legend_states(line, x_end, c);
    struct paint p = paint_of(c, &line.canvas->look);
    if (cells_is_inferred(c->probe, c->field))
        x_end = area_right(line, 0, x_end, ink(ROLE_WARN), "inferred") - 1;
    if (p.is_category)
        return area_right(line, 0, legend_categories(line, x_end, p.has_colour) - 1,
                          ink_attr(ink(ROLE_TITLE), ATTR_BOLD),
                          cells_field_name(c->probe, c->field));
    if (!p.map)
        return area_right(line, 0, x_end, ink(ROLE_WARN), "no values");
    int x = area_right(line, 0, x_end, ink(ROLE_DIM), num_print(hi, p.hi)) - 1 - STEPS;
    for (int k = 0; k < STEPS; k++)
        area_heat(line, 0, x + k, 1, p.map, (double)k / (STEPS - 1));
    x = area_right(line, 0, x - 1, ink(ROLE_DIM), num_print(lo, p.lo)) - 1;
    return area_right(line, 0, x, ink_attr(ink(ROLE_TITLE), ATTR_BOLD),
                      cells_field_name(c->probe, c->field));
}
