/* Checks, registers and sets up LoRA and DoRA adapters on the matrices of the blocks. */
#include "models/adapters.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "models/model.h"

const struct adapter_target adapter_target[ADAPTER_TARGETS] = {
    {"q", "self_attn.q_proj"}, {"k", "self_attn.k_proj"}, {"v", "self_attn.v_proj"},
    {"o", "self_attn.o_proj"}, {"gate", "mlp.gate_proj"}, {"up", "mlp.up_proj"},
    {"down", "mlp.down_proj"},
};
enum { MATRICES = ADAPTER_TARGETS, RANK_MAX = 4096 };

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

/* ---- model.lora_targets ---------------------------------------------------------------------- */

/* One entry of the list. */
struct entry {
    char text[64];
    const char *layers; /* "0-3+7", or NULL: all */
    int target;         /* -1: unknown */
    struct adapter_spec spec;
};

/* 1, or 0 at the end of the list.  A malformed entry has target -1. */
static int next_entry(const struct model_config *c, const char **text, struct entry *x)
{
    *text += strspn(*text, ", ");
    size_t n = strcspn(*text, ", ");
    if (n == 0)
        return 0;
    snprintf(x->text, sizeof x->text, "%.*s", (int)(n < 63 ? n : 63), *text);
    x->layers = NULL;
    x->target = -1;
    x->spec = (struct adapter_spec){c->lora_r, c->lora_alpha};
    const char *name = *text, *end = *text + n, *dot = memchr(*text, '.', n);
    const char *colon = memchr(*text, ':', n);
    *text = end;
    if (dot && (!colon || dot < colon)) {
        x->layers = name;
        name = dot + 1;
    }
    size_t k = (size_t)((colon ? colon : end) - name);
    for (int i = 0; i < MATRICES; i++)
        if (strlen(adapter_target[i].name) == k && memcmp(name, adapter_target[i].name, k) == 0)
            x->target = i;
    if (colon) {
        char *at;
        x->spec.r = strtoll(colon + 1, &at, 10);
        if (at == colon + 1 || x->spec.r < 1)
            x->target = -1;
        const char *number = at + 1;
        if (at < end && *at == ':') {
            x->spec.alpha = strtod(number, &at);
            if (at == number || !isfinite(x->spec.alpha) || x->spec.alpha < 0)
                x->target = -1;
        }
        if (at != end)
            x->target = -1;
    }
    return 1;
}

/* The next "3" or "0-3" of an entry's layers: 1, 0 at the end, -1 malformed. */
static int next_layers(const char **p, int64_t *first, int64_t *last)
{
    char *end;
    if (**p == '.')
        return 0;
    if (**p < '0' || **p > '9')
        return -1;
    *first = *last = strtoll(*p, &end, 10);
    if (*end == '-') {
        if (end[1] < '0' || end[1] > '9')
            return -1;
        *last = strtoll(end + 1, &end, 10);
    }
    if (*last < *first || (*end != '.' && (*end != '+' || end[1] < '0' || end[1] > '9')))
        return -1;
    *p = *end == '+' ? end + 1 : end;
    return 1;
}

static int unknown(const struct entry *x, struct err *e)
{
    if (!strpbrk(x->text, ".:"))
        return err_set(e, DS_EUSAGE,
                       "model.lora_targets: unknown matrix %s: expected q, k, v, o, gate, up, down",
                       x->text);
    return err_set(e, DS_EUSAGE,
                   "model.lora_targets: %s: expected [LAYERS.]NAME[:RANK[:ALPHA]], e.g. q or "
                   "0-3.q:8:16",
                   x->text);
}

static int check_target(const struct model_config *c, const struct entry *x, struct err *e)
{
    const char *name = adapter_target[x->target].name;
    int is_there = adapters_has(c, x->target);
    if (!is_there && c->experts > 0)
        return err_set(
            e, DS_EUSAGE,
            "model.lora_targets: %s is unsupported with model.experts: expected q, k, v, o", name);
    if (!is_there)
        return err_set(e, DS_EUSAGE,
                       "model.lora_targets: %s exists only with model.mlp=swiglu or geglu", name);
    if (x->spec.r > RANK_MAX)
        return err_set(e, DS_ERANGE, "model.lora_targets: %s: rank must be at most %d", x->text,
                       RANK_MAX);
    return 0;
}

