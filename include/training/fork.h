/* Starts a run from a checkpoint of another run, which is only read. */
#ifndef DS_TRAINING_FORK_H
#define DS_TRAINING_FORK_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "training/options.h"

struct fork_point {
    int64_t step;
    int is_newest;  /* no newer valid checkpoint: resuming needs no fork */
    char dir[1100]; /* of the checkpoint */
};
/* from: "best" or a step.  DS_ENOTFOUND lists the available steps. */
int fork_find(struct fork_point *p, const char *run_dir, const char *from, struct err *e) DS_CHECK;
/* Turns the empty directory DIR into a run with this configuration, with p as its only checkpoint
 * and p's run as its parent; tokenizer and live settings up to p are copied.  Resuming DIR starts
 * it.  DIR appears whole or not at all: on failure everything is removed, including DIR; after a
 * kill it is empty, and a later start removes what was begun. */
int fork_make(const char *dir, const char *run_dir, const struct fork_point *p,
              struct train_config *config, int argc, char **argv, const char *version,
              struct err *e) DS_CHECK;
/* Takes back what fork_make made: for a run that could not begin.  One with a report stays. */
void fork_discard(const char *dir);
/* "parent" of DIR/meta.json; "" = none. */
void fork_read_parent(const char *dir, char *parent, size_t size);

#endif
