/* Matrix multiplication: every provider against a plain double sum, and the guarantees about rows,
 * tiles, packed matrices and gathered rows. */
#include "base/pool.h"
#include "engine/bf16.h"
#include "engine/gemm_impl.h"
#include "engine/kernels/pack_bf16.h"
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

/* NULL: not in this build. */
static const struct gemm_provider *provider(const char *name)
{
    const struct gemm_provider *const *all = gemm_providers();
    while (*all && strcmp(gemm_name(*all), name) != 0)
        all++;
    return *all;
}

static int has(const char *name)
{
    return provider(name) && gemm_available(provider(name));
}

/* Calls fn for every provider that this CPU supports. */
static void each_provider(void (*fn)(const char *name, enum gemm_format format))
{
    for (int i = 0; gemm_providers()[i]; i++) {
        const struct gemm_provider *p = gemm_providers()[i];
        if (!gemm_available(p))
            continue;
        use(gemm_name(p));
        fn(gemm_name(p), gemm_format_of(p));
    }
}

/* blas chooses its kernels by shape and guarantees nothing about rows (gemm.h). */
static int keeps_rows(const char *name)
{
    return strcmp(name, "blas") != 0;
}

static int is_plain(const char *name)
{
    return strncmp(name, "ref", 3) == 0 || strstr(name, "-soft") != NULL;
}

/* One multiplication and its operands; leading dimensions are larger than needed. */
struct scene {
    struct gemm_job j;
    real *A, *B, *C, *was, *bias;
    int32_t *row_a, *row_b;
    void *memory;
    struct packed packed;
    size_t size;
};

enum { WITH_ROWS_A = 1, WITH_ROWS_B = 2, WITH_BIAS = 4, WITH_PACKED = 8 };

/* Every second stored row, from the second on. */
static int32_t *odd_rows(int n)
{
    int32_t *row = calloc((size_t)n + 1, sizeof *row);
    for (int i = 0; i < n; i++)
        row[i] = 2 * i + 1;
    return row;
}

static struct scene scene_new(enum gemm_format format, int ta, int tb, int M, int N, int K,
                              real beta, int with)
{
    int lda = (ta ? M : K) + 3, ldb = (tb ? K : N) + 5, ldc = N + 2;
    size_t na = (size_t)(ta ? K : M), nb = (size_t)(tb ? N : K);
    struct scene s = {.size = (size_t)M * (size_t)ldc};
    s.A = filled((2 * na + 1) * (size_t)lda);
    s.B = filled((2 * nb + 1) * (size_t)ldb);
    s.C = filled(s.size);
    s.was = filled(s.size);
    s.bias = filled((size_t)N);
    s.row_a = odd_rows((int)na);
    s.row_b = odd_rows((int)nb);
    memcpy(s.was, s.C, s.size * sizeof *s.C);
    s.j = (struct gemm_job){.format = format,
                            .M = M,
                            .N = N,
                            .K = K,
                            .alpha = (real)0.5,
                            .beta = beta,
                            .a = {s.A, lda, ta, with & WITH_ROWS_A ? s.row_a : NULL},
                            .b = {s.B, ldb, tb, with & WITH_ROWS_B ? s.row_b : NULL},
                            .C = s.C,
                            .ldc = ldc,
                            .bias = with & WITH_BIAS ? s.bias : NULL};
    if (beta == 0 && M > 0 && N > 0)
        s.C[0] = NAN; /* must not be read */
    return s;
}

static void scene_pack(struct scene *s)
{
    size_t bytes = gemm_packed_bytes(s->j.format, s->j.K, s->j.N);
    s->memory = aligned_alloc(64, (bytes + 127) / 64 * 64);
    gemm_pack(&s->packed, s->memory, s->j.format, &s->j.b, s->j.K, s->j.N);
    s->j.packed = &s->packed;
}

static void scene_free(struct scene *s)
{
    free(s->A), free(s->B), free(s->C), free(s->was), free(s->bias);
    free(s->row_a), free(s->row_b), free(s->memory);
}

static double element(const struct operand *x, int i, int j, enum gemm_format format)
{
    real v = x->p[(ptrdiff_t)(x->row ? x->row[i] : i) * x->ld + j];
    return (double)(format == GEMM_BF16 ? (real)float_of_bf16(bf16_of((float)v)) : v);
}

