/* Values of a parameter, wherever they are stored: in memory or in the model's file. */
#ifndef DS_MODELS_VALUES_H
#define DS_MODELS_VALUES_H

#include "models/model.h"

/* out (n, columns) = rows [row, row + n) of parameter i; a vector has one column.  Our layout:
 * (out, in), rotary pairs in half-split order.  Any thread. */
void model_values(const struct model *m, int i, size_t row, size_t n, real *out);

#endif
