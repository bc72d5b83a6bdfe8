/* One score per row and layer, from a small network per layer. */
#include "routing/scorer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/ops.h"

int scorer_init(struct scorer *s, int L, int C, int normalize, struct err *e)
{
    memset(s, 0, sizeof *s);
    s->L = L;
    s->C = C;
    s->normalize = normalize;
    s->owner = -1;
    s->net = mem_alloc((size_t)L, sizeof *s->net);
    return s->net ? 0 : err_set(e, DS_EMEM, "routers of %d layers", L);
}

int scorer_add(struct scorer *s, struct params *ps, const char *prefix, const char *what, int l,
               const struct mlp_shape *shape, int train, struct err *e)
{
    char name[64];
    struct mlp *m = &s->net[l];
    snprintf(name, sizeof name, "%s.%d.%s", prefix, l, what);
    int rc = mlp_init(m, ps, name, shape, e);
    for (int k = 0; rc == 0 && !train && k < m->n; k++) {
        ps->p[m->w[k]].train = 0;
        if (m->b[k] >= 0)
            ps->p[m->b[k]].train = 0;
    }
    if (rc == 0 && s->owner < 0)
        s->owner = l;
    return rc;
}

/* Called once to measure and once to allocate. */
static void layout_inputs(struct scorer *s, struct arena *a, size_t R)
{
    size_t C = (size_t)s->C;
    s->x = arena_alloc(a, R * C, sizeof(real));
    s->dx = arena_alloc(a, R * C, sizeof(real));
    s->rstd = arena_alloc(a, R, sizeof(real));
    s->ones = arena_alloc(a, C, sizeof(real));
    for (size_t c = 0; c < C && !a->measuring; c++)
        s->ones[c] = 1;
}

/* Networks run one after the other and backward recomputes forward, so one set of buffers
 * suffices. */
void scorer_layout(struct scorer *s, struct arena *a, int R)
{
    mem_free(s->kept);
    s->kept = NULL;
    s->R_max = R;
    if (s->owner < 0)
        return;
    const struct mlp *own = &s->net[s->owner];
    mlp_layout(&s->net[s->owner], a, R);
    for (int l = 0; l < s->L; l++) {
        struct mlp *m = &s->net[l];
        if (m == own || m->n == 0)
            continue;
        memcpy(m->pre, own->pre, sizeof m->pre);
        memcpy(m->post, own->post, sizeof m->post);
        memcpy(m->grad, own->grad, sizeof m->grad);
        m->R_max = own->R_max;
    }
    if (s->normalize)
        layout_inputs(s, a, (size_t)R);
}

void scorer_release(struct scorer *s)
{
    mem_free(s->net);
    mem_free(s->kept);
    memset(s, 0, sizeof *s);
}

static struct norm norm_of(const struct scorer *s, int R)
{
    return (struct norm){.w = s->ones, .rstd = s->rstd, .N = R, .C = s->C, .eps = (real)1e-6};
}

static const real *input_of(struct scorer *s, const real *h, int R)
{
    if (!s->normalize)
        return h;
    struct norm n = norm_of(s, R);
    norm_fwd(s->x, h, &n);
    return s->x;
}

void scorer_fwd(struct scorer *s, int l, real *score, const real *h, int R)
{
    mlp_fwd(&s->net[l], score, input_of(s, h, R), R);
}

static real *held_at(struct scorer *s, int l)
{
    size_t n = (size_t)s->R_max * (size_t)s->C;
    if (!s->kept)
        s->kept = mem_alloc((size_t)s->L * n, sizeof *s->kept);
    BUG_IF(!s->kept, "out of memory keeping the states of %d layers", s->L);
    return s->kept + (size_t)l * n;
}

void scorer_keep(struct scorer *s, int l, const real *h, int R)
{
    memcpy(held_at(s, l), h, (size_t)R * (size_t)s->C * sizeof *h);
}

void scorer_rescore(struct scorer *s, int l, real *score, int R)
{
    scorer_fwd(s, l, score, held_at(s, l), R);
}

void scorer_bwd(struct scorer *s, int l, real *dh, const real *dscore, const real *h, int R)
{
    const real *x = input_of(s, h, R);
    if (!s->normalize || !dh) {
        mlp_bwd(&s->net[l], dh, dscore, x, R);
        return;
    }
    memset(s->dx, 0, (size_t)R * (size_t)s->C * sizeof *s->dx);
    mlp_bwd(&s->net[l], s->dx, dscore, x, R);
    struct norm n = norm_of(s, R);
    norm_bwd(dh, NULL, NULL, s->dx, h, &n);
}

/* Normalising a row: its squares, and its product with their inverse root. */
double scorer_flops(const struct scorer *s, int l)
{
    return mlp_flops(&s->net[l]) + (s->normalize ? 3.0 * s->C : 0);
}

static double scale_of(enum score_gate kind)
{
    return kind == SCORE_SIGMOID2 ? 2 : 1;
}

real score_gate(enum score_gate kind, real score)
{
    real g = kind == SCORE_RAW ? score : (real)(scale_of(kind) / (1 + exp(-(double)score)));
    return g != 0 ? g : (real)1e-30;
}

real score_gate_slope(enum score_gate kind, real score)
{
    double p = 1 / (1 + exp(-(double)score));
    return kind == SCORE_RAW ? 1 : (real)(scale_of(kind) * p * (1 - p));
}
