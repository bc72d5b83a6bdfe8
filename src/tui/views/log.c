/* Log: the events of the run and the messages of the workbench, newest last. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/utf8.h"
#include "tui/view.h"
#include "tui/widgets.h"

struct log {
    struct list list;
    int level;   /* lowest level shown */
    int shift;   /* cells that the texts are moved to the left */
    int over;    /* cells of the longest text on the screen beyond its right edge */
    int is_open; /* the entry under the cursor is shown in full */
    struct scroll full;
};

static const char *const level_name[] = {"debug", "information", "warning", "error"};

struct entry {
    double time;
    int level;
    int64_t step;
    const char *name, *text;
};

static int log_open(struct view *v, struct err *e)
{
    (void)e;
    ((struct log *)v->state)->list.follow_tail = 1;
    return 0;
}

/* Entry i of n of events and messages merged by time; both lists are already sorted. */
struct merge {
    struct view *v;
    const struct runview *run;
    size_t event, line, lines;
    int level;
};

static int merge_next(struct merge *m, struct entry *out)
{
    for (;;) {
        const struct run_event *ev =
            m->run && m->event < m->run->n_events ? &m->run->event[m->event] : NULL;
        const struct app_line *l = m->line < m->lines ? app_line(m->v->app, m->line) : NULL;
        if (!ev && !l)
            return 0;
        if (ev && (!l || ev->time <= l->time)) {
            *out = (struct entry){ev->time, ev->level, ev->step, ev->name ? ev->name : "",
                                  ev->text ? ev->text : ""};
            m->event++;
        } else {
            *out = (struct entry){l->time, (int)l->level, -1, "workbench", l->text};
            m->line++;
        }
        if (out->level >= m->level)
            return 1;
    }
}

static struct merge merge_begin(struct view *v)
{
    return (struct merge){.v = v,
                          .run = app_run(v->app),
                          .lines = app_lines(v->app),
                          .level = ((struct log *)v->state)->level};
}

static size_t count(struct view *v)
{
    struct merge m = merge_begin(v);
    struct entry e;
    size_t n = 0;
    while (merge_next(&m, &e))
        n++;
    return n;
}

static int level_of(const struct entry *e)
{
    return e->level < 0 || e->level > 3 ? 1 : e->level;
}

static void clock_text(struct view *v, double time, int has_date, char *out, size_t size)
{
    time_t t = time > 0 && time < 4e9 ? (time_t)time : 0;
    struct tm tm;
    out[0] = '\0';
    if (!t || !(app_is_scripted(v->app) ? gmtime_r(&t, &tm) : localtime_r(&t, &tm)))
        return;
    if (has_date)
        strftime(out, size, "%Y-%m-%d %H:%M:%S", &tm);
    else
        strftime(out, size, "%H:%M:%S", &tm);
}

/* The text without its first `shift` cells; marked where it goes on at the left.  Returns its cells
 * as shown. */
static int draw_text(struct area a, int y, int x, struct ink i, const char *text, int shift)
{
    struct str safe = {0};
    size_t at = 0;
    utf8_sanitise(&safe, text, strlen(text), -1, 0);
    const char *p = str_text(&safe);
    while (at < safe.len && utf8_cells(p, at) < shift)
        for (at++; at < safe.len && ((unsigned char)p[at] & 0xC0) == 0x80; at++) {
        }
    if (shift > 0 && x < a.cols)
        area_put(a, y, x - 1, area_rune(a, 0x2039, '<'), ink(ROLE_DIM));
    area_text(a, y, x, -1, i, p + at);
    int cells = utf8_cells(p, safe.len);
    str_release(&safe);
    return cells;
}

static void draw_entry(struct view *v, struct area a, int y, const struct entry *e)
{
    struct log *s = v->state;
    static const enum role role[] = {ROLE_DIM, ROLE_GOOD, ROLE_WARN, ROLE_BAD};
    int level = level_of(e), x = 1;
    char when[16];
    clock_text(v, e->time, 0, when, sizeof when);
    area_text(a, y, x, 8, ink(ROLE_DIM), when);
    x += 9;
    if (a.cols >= 60 && e->step >= 0)
        area_textf(a, y, x, 10, ink(ROLE_DIM), "%9lld", (long long)e->step);
    x += a.cols >= 60 ? 11 : 0;
    int name = area_text(a, y, x, a.cols >= 60 ? 16 : 12, ink(role[level]), e->name);
    x += (name > 12 ? name : 12) + 1;
    int cells = draw_text(a, y, x, ink(level >= 2 ? role[level] : ROLE_TEXT), e->text, s->shift),
        over = x + cells - a.cols;
    s->over = over > s->over ? over : s->over;
}

