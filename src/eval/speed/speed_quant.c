/* Times GEMM with quantised weights: one row, as in decoding (memory-bound), and 128 rows, as in
 * prefill; also packing of a file's blocks, and dequantisation, as embeddings and the gradient
 * through a frozen base need it. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "speed_impl.h"

enum { PREFILL_ROWS = 128, PREFILL_O = 2048, NUMBERS_O = 512 };
enum what { ONE_ROW, MANY_ROWS, LAY_OUT, NUMBERS, WHATS };
static const char *const what_name[WHATS] = {"1x", "128x", "pack ", "dequantise "};

struct kinds {
    enum quant_kind kind;
    int C, O; /* larger than the caches */
    uint8_t *blocks;
    struct quant *tall, *low; /* (O,C), (PREFILL_O,C) */
    real *x, *y, *w;
    double seconds[WHATS][SPEED_ROUNDS_MAX], read_gbs[SPEED_ROUNDS_MAX];
};

static int outs(const struct kinds *k, enum what what)
{
    int most = what == MANY_ROWS ? PREFILL_O : what == NUMBERS ? NUMBERS_O : k->O;
    return most < k->O ? most : k->O;
}

static void name_of(char out[64], const struct kinds *k, enum what what)
{
    snprintf(out, 64, "quant %s %s%dx%d", quant_name[k->kind], what_name[what], k->C,
             outs(k, what));
}

static int is_timed(const struct kinds *k, const struct speed *s, enum what what)
{
    char name[64];
    name_of(name, k, what);
    return speed_request(s, "ops", name);
}

static int once(struct kinds *k, enum what what, struct err *e)
{
    struct quant *q = NULL;
    int rc = 0;
    if (what == ONE_ROW)
        quant_linear(k->y, k->x, NULL, k->tall, NULL, 1, 0);
    else if (what == MANY_ROWS)
        quant_linear(k->y, k->x, NULL, k->low, NULL, PREFILL_ROWS, 0);
    else if (what == NUMBERS)
        quant_part(k->w, k->tall, 0, outs(k, NUMBERS), 0, k->C);
    else
        rc = quant_from_blocks(&q, k->kind, k->blocks, k->O, k->C, e);
    quant_free(q);
    return rc;
}

static int time_one(struct kinds *k, enum what what, double *seconds, struct err *e)
{
    int calls = 0, rc = 0;
    double t = clock_mono(), end = t;
    do {
        rc = once(k, what, e);
        calls++;
        end = clock_mono();
    } while (rc == 0 && end - t < 4e-3 && end > t); /* also ends if the clock stands still */
    *seconds = (end - t) / calls;
    return rc;
}

static int add_result(const struct kinds *k, struct speed *s, enum what what, struct err *e)
{
    double rate[SPEED_ROUNDS_MAX], weights = (double)outs(k, what) * k->C;
    double file = weights * (double)quant_row_bytes(k->kind, k->C) / k->C;
    double unit[WHATS] = {(double)quant_bytes(k->tall), 2 * PREFILL_ROWS * weights, file, weights};
    static const char *const unit_name[WHATS] = {"GB/s", "GOP/s", "GB/s of file", "G weights/s"};
    int n = (int)s->o.rounds;
    char name[64];
    name_of(name, k, what);
    for (int i = 0; i < n; i++)
        rate[i] = k->seconds[what][i] > 0 ? 1e-9 * unit[what] / k->seconds[what][i] : 0;
    struct speed_result *r = speed_add(s, "ops", name, unit_name[what], rate, n, e);
    if (!r)
        return DS_EMEM;
    if (what == MANY_ROWS) {
        r->gflops = r->median;
        speed_set_limit(r, r->median, peak_name[PEAK_INT8], s->peak[PEAK_INT8]);
    } else if (what == ONE_ROW) {
        r->gbs = r->median;
        speed_set_limit(r, r->median, "read", speed_median(k->read_gbs, n));
    }
    r->reference = r->limit;
    r->vs = r->share;
    return 0;
}

/* Random blocks with ordinary scales: real quantisation would take minutes and not change the
 * timing. */
static int open_kind(struct kinds *k, struct err *e)
{
    size_t row = quant_row_bytes(k->kind, k->C);
    k->blocks = mem_reserve((size_t)k->O * row);
    k->x = mem_reserve((size_t)PREFILL_ROWS * (size_t)k->C * sizeof *k->x);
    k->y = mem_reserve(((size_t)PREFILL_ROWS * PREFILL_O + (size_t)k->O) * sizeof *k->y);
    k->w = mem_reserve((size_t)NUMBERS_O * (size_t)k->C * sizeof *k->w);
    if (!k->blocks || !k->x || !k->y || !k->w)
        return err_set(e, DS_EMEM, "out of memory for quantised blocks");
    for (size_t i = 0; i < (size_t)k->O * row; i++)
        k->blocks[i] = (uint8_t)(i * 2654435761U >> 13) & 0x3b;
    speed_fill(k->x, (size_t)PREFILL_ROWS * (size_t)k->C, 1);
    int rc = quant_from_blocks(&k->tall, k->kind, k->blocks, k->O, k->C, e);
    if (rc == 0)
        rc = quant_from_blocks(&k->low, k->kind, k->blocks, PREFILL_O, k->C, e);
    return rc;
}

static int time_kind(struct kinds *k, struct speed *s, struct err *e)
{
    int rc = open_kind(k, e);
    for (int i = -1; i < s->o.rounds && rc == 0; i++) { /* the first warms up */
        int at = i < 0 ? 0 : i;
        k->read_gbs[at] = peak_read_gbs(s->lines, s->line_bytes);
        for (int w = 0; w < WHATS && rc == 0; w++)
            if (is_timed(k, s, (enum what)w))
                rc = time_one(k, (enum what)w, &k->seconds[w][at], e);
    }
    for (int w = 0; w < WHATS && rc == 0; w++)
        if (is_timed(k, s, (enum what)w))
            rc = add_result(k, s, (enum what)w, e);
    quant_free(k->tall);
    quant_free(k->low);
    mem_free_aligned(k->blocks);
    mem_free_aligned(k->x);
    mem_free_aligned(k->y);
    mem_free_aligned(k->w);
    return rc;
}

int speed_quants(struct speed *s, struct err *e)
{
    struct kinds *k = mem_alloc(1, sizeof *k);
    int rc = k ? 0 : err_set(e, DS_EMEM, "out of memory for quantised blocks");
    for (int kind = QUANT_NONE + 1; kind < QUANT_KINDS && rc == 0; kind++) {
        int64_t C = 4 * s->o.dim / 256 * 256, any = 0; /* 2048 at dim 512 */
        *k = (struct kinds){.kind = (enum quant_kind)kind, .C = (int)(C < 256 ? 256 : C)};
        k->O = (int)(s->line_bytes / 8 / quant_row_bytes(k->kind, k->C) + PREFILL_O) / 16 * 16;
        for (int w = 0; w < WHATS; w++)
            any |= is_timed(k, s, (enum what)w);
        if (any)
            rc = time_kind(k, s, e);
    }
    mem_free(k);
    return rc;
}
