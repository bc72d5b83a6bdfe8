/* Stepper: runs a loaded model on the user's text and steps through tokens and layers; cells can be
 * forced to run or to skip and the threshold moved, and the effect is shown. */
#include "tui/stepper.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "io/experts.h"

static int stepper_open(struct view *v, struct err *e)
{
    struct stepper *s = v->state;
    (void)e;
    s->newest_step = s->newer_step = -1;
    s->looked = -1e9;
    return 0;
}

static void stepper_close(struct view *v)
{
    struct stepper *s = v->state;
    stepper_stop(s);
    stepper_forget(s);
    field_release(&s->prompt);
    str_release(&s->typed_over);
    cells_release(&s->cells);
    mem_free(s->force);
    mem_free(s->estimated);
    mem_free(s->tone);
}

/* The current run changed: its model is loaded when the view is shown next. */
static void stepper_run_changed(struct view *v)
{
    struct stepper *s = v->state;
    if (s->given[0])
        return;
    stepper_stop(s);
    stepper_forget(s);
    s->had_model = s->is_started = 0;
    s->is_typing = 0;
    v->grabs = GRAB_NONE;
}

static void start_once(struct view *v)
{
    struct stepper *s = v->state;
    if (s->is_started && s->started_newest == s->follows_newest)
        return;
    s->is_started = 1;
    stepper_start(v);
}

/* ---- drawing ---- */

static void draw_title(struct view *v, struct area line)
{
    struct stepper *s = v->state;
    int end = s->cells.probe && line.cols >= 56 ? cells_legend(line, line.cols - 1, &s->cells)
                                                : line.cols,
        x = 1;
    char latency[24];
    line = area_sub(line, 0, 0, 1, end - 1);
    x += area_text(line, 0, x, line.cols / 3, ink_attr(ink(ROLE_TITLE), ATTR_BOLD),
                   s->model[0] ? worker_title(v->app, s->model) : "no model") +
         2;
    x += area_text(line, 0, x - 2, -1, ink(ROLE_DIM), worker_latency(v->app, s->model, latency));
    const char *word = !s->session            ? "stopped"
                       : !stepper_is_busy(s)  ? "ready"
                       : worker_probe(s->now) ? "working"
                                              : "loading";
    enum role role = !s->session ? ROLE_BAD : stepper_is_busy(s) ? ROLE_WARN : ROLE_GOOD;
    x += area_text(line, 0, x, 7, ink(role), word);
    x = x < 8 ? x : x + 7 - (int)strlen(word) + 2; /* the same column for every word */
    int gist = s->cells.probe ? (int)strcspn(probe_caveat(s->cells.probe), ",") : 0;
    char text[64] = "";
    if (s->newer_step >= 0)
        snprintf(text, sizeof text, "R loads step %lld", (long long)s->newer_step);
    else if (s->newest_step >= 0)
        snprintf(text, sizeof text, "%s checkpoint", s->follows_newest ? "newest" : "best");
    if (text[0] && x + (int)strlen(text) + (gist ? gist + 2 : 0) < end - 1)
        x += area_text(line, 0, x, -1, ink(s->newer_step >= 0 ? ROLE_WARN : ROLE_DIM), text) + 2;
    if (gist)
        cells_caveat(line, x, end - 1, s->cells.probe);
}

static void draw_prompt(struct view *v, struct area line)
{
    struct stepper *s = v->state;
    int x = 1 + area_text(line, 0, 1, -1, ink(s->is_typing ? ROLE_SELECTED : ROLE_DIM), "prompt ");
    int is_here = s->is_typing && v->has_focus;
    if (s->prompt.text.len == 0 && !s->is_typing)
        area_text(line, 0, x, -1, ink(ROLE_DIM), "i: type one, p: use the text of the Depth map");
    else if (s->is_typing)
        field_draw(&s->prompt, line, 0, x, line.cols - x - 1, is_here);
    else
        area_bytes(line, 0, x, line.cols - x - 1, ink(ROLE_TEXT), s->prompt.text.p,
                   s->prompt.text.len);
}

