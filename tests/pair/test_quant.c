/* Quantised weights: every kernel against plain C to the bit, plain C against a double sum, and the
 * guarantees about rows, threads, gathering and values that are not finite. */
#include "base/cpu.h"
#include "base/pool.h"
#include "quant_blocks.h"

static uint32_t state = 11;

static double draw(void) /* -1 .. 1 */
{
    state = state * 1664525U + 1013904223U;
    return (double)(state >> 8) / 8388608.0 - 1;
}

static real *filled(size_t n)
{
    real *x = calloc(n + 1, sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = (real)(draw() + draw() * draw());
    return x;
}

static struct quant *packed(int kind, int O, int C)
{
    struct quant *q = NULL;
    struct err e = {0};
    if (kind >= QUANT_WRITTEN)
        return quant_random(kind, O, C, state++);
    real *w = filled((size_t)O * (size_t)C);
    t_ok(quant_new(&q, (enum quant_kind)kind, w, O, C, &e), &e);
    free(w);
    return q;
}

/* Same bits, or both NaN.  Under valgrind 0 - 0 * 0 of a fused operation is -0. */
static void same(const real *a, const real *b, size_t n, const char *what)
{
    int any_zero = t_runs_under("valgrind");
    for (size_t i = 0; i < n; i++)
        t_truef(memcmp(a + i, b + i, sizeof *a) == 0 || (isnan(a[i]) && isnan(b[i])) ||
                    (any_zero && a[i] == 0 && b[i] == 0),
                "%s: element %zu is %.9g and %.9g", what, i, (double)a[i], (double)b[i]);
}

static void linear(int reference, real *y, const real *x, const struct quant *q, int N)
{
    quant_use_reference(reference);
    quant_linear(y, x, NULL, q, NULL, N, 0);
    quant_use_reference(0);
}

static const int shape[][2] = {{1, 32},    {16, 64},  {17, 96},   {48, 256},  {33, 544},
                               {100, 512}, {5, 1024}, {40, 1792}, {64, 2080}, {20, 192}};
enum { SHAPES = sizeof shape / sizeof *shape };

static void kernels_agree(void)
{
    static const int Ns[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 23, 128, 137};
    for (int kind = 1; kind < QUANT_KINDS; kind++)
        for (int s = 0; s < SHAPES; s++) {
            int O = shape[s][0], C = shape[s][1];
            if (quant_row_bytes((enum quant_kind)kind, C) == 0)
                continue;
            struct quant *q = s % 2 ? packed(kind, O, C) : quant_random(kind, O, C, state++);
            for (size_t i = 0; i < sizeof Ns / sizeof *Ns; i++) {
                int N = Ns[i];
                char what[80];
                real *x = filled((size_t)N * (size_t)C), *y = filled((size_t)N * (size_t)O),
                     *z = filled((size_t)N * (size_t)O);
                for (int c = 0; c < C && N > 2; c++)
                    x[2 * C + c] = 0;
                linear(1, y, x, q, N);
                linear(0, z, x, q, N);
                snprintf(what, sizeof what, "%s %d x %d, %d rows", quant_name[kind], O, C, N);
                same(y, z, (size_t)N * (size_t)O, what);
                free(x), free(y), free(z);
            }
            quant_free(q);
        }
}

T(the_best_kernel_agrees_with_plain_c)
{
    kernels_agree();
}

T(the_avx2_kernel_agrees_with_plain_c)
{
    setenv("DEPTHSCOPE_CPU", "avx2", 1); /* before the CPU is first queried */
    if (!cpu_has("avx2"))
        t_skip("this processor lacks avx2");
    kernels_agree();
}

/* The largest quants on both sides, all of one sign, where 16-bit sums would overflow. */
static void extremes_agree(void)
{
    enum { C = 256, O = 16, N = 13 };
    for (int kind = 1; kind < QUANT_KINDS; kind++)
        for (int signs = 0; signs < 4; signs++) {
            struct quant *q = NULL;
            struct err e = {0};
            size_t row = quant_row_bytes((enum quant_kind)kind, C),
                   block = (size_t)quant_format[kind].bytes;
            const int *half = quant_format[kind].half;
            uint8_t b[O * 272];
            real x[N * C], y[N * O], z[N * O], one[O], w[C];
            memset(b, kind == QUANT_Q8_0 ? (signs & 1 ? 0x80 : 0x7f) : (signs & 1 ? 0 : 0xff),
                   sizeof b);
            for (size_t i = 0; i < O * row; i += block) {
                for (int k = 0; k < 2 && half[k] >= 0; k++)
                    b[i + (size_t)half[k]] = 0, b[i + (size_t)half[k] + 1] = 0x3c; /* 1 */
                if (kind == QUANT_MXFP4)
                    b[i] = 128;
                if (kind == QUANT_Q6_K) /* with quants of 0 or 63, minus 32 */
                    memset(b + i + 192, signs & 1 ? 0x80 : 0x7f, 16);
            }
            t_ok(quant_from_blocks(&q, (enum quant_kind)kind, b, O, C, &e), &e);
            for (int c = 0; c < N * C; c++)
                x[c] = signs & 2 ? -127 : 127;
            linear(1, y, x, q, N);
            linear(0, z, x, q, N);
            linear(0, one, x, q, 1);
            same(y, z, N * O, quant_name[kind]);
            same(y, one, O, quant_name[kind]);
            quant_row(w, q, 3);
            t_near(y[3], (double)(w[0] * x[0]) * C, 0); /* of few bits */
            quant_free(q);
        }
}

T(the_largest_quants_do_not_overflow)
{
    extremes_agree();
}

T(the_largest_quants_do_not_overflow_in_avx2)
{
    setenv("DEPTHSCOPE_CPU", "avx2", 1);
    extremes_agree();
}

/* The error is at most half a step of the activations: amax / 254 of each block times its
 * weights. */
T(results_are_right_up_to_the_rounding_of_activations)
{
    enum { O = 37, C = 768, N = 9 };
    for (int kind = 1; kind < QUANT_KINDS; kind++) {
        struct quant *q = packed(kind, O, C);
        real *x = filled(N * C), *y = filled(N * O), w[C];
        linear(0, y, x, q, N);
        for (int o = 0; o < O; o++) {
            quant_row(w, q, o);
            for (int n = 0; n < N; n++) {
                double sum = 0, size = 0, exact = 0;
                for (int b = 0; b < C; b += 32) {
                    double most = 0;
                    for (int c = b; c < b + 32; c++)
                        most = fmax(most, fabs((double)x[n * C + c]));
                    for (int c = b; c < b + 32; c++) {
                        double v = (double)x[n * C + c], d = most / 127;
                        exact += v * (double)w[c];
                        sum += d * rint(v / d) * (double)w[c];
                        size += most / 254 * fabs((double)w[c]);
                    }
                }
                t_near(y[n * O + o], exact, size * 1.001);
                t_near(y[n * O + o], sum, 2e-2 * size); /* ties may round the other way */
            }
        }
        free(x), free(y);
        quant_free(q);
    }
}

T(a_row_does_not_depend_on_the_other_rows)
{
    enum { O = 50, N = 37 };
    for (int kind = 1; kind < QUANT_KINDS; kind++)
        for (int C = 256; C <= 1280; C += 1024) {
            struct quant *q = packed(kind, O, C);
            real *x = filled((size_t)(N * C)), *y = filled(N * O), *z = filled(N * O);
            linear(0, y, x, q, N);
            for (int M = 1; M < N; M += 5)
                for (int n = 0; n + M <= N; n += M) {
                    linear(0, z, x + n * C, q, M);
                    same(y + n * O, z, (size_t)(M * O), quant_name[kind]);
                }
            free(x), free(y), free(z);
            quant_free(q);
        }
}

T(threads_do_not_change_a_bit)
{
    enum { O = 700, C = 512, N = 150 };
    static const int threads[] = {1, 2, 3, 4, 7, 8, 12, 16};
    struct err e = {0};
    for (int kind = 1; kind < QUANT_KINDS; kind++) {
        real *x = filled(N * C), *y = filled(N * O), *z = filled(N * O), *one = filled(O);
        uint32_t begin = state;
        for (int t = 0; t < 8; t++) {
            t_ok(pool_start(threads[t], &e), &e);
            state = begin;
            struct quant *q = packed(kind, O, C);
            linear(0, t ? z : y, x, q, N);
            linear(0, one, x, q, 1);
            same(one, y, O, "one row");
            if (t)
                same(y, z, N * O, quant_name[kind]);
            quant_free(q);
        }
        pool_stop();
        free(x), free(y), free(z), free(one);
    }
}

T(rows_are_gathered_and_bias_and_previous_values_added)
{
    enum { O = 21, C = 256, ROWS = 30, N = 13 };
    int32_t row[N];
    for (int i = 0; i < N; i++)
        row[i] = i * 7 % ROWS;
    for (int kind = 1; kind < QUANT_KINDS; kind++) {
        struct quant *q = packed(kind, O, C);
        real *x = filled(ROWS * C), *all = filled(ROWS * O), *y = filled(N * O), *b = filled(O);
        real *was = filled(N * O);
        linear(0, all, x, q, ROWS);
        memcpy(was, y, N * O * sizeof *y);
        quant_linear(y, x, row, q, b, N, 1);
        for (int i = 0; i < N * O; i++)
            t_near(y[i], all[row[i / O] * O + i % O] + b[i % O] + was[i], 0);
        y[0] = (real)NAN; /* must not be read */
        quant_linear(y, x, row, q, NULL, N, 0);
        for (int i = 0; i < N * O; i++)
            t_near(y[i], all[row[i / O] * O + i % O], 0);
        memcpy(was, y, N * O * sizeof *y);
        quant_linear(y, x, row, q, b, 0, 1);
        same(y, was, N * O, "no rows");
        free(x), free(all), free(y), free(b), free(was);
        quant_free(q);
    }
}

T(calls_that_share_a_loop_have_the_bits_of_single_ones)
{
    enum { ROWS = 40, CALLS = 2 * (QUANT_KINDS - 1), O = 37, C = 512 };
    static const int rows_of[] = {1, 1, 0, 13, 140, 1, 9}, threads[] = {3, 1};
    struct err e = {0};
    int32_t row[2][140];
    for (int i = 0; i < 140; i++)
        row[0][i] = row[1][i] = i * 7 % ROWS;
    real *x = filled(ROWS * C), *other = filled(140 * C), *b = filled(O);
    struct quant_call call[CALLS];
    struct quant *q[CALLS];
    real *y[CALLS], *want[CALLS];
    for (int i = 0; i < CALLS;
         i++) { /* two of each kind: equal rows by equal or by one list, or not */
        int N = rows_of[i / 2 % 7];
        y[i] = filled(140 * O);
        want[i] = malloc(140 * O * sizeof *want[i]);
        memcpy(want[i], y[i], 140 * O * sizeof *y[i]);
        q[i] = packed(1 + i / 2, O, C);
        call[i] = (struct quant_call){.y = y[i],
                                      .x = i % 6 == 5 ? other : x,
                                      .row = i % 6 == 5 ? NULL : row[i % 4 == 3],
                                      .q = q[i],
                                      .b = i % 3 ? b : NULL,
                                      .N = i % 10 == 9 ? N / 2 : N,
                                      .beta = i % 2};
    }
    for (int t = 0; t < 2; t++) {
        t_ok(pool_start(threads[t], &e), &e);
        for (int i = 0; i < CALLS; i++) {
            const struct quant_call *c = &call[i];
            quant_linear(want[i], c->x, c->row, c->q, c->b, c->N, c->beta);
        }
        quant_linear_many(call, CALLS);
        for (int i = 0; i < CALLS; i++)
            same(y[i], want[i], 140 * O, quant_name[1 + i / 2]);
    }
    pool_stop();
    quant_linear_many(call, 0);
    for (int i = 0; i < CALLS; i++) {
        quant_free(q[i]);
        free(y[i]), free(want[i]);
    }
    free(x), free(other), free(b);
}

static void not_finite(void)
{
    enum { O = 19, C = 512, N = 11 };
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    for (int kind = 1; kind < QUANT_KINDS; kind++) {
        struct quant *q = packed(kind, O, C);
        real *x = filled(N * C), *y = filled(N * O), *z = filled(N * O);
        linear(0, y, x, q, N);
        for (int i = 0; i < 3; i++) {
            real was = x[4 * C + 77 + i];
            x[4 * C + 77 + i] = (real)bad[i];
            linear(0, z, x, q, N);
            for (int n = 0; n < N; n++)
                for (int o = 0; o < O; o++)
                    t_true(n == 4 ? isnan(z[n * O + o]) : z[n * O + o] == y[n * O + o]);
            x[4 * C + 77 + i] = was;
        }
        for (int c = 0; c < C; c++) /* near both ends of float's range */
            x[c] = c % 64 < 32 ? (real)1e-41 : (real)(c % 3 ? 1e30 : -3e37);
        linear(0, z, x, q, N);
        linear(1, y, x, q, N);
        same(y, z, N * O, "tiny and huge");
        free(x), free(y), free(z);
        quant_free(q);
    }
}

T(a_non_finite_activation_stays_in_its_row)
{
    not_finite();
}

T(a_non_finite_activation_stays_in_its_row_in_avx2)
{
    setenv("DEPTHSCOPE_CPU", "avx2", 1);
    not_finite();
}

T(a_non_finite_activation_stays_in_its_row_in_plain_c)
{
    setenv("DEPTHSCOPE_CPU", "ref", 1);
    not_finite();
}

T(packed_weights_take_as_many_bytes_as_in_a_file)
{
    enum { O = 32, C = 2048 };
    for (int kind = 1; kind < QUANT_KINDS; kind++) {
        struct quant *q = packed(kind, O, C);
        double file = O * (double)quant_row_bytes((enum quant_kind)kind, C);
        double over = ((double)quant_bytes(q) - 64) / file;
        double most = kind == QUANT_Q3_K ? 1.06 : quant_format[kind].group == 8 ? 1.03 : 1.001;
        t_truef(over > 0.998 && over < most, "%s: %g", quant_name[kind], over);
        quant_free(q);
    }
    quant_free(NULL);
}
