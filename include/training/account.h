/* The step's own account: where its time went, and what share of the processor's peak its products reached.
 *
 * A stopwatch that at any moment runs for exactly one part, so the parts add up to the whole.  Values are plain: means
 * over steps are the viewer's. */
#ifndef DS_TRAINING_ACCOUNT_H
#define DS_TRAINING_ACCOUNT_H

#include <stddef.h>
#include <stdint.h>

#include "engine/peak.h"
#include "models/model.h"

enum account_part {
    ACCOUNT_FORWARD, /* embedding, decisions, blocks */
    ACCOUNT_LOSS,    /* head, cross-entropy, and the head's gradients */
    ACCOUNT_BACKWARD,
    ACCOUNT_OPTIMIZER,
    ACCOUNT_DATA,
    ACCOUNT_RECORD,                    /* between two steps: records, control, progress */
    ACCOUNT_STEP,                      /* so many parts make a step                     */
    ACCOUNT_EVALUATION = ACCOUNT_STEP, /* the run's, not the step's: validation and probes */
    ACCOUNT_CHECKPOINT,
    ACCOUNT_PAUSE, /* nobody's */
    ACCOUNT_PARTS
};

/* The parts of a step: "forward", its metric "time_forward" (ms), help. */
struct account_row {
    const char *name, *metric, *help;
};
extern const struct account_row account_row[ACCOUNT_STEP];

struct account {
    enum account_part part; /* now */
    double since;
    double spent[ACCOUNT_PARTS]; /* seconds of the present step; of RECORD since the last record */
    double total[ACCOUNT_PARTS]; /* seconds since account_begin */
    double record_told;          /* of spent[RECORD], in the newest step's report */
    int64_t steps;               /* since the last record */
    enum peak_unit unit;         /* of the products of a step */
    double peak;                 /* GFLOP/s, 0 = not measured */
};

/* Measures the peak of `unit`, about 50 ms. */
void account_measure(struct account *a, enum peak_unit unit);
/* Starts the clock, in ACCOUNT_RECORD. */
void account_begin(struct account *a);
/* The clock runs for `part` from here on; the part it ran for so far. */
enum account_part account_enter(struct account *a, enum account_part part);
/* A step ends, ACCOUNT_RECORD begins.  ms: what the step took; RECORD is its mean per step since the last record, the cost of
 * writing that record included. */
void account_step(struct account *a, double ms[ACCOUNT_STEP]);
/* That report went into a record. */
void account_told(struct account *a);
/* EVALUATION or CHECKPOINT over all time since account_begin, pauses left out; 0 at the begin. */
double account_share(const struct account *a, enum account_part part);

/* FLOPs of the products of a training step over these plans (L) of R rows: a multiply-add is 2; every listed row is
 * computed, with gate 0 too; attention counts the keys that a row sees, not the padding of tiles; backward is two products
 * for each of forward, and `recompute` runs the blocks once more.  Looking up an embedding is no product; routers,
 * norms and activations are left out (well under 1 %).  frozen: the base's matrices have one product in backward; an
 * adapter has three times its forward, whose inner rows are made again.  first_row as in routing/flops.h. */
double account_flops(const struct flops_shape *s, const struct plan *plan, const struct plan *ffn,
                     const int32_t *first_row, int R, int recompute, int frozen);
/* Of the peak, over `ms`; NaN when either is unknown. */
double account_mfu(const struct account *a, double flops, double ms);

/* Bytes of the arenas, as they were measured and reserved. Scratch grows inside the kernels and is not among them. */
enum { ACCOUNT_ARENAS = 3 };
struct account_arena {
    const char *name;
    size_t bytes;
};
void account_arenas(const struct model *m, struct account_arena out[ACCOUNT_ARENAS]);

#endif
