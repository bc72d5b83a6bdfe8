/* The key table of all views. */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "training/job.h"
#include "tui/appstate.h"

static void key_help(struct view *v, const struct key *k, const char *args)
{
    (void)k, (void)args;
    v->app->has_help = 1;
    v->app->help_scroll.top = 0;
}

static void key_explain(struct view *v, const struct key *k, const char *args)
{
    (void)k;
    app_explain(v->app, args);
}

static void key_quit(struct view *v, const struct key *k, const char *args)
{
    (void)k, (void)args;
    v->app->must_quit = 1;
}

static void key_command_line(struct view *v, const struct key *k, const char *args)
{
    (void)k;
    app_open_command(v->app, args ? args : "");
}

static void search(struct view *v, int direction)
{
    struct app *app = v->app;
    if (!app->search[0])
        app_notify(app, LOG_INFO, "no search yet: / starts one");
    else if (!v->ops->search)
        app_notify(app, LOG_INFO, "%s: search is not supported in this view", v->ops->title);
    else if (!v->ops->search(v, app->search, direction))
        app_notify(app, LOG_WARN, "not found: %s", app->search);
}

static void search_done(void *ctx, const char *text)
{
    struct app *app = ctx;
    struct view *v = app_focused_view(app);
    if (!text || !v)
        return;
    if (*text)
        str_copy(app->search, sizeof app->search, text);
    search(v, 1);
}

static void key_search(struct view *v, const struct key *k, const char *args)
{
    (void)k;
    if (args && *args)
        search_done(v->app, args);
    else
        app_ask(v->app, "/", "", search_done, v->app);
}

static void key_search_next(struct view *v, const struct key *k, const char *args)
{
    (void)args;
    search(v, k->value);
}

static void key_focus(struct view *v, const struct key *k, const char *args)
{
    struct app *app = v->app;
    (void)args;
    app->focus = (app->focus + k->value + app->panes) % app->panes;
}

static void key_show(struct view *v, const struct key *k, const char *args)
{
    (void)args;
    int n = 0;
    while (view_registry[n])
        n++;
    if (k->value < n)
        app_show(v->app, view_registry[k->value]->name);
    else
        app_notify(v->app, LOG_INFO, "view %d does not exist; V lists all views", k->value + 1);
}

static void key_view(struct view *v, const struct key *k, const char *args)
{
    (void)k;
    if (args && *args)
        app_show(v->app, args);
    else
        app_picker_open(v->app);
}

/* The form belongs to Home, which has this command too. */
static void key_new(struct view *v, const struct key *k, const char *args)
{
    struct app *app = v->app;
    app_show(app, "home");
    struct view *home = app_focused_view(app);
    const struct key *own =
        home ? keys_command(home->ops->keys, k->command, strlen(k->command)) : NULL;
    if (own)
        app_press(app, own, args);
}

static void key_back(struct view *v, const struct key *k, const char *args)
{
    (void)k, (void)args;
    app_back(v->app);
}

static void key_split(struct view *v, const struct key *k, const char *args)
{
    (void)k, (void)args;
    app_split(v->app);
}

static void key_zoom(struct view *v, const struct key *k, const char *args)
{
    (void)args;
    v->app->is_zoomed = k->value;
}

static void key_undo(struct view *v, const struct key *k, const char *args)
{
    (void)args;
    if (!view_undo_step(v, k->value))
        app_notify(v->app, LOG_INFO,
                   k->value < 0 ? "nothing to undo in this view" : "nothing to redo in this view");
}

static void key_copy(struct view *v, const struct key *k, const char *args)
{
    struct str text = {0};
    (void)k, (void)args;
    if (v->ops->copy)
        v->ops->copy(v, &text);
    if (text.failed) {
        app_notify(v->app, LOG_ERROR, "copy: out of memory");
    } else if (text.len && v->app->term && !v->app->has_clipboard) {
        app_notify(v->app, LOG_WARN, "clipboard: unsupported by this terminal");
    } else if (text.len && !app_copy(v->app, text.p, text.len)) {
        app_notify(v->app, LOG_WARN, "copied the first lines of %zu bytes: terminals take 64 KiB",
                   text.len);
    } else if (text.len) {
        app_notify(v->app, LOG_INFO, "copied %zu bytes", text.len);
    } else {
        app_notify(v->app, LOG_INFO, "nothing to copy here");
    }
    str_release(&text);
}

static void key_export(struct view *v, const struct key *k, const char *args)
{
    (void)k, (void)args;
    app_export(v->app);
}

static void key_redraw(struct view *v, const struct key *k, const char *args)
{
    (void)k, (void)args;
    if (v->app->term)
        term_forget(v->app->term);
}

static void key_suspend(struct view *v, const struct key *k, const char *args)
{
    (void)k, (void)args;
    if (!v->app->term)
        return;
    tty_suspend(&v->app->tty);
    term_forget(v->app->term);
}

