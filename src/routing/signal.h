/* Routing signals from a token's own past: how fast its state moves and turns along depth.
 *
 * For the blocks a token has executed, with D_k the k-th executed increment and y_k the state after
 * it:
 *   velocity      v_k = |D_k| / max(|y_k|, 1e-8)
 *   speed change  s_k = | v_k - v_{k-1} |                    (EDP's "acceleration", of two scalars)
 *   acceleration  a_k = |D_k - D_{k-1}| / max(|y_k|, 1e-8)   (arXiv 2509.23314)
 *   turn          c_k = cos(D_k, D_{k-1})
 *   growth        n_k = ln |y_k|
 * Values are kept while a token is skipped; step codes do not count as motion.  With is_literal,
 * the published rule instead: v_l = |x_l - x_{l-1}| / |x_l| at every layer, executed or not,
 * including step codes, v_0 = 0. */
#ifndef DS_ROUTING_SIGNAL_H
#define DS_ROUTING_SIGNAL_H

#include <stdint.h>

#include "base/err.h"
#include "engine/real.h"
#include "routing/route.h"

enum feature {
    FEATURE_VELOCITY,
    FEATURE_SPEED,
    FEATURE_ACCELERATION,
    FEATURE_TURN,
    FEATURE_GROWTH,
    FEATURES
};
extern const char *const feature_name[FEATURES];

/* History of every row of the current pass. */
struct signal {
    int R_max, C, L, is_literal;
    real *last;    /* (R,C) D of the last executed block; literal: x_{l-1} before its step code */
    real *kept;    /* (R,FEATURES) latest values */
    int16_t *runs; /* (R) executed blocks so far */
    real *value;   /* (L,R,FEATURES) what each decision read: for replay and backward */
    /* (L,R) layers of the last two executed blocks at each decision, -1 none */
    int16_t *at, *before;
    int16_t *newest, *older; /* (R) */
};
void signal_layout(struct signal *s, struct arena *a, int R, int C, int L, int is_literal);
void signal_begin(struct signal *s, int R);
/* Before the decision of layer l: updates the history with what layer l-1 did.  ran[i]: row i
 * executed layer l-1 (unused for l = 0). */
void signal_observe(struct signal *s, int l, const uint8_t *ran, const struct stream *st);
/* Features that the decision at (l, row) read. */
const real *signal_at(const struct signal *s, int l, int R, int row);
/* Accumulates d loss / d feature (FEATURES) of (l, row) into the stream's dh (not with
 * is_literal). */
void signal_bwd(const struct signal *s, int l, int row, const real *dfeature, struct stream *st);

#endif
