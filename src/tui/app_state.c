/* Saved state of the views: settings per run as text under $XDG_STATE_HOME, undo as snapshots. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/mem.h"
#include "tui/appstate.h"

/* ---- memory: key = value ---- */

static size_t find(const struct app *app, const char *key)
{
    size_t i = 0;
    while (i < app->memories && strcmp(app->memory_key[i], key) != 0)
        i++;
    return i;
}

const char *app_recall(struct app *app, const char *key)
{
    size_t i = find(app, key);
    return i < app->memories ? app->memory_value[i] : NULL;
}

void app_remember(struct app *app, const char *key, const char *value)
{
    size_t i = find(app, key);
    char *copy = mem_strdup(value);
    if (!copy)
        return;
    if (i < app->memories) {
        mem_free(app->memory_value[i]);
        app->memory_value[i] = copy;
        return;
    }
    char *name = i < APP_MEMORY_MAX ? mem_strdup(key) : NULL;
    if (!name) {
        mem_free(copy);
        return;
    }
    app->memory_key[i] = name;
    app->memory_value[i] = copy;
    app->memories++;
}

void app_memory_release(struct app *app)
{
    for (size_t i = 0; i < app->memories; i++) {
        mem_free(app->memory_key[i]);
        mem_free(app->memory_value[i]);
    }
    app->memories = 0;
}

/* ---- the file ---- */

/* One line per value: newlines are written as \n, backslashes are doubled. */
static void add_escaped(struct str *out, const char *value)
{
    for (; *value; value++)
        if (*value == '\n' || *value == '\\')
            str_add(out, *value == '\n' ? "\\n" : "\\\\");
        else
            str_add_char(out, (unsigned char)*value < 0x20 ? ' ' : *value);
}

static void unescape(char *value)
{
    char *to = value;
    for (; *value; value++) {
        if (*value == '\\' && (value[1] == 'n' || value[1] == '\\')) {
            *to++ = *++value == 'n' ? '\n' : '\\';
            continue;
        }
        *to++ = *value;
    }
    *to = '\0';
}

static void parse(struct app *app, char *text)
{
    for (char *line = text; line && *line;) {
        char *end = strchr(line, '\n'), *equals;
        if (end)
            *end = '\0';
        equals = strstr(line, " = ");
        if (equals && line[0] != '#') {
            *equals = '\0';
            unescape(equals + 3);
            app_remember(app, line, equals + 3);
        }
        line = end ? end + 1 : NULL;
    }
}

void app_state_load(struct app *app, const char *run_path)
{
    char dir[900], real[4096];
    struct str text = {0};
    app->state_path[0] = '\0';
    if (app_is_scripted(app) || strcmp(run_path, "-") == 0 || !fs_state_dir(dir, sizeof dir))
        return;
    const char *key = realpath(run_path, real) ? real : run_path;
    snprintf(app->state_path, sizeof app->state_path, "%s/%016llx.view", dir,
             (unsigned long long)hash64(key, strlen(key), 0));
    struct err ignored = {0};
    if (fs_exists(app->state_path) &&
        fs_read_file(&text, app->state_path, 1 << 16, &ignored) == 0 && text.p)
        parse(app, text.p);
    str_release(&text);
}

static void keep_pane(struct pane *p)
{
    for (int k = 0; k < APP_VIEWS_MAX; k++)
        if (p->view[k])
            view_settings_keep(p->view[k]);
}

void app_state_save(struct app *app)
{
    char dir[900];
    struct str text = {0};
    struct err e = {0};
    if (!app->state_path[0] || !fs_state_dir(dir, sizeof dir))
        return;
    for (int pass = 0; pass < 3; pass++) /* of hidden panes, of those shown, of that in use */
        for (int p = 0; p < APP_PANES_MAX; p++)
            if (pass == (p >= app->panes ? 0 : p != app->focus ? 1 : 2))
                keep_pane(&app->pane[p]);
    const struct view_ops *ops = app_focused(app);
    if (ops)
        app_remember(app, "app.view", ops->name);
    str_add(&text, "# depthscope: view settings of this run\n");
    for (size_t i = 0; i < app->memories; i++) {
        str_addf(&text, "%s = ", app->memory_key[i]);
        add_escaped(&text, app->memory_value[i]);
        str_add_char(&text, '\n');
    }
    /* errors are ignored: a read-only home directory must not produce a warning at exit */
    if (!text.failed && fs_mkdirs(dir, &e) == 0 &&
        fs_write_file(app->state_path, text.p, text.len, &e) < 0)
        app->state_path[0] = '\0';
    str_release(&text);
}

/* ---- settings ---- */

double view_setting_get(const struct view *v, const struct setting *s)
{
    const char *at = (const char *)v->state + s->offset;
    int i;
    double d;
    if (s->type == SETTING_INT) {
        memcpy(&i, at, sizeof i);
        return i;
    }
    memcpy(&d, at, sizeof d);
    return d;
}

void view_setting_set(struct view *v, const struct setting *s, double x)
{
    char *at = (char *)v->state + s->offset;
    if (!(x >= s->min && x <= s->max))
        return;
    int i = (int)x;
    if (s->type == SETTING_INT)
        memcpy(at, &i, sizeof i);
    else
        memcpy(at, &x, sizeof x);
}

void view_settings_apply(struct view *v)
{
    for (const struct setting *s = v->ops->settings; s && s->name; s++) {
        char key[96], *end;
        snprintf(key, sizeof key, "%s.%s", v->ops->name, s->name);
        const char *text = app_recall(v->app, key);
        double x = text ? strtod(text, &end) : (double)NAN;
        if (text && end != text && isfinite(x))
            view_setting_set(v, s, x);
    }
}

void view_settings_keep(struct view *v)
{
    for (const struct setting *s = v->ops->settings; s && s->name; s++) {
        char key[96], text[40];
        snprintf(key, sizeof key, "%s.%s", v->ops->name, s->name);
        snprintf(text, sizeof text, "%.17g", view_setting_get(v, s));
        app_remember(v->app, key, text);
    }
}

/* ---- undo ---- */

static void snapshot(const struct view *v, double out[SETTINGS_MAX])
{
    int i = 0;
    for (const struct setting *s = v->ops->settings; s && s->name && i < SETTINGS_MAX; s++)
        out[i++] = view_setting_get(v, s);
}

void view_undo_mark(struct view *v)
{
    struct view_undo *u = v->undo;
    if (!u || !v->ops->settings)
        return;
    if (u->at == UNDO_MAX - 1) {
        memmove(u->past[0], u->past[1], sizeof u->past - sizeof u->past[0]);
        u->at--;
    }
    snapshot(v, u->past[u->at++]);
    u->n = u->at;
}

/* Undo stores the current state in past[at], so that redo can return to it. */
int view_undo_step(struct view *v, int direction)
{
    struct view_undo *u = v->undo;
    int to = u ? u->at + direction : -1;
    if (!u || !v->ops->settings || to < 0 || to > u->n || (direction > 0 && u->at >= u->n))
        return 0;
    snapshot(v, u->past[u->at]);
    u->at = to;
    int i = 0;
    for (const struct setting *s = v->ops->settings; s->name && i < SETTINGS_MAX; s++)
        view_setting_set(v, s, u->past[to][i++]);
    v->is_dirty = 1;
    return 1;
}
