/* Records of kind `system`: a sample of the machine that a run trains on (io/FORMATS.md). */
#ifndef DS_IO_SYSTEM_H
#define DS_IO_SYSTEM_H

#include "base/machine.h"
#include "io/record.h"

/* A whole record.  Values that are unknown are left out. */
void system_record(struct record *r, int64_t step, const struct machine_sample *s);
/* The sample in such a body, which is untrusted: implausible values become unknown, texts are cut and
 * scrubbed. */
void system_read(struct machine_sample *s, struct value body);

/* The main numbers of a sample that a run view keeps as series, named as W&B names them. */
enum { SYSTEM_SERIES = 6, SYSTEM_GPU_SERIES = 4 };
enum system_gpu_series {
    SYSTEM_GPU_USE,
    SYSTEM_GPU_MEMORY,
    SYSTEM_GPU_POWER,
    SYSTEM_GPU_TEMPERATURE
};
enum system_series {
    SYSTEM_CPU,
    SYSTEM_MEMORY,
    SYSTEM_LOAD,
    SYSTEM_DISK,
    SYSTEM_NET_IN,
    SYSTEM_NET_OUT
};
/* "system/cpu", with its value (NaN: unknown) and unit. */
struct system_point {
    char name[64];
    const char *unit;
    double value;
};
struct system_point system_point(const struct machine_sample *s, enum system_series k);
struct system_point system_gpu_point(const struct machine_sample *s, int gpu,
                                     enum system_gpu_series k);

#endif
