/* Models written as GGUF, llama2.c and Hugging Face directories, and opened again. */
#include "kit.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "io/st_dtype.h"
#include "models/export.h"
#include "models/load.h"

static struct err err;
static char path[600];

#define SHAPE                                                                                      \
    "model.layers=2 model.dim=64 model.heads=4 model.kv_heads=2 model.ffn=96 model.vocab=40 "      \
    "model.max_seq=32 "

/* One directory per test; each test runs in its own process. */
static const char *folder(void)
{
    static char dir[300];
    if (!dir[0])
        snprintf(dir, sizeof dir, "%s", t_tmpdir());
    return dir;
}

static const char *at(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", folder(), name);
    return path;
}

static struct model *make(const char *options)
{
    char all[500];
    snprintf(all, sizeof all, SHAPE "%s", options);
    struct model *m = kit_model(all, 3, 16, MODEL_INFERENCE, 0);
    for (int i = 0; i < m->params.n; i++)
        m->params.p[i].train = 1; /* kit_shake moves these */
    kit_shake(m, 0.1, 4);
    return m;
}

static struct export_options as(uint32_t type)
{
    return (struct export_options){.type = type, .name = "x", .shard_bytes = 1 << 30};
}

typedef int writer(const struct export_source *s, const struct export_options *o, const char *path,
                   struct export_result *r, struct err *e);

static struct model *back(writer *write, const char *name, const struct model *m, uint32_t type)
{
    struct export_source s = {.m = m};
    struct export_options o = as(type);
    struct export_result r;
    struct model *b = NULL;
    struct stat st;
    at(name);
    if (write == export_hf)
        t_eq(mkdir(path, 0755), 0);
    t_ok(write(&s, &o, path, &r, &err), &err);
    if (write != export_hf) {
        t_eq(stat(path, &st), 0);
        t_eq(st.st_size, r.bytes);
    }
    t_ok(model_open(&b, path, NULL, MODEL_INFERENCE, &err), &err);
    return b;
}

static void same_values(const struct model *a, const struct model *b)
{
    t_eq(a->params.n, b->params.n);
    for (int i = 0; i < a->params.n; i++) {
        const struct param *p = &a->params.p[i];
        real *x = malloc(p->n * sizeof *x), *y = malloc(p->n * sizeof *y);
        t_str(p->name, b->params.p[i].name);
        t_eq(p->n, b->params.p[i].n);
        model_values(a, i, 0, (size_t)p->shape[0], x);
        model_values(b, i, 0, (size_t)p->shape[0], y);
        t_truef(kit_same(x, y, p->n), "%s differs", p->name);
        free(x);
        free(y);
    }
}

static const char *const shapes[] = {
    "model.method=dense",
    "model.method=dense model.tied=false",
    "model.method=dense model.head_dim=24 model.rope_theta=500000",
    "model.method=dense model.attn_bias=qkv",
    "model.method=dense model.attn_bias=true model.mlp_bias=true",
    "model.method=dense model.rope_scaling=llama3 model.rope_factor=32 model.rope_original=16",
    "model.method=dense model.experts=4 model.expert_ffn=32",
    "model.method=dense model.experts=5 model.experts_used=3 model.expert_ffn=32 "
    "model.experts_norm=false model.shared_ffn=64 model.shared_gate=true model.attn_bias=qkv "
    "model.tied=false",
};

T(gguf_round_trips_every_weight)
{
    for (size_t i = 0; i < DS_LEN(shapes); i++) {
        struct model *m = make(shapes[i]), *b = back(export_gguf, "m.gguf", m, GGUF_T_F32);
        same_values(m, b);
        t_eq(b->config.attn_bias, m->config.attn_bias);
        t_eq(b->config.rope_scaling, m->config.rope_scaling);
        t_near(b->config.rope_factor, m->config.rope_scaling ? 32 : 8, 0);
        t_eq(b->config.rope_original, m->config.rope_scaling ? 16 : 8192);
        t_near(b->config.rope_theta, m->config.rope_theta, 0);
        t_near(b->config.norm_eps, m->config.norm_eps, 1e-12);
        t_eq(b->config.experts_used, m->config.experts > 0 ? m->config.experts_used : 2);
        t_eq(b->config.experts > 0 && b->config.experts_norm,
             m->config.experts > 0 && m->config.experts_norm);
        t_eq(b->config.shared_ffn, m->config.shared_ffn);
        model_free(m);
        model_free(b);
    }
}

