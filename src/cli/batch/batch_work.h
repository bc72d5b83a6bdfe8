/* One worker of a batch: claims runs, trains them, and follows those of the other workers. */
#ifndef DS_CLI_BATCH_WORK_H
#define DS_CLI_BATCH_WORK_H

#include "cli/batch/batch_share.h"

enum batch_unit_state {
    UNIT_OPEN,    /* not done, as far as is known here */
    UNIT_OURS,    /* trained by a child of this process */
    UNIT_DONE,    /* result */
    UNIT_FAILED,  /* reason */
    UNIT_REFUSED, /* its row is invalid */
    UNIT_LEFT,    /* not to be trained by this process */
};
struct batch_unit {
    struct batch_one one;
    enum batch_unit_state state;
    struct lease_watch watch;
    struct lease_view holder;  /* of the last look, while another process holds it */
    uint64_t old_failure;      /* mark of a failure that was there at the start; 0: none */
    int has_told;              /* that it waits for another process */
    struct summary *result;    /* owned */
    char *reason;              /* owned */
};
/* Fills unit[0 .. n): the runs in order, each with its name.  The rows were checked before. */
int batch_units_make(struct batch_unit **unit, size_t *n, const struct batch_plan *p,
                     struct err *e) DS_CHECK;
void batch_units_release(struct batch_unit *unit, size_t n);
/* Works until every run is done or has failed, or a signal asks to end.  With how.launch this
 * process starts workers and only follows.  A failure of the folder is an error: the runs of this
 * worker are stopped then, with a checkpoint where that is possible. */
int batch_work(struct batch_plan *p, struct batch_share *s, struct batch_unit *unit, size_t n,
               struct err *e) DS_CHECK;

/* Reports progress. */
void batch_say(struct batch_plan *p, size_t at, size_t all, const char *name, const char *what);

/* ---- batch_launch.c ---- */

/* The command line that starts a worker of the same batch on this runs directory, for sh. */
int batch_worker_line(struct str *out, const struct batch_plan *p, const char *id,
                      struct err *e) DS_CHECK;
/* Starts worker `number` (from 1) through how.launch. */
int batch_launch_start(struct batch_child *b, const struct batch_plan *p, const char *id,
                       int number, struct err *e) DS_CHECK;
/* Writes the Slurm array script of the runs that are not done and prints how to submit it. */
int batch_slurm(struct batch_plan *p, const struct batch_share *s, const struct batch_unit *unit,
                size_t n, struct err *e) DS_CHECK;

/* ---- batch_status.c ---- */

/* Prints what is done, running, failed and waiting. */
int batch_status(struct batch_plan *p, struct batch_share *s, const struct batch_unit *unit,
                 size_t n, struct err *e) DS_CHECK;

#endif
