/* Leases: exactly one of many processes claims, a dead or silent owner is replaced, a former owner
 * finds out, and no clock of another host is ever asked. */
#include "t.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/lease.h"

static struct lease_view look(const char *dir, const char *name)
{
    struct err e = {0};
    struct lease_list list = {0};
    struct lease_view v;
    t_ok(lease_list_read(&list, dir, &e), &e);
    t_ok(lease_look(&v, dir, name, lease_list_find(&list, name), &e), &e);
    lease_list_release(&list);
    return v;
}

static int claim(struct lease *l, const char *dir, const char *name, double patience)
{
    struct err e = {0};
    int rc = lease_claim(l, dir, name, look(dir, name).generation, patience, &e);
    t_true(rc >= 0);
    return rc;
}

/* A lease whose owner is on a host that nobody here can ask. */
static void of_elsewhere(const char *dir, const char *file, const char *counter, double patience)
{
    char path[900], text[400];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/%s", dir, file);
    snprintf(text, sizeof text,
             "{\"counter\":\"%s\",\"held\":true,\"owner\":\"deadbeef-1-1-0\",\"host\":\"far\","
             "\"pid\":1,\"nonce\":\"0123456789abcdef\",\"patience\":%g}\n",
             counter, patience);
    t_ok(fs_write_file(path, text, strlen(text), &e), &e);
}

T(a_lease_is_claimed_renewed_and_released)
{
    const char *dir = t_tmpdir();
    struct err e = {0};
    struct lease l = LEASE_NONE;
    struct lease_watch w = {0};
    struct lease_view v = look(dir, "run");
    t_eq(v.generation, 0);
    t_eq(lease_judge(&w, &v), LEASE_FREE);
    t_eq(claim(&l, dir, "run", 30), 1);
    v = look(dir, "run");
    t_true(v.is_held && v.generation == 1 && v.pid == (long)getpid() && v.host[0]);
    t_eq(lease_judge(&w, &v), LEASE_ALIVE);
    uint64_t before = v.mark;
    t_eq(lease_renew(&l, &e), 1);
    v = look(dir, "run");
    t_true(v.mark != before && v.pid == (long)getpid());
    t_eq(lease_judge(&w, &v), LEASE_ALIVE);
    t_true(w.has_moved);
    t_ok(lease_release(&l, "killed by \"signal\" 9\n", &e), &e);
    v = look(dir, "run");
    t_true(!v.is_held);
    t_str(v.note, "killed by \"signal\" 9\n");
    t_eq(lease_judge(&w, &v), LEASE_FREE);
    t_eq(claim(&l, dir, "run", 30), 1);
    t_eq(look(dir, "run").generation, 2);
    t_ok(lease_release(&l, "", &e), &e);
}

enum { PROCESSES = 16 };

static int rounds(void)
{
    return t_runs_under("valgrind") ? 3 : 25;
}

