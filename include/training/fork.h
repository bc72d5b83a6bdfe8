/* A run that begins with a checkpoint of another one, which is only read. */
#ifndef DS_TRAINING_FORK_H
#define DS_TRAINING_FORK_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "training/options.h"

struct fork_point {
    int64_t step;
    int is_newest;  /* no newer checkpoint is whole: going on from here needs no other run */
    char dir[1100]; /* of the checkpoint */
};
/* from: "best", or a step.  DS_ENOTFOUND names the steps that there are. */
int fork_find(struct fork_point *p, const char *run_dir, const char *from, struct err *e) DS_CHECK;
/* Makes DIR, an empty directory, a run with this configuration, whose only checkpoint is p and whose parent is the run of p; what it was trained
 * with (tokenizer, live settings made by then) comes along.  Resuming DIR begins it.  It is there as a whole or not at
 * all: after a failure nothing is left, DIR neither; after a kill it is empty, and what was begun is swept by a later start. */
int fork_make(const char *dir, const char *run_dir, const struct fork_point *p,
              struct train_config *config, int argc, char **argv, const char *version,
              struct err *e) DS_CHECK;
/* Takes back what fork_make made: for a run that could not begin.  One that has told something stays. */
void fork_discard(const char *dir);
/* "parent" of DIR/meta.json, "" when there is none. */
void fork_read_parent(const char *dir, char *parent, size_t size);

#endif
