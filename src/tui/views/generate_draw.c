/* Draws the Generate view: the text coloured by depth, the likely tokens at the cursor, the
 * costs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tui/generate.h"

enum { SIDE_COLS = 44, WIDE_COLS = 100, PANEL_ROWS = GENERATE_TOP + 1 };

/* ---- head ---- */

static void draw_title(struct view *v, struct area line)
{
    struct generate *g = v->state;
    char text[160], top_k[24] = "", latency[24];
    int x = 1, is_chat = g->is_chat && g->chat[0];
    const char *word = !g->session    ? "stopped"
                       : !g->about    ? "loading"
                       : g->asked > 0 ? "working"
                                      : "ready";
    enum role role = !g->session ? ROLE_BAD : g->asked > 0 ? ROLE_WARN : ROLE_GOOD;
    x += area_text(line, 0, x, line.cols / 3, ink_attr(ink(ROLE_TITLE), ATTR_BOLD),
                   g->model[0] ? worker_title(v->app, g->model) : "no model") +
         2;
    x += area_text(line, 0, x - 2, -1, ink(ROLE_DIM), worker_latency(v->app, g->model, latency));
    area_text(line, 0, x, 7, ink(role), word);
    x += 9;
    str_copy(text, sizeof text, "completion");
    if (is_chat)
        snprintf(text, sizeof text, "chat, template %s%s", g->chat, g->is_new ? ", new" : "");
    x += area_text(line, 0, x, line.cols - x, ink(ROLE_DIM), text) + 2;
    if (g->top_k > 0)
        snprintf(top_k, sizeof top_k, "  top-k %d", g->top_k);
    snprintf(text, sizeof text, "temperature %.4g%s  top-p %.4g  seed %d  max %d", g->temperature,
             g->temperature > 0 ? top_k : "", g->top_p, g->seed, g->max_tokens);
    if (g->temperature <= 0)
        snprintf(text, sizeof text, "greedy  max %d", g->max_tokens);
    if (g->temperature > 0 && x + (int)strlen(text) >= line.cols)
        snprintf(text, sizeof text, "temperature %.4g  seed %d", g->temperature, g->seed);
    if (x + (int)strlen(text) < line.cols)
        area_right(line, 0, line.cols - 1, ink(ROLE_DIM), text);
}

static void draw_field(struct view *v, struct area line)
{
    static const char *const label[] = {"", "prompt ", "instead of the token ", "", "save as "};
    struct generate *g = v->state;
    int is_typing = g->typing != GENERATE_NOT_TYPING && g->typing != GENERATE_VALUE;
    const char *name =
        g->typing == GENERATE_PROMPT && g->is_chat && g->chat[0] ? "message " : label[g->typing];
    if (is_typing) {
        int x = 1 + area_text(line, 0, 1, -1, ink(ROLE_SELECTED), name);
        field_draw(&g->field, line, 0, x, line.cols - x - 1, v->has_focus);
    } else if (!g->session && g->n > 0 && g->trouble[0]) {
        area_textf(line, 0, 1, line.cols - 2, ink(ROLE_BAD), "%s; R restarts it", g->trouble);
    } else {
        area_text(line, 0, 1, line.cols - 2, ink(ROLE_DIM),
                  g->n == 0
                      ? "i: type a prompt"
                      : "i: new text, Enter: continue, r: again from the cursor, c: change the "
                        "token");
    }
}

static int put(struct area line, int x, const char *text, enum role role)
{
    int n = (int)strlen(text);
    return n == 0 || x + n > line.cols ? x : x + area_text(line, 0, x, n, ink(role), text) + 2;
}

static int draw_marks(const struct generate *g, struct area line, int x)
{
    int n[3] = {0};
    for (size_t t = 0; t < g->n; t++)
        n[g->token[t].mark]++;
    return g->cells.tone ? cells_mark_legend(line, x, n) : x;
}

