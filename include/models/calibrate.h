/* Calibrates inference thresholds per capacity on held-out text (ops->calibrate). */
#ifndef DS_MODELS_CALIBRATE_H
#define DS_MODELS_CALIBRATE_H

#include <stdint.h>

#include "base/err.h"
#include "models/model.h"

/* Fills the k-th batch; the same k gives the same batch.  Targets are not needed. */
typedef void calibrate_batch_fn(void *ctx, int k, struct batch *b);
/* Runs `batches` batches at each of the ROUTE_GRID capacities, then the method stores the
 * calibrated thresholds in its parameters.  Buffers for the rows must be reserved.  DS_EUSAGE when
 * the method has nothing to calibrate, DS_ERANGE when batches is not positive. */
int model_calibrate(struct model *m, int batches, calibrate_batch_fn *fill, void *ctx,
                    uint64_t seed, struct err *e) DS_CHECK;

#endif
