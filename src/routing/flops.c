/* Counts the FLOPs of a pass from its plans. */
#include "routing/flops.h"

#include <string.h>

const char *const flops_part_name[FLOPS_PARTS] = {
    [FLOPS_QO] = "q,o",  [FLOPS_KV] = "k,v",        [FLOPS_ATTENTION] = "attention",
    [FLOPS_MLP] = "mlp", [FLOPS_ROUTER] = "router", [FLOPS_HEAD] = "head",
};

static double cost_qo(const struct flops_shape *s)
{
    return 4.0 * s->C * s->H * s->D + s->adapter_qo;
}

static double cost_kv(const struct flops_shape *s)
{
    return 4.0 * s->C * s->K * s->D + s->adapter_kv;
}

static double cost_key(const struct flops_shape *s)
{
    return 4.0 * s->H * s->D;
}

double flops_expert_row(const struct flops_shape *s)
{
    return 2.0 * s->mlp_mats * s->C * s->expert_F;
}

double flops_dense_mlp_row(const struct flops_shape *s)
{
    return 2.0 * s->mlp_mats * s->C * s->F;
}

double flops_mlp_row(const struct flops_shape *s)
{
    double width = s->E > 0 ? (double)s->experts_used * s->expert_F + s->shared_F : s->F;
    return 2.0 * s->mlp_mats * s->C * width + (s->E > 0 ? 2.0 * s->C * (s->E + s->shared_gate) : 0);
}

static double cost_mlp(const struct flops_shape *s)
{
    return flops_mlp_row(s) + s->adapter_mlp;
}

static double cost_head(const struct flops_shape *s)
{
    return 2.0 * s->C * s->V;
}

void flops_begin(struct flops *f, const struct flops_shape *shape, int R)
{
    f->shape = *shape;
    f->L = shape->L;
    f->R = f->T = R;
    f->private_row = NULL;
    f->window = 0;
    f->passed = NULL;
    f->dense = f->dense_blocks = f->blocks = f->decisions = 0;
    f->rows_run = f->rows = 0;
    memset(f->part, 0, (size_t)(f->L + 1) * FLOPS_PARTS * sizeof *f->part);
    memset(f->token, 0, (size_t)R * sizeof *f->token);
    memset(f->dense_token, 0, (size_t)R * sizeof *f->dense_token);
    memset(f->cell, 0, (size_t)f->L * (size_t)R * sizeof *f->cell);
}

static void add(struct flops *f, int l, enum flops_part part, int row, double x)
{
    f->part[(size_t)l * FLOPS_PARTS + part] += x;
    f->token[row] += x;
    f->cell[(size_t)l * (size_t)f->R + (size_t)row] += x;
}

static void add_dense(struct flops *f, int row, double x)
{
    f->dense += x;
    f->dense_token[row] += x;
}

/* Rows that have left the window, and how many of them are keys. */
struct behind {
    int row, next; /* the first row inside, its index in the plan */
};

/* Keys among the rows that leave when row i is reached. */
static int keys_leaving(struct behind *b, const struct plan *p, int i, int window)
{
    int n = 0;
    for (; window > 0 && i - b->row >= window; b->row++) {
        int is_listed = b->next < p->n && p->row[b->next] == b->row;
        n += p->kv == KV_ALL || (is_listed && p->gate[b->next] != 0);
        b->next += is_listed;
    }
    return n;
}

/* Executed rows pay for their whole span; under KV_ALL skipped rows still pay for their keys and
 * values, unless these are known from the loop's previous iteration.  A row sees itself and, under
 * KV_PLAN, only executed rows before it.  In a split layer the FFN decides which cells count as
 * executed. */
