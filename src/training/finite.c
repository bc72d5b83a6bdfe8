/* Checks that the state is finite before it becomes the checkpoint that a resume would load. */
#include <math.h>

#include "base/mem.h"
#include "base/pool.h"
#include "training/trainer.h"

enum { NAMES_MAX = 3 };

struct look {
    const struct params *params;
    size_t *bad; /* by parameter */
};

static size_t count_bad(const real *v, size_t n)
{
    size_t bad = 0;
    for (size_t i = 0; v && i < n; i++)
        bad += !isfinite(v[i]);
    return bad;
}

/* Frozen tensors were checked when they were read and never change. */
static void check_chunk(void *ctx, int i, int worker)
{
    struct look *x = ctx;
    const struct param *p = &x->params->p[i];
    (void)worker;
    if (p->train)
        x->bad[i] = count_bad(p->value, p->n) + count_bad(p->m, p->n) + count_bad(p->v, p->n);
}

int trainer_check_finite(const struct trainer *t, struct err *e)
{
    const struct params *ps = &t->model->params;
    struct look x = {ps, mem_alloc((size_t)ps->n + 1, sizeof *x.bad)};
    struct str names = {0};
    int n = 0, rc = 0;
    if (!x.bad)
        return err_set(e, DS_EMEM, "out of memory checking the weights");
    pool_run(ps->n, check_chunk, &x);
    for (int i = 0; i < ps->n; i++)
        if (x.bad[i] > 0 && n++ < NAMES_MAX)
            str_addf(&names, "%s%s", n > 1 ? ", " : "", ps->p[i].name);
    if (n > 0)
        rc = err_set(e, DS_ENUMERIC, "NaN or Inf in the weights or moments of %d tensors: %s%s", n,
                     str_text(&names), n > NAMES_MAX ? ", ..." : "");
    else if (t->report.has_val && !isfinite(t->report.val_loss))
        rc = err_set(e, DS_ENUMERIC, "validation loss is %g", t->report.val_loss);
    str_release(&names);
    mem_free(x.bad);
    return rc;
}
