/* The depth penalty on the layers' mean gates. */
#include "routing/layer_penalty.h"

#include <math.h>

#include "routing/gatestats.h"

/* The slope of the entropy is infinite at 0 and 1. */
static double clamped(double m)
{
    return fmin(fmax(m, 1e-6), 1 - 1e-6);
}

void layer_penalty(struct layer_penalty *x, const double *mean, double *price, int n)
{
    double run = 0;
    for (int l = 0; l < n; l++)
        run += mean[l] / n;
    double miss = (1 - run) - x->target;
    x->gate = 0;
    x->miss = x->mu * miss * miss;
    x->total = x->miss;
    for (int l = 0; l < n; l++) {
        double weight = n < 2 ? x->high : x->low + (x->high - x->low) * l / (n - 1);
        double m = clamped(mean[l]);
        x->gate += x->lambda * weight * mean[l];
        x->total -= x->beta * gate_entropy(m) / n;
        price[l] = x->lambda * weight - 2 * x->mu * miss / n + x->beta * log(m / (1 - m)) / n;
    }
    x->total += x->gate;
}
