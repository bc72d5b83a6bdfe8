/* Times operations other than GEMM one at a time, in nanoseconds per element. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/ops.h"
#include "engine/param.h"
#include "speed_impl.h"

/* Buffers that any of the operations below needs. */
struct ops {
    const struct model_config *c;
    int R, T, V, vocab_rows;
    real *x, *y, *z, *w; /* (R, widest) */
    real *q, *k, *v, *o, *lse, *dq, *dk, *dv;
    real *logits, *rstd, *mean, *norm_w, *inv_freq;
    int32_t *pos, *lo, *hi, *self, *seg, *target;
    struct attn attn;
    struct params params;
    int64_t step;
};

typedef void op_fn(struct ops *x);

static struct norm norm_of(const struct ops *x)
{
    int is_layer = x->c->norm == NORM_LAYER;
    return (struct norm){.w = x->norm_w,
                         .b = is_layer ? x->norm_w : NULL,
                         .mean = is_layer ? x->mean : NULL,
                         .rstd = x->rstd,
                         .N = x->R,
                         .C = (int)x->c->dim,
                         .eps = REAL_C(1e-5)};
}

static void norm_forward(struct ops *x)
{
    struct norm n = norm_of(x);
    norm_fwd(x->y, x->x, &n);
}

static void norm_backward(struct ops *x)
{
    struct norm n = norm_of(x);
    norm_bwd(x->y, x->w, n.b ? x->w : NULL, x->z, x->x, &n);
}

static void act_forward(struct ops *x)
{
    size_t n = (size_t)x->R * (size_t)x->c->ffn;
    switch (x->c->mlp) {
    case MLP_SWIGLU: swiglu_fwd(x->y, x->x, x->z, n); break;
    case MLP_GEGLU: geglu_fwd(x->y, x->x, x->z, n); break;
    case MLP_GELU: gelu_fwd(x->y, x->x, n); break;
    case MLP_GELU_TANH: gelu_tanh_fwd(x->y, x->x, n); break;
    }
}

static void act_backward(struct ops *x)
{
    size_t n = (size_t)x->R * (size_t)x->c->ffn;
    switch (x->c->mlp) {
    case MLP_SWIGLU: swiglu_bwd(x->y, x->w, x->z, x->x, x->z, n); break;
    case MLP_GEGLU: geglu_bwd(x->y, x->w, x->z, x->x, x->z, n); break;
    case MLP_GELU: gelu_bwd(x->y, x->z, x->x, n); break;
    case MLP_GELU_TANH: gelu_tanh_bwd(x->y, x->z, x->x, n); break;
    }
}

static void attention_forward(struct ops *x)
{
    attention_fwd(x->o, x->lse, x->q, x->k, x->v, &x->attn);
}

static void attention_backward(struct ops *x)
{
    attention_bwd(&(struct attn_grad){.dq = x->dq,
                                      .dk = x->dk,
                                      .dv = x->dv,
                                      .dout = x->o,
                                      .q = x->q,
                                      .k = x->k,
                                      .v = x->v,
                                      .o = x->o,
                                      .lse = x->lse},
                  &x->attn);
}

static void xent(struct ops *x)
{
    xent_fwd_bwd(x->logits, x->target, NULL, REAL_C(1e-3), x->rstd, NULL, x->vocab_rows, x->V);
}

static void adamw(struct ops *x)
{
    /* steps zero the gradients: with the usual betas the moments would soon be denormal */
    static const struct adamw a = {.lr = 1e-4, .beta1 = 0.9999, .beta2 = 0.9999, .eps = 1e-8};
    const struct grad_health h = {.norm = 1};
    adamw_step(&x->params, &a, ++x->step, &h);
}

static void rope(struct ops *x)
{
    int D = (int)x->c->head_dim;
    struct rope r = {.inv_freq = x->inv_freq, .D = D, .dims = D, .half = 1, .scale = 1};
    rope_fwd(x->q, x->pos, &r, x->R, (int)x->c->heads);
}

/* ---- set-up ---- */

static real *reals(size_t n, double scale)
{
    real *p = mem_reserve(n * sizeof(real) + 64);
    if (p)
        speed_fill(p, n, scale);
    return p;
}

