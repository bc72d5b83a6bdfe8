/* Routing: which rows run in which layer.  A decision is a value (struct plan), written once by a
 * method and read by execution, backward, recomputation, the FLOP count, the records and the tests.
 *
 *     y[row] = x[row] + gate[row] * f(x)[row]     for rows in the plan;     y = x elsewhere
 *
 * A method is one .c file with a struct route_ops and one line in route.c's table.  It never sees
 * attention, KV caches, BLAS or threads; the executor never sees a score. */
#ifndef DS_ROUTING_ROUTE_H
#define DS_ROUTING_ROUTE_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/config.h"
#include "base/err.h"
#include "base/opt.h"
#include "engine/param.h"
#include "engine/real.h"
/* The increment that a plan applies to.  A layer is one block, or (ROUTE_SPLIT) an attention and an
 * FFN with a plan each:
 *
 *     u[row] = x[row] + gate[row] * attention(x)[row]
 *     y[row] = u[row] + gate[row] * ffn(u)[row] */
enum route_span { ROUTE_SPAN_BLOCK, ROUTE_SPAN_ATTENTION, ROUTE_SPAN_FFN };
enum kv_policy {
    KV_ALL,  /* K, V of every row are written from its current state */
    KV_PLAN, /* only executed rows are keys (a row always sees itself) */
};

/* One decision.  Rows with gate 0 are computed for their gradient only (masked training, probes):
 * under KV_PLAN they are not keys for others, and they add nothing to the residual stream. */
struct plan {
    int n;        /* rows listed */
    int active;   /* listed rows with gate != 0 */
    int32_t *row; /* (n) ascending indices into R = B*T */
    real *gate;   /* (n) multiplier of the increment */
    real *weight; /* (n) factor on the gate's gradient: 0 = forced, 1/q = probe, else 1 */
    int layer;
    enum route_span span;
    enum kv_policy kv;
    /* (R) 1: under KV_ALL this row's keys and values are those of the loop's previous iteration,
     * because its state is the same; NULL: none.  Set by the executor. */
    const uint8_t *settled;
};

/* Of a state: what the head reads of h[l]; what layer l's attention reads of h[l], and, in a split
 * layer, its FFN of mid. */
enum route_norm { ROUTE_NORM_FINAL, ROUTE_NORM_ATTENTION, ROUTE_NORM_FFN };

/* Reads predictions from states of the current pass, for methods that decide by them: the final
 * norm and the head on h[l] of n listed rows.  Arrays of n, NULL = not wanted.  kl: KL(p_l ||
 * p_before) in nats, reads h[before] too.  Each read counts as 2 C V FLOPs per row and state. */
struct lens_values {
    real *doubt; /* -ln of the largest probability */
    real *entropy, *kl;
};
struct route_lens {
    void *ctx;
    void (*read)(void *ctx, int l, int before, const int32_t *row, int n,
                 const struct lens_values *out);
    /* A norm of the listed rows, out (n,C); not counted. */
    void (*normed)(void *ctx, enum route_norm of, int l, const int32_t *row, int n, real *out);
    /* Counts what else the decision costs for these rows, in FLOPs each; a method that does so has
     * no ops->flops. */
    void (*count)(void *ctx, int l, const int32_t *row, int n, double each);
};

/* The residual stream: h[l] (R,C) is the input of layer l, h[L] the output of the last layer.  dh
 * is NULL when not training. */
struct stream {
    real **h, **dh;
    real *mid, *dmid; /* (R,C) split layers: between attention and FFN of the current layer */
    struct route_lens lens;
    int R, C, L;
};

enum pass_kind {
    PASS_DENSE,  /* every row of every layer runs: the dense reference */
    PASS_TRAIN,  /* the method's training plan: all rows, or sparse with probes */
    PASS_MASKED, /* inference-time decisions, all rows computed, gates 0/1 */
    PASS_SPARSE, /* inference-time decisions, only the rows that run are computed */
};

