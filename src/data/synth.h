/* An endless source of small stories from a stochastic grammar whose every choice has a known
 * probability, so that the exact conditional entropy of what comes next is known at every byte.
 *
 * With p(. | past) the true distribution of the next symbol (256 bytes, or the end of the story)
 * given all bytes of the story so far:
 *     entropy[i]   = -sum_s p(s | text[0..i)) ln p(s | text[0..i))        nats; 0 where the past
 * decides surprisal[i] = -ln p(text[i] | text[0..i))                          nats and [n] (n =
 * length of the text) is the same for the end of the story, the end-of-text token. Both are exact
 * up to rounding: grammar.h says how.  sum_i E[surprisal[i]] = sum_i E[entropy[i]] = the entropy of
 * a story.
 *
 * The true entropy of a TOKEN that covers the bytes i..j is the sum of entropy[i..j], each taken
 * along the bytes that did come: what an ideal reader expects to pay for these bytes, summed as it
 * goes. That of the end-of-text token is entropy[n].  Its mean over tokens is a lower bound for the
 * mean loss of any model; a single token may be below it by chance.  (Given the token boundaries an
 * ideal model could know a little more than the bytes say, where a tokenizer would have cut another
 * continuation differently.)
 *
 * Stories mix trivial spans (formulae, copies of earlier names, sums, repeated lists) with hard
 * ones (free choices), so depth can be compared with true difficulty. */
#ifndef DS_DATA_SYNTH_H
#define DS_DATA_SYNTH_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "data/grammar.h"

enum { SYNTH_STORY_MAX = 4096 };

extern const struct grammar_rule synth_rules[];
extern const size_t synth_rules_n;

/* Story number `index` at `seed`, appended to *text (ASCII, at most SYNTH_STORY_MAX bytes;
 * paragraphs are separated by a blank line).  *entropy and *surprisal, n + 1 values each, are heap
 * blocks that the caller frees with mem_free; either pointer may be NULL. */
int synth_story(uint64_t seed, uint64_t index, struct str *text, float **entropy, float **surprisal,
                struct err *e) DS_CHECK;
/* The same with the grammar compiled once (grammar_new(&g, synth_rules, synth_rules_n, e)). */
int synth_story_of(const struct grammar *g, uint64_t seed, uint64_t index, struct str *text,
                   float **entropy, float **surprisal, struct err *e) DS_CHECK;

#endif
