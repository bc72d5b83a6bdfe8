/* Takes `ranks` records: the newest times of every process of a run. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "io/runview_parts.h"

static void read_hosts(struct run_ranks *x, struct value host)
{
    struct value_iter it = {0};
    struct value key, item;
    for (int r = 0; r < x->n && value_next(host, &it, &key, &item); r++)
        value_copy(x->rank[r].host, sizeof x->rank[r].host, item);
}

void runview_take_ranks(struct runview *v, struct value body, const struct record_common *c)
{
    struct value host = value_get(body, "host");
    size_t n = value_len(host);
    struct run_ranks *x = &v->ranks;
    float *number[] = {NULL, NULL, NULL};
    static const char *const key[] = {"step_ms", "wait_ms", "bytes"};
    if (value_kind(host) != VALUE_ARRAY || n == 0 || n > RUN_RANKS_MAX) {
        v->invalid++;
        return;
    }
    struct run_rank *rank = mem_alloc(n, sizeof *rank);
    float *all = mem_alloc(3 * n, sizeof *all);
    if (!rank || !all) {
        mem_free(rank);
        mem_free(all);
        runview_no_memory(v);
        return;
    }
    for (size_t i = 0; i < 3 * n; i++)
        all[i] = NAN;
    for (size_t k = 0; k < 3; k++) {
        number[k] = all + k * n;
        struct value field = value_get(body, key[k]);
        if (value_kind(field) != VALUE_NONE)
            v->invalid += value_f32s(field, number[k], n) != (int64_t)n;
    }
    mem_free(x->rank);
    *x = (struct run_ranks){.rank = rank, .n = (int)n, .step = c->step};
    for (size_t r = 0; r < n; r++) {
        rank[r].step_ms = number[0][r];
        rank[r].wait_ms = number[1][r];
        rank[r].bytes = number[2][r];
    }
    read_hosts(x, host);
    mem_free(all);
}

int run_ranks_slowest(const struct run_ranks *x)
{
    int slowest = -1;
    for (int r = 0; r < x->n; r++)
        if (isfinite(run_rank_busy(&x->rank[r])) &&
            (slowest < 0 || run_rank_busy(&x->rank[r]) > run_rank_busy(&x->rank[slowest])))
            slowest = r;
    return slowest;
}
