/* Runs calibration batches and lets the method store its thresholds. */
#include "models/calibrate.h"

int model_calibrate(struct model *m, int batches, calibrate_batch_fn *fill, void *ctx,
                    uint64_t seed, struct err *e)
{
    struct route *r = &m->route;
    if (!r->ops->calibrate)
        return err_set(e, DS_EUSAGE, "%s has nothing to calibrate", r->ops->name);
    if (batches <= 0)
        return err_set(e, DS_ERANGE, "calibration of %s: missing held-out text", r->ops->name);
    r->ops->calibrate(r, 1);
    for (int g = 0; g < ROUTE_GRID; g++)
        for (int k = 0; k < batches; k++) {
            struct batch b = {0};
            struct pass pass = {.kind = PASS_SPARSE,
                                .seed = seed,
                                .inference.has_capacity = 1,
                                .inference.capacity = (double)g / (ROUTE_GRID - 1),
                                .inference.calibrate = 1 + g};
            fill(ctx, k, &b);
            model_forward(m, &b, &pass);
            m->batch = NULL;
        }
    r->ops->calibrate(r, 0);
    return 0;
}