/* Every process claims as soon as it sees a free lease, holds it, and checks that it is alone. */
static int contend(const char *dir, const char *busy, const char *tally)
{
    struct lease l = LEASE_NONE;
    for (int won = 0, tries = 0; won < rounds() && tries < 200000; tries++) {
        struct lease_list list = {0};
        struct lease_view v;
        struct lease_watch w = {0};
        struct err e = {0};
        if (lease_list_read(&list, dir, &e) < 0 ||
            lease_look(&v, dir, "one", lease_list_find(&list, "one"), &e) < 0) {
            fprintf(stderr, "%s\n", e.text);
            return 2;
        }
        lease_list_release(&list);
        if (lease_judge(&w, &v) != LEASE_FREE ||
            lease_claim(&l, dir, "one", v.generation, 60, NULL) != 1)
            continue;
        int fd = open(busy, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
        int log = open(tally, O_CREAT | O_APPEND | O_WRONLY | O_CLOEXEC, 0600);
        if (fd < 0 || log < 0 || write(log, "x", 1) != 1)
            return 3; /* another process holds it, too */
        close(log);
        close(fd);
        unlink(busy);
        if (lease_release(&l, "", NULL) < 0)
            return 4;
        won++;
    }
    return 0;
}

T(of_many_processes_exactly_one_holds_a_lease)
{
    const char *dir = t_tmpdir();
    char busy[900], tally[900];
    pid_t pid[PROCESSES];
    struct stat st;
    struct err e = {0};
    char leases[900];
    snprintf(leases, sizeof leases, "%s/leases", dir);
    snprintf(busy, sizeof busy, "%s/busy", dir);
    snprintf(tally, sizeof tally, "%s/tally", dir);
    t_ok(fs_mkdirs(leases, &e), &e);
    for (int i = 0; i < PROCESSES; i++) {
        pid[i] = fork();
        if (pid[i] == 0)
            _exit(contend(leases, busy, tally));
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status = -1;
        waitpid(pid[i], &status, 0);
        t_eq(status, 0);
    }
    t_eq(stat(tally, &st), 0);
    t_eq(st.st_size, PROCESSES * rounds());
}

T(a_dead_process_of_this_machine_is_seen_at_once)
{
    const char *dir = t_tmpdir();
    struct lease l = LEASE_NONE;
    struct lease_watch w = {0};
    pid_t pid = fork();
    if (pid == 0)
        _exit(lease_claim(&l, dir, "run", 0, 3600, NULL) != 1);
    int status = -1;
    waitpid(pid, &status, 0);
    t_eq(status, 0);
    struct lease_view v = look(dir, "run");
    t_true(v.is_held);
    t_eq(lease_judge(&w, &v), LEASE_DEAD);
    t_eq(claim(&l, dir, "run", 30), 1);
    t_eq(look(dir, "run").generation, 2);
    lease_abandon(&l);
}

T(an_owner_elsewhere_is_judged_by_change_alone)
{
    const char *dir = t_tmpdir();
    struct lease_watch w = {0};
    of_elsewhere(dir, "run@7", "0000000001", 0.5);
    /* a file from the year 1990 or 2100 says nothing about its owner: clocks may be wrong */
    const struct timespec far[2][2] = {{{631152000, 0}, {631152000, 0}},
                                       {{4102444800, 0}, {4102444800, 0}}};
    char path[900];
    snprintf(path, sizeof path, "%s/run@7", dir);
    for (int i = 0; i < 2; i++) {
        t_eq(utimensat(AT_FDCWD, path, far[i], 0), 0);
        struct lease_view v = look(dir, "run");
        t_eq(lease_judge(&w, &v), LEASE_ALIVE);
    }
    clock_sleep(0.3);
    of_elsewhere(dir, "run@7", "0000000002", 0.5); /* renewed */
    struct lease_view v = look(dir, "run");
    t_eq(lease_judge(&w, &v), LEASE_ALIVE);
    clock_sleep(0.3);
    t_eq(lease_judge(&w, &v), LEASE_ALIVE);
    clock_sleep(0.3);
    v = look(dir, "run");
    t_eq(lease_judge(&w, &v), LEASE_DEAD);
    t_true(w.has_moved);
}

T(a_former_owner_finds_that_it_lost_its_lease)
{
    const char *dir = t_tmpdir();
    struct err e = {0};
    struct lease a = LEASE_NONE, b = LEASE_NONE;
    t_eq(claim(&a, dir, "run", 30), 1);
    t_eq(claim(&b, dir, "run", 30), 1); /* as if a had been silent for long */
    t_eq(lease_renew(&b, &e), 1);
    uint64_t mark = look(dir, "run").mark;
    t_eq(lease_renew(&a, &e), 0);
    t_eq(a.fd, -1);
    t_true(look(dir, "run").mark == mark); /* and did not touch the new one */
    t_eq(lease_renew(&b, &e), 1);
    t_ok(lease_release(&a, "too late", &e), &e);
    t_true(look(dir, "run").is_held);
    lease_abandon(&b);
}

T(only_one_of_two_takes_over)
{
    const char *dir = t_tmpdir();
    struct err e = {0};
    struct lease a = LEASE_NONE, b = LEASE_NONE, c = LEASE_NONE;
    of_elsewhere(dir, "run@3", "0000000001", 30);
    t_eq(lease_claim(&a, dir, "run", 3, 30, &e), 1);
    t_eq(lease_claim(&b, dir, "run", 3, 30, &e), 0);
    t_ok(lease_release(&a, "", &e), &e);
    t_eq(claim(&c, dir, "run", 30), 1); /* generation 5; 4 is removed */
    t_eq(c.generation, 5);
    t_eq(lease_claim(&b, dir, "run", 3, 30, &e), 0); /* who slept since generation 3 */
    t_eq(look(dir, "run").generation, 5);
    t_eq(lease_renew(&c, &e), 1);
    lease_abandon(&c);
}

T(unreadable_leases_are_held_until_they_are_silent_for_long)
{
    const char *dir = t_tmpdir();
    static const char *const bad[] = {"", "{", "[]", "{\"held\":7,\"patience\":-3,\"owner\":[]}",
                                      "\xff\xfe"};
    struct err e = {0};
    char path[900];
    snprintf(path, sizeof path, "%s/run@1", dir);
    for (size_t i = 0; i < DS_LEN(bad); i++) {
        struct lease_watch w = {0};
        t_ok(fs_write_file(path, bad[i], strlen(bad[i]), &e), &e);
        struct lease_view v = look(dir, "run");
        t_true(v.is_held && v.patience == 30);
        t_eq(lease_judge(&w, &v), LEASE_ALIVE);
        w.since -= 31;
        t_eq(lease_judge(&w, &v), LEASE_DEAD);
    }
    t_ok(fs_write_file(path, "x", 1, &e), &e);
    static const char *const strange[] = {"@1", "run@", "run@x", "run@1x", ".run@9", "run@-1",
                                          "run@99999999999"};
    for (size_t i = 0; i < DS_LEN(strange); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, strange[i]);
        t_ok(fs_write_file(path, "x", 1, &e), &e);
    }
    t_eq(look(dir, "run").generation, 1);
}

