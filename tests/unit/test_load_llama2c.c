/* llama2.c files that the tests write from one of our models, and invalid files. */
#include "kit.h"

#include <unistd.h>

#include "models/load.h"

static struct err err;
static char path[512];

static const char *put(const void *p, size_t n)
{
    snprintf(path, sizeof path, "%s/m.bin", t_tmpdir());
    FILE *f = fopen(path, "wb");
    t_true(f && fwrite(p, 1, n, f) == n);
    fclose(f);
    return path;
}

static const char *const order[] = {
    "input_layernorm.weight",  "self_attn.q_proj.weight", "self_attn.k_proj.weight",
    "self_attn.v_proj.weight", "self_attn.o_proj.weight", "post_attention_layernorm.weight",
    "mlp.gate_proj.weight",    "mlp.down_proj.weight",    "mlp.up_proj.weight",
};

static void put_param(FILE *f, const struct model *m, const char *name)
{
    int at = params_find(&m->params, name), D = (int)m->config.head_dim;
    t_truef(at >= 0, "no %s", name);
    const struct param *p = &m->params.p[at];
    int C = p->rank > 1 ? p->shape[1] : 1;
    int pairs = strstr(name, "q_proj") || strstr(name, "k_proj");
    for (int r = 0; r < p->shape[0]; r++) {
        int from = pairs ? r / D * D + r % D / 2 + r % 2 * (D / 2) : r;
        for (int c = 0; c < C; c++) {
            float w = (float)p->value[(size_t)from * (size_t)C + (size_t)c];
            fwrite(&w, 4, 1, f);
        }
    }
}

static const char *put_model(const struct model *m)
{
    const struct model_config *c = &m->config;
    const int32_t head[7] = {(int32_t)c->dim,      (int32_t)c->ffn,
                             (int32_t)c->layers,   (int32_t)c->heads,
                             (int32_t)c->kv_heads, (int32_t)(c->tied ? c->vocab : -c->vocab),
                             (int32_t)c->max_seq};
    const float odd = 1e30F; /* the rotary tables are not used */
    FILE *f = fopen(put("", 0), "wb");
    fwrite(head, 4, 7, f);
    put_param(f, m, "model.embed_tokens.weight");
    for (size_t i = 0; i < DS_LEN(order); i++)
        for (int l = 0; l < c->layers; l++) {
            char name[128];
            snprintf(name, sizeof name, "model.layers.%d.%s", l, order[i]);
            put_param(f, m, name);
        }
    put_param(f, m, "model.norm.weight");
    for (int64_t i = 0; i < c->max_seq * c->head_dim; i++)
        fwrite(&odd, 4, 1, f);
    if (!c->tied)
        put_param(f, m, "lm_head.weight");
    fclose(f);
    return path;
}

T(models_round_trip_tied_or_not)
{
    for (int tied = 0; tied < 2; tied++) {
        char options[300];
        struct model *back = NULL;
        snprintf(options, sizeof options,
                 "model.method=dense model.layers=2 model.dim=32 model.heads=4 model.kv_heads=2 "
                 "model.ffn=40 model.vocab=24 model.max_seq=16 model.tied=%s",
                 tied ? "true" : "false");
        struct model *m = kit_model(options, 1, 16, MODEL_INFERENCE, 0);
        kit_shake(m, 0.1, 4);
        t_ok(model_open(&back, put_model(m), NULL, MODEL_INFERENCE, &err), &err);
        kit_same_params(back, m);
        t_eq(back->config.tied, tied);
        t_eq(back->config.max_seq, 16);
        t_near(back->config.norm_eps, 1e-5, 0);
        t_near(back->config.rope_theta, 10000, 0);
        model_free(m);
        model_free(back);
    }
}

T(the_configuration_is_read_by_itself)
{
    struct model_config c = {0};
    struct config route = {0};
    struct model *m = kit_model("model.method=dense model.layers=2 model.dim=32 model.heads=4 "
                                "model.kv_heads=2 model.ffn=40 model.vocab=24 model.max_seq=16",
                                1, 16, MODEL_INFERENCE, 0);
    t_ok(model_config_open(&c, &route, put_model(m), &err), &err);
    t_true(c.layers == 2 && c.dim == 32 && c.heads == 4 && c.kv_heads == 2 && c.ffn == 40 &&
           c.vocab == 24 && c.max_seq == 16 && c.tied);
    opt_release(&model_group, &c);
    t_fails(model_config_open(&c, &route, put("no", 2), &err), &err, DS_EFORMAT, "m.bin");
    config_release(&route);
    model_free(m);
}

/* The low bytes of the width come first in the file; a pickle begins with 0x80 and its protocol
 * number. */
