/* Load of the experts of a mixture: how many tokens each of them was assigned, by layer, at one step.
 * It comes from the matrix "expert_load", or is counted from the cells `expert` of probes. */
#ifndef DS_IO_EXPERTS_H
#define DS_IO_EXPERTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "io/runview.h"

enum { EXPERTS_MAX = 4096, EXPERT_RANKS_MAX = 64 };

struct expert_load {
    int64_t step;
    int rows, experts; /* a row per layer that has experts */
    int per_token;     /* experts of a token; 0 = unknown */
    int noops;         /* the last ones of the experts run nothing */
    int32_t *layer;    /* (rows) model layer */
    double *count;     /* (rows, experts) assignments since the previous record, or in the probes */
    int probes;        /* > 0: counted from so many probes, in place of a record; then */
    int64_t tokens;    /* their tokens */
    int is_least;      /* the number of experts is unknown: at least the highest number seen */
};

/* A row of it.  `relative` load of an expert: count / (sum / experts), 1 = ideal. */
struct expert_row {
    double sum, cv; /* assignments; coefficient of variation of the counts, NaN when sum is 0 */
    int top, dead;  /* expert with the highest count; how many have none */
};

/* Number of places in time that have a load, and the load of the i-th: steps ascend, superseded
 * records are left out.  With a matrix "expert_load" probes are not counted.  Free with
 * expert_load_release; DS_ENOTFOUND when there is none, DS_EMEM. */
size_t expert_loads(const struct runview *v);
int64_t expert_loads_step(const struct runview *v, size_t i);
size_t expert_loads_find(const struct runview *v, int64_t step); /* the last one up to a step */
int expert_load_read(struct expert_load *out, const struct runview *v, size_t i,
                     struct err *e) DS_CHECK;
void expert_load_release(struct expert_load *x);
/* "expert" or "no-op", of `experts` whose last `noops` run nothing. */
const char *expert_word(int expert, int experts, int noops);
double expert_relative(const struct expert_load *x, int row, int expert); /* NaN: no assignments */
struct expert_row expert_row_of(const struct expert_load *x, int row);
/* 1 + the number of experts with more assignments. */
int expert_rank(const struct expert_load *x, int row, int expert);
/* The `most` experts with the highest counts (> 0), descending, ties by lower number; how many. */
int expert_hottest(const struct expert_load *x, int row, int *expert, int most);

/* Relative load of an expert of a model layer at each of the n places in time, NaN without
 * assignments. */
void expert_trend(const struct runview *v, int layer, int expert, double *out, size_t n);

/* Collapse of a layer of at least 4 experts: one expert takes more than 90 % of the tokens and at
 * least 1.5 times its ideal load.  It ends when the busiest expert takes less than 75 %.
 * `count` (experts); per_token: 0 = unknown, taken as 1.  *expert is the busiest one, *share its
 * share of the tokens.  Returns 1 collapsed, 0 balanced again, -1 in between or no assignments. */
int experts_collapsed(const float *count, int experts, int per_token, int *expert, double *share);
/* The same for a row; 0 also in between. */
int expert_row_collapsed(const struct expert_load *x, int row);
/* From the head, else the configuration (num_experts_per_tok), else the cells of the newest probe;
 * 0 = unknown. */
int experts_per_token(const struct runview *v);

/* Cells `expert`, `expert_2`, ... and `expert_weight`, ... of a probe by rank from 0; NULL when
 * absent.  `expert_of` is -1 where the cell has no expert. */
const struct matrix *probe_expert(const struct probe *p, int rank);
const struct matrix *probe_expert_weight(const struct probe *p, int rank);
int probe_expert_ranks(const struct probe *p);
int probe_expert_of(const struct probe *p, int rank, int layer, int token);
/* The rank at which a token goes to an expert, -1 when it does not. */
int probe_expert_rank_of(const struct probe *p, int layer, int token, int expert);

#endif
