/* Opens GGUF as a model.  Some architectures (llama) store q and k (and their biases) with
 * interleaved rotary pairs; they are restored to half-split order, so that the model equals that of
 * the Hugging Face directory.  Gemma's norms are stored with their offset of 1. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "gguf_config.h"
#include "load_file.h"
#include "models/moe.h"
#include "names.h"

struct source {
    struct gguf *g;
    const char *path;
    const struct gguf_arch *arch;
};

/* ---- tensors --------------------------------------------------------------------------------- */

/* The file's name of a parameter. */
static void place_of(const struct source *s, const struct model *m, int i, struct names_place *at)
{
    const char *param = m->params.p[i].name;
    BUG_IF(!gguf_place(&m->config, gguf_fused(s->arch), param, at), "%s: no name in GGUF", param);
}

/* Experts > 0: of as many parameters together.  A gate of one row is a vector in some files. */
static int check_shape(const struct param *p, const struct names_place *at,
                       const struct gguf_tensor *t, int64_t experts, struct err *e)
{
    struct str have = {0}, want = {0};
    int64_t shape[3] = {experts, at->outputs ? (int64_t)at->outputs : p->shape[0],
                        p->rank > 1 ? p->shape[1] : 0};
    int from = experts > 0 ? 0 : p->rank > 1 && p->shape[0] == 1 ? 2 : 1, n = p->rank + 1 - from;
    int more = t->rank > n && t->shape[0] == 1, same = t->rank - more == n;
    for (int i = 0; i < n; i++)
        str_addf(&want, "%s%" PRId64, i ? "," : "", shape[from + i]);
    for (int i = 0; i < t->rank; i++) {
        same &= i < more || t->shape[i] == (uint64_t)(i - more < n ? shape[from + i - more] : 0);
        str_addf(&have, "%s%" PRIu64, i ? "," : "", t->shape[i]);
    }
    int rc = same ? 0
                  : err_set(e, DS_EFORMAT, "tensor %s: shape [%s], expected [%s] from the metadata",
                            t->name, str_text(&have), str_text(&want));
    str_release(&have);
    str_release(&want);
    return rc;
}

static int has_pairs(const char *param)
{
    return strstr(param, "q_proj.") || strstr(param, "k_proj.");
}

/* The kinds that GEMMs use as they are in the file. */
static const enum quant_kind kinds[] = {
    [GGUF_T_Q8_0] = QUANT_Q8_0,   [GGUF_T_Q4_0] = QUANT_Q4_0,     [GGUF_T_Q4_K] = QUANT_Q4_K,
    [GGUF_T_Q5_K] = QUANT_Q5_K,   [GGUF_T_Q6_K] = QUANT_Q6_K,     [GGUF_T_Q4_1] = QUANT_Q4_1,
    [GGUF_T_Q5_0] = QUANT_Q5_0,   [GGUF_T_Q5_1] = QUANT_Q5_1,     [GGUF_T_Q2_K] = QUANT_Q2_K,
    [GGUF_T_Q3_K] = QUANT_Q3_K,   [GGUF_T_IQ4_NL] = QUANT_IQ4_NL, [GGUF_T_IQ4_XS] = QUANT_IQ4_XS,
    [GGUF_T_MXFP4] = QUANT_MXFP4,
};

static enum quant_kind kind_of(const struct gguf_tensor *t)
{
    return t->type < DS_LEN(kinds) ? kinds[t->type] : QUANT_NONE;
}

static int read_values(const struct source *s, const struct param *p, const struct gguf_tensor *t,
                       int head_dim, uint64_t first, struct err *e)
{
    gguf_take(t, first * (p->rank > 1 ? (uint64_t)p->shape[1] : 1), p->n, p->value);
    int rc = 0, is_offset = s->arch->norm_offset && strstr(p->name, "norm.weight");
    load_warn_odd(s->path, t->name, p->value, p->n);
    for (size_t i = 0; is_offset && i < p->n; i++)
        p->value[i] -= 1;
    if (head_dim > 0)
        rc = load_split_pairs(p->value, p->shape[0], p->rank > 1 ? p->shape[1] : 1, head_dim, e);
    return rc;
}

