/* Final norm, output head and loss in chunks of rows, so that the full logits are never in
 * memory. */
#include <math.h>

#include "bulk.h"
#include "engine/ops.h"
#include "models/model.h"

static struct linear head_map(const struct model *m)
{
    return weights_linear(m, m->head < 0 ? m->embed : m->head, -1);
}

/* Of an id that the head has no row for; finite, so that p ln p is 0 and not NaN. */
static const real NEVER = (real)-1e30;

/* Moves compact rows of n_out logits to the rows of the vocabulary: the compact ones are at the end
 * of the block, and as the ids ascend no value is overwritten before it is read. */
static void spread_outputs(const struct model *m, real *logits, int n)
{
    size_t V = (size_t)m->config.vocab, N = (size_t)m->n_out, all = (size_t)n * V;
    const real *from = logits + all - (size_t)n * N;
    for (size_t i = 0; i < (size_t)n; i++) {
        size_t v = 0;
        for (size_t k = 0; k < N; k++, v++) {
            real x = from[i * N + k];
            for (; v < (size_t)m->out_id[k]; v++)
                logits[i * V + v] = NEVER;
            logits[i * V + v] = x;
        }
        for (; v < V; v++)
            logits[i * V + v] = NEVER;
    }
}

/* The columns of the outputs, as compact rows at the beginning. */
static void gather_outputs(const struct model *m, real *logits, int n)
{
    size_t V = (size_t)m->config.vocab, N = (size_t)m->n_out;
    for (size_t i = 0; m->out_id && i < (size_t)n; i++)
        for (size_t k = 0; k < N; k++)
            logits[i * N + k] = logits[i * V + (size_t)m->out_id[k]];
}

/* logits (n, V) of normalised states x (n, C). */
static void head_logits(const struct model *m, real *logits, const real *x, int n)
{
    struct linear head = head_map(m);
    size_t spare = m->out_id ? (size_t)n * (size_t)(m->config.vocab - m->n_out) : 0;
    linear_fwd(logits + spare, x, &head, n, 0, NULL);
    if (m->config.logit_cap > 0)
        soft_cap_fwd(logits + spare, (real)m->config.logit_cap, (size_t)n * (size_t)m->n_out);
    if (m->out_id)
        spread_outputs(m, logits, n);
}

static real *head_grad(const struct model *m)
{
    return m->params.p[m->head < 0 ? m->embed : m->head].grad;
}

static struct norm final_norm_of(const struct model *m, real *mean, real *rstd, int N)
{
    const struct param *p = m->params.p;
    int is_layer = m->config.norm == NORM_LAYER;
    return (struct norm){.w = p[m->norm].value,
                         .b = is_layer ? p[m->norm_b].value : NULL,
                         .mean = is_layer ? mean : NULL,
                         .rstd = rstd,
                         .N = N,
                         .C = (int)m->config.dim,
                         .offset = m->config.norm_offset,
                         .eps = (real)m->config.norm_eps};
}

static void final_norm(const struct model *m, real *y, real *mean, real *rstd, const real *x, int N)
{
    struct norm n = final_norm_of(m, mean, rstd, N);
    norm_fwd(y, x, &n);
}

static void final_norm_bwd(const struct model *m, int l)
{
    const struct param *p = m->params.p;
    struct norm n = final_norm_of(m, m->meanf, m->rstdf, m->R);
    norm_bwd(m->stream.dh[l], p[m->norm].grad, m->norm_b < 0 ? NULL : p[m->norm_b].grad, m->dxf,
             m->stream.h[l], &n);
}

static int count_targets(const int32_t *target, int R)
{
    int n = 0;
    for (int i = 0; i < R; i++)
        n += target[i] >= 0;
    return n;
}

/* Replaces m->logits by the loss gradient of n rows, from both models' logits. */
static void distilled_chunk(struct model *m, int i, int n, const int32_t *target, double scale,
                            real *entropy)
{
    struct distill *d = m->distill;
    const struct model *by = d->teacher ? d->teacher : m;
    int V = (int)m->config.vocab;
    head_logits(by, d->logits, d->xf + (size_t)i * (size_t)by->config.dim, n);
    distill_fwd_bwd(d->logits, m->logits, target, (real)d->temperature,
                    (real)((1 - d->alpha) * scale), d->kd + i, n, V);
    xent_fwd_bwd(m->logits, target, NULL, (real)(d->alpha * scale), m->nll + i, entropy, n, V);
    if (scale > 0 && d->alpha > 0)
        add_into(m->logits, d->logits, (size_t)n * (size_t)V);
    else if (scale > 0)
        bulk_copy(m->logits, d->logits, (size_t)n * (size_t)V);
}

static double mean_of(const real *x, int R, double count)
{
    double sum = 0;
    for (int i = 0; i < R; i++)
        sum += (double)x[i];
    return count > 0 ? sum / count : (double)NAN;
}

/* Among equal logits the first one wins, as in greedy decoding. */
static int is_largest(const real *logits, int target, int V)
{
    if (target < 0)
        return 0;
    for (int v = 0; v < V; v++)
        if (!(v < target ? logits[v] < logits[target] : logits[v] <= logits[target]))
            return 0;
    return 1;
}

/* Final norm, head and loss of h[l], in chunks of rows. */
struct head_pass {
    int l;
    double scale; /* of the gradient of each counted target; 0: no gradient */
    int taught, entropy, correct;
};

