/* What the gates of a step look like: entropy, spread between tokens and between layers, and signs of collapse. */
#ifndef DS_ROUTING_GATESTATS_H
#define DS_ROUTING_GATESTATS_H

#include <stddef.h>

#include "engine/real.h"

/* Of soft gates sigmoid(logit): of one layer, over its tokens. */
struct gate_stats {
    double mean, entropy, variance; /* entropy: mean over tokens, nats */
};
/* logit[0], logit[stride], ...: n of them. */
struct gate_stats gate_stats_of(const real *logit, int stride, int n);
/* Entropy of a coin, nats. */
double gate_entropy(double p);

/* Of the mean hard gates of n layers. */
struct layer_stats {
    double mean, least, variance;
};
struct layer_stats layer_stats_of(const double *mean, int n);
/* How many of these hold: mean gate < 0.02; > 0.98; a layer < 0.01; entropy < 0.1 nats; variance of layers > 0.1. */
int gate_alarms(const struct layer_stats *layers, double entropy);

#endif
