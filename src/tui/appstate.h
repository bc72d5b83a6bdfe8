/* The state of the workbench, private to the app_*.c files. */
#ifndef DS_TUI_APPSTATE_H
#define DS_TUI_APPSTATE_H

#include <poll.h>
#include <sys/types.h>

#include "base/child.h"
#include "base/map.h"
#include "io/alert.h"
#include "io/host.h"
#include "tui/app.h"
#include "tui/graphics.h"
#include "tui/screen.h"
#include "tui/term.h"
#include "tui/view.h"
#include "tui/widgets.h"

enum {
    APP_PANES_MAX = 4,
    APP_VIEWS_MAX = 24,
    APP_NUMBER_KEYS = 9, /* views that the keys 1 to 9 open */
    APP_LINES_MAX = 256,
    APP_ZONES_MAX = 64,
    APP_BACK_MAX = 16,
    APP_HISTORY_MAX = 64,
    APP_MEMORY_MAX = 256,
    APP_REQUESTS_MAX = 8,
    APP_ALERT_JOBS = 32,
    SETTINGS_MAX = 32,
    UNDO_MAX = 32
};

struct view_undo {
    double past[UNDO_MAX][SETTINGS_MAX];
    int n, at;
};

struct pane {
    struct view *view[APP_VIEWS_MAX]; /* by index in view_registry, created when first shown */
    int current;
    int back[APP_BACK_MAX], backs;
    struct area area; /* of the last frame */
};

/* A clickable rectangle and its action: a key row, a view or a run. */
struct zone {
    int y, x0, x1;
    const struct key *key;
    const char *view;
    int run;
};

struct prompt {
    int is_active, is_command;
    char label[96];
    struct field field;
    void (*done)(void *ctx, const char *text);
    void *ctx;
    char *history[APP_HISTORY_MAX];
    int histories, history_at;
    int candidate;   /* number of Tab presses in completion, -1 = none */
    char typed[2304]; /* the text before completion */
};

struct confirm {
    int is_active;
    char question[256];
    int y, x; /* of "y / n" in the last draw */
    void (*done)(void *ctx);
    void *ctx;
};

/* The list of all views, above the rest while it is open. */
struct picker {
    int is_open;
    struct field filter;
    struct list list;
    struct area rows; /* of the last draw */
};

/* A command sent to a run and not finished yet. */
struct app_request {
    struct job_request *sent; /* until it is answered; then NULL, and */
    struct host *host;        /* in its place, for a run elsewhere: */
    int64_t host_id;
    long long pending; /* the run carries it out after its current step */
    char dir[1024], command[256];
};

/* A run that is watched for alerts. */
struct app_watch {
    char *path; /* of the open run or the row */
    struct alert_watch w;
    unsigned mark; /* alerts that nobody has looked at, as a set */
    int level;     /* the worst of them */
    unsigned said; /* those with a line in the Log that has no end yet */
    double told[ALERT_RULES]; /* when the user was told last, monotonic seconds */
};

/* An alert whose command was not started yet. */
struct app_alert_job {
    char run[128];
    struct alert alert;
};

struct app_alerts {
    struct alert_options options;
    struct notify_options notify;
    struct app_watch **watch;
    size_t n, cap;
    struct map of; /* path -> index of watch */
    uint64_t inode[APP_RUNS_MAX]; /* of the log of each open run, 0 = none */
    int lines;     /* written in this turn */
    int waiting;   /* alerts that the terminal was not told of yet */
    char text[ALERT_TEXT + 160]; /* the newest of them */
    double rung, started; /* the terminal, the command; monotonic seconds */
    struct app_alert_job job[APP_ALERT_JOBS];
    int jobs;
    uint64_t dropped;
    struct child child;
};

struct app {
    struct tui_options opt;
    struct canvas canvas;
    struct theme theme;
    struct tty tty;
    struct term *term;     /* NULL when scripted */
    struct screen *screen; /* drawn once instead of a terminal, or NULL */
    struct decoder decoder;
    struct open_run run[APP_RUNS_MAX];
    size_t runs, current;
    struct host *host[HOSTS_MAX];
    unsigned char has_opened[HOSTS_MAX]; /* the run that a host's target names */
    size_t hosts;
    struct app_alerts alerts;
    struct pane pane[APP_PANES_MAX];
    int panes, focus, is_zoomed;
    uint32_t pressed[KEYS_PENDING_MAX];
    size_t n_pressed;
    struct prompt prompt;
    struct confirm confirm;
    struct picker picker;
    struct app_request request[APP_REQUESTS_MAX];
    int requests;
    struct {
        char dir[1024], command[256];
    } unsure; /* sent when the question above is answered with yes */
    int has_help, has_glyph_test, has_explain;
    struct subject explain;
    struct scroll help_scroll;
    struct area help_rows; /* of the last draw */
    struct app_line line[APP_LINES_MAX];
    size_t lines; /* total number of lines so far */
    double say_until;
    struct zone zone[APP_ZONES_MAX];
    int zones;
    char search[128];
    char *memory_key[APP_MEMORY_MAX], *memory_value[APP_MEMORY_MAX];
    size_t memories;
    char state_path[1024]; /* "" = state is not saved */
    int background;        /* of the terminal, as the theme was fitted to it; -1 = unknown */
    int has_chosen_theme;  /* by :theme */
    struct str theme_warnings; /* of --theme */
    int is_dirty, must_quit, exit_code;
    struct str pending; /* bytes not yet taken by the terminal */
    size_t pending_at;
    struct str extra; /* written after the next frame: OSC 52 */
    double next_frame, link_rate, rate_time;
    uint64_t bytes_sent, rate_bytes;
    struct graphics_state graphics;
    char exported[1024]; /* the file of the last export */
    struct child export; /* `depthscope figure`, while it draws */
    int has_clipboard;   /* the terminal may know OSC 52: plain ones print it */
    struct event last_press;
    double last_press_time, data_time;
};

