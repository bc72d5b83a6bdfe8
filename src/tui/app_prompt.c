/* The prompt on the bottom line: commands, searches and answers. */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "io/runindex.h"
#include "training/job.h"
#include "tui/appstate.h"

void app_ask(struct app *app, const char *label, const char *initial,
             void (*done)(void *ctx, const char *text), void *ctx)
{
    struct prompt *p = &app->prompt;
    p->is_active = 1;
    p->is_command = 0;
    p->done = done;
    p->ctx = ctx;
    p->candidate = -1;
    str_copy(p->label, sizeof p->label, label);
    field_set(&p->field, initial ? initial : "");
    app->is_dirty = 1;
}

void app_open_command(struct app *app, const char *initial)
{
    app_ask(app, ":", initial, NULL, NULL);
    app->prompt.is_command = 1;
    app->prompt.history_at = app->prompt.histories;
}

void app_confirm(struct app *app, const char *question, void (*done)(void *ctx), void *ctx)
{
    app->confirm = (struct confirm){.is_active = 1, .done = done, .ctx = ctx};
    str_copy(app->confirm.question, sizeof app->confirm.question, question);
    app->is_dirty = 1;
}

/* ---- commands ---- */

/* :let NAME VALUE for a setting of the focused view. */
static void set_view_setting(struct app *app, const char *args)
{
    char name[64], hint[NEAREST_MAX + 32];
    double x;
    struct view *v = app_focused_view(app);
    const struct setting *all = v ? v->ops->settings : NULL;
    if (!all || !all->name) {
        app_notify(app, LOG_WARN, "let: this view has no settings");
        return;
    }
    if (sscanf(args, "%63[^= ]%*[= ]%lf", name, &x) != 2) {
        app_notify(app, LOG_WARN, "let: expected NAME VALUE, such as %s 1", all->name);
        return;
    }
    struct nearest best = nearest_to(name);
    for (const struct setting *s = all; s->name; s++) {
        nearest_try(&best, s->name);
        if (strcmp(s->name, name) == 0) {
            if (!(x >= s->min && x <= s->max) || (s->type == SETTING_INT && x != (int)x)) {
                app_notify(app, LOG_WARN, "let: %s = %g: must be %s from %.10g to %.10g", name, x,
                           s->type == SETTING_INT ? "a whole number" : "a number", s->min, s->max);
                return;
            }
            view_undo_mark(v);
            view_setting_set(v, s, x);
            app->is_dirty = 1;
            return;
        }
    }
    app_notify(app, LOG_WARN, "let: unknown setting \"%s\" of this view%s", name,
               nearest_hint(&best, hint, sizeof hint));
}

/* Reports an unknown command, with the closest known name if there is one. */
static void suggest(struct app *app, const char *name)
{
    const struct key *tables[] = {app_focused(app)->keys, keys_global};
    char hint[NEAREST_MAX + 32];
    struct nearest best = nearest_to(name);
    for (size_t t = 0; t < DS_LEN(tables); t++)
        for (const struct key *k = tables[t]; k && k->command; k++)
            nearest_try(&best, k->command);
    for (int i = 0; view_registry[i]; i++)
        nearest_try(&best, view_registry[i]->name);
    app_notify(app, LOG_WARN, "unknown command \"%s\"%s; :help lists the commands", name,
               nearest_hint(&best, hint, sizeof hint));
}

void app_command(struct app *app, const char *line)
{
    while (*line == ' ' || *line == ':')
        line++;
    size_t n = strcspn(line, " ");
    const char *args = line + n;
    while (*args == ' ')
        args++;
    const struct key *k = keys_command(app_focused(app)->keys, line, n);
    if (!k)
        k = keys_command(keys_global, line, n);
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(n > 60 ? 60 : n), line);
    if (n == 0)
        return;
    if (k)
        app_press(app, k, args);
    else if (view_find(name))
        app_show(app, name);
    else if (strcmp(name, "let") == 0)
        set_view_setting(app, args);
    else
        suggest(app, name);
}

/* ---- completion ---- */

struct candidates {
    char *text[64];    /* owned */
    char note[64][96]; /* shown after the text */
    int n;
};

static void add_candidate(struct candidates *c, const char *text, const char *prefix)
{
    if (c->n == (int)DS_LEN(c->text) || strncmp(text, prefix, strlen(prefix)) != 0)
        return;
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->text[i], text) == 0)
            return;
    char *copy = mem_strdup(text);
    if (!copy)
        return;
    c->note[c->n][0] = '\0';
    c->text[c->n++] = copy;
}

