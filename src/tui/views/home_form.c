/* The form that starts a run.  Values are checked as they are typed; the run starts only after
 * every value is valid, and the form stays open until the run has started, so that an error never
 * loses what was typed. */
#include "tui/form.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"

static const char *base_of(const struct form *f, size_t i)
{
    return f->base[i] ? f->base[i] : f->key[i].otherwise;
}

const char *form_value(const struct form *f, size_t i)
{
    return f->value[i] ? f->value[i] : base_of(f, i);
}

struct form_row form_at(const struct form *f)
{
    return f->list.cursor < f->list.n ? f->row[f->list.cursor] : (struct form_row){FORM_SECTION, 0};
}

const char *form_row_name(const struct form *f, const struct form_row *r)
{
    return r->kind == FORM_NAME     ? "name"
           : r->kind == FORM_HOST   ? "host"
           : r->kind == FORM_PRESET ? "preset"
           : r->kind == FORM_KEY    ? f->key[r->at].key
                                    : "";
}

const char *form_row_value(const struct form *f, const struct form_row *r)
{
    return r->kind == FORM_NAME     ? f->name
           : r->kind == FORM_HOST   ? f->where
           : r->kind == FORM_PRESET ? f->preset
           : r->kind == FORM_KEY    ? form_value(f, r->at)
                                    : "";
}

size_t form_changed(const struct form *f)
{
    size_t n = (f->name[0] != '\0') + (f->there != f->home);
    for (size_t i = 0; i < f->keys; i++)
        n += f->value[i] != NULL;
    return n;
}

/* ---- rows ---- */

static const char *const essential[] = {"model.method", "data.path", "train.steps", "train.batch",
                                        "train.lr"};

static size_t key_find(const struct form *f, const char *key)
{
    size_t i = 0;
    while (i < f->keys && strcmp(f->key[i].key, key) != 0)
        i++;
    return i;
}

static int is_essential(const char *key)
{
    for (size_t i = 0; i < DS_LEN(essential); i++)
        if (strcmp(key, essential[i]) == 0)
            return 1;
    return 0;
}

/* The method whose key this is, or NULL. */
static const char *method_of(const char *key)
{
    enum { METHODS_MAX = 64 };
    const char *name[METHODS_MAX];
    size_t n = job_methods(name, METHODS_MAX);
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(name[i]);
        if (strncmp(key, name[i], len) == 0 && key[len] == '.')
            return name[i];
    }
    return NULL;
}

static enum form_section section_of(const struct form *f, size_t key, int *is_shown)
{
    const char *method = method_of(f->key[key].key);
    size_t now = key_find(f, "model.method");
    *is_shown = !method || (now < f->keys && strcmp(method, form_value(f, now)) == 0);
    return is_essential(f->key[key].key) ? FORM_ESSENTIALS : method ? FORM_METHOD : FORM_ALL;
}

static void add_row(struct form *f, enum form_row_kind kind, size_t at)
{
    f->row[f->list.n++] = (struct form_row){kind, at};
}

/* Rows in order: the method's keys follow the method, folded sections have none. */
static void make_rows(struct form *f)
{
    f->list.n = 0;
    for (int s = 0; s < FORM_SECTIONS; s++) {
        add_row(f, FORM_SECTION, (size_t)s);
        if (f->is_folded[s])
            continue;
        if (s == FORM_ESSENTIALS) {
            add_row(f, FORM_NAME, 0);
            if (f->hosts > 0)
                add_row(f, FORM_HOST, 0);
            add_row(f, FORM_PRESET, 0);
            for (size_t i = 0; i < DS_LEN(essential); i++)
                if (key_find(f, essential[i]) < f->keys)
                    add_row(f, FORM_KEY, key_find(f, essential[i]));
            continue;
        }
        for (size_t i = 0; i < f->keys; i++) {
            int is_shown;
            if ((int)section_of(f, i, &is_shown) == s && is_shown)
                add_row(f, FORM_KEY, i);
        }
    }
}

static size_t row_find(const struct form *f, struct form_row r)
{
    size_t i = 0;
    while (i < f->list.n && (f->row[i].kind != r.kind || f->row[i].at != r.at))
        i++;
    return i;
}

