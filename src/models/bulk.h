/* Row copies, gathers and scatters over the thread pool; each element is written by one task. */
#ifndef DS_MODELS_BULK_H
#define DS_MODELS_BULK_H

#include <stddef.h>

#include "routing/route.h"

void bulk_zero(real *x, size_t n);
void bulk_copy(real *to, const real *from, size_t n);
/* y[i] = gate[i] * x[row[i]]: the rows of a plan, y (n,C). */
void bulk_gather_scaled(real *y, const real *x, const struct plan *p, int C);

#endif
