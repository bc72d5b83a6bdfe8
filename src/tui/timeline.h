/* The probes of one text over training, private to timeline*.c: executed share per layer and probe,
 * how much of a layer's decisions the token class explains, and the layers that have collapsed or
 * specialised.  No drawing, so that it is tested on numbers. */
#ifndef DS_TUI_TIMELINE_H
#define DS_TUI_TIMELINE_H

#include "io/runview.h"

/* A state is named from this many consecutive probes on. */
enum { TIMELINE_PROBES = 3 };
/* A layer is specialised while the class explains at least this part of its decisions. */
#define TIMELINE_EXPLAINED 0.3

struct timeline {
    int text, layers;
    size_t n;                 /* probes of the text that no resume has superseded, in order */
    size_t *at;               /* (n) index into the probes of the run */
    float *share;             /* (n, layers) executed share of the tokens; NaN: not recorded */
    float *class_;            /* (n, layers) timeline_explained */
    unsigned char *always_on; /* (layers) by the head of the run, or forced in every probe */
    size_t superseded;
    int has_classes;
    /* what is known by order of arrival, so that a new probe is all that is read */
    const struct runview *of;
    uint64_t thinned, generation;
    size_t seen, cap;
    float *known; /* (seen, 2, layers) */
    size_t at_cap;
};
/* Brings it up to date with the probes of a text; only new ones are read.  DS_EMEM. */
int timeline_update(struct timeline *t, const struct runview *r, int text) DS_CHECK;
void timeline_release(struct timeline *t);

/* Executed share of a layer, NaN without decisions. */
double timeline_share(const struct probe *p, int layer);
/* Variance of the executed share between token classes as a part of the variance of the decisions,
 * corrected for the number of classes (epsilon squared); 0 = none, 1 = the class decides.  NaN:
 * no classes, no decisions, or all the same. */
double timeline_explained(const struct probe *p, int layer);

enum timeline_kind { TIMELINE_NEVER, TIMELINE_EVERY, TIMELINE_SPECIALISED };
struct timeline_finding {
    enum timeline_kind kind;
    int layer;
    size_t first, last; /* positions of the probes */
    int is_now;         /* last is the newest probe */
};
/* States that held for at least TIMELINE_PROBES probes, those of the newest probe first, then the
 * longest; returns the number of all, of which at most max are stored. */
size_t timeline_findings(const struct timeline *t, struct timeline_finding *out, size_t max);
/* "layer 5: never executed since step 400 (12 probes)".  Returns out. */
const char *timeline_words(char *out, size_t size, const struct timeline *t,
                           const struct runview *r, const struct timeline_finding *f);

#endif
