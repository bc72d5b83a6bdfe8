/* The product: every provider against a plain double sum, and what the seam promises about rows and tiles. */
#include "base/pool.h"
#include "engine/gemm.h"
#include "engine/real.h"
#include "t.h"

static uint32_t seed = 7;

static real draw(void)
{
    seed = seed * 1664525U + 1013904223U;
    return (real)((double)(seed >> 8) / 8388608.0 - 1);
}

static real *filled(size_t n)
{
    real *x = calloc(n + 1, sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = draw();
    return x;
}

static void use(const char *name)
{
    struct err e = {0};
    t_ok(gemm_use(name, &e), &e);
}

/* Calls fn for every provider this processor has. */
static void each_provider(void (*fn)(const char *name))
{
    for (int i = 0; gemm_providers()[i]; i++) {
        const struct gemm_provider *p = gemm_providers()[i];
        if (!p->available())
            continue;
        use(p->name);
        fn(p->name);
    }
}

/* blas chooses its kernels by shape and promises nothing about rows; gemm.h says so. */
static int keeps_rows(const char *name)
{
    return strcmp(name, "blas") != 0;
}

/* One product with leading dimensions larger than needed; what lies between the rows must stay as it was. */
static void against_double(const char *name, int ta, int tb, int M, int N, int K, real beta)
{
    int lda = (ta ? M : K) + 3, ldb = (tb ? K : N) + 5, ldc = N + 2;
    real *A = filled((size_t)(ta ? K : M) * (size_t)lda),
         *B = filled((size_t)(tb ? N : K) * (size_t)ldb);
    real *C = filled((size_t)M * (size_t)ldc), *was = filled((size_t)M * (size_t)ldc);
    memcpy(was, C, (size_t)M * (size_t)ldc * sizeof *C);
    if (beta == 0 && M > 0 && N > 0)
        C[0] = NAN; /* must not be read */
    gemm(ta, tb, M, N, K, (real)0.5, A, lda, B, ldb, beta, C, ldc);
    for (int m = 0; m < M; m++)
        for (int n = 0; n < ldc; n++) {
            double sum = 0, size = 1;
            if (n >= N) {
                t_true(C[m * ldc + n] == was[m * ldc + n]);
                continue;
            }
            for (int k = 0; k < K; k++) {
                double term = (double)(ta ? A[k * lda + m] : A[m * lda + k]) *
                              (double)(tb ? B[n * ldb + k] : B[k * ldb + n]);
                sum += term;
                size += fabs(term);
            }
            sum = 0.5 * sum + (beta != 0 ? (double)was[m * ldc + n] : 0);
            t_truef(fabs((double)C[m * ldc + n] - sum) <= 3e-7 * size,
                    "%s ta %d tb %d %d x %d x %d beta %g: C[%d,%d] = %g, want %g", name, ta, tb, M,
                    N, K, (double)beta, m, n, (double)C[m * ldc + n], sum);
        }
    free(A), free(B), free(C), free(was);
}

static void shapes(const char *name)
{
    static const int dims[][3] = {{1, 1, 1},    {1, 17, 5},    {2, 96, 32},    {3, 33, 300},
                                  {13, 15, 16}, {14, 32, 8},   {15, 31, 257},  {29, 70, 9},
                                  {70, 8, 64},  {64, 256, 32}, {170, 1030, 3}, {5, 7, 0},
                                  {0, 7, 5},    {7, 0, 5},     {300, 40, 70}};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (int mode = 0; mode < 8; mode++)
            against_double(name, mode & 1, mode >> 1 & 1, dims[i][0], dims[i][1], dims[i][2],
                           (real)(mode >> 2));
}

T(every_provider_agrees_with_a_double_sum)
{
    each_provider(shapes);
}

/* Rows begin.. begin + M of a product, computed alone, against the same rows of the whole. */
static void rows_alone(const char *name)
{
    enum { ALL = 70 };
    static const int Ns[] = {1, 8, 32, 96, 344, 2048}, Ks[] = {8, 32, 33, 96, 344, 1376};
    if (!keeps_rows(name))
        return;
    for (int i = 0; i < 36; i++) {
        int N = Ns[i / 6], K = Ks[i % 6], step = strcmp(name, "ref") == 0 || N * K > 40000 ? 11 : 1;
        if ((size_t)N * (size_t)K > 400000)
            continue;
        real *A = filled((size_t)ALL * (size_t)K), *B = filled((size_t)N * (size_t)K);
        real *C = filled((size_t)ALL * (size_t)N), *D = filled((size_t)ALL * (size_t)N);
        for (int tb = 0; tb < 2; tb++) {
            gemm(0, tb, ALL, N, K, 1, A, K, B, tb ? K : N, 0, C, N);
            for (int M = 1; M < ALL; M += step) {
                int at = M * 13 % (ALL - M + 1);
                gemm(0, tb, M, N, K, 1, A + (size_t)at * (size_t)K, K, B, tb ? K : N, 0, D, N);
                t_truef(memcmp(C + (size_t)at * (size_t)N, D, (size_t)M * (size_t)N * sizeof *C) ==
                            0,
                        "%s: %d rows from %d of %d x %d differ from the same rows of %d", name, M,
                        at, N, K, ALL);
            }
        }
        free(A), free(B), free(C), free(D);
    }
}

T(a_row_does_not_depend_on_the_other_rows)
{
    each_provider(rows_alone);
}

T(vector_width_does_not_change_a_bit)
{
    enum { M = 37, N = 83, K = 600 };
    struct err e;
    if (gemm_use("avx512", &e) < 0 || gemm_use("avx2", &e) < 0)
        t_skip("this processor lacks one of avx512, avx2");
    real *A = filled(M * K), *B = filled(N * K), *C = filled(M * N), *D = filled(M * N);
    use("avx512");
    gemm(0, 1, M, N, K, (real)0.3, A, K, B, K, 0, C, N);
    use("avx2");
    gemm(0, 1, M, N, K, (real)0.3, A, K, B, K, 0, D, N);
    t_true(memcmp(C, D, M * N * sizeof *C) == 0);
    free(A), free(B), free(C), free(D);
}

static void row_near(const char *name)
{
    enum { C = 333, O = 129 };
    real *x = filled(C), *w = filled(C * O), *y = filled(O), *z = filled(O);
    (void)name;
    gemm(0, 1, 1, O, C, 1, x, C, w, C, 0, y, O);
    gemm_row(z, x, w, C, O);
    for (int o = 0; o < O; o++)
        t_near(z[o], y[o], 3e-5);
    free(x), free(w), free(y), free(z);
}

T(one_row_at_memory_speed_is_near_the_product)
{
    each_provider(row_near);
}

T(an_unknown_provider_is_an_error)
{
    struct err e;
    const struct gemm_provider *was = gemm_provider();
    t_fails(gemm_use("abacus", &e), &e, DS_EUSAGE, "abacus");
    t_true(gemm_provider() == was);
}