/* "loss 2.310 +0.042": the change is shown only when it is not 0. */
static int put_number(struct area line, int x, const char *label, double now, double before,
                      int is_supposed)
{
    if (isnan(now) && isnan(before))
        return x;
    x += area_textf(line, 0, x, -1, ink(ROLE_DIM), "%s ", label);
    if (isnan(now))
        x += area_text(line, 0, x, -1, ink(ROLE_DIM), "...");
    else
        x += area_textf(line, 0, x, -1, ink(ROLE_TEXT), is_supposed ? "~%.3f" : "%.3f", now);
    if (isfinite(now) && isfinite(before) && fabs(now - before) >= 5e-4)
        x += area_textf(line, 0, x, -1, ink(ROLE_WARN), " %+.3f", now - before);
    return x + 2;
}

static void draw_numbers(struct view *v, struct area line)
{
    struct stepper *s = v->state;
    const struct cells *c = &s->cells;
    struct stepper_sum now = stepper_sum(c->probe, c->run),
                       was = {(double)NAN, (double)NAN, (double)NAN};
    if (c->other && c->other->tokens == c->probe->tokens)
        was = stepper_sum(c->other, NULL);
    int is_supposed = c->run != NULL, x = 1;
    x = put_number(line, x, "loss", now.loss, was.loss, 0);
    x = put_number(line, x, "exec", now.run, was.run, is_supposed);
    x = put_number(line, x, "FLOPs", now.flops, was.flops, is_supposed);
    int has_threshold = probe_cell(c->probe, "threshold") != NULL;
    if (has_threshold || s->offset != 0) {
        x += area_text(line, 0, x, -1, ink(ROLE_DIM), "tau ");
        x += area_textf(line, 0, x, -1, ink(s->offset != 0 ? ROLE_WARN : ROLE_TEXT), "%+.2f",
                        s->offset) +
             2;
    }
    if (s->n_forced > 0)
        x += area_textf(line, 0, x, -1, ink(ROLE_WARN), "%d forced", s->n_forced) + 2;
    for (int i = 0; i < s->n_forced; i++) {
        const struct stepper_forced *f = &s->forced[i];
        if (f->expert >= 0 && f->layer == c->layer && f->token == c->token)
            x += area_textf(line, 0, x, -1, ink(ROLE_WARN), "here %s %d",
                            expert_word(f->expert, s->about->experts, s->about->experts_noop),
                            f->expert) +
                 2;
    }
    if (s->exit > 0)
        x += area_textf(line, 0, x, -1, ink(ROLE_WARN), "exit %d", s->exit) + 2;
    if (s->options[0])
        x += area_text(line, 0, x, -1, ink(ROLE_WARN), s->options) + 2;
    if (c->tone)
        x = cells_mark_legend(line, x, s->marks);
    if (is_supposed)
        area_text(line, 0, x, -1, ink(ROLE_DIM), "~ estimated");
    else if (s->n_forced == 0 && s->offset == 0 && s->exit == 0 && !s->options[0] &&
             line.cols - x > 40)
        area_text(line, 0, x, -1, ink(ROLE_DIM),
                  has_threshold ? "f forces a cell, < > move the threshold" : "f forces a cell");
}

/* Probability of token `id` in the top k of the last layer at one position; NaN when it is not
 * among them. */
static double probability_of(const struct probe *p, int token, int32_t id)
{
    if (!p || p->lens_k < 1 || !p->lens_id || token >= p->tokens)
        return (double)NAN;
    size_t cell = ((size_t)(p->layers - 1) * (size_t)p->tokens + (size_t)token) * (size_t)p->lens_k;
    for (int k = 0; k < p->lens_k; k++)
        if (p->lens_id[cell + (size_t)k] == id)
            return (double)p->lens_p[cell + (size_t)k];
    return (double)NAN;
}

