/* Converts the metadata of a GGUF file to a configuration.  For load_gguf.c only. */
#ifndef DS_MODELS_GGUF_CONFIG_H
#define DS_MODELS_GGUF_CONFIG_H

#include "io/gguf.h"
#include "models/config.h"

enum { GGUF_ARCH_SIZE = 16 };
/* The caller releases *c in any case.  arch: "llama" or "qwen2".  Keys that require unsupported
 * computation are refused by name. */
int gguf_config_read(struct model_config *c, char arch[GGUF_ARCH_SIZE], struct gguf *g,
                     const char *path, struct err *e) DS_CHECK;

#endif
