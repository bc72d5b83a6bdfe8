/* Every backward against central differences of its forward, in double.  An op is described as a
 * function of its inputs; its gradients, accumulated over a known start, are compared element by
 * element and as a whole. */
#include "engine/linear.h"
#include "engine/ops.h"
#include "engine/vmath.h"
#include "t.h"

enum { INPUTS = 4, ROOM = 4096 };

struct check {
    const char *name;
    int n[INPUTS]; /* elements of each input, 0 = absent */
    int out;       /* elements of the output */
    int N, C, O;   /* dimensions, as the op needs them */
    int mode;
    /* y from the inputs; gradients of <dy, y> into d[] (NULL = not needed). */
    void (*fwd)(const struct check *c, real *y, real *const *x);
    void (*bwd)(const struct check *c, real *const *d, const real *dy, real *const *x);
    double
        spoil; /* the backward's first gradient is multiplied by 1 + this: the checker's own test */
};

static uint64_t seed = 1;

static real draw(void)
{
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (real)((double)(seed >> 11) / 9007199254740992.0 * 2 - 1);
}

static void fill(real *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = draw();
}

static double objective(const struct check *c, real *const *x, const real *dy)
{
    static real y[ROOM];
    double sum = 0;
    memset(y, 0, sizeof y);
    c->fwd(c, y, x);
    for (int i = 0; i < c->out; i++)
        sum += y[i] * dy[i];
    return sum;
}

/* Largest relative L2 error over the inputs; *worst gets the largest element's error. */
static double check_run(const struct check *c, double *worst)
{
    static real x[INPUTS][ROOM], d[INPUTS][ROOM], start[INPUTS][ROOM], dy[ROOM];
    real *px[INPUTS], *pd[INPUTS];
    double most = 0;
    for (int k = 0; k < INPUTS; k++) {
        t_true(c->n[k] <= ROOM && c->out <= ROOM);
        fill(x[k], c->n[k]);
        fill(d[k], c->n[k]);
        memcpy(start[k], d[k], sizeof d[k]);
        px[k] = c->n[k] ? x[k] : NULL;
        pd[k] = c->n[k] ? d[k] : NULL;
    }
    fill(dy, c->out);
    c->bwd(c, pd, dy, px);
    *worst = 0;
    for (int k = 0; k < INPUTS; k++) {
        double num = 0, den = 0;
        for (int i = 0; i < c->n[k]; i++) {
            real keep = x[k][i], up = keep + 3e-5, down = keep - 3e-5;
            x[k][i] = up;
            double plus = objective(c, px, dy);
            x[k][i] = down;
            double minus = objective(c, px, dy);
            x[k][i] = keep;
            double want = (plus - minus) / (up - down);
            double got = (d[k][i] - start[k][i]) * (k == 0 ? 1 + c->spoil : 1);
            num += (got - want) * (got - want);
            den += want * want;
            *worst = fmax(*worst, fabs(got - want) / fmax(1, fabs(want)));
        }
        double rel = sqrt(num) / fmax(sqrt(den), 1e-30);
        if (c->n[k] && !(rel <= most))
            most = rel;
    }
    return most;
}

/* A NULL gradient changes none of the others. */
static void check_null(const struct check *c)
{
    static real x[INPUTS][ROOM], full[INPUTS][ROOM], part[INPUTS][ROOM], dy[ROOM];
    real *px[INPUTS], *all[INPUTS], *some[INPUTS];
    fill(dy, c->out);
    for (int k = 0; k < INPUTS; k++) {
        fill(x[k], c->n[k]);
        px[k] = c->n[k] ? x[k] : NULL;
        all[k] = c->n[k] ? full[k] : NULL;
    }
    memset(full, 0, sizeof full);
    c->bwd(c, all, dy, px);
    for (int left_out = 0; left_out < INPUTS; left_out++) {
        if (!c->n[left_out])
            continue;
        memset(part, 0, sizeof part);
        for (int k = 0; k < INPUTS; k++)
            some[k] = c->n[k] && k != left_out ? part[k] : NULL;
        c->bwd(c, some, dy, px);
        for (int k = 0; k < INPUTS; k++)
            for (int i = 0; k != left_out && i < c->n[k]; i++)
                t_near(part[k][i], full[k][i], 1e-14);
    }
}