static void key_glyphs(struct view *v, const struct key *k, const char *args)
{
    (void)k;
    static const char *const known[] = {"braille", "shades", "ascii", "auto"};
    struct app *app = v->app;
    struct look at_start = {.glyphs = glyphs_choose(app->opt.glyphs, 1, "")};
    size_t i = 0;
    if (!args || !*args) {
        app->has_glyph_test = 1;
        return;
    }
    if (app->term)
        term_look(app->term, &at_start);
    while (i < DS_LEN(known) && strcmp(known[i], args) != 0)
        i++;
    if (i == DS_LEN(known))
        app_notify(app, LOG_WARN, "glyphs %.40s: expected braille, shades or ascii", args);
    else
        app->canvas.look.glyphs =
            strcmp(args, "auto") == 0 ? at_start.glyphs : glyphs_choose(args, 1, "");
}

static void key_theme(struct view *v, const struct key *k, const char *args)
{
    struct app *app = v->app;
    struct err e = {0};
    char **names = NULL;
    size_t n = 0, at = 0;
    struct str wrong = {0};
    (void)k;
    const char *pick = args && *args ? args : NULL;
    if (!pick && theme_list(&names, &n, &e) == 0 && n > 0) {
        while (at < n && strcmp(names[at], app->theme.name) != 0)
            at++;
        pick = names[(at + 1) % n];
    }
    struct theme next;
    int rc = pick ? theme_load(&next, pick, &wrong, &e) : DS_ENOTFOUND;
    if (names)
        fs_list_free(names, n);
    if (rc < 0) {
        app_notify(app, LOG_WARN, "%s", e.text[0] ? e.text : "no themes found");
        str_release(&wrong);
        return;
    }
    app->theme = next;
    app->has_chosen_theme = 1;
    if (app->term)
        app_fit_theme(app);
    if (app->term)
        term_theme_changed(app->term);
    app_notify(app, LOG_INFO, "theme: %s", app->theme.name);
    theme_warn(&wrong);
    str_release(&wrong);
}

static void key_run(struct view *v, const struct key *k, const char *args)
{
    struct app *app = v->app;
    (void)args;
    if (app->runs)
        app_select_run(app, (app->current + (size_t)((int)app->runs + k->value)) % app->runs);
}

const char *app_path(struct app *app, const char *given, char *room, size_t size)
{
    const char *there = fs_exists(given) ? NULL : app_path_there(app, given);
    if (there)
        return there;
    return job_find(room, size, given, NULL) > 0 ? room : given;
}

static void key_open(struct view *v, const struct key *k, const char *args)
{
    struct err e = {0};
    char path[1100];
    (void)k;
    if (!args || !*args)
        app_open_command(v->app, "open ");
    else if (app_open(v->app, app_path(v->app, args, path, sizeof path), &e) < 0)
        app_notify(v->app, LOG_ERROR, "%s", e.text);
}

/* From any view; Compare has a row of this name for itself. */
static void key_compare(struct view *v, const struct key *k, const char *args)
{
    struct app *app = v->app;
    app_show(app, k->command);
    app_press_command(app, k->command, args);
}

/* ---- commands to the run ---- */

static void stop_now(void *ctx)
{
    app_run_command(ctx, "stop");
}

static void key_stop(struct view *v, const struct key *k, const char *args)
{
    char question[256];
    const struct runview *r = app_run(v->app);
    (void)args;
    if (!app_is_growing(v->app)) { /* nothing to ask about */
        app_notify(v->app, LOG_WARN, "no running run is open: nothing to stop");
        return;
    }
    if (!app_takes(v->app, k)) { /* says why */
        app_run_command(v->app, "stop");
        return;
    }
    int saves = r && runview_config(r, "model.method"); /* other programs stop as they like */
    snprintf(question, sizeof question,
             saves ? "Save a checkpoint and stop run %s?" : "Stop run %s?",
             r && r->name ? r->name : "?");
    app_confirm(v->app, question, stop_now, v->app);
}

/* Commands that reach the run under the name that they have here. */
static void key_control(struct view *v, const struct key *k, const char *args)
{
    (void)args;
    app_run_command(v->app, k->command);
}

static void key_set(struct view *v, const struct key *k, const char *args)
{
    char line[512];
    if (!args || !strchr(args, ' ')) {
        snprintf(line, sizeof line, "set %s", args ? args : "");
        app_open_command(v->app, line);
        return;
    }
    (void)k;
    snprintf(line, sizeof line, "set %s", args);
    app_run_command(v->app, line);
}

