/* How much memory is left: for the machine, the group, the process. */
#include "t.h"

#include <sys/resource.h>

#include "base/fs.h"
#include "base/mem.h"

static void put(const char *dir, const char *name, const char *text)
{
    struct err e = {0};
    char path[600];
    t_ok(fs_mkdirs(dir, &e), &e);
    t_ok(fs_join(path, sizeof path, dir, name, &e), &e);
    t_ok(fs_write_file(path, text, strlen(text), &e), &e);
}

T(memory_left_in_a_cgroup_is_its_limit_minus_its_usage)
{
    char mount[300], dir[400], self[400];
    snprintf(mount, sizeof mount, "%s/cg", t_tmpdir());
    snprintf(self, sizeof self, "%s/self", mount);
    snprintf(dir, sizeof dir, "%s/a/b", mount);
    put(mount, "self", "0::/a/b\n");
    t_near(mem_available_cgroup(mount, self), 0, 0);
    put(dir, "memory.max", "max\n");
    put(dir, "memory.current", "1000\n");
    t_near(mem_available_cgroup(mount, self), 0, 0);
    snprintf(dir, sizeof dir, "%s/a", mount);
    put(dir, "memory.max", "5000\n");
    put(dir, "memory.current", "3000\n");
    t_near(mem_available_cgroup(mount, self), 2000, 0);
    put(dir, "memory.stat", "anon 1\nfile 9\ninactive_file 400\nactive_file 50\n");
    t_near(mem_available_cgroup(mount, self), 2450, 0);
    snprintf(dir, sizeof dir, "%s/a/b", mount);
    put(dir, "memory.max", "900\n");
    t_near(mem_available_cgroup(mount, self), 1,
           0); /* more is used than allowed: nothing is left */
    put(mount, "self", "nonsense\n::\n");
    t_near(mem_available_cgroup(mount, self), 0, 0);
}

T(cgroup_v1_files_give_the_same_limits)
{
    char mount[300], dir[400], self[400];
    snprintf(mount, sizeof mount, "%s/cg", t_tmpdir());
    snprintf(self, sizeof self, "%s/self", mount);
    put(mount, "self", "5:cpu,cpuacct:/\n4:memory:/docker/x\n");
    snprintf(dir, sizeof dir, "%s/memory", mount);
    put(dir, "memory.limit_in_bytes", "9223372036854771712\n"); /* as the kernel writes none */
    put(dir, "memory.usage_in_bytes", "1000\n");
    t_near(mem_available_cgroup(mount, self), 0, 0);
    put(dir, "memory.limit_in_bytes", "8000\n");
    put(dir, "memory.stat", "total_inactive_file 100\ntotal_active_file 20\n");
    t_near(mem_available_cgroup(mount, self), 7120, 0);
}

T(the_address_space_limit_counts_too)
{
#ifdef DS_HAS_ASAN /* it takes the addresses of all its shadow, and more as it goes */
    t_skip("not under AddressSanitizer");
#else
    t_skip_if_emulated("the address space has no limit");
    double before = mem_available();
    struct rlimit limit = {(rlim_t)1 << 40, RLIM_INFINITY};
    if (before <= 0x1p30)
        t_skip("less than 1 GiB is left here");
    t_true(setrlimit(RLIMIT_AS, &limit) == 0);
    double one = mem_available();
    limit.rlim_cur = (rlim_t)1 << 30;
    if (setrlimit(RLIMIT_AS, &limit) != 0 || one < 0x1p30)
        t_skip("no limit can be set here");
    double left = mem_available();
    t_truef(left > 0 && left < 0x1p30, "%g left of 2^30", left);
#endif
}
