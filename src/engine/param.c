/* The table of parameters, and the block with their values, gradients and moments. */
#include "engine/param.h"

#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"
#include "engine/scratch.h"

int params_find(const struct params *ps, const char *name)
{
    int64_t i;
    return map_get(&ps->index, name, strlen(name), &i) ? (int)i : -1;
}

static int params_room(struct params *ps)
{
    if (ps->n < ps->cap)
        return DS_OK;
    int cap = ps->cap ? 2 * ps->cap : 32;
    struct param *p = mem_realloc(ps->p, (size_t)cap, sizeof *p);
    if (!p)
        return DS_EMEM;
    ps->p = p;
    ps->cap = cap;
    return DS_OK;
}

int params_add(struct params *ps, const char *name, int rows, int cols, enum param_group group,
               enum param_init init, double scale)
{
    BUG_IF(ps->block != NULL, "parameter %s: added after the block was reserved", name);
    BUG_IF(rows <= 0 || cols < 0, "parameter %s: shape %d x %d", name, rows, cols);
    BUG_IF(strlen(name) >= sizeof ps->p->name, "parameter %s: name too long", name);
    BUG_IF(params_find(ps, name) >= 0, "parameter %s: duplicate name", name);
    if (params_room(ps) != DS_OK || map_set(&ps->index, name, strlen(name), ps->n) < 0) {
        ps->failed = 1;
        return DS_EMEM;
    }
    struct param *p = &ps->p[ps->n];
    *p = (struct param){.rank = cols ? 2 : 1,
                        .shape = {rows, cols},
                        .n = (size_t)rows * (cols ? (size_t)cols : 1),
                        .group = group,
                        .init = init,
                        .scale = scale,
                        .train = 1,
                        .lr = 1};
    snprintf(p->name, sizeof p->name, "%s", name);
    return ps->n++;
}

int params_add_buffer(struct params *ps, const char *prefix, const char *name, int rows, int cols)
{
    char full[sizeof ps->p->name];
    snprintf(full, sizeof full, "%s.%s", prefix, name);
    int i = params_add(ps, full, rows, cols, PARAM_ROUTER, INIT_ZERO, 0);
    if (i >= 0)
        ps->p[i].train = 0;
    return i;
}

enum { ALIGN = 64, TENSORS = 4 };

/* Bytes of one tensor of p, padded so that the next one is aligned; DS_ERANGE on overflow. */
static int padded_bytes(const struct param *p, uint64_t *bytes)
{
    return checked_mul(p->n, sizeof(real), bytes) || checked_round(*bytes, ALIGN, bytes) ? DS_ERANGE
                                                                                         : DS_OK;
}

static int block_size(const struct params *ps, int train, uint64_t *total)
{
    *total = 0;
    for (int i = 0; i < ps->n; i++) {
        uint64_t bytes, all;
        if (ps->p[i].in_file)
            continue;
        if (padded_bytes(&ps->p[i], &bytes) < 0 ||
            checked_mul(bytes, train && ps->p[i].train ? TENSORS : 1, &all) ||
            checked_add(*total, all, total))
            return DS_ERANGE;
    }
    return DS_OK;
}

/* Walks the table once per kind of tensor: all values together, then all gradients, and so on. */
static void assign_block(struct params *ps, int train)
{
    char *at = ps->block;
    for (int kind = 0; kind < (train ? TENSORS : 1); kind++)
        for (int i = 0; i < ps->n; i++) {
            struct param *p = &ps->p[i];
            real **slot[TENSORS] = {&p->value, &p->grad, &p->m, &p->v};
            uint64_t bytes;
            if (p->in_file || (kind > 0 && !p->train) || padded_bytes(p, &bytes) < 0)
                continue;
            *slot[kind] = (real *)(void *)at;
            at += bytes;
        }
}

static int reserve(struct params *ps, int train, int zero, struct err *e)
{
    uint64_t bytes, values;
    BUG_IF(ps->block != NULL, "parameters: reserved twice");
    if (block_size(ps, train, &bytes) < 0 || bytes > SIZE_MAX)
        return err_set(e, DS_ERANGE, "parameters: total size overflows");
    ps->block = zero ? mem_alloc_aligned((size_t)bytes, 1) : mem_reserve((size_t)bytes);
    if (!ps->block)
        return err_set(e, DS_EMEM, "parameters: out of memory for %.1f MiB",
                       (double)bytes / 1048576.0);
    ps->block_bytes = (size_t)bytes;
    assign_block(ps, train);
    if (!zero && train && block_size(ps, 0, &values) == 0)
        memset((char *)ps->block + values, 0, (size_t)(bytes - values));
    return DS_OK;
}

int params_reserve(struct params *ps, int train, struct err *e)
{
    return reserve(ps, train, 1, e);
}