T(interleaved_pairs_are_distinguished_from_half_split_ones)
{
    struct model *m = make("model.method=dense model.position=rope_interleaved"), *b;
    b = back(export_gguf, "m.gguf", m, GGUF_T_F32);
    struct kit_batch k;
    struct pass pass = kit_pass(PASS_DENSE);
    real *x = malloc(40 * sizeof *x), *y = malloc(40 * sizeof *y);
    kit_fill(&k, 1, 12, 40, 5);
    t_ok(model_reserve(b, 16, MODEL_INFERENCE, 0, &err), &err);
    model_forward(m, &k.b, &pass);
    model_logits(m, 11, x);
    model_forward(b, &k.b, &pass);
    model_logits(b, 11, y);
    for (int v = 0; v < 40; v++)
        t_near(y[v], x[v], 1e-5);
    free(x);
    free(y);
    model_free(m);
    model_free(b);
}

T(llama2c_round_trips_every_weight)
{
    for (int i = 0; i < 2; i++) {
        struct model *m = make(shapes[i]), *b = back(export_llama2c, "m.bin", m, GGUF_T_F32);
        same_values(m, b);
        model_free(m);
        model_free(b);
    }
}

T(directories_round_trip_every_weight)
{
    static const char *const more[] = {
        "model.norm=layer model.position=learned model.mlp=gelu_tanh model.attn_bias=true "
        "model.mlp_bias=true model.kv_heads=4 model.method=dense",
        "model.method=edp model.layers=8",
        "model.method=hat model.lora_r=4",
    };
    char name[32];
    for (size_t i = 0; i < DS_LEN(shapes) + DS_LEN(more); i++) {
        struct model *m = make(i < DS_LEN(shapes) ? shapes[i] : more[i - DS_LEN(shapes)]);
        snprintf(name, sizeof name, "d%zu", i);
        struct model *b = back(export_hf, name, m, GGUF_T_F32);
        same_values(m, b);
        t_str(b->config.method, m->config.method);
        model_free(m);
        model_free(b);
    }
}

T(a_bf16_directory_declares_its_type_and_keeps_bf16_values)
{
    struct model *m = make("model.method=dense"), *b = back(export_hf, "one", m, GGUF_T_BF16);
    struct str config = {0};
    t_ok(fs_read_file(&config, at("one/config.json"), 1 << 20, &err), &err);
    t_true(strstr(config.p, "\"torch_dtype\": \"bfloat16\"") != NULL);
    str_release(&config);
    struct model *c = back(export_hf, "two", b, GGUF_T_BF16),
                 *g = back(export_gguf, "b.gguf", b, GGUF_T_BF16);
    same_values(b, c);
    same_values(b, g);
    model_free(m);
    model_free(b);
    model_free(c);
    model_free(g);
}

T(large_directories_are_sharded_with_an_index)
{
    struct model *m = make("model.method=dense"), *b = NULL;
    struct export_source s = {.m = m};
    struct export_options o = as(GGUF_T_F32);
    struct export_result r;
    struct json *j = NULL;
    o.shard_bytes = 40000;
    t_eq(mkdir(at("s"), 0755), 0);
    t_ok(export_hf(&s, &o, path, &r, &err), &err);
    t_truef(r.files > 3, "%d files", (int)r.files);
    t_ok(model_open(&b, path, NULL, MODEL_INFERENCE, &err), &err);
    same_values(m, b);
    t_ok(json_read_file(&j, at("s/model.safetensors.index.json"), 1 << 20, &err), &err);
    const struct json_node *root = json_root(j);
    t_eq(json_int(json_get(json_get(root, "metadata"), "total_size"), 0), r.bytes);
    t_eq(json_len(json_get(root, "weight_map")), r.tensors);
    json_free(j);
    model_free(m);
    model_free(b);
}

