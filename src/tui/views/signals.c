/* Signals: the inputs of the routing decision over layers and tokens, and their correlation with
 * the loss. */
#include "tui/signals.h"

#include <stdio.h>
#include <string.h>

static int prepare(struct view *v)
{
    struct signals *s = v->state;
    pick_load(&s->pick, v->app);
    s->probe = pick_probe(&s->pick, app_run(v->app));
    if (!s->probe || s->probe->tokens < 1 || s->probe->layers < 1)
        return 0;
    s->pick.token = s->pick.token < s->probe->tokens ? s->pick.token : s->probe->tokens - 1;
    s->pick.layer = s->pick.layer < s->probe->layers ? s->pick.layer : s->probe->layers - 1;
    return 1;
}

static void draw_title(struct view *v, struct area line)
{
    struct signals *s = v->state;
    const struct probe *p = s->probe;
    struct pick_place at = pick_place(&s->pick, app_run(v->app));
    char text[96];
    int x = 1 + cells_title(line, 1, line.cols / 2, line.cols, p) + 2;
    snprintf(text, sizeof text,
             s->pick.is_held ? "step %lld  probe %d/%d  text %d/%d"
                             : "step %lld  newest  text %d/%d",
             (long long)p->step, s->pick.is_held ? at.at : at.text,
             s->pick.is_held ? at.of : at.texts, at.text, at.texts);
    area_text(line, 0, x, -1, ink(ROLE_DIM), text);
}

/* Draws all three parts where they fit, else the selected one. */
static void signals_draw(struct view *v, struct area a)
{
    struct signals *s = v->state;
    const struct runview *r = app_run(v->app);
    if (!prepare(v)) {
        int y = a.rows > 6 ? a.rows / 2 - 2 : 0;
        if (app_draw_nothing(v->app, a))
            return;
        area_text(a, y, 2, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), "No probe yet");
        area_textf(a, y + 2, 2, -1, ink(ROLE_TEXT), "Signals are recorded with probes%s.",
                   runview_config(r, "train.probe_every") ? " (train.probe_every)" : "");
        struct scroll lines = {0};
        scroll_text(&lines, area_sub(a, y + 3, 2, a.rows - y - 3, a.cols - 2),
                    app_probe_hint(v->app, NULL), ink(ROLE_TEXT));
        return;
    }
    draw_title(v, area_sub(a, 0, 0, 1, a.cols));
    a = area_sub(a, 1, 1, a.rows - 1, a.cols - 2);
    int part = s->part;
    if (part == SIGNALS_ALL && (a.rows < 30 || a.cols < 70))
        part = SIGNALS_CURVES;
    if (part != SIGNALS_ALL) {
        a = area_sub(a, a.rows > 12, 0, a.rows, a.cols);
        if (part == SIGNALS_CURVES)
            signals_curves(a, s, r);
        else if (part == SIGNALS_SPREAD)
            signals_spread(a, s, r);
        else
            signals_relation(a, s, r);
        return;
    }
    int field[32], table = 4 + signals_fields(s->probe, field, 32), is_wide = a.cols >= 150;
    int top = is_wide ? a.rows / 2 : (a.rows - table) / 2, y = top + 2;
    signals_curves(area_sub(a, 1, 0, top, a.cols), s, r);
    if (is_wide) {
        int half = a.cols / 2;
        signals_spread(area_sub(a, y, 0, a.rows - y, half - 2), s, r);
        signals_relation(area_sub(a, y, half, a.rows - y, a.cols - half), s, r);
    } else {
        signals_spread(area_sub(a, y, 0, a.rows - y - table, a.cols), s, r);
        signals_relation(area_sub(a, a.rows - table + 1, 0, table - 1, a.cols), s, r);
    }
}

/* ---- keys ---- */

static void key_move(struct view *v, const struct key *k, const char *args)
{
    struct signals *s = v->state;
    (void)args;
    if (!prepare(v))
        return;
    int last = s->probe->tokens - 1, to = k->value == -9  ? 0
                                          : k->value == 9 ? last
                                                          : s->pick.token + k->value;
    s->pick.token = to < 0 ? 0 : to > last ? last : to;
    pick_save(&s->pick, v->app);
}

