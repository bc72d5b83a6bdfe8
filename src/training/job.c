/* Runs as other processes: starting and controlling them without loading tensors. */
#include "training/job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/child.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "io/foreign.h"
#include "io/runlog.h"
#include "training/options.h"

const char *job_root(void)
{
    const char *root = getenv("DEPTHSCOPE_RUNS");
    return root && root[0] ? root : "runs";
}

int job_is_run_or_model(const char *dir)
{
    static const char *const own[] = {"log.mp", "config.yaml", "config.json", "checkpoints",
                                      "adapter_config.json"};
    const struct foreign_format *format;
    char file[1100];
    for (size_t i = 0; i < DS_LEN(own); i++)
        if (fs_join(file, sizeof file, dir, own[i], NULL) < 0 || fs_exists(file))
            return 1;
    return foreign_find(dir, &format);
}

/* As `runs` lists it: a run, or a log of another program, whose name may have folders and any
 * characters. */
static int is_listed_name(const char *name)
{
    return fs_name_ok(name) || (name[0] && !strchr("./", name[0]) && !strstr(name, "/."));
}

int job_find(char *out, size_t size, const char *run, struct err *e)
{
    char path[1024], given[1024];
    if (str_copy(given, sizeof given, run))
        return err_set(e, DS_ERANGE, "%s: the path is too long", run);
    given[fs_trimmed(given)] = '\0';
    int is_name = is_listed_name(given) &&
                  fs_join(path, sizeof path, job_root(), given, NULL) == 0 && fs_exists(path);
    int is_path =
        strcmp(given, "-") == 0 ||
        (fs_exists(given) && (!is_name || !fs_is_dir(given) || job_is_run_or_model(given)));
    const char *found = is_path ? given : path;
    if (!is_path && !is_name)
        return 0;
    return str_copy(out, size, found) ? err_set(e, DS_ERANGE, "%s: the path is too long", found)
                                      : 1;
}

int job_check_name(const char *name, struct err *e)
{
    char dir[1100];
    if (!fs_name_ok(name))
        return err_set(e, DS_EUSAGE,
                       "name: expected 1 to 64 of [A-Za-z0-9._-], not starting with . or -");
    int rc = fs_join(dir, sizeof dir, job_root(), name, e);
    return rc == 0 && fs_exists(dir) ? err_set(e, DS_EEXIST, "name: %s exists", dir) : rc;
}

static int reserve_name(const char *name, char *dir, size_t size, struct err *e)
{
    int rc = job_check_name(name, e);
    if (rc == 0)
        rc = fs_mkdirs(job_root(), e);
    if (rc == 0)
        rc = fs_join(dir, size, job_root(), name, e);
    return rc == 0 && mkdir(dir, 0755) < 0 ? err_errno(e, "%s", dir) : rc;
}

/* mkdir reserves the name: two starts in the same second get different names. */
static int reserve(const char *stem, char *name, size_t size, char *dir, size_t dir_size,
                   struct err *e)
{
    int rc = fs_mkdirs(job_root(), e);
    for (int i = 1; rc == 0 && i < 100000; i++) {
        snprintf(name, size, "%s-%d", stem, i);
        if (!fs_name_ok(name))
            return err_set(e, DS_EUSAGE, "invalid run name %s", name);
        rc = fs_join(dir, dir_size, job_root(), name, e);
        if (rc == 0 && mkdir(dir, 0755) == 0)
            return 0;
        if (rc == 0 && errno != EEXIST)
            return err_errno(e, "%s", dir);
    }
    return rc < 0 ? rc : err_set(e, DS_EEXIST, "%s: no free run name", stem);
}

/* Its output goes to the run's own file; `alive` (or -1) stays open as long as it lives. */
static int start(const char *const *argv, int out, int alive, struct err *e)
{
    struct child c;
    const struct child_setup how = {.argv = argv,
                                    .in = CHILD_NULL,
                                    .out = out,
                                    .err = CHILD_SAME,
                                    .is_detached = 1,
                                    .keep = alive >= 0 ? alive : 0};
    return child_start(&c, &how, e);
}

