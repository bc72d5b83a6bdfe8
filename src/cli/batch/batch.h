/* Batches of runs: rows of settings times seeds, each run a child process, resumable, with a table
 * at the end.  Every process that runs the same batch on the same runs directory is a worker of it:
 * runs are claimed by leases, so that none is trained twice. */
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
/* How the runs are spread over processes, by the options of BATCH_OPTIONS. */
struct batch_how {
    int jobs;             /* runs at once, workers to launch, or array tasks at once; 0: not given */
    double patience;      /* of leases */
    const char *launch;   /* command that starts a worker, or NULL */
    const char *sbatch;   /* options for the array script, or NULL */
    const char *worker;   /* the id of the batch to join, "ID" or "ID-LEADER", or NULL */
    int index;            /* with worker: the only run to train, from 1; 0: all */
    int status, slurm;    /* only report; only write the array script */
    int argc;             /* the command line, for that of a worker */
    char **argv;
    const struct cli_option *option;
};
struct batch_plan {
    struct batch_how how;
    char preset[128]; /* as given, "stories+mod,dtf"; default: quick */
    const char *kind; /* "sweep", "ablate", "isoflop": prefix of run names */
    struct batch_row *row;
    size_t n, cap;
    int64_t *seed;
    size_t seeds;
    const char *out;      /* path of the JSON summary; NULL: KIND.json next to the runs */
    int json, quiet, dry; /* dry: only lists what would run */
    int is_complete;      /* set by batch_run: every run is done or has failed */
    int is_later;         /* set by batch_run: the id of the worker is that of a later part */
    int is_first_part;    /* of a pipeline: the id of a worker may be that of a later part */
    /* Takes the results in place of the table and the summary file; NULL: these.  x lives until it
     * returns. */
    int (*finish)(struct batch_plan *p, const struct batch_done *x, struct err *e);
    void *ctx;
    /* Reports progress in place of lines on standard error; NULL: these. */
    void (*say)(struct batch_plan *p, size_t at, const char *name, const char *what);
};
enum { BATCH_RUNS_MAX = 10000 };

/* Rows of the option tables of sweep, ablate, isoflop and pipeline. */
/* clang-format off */
#define BATCH_OPTIONS \
    {.name = "jobs", .has_value = 1, .help = "N  runs at once (default 1); --launch: workers; --slurm: tasks at once"}, \
    {.name = "status", .help = "what is done, running, failed and waiting, and where; start nothing"}, \
    {.name = "launch", .has_value = 1, .help = "'CMD {}'  start --jobs workers: {} the quoted command line, {n} the number"}, \
    {.name = "slurm", .help = "write a Slurm array script and print how to submit it"}, \
    {.name = "sbatch", .has_value = 1, .help = "'OPTIONS'  options for the script, as in '--time=2:00:00 --mem=8G'"}, \
    {.name = "lease", .has_value = 1, .help = "SECONDS  a silent worker is dead after so long (default 30)"}, \
    {.name = "worker", .has_value = 1, .help = "ID  join a batch: what --launch and --slurm start"}, \
    {.name = "index", .has_value = 1, .help = "N  with --worker: only run N"}
/* clang-format on */
/* Reads them.  The command line is borrowed. */
int batch_how_read(struct batch_how *how, const struct cli_args *a, int argc, char **argv,
                   struct err *e) DS_CHECK;

/* Appends a row; texts are copied.  NULL when out of memory. */
struct batch_row *batch_add(struct batch_plan *p, const char *label);
int batch_set(struct batch_row *r, const char *override, struct err *e) DS_CHECK;
int batch_preset(struct batch_row *r, const char *preset, struct err *e) DS_CHECK;
/* Runs everything that is not done yet, row by row, and prints the table (or JSON); a worker that
 * was launched prints none.  Returns the
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
