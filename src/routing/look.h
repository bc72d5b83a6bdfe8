/* What a decision to halt may read from a token's own states, at the exits of a stack or loop:
 *
 *     h_t        the state at exit t (routing/route.h)        d_t = h_t - h_{t-1}, d_0 = 0 */
#ifndef DS_ROUTING_LOOK_H
#define DS_ROUTING_LOOK_H

#include <stdint.h>

#include "base/err.h"
#include "routing/route.h"

enum look {
    LOOK_VELOCITY,     /* |d_t| / |h_t| */
    LOOK_ACCELERATION, /* |d_t - d_{t-1}| / |h_t| */
    LOOK_SCALAR,       /* | |d_t| - |d_{t-1}| | */
    LOOK_TURN,         /* cos(d_t, d_{t-1}) */
    LOOK_CONFIDENCE,   /* largest probability of the head at h_t */
    LOOK_ENTROPY,      /* nats */
    LOOK_KL,           /* KL(p_t || p_{t-1}) */
    LOOK_STATE,        /* h_t / rms(h_t): C inputs of a network, not a number */
    LOOKS,
    LOOK_DOUBT = LOOK_STATE, /* -ln of the confidence, in the place that the state leaves free */
};
enum { LOOK_MOTION_FLOPS = 8 }; /* per channel, for the first four together */

/* A list of looks as the inputs of a network; the index of the exit follows. */
struct looks {
    int feature[LOOKS], n, width; /* width: number of inputs */
};
/* text: names separated by commas, or "".  C: channels.  key: for messages. */
int looks_parse(struct looks *x, const char *key, const char *text, int C, struct err *e) DS_CHECK;

/* One reading of n rows at exit t >= 1. */
struct look_rows {
    const struct route *route;
    const struct stream *stream;
    const struct looks *inputs;
    int t, n, has_motion;
    const int32_t *row;               /* NULL: rows 0..n-1 */
    const real *doubt, *entropy, *kl; /* (n), NULL: not read */
    real *look;                       /* out: (n, LOOKS); NaN where not read */
    real *x;                          /* out: (n, inputs->width), or NULL */
};
void look_read(const struct look_rows *o);

#endif
