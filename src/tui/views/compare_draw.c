/* Draws the Compare view: the maps of A and B, their difference, and the values at the cursor. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tui/compare.h"

enum {
    FOOT_MOST = 9,
    FOOT_LEAST = 4,
    SIDE_COLS = 46,
    WIDE_COLS = 110,
    PANEL_COLS = 150,
    LEGEND_COLS = 40
};

static const char *const side_name[2] = {"A", "B"};
static const enum role side_role[2] = {ROLE_SERIES_1, ROLE_SERIES_2};

/* ---- head ---- */

/* The run's name; two checkpoints of one run are known by their directories. */
static const char *title_of(const struct compare *c, int k)
{
    const char *name[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++)
        name[i] = c->side[i].there  ? worker_name(c->side[i].path) /* box:first */
                  : c->side[i].view ? c->side[i].view->name
                                    : NULL;
    return name[0] && name[1] && name[k][0] && strcmp(name[0], name[1]) != 0
               ? name[k]
               : worker_name(c->side[k].path);
}

/* The title, and the checkpoint where the path is one and the title does not name it.  Columns. */
static int put_title(struct area line, int x, int max, const struct compare *c, int k)
{
    const char *title = title_of(c, k), *name = worker_name(c->side[k].path);
    int n = area_text(line, 0, x, max, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), title);
    if (strncmp(name, "step-", 5) == 0 && strcmp(title, name) != 0)
        n += area_textf(line, 0, x + n, -1, ink(ROLE_TITLE), " %s", name);
    return n;
}

static void draw_title(struct view *v, struct area line)
{
    struct compare *c = v->state;
    char latency[24];
    int x = 1;
    if (!c->side[0].path[0] || !c->side[1].path[0])
        return;
    for (int k = 0; k < 2; k++) {
        x += area_text(line, 0, x, -1, ink_attr(ink(side_role[k]), ATTR_BOLD), side_name[k]) + 1;
        x += put_title(line, x, line.cols / 4, c, k);
        if (c->is_live)
            x += area_text(line, 0, x, -1, ink(ROLE_DIM),
                           worker_latency(v->app, c->side[k].path, latency));
        x += 2;
    }
    char part[3][64] = {{0}};
    snprintf(part[0], sizeof part[0], "%s",
             c->asked > 0  ? c->session ? "working" : "stopped"
             : !c->is_live ? "recorded"
             : c->session  ? "ready"
                           : "stopped");
    if (c->texts > 1)
        snprintf(part[1], sizeof part[1], "text %d/%d", c->text + 1, c->texts);
    if (c->diff.probe && !c->match.is_exact)
        snprintf(part[2], sizeof part[2], "tokenizers differ, aligned by bytes");
    for (int i = 0; i < 3; i++) {
        int n = (int)strlen(part[i]);
        if (n == 0 || x + n >= line.cols)
            continue;
        x += area_text(line, 0, x, n, ink(i == 2 || c->asked > 0 ? ROLE_WARN : ROLE_DIM), part[i]) +
             2;
    }
    if (c->diff.probe && line.cols - x >= LEGEND_COLS)
        cells_legend(line, line.cols - 1, &c->cells[0]);
}

/* "0.0123 nats", "at least 3.2e-06 nats" */
static void print_kl(char out[48], double kl, int is_bound)
{
    snprintf(out, 48, kl > 0 && kl < 1e-4 ? "%s%.1e nats" : "%s%.4f nats",
             is_bound ? "at least " : "", kl);
}

/* "loss 2.310, 2.281 (-0.029)": of A, of B, the change. */
static int put_change(struct area line, int x, const char *label, const double was_now[2])
{
    char text[96];
    if (isnan(was_now[0]) && isnan(was_now[1]))
        return x;
    if (isnan(was_now[0]))
        snprintf(text, sizeof text, "-, %.3f", was_now[1]);
    else if (isnan(was_now[1]))
        snprintf(text, sizeof text, "%.3f, -", was_now[0]);
    else
        snprintf(text, sizeof text, "%.3f, %.3f (%+.3f)", was_now[0], was_now[1],
                 was_now[1] - was_now[0]);
    if (x + (int)(strlen(label) + strlen(text)) + 1 > line.cols)
        return x;
    x += area_textf(line, 0, x, -1, ink(ROLE_DIM), "%s ", label);
    return x + area_text(line, 0, x, -1, ink(ROLE_TEXT), text) + 2;
}

