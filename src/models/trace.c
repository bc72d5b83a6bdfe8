/* Runs a model over one text and records every decision as a probe. */
#include "models/trace.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "io/metric.h"
#include "io/runview.h"

void trace_metric_rows(const struct route_ops *ops, struct record *rec)
{
    for (size_t i = 0; i < ops->n_metrics; i++)
        metric_row_record(rec, ops->metrics[i].name, ops->metrics[i].unit, ops->metrics[i].help,
                          metric_scope_name[ops->metrics[i].scope]);
}

void trace_always_on(const struct model *m, struct record *rec)
{
    const struct route *r = &m->route;
    double *on = mem_alloc((size_t)r->L, sizeof *on);
    for (int l = 0; on && l < r->L; l++)
        on[l] = !r->ops->always_on || r->ops->always_on(r, l);
    if (on)
        record_nums(rec, "always_on", on, (size_t)r->L);
    else
        record_no_memory(rec);
    if (m->config.experts > 0) {
        record_int(rec, "experts", model_config_choices(&m->config));
        record_int(rec, "experts_noop", m->config.experts_noop);
        record_int(rec, "experts_per_token", m->config.experts_used);
    }
    mem_free(on);
}

enum { LENS_MAX = 16 };

static void forward(struct model *m, const struct trace_text *t, const struct trace_options *o,
                    int32_t *target)
{
    struct pass pass = {.kind = o->kind, .seed = o->seed, .inference = o->inference, .record = 1};
    struct batch b = {
        .B = 1, .T = t->n, .id = t->id, .target = target, .private_start = t->private_start};
    for (int i = 0; i < t->n; i++)
        target[i] = i + 1 < t->n ? t->id[i + 1] : -1;
    model_forward(m, &b, &pass);
    model_loss(m, 0, 1);
    m->batch = NULL;
}

/* The model's values belong to the predicted token: shift them by one. */
static void add_shifted(struct record *rec, const char *key, const real *x, float *tmp, int n)
{
    tmp[0] = NAN;
    for (int i = 1; i < n; i++)
        tmp[i] = (float)x[i - 1];
    record_f32s(rec, key, tmp, (size_t)n);
}

static void add_decisions(struct record *rec, const struct model *m, unsigned char *run, float *tmp)
{
    int L = model_config_depth(&m->config), n = m->R;
    memset(run, 0, (size_t)L * (size_t)n);
    for (int i = 0; i < n; i++)
        tmp[i] = 0;
    for (int l = 0; l < L; l++)
        for (int i = 0; i < model_plan(m, l)->n; i++) {
            const struct plan *p = model_plan(m, l);
            if (p->gate[i] != 0) {
                run[(size_t)l * (size_t)n + (size_t)p->row[i]] = 1;
                tmp[p->row[i]] += 1;
            }
        }
    record_bytes(rec, "run", run, (size_t)L * (size_t)n);
    record_f32s(rec, "depth", tmp, (size_t)n);
}

enum { EXPERT_CELLS = 16 }; /* ranks in a record */

/* "expert", "expert_2", ... of a rank from 0. */
static void expert_cell(char name[32], const char *what, int rank)
{
    snprintf(name, 32, rank ? "%s_%d" : "%s", what, rank + 1);
}

static int expert_ranks(const struct model *m)
{
    int k = m->config.experts > 0 ? (int)m->config.experts_used : 0;
    return k < EXPERT_CELLS ? k : EXPERT_CELLS;
}

/* The expert of a cell with the rank-th largest weight, or that weight; NaN: the row did not run. */
static float expert_at(const struct model *m, size_t cell, int rank, int is_weight)
{
    size_t k = (size_t)m->config.experts_used;
    const int32_t *chosen = m->experts.chosen + cell * k;
    const real *weight = m->experts.weight + cell * k;
    for (size_t i = 0; i < k && chosen[0] >= 0; i++) {
        int before = 0;
        for (size_t j = 0; j < k; j++)
            before += weight[j] > weight[i] || (j < i && weight[j] == weight[i]);
        if (before == rank)
            return is_weight ? (float)weight[i] : (float)chosen[i];
    }
    return NAN;
}