static void place(struct ops *x, int B)
{
    for (int i = 0; i < x->R; i++) {
        int first = i / x->T * x->T;
        x->pos[i] = i - first;
        x->lo[i] = first;
        x->hi[i] = i + 1;
        x->self[i] = i;
    }
    for (int i = 0; i <= B; i++)
        x->seg[i] = i * x->T;
    x->attn = (struct attn){.N = x->R,
                            .M = x->R,
                            .H = (int)x->c->heads,
                            .K = (int)x->c->kv_heads,
                            .D = (int)x->c->head_dim,
                            .lo = x->lo,
                            .hi = x->hi,
                            .self = x->self,
                            .segs = B,
                            .seg_q = x->seg,
                            .seg_k = x->seg};
}

static int make_params(struct ops *x, struct err *e)
{
    struct params *ps = &x->params;
    if (params_add(ps, "w", 4096, (int)x->c->dim, PARAM_MATRIX, INIT_NORMAL, 0.02) < 0)
        return err_set(e, DS_EMEM, "out of memory for parameters");
    int rc = params_reserve(ps, 1, e);
    if (rc == 0) {
        params_init(ps, 1);
        speed_fill(ps->p[0].grad, ps->p[0].n, 1e-3);
    }
    return rc;
}

static int open_ops(struct ops *x, const struct speed *s, struct err *e)
{
    const struct model_config *c = &s->config;
    size_t R = (size_t)(s->o.batch * s->o.seq), C = (size_t)c->dim, F = (size_t)c->ffn,
           Q = (size_t)(c->heads * c->head_dim), K = (size_t)(c->kv_heads * c->head_dim),
           wide = R * (F > C ? F : C);
    memset(x, 0, sizeof *x);
    x->c = c;
    x->R = (int)R;
    x->T = (int)s->o.seq;
    x->V = (int)c->vocab;
    x->vocab_rows = x->R < head_chunk(c->vocab) ? x->R : head_chunk(c->vocab);
    const struct {
        real **p;
        size_t n;
    } buffer[] = {
        {&x->x, wide},
        {&x->y, wide},
        {&x->z, wide},
        {&x->w, wide},
        {&x->q, R * Q},
        {&x->k, R * K},
        {&x->v, R * K},
        {&x->o, R * Q},
        {&x->lse, R * (size_t)c->heads},
        {&x->dq, R * Q},
        {&x->dk, R * K},
        {&x->dv, R * K},
        {&x->rstd, R},
        {&x->mean, R},
        {&x->norm_w, C},
        {&x->logits, (size_t)x->vocab_rows * (size_t)x->V},
        {&x->inv_freq, (size_t)c->head_dim},
    };
    int32_t **ints[] = {&x->pos, &x->lo, &x->hi, &x->self, &x->seg, &x->target};
    int ok = 1;
    for (size_t i = 0; i < DS_LEN(buffer); i++)
        ok &= (*buffer[i].p = reals(buffer[i].n, 1)) != NULL;
    for (size_t i = 0; i < DS_LEN(ints); i++)
        ok &= (*ints[i] = mem_alloc(R + 1, sizeof(int32_t))) != NULL;
    if (!ok)
        return err_set(e, DS_EMEM, "out of memory for buffers of %zu rows", R);
    place(x, (int)s->o.batch);
    x->attn.bf16 = s->unit == PEAK_BF16;
    return make_params(x, e);
}

static void close_ops(struct ops *x)
{
    real *const reals_[] = {x->x,    x->y,    x->z,      x->w,      x->q,       x->k,
                            x->v,    x->o,    x->lse,    x->dq,     x->dk,      x->dv,
                            x->rstd, x->mean, x->norm_w, x->logits, x->inv_freq};
    int32_t *const ints[] = {x->pos, x->lo, x->hi, x->self, x->seg, x->target};
    for (size_t i = 0; i < DS_LEN(reals_); i++)
        mem_free_aligned(reals_[i]);
    for (size_t i = 0; i < DS_LEN(ints); i++)
        mem_free(ints[i]);
    params_release(&x->params);
}

/* ---- measurement ---- */

/* Elements, least bytes read and written per element, total FLOPs (0: memory-bound). */
struct op {
    const char *name;
    op_fn *run;
    double elements, bytes, flops;
};

