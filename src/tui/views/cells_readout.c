/* The read-out at the cursor, and the layout of text, map and read-out.  Values have fixed
 * positions and widths, so that a cursor step changes digits and nothing else. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/experts.h"
#include "tui/cells.h"
#include "tui/widgets.h"

enum { ROWS_MAX = 48, SIDE_COLS = 34, COLUMN = 18, COLUMN_GAP = 2 };

struct row {
    char label[20];
    char value[24];
    enum role role;
};
struct rows {
    struct row row[ROWS_MAX];
    int n;
};

static struct row *add(struct rows *r, const char *label)
{
    if (r->n == ROWS_MAX)
        return &r->row[ROWS_MAX - 1];
    struct row *x = &r->row[r->n++];
    *x = (struct row){.role = ROLE_TEXT};
    str_copy(x->label, sizeof x->label, label);
    return x;
}

/* Three decimals where they fit, so that all tokens have the same width. */
static void print_value(char out[24], double x, const char *unit)
{
    char plain[24];
    if (isnan(x))
        snprintf(out, 24, "-");
    else if (!unit[0] && x < 1e-3 && x >= 1e-9) { /* six cells: "probability" must fit */
        snprintf(plain, sizeof plain, "%.1e", x);
        snprintf(out, 24, "%.4s-%s", plain, plain + 6); /* 1.2e-04 without the 0 */
    } else if (fabs(x) < 100 && (fabs(x) >= 1e-3 || x == 0))
        snprintf(out, 24, "%.3f%s%.8s", x, unit[0] ? " " : "", unit);
    else
        snprintf(out, 24, "%s%s%.8s", num_print(plain, x), unit[0] ? " " : "", unit);
}

static void add_value(struct rows *r, const char *label, double x, const char *unit)
{
    print_value(add(r, label)->value, x, unit);
}

/* A value together with its change by the interventions. */
static void add_compared(struct rows *r, const char *label, double x, double before,
                         const char *unit)
{
    struct row *row;
    add_value(r, label, x, unit);
    if (!isfinite(x) || !isfinite(before) || fabs(x - before) < 5e-4)
        return;
    row = add(r, "  change");
    snprintf(row->value, sizeof row->value, "%+.3f", x - before);
    row->role = ROLE_WARN;
}

static double at(const float *v, int t)
{
    return v ? (double)v[t] : (double)NAN;
}

/* FLOPs summed over the layers up to the cursor; NaN when costs are not recorded per cell. */
static double flops_so_far(const struct cells *c)
{
    const struct matrix *m = probe_cell(c->probe, "flops");
    double sum = 0;
    for (int l = 0; m && l <= c->seen_layer; l++)
        sum += (double)m->v[(size_t)l * (size_t)c->probe->tokens + (size_t)c->seen_token];
    return m ? sum : (double)NAN;
}

static void token_rows(struct rows *r, const struct cells *c)
{
    const struct probe *p = c->probe,
                       *o = c->other && c->seen_token < c->other->tokens ? c->other : NULL;
    const struct vector *truth = probe_token(p, "true_entropy");
    int t = c->seen_token;
    double nll = at(p->nll, t), dense = p->flops_dense;
    add_value(r, "probability", exp(-nll), "");
    add_compared(r, "nll", nll, o ? at(o->nll, t) : (double)NAN, "nats");
    add_value(r, "entropy", at(p->entropy, t), "nats");
    if (truth)
        add_value(r, "true H", (double)truth->v[t], "nats");
    double depth = cells_depth(p, c->run, t);
    if (!isnan(depth))
        snprintf(add(r, cells_is_iterated(c) ? "iterations" : "depth")->value, sizeof r->row->value,
                 "%g of %d", depth, p->layers);
    const struct vector *needed = probe_token(p, "needed");
    if (needed && isfinite(needed->v[t]))
        snprintf(add(r, "needed depth")->value, sizeof r->row->value, "%g", (double)needed->v[t]);
    double flops = at(p->flops, t), so_far = flops_so_far(c);
    char text[16];
    if (isfinite(flops) && dense > 0)
        snprintf(add(r, "FLOPs")->value, sizeof r->row->value, "%s %.3f", str_si(text, flops),
                 flops / dense);
    else if (isfinite(flops))
        snprintf(add(r, "FLOPs")->value, sizeof r->row->value, "%s", str_si(text, flops));
    if (isfinite(so_far))
        snprintf(add(r, "cumulative")->value, sizeof r->row->value, "%s", str_si(text, so_far));
    const struct vector *kind = probe_token(p, "class");
    int is_class = kind && kind->v[t] >= 0 && kind->v[t] < RUN_CLASSES;
    const char *word = is_class ? runview_class((int)kind->v[t]) : NULL;
    if (word)
        str_copy(add(r, "class")->value, sizeof r->row->value, word);
    for (int i = 0; i < p->vectors; i++)
        if (&p->token[i] != truth && &p->token[i] != needed && !(word && &p->token[i] == kind))
            add_value(r, p->token[i].name, (double)p->token[i].v[t], "");
}

