/* Panes and their views: showing, splitting, and dispatch of events. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tui/appstate.h"

static int registry_index(const char *name)
{
    for (int i = 0; view_registry[i]; i++)
        if (strcmp(view_registry[i]->name, name) == 0)
            return i;
    return -1;
}

const struct view_ops *view_find(const char *name)
{
    int i = registry_index(name);
    return i < 0 ? NULL : view_registry[i];
}

static struct view *view_new(struct app *app, const struct view_ops *ops)
{
    struct view *v = mem_alloc(1, sizeof *v);
    struct err e = {0};
    if (!v)
        return NULL;
    v->ops = ops;
    v->app = app;
    v->state = mem_alloc(1, ops->state_size + 1);
    v->undo = mem_alloc(1, sizeof *v->undo);
    int rc = v->state && v->undo ? 0 : err_set(&e, DS_EMEM, "view %s: out of memory", ops->name);
    if (rc == 0 && ops->open)
        rc = ops->open(v, &e);
    if (rc < 0) {
        app_notify(app, LOG_ERROR, "%s", e.text);
        mem_free(v->undo);
        mem_free(v->state);
        mem_free(v);
        return NULL;
    }
    view_settings_apply(v);
    return v;
}

static void view_free(struct view *v)
{
    if (!v)
        return;
    if (v->ops->close)
        v->ops->close(v);
    mem_free(v->undo);
    mem_free(v->state);
    mem_free(v);
}

static struct view *view_of(struct app *app, struct pane *p)
{
    struct view **slot = &p->view[p->current];
    if (!*slot)
        *slot = view_new(app, view_registry[p->current]);
    return *slot;
}

struct view *app_focused_view(struct app *app)
{
    return view_of(app, &app->pane[app->focus]);
}

const struct view_ops *app_focused(const struct app *app)
{
    return view_registry[app->pane[app->focus].current];
}

void app_show(struct app *app, const char *view_name)
{
    struct pane *p = &app->pane[app->focus];
    int i = registry_index(view_name);
    if (i < 0) {
        app_notify(app, LOG_WARN, "unknown view \"%s\"", view_name);
        return;
    }
    if (i == p->current)
        return;
    if (p->backs == APP_BACK_MAX) {
        memmove(p->back, p->back + 1, (APP_BACK_MAX - 1) * sizeof *p->back);
        p->backs--;
    }
    p->back[p->backs++] = p->current;
    p->current = i;
    app->n_pressed = 0;
    app->is_dirty = 1;
}

void app_back(struct app *app)
{
    struct pane *p = &app->pane[app->focus];
    if (app->is_zoomed && app->panes > 1)
        app->is_zoomed = 0;
    else if (p->backs > 0)
        p->current = p->back[--p->backs];
    app->is_dirty = 1;
}

/* Cycles through one, two and four panes; a new pane starts with the view of the focused one. */
void app_split(struct app *app)
{
    int before = app->panes;
    app->panes = before == 1 ? 2 : before == 2 ? 4 : 1;
    for (int i = before; i < app->panes; i++)
        app->pane[i].current = app->pane[app->focus].current;
    if (app->focus >= app->panes) {
        app->pane[0].current = app->pane[app->focus].current;
        app->focus = 0;
    }
    app->is_zoomed = 0;
    app->is_dirty = 1;
}

void app_views_run_changed(struct app *app)
{
    for (int p = 0; p < APP_PANES_MAX; p++)
        for (int k = 0; k < APP_VIEWS_MAX; k++)
            if (app->pane[p].view[k] && app->pane[p].view[k]->ops->run_changed)
                app->pane[p].view[k]->ops->run_changed(app->pane[p].view[k]);
}

int app_poll_views(struct app *app)
{
    int changed = 0;
    for (int p = 0; p < app->panes; p++) {
        struct view *v = view_of(app, &app->pane[p]);
        if (v && v->ops->poll)
            changed |= v->ops->poll(v);
        if (v && v->is_dirty)
            changed = 1;
        for (int k = 0; view_registry[k]; k++) {
            struct view *hidden = k == app->pane[p].current ? NULL : app->pane[p].view[k];
            if (hidden && hidden->ops->background)
                hidden->ops->background(hidden);
        }
    }
    return changed;
}

