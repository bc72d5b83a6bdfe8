/* What the workers of a batch share: the plan in its folder, and the leases of its runs. */
#ifndef DS_CLI_BATCH_SHARE_H
#define DS_CLI_BATCH_SHARE_H

#include "cli/batch/batch.h"
#include "cli/batch/batch_one.h"
#include "io/batch.h"

struct batch_share {
    char name[80], folder[1100], leases[1100]; /* KIND-KEY, and the directories */
    struct batch_file file;                    /* the plan as this process has it; id: the folder's */
    struct lease_list list;                    /* as of the last batch_share_scan */
    char leader[LEASE_NONCE]; /* of the process that launched this worker, or "" */
    int is_later;             /* the id to join is that of a later part of the pipeline */
};
/* Finds the folder and fills `file`: one[at] are the runs in order, n of them. */
int batch_share_plan(struct batch_share *s, const struct batch_plan *p,
                     const struct batch_one *one, size_t n, struct err *e) DS_CHECK;
/* Writes the plan, or joins one that is there.  A different plan is replaced when none of its runs
 * is being trained, otherwise refused (DS_EEXIST) with the first difference. */
int batch_share_open(struct batch_share *s, const struct batch_plan *p, struct err *e) DS_CHECK;
/* Reads the names of the leases again. */
int batch_share_scan(struct batch_share *s, struct err *e) DS_CHECK;
/* The lease of a run as of the last scan. */
int batch_share_look(const struct batch_share *s, const char *run, struct lease_view *v,
                     struct err *e) DS_CHECK;
/* The name of the lease of the process that launches the workers; returns out. */
const char *batch_share_leader(const struct batch_share *s, char out[LEASE_NAME]);
/* "boxa, process 123" for messages, sanitised; returns out. */
const char *batch_holder(const struct lease_view *v, char *out, size_t size);
void batch_share_release(struct batch_share *s);

#endif