/* The rows in the file must equal the output of quant_encode_row. */
static void check_blocks(const struct model *m, const struct gguf *g, const char *theirs,
                         const char *ours, int head_dim)
{
    const struct gguf_tensor *t = gguf_find(g, theirs);
    int i = params_find(&m->params, ours);
    t_true(t && i >= 0);
    const struct param *p = &m->params.p[i];
    size_t C = (size_t)p->shape[1], bytes = quant_row_bytes(QUANT_Q8_0, (int)C);
    real *w = malloc(C * sizeof *w);
    unsigned char *want = malloc(bytes);
    t_str(t->type_name, "Q8_0");
    for (size_t r = 0; r < (size_t)p->shape[0]; r++) {
        size_t D = head_dim ? (size_t)head_dim : 1, d = r % D;
        model_values(m, i, head_dim ? r - d + d / 2 + d % 2 * (D / 2) : r, 1, w);
        t_eq(quant_encode_row(QUANT_Q8_0, w, (int)C, want), 0);
        t_truef(memcmp(want, t->data + r * bytes, bytes) == 0, "%s row %zu", theirs, r);
    }
    free(w);
    free(want);
}

T(blocks_come_from_the_encoder_and_are_copied_unchanged_between_files)
{
    struct model *m = make("model.method=dense"), *b = back(export_gguf, "q.gguf", m, GGUF_T_Q8_0);
    struct gguf *g = NULL;
    struct str one = {0}, two = {0};
    t_ok(gguf_open(&g, path, &err), &err);
    check_blocks(m, g, "token_embd.weight", "model.embed_tokens.weight", 0);
    check_blocks(m, g, "blk.1.attn_q.weight", "model.layers.1.self_attn.q_proj.weight", 16);
    check_blocks(m, g, "blk.1.attn_v.weight", "model.layers.1.self_attn.v_proj.weight", 0);
    t_str(gguf_find(g, "blk.0.attn_norm.weight")->type_name, "F32");
    gguf_close(g);
    t_ok(fs_read_file(&one, path, 1 << 24, &err), &err);
    struct model *c = back(export_gguf, "q2.gguf", b, GGUF_T_Q8_0);
    t_ok(fs_read_file(&two, path, 1 << 24, &err), &err);
    t_true(one.len == two.len && memcmp(one.p, two.p, one.len) == 0);
    str_release(&one);
    str_release(&two);
    model_free(m);
    model_free(b);
    model_free(c);
}

