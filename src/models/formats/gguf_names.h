/* GGUF tensor names of the architectures llama and qwen2.  For load*.c and export*.c. */
#ifndef DS_MODELS_GGUF_NAMES_H
#define DS_MODELS_GGUF_NAMES_H

#include <stddef.h>

/* The GGUF name of a parameter: 1, or 0 when it has none. */
int gguf_name(char *out, size_t size, const char *param);

#endif
