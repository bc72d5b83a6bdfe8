/* Exit gates: their decisions, penalties, gradients and stored thresholds. */
#include "routing/exits.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

enum { NOISE_STREAM = 1 << 18 };
static const double min_temperature = 0.05,
                    max_temperature = 2; /* bounds of learned temperatures */

/* ---- places ---- */

/* The published places of 22 layers, scaled to L. */
static int spread_layers(int *layer, int L)
{
    static const int published[] = {4, 8, 12, 16, 19};
    int n = 0;
    for (size_t k = 0; k < DS_LEN(published) && L > 1; k++) {
        int l = (2 * published[k] * L + 22) / 44;
        l = l < 1 ? 1 : l >= L ? L - 1 : l;
        if (n == 0 || l > layer[n - 1])
            layer[n++] = l;
    }
    return n;
}

int exits_parse(struct exits_shape *shape, const char *key, const char *text, int L, struct err *e)
{
    int n = 0, *layer = shape->layer;
    shape->n = 0;
    if (strcmp(text, "none") == 0)
        return 0;
    for (const char *at = text; *at;) {
        char *end;
        long l = strtol(at, &end, 10);
        if (end == at || (*end != ',' && *end != '\0') || (*end == ',' && end[1] == '\0'))
            return err_set(e, DS_EUSAGE,
                           "%s=%s: expected layers separated by commas, as 4,8,12, or none", key,
                           text);
        if (l < 0 || l >= L)
            return err_set(e, DS_ERANGE,
                           "%s=%s: layer %ld is outside the model; expected 0 to %d "
                           "(model.layers=%d)",
                           key, text, l, L - 1, L);
        if (n > 0 && l <= layer[n - 1])
            return err_set(e, DS_EUSAGE, "%s=%s: layers must be ascending, %ld follows %d", key,
                           text, l, layer[n - 1]);
        if (n == EXITS_MAX)
            return err_set(e, DS_ERANGE, "%s: too many gates, at most %d", key, EXITS_MAX);
        layer[n++] = (int)l;
        at = *end == ',' ? end + 1 : end;
    }
    shape->n = n > 0 ? n : spread_layers(layer, L);
    return 0;
}

/* ---- parameters and rows ---- */

static int add_row(struct params *ps, const char *prefix, const char *name, int rows, double value,
                   int train)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", prefix, name);
    int i = params_add(ps, full, rows, 0, PARAM_ROUTER, INIT_CONST, value);
    if (i >= 0)
        ps->p[i].train = train;
    return i;
}

static int add_gates(struct exits *x, const char *prefix, int C, const struct exits_shape *shape,
                     struct err *e)
{
    struct mlp_shape net = {.n = 3,
                            .dim = {C, (int)shape->hidden[0], (int)shape->hidden[1], 2},
                            .act = MLP_ACT_GELU,
                            .bias = 1,
                            .std = shape->std};
    int rc = 0;
    for (int g = 0; g < x->n && rc == 0; g++) {
        char name[64];
        snprintf(name, sizeof name, "%s.%d", prefix, x->layer[g]);
        rc = mlp_init(&x->gate[g], x->params, name, &net, e);
    }
    return rc;
}

int exits_init(struct exits *x, struct params *ps, const char *prefix, int L, int C,
               const struct exits_shape *shape, struct err *e)
{
    int learns = shape->learns_temperature;
    memset(x, 0, sizeof *x);
    x->params = ps;
    x->L = L;
    x->n = shape->n;
    memcpy(x->layer, shape->layer, sizeof x->layer);
    x->forward = x->backward = -1;
    int rc = add_gates(x, prefix, C, shape, e);
    if (rc == 0)
        rc = quantiles_init(&x->table, ps, prefix, L, e);
    if (rc < 0)
        return rc;
    x->rate = add_row(ps, prefix, "rate", L, 0, 0);
    x->trained = add_row(ps, prefix, "trained", 1, 0, 0);
    if (x->n > 0) {
        x->forward =
            add_row(ps, prefix, "log_temperature_forward", x->n, log(shape->forward), learns);
        x->backward =
            add_row(ps, prefix, "log_temperature_backward", x->n, log(shape->backward), learns);
    }
    if (x->rate < 0 || x->trained < 0 || (x->n > 0 && (x->forward < 0 || x->backward < 0)))
        return err_set(e, DS_EMEM, "parameters of %s", prefix);
    return 0;
}

