/* The ranks of a training run (base/ranks.h): their start, what rank 0 tells the others to do, and
 * what they report.  Rank 0 owns the run directory, the log, the control socket and the checkpoints;
 * the others follow it.  With one rank all of it is nothing. */
#ifndef DS_TRAINING_TEAM_H
#define DS_TRAINING_TEAM_H

#include <stddef.h>

#include "base/err.h"
#include "routing/route.h"
#include "training/options.h"

struct trainer;

/* 1 on the ranks that follow. */
int team_follows(void);
/* Collective.  0 where every rank has 0; else the error of the first rank that failed, on all. */
int team_agree(int rc, struct err *e) DS_CHECK;
/* Collective.  The same, then the bytes of rank 0 on all. */
int team_share(void *p, size_t bytes, int rc, struct err *e) DS_CHECK;
/* The pieces of a new run where train.pieces is 0, for this number of ranks. */
int team_pieces(const struct train_options *o, int ranks);
/* The parts of a step on these ranks; 1: the batch at once. */
int team_parts(const struct train_options *o);
/* Can these ranks train with these pieces? */
int team_check_pieces(const struct train_options *o, int is_resume, struct err *e) DS_CHECK;
/* Collective.  DS_EUSAGE naming a rank whose program, configuration or data differ from those of
 * rank 0, or whose processor or weights give other bits. */
int team_compare(struct trainer *t, struct err *e) DS_CHECK;
/* Collective.  The live settings of rank 0. */
int team_share_live(struct trainer *t, struct err *e) DS_CHECK;

/* Collective, with train.shard=optimizer (training/shard.c); without it these do nothing.  Divides
 * the moments, which are whole until then. */
int shard_begin(struct trainer *t, struct err *e) DS_CHECK;
void shard_release(struct trainer *t);
/* This rank's part of the optimiser's step; NULL: all of it. */
const struct adamw_part *shard_part(const struct trainer *t);
/* Collective.  After the step: the values of all ranks. */
int shard_spread(struct trainer *t, struct err *e) DS_CHECK;
/* Collective.  Rank 0 has all moments; shard_drop gives back those of the others. */
int shard_collect(struct trainer *t, struct err *e) DS_CHECK;
void shard_drop(struct trainer *t);

/* A round of work that is added up in the order of ranks, as one process would: ranks 0..active - 1
 * each have a part, whose results a rank adds to what the ranks before it did between begin, which
 * waits for that, and end, which passes it on.  After close rank 0 has all of it.  The memory that is
 * passed on has the same sizes everywhere. */
struct measure_span;
int team_turn_begin(const struct measure_span *v, int n, struct err *e) DS_CHECK;
int team_turn_end(const struct measure_span *v, int n, int active, struct err *e) DS_CHECK;
int team_turn_close(const struct measure_span *v, int n, int active, struct err *e) DS_CHECK;
/* Collective.  What rank 0 has becomes that of all. */
int team_spread(const struct measure_span *v, int n, struct err *e) DS_CHECK;
/* Collective.  Adds up what the method counted on all ranks, in their order (calibrate_share.join). */
int team_join_counts(void *unused, struct route *r, struct err *e) DS_CHECK;
/* Collective.  Rank 0 appends the records that the ranks built, in their order; `has` says whether
 * this one built one.  Without other ranks it is trainer_append. */
int team_append(struct trainer *t, int has, struct err *e) DS_CHECK;

enum team_order {
    TEAM_WAIT,
    TEAM_STEP,
    TEAM_EVALUATE,
    TEAM_EVALUATE_LAST,
    TEAM_PROBE,
    TEAM_COLLECT,
    TEAM_END
};
/* Rank 0: a live setting was changed, which goes with the next order. */
int team_note_set(struct trainer *t, const char *key, double value, struct err *e) DS_CHECK;
/* The newest one was refused. */
void team_forget_set(struct trainer *t);
/* Rank 0: the others do this next, after the settings noted. */
int team_order(struct trainer *t, enum team_order order, struct err *e) DS_CHECK;
/* The others: waits for an order and takes its settings. */
int team_await(struct trainer *t, enum team_order *order, struct err *e) DS_CHECK;
/* Collective.  The time of this rank's step and of its waiting, for the record. */
int team_report_step(struct trainer *t, struct err *e) DS_CHECK;
/* Appends the record "ranks" of the steps since the last one. */
int team_log(struct trainer *t, struct err *e) DS_CHECK;

#endif