static void add_experts(struct record *rec, const struct model *m, float *tmp)
{
    size_t cells = (size_t)model_config_depth(&m->config) * (size_t)m->R;
    char name[32];
    for (int w = 0; w < 2; w++)
        for (int k = 0; k < expert_ranks(m); k++) {
            for (size_t i = 0; i < cells; i++)
                tmp[i] = expert_at(m, i, k, w);
            expert_cell(name, w ? "expert_weight" : "expert", k);
            record_f32s(rec, name, tmp, cells);
        }
}

static void add_expert_kinds(struct record *rec, const struct model *m)
{
    char name[32];
    if (expert_ranks(m) == 0)
        return;
    record_map(rec, "cell_kind");
    for (int w = 0; w < 2; w++)
        for (int k = 0; k < expert_ranks(m); k++) {
            expert_cell(name, w ? "expert_weight" : "expert", k);
            record_str(rec, name, w ? "amount" : "category");
        }
    record_close(rec);
}

static void add_cells(struct record *rec, const struct model *m, float *tmp)
{
    const struct route_ops *ops = m->route.ops;
    size_t cells = (size_t)model_config_depth(&m->config) * (size_t)m->R;
    record_map(rec, "cell");
    for (size_t k = 0; k < ops->n_metrics; k++) {
        if (ops->metrics[k].scope != METRIC_CELL || m->route.pass.kind == PASS_DENSE)
            continue;
        for (size_t i = 0; i < cells; i++)
            tmp[i] = (float)m->route.cell[k][i];
        record_f32s(rec, ops->metrics[k].name, tmp, cells);
    }
    for (size_t i = 0; i < cells; i++)
        tmp[i] = (float)m->flops.cell[i];
    record_f32s(rec, "flops", tmp, cells);
    add_experts(rec, m, tmp);
    record_close(rec);
    add_expert_kinds(rec, m);
}

/* The k likeliest ids, best first, and their probabilities. */
static void top_k(const real *logits, int V, int k, int32_t *id, float *p)
{
    real max = logits[0], best[LENS_MAX] = {0};
    double sum = 0;
    int n = 0;
    for (int v = 1; v < V; v++)
        max = logits[v] > max ? logits[v] : max;
    for (int v = 0; v < V; v++) {
        sum += exp((double)(logits[v] - max));
        if (n == k && !(logits[v] > best[k - 1]))
            continue;
        int at = n < k ? n++ : k - 1;
        for (; at > 0 && logits[v] > best[at - 1]; at--) {
            id[at] = id[at - 1];
            best[at] = best[at - 1];
        }
        id[at] = v;
        best[at] = logits[v];
    }
    for (int i = 0; i < k; i++)
        p[i] = (float)(exp((double)(best[i] - max)) / sum);
}

/* Logit lens: the head applied to the state after each layer. */
static void add_lens(struct record *rec, struct model *m, const struct trace_options *o)
{
    size_t L = (size_t)model_config_depth(&m->config), n = (size_t)m->R,
           k = (size_t)(o->lens_k < LENS_MAX ? o->lens_k : LENS_MAX), total = L * n * k;
    int32_t *id = mem_alloc(total, sizeof *id);
    float *p = mem_alloc(total, sizeof *p);
    const char **piece = mem_alloc(total, sizeof *piece);
    size_t *len = mem_alloc(total, sizeof *len);
    real *logits = mem_alloc((size_t)m->config.vocab, sizeof *logits);
    for (size_t c = 0; id && p && piece && len && logits && c < L * n; c++) {
        model_lens(m, (int)(c / n) + 1, (int)(c % n), logits);
        top_k(logits, (int)m->config.vocab, (int)k, id + c * k, p + c * k);
        for (size_t i = c * k; i < (c + 1) * k; i++)
            piece[i] = o->piece_of ? o->piece_of(o->ctx, id[i], &len[i]) : "";
    }
    if (id && p && piece && len && logits) {
        record_int(rec, "lens_k", (int64_t)k);
        record_i32s(rec, "lens_id", id, total);
        record_f32s(rec, "lens_p", p, total);
        record_pieces(rec, "lens_text", piece, len, total);
    } else {
        record_no_memory(rec);
    }
    mem_free(id);
    mem_free(p);
    mem_free(piece);
    mem_free(len);
    mem_free(logits);
}

