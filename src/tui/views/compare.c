/* Compare: two models, checkpoints, methods or traces on one text: where their decisions differ,
 * and what that changes in their predictions and costs. */
#include "tui/compare.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static int compare_open(struct view *v, struct err *e)
{
    struct compare *c = v->state;
    (void)e;
    c->table = (struct child)CHILD_NONE;
    return 0;
}

static void compare_close(struct view *v)
{
    struct compare *c = v->state;
    compare_stop(c);
    child_close(&c->table, SIGTERM);
    compare_match_release(&c->match);
    runview_free(c->difference);
    cells_release(&c->cells[0]);
    cells_release(&c->cells[1]);
    cells_release(&c->diff);
    field_release(&c->prompt);
    str_release(&c->typed_over);
    str_release(&c->table_text);
    str_release(&c->table_next);
}

/* ---- keys ---- */

static int is_table(struct view *v)
{
    const struct compare *c = v->state;
    return !c->given[0][0] && compare_marked(v) > 2;
}

static void scroll_lines(struct view *v, enum cells_move m)
{
    struct compare *c = v->state;
    int page = v->rows > 4 ? v->rows - 3 : 1;
    long by = m == CELLS_UP           ? -1
              : m == CELLS_DOWN       ? 1
              : m == CELLS_PAGE_LEFT  ? -page
              : m == CELLS_PAGE_RIGHT ? page
                                      : 0;
    if (m == CELLS_FIRST || m == CELLS_LAST)
        by = m == CELLS_LAST ? 1 << 20 : -(1 << 20);
    if (!is_table(v)) {
        list_move(&c->list, by);
        return;
    }
    long top = c->table_scroll.top + by, most = c->table_scroll.lines - c->table_scroll.page;
    c->table_scroll.top = (int)(top > most ? most : top);
    c->table_scroll.top = c->table_scroll.top < 0 ? 0 : c->table_scroll.top;
}

static void key_move(struct view *v, const struct key *k, const char *args)
{
    struct compare *c = v->state;
    enum cells_move m = (enum cells_move)k->value;
    (void)args;
    if (is_table(v) || (compare_prepare(v) && c->is_listing)) {
        scroll_lines(v, m);
        return;
    }
    if (!c->diff.probe || !c->side[0].probe)
        return;
    if (c->diff.probe->layers < c->side[0].probe->layers && (m == CELLS_UP || m == CELLS_DOWN)) {
        cells_go(&c->cells[0], m); /* the difference has one row: of all layers */
        cells_go(&c->cells[1], m);
        return;
    }
    cells_go(&c->diff, m);
    cells_moved(&c->diff, app_is_scripted(v->app));
}

static void key_disagree(struct view *v, const struct key *k, const char *args)
{
    struct compare *c = v->state;
    (void)args;
    if (is_table(v) || !compare_prepare(v))
        return;
    int g = compare_next(&c->match, c->side[0].probe, c->side[1].probe, c->diff.token, k->value);
    if (g < 0)
        app_notify(v->app, LOG_INFO, "A and B execute the same cells in this text");
    else
        c->diff.token = g;
    for (int l = 0; g >= 0 && l < c->diff.probe->layers; l++) /* to its first layer that differs */
        if (fabs(cells_value(c->diff.probe, 1, l, g)) > 1e-9) {
            c->diff.layer = l;
            break;
        }
    cells_moved(&c->diff, app_is_scripted(v->app));
}

/* "A B" as typed, or "A\nB" from a caller whose paths may hold blanks. */
static void key_compare(struct view *v, const struct key *k, const char *args)
{
    char a[1024], b[1024];
    (void)k;
    if (!args || !*args) {
        compare_give(v, "", "");
        return;
    }
    const char *cut = strchr(args, '\n') ? strchr(args, '\n') : strchr(args, ' ');
    if (!cut || (size_t)(cut - args) >= sizeof a) {
        app_notify(v->app, LOG_WARN, "compare: expected two runs, checkpoints, models or traces");
        return;
    }
    memcpy(a, args, (size_t)(cut - args));
    a[cut - args] = '\0';
    while (*cut == ' ' || *cut == '\n')
        cut++;
    str_copy(b, sizeof b, cut);
    char path[2][1100];
    compare_give(v, app_path(v->app, a, path[0], sizeof path[0]),
                 app_path(v->app, b, path[1], sizeof path[1]));
}

