#include "models/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

static const char *const column_name[MEASURE_COLUMNS] = {
    [MEASURE_DEPTH] = "depth",       [MEASURE_SIGNAL] = "signal", [MEASURE_ENTROPY] = "entropy",
    [MEASURE_NLL] = "nll",           [MEASURE_FLOPS] = "flops",   [MEASURE_TRUE] = "true_entropy",
    [MEASURE_POSITION] = "position", [MEASURE_CLASS] = "class",
};

/* The first cell metric is what the method's gate compared. */
static int signal_metric(const struct model *m)
{
    const struct route_ops *ops = m->route.ops;
    for (size_t i = 0; i < ops->n_metrics; i++)
        if (ops->metrics[i].scope == METRIC_CELL && !(ops->flags & ROUTE_CONTROL))
            return (int)i;
    return -1;
}

int measure_init(struct measure *s, const struct model *m, int positions, size_t samples,
                 struct err *e)
{
    int k = signal_metric(m);
    memset(s, 0, sizeof *s);
    s->L = (int)m->config.layers;
    s->P = positions;
    s->cap = samples;
    s->time_dense = s->time_ratio = (double)NAN;
    if (k >= 0)
        str_copy(s->signal, sizeof s->signal, m->route.ops->metrics[k].name);
    s->capacity = mem_alloc((size_t)s->L, sizeof(double));
    s->map = mem_alloc((size_t)s->L * (size_t)s->P, sizeof(double));
    s->map_n = mem_alloc((size_t)s->P, sizeof(double));
    int ok = s->capacity && s->map && s->map_n;
    for (int c = 0; c < MEASURE_COLUMNS && ok; c++)
        ok = (s->column[c] = mem_alloc(samples, sizeof(float))) != NULL;
    if (ok)
        return 0;
    measure_release(s);
    return err_set(e, DS_EMEM, "evaluation of %zu samples", samples);
}

void measure_release(struct measure *s)
{
    mem_free(s->capacity);
    mem_free(s->map);
    mem_free(s->map_n);
    for (int c = 0; c < MEASURE_COLUMNS; c++)
        mem_free(s->column[c]);
    memset(s, 0, sizeof *s);
}

/* Mean over the layers where a comparison was made. */
static float signal_of(const struct model *m, int row)
{
    int k = signal_metric(m), n = 0;
    double sum = 0;
    if (k < 0 || m->route.pass.kind == PASS_DENSE)
        return NAN;
    for (int l = 0; l < m->config.layers; l++) {
        real x = m->route.cell[k][(size_t)l * (size_t)m->R + (size_t)row];
        if (!isnan(x)) {
            sum += (double)x;
            n++;
        }
    }
    return n ? (float)(sum / n) : NAN;
}

static void add_plan(struct measure *s, const struct model *m, const struct plan *p, float *depth)
{
    for (int i = 0; i < p->n; i++) {
        int row = p->row[i], pos = m->pos[row];
        if (p->gate[i] == 0)
            continue;
        depth[row] += 1;
        s->capacity[p->layer] += 1;
        if (pos < s->P)
            s->map[(size_t)p->layer * (size_t)s->P + (size_t)pos] += 1;
    }
}

static void add_sample(struct measure *s, const struct model *m, int row, float depth,
                       const float *true_entropy)
{
    float value[MEASURE_COLUMNS] = {
        [MEASURE_DEPTH] = depth,
        [MEASURE_SIGNAL] = signal_of(m, row),
        [MEASURE_ENTROPY] = (float)m->entropy[row],
        [MEASURE_NLL] = (float)m->nll[row],
        [MEASURE_FLOPS] = (float)m->flops.token[row],
        [MEASURE_TRUE] = true_entropy ? true_entropy[row] : NAN,
        [MEASURE_POSITION] = (float)m->pos[row],
        [MEASURE_CLASS] = s->token_class ? s->token_class[m->batch->id[row]] : NAN,
    };
    if (s->n >= s->cap)
        return;
    for (int c = 0; c < MEASURE_COLUMNS; c++)
        s->column[c][s->n] = value[c];
    s->n++;
}

