/* Sources of a machine sample; private to src/base/machine*.c. */
#ifndef DS_BASE_MACHINE_PARTS_H
#define DS_BASE_MACHINE_PARTS_H

#include <stddef.h>

#include "base/machine.h"

/* "/proc/stat" below DEPTHSCOPE_SYSROOT; 0 when it does not fit. */
int machine_path(char *out, size_t size, const char *path);
/* x when it is a plausible reading, from 0 to most; else NaN. */
double machine_reading(double x, double most);
void machine_gpu_clear(struct machine_gpu *g, const char *source);
/* A name from a driver: cut to whole characters, and without anything that a terminal interprets. */
void machine_name(char *out, size_t size, const char *name);
/* Adds a process; keeps those with most memory. */
void machine_add_process(struct machine_gpu *g, int64_t pid, double memory);

/* Upper limits of plausible readings. */
extern const double machine_most_bytes, machine_most_watts, machine_most_celsius, machine_most_mhz;

/* ---- NVIDIA (machine_nvml.c): NULL where there is no library or it finds no driver ---- */
struct nvml;
/* *has_library: the library itself was found. */
struct nvml *nvml_open(int *has_library);
void nvml_sample(struct nvml *n, struct machine_sample *out);
void nvml_close(struct nvml *n);

/* ---- nvidia-smi (machine_smi.c); is_absent: it is not asked ---- */
struct smi {
    double patience_s;
    int is_absent, is_without_reasons;
};
void smi_sample(struct smi *s, struct machine_sample *out);

/* ---- AMD (machine_amd.c) ---- */
void amd_sample(struct machine_sample *out);

#endif
