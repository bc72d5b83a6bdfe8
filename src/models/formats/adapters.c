/* Checks, registers and sets up LoRA adapters on the matrices of the blocks. */
#include "models/adapters.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "models/model.h"

const struct adapter_target adapter_target[ADAPTER_TARGETS] = {
    {"q", "self_attn.q_proj"}, {"k", "self_attn.k_proj"}, {"v", "self_attn.v_proj"},
    {"o", "self_attn.o_proj"}, {"gate", "mlp.gate_proj"}, {"up", "mlp.up_proj"},
    {"down", "mlp.down_proj"},
};
enum { MATRICES = ADAPTER_TARGETS };

/* Rows and columns of a target; 0 rows: this model has no such matrix. */
static void size_of(const struct model_config *c, int target, int64_t *O, int64_t *C)
{
    int64_t HD = c->heads * c->head_dim, KD = c->kv_heads * c->head_dim;
    int64_t F = c->experts > 0 ? 0 : c->ffn;
    const int64_t rows[MATRICES] = {
        HD, KD, KD, c->dim, model_config_gated(c) ? F : 0, F, F > 0 ? c->dim : 0};
    const int64_t columns[MATRICES] = {c->dim, c->dim, c->dim, HD, c->dim, c->dim, c->ffn};
    *O = rows[target];
    *C = columns[target];
}

int adapters_has(const struct model_config *c, int target)
{
    int64_t O, C;
    size_of(c, target, &O, &C);
    return O > 0;
}

/* The next name of "q,k,..." as a target; MATRICES at the end of the list, -1 when unknown. */
static int next_target(const char **text, char word[16])
{
    *text += strspn(*text, ", ");
    size_t n = strcspn(*text, ", ");
    if (n == 0)
        return MATRICES;
    snprintf(word, 16, "%.*s", (int)(n < 15 ? n : 15), *text);
    *text += n;
    for (int i = 0; i < MATRICES; i++)
        if (strcmp(word, adapter_target[i].name) == 0)
            return i;
    return -1;
}

/* One bit per target. */
static unsigned targets(const struct model_config *c)
{
    const char *text = c->lora_targets;
    char word[16];
    unsigned set = 0;
    for (int t; c->lora_r > 0 && (t = next_target(&text, word)) != MATRICES;)
        set |= t >= 0 ? 1u << t : 0;
    return set;
}

static int check_target(const struct model_config *c, int target, struct err *e)
{
    int64_t O, C;
    size_of(c, target, &O, &C);
    if (O == 0 && c->experts > 0)
        return err_set(
            e, DS_EUSAGE,
            "model.lora_targets: %s is unsupported with model.experts: expected q, k, v, o",
            adapter_target[target].name);
    if (O == 0)
        return err_set(e, DS_EUSAGE, "model.lora_targets: %s exists only with model.mlp=swiglu",
                       adapter_target[target].name);
    if (c->lora_r > O || c->lora_r > C)
        return err_set(
            e, DS_ERANGE, "model.lora_r=%lld: must not exceed the size of %s, which is %lld x %lld",
            (long long)c->lora_r, adapter_target[target].name, (long long)O, (long long)C);
    return 0;
}

int adapters_check(const struct model_config *c, struct err *e)
{
    const char *text = c->lora_targets;
    char word[16];
    for (int t; (t = next_target(&text, word)) != MATRICES;) {
        if (t < 0)
            return err_set(
                e, DS_EUSAGE,
                "model.lora_targets: unknown matrix %s: expected q, k, v, o, gate, up, down", word);
        int rc = c->lora_r > 0 ? check_target(c, t, e) : 0;
        if (rc < 0)
            return rc;
    }
    if (c->lora_r > 0 && !targets(c))
        return err_set(e, DS_EUSAGE,
                       "model.lora_targets: must name at least one matrix with model.lora_r=%lld",
                       (long long)c->lora_r);
    return 0;
}

static int add_one(struct params *ps, const char *name, const char *suffix, int rows, int cols,
                   enum param_init init, double scale)
{
    char full[128];
    size_t stem = strlen(name) - strlen(".weight");
    snprintf(full, sizeof full, "%.*s.%s.weight", (int)stem, name, suffix);
    return params_add(ps, full, rows, cols, PARAM_MATRIX, init, scale);
}

/* Growing the table invalidates pointers into it, so the name is copied. */
static int add_adapter(struct model *m, struct adapter *x, int matrix)
{
    struct params *ps = &m->params;
    struct param p = ps->p[matrix];
    int r = (int)m->config.lora_r, O = p.shape[0], C = p.shape[1];
    x->matrix = matrix;
    x->a = add_one(ps, p.name, "lora_A", r, C, INIT_NORMAL, 1 / sqrt(3.0 * C));
    x->b = add_one(ps, p.name, "lora_B", O, r, INIT_ZERO, 0);
    return x->a < 0 || x->b < 0 ? DS_EMEM : 0;
}

int adapters_add(struct model *m, struct err *e)
{
    unsigned set = targets(&m->config);
    int rc = 0;
    if (!set)
        return 0;
    m->adapter = mem_alloc((size_t)m->config.layers * MATRICES, sizeof *m->adapter);
    if (!m->adapter)
        return err_set(e, DS_EMEM, "adapters");
    for (int l = 0, next = 0; l < model_config_depth(&m->config); l++) {
        const struct block_params *b = &m->block[l];
        if (model_config_block(&m->config, l) < next) /* again in a later iteration */
            continue;
        next++;
        const int matrix[MATRICES] = {b->q, b->k, b->v, b->o, b->gate, b->up, b->down};
        for (int t = 0; t < MATRICES && rc == 0; t++)
            if (set & 1u << t)
                rc = add_adapter(m, &m->adapter[m->adapters++], matrix[t]);
    }
    return rc < 0 ? err_set(e, rc, "adapters") : 0;
}

const struct adapter *adapters_find(const struct model *m, int matrix)
{
    for (int i = 0; i < m->adapters; i++)
        if (m->adapter[i].matrix == matrix)
            return &m->adapter[i];
    return NULL;
}

void adapters_begin(struct model *m, const struct pass *pass)
{
    const struct model_config *c = &m->config;
    for (int i = 0; i < m->adapters; i++) {
        const struct adapter *x = &m->adapter[i];
        const struct param *a = &m->params.p[x->a], *b = &m->params.p[x->b];
        m->weights.v[x->matrix].lora =
            (struct lora){.r = pass->adapters_off ? 0 : (int)c->lora_r,
                          .scale = (real)(c->lora_alpha / (double)c->lora_r),
                          .a = a->value,
                          .b = b->value,
                          .da = a->grad,
                          .db = b->grad,
                          .dropout = pass->kind == PASS_TRAIN ? c->lora_dropout : 0,
                          .seed = pass->seed,
                          .step = (uint64_t)pass->step,
                          .key = (uint32_t)i};
    }
}

static double weights_of(const struct model_config *c, unsigned set)
{
    double sum = 0;
    for (int t = 0; t < MATRICES; t++) {
        int64_t O, C;
        size_of(c, t, &O, &C);
        if (set & 1u << t)
            sum += (double)(c->lora_r * (O + C));
    }
    return sum;
}

double adapters_weights(const struct model_config *c)
{
    return (double)c->layers * weights_of(c, targets(c));
}

void adapters_flops(const struct model_config *c, double *qo, double *kv, double *mlp)
{
    unsigned set = targets(c);
    *qo = 2 * weights_of(c, set & 0x09);
    *kv = 2 * weights_of(c, set & 0x06);
    *mlp = 2 * weights_of(c, set & 0x70);
}
