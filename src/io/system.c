/* Samples of the machine to and from records. */
#include "io/system.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "base/utf8.h"

/* Keys of numbers; a record leaves out those that are unknown.  `most`: what is more is not believed. */
struct number {
    const char *key;
    size_t offset;
    double most;
};
#define AT(field) offsetof(struct machine_sample, field)
static const double bytes_most = 0x1p60;
static const struct number numbers[] = {
    {"seconds", AT(seconds), 1e9},
    {"cpu", AT(cpu), 1},
    {"process_cpu", AT(process_cpu), 1e6},
    {"memory_used", AT(memory_used), 0x1p60},
    {"memory_total", AT(memory_total), 0x1p60},
    {"disk_free", AT(disk_free), 0x1p80},
    {"disk_total", AT(disk_total), 0x1p80},
    {"net_in", AT(net_in), 0x1p60},
    {"net_out", AT(net_out), 0x1p60},
};
#undef AT
#define AT(field) offsetof(struct machine_gpu, field)
static const struct number gpu_numbers[] = {
    {"use", AT(use), 1},
    {"memory_used", AT(memory_used), 0x1p60},
    {"memory_total", AT(memory_total), 0x1p60},
    {"power", AT(power), 1e4},
    {"power_limit", AT(power_limit), 1e4},
    {"temperature", AT(temperature), 200},
    {"clock_sm", AT(clock_sm), 1e5},
    {"clock_memory", AT(clock_memory), 1e5},
};
#undef AT

static double *place(void *base, const struct number *n)
{
    return (double *)(void *)((char *)base + n->offset);
}

static void add_number(struct record *r, const char *key, double x)
{
    if (isfinite(x))
        record_num(r, key, x);
}

/* ---- writing ---- */

static void add_process(struct record *r, const struct machine_process *p)
{
    record_map(r, NULL);
    record_int(r, "pid", p->pid);
    if (p->name[0])
        record_str(r, "name", p->name);
    add_number(r, "memory", p->memory);
    record_close(r);
}

static void add_gpu(struct record *r, const struct machine_gpu *g)
{
    record_map(r, NULL);
    if (g->name[0])
        record_str(r, "name", g->name);
    record_str(r, "source", g->source);
    if (g->is_lost)
        record_bool(r, "lost", 1);
    for (size_t i = 0; i < DS_LEN(gpu_numbers); i++) {
        double x;
        memcpy(&x, (const char *)g + gpu_numbers[i].offset, sizeof x);
        add_number(r, gpu_numbers[i].key, x);
    }
    if (g->has_throttle) {
        record_array(r, "throttle");
        for (int i = 0; i < MACHINE_THROTTLES; i++)
            if (g->throttle >> i & 1)
                record_str(r, NULL, machine_throttle[i]);
        record_close(r);
    }
    if (g->has_processes) {
        record_array(r, "processes");
        for (int i = 0; i < g->processes; i++)
            add_process(r, &g->process[i]);
        record_close(r);
        if (g->processes_more)
            record_int(r, "processes_more", g->processes_more);
    }
    record_close(r);
}

void system_record(struct record *r, int64_t step, const struct machine_sample *s)
{
    record_begin(r, "system", step, s->time);
    if (s->host[0])
        record_str(r, "host", s->host);
    if (s->cpus > 0)
        record_int(r, "cpus", s->cpus);
    for (size_t i = 0; i < DS_LEN(numbers); i++) {
        double x;
        memcpy(&x, (const char *)s + numbers[i].offset, sizeof x);
        add_number(r, numbers[i].key, x);
    }
    if (isfinite(s->load[0]))
        record_nums(r, "load", s->load, MACHINE_LOADS);
    record_array(r, "gpus");
    for (int i = 0; i < s->gpus; i++)
        add_gpu(r, &s->gpu[i]);
    record_close(r);
    if (s->gpus_more)
        record_int(r, "gpus_more", s->gpus_more);
}

/* ---- reading ---- */

static void read_numbers(void *base, const struct number *n, size_t count, struct value map)
{
    for (size_t i = 0; i < count; i++) {
        double x = value_num(value_get(map, n[i].key), (double)NAN);
        *place(base, &n[i]) = x >= 0 && x <= n[i].most ? x : (double)NAN;
    }
}

static void read_text(char *out, size_t size, struct value v)
{
    size_t n = 0;
    const char *p = value_bytes(v, &n);
    n = n < size - 1 ? n : size - 1;
    if (p)
        memcpy(out, p, n);
    out[p ? n : 0] = '\0';
    utf8_scrub(out);
}

static int read_count(struct value v)
{
    int64_t n = value_int(v, 0);
    return n > 0 && n <= 1 << 20 ? (int)n : 0;
}

