/* bf16 matrix multiplication on a tile unit (eight tiles of 16 rows x 64 bytes), written once and
 * compiled for AMX and for a software model of it.  The including file defines:
 *   KERNEL                target attribute of every function
 *   TILE_CONFIG(config)   configures the unit for this thread    TILE_RELEASE()  releases it
 *   TILE_ZERO(t)  TILE_LOAD(t, p)  TILE_STORE(t, p, stride)      t is 0 to 7; loads have stride 64
 *   TILE_DP(c, a, b)      c += a b: c of 16 x 16 floats, a of 16 x 16 pairs of bfloat16, b likewise with rows of pairs
 *   PREFETCH(p)           into L2; any address is allowed
 *   pack_tile(tile, x, along, turn, first, count, k, K)   one tile of bfloat16, 1 KiB; see pack_operand
 *   row_out(c, sum, add, cols, alpha)   c[0, cols) = alpha * sum + add, rounded once; add may be NULL, cols <= 32
 * and PROVIDER, NAME, AVAILABLE.
 *
 * Both operands are in panels of 32 rows (columns of B): for each 32 inner indices two adjacent
 * tiles of 1 KiB, so that a step of the inner loop reads 2 KiB of each, in order.  Four sums of 16
 * x 16 (2 x 2 tiles) use every loaded tile twice; four loads for four multiplications ran at the
 * unit's peak from L1.  A cut of 256 inner indices makes panels of 16 KiB: one of A and one of B
 * fit with the sums in an L1 of 48 KiB.  Such a loop reached 84 % of the peak with 256, 74 % with
 * 128 and 52-65 % from 512 on.
 *
 * Every element of C is one chain over k in ascending order from zero in each cut, whatever its
 * place: a row does not depend on the other rows of the call, rows beyond M and inner indices
 * beyond K being zeros. */
#ifndef DS_ENGINE_KERNELS_GEMM_AMX_TMPL_H
#define DS_ENGINE_KERNELS_GEMM_AMX_TMPL_H
#ifdef KERNEL

#include <stdatomic.h>
#include <stdint.h>

#include "base/cpu.h"
#include "engine/gemm_impl.h"
#include "engine/scratch.h"

enum {
    SIDE = 16, /* rows per tile */
    TILE = 1024,
    PANEL = 2 * SIDE,
    DEPTH = 32,  /* inner indices per tile */
    ROWS = 2048, /* rows of a packed block of A: 1 MiB, half of L2 */
    COLS = 1024, /* columns of a block of B packed here: 512 KiB */
    SUMS = PANEL * PANEL,
    STREAM = 4096 /* prefetch distance of a stream: 8 KiB was slower */
};

static inline int steps_of(int K)
{
    return (K + DEPTH - 1) / DEPTH;
}

static size_t panel_bytes(int K)
{
    return (size_t)steps_of(K) * 2 * TILE;
}

/* `count` rows (columns of B) from `first` on, inner indices k.. k + K.  along: the stored rows run
 * along the inner index; turn: a row of the tile is a pair of inner indices (B), else a row of the
 * operand (A). */
KERNEL static void pack_operand(char *panel, const struct operand *x, int along, int turn,
                                int first, int count, int k, int K)
{
    for (int i = 0; i < K; i += DEPTH)
        for (int half = 0; half < PANEL; half += SIDE, panel += TILE) {
            int some = count - half < SIDE ? count - half : SIDE;
            pack_tile(panel, x, along, turn, some > 0 ? first + half : first, some > 0 ? some : 0,
                      k + i, K - i < DEPTH ? K - i : DEPTH);
        }
}

KERNEL static void pack_panel(void *panel, const struct operand *b, int n, int cols, int k, int K)
{
    pack_operand(panel, b, b->trans, 1, n, cols, k, K);
}

/* Sums of 32 x 32 not yet stored to C: the remaining rows, and how many to store at a time. */
struct block {
    const float *sum;
    float *C;
    const float *add;
    int ldc, add_ld, rows, cols, share;
    float alpha;
};

