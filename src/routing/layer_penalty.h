/* A depth penalty on the layers' mean gates m_l:
 *
 *     lambda sum_l w_l m_l  +  mu (skip - target)^2  -  beta mean_l H(m_l)
 *
 * with skip = 1 - mean_l m_l, H the entropy of Bernoulli(m_l), and w_l linear from `low` at the
 * first layer to `high` at the last. */
#ifndef DS_ROUTING_LAYERPRICE_H
#define DS_ROUTING_LAYERPRICE_H

struct layer_penalty {
    double lambda, low, high, mu, target, beta;
    double gate, miss, total; /* out: first term, second term, total; nats */
};
/* price (n): d total / d m_l. */
void layer_penalty(struct layer_penalty *x, const double *mean, double *price, int n);

#endif
