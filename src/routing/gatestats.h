/* Statistics of a step's gates: entropy, variance over tokens and layers, and signs of collapse. */
#ifndef DS_ROUTING_GATESTATS_H
#define DS_ROUTING_GATESTATS_H

#include <stddef.h>

#include "engine/real.h"

/* Statistics of one layer's soft gates sigmoid(logit) over its tokens. */
struct gate_stats {
    double mean, entropy, variance; /* entropy: mean over tokens, nats */
};
/* Reads n logits: logit[0], logit[stride], ... */
struct gate_stats gate_stats_of(const real *logit, int stride, int n);
/* Entropy of Bernoulli(p), nats. */
double gate_entropy(double p);

/* Statistics of the mean hard gates of n layers; NaN: not one of them. */
struct layer_stats {
    double mean, least, variance;
};
struct layer_stats layer_stats_of(const double *mean, int n);
/* Number of alarms: mean gate < 0.02; > 0.98; a layer < 0.01; entropy < 0.1 nats; variance over
 * layers > 0.1. */
int gate_alarms(const struct layer_stats *layers, double entropy);

#endif
