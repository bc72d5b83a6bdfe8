/* NumPy's .npy arrays of numbers, read in place.  All bytes are untrusted. */
#ifndef DS_IO_NPY_H
#define DS_IO_NPY_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { NPY_RANK = 8 };

struct npy {
    const unsigned char *data; /* borrowed */
    char kind;                 /* 'i', 'u', 'f' or 'b' */
    int size;                  /* bytes of an item: 1, 2, 4 or 8 */
    int is_swapped;            /* big-endian */
    int rank;
    uint64_t shape[NPY_RANK], stride[NPY_RANK]; /* stride in items; Fortran order included */
    uint64_t n;                                 /* items */
};

/* Reads the header of the n bytes at p and checks that the data has the declared shape; `a`
 * borrows p.  Versions 1 to 3; no objects, records, strings or complex numbers. */
int npy_read(struct npy *a, const unsigned char *p, size_t n, struct err *e) DS_CHECK;
/* Item at `at` (in items, a sum of index * stride). */
double npy_num(const struct npy *a, uint64_t at);
/* The same as an integer; 0 when it is not a whole number in the range of int64. */
int npy_int(const struct npy *a, uint64_t at, int64_t *out);
/* "(3, 4, 2)"; returns out. */
const char *npy_shape(const struct npy *a, char *out, size_t size);

#endif