/* Stores their next rows.  Not inlined: the inner loop needs the registers. */
KERNEL static __attribute__((noinline)) void block_out(struct block *b)
{
    struct block x = *b; /* C might alias *b */
    int rows = x.rows < x.share ? x.rows : x.share;
    for (int i = 0; i < rows; i++, x.sum += PANEL, x.C += x.ldc) {
        row_out(x.C, x.sum, x.add, x.cols, x.alpha);
        if (x.add)
            x.add += x.add_ld;
    }
    x.rows -= rows;
    *b = x;
}

/* What the inner loop prefetches. */
struct ahead {
    const char *at;
    int lines; /* 64-byte lines per step */
};

/* Sums of a panel of A times a panel of B.  `high`: 32 rows, else 16; a constant in each call.
 * Stores the rows of the previous block to C between tile multiplications, when the vector units
 * are idle. */
KERNEL static inline __attribute__((always_inline)) void
panel_times_panel(const int high, const char *a, const char *b, int steps, float *sum,
                  struct ahead next, struct block *before)
{
    const char *end = a + (size_t)steps * 2 * TILE;
    before->share = task_count(before->rows, steps);
    TILE_ZERO(0);
    TILE_ZERO(1);
    if (high) {
        TILE_ZERO(2);
        TILE_ZERO(3);
    }
    for (; a < end; a += 2 * TILE, b += 2 * TILE) {
        TILE_LOAD(4, a);
        TILE_LOAD(6, b);
        TILE_DP(0, 4, 6);
        TILE_LOAD(7, b + TILE);
        TILE_DP(1, 4, 7);
        if (high) {
            TILE_LOAD(5, a + TILE);
            TILE_DP(2, 5, 6);
            TILE_DP(3, 5, 7);
        }
        for (int i = 0; i < next.lines; i++, next.at += 64)
            PREFETCH(next.at);
        if (before->rows)
            block_out(before);
    }
    TILE_STORE(0, sum, sizeof *sum * PANEL);
    TILE_STORE(1, sum + SIDE, sizeof *sum * PANEL);
    if (high) {
        TILE_STORE(2, sum + SIDE * PANEL, sizeof *sum * PANEL);
        TILE_STORE(3, sum + SIDE * PANEL + SIDE, sizeof *sum * PANEL);
    }
}

KERNEL static __attribute__((noinline)) void
rows32(const char *a, const char *b, int steps, float *sum, struct ahead next, struct block *before)
{
    panel_times_panel(1, a, b, steps, sum, next, before);
}

KERNEL static __attribute__((noinline)) void
rows16(const char *a, const char *b, int steps, float *sum, struct ahead next, struct block *before)
{
    panel_times_panel(0, a, b, steps, sum, next, before);
}

/* A block of A and a block of columns in one cut of k, and their destination. */
struct piece {
    const char *a, *b;
    int M, N, steps;
    size_t stride; /* of B's panels: those of a packed cut may be longer than `steps` */
    struct block to;
    float *sum[2]; /* the current sums, the previous ones */
};

/* With many rows: prefetches the next panel of B, spread over the panels of A, as each panel of B
 * is used by all of them from L1.  With few, B is read once and memory bandwidth is the limit: a
 * stream. */
static inline struct ahead ahead_of(const struct piece *p, const char *b, int m, int last)
{
    int panels = task_count(p->M, PANEL), whole = 2 * TILE / 64, lines = task_count(whole, panels),
        done = m / PANEL * lines;
    if (panels == 1)
        return (struct ahead){(const char *)((uintptr_t)b + STREAM), lines};
    if (last || done >= whole)
        return (struct ahead){b, 0};
    return (struct ahead){b + p->stride + (size_t)(done * p->steps) * 64, lines};
}

/* `before`: the block still to be stored; on return the last one of this piece. */
KERNEL static void piece_run(struct piece *p, struct block *before)
{
    const char *b = p->b;
    for (int n = 0; n < p->N; n += PANEL, b += p->stride) {
        const char *a = p->a;
        for (int m = 0; m < p->M; m += PANEL, a += (size_t)p->steps * 2 * TILE) {
            struct ahead next = ahead_of(p, b, m, n + PANEL >= p->N);
            float *sum = p->sum[0];
            if (p->M - m > SIDE)
                rows32(a, b, p->steps, sum, next, before);
            else
                rows16(a, b, p->steps, sum, next, before);
            p->sum[0] = p->sum[1];
            p->sum[1] = sum;
            *before = p->to;
            before->sum = sum;
            before->C += (ptrdiff_t)m * before->ldc + n;
            before->add = before->add ? before->add + (ptrdiff_t)m * before->add_ld + n : NULL;
            before->rows = p->M - m < PANEL ? p->M - m : PANEL;
            before->cols = p->N - n < PANEL ? p->N - n : PANEL;
        }
    }
}

