/* AMD GPUs by the files of the amdgpu driver in /sys/class/drm: the only file that knows them. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cgroup.h"
#include "base/machine_parts.h"

/* The first line of DIR/NAME, without its newline; 0 when there is none. */
static int line_of(char *line, int size, const char *dir, const char *name)
{
    int ok = cgroup_line(line, size, dir, name);
    if (ok)
        line[strcspn(line, "\n")] = '\0';
    return ok && line[0];
}

static double number_of(const char *dir, const char *name, double unit, double most)
{
    char line[64], *end;
    if (!line_of(line, sizeof line, dir, name))
        return (double)NAN;
    double x = strtod(line, &end);
    return end > line && *end == '\0' ? machine_reading(x * unit, most) : (double)NAN;
}

static void sample_sensors(const char *device, struct machine_gpu *g)
{
    char dir[4500];
    snprintf(dir, sizeof dir, "%.4400s/hwmon", device);
    DIR *d = opendir(dir);
    const struct dirent *x = NULL;
    while (d && (x = readdir(d)) != NULL && strncmp(x->d_name, "hwmon", 5) != 0) {
    }
    if (x) {
        snprintf(dir, sizeof dir, "%.4200s/hwmon/%.255s", device, x->d_name);
        g->power = number_of(dir, "power1_average", 1e-6, machine_most_watts);
        if (isnan(g->power))
            g->power = number_of(dir, "power1_input", 1e-6, machine_most_watts);
        g->power_limit = number_of(dir, "power1_cap", 1e-6, machine_most_watts);
        g->temperature = number_of(dir, "temp1_input", 1e-3, machine_most_celsius);
        g->clock_sm = number_of(dir, "freq1_input", 1e-6, machine_most_mhz);
        g->clock_memory = number_of(dir, "freq2_input", 1e-6, machine_most_mhz);
    }
    if (d)
        closedir(d);
}

static void sample_card(const char *device, struct machine_gpu *g)
{
    char name[128], id[32];
    machine_gpu_clear(g, "amdgpu");
    if (line_of(name, sizeof name, device, "product_name"))
        machine_name(g->name, sizeof g->name, name);
    else if (line_of(id, sizeof id, device, "device")) {
        snprintf(name, sizeof name, "AMD GPU %s", id);
        machine_name(g->name, sizeof g->name, name);
    }
    g->use = number_of(device, "gpu_busy_percent", 0.01, 1);
    g->memory_total = number_of(device, "mem_info_vram_total", 1, machine_most_bytes);
    g->memory_used = number_of(device, "mem_info_vram_used", 1, machine_most_bytes);
    sample_sensors(device, g);
}

void amd_sample(struct machine_sample *out)
{
    enum { CARDS_MAX = 128 };
    char root[4200], device[4300], vendor[16];
    if (!machine_path(root, sizeof root, "/sys/class/drm"))
        return;
    for (int i = 0; i < CARDS_MAX; i++) { /* by number, so that the order is always the same */
        snprintf(device, sizeof device, "%s/card%d/device", root, i);
        if (!line_of(vendor, sizeof vendor, device, "vendor") || strcmp(vendor, "0x1002") != 0)
            continue;
        if (out->gpus == MACHINE_GPUS)
            out->gpus_more++;
        else
            sample_card(device, &out->gpu[out->gpus++]);
    }
}
