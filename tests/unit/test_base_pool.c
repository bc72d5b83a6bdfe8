/* The thread pool, cgroup quotas and the processor description. */
#include "t.h"

#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/fs.h"
#include "base/pool.h"

enum { TASKS = 257 };

struct job {
    int seen[TASKS];
    atomic_int per_worker[64];
    atomic_int total;
};

static void note(void *ctx, int task, int worker)
{
    struct job *j = ctx;
    j->seen[task]++;
    atomic_fetch_add(&j->per_worker[worker], 1);
    atomic_fetch_add(&j->total, 1);
}

T(pool_runs_inline_before_it_is_started)
{
    static struct job j;
    t_eq(pool_threads(), 1);
    pool_run(TASKS, note, &j);
    t_eq(j.per_worker[0], TASKS);
    pool_run(0, note, &j);
    pool_run(-3, note, &j);
    t_eq(j.total, TASKS);
    pool_stop();
}

T(pool_runs_every_task_once_at_any_number_of_threads)
{
    struct err e = {0};
    for (int threads = 1; threads <= 9; threads += 2) {
        static struct job j;
        memset(&j, 0, sizeof j);
        t_ok(pool_start(threads, &e), &e);
        t_eq(pool_threads(), threads);
        for (int round = 0; round < 200; round++)
            pool_run(round % 3 ? TASKS : 2, note, &j);
        for (int i = 0; i < TASKS; i++)
            t_eq(j.seen[i], i < 2 ? 200 : 133);
        int sum = 0;
        for (int w = 0; w < threads; w++)
            sum += j.per_worker[w];
        t_eq(sum, j.total);
    }
    pool_stop();
    t_eq(pool_threads(), 1);
}

static atomic_int inner_calls;

static void inner(void *ctx, int task, int worker)
{
    (void)ctx;
    (void)task;
    (void)worker;
    atomic_fetch_add(&inner_calls, 1);
}

static void nest_inner(void *ctx, int task, int worker)
{
    (void)ctx;
    (void)task;
    (void)worker;
    pool_run(10, inner, NULL);
}

T(pool_runs_nested_calls_inline)
{
    struct err e = {0};
    t_ok(pool_start(3, &e), &e);
    pool_run(20, nest_inner, NULL);
    t_eq(inner_calls, 200);
    pool_stop();
}

T(pool_is_stopped_in_a_forked_child_and_can_be_started_there)
{
    struct err e = {0};
    static struct job j;
    int status;
    t_ok(pool_start(4, &e), &e);
    pool_run(TASKS, note, &j);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        int ok = pool_threads() == 1;
        pool_run(TASKS, note, &j);
        ok = ok && j.per_worker[0] >= TASKS;
#ifndef __SANITIZE_THREAD__ /* which cannot follow threads that a forked child starts */
        ok = ok && pool_start(2, NULL) == 0 && pool_threads() == 2;
#endif
        pool_run(TASKS, note, &j);
        pool_stop();
        _exit(ok && j.total == 3 * TASKS ? 0 : 1);
    }
    t_eq(waitpid(child, &status, 0), child);
    t_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    pool_run(TASKS, note, &j);
    t_eq(j.total, 2 * TASKS);
    pool_stop();
}

T(pool_rejects_thread_counts_out_of_range)
{
    struct err e = {0};
    t_fails(pool_start(-1, &e), &e, DS_ERANGE, "-1 threads");
    t_fails(pool_start(1 << 20, &e), &e, DS_ERANGE, "threads");
    t_ok(pool_start(0, &e), &e);
    t_eq(pool_threads(), pool_cpus());
    pool_stop();
}

static void put(const char *dir, const char *name, const char *text)
{
    struct err e = {0};
    char path[600];
    t_ok(fs_mkdirs(dir, &e), &e);
    t_ok(fs_join(path, sizeof path, dir, name, &e), &e);
    t_ok(fs_write_file(path, text, strlen(text), &e), &e);
}

T(cpu_quota_is_the_tightest_on_the_way_up_rounded_up)
{
    char mount[300], dir[400], self[400];
    snprintf(mount, sizeof mount, "%s/cg", t_tmpdir());
    snprintf(self, sizeof self, "%s/self", mount);
    put(mount, "self", "0::/a/b\n");
    t_eq(cpu_quota(mount, self), 0);
    snprintf(dir, sizeof dir, "%s/a/b", mount);
    put(dir, "cpu.max", "max 100000\n");
    t_eq(cpu_quota(mount, self), 0);
    snprintf(dir, sizeof dir, "%s/a", mount);
    put(dir, "cpu.max", "150000 100000\n");
    t_eq(cpu_quota(mount, self), 2);
    put(mount, "cpu.max", "100000 100000\n");
    t_eq(cpu_quota(mount, self), 1);
    put(mount, "self", "0::/../../x\n");
    t_eq(cpu_quota(mount, self), 1);
    put(mount, "self", "nonsense\n::\n");
    put(mount, "cpu.max", "x y");
    t_eq(cpu_quota(mount, self), 0);
    t_eq(cpu_quota(mount, "/nonexistent"), 0);
}

T(cpu_quota_of_cgroup_v1)
{
    char mount[300], dir[400], self[400];
    snprintf(mount, sizeof mount, "%s/cg", t_tmpdir());
    snprintf(self, sizeof self, "%s/self", mount);
    put(mount, "self", "9:cpuset:/\n4:cpu,cpuacct:/docker/x\n");
    snprintf(dir, sizeof dir, "%s/cpu", mount);
    put(dir, "cpu.cfs_quota_us", "250000\n");
    put(dir, "cpu.cfs_period_us", "100000\n");
    t_eq(cpu_quota(mount, self), 3);
    put(dir, "cpu.cfs_quota_us", "-1\n");
    t_eq(cpu_quota(mount, self), 0);
}

T(cpu_describe_is_one_line)
{
    char text[300], small[8];
    cpu_describe(text, sizeof text);
    t_true(strstr(text, "processors") != NULL && strchr(text, '\n') == NULL);
    cpu_describe(small, sizeof small);
    t_eq(strlen(small), 7);
    t_eq(cpu_has("no_such_feature"), 0);
    t_eq(cpu_has(""), 0);
    t_true(pool_cpus() >= 1);
}