static void draw_numbers(const struct compare *c, struct area line)
{
    const struct compare_total *t = &c->total;
    int is_layered = c->side[0].probe->layers == c->side[1].probe->layers, x = 1;
    x += area_textf(line, 0, x, -1, ink(t->differ ? ROLE_WARN : ROLE_GOOD), "%d %s differ",
                    t->differ, is_layered ? "cells" : "tokens") +
         2;
    x = put_change(line, x, c->match.is_exact ? "loss" : "loss/byte", t->loss);
    x = put_change(line, x, "FLOPs", t->flops);
    char text[80];
    char kl[48];
    print_kl(kl, t->kl, t->is_bound);
    snprintf(text, sizeof text, "mean KL %s", kl);
    if (isfinite(t->kl) && x + (int)strlen(text) <= line.cols)
        x += area_text(line, 0, x, -1, ink(ROLE_TEXT), text) + 2;
    x = put_change(line, x, "executed", t->run);
    snprintf(text, sizeof text, "of %d %s", t->compared, is_layered ? "cells" : "tokens");
    if (x + (int)strlen(text) <= line.cols)
        area_text(line, 0, x, -1, ink(ROLE_DIM), text);
}

static void draw_prompt(struct view *v, struct area line)
{
    struct compare *c = v->state;
    int x = 1 + area_text(line, 0, 1, -1, ink(ROLE_SELECTED), "text for both ");
    field_draw(&c->prompt, line, 0, x, line.cols - x - 1, v->has_focus);
}

/* ---- maps ---- */

static void map_title(struct area line, const struct compare *c, int k)
{
    const struct probe *p = c->side[k].probe;
    double depth = 0;
    for (int t = 0; t < p->tokens; t++)
        depth += cells_depth(p, NULL, t) / p->tokens;
    int x = area_text(line, 0, 0, -1, ink_attr(ink(side_role[k]), ATTR_BOLD), side_name[k]) + 1;
    if (c->is_live) /* the text is the user's: the model has a name */
        x += put_title(line, x, line.cols / 3, c, k) + 2;
    else
        x += cells_title(line, x, line.cols / 3, line.cols, p) + 2;
    if (isfinite(depth) && x + 24 < line.cols)
        x += area_textf(line, 0, x, -1, ink(ROLE_DIM), "mean depth %.2f of %d", depth, p->layers) +
             2;
    if (p->step > 0 && x + 14 < line.cols)
        area_textf(line, 0, x, -1, ink(ROLE_DIM), "step %lld", (long long)p->step);
}

static void difference_title(struct area line, struct compare *c)
{
    int is_layered = c->side[0].probe->layers == c->side[1].probe->layers;
    int is_shared = is_layered && c->match.is_exact;
    int x = area_text(line, 0, 0, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), "B - A") + 2;
    for (int k = 0; k < 2; k++) { /* the colours of the cells, for every look */
        char text[32];
        snprintf(text, sizeof text, "%c %s%s", "-+"[k], is_shared ? "only " : "", side_name[k]);
        x += area_text(line, 0, x, -1, ink(side_role[k]), text);
        x += area_text(line, 0, x, -1, ink(ROLE_DIM), is_shared ? " executes" : " executes more") +
             2;
    }
    char text[64];
    snprintf(text, sizeof text, "share of all layers, %d and %d", c->side[0].probe->layers,
             c->side[1].probe->layers);
    if (!is_layered && line.cols - x >= (int)strlen(text))
        area_text(line, 0, x, -1, ink(ROLE_DIM), text);
}