T(widths_that_look_like_a_pickle_are_read)
{
    for (int dim = 640; dim <= 1408; dim += 256) {
        char options[200];
        struct model *back = NULL;
        snprintf(options, sizeof options,
                 "model.method=dense model.layers=1 model.dim=%d model.heads=4 model.ffn=8 "
                 "model.vocab=8 model.max_seq=4",
                 dim);
        struct model *m = kit_model(options, 1, 4, MODEL_INFERENCE, 0);
        t_ok(model_open(&back, put_model(m), NULL, MODEL_INFERENCE, &err), &err);
        t_eq(back->config.dim, dim);
        model_free(m);
        model_free(back);
    }
}

static void refuse(const void *p, size_t n, const char *part)
{
    struct model *m = NULL;
    t_fails(model_open(&m, put(p, n), NULL, MODEL_INFERENCE, &err), &err, DS_EFORMAT, part);
    t_truef(m == NULL && strstr(err.text, "m.bin") && !strchr(err.text, '\n'), "%s", err.text);
}

static void refuse_header(int place, int32_t v, const char *part)
{
    int32_t file[7 + 40] = {8, 8, 1, 2, 2, 4, 4};
    file[place] = v;
    refuse(file, sizeof file, part);
}

T(invalid_headers_are_refused)
{
    refuse("", 0, "the file has 0");
    refuse_header(0, -8, "dim is -8");
    refuse_header(2, 0, "n_layers is 0");
    refuse_header(5, 0, "vocab_size is 0");
    refuse_header(5, INT32_MIN, "header implies");
    refuse_header(3, 3, "n_heads = 3: must divide dim = 8");
    refuse_header(3, 8, "heads of even size");
    refuse_header(4, 3, "n_kv_heads = 3: must divide n_heads = 2");
    refuse_header(6, 4, "bytes, the file has 188");
    refuse_header(0, 0x616b3432, "unsupported versioned");
    const int32_t huge[7] = {2147483646, 2147483647, 2147483647, 1, 1, 2147483647, 1};
    refuse(huge, sizeof huge, "overflow 64 bits");
}

T(pickles_and_html_pages_are_named_and_not_read)
{
    refuse("PK\3\4 archive/data.pkl and so on, as torch.save writes", 48, "can execute code");
    refuse("\x80\2}q\1.and more bytes than a header has", 38, "pickle");
    refuse("<html>404: Not Found, and more words than needed", 48, "HTML");
    refuse("GGUF\3\0\0\0........................", 32, "GGUF");
    refuse("{\"error\": \"Repository not found\"}", 33, "JSON text");
    refuse("Entry not found", 15, "an error message");
    refuse("\2\0\0\0\0\0\0\0{}..................", 28, "a safetensors file");
}

/* Headers with one wrong field, in a file of the correct size. */
T(fields_of_wrong_sign_or_size_are_refused)
{
    static const int32_t values[] = {0, -1, INT32_MIN, INT32_MAX, 1 << 30, 0x01000000, 65537};
    struct model *m = kit_model("model.method=dense model.layers=1 model.dim=8 model.heads=2 "
                                "model.ffn=8 model.vocab=8 model.max_seq=4",
                                1, 4, MODEL_INFERENCE, 0);
    put_model(m);
    FILE *f = fopen(path, "rb");
    char file[8000];
    size_t n = fread(file, 1, sizeof file, f);
    fclose(f);
    t_true(n > 28 && n < sizeof file);
    for (int field = 0; field < 7; field++)
        for (size_t i = 0; i < DS_LEN(values); i++) {
            char copy[8000];
            memcpy(copy, file, n);
            memcpy(copy + 4 * field, &values[i], 4);
            refuse(copy, n, "");
        }
    refuse(file, n - 1, "the file has");
    file[n] = 0;
    refuse(file, n + 1, "the file has");
    model_free(m);
}

/* A sparse file: a model larger than memory is refused before any value is read. */
T(models_larger_than_memory_are_refused_with_both_sizes)
{
    const int32_t head[7] = {65536, 1, 1, 64, 1, 4194304, 1};
    const uint64_t C = 65536, V = 4194304, kv = 1024;
    uint64_t values = V * C + 2 * C + 2 * C * C + 2 * kv * C + 3 * C + C + kv;
    struct model *m = NULL;
    put(head, sizeof head);
    if (truncate(path, (off_t)(28 + 4 * values)) != 0)
        t_skip("the file system keeps no file of %.0f GB", 4e-9 * (double)values);
    t_skip_without_room(28 + 4 * values);
    t_fails(model_open(&m, path, NULL, MODEL_EDIT, &err), &err, DS_EMEM, "B available");
    t_truef(strstr(err.text, "m.bin: out of memory: 283") && m == NULL, "%s", err.text);
    t_ok(model_open(&m, path, NULL, MODEL_INFERENCE, &err),
         &err); /* its matrices stay in the file */
    t_fails(weights_use(m, &(struct numeric_options){.compute = COMPUTE_BF16}, &err), &err, DS_EMEM,
            "out of memory: weights need ");
    model_free(m);
}