void flops_layer(struct flops *f, const struct plan *p, const int32_t *first_row,
                 const int32_t *cached, double router_per_row)
{
    const struct flops_shape *s = &f->shape;
    int l = p->layer, next = 0, doc = f->R ? first_row[0] : 0, keys = 0;
    int hidden = 0, own = 0, span = -1; /* private rows of the document; own keys of the span */
    struct behind behind = {0};
    int has_attention = p->span != ROUTE_SPAN_FFN, has_mlp = p->span != ROUTE_SPAN_ATTENTION;
    for (int i = 0; i < f->R; i++) {
        int is_listed = next < p->n && p->row[next] == i;
        int runs = is_listed && p->gate[next] != 0;
        if (i == 0 || (cached ? i % f->T == 0 : first_row[i] != doc))
            behind = (struct behind){i, next};
        next += is_listed;
        if (cached ? i % f->T == 0 : first_row[i] != doc) {
            doc = first_row[i];
            keys = cached ? cached[i / f->T] : 0;
            hidden = 0;
        }
        int start = f->private_row ? f->private_row[i] : -1, is_key = p->kv == KV_ALL || runs;
        own = start < 0 || start != span ? 0 : own;
        span = start;
        if (start < 0)
            keys += is_key;
        else
            own += is_key;
        keys -= keys_leaving(&behind, p, i, f->window);
        int seen = keys - (f->passed ? f->passed[i] : 0);
        double context = i - first_row[i] + 1 - hidden + (start >= 0 ? i - start : 0);
        context = f->window > 0 && context > f->window ? f->window : context;
        hidden += start >= 0;
        if (has_attention)
            add_dense(f, i, cost_qo(s) + cost_kv(s) + context * cost_key(s));
        if (has_mlp)
            add_dense(f, i, cost_mlp(s));
        f->dense_blocks += has_mlp;
        if (router_per_row > 0)
            add(f, l, FLOPS_ROUTER, i, router_per_row);
        if (has_attention && (runs || (p->kv == KV_ALL && !(p->settled && p->settled[i]))))
            add(f, l, FLOPS_KV, i, cost_kv(s));
        if (!runs)
            continue;
        if (has_attention) {
            add(f, l, FLOPS_QO, i, cost_qo(s));
            add(f, l, FLOPS_ATTENTION, i, (seen + own) * cost_key(s));
        }
        if (has_mlp)
            add(f, l, FLOPS_MLP, i, cost_mlp(s));
        f->blocks += has_mlp;
        f->rows_run += has_mlp;
    }
    f->rows += has_mlp ? f->R : 0;
}

void flops_noops(struct flops *f, int l, int i, int n)
{
    if (n > 0)
        add(f, l, FLOPS_MLP, i, -n * flops_expert_row(&f->shape));
}

void flops_head(struct flops *f)
{
    double x = cost_head(&f->shape);
    f->part[(size_t)f->L * FLOPS_PARTS + FLOPS_HEAD] += x * f->R;
    for (int i = 0; i < f->R; i++) {
        f->token[i] += x;
        add_dense(f, i, x);
    }
}

void flops_decision(struct flops *f, int l, int i, double x)
{
    f->decisions += x;
    add(f, l < f->L ? l : f->L - 1, FLOPS_ROUTER, i, x);
}

double flops_head_row(const struct flops *f)
{
    return cost_head(&f->shape);
}

double flops_total(const struct flops *f)
{
    double sum = 0;
    for (int i = 0; i < (f->L + 1) * FLOPS_PARTS; i++)
        sum += f->part[i];
    return sum;
}

double flops_block_ratio(const struct flops *f)
{
    return f->rows ? (double)f->rows_run / (double)f->rows : 1;
}

double flops_model_ratio(const struct flops *f)
{
    return f->dense > 0 ? flops_total(f) / f->dense : 1;
}

double flops_dense_token(const struct flops_shape *s, int T)
{
    double all = 0.5 * (T + 1), W = s->window;
    double near = T <= W ? all : (0.5 * W * (W + 1) + (T - W) * W) / T;
    double keys = (s->L - s->windowed) * all + s->windowed * near;
    return s->L * (cost_qo(s) + cost_kv(s) + cost_mlp(s)) +
           s->dense_mlps * (flops_dense_mlp_row(s) - flops_mlp_row(s)) + keys * cost_key(s) +
           cost_head(s);
}