/* A block is a line of title above a map. */
static void draw_block(struct area a, struct compare *c, int which, int hides, int y, int x)
{
    struct cells *k = which == 2 ? &c->diff : &c->cells[which];
    if (a.rows < 1 || a.cols < 8)
        return;
    int has_title = a.rows >= 2;
    if (has_title && which == 2)
        difference_title(area_sub(a, 0, 0, 1, a.cols), c);
    else if (has_title)
        map_title(area_sub(a, 0, 0, 1, a.cols), c, which);
    struct area map = area_sub(a, has_title, 0, a.rows - has_title, a.cols);
    k->hides = hides;
    k->at = (struct cells_at){.map_y = y + has_title, .map_x = x};
    cells_map_draw(area_sub(map, 0, 0, cells_map_rows(k, &a.canvas->look, map.rows), map.cols), k);
}

/* Rows that show every layer, without the lines around them. */
static int least(const struct compare *c, const struct look *look)
{
    int rows = 0;
    for (int k = 0; k < 2; k++) {
        int n = cells_map_least(&c->cells[k], look) - 3;
        rows = n > rows ? n : rows;
    }
    return rows;
}

/* The bands of maps that fit, from top to bottom; each shows 1 to 2 of them. */
struct plan_of_maps {
    int bands, band[3][2], foot, gap, has_panel;
};

static struct plan_of_maps plan_maps(const struct compare *c, struct area a)
{
    struct plan_of_maps p = {.has_panel = a.cols >= PANEL_COLS && a.rows >= 24};
    int is_wide = a.cols >= WIDE_COLS, has_maps = c->shown != COMPARE_DIFFERENCE,
        has_difference = c->shown != COMPARE_MAPS;
    int lines = least(c, &a.canvas->look), all = (is_wide ? 1 : 2) * has_maps + has_difference;
    int foot_least = a.rows >= 9 && !p.has_panel ? FOOT_LEAST : 0;
    int fits = a.rows >= all * (lines + 1) + foot_least;
    if (!fits && c->shown == COMPARE_ALL) { /* the difference says most in one band */
        fits = a.rows >= (is_wide ? 1 : 2) * (lines + 1) + foot_least;
        has_difference = !fits || is_wide;
        has_maps = fits && !is_wide;
    }
    if (has_maps && is_wide) {
        p.band[p.bands][0] = 0;
        p.band[p.bands++][1] = 1;
    } else if (has_maps) {
        p.band[p.bands][0] = 0;
        p.band[p.bands++][1] = -1;
        p.band[p.bands][0] = 1;
        p.band[p.bands++][1] = -1;
    }
    if (has_difference) {
        p.band[p.bands][0] = 2;
        p.band[p.bands++][1] = -1;
    }
    if (foot_least) {
        /* what is left by all layers two to a row, or better one to a row with their bars */
        int left = a.rows - p.bands * (lines + 1), full = c->side[0].probe->layers;
        full = c->side[1].probe->layers > full ? c->side[1].probe->layers : full;
        int want = a.rows - p.bands * (full + 4) - 1;
        p.foot = want >= FOOT_LEAST ? want : left - 2;
        p.foot = p.foot > FOOT_MOST ? FOOT_MOST : p.foot < FOOT_LEAST ? FOOT_LEAST : p.foot;
        p.gap = left > p.foot;
    }
    return p;
}

static void draw_maps(struct area a, struct compare *c, const struct plan_of_maps *p, int y0)
{
    int lines = least(c, &a.canvas->look), y = 0;
    c->cells[0].at = c->cells[1].at = c->diff.at = (struct cells_at){0}; /* what is not drawn */
    for (int i = 0; i < p->bands; i++) {
        int rows = (a.rows - y) / (p->bands - i), is_tight = rows < lines + 4;
        if (is_tight && i == 0 && p->bands > 1 && a.rows > p->bands * (lines + 1))
            rows = lines + 2; /* the first has the tokens above it, for all */
        int hides = !is_tight                    ? 0
                    : i == 0 && rows > lines + 1 ? CELLS_HIDES_BELOW
                                                 : CELLS_HIDES_BELOW | CELLS_HIDES_TOKENS;
        int n = p->band[i][1] >= 0 ? 2 : 1, width = (a.cols - 2 * (n - 1)) / n;
        for (int k = 0; k < n; k++)
            draw_block(area_sub(a, y, k * (width + 2), rows, width), c, p->band[i][k], hides,
                       y0 + y, 1 + k * (width + 2));
        y += rows;
    }
}

