/* Converts rows of parameters to the types of export files. */
#include "export_rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/pool.h"
#include "engine/bf16.h"
#include "io/gguf.h"
#include "io/st_dtype.h"
#include "models/adapters.h"
#include "models/peft.h"

/* Values per chunk in memory, and per task in it. */
enum { CHUNK = 1 << 21, TASK = 1 << 16 };

/* ---- types ----------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    uint32_t type;
} types[] = {
    {"f32", GGUF_T_F32},     {"f16", GGUF_T_F16},       {"bf16", GGUF_T_BF16},
    {"q8_0", GGUF_T_Q8_0},   {"q4_0", GGUF_T_Q4_0},     {"q4_k", GGUF_T_Q4_K},
    {"q5_k", GGUF_T_Q5_K},   {"q6_k", GGUF_T_Q6_K},     {"q4_1", GGUF_T_Q4_1},
    {"q5_0", GGUF_T_Q5_0},   {"q5_1", GGUF_T_Q5_1},     {"q2_k", GGUF_T_Q2_K},
    {"q3_k", GGUF_T_Q3_K},   {"iq4_nl", GGUF_T_IQ4_NL}, {"iq4_xs", GGUF_T_IQ4_XS},
    {"mxfp4", GGUF_T_MXFP4},
};

/* The block format of a type; QUANT_NONE for plain floats and unsupported blocks. */
static enum quant_kind kind_of(uint32_t type)
{
    for (size_t i = 0; i < DS_LEN(types); i++)
        for (int k = QUANT_NONE + 1; types[i].type == type && k < QUANT_KINDS; k++)
            if (strcmp(quant_name[k], types[i].name) == 0)
                return (enum quant_kind)k;
    return QUANT_NONE;
}

static int is_plain(uint32_t type)
{
    return type == GGUF_T_F32 || type == GGUF_T_F16 || type == GGUF_T_BF16;
}

/* Can any values be written in it?  Blocks of the other kinds are only copied. */
static int is_written(uint32_t type)
{
    return is_plain(type) || (kind_of(type) != QUANT_NONE && kind_of(type) < QUANT_WRITTEN);
}

void export_type_names(struct str *out)
{
    for (size_t i = 0; i < DS_LEN(types); i++)
        if (is_written(types[i].type))
            str_addf(out, "%s%s", i ? "|" : "", types[i].name);
}

int export_type(uint32_t *type, const char *name, struct err *e)
{
    struct str all = {0};
    for (size_t i = 0; i < DS_LEN(types); i++)
        if (strcmp(types[i].name, name) == 0 && is_written(types[i].type)) {
            *type = types[i].type;
            return 0;
        }
    export_type_names(&all);
    err_set(e, DS_EUSAGE, "unknown weights=%.40s: expected %s", name, str_text(&all));
    str_release(&all);
    return DS_EUSAGE;
}

size_t export_row_bytes(uint32_t type, int C)
{
    int items, bytes;
    if (!gguf_type_block(type, &items, &bytes) || C % items != 0)
        return 0;
    return (size_t)(C / items) * (size_t)bytes;
}

/* ---- parameters ------------------------------------------------------------------------------ */

int export_params(const struct export_source *s)
{
    return s->base_only ? s->m->n_base : s->m->params.n;
}

int export_is_head(const struct export_source *s, int i)
{
    return i == s->m->embed || i == s->m->head;
}

static size_t columns_of(const struct param *p)
{
    return p->rank > 1 ? (size_t)p->shape[1] : 1;
}

size_t export_chunk_rows(const struct param *p)
{
    size_t n = CHUNK / columns_of(p);
    return n > 0 ? n : 1;
}

/* The magnitudes that DoRA starts with: norms of rows of the matrix, as B is zero. */
static void random_norms(const struct export_source *s, int matrix, size_t row, size_t n, real *out)
{
    const struct param *p = &s->m->params.p[matrix];
    size_t columns = columns_of(p);
    real part[256];
    for (size_t o = 0; o < n; o++) {
        double sum = 0;
        for (size_t c = 0, k; c < columns; c += k) {
            k = columns - c < DS_LEN(part) ? columns - c : DS_LEN(part);
            params_init_range(p, s->seed, (row + o) * columns + c, k, part);
            for (size_t j = 0; j < k; j++)
                sum += (double)part[j] * (double)part[j];
        }
        out[o] = (real)sqrt(sum);
    }
}

void export_values(const struct export_source *s, int i, size_t row, size_t n, real *out)
{
    const struct param *p = &s->m->params.p[i];
    size_t columns = columns_of(p);
    const struct adapter *x = s->is_random ? adapters_of(s->m, i) : NULL;
    if (x && i == x->magnitude)
        random_norms(s, x->matrix, row, n, out);
    else if (s->is_random)
        params_init_range(p, s->seed, row * columns, n * columns, out);
    else if (s->is_merged)
        model_values_merged(s->m, i, row, n, out);
    else
        model_values(s->m, i, row, n, out);
}

