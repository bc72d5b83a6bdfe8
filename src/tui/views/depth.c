/* Depth map: which layers every token executed and at what cost, from the newest or any earlier
 * probe. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tui/cells.h"
#include "tui/cells_pick.h"
#include "tui/view.h"
#include "tui/widgets.h"

struct depth {
    struct cells cells;
    struct pick pick;
    unsigned char *mark; /* (tokens) */
    char index[12];      /* of the text, for an export; step: the held one's */
    char step[24];
};

static int depth_open(struct view *v, struct err *e)
{
    struct depth *d = v->state;
    (void)e;
    pick_load(&d->pick, v->app);
    return 0;
}

static void depth_close(struct view *v)
{
    struct depth *d = v->state;
    cells_release(&d->cells);
    mem_free(d->mark);
}

/* Selects the probe to show; 0 when there is none. */
static int prepare(struct view *v)
{
    struct depth *d = v->state;
    const struct runview *r = app_run(v->app);
    pick_load(&d->pick, v->app); /* another view may have moved it */
    d->cells.view = r;
    d->cells.probe = pick_probe(&d->pick, r);
    d->cells.mark = NULL;
    if (!d->cells.probe || d->cells.probe->tokens < 1 || d->cells.probe->layers < 1)
        return 0;
    d->cells.token = d->pick.token;
    d->cells.layer = d->pick.layer;
    if (cells_fit(&d->cells) < 0)
        return 0;
    unsigned char *mark = mem_realloc(d->mark, (size_t)d->cells.probe->tokens, 1);
    if (!mark)
        return 1;
    d->mark = mark;
    for (int t = 0; t < d->cells.probe->tokens; t++)
        mark[t] = (unsigned char)pick_is_marked(&d->pick, t);
    d->cells.mark = mark;
    return 1;
}

static void keep_cursor(struct view *v)
{
    struct depth *d = v->state;
    d->pick.token = d->cells.token;
    d->pick.layer = d->cells.layer;
    cells_moved(&d->cells, app_is_scripted(v->app));
    pick_save(&d->pick, v->app);
}

/* ---- drawing ---- */

static void draw_empty(struct view *v, struct area a)
{
    const struct runview *r = app_run(v->app);
    int y = a.rows > 6 ? a.rows / 2 - 2 : 0;
    if (app_draw_nothing(v->app, a))
        return;
    area_text(a, y, 2, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), "No probe yet");
    const char *every = runview_config(r, "train.probe_every");
    area_text(a, y + 2, 2, -1, ink(ROLE_TEXT), "A probe records all decisions over a fixed text.");
    if (every && r->state == RUN_LIVE)
        area_textf(a, y + 3, 2, -1, ink(ROLE_TEXT),
                   "This run records its probe texts every %.12s steps;", every);
    else if (every)
        area_text(a, y + 3, 2, -1, ink(ROLE_TEXT),
                  "Runs record one every train.probe_every steps;");
    area_text(a, y + 3 + (every != NULL), 2, -1, ink(ROLE_TEXT), app_probe_hint(v->app, NULL));
}

static double mean_depth(const struct probe *p)
{
    double sum = 0;
    for (int t = 0; t < p->tokens; t++)
        sum += cells_depth(p, NULL, t);
    return sum / p->tokens;
}

static void draw_title(struct view *v, struct area line)
{
    struct depth *d = v->state;
    const struct probe *p = d->cells.probe;
    const struct runview *r = app_run(v->app);
    struct pick_place at = pick_place(&d->pick, r);
    char part[4][64] = {{0}};
    int end = line.cols >= 50 ? cells_legend(line, line.cols - 1, &d->cells) : line.cols, x = 1;
    x += cells_title(line, x, line.cols > 60 ? 24 : 12, end, p) + 2;
    snprintf(part[0], sizeof part[0], "step %lld", (long long)p->step);
    snprintf(part[1], sizeof part[1], d->pick.is_held ? "probe %d/%d" : "newest", at.at, at.of);
    snprintf(part[2], sizeof part[2], "text %d/%d", at.text, at.texts);
    if (isfinite(mean_depth(p)))
        snprintf(part[3], sizeof part[3],
                 cells_is_iterated(&d->cells) ? "mean %.2f of %d iterations"
                                              : "mean depth %.2f of %d",
                 mean_depth(p), p->layers);
    for (int i = 0; i < 4; i++) {
        int n = (int)strlen(part[i]);
        if (x + n + 2 > end)
            break;
        x += area_text(line, 0, x, n, ink(i == 1 && d->pick.is_held ? ROLE_WARN : ROLE_DIM),
                       part[i]) +
             2;
    }
}

