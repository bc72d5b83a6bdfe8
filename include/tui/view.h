/* A view is a table and private state.  It draws into an area and learns of the world only through
 * the functions below; it never sees a terminal, a file or a process.
 *
 *   add a view:  one file src/tui/views/NAME.c that ends in `const struct view_ops view_NAME`,
 *                one line in views/registry.c.  Keys, hints, help, commands, saved settings and
 *                undo follow from its tables. */
#ifndef DS_TUI_VIEW_H
#define DS_TUI_VIEW_H

#include <stddef.h>

#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "io/runview.h"
#include "tui/canvas.h"
#include "tui/keymap.h"

struct app;
struct view_ops;

struct view {
    const struct view_ops *ops;
    struct app *app;
    void *state;    /* zeroed, ops->state_size bytes */
    int rows, cols; /* of the last draw: page sizes, hit tests */
    int has_focus;
    int grabs_text; /* set by a view while typed keys are text: event() gets keys first */
    int is_dirty;   /* set it to be drawn again */
    struct view_undo *undo;
};

/* A setting of a view: kept per run under $XDG_STATE_HOME, undone by `u`. */
struct setting {
    const char *name;
    enum { SETTING_INT, SETTING_REAL } type;
    size_t offset;   /* in the state: int or double */
    double min, max; /* values outside (a damaged file) are ignored */
};

struct view_ops {
    const char *name;       /* "monitor": command and file name */
    const char *title;      /* "Monitor" */
    const char *summary;    /* one line: what a person does there */
    const struct key *keys; /* ends with a NULL command; NULL = none */
    size_t state_size;
    const struct setting *settings; /* ends with a NULL name; NULL = none */
    const char *figure; /* what `e` exports: `depthscope figure FIGURE RUN...`; NULL = nothing */
    /* Slots may be NULL. */
    int (*open)(struct view *v, struct err *e);
    void (*close)(struct view *v);
    void (*draw)(struct view *v, struct area a);
    /* 1 = taken.  Keys arrive here only when no row matched, or first while grabs_text. */
    int (*event)(struct view *v, const struct event *ev);
    /* Called after data arrived, when fd() is readable and at least once a second; 1 = draw again.
     */
    int (*poll)(struct view *v);
    int (*fd)(struct view *v);           /* to be polled, -1 = none */
    void (*run_changed)(struct view *v); /* another run became the current one */
    int (*search)(struct view *v, const char *text, int direction); /* 1 = moved to a hit */
    void (*copy)(struct view *v, struct str *out);                  /* what `y` copies */
};

/* Rows of views/registry.c, in the order of the number keys; NULL-terminated. */
extern const struct view_ops *const view_registry[];
const struct view_ops *view_find(const char *name);

extern const struct view_ops view_home, view_monitor, view_depth, view_stepper, view_signals,
    view_flops, view_log, view_help;

/* ---- what a view may ask of the workbench ---- */

/* An open run. All open runs are polled; marked ones are overlaid. */
struct open_run {
    struct runview *view;
    char path[1024];
    char dir[1024]; /* for job_command; "" when it is no run directory */
    int colour;     /* index for ink_series: stable while open          */
    int is_marked;  /* overlaid with the current run                    */
    int failed;     /* could not be read any more (text in the log)     */
    char error[256];
};
struct runview *app_run(struct app *app); /* current run, NULL when none */
const struct open_run *app_runs(struct app *app, size_t *n, size_t *current);
/* Opens (or finds) a run and makes it current; DS_* when it cannot be read. */
int app_open_run(struct app *app, const char *path, struct err *e) DS_CHECK;
void app_select_run(struct app *app, size_t index);
/* A model's directory instead of a run: the Stepper, on that model. */
void app_open_model(struct app *app, const char *path);
/* What `path` is, by its files: opens it as a run, log or trace, or as a model, and shows it. */
int app_open(struct app *app, const char *path, struct err *e) DS_CHECK;
/* Says in `a` why there is nothing to see of the current run: none is open, it is starting, it ended
 * before its first record.  0: records are there, the view itself knows what is missing. */
int app_draw_nothing(struct app *app, struct area a);
void app_mark_run(struct app *app, const char *path, int is_marked);
int app_is_marked(struct app *app, const char *path);
/* Shows a view in the focused pane (state is kept when it was open before). */
void app_show(struct app *app, const char *view_name);
void app_back(struct app *app);

/* A line for the person: bottom line for some seconds, and the Log view. */
void app_say(struct app *app, enum log_level level, const char *fmt, ...) DS_PRINTF(3, 4);
/* Those lines, oldest first: index 0..n-1 (NULL beyond). */
struct app_line {
    double time;
    enum log_level level;
    char text[256];
};
size_t app_lines(const struct app *app);
const struct app_line *app_line(const struct app *app, size_t i);
/* One-line input at the bottom; done(ctx, text) on enter, done(ctx, NULL) on esc. */
void app_ask(struct app *app, const char *label, const char *initial,
             void (*done)(void *ctx, const char *text), void *ctx);
/* Only for what destroys; done(ctx) runs on y. */
void app_confirm(struct app *app, const char *question, void (*done)(void *ctx), void *ctx);
/* A command line to the current run's process ("pause", "set lr 1e-4"); the answer is said. */
void app_run_command(struct app *app, const char *command);
/* 0 where no run is open, or one that has ended, or a trace: nothing that a command could be sent to. */
int app_has_process(struct app *app);
/* Runs a command of the table as typed after `:`. */
void app_command(struct app *app, const char *line);
/* To the clipboard by OSC 52.  Tabs and newlines are the program's own; all else is made safe as for the
 * screen, because a paste runs what it holds. */
void app_copy(struct app *app, const char *text, size_t n);
/* What such a text takes from data (names, messages): a tab or newline in it becomes visible. */
void copy_add(struct str *out, const char *data);
int app_is_readonly(const struct app *app);
double app_now(const struct app *app); /* wall seconds, fixed when scripted */
int app_is_scripted(const struct app *app);
/* What stands for the keys in help texts: the rows of the focused view (NULL when none). */
const struct view_ops *app_focused(const struct app *app);
/* Text that views share for one run and that is kept with the settings ("probe.index"); NULL if
 * unset. */
const char *app_recall(struct app *app, const char *key);
void app_remember(struct app *app, const char *key, const char *value);
/* Call before changing settings outside a KEY_VIEW_CHANGE row (mouse): makes the change undoable.
 */
void view_undo_mark(struct view *v);

#endif
