/* GGUF of the architectures llama and qwen2 as a model.  A llama file holds q and k (and their biases) with rotary pairs
 * interleaved; they are put back into the half-split order, so that the model is the one a Hugging Face directory would
 * give.  A qwen2 file has that order already. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "gguf_names.h"
#include "io/gguf.h"
#include "load_file.h"

enum { KEY_SIZE = 160 };

struct source {
    struct gguf *g;
    const char *path;
    char arch[16];
};

/* ---- metadata ----------------------------------------------------------------------------------- */

static const struct gguf_meta *meta(const struct source *s, const char *key, char full[KEY_SIZE])
{
    snprintf(full, KEY_SIZE, "%s.%s", s->arch, key);
    return gguf_meta_find(s->g, full);
}

/* 1 with the value, 0 when the key is absent. */
static int get_num(const struct source *s, const char *key, double *out, struct err *e)
{
    char full[KEY_SIZE];
    const struct gguf_meta *m = meta(s, key, full);
    if (!m)
        return 0;
    if (m->kind == GGUF_ARRAY || !gguf_num(m, 0, out))
        return err_set(e, DS_EFORMAT, "%s is no number but %s", full, gguf_kind_name(m->kind));
    return 1;
}

static int read_arch(struct source *s, struct err *e)
{
    struct gguf_text text;
    int64_t parts;
    if (!gguf_string(gguf_meta_find(s->g, "general.architecture"), &text))
        return err_set(e, DS_EFORMAT, "it has no general.architecture");
    if (!(text.n == 5 && memcmp(text.p, "llama", 5) == 0) &&
        !(text.n == 5 && memcmp(text.p, "qwen2", 5) == 0))
        return err_set(e, DS_EFORMAT, "architecture %.*s is not known here (llama, qwen2)",
                       text.n < 40 ? (int)text.n : 40, text.p);
    snprintf(s->arch, sizeof s->arch, "%.*s", (int)text.n, text.p);
    if (gguf_int(gguf_meta_find(s->g, "split.count"), 0, &parts) && parts > 1)
        return err_set(e, DS_EFORMAT, "one of %" PRId64 " parts of a model; merge them first",
                       parts);
    return 0;
}