double app_views_due(const struct app *app)
{
    double due = HUGE_VAL;
    for (int p = 0; p < app->panes; p++) {
        struct view *v = app->pane[p].view[app->pane[p].current];
        double own = v && v->ops->due ? v->ops->due(v) : HUGE_VAL;
        due = own < due ? own : due;
    }
    return due;
}

void app_close_views(struct app *app)
{
    for (int p = 0; p < APP_PANES_MAX; p++)
        for (int k = 0; k < APP_VIEWS_MAX; k++) {
            view_free(app->pane[p].view[k]);
            app->pane[p].view[k] = NULL;
        }
}

/* ---- drawing ---- */

static void draw_pane(struct app *app, int index, struct area a, int has_title)
{
    struct pane *p = &app->pane[index];
    struct view *v = view_of(app, p);
    int is_focused = index == app->focus;
    if (has_title && a.rows > 3) {
        struct ink k =
            is_focused ? ink_attr(ink(ROLE_TITLE), ATTR_BOLD | ATTR_UNDERLINE) : ink(ROLE_DIM);
        area_text(a, 0, 1, a.cols - 1, k, view_registry[p->current]->title);
        a = area_sub(a, 1, 0, a.rows - 1, a.cols);
    }
    p->area = a;
    if (!v || a.rows < 1 || a.cols < 1)
        return;
    v->rows = a.rows;
    v->cols = a.cols;
    v->has_focus = is_focused;
    v->is_dirty = 0;
    if (v->ops->draw)
        v->ops->draw(v, a);
}

void app_draw_panes(struct app *app, struct area a)
{
    if (app->panes == 1 || app->is_zoomed) {
        for (int i = 0; i < app->panes; i++)
            app->pane[i].area.rows = 0;
        draw_pane(app, app->focus, a, 0);
        return;
    }
    int across = a.cols >= 60 ? 2 : 1, down = app->panes / across;
    int cols = (a.cols - (across - 1)) / across, rows = a.rows / down;
    for (int i = 0; i < app->panes; i++) {
        int y = i / across * rows, x = i % across * (cols + 1);
        int height = i / across == down - 1 ? a.rows - y : rows,
            width = i % across == across - 1 ? a.cols - x : cols;
        draw_pane(app, i, area_sub(a, y, x, height, width), 1);
    }
    if (across == 2)
        area_vline(a, 0, cols, a.rows, ink(ROLE_BORDER));
}

/* ---- events ---- */

void app_press(struct app *app, const struct key *k, const char *args)
{
    struct view *v = app_focused_view(app);
    if (!v)
        return;
    if ((k->flags & KEY_MUTATES) && app->opt.readonly) {
        app_notify(app, LOG_WARN, "read-only mode: %s is disabled", k->command);
        return;
    }
    if (k->flags & KEY_VIEW_CHANGE)
        view_undo_mark(v);
    k->fn(v, k, args);
    app->is_dirty = 1;
}

void app_press_command(struct app *app, const char *command, const char *args)
{
    struct view *v = app_focused_view(app);
    const struct key *k = v ? keys_command(v->ops->keys, command, strlen(command)) : NULL;
    if (k)
        app_press(app, k, args);
}

static int send_to_view(struct view *v, const struct event *ev)
{
    int is_taken = v->ops->event ? v->ops->event(v, ev) : 0;
    v->app->is_dirty |= is_taken;
    return is_taken;
}

/* Tries the rows of the view, its handler, then the global rows; incomplete sequences wait. */
static void key_event(struct app *app, struct view *v, const struct event *ev)
{
    int prefix_view = 0, prefix_global = 0;
    if (v->grabs && send_to_view(v, ev))
        return;
    if (ev->key == KEYCODE_ESC && app->n_pressed) {
        app->n_pressed = 0;
        return;
    }
    app->pressed[app->n_pressed++] = ev->key;
    const struct key *k = keys_match(v->ops->keys, app->pressed, app->n_pressed, &prefix_view);
    const struct key *g = keys_match(keys_global, app->pressed, app->n_pressed, &prefix_global);
    if (!k && (prefix_view || prefix_global) && app->n_pressed < KEYS_PENDING_MAX)
        return;
    size_t n = app->n_pressed;
    app->n_pressed = 0;
    if (k)
        app_press(app, k, NULL);
    else if (n == 1 && send_to_view(v, ev))
        return;
    else if (g)
        app_press(app, g, NULL);
    else if (n > 1)
        key_event(app, v, ev); /* not a sequence: handle the last key by itself */
}

