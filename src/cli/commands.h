/* The command line.  A subcommand is one file in src/cli/ and one line in main.c's table. */
#ifndef DS_CLI_COMMANDS_H
#define DS_CLI_COMMANDS_H

#include <stddef.h>

#include "base/err.h"

/* Returns the exit status: 0 done, 1 failed, 2 usage.  argv[0] is the subcommand's name. */
struct cli_option;
typedef int command_fn(int argc, char **argv);
enum command_word {
    WORD_NONE,
    WORD_RUN,
    WORD_MODEL,
    WORD_PRESET,
    WORD_FIGURE,
    WORD_COMMAND,
    WORD_RUNS
};
struct command {
    const char *name, *args, *summary;
    command_fn *run;
    const struct cli_option *options; /* ends with name NULL */
    enum command_word word;           /* what its words name, for completion */
};
extern const struct command commands[]; /* ends with name NULL */

command_fn ablate_command, bench_command, calibrate_command, compare_command, complete_command,
    convert_command, doctor_command, eval_command, figure_command, generate_command, get_command,
    help_command, inspect_command, isoflop_command, pipeline_command, presets_command, runs_command,
    serve_command, stop_command, stream_command, sweep_command, tokenize_command, trace_command,
    train_command, workbench_command;

/* Prints "depthscope: TEXT" on stderr and returns the exit status for e->code. */
int command_fail(const struct err *e);
/* Splits argv[1..] into options ("--name value", "--name=value", "--flag"), overrides
 * (base/config.h, and "--a.b v" for a key of the command, see cli/keys.h) and positional
 * arguments.  The error for an unknown option names the nearest option or key. */
struct cli_option {
    const char *name;
    int has_value;
    const char *value;
    int is_set;
    const char *help;
};
extern struct cli_option ablate_options[], bench_options[], calibrate_options[], compare_options[],
    complete_options[], convert_options[], doctor_options[], eval_options[], figure_options[],
    generate_options[], get_options[], help_options[], inspect_options[], isoflop_options[],
    pipeline_options[], presets_options[], runs_options[], serve_options[], stop_options[],
    stream_options[], sweep_options[], tokenize_options[], trace_options[], train_options[];
struct cli_given {
    const struct cli_option *option;
    const char *value;
};
struct cli_args {
    struct cli_option *option; /* ends with name NULL */
    const char **rest;         /* heap, mem_free */
    const char **override;     /* heap, mem_free */
    int n_rest, n_override;
    char **made; /* heap: overrides that were written as "--a.b v" */
    int n_made;
    const struct cli_given *given; /* heap, mem_free: every option with a value, in order */
    int n_given;
};
int cli_parse(struct cli_args *a, struct cli_option *options, int argc, char **argv,
              struct err *e) DS_CHECK;
void cli_release(struct cli_args *a);
const char *cli_value(const struct cli_args *a, const char *name); /* the last; NULL when absent */
/* The i-th value of a repeatable option, NULL after the last. */
const char *cli_value_at(const struct cli_args *a, const char *name, int i);
int cli_flag(const struct cli_args *a, const char *name);
void cli_usage(const char *command, const struct cli_option *options);
/* The i-th verb of `runs` ("tag"), NULL after the last. */
const char *runs_verb(int i);
/* The options of the workbench, which is not in the table of commands. */
const struct cli_option *workbench_options(void);
/* Directory of data files ("data", "themes"): next to the program, else the installed path; `out`
 * has `size` bytes. */
int cli_data_dir(char *out, size_t size, const char *what, struct err *e) DS_CHECK;

#endif
