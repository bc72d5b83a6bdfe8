/* Reads weights from files into the parameters: straight from the mapping, several tensors in
 * parallel. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"
#include "load_file.h"
#include "models/formats/tensor_match.h"
#include "models/load.h"
#include "models/moe.h"
#include "models/peft.h"

/* Values per task; columns of a transposed tensor read at a time, each into its own row. */
enum { PIECE = 1 << 19, TILE = 64 };
/* Read-ahead distance, in pieces. */
enum { AHEAD = 16 };

struct item {
    const char *name;
    const struct st_tensor *tensor;
    struct names_place place;
    real *out;
    size_t rows, cols; /* a vector has one row */
    uint64_t bad;
};

struct piece {
    struct item *item;
    size_t row, n; /* rows, or values of a vector */
    uint64_t bad;
};

struct reading {
    struct item *item;
    struct piece *piece;
    int n, pieces;
};

static void take(const struct st_tensor *t, uint64_t at, real *out, uint64_t n)
{
#if REAL_BITS == 64
    st_take_f64(t, at, out, n);
#else
    st_take_f32(t, at, out, n);
#endif
}

static uint64_t count_nonfinite(const real *x, size_t n)
{
    uint64_t bad = 0;
    for (size_t i = 0; i < n; i++)
        bad += !(x[i] - x[i] == 0);
    return bad;
}

/* Transposes (in, out) of the file to our (out, in), a few output rows at a time. */
static void read_transposed(const struct item *x, size_t row, size_t n)
{
    real line[TILE];
    size_t width = x->place.outputs ? (size_t)x->place.outputs : x->rows,
           begin = (size_t)x->place.first + row;
    for (size_t o = 0; o < n; o += TILE) {
        size_t k = n - o < TILE ? n - o : TILE;
        for (size_t i = 0; i < x->cols; i++) {
            take(x->tensor, i * width + begin + o, line, k);
            for (size_t j = 0; j < k; j++)
                x->out[(row + o + j) * x->cols + i] = line[j];
        }
    }
}

/* Rows of the tensor from our row `row` to the last of n. */
static uint64_t rows_between(const struct item *x, size_t row, size_t n)
{
    return n == 0 ? 0 : names_row(&x->place, row + n - 1) + 1 - names_row(&x->place, row);
}

/* Heads of one part, between those of the others. */
static void read_heads(const struct item *x, size_t row, size_t n)
{
    size_t group = (size_t)x->place.group;
    for (size_t end = row + n, k; row < end; row += k) {
        k = group - row % group < end - row ? group - row % group : end - row;
        take(x->tensor, names_row(&x->place, row) * x->cols, x->out + row * x->cols, k * x->cols);
    }
}

/* A transposed tensor is read as a whole, and only once. */
static void want_piece(const struct reading *r, int i)
{
    const struct piece *p = &r->piece[i];
    const struct item *x = p->item;
    if (x->place.is_transposed && p->row == 0)
        st_prefetch(x->tensor, 0, x->tensor->items);
    else if (!x->place.is_transposed)
        st_prefetch(x->tensor, names_row(&x->place, p->row) * x->cols,
                    rows_between(x, p->row, p->n) * x->cols);
}

static void read_piece(void *ctx, int task, int worker)
{
    const struct reading *r = ctx;
    struct piece *p = &r->piece[task];
    const struct item *x = p->item;
    size_t at = p->row * x->cols, n = p->n * x->cols;
    (void)worker;
    if (task + AHEAD < r->pieces)
        want_piece(r, task + AHEAD);
    if (x->place.is_transposed) {
        read_transposed(x, p->row, p->n);
    } else if (x->place.group) {
        read_heads(x, p->row, p->n);
    } else {
        uint64_t from = x->place.first * x->cols + at;
        take(x->tensor, from, x->out + at, n);
        st_drop(x->tensor, from, n);
    }
    p->bad = count_nonfinite(x->out + at, n);
}

static size_t piece_rows(const struct item *x)
{
    size_t n = PIECE / (x->cols ? x->cols : 1) / TILE * TILE;
    return n > 0 ? n : TILE;
}

