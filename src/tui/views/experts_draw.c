/* Draws the Experts view: the map of loads relative to ideal with the balance of every layer at its
 * right, and what is known of the expert at the cursor. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tui/experts.h"

enum {
    GUTTER = 6,
    SIDE = 22,
    SIDE_SMALL = 6,
    LEVELS = 16,
    OCTAVES = 3,
    VALUE_WIDTH = 6,
    HEIGHT_MAX = 3
};

static void draw_empty(struct view *v, struct area a)
{
    int y = a.rows > 6 ? a.rows / 2 - 2 : 0;
    if (app_draw_nothing(v->app, a))
        return;
    area_text(a, y, 2, a.cols - 3, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), "No experts recorded");
    struct scroll lines = {0};
    scroll_text(
        &lines, area_sub(a, y + 2, 2, a.rows - y - 2, a.cols - 4),
        "This run has no load of experts: it has no matrix record named expert_load (layers x "
        "experts: tokens assigned since the previous record) and no probe with the cell expert "
        "of kind category; in PyTorch, ds.watch(model, run) or run.matrix(\"expert_load\", "
        "counts) writes them.",
        ink(ROLE_TEXT));
}

/* ---- the colour of a load ---- */

/* Twice and half the load are as far from the centre: -1 .. 1, dead experts at the end. */
static double octaves(double relative)
{
    double x = relative > 0 ? log2(relative) / OCTAVES : -1;
    return x < -1 ? -1 : x > 1 ? 1 : x;
}

/* Quantised to an even number of levels, so that an ideal load has the neutral colour. */
static int32_t colour_of(const struct look *look, double relative)
{
    const char *map = look->theme ? look->theme->diverging : "balance";
    if (isnan(relative))
        return ROLE_BACKGROUND;
    return INK_RGB | cmap_rgb(map, floor((octaves(relative) + 1) / 2 * LEVELS + 0.5) / LEVELS);
}

/* Without colours, and for what a colour cannot tell: the sign of a load. */
static uint32_t sign_of(struct area a, double relative, enum role *role)
{
    *role = relative >= 2 ? ROLE_SERIES_1 : relative < 0.5 ? ROLE_SERIES_0 : ROLE_DIM;
    return isnan(relative)   ? ' '
           : relative >= 4   ? '#'
           : relative >= 2   ? '+'
           : !(relative > 0) ? 'x'
           : relative < 0.5  ? '-'
                             : area_rune(a, 0xB7, '.');
}

static int has_colour(struct area a)
{
    return a.canvas->look.colours >= 256;
}

static int has_halves(struct area a)
{
    return has_colour(a) && a.canvas->look.glyphs == GLYPHS_BRAILLE;
}

/* "2.3", "0.04", "31": at most 4 cells. */
static void print_load(char out[16], double x)
{
    snprintf(out, 16,
             isnan(x)                 ? "-"
             : x >= 9.95              ? "%.0f"
             : x >= 0.095 || !(x > 0) ? "%.1f"
                                      : "%.2f",
             x);
}

/* What is written on a cell: its value, or the sign of a dead expert, which a colour hardly tells
 * from one with a few tokens. */
static void put_words(struct area a, int y, int x, int w, double load, int has_value, struct ink i)
{
    char text[16];
    print_load(text, load);
    if (has_value && load > 0)
        area_right(area_sub(a, y, x, 1, w), 0, w, i, text);
    else if (!(load > 0))
        area_put(a, y, has_value ? x + w - 1 : x + w / 2, 'x', i);
}

