/* Memory left to the process: the minimum over machine, cgroup and address-space limit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/mem.h"

/* The number after `key` in a file of "key value" lines, 0 when missing. */
static double entry(const char *dir, const char *name, const char *key)
{
    char path[4200], line[256];
    size_t n = strlen(key);
    double found = 0;
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
        return 0;
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, n) == 0 && (line[n] == ' ' || line[n] == ':'))
            found = strtod(line + n + 1, NULL);
    if (f)
        fclose(f);
    return found;
}

/* The page cache counts as used but is reclaimable. */
static double group_left(const char *dir, const char *most, const char *used, const char *prefix)
{
    char a[64], b[64], key[64];
    if (!cgroup_line(a, sizeof a, dir, most) || !cgroup_line(b, sizeof b, dir, used))
        return 0;
    double limit = strtod(a, NULL), left; /* "max": no limit */
    if (limit <= 0 || limit > 0x1p60)
        return 0;
    left = limit - strtod(b, NULL);
    snprintf(key, sizeof key, "%sinactive_file", prefix);
    left += entry(dir, "memory.stat", key);
    snprintf(key, sizeof key, "%sactive_file", prefix);
    left += entry(dir, "memory.stat", key);
    return left > 1 ? (left < limit ? left : limit) : 1;
}

static double left_v2(const char *dir)
{
    return group_left(dir, "memory.max", "memory.current", "");
}

static double left_v1(const char *dir)
{
    return group_left(dir, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_");
}

double mem_available_cgroup(const char *mount, const char *self)
{
    return cgroup_min(mount, self, "memory", left_v2, left_v1);
}

/* What ulimit -v leaves of the address space; 0: no limit. */
static double space_left(void)
{
    struct rlimit limit;
    char line[128];
    long page = sysconf(_SC_PAGESIZE);
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return 0;
    double used = 0;
    if (cgroup_line(line, sizeof line, "/proc/self", "statm"))
        used = strtod(line, NULL) * (double)page;
    double left = (double)limit.rlim_cur - used;
    return left > 1 ? left : 1;
}

double mem_available(void)
{
    double left = 1024 * entry("/proc", "meminfo", "MemAvailable");
    const double also[] = {mem_available_cgroup("/sys/fs/cgroup", "/proc/self/cgroup"),
                           space_left()};
    for (size_t i = 0; i < DS_LEN(also); i++)
        if (also[i] > 0 && (left == 0 || also[i] < left))
            left = also[i];
    return left;
}

static double limit_of(const char *dir, const char *name)
{
    char line[64];
    double limit = cgroup_line(line, sizeof line, dir, name) ? strtod(line, NULL) : 0;
    return limit > 0 && limit <= 0x1p60 ? limit : 0; /* "max": no limit */
}

static double limit_v2(const char *dir)
{
    return limit_of(dir, "memory.max");
}

static double limit_v1(const char *dir)
{
    return limit_of(dir, "memory.limit_in_bytes");
}

int mem_machine(double *used, double *total)
{
    const char *mount = "/sys/fs/cgroup", *self = "/proc/self/cgroup";
    double all = 1024 * entry("/proc", "meminfo", "MemTotal"),
           left = 1024 * entry("/proc", "meminfo", "MemAvailable"),
           limit = cgroup_min(mount, self, "memory", limit_v2, limit_v1),
           limit_left = mem_available_cgroup(mount, self);
    if (limit > 0 && limit_left > 0 && (all == 0 || limit < all)) {
        all = limit;
        left = limit_left;
    }
    if (!(all > 0 && left > 0 && left <= all))
        return 0;
    *used = all - left;
    *total = all;
    return 1;
}
