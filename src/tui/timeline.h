/* State and parts of the Timeline view, private to timeline*.c.  First the probes of one text over
 * training: executed share per layer and probe, how much of a layer's decisions the token class
 * explains, and the layers that have collapsed or specialised; tested on numbers, without drawing. */
#ifndef DS_TUI_TIMELINE_H
#define DS_TUI_TIMELINE_H

#include "io/runview.h"
#include "tui/cells.h"
#include "tui/cells_pick.h"
#include "tui/view.h"
#include "tui/widgets.h"

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
    uint64_t thinned, generation, life;
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
/* "layer 5: never executed since step 400 (12 probes)", in at most cols cells where leaving out the
 * number of probes or the classes is enough.  Returns out. */
const char *timeline_words(char *out, size_t size, int cols, const struct timeline *t,
                           const struct runview *r, const struct timeline_finding *f);

/* ---- the view ---- */

enum { FINDINGS_MAX = 256, TIMELINE_GUTTER = 6, SPEEDS = 6 };
extern const double timeline_speeds[SPEEDS]; /* probes a second */

enum { STRIP_SHARE, STRIP_CLASS, STRIP_FIELDS };
enum { REDUCE_MEAN, REDUCE_LEAST, REDUCE_MOST, REDUCES };
extern const char *const timeline_reduce[REDUCES];

struct view_of_time {
    struct timeline line;
    struct pick pick;
    struct cells strip, map;
    int shown, reduce; /* STRIP_*, REDUCE_*          */
    int speed, is_playing, is_listing;
    double next; /* is_playing: the time of the next probe, by clock_mono */
    /* the strip as a probe whose tokens are columns of one or more probes */
    struct probe picture;
    struct matrix matrix;
    char name[24]; /* of the matrix */
    int8_t *sign;  /* (layers, columns) 1: executed for every token, 0: never, -1: neither */
    size_t room;
    int per; /* probes per column */
    struct timeline_finding found[FINDINGS_MAX];
    size_t findings; /* of which at most FINDINGS_MAX are stored */
    struct list list;
    size_t pos; /* of the probe at the cursor */
    /* of the depth map and the read-out: the cursor's when it rests */
    size_t drawn;
    int drawn_layer;
    unsigned char *mark;
    size_t marks;
    /* of the last draw, rows of the view */
    int strip_end, map_top, list_top;
};

const struct probe *timeline_probe(const struct view_of_time *s, const struct runview *r, size_t i);
/* Brings everything up to date with the run; 0: there is nothing to show. */
int timeline_prepare(struct view *v);
void timeline_draw(struct view *v, struct area a); /* timeline_draw.c */

#endif
