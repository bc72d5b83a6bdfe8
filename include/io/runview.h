/* Everything known about one run, built from its records: what the workbench and the figures read.
 * Works for a live run, a finished one, a trace file and a stream on stdin alike.  All text in it
 * is untrusted: sanitise before showing. */
#ifndef DS_IO_RUNVIEW_H
#define DS_IO_RUNVIEW_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "io/run_state.h"

/* A metric over steps.  Values may be NaN; steps may go backwards after a resume: the superseded
 * points are marked (is_old). tokens/time/flops axes come from the same records. */
struct series {
    char *name;            /* "loss" */
    char *unit, *help;     /* from the head's metric table, "" when unknown */
    const char *canonical; /* "loss" for "train/loss", NULL: this is no known metric's other name */
    int rank;              /* of several names for one metric the lowest is preferred */
    size_t n, cap;
    int64_t *step;
    double *value, *tokens, *flops,
        *time; /* tokens seen, training FLOPs (below), wall seconds (Unix); NaN when unknown */
    unsigned char *is_old;
    size_t nonfinite, infinite; /* how many values are NaN or Inf; of these, Inf */
    int is_free_order;          /* steps may come in any order: going back supersedes nothing */
    int is_unordered;           /* ... and did: series_sort is due */
    struct series_index *index; /* min/max pyramid and resume points: io/series.c */
};

/* What a curve may be drawn over.  FLOPs: 3 x flops_dense x flops_ratio per token, so those of the
 * decisions, forward and backward; the ratio of a record holds for the tokens since the one before.
 * Seconds: since the run's first metric record, pauses included. */
enum run_axis { AXIS_STEP, AXIS_TOKENS, AXIS_SECONDS, AXIS_PROGRESS, AXIS_FLOPS, RUN_AXES };
extern const char *const run_axis_name[RUN_AXES];  /* "step" */
extern const char *const run_axis_label[RUN_AXES]; /* "Training step", for a figure */
int run_axis_find(const char *name);               /* -1: not an axis */
/* Position of point i; NaN when unknown.  steps_planned and start are those of the run. */
double series_x(const struct series *s, size_t i, enum run_axis axis, int64_t steps_planned,
                double start);

/* A per-layer metric over steps: value[i * layers + l]. */
struct layer_series {
    char *name, *unit, *help;
    int layers;
    size_t n, cap;
    int64_t *step;
    float *value;
};

/* Matrices over steps (records of kind `matrix`), one series per name: "expert_load" counts
 * assignments of tokens, with a row per layer that has experts and a column per expert.  Points that
 * a resume superseded are marked; the steps of the others ascend. */
struct matrix_point {
    int64_t step;
    int is_old;
    float *v; /* (rows, cols) row by row */
};
struct matrix_series {
    char *name;
    int rows, cols;
    int32_t *layer; /* (rows) model layer of each row */
    size_t n, cap;
    struct matrix_point *point;
    unsigned char
        *collapsed; /* (rows) of expert_load: an event reported it, no later one its end */
};

struct matrix {
    char *name, *help;
    float *v;
    int rows, cols;
    int is_category; /* values are numbers of categories: no mean, no order, no colour ramp */
    int is_inferred; /* the writer inferred them, the model did not state them */
};                   /* rows = layers, cols = tokens; row-major */
struct vector {
    char *name, *help;
    float *v;
    int n;
};

