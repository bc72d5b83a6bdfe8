/* Depth penalties of a row and of a batch. */
#include "routing/penalty.h"

double penalty_row(const struct penalty *p, double D, double H, double *slope)
{
    double L = p->L, u = (D - (L - p->gated)) / p->gated;
    switch (p->kind) {
    case PENALTY_QUADRATIC: *slope = 2 * D / (L * L); return D * D / (L * L);
    case PENALTY_ENTROPY: *slope = (1 - H) / L; return (1 - H) * D / L;
    case PENALTY_POLARISE: *slope = (4 - 8 * u) / p->gated; return 4 * u * (1 - u);
    case PENALTY_OFF: break;
    }
    *slope = 0;
    return 0;
}

double penalty_rows(const struct penalty *p, const double *depth, const real *entropy, real *slope,
                    int R)
{
    double sum = 0, ratio = 0;
    for (int i = 0; i < R; i++) {
        double one, H = p->kind == PENALTY_ENTROPY ? (double)entropy[i] : 0;
        sum += p->lambda * penalty_row(p, depth[i], H, &one) / R;
        ratio += depth[i] / ((double)R * p->L);
        slope[i] = (real)((p->lambda * one + p->push / p->L) / R);
    }
    return sum + p->push * (ratio - p->target);
}

double penalty_ramp(double progress, double warmup)
{
    return warmup > 0 && progress < warmup ? progress / warmup : 1;
}
