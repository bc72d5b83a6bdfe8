/* Timeline: the decisions over one text as training goes on: executed share of every layer and probe
 * above, the depth map of the probe at the cursor below; played, scrubbed, or following the newest. */
#include "tui/timeline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

const double timeline_speeds[SPEEDS] = {1, 2, 4, 8, 16, 32};
const char *const timeline_reduce[REDUCES] = {"mean", "min", "max"};

static int timeline_open(struct view *v, struct err *e)
{
    struct view_of_time *s = v->state;
    (void)e;
    s->speed = 2;
    pick_load(&s->pick, v->app);
    return 0;
}

static void timeline_close(struct view *v)
{
    struct view_of_time *s = v->state;
    timeline_release(&s->line);
    cells_release(&s->strip);
    cells_release(&s->map);
    mem_free(s->matrix.v);
    mem_free(s->sign);
    mem_free(s->mark);
}

/* The probes may be those of another run now. */
static void timeline_run_changed(struct view *v)
{
    struct view_of_time *s = v->state;
    s->is_playing = s->strip.is_moving = 0;
}

/* ---- the picture of the strip ---- */

/* In steps of a third to a half, so that the columns of a live run seldom move. */
static int probes_per_column(size_t n, int cols)
{
    int per = 1, next = 2; /* 1 2 3 4 6 8 12 16 ... */
    while (cols > 0 && (n + (size_t)per - 1) / (size_t)per > (size_t)cols) {
        int after = per >= 2 ? 2 * per : 3;
        per = next;
        next = after;
    }
    return per;
}

static float reduced(const struct view_of_time *s, const float *v, size_t first, size_t end, int l)
{
    double sum = 0, least = (double)INFINITY, most = -(double)INFINITY;
    int n = 0;
    for (size_t i = first; i < end; i++) {
        double x = (double)v[i * (size_t)s->line.layers + (size_t)l];
        if (!isfinite(x))
            continue;
        sum += x;
        least = x < least ? x : least;
        most = x > most ? x : most;
        n++;
    }
    return n == 0                      ? (float)NAN
           : s->reduce == REDUCE_LEAST ? (float)least
           : s->reduce == REDUCE_MOST  ? (float)most
                                       : (float)(sum / n);
}

/* Signs where a layer has collapsed for long enough to be named. */
static void put_signs(struct view_of_time *s)
{
    size_t columns = (size_t)s->picture.tokens;
    size_t n = s->findings < FINDINGS_MAX ? s->findings : FINDINGS_MAX;
    memset(s->sign, -1, columns * (size_t)s->line.layers);
    for (size_t k = 0; k < n; k++) {
        const struct timeline_finding *f = &s->found[k];
        if ((f->kind == TIMELINE_SPECIALISED) != (s->shown == STRIP_CLASS))
            continue;
        for (size_t c = f->first / (size_t)s->per; c <= f->last / (size_t)s->per; c++)
            s->sign[(size_t)f->layer * columns + c] = f->kind != TIMELINE_NEVER;
    }
}

static int make_picture(struct view_of_time *s, int cols)
{
    const float *v = s->shown == STRIP_CLASS ? s->line.class_ : s->line.share;
    s->per = probes_per_column(s->line.n, cols);
    size_t per = (size_t)s->per, columns = (s->line.n + per - 1) / per,
           cells = columns * (size_t)s->line.layers;
    if (cells > s->room) {
        float *value = mem_realloc(s->matrix.v, cells, sizeof *value);
        s->matrix.v = value ? value : s->matrix.v;
        int8_t *sign = mem_realloc(s->sign, cells, 1);
        s->sign = sign ? sign : s->sign;
        if (!value || !sign)
            return 0;
        s->room = cells;
    }
    for (size_t c = 0; c < columns; c++) {
        size_t first = c * per, end = first + per < s->line.n ? first + per : s->line.n;
        for (int l = 0; l < s->line.layers; l++)
            s->matrix.v[(size_t)l * columns + c] = reduced(s, v, first, end, l);
    }
    s->matrix.name = s->name;
    str_copy(s->name, sizeof s->name,
             s->shown == STRIP_CLASS ? "explained by class" : "executed share");
    s->matrix.rows = s->line.layers;
    s->matrix.cols = (int)columns;
    s->picture = (struct probe){
        .layers = s->line.layers, .tokens = (int)columns, .cell = &s->matrix, .cells = 1};
    put_signs(s);
    return 1;
}

/* ---- preparation ---- */

const struct probe *timeline_probe(const struct view_of_time *s, const struct runview *r, size_t i)
{
    return r->probe[s->line.at[i]];
}

