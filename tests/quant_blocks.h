/* Quantised weights of random blocks, for kinds that weights cannot be rounded to. */
#ifndef DS_TESTS_QUANT_BLOCKS_H
#define DS_TESTS_QUANT_BLOCKS_H

#include "engine/quant_impl.h"
#include "t.h"

/* Random bytes: every quant and scale within a block occurs, also -128.  Scales of whole blocks are
 * 2^-7 to 2^-4 in size. */
static inline struct quant *quant_random(int kind, int O, int C, uint32_t seed)
{
    struct quant *q = NULL;
    struct err e = {0};
    const struct quant_format *f = &quant_format[kind];
    size_t all = quant_row_bytes((enum quant_kind)kind, C) * (size_t)O;
    uint8_t *b = malloc(all);
    for (size_t i = 0; i < all; i++) {
        seed = seed * 1664525U + 1013904223U;
        b[i] = (uint8_t)(seed >> 24);
    }
    for (uint8_t *p = b; p < b + all; p += f->bytes) {
        for (int k = 0; k < 2 && f->half[k] >= 0; k++)
            p[f->half[k] + 1] = (uint8_t)((p[f->half[k] + 1] & 0x83) | 0x20);
        if (kind == QUANT_MXFP4)
            p[0] = (uint8_t)(121 + p[0] % 4);
    }
    t_ok(quant_from_blocks(&q, (enum quant_kind)kind, b, O, C, &e), &e);
    free(b);
    return q;
}

#endif
