/* Counts how many tokens the experts of a mixture take, and names what is out of balance. */
#include "io/experts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* ---- cells of a probe ---- */

static const struct matrix *ranked(const struct probe *p, const char *name, int rank)
{
    char full[40];
    snprintf(full, sizeof full, rank ? "%s_%d" : "%s", name, rank + 1);
    return probe_cell(p, full);
}

const struct matrix *probe_expert(const struct probe *p, int rank)
{
    const struct matrix *m = ranked(p, "expert", rank);
    return m && m->is_category ? m : NULL;
}

const struct matrix *probe_expert_weight(const struct probe *p, int rank)
{
    return ranked(p, "expert_weight", rank);
}

int probe_expert_ranks(const struct probe *p)
{
    int n = 0;
    while (n < EXPERT_RANKS_MAX && probe_expert(p, n))
        n++;
    return n;
}

/* Only whole numbers in range are experts: a cell is what its writer stored. */
static int expert_number(float x)
{
    return x >= 0 && x < EXPERTS_MAX && floorf(x) == x ? (int)x : -1;
}

int probe_expert_of(const struct probe *p, int rank, int layer, int token)
{
    const struct matrix *m = probe_expert(p, rank);
    return m ? expert_number(m->v[(size_t)layer * (size_t)m->cols + (size_t)token]) : -1;
}

int probe_expert_rank_of(const struct probe *p, int layer, int token, int expert)
{
    for (int k = 0, n = probe_expert_ranks(p); k < n; k++)
        if (probe_expert_of(p, k, layer, token) == expert)
            return k;
    return -1;
}

int experts_per_token(const struct runview *v)
{
    static const char *const keys[] = {"experts_per_token", "num_experts_per_tok",
                                       "model.num_experts_per_tok"};
    if (v->experts_per_token > 0)
        return v->experts_per_token;
    for (size_t i = 0; i < DS_LEN(keys); i++) {
        const char *text = runview_config(v, keys[i]);
        long n = text ? strtol(text, NULL, 10) : 0;
        if (n > 0 && n <= EXPERTS_MAX)
            return (int)n;
    }
    for (size_t i = v->n_probes; i-- > 0;)
        if (probe_expert(v->probe[i], 0))
            return probe_expert_ranks(v->probe[i]);
    return 0;
}

/* ---- places in time ---- */

static int has_experts(const struct probe *p)
{
    return !p->is_old && probe_expert(p, 0) != NULL;
}

/* Probes of one step are counted together: they are the texts of that step.  The i-th step, or
 * their number when i is past the last. */
static size_t probe_steps(const struct runview *v, size_t i, int64_t *step)
{
    size_t n = 0;
    int64_t last = -1;
    for (size_t k = 0; k < v->n_probes; k++) {
        if (!has_experts(v->probe[k]) || v->probe[k]->step <= last)
            continue;
        last = v->probe[k]->step;
        if (n++ == i)
            *step = last;
    }
    return n;
}

static const struct matrix_point *point_at(const struct matrix_series *s, size_t i)
{
    for (size_t k = 0; s && k < s->n; k++)
        if (!s->point[k].is_old && i-- == 0)
            return &s->point[k];
    return NULL;
}

size_t expert_loads(const struct runview *v)
{
    const struct matrix_series *s = runview_matrix(v, "expert_load");
    size_t n = 0;
    int64_t step;
    for (size_t k = 0; s && k < s->n; k++)
        n += !s->point[k].is_old;
    return n ? n : probe_steps(v, SIZE_MAX, &step);
}

int64_t expert_loads_step(const struct runview *v, size_t i)
{
    const struct matrix_point *p = point_at(runview_matrix(v, "expert_load"), i);
    int64_t step = 0;
    if (!p)
        probe_steps(v, i, &step);
    return p ? p->step : step;
}

size_t expert_loads_find(const struct runview *v, int64_t step)
{
    const struct matrix_series *s = runview_matrix(v, "expert_load");
    size_t at = 0, n = 0;
    int64_t last = -1;
    for (size_t k = 0; s && k < s->n; k++)
        if (!s->point[k].is_old) {
            at = s->point[k].step <= step ? n : at;
            n++;
        }
    for (size_t k = 0; n == 0 && k < v->n_probes; k++)
        if (has_experts(v->probe[k]) && v->probe[k]->step > last) {
            last = v->probe[k]->step;
            at += last <= step;
        }
    return n == 0 && at > 0 ? at - 1 : at;
}

static int load_room(struct expert_load *x, int rows, int experts, struct err *e)
{
    x->rows = rows;
    x->experts = experts;
    x->layer = mem_alloc((size_t)rows, sizeof *x->layer);
    x->count = mem_alloc((size_t)rows * (size_t)experts, sizeof *x->count);
    return x->layer && x->count ? 0 : err_set(e, DS_EMEM, "load of the experts: out of memory");
}