/* A cell that shows one expert, or of several the hottest and the coldest. */
static void put_cell(struct area a, int y, int x, int w, const struct experts_span *d,
                     int is_middle, int has_value)
{
    const struct look *look = &a.canvas->look;
    int is_one = !(d->least < d->most), is_hot = d->most >= 2;
    enum role role;
    uint32_t sign = sign_of(a, is_hot ? d->most : d->least, &role);
    int32_t top = colour_of(look, d->most), bottom = colour_of(look, d->least);
    struct ink i = {.fg = INK_CONTRAST, .bg = is_hot ? top : bottom};
    if (isnan(d->most)) {
        area_put(a, y, x + w / 2, area_rune(a, 0xB7, '.'), ink(ROLE_GRID));
        return;
    }
    if (!has_colour(a))
        i = ink_attr(ink(role), is_hot ? ATTR_BOLD : 0);
    for (int k = 0; k < w; k++)
        if (!has_colour(a))
            area_put(a, y, x + k, has_value ? ' ' : sign, i);
        else if (!is_one && top != bottom && has_halves(a))
            area_put(a, y, x + k, 0x2580, (struct ink){.fg = top, .bg = bottom});
        else
            area_put(a, y, x + k, !is_one && !has_halves(a) && k == w / 2 ? sign : ' ', i);
    if (is_middle && is_one && (has_colour(a) || has_value))
        put_words(a, y, x, w, d->most, has_value, i);
}

/* ---- layout ---- */

static void arrange(struct experts *s, int rows, int cols)
{
    struct experts_at *at = &s->at;
    int experts = s->load.experts, layers = s->load.rows;
    rows = rows < 1 ? 1 : rows;
    cols = cols < 1 ? 1 : cols;
    at->per_col = at->per_row = 1;
    if (s->zoom == EXPERTS_WHOLE) {
        at->per_col = (experts + cols - 1) / cols;
        at->per_row = (layers + rows - 1) / rows;
    }
    int cells = (experts + at->per_col - 1) / at->per_col,
        lines = (layers + at->per_row - 1) / at->per_row;
    at->width = s->zoom == EXPERTS_VALUES ? VALUE_WIDTH : cols / cells;
    at->width = at->width < 1 ? 1 : at->width > VALUE_WIDTH ? VALUE_WIDTH : at->width;
    at->width = at->width > cols ? cols : at->width;
    at->cols = cols / at->width < cells ? cols / at->width : cells;
    at->rows = rows < lines ? rows : lines;
    at->height = rows / at->rows < HEIGHT_MAX ? rows / at->rows : HEIGHT_MAX;
    /* scrolls by half a window, so that few steps scroll */
    int shown = experts_row_at(s, s->row);
    if (shown < s->first_row || shown >= s->first_row + at->rows * at->per_row)
        s->first_row = (shown / at->per_row - at->rows / 2) * at->per_row;
    if (s->first_row > (lines - at->rows) * at->per_row)
        s->first_row = (lines - at->rows) * at->per_row;
    s->first_row = s->first_row < 0 ? 0 : s->first_row / at->per_row * at->per_row;
    if (s->expert < s->first_expert || s->expert >= s->first_expert + at->cols * at->per_col)
        s->first_expert = (s->expert / at->per_col - at->cols / 2) * at->per_col;
    if (s->first_expert > (cells - at->cols) * at->per_col)
        s->first_expert = (cells - at->cols) * at->per_col;
    s->first_expert = s->first_expert < 0 ? 0 : s->first_expert / at->per_col * at->per_col;
}

/* ---- the map ---- */