static void depth_draw(struct view *v, struct area a)
{
    struct depth *d = v->state;
    if (!prepare(v)) {
        draw_empty(v, a);
        return;
    }
    d->cells.has_focus = v->has_focus && !app_is_scripted(v->app);
    int has_title = a.rows >= 4;
    if (has_title)
        draw_title(v, area_sub(a, 0, 0, 1, a.cols));
    cells_draw(area_sub(a, has_title, 0, a.rows - has_title, a.cols), &d->cells);
}

/* ---- keys ---- */

static void key_move(struct view *v, const struct key *k, const char *args)
{
    struct depth *d = v->state;
    (void)args;
    if (!prepare(v))
        return;
    cells_go(&d->cells, (enum cells_move)k->value);
    keep_cursor(v);
}

static void key_newest(struct view *v, const struct key *k, const char *args)
{
    struct depth *d = v->state;
    (void)k, (void)args;
    if (!prepare(v))
        return;
    d->pick.is_held = 0;
    pick_save(&d->pick, v->app);
}

static void key_time(struct view *v, const struct key *k, const char *args)
{
    struct depth *d = v->state;
    (void)args;
    if (!prepare(v))
        return;
    if (!pick_time(&d->pick, app_run(v->app), k->value))
        app_notify(v->app, LOG_INFO,
                   k->value < 0 ? "this is the first probe of this text"
                                : "this is the newest probe; newer ones are shown as they arrive");
    pick_save(&d->pick, v->app);
}

static void key_text(struct view *v, const struct key *k, const char *args)
{
    struct depth *d = v->state;
    (void)args;
    if (prepare(v) && !pick_text(&d->pick, app_run(v->app), k->value))
        app_notify(v->app, LOG_INFO,
                   k->value < 0 ? "this is the first probe text" : "this is the last probe text");
    pick_save(&d->pick, v->app);
}

static void key_field(struct view *v, const struct key *k, const char *args)
{
    struct depth *d = v->state;
    (void)args;
    if (!prepare(v))
        return;
    int n = cells_fields(d->cells.probe);
    d->cells.field = (d->cells.field + k->value + n) % n;
}

static void key_flip(struct view *v, const struct key *k, const char *args)
{
    struct depth *d = v->state;
    (void)k, (void)args;
    d->cells.is_upward = !d->cells.is_upward;
}

static void key_wide(struct view *v, const struct key *k, const char *args)
{
    struct depth *d = v->state;
    (void)k, (void)args;
    d->cells.wide = (d->cells.wide + 1) % (CELLS_WIDE_MAX + 1);
}

static void key_unmark(struct view *v, const struct key *k, const char *args)
{
    struct depth *d = v->state;
    (void)k, (void)args;
    if (!prepare(v))
        return;
    d->pick.marks = 0;
    pick_save(&d->pick, v->app);
}

static void key_mark(struct view *v, const struct key *k, const char *args)
{
    struct depth *d = v->state;
    (void)k, (void)args;
    if (!prepare(v))
        return;
    if (!pick_toggle(&d->pick, d->cells.token))
        app_notify(v->app, LOG_WARN, "at most %d marks: unmark one, or all with X", PICK_MARKS_MAX);
    pick_save(&d->pick, v->app);
}

static int depth_event(struct view *v, const struct event *ev)
{
    struct depth *d = v->state;
    struct event at = *ev;
    at.y -= v->rows >= 4;
    if (!prepare(v) || !cells_event(&d->cells, &at))
        return 0;
    keep_cursor(v);
    return 1;
}

static int depth_search(struct view *v, const char *text, int direction)
{
    struct depth *d = v->state;
    if (!prepare(v) || !cells_search(&d->cells, text, direction))
        return 0;
    keep_cursor(v);
    return 1;
}

static void depth_copy(struct view *v, struct str *out)
{
    struct depth *d = v->state;
    if (prepare(v))
        cells_copy(&d->cells, out);
}

static int depth_poll(struct view *v)
{
    struct depth *d = v->state;
    return cells_settled(&d->cells);
}

static double depth_due(struct view *v)
{
    const struct depth *d = v->state;
    return cells_due(&d->cells);
}

static int depth_subject(struct view *v, struct subject *out)
{
    return prepare(v) && cells_subject(&((struct depth *)v->state)->cells, out);
}

