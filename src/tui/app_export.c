/* Exports: figures through the program's own `figure` command, text through OSC 52. */
#include <string.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/utf8.h"
#include "tui/appstate.h"

void app_export(struct app *app)
{
    const struct view_ops *ops = app_focused(app);
    const char *argv[APP_RUNS_MAX + VIEW_WORDS + 8];
    struct child_setup how = {.program = app->opt.program,
                              .argv = argv,
                              .in = CHILD_NULL,
                              .out = CHILD_PIPE,
                              .err = CHILD_SAME,
                              .is_nonblocking = 1,
                              .is_session = 1};
    struct err e = {0};
    int n = 0;
    struct view *v = app_focused_view(app);
    enum figure_runs of = FIGURE_OF_SHOWN;
    int words = ops && ops->figure_words && v ? ops->figure_words(v, argv + 2, &of) : 0;
    if (words < 0)
        return;
    if (!ops || !(ops->figure || words > 0) || !app->runs) {
        app_notify(app, LOG_WARN, "this view has no figure to export");
        return;
    }
    if (app->export.pid > 0) {
        app_notify(app, LOG_WARN, "the previous export is still running");
        return;
    }
    argv[n++] = "depthscope";
    argv[n++] = "figure";
    if (words > 0)
        n += words;
    else
        argv[n++] = ops->figure;
    int has_marks = 0;
    for (size_t i = 0; i < app->runs; i++)
        has_marks |= app->run[i].is_marked;
    for (size_t i = 0; i < app->runs; i++)
        if (of == FIGURE_OF_OPEN
                ? !has_marks || app->run[i].is_marked
                : i == app->current || (of == FIGURE_OF_SHOWN && app->run[i].is_marked))
            argv[n++] = app->run[i].path;
    argv[n++] = "-o";
    argv[n++] = "exports";
    argv[n] = NULL;
    if (child_start(&app->export, &how, &e) < 0)
        app_notify(app, LOG_ERROR, "export: %s", e.text);
    else
        app_notify(app, LOG_INFO, "drawing figure %s into exports/ ...", argv[2]);
}

/* What is there now: a child that prints a lot must not wait for us. */
static void take_output(struct child *c)
{
    int got;
    while ((got = child_tail(c, c->out)) > 0) {
    }
    if (got == 0 && c->out >= 0) {
        close(c->out);
        c->out = -1;
    }
}

void app_export_reap(struct app *app)
{
    struct child *c = &app->export;
    char why[CHILD_TAIL];
    if (c->pid <= 0)
        return;
    take_output(c);
    if (!child_poll(c))
        return;
    take_output(c);
    const char *last = child_last_line(c);
    if (child_verdict(c, why, sizeof why) == 0) {
        str_copy(app->exported, sizeof app->exported, last);
        app_notify(app, LOG_INFO, "figure written: %s", last[0] ? last : "exports/");
    } else {
        app_notify(app, LOG_ERROR, "figure failed: %s", why);
    }
    child_close(c, 0);
    *c = (struct child)CHILD_NONE;
}

const char *app_exported(const struct app *app)
{
    return app->exported;
}

const char *app_program(const struct app *app)
{
    return app->opt.program;
}

void copy_add(struct str *out, const char *data)
{
    utf8_sanitise(out, data, strlen(data), -1, 0);
}

int app_copy(struct app *app, const char *text, size_t n)
{
    enum { COPY_MAX = 65536 }; /* terminals truncate longer text */
    struct str safe = {0};
    size_t i = 0;
    if (!app->term || !app->has_clipboard)
        return 1;
    while (i < n && safe.len < COPY_MAX) {
        size_t from = i;
        while (i < n && text[i] != '\t' && text[i] != '\n')
            i++;
        utf8_sanitise(&safe, text + from, i - from, -1, 0);
        if (i < n)
            str_add_char(&safe, text[i++]);
    }
    int is_whole = i == n && safe.len <= COPY_MAX;
    if (!is_whole && !safe.failed) { /* never ends within a line, or else a character */
        size_t most = safe.len < COPY_MAX ? safe.len : COPY_MAX, end = most;
        while (end > 0 && safe.p[end - 1] != '\n')
            end--;
        safe.len = end > 0 ? end : utf8_valid(safe.p, most);
    }
    str_add(&app->extra, "\x1b]52;c;");
    base64_encode(&app->extra, str_text(&safe), safe.len);
    str_add(&app->extra, "\x07");
    str_release(&safe);
    app->is_dirty = 1;
    return is_whole;
}