static void key_layer(struct view *v, const struct key *k, const char *args)
{
    struct signals *s = v->state;
    (void)args;
    if (!prepare(v))
        return;
    int to = s->pick.layer + k->value;
    s->pick.layer = to < 0 ? 0 : to >= s->probe->layers ? s->probe->layers - 1 : to;
    pick_save(&s->pick, v->app);
}

static void key_unmark(struct view *v, const struct key *k, const char *args)
{
    struct signals *s = v->state;
    (void)k, (void)args;
    if (!prepare(v))
        return;
    s->pick.marks = 0;
    pick_save(&s->pick, v->app);
}

static void key_mark(struct view *v, const struct key *k, const char *args)
{
    struct signals *s = v->state;
    (void)k, (void)args;
    if (!prepare(v))
        return;
    if (!pick_toggle(&s->pick, s->pick.token))
        app_notify(v->app, LOG_WARN, "at most %d marks: unmark one, or all with X", PICK_MARKS_MAX);
    pick_save(&s->pick, v->app);
}

static void key_newest(struct view *v, const struct key *k, const char *args)
{
    struct signals *s = v->state;
    (void)k, (void)args;
    if (!prepare(v))
        return;
    s->pick.is_held = 0;
    pick_save(&s->pick, v->app);
}

static void key_time(struct view *v, const struct key *k, const char *args)
{
    struct signals *s = v->state;
    (void)args;
    if (!prepare(v))
        return;
    if (!pick_time(&s->pick, app_run(v->app), k->value))
        app_notify(v->app, LOG_INFO, "this is the %s one", k->value < 0 ? "first" : "last");
    pick_save(&s->pick, v->app);
}

static void key_text(struct view *v, const struct key *k, const char *args)
{
    struct signals *s = v->state;
    (void)args;
    if (!prepare(v))
        return;
    if (!pick_text(&s->pick, app_run(v->app), k->value))
        app_notify(v->app, LOG_INFO, "this is the %s one", k->value < 0 ? "first" : "last");
    pick_save(&s->pick, v->app);
}

static void key_part(struct view *v, const struct key *k, const char *args)
{
    struct signals *s = v->state;
    (void)k, (void)args;
    s->part = (s->part + 1) % SIGNALS_PARTS;
    if (s->part == SIGNALS_ALL && (v->rows < 31 || v->cols < 72))
        s->part = SIGNALS_CURVES; /* in this size "all" would show only the curves */
    else if (s->part == SIGNALS_CURVES && (v->rows < 31 || v->cols < 72))
        s->part = SIGNALS_SPREAD;
}

static void key_source(struct view *v, const struct key *k, const char *args)
{
    struct signals *s = v->state;
    (void)k, (void)args;
    s->sample = !s->sample;
}

static void key_field(struct view *v, const struct key *k, const char *args)
{
    struct signals *s = v->state;
    int field[32], n = prepare(v) ? signals_fields(s->probe, field, 32) : 0;
    (void)args;
    if (n > 0)
        s->field = (s->field % n + k->value + n) % n;
}

static int signals_event(struct view *v, const struct event *ev)
{
    if (ev->kind != EVENT_MOUSE || (ev->action != MOUSE_WHEEL_UP && ev->action != MOUSE_WHEEL_DOWN))
        return 0;
    struct key k = {.value = ev->action == MOUSE_WHEEL_UP ? -1 : 1};
    key_move(v, &k, NULL);
    return 1;
}

static int signals_search(struct view *v, const char *text, int direction)
{
    struct signals *s = v->state;
    if (!prepare(v))
        return 0;
    struct cells c = {.probe = s->probe, .token = s->pick.token};
    if (!cells_search(&c, text, direction))
        return 0;
    s->pick.token = c.token;
    pick_save(&s->pick, v->app);
    return 1;
}

