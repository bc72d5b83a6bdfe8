/* Self-speculative decoding of one sequence: a cheaper way through the same model drafts some
 * tokens, one pass of the target verifies them all, and the longest prefix that the target agrees
 * with stays.  Greedy: the ids are those of ordinary decoding, to the last one (row guarantee of
 * engine/gemm.h).  Sampling: accept with min(1, p/q), else draw from (p - q)+, so that every token
 * has the target's distribution (Leviathan 2022, Chen 2023).
 *
 * Where draft and target both run every layer, what they share is computed once: keys and states of
 * the layers below the first that the draft skips. */
#ifndef DS_MODELS_SPECULATE_H
#define DS_MODELS_SPECULATE_H

#include "models/model.h"
#include "models/sample.h"

enum spec_kind {
    SPEC_EXIT,     /* the first layers, then the head */
    SPEC_SKIP,     /* all layers but some, for every token */
    SPEC_CAPACITY, /* the method at another capacity */
    SPEC_ROUTED,   /* the method's decisions; the target is dense */
};
struct spec_draft {
    enum spec_kind kind;
    int exit;
    double capacity;
    uint8_t *closed; /* (L) of SPEC_SKIP, owned */
};
enum { SPEC_MOST = 64 }; /* drafted tokens per pass */
/* "exit:6", "skip:3,5-8" (layers from 0), "capacity:0.4" or "routed", checked against the model and
 * the pass that it drafts for.  DS_EUSAGE, DS_ERANGE. */
int spec_draft_parse(struct spec_draft *out, const char *text, const struct model *m,
                     const struct pass *target, struct err *e) DS_CHECK;
void spec_draft_release(struct spec_draft *d);

struct spec;
/* Borrows m and cache, which is empty, or has been fed by a target that runs every layer when the
 * draft exits.  most: drafted tokens per round, at most
 * SPEC_MOST; m gets buffers for as many rows.  DS_EUSAGE when the GEMMs lack the row guarantee. */
int spec_new(struct spec **out, struct model *m, const struct spec_draft *d,
             const struct pass *target, struct kv_cache *cache, int most, struct err *e) DS_CHECK;
void spec_free(struct spec *s);
/* After the target's last pass, an ordinary one over the n tokens id: the draft sees them too.
 * Clobbers that pass. */
int spec_follow(struct spec *s, const int32_t *id, int n, struct err *e) DS_CHECK;

/* The draft length, 1 .. most, with the highest expected speed-up where each drafted token is
 * accepted with probability a and costs `cost` ordinary ones (Leviathan 2022, Theorem 3.8). */
int spec_best_length(double a, double cost, int most);

struct spec_ask {
    const int32_t *id; /* the text, of which the cache has seen all tokens but the last */
    size_t n;
    int most;   /* drafted tokens; 0 .. `most` of spec_new, fewer when the cache ends */
    int adapts; /* fewer: spec_best_length of the last rounds' acceptance and FLOPs, no times,
                        * so that a seed draws the same text again */
    double confidence; /* the draft stops before a token whose largest probability is below */
    struct sample_options sample; /* of both; the place in the text is the step */
    int forced;                   /* -1; else so many drafted tokens are accepted, right or wrong */
};
/* The last pass of the model was the target's over the text's last token (row 0) and the drafted
 * ones.  Row i has the logits after token i. */
struct spec_round {
    int drafted, accepted;
    const int32_t *id;  /* (drafted) */
    const real *logits; /* (drafted + 1, V) */
    int32_t next;       /* sampling: the token drawn in place of the rejected one; -1: none */
};
int spec_run(struct spec *s, const struct spec_ask *ask, struct spec_round *out,
             struct err *e) DS_CHECK;
/* Ends the round: the caches keep its first `rows` rows, at least one and at most accepted + 1.
 * Clobbers the last pass. */
int spec_keep(struct spec *s, int rows, struct err *e) DS_CHECK;

/* When the target's cache has been reset. */
void spec_reset(struct spec *s);

/* Sums since spec_new. */
struct spec_counts {
    int64_t rounds, drafted, accepted;
    double flops;  /* of everything but the target's prompt */
    double wasted; /* the part that is not in kept rows: drafts, their prompt, rejected rows */
};
const struct spec_counts *spec_counts(const struct spec *s);

#endif