static void key_type(struct view *v, const struct key *k, const char *args)
{
    struct compare *c = v->state;
    (void)k;
    if (args && *args) {
        field_set(&c->prompt, args);
        compare_ask(v, args);
    } else if (!is_table(v)) {
        str_renew(&c->typed_over);
        str_add_bytes(&c->typed_over, str_text(&c->prompt.text), c->prompt.text.len);
        c->is_typing = 1;
        v->grabs = GRAB_TEXT;
        c->is_listing = 0;
    }
}

static void key_recorded(struct view *v, const struct key *k, const char *args)
{
    struct compare *c = v->state;
    (void)k, (void)args;
    c->is_live = 0;
    c->trouble[0] = '\0';
}

static void key_text(struct view *v, const struct key *k, const char *args)
{
    struct compare *c = v->state;
    (void)args;
    if (!compare_prepare(v))
        return;
    int to = c->text + k->value;
    if (to < 0 || to >= c->texts || c->is_live)
        app_notify(v->app, LOG_INFO, "no further text that both have recorded");
    else
        c->text = to;
}

static void key_maps(struct view *v, const struct key *k, const char *args)
{
    static const char *const what[] = {"all maps that fit", "the maps of A and B",
                                       "the difference"};
    struct compare *c = v->state;
    (void)k, (void)args;
    c->shown = (c->shown + 1) % COMPARE_SHOWN;
    app_notify(v->app, LOG_INFO, "showing %s", what[c->shown]);
}

static void key_settings(struct view *v, const struct key *k, const char *args)
{
    struct compare *c = v->state;
    (void)k, (void)args;
    c->is_listing = !c->is_listing;
}

static void key_width(struct view *v, const struct key *k, const char *args)
{
    struct compare *c = v->state;
    (void)k, (void)args;
    c->diff.wide = (c->diff.wide + 1) % (CELLS_WIDE_MAX + 1);
}

static void key_flip(struct view *v, const struct key *k, const char *args)
{
    struct compare *c = v->state;
    (void)k, (void)args;
    c->diff.is_upward = !c->diff.is_upward;
}

static void key_swap(struct view *v, const struct key *k, const char *args)
{
    struct compare *c = v->state;
    char a[1024], b[1024];
    (void)k, (void)args;
    if (!c->side[0].path[0] || !c->side[1].path[0] || is_table(v))
        return;
    str_copy(a, sizeof a, c->side[1].path);
    str_copy(b, sizeof b, c->side[0].path);
    int was_live = c->is_live, text = c->text;
    compare_give(v, a, b);
    c->text = text;
    if (was_live)
        compare_ask(v, str_text(&c->prompt.text));
}

/* ---- events ---- */

