/* The tokens that one expert takes, from the newest probe: by token class and in the text. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tui/experts.h"

enum { CLASS_COLS = 38, COUNT_COLS = 9 };

/* Weight of the expert for a token, NaN when not recorded. */
static double weight_of(const struct probe *p, int rank, int layer, int token)
{
    const struct matrix *m = probe_expert_weight(p, rank);
    return m ? (double)m->v[(size_t)layer * (size_t)m->cols + (size_t)token] : (double)NAN;
}

/* Marks the tokens of the expert and shades them by weight; returns how many there are. */
static int fit_tokens(struct experts *s, const struct probe *p, int layer, double *mean)
{
    size_t n = (size_t)p->tokens;
    float *shade = mem_realloc(s->shade, n, sizeof *shade);
    s->shade = shade ? shade : s->shade;
    unsigned char *mark = mem_realloc(s->mark, n, 1);
    s->mark = mark ? mark : s->mark;
    if (!shade || !mark)
        return -1;
    int taken = 0, weighed = 0;
    double most = 0, sum = 0;
    for (int t = 0; t < p->tokens; t++) {
        int rank = probe_expert_rank_of(p, layer, t, s->expert);
        double w = rank >= 0 ? weight_of(p, rank, layer, t) : (double)NAN;
        mark[t] = rank >= 0;
        taken += rank >= 0;
        shade[t] = rank >= 0 ? (float)(w >= 0 ? w : 1) : (float)NAN;
        most = (double)shade[t] > most ? (double)shade[t] : most;
        weighed += isfinite(w);
        sum += isfinite(w) ? w : 0;
    }
    for (size_t t = 0; t < n; t++) /* a small weight is still seen */
        shade[t] = most > 0 ? (float)(0.35 + 0.65 * (double)shade[t] / most) : shade[t];
    *mean = weighed ? sum / weighed : (double)NAN;
    return taken;
}

static void draw_missing(struct view *v, struct area a)
{
    struct experts *s = v->state;
    struct scroll lines = {0};
    char text[320];
    snprintf(
        text, sizeof text,
        "Which tokens expert %d of layer %d takes is known from probes with the cell expert of "
        "kind category, and this run has none for this layer; ds.watch(model, run, probe=[...]) "
        "records them. Esc returns to the map.",
        s->expert, s->load.layer[s->row]);
    scroll_text(&lines, area_sub(a, a.rows > 6 ? 2 : 0, 2, a.rows, a.cols - 4), text,
                ink(ROLE_TEXT));
}

/* Share of the tokens of each class that the expert takes; the line is its share of all. */
static void draw_classes(struct area a, const struct probe *p, const unsigned char *mark, int taken)
{
    const struct vector *class_ = probe_token(p, "class");
    double total[RUN_CLASSES] = {0}, own[RUN_CLASSES] = {0};
    char words[RUN_CLASSES][48];
    struct bar bar[RUN_CLASSES];
    size_t n = 0;
    if (!class_ || class_->n < p->tokens) {
        area_text(a, 0, 0, -1, ink(ROLE_DIM), "token classes not recorded");
        return;
    }
    for (int t = 0; t < p->tokens; t++) {
        int k = class_->v[t] >= 0 && class_->v[t] < RUN_CLASSES ? (int)class_->v[t] : -1;
        if (k >= 0) {
            total[k]++;
            own[k] += mark[t];
        }
    }
    for (int k = 0; k < RUN_CLASSES; k++)
        if (total[k] > 0) {
            snprintf(words[n], sizeof words[n], "%.0f of %.0f", own[k], total[k]);
            bar[n++] = (struct bar){
                .label = runview_class(k), .value = own[k] / total[k], .role = ROLE_SERIES_0};
        }
    area_text(a, 0, 0, -1, ink(ROLE_DIM), "share of each token class");
    bars_draw(area_sub(a, 1, 0, a.rows - 1, a.cols - COUNT_COLS), bar, n, 1,
              (double)taken / p->tokens, 0);
    for (size_t i = 0; i < n; i++)
        area_right(a, 1 + (int)i, a.cols, ink(ROLE_DIM), words[i]);
}