static void fold(struct form *f, size_t section, int is_folded)
{
    f->is_folded[section] = is_folded;
    make_rows(f);
    list_fit(&f->list, f->list.n, f->list.page);
}

/* Moves the cursor to a row, in a folded section too. */
static void go_to(struct form *f, struct form_row r)
{
    int is_shown = 1;
    enum form_section s = r.kind == FORM_KEY ? section_of(f, r.at, &is_shown) : FORM_ESSENTIALS;
    if (!is_shown)
        return;
    if (f->is_folded[s])
        fold(f, s, 0);
    size_t at = row_find(f, r);
    if (at < f->list.n)
        f->list.cursor = at;
}

/* ---- errors and the estimate ---- */

static void forget_error(struct form *f)
{
    f->error[0] = '\0';
    f->wrong = (struct form_row){FORM_SECTION, 0};
}

static void set_error(struct form *f, struct form_row at, const char *text)
{
    str_copy(f->error, sizeof f->error, text);
    f->wrong = at;
}

/* The row that a message refers to, by its key or else by its value: changed rows first, then
 * any.  The longest key wins, since one key can be a prefix of another. */
static struct form_row row_of(const struct form *f, const char *text)
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
    if (best == f->keys && strncmp(text, "name:", 5) == 0)
        return (struct form_row){FORM_NAME, 0};
    if (best == f->keys && strncmp(text, "preset:", 7) == 0)
        return (struct form_row){FORM_PRESET, 0};
    return best < f->keys ? (struct form_row){FORM_KEY, best} : (struct form_row){FORM_SECTION, 0};
}

/* The words of `depthscope train`: presets and changed values.  with: the row whose value is
 * `text` instead, kind FORM_SECTION: none. */
struct words {
    const char *arg[FORM_PRESETS_MAX + FORM_KEYS_MAX];
    struct str text[FORM_KEYS_MAX];
    char preset[256];
    size_t n, texts;
    int failed;
};

static void words_make(struct words *w, const struct form *f, struct form_row with,
                       const char *text)
{
    memset(w, 0, sizeof *w);
    str_copy(w->preset, sizeof w->preset, with.kind == FORM_PRESET ? text : f->preset);
    w->n = job_split_words(w->preset, w->arg, FORM_PRESETS_MAX);
    for (size_t i = 0; i < f->keys; i++) {
        int is_with = with.kind == FORM_KEY && with.at == i;
        const char *value = is_with ? text : f->value[i];
        if (!value)
            continue;
        str_addf(&w->text[w->texts], "%s=%s", f->key[i].key, value);
        w->failed |= w->text[w->texts].failed;
        w->arg[w->n++] = str_text(&w->text[w->texts++]);
    }
}

static void words_release(struct words *w)
{
    for (size_t i = 0; i < w->texts; i++)
        str_release(&w->text[i]);
    mem_free(w);
}

/* Checks all values together and estimates the run; an error is shown at its row. */
static void check_all(struct form *f, struct form_row with, const char *text)
{
    struct words *w = mem_alloc(1, sizeof *w);
    struct err e = {0};
    f->has_estimate = 0;
    if (!w)
        return;
    if (form_host(f) && with.kind != FORM_PRESET && with.kind != FORM_HOST && !f->error[0] &&
        form_check_presets_there(f, f->preset, &e) < 0)
        set_error(f, (struct form_row){FORM_PRESET, 0}, e.text);
    if (form_host(f) && f->name[0] && with.kind != FORM_NAME && !f->error[0] &&
        form_check_name_there(f, f->name, &e) < 0)
        set_error(f, (struct form_row){FORM_NAME, 0}, e.text);
    words_make(w, f, with, text);
    if (job_estimate(&f->estimate, w->arg, w->n, &e) == 0)
        f->has_estimate = 1;
    else if (!f->error[0] && !form_host(f)) /* which has other presets and files */
        set_error(f, row_of(f, e.text), e.text);
    words_release(w);
}

static void check_saved(struct form *f)
{
    forget_error(f);
    check_all(f, (struct form_row){FORM_SECTION, 0}, NULL);
}

/* ---- open and close ---- */

