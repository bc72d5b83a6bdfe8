/* Accounting of a training step: time per part, and model FLOPs utilisation.
 *
 * A stopwatch that runs for exactly one part at any moment, so the parts add up to the whole.
 * Values are per step; averaging is left to the viewer. */
#ifndef DS_TRAINING_ACCOUNT_H
#define DS_TRAINING_ACCOUNT_H

#include <stddef.h>
#include <stdint.h>

#include "engine/peak.h"
#include "io/metric.h"
#include "models/model.h"

/* What the clock runs for, after the parts of a step (io/metric.h). */
enum account_part {
    ACCOUNT_EVALUATION = STEP_PARTS, /* not part of a step: validation and probes */
    ACCOUNT_CHECKPOINT,
    ACCOUNT_PAUSE, /* counted nowhere */
    ACCOUNT_PARTS
};

struct account {
    int part; /* now */
    double since;
    double spent[ACCOUNT_PARTS]; /* seconds of the current step; RECORD: since the last record */
    double total[ACCOUNT_PARTS]; /* seconds since account_begin */
    double record_reported;      /* share of spent[RECORD] in the newest report */
    int64_t steps;               /* since the last record */
    enum peak_unit unit;         /* of the step's matrix multiplications */
    double peak;                 /* GFLOP/s, 0 = not measured */
};

/* Measures the peak of `unit`, about 50 ms. */
void account_measure(struct account *a, enum peak_unit unit);
/* Starts the clock, in STEP_RECORD. */
void account_begin(struct account *a);
/* Switches the clock to `part`, of a step or an account_part; returns the previous part. */
int account_enter(struct account *a, int part);
/* Ends a step and starts STEP_RECORD.  ms: time per part; RECORD is the mean per step since the
 * last record, including the cost of writing that record. */
void account_step(struct account *a, double ms[STEP_PARTS]);
/* Call when a report has been written to a record. */
void account_restart_window(struct account *a);
/* Share of EVALUATION or CHECKPOINT in the time since account_begin, excluding pauses; 0 at
 * first. */
double account_share(const struct account *a, int part);

/* FLOPs of the matrix multiplications of a training step over these plans (L) of R rows: a
 * multiply-add is 2; every listed row is computed, also with gate 0; attention counts visible keys,
 * not tile padding; backward is two multiplications per forward one, and `recompute` runs the
 * blocks once more.  Embedding lookups are not counted; routers, norms and activations are omitted
 * (well under 1 %).  frozen: matrices of the base take one multiplication in backward; an adapter
 * takes three times its forward, whose inner rows are recomputed.  block (L): the windows; NULL:
 * none.  first_row as in routing/flops.h; private spans (models/model.h) are counted as if they
 * were visible, which overstates attention a little. */
double account_flops(const struct flops_shape *s, const struct plan *plan, const struct plan *ffn,
                     const struct block_params *block, const int32_t *first_row, int R,
                     int recompute, int frozen);
/* The same for the last pass of a model, some of whose layers may have no experts, less what `noops`
 * choices of no-op experts save. */
double account_model_flops(const struct model *m, double noops, int recompute, int frozen);
/* The same for the head and the loss at `exits` more states of R rows (training/exit_loss.h). */
double account_exit_flops(const struct flops_shape *s, int R, double exits, int frozen);
/* Share of the peak reached with `flops` in `ms`; NaN when either is unknown. */
double account_mfu(const struct account *a, double flops, double ms);

/* Bytes of the reserved arenas; scratch memory grows inside the kernels and is not included. */
enum { ACCOUNT_ARENAS = 3 };
struct account_arena {
    const char *name;
    size_t bytes;
};
void account_arenas(const struct model *m, struct account_arena out[ACCOUNT_ARENAS]);

#endif