void exits_layout(struct exits *x, struct arena *a, int R)
{
    size_t r = (size_t)R, n = (size_t)x->n * r;
    x->z = arena_zalloc(a, n, sizeof(real));
    x->value = arena_zalloc(a, n, sizeof(real));
    x->after = arena_zalloc(a, n, sizeof(real));
    x->push = arena_zalloc(a, n, sizeof(real));
    x->ones = arena_zalloc(a, r, sizeof(real));
    x->reach = arena_zalloc(a, r, sizeof(real));
    x->row = arena_zalloc(a, r, sizeof(real));
    x->logit = arena_zalloc(a, 2 * r, sizeof(real));
    x->depth = arena_zalloc(a, r, sizeof(double));
    x->stays = arena_zalloc(a, r, 1);
    for (size_t i = 0; i < r && !a->measuring; i++)
        x->ones[i] = 1;
    quantiles_layout(&x->table, a, R);
    for (int g = 0; g < x->n; g++)
        mlp_layout(&x->gate[g], a, R);
    x->R_max = R;
}

void exits_release(struct exits *x)
{
    quantiles_release(&x->table);
}

void exits_freeze(struct exits *x, double lr)
{
    struct param *p = x->params->p;
    for (int g = 0; g < x->n; g++)
        for (int k = 0; k < x->gate[g].n; k++)
            p[x->gate[g].w[k]].lr = p[x->gate[g].b[k]].lr = lr;
    if (x->n > 0)
        p[x->forward].lr = p[x->backward].lr = lr;
}

/* ---- forward ---- */

static double sigmoid(double z)
{
    return 1 / (1 + exp(-z));
}

static double temperature_of(const struct exits *x, int param, int g)
{
    return exp((double)x->params->p[param].value[g]);
}

static real *row_of(const struct exits *x, real *table, int g)
{
    return table + (size_t)g * (size_t)x->R;
}

double exits_temperature(const struct exits *x, int g)
{
    return temperature_of(x, x->forward, g);
}

void exits_begin(struct exits *x, int R, int is_on)
{
    BUG_IF(R > x->R_max, "exit gates of %d rows, reserved %d", R, x->R_max);
    x->R = R;
    x->is_on = is_on;
    memset(x->seen, 0, sizeof x->seen);
    memset(x->stays, 1, (size_t)R);
    memset(x->d_forward, 0, sizeof x->d_forward);
    memset(x->push, 0, (size_t)x->n * (size_t)R * sizeof *x->push);
}

int exits_at(const struct exits *x, int l)
{
    for (int g = 0; g < x->n && x->is_on; g++)
        if (x->layer[g] == l && x->seen[g])
            return g;
    return -1;
}

const real *exits_alive(const struct exits *x, int l)
{
    for (int g = x->n - 1; g >= 0 && x->is_on; g--)
        if (x->layer[g] <= l && x->seen[g])
            return row_of(x, x->after, g);
    return x->ones;
}

double exits_share(const struct exits *x, int l)
{
    int g = exits_at(x, l);
    double left = 0;
    for (int i = 0; i < x->R && g >= 0; i++)
        left += (double)exits_alive(x, l - 1)[i] - (double)row_of(x, x->after, g)[i];
    return x->R > 0 ? left / x->R : 0;
}

double exits_rate(const struct exits *x)
{
    const real *alive = exits_alive(x, x->L);
    double exited = 0;
    for (int i = 0; i < x->R; i++)
        exited += 1 - (double)alive[i];
    return x->R > 0 ? exited / x->R : 0;
}

void exits_forget(struct exits *x)
{
    memset(x->left, 0, sizeof x->left);
    memset(x->present, 0, sizeof x->present);
    x->is_moved = 0;
    quantiles_begin(&x->table);
}

double exits_threshold(const struct exits *x, const struct exits_rule *rule, int g)
{
    int l = x->layer[g];
    double stored = 0;
    if (rule->use_stored && quantiles_known(&x->table, l))
        stored = quantiles_at(&x->table, l, (double)x->params->p[x->rate].value[l]);
    return rule->threshold == 0 ? stored
                                : stored + rule->threshold * quantiles_spread(&x->table, l);
}