/* Memory between the rows must not change. */
static void check(const struct scene *s, const char *name, int with)
{
    const struct gemm_job *j = &s->j;
    int between = 1;
    for (int m = 0; m < j->M; m++)
        for (int n = 0; n < j->ldc; n++) {
            double sum = 0, size = 1, have = (double)s->C[m * j->ldc + n];
            if (n >= j->N) {
                between &= s->C[m * j->ldc + n] == s->was[m * j->ldc + n];
                continue;
            }
            for (int k = 0; k < j->K; k++) {
                double term = (j->a.trans ? element(&j->a, k, m, j->format)
                                          : element(&j->a, m, k, j->format)) *
                              (j->b.trans ? element(&j->b, n, k, j->format)
                                          : element(&j->b, k, n, j->format));
                sum += term;
                size += fabs(term);
            }
            sum = 0.5 * sum + (j->beta != 0 ? (double)s->was[m * j->ldc + n] : 0) +
                  (with & WITH_BIAS ? (double)s->bias[n] : 0);
            if (fabs(have - sum) > 3e-7 * size ||
                isnan(have)) /* each assertion writes, so check failures only */
                t_truef(0, "%s ta %d tb %d %d x %d x %d beta %g with %d: C[%d,%d] = %g, want %g",
                        name, j->a.trans, j->b.trans, j->M, j->N, j->K, (double)j->beta, with, m, n,
                        have, sum);
        }
    t_truef(between, "%s: something between the rows changed", name);
}

static void shapes(const char *name, enum gemm_format format)
{
    static const int dims[][3] = {{1, 1, 1},    {1, 17, 5},    {2, 96, 32},    {3, 33, 300},
                                  {13, 15, 16}, {14, 32, 8},   {15, 31, 257},  {29, 70, 9},
                                  {70, 8, 64},  {64, 256, 32}, {170, 1030, 3}, {5, 7, 0},
                                  {0, 7, 5},    {7, 0, 5},     {300, 40, 70}};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (int mode = is_plain(name) ? (int)i % 2 : 0; mode < 8; mode += 1 + is_plain(name)) {
            int with = (int)(i * 7 + (size_t)mode * 5) % 16, M = dims[i][0], N = dims[i][1];
            struct scene s = scene_new(format, mode & 1, mode >> 1 & 1, M, N, dims[i][2],
                                       (real)(mode >> 2), with);
            if (with & WITH_PACKED && dims[i][2] > 0)
                scene_pack(&s);
            gemm_run(&s.j);
            check(&s, name, with);
            scene_free(&s);
        }
}

T(every_provider_agrees_with_a_double_sum)
{
    each_provider(shapes);
}

/* Rows begin.. begin + M, computed alone, against the same rows of the whole. */
static void rows_alone(const char *name, enum gemm_format format)
{
    enum { ALL = 70 };
    static const int Ns[] = {1, 8, 32, 96, 344, 2048}, Ks[] = {8, 32, 33, 96, 344, 1376};
    if (!keeps_rows(name))
        return;
    for (int i = 0; i < 36; i++) {
        int N = Ns[i / 6], K = Ks[i % 6], step = is_plain(name) || N * K > 40000 ? 11 : 1;
        if ((size_t)N * (size_t)K > (is_plain(name) ? 40000U : 400000U))
            continue;
        for (int tb = 0; tb < 2; tb++) {
            struct scene s = scene_new(format, 0, tb, ALL, N, K, 0, 0);
            real *D = filled((size_t)ALL * (size_t)s.j.ldc);
            gemm_run(&s.j);
            for (int M = 1; M < ALL; M += step) {
                int at = M * 13 % (ALL - M + 1), same = 1;
                struct gemm_job j = s.j;
                j.M = M;
                j.a.p += (ptrdiff_t)at * j.a.ld;
                j.C = D;
                gemm_run(&j);
                for (int m = 0; m < M; m++)
                    same &= memcmp(s.C + (ptrdiff_t)(at + m) * j.ldc, D + (ptrdiff_t)m * j.ldc,
                                   (size_t)N * sizeof *D) == 0;
                t_truef(same, "%s: %d rows from %d of %d x %d differ from the same rows of %d",
                        name, M, at, N, K, ALL);
            }
            free(D);
            scene_free(&s);
        }
    }
}

