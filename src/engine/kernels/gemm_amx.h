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

/* All tiles full, also for a product of one row: with 16 products of a cycle each in 2 KiB of B, one row still takes B faster than
 * memory gives it.  Constant, since compilers do not see that the instruction reads more than its first bytes. */
static const struct tile_config tile_config = {.palette = 1,
                                               .colsb = {64, 64, 64, 64, 64, 64, 64, 64},
                                               .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

#endif
