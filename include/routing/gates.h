/* Gates of a method that decides cell by cell and trains by straight-through: the hard gate's value, the soft one's
 * gradient.  Kept per cell so that backward and replay read what was decided. */
#ifndef DS_ROUTING_GATES_H
#define DS_ROUTING_GATES_H

#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "engine/real.h"
#include "routing/route.h"

struct gates {
    int L;
    uint8_t *want, *ran;       /* (R) runs this layer; ran the one before           */
    uint8_t *probe;            /* (R) is skipped, but computed for its gradient     */
    int16_t *skipped, *in_row; /* (R) layers skipped so far; the last ones in a row */
    uint8_t *forced;           /* (L,R) by rule or by the pass: no gate gradient    */
    real *score, *soft;        /* (L,R) what was compared; sigmoid((score - tau) / T) */
    real *weight;              /* (R) factor on the gate's gradient, see plan       */
    struct arena rows;         /* all of these                                      */
    double
        noise; /* logistic noise on the compared score, in units of the temperature: at 1 a gate is a
                                  draw from its own soft value; set by the method after gates_begin, 0 in use */
};

int gates_reserve(struct gates *g, int R, int L, struct err *e) DS_CHECK;
void gates_release(struct gates *g);
void gates_begin(struct gates *g, int R);
/* Decides cell (l, i): it runs when the pass or the rule says so, else when score > tau. */
void gates_decide(struct gates *g, const struct route *r, int l, int i, int by_rule, real score,
                  double tau, double temperature);
/* The plan of layer l from what was decided: every row (masked) or those that run (sparse); in sparse training with
 * probe_rate > 0 also skipped rows by lot, of weight 1 / rate.  Soft passes get soft gates. */
void gates_plan(struct gates *g, const struct route *r, int l, struct plan *out, int sparse,
                double probe_rate);
/* The layer is done: counts its skips. */
void gates_next(struct gates *g, int R);
/* In a frozen soft pass: the soft gate of row k of the plan again, from another score or threshold. */
void gates_again(struct gates *g, const struct route *r, int l, struct plan *out, int k, real score,
                 double tau, double temperature);
/* Depth of row i after the last layer; in a soft pass the sum of its gates. */
double gates_depth(const struct gates *g, const struct route *r, int i);
/* Cells run over all cells of the pass. */
double gates_ratio(const struct gates *g, int R);

#endif
