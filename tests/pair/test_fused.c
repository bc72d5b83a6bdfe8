/* Several ways to the same bits: fused ops against the separate ones, and every set of vector loops
 * against the others. */
#include "base/pool.h"
#include "engine/ops.h"
#include "engine/param.h"
#include "engine/vec.h"
#include "t.h"

enum { ROOM = 20000 };

static real in[6][ROOM], out[4][ROOM], want[4][ROOM], kept[4][ROOM];
static uint32_t state;

static real draw(void)
{
    state = state * 1664525U + 1013904223U;
    return (real)((double)(state >> 8) / 2097152.0 - 4);
}

/* The inputs, and outputs with initial values, which accumulating ops must see alike. */
static void inputs(void)
{
    state = 11;
    for (int b = 0; b < 6; b++)
        for (int i = 0; i < ROOM; i++)
            in[b][i] = draw();
    for (int b = 0; b < 4; b++)
        for (int i = 0; i < ROOM; i++)
            out[b][i] = want[b][i] = draw();
}

static void same_outputs(const char *what, int a, int b)
{
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < ROOM; i++)
            t_truef(memcmp(&out[k][i], &want[k][i], sizeof(real)) == 0,
                    "%s (%d, %d): output %d differs at %d: %.9g and %.9g", what, a, b, k, i,
                    (double)out[k][i], (double)want[k][i]);
}

/* Runs the body once with each available set of loops. */
static int next_set(int *i)
{
    const struct vec_set *const *sets = vec_sets();
    struct err e = {0};
    while (sets[*i] && !sets[*i]->available())
        ++*i;
    if (!sets[*i])
        return 0;
    t_ok(vec_use(sets[*i]->name, &e), &e);
    ++*i;
    return 1;
}

static const int32_t rows_of_plan[9] = {0, 1, 4, 9, 10, 11, 30, 38, 39};

static void add_norm_case(int C, int gathered, int layer, int bias)
{
    enum { N = 9 };
    const int32_t *row = gathered ? rows_of_plan : NULL;
    const real *b = bias ? in[3] : NULL, eps = (real)1e-5;
    inputs();
    struct norm n = {.w = in[2],
                     .b = layer ? b : NULL,
                     .mean = layer ? out[2] : NULL,
                     .rstd = out[3],
                     .N = N,
                     .C = C,
                     .eps = eps};
    add_norm_fwd(out[0], out[1], in[0], row, in[1], &n);
    if (gathered)
        rows_gather(want[0], in[0], row, N, C);
    else
        memcpy(want[0], in[0], (size_t)(N * C) * sizeof(real));
    add_into(want[0], in[1], (size_t)(N * C));
    n.mean = layer ? want[2] : NULL;
    n.rstd = want[3];
    norm_fwd(want[1], want[0], &n);
    same_outputs("add_norm_fwd", C, gathered * 4 + layer * 2 + bias);
}

T(addition_and_norm_in_one_pass_give_the_bits_of_two)
{
    static const int cols[] = {1, 7, 16, 37, 96, 500};
    for (int set = 0; next_set(&set);)
        for (int c = 0; c < 6; c++)
            for (int k = 0; k < 8; k++)
                if ((k & 1) == 0 || (k & 2))
                    add_norm_case(cols[c], k >> 2, k >> 1 & 1, k & 1);
}

T(a_residual_update_is_a_copy_and_a_scatter)
{
    for (int set = 0; next_set(&set);)
        for (int k = 0; k < 12; k++) {
            int C = k < 6 ? 37 : 480, N = k % 3 == 0 ? 0 : k % 3 == 1 ? 5 : 9, R = 40;
            const real *gate = k / 3 % 2 ? in[2] : NULL;
            inputs();
            rows_update(out[0], in[0], in[1], rows_of_plan, gate, N, R, C);
            memcpy(want[0], in[0], (size_t)(R * C) * sizeof(real));
            rows_scatter_add(want[0], in[1], rows_of_plan, gate, N, C);
            same_outputs("rows_update", C, N);
        }
}

static void act_fwd(enum act_kind kind, real *h, const real *a, const real *b, size_t n)
{
    if (kind == ACT_SWIGLU)
        swiglu_fwd(h, a, b, n);
    else if (kind == ACT_GELU)
        gelu_fwd(h, b, n);
    else if (kind == ACT_GELU_TANH)
        gelu_tanh_fwd(h, b, n);
    else
        geglu_fwd(h, a, b, n);
}

static int is_gated(enum act_kind kind)
{
    return kind == ACT_SWIGLU || kind == ACT_GEGLU;
}

static void act_bwd(enum act_kind kind, real *da, real *db, const real *dh, const real *a,
                    const real *b, size_t n)
{
    memset(db, 0, n * sizeof *db);
    if (is_gated(kind)) {
        memset(da, 0, n * sizeof *da);
        (kind == ACT_SWIGLU ? swiglu_bwd : geglu_bwd)(da, db, dh, a, b, n);
    } else if (kind == ACT_GELU) {
        gelu_bwd(db, dh, b, n);
    } else {
        gelu_tanh_bwd(db, dh, b, n);
    }
}

