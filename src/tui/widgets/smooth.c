/* Smoothing that a NaN cannot poison. */
#include <math.h>

#include "base/mem.h"
#include "tui/widgets.h"

/* acc_t = w acc + (1-w) x, norm_t = w norm + (1-w), smoothed = acc / norm: unbiased from the first
 * point on (Adam's correction).  A value that is not finite leaves both as they were.  After a
 * resume the average goes on from where the superseded points began to be replaced. */
int smooth_update(struct smooth *s, const struct series *series, double weight)
{
    if (s->series != series || s->weight != weight || series->n < s->n) {
        s->series = series;
        s->weight = weight;
        s->n = 0;
        s->acc = s->norm = 0;
    }
    void *p = s->v;
    if (mem_grow(&p, &s->cap, series->n, sizeof *s->v) < 0)
        return DS_EMEM;
    s->v = p;
    for (; s->n < series->n; s->n++) {
        double x = series->value[s->n];
        if (isfinite(x)) {
            s->acc = weight * s->acc + (1 - weight) * x;
            s->norm = weight * s->norm + (1 - weight);
        }
        s->v[s->n] = s->norm > 0 ? s->acc / s->norm : (double)NAN;
    }
    return 0;
}

void smooth_release(struct smooth *s)
{
    mem_free(s->v);
    *s = (struct smooth){0};
}