/* Applies an entry to out (layers, MATRICES), which may be NULL to check it only. */
static int apply_entry(struct adapter_spec *out, const struct model_config *c,
                       const struct entry *x, struct err *e)
{
    int64_t first = 0, last = c->layers - 1;
    const char *p = x->layers;
    int rc = p && *p == '.' ? -1 : 1;
    while (rc > 0 && (!p || (rc = next_layers(&p, &first, &last)) > 0)) {
        if (last >= c->layers)
            return err_set(e, DS_ERANGE,
                           "model.lora_targets: %s: layer %lld not found: expected "
                           "0 to %lld",
                           x->text, (long long)last, (long long)c->layers - 1);
        for (int64_t l = first; out && l <= last; l++)
            out[l * MATRICES + x->target] = x->spec;
        rc = p ? rc : 0;
    }
    return rc < 0 ? unknown(x, e) : 0;
}

static int walk(struct adapter_spec *out, const struct model_config *c, struct err *e)
{
    const char *text = c->lora_targets ? c->lora_targets : "";
    struct entry x;
    int n = 0, rc = 0;
    for (; rc == 0 && next_entry(c, &text, &x); n++) {
        if (x.target < 0)
            return unknown(&x, e);
        if (c->lora_r > 0)
            rc = check_target(c, &x, e);
        if (rc == 0)
            rc = apply_entry(out, c, &x, e);
    }
    if (rc == 0 && c->lora_r > 0 && n == 0)
        rc = err_set(e, DS_EUSAGE,
                     "model.lora_targets: must name at least one matrix with model.lora_r=%lld",
                     (long long)c->lora_r);
    return rc;
}

int adapters_check(const struct model_config *c, struct err *e)
{
    if (c->lora_r > 0 && c->lora_dora && c->lora_bias)
        return err_set(e, DS_EUSAGE, "model.lora_bias=true: not defined with model.lora_dora=true");
    return walk(NULL, c, e);
}

int adapters_spec(struct adapter_spec **out, const struct model_config *c, struct err *e)
{
    struct adapter_spec *s = mem_alloc((size_t)c->layers * MATRICES, sizeof *s);
    int rc = s ? 0 : err_set(e, DS_EMEM, "adapters: out of memory");
    if (rc == 0 && c->lora_r > 0)
        rc = walk(s, c, e);
    if (rc < 0)
        mem_free(s);
    else
        *out = s;
    return rc;
}

double adapters_scale(const struct model_config *c, const struct adapter_spec *s)
{
    return s->alpha / (c->lora_rslora ? sqrt((double)s->r) : (double)s->r);
}

/* ---- counts ---------------------------------------------------------------------------------- */

/* Sums over `layers` of r (O + C), of the targets in `set`, one bit each. */
static double weights_of(const struct model_config *c, const struct adapter_spec *spec,
                         int64_t layers, unsigned set)
{
    double sum = 0;
    for (int64_t i = 0; i < layers * MATRICES; i++) {
        int64_t O, C;
        size_of(c, (int)(i % MATRICES), &O, &C);
        if (set & 1u << i % MATRICES)
            sum += (double)(spec[i].r * (O + C));
    }
    return sum;
}

/* Targets of the three kinds that FLOPs tell apart: q and o, k and v, the MLP. */
enum { KINDS = 3, ALL_TARGETS = 0x7f };
static const unsigned kind_of[KINDS] = {0x09, 0x06, 0x70};

/* ---- parameters ------------------------------------------------------------------------------ */

static const char weight_end[] = ".weight", bias_end[] = ".bias";

static int ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

static int add_one(struct params *ps, const char *name, const char *suffix, int rows, int cols,
                   enum param_init init, double scale)
{
    char full[128];
    size_t stem = strlen(name) - strlen(weight_end);
    snprintf(full, sizeof full, "%.*s.%s", (int)stem, name, suffix);
    return params_add(ps, full, rows, cols, cols ? PARAM_MATRIX : PARAM_PLAIN, init, scale);
}