/* Memory between the rows of the tile must not change. */
static void tile_case(enum act_kind kind, int rows, int cols, int ld)
{
    real zero[512];
    const real *a = is_gated(kind) ? in[0] : NULL;
    inputs();
    act_tile_fwd(kind, out[0], a, in[1], ld, rows, cols);
    act_tile_bwd(kind, is_gated(kind) ? out[1] : NULL, out[2], a, in[1], ld, rows, cols);
    for (int r = 0; r < rows; r++) {
        size_t at = (size_t)(r * ld), n = (size_t)cols;
        real dh[512];
        act_fwd(kind, want[0] + at, in[0] + at, in[1] + at, n);
        memcpy(dh, want[2] + at, n * sizeof *dh);
        act_bwd(kind, is_gated(kind) ? want[1] + at : zero, want[2] + at, dh, in[0] + at,
                in[1] + at, n);
    }
    same_outputs("act_tile", (int)kind, cols);
}

T(activations_of_a_tile_equal_those_of_the_whole)
{
    static const int cols[] = {1, 8, 31, 64, 300};
    for (int set = 0; next_set(&set);)
        for (int kind = 0; kind < 4; kind++)
            for (int c = 0; c < 5; c++) {
                tile_case((enum act_kind)kind, 6, cols[c], 301);
                tile_case((enum act_kind)kind, 6, cols[c], cols[c]);
                tile_case((enum act_kind)kind, 0, cols[c], cols[c]);
            }
}

/* ---- threads --------------------------------------------------------------------------------- */

static void fused_once(void)
{
    enum { N = 60, C = 300, MANY = 33 };
    static int32_t row[N];
    struct params ps = {0};
    struct err e = {0};
    char name[16];
    for (int i = 0; i < N; i++)
        row[i] = i + i / 7;
    struct norm n = {.w = in[2], .rstd = out[2], .N = N, .C = C, .eps = REAL_C(1e-5)};
    add_norm_fwd(out[0], out[1], in[0], NULL, in[1], &n);
    rows_update(out[2], in[3], in[4], row, in[5], 50, 66, C);
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "t%d", i);
        t_eq(params_add(&ps, name, 1 + i * i * 37, 0, (enum param_group)(i % PARAM_GROUPS),
                        INIT_NORMAL, 1),
             i);
    }
    t_ok(params_reserve(&ps, 1, &e), &e);
    params_init(&ps, 3);
    for (int i = 0; i < MANY; i++)
        for (size_t k = 0; k < ps.p[i].n; k++)
            ps.p[i].grad[k] = in[i % 6][k % ROOM];
    struct adamw o = {
        .lr = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .router_lr = 1, .clip = 1};
    struct grad_health h = params_grad_health(&ps);
    adamw_step(&ps, &o, 1, &h);
    for (int i = 0; i < MANY; i++)
        for (size_t k = 0; k < ps.p[i].n; k++)
            out[3][(size_t)i + k % (ROOM - MANY)] += ps.p[i].value[k];
    params_release(&ps);
}

T(fused_ops_give_the_same_bits_at_any_thread_count)
{
    static const int threads[] = {1, 2, 3, 4, 7, 8, 12, 16};
    for (int i = 0; i < 8; i++) {
        struct err e = {0};
        t_ok(pool_start(threads[i], &e), &e);
        inputs();
        fused_once();
        pool_stop();
        if (i == 0)
            memcpy(kept, out, sizeof kept);
        memcpy(want, kept, sizeof want);
        same_outputs("threads", threads[i], 0);
    }
}

/* ---- sets of vector loops -------------------------------------------------------------------- */

/* Ordinary values and those at the ends of float's range; no NaN, as its bits are not unique. */
static void hard_inputs(void)
{
    static const real ends[] = {0,
                                -(real)0.0,
                                REAL_C(1e-30),
                                REAL_C(-1e-30),
                                REAL_C(1e-41),
                                REAL_C(87.3),
                                REAL_C(-87.4),
                                REAL_C(-88.5),
                                REAL_C(30.0),
                                REAL_C(-2e3),
                                REAL_C(0.924999),
                                REAL_C(0.625)};
    inputs();
    for (int i = 0; i < ROOM; i += 3)
        in[0][i] = in[1][i + 1] = ends[i / 3 % 12];
}

