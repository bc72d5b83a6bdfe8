/* Learn then Test (Angelopoulos et al. 2021, arXiv 2110.01052, section 4.1 fixed-sequence testing;
 * for early exits Schuster et al. 2022, 2207.07061): the least capacity of the grid whose risk is
 * certified to be at most `limit`, on text that no threshold was fitted to. */
#ifndef DS_EVAL_RISK_H
#define DS_EVAL_RISK_H

#include <stddef.h>
#include <stdint.h>

#include "eval/perplexity.h"

/* The test of one capacity.  risk: mean loss of the units; p: of "the expected loss exceeds limit". */
struct risk_row {
    double capacity, risk, p;
    double loss;      /* nats per token, NaN unknown: set by risk_calibrate */
    int is_certified; /* p <= delta, and all capacities above it are certified */
};
struct risk_table {
    double limit, delta;             /* set by the caller; in (0, 1) */
    struct risk_row row[ROUTE_GRID]; /* from capacity 1 down to the first that is not certified */
    size_t rows, units;
    double capacity; /* the least that is certified; NaN: none */
    double least;    /* the least limit that would certify capacity 1 */
    double dense;    /* loss of the dense model */
    int64_t fitted;  /* sequences that thresholds were fitted to */
    int64_t seq;
};
/* DS_ERANGE unless limit and delta are in (0, 1). */
int risk_check(const struct risk_table *t, struct err *e) DS_CHECK;

/* Fills the losses of the n units at a capacity, each in [0, 1]. */
typedef int risk_losses_fn(void *ctx, double capacity, double *loss, size_t n, struct err *e);
/* Tests capacities 1, 0.95, ... at level delta each until one is not rejected.  loss (n): scratch
 * memory. */
int risk_test(struct risk_table *t, risk_losses_fn *losses, void *ctx, double *loss, size_t n,
              struct err *e) DS_CHECK;

/* Fits thresholds to the first windows that were opened (whole batches: half of the text, at most
 * 32768 tokens) and tests on the others.
 * A unit is a window; its loss is the rise of its mean nats per token over the dense model, both
 * executed, cut to [0, 1]; windows without a target are left out.  DS_ERANGE when there is less than
 * a batch for each half. */
int risk_calibrate(struct risk_table *t, struct ppl *p, struct err *e) DS_CHECK;

#endif
