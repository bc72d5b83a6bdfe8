/* Home's filter line: typed with completion, checked as it is typed, errors with their column. */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "tui/home.h"

void home_filter_apply(struct view *v)
{
    struct home *h = v->state;
    struct runquery q;
    struct err e = {0};
    static const char lead[] = "filter: ";
    const char *text = str_text(&h->filter.text);
    if (h->is_filtering && h->filter.text.len && strchr("=!<>~\"", text[h->filter.text.len - 1])) {
        h->wrong[0] = '\0'; /* a value is to follow */
        v->is_dirty = 1;
        return;
    }
    int rc = runquery_parse(&q, text, &e);
    if (rc == 0)
        rc = runquery_check(&q, &h->index, &e);
    h->wrong[0] = '\0';
    if (rc < 0) /* the rows stay those of the newest filter that held */
        str_copy(h->wrong, sizeof h->wrong,
                 strncmp(e.text, lead, sizeof lead - 1) == 0 ? e.text + sizeof lead - 1 : e.text);
    else
        h->query = q;
    home_rebuild(v);
}

void home_filter_begin(struct view *v)
{
    struct home *h = v->state;
    h->is_filtering = 1;
    h->candidate = -1;
    v->grabs = GRAB_TEXT;
    v->is_dirty = 1;
}

static void leave(struct view *v, int keep)
{
    struct home *h = v->state;
    if (!keep || h->wrong[0])
        field_set(&h->filter, "");
    h->is_filtering = 0;
    v->grabs = GRAB_NONE;
    home_filter_apply(v);
}

/* Tab replaces the last word by the next candidate. */
static void complete(struct view *v, int by)
{
    struct home *h = v->state;
    char **word = NULL;
    size_t n = 0, from = 0;
    struct str whole = {0};
    if (h->candidate < 0)
        str_copy(h->typed, sizeof h->typed, str_text(&h->filter.text));
    if (runquery_complete(&word, &n, &from, h->typed, &h->index, app_now(v->app), NULL) < 0)
        return;
    if (n > 0) {
        int count = (int)n;
        h->candidate =
            h->candidate < 0 ? (by > 0 ? 0 : count - 1) : (h->candidate + by + count) % count;
        str_add_bytes(&whole, h->typed, from);
        str_add(&whole, word[h->candidate]);
        field_set(&h->filter, str_text(&whole));
        if (n == 1) /* the only one: go on after it */
            h->candidate = -1;
    }
    str_release(&whole);
    fs_list_free(word, n);
}

int home_filter_event(struct view *v, const struct event *ev)
{
    struct home *h = v->state;
    if (ev->kind == EVENT_MOUSE)
        return 0;
    if (ev->kind == EVENT_KEY && (ev->key == KEYCODE_TAB || ev->key == KEYCODE_BACKTAB)) {
        complete(v, ev->key == KEYCODE_TAB ? 1 : -1);
    } else if (ev->kind == EVENT_KEY && ev->key == KEYCODE_ENTER) {
        if (!h->wrong[0]) /* an error stays on the line until it is corrected */
            leave(v, 1);
        return 1;
    } else if (ev->kind == EVENT_KEY && ev->key == KEYCODE_ESC) {
        leave(v, 0);
        return 1;
    } else if (ev->kind == EVENT_KEY && (ev->key == KEYCODE_UP || ev->key == KEYCODE_DOWN)) {
        return list_event(&h->list, ev);
    } else if (field_event(&h->filter, ev)) {
        h->candidate = -1;
    } else {
        return 1;
    }
    home_filter_apply(v);
    return 1;
}

void home_filter_draw(struct view *v, struct area line)
{
    struct home *h = v->state;
    char count[40];
    size_t shown = 0;
    for (size_t i = 0; i < h->items; i++)
        shown += h->item[i].kind == HOME_RUN;
    int x = 2 + area_text(line, 0, 1, -1, ink(ROLE_HINT_KEY), "filter");
    snprintf(count, sizeof count, "%zu of %zu", shown, h->index.n);
    int wrong = (int)strlen(h->wrong), end = line.cols - (int)strlen(count) - 2;
    if (wrong)
        end = wrong + x + 14 < line.cols ? line.cols - wrong - 2 : x + 12;
    field_draw(&h->filter, line, 0, x, end - x - 1, h->is_filtering && v->has_focus);
    if (wrong)
        area_text(line, 0, end + 1, -1, ink(ROLE_BAD), h->wrong);
    else
        area_text(line, 0, end + 1, -1, ink(ROLE_DIM), count);
}
