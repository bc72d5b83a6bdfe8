/* Documents whose tokens have exactly known required depth: random permutations of a few nodes,
 * then queries that compose them.
 *
 * A document lists R random permutations f_A, f_B, ... of n nodes as n * R edge tokens and then
 * asks queries.  A query is a start node a, a hop count k and k operators b_1..b_k, all drawn
 * uniformly; its answer is f_bk(... f_b1(a)): k lookups, each of which needs the one before it.
 * Words, one token each:
 *     A3>5;   edge: f_A(3) = 5            =5.    answer: node 5
 *     ?3AB:   query from node 3 by f_A, then f_B (operators=folded)
 *     ?3*2:   query from node 3 of two hops, followed by an operator word +A, per hop (step)
 * All documents of a set of options have the same structure, so that nothing but the values is
 * uncertain.  Exact conditional entropy of a word given all before it, in nats:
 *     edge    canonical order (relation by relation, source by source): ln of the destinations left
 *             in its relation.  random order: ln of the edges left (all relations) + the mean of ln
 *             (destinations left in its relation) over these
 *     query   ln n + ln(hop counts) (+ mean k * ln R when folded);   operator  ln R
 *     answer, end of the document    0
 * Filler is story text (synth.h) with its own entropies.  The required depth of a token is k for an
 * answer, 0 for all others: the position that predicts the answer must do k lookups in sequence.
 * With isolate each query and its answer are a private span (corpus.h). */
#ifndef DS_DATA_HOPS_H
#define DS_DATA_HOPS_H

#include <stdint.h>

#include "base/err.h"
#include "base/opt.h"
#include "base/str.h"

enum { HOPS_K_MAX = 16, HOPS_WORDS_MAX = 65536, HOPS_WORD_MAX = 32 };
enum { HOPS_CANONICAL, HOPS_RANDOM };
enum { HOPS_FOLDED, HOPS_STEP };

/* Keys "hops.*". */
struct hops_options {
    int64_t n, relations, k, only, queries, filler;
    int order, operators, isolate;
};
extern const struct opt_group hops_group;

/* Constraints between options. */
int hops_check(const struct hops_options *o, struct err *e) DS_CHECK;
/* Tokens of the longest document with its end-of-text token, without filler. */
int64_t hops_tokens(const struct hops_options *o);
/* The vocabulary: number of words, and the text of word i (shorter than
 * HOPS_WORD_MAX) appended to *out. */
int64_t hops_words(const struct hops_options *o);
void hops_word(const struct hops_options *o, int64_t i, struct str *out);

#endif
