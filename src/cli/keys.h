/* The settings of a run, listed from the option tables. */
#ifndef DS_CLI_KEYS_H
#define DS_CLI_KEYS_H

#include "base/opt.h"
#include "base/str.h"

/* Prints the keys of a method or group ("model", "train", "data", "run", "all") with aliases,
 * ranges and defaults, aligned or as one JSON array.  Returns the exit status; 2 for an unknown
 * name, with the nearest one in the message. */
int keys_print(const char *of, int json);
/* The option groups of a command's key=value arguments, ended by a group without a title; empty for
 * a command without settings.  `train` includes those of every method. */
const struct opt_group *keys_groups(const char *command);
/* One group as text: key, default and description, wrapped at `width` columns. */
void keys_lines(struct str *out, const struct opt_group *g, int width);

/* "; can be set while a run trains" for a live setting, else "". */
const char *keys_live_note(const struct opt *o);

#endif
