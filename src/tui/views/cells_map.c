/* The map itself: a column per token, a row per layer; two layers share a row when space is short. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tui/cells.h"
#include "tui/widgets.h"

enum { GUTTER = 6, HEIGHT_MAX = 3 };

/* How a field is turned into colours, once per draw. */
struct paint { struct cells *c; const char *map; double lo, hi; int has_colour; };

static struct paint paint_of(struct cells *c, const struct look *look)
{
    struct paint p = {.c = c, .lo = 0, .hi = 1, .has_colour = look->colours >= (c->field > 0 ? 256 : 16)};
    if (c->field > 0)
        p.map = cells_range(c->probe, c->field, look, &p.lo, &p.hi);
    return p;
}

static double unit_of(const struct paint *p, int layer, int token)
{
    return (cells_value(p->c->probe, p->c->field, layer, token) - p->lo) / (p->hi - p->lo);
}

static int forced(const struct cells *c, int layer, int token)
{
    return c->force ? c->force[(size_t)layer * (size_t)c->probe->tokens + (size_t)token] : -1;
}

/* The ground of a cell: a role, a colour of the map, or the background where there is no value. */
static int32_t ground(const struct paint *p, int layer, int token)
{
    static const enum role role[] = {[CELL_SKIP] = ROLE_SKIP, [CELL_RUN] = ROLE_RUN, [CELL_RULE] = ROLE_FORCED};
    if (p->c->field <= 0)
        return (int32_t)role[cells_state(p->c, layer, token)];
    double u = p->map ? unit_of(p, layer, token) : (double)NAN;
    return isnan(u) ? ROLE_BACKGROUND : heat_ink(p->map, u);
}

/* Without colours a cell is an amount of ink. */
static void put_plain(struct area a, int y, int x, int w, const struct paint *p, int layer, int token)
{
    if (p->c->field > 0) {
        area_heat(a, y, x, w, "grey", p->map ? unit_of(p, layer, token) : (double)NAN);
        return;
    }
    enum cell_state s = cells_state(p->c, layer, token);
    uint32_t rune = s == CELL_SKIP ? area_rune(a, 0xB7, '.') : s == CELL_RUN ? area_rune(a, 0x2588, '#') : area_rune(a, 0x2592, '=');
    for (int k = 0; k < w; k++)
        area_put(a, y, x + k, rune, ink(s == CELL_SKIP ? ROLE_DIM : ROLE_TEXT));
}

/* What lies upon a cell: forced by a person, or supposed other than it was. */
static char sign_of(const struct cells *c, int layer, int token)
{
    size_t at = (size_t)layer * (size_t)c->probe->tokens + (size_t)token;
    int f = forced(c, layer, token);
    if (f >= 0)
        return f ? '+' : '-';
    return c->run && c->probe->run && (c->run[at] != 0) != (c->probe->run[at] != 0) ? '~' : 0;
}

static void put_cell(struct area a, int y, int x, int w, const struct paint *p, int layer, int token, int has_sign)
{
    char sign = has_sign ? sign_of(p->c, layer, token) : 0;
    int32_t bg = ground(p, layer, token);
    if (p->has_colour) {
        for (int k = 0; k < w; k++)
            area_put(a, y, x + k, ' ', (struct ink){.fg = INK_CONTRAST, .bg = bg});
        if (bg == ROLE_BACKGROUND)
            area_put(a, y, x + w / 2, area_rune(a, 0xB7, '.'), ink(ROLE_DIM));
    } else {
        put_plain(a, y, x, w, p, layer, token);
    }
    if (sign)
        area_put(a, y, x + w / 2, (uint32_t)(unsigned char)sign,
                 p->has_colour ? (struct ink){.fg = INK_CONTRAST, .bg = bg, .attr = ATTR_BOLD} : ink_attr(ink(ROLE_MARKED), ATTR_BOLD));
}

/* The cursor changes a cell or two and nothing else. */
static void put_cursor(struct area a, int y, int x, int w, int32_t bg, int has_colour)
{
    struct ink i = has_colour ? (struct ink){.fg = INK_CONTRAST, .bg = bg, .attr = ATTR_BOLD}
                              : ink_attr(ink(ROLE_TITLE), ATTR_BOLD | ATTR_REVERSE);
    if (w == 1) {
        area_put(a, y, x, 'o', i);
        return;
    }
    area_put(a, y, x, '[', i);
    area_put(a, y, x + w - 1, ']', i);
}