/* The predictions for the token after the cursor, and their change by the interventions. */
static void draw_next(struct view *v, struct area line)
{
    struct stepper *s = v->state;
    const struct probe *p = s->cells.probe;
    int t = s->cells.seen_token, x = 1;
    if (p->lens_k < 1 || !p->lens_id)
        return;
    size_t cell = ((size_t)(p->layers - 1) * (size_t)p->tokens + (size_t)t) * (size_t)p->lens_k;
    x += area_text(line, 0, x, -1, ink(ROLE_DIM), "next token ");
    for (int k = 0; k < p->lens_k && x < line.cols - 16; k++) {
        double now = (double)p->lens_p[cell + (size_t)k],
               was = probability_of(s->cells.other, t, p->lens_id[cell + (size_t)k]);
        const char *piece = p->lens_piece ? p->lens_piece[cell + (size_t)k] : "?";
        struct area room = area_sub(line, 0, x, 1, 12);
        int used = area_text(room, 0, 0, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), piece);
        x += used + 1;
        x += area_textf(line, 0, x, -1, ink(ROLE_TEXT), "%.3f", now);
        if (isfinite(was) && fabs(now - was) >= 5e-4)
            x += area_textf(line, 0, x, -1, ink(ROLE_WARN), "%+.3f", now - was);
        x += 2;
    }
}

static void draw_empty(struct view *v, struct area a)
{
    struct stepper *s = v->state;
    int y = a.rows > 6 ? a.rows / 2 - 2 : 0;
    if (s->session) {
        area_text(a, y, 2, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD),
                  stepper_is_busy(s) ? "Loading the model" : "No text yet");
        area_text(a, y + 2, 2, -1, ink(ROLE_TEXT),
                  "Press i to type a prompt, or p to use the text of the Depth map");
        return;
    }
    area_text(a, y, 2, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD),
              s->had_model ? "The model process has stopped" : "No model");
    struct scroll lines = {0};
    scroll_text(&lines, area_sub(a, y + 2, 2, a.rows - y - 2, a.cols - 2), s->trouble,
                ink(s->had_model ? ROLE_BAD : ROLE_TEXT));
    if (s->had_model)
        area_text(a, y + 2 + lines.lines, 2, -1, ink(ROLE_DIM), "R restarts it");
}

static void stepper_draw(struct view *v, struct area a)
{
    struct stepper *s = v->state;
    start_once(v);
    int has = stepper_prepare(v), y = 0,
        head = a.rows >= 12  ? 4
               : a.rows >= 6 ? 2
               : a.rows >= 4 ? 1
                             : 0;
    if (head > 0)
        draw_title(v, area_sub(a, y++, 0, 1, a.cols));
    if (head > 2 || s->is_typing)
        draw_prompt(v, area_sub(a, y++, 0, 1, a.cols));
    if (!has) {
        draw_empty(v, area_sub(a, y, 0, a.rows - y, a.cols));
        return;
    }
    if (head > 1)
        draw_numbers(v, area_sub(a, y++, 0, 1, a.cols));
    if (head > 2)
        draw_next(v, area_sub(a, y++, 0, 1, a.cols));
    if (!s->session && s->trouble[0] &&
        y > 0) { /* the last picture stays, with a note that it is not updated */
        struct area line = area_sub(a, y - 1, 0, 1, a.cols);
        area_fill(line, ' ', ink_on(ROLE_TEXT, ROLE_BACKGROUND));
        area_textf(line, 0, 1, a.cols - 2, ink(ROLE_BAD), "%s; R restarts it", s->trouble);
    }
    s->cells.has_focus = v->has_focus && !s->is_typing && !app_is_scripted(v->app);
    cells_draw(area_sub(a, y, 0, a.rows - y, a.cols), &s->cells);
    s->head_rows = y;
}