/* Logistic noise of scale T: z + noise > 0 with probability sigmoid(z / T). */
static double noise_of(const struct route *r, int l, int i)
{
    double u = rng_at(r->pass.seed, RNG_ROUTE, (uint64_t)r->pass.step, (uint32_t)(NOISE_STREAM + l),
                      route_place(&r->pass, i));
    return log(u + 1e-12) - log1p(1e-12 - u);
}

/* Scores of the tokens that the inference rule would not have let exit earlier, into x->row.  They
 * are not those present in training: the inference rule removes the likeliest tokens before the
 * next gate, random draws do not. */
static int gather_staying(struct exits *x, const real *z)
{
    int n = 0;
    for (int i = 0; i < x->R; i++)
        if (x->stays[i])
            x->row[n++] = z[i];
    return n;
}

/* The threshold that lets the training exit rate of these rows exit.  A stored one lags behind the
 * scores: when all rows are above it, later gates would see none. */
static double cut_of_rows(struct exits *x, int g, const real *z)
{
    double rate = (double)x->params->p[x->rate].value[x->layer[g]];
    return quantiles_of(&x->table, x->row, gather_staying(x, z), rate);
}

/* Updates the statistics: how many present tokens exited in training, and the scores. */
static void note(struct exits *x, const struct route *r, int g, const real *before, const real *z,
                 const real *value)
{
    for (int i = 0; i < x->R && r->pass.kind == PASS_TRAIN; i++)
        if (before[i] > 0) {
            x->left[g] += (double)value[i];
            x->present[g] += 1;
        }
    quantiles_note(&x->table, x->layer[g], x->row, gather_staying(x, z));
}

static int gate_of(const struct exits *x, int l)
{
    for (int g = 0; g < x->n; g++)
        if (x->layer[g] == l)
            return g;
    return -1;
}

int exits_decide(struct exits *x, const struct route *r, int l, const real *h,
                 const struct exits_rule *rule)
{
    int g = x->is_on ? gate_of(x, l) : -1, nan = 0;
    if (g < 0)
        return 0;
    const real *before = exits_alive(x, l - 1);
    real *z = row_of(x, x->z, g), *value = row_of(x, x->value, g), *after = row_of(x, x->after, g);
    double fwd = rule->noise * temperature_of(x, x->forward, g),
           bwd = temperature_of(x, x->backward, g);
    mlp_fwd(&x->gate[g], x->logit, h, x->R);
    for (int i = 0; i < x->R; i++)
        z[i] = x->logit[2 * i + 1] - x->logit[2 * i] + (real)x->bias;
    double own = rule->note || rule->by_rows ? cut_of_rows(x, g, z) : 0;
    double cut = rule->by_rows ? own : exits_threshold(x, rule, g);
    for (int i = 0; i < x->R; i++) {
        double noisy = (double)z[i] + (fwd > 0 && !rule->soft ? fwd * noise_of(r, l, i) : 0);
        value[i] = rule->soft ? (real)sigmoid((double)z[i] / bwd) : noisy > cut ? 1 : 0;
        after[i] = before[i] * (1 - value[i]);
        nan += isnan(z[i]) != 0;
    }
    x->seen[g] = 1;
    if (rule->note)
        note(x, r, g, before, z, value);
    for (int i = 0; i < x->R; i++)
        x->stays[i] = x->stays[i] && !((double)z[i] > own);
    return nan;
}

/* ---- backward ---- */

void exits_bwd_begin(struct exits *x)
{
    memset(x->reach, 0, (size_t)x->R * sizeof *x->reach);
}

static void add_grad(struct exits *x, int param, int g, double d)
{
    real *grad = x->params->p[param].grad;
    if (grad)
        grad[g] += (real)d;
}

/* A' = A (1 - e): de = - A dA', dA = (1 - e) dA'; de/dz = s (1 - s) / T_bwd with s = sigmoid(z /
 * T_bwd). */
void exits_bwd(struct exits *x, int l, const real *h, real *dh)
{
    int g = exits_at(x, l);
    if (g < 0)
        return;
    const real *before = exits_alive(x, l - 1), *z = row_of(x, x->z, g),
               *value = row_of(x, x->value, g), *push = row_of(x, x->push, g);
    double T = temperature_of(x, x->backward, g), d_log = 0, moved = 0;
    for (int i = 0; i < x->R; i++) {
        double s = sigmoid((double)z[i] / T), slope = s * (1 - s) / T;
        double de = -(double)x->reach[i] * (double)before[i], dz = de * slope + (double)push[i];
        d_log -= de * slope * (double)z[i];
        x->reach[i] *= 1 - value[i];
        x->logit[2 * i] = (real)-dz;
        x->logit[2 * i + 1] = (real)dz;
        moved += fabs(dz);
    }
    x->is_moved += moved > 0;
    mlp_bwd(&x->gate[g], dh, x->logit, h, x->R);
    add_grad(x, x->backward, g, d_log);
    add_grad(x, x->forward, g, x->d_forward[g]);
}

