/* Evaluates a model at each exit of a range. */
#include "eval/exits.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

static double scalar_of(const struct measure *m, const char *key)
{
    struct measure_scalar x[MEASURE_SCALARS_MAX];
    size_t n = measure_scalars(m, x);
    for (size_t i = 0; i < n; i++)
        if (strcmp(x[i].key, key) == 0)
            return x[i].value;
    return (double)NAN;
}

static int fill_row(struct exit_table *t, struct exit_row *x, struct ppl *p,
                    const struct ppl_options *o, struct err *e)
{
    struct ppl_result r;
    struct ppl_request w = {.capacity = o->capacity == -1 ? (double)NAN : o->capacity,
                            .exit = x->layers,
                            .prefill_rounds = (int)o->time_rounds,
                            .decode_rounds = (int)o->time_rounds};
    int rc = ppl_measure(&r, p, &w, e);
    if (rc < 0)
        return rc;
    const struct measure *m = &r.measure;
    t->tokens = m->tokens;
    x->loss = measure_loss(m);
    x->bits_per_byte = measure_bits_per_byte(m);
    x->accuracy = scalar_of(m, "accuracy");
    x->answer_accuracy = scalar_of(m, "answer_accuracy");
    x->answer_loss = scalar_of(m, "answer_loss");
    x->depth_mean = scalar_of(m, "depth_mean");
    memcpy(x->by_needed, m->by_needed, sizeof x->by_needed);
    x->block_ratio = measure_block_ratio(m);
    x->flops_ratio = measure_model_ratio(m);
    x->flops_dense_per_token = scalar_of(m, "flops_dense_per_token");
    x->time_ratio = m->time_ratio;
    x->decode_time_ratio = m->decode_ratio;
    x->prefill_ms = 1e3 * m->time_dense * m->time_ratio;
    x->decode_ms = 1e3 * m->decode_dense * m->decode_ratio;
    ppl_result_release(&r);
    return 0;
}

int exit_table_make(struct exit_table *out, struct subject *s, const struct ppl_options *o,
                    struct err *e)
{
    struct exit_table t = {.row = NULL};
    struct ppl *p = NULL;
    int first, last, rc = ppl_exits(&first, &last, o, s, e);
    if (rc == 0)
        rc = ppl_open(&p, s, o, e);
    if (rc < 0)
        return rc;
    t.n = (size_t)(last - first + 1);
    t.row = mem_alloc(t.n, sizeof *t.row);
    rc = t.row ? 0 : err_set(e, DS_EMEM, "out of memory for %zu exits", t.n);
    for (size_t i = 0; i < t.n && rc == 0; i++) {
        t.row[i].layers = first + (int)i;
        rc = fill_row(&t, &t.row[i], p, o, e);
    }
    str_copy(t.data, sizeof t.data, ppl_data(p));
    ppl_close(p);
    if (rc < 0)
        exit_table_release(&t);
    else
        *out = t;
    return rc;
}

void exit_table_release(struct exit_table *t)
{
    mem_free(t->row);
    *t = (struct exit_table){0};
}