static void check_op(const struct check *c)
{
    double worst, rel = check_run(c, &worst);
    t_truef(rel <= 1e-7, "%s (mode %d, N %d): relative error %.2e", c->name, c->mode, c->N, rel);
    t_truef(worst <= 1e-7, "%s (mode %d, N %d): worst element %.2e", c->name, c->mode, c->N, worst);
    check_null(c);
}

/* ---- linear ---------------------------------------------------------------------------------- */

static void linear_y(const struct check *c, real *y, real *const *x)
{
    struct linear w = {.C = c->C, .O = c->O, .w = x[1], .b = c->n[2] ? x[2] : NULL};
    linear_fwd(y, x[0], &w, c->N, 0, NULL);
}

static void linear_d(const struct check *c, real *const *d, const real *dy, real *const *x)
{
    struct linear w = {.C = c->C, .O = c->O, .w = x[1]};
    if (d[0])
        linear_bwd_x(d[0], dy, &w, c->N, 1, NULL);
    struct linear_rows rows = linear_rows(GEMM_FP32, x[0], NULL, c->N, c->C);
    linear_bwd_w(d[1], d[2], dy, &rows, &w);
}

static struct check linear_of(int N, int C, int O, int with_bias)
{
    struct check c = {.name = "linear",
                      .n = {N * C, O * C, with_bias ? O : 0},
                      .out = N * O,
                      .N = N,
                      .C = C,
                      .O = O,
                      .fwd = linear_y,
                      .bwd = linear_d};
    return c;
}

T(linear_backward_is_the_derivative)
{
    for (int N = 0; N < 10; N += N < 2 ? 1 : 7)
        for (int bias = 0; bias < 2; bias++) {
            struct check c = linear_of(N, 5, 7, bias);
            check_op(&c);
        }
    struct check wide = linear_of(4, 33, 70, 1);
    check_op(&wide);
}

T(linear_adds_when_beta_is_one)
{
    real x[6], w[6], b[2], y[4], z[4];
    fill(x, 6), fill(w, 6), fill(b, 2), fill(y, 4);
    memcpy(z, y, sizeof y);
    struct linear map = {.C = 3, .O = 2, .w = w, .b = b};
    linear_fwd(y, x, &map, 2, 1, NULL);
    for (int i = 0; i < 4; i++) {
        real sum = z[i] + b[i % 2];
        for (int c = 0; c < 3; c++)
            sum += x[i / 2 * 3 + c] * w[i % 2 * 3 + c];
        t_near(y[i], sum, 1e-14);
    }
}

T(the_checker_detects_a_derivative_off_by_a_thousandth)
{
    double worst;
    struct check c = linear_of(9, 5, 7, 1);
    c.spoil = 1e-3;
    t_true(check_run(&c, &worst) > 9e-4);
    t_true(worst > 1e-4);
}

/* ---- norms ----------------------------------------------------------------------------------- */

static struct norm norm_of(const struct check *c, real *const *x, real *mean, real *rstd)
{
    return (struct norm){.w = x[1],
                         .b = mean ? x[2] : NULL,
                         .mean = mean,
                         .rstd = rstd,
                         .N = c->N,
                         .C = c->C,
                         .eps = 1e-5};
}

static void rms_y(const struct check *c, real *y, real *const *x)
{
    real rstd[64];
    struct norm n = norm_of(c, x, NULL, rstd);
    norm_fwd(y, x[0], &n);
}

static void rms_d(const struct check *c, real *const *d, const real *dy, real *const *x)
{
    real rstd[64], y[ROOM];
    struct norm n = norm_of(c, x, NULL, rstd);
    norm_fwd(y, x[0], &n);
    norm_bwd(d[0], d[1], NULL, dy, x[0], &n);
}

static void layer_y(const struct check *c, real *y, real *const *x)
{
    real mean[64], rstd[64];
    struct norm n = norm_of(c, x, mean, rstd);
    norm_fwd(y, x[0], &n);
}