static size_t position_of(const struct view_of_time *s, const struct runview *r,
                          const struct probe *p)
{
    for (size_t i = s->line.n; i-- > 0;)
        if (timeline_probe(s, r, i) == p)
            return i;
    return s->line.n ? s->line.n - 1 : 0;
}

static int fit_map(struct view_of_time *s, const struct runview *r)
{
    if (!s->strip.is_moving || s->drawn >= s->line.n || s->drawn_layer >= s->line.layers) {
        s->drawn = s->pos;
        s->drawn_layer = s->pick.layer;
    }
    s->map.view = r;
    s->map.probe = timeline_probe(s, r, s->drawn);
    s->map.token = s->pick.token;
    s->map.layer = s->drawn_layer;
    if (!s->map.probe || s->map.probe->tokens < 1 || cells_fit(&s->map) < 0)
        return 0;
    size_t tokens = (size_t)s->map.probe->tokens;
    unsigned char *mark = tokens > s->marks ? mem_realloc(s->mark, tokens, 1) : s->mark;
    if (!mark)
        return 0;
    s->marks = tokens > s->marks ? tokens : s->marks;
    s->mark = mark;
    for (size_t t = 0; t < tokens; t++)
        mark[t] = (unsigned char)pick_is_marked(&s->pick, (int)t);
    s->map.mark = mark;
    return 1;
}

int timeline_prepare(struct view *v)
{
    struct view_of_time *s = v->state;
    const struct runview *r = app_run(v->app);
    pick_load(&s->pick, v->app); /* another view may have moved it */
    const struct probe *p = pick_probe(&s->pick, r);
    if (!p || p->tokens < 1 || p->layers < 1)
        return 0;
    uint64_t was = s->line.generation;
    const struct runview *of = s->line.of;
    int text = s->line.text;
    if (timeline_update(&s->line, r, p->index) < 0 || s->line.n == 0)
        return 0;
    if (was != s->line.generation || of != s->line.of || text != s->line.text)
        s->findings = timeline_findings(&s->line, s->found, FINDINGS_MAX);
    s->pos = position_of(s, r, p);
    s->pick.layer = s->pick.layer >= s->line.layers ? s->line.layers - 1 : s->pick.layer;
    if (!make_picture(s, v->cols > TIMELINE_GUTTER + 4 ? v->cols - TIMELINE_GUTTER - 2 : 1))
        return 0;
    s->strip.probe = &s->picture;
    s->strip.view = r;
    s->strip.field = 1;
    s->strip.full = 1;
    s->strip.hides = CELLS_HIDES_TOKENS | CELLS_HIDES_BELOW;
    s->strip.token = (int)(s->pos / (size_t)s->per);
    s->strip.layer = s->pick.layer;
    s->strip.is_upward = s->map.is_upward;
    s->strip.force = s->sign;
    s->strip.fixed = s->line.always_on;
    return cells_fit(&s->strip) == 0 && fit_map(s, r);
}

/* ---- motion in time ---- */

static void go(struct view *v, long to, int is_scrub)
{
    struct view_of_time *s = v->state;
    const struct runview *r = app_run(v->app);
    long last = (long)s->line.n - 1;
    to = to > last ? last : to < 0 ? 0 : to;
    /* probes of one step cannot be told apart by it: the last of them is shown */
    while (to > 0 && to < (long)s->pos &&
           timeline_probe(s, r, (size_t)to)->step == timeline_probe(s, r, s->pos)->step)
        to--;
    s->pick.is_held = to < last; /* at the newest it follows again */
    s->pick.step = timeline_probe(s, r, (size_t)to)->step;
    s->pos = (size_t)to;
    pick_save(&s->pick, v->app);
    if (is_scrub) {
        s->is_playing = 0;
        cells_moved(&s->strip, app_is_scripted(v->app));
    }
}

static void keep_cell(struct view *v)
{
    struct view_of_time *s = v->state;
    s->pick.token = s->map.token;
    s->pick.layer = s->map.layer;
    cells_moved(&s->map, app_is_scripted(v->app));
    pick_save(&s->pick, v->app);
}

static int play_one(struct view *v)
{
    struct view_of_time *s = v->state;
    if (!timeline_prepare(v)) {
        s->is_playing = 0;
        return 1;
    }
    go(v, (long)s->pos + 1, 0);
    if (s->pos + 1 >= s->line.n) {
        s->is_playing = 0;
        app_notify(v->app, LOG_INFO, "the newest probe%s",
                   app_is_growing(v->app) ? "; newer ones are shown as they arrive" : "");
    }
    return 1;
}

