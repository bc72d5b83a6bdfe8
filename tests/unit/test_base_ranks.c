/* Without MPI a process is the one rank of its group: collective calls return what it gave. */
#include "t.h"

#include <unistd.h>

#include "base/ranks.h"

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
