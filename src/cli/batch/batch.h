/* Batches of runs: rows of settings times seeds, each run a child process, resumable, with a table
 * at the end. */
#ifndef DS_CLI_BATCH_H
#define DS_CLI_BATCH_H

#include "cli/cli.h"

/* One line of the table: settings on top of presets. */
struct batch_row {
    char label[96];
    char **preset; /* heap strings; none = the default */
    size_t presets;
    char **override; /* heap strings */
    size_t n;
    char refused[256]; /* why it cannot run, or ""; the plan may set it */
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
/* Entry point of a batch command with --out, --json, --quiet and --dry-run among its options; plan
 * adds the rows. */
int batch_command(const char *kind, int argc, char **argv, struct cli_option *options,
                  int (*plan)(struct batch_plan *p, const struct cli_args *a, struct err *e));
void batch_release(struct batch_plan *p);

#endif
