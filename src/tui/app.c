/* The workbench: start-up, event loop and shutdown. */
#include "tui/app.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "base/utf8.h"
#include "io/runlog.h"
#include "tui/appstate.h"

static const double frame_min_s = 1.0 / 30; /* keys are drawn at once, data at most at this rate */
static const double say_s = 6;
static const double shortest_s = 0.02; /* least time between two reads of the data */

/* ---- small services ---- */

void app_notify(struct app *app, enum log_level level, const char *fmt, ...)
{
    struct app_line *l = &app->line[app->lines % APP_LINES_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(l->text, sizeof l->text, fmt, ap);
    va_end(ap);
    l->level = level;
    l->time = app_now(app);
    app->lines++;
    app->say_until = app_is_scripted(app) ? 1 : clock_mono() + say_s;
    app->is_dirty = 1;
}

size_t app_lines(const struct app *app)
{
    return app->lines < APP_LINES_MAX ? app->lines : APP_LINES_MAX;
}

const struct app_line *app_line(const struct app *app, size_t i)
{
    size_t n = app_lines(app);
    return i < n ? &app->line[(app->lines - n + i) % APP_LINES_MAX] : NULL;
}

static void log_sink_say(void *ctx, enum log_level level, const char *text)
{
    if (level >= LOG_INFO)
        app_notify(ctx, level, "%s", text);
}

int app_is_readonly(const struct app *app)
{
    return app->opt.readonly;
}

int app_is_scripted(const struct app *app)
{
    return app->opt.script != NULL || app->screen != NULL;
}

/* In scripts the clock is frozen at the newest record, so that screens are reproducible. */
double app_now(const struct app *app)
{
    if (app->opt.script)
        return app->runs ? app->run[app->current].view->last_time : 0;
    return clock_wall();
}

double tui_parse_bandwidth(const char *text)
{
    char *end;
    double v = strtod(text, &end);
    double unit = *end == 'k' || *end == 'K' ? 1e3 : *end == 'M' || *end == 'm' ? 1e6 : 1;
    if (end == text || (unit > 1 && end[1]) || (unit <= 1 && *end) || !(v * unit >= 1) ||
        v * unit > 1e12)
        return -1;
    return v * unit;
}

int tui_parse_size(const char *text, int *cols, int *rows)
{
    int c, r, n = 0;
    if (sscanf(text, "%5dx%5d%n", &c, &r, &n) != 2 || text[n] || c < 1 || r < 1 ||
        c > CANVAS_COLS_MAX || r > CANVAS_ROWS_MAX)
        return 0;
    *cols = c;
    *rows = r;
    return 1;
}

/* ---- frames ---- */

static int flush_pending(struct app *app)
{
    while (app->pending_at < app->pending.len) {
        int n = tty_write(&app->tty, app->pending.p + app->pending_at,
                          app->pending.len - app->pending_at);
        if (n < 0)
            return n;
        if (n == 0)
            return 0;
        app->pending_at += (size_t)n;
    }
    str_renew(&app->pending);
    app->pending_at = 0;
    return 0;
}

/* Averages the bytes per second over about two seconds, for the status line and the link budget. */
static void account(struct app *app, size_t bytes, double now)
{
    app->bytes_sent += bytes;
    app->rate_bytes += bytes;
    if (now - app->rate_time >= 2) {
        app->link_rate = (double)app->rate_bytes / (now - app->rate_time);
        app->rate_bytes = 0;
        app->rate_time = now;
    }
    double wait = app->opt.link_bytes_s > 0 ? (double)bytes / app->opt.link_bytes_s : 0;
    app->next_frame = now + (wait > frame_min_s ? wait : frame_min_s);
}

static int send_frame(struct app *app, struct err *e)
{
    struct str frame = {0};
    app_draw(app);
    graphics_begin(&app->graphics, app->term, &app->canvas, &frame);
    int rc = term_render(app->term, &app->canvas, &frame, e);
    if (rc == 0)
        graphics_end(&app->graphics, &frame);
    if (rc < 0) {
        str_release(&frame);
        return rc;
    }
    int is_bracketed = app->decoder.sync_output > 0 && frame.len > 64;
    if (is_bracketed)
        str_add(&app->pending, "\x1b[?2026h");
    str_add_bytes(&app->pending, str_text(&frame), frame.len);
    if (is_bracketed)
        str_add(&app->pending, "\x1b[?2026l");
    str_add_bytes(&app->pending, str_text(&app->extra), app->extra.len);
    str_renew(&app->extra);
    str_release(&frame);
    app->is_dirty = 0;
    account(app, app->pending.len, clock_mono());
    return flush_pending(app) < 0 ? err_set(e, DS_EIO, "terminal: hung up") : 0;
}

/* ---- the terminal's background ---- */

static int is_light(int rgb)
{
    return (rgb >> 16 & 255) * 299 + (rgb >> 8 & 255) * 587 + (rgb & 255) * 114 > 128000;
}

/* A theme that leaves the background to the terminal is readable only on one of its kind; on any
 * other, and a light one on an unknown background, its own is painted. */
void app_fit_theme(struct app *app)
{
    struct colour *b = &app->theme.role[ROLE_BACKGROUND];
    int known = app->decoder.background, light = app->theme.is_light;
    if (b->rgb >= 0 || b->ansi >= 0 || (known >= 0 ? is_light(known) == light : !light))
        return;
    b->rgb = light ? 0xFFFFFF : 0x14181E;
    b->ansi = light ? 15 : 0;
}

/* The reply to OSC 11 arrived: the default theme follows it. */
static void take_background(struct app *app)
{
    struct theme t;
    struct str wrong = {0};
    if (app->decoder.background == app->background)
        return;
    app->background = app->decoder.background;
    int is_chosen = app->opt.theme || app->has_chosen_theme; /* its warnings were shown then */
    const char *name = is_chosen ? app->theme.name : is_light(app->background) ? "light" : "dark";
    if (theme_load(&t, app->opt.theme && !app->has_chosen_theme ? app->opt.theme : name,
                   is_chosen ? NULL : &wrong, NULL) == 0) {
        app->theme = t;
        theme_warn(&wrong);
    }
    str_release(&wrong);
    app_fit_theme(app);
    term_theme_changed(app->term);
    app->is_dirty = 1;
}

/* ---- the loop ---- */

static void take_event(void *ctx, const struct event *ev)
{
    struct app *app = ctx;
    struct event e = *ev;
    double now = clock_mono();
    if (e.kind == EVENT_MOUSE && (e.action == MOUSE_PRESS || e.action == MOUSE_DRAG) && e.button != 1)
        return; /* the middle and the right one are the terminal's */
    if (e.kind == EVENT_MOUSE && e.action == MOUSE_PRESS) {
        e.is_double = now - app->last_press_time < 0.4 && app->last_press.y == e.y &&
                      app->last_press.x == e.x;
        app->last_press = e;
        app->last_press_time = e.is_double ? 0 : now;
    }
    if (app->say_until > 0 && e.kind == EVENT_KEY && !app->prompt.is_active) {
        app->say_until = 0; /* a key press dismisses the message */
        app->is_dirty = 1;
    }
    app_event(app, &e);
}

static int take_input(struct app *app, struct err *e)
{
    char buf[4096];
    for (int turns = 0; turns < 64; turns++) {
        int n = tty_read(&app->tty, buf, sizeof buf);
        if (n < 0)
            return err_set(e, DS_EIO, "terminal: hung up");
        if (n == 0)
            break;
        int before = graphics_answers(&app->decoder);
        decoder_feed(&app->decoder, buf, (size_t)n, take_event, app);
        app->is_dirty |= graphics_answers(&app->decoder) != before;
        app->next_frame = app->opt.link_bytes_s > 0 ? app->next_frame : 0;
    }
    take_background(app);
    return 0;
}

static void take_signals(struct app *app)
{
    int flags = tty_signals(&app->tty);
    if (flags & TTY_TERM) {
        app->must_quit = 1;
        app->exit_code = DS_ESTOP;
    }
    if (flags & TTY_CHILD) {
        app_export_reap(app);
        app_alerts_send(app);
    }
    if (flags & TTY_STOP)
        tty_suspend(&app->tty);
    if (flags & (TTY_RESIZE | TTY_STOP | TTY_CONT)) {
        int rows, cols;
        tty_size(&app->tty, &rows, &cols);
        if (rows != app->canvas.rows || cols != app->canvas.cols) {
            if (canvas_resize(&app->canvas, rows, cols) < 0)
                app->must_quit = 1;
            term_resize(app->term, rows, cols);
        } else if (flags & (TTY_STOP | TTY_CONT)) {
            term_forget(app->term);
        }
        app->is_dirty = 1;
    }
}

/* When runs are read next: soon while one has more data than one poll takes.  A readable pipe is
 * not read sooner: a fast writer keeps it readable all the time. */
static double data_due(const struct app *app)
{
    return app->data_time + (app_is_behind(app) ? shortest_s : app_has_live(app) ? 0.25 : 1.0);
}

/* An idle pipe is read at once; one just read is not polled for a while, or poll never blocks. */
static double pipes_due(const struct app *app)
{
    return app->data_time + (app_is_behind(app) ? shortest_s : 0.25);
}

static double sooner(double a, double b)
{
    return a < b ? a : b;
}

/* Milliseconds until the next timer is due. */
static int poll_timeout(const struct app *app, double now, double watch_again)
{
    double until = app->runs ? data_due(app) : app->data_time + 2.0;
    until = sooner(sooner(until, watch_again), app_views_due(app));
    until = sooner(until, app_alerts_due(app));
    if (app->is_dirty && app->pending.len == 0)
        until = sooner(until, app->next_frame);
    if (app->say_until > 0)
        until = sooner(until, app->say_until);
    if (decoder_pending(&app->decoder))
        until = sooner(until, now + 0.025);
    return until <= now ? 0 : (int)ceil((until - now) * 1000);
}

enum {
    WATCHED_FIRST = 3,
    WATCH_MAX =
        WATCHED_FIRST + APP_RUNS_MAX + APP_PANES_MAX + APP_REQUESTS_MAX + HOSTS_MAX * HOST_FDS
};

/* *again: when a descriptor that was left out of this poll is due. */
static int watch(struct app *app, struct pollfd *w, double now, double *again)
{
    int n = 0;
    double pipes = pipes_due(app), views = app->data_time + shortest_s;
    *again = HUGE_VAL;
    short out = app->pending.len ? POLLOUT : 0;
    w[n++] = (struct pollfd){.fd = app->tty.fd, .events = (short)(POLLIN | out)};
    w[n++] = (struct pollfd){.fd = app->tty.signal_fd, .events = POLLIN};
    w[n++] = (struct pollfd){.fd = app->export.pid > 0 ? app->export.out : -1, .events = POLLIN};
    for (size_t i = 0; i < app->runs; i++) {
        const struct runlog_reader *r = app->run[i].view->reader;
        int fd = r && !app->run[i].failed && !runlog_reader_at_end(r) ? runlog_reader_fd(r) : -1;
        if (fd >= 0 && now >= pipes)
            w[n++] = (struct pollfd){.fd = fd, .events = POLLIN};
        else if (fd >= 0)
            *again = sooner(*again, pipes);
    }
    for (int p = 0; p < app->panes; p++) {
        struct view *v = app->pane[p].view[app->pane[p].current];
        int fd = v && v->ops->fd ? v->ops->fd(v) : -1;
        if (fd >= 0 && now >= views)
            w[n++] = (struct pollfd){.fd = fd, .events = POLLIN};
        else if (fd >= 0)
            *again = sooner(*again, views);
    }
    n += app_watch_hosts(app, w + n);
    return n + app_watch_commands(app, w + n);
}

/* The age of a live run is shown in seconds, so its line is redrawn once a second. */
static void take_data(struct app *app, int is_ready, double now)
{
    if (now < (is_ready ? app->data_time + shortest_s : data_due(app)))
        return;
    double second = floor(app->data_time);
    app->data_time = now;
    int changed = app_poll_hosts(app);
    changed |= app_poll_runs(app, 0.05);
    changed |= app_alerts_poll(app);
    changed |= app_poll_views(app);
    if (changed || (app_has_live(app) && floor(now) > second))
        app->is_dirty = 1;
    app_export_reap(app);
}

static int turn(struct app *app, struct err *e)
{
    struct pollfd w[WATCH_MAX];
    double start = clock_mono(), again;
    int n = watch(app, w, start, &again), is_ready = 0;
    int got = poll(w, (nfds_t)n, poll_timeout(app, start, again));
    if (got < 0 && errno != EINTR)
        return err_errno(e, "poll");
    if (got > 0 && w[1].revents)
        take_signals(app);
    if (got > 0 && (w[0].revents & (POLLIN | POLLHUP | POLLERR))) {
        int rc = take_input(app, e);
        if (rc < 0)
            return rc;
        if (w[0].revents & (POLLHUP | POLLERR | POLLNVAL))
            return err_set(e, DS_EIO, "terminal: hung up");
    } else if (got == 0 && decoder_pending(&app->decoder)) {
        decoder_flush(&app->decoder, take_event, app);
    }
    if (got > 0 && w[2].revents)
        app_export_reap(app);
    for (int i = WATCHED_FIRST; got > 0 && i < n; i++)
        is_ready |= w[i].revents != 0;
    double now = clock_mono();
    take_data(app, is_ready, now);
    if (now >= app_alerts_due(app))
        app_alerts_send(app);
    if (now >= app_views_due(app) && app_poll_views(app))
        app->is_dirty = 1;
    if (app->say_until > 0 && now >= app->say_until) {
        app->say_until = 0;
        app->is_dirty = 1;
    }
    if (app->pending.len && flush_pending(app) < 0)
        return err_set(e, DS_EIO, "terminal: hung up");
    if (app->is_dirty && app->pending.len == 0 && now >= app->next_frame)
        return send_frame(app, e);
    return 0;
}

/* ---- start and end ---- */

static int open_terminal(struct app *app, struct err *e)
{
    char notice[160];
    int rows, cols;
    struct term_options o = {app->opt.color, app->opt.glyphs, app->opt.term};
    const char *name = app->opt.term ? app->opt.term : getenv("TERM");
    app->opt.no_mouse |= term_holds_escape(name, getenv("STY"), getenv("TMUX"));
    int rc = tty_open(&app->tty, name, !app->opt.no_mouse, e);
    if (rc < 0)
        return rc;
    tty_size(&app->tty, &rows, &cols);
    if (canvas_resize(&app->canvas, rows, cols) < 0)
        return err_set(e, DS_EMEM, "screen of %d x %d cells: out of memory", cols, rows);
    rc = term_open(&app->term, &o, rows, cols, notice, e);
    if (rc < 0)
        return rc;
    app->tty.margin = term_margin(app->term);
    if (app->tty.margin) {
        tty_size(&app->tty, &rows, &cols);
        term_resize(app->term, rows, cols);
        if (canvas_resize(&app->canvas, rows, cols) < 0)
            return err_set(e, DS_EMEM, "screen of %d x %d cells: out of memory", cols, rows);
    }
    term_look(app->term, &app->canvas.look);
    if (notice[0])
        app_notify(app, LOG_WARN, "%s", notice);
    /* sent once; the reply may be late or missing (decode.c swallows it) */
    app->has_clipboard = !term_is_plain(name);
    if (app->canvas.look.colours >= 256)
        str_add(&app->extra, "\x1b[?2026$p");
    if (app->has_clipboard && app->canvas.look.colours > 0)
        str_add(&app->extra, "\x1b]11;?\x07");
    app_fit_theme(app);
    app->is_dirty = 1;
    return 0;
}

static void open_paths(struct app *app)
{
    const char *model = NULL;
    app_open_hosts(app);
    for (size_t i = 0; i < app->opt.n; i++) {
        struct err e = {0};
        if (app_is_model(app->opt.paths[i]))
            model = app->opt.paths[i];
        else if (app_open_run(app, app->opt.paths[i], &e) < 0)
            app_notify(app, LOG_ERROR, "%s", e.text);
        else if (app->opt.n > 1)
            app_mark_run(app, app->opt.paths[i], 1);
    }
    if (app->runs)
        app_select_run(app, 0);
    const char *kept = app_recall(app, "app.view");
    const char *first = app->opt.view             ? app->opt.view
                        : !app->runs              ? "home"
                        : kept && view_find(kept) ? kept
                                                  : app_first_view(app);
    app_show(app, first);
    app->pane[0].backs = 0;
    if (app_wants_pair(app))
        app_compare(app, app->opt.paths[0], app->opt.paths[1], app->opt.text);
    else if (model)
        app_open_model(app, model);
    app_say_notices(app);
}

/* A picture is not written on: who asks for it prints the warnings. */
void app_say_notices(struct app *app)
{
    if (!app->screen)
        theme_warn(&app->theme_warnings);
    if (app->opt.notice)
        app_notify(app, LOG_WARN, "%s", app->opt.notice);
}

void app_free(struct app *app)
{
    app_prompt_release(app);
    app_picker_release(app);
    app_memory_release(app);
    decoder_release(&app->decoder);
    str_release(&app->pending);
    str_release(&app->extra);
    str_release(&app->theme_warnings);
    canvas_release(&app->canvas);
    mem_free(app);
}

static void close_all(struct app *app)
{
    app_state_save(app);
    app_close_views(app);
    app_close_runs(app);
    app_close_hosts(app);
    app_alerts_close(app);
    log_to(NULL, NULL);
    app_free(app);
}

void tui_list_views(struct str *out)
{
    for (int i = 0; view_registry[i]; i++)
        str_addf(out, "%s%s", i ? ", " : "", view_registry[i]->name);
}

int tui_check_view(const char *name, struct err *e)
{
    if (view_find(name))
        return 0;
    char hint[NEAREST_MAX + 32];
    struct nearest best = nearest_to(name);
    for (int i = 0; view_registry[i]; i++)
        nearest_try(&best, view_registry[i]->name);
    return err_set(e, DS_EUSAGE, "unknown view \"%s\"%s; see depthscope help workbench", name,
                   nearest_hint(&best, hint, sizeof hint));
}

static int check_options(const struct tui_options *o, struct err *e)
{
    static const char *const colors[] = {"auto", "never", "16", "256", "truecolor"};
    static const char *const glyphs[] = {"auto", "braille", "shades", "ascii"};
    int is_color = !o->color, is_glyphs = !o->glyphs;
    for (size_t i = 0; i < DS_LEN(colors); i++)
        is_color |= o->color && strcmp(o->color, colors[i]) == 0;
    for (size_t i = 0; i < DS_LEN(glyphs); i++)
        is_glyphs |= o->glyphs && strcmp(o->glyphs, glyphs[i]) == 0;
    if (!is_color)
        return err_set(e, DS_EUSAGE, "--color=%s: expected auto, never, 16, 256 or truecolor",
                       o->color);
    if (!is_glyphs)
        return err_set(e, DS_EUSAGE, "--glyphs=%s: expected auto, braille, shades or ascii",
                       o->glyphs);
    return o->view ? tui_check_view(o->view, e) : 0;
}

static int app_new(struct app **out, const struct tui_options *o, struct err *e)
{
    int rc = check_options(o, e);
    if (rc < 0)
        return rc;
    struct app *app = mem_alloc(1, sizeof *app);
    if (!app)
        return err_set(e, DS_EMEM, "workbench: out of memory");
    utf8_locale_begin();
    app->opt = *o;
    app->panes = 1;
    app->export = (struct child)CHILD_NONE;
    app->decoder.background = app->background = -1;
    app->canvas.cursor_y = app->canvas.cursor_x = -1;
    theme_default(&app->theme);
    log_to(log_sink_say, app);
    app_alerts_open(app);
    if (o->theme)
        rc = theme_load(&app->theme, o->theme, &app->theme_warnings, e);
    if (rc < 0)
        close_all(app);
    else
        *out = app;
    return rc;
}

static int run_terminal(struct app *app, struct err *e)
{
    struct str exit_text = {0}, ignored = {0};
    int rc = open_terminal(app, e);
    if (rc == 0)
        open_paths(app);
    while (rc == 0 && !app->must_quit)
        rc = turn(app, e);
    if (app->term)
        term_exit_text(app->term, &ignored);
    str_release(&ignored);
    term_close(app->term);
    if (app->tty.fd > 0)
        tty_close(&app->tty);
    app_exit_note(app, &exit_text);
    if (rc == 0 && app->exit_code)
        rc = err_set(e, app->exit_code, "terminated by a signal");
    close_all(app);
    if (exit_text.len) /* printed after the terminal is restored */
        log_info("%s", str_text(&exit_text));
    str_release(&exit_text);
    return rc;
}

int tui_run(const struct tui_options *o, struct err *e)
{
    struct app *app = NULL;
    int rc = app_new(&app, o, e);
    if (rc < 0)
        return rc;
    if (!o->script)
        return run_terminal(app, e);
    rc = app_play(app, e);
    close_all(app);
    return rc;
}

int screen_make(struct screen *s, const struct tui_options *o, struct err *e)
{
    struct tui_options own = *o;
    struct app *app = NULL;
    own.script = NULL;
    int rc = app_new(&app, &own, e);
    if (rc < 0)
        return rc;
    app->screen = s;
    rc = app_picture(app, e);
    struct str wrong = app->theme_warnings;
    app->theme_warnings = (struct str){0};
    close_all(app);
    if (rc == 0)
        theme_warn(&wrong);
    str_release(&wrong);
    return rc;
}