static int compare_event(struct view *v, const struct event *ev)
{
    struct compare *c = v->state;
    if (c->is_typing) {
        if (ev->kind != EVENT_KEY || (ev->key != KEYCODE_ENTER && ev->key != KEYCODE_ESC))
            return field_event(&c->prompt, ev);
        c->is_typing = 0;
        v->grabs = GRAB_NONE;
        if (ev->key == KEYCODE_ENTER && c->prompt.text.len > 0) {
            app_remember(v->app, "stepper.prompt", str_text(&c->prompt.text));
            compare_ask(v, str_text(&c->prompt.text));
        } else { /* swap asks for the text that is shown */
            field_set(&c->prompt, str_text(&c->typed_over));
        }
        return 1;
    }
    if (is_table(v))
        return scroll_event(&c->table_scroll, ev);
    if (!compare_prepare(v))
        return 0;
    if (c->is_listing && ev->kind == EVENT_KEY && ev->key == KEYCODE_ESC) {
        c->is_listing = 0;
        return 1;
    }
    if (c->is_listing)
        return list_event(&c->list, ev);
    struct event at = *ev;
    at.y -= 0;
    for (int k = 0; k < 3; k++) {
        struct cells *x = k == 2 ? &c->diff : &c->cells[k];
        int token = x->token, layer = x->layer;
        if (!cells_event(x, &at))
            continue;
        int same = c->diff.probe->layers == x->probe->layers;
        if (k < 2) {
            c->diff.token = compare_group_at(&c->match, k, x->token);
            c->diff.layer = same ? x->layer : c->diff.layer;
        }
        if (token != x->token || layer != x->layer)
            cells_moved(&c->diff, app_is_scripted(v->app));
        return 1;
    }
    return 0;
}

static int compare_poll(struct view *v)
{
    struct compare *c = v->state;
    return compare_take(v) | cells_settled(&c->diff);
}

static int compare_fd(struct view *v)
{
    const struct compare *c = v->state;
    if (c->other && (!c->session || !session_busy(c->session)))
        return session_fd(c->other);
    return c->session ? session_fd(c->session) : c->table.out;
}

static double compare_due(struct view *v)
{
    const struct compare *c = v->state;
    return cells_due(&c->diff);
}

static int compare_search(struct view *v, const char *text, int direction)
{
    struct compare *c = v->state;
    return !is_table(v) && compare_prepare(v) && cells_search(&c->diff, text, direction);
}

static void compare_copy(struct view *v, struct str *out)
{
    struct compare *c = v->state;
    const char *table = is_table(v) ? compare_table(v) : NULL;
    if (table)
        str_add(out, table);
    else if (!is_table(v) && compare_prepare(v))
        cells_copy(&c->diff, out);
}

/* The table of several runs only scrolls; a text needs the weights of both. */
static int compare_offers(struct view *v, const struct key *k)
{
    if (k->fn == key_type && compare_without_weights(v))
        return 0;
    return k->fn == key_move || k->fn == key_compare || !is_table(v);
}

/* The setting under the cursor of the list, else the cell of the difference. */
static int compare_subject(struct view *v, struct subject *out)
{
    struct compare *c = v->state;
    char place[64];
    if (is_table(v) || !compare_prepare(v))
        return 0;
    const struct probe *a = c->side[0].probe, *b = c->side[1].probe;
    if (c->is_listing) {
        struct compare_setting s[COMPARE_SETTINGS_MAX];
        size_t n = compare_settings(c->side[0].view, c->side[1].view, s, COMPARE_SETTINGS_MAX);
        n = n < COMPARE_SETTINGS_MAX ? n : COMPARE_SETTINGS_MAX;
        if (c->list.cursor >= n)
            return 0;
        const struct compare_setting *at = &s[c->list.cursor];
        str_copy(out->key, sizeof out->key, at->key);
        str_copy(out->where, sizeof out->where, "setting that differs between A and B");
        snprintf(out->text, sizeof out->text, "A %.40s, B %.40s", at->value[0] ? at->value[0] : "-",
                 at->value[1] ? at->value[1] : "-");
        out->record = "head records (configuration)";
        return 1;
    }
    int layer = a->layers == b->layers ? c->diff.layer : -1, g = c->diff.token;
    str_copy(out->key, sizeof out->key, "B - A");
    if (layer >= 0)
        snprintf(out->where, sizeof out->where, "%s, token %d",
                 cells_place(&c->cells[0], layer, place), g);
    else
        snprintf(out->where, sizeof out->where, "all layers, token %d", g);
    out->value = compare_difference(&c->match, a, b, g, layer);
    out->help = "difference of the share of these cells that B and A execute";
    out->formula = "executed share of B - executed share of A; -1: only A executes, 1: only B";
    out->record = "probe records of A and B";
    return 1;
}