static void draw_numbers(struct area a, const struct experts *s, int gutter)
{
    static const int steps[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
    const struct experts_at *at = &s->at;
    int last = s->first_expert + at->cols * at->per_col, digits = snprintf(NULL, 0, "%d", last),
        every = at->per_col;
    for (size_t i = 0; i < DS_LEN(steps); i++) {
        every = steps[i] * at->per_col;
        if (steps[i] * at->width >= digits + 2)
            break;
    }
    if (gutter >= GUTTER)
        area_text(a, 0, 0, gutter - 1, ink(ROLE_DIM), "layer");
    for (int k = (s->first_expert + every - 1) / every * every; k < last && k < s->load.experts;
         k += every)
        area_textf(a, 0, gutter + (k - s->first_expert) / at->per_col * at->width, -1,
                   ink(ROLE_AXIS), "%d", k);
}

/* Balance of the layers of a line: of several the least even one, and all their dead experts. */
struct balance {
    double cv, hot;
    int expert, dead, is_collapsed;
};

static struct balance balance_of(const struct experts *s, int shown)
{
    struct balance b = {.cv = (double)NAN, .hot = (double)NAN};
    for (int i = shown; i < shown + s->at.per_row && i < s->load.rows; i++) {
        int row = experts_row_at(s, i);
        struct expert_row r = expert_row_of(&s->load, row);
        double hot = r.sum > 0
                         ? s->load.count[(size_t)row * (size_t)s->load.experts + (size_t)r.top] *
                               s->load.experts / r.sum
                         : (double)NAN;
        b.dead += r.sum > 0 ? r.dead : 0;
        b.cv = r.cv > b.cv || isnan(b.cv) ? r.cv : b.cv;
        b.is_collapsed |= expert_row_collapsed(&s->load, row);
        if (hot > b.hot || isnan(b.hot)) {
            b.hot = hot;
            b.expert = r.top;
        }
    }
    return b;
}

static void draw_balance(struct area a, int y, const struct balance *b, int is_small)
{
    char text[16];
    if (isnan(b->cv)) {
        area_right(a, y, 5, ink(ROLE_DIM), "-");
        return;
    }
    struct ink i = b->is_collapsed ? ink_attr(ink(ROLE_BAD), ATTR_BOLD) : ink(ROLE_TEXT);
    snprintf(text, sizeof text, b->cv < 9.995 ? "%.2f" : "%.1f", b->cv);
    area_right(a, y, 5, i, text);
    if (b->is_collapsed)
        area_put(a, y, 5, '!', i);
    if (is_small)
        return;
    area_right(a, y, 10, ink(ROLE_TEXT), (snprintf(text, sizeof text, "%d", b->expert), text));
    print_load(text, b->hot);
    area_right(a, y, 15, ink(b->hot >= 2 ? ROLE_WARN : ROLE_DIM), text);
    area_put(a, y, 15, 'x', ink(ROLE_DIM));
    if (b->dead)
        area_right(a, y, 21, ink(ROLE_TEXT), (snprintf(text, sizeof text, "%d", b->dead), text));
    else
        area_right(a, y, 21, ink(ROLE_DIM), "-");
}

static void draw_axis(struct area a, const struct experts *s, int y, int shown, int gutter)
{
    char text[16];
    int row = experts_row_at(s, shown), is_here = 0;
    for (int i = shown; i < shown + s->at.per_row && i < s->load.rows; i++)
        is_here |= experts_row_at(s, i) == s->row;
    snprintf(text, sizeof text, "%d", s->load.layer[row]);
    area_right(a, y, gutter - 1, ink(ROLE_AXIS), text);
    if (is_here && gutter >= GUTTER)
        area_put(a, y, 0, area_rune(a, 0x203A, '>'), ink(ROLE_AXIS));
}

/* The cursor: that of the terminal where this view has the focus, else a sign in the cell. */
static void put_cursor(struct area a, int y, int x, int w, int has_focus)
{
    if (has_focus) {
        a.canvas->cursor_y = a.y + y;
        a.canvas->cursor_x = a.x + x + w / 2;
    } else {
        area_put(a, y, x + w / 2, 'o',
                 ink_attr(ink_on(ROLE_TITLE, ROLE_BACKGROUND), ATTR_BOLD | ATTR_REVERSE));
    }
}

static void draw_map(struct view *v, struct area a, int side)
{
    struct experts *s = v->state;
    struct experts_at *at = &s->at;
    int gutter = a.cols >= 30 ? GUTTER : 3, has_head = a.rows >= 4;
    double *relative = experts_relative(&s->load);
    if (!relative)
        return;
    arrange(s, a.rows - has_head, a.cols - gutter - side);
    at->y = has_head;
    at->x = gutter;
    if (has_head) {
        draw_numbers(area_sub(a, 0, 0, 1, a.cols - side), s, gutter);
        area_text(area_sub(a, 0, a.cols - side, 1, side), 0, 3, -1, ink(ROLE_DIM),
                  side >= SIDE ? "CV  hottest  dead" : "CV");
    }
    for (int i = 0; i < at->rows; i++) {
        int shown = s->first_row + i * at->per_row, y = has_head + i * at->height,
            middle = y + (at->height - 1) / 2;
        if (shown >= s->load.rows)
            break;
        draw_axis(a, s, middle, shown, gutter);
        for (int k = 0; k < at->cols; k++) {
            int expert = s->first_expert + k * at->per_col, x = gutter + k * at->width;
            if (expert >= s->load.experts)
                break;
            struct experts_span d = experts_span(s, relative, shown, expert);
            int w = at->width >= 3 ? at->width - 1 : at->width;
            for (int h = y; h < y + at->height; h++)
                put_cell(a, h, x, w, &d, h == middle,
                         s->zoom == EXPERTS_VALUES && at->width == VALUE_WIDTH);
            int row = experts_row_at(s, s->row); /* its place from the top */
            if (row >= shown && row < shown + at->per_row && s->expert >= expert &&
                s->expert < expert + at->per_col)
                put_cursor(a, middle, s->zoom == EXPERTS_VALUES ? x + w : x,
                           s->zoom == EXPERTS_VALUES ? 1 : w,
                           v->has_focus && !app_is_scripted(v->app));
        }
        if (side) {
            struct balance b = balance_of(s, shown);
            draw_balance(area_sub(a, 0, a.cols - side, a.rows, side), middle, &b, side < SIDE);
        }
    }
    mem_free(relative);
}

/* ---- title and read-out ---- */

static int draw_legend(struct area line, int x_end)
{
    static const double load[] = {0.125, 0.25, 0.5, 1, 2, 4, 8};
    int x = area_right(line, 0, x_end, ink(ROLE_DIM), has_colour(line) ? "8x" : "# >4x") - 1;
    if (has_colour(line)) {
        for (size_t k = DS_LEN(load); k-- > 0;)
            area_put(
                line, 0, --x, ' ',
                (struct ink){.fg = INK_CONTRAST, .bg = colour_of(&line.canvas->look, load[k])});
        return area_right(line, 0, x - 1, ink(ROLE_DIM), "x dead  1/8");
    }
    x = area_right(line, 0, x, ink(ROLE_DIM), "+ >2x ");
    return area_right(line, 0, x, ink(ROLE_DIM), "x dead  - <1/2 ");
}

static void draw_title(struct view *v, struct area line)
{
    struct experts *s = v->state;
    struct {
        char words[2][64];
    } part[5];
    int end = line.cols >= 60 ? draw_legend(line, line.cols - 1) - 1 : line.cols, x = 1;
    memset(part, 0, sizeof part);
    snprintf(part[0].words[0], 64, "step %lld", (long long)s->load.step);
    if (s->is_playing)
        snprintf(part[1].words[0], 64, "playing %d/s", EXPERTS_PLAYED);
    else if (s->is_held)
        snprintf(part[1].words[0], 64, "record %zu/%zu", s->pos + 1, s->n);
    else
        snprintf(part[1].words[0], 64, "newest of %zu", s->n);
    if (s->load.probes) {
        snprintf(part[2].words[0], 64, "counted from %d probe%s, %lld tokens", s->load.probes,
                 s->load.probes > 1 ? "s" : "", (long long)s->load.tokens);
        str_copy(part[2].words[1], 64, "from the probe");
    }
    int experts = s->load.experts - s->load.noops; /* no-ops have columns, too */
    char noops[32] = "";
    if (s->load.noops)
        snprintf(noops, sizeof noops, " and %d no-op%s", s->load.noops,
                 s->load.noops == 1 ? "" : "s");
    snprintf(part[3].words[0], 64, "%d layers x %s%d experts%s", s->load.rows,
             s->load.is_least ? "at least " : "", experts, noops);
    snprintf(part[3].words[1], 64, "%d x %s%d%s", s->load.rows, s->load.is_least ? ">=" : "",
             experts, noops);
    if (s->load.per_token)
        snprintf(part[4].words[0], 64, "top %d", s->load.per_token);
    x += area_text(line, 0, x, end - x, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), "expert load") + 2;
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 2; k++) {
            int n = (int)strlen(part[i].words[k]);
            if (n == 0 || x + n + 1 > end)
                continue;
            enum role role =
                (i == 1 && (s->is_held || s->is_playing)) || i == 2 ? ROLE_WARN : ROLE_DIM;
            x += area_text(line, 0, x, n, ink(role), part[i].words[k]) + 2;
            break;
        }
}

