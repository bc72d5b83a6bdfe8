/* Accumulates the measurements of an evaluation pass by pass. */
#include "models/measure.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

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
    s->L = model_config_depth(&m->config);
    s->P = positions;
    s->cap = samples;
    s->is_gated = (m->route.ops->flags & ROUTE_GATED) != 0;
    s->time_dense = s->time_ratio = s->decode_dense = s->decode_ratio = (double)NAN;
    s->batch_ratio = (double)NAN;
    if (k >= 0)
        str_copy(s->signal, sizeof s->signal, m->route.ops->metrics[k].name);
    s->capacity = mem_alloc((size_t)s->L, sizeof(double));
    s->map = mem_alloc((size_t)s->L * (size_t)s->P, sizeof(double));
    s->map_n = mem_alloc((size_t)s->P, sizeof(double));
    if (m->ffn)
        s->attention = mem_alloc((size_t)s->L, sizeof(double));
    int ok = s->capacity && s->map && s->map_n && (s->attention || !m->ffn);
    for (int c = 0; c < MEASURE_COLUMNS && ok; c++)
        ok = (s->column[c] = mem_alloc(samples, sizeof(float))) != NULL;
    int rc = ok ? contrast_init(&s->contrast, s->L, e)
                : err_set(e, DS_EMEM, "out of memory for %zu samples", samples);
    if (rc == 0 && s->is_gated)
        rc = decisions_init(&s->decisions, m, e);
    if (rc < 0)
        measure_release(s);
    return rc;
}

void measure_release(struct measure *s)
{
    mem_free(s->capacity);
    mem_free(s->attention);
    mem_free(s->map);
    mem_free(s->map_n);
    for (int c = 0; c < MEASURE_COLUMNS; c++)
        mem_free(s->column[c]);
    decisions_release(&s->decisions);
    contrast_release(&s->contrast);
    memset(s, 0, sizeof *s);
}

