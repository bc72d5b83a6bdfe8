/* Routing signals: velocity, speed change, acceleration, turn and growth along depth. */
#include "routing/signal.h"

#include <string.h>

#include "base/mem.h"
#include "base/pool.h"

enum { ROWS = 64 };
static const real norm_floor = (real)1e-8;

const char *const feature_name[FEATURES] = {
    [FEATURE_VELOCITY] = "velocity",
    [FEATURE_SPEED] = "speed_change",
    [FEATURE_ACCELERATION] = "acceleration",
    [FEATURE_TURN] = "turn",
    [FEATURE_GROWTH] = "growth",
};

void signal_layout(struct signal *s, struct arena *a, int R, int C, int L, int is_literal)
{
    size_t r = (size_t)R, cells = r * (size_t)L;
    s->R_max = R;
    s->C = C;
    s->L = L;
    s->is_literal = is_literal;
    s->last = arena_zalloc(a, r * (size_t)C, sizeof(real));
    s->kept = arena_zalloc(a, r * FEATURES, sizeof(real));
    s->runs = arena_zalloc(a, r, sizeof(int16_t));
    s->value = arena_zalloc(a, cells * FEATURES, sizeof(real));
    s->at = arena_zalloc(a, cells, sizeof(int16_t));
    s->before = arena_zalloc(a, cells, sizeof(int16_t));
    s->newest = arena_zalloc(a, r, sizeof(int16_t));
    s->older = arena_zalloc(a, r, sizeof(int16_t));
}

void signal_begin(struct signal *s, int R)
{
    size_t r = (size_t)R;
    memset(s->kept, 0, r * FEATURES * sizeof(real));
    memset(s->runs, 0, r * sizeof(int16_t));
    for (size_t i = 0; i < r; i++)
        s->newest[i] = s->older[i] = -1;
}

/* Updates the features with one executed increment D = y - x; y, x and the last D are (C). */
static void take_increment(struct signal *s, int row, const real *restrict y,
                           const real *restrict x)
{
    real *restrict last = s->last + (size_t)row * (size_t)s->C,
                   *kept = s->kept + (size_t)row * FEATURES;
    int has_last = s->runs[row] > 0;
    real dd = 0, yy = 0, diff = 0, dot = 0, ll = 0;
#pragma omp simd reduction(+ : dd, yy, diff, dot, ll)
    for (int c = 0; c < s->C; c++) {
        real d = y[c] - x[c], p = has_last ? last[c] : 0;
        dd += d * d;
        yy += y[c] * y[c];
        diff += (d - p) * (d - p);
        dot += d * p;
        ll += p * p;
        last[c] = d;
    }
    real norm = sqrt_r(yy), v = sqrt_r(dd) / (norm > norm_floor ? norm : norm_floor);
    real both = sqrt_r(dd) * sqrt_r(ll);
    kept[FEATURE_SPEED] = has_last ? fabs_r(v - kept[FEATURE_VELOCITY]) : v;
    kept[FEATURE_VELOCITY] = v;
    kept[FEATURE_ACCELERATION] = sqrt_r(diff) / (norm > norm_floor ? norm : norm_floor);
    kept[FEATURE_TURN] = both > 0 ? dot / both : 0;
    kept[FEATURE_GROWTH] = log_r(norm > norm_floor ? norm : norm_floor);
    s->runs[row]++;
}

struct observe {
    struct signal *s;
    int l;
    const uint8_t *ran;
    const struct stream *st;
};

static void observe_part(void *ctx, int task, int worker)
{
    const struct observe *o = ctx;
    struct signal *s = o->s;
    int end = (task + 1) * ROWS < o->st->R ? (task + 1) * ROWS : o->st->R;
    size_t C = (size_t)s->C;
    (void)worker;
    for (int i = task * ROWS; i < end; i++) {
        if (!o->ran[i])
            continue;
        take_increment(s, i, o->st->h[o->l] + (size_t)i * C, o->st->h[o->l - 1] + (size_t)i * C);
        s->older[i] = s->newest[i];
        s->newest[i] = (int16_t)(o->l - 1);
    }
}

static void observe_held(struct signal *s, int l, const uint8_t *ran, const struct stream *st)
{
    struct observe o = {.s = s, .l = l, .ran = ran, .st = st};
    if (l > 0)
        pool_run((st->R + ROWS - 1) / ROWS, observe_part, &o);
}

/* The published rule: states before the step code, at every layer; all features are 0 at layer
 * 0. */
