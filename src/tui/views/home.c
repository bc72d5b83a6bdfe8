/* Home: the runs there are (live first), presets, and the form that starts a new run. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "training/job.h"
#include "tui/view.h"
#include "tui/widgets.h"

enum { FORM_ROWS_MAX = 400, FORM_PRESETS_MAX = 16 };

struct form {
    int is_open;
    char preset[256]; /* one, or several with spaces between */
    const struct job_key *key;
    size_t keys;
    char *base[FORM_ROWS_MAX]; /* the preset's; NULL = a key of another method, the default holds */
    char *value[FORM_ROWS_MAX]; /* NULL = as the preset or the default has it */
    struct list list;
    int is_editing;
    struct field field;
};

struct home {
    struct job_info *job;
    size_t jobs;
    char **preset;
    size_t presets;
    struct list list; /* jobs, then presets */
    double listed;    /* when the folder was last read */
    char error[256];
    struct form form;
};

static void load(struct view *v)
{
    struct home *h = v->state;
    struct err e = {0};
    mem_free(h->job);
    h->job = NULL;
    h->jobs = 0;
    h->error[0] = '\0';
    if (job_list(job_root(), &h->job, &h->jobs, &e) < 0)
        str_copy(h->error, sizeof h->error, e.text);
    if (!h->preset && job_presets(&h->preset, &h->presets, &e) < 0)
        h->presets = 0;
    h->listed = app_now(v->app);
    v->is_dirty = 1;
}

static int home_open(struct view *v, struct err *e)
{
    (void)e;
    load(v);
    return 0;
}

static void form_close(struct view *v)
{
    struct form *f = &((struct home *)v->state)->form;
    for (size_t i = 0; i < FORM_ROWS_MAX; i++) {
        mem_free(f->base[i]);
        mem_free(f->value[i]);
    }
    field_release(&f->field);
    memset(f, 0, sizeof *f);
    v->grabs_text = 0;
}

static void home_close(struct view *v)
{
    struct home *h = v->state;
    form_close(v);
    mem_free(h->job);
    if (h->preset)
        fs_list_free(h->preset, h->presets);
}

static int home_poll(struct view *v)
{
    struct home *h = v->state;
    if (app_is_scripted(v->app) || fabs(app_now(v->app) - h->listed) < 3)
        return 0;
    load(v);
    return 1;
}

/* ---- drawing ---- */

static const struct column columns[] = {
    {"", 1, 0, 9}, /* mark or live */
    {"run", -3, 0, 10}, {"method", 8, 0, 6},   {"preset", -1, 0, 3},
    {"state", 9, 0, 5}, {"written", 10, 1, 4},
};
enum { COLUMNS = (int)DS_LEN(columns) };

static void draw_job(struct view *v, struct area a, int y, const struct job_info *j,
                     const int *width, const int *x)
{
    char age[24] = "";
    double seconds = app_now(v->app) - j->modified;
    int is_marked = app_is_marked(v->app, j->path);
    uint32_t sign = is_marked    ? area_rune(a, 0x25A0, '#')
                    : j->is_live ? area_rune(a, 0x25CF, '*')
                                 : ' ';
    if (app_now(v->app) > 0) {
        str_duration(age,
                     seconds > 0 ? (seconds > 120 ? floor(seconds / 60) * 60 : floor(seconds)) : 0);
        snprintf(age + strlen(age), sizeof age - strlen(age), " ago");
    }
    area_put(a, y, x[0], sign, ink(is_marked ? ROLE_MARKED : ROLE_GOOD));
    columns_text(a, y, columns, 1, width, x, ink(ROLE_TEXT), j->name);
    columns_text(a, y, columns, 2, width, x, ink(ROLE_TEXT), j->method);
    columns_text(a, y, columns, 3, width, x, ink(ROLE_DIM), j->preset);
    columns_text(a, y, columns, 4, width, x, ink(j->is_live ? ROLE_GOOD : ROLE_DIM),
                 j->is_live ? "live" : "at rest");
    columns_text(a, y, columns, 5, width, x, ink(ROLE_DIM), age);
}