T(a_row_does_not_depend_on_the_other_rows)
{
    each_provider(rows_alone);
}

/* A packed matrix and gathered rows against the plain operands, to the last bit. */
static void packed_and_gathered(const char *name, enum gemm_format format)
{
    enum { M = 45, N = 197, K = 523 };
    for (int tb = 0; tb < 2; tb++) {
        struct scene s = scene_new(format, 0, tb, M, N, K, 0, WITH_ROWS_A);
        real *A = filled((size_t)M * (size_t)s.j.a.ld), *D = filled(s.size);
        for (int m = 0; m < M; m++)
            memcpy(A + m * s.j.a.ld, s.A + s.row_a[m] * s.j.a.ld, (size_t)s.j.a.ld * sizeof *A);
        gemm_run(&s.j);
        memcpy(D, s.C, s.size * sizeof *D);
        s.j.a = (struct operand){A, s.j.a.ld, 0, NULL};
        gemm_run(&s.j);
        t_truef(memcmp(s.C, D, s.size * sizeof *D) == 0, "%s: gathered rows differ", name);
        scene_pack(&s);
        s.C[1] = 77;
        gemm_run(&s.j);
        t_truef(memcmp(s.C, D, s.size * sizeof *D) == 0, "%s: the packed product differs", name);
        free(A), free(D);
        scene_free(&s);
    }
}

T(packed_and_gathered_operands_give_the_same_bits)
{
    each_provider(packed_and_gathered);
}

/* Columns n0.. and inner indices k0.. of a packed matrix, ending within a panel and within a
 * cut. */
static void parts(const char *name, enum gemm_format format)
{
    enum { M = 9, N = 150, K = 700 };
    static const int part[][4] = {
        {0, 0, 150, 700}, {512, 32, 70, 100}, {512, 96, 54, 188}, {0, 128, 22, 300}};
    for (int i = 0; i < 4; i++) {
        int k0 = part[i][0], n0 = part[i][1];
        struct scene s = scene_new(format, 0, 1, M, N, K, 1, WITH_BIAS);
        if (gemm_packed_bytes(format, K, N) == 0)
            t_skip("%s does not pack", name);
        scene_pack(&s);
        struct gemm_job j = s.j;
        j.N = part[i][2];
        j.K = part[i][3];
        gemm_run_inline(&j, k0, n0);
        s.j.N = j.N;
        s.j.K = j.K;
        s.j.b.p += (ptrdiff_t)n0 * s.j.b.ld + k0;
        check(&s, name, WITH_BIAS);
        scene_free(&s);
    }
}

T(part_of_a_packed_matrix_gives_that_part_of_the_result)
{
    for (int i = 0; gemm_providers()[i]; i++) {
        const struct gemm_provider *p = gemm_providers()[i];
        if (!gemm_available(p))
            continue;
        use(gemm_name(p));
        if (gemm_packed_bytes(gemm_format_of(p), 8, 8) > 0)
            parts(gemm_name(p), gemm_format_of(p));
    }
}

/* B^T again, from bfloat16 at an odd address. */
static void pack_halves(struct scene *s, int N, int K, int step)
{
    size_t row = (size_t)K * sizeof(uint16_t);
    unsigned char *half = malloc((size_t)N * row + 1);
    memset(s->memory, 0xff, gemm_size_of(&s->packed));
    for (int n = 0; n < N; n++)
        for (int k = 0; k < K; k++) {
            uint16_t h = bf16_of((float)s->B[(ptrdiff_t)n * s->j.b.ld + k]);
            memcpy(half + 1 + (size_t)n * row + (size_t)k * sizeof h, &h, sizeof h);
        }
    for (int n = 0; n < N; n += step)
        gemm_pack_bf16(&s->packed, half + 1 + (size_t)n * row, n, N - n < step ? N - n : step);
    free(half);
}

/* op(B) packed in parts, in its own format and as bfloat16, against packing all of it at once: rows
 * of w by 64 for forward (B = w^T), by GEMM_DEEP for backward (B = w). */
