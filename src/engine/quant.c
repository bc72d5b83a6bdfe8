/* Quantised weights: creation and release, choice of kernels, and partitioning of work. */
#include "engine/quant.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "engine/quant_impl.h"
#include "engine/scratch.h"

struct quant {
    enum quant_kind kind;
    int O, C, panels;
    size_t stride; /* bytes per panel */
    uint8_t *data;
};

const char *const quant_name[QUANT_KINDS] = {"none", "q8_0",   "q4_0",   "q4_k", "q5_k",
                                             "q6_k", "q4_1",   "q5_0",   "q5_1", "q2_k",
                                             "q3_k", "iq4_nl", "iq4_xs", "mxfp4"};

/* ---- kernels --------------------------------------------------------------------------------- */

/* In order of preference. */
static const struct quant_kernels *const kernels[] = {
#ifdef QUANT_X86
    &quant_vnni,
    &quant_avx2,
#endif
    &quant_ref,
};

static _Atomic(const struct quant_kernels *) current; /* the first call may come from any thread */

void quant_use_reference(int on)
{
    int i = 0;
    while (!on && !kernels[i]->available()) /* the last one always is available */
        i++;
    atomic_store(&current, on ? &quant_ref : kernels[i]);
}

static const struct quant_kernels *kernels_get(void)
{
    const struct quant_kernels *k = atomic_load_explicit(&current, memory_order_acquire);
    if (DS_UNLIKELY(!k)) {
        quant_use_reference(0);
        k = atomic_load(&current);
    }
    return k;
}

/* ---- creation and release -------------------------------------------------------------------- */

struct load_job {
    struct quant *q;
    const real *w;       /* values, or */
    quant_take_fn *take; /* rows of blocks as in a file */
    const void *ctx;
    size_t row_bytes;
    int panels;      /* per task */
    _Atomic int bad; /* the lowest row with an error; O: none */
};

/* Blocks of a file packed at a time: they stay in the L2 cache. */
enum { LOAD_BYTES = 1 << 17 };

static const uint8_t *rows_take(const struct load_job *j, int o, int rows)
{
    return j->w ? NULL
                : j->take(j->ctx, o, rows, scratch_get(SCRATCH_BLOCKS, (size_t)rows, j->row_bytes));
}

/* Columns c.. of row o: quantises them into own, or checks the file's block. */
static inline int block_take(const struct load_job *j, uint8_t *own, const uint8_t *block, int o,
                             int c)
{
    enum quant_kind kind = j->q->kind;
    if (j->w)
        return quant_encode(own, kind, j->w + (size_t)o * (size_t)j->q->C + c);
    return quant_is_sound(kind, block) ? DS_OK : DS_ENUMERIC;
}

/* The error of a row. */
static int row_fault(const struct load_job *j, int o)
{
    const struct quant_format *f = &quant_format[j->q->kind];
    const uint8_t *block = rows_take(j, o, 1);
    uint8_t own[QUANT_BLOCK_BYTES];
    int rc = DS_OK;
    for (int c = 0; c < j->q->C && rc == DS_OK; c += f->columns, block += j->w ? 0 : f->bytes)
        rc = block_take(j, own, block, o, c);
    return rc;
}

/* Rows from o on; blocks: the first one's, as in a file, or NULL. */
static void panel_load(struct load_job *j, int o, const uint8_t *blocks)
{
    const struct quant *q = j->q;
    const struct quant_format *f = &quant_format[q->kind];
    uint8_t *panel = q->data + (size_t)(o / QUANT_ROWS) * q->stride;
    uint8_t own[QUANT_ROWS * QUANT_BLOCK_BYTES] = {0};
    const uint8_t *block = blocks ? blocks : own;
    size_t step = blocks ? j->row_bytes : (size_t)f->bytes;
    int rows = q->O - o < QUANT_ROWS ? q->O - o : QUANT_ROWS, least = q->O;
    if (rows < QUANT_ROWS)
        memset(panel, 0, q->stride);
    for (int c = 0; c < q->C; c += f->columns, block += blocks ? f->bytes : 0) {
        for (int r = 0; r < rows && o + r < least; r++)
            if (block_take(j, own + r * f->bytes, block + (size_t)r * step, o + r, c) < 0)
                least = o + r;
        quant_pack(panel, q->kind, block, step, rows, c);
    }
    int bad = atomic_load(&j->bad);
    while (least < bad && !atomic_compare_exchange_weak(&j->bad, &bad, least)) {
    }
}