static void draw_empty(const struct home *h, struct area a)
{
    int x = 2;
    area_text(a, 1, x, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), "No runs here yet");
    area_textf(a, 3, x, -1, ink(ROLE_TEXT),
               "Runs are looked for in %s/ (DEPTHSCOPE_RUNS names another folder).", job_root());
    area_text(a, 4, x, -1, ink(ROLE_TEXT),
              h->presets ? "n starts one from the preset below; :open PATH takes a log or trace."
                         : ":open PATH takes a run, a log or a trace.");
    if (h->error[0])
        area_text(a, 6, x, -1, ink(ROLE_BAD), h->error);
}

static void draw_list(struct view *v, struct area a)
{
    struct home *h = v->state;
    int width[COLUMNS], x[COLUMNS], y = 0;
    size_t total = h->jobs + h->presets;
    struct area table = area_sub(a, 0, 1, a.rows, a.cols - 2);
    columns_fit(columns, COLUMNS, table.cols, width, x);
    if (h->jobs) {
        columns_head(table, y++, columns, COLUMNS, width, x);
    } else {
        draw_empty(h, a);
        y += 8;
    }
    int rows = a.rows - y - (h->presets ? 2 : 0);
    list_fit(&h->list, total, rows);
    for (size_t i = h->list.top; i < total && y < a.rows; i++) {
        if (i == h->jobs && y + 1 < a.rows) {
            y += y > 1;
            area_text(table, y++, 1, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD),
                      "presets: enter or n starts a run");
        }
        if (i < h->jobs)
            draw_job(v, table, y, &h->job[i], width, x);
        else
            area_text(table, y, x[1], -1, ink(ROLE_TEXT), h->preset[i - h->jobs]);
        if (i == h->list.cursor)
            area_select(a, y, 0, a.cols);
        y++;
    }
    scrollbar_draw(a, a.cols - 1, total, h->list.top, rows);
}

static const char *form_base(const struct form *f, size_t i)
{
    return f->base[i] ? f->base[i] : f->key[i].otherwise;
}

static const char *form_value(const struct form *f, size_t i)
{
    return f->value[i] ? f->value[i] : form_base(f, i);
}

/* What the rows have no room for: the whole help of the key, and its choices. */
static void draw_form_key(struct area line, const struct job_key *k)
{
    int x = area_text(line, 0, 0, -1, ink(ROLE_TEXT), k->help);
    if (k->choices && *k->choices && x + 3 < line.cols)
        area_textf(line, 0, x + 1, line.cols - x - 1, ink(ROLE_HINT_KEY), "(%s)", k->choices);
}

static void draw_form(struct view *v, struct area whole)
{
    struct form *f = &((struct home *)v->state)->form;
    char title[96];
    snprintf(title, sizeof title, "new run from preset %.64s", f->preset);
    struct area a =
        popup_begin(whole, whole.rows - 4, whole.cols > 100 ? 92 : whole.cols - 6, title);
    int name = a.cols / 3 < 28 ? a.cols / 3 : 28, value = a.cols / 4 < 12 ? 12 : a.cols / 4,
        rows = a.rows - 3;
    list_fit(&f->list, f->keys, rows);
    for (size_t i = f->list.top; i < f->keys && (int)(i - f->list.top) < rows; i++) {
        int y = (int)(i - f->list.top), is_here = i == f->list.cursor;
        area_text(a, y, 1, name - 1, ink(f->value[i] ? ROLE_MARKED : ROLE_TEXT), f->key[i].key);
        if (!(is_here && f->is_editing))
            area_text(a, y, name + 1, value, ink(f->value[i] ? ROLE_MARKED : ROLE_DIM),
                      form_value(f, i));
        area_text(a, y, name + value + 2, a.cols - name - value - 4, ink(ROLE_DIM), f->key[i].help);
        if (is_here)
            area_select(a, y, 0, a.cols - 1);
        if (is_here && f->is_editing)
            field_draw(&f->field, a, y, name + 1, value, 1);
    }
    scrollbar_draw(a, a.cols - 1, f->keys, f->list.top, rows);
    if (f->keys)
        draw_form_key(area_sub(a, a.rows - 2, 0, 1, a.cols), &f->key[f->list.cursor]);
    area_text(a, a.rows - 1, 0, -1, ink(ROLE_HINT),
              f->is_editing ? "enter keeps, esc drops"
                            : "enter edits   / finds   r starts the run   x resets   esc leaves");
}

