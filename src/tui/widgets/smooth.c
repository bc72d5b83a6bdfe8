/* Exponential smoothing that skips NaN. */
#include <math.h>

#include "base/mem.h"
#include "tui/widgets.h"

static void smooth_take(struct smooth *s, double x, double weight)
{
    if (isfinite(x)) {
        s->acc = weight * s->acc + (1 - weight) * x;
        s->norm = weight * s->norm + (1 - weight);
    }
}

/* Do points that were superseded end before this one? */
static int is_first_after(const struct series *s, size_t i)
{
    return i > 0 && s->is_old && s->is_old[i - 1] && !s->is_old[i];
}

/* acc_t = w acc + (1-w) x, norm_t = w norm + (1-w), smoothed = acc / norm: unbiased from the first
 * point on (as in Adam).  A non-finite value changes neither.  After a resume the average
 * continues from the first point that was replaced. */
int smooth_update(struct smooth *s, const struct series *series, double weight)
{
    if (s->series != series || s->weight != weight || series->n < s->n ||
        (s->n > 0 && series->step[s->n - 1] != s->step)) { /* the last: points were sorted */
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
        if (is_first_after(series, s->n)) {
            s->acc = s->norm = 0;
            for (size_t i = 0; i < s->n; i++)
                if (!series->is_old[i])
                    smooth_take(s, series->value[i], weight);
        }
        smooth_take(s, series->value[s->n], weight);
        s->v[s->n] = s->norm > 0 ? s->acc / s->norm : (double)NAN;
    }
    s->step = s->n > 0 ? series->step[s->n - 1] : 0;
    return 0;
}

void smooth_release(struct smooth *s)
{
    mem_free(s->v);
    *s = (struct smooth){0};
}