static void free_bases(struct form *f)
{
    for (size_t i = 0; i < FORM_KEYS_MAX; i++) {
        mem_free(f->base[i]);
        f->base[i] = NULL;
    }
}

static void free_choices(struct form *f)
{
    if (f->choices.name)
        fs_list_free(f->choices.name, f->choices.n);
    f->choices = (struct form_choices){0};
}

void form_close(struct form *f, struct view *v)
{
    free_bases(f);
    for (size_t i = 0; i < FORM_KEYS_MAX; i++)
        mem_free(f->value[i]);
    free_choices(f);
    field_release(&f->field);
    if (f->asked)
        form_forget_there(f);
    else if (f->is_starting)
        job_launch_release(&f->launch);
    memset(f, 0, sizeof *f);
    v->grabs = GRAB_NONE;
    v->is_dirty = 1;
}

void form_open(struct form *f, struct view *v, const char *preset)
{
    struct err e = {0};
    form_close(f, v);
    f->host = app_hosts(v->app, &f->hosts);
    form_set_host(f, f->home = form_host_first(f, v));
    f->key = job_keys(&f->keys);
    f->keys = f->keys > FORM_KEYS_MAX ? FORM_KEYS_MAX : f->keys;
    str_copy(f->preset, sizeof f->preset, preset);
    if (job_preset_values(preset, f->base, f->keys, &e) < 0 && !form_host(f)) {
        app_notify(v->app, LOG_ERROR, "%s", e.text);
        return;
    }
    f->is_open = 1;
    f->is_folded[FORM_ALL] = 1;
    f->gflops = app_is_scripted(v->app) ? 0 : job_peak();
    make_rows(f);
    f->list.cursor = 1;
    check_saved(f);
    v->grabs = GRAB_FORM;
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
    form_open(f, v, (rc == 0 || run->remote) && presets[0] ? presets : "quick");
    if (f->is_open && run->remote) {
        form_set_host(f, f->home = form_host_of(f, run->path));
        if (form_check_presets_there(f, f->preset, &ignored) < 0) /* of a file: all defaults */
            form_open(f, v, "quick");
        form_set_host(f, f->home = form_host_of(f, run->path));
    }
    for (size_t i = 0; f->is_open && i < f->keys; i++) {
        const char *value = run->remote ? form_setting_there(v, run->path, f->key[i].key)
                                        : run_row_config(run, f->key[i].key);
        if (value && strcmp(value, base_of(f, i)) != 0)
            f->value[i] = mem_strdup(value);
    }
    if (f->is_open) {
        make_rows(f);
        check_saved(f);
    }
}

/* ---- what may be typed ---- */

int form_is_path(const char *key)
{
    static const char *const paths[] = {"data.path", "data.tokenizer", "train.init",
                                        "train.teacher"};
    for (size_t i = 0; i < DS_LEN(paths); i++)
        if (strcmp(key, paths[i]) == 0)
            return 1;
    return 0;
}

static int add_choice(struct form_choices *c, size_t *cap, const char *text, size_t n)
{
    char *copy = mem_alloc(n + 1, 1);
    void *block = c->name;
    if (!copy || mem_grow(&block, cap, c->n + 1, sizeof *c->name) < 0) {
        mem_free(copy);
        return DS_EMEM;
    }
    memcpy(copy, text, n);
    c->name = block;
    c->name[c->n++] = copy;
    return 0;
}

/* Files and directories that continue the path typed so far. */
static void list_files(struct form_choices *c, size_t *cap, const char *typed)
{
    const char *slash = strrchr(typed, '/'), *part = slash ? slash + 1 : typed;
    char dir[1024] = ".", path[1024];
    char **names = NULL;
    size_t n = 0;
    int stem = slash ? (int)(slash - typed) + 1 : 0;
    if (slash && stem < (int)sizeof dir)
        snprintf(dir, sizeof dir, "%.*s", stem, typed);
    if (fs_list(dir, &names, &n, NULL) < 0)
        return;
    for (size_t i = 0; i < n; i++) {
        if (strncmp(names[i], part, strlen(part)) != 0 || (names[i][0] == '.' && part[0] != '.'))
            continue;
        int len = snprintf(path, sizeof path - 1, "%.*s%s", stem, typed, names[i]);
        if (len < 0 || (size_t)len >= sizeof path - 1)
            continue;
        if (fs_is_dir(path))
            path[len++] = '/', path[len] = '\0';
        if (add_choice(c, cap, path, (size_t)len) < 0)
            break;
    }
    fs_list_free(names, n);
}