void measure_add(struct measure *s, const struct model *m, const float *true_entropy,
                 uint64_t bytes)
{
    float *depth = mem_alloc((size_t)m->R, sizeof *depth);
    if (!depth)
        return;
    for (int l = 0; l < s->L; l++)
        add_plan(s, m, model_plan(m, l), depth);
    for (int i = 0; i < m->R; i++) {
        if (m->pos[i] < s->P)
            s->map_n[m->pos[i]] += 1;
        if (m->batch->target[i] < 0)
            continue;
        s->nll += (double)m->nll[i];
        s->tokens += 1;
        add_sample(s, m, i, depth[i], true_entropy);
    }
    s->bytes += (double)bytes;
    s->run += (double)m->flops.rows_run;
    s->cells += (double)m->flops.rows;
    s->flops += flops_total(&m->flops);
    s->flops_dense += m->flops.dense;
    mem_free(depth);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return n % 2 ? x[n / 2] : 0.5 * (x[n / 2 - 1] + x[n / 2]);
}

static double prefill_seconds(struct model *m, const struct batch *b, enum pass_kind kind,
                              uint64_t seed, real *logits)
{
    struct pass pass = {.kind = kind, .seed = seed};
    double t = clock_mono();
    model_forward(m, b, &pass);
    model_logits(m, m->R - 1, logits);
    return clock_mono() - t;
}

/* Ratios are taken pair by pair, each kind first in every other pair: a machine that drifts moves both. */
void measure_time(struct measure *s, struct model *m, const int32_t *id, int T, int rounds,
                  uint64_t seed)
{
    struct batch b = {.B = 1, .T = T, .id = id};
    double *dense = mem_alloc(2 * (size_t)rounds, sizeof *dense),
           *ratio = dense ? dense + rounds : NULL;
    real *logits = mem_alloc((size_t)m->config.vocab, sizeof *logits);
    if (dense && logits && rounds > 0) {
        prefill_seconds(m, &b, PASS_DENSE, seed, logits); /* warm up */
        prefill_seconds(m, &b, PASS_SPARSE, seed, logits);
        for (int i = 0; i < rounds; i++) {
            double first = prefill_seconds(m, &b, i % 2 ? PASS_SPARSE : PASS_DENSE, seed, logits);
            double second = prefill_seconds(m, &b, i % 2 ? PASS_DENSE : PASS_SPARSE, seed, logits);
            dense[i] = i % 2 ? second : first;
            ratio[i] = (i % 2 ? first : second) / dense[i];
        }
        s->time_dense = median(dense, rounds) / T;
        s->time_ratio = median(ratio, rounds);
    }
    m->batch = NULL;
    mem_free(dense);
    mem_free(logits);
}

double measure_loss(const struct measure *s)
{
    return s->tokens > 0 ? s->nll / s->tokens : (double)NAN;
}

double measure_bits_per_byte(const struct measure *s)
{
    return s->bytes > 0 ? s->nll / log(2) / s->bytes : (double)NAN;
}

double measure_block_ratio(const struct measure *s)
{
    return s->cells > 0 ? s->run / s->cells : (double)NAN;
}

double measure_model_ratio(const struct measure *s)
{
    return s->flops_dense > 0 ? s->flops / s->flops_dense : (double)NAN;
}

double measure_correlation(const struct measure *s, enum measure_column a, enum measure_column b)
{
    double n = 0, ma = 0, mb = 0, saa = 0, sbb = 0, sab = 0;
    for (size_t i = 0; i < s->n; i++) { /* Welford */
        double x = (double)s->column[a][i], y = (double)s->column[b][i];
        if (!isfinite(x) || !isfinite(y))
            continue;
        n += 1;
        double dx = x - ma, dy = y - mb;
        ma += dx / n;
        mb += dy / n;
        saa += dx * (x - ma);
        sbb += dy * (y - mb);
        sab += dx * (y - mb);
    }
    return n >= 3 && saa > 1e-12 * n && sbb > 1e-12 * n ? sab / sqrt(saa * sbb) : (double)NAN;
}

