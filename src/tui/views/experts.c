/* Experts: the load of every expert of every layer relative to ideal, over training; dead and hottest
 * experts by name, and the tokens that an expert takes. */
#include "tui/experts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

enum { REST_MS = 120 };

static int experts_open(struct view *v, struct err *e)
{
    struct experts *s = v->state;
    (void)e;
    pick_load(&s->pick, v->app);
    return 0;
}

static void experts_close(struct view *v)
{
    struct experts *s = v->state;
    expert_load_release(&s->load);
    cells_release(&s->cells);
    mem_free(s->trend);
    mem_free(s->shade);
    mem_free(s->mark);
}

/* Another run: its places in time are not those of the last one. */
static void experts_run_changed(struct view *v)
{
    struct experts *s = v->state;
    s->is_held = s->is_open = s->is_moving = s->is_playing = 0;
}

/* ---- preparation ---- */

static int clamp(int x, int n)
{
    return x >= n ? n - 1 : x < 0 ? 0 : x;
}

static int load_place(struct experts *s, const struct runview *r)
{
    struct expert_load got;
    size_t n = expert_loads(r), pos = n ? n - 1 : 0;
    if (n && s->is_held)
        pos = expert_loads_find(r, s->step);
    if (n == 0 || expert_load_read(&got, r, pos, NULL) < 0) {
        s->n = 0;
        return 0;
    }
    expert_load_release(&s->load);
    s->load = got;
    s->n = n;
    s->pos = pos;
    s->step = got.step;
    s->is_held = s->is_held && pos + 1 < n;
    return 1;
}

/* The trend is read again when its expert or the run changed. */
static void fit_trend(struct experts *s, const struct runview *r)
{
    if (s->trend_row == s->seen_row && s->trend_expert == s->seen_expert &&
        s->trend_generation == r->generation && s->trend_n == s->n)
        return;
    double *room = mem_realloc(s->trend, s->n, sizeof *room);
    s->trend = room ? room : s->trend;
    s->trend_n = room ? s->n : 0;
    if (room)
        expert_trend(r, s->load.layer[s->seen_row], s->seen_expert, room, s->n);
    s->trend_row = s->seen_row;
    s->trend_expert = s->seen_expert;
    s->trend_generation = r->generation;
}

int experts_prepare(struct view *v)
{
    struct experts *s = v->state;
    const struct runview *r = app_run(v->app);
    if (!r)
        return 0;
    if (s->of != r || s->generation != r->generation || s->n == 0 || s->load.step != s->step) {
        if (!load_place(s, r))
            return 0;
        if (s->of != r)
            s->trend_n = 0; /* that of another run */
        s->of = r;
        s->generation = r->generation;
    }
    s->row = clamp(s->row, s->load.rows);
    s->expert = clamp(s->expert, s->load.experts);
    s->seen_row = clamp(s->is_moving ? s->seen_row : s->row, s->load.rows);
    s->seen_expert = clamp(s->is_moving ? s->seen_expert : s->expert, s->load.experts);
    fit_trend(s, r);
    return 1;
}

static int has_cells(const struct probe *p)
{
    return p && p->tokens > 0 && probe_expert(p, 0) != NULL;
}

const struct probe *experts_probe(struct view *v)
{
    struct experts *s = v->state;
    const struct runview *r = app_run(v->app);
    pick_load(&s->pick, v->app); /* another view may have moved it */
    const struct probe *p = r ? pick_probe(&s->pick, r) : NULL;
    for (size_t i = r ? r->n_probes : 0; i-- > 0 && !has_cells(p);)
        p = r->probe[i]->is_old ? p : r->probe[i];
    return has_cells(p) ? p : NULL;
}

int experts_row_at(const struct experts *s, int shown)
{
    return s->is_upward ? s->load.rows - 1 - shown : shown;
}

