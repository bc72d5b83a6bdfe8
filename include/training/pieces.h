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
enum {
    PIECE_NODES = 40,  /* most of one rank */
    PIECE_FLIGHTS = 16 /* parts of the gradients that are on their way at once */
};
struct ranks_trade;
struct ranks_part;
/* Elements at..at + n - 1 of the block on their way: each rank adds up a part of them, then all get
 * the sums. */
struct piece_flight {
    size_t at, n;
    int number; /* the same on all ranks */
    int stripe; /* of every rank's own elements (is_divided), else -1 */
    struct ranks_trade *trade;
    char *inbox, *outbox; /* of other ranks; bfloat16 that goes out */
    int is_spreading;
};

struct pieces {
    int n, batch;       /* of a step: pieces and sequences */
    int begin, end;     /* this rank's */
    int is_even;        /* all have the same number of sequences */
    real *home, *store; /* the gradients' own block; room for more of them */
    size_t grads;       /* elements of a block */
    real *block[PIECE_NODES];
    struct piece_node node[PIECE_NODES]; /* block[k] holds node[k] */
    int nodes, blocks;
    int is_narrow;  /* bfloat16 between ranks */
    int is_divided; /* every rank keeps the sums of its own elements: own[r]..own[r + 1] - 1 */
    size_t *own;
    struct piece_flight flight[PIECE_FLIGHTS];
    int flights, departed;
    struct ranks_part *part; /* (2, parts): to be sent, and received */
    size_t parts;
    size_t ready; /* elements from here to ready_end have left */
    size_t ready_end;
    int failed; /* in pieces_ready, reported by pieces_sum */
    int is_advancing;
    struct err why;
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
/* Every rank keeps the sums of elements own[r]..own[r + 1] - 1 alone (ranks + 1; taken, of mem_alloc):
 * pieces_sum leaves the others undefined. */
void pieces_divide(struct pieces *x, size_t *own);
void pieces_release(struct pieces *x);
/* The first sequence of piece p; p = n: the batch. */
int pieces_first(const struct pieces *x, int p);
/* Bytes that pieces_init would reserve on a rank for gradients of n elements. */
double pieces_bytes(int pieces, int ranks, double n);

/* The gradients of the next pass of this rank, piece p, go to a block of their own, which is
 * zero. */
void pieces_begin(struct pieces *x, struct params *ps);
/* In the last pass of this rank, while it goes on: the gradients of elements from..end - 1 are
 * complete, and so on downwards, each call from where the last one began.  They leave at once. */
void pieces_ready(struct pieces *x, size_t from, size_t end);
/* The flights get on: x, a struct pieces. */
void pieces_advance(void *x);
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