/* ---- how it fits ---- */

static int can_pair(const struct look *look, int field)
{
    return look->glyphs != GLYPHS_ASCII && look->colours >= (field > 0 ? 256 : 16);
}

/* Lines around the cells: tokens above, depth and numbers below, as far as there is room. */
static void frame_rows(int rows, int *above, int *below)
{
    *above = rows >= 4;
    *below = (rows >= 3) + (rows >= 7);
}

int cells_map_rows(const struct cells *c, const struct look *look, int most)
{
    int above, below, layers = c->probe->layers;
    frame_rows(most, &above, &below);
    int room = most - above - below;
    if (layers > room && can_pair(look, c->field))
        layers = (layers + 1) / 2;
    int tall = layers > 0 ? room / layers : 1;
    tall = tall > HEIGHT_MAX ? HEIGHT_MAX : tall < 1 ? 1 : tall;
    return layers > room ? most : layers * tall + above + below;
}

static int token_width(int room, int tokens)
{
    static const int widths[] = {8, 6, 4, 3, 2};
    for (size_t i = 0; i < DS_LEN(widths); i++)
        if ((long)widths[i] * tokens <= room)
            return widths[i];
    return 1;
}

/* Where things lie, and what part shows; scrolling goes by half a window so that few steps scroll. */
static void arrange(struct cells *c, struct area a, int y0, int x0)
{
    struct cells_at *at = &c->at;
    int above, below, gutter = a.cols >= 30 ? GUTTER : 3, layers = c->probe->layers;
    frame_rows(a.rows, &above, &below);
    int room = a.cols - gutter, rows = a.rows - above - below;
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
    at->per_row = layers > rows && can_pair(&a.canvas->look, c->field) ? 2 : 1;
    int lines = (layers + at->per_row - 1) / at->per_row;
    at->height = lines > 0 && rows / lines > 1 ? rows / lines : 1;
    at->height = at->height > HEIGHT_MAX ? HEIGHT_MAX : at->height;
    at->rows = lines * at->height < rows ? lines * at->height : rows;
    int shown = c->is_upward ? layers - 1 - c->layer : c->layer, fit = at->rows / at->height * at->per_row;
    if (shown < c->first_layer || shown >= c->first_layer + fit)
        c->first_layer = (shown - fit / 2) / at->per_row * at->per_row;
    if (c->first_layer + fit > layers)
        c->first_layer = (layers - fit + at->per_row - 1) / at->per_row * at->per_row;
    c->first_layer = c->first_layer < 0 ? 0 : c->first_layer;
    at->map_y = y0 + above;
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
        area_text(a, 0, 0, gutter - 1, ink(ROLE_DIM), "layer");
    for (int k = 0; k < c->at.tokens; k++) {
        int t = c->first_token + k;
        struct ink i = ink(c->mark && c->mark[t] ? ROLE_MARKED : ROLE_AXIS);
        if (t == c->token)
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
        int l = layer_at(c, i, 0), low = layer_at(c, i, every - 1), is_here = l == c->layer || low == c->layer;
        struct ink k = is_here ? ink_attr(ink(ROLE_TITLE), ATTR_BOLD) : ink(ROLE_AXIS);
        char text[16];
        snprintf(text, sizeof text, "%d", is_here ? c->layer : l);
        int x = gutter - 1 - (int)strlen(text);
        area_text(a, i * c->at.height + c->at.height / 2, x < 0 ? 0 : x, gutter - 1, k, text);
        if (is_here && gutter >= GUTTER)
            area_put(a, i * c->at.height + c->at.height / 2, 0, area_rune(a, 0x203A, '>'), k);
    }
}

static void draw_pair(struct area a, int y, int x, int w, const struct paint *p, int upper, int lower, int token)
{
    const struct cells *c = p->c;
    int32_t top = ground(p, upper, token), bottom = lower >= 0 ? ground(p, lower, token) : ROLE_BACKGROUND;
    if (token == c->token && upper == c->layer)
        top = ROLE_TITLE;
    if (token == c->token && lower == c->layer)
        bottom = ROLE_TITLE;
    for (int k = 0; k < w; k++)
        area_put(a, y, x + k, top == bottom ? ' ' : 0x2580, (struct ink){.fg = top == bottom ? INK_CONTRAST : top, .bg = bottom});
    if (top == ROLE_BACKGROUND && bottom == ROLE_BACKGROUND)
        area_put(a, y, x + w / 2, 0xB7, ink(ROLE_DIM));
}