static double op_s(struct ops *x, op_fn *run)
{
    int calls = 0;
    double t = clock_mono(), end;
    do {
        run(x);
        calls++;
        end = clock_mono();
    } while (end - t < 4e-3 && end > t);
    return (end - t) / calls;
}

static int add_op(struct speed *s, const struct op *o, const double *seconds, struct err *e)
{
    double ns[SPEED_ROUNDS_MAX], time = speed_median(seconds, (int)s->o.rounds);
    for (int i = 0; i < s->o.rounds; i++)
        ns[i] = 1e9 * seconds[i] / o->elements;
    struct speed_result *r = speed_add(s, "ops", o->name, "ns/element", ns, (int)s->o.rounds, e);
    if (!r)
        return DS_EMEM;
    if (time <= 0)
        return 0;
    if (o->flops > 0) {
        r->gflops = 1e-9 * o->flops / time;
        speed_set_limit(r, r->gflops, peak_name[s->unit], s->peak[s->unit]);
    } else {
        r->gbs = 1e-9 * o->bytes * o->elements / time;
        speed_set_limit(r, r->gbs, "read", s->read_gbs);
    }
    r->reference = r->limit;
    r->vs = r->share;
    return 0;
}

static int time_ops(struct speed *s, struct ops *x, const struct op *op, size_t n, struct err *e)
{
    enum { OPS = 16 };
    double seconds[OPS][SPEED_ROUNDS_MAX];
    int rc = 0;
    for (int i = -1; i < s->o.rounds; i++)
        for (size_t k = 0; k < n; k++)
            if (speed_request(s, "ops", op[k].name))
                seconds[k][i < 0 ? 0 : i] = op_s(x, op[k].run);
    for (size_t k = 0; k < n && rc == 0; k++)
        if (speed_request(s, "ops", op[k].name))
            rc = add_op(s, &op[k], seconds[k], e);
    return rc;
}

int speed_ops(struct speed *s, struct err *e)
{
    static const char *const act[][2] = {
        [MLP_SWIGLU] = {"swiglu forward", "swiglu backward"},
        [MLP_GELU] = {"gelu forward", "gelu backward"},
        [MLP_GELU_TANH] = {"gelu_tanh forward", "gelu_tanh backward"},
        [MLP_GEGLU] = {"geglu forward", "geglu backward"},
    };
    const struct model_config *c = &s->config;
    struct ops x;
    int is_rms = c->norm == NORM_RMS, mats = c->mlp == MLP_SWIGLU || c->mlp == MLP_GEGLU ? 2 : 1;
    double R = (double)(s->o.batch * s->o.seq), C = (double)c->dim, F = (double)c->ffn,
           Q = (double)(c->heads * c->head_dim), T = (double)s->o.seq, b = sizeof(real);
    /* scores and weighted sums over the causal triangle; backward has five GEMMs for the forward's
     * two */
    double attention = 4 * Q * R * (T + 1) / 2;
    const struct op op[] = {
        {is_rms ? "rmsnorm forward" : "layernorm forward", norm_forward, R * C, 2 * b, 0},
        {is_rms ? "rmsnorm backward" : "layernorm backward", norm_backward, R * C, 4 * b, 0},
        {act[c->mlp][0], act_forward, R * F, (mats + 1) * b, 0},
        {act[c->mlp][1], act_backward, R * F, (mats == 2 ? 7 : 4) * b, 0},
        {"rope forward", rope, R * Q, 2 * b, 0},
        {"attention forward", attention_forward, R * Q, 0, attention},
        {"attention backward", attention_backward, R * Q, 0, 2.5 * attention},
        {"xent forward+backward", xent,
         (R < head_chunk(c->vocab) ? R : head_chunk(c->vocab)) * (double)c->vocab, 2 * b, 0},
        {"adamw", adamw, 4096 * C, 8 * b, 0},
    };
    int any = 0, rc;
    for (size_t k = 0; k < DS_LEN(op); k++)
        any |= speed_request(s, "ops", op[k].name);
    if (!any)
        return 0;
    rc = open_ops(&x, s, e);
    if (rc == 0)
        rc = time_ops(s, &x, op, DS_LEN(op), e);
    close_ops(&x);
    return rc;
}
