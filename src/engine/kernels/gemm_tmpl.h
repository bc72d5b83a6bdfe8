/* Packed matrix multiplication, written once and compiled for each vector width and format.  The
 * including file defines:
 *   KERNEL       target attribute of every function
 *   VEC, W       vector of W floats         LANES, LANES_OF(n)  mask of the first n lanes, 0 <= n <= W
 *   ZERO LOAD STORE LOAD_PART STORE_PART SET1 MUL ADD       on VEC
 *   MR           maximum rows of a strip (a strip and two vectors of columns fill the registers)
 *   STRIPS       strips of a packed block of A, which is to stay in the L2 cache
 *   UNROLL_K, UNROLL_ROWS    pragmas of the two inner loops, or nothing
 *   DIRECT       most columns that are multiplied with a small A in place, as packing it would cost more;
 *                0 unless units are floats as they are stored
 *   PANEL_AHEAD  1: the next panel of B is prefetched while a block is multiplied with the current one
 *   STEP         inner indices that one 32-bit unit of a packed operand holds: 1 (a float) or 2 (two bfloat16)
 *   UNITS8(p)    eight units from 8 * STEP floats at p, as __m256
 *   UNIT(x, y)   one unit, as float; y is the second of two
 *   UNITS_PART(lanes, p, q)  a unit of each lane from the rows p and (STEP 2) q
 *   STEP_SUM(a, b, c)        c + the unit's products of a and b
 * and PROVIDER, NAME, FORMAT, AVAILABLE.  A provider that stores op(B) narrow defines BUNIT
 * uint16_t and LOADB(p), a VEC from W of them; one with such a companion defines NARROW as its
 * name.
 *
 * Every element of C is one chain over k in ascending order, cut at KC, whatever its place, so a
 * row depends neither on the other rows of the call nor on the vector width. */
#ifndef DS_ENGINE_KERNELS_GEMM_TMPL_H
#define DS_ENGINE_KERNELS_GEMM_TMPL_H
#ifdef KERNEL

#include <immintrin.h>

#include "base/cpu.h"
#include "engine/gemm_impl.h"
#include "engine/scratch.h"
#include "pack_bf16.h"

#ifdef BUNIT
#define HOLDS_NARROW 1
#else
#define BUNIT float
#define LOADB(p) LOAD(p)
#endif

enum { FEW = 4, AHEAD = 4096 /* bytes */ };
/* A cut has the same number of units in every format, so storing C costs the same share. */
enum { NR = 2 * W, MC = STRIPS * MR, NC = 1024, UNITS_MAX = GEMM_KC, KC = GEMM_KC * STEP };

static inline int units_of(int K)
{
    return (K + STEP - 1) / STEP;
}

