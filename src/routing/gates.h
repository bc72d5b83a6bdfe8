/* Gates of a method that decides per cell and trains straight-through: the forward value is the
 * hard gate, the gradient is that of the soft one.  Kept per cell, so that backward and replay read
 * what was decided. */
#ifndef DS_ROUTING_GATES_H
#define DS_ROUTING_GATES_H

#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "engine/real.h"
#include "routing/route.h"

struct gates {
    int L;
    uint8_t *want, *ran;       /* (R) runs this layer; ran the previous one */
    uint8_t *probe;            /* (R) skipped, but computed for its gradient */
    uint8_t *open;             /* (L) decided in this pass: layers may be closed */
    int layers;                /* so many */
    int16_t *skipped, *in_row; /* (R) layers skipped so far; consecutive skips */
    uint8_t *forced;           /* (L,R) by the method or the pass: no gate gradient */
    real *score, *soft;        /* (L,R) compared value; sigmoid((score - tau) / T) */
    real *weight;              /* (R) factor on the gate's gradient, as in struct plan */
    /* Logistic noise on the score, in temperatures: at 1 a gate is a draw from its soft value.  Set
     * by the method after gates_begin, 0 at inference. */
    double noise;
};

void gates_layout(struct gates *g, struct arena *a, int rows, int layers);
void gates_begin(struct gates *g, int R);
/* Decides cell (l, i): it runs when the pass or the method forces it, else when score > tau. */
void gates_decide(struct gates *g, const struct route *r, int l, int i, int always_on, real score,
                  double tau, double temperature);
/* The plan of layer l from these decisions: every row (masked) or those that run (sparse).  Sparse
 * training with probe_rate > 0 also lists random skipped rows, weight 1 / rate.  Soft passes get
 * soft gates. */
void gates_plan(struct gates *g, const struct route *r, int l, struct plan *out, int sparse,
                double probe_rate);
/* Ends layer l: counts its skips. */
void gates_next(struct gates *g, int l, int R);
/* In a frozen soft pass: recomputes the soft gate of plan row k from another score or threshold. */
void gates_rescore(struct gates *g, const struct route *r, int l, struct plan *out, int k,
                   real score, double tau, double temperature);
/* Executed layers of row i after the last one; in a soft pass the sum of its gates. */
double gates_depth(const struct gates *g, const struct route *r, int i);
/* Executed cells / all cells of the layers that were decided. */
double gates_ratio(const struct gates *g, int R);

#endif
