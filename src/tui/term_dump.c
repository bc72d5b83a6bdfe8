/* The workbench without a terminal: reads keys from a script and writes screens to a file.
 *
 *   # comment            keys j j G Enter C-d     type some text      click ROW COL
 *   size 80x24           command :set lr 1e-4     wheel up|down R C   shot
 *
 * A screen is its text plane and its role plane; the end of the script also writes one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "tui/appstate.h"

static void shot(struct app *app, struct str *out)
{
    app_draw(app);
    str_addf(out, "== %dx%d %s\n", app->canvas.cols, app->canvas.rows, app_focused(app)->name);
    canvas_text(&app->canvas, out);
    str_add(out, "-- roles\n");
    canvas_roles(&app->canvas, out);
}

static void send_event(struct app *app, const struct event *ev)
{
    app->say_until = 0;
    app_event(app, ev);
    app_poll_runs(app, 0.05);
    app_alerts_poll(app);
    app_poll_views(app);
    app_draw(app); /* sizes and hit zones are computed when a frame is drawn */
}

static void send_key(struct app *app, uint32_t key)
{
    struct event ev = {.kind = EVENT_KEY, .key = key};
    send_event(app, &ev);
}

static int do_keys(struct app *app, const char *p, struct err *e)
{
    while (*p) {
        size_t n = strcspn(p, " ");
        uint32_t key = n ? key_parse(p, n) : 0;
        if (n && !key)
            return err_set(e, DS_EUSAGE, "unknown key \"%.*s\"", (int)(n > 40 ? 40 : n), p);
        if (key)
            send_key(app, key);
        p += n + (p[n] == ' ');
    }
    return 0;
}

static int do_mouse(struct app *app, const char *word, const char *rest, struct err *e)
{
    struct event ev = {.kind = EVENT_MOUSE, .action = MOUSE_PRESS, .button = 1};
    if (strcmp(word, "wheel") == 0) {
        ev.action = strncmp(rest, "up", 2) == 0 ? MOUSE_WHEEL_UP : MOUSE_WHEEL_DOWN;
        rest += strcspn(rest, " ");
    }
    if (sscanf(rest, "%d %d", &ev.y, &ev.x) != 2)
        return err_set(e, DS_EUSAGE, "%s: expected ROW COLUMN", word);
    app_draw(app); /* a command before may have changed what is under the mouse */
    send_event(app, &ev);
    if (ev.action == MOUSE_PRESS) {
        ev.action = MOUSE_RELEASE;
        send_event(app, &ev);
    }
    return 0;
}

static int do_line(struct app *app, const char *line, struct str *out, struct err *e)
{
    char word[16];
    size_t n = strcspn(line, " ");
    const char *rest = line + n + (line[n] == ' ');
    snprintf(word, sizeof word, "%.*s", (int)(n > 15 ? 15 : n), line);
    if (strcmp(word, "keys") == 0)
        return do_keys(app, rest, e);
    if (strcmp(word, "click") == 0 || strcmp(word, "wheel") == 0)
        return do_mouse(app, word, rest, e);
    if (strcmp(word, "command") == 0) {
        app->say_until = 0;
        app_command(app, rest);
    } else if (strcmp(word, "type") == 0) {
        struct event ev = {.kind = EVENT_PASTE, .text = rest, .len = strlen(rest)};
        send_event(app, &ev);
    } else if (strcmp(word, "shot") == 0) {
        shot(app, out);
    } else if (strcmp(word, "size") == 0) {
        int cols, rows;
        if (!tui_parse_size(rest, &cols, &rows) || canvas_resize(&app->canvas, rows, cols) < 0)
            return err_set(e, DS_EUSAGE, "size: expected COLUMNSxROWS");
    } else if (word[0] && word[0] != '#') {
        return err_set(e, DS_EUSAGE, "unknown command \"%s\"", word);
    }
    return 0;
}

static int play_lines(struct app *app, char *text, struct str *out, struct err *e)
{
    int number = 1, rc = 0;
    for (char *line = text; line && *line && rc == 0 && !app->must_quit; number++) {
        char *end = strchr(line, '\n');
        if (end)
            *end = '\0';
        rc = do_line(app, line, out, e);
        if (rc < 0)
            err_add(e, rc, "%s:%d", app->opt.script, number);
        line = end ? end + 1 : NULL;
    }
    return rc;
}