static void release_candidates(struct candidates *c)
{
    for (int i = 0; i < c->n; i++)
        mem_free(c->text[i]);
    c->n = 0;
}

static void add_views(struct app *app, struct candidates *c, const char *args, const char *prefix)
{
    (void)app, (void)args;
    for (int i = 0; view_registry[i]; i++)
        add_candidate(c, view_registry[i]->name, prefix);
}

static void add_commands(struct app *app, struct candidates *c, const char *prefix)
{
    for (const struct key *k = app_focused(app)->keys; k && k->command; k++)
        add_candidate(c, k->command, prefix);
    for (const struct key *k = keys_global; k->command; k++)
        add_candidate(c, k->command, prefix);
    add_views(app, c, "", prefix);
}

struct completion {
    struct candidates *candidates;
    const char *prefix;
};

static void add_run_there(void *ctx, const char *label)
{
    const struct completion *x = ctx;
    add_candidate(x->candidates, label, x->prefix);
}

/* Files, directories (with a slash) and runs; hidden files only for a prefix with a dot. */
static void add_paths(struct app *app, struct candidates *c, const char *args, const char *prefix)
{
    const char *slash = strrchr(prefix, '/'), *base = slash ? slash + 1 : prefix;
    char dir[1024], path[2100], **names = NULL;
    size_t n = 0;
    (void)args;
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - prefix + 1) : 1, slash ? prefix : ".");
    if (fs_list(dir, &names, &n, NULL) == 0) {
        for (size_t i = 0; i < n; i++) {
            if (strncmp(names[i], base, strlen(base)) != 0 ||
                (names[i][0] == '.' && base[0] != '.'))
                continue;
            snprintf(path, sizeof path, "%s%s", slash ? dir : "", names[i]);
            if (fs_is_dir(path))
                str_copy(path + strlen(path), sizeof path - strlen(path), "/");
            add_candidate(c, path, prefix);
        }
        fs_list_free(names, n);
    }
    names = NULL;
    if (!slash && fs_is_dir(job_root()) && fs_list(job_root(), &names, &n, NULL) == 0)
        for (size_t i = 0; i < n; i++)
            if (fs_name_ok(names[i]))
                add_candidate(c, names[i], prefix);
    struct completion there = {c, prefix};
    app_runs_there(app, add_run_there, &there);
    if (names)
        fs_list_free(names, n);
}

static void add_presets(struct app *app, struct candidates *c, const char *args, const char *prefix)
{
    char **names = NULL;
    size_t n = 0;
    (void)app;
    (void)args;
    if (job_presets(&names, &n, NULL) < 0)
        return;
    for (size_t i = 0; i < n; i++)
        add_candidate(c, names[i], prefix);
    fs_list_free(names, n);
}

static void add_themes(struct app *app, struct candidates *c, const char *args, const char *prefix)
{
    char **names = NULL;
    size_t n = 0;
    (void)app;
    (void)args;
    if (theme_list(&names, &n, NULL) < 0)
        return;
    for (size_t i = 0; i < n; i++)
        add_candidate(c, names[i], prefix);
    fs_list_free(names, n);
}

/* Adds `text` with the setting's value, unless that is the text, and its range. */
static void add_setting(struct candidates *c, const struct run_live *x, const char *value,
                        const char *text, const char *prefix)
{
    char range[48] = "";
    int n = c->n;
    add_candidate(c, text, prefix);
    if (c->n == n)
        return;
    if (x->min < x->max)
        snprintf(range, sizeof range, "%.6g to %.6g", x->min, x->max);
    int is_key = value[0] && strcmp(text, value) != 0;
    snprintf(c->note[n], sizeof *c->note, "%s%s%s%s", is_key ? "= " : "", is_key ? value : "",
             is_key && range[0] ? ", " : "", range);
}

/* Does a word of n bytes name the setting?  "lr" names train.lr, too. */
static int names_setting(const struct run_live *x, const char *word, size_t n, int is_whole)
{
    const char *dot = strrchr(x->key, '.'), *name[] = {x->key, dot ? dot + 1 : x->key};
    for (size_t i = 0; i < DS_LEN(name); i++)
        if (strncmp(name[i], word, n) == 0 && (!is_whole || strlen(name[i]) == n))
            return 1;
    return 0;
}

