/* Samples the machine: /proc for processors, memory and network, statvfs for the disk, and the GPUs by
 * whichever of the drivers' interfaces is there. */
#include "base/machine.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/machine_parts.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/utf8.h"

const char *const machine_throttle[MACHINE_THROTTLES] = {
    "idle",    "application clocks", "power",       "hardware slowdown", "sync boost",
    "thermal", "hardware thermal",   "power brake", "display clocks"};

/* A terabyte of terabytes; ten times what one card draws; hotter than any card survives. */
const double machine_most_bytes = 0x1p60, machine_most_watts = 1e4, machine_most_celsius = 200,
             machine_most_mhz = 1e5;

/* Counters whose differences are rates. */
struct counters {
    double busy, total; /* ticks of all processors */
    double process;     /* seconds of this process */
    double received, sent;
};

struct machine {
    char *folder;
    double at; /* monotonic, of the previous sample; NaN */
    struct counters before;
    struct nvml *nvml;
    struct smi smi;
};

/* ---- shared by the sources ---- */

int machine_path(char *out, size_t size, const char *path)
{
    const char *root = getenv("DEPTHSCOPE_SYSROOT");
    return snprintf(out, size, "%s%s", root ? root : "", path) < (int)size;
}

double machine_reading(double x, double most)
{
    return x >= 0 && x <= most ? x : (double)NAN;
}

void machine_name(char *out, size_t size, const char *name)
{
    str_copy(out, size, name);
    utf8_scrub(out);
    size_t n = strlen(out);
    while (n > 0 && out[n - 1] == ' ')
        out[--n] = '\0';
}

void machine_gpu_clear(struct machine_gpu *g, const char *source)
{
    *g = (struct machine_gpu){.use = (double)NAN,
                              .memory_used = (double)NAN,
                              .memory_total = (double)NAN,
                              .power = (double)NAN,
                              .power_limit = (double)NAN,
                              .temperature = (double)NAN,
                              .clock_sm = (double)NAN,
                              .clock_memory = (double)NAN};
    str_copy(g->source, sizeof g->source, source);
}

void machine_clear(struct machine_sample *s)
{
    const double none = (double)NAN;
    *s = (struct machine_sample){.time = none,
                                 .seconds = none,
                                 .cpu = none,
                                 .process_cpu = none,
                                 .load = {none, none, none},
                                 .memory_used = none,
                                 .memory_total = none,
                                 .disk_free = none,
                                 .disk_total = none,
                                 .net_in = none,
                                 .net_out = none};
}

static void process_name(struct machine_process *p)
{
    char path[4200], key[64], line[64] = "";
    snprintf(key, sizeof key, "/proc/%" PRId64 "/comm", p->pid);
    FILE *f = machine_path(path, sizeof path, key) ? fopen(path, "re") : NULL;
    if (f && fgets(line, sizeof line, f))
        line[strcspn(line, "\n")] = '\0';
    if (f)
        fclose(f);
    machine_name(p->name, sizeof p->name, line);
}

void machine_add_process(struct machine_gpu *g, int64_t pid, double memory)
{
    int at = g->processes;
    while (at > 0 && !(g->process[at - 1].memory >= memory) && !isnan(memory))
        at--;
    if (at >= MACHINE_PROCESSES) {
        g->processes_more++;
        return;
    }
    if (g->processes == MACHINE_PROCESSES)
        g->processes_more++;
    else
        g->processes++;
    memmove(&g->process[at + 1], &g->process[at],
            (size_t)(g->processes - 1 - at) * sizeof *g->process);
    g->process[at] = (struct machine_process){.pid = pid, .memory = memory};
}

/* ---- the host ---- */

/* "cpu  user nice system idle iowait irq softirq steal guest ...": guest is part of user. */
static void read_cpu(struct counters *c, int *cpus)
{
    char path[4200], line[512];
    FILE *f = machine_path(path, sizeof path, "/proc/stat") ? fopen(path, "re") : NULL;
    c->busy = c->total = (double)NAN;
    *cpus = 0;
    while (f && fgets(line, sizeof line, f) && strncmp(line, "cpu", 3) == 0) {
        unsigned long long t[8] = {0};
        if (line[3] != ' ') {
            ++*cpus;
            continue;
        }
        if (sscanf(line + 3, "%llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1], &t[2], &t[3],
                   &t[4], &t[5], &t[6], &t[7]) < 4)
            continue;
        c->total = 0;
        for (int i = 0; i < 8; i++)
            c->total += (double)t[i];
        c->busy = c->total - (double)t[3] - (double)t[4];
    }
    if (f)
        fclose(f);
}