static int read_param(const struct source *s, struct model *m, int i, struct err *e)
{
    const struct param *p = &m->params.p[i];
    struct names_place at;
    int pairs = s->arch->has_pairs && has_pairs(p->name), D = pairs ? (int)m->config.head_dim : 0;
    place_of(s, m, i, &at);
    const struct gguf_tensor *t = gguf_find(s->g, at.name);
    if (!t)
        return err_set(e, DS_EFORMAT, "missing tensor %s", at.name);
    int expert = names_expert(p->name);
    if (expert >= 0) {
        at.first = (uint64_t)expert * (uint64_t)p->shape[0];
        at.outputs = (uint64_t)p->shape[0];
    }
    int rc = check_shape(p, &at, t, expert < 0 ? 0 : m->config.experts, e);
    if (rc == 0)
        rc = gguf_check_type(t, e);
    if (rc < 0 || !p->in_file)
        return rc < 0 ? rc : read_values(s, p, t, D, at.first, e);
    stored_set(
        m, i,
        &(struct stored){.take = gguf_take,
                         .tensor = t,
                         .data = t->data,
                         .bytes = (size_t)t->bytes,
                         .kind = kind_of(t),
                         .is_bf16 = t->type == GGUF_T_BF16,
                         .is_copied =
                             REAL_BITS == 32 && (t->type == GGUF_T_BF16 || t->type == GGUF_T_F32),
                         .first = (size_t)at.first,
                         .rows = (size_t)at.outputs * (expert < 0 ? 1 : (size_t)m->config.experts),
                         .head_dim = D});
    return 0;
}

/* Every tensor of the file must belong to the model. */
static int check_unused(const struct source *s, const struct model *m, struct err *e)
{
    size_t n = gguf_count(s->g);
    unsigned char *used = mem_alloc(n + 1, 1);
    int rc = used ? 0 : err_set(e, DS_EMEM, "out of memory for the tensor names");
    for (int k = 0; k < m->n_base && rc == 0; k++) {
        struct names_place at;
        place_of(s, m, k, &at);
        const struct gguf_tensor *t = gguf_find(s->g, at.name);
        if (t)
            used[t - gguf_at(s->g, 0)] = 1;
    }
    for (size_t i = 0; i < n && rc == 0; i++) {
        const char *have = gguf_at(s->g, i)->name;
        if (!used[i] && strcmp(have, "rope_freqs.weight") != 0 &&
            !(s->arch->is_fused && strncmp(have, "rope_factors_", 13) == 0))
            rc = err_set(e, DS_EFORMAT, "unexpected tensor %s", have);
    }
    mem_free(used);
    return rc;
}

static void close_file(void *file)
{
    gguf_close(file);
}

static int file_unchanged(const void *file, struct err *e)
{
    return gguf_unchanged(file, e);
}

/* The model owns the file from here on. */
static int read_weights(struct source *s, struct model *m, struct err *e)
{
    int rc = check_unused(s, m, e);
    for (int i = 0; i < m->n_base && rc == 0; i++)
        rc = read_param(s, m, i, e);
    if (rc == 0)
        rc = moe_check_routers(m, e);
    if (rc < 0)
        return err_add(e, rc, "%s", s->path);
    params_changed(&m->params);
    rc = stored_add_file(m, &(struct stored_file){s->g, close_file, file_unchanged}, e);
    s->g = NULL;
    return rc;
}

int model_config_gguf(struct model_config *c, const char *path, struct err *e)
{
    struct source s = {.path = path};
    int rc = gguf_open(&s.g, path, e);
    if (rc < 0)
        return rc;
    rc = gguf_config_read(c, &s.arch, s.g, path, e);
    gguf_close(s.g);
    return rc < 0 ? err_add(e, rc, "%s", path) : 0;
}

/* 0 where the file says none. */
static uint64_t seed_of(const struct gguf *g)
{
    struct gguf_text text = {0};
    uint64_t seed = 0;
    if (!gguf_string(gguf_meta_find(g, GGUF_SEED), &text) || text.n > 19)
        return 0;
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] < '0' || text.p[i] > '9')
            return 0;
        seed = seed * 10 + (uint64_t)(text.p[i] - '0');
    }
    return seed;
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
    rc = gguf_config_read(&c, &s.arch, s.g, path, e);
    if (rc < 0)
        err_add(e, rc, "%s", path);
    else
        rc = load_new(&m, &c, overrides, train, path, e);
    opt_release(&model_group, &c); /* empty when it was taken */
    if (rc == 0) {
        m->route.seed = seed_of(s.g);
        rc = read_weights(&s, m, e);
    }
    gguf_close(s.g);
    if (rc == 0)
        *out = m;
    else
        model_free(m);
    return rc;
}