static void list_words(struct form_choices *c, size_t *cap, const char *const *word, size_t n,
                       const char *typed)
{
    for (size_t i = 0; i < n; i++)
        if (strstr(word[i], typed))
            (void)!add_choice(c, cap, word[i], strlen(word[i]));
}

/* "a|b|c". */
static void list_split(struct form_choices *c, size_t *cap, const char *choices, const char *typed)
{
    for (const char *p = choices; *p;
         p += p[strcspn(p, "|")] == '|' ? strcspn(p, "|") + 1 : strcspn(p, "|")) {
        size_t n = strcspn(p, "|");
        if (strncmp(p, typed, strlen(typed) < n ? strlen(typed) : n) == 0 && strlen(typed) <= n)
            (void)!add_choice(c, cap, p, n);
    }
}

/* is_first: the saved value is in the field, so nothing is filtered by it. */
static void make_choices(struct form *f, int is_first)
{
    struct form_row r = form_at(f);
    const char *typed = str_text(&f->field.text), *word[64];
    size_t cap = 0;
    free_choices(f);
    if (r.kind == FORM_HOST) {
        char label[sizeof f->where];
        for (size_t k = 0; k <= f->hosts; k++) {
            word[0] = form_host_label(f, k, label, sizeof label);
            list_words(&f->choices, &cap, word, 1, is_first ? "" : typed);
        }
    } else if (r.kind == FORM_PRESET && form_host(f) && host_info(form_host(f)).presets[0]) {
        const char *last = strrchr(typed, ' ');
        char *all = mem_strdup(host_info(form_host(f)).presets);
        size_t n = all ? job_split_words(all, word, DS_LEN(word)) : 0;
        list_words(&f->choices, &cap, word, n, is_first ? "" : last ? last + 1 : typed);
        mem_free(all);
    } else if (r.kind == FORM_PRESET) {
        char **names = NULL;
        size_t n = 0;
        const char *last = strrchr(typed, ' ');
        if (job_presets(&names, &n, NULL) == 0)
            list_words(&f->choices, &cap, (const char *const *)names, n,
                       is_first ? ""
                       : last   ? last + 1
                                : typed);
        fs_list_free(names, n);
    } else if (r.kind == FORM_KEY && strcmp(f->key[r.at].key, "model.method") == 0) {
        list_words(&f->choices, &cap, word, job_methods(word, DS_LEN(word)), is_first ? "" : typed);
    } else if (r.kind == FORM_KEY && form_is_path(f->key[r.at].key)) {
        if (form_host(f))
            return; /* its files are not known here */
        list_files(&f->choices, &cap, fs_exists(typed) || !is_first ? typed : "");
    } else if (r.kind == FORM_KEY && f->key[r.at].choices) {
        list_split(&f->choices, &cap, f->key[r.at].choices, is_first ? "" : typed);
    }
}

/* Puts a choice into the field; for presets it replaces the last word. */
static void take_choice(struct form *f, size_t i)
{
    struct form_row r = form_at(f);
    const char *typed = str_text(&f->field.text), *last = strrchr(typed, ' ');
    struct str text = {0};
    if (r.kind == FORM_PRESET && last)
        str_add_bytes(&text, typed, (size_t)(last - typed) + 1);
    str_add(&text, f->choices.name[i]);
    field_set(&f->field, str_text(&text));
    str_release(&text);
}

/* ---- editing ---- */