static int by_address(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    return x->tensor->data < y->tensor->data ? -1 : x->tensor->data > y->tensor->data;
}

/* In file order, for sequential disk access. */
static int cut(struct reading *r, struct err *e)
{
    int n = 0;
    qsort(r->item, (size_t)r->n, sizeof *r->item, by_address);
    for (int i = 0; i < r->n; i++)
        n += (int)(r->item[i].rows / piece_rows(&r->item[i])) + 1;
    r->piece = mem_alloc((size_t)n + 1, sizeof *r->piece);
    if (!r->piece)
        return err_set(e, DS_EMEM, "out of memory for reading tensors");
    for (int i = 0; i < r->n; i++) {
        struct item *x = &r->item[i];
        size_t step = piece_rows(x);
        for (size_t row = 0; row < x->rows; row += step)
            r->piece[r->pieces++] =
                (struct piece){x, row, x->rows - row < step ? x->rows - row : step, 0};
    }
    return 0;
}

static void add_item(struct reading *r, const struct param *p, const struct st_tensor *t,
                     const struct names_place *place, real *out)
{
    struct item *x = &r->item[r->n++];
    BUG_IF(!out, "%s: its values were released", p->name);
    x->name = p->name;
    x->tensor = t;
    x->place = *place;
    x->out = out;
    x->rows = (size_t)p->shape[0];
    x->cols = p->rank > 1 ? (size_t)p->shape[1] : 1;
}

/* Reads everything in the list, then frees it. */
static int read_items(struct reading *r, const struct st_set *s, struct err *e)
{
    int rc = cut(r, e);
    for (int i = 0; i < r->pieces && i < AHEAD && rc == 0; i++)
        want_piece(r, i);
    if (rc == 0)
        pool_run(r->pieces, read_piece, r);
    for (int i = 0; i < r->pieces && rc == 0; i++)
        r->piece[i].item->bad += r->piece[i].bad;
    for (int i = 0; i < r->n && rc == 0; i++)
        if (r->item[i].bad > 0)
            log_warn("%s: tensor %s holds %llu non-finite values", st_set_path(s),
                     r->item[i].tensor->name, (unsigned long long)r->item[i].bad);
    if (rc == 0)
        rc = st_set_unchanged(s, e);
    mem_free(r->item);
    mem_free(r->piece);
    *r = (struct reading){0};
    return rc;
}

static int reading_new(struct reading *r, int n, struct err *e)
{
    *r = (struct reading){.item = mem_alloc((size_t)n + 1, sizeof *r->item)};
    return r->item ? 0 : err_set(e, DS_EMEM, "out of memory for reading tensors");
}

static void take_stored(const void *tensor, uint64_t at, uint64_t n, real *out)
{
    take(tensor, at, out, n);
}

static void leave_stored(struct model *m, int i, const struct source *x)
{
    stored_set(m, i,
               &(struct stored){.take = take_stored,
                                .tensor = x->tensor,
                                .data = x->tensor->data,
                                .bytes = (size_t)x->tensor->bytes,
                                .is_bf16 = x->tensor->dtype == ST_BF16,
                                .is_copied = REAL_BITS == 32 && (x->tensor->dtype == ST_BF16 ||
                                                                 x->tensor->dtype == ST_F32),
                                .is_transposed = x->place.is_transposed,
                                .first = (size_t)x->place.first,
                                .rows = (size_t)x->place.outputs,
                                .group = (size_t)x->place.group,
                                .stride = (size_t)x->place.stride});
}

static void close_set(void *file)
{
    st_set_close(file);
}

static int set_unchanged(const void *file, struct err *e)
{
    return st_set_intact(file, e);
}

