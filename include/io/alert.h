/* Alerts: a run that needs a look.  One table of rules (src/io/alert.c) is judged on what a run
 * records, by the training process itself and by whoever watches the run.  An alert is raised once per
 * episode: again only after it was over. */
#ifndef DS_IO_ALERT_H
#define DS_IO_ALERT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/machine.h"
#include "base/opt.h"
#include "io/run_state.h"

enum alert_rule {
    ALERT_NAN,
    ALERT_LOSS,
    ALERT_STALL,
    ALERT_LAYER,
    ALERT_GPU,
    ALERT_DISK,
    ALERT_OTHER, /* only ever recorded: of a script, or of a rule that this version does not know */
    ALERT_RULES
};
/* Short name of a rule, "nan"; ALERT_OTHER has "other". */
const char *alert_name(enum alert_rule rule);
const char *alert_what(enum alert_rule rule); /* "loss is NaN or infinite" */
enum alert_rule alert_find(const char *name, size_t n); /* ALERT_OTHER: unknown */
/* The names of a set of rules (bit 1 << rule) separated by blanks, "" for none.  Returns out. */
const char *alert_names(unsigned set, char *out, size_t size);

/* Keys "alert.*", of a run and of the user's settings. */
struct alert_options {
    int nan, layer_share;
    int64_t layer_records;
    double loss_above, stall_s, gpu_idle_s, gpu_below, disk_free_gb;
};
extern const struct opt_group alert_group;

/* Keys "notify.*", of the user's settings alone: what the workbench does when an alert is raised. */
enum notify_terminal { NOTIFY_BELL, NOTIFY_OSC9, NOTIFY_OSC777, NOTIFY_OFF };
struct notify_options {
    int terminal;
    char *command; /* "" = none */
    double every_s;
};
extern const struct opt_group notify_group;

/* The user's settings: $XDG_CONFIG_HOME/depthscope/settings.yaml, the defaults where there is none.
 * On failure (a key or value that is wrong) both have the defaults.  Release with
 * opt_release(&notify_group, n). */
int alert_settings(struct alert_options *a, struct notify_options *n, struct err *e) DS_CHECK;

enum { ALERT_TEXT = 160 };
struct alert {
    enum alert_rule rule;
    int level;   /* enum log_level */
    int is_over; /* the episode ended */
    int is_old;  /* it held already when the run was first looked at */
    int64_t step;
    double time, value; /* wall seconds of the record; NaN = unknown, as the value */
    char text[ALERT_TEXT]; /* "loss 5.31, above 4"; printable UTF-8 */
};

struct alert_episode {
    int judged, recorded, is_on; /* by the rule; by the run itself; either */
    int good;                    /* observations in a row that would end it */
    int has_raise, has_over;     /* not taken by alert_next yet */
    struct alert raise, over;
};
struct alert_layer {
    int has_routed, low, high; /* has had a share in between; records in a row at 0, at 1 */
};
/* What is known of one run.  Private to alert*.c but for its storage. */
struct alert_watch {
    struct alert_options o;
    struct alert_episode episode[ALERT_RULES];
    int64_t step;
    double time, loss, disk; /* of the newest fact; bytes */
    double progress, waited; /* when a metric came last, by the watcher's clock; since then */
    int has_clock, is_left; /* it fell silent long before the first look */
    struct alert_layer *layer; /* (layers), heap */
    int layers, stuck, more_stuck; /* the first layer at 0 or 1 for long enough, and how many more */
    struct {
        int is_used;  /* by the run: it was busy before, or holds a process of the run */
        double since; /* idle; NaN: busy, or nothing known */
    } gpu[MACHINE_GPUS];
    double gpu_time;
    struct { /* where a run view, or a row, was read to */
        size_t loss, layer, gpu[MACHINE_GPUS];
        uint64_t generation, events;
        double head_time, last_time;
        int64_t step;
    } seen;
};
/* Copies the options. */
void alert_watch_init(struct alert_watch *w, const struct alert_options *o);
void alert_watch_release(struct alert_watch *w);

/* ---- facts, in the order of the records ---- */
void alert_take_loss(struct alert_watch *w, int64_t step, double time, double loss);
/* Executed share of each layer; is_always_on may be NULL. */
void alert_take_layers(struct alert_watch *w, int64_t step, double time, const float *share, int n,
                       const unsigned char *is_always_on);
/* use: 0 to 1. */
void alert_take_gpu(struct alert_watch *w, int gpu, int64_t step, double time, double use);
void alert_take_disk(struct alert_watch *w, int64_t step, double time, double free_bytes);
/* The disk of a sample, and those of its GPUs that hold a process `pid`. */
void alert_take_system(struct alert_watch *w, int64_t step, const struct machine_sample *s,
                       int64_t pid);
/* A metric came; now: by the clock of alert_clock. */
void alert_take_progress(struct alert_watch *w, double now);
/* What the run reported itself. */
void alert_take_event(struct alert_watch *w, enum alert_rule rule, int is_over, int level,
                      int64_t step, double time, const char *text);
/* Time passes: after the facts of a turn.  now: wall seconds, 0 = unknown.  A run that has ended is
 * not watched, nor one that was silent for longer than this when it was first looked at: most logs of
 * other programs have no end. */
enum { ALERT_LEFT_S = 600 };
void alert_clock(struct alert_watch *w, enum run_state state, double now);

/* The run cannot be heard now: nothing is judged, and no time passes. */
void alert_hold(struct alert_watch *w, double now);

/* ---- the same from a run view or a row of a list: what is new since the last call ---- */
struct runview;
struct run_row;
void alert_watch_view(struct alert_watch *w, const struct runview *v, double now);
void alert_watch_row(struct alert_watch *w, const struct run_row *row, double now);

/* What holds by one look at a row, as a set. */
unsigned alert_set_of(const struct alert_options *o, const struct run_row *row, double now);

/* The next alert that was raised or is over: 1, or 0 when there is none. */
int alert_next(struct alert_watch *w, struct alert *out);
/* The rules that hold now, as a set. */
unsigned alert_set(const struct alert_watch *w);

/* Records of kind `event` with name `alert` (io/FORMATS.md). */
struct record;
struct value;
void alert_record(struct record *r, const struct alert *a, double time);
/* 1 + enum alert_rule of such an event, negative when it says that it is over; 0: another event. */
int alert_of_event(struct value body);
/* What a row knows of alerts, as one number (RUN_ALERTS): a set, and this when the newest loss is NaN
 * or infinite. */
enum { ALERT_BAD_LOSS = 1 << 16 };

#endif