/* ---- keys ---- */

static void key_move(struct view *v, const struct key *k, const char *args)
{
    struct stepper *s = v->state;
    (void)args;
    if (!stepper_prepare(v))
        return;
    cells_go(&s->cells, (enum cells_move)k->value);
    cells_moved(&s->cells, app_is_scripted(v->app));
}

static void key_type(struct view *v, const struct key *k, const char *args)
{
    struct stepper *s = v->state;
    (void)k;
    if (args && *args) {
        field_set(&s->prompt, args);
        app_remember(v->app, "stepper.prompt", args);
        stepper_ask_text(v, args);
        return;
    }
    str_renew(&s->typed_over);
    str_add_bytes(&s->typed_over, str_text(&s->prompt.text), s->prompt.text.len);
    s->is_typing = 1;
    v->grabs = GRAB_TEXT;
}

static void end_typing(struct view *v, int is_taken)
{
    struct stepper *s = v->state;
    s->is_typing = 0;
    v->grabs = GRAB_NONE;
    if (is_taken && s->prompt.text.len == 0)
        app_notify(v->app, LOG_INFO, "the prompt is empty");
    if (!is_taken || s->prompt.text.len == 0) { /* the text shown is that of before */
        field_set(&s->prompt, str_text(&s->typed_over));
        return;
    }
    app_remember(v->app, "stepper.prompt", str_text(&s->prompt.text));
    if (!s->session)
        app_notify(v->app, LOG_WARN, "no model loaded: %s", s->trouble);
    stepper_ask_text(v, str_text(&s->prompt.text));
}

static int ready(struct view *v)
{
    struct stepper *s = v->state;
    if (!s->session)
        app_notify(v->app, LOG_WARN, "no model loaded: %s", s->trouble);
    else if (!stepper_prepare(v))
        app_notify(v->app, LOG_INFO, "no text yet; i types one");
    else
        return 1;
    return 0;
}

static void key_next(struct view *v, const struct key *k, const char *args)
{
    struct stepper *s = v->state;
    (void)k, (void)args;
    if (!ready(v))
        return;
    s->cells.token = s->cells.probe->tokens - 1; /* follow the generated tokens */
    stepper_ask_next(v);
}

static void key_clear(struct view *v, const struct key *k, const char *args)
{
    (void)k, (void)args;
    if (ready(v))
        stepper_ask_clear(v);
}

/* free -> the opposite of its decision -> its own decision -> free */
static void key_force(struct view *v, const struct key *k, const char *args)
{
    struct stepper *s = v->state;
    (void)k, (void)args;
    if (!ready(v))
        return;
    const struct cells *c = &s->cells;
    size_t cell = (size_t)c->layer * (size_t)c->probe->tokens + (size_t)c->token;
    int is_run = c->probe->run && c->probe->run[cell], now = c->force[cell];
    if (now < 0)
        s->first_force = !is_run;
    int next = now < 0 ? s->first_force : now == s->first_force ? !s->first_force : -1;
    stepper_ask_force(v, c->layer, c->token, next);
}

static void key_expert(struct view *v, const struct key *k, const char *args)
{
    struct stepper *s = v->state;
    char *end = NULL;
    (void)k;
    if (!ready(v))
        return;
    const struct cells *c = &s->cells;
    int last = s->about ? s->about->experts - 1 : -1;
    long to = args && *args ? strtol(args, &end, 10) : -1;
    if (last < 0)
        app_notify(v->app, LOG_INFO, "this model has no experts");
    else if ((end && *end) || to < -1 || to > last)
        app_notify(v->app, LOG_WARN, "expert %.20s: must be 0 to %d", args, last);
    else
        stepper_ask_expert(v, c->layer, c->token, (int)to);
}

