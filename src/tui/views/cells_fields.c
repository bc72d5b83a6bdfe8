/* The fields that a cell can show and their colours, all taken from the probe. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "io/experts.h"
#include "tui/cells.h"

static int has_margin(const struct probe *p)
{
    return probe_cell(p, "score") && probe_cell(p, "threshold");
}

int cells_fields(const struct probe *p)
{
    return 1 + p->cells + has_margin(p);
}

const char *cells_field_name(const struct probe *p, int field)
{
    if (field <= 0)
        return "executed or skipped";
    return field <= p->cells ? p->cell[field - 1].name : "margin";
}

double cells_value(const struct probe *p, int field, int layer, int token)
{
    size_t at = (size_t)layer * (size_t)p->tokens + (size_t)token;
    if (field <= 0)
        return p->run ? p->run[at] != 0 : (double)NAN;
    if (field <= p->cells)
        return (double)p->cell[field - 1].v[at];
    const struct matrix *score = probe_cell(p, "score"), *threshold = probe_cell(p, "threshold");
    return score && threshold ? (double)score->v[at] - (double)threshold->v[at] : (double)NAN;
}

int cells_is_category(const struct probe *p, int field)
{
    return field > 0 && field <= p->cells && p->cell[field - 1].is_category;
}

int cells_is_inferred(const struct probe *p, int field)
{
    return field <= 0 ? p->run_is_inferred : field <= p->cells && p->cell[field - 1].is_inferred;
}

const char *cells_experts(char *out, size_t size, const struct runview *r, const struct probe *p,
                          int layer, int token)
{
    size_t at = (size_t)layer * (size_t)p->tokens + (size_t)token, len = 0;
    int n = 0;
    str_copy(out, size, "no expert");
    for (int k = 0, ranks = probe_expert_ranks(p); k < ranks && len < size; k++) {
        const struct matrix *w = probe_expert_weight(p, k);
        int expert = probe_expert_of(p, k, layer, token);
        if (expert < 0)
            continue;
        const char *word = expert_word(expert, r->experts, r->experts_noop);
        if (n > 0 && word[0] == 'e')
            len += (size_t)snprintf(out + len, size - len, ", %d", expert);
        else
            len +=
                (size_t)snprintf(out + len, size - len, "%s%s %d", n > 0 ? ", " : "", word, expert);
        n++;
        if (w && isfinite(w->v[at]) && len < size)
            len += (size_t)snprintf(out + len, size - len, " (%.2f)", (double)w->v[at]);
    }
    return out;
}

const char *cells_unit(const struct runview *r, const char *name)
{
    return r ? runview_unit(r, name) : "";
}

/* The smallest round number that is at least x. */
static double round_up(double x)
{
    static const double steps[] = {1, 1.5, 2, 3, 4, 5, 6, 8, 10};
    if (!(x > 0) || !isfinite(x))
        return x;
    double unit = pow(10, floor(log10(x)));
    for (size_t i = 0; i < DS_LEN(steps); i++)
        if (x <= unit * steps[i] * 1.0001)
            return unit * steps[i];
    return unit * 10;
}

const char *cells_range(const struct probe *p, int field, const struct look *look, double *lo,
                        double *hi)
{
    double min = (double)INFINITY, max = -(double)INFINITY;
    if (cells_is_category(p, field)) /* its numbers have no range */
        return NULL;
    for (int l = 0; l < p->layers; l++) {
        for (int t = 0; t < p->tokens; t++) {
            double x = cells_value(p, field, l, t);
            if (isfinite(x)) {
                min = x < min ? x : min;
                max = x > max ? x : max;
            }
        }
    }
    *lo = 0;
    *hi = 1;
    if (!(min <= max))
        return NULL;
    if (min < 0 && max > 0) {
        *hi = round_up(-min > max ? -min : max);
        *lo = -*hi;
        return look->theme ? look->theme->diverging : "balance";
    }
    /* ranges begin at 0, so that the amount of colour is proportional to the value */
    *hi = max > 0 ? round_up(max) : 0;
    *lo = min < 0 ? -round_up(-min) : 0;
    if (!(*hi > *lo))
        *hi = *lo + 1;
    return look->theme ? look->theme->sequential : "viridis";
}

