/* Arbitrary answers of a served model, which may be on another machine, to the views that ask one.
 * First byte: the view, and whether Compare asks two models; second byte: how many keys follow;
 * between the keys the rest arrives, as records. */
#include "eval/session.c"

#include "base/mem.h"
#include "tui/appstate.h"
#include "tui/compare.h"
#include "tui/generate.h"
#include "tui/stepper.h"

#include "records.h"

enum { KEYS_MAX = 16, PIPE_BYTES = 60000 };
static const char *const names[] = {"stepper", "generate", "compare"};

static struct session *open_pipe(int *peer)
{
    struct session *s = mem_alloc(1, sizeof *s);
    need(s != NULL);
    *peer = fuzz_child(&s->child);
    return s;
}

static void attach(struct view *v, int which, int is_two, int peer[2])
{
    peer[1] = -1;
    if (which == 0) {
        struct stepper *s = v->state;
        s->is_started = 1;
        s->session = open_pipe(&peer[0]);
    } else if (which == 1) {
        struct generate *g = v->state;
        g->is_started = 1;
        g->session = open_pipe(&peer[0]);
    } else {
        struct compare *c = v->state;
        c->session = open_pipe(&peer[0]);
        if (is_two)
            c->other = open_pipe(&peer[1]);
    }
}

static void press(struct app *app, uint8_t k)
{
    static const uint32_t other[] = {KEYCODE_UP, KEYCODE_DOWN, KEYCODE_LEFT, KEYCODE_RIGHT};
    struct event ev = {.kind = EVENT_KEY,
                       .key = k >= ' ' && k < 127 ? k : other[k % DS_LEN(other)]};
    if (ev.key == 'e' || ev.key == 'q' || app->prompt.is_active) /* effects outside */
        return;
    app_event(app, &ev);
    app->must_quit = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str stream = {0};
    int peer[2], keys = size < 2 ? 0 : data[1] % KEYS_MAX;
    if (size < 2 + (size_t)keys)
        return 0;
    struct app *app = mem_alloc(1, sizeof *app);
    need(app != NULL);
    log_to(fuzz_hush, NULL);
    signal(SIGPIPE, SIG_IGN); /* a view may have hung up */
    app->opt.readonly = 1;
    app->panes = 1;
    app->export = (struct child)CHILD_NONE;
    theme_default(&app->theme);
    app->canvas.look = (struct look){GLYPHS_BRAILLE, 256, &app->theme};
    setenv("DEPTHSCOPE_RUNS", "/nonexistent/runs", 1);
    need(canvas_resize(&app->canvas, 40, 120) == 0);
    fuzz_frames(&stream, data + 2 + keys, size - 2 - (size_t)keys, 1);
    size_t all = stream.len < PIPE_BYTES ? stream.len : PIPE_BYTES, sent = 0;
    int which = data[0] % 3;
    app_show(app, names[which]);
    app_draw(app);
    struct view *v = app_focused_view(app);
    need(v != NULL && strcmp(v->ops->name, names[which]) == 0);
    attach(v, which, data[0] & 64, peer);
    for (int i = 0; i <= keys; i++) {
        size_t to = all * (size_t)(i + 1) / (size_t)(keys + 1);
        for (int k = 0; k < 2 && to > sent; k++)
            need(peer[k] < 0 ||
                 write(peer[k], stream.p + sent, to - sent) == (ssize_t)(to - sent) ||
                 errno == EPIPE);
        sent = to;
        v->ops->poll(v);
        app_draw(app);
        if (i < keys)
            press(app, data[2 + i]);
        if (strcmp(app_focused(app)->name, names[which]) != 0)
            break;
    }
    app_draw(app);
    app_close_views(app);
    app_close_runs(app);
    app_free(app);
    for (int k = 0; k < 2; k++)
        if (peer[k] >= 0)
            close(peer[k]);
    str_release(&stream);
    return 0;
}
