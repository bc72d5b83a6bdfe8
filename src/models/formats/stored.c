/* Reads values of frozen parameters from their file on demand. */
#include "models/stored.h"

#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "models/model.h"
#include "models/moe.h"

static int is_matrix_of_base(const struct model *m, int i)
{
    const struct param *p = &m->params.p[i];
    return i < m->n_base && p->rank == 2 && i != m->pos_embed && !moe_is_router(m, i) &&
           !(m->is_training && p->train) && !adapters_saves(m, i);
}

int stored_mark(struct model *m, struct err *e)
{
    if (!m->stored.v)
        m->stored.v = mem_alloc((size_t)m->params.n, sizeof *m->stored.v);
    if (!m->stored.v)
        return err_set(e, DS_EMEM, "out of memory for a table of %d tensors", m->params.n);
    for (int i = 0; i < m->params.n; i++)
        m->params.p[i].in_file = is_matrix_of_base(m, i);
    return 0;
}

void stored_set(struct model *m, int i, const struct stored *at)
{
    BUG_IF(!m->params.p[i].in_file, "%s: its values are in memory", m->params.p[i].name);
    m->stored.v[i] = *at;
}

int stored_add_file(struct model *m, const struct stored_file *f, struct err *e)
{
    struct stored_table *t = &m->stored;
    if (t->files == STORED_FILES) {
        f->close(f->file);
        return err_set(e, DS_ERANGE, "weights must be in at most %d files", (int)STORED_FILES);
    }
    t->file[t->files++] = *f;
    return 0;
}

int stored_unchanged(const struct model *m, struct err *e)
{
    int rc = 0;
    for (int i = 0; i < m->stored.files && rc == 0; i++)
        if (m->stored.file[i].unchanged)
            rc = m->stored.file[i].unchanged(m->stored.file[i].file, e);
    return rc;
}

void stored_free(struct model *m)
{
    for (int i = 0; i < m->stored.files; i++)
        m->stored.file[i].close(m->stored.file[i].file);
    mem_free(m->stored.v);
    m->stored = (struct stored_table){0};
}

/* Our pairs (i, i + head_dim/2) are (2i, 2i + 1) there. */
size_t stored_file_row(const struct stored *s, size_t row)
{
    if (s->group)
        return row / s->group * s->stride + row % s->group;
    size_t D = (size_t)s->head_dim;
    if (D == 0)
        return row;
    size_t d = row % D;
    return row - d + (d < D / 2 ? 2 * d : 2 * (d - D / 2) + 1);
}

/* Are our rows one after the other in the file? */
static int is_consecutive(const struct stored *s)
{
    return !s->is_transposed && s->head_dim == 0 && s->group == 0;
}

/* Rows of the tensor: ours, or those of all that share it. */
static size_t rows_of(const struct stored *s, const struct param *p)
{
    return s->rows ? s->rows : (size_t)p->shape[0];
}

/* Transposes (C, rows) of the file into our rows, a few at a time. */
static void rows_transposed(const struct stored *s, const struct param *p, size_t row, size_t n,
                            real *out)
{
    enum { TILE = 64 };
    real line[TILE];
    size_t C = (size_t)p->shape[1], width = rows_of(s, p), begin = s->first + row;
    for (size_t o = 0; o < n; o += TILE) {
        size_t k = n - o < TILE ? n - o : TILE;
        for (size_t i = 0; i < C; i++) {
            s->take(s->tensor, i * width + begin + o, k, line);
            for (size_t j = 0; j < k; j++)
                out[(o + j) * C + i] = line[j];
        }
    }
}

void stored_rows(const struct stored *s, const struct param *p, size_t row, size_t n, real *out)
{
    size_t C = (size_t)p->shape[1], before = s->first;
    BUG_IF(!s->take, "%s: the location of its values is not set", p->name);
    if (s->is_transposed) {
        rows_transposed(s, p, row, n, out);
    } else if (is_consecutive(s)) {
        s->take(s->tensor, (before + row) * C, n * C, out);
    } else {
        for (size_t i = 0; i < n; i++)
            s->take(s->tensor, (before + stored_file_row(s, row + i)) * C, C, out + i * C);
    }
}