static void head_chunk_loss(struct model *m, const struct head_pass *h, int i, int n)
{
    int C = (int)m->config.dim, V = (int)m->config.vocab;
    const int32_t *target = m->batch->target + i;
    const real *x = m->xf + (size_t)i * (size_t)C;
    real *entropy = h->entropy ? m->entropy + i : NULL;
    head_logits(m, m->logits, x, n);
    if (m->config.logit_cap > 0 && h->scale != 0)
        bulk_copy(m->capped, m->logits, (size_t)n * (size_t)V);
    for (int k = 0; k < n && h->correct; k++)
        m->is_correct[i + k] = (uint8_t)is_largest(m->logits + (size_t)k * (size_t)V, target[k], V);
    if (h->taught)
        distilled_chunk(m, i, n, target, h->scale, entropy);
    else
        xent_fwd_bwd(m->logits, target, NULL, (real)h->scale, m->nll + i, entropy, n, V);
    for (int k = 0; k < n && m->out_id; k++)
        if (m->nll[i + k] > -NEVER / 2)
            m->nll[i + k] = (real)NAN; /* no row of the head: unknown rather than infinite */
    if (h->scale == 0)
        return;
    struct linear head = head_map(m);
    if (m->config.logit_cap > 0)
        soft_cap_bwd(m->logits, m->capped, (real)m->config.logit_cap, (size_t)n * (size_t)V);
    gather_outputs(m, m->logits, n);
    linear_bwd_x(m->dxf + (size_t)i * (size_t)C, m->logits, &head, n, 0, NULL);
    struct linear_rows rows = linear_rows(head.format, x, NULL, n, C);
    linear_bwd_w(head_grad(m), NULL, m->logits, &rows, &head);
}

/* Fills nll (and entropy) and, with a scale, dh[l]; returns the sum of nll over targets. */
static double head_loss(struct model *m, const struct head_pass *h)
{
    int chunk = head_chunk(m->config.vocab);
    double sum = 0;
    final_norm(m, m->xf, m->meanf, m->rstdf, m->stream.h[h->l], m->R);
    for (int i = 0; i < m->R; i += chunk)
        head_chunk_loss(m, h, i, m->R - i < chunk ? m->R - i : chunk);
    for (int i = 0; i < m->R; i++)
        sum += m->batch->target[i] >= 0 ? (double)m->nll[i] : 0;
    if (h->scale != 0) {
        bulk_zero(m->stream.dh[h->l], (size_t)m->R * (size_t)m->config.dim);
        final_norm_bwd(m, h->l);
    }
    return sum;
}

double model_loss_rows(const struct model *m)
{
    return m->piece.targets > 0 ? m->piece.targets * m->piece.share
                                : count_targets(m->batch->target, m->R);
}

double model_loss(struct model *m, int train, int want_entropy)
{
    int L = model_config_depth(&m->config);
    double whole = model_loss_rows(m);
    double each = train ? 1.0 / (whole > 0 ? whole : 1) : 0, sum;
    struct head_pass last = {.l = L,
                             .scale = each * model_exit_weight(m, L),
                             .taught = m->distill && m->distill->is_on,
                             .entropy = want_entropy || (m->route.ops->flags & ROUTE_ENTROPY),
                             .correct = want_entropy && !train};
    BUG_IF(train && last.scale == 0, "exit_weight of the last layer is 0");
    m->exit_loss = 0;
    for (int l = 1; l < L && train; l++) {
        double weight = model_exit_weight(m, l);
        if (weight > 0)
            m->exit_loss +=
                weight * each * head_loss(m, &(struct head_pass){.l = l, .scale = weight * each});
    }
    sum = head_loss(m, &last); /* the last one: what follows reads its nll and states */
    for (int i = 0; i < m->R && last.entropy; i++)
        m->entropy_rel[i] = m->entropy[i] / (real)log((double)m->n_out);
    if (last.taught)
        m->distill->loss = mean_of(m->distill->kd, m->R, whole);
    m->loss = whole > 0 ? sum / whole : (double)NAN;
    return m->loss;
}

void model_final_states(struct model *m, real *x)
{
    final_norm(m, x, m->meanf, m->rstdf, m->stream.h[model_config_depth(&m->config)], m->R);
}

static void lens_rows(struct model *m, int l, int row, int n, real *logits)
{
    int C = (int)m->config.dim;
    final_norm(m, m->xf, m->meanf, m->rstdf, m->stream.h[l] + (size_t)row * (size_t)C, n);
    head_logits(m, logits, m->xf, n);
}

void model_lens_states(struct model *m, int l, const int32_t *row, int n, real *out)
{
    size_t C = (size_t)m->config.dim;
    for (int k = 0; k < n; k++)
        final_norm(m, out + (size_t)k * C, m->meanf, m->rstdf, m->stream.h[l] + (size_t)row[k] * C,
                   1);
}

void model_lens_columns(struct model *m, int l, const int32_t *row, int n, real *logits)
{
    struct linear head = head_map(m);
    model_lens_states(m, l, row, n, m->xf);
    linear_fwd(logits, m->xf, &head, n, 0, NULL);
    if (m->config.logit_cap > 0)
        soft_cap_fwd(logits, (real)m->config.logit_cap, (size_t)n * (size_t)m->n_out);
}

int model_column(const struct model *m, int id)
{
    int low = 0, high = m->n_out - 1;
    if (!m->out_id || id < 0)
        return id;
    while (low < high) {
        int middle = (low + high) / 2;
        if (m->out_id[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return m->out_id[low] == id ? low : -1;
}

void model_lens(struct model *m, int l, int row, real *logits)
{
    lens_rows(m, l, row, 1, logits);
}

void model_logits(struct model *m, int row, real *logits)
{
    lens_rows(m, model_config_depth(&m->config), row, 1, logits);
}

void model_logits_rows(struct model *m, int row, int n, real *logits)
{
    BUG_IF(row < 0 || n < 0 || row + n > m->R, "logits of rows %d to %d requested, only %d rows",
           row, row + n, m->R);
    lens_rows(m, model_config_depth(&m->config), row, n, logits);
}