/* ---- penalties ---- */

/* The evaluated gates of row i in order: P[k] of gate g[k].  Returns their number. */
static int exit_probs(const struct exits *x, int i, int *g, double *P, double *T)
{
    int n = 0;
    for (int k = 0; k < x->n; k++)
        if (x->seen[k]) {
            T[n] = temperature_of(x, x->forward, k);
            P[n] = sigmoid((double)row_of(x, x->z, k)[i] / T[n]);
            g[n++] = k;
        }
    return n;
}

/* Sets the expected exit layer (L: never) and returns the probability of staying to the end. */
static double expect_exit(struct exits *x, int i)
{
    int g[EXITS_MAX];
    double P[EXITS_MAX], T[EXITS_MAX], A = 1, depth = 0;
    int n = exit_probs(x, i, g, P, T);
    for (int k = 0; k < n; k++) {
        depth += A * P[k] * x->layer[g[k]];
        A *= 1 - P[k];
    }
    x->depth[i] = depth + A * x->L;
    return A;
}

/* Backward of expect_exit: from d penalty / d (probability of staying), d expected layer, and the
 * direct cost of exiting at each gate. */
static void expect_exit_bwd(struct exits *x, int i, double dA, double dd, const double *leave)
{
    int g[EXITS_MAX];
    double P[EXITS_MAX], T[EXITS_MAX], A[EXITS_MAX + 1] = {1};
    int n = exit_probs(x, i, g, P, T);
    for (int k = 0; k < n; k++)
        A[k + 1] = A[k] * (1 - P[k]);
    dA += dd * x->L;
    for (int k = n - 1; k >= 0; k--) {
        double out = dd * x->layer[g[k]] + leave[g[k]], dP = A[k] * (out - dA);
        double dz = dP * P[k] * (1 - P[k]) / T[k];
        real *push = row_of(x, x->push, g[k]) + i;
        dA = dA * (1 - P[k]) + out * P[k];
        x->d_forward[g[k]] -= dz * (double)row_of(x, x->z, g[k])[i];
        *push = (real)((double)*push + dz);
    }
}

struct moments {
    double depth, place; /* means */
    double var_depth, var_place, cov;
};

static struct moments moments_of(const struct exits *x, const struct route *r)
{
    struct moments m = {0};
    for (int i = 0; i < x->R; i++) {
        m.depth += x->depth[i] / x->R;
        m.place += (double)r->pass.pos[i] / x->R;
    }
    for (int i = 0; i < x->R; i++) {
        double d = x->depth[i] - m.depth, p = r->pass.pos[i] - m.place;
        m.var_depth += d * d / x->R;
        m.var_place += p * p / x->R;
        m.cov += d * p / x->R;
    }
    return m;
}

/* Below this standard deviation of depth (in layers) spread and order are undefined. */
static const double least_spread = 1e-6;

static double spread_penalty(const struct exits *x, const struct exits_penalty *p,
                             const struct moments *m)
{
    double sd = x->R > 1 ? sqrt(m->var_depth * x->R / (x->R - 1)) : p->spread;
    return p->diversity * fmax(0, p->spread - sd);
}

static double order_penalty(const struct exits_penalty *p, const struct moments *m)
{
    double scale = sqrt(m->var_depth * m->var_place);
    return scale > least_spread ? p->monotone * fmax(0, -m->cov / scale) : 0;
}

/* d (spread and order penalties) / d expected layer of row i. */
static double moments_bwd(const struct exits *x, const struct route *r,
                          const struct exits_penalty *p, const struct moments *m, int i)
{
    double d = x->depth[i] - m->depth, place = r->pass.pos[i] - m->place, sum = 0;
    double sd = sqrt(m->var_depth), scale = sd * sqrt(m->var_place);
    if (spread_penalty(x, p, m) > 0 && sd > least_spread)
        sum -= p->diversity * d / (sd * sqrt((double)x->R * (x->R - 1)));
    if (order_penalty(p, m) > 0)
        sum -= p->monotone * (place / scale - m->cov / scale * d / m->var_depth) / x->R;
    return sum;
}