static void given_in_parts(const char *name, enum gemm_format format)
{
    enum { M = 5, N = 150, K = 1100 };
    for (int way = 0; way < 4; way++) {
        enum gemm_storage storage = way & 1 ? GEMM_NARROW : GEMM_WHOLE;
        int tb = way >> 1, step = tb ? 64 : GEMM_DEEP, rows = tb ? N : K;
        struct scene s = scene_new(format, 0, tb, M, N, K, 0, WITH_BIAS);
        real *D = filled(s.size);
        size_t bytes = gemm_storage_bytes(format, storage, K, N);
        for (size_t i = 0; format == GEMM_FP32 && i < (size_t)(2 * rows + 1) * (size_t)s.j.b.ld;
             i++)
            s.B[i] = (real)float_of_bf16(bf16_of((float)s.B[i]));
        gemm_run(&s.j);
        memcpy(D, s.C, s.size * sizeof *D);
        if (bytes > 0) {
            s.memory = aligned_alloc(64, (bytes + 127) / 64 * 64);
            gemm_pack_begin(&s.packed, s.memory, format, storage, K, N);
            for (int r = 0; r < rows; r += step) {
                struct operand part = {s.B + (ptrdiff_t)r * s.j.b.ld, s.j.b.ld, tb, NULL};
                int n = rows - r < step ? rows - r : step;
                gemm_pack_part(&s.packed, &part, tb ? 0 : r, tb ? K : n, tb ? r : 0, tb ? n : N);
            }
            s.j.packed = &s.packed;
            s.j.b.p = NULL;
            gemm_run(&s.j);
            t_truef(memcmp(s.C, D, s.size * sizeof *D) == 0, "%s: parts of B%s, %s", name,
                    tb ? "^T" : "", storage == GEMM_NARROW ? "narrow" : "whole");
            if (tb && gemm_takes_bf16(&s.packed)) {
                pack_halves(&s, N, K, step);
                gemm_run(&s.j);
                t_truef(memcmp(s.C, D, s.size * sizeof *D) == 0, "%s: from bfloat16", name);
            }
        }
        free(D);
        scene_free(&s);
    }
}

#ifdef __x86_64__
/* The width of AVX-512's panels too, on any processor. */
T(rows_of_bf16_become_columns_of_a_panel)
{
    enum { ROWS = 27, K = 45 };
    unsigned char row[ROWS * 2 * K];
    for (size_t i = 0; i < sizeof row; i++)
        row[i] = (unsigned char)(i * 7 + i / 251);
    for (int width = 16; width <= 32; width += 16) {
        uint16_t p[32 * K] = {0};
        int cols = width == 16 ? 11 : ROWS, same = 1;
        pack_bf16_rows(p, width, row, 2 * K, cols, K);
        for (int k = 0; k < K; k++)
            for (int n = 0; n < cols; n++)
                same &= memcmp(&p[k * width + n], row + (n * K + k) * 2, 2) == 0;
        t_truef(same, "%d columns", width);
    }
}
#endif

T(a_matrix_packed_in_parts_or_as_bf16_gives_the_same_bits)
{
    each_provider(given_in_parts);
    if (!has("avx2"))
        return; /* these providers store matrices narrow */
    use("avx2");
    use("avx2-round");
    for (enum gemm_format f = GEMM_FP32; f <= GEMM_BF16; f++)
        t_true(gemm_storage_bytes(f, GEMM_NARROW, 64, 64) * 2 ==
               gemm_storage_bytes(f, GEMM_WHOLE, 64, 64));
}

struct cover {
    int *count, N;
    real *C;
    int ldc;
};

static void count_tile(void *ctx, int m, int n, int rows, int cols)
{
    const struct cover *c = ctx;
    for (int i = m; i < m + rows; i++)
        for (int k = n; k < n + cols; k++) {
            c->count[i * c->N + k]++;
            c->C[i * c->ldc + k] *= 2;
        }
}

