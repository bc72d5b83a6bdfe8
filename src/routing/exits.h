/* Exit gates: at some layers a small network decides for each remaining token whether it exits.
 *
 *     z = logit of exiting - logit of staying        P = sigmoid(z / T_fwd)
 *     training: e = 1 with probability P             inference: e = [z > threshold]
 *     A[after] = A[before] (1 - e)
 *
 * A, the survival, multiplies the gates of the token's later spans; through it the loss reaches the
 * exit gates.  Backward uses sigmoid(z / T_bwd) in place of e.  So both temperatures matter: T_fwd
 * for the draws and for the penalties below, which use P, and T_bwd for the gradient. */
#ifndef DS_ROUTING_EXITS_H
#define DS_ROUTING_EXITS_H

#include "base/err.h"
#include "routing/mlp.h"
#include "routing/rank.h"
#include "routing/route.h"

enum { EXITS_MAX = 64 };

struct exits_shape {
    int layer[EXITS_MAX], n;  /* ascending layers with a gate */
    int64_t hidden[2];        /* widths of the two hidden layers */
    double std;               /* standard deviation of initial weights */
    double forward, backward; /* initial temperatures */
    int learns_temperature;   /* both are trained */
};

/* How the gates of a pass are decided. */
struct exits_rule {
    double noise;     /* logistic noise in units of T_fwd; 0 = none */
    double threshold; /* added to the stored one, in standard deviations of z */
    int use_stored;   /* use the threshold that gives the training exit rate */
    int by_rows;      /* calibration: that threshold as the rows of this pass give it */
    int soft;         /* gates take sigmoid(z / T_bwd) */
    int note;         /* update the statistics behind the stored thresholds */
};

/* Weights of the exit penalties, nats per token.  All are computed from expected values under P. */
struct exits_penalty {
    double rate, target; /* rate (exit share - target)^2 */
    double depth;        /* depth * mean expected exit layer / L */
    double early,
        early_layer; /* early * smooth |layer - early_layer L| over frequent ids that exit */
    int64_t early_ids;
    double diversity, spread; /* diversity * max(0, spread - sd of expected exit layers) */
    double monotone;          /* monotone * max(0, - correlation of exit layer and position) */
};

struct exits {
    struct params *params;
    int L, n, layer[EXITS_MAX];
    struct mlp gate[EXITS_MAX];
    double bias;           /* added to z */
    int forward, backward; /* params (n): log temperatures */
    int rate,
        trained; /* buffers: (L) share of present tokens that exit; (1) steps with a gradient */
    struct quantiles table;
    int is_on; /* off: no token exits in this pass */
    int R, R_max;
    uint8_t seen[EXITS_MAX];          /* the gate was evaluated in this pass */
    real *z, *value, *after, *push;   /* (n,R); value: e as used; push: d penalty / d z */
    real *ones, *reach, *row, *logit; /* (R); reach: d loss / d survival; logit (R,2) */
    double *depth;                    /* (R) expected exit layer */
    uint8_t *stays;                   /* (R) the inference rule would not have let it exit yet */
    double d_forward[EXITS_MAX], left[EXITS_MAX], present[EXITS_MAX];
    double is_moved; /* > 0: some gate had a gradient in this step */
};

/* Reads the layers with a gate: "4,8,12" (ascending, inside the model), "none", or "" for layers
 * spread over L as 4, 8, 12, 16, 19 are over 22.  key: for messages. */
int exits_parse(struct exits_shape *shape, const char *key, const char *text, int L,
                struct err *e) DS_CHECK;
/* Params: "PREFIX.LAYER.K.weight|bias", "PREFIX.log_temperature_forward|backward", plus buffers. */
int exits_init(struct exits *x, struct params *ps, const char *prefix, int L, int C,
               const struct exits_shape *shape, struct err *e) DS_CHECK;
void exits_layout(struct exits *x, struct arena *a, int R);
void exits_release(struct exits *x);
/* lr as in struct param; 0 = frozen. */
void exits_freeze(struct exits *x, double lr);
void exits_begin(struct exits *x, int R, int is_on);
/* Clears the statistics of a training step that exits_update has not consumed. */
void exits_forget(struct exits *x);
/* Evaluates the gate of layer l, if there is one, for all rows of h (R,C).  Returns how many z were
 * NaN (these tokens stay). */
int exits_decide(struct exits *x, const struct route *r, int l, const real *h,
                 const struct exits_rule *rule);
/* (R) survival after layer l's gate. */
const real *exits_alive(const struct exits *x, int l);
/* Index of the gate at layer l if it was evaluated in this pass, else -1. */
int exits_at(const struct exits *x, int l);
double exits_temperature(const struct exits *x, int g); /* T_fwd */
double exits_share(const struct exits *x, int l);       /* share of all rows that exit at layer l */
double exits_rate(const struct exits *x);               /* and at any layer */
double exits_threshold(const struct exits *x, const struct exits_rule *rule, int g);
/* Backward goes from the last open layer down: call begin, then per layer add d loss / d survival
 * after its gate to reach (R), then call this.  dh (R,C) may be NULL. */
void exits_bwd_begin(struct exits *x);
void exits_bwd(struct exits *x, int l, const real *h, real *dh);
/* The penalties; their gradient is kept for exits_bwd. */
double exits_aux(struct exits *x, const struct route *r, const struct exits_penalty *p);
/* After the optimiser: clamps temperatures, updates running rates and thresholds. */
void exits_counts(struct exits *x, route_count_fn *each, void *ctx);
void exits_update(struct exits *x, double ema);
double exits_flops(const struct exits *x, int l); /* per row of layer l */

#endif