static int from_matrix(struct expert_load *x, const struct matrix_series *s,
                       const struct matrix_point *p, struct err *e)
{
    int rc = load_room(x, s->rows, s->cols, e);
    if (rc < 0)
        return rc;
    x->step = p->step;
    memcpy(x->layer, s->layer, (size_t)s->rows * sizeof *x->layer);
    for (size_t i = 0; i < (size_t)s->rows * (size_t)s->cols; i++)
        x->count[i] = p->v[i] > 0 && isfinite(p->v[i]) ? (double)p->v[i] : 0;
    return 0;
}

/* The shape that the probes of a step need: their layers, and the highest expert. */
static void probes_shape(const struct runview *v, int64_t step, int *layers, int *experts)
{
    for (size_t i = 0; i < v->n_probes; i++) {
        const struct probe *p = v->probe[i];
        if (p->step != step || !has_experts(p))
            continue;
        *layers = p->layers > *layers ? p->layers : *layers;
        for (int k = 0, n = probe_expert_ranks(p); k < n; k++) {
            const struct matrix *m = probe_expert(p, k);
            for (size_t c = 0; c < (size_t)m->rows * (size_t)m->cols; c++)
                *experts =
                    expert_number(m->v[c]) >= *experts ? expert_number(m->v[c]) + 1 : *experts;
        }
    }
}

static void count_probe(struct expert_load *x, const struct probe *p)
{
    for (int k = 0, n = probe_expert_ranks(p); k < n; k++) {
        const struct matrix *m = probe_expert(p, k);
        for (int l = 0; l < p->layers; l++)
            for (int t = 0; t < p->tokens; t++) {
                int expert = expert_number(m->v[(size_t)l * (size_t)p->tokens + (size_t)t]);
                if (expert >= 0)
                    x->count[(size_t)l * (size_t)x->experts + (size_t)expert]++;
            }
    }
    x->probes++;
    x->tokens += p->tokens;
}

/* Layers in which no token has an expert are dense: they get no row. */
static void drop_dense(struct expert_load *x)
{
    int rows = 0;
    size_t n = (size_t)x->experts;
    for (int l = 0; l < x->rows; l++) {
        double sum = 0;
        for (size_t k = 0; k < n; k++)
            sum += x->count[(size_t)l * n + k];
        if (sum <= 0)
            continue;
        memmove(x->count + (size_t)rows * n, x->count + (size_t)l * n, n * sizeof *x->count);
        x->layer[rows++] = l;
    }
    x->rows = rows;
}

static int from_probes(struct expert_load *x, const struct runview *v, int64_t step, struct err *e)
{
    int layers = 0, experts = v->experts;
    probes_shape(v, step, &layers, &experts);
    if (layers == 0 || experts == 0)
        return err_set(e, DS_ENOTFOUND, "no token of the probes has an expert");
    int rc = load_room(x, layers, experts, e);
    if (rc < 0)
        return rc;
    x->step = step;
    x->is_least = v->experts == 0;
    for (size_t i = 0; i < v->n_probes; i++)
        if (v->probe[i]->step == step && has_experts(v->probe[i]))
            count_probe(x, v->probe[i]);
    drop_dense(x);
    return x->rows ? 0 : err_set(e, DS_ENOTFOUND, "no token of the probes has an expert");
}

int expert_load_read(struct expert_load *out, const struct runview *v, size_t i, struct err *e)
{
    const struct matrix_series *s = runview_matrix(v, "expert_load");
    const struct matrix_point *p = point_at(s, i);
    struct expert_load x = {.per_token = experts_per_token(v), .noops = v->experts_noop};
    int64_t step = -1;
    int rc;
    if (p)
        rc = from_matrix(&x, s, p, e);
    else if (probe_steps(v, i, &step) > i)
        rc = from_probes(&x, v, step, e);
    else
        rc = err_set(e, DS_ENOTFOUND,
                     "no record 'matrix' named expert_load and no record 'probe' with the cell "
                     "'expert' (cell_kind: category)");
    if (rc < 0)
        expert_load_release(&x);
    else
        *out = x;
    return rc;
}

const char *expert_word(int expert, int experts, int noops)
{
    return expert >= experts - noops ? "no-op" : "expert";
}

void expert_load_release(struct expert_load *x)
{
    mem_free(x->layer);
    mem_free(x->count);
    *x = (struct expert_load){0};
}

/* ---- over time ---- */

static double trend_of(const struct matrix_series *s, const float *v, int layer, int expert)
{
    double sum = 0, taken = 0;
    for (int i = 0; i < s->rows; i++)
        for (int k = 0; s->layer[i] == layer && k < s->cols; k++) {
            double x = (double)v[(size_t)i * (size_t)s->cols + (size_t)k];
            x = x > 0 && isfinite(x) ? x : 0;
            sum += x;
            taken += k == expert ? x : 0;
        }
    return sum > 0 && expert < s->cols ? taken * s->cols / sum : (double)NAN;
}