static void draw_title(const struct experts *s, struct area line, int taken, double mean)
{
    const struct probe *p = s->cells.probe;
    char part[3][64] = {{0}};
    int x = 1 + area_textf(line, 0, 1, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD),
                           line.cols < 40 ? "L%d E%d" : "layer %d expert %d", s->load.layer[s->row],
                           s->expert);
    snprintf(part[0], 64, "%d of %d tokens", taken, p->tokens);
    if (isfinite(mean))
        snprintf(part[1], 64, "mean weight %.2f", mean);
    snprintf(part[2], 64, "step %lld", (long long)p->step);
    for (int i = 0; i < 3; i++) {
        int n = (int)strlen(part[i]);
        if (n && x + 2 + n <= line.cols)
            x += 2 + area_text(line, 0, x + 2, n, ink(i ? ROLE_DIM : ROLE_TEXT), part[i]);
    }
    const struct matrix *m = probe_expert(p, 0);
    if (m->is_inferred && x + 11 <= line.cols)
        x += 2 + area_text(line, 0, x + 2, -1, ink(ROLE_WARN), "inferred");
    if (x + 6 < line.cols)
        cells_title(line, x + 2, 24, line.cols, p);
}

/* The token at the cursor, and all its experts in this layer. */
static void draw_token(struct view *v, struct area line, int layer)
{
    const struct experts *s = v->state;
    const struct probe *p = s->cells.probe;
    int t = s->cells.token;
    char words[256];
    struct str text = {0};
    int x = 0, has_text = p->piece_len[t] > 0;
    if (line.cols >= 40)
        x += area_textf(line, 0, 0, -1, ink(ROLE_TEXT), "token %d%s", t, has_text ? " " : "  ");
    cells_joined(p, t, &text);
    if (has_text) {
        x += area_text(line, 0, x, -1, ink(ROLE_TEXT), "\"");
        x += area_bytes(line, 0, x, line.cols < 40 ? 4 : 12, ink(ROLE_TEXT), str_text(&text),
                        text.len);
        x += area_text(line, 0, x, -1, ink(ROLE_TEXT), "\"  ");
    }
    str_release(&text);
    area_text(line, 0, x, -1, ink(s->mark[s->cells.seen_token] ? ROLE_TITLE : ROLE_DIM),
              cells_experts(words, sizeof words, app_run(v->app), p, layer, s->cells.seen_token));
}

int experts_tokens_prepare(struct view *v, double *mean)
{
    struct experts *s = v->state;
    const struct probe *p = experts_probe(v);
    int layer = s->load.layer[s->row];
    s->cells.probe = p && layer < p->layers ? p : NULL;
    if (!s->cells.probe)
        return -1;
    s->cells.view = app_run(v->app);
    s->cells.token = s->pick.token;
    s->cells.layer = layer;
    s->cells.hides = 0;
    for (int f = 1; f < cells_fields(p); f++) /* what is explained under the cursor */
        if (strcmp(cells_field_name(p, f), "expert") == 0)
            s->cells.field = f;
    int taken = fit_tokens(s, p, layer, mean);
    if (taken < 0 || cells_fit(&s->cells) < 0) {
        s->cells.probe = NULL;
        return -1;
    }
    s->cells.mark = s->mark;
    s->cells.shade = s->shade;
    return taken;
}

void experts_tokens_draw(struct view *v, struct area a)
{
    struct experts *s = v->state;
    double mean;
    int taken = experts_tokens_prepare(v, &mean), layer = s->load.layer[s->row];
    const struct probe *p = s->cells.probe;
    if (!p) {
        draw_missing(v, a);
        return;
    }
    int has_title = a.rows >= 3, has_foot = a.rows >= 2, y = has_title, is_wide = a.cols >= 76,
        room = a.rows - has_title - has_foot;
    if (has_title)
        draw_title(s, area_sub(a, 0, 0, 1, a.cols), taken, mean);
    int classes = room < 10 ? 0 : RUN_CLASSES + 1, left = is_wide && room >= 8 ? CLASS_COLS + 3 : 1;
    if (left > 1) {
        y += room >= 12;
        draw_classes(area_sub(a, y, 1, room, CLASS_COLS), p, s->mark, taken);
    } else if (classes && room >= classes + 4) {
        draw_classes(area_sub(a, y, 1, classes, a.cols - 2), p, s->mark, taken);
        y += classes + 1;
    }
    int rows = a.rows - has_foot - (room >= 12) - y, cols = a.cols - left - 1;
    rows = rows < 1 ? 1 : rows;
    s->cells.at =
        (struct cells_at){.text_y = y, .text_x = left, .text_rows = rows, .text_cols = cols};
    cells_text_draw(area_sub(a, y, left, rows, cols), &s->cells);
    if (has_foot)
        draw_token(v, area_sub(a, a.rows - 1, 1, 1, a.cols - 2), layer);
}
