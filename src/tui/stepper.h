/* The state of the Stepper view, private to the stepper_*.c files. */
#ifndef DS_TUI_STEPPER_H
#define DS_TUI_STEPPER_H

#include "eval/job.h"
#include "tui/cells.h"
#include "tui/cells_pick.h"
#include "tui/view.h"
#include "tui/widgets.h"
#include "tui/worker.h"

enum { STEPPER_FORCED_MAX = 64, STEPPER_ASKED_MAX = 32, STEPPER_LENS = 5 };

struct stepper_forced {
    int layer, token, run, expert; /* -1: free */
};
/* A request that the worker has not answered: the state of the text after it, and what it changed,
 * as it was before. */
struct stepper_asked {
    int is_plain;
    double offset;
    int moves_on, is_text, is_force, is_exit;
    struct stepper_forced before;
    int exit_before;
};

struct stepper {
    struct cells cells;
    /* the worker */
    struct session *session;    /* NULL: not running                                 */
    char model[1024];           /* the path it was started with                      */
    char given[1024];           /* `:model PATH`; "" = the current run               */
    char trouble[512];          /* why it is not running: the last error             */
    struct runview *about;      /* its head: units, method, configuration            */
    struct runview *now, *base; /* newest probe; newest probe without interventions  */
    struct stepper_asked asked[STEPPER_ASKED_MAX];
    int n_asked, had_model;
    char options[256]; /* of the method, where they are not those stored: "rule=kl min=2" */
    /* set by the user */
    struct field prompt;
    struct str typed_over; /* what Esc brings back */
    int is_typing;
    int has_probe_text; /* the text is that of the Depth map, not the last one typed */
    struct stepper_forced forced[STEPPER_FORCED_MAX];
    int n_forced;
    double offset, offset_asked, offset_now; /* requested, last sent, that of `now` */
    int follows_newest;                      /* newest checkpoint instead of the best one        */
    double temperature;
    int seed, exit, speculate; /* first layers only; drafted tokens of `next`; 0: neither */
    int64_t newest_step;       /* of the checkpoints when the worker was started, -1 none */
    int64_t newer_step;        /* of one written since, -1 none                     */
    double looked;             /* time of the last search for checkpoints           */
    int is_started, head_rows, first_force;
    int started_newest; /* follows_newest when it was started: undo changes that */
    /* derived from these for a draw */
    int8_t *force;            /* (layers, tokens) */
    unsigned char *estimated; /* (layers, tokens) */
    size_t cells_cap;
    unsigned char *tone; /* (tokens) */
    size_t tone_cap;
    int marks[3]; /* tokens by mark, of drafts */
};

/* stepper_work.c: the worker */
/* Finds the model and starts a worker for it; on failure `trouble` says why. */
void stepper_start(struct view *v);
void stepper_stop(struct stepper *s);
void stepper_forget(struct stepper *s); /* drops the text and all answers */
void stepper_ask_text(struct view *v, const char *text);
void stepper_ask_ids(struct view *v, const struct probe *p);
void stepper_ask_next(struct view *v);
void stepper_ask_force(struct view *v, int layer, int token, int run);
/* expert: a number, or -1 to return the choice to the router. */
void stepper_ask_expert(struct view *v, int layer, int token, int expert);
void stepper_ask_clear(struct view *v);
void stepper_ask_exit(struct view *v, int layers);
/* "KEY=VALUE"; NULL or "": all as stored. */
void stepper_ask_option(struct view *v, const char *text);
int stepper_take(struct view *v); /* 1 = something was received */
int stepper_is_busy(const struct stepper *s);

/* stepper_numbers.c: the values shown, exact or estimated */
struct stepper_sum {
    double loss, run, flops;
};
/* Sets cells.probe, other, force and run for a draw; 0 when there is nothing to show. */
int stepper_prepare(struct view *v);
int stepper_is_estimated(const struct stepper *s);
struct stepper_sum stepper_sum(const struct probe *p, const unsigned char *run);

#endif