static void layer_d(const struct check *c, real *const *d, const real *dy, real *const *x)
{
    real mean[64], rstd[64], y[ROOM];
    struct norm n = norm_of(c, x, mean, rstd);
    norm_fwd(y, x[0], &n);
    norm_bwd(d[0], d[1], d[2], dy, x[0], &n);
}

T(norm_backwards_are_the_derivatives)
{
    static const int rows[] = {0, 1, 7}, cols[] = {3, 16, 37};
    for (int i = 0; i < 9; i++) {
        int N = rows[i / 3], C = cols[i % 3];
        check_op(&(struct check){.name = "rmsnorm",
                                 .n = {N * C, C},
                                 .out = N * C,
                                 .N = N,
                                 .C = C,
                                 .fwd = rms_y,
                                 .bwd = rms_d});
        check_op(&(struct check){.name = "layernorm",
                                 .n = {N * C, C, C},
                                 .out = N * C,
                                 .N = N,
                                 .C = C,
                                 .fwd = layer_y,
                                 .bwd = layer_d});
        check_op(&(struct check){.name = "layernorm without b",
                                 .n = {N * C, C},
                                 .out = N * C,
                                 .N = N,
                                 .C = C,
                                 .fwd = layer_y,
                                 .bwd = layer_d});
    }
}

/* ---- rope ------------------------------------------------------------------------------------ */

static const real rope_freq[4] = {1, 0.31, 0.1, 0.01};
static const int32_t rope_pos[8] = {0, 1, 2, 9, 100, 7, 3, 2047};

/* Whole heads, and six of eight elements with a factor. */
static struct rope rope_of(const struct check *c)
{
    return (struct rope){.inv_freq = rope_freq,
                         .D = 8,
                         .dims = c->C ? 6 : 8,
                         .half = c->mode,
                         .scale = c->C ? (real)1.3 : 1};
}

static void rope_y(const struct check *c, real *y, real *const *x)
{
    struct rope r = rope_of(c);
    for (int i = 0; i < c->n[0]; i++)
        y[i] = x[0][i];
    rope_fwd(y, rope_pos, &r, c->N, 3);
}

static void rope_d(const struct check *c, real *const *d, const real *dy, real *const *x)
{
    real dx[ROOM];
    struct rope r = rope_of(c);
    (void)x;
    if (!d[0])
        return;
    memcpy(dx, dy, (size_t)c->n[0] * sizeof *dx);
    rope_bwd(dx, rope_pos, &r, c->N, 3);
    add_into(d[0], dx, (size_t)c->n[0]);
}

T(rope_backward_is_the_derivative)
{
    static const int rows[] = {0, 1, 8};
    for (int i = 0; i < 12; i++)
        check_op(&(struct check){.name = "rope",
                                 .n = {rows[i / 4] * 24},
                                 .out = rows[i / 4] * 24,
                                 .N = rows[i / 4],
                                 .C = i / 2 % 2,
                                 .mode = i % 2,
                                 .fwd = rope_y,
                                 .bwd = rope_d});
}

T(rope_rotates_pairs_by_position_times_frequency)
{
    real x[8] = {1, 0, 0, 0, 0, 0, 0, 0}, y[8] = {1, 0, 0, 0, 0, 0, 0, 0};
    int32_t pos = 3;
    struct rope r = {.inv_freq = rope_freq, .D = 8, .dims = 8, .half = 1, .scale = 1};
    rope_fwd(x, &pos, &r, 1, 1);
    t_near(x[0], cos(3.0), 1e-15);
    t_near(x[4], sin(3.0), 1e-15);
    r.half = 0;
    rope_fwd(y, &pos, &r, 1, 1);
    t_near(y[1], sin(3.0), 1e-15);
}

/* ---- activations ----------------------------------------------------------------------------- */

static void act_y(const struct check *c, real *y, real *const *x)
{
    size_t n = (size_t)c->n[0];
    if (c->mode == 0)
        swiglu_fwd(y, x[0], x[1], n);
    else if (c->mode == 1)
        gelu_fwd(y, x[0], n);
    else if (c->mode == 2)
        gelu_tanh_fwd(y, x[0], n);
    else
        geglu_fwd(y, x[0], x[1], n);
}