/* The whole entry above the list. */
static void draw_full(struct view *v, struct area whole, const struct entry *e)
{
    struct log *s = v->state;
    char when[32], title[96];
    struct str text = {0};
    clock_text(v, e->time, 1, when, sizeof when);
    if (when[0])
        str_addf(&text, "time   %s\n", when);
    if (e->step >= 0)
        str_addf(&text, "step   %lld\n", (long long)e->step);
    str_addf(&text, "level  %s\n\n", level_name[level_of(e)]);
    copy_add(&text, e->text);
    snprintf(title, sizeof title, "%.80s", e->name);
    int cols = whole.cols < 84 ? whole.cols - 4 : 80, rows = whole.rows < 14 ? whole.rows - 2 : 12;
    struct area a = popup_begin(whole, rows, cols, title);
    scroll_text(&s->full, area_sub(a, 0, 0, a.rows - (a.rows > 5), a.cols), str_text(&text),
                ink(ROLE_TEXT));
    if (a.rows > 5)
        area_text(a, a.rows - 1, 0, -1, ink(ROLE_HINT), "j k scroll   Enter or Esc closes");
    str_release(&text);
}

static void log_draw(struct view *v, struct area a)
{
    struct log *s = v->state;
    struct merge m = merge_begin(v);
    struct entry e, chosen = {.text = NULL};
    size_t n = count(v), i = 0;
    int has_bar = a.rows >= 2 && n > (size_t)a.rows;
    struct area text = area_sub(a, 0, 0, a.rows, a.cols - has_bar);
    list_fit(&s->list, n, a.rows);
    s->over = 0;
    if (n == 0) {
        area_text(a, a.rows / 2 - 1, 2, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), "No events");
        struct scroll lines = {0}, more = {0};
        int below = a.rows / 2 + 1;
        scroll_text(&lines, area_sub(a, below, 2, a.rows - below, a.cols - 2),
                    "Checkpoints, NaN values, alerts, changed settings and messages appear here.",
                    ink(ROLE_DIM));
        below += lines.lines;
        if (s->level > LOG_INFO)
            scroll_text(&more, area_sub(a, below, 2, a.rows - below, a.cols - 2),
                        s->level == LOG_WARN ? "Only warnings and errors are shown: v v shows all."
                                             : "Only errors are shown: v shows all.",
                        ink(ROLE_WARN));
        return;
    }
    for (; merge_next(&m, &e); i++) {
        int y = (int)(i - s->list.top);
        if (i < s->list.top || y >= a.rows)
            continue;
        draw_entry(v, text, y, &e);
        if (i == s->list.cursor)
            area_select(a, y, 0, a.cols);
        if (i == s->list.cursor)
            chosen = e;
    }
    scrollbar_draw(a, a.cols - 1, n, s->list.top, a.rows);
    if (s->is_open && chosen.text)
        draw_full(v, a, &chosen);
}

static void set_open(struct view *v, int is_open)
{
    struct log *s = v->state;
    s->is_open = is_open && s->list.n > 0;
    s->list.follow_tail &= !s->is_open; /* the entry stays while others arrive */
    s->full.top = 0;
    v->grabs = s->is_open ? GRAB_KEYS : GRAB_NONE;
    v->is_dirty = 1;
}

static int full_event(struct view *v, const struct event *ev)
{
    struct log *s = v->state;
    int is_press = ev->kind == EVENT_MOUSE && ev->action == MOUSE_PRESS;
    if (scroll_event(&s->full, ev))
        return 1;
    if (is_press || (ev->kind == EVENT_KEY &&
                     (ev->key == KEYCODE_ENTER || ev->key == KEYCODE_ESC || ev->key == 'q'))) {
        set_open(v, 0);
        return 1;
    }
    return ev->kind == EVENT_MOUSE;
}

