/* Arbitrary keyboard input to the whole workbench, without a terminal: decoder, tables, prompts,
 * views and drawing.  Read-only and without a run directory, so nothing outside can be touched. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "io/record.h"
#include "tui/appstate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void take(void *ctx, const struct event *ev)
{
    struct app *app = ctx;
    /* quitting, exports and paths would have external effects */
    const struct view_ops *ops = app_focused(app);
    if (ev->kind == EVENT_KEY &&
        (ev->key == 'e' || ev->key == KEYCODE_ENTER || ev->key == (KEYCODE_CTRL | 'z')) &&
        (app->prompt.is_active || ev->key != KEYCODE_ENTER || strcmp(ops->name, "home") == 0))
        return;
    app_event(app, ev);
    app->must_quit = 0;
}

/* A run with a few numbers, a NaN, layers and an event, made of records. */
static void open_run(struct app *app)
{
    struct runview *run = runview_new();
    struct record *r = record_new();
    struct str frame = {0};
    for (int i = 0; run && r && i < 60; i++) {
        double layer[4] = {0.2, 1, (double)i / 60, 0.5};
        struct value body;
        struct err e;
        uint64_t seq;
        record_begin(r, i % 7 == 3 ? "layer" : i == 50 ? "event" : "metric", i, 1000 + i);
        if (i % 7 == 3)
            record_nums(r, "gate_ratio", layer, 4);
        else if (i == 50)
            record_str(r, "text", "\x1b[2J hostile");
        else
            record_num(r, "loss", i == 20 ? (double)NAN : 5.0 - i / 20.0);
        str_reset(&frame);
        if (record_end(r, (uint64_t)i, &frame, &e) == 0 &&
            record_parse(frame.p, frame.len, &seq, &body, &e) > 0)
            runview_take(run, body);
    }
    str_release(&frame);
    record_free(r);
    if (run)
        app->run[app->runs++] = (struct open_run){.view = run, .path = "fuzz"};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct app *app = mem_alloc(1, sizeof *app);
    if (!app || size > 4096)
        return mem_free(app), 0;
    app->opt.readonly = 1;
    app->opt.script = "fuzz";
    app->panes = 1;
    app->export = (struct child)CHILD_NONE;
    theme_default(&app->theme);
    app->canvas.look = (struct look){GLYPHS_BRAILLE, 256, &app->theme};
    setenv("DEPTHSCOPE_RUNS", "/nonexistent/runs", 1);
    if (canvas_resize(&app->canvas, 24, 80) == 0) {
        open_run(app);
        app_show(app, "monitor");
        app_draw(app);
        for (size_t at = 0; at < size; at += 16) {
            size_t n = size - at < 16 ? size - at : 16;
            decoder_feed(&app->decoder, data + at, n, take, app);
            decoder_flush(&app->decoder, take, app);
            if (size && data[at] % 5 == 0 &&
                canvas_resize(&app->canvas, 1 + data[at] % 40, 1 + data[at] % 100) < 0)
                break;
            app_draw(app);
        }
    }
    app_close_views(app);
    app_close_runs(app);
    app_free(app);
    return 0;
}