/* A layer's experts are one tensor, each of them a part of it. */
T(experts_are_quantised_and_copied_as_parts_of_a_stack)
{
    struct model *m = make("model.method=dense model.experts=3 model.expert_ffn=32"),
                 *b = back(export_gguf, "q.gguf", m, GGUF_T_Q8_0);
    struct gguf *g = NULL;
    struct str one = {0}, two = {0};
    size_t bytes = 32 * quant_row_bytes(QUANT_Q8_0, 64);
    unsigned char want[34 * 2];
    real w[64];
    t_ok(gguf_open(&g, path, &err), &err);
    const struct gguf_tensor *up = gguf_find(g, "blk.1.ffn_up_exps.weight");
    t_true(up && up->rank == 3 && up->shape[0] == 3 && up->shape[1] == 32 && up->shape[2] == 64);
    t_str(up->type_name, "Q8_0");
    t_str(gguf_find(g, "blk.1.ffn_gate_inp.weight")->type_name, "F32");
    int i = params_find(&m->params, "model.layers.1.mlp.experts.2.up_proj.weight");
    for (size_t r = 0; r < 32; r++) {
        model_values(m, i, r, 1, w);
        t_eq(quant_encode_row(QUANT_Q8_0, w, 64, want), 0);
        t_true(memcmp(want, up->data + 2 * bytes + r * sizeof want, sizeof want) == 0);
    }
    t_ok(weights_use(b, &(struct numeric_options){.weights = WEIGHTS_AUTO}, &err), &err);
    t_true(b->weights.v[i].quant && !b->weights.v[b->block[1].router].quant);
    gguf_close(g);
    t_ok(fs_read_file(&one, path, 1 << 24, &err), &err);
    struct model *c = back(export_gguf, "q2.gguf", b, GGUF_T_Q8_0);
    t_ok(fs_read_file(&two, path, 1 << 24, &err), &err);
    t_true(one.len == two.len && memcmp(one.p, two.p, one.len) == 0);
    str_release(&one);
    str_release(&two);
    model_free(m);
    model_free(b);
    model_free(c);
}

T(rows_that_are_not_whole_blocks_fall_back)
{
    struct model *m =
        kit_model(SHAPE "model.method=dense model.dim=96 model.ffn=104", 3, 16, MODEL_INFERENCE, 0);
    struct export_source s = {.m = m};
    struct export_options o = as(GGUF_T_Q8_0);
    struct export_result r;
    struct model *b = NULL;
    t_ok(export_gguf(&s, &o, at("f.gguf"), &r, &err), &err);
    t_eq(r.fallback_n, 2); /* down_proj of two layers: rows of 104 */
    t_str(r.fallback, "f16");
    t_ok(model_open(&b, path, NULL, MODEL_INFERENCE, &err), &err);
    model_free(b);
    o.type = GGUF_T_Q4_K;
    t_ok(export_gguf(&s, &o, path, &r, &err), &err);
    t_eq(r.fallback_n, 15);
    t_str(r.fallback, "q8_0 and f16");
    model_free(m);
}

T(initial_weights_can_be_drawn_from_any_element)
{
    enum { N = 300000, CHUNK = 16384 };
    struct param p = {.name = "model.x", .n = N, .init = INIT_NORMAL, .scale = 0.02};
    real *all = malloc(N * sizeof *all), *part = malloc(N * sizeof *part);
    params_init_range(&p, 5, 0, N, all);
    for (uint32_t chunk = 0; chunk * CHUNK < N; chunk++) {
        struct rng r;
        rng_init(&r, 5, RNG_INIT, hash64(p.name, strlen(p.name), 0), chunk);
        for (size_t i = (size_t)chunk * CHUNK; i < (size_t)(chunk + 1) * CHUNK && i < N; i++) {
            real want = (real)(0.02 * rng_normal(&r));
            t_truef(memcmp(&want, &all[i], sizeof want) == 0, "element %zu", i);
        }
    }
    static const size_t begin[] = {0, 1, 63, 100, 16383, 16384, 250000}, n[] = {1, 64, 65, 20000};
    for (size_t b = 0; b < DS_LEN(begin); b++)
        for (size_t k = 0; k < DS_LEN(n); k++) {
            params_init_range(&p, 5, begin[b], n[k], part);
            t_true(kit_same(part, all + begin[b], n[k]));
        }
    p.init = INIT_CONST;
    p.step = 0.5;
    params_init_range(&p, 5, 3, 2, part);
    t_near(part[1], 0.02 + 4 * 0.5, 1e-6);
    free(all);
    free(part);
}

