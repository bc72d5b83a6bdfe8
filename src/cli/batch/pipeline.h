/* A pipeline: what pipeline.c trains and pipeline_results.c evaluates, draws and prints. */
#ifndef DS_CLI_PIPELINE_H
#define DS_CLI_PIPELINE_H

#include "cli/batch/batch.h"

enum { PIPELINE_RUNS = 256, PIPELINE_ROWS = 64, PIPELINE_SETTINGS = 128 };

enum pipeline_part { BASE, CONTROLS, ABLATIONS };

/* A run that finished: its name and the row of the table it belongs to. */
struct pipeline_run {
    char name[80];
    int row;
    enum pipeline_part part;
};
struct pipeline {
    struct batch_how how;
    struct cli_args args; /* of the command, with the settings of --quick in front */
    char dir[1024], method[32], preset[128], label[64];
    char quick[8][64]; /* settings of --quick */
    const char *override[PIPELINE_SETTINGS];
    const char *formats, *venue;
    int layers, is_quick, is_dry, is_json, is_quiet, is_terminal;
    int64_t steps;
    double run_s;        /* estimate of one run */
    double block, flops; /* measured shares of the method; NaN before its runs */
    double block_guess;  /* until then */
    double stack, dense; /* FLOPs per token: the dense layers alone, with the head as measured */
    enum pipeline_part part;
    struct pipeline_run run[PIPELINE_RUNS];
    size_t runs;
    char row[PIPELINE_ROWS][96];
    int rows;
    int is_complete, is_later; /* of the part that was run last */
    size_t at, all; /* progress over everything */
    double started;
    struct str evaluations, figures, skipped, tables;
};

/* A line of progress: a bar at a terminal, a plain line in a pipe. */
void pipeline_show(struct pipeline *p, const char *name, const char *what);
/* A line that stays: what was skipped, or failed, and why. */
void pipeline_skip(struct pipeline *p, const char *name, const char *why);
/* Evaluates, draws every figure, writes the tables and prints the result; evaluations of the same
 * runs are not made again, figures and tables are. */
int pipeline_results(struct pipeline *p, struct err *e) DS_CHECK;
void pipeline_json(struct str *out, const struct pipeline *p);

#endif
