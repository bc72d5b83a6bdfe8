/* The picker of views: all of the registry, filtered as the user types; Enter opens one. */
#include <ctype.h>
#include <string.h>

#include "tui/appstate.h"

static int has_text(const char *text, const char *part)
{
    for (;; text++) {
        size_t n = 0;
        while (part[n] && tolower((unsigned char)text[n]) == tolower((unsigned char)part[n]))
            n++;
        if (!part[n])
            return 1;
        if (!*text)
            return 0;
    }
}

/* The indexes of the views whose title, name or summary holds the filter; those named so first. */
static size_t matches(const struct app *app, int out[APP_VIEWS_MAX])
{
    const char *filter = str_text(&app->picker.filter.text);
    size_t n = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; view_registry[i] && n < APP_VIEWS_MAX; i++) {
            const struct view_ops *ops = view_registry[i];
            int is_named = has_text(ops->title, filter) || has_text(ops->name, filter);
            if (pass == 0 ? is_named : !is_named && has_text(ops->summary, filter))
                out[n++] = i;
        }
    return n;
}

void app_picker_open(struct app *app)
{
    struct picker *p = &app->picker;
    p->is_open = 1;
    p->list = (struct list){0};
    field_set(&p->filter, "");
    app->is_dirty = 1;
}

void app_picker_release(struct app *app)
{
    field_release(&app->picker.filter);
}

static void open_row(struct app *app, size_t row)
{
    int view[APP_VIEWS_MAX];
    if (row >= matches(app, view))
        return;
    app->picker.is_open = 0;
    app_show(app, view_registry[view[row]]->name);
}

static void press(struct app *app, const struct event *ev)
{
    struct picker *p = &app->picker;
    if (area_contains(p->rows, ev->y, ev->x))
        open_row(app, p->list.top + (size_t)(ev->y - p->rows.y));
    else
        p->is_open = 0;
}

void app_picker_event(struct app *app, const struct event *ev)
{
    struct picker *p = &app->picker;
    app->is_dirty = 1;
    if (ev->kind == EVENT_MOUSE && ev->action == MOUSE_PRESS) {
        press(app, ev);
        return;
    }
    if (ev->kind == EVENT_KEY && ev->key == KEYCODE_ESC) {
        p->is_open = 0;
        return;
    }
    if (ev->kind == EVENT_KEY && ev->key == KEYCODE_ENTER) {
        open_row(app, p->list.cursor);
        return;
    }
    /* letters and C-u are text of the filter; the other keys of a list move in it */
    int is_list_key = ev->kind == EVENT_MOUSE ||
                      (ev->kind == EVENT_KEY && ev->key >= KEYCODE_UP && ev->key <= KEYCODE_PGDN &&
                       ev->key != KEYCODE_LEFT && ev->key != KEYCODE_RIGHT);
    if (is_list_key && list_event(&p->list, ev))
        return;
    if (ev->kind == EVENT_KEY && (ev->key == KEYCODE_TAB || ev->key == KEYCODE_BACKTAB)) {
        list_move(&p->list, ev->key == KEYCODE_TAB ? 1 : -1);
        return;
    }
    if (field_event(&p->filter, ev))
        list_end(&p->list, 0);
}

void app_picker_draw(struct app *app, struct area a)
{
    struct picker *p = &app->picker;
    int view[APP_VIEWS_MAX];
    size_t all = 0, n = matches(app, view);
    while (view_registry[all])
        all++;
    struct area box = popup_begin(a, (int)all + 2, a.cols > 100 ? 90 : a.cols - 8, "views");
    int x = area_text(box, 0, 0, -1, ink(ROLE_DIM), "filter") + 1;
    field_draw(&p->filter, box, 0, x, box.cols - x, 1);
    p->rows = area_sub(box, 2, 0, box.rows - 2, box.cols);
    list_fit(&p->list, n, p->rows.rows);
    if (n == 0)
        area_text(p->rows, 0, 2, -1, ink(ROLE_DIM), "no view matches");
    for (size_t i = p->list.top; i < n && (int)(i - p->list.top) < p->rows.rows; i++) {
        const struct view_ops *ops = view_registry[view[i]];
        int y = (int)(i - p->list.top);
        if (view[i] < APP_NUMBER_KEYS)
            area_textf(p->rows, y, 2, -1, ink(ROLE_HINT_KEY), "%d", view[i] + 1);
        area_text(p->rows, y, 4, 12, ink_attr(ink(ROLE_TEXT), ATTR_BOLD), ops->title);
        area_text(p->rows, y, 17, p->rows.cols - 17, ink(ROLE_DIM), ops->summary);
        if (i == p->list.cursor)
            area_select(p->rows, y, 0, p->rows.cols);
    }
}
