/* The teacher's pass and buffers for distillation. */
#include "models/distill.h"

#include "base/mem.h"
#include "models/model.h"

static size_t chunk_elements(int64_t V)
{
    return (size_t)head_chunk(V) * (size_t)V;
}

size_t distill_bytes(int rows, int64_t C, int64_t V)
{
    return sizeof(real) * ((size_t)rows * (size_t)(C + 1) + chunk_elements(V));
}

int distill_new(struct distill **out, const struct model *student, struct model *teacher, int rows,
                double alpha, double temperature, struct err *e)
{
    const struct model *by = teacher ? teacher : student;
    int64_t C = by->config.dim, V = student->config.vocab;
    struct distill *d = mem_alloc(1, sizeof *d);
    BUG_IF(by->config.vocab != V, "teacher and student have different vocabularies");
    if (!d)
        return err_set(e, DS_EMEM, "distillation: out of memory");
    *d = (struct distill){
        .teacher = teacher, .alpha = alpha, .temperature = temperature, .rows = rows};
    d->bytes = distill_bytes(rows, C, V);
    d->xf = mem_alloc_aligned((size_t)rows * (size_t)C, sizeof(real));
    d->logits = mem_alloc_aligned(chunk_elements(V), sizeof(real));
    d->kd = mem_alloc_aligned((size_t)rows, sizeof(real));
    if (!d->xf || !d->logits || !d->kd) {
        distill_free(d);
        return err_set(e, DS_EMEM, "distillation: out of memory: %.1f MiB needed",
                       (double)distill_bytes(rows, C, V) / 1048576.0);
    }
    *out = d;
    return 0;
}

void distill_pass(struct distill *d, struct model *student, const struct batch *b,
                  const struct pass *pass)
{
    struct model *m = d->teacher ? d->teacher : student;
    struct pass taught = {.kind = d->teacher ? PASS_SPARSE : PASS_DENSE, .seed = pass->seed};
    taught.adapters_off = !d->teacher;
    BUG_IF(b->B * b->T > d->rows, "%d rows exceed distillation buffers for %d", b->B * b->T,
           d->rows);
    model_forward(m, b, &taught);
    model_final_states(m, d->xf);
    m->batch = NULL;
    d->flops = flops_total(&m->flops);
    d->is_on = 1;
}

void distill_free(struct distill *d)
{
    if (!d)
        return;
    mem_free_aligned(d->xf);
    mem_free_aligned(d->logits);
    mem_free_aligned(d->kd);
    mem_free(d);
}
