/* The settings a run takes, listed from the option tables. */
#ifndef DS_CLI_KEYS_H
#define DS_CLI_KEYS_H

#include "base/opt.h"
#include "base/str.h"

/* Prints the keys of a method or group ("model", "train", "data", "run", "all"): other names, ranges and defaults, aligned
 * or as one JSON array.  Returns the exit status: 2 for an unknown name, which names the nearest. */
int keys_print(const char *of, int json);
/* The groups that key=value words of a command belong to, ended by a group without a title; none for a command that takes
 * no such words.  `train` has those of every method. */
const struct opt_group *keys_groups(const char *command);
/* One group for people: key, default, and what it is, wrapped at `width` columns. */
void keys_lines(struct str *out, const struct opt_group *g, int width);

#endif
