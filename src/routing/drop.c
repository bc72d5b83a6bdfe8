/* Draws which layers are dropped. */
#include "routing/drop.h"

#include "base/rng.h"

int drop_keeps(const struct route *r, int l, uint32_t place, double p)
{
    uint64_t step = r->pass.kind == PASS_TRAIN ? (uint64_t)r->pass.step : 0;
    return p <= 0 || rng_at(r->seed, RNG_ROUTE, step, (uint32_t)l, place) >= p;
}

uint32_t drop_sequence(const struct route *r, int i)
{
    return route_place(&r->pass, i) / (uint32_t)r->pass.T;
}