double *experts_relative(const struct expert_load *x)
{
    size_t n = (size_t)x->experts;
    double *v = mem_alloc((size_t)x->rows * n, sizeof *v);
    for (int i = 0; v && i < x->rows; i++) {
        double sum = expert_row_of(x, i).sum;
        for (size_t k = 0; k < n; k++)
            v[(size_t)i * n + k] =
                sum > 0 ? x->count[(size_t)i * n + k] * x->experts / sum : (double)NAN;
    }
    return v;
}

struct experts_span experts_span(const struct experts *s, const double *relative, int shown,
                                 int expert)
{
    struct experts_span out = {.most = (double)NAN, .least = (double)NAN};
    for (int i = shown; i < shown + s->at.per_row && i < s->load.rows; i++) {
        int row = experts_row_at(s, i);
        for (int k = expert; k < expert + s->at.per_col && k < s->load.experts; k++) {
            double x = relative[(size_t)row * (size_t)s->load.experts + (size_t)k];
            if (isnan(x))
                continue;
            if (!(x <= out.most)) {
                out.most = x;
                out.most_row = row;
                out.most_expert = k;
            }
            if (!(x >= out.least)) {
                out.least = x;
                out.least_row = row;
                out.least_expert = k;
            }
        }
    }
    return out;
}

/* ---- motion ---- */

static void moved(struct view *v)
{
    struct experts *s = v->state;
    if (app_is_scripted(v->app))
        return;
    s->is_moving = 1;
    s->rests_at = clock_mono() + REST_MS / 1000.0;
}

static void tokens_moved(struct view *v)
{
    struct experts *s = v->state;
    s->pick.token = s->cells.token;
    cells_moved(&s->cells, app_is_scripted(v->app));
    pick_save(&s->pick, v->app);
}

/* ---- keys ---- */

/* Looks again: since the last drawing the run may have grown, and its probes thinned. */
static int is_open(struct view *v)
{
    struct experts *s = v->state;
    double mean;
    return s->is_open && experts_prepare(v) && experts_tokens_prepare(v, &mean) >= 0;
}

static void key_expert(struct view *v, const struct key *k, const char *args)
{
    struct experts *s = v->state;
    (void)args;
    if (!experts_prepare(v))
        return;
    if (is_open(v)) {
        cells_go(&s->cells, k->value < 0 ? CELLS_LEFT : CELLS_RIGHT);
        tokens_moved(v);
        return;
    }
    s->expert = clamp(s->expert + k->value, s->load.experts);
    moved(v);
}

static void key_layer(struct view *v, const struct key *k, const char *args)
{
    struct experts *s = v->state;
    (void)args;
    if (!experts_prepare(v))
        return;
    s->row = clamp(s->row + (s->is_upward ? -k->value : k->value), s->load.rows);
    moved(v);
}

/* A tenth of the experts, or in the text ten tokens. */
static void key_far(struct view *v, const struct key *k, const char *args)
{
    struct experts *s = v->state;
    (void)args;
    if (!experts_prepare(v))
        return;
    if (is_open(v)) {
        cells_go(&s->cells, k->value < 0 ? CELLS_PAGE_LEFT : CELLS_PAGE_RIGHT);
        tokens_moved(v);
        return;
    }
    int by = s->load.experts / 10;
    s->expert = clamp(s->expert + k->value * (by < 1 ? 1 : by), s->load.experts);
    moved(v);
}

/* Through the experts of the layer by their load: hotter, or colder. */
static void key_by_load(struct view *v, const struct key *k, const char *args)
{
    struct experts *s = v->state;
    (void)args;
    if (!experts_prepare(v))
        return;
    int *order = mem_alloc((size_t)s->load.experts, sizeof *order), at = 0;
    int n = order ? expert_hottest(&s->load, s->row, order, s->load.experts) : 0;
    while (at < n && order[at] != s->expert)
        at++;
    at += k->value;
    if (n > 0 && at >= 0 && at < n)
        s->expert = order[at];
    else if (n > 0 && at > n) /* from an expert without assignments */
        s->expert = order[n - 1];
    else
        app_notify(v->app, LOG_INFO,
                   n == 0                ? "no expert of this layer has assignments"
                   : at < 0              ? "the hottest expert of this layer"
                   : n < s->load.experts ? "the colder experts have no assignments"
                                         : "the coldest expert of this layer");
    mem_free(order);
    moved(v);
}

