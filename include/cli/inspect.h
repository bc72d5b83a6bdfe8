#ifndef DS_CLI_INSPECT_H
#define DS_CLI_INSPECT_H

#include "cli/use.h"

/* What is in a file or directory, as text for a terminal. */
int inspect_path(const char *path, struct str *out, struct err *e) DS_CHECK;
/* Metadata and tensors of a GGUF file; the header of a llama2.c model. */
int inspect_gguf(const char *path, struct str *out, struct err *e) DS_CHECK;
int inspect_llama2c(const char *path, struct str *out, struct err *e) DS_CHECK;

#endif