static int log_event(struct view *v, const struct event *ev)
{
    struct log *s = v->state;
    if (s->is_open)
        return full_event(v, ev);
    if (ev->kind == EVENT_MOUSE && ev->action == MOUSE_PRESS &&
        s->list.top + (size_t)ev->y < s->list.n) {
        s->list.follow_tail = 0;
        s->list.cursor = s->list.top + (size_t)ev->y;
        if (ev->is_double)
            set_open(v, 1);
        return 1;
    }
    int is_taken = list_event(&s->list, ev);
    if (is_taken && s->list.n && s->list.cursor == s->list.n - 1)
        s->list.follow_tail = 1;
    return is_taken;
}

static int log_search(struct view *v, const char *text, int direction)
{
    struct log *s = v->state;
    struct merge m = merge_begin(v);
    struct entry e;
    long best = -1, wrap = -1, i = 0, at = (long)s->list.cursor;
    for (; merge_next(&m, &e); i++) {
        if (!strstr(e.text, text) && !strstr(e.name, text))
            continue;
        if (direction > 0 ? i > at && best < 0 : i < at)
            best = i;
        if (direction > 0 ? wrap < 0 : 1)
            wrap = i;
    }
    best = best >= 0 ? best : wrap;
    if (best < 0)
        return 0;
    s->list.follow_tail = 0;
    s->list.cursor = (size_t)best;
    return 1;
}

static void log_copy(struct view *v, struct str *out)
{
    struct merge m = merge_begin(v);
    struct entry e;
    size_t at = ((struct log *)v->state)->list.cursor;
    for (size_t i = 0; merge_next(&m, &e); i++)
        if (i == at) {
            copy_add(out, e.name);
            str_add(out, ": ");
            copy_add(out, e.text);
        }
}

static void key_level(struct view *v, const struct key *k, const char *args)
{
    struct log *s = v->state;
    static const char *const name[] = {"everything", "information", "warnings", "errors"};
    (void)k, (void)args;
    s->level = (s->level + 1) % 4;
    app_notify(v->app, LOG_INFO, "shown: %s%s", name[s->level], s->level ? " and worse" : "");
}

static void key_ends(struct view *v, const struct key *k, const char *args)
{
    struct log *s = v->state;
    (void)args;
    list_end(&s->list, k->value);
    s->list.follow_tail = k->value;
}

static void key_open(struct view *v, const struct key *k, const char *args)
{
    (void)k, (void)args;
    set_open(v, 1);
}

static void key_shift(struct view *v, const struct key *k, const char *args)
{
    struct log *s = v->state;
    (void)args;
    int most = s->over > 0 ? (s->over + 15) / 16 * 16 : 0; /* not past the end of the longest */
    s->shift += k->value;
    s->shift = s->shift < 0 ? 0 : s->shift > most ? most : s->shift;
    v->is_dirty = 1;
}

/* clang-format off */
static const struct key log_keys[] = {
    {"v",      "level", NULL, "lowest level shown",                     "level",  60, KEY_VIEW_CHANGE, 0, key_level},
    {"Enter",  "entry", NULL, "show the whole entry, wrapped",          "entry",  62, 0, 0, key_open},
    {"l Right", "right", NULL, "the rest of long lines",                NULL,     0, KEY_HIDDEN, 16, key_shift},
    {"h Left", "left",  NULL, "back to their beginning",                NULL,     0, KEY_HIDDEN, -16, key_shift},
    {"gg",     "first", NULL, "oldest",                                 NULL,     0, KEY_HIDDEN, 0, key_ends},
    {"G",      "last",  NULL, "newest, and follow",                     "follow", 50, 0, 1, key_ends},
    {0},
};
static const struct setting log_settings[] = {
    {"level", SETTING_INT, offsetof(struct log, level), 0, 3},
    {0},
};

const struct view_ops view_log = {
    .name = "log",  .title = "Log",
    .summary = "Events of the run and messages of the workbench, newest last.",
    .keys = log_keys,  .settings = log_settings,  .state_size = sizeof(struct log),
    .open = log_open,  .draw = log_draw,  .event = log_event,  .search = log_search,  .copy = log_copy,
};
/* clang-format on */