/* Transposes eight rows of eight units. */
KERNEL static inline void transpose8(__m256 r[8])
{
    __m256 t[8], u[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

/* p[u * stride + i] = unit u of row i, inner indices k.. k + K, for eight rows of x from `first`;
 * rows from `rows` on repeat the last one.  Always writes eight at a time, so callers go from right
 * to left and later writes overwrite the excess. */
KERNEL static void pack_rows8(float *p, int stride, const struct operand *x, int first, int rows,
                              int k, int K)
{
    const float *row[8];
    for (int i = 0; i < 8; i++)
        row[i] = operand_row(x, first + (i < rows ? i : rows - 1)) + k;
    k = 0;
    for (; k + 8 * STEP <= K; k += 8 * STEP) {
        __m256 r[8];
        for (int i = 0; i < 8; i++)
            r[i] = UNITS8(row[i] + k);
        transpose8(r);
        for (int i = 0; i < 8; i++, p += stride)
            _mm256_storeu_ps(p, r[i]);
    }
    for (; k < K; k += STEP, p += stride)
        for (int i = 0; i < 8; i++)
            p[i] = UNIT(row[i][k], k + 1 < K ? row[i][k + 1] : 0);
}

/* p[u * stride + i] = unit u, inner indices k.. k + K, of columns [first, first + cols) of the
 * stored rows. */
KERNEL static inline void pack_cols(float *p, int stride, const struct operand *x, int first,
                                    int cols, int k, int K)
{
    static const float nothing[W];
    LANES part = LANES_OF(cols);
    for (int i = 0; i < K; i += STEP, p += stride) {
        const float *a = operand_row(x, k + i) + first;
        const float *b = STEP == 2 && i + 1 < K ? operand_row(x, k + i + 1) + first : nothing;
        STORE(p, UNITS_PART(part, a, b));
    }
}

/* A strip of op(A), rows from m on, as p[u * rows + i].  Needs W more floats of space after it. */
KERNEL static void pack_strip(float *p, const struct operand *a, int m, int rows, int k, int K)
{
    if (a->trans)
        pack_cols(p, rows, a, m, rows, k, K);
    else
        for (int i = (rows - 1) / 8 * 8; i >= 0; i -= 8)
            pack_rows8(p + i, rows, a, m + i, rows - i, k, K);
}

/* A panel of op(B), NR columns, as p[u * NR + n]; columns from `cols` on are computed but not
 * stored. */
KERNEL static void pack_floats(float *p, const struct operand *b, int n, int cols, int k, int K)
{
    if (b->trans) {
        for (int i = (cols - 1) / 8 * 8; i >= 0; i -= 8)
            pack_rows8(p + i, NR, b, n + i, cols - i, k, K);
        return;
    }
    pack_cols(p, NR, b, n, cols < W ? cols : W, k, K);
    pack_cols(p + W, NR, b, cols < W ? n : n + W, cols < W ? 0 : cols - W, k, K);
}

#ifdef HOLDS_NARROW
KERNEL static void pack_panel(void *panel, const struct operand *b, int n, int cols, int k, int K)
{
    float *p = scratch_get(SCRATCH_PACK_B, (size_t)UNITS_MAX * NR, sizeof *p);
    pack_floats(p, b, n, cols, k, K);
    bf16_from_reals(panel, p, (size_t)K * NR);
}

static void pack_bf16(void *panel, const unsigned char *rows, size_t step, int cols, int K)
{
    pack_bf16_rows(panel, NR, rows, step, cols, K);
}
#else
KERNEL static void pack_panel(void *panel, const struct operand *b, int n, int cols, int k, int K)
{
    pack_floats(panel, b, n, cols, k, K);
}
#endif

static size_t panel_bytes(int K)
{
    return (size_t)units_of(K) * NR * sizeof(BUNIT);
}

/* Destination of a strip times a panel: C = alpha * sum + add. */
struct target {
    float *C;
    const float *add;
    int ldc, add_ld, cols;
    float alpha;
};

KERNEL static inline void store_row(const struct target *t, float *c, const float *add, VEC x,
                                    VEC y)
{
    VEC alpha = SET1(t->alpha);
    x = MUL(x, alpha);
    y = MUL(y, alpha);
    if (t->cols == NR) {
        STORE(c, add ? ADD(x, LOAD(add)) : x);
        STORE(c + W, add ? ADD(y, LOAD(add + W)) : y);
        return;
    }
    LANES left = LANES_OF(t->cols < W ? t->cols : W),
          right = LANES_OF(t->cols < W ? 0 : t->cols - W);
    STORE_PART(left, c, add ? ADD(x, LOAD_PART(left, add)) : x);
    if (t->cols > W)
        STORE_PART(right, c + W, add ? ADD(y, LOAD_PART(right, add + W)) : y);
}

/* Unit u of row i of a strip is a[i * across + u * along].  rows is a constant in each call, so
 * that the sums are in registers. */
KERNEL static inline __attribute__((always_inline)) void
strip_times_panel(const int rows, const float *a, const ptrdiff_t across, const ptrdiff_t along,
                  const BUNIT *b, int units, const struct target *t)
{
    VEC x[MR], y[MR];
    UNROLL_ROWS
    for (int i = 0; i < rows; i++) { /* prefetch C, which is needed after the loop */
        const float *c = t->C + (size_t)i * (size_t)t->ldc;
        __builtin_prefetch(c, 1);
        __builtin_prefetch(c + NR / 2, 1);
        x[i] = y[i] = ZERO;
    }
    UNROLL_K
    for (int k = 0; k < units; k++, a += along, b += NR) {
        VEC b0 = LOADB(b), b1 = LOADB(b + W);
        if (rows <= FEW) /* a panel is then read once, so memory is the limit */
            for (int i = 0; i < NR; i += 64 / (int)sizeof(BUNIT))
                __builtin_prefetch(b + AHEAD / sizeof(BUNIT) + i);
        for (int i = 0; i < rows; i++) {
            VEC ai = SET1(a[i * across]);
            x[i] = STEP_SUM(ai, b0, x[i]);
            y[i] = STEP_SUM(ai, b1, y[i]);
        }
    }
    UNROLL_ROWS
    for (int i = 0; i < rows; i++)
        store_row(t, t->C + (size_t)i * (size_t)t->ldc,
                  t->add ? t->add + (size_t)i * (size_t)t->add_ld : NULL, x[i], y[i]);
}

KERNEL static void micro(int rows, const float *a, const BUNIT *b, int units,
                         const struct target *t)
{
    switch (rows) {
#define ROWS(n)                                                                                    \
    case n: strip_times_panel(n, a, 1, n, b, units, t); break;
        ROWS(1)
        ROWS(2)
        ROWS(3)
        ROWS(4)
        ROWS(5)
        ROWS(6)
#if MR > 6
        ROWS(7)
        ROWS(8) ROWS(9) ROWS(10) ROWS(11) ROWS(12) ROWS(13) ROWS(14)
#endif
#undef ROWS
            default : break;
    }
}

/* Places of a block's units: packed, or those of A itself, whose rows or columns are `ld` apart. */
enum place { PACKED, BY_ROWS, BY_COLUMNS };

#if DIRECT
KERNEL static void micro_in_place(int rows, const float *a, enum place place, int ld,
                                  const BUNIT *b, int units, const struct target *t)
{
    switch (place == BY_ROWS ? rows : MR + rows) {
#define ROWS(n)                                                                                    \
    case n: strip_times_panel(n, a, ld, 1, b, units, t); break;                                    \
    case MR + n: strip_times_panel(n, a, 1, ld, b, units, t); break;
        ROWS(1)
        ROWS(2)
        ROWS(3)
        ROWS(4)
        ROWS(5)
        ROWS(6)
#undef ROWS
    default: break;
    }
}
#endif

/* Strips of nearly equal height; the first `tall` have one more row. */
struct strips {
    int n, rows, tall;
};

static struct strips strips_of(int M)
{
    int n = task_count(M, MR);
    return (struct strips){n, M / n, M % n};
}

/* Prefetches the part of a panel that belongs to strip i, so that a panel has arrived in the L2
 * cache when the first strip needs it.  A few strips would wait for so many lines. */
static inline void prefetch_panel(const BUNIT *panel, size_t stride, const struct strips *s, int i)
{
    size_t part = stride * sizeof *panel / (size_t)s->n + 1;
    const char *at = (const char *)panel + (size_t)i * part;
    for (size_t k = 0; PANEL_AHEAD && s->n > FEW && k < part; k += 64)
        __builtin_prefetch(at + k, 0, 2);
}

/* Multiplies a block of A with panels, `stride` units apart. */
KERNEL static void block_times_panels(const struct strips *s, const float *a, enum place place,
                                      int ld, const BUNIT *b, size_t stride, int units, int N,
                                      struct target t)
{
    size_t step = (size_t)(place == PACKED ? units : place == BY_ROWS ? ld : 1);
    struct target first = t;
    for (int n = 0; n < N; n += NR, b += stride) {
        const float *strip = a;
        t.cols = N - n < NR ? N - n : NR;
        t.C = first.C + n;
        t.add = first.add ? first.add + n : NULL;
        for (int i = 0; i < s->n; i++) {
            int rows = s->rows + (i < s->tall);
#if DIRECT
            if (place != PACKED)
                micro_in_place(rows, strip, place, ld, b, units, &t);
#endif
            if (place == PACKED && n + NR < N)
                prefetch_panel(b + stride, stride, s, i);
            if (place == PACKED)
                micro(rows, strip, b, units, &t);
            strip += (size_t)rows * step;
            t.C += (size_t)rows * (size_t)t.ldc;
            t.add = t.add ? t.add + (size_t)rows * (size_t)t.add_ld : NULL;
        }
    }
}

KERNEL static void pack_block(float *p, const struct strips *s, const struct operand *a, int m,
                              int k, int K)
{
    for (int i = 0; i < s->n; i++) {
        int rows = s->rows + (i < s->tall);
        pack_strip(p, a, m, rows, k, K);
        p += (size_t)rows * (size_t)units_of(K);
        m += rows;
    }
}

/* Few columns and an A that stays in the L2 cache whatever its rows' distance: attention's. */
static inline int is_direct(const struct gemm_tile *t)
{
    enum { FLOATS = 64 * 256 };
    return t->N <= DIRECT && !t->a.row && t->a.ld <= FLOATS / (t->a.trans ? t->K : t->M);
}

/* One cut of k for a block of columns, whose panels are at b. */
KERNEL static void cut_times_panels(const struct gemm_tile *t, float *pa, const BUNIT *b, int n,
                                    int N, int k, int K, size_t stride)
{
    const float *add = k > 0 ? t->C : t->add;
    int add_ld = k > 0 ? t->ldc : t->add_ld, in_place = is_direct(t);
    for (int m = 0; m < t->M; m += MC) {
        struct strips s = strips_of(t->M - m < MC ? t->M - m : MC);
        struct target to = {t->C + (size_t)m * (size_t)t->ldc + n,
                            add ? add + (size_t)m * (size_t)add_ld + n : NULL,
                            t->ldc,
                            add_ld,
                            NR,
                            t->alpha};
        if (in_place) {
            const float *a = operand_at(t->a, t->a.trans ? k : m, t->a.trans ? m : k).p;
            block_times_panels(&s, a, t->a.trans ? BY_COLUMNS : BY_ROWS, t->a.ld, b, stride, K, N,
                               to);
            continue;
        }
        pack_block(pa, &s, &t->a, m, k, K);
        block_times_panels(&s, pa, PACKED, 0, b, stride, units_of(K), N, to);
    }
}

/* Packs panels of op(B) for this tile alone. */
KERNEL static const BUNIT *pack_here(const struct gemm_tile *t, int n, int N, int k, int K)
{
#ifdef HOLDS_NARROW
    bug_at(__FILE__, __LINE__, "%d x %d of %d x %d: a narrow matrix must be packed", K, N, k, n);
    return t->packed->data;
#else
    float *pb = scratch_get(SCRATCH_PACK_B, (size_t)UNITS_MAX * NC, sizeof *pb);
    for (int j = 0; j < N; j += NR)
        pack_panel(pb + (size_t)j * (size_t)units_of(K), &t->b, n + j, N - j < NR ? N - j : NR, k,
                   K);
    return pb;
#endif
}

KERNEL static void tile(const struct gemm_tile *t)
{
    float *pa = scratch_get(SCRATCH_PACK_A, (size_t)MC * UNITS_MAX + 2 * W, sizeof *pa);
    const struct packed *p = t->packed;
    for (int n = 0; n < t->N; n += NC)
        for (int k = 0; k < t->K; k += KC) {
            int nb = t->N - n < NC ? t->N - n : NC, kb = t->K - k < KC ? t->K - k : KC;
            int whole = p && p->K - t->k0 - k < KC ? p->K - t->k0 - k : KC;
            const BUNIT *b = p ? (const BUNIT *)(const void *)((const char *)p->data +
                                                               packed_at(p, t->k0 + k, t->n0 + n))
                               : pack_here(t, n, nb, k, kb);
            cut_times_panels(t, pa, b, n, nb, k, kb, panel_bytes(p ? whole : kb) / sizeof(BUNIT));
        }
}

static int available(void)
{
    return AVAILABLE;
}

const struct gemm_provider PROVIDER = {.name = NAME,
                                       .format = FORMAT,
                                       .available = available,
                                       .tile = tile,
                                       .kc = KC,
                                       .panel_cols = NR,
                                       .panel_bytes = panel_bytes,
#ifdef NARROW
                                       .narrow = &NARROW,
#endif
#ifdef HOLDS_NARROW
                                       .pack_bf16 = pack_bf16,
#endif
                                       .pack = pack_panel};

#endif
#endif