static void go(struct view *v, size_t to)
{
    struct experts *s = v->state;
    const struct runview *r = app_run(v->app);
    s->is_held = to + 1 < s->n; /* at the newest it follows again */
    s->step = expert_loads_step(r, to);
    const struct probe *p = is_open(v) && !s->is_playing ? experts_probe(v) : NULL;
    if (p) /* the map is behind it */
        app_notify(v->app, LOG_INFO,
                   "the map is at step %lld; the text is of the probe at step %lld",
                   (long long)s->step, (long long)p->step);
    moved(v);
}

static void go_by(struct view *v, long by)
{
    struct experts *s = v->state;
    long to = (long)s->pos + by, last = (long)s->n - 1;
    s->is_playing = 0;
    if ((by < 0 && s->pos == 0) || (by > 0 && s->pos + 1 == s->n))
        app_notify(v->app, LOG_INFO,
                   by < 0 ? "this is the first record"
                          : "this is the newest record; newer ones are shown as "
                            "they arrive");
    go(v, (size_t)(to < 0 ? 0 : to > last ? last : to));
}

static void key_time(struct view *v, const struct key *k, const char *args)
{
    (void)args;
    if (experts_prepare(v))
        go_by(v, k->value);
}

static void key_page(struct view *v, const struct key *k, const char *args)
{
    struct experts *s = v->state;
    (void)args;
    if (experts_prepare(v))
        go_by(v, k->value * (s->n < 10 ? 1 : (long)s->n / 10));
}

static void key_end(struct view *v, const struct key *k, const char *args)
{
    struct experts *s = v->state;
    (void)args;
    if (!experts_prepare(v))
        return;
    s->is_playing = 0;
    go(v, k->value ? s->n - 1 : 0);
}

static void key_step(struct view *v, const struct key *k, const char *args)
{
    struct experts *s = v->state;
    char *end = NULL;
    long long step = args ? strtoll(args, &end, 10) : 0;
    (void)k;
    if (!args || end == args || *end) {
        app_notify(v->app, LOG_WARN, "step %.40s: expected a training step", args ? args : "");
        return;
    }
    if (!experts_prepare(v))
        return;
    go(v, expert_loads_find(app_run(v->app), step));
    if (s->step != step)
        app_notify(v->app, LOG_INFO, "no record at step %lld: the %s is at step %lld", step,
                   s->step > step ? "first" : "last before it", (long long)s->step);
}

static void key_play(struct view *v, const struct key *k, const char *args)
{
    struct experts *s = v->state;
    (void)k, (void)args;
    if (!experts_prepare(v))
        return;
    s->is_playing = !s->is_playing && s->n > 1;
    s->next = clock_mono() + 1.0 / EXPERTS_PLAYED;
    if (s->is_playing && s->pos + 1 >= s->n) /* from the beginning */
        go(v, 0);
}

/* One record further; a script has no clock, so each of its events is a tick. */
static int play_one(struct view *v)
{
    struct experts *s = v->state;
    double now = clock_mono();
    if (!s->is_playing || (now < s->next && !app_is_scripted(v->app)))
        return 0;
    s->next = now + 1.0 / EXPERTS_PLAYED;
    if (experts_prepare(v))
        go(v, s->pos + 1 < s->n ? s->pos + 1 : s->pos);
    s->is_moving = 0;
    s->is_playing = experts_prepare(v) && s->pos + 1 < s->n;
    return 1;
}