/* A script has no clock: each of its events is a tick. */
static int timeline_poll(struct view *v)
{
    struct view_of_time *s = v->state;
    double now = clock_mono();
    int changed = cells_settled(&s->strip) | cells_settled(&s->map);
    if (!s->is_playing || (now < s->next && !app_is_scripted(v->app)))
        return changed;
    s->next = now + 1 / timeline_speeds[s->speed];
    return play_one(v);
}

static double timeline_due(struct view *v)
{
    const struct view_of_time *s = v->state;
    double a = cells_due(&s->strip), b = cells_due(&s->map);
    a = a < b ? a : b;
    return s->is_playing && s->next < a ? s->next : a;
}

/* ---- keys ---- */

static void key_time(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    (void)args;
    if (timeline_prepare(v))
        go(v, (long)s->pos + k->value, 1);
}

/* By columns of the strip: a tenth of those that are shown. */
static void key_page(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    (void)args;
    if (!timeline_prepare(v))
        return;
    long by = (long)s->line.n / 10;
    go(v, (long)s->pos + k->value * (by < 1 ? 1 : by), 1);
}

static void key_end(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    (void)args;
    if (timeline_prepare(v))
        go(v, k->value ? (long)s->line.n - 1 : 0, 1);
}

static void key_step(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    const struct runview *r = app_run(v->app);
    char *end = NULL;
    long long step = args ? strtoll(args, &end, 10) : 0;
    (void)k;
    if (!args || end == args || *end) {
        app_notify(v->app, LOG_WARN, "step %.40s: expected a training step", args ? args : "");
        return;
    }
    if (!timeline_prepare(v))
        return;
    size_t best = 0;
    for (size_t i = 0; i < s->line.n; i++)
        if (llabs((long long)timeline_probe(s, r, i)->step - step) <
            llabs((long long)timeline_probe(s, r, best)->step - step))
            best = i;
    go(v, (long)best, 1);
    if (timeline_probe(s, r, best)->step != step)
        app_notify(v->app, LOG_INFO, "no probe at step %lld: the nearest is at step %lld", step,
                   (long long)timeline_probe(s, r, best)->step);
}

static void key_play(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    (void)k, (void)args;
    if (!timeline_prepare(v))
        return;
    s->is_playing = !s->is_playing;
    s->strip.is_moving = 0;
    s->next = clock_mono() + 1 / timeline_speeds[s->speed];
    if (s->is_playing && s->pos + 1 >= s->line.n) /* from the beginning */
        go(v, 0, 0);
}

static void key_speed(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    int to = s->speed + k->value;
    (void)args;
    s->speed = to < 0 ? 0 : to >= SPEEDS ? SPEEDS - 1 : to;
    app_notify(v->app, LOG_INFO, "%g probe%s a second", timeline_speeds[s->speed],
               s->speed ? "s" : "");
}

static void key_layer(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    (void)args;
    if (!timeline_prepare(v))
        return;
    if (s->is_listing) {
        list_move(&s->list, k->value);
        return;
    }
    cells_go(&s->strip, k->value < 0 ? CELLS_UP : CELLS_DOWN);
    s->pick.layer = s->strip.layer;
    pick_save(&s->pick, v->app);
    cells_moved(&s->strip, app_is_scripted(v->app));
}

static void key_token(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    (void)args;
    if (!timeline_prepare(v))
        return;
    cells_go(&s->map, k->value < 0 ? CELLS_LEFT : CELLS_RIGHT);
    keep_cell(v);
}

static void key_text(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    (void)args;
    if (timeline_prepare(v) && !pick_text(&s->pick, app_run(v->app), k->value))
        app_notify(v->app, LOG_INFO,
                   k->value < 0 ? "this is the first probe text" : "this is the last probe text");
    pick_save(&s->pick, v->app);
}

static void key_strip(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    (void)k, (void)args;
    if (timeline_prepare(v) && !s->line.has_classes)
        app_notify(v->app, LOG_INFO, "token classes are not recorded in these probes");
    else
        s->shown = (s->shown + 1) % STRIP_FIELDS;
}

static void key_reduce(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    (void)k, (void)args;
    s->reduce = (s->reduce + 1) % REDUCES;
    app_notify(v->app, LOG_INFO, "a column of several probes shows their %s",
               timeline_reduce[s->reduce]);
}

static void key_field(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    (void)args;
    if (!timeline_prepare(v))
        return;
    int n = cells_fields(s->map.probe);
    s->map.field = (s->map.field + k->value + n) % n;
}

static void key_flip(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    (void)k, (void)args;
    s->map.is_upward = !s->map.is_upward;
}

static void key_list(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    (void)k, (void)args;
    s->is_listing = !s->is_listing;
}