static void panels_load(void *ctx, int task, int worker)
{
    struct load_job *j = ctx;
    int o = task * j->panels * QUANT_ROWS, most = j->panels * QUANT_ROWS;
    int end = j->q->O - o < most ? j->q->O : o + most;
    const uint8_t *blocks = rows_take(j, o, end - o);
    (void)worker;
    for (int at = o; at < end; at += QUANT_ROWS)
        panel_load(j, at, blocks ? blocks + (size_t)(at - o) * j->row_bytes : NULL);
}

static int load(struct quant **out, struct load_job *j, enum quant_kind kind, int O, int C,
                struct err *e)
{
    j->row_bytes = quant_row_bytes(kind, C);
    if (j->row_bytes == 0 || O < 1)
        return err_set(e, DS_ERANGE, "%d x %d weights do not fit blocks of %s", O, C,
                       kind >= 0 && kind < QUANT_KINDS ? quant_name[kind] : "an unknown kind");
    struct quant *q = mem_alloc(1, sizeof *q);
    size_t total;
    if (!q)
        return err_set(e, DS_EMEM, "out of memory for quantised weights");
    *q = (struct quant){.kind = kind,
                        .O = O,
                        .C = C,
                        .panels = task_count(O, QUANT_ROWS),
                        .stride = quant_panel_bytes(kind, C)};
    if (!DS_MUL_OVERFLOW((size_t)q->panels, q->stride, &total))
        q->data = mem_reserve(total);
    if (!q->data) {
        quant_free(q);
        return err_set(e, DS_EMEM, "out of memory for %d x %d weights in %s", O, C,
                       quant_name[kind]);
    }
    j->q = q;
    atomic_init(&j->bad, O);
    int panels = (int)(LOAD_BYTES / (QUANT_ROWS * j->row_bytes));
    j->panels = j->w || panels < 1 ? 1 : panels;
    pool_run(task_count(q->panels, j->panels), panels_load, j);
    int bad = atomic_load(&j->bad);
    if (bad < O) {
        int rc = row_fault(j, bad);
        quant_free(q);
        return err_set(e, rc, "row %d of the weights for %s: %s", bad, quant_name[kind],
                       rc == DS_ERANGE ? "a scale overflows fp16" : "a weight is not finite");
    }
    *out = q;
    return DS_OK;
}

int quant_new(struct quant **out, enum quant_kind kind, const real *w, int O, int C, struct err *e)
{
    struct load_job j = {.w = w};
    BUG_IF(kind >= QUANT_WRITTEN && kind < QUANT_KINDS,
           "quant_new: weights cannot be rounded to %s", quant_name[kind]);
    return load(out, &j, kind, O, C, e);
}

struct in_memory {
    const uint8_t *blocks;
    size_t row_bytes;
};

static const void *take_in_memory(const void *ctx, int row, int n, void *space)
{
    const struct in_memory *m = ctx;
    (void)n;
    (void)space;
    return m->blocks + (size_t)row * m->row_bytes;
}

int quant_from_blocks(struct quant **out, enum quant_kind kind, const void *blocks, int O, int C,
                      struct err *e)
{
    struct in_memory m = {blocks, quant_row_bytes(kind, C)};
    return quant_from_rows(out, kind, take_in_memory, &m, O, C, e);
}

