/* Peak measurement: the loop tables, for peak.c. */
#ifndef DS_ENGINE_PEAK_IMPL_H
#define DS_ENGINE_PEAK_IMPL_H

#include <stddef.h>
#include <stdint.h>

#include "engine/peak.h"

/* A loop of instructions that touch registers only, in enough independent chains to hide their
 * latency. */
struct peak_kernel {
    enum peak_unit unit;
    const char *name;
    double ops; /* per step; a multiply-add is two */
    int (*available)(void);
    double (*run)(long steps); /* returns its result, so that it is not optimised away */
};

/* Reads `lines` lines of 64 bytes at p once, in order; returns a checksum of them. */
struct peak_reader {
    int (*available)(void);
    uint64_t (*read)(const unsigned char *p, size_t lines);
};

#ifdef __x86_64__
#define PEAK_X86 1
/* Best first within a unit; NULL-terminated. */
extern const struct peak_kernel *const peak_x86_kernels[];
extern const struct peak_reader peak_x86_reader;
#endif

#endif