/* What a pass at inference may ask for; all zero: the method's own decisions. */
struct pass_inference {
    /* Forced cells (L,R): 1 run, 0 skip, -1 the method decides; NULL: none.  In a split layer they
     * apply to the FFN, and force_attention to the attention (NULL: it follows the method). */
    const int8_t *force;
    const int8_t *force_attention;
    /* (L,R) an expert (or no-op) that a row runs in place of the last of its own, -1: its own; NULL:
     * none.  The block obeys it, no method asks. */
    const int16_t *force_expert;
    double offset;    /* what-if: added to thresholds, in the method's standardised units */
    int topk;         /* by rank over whole sequences: not causal (ROUTE_TOPK) */
    int has_capacity; /* `capacity` is set: this share of the routed cells runs (ROUTE_CAPACITY) */
    double capacity;  /* in [0, 1] */
    int calibrate;    /* 1 + index of `capacity` in the calibration grid; else 0 */
    int exit; /* > 0: the first `exit` layers run, then the head (and a loop's last blocks) */
    const uint8_t *closed; /* (L) 1: the layer is closed, as those after an exit are; NULL: none */
};

/* One forward pass, as far as a method may know it. */
struct pass {
    enum pass_kind kind;
    int B, T, R;
    const int32_t *id;  /* (R) token ids */
    const int32_t *pos; /* (R) position in the document */
    int64_t step;       /* training step from 1; 0 at inference */
    int first_row;      /* training: place of row 0 in the batch of the step, which may be cut into
                           pieces (training/pieces.h): random draws depend on it, not on the cut */
    double progress;    /* step / planned steps, in [0, 1] */
    uint64_t seed;
    int soft;   /* gradient checks: gates take their soft value */
    int record; /* fill the cell arrays */
    int unit;   /* checks: non-zero gates are set to 1 after the decision */
    /* Layers stop .. resume - 1 are closed: no row runs, none is a key, the method is not asked.
     * Equal: no layer is closed.  Set by the model. */
    int stop, resume;
    int adapters_off; /* the base model alone: no LoRA (teachers) */
    int is_stepwise;  /* cached rows of a sequence get the bits they would get one at a time */
    struct pass_inference inference; /* a training pass leaves it zero */
    /* (R) first row of a private span, which rows after the span do not see, -1: none; NULL: none at
     * all */
    const int32_t *private_row;
    /* (B) cached inference: ops->memory bytes per sequence, zero before its first token; else
     * NULL */
    void *const *memory;
};

/* A value that a method reports once per step, per layer, or per cell (layer and row) of a recorded
 * pass.  These names mean the same in every method, so views, reports and figures can rely on them:
 *   cells   score      compared value             threshold  what it is compared with
 *           gate       soft gate in [0, 1]        exited     1 = the token exited before this layer
 *           topk       1 = chosen by rank over the whole sequence (the target of a causal decision)
 *   layers  exit_rate  share of rows that exit at this layer
 *           prior_error  mean squared error of a prior network
 *   steps   prior_loss, causal_loss (of a causal predictor), causal_accuracy */
enum metric_scope { METRIC_STEP, METRIC_LAYER, METRIC_CELL };
extern const char *const metric_scope_name[]; /* "step", "layer", "cell" */
struct metric {
    const char *name, *unit, *help;
    enum metric_scope scope;
    int is_sum; /* counts something: over the pieces of a step it adds up, others are means */
};

enum { ROUTE_METRICS_MAX = 24 };

/* Layers start .. end - 1 are iterations of `group` layers with the same weights.  A stack without
 * a loop is one whose group is a single layer: start 0, group 1, end L. */
struct route_loop {
    int start, group, end;
};

struct route {
    const struct route_ops *ops;
    int L, C, R_max;
    struct route_loop loop;
    uint64_t seed;
    void *opts;  /* the method's option struct */
    void *state; /* state_size bytes, zeroed */
    struct params *params;
    struct arena rows; /* what depends on R_max: cells and the method's layout */
    double capacity;   /* of passes at inference that set none; < 0: the method's own */
    struct pass pass;  /* the current pass */
    double *metric[ROUTE_METRICS_MAX]; /* by row of ops->metrics: (1) or (L) */
    real *cell[ROUTE_METRICS_MAX];     /* METRIC_CELL rows: (L, R), filled when recording */
    int frozen;                        /* checks: decisions are replayed, not made; see regate */
    int wants_exits;                   /* set by init: aux reads losses.exit_* */
};

/* Computed by the loss, read by ops->aux for penalties. */
struct losses {
    const real *entropy;   /* (R) predictive entropy / ln V; NULL unless ROUTE_ENTROPY */
    const real *nll;       /* (R) loss of each row's target, 0 without one */
    const int32_t *target; /* (R) < 0: none */
    int R, L;
    double rows; /* what the loss is divided by: rows with a target, or, where the pass is one piece
                    of a step, its share of those of the whole step */
    /* (L + 1, R) as in models/exits.h; NULL unless wanted (aux) or calibrating (observe) */
    const real *exit_nll, *exit_doubt, *exit_entropy, *exit_kl;
    const int32_t *exit_best;
    int64_t planned; /* observe: rows of the whole calibration */
    double aux;      /* out: sum of the method's penalties, nats per token */
};

