/* Runs on another machine, as this process has them.  A script stands in for ssh: it writes what a
 * file holds, and another file once it is asked to follow a run. */
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "io/host.h"
#include "io/record.h"
#include "t.h"

static char dir[512];
static struct host *host;
static double later; /* seconds that the monotonic clock is ahead */

int clock_gettime(clockid_t id, struct timespec *t)
{
    *t = (struct timespec){0}; /* MemorySanitizer does not see what the call writes */
    int rc = (int)syscall(SYS_clock_gettime, id, t);
    if (rc == 0 && id == CLOCK_MONOTONIC)
        t->tv_sec += (time_t)later;
    return rc;
}

static const char *in_dir(const char *name)
{
    static char path[700];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void say(const char *file, struct str *frames)
{
    struct err e = {0};
    t_ok(fs_write_file(in_dir(file), frames->p, frames->len, &e), &e);
    str_release(frames);
}

static void end(struct record *r, struct str *frames)
{
    struct err e = {0};
    t_ok(record_end(r, 1, frames, &e), &e);
}

static void add_row(struct record *r, struct str *frames, const char *name, double time)
{
    record_begin(r, "row", 7, time);
    record_str(r, "name", name);
    double number[RUN_NUMBERS] = {[RUN_ETA] = 60};
    record_str(r, "state", name[0] == 'b' ? "paused" : "live");
    record_bool(r, "live", name[0] != 'b'); /* where locks do not travel */
    record_nums(r, "numbers", number, RUN_NUMBERS);
    record_num(r, "modified", time);
    end(r, frames);
}

enum { RUNS = 20 };

/* One line of ssh: the far end has the live runs "a" to "t", and follows "a". */
static void prepare(void)
{
    static const char script[] =
        "#!/bin/sh\n"
        "cd \"$(dirname \"$0\")\" && mkdir used || exit 255\n"
        "cat first\n"
        "while read -r line; do case $line in *follow*) cat second; exit;; esac; done\n";
    struct record *r = record_new();
    struct str first = {0}, second = {0}, log = {0};
    struct err e = {0};
    double now = clock_wall() - 30;
    snprintf(dir, sizeof dir, "%s", t_tmpdir());
    record_begin(r, "metric", 1, now);
    end(r, &log);
    record_begin(r, "agent", 0, clock_wall());
    record_int(r, "protocol", HOST_PROTOCOL);
    record_str(r, "version", "1.0");
    end(r, &first);
    for (int i = 0; i < RUNS; i++)
        add_row(r, &first, (const char[]){(char)('a' + i), '\0'}, floor(now) + 0.05 * i);
    record_begin(r, "listed", 0, now);
    end(r, &first);
    record_begin(r, "log", 0, now);
    record_str(r, "run", "a");
    record_bytes(r, "frames", log.p, log.len);
    record_int(r, "at", (int64_t)log.len);
    record_bool(r, "live", 1);
    end(r, &second);
    say("first", &first);
    say("second", &second);
    t_ok(fs_write_file(in_dir("ssh"), script, strlen(script), &e), &e);
    t_eq(chmod(in_dir("ssh"), 0755), 0);
    setenv("DEPTHSCOPE_SSH", in_dir("ssh"), 1);
    setenv("XDG_STATE_HOME", dir, 1);
    str_release(&log);
    record_free(r);
    t_ok(host_open(&host, "box:runs", 0, &e), &e);
}

static void wait_a_moment(void)
{
    struct pollfd w[HOST_FDS];
    int n = host_watch(host, w);
    poll(w, (nfds_t)n, 20);
    host_poll(host);
}

static const struct run_row *run_of(const char *name)
{
    while (!host_info(host).is_listed)
        wait_a_moment();
    t_true(host_find(host, name) != NULL);
    return host_find(host, name);
}

static int is_locked(const char *log)
{
    int fd = -1, rc;
    struct err e = {0};
    t_ok(fs_open_read(&fd, log, &e), &e);
    rc = flock(fd, LOCK_SH | LOCK_NB);
    close(fd);
    return rc < 0;
}

T(a_run_of_a_lost_host_is_no_longer_held_to_be_live)
{
    struct err e = {0};
    char log[1200];
    prepare();
    const struct run_row *r = run_of("a");
    t_ok(host_follow(host, r->path, &e), &e);
    snprintf(log, sizeof log, "%s/log.mp", r->path);
    while (!is_locked(log))
        wait_a_moment();
    while (host_info(host).state == HOST_UP) /* the line ends after the log */
        wait_a_moment();
    t_true(is_locked(log) && r->is_live && r->state == RUN_LIVE);
    t_true(run_of("b")->state == RUN_PAUSED && r->number[RUN_ETA] > 0);
    later = 20;
    wait_a_moment();
    t_true(!r->is_live && r->state == RUN_SILENT && isnan(r->number[RUN_ETA]));
    t_true(run_of("b")->state == RUN_SILENT);
    t_true(!is_locked(log));
    host_close(host);
}

T(when_a_log_was_written_is_rounded_to_the_nearest_second_of_this_clock)
{
    prepare();
    for (int i = 0; i < RUNS; i++) {
        const struct run_row *r = run_of((const char[]){(char)('a' + i), '\0'});
        t_near(r->modified, floor(r->modified), 0);
        t_near(r->modified, r->last_time, 0.5 + 1e-6);
    }
    host_close(host);
}

T(a_run_that_is_not_listed_is_neither_resumed_nor_asked_for_checkpoints)
{
    struct err e = {0};
    prepare();
    run_of("a");
    t_fails(host_resume(host, "/no/such/run", NULL, &e), &e, DS_ENOTFOUND,
            "/no/such/run: no such run on box");
    t_fails(host_checkpoints(host, "/no/such/run", &e), &e, DS_ENOTFOUND, "no such run on box");
    host_close(host);
}

T(no_other_machine_takes_what_a_host_sends_to_be_abandoned)
{
    char folder[1100];
    const struct timespec old[2] = {{.tv_sec = time(NULL) - 200000},
                                    {.tv_sec = time(NULL) - 200000}};
    prepare();
    snprintf(folder, sizeof folder, "%s", run_of("a")->path); /* FOLDER/rN/a */
    *strrchr(folder, '/') = '\0';
    *strrchr(folder, '/') = '\0';
    t_eq(utimensat(AT_FDCWD, folder, old, 0), 0);
    t_true(!fs_owner_is_dead("00000001-1-1-0", folder));
    host_close(host);
    t_true(!fs_exists(folder));
}

T(only_runs_that_are_open_count_towards_the_maximum)
{
    enum { MOST = 16 };
    struct err e = {0};
    prepare();
    for (int i = 0; i < RUNS; i++) {
        const struct run_row *r = run_of((const char[]){(char)('a' + i), '\0'});
        t_ok(host_follow(host, r->path, &e), &e);
        host_drop(host, r->path);
    }
    for (int i = 0; i < RUNS; i++) {
        const char *path = run_of((const char[]){(char)('a' + i), '\0'})->path;
        if (i < MOST)
            t_ok(host_follow(host, path, &e), &e);
        else
            t_fails(host_follow(host, path, &e), &e, DS_ERANGE, "box: 16 runs are open");
    }
    host_close(host);
}
