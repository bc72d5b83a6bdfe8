/* The metrics of a training step: one report that the trainer fills, and one table that says what
 * each value is called and means.  The head's metric table, the records of a step, `--json`, the
 * Monitor, the figures' labels and data/reference/METRICS.md follow from the rows, so that a new
 * metric is a field of the report, a row, and the value that the trainer sets (train_step,
 * close_account).  Metrics of a routing method are rows of its own table
 * (routing/route.h); readers know them from the head of the log. */
#ifndef DS_IO_METRIC_H
#define DS_IO_METRIC_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "io/record.h"

/* The parts that the duration of a step is made of. */
enum step_part {
    STEP_FORWARD, /* embedding, decisions, blocks */
    STEP_LOSS,    /* head, cross-entropy, and the head's gradients */
    STEP_BACKWARD,
    STEP_OPTIMIZER,
    STEP_DATA,
    STEP_RECORD, /* between two steps: records, control, progress */
    STEP_PARTS
};

/* Per-layer values. */
enum step_layer {
    LAYER_GATE_RATIO,
    LAYER_GRAD_NORM,
    LAYER_UPDATE_RATIO,
    LAYER_EXIT_LOSS, /* of the newest validation */
    STEP_LAYERS
};

/* Results of the newest step. */
struct step_report {
    int64_t step, tokens, skipped;
    double loss, kd, aux, exit, lr, grad_norm, router_norm, tok_s, step_ms, flops_ratio, block_ratio,
        val_loss, bits_per_byte, time_ratio, val_flops_ratio, mfu, evaluation_share,
        checkpoint_share;
    double ms[STEP_PARTS];       /* step_ms is the sum without STEP_RECORD */
    int is_bad, has_val, has_kd; /* kd: the distillation loss of this step */
    int has_exit, exits;         /* exit: weighted sum of the losses of this step's `exits` exits */
    const char *first_bad;
    int layers;
    double *layer[STEP_LAYERS]; /* (layers) each, of the newest step that measured them */
};

/* Reserves the layer values; r is zeroed. */
int step_report_init(struct step_report *r, int layers, struct err *e) DS_CHECK;
void step_report_release(struct step_report *r);
/* Zeroes everything but the layer values, for a new step. */
void step_report_reset(struct step_report *r);

enum run_metric_flags {
    METRIC_INTEGER = 1,   /* the field is an int64_t, else a double */
    METRIC_IF_FINITE = 2, /* absent while it is not finite: not measured */
    METRIC_PART = 4,      /* time_NAME: a part of a step's total time */
    METRIC_EXACT = 8,     /* has no noise: never smoothed */
    METRIC_NO_CHART = 16, /* an axis, or shown with another metric */
    METRIC_PER_LAYER = 32, /* the field is a pointer to a value per layer */
    METRIC_VALIDATION = 64 /* measured by a validation; per layer: in a record of its own after it */
};

/* label: a figure's axis, without the unit.  when: offset of the int that says whether the metric
 * is present, 0 = always.  formula: how the value is computed, in plain text. */
struct run_metric {
    const char *name, *unit, *label, *help;
    size_t offset, when;
    unsigned flags;
    const char *formula; /* NULL: the help says it all */
};
extern const struct run_metric run_metrics[]; /* ends with a row without a name */

const struct run_metric *run_metric_find(const char *name); /* NULL: not a metric of every run */
/* "step" or "layer", as in the head's table. */
const char *run_metric_scope(const struct run_metric *m);
/* "forward" of "time_forward": the name of a part. */
const char *run_metric_part(const struct run_metric *m);
/* 1 and the value when the step has it; 0 for a metric per layer. */
int run_metric_value(const struct run_metric *m, const struct step_report *r, double *out);
/* The values per layer, NULL for a metric of the step. */
const double *run_metric_layers(const struct run_metric *m, const struct step_report *r);
/* Axis label: "Training loss (nats/token)".  unit: from the log's head, "" = from the table; a name
 * that the table lacks is its own label. */
void run_metric_label(char *out, size_t size, const char *name, const char *unit);

/* 1 for results of which more is better (accuracies, tokens/s); losses are the rule. */
int metric_is_gain(const char *name);

/* The metric of this program that another one logged as `name` ("Loss/train" -> "loss"; case and
 * separators do not matter), NULL when there is none or `name` is the metric's own.  *rank: of
 * several names for one metric in a log the lowest is the one to show. */
const char *metric_canonical(const char *name, int *rank);

/* Appends a row of the head's metric table, which is open in r. */
void metric_row_record(struct record *r, const char *name, const char *unit, const char *help,
                       const char *scope);
void run_metrics_record(struct record *r); /* all rows of the table */
/* Appends the metrics of the step, or the vectors of its layers, to a record that was begun. */
void step_report_record(const struct step_report *s, struct record *r);
void step_report_record_layers(const struct step_report *s, struct record *r);
/* The vectors with METRIC_VALIDATION. */
void step_report_record_validation(const struct step_report *s, struct record *r);
/* Appends the members of a JSON object: step, every metric of the step, and "share", the parts as
 * fractions of the total time. */
void step_report_json(const struct step_report *s, struct str *out);

#endif