static int prepare(struct app *app, struct err *e)
{
    int cols = 80, rows = 24;
    struct term_choice c;
    if (app->opt.size && !tui_parse_size(app->opt.size, &cols, &rows))
        return err_set(e, DS_EUSAGE, "--size=%s: expected COLUMNSxROWS, from 1x1 to %dx%d",
                       app->opt.size, CANVAS_COLS_MAX, CANVAS_ROWS_MAX);
    if (canvas_resize(&app->canvas, rows, cols) < 0)
        return err_set(e, DS_EMEM, "screen: out of memory");
    term_choose(&c, "xterm-256color", NULL, app->opt.color, NULL);
    app->canvas.look.colours = app->screen && !app->opt.color ? 1 << 24 : c.colours;
    app->canvas.look.glyphs = glyphs_choose(app->opt.glyphs, 1, "xterm-256color");
    const char *model = NULL;
    for (size_t i = 0; i < app->opt.n; i++) {
        if (app_is_model(app->opt.paths[i])) {
            model = app->opt.paths[i];
            continue;
        }
        int rc = app_open_run(app, app->opt.paths[i], e);
        if (rc < 0)
            return rc;
        if (app->opt.n > 1)
            app_mark_run(app, app->opt.paths[i], 1);
    }
    app_select_run(app, 0);
    for (int turns = 0; turns < 10000 && app_poll_runs(app, 0.2); turns++)
        ;
    app_alerts_poll(app);
    app_show(app, app->opt.view ? app->opt.view : app_first_view(app));
    app->pane[0].backs = 0;
    if (app_wants_pair(app))
        app_compare(app, app->opt.paths[0], app->opt.paths[1], app->opt.text);
    else if (model)
        app_open_model(app, model);
    app->say_until = 0;
    app_say_notices(app);
    app_draw(app);
    return 0;
}

static int is_script_word(const char *part)
{
    static const char *const word[] = {"keys", "click", "wheel", "type", "command"};
    for (size_t i = 0; i < DS_LEN(word); i++) {
        size_t n = strlen(word[i]);
        if (strncmp(part, word[i], n) == 0 && part[n] == ' ')
            return 1;
    }
    return 0;
}

static int press_part(struct app *app, const char *part, struct err *e)
{
    struct str ignored = {0};
    int rc = 0;
    if (part[0] == ':') {
        app->say_until = 0;
        app_command(app, part + 1);
    } else if (is_script_word(part)) {
        rc = do_line(app, part, &ignored, e);
    } else {
        rc = do_keys(app, part, e);
    }
    str_release(&ignored);
    return rc;
}

int app_picture(struct app *app, struct err *e)
{
    char *text = mem_strdup(app->opt.keys ? app->opt.keys : "");
    int rc = text ? prepare(app, e) : err_set(e, DS_EMEM, "keys: out of memory");
    for (char *part = text, *next; rc == 0 && part && !app->must_quit; part = next) {
        size_t n = strcspn(part, ";\n");
        next = part[n] ? part + n + 1 : NULL;
        part[n] = '\0';
        rc = press_part(app, part + strspn(part, " "), e);
        if (rc < 0)
            err_add(e, rc, "--keys");
    }
    mem_free(text);
    if (rc < 0)
        return rc;
    app_draw(app);
    return screen_take(app->screen, &app->canvas, e);
}

int app_play(struct app *app, struct err *e)
{
    struct str script = {0}, out = {0};
    int rc = fs_read_file(&script, app->opt.script, 1 << 20, e);
    if (rc == 0)
        rc = prepare(app, e);
    if (rc == 0 && script.p)
        rc = play_lines(app, script.p, &out, e);
    if (rc == 0) {
        shot(app, &out);
        if (out.failed)
            rc = err_set(e, DS_EMEM, "screens: out of memory");
        else if (app->opt.dump && strcmp(app->opt.dump, "-") != 0)
            rc = fs_write_file(app->opt.dump, out.p, out.len, e);
        else if (fwrite(out.p, 1, out.len, stdout) != out.len || fflush(stdout) != 0)
            rc = err_errno(e, "stdout");
    }
    str_release(&script);
    str_release(&out);
    return rc;
}
