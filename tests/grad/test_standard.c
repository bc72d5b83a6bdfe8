/* The published standard blocks, written again from their equations and compared with the model;
 * their gradients against central differences.  In double. */
#include "kit_grad.h"

enum { T = 9, V = 13, DIM = 24, HD_MAX = 64, F_MAX = 40 };

static struct kit_batch batch;

/* y = x w^T (+ b); w (O,C). */
static void product(double *y, const double *x, const real *w, const real *b, int C, int O)
{
    for (int o = 0; o < O; o++) {
        y[o] = b ? (double)b[o] : 0;
        for (int c = 0; c < C; c++)
            y[o] += x[c] * (double)w[o * C + c];
    }
}

static void rms_norm(double *y, const double *x, const real *g, int C, double eps)
{
    double sum = 0;
    for (int c = 0; c < C; c++)
        sum += x[c] * x[c];
    for (int c = 0; c < C; c++)
        y[c] = (double)g[c] * x[c] / sqrt(sum / C + eps);
}

static const real *weight(const struct model *m, int l, const char *name)
{
    char full[96];
    snprintf(full, sizeof full, "model.layers.%d.%s", l, name);
    int at = params_find(&m->params, l < 0 ? name : full);
    return at < 0 ? NULL : m->params.p[at].value;
}

/* Pairs (i, i + D/2), or (2i, 2i + 1) of each head rotated by pos * theta^(-2i/D), scaled as in
 * llama3. */
static void turn(double *x, int heads, const struct model_config *c, int pos)
{
    int D = (int)c->head_dim, is_half = c->position == POS_ROPE;
    for (int h = 0; h < heads; h++)
        for (int i = 0; i < D / 2; i++) {
            double f = pow(c->rope_theta, -2.0 * i / D), w = 2 * acos(-1.0) / f;
            double original = (double)c->rope_original, s;
            if (c->rope_scaling == ROPE_LLAMA3 && w > original / c->rope_low)
                f /= c->rope_factor;
            else if (c->rope_scaling == ROPE_LLAMA3 && w >= original / c->rope_high) {
                s = (original / w - c->rope_low) / (c->rope_high - c->rope_low);
                f = (1 - s) * f / c->rope_factor + s * f;
            }
            double *u = x + h * D + (is_half ? i : 2 * i), *v = is_half ? u + D / 2 : u + 1;
            double a = pos * f, p = *u, q = *v;
            *u = p * cos(a) - q * sin(a);
            *v = q * cos(a) + p * sin(a);
        }
}

static double q[T][HD_MAX], k[T][HD_MAX], v[T][HD_MAX];

static void attend(double *out, const struct model_config *c, int t)
{
    int D = (int)c->head_dim, group = (int)(c->heads / c->kv_heads);
    for (int h = 0; h < c->heads; h++) {
        double p[T], sum = 0;
        for (int j = 0; j <= t; j++) {
            double dot = 0;
            for (int d = 0; d < D; d++)
                dot += q[t][h * D + d] * k[j][h / group * D + d];
            sum += p[j] = exp(dot / sqrt(D));
        }
        for (int d = 0; d < D; d++) {
            out[h * D + d] = 0;
            for (int j = 0; j <= t; j++)
                out[h * D + d] += p[j] / sum * v[j][h / group * D + d];
        }
    }
}

