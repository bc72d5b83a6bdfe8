/* An endless source of small stories from a stochastic grammar whose every choice has a known
 * probability, so that the exact conditional entropy of what comes next is known at every byte.
 *
 * Entropy at a byte = H(next choice | everything before) at the position where the text can first differ
 * between alternatives, in nats; bytes that are determined by the past have 0.  The per-TOKEN value is the sum over its bytes'
 * conditional surprisal expectation as documented in synth.c.  Stories mix trivial spans (formulae, copies of
 * earlier names) with hard ones (free choices), so depth can be compared with true difficulty. */
#ifndef DS_DATA_SYNTH_H
#define DS_DATA_SYNTH_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/* Story number `index` at `seed`: text (one paragraph or more, ASCII, <= 4 KiB) and per byte: entropy (nats) of the byte
 * given the past, and surprisal -ln p(byte | past).  Arrays are as long as the text; grown with mem_*. */
int synth_story(uint64_t seed, uint64_t index, struct str *text, float **entropy, float **surprisal, struct err *e) DS_CHECK;

#endif