void measure_depth(const struct measure *s, double *mean, double *sd)
{
    double n = 0, m = 0, ss = 0;
    for (size_t i = 0; i < s->n; i++) {
        double x = (double)s->column[MEASURE_DEPTH][i], d = x - m;
        n += 1;
        m += d / n;
        ss += d * (x - m);
    }
    *mean = n > 0 ? m : (double)NAN;
    *sd = n > 1 ? sqrt(ss / (n - 1)) : (double)NAN;
}

static void add_map(const struct measure *s, struct record *rec)
{
    size_t cells = (size_t)s->L * (size_t)s->P;
    float *rate = mem_alloc(cells, sizeof *rate);
    for (size_t i = 0; rate && i < cells; i++) {
        double n = s->map_n[i % (size_t)s->P];
        rate[i] = n > 0 ? (float)(s->map[i] / n) : NAN;
    }
    if (rate) {
        record_int(rec, "map_positions", s->P);
        record_f32s(rec, "map", rate, cells);
    }
    mem_free(rate);
}

void measure_eval_record(const struct measure *s, struct record *rec, const char *task,
                         const char *routing, int64_t step, double time)
{
    double mean, sd, capacity[512];
    int L = s->L < 512 ? s->L : 512;
    double rows = s->cells / s->L;
    measure_depth(s, &mean, &sd);
    for (int l = 0; l < L; l++)
        capacity[l] = rows > 0 ? s->capacity[l] / rows : 0;
    record_begin(rec, "eval", step, time);
    record_str(rec, "task", task);
    record_str(rec, "routing", routing);
    record_num(rec, "loss", measure_loss(s));
    record_num(rec, "bits_per_byte", measure_bits_per_byte(s));
    record_num(rec, "tokens", s->tokens);
    record_num(rec, "block_ratio", measure_block_ratio(s));
    record_num(rec, "flops_ratio", measure_model_ratio(s));
    record_num(rec, "flops_per_token", s->tokens > 0 ? s->flops / s->tokens : (double)NAN);
    record_num(rec, "flops_dense_per_token",
               s->tokens > 0 ? s->flops_dense / s->tokens : (double)NAN);
    record_num(rec, "time_ratio", s->time_ratio);
    record_num(rec, "time_per_token_ms", 1e3 * s->time_dense * s->time_ratio);
    record_num(rec, "time_dense_per_token_ms", 1e3 * s->time_dense);
    record_num(rec, "depth_mean", mean);
    record_num(rec, "depth_sd", sd);
    record_num(rec, "corr_signal_depth", measure_correlation(s, MEASURE_SIGNAL, MEASURE_DEPTH));
    record_num(rec, "corr_entropy_depth", measure_correlation(s, MEASURE_ENTROPY, MEASURE_DEPTH));
    record_num(rec, "corr_nll_depth", measure_correlation(s, MEASURE_NLL, MEASURE_DEPTH));
    record_num(rec, "corr_true_entropy_depth", measure_correlation(s, MEASURE_TRUE, MEASURE_DEPTH));
    record_nums(rec, "capacity", capacity, (size_t)L);
    add_map(s, rec);
}

static int by_float(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The worst tenth of losses is a class of its own. */
static void mark_high_loss(const struct measure *s)
{
    enum { HIGH_LOSS = 7 };
    float *sorted = s->token_class && s->n >= 10
                        ? mem_dup(s->column[MEASURE_NLL], s->n * sizeof *sorted)
                        : NULL;
    if (!sorted)
        return;
    qsort(sorted, s->n, sizeof *sorted, by_float);
    float limit = sorted[s->n - s->n / 10];
    for (size_t i = 0; i < s->n; i++)
        if (s->column[MEASURE_NLL][i] >= limit)
            s->column[MEASURE_CLASS][i] = HIGH_LOSS;
    mem_free(sorted);
}

void measure_sample_record(const struct measure *s, struct record *rec, const char *name,
                           int64_t step, double time)
{
    mark_high_loss(s);
    record_begin(rec, "sample", step, time);
    record_str(rec, "name", name);
    record_int(rec, "n", (int64_t)s->n);
    record_str(rec, "signal", s->signal);
    record_map(rec, "column");
    for (int c = 0; c < MEASURE_COLUMNS; c++)
        record_f32s(rec, column_name[c], s->column[c], s->n);
    record_close(rec);
}
