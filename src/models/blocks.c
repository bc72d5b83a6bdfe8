#include "models/blocks.h"

#include <string.h>

#include "base/mem.h"
#include "models/model.h"

int file_blocks_new(struct model *m, struct err *e)
{
    struct file_blocks *b = mem_alloc(1, sizeof *b);
    struct file_block *v = mem_alloc((size_t)m->params.n, sizeof *v);
    if (!b || !v) {
        mem_free(b);
        mem_free(v);
        return err_set(e, DS_EMEM, "table of %d tensors", m->params.n);
    }
    *b = (struct file_blocks){.v = v, .n = m->params.n};
    m->file_blocks = b;
    return 0;
}

void file_blocks_set(struct model *m, int i, const struct gguf_tensor *t, int head_dim)
{
    enum quant_kind kind = t->type == GGUF_T_Q8_0   ? QUANT_Q8_0
                           : t->type == GGUF_T_Q4_0 ? QUANT_Q4_0
                           : t->type == GGUF_T_Q4_K ? QUANT_Q4_K
                                                    : QUANT_NONE;
    m->file_blocks->v[i] = (struct file_block){kind, t->data, head_dim};
}

void file_blocks_done(struct model *m, struct gguf *file)
{
    m->file_blocks->file = file;
    m->file_blocks->version = m->params.version;
}

int file_blocks_have(const struct model *m, int i, enum quant_kind kind)
{
    const struct file_blocks *b = m->file_blocks;
    return b && b->version == m->params.version && b->v[i].kind == kind;
}

int file_blocks_quant(struct quant **out, const struct model *m, int i, struct err *e)
{
    const struct file_block *b = &m->file_blocks->v[i];
    const struct param *p = &m->params.p[i];
    int O = p->shape[0], C = p->shape[1], D = b->head_dim;
    size_t row = quant_row_bytes(b->kind, C);
    if (D == 0)
        return quant_from_blocks(out, b->kind, b->p, O, C, e);
    unsigned char *split = mem_alloc((size_t)O, row);
    if (!split)
        return err_set(e, DS_EMEM, "no memory for the rows of %s", p->name);
    for (int r = 0; r < O; r++) { /* as load_split_pairs does with numbers */
        int to = r / D * D + r % D / 2 + r % 2 * (D / 2);
        memcpy(split + (size_t)to * row, b->p + (size_t)r * row, row);
    }
    int rc = quant_from_blocks(out, b->kind, split, O, C, e);
    mem_free(split);
    return rc;
}

void file_blocks_free(struct file_blocks *b)
{
    if (!b)
        return;
    gguf_close(b->file);
    mem_free(b->v);
    mem_free(b);
}