static void key_offset(struct view *v, const struct key *k, const char *args)
{
    struct stepper *s = v->state;
    (void)args;
    if (!ready(v))
        return;
    if (!probe_cell(s->cells.probe, "threshold")) {
        app_notify(v->app, LOG_INFO, "this model does not record a threshold");
        return;
    }
    double to = k->value ? s->offset + 0.05 * k->value : 0;
    s->offset = fabs(to) < 1e-9 ? 0 : to > 20 ? 20 : to < -20 ? -20 : to;
    stepper_take(v);
}

static void key_exit(struct view *v, const struct key *k, const char *args)
{
    struct stepper *s = v->state;
    char *end = NULL;
    (void)k;
    if (!ready(v))
        return;
    int most = s->cells.probe->layers;
    long to = args && *args ? strtol(args, &end, 10) : 0;
    if ((end && *end) || to < 0 || to > most)
        app_notify(v->app, LOG_WARN, "exit %.20s: must be 0 (all layers) to %d", args, most);
    else
        stepper_ask_exit(v, (int)to);
}

static void key_option(struct view *v, const struct key *k, const char *args)
{
    (void)k;
    if (ready(v))
        stepper_ask_option(v, args);
}

static void key_speculate(struct view *v, const struct key *k, const char *args)
{
    struct stepper *s = v->state;
    char *end = NULL;
    (void)k;
    long to = args && *args ? strtol(args, &end, 10) : 0;
    if ((end && *end) || to < 0 || to > 64)
        app_notify(v->app, LOG_WARN, "speculate %.20s: must be 0 (no drafts) to 64", args);
    else
        s->speculate = (int)to;
}

static void key_flip(struct view *v, const struct key *k, const char *args)
{
    struct stepper *s = v->state;
    (void)k, (void)args;
    s->cells.is_upward = !s->cells.is_upward;
}

static void key_width(struct view *v, const struct key *k, const char *args)
{
    struct stepper *s = v->state;
    (void)k, (void)args;
    s->cells.wide = (s->cells.wide + 1) % (CELLS_WIDE_MAX + 1);
}

static void key_field(struct view *v, const struct key *k, const char *args)
{
    struct stepper *s = v->state;
    (void)args;
    if (stepper_prepare(v))
        s->cells.field = (s->cells.field + k->value + cells_fields(s->cells.probe)) %
                         cells_fields(s->cells.probe);
}

static void key_temperature(struct view *v, const struct key *k, const char *args)
{
    struct stepper *s = v->state;
    (void)k, (void)args;
    s->temperature = s->temperature <= 0 ? 0.7 : s->temperature < 1 ? 1 : 0;
    if (s->temperature > 0)
        app_notify(v->app, LOG_INFO, "generation: temperature %g, top-k 40", s->temperature);
    else
        app_notify(v->app, LOG_INFO, "generation: greedy");
}

static void key_probe_text(struct view *v, const struct key *k, const char *args)
{
    struct pick pick;
    (void)k, (void)args;
    pick_load(&pick, v->app);
    const struct probe *p = pick_probe(&pick, app_run(v->app));
    if (p) {
        stepper_ask_ids(v, p);
        ((struct stepper *)v->state)->has_probe_text = 1;
    } else {
        app_notify(v->app, LOG_INFO, "this run has no probe text");
    }
}

static void key_reload(struct view *v, const struct key *k, const char *args)
{
    struct stepper *s = v->state;
    (void)k, (void)args;
    s->is_started = 1;
    stepper_start(v);
}

static void key_which(struct view *v, const struct key *k, const char *args)
{
    struct stepper *s = v->state;
    s->follows_newest = !s->follows_newest;
    key_reload(v, k, args);
}

static void key_model(struct view *v, const struct key *k, const char *args)
{
    struct stepper *s = v->state;
    str_copy(s->given, sizeof s->given, args ? args : "");
    key_reload(v, k, args);
}

