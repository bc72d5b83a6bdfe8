/* Fits thresholds to one half of a text and tests the risk of each capacity on the other. */
#include "eval/risk.h"

#include <math.h>

#include "base/mem.h"
#include "base/statistics.h"

enum { FIT_TOKENS = 1 << 15 };

static int check_share(const char *key, double value, struct err *e)
{
    return value > 0 && value < 1
               ? 0
               : err_set(e, DS_ERANGE, "%s=%g: must be greater than 0 and less than 1", key, value);
}

int risk_check(const struct risk_table *t, struct err *e)
{
    int rc = check_share("risk", t->limit, e);
    return rc == 0 ? check_share("delta", t->delta, e) : rc;
}

int risk_test(struct risk_table *t, risk_losses_fn *losses, void *ctx, double *loss, size_t n,
              struct err *e)
{
    int rc = 0;
    t->rows = 0;
    t->units = n;
    t->capacity = (double)NAN;
    for (int g = ROUTE_GRID - 1; g >= 0 && rc == 0; g--) {
        struct risk_row *x = &t->row[t->rows++];
        x->capacity = (double)g / (ROUTE_GRID - 1);
        rc = losses(ctx, x->capacity, loss, n, e);
        if (rc < 0)
            break;
        x->risk = stat_mean(loss, n);
        x->p = stat_risk_p(x->risk, n, t->limit);
        x->is_certified = x->p <= t->delta;
        if (t->rows == 1)
            t->least = stat_risk_least(x->risk, n, t->delta);
        if (!x->is_certified)
            break; /* stopping here is what makes level delta hold for the whole sequence */
        t->capacity = x->capacity;
    }
    return rc;
}

/* ---- a model ---- */

struct halves {
    struct ppl *p;
    int64_t from, n; /* windows of the test */
    double *dense;   /* (n) nats per token; NaN: no target */
    double *routed;  /* (n) */
    double loss[ROUTE_GRID];
    int rows;
};

static int rise_of(void *ctx, double capacity, double *loss, size_t n, struct err *e)
{
    struct halves *h = ctx;
    size_t k = 0;
    int rc = ppl_window_losses(h->p, h->from, h->n, capacity, h->routed, e);
    for (int64_t i = 0; i < h->n && rc == 0; i++) {
        double rise = h->routed[i] - h->dense[i];
        if (!isnan(h->dense[i]))
            loss[k++] = rise <= 1 ? fmax(0, rise) : 1; /* NaN: 1 */
    }
    if (rc == 0)
        h->loss[h->rows++] = stat_mean(h->routed, (size_t)h->n);
    BUG_IF(rc == 0 && k != n, "%zu sequences with a target, expected %zu", k, n);
    return rc;
}

static int test_windows(struct risk_table *t, struct halves *h, struct err *e)
{
    double *loss = mem_alloc((size_t)h->n, sizeof *loss);
    size_t n = 0;
    h->dense = mem_alloc((size_t)h->n, sizeof *h->dense);
    h->routed = mem_alloc((size_t)h->n, sizeof *h->routed);
    int rc = loss && h->dense && h->routed
                 ? ppl_window_losses(h->p, h->from, h->n, (double)NAN, h->dense, e)
                 : err_set(e, DS_EMEM, "out of memory for the losses of %lld sequences",
                           (long long)h->n);
    for (int64_t i = 0; i < h->n && rc == 0; i++)
        n += !isnan(h->dense[i]);
    if (rc == 0)
        rc = risk_test(t, rise_of, h, loss, n, e);
    for (int i = 0; i < h->rows; i++)
        t->row[i].loss = h->loss[i];
    if (rc == 0)
        t->dense = stat_mean(h->dense, (size_t)h->n);
    mem_free(loss);
    mem_free(h->dense);
    mem_free(h->routed);
    return rc;
}

int risk_calibrate(struct risk_table *t, struct ppl *p, struct err *e)
{
    struct ppl_text text = ppl_text(p);
    int64_t enough = (FIT_TOKENS + text.seq - 1) / text.seq, half = text.windows / 2;
    int64_t batches = (half < enough ? half : enough) / text.batch;
    if (batches == 0 && half >= text.batch)
        batches = 1;
    int64_t fitted = batches * text.batch;
    struct halves h = {.p = p, .from = fitted, .n = text.windows - fitted};
    struct model *m = text.model;
    int rc = risk_check(t, e);
    if (rc == 0 && batches == 0)
        rc = err_set(e, DS_ERANGE,
                     "%s: %lld sequences of %lld tokens are less than a batch of %lld to fit "
                     "thresholds and a batch to test; expected %lld or more: raise tokens= or the "
                     "text, or lower batch=",
                     ppl_data(p), (long long)text.windows, (long long)text.seq,
                     (long long)text.batch, 2 * (long long)text.batch);
    if (rc == 0 && m->route.ops->calibrate)
        rc = model_calibrate(m, (int)batches, ppl_batch, p, ppl_seed(p), NULL, e);
    t->fitted = m->route.ops->calibrate ? fitted : 0;
    t->seq = text.seq;
    return rc == 0 ? test_windows(t, &h, e) : rc;
}
