/* How the tile unit is set up, for the unit and for its model. */
#ifndef DS_ENGINE_KERNELS_GEMM_AMX_H
#define DS_ENGINE_KERNELS_GEMM_AMX_H

#include <stdint.h>

/* As LDTILECFG reads it. */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t colsb[16]; /* bytes of a row */
    uint8_t rows[16];
};

/* All tiles full, also for a product of one row: two products of 16 cycles for 2 KiB of B still outrun memory by far.
 * Constant, since compilers are told of its first bytes only, and might put off stores to the others. */
static const struct tile_config tile_config = {.palette = 1,
                                               .colsb = {64, 64, 64, 64, 64, 64, 64, 64},
                                               .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

#endif