/* ---- types of the source --------------------------------------------------------------------- */

int export_stored_type(const struct export_source *s, int i, uint32_t *type)
{
    const struct param *p = &s->m->params.p[i];
    if (s->is_random || !p->in_file || s->m->stored.v[i].take != gguf_take ||
        (s->is_merged && adapters_find(s->m, i)))
        return 0;
    *type = ((const struct gguf_tensor *)s->m->stored.v[i].tensor)->type;
    return is_plain(*type) || kind_of(*type) != QUANT_NONE;
}

int export_stored_types(const struct export_source *s, int *blocks, char *text, size_t size)
{
    int n[DS_LEN(types)] = {0}, found = 0;
    struct str all = {0};
    uint32_t type;
    for (int i = 0; i < s->m->n_base; i++)
        for (size_t k = 0; k < DS_LEN(types) && export_stored_type(s, i, &type); k++)
            n[k] += types[k].type == type;
    if (blocks)
        *blocks = 0;
    for (size_t k = 0; k < DS_LEN(types); k++)
        if (n[k] > 0) {
            str_addf(&all, "%s%s %d", found++ ? ", " : "", types[k].name, n[k]);
            if (blocks)
                *blocks += !is_plain(types[k].type);
        }
    str_copy(text, size, str_text(&all));
    str_release(&all);
    return found;
}

/* ---- conversion to bytes --------------------------------------------------------------------- */

static void put16(unsigned char *p, uint16_t v)
{
    p[0] = (unsigned char)(v & 255);
    p[1] = (unsigned char)(v >> 8);
}

static int encode_f32(const real *w, size_t n, unsigned char *out)
{
    for (size_t i = 0; i < n; i++) {
        float x = (float)w[i];
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        put16(out + 4 * i, (uint16_t)bits);
        put16(out + 4 * i + 2, (uint16_t)(bits >> 16));
    }
    return 0;
}

/* Finite values must stay finite: one that would overflow is an error. */
static int encode_16(const real *w, size_t n, unsigned char *out, int is_bf16)
{
    int over = 0;
    for (size_t i = 0; i < n; i++) {
        float x = (float)w[i];
        uint16_t h = is_bf16 ? bf16_of(x) : st_half_of(x);
        over |= (h & 0x7fff) == (is_bf16 ? 0x7f80 : 0x7c00) && isfinite(w[i]);
        put16(out + 2 * i, h);
    }
    return over ? DS_ERANGE : 0;
}

static int encode(uint32_t type, const real *w, size_t C, unsigned char *out)
{
    if (type == GGUF_T_F32)
        return encode_f32(w, C, out);
    if (is_plain(type))
        return encode_16(w, C, out, type == GGUF_T_BF16);
    return quant_encode_row(kind_of(type), w, (int)C, out);
}

struct job {
    const struct export_source *s;
    int i;
    enum row_order order;
    uint32_t type;
    size_t row, n, step, columns, bytes; /* bytes of a row */
    unsigned char *out;
    int *rc; /* of each task */
};

/* Our row that is written at position `row`. */
static size_t row_at(const struct job *j, size_t row)
{
    size_t D = (size_t)j->s->m->config.head_dim, d = row % D;
    return j->order == ROWS_INTERLEAVED ? row - d + d / 2 + d % 2 * (D / 2) : row;
}

/* Rows of blocks that cannot be made from values, as they are in the file. */
static void copy_rows(const struct job *j, size_t from, size_t end)
{
    const struct stored *at = &j->s->m->stored.v[j->i];
    BUG_IF(at->kind != kind_of(j->type), "%s: rows in another type", j->s->m->params.p[j->i].name);
    for (size_t i = from; i < end; i++)
        memcpy(j->out + i * j->bytes,
               at->data + (at->first + stored_file_row(at, row_at(j, j->row + i))) * j->bytes,
               j->bytes);
}

static void encode_task(void *ctx, int task, int worker)
{
    const struct job *j = ctx;
    size_t from = (size_t)task * j->step, end = from + j->step < j->n ? from + j->step : j->n;
    size_t at_once = j->order == ROWS_INTERLEAVED ? 1 : end - from;
    real *w = mem_alloc(at_once * j->columns, sizeof *w);
    (void)worker;
    j->rc[task] = w ? 0 : DS_EMEM;
    if (!is_written(j->type)) {
        copy_rows(j, from, end);
        from = end;
    }
    for (size_t i = from; i < end && j->rc[task] == 0; i += at_once) {
        export_values(j->s, j->i, row_at(j, j->row + i), at_once, w);
        for (size_t k = 0; j->order == ROWS_PLUS_ONE && k < at_once * j->columns; k++)
            w[k] += 1;
        if (j->bytes == 0) { /* a vector: its values are one line */
            j->rc[task] = encode(j->type, w, at_once, j->out + i * export_row_bytes(j->type, 1));
            continue;
        }
        for (size_t k = 0; k < at_once && j->rc[task] == 0; k++)
            j->rc[task] =
                encode(j->type, w + k * j->columns, j->columns, j->out + (i + k) * j->bytes);
    }
    mem_free(w);
}