/* The settings that the current run can change while it trains, and after one its value. */
static void add_live(struct app *app, struct candidates *c, const char *args, const char *prefix)
{
    const struct runview *r = app_run(app);
    size_t first = strcspn(args, " "), second = first + strspn(args + first, " ");
    int is_value = prefix != args;
    for (int i = 0; r && i < r->lives; i++) {
        const struct run_live *x = &r->live[i];
        char value[32] = "";
        double now;
        if ((is_value && prefix != args + second) || !names_setting(x, args, first, is_value))
            continue;
        if (runview_live_value(r, x->key, &now))
            snprintf(value, sizeof value, "%.10g", now);
        if (!is_value)
            add_setting(c, x, value, x->key, "");
        else if (value[0])
            add_setting(c, x, value, value, prefix);
    }
}

/* "braille|shades|ascii" */
static void add_choices(struct candidates *c, const char *choices, const char *prefix)
{
    for (const char *p = choices; *p; p += *p == '|') {
        char one[64];
        int n = (int)strcspn(p, "|");
        snprintf(one, sizeof one, "%.*s", n, p);
        add_candidate(c, one, prefix);
        p += n;
    }
}

/* Columns of the list of runs: to sort and group by, and with = to filter by. */
static void add_columns(struct app *app, struct candidates *c, const char *args, const char *prefix)
{
    (void)app, (void)args;
    for (const struct run_column *k = run_columns; k->key; k++)
        add_candidate(c, k->key, prefix);
}

static void add_terms(struct app *app, struct candidates *c, const char *args, const char *prefix)
{
    char term[64];
    (void)app, (void)args;
    for (const struct run_column *k = run_columns; k->key; k++) {
        snprintf(term, sizeof term, "%s=", k->key);
        add_candidate(c, term, prefix);
    }
}

/* What completes the ARGS of a key row; ARGS without a row here are free text. */
static const struct {
    const char *args;
    /* args: all of the command's words; prefix: where the last one begins */
    void (*add)(struct app *app, struct candidates *c, const char *args, const char *prefix);
    int is_list,
        is_rest; /* several words; one that extends to the end of the line, spaces included */
} kinds[] = {
    {"PATH", add_paths, 0, 1},  {"PRESET", add_presets, 1, 0}, {"THEME", add_themes, 0, 1},
    {"VIEW", add_views, 0, 0},  {"KEY VALUE", add_live, 1, 0}, {"COLUMN", add_columns, 0, 0},
    {"KEY", add_columns, 0, 0}, {"QUERY", add_terms, 1, 0},
};

/* Completions of the last word of `typed`; *from is the offset where that word begins. */
static void find_candidates(struct app *app, const char *typed, struct candidates *c, size_t *from)
{
    c->n = 0;
    const char *space = strchr(typed, ' ');
    *from = space ? (size_t)(strrchr(typed, ' ') + 1 - typed) : 0;
    if (!space) {
        add_commands(app, c, typed);
        return;
    }
    size_t name = (size_t)(space - typed);
    const struct key *k = keys_command(app_focused(app)->keys, typed, name);
    if (!k)
        k = keys_command(keys_global, typed, name);
    if (name == 3 && memcmp(typed, "let", 3) == 0 && *from == 4)
        for (const struct setting *s = app_focused(app)->settings; s && s->name; s++)
            add_candidate(c, s->name, typed + *from);
    if (!k || !k->args)
        return;
    size_t args = name + 1 + strspn(typed + name + 1, " ");
    for (size_t i = 0; i < DS_LEN(kinds); i++) {
        if (strcmp(kinds[i].args, k->args) != 0)
            continue;
        if (kinds[i].is_rest)
            *from = args;
        if (kinds[i].is_list || *from == args)
            kinds[i].add(app, c, typed + args, typed + *from);
    }
    if (strchr(k->args, '|') && *from == name + 1)
        add_choices(c, k->args, typed + *from);
}

static void complete(struct app *app, int by)
{
    struct prompt *p = &app->prompt;
    struct candidates c;
    size_t from;
    if (p->field.text.len >= sizeof p->typed) /* longer than any path */
        return;
    if (p->candidate < 0)
        str_copy(p->typed, sizeof p->typed, str_text(&p->field.text));
    find_candidates(app, p->typed, &c, &from);
    if (c.n == 1 && p->candidate == 0) { /* the only candidate is complete: continue after it */
        release_candidates(&c);
        p->candidate = -1;
        str_copy(p->typed, sizeof p->typed, str_text(&p->field.text));
        find_candidates(app, p->typed, &c, &from);
    }
    if (c.n > 0) {
        p->candidate = p->candidate < 0 ? (by > 0 ? 0 : c.n - 1) : (p->candidate + by + c.n) % c.n;
        struct str whole = {0};
        str_add_bytes(&whole, p->typed, from);
        str_add(&whole, c.text[p->candidate]);
        field_set(&p->field, str_text(&whole));
        str_release(&whole);
    }
    release_candidates(&c);
}

