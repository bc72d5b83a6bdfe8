/* Attention: what its files share.  Private to the engine.  MATH.md 10.
 *
 * The visible list of a segment is its keys that are on, in order; places count from its begin.  It is cut at multiples of
 * ATTN_CUT.  A row (a query in a head) gets from each cut the largest score, the sum of exponentials and the mix of
 * values, by one and the same chain of operations whoever computes it, and joins the cuts in ascending order. */
#ifndef DS_ENGINE_ATTN_IMPL_H
#define DS_ENGINE_ATTN_IMPL_H

#include <stddef.h>
#include <stdint.h>

#include "engine/gemm.h"
#include "engine/ops.h"
#include "engine/vmath.h"

enum {
    ATTN_CUT = GEMM_CUT, /* keys that are handled at once */
    ATTN_BLOCK = 64,     /* queries that are              */
    ATTN_TASKS = 64,     /* with fewer (segment, kv head) these are shared out in smaller tasks */
    ATTN_FEW = 32        /* rows of a segment and kv head that go without packing */
};

/* Rows of D as they are stored: row j begins at (row ? row[j] : j) * ld, in real or in bfloat16. */
struct attn_rows {
    const real *p;
    const uint16_t *p16; /* when not NULL */
    ptrdiff_t ld;
    const int32_t *row;
};

/* Inner loops.  All of them give the bits of attn_plain where that is compiled with fused multiply-adds.
 * Rows of scores and weights begin at a multiple of V_LANES of the visible list, and there is room up to the next
 * multiple behind n or width.  q is (R, ldq), zero behind D, ldq a multiple of ATTN_Q_STEP. */
enum { ATTN_Q_STEP = 32 };
struct attn_kernels {
    int (*available)(void);
    /* s (R, lds) = scale * q x^T over n rows of x; what lies behind column n is undefined. */
    void (*dots)(real *s, int lds, const real *q, int ldq, int R, const struct attn_rows *x, int n,
                 int D, real scale);
    /* y (R, D) += s x, one chain over the n rows of x */
    void (*mix)(real *y, const real *s, int lds, int R, const struct attn_rows *x, int n, int D);
    /* s[from, to) becomes exp(s - *top), the rest up to width 0; *top is the largest of them.  The sum. */
    real (*softmax)(real *s, int from, int to, int width, real *top);
    /* Within [from, to) s becomes p = exp(s - lse) and ds p * (ds - delta); both 0 elsewhere. */
    void (*grad)(real *s, real *ds, int from, int to, int width, real lse, real delta);
};
#if defined(__x86_64__) && REAL_BITS == 32
#define ATTN_X86 1
extern const struct attn_kernels attn_avx512, attn_avx2;
#endif
extern const struct attn_kernels attn_plain;
const struct attn_kernels *attn_kernels(void); /* the fastest that may run */

enum attn_side { ATTN_KT, ATTN_V, ATTN_VT, ATTN_K, ATTN_SIDES }; /* op(B) of a product over a cut */

/* Keys and values of one cut of a visible list, for products. */
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
        *visible;   /* keys that are on before key j, and which they are; NULL: all are */
    int most;       /* queries of a segment, at most */
    int chunks;     /* tasks that share a cell */
    unsigned sides; /* 1 << attn_side: what the products need */
    size_t cut_bytes, side_bytes[ATTN_SIDES];
    int cuts;   /* of a cell's visible list, at most */
    char *made; /* cuts of all cells; NULL: every task makes its own */
    real *part; /* partial results */
};

/* One segment and kv head. */
struct attn_cell {
    int seg, kv;
    int q0, q1;     /* its queries */
    int first, end; /* its keys    */
    int from, to;   /* places of the visible list that its queries look at */
};

/* Checks a job and fills in what follows from its shape; 0: there is nothing to do. */
int attn_begin(struct attn_job *job);
struct attn_cell attn_cell_of(const struct attn_job *job, int cell);
/* How many visible keys of the cell come before key j; any j will do. */
int attn_place(const struct attn_job *job, const struct attn_cell *c, int j);
/* Where in the list of keys the one at a place is. */
int attn_key_at(const struct attn_job *job, const struct attn_cell *c, int place);
/* Queries from q0 on, up to q1, that make a block: fewer where the first sees less than a cut from `place` on, since what
 * lies between its range and the last one's is computed for nothing. */
int attn_block_rows(const struct attn_job *job, const struct attn_cell *c, int q0, int q1,
                    int place);
/* Own key of query i when its range does not show it already, else -1. */
int attn_own_key(const struct attn *a, int i);
/* Rows of keys (values) from a place on. */
struct attn_rows attn_rows_at(const struct attn_job *job, const struct attn_cell *c, int place,
                              int values);
/* One key (value) as real; buffer holds D. */
const real *attn_row(const struct attn_job *job, int key, int kv, int values, real *buffer);

/* Cuts for a job with sides: how large, then each.  Those of all cells at once when they are shared. */
void attn_cuts_size(struct attn_job *job);
void attn_cuts_share(struct attn_job *job);
const struct attn_cut *attn_cut_make(const struct attn_job *job, const struct attn_cell *c, int cut,
                                     char *memory);
const struct attn_cut *attn_cut_shared(const struct attn_job *job, int cell, int cut);
/* C (M,N) = alpha * a op(B) (+ C), op(B) rows 0.. K and columns n0.. of a cut's side; inside a task. */
void attn_product(const struct attn_job *job, const struct attn_cut *cut, enum attn_side side,
                  struct gemm_job j, int n0);

/* Softmax state of a row: what was summed relative to the largest score. */
struct attn_sum {
    real top, sum;
};
/* Joins what another cut says about a row.  y (D) is in the terms of `sum`, part in those of `other`. */
void attn_join(struct attn_sum *sum, real *y, struct attn_sum other, const real *part, int D);
/* A row at its end: its own key, the division, lse. */
void attn_finish(const struct attn_job *job, int i, int head, struct attn_sum sum);

static inline size_t attn_at(const struct attn_job *job, int i, int head)
{
    return ((size_t)i * (size_t)job->a->H + (size_t)head) * (size_t)job->a->D;
}

/* The forward pass for few queries. */
void attn_few(struct attn_job *job);

#endif