T(a_folder_that_cannot_be_reached_is_an_error_and_not_a_loss)
{
    const char *dir = t_tmpdir();
    char sub[900], moved[900], file[900];
    struct err e = {0};
    struct lease l = LEASE_NONE;
    struct lease_list list = {0};
    snprintf(sub, sizeof sub, "%s/shared", dir);
    snprintf(moved, sizeof moved, "%s/moved", dir);
    snprintf(file, sizeof file, "%s/file", dir);
    t_fails(lease_claim(&l, sub, "run", 0, 30, &e), &e, DS_EIO, "No such file");
    t_ok(lease_list_read(&list, sub, &e), &e);
    t_eq(list.n, 0);
    t_ok(fs_mkdirs(sub, &e), &e);
    t_eq(lease_claim(&l, sub, "run", 0, 30, &e), 1);
    t_eq(rename(sub, moved), 0);
    t_fails(lease_renew(&l, &e), &e, DS_EIO, "not found");
    t_true(lease_is_due(&l) == 0 && l.fd >= 0);
    t_eq(rename(moved, sub), 0);
    t_eq(lease_renew(&l, &e), 1);
    lease_abandon(&l);
    t_ok(fs_write_file(file, "", 0, &e), &e);
    t_true(lease_list_read(&list, file, &e) < 0);
    lease_list_release(&list);
}

T(released_leases_are_forgotten_and_held_ones_kept)
{
    const char *dir = t_tmpdir();
    struct err e = {0};
    struct lease a = LEASE_NONE, b = LEASE_NONE;
    t_eq(claim(&a, dir, "a", 30), 1);
    t_eq(claim(&b, dir, "b", 30), 1);
    t_ok(lease_release(&a, "", &e), &e);
    lease_forget(dir, "a", 1);
    lease_forget(dir, "b", 1);
    t_eq(look(dir, "a").generation, 0);
    t_eq(look(dir, "b").generation, 1);
    lease_abandon(&b);
}