static void observe_literal(struct signal *s, int l, const struct stream *st)
{
    size_t C = (size_t)s->C;
    for (int i = 0; i < st->R; i++) {
        const real *x = st->h[l] + (size_t)i * C;
        real *last = s->last + (size_t)i * C, *kept = s->kept + (size_t)i * FEATURES, dd = 0,
             xx = 0;
        for (size_t c = 0; l > 0 && c < C; c++) {
            dd += (x[c] - last[c]) * (x[c] - last[c]);
            xx += x[c] * x[c];
        }
        real norm = sqrt_r(xx),
             v = l > 0 ? sqrt_r(dd) / (norm > norm_floor ? norm : norm_floor) : 0;
        kept[FEATURE_SPEED] = fabs_r(v - kept[FEATURE_VELOCITY]);
        kept[FEATURE_VELOCITY] = v;
        memcpy(last, x, C * sizeof(real));
    }
}

void signal_observe(struct signal *s, int l, const uint8_t *ran, const struct stream *st)
{
    size_t R = (size_t)st->R, base = (size_t)l * R;
    BUG_IF(st->R > s->R_max, "signals of %d rows, reserved %d", st->R, s->R_max);
    if (s->is_literal)
        observe_literal(s, l, st);
    else
        observe_held(s, l, ran, st);
    memcpy(s->value + base * FEATURES, s->kept, R * FEATURES * sizeof(real));
    memcpy(s->at + base, s->newest, R * sizeof(int16_t));
    memcpy(s->before + base, s->older, R * sizeof(int16_t));
}

const real *signal_at(const struct signal *s, int l, int R, int row)
{
    return s->value + ((size_t)l * (size_t)R + (size_t)row) * FEATURES;
}

struct step {
    const real *y, *x;
    real *dy, *dx;
    real d_norm, y_norm;
};

static struct step step_of(const struct signal *s, int j, int row, struct stream *st)
{
    size_t at = (size_t)row * (size_t)s->C;
    struct step k = {
        .y = st->h[j + 1] + at, .x = st->h[j] + at, .dy = st->dh[j + 1] + at, .dx = st->dh[j] + at};
    real dd = 0, yy = 0;
    for (int c = 0; c < s->C; c++) {
        dd += (k.y[c] - k.x[c]) * (k.y[c] - k.x[c]);
        yy += k.y[c] * k.y[c];
    }
    k.d_norm = sqrt_r(dd);
    k.y_norm = sqrt_r(yy);
    return k;
}

/* d v / d y = D/(|D||y|) - |D| y/|y|^3,  d v / d x = -D/(|D||y|). */
static void velocity_bwd(const struct step *k, real g, int C)
{
    if (k->d_norm == 0 || k->y_norm <= norm_floor)
        return;
    real a = g / (k->d_norm * k->y_norm), b = g * k->d_norm / (k->y_norm * k->y_norm * k->y_norm);
    for (int c = 0; c < C; c++) {
        real d = k->y[c] - k->x[c];
        k->dy[c] += a * d - b * k->y[c];
        k->dx[c] -= a * d;
    }
}

static void acceleration_bwd(const struct step *k, const struct step *o, real g, int C)
{
    real nn = 0;
    for (int c = 0; c < C; c++) {
        real e = (k->y[c] - k->x[c]) - (o->y[c] - o->x[c]);
        nn += e * e;
    }
    real n = sqrt_r(nn);
    if (n == 0 || k->y_norm <= norm_floor)
        return;
    real a = g / (n * k->y_norm), b = g * n / (k->y_norm * k->y_norm * k->y_norm);
    for (int c = 0; c < C; c++) {
        real e = (k->y[c] - k->x[c]) - (o->y[c] - o->x[c]);
        k->dy[c] += a * e - b * k->y[c];
        k->dx[c] -= a * e;
        o->dy[c] -= a * e;
        o->dx[c] += a * e;
    }
}

void signal_bwd(const struct signal *s, int l, int row, const real *dfeature, struct stream *st)
{
    size_t cell = (size_t)l * (size_t)st->R + (size_t)row;
    int j = s->at[cell], i = s->before[cell];
    if (j < 0)
        return;
    struct step k = step_of(s, j, row, st);
    velocity_bwd(&k, dfeature[FEATURE_VELOCITY], s->C);
    if (i < 0)
        return;
    struct step o = step_of(s, i, row, st);
    real vk = k.d_norm / k.y_norm, vo = o.d_norm / o.y_norm;
    real sign = vk > vo ? (real)1 : vk < vo ? (real)-1 : 0;
    velocity_bwd(&k, sign * dfeature[FEATURE_SPEED], s->C);
    velocity_bwd(&o, -sign * dfeature[FEATURE_SPEED], s->C);
    acceleration_bwd(&k, &o, dfeature[FEATURE_ACCELERATION], s->C);
}