static int find_bias(const struct params *ps, const char *matrix)
{
    char full[128];
    snprintf(full, sizeof full, "%.*s%s", (int)(strlen(matrix) - strlen(weight_end)), matrix,
             bias_end);
    return params_find(ps, full);
}

/* Growing the table invalidates pointers into it, so the name is copied. */
static int add_adapter(struct model *m, struct adapter *x, int matrix, const struct adapter_spec *s)
{
    struct params *ps = &m->params;
    const struct model_config *c = &m->config;
    struct param p = ps->p[matrix];
    int r = (int)s->r, O = p.shape[0], C = p.shape[1];
    *x = (struct adapter){.matrix = matrix, .magnitude = -1, .bias = -1};
    x->scale = adapters_scale(c, s);
    x->base_bias = find_bias(ps, p.name);
    x->a = add_one(ps, p.name, "lora_A.weight", r, C, INIT_NORMAL, 1 / sqrt(3.0 * C));
    x->b = add_one(ps, p.name, "lora_B.weight", O, r, INIT_ZERO, 0);
    if (c->lora_bias)
        x->bias = add_one(ps, p.name, "lora_B.bias", O, 0, INIT_ZERO, 0);
    if (c->lora_dora)
        x->magnitude = add_one(ps, p.name, "lora_magnitude_vector", O, 0, INIT_CONST, (double)NAN);
    if (c->lora_bias || c->lora_dora)
        x->gain = mem_alloc((size_t)O, sizeof *x->gain);
    if (c->lora_dora)
        x->norm = mem_alloc((size_t)O, sizeof *x->norm);
    return x->a < 0 || x->b < 0 || (c->lora_bias && x->bias < 0) ||
                   (c->lora_dora && (x->magnitude < 0 || !x->norm)) ||
                   ((c->lora_bias || c->lora_dora) && !x->gain)
               ? DS_EMEM
               : 0;
}

/* The next name of model.lora_save: its length, 0 at the end. */
static size_t next_saved(const char **text, const char **name)
{
    *text += strspn(*text, ", ");
    size_t n = strcspn(*text, ", ");
    *name = *text;
    *text += n;
    return n;
}

/* Is the module `name` the one of this parameter, or does it contain it?  "norm" is model.norm, but
 * not input_layernorm. */
static int is_module_of(const char *name, size_t n, const char *param)
{
    for (const char *p = param; p; p = strchr(p, '.')) {
        p += *p == '.';
        if (strncmp(p, name, n) == 0 && p[n] == '.')
            return 1;
    }
    return 0;
}

static int check_saved(const struct model *m, struct err *e)
{
    const char *text = m->config.lora_save ? m->config.lora_save : "", *name;
    for (size_t n; (n = next_saved(&text, &name)) > 0;) {
        int found = 0;
        for (int i = 0; i < m->n_base && !found; i++)
            found = is_module_of(name, n, m->params.p[i].name);
        if (!found)
            return err_set(e, DS_EUSAGE,
                           "model.lora_save: unknown module %.*s: expected e.g. embed_tokens, "
                           "norm%s",
                           (int)(n < 60 ? n : 60), name,
                           m->head < 0 ? "; lm_head needs model.tied=false" : ", lm_head");
    }
    return 0;
}

int adapters_add(struct model *m, struct err *e)
{
    struct adapter_spec *spec = NULL;
    int rc = 0;
    if (m->config.lora_r == 0)
        return 0;
    rc = adapters_spec(&spec, &m->config, e);
    if (rc < 0)
        return rc;
    m->adapter = mem_alloc((size_t)m->config.layers * MATRICES, sizeof *m->adapter);
    m->adapter_flops = mem_alloc((size_t)m->config.layers * KINDS, sizeof *m->adapter_flops);
    if (!m->adapter || !m->adapter_flops)
        rc = DS_EMEM;
    for (int64_t i = 0; rc == 0 && i < m->config.layers * KINDS; i++)
        m->adapter_flops[i] =
            2 * weights_of(&m->config, spec + i / KINDS * MATRICES, 1, kind_of[i % KINDS]);
    for (int l = 0, next = 0; l < model_config_depth(&m->config) && rc == 0; l++) {
        const struct block_params *b = &m->block[l];
        if (model_config_block(&m->config, l) < next) /* again in a later iteration */
            continue;
        const int matrix[MATRICES] = {b->q, b->k, b->v, b->o, b->gate, b->up, b->down};
        for (int t = 0; t < MATRICES && rc == 0; t++)
            if (spec[next * MATRICES + t].r > 0)
                rc = add_adapter(m, &m->adapter[m->adapters++], matrix[t],
                                 &spec[next * MATRICES + t]);
        next++;
    }
    mem_free(spec);
    m->adapters_version = m->params.version - 1;
    return rc < 0 ? err_set(e, rc, "adapters: out of memory") : check_saved(m, e);
}