static void key_zoom(struct view *v, const struct key *k, const char *args)
{
    static const char *const words[] = {"the whole map", "one cell per expert",
                                        "relative loads as numbers"};
    struct experts *s = v->state;
    (void)k, (void)args;
    s->zoom = (s->zoom + 1) % EXPERTS_ZOOMS;
    app_notify(v->app, LOG_INFO, "%s", words[s->zoom]);
}

static void key_flip(struct view *v, const struct key *k, const char *args)
{
    struct experts *s = v->state;
    (void)k, (void)args;
    s->is_upward = !s->is_upward;
}

static void key_enter(struct view *v, const struct key *k, const char *args)
{
    struct experts *s = v->state;
    (void)k, (void)args;
    if (!experts_prepare(v))
        return;
    s->is_open = !s->is_open;
}

/* Is the text shown?  Its keys say where it is. */
static int has_text(struct view *v)
{
    if (!is_open(v) && experts_prepare(v))
        app_notify(v->app, LOG_INFO, "no text is shown; Enter shows that of the expert's tokens");
    return is_open(v);
}

static void key_text(struct view *v, const struct key *k, const char *args)
{
    struct experts *s = v->state;
    (void)args;
    if (!has_text(v))
        return;
    if (!pick_text(&s->pick, app_run(v->app), k->value))
        app_notify(v->app, LOG_INFO,
                   k->value < 0 ? "this is the first probe text" : "this is the last probe text");
    pick_save(&s->pick, v->app);
}

/* Within the text: to the next or previous token of the expert. */
static void key_token(struct view *v, const struct key *k, const char *args)
{
    struct experts *s = v->state;
    (void)args;
    if (!has_text(v) || !s->mark)
        return;
    int t = s->cells.token + k->value, n = s->cells.probe->tokens;
    while (t >= 0 && t < n && !s->mark[t])
        t += k->value;
    if (t < 0 || t >= n) {
        app_notify(v->app, LOG_INFO, "no further token of this expert");
        return;
    }
    s->cells.token = t;
    tokens_moved(v);
}

/* ---- mouse, search, copy ---- */

static int map_event(struct view *v, const struct event *ev)
{
    struct experts *s = v->state;
    const struct experts_at *at = &s->at;
    if (ev->action == MOUSE_WHEEL_UP || ev->action == MOUSE_WHEEL_DOWN) {
        int down = s->is_upward ? -1 : 1;
        s->row = clamp(s->row + (ev->action == MOUSE_WHEEL_UP ? -down : down), s->load.rows);
        moved(v);
        return 1;
    }
    if (ev->action != MOUSE_PRESS && ev->action != MOUSE_DRAG)
        return 0;
    int y = ev->y - at->y, x = ev->x - at->x;
    if (at->width < 1 || y < 0 || x < 0 || y >= at->rows * at->height || x >= at->cols * at->width)
        return 0;
    double *relative = experts_relative(&s->load);
    int shown = s->first_row + y / at->height * at->per_row,
        expert = s->first_expert + x / at->width * at->per_col;
    if (relative && shown < s->load.rows && expert < s->load.experts) {
        struct experts_span d = experts_span(s, relative, shown, expert);
        int is_cold = d.most < 2; /* a cell of several: the expert that stands out */
        s->row = isnan(d.most) ? experts_row_at(s, shown) : is_cold ? d.least_row : d.most_row;
        s->expert = isnan(d.most) ? expert : is_cold ? d.least_expert : d.most_expert;
        moved(v);
        if (ev->is_double)
            s->is_open = 1;
    }
    mem_free(relative);
    return 1;
}

static int experts_event(struct view *v, const struct event *ev)
{
    struct experts *s = v->state;
    if (!experts_prepare(v))
        return 0;
    if (ev->kind == EVENT_KEY && ev->key == KEYCODE_ESC && s->is_open) {
        s->is_open = 0;
        return 1;
    }
    if (ev->kind != EVENT_MOUSE)
        return 0;
    if (!is_open(v))
        return map_event(v, ev);
    if (!cells_event(&s->cells, ev))
        return 0;
    tokens_moved(v);
    return 1;
}

