/* The form that starts a run.  The run starts only after every value is valid, and the form stays
 * open until the run has started, so that an error never loses what was typed. */
#include "tui/form.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

static const char *base_of(const struct form *f, size_t i)
{
    return f->base[i] ? f->base[i] : f->key[i].otherwise;
}

static const char *value_of(const struct form *f, size_t i)
{
    return f->value[i] ? f->value[i] : base_of(f, i);
}

size_t form_changed(const struct form *f)
{
    size_t n = 0;
    for (size_t i = 0; i < f->keys; i++)
        n += f->value[i] != NULL;
    return n;
}

void form_close(struct form *f, struct view *v)
{
    for (size_t i = 0; i < FORM_ROWS_MAX; i++) {
        mem_free(f->base[i]);
        mem_free(f->value[i]);
    }
    field_release(&f->field);
    if (f->is_starting)
        job_launch_release(&f->launch);
    memset(f, 0, sizeof *f);
    v->grabs_text = 0;
    v->is_dirty = 1;
}

void form_open(struct form *f, struct view *v, const char *preset)
{
    struct err e = {0};
    form_close(f, v);
    f->key = job_keys(&f->keys);
    f->keys = f->keys > FORM_ROWS_MAX ? FORM_ROWS_MAX : f->keys;
    f->wrong = f->keys;
    str_copy(f->preset, sizeof f->preset, preset);
    if (job_preset_values(preset, f->base, f->keys, &e) < 0) {
        app_notify(v->app, LOG_ERROR, "%s", e.text);
        return;
    }
    f->is_open = 1;
    v->grabs_text = 1;
}

void form_open_like(struct form *f, struct view *v, struct run_row *run)
{
    char presets[sizeof f->preset];
    struct err ignored = {0};
    str_copy(presets, sizeof presets, run->preset);
    for (char *p = presets; *p; p++)
        *p = *p == '+' ? ' ' : *p;
    char **probe = mem_alloc(1, sizeof *probe); /* presets may be gone: then all defaults */
    int rc = probe ? job_preset_values(presets, probe, 1, &ignored) : DS_EMEM;
    mem_free(probe ? probe[0] : NULL);
    mem_free(probe);
    form_open(f, v, rc == 0 && presets[0] ? presets : "quick");
    for (size_t i = 0; f->is_open && i < f->keys; i++) {
        const char *value = run_row_config(run, f->key[i].key);
        if (value && strcmp(value, base_of(f, i)) != 0)
            f->value[i] = mem_strdup(value);
    }
}

/* ---- drawing ---- */

/* Below the rows: the error, or else the full help of the selected row. */
static void draw_foot(const struct form *f, struct area a)
{
    const struct job_key *k = &f->key[f->list.cursor];
    struct scroll lines = {0};
    if (f->error[0]) {
        scroll_text(&lines, area_sub(a, 0, 0, 2, a.cols), f->error, ink(ROLE_BAD));
    } else if (f->keys) {
        int x = area_text(a, 0, 0, -1, ink(ROLE_TEXT), k->help);
        if (k->choices && *k->choices && x + 3 < a.cols)
            area_textf(a, 0, x + 1, a.cols - x - 1, ink(ROLE_HINT_KEY), "(%s)", k->choices);
    }
    area_text(a, 2, 0, -1, ink(ROLE_HINT),
              f->is_starting ? "starting ...   Esc closes the form; the run continues"
              : f->is_editing
                  ? "Enter saves   Esc cancels   Tab saves and edits the next"
                  : "Enter edits   / n N search   r starts the run   x resets   Esc closes");
}

/* The error without the key, which the row shows already. */
static const char *reason(const struct form *f, size_t i)
{
    size_t n = strlen(f->key[i].key);
    int is_named = strncmp(f->error, f->key[i].key, n) == 0 && f->error[n] == ':';
    return f->error + (is_named ? n + 1 + (f->error[n + 1] == ' ') : 0);
}

static void draw_row(struct form *f, struct area a, int y, size_t i, int name, int value)
{
    int is_here = i == f->list.cursor, is_wrong = i == f->wrong && f->error[0];
    enum role role = is_wrong ? ROLE_BAD : f->value[i] ? ROLE_MARKED : ROLE_TEXT;
    area_text(a, y, 1, name - 1, ink(role), f->key[i].key);
    if (!(is_here && f->is_editing))
        area_text(a, y, name + 1, value, ink(role == ROLE_TEXT ? ROLE_DIM : role), value_of(f, i));
    if (is_wrong)
        area_put(a, y, 0, area_rune(a, 0xD7, 'x'), ink(ROLE_BAD));
    area_text(a, y, name + value + 2, a.cols - name - value - 4,
              ink(is_wrong ? ROLE_BAD : ROLE_DIM), is_wrong ? reason(f, i) : f->key[i].help);
    if (is_here)
        area_select(a, y, 0, a.cols - 1);
    if (is_here && f->is_editing)
        field_draw(&f->field, a, y, name + 1, value, 1);
}