static double smooth_distance(double d)
{
    return fabs(d) < 1 ? 0.5 * d * d : fabs(d) - 0.5;
}

static int is_frequent(const struct route *r, const struct exits_penalty *p, int i)
{
    return p->early > 0 && r->pass.id[i] < p->early_ids;
}

/* Mean distance from the target layer over frequent ids that exit, num / den.  Whether they exit is
 * not penalised here. */
struct early {
    double num, den;
};

static double distance_of(const struct exits *x, const struct exits_penalty *p, int g)
{
    return smooth_distance(x->layer[g] - p->early_layer * x->L);
}

static void count_early(const struct exits *x, const struct exits_penalty *p, int i,
                        struct early *y)
{
    int g[EXITS_MAX];
    double P[EXITS_MAX], T[EXITS_MAX], A = 1;
    int n = exit_probs(x, i, g, P, T);
    for (int k = 0; k < n; k++) {
        y->num += A * P[k] * distance_of(x, p, g[k]);
        y->den += A * P[k];
        A *= 1 - P[k];
    }
}

/* Cost of exiting for a frequent row: d (num / den). */
static void early_bwd(const struct exits *x, const struct exits_penalty *p, const struct early *y,
                      double *leave)
{
    for (int g = 0; g < x->n; g++)
        leave[g] = y->den > 0 ? p->early * (distance_of(x, p, g) - y->num / y->den) / y->den : 0;
}

double exits_aux(struct exits *x, const struct route *r, const struct exits_penalty *p)
{
    static const double nothing[EXITS_MAX];
    double stay = 0, R = x->R, leave[EXITS_MAX];
    struct early early = {0};
    memset(x->d_forward, 0, sizeof x->d_forward);
    memset(x->push, 0, (size_t)x->n * (size_t)x->R * sizeof *x->push);
    if (!x->is_on || x->n == 0 || x->R == 0)
        return 0;
    for (int i = 0; i < x->R; i++) {
        stay += expect_exit(x, i) / R;
        if (is_frequent(r, p, i))
            count_early(x, p, i, &early);
    }
    struct moments m = moments_of(x, r);
    double miss = 1 - stay - p->target;
    early_bwd(x, p, &early, leave);
    for (int i = 0; i < x->R; i++)
        expect_exit_bwd(x, i, -2 * p->rate * miss / R,
                        p->depth / (R * x->L) + moments_bwd(x, r, p, &m, i),
                        is_frequent(r, p, i) ? leave : nothing);
    return p->rate * miss * miss + p->depth * m.depth / x->L +
           (early.den > 0 ? p->early * early.num / early.den : 0) + spread_penalty(x, p, &m) +
           order_penalty(p, &m);
}

/* ---- between steps ---- */

static void bound(struct exits *x, int param)
{
    real *value = x->params->p[param].value;
    for (int g = 0; g < x->n; g++)
        value[g] = (real)fmin(log(max_temperature), fmax(log(min_temperature), (double)value[g]));
}

void exits_counts(struct exits *x, route_count_fn *each, void *ctx)
{
    each(ctx, x->left, EXITS_MAX, 0);
    each(ctx, x->present, EXITS_MAX, 0);
    each(ctx, &x->is_moved, 1, 0);
    quantiles_counts(&x->table, each, ctx);
}

void exits_update(struct exits *x, double ema)
{
    real *rate = x->params->p[x->rate].value, *trained = x->params->p[x->trained].value;
    for (int g = 0; g < x->n; g++) {
        int l = x->layer[g];
        double now = x->present[g] > 0 ? x->left[g] / x->present[g] : (double)rate[l];
        rate[l] =
            (real)(quantiles_known(&x->table, l) ? ema * (double)rate[l] + (1 - ema) * now : now);
        x->left[g] = x->present[g] = 0;
    }
    if (x->n > 0) {
        bound(x, x->forward);
        bound(x, x->backward);
    }
    trained[0] += x->is_moved > 0 ? 1 : 0;
    x->is_moved = 0;
    quantiles_update(&x->table, ema);
}

double exits_flops(const struct exits *x, int l)
{
    int g = x->is_on ? gate_of(x, l) : -1;
    return g < 0 ? 0 : mlp_flops(&x->gate[g]);
}
