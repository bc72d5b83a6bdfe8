/* The runs below a directory, one row each: what lists, Home and filters show of a run without
 * reading its log whole.  All text in a row is untrusted: sanitise before showing. */
#ifndef DS_IO_RUNINDEX_H
#define DS_IO_RUNINDEX_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/config.h"
#include "base/err.h"
#include "base/map.h"
#include "io/run_state.h"
#include "io/runnotes.h"

enum { RUN_ROW_SPARK = 32 };

/* Numbers of a row; NaN where nothing is recorded. */
enum run_number {
    RUN_STEP,
    RUN_STEPS, /* planned */
    RUN_VAL_LOSS,
    RUN_LOSS,
    RUN_FLOPS_RATIO,
    RUN_TIME_RATIO,
    RUN_TOK_S,
    RUN_ETA, /* seconds, of live runs only */
    RUN_MFU, /* utilisation of the newest step, 0 to 1 */
    RUN_SEED,
    RUN_PID, /* of the process that wrote the newest head */
    RUN_DISK_FREE, /* bytes, of the newest system record */
    RUN_GPU_USE,   /* 0 to 1: the busiest GPU of the newest system record */
    RUN_ALERTS,    /* that hold by the run's own records, of a long log by its last: io/alert.h */
    RUN_NUMBERS
};

struct run_row {
    char name[256], path[1024]; /* name: the directory's; path: the directory */
    enum run_state state;
    int is_live;                 /* a process holds the log's lock */
    char method[32], preset[65]; /* "" where unknown, as below */
    char host[65], run_id[40], parent[65];
    double number[RUN_NUMBERS];
    double last_time; /* wall seconds of the newest record, 0 = none */
    double modified;  /* of the log, wall seconds */
    struct run_notes notes;
    float spark[RUN_ROW_SPARK]; /* losses over the run, oldest first */
    int sparks;
    struct run_phase phase;
    uint64_t bytes_read, reads; /* work of reading this row */
    /* What an unchanged run is recognised by: the log, and the directory of the other files. */
    struct {
        uint64_t size, inode;
        struct timespec log, dir;
    } seen;
    struct config *config;     /* read on demand by run_row_config; owned */
    int is_kept;               /* of runindex_refresh */
    const char *format;        /* title of another program's log format; NULL: our own run */
    int is_nested;             /* folders in its own may be runs, too */
    struct run_follow *follow; /* where reading such a log goes on; owned */
    int is_behind;             /* ... and there is more of it to read already */
    unsigned alerts;           /* that hold by the rules of who lists it: io/alert.h */
    unsigned alerts_unread;    /* rules of which the part of the log that was read says nothing */
    const char *remote;        /* name of the host that it is on, borrowed; NULL: this machine */
};

/* Reads a run directory or a log: another program's log to its end, our own from its first and last
 * records and evenly spaced samples between them: there, the work is bounded whatever the size of
 * the file.  DS_ENOTFOUND: there is neither a log
 * nor a config.yaml. row is overwritten; release it with run_row_release. */
int run_row_read(struct run_row *row, const char *path, struct err *e) DS_CHECK;
/* The same with no more than about `bytes` of another program's log, 0 = all of it: the row is
 * behind (row->is_behind) until later calls of run_row_poll have read the rest. */
int run_row_read_some(struct run_row *row, const char *path, size_t bytes, struct err *e) DS_CHECK;
void run_row_release(struct run_row *row);
/* The same row of another program's log (row->format) again: reads what is new, at most about
 * `bytes` of it, 0 = all.  Returns 1 when something changed, else 0. */
int run_row_poll(struct run_row *row, size_t bytes);
/* Where it is, for people: its path, or "box:name" on another machine.  Returns a string of out's
 * life. */
enum { RUN_HOST_PATH = 1024 };
const char *run_row_place(const struct run_row *row, char *out, size_t size);
/* The resolved setting of a run, NULL when absent; config.yaml or the head is read once. */
const char *run_row_config(struct run_row *row, const char *key);
/* 1 for another program's run that lists show by its training loss, for lack of a validation loss. */
int run_row_needs_loss(const struct run_row *row);
/* Seconds since the newest record (else since the log was written); NaN when unknown. */
double run_row_age(const struct run_row *row, double now);

/* ---- all runs below a directory ---- */

struct host;
struct runindex {
    struct run_row *
        *row; /* in the order of the last sort; pointers stay valid while a run stays unchanged */
    size_t n;
    uint64_t rows_read, bytes_read; /* by the last refresh */
    size_t poll_bytes; /* of each log of another program that a refresh reads; 0 = to its end */
    const char *const *also; /* further runs, or folders of runs, that refresh lists; borrowed */
    size_t alsos;
    struct host *const *host; /* whose runs are listed, too (io/host.h); borrowed */
    size_t hosts;
    struct map barren; /* files that are no logs, by path and last change */
    int is_cut; /* more to look at than one refresh may, or too long a path; that is left out */
};
/* Lists `root` (NULL: only `also`) again, with logs of other programs up to three folders below it,
 * named by their path from there ("exp/run-1"): only runs whose log or directory changed are read.  Runs that vanish or are
 * damaged meanwhile are left out or keep the state that their records show; a missing root is an
 * empty list.  On failure the index is unchanged.  Sorted live first, then newest first. */
int runindex_refresh(struct runindex *x, const char *root, struct err *e) DS_CHECK;
void runindex_release(struct runindex *x);
/* 1 when a row is behind: the next refresh has more to read, whether or not anything changes. */
int runindex_is_behind(const struct runindex *x);
/* The row of a name or path, NULL when there is none. */
struct run_row *runindex_find(const struct runindex *x, const char *name);

/* ---- columns: what lists sort, filter and group by ---- */

struct run_column {
    const char *key, *title, *help;
    int is_number;
    int from; /* of the index */
};
extern const struct run_column run_columns[]; /* ends with key NULL */
const struct run_column *run_column_find(const char *key);
/* The value as a number, NaN when missing or text; age needs `now` (wall seconds). */
double run_column_number(const struct run_row *row, const struct run_column *c, double now);
/* The value as text, untrusted; "" when missing.  Returns out. */
const char *run_column_text(const struct run_row *row, const struct run_column *c, double now,
                            char *out, size_t size);
/* "COLUMN", or "-COLUMN" for descending; a column or a configuration key.  Missing values come last
 * either way, equal ones keep their order.  DS_EUSAGE: unknown column. */
int runindex_sort(struct runindex *x, const char *by, double now, struct err *e) DS_CHECK;
/* Orders rows by the text of a column or configuration key, keeping the order within each value:
 * rows of one group are adjacent, groups in order of first appearance. */
int runindex_group(struct runindex *x, const char *key, double now, struct err *e) DS_CHECK;
/* Text of a column or of a configuration key, "" when missing.  Returns out. */
const char *run_row_text(struct run_row *row, const char *key, double now, char *out, size_t size);

#endif