static int stepper_event(struct view *v, const struct event *ev)
{
    struct stepper *s = v->state;
    if (s->is_typing) {
        if (ev->kind == EVENT_KEY && (ev->key == KEYCODE_ENTER || ev->key == KEYCODE_ESC)) {
            end_typing(v, ev->key == KEYCODE_ENTER);
            return 1;
        }
        return field_event(&s->prompt, ev);
    }
    if (ev->kind == EVENT_PASTE) { /* pasted text is a prompt */
        key_type(v, NULL, NULL);
        field_set(&s->prompt, "");
        return field_event(&s->prompt, ev);
    }
    struct event at = *ev;
    at.y -= s->head_rows;
    return stepper_prepare(v) && cells_event(&s->cells, &at);
}

static int stepper_poll(struct view *v)
{
    start_once(v);
    return stepper_take(v) | cells_settled(&((struct stepper *)v->state)->cells);
}

static int stepper_fd(struct view *v)
{
    const struct stepper *s = v->state;
    return s->session ? session_fd(s->session) : -1;
}

static double stepper_due(struct view *v)
{
    const struct stepper *s = v->state;
    return cells_due(&s->cells);
}

static int stepper_search(struct view *v, const char *text, int direction)
{
    struct stepper *s = v->state;
    return stepper_prepare(v) && cells_search(&s->cells, text, direction);
}

static void stepper_copy(struct view *v, struct str *out)
{
    struct stepper *s = v->state;
    if (stepper_prepare(v))
        cells_copy(&s->cells, out);
}

static int stepper_offers(struct view *v, const struct key *k)
{
    const struct probe *p = ((struct stepper *)v->state)->cells.probe;
    if (k->fn == key_expert)
        return p && probe_expert_ranks(p) > 0;
    return k->fn != key_offset || !p || probe_cell(p, "threshold") != NULL;
}

static int stepper_subject(struct view *v, struct subject *out)
{
    if (!stepper_prepare(v) || !cells_subject(&((struct stepper *)v->state)->cells, out))
        return 0;
    out->record = "computed by the model now; not a record";
    out->step = -1;
    return 1;
}

