/* Training a causal logit to predict membership in the top k, and counting how often it is right.
 * Targets come from rank_target: 1 = among the top k, 0 = not. */
#ifndef DS_ROUTING_MEMBERSHIP_H
#define DS_ROUTING_MEMBERSHIP_H

#include <stdint.h>

#include "engine/real.h"

/* Losses of a router's or predictor's logits, means over n rows.  As a result the terms are
 * unweighted; as an argument `price` the fields are their weights.
 *   entropy  binary cross-entropy of sigmoid(logit) to the target, nats
 *   balance  (mean sigmoid(logit) - mean target)^2
 *   z        mean logit^2 */
struct membership_loss {
    double entropy, balance, z;
};
/* target NULL: ranks unknown, only z is computed.  With no rows all terms are 0. */
struct membership_loss membership_loss(const real *logit, const uint8_t *target, int n);
double membership_total(const struct membership_loss *value, const struct membership_loss *price);
/* dlogit (n) += d total / d logit. */
void membership_bwd(real *dlogit, const struct membership_loss *price, const real *logit,
                    const uint8_t *target, int n);

/* Confusion counts: prediction (score > threshold) against target. */
struct tally {
    double hit, miss, false_alarm, all;
};
void tally_add(struct tally *t, const real *score, double threshold, const uint8_t *target, int n);
void tally_merge(struct tally *t, const struct tally *other);
/* Ratios; NaN when the denominator is 0. */
double tally_predicted_rate(const struct tally *t); /* share predicted to be in the top k */
double tally_accuracy(const struct tally *t);
double
tally_base_rate(const struct tally *t); /* accuracy of always predicting the majority class */
double tally_precision(const struct tally *t);
double tally_recall(const struct tally *t);
double tally_f1(const struct tally *t);

#endif
