/* Layers that are dropped at random, as stochastic depth does while training. */
#ifndef DS_ROUTING_DROP_H
#define DS_ROUTING_DROP_H

#include "routing/route.h"

/* 1: layer l runs, which is dropped with probability p; 0: dropped.  The draw depends on the seed,
 * the layer and `place` alone, in training also on the step: the same place gives all rows of a
 * sequence one draw. */
int drop_keeps(const struct route *r, int l, uint32_t place, double p);
/* The sequence of the batch that row i belongs to, as a place. */
uint32_t drop_sequence(const struct route *r, int i);

#endif
