/* Shared by the readers of our own and of Hugging Face's config.json keys.  For config_*.c only. */
#ifndef DS_MODELS_CONFIG_REPORT_H
#define DS_MODELS_CONFIG_REPORT_H

#include "base/json.h"
#include "models/config.h"

/* Collects all errors of a file, so that they can be fixed in one go. */
struct report {
    struct str text;
    int n, code;
};
void report_add(struct report *r, const char *fmt, ...) DS_PRINTF(2, 3);

/* A number or boolean as text; 0 when it is neither. */
int config_scalar(const struct json_node *n, char text[64]);
/* Sets one of our options from text; messages use the file's key.  least: the smallest size, for
 * options where 0 means derived. */
void config_set_as(struct report *r, struct model_config *c, const char *own, const char *name,
                   const char *text, double least);

/* Reads a Hugging Face configuration and reports what is unsupported.  0: model_type is not one of
 * the known families. */
int config_hf_read(struct report *r, struct model_config *c, const struct json_node *root);
/* The options of the method that such a configuration brings along. */
int config_hf_route(struct report *r, struct config *options, const struct json_node *root,
                    const char *path, struct err *e) DS_CHECK;
/* The numbers of Hugging Face's keys, by Llama's names, must agree with our own keys. */
void config_hf_compare(struct report *r, const struct model_config *c,
                       const struct json_node *root);

/* The keys of mixtures of experts; refused in a family without them. */
void config_experts_read(struct report *r, struct model_config *c, const struct json_node *root,
                         const char *model_type);
/* Reports weights of a quantisation that is not read, by name. */
void config_check_quantised(struct report *r, const struct json_node *root);

/* End-of-text ids: eos_token_id, a number or a list.  Ids outside the vocabulary are ignored.  0:
 * the file has none. */
int config_hf_ends(struct report *r, struct model_config *c, const struct json_node *root);

#endif