static void read_processes(struct machine_gpu *g, struct value list)
{
    struct value_iter it = {0};
    struct value item;
    g->has_processes = value_kind(list) == VALUE_ARRAY;
    while (g->has_processes && value_next(list, &it, NULL, &item)) {
        struct machine_process *p = &g->process[g->processes];
        int64_t pid = value_int(value_get(item, "pid"), -1);
        if (pid < 0)
            continue;
        if (g->processes == MACHINE_PROCESSES) {
            g->processes_more++;
            continue;
        }
        double memory = value_num(value_get(item, "memory"), (double)NAN);
        p->pid = pid;
        p->memory = memory >= 0 && memory <= bytes_most ? memory : (double)NAN;
        read_text(p->name, sizeof p->name, value_get(item, "name"));
        g->processes++;
    }
}

static void read_gpu(struct machine_gpu *g, struct value map)
{
    struct value_iter it = {0};
    struct value reasons = value_get(map, "throttle"), item;
    read_text(g->name, sizeof g->name, value_get(map, "name"));
    read_text(g->source, sizeof g->source, value_get(map, "source"));
    g->is_lost = value_num(value_get(map, "lost"), 0) > 0;
    read_numbers(g, gpu_numbers, DS_LEN(gpu_numbers), map);
    g->has_throttle = value_kind(reasons) == VALUE_ARRAY;
    while (g->has_throttle && value_next(reasons, &it, NULL, &item))
        for (int i = 0; i < MACHINE_THROTTLES; i++)
            g->throttle |= value_is(item, machine_throttle[i]) ? 1u << i : 0;
    read_processes(g, value_get(map, "processes"));
    g->processes_more += read_count(value_get(map, "processes_more"));
}

void system_read(struct machine_sample *s, struct value body)
{
    struct value_iter it = {0};
    struct value item, load = value_get(body, "load");
    machine_clear(s);
    s->time = value_num(value_get(body, "time"), (double)NAN);
    read_text(s->host, sizeof s->host, value_get(body, "host"));
    s->cpus = read_count(value_get(body, "cpus"));
    read_numbers(s, numbers, DS_LEN(numbers), body);
    for (size_t i = 0; i < MACHINE_LOADS && value_kind(load) == VALUE_ARRAY; i++) {
        double x = value_num(value_at(load, i), (double)NAN);
        s->load[i] = x >= 0 && x <= 1e9 ? x : (double)NAN;
    }
    struct value gpus = value_get(body, "gpus");
    while (value_kind(gpus) == VALUE_ARRAY && value_next(gpus, &it, NULL, &item)) {
        if (value_kind(item) != VALUE_MAP)
            continue;
        if (s->gpus == MACHINE_GPUS)
            s->gpus_more++;
        else
            read_gpu(&s->gpu[s->gpus++], item);
    }
    s->gpus_more += read_count(value_get(body, "gpus_more"));
}

/* ---- series ---- */

struct system_point system_point(const struct machine_sample *s, enum system_series k)
{
    static const struct {
        const char *name, *unit;
    } row[SYSTEM_SERIES] = {
        [SYSTEM_CPU] = {"cpu", "%"},         [SYSTEM_MEMORY] = {"memory_percent", "%"},
        [SYSTEM_LOAD] = {"load", ""},        [SYSTEM_DISK] = {"disk_percent", "%"},
        [SYSTEM_NET_IN] = {"net_in", "B/s"}, [SYSTEM_NET_OUT] = {"net_out", "B/s"}};
    const double value[SYSTEM_SERIES] = {
        [SYSTEM_CPU] = 100 * s->cpu,
        [SYSTEM_MEMORY] = 100 * s->memory_used / s->memory_total,
        [SYSTEM_LOAD] = s->load[0],
        [SYSTEM_DISK] = 100 * (s->disk_total - s->disk_free) / s->disk_total,
        [SYSTEM_NET_IN] = s->net_in,
        [SYSTEM_NET_OUT] = s->net_out};
    struct system_point p = {.unit = row[k].unit, .value = value[k]};
    snprintf(p.name, sizeof p.name, "system/%s", row[k].name);
    return p;
}

struct system_point system_gpu_point(const struct machine_sample *s, int gpu,
                                     enum system_gpu_series k)
{
    const struct machine_gpu *g = &s->gpu[gpu];
    static const struct {
        const char *name, *unit;
    } row[SYSTEM_GPU_SERIES] = {[SYSTEM_GPU_USE] = {"gpu", "%"},
                                [SYSTEM_GPU_MEMORY] = {"memoryAllocated", "%"},
                                [SYSTEM_GPU_POWER] = {"powerWatts", "W"},
                                [SYSTEM_GPU_TEMPERATURE] = {"temp", "C"}};
    const double value[SYSTEM_GPU_SERIES] = {[SYSTEM_GPU_USE] = 100 * g->use,
                                             [SYSTEM_GPU_MEMORY] =
                                                 100 * g->memory_used / g->memory_total,
                                             [SYSTEM_GPU_POWER] = g->power,
                                             [SYSTEM_GPU_TEMPERATURE] = g->temperature};
    struct system_point p = {.unit = row[k].unit, .value = value[k]};
    snprintf(p.name, sizeof p.name, "system/gpu.%d.%s", gpu, row[k].name);
    return p;
}