int stored_is_bf16(const struct stored *s)
{
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && s->is_bf16 && is_consecutive(s);
}

void stored_bf16(const struct stored *s, const struct param *p, size_t row, size_t n, void *out)
{
    size_t each = (size_t)p->shape[1] * sizeof(uint16_t);
    fs_map_copy(out, s->data + (s->first + row) * each, n * each);
}

/* The bytes that contain rows [row, row + n): whole heads in an interleaved tensor. */
static void *bytes_of(const struct stored *s, const struct param *p, size_t row, size_t *n)
{
    size_t rows = rows_of(s, p), each = s->bytes / (rows ? rows : 1);
    size_t begin = (s->first + (s->group ? stored_file_row(s, row) : row)) * each;
    if (s->group && *n > 0)
        *n = stored_file_row(s, row + *n - 1) + 1 - stored_file_row(s, row);
    *n *= each;
    return (void *)(uintptr_t)(s->data + begin);
}

void stored_prefetch(const struct model *m, int i)
{
    const struct param *p = &m->params.p[i];
    size_t n = (size_t)p->shape[0];
    if (p->in_file && !m->stored.v[i].is_transposed) {
        void *at = bytes_of(&m->stored.v[i], p, 0, &n);
        mem_prefetch(at, n);
    }
}

void stored_populate(const struct stored *s, const struct param *p, size_t row, size_t n)
{
    if (!s->is_transposed && !s->is_copied) {
        void *at = bytes_of(s, p, row, &n);
        mem_populate(at, n);
    }
}

/* Rows of a transposed or interleaved tensor, or of one whose parts alternate, share pages with rows still to be read, so no hint is
 * given. */
void stored_drop(const struct stored *s, const struct param *p, size_t row, size_t n)
{
    int is_last = row + n == (size_t)p->shape[0];
    size_t end = s->group ? s->first + s->group : s->first + (size_t)p->shape[0];
    if (is_consecutive(s)) {
        void *at = bytes_of(s, p, row, &n);
        if (!s->is_copied)
            mem_discard(at, n);
    } else if (is_last && end == (s->group ? s->stride : rows_of(s, p))) {
        mem_discard((void *)(uintptr_t)s->data, s->bytes);
    }
}

struct rows {
    const struct stored *s;
    size_t each; /* bytes */
};

/* Interleaved rows are taken one by one, from pages that are mapped already. */
static const void *take_blocks(const void *ctx, int row, int n, void *space)
{
    const struct rows *r = ctx;
    const unsigned char *data = r->s->data + r->s->first * r->each;
    if (r->s->head_dim == 0) {
        fs_map_copy(space, data + (size_t)row * r->each, (size_t)n * r->each);
        return space;
    }
    for (int i = 0; i < n; i++)
        memcpy((char *)space + (size_t)i * r->each,
               data + stored_file_row(r->s, (size_t)(row + i)) * r->each, r->each);
    return space;
}

int stored_quant(struct quant **out, const struct stored *s, const struct param *p, struct err *e)
{
    int O = p->shape[0], C = p->shape[1];
    struct rows r = {s, quant_row_bytes(s->kind, C)};
    if (s->head_dim > 0)
        stored_populate(s, p, 0, (size_t)O);
    int rc = quant_from_rows(out, s->kind, take_blocks, &r, O, C, e);
    if (s->head_dim > 0)
        stored_drop(s, p, 0, (size_t)O);
    return rc;
}

void model_values(const struct model *m, int i, size_t row, size_t n, real *out)
{
    const struct param *p = &m->params.p[i];
    size_t columns = p->rank > 1 ? (size_t)p->shape[1] : 1;
    if (p->in_file)
        stored_rows(&m->stored.v[i], p, row, n, out);
    else
        memcpy(out, p->value + row * columns, n * columns * sizeof *out);
}
