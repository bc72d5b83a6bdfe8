/* The settings a run takes, listed from the option tables. */
#ifndef DS_CLI_KEYS_H
#define DS_CLI_KEYS_H

/* Prints the keys of a method or group ("model", "train", "data", "run", "all"): other names, ranges and defaults, aligned
 * or as one JSON array.  Returns the exit status: 2 for an unknown name, which names the nearest. */
int keys_print(const char *of, int json);

#endif