/* clang-format off */
const struct key keys_global[] = {
    {"?",        "help",       NULL, "keys of this view",                    "keys",  90, 0, 0, key_help},
    {"=",        "explain",    "NAME", "explain the value under the cursor, or NAME", "explain", 11, 0, 0, key_explain},
    {"q",        "quit",       NULL, "quit; training continues",             "quit",  88, 0, 0, key_quit},
    {":",        "command",    NULL, "command line; Tab completes",          ":",     0,  0, 0, key_command_line},
    {"/",        "search",     "TEXT", "search in this view",               "search", 20, 0, 0, key_search},
    {"n",        "next-match", NULL, "next match",                          NULL,    0,  0, 1, key_search_next},
    {"N",        "prev-match", NULL, "previous match",                      NULL,    0,  0, -1, key_search_next},
    {"V",        "view",       "VIEW", "list all views to open one; with VIEW that one", "views", 10, 0, 0, key_view},
    {"1",        "view-1",     NULL, "first view of the bar",               NULL,    0,  0, 0, key_show},
    {"2",        "view-2",     NULL, "second view of the bar",              NULL,    0,  0, 1, key_show},
    {"3",        "view-3",     NULL, "third view of the bar",               NULL,    0,  0, 2, key_show},
    {"4",        "view-4",     NULL, "fourth view of the bar",              NULL,    0,  0, 3, key_show},
    {"5",        "view-5",     NULL, "fifth view of the bar",               NULL,    0,  0, 4, key_show},
    {"6",        "view-6",     NULL, "sixth view of the bar",               NULL,    0,  0, 5, key_show},
    {"7",        "view-7",     NULL, "seventh view of the bar",             NULL,    0,  0, 6, key_show},
    {"8",        "view-8",     NULL, "eighth view of the bar",              NULL,    0,  0, 7, key_show},
    {"9",        "view-9",     NULL, "ninth view of the bar",               NULL,    0,  0, 8, key_show},
    {"a",        "new",        "PRESET", "new run: opens the form in Home",   NULL,    0,  KEY_MUTATES, 0, key_new},
    {"Esc -",    "back",       NULL, "close, or back to the previous view", "back",  30, 0, 0, key_back},
    {"Tab",      "focus",      NULL, "next pane",                           NULL,    0,  0, 1, key_focus},
    {"S-Tab",    "focus-back", NULL, "previous pane",                       NULL,    0,  0, -1, key_focus},
    {"|",        "split",      NULL, "one, two or four panes",              "split", 25, 0, 0, key_split},
    {"+",        "zoom",       NULL, "show only this pane",                 NULL,    0,  0, 1, key_zoom},
    {"_",        "unzoom",     NULL, "show all panes",                      NULL,    0,  0, 0, key_zoom},
    {"]r",       "next-run",   NULL, "next open run",                       NULL,    0,  0, 1, key_run},
    {"[r",       "prev-run",   NULL, "previous open run",                   NULL,    0,  0, -1, key_run},
    {"",         "open",       "PATH", "open a run, log, trace or model",          NULL,    0,  0, 0, key_open},
    {"",         "compare",    "A B", "compare two runs, checkpoints, models or traces", NULL, 0, 0, 0, key_compare},
    {"u",        "undo",       NULL, "undo a setting of this view",         NULL,    0,  0, -1, key_undo},
    {"C-r",      "redo",       NULL, "redo it",                             NULL,    0,  0, 1, key_undo},
    {"y",        "copy",       NULL, "copy to the clipboard (OSC 52)",      "copy",  12, 0, 0, key_copy},
    {"e",        "export",     NULL, "save the figure of this view to exports/", "export", 14, KEY_ON_FIGURE, 0, key_export},
    {"",         "theme",      "THEME", "change the theme",                 NULL,    0,  0, 0, key_theme},
    {"C-g",      "glyphs",     "braille|shades|ascii", "show the glyph test, or set the glyphs", NULL, 0, 0, 0, key_glyphs},
    {"C-l",      "redraw",     NULL, "redraw the screen",                   NULL,    0,  0, 0, key_redraw},
    {"C-z",      "suspend",    NULL, "suspend to the shell; fg resumes",    NULL,    0,  0, 0, key_suspend},
    {"",         "pause",      NULL, "pause training",                      NULL,    0,  KEY_MUTATES | KEY_ON_RUN, 0, key_control},
    {"",         "resume",     NULL, "resume training",                     NULL,    0,  KEY_MUTATES | KEY_ON_RUN, 0, key_control},
    {"",         "checkpoint", NULL, "write a checkpoint now",              NULL,    0,  KEY_MUTATES | KEY_ON_RUN, 0, key_control},
    {"",         "probe",      NULL, "record the probe texts now",          NULL,    0,  KEY_MUTATES | KEY_ON_RUN, 0, key_control},
    {"",         "stop",       NULL, "save a checkpoint and stop the run (asks)", NULL,    0,  KEY_MUTATES | KEY_ON_RUN, 0, key_stop},
    {"",         "set",        "KEY VALUE", "change a setting of the running run", NULL, 0, KEY_MUTATES | KEY_ON_RUN, 0, key_set},
    {0},
};
/* clang-format on */