/* Every loop on n elements, from an unaligned address. */
static void run_all(const struct vec_set *s, size_t n)
{
    const real *a = in[0] + 1, *b = in[1] + 3, *c = in[2] + 1, *d = in[3], *w = in[4] + 5;
    const struct vec_adamw rates = {REAL_C(0.9),  REAL_C(0.1),  REAL_C(0.95),
                                    REAL_C(0.05), REAL_C(1e-8), REAL_C(0.999),
                                    REAL_C(1e-3), REAL_C(1.7),  REAL_C(0.3)};
    real *y[16], *last = out[3];
    double sum[4] = {0};
    int heads = 3, pairs = (int)n / 6;
    size_t at = 0;
    for (int k = 0; k < 16; k++) /* places of 1001 elements in the first three outputs */
        y[k] = out[k / 6] + (k % 6) * 1001;
    s->swiglu(y[0], a, b, n);
    s->swiglu_bwd(y[1], y[2], c, a, b, n, 1);
    s->swiglu_bwd(y[3], NULL, c, a, b, n, 0);
    s->gelu(y[4], a, n);
    s->gelu_bwd(y[5], c, a, n, 1);
    s->gelu_tanh(y[6], a, n);
    s->gelu_tanh_bwd(y[7], c, a, n, 0);
    last[at++] = s->rms_row(y[8], y[9], c, d, w, n, REAL_C(1e-5));
    last[at] = s->layer_row(y[10], &last[at + 1], y[11], c, d, w, b, n, REAL_C(1e-5));
    at += 2;
    s->rms_row_bwd(y[9], y[12], c, d, w, REAL_C(0.7), n);
    s->layer_row_bwd(y[11], y[12], y[13], c, d, w, REAL_C(0.2), REAL_C(0.7), n);
    s->angles(y[14], y[14] + pairs, w, 2047, -1, pairs);
    s->rotate(y[0], y[14], y[14] + pairs, heads, 2 * pairs, pairs, 1);
    s->rotate(y[1], y[14], y[14] + pairs, heads, 2 * pairs, pairs, 0);
    s->geglu(y[0], y[0], b, n);
    s->geglu_bwd(y[2], y[3], c, a, b, n, 1);
    s->geglu_bwd(y[4], NULL, c, a, b, n, 0);
    s->cap(y[1], REAL_C(2.5), n);
    s->cap_bwd(y[0], y[1], REAL_C(2.5), n);
    last[at++] = s->max(a, n);
    s->exp_sum(y[15], a, last[at - 1], n, &sum[0], &sum[1]);
    s->exp_sum(NULL, c, REAL_C(1.5), n, &sum[2], NULL);
    double weight[1024];
    s->exp_scaled(weight, a, (double)last[at - 1], 0.7, n);
    for (size_t i = 0; i < n; i++)
        y[14][i] = (real)(weight[i] * 1e9);
    s->scale(y[2], REAL_C(1.1), n);
    s->axpy(y[4], y[5], c, REAL_C(0.3), n);
    last[at++] = s->dot(c, d, n);
    sum[3] = s->squares(c, n);
    memcpy(y[6], c, n * sizeof(real));
    s->scale(y[7], 0, n);
    s->axpy(y[7], y[7], d, REAL_C(0.01), n);
    for (size_t i = 0; i < n; i++)
        y[13][i] = fabs_r(y[13][i]);
    s->adamw(y[3], y[6], y[7], y[13], &rates, n);
    for (int k = 0; k < 4; k++) {
        last[at++] = (real)sum[k];
        last[at++] = (real)(sum[k] - (double)(real)sum[k]);
    }
}

/* The plain set has the bits of the others where the build itself has fused multiply-adds. */
static int is_exact(const struct vec_set *s)
{
#if defined(__FMA__)
    (void)s;
    return s->available();
#else
    return s->available() && s != &vec_plain;
#endif
}

T(every_set_of_loops_gives_the_same_bits)
{
    static const size_t length[] = {1, 2, 6, 15, 16, 17, 33, 96, 511, 512, 600, 1000};
    int compared = 0;
    for (int l = 0; l < 12; l++) {
        const struct vec_set *const *s = vec_sets();
        const struct vec_set *first = NULL;
        for (; *s; s++) {
            if (!is_exact(*s))
                continue;
            hard_inputs();
            run_all(*s, length[l]);
            if (!first)
                memcpy(kept, out, sizeof kept);
            memcpy(want, kept, sizeof want);
            same_outputs((*s)->name, (int)length[l], compared += first != NULL);
            first = *s;
        }
    }
    if (!compared)
        t_skip("one set of vector loops here, nothing to compare");
}

T(the_plain_set_is_always_available_and_agrees_up_to_rounding)
{
    int sets = 0;
    for (int set = 0; next_set(&set);) {
        inputs();
        run_all(vec(), 600);
        if (sets++ == 0)
            memcpy(kept, out, sizeof kept);
        for (int k = 0; k < 3; k++)
            for (int i = 0; i < 6 * 1001; i++)
                t_near(out[k][i], kept[k][i], 1e-4 * fmax(1, fabs((double)kept[k][i])));
    }
    t_str(vec()->name, "plain");
}

T(an_unknown_set_is_refused)
{
    struct err e = {0};
    t_fails(vec_use("sse9", &e), &e, DS_EUSAGE, "sse9");
}