/* app_runs.c */
int app_poll_runs(struct app *app, double budget_s); /* 1 when something changed */
void app_close_runs(struct app *app);
void app_free(struct app *app); /* after its views and runs are closed */
void app_exit_note(const struct app *app, struct str *out); /* empty when no open run is live */
int app_has_live(const struct app *app);
/* app_commands.c */
int app_poll_commands(struct app *app);                              /* 1 when something changed */
int app_watch_commands(const struct app *app, struct pollfd *w);     /* APP_REQUESTS_MAX at most */
int app_pending_text(const struct app *app, char *out, size_t size); /* 0 = no command is pending */
void app_close_commands(struct app *app);
int app_wants_pair(const struct app *app);   /* --view compare with two paths */
int app_is_behind(const struct app *app);    /* a run has more data than the last poll read */
const char *app_first_view(struct app *app); /* the best first view for the current run */
/* app_hosts.c */
void app_open_hosts(struct app *app);
int app_poll_hosts(struct app *app);                               /* 1 when anything changed */
int app_watch_hosts(const struct app *app, struct pollfd *w);      /* HOST_FDS each at most */
struct host *app_host_of(const struct app *app, const char *path); /* NULL: of this machine */
/* The path of "box:first", NULL: no such run of an open host.  Calls back with all such names. */
const char *app_path_there(const struct app *app, const char *given);
void app_runs_there(const struct app *app, void (*each)(void *ctx, const char *label), void *ctx);
void app_close_hosts(struct app *app);
/* app_alerts.c */
void app_alerts_open(struct app *app); /* reads the user's settings */
int app_alerts_poll(struct app *app);  /* the open runs; 1 when there was something to say */
/* The run is looked at: clears its mark.  NULL: of all runs. */
void app_alerts_seen(struct app *app, const char *path);
void app_alerts_close(struct app *app);
/* app_alerts_tell.c */
void app_alerts_tell(struct app *app, const char *label, const struct alert *a);
void app_alerts_send(struct app *app); /* what is due: never blocks */
double app_alerts_due(const struct app *app); /* by clock_mono; HUGE_VAL = nothing waits */
/* app_views.c */
struct view *app_focused_view(struct app *app);
void app_draw_panes(struct app *app, struct area a);
void app_event(struct app *app, const struct event *ev);
int app_poll_views(struct app *app);
double app_views_due(const struct app *app); /* the earliest deadline of a view, HUGE_VAL = none */
void app_close_views(struct app *app);
void app_views_run_changed(struct app *app);
void app_press(struct app *app, const struct key *k, const char *args);
/* Presses a row of the focused view by its command; nothing when it has none. */
void app_press_command(struct app *app, const char *command, const char *args);
void app_split(struct app *app);
/* app.c */
void app_fit_theme(struct app *app); /* after a theme was loaded */
void app_say_notices(struct app *app); /* what the start had to say, as the newest messages */
/* app_frame.c */
void app_draw(struct app *app);
void app_add_zone(struct app *app, struct zone z);
/* The row of the help overlay at a cell of the screen, or NULL. */
const struct key *app_help_row(struct app *app, int y, int x);
/* app_prompt.c */
void app_open_command(struct app *app, const char *initial);
int app_prompt_event(struct app *app, const struct event *ev);
void app_draw_prompt(struct app *app, struct area line);
void app_prompt_release(struct app *app);
/* app_explain.c */
void app_explain(struct app *app, const char *name); /* NULL or "": what is under the cursor */
void app_explain_draw(struct app *app, struct area a);
/* app_picker.c */
void app_picker_open(struct app *app);
void app_picker_event(struct app *app, const struct event *ev);
void app_picker_draw(struct app *app, struct area a);
void app_picker_release(struct app *app);
/* app_state.c */
void app_state_load(struct app *app, const char *run_path);
void app_state_save(struct app *app);
void app_memory_release(struct app *app);
void view_settings_apply(struct view *v); /* remembered values into a new view */
void view_settings_keep(struct view *v);
double view_setting_get(const struct view *v, const struct setting *s);
void view_setting_set(struct view *v, const struct setting *s, double x);
/* app_export.c */
void app_export(struct app *app);
/* Reads the output of the child, so that it never blocks; shows its last line at the end. */
void app_export_reap(struct app *app);
/* term_dump.c */
int app_play(struct app *app, struct err *e) DS_CHECK;
int app_picture(struct app *app, struct err *e) DS_CHECK; /* plays opt.keys, fills app->screen */
/* screen.c */
int screen_take(struct screen *s, const struct canvas *c, struct err *e) DS_CHECK;

#endif
