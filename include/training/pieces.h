/* A training step in pieces: the batch is cut by sequences into pieces that do not depend on the
 * number of ranks, each has a pass of its own, and what the pieces give is added up in a binary tree
 * over them.  So any number of ranks, each with some of the pieces, gives the same bits.
 *
 *     level 2            0..3              4..5    a node alone at its level moves up as it is
 *     level 1       0..1      2..3         4..5
 *     level 0      0    1    2    3       4    5 */
#ifndef DS_TRAINING_PIECES_H
#define DS_TRAINING_PIECES_H

#include <stddef.h>

#include "base/err.h"
#include "engine/param.h"
#include "routing/route.h"

/* A node of the tree: the i-th of its level. */
struct piece_node {
    int level, i;
};
enum { PIECES_MAX = 65536, PIECE_NODES = 40 /* most of one rank */ };

struct pieces {
    int n, batch;       /* of a step: pieces and sequences */
    int begin, end;     /* this rank's */
    int is_even;        /* all have the same number of sequences */
    real *home, *store; /* the gradients' own block; room for more of them */
    size_t grads;       /* elements of a block */
    real *block[PIECE_NODES];
    struct piece_node node[PIECE_NODES]; /* block[k] holds node[k] */
    int nodes, blocks;
    real *inbox; /* nodes of other ranks, a part of the elements at a time */
    size_t inbox_n;
    double *all;   /* of all pieces in order */
    size_t values; /* numbers per piece */
};

/* 0: one pass for the whole batch, as without pieces. */
static inline int pieces_are_on(const struct pieces *x)
{
    return x->n > 1;
}

/* Divides n pieces of `batch` sequences among the ranks; n is at most batch and at least the number
 * of ranks. */
int pieces_init(struct pieces *x, int n, int batch, struct params *ps, struct err *e) DS_CHECK;
void pieces_release(struct pieces *x);
/* The first sequence of piece p; p = n: the batch. */
int pieces_first(const struct pieces *x, int p);
/* Bytes that pieces_init would reserve on a rank for gradients of n elements. */
double pieces_bytes(int pieces, int ranks, double n);

/* The gradients of the next pass of this rank, piece p, go to a block of their own, which is
 * zero. */
void pieces_begin(struct pieces *x, struct params *ps);
/* They are complete: adds up what can be added. */
void pieces_end(struct pieces *x, int p);
/* Collective.  The sum over all pieces is in ps's gradients on every rank. */
int pieces_sum(struct pieces *x, struct params *ps, struct err *e) DS_CHECK;

/* What one pass counts, as a list of numbers: `visit` calls `each` with all of them, in the same
 * order at each call. */
typedef void piece_visit_fn(void *of, route_count_fn *each, void *ctx);
/* Takes the numbers of piece p; sums are 0 afterwards. */
int pieces_take(struct pieces *x, int p, piece_visit_fn *visit, void *of, struct err *e) DS_CHECK;
/* Collective.  Puts those of the whole step there. */
int pieces_put(struct pieces *x, piece_visit_fn *visit, void *of, struct err *e) DS_CHECK;

#endif
