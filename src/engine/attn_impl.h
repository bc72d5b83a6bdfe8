/* Attention: what its source files share.  Private to the engine.  MATH.md 10.
 *
 * The visible list of a segment is its enabled keys in order; places count from its begin.  It is
 * cut at multiples of ATTN_CUT.  For each cut a row (a query in a head) gets the largest score, the
 * sum of exponentials and the weighted sum of values, always by the same chain of operations, and
 * joins the cuts in ascending order. */
#ifndef DS_ENGINE_ATTN_IMPL_H
#define DS_ENGINE_ATTN_IMPL_H

#include <stddef.h>
#include <stdint.h>

#include "engine/gemm.h"
#include "engine/ops.h"
#include "engine/vmath.h"

enum {
    ATTN_CUT = GEMM_CUT, /* keys per cut */
    ATTN_BLOCK = 64,     /* queries per block */
    ATTN_TASKS = 64,     /* fewer (segment, kv head) cells are split into smaller tasks */
    ATTN_FEW = 32        /* up to this many rows per cell need no packing */
};

/* Rows of D as stored: row j begins at (row ? row[j] : j) * ld, as real or bfloat16. */
struct attn_rows {
    const real *p;
    const uint16_t *p16; /* bfloat16 if not NULL */
    ptrdiff_t ld;
    const int32_t *row;
};

/* Inner loops.  All give the bits of attn_plain where that is compiled with fused multiply-adds.
 * Rows of scores and weights begin at a multiple of V_LANES of the visible list and are padded to
 * the next multiple after n or width.  q is (R, ldq), zero after D, ldq a multiple of
 * ATTN_Q_STEP. */
enum { ATTN_Q_STEP = 32 };
struct attn_kernels {
    int (*available)(void);
    /* s (R, lds) = scale * q x^T over n rows of x; columns after n are undefined. */
    void (*dots)(real *s, int lds, const real *q, int ldq, int R, const struct attn_rows *x, int n,
                 int D, real scale);
    /* y (R, D) += s x, one chain over the n rows of x */
    void (*mix)(real *y, const real *s, int lds, int R, const struct attn_rows *x, int n, int D);
    /* s[from, to) becomes exp(s - *top), the rest up to width 0; *top is the maximum.  Returns the
     * sum. */
    real (*softmax)(real *s, int from, int to, int width, real *top);
    /* Within [from, to) s becomes p = exp(s - lse) and ds p * (ds - delta); both 0 elsewhere. */
    void (*grad)(real *s, real *ds, int from, int to, int width, real lse, real delta);
};
#if defined(__x86_64__) && REAL_BITS == 32
#define ATTN_X86 1
extern const struct attn_kernels attn_avx512, attn_avx2;
#endif
extern const struct attn_kernels attn_plain;
const struct attn_kernels *attn_kernels(void); /* the fastest available */

enum attn_side { ATTN_KT, ATTN_V, ATTN_VT, ATTN_K, ATTN_SIDES }; /* op(B) of a GEMM over a cut */

/* Keys and values of one cut of a visible list, as GEMM operands. */
struct attn_cut {
    int n;
    struct operand b[ATTN_SIDES];
    struct packed packed[ATTN_SIDES];
};

struct attn_job {
    const struct attn *a;
    real *o, *lse_out, *dq, *dk, *dv;
    const real *q, *k, *v, *dout, *o_in, *lse;
    real scale;
    enum gemm_format format;
    const struct attn_kernels *kernels;
    const int32_t *before,
        *visible;   /* enabled keys before key j, and their indices; NULL: all are enabled */
    int most;       /* maximum queries per segment */
    int chunks;     /* tasks per cell */
    unsigned sides; /* 1 << attn_side: operands needed */
    size_t cut_bytes, side_bytes[ATTN_SIDES];
    int cuts;   /* maximum cuts per cell */
    char *made; /* packed cuts of all cells; NULL: every task packs its own */
    real *part; /* partial results */
};

/* One segment and kv head. */
struct attn_cell {
    int seg, kv;
    int q0, q1;     /* its queries */
    int first, end; /* its keys */
    int from, to;   /* places of the visible list that its queries read */
};

/* Checks a job and fills in what its shape implies; returns 0 if there is nothing to do. */
int attn_begin(struct attn_job *job);
struct attn_cell attn_cell_of(const struct attn_job *job, int cell);
/* Number of visible keys of the cell before key j; any j is valid. */
int attn_place(const struct attn_job *job, const struct attn_cell *c, int j);
/* Index in the list of keys of the key at a place. */
int attn_key_at(const struct attn_job *job, const struct attn_cell *c, int place);
/* End of a block of queries that begins at q0, at most q1.  Fewer when the first query sees less
 * than a cut from `place` on, as everything between its range and the last one's is wasted work. */
int attn_block_rows(const struct attn_job *job, const struct attn_cell *c, int q0, int q1,
                    int place);
/* The query's own keys, [*from, *to): those of them that attn_is_own confirms are added to what its
 * range gives. */
void attn_own_keys(const struct attn *a, int i, int *from, int *to);
int attn_is_own(const struct attn *a, int i, int j);
/* Rows of keys (values) starting at a place. */
struct attn_rows attn_rows_at(const struct attn_job *job, const struct attn_cell *c, int place,
                              int values);
/* One key (value) as real; buffer holds D. */
const real *attn_row(const struct attn_job *job, int seg, int key, int kv, int values,
                     real *buffer);

/* Cuts for a job with sides: the total size, then each cut.  Shared ones are packed for all cells
 * at once. */
void attn_cuts_size(struct attn_job *job);
void attn_cuts_share(struct attn_job *job);
const struct attn_cut *attn_cut_make(const struct attn_job *job, const struct attn_cell *c, int cut,
                                     char *memory);
const struct attn_cut *attn_cut_shared(const struct attn_job *job, int cell, int cut);
/* C (M,N) = alpha * a op(B) (+ C), op(B) rows 0.. K and columns n0.. of a cut's side; inside a
 * task. */
void attn_product(const struct attn_job *job, const struct attn_cut *cut, enum attn_side side,
                  struct gemm_job j, int n0);

/* Softmax state of a row: sums are relative to the largest score. */
struct attn_sum {
    real top, sum;
};
/* Merges another cut into a row.  y (D) is relative to `sum`, part to `other`. */
void attn_join(struct attn_sum *sum, real *y, struct attn_sum other, const real *part, int D);
/* Soft cap of n scores in place; nothing without one. */
void attn_cap(const struct attn_job *job, real *s, int n);
/* Finishes a row: its own key, the division, lse. */
void attn_finish(const struct attn_job *job, int seg, int i, int head, struct attn_sum sum);

static inline int attn_is_narrow(const struct attn *a)
{
    return a->cache && a->cache->k16;
}

static inline size_t attn_at(const struct attn_job *job, int i, int head)
{
    return ((size_t)i * (size_t)job->a->H + (size_t)head) * (size_t)job->a->D;
}

/* The forward pass for few queries. */
void attn_few(struct attn_job *job);

#endif
