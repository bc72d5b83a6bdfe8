/* Stochastic grammars over bytes, and the exact probability of what comes next.
 *
 * A rule has weighted alternatives; an alternative is a template:
 *     text          itself
 *     {rule}        one alternative of that rule
 *     {var=rule}    the same, and stored under a name
 *     {$var}        a copy of the text written for var
 *     {$var.k}      field k of the alternative that var chose
 * Fields follow the template: "fox|he|his" has the fields 1 "he" and 2 "his".  Rule 0 is the start.
 * Rules must not be recursive.
 *
 * grammar_measure does not know how a text was generated.  It keeps every derivation that agrees
 * with the bytes so far, with its probability, so two alternatives may share a prefix or be equal:
 * the distribution of the next byte is the mixture over them, and is exact. */
#ifndef DS_DATA_GRAMMAR_H
#define DS_DATA_GRAMMAR_H

#include <stddef.h>

#include "base/err.h"
#include "base/rng.h"
#include "base/str.h"

struct grammar_alt {
    double weight; /* > 0, relative to its neighbours */
    const char *text;
};
struct grammar_rule {
    const char *name;
    const struct grammar_alt *alt;
    size_t n;
};

struct grammar;
/* Compiles the borrowed tables. Unknown rules and variables, bad templates: DS_EFORMAT with the
 * place. */
int grammar_new(struct grammar **out, const struct grammar_rule *rule, size_t n,
                struct err *e) DS_CHECK;
void grammar_free(struct grammar *g);
/* Appends one text drawn from the grammar. */
int grammar_sample(const struct grammar *g, struct rng *rng, struct str *out,
                   struct err *e) DS_CHECK;
/* For each byte of s, and at [n] for the end of the text (so n + 1 values each, in nats):
 * entropy    of the next symbol (256 bytes or the end) given the bytes before;
 * surprisal  -ln of the probability of the symbol that came.
 * A text that the grammar cannot produce: DS_EFORMAT with the offset. */
int grammar_measure(const struct grammar *g, const char *s, size_t n, float *entropy,
                    float *surprisal, struct err *e) DS_CHECK;

#endif