/* ---- values at the cursor ---- */

static void table_row(struct area a, int y, const char *label, double va, double vb, int digits)
{
    if (y >= a.rows)
        return;
    const double v[3] = {va, vb, vb - va};
    area_text(a, y, 0, 15, ink(ROLE_DIM), label);
    for (int k = 0; k < 3; k++) {
        char text[32];
        if (isnan(v[k]))
            str_copy(text, sizeof text, "-");
        else
            snprintf(text, sizeof text, k == 2 ? "%+.*f" : "%.*f", digits, v[k]);
        int is_change = k == 2 && fabs(v[k]) >= 5e-4;
        area_right(a, y, 24 + 9 * k, ink(is_change ? ROLE_WARN : ROLE_TEXT), text);
    }
}

static const char *state_of(const struct cells *c)
{
    return cells_state_word(cells_state(c, c->layer, c->token));
}

static void draw_kl(struct area a, int y, const struct compare *c, int group)
{
    int is_bound;
    double kl = compare_kl(&c->match, c->side[0].probe, c->side[1].probe, group, &is_bound);
    if (y >= a.rows)
        return;
    int x = area_text(a, y, 0, -1, ink(ROLE_DIM), "KL(A||B)");
    if (isnan(kl))
        area_text(a, y, x + 1, a.cols - x - 1, ink(ROLE_DIM),
                  !c->match.is_exact ? "needs the same tokens"
                  : group == 0       ? "-"
                                     : "not recorded (i runs both models)");
    else {
        char text[48];
        print_kl(text, kl, is_bound);
        x += 1 + area_text(a, y, x + 1, a.cols - x - 1, ink(ROLE_TEXT), text);
        if (is_bound)
            area_textf(a, y, x + 1, a.cols - x - 1, ink(ROLE_DIM), "(top %d)",
                       c->side[0].probe->lens_k);
    }
}

/* The title follows the cursor at once; the values when it rests. */
static void draw_values(struct area a, const struct compare *c)
{
    const struct cells *d = &c->diff;
    char place[64];
    int g = d->seen_token, y = 0;
    struct compare_values v[2] = {compare_values(&c->match, c->side[0].probe, 0, g),
                                  compare_values(&c->match, c->side[1].probe, 1, g)};
    int is_short = a.rows < 6, room = is_short ? 17 : a.cols - 1; /* the heads share its line */
    int x = area_textf(a, y, 0, room, ink(ROLE_TEXT), "token %d \"", d->token);
    x += area_bytes(a, y, x, room - x, ink(ROLE_TEXT), d->probe->piece[d->token],
                    d->probe->piece_len[d->token]);
    area_text(a, y, x, 1, ink(ROLE_TEXT), "\"");
    y += !is_short;
    if (a.rows >= 8)
        area_textf(a, y++, 0, a.cols, ink(ROLE_DIM), "%s: A %s, B %s",
                   cells_place(&c->cells[0], c->cells[0].layer, place), state_of(&c->cells[0]),
                   state_of(&c->cells[1]));
    for (int k = 0; k < 2; k++)
        area_right(a, y, 24 + 9 * k, ink_attr(ink(side_role[k]), ATTR_BOLD), side_name[k]);
    area_right(a, y++, 42, ink(ROLE_DIM), "B - A");
    table_row(a, y++, "probability", exp(-v[0].nll), exp(-v[1].nll), 4);
    if (a.rows >= 5)
        table_row(a, y++, "loss, nats", v[0].nll, v[1].nll, 3);
    draw_kl(a, y++, c, g);
    table_row(a, y++, "FLOPs, of dense", v[0].flops, v[1].flops, 3);
    int iterated = cells_is_iterated(&c->cells[0]) + cells_is_iterated(&c->cells[1]);
    table_row(a, y++,
              iterated == 0   ? "depth, layers"
              : iterated == 2 ? "iterations"
                              : "depth",
              v[0].depth, v[1].depth, 2);
}