/* From the list to the layer and the probe where the state begins. */
static void key_enter(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    (void)k, (void)args;
    if (!timeline_prepare(v))
        return;
    if (!s->is_listing || s->list.cursor >= s->findings) {
        app_show(v->app, "depth");
        return;
    }
    s->is_listing = 0;
    s->pick.layer = s->found[s->list.cursor].layer;
    go(v, (long)s->found[s->list.cursor].first, 1);
}

static void key_mark(struct view *v, const struct key *k, const char *args)
{
    struct view_of_time *s = v->state;
    (void)k, (void)args;
    if (!timeline_prepare(v))
        return;
    if (!pick_toggle(&s->pick, s->map.token))
        app_notify(v->app, LOG_WARN, "at most %d tokens are marked: unmark one", PICK_MARKS_MAX);
    pick_save(&s->pick, v->app);
}

/* ---- mouse, search, copy ---- */

static int strip_event(struct view *v, const struct event *ev)
{
    struct view_of_time *s = v->state;
    int was = s->strip.token;
    if (!cells_event(&s->strip, ev))
        return 0;
    s->pick.layer = s->strip.layer;
    if (s->strip.token == was) {
        pick_save(&s->pick, v->app);
        cells_moved(&s->strip, app_is_scripted(v->app));
    } else {
        go(v, (long)s->strip.token * s->per, 1);
    }
    return 1;
}

static int timeline_event(struct view *v, const struct event *ev)
{
    struct view_of_time *s = v->state;
    if (!timeline_prepare(v))
        return 0;
    if (ev->kind == EVENT_KEY && ev->key == KEYCODE_ESC && s->is_listing) {
        s->is_listing = 0;
        return 1;
    }
    if (s->is_listing && s->list_top > 0 && ev->kind == EVENT_MOUSE && ev->y >= s->list_top) {
        size_t at = s->list.top + (size_t)(ev->y - s->list_top);
        if (ev->action == MOUSE_PRESS && at < s->list.n) {
            s->list.cursor = at;
            if (ev->is_double)
                key_enter(v, NULL, NULL);
            return 1;
        }
        return list_event(&s->list, ev);
    }
    if (ev->kind == EVENT_MOUSE && (ev->y <= s->strip_end || s->map_top == 0))
        return strip_event(v, ev);
    struct event at = *ev;
    at.y -= s->map_top;
    if (ev->kind != EVENT_MOUSE || !cells_event(&s->map, &at))
        return 0;
    keep_cell(v);
    return 1;
}

static int timeline_search(struct view *v, const char *text, int direction)
{
    struct view_of_time *s = v->state;
    if (!timeline_prepare(v) || !cells_search(&s->map, text, direction))
        return 0;
    keep_cell(v);
    return 1;
}

/* One row per probe: its step and the executed share of every layer. */
static void timeline_copy(struct view *v, struct str *out)
{
    struct view_of_time *s = v->state;
    const struct runview *r = app_run(v->app);
    if (!timeline_prepare(v))
        return;
    str_add(out, "step");
    for (int l = 0; l < s->line.layers; l++)
        str_addf(out, "\t%s %d", runview_layer_word(r, s->line.layers), l);
    for (size_t i = 0; i < s->line.n; i++) {
        str_addf(out, "\n%lld", (long long)timeline_probe(s, r, i)->step);
        for (int l = 0; l < s->line.layers; l++)
            str_addf(out, "\t%.6g", (double)s->line.share[i * (size_t)s->line.layers + (size_t)l]);
    }
    str_add_char(out, '\n');
}

static int timeline_subject(struct view *v, struct subject *out)
{
    struct view_of_time *s = v->state;
    if (!timeline_prepare(v))
        return 0;
    const struct probe *p = timeline_probe(s, app_run(v->app), s->pos);
    size_t at = s->pos * (size_t)s->line.layers + (size_t)s->pick.layer;
    str_copy(out->key, sizeof out->key, s->name);
    snprintf(out->where, sizeof out->where, "%s %d, all %d tokens of %s",
             runview_layer_word(app_run(v->app), p->layers), s->pick.layer, p->tokens,
             p->name ? p->name : "the probe");
    out->step = p->step;
    out->record = "probe record";
    if (s->shown == STRIP_CLASS) {
        out->value = (double)s->line.class_[at];
        out->help = "how much of the layer's decisions the class of the token explains: 0 none, 1 "
                    "all; undefined when every token gets the same";
        out->formula = "epsilon^2 = 1 - (1 - between / total) (n - 1) / (n - classes): variance of "
                       "the executed share between token classes, corrected for their number";
    } else {
        out->value = (double)s->line.share[at];
        out->help = "share of the tokens of this text that the layer executed";
        out->formula = "executed tokens / all tokens";
    }
    return 1;
}