/* Rank of an expert or of its weight, by the name of the cell; -1 for other cells. */
static int rank_of(const struct probe *p, const char *name, int is_weight)
{
    for (int k = 0, n = probe_expert_ranks(p); k < n; k++) {
        const struct matrix *m = is_weight ? probe_expert_weight(p, k) : probe_expert(p, k);
        if (m && strcmp(m->name, name) == 0)
            return k;
    }
    return -1;
}

/* The number of a category; "17 (0.42)" for an expert with its weight. */
static void add_category(struct rows *r, const struct cells *c, int field)
{
    const struct probe *p = c->probe;
    const char *name = cells_field_name(p, field);
    int rank = rank_of(p, name, 0);
    const struct matrix *w = rank >= 0 ? probe_expert_weight(p, rank) : NULL;
    double x = cells_value(p, field, c->seen_layer, c->seen_token),
           weight =
               w ? (double)w->v[(size_t)c->seen_layer * (size_t)p->tokens + (size_t)c->seen_token]
                 : (double)NAN;
    struct row *row = add(r, name);
    if (!(x >= 0 && x <= 1e9))
        snprintf(row->value, sizeof row->value, rank >= 0 ? "none" : "-");
    else if (isfinite(weight))
        snprintf(row->value, sizeof row->value, "%ld (%.2f)", (long)x, weight);
    else
        snprintf(row->value, sizeof row->value, "%ld", (long)x);
}

/* A layer after the exit of a whole pass.  In a loop K/V of an earlier iteration may serve. */
static int is_left_out(const struct cells *c)
{
    const struct probe *p = c->probe;
    const struct matrix *flops = probe_cell(p, "flops");
    size_t at = (size_t)c->seen_layer * (size_t)p->tokens + (size_t)c->seen_token;
    return flops && flops->v[at] == 0 && runview_config_int(c->view, "model.loop", 1) == 1;
}

static void cell_rows(struct rows *r, const struct cells *c)
{
    const struct probe *p = c->probe;
    for (int f = 1; f < cells_fields(p); f++) {
        const char *name = cells_field_name(p, f);
        if (strcmp(name, "forced") == 0) /* part of the title above */
            continue;
        if (rank_of(p, name, 1) >= 0) /* next to the number of its expert */
            continue;
        double x = cells_value(p, f, c->seen_layer, c->seen_token);
        char text[16];
        if (cells_is_category(p, f))
            add_category(r, c, f);
        else if (fabs(x) >= 1e4)
            snprintf(add(r, name)->value, sizeof r->row->value, "%s", str_si(text, x));
        else
            add_value(r, name, x, cells_unit(c->view, name));
        if (cells_is_inferred(p, f))
            str_copy(add(r, "  inferred")->value, sizeof r->row->value, "yes");
    }
    int kv = cells_kv(c->view);
    if (kv >= 0 && is_left_out(c))
        kv = 0;
    if (kv >= 0)
        str_copy(add(r, "K/V")->value, sizeof r->row->value,
                 kv || cells_state(c, c->seen_layer, c->seen_token) != CELL_SKIP ? "kept" : "none");
}

static const char *state_words(const struct cells *c)
{
    size_t cell = (size_t)c->layer * (size_t)c->probe->tokens + (size_t)c->token;
    int f = c->force ? c->force[cell] : -1;
    enum cell_state s = cells_state(c, c->layer, c->token);
    if (f >= 0)
        return f ? "forced to run" : "forced to skip";
    if (c->probe->run_is_inferred)
        return s == CELL_SKIP ? "skipped (inferred)" : "executed (inferred)";
    return cells_state_word(s);
}

/* ---- drawing ---- */

static void draw_rows(struct area a, const struct rows *r, int from)
{
    for (int y = 0; y < a.rows && from + y < r->n; y++) {
        const struct row *x = &r->row[from + y];
        area_text(a, y, 0, a.cols - (int)strlen(x->value) - 1, ink(ROLE_DIM), x->label);
        area_right(a, y, a.cols, ink(x->role), x->value);
    }
}

/* The titles follow the cursor at once, each in a single colour. */
static void token_title(struct area line, const struct cells *c)
{
    const struct probe *p = c->probe;
    struct ink k = ink(ROLE_TEXT); /* not bold: each blank would cost two attribute changes */
    int t = c->token, x = area_textf(line, 0, 0, -1, k, "token %d", t);
    if (p->piece_len[t] > 0) {
        x += area_text(line, 0, x, 2, k, " \"");
        x += area_bytes(line, 0, x, line.cols - x - 1, k, p->piece[t], p->piece_len[t]);
        x += area_text(line, 0, x, 1, k, "\"");
    }
    if (p->id[t] >= 0 && line.cols - x > 10)
        area_textf(line, 0, x, -1, k, " id %d", p->id[t]);
}