/* All decisions over one text: from a probe of a training run, a trace, or the stepper. */
struct probe {
    int64_t step;
    int index;        /* which probe text (stable over steps)            */
    int is_old;       /* superseded: a resume went back to an earlier step */
    char *name;       /* "synth-3"                                        */
    char routing[16]; /* "causal", "topk", "dense"; "" = unknown     */
    int layers, tokens;
    int32_t *id;  /* (tokens)                                         */
    char **piece; /* (tokens) raw bytes of each token, NUL-terminated */
    size_t *piece_len;
    unsigned char *run;  /* (layers, tokens) 0/1: executed cells; NULL = not recorded */
    int run_is_inferred; /* the writer inferred them                           */
    float *depth, *nll, *entropy, *flops; /* (tokens); NULL when absent. nats, nats, FLOPs. nll[t]
                                             is of token t given its past (nll[0] NaN) */
    struct matrix *cell; /* gate, score, threshold, velocity, acceleration, ... (layers x tokens) */
    int cells;
    struct vector *token; /* further per-token values: true_entropy, class, ... */
    int vectors;
    int lens_k;       /* logit lens: top-k per cell, 0 when absent */
    int32_t *lens_id; /* (layers, tokens, k) */
    float *lens_p;
    char **lens_piece;  /* (layers*tokens*k) text of these tokens, or NULL */
    double flops_dense; /* FLOPs per token of the dense model, mean over positions */
    signed char *forced; /* (layers, tokens) 0 forced to skip, 1 to run, -1 not; NULL: none are */
    char caveat[128]; /* probe_caveat */
};

/* What "forced" of a probe's "what_if" has of a cell: its layer and token; 0 skip, 1 run, -1 as the
 * method decided; an expert or -1. */
enum forced_field { FORCED_LAYER, FORCED_TOKEN, FORCED_RUN, FORCED_EXPERT, FORCED_FIELDS };

struct run_event {
    int64_t step;
    double time;
    int level;
    char *name, *text;
    int alert; /* alert_of_event */
    double value;
}; /* level: enum log_level; value: of an alert, NaN: none */

/* An evaluation: named results, and per-layer capacity. */
struct run_eval {
    int64_t step;
    char *task, *routing;
    struct vector *value; /* each n = 1, or n = layers ("capacity"), or any length */
    int values;
};

/* Per-token samples of an evaluation (figures, histograms): columns of equal length n. */
struct run_sample {
    int64_t step;
    char *name;
    size_t n;
    struct vector *column;
    int columns;
};

struct run_arena {
    char name[64];
    double bytes;
};

/* A setting that can be changed while the run trains; NaN: no limit. */
struct run_live {
    char key[64];
    double min, max;
};

enum { RUNVIEW_ARENAS = 8, RUNVIEW_LIVE = 32 };

/* The processes of one run: means per step.  NaN: not said. */
enum { RUN_RANKS_MAX = 4096 };
struct run_rank {
    char host[64];
    float step_ms, wait_ms, bytes; /* the whole step, of it waiting for others, sent */
};
struct run_ranks {
    struct run_rank *rank; /* (n) */
    int n;                 /* 0: one process, or not said */
    int64_t step;
};
static inline float run_rank_busy(const struct run_rank *r)
{
    float busy = r->step_ms - r->wait_ms;
    return busy >= 0 ? busy : NAN; /* a wait longer than the step is a mistake of the log */
}
/* The rank that computes longest, for which the others wait; -1: not known. */
int run_ranks_slowest(const struct run_ranks *x);

struct runview {
    char *path, *name; /* the log file; the name of its directory, else of the head's run */
    /* from the head record */
    char *method, *version, *host, *parent;
    char *framework, *gpu, *project, *writer; /* "" = not logged */
    int64_t world_size;                       /* ranks of the run; 0 = not logged */
    char *commands; /* control commands that its process answers, separated by blanks; NULL =
                       not said */
    int layers;
    int64_t steps_planned, params, params_non_embedding, vocab;
    double flops_dense;             /* per token, forward, dense model at the training length */
    double peak_gflops;             /* of the machine, in peak_format; 0 = unknown */
    char peak_format[64];           /* "fp32" */
    int experts, experts_per_token; /* of a layer with experts; 0 = unknown */
    int experts_noop;               /* the last ones of them run nothing */
    unsigned char *always_on;       /* (n_always_on): 1 = layer is always on; NULL = unknown */
    int n_always_on;
    struct run_arena arena[RUNVIEW_ARENAS]; /* memory of the writing process */
    int arenas;
    struct run_live live[RUNVIEW_LIVE];
    int lives;
    char **config_key, **config_value; /* the resolved configuration, flat */
    size_t configs;
    uint64_t seed;
    int has_seed; /* 0: the writer did not say */