static int depth_words(struct view *v, const char **word, enum figure_runs *of)
{
    struct depth *d = v->state;
    const struct probe *p = pick_probe(&d->pick, app_run(v->app));
    snprintf(d->index, sizeof d->index, "%d", p ? p->index : 0);
    word[0] = "routing_map";
    word[1] = "--probe";
    word[2] = d->index;
    *of = FIGURE_OF_ONE;
    if (!p || !d->pick.is_held)
        return p ? 3 : 1;
    snprintf(d->step, sizeof d->step, "%lld", (long long)p->step);
    word[3] = "--step";
    word[4] = d->step;
    return 5;
}

/* clang-format off */
static const struct key depth_keys[] = {
    {"h Left",     "left",       NULL, "previous token",                       NULL,     0, KEY_HIDDEN, CELLS_LEFT,       key_move},
    {"l Right",    "right",      NULL, "next token",                           NULL,     0, KEY_HIDDEN, CELLS_RIGHT,      key_move},
    {"k Up",       "up",         NULL, "layer above on the screen",            NULL,     0, KEY_HIDDEN, CELLS_UP,         key_move},
    {"j Down",     "down",       NULL, "layer below on the screen",            NULL,     0, KEY_HIDDEN, CELLS_DOWN,       key_move},
    {"K",          "jump-up",    NULL, "up to the next change of decision",    NULL,     0, KEY_HIDDEN, CELLS_JUMP_UP,    key_move},
    {"J",          "jump-down",  NULL, "down to the next change of decision",  NULL,     0, KEY_HIDDEN, CELLS_JUMP_DOWN,  key_move},
    {"PgUp C-u H", "page-left",  NULL, "previous page of tokens",              NULL,     0, KEY_HIDDEN, CELLS_PAGE_LEFT,  key_move},
    {"PgDn C-d L", "page-right", NULL, "next page of tokens",                  NULL,     0, KEY_HIDDEN, CELLS_PAGE_RIGHT, key_move},
    {"gg Home",    "first",      NULL, "first token",                          NULL,     0, KEY_HIDDEN, CELLS_FIRST,      key_move},
    {"G End",      "last",       NULL, "last token",                           NULL,     0, KEY_HIDDEN, CELLS_LAST,       key_move},
    {"c",          "field",      NULL, "cycle the value that the cells show", "values", 70, KEY_VIEW_CHANGE, 1, key_field},
    {"C",          "field-back", NULL, "previous value",                       NULL,     0, KEY_VIEW_CHANGE, -1, key_field},
    {",",          "earlier",    NULL, "earlier probe of this text", "time", 66, 0, -1, key_time},
    {".",          "later",      NULL, "later probe; the newest is followed",  NULL,    0, 0, 1, key_time},
    {"F",          "newest",     NULL, "follow the newest probe",              NULL,     0, 0, 0, key_newest},
    {"}",          "next-text",  NULL, "next probe text",                      "text",  64, 0, 1, key_text},
    {"{",          "prev-text",  NULL, "previous probe text",                  NULL,     0, 0, -1, key_text},
    {"Space",      "mark",       NULL, "mark this token for Signals",          "mark",  60, 0, 0, key_mark},
    {"X",          "unmark",     NULL, "unmark all tokens",                    NULL,     0, 0, 0, key_unmark},
    {"w",          "width",      NULL, "columns per token: automatic, 4, 8 or 16", "width", 50, KEY_VIEW_CHANGE, 0, key_wide},
    {"o",          "flip",       NULL, "layer 0 at the top or the bottom",     "flip",  40, KEY_VIEW_CHANGE, 0, key_flip},
    {0},
};
static const struct setting depth_settings[] = {
    {"field",  SETTING_INT, offsetof(struct depth, cells.field),     0, 255},
    {"wide",   SETTING_INT, offsetof(struct depth, cells.wide),      0, CELLS_WIDE_MAX},
    {"upward", SETTING_INT, offsetof(struct depth, cells.is_upward), 0, 1},
    {0},
};

const struct view_ops view_depth = {
    .name = "depth",  .title = "Depth map",  .brief = 5,
    .summary = "Tokens x layers of the newest probe: which cells were executed or skipped, and every recorded value.",
    .keys = depth_keys,  .settings = depth_settings,  .state_size = sizeof(struct depth),  .shows_probes = 1,
    .figure_words = depth_words,
    .open = depth_open,  .close = depth_close,  .draw = depth_draw,  .event = depth_event,
    .poll = depth_poll,  .due = depth_due,
    .search = depth_search,  .copy = depth_copy,
    .subject = depth_subject,
};
/* clang-format on */
