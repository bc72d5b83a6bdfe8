/* State shared by the parts of the Signals view, private to signals*.c. */
#ifndef DS_TUI_SIGNALS_H
#define DS_TUI_SIGNALS_H

#include "tui/cells.h"
#include "tui/cells_pick.h"
#include "tui/view.h"
#include "tui/widgets.h"

enum signals_part { SIGNALS_ALL, SIGNALS_CURVES, SIGNALS_SPREAD, SIGNALS_RELATION, SIGNALS_PARTS };

struct signals {
    struct pick pick;
    const struct probe *probe; /* borrowed, of this draw or key                     */
    int part, field, sample;   /* sample: correlate over the newest evaluation      */
};

/* Lists the fields to plot: all but decisions, costs and thresholds; returns their number. */
int signals_fields(const struct probe *p, int *field, int max);
void signals_curves(struct area a, const struct signals *s, const struct runview *r);
/* Distribution of a field in each layer; for the score also the threshold. */
void signals_spread(struct area a, const struct signals *s, const struct runview *r);
void signals_relation(struct area a, const struct signals *s, const struct runview *r);
/* Pearson's r over the pairs that are finite in both; *n is their number.  NaN when there is no
 * variance or n < 3. */
double signals_pearson(const float *x, const float *y, size_t count, size_t *n);

#endif