static void layer_title(struct area line, const struct cells *c)
{
    char place[64], row[16];
    const char *rest = cells_place(c, c->layer, place);
    snprintf(row, sizeof row, "%s%d", cells_is_iterated(c) ? "it. " : "L", c->layer);
    rest += strcspn(rest, ",");
    area_textf(line, 0, 0, -1, ink(ROLE_TEXT), "%.*s %s%s",
               line.cols < 24 ? 16 : (int)(rest - place), line.cols < 24 ? row : place,
               state_words(c), rest);
}

/* Logit lens: the most likely next tokens if the output head followed this layer. */
static void draw_lens(struct area a, const struct cells *c)
{
    const struct probe *p = c->probe, *o = c->other;
    if (a.rows < 2 || p->lens_k <= 0)
        return;
    size_t cell =
        ((size_t)c->seen_layer * (size_t)p->tokens + (size_t)c->seen_token) * (size_t)p->lens_k;
    int has_other =
        o && o->lens_k > 0 && c->seen_token < o->tokens && o->layers == p->layers && a.cols >= 26;
    area_textf(a, 0, 0, -1, ink(ROLE_DIM), "logit lens, %s%d",
               cells_is_iterated(c) ? a.cols < 23 ? "it. " : "iteration "
               : a.cols < 20        ? "L"
                                    : "layer ",
               c->seen_layer);
    if (has_other)
        area_text(a, 0, 21, -1, ink(ROLE_DIM), "was");
    for (int k = 0; k < p->lens_k && k + 1 < a.rows; k++) {
        const char *piece = p->lens_piece ? p->lens_piece[cell + (size_t)k] : "";
        area_textf(a, k + 1, 0, 6, ink(ROLE_TEXT), "%.3f", (double)p->lens_p[cell + (size_t)k]);
        if (p->lens_piece)
            area_text(a, k + 1, 6, has_other ? 13 : a.cols - 6, ink(ROLE_TITLE), piece);
        else
            area_textf(a, k + 1, 6, -1, ink(ROLE_TITLE), "id %d",
                       p->lens_id ? p->lens_id[cell + (size_t)k] : -1);
        if (!has_other)
            continue;
        size_t was =
            ((size_t)c->seen_layer * (size_t)o->tokens + (size_t)c->seen_token) * (size_t)o->lens_k;
        double before = (double)NAN;
        for (int j = 0; j < o->lens_k; j++)
            if (o->lens_id && p->lens_id &&
                o->lens_id[was + (size_t)j] == p->lens_id[cell + (size_t)k])
                before = (double)o->lens_p[was + (size_t)j];
        if (isnan(before))
            area_text(a, k + 1, 21, 5, ink(ROLE_DIM), "-");
        else
            area_textf(a, k + 1, 21, 5, ink(ROLE_DIM), "%.3f", before);
    }
}

static void collect(const struct cells *c, struct rows *token, struct rows *cell)
{
    token->n = cell->n = 0;
    token_rows(token, c);
    cell_rows(cell, c);
}

/* Columns of a panel below the map: some for the token, some for its cell, one for the logit
 * lens. */
struct split {
    int columns, token, cell, lens, rows;
};

static struct split split_columns(const struct cells *c, int cols, const struct rows *token,
                                  const struct rows *cell)
{
    struct split s = {.columns = (cols + COLUMN_GAP) / (COLUMN + COLUMN_GAP)};
    s.columns = s.columns < 1 ? 1 : s.columns > 6 ? 6 : s.columns;
    s.lens = c->probe->lens_k > 0 && s.columns >= 3;
    int left = s.columns - s.lens;
    s.token = 1;
    s.rows = token->n;
    for (int k = 1; k < left; k++) {
        int a = (token->n + k - 1) / k, b = (cell->n + left - k - 1) / (left - k),
            rows = a > b ? a : b;
        if (k > 1 && rows >= s.rows)
            continue;
        s.token = k;
        s.cell = left - k;
        s.rows = rows;
    }
    s.rows = s.lens && s.rows < c->probe->lens_k ? c->probe->lens_k : s.rows;
    return s;
}

int cells_readout_rows(const struct cells *c, int cols)
{
    struct rows token, cell;
    collect(c, &token, &cell);
    return 1 + split_columns(c, cols, &token, &cell).rows;
}