static void draw_numbers(const struct generate *g, struct area line)
{
    size_t prompt = 0;
    double flops = 0, dense = 0, depth = 0;
    char text[96];
    int x = 1;
    for (size_t t = 0; t < g->n; t++) {
        prompt += g->token[t].is_prompt != 0;
        flops += g->token[t].flops;
        dense += g->token[t].dense;
        depth += g->token[t].depth / (double)g->n;
    }
    snprintf(text, sizeof text, "%zu tokens, %zu generated", g->n, g->n - prompt);
    x = put(line, x, text, ROLE_TEXT);
    double speed = generate_speed(g);
    snprintf(text, sizeof text, "%.1f tok/s", speed);
    x = put(line, x, isfinite(speed) ? text : "", ROLE_TEXT);
    /* the tokens' own FLOPs lack those of the drafts, which are known with the whole answer */
    double ratio = !g->cells.tone ? flops / dense : g->stop[0] ? g->flops_ratio : (double)NAN;
    snprintf(text, sizeof text, "FLOPs %.3f of dense", ratio);
    x = put(line, x, isfinite(ratio) ? text : "", ROLE_TEXT);
    x = draw_marks(g, line, x);
    snprintf(text, sizeof text, "ended: %.40s", g->stop);
    x = put(line, x, g->stop[0] ? text : "", ROLE_DIM);
    snprintf(text, sizeof text, "mean depth %.2f of %d", depth, g->layers);
    put(line, x, text, ROLE_DIM);
}

/* ---- the token at the cursor ---- */

static void draw_choice(struct area a, int y, const struct generate_choice *c, int is_chosen,
                        int is_cursor)
{
    enum { BAR_X = 9, BAR = 8, PIECE_X = 18 };
    area_text(a, y, 0, 1, ink(ROLE_TITLE), is_cursor ? ">" : " ");
    area_textf(a, y, 1, 7, ink(is_chosen ? ROLE_TITLE : ROLE_TEXT), c->p < 0.9995 ? "%.4f" : "%.3f",
               c->p);
    double left = c->p * BAR;
    for (int x = 0; x < BAR && left >= 0.25; x++, left--)
        area_put(a, y, BAR_X + x,
                 left >= 0.75 ? area_rune(a, 0x2588, '#') : area_rune(a, 0x258C, '-'),
                 ink(is_chosen ? ROLE_SERIES_1 : ROLE_DIM));
    struct area room = area_sub(a, y, PIECE_X, 1, a.cols - PIECE_X);
    struct ink k = is_chosen ? ink_attr(ink(ROLE_TITLE), ATTR_BOLD) : ink(ROLE_TEXT);
    int x = area_text(room, 0, 0, 1, ink(ROLE_DIM), "\"");
    x += area_bytes(room, 0, x, room.cols - 9 - x, k, c->piece, c->len);
    area_text(room, 0, x, 1, ink(ROLE_DIM), "\"");
    if (is_chosen)
        area_right(a, y, a.cols, ink(ROLE_DIM), "chosen");
}

static void draw_choices(struct area a, const struct generate *g)
{
    const struct generate_token *t = &g->token[g->cells.seen_token];
    area_textf(a, 0, 0, a.cols, ink(ROLE_DIM), "likely at token %d, given the past",
               g->cells.seen_token);
    if (t->top == 0)
        area_text(a, 1, 0, a.cols, ink(ROLE_DIM), "nothing comes before it");
    int has_chosen = 0, rows = a.rows - 1, from = g->choice >= rows ? g->choice - rows + 1 : 0;
    for (int i = 0; i < t->top; i++) {
        int is_chosen = t->choice[i].id == t->id;
        has_chosen |= is_chosen;
        if (i >= from && i - from < rows)
            draw_choice(a, 1 + i - from, &t->choice[i], is_chosen, i == g->choice);
    }
    if (t->top > 0 && !has_chosen && t->top + 1 < a.rows)
        area_textf(a, t->top + 1, 0, a.cols, ink(ROLE_DIM), "chosen: not among these, p %.2e",
                   exp(t->logprob));
}

static void value_row(struct area a, int y, const char *label, const char *text)
{
    area_text(a, y, 0, 14, ink(ROLE_DIM), label);
    area_text(a, y, 14, a.cols - 14, ink(ROLE_TEXT), text);
}