/* Mean over the layers that compared it. */
static float signal_of(const struct model *m, int row)
{
    int k = signal_metric(m), n = 0;
    double sum = 0;
    if (k < 0 || m->route.pass.kind == PASS_DENSE)
        return NAN;
    for (int l = 0; l < model_config_depth(&m->config); l++) {
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

/* Welford's algorithm over all tokens, independent of how many samples are kept. */
static void add_depth(struct measure *s, double depth)
{
    double d = depth - s->depth_mean;
    s->depth_n += 1;
    s->depth_mean += d / s->depth_n;
    s->depth_ss += d * (depth - s->depth_mean);
}

static float class_at(const struct measure *s, const uint8_t *known, int row, int32_t id)
{
    enum { BY_TEXT = 255 };
    if (known && known[row] != BY_TEXT)
        return known[row];
    return s->token_class ? s->token_class[id] : NAN;
}

static void add_part(struct measure_part *p, const struct model *m, int row, double depth)
{
    p->n += 1;
    p->nll += (double)m->nll[row];
    p->correct += m->is_correct[row];
    p->depth += depth;
}

/* By the class and the required depth of the target. */
static void add_parts(struct measure *s, const struct model *m, int row, double depth,
                      const struct measure_known *known)
{
    float c = class_at(s, known->target_class, row, m->batch->target[row]);
    double needed = known->needed ? (double)known->needed[row] : 0;
    if (c >= 0 && c < MEASURE_CLASSES)
        add_part(&s->by_class[(int)c], m, row, depth);
    if (needed >= 1 && needed <= MEASURE_NEEDED_MAX)
        add_part(&s->by_needed[(int)needed - 1], m, row, depth);
    s->correct += m->is_correct[row];
}

static void add_sample(struct measure *s, const struct model *m, int row, float depth,
                       const struct measure_known *known)
{
    float value[MEASURE_COLUMNS] = {
        [MEASURE_DEPTH] = depth,
        [MEASURE_SIGNAL] = signal_of(m, row),
        [MEASURE_ENTROPY] = (float)m->entropy[row],
        [MEASURE_NLL] = (float)m->nll[row],
        [MEASURE_FLOPS] = (float)m->flops.token[row],
        [MEASURE_TRUE] = known->true_entropy ? known->true_entropy[row] : NAN,
        [MEASURE_NEEDED] = known->needed ? known->needed[row] : NAN,
        [MEASURE_POSITION] = (float)m->pos[row],
        [MEASURE_CLASS] = class_at(s, known->class_of, row, m->batch->id[row]),
    };
    if (s->n >= s->cap)
        return;
    for (int c = 0; c < MEASURE_COLUMNS; c++)
        s->column[c][s->n] = value[c];
    s->n++;
}

int measure_add(struct measure *s, const struct model *m, const struct measure_known *known,
                uint64_t bytes, struct err *e)
{
    float *depth = mem_alloc((size_t)m->R, sizeof *depth);
    if (!depth)
        return err_set(e, DS_EMEM, "out of memory for the depth of %d tokens", m->R);
    for (int l = 0; l < s->L; l++)
        add_plan(s, m, model_plan(m, l), depth);
    for (int l = 0; s->attention && l < s->L; l++)
        s->attention[l] += m->plan[l].active;
    for (int i = 0; i < m->R; i++) {
        if (m->pos[i] < s->P)
            s->map_n[m->pos[i]] += 1;
        if (m->batch->target[i] < 0)
            continue;
        s->nll += (double)m->nll[i];
        s->tokens += 1;
        add_depth(s, (double)depth[i]);
        add_parts(s, m, i, (double)depth[i], known);
        add_sample(s, m, i, depth[i], known);
    }
    s->bytes += (double)bytes;
    s->run += (double)m->flops.rows_run;
    s->cells += (double)m->flops.rows;
    s->flops += flops_total(&m->flops);
    s->flops_dense += m->flops.dense;
    s->is_topk |= m->route.pass.inference.topk != 0;
    if (s->is_gated && m->route.pass.kind != PASS_DENSE)
        decisions_add(&s->decisions, m);
    mem_free(depth);
    return 0;
}

int measure_has_contrast(const struct measure *s, const struct model *m, enum contrast_kind kind)
{
    return kind == CONTRAST_TOPK ? (m->route.ops->flags & ROUTE_TOPK) != 0 : s->is_gated;
}

int measure_contrast_run(struct measure *s, struct model *m, enum contrast_kind kind,
                         const struct batch *b, const struct pass *use, uint64_t end, struct err *e)
{
    double *rate = mem_alloc(2 * (size_t)s->L, sizeof *rate), rows = s->cells / s->L;
    if (!rate)
        return err_set(e, DS_EMEM, "out of memory for rates of %d layers", s->L);
    for (int l = 0; l < s->L; l++)
        rate[l] = measure_capacity(s, l);
    for (int l = 0; s->attention && l < s->L; l++)
        rate[s->L + l] = rows > 0 ? s->attention[l] / rows : 0;
    struct contrast_rates x = {rate, s->attention ? rate + s->L : NULL};
    int rc = contrast_run(&s->contrast, kind, m, b, use, &x, end, e);
    mem_free(rate);
    return rc;
}

void measure_contrast_add(struct measure *s, struct model *m, enum contrast_kind kind)
{
    contrast_add(&s->contrast, kind, m);
    contrast_end(m);
}

int measure_contrast(struct measure *s, struct model *m, enum contrast_kind kind,
                     const struct batch *b, const struct pass *use, uint64_t end, struct err *e)
{
    if (!measure_has_contrast(s, m, kind))
        return 0;
    int rc = measure_contrast_run(s, m, kind, b, use, end, e);
    if (rc == 0)
        measure_contrast_add(s, m, kind);
    return rc;
}

/* ---- continued by another process ---- */

static void add_span(struct measure_span *out, int *n, void *p, size_t bytes)
{
    if (!p || bytes == 0)
        return;
    BUG_IF(*n == MEASURE_SPANS, "more than %d spans", MEASURE_SPANS);
    out[(*n)++] = (struct measure_span){p, bytes};
}

static int sum_spans(struct measure *s, struct measure_span *out)
{
    size_t L = (size_t)s->L, P = (size_t)s->P, V = (size_t)s->decisions.V;
    struct decisions *d = &s->decisions;
    int n = 0;
    add_span(out, &n, &s->is_topk, sizeof s->is_topk);
    add_span(out, &n, &s->nll, offsetof(struct measure, capacity) - offsetof(struct measure, nll));
    add_span(out, &n, s->capacity, L * sizeof *s->capacity);
    add_span(out, &n, s->attention, L * sizeof *s->attention);
    add_span(out, &n, s->map, L * P * sizeof *s->map);
    add_span(out, &n, s->map_n, P * sizeof *s->map_n);
    add_span(out, &n, &s->n, sizeof s->n);
    add_span(out, &n, s->by_class, sizeof s->by_class);
    add_span(out, &n, s->by_needed, sizeof s->by_needed);
    add_span(out, &n, &s->correct, sizeof s->correct);
    add_span(out, &n, &d->rows, sizeof d->rows);
    add_span(out, &n, d->seen, V * sizeof *d->seen);
    add_span(out, &n, d->run, L * V * sizeof *d->run);
    add_span(out, &n, d->prediction, L * sizeof *d->prediction);
    add_span(out, &n, d->soft_n, 4 * L * sizeof *d->soft_n);
    add_span(out, &n, d->gated, 2 * L);
    add_span(out, &n, &d->nan_scores, sizeof d->nan_scores);
    return n + measure_contrast_spans(s, CONTRAST_CAUSAL, out + n);
}

int measure_spans(struct measure *s, int half, struct measure_span out[MEASURE_SPANS])
{
    int n = 0;
    if (half == 0)
        return sum_spans(s, out);
    for (int c = 0; c < MEASURE_COLUMNS; c++)
        add_span(out, &n, s->column[c], s->n * sizeof(float));
    return n;
}

int measure_contrast_spans(struct measure *s, enum contrast_kind kind,
                           struct measure_span out[MEASURE_SPANS])
{
    struct contrast *c = &s->contrast;
    int n = 0;
    add_span(out, &n, &c->sum[kind], sizeof c->sum[kind]);
    if (kind == CONTRAST_TOPK) {
        add_span(out, &n, c->topk_capacity, (size_t)c->L * sizeof *c->topk_capacity);
        add_span(out, &n, &c->topk_rows, sizeof c->topk_rows);
    }
    return n;
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

void measure_depth(const struct measure *s, double *mean, double *variance)
{
    *mean = s->depth_n > 0 ? s->depth_mean : (double)NAN;
    *variance = s->depth_n > 1 ? s->depth_ss / (s->depth_n - 1) : (double)NAN;
}

double measure_capacity(const struct measure *s, int l)
{
    double rows = s->cells / s->L;
    return rows > 0 ? s->capacity[l] / rows : 0;
}