    struct series *series;
    size_t n_series;
    struct layer_series *layer;
    size_t n_layer;
    struct matrix_series *matrix;
    size_t n_matrices;
    struct probe **probe;
    size_t n_probes, cap_probes; /* in order of arrival; oldest are thinned beyond a cap */
    struct run_event *event;
    size_t n_events, cap_events;
    uint64_t events_dropped; /* the oldest, to bound memory */
    struct run_eval *eval;
    size_t n_evals;
    struct run_sample *sample;
    size_t n_samples;
    struct machine_sample *system; /* newest of the machine (io/system.h); NULL = none was logged */
    int64_t system_step;
    struct run_ranks ranks; /* newest of the run's processes */

    enum run_state state;
    int64_t step;     /* newest */
    double last_time; /* wall seconds of the newest record */
    int is_copy;      /* of a log elsewhere, which is made anew for more detail: no event */
    double skew;      /* the writer's clock minus ours, in seconds; set by who knows it */
    double head_time; /* of the newest head, a lower bound for records of its process; 0 none */
    uint64_t records, gaps, lost, bytes, invalid; /* invalid: fields of the wrong type */
    uint64_t generation;                          /* grows whenever anything changed */
    uint64_t life; /* another one for every view and after every reset: what a cache is of */
    int is_behind; /* the last poll used up its budget: there is more to read */
    struct runlog_reader *reader;
    uint64_t others;  /* values of metrics beyond the cap of 512 names */
    uint64_t repeats; /* records dropped because their seq came before */
    uint64_t tail;    /* bytes of an incomplete record at the end (torn or still growing) */
    uint64_t thinned; /* probes dropped to bound memory */
    uint64_t matrices_thinned;   /* the same of matrices */
    struct runview_index *index; /* look-up tables: io/runview.c */
};

enum { RUNVIEW_METRICS = 4096, RUNVIEW_PROBES = 4096, RUNVIEW_PROBE_BYTES = 256 << 20 };
/* Matrices: names, points of a name, rows or columns, values of one, bytes of all. */
enum {
    RUNVIEW_MATRICES = 64,
    RUNVIEW_MATRIX_POINTS = 4096,
    RUNVIEW_MATRIX_SIDE = 4096,
    RUNVIEW_MATRIX_VALUES = 1 << 20,
    RUNVIEW_MATRIX_BYTES = 256 << 20
};

/* PATH: a run directory (its log.mp), a log or trace file, or "-".  A file is read to its current
 * end.  DS_ENOTFOUND: there is no log; DS_EFORMAT: not a record stream. */
int runview_open(struct runview **out, const char *path, struct err *e) DS_CHECK;
/* The same, but reads for about budget_s seconds only; polls read the rest. */
int runview_follow(struct runview **out, const char *path, double budget_s, struct err *e) DS_CHECK;
/* The same for a complete stream: a pipe is read until its writer closes it, and zeros up to the
 * end of a log are no tail.  DS_EFORMAT also when it has no records. */
int runview_read(struct runview **out, const char *path, struct err *e) DS_CHECK;
/* Reads new records for at most about `budget_s` seconds; 1 if anything changed, else 0.
 */
int runview_poll(struct runview *v, double budget_s, struct err *e) DS_CHECK;
/* Pointers obtained from a view are valid until the next poll or take. */
/* Feeds one record body that came from elsewhere (stepper). */
struct value;
void runview_take(struct runview *v, struct value body);
struct runview *runview_new(void);
void runview_free(struct runview *v);

/* NULL if absent.  Where nothing was logged under that very name, also what other programs call it
 * (metric_canonical): "loss" finds "train/loss". */
const struct series *runview_series(const struct runview *v, const char *name);
/* 1 unless the run says that its process does not answer this control command. */
int runview_answers(const struct runview *v, const char *command);
/* Seconds since something was heard of the run: the newest record's time, or for a pipe later
 * bytes, or for a file without times its last change.  NaN when unknown, never negative. */