int params_reserve_unset(struct params *ps, int train, struct err *e)
{
    return reserve(ps, train, 0, e);
}

double params_bytes(const struct params *ps, int train)
{
    double n = 0;
    for (int i = 0; i < ps->n; i++)
        n += ps->p[i].in_file ? 0 : (double)ps->p[i].n * (train && ps->p[i].train ? TENSORS : 1);
    return n * sizeof(real);
}

/* Element i of a chunk uses the i-th block of the chunk's random stream, so chunks can be drawn in
 * parallel and any element separately. */
static double draw_one(const struct rng *chunk, uint32_t i)
{
    struct rng r = *chunk;
    r.counter[0] = i;
    return rng_normal(&r);
}

/* Draws n elements from the i-th on.  In float a fast normal is used except where its error would
 * leave two floats possible, so the bits are those of the exact one. */
static void draw(const struct param *p, const struct rng *chunk, uint32_t i, size_t n, real *out)
{
#if REAL_BITS == 32
    double z[RNG_LANES], off[RNG_LANES];
    for (; n > 0;) {
        size_t lanes = n < RNG_LANES ? n : RNG_LANES;
        rng_normals_near(chunk, i, z, off);
        for (size_t k = 0; k < lanes; k++) {
            float low = (float)(p->scale * (z[k] - off[k])),
                  high = (float)(p->scale * (z[k] + off[k]));
            out[k] = low == high ? low : (float)(p->scale * draw_one(chunk, i + (uint32_t)k));
        }
        i += (uint32_t)lanes;
        out += lanes;
        n -= lanes;
    }
#else
    for (size_t k = 0; k < n; k++)
        out[k] = (real)(p->scale * draw_one(chunk, i + (uint32_t)k));
#endif
}

void params_init_range(const struct param *p, uint64_t seed, size_t begin, size_t n, real *out)
{
    double value = p->init == INIT_ONE ? 1 : p->init == INIT_CONST ? p->scale : 0;
    double step = p->init == INIT_CONST ? p->step : 0;
    if (p->init != INIT_NORMAL) {
        for (size_t i = 0; i < n; i++)
            out[i] = (real)(value + (double)(begin + i) * step);
        return;
    }
    uint64_t name = hash64(p->name, strlen(p->name), 0);
    for (size_t at = begin, end = begin + n, next; at < end; at = next) {
        struct rng chunk;
        uint32_t number = (uint32_t)(at / TASK_ELEMENTS), i = (uint32_t)(at % TASK_ELEMENTS);
        next = at - i + TASK_ELEMENTS;
        next = next < end ? next : end;
        rng_init(&chunk, seed, RNG_INIT, name, number);
        draw(p, &chunk, i, next - at, out + (at - begin));
    }
}

struct init_job {
    struct param *p;
    uint64_t seed;
};

static void init_chunk(void *ctx, int task, int worker)
{
    const struct init_job *j = ctx;
    size_t begin, end = span_of(j->p->n, task, &begin);
    (void)worker;
    params_init_range(j->p, j->seed, begin, end - begin, j->p->value + begin);
}

void params_init(struct params *ps, uint64_t seed)
{
    params_changed(ps);
    for (int i = 0; i < ps->n; i++) {
        struct init_job j = {&ps->p[i], seed};
        if (!ps->p[i].in_file)
            pool_run(span_tasks(ps->p[i].n), init_chunk, &j);
    }
}

size_t params_grads(const struct params *ps, real **begin)
{
    real *end = NULL;
    *begin = NULL;
    for (int i = 0; i < ps->n; i++) { /* in order, see assign_block */
        const struct param *p = &ps->p[i];
        if (p->grad && !*begin)
            *begin = p->grad;
        end = p->grad ? p->grad + p->n : end;
    }
    return *begin ? (size_t)(end - *begin) : 0;
}

void params_use_grads(struct params *ps, real *block)
{
    real *now;
    size_t n = params_grads(ps, &now);
    for (int i = 0; i < ps->n && n > 0 && block != now; i++)
        if (ps->p[i].grad)
            ps->p[i].grad = block + (ps->p[i].grad - now);
}

void params_zero_grad(struct params *ps)
{
    for (int i = 0; i < ps->n; i++)
        if (ps->p[i].grad)
            memset(ps->p[i].grad, 0, ps->p[i].n * sizeof(real));
}

int64_t params_count(const struct params *ps)
{
    int64_t n = 0;
    for (int i = 0; i < ps->n; i++)
        n += (int64_t)ps->p[i].n;
    return n;
}

void params_release(struct params *ps)
{
    mem_free_aligned(ps->block);
    mem_free(ps->p);
    map_release(&ps->index);
    *ps = (struct params){0};
}