static void act_d(const struct check *c, real *const *d, const real *dy, real *const *x)
{
    size_t n = (size_t)c->n[0];
    if (c->mode == 0)
        swiglu_bwd(d[0], d[1], dy, x[0], x[1], n);
    else if (c->mode == 1)
        gelu_bwd(d[0], dy, x[0], n);
    else if (c->mode == 2)
        gelu_tanh_bwd(d[0], dy, x[0], n);
    else
        geglu_bwd(d[0], d[1], dy, x[0], x[1], n);
}

T(activation_backwards_are_the_derivatives)
{
    static const int rows[] = {0, 1, 333};
    for (int i = 0; i < 12; i++) {
        int n = rows[i / 4], mode = i % 4;
        check_op(&(struct check){.name = "activation",
                                 .n = {n, mode % 3 == 0 ? n : 0},
                                 .out = n,
                                 .N = n,
                                 .mode = mode,
                                 .fwd = act_y,
                                 .bwd = act_d});
    }
}

static void cap_y(const struct check *c, real *y, real *const *x)
{
    memcpy(y, x[0], (size_t)c->n[0] * sizeof *y);
    soft_cap_fwd(y, 0.7, (size_t)c->n[0]);
}

static void cap_d(const struct check *c, real *const *d, const real *dy, real *const *x)
{
    real dx[ROOM], y[ROOM];
    if (!d[0])
        return;
    memcpy(dx, dy, (size_t)c->n[0] * sizeof *dx);
    cap_y(c, y, x);
    soft_cap_bwd(dx, y, 0.7, (size_t)c->n[0]);
    add_into(d[0], dx, (size_t)c->n[0]);
}

T(soft_cap_backward_is_the_derivative)
{
    check_op(&(struct check){
        .name = "cap", .n = {101}, .out = 101, .N = 101, .fwd = cap_y, .bwd = cap_d});
}

/* ---- embedding ------------------------------------------------------------------------------- */

static const int32_t embed_id[9] = {3, 0, 3, 3, 1, 5, 0, 2, 3},
                     embed_pos[9] = {0, 1, 2, 3, 0, 1, 2, 0, 1};

static void embed_y(const struct check *c, real *y, real *const *x)
{
    embed_fwd(y, embed_id, embed_pos, x[0], x[1], 1.7, c->N, c->C);
}

static void embed_d(const struct check *c, real *const *d, const real *dy, real *const *x)
{
    (void)x;
    embed_bwd(d[0], d[1], dy, embed_id, embed_pos, 1.7, c->N, c->C);
}

T(embedding_backward_sums_repeated_tokens)
{
    static const int rows[] = {0, 1, 9}, cols[] = {5, 70};
    for (int i = 0; i < 12; i++) {
        int N = rows[i % 3], C = cols[i / 3 % 2], with_pos = i / 6;
        check_op(&(struct check){.name = "embed",
                                 .n = {6 * C, with_pos ? 4 * C : 0},
                                 .out = N * C,
                                 .N = N,
                                 .C = C,
                                 .fwd = embed_y,
                                 .bwd = embed_d});
    }
}

/* ---- rows of a plan -------------------------------------------------------------------------- */

static const int32_t plan_row[5] = {0, 2, 3, 7, 8};

/* y = x0; y[row] += gate * x1: gradients by the transposed ops. */
static void rows_y(const struct check *c, real *y, real *const *x)
{
    memcpy(y, x[0], (size_t)c->n[0] * sizeof *y);
    rows_scatter_add(y, x[1], plan_row, x[2], c->N, c->C);
}

static void rows_d(const struct check *c, real *const *d, const real *dy, real *const *x)
{
    real g[ROOM], dot[8];
    if (d[0])
        add_into(d[0], dy, (size_t)c->n[0]);
    rows_gather(g, dy, plan_row, c->N, c->C);
    for (int i = 0; i < c->N * c->C && d[1]; i++)
        d[1][i] += g[i] * (x[2] ? x[2][i / c->C] : 1);
    rows_dot(dot, dy, plan_row, x[1], c->N, c->C);
    if (d[2])
        add_into(d[2], dot, (size_t)c->N);
}