int quant_from_rows(struct quant **out, enum quant_kind kind, quant_take_fn *take, const void *ctx,
                    int O, int C, struct err *e)
{
    struct load_job j = {.take = take, .ctx = ctx};
    return load(out, &j, kind, O, C, e);
}

void quant_free(struct quant *q)
{
    if (!q)
        return;
    mem_free_aligned(q->data);
    mem_free(q);
}

size_t quant_bytes(const struct quant *q)
{
    return sizeof *q + (size_t)q->panels * q->stride;
}

enum quant_kind quant_kind_of(const struct quant *q)
{
    return q->kind;
}

/* ---- dequantisation -------------------------------------------------------------------------- */

void quant_row(real *w, const struct quant *q, int o)
{
    BUG_IF(o < 0 || o >= q->O, "quant_row: row %d of %d", o, q->O);
    quant_unpack(w, q->C, q->kind, q->data + (size_t)(o / QUANT_ROWS) * q->stride, o % QUANT_ROWS,
                 1, 0, q->C);
}

struct numbers_job {
    const struct quant *q;
    real *w;
    const int32_t *row;
    int o, rows, c, cols; /* the part; N rows in steps of `rows` */
    int N;
};

static void rows_run(void *ctx, int task, int worker)
{
    const struct numbers_job *j = ctx;
    (void)worker;
    for (int i = task * j->rows; i < j->N && i < (task + 1) * j->rows; i++)
        quant_row(j->w + (size_t)i * (size_t)j->q->C, j->q, j->row[i]);
}

void quant_rows(real *w, const struct quant *q, const int32_t *row, int N)
{
    struct numbers_job j = {.q = q, .w = w, .row = row, .rows = task_rows(q->C), .N = N};
    pool_run(task_count(N, j.rows), rows_run, &j);
}

/* Dequantises the rows of one panel that belong to the part. */
static void part_run(void *ctx, int task, int worker)
{
    const struct numbers_job *j = ctx;
    const struct quant *q = j->q;
    int panel = j->o / QUANT_ROWS + task, first = panel * QUANT_ROWS, end = first + QUANT_ROWS;
    (void)worker;
    first = first > j->o ? first : j->o;
    end = end < j->o + j->rows ? end : j->o + j->rows;
    quant_unpack(j->w + (size_t)(first - j->o) * (size_t)j->cols, j->cols, q->kind,
                 q->data + (size_t)panel * q->stride, first % QUANT_ROWS, end - first, j->c,
                 j->cols);
}

void quant_part(real *w, const struct quant *q, int o, int rows, int c, int cols)
{
    struct numbers_job j = {.q = q, .w = w, .o = o, .rows = rows, .c = c, .cols = cols};
    BUG_IF(o < 0 || rows < 0 || rows > q->O - o || c < 0 || cols < 0 || cols > q->C - c ||
               c % QUANT_BLOCK || cols % QUANT_BLOCK,
           "quant_part: rows %d + %d of %d, columns %d + %d of %d", o, rows, q->O, c, cols, q->C);
    if (rows > 0)
        pool_run((o + rows - 1) / QUANT_ROWS - o / QUANT_ROWS + 1, part_run, &j);
}

/* ---- multiplication -------------------------------------------------------------------------- */

/* Rows that share a pass over the weights: their activations fit in L2. */
enum { PASS_ROWS = 128 };

struct linear_job {
    struct quant_call c;
    const struct quant_kernels *by;
    struct quant_x *rounded; /* tiles of QUANT_TILE rows, each (blocks, rows of the tile) */
    int blocks;
    int tiles;          /* row tiles per rounding task */
    int panels, passes; /* panels per task, row passes */
    int round_end, end; /* tasks of this job and of those before it */
};

/* Jobs that share a parallel loop. */
struct linear_jobs {
    struct linear_job v[QUANT_CALLS];
    int n, stretches; /* that threads take tasks from in turn */
};

static int tile_rows(const struct linear_job *j, int n)
{
    return j->c.N - n < QUANT_TILE ? j->c.N - n : QUANT_TILE;
}