/* Checks the text of the open field by itself: 0, or DS_* with the reason. */
static int check_text(const struct form *f, struct form_row r, const char *text, struct err *e)
{
    size_t k;
    if (r.kind == FORM_HOST)
        return form_host_find(f, text, &k, e);
    if (r.kind == FORM_NAME && form_host(f))
        return text[0] ? form_check_name_there(f, text, e) : 0;
    if (r.kind == FORM_NAME)
        return text[0] ? job_check_name(text, e) : 0;
    if (r.kind == FORM_PRESET && form_host(f))
        return form_check_presets_there(f, text, e);
    if (r.kind == FORM_PRESET) {
        char **probe = mem_alloc(1, sizeof *probe);
        int rc = !text[strspn(text, " ")] ? err_set(e, DS_EUSAGE, "preset: expected a name")
                 : probe                  ? job_preset_values(text, probe, 1, e)
                                          : err_set(e, DS_EMEM, "preset: out of memory");
        mem_free(probe ? probe[0] : NULL);
        mem_free(probe);
        return rc;
    }
    return strcmp(text, base_of(f, r.at)) == 0 ? 0 : job_check_value(f->key[r.at].key, text, e);
}

/* After every change of the open field. */
static void typed(struct form *f)
{
    struct form_row r = form_at(f);
    struct err e = {0};
    const char *text = str_text(&f->field.text);
    forget_error(f);
    if (check_text(f, r, text, &e) < 0) {
        set_error(f, r, e.text);
        f->has_estimate = 0;
    } else {
        check_all(f, r, text);
    }
}

static void edit_begin(struct form *f)
{
    struct form_row r = form_at(f);
    if (r.kind == FORM_SECTION) {
        fold(f, r.at, !f->is_folded[r.at]);
        return;
    }
    if (f->is_starting)
        return;
    f->is_editing = 1;
    field_set(&f->field, form_row_value(f, &r));
    make_choices(f, 1);
}

static void edit_end(struct form *f)
{
    f->is_editing = 0;
    free_choices(f);
    make_rows(f);
    check_saved(f);
}

static int keep_preset(struct form *f, const char *text, struct err *e)
{
    char **base = mem_alloc(FORM_KEYS_MAX, sizeof *base);
    int rc = base ? job_preset_values(text, base, f->keys, e)
                  : err_set(e, DS_EMEM, "preset: out of memory");
    if (base && rc < 0 && form_host(f))
        rc = 0; /* known there only: what it sets is not shown */
    if (rc == 0) {
        free_bases(f);
        memcpy(f->base, base, FORM_KEYS_MAX * sizeof *base);
        str_copy(f->preset, sizeof f->preset, text);
    }
    mem_free(base);
    return rc;
}

/* Saves the typed value if it is valid; else the field stays open and shows the error.  1 =
 * saved. */
static int edit_keep(struct form *f)
{
    struct form_row r = form_at(f);
    const char *text = str_text(&f->field.text);
    struct err e = {0};
    size_t there = 0;
    int rc = check_text(f, r, text, &e);
    if (rc == 0 && r.kind == FORM_HOST) {
        rc = form_host_find(f, text, &there, &e);
        form_set_host(f, there);
        if (rc == 0 && keep_preset(f, f->preset, &e) < 0)
            free_bases(f); /* of a preset that is not here */
    } else if (rc == 0 && r.kind == FORM_NAME) {
        str_copy(f->name, sizeof f->name, text);
    } else if (rc == 0 && r.kind == FORM_PRESET) {
        rc = keep_preset(f, text, &e);
    } else if (rc == 0) {
        int is_base = strcmp(text, base_of(f, r.at)) == 0;
        char *copy = is_base ? NULL : mem_strdup(text);
        if (!is_base && !copy)
            return 0;
        mem_free(f->value[r.at]);
        f->value[r.at] = copy;
    }
    if (rc < 0) {
        set_error(f, r, e.text);
        return 0;
    }
    edit_end(f);
    return 1;
}

int form_search(struct form *f, const char *text, int direction)
{
    struct form_row r = form_at(f);
    static const struct form_row first[] = {{FORM_NAME, 0}, {FORM_HOST, 0}, {FORM_PRESET, 0}};
    size_t n = f->keys + DS_LEN(first), from = 0;
    while (from < DS_LEN(first) && r.kind != FORM_SECTION && first[from].kind != r.kind)
        from++;
    from += r.kind == FORM_KEY ? r.at : 0;
    for (size_t k = 1; k <= n; k++) {
        size_t i = direction > 0 ? (from + k) % n : (from + n - k) % n;
        struct form_row to =
            i < DS_LEN(first) ? first[i] : (struct form_row){FORM_KEY, i - DS_LEN(first)};
        int is_shown = to.kind != FORM_HOST || f->hosts > 0;
        if (to.kind == FORM_KEY)
            (void)section_of(f, to.at, &is_shown);
        if (is_shown && strstr(form_row_name(f, &to), text)) {
            go_to(f, to);
            return 1;
        }
    }
    return 0;
}

