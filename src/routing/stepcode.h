/* Step codes: a learned vector added to a token's state on entry to a block, by how much was
 * skipped.
 *
 *   landing  where a token runs again after skips, row = blocks skipped so far
 *   every    at every gated layer, executed or not, row = blocks skipped so far, this one included
 *   static   at every gated layer, row = layer
 * buckets > 0 is the published table: row = floor(skipped (buckets - 1) / L), few of which are ever
 * used. */
#ifndef DS_ROUTING_STEPCODE_H
#define DS_ROUTING_STEPCODE_H

#include <stdint.h>

#include "base/err.h"
#include "engine/param.h"
#include "routing/route.h"

enum stepcode_kind { STEPCODE_LANDING, STEPCODE_EVERY, STEPCODE_STATIC, STEPCODE_OFF };
#define STEPCODE_CHOICES "landing|every|static|off"

struct stepcode {
    enum stepcode_kind kind;
    int L, C, rows, buckets;
    int table; /* params (rows, C); -1 with STEPCODE_OFF */
    struct params *params;
    int16_t *code; /* (L,R) row added on entry to each cell, -1 none */
};

struct stepcode_shape {
    enum stepcode_kind kind;
    int L, C;
    int gated;   /* layers that may be skipped */
    int buckets; /* 0: one row per number of skipped blocks */
};
/* Registers the table as NAME. */
int stepcode_init(struct stepcode *c, struct params *ps, const char *name,
                  const struct stepcode_shape *shape, struct err *e) DS_CHECK;
void stepcode_layout(struct stepcode *c, struct arena *a, int R);
void stepcode_begin(struct stepcode *c, int R); /* no row has a code in any layer */
/* Chooses the code of row i in layer l.  runs: row i runs here; skipped, in_row: blocks skipped so
 * far, and consecutively before this one. */
void stepcode_choose(struct stepcode *c, int l, int R, int i, int runs, int is_gated, int skipped,
                     int in_row);
/* h[l] += table[code], and its gradient from dh[l]. */
void stepcode_fwd(const struct stepcode *c, int l, struct stream *st);
void stepcode_bwd(const struct stepcode *c, int l, const struct stream *st);
/* Number of table rows used in a pass of R rows. */
int stepcode_used(const struct stepcode *c, int R);

#endif