static void round_tiles(void *ctx, int task, int worker)
{
    const struct linear_jobs *all = ctx;
    const struct linear_job *j = all->v;
    while (task >= j->round_end)
        j++;
    task -= j > all->v ? j[-1].round_end : 0;
    int from = task * j->tiles * QUANT_TILE, to = from + j->tiles * QUANT_TILE;
    (void)worker;
    for (int n = from; n < to && n < j->c.N; n++) {
        int first = n / QUANT_TILE * QUANT_TILE;
        struct quant_x *out = j->rounded + (size_t)first * (size_t)j->blocks + (n - first);
        size_t at = (size_t)(j->c.row ? j->c.row[n] : n);
        j->by->round(out, j->c.x + at * (size_t)j->c.q->C, j->blocks, tile_rows(j, first),
                     j->c.q->kind);
    }
}

static void store(const struct linear_job *j, const float *acc, int o0, int n0, int rows)
{
    int lanes = j->c.q->O - o0 < QUANT_ROWS ? j->c.q->O - o0 : QUANT_ROWS;
    for (int n = 0; n < rows; n++, acc += QUANT_ROWS) {
        real *y = j->c.y + (size_t)(n0 + n) * (size_t)j->c.q->O + o0;
        for (int r = 0; r < lanes; r++) {
            real v = (real)acc[r];
            if (j->c.b)
                v += j->c.b[o0 + r];
            y[r] = j->c.beta != 0 ? v + y[r] : v;
        }
    }
}

/* acc (rows,16) += some blocks of a panel times those of the rows of a pass. */
static void part_multiply(const struct linear_job *j, float *acc, const uint8_t *panel, int b,
                          int blocks, int n0, int rows)
{
    const struct quant_kernels *by = j->by;
    enum quant_kind kind = j->c.q->kind;
    const struct quant_x *x = j->rounded + (size_t)n0 * (size_t)j->blocks;
    const uint8_t *w = panel + quant_group_at(kind, b);
    size_t step = (size_t)j->blocks * QUANT_TILE;
    if (by->rows && rows >= QUANT_MANY) {
        by->rows[kind](acc, w, x, step, b, blocks, rows);
        return;
    }
    for (int n = 0; n < rows; n += QUANT_TILE, x += step) {
        int tile = tile_rows(j, n0 + n);
        by->panel[kind](acc + n * QUANT_ROWS, w, x + b * tile, blocks, tile);
    }
}

/* Multiplies one panel with the rows of a pass, a part at a time unless the rows are one tile. */
static void panel_run(const struct linear_job *j, int panel, int n0, int rows)
{
    _Alignas(64) float acc[PASS_ROWS * QUANT_ROWS];
    const uint8_t *w = j->c.q->data + (size_t)panel * j->c.q->stride;
    int most = rows > QUANT_TILE || (j->by->rows && rows >= QUANT_MANY) ? QUANT_PART : j->blocks;
    memset(acc, 0, (size_t)rows * QUANT_ROWS * sizeof *acc);
    for (int b = 0; b < j->blocks; b += most)
        part_multiply(j, acc, w, b, j->blocks - b < most ? j->blocks - b : most, n0, rows);
    store(j, acc, panel * QUANT_ROWS, n0, rows);
}

/* Threads take tasks in turn, each from its own stretch, so that what a thread prefetched is what
 * it computes next; the assignment does not change results.  One row, 2 threads: Q8_0 50 -> 53
 * GB/s, Q4_0 50 -> 59, Q4_K 46 -> 54, with a memory bandwidth of 56. */
static int task_of(const struct linear_jobs *all, int at)
{
    int tasks = all->v[all->n - 1].end, n = all->stretches;
    int s = at % n, more = tasks % n;
    return s * (tasks / n) + (s < more ? s : more) + at / n;
}