static double process_seconds(void)
{
    struct rusage u;
    if (getrusage(RUSAGE_SELF, &u) != 0)
        return (double)NAN;
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
           1e-6 * ((double)u.ru_utime.tv_usec + (double)u.ru_stime.tv_usec);
}

/* "  eth0: received packets errs drop fifo frame compressed multicast sent ...". */
static void read_net(struct counters *c)
{
    char path[4200], line[512];
    FILE *f = machine_path(path, sizeof path, "/proc/net/dev") ? fopen(path, "re") : NULL;
    c->received = c->sent = (double)NAN;
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':'), *name = line + strspn(line, " ");
        unsigned long long in, out;
        if (!colon || strncmp(name, "lo:", 3) == 0 ||
            sscanf(colon + 1, "%llu %*u %*u %*u %*u %*u %*u %*u %llu", &in, &out) != 2)
            continue;
        c->received = (isnan(c->received) ? 0 : c->received) + (double)in;
        c->sent = (isnan(c->sent) ? 0 : c->sent) + (double)out;
    }
    if (f)
        fclose(f);
}

static void read_load(struct machine_sample *out)
{
    char path[4200], line[128];
    FILE *f = machine_path(path, sizeof path, "/proc/loadavg") ? fopen(path, "re") : NULL;
    double x[MACHINE_LOADS];
    if (f && fgets(line, sizeof line, f) && sscanf(line, "%lf %lf %lf", &x[0], &x[1], &x[2]) == 3)
        for (int i = 0; i < MACHINE_LOADS; i++)
            out->load[i] = machine_reading(x[i], 1e9);
    if (f)
        fclose(f);
}

static void read_disk(const char *folder, struct machine_sample *out)
{
    struct statvfs s;
    if (statvfs(folder, &s) != 0)
        return;
    out->disk_free = (double)s.f_bavail * (double)s.f_frsize;
    out->disk_total = (double)s.f_blocks * (double)s.f_frsize;
}

/* Growth per second; NaN when a counter went back. */
static double rate(double now, double before, double seconds)
{
    return seconds > 0 && now >= before ? (now - before) / seconds : (double)NAN;
}

static void sample_host(struct machine *m, struct machine_sample *out)
{
    struct counters now;
    double at = clock_mono();
    read_cpu(&now, &out->cpus);
    read_net(&now);
    now.process = process_seconds();
    if (!isnan(m->at)) {
        out->seconds = at - m->at;
        double busy = now.busy - m->before.busy, total = now.total - m->before.total;
        out->cpu = total > 0 ? machine_reading(busy / total, 1) : (double)NAN;
        out->process_cpu = rate(now.process, m->before.process, out->seconds);
        out->net_in = rate(now.received, m->before.received, out->seconds);
        out->net_out = rate(now.sent, m->before.sent, out->seconds);
    }
    m->at = at;
    m->before = now;
    read_load(out);
    (void)mem_machine(&out->memory_used, &out->memory_total);
    read_disk(m->folder, out);
}

/* ---- the handle ---- */

struct machine *machine_open(const char *folder)
{
    struct machine *m = mem_alloc(1, sizeof *m);
    int has_library = 0;
    if (!m || !(m->folder = mem_strdup(folder))) {
        mem_free(m);
        return NULL;
    }
    m->at = (double)NAN;
    m->nvml = nvml_open(&has_library);
    m->smi.patience_s = 5;
    m->smi.is_absent = has_library; /* without a driver, it fails as well */
    return m;
}

void machine_sample(struct machine *m, struct machine_sample *out)
{
    machine_clear(out);
    out->time = clock_wall();
    gethostname(out->host, sizeof out->host - 1);
    utf8_scrub(out->host);
    sample_host(m, out);
    if (m->nvml)
        nvml_sample(m->nvml, out);
    else if (!m->smi.is_absent)
        smi_sample(&m->smi, out);
    amd_sample(out);
    for (int i = 0; i < out->gpus; i++)
        for (int k = 0; k < out->gpu[i].processes; k++)
            process_name(&out->gpu[i].process[k]);
}

void machine_close(struct machine *m)
{
    if (!m)
        return;
    nvml_close(m->nvml);
    mem_free(m->folder);
    mem_free(m);
}
