/* A view is a table and private state.  It draws into an area and reaches the rest of the program
 * only through the functions below; it never sees a terminal, a file or a process.
 *
 *   add a view:  one file src/tui/views/NAME.c that ends in `const struct view_ops view_NAME`,
 *                one line in views/registry.c.  Keys, hints, help, commands, saved settings and
 *                undo follow from its tables.  These keys mean the same in every view, and a test
 *                checks the tables: h j k l gg G n N / : ? q e y u a = Space Tab V and 1 to 9. */
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

/* Set by a view while event() gets keys before the key tables. */
enum view_grab {
    GRAB_NONE,
    GRAB_KEYS, /* those that it wants */
    GRAB_FORM, /* all: the view says what they do */
    GRAB_TEXT  /* all, until Enter or Esc: the bottom line says it */
};

struct view {
    const struct view_ops *ops;
    struct app *app;
    void *state;    /* zeroed, ops->state_size bytes */
    int rows, cols; /* of the last draw: page sizes, hit tests */
    int has_focus;
    int is_dirty; /* set it to request a redraw */
    enum view_grab grabs;
    struct view_undo *undo;
};

/* A setting of a view: kept per run under $XDG_STATE_HOME, undone by `u`. */
struct setting {
    const char *name;
    enum { SETTING_INT, SETTING_REAL } type;
    size_t offset;   /* in the state: int or double */
    double min, max; /* values outside (from a corrupt file) are ignored */
};

/* The value under the cursor of a view, for the overlay that explains it. */
struct subject {
    char key[64];       /* metric, recorded value or setting: finds definition, unit and formula */
    char where[160];    /* "layer 3, token 5"; untrusted text must be sanitised by drawing only */
    char text[96];      /* the value when it is not a number */
    double value;       /* NaN = none */
    int64_t step;       /* of the record, -1 = none */
    const char *record; /* "metric record"; NULL = not recorded */
    const char *help, *unit, *formula; /* of values that no table has; or NULL */
};

enum { VIEW_WORDS = 16 };
/* The runs of an exported figure: the current one and the marked ones, the current one alone, or
 * the marked ones and without any all that are open. */
enum figure_runs { FIGURE_OF_SHOWN, FIGURE_OF_ONE, FIGURE_OF_OPEN };
struct view_ops {
    const char *name;    /* "monitor": command and file name */
    const char *title;   /* "Monitor" */
    int brief;           /* first cells of the title that stand for it in a narrow bar; 0 = all */
    const char *summary; /* one line: what the view is for */
    const struct key *keys; /* ends with a NULL command; NULL = none */
    size_t state_size;
    int shows_probes; /* those of a run on another machine are fetched while such a view is open */
    const struct setting *settings; /* ends with a NULL name; NULL = none */
    const char *figure; /* exported by `e`: `depthscope figure FIGURE RUN...`; NULL = none */
    /* In its place: the words before RUN..., at most VIEW_WORDS, borrowed; 0 = nothing to
     * export, and < 0 when the view has said why.  *of is FIGURE_OF_SHOWN. */
    int (*figure_words)(struct view *v, const char **word, enum figure_runs *of);
    /* Slots may be NULL. */
    int (*open)(struct view *v, struct err *e);
    void (*close)(struct view *v);
    void (*draw)(struct view *v, struct area a);
    /* 1 = handled.  Keys arrive here only when no row matched, or first while it grabs them. */
    int (*event)(struct view *v, const struct event *ev);
    /* Called after data arrived, when fd() is readable and at least once a second; 1 = draw again.
     */
    int (*poll)(struct view *v);
    /* In place of poll while another view is shown; at least once a second. */
    void (*background)(struct view *v);
    int (*fd)(struct view *v); /* descriptor to poll, -1 = none */
    double (*due)(
        struct view
            *v); /* when poll is to be called at the latest, by clock_mono; HUGE_VAL = any time */
    void (*run_changed)(struct view *v); /* another run became the current one */
    int (*search)(struct view *v, const char *text, int direction); /* 1 = moved to a hit */
    void (*copy)(struct view *v, struct str *out);                  /* what `y` copies */
    int (*subject)(struct view *v, struct subject *out); /* what `=` explains; 0 = nothing */
    /* 0: this row of the view can do nothing now, so that it has no hint. */
    int (*offers)(struct view *v, const struct key *k);
};

/* Rows of views/registry.c, in the order of the number keys; NULL-terminated. */
extern const struct view_ops *const view_registry[];
const struct view_ops *view_find(const char *name);

/* ---- what a view may ask of the workbench ---- */

/* An open run. All open runs are polled; marked ones are overlaid. */
enum { APP_RUNS_MAX = 16 };
struct open_run {
    struct runview *view;
    char path[1024];
    char dir[1024]; /* for job_command; "" when it is not a run directory */
    int colour;     /* index for ink_series: stable while open          */
    int is_marked;  /* overlaid with the current run                    */
    int failed;     /* reading it failed (the error is in the log)      */
    char error[256];
};
struct runview *app_run(struct app *app); /* current run, NULL when none */
const struct open_run *app_runs(struct app *app, size_t *n, size_t *current);
/* The steps of an open run that a chart shows: of a run on another machine, more of them may be fetched. */
void app_want_detail(struct app *app, const char *path, double from, double to);
/* Opens a run (unless it is open) and makes it current; DS_* when it cannot be read. */
int app_open_run(struct app *app, const char *path, struct err *e) DS_CHECK;
void app_select_run(struct app *app, size_t index);
/* The directory of a run was renamed: an open run keeps its records and takes commands there. */
void app_run_moved(struct app *app, const char *from, const char *to);
/* Opens a model instead of a run, in the focused view if it runs models, else in the Stepper. */
void app_open_model(struct app *app, const char *path);
/* 1 for a model without records: a directory, or a model in a single file. */
int app_is_model(const char *path);
/* A path as typed: the name of a run becomes its path, "box:first" that of a run on a host.  `room` holds the
 * result where needed. */
