/* Batches of runs: rows of settings times seeds, each run a child process, resumable, with a table
 * at the end. */
#ifndef DS_CLI_BATCH_H
#define DS_CLI_BATCH_H

#include "cli/cli.h"
#include "eval/summary.h"

/* One line of the table: settings on top of presets. */
struct batch_row {
    char label[96];
    char **preset; /* heap strings; none = the default */
    size_t presets;
    char **override; /* heap strings */
    size_t n;
    char refused[256]; /* why it cannot run, or ""; the plan may set it */
    char note[64];     /* shown where the run is listed, "about 3m"; or "" */
};
/* A run that did not finish. */
struct batch_failure {
    size_t row;
    char name[65], reason[512];
};
/* What has finished: the runs that succeeded, one group per row, and the runs that failed. */
struct batch_done {
    const struct summary *run;
    size_t n;
    const struct summary_group *group;
    const struct batch_failure *failure;
    size_t failed;
};
struct batch_plan {
    char preset[128]; /* as given, "stories+mod,dtf"; default: quick */
    const char *kind; /* "sweep", "ablate", "isoflop": prefix of run names */
    struct batch_row *row;
    size_t n, cap;
    int64_t *seed;
    size_t seeds;
    const char *out;      /* path of the JSON summary; NULL: KIND.json next to the runs */
    int json, quiet, dry; /* dry: only lists what would run */
    /* Takes the results in place of the table and the summary file; NULL: these.  x lives until it
     * returns. */
    int (*finish)(struct batch_plan *p, const struct batch_done *x, struct err *e);
    void *ctx;
    /* Reports progress in place of lines on standard error; NULL: these. */
    void (*say)(struct batch_plan *p, size_t at, const char *name, const char *what);
};
enum { BATCH_RUNS_MAX = 10000 };

/* Appends a row; texts are copied.  NULL when out of memory. */
struct batch_row *batch_add(struct batch_plan *p, const char *label);
int batch_set(struct batch_row *r, const char *override, struct err *e) DS_CHECK;
int batch_preset(struct batch_row *r, const char *preset, struct err *e) DS_CHECK;
/* Runs everything that is not done yet, row by row, and prints the table (or JSON).  Returns the
 * exit status: 0 all done (invalid rows are reported), 1 a run failed, 128 + the signal (INT, TERM,
 * HUP, QUIT) that interrupted it: the current run then stops with a checkpoint, and the same
 * command resumes it. */
int batch_run(struct batch_plan *p);
/* Adds the rows of depthscope ablate for these presets and overrides, the control first; `only`:
 * "a,b" of them, NULL for all. */
int ablate_rows(struct batch_plan *p, const struct cli_args *a, const char *only,
                struct err *e) DS_CHECK;
/* Entry point of a batch command with --out, --json, --quiet and --dry-run among its options; plan
 * adds the rows. */
int batch_command(const char *kind, int argc, char **argv, struct cli_option *options,
                  int (*plan)(struct batch_plan *p, const struct cli_args *a, struct err *e));
void batch_release(struct batch_plan *p);

#endif
