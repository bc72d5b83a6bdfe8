/* Converts the metadata of a GGUF file to a configuration.  For load_gguf.c only. */
#ifndef DS_MODELS_GGUF_CONFIG_H
#define DS_MODELS_GGUF_CONFIG_H

#include "io/gguf.h"
#include "models/config.h"

/* What an architecture of llama.cpp fixes. */
struct gguf_arch {
    const char *name, *family; /* of model_config_family */
    int has_pairs;             /* q and k are stored with interleaved rotary pairs */
    int norm_place, norm_offset, qk_norm, mlp;
    int window_every; /* blocks but every n-th have the window; 0: the architecture has none */
    int nope_every;   /* every n-th block has no positions; 0: all have */
    int unscaled;     /* number of blocks with which scores are scaled by the size dim / heads */
};
const struct gguf_arch *gguf_arch_find(const char *name); /* NULL: unsupported */
const struct gguf_arch *gguf_arch_of(const char *family); /* NULL: none */
/* attn_scale as the architecture has it. */
double gguf_arch_scale(const struct gguf_arch *a, const struct model_config *c);
/* The caller releases *c in any case.  Keys that require unsupported computation are refused by
 * name. */
int gguf_config_read(struct model_config *c, const struct gguf_arch **arch, struct gguf *g,
                     const char *path, struct err *e) DS_CHECK;

#endif
