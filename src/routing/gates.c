/* Straight-through gates per cell: decisions, probes and plans. */
#include "routing/gates.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"

/* Called once to measure and once to allocate. */
void gates_layout(struct gates *g, struct arena *a, int rows, int layers)
{
    size_t R = (size_t)rows, L = (size_t)layers;
    g->L = layers;
    g->want = arena_alloc(a, R, 1);
    g->ran = arena_alloc(a, R, 1);
    g->probe = arena_alloc(a, R, 1);
    g->open = arena_alloc(a, L, 1);
    g->skipped = arena_alloc(a, R, sizeof *g->skipped);
    g->in_row = arena_alloc(a, R, sizeof *g->in_row);
    g->forced = arena_alloc(a, L * R, 1);
    g->score = arena_alloc(a, L * R, sizeof(real));
    g->soft = arena_alloc(a, L * R, sizeof(real));
    g->weight = arena_alloc(a, R, sizeof(real));
}

void gates_begin(struct gates *g, int R)
{
    memset(g->skipped, 0, (size_t)R * sizeof *g->skipped);
    memset(g->in_row, 0, (size_t)R * sizeof *g->in_row);
    memset(g->ran, 0, (size_t)R);
    memset(g->open, 0, (size_t)g->L);
    g->layers = 0;
    g->noise = 0;
}

static real soft_of(real score, double tau, double temperature)
{
    return (real)(1 / (1 + exp(-((double)score - tau) / temperature)));
}

static size_t cell_of(const struct route *r, int l, int i)
{
    return (size_t)l * (size_t)r->pass.R + (size_t)i;
}

/* With logistic noise of scale T a score passes tau with probability sigmoid((score - tau) / T). */
static double noise_of(const struct gates *g, const struct route *r, int l, int i,
                       double temperature)
{
    enum { NOISE_STREAM = 1 << 16 }; /* separate from the probes' draws */
    if (g->noise <= 0 || r->pass.soft)
        return 0;
    double u = rng_at(r->pass.seed, RNG_ROUTE, (uint64_t)r->pass.step, (uint32_t)(NOISE_STREAM + l),
                      route_place(&r->pass, i));
    return g->noise * temperature * (log(u + 1e-12) - log1p(1e-12 - u));
}

void gates_decide(struct gates *g, const struct route *r, int l, int i, int must_run, real score,
                  double tau, double temperature)
{
    size_t cell = cell_of(r, l, i);
    int forced = route_forced(r, l, i);
    g->score[cell] = score;
    g->soft[cell] = soft_of(score, tau, temperature);
    g->forced[cell] = must_run || forced >= 0;
    g->want[i] = forced >= 0 ? forced == 1
                             : must_run || tau == -(double)INFINITY /* NaN too */ ||
                                   (double)score + noise_of(g, r, l, i, temperature) > tau;
}

/* Chooses skipped rows to compute anyway, so that their gates get a gradient. */
static void choose_probes(struct gates *g, const struct route *r, int l, double rate)
{
    for (int i = 0; i < r->pass.R; i++) {
        g->probe[i] = !g->want[i] && !g->forced[cell_of(r, l, i)] &&
                      rng_at(r->pass.seed, RNG_ROUTE, (uint64_t)r->pass.step, (uint32_t)l,
                             route_place(&r->pass, i)) < rate;
        if (g->probe[i])
            g->weight[i] = (real)(1 / rate);
    }
}

void gates_plan(struct gates *g, const struct route *r, int l, struct plan *out, int sparse,
                double probe_rate)
{
    const uint8_t *forced = g->forced + cell_of(r, l, 0);
    int R = r->pass.R, probes = sparse && probe_rate > 0 && r->pass.kind == PASS_TRAIN;
    for (int i = 0; i < R; i++)
        g->weight[i] = forced[i] ? 0 : 1;
    if (probes)
        choose_probes(g, r, l, probe_rate);
    plan_from_mask(out, g->want, g->weight, probes ? g->probe : NULL, R, !sparse || r->pass.soft);
    for (int k = 0; r->pass.soft && k < out->n; k++)
        if (!forced[out->row[k]])
            out->gate[k] = g->soft[cell_of(r, l, out->row[k])];
}

void gates_next(struct gates *g, int l, int R)
{
    g->open[l] = 1;
    g->layers++;
    for (int i = 0; i < R; i++) {
        g->ran[i] = g->want[i];
        g->skipped[i] = (int16_t)(g->skipped[i] + !g->want[i]);
        g->in_row[i] = g->want[i] ? 0 : (int16_t)(g->in_row[i] + 1);
    }
}

void gates_rescore(struct gates *g, const struct route *r, int l, struct plan *out, int k,
                   real score, double tau, double temperature)
{
    size_t cell = cell_of(r, l, out->row[k]);
    if (g->forced[cell])
        return;
    g->score[cell] = score;
    g->soft[cell] = soft_of(score, tau, temperature);
    out->gate[k] = g->soft[cell];
}

double gates_depth(const struct gates *g, const struct route *r, int i)
{
    double depth = 0;
    if (!r->pass.soft)
        return g->layers - g->skipped[i];
    for (int l = 0; l < g->L; l++) {
        if (!g->open[l])
            continue;
        size_t cell = cell_of(r, l, i);
        depth += g->forced[cell] ? 1 : (double)g->soft[cell];
    }
    return depth;
}

double gates_ratio(const struct gates *g, int R)
{
    double skipped = 0;
    for (int i = 0; i < R; i++)
        skipped += g->skipped[i];
    return R > 0 && g->layers > 0 ? 1 - skipped / ((double)R * g->layers) : 1;
}
