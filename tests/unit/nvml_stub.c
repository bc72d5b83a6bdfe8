/* Stands in for NVIDIA's management library in tests: TEST FIXTURE, built as a shared object.  The file
 * named by NVML_STUB gives its values, a line each: "GPU KEY VALUE", and "count N"; what the file does
 * not name is not supported.  With -DOLD it lacks the functions that older drivers lack. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, IS_LOST = 15, GPUS = 64 };

static int handles[GPUS];

/* The text after the n-th line that begins with `key` and a blank, until the next call; NULL when there
 * is none. */
static const char *text_of(const char *key, int n)
{
    static char line[512];
    const char *path = getenv("NVML_STUB");
    FILE *f = path ? fopen(path, "r") : NULL;
    size_t len = strlen(key);
    const char *found = NULL;
    while (!found && f && fgets(line, sizeof line, f))
        if (strncmp(line, key, len) == 0 && line[len] == ' ' && n-- == 0) {
            line[strcspn(line, "\n")] = '\0';
            found = line + len + 1;
        }
    if (f)
        fclose(f);
    return found;
}

static const char *value_of(const void *gpu, const char *key, int n)
{
    char full[64];
    snprintf(full, sizeof full, "%d %s", (int)((const int *)gpu - handles), key);
    return text_of(full, n);
}

static int is_lost(const void *gpu)
{
    return value_of(gpu, "lost", 0) != NULL;
}

static int number(const void *gpu, const char *key, unsigned *out)
{
    if (is_lost(gpu))
        return IS_LOST;
    const char *text = value_of(gpu, key, 0);
    if (!text)
        return NOT_SUPPORTED;
    *out = (unsigned)strtoul(text, NULL, 0);
    return 0;
}

#define EXPORT __attribute__((visibility("default")))

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlInit_v2(void)
{
    return text_of("init", 0) ? atoi(text_of("init", 0)) : 0;
}

EXPORT int nvmlShutdown(void);
EXPORT int nvmlShutdown(void)
{
    return 0;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *out);
EXPORT int nvmlDeviceGetCount_v2(unsigned *out)
{
    const char *text = text_of("count", 0);
    *out = text ? (unsigned)strtoul(text, NULL, 0) : 0;
    return 0;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **out);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **out)
{
    *out = &handles[i % GPUS];
    return value_of(*out, "gone", 0) ? IS_LOST : 0;
}

EXPORT int nvmlDeviceGetName(void *gpu, char *out, unsigned size);
EXPORT int nvmlDeviceGetName(void *gpu, char *out, unsigned size)
{
    if (is_lost(gpu))
        return IS_LOST;
    const char *text = value_of(gpu, "name", 0);
    if (!text || strlen(text) >= size)
        return NOT_SUPPORTED;
    memcpy(out, text, strlen(text) + 1);
    return 0;
}

EXPORT int nvmlDeviceGetUtilizationRates(void *gpu, unsigned *out);
EXPORT int nvmlDeviceGetUtilizationRates(void *gpu, unsigned *out)
{
    out[1] = 0;
    return number(gpu, "use", &out[0]);
}

/* "USED TOTAL RESERVED" in bytes. */
static int memory(const void *gpu, unsigned long long out[3])
{
    if (is_lost(gpu))
        return IS_LOST;
    const char *text = value_of(gpu, "memory", 0);
    char *end;
    if (!text)
        return NOT_SUPPORTED;
    out[0] = strtoull(text, &end, 0);
    out[1] = strtoull(end, &end, 0);
    out[2] = strtoull(end, NULL, 0);
    return 0;
}

EXPORT int nvmlDeviceGetMemoryInfo(void *gpu, unsigned long long *out);
EXPORT int nvmlDeviceGetMemoryInfo(void *gpu, unsigned long long *out)
{
    unsigned long long m[3] = {0};
    int status = memory(gpu, m);
    out[0] = m[1];
    out[2] = m[0] + m[2];
    out[1] = m[1] - out[2];
    return status;
}

#ifndef OLD
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
EXPORT int nvmlDeviceGetMemoryInfo_v2(void *gpu, struct memory_v2 *out);
EXPORT int nvmlDeviceGetMemoryInfo_v2(void *gpu, struct memory_v2 *out)
{
    unsigned long long m[3] = {0};
    int status = memory(gpu, m);
    if (out->version != (sizeof *out | 2u << 24))
        return 25; /* argument version mismatch */
    out->total = m[1];
    out->reserved = m[2];
    out->used = m[0];
    out->free = m[1] - m[0] - m[2];
    return status;
}

EXPORT int nvmlDeviceGetPowerUsage(void *gpu, unsigned *out);
EXPORT int nvmlDeviceGetPowerUsage(void *gpu, unsigned *out)
{
    return number(gpu, "power", out);
}

EXPORT int nvmlDeviceGetEnforcedPowerLimit(void *gpu, unsigned *out);
EXPORT int nvmlDeviceGetEnforcedPowerLimit(void *gpu, unsigned *out)
{
    return number(gpu, "limit", out);
}

EXPORT int nvmlDeviceGetCurrentClocksEventReasons(void *gpu, unsigned long long *out);
EXPORT int nvmlDeviceGetCurrentClocksEventReasons(void *gpu, unsigned long long *out)
{
    unsigned bits = 0;
    int status = number(gpu, "reasons", &bits);
    *out = bits;
    return status;
}

struct process {
    unsigned pid;
    unsigned long long memory;
    unsigned instance, compute_instance;
};
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, unsigned *count, struct process *out);
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, unsigned *count, struct process *out)
{
    unsigned n = 0;
    if (is_lost(gpu))
        return IS_LOST;
    if (value_of(gpu, "no_processes", 0))
        return NOT_SUPPORTED;
    for (const char *text; (text = value_of(gpu, "process", (int)n)) != NULL; n++) {
        char *end;
        if (n >= *count)
            return INSUFFICIENT_SIZE;
        out[n] = (struct process){.pid = (unsigned)strtoul(text, &end, 0)};
        out[n].memory = strtoull(end, NULL, 0);
    }
    *count = n;
    return 0;
}
#endif

EXPORT int nvmlDeviceGetTemperature(void *gpu, int sensor, unsigned *out);
EXPORT int nvmlDeviceGetTemperature(void *gpu, int sensor, unsigned *out)
{
    return sensor == 0 ? number(gpu, "temperature", out) : NOT_SUPPORTED;
}

EXPORT int nvmlDeviceGetClockInfo(void *gpu, int kind, unsigned *out);
EXPORT int nvmlDeviceGetClockInfo(void *gpu, int kind, unsigned *out)
{
    return kind == 1   ? number(gpu, "sm", out)
           : kind == 2 ? number(gpu, "clock_memory", out)
                       : NOT_SUPPORTED;
}
