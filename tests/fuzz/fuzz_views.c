/* Arbitrary records of a run in the workbench. First byte: the view; second and third: rows and
 * columns; the fourth: how many keys follow, which are pressed one after the other. Nothing is
 * started and nothing outside is touched. */
#include "base/mem.h"
#include "tui/appstate.h"

#include "records.h"

enum { KEYS_MAX = 16 };

static void press(struct app *app, uint32_t key)
{
    struct event ev = {.kind = EVENT_KEY, .key = key};
    const char *name = app_focused(app)->name;
    /* exports, processes and paths would have effects outside */
    if (key == 'e' || key == 'q' ||
        (key == KEYCODE_ENTER && (app->prompt.is_active || strcmp(name, "home") == 0)))
        return;
    app_event(app, &ev);
    app->must_quit = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t other[] = {KEYCODE_ENTER, KEYCODE_UP, KEYCODE_DOWN, KEYCODE_LEFT,
                                     KEYCODE_RIGHT};
    int views = 0, keys = size < 4 ? 0 : data[3] % KEYS_MAX;
    if (size < 4 + (size_t)keys)
        return 0;
    struct app *app = mem_alloc(1, sizeof *app);
    need(app != NULL);
    log_to(fuzz_hush, NULL);
    app->opt.readonly = 1;
    app->opt.script = "fuzz";
    app->panes = 1;
    app->export = (struct child)CHILD_NONE;
    theme_default(&app->theme);
    app->canvas.look = (struct look){GLYPHS_BRAILLE, 256, &app->theme};
    setenv("DEPTHSCOPE_RUNS", "/nonexistent/runs", 1);
    need(canvas_resize(&app->canvas, 1 + data[1] % 60, 1 + data[2] % 200) == 0);
    app->run[app->runs++] = (struct open_run){
        .view = fuzz_view(data + 4 + keys, size - 4 - (size_t)keys), .path = "fuzz"};
    while (view_registry[views])
        views++;
    app_show(app, view_registry[data[0] % views]->name);
    app_draw(app);
    for (int i = 0; i < keys; i++) {
        uint8_t k = data[4 + i];
        press(app, k >= ' ' && k < 127 ? k : other[k % DS_LEN(other)]);
        app_draw(app);
    }
    app_close_views(app);
    app_close_runs(app);
    app_free(app);
    return 0;
}
