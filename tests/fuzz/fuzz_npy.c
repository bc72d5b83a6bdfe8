/* Arbitrary bytes as a NumPy array: a one-line error, or a shape whose every item can be read. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "io/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct npy a;
    struct err e = {0};
    char shape[16];
    int64_t v;
    if (npy_read(&a, data, size, &e) < 0) {
        if (!e.text[0] || strchr(e.text, '\n'))
            abort();
        return 0;
    }
    if (a.n * (uint64_t)a.size > size || strlen(npy_shape(&a, shape, sizeof shape)) >= sizeof shape)
        abort();
    for (uint64_t i = 0; i < a.n; i++) {
        double x = npy_num(&a, i);
        if (npy_int(&a, i, &v) && (double)v != x)
            abort();
    }
    uint64_t last = 0;
    for (int d = 0; d < a.rank && a.n; d++)
        last += (a.shape[d] - 1) * a.stride[d];
    if (a.n && last != a.n - 1)
        abort();
    return 0;
}