const char *app_path(struct app *app, const char *given, char *room, size_t size);
/* Shows Compare on two runs, checkpoints, models or traces; text: for both models, or NULL. */
void app_compare(struct app *app, const char *a, const char *b, const char *text);
/* Opens `path` as a run, log, trace or model, depending on its files, and shows it. */
/* What Home lists: its folder (NULL: none), and further runs and folders that were opened. */
enum { APP_ALSO_MAX = 64 };
const char *app_home(struct app *app, const char *also[APP_ALSO_MAX], size_t *n);
/* The hosts whose runs it lists, too. */
struct host *const *app_hosts(struct app *app, size_t *n);
int app_open(struct app *app, const char *path, struct err *e) DS_CHECK;
/* Watches the listed runs for alerts (io/alert.h) and sets `alerts` of the rows. */
struct run_row;
void app_alerts_rows(struct app *app, struct run_row *const *row, size_t n);
/* The alerts of a row that nobody has looked at, "!nan+1": their worst level, 0 = none. */
int app_alert_mark(struct app *app, const struct run_row *row, char *out, size_t size);
/* Clears the mark of a row; row NULL: all marks.  1 when there was one. */
int app_alerts_acknowledge(struct app *app, const struct run_row *row);
/* Explains in `a` why the current run shows nothing: no run is open, it is starting, or it ended
 * before its first record.  0: the run has records; the view must explain what is missing. */
int app_draw_nothing(struct app *app, struct area a);
void app_mark_run(struct app *app, const char *path, int is_marked);
int app_is_marked(struct app *app, const char *path);
/* Shows a view in the focused pane (its state is kept between visits). */
void app_show(struct app *app, const char *view_name);
void app_back(struct app *app);

/* The file that the last export wrote; "" when none was. */
const char *app_exported(const struct app *app);
/* The program that runs subcommands (base/child.h); NULL = this one. */
const char *app_program(const struct app *app);

/* ---- images ---- */
/* What the terminal can show beyond cells.  The first call asks the terminal, and answers change
 * the value later (the screen is then drawn again); GRAPHICS_NONE in scripts.  Cell size in
 * pixels. */
enum graphics { GRAPHICS_NONE, GRAPHICS_SIXEL, GRAPHICS_KITTY };
enum graphics app_graphics(struct app *app, int *cell_w, int *cell_h);
/* Pixels (3 bytes each, row by row), or for kitty the bytes of a PNG.  `serial` differs between any
 * two images; the bytes must live until the next draw. */
struct image {
    const unsigned char *bytes;
    size_t n;
    int width, height;
    unsigned serial;
};
/* Shows it in `a` until the next draw that does not; the cells of `a` must be blank, and the image
 * disappears while something is drawn over them. */
void app_image(struct app *app, struct area a, const struct image *image);

/* A message to the user: on the bottom line for some seconds, and in the Log view. */
void app_notify(struct app *app, enum log_level level, const char *fmt, ...) DS_PRINTF(3, 4);
/* These messages, oldest first: index 0..n-1 (NULL beyond). */
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
/* Asks before a destructive action; done(ctx) is called on y. */
void app_confirm(struct app *app, const char *question, void (*done)(void *ctx), void *ctx);
/* Sends a command ("pause", "set lr 1e-4") to the current run and reports the answer. */
void app_run_command(struct app *app, const char *command);
/* 0 when nothing can be added to the current run: none is open, it has ended, or it is a trace. */
int app_is_growing(struct app *app);
/* 0 when the current run cannot take the command of this key row: it has no process that listens,
 * or one that does not answer it. */
int app_takes(struct app *app, const struct key *k);
/* What would record a probe of the current run: a command that it takes, or what its kind of
 * program does; in_python: the sentence for a script in PyTorch, NULL ds.watch. */
const char *app_probe_hint(struct app *app, const char *in_python);
/* The same to any run directory. */
void app_send(struct app *app, const char *dir, const char *command);
/* Executes a command as typed after `:`. */
void app_command(struct app *app, const char *line);
/* Copies to the clipboard by OSC 52.  Tabs and newlines separate fields; all other control
 * characters are made visible as on the screen, because a shell executes pasted text. */
/* Returns 0 when the text was too long for a terminal: its first lines are copied. */
int app_copy(struct app *app, const char *text, size_t n);
/* Appends untrusted data (names, messages) to such a text: a tab or newline in it becomes
 * visible. */
void copy_add(struct str *out, const char *data);
int app_is_readonly(const struct app *app);
double app_now(const struct app *app); /* wall seconds, fixed when scripted */
int app_is_scripted(const struct app *app);
/* The view whose keys are active: the focused one (NULL when none). */
const struct view_ops *app_focused(const struct app *app);
/* Text shared by the views of a run and saved with the settings ("probe.index"); NULL if
 * unset. */
const char *app_recall(struct app *app, const char *key);
void app_remember(struct app *app, const char *key, const char *value);
/* Makes a change undoable; call it before changing settings outside a KEY_VIEW_CHANGE row
 * (mouse). */
void view_undo_mark(struct view *v);
/* -1 undoes, 1 redoes a change of settings; 0 when there is none. */
int view_undo_step(struct view *v, int direction);

#endif