/* ---- settings ---- */

static void setting_row(struct area a, int y, const struct compare_setting *s, int key_cols)
{
    int x = key_cols + 1, each = (a.cols - x - 1) / 2;
    area_text(a, y, 0, key_cols, ink(ROLE_DIM), s->key);
    for (int k = 0; k < 2; k++)
        area_text(a, y, x + k * (each + 1), each, ink(s->value[k] ? side_role[k] : ROLE_DIM),
                  s->value[k] ? s->value[k] : "-");
}

/* The first rows of the settings that differ, from `top` on; the number of all. */
static size_t draw_settings(struct area a, const struct compare *c, size_t top, long cursor)
{
    struct compare_setting s[COMPARE_SETTINGS_MAX];
    size_t n = compare_settings(c->side[0].view, c->side[1].view, s, COMPARE_SETTINGS_MAX), known,
           rows = a.rows > 1 ? (size_t)a.rows - 1 : 0;
    int has_config = c->side[0].view->configs > 0 && c->side[1].view->configs > 0;
    int key_cols = a.cols / 2 > 26 ? 26 : a.cols / 2;
    known = n < COMPARE_SETTINGS_MAX ? n : COMPARE_SETTINGS_MAX;
    if (!has_config)
        area_text(a, 0, 0, a.cols, ink(ROLE_DIM), "settings not recorded");
    else if (n == 0)
        area_text(a, 0, 0, a.cols, ink(ROLE_DIM), "all settings are equal");
    else
        area_textf(a, 0, 0, a.cols, ink(ROLE_DIM), "%zu setting%s differ%s", n, n > 1 ? "s" : "",
                   n > 1 ? "" : "s");
    for (size_t i = top; has_config && i < known && i - top < rows; i++) {
        int y = 1 + (int)(i - top);
        int is_cut = cursor < 0 && i - top + 1 == rows && i + 1 < known;
        if (is_cut)
            area_textf(a, y, 0, a.cols, ink(ROLE_DIM), "and %zu more: s lists them", n - i);
        else
            setting_row(a, y, &s[i], key_cols);
        if ((long)i == cursor)
            area_tint(a, y, 0, 1, a.cols, ink_attr(ink(ROLE_SELECTED), ATTR_BOLD));
    }
    return known;
}

static void draw_list(struct area a, struct compare *c)
{
    struct compare_setting s[COMPARE_SETTINGS_MAX];
    size_t n = compare_settings(c->side[0].view, c->side[1].view, s, COMPARE_SETTINGS_MAX);
    n = n < COMPARE_SETTINGS_MAX ? n : COMPARE_SETTINGS_MAX;
    list_fit(&c->list, n, a.rows - 1);
    draw_settings(area_sub(a, 0, 1, a.rows, a.cols - 3), c, c->list.top, (long)c->list.cursor);
    scrollbar_draw(area_sub(a, 1, 0, a.rows - 1, a.cols), a.cols - 1, n, c->list.top, a.rows - 1);
}

/* ---- the whole ---- */

static void draw_foot(struct area a, const struct compare *c)
{
    int cols = a.cols >= 70 ? 44 : a.cols;
    draw_values(area_sub(a, 0, 0, a.rows, cols), c);
    if (a.cols >= 70)
        draw_settings(area_sub(a, 0, cols + 2, a.rows, a.cols - cols - 2), c, 0, -1);
}

static void draw_panel(struct area a, const struct compare *c)
{
    draw_values(area_sub(a, 0, 0, 9, a.cols), c);
    draw_settings(area_sub(a, 10, 0, a.rows - 10, a.cols), c, 0, -1);
}