static void draw_token(struct area a, const struct generate *g)
{
    const struct generate_token *t = &g->token[g->cells.token],
                                *seen = &g->token[g->cells.seen_token];
    char text[64], si[16];
    int y = 0, x = area_textf(a, y, 0, -1, ink(ROLE_TEXT), "token %d \"", g->cells.token);
    x += area_bytes(a, y, x, a.cols - x - 1, ink(ROLE_TEXT), t->piece, t->len);
    area_text(a, y++, x, 1, ink(ROLE_TEXT), "\"");
    value_row(a, y++, "from",
              seen->is_prompt   ? "the prompt"
              : seen->mark == 1 ? "a draft, accepted"
              : seen->mark == 2 ? "the model, not its draft"
                                : "the model");
    snprintf(text, sizeof text, "%.4f", exp(seen->logprob));
    value_row(a, y++, "probability", isfinite(seen->logprob) ? text : "-");
    snprintf(text, sizeof text, "%.3f nats", -seen->logprob);
    value_row(a, y++, "loss", isfinite(seen->logprob) ? text : "-");
    snprintf(text, sizeof text, "%g of %d layers", seen->depth, g->layers);
    value_row(a, y++, "depth", text);
    value_row(a, y++, "FLOPs", isfinite(seen->flops) ? str_si(si, seen->flops) : "-");
    snprintf(text, sizeof text, "%.3f", seen->flops / seen->dense);
    value_row(a, y++, "of dense", isfinite(seen->flops / seen->dense) ? text : "-");
    area_text(a, y, 0, 14, ink(ROLE_DIM), "layers");
    x = g->layers <= a.cols - 14 ? 14 : 0; /* many get lines of their own */
    y += x == 0;
    for (int l = 0, per = a.cols - x; l < g->layers && per > 0; l++)
        area_put(a, y + l / per, x + l % per,
                 seen->run[l] ? area_rune(a, 0x2588, '#') : area_rune(a, 0xB7, '.'),
                 ink(seen->run[l] ? ROLE_RUN : ROLE_DIM));
}

/* ---- the sampling settings ---- */

static void draw_form(struct view *v, struct area whole)
{
    struct generate *g = v->state;
    int rows = GENERATE_SETTINGS + 2 < whole.rows ? GENERATE_SETTINGS + 2 : whole.rows,
        cols = whole.cols < 72 ? whole.cols : 72;
    struct area a = popup_begin(whole, rows, cols, "sampling");
    int fits = a.rows >= GENERATE_SETTINGS + 2, shown = fits ? GENERATE_SETTINGS : a.rows - 1;
    list_fit(&g->form, GENERATE_SETTINGS, shown);
    for (int i = (int)g->form.top, y = 0; i < GENERATE_SETTINGS && y < shown; i++, y++) {
        char value[32];
        int is_here = (size_t)i == g->form.cursor;
        generate_print(g, i, value, sizeof value);
        area_text(a, y, 1, 12, ink(is_here ? ROLE_SELECTED : ROLE_TEXT), generate_setting[i].name);
        if (is_here && g->typing == GENERATE_VALUE)
            field_draw(&g->field, a, y, 14, 12, v->has_focus);
        else
            area_text(a, y, 14, 12, ink_attr(ink(ROLE_TITLE), is_here ? ATTR_BOLD : 0), value);
        area_text(a, y, 27, a.cols - 27, ink(ROLE_DIM), generate_setting[i].help);
        if (is_here)
            area_put(a, y, 0, area_rune(a, 0x203A, '>'), ink(ROLE_SELECTED));
    }
    area_text(a, fits ? shown + 1 : shown, 1, a.cols - 1, ink(g->wrong[0] ? ROLE_BAD : ROLE_DIM),
              g->wrong[0] ? g->wrong : "Enter edits a value, Esc closes");
}

/* ---- the whole ---- */

