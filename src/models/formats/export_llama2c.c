/* Exports llama2.c's legacy format, as io/llama2c.h reads it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/mem.h"
#include "export_rows.h"
#include "base/fs.h"

enum { HEADER = 28 };

struct writing {
    const struct export_source *s;
    struct fs_new file;
    struct export_way way;
};

/* In the file's order, each for all layers. */
static const char *const of_layers[] = {
    "input_layernorm.weight",  "self_attn.q_proj.weight", "self_attn.k_proj.weight",
    "self_attn.v_proj.weight", "self_attn.o_proj.weight", "post_attention_layernorm.weight",
    "mlp.gate_proj.weight",    "mlp.down_proj.weight",    "mlp.up_proj.weight",
};

/* The header has only sizes, so all constants must equal the format's own. */
static int check(const struct export_source *s, struct err *e)
{
    const struct model_config *c = &s->m->config;
    int rc = export_check_base(s, "llama2.c", 0, e);
    if (rc < 0)
        return rc;
    if (c->experts > 0)
        return err_set(e, DS_EUSAGE, "llama2.c cannot store experts; use to=gguf or to=hf");
    if (c->attn_bias != ATTN_BIAS_NONE || c->mlp_bias)
        return err_set(e, DS_EUSAGE, "llama2.c cannot store biases; use to=gguf or to=hf");
    if (c->rope_scaling != ROPE_PLAIN)
        return err_set(e, DS_EUSAGE, "llama2.c cannot store rotary scaling; use to=gguf or to=hf");
    if (c->heads * c->head_dim != c->dim)
        return err_set(e, DS_EUSAGE,
                       "llama2.c: heads * head_dim = %lld * %lld: must equal dim = %lld",
                       (long long)c->heads, (long long)c->head_dim, (long long)c->dim);
    if (c->rope_theta != 10000)
        return err_set(e, DS_EUSAGE, "llama2.c: rotary base must be 10000, the model has %g",
                       c->rope_theta);
    if ((float)c->norm_eps != 1e-5F)
        return err_set(e, DS_EUSAGE, "llama2.c: norm_eps must be 1e-05, the model has %g",
                       c->norm_eps);
    if (c->vocab > INT32_MAX || c->max_seq > INT32_MAX)
        return err_set(e, DS_ERANGE, "llama2.c: vocab and max_seq must fit in 31 bits");
    return 0;
}

static void put32(unsigned char *p, int64_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)((uint64_t)v >> 8 * i & 255);
}

static int write_header(struct writing *x, struct err *e)
{
    const struct model_config *c = &x->s->m->config;
    const int64_t v[] = {c->dim,    c->ffn,      c->layers,
                         c->heads,  c->kv_heads, c->tied ? c->vocab : -c->vocab,
                         c->max_seq};
    unsigned char head[HEADER];
    for (size_t i = 0; i < DS_LEN(v); i++)
        put32(head + 4 * i, v[i]);
    return fs_new_write(&x->file, head, sizeof head, e);
}

static int to_file(void *ctx, const void *p, size_t n, struct err *e)
{
    return fs_new_write(ctx, p, n, e);
}

static int write_param(struct writing *x, const char *name, struct err *e)
{
    int i = params_find(&x->s->m->params, name);
    BUG_IF(i < 0, "%s: unknown parameter", name);
    int pairs = x->s->m->config.position == POS_ROPE &&
                (strstr(name, "q_proj.") || strstr(name, "k_proj."));
    return export_write(x->s, i, pairs ? ROWS_INTERLEAVED : ROWS_AS_THEY_ARE, GGUF_T_F32, to_file,
                        &x->file, &x->way, e);
}

/* Tables of cosines and sines (max_seq, head_dim / 2), which current readers recompute. */
static int write_tables(struct writing *x, struct err *e)
{
    const struct model_config *c = &x->s->m->config;
    size_t n = (size_t)c->head_dim / 2;
    double *f = mem_alloc(n + 1, sizeof *f);
    unsigned char *row = mem_alloc(n + 1, 4);
    int rc = f && row ? 0 : err_set(e, DS_EMEM, "rotary tables: out of memory");
    if (rc == 0)
        (void)model_config_rope(c, 0, 0, f);
    for (int table = 0; table < 2; table++)
        for (int64_t t = 0; t < c->max_seq && rc == 0; t++) {
            for (size_t i = 0; i < n; i++) {
                float v = (float)(table ? sin((double)t * f[i]) : cos((double)t * f[i]));
                uint32_t bits;
                memcpy(&bits, &v, sizeof bits);
                put32(row + 4 * i, bits);
            }
            rc = fs_new_write(&x->file, row, 4 * n, e);
        }
    mem_free(f);
    mem_free(row);
    return rc;
}

static int write_all(struct writing *x, struct err *e)
{
    const struct model_config *c = &x->s->m->config;
    int rc = write_header(x, e);
    if (rc == 0)
        rc = write_param(x, "model.embed_tokens.weight", e);
    for (size_t i = 0; i < DS_LEN(of_layers); i++)
        for (int64_t l = 0; l < c->layers && rc == 0; l++) {
            char name[128];
            snprintf(name, sizeof name, "model.layers.%d.%s", (int)l, of_layers[i]);
            rc = write_param(x, name, e);
        }
    if (rc == 0)
        rc = write_param(x, "model.norm.weight", e);
    if (rc == 0)
        rc = write_tables(x, e);
    if (rc == 0 && !c->tied)
        rc = write_param(x, "lm_head.weight", e);
    return rc;
}

int export_llama2c(const struct export_source *s, const struct export_options *o, const char *path,
                   struct export_result *r, struct err *e)
{
    const struct model_config *c = &s->m->config;
    struct writing x = {.s = s, .file = {.fd = -1}, .way = {.o = o}};
    int rc = check(s, e);
    if (rc < 0)
        return rc;
    x.way.all = (double)model_config_params(c);
    uint64_t bytes = HEADER + 4 * ((uint64_t)model_config_params(c) +
                                   (uint64_t)c->max_seq * (uint64_t)c->head_dim);
    rc = export_check_room(path, bytes, e);
    if (rc == 0)
        rc = fs_new_open(&x.file, path, e);
    if (rc == 0)
        rc = write_all(&x, e);
    if (rc == 0)
        rc = export_check_source(s, e);
    if (rc == 0)
        rc = fs_new_commit(&x.file, e);
    fs_new_abort(&x.file);
    if (rc == 0)
        *r = (struct export_result){
            .bytes = bytes, .tensors = (uint64_t)s->m->n_base, .files = 1, .head_type = GGUF_T_F32};
    return rc;
}
