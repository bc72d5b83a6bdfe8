/* NVIDIA GPUs by the management library that comes with the driver, loaded at run time: the only file
 * that knows it.  Its functions are looked up one by one; one that is missing leaves its value
 * unknown. */
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine_parts.h"
#include "base/mem.h"
#include "base/str.h"

/* Status, sensors and clocks as the library numbers them. */
enum { OK = 0, TOO_SMALL = 7, LOST = 15 };
enum { SENSOR_GPU = 0, CLOCK_SM = 1, CLOCK_MEMORY = 2 };
enum { NAME_BYTES = 96, PROCESSES_MAX = 256 };

struct use {
    unsigned gpu, memory; /* percent */
};
/* `used` of the first version has what the driver reserves; that of the second is nvidia-smi's. */
struct memory {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct process {
    unsigned pid;
    unsigned long long memory; /* all bits set: unknown */
    unsigned instance, compute_instance;
};

typedef int call_fn(void);
typedef int count_fn(unsigned *);
typedef int handle_fn(unsigned, void **);
typedef int name_fn(void *, char *, unsigned);
typedef int use_fn(void *, struct use *);
typedef int memory_fn(void *, struct memory *);
typedef int memory_v2_fn(void *, struct memory_v2 *);
typedef int number_fn(void *, unsigned *);
typedef int kind_fn(void *, int, unsigned *);
typedef int reasons_fn(void *, unsigned long long *);
typedef int processes_fn(void *, unsigned *, struct process *);

struct nvml {
    void *library;
    call_fn *init, *shut;
    count_fn *count;
    handle_fn *handle;
    name_fn *name;
    use_fn *use;
    memory_fn *memory;
    memory_v2_fn *memory_v2;
    number_fn *power, *power_limit;
    kind_fn *temperature, *clock;
    reasons_fn *reasons;
    processes_fn *processes;
    char known[MACHINE_GPUS][64]; /* names, for GPUs that are lost later */
    struct process room[PROCESSES_MAX];
};

/* Bits of the library's reasons, in the order of machine_throttle. */
static const unsigned long long reason_bit[MACHINE_THROTTLES] = {0x1,  0x2,  0x4,  0x8,  0x10,
                                                                 0x20, 0x40, 0x80, 0x100};

/* ISO C has no conversion of an object pointer to a function's. */
static void find(const struct nvml *n, void *fn, const char *name, const char *older)
{
    void *symbol = dlsym(n->library, name);
    if (!symbol && older)
        symbol = dlsym(n->library, older);
    memcpy(fn, &symbol, sizeof symbol);
}

static void find_all(struct nvml *n)
{
    find(n, &n->init, "nvmlInit_v2", "nvmlInit");
    find(n, &n->shut, "nvmlShutdown", NULL);
    find(n, &n->count, "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount");
    find(n, &n->handle, "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex");
    find(n, &n->name, "nvmlDeviceGetName", NULL);
    find(n, &n->use, "nvmlDeviceGetUtilizationRates", NULL);
    find(n, &n->memory_v2, "nvmlDeviceGetMemoryInfo_v2", NULL);
    find(n, &n->memory, "nvmlDeviceGetMemoryInfo", NULL);
    find(n, &n->power, "nvmlDeviceGetPowerUsage", NULL);
    find(n, &n->power_limit, "nvmlDeviceGetEnforcedPowerLimit",
         "nvmlDeviceGetPowerManagementLimit");
    find(n, &n->temperature, "nvmlDeviceGetTemperature", NULL);
    find(n, &n->clock, "nvmlDeviceGetClockInfo", NULL);
    find(n, &n->reasons, "nvmlDeviceGetCurrentClocksEventReasons",
         "nvmlDeviceGetCurrentClocksThrottleReasons");
    /* the first version has shorter items */
    find(n, &n->processes, "nvmlDeviceGetComputeRunningProcesses_v3",
         "nvmlDeviceGetComputeRunningProcesses_v2");
}

struct nvml *nvml_open(int *has_library)
{
    const char *path = getenv("DEPTHSCOPE_NVML");
    struct nvml *n = mem_alloc(1, sizeof *n);
    if (!n)
        return NULL;
    n->library = dlopen(path ? path : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    *has_library = n->library != NULL;
    if (n->library)
        find_all(n);
    if (n->library && n->init && n->count && n->handle && n->init() == OK)
        return n;
    if (n->library)
        dlclose(n->library);
    mem_free(n);
    return NULL;
}

void nvml_close(struct nvml *n)
{
    if (!n)
        return;
    if (n->shut)
        n->shut();
    dlclose(n->library);
    mem_free(n);
}

/* 1 when the call succeeded; notes a GPU that has dropped off the bus. */
static int is_ok(struct machine_gpu *g, int status)
{
    g->is_lost |= status == LOST;
    return status == OK;
}

/* *x is what the call wrote; all bits set: unknown. */
static double number(struct machine_gpu *g, int status, const unsigned *x, double unit, double most)
{
    return is_ok(g, status) && *x != UINT32_MAX ? machine_reading(*x * unit, most) : (double)NAN;
}

static void sample_memory(const struct nvml *n, void *gpu, struct machine_gpu *g)
{
    struct memory_v2 m = {.version = (unsigned)sizeof m | 2u << 24};
    struct memory v1;
    int has = n->memory_v2 && is_ok(g, n->memory_v2(gpu, &m));
    if (!has && n->memory && is_ok(g, n->memory(gpu, &v1))) {
        m.total = v1.total;
        m.used = v1.used;
        has = 1;
    }
    if (!has)
        return;
    g->memory_total = machine_reading((double)m.total, machine_most_bytes);
    g->memory_used = machine_reading((double)m.used, g->memory_total);
}

static void sample_processes(struct nvml *n, void *gpu, struct machine_gpu *g)
{
    unsigned count = PROCESSES_MAX;
    int status = n->processes ? n->processes(gpu, &count, n->room) : -1;
    g->has_processes = is_ok(g, status) && count <= PROCESSES_MAX;
    for (unsigned i = 0; g->has_processes && i < count; i++)
        machine_add_process(g, n->room[i].pid,
                            machine_reading((double)n->room[i].memory, machine_most_bytes));
}

static void sample_gpu(struct nvml *n, void *gpu, struct machine_gpu *g)
{
    unsigned x = UINT32_MAX;
    unsigned long long bits = 0;
    struct use use;
    if (n->use && is_ok(g, n->use(gpu, &use)))
        g->use = machine_reading(use.gpu / 100.0, 1);
    sample_memory(n, gpu, g);
    if (n->power)
        g->power = number(g, n->power(gpu, &x), &x, 1e-3, machine_most_watts);
    if (n->power_limit)
        g->power_limit = number(g, n->power_limit(gpu, &x), &x, 1e-3, machine_most_watts);
    if (n->temperature)
        g->temperature =
            number(g, n->temperature(gpu, SENSOR_GPU, &x), &x, 1, machine_most_celsius);
    if (n->clock) {
        g->clock_sm = number(g, n->clock(gpu, CLOCK_SM, &x), &x, 1, machine_most_mhz);
        g->clock_memory = number(g, n->clock(gpu, CLOCK_MEMORY, &x), &x, 1, machine_most_mhz);
    }
    g->has_throttle = n->reasons && is_ok(g, n->reasons(gpu, &bits));
    for (int i = 0; g->has_throttle && i < MACHINE_THROTTLES; i++)
        g->throttle |= bits & reason_bit[i] ? 1u << i : 0;
    sample_processes(n, gpu, g);
}

void nvml_sample(struct nvml *n, struct machine_sample *out)
{
    unsigned count = 0;
    if (n->count(&count) != OK)
        return;
    for (unsigned i = 0; i < count; i++) {
        struct machine_gpu *g = &out->gpu[out->gpus];
        char name[NAME_BYTES] = "";
        void *gpu = NULL;
        if (out->gpus == MACHINE_GPUS) {
            out->gpus_more += (int)(count - i < 1024 ? count - i : 1024);
            return;
        }
        machine_gpu_clear(g, "nvml");
        out->gpus++;
        if (is_ok(g, n->handle(i, &gpu))) {
            if (n->name && is_ok(g, n->name(gpu, name, sizeof name))) {
                name[sizeof name - 1] = '\0';
                machine_name(n->known[i], sizeof n->known[i], name);
            }
            sample_gpu(n, gpu, g);
        }
        str_copy(g->name, sizeof g->name, n->known[i]);
    }
}