static void draw_empty(struct view *v, struct area a)
{
    struct generate *g = v->state;
    int y = a.rows > 6 ? a.rows / 2 - 2 : 0;
    const char *title = !g->session    ? g->had_model ? "The model process has stopped" : "No model"
                        : !g->about    ? "Loading the model"
                        : g->asked > 0 ? "Generating"
                                       : "No text yet",
               *text = !g->session ? g->trouble
                       : g->chat[0]
                           ? "Press i to type a prompt; t changes between completion and chat"
                           : "Press i to type a prompt for the model to continue";
    area_text(a, y, 2, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), title);
    struct scroll lines = {0};
    scroll_text(&lines, area_sub(a, y + 2, 2, a.rows - y - 2, a.cols - 3), text,
                ink(!g->session && g->had_model ? ROLE_BAD : ROLE_TEXT));
    if (g->had_model && !g->session)
        area_text(a, y + 3 + lines.lines, 2, -1, ink(ROLE_DIM), "R restarts it");
}

/* The text, and below it the map where all layers fit. */
static void draw_main(struct area a, struct generate *g, int y0)
{
    struct cells *c = &g->cells;
    int least = cells_map_least(c, &a.canvas->look), most = a.rows, map = 0;
    if (a.rows >= least + 7) {
        map = a.rows / 2 > least ? a.rows / 2 : least;
        most = a.rows - map - 1;
    }
    int rows = cells_text_rows(c, a.cols, most);
    if (map > 0)
        map = cells_map_rows(c, &a.canvas->look, a.rows - rows - 1);
    c->at = (struct cells_at){.text_y = y0,
                              .text_x = 1,
                              .text_rows = rows,
                              .text_cols = a.cols,
                              .map_y = y0 + rows + 1,
                              .map_x = 1};
    if (rows > 0)
        cells_text_draw(area_sub(a, 0, 0, rows, a.cols), c);
    if (map > 0)
        cells_map_draw(area_sub(a, rows + 1, 0, map, a.cols), c);
    else
        c->at.tokens = 0;
}

static void draw_parts(struct view *v, struct area a, int y0)
{
    struct generate *g = v->state;
    int is_wide = a.cols >= WIDE_COLS && a.rows >= 16;
    if (is_wide) {
        int x = a.cols - SIDE_COLS;
        draw_main(area_sub(a, 0, 1, a.rows, x - 3), g, y0);
        area_vline(a, 0, x - 1, a.rows, ink(ROLE_BORDER));
        draw_choices(area_sub(a, 0, x + 1, PANEL_ROWS + 1, SIDE_COLS - 2), g);
        draw_token(area_sub(a, PANEL_ROWS + 2, x + 1, a.rows - PANEL_ROWS - 2, SIDE_COLS - 2), g);
        return;
    }
    int panel = a.rows >= 16                    ? PANEL_ROWS
                : a.rows >= 9                   ? a.rows / 2
                : a.rows >= 3 && g->choice >= 0 ? 2 /* what Enter takes is seen */
                                                : 0,
        left = a.cols >= 70 ? a.cols - 34 : a.cols - 2;
    draw_main(area_sub(a, 0, 1, a.rows - panel - (panel > 0), a.cols - 2), g, y0);
    if (panel == 0)
        return;
    int y = a.rows - panel;
    draw_choices(area_sub(a, y, 1, panel, left - 1), g);
    if (a.cols >= 70)
        draw_token(area_sub(a, y, left + 2, panel, a.cols - left - 2), g);
}

void generate_draw(struct view *v, struct area a)
{
    struct generate *g = v->state;
    int has = generate_prepare(v), y = 0;
    if (a.rows >= 6)
        draw_title(v, area_sub(a, y++, 0, 1, a.cols));
    if (a.rows >= 6 || g->typing != GENERATE_NOT_TYPING)
        draw_field(v, area_sub(a, y++, 0, 1, a.cols));
    if (has && a.rows >= 3)
        draw_numbers(g, area_sub(a, y++, 0, 1, a.cols));
    struct area body = area_sub(a, y, 0, a.rows - y, a.cols);
    g->cells.has_focus =
        v->has_focus && g->typing == GENERATE_NOT_TYPING && !app_is_scripted(v->app);
    g->head_rows = y;
    if (has)
        draw_parts(v, body, y);
    else
        draw_empty(v, body);
    if (g->has_form)
        draw_form(v, a);
}