/* ---- history and keys ---- */

static void remember_line(struct prompt *p, const char *line)
{
    if (!*line || (p->histories && strcmp(p->history[p->histories - 1], line) == 0))
        return;
    char *copy = mem_strdup(line);
    if (!copy)
        return;
    if (p->histories == APP_HISTORY_MAX) {
        mem_free(p->history[0]);
        memmove(p->history, p->history + 1, (APP_HISTORY_MAX - 1) * sizeof *p->history);
        p->histories--;
    }
    p->history[p->histories++] = copy;
}

static void recall_line(struct prompt *p, int by)
{
    int at = p->history_at + by;
    if (at < 0 || at > p->histories)
        return;
    p->history_at = at;
    field_set(&p->field, at < p->histories ? p->history[at] : "");
}

static void accept(struct app *app)
{
    struct prompt *p = &app->prompt;
    char *line = mem_strdup(str_text(&p->field.text));
    p->is_active = 0;
    if (!line)
        return;
    if (p->is_command) {
        remember_line(p, line);
        app_command(app, line);
    } else if (p->done) {
        p->done(p->ctx, line);
    }
    mem_free(line);
}

int app_prompt_event(struct app *app, const struct event *ev)
{
    struct prompt *p = &app->prompt;
    if (ev->kind == EVENT_MOUSE)
        return 0;
    if (ev->kind == EVENT_KEY) {
        int is_empty_erase = ev->key == KEYCODE_BACKSPACE && p->field.text.len == 0;
        if (ev->key == KEYCODE_ESC || is_empty_erase) {
            p->is_active = 0;
            if (p->done)
                p->done(p->ctx, NULL);
            return 1;
        }
        if (ev->key == KEYCODE_ENTER) {
            accept(app);
            return 1;
        }
        if (p->is_command && (ev->key == KEYCODE_TAB || ev->key == KEYCODE_BACKTAB)) {
            complete(app, ev->key == KEYCODE_TAB ? 1 : -1);
            return 1;
        }
        if (p->is_command && (ev->key == KEYCODE_UP || ev->key == KEYCODE_DOWN)) {
            recall_line(p, ev->key == KEYCODE_UP ? -1 : 1);
            return 1;
        }
    }
    p->candidate = -1;
    field_event(&p->field, ev);
    return 1;
}

/* The last component of a path: it distinguishes the candidates. */
static const char *shown_part(const char *text)
{
    const char *at = text;
    for (const char *p = text; *p; p++)
        at = *p == '/' && p[1] ? p + 1 : at;
    return at;
}

/* Shows the completions to the right of the typed text. */
static void draw_candidates(struct app *app, struct area line, int x)
{
    struct prompt *p = &app->prompt;
    struct candidates c;
    size_t from;
    find_candidates(app, p->candidate < 0 ? str_text(&p->field.text) : p->typed, &c, &from);
    for (int i = 0; i < c.n && x < line.cols - 4; i++) {
        struct ink look = ink(i == p->candidate ? ROLE_HINT_KEY : ROLE_DIM);
        x += 2 + area_text(line, 0, x, -1, look, shown_part(c.text[i]));
        if (c.note[i][0])
            x += 1 + area_text(line, 0, x - 1, -1, ink(ROLE_DIM), c.note[i]);
    }
    release_candidates(&c);
}

void app_draw_prompt(struct app *app, struct area line)
{
    struct prompt *p = &app->prompt;
    int x = area_text(line, 0, 0, line.cols / 2, ink(ROLE_HINT_KEY), p->label);
    x += p->is_command ? 0 : 1;
    int width = p->is_command && line.cols > 60 ? line.cols / 2 : line.cols - x;
    field_draw(&p->field, line, 0, x, width, 1);
    if (p->is_command && line.cols > 60)
        draw_candidates(app, line, x + (width > 24 && p->field.text.len < 20 ? 24 : width) + 1);
}

void app_prompt_release(struct app *app)
{
    for (int i = 0; i < app->prompt.histories; i++)
        mem_free(app->prompt.history[i]);
    app->prompt.histories = 0;
    field_release(&app->prompt.field);
}