static const char *stem_of(const char *const *args, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (args[i][0] != '-' && !strchr(args[i], '=') && fs_name_ok(args[i]) &&
            strlen(args[i]) < 48)
            return args[i];
    return "quick";
}

int job_start(const char *const *args, size_t n, char *name, size_t size, struct err *e)
{
    return job_start_watched(args, n, name, size, NULL, e);
}

int job_start_in(const char *dir, const char *const *args, size_t n, int *ended, struct err *e)
{
    char path[1100];
    const char **argv = mem_alloc(n + 3, sizeof *argv);
    int out = -1, alive[2] = {-1, -1};
    int rc = argv ? fs_join(path, sizeof path, dir, "train.out", e)
                  : err_set(e, DS_EMEM, "out of memory for starting a run");
    if (rc == 0)
        rc = fs_open_write(&out, path, O_CREAT | O_APPEND, e);
    if (rc == 0)
        rc = ended && pipe(alive) < 0 ? err_errno(e, "pipe") : 0;
    if (rc == 0 && ended && fcntl(alive[0], F_SETFD, FD_CLOEXEC) < 0)
        rc = err_errno(e, "pipe");
    if (rc == 0) {
        argv[0] = "depthscope";
        argv[1] = "train";
        for (size_t i = 0; i < n; i++)
            argv[2 + i] = args[i];
        rc = start(argv, out, alive[1], e);
    }
    if (out >= 0)
        close(out);
    if (alive[1] >= 0)
        close(alive[1]);
    if (rc == 0 && ended)
        *ended = alive[0];
    else if (alive[0] >= 0)
        close(alive[0]);
    mem_free((void *)(uintptr_t)argv); /* pointers to const text, in memory of our own */
    return rc;
}

/* given: the run's name, or "". */
static int start_watched(const char *given, const char *const *args, size_t n, char *name,
                         size_t size, int *ended, struct err *e)
{
    char dir[1024] = "", path[1100];
    const char **all = mem_alloc(n + 3, sizeof *all);
    int out = -1, rc = all ? 0 : err_set(e, DS_EMEM, "out of memory for starting a run");
    if (rc == 0 && given[0]) {
        str_copy(name, size, given);
        rc = reserve_name(given, dir, sizeof dir, e);
    } else if (rc == 0) {
        rc = reserve(stem_of(args, n), name, size, dir, sizeof dir, e);
    }
    int is_ours = rc == 0;
    /* the log exists from the start, so that a viewer can follow it before the run writes */
    if (rc == 0)
        rc = fs_join(path, sizeof path, dir, "log.mp", e);
    if (rc == 0)
        rc = fs_open_write(&out, path, O_CREAT, e);
    if (out >= 0)
        close(out);
    if (rc == 0) {
        for (size_t i = 0; i < n; i++)
            all[i] = args[i];
        all[n] = "--run";
        all[n + 1] = name;
        all[n + 2] = "--quiet";
        rc = job_start_in(dir, all, n + 3, ended, e);
    }
    if (rc < 0 && is_ours && fs_remove_tree(dir, NULL) < 0) /* nobody writes to it */
        err_add(e, rc, "%s stays", dir);
    mem_free((void *)(uintptr_t)all);
    return rc;
}

int job_start_watched(const char *const *args, size_t n, char *name, size_t size, int *ended,
                      struct err *e)
{
    return start_watched("", args, n, name, size, ended, e);
}

int job_launch_named(struct job_launch *l, const char *name, const char *const *args, size_t n,
                     struct err *e)
{
    *l = (struct job_launch){.fd = -1};
    int rc = start_watched(name, args, n, l->name, sizeof l->name, &l->fd, e);
    if (rc == 0)
        rc = fs_join(l->dir, sizeof l->dir, job_root(), l->name, e);
    str_copy(l->output, sizeof l->output, l->dir);
    return rc;
}