/* Values that may stay in the file do; the model then owns the set. */
static int read_covered(struct model *m, struct st_set **s, const struct tensor_match *v,
                        struct err *e)
{
    struct reading r;
    int ignored = 0, rc = tensor_match_check(v, m, *s, e);
    if (rc == 0)
        rc = reading_new(&r, m->params.n, e);
    if (rc < 0)
        return rc;
    for (int i = 0; i < m->params.n; i++) {
        const struct source *x = &v->source[i];
        if (x->tensor && m->params.p[i].in_file) {
            leave_stored(m, i, x);
            ignored++;
        } else if (x->tensor) {
            add_item(&r, &m->params.p[i], x->tensor, &x->place, m->params.p[i].value);
        }
    }
    rc = read_items(&r, *s, e);
    params_changed(&m->params);
    if (rc == 0 && (rc = moe_check_routers(m, e)) < 0)
        rc = err_add(e, rc, "%s", st_set_path(*s));
    if (rc == 0 && ignored > 0) {
        rc = stored_add_file(m, &(struct stored_file){*s, close_set, set_unchanged}, e);
        *s = NULL;
    }
    return rc;
}

/* AdamW's moments use our parameter names in every family. */
static int add_moment(struct reading *r, const struct st_set *s, const struct param *p,
                      const char *suffix, real *out, struct err *e)
{
    struct source x = {.place = {.parts = 1}};
    snprintf(x.place.name, sizeof x.place.name, "%s%s", p->name, suffix);
    x.tensor = st_set_find(s, x.place.name, NULL);
    if (!x.tensor)
        return err_set(e, DS_EFORMAT, "%s: missing tensor %s", st_set_path(s), x.place.name);
    int rc = tensor_match_check_shape(&x, p, e);
    if (rc < 0)
        return err_add(e, rc, "%s", st_set_path(s));
    add_item(r, p, x.tensor, &x.place, out);
    return 0;
}

static int read_moments(struct model *m, const struct st_set *s, struct err *e)
{
    struct reading r;
    int rc = reading_new(&r, 2 * m->params.n, e);
    if (rc < 0)
        return rc;
    for (int i = 0; i < m->params.n && rc == 0; i++) {
        const struct param *p = &m->params.p[i];
        if (p->train)
            rc = add_moment(&r, s, p, ".m", p->m, e);
        if (p->train && rc == 0)
            rc = add_moment(&r, s, p, ".v", p->v, e);
    }
    if (rc == 0)
        return read_items(&r, s, e);
    mem_free(r.item);
    return rc;
}

int model_take_set(struct model *m, struct st_set **s, struct err *e)
{
    struct tensor_match v;
    int rc = tensor_match_init(&v, m, *s, 1, e);
    if (rc < 0)
        return rc;
    rc = read_covered(m, s, &v, e);
    tensor_match_release(&v);
    return rc;
}

int model_read_weights(struct model *m, const char *path, int optimizer, struct err *e)
{
    struct st_set *s = NULL;
    int rc = st_set_open(&s, path, e);
    if (rc == 0)
        rc = optimizer ? read_moments(m, s, e) : model_take_set(m, &s, e);
    st_set_close(s);
    return rc;
}

static void add_count(struct str *out, int n, const char *what, const struct str *names)
{
    if (n > 0)
        str_addf(out, ", %d %s (%s%s)", n, what, str_text(names),
                 n > TENSOR_MATCH_NAMES ? ", ..." : "");
}

static int start_from_set(struct model *m, const char *dir, struct str *note, struct err *e)
{
    struct st_set *s = NULL;
    struct tensor_match v = {0};
    int rc = st_set_open(&s, dir, e);
    if (rc == 0)
        rc = tensor_match_init(&v, m, s, 0, e);
    if (rc == 0)
        rc = read_covered(m, &s, &v, e);
    if (rc == 0) {
        str_addf(note, "%d tensors from %s", v.used_n, dir);
        add_count(note, v.new_n, "new", &v.new);
        add_count(note, v.ignored_n, "ignored", &v.ignored);
    }
    tensor_match_release(&v);
    st_set_close(s);
    return rc;
}

/* A head that adapters part from a tied base starts as its embedding. */
static int is_parted(const struct model *m, const struct model *from, int i)
{
    return i >= 0 && i == m->head && from->head < 0 && adapters_saves(m, i);
}

