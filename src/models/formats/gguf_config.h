/* Converts the metadata of a GGUF file to a configuration.  For load_gguf.c only. */
#ifndef DS_MODELS_GGUF_CONFIG_H
#define DS_MODELS_GGUF_CONFIG_H

#include "io/gguf.h"
#include "models/config.h"

/* What llama.cpp computes with experts, whatever the metadata says: weights that are the scores of
 * the chosen ones, or sum to 1; SHARED: the former, next to a shared expert with a gate. */
enum gguf_experts { GGUF_DENSE, GGUF_EXPERTS_SCORES, GGUF_EXPERTS_SUM_1, GGUF_EXPERTS_SHARED };

/* What an architecture of llama.cpp fixes. */
struct gguf_arch {
    const char *name, *family; /* of model_config_family */
    int has_pairs;             /* q and k are stored with interleaved rotary pairs */
    int norm_place, norm_offset, qk_norm, mlp;
    int window_every; /* blocks but every n-th have the window; 0: the architecture has none */
    int nope_every;   /* every n-th block has no positions; 0: all have */
    int unscaled;     /* number of blocks with which scores are scaled by the size dim / heads */
    enum gguf_experts experts;
    int is_fused; /* q, k and v share a matrix, and so do gate and up */
    int is_layer; /* LayerNorm, and maybe parallel blocks */
    int is_neox;  /* only q, k and v share a matrix */
};
/* The exact GELU of every published GPT-NeoX has no key; our files of those with tanh have this
 * one.  llama.cpp always approximates. */
#define GGUF_MLP "depthscope.mlp"
/* As gguf_place has it. */
static inline int gguf_fused(const struct gguf_arch *a)
{
    return a->is_fused ? 2 : a->is_neox;
}
const struct gguf_arch *gguf_arch_find(const char *name); /* NULL: unsupported */
const struct gguf_arch *gguf_arch_of(const char *family); /* NULL: none */
/* attn_scale as the architecture has it. */
double gguf_arch_scale(const struct gguf_arch *a, const struct model_config *c);
/* The caller releases *c in any case.  Keys that require unsupported computation are refused by
 * name. */
int gguf_config_read(struct model_config *c, const struct gguf_arch **arch, struct gguf *g,
                     const char *path, struct err *e) DS_CHECK;

#endif
