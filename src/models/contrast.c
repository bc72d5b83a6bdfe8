/* Runs the controls of an evaluation: top-k, random, static mask and dense. */
#include "models/contrast.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

enum { RANDOM_STREAM = 1 << 17 }; /* separate from the methods' random streams */

int contrast_init(struct contrast *c, int L, struct err *e)
{
    memset(c, 0, sizeof *c);
    c->L = L;
    c->topk_capacity = mem_alloc((size_t)L, sizeof *c->topk_capacity);
    return c->topk_capacity ? 0 : err_set(e, DS_EMEM, "out of memory for counts of %d layers", L);
}

void contrast_release(struct contrast *c)
{
    mem_free(c->topk_capacity);
    mem_free(c->force);
    memset(c, 0, sizeof *c);
}

/* The mask of routing/methods/static.c. */
static int on_stripe(int position, int l, double rate)
{
    double phase = position * 0.6180339887498949 + l * 0.41421356237309503;
    return phase - floor(phase) < rate;
}

/* One draw, or one phase, decides both halves of a split layer: if the FFN is executed, so is the
 * attention. */
static void fill_force(int8_t *force, enum contrast_kind kind, const struct route *r,
                       const struct batch *b, uint64_t seed, const double *rate, uint64_t end)
{
    int R = b->B * b->T;
    for (int l = 0; l < r->L; l++) {
        int8_t *cell = force + (size_t)l * (size_t)R;
        int given = r->ops->always_on && r->ops->always_on(r, l);
        for (int i = 0; i < R; i++) {
            int position = i % b->T - (b->doc_start ? b->doc_start[i] : 0);
            uint64_t window = end - (uint64_t)b->B + (uint64_t)(i / b->T);
            int runs = kind == CONTRAST_STATIC
                           ? on_stripe(position, l, rate[l])
                           : rng_at(seed, RNG_ROUTE, window, (uint32_t)(RANDOM_STREAM + l),
                                    (uint32_t)(i % b->T)) < rate[l];
            cell[i] = (int8_t)(given ? -1 : runs);
        }
    }
}

static int make_force(struct contrast *c, enum contrast_kind kind, const struct model *m,
                      const struct batch *b, uint64_t seed, const struct contrast_rates *rate,
                      uint64_t end, struct err *e)
{
    size_t cells = (size_t)c->L * (size_t)b->B * (size_t)b->T, maps = rate->attention ? 2 : 1;
    void *p = c->force;
    if (mem_grow(&p, &c->force_cap, maps * cells, 1) < 0)
        return err_set(e, DS_EMEM, "out of memory for %zu forced cells", maps * cells);
    c->force = p;
    fill_force(c->force, kind, &m->route, b, seed, rate->run, end);
    if (rate->attention)
        fill_force(c->force + cells, kind, &m->route, b, seed, rate->attention, end);
    return 0;
}

int contrast_run(struct contrast *c, enum contrast_kind kind, struct model *m,
                 const struct batch *b, const struct pass *use, const struct contrast_rates *rate,
                 uint64_t end, struct err *e)
{
    struct pass pass = *use;
    int is_control = kind == CONTRAST_RANDOM || kind == CONTRAST_STATIC;
    int rc = is_control ? make_force(c, kind, m, b, use->seed, rate, end, e) : 0;
    if (rc < 0)
        return rc;
    pass.kind = kind == CONTRAST_DENSE ? PASS_DENSE : PASS_SPARSE;
    pass.inference.force = is_control ? c->force : NULL;
    if (is_control && rate->attention)
        pass.inference.force_attention = c->force + (size_t)c->L * (size_t)b->B * (size_t)b->T;
    pass.inference.topk = kind == CONTRAST_TOPK;
    pass.inference.exit = kind == CONTRAST_DENSE ? 0 : pass.inference.exit;
    pass.record = 0;
    model_forward(m, b, &pass);
    model_loss(m, 0, 0);
    return 0;
}

void contrast_end(struct model *m)
{
    m->batch = NULL;
    m->route.pass.inference.force = m->route.pass.inference.force_attention =
        NULL; /* they point into a contrast */
}

void contrast_add(struct contrast *c, enum contrast_kind kind, const struct model *m)
{
    for (int i = 0; i < m->R; i++) {
        if (m->batch->target[i] < 0)
            continue;
        c->sum[kind].nll += (double)m->nll[i];
        c->sum[kind].tokens += 1;
    }
    c->sum[kind].batches += 1;
    c->sum[kind].run += (double)m->flops.rows_run;
    c->sum[kind].cells += (double)m->flops.rows;
    c->sum[kind].flops += flops_total(&m->flops);
    c->sum[kind].flops_dense += m->flops.dense;
    if (kind != CONTRAST_TOPK)
        return;
    c->topk_rows += m->R;
    for (int l = 0; l < c->L; l++)
        c->topk_capacity[l] += model_plan(m, l)->active;
}

double contrast_loss(const struct contrast *c, enum contrast_kind kind)
{
    return c->sum[kind].tokens > 0 ? c->sum[kind].nll / c->sum[kind].tokens : (double)NAN;
}

double contrast_ratio(const struct contrast *c, enum contrast_kind kind)
{
    return c->sum[kind].cells > 0 ? c->sum[kind].run / c->sum[kind].cells : (double)NAN;
}

double contrast_flops_ratio(const struct contrast *c, enum contrast_kind kind)
{
    return c->sum[kind].flops_dense > 0 ? c->sum[kind].flops / c->sum[kind].flops_dense
                                        : (double)NAN;
}
