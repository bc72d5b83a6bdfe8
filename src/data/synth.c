/* Generates story number i from its own random stream and measures it with the exact filter. */
#include "data/synth.h"

#include "base/mem.h"

int synth_story_of(const struct grammar *g, uint64_t seed, uint64_t index, struct str *text,
                   float **entropy, float **surprisal, struct err *e)
{
    struct rng rng;
    size_t from = text->len;
    /* The high half of the index goes into the stream's second coordinate: numbers never collide.
     */
    rng_init(&rng, seed, RNG_SYNTH, index, (uint32_t)(index >> 32));
    int rc = grammar_sample(g, &rng, text, e);
    if (rc < 0)
        return rc;
    size_t n = text->len - from;
    float *h = mem_alloc(n + 1, sizeof *h), *s = mem_alloc(n + 1, sizeof *s);
    rc = h && s ? grammar_measure(g, text->p + from, n, h, s, e)
                : err_set(e, DS_EMEM, "out of memory for a story of %zu bytes", n);
    if (rc >= 0 && entropy) {
        *entropy = h;
        h = NULL;
    }
    if (rc >= 0 && surprisal) {
        *surprisal = s;
        s = NULL;
    }
    mem_free(h);
    mem_free(s);
    return rc;
}

int synth_story(uint64_t seed, uint64_t index, struct str *text, float **entropy, float **surprisal,
                struct err *e)
{
    struct grammar *g = NULL;
    int rc = grammar_new(&g, synth_rules, synth_rules_n, e);
    if (rc >= 0)
        rc = synth_story_of(g, seed, index, text, entropy, surprisal, e);
    grammar_free(g);
    return rc;
}
