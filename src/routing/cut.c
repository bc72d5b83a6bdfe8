/* One threshold for several layers that meets a capacity over all of them together. */
#include "routing/cut.h"

#include <math.h>

static const real *row_of(const struct quantiles *q, int l)
{
    return q->params->p[q->table].value + (size_t)l * ROUTE_GRID;
}

/* Thresholds of a row decrease with the grid index; linear between grid points. */
double cut_share(const struct quantiles *q, int l, double tau)
{
    const real *row = row_of(q, l);
    int i = 0;
    while (i < ROUTE_GRID && (double)row[i] > tau)
        i++;
    if (i == 0 || i == ROUTE_GRID)
        return i == 0 ? 0 : 1;
    double high = (double)row[i - 1], low = (double)row[i];
    return (i - 1 + (high - tau) / (high - low)) / (ROUTE_GRID - 1);
}

/* Bisection: the mean share decreases with the threshold. */
static double find_cut(const struct quantiles *q, int from, double capacity)
{
    double low = (double)row_of(q, from)[ROUTE_GRID - 1], high = (double)row_of(q, from)[0];
    if (capacity <= 0 || capacity >= 1)
        return quantiles_at(q, from, capacity);
    for (int l = from; l < q->L; l++) {
        low = fmin(low, (double)row_of(q, l)[ROUTE_GRID - 1]);
        high = fmax(high, (double)row_of(q, l)[0]);
    }
    for (int step = 0; step < 60; step++) {
        double middle = 0.5 * (low + high), share = 0;
        for (int l = from; l < q->L; l++)
            share += cut_share(q, l, middle) / (q->L - from);
        if (share > capacity)
            low = middle;
        else
            high = middle;
    }
    return high;
}

double cut_common(struct cut *last, const struct quantiles *q, int from, double capacity)
{
    uint64_t version = q->params->version + 1;
    if (last->version != version || last->capacity != capacity)
        *last = (struct cut){capacity, find_cut(q, from, capacity), version};
    return last->tau;
}
