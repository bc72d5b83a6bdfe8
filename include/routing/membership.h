/* Causal decisions beside the ranks they stand in for: a logit that is taught who is among the top k, and how often it is
 * right.  Targets are those of rank_target: 1 = among the top k, 0 = not. */
#ifndef DS_ROUTING_MEMBERSHIP_H
#define DS_ROUTING_MEMBERSHIP_H

#include <stdint.h>

#include "engine/real.h"

/* What a router's or predictor's logits cost on n rows: means over the rows, unweighted as values, weights as a price.
 *   entropy  binary cross-entropy of sigmoid(logit) to the target, nats
 *   balance  (mean sigmoid(logit) - mean target)^2
 *   z        mean logit^2 */
struct membership_loss {
    double entropy, balance, z;
};
/* target NULL: nobody knows the ranks, and only z is counted.  Without rows all are 0. */
struct membership_loss membership_loss(const real *logit, const uint8_t *target, int n);
double membership_total(const struct membership_loss *value, const struct membership_loss *price);
/* dlogit (n) += d total / d logit. */
void membership_bwd(real *dlogit, const struct membership_loss *price, const real *logit,
                    const uint8_t *target, int n);

/* Rows by what was said (score > threshold) and what is true. */
struct tally {
    double hit, miss, false_alarm, all;
};
void tally_add(struct tally *t, const real *score, double threshold, const uint8_t *target, int n);
void tally_merge(struct tally *t, const struct tally *other);
/* Shares; NaN where nothing was counted, said or true. */
double tally_said(const struct tally *t); /* said to be among the top k */
double tally_accuracy(const struct tally *t);
double tally_base_rate(const struct tally *t); /* accuracy of always saying the commoner answer */
double tally_precision(const struct tally *t);
double tally_recall(const struct tally *t);
double tally_f1(const struct tally *t);

#endif
