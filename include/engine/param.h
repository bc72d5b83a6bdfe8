/* Parameters by name and shape: checkpointing, optimiser state, counting and freezing follow from the table. */
#ifndef DS_ENGINE_PARAM_H
#define DS_ENGINE_PARAM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/real.h"

/* Optimiser groups. */
enum param_group {
    PARAM_MATRIX, /* weight decay                                            */
    PARAM_PLAIN,  /* norms, biases, embeddings: no decay                     */
    PARAM_ROUTER, /* thresholds and routers: own lr factor, no decay, outside the global clip */
    PARAM_GROUPS
};
enum param_init {
    INIT_ZERO,
    INIT_ONE,
    INIT_NORMAL /* N(0, scale^2) */,
    INIT_CONST /* scale + i step */
};

struct param {
    char name[96];
    int rank, shape[2]; /* (rows) or (rows, cols)            */
    size_t n;           /* elements                          */
    enum param_group group;
    enum param_init init;
    double scale, step; /* step: set after params_add, else 0 */
    int train;          /* 0: frozen, grad/m/v are NULL      */
    int elsewhere;      /* set before the reservation: its values stay in a file, value is NULL */
    double
        lr; /* factor on the learning rate, beside its group's; 0 = held for now: no step, no decay, not in the norms */
    real *value, *grad, *m, *v;
};
struct params {
    struct param *p;
    int n, cap;
    void *block; /* all values, grads, m, v           */
    size_t block_bytes;
    uint64_t version; /* counts changes of values: params_changed, and steps */
    uint64_t given;   /* counts those that steps did not make: only these reach frozen parameters */
};

/* Appends a row; returns its index (>= 0) or DS_EMEM.  rows > 0; cols 0 = a vector.  Names are unique (our mistake otherwise). */
int params_add(struct params *ps, const char *name, int rows, int cols, enum param_group group,
               enum param_init init, double scale);
/* "PREFIX.NAME": zeros that a method keeps between steps; saved with the model, never stepped. */
int params_add_buffer(struct params *ps, const char *prefix, const char *name, int rows, int cols);
/* Reserves value (and grad, m, v when train) for all rows and sets the pointers; zeroes everything. */
int params_reserve(struct params *ps, int train, struct err *e) DS_CHECK;
/* The same but values are left undefined: whoever reads them from a file writes every one. */
int params_reserve_unset(struct params *ps, int train, struct err *e) DS_CHECK;
/* Memory either will take. */
double params_bytes(const struct params *ps, int train);
/* Draws initial values: element i of parameter p from (seed, RNG_INIT, hash of its NAME): adding a parameter changes no other. */
void params_init(struct params *ps, uint64_t seed);
/* out (n): what params_init would write to elements [begin, begin + n) of *p, whose value may be NULL.  Any thread. */
void params_init_range(const struct param *p, uint64_t seed, size_t begin, size_t n, real *out);
/* To be called by whoever writes values; the functions here do.  What is derived from them (packed copies) follows it. */
static inline void params_changed(struct params *ps)
{
    ps->version++;
    ps->given++;
}
void params_zero_grad(struct params *ps);
int params_find(const struct params *ps, const char *name); /* index or -1 */
int64_t params_count(const struct params *ps);
void params_release(struct params *ps);

struct adamw {
    double lr, beta1, beta2, eps;
    double weight_decay; /* PARAM_MATRIX only            */
    double router_lr;    /* factor on lr of PARAM_ROUTER */
    double
        clip; /* global norm of the non-router groups; 0 = off. Router gradients are clipped to the same norm by themselves. */
};
struct grad_health {
    double norm, router_norm;
    uint64_t bad;
    const char *first_bad; /* name of the first tensor with NaN/Inf */
};
/* Norms and health of the present gradients. */
struct grad_health params_grad_health(const struct params *ps);
/* One AdamW step (Loshchilov & Hutter 2019), step counts from 1, which leaves the gradients zero: one pass over the
 * memory of each tensor.  The caller skips it when health.bad != 0 (and zeroes them itself). */
void adamw_step(struct params *ps, const struct adamw *o, int64_t step,
                const struct grad_health *health);

#endif
