/* The man page and completion scripts that `make install` writes. */
#ifndef DS_CLI_MANUAL_H
#define DS_CLI_MANUAL_H

#include "base/str.h"

/* depthscope.1 in roff. */
void manual_page(struct str *out);
/* The completion script of "bash", "zsh" or "fish"; NULL for another shell. */
const char *manual_script(const char *shell);

#endif