static void layer(double h[T][DIM], const struct model *m, int l)
{
    const struct model_config *c = &m->config;
    int HD = (int)(c->heads * c->head_dim), KD = (int)(c->kv_heads * c->head_dim), F = (int)c->ffn;
    double n[DIM], att[HD_MAX], out[DIM], gate[F_MAX], up[F_MAX];
    for (int t = 0; t < T; t++) {
        rms_norm(n, h[t], weight(m, l, "input_layernorm.weight"), DIM, c->norm_eps);
        product(q[t], n, weight(m, l, "self_attn.q_proj.weight"),
                weight(m, l, "self_attn.q_proj.bias"), DIM, HD);
        product(k[t], n, weight(m, l, "self_attn.k_proj.weight"),
                weight(m, l, "self_attn.k_proj.bias"), DIM, KD);
        product(v[t], n, weight(m, l, "self_attn.v_proj.weight"),
                weight(m, l, "self_attn.v_proj.bias"), DIM, KD);
        turn(q[t], (int)c->heads, c, t);
        turn(k[t], (int)c->kv_heads, c, t);
    }
    for (int t = 0; t < T; t++) {
        attend(att, c, t);
        product(out, att, weight(m, l, "self_attn.o_proj.weight"), NULL, HD, DIM);
        for (int i = 0; i < DIM; i++)
            h[t][i] += out[i];
        rms_norm(n, h[t], weight(m, l, "post_attention_layernorm.weight"), DIM, c->norm_eps);
        product(gate, n, weight(m, l, "mlp.gate_proj.weight"), NULL, DIM, F);
        product(up, n, weight(m, l, "mlp.up_proj.weight"), NULL, DIM, F);
        for (int i = 0; i < F; i++)
            up[i] *= gate[i] / (1 + exp(-gate[i]));
        product(out, up, weight(m, l, "mlp.down_proj.weight"), NULL, F, DIM);
        for (int i = 0; i < DIM; i++)
            h[t][i] += out[i];
    }
}

static const char *const shapes[] = {
    /* Qwen2.5: biases on q, k and v, tied */
    "model.attn_bias=qkv model.tied=true model.norm_eps=1e-6 model.rope_theta=1e6",
    /* Llama 2 in Meta's layout, untied */
    "model.position=rope_interleaved model.tied=false model.kv_heads=4 model.norm_eps=1e-5",
    /* Llama 3: a short original context, so that the few frequencies cover every case */
    "model.tied=false model.rope_theta=100 model.rope_scaling=llama3 model.rope_factor=8 "
    "model.rope_original=64 model.head_dim=16",
};

static struct model *standard(const char *shape)
{
    char text[512];
    snprintf(text, sizeof text,
             "model.method=dense model.layers=3 model.dim=%d model.heads=4 model.kv_heads=2 "
             "model.ffn=%d model.vocab=%d model.max_seq=%d model.init_std=0.3 %s",
             DIM, F_MAX, V, T, shape);
    struct model *m = kit_model(text, 5, T, 1, 0);
    kit_shake(m, 0.3, 6);
    return m;
}

T(logits_match_the_equations)
{
    kit_fill(&batch, 1, T, V, 2);
    for (size_t s = 0; s < DS_LEN(shapes); s++) {
        struct model *m = standard(shapes[s]);
        struct pass pass = kit_pass(PASS_DENSE);
        double h[T][DIM], n[DIM], want[V];
        real got[V];
        const real *embed = weight(m, -1, "model.embed_tokens.weight"),
                   *head = m->config.tied ? embed : weight(m, -1, "lm_head.weight");
        model_forward(m, &batch.b, &pass);
        model_loss(m, 0, 0);
        for (int t = 0; t < T; t++)
            for (int c = 0; c < DIM; c++)
                h[t][c] = (double)embed[batch.id[t] * DIM + c];
        for (int l = 0; l < 3; l++)
            layer(h, m, l);
        for (int t = 0; t < T; t++) {
            rms_norm(n, h[t], weight(m, -1, "model.norm.weight"), DIM, m->config.norm_eps);
            product(want, n, head, NULL, DIM, V);
            model_logits(m, t, got);
            for (int o = 0; o < V; o++)
                t_near(got[o], want[o], 1e-10 * (1 + fabs(want[o])));
        }
        model_free(m);
    }
}

static double loss_of(struct model *m, struct pass *pass)
{
    model_forward(m, &batch.b, pass);
    return model_loss(m, 0, 0);
}

T(standard_model_gradients_are_right)
{
    kit_fill(&batch, 1, T, V, 3);
    for (size_t s = 0; s < DS_LEN(shapes); s++) {
        struct model *m = standard(shapes[s]);
        struct pass pass = kit_pass(PASS_TRAIN);
        kit_step(m, &batch.b, &pass);
        kit_check_params(shapes[s], loss_of, m, &pass, 12);
        model_free(m);
    }
}