double cells_depth(const struct probe *p, const unsigned char *run, int token)
{
    if (!run && p->depth)
        return (double)p->depth[token];
    run = run ? run : p->run;
    if (!run)
        return (double)NAN;
    int n = 0;
    for (int l = 0; l < p->layers; l++)
        n += run[(size_t)l * (size_t)p->tokens + (size_t)token] != 0;
    return n;
}

int32_t cells_mix(const struct look *look, enum role to, double unit)
{
    int from = look->theme ? colour_rgb(&look->theme->role[ROLE_SKIP], 0x2A313B) : 0x2A313B;
    int end = look->theme ? colour_rgb(&look->theme->role[to], 0x5AA2F2) : 0x5AA2F2, rgb = 0;
    for (int shift = 16; shift >= 0; shift -= 8) {
        int x = from >> shift & 255, y = end >> shift & 255;
        rgb |= (x + (int)lround((y - x) * unit)) << shift;
    }
    return INK_RGB | rgb;
}

struct ink cells_depth_ink(const struct look *look, double unit)
{
    if (isnan(unit))
        return ink(ROLE_DIM);
    unit = floor(unit * (HEAT_LEVELS - 1) + 0.5) / (HEAT_LEVELS - 1);
    if (look->colours < 256)
        return unit > 0.67   ? ink_attr(ink(ROLE_TITLE), ATTR_BOLD)
               : unit < 0.34 ? ink_attr(ink(ROLE_DIM), ATTR_DIM)
                             : ink(ROLE_TEXT);
    return (struct ink){.fg = INK_CONTRAST, .bg = cells_mix(look, ROLE_RUN, unit)};
}

enum role cells_mark_role(int mark)
{
    return mark == 1 ? ROLE_GOOD : mark == 2 ? ROLE_WARN : ROLE_TEXT;
}

int cells_mark_legend(struct area line, int x, const int count[3])
{
    static const char *const word[] = {"", "drafted", "corrected"};
    for (int k = 1; k <= 2; k++) {
        char text[48];
        int n = snprintf(text, sizeof text, "%d %s", count[k], word[k]);
        if (x + n <= line.cols)
            x += area_text(line, 0, x, n, ink(cells_mark_role(k)), text) + 2;
    }
    return x;
}

int cells_kv(const struct runview *r)
{
    char key[96] = "";
    if (!r || !r->method)
        return -1;
    str_copy(key, sizeof key - 4, r->method);
    memcpy(key + strlen(key), ".kv", 4);
    const char *kv = runview_config(r, key);
    return !kv ? -1 : strcmp(kv, "all") == 0 ? 1 : strcmp(kv, "plan") == 0 ? 0 : -1;
}

int cells_is_iterated(const struct cells *c)
{
    return c->probe && runview_is_iterated(c->view, c->probe->layers);
}

const char *cells_place(const struct cells *c, int layer, char out[64])
{
    const struct runview *v = c->view;
    int loop = runview_config_int(v, "model.loop", 1);
    int start = runview_config_int(v, "model.loop_first", 0);
    int group = runview_config_int(v, "model.layers", 0) - start -
                runview_config_int(v, "model.loop_last", 0);
    if (cells_is_iterated(c))
        snprintf(out, 64, "iteration %d", layer);
    else if (loop > 1 && group > 0 && layer >= start && layer < start + loop * group)
        snprintf(out, 64,
                 group > 1 ? "layer %d, iteration %d of block %d" : "layer %d, iteration %d", layer,
                 (layer - start) / group, start + (layer - start) % group);
    else
        snprintf(out, 64, "layer %d", layer);
    return out;
}