double runview_age(const struct runview *v, double now);
/* What the writer said of itself: "PyTorch 2.5.1, 4 x NVIDIA H100, 8 ranks, project moe"; ""
 * when nothing.  Returns out. */
const char *runview_source(const struct runview *v, char *out, size_t size);
/* Title of the program or format that logged it ("TensorBoard events"); NULL: our own records. */
const char *runview_foreign(const struct runview *v);
const struct layer_series *runview_layer(const struct runview *v, const char *name);
const struct matrix_series *runview_matrix(const struct runview *v, const char *name);
const char *runview_config(const struct runview *v, const char *key); /* NULL if absent */
/* The same for the run's method: "KEY" of "METHOD.KEY". */
const char *runview_method_config(const struct runview *v, const char *key);
/* The number that a setting begins with; `otherwise` where the setting or the view is absent. */
int runview_config_int(const struct runview *v, const char *key, int otherwise);
/* 1 when the `layers` layers of its records are iterations: all of the model is one looped layer. */
int runview_is_iterated(const struct runview *v, int layers);
/* "iteration" then, else "layer". */
const char *runview_layer_word(const struct runview *v, int layers);
/* Validation loss at a step, of its metric record, else of its evaluation: a run that is stopped
 * evaluates its last checkpoint after its last metric record.  NaN: none. */
double runview_val_loss(const struct runview *v, int64_t step);
/* The step of the newest validation loss, -1 none. */
int64_t runview_val_step(const struct runview *v);
/* Wall seconds (Unix) of the first metric record; NaN when there is none. */
double runview_start(const struct runview *v);
/* Current value of a live setting: that of the newest event which names it, else the
 * configuration's.  0 when unknown. */
int runview_live_value(const struct runview *v, const char *key, double *value);
/* Is layer l always on?  0 when unknown. */
int runview_always_on(const struct runview *v, int l);
/* Unit of a metric, a layer metric or a cell value by the head's metric table; "" when unknown. */
const char *runview_unit(const struct runview *v, const char *name);
/* Its definition by the same table; "" when unknown. */
const char *runview_help(const struct runview *v, const char *name);
/* Newest probe of an index (index < 0: any), or NULL; one that a resume superseded only if there is
 * no other. */
const struct probe *runview_probe(const struct runview *v, int index);
/* The same among those of at most `step`. */
const struct probe *runview_probe_at(const struct runview *v, int index, int64_t step);
/* Caveat to show with its decisions, its gist before the first comma: "top-k, not causal", "what-if,
 * threshold offset +0.5, 2 cells forced", or "". */
const char *probe_caveat(const struct probe *p);
const struct matrix *probe_cell(const struct probe *p, const char *name);
const struct vector *probe_token(const struct probe *p, const char *name);
/* The named scalar of the newest eval whose task matches (NULL any); NaN when absent. */
double runview_eval(const struct runview *v, const char *task, const char *name);
const struct vector *runview_eval_vector(const struct runview *v, const char *task,
                                         const char *name);
/* The result of that name, or NULL. */
const struct vector *run_eval_value(const struct run_eval *x, const char *name);
/* Newest sample of that name (NULL any), or NULL. */
const struct run_sample *runview_sample(const struct runview *v, const char *name);
const struct vector *sample_column(const struct run_sample *s, const char *name);

/* Name of a token class by its number (column "class"), NULL when out of range. */
enum { RUN_CLASSES = 13 };
const char *runview_class(int number);

/* Pyramid for drawing: min and max (NaN ignored, counted) of value[i0..i1) in O(log n). Built
 * lazily, grows with the series. */
/* n: values in the range, nonfinite of them NaN or Inf; min, max and last (finite one) are NaN when
 * all are. */
struct series_span {
    double min, max, last;
    size_t n, nonfinite;
};
struct series_span series_range(const struct series *s, size_t i0, size_t i1);
/* First index with step >= at (series before the last resume are superseded and ordered by
 * arrival). */
size_t series_find(const struct series *s, int64_t step);

#endif