int form_subject(const struct form *f, struct subject *out)
{
    struct form_row r = form_at(f);
    if (r.kind == FORM_SECTION)
        return 0;
    str_copy(out->key, sizeof out->key, form_row_name(f, &r));
    const char *value = form_row_value(f, &r);
    str_copy(out->text, sizeof out->text,
             r.kind == FORM_NAME && !value[0] ? "automatic" : value);
    str_copy(out->where, sizeof out->where,
             r.kind == FORM_KEY && f->value[r.at] ? "setting of the new run, changed here"
                                                  : "setting of the new run");
    out->help = r.kind == FORM_NAME     ? "name of the run and of its directory"
                : r.kind == FORM_HOST   ? "machine that the run starts on"
                : r.kind == FORM_PRESET ? "named settings that the run starts from"
                                        : NULL;
    out->record = "config.yaml, when the run starts";
    return 1;
}

/* ---- starting ---- */

static void show_error(struct form *f, const char *text)
{
    set_error(f, row_of(f, text), text);
    if (f->wrong.kind != FORM_SECTION)
        go_to(f, f->wrong);
}

static void start(struct form *f, struct view *v)
{
    struct words *w = f->is_starting ? NULL : mem_alloc(1, sizeof *w);
    struct err e = {0};
    if (!w)
        return;
    forget_error(f);
    words_make(w, f, (struct form_row){FORM_SECTION, 0}, NULL);
    if (w->failed) {
        show_error(f, "out of memory for the settings");
        words_release(w);
        return;
    }
    if (form_host(f)) {
        int rc = form_start_there(f, v, w->arg + (w->n - w->texts), w->texts, &e);
        if (rc < 0)
            show_error(f, e.text);
        f->is_starting = rc == 0;
        words_release(w);
        return;
    }
    int rc = job_check(w->arg, w->n, &e);
    if (rc == 0 && f->name[0])
        rc = job_check_name(f->name, &e);
    if (rc == 0)
        rc = job_launch_named(&f->launch, f->name, w->arg, w->n, &e);
    if (rc < 0)
        show_error(f, e.text);
    else
        app_notify(v->app, LOG_INFO, "run %s is starting", f->launch.name);
    f->is_starting = rc == 0;
    words_release(w);
}

