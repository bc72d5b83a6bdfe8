/* Opens llama2.c's .bin as a model: RMSNorm, SwiGLU, rotary base 10000, no biases. */
#include <string.h>

#include "io/llama2c.h"
#include "base/mem.h"
#include "load_file.h"

static int read_config(struct model_config *c, const struct llama2c *f, struct err *e)
{
    const struct {
        const char *key;
        int64_t v;
    } sizes[] = {
        {"dim", f->dim},           {"ffn", f->hidden},  {"layers", f->layers}, {"heads", f->heads},
        {"kv_heads", f->kv_heads}, {"vocab", f->vocab}, {"max_seq", f->seq},   {"tied", f->tied},
    };
    memset(c, 0, sizeof *c);
    int rc = opt_defaults(&model_group, c, e);
    for (size_t i = 0; i < DS_LEN(sizes) && rc == 0; i++)
        rc = load_set_int(c, sizes[i].key, sizes[i].v, "header", e);
    if (rc == 0)
        rc = load_set_text(c, "method", "dense", "llama2.c", e);
    c->norm_eps = 1e-5; /* fixed by the format, not stored */
    c->rope_theta = 10000;
    return rc == 0 ? model_config_check(c, e) : rc; /* sizes that follow from these */
}

static int part_of(const char *name)
{
    static const struct {
        const char *name;
        enum llama2c_part part;
    } parts[] = {
        {"model.embed_tokens.weight", LLAMA2C_EMBED},
        {"input_layernorm.weight", LLAMA2C_ATT_NORM},
        {"self_attn.q_proj.weight", LLAMA2C_Q},
        {"self_attn.k_proj.weight", LLAMA2C_K},
        {"self_attn.v_proj.weight", LLAMA2C_V},
        {"self_attn.o_proj.weight", LLAMA2C_O},
        {"post_attention_layernorm.weight", LLAMA2C_FFN_NORM},
        {"mlp.gate_proj.weight", LLAMA2C_GATE},
        {"mlp.down_proj.weight", LLAMA2C_DOWN},
        {"mlp.up_proj.weight", LLAMA2C_UP},
        {"model.norm.weight", LLAMA2C_NORM},
        {"lm_head.weight", LLAMA2C_HEAD},
    };
    for (size_t i = 0; i < DS_LEN(parts); i++)
        if (strcmp(parts[i].name, name) == 0)
            return (int)parts[i].part;
    return -1;
}

static void take_floats(const void *tensor, uint64_t at, uint64_t n, real *out)
{
    llama2c_take(tensor, at, n, out);
}

static void read_param(const struct llama2c *f, struct model *m, int i, const char *path)
{
    const struct param *p = &m->params.p[i];
    const char *name;
    int l = load_layer(p->name, &name), part = part_of(name);
    int pairs = part == LLAMA2C_Q || part == LLAMA2C_K;
    BUG_IF(part < 0 || f->size[part] != p->n, "%s: not part of a llama2.c file", p->name);
    const unsigned char *at = llama2c_at(f, (enum llama2c_part)part, l < 0 ? 0 : l);
    if (p->in_file) {
        stored_set(m, i,
                   &(struct stored){.take = take_floats,
                                    .tensor = at,
                                    .data = at,
                                    .bytes = p->n * sizeof(float),
                                    .head_dim = pairs ? (int)m->config.head_dim : 0});
        return;
    }
    llama2c_take(at, 0, p->n, p->value);
    load_warn_odd(path, p->name, p->value, p->n);
}

/* In MODEL_EDIT q and k are in memory and reordered there. */
static int split_pairs(struct model *m, struct err *e)
{
    int rc = 0;
    for (int i = 0; i < m->n_base && rc == 0; i++) {
        const struct param *p = &m->params.p[i];
        const char *name;
        load_layer(p->name, &name);
        int part = part_of(name);
        if (!p->in_file && (part == LLAMA2C_Q || part == LLAMA2C_K))
            rc = load_split_pairs(p->value, p->shape[0], p->shape[1], (int)m->config.head_dim, e);
    }
    return rc;
}

static void close_file(void *file)
{
    llama2c_close(file);
    mem_free(file);
}

static int file_unchanged(const void *file, struct err *e)
{
    return llama2c_unchanged(file, e);
}

/* The model owns the file. */
static int read_weights(struct model *m, struct llama2c *f, const char *path, struct err *e)
{
    for (int i = 0; i < m->n_base; i++)
        read_param(f, m, i, path);
    int rc = split_pairs(m, e);
    params_changed(&m->params);
    struct llama2c *kept = rc == 0 ? mem_dup(f, sizeof *f) : NULL;
    if (!kept) {
        llama2c_close(f);
        return rc < 0 ? rc : err_set(e, DS_EMEM, "%s: out of memory", path);
    }
    return stored_add_file(m, &(struct stored_file){kept, close_file, file_unchanged}, e);
}

int model_config_llama2c(struct model_config *c, const char *path, struct err *e)
{
    struct llama2c f;
    int rc = llama2c_open(&f, path, e);
    if (rc < 0)
        return rc;
    rc = read_config(c, &f, e);
    llama2c_close(&f);
    return rc < 0 ? err_add(e, rc, "%s", path) : 0;
}

int model_open_llama2c(struct model **out, const char *path, struct config *overrides, int train,
                       struct err *e)
{
    struct model_config c;
    struct llama2c f;
    struct model *m = NULL;
    int rc = llama2c_open(&f, path, e);
    if (rc < 0)
        return rc;
    rc = read_config(&c, &f, e);
    if (rc < 0)
        rc = err_add(e, rc, "%s", path);
    else
        rc = load_new(&m, &c, overrides, train, path, e);
    opt_release(&model_group, &c); /* empty when it was taken */
    if (rc < 0)
        llama2c_close(&f);
    else
        rc = read_weights(m, &f, path, e);
    if (rc < 0)
        model_free(m);
    else
        *out = m;
    return rc;
}