/* The signals of the token at the cursor, one row per layer. */
static void signals_copy(struct view *v, struct str *out)
{
    struct signals *s = v->state;
    if (!prepare(v))
        return;
    str_add(out, runview_layer_word(app_run(v->app), s->probe->layers));
    for (int f = 0; f < cells_fields(s->probe); f++) {
        str_add_char(out, '\t');
        copy_add(out, cells_field_name(s->probe, f));
    }
    for (int l = 0; l < s->probe->layers; l++) {
        str_addf(out, "\n%d", l);
        for (int f = 0; f < cells_fields(s->probe); f++)
            str_addf(out, "\t%.6g", cells_value(s->probe, f, l, s->pick.token));
    }
    str_add_char(out, '\n');
}

static int signals_subject(struct view *v, struct subject *out)
{
    struct signals *s = v->state;
    const struct runview *r = app_run(v->app);
    struct cells c = {.probe = r ? pick_probe(&s->pick, r) : NULL, .layer = s->pick.layer};
    int field[64], n = c.probe ? signals_fields(c.probe, field, (int)DS_LEN(field)) : 0;
    if (n == 0)
        return 0;
    c.field = field[s->field % n];
    c.token = s->pick.token;
    return cells_subject(&c, out);
}

/* clang-format off */
static const struct key signals_keys[] = {
    {"h Left",   "left",       NULL, "previous token",                        NULL,      0, KEY_HIDDEN, -1, key_move},
    {"l Right",  "right",      NULL, "next token",                            NULL,      0, KEY_HIDDEN, 1, key_move},
    {"k Up",     "up",         NULL, "previous layer (scrolls the distribution of deep models)", NULL, 0, KEY_HIDDEN, -1, key_layer},
    {"j Down",   "down",       NULL, "next layer",                            NULL,      0, KEY_HIDDEN, 1, key_layer},
    {"gg Home",  "first",      NULL, "first token",                           NULL,      0, KEY_HIDDEN, -9, key_move},
    {"G End",    "last",       NULL, "last token",                            NULL,      0, KEY_HIDDEN, 9, key_move},
    {"p",        "part",       NULL, "all, curves, distribution or correlation", "part",    70, KEY_VIEW_CHANGE, 0, key_part},
    {"Space",    "mark",       NULL, "mark this token to keep its curve",     "mark",    66, 0, 0, key_mark},
    {"X",        "unmark",     NULL, "unmark all tokens",                     NULL,      0, 0, 0, key_unmark},
    {"c",        "field",      NULL, "next signal: of the distribution, and of the curves where not all fit", "signal",  64, KEY_VIEW_CHANGE, 1, key_field},
    {"C",        "field-back", NULL, "previous signal",                       NULL,      0, KEY_VIEW_CHANGE, -1, key_field},
    {"s",        "source",     NULL, "correlation over this probe or over the newest evaluation", "source", 60, KEY_VIEW_CHANGE, 0, key_source},
    {",",        "earlier",    NULL, "earlier probe of this text",            "time",    50, 0, -1, key_time},
    {".",        "later",      NULL, "later probe",                           NULL,      0, 0, 1, key_time},
    {"F",        "newest",     NULL, "follow the newest probe",               NULL,      0, 0, 0, key_newest},
    {"}",        "next-text",  NULL, "next probe text",                       "text",    48, 0, 1, key_text},
    {"{",        "prev-text",  NULL, "previous probe text",                   NULL,      0, 0, -1, key_text},
    {0},
};
static const struct setting signals_settings[] = {
    {"part",   SETTING_INT, offsetof(struct signals, part),   0, SIGNALS_PARTS - 1},
    {"field",  SETTING_INT, offsetof(struct signals, field),  0, 255},
    {"source", SETTING_INT, offsetof(struct signals, sample), 0, 1},
    {0},
};

const struct view_ops view_signals = {
    .name = "signals",  .title = "Signals",
    .summary = "Inputs of the routing decisions: signals and thresholds over the layers, their distribution, and their correlation with the loss.",
    .keys = signals_keys,  .settings = signals_settings,  .state_size = sizeof(struct signals),  .shows_probes = 1,
    .figure = "signal_depth",
    .draw = signals_draw,  .event = signals_event,  .search = signals_search,  .copy = signals_copy,
    .subject = signals_subject,
};
/* clang-format on */