T(gather_scatter_and_dot_are_each_others_derivatives)
{
    static const int rows[] = {0, 1, 5};
    for (int i = 0; i < 6; i++) {
        int N = rows[i % 3], C = 19;
        check_op(&(struct check){.name = "rows",
                                 .n = {9 * C, N * C, i / 3 ? N : 0},
                                 .out = 9 * C,
                                 .N = N,
                                 .C = C,
                                 .fwd = rows_y,
                                 .bwd = rows_d});
    }
}

/* ---- cross-entropy --------------------------------------------------------------------------- */

static const int32_t xent_target[6] = {4, 0, -1, 12, 3, 3};

static void xent_y(const struct check *c, real *y, real *const *x)
{
    static real logits[ROOM];
    static const real w[6] = {1, 0.5, 2, 0, 1, -1};
    for (int i = 0; i < c->n[0]; i++)
        logits[i] = x[0][i];
    xent_fwd_bwd(logits, xent_target, NULL, 0, y, NULL, c->N, c->C);
    for (int i = 0; i < c->N; i++)
        y[i] *= 0.3 * (c->mode ? w[i] : 1);
}

/* The op has one upstream gradient only, so dy is passed as the rows' weights. */
static void xent_d(const struct check *c, real *const *d, const real *dy, real *const *x)
{
    static real logits[ROOM];
    static const real w[6] = {1, 0.5, 2, 0, 1, -1};
    real weight[6];
    for (int i = 0; i < c->N; i++)
        weight[i] = dy[i] * (c->mode ? w[i] : 1);
    for (int i = 0; i < c->n[0]; i++)
        logits[i] = x[0][i];
    xent_fwd_bwd(logits, xent_target, weight, 0.3, NULL, NULL, c->N, c->C);
    if (d[0])
        add_into(d[0], logits, (size_t)c->n[0]);
}

T(cross_entropy_gradient_is_the_derivative)
{
    static const int rows[] = {0, 1, 6};
    for (int i = 0; i < 6; i++)
        check_op(&(struct check){.name = "xent",
                                 .n = {rows[i % 3] * 37},
                                 .out = rows[i % 3],
                                 .N = rows[i % 3],
                                 .C = 37,
                                 .mode = i / 3,
                                 .fwd = xent_y,
                                 .bwd = xent_d});
}

T(cross_entropy_reports_loss_and_entropy)
{
    real x[3 * 20], y[3 * 20], nll[3], h[3];
    int32_t target[3] = {0, -1, 19};
    fill(x, 60);
    x[5] = -INFINITY; /* a masked token */
    memcpy(y, x, sizeof x);
    xent_fwd_bwd(y, target, NULL, 0, nll, h, 3, 20);
    t_true(memcmp(x, y, sizeof x) == 0);
    for (int i = 0; i < 3; i++) {
        double z = 0, want = 0;
        for (int v = 0; v < 20; v++)
            z += exp(x[i * 20 + v]);
        for (int v = 0; v < 20; v++) {
            double p = exp(x[i * 20 + v]) / z;
            want -= p > 0 ? p * log(p) : 0;
        }
        t_near(h[i], want, 1e-13);
        t_near(nll[i], target[i] < 0 ? 0 : log(z) - x[i * 20 + target[i]], 1e-13);
    }
    xent_fwd_bwd(y, target, NULL, 1, nll, h, 3, 20);
    for (int v = 0; v < 20; v++)
        t_near(y[20 + v], 0, 0);
}

/* ---- attention ------------------------------------------------------------------------------- */

/* Two segments, the second with two documents; keys 4 and 9 may be disabled; in a third mode 70
 * queries form blocks, and in a fourth they have private keys. */
struct scene {
    struct attn a;
    int32_t lo[80], hi[80], self[80], own[80], seg_q[4], seg_k[4];
    uint8_t on[80];
};

