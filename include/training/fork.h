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
 * it.  On failure everything is removed, including DIR. */
int fork_make(const char *dir, const char *run_dir, const struct fork_point *p,
              struct train_config *config, int argc, char **argv, const char *version,
              struct err *e) DS_CHECK;
/* "parent" of DIR/meta.json; "" = none. */
void fork_read_parent(const char *dir, char *parent, size_t size);

#endif
