/* Names of adapted matrices as PEFT has them.  For peft*.c only. */
#ifndef DS_MODELS_PEFT_NAMES_H
#define DS_MODELS_PEFT_NAMES_H

#include "models/config.h"
#include "models/formats/names.h"

#define PEFT_CONFIG "adapter_config.json"
#define PEFT_WEIGHTS "adapter_model.safetensors"
#define PEFT_OWN "own.safetensors" /* what a model has beside its base, under our names */

/* The naming of the family that the base of this model belongs to: adapters and method apart. */
const struct names *peft_names(const struct model_config *c);
/* The module of that family whose weight our parameter is; of a fused one (q, k, v of a GPT-2) it is a part. */
void peft_module(const struct names *n, const char *param, struct names_place *out);
/* That of target t of layer l. */
void peft_target(const struct names *n, int l, int t, struct names_place *out);

#endif
