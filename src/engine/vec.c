/* Chooses the set of vector loops. */
#include "engine/vec.h"

#include <stdatomic.h>
#include <string.h>

#include "engine/vmath.h"

/* What the functions of vmath.h read. */
#if REAL_BITS == 32
const struct v_bounds v_bound = {
    .exp_most = 88.37F, .exp_least = -87.33F, .normal_exp = 13.2F, .normal_poly = 5.0F,
    .gelu_most = 16.0F};
#endif

/* In order of preference. */
static const struct vec_set *const sets[] = {
#ifdef VEC_X86
    &vec_avx512,
    &vec_avx2,
#endif
    &vec_plain,
    NULL,
};

static _Atomic(const struct vec_set *) current; /* the first call may come from any thread */

const struct vec_set *const *vec_sets(void)
{
    return sets;
}

const struct vec_set *vec(void)
{
    const struct vec_set *s = atomic_load_explicit(&current, memory_order_acquire);
    if (DS_LIKELY(s != NULL))
        return s;
    int i = 0;
    while (!sets[i]->available())
        i++;
    atomic_store(&current, sets[i]);
    return sets[i];
}

int vec_use(const char *name, struct err *e)
{
    for (int i = 0; sets[i]; i++) {
        if (strcmp(sets[i]->name, name) != 0)
            continue;
        if (!sets[i]->available())
            return err_set(e, DS_ENOTFOUND, "vec \"%s\": not supported by this CPU", name);
        atomic_store(&current, sets[i]);
        return DS_OK;
    }
    return err_set(e, DS_EUSAGE, "vec \"%s\": unknown set", name);
}
