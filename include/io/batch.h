/* A batch of runs (sweep, ablate, isoflop, pipeline) as its folder describes it: which runs belong
 * to it, and who trains which of them.  The folder is below the runs directory, so that workers on
 * every host that shares that directory, and Home, read the same:
 *
 *     runs/.batches/KIND-KEY/plan.json      the runs, by name
 *     runs/.batches/leases/                 who trains which run (base/lease.h), of all batches
 *
 * The state of a run follows from its lease and its own records; it is stored nowhere else. */
#ifndef DS_IO_BATCH_H
#define DS_IO_BATCH_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/err.h"
#include "base/lease.h"
#include "base/map.h"
#include "io/runindex.h"

enum { BATCH_ID = 17, BATCH_NAME = 65 };
#define BATCH_FOLDER ".batches"
#define BATCH_LEASES "leases"

/* plan.json; all text is untrusted. */
struct batch_file {
    char kind[16], preset[128], version[32];
    char id[BATCH_ID];       /* new whenever the plan is written anew */
    char *first;             /* the settings of the first run, one a line */
    char (*run)[BATCH_NAME]; /* in the order of the plan; "" = refused, never trained */
    size_t runs;
};
/* DS_ENOTFOUND: there is none. */
int batch_file_read(struct batch_file *f, const char *folder, struct err *e) DS_CHECK;
/* Writes plan.json with a new id.  is_first: only where there is none yet; returns 1 written, 0 there
 * was one. */
int batch_file_write(struct batch_file *f, const char *folder, int is_first, struct err *e) DS_CHECK;
void batch_file_release(struct batch_file *f);

enum batch_state { BATCH_WAITING, BATCH_RUNNING, BATCH_DONE, BATCH_FAILED, BATCH_STATES };
const char *batch_state_name(enum batch_state s);
/* The state of one run.  row: NULL when there is no such run directory. */
enum batch_state batch_state_of(const struct run_row *row, const struct lease_view *v,
                                enum lease_life life);

struct batch_worker {
    char host[LEASE_HOST];
    long pid;
    size_t runs; /* that it trains now */
};
enum { BATCH_WORKERS = 32 };
struct batch_progress {
    size_t runs, count[BATCH_STATES];
    struct batch_worker worker[BATCH_WORKERS];
    size_t workers; /* of those listed; more are only counted */
    size_t more;
};
void batch_progress_add(struct batch_progress *p, enum batch_state s, const struct lease_view *v);
/* "8 runs: 3 done, 2 running, 1 failed, 2 waiting". */
void batch_progress_text(struct str *out, const struct batch_progress *p);
/* "boxa 2, boxb 1": runs by host, "" when none runs. */
void batch_workers_text(struct str *out, const struct batch_progress *p);

/* ---- the batches of a runs directory, kept by a viewer ---- */

struct batch_entry {
    char name[80]; /* of its folder */
    struct timespec seen;
    uint64_t inode;
    struct batch_file file;
    struct lease_watch *watch; /* of each run */
    struct batch_progress progress;
    int is_kept;
};
struct batch_list {
    struct batch_entry *entry;
    size_t n, cap;
};
/* Reads the batches below `root` again; plans that did not change are kept.  Only batches that have
 * a run or a worker, and are not all done, count: the others have progress.runs 0.  Runs are looked
 * up in `index`.  A folder that cannot be read is left out. */
int batch_list_refresh(struct batch_list *l, const char *root, const struct runindex *index,
                       struct err *e) DS_CHECK;
void batch_list_release(struct batch_list *l);

#endif
