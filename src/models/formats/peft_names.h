/* Names of adapted matrices as PEFT has them.  For peft*.c and base_ref.c only. */
#ifndef DS_MODELS_PEFT_NAMES_H
#define DS_MODELS_PEFT_NAMES_H

#include "base/json.h"
#include "models/config.h"
#include "models/formats/names.h"

#define PEFT_CONFIG "adapter_config.json"
#define PEFT_WEIGHTS "adapter_model.safetensors"
#define PEFT_OWN "own.safetensors" /* parameters that are not the base's, under our names */

/* The naming of the base model's family. */
const struct names *peft_names(const struct model_config *c);
/* The family's module whose weight or bias is our parameter, or contains it (q, k, v of a GPT-2 or
 * Phi-3 are fused). */
void peft_module(const struct model_config *c, const char *param, struct names_place *out);
/* The module of target t in layer l. */
void peft_target(const struct model_config *c, int l, int t, struct names_place *out);
/* Sets one key of *c. */
int peft_set(struct model_config *c, const char *key, const char *text, struct err *e) DS_CHECK;
/* peft_targets.c: sets lora_targets and lora_save from the keys that name modules, and tied = 0
 * where embedding and head part.  is_tying: ensure_weight_tying. */
int peft_set_modules(struct model_config *c, const struct json_node *root, int is_tying,
                     struct err *e) DS_CHECK;

#endif
