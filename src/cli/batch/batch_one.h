/* One run of a batch: its name, what has become of it, and the process that trains it. */
#ifndef DS_CLI_BATCH_ONE_H
#define DS_CLI_BATCH_ONE_H

#include "cli/batch/batch.h"
#include "cli/batch/batch_child.h"
#include "io/batch.h"

struct batch_one {
    size_t row, at; /* at: its number in the plan, from 1 */
    int64_t seed;
    char name[BATCH_NAME];
    int has_threads; /* the settings say how many */
};
/* Finds the name, which contains a hash of every setting (DS_EUSAGE: the settings are invalid).
 * settings: receives them, NULL: not wanted. */
int batch_one_resolve(struct batch_one *o, const struct batch_plan *p, struct str *settings,
                      struct err *e) DS_CHECK;
int batch_one_dir(const struct batch_one *o, char *dir, size_t size, struct err *e) DS_CHECK;

enum batch_one_state { ONE_NEW, ONE_RESUME, ONE_DONE, ONE_BUSY };
/* What the run directory says.  is_ours: the caller holds the lease, and what a killed process left
 * before there was any data is removed. */
int batch_one_look(const struct batch_one *o, int is_ours, enum batch_one_state *state,
                   struct err *e) DS_CHECK;
/* Starts or resumes it; threads 0: as the settings say. */
int batch_one_start(const struct batch_one *o, const struct batch_plan *p,
                    enum batch_one_state state, int threads, struct batch_child *out,
                    struct err *e) DS_CHECK;
/* Reads the results of a finished run: 1; else 0 and the reason. */
int batch_one_result(const struct batch_one *o, struct summary *s, char *reason, size_t size);

#endif