static void home_draw(struct view *v, struct area a)
{
    struct home *h = v->state;
    draw_list(v, a);
    if (h->form.is_open)
        draw_form(v, a);
}

/* ---- the form ---- */

static void form_begin(struct view *v, const char *preset)
{
    struct form *f = &((struct home *)v->state)->form;
    form_close(v);
    f->key = job_keys(&f->keys);
    f->keys = f->keys > FORM_ROWS_MAX ? FORM_ROWS_MAX : f->keys;
    str_copy(f->preset, sizeof f->preset, preset);
    struct err e = {0};
    if (job_preset_values(preset, f->base, f->keys, &e) < 0) {
        app_say(v->app, LOG_ERROR, "%s", e.text);
        return;
    }
    f->is_open = 1;
    v->grabs_text = 1;
}

static void form_start(struct view *v)
{
    struct form *f = &((struct home *)v->state)->form;
    char text[FORM_ROWS_MAX][160], preset[sizeof f->preset], name[65], path[1200];
    const char *args[FORM_PRESETS_MAX + FORM_ROWS_MAX];
    struct err e = {0};
    str_copy(preset, sizeof preset, f->preset);
    size_t n = job_cut_words(preset, args, FORM_PRESETS_MAX);
    for (size_t i = 0; i < f->keys; i++) {
        if (!f->value[i])
            continue;
        snprintf(text[i], sizeof text[i], "%s=%s", f->key[i].key, f->value[i]);
        args[n++] = text[i];
    }
    if (job_start(args, n, name, sizeof name, &e) < 0) {
        app_say(v->app, LOG_ERROR, "%s", e.text);
        return;
    }
    app_say(v->app, LOG_INFO, "run %s is starting", name);
    form_close(v);
    load(v);
    snprintf(path, sizeof path, "%s/%s", job_root(), name);
    if (app_open_run(v->app, path, &e) == 0)
        app_show(v->app, "monitor");
}

static void edit_end(struct form *f, int is_kept)
{
    size_t i = f->list.cursor;
    f->is_editing = 0;
    if (!is_kept || i >= f->keys)
        return;
    mem_free(f->value[i]);
    f->value[i] = strcmp(str_text(&f->field.text), form_base(f, i)) == 0
                      ? NULL
                      : mem_strdup(str_text(&f->field.text));
}

static void form_search(struct form *f, const char *text, int direction)
{
    for (size_t k = 1; k <= f->keys; k++) {
        size_t i = direction > 0 ? (f->list.cursor + k) % f->keys
                                 : (f->list.cursor + f->keys - k) % f->keys;
        if (strstr(f->key[i].key, text)) {
            f->list.cursor = i;
            return;
        }
    }
}

static int form_event(struct view *v, const struct event *ev)
{
    struct form *f = &((struct home *)v->state)->form;
    if (f->is_editing) {
        if (ev->kind == EVENT_KEY && (ev->key == KEYCODE_ENTER || ev->key == KEYCODE_ESC))
            edit_end(f, ev->key == KEYCODE_ENTER);
        else
            field_event(&f->field, ev);
        return 1;
    }
    if (list_event(&f->list, ev))
        return 1;
    if (ev->kind != EVENT_KEY)
        return 1;
    switch (ev->key) {
    case KEYCODE_ESC:
    case 'q': form_close(v); return 1;
    case KEYCODE_ENTER:
    case ' ':
        f->is_editing = f->keys > 0;
        if (f->is_editing)
            field_set(&f->field, form_value(f, f->list.cursor));
        return 1;
    case 'x':
        field_set(&f->field, f->keys ? form_base(f, f->list.cursor) : "");
        edit_end(f, 1);
        return 1;
    case 'r':
        if (app_is_readonly(v->app))
            app_say(v->app, LOG_WARN, "read-only: no run is started");
        else
            form_start(v);
        return 1;
    default:
        return ev->key != '/' && ev->key != 'n' && ev->key != 'N' && ev->key != '?' &&
               ev->key != ':';
    }
}

/* ---- keys ---- */