static void covers(const char *name, enum gemm_format format)
{
    static const int dims[][3] = {{1, 1, 1}, {33, 2100, 40}, {700, 70, 300}, {5, 3, 0}};
    for (size_t i = 0; i < 4; i++) {
        int M = dims[i][0], N = dims[i][1];
        struct scene s = scene_new(format, 0, 0, M, N, dims[i][2], 0, WITH_BIAS);
        int *count = calloc((size_t)M * (size_t)N, sizeof *count), once = 1;
        real *D = filled(s.size);
        struct cover c = {count, N, s.C, s.j.ldc};
        gemm_run(&s.j);
        memcpy(D, s.C, s.size * sizeof *D);
        s.j.after = count_tile;
        s.j.ctx = &c;
        gemm_run(&s.j);
        for (int k = 0; k < M * N; k++)
            once &= count[k] == 1 && s.C[k / N * s.j.ldc + k % N] == 2 * D[k / N * s.j.ldc + k % N];
        t_truef(once, "%s: tiles do not cover %d x %d once, or came too early", name, M, N);
        free(count), free(D);
        scene_free(&s);
    }
}

T(the_epilogue_sees_each_finished_element_once)
{
    each_provider(covers);
}

/* Two providers that must agree to the last bit. */
static void same_bits(const char *one, const char *two)
{
    enum { M = 37, N = 83, K = 600 };
    struct err e;
    if (gemm_use(one, &e) < 0 || gemm_use(two, &e) < 0)
        t_skip("this processor lacks one of the two");
    struct scene s = scene_new(strchr(one, '-') ? GEMM_BF16 : GEMM_FP32, 0, 1, M, N, K, 0, 0);
    real *D = filled(s.size);
    use(one);
    gemm_run(&s.j);
    memcpy(D, s.C, s.size * sizeof *D);
    use(two);
    gemm_run(&s.j);
    t_true(memcmp(s.C, D, s.size * sizeof *D) == 0);
    free(D);
    scene_free(&s);
}

T(vector_width_does_not_change_a_bit)
{
    same_bits("avx512", "avx2");
}

T(vector_width_does_not_change_a_bit_in_bf16)
{
    same_bits("avx512-round", "avx2-round");
}

/* Relative distance of two providers over odd edges and several cuts. */
static double distance(const char *one, const char *two)
{
    static const int dims[][3] = {{1, 40, 700}, {37, 83, 600}, {64, 64, 256}, {50, 1030, 31}};
    double most = 0;
    for (int i = 0; i < 16; i++) {
        const int *d = dims[i / 4];
        struct scene s = scene_new(GEMM_BF16, i & 1, i >> 1 & 1, d[0], d[1], d[2], 1, WITH_BIAS);
        double *x = calloc(s.size, sizeof *x), *y = calloc(s.size, sizeof *y);
        use(one);
        gemm_run(&s.j);
        for (size_t k = 0; k < s.size; k++)
            x[k] = (double)s.C[k];
        memcpy(s.C, s.was, s.size * sizeof *s.C);
        use(two);
        gemm_run(&s.j);
        for (size_t k = 0; k < s.size; k++)
            y[k] = (double)s.C[k];
        most = fmax(most, t_rel_l2(x, y, s.size));
        free(x), free(y);
        scene_free(&s);
    }
    return most;
}

T(the_tile_kernel_agrees_with_the_reference)
{
    t_near(distance("amx-soft", "ref-bf16"), 0, 1e-6);
}

T(hardware_tiles_agree_with_the_software_model)
{
    if (!has("amx"))
        t_skip("this processor has no AMX: the kernel ran on the software tiles only");
    t_near(distance("amx", "amx-soft"), 0, 1e-6);
}

/* In fp32 2^24 + 1 is 2^24: one chain over k would lose a 1.  The tile unit sums a - a and 1 + 1
 * separately. */
T(the_software_model_sums_the_halves_of_pairs_separately)
{
    real A[] = {16777216, 1, -16777216, 1}, B[] = {1, 1, 1, 1}, C = 0;
    struct gemm_job j = {.format = GEMM_BF16, .M = 1, .N = 1, .K = 4, .alpha = 1, .C = &C};
    j.a = (struct operand){A, 4, 0, NULL};
    j.b = (struct operand){B, 1, 0, NULL};
    j.ldc = 1;
    use("amx-soft");
    gemm_run(&j);
    t_true(C == 2);
    A[0] = A[2] = 0;
    A[1] = A[3] = (real)1e-39; /* denormal */
    B[1] = B[3] = (real)1e30;
    gemm_run(&j);
    t_true(C == 0);
    A[1] = A[3] = (real)1e-20; /* their product would be denormal */
    B[1] = B[3] = (real)1e-19;
    gemm_run(&j);
    t_true(C == 0);
}

