/* Log: the events of the run and the messages of the workbench, newest last. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tui/view.h"
#include "tui/widgets.h"

struct log {
    struct list list;
    int level; /* lowest level shown */
};

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

static void draw_entry(struct view *v, struct area a, int y, const struct entry *e)
{
    static const enum role role[] = {ROLE_DIM, ROLE_GOOD, ROLE_WARN, ROLE_BAD};
    int level = e->level < 0 || e->level > 3 ? 1 : e->level, x = 1;
    char when[16] = "        ";
    time_t t = e->time > 0 && e->time < 4e9 ? (time_t)e->time : 0;
    struct tm tm;
    if (t && !app_is_scripted(v->app) && localtime_r(&t, &tm))
        strftime(when, sizeof when, "%H:%M:%S", &tm);
    else if (t && gmtime_r(&t, &tm))
        strftime(when, sizeof when, "%H:%M:%S", &tm);
    x += area_text(a, y, x, 8, ink(ROLE_DIM), when) + 1;
    if (a.cols >= 60 && e->step >= 0)
        area_textf(a, y, x, 10, ink(ROLE_DIM), "%9lld", (long long)e->step);
    x += a.cols >= 60 ? 11 : 0;
    area_text(a, y, x, 12, ink(role[level]), e->name);
    area_text(a, y, x + 13, -1, ink(level >= 2 ? role[level] : ROLE_TEXT), e->text);
}

static void log_draw(struct view *v, struct area a)
{
    struct log *s = v->state;
    struct merge m = merge_begin(v);
    struct entry e;
    size_t n = count(v), i = 0;
    list_fit(&s->list, n, a.rows);
    if (n == 0) {
        area_text(a, a.rows / 2 - 1, 2, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), "No events");
        area_text(a, a.rows / 2 + 1, 2, -1, ink(ROLE_DIM),
                  "Checkpoints, NaN values, alarms, changed settings and messages appear here.");
        if (s->level > LOG_INFO)
            area_text(a, a.rows / 2 + 2, 2, -1, ink(ROLE_WARN),
                      s->level == LOG_WARN ? "Only warnings and errors are shown: v shows all."
                                           : "Only errors are shown: v shows all.");
        return;
    }
    for (; merge_next(&m, &e); i++) {
        int y = (int)(i - s->list.top);
        if (i < s->list.top || y >= a.rows)
            continue;
        draw_entry(v, a, y, &e);
        if (i == s->list.cursor)
            area_select(a, y, 0, a.cols);
    }
    scrollbar_draw(a, a.cols - 1, n, s->list.top, a.rows);
}

static int log_event(struct view *v, const struct event *ev)
{
    struct log *s = v->state;
    if (ev->kind == EVENT_MOUSE && ev->action == MOUSE_PRESS &&
        s->list.top + (size_t)ev->y < s->list.n) {
        s->list.follow_tail = 0;
        s->list.cursor = s->list.top + (size_t)ev->y;
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

/* clang-format off */
static const struct key log_keys[] = {
    {"v",      "level", NULL, "lowest level shown",                     "level",  60, KEY_VIEW_CHANGE, 0, key_level},
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