int form_poll(struct form *f, struct view *v, char *path, size_t size)
{
    char words[400];
    double end = clock_mono() + 60;
    if (f->is_open && !(f->gflops > 0) && !app_is_scripted(v->app)) {
        f->gflops = job_peak();
        v->is_dirty |= f->gflops > 0;
    }
    if (!f->is_starting)
        return 0;
    enum launch_state state = f->asked ? form_state_there(f, words, sizeof words)
                                       : job_launch_state(&f->launch, words, sizeof words);
    while (app_is_scripted(v->app) && state == LAUNCH_STARTING && clock_mono() < end) {
        clock_sleep(0.02); /* a key script is not polled again, so it waits here */
        state = job_launch_state(&f->launch, words, sizeof words);
    }
    if (state == LAUNCH_STARTING)
        return 0;
    job_launch_release(&f->launch);
    f->is_starting = 0;
    f->asked = 0;
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

/* Up, Down and Tab in a field with choices; 1 = taken. */
static int choices_event(struct form *f, const struct event *ev)
{
    struct form_choices *c = &f->choices;
    if (c->n == 0 || ev->kind != EVENT_KEY)
        return 0;
    if (ev->key == KEYCODE_DOWN || ev->key == KEYCODE_UP) {
        c->list.n = c->n;
        if (c->is_chosen)
            list_move(&c->list, ev->key == KEYCODE_DOWN ? 1 : -1);
        c->is_chosen = 1;
        return 1;
    }
    if (ev->key != KEYCODE_TAB)
        return 0;
    take_choice(f, c->is_chosen ? c->list.cursor : 0);
    make_choices(f, 0);
    typed(f);
    return 1;
}

static void edit_enter(struct form *f)
{
    if (f->choices.n && f->choices.is_chosen) {
        take_choice(f, f->choices.list.cursor);
        const char *text = str_text(&f->field.text);
        typed(f);
        make_choices(f, 0);
        if (text[0] && text[strlen(text) - 1] == '/' && f->choices.n)
            return; /* into the directory */
    }
    edit_keep(f);
}

static int edit_event(struct form *f, const struct event *ev)
{
    int by = 0;
    if (choices_event(f, ev))
        return 1;
    if (ev->kind == EVENT_KEY) {
        switch (ev->key) {
        case KEYCODE_ESC: edit_end(f); return 1;
        case KEYCODE_ENTER: edit_enter(f); return 1;
        case KEYCODE_TAB:
        case KEYCODE_DOWN: by = 1; break;
        case KEYCODE_BACKTAB:
        case KEYCODE_UP: by = -1; break;
        default: break;
        }
    }
    if (by == 0 && field_event(&f->field, ev)) {
        make_choices(f, 0);
        typed(f);
    } else if (by && edit_keep(f)) {
        list_move(&f->list, by);
        if (ev->key == KEYCODE_TAB && form_at(f).kind != FORM_SECTION)
            edit_begin(f);
    }
    return 1;
}

static int mouse_event(struct form *f, const struct event *ev)
{
    struct form_choices *c = &f->choices;
    int y = ev->y - f->above, row = ev->y - c->above;
    if (ev->action != MOUSE_PRESS)
        return 1;
    if (f->is_editing && c->rows.rows && row >= 0 && row < c->rows.rows) {
        c->list.cursor = c->list.top + (size_t)row;
        c->is_chosen = 1;
        edit_enter(f);
        return 1;
    }
    size_t at = f->list.top + (size_t)y;
    if (y < 0 || y >= f->rows.rows || at >= f->list.n || (f->is_editing && !edit_keep(f)))
        return 1;
    f->list.cursor = at;
    if (ev->is_double || f->row[at].kind == FORM_SECTION)
        edit_begin(f);
    return 1;
}

static void reset_row(struct form *f)
{
    struct form_row r = form_at(f);
    if (f->is_starting)
        return;
    if (r.kind == FORM_NAME)
        f->name[0] = '\0';
    if (r.kind == FORM_HOST)
        form_set_host(f, f->home);
    if (r.kind == FORM_KEY) {
        mem_free(f->value[r.at]);
        f->value[r.at] = NULL;
    }
    make_rows(f);
    check_saved(f);
}

static int key_event(struct form *f, struct view *v, uint32_t key)
{
    struct form_row r = form_at(f);
    switch (key) {
    case KEYCODE_ESC:
    case 'q': leave(f, v); return 1;
    case KEYCODE_ENTER:
    case ' ': edit_begin(f); return 1;
    case KEYCODE_LEFT:
    case 'h':
    case KEYCODE_RIGHT:
    case 'l':
        if (r.kind == FORM_SECTION)
            fold(f, r.at, key == KEYCODE_LEFT || key == 'h');
        return 1;
    case 'x': reset_row(f); return 1;
    case 'r':
        if (app_is_readonly(v->app))
            app_notify(v->app, LOG_WARN, "read-only mode: runs cannot be started");
        else
            start(f, v);
        return 1;
    default: /* only these global keys: any other would act on the list below the form */
        return !(key < 0x80 && strchr("/nN?:g=", (int)key)) && key != (KEYCODE_CTRL | 'l') &&
               key != (KEYCODE_CTRL | 'z');
    }
}

int form_event(struct form *f, struct view *v, const struct event *ev)
{
    if (f->is_editing && ev->kind != EVENT_MOUSE)
        return edit_event(f, ev);
    if (!f->is_editing && list_event(&f->list, ev))
        return 1;
    if (ev->kind == EVENT_MOUSE)
        return mouse_event(f, ev);
    return ev->kind == EVENT_KEY ? key_event(f, v, ev->key) : 1;
}
