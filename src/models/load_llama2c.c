/* llama2.c's .bin as a model: RMSNorm, SwiGLU, rotary positions of base 10000, no biases. */
#include <string.h>

#include "io/llama2c.h"
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
    c->norm_eps = 1e-5; /* the format's own, in none of its fields */
    c->rope_theta = 10000;
    return rc;
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

static int read_param(const struct llama2c *f, const struct model *m, const struct param *p,
                      const char *path, struct err *e)
{
    const char *name;
    int l = load_layer(p->name, &name), part = part_of(name), rc = 0;
    BUG_IF(part < 0 || f->size[part] != p->n, "%s: no part of a llama2.c file", p->name);
    llama2c_read(f, (enum llama2c_part)part, l < 0 ? 0 : l, p->value);
    load_warn_odd(path, p->name, p->value, p->n);
    if (part == LLAMA2C_Q || part == LLAMA2C_K)
        rc = load_split_pairs(p->value, p->shape[0], p->shape[1], (int)m->config.head_dim, e);
    return rc;
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
    for (int i = 0; rc == 0 && i < m->n_base; i++)
        rc = read_param(&f, m, &m->params.p[i], path, e);
    llama2c_close(&f);
    if (rc < 0) {
        model_free(m);
        return rc;
    }
    params_changed(&m->params);
    *out = m;
    return 0;
}