void adapters_release(struct model *m)
{
    for (int i = 0; i < m->adapters; i++) {
        mem_free(m->adapter[i].gain);
        mem_free(m->adapter[i].norm);
    }
    mem_free(m->adapter);
    mem_free(m->adapter_flops);
}

const struct adapter *adapters_find(const struct model *m, int matrix)
{
    for (int i = 0; i < m->adapters; i++)
        if (m->adapter[i].matrix == matrix)
            return &m->adapter[i];
    return NULL;
}

const struct adapter *adapters_of(const struct model *m, int i)
{
    for (int k = 0; k < m->adapters && i >= m->n_base; k++) {
        const struct adapter *x = &m->adapter[k];
        if (x->a == i || x->b == i || x->magnitude == i || x->bias == i)
            return x;
    }
    return NULL;
}

int adapters_params(const struct model *m)
{
    return m->adapters * (2 + (m->config.lora_dora != 0) + (m->config.lora_bias != 0));
}

int adapters_saves_module(const struct model *m, int i)
{
    const char *text = m->config.lora_save ? m->config.lora_save : "", *name;
    if (m->adapters == 0 || i >= m->n_base)
        return 0;
    for (size_t n; (n = next_saved(&text, &name)) > 0;)
        if (is_module_of(name, n, m->params.p[i].name))
            return 1;
    return 0;
}

int adapters_saves(const struct model *m, int i)
{
    const struct model_config *c = &m->config;
    const char *param = m->params.p[i].name;
    if (m->adapters == 0 || i >= m->n_base)
        return 0;
    if (adapters_saves_module(m, i))
        return 1;
    if (c->lora_train_bias == LORA_TRAIN_BIAS_NONE || !ends_with(param, bias_end))
        return 0;
    for (int k = 0; c->lora_train_bias == LORA_TRAIN_BIAS_LORA_ONLY && k < m->adapters; k++)
        if (m->adapter[k].base_bias == i)
            return 1;
    return c->lora_train_bias == LORA_TRAIN_BIAS_ALL;
}

int adapters_is_own(const struct model *m, int i)
{
    return i >= m->n_base || adapters_saves(m, i);
}

/* ---- passes ---------------------------------------------------------------------------------- */

/* The adapter as its map uses it, without dropout. */
static struct lora lora_of(const struct model *m, const struct adapter *x)
{
    const struct param *a = &m->params.p[x->a], *b = &m->params.p[x->b];
    struct lora l = {.r = a->shape[0],
                     .scale = (real)x->scale,
                     .a = a->value,
                     .b = b->value,
                     .da = a->grad,
                     .db = b->grad,
                     .key = (uint32_t)(x - m->adapter)};
    if (x->magnitude >= 0) {
        l.gain = x->gain;
        l.norm = x->norm;
        l.dmagnitude = m->params.p[x->magnitude].grad;
    }
    if (x->bias >= 0) {
        l.bias = x->gain;
        l.dbias = m->params.p[x->bias].grad;
    }
    return l;
}

struct matrix {
    const struct model *m;
    int i;
};

static void matrix_rows(void *ctx, int row, int n, real *out)
{
    const struct matrix *x = ctx;
    model_values(x->m, x->i, (size_t)row, (size_t)n, out);
}

static void update_norms(const struct model *m, const struct adapter *x)
{
    const struct param *w = &m->params.p[x->matrix];
    struct matrix at = {m, x->matrix};
    struct lora l = lora_of(m, x);
    lora_norms(x->norm, &l, w->shape[0], w->shape[1], matrix_rows, &at);
}

