/* Configuration of the AMX tile unit, for the unit and for its software model. */
#ifndef DS_ENGINE_KERNELS_GEMM_AMX_H
#define DS_ENGINE_KERNELS_GEMM_AMX_H

#include <stdint.h>

/* Layout read by LDTILECFG. */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t colsb[16]; /* bytes per row */
    uint8_t rows[16];
};

/* All tiles full, even for one row: two multiplications of 16 cycles per 2 KiB of B still exceed
 * memory bandwidth by far.  Constant, since compilers know of the first bytes only and might delay
 * stores to the others. */
static const struct tile_config tile_config = {.palette = 1,
                                               .colsb = {64, 64, 64, 64, 64, 64, 64, 64},
                                               .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

#endif