static void add_tokens(struct record *rec, const struct model *m, const struct trace_text *t,
                       const struct trace_options *o, float *tmp)
{
    int n = t->n;
    add_shifted(rec, "nll", m->nll, tmp, n);
    add_shifted(rec, "entropy", m->entropy, tmp, n);
    for (int i = 0; i < n; i++)
        tmp[i] = (float)m->flops.token[i];
    record_f32s(rec, "flops", tmp, (size_t)n);
    record_map(rec, "token");
    if (t->true_entropy)
        record_f32s(rec, "true_entropy", t->true_entropy, (size_t)n);
    if (t->token_class)
        record_f32s(rec, "class", t->token_class, (size_t)n);
    if (t->needed)
        record_f32s(rec, "needed", t->needed, (size_t)n);
    if (o->more)
        o->more(o->more_ctx, rec);
    record_close(rec);
}

/* The mean over the tokens that the head predicts: the nll of others (model.outputs) is NaN. */
static double loss_of(const struct model *m, int n)
{
    double sum = 0;
    int known = 0;
    if (!m->out_id)
        return m->loss;
    for (int i = 0; i + 1 < n; i++)
        if (isfinite(m->nll[i])) {
            sum += (double)m->nll[i];
            known++;
        }
    return known > 0 ? sum / known : (double)NAN;
}

/* What was asked of the model: without it decisions would pass for the model's own. */
static void add_what_if(struct record *rec, const struct model *m, const struct pass_inference *a,
                        int n)
{
    size_t cells = (size_t)model_config_depth(&m->config) * (size_t)n, forced = 0;
    for (size_t i = 0; i < cells; i++)
        forced += (a->force && a->force[i] >= 0) || (a->force_expert && a->force_expert[i] >= 0);
    if (a->offset == 0 && a->exit == 0 && !a->has_capacity && forced == 0)
        return;
    record_map(rec, "what_if");
    if (a->offset != 0)
        record_num(rec, "threshold_offset", a->offset);
    if (a->exit > 0)
        record_int(rec, "exit_layer", a->exit);
    if (a->has_capacity)
        record_num(rec, "capacity", a->capacity);
    int32_t *list = forced > 0 ? mem_alloc(forced, FORCED_FIELDS * sizeof *list) : NULL, *at = list;
    for (size_t i = 0; list && i < cells; i++) {
        int run = a->force ? a->force[i] : -1, expert = a->force_expert ? a->force_expert[i] : -1;
        if (run < 0 && expert < 0)
            continue;
        at[FORCED_LAYER] = (int32_t)(i / (size_t)n);
        at[FORCED_TOKEN] = (int32_t)(i % (size_t)n);
        at[FORCED_RUN] = run;
        at[FORCED_EXPERT] = expert;
        at += FORCED_FIELDS;
    }
    if (list)
        record_i32s(rec, "forced", list, forced * FORCED_FIELDS);
    else if (forced > 0)
        record_no_memory(rec);
    record_close(rec);
    mem_free(list);
}

void trace_run(struct model *m, const struct trace_text *t, const struct trace_options *o,
               struct record *rec)
{
    size_t cells = (size_t)model_config_depth(&m->config) * (size_t)t->n;
    int32_t *target = mem_alloc((size_t)t->n, sizeof *target);
    float *tmp = mem_alloc(cells + (size_t)t->n, sizeof *tmp);
    unsigned char *run = mem_alloc(cells + 1, 1);
    record_begin(rec, "probe", o->step, o->time);
    if (!target || !tmp || !run) {
        record_no_memory(rec);
    } else if (t->n > 0) {
        forward(m, t, o, target);
        record_int(rec, "index", t->index);
        record_str(rec, "name", t->name);
        record_str(rec, "routing",
                   o->kind == PASS_DENSE ? "dense"
                   : o->inference.topk   ? "topk"
                                         : "causal");
        add_what_if(rec, m, &o->inference, t->n);
        record_int(rec, "layers", model_config_depth(&m->config));
        record_i32s(rec, "ids", t->id, (size_t)t->n);
        record_pieces(rec, "text", t->piece, t->piece_len, (size_t)t->n);
        record_num(rec, "flops_dense", m->flops.dense / t->n);
        record_num(rec, "block_ratio", flops_block_ratio(&m->flops));
        record_num(rec, "flops_ratio", flops_model_ratio(&m->flops));
        record_num(rec, "loss", loss_of(m, t->n));
        add_decisions(rec, m, run, tmp);
        add_tokens(rec, m, t, o, tmp);
        add_cells(rec, m, tmp);
        if (o->lens_k > 0)
            add_lens(rec, m, o);
    }
    mem_free(target);
    mem_free(tmp);
    mem_free(run);
}