static void key_enter(struct view *v, const struct key *k, const char *args)
{
    struct home *h = v->state;
    struct err e = {0};
    (void)k, (void)args;
    if (h->list.cursor >= h->jobs) {
        if (h->presets && !app_is_readonly(v->app))
            form_begin(
                v, h->preset[h->list.cursor - h->jobs < h->presets ? h->list.cursor - h->jobs : 0]);
        return;
    }
    if (app_open(v->app, h->job[h->list.cursor].path, &e) < 0)
        app_say(v->app, LOG_ERROR, "%s", e.text);
}

static void key_new(struct view *v, const struct key *k, const char *args)
{
    struct home *h = v->state;
    (void)k;
    size_t i = h->list.cursor >= h->jobs ? h->list.cursor - h->jobs : 0;
    if (args && *args)
        form_begin(v, args);
    else if (i < h->presets)
        form_begin(v, h->preset[i]);
    else
        app_say(v->app, LOG_WARN, "no presets found");
}

static void key_mark(struct view *v, const struct key *k, const char *args)
{
    struct home *h = v->state;
    (void)k, (void)args;
    if (h->list.cursor >= h->jobs)
        return;
    const char *path = h->job[h->list.cursor].path;
    app_mark_run(v->app, path, !app_is_marked(v->app, path));
    list_move(&h->list, 1);
}

static void key_ends(struct view *v, const struct key *k, const char *args)
{
    (void)args;
    list_end(&((struct home *)v->state)->list, k->value);
}

static void key_refresh(struct view *v, const struct key *k, const char *args)
{
    (void)k, (void)args;
    load(v);
}

static int home_event(struct view *v, const struct event *ev)
{
    struct home *h = v->state;
    if (h->form.is_open)
        return form_event(v, ev);
    if (ev->kind == EVENT_MOUSE && ev->action == MOUSE_PRESS && ev->button == 1) {
        int first = h->jobs ? 1 : 8, row = ev->y - first;
        size_t at = row >= 0 ? h->list.top + (size_t)row : h->list.cursor;
        if (at >= h->jobs && h->jobs)
            at = at >= h->jobs + 2 ? at - 2 : h->list.cursor;
        else if (!h->jobs)
            at = row >= 1 ? h->list.top + (size_t)row - 1 : h->list.cursor;
        if (at < h->list.n)
            h->list.cursor = at;
        if (ev->is_double)
            key_enter(v, NULL, NULL);
        return 1;
    }
    return list_event(&h->list, ev);
}

static int home_search(struct view *v, const char *text, int direction)
{
    struct home *h = v->state;
    size_t total = h->jobs + h->presets;
    if (h->form.is_open) {
        form_search(&h->form, text, direction);
        return 1;
    }
    for (size_t k = 1; k <= total; k++) {
        size_t i =
            direction > 0 ? (h->list.cursor + k) % total : (h->list.cursor + total - k) % total;
        if (strstr(i < h->jobs ? h->job[i].name : h->preset[i - h->jobs], text)) {
            h->list.cursor = i;
            return 1;
        }
    }
    return 0;
}

static void home_copy(struct view *v, struct str *out)
{
    struct home *h = v->state;
    if (h->list.cursor < h->jobs)
        copy_add(out, h->job[h->list.cursor].path);
}

/* clang-format off */
static const struct key home_keys[] = {
    {"Enter", "enter",   NULL,     "open the run, or start one from the preset", "open", 70, 0, 0, key_enter},
    {"n",     "new",     "PRESET", "new run: form of all keys",        "new run", 68, KEY_MUTATES, 0, key_new},
    {"Space", "mark",    NULL,     "mark for overlay and comparison",  "mark",    66, 0, 0, key_mark},
    {"R",     "refresh", NULL,     "read the folder again",            NULL,      0,  0, 0, key_refresh},
    {"gg",    "first",   NULL,     "first row",                        NULL,      0,  KEY_HIDDEN, 0, key_ends},
    {"G",     "last",    NULL,     "last row",                         NULL,      0,  KEY_HIDDEN, 1, key_ends},
    {0},
};

const struct view_ops view_home = {
    .name = "home",  .title = "Home",
    .summary = "Runs (live first) and presets: open, start, mark for comparison.",
    .keys = home_keys,  .state_size = sizeof(struct home),
    .open = home_open,  .close = home_close,  .draw = home_draw,  .event = home_event,  .poll = home_poll,
    .search = home_search,  .copy = home_copy,
};
/* clang-format on */
