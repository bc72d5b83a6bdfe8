/* A method whose decisions, ranks and cells are set by the test. */
#ifndef DS_TESTS_FAKE_METHOD_H
#define DS_TESTS_FAKE_METHOD_H

#include "models/model.h"
#include "t.h"

enum { FAKE_SCORE, FAKE_THRESHOLD, FAKE_GATE, FAKE_TOPK };
static const struct metric fake_metrics[] = {
    [FAKE_SCORE] = {"score", "", "what was compared", METRIC_CELL},
    [FAKE_THRESHOLD] = {"threshold", "", "with this", METRIC_CELL},
    [FAKE_GATE] = {"gate", "", "soft gate", METRIC_CELL},
    [FAKE_TOPK] = {"topk", "", "chosen by rank", METRIC_CELL},
};

/* 1 = runs.  fake_cell: of metric k; NULL = no cell is filled. */
static int (*fake_runs)(const struct route *r, int l, int i);
static real (*fake_cell)(const struct route *r, int k, int l, int i);
static int fake_on = 1; /* number of first layers that are always on */
static int fake_passes, fake_begun, fake_ended;
static double fake_seen[ROUTE_GRID];

static inline int fake_always_on(const struct route *r, int l)
{
    (void)r;
    return l < fake_on;
}

static inline void fake_decide(struct route *r, int l, struct plan *out, const struct stream *s)
{
    uint8_t *want = calloc((size_t)r->pass.R, 1);
    (void)s;
    for (int i = 0; i < r->pass.R; i++) {
        int forced = route_forced(r, l, i);
        want[i] = (uint8_t)(forced >= 0 ? forced : l < fake_on || fake_runs(r, l, i));
        for (int k = 0; k <= FAKE_TOPK && r->pass.record && fake_cell && l >= fake_on; k++)
            r->cell[k][(size_t)l * (size_t)r->pass.R + (size_t)i] = fake_cell(r, k, l, i);
    }
    if (r->pass.inference.calibrate && l == 0) {
        fake_passes++;
        fake_seen[r->pass.inference.calibrate - 1] = r->pass.inference.capacity;
    }
    plan_from_mask(out, want, NULL, NULL, r->pass.R, r->pass.kind != PASS_SPARSE);
    free(want);
}

static inline int fake_calibrate(struct route *r, int begin, struct err *e)
{
    (void)r;
    (void)e;
    *(begin ? &fake_begun : &fake_ended) += 1;
    if (begin)
        fake_passes = 0;
    return 0;
}

/* Not ready before calibration, except by rank. */
static inline int fake_ready(const struct route *r, const struct pass *pass, struct err *e)
{
    (void)r;
    return fake_ended || pass->inference.topk
               ? 0
               : err_set(e, DS_EUSAGE, "fake is not calibrated: depthscope calibrate MODEL");
}

static const struct route_ops fake_ops = {
    .name = "dense", /* the model on disk is a dense one */
    .flags = ROUTE_GATED | ROUTE_TOPK | ROUTE_CAPACITY,
    .metrics = fake_metrics,
    .n_metrics = DS_LEN(fake_metrics),
    .decide = fake_decide,
    .always_on = fake_always_on,
    .calibrate = fake_calibrate,
};

/* A value in [0, 1) from the cell's token and position. */
static inline double fake_hash(const struct route *r, int l, int i)
{
    uint32_t x = (uint32_t)r->pass.id[i] * 2654435761u ^ (uint32_t)r->pass.pos[i] * 40503u ^
                 (uint32_t)(l + 1) * 2246822519u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return (double)(x >> 8) / (1 << 24);
}

static inline int fake_by_capacity(const struct route *r, int l, int i)
{
    return fake_hash(r, l, i) < (r->pass.inference.has_capacity ? r->pass.inference.capacity : 0.5);
}

#endif