/* clang-format off */
static const struct key stepper_keys[] = {
    {"i Enter",    "prompt",     "TEXT", "type a prompt",                      "type",    72, 0, 0, key_type},
    {"s",          "generate",   NULL, "generate the next token",              "next",    70, 0, 0, key_next},
    {"f",          "force",      NULL, "force this cell: flip, keep, free",      "force", 68, 0, 0, key_force},
    {"",           "expert",     "E",  "force expert E on this token here, in place of the last of its own; without E none", NULL, 0, 0, 0, key_expert},
    {"x",          "clear",      NULL, "free all forced cells",                "clear",   44, 0, 0, key_clear},
    {"<",          "offset-down", NULL, "lower the threshold: more cells executed", "threshold", 66, 0, -1, key_offset},
    {">",          "offset-up",  NULL, "raise the threshold: fewer cells executed", NULL,       0, 0, 1, key_offset},
    {"(",          "offset-far-down", NULL, "lower it by ten steps",           NULL,       0, 0, -10, key_offset},
    {")",          "offset-far-up", NULL, "raise it by ten steps",             NULL,       0, 0, 10, key_offset},
    {"0",          "offset-none", NULL, "restore the learned threshold",       NULL,       0, 0, 0, key_offset},
    {"c",          "field",      NULL, "cycle the value that the cells show", "values", 60, KEY_VIEW_CHANGE, 1, key_field},
    {"C",          "field-back", NULL, "previous value",                       NULL,       0, KEY_VIEW_CHANGE, -1, key_field},
    {"p",          "probe-text", NULL, "use the text of the Depth map",        "probe",   40, 0, 0, key_probe_text},
    {"t",          "temperature", NULL, "generation: greedy, temperature 0.7 or 1", NULL,       0, KEY_VIEW_CHANGE, 0, key_temperature},
    {"m",          "which",      NULL, "best or newest checkpoint",            "model",   36, KEY_VIEW_CHANGE, 0, key_which},
    {"R",          "reload",     NULL, "reload the model",                     NULL,       0, 0, 0, key_reload},
    {"",           "model",      "PATH", "load another model; without PATH that of the run", NULL, 0, 0, 0, key_model},
    {"",           "exit",       "E",  "run the first E layers only, then the head; 0 = all", NULL, 0, 0, 0, key_exit},
    {"",           "option",     "KEY=VALUE", "set an option of the method, such as halt.rule=kl or halt.min=2; without KEY all as stored", NULL, 0, 0, 0, key_option},
    {"",           "speculate",  "N",  "tokens that the first third of the layers drafts when generating; 0 = none", NULL, 0, KEY_VIEW_CHANGE, 0, key_speculate},
    {"w",          "width",      NULL, "columns per token: automatic, 4, 8 or 16", NULL, 0, KEY_VIEW_CHANGE, 0, key_width},
    {"o",          "flip",       NULL, "layer 0 at the top or the bottom",     NULL,       0, KEY_VIEW_CHANGE, 0, key_flip},
    {"h Left",     "left",       NULL, "previous token",                       NULL,       0, KEY_HIDDEN, CELLS_LEFT,       key_move},
    {"l Right",    "right",      NULL, "next token",                           NULL,       0, KEY_HIDDEN, CELLS_RIGHT,      key_move},
    {"k Up",       "up",         NULL, "layer above on the screen",            NULL,       0, KEY_HIDDEN, CELLS_UP,         key_move},
    {"j Down",     "down",       NULL, "layer below on the screen",            NULL,       0, KEY_HIDDEN, CELLS_DOWN,       key_move},
    {"K",          "jump-up",    NULL, "up to the next change of decision",    NULL,       0, KEY_HIDDEN, CELLS_JUMP_UP,    key_move},
    {"J",          "jump-down",  NULL, "down to the next change of decision",  NULL,       0, KEY_HIDDEN, CELLS_JUMP_DOWN,  key_move},
    {"PgUp C-u H", "page-left",  NULL, "previous page of tokens",              NULL,       0, KEY_HIDDEN, CELLS_PAGE_LEFT,  key_move},
    {"PgDn C-d L", "page-right", NULL, "next page of tokens",                  NULL,       0, KEY_HIDDEN, CELLS_PAGE_RIGHT, key_move},
    {"gg Home",    "first",      NULL, "first token",                          NULL,       0, KEY_HIDDEN, CELLS_FIRST,      key_move},
    {"G End",      "last",       NULL, "last token",                           NULL,       0, KEY_HIDDEN, CELLS_LAST,       key_move},
    {0},
};
static const struct setting stepper_settings[] = {
    {"field",       SETTING_INT,  offsetof(struct stepper, cells.field),     0, 255},
    {"wide",        SETTING_INT,  offsetof(struct stepper, cells.wide),      0, CELLS_WIDE_MAX},
    {"upward",      SETTING_INT,  offsetof(struct stepper, cells.is_upward), 0, 1},
    {"newest",      SETTING_INT,  offsetof(struct stepper, follows_newest),    0, 1},
    {"temperature", SETTING_REAL, offsetof(struct stepper, temperature),     0, 2},
    {0},
};

const struct view_ops view_stepper = {
    .name = "stepper",  .title = "Stepper",  .brief = 4,
    .summary = "A model on your own text: step through tokens and layers, force cells, move the threshold, generate.",
    .keys = stepper_keys,  .settings = stepper_settings,  .state_size = sizeof(struct stepper),
    .open = stepper_open,  .close = stepper_close,  .draw = stepper_draw,  .event = stepper_event,
    .poll = stepper_poll,  .fd = stepper_fd,
    .due = stepper_due,  .run_changed = stepper_run_changed,
    .search = stepper_search,  .copy = stepper_copy,
    .subject = stepper_subject,  .offers = stepper_offers,
};
/* clang-format on */
