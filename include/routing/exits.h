/* Exit gates: at some layers a small network asks each token that is still there whether it leaves.
 *
 *     z = logit of leaving - logit of staying        P = sigmoid(z / T_fwd)       e = 1 with probability P in training,
 *     A[after] = A[before] (1 - e)                                                e = [z > threshold] in use
 *
 * A, the survival, multiplies what the token still takes part in: that is how the loss reaches the gates.  Backward takes
 * e for sigmoid(z / T_bwd).  So both temperatures act: T_fwd on the draws and on the prices below, which are made of P,
 * T_bwd on the gradient. */
#ifndef DS_ROUTING_EXITS_H
#define DS_ROUTING_EXITS_H

#include "base/err.h"
#include "routing/mlp.h"
#include "routing/rank.h"
#include "routing/route.h"

enum { EXITS_MAX = 64 };

struct exits_shape {
    int layer[EXITS_MAX], n;  /* ascending layers with a gate               */
    int64_t hidden[2];        /* widths of the two hidden maps              */
    double std;               /* of initial weights                         */
    double forward, backward; /* initial temperatures                       */
    int learns_temperature;   /* both are parameters of the optimiser       */
};

/* How the gates of a pass are drawn. */
struct exits_rule {
    double noise;     /* logistic noise in units of T_fwd; 0 = none       */
    double threshold; /* added to the stored one, in deviations of z      */
    int use_stored;   /* the threshold that gives the rate of training    */
    int soft;         /* gates take sigmoid(z / T_bwd)                    */
    int note;         /* scores and rates are counted for the stored ones */
};

/* Prices in nats per token, of expected values under P. */
struct exits_price {
    double rate, target; /* rate (share that leaves - target)^2                       */
    double depth;        /* depth * mean expected layer of leaving / L                */
    double early,
        early_layer; /* early * smooth |layer - early_layer L|, over frequent ids that leave */
    int64_t early_ids;
    double diversity, spread; /* diversity * max(0, spread - sd of expected layers)        */
    double monotone;          /* monotone * max(0, - correlation of layer with position)   */
};

struct exits {
    struct params *params;
    int L, n, layer[EXITS_MAX];
    struct mlp gate[EXITS_MAX];
    double bias;           /* constant on z */
    int forward, backward; /* params (n): log temperatures                            */
    int rate,
        trained; /* buffers: (L) share of those present that left; (1) steps with a gradient */
    struct quantiles table;
    int is_on; /* in the present pass: else nobody leaves */
    int R, R_max;
    uint8_t seen[EXITS_MAX];          /* gate was asked in this pass                 */
    real *z, *value, *after, *push;   /* (n,R); value: e as used; push: d price / d z */
    real *ones, *reach, *row, *logit; /* (R); reach: d loss / d survival; logit (R,2) */
    double *depth;                    /* (R) expected layer of leaving               */
    uint8_t *stays;                   /* (R) the rule of use would have left it here */
    double d_forward[EXITS_MAX], left[EXITS_MAX], present[EXITS_MAX];
    int is_moved; /* a gate has had a gradient in this step */
};

/* Layers of the gates from text: "4,8,12" (ascending, inside the model), "none", or "" for places spread over L like 4, 8, 12,
 * 16, 19 over 22.  key: for messages. */
int exits_parse(struct exits_shape *shape, const char *key, const char *text, int L,
                struct err *e) DS_CHECK;
/* Params: "PREFIX.LAYER.K.weight|bias", "PREFIX.log_temperature_forward|backward", and buffers. */
int exits_init(struct exits *x, struct params *ps, const char *prefix, int L, int C,
               const struct exits_shape *shape, struct err *e) DS_CHECK;
int exits_reserve(struct exits *x, int R, struct err *e) DS_CHECK;
void exits_release(struct exits *x);
/* lr as in struct param; 0 = held. */
void exits_hold(struct exits *x, double lr);
void exits_begin(struct exits *x, int R, int is_on);
/* Drops what a training step has counted and exits_update has not taken in. */
void exits_forget(struct exits *x);
/* Asks the gate of layer l, if there is one, for all rows of h (R,C).  Returns how many z were NaN (they stay). */
int exits_decide(struct exits *x, const struct route *r, int l, const real *h,
                 const struct exits_rule *rule);
/* (R) survival behind layer l's gate. */
const real *exits_alive(const struct exits *x, int l);
/* Gate at layer l that was asked in this pass, or -1. */
int exits_at(const struct exits *x, int l);
double exits_temperature(const struct exits *x, int g); /* T_fwd */
double exits_share(const struct exits *x, int l);       /* of all rows, that left at layer l */
double exits_gone(const struct exits *x);               /* and in all */
double exits_threshold(const struct exits *x, const struct exits_rule *rule, int g);
/* Backward goes down the layers: begin, then at each layer reach (R) += d loss / d survival behind its gate, then this.
 * dh (R,C) may be NULL. */
void exits_bwd_begin(struct exits *x);
void exits_bwd(struct exits *x, int l, const real *h, real *dh);
/* The prices; their gradient is kept for exits_bwd. */
double exits_aux(struct exits *x, const struct route *r, const struct exits_price *p);
/* After the optimiser: temperatures within bounds, running rates and thresholds. */
void exits_update(struct exits *x, double ema);
double exits_flops(const struct exits *x, int l); /* per row of layer l */

#endif