/* One cut of k for N columns from n on, whose panels are at p->b. */
KERNEL static void cut_run(const struct gemm_tile *t, struct piece *p, char *pa, int n, int k,
                           int K, struct block *before)
{
    const float *add = k > 0 ? t->C : t->add;
    int add_ld = k > 0 ? t->ldc : t->add_ld;
    for (int m = 0; m < t->M; m += ROWS) {
        p->a = pa;
        p->M = t->M - m < ROWS ? t->M - m : ROWS;
        p->steps = steps_of(K);
        p->to = (struct block){.C = t->C + (ptrdiff_t)m * t->ldc + n,
                               .add = add ? add + (ptrdiff_t)m * add_ld + n : NULL,
                               .ldc = t->ldc,
                               .add_ld = add_ld,
                               .alpha = t->alpha};
        for (int i = 0; i < p->M; i += PANEL)
            pack_operand(pa + (size_t)(i / PANEL) * panel_bytes(K), &t->a, !t->a.trans, 0, m + i,
                         p->M - i < PANEL ? p->M - i : PANEL, k, K);
        atomic_signal_fence(memory_order_seq_cst); /* to the compiler a tile load reads nothing */
        piece_run(p, before);
    }
}

/* Packs panels of op(B) for this tile alone. */
KERNEL static const char *pack_here(const struct gemm_tile *t, int n, int N, int k, int K)
{
    char *pb = scratch_get(SCRATCH_PACK_B, panel_bytes(GEMM_KC) * (size_t)task_count(N, PANEL), 1);
    for (int i = 0; i < N; i += PANEL)
        pack_panel(pb + (size_t)(i / PANEL) * panel_bytes(K), &t->b, n + i,
                   N - i < PANEL ? N - i : PANEL, k, K);
    return pb;
}

/* Each call configures and releases the tiles: what else this thread does is not known here, and a
 * thread that keeps them has 8 KiB more state saved at every switch.  Both are one instruction,
 * next to the packing of a call. */
KERNEL static void tile(const struct gemm_tile *t)
{
    const struct packed *b = t->packed;
    int rows = t->M < ROWS ? t->M : ROWS, block = b ? t->N : COLS;
    size_t size = panel_bytes(GEMM_KC) * (size_t)task_count(rows, PANEL);
    char *pa = scratch_get(SCRATCH_PACK_A, size + 2 * SUMS * sizeof(float), 1);
    float *sum = (float *)(void *)(pa + size);
    struct piece p = {.sum = {sum, sum + SUMS}};
    struct block before = {.rows = 0};
    TILE_CONFIG(&tile_config);
    for (int n = 0; n < t->N; n += block)
        for (int k = 0; k < t->K; k += GEMM_KC) {
            int K = t->K - k < GEMM_KC ? t->K - k : GEMM_KC, whole = K;
            p.N = t->N - n < block ? t->N - n : block;
            if (b) {
                int left = b->K - t->k0 - k;
                whole = left < GEMM_KC ? left : GEMM_KC;
                p.b = (const char *)b->data + packed_at(b, t->k0 + k, t->n0 + n);
            } else {
                p.b = pack_here(t, n, p.N, k, K);
            }
            p.stride = panel_bytes(whole);
            cut_run(t, &p, pa, n, k, K, &before);
        }
    before.share = PANEL;
    block_out(&before);
    TILE_RELEASE();
}

static int available(void)
{
    return AVAILABLE;
}

const struct gemm_provider PROVIDER = {.name = NAME,
                                       .format = GEMM_BF16,
                                       .available = available,
                                       .tile = tile,
                                       .kc = GEMM_KC,
                                       .panel_cols = PANEL,
                                       .panel_bytes = panel_bytes,
                                       .pack = pack_panel};

#endif
#endif
