/* Compute budgets: the controller, the annealed target, and quantiles by selection. */
#include "routing/budget.h"

#include <math.h>

double budget_push(enum budget_kind kind, double miss, double lambda, double dual)
{
    if (kind == BUDGET_DUAL)
        return dual;
    return kind != BUDGET_LOSS || miss == 0 ? 0 : miss > 0 ? lambda : -lambda;
}

double budget_step(double value, double measured, double target, double rate, double bound)
{
    double next = value + rate * (measured - target);
    return next > bound ? bound : next < -bound ? -bound : next;
}

double budget_target(double rho, double progress, double anneal)
{
    if (anneal <= 0 || progress >= anneal)
        return rho;
    return 1 - (1 - rho) * progress / anneal;
}

/* NaN sorts after everything. */
static int less(real a, real b)
{
    if (isnan(a))
        return 0;
    return isnan(b) || a < b;
}

/* Hoare's selection with the middle element as pivot: deterministic, no recursion. */
real quantile_of(real *x, int n, double q)
{
    if (n <= 0)
        return (real)NAN;
    int k = (int)(q * (n - 1) + 0.5), lo = 0, hi = n - 1;
    k = k < 0 ? 0 : k >= n ? n - 1 : k;
    while (lo < hi) {
        real pivot = x[lo + (hi - lo) / 2];
        int i = lo, j = hi;
        while (i <= j) {
            while (less(x[i], pivot))
                i++;
            while (less(pivot, x[j]))
                j--;
            if (i <= j) {
                real t = x[i];
                x[i++] = x[j];
                x[j--] = t;
            }
        }
        if (k <= j)
            hi = j;
        else if (k >= i)
            lo = i;
        else
            break;
    }
    return x[k];
}