int cells_subject(const struct cells *c, struct subject *out)
{
    const struct probe *p = c->probe;
    if (!p || c->token >= p->tokens || c->layer >= p->layers)
        return 0;
    str_copy(out->key, sizeof out->key, cells_field_name(p, c->field));
    char place[64];
    snprintf(out->where, sizeof out->where, "%s, token %d of %s", cells_place(c, c->layer, place),
             c->token, p->name ? p->name : "the probe");
    out->value = cells_value(p, c->field, c->layer, c->token);
    out->step = p->step;
    out->record = "probe record";
    if (c->field <= 0) {
        str_copy(out->text, sizeof out->text, cells_state_word(cells_state(c, c->layer, c->token)));
        out->help = "whether the layer computed this token; a skipped token keeps its state";
        out->formula = "h[l+1] = h[l] + gate * f(h[l]) when executed, else h[l]";
    } else if (cells_is_category(p, c->field)) {
        out->help =
            "number of a category, such as the expert that the router chose: a name, not an "
            "amount, so it has no mean and no order";
        if (out->value >= 0 && out->value <= 1e9)
            snprintf(out->text, sizeof out->text, "%ld", (long)out->value);
    } else if (c->field > p->cells) {
        out->help = "distance of the score from the threshold of the decision";
        out->formula = "score - threshold; the sign decides";
    }
    if (cells_is_inferred(p, c->field))
        out->record = "probe record; inferred by its writer, not stated by the model";
    return 1;
}

/* ---- preparation and motion ---- */

static int clamp(int x, int n)
{
    return x >= n ? n - 1 : x < 0 ? 0 : x;
}

/* 1 where no token's cell of the layer was decided. */
static int is_forced(const struct probe *p, int layer)
{
    const struct matrix *forced = probe_cell(p, "forced");
    int t = 0;
    while (forced && t < p->tokens && forced->v[(size_t)layer * (size_t)p->tokens + (size_t)t] > 0)
        t++;
    return t == p->tokens;
}

int cells_fit(struct cells *c)
{
    const struct probe *p = c->probe;
    c->token = clamp(c->token, p->tokens);
    c->layer = clamp(c->layer, p->layers);
    c->field = clamp(c->field, cells_fields(p));
    c->seen_token = clamp(c->is_moving ? c->seen_token : c->token, p->tokens);
    c->seen_layer = clamp(c->is_moving ? c->seen_layer : c->layer, p->layers);
    unsigned char *rule = mem_realloc(c->always_on, (size_t)p->layers + 1, 1);
    if (!rule)
        return DS_EMEM;
    c->always_on = rule;
    c->always_on_n = p->layers;
    for (int l = 0; l < p->layers; l++) {
        const unsigned char *row = p->run ? p->run + (size_t)l * (size_t)p->tokens : NULL;
        int is_said = !c->view || runview_always_on(c->view, l) || is_forced(p, l);
        rule[l] = is_said && row && !memchr(row, 0, (size_t)p->tokens);
    }
    return 0;
}

void cells_release(struct cells *c)
{
    mem_free(c->always_on);
    c->always_on = NULL;
    c->always_on_n = 0;
    c->is_moving = 0;
}

const char *cells_state_word(enum cell_state s)
{
    static const char *const word[] = {[CELL_SKIP] = "skipped",
                                       [CELL_RUN] = "executed",
                                       [CELL_ALWAYS_ON] = "always on",
                                       [CELL_FORCED] = "forced",
                                       [CELL_UNKNOWN] = "not recorded"};
    return word[s];
}

/* Always on: said so by the head of the run or marked as forced for every token, and executed for
 * all.  A layer that merely skipped none is not. */
enum cell_state cells_state(const struct cells *c, int layer, int token)
{
    const struct probe *p = c->probe;
    size_t at = (size_t)layer * (size_t)p->tokens + (size_t)token;
    const unsigned char *run = c->run ? c->run : p->run;
    const struct matrix *forced = probe_cell(p, "forced");
    if (!run || !run[at])
        return run ? CELL_SKIP : CELL_UNKNOWN;
    if (c->force && c->force[at] >= 0)
        return CELL_RUN;
    if (forced && !(forced->v[at] > 0))
        return CELL_RUN;
    if (layer < c->always_on_n && c->always_on[layer])
        return CELL_ALWAYS_ON;
    return forced ? CELL_FORCED : CELL_RUN;
}

/* Moves to the next layer whose decision differs, else to the last one. */
static void jump(struct cells *c, int by)
{
    const struct probe *p = c->probe;
    int l = c->layer, was = cells_state(c, l, c->token);
    while (l + by >= 0 && l + by < p->layers && (int)cells_state(c, l + by, c->token) == was)
        l += by;
    c->layer = clamp(l + by, p->layers);
}

