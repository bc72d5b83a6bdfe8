/* Help: the purpose and the keys of every view, generated from the tables. */
#include <string.h>

#include "tui/view.h"
#include "tui/widgets.h"

struct help {
    struct scroll scroll;
};

static void add_table(struct str *out, const char *title, const char *summary,
                      const struct key *table)
{
    str_addf(out, "%s\n%s%s", title, summary ? summary : "", summary ? "\n" : "");
    for (const struct key *k = table; k && k->command; k++)
        str_addf(out, "  %-12s :%-16s %s\n", k->keys, k->command, k->help);
    str_add_char(out, '\n');
}

static void text_of(struct str *out)
{
    str_add(
        out,
        "Shows what every token costs in every layer.\n"
        "Every key has a command, typed after : and completed by Tab. Hold Shift to select text "
        "with the mouse in most terminals. q quits the workbench; training continues.\n\n");
    add_table(out, "ALL VIEWS", NULL, keys_global);
    for (size_t i = 0; view_registry[i]; i++)
        add_table(out, view_registry[i]->title, view_registry[i]->summary, view_registry[i]->keys);
}

static void help_draw(struct view *v, struct area a)
{
    struct help *h = v->state;
    struct str text = {0};
    text_of(&text);
    scroll_text(&h->scroll, area_sub(a, 0, 1, a.rows, a.cols - 1), str_text(&text), ink(ROLE_TEXT));
    str_release(&text);
}

static int help_event(struct view *v, const struct event *ev)
{
    return scroll_event(&((struct help *)v->state)->scroll, ev);
}

static void key_ends(struct view *v, const struct key *k, const char *args)
{
    struct help *h = v->state;
    (void)args;
    h->scroll.top = k->value ? h->scroll.lines : 0;
}

/* Scrolls the line of the next match to the top. */
static int help_search(struct view *v, const char *text, int direction)
{
    struct help *h = v->state;
    struct str all = {0};
    int best = -1, wrap = -1;
    text_of(&all);
    for (const char *hit = str_text(&all); (hit = strstr(hit, text)); hit++) {
        int line = scroll_line_of(&h->scroll, str_text(&all), hit);
        if (direction > 0 ? line > h->scroll.top && best < 0 : line < h->scroll.top)
            best = line;
        if (direction < 0 || wrap < 0)
            wrap = line;
    }
    best = best >= 0 ? best : wrap;
    str_release(&all);
    if (best >= 0)
        h->scroll.top = best;
    return best >= 0;
}

/* clang-format off */
static const struct key help_keys[] = {
    {"gg", "first", NULL, "top",    NULL, 0, KEY_HIDDEN, 0, key_ends},
    {"G",  "last",  NULL, "bottom", NULL, 0, KEY_HIDDEN, 1, key_ends},
    {0},
};

const struct view_ops view_help = {
    .name = "manual",  .title = "Help",
    .summary = "Every key and command of every view.",
    .keys = help_keys,  .state_size = sizeof(struct help),
    .draw = help_draw,  .event = help_event,  .search = help_search,
};
/* clang-format on */