/* Values of DoRA and of B's bias that are not parameters themselves. */
static void derive(const struct model *m, const struct adapter *x, int is_changed)
{
    const struct param *ps = m->params.p;
    int O = ps[x->matrix].shape[0];
    if (x->magnitude >= 0 && is_changed)
        update_norms(m, x);
    for (int o = 0; x->magnitude >= 0 && o < O; o++)
        x->gain[o] = ps[x->magnitude].value[o] / x->norm[o];
    for (int o = 0; x->bias >= 0 && o < O; o++)
        x->gain[o] = (real)x->scale * ps[x->bias].value[o] +
                     (x->base_bias >= 0 ? ps[x->base_bias].value[o] : 0);
}

void adapters_unset(struct model *m)
{
    for (int i = 0; i < m->adapters; i++) {
        const struct param *p =
            &m->params.p[m->adapter[i].magnitude < 0 ? 0 : m->adapter[i].magnitude];
        for (size_t o = 0; m->adapter[i].magnitude >= 0 && o < p->n; o++)
            p->value[o] = (real)NAN;
    }
}

void adapters_start(struct model *m)
{
    for (int i = 0; i < m->adapters; i++) {
        const struct adapter *x = &m->adapter[i];
        if (x->magnitude < 0 || !isnan(m->params.p[x->magnitude].value[0]))
            continue;
        update_norms(m, x);
        memcpy(m->params.p[x->magnitude].value, x->norm,
               m->params.p[x->magnitude].n * sizeof *x->norm);
    }
}

void adapters_begin(struct model *m, const struct pass *pass)
{
    const struct model_config *c = &m->config;
    int is_changed = m->adapters_version != m->params.version;
    for (int i = 0; i < m->adapters; i++) {
        const struct adapter *x = &m->adapter[i];
        struct lora *l = &m->weights.v[x->matrix].lora;
        if (pass->adapters_off) {
            l->r = 0;
            continue;
        }
        derive(m, x, is_changed);
        *l = lora_of(m, x);
        l->dropout = pass->kind == PASS_TRAIN ? c->lora_dropout : 0;
        l->seed = pass->seed;
        l->step = (uint64_t)pass->step;
        l->first_row = pass->first_row;
    }
    if (!pass->adapters_off)
        m->adapters_version = m->params.version;
}

/* ---- totals ---------------------------------------------------------------------------------- */

double adapters_weights(const struct model_config *c)
{
    struct adapter_spec *spec = NULL;
    double sum = 0;
    if (c->lora_r > 0 && adapters_spec(&spec, c, NULL) == 0)
        sum = weights_of(c, spec, c->layers, ALL_TARGETS);
    mem_free(spec);
    return sum;
}

void adapters_flops(const struct model_config *c, double *qo, double *kv, double *mlp)
{
    struct adapter_spec *spec = NULL;
    *qo = *kv = *mlp = 0;
    if (c->lora_r == 0 || adapters_spec(&spec, c, NULL) < 0)
        return;
    double of_layer = 2 / (double)c->layers;
    *qo = of_layer * weights_of(c, spec, c->layers, kind_of[0]);
    *kv = of_layer * weights_of(c, spec, c->layers, kind_of[1]);
    *mlp = of_layer * weights_of(c, spec, c->layers, kind_of[2]);
    mem_free(spec);
}

void adapters_layer_flops(const struct model *m, int l, struct flops_shape *s)
{
    if (m->adapters == 0)
        return;
    const double *f = m->adapter_flops + (ptrdiff_t)KINDS * model_config_block(&m->config, l);
    s->adapter_qo = f[0];
    s->adapter_kv = f[1];
    s->adapter_mlp = f[2];
}

int adapters_check_merge(const struct model *m, struct err *e)
{
    for (int i = 0; i < m->adapters; i++)
        if (m->adapter[i].bias >= 0 && m->adapter[i].base_bias < 0)
            return err_set(e, DS_EUSAGE,
                           "%s: cannot be merged: its adapter has a bias (model.lora_bias=true), "
                           "the matrix has none",
                           m->params.p[m->adapter[i].matrix].name);
    return 0;
}