/* The expert at the cursor.  Its name follows the cursor at once, in a single colour; the values do
 * when it rests. */
static void draw_expert(const struct experts *s, struct area line)
{
    char load[16], text[96];
    int is_short = line.cols < 30, row = s->seen_row, expert = s->seen_expert;
    double count = s->load.count[(size_t)row * (size_t)s->load.experts + (size_t)expert],
           sum = expert_row_of(&s->load, row).sum;
    if (is_short)
        area_textf(line, 0, 0, -1, ink(ROLE_TEXT), "L%d E%d", s->load.layer[s->row], s->expert);
    else
        area_textf(line, 0, 0, -1, ink(ROLE_TEXT), "layer %d %s %d", s->load.layer[s->row],
                   expert_word(s->expert, s->load.experts, s->load.noops), s->expert);
    int x = is_short ? 10 : 22;
    print_load(load, sum > 0 ? count * s->load.experts / sum : (double)NAN);
    if (!(sum > 0)) {
        area_text(line, 0, x, -1, ink(ROLE_DIM), "no assignments");
        return;
    }
    x += area_textf(line, 0, x, -1, ink(ROLE_TITLE), is_short ? "%sx" : "%sx ideal", load) + 2;
    snprintf(text, sizeof text, "%.0f of %.0f", count, sum);
    if (x + (int)strlen(text) <= line.cols)
        x += area_text(line, 0, x, -1, ink(ROLE_TEXT), text) + 2;
    snprintf(text, sizeof text, "share %.4f", count / sum);
    if (x + (int)strlen(text) <= line.cols)
        x += area_text(line, 0, x, -1, ink(ROLE_TEXT), text) + 2;
    snprintf(text, sizeof text, "rank %d of %d", expert_rank(&s->load, row, expert),
             s->load.experts);
    if (x + (int)strlen(text) <= line.cols)
        area_text(line, 0, x, -1, ink(ROLE_TEXT), text);
}

