/* Time spent in each part of a step, and the model FLOPs utilisation. */
#include "training/account.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"

/* A busy machine can only lower a measured peak, so the highest of several is kept: long
 * measurements amortise thread wake-up, short ones fit between two time slices of other
 * programs. */
void account_measure(struct account *a, enum peak_unit unit)
{
    enum { SHORT = 4 };
    a->unit = unit;
    a->peak = peak_gflops(unit, 0.03);
    for (int i = 0; i < SHORT; i++) {
        double again = peak_gflops(unit, 0.005);
        a->peak = again > a->peak ? again : a->peak;
    }
}

void account_begin(struct account *a)
{
    a->part = STEP_RECORD;
    memset(a->spent, 0, sizeof a->spent);
    memset(a->total, 0, sizeof a->total);
    a->record_reported = 0;
    a->steps = 0;
    a->since = clock_mono();
}

int account_enter(struct account *a, int part)
{
    int was = a->part;
    double now = clock_mono();
    a->spent[was] += now - a->since;
    a->total[was] += now - a->since;
    a->since = now;
    a->part = part;
    return was;
}

void account_step(struct account *a, double ms[STEP_PARTS])
{
    account_enter(a, STEP_RECORD);
    for (int i = 0; i < STEP_RECORD; i++) {
        ms[i] = 1e3 * a->spent[i];
        a->spent[i] = 0;
    }
    a->steps++;
    a->record_reported = a->spent[STEP_RECORD];
    ms[STEP_RECORD] = 1e3 * a->record_reported / (double)a->steps;
}

void account_restart_window(struct account *a)
{
    a->spent[STEP_RECORD] -= a->record_reported;
    a->record_reported = 0;
    a->steps = 0;
}

double account_share(const struct account *a, int part)
{
    double sum = 0;
    for (int i = 0; i < ACCOUNT_PAUSE; i++)
        sum += a->total[i];
    return sum > 0 ? a->total[part] / sum : 0;
}

/* ---- FLOPs ---- */

/* Number of (listed row, visible key) pairs; under KV_PLAN a row with gate 0 is a key only for
 * itself. */
static double visible_keys(const struct plan *p, const int32_t *first_row, int window)
{
    double sum = 0;
    for (int i = 0, from = 0, keys = 0; i < p->n; i++) {
        int row = p->row[i], least = first_row[row];
        if (window > 0 && row - window >= least)
            least = row - window + 1;
        for (; p->row[from] < least; from++)
            keys -= p->gate[from] != 0;
        sum += p->kv == KV_ALL ? row - least + 1 : keys + 1;
        keys += p->gate[i] != 0;
    }
    return sum;
}

double account_flops(const struct flops_shape *s, const struct plan *plan, const struct plan *ffn,
                     const struct block_params *block, const int32_t *first_row, int R,
                     int recompute, int frozen)
{
    double qo = 4.0 * s->C * s->H * s->D, mlp = flops_mlp_row(s);
    double kv = 4.0 * s->C * s->K * s->D, key = 4.0 * s->H * s->D;
    double base = 0, adapters = 0, attention = 0, times = frozen ? 2 : 3;
    for (int l = 0; l < s->L; l++) {
        const struct plan *p = &plan[l];
        double q = p->n, k = p->kv == KV_ALL ? R : p->n, f = ffn ? ffn[l].n : p->n;
        base += q * qo + k * kv + f * mlp;
        adapters += q * s->adapter_qo + k * s->adapter_kv + f * s->adapter_mlp;
        attention += visible_keys(p, first_row, block ? block[l].window : 0) * key;
    }
    return times * (base + R * 2.0 * s->C * s->V) + 4 * adapters + 3 * attention +
           (recompute ? base + adapters + attention : 0);
}

double account_model_flops(const struct model *m, double noops, int recompute, int frozen)
{
    struct flops_shape s = model_config_flops(&m->config);
    const struct plan *mlp = m->ffn ? m->ffn : m->plan;
    double less = noops * flops_expert_row(&s), times = (frozen ? 2 : 3) + recompute;
    for (int l = 0; s.dense_mlps > 0 && l < s.L; l++)
        if (m->block[l].router < 0)
            less += mlp[l].n * (flops_mlp_row(&s) - flops_dense_mlp_row(&s));
    return account_flops(&s, m->plan, m->ffn, m->block, m->first_row, m->R, recompute, frozen) -
           times * less;
}

double account_exit_flops(const struct flops_shape *s, int R, double exits, int frozen)
{
    return (frozen ? 2 : 3) * exits * R * 2.0 * s->C * s->V;
}

double account_mfu(const struct account *a, double flops, double ms)
{
    return a->peak > 0 && ms > 0 ? flops / (1e6 * ms * a->peak) : (double)NAN;
}

void account_arenas(const struct model *m, struct account_arena out[ACCOUNT_ARENAS])
{
    out[0] = (struct account_arena){"weights", m->params.block_bytes + m->weights.bytes};
    out[1] = (struct account_arena){"stream",
                                    m->stream_arena.peak + (m->distill ? m->distill->bytes : 0)};
    out[2] = (struct account_arena){"work", m->work_arena.peak};
}
