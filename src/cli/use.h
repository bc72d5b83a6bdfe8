/* What the subcommands share: opening a terminal's worth of output, key=value options, JSON pieces. */
#ifndef DS_CLI_USE_H
#define DS_CLI_USE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/json.h"
#include "base/opt.h"
#include "base/str.h"
#include "cli/commands.h"

/* Keys of commands, for `help keys`; those of a model, a run, evaluation and generation are in their own headers. */
extern const struct opt_group convert_group, get_group, trace_group;

/* The nearest of n names by spelling, however far; NULL only for n = 0.  Of many names base/nearest.h says whether it is
 * close. */
const char *cli_nearest(const char *word, const char *const *names, size_t n);
/* Text that cli_usage prints behind the options (borrowed until then). */
void cli_help_after(const char *text);
/* Overrides into a group's values (defaults are filled first; config_release'd by itself).  Unknown keys name the nearest. */
int cli_apply(const struct cli_args *a, const struct opt_group *g, void *values,
              struct err *e) DS_CHECK;
/* 1 when a word sets the key of the group, in any spelling and by any of its names. */
int cli_has_setting(const struct cli_args *a, const struct opt_group *g, const char *key);
/* DS_EUSAGE "KEY=: WHY" when a word sets one of n keys. */
int cli_refuse_settings(const struct cli_args *a, const struct opt_group *g, const char *const *key,
                        size_t n, const char *why, struct err *e) DS_CHECK;
/* 1 when the word sets (or removes) the seed, in any spelling: *value is in it. */
int cli_seed_setting(const char *override, const char **value);
/* The one word that names a model or run; DS_EUSAGE when there are none or more. */
int cli_one(const struct cli_args *a, const char *command, const char *what, const char **out,
            struct err *e) DS_CHECK;
/* The words that are presets, and behind them the one of --mode quick|scratch|transfer: heap array (mem_free), texts
 * borrowed. */
int cli_presets(const struct cli_args *a, const char ***preset, size_t *n, struct err *e) DS_CHECK;
/* All of stdin or of a file ("-" = stdin), at most cap bytes. */
int cli_read_text(struct str *out, const char *path, uint64_t cap, struct err *e) DS_CHECK;
/* "1,2,3" -> heap array (mem_free), each an integer >= 0, no duplicates. */
int cli_seeds(int64_t **seed, size_t *n, const char *text, struct err *e) DS_CHECK;
/* RUN as a name below the place of runs, or a path: a directory, log, or trace. */
int cli_run_path(char *out, size_t size, const char *run, struct err *e) DS_CHECK;

/* The name that `--run GIVEN` gives a run: GIVEN itself, or the last part of a path into the place of runs.  Of another
 * path the message says how to have runs there. */
int cli_run_name(const char **name, const char *given, struct err *e) DS_CHECK;
/* ", did you mean NAME?" for a word that may be the name of a run, or of a command when `commands_too`; "" when none is
 * near.  Returns out. */
const char *cli_run_hint(const char *word, int commands_too, char *out, size_t size);
/* Columns of the terminal on standard output, 80 where there is none. */
int cli_columns(void);

/* Text from outside, safe for a terminal, at most `cells` wide (-1: no limit). */
void cli_add_safe(struct str *out, const char *text, size_t n, int cells);
/* Writes all to stdout; DS_EIO when that fails (a closed pipe is told as such). */
int cli_write(const void *p, size_t n, struct err *e) DS_CHECK;
/* 1 when whoever read our output has gone: then there is nothing left to say. */
int cli_reader_gone(int wait_ms);
/* Prints a finished text on stdout; takes and releases it. Returns the exit status. */
int cli_print(struct str *s);
/* A command whose work is one text: parses, makes it, prints it; the exit status. */
int cli_report(int argc, char **argv, struct cli_option *options,
               int (*make)(const struct cli_args *a, struct str *out, struct err *e));
/* 1 when `stream` is a terminal that may be coloured (no NO_COLOR, TERM not dumb). */
int cli_has_colour(FILE *stream);

/* A table: rows of cells, columns as wide as their widest; numbers right-aligned (column > 0). */
struct table {
    struct str *cell;
    size_t columns, n, cap;
    int failed;
};
void table_init(struct table *t, size_t columns);
void table_add(struct table *t, const char *text); /* sanitised */
void table_addf(struct table *t, const char *fmt, ...) DS_PRINTF(2, 3);
void table_print(const struct table *t, struct str *out);
void table_release(struct table *t);

#endif
