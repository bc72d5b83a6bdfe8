/* Surprise of a token at a block: how far the block moved it, against a prediction and an average.
 *
 *     D_st = mean_C (post - orig)^2       static: predicts no change
 *     D_ch = mean_C (post - prior)^2      change: predicted by a prior network
 *     CE = a (D_st - D_ch) + log o        expected change      S_CE = sigmoid(softplus(beta_ce) CE)
 *     CU = a (D_st - m MA(D_st))          unexpected change    S_CU = sigmoid(softplus(beta_cu) CU)
 *     G  = S_CE + S_CU - S_CE S_CU        either of them
 *
 * MA is the causal moving average of a document's last W values, including the current one; it is
 * detached.  a is 1, or the inverse of a running mean of D_st.  All in double. */
#ifndef DS_ROUTING_SURPRISE_H
#define DS_ROUTING_SURPRISE_H

#include <stdint.h>

#include "base/err.h"
#include "engine/param.h"

enum surprise_kind { SURPRISE_BOTH, SURPRISE_CE, SURPRISE_CU }; /* which terms G has */

struct surprise_scalars {
    enum surprise_kind kind;
    double beta_ce, beta_cu; /* before softplus */
    double log_o_ce, log_m_cu;
    double scale; /* a */
};
struct surprise {
    double s_ce, s_cu, g; /* g in (0, 1]: the gate of an executed row is never 0 */
};
struct surprise_grad {
    double beta_ce, beta_cu, log_o_ce, log_m_cu; /* accumulated */
    double d_st, d_ch;                           /* of the last call */
};

struct surprise surprise_of(const struct surprise_scalars *x, double d_st, double d_ch, double ma);
/* dg = d loss / d g. */
void surprise_bwd(struct surprise_grad *d, const struct surprise_scalars *x, double dg, double d_st,
                  double d_ch, double ma);

/* The scalars of n layers as parameters: "PREFIX.beta_ce", ".beta_cu", ".log_o_ce", ".log_m_cu",
 * (n) each. */
struct surprise_params {
    struct params *params;
    int n, beta_ce, beta_cu, log_o_ce, log_m_cu;
};
struct surprise_start {
    struct {
        double value;
        int is_learned;
    } beta_ce, beta_cu, o_ce, m_cu;
};
int surprise_init(struct surprise_params *p, struct params *ps, const char *prefix, int n,
                  const struct surprise_start *start, struct err *e) DS_CHECK;
/* Scalars of layer i, with SURPRISE_BOTH and scale 1. */
struct surprise_scalars surprise_at(const struct surprise_params *p, int i);
void surprise_add_grad(const struct surprise_params *p, int i, const struct surprise_grad *d);
/* Betas that are not learned go from start to end over training, after the warm-up. */
enum { SURPRISE_LEARNED, SURPRISE_COSINE, SURPRISE_LINEAR };
#define SURPRISE_SCHEDULES "learned|cosine|linear"
struct surprise_schedule {
    int kind;
    double ce_start, ce_end, cu_start, cu_end;
    int64_t warmup; /* steps */
};
/* Sets the scheduled betas for the step after `step`.  Does nothing when they are learned. */
void surprise_schedule(const struct surprise_params *p, const struct surprise_schedule *x,
                       int64_t step, double progress);

/* Mean of value[first .. at] over the last `window` of them.  replicate: value[first] stands for
 * the missing ones.  Adds from old to new, so that a window has the same bits wherever it is. */
double surprise_average(const double *value, int first, int at, int window, int replicate);

#endif