/* Assignments of a layer in a probe, and those of one expert. */
static void count_layer(const struct probe *p, int layer, int expert, double *sum, double *taken)
{
    for (int k = 0, n = layer < p->layers ? probe_expert_ranks(p) : 0; k < n; k++)
        for (int t = 0; t < p->tokens; t++) {
            int to =
                expert_number(probe_expert(p, k)->v[(size_t)layer * (size_t)p->tokens + (size_t)t]);
            *sum += to >= 0;
            *taken += to == expert;
        }
}

void expert_trend(const struct runview *v, int layer, int expert, double *out, size_t n)
{
    const struct matrix_series *s = runview_matrix(v, "expert_load");
    size_t i = 0;
    for (size_t k = 0; s && k < s->n && i < n; k++)
        if (!s->point[k].is_old)
            out[i++] = trend_of(s, s->point[k].v, layer, expert);
    double sum = 0, taken = 0;
    int64_t last = -1;
    int experts = v->experts, layers = 0, is_logged = i > 0;
    for (size_t k = 0; !is_logged && experts == 0 && k < v->n_probes; k++)
        if (has_experts(v->probe[k]) && v->probe[k]->step > last)
            probes_shape(v, last = v->probe[k]->step, &layers, &experts);
    last = -1;
    for (size_t k = 0; !is_logged && k < v->n_probes; k++) {
        const struct probe *p = v->probe[k];
        if (!has_experts(p) || p->step < last)
            continue;
        if (p->step > last) {
            sum = taken = 0;
            last = p->step;
            i++;
        }
        count_layer(p, layer, expert, &sum, &taken);
        if (i <= n)
            out[i - 1] = sum > 0 ? taken * experts / sum : (double)NAN;
    }
    for (; i < n; i++)
        out[i] = (double)NAN;
}

/* ---- rows ---- */

static const double *row_of(const struct expert_load *x, int row)
{
    return x->count + (size_t)row * (size_t)x->experts;
}

struct expert_row expert_row_of(const struct expert_load *x, int row)
{
    const double *c = row_of(x, row);
    struct expert_row r = {.cv = (double)NAN};
    double squares = 0;
    for (int k = 0; k < x->experts; k++) {
        r.sum += c[k];
        r.dead += !(c[k] > 0);
        r.top = c[k] > c[r.top] ? k : r.top;
    }
    double mean = r.sum / x->experts;
    for (int k = 0; k < x->experts; k++)
        squares += (c[k] - mean) * (c[k] - mean);
    if (r.sum > 0) /* over all experts, so the population's deviation */
        r.cv = sqrt(squares / x->experts) / mean;
    return r;
}

double expert_relative(const struct expert_load *x, int row, int expert)
{
    const double *c = row_of(x, row);
    double sum = 0;
    for (int k = 0; k < x->experts; k++)
        sum += c[k];
    return sum > 0 ? c[expert] * x->experts / sum : (double)NAN;
}

int expert_rank(const struct expert_load *x, int row, int expert)
{
    const double *c = row_of(x, row);
    int rank = 1;
    for (int k = 0; k < x->experts; k++)
        rank += c[k] > c[expert];
    return rank;
}

int expert_hottest(const struct expert_load *x, int row, int *expert, int most)
{
    const double *c = row_of(x, row);
    int n = 0;
    for (int k = 0; k < x->experts; k++) {
        int at = n;
        while (at > 0 && c[expert[at - 1]] < c[k])
            at--;
        if (!(c[k] > 0) || at >= most)
            continue;
        n = n < most ? n + 1 : n;
        memmove(expert + at + 1, expert + at, (size_t)(n - 1 - at) * sizeof *expert);
        expert[at] = k;
    }
    return n;
}

/* Of counts whose sum, largest and place of the largest are known. */
static int collapse_of(double sum, double most, int experts, int per_token, double *share)
{
    const double begins = 0.9, ends = 0.75, least_load = 1.5;
    if (experts < 4 || !(sum > 0))
        return -1;
    double load = most * experts / sum;
    *share = fmin(most * (per_token > 0 ? per_token : 1) / sum, 1);
    return *share > begins && load >= least_load ? 1 : *share < ends || load < least_load ? 0 : -1;
}

int experts_collapsed(const float *count, int experts, int per_token, int *expert, double *share)
{
    double sum = 0;
    *expert = 0;
    for (int k = 0; k < experts; k++) {
        if (!(count[k] >= 0) || !isfinite(count[k])) /* not a count: nothing can be said */
            return -1;
        sum += (double)count[k];
        *expert = count[k] > count[*expert] ? k : *expert;
    }
    return collapse_of(sum, (double)count[*expert], experts, per_token, share);
}

int expert_row_collapsed(const struct expert_load *x, int row)
{
    struct expert_row r = expert_row_of(x, row);
    double share;
    return collapse_of(r.sum, row_of(x, row)[r.top], x->experts, x->per_token, &share) > 0;
}