static int zone_event(struct app *app, const struct event *ev)
{
    if (ev->action != MOUSE_PRESS)
        return 0;
    for (int i = 0; i < app->zones; i++) {
        const struct zone *z = &app->zone[i];
        if (ev->y != z->y || ev->x < z->x0 || ev->x >= z->x1)
            continue;
        if (z->key)
            app_press(app, z->key, NULL);
        else if (z->view)
            app_show(app, z->view);
        else
            app_select_run(app, (size_t)z->run);
        return 1;
    }
    return 0;
}

static void mouse_event(struct app *app, const struct event *ev)
{
    if (zone_event(app, ev))
        return;
    for (int i = 0; i < app->panes; i++) {
        struct pane *p = &app->pane[i];
        if (p->area.rows == 0 || !area_contains(p->area, ev->y, ev->x))
            continue;
        if (ev->action == MOUSE_PRESS && app->focus != i) {
            app->focus = i;
            app->n_pressed = 0;
            app->is_dirty = 1;
        }
        struct event inner = *ev;
        inner.y -= p->area.y;
        inner.x -= p->area.x;
        struct view *v = view_of(app, p);
        if (v)
            send_to_view(v, &inner);
        return;
    }
}

static void confirm_event(struct app *app, const struct event *ev)
{
    int is_yes = ev->kind == EVENT_KEY && (ev->key == 'y' || ev->key == 'Y');
    if (ev->kind == EVENT_MOUSE) { /* on the y or the n of "y / n" */
        int x = ev->x - app->confirm.x;
        if (ev->action != MOUSE_PRESS || ev->y != app->confirm.y || (x != 0 && x != 4))
            return;
        is_yes = x == 0;
    }
    app->confirm.is_active = 0;
    app->is_dirty = 1;
    if (is_yes)
        app->confirm.done(app->confirm.ctx);
}

static void help_event(struct app *app, const struct event *ev)
{
    app->is_dirty = 1;
    if (scroll_event(&app->help_scroll, ev))
        return;
    if (app->has_help && ev->kind == EVENT_MOUSE && ev->action == MOUSE_PRESS) {
        const struct key *k = app_help_row(app, ev->y, ev->x);
        app->has_help = !k && area_contains(app->help_rows, ev->y, ev->x);
        if (k)
            app_press(app, k, NULL);
        return;
    }
    if (ev->kind == EVENT_KEY || (ev->kind == EVENT_MOUSE && ev->action == MOUSE_PRESS))
        app->has_help = app->has_glyph_test = app->has_explain = 0;
}

static void take(struct app *app, const struct event *ev)
{
    struct view *v = app_focused_view(app);
    if (ev->kind == EVENT_KEY && ev->key == (KEYCODE_CTRL | 'c')) {
        app->must_quit = 1;
        return;
    }
    if (app->confirm.is_active)
        confirm_event(app, ev);
    else if (app->picker.is_open)
        app_picker_event(app, ev);
    else if (app->has_help || app->has_glyph_test || app->has_explain)
        help_event(app, ev);
    else if (app->prompt.is_active && app_prompt_event(app, ev))
        app->is_dirty = 1;
    else if (ev->kind == EVENT_MOUSE)
        mouse_event(app, ev);
    else if (v && ev->kind == EVENT_KEY)
        key_event(app, v, ev);
    else if (v && ev->kind == EVENT_PASTE)
        send_to_view(v, ev);
}

/* Who presses a key in a view of a run looks at it. */
void app_event(struct app *app, const struct event *ev)
{
    take(app, ev);
    if (app->runs && app->alerts.n && strcmp(app_focused(app)->name, "home") != 0)
        app_alerts_seen(app, app->run[app->current].path);
}