void form_draw(struct form *f, struct area whole)
{
    char title[96];
    snprintf(title, sizeof title, "new run from preset %.64s", f->preset);
    struct area a =
        popup_begin(whole, whole.rows - 4, whole.cols > 100 ? 92 : whole.cols - 6, title);
    int name = a.cols / 3 < 28 ? a.cols / 3 : 28, value = a.cols / 4 < 12 ? 12 : a.cols / 4,
        rows = a.rows - 4;
    f->rows = area_sub(a, 0, 0, rows, a.cols);
    f->above = f->rows.y - whole.y;
    list_fit(&f->list, f->keys, rows);
    for (size_t i = f->list.top; i < f->keys && (int)(i - f->list.top) < rows; i++)
        draw_row(f, f->rows, (int)(i - f->list.top), i, name, value);
    scrollbar_draw(a, a.cols - 1, f->keys, f->list.top, rows);
    draw_foot(f, area_sub(a, a.rows - 3, 0, 3, a.cols));
}

/* ---- editing ---- */

static void edit_begin(struct form *f)
{
    f->is_editing = f->keys > 0 && !f->is_starting;
    if (f->is_editing)
        field_set(&f->field, value_of(f, f->list.cursor));
}

static void forget_error(struct form *f)
{
    f->error[0] = '\0';
    f->wrong = f->keys;
}

/* Saves the typed value if it is valid; else the field stays open and shows the error.  1 = saved. */
static int edit_keep(struct form *f)
{
    size_t i = f->list.cursor;
    const char *text = str_text(&f->field.text);
    struct err e = {0};
    int is_base = strcmp(text, base_of(f, i)) == 0;
    if (!is_base && job_check_value(f->key[i].key, text, &e) < 0) {
        str_copy(f->error, sizeof f->error, e.text);
        f->wrong = i;
        return 0;
    }
    char *copy = is_base ? NULL : mem_strdup(text);
    if (!is_base && !copy)
        return 0;
    mem_free(f->value[i]);
    f->value[i] = copy;
    f->is_editing = 0;
    forget_error(f); /* the error may depend on this value in combination with others */
    return 1;
}

int form_search(struct form *f, const char *text, int direction)
{
    for (size_t k = 1; k <= f->keys; k++) {
        size_t i = direction > 0 ? (f->list.cursor + k) % f->keys
                                 : (f->list.cursor + f->keys - k) % f->keys;
        if (strstr(f->key[i].key, text)) {
            f->list.cursor = i;
            return 1;
        }
    }
    return 0;
}

/* ---- starting ---- */

/* The row that a message refers to, by its key or else by its value: changed rows first, then
 * any.  The longest key wins, since one key can be a prefix of another. */
static size_t row_of(const struct form *f, const char *text)
{
    size_t best = f->keys, length = 0;
    for (int changed = 1; changed >= 0 && best == f->keys; changed--)
        for (size_t i = 0; i < f->keys; i++) {
            size_t n = strlen(f->key[i].key);
            if ((!changed || f->value[i]) && n > length && strstr(text, f->key[i].key)) {
                best = i;
                length = n;
            }
        }
    for (size_t i = 0; i < f->keys && best == f->keys; i++)
        if (f->value[i] && strlen(f->value[i]) > 2 && strstr(text, f->value[i]))
            best = i;
    return best;
}

static void show_error(struct form *f, const char *text)
{
    str_copy(f->error, sizeof f->error, text);
    f->wrong = row_of(f, text);
    if (f->wrong < f->keys)
        f->list.cursor = f->wrong;
}

