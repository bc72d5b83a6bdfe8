/* Text from a model, one token at a time over a KV cache, with what every token cost. */
#ifndef DS_EVAL_GENERATION_H
#define DS_EVAL_GENERATION_H

#include "base/opt.h"
#include "eval/subject.h"

struct gen_options {
    double temperature, top_p, threshold_offset;
    double capacity, target_speedup; /* -1: the method's own; 0: none is wanted */
    int64_t top_k, max_tokens, seed, threads, time_rounds;
    int routing, speedup_by; /* enum gen_routing; enum speedup_by of eval/perplexity.h */
    struct number_options numbers;
};
enum gen_routing { GEN_CAUSAL, GEN_TOPK /* whole texts only: refused */, GEN_DENSE };
extern const struct opt_group gen_group;

enum gen_stop { GEN_STOP_LENGTH, GEN_STOP_EOT, GEN_STOP_CONTEXT, GEN_STOP_ASKED };
extern const char *const gen_stop_name[]; /* "length", "end of text", "context full", "stopped" */

/* Called for every token when it has been through the model, prompt first; not 0 stops. */
typedef int gen_token_fn(void *ctx, int is_prompt, int32_t id, int depth);
struct gen_result {
    struct ids ids; /* prompt, then what was made; n_prompt of the first */
    size_t n_prompt;
    int *depth; /* (ids.n) layers that ran                            */
    enum gen_stop stop;
    double block_ratio, flops_ratio; /* over all tokens, from the plans that ran      */
    double tok_s;                    /* made tokens per second, after the prompt           */
    double
        time_ratio; /* decoding these tokens again / the same dense, median of pairs in turn; NaN: not measured */
};
/* May text be made so?  DS_EUSAGE with one line of advice.  gen_run asks it first. */
int gen_check(const struct subject *s, const struct gen_options *o, struct err *e) DS_CHECK;
/* prompt: ids, at least one. DS_ENUMERIC when logits are damaged, DS_ERANGE when the prompt fills the context. */
int gen_run(struct gen_result *out, struct subject *s, const struct ids *prompt,
            const struct gen_options *o, gen_token_fn *each, void *ctx, struct err *e) DS_CHECK;
void gen_result_release(struct gen_result *r);
/* Prompt ids of a text; an empty one becomes the end-of-text token, if there is one. */
int gen_prompt(const struct subject *s, const char *text, size_t n, struct ids *out,
               struct err *e) DS_CHECK;

#endif