void cells_go(struct cells *c, enum cells_move m)
{
    if (!c->probe)
        return;
    int page = c->at.tokens > 4 ? c->at.tokens - 2 : 8, down = c->is_upward ? -1 : 1;
    switch (m) {
    case CELLS_LEFT: c->token--; break;
    case CELLS_RIGHT: c->token++; break;
    case CELLS_UP: c->layer -= down; break;
    case CELLS_DOWN: c->layer += down; break;
    case CELLS_PAGE_LEFT: c->token -= page; break;
    case CELLS_PAGE_RIGHT: c->token += page; break;
    case CELLS_FIRST: c->token = 0; break;
    case CELLS_LAST: c->token = c->probe->tokens - 1; break;
    case CELLS_JUMP_UP: jump(c, -down); break;
    case CELLS_JUMP_DOWN: jump(c, down); break;
    }
    c->token = clamp(c->token, c->probe->tokens);
    c->layer = clamp(c->layer, c->probe->layers);
}

static int map_hit(struct cells *c, int y, int x)
{
    const struct cells_at *at = &c->at;
    if (at->width < 1 || x < at->map_x || y < at->map_y - 1 || y > at->map_y + at->rows)
        return 0;
    int token = c->first_token + (x - at->map_x) / at->width, row = y - at->map_y;
    if ((x - at->map_x) / at->width >= at->tokens)
        return 0;
    c->token = clamp(token, c->probe->tokens);
    if (row >= 0 && row < at->rows) {
        int shown = c->first_layer + row / at->height * at->per_row;
        c->layer = clamp(c->is_upward ? c->probe->layers - 1 - shown : shown, c->probe->layers);
    }
    return 1;
}

int cells_event(struct cells *c, const struct event *ev)
{
    if (!c->probe || ev->kind != EVENT_MOUSE)
        return 0;
    if (ev->action == MOUSE_WHEEL_UP || ev->action == MOUSE_WHEEL_DOWN) {
        cells_go(c, ev->action == MOUSE_WHEEL_UP ? CELLS_LEFT : CELLS_RIGHT);
        return 1;
    }
    if (ev->action != MOUSE_PRESS && ev->action != MOUSE_DRAG)
        return 0;
    int token = cells_text_hit(c, ev->y, ev->x);
    if (token >= 0) {
        c->token = token;
        return 1;
    }
    return map_hit(c, ev->y, ev->x);
}

/* ---- search and copy ---- */

int cells_search(struct cells *c, const char *text, int direction)
{
    const struct probe *p = c->probe;
    struct str all = {0};
    size_t n = text ? strlen(text) : 0;
    if (!p || n == 0)
        return 0;
    size_t *start = mem_alloc((size_t)p->tokens + 1, sizeof *start);
    for (int t = 0; start && t < p->tokens; t++) {
        start[t] = all.len;
        str_add_bytes(&all, p->piece[t], p->piece_len[t]);
    }
    int found = -1;
    for (int k = 1; start && !all.failed && k <= p->tokens && found < 0; k++) {
        int t = ((c->token + direction * k) % p->tokens + p->tokens) % p->tokens;
        size_t end = t + 1 < p->tokens ? start[t + 1] : all.len;
        for (size_t i = start[t]; i < end && found < 0; i++)
            if (i + n <= all.len && memcmp(all.p + i, text, n) == 0)
                found = t;
    }
    if (found >= 0)
        c->token = found;
    mem_free(start);
    str_release(&all);
    return found >= 0;
}

void cells_copy(const struct cells *c, struct str *out)
{
    const struct probe *p = c->probe;
    for (int l = 0; p && l < p->layers; l++) {
        str_addf(out, "%d", l);
        for (int t = 0; t < p->tokens; t++)
            str_addf(out, "\t%.6g", cells_value(p, c->field, l, t));
        str_add_char(out, '\n');
    }
}

/* ---- when a moving cursor rests ---- */

enum { REST_MS = 120 };

/* A script has no later moment: everything is drawn at once. */
void cells_moved(struct cells *c, int is_scripted)
{
    if (is_scripted)
        return;
    c->is_moving = 1;
    c->rests_at = clock_mono() + REST_MS / 1000.0;
}

double cells_due(const struct cells *c)
{
    return c->is_moving ? c->rests_at : HUGE_VAL;
}

int cells_settled(struct cells *c)
{
    if (!c->is_moving || clock_mono() < c->rests_at)
        return 0;
    c->is_moving = 0;
    return 1;
}