T(random_weights_equal_the_initial_weights_of_training)
{
    struct model_config c = {0};
    struct model *m =
        kit_model(SHAPE "model.method=dense model.vocab=700", 9, 16, MODEL_INFERENCE, 0);
    struct model *table = NULL, *b = NULL;
    struct export_options o = as(GGUF_T_F32);
    struct export_result r;
    t_ok(model_config_copy(&c, &m->config, &err), &err);
    t_ok(model_new_table(&table, &c, NULL, 9, MODEL_INFERENCE, &err), &err);
    struct export_source s = {.m = table, .is_random = 1, .seed = 9};
    t_ok(export_gguf(&s, &o, at("r.gguf"), &r, &err), &err);
    t_ok(model_open(&b, path, NULL, MODEL_INFERENCE, &err), &err);
    same_values(m, b);
    model_free(m);
    model_free(b);
    model_free(table);
}

static void refuse(writer *write, const char *options, uint32_t type, int code, const char *part)
{
    struct model *m = make(options);
    struct export_source s = {.m = m};
    struct export_options o = as(type);
    struct export_result r;
    err = (struct err){0};
    t_fails(write(&s, &o, at("no"), &r, &err), &err, code, part);
    t_truef(!fs_exists(path), "%s is there", path);
    model_free(m);
}

T(what_a_format_cannot_store_is_refused_by_name)
{
    refuse(export_gguf, "model.method=edp model.layers=8", GGUF_T_F32, DS_EUSAGE,
           "routing of method edp");
    refuse(export_gguf, "model.method=dense model.lora_r=4", GGUF_T_F32, DS_EUSAGE, "lora_r=4");
    refuse(export_gguf, "model.method=dense model.position=learned", GGUF_T_F32, DS_EUSAGE,
           "learned positions");
    refuse(export_gguf, "model.method=dense model.norm=layer", GGUF_T_F32, DS_EUSAGE, "a head tied");
    refuse(export_gguf, "model.method=dense model.rope_scaling=llama3 model.rope_low=2", GGUF_T_F32,
           DS_EUSAGE, "rope_low=2");
    refuse(export_llama2c, "model.method=dense model.attn_bias=qkv", GGUF_T_F32, DS_EUSAGE,
           "biases");
    refuse(export_llama2c, "model.method=dense model.head_dim=24", GGUF_T_F32, DS_EUSAGE,
           "4 * 24: must equal dim = 64");
    refuse(export_llama2c, "model.method=dense model.rope_theta=500000", GGUF_T_F32, DS_EUSAGE,
           "500000");
    refuse(export_llama2c, "model.method=dense model.experts=4", GGUF_T_F32, DS_EUSAGE, "experts");
    refuse(export_gguf, "model.method=dense model.experts=4 model.experts_norm=false", GGUF_T_F32,
           DS_EUSAGE, "no architecture of GGUF computes this model");
    refuse(export_llama2c, "model.method=dense model.norm_eps=1e-6", GGUF_T_F32, DS_EUSAGE,
           "1e-06");
}

T(the_base_of_a_routed_model_can_be_exported_alone)
{
    struct model *m = make("model.method=hat model.lora_r=4"), *b = NULL;
    struct export_source s = {.m = m, .base_only = 1};
    struct export_options o = as(GGUF_T_F32);
    struct export_result r;
    t_ok(export_gguf(&s, &o, at("b.gguf"), &r, &err), &err);
    t_ok(model_open(&b, path, NULL, MODEL_EDIT, &err), &err);
    t_eq(b->params.n, m->n_base);
    for (int i = 0; i < m->n_base; i++)
        t_true(kit_same(b->params.p[i].value, m->params.p[i].value, m->params.p[i].n));
    model_free(b);
    t_eq(mkdir(at("b"), 0755), 0);
    t_ok(export_hf(&s, &o, path, &r, &err), &err);
    t_ok(model_open(&b, path, NULL, MODEL_INFERENCE, &err), &err);
    t_str(b->config.method, "dense");
    t_eq(b->params.n, m->n_base);
    model_free(b);
    model_free(m);
}