enum {
    ROUTE_GATED = 1,      /* may skip cells */
    ROUTE_STE = 2,        /* trains straight-through: all rows, gates 0/1 */
    ROUTE_ENTROPY = 4,    /* aux needs the predictive entropy */
    ROUTE_CONTROL = 8,    /* a control: random, static, stochastic */
    ROUTE_GRAD = 16,      /* has trainable parameters or penalties: needs dgate */
    ROUTE_SPLIT = 32,     /* layers are split: `decide` is called for attention, then for the FFN */
    ROUTE_TOPK = 64,      /* trains by rank over whole sequences; inference.topk is obeyed */
    ROUTE_CAPACITY = 128, /* inference.capacity is obeyed */
    ROUTE_SOFT = 256,     /* gates at inference may be any value, not only 0 and 1 */
    ROUTE_EXITS = 512,    /* learns from what every exit would lose: observe, losses.exit_* */
};

/* Calibrated capacities: 0, 0.05, ..., 1. */
enum { ROUTE_GRID = 21 };

/* n values that a pass counted, sums over its rows or (is_mean) means of them. */
typedef void route_count_fn(void *ctx, double *x, size_t n, int is_mean);

struct route_ops {
    const char *name, *summary, *paper;
    unsigned flags;
    size_t opts_size, state_size;
    const struct opt *opts; /* keys get the prefix "NAME." */
    size_t n_opts;
    const struct metric *metrics;
    size_t n_metrics;

    /* Checks options (r->opts is filled), registers parameters. */
    int (*init)(struct route *r, struct err *e);
    /* Lays out per-row state for R rows in the arena: once to measure (a->measuring), once to
     * allocate, and again when R grows. NULL: none. */
    void (*layout)(struct route *r, struct arena *a, int R);
    /* A new pass, described by r->pass. */
    void (*begin)(struct route *r);
    /* Split layers: called twice, out->span says for which half; the FFN's decision reads
     * s->mid. */
    void (*decide)(struct route *r, int l, struct plan *out, const struct stream *s);
    /* In a frozen soft pass: recomputes the gates from the saved signals.  NULL: the plan is
     * replayed unchanged. */
    void (*regate)(struct route *r, int l, struct plan *out);
    /* The next three may be NULL.  enter may add to h[l]; in a split layer it is called a second time,
     * with the FFN's plan, and may add to mid, which has no enter_bwd.  finish is called after the
     * last layer. */
    void (*enter)(struct route *r, int l, const struct plan *p, struct stream *s);
    void (*finish)(struct route *r, const struct stream *s);
    void (*aux)(struct route *r, struct losses *x);
    /* dgate (n): d loss / d gate, already multiplied by the plan's weight.  Accumulates into the
     * method's gradients and s->dh (s->dmid for an FFN).  Called from the last layer to the first,
     * in a split layer for the FFN before the attention; s->mid is that of layer l. */
    void (*decide_bwd)(struct route *r, int l, const struct plan *p, const real *dgate,
                       struct stream *s);
    void (*enter_bwd)(struct route *r, int l, const struct plan *p, struct stream *s);
    /* After the optimiser: controllers and running statistics. */
    void (*update)(struct route *r);
    /* Calls `each` with whatever `update` reads that training passes counted since the last update.
     * Where a step is cut into pieces, the values of all pieces are put there before update. */
    void (*counts)(struct route *r, route_count_fn *each, void *ctx);
    /* A live setting (is_live in its row) has a new value, inside its range: checks it with the
     * other options and recomputes what depends on it.  An error takes the value back, so state
     * must not have changed.  NULL = nothing to do. */
    int (*changed)(struct route *r, struct err *e);
    /* Bytes of state that cached inference keeps per sequence (running sums, last values); NULL =
     * none. A whole pass starts every document afresh; a cached one continues from pass.memory. */
    size_t (*memory)(const struct route *r);
    /* Can such a pass be decided now?  DS_EUSAGE with the command to run first; NULL = always. */
    int (*ready)(const struct route *r, const struct pass *pass, struct err *e);
    /* Calibration on held-out text.  begin 1: clear; then passes (PASS_SPARSE, inference.calibrate)
     * at each capacity of the grid, several batches of each; begin 0: store.  DS_EMEM: the
     * stored thresholds are the old ones.  NULL = nothing to calibrate. */
    int (*calibrate)(struct route *r, int begin, struct err *e);
    /* ROUTE_EXITS: calibration runs dense passes instead and calls this after each, with the exit
     * losses. */
    int (*observe)(struct route *r, const struct stream *s, const struct losses *x, struct err *e);
    /* FLOPs of the decision itself per row of layer l. */
    double (*flops)(const struct route *r, int l);
    /* Is layer l always on (for figures)? NULL = no layer is gated. */
    int (*always_on)(const struct route *r, int l);
    void (*release)(struct route *r);
};

