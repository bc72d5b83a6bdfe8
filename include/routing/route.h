/* Routing: who runs where.  A decision is a value (struct plan), written once by a method and read by
 * execution, backward, recomputation, the FLOP count, the records and the tests.
 *
 *     y[row] = x[row] + gate[row] * f(x)[row]     for rows in the plan;     y = x elsewhere
 *
 * A method is one .c file with a struct route_ops and one line in route.c's table.  It never sees attention,
 * KV caches, BLAS or threads; the executor never sees a score. */
#ifndef DS_ROUTING_ROUTE_H
#define DS_ROUTING_ROUTE_H

#include <stddef.h>
#include <stdint.h>

#include "base/config.h"
#include "base/err.h"
#include "base/opt.h"
#include "engine/param.h"
#include "engine/real.h"

/* What a plan's increment is.  A layer is one block, or (ROUTE_SPLIT) an attention and an FFN with a plan each:
 *
 *     u[row] = x[row] + gate[row] * attention(x)[row]         y[row] = u[row] + gate[row] * ffn(u)[row] */
enum route_span { ROUTE_SPAN_BLOCK, ROUTE_SPAN_ATTENTION, ROUTE_SPAN_FFN };
enum kv_policy {
    KV_ALL,  /* K, V of every row are written from its current state */
    KV_PLAN, /* only executed rows are keys (a row always sees itself) */
};

/* One decision.  Rows with gate 0 are run for their gradient only (masked training, probes): they are not
 * keys for others under KV_PLAN and add nothing to the stream. */
struct plan {
    int n;        /* rows that run                                          */
    int active;   /* of these, rows whose gate is not 0                     */
    int32_t *row; /* (n) ascending indices into R = B*T                     */
    real *gate;   /* (n) multiplier of the increment                        */
    real *weight; /* (n) factor on the gate's gradient: 0 = forced, 1/q = probe, else 1 */
    int layer;
    enum route_span span;
    enum kv_policy kv;
};

/* The residual stream: h[l] (R,C) enters layer l, h[L] leaves the last one.  dh is NULL when not training. */
struct stream {
    real **h, **dh;
    real *mid, *dmid; /* (R,C) split layers: between attention and FFN of the present layer */
    int R, C, L;
};

enum pass_kind {
    PASS_DENSE,  /* every row of every layer runs: the dense reference          */
    PASS_TRAIN,  /* the method's training plan: all rows, or sparse with probes */
    PASS_MASKED, /* decisions of use, all rows computed, gates 0/1              */
    PASS_SPARSE, /* decisions of use, only the rows that run are computed       */
};

/* One forward pass: what a method may know. */
struct pass {
    enum pass_kind kind;
    int B, T, R;
    const int32_t *id;  /* (R) token ids                                        */
    const int32_t *pos; /* (R) position in the document                         */
    int64_t step;       /* training step from 1; 0 in use                       */
    double progress;    /* step / planned steps, in [0, 1]                      */
    uint64_t seed;
    const int8_t *
        force; /* (L, R): 1 run, 0 skip, -1 the method decides; or NULL.  Of a split layer: its FFN */
    const int8_t *
        force_attention; /* (L, R) of split layers: the attention too; NULL = it follows the method */
    double offset;       /* what-if: added to thresholds, in the method's standardised units */
    int soft;            /* gradient checks: gates take their soft value         */
    int record;          /* fill the cell arrays                                 */
    int topk; /* use: decisions by rank over whole sequences, as in training: not causal (ROUTE_TOPK) */
    int unit;         /* every gate that is not 0 becomes 1, after the method (checks)   */
    int has_capacity; /* use: this share of the routed cells is asked for (ROUTE_CAPACITY) */
    double capacity;  /* in [0, 1]                                            */
    int calibrate;    /* 1 + index of `capacity` in the grid of ops->calibrate; else 0 */
    int adapters_off; /* the base model alone: no LoRA (teachers)             */
    void *const *
        memory; /* (B) cached use: ops->memory bytes of each sequence, zero before its first token; else NULL */
};

