/* Text generation with KV caches, and the cost of every token.  Batched decoding: a step reads the
 * weights once for all texts, and each text gets bit-identical results to decoding it alone. */
#ifndef DS_EVAL_GENERATION_H
#define DS_EVAL_GENERATION_H

#include "base/opt.h"
#include "eval/subject.h"
#include "models/sample.h"

struct gen_options {
    double temperature, top_p, min_p, threshold_offset;
    double capacity, target_speedup; /* -1: the method's own; 0: none */
    int64_t top_k, max_tokens, seed, threads, time_rounds;
    int64_t logprobs, echo, batch;
    int routing, speedup_by; /* enum gen_routing; enum speedup_by of eval/perplexity.h */
    int sampler, template;   /* enum gen_sampler; enum chat_template of data/chat.h    */
    int thinking;            /* enum chat_thinking of data/chat.h */
    struct numeric_options numbers;
    int64_t exit_layer;      /* the first layers only; 0: all */
    char *speculate, *draft; /* speculative decoding; NULL or "off", NULL or "": none */
    double confidence;       /* of drafts; 0: by `speculate` */
};
enum gen_routing { GEN_CAUSAL, GEN_TOPK /* whole texts only: rejected */, GEN_DENSE };
enum gen_sampler { GEN_SAMPLER_OWN, GEN_SAMPLER_LLAMA2C };
enum { GEN_LOGPROBS_MAX = 20 };
extern const struct opt_group gen_group;

/* How a generated token came to be: drawn from the whole model's distribution after it had run;
 * drafted, then accepted; or drawn in place of a drafted one that was rejected. */
enum gen_mark { GEN_ORDINARY, GEN_ACCEPTED, GEN_CORRECTED };
extern const char *const gen_mark_name[]; /* "ordinary", "accepted", "corrected" */

enum gen_stop { GEN_STOP_LENGTH, GEN_STOP_EOT, GEN_STOP_CONTEXT, GEN_STOP_ASKED, GEN_STOP_TEXT };
/* "length", "end of text", "context full", "stopped", "stop string" */
extern const char *const gen_stop_name[];

/* What ends a text besides its length, the context and the ids of model.end_ids (none: the
 * tokenizer's end of text).  Borrowed. */
struct gen_rules {
    const char *const *stop; /* non-empty strings; the text ends before the first that occurs */
    size_t n_stop;
    const int32_t *end; /* ids that end a turn */
    size_t n_end;
};

struct gen_result {
    struct ids ids; /* prompt (n_prompt ids), then the generated ids */
    size_t n_prompt;
    int *depth;              /* (ids.n) executed layers                                    */
    double *logprob;         /* (ids.n) with logprobs above 0, else NULL; NaN: unknown      */
    struct sample_rank *top; /* (ids.n, logprobs): the most likely alternatives            */
    int *n_top;              /* (ids.n) number of them                                      */
    uint8_t *mark;           /* (ids.n) enum gen_mark */
    struct str text;         /* generated text: up to the stop string, without special tokens */
    enum gen_stop stop;
    double block_ratio, flops_ratio; /* over all tokens, from the executed plans */
    double tok_s;                    /* generated tokens per second, after the prompt */
    double flops_token; /* per generated token: all that was computed after the prompt */
    int64_t rounds, drafted, accepted; /* speculative decoding of the generated ids */
    /* Time of decoding these tokens again / the same dense, median of alternating pairs; NaN: not
     * measured. */
    double time_ratio;
};

/* Callbacks during generation; each may be NULL.  k: index of the text. */
struct gen_watch {
    /* Bytes that are final: whole characters, no possible prefix of a stop string.  depth: of the
     * token they came with. */
    int (*text)(void *ctx, size_t k, const char *p, size_t n, int depth, int is_prompt);
    /* A token has been through the model; its final text is passed before. */
    int (*token)(void *ctx, size_t k, const struct gen_result *r, size_t at);
    /* The text is complete.  Texts end in any order. */
    int (*done)(void *ctx, size_t k, struct gen_result *r);
    /* Polled around every step.  1 (and it must stay so): active texts end with GEN_STOP_ASKED;
     * texts that have not started have depth NULL and no callbacks. */
    int (*is_stopped)(void *ctx);
    void *ctx;
}; /* a result below 0 ends generation with that error, which the callback has reported */

/* Checks that text can be generated with these options; DS_EUSAGE with advice.  Called first by
 * gen_run and gen_chat_open. */
int gen_check(const struct subject *s, const struct gen_options *o, struct err *e) DS_CHECK;
/* out (n): one result per prompt, which has at least one id; text k is sampled with seed + k.
 * At most o->batch texts are decoded at once.  DS_ENUMERIC
 * when logits are not finite, DS_ERANGE when a prompt fills the context.  rules and watch may be
 * NULL. */
int gen_run(struct gen_result *out, struct subject *s, const struct ids *prompt, size_t n,
            const struct gen_options *o, const struct gen_rules *rules,
            const struct gen_watch *watch, struct err *e) DS_CHECK;
void gen_result_release(struct gen_result *r);
/* Speculative against ordinary decoding of one prompt: `rounds` pairs in turn, medians.  Texts of
 * greedy decoding are the same. */
struct gen_pair {
    double tok_s, ordinary_tok_s, speedup; /* speedup: of the pairs */
    double flops_token, ordinary_flops_token;
    double acceptance; /* of drafted tokens; NaN without any */
    int is_same;       /* the ids of both are equal */
};
int gen_compare(struct gen_pair *out, struct subject *s, const struct ids *prompt,
                const struct gen_options *o, const struct gen_rules *rules, int rounds,
                struct err *e) DS_CHECK;
/* 1 when the options ask for speculative decoding. */
int gen_speculates(const struct gen_options *o);
/* Prompt ids of a text; an empty text becomes the end-of-text token, if the tokenizer has one. */
int gen_prompt(const struct subject *s, const char *text, size_t n, struct ids *out,
               struct err *e) DS_CHECK;

/* A chat: earlier turns stay in the KV cache.  Borrows all but `out`. */
struct gen_chat;
int gen_chat_open(struct gen_chat **out, struct subject *s, const struct gen_options *o,
                  const struct gen_rules *rules, const struct gen_watch *watch,
                  struct err *e) DS_CHECK;
/* Adds ids, then generates an answer; *r (borrowed until the next call) is the whole text, n_prompt
 * where the answer starts.  DS_ERANGE when the ids do not fit into the rest of the context: then
 * nothing has changed. */
int gen_chat_turn(struct gen_chat *t, const struct ids *more, struct gen_result **r,
                  struct err *e) DS_CHECK;
void gen_chat_reset(struct gen_chat *t);
void gen_chat_close(struct gen_chat *t);

#endif
