/* Shared by the subcommands: settings, paths and output. */
#ifndef DS_CLI_CLI_H
#define DS_CLI_CLI_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/json.h"
#include "base/opt.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/table.h"

/* Option groups of commands, for `help keys`; those of other modules are in their own headers. */
extern const struct opt_group convert_group, get_group, trace_group;

/* The nearest of n names by spelling, however far; NULL only for n = 0.  With many names use
 * base/nearest.h, which has a threshold. */
const char *cli_nearest(const char *word, const char *const *names, size_t n);
/* Text that cli_usage prints after the options (borrowed until then). */
void cli_help_after(const char *text);
/* Applies overrides to a group's values, after its defaults.  The error for an unknown key names
 * the nearest. */
int cli_apply(const struct cli_args *a, const struct opt_group *g, void *values,
              struct err *e) DS_CHECK;
/* Moves the settings of a method's options ("halt.rule=kl") from the arguments to *options, which
 * the caller releases. */
struct config;
int cli_take_options(struct cli_args *a, struct config *options, struct err *e) DS_CHECK;
/* 1 when an argument sets the group's key, in any spelling or alias. */
int cli_has_setting(const struct cli_args *a, const struct opt_group *g, const char *key);
/* DS_EUSAGE "KEY=: WHY" when an argument sets one of n keys. */
int cli_refuse_settings(const struct cli_args *a, const struct opt_group *g, const char *const *key,
                        size_t n, const char *why, struct err *e) DS_CHECK;
/* 1 when the argument sets the seed, in any spelling; *value points into it. */
int cli_seed_setting(const char *override, const char **value);
/* The only positional argument; DS_EUSAGE when missing or not the only one. */
int cli_single(const struct cli_args *a, const char *command, const char *what, const char **out,
               struct err *e) DS_CHECK;
/* The preset arguments, followed by that of --mode quick|scratch|transfer: heap array (mem_free),
 * texts borrowed. */
int cli_presets(const struct cli_args *a, const char ***preset, size_t *n, struct err *e) DS_CHECK;
/* All of stdin or of a file ("-" = stdin), at most cap bytes, without a byte-order mark. */
int cli_read_text(struct str *out, const char *path, uint64_t cap, struct err *e) DS_CHECK;
/* A tokenizer file, a directory with one, "bytes", or a model. */
struct tokenizer;
int cli_tokenizer_open(struct tokenizer **t, const char *what, struct err *e) DS_CHECK;
/* "1,2,3" -> heap array (mem_free), each an integer >= 0, no duplicates; as many as a group of runs
 * can have (eval/summary.h). */
enum { CLI_SEEDS_MAX = 256 };
int cli_seeds(int64_t **seed, size_t *n, const char *text, struct err *e) DS_CHECK;
/* As job_find; DS_ENOTFOUND: none. */
int cli_run_path(char *out, size_t size, const char *run, struct err *e) DS_CHECK;

/* An error when no file can be made or replaced at path; a pipe or a device is not tried. */
int cli_output_check(const char *path, struct err *e) DS_CHECK;

/* The run name for `--run GIVEN`: GIVEN itself, or the last part of a path into the runs
 * directory.  The error for another path says how to have runs there. */
int cli_run_name(const char **name, const char *given, struct err *e) DS_CHECK;
/* ", did you mean NAME?" among runs, and commands when `commands_too`; "" when none is near.
 * Returns out. */
const char *cli_run_hint(const char *word, int commands_too, char *out, size_t size);
/* Columns of the terminal on standard output, `none` when it is not a terminal. */
int cli_columns(int none);
/* Appends text from column `at`, wrapped before column `width` (0: not), continuation lines indented
 * to `indent`. */
void cli_add_wrapped(struct str *out, const char *text, int at, int indent, int width);
/* A line of help: `left`, and the text from `column` (nearer on a narrow terminal), below it where
 * `left` is longer. */
void cli_add_entry(struct str *out, const char *left, const char *text, int column, int width);
/* Appends lines, each wrapped before column `width` (0: not) and continued where its last column of
 * text begins. */
void cli_add_lines(struct str *out, const char *text, int width);

/* Text from outside, safe for a terminal, at most `cells` wide (-1: no limit). */
void cli_add_safe(struct str *out, const char *text, size_t n, int cells);
/* Writes all to stdout; DS_EIO when that fails, also for a closed pipe. */
int cli_write(const void *p, size_t n, struct err *e) DS_CHECK;
/* The same with a text; DS_EMEM when it is incomplete. */
int cli_write_text(const struct str *s, struct err *e) DS_CHECK;
/* 1 when the reader of our output has closed the pipe. */
int cli_stdout_closed(int wait_ms);
/* Prints a text on stdout and releases it.  Returns the exit status. */
int cli_print(struct str *s);
/* Runs a command that produces one text: parses, calls make, prints.  Returns the exit status. */
int cli_report(int argc, char **argv, struct cli_option *options,
               int (*make)(const struct cli_args *a, struct str *out, struct err *e));
/* 1 when `stream` is a terminal that may be coloured (no NO_COLOR, TERM not dumb). */
int cli_has_colour(FILE *stream);

#endif