/* On the map the number of an expert, in the tokens a text. */
static int experts_search(struct view *v, const char *text, int direction)
{
    struct experts *s = v->state;
    char *end;
    if (!experts_prepare(v))
        return 0;
    if (is_open(v)) {
        if (!cells_search(&s->cells, text, direction))
            return 0;
        tokens_moved(v);
        return 1;
    }
    long n = strtol(text, &end, 10);
    if (end == text || *end || n < 0 || n >= s->load.experts)
        return 0;
    s->expert = (int)n;
    moved(v);
    return 1;
}

/* Assignments: a row per layer, a column per expert. */
static void experts_copy(struct view *v, struct str *out)
{
    struct experts *s = v->state;
    if (!experts_prepare(v))
        return;
    str_add(out, "layer");
    for (int k = 0; k < s->load.experts; k++)
        str_addf(out, "\t%s %d", expert_word(k, s->load.experts, s->load.noops), k);
    for (int i = 0; i < s->load.rows; i++) {
        str_addf(out, "\n%d", s->load.layer[i]);
        for (int k = 0; k < s->load.experts; k++)
            str_addf(out, "\t%.9g", s->load.count[(size_t)i * (size_t)s->load.experts + (size_t)k]);
    }
    str_add_char(out, '\n');
}

static int experts_poll(struct view *v)
{
    struct experts *s = v->state;
    int is_settled = s->is_moving && clock_mono() >= s->rests_at;
    if (is_settled)
        s->is_moving = 0;
    return cells_settled(&s->cells) | is_settled | play_one(v);
}

static double experts_due(struct view *v)
{
    const struct experts *s = v->state;
    double a = cells_due(&s->cells);
    a = s->is_moving && s->rests_at < a ? s->rests_at : a;
    return s->is_playing && s->next < a ? s->next : a;
}

static int experts_subject(struct view *v, struct subject *out)
{
    struct experts *s = v->state;
    if (!experts_prepare(v))
        return 0;
    if (is_open(v))
        return cells_subject(&s->cells, out);
    str_copy(out->key, sizeof out->key, "relative load");
    snprintf(out->where, sizeof out->where, "layer %d, expert %d of %d", s->load.layer[s->row],
             s->expert, s->load.experts);
    out->value = expert_relative(&s->load, s->row, s->expert);
    out->step = s->load.step;
    out->record = s->load.probes ? "counted from probe records" : "matrix record expert_load";
    out->help =
        "tokens assigned to the expert relative to an even load: 1 = ideal, 0 = dead; counted "
        "since the previous record, or over the probes of the step";
    out->formula = "count / (assignments of the layer / experts)";
    return 1;
}

/* `e` exports what is shown, of this run alone: the load, or the experts of the text. */
static int experts_words(struct view *v, const char **word, enum figure_runs *of)
{
    struct experts *s = v->state;
    const struct probe *p = experts_prepare(v) && is_open(v) ? experts_probe(v) : NULL;
    int n = 0, is_held = p ? s->pick.is_held : s->is_held;
    int64_t step = p ? p->step : s->load.step;
    *of = FIGURE_OF_ONE;
    word[n++] = p ? "expert_map" : "expert_load";
    if (p) {
        snprintf(s->text, sizeof s->text, "%d", p->index);
        word[n++] = "--probe";
        word[n++] = s->text;
    }
    if (is_held) {
        snprintf(s->held, sizeof s->held, "%lld", (long long)step);
        word[n++] = "--step";
        word[n++] = s->held;
    }
    return n;
}