T(values_out_of_a_type_s_range_name_their_tensor)
{
    struct model *m = make("model.method=dense");
    struct export_source s = {.m = m};
    struct export_result r;
    struct export_options o = as(GGUF_T_F16);
    m->params.p[m->block[1].up].value[5] = (real)70000;
    t_fails(export_gguf(&s, &o, at("v.gguf"), &r, &err), &err, DS_ERANGE,
            "layers.1.mlp.up_proj.weight: values out of range for F16");
    t_true(!fs_exists(path));
    m->params.p[m->block[1].up].value[5] = (real)NAN;
    o.type = GGUF_T_Q8_0;
    t_fails(export_gguf(&s, &o, path, &r, &err), &err, DS_ENUMERIC, "non-finite");
    model_free(m);
}

T(fp16_conversion_rounds_to_even_and_round_trips)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float x = st_half((uint16_t)h);
        if (x == x)
            t_eq(st_half_of(x), h);
    }
    t_eq(st_half_of(1 + 0x1p-11F), 0x3c00);
    t_eq(st_half_of(1 + 3 * 0x1p-11F), 0x3c02);
    t_eq(st_half_of(65519.9F), 0x7bff);
    t_eq(st_half_of(65520.0F), 0x7c00);
    t_eq(st_half_of(-0x1p-25F), 0x8000);
    t_eq(st_half_of(1.5F * 0x1p-25F), 0x0001);
    t_eq(st_half_of(NAN) & 0x7fff, 0x7e00);
}

/* ---- disks that fail ---- */

static struct fs_ops real_ops;
static int calls_left;

static ssize_t failing_write(int fd, const void *p, size_t n)
{
    if (calls_left-- <= 0) {
        errno = ENOSPC;
        return -1;
    }
    return real_ops.write(fd, p, n);
}

static int count_files(const char *dir)
{
    int n = 0;
    DIR *d = opendir(dir);
    while (d && readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

T(a_full_disk_leaves_nothing_behind)
{
    struct model *m = make("model.method=dense");
    struct export_source s = {.m = m};
    struct export_options o = as(GGUF_T_F32);
    struct export_result r;
    writer *const writers[] = {export_gguf, export_llama2c};
    real_ops = *fs_ops_get();
    struct fs_ops failing = real_ops;
    failing.write = failing_write;
    for (size_t w = 0; w < DS_LEN(writers); w++)
        for (int n = 0;; n++) {
            calls_left = n;
            fs_ops_set(&failing);
            int rc = writers[w](&s, &o, at("x"), &r, &err);
            fs_ops_set(NULL);
            if (rc == 0) {
                t_truef(n > 20, "only %d writes", n);
                unlink(path);
                break;
            }
            t_eq(rc, DS_EIO);
            t_truef(strstr(err.text, "No space left"), "%s", err.text);
            t_eq(count_files(folder()), 0);
        }
    model_free(m);
}

/* ---- a real one ---- */

T(logits_of_a_trained_model_are_the_same_through_gguf)
{
    struct model *m = NULL, *b;
    struct kit_batch k;
    struct pass pass = kit_pass(PASS_DENSE);
    t_ok(model_open(&m, t_shared("weights/TinyStories-656K-f32"), NULL, MODEL_INFERENCE, &err),
         &err);
    b = back(export_gguf, "t.gguf", m, GGUF_T_F32);
    int V = (int)m->config.vocab;
    real *x = malloc((size_t)V * sizeof *x), *y = malloc((size_t)V * sizeof *y);
    kit_fill(&k, 1, 64, V, 5);
    t_ok(model_reserve(m, 64, MODEL_INFERENCE, 0, &err), &err);
    t_ok(model_reserve(b, 64, MODEL_INFERENCE, 0, &err), &err);
    model_forward(m, &k.b, &pass);
    model_forward(b, &k.b, &pass);
    for (int row = 0; row < 64; row += 7) {
        model_logits(m, row, x);
        model_logits(b, row, y);
        t_truef(kit_same(x, y, (size_t)V), "row %d", row);
    }
    free(x);
    free(y);
    model_free(m);
    model_free(b);
}