/* One of the base's parameters: its location in the file, or its values. */
static int take_param(struct model *m, struct model *from, int i, struct err *e)
{
    const struct param *p = &m->params.p[i], *q = &from->params.p[i];
    if (is_parted(m, from, i)) {
        model_values(from, from->embed, 0, (size_t)p->shape[0], p->value);
        return 0;
    }
    if (i >= from->n_base || strcmp(p->name, q->name) != 0 || p->rank != q->rank ||
        p->shape[0] != q->shape[0] || (p->rank > 1 && p->shape[1] != q->shape[1]))
        return err_set(e, DS_EFORMAT, "%s: expected %zu values, found %zu of %s", p->name, p->n,
                       i < from->n_base ? q->n : 0, i < from->n_base ? q->name : "nothing");
    if (p->in_file)
        stored_set(m, i, &from->stored.v[i]);
    else
        model_values(from, i, 0, (size_t)p->shape[0], p->value);
    return 0;
}

/* A single-file model holds only a base. */
static int start_from_file(struct model *m, const char *path, struct str *note, struct err *e)
{
    struct model *from = NULL;
    int rc = model_open(&from, path, NULL, MODEL_INFERENCE, e), kept = 0;
    if (rc == 0 &&
        (from->config.heads != m->config.heads || from->config.kv_heads != m->config.kv_heads))
        rc = err_set(e, DS_EFORMAT, "expected %lld heads over %lld kv heads, found %lld over %lld",
                     (long long)m->config.heads, (long long)m->config.kv_heads,
                     (long long)from->config.heads, (long long)from->config.kv_heads);
    for (int i = 0; i < m->n_base && rc == 0; i++) {
        rc = take_param(m, from, i, e);
        kept += m->params.p[i].in_file;
    }
    if (rc == 0 && from->n_base + is_parted(m, from, m->head) != m->n_base)
        rc = err_set(e, DS_EFORMAT, "%d base tensors, expected %d", from->n_base, m->n_base);
    for (int k = 0; rc == 0 && kept > 0 && k < from->stored.files; k++)
        rc = stored_add_file(m, &from->stored.file[k], e);
    if (rc == 0 && kept > 0)
        from->stored.files = 0; /* they are m's now */
    if (rc == 0) {
        params_changed(&m->params);
        str_addf(note, "%d tensors from %s", m->n_base, path);
    }
    model_free(from);
    return rc < 0 ? err_add(e, rc, "%s", path) : 0;
}

int load_values(struct model *m, const char *dir, struct str *note, struct err *e)
{
    char base[1024];
    int rc = model_base(dir, base, sizeof base, e);
    if (rc != 0)
        return rc < 0 ? rc : model_start_adapted(m, dir, base, note, e);
    return (model_is_file(dir) ? start_from_file : start_from_set)(m, dir, note, e);
}

int model_start_from(struct model *m, const char *dir, struct str *note, struct err *e)
{
    adapters_unset(m);
    int rc = load_values(m, dir, note, e);
    if (rc == 0)
        adapters_start(m);
    return rc;
}

int model_tensor_match(const char *dir, struct str *out, struct err *e)
{
    struct st_set *s = NULL;
    struct model *m = NULL;
    struct tensor_match v = {0};
    struct err why = {0};
    char base[1024];
    int rc = model_base(dir, base, sizeof base, e);
    if (rc != 0)
        return rc < 0 ? rc : model_adapted_tensor_match(dir, base, out, e);
    rc = model_open_table(&m, dir, NULL, MODEL_INFERENCE, e);
    if (rc == 0)
        rc = st_set_open(&s, dir, e);
    if (rc == 0)
        rc = tensor_match_init(&v, m, s, 1, e);
    if (rc == 0) {
        str_add(out, "weights: ");
        tensor_match_text(&v, out);
        if (st_set_shards(s) > 1)
            str_addf(out, ", in %zu shards", st_set_shards(s));
        str_add(out, "\n");
        if (v.missing_n == 0 && v.unexpected_n == 0 && tensor_match_check(&v, m, s, &why) < 0)
            str_addf(out, "%s\n", why.text);
    }
    tensor_match_release(&v);
    st_set_close(s);
    model_free(m);
    return rc;
}