/* What a method reports.  scope: once a step, per layer, or per cell (layers x rows) of a recorded pass.  Names that mean
 * the same everywhere, so that views, reports and figures need to know no method:
 *   cells   score      what was compared          threshold  with this             gate  soft gate in [0, 1]
 *           topk       1 = chosen by rank over the whole sequence (what a causal decision tries to predict)
 *           exited     1 = the token has left before this layer
 *   layers  exit_rate  share of rows that leave at this layer        prior_error   mean square error of a prior network
 *   steps   prior_loss, causal_loss (of a causal predictor), causal_accuracy */
enum metric_scope { METRIC_STEP, METRIC_LAYER, METRIC_CELL };
struct metric {
    const char *name, *unit, *help;
    enum metric_scope scope;
};

enum { ROUTE_METRICS_MAX = 24 };

struct route {
    const struct route_ops *ops;
    int L, C, R_max;
    uint64_t seed;
    void *opts;  /* the method's option struct                   */
    void *state; /* state_size bytes, zeroed                     */
    struct params *params;
    struct pass pass;                  /* the present one                              */
    double *metric[ROUTE_METRICS_MAX]; /* by row of ops->metrics: (1) or (L)     */
    real *cell[ROUTE_METRICS_MAX];     /* METRIC_CELL rows: (L, R) when recording, else NULL */
    int frozen;                        /* decisions are replayed, not made (checks); see regate */
};

/* Made by the loss, read by aux: for penalties. */
struct losses {
    const real
        *entropy; /* (R) predictive entropy / ln V, or NULL when no method asked (ROUTE_ENTROPY) */
    const real *nll;       /* (R) loss of each row's target, 0 without one */
    const int32_t *target; /* (R) < 0: none */
    int R, L;
    double aux; /* out: sum of the method's penalties, nats per token */
};

enum {
    ROUTE_GATED = 1,      /* skips at all                                          */
    ROUTE_STE = 2,        /* trains by straight-through: all rows, gates 0/1       */
    ROUTE_ENTROPY = 4,    /* aux wants the predictive entropy                      */
    ROUTE_CONTROL = 8,    /* a control, not a method: random, static               */
    ROUTE_GRAD = 16,      /* has trainable parameters or penalties: dgate is wanted */
    ROUTE_SPLIT = 32,     /* layers are split: `decide` is called for attention, then for the FFN */
    ROUTE_TOPK = 64,      /* trains by rank over whole sequences; pass.topk is obeyed */
    ROUTE_CAPACITY = 128, /* pass.capacity is obeyed in use                     */
    ROUTE_SOFT = 256,     /* gates of use are any numbers, not only 0 and 1        */
};

/* Capacities that are calibrated: 0, 0.05, ..., 1. */
enum { ROUTE_GRID = 21 };

struct route_ops {
    const char *name, *summary, *paper;
    unsigned flags;
    size_t opts_size, state_size;
    const struct opt *opts; /* keys get the prefix "NAME." */
    size_t n_opts;
    const struct metric *metrics;
    size_t n_metrics;
    const char
        *live; /* keys that `set` takes while a run trains, with spaces between; NULL = none */