/* clang-format off */
static const struct key experts_keys[] = {
    {"h Left",     "left",       NULL, "previous expert; in the text: token",   NULL,     0, KEY_HIDDEN, -1, key_expert},
    {"l Right",    "right",      NULL, "next expert; in the text: token",       NULL,     0, KEY_HIDDEN, 1, key_expert},
    {"k Up",       "up",         NULL, "layer above on the screen",             NULL,     0, KEY_HIDDEN, -1, key_layer},
    {"j Down",     "down",       NULL, "layer below on the screen",             NULL,     0, KEY_HIDDEN, 1, key_layer},
    {"H",          "far-left",   NULL, "back by a tenth of the experts",        NULL,     0, KEY_HIDDEN, -1, key_far},
    {"L",          "far-right",  NULL, "forward by a tenth of the experts",     NULL,     0, KEY_HIDDEN, 1, key_far},
    {"Enter",      "tokens",     NULL, "tokens that the expert takes: by class and in the text", "tokens", 72, 0, 0, key_enter},
    {"]h",         "colder",     NULL, "next expert of the layer by load",      NULL,     0, 0, 1, key_by_load},
    {"[h",         "hotter",     NULL, "previous expert by load",               NULL,     0, 0, -1, key_by_load},
    {",",          "earlier",    NULL, "earlier record",                        "time",  66, 0, -1, key_time},
    {".",          "later",      NULL, "later record; the newest is followed",  NULL,     0, 0, 1, key_time},
    {"PgUp C-u",   "page-back",  NULL, "back by a tenth of the records",        NULL,     0, KEY_HIDDEN, -1, key_page},
    {"PgDn C-d",   "page-forth", NULL, "forward by a tenth of the records",     NULL,     0, KEY_HIDDEN, 1, key_page},
    {"gg Home",    "first",      NULL, "first record",                          NULL,     0, KEY_HIDDEN, 0, key_end},
    {"G End F",    "last",       NULL, "follow the newest record",              NULL,     0, KEY_HIDDEN, 1, key_end},
    {"p",          "play",       NULL, "play the records, or stop; from the newest: from the first", "play", 60, 0, 0, key_play},
    {"",           "step",       "N",  "go to the last record up to a training step", NULL, 0, 0, 0, key_step},
    {"w",          "width",      NULL, "the whole map, a cell per expert, or its value", "width", 50, KEY_VIEW_CHANGE, 0, key_zoom},
    {"o",          "flip",       NULL, "layer 0 at the top or the bottom",      "flip",  40, KEY_VIEW_CHANGE, 0, key_flip},
    {"]t",         "next-token", NULL, "in the text: next token of the expert", NULL,     0, 0, 1, key_token},
    {"[t",         "prev-token", NULL, "in the text: previous token of the expert", NULL, 0, 0, -1, key_token},
    {"}",          "next-text",  NULL, "next probe text",                       NULL,     0, 0, 1, key_text},
    {"{",          "prev-text",  NULL, "previous probe text",                   NULL,     0, 0, -1, key_text},
    {0},
};
static const struct setting experts_settings[] = {
    {"zoom",   SETTING_INT, offsetof(struct experts, zoom),      0, EXPERTS_ZOOMS - 1},
    {"upward", SETTING_INT, offsetof(struct experts, is_upward), 0, 1},
    {0},
};

const struct view_ops view_experts = {
    .name = "experts",  .title = "Experts",
    .summary = "Mixtures of experts: load of every expert and layer relative to ideal over training, dead and hottest experts, and the tokens of an expert.",
    .keys = experts_keys,  .settings = experts_settings,  .state_size = sizeof(struct experts),  .shows_probes = 1,
    .figure_words = experts_words,
    .open = experts_open,  .close = experts_close,  .draw = experts_draw,  .event = experts_event,
    .poll = experts_poll,  .due = experts_due,  .run_changed = experts_run_changed,
    .search = experts_search,  .copy = experts_copy,  .subject = experts_subject,
};
/* clang-format on */