/* Sizes and constants: key of the file, key of ours, whether it has to be there. */
static int read_sizes(const struct source *s, struct model_config *c, struct err *e)
{
    static const struct {
        const char *key, *own;
        int is_real, must;
    } rows[] = {
        {"block_count", "layers", 0, 1},
        {"embedding_length", "dim", 0, 1},
        {"feed_forward_length", "ffn", 0, 1},
        {"attention.head_count", "heads", 0, 1},
        {"attention.head_count_kv", "kv_heads", 0, 0},
        {"attention.key_length", "head_dim", 0, 0},
        {"context_length", "max_seq", 0, 0},
        {"attention.layer_norm_rms_epsilon", "norm_eps", 1, 1},
        {"rope.freq_base", "rope_theta", 1, 0},
    };
    char full[KEY_SIZE];
    for (size_t i = 0; i < DS_LEN(rows); i++) {
        const struct gguf_meta *m = meta(s, rows[i].key, full);
        int64_t whole;
        double v;
        int rc = 0;
        if (!m && rows[i].must)
            return err_set(e, DS_EFORMAT, "it has no %s", full);
        if (!m)
            continue;
        if (m->kind == GGUF_ARRAY ||
            !(rows[i].is_real ? gguf_num(m, 0, &v) : gguf_int(m, 0, &whole)))
            return err_set(e, DS_EFORMAT, "%s is not one %s but %s", full,
                           rows[i].is_real ? "number" : "integer", gguf_kind_name(m->kind));
        if (!rows[i].is_real && whole == 0) /* our own keys take 0 as "follows from others" */
            return err_set(e, DS_EFORMAT, "%s: 0 is outside the sizes there are", full);
        rc = rows[i].is_real ? load_set_real(c, rows[i].own, v, full, e)
                             : load_set_int(c, rows[i].own, whole, full, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* What such a file may ask for and this program does not compute is refused by name. */
static int refuse_others(const struct source *s, const struct model_config *c, struct err *e)
{
    double v = 0;
    int rc = get_num(s, "expert_count", &v, e);
    if (rc == 1 && v > 0)
        return err_set(e, DS_EFORMAT, "a mixture of %g experts is not known here", v);
    if (rc >= 0)
        rc = get_num(s, "attention.sliding_window", &v, e);
    if (rc == 1 && v > 0 && v < (double)c->max_seq)
        return err_set(e, DS_EFORMAT, "sliding windows of attention (%g) are not known here", v);
    if (rc >= 0)
        rc = get_num(s, "attention.value_length", &v, e);
    if (rc == 1 && (int64_t)v != c->head_dim)
        return err_set(e, DS_EFORMAT, "heads of %lld for keys and %g for values are not known here",
                       (long long)c->head_dim, v);
    if (rc >= 0)
        rc = get_num(s, "rope.dimension_count", &v, e);
    if (rc == 1 && (int64_t)v != c->head_dim)
        return err_set(e, DS_EFORMAT,
                       "rotary positions on %g of a head's %lld dimensions are not "
                       "known here",
                       v, (long long)c->head_dim);
    return rc < 0 ? rc : 0;
}

/* ---- rotary scaling ----------------------------------------------------------------------------- */

/* A file of Llama 3.1 or later has no keys for its scaling but the factors themselves, one a frequency.  The largest is the
 * factor; with the published bounds (1, 4, 8192) all others have to follow. */
static int read_factors(const struct source *s, const struct gguf_tensor *t, struct model_config *c,
                        struct err *e)
{
    double plain[512], scaled[512];
    real factor[512];
    int n = (int)(c->head_dim / 2), rc = 0;
    if (n > 512 || t->items != (uint64_t)n)
        return err_set(e, DS_EFORMAT, "%s has %" PRIu64 " values, the heads need %d", t->name,
                       t->items, n);
    rc = gguf_read(t, factor, t->items, e);
    c->rope_factor = 1;
    for (int i = 0; i < n && rc == 0; i++)
        c->rope_factor = (double)factor[i] > c->rope_factor ? (double)factor[i] : c->rope_factor;
    if (rc == 0)
        rc = load_set_real(c, "rope_factor", c->rope_factor, t->name, e);
    if (rc < 0)
        return rc;
    double original;
    rc = get_num(s, "rope.scaling.original_context_length", &original, e);
    if (rc == 1)
        rc = load_set_int(c, "rope_original", (int64_t)original, "original_context_length", e);
    if (rc < 0)
        return rc;
    c->rope_scaling = ROPE_PLAIN;
    model_config_rope(c, plain);
    c->rope_scaling = ROPE_LLAMA3;
    model_config_rope(c, scaled);
    for (int i = 0; i < n; i++) {
        double ours = plain[i] / scaled[i];
        if (!(fabs(ours - (double)factor[i]) <= 1e-3 * ours))
            return err_set(e, DS_EFORMAT,
                           "%s: factor %d is %g, Llama 3's scaling by %g gives %g; other scalings "
                           "are not known here",
                           t->name, i, (double)factor[i], c->rope_factor, ours);
    }
    return 0;
}

static int read_scaling_keys(const struct source *s, struct model_config *c, struct err *e)
{
    static const char *const keys[][2] = {
        {"rope.scaling.factor", "rope_factor"},
        {"rope.scaling.low_freq_factor", "rope_low"},
        {"rope.scaling.high_freq_factor", "rope_high"},
        {"rope.scaling.original_context_length", "rope_original"},
    };
    for (size_t i = 0; i < DS_LEN(keys); i++) {
        double v = 0;
        int rc = get_num(s, keys[i][0], &v, e);
        if (rc == 0)
            return err_set(e, DS_EFORMAT, "it has no %s.%s", s->arch, keys[i][0]);
        if (rc == 1)
            rc = i == 3 ? load_set_int(c, keys[i][1], (int64_t)v, keys[i][0], e)
                        : load_set_real(c, keys[i][1], v, keys[i][0], e);
        if (rc < 0)
            return rc;
    }
    return load_set_text(c, "rope_scaling", "llama3", s->path, e);
}

static int read_scaling(const struct source *s, struct model_config *c, struct err *e)
{
    char full[KEY_SIZE];
    struct gguf_text type = {"none", 4};
    double factor = 1;
    const struct gguf_meta *m = meta(s, "rope.scaling.type", full);
    const struct gguf_tensor *t = gguf_find(s->g, "rope_freqs.weight");
    if (m && !gguf_string(m, &type))
        return err_set(e, DS_EFORMAT, "%s is no string", full);
    if (type.n == 6 && memcmp(type.p, "llama3", 6) == 0)
        return read_scaling_keys(s, c, e);
    int rc = get_num(s, "rope.scaling.factor", &factor, e);
    if (rc == 0)
        rc = get_num(s, "rope.scale_linear", &factor, e);
    if (rc < 0)
        return rc;
    int is_none = type.n == 4 && memcmp(type.p, "none", 4) == 0;
    int is_linear = type.n == 6 && memcmp(type.p, "linear", 6) == 0;
    if (t)
        return read_factors(s, t, c, e);
    if ((!is_none && !is_linear) || (factor != 0 && factor != 1))
        return err_set(e, DS_EFORMAT, "rotary scaling %.*s by %g is not known here (llama3, none)",
                       type.n < 40 ? (int)type.n : 40, type.p, factor);
    return 0;
}

/* ---- configuration ------------------------------------------------------------------------------ */

static int read_switches(const struct source *s, struct model_config *c, struct err *e)
{
    const struct gguf_tensor *embed = gguf_find(s->g, "token_embd.weight");
    int on_q = gguf_find(s->g, "blk.0.attn_q.bias") != NULL;
    int on_o = gguf_find(s->g, "blk.0.attn_output.bias") != NULL;
    int is_qwen2 = s->arch[0] == 'q';
    if (!embed || embed->rank != 2)
        return err_set(e, DS_EFORMAT, "it has no matrix token_embd.weight");
    int rc = load_set_text(c, "method", "dense", s->path, e);
    if (rc == 0)
        rc = load_set_int(c, "vocab", embed->shape[0] > INT32_MAX ? -1 : (int64_t)embed->shape[0],
                          embed->name, e);
    c->tied = !gguf_find(s->g, "output.weight");
    c->attn_bias = on_q && on_o ? ATTN_BIAS_ALL : on_q || is_qwen2 ? ATTN_BIAS_QKV : ATTN_BIAS_NONE;
    c->mlp_bias = gguf_find(s->g, "blk.0.ffn_up.bias") != NULL;
    return rc;
}

/* Sizes that the tensors are far from are refused before memory is asked for them; a few missing tensors are named later. */
static int check_values(const struct source *s, const struct model_config *c, struct err *e)
{
    double have = 0, need = (double)model_config_params(c);
    for (size_t i = 0; i < gguf_count(s->g); i++)
        have += (double)gguf_at(s->g, i)->items;
    if (have < need / 2)
        return err_set(e, DS_EFORMAT, "its metadata describes %.0f weights, its tensors hold %.0f",
                       need, have);
    return 0;
}

static int read_config(struct source *s, struct model_config *c, struct err *e)
{
    memset(c, 0, sizeof *c);
    int rc = opt_defaults(&model_group, c, e);
    c->rope_theta = 10000; /* what a file without the key means */
    c->max_seq = 2048;
    if (rc == 0)
        rc = read_arch(s, e);
    if (rc == 0)
        rc = read_sizes(s, c, e);
    if (rc == 0)
        rc = read_switches(s, c, e);
    if (rc == 0)
        rc = model_config_check(c, e); /* head_dim is known from here on */
    if (rc == 0)
        rc = refuse_others(s, c, e);
    if (rc == 0)
        rc = read_scaling(s, c, e);
    return rc == 0 ? check_values(s, c, e) : rc;
}

/* ---- tensors -------------------------------------------------------------------------------------- */

/* The file's name of a parameter. */
static void name_of(char out[KEY_SIZE], const char *param)
{
    BUG_IF(!gguf_name(out, KEY_SIZE, param), "%s: no name in GGUF", param);
}

static int check_shape(const struct param *p, const struct gguf_tensor *t, struct err *e)
{
    struct str have = {0};
    if (t->rank == p->rank && t->shape[0] == (uint64_t)p->shape[0] &&
        (p->rank < 2 || t->shape[1] == (uint64_t)p->shape[1]))
        return 0;
    for (int i = 0; i < t->rank; i++)
        str_addf(&have, "%s%" PRIu64, i ? "," : "", t->shape[i]);
    err_set(e, DS_EFORMAT, "tensor %s is [%s], the metadata says [%d%s%.0d]", t->name,
            str_text(&have), p->shape[0], p->rank > 1 ? "," : "", p->rank > 1 ? p->shape[1] : 0);
    str_release(&have);
    return DS_EFORMAT;
}

static int has_pairs(const char *param)
{
    return strstr(param, "q_proj.") || strstr(param, "k_proj.");
}

static enum quant_kind kind_of(const struct gguf_tensor *t)
{
    switch (t->type) {
    case GGUF_T_Q8_0: return QUANT_Q8_0;
    case GGUF_T_Q4_0: return QUANT_Q4_0;
    case GGUF_T_Q4_K: return QUANT_Q4_K;
    case GGUF_T_Q5_K: return QUANT_Q5_K;
    case GGUF_T_Q6_K: return QUANT_Q6_K;
    default: return QUANT_NONE;
    }
}

static int read_values(const struct source *s, const struct param *p, const struct gguf_tensor *t,
                       int head_dim, struct err *e)
{
    int rc = gguf_read(t, p->value, p->n, e);
    if (rc == 0)
        load_warn_odd(s->path, t->name, p->value, p->n);
    if (rc == 0 && head_dim > 0)
        rc = load_split_pairs(p->value, p->shape[0], p->rank > 1 ? p->shape[1] : 1, head_dim, e);
    return rc;
}

static int read_param(const struct source *s, struct model *m, int i, struct err *e)
{
    const struct param *p = &m->params.p[i];
    char name[KEY_SIZE];
    int pairs = s->arch[0] == 'l' && has_pairs(p->name), D = pairs ? (int)m->config.head_dim : 0;
    name_of(name, p->name);
    const struct gguf_tensor *t = gguf_find(s->g, name);
    if (!t)
        return err_set(e, DS_EFORMAT, "tensor %s is missing", name);
    int rc = check_shape(p, t, e);
    if (rc == 0)
        rc = gguf_check_type(t, e);
    if (rc < 0 || !p->elsewhere)
        return rc < 0 ? rc : read_values(s, p, t, D, e);
    stored_set(m, i,
               &(struct stored){.take = gguf_take,
                                .tensor = t,
                                .data = t->data,
                                .bytes = (size_t)t->bytes,
                                .kind = kind_of(t),
                                .is_bf16 = t->type == GGUF_T_BF16,
                                .parts = 1,
                                .head_dim = D});
    return 0;
}

/* Every tensor of the file has to be one of the model's: names are unique, so counting them is enough. */
static int check_unused(const struct source *s, const struct model *m, struct err *e)
{
    for (size_t i = 0; i < gguf_count(s->g); i++) {
        const char *have = gguf_at(s->g, i)->name;
        char name[KEY_SIZE];
        int used = strcmp(have, "rope_freqs.weight") == 0;
        for (int k = 0; k < m->n_base && !used; k++) {
            name_of(name, m->params.p[k].name);
            used = strcmp(name, have) == 0;
        }
        if (!used)
            return err_set(e, DS_EFORMAT, "tensor %s has no place in this model", have);
    }
    return 0;
}

static void close_file(void *file)
{
    gguf_close(file);
}

static int file_unchanged(const void *file, struct err *e)
{
    return gguf_unchanged(file, e);
}

/* The model keeps the file from here on. */
static int read_weights(struct source *s, struct model *m, struct err *e)
{
    int rc = check_unused(s, m, e);
    for (int i = 0; i < m->n_base && rc == 0; i++)
        rc = read_param(s, m, i, e);
    if (rc < 0)
        return err_add(e, rc, "%s", s->path);
    params_changed(&m->params);
    rc = stored_keep(m, &(struct stored_file){s->g, close_file, file_unchanged}, e);
    s->g = NULL;
    return rc;
}

int model_config_gguf(struct model_config *c, const char *path, struct err *e)
{
    struct source s = {.path = path};
    int rc = gguf_open(&s.g, path, e);
    if (rc < 0)
        return rc;
    rc = read_config(&s, c, e);
    gguf_close(s.g);
    return rc < 0 ? err_add(e, rc, "%s", path) : 0;
}

int model_open_gguf(struct model **out, const char *path, struct config *overrides, int train,
                    struct err *e)
{
    struct source s = {.path = path};
    struct model_config c;
    struct model *m = NULL;
    int rc = gguf_open(&s.g, path, e);
    if (rc < 0)
        return rc;
    rc = read_config(&s, &c, e);
    if (rc < 0)
        err_add(e, rc, "%s", path);
    else
        rc = load_new(&m, &c, overrides, train, path, e);
    opt_release(&model_group, &c); /* empty when it was taken */
    if (rc == 0)
        rc = read_weights(&s, m, e);
    gguf_close(s.g);
    if (rc == 0)
        *out = m;
    else
        model_free(m);
    return rc;
}
