/* Without MPI a process is the one rank of its group: collective calls return what it gave.  The watch
 * over several needs no MPI. */
#include "base/ranks_watch.c" /* of make MPI=1 alone */

#include "t.h"

#include <sys/wait.h>

T(one_process_is_a_group_of_one)
{
    char name[200], host[100] = "", want[200];
    int mine = 7, all = 0, done = 0;
    size_t bytes = sizeof mine;
    struct err e = {0};
    struct ranks_trade *trade = (struct ranks_trade *)&mine;
    t_ok(ranks_begin(&e), &e);
    t_true(ranks_rank() == 0 && ranks_size() == 1);
    t_eq(gethostname(host, sizeof host - 1), 0);
    snprintf(want, sizeof want, "rank 0 on %s", host);
    ranks_name(0, name, sizeof name);
    t_str(name, want);
    ranks_name(0, name, 7);
    t_str(name, "rank 0");
    t_ok(ranks_watch(1, &e), &e);
    t_ok(ranks_broadcast(&mine, bytes, 0, &e), &e);
    t_ok(ranks_gather(&all, &mine, bytes, &e), &e);
    t_eq(all, 7);
    mine = 8;
    t_ok(ranks_gather_parts(&all, &mine, &bytes, &e), &e);
    t_eq(all, 8);
    t_ok(ranks_gather(NULL, NULL, 0, &e), &e);
    t_ok(ranks_exchange(NULL, 0, NULL, 0, &e), &e);
    t_ok(ranks_trade_start(&trade, 1, NULL, 0, NULL, 0, &e), &e);
    t_true(trade == NULL);
    t_ok(ranks_trade_test(&trade, &done, &e), &e);
    t_eq(done, 1);
    t_ok(ranks_trade_finish(&trade, &e), &e);
    t_ok(ranks_barrier(&e), &e);
    ranks_fail("nobody else is told");
    ranks_end();
    t_true(ranks_rank() == 0 && ranks_size() == 1);
}

/* This process is rank 1, and rank 0 has ended. */
static pid_t lose_rank_0(void)
{
    struct watch_place place;
    struct err e = {0};
    t_ok(watch_listen(&place, 2, &e), &e);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) { /* rank 0 */
        struct pollfd p = {.fd = w.listener, .events = POLLIN};
        _exit(poll(&p, 1, 20000) == 1 && accept(w.listener, NULL, NULL) >= 0 ? 0 : 1);
    }
    t_true(child > 0);
    t_ok(watch_connect(&place, 1, &e), &e);
    t_ok(watch_start(1, 2, 0, 30, &e), &e);
    return child;
}

static void leave(pid_t child)
{
    int status = 1;
    t_true(waitpid(child, &status, 0) == child && status == 0);
    watch_stop();
}

T(a_loss_that_the_watch_has_reported_is_not_reported_again)
{
    char text[WATCH_TEXT] = "";
    pid_t child = lose_rank_0();
    double until = clock_mono() + 7;
    while (!watch_has_reported() && clock_mono() < until)
        clock_sleep(0.02);
    t_true(watch_has_reported() && watch_lost_rank() == 0);
    t_eq(watch_lost(text), 1);
    t_true(strstr(text, "ended unexpectedly") != NULL && watch_has_reported());
    leave(child);
}

T(a_loss_that_is_met_in_time_is_left_to_the_thread_that_works)
{
    char text[WATCH_TEXT] = "";
    pid_t child = lose_rank_0();
    double until = clock_mono() + 20, before = clock_mono();
    while (watch_lost(text) == 0 && clock_mono() < until) {
        clock_sleep(0.01);
        before = clock_mono();
    }
    int is_in_time = clock_mono() - before < report_after / 2;
    clock_sleep(report_after + 0.5);
    t_true(strstr(text, "ended unexpectedly") != NULL);
    t_true(!is_in_time || !watch_has_reported());
    leave(child);
}
