/* The bounds that the functions of vmath.h read. */
#include "engine/vmath.h"

#if REAL_BITS == 32
const struct v_bounds v_bound = {
    .exp_most = 88.37F, .exp_least = -87.33F, .normal_exp = 13.2F, .normal_poly = 5.0F};
#endif