/* Hottest and dead experts of the layer, as many names as fit. */
static void draw_names(const struct experts *s, struct area line)
{
    enum { NAMES = 64 };
    int row = s->seen_row, hot[NAMES], n = expert_hottest(&s->load, row, hot, NAMES), x = 0;
    int room = line.cols * 3 / 5;
    struct expert_row r = expert_row_of(&s->load, row);
    char text[64], load[16];
    if (!(r.sum > 0))
        return;
    x += area_text(line, 0, x, -1, ink(ROLE_DIM), "hottest ");
    for (int k = 0; k < n; k++) {
        print_load(load, expert_relative(&s->load, row, hot[k]));
        snprintf(text, sizeof text, "%s%d %sx", k ? ", " : "", hot[k], load);
        if (x + (int)strlen(text) > room)
            break;
        x += area_text(line, 0, x, -1, ink(ROLE_TEXT), text);
    }
    x += 2;
    const char *word = s->load.probes ? "unused" : "dead"; /* a short text needs few experts */
    if (r.dead == 0) {
        area_textf(line, 0, x, -1, ink(ROLE_DIM), "none %s", word);
        return;
    }
    x += area_textf(line, 0, x, -1, ink(ROLE_DIM), "%d %s: ", r.dead, word);
    int listed = 0;
    for (int k = 0; k < s->load.experts; k++) {
        if (s->load.count[(size_t)row * (size_t)s->load.experts + (size_t)k] > 0)
            continue;
        int is_last = listed + 1 == r.dead;
        snprintf(text, sizeof text, "%s%d", listed ? ", " : "", k);
        if (x + (int)strlen(text) + (is_last ? 0 : 4) > line.cols) {
            area_text(line, 0, x, -1, ink(ROLE_DIM), &", ..."[listed ? 0 : 2]);
            break;
        }
        x += area_text(line, 0, x, -1, ink(ROLE_TEXT), text);
        listed++;
    }
}