static void panels_run(void *ctx, int at, int worker)
{
    const struct linear_jobs *all = ctx;
    const struct linear_job *j = all->v;
    int task = task_of(all, at);
    (void)worker;
    while (task >= j->end)
        j++;
    task -= j > all->v ? j[-1].end : 0;
    int first = task / j->passes * j->panels, n0 = task % j->passes * PASS_ROWS;
    int rows = j->c.N - n0 < PASS_ROWS ? j->c.N - n0 : PASS_ROWS;
    for (int p = first; p < first + j->panels && p < j->c.q->panels; p++)
        panel_run(j, p, n0, rows);
}

/* Enough tasks for the threads, each large enough to be worth starting and small enough to
 * balance. */
static void job_cut(struct linear_job *j)
{
    enum { TASKS = 16, LEAST = 16384 /* multiplications */, MOST = 524288 /* weights */ };
    const struct quant *q = j->c.q;
    int panel = QUANT_ROWS * q->C, rows = j->c.N < PASS_ROWS ? j->c.N : PASS_ROWS;
    int least = (int)(LEAST / ((long long)panel * rows)), most = MOST / panel;
    int n = q->panels / TASKS;
    n = n > most ? most : n;
    n = n < least ? least : n;
    j->panels = n > 0 ? n : 1;
    j->passes = task_count(j->c.N, PASS_ROWS);
    int tiles = task_rows(q->C) / QUANT_TILE;
    j->tiles = tiles > 0 ? tiles : 1;
}

/* Do two calls round the same rows in the same way? */
static int shares_rows(const struct quant_call *a, const struct quant_call *b)
{
    if (a->x != b->x || a->N != b->N || a->q->C != b->q->C || a->q->kind != b->q->kind)
        return 0;
    return a->row == b->row ||
           (a->row && b->row && memcmp(a->row, b->row, (size_t)a->N * sizeof *a->row) == 0);
}

/* Few rows are rounded sooner than the threads are awake. */
static void round_all(struct linear_jobs *all, size_t blocks)
{
    enum { LEAST = 512 /* blocks */ };
    int tasks = all->v[all->n - 1].round_end;
    if (blocks > LEAST)
        pool_run(tasks, round_tiles, all);
    for (int i = 0; blocks <= LEAST && i < tasks; i++)
        round_tiles(all, i, 0);
}

void quant_linear_many(const struct quant_call *call, int n)
{
    struct linear_jobs all = {.stretches = pool_threads()};
    size_t room = 0, at = 0;
    BUG_IF(n > QUANT_CALLS, "quant_linear_many: %d calls", n);
    for (int i = 0; i < n; i++) {
        const struct quant_call *c = &call[i];
        BUG_IF(c->N < 0, "quant_linear: %d rows", c->N);
        BUG_IF(c->beta != 0 && c->beta != 1, "quant_linear: beta must be 0 or 1");
        if (c->N == 0)
            continue;
        struct linear_job *j = &all.v[all.n++];
        *j = (struct linear_job){.c = *c, .by = kernels_get(), .blocks = c->q->C / QUANT_BLOCK};
        job_cut(j);
        room += (size_t)c->N * (size_t)j->blocks;
    }
    if (all.n == 0)
        return;
    struct quant_x *rounded = scratch_get(SCRATCH_QUANT, room, sizeof *rounded);
    for (int i = 0, rounds = 0, tasks = 0; i < all.n; i++) {
        struct linear_job *j = &all.v[i];
        int is_shared = i > 0 && shares_rows(&j->c, &j[-1].c);
        j->rounded = is_shared ? j[-1].rounded : rounded + at;
        at += is_shared ? 0 : (size_t)j->c.N * (size_t)j->blocks;
        rounds += is_shared ? 0 : task_count(j->c.N, j->tiles * QUANT_TILE);
        tasks += task_count(j->c.q->panels, j->panels) * j->passes;
        j->round_end = rounds;
        j->end = tasks;
    }
    round_all(&all, at);
    pool_run(all.v[all.n - 1].end, panels_run, &all);
}
