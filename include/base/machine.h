/* What the machine is doing: processors, memory, disk, network and GPUs, for the Machine view and the
 * `system` records of a run.  No value is invented: what cannot be read is NaN, or absent.
 *
 * Read by tests from the environment:
 *   DEPTHSCOPE_NVML      the NVIDIA library in place of libnvidia-ml.so.1
 *   DEPTHSCOPE_SYSROOT   a folder whose proc/ and sys/ are read in place of /proc and /sys */
#ifndef DS_BASE_MACHINE_H
#define DS_BASE_MACHINE_H

#include <stdint.h>

#include "base/err.h"

enum { MACHINE_GPUS = 16, MACHINE_PROCESSES = 16, MACHINE_LOADS = 3, MACHINE_THROTTLES = 9 };

struct machine_process {
    int64_t pid;
    double memory; /* bytes on the GPU */
    char name[32]; /* by /proc; "" where that is not readable */
};

struct machine_gpu {
    char name[64];                    /* printable UTF-8; "" = unknown */
    char source[16];                  /* "nvml", "nvidia-smi", "amdgpu" */
    int is_lost;                      /* it is listed, but no longer answers */
    double use;                       /* share of the time with a kernel running, 0..1 */
    double memory_used, memory_total; /* bytes */
    double power, power_limit;        /* W */
    double temperature;               /* degrees Celsius */
    double clock_sm, clock_memory;    /* MHz */
    int has_throttle;                 /* the next one is known */
    unsigned throttle;                /* reasons: bits, in the order of machine_throttle */
    int has_processes;                /* the next ones are known */
    int processes, processes_more;    /* those listed, and how many more there are */
    struct machine_process process[MACHINE_PROCESSES]; /* those with most memory first */
};

/* Short names of the reasons for lower clocks: "idle", "power", "thermal", ... */
extern const char *const machine_throttle[MACHINE_THROTTLES];

struct machine_sample {
    double time;    /* wall seconds (Unix) */
    double seconds; /* that the rates cover; NaN in the first sample, which has no rates */
    char host[256];
    int cpus;                         /* processors of the machine that are online; 0 = unknown */
    double cpu;                       /* their busy share, 0..1; a rate */
    double process_cpu;               /* processors that this process kept busy (1.5); a rate */
    double load[MACHINE_LOADS];       /* mean runnable processes over 1, 5 and 15 minutes */
    double memory_used, memory_total; /* bytes, of the machine or of the tightest cgroup limit */
    double disk_free, disk_total;     /* bytes, of the file system of the folder */
    double net_in, net_out;           /* bytes/s over all interfaces but loopback; rates */
    int gpus, gpus_more;              /* those listed, and how many more there are */
    struct machine_gpu gpu[MACHINE_GPUS];
};

/* A sample without any value. */
void machine_clear(struct machine_sample *s);

struct machine;
/* folder: whose file system is measured.  Starts nothing; may load the NVIDIA library.  NULL: out of
 * memory. */
struct machine *machine_open(const char *folder);
/* Takes a few ms; where the NVIDIA library is missing and nvidia-smi is called in its place, up to 5 s
 * once it hangs. */
void machine_sample(struct machine *m, struct machine_sample *out);
void machine_close(struct machine *m);

/* ---- machine_watch.c: samples taken by a thread, so that a slow driver delays nobody ---- */
struct machine_watch;
/* Samples at once, and then every `seconds` (0.1 at least).  NULL when there is no thread or memory. */
struct machine_watch *machine_watch_start(const char *folder, double seconds);
/* 1 when there is a sample that was not taken before: the newest one. */
int machine_watch_take(struct machine_watch *w, struct machine_sample *out);
/* A thread that hangs in a driver is left behind.  NULL is allowed. */
void machine_watch_stop(struct machine_watch *w);

#endif