static void draw_trend(const struct experts *s, struct area line)
{
    int x = area_text(line, 0, 0, -1, ink(ROLE_DIM), "over steps "), width = line.cols - x - 14;
    double most = 2;
    char text[16];
    if (s->trend_n < 2) {
        area_text(line, 0, x, -1, ink(ROLE_DIM), "one record so far");
        return;
    }
    for (size_t i = 0; i < s->trend_n; i++)
        most = s->trend[i] > most ? s->trend[i] : most;
    width = width > 4 * (int)s->trend_n ? 4 * (int)s->trend_n : width;
    if (width < 1)
        return;
    spark_draw(area_sub(line, 0, x, 1, width), s->trend, s->trend_n, 0, most, ROLE_SERIES_0);
    print_load(text, most);
    area_textf(line, 0, x + width + 1, -1, ink(ROLE_DIM), "0 to %sx", text);
}

/* What a cell of several experts shows. */
static void draw_span(const struct experts *s, struct area line, int x)
{
    static const char *const words[] = {"a cell: hottest over coldest of", "hot/cold of"};
    char text[80];
    if (s->at.per_row * s->at.per_col == 1)
        return;
    for (size_t i = !has_halves(line); i < DS_LEN(words); i++) {
        snprintf(text, sizeof text, "%s %d x %d", words[i], s->at.per_row, s->at.per_col);
        if (x + (int)strlen(text) > line.cols)
            continue;
        area_right(line, 0, line.cols, ink(ROLE_DIM), text);
        return;
    }
}

/* All layers: what is out of balance anywhere. */
static void draw_summary(const struct experts *s, struct area line)
{
    int hot_row = 0, hot = 0, dead = 0, layers = 0, collapsed = 0;
    double most = -1;
    char text[16];
    for (int i = 0; i < s->load.rows; i++) {
        struct expert_row r = expert_row_of(&s->load, i);
        double load = r.sum > 0 ? expert_relative(&s->load, i, r.top) : 0;
        if (!(r.sum > 0))
            continue;
        dead += r.dead;
        layers += r.dead > 0;
        collapsed += expert_row_collapsed(&s->load, i);
        if (load > most) {
            most = load;
            hot_row = i;
            hot = r.top;
        }
    }
    print_load(text, most);
    int x = area_text(line, 0, 0, -1, ink(ROLE_DIM), "all layers ");
    if (most < 0) {
        area_text(line, 0, x, -1, ink(ROLE_DIM), "no assignments");
        return;
    }
    if (collapsed)
        x += area_textf(line, 0, x, -1, ink_attr(ink(ROLE_BAD), ATTR_BOLD), "%d collapsed",
                        collapsed) +
             2;
    x += area_textf(line, 0, x, -1, ink(ROLE_TEXT), "hottest: layer %d %s %d %sx",
                    s->load.layer[hot_row], expert_word(hot, s->load.experts, s->load.noops), hot,
                    text) +
         2;
    const char *word = s->load.probes ? "unused" : "dead";
    if (dead)
        x += area_textf(line, 0, x, -1, ink(ROLE_TEXT), "%d %s in %d layer%s", dead, word, layers,
                        layers == 1 ? "" : "s");
    else
        x += area_textf(line, 0, x, -1, ink(ROLE_DIM), "none %s", word);
    draw_span(s, line, x + 2);
}

void experts_draw(struct view *v, struct area a)
{
    struct experts *s = v->state;
    s->at = (struct experts_at){0};
    if (!experts_prepare(v)) {
        draw_empty(v, a);
        return;
    }
    if (s->is_open) {
        experts_tokens_draw(v, a);
        return;
    }
    int has_title = a.rows >= 4,
        foot = a.rows >= 12  ? 4
               : a.rows >= 8 ? 2
                             : a.rows >= 2,
        gap = a.rows >= 20, rows = a.rows - has_title - foot - gap;
    int side = a.cols >= 70 ? SIDE : a.cols >= 34 ? SIDE_SMALL : 0;
    if (has_title)
        draw_title(v, area_sub(a, 0, 0, 1, a.cols));
    draw_map(v, area_sub(a, has_title, 1, rows, a.cols - 2), side);
    s->at.y += has_title;
    s->at.x += 1;
    int y = has_title + rows + gap;
    void (*const line[])(const struct experts *, struct area) = {draw_expert, draw_names,
                                                                 draw_trend, draw_summary};
    for (int i = 0; i < foot; i++)
        line[i](s, area_sub(a, y + i, 1, 1, a.cols - 2));
}
