/* Runs that the other end of an agent starts and resumes, as the workbench does it here: a process of its
 * own that outlives the agent, watched until its first record. */
#ifndef DS_CLI_AGENT_START_H
#define DS_CLI_AGENT_START_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"
#include "io/runindex.h"
#include "training/job.h"

enum { STARTS_MAX = 4, START_SETTINGS = 400 };

struct starts {
    struct {
        int64_t id;
        struct job_launch launch;
    } v[STARTS_MAX];
    int n;
};

/* The names of the presets here, separated by spaces, as far as `size` bytes hold them whole. */
void start_presets(char *out, size_t size);
/* {"name":NAME, "preset":PRESETS, "settings":["key=value", ...]}: a new run directly below `root`, with an
 * empty name one that follows from the preset.  The errors are those of `depthscope train`. */
int start_new(struct starts *s, int64_t id, const char *root, const struct json_node *request,
              struct err *e) DS_CHECK;
/* Continues a run directly below `root` from its newest checkpoint; from "best" or the number of a
 * step: as a new run. */
int start_again(struct starts *s, int64_t id, const char *root, const struct run_row *row,
                const char *from, struct err *e) DS_CHECK;
/* The checkpoints of a run: the steps, newest first, then "best STEP LOSS" where it is known. */
int start_checkpoints(struct str *out, const struct run_row *row, struct err *e) DS_CHECK;
/* 1: the run of *id has begun, text is its name; -1: it has not, text says why; 0: nothing new. */
int start_next(struct starts *s, int64_t *id, char *text, size_t size);
void starts_release(struct starts *s); /* what has been started continues */

#endif
