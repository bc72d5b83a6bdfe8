/* The Monitor's panel of a run's ranks: what each computes in a step, the slowest first where there
 * is not room for all. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "tui/monitor.h"

enum { LABEL = 24, NUMBER = 23 };

/* Ranks without a time are last. */
static int slower(const void *a, const void *b)
{
    const struct run_rank *const *x = a, *const *y = b;
    float p = run_rank_busy(*x), q = run_rank_busy(*y);
    if (isfinite(p) != isfinite(q))
        return isfinite(p) ? -1 : 1;
    if (isfinite(p) && p != q)
        return p > q ? -1 : 1;
    return (*x > *y) - (*x < *y);
}

static void draw_rank(struct area line, const struct run_ranks *x, const struct run_rank *r,
                      float most, int is_slowest)
{
    char label[LABEL], text[24], si[16];
    int end = line.cols - NUMBER, from = LABEL < end / 2 ? LABEL : end / 2;
    float busy = run_rank_busy(r);
    enum role role = is_slowest ? ROLE_BAD : ROLE_SERIES_0;
    snprintf(label, sizeof label, "%d %.*s", (int)(r - x->rank), LABEL - 8, r->host);
    area_text(line, 0, 0, from - 1, ink(is_slowest ? ROLE_MARKED : ROLE_TEXT), label);
    int full = end - from,
        cells = isfinite(busy) && most > 0 ? (int)(busy / most * (float)full) : 0;
    for (int i = 0; i < cells && i < full; i++)
        area_put(line, 0, from + i, area_rune(line, 0x2588, '#'), ink(role));
    if (isfinite(busy))
        area_textf(line, 0, end + 1, 9, ink(ROLE_TEXT), "%s ms", num_print(text, (double)busy));
    if (isfinite(busy) && r->step_ms > 0)
        area_textf(line, 0, end + 11, 5, ink(ROLE_DIM), "%3.0f %%",
                   100 * (double)(r->wait_ms / r->step_ms));
    if (!isfinite(r->bytes))
        return;
    snprintf(text, sizeof text, "%sB", str_si(si, (double)r->bytes));
    area_right(line, 0, line.cols, ink(ROLE_DIM), text);
}

void monitor_draw_ranks(struct view *v, const struct panel *p, struct area a, int has_focus)
{
    const struct runview *r = app_run(v->app);
    const struct run_ranks *x = r ? &r->ranks : NULL;
    struct ink k = ink_attr(ink(ROLE_TITLE), has_focus ? ATTR_BOLD | ATTR_UNDERLINE : ATTR_BOLD);
    int at = 1 + area_text(a, 0, 1, -1, k, p->title) + 1;
    int slowest = x ? run_ranks_slowest(x) : -1;
    if (slowest < 0)
        return;
    at += area_textf(a, 0, at, -1, ink(ROLE_TEXT), "%d, slowest: %d on %s", x->n, slowest,
                     x->rank[slowest].host) +
          2;
    area_text(a, 0, at, -1, ink(ROLE_DIM), "busy, waiting, sent per step");
    const struct run_rank **order = mem_alloc((size_t)x->n, sizeof *order);
    for (int i = 0; order && i < x->n; i++)
        order[i] = &x->rank[i];
    struct area body = area_sub(a, 1, 1, a.rows - 1, a.cols - 2);
    if (order && x->n > body.rows)
        qsort(order, (size_t)x->n, sizeof *order, slower);
    for (int i = 0; order && i < x->n && i < body.rows; i++)
        draw_rank(area_sub(body, i, 0, 1, body.cols), x, order[i], run_rank_busy(&x->rank[slowest]),
                  order[i] == &x->rank[slowest]);
    mem_free(order);
}