/* clang-format off */
static const struct key timeline_keys[] = {
    {"h Left ,",   "left",       NULL, "earlier probe",                         NULL,     0, KEY_HIDDEN, -1, key_time},
    {"l Right .",  "right",      NULL, "later probe; the newest is followed",   NULL,     0, KEY_HIDDEN, 1, key_time},
    {"k Up",       "up",         NULL, "layer above on the screen",             NULL,     0, KEY_HIDDEN, -1, key_layer},
    {"j Down",     "down",       NULL, "layer below on the screen",             NULL,     0, KEY_HIDDEN, 1, key_layer},
    {"PgUp C-u H", "page-left",  NULL, "back by a tenth of the probes",         NULL,     0, KEY_HIDDEN, -1, key_page},
    {"PgDn C-d L", "page-right", NULL, "forward by a tenth of the probes",      NULL,     0, KEY_HIDDEN, 1, key_page},
    {"gg Home",    "first",      NULL, "first probe",                           NULL,     0, KEY_HIDDEN, 0, key_end},
    {"G End F",    "last",       NULL, "follow the newest probe",               NULL,     0, KEY_HIDDEN, 1, key_end},
    {"p",          "play",       NULL, "play the probes, or stop; from the newest: from the first", "play", 72, 0, 0, key_play},
    {"<",          "slower",     NULL, "half as many probes a second",          NULL,     0, KEY_VIEW_CHANGE, -1, key_speed},
    {">",          "faster",     NULL, "twice as many probes a second",         "faster", 42, KEY_VIEW_CHANGE, 1, key_speed},
    {"",           "step",       "N",  "go to the probe nearest to a training step", NULL, 0, 0, 0, key_step},
    {"c",          "collapsed",  NULL, "list the layers that collapsed or specialised", "collapsed", 68, 0, 0, key_list},
    {"Enter",      "enter",      NULL, "in the list: go to where it begins; else open the Depth map", NULL, 0, 0, 0, key_enter},
    {"s",          "strip",      NULL, "strip: executed share, or the part explained by the token class", "strip", 66, KEY_VIEW_CHANGE, 0, key_strip},
    {"m",          "column",     NULL, "columns of several probes: mean, minimum or maximum", NULL, 0, KEY_VIEW_CHANGE, 0, key_reduce},
    {"}",          "next-text",  NULL, "next probe text",                       "text",   64, 0, 1, key_text},
    {"{",          "prev-text",  NULL, "previous probe text",                   NULL,     0, 0, -1, key_text},
    {"v",          "field",      NULL, "cycle the value that the cells of the map show", "values", 60, KEY_VIEW_CHANGE, 1, key_field},
    {"]t",         "next-token", NULL, "next token of the map",                 NULL,     0, 0, 1, key_token},
    {"[t",         "prev-token", NULL, "previous token of the map",             NULL,     0, 0, -1, key_token},
    {"Space",      "mark",       NULL, "mark the token for Signals",            NULL,     0, 0, 0, key_mark},
    {"o",          "flip",       NULL, "layer 0 at the top or the bottom",      NULL,     0, KEY_VIEW_CHANGE, 0, key_flip},
    {0},
};
static const struct setting timeline_settings[] = {
    {"strip",  SETTING_INT, offsetof(struct view_of_time, shown),         0, STRIP_FIELDS - 1},
    {"column", SETTING_INT, offsetof(struct view_of_time, reduce),        0, REDUCES - 1},
    {"speed",  SETTING_INT, offsetof(struct view_of_time, speed),         0, SPEEDS - 1},
    {"field",  SETTING_INT, offsetof(struct view_of_time, map.field),     0, 255},
    {"upward", SETTING_INT, offsetof(struct view_of_time, map.is_upward), 0, 1},
    {0},
};

const struct view_ops view_timeline = {
    .name = "timeline",  .title = "Timeline",  .brief = 4,
    .summary = "Probes over training: executed share of every layer and step, collapse and specialisation named, the depth map of any step.",
    .keys = timeline_keys,  .settings = timeline_settings,  .state_size = sizeof(struct view_of_time),  .shows_probes = 1,
    .open = timeline_open,  .close = timeline_close,  .draw = timeline_draw,  .event = timeline_event,
    .poll = timeline_poll,  .due = timeline_due,  .run_changed = timeline_run_changed,
    .search = timeline_search,  .copy = timeline_copy,  .subject = timeline_subject,
};
/* clang-format on */