/* clang-format off */
static const struct key compare_keys[] = {
    {"]d",         "next-difference", NULL, "next token whose decisions differ",   "next difference", 72, 0, 1, key_disagree},
    {"[d",         "prev-difference", NULL, "previous token whose decisions differ", NULL, 0, 0, -1, key_disagree},
    {"i",          "text",       "TEXT", "run both models on a text",         "text",     70, 0, 0, key_type},
    {"p",          "recorded",   NULL, "back to the recorded texts",          "recorded", 50, 0, 0, key_recorded},
    {"}",          "next-text",  NULL, "next text that both have recorded",   "other text", 40, 0, 1, key_text},
    {"{",          "prev-text",  NULL, "previous text that both have recorded", NULL,     0, 0, -1, key_text},
    {"m",          "maps",       NULL, "all maps that fit, A and B, or the difference", "maps", 60, KEY_VIEW_CHANGE, 0, key_maps},
    {"s",          "settings",   NULL, "list the settings that differ",       "settings", 66, 0, 0, key_settings},
    {"x",          "swap",       NULL, "exchange A and B",                    "swap",     36, 0, 0, key_swap},
    {"",           "compare",    "A B", "compare these runs, checkpoints, models or traces; without them the marked runs", NULL, 0, 0, 0, key_compare},
    {"w",          "width",      NULL, "columns per token: automatic, 4, 8 or 16", NULL,  0, KEY_VIEW_CHANGE, 0, key_width},
    {"o",          "flip",       NULL, "layer 0 at the top or the bottom",    NULL,       0, KEY_VIEW_CHANGE, 0, key_flip},
    {"h Left",     "left",       NULL, "previous token",                      NULL,       0, KEY_HIDDEN, CELLS_LEFT,       key_move},
    {"l Right",    "right",      NULL, "next token",                          NULL,       0, KEY_HIDDEN, CELLS_RIGHT,      key_move},
    {"k Up",       "up",         NULL, "layer above on the screen",           NULL,       0, KEY_HIDDEN, CELLS_UP,         key_move},
    {"j Down",     "down",       NULL, "layer below on the screen",           NULL,       0, KEY_HIDDEN, CELLS_DOWN,       key_move},
    {"PgUp C-u H", "page-left",  NULL, "previous page of tokens",             NULL,       0, KEY_HIDDEN, CELLS_PAGE_LEFT,  key_move},
    {"PgDn C-d L", "page-right", NULL, "next page of tokens",                 NULL,       0, KEY_HIDDEN, CELLS_PAGE_RIGHT, key_move},
    {"gg Home",    "first",      NULL, "first token",                         NULL,       0, KEY_HIDDEN, CELLS_FIRST,      key_move},
    {"G End",      "last",       NULL, "last token",                          NULL,       0, KEY_HIDDEN, CELLS_LAST,       key_move},
    {0},
};
static const struct setting compare_view_settings[] = {
    {"maps",   SETTING_INT, offsetof(struct compare, shown),          0, COMPARE_SHOWN - 1},
    {"wide",   SETTING_INT, offsetof(struct compare, diff.wide),      0, CELLS_WIDE_MAX},
    {"upward", SETTING_INT, offsetof(struct compare, diff.is_upward), 0, 1},
    {0},
};

const struct view_ops view_compare = {
    .name = "compare",  .title = "Compare",  .brief = 4,
    .summary = "Two models, checkpoints, methods or traces on one text: maps side by side, their difference, and its effect.",
    .keys = compare_keys,  .settings = compare_view_settings,  .state_size = sizeof(struct compare),  .shows_probes = 1,
    .open = compare_open,  .close = compare_close,  .draw = compare_draw,  .event = compare_event,
    .poll = compare_poll,  .fd = compare_fd,  .due = compare_due,
    .search = compare_search,  .copy = compare_copy,
    .subject = compare_subject,  .offers = compare_offers,
};
/* clang-format on */
