/* Reading config.json: what the reader of our own keys and that of Hugging Face's share.  For config_*.c only. */
#ifndef DS_MODELS_CONFIG_REPORT_H
#define DS_MODELS_CONFIG_REPORT_H

#include "base/json.h"
#include "models/config.h"

/* What is wrong with a file, all of it: whoever mends a configuration wants to see every place at once. */
struct report {
    struct str text;
    int n, code;
};
void report_add(struct report *r, const char *fmt, ...) DS_PRINTF(2, 3);

/* A number or truth value as text; 0 when it is neither. */
int config_scalar(const struct json_node *n, char text[64]);
/* A row of ours from text, named in messages as the file names it.  least: the smallest size, where ours takes 0 for one
 * that follows from others. */
void config_set_as(struct report *r, struct model_config *c, const char *own, const char *name,
                   const char *text, double least);

/* A file of a family of transformers: shape, and refusal of what is computed otherwise here.  0: model_type is not one of
 * them. */
int config_hf_read(struct report *r, struct model_config *c, const struct json_node *root);
/* Their keys for sizes next to our own keys (of the family of model_type, else Llama's) must agree with them. */
void config_hf_compare(struct report *r, const struct model_config *c,
                       const struct json_node *root);

/* The ids that end a text: eos_token_id of a file as Hugging Face writes it, a number or a list.  An id that the vocabulary
 * does not have can never come and is left out.  0: the file names none. */
int config_hf_ends(struct report *r, struct model_config *c, const struct json_node *root);

#endif
