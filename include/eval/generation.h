/* Text from a model, token by token over KV caches, with what every token cost.  Several texts are decoded together: a step
 * reads the weights once for all of them, and each gets the bits that it would get alone. */
#ifndef DS_EVAL_GENERATION_H
#define DS_EVAL_GENERATION_H

#include "base/opt.h"
#include "eval/subject.h"
#include "models/sample.h"

struct gen_options {
    double temperature, top_p, threshold_offset;
    double capacity, target_speedup; /* -1: the method's own; 0: none is wanted */
    int64_t top_k, max_tokens, seed, threads, time_rounds;
    int64_t logprobs, echo, together;
    int routing, speedup_by; /* enum gen_routing; enum speedup_by of eval/perplexity.h */
    int sampler, template;   /* enum gen_sampler; enum chat_template of data/chat.h    */
    struct number_options numbers;
};
enum gen_routing { GEN_CAUSAL, GEN_TOPK /* whole texts only: refused */, GEN_DENSE };
enum gen_sampler { GEN_SAMPLER_OWN, GEN_SAMPLER_LLAMA2C };
enum { GEN_LOGPROBS_MAX = 20 };
extern const struct opt_group gen_group;

enum gen_stop { GEN_STOP_LENGTH, GEN_STOP_EOT, GEN_STOP_CONTEXT, GEN_STOP_ASKED, GEN_STOP_TEXT };
/* "length", "end of text", "context full", "stopped", "stop string" */
extern const char *const gen_stop_name[];

/* What ends a text next to its length, the context and the ids of model.end_ids (none: the tokenizer's end of text).
 * Borrowed. */
struct gen_rules {
    const char *const *stop; /* texts, not empty; what is made ends before the first that appears */
    size_t n_stop;
    const int32_t *end; /* ids: of a turn */
    size_t n_end;
};

struct gen_result {
    struct ids ids; /* prompt, then what was made; n_prompt of the first */
    size_t n_prompt;
    int *depth;              /* (ids.n) layers that ran                                    */
    double *logprob;         /* (ids.n) with logprobs above 0, else NULL; NaN: not known    */
    struct sample_rank *top; /* (ids.n, logprobs): the most likely in the token's place     */
    int *n_top;              /* (ids.n) of them                                             */
    struct str text;         /* what was made: up to the stop string, without special tokens */
    enum gen_stop stop;
    double block_ratio, flops_ratio; /* over all tokens, from the plans that ran */
    double tok_s;                    /* made tokens per second, after the prompt */
    /* Decoding these tokens again / the same dense, median of pairs in turn; NaN: not measured. */
    double time_ratio;
};

/* Who looks on; every part may be NULL.  k: which text. */
struct gen_watch {
    /* Bytes that are certain to stay: whole characters, nothing that may be the beginning of a stop string.  depth: of the
     * token they came with. */
    int (*text)(void *ctx, size_t k, const char *p, size_t n, int depth, int is_prompt);
    /* A token has been through the model; its text comes before, as far as it is certain. */
    int (*token)(void *ctx, size_t k, const struct gen_result *r, size_t at);
    /* The text is whole.  Texts are done in any order. */
    int (*done)(void *ctx, size_t k, struct gen_result *r);
    /* Asked around every step.  1 (and it stays so): texts on their way are done as they are, GEN_STOP_ASKED; of those that
     * have not begun depth is NULL, and nothing is told. */
    int (*is_stopped)(void *ctx);
    void *ctx;
}; /* below 0 ends it all with that error, which the callback has told */

/* May text be made so?  DS_EUSAGE with one line of advice.  Opening asks it first. */
int gen_check(const struct subject *s, const struct gen_options *o, struct err *e) DS_CHECK;
/* out (n), one for each prompt: ids, at least one; text k is drawn at seed + k.  The lists of ids are taken.  At most o->together
 * texts are on their way at once.  DS_ENUMERIC when logits are damaged, DS_ERANGE when a prompt fills the context.
 * rules and watch may be NULL. */
int gen_run(struct gen_result *out, struct subject *s, const struct ids *prompt, size_t n,
            const struct gen_options *o, const struct gen_rules *rules,
            const struct gen_watch *watch, struct err *e) DS_CHECK;
void gen_result_release(struct gen_result *r);
/* Prompt ids of a text; an empty one becomes the end-of-text token, if there is one. */
int gen_prompt(const struct subject *s, const char *text, size_t n, struct ids *out,
               struct err *e) DS_CHECK;

/* One text that goes on by turns: what was said stays in the cache.  Borrows all but `out`. */
struct gen_talk;
int gen_talk_open(struct gen_talk **out, struct subject *s, const struct gen_options *o,
                  const struct gen_rules *rules, const struct gen_watch *watch,
                  struct err *e) DS_CHECK;
/* Adds ids, then makes an answer; *r (borrowed, until the next call) is the whole text, n_prompt where the answer begins.
 * DS_ERANGE when the ids do not fit into what is left of the context: then nothing has changed. */
int gen_talk_turn(struct gen_talk *t, const struct ids *more, struct gen_result **r,
                  struct err *e) DS_CHECK;
void gen_talk_reset(struct gen_talk *t);
void gen_talk_close(struct gen_talk *t);

#endif
