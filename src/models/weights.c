#include "models/weights.h"

#include "base/mem.h"
#include "models/blocks.h"
#include "models/model.h"

void weights_release(struct weights *w)
{
    for (int i = 0; i < w->n; i++)
        quant_free(w->v[i].quant);
    mem_free(w->v);
    mem_free_aligned(w->block);
    *w = (struct weights){.numbers = w->numbers};
}

static void note(struct weights *w, const struct params *ps, int index)
{
    if (index >= 0) {
        w->v[index].O = ps->p[index].shape[0];
        w->v[index].C = ps->p[index].shape[1];
    }
}

static int find_matrices(struct model *m, struct err *e)
{
    struct weights *w = &m->weights;
    w->n = m->params.n;
    w->v = mem_alloc((size_t)w->n, sizeof *w->v);
    if (!w->v) {
        w->n = 0;
        return err_set(e, DS_EMEM, "table of matrices");
    }
    for (int l = 0; l < m->config.layers; l++) {
        const struct block_params *b = &m->block[l];
        const int matrix[] = {b->q, b->k, b->v, b->o, b->gate, b->up, b->down};
        for (size_t i = 0; i < DS_LEN(matrix); i++)
            note(w, &m->params, matrix[i]);
    }
    note(w, &m->params, m->head < 0 ? m->embed : m->head);
    return 0;
}

static size_t aligned(size_t n)
{
    return (n + 63) / 64 * 64;
}

/* Deals the block out, or only counts.  w^T goes with forward; w with backward, where there is one. */
static size_t deal(struct model *m, char *at)
{
    struct weights *w = &m->weights;
    size_t used = 0;
    for (int i = 0; i < w->n; i++) {
        struct weight *x = &w->v[i];
        size_t fwd = x->O && !x->quant ? aligned(gemm_packed_bytes(w->format, x->C, x->O)) : 0;
        size_t bwd = fwd && m->is_training ? aligned(gemm_packed_bytes(w->format, x->O, x->C)) : 0;
        x->fwd.data = at && fwd ? at + used : NULL;
        x->bwd.data = at && bwd ? at + used + fwd : NULL;
        used += fwd + bwd;
    }
    return used;
}

static int quantise(struct model *m, struct err *e)
{
    struct weights *w = &m->weights;
    enum quant_kind kind = (enum quant_kind)w->numbers.weights;
    int rc = 0, done = 0;
    if (kind == QUANT_NONE)
        return 0;
    if (m->is_training)
        return err_set(e, DS_EUSAGE, "weights=%s is for use, not for training", quant_name[kind]);
    for (int i = 0; i < w->n && rc == 0; i++) {
        struct weight *x = &w->v[i];
        if (x->O == 0 || quant_row_bytes(kind, x->C) == 0)
            continue;
        rc = file_blocks_have(m, i, kind)
                 ? file_blocks_quant(&x->quant, m, i, e)
                 : quant_new(&x->quant, kind, m->params.p[i].value, x->O, x->C, e);
        if (rc < 0)
            rc = err_add(e, rc, "%s", m->params.p[i].name);
        done++;
    }
    if (rc == 0 && !done)
        return err_set(e, DS_ERANGE, "weights=%s: no matrix of this model has rows of whole blocks",
                       quant_name[kind]);
    return rc;
}

/* Memory for the packed copies, as large as the present provider wants them. */
static int place(struct model *m, struct err *e)
{
    struct weights *w = &m->weights;
    mem_free_aligned(w->block);
    w->by = gemm_provider(w->format);
    w->bytes = deal(m, NULL);
    w->block = w->bytes ? mem_reserve(w->bytes) : NULL;
    if (w->bytes && !w->block)
        return err_set(e, DS_EMEM, "packed weights: %.1f MiB could not be had",
                       (double)w->bytes / 1048576.0);
    deal(m, w->block);
    return 0;
}

int weights_use(struct model *m, const struct number_options *o, struct err *e)
{
    struct weights *w = &m->weights;
    if (w->is_released)
        return err_set(e, DS_EUSAGE, "weights: their values were given back after the first use");
    weights_release(w);
    w->numbers = *o;
    w->format = o->compute == COMPUTE_BF16 && REAL_BITS == 32 ? GEMM_BF16 : GEMM_FP32;
    int rc = find_matrices(m, e);
    if (rc == 0)
        rc = quantise(m, e);
    if (rc == 0)
        rc = place(m, e);
    w->made_of = m->params.version;
    w->version = m->params.version - 1; /* nothing is laid out yet */
    w->given = m->params.given - 1;
    return rc;
}

/* One matrix.  In use its value goes back to the system at once, unless its rows are read (the embedding's are). */
static void refresh_one(struct model *m, int i)
{
    struct weights *w = &m->weights;
    struct weight *x = &w->v[i];
    struct param *p = &m->params.p[i];
    const struct operand t = {p->value, x->C, 1, NULL}, n = {p->value, x->C, 0, NULL};
    BUG_IF(!p->value, "%s: its values were given back", p->name);
    BUG_IF(x->quant && w->made_of != m->params.version, "%s: changed behind its rounded blocks",
           p->name);
    if (x->fwd.data)
        gemm_pack(&x->fwd, x->fwd.data, w->format, &t, x->C, x->O);
    if (x->bwd.data)
        gemm_pack(&x->bwd, x->bwd.data, w->format, &n, x->O, x->C);
    if (!w->numbers.release || m->is_training || i == m->embed || !(x->fwd.data || x->quant))
        return;
    mem_discard(p->value, p->n * sizeof *p->value);
    p->value = NULL;
    w->is_released = 1;
}

void weights_refresh(struct model *m)
{
    struct weights *w = &m->weights;
    struct err e = {0};
    if (w->version == m->params.version)
        return;
    int all = w->given != m->params.given;
    if (w->by != gemm_provider(w->format)) { /* tests change it between passes */
        BUG_IF(place(m, &e) < 0, "%s", e.text);
        all = 1;
    }
    for (int i = 0; i < w->n; i++)
        if (w->v[i].O > 0 && (all || m->params.p[i].train))
            refresh_one(m, i);
    w->version = m->params.version;
    w->given = m->params.given;
}

struct linear weights_linear(const struct model *m, int index, int bias)
{
    const struct weight *x = &m->weights.v[index];
    struct linear l = {.C = x->C,
                       .O = x->O,
                       .format = m->weights.format,
                       .w = m->params.p[index].value,
                       .b = bias < 0 ? NULL : m->params.p[bias].value,
                       .fwd = x->fwd.data ? &x->fwd : NULL,
                       .bwd = x->bwd.data ? &x->bwd : NULL,
                       .quant = x->quant,
                       .lora = x->lora.r > 0 ? &x->lora : NULL};
    return l;
}