static void scene_make(struct scene *s, int mode, int capped)
{
    memset(s, 0, sizeof *s);
    int n = mode == 3 ? 70 : 7, m = mode == 3 ? 70 : 11;
    for (int i = 0; i < n; i++) {
        s->lo[i] = mode == 3 ? (i < 40 ? 0 : 37) : i < 3 ? 0 : i < 5 ? 4 : 7;
        s->hi[i] = mode == 3 ? i + 1 : i < 3 ? i + 2 : i < 5 ? i + 2 : i + 4;
        s->self[i] = mode == 3 ? i : s->hi[i] - 1;
    }
    for (int j = 0; j < m; j++)
        s->on[j] = j != 4 && j != 9 && j % 13 != 12;
    for (int i = 0; mode == 4 && i < n; i++) { /* the keys of each query but its first */
        s->own[i] = i == 0 || i == 3 || i == 5 ? s->self[i] : s->self[i] - 1;
        s->on[s->self[i]] = 2;
    }
    s->seg_q[1] = mode == 3 ? n : 3;
    s->seg_k[1] = mode == 3 ? m : 4;
    s->seg_q[2] = n;
    s->seg_k[2] = m;
    s->a = (struct attn){.N = n,
                         .M = m,
                         .H = 4,
                         .K = 2,
                         .D = 6,
                         .scale = mode == 2 || capped ? (real)0.9 : 0,
                         .cap = capped ? (real)1.2 : 0,
                         .lo = s->lo,
                         .hi = s->hi,
                         .segs = mode == 3 ? 1 : 2,
                         .seg_q = s->seg_q,
                         .seg_k = s->seg_k,
                         .on = mode > 0 ? s->on : NULL,
                         .own = mode == 4 ? s->own : NULL,
                         .self = mode > 1 ? s->self : NULL};
}

static void attn_y(const struct check *c, real *y, real *const *x)
{
    static real lse[80 * 4];
    struct scene s;
    scene_make(&s, c->mode, c->C);
    attention_fwd(y, lse, x[0], x[1], x[2], &s.a);
}

static void attn_d(const struct check *c, real *const *d, const real *dy, real *const *x)
{
    static real o[ROOM], lse[80 * 4];
    struct scene s;
    scene_make(&s, c->mode, c->C);
    attention_fwd(o, lse, x[0], x[1], x[2], &s.a);
    attention_bwd(&(struct attn_grad){.dq = d[0],
                                      .dk = d[1],
                                      .dv = d[2],
                                      .dout = dy,
                                      .q = x[0],
                                      .k = x[1],
                                      .v = x[2],
                                      .o = o,
                                      .lse = lse},
                  &s.a);
}

T(attention_backward_is_the_derivative)
{
    struct scene s;
    for (int i = 0; i < 10; i++) {
        int mode = i / 2, capped = i % 2;
        scene_make(&s, mode, capped);
        int nq = s.a.N * s.a.H * s.a.D, nk = s.a.M * s.a.K * s.a.D;
        check_op(&(struct check){.name = "attention",
                                 .n = {nq, nk, nk},
                                 .out = nq,
                                 .N = s.a.N,
                                 .C = capped,
                                 .mode = mode,
                                 .fwd = attn_y,
                                 .bwd = attn_d});
    }
}

T(attention_without_keys_is_zero)
{
    real q[6], k[6], v[6], o[6], lse[1], dq[6] = {0}, dk[6] = {0}, dv[6] = {0}, dout[6];
    int32_t lo = 0, hi = 0, seg_q[2] = {0, 1}, seg_k[2] = {0, 1};
    struct attn a = {.N = 1,
                     .M = 1,
                     .H = 1,
                     .K = 1,
                     .D = 6,
                     .lo = &lo,
                     .hi = &hi,
                     .segs = 1,
                     .seg_q = seg_q,
                     .seg_k = seg_k};
    fill(q, 6), fill(k, 6), fill(v, 6), fill(o, 6), fill(dout, 6);
    attention_fwd(o, lse, q, k, v, &a);
    attention_bwd(
        &(struct attn_grad){
            .dq = dq, .dk = dk, .dv = dv, .dout = dout, .q = q, .k = k, .v = v, .o = o, .lse = lse},
        &a);
    for (int d = 0; d < 6; d++)
        t_true(o[d] == 0 && dq[d] == 0 && dk[d] == 0 && dv[d] == 0);
    t_true(lse[0] == -INFINITY);
    a.segs = a.N = 0;
    attention_fwd(o, lse, q, k, v, &a);
}