const struct route_ops *const *route_all(void);       /* NULL-terminated */
const struct route_ops *route_find(const char *name); /* NULL if unknown */
struct opt_group route_group(const struct route_ops *ops, char prefix[40]);

/* opts: heap, already filled, taken; parameters are appended to ps.  loop NULL: none. */
int route_init(struct route *r, const struct route_ops *ops, void *opts, struct params *ps, int L,
               int C, const struct route_loop *loop, uint64_t seed, struct err *e) DS_CHECK;
int route_reserve(struct route *r, int R, struct err *e) DS_CHECK;
/* What route_reserve lays out; with a measuring arena its size, after which r must not run. */
void route_layout(struct route *r, struct arena *a, int R);
void route_release(struct route *r);
/* Writes a live setting: a row of ops->opts with is_live.  On an error nothing has changed. */
int route_set(struct route *r, const struct opt *row, double value, struct err *e) DS_CHECK;

void route_begin(struct route *r, const struct pass *pass);
/* Decides a span of layer l into out (arrays for R rows); handles PASS_DENSE, unit and frozen. */
void route_decide(struct route *r, int l, enum route_span span, struct plan *out, struct stream *s);
/* Is layer l closed in the current pass? */
static inline int route_is_closed(const struct route *r, int l)
{
    const uint8_t *closed = r->pass.inference.closed;
    return (l >= r->pass.stop && l < r->pass.resume) || (closed && closed[l]);
}
/* May a token leave before layer l, at the end of an iteration or of a plain layer?  It then skips
 * the rest of the loop; the layers after it run. */
static inline int route_may_leave(const struct route *r, int l)
{
    return l > r->loop.start && l < r->loop.end && (l - r->loop.start) % r->loop.group == 0;
}
/* Where a token may leave for good: between layers, or between the iterations of a loop. Exit 0 is
 * before the first of them, the last one the end of the stack or loop. */
static inline int route_exits(const struct route *r)
{
    return (r->loop.end - r->loop.start) / r->loop.group + 1;
}
/* The layer that exit t precedes. */
static inline int route_exit(const struct route *r, int t)
{
    return r->loop.start + t * r->loop.group;
}
/* Is this kind of pass possible?  If not, the error says what to do: top-k, capacity or calibration
 * that the method lacks. */
int route_ready(const struct route *r, const struct pass *pass, struct err *e) DS_CHECK;

/* ---- for methods ---- */
/* Where row i is in the batch of the training step. */
static inline uint32_t route_place(const struct pass *p, int i)
{
    return (uint32_t)(p->first_row + i);
}
/* The first row of row i's private span, or -1. */
static inline int route_span(const struct pass *p, int i)
{
    return p->private_row ? p->private_row[i] : -1;
}
/* Every row runs. */
void plan_all(struct plan *p, int R);
/* Builds the plan of layer l: want[i] 1 = runs, 0 = skipped; weight[i] = factor on its gate's
 * gradient (NULL = 1).  all_rows: list every row (masked), else those wanted and rows with probe[i]
 * (may be NULL). */
void plan_from_mask(struct plan *p, const uint8_t *want, const real *weight, const uint8_t *probe,
                    int R, int all_rows);
/* The same from gates (R) of any value: rows with gate != 0 run. */
void plan_from_gates(struct plan *p, const real *gate, const real *weight, int R, int all_rows);
/* Forced value of cell (l, i) in the current pass: 1, 0, or -1. */
int route_forced(const struct route *r, int l, int i);
/* The same for the attention of a split layer. */
int route_forced_attention(const struct route *r, int l, int i);
/* Every row runs at least `on` of L layers: DS_ERANGE with the feasible ratios when the target is
 * not feasible. */
int route_check_target(double target, int on, int L, const char *key, struct err *e) DS_CHECK;

#endif
