/* State of texts during generation; for generation*.c only. */
#ifndef DS_EVAL_GENERATION_IMPL_H
#define DS_EVAL_GENERATION_IMPL_H

#include "eval/generation.h"
#include "models/speculate.h"

/* The generated text, of which the first `settled` bytes have been passed to the watcher. */
struct gen_run_of { /* bytes up to `end` came with a token of this depth */
    size_t end;
    int depth;
};
struct gen_text {
    struct str *all; /* the result's */
    size_t settled, scanned;
    struct gen_run_of *run;
    size_t n_run, cap_run, first_run; /* runs from first_run on are not fully settled */
};
void gen_text_reset(struct gen_text *t, struct str *all);
void gen_text_release(struct gen_text *t);
/* Adds a token's bytes.  *found: a stop string was found, and the text now ends before it. */
int gen_text_add(struct gen_text *t, const struct gen_rules *rules, const char *p, size_t n,
                 int depth, int *found, struct err *e) DS_CHECK;
/* Passes the certain bytes (all: every byte) to the watcher.  Below 0: the watcher's error. */
int gen_text_settle(struct gen_text *t, const struct gen_rules *rules, int all,
                    const struct gen_watch *watch, size_t k, int is_prompt) DS_CHECK;

struct gen_seq {
    size_t k; /* which text; its prompt is out's first ids */
    struct gen_result *out;
    struct kv_cache *cache;
    struct gen_text text;
    size_t cap;           /* capacity of out in tokens */
    size_t made;          /* of this turn                 */
    uint64_t seed, state; /* state: of llama2.c's generator */
    real *logits;         /* (V) after the last token       */
    double run, cells, flops, dense, began;
    double flops_before, wasted; /* flops: of the prompt; of drafts counted so far */
    struct spec *spec;           /* NULL: ordinary decoding */
    struct spec_counts before;   /* of the turns before */
    int32_t next;                /* the next token when it has been drawn already, else -1 */
    enum gen_mark mark;          /* of the next token */
    int is_fed;                  /* the cache has the prompt, or feeding was stopped */
    int is_done;
    int begins; /* the next piece starts a text: the vocabulary's leading space is dropped */
};
struct gen_walk {
    struct subject *s;
    const struct gen_options *o;
    const struct gen_rules *rules;
    const struct gen_watch *watch;
    struct sampler sampler;
    real *logits;            /* (rows, V) of a step, or of prompt tokens */
    int32_t *id;             /* of a pass */
    struct kv_cache **cache; /* (slots) of a step */
    struct gen_seq *seq;     /* (slots) */
    struct gen_seq **active; /* (slots) of a step */
    int slots;
};
/* Allocates for `slots` texts at once, prompts of at most `most` tokens. */
int gen_walk_init(struct gen_walk *w, int slots, size_t most, struct err *e) DS_CHECK;
void gen_walk_release(struct gen_walk *w);
/* Starts text k in slot q with capacity for cap tokens. */
int gen_seq_begin(struct gen_walk *w, struct gen_seq *q, size_t k, struct gen_result *out,
                  size_t cap, struct err *e) DS_CHECK;
void gen_seq_release(struct gen_seq *q);
/* Adds the prompt's ids; the answer starts after them. */
int gen_seq_feed(struct gen_walk *w, struct gen_seq *q, const struct ids *prompt,
                 struct err *e) DS_CHECK;
/* Computes the prompts that were added since, as many as fit in a pass at once. */
int gen_walk_feed(struct gen_walk *w, struct err *e) DS_CHECK;
/* Decodes one token for each active slot. */
int gen_walk_step(struct gen_walk *w, struct err *e) DS_CHECK;
int gen_is_stopped(const struct gen_walk *w);
/* Ends a text: passes on the held-back bytes and computes the ratios. */
int gen_seq_end(struct gen_walk *w, struct gen_seq *q) DS_CHECK;
/* Most tokens per draft, 0: ordinary decoding; adapts: fewer by what was accepted. */
int gen_draft_length(const struct gen_options *o, int *most, int *adapts, struct err *e) DS_CHECK;
struct pass gen_pass(const struct gen_options *o, uint64_t seed);

#endif
