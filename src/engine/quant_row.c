/* Quantises one row of weights into the blocks of a file. */
#include "engine/quant_impl.h"

int quant_encode_row(enum quant_kind kind, const real *w, int C, void *blocks)
{
    uint8_t *to = blocks;
    const struct quant_format *f = &quant_format[kind];
    for (int c = 0; c < C; c += f->columns, to += f->bytes) {
        int rc = quant_encode(to, kind, w + c);
        if (rc < 0)
            return rc;
    }
    return 0;
}
