/* A run's directory, held open, so that the run keeps writing to it after a rename and never to
 * another one. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "io/checkpoint.h"
#include "training/trainer.h"

/* A lock on the directory itself, because the lock on log.mp is lost when that file is removed. */
static int lock_home(int home, const char *dir, struct err *e)
{
    char path[1100];
    struct runlog_writer *log = NULL;
    for (int i = 0; i < 10; i++) {
        if (fs_lock(home, LOCK_EX | LOCK_NB) == 0 || (errno != EWOULDBLOCK && errno != EINTR))
            return 0; /* no directory locks on this file system: rely on that of log.mp */
        clock_sleep(0.01);
    }
    int rc = fs_join(path, sizeof path, dir, "log.mp", e);
    if (rc == 0 && fs_exists(path)) /* its error names the process */
        rc = runlog_writer_open(&log, path, e);
    runlog_writer_close(log);
    return rc < 0 ? rc
                  : err_set(e, DS_EBUSY,
                            "%s is being written by another process, whose log.mp was removed or "
                            "replaced; stop it or choose another name",
                            dir);
}

int trainer_home_open(int *home, const char *dir, struct err *e)
{
    int fd = -1, rc = fs_hold(&fd, dir, e);
    if (rc == 0 && (rc = lock_home(fd, dir, e)) < 0)
        fs_unhold(fd);
    if (rc == 0)
        *home = fd;
    return rc;
}

void trainer_home_close(int home)
{
    if (home >= 0)
        fs_unhold(home);
}

int trainer_home_is_missing(const struct trainer *t)
{
    return !runlog_writer_owns_path(t->log);
}

void trainer_home_now(const struct trainer *t, char *out, size_t size)
{
    if (fs_is_held_at(t->home, t->dir) || !fs_path_of_fd(t->home, out, size) ||
        !fs_is_held_at(t->home, out))
        str_copy(out, size, t->dir);
}

int trainer_home_check(struct trainer *t, struct err *e)
{
    char now[1024], text[2200];
    if (trainer_home_is_missing(t))
        return err_set(e, DS_ENOTFOUND,
                       "%s is gone: its log.mp was removed or replaced; the run ends at step "
                       "%" PRId64,
                       t->dir, t->state.step);
    if (t->has_moved || fs_is_held_at(t->home, t->dir))
        return 0;
    t->has_moved = 1;
    int is_known = fs_path_of_fd(t->home, now, sizeof now);
    snprintf(text, sizeof text, "%s was renamed%s%s; the run continues there", t->dir,
             is_known ? " to " : "", is_known ? now : "");
    return trainer_log_event(t, LOG_WARN, "moved", text, e);
}

int trainer_rename_broken(const char *path, struct err *e)
{
    char to[1200];
    struct stat st;
    if (fs_lstat(path, &st) != 0 || (S_ISREG(st.st_mode) && st.st_size == 0))
        return 0; /* nothing to keep */
    snprintf(to, sizeof to, "%s.broken", path);
    for (int i = 2; fs_lstat(to, &st) == 0 && i < 1000; i++)
        snprintf(to, sizeof to, "%s.broken-%d", path, i);
    if (fs_rename(path, to) != 0)
        return err_errno(e, "rename %s to %s", path, to);
    log_warn("%s: kept as %s", path, to);
    return 0;
}

/* None of the files that a run writes may exist yet. */
int trainer_home_is_empty(const char *dir, int has_begun, struct err *e)
{
    static const char *const name[] = {"config.yaml", "log.mp",         "meta.json", "best.json",
                                       "checkpoints", "tokenizer.json", "live.json"};
    char path[1100];
    struct stat st;
    for (size_t i = 0; i < (has_begun ? 4 : DS_LEN(name)); i++) {
        int rc = fs_join(path, sizeof path, dir, name[i], e);
        if (rc < 0)
            return rc;
        if (fs_lstat(path, &st) != 0) {
            if (errno != ENOENT && errno != ENOTDIR)
                return err_errno(e, "stat %s", path);
            continue;
        }
        if (S_ISREG(st.st_mode) && st.st_size == 0 && i > 0)
            continue;
        return i == 0 ? err_set(e, DS_EEXIST, "%s: run already exists; --resume continues it", dir)
                      : err_set(e, DS_EEXIST,
                                "%s: contains %s of an earlier run but no config.yaml; --resume "
                                "continues that run, or move the directory away",
                                dir, name[i]);
    }
    return 0;
}

int trainer_home_identify(struct trainer *t, int resume, struct err *e)
{
    char root[1100], dir[1200];
    int64_t step;
    t->run_id[0] = '\0';
    str_copy(t->run_id, sizeof t->run_id, runlog_writer_run_id(t->log));
    int rc = fs_join(root, sizeof root, t->dir, "checkpoints", e);
    if (rc < 0)
        return rc;
    struct stat st;
    if (fs_stat(root, &st) == 0 && !S_ISDIR(st.st_mode))
        return err_set(e, DS_EFORMAT, "%s: not a directory, expected the run's checkpoints", root);
    char sock[1100];
    rc = fs_join(sock, sizeof sock, t->dir, "control.sock", e);
    if (rc == 0 && fs_lstat(sock, &st) == 0 && S_ISDIR(st.st_mode))
        rc = trainer_rename_broken(sock, e);
    if (rc < 0)
        return rc;
    if (!resume && runlog_writer_has_head(t->log))
        return err_set(e, DS_EEXIST, "%s: another run was started there meanwhile", t->dir);
    /* a log that predates run IDs, or was lost: the checkpoints may still hold the ID */
    if (!t->run_id[0] && resume && checkpoint_latest(root, dir, sizeof dir, &step, NULL) == 0)
        (void)!checkpoint_run_id(dir, t->run_id, NULL);
    if (!t->run_id[0])
        hash_random_id(t->run_id);
    return 0;
}