static void draw_cells(struct area a, const struct paint *p)
{
    const struct cells *c = p->c;
    const struct cells_at *at = &c->at;
    int w = at->width - at->gap;
    for (int y = 0; y < at->rows; y++) {
        int upper = layer_at(c, y / at->height, 0), lower = at->per_row == 2 ? layer_at(c, y / at->height, 1) : -1;
        for (int k = 0; k < at->tokens && upper >= 0; k++) {
            int t = c->first_token + k, is_middle = y % at->height == at->height / 2;
            if (at->per_row == 2)
                draw_pair(a, y, k * at->width, w, p, upper, lower, t);
            else
                put_cell(a, y, k * at->width, w, p, upper, t, is_middle);
            if (at->per_row == 1 && t == c->token && upper == c->layer && is_middle)
                put_cursor(a, y, k * at->width, w, ground(p, upper, t), p->has_colour);
        }
    }
}

static void draw_depth(struct area a, const struct cells *c, int gutter)
{
    if (gutter >= GUTTER)
        area_text(a, 0, 0, gutter - 1, ink(ROLE_DIM), "depth");
    for (int k = 0; k < c->at.tokens; k++) {
        int t = c->first_token + k;
        double d = cells_depth(c->probe, c->run, t);
        spark_draw(area_sub(a, 0, gutter + k * c->at.width, 1, c->at.width - c->at.gap), &d, 1, 0, c->probe->layers,
                   t == c->token ? ROLE_TITLE : ROLE_RUN);
    }
}

static void draw_numbers(struct area a, const struct cells *c, int gutter)
{
    static const int steps[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 100000};
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

void cells_map_draw(struct area a, struct cells *c)
{
    int y0 = c->at.map_y, x0 = c->at.map_x, above, below; /* the caller left the area's origin there */
    frame_rows(a.rows, &above, &below);
    arrange(c, a, y0, x0);
    int gutter = c->at.map_x - x0;
    struct paint p = paint_of(c, &a.canvas->look);
    if (above)
        draw_header(a, c, gutter);
    draw_axis(area_sub(a, above, 0, c->at.rows, gutter), c, gutter);
    draw_cells(area_sub(a, above, gutter, c->at.rows, a.cols - gutter), &p);
    if (below >= 1)
        draw_depth(area_sub(a, above + c->at.rows, 0, 1, a.cols), c, gutter);
    if (below >= 2)
        draw_numbers(area_sub(a, above + c->at.rows + 1, 0, 1, a.cols), c, gutter);
}

/* ---- legend ---- */

static int legend_states(struct area line, int x_end, const struct cells *c)
{
    static const struct { const char *text; enum role role; enum cell_state state; uint32_t rune; char ascii; } row[] = {
        {"run", ROLE_RUN, CELL_RUN, 0x2588, '#'}, {"by rule", ROLE_FORCED, CELL_RULE, 0x2592, '='},
        {"skipped", ROLE_SKIP, CELL_SKIP, 0xB7, '.'}};
    int x = x_end, has_colour = line.canvas->look.colours >= 16;
    (void)c;
    for (size_t i = DS_LEN(row); i-- > 0;) {
        x = area_right(line, 0, x, ink(ROLE_DIM), row[i].text) - 2;
        if (has_colour)
            area_put(line, 0, x, ' ', ink_on(ROLE_TEXT, row[i].role));
        else
            area_put(line, 0, x, area_rune(line, row[i].rune, row[i].ascii), ink(ROLE_TEXT));
        x -= 2;
    }
    return x + 2;
}

int cells_legend(struct area line, int x_end, struct cells *c)
{
    enum { STEPS = 8 };
    char lo[24], hi[24];
    if (c->field <= 0)
        return legend_states(line, x_end, c);
    struct paint p = paint_of(c, &line.canvas->look);
    if (!p.map)
        return area_right(line, 0, x_end, ink(ROLE_WARN), "no values here");
    int x = area_right(line, 0, x_end, ink(ROLE_DIM), num_print(hi, p.hi)) - 1 - STEPS;
    for (int k = 0; k < STEPS; k++)
        area_heat(line, 0, x + k, 1, p.map, (double)k / (STEPS - 1));
    x = area_right(line, 0, x - 1, ink(ROLE_DIM), num_print(lo, p.lo)) - 1;
    return area_right(line, 0, x, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), cells_field_name(c->probe, c->field));
}