static int report_failure(int rc, const char *name, uint32_t type, struct err *e)
{
    const char *in = gguf_type_name(type);
    if (rc == DS_ENUMERIC)
        return err_set(e, rc, "tensor %s: non-finite values cannot be stored as %s", name, in);
    if (rc == DS_ERANGE)
        return err_set(e, rc, "tensor %s: values out of range for %s", name, in);
    return err_set(e, rc, "out of memory for rows of %s", name);
}

int export_encode(const struct export_source *s, int i, enum row_order order, uint32_t type,
                  size_t row, size_t n, unsigned char *out, struct err *e)
{
    const struct param *p = &s->m->params.p[i];
    struct job j = {.s = s, .i = i, .order = order, .type = type, .row = row, .n = n, .out = out};
    j.columns = columns_of(p);
    j.bytes = p->rank > 1 ? export_row_bytes(type, p->shape[1]) : 0;
    j.step = TASK / j.columns > 0 ? TASK / j.columns : 1;
    size_t tasks = n / j.step + (n % j.step != 0);
    j.rc = mem_alloc(tasks + 1, sizeof *j.rc);
    if (!j.rc)
        return err_set(e, DS_EMEM, "out of memory for rows of %s", p->name);
    pool_run((int)tasks, encode_task, &j);
    int rc = 0;
    for (size_t t = 0; t < tasks && rc == 0; t++)
        rc = j.rc[t] < 0 ? report_failure(j.rc[t], p->name, type, e) : 0;
    mem_free(j.rc);
    return rc;
}

/* The original blocks of the model's file, when they have this type and order. */
static const unsigned char *as_in_file(const struct export_source *s, int i, enum row_order order,
                                       uint32_t type)
{
    enum quant_kind kind = kind_of(type);
    if (s->is_random || kind == QUANT_NONE || !s->m->params.p[i].in_file)
        return NULL;
    if (s->is_merged && adapters_find(s->m, i))
        return NULL;
    const struct stored *at = &s->m->stored.v[i];
    int is_interleaved = at->head_dim > 0;
    return at->kind == kind && is_interleaved == (order == ROWS_INTERLEAVED)
               ? at->data + at->first * quant_row_bytes(kind, s->m->params.p[i].shape[1])
               : NULL;
}

/* Pages of a file that have been read may be evicted. */
void export_drop(const struct export_source *s, int i, size_t row, size_t n)
{
    const struct param *p = &s->m->params.p[i];
    if (!s->is_random && p->in_file)
        stored_drop(&s->m->stored.v[i], p, row, n);
}

int export_check_source(const struct export_source *s, struct err *e)
{
    return s->is_random ? 0 : stored_unchanged(s->m, e);
}

int export_write(const struct export_source *s, int i, enum row_order order, uint32_t type,
                 export_sink *sink, void *ctx, struct export_way *way, struct err *e)
{
    const struct param *p = &s->m->params.p[i];
    size_t rows = (size_t)p->shape[0], step = export_chunk_rows(p);
    size_t bytes = export_row_bytes(type, (int)columns_of(p));
    const unsigned char *whole = as_in_file(s, i, order, type);
    int rc = 0;
    if (whole) {
        rc = sink(ctx, whole, rows * bytes, e);
        export_drop(s, i, 0, rows);
        return rc < 0 ? rc : export_step(way, (double)p->n, e);
    }
    unsigned char *out = mem_alloc(step < rows ? step : rows, bytes);
    if (!out)
        return err_set(e, DS_EMEM, "out of memory for rows of %s", p->name);
    for (size_t row = 0, n; row < rows && rc == 0; row += n) {
        n = rows - row < step ? rows - row : step;
        rc = export_encode(s, i, order, type, row, n, out, e);
        export_drop(s, i, row, n);
        if (rc == 0)
            rc = sink(ctx, out, n * bytes, e);
        if (rc == 0)
            rc = export_step(way, (double)(n * columns_of(p)), e);
    }
    mem_free(out);
    return rc;
}

/* ---- disk space ------------------------------------------------------------------------------ */

int export_check_room(const char *path, uint64_t bytes, struct err *e)
{
    char dir[1024], a[16], b[16];
    const char *slash = strrchr(path, '/');
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - path) + (slash == path) : 1,
             slash ? path : ".");
    uint64_t left = fs_free_bytes(fs_is_dir(path) ? path : dir);
    if (left == 0 || bytes < left)
        return 0;
    return err_set(e, DS_EIO, "%s needs %sB, but the disk has only %sB free", path,
                   str_si(a, (double)bytes), str_si(b, (double)left));
}

int export_step(struct export_way *way, double more, struct err *e)
{
    way->done += more;
    if (way->o->progress && way->o->progress(way->o->ctx, way->done, way->all))
        return err_set(e, DS_ESTOP, "interrupted: nothing was written");
    return 0;
}