    /* Checks options (r->opts is filled), registers parameters. */
    int (*init)(struct route *r, struct err *e);
    /* Reserves per-row state for R rows (again when R grows). */
    int (*reserve)(struct route *r, int R, struct err *e);
    void (*begin)(struct route *r); /* new pass: r->pass is set      */
    /* Split layers: twice, out->span says for what; the FFN's is made from s->mid. */
    void (*decide)(struct route *r, int l, struct plan *out, const struct stream *s);
    /* A frozen soft pass: the gates again, from the signals that were saved; NULL: the plan is replayed as it is. */
    void (*regate)(struct route *r, int l, struct plan *out);
    void (*enter)(struct route *r, int l, const struct plan *p,
                  struct stream *s);                         /* may add to h[l]; NULL ok */
    void (*finish)(struct route *r, const struct stream *s); /* after the last layer; NULL ok */
    void (*aux)(struct route *r, struct losses *x);          /* NULL ok                       */
    /* dgate (n): d loss / d gate, already times plan weight.  Accumulates into own gradients and s->dh (s->dmid for an FFN).
     * Layers come from the last to the first, of a split one the FFN before the attention.  s->mid is that of layer l. */
    void (*decide_bwd)(struct route *r, int l, const struct plan *p, const real *dgate,
                       struct stream *s);
    void (*enter_bwd)(struct route *r, int l, const struct plan *p, struct stream *s);
    /* After the optimiser: controllers and running statistics. */
    void (*update)(struct route *r);
    /* Live settings from the control socket: a key among `live`, or DS_ENOTFOUND. */
    int (*set)(struct route *r, const char *key, double value, struct err *e);
    /* Bytes of state that cached use keeps for one sequence (running sums, last values); NULL = none.  A whole pass starts
     * every document anew; a cached one goes on from pass.memory. */
    size_t (*memory)(const struct route *r);
    /* Can decisions of this kind be made now?  DS_EUSAGE with the command that makes what is missing; NULL = always. */
    int (*ready)(const struct route *r, const struct pass *pass, struct err *e);
    /* Calibration on held-out text.  begin 1: forget; then passes (PASS_SPARSE, pass.calibrate) at each capacity of the grid,
     * several batches of each; begin 0: store.  NULL = nothing to calibrate. */
    void (*calibrate)(struct route *r, int begin);
    /* FLOPs of the decision itself per row of layer l. */
    double (*flops)(const struct route *r, int l);
    /* Is layer l always on (for the pictures)? NULL = no layer is gated. */
    int (*always_on)(const struct route *r, int l);
    void (*release)(struct route *r);
};

const struct route_ops *const *route_all(void);       /* NULL-terminated */
const struct route_ops *route_find(const char *name); /* NULL if unknown */
struct opt_group route_group(const struct route_ops *ops, char prefix[40]);

/* Options must have been read into `opts` (heap, taken); parameters are appended to ps. */
int route_init(struct route *r, const struct route_ops *ops, void *opts, struct params *ps, int L,
               int C, uint64_t seed, struct err *e) DS_CHECK;
int route_reserve(struct route *r, int R, struct err *e) DS_CHECK;
void route_release(struct route *r);

void route_begin(struct route *r, const struct pass *pass);
/* Decides a span of layer l into out (storage for R rows), honouring PASS_DENSE, unit and frozen. */
void route_decide(struct route *r, int l, enum route_span span, struct plan *out, struct stream *s);
/* May passes of this kind be run?  One line of advice when not: topk, capacity and calibration that a method lacks. */
int route_ready(const struct route *r, const struct pass *pass, struct err *e) DS_CHECK;

/* ---- for methods ---- */
/* Builds the plan of layer l: want[i] 1 = runs, 0 = skipped; weight[i] = gradient factor when it is listed
 * (NULL = 1).  all_rows: list every row (masked), else only those wanted, plus rows with probe[i] (may be NULL). */
void plan_from_wants(struct plan *p, const uint8_t *want, const real *weight, const uint8_t *probe,
                     int R, int all_rows);
/* The same from gates (R) of any size: those that are not 0 run. */
void plan_from_gates(struct plan *p, const real *gate, const real *weight, int R, int all_rows);
/* Forced cells of the present pass at (l, i): 1, 0, or -1. */
int route_forced(const struct route *r, int l, int i);
/* The same for the attention of a split layer. */
int route_forced_attention(const struct route *r, int l, int i);
/* Is this a pass of calibration at the point of the grid that is next to `capacity`? */
int route_calibrates(const struct route *r, double capacity);
/* For ops->set: an unknown key (DS_ENOTFOUND naming those of ops->live), and a share of 0 to 1 (else DS_ERANGE). */
int route_no_live(const struct route *r, const char *key, struct err *e);
int route_set_share(double *to, double value, const char *key, struct err *e) DS_CHECK;
/* ops->always_on of a method that may skip in every layer. */
int route_never_always_on(const struct route *r, int l);
/* A row runs at least `on` of L layers, by rule: DS_ERANGE naming the feasible ratios when the target is not one. */
int route_check_target(double target, int on, int L, const char *key, struct err *e) DS_CHECK;

#endif