static void start(struct form *f, struct view *v)
{
    const char *args[FORM_PRESETS_MAX + FORM_ROWS_MAX];
    struct str text[FORM_ROWS_MAX] = {{0}};
    char preset[sizeof f->preset];
    struct err e = {0};
    if (f->is_starting)
        return;
    forget_error(f);
    str_copy(preset, sizeof preset, f->preset);
    size_t n = job_split_words(preset, args, FORM_PRESETS_MAX);
    for (size_t i = 0; i < f->keys; i++) {
        if (!f->value[i])
            continue;
        str_addf(&text[i], "%s=%s", f->key[i].key, f->value[i]);
        args[n++] = str_text(&text[i]);
    }
    int rc = job_check(args, n, &e);
    if (rc == 0)
        rc = job_launch(&f->launch, args, n, &e);
    if (rc < 0)
        show_error(f, e.text);
    else
        app_notify(v->app, LOG_INFO, "run %s is starting", f->launch.name);
    f->is_starting = rc == 0;
    for (size_t i = 0; i < f->keys; i++)
        str_release(&text[i]);
}

int form_poll(struct form *f, struct view *v, char *path, size_t size)
{
    char words[400];
    double end = clock_mono() + 60;
    if (!f->is_starting)
        return 0;
    enum launch_state state = job_launch_state(&f->launch, words, sizeof words);
    while (app_is_scripted(v->app) && state == LAUNCH_STARTING && clock_mono() < end) {
        clock_sleep(0.02); /* a key script is not polled again, so it waits here */
        state = job_launch_state(&f->launch, words, sizeof words);
    }
    if (state == LAUNCH_STARTING)
        return 0;
    job_launch_release(&f->launch);
    f->is_starting = 0;
    v->is_dirty = 1;
    if (state == LAUNCH_FAILED) {
        show_error(f, words);
        app_notify(v->app, LOG_ERROR, "run %s failed to start: %s", f->launch.name, words);
        return 0;
    }
    str_copy(path, size, f->launch.dir);
    form_close(f, v);
    return 1;
}

/* ---- events ---- */

static void discard(void *ctx)
{
    struct view *v = ctx;
    form_close(v->state, v); /* the form is the first member of struct home */
}

static void leave(struct form *f, struct view *v)
{
    char question[128];
    size_t n = form_changed(f);
    if (n == 0 || f->is_starting) {
        form_close(f, v);
        return;
    }
    snprintf(question, sizeof question, "Discard %zu changed value%s and close the form?", n,
             n > 1 ? "s" : "");
    app_confirm(v->app, question, discard, v);
}

static int edit_event(struct form *f, const struct event *ev)
{
    int by = 0;
    if (ev->kind == EVENT_KEY) {
        switch (ev->key) {
        case KEYCODE_ESC:
            f->is_editing = 0;
            forget_error(f);
            return 1;
        case KEYCODE_ENTER: edit_keep(f); return 1;
        case KEYCODE_TAB:
        case KEYCODE_DOWN: by = 1; break;
        case KEYCODE_BACKTAB:
        case KEYCODE_UP: by = -1; break;
        default: break;
        }
    }
    if (by == 0)
        field_event(&f->field, ev);
    else if (edit_keep(f))
        list_move(&f->list, by);
    return 1;
}

static int mouse_event(struct form *f, const struct event *ev)
{
    int y = ev->y - f->above;
    if (ev->action != MOUSE_PRESS || ev->button != 1 || y < 0 || y >= f->rows.rows)
        return 1;
    size_t at = f->list.top + (size_t)y;
    if (at >= f->keys || (f->is_editing && !edit_keep(f)))
        return 1;
    f->list.cursor = at;
    if (ev->is_double)
        edit_begin(f);
    return 1;
}

int form_event(struct form *f, struct view *v, const struct event *ev)
{
    if (f->is_editing && ev->kind != EVENT_MOUSE)
        return edit_event(f, ev);
    if (!f->is_editing && list_event(&f->list, ev))
        return 1;
    if (ev->kind == EVENT_MOUSE)
        return mouse_event(f, ev);
    if (ev->kind != EVENT_KEY)
        return 1;
    switch (ev->key) {
    case KEYCODE_ESC:
    case 'q': leave(f, v); return 1;
    case KEYCODE_ENTER:
    case ' ': edit_begin(f); return 1;
    case 'x':
        if (f->keys && !f->is_starting) {
            mem_free(f->value[f->list.cursor]);
            f->value[f->list.cursor] = NULL;
            forget_error(f);
        }
        return 1;
    case 'r':
        if (app_is_readonly(v->app))
            app_notify(v->app, LOG_WARN, "read-only mode: runs cannot be started");
        else
            start(f, v);
        return 1;
    default: /* only these global keys: any other would act on the list below the form */
        return !(ev->key < 0x80 && strchr("/nN?:g", (int)ev->key)) &&
               ev->key != (KEYCODE_CTRL | 'l') && ev->key != (KEYCODE_CTRL | 'z');
    }
}
