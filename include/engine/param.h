/* The table of parameters by name and shape, from which checkpoints and optimiser state follow. */
#ifndef DS_ENGINE_PARAM_H
#define DS_ENGINE_PARAM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/map.h"
#include "engine/real.h"

/* Optimiser groups. */
enum param_group {
    PARAM_MATRIX, /* weight decay */
    PARAM_PLAIN,  /* norms, biases, embeddings: no decay */
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
    int rank, shape[2]; /* (rows) or (rows, cols) */
    size_t n;           /* elements */
    enum param_group group;
    enum param_init init;
    double scale, step; /* step: set after params_add, else 0 */
    int train;          /* 0: frozen, grad/m/v are NULL */
    int in_file;        /* set before reserving: values stay in a file, value is NULL */
    double lr; /* factor on its group's learning rate; 0 = frozen: no step, decay or norm */
    real *value, *grad, *m, *v;
    /* sums of squares: of the gradient (params_grad_health), of the newest update and of the values
     * before it (adamw_step with `measure`); 0 when there is none */
    double grad_squares, update_squares, value_squares;
};
struct params {
    struct param *p;
    int n, cap;
    int failed;       /* one could not be added, for lack of memory */
    struct map index; /* of the names */
    void *block;      /* all values, grads, m, v */
    size_t block_bytes;
    uint64_t version; /* counts value changes: params_changed and steps */
    uint64_t given;   /* the same without steps, which leave frozen parameters alone */
};

/* Appends a row; returns its index (>= 0) or DS_EMEM, and `failed` is set.  rows > 0; cols 0 = a vector.  Names must be
 * unique. */
int params_add(struct params *ps, const char *name, int rows, int cols, enum param_group group,
               enum param_init init, double scale);
/* "PREFIX.NAME": a zero-initialised buffer; saved with the model, not optimised. */
int params_add_buffer(struct params *ps, const char *prefix, const char *name, int rows, int cols);
/* Reserves value (and grad, m, v when train) for all rows and sets the pointers; zeroes
 * everything. */
int params_reserve(struct params *ps, int train, struct err *e) DS_CHECK;
/* The same, but values are undefined: the caller writes every one, for example from a file. */
int params_reserve_unset(struct params *ps, int train, struct err *e) DS_CHECK;
/* Bytes that either will reserve. */
double params_bytes(const struct params *ps, int train);
/* Draws initial values: element i of parameter p from (seed, RNG_INIT, hash of its NAME), so adding
 * a parameter changes no other. */
void params_init(struct params *ps, uint64_t seed);
/* out (n): what params_init would write to elements [begin, begin + n) of *p, whose value may be
 * NULL. Thread-safe. */
void params_init_range(const struct param *p, uint64_t seed, size_t begin, size_t n, real *out);
/* Must be called after writing values directly (the functions here do it), so that derived data
 * such as packed copies is rebuilt. */
static inline void params_changed(struct params *ps)
{
    ps->version++;
    ps->given++;
}
void params_zero_grad(struct params *ps);
/* The gradients of all parameters lie behind each other, padding between them: *begin is the first
 * element, NULL without any, and the result their number. */
size_t params_grads(const struct params *ps, real **begin);
/* Has the gradients in such a block instead, which is as long and stays the caller's. */
void params_use_grads(struct params *ps, real *block);
int params_find(const struct params *ps, const char *name); /* index or -1 */
int64_t params_count(const struct params *ps);
void params_release(struct params *ps);

struct adamw {
    double lr, beta1, beta2, eps;
    double weight_decay; /* PARAM_MATRIX only */
    double router_lr;    /* factor on lr of PARAM_ROUTER */
    double clip; /* global norm of the non-router groups; router gradients separately; 0 = off */
    int measure; /* also sums the squares of updates and values; the step is the same bit by bit */
};
struct grad_health {
    double norm, router_norm;
    uint64_t bad;
    const char *first_bad; /* name of the first tensor with NaN/Inf */
};
/* A step divided over processes: each has the gradients and moments of some spans, which are parts of
 * tensors in order, and does their work alone. */
struct adamw_part {
    int first, end; /* spans of this process */
    /* `of` has an item of so many bytes for every span: makes the items of all processes known to
     * each.  A failure is kept by ctx. */
    void (*share)(void *ctx, void *of, size_t bytes);
    void *ctx;
};
int params_spans(const struct params *ps);
/* The tensor of a span, and the span's first element in it; span = params_spans: what follows the
 * last one. */
const struct param *params_span(const struct params *ps, int span, size_t *begin);
/* Norms and health of the current gradients; sets each grad_squares. */
struct grad_health params_grad_health(const struct params *ps);
/* The same, bit by bit, of a divided step; part NULL: of a whole one. */
struct grad_health params_grad_health_part(const struct params *ps, const struct adamw_part *part);
/* One AdamW step (Loshchilov & Hutter 2019), step counts from 1; also zeroes the gradients, in one
 * pass over the memory of each tensor.  The caller skips it when health.bad != 0 (and zeroes them
 * itself). */
void adamw_step(struct params *ps, const struct adamw *o, int64_t step,
                const struct grad_health *health);
/* The same of a divided step: the values of other spans are left as they are. */
void adamw_step_part(struct params *ps, const struct adamw *o, int64_t step,
                     const struct grad_health *health, const struct adamw_part *part);

#endif
