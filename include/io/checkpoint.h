/* Checkpoint directories: written under a temporary name, verified, then renamed.  See FAULTS.md
 * "Checkpoint". ROOT/step-00001000/ holds the files the caller writes, plus manifest.json (size,
 * SHA-256 of each). */
#ifndef DS_IO_CHECKPOINT_H
#define DS_IO_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { CHECKPOINT_RUN_ID = 40 }; /* size of a run id, including the NUL */

struct checkpoint_tx {
    char dir[1024], final[1024], root[1024];
    int64_t step;
    int replaces; /* set by the caller: replace even a complete checkpoint of the step */
    char run_id[CHECKPOINT_RUN_ID]; /* set by the caller: id of the run, "" = not recorded */
};
/* Creates ROOT/step-XXXXXXXX.tmp-OWNER/ (base/fs.h); the caller writes its files into tx->dir.
 * First removes what it can of earlier commits, as checkpoint_sweep does. */
int checkpoint_begin(struct checkpoint_tx *tx, const char *root, int64_t step,
                     uint64_t bytes_needed, struct err *e) DS_CHECK;
/* Writes the manifest (each file is hashed once, as it is read back), fsyncs and renames.  An
 * existing directory of that step is replaced only if it fails verification (else DS_EEXIST) or
 * tx->replaces is set, and never if it belongs to another run (DS_EFORMAT).  It is moved aside
 * until the rename succeeds and restored when the rename fails. After a failure call
 * checkpoint_abort; after success that does nothing. */
int checkpoint_commit(struct checkpoint_tx *tx, struct err *e) DS_CHECK;
void checkpoint_abort(struct checkpoint_tx *tx);
/* 0 when every file has the size and hash its manifest says. */
int checkpoint_verify(const char *dir, struct err *e) DS_CHECK;
/* Run id in a checkpoint's manifest; "" in manifests that predate run ids. */
int checkpoint_run_id(const char *dir, char out[CHECKPOINT_RUN_ID], struct err *e) DS_CHECK;
/* DS_EFORMAT, naming both, when the manifest names another run; 0 when either names none. */
int checkpoint_check_run(const char *dir, const char *run_id, struct err *e) DS_CHECK;
/* Restores complete checkpoints that an interrupted commit had moved aside.  checkpoint_latest and
 * checkpoint_prune call it first; code that scans the names itself must call it before. */
void checkpoint_recover(const char *root);
/* Removes stale temporary directories of dead processes, and old checkpoints that could not be
 * removed; what fails is left for the next time.  For the one that may write checkpoints there. */
void checkpoint_sweep(const char *root);
/* Steps that have a directory, complete or not, newest first; *steps is heap (mem_free). */
int checkpoint_steps(const char *root, int64_t **steps, size_t *n, struct err *e) DS_CHECK;
/* Newest step whose manifest verifies (older ones are tried with a warning); DS_ENOTFOUND when
 * none. */
int checkpoint_latest(const char *root, char *dir, size_t size, int64_t *step,
                      struct err *e) DS_CHECK;
/* Keeps the newest `keep`, the step `best` (-1 none) and every multiple of `every` (0 none);
 * removes the rest, and stale temporary directories of dead processes. */
int checkpoint_prune(const char *root, int keep, int64_t best, int64_t every,
                     struct err *e) DS_CHECK;

/* As checkpoint_prune, after a commit: tx->step is known to be complete; checkpoints of other runs
 * are left alone. */
int checkpoint_prune_after(const struct checkpoint_tx *tx, int keep, int64_t best, int64_t every,
                           struct err *e) DS_CHECK;

#endif
