/* The kernel of gemm_amx.c over a software model of the tile unit in plain C, so that its packing,
 * edges and addresses can be tested on any CPU.  What faults on the CPU aborts here; the dot
 * product rounds as documented by the vendor.  It is slow and never chosen by default. */
#include "engine/gemm_impl.h"

#if REAL_BITS == 32
#include <float.h>
#include <math.h>

#include "base/err.h"
#include "gemm_amx.h"

enum { UNIT_TILES = 8, UNIT_ROWS = 16, UNIT_BYTES = 64 };

/* One per thread, as registers are. */
static _Thread_local struct {
    struct tile_config config;
    uint8_t tile[UNIT_TILES][UNIT_ROWS][UNIT_BYTES];
} unit;

static void unit_config(const struct tile_config *c)
{
    BUG_IF(c->palette != 1 || c->start_row != 0, "tiles: palette %d, row %d", c->palette,
           c->start_row);
    for (int i = 0; i < 16; i++)
        BUG_IF(c->rows[i] > (i < UNIT_TILES ? UNIT_ROWS : 0) ||
                   c->colsb[i] > (i < UNIT_TILES ? UNIT_BYTES : 0) ||
                   (c->rows[i] == 0) != (c->colsb[i] == 0),
               "tiles: tile %d has %d rows of %d bytes", i, c->rows[i], c->colsb[i]);
    unit.config = *c;
    memset(unit.tile, 0, sizeof unit.tile);
}

static void unit_release(void)
{
    memset(&unit, 0, sizeof unit);
}

static void unit_check(int t)
{
    BUG_IF(t < 0 || t >= UNIT_TILES || unit.config.palette != 1 || unit.config.rows[t] == 0,
           "tiles: tile %d is not configured", t);
}

/* Zeroes everything after a tile's rows and bytes. */
static void unit_load(int t, const void *from, ptrdiff_t stride)
{
    const char *p = from;
    unit_check(t);
    memset(unit.tile[t], 0, sizeof unit.tile[t]);
    for (int i = 0; i < unit.config.rows[t]; i++)
        memcpy(unit.tile[t][i], p + i * stride, unit.config.colsb[t]);
}

static void unit_store(int t, void *to, ptrdiff_t stride)
{
    char *p = to;
    unit_check(t);
    for (int i = 0; i < unit.config.rows[t]; i++)
        memcpy(p + i * stride, unit.tile[t][i], unit.config.colsb[t]);
}

static void unit_zero(int t)
{
    unit_check(t);
    memset(unit.tile[t], 0, sizeof unit.tile[t]);
}

/* The unit flushes denormals to zero, in inputs and results. */
static inline float flushed(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}

/* Multiplies a row with the pairs of b: the first and the second of each pair are summed
 * separately, from zero, in ascending order; their sum is then added to c. */
static void unit_dp_row(float *c, const uint16_t *a, int pairs, int b, int columns)
{
    float one[UNIT_BYTES / 4] = {0}, two[UNIT_BYTES / 4] = {0};
    for (int k = 0; k < pairs; k++) {
        uint16_t pair[UNIT_BYTES / 2];
        float x = flushed(float_of_bf16(a[2 * k])), y = flushed(float_of_bf16(a[2 * k + 1]));
        memcpy(pair, unit.tile[b][k], sizeof pair);
        for (int n = 0; n < columns; n++) {
            one[n] = flushed(fmaf(x, flushed(float_of_bf16(pair[2 * n])), one[n]));
            two[n] = flushed(fmaf(y, flushed(float_of_bf16(pair[2 * n + 1])), two[n]));
        }
    }
    for (int n = 0; n < columns; n++)
        c[n] = flushed(flushed(c[n]) + flushed(one[n] + two[n]));
}

static void unit_dp(int c, int a, int b)
{
    const struct tile_config *f = &unit.config;
    unit_check(a), unit_check(b), unit_check(c);
    BUG_IF(a == b || a == c || b == c || f->rows[a] != f->rows[c] || f->colsb[b] != f->colsb[c] ||
               f->colsb[a] != 4 * f->rows[b] || f->colsb[b] % 4,
           "tiles: %d += %d x %d do not fit", c, a, b);
    for (int m = 0; m < f->rows[c]; m++) {
        uint16_t row[UNIT_BYTES / 2];
        float sum[UNIT_BYTES / 4];
        memcpy(row, unit.tile[a][m], sizeof row);
        memcpy(sum, unit.tile[c][m], sizeof sum);
        unit_dp_row(sum, row, f->colsb[a] / 4, b, f->colsb[b] / 4);
        memcpy(unit.tile[c][m], sum, sizeof sum);
    }
}

/* Element (i, k); the CPU's conversion flushes denormals to zero as well. */
static void pack_tile(char *tile, const struct operand *x, int along, int turn, int first,
                      int count, int k, int K)
{
    uint16_t out[512] = {0};
    for (int i = 0; i < count; i++)
        for (int j = 0; j < K; j++) {
            float v = along ? operand_row(x, first + i)[k + j] : operand_row(x, k + j)[first + i];
            out[turn ? j / 2 * 32 + 2 * i + j % 2 : i * 32 + j] = bf16_of(flushed(v));
        }
    memcpy(tile, out, sizeof out);
}

static void row_out(float *c, const float *sum, const float *add, int cols, float alpha)
{
    for (int n = 0; n < cols; n++)
        c[n] = add ? fmaf(sum[n], alpha, add[n]) : sum[n] * alpha;
}

#define KERNEL
#define TILE_CONFIG(config) unit_config(config)
#define TILE_RELEASE() unit_release()
#define TILE_ZERO(t) unit_zero(t)
#define TILE_LOAD(t, p) unit_load(t, p, 64)
#define TILE_STORE(t, p, stride) unit_store(t, p, stride)
#define TILE_DP(c, a, b) unit_dp(c, a, b)
#define PREFETCH(p) (void)(p)
#define PROVIDER gemm_amx_soft
#define NAME "amx-soft"
#define AVAILABLE 1
#include "gemm_amx_tmpl.h"
#endif
