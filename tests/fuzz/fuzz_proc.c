/* Arbitrary files of /proc and /sys: parts with a NUL between them, each the name of a file (a
 * number below), and its bytes. What is read of the machine is plausible or NaN. */
#include "base/machine.c"

#include "base/cgroup.h"
#include "base/cpu.h"

#include "kit.h"

/* The cgroups come last: they are read in their own folder. */
static const char *const file[] = {"proc/stat",
                                   "proc/net/dev",
                                   "proc/loadavg",
                                   "sys/class/drm/card0/device/vendor",
                                   "sys/class/drm/card0/device/product_name",
                                   "sys/class/drm/card0/device/device",
                                   "sys/class/drm/card0/device/gpu_busy_percent",
                                   "sys/class/drm/card0/device/mem_info_vram_total",
                                   "sys/class/drm/card0/device/mem_info_vram_used",
                                   "sys/class/drm/card0/device/hwmon/hwmon1/power1_average",
                                   "sys/class/drm/card0/device/hwmon/hwmon1/temp1_input",
                                   "sys/class/drm/card0/device/hwmon/hwmon1/freq1_input",
                                   "proc/self/cgroup",
                                   "cgroup/memory.max",
                                   "cgroup/memory.current",
                                   "cgroup/memory.stat",
                                   "cgroup/cpu.max",
                                   "cgroup/a/memory.max",
                                   "cgroup/a/memory.current",
                                   "cgroup/memory/a/memory.limit_in_bytes",
                                   "cgroup/memory/a/memory.usage_in_bytes",
                                   "cgroup/cpu/a/cpu.cfs_quota_us",
                                   "cgroup/cpu/a/cpu.cfs_period_us"};
enum { FILES = sizeof file / sizeof *file };

static void make_folders(void)
{
    char path[1024];
    for (int i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "%s", fuzz_path(file[i]));
        for (char *p = path + strlen(fuzz_dir()) + 1; (p = strchr(p, '/')) != NULL; *p++ = '/') {
            *p = '\0';
            (void)fs_mkdir(path, 0755);
        }
    }
    setenv("DEPTHSCOPE_SYSROOT", fuzz_dir(), 1);
    setenv("DEPTHSCOPE_NVML", "/nonexistent", 1);
}

static void check(double x, double most)
{
    need(isnan(x) || (x >= 0 && x <= most));
}

static void check_sample(const struct machine_sample *s)
{
    check(s->cpu, 1);
    check(s->net_in, (double)INFINITY);
    check(s->net_out, (double)INFINITY);
    for (int i = 0; i < MACHINE_LOADS; i++)
        check(s->load[i], 1e9);
    need(s->cpus >= 0 && s->gpus >= 0 && s->gpus <= 1);
    for (int i = 0; i < s->gpus; i++) {
        const struct machine_gpu *g = &s->gpu[i];
        check(g->use, 1);
        check(g->memory_used, machine_most_bytes);
        check(g->memory_total, machine_most_bytes);
        check(g->power, machine_most_watts);
        check(g->temperature, machine_most_celsius);
        check(g->clock_sm, machine_most_mhz);
        need(utf8_valid(g->name, strlen(g->name)) == strlen(g->name));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int is_made;
    static struct machine_sample s;
    char mount[1024], self[1024];
    if (!is_made)
        make_folders();
    is_made = 1;
    for (int i = 0; i < FILES; i++)
        unlink(fuzz_path(file[i]));
    for (size_t at = 0, n; at < size; at += n + 1) {
        const uint8_t *end = memchr(data + at, 0, size - at);
        n = end ? (size_t)(end - data) - at : size - at;
        if (n > 0)
            fuzz_put(fuzz_path(file[(unsigned)(data[at] - 'a') % FILES]), data + at + 1, n - 1);
    }
    struct machine *m = machine_open(fuzz_dir());
    need(m != NULL);
    m->smi.is_absent = 1; /* starts a process */
    for (int i = 0; i < 2; i++) {
        machine_sample(m, &s);
        check_sample(&s);
    }
    machine_close(m);
    snprintf(mount, sizeof mount, "%s", fuzz_path("cgroup"));
    snprintf(self, sizeof self, "%s", fuzz_path("proc/self/cgroup"));
    need(mem_available_cgroup(mount, self) >= 0);
    need(cpu_quota(mount, self) >= 0 && cpu_quota(mount, self) <= 1000000);
    return 0;
}
