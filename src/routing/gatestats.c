/* Statistics of a step's gates. */
#include "routing/gatestats.h"

#include <math.h>

double gate_entropy(double p)
{
    return p <= 0 || p >= 1 ? 0 : -p * log(p) - (1 - p) * log1p(-p);
}

struct gate_stats gate_stats_of(const real *logit, int stride, int n)
{
    double sum = 0, square = 0, entropy = 0, count = n > 0 ? n : 1;
    for (int i = 0; i < n; i++) {
        double p = 1 / (1 + exp(-(double)logit[(size_t)i * (size_t)stride]));
        sum += p;
        square += p * p;
        entropy += gate_entropy(p);
    }
    double mean = sum / count;
    return (struct gate_stats){mean, entropy / count, fmax(0, square / count - mean * mean)};
}

struct layer_stats layer_stats_of(const double *mean, int n)
{
    struct layer_stats s = {.least = 1};
    double square = 0, count = 0;
    for (int l = 0; l < n; l++)
        count += !isnan(mean[l]);
    for (int l = 0; l < n; l++) {
        if (isnan(mean[l]))
            continue;
        s.mean += mean[l] / count;
        square += mean[l] * mean[l] / count;
        s.least = fmin(s.least, mean[l]);
    }
    s.variance = fmax(0, square - s.mean * s.mean);
    return s;
}

int gate_alarms(const struct layer_stats *layers, double entropy)
{
    return (layers->mean < 0.02) + (layers->mean > 0.98) + (layers->least < 0.01) +
           (entropy < 0.1) + (layers->variance > 0.1);
}
