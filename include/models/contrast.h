/* Controls: the same weights on the same tokens with other decisions (top-k over whole sequences,
 * random, a static mask, dense).  All results come from executed passes. */
#ifndef DS_MODELS_CONTRAST_H
#define DS_MODELS_CONTRAST_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "models/model.h"

enum contrast_kind {
    CONTRAST_CAUSAL, /* inference-time decisions, on the tokens that the controls see     */
    CONTRAST_TOPK,   /* inference.topk: not causal                                            */
    CONTRAST_RANDOM, /* control: random cells of a gated layer, at the layer's rate       */
    CONTRAST_STATIC, /* control: frac(position * golden ratio + layer * (sqrt 2 - 1)) < rate */
    CONTRAST_DENSE,
    CONTRAST_KINDS
};
struct contrast {
    int L;
    struct {
        double nll, tokens, batches, run, cells, flops, flops_dense;
    } sum[CONTRAST_KINDS];
    double *topk_capacity; /* (L) rows executed in top-k passes; / topk_rows */
    double topk_rows;
    int8_t *force; /* (L, R) of the current control; with split layers a second one for attention */
    size_t force_cap;
};

int contrast_init(struct contrast *c, int L, struct err *e) DS_CHECK;
void contrast_release(struct contrast *c);
/* Executed share of each layer's rows, (L) each.  attention: of split layers, else NULL. */
struct contrast_rates {
    const double *run, *attention;
};
/* Runs b with the options of `use` except its kind, and computes the loss.  rate: executed shares
 * of the controls; always-on layers stay on.  end: windows of the text up to the end of b; random
 * draws are those of a window's place in it, whatever the batches.  m holds the pass until
 * contrast_end. */
int contrast_run(struct contrast *c, enum contrast_kind kind, struct model *m,
                 const struct batch *b, const struct pass *use, const struct contrast_rates *rate,
                 uint64_t end, struct err *e) DS_CHECK;
/* Adds the pass that m has just run, loss and all. */
void contrast_add(struct contrast *c, enum contrast_kind kind, const struct model *m);
void contrast_end(struct model *m);
/* NaN when there was none. */
double contrast_loss(const struct contrast *c, enum contrast_kind kind); /* nats per token */
double contrast_ratio(const struct contrast *c,
                      enum contrast_kind kind); /* blocks executed / all */
double contrast_flops_ratio(const struct contrast *c,
                            enum contrast_kind kind); /* whole model, of the dense one's */

#endif