static void draw_nothing(struct view *v, struct area a)
{
    struct compare *c = v->state;
    int y = a.rows > 6 ? a.rows / 2 - 2 : 0;
    const char *title = "Nothing to compare yet", *text = c->why;
    enum role role = ROLE_TEXT;
    if (c->trouble[0]) {
        title = "The models cannot be compared";
        text = c->trouble;
        role = ROLE_BAD;
    } else if (c->asked > 0) {
        title = "Loading both models";
        text = "They run in a process of their own; the maps appear when both have answered";
    } else if (!c->side[0].path[0] || !c->side[1].path[0]) {
        text = "Mark two runs in Home with Space, or type :compare A B "
               "(runs, checkpoints, models or traces); three or more make a table";
    } else {
        title = "No text that both have recorded";
    }
    area_text(a, y, 2, a.cols - 3, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), title);
    struct scroll lines = {0};
    scroll_text(&lines, area_sub(a, y + 2, 2, a.rows - y - 2, a.cols - 3), text, ink(role));
    y += 3 + lines.lines;
    if (c->side[0].path[0] && c->side[1].path[0] && c->asked == 0 && y < a.rows &&
        !compare_without_weights(v))
        area_text(a, y, 2, a.cols - 3, ink(ROLE_DIM), "i types a text for both models");
}

static void draw_table(struct view *v, struct area a)
{
    struct compare *c = v->state;
    const char *text = compare_table(v);
    area_textf(a, 0, 1, a.cols - 2, ink_attr(ink(ROLE_TITLE), ATTR_BOLD),
               "%d marked runs, as `depthscope compare` prints them", compare_marked(v));
    scroll_text(&c->table_scroll, area_sub(a, 2, 1, a.rows - 2, a.cols - 2),
                text ? text : "reading the records ...", ink(ROLE_TEXT));
}

void compare_draw(struct view *v, struct area a)
{
    struct compare *c = v->state;
    if (app_is_scripted(v->app))
        compare_take(v);
    int y = 0, is_table = !c->given[0][0] && compare_marked(v) > 2,
        has = !is_table && compare_prepare(v);
    if (is_table) {
        draw_table(v, a);
        return;
    }
    if (a.rows >= 6)
        draw_title(v, area_sub(a, y++, 0, 1, a.cols));
    if (c->is_typing)
        draw_prompt(v, area_sub(a, y++, 0, 1, a.cols));
    if (!has) {
        draw_nothing(v, area_sub(a, y, 0, a.rows - y, a.cols));
        return;
    }
    if (a.rows >= 8)
        draw_numbers(c, area_sub(a, y++, 0, 1, a.cols));
    if (c->trouble[0] && y > 0) { /* the last picture stays */
        struct area line = area_sub(a, y - 1, 0, 1, a.cols);
        area_fill(line, ' ', ink_on(ROLE_TEXT, ROLE_BACKGROUND));
        area_text(line, 0, 1, a.cols - 2, ink(ROLE_BAD), c->trouble);
    }
    struct area body = area_sub(a, y, 0, a.rows - y, a.cols);
    if (c->is_listing) {
        draw_list(body, c);
        return;
    }
    c->diff.has_focus = v->has_focus && !c->is_typing && !app_is_scripted(v->app);
    c->cells[0].has_focus = c->cells[1].has_focus = 0;
    struct plan_of_maps p = plan_maps(c, body);
    if (p.band[0][0] != 2 && p.bands < 3 &&
        p.band[p.bands - 1][0] != 2) { /* no difference: A has it */
        c->cells[0].has_focus = c->diff.has_focus;
        c->diff.has_focus = 0;
    }
    int side = p.has_panel ? SIDE_COLS : 0, rows = body.rows - p.foot - p.gap;
    draw_maps(area_sub(body, 0, 1, rows, body.cols - 2 - side), c, &p, y);
    if (p.has_panel) {
        area_vline(body, 0, body.cols - side, body.rows, ink(ROLE_BORDER));
        draw_panel(area_sub(body, 0, body.cols - side + 2, body.rows, side - 3), c);
    } else if (p.foot) {
        draw_foot(area_sub(body, rows + p.gap, 1, p.foot, body.cols - 2), c);
    }
    c->head_rows = y;
}
