/* Summaries of runs for the tables of compare, sweep and ablate, read from records alone. */
#ifndef DS_EVAL_SUMMARY_H
#define DS_EVAL_SUMMARY_H

#include <stddef.h>

#include "base/err.h"
#include "base/str.h"
#include "base/statistics.h"
#include "io/runview.h"

/* Rows of a summary, in this order. */
enum {
    SUMMARY_VAL_LOSS,
    SUMMARY_LOSS, /* newest training loss: tables show it where a run has no validation loss */
    SUMMARY_TOPK_GAP,
    SUMMARY_BPB,
    SUMMARY_BLOCK,
    SUMMARY_FLOPS,
    SUMMARY_TIME,
    SUMMARY_DECODE,
    SUMMARY_RANDOM, /* controls on the same weights: random routing, and a static mask */
    SUMMARY_STATIC,
    SUMMARY_DEPTH,
    SUMMARY_DEPTH_SD,
    SUMMARY_DEPTH_VARIANCE,
    SUMMARY_MI,
    SUMMARY_R_SIGNAL,
    SUMMARY_R_ENTROPY,
    SUMMARY_R_NLL,
    SUMMARY_R_TRUE,
    SUMMARY_ANSWER_LOSS, /* where the data know which targets are answers */
    SUMMARY_ANSWER_ACCURACY,
    SUMMARY_R_NEEDED,
    SUMMARY_N
};
extern const struct summary_row {
    const char *key, *title;
    int digits;
    int rank; /* narrow tables drop the highest first; 0: kept */
} summary_rows[SUMMARY_N];

/* One run.  seed: -1 where the writer did not say. */
struct summary {
    char name[80], method[32], status[16]; /* status: done, stopped, failed, running, unfinished */
    long long seed, step, steps;
    double value[SUMMARY_N]; /* NaN: not recorded */
    double dense_flops;      /* per token, of the dense model of its shares; 0: not recorded */
    char **key, **setting;   /* configuration, flat; owned */
    size_t settings;
};
/* Reads the newest evaluation (the final one if it exists), else the newest points of the
 * metrics. */
int summary_read(struct summary *s, const char *path, struct err *e) DS_CHECK;
void summary_release(struct summary *s);
const char *summary_setting(const struct summary *s, const char *key); /* NULL if absent */

/* Runs that differ in nothing but the seed. */
struct summary_group {
    char label[96];
    size_t n, member[256]; /* indices of runs */
    size_t failed;         /* failed runs, excluded from the means */
    size_t missing;        /* set by the caller: failed runs that are not members */
    struct interval value[SUMMARY_N];
    double dense_flops; /* mean; 0: not recorded */
};
/* Groups in order of first appearance; *groups heap (mem_free).  A further run of one seed that did
 * not fail (a copy, a fork) starts another group.  Runs beyond 256 of one group: DS_ERANGE. */
int summary_group(struct summary_group **groups, size_t *n, const struct summary *runs,
                  size_t n_runs, struct err *e) DS_CHECK;
int summary_failed(const struct summary *s);
/* Fills value from the members that did not fail, and counts those that did; intervals are
 * deterministic. */
void summary_estimate(struct summary_group *g, const struct summary *runs);
/* Keys whose settings differ among runs, except the seed and keys that change no result; *keys heap
 * (mem_free), borrowed text. */
int summary_differences(const char ***keys, size_t *n, const struct summary *runs, size_t n_runs,
                        struct err *e) DS_CHECK;
/* {"name":..,"method":..,"seed":..,"status":..,"val_loss":..,...} and
 * {"label":..,"n":..,"runs":[..],"val_loss":{"mean","sd","lo","hi","n"},...} */
void summary_run_json(struct str *out, const struct summary *s);
void summary_group_json(struct str *out, const struct summary_group *g, const struct summary *runs);

/* Group `other` minus group `base` in SUMMARY row `row`, paired by seed: runs with the same data in
 * the same order.  Failed runs and unknown seeds are excluded.  Without pairs of.n is 0. */
struct difference summary_paired(const struct summary_group *other,
                                 const struct summary_group *base, const struct summary *runs,
                                 int row);

#endif