/* Packing uses AVX-512 only, so it also runs on CPUs without tiles. */
T(packing_for_tiles_is_the_same_with_intrinsics_and_in_plain_c)
{
    enum { ROWS = 300, LD = 301 };
    static const int parts[][4] = {{0, 32, 0, 256}, {7, 32, 3, 77},  {5, 17, 1, 33},
                                   {40, 3, 200, 1}, {9, 16, 30, 32}, {0, 31, 64, 18}};
    if (!has("avx512bf16"))
        t_skip("this processor lacks AVX512-BF16");
    const struct gemm_provider *hard = provider("amx"), *soft = provider("amx-soft");
    static _Alignas(64) char one[16384], two[16384];
    int32_t *row = odd_rows(ROWS);
    real *x = filled((size_t)(2 * ROWS + 1) * LD);
    x[LD * 9 + 9] = (real)1e-39;
    x[LD * 11 + 8] = (real)3.4e38;
    for (int i = 0; i < 24; i++) {
        const int *p = parts[i % 6];
        struct operand b = {x, LD, i / 6 & 1, i / 12 ? row : NULL};
        size_t size = hard->panel_bytes(p[3]);
        t_true(size <= sizeof one && size == soft->panel_bytes(p[3]));
        memset(one, 77, sizeof one);
        memset(two, 78, sizeof two);
        hard->pack(one, &b, p[0], p[1], p[2], p[3]);
        soft->pack(two, &b, p[0], p[1], p[2], p[3]);
        t_truef(memcmp(one, two, size) == 0, "columns %d + %d, k %d + %d, trans %d", p[0], p[1],
                p[2], p[3], b.trans);
    }
    free(x), free(row);
}

T(the_software_model_is_used_by_name_only)
{
    const char *name = gemm_name(gemm_provider(GEMM_BF16));
    t_true(strstr(name, "-soft") == NULL);
    if (has("amx"))
        t_str(name, getenv("DEPTHSCOPE_GEMM") ? name : "amx");
}

static void hostile(const char *name, enum gemm_format format)
{
    enum { M = 20, N = 40, K = 50 };
    struct scene s = scene_new(format, 0, 1, M, N, K, 0, 0);
    s.A[3 * s.j.a.ld + 7] = NAN;
    s.A[11 * s.j.a.ld + 2] = INFINITY;
    s.B[5 * s.j.b.ld + 9] = NAN;
    gemm_run(&s.j);
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++) {
            real c = s.C[m * s.j.ldc + n];
            if (isnan(c) != (m == 3 || n == 5) || isfinite(c) == (m == 3 || m == 11 || n == 5))
                t_truef(0, "%s: C[%d,%d] = %g", name, m, n, (double)c);
        }
    scene_free(&s);
}

T(nan_and_infinity_stay_in_their_rows_and_columns)
{
    each_provider(hostile);
}

T(rounding_to_bfloat16_is_to_nearest_ties_to_even)
{
    t_true(bf16_of(1.0F) == 0x3f80 && bf16_of(-2.0F) == 0xc000);
    t_true(bf16_of(1.00390625F) == 0x3f80); /* 1 + 2^-8: halfway, to even below */
    t_true(bf16_of(1.01171875F) == 0x3f82); /* 1 + 3 * 2^-8: halfway, to even above */
    t_true(bf16_of(1.00390637F) == 0x3f81); /* just above halfway */
    t_true(bf16_of(3.4e38F) == 0x7f80);     /* rounds to infinity */
    t_true(isnan(float_of_bf16(bf16_of(NAN))));
    int same = 1;
    for (uint32_t b = 0; b < 0x7f80; b++)
        same &= bf16_of(float_of_bf16((uint16_t)b)) == b;
    t_true(same);
}

T(an_unknown_provider_is_an_error)
{
    struct err e;
    const struct gemm_provider *was = gemm_provider(GEMM_FP32);
    t_fails(gemm_use("abacus", &e), &e, DS_EUSAGE, "abacus");
    t_true(gemm_provider(GEMM_FP32) == was);
}