/* Stacked, for a panel at the side. */
static void draw_side(struct area a, const struct cells *c, const struct rows *token,
                      const struct rows *cell)
{
    token_title(area_sub(a, 0, 0, 1, a.cols), c);
    draw_rows(area_sub(a, 1, 0, token->n, a.cols), token, 0);
    int y = token->n + 2;
    layer_title(area_sub(a, y, 0, 1, a.cols), c);
    draw_rows(area_sub(a, y + 1, 0, cell->n, a.cols), cell, 0);
    draw_lens(area_sub(a, y + cell->n + 2, 0, c->probe->lens_k + 1, a.cols), c);
}

/* Side by side, for a panel below the map: the token, its cell, the logit lens. */
static void draw_below(struct area a, const struct cells *c, const struct rows *token,
                       const struct rows *cell)
{
    struct split s = split_columns(c, a.cols, token, cell);
    int width = (a.cols - (s.columns - 1) * COLUMN_GAP) / s.columns, step = width + COLUMN_GAP,
        rows = a.rows - 1;
    int token_rows_each = (token->n + s.token - 1) / s.token, x = 0;
    token_rows_each = token_rows_each > rows ? rows : token_rows_each;
    token_title(area_sub(a, 0, 0, 1, s.token * step - COLUMN_GAP), c);
    for (int k = 0; k < s.token; k++, x += step)
        draw_rows(area_sub(a, 1, x, token_rows_each, width), token, k * token_rows_each);
    if (s.cell > 0) {
        int each = (cell->n + s.cell - 1) / s.cell;
        each = each > rows ? rows : each;
        layer_title(area_sub(a, 0, x, 1, s.cell * step - COLUMN_GAP), c);
        for (int k = 0; k < s.cell; k++, x += step)
            draw_rows(area_sub(a, 1, x, each, width), cell, k * each);
    }
    if (s.lens)
        draw_lens(area_sub(a, 0, x, a.rows, a.cols - x), c);
}

void cells_readout_draw(struct area a, struct cells *c)
{
    struct rows token, cell;
    if (a.rows < 1 || a.cols < 10)
        return;
    collect(c, &token, &cell);
    if (a.rows >= token.n + cell.n + 4 && a.cols < 60)
        draw_side(a, c, &token, &cell);
    else
        draw_below(a, c, &token, &cell);
}

/* ---- the whole picture ---- */

/* Rows of each part.  Showing all layers has priority over the read-out, and one row per layer over
 * the third line of text. */
struct parts {
    int text, gap, map, foot;
};

static struct parts share_rows(struct area main, const struct cells *c, int has_foot)
{
    const struct look *look = &main.canvas->look;
    int rows = main.rows, most = rows / 12 + 1, full = c->probe->layers + 3;
    struct parts s = {.gap = rows >= 18};
    most = rows < 7 ? 0 : rows < 12 ? 1 : rows < 18 ? 2 : most < 3 ? 3 : most;
    s.text = most ? cells_text_rows(c, main.cols - 2, most) : 0;
    s.gap = s.gap && s.text > 0;
    if (has_foot) {
        int left = rows - s.text - cells_map_least(c, look) - 2, at_most = rows * 2 / 5;
        s.foot = cells_readout_rows(c, main.cols - 2);
        s.foot = s.foot > at_most ? at_most : s.foot;
        s.foot = s.foot > left && s.foot > 2 ? (left > 2 ? left : 2) : s.foot;
    }
    int room = rows - s.text - s.gap - s.foot - (s.foot > 0);
    for (; room < full && room + s.text - 1 + s.gap >= full && s.text > 1; room++)
        s.text--;
    if (room < full && room + s.gap >= full) {
        room += s.gap;
        s.gap = 0;
    }
    s.map = cells_map_rows(c, look, room);
    return s;
}

/* Text above the map; the read-out at the side of wide screens, else at the bottom. */
void cells_draw(struct area a, struct cells *c)
{
    int is_wide = a.cols >= 110 && a.rows >= 20, y;
    struct area main = area_sub(a, 0, 0, a.rows, is_wide ? a.cols - SIDE_COLS - 3 : a.cols);
    struct parts s = share_rows(main, c, !is_wide && a.rows >= 9);
    c->at = (struct cells_at){.text_x = 1, .text_rows = s.text, .text_cols = main.cols - 2};
    if (s.text)
        cells_text_draw(area_sub(main, 0, 1, s.text, main.cols - 2), c);
    y = s.text + s.gap;
    c->at.map_y = y;
    c->at.map_x = 1;
    cells_map_draw(area_sub(main, y, 1, s.map, main.cols - 2), c);
    if (is_wide) {
        area_vline(a, 0, main.cols, a.rows, ink(ROLE_BORDER));
        cells_readout_draw(area_sub(a, 0, main.cols + 2, a.rows, SIDE_COLS), c);
    } else if (s.foot) {
        y += s.map + 1;
        cells_readout_draw(area_sub(a, y, 1, a.rows - y, a.cols - 2), c);
    }
}
