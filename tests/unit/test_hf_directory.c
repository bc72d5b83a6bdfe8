/* Published weight directories: shards, tied heads, other names and layouts, and their errors. */
#include "base/fs.h"
#include "base/log.h"
#include "io/st_set.h"
#include "kit.h"
#include "models/load.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SHAPE                                                                                      \
    "model.method=dense model.layers=2 model.dim=8 model.heads=2 model.vocab=16 model.ffn=12 "
#define GPT2                                                                                       \
    SHAPE "model.norm=layer model.position=learned model.attn_bias=true model.mlp_bias=true "      \
          "model.mlp=gelu_tanh model.max_seq=12 "

enum { TENSORS = 64 };

static const char *in(const char *dir, const char *name)
{
    static char path[4][1100];
    static int turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

static void put(const char *dir, const char *name, const char *text, size_t n)
{
    struct err e = {0};
    t_ok(fs_write_file(in(dir, name), text, n, &e), &e);
}

static struct st_out tensor(const struct param *p)
{
    return (struct st_out){.name = p->name,
                           .dtype = ST_F32,
                           .rank = p->rank,
                           .shape = {(uint64_t)p->shape[0], (uint64_t)p->shape[1]},
                           .data = p->value};
}

static struct model *shaken(const char *options, const char *dir)
{
    struct err e = {0};
    struct model *m = kit_model(options, 5, 8, 1, 0);
    kit_shake(m, 0.3, 11);
    t_ok(model_write_config(m, in(dir, "config.json"), &e), &e);
    return m;
}

/* ---- shards ---- */

/* Tensors [from, to) of m, and `also` once more. */
static void write_shard(const struct model *m, const char *dir, const char *name, int from, int to,
                        int also)
{
    struct st_out t[TENSORS];
    struct err e = {0};
    size_t n = 0;
    for (int i = from; i < to; i++)
        t[n++] = tensor(&m->params.p[i]);
    if (also >= 0)
        t[n++] = tensor(&m->params.p[also]);
    t_ok(st_write(in(dir, name), t, n, NULL, 0, &e), &e);
}

/* Tensors below `split` are in a.safetensors, the rest in b.safetensors; the last `hidden` ones are not listed. */
static void write_index(const struct model *m, const char *dir, int split, int hidden,
                        const char *more)
{
    struct str s = {0};
    str_add(&s, "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {");
    for (int i = 0; i < m->params.n - hidden; i++)
        str_addf(&s, "%s\"%s\": \"%s.safetensors\"", i ? ", " : "", m->params.p[i].name,
                 i < split ? "a" : "b");
    str_addf(&s, "%s}}", more);
    put(dir, "model.safetensors.index.json", s.p, s.len);
    str_release(&s);
}

T(shards_open_as_one_model)
{
    const char *dir = t_tmpdir();
    struct err e = {0};
    struct str told = {0};
    struct model *m = shaken(SHAPE, dir), *back = NULL;
    write_shard(m, dir, "a.safetensors", 0, 7, -1);
    write_shard(m, dir, "b.safetensors", 7, m->params.n, -1);
    write_index(m, dir, 7, 0, "");
    t_ok(model_open(&back, dir, NULL, MODEL_INFERENCE, &e), &e);
    kit_same_params(m, back);
    t_ok(model_tensor_match(dir, &told, &e), &e);
    t_str(str_text(&told), "weights: 20 tensors used, 0 missing, 0 unexpected, in 2 shards\n");
    params_init(&back->params, 3);
    t_ok(model_start_from(back, dir, &told, &e), &e);
    kit_same_params(m, back);
    str_release(&told);
    model_free(back);
    model_free(m);
}

static char said[ERR_TEXT_MAX];

static void shards_fail(const char *dir, int code, const char *part)
{
    struct err e = {0};
    struct st_set *s = NULL;
    t_fails(st_set_open(&s, dir, &e), &e, code, part);
    t_true(strstr(e.text, "index.json") && !strchr(e.text, '\n'));
    snprintf(said, sizeof said, "%s", e.text);
}

T(an_index_that_disagrees_with_its_shards_is_refused_in_one_line)
{
    const char *dir = t_tmpdir();
    struct model *m = shaken(SHAPE, dir);
    int n = m->params.n;
    write_shard(m, dir, "a.safetensors", 0, 7, -1);
    write_index(m, dir, 7, 0, "");
    shards_fail(dir, DS_ENOTFOUND,
                "shard b.safetensors is missing (expected to hold "
                "model.layers.0.mlp.gate_proj.weight)");
    unlink(in(dir, "a.safetensors"));
    shards_fail(dir, DS_ENOTFOUND,
                "2 missing shards: a.safetensors is missing (expected to hold "
                "model.embed_tokens.weight), b.safetensors is missing (expected to hold "
                "model.layers.0.mlp.gate_proj.weight)");
    write_shard(m, dir, "a.safetensors", 0, 7, -1);
    write_shard(m, dir, "b.safetensors", 7, n, 2);
    shards_fail(dir, DS_EFORMAT,
                "tensor model.layers.0.self_attn.q_proj.weight is in two shards, a.safetensors and "
                "b.safetensors");
    write_shard(m, dir, "b.safetensors", 1, n, -1);
    shards_fail(dir, DS_EFORMAT, "6 duplicate tensors: model.layers.0.input_layernorm.weight is");
    t_true(strstr(said, "in two shards, a.safetensors and b.safetensors, ") &&
           strstr(said, ", ..."));
    write_shard(m, dir, "b.safetensors", 7, n - 1, -1);
    shards_fail(dir, DS_EFORMAT,
                "tensor model.norm.weight is missing from its shard b.safetensors");
    write_shard(m, dir, "b.safetensors", 7, n, -1);
    write_index(m, dir, 8, 0, "");
    shards_fail(dir, DS_EFORMAT,
                "is in shard b.safetensors, expected a.safetensors from the index");
    write_index(m, dir, 7, 1, "");
    shards_fail(dir, DS_EFORMAT,
                "tensor model.norm.weight of shard b.safetensors is not in the index");
    model_free(m);
}

T(an_index_may_only_name_files_next_to_it)
{
    static const char *const names[] = {
        "\"../a.safetensors\"",
        "\"../../etc/passwd\"",
        "\"/etc/passwd\"",
        "\"\"",
        "3",
        "null",
        "\".\"",
        "\"..\"",
        "\".hidden\"",
        "\"a/../../b\"",
        "\"sub\\\\b\"",
        "[\"a.safetensors\"]",
    };
    const char *dir = t_tmpdir();
    char text[200];
    for (size_t i = 0; i < DS_LEN(names); i++) {
        snprintf(text, sizeof text, "{\"weight_map\": {\"x\": %s}}", names[i]);
        put(dir, "model.safetensors.index.json", text, strlen(text));
        shards_fail(dir, DS_EFORMAT, "must be the name of a file next to the index");
    }
    put(dir, "model.safetensors.index.json", "{\"weight_map\": {}}", 18);
    shards_fail(dir, DS_EFORMAT, "weight_map is missing");
    put(dir, "model.safetensors.index.json", "[1]", 3);
    shards_fail(dir, DS_EFORMAT, "weight_map is missing");
    put(dir, "model.safetensors.index.json", "{", 1);
    shards_fail(dir, DS_EFORMAT, "");
}

/* ---- heads ---- */

static int open_with(const struct model *m, const char *dir, int embed, const struct st_out *head,
                     struct model **out, struct err *e)
{
    struct st_out t[TENSORS];
    size_t n = 0;
    for (int i = 0; i < m->params.n; i++)
        if (i != m->embed || embed)
            t[n++] = tensor(&m->params.p[i]);
    if (head)
        t[n++] = *head;
    t_ok(st_write(in(dir, "model.safetensors"), t, n, NULL, 0, e), e);
    return model_open(out, dir, NULL, MODEL_INFERENCE, e);
}

T(a_tied_head_may_have_either_name_or_both)
{
    const char *dir = t_tmpdir();
    struct err e = {0};
    struct model *m = shaken(SHAPE, dir), *back = NULL;
    const struct param *embed = &m->params.p[m->embed];
    struct st_out head = tensor(embed);
    real *other = kit_copy(embed->value, embed->n);
    double wide[200];
    head.name = "lm_head.weight";
    for (int way = 1; way < 5;
         way++) { /* bit 0: the embedding; 2: the head; 3 both; 4 both, in two types */
        if (way == 4) {
            for (size_t i = 0; i < embed->n; i++)
                wide[i] = (double)embed->value[i];
            head.dtype = ST_F64;
            head.data = wide;
        }
        t_ok(open_with(m, dir, way != 2, way > 1 ? &head : NULL, &back, &e), &e);
        kit_same_params(m, back);
        model_free(back);
        back = NULL;
    }
    head.dtype = ST_F32;
    head.data = other;
    other[embed->n - 1] += 1;
    t_fails(open_with(m, dir, 1, &head, &back, &e), &e, DS_EFORMAT,
            "lm_head.weight differs from model.embed_tokens.weight, but the configuration ties");
    t_fails(open_with(m, dir, 0, NULL, &back, &e), &e, DS_EFORMAT,
            "19 tensors used, 1 missing (model.embed_tokens.weight), 0 unexpected");
    free(other);
    model_free(m);
}

/* ---- other names and layouts ---- */

T(gpt2_is_written_and_read_in_its_own_layout)
{
    const char *dir = t_tmpdir();
    struct err e = {0};
    struct st *s = NULL;
    struct model *m = shaken(GPT2, dir), *back = NULL;
    t_ok(model_write_weights(m, in(dir, "model.safetensors"), 0, &e), &e);
    t_ok(st_open(&s, in(dir, "model.safetensors"), &e), &e);
    t_eq(st_count(s), 2 + 2 * 12 + 2);
    const struct st_tensor *t = st_find(s, "transformer.h.1.attn.c_attn.weight");
    t_true(t && t->rank == 2 && t->shape[0] == 8 && t->shape[1] == 24);
    const real *v = m->params.p[m->block[1].v].value;
    float all[8 * 24];
    t_ok(st_read_f32(t, all, 8 * 24, &e), &e);
    for (int i = 0; i < 8; i++)
        for (int o = 0; o < 8; o++)
            t_true(all[i * 24 + 16 + o] == (float)v[o * 8 + i]);
    st_close(s);
    t_ok(model_open(&back, dir, NULL, MODEL_INFERENCE, &e), &e);
    kit_same_params(m, back);
    model_free(back);
    model_free(m);
}

T(bodies_without_a_prefix_and_buffers_are_read)
{
    const char *dir = t_tmpdir();
    struct err e = {0};
    struct model *m = shaken(SHAPE, dir), *back = NULL;
    struct st_out t[TENSORS];
    float frequencies[2] = {1, 2};
    size_t n = 0;
    for (int i = 0; i < m->params.n; i++) {
        t[n] = tensor(&m->params.p[i]);
        t[n++].name += strlen("model.");
    }
    t[n++] = (struct st_out){.name = "layers.0.self_attn.rotary_emb.inv_freq",
                             .dtype = ST_F32,
                             .rank = 1,
                             .shape = {2},
                             .data = frequencies};
    t_ok(st_write(in(dir, "model.safetensors"), t, n, NULL, 0, &e), &e);
    t_ok(model_open(&back, dir, NULL, MODEL_INFERENCE, &e), &e);
    kit_same_params(m, back);
    model_free(back);
    model_free(m);
}

/* ---- what does not fit ---- */

T(a_mismatched_config_names_both_shapes)
{
    const char *dir = t_tmpdir();
    struct err e = {0};
    struct str told = {0};
    struct model *m = shaken(SHAPE, dir), *back = NULL;
    t_ok(model_write_weights(m, in(dir, "model.safetensors"), 0, &e), &e);
    model_free(shaken(SHAPE "model.ffn=14 ", dir));
    t_fails(model_open(&back, dir, NULL, MODEL_INFERENCE, &e), &e, DS_EFORMAT,
            "tensor model.layers.0.mlp.gate_proj.weight: shape [12,8], expected [14,8] from the "
            "model's configuration");
    t_ok(model_tensor_match(dir, &told, &e), &e);
    t_true(
        strstr(str_text(&told), "20 tensors used, 0 missing, 0 unexpected\n") &&
        strstr(str_text(&told), "shape [12,8], expected [14,8] from the model's configuration\n"));
    model_free(shaken(SHAPE "model.layers=1 ", dir));
    t_fails(model_open(&back, dir, NULL, MODEL_INFERENCE, &e), &e, DS_EFORMAT,
            "11 tensors used, 0 missing, 9 unexpected (model.layers.1.");
    model_free(shaken(SHAPE "model.layers=3 model.attn_bias=qkv ", dir));
    t_fails(model_open(&back, dir, NULL, MODEL_INFERENCE, &e), &e, DS_EFORMAT,
            "20 tensors used, 18 missing (model.layers.0.self_attn.q_proj.bias, ");
    str_release(&told);
    model_free(m);
}

/* Files of a mixture of experts. */
T(missing_and_extra_experts_and_routers_with_nan_are_refused_in_one_line)
{
    struct err e = {0};
    struct st_out t[TENSORS];
    struct model *back = NULL;
    char dir[1024];
    str_copy(dir, sizeof dir, t_tmpdir());
    struct model *m = shaken(SHAPE "model.experts=3 model.experts_used=2 model.expert_ffn=4", dir);
    for (int bad = 0; bad < 4; bad++) {
        size_t n = 0;
        for (int i = 0; i < m->params.n; i++)
            if (bad != 1 || i != m->block[1].expert + 3)
                t[n++] = tensor(&m->params.p[i]);
        if (bad == 2) {
            t[n] = t[n - 1];
            t[n++].name = "model.layers.1.mlp.experts.3.up_proj.weight";
        }
        if (bad == 3)
            m->params.p[m->block[1].router].value[9] = NAN;
        t_ok(st_write(in(dir, "model.safetensors"), t, n, NULL, 0, &e), &e);
        int rc = model_open(&back, dir, NULL, MODEL_INFERENCE, &e);
        static const char *const parts[] = {
            "", "1 missing (model.layers.1.mlp.experts.1.gate_proj.weight), 0 unexpected",
            "0 missing, 1 unexpected (model.layers.1.mlp.experts.3.up_proj.weight)",
            "model.safetensors: tensor model.layers.1.mlp.gate.weight: non-finite value at [1,1]"};
        t_truef((rc == 0) == (bad == 0) && strstr(e.text, parts[bad]) && !strchr(e.text, '\n'),
                "%d: %s", bad, e.text);
        if (rc == 0) {
            kit_same_params(back, m);
            model_free(back);
        }
    }
    model_free(m);
}

T(a_vocabulary_other_than_the_embedding_names_both_shapes) /* A22 */
{
    const char *dir = t_tmpdir();
    struct err e = {0};
    struct model *m = shaken(SHAPE, dir), *back = NULL;
    t_ok(model_write_weights(m, in(dir, "model.safetensors"), 0, &e), &e);
    model_free(shaken(SHAPE "model.vocab=20 ", dir));
    t_fails(model_open(&back, dir, NULL, MODEL_INFERENCE, &e), &e, DS_EFORMAT,
            "tensor model.embed_tokens.weight: shape [16,8], expected [20,8] from the model's "
            "configuration");
    model_free(m);
}

/* A configuration of layers without tensors is refused quickly, before allocation. */
T(a_config_of_thousands_of_layers_is_refused_soon)
{
    const char *dir = t_tmpdir();
    struct err e = {0};
    struct model *m = shaken(SHAPE, dir), *back = NULL;
    t_ok(model_write_weights(m, in(dir, "model.safetensors"), 0, &e), &e);
    static const char text[] = "{\"model_type\": \"llama\", \"hidden_size\": 8, "
                               "\"num_hidden_layers\": 4096, \"num_attention_heads\": 2, "
                               "\"intermediate_size\": 12, \"vocab_size\": 16, "
                               "\"tie_word_embeddings\": true}";
    put(dir, "config.json", text, sizeof text - 1);
    clock_t begin = clock();
    t_fails(model_open(&back, dir, NULL, MODEL_INFERENCE, &e), &e, DS_EFORMAT,
            "20 tensors used, 36846 missing (model.layers.2.");
    double took = (double)(clock() - begin) / CLOCKS_PER_SEC;
    t_truef(took < (getenv("T_SLOW_FACTOR") ? 40 : 5), "%.1f s", took);
    model_free(m);
}

static int warnings;
static char warned[600];

static void hear(void *ctx, enum log_level level, const char *text)
{
    (void)ctx;
    if (level == LOG_WARN && warnings++ == 0)
        snprintf(warned, sizeof warned, "%s", text);
}

T(non_finite_values_are_counted_per_tensor) /* A18 */
{
    const char *dir = t_tmpdir();
    struct err e = {0};
    struct model *m = shaken(SHAPE, dir), *back = NULL;
    real *w = m->params.p[m->embed].value;
    w[3] = (real)NAN;
    w[9] = (real)INFINITY;
    w[11] = (real)-INFINITY;
    m->params.p[m->block[1].down].value[0] = (real)NAN;
    t_ok(model_write_weights(m, in(dir, "model.safetensors"), 0, &e), &e);
    log_to(hear, NULL);
    t_ok(model_open(&back, dir, NULL, MODEL_EDIT, &e), &e);
    t_eq(warnings, 2);
    model_free(back);
    t_ok(model_open(&back, dir, NULL, MODEL_INFERENCE, &e), &e);
    t_ok(weights_use(back, &(struct numeric_options){.compute = COMPUTE_FP32}, &e), &e);
    t_ok(weights_ready(back, &e), &e);
    log_to(NULL, NULL);
    t_eq(warnings, 4);
    t_truef(strstr(warned, "tensor model.embed_tokens.weight holds 3 non-finite values"), "%s",
            warned);
    model_free(back);
    model_free(m);
}

T(pickled_weights_are_refused)
{
    static const struct {
        const char *name, *bytes;
        size_t n;
    } of[] = {
        {"pytorch_model.bin", "PK\3\4abcdefgh", 12},
        {"pytorch_model.bin.index.json", "{}", 2},
        {"consolidated.00.pth", "\x80\2abc", 5},
    };
    struct err e = {0};
    struct st_set *s = NULL;
    const char *dir = t_tmpdir();
    char found[1024];
    for (size_t i = 0; i < DS_LEN(of); i++) {
        put(dir, of[i].name, of[i].bytes, of[i].n);
        t_fails(st_set_open(&s, dir, &e), &e, DS_EFORMAT,
                i < 2 ? "can execute code and are not loaded; in its directory run python3 -c \""
                      : "can execute code and are not loaded; convert them to safetensors");
        t_truef(i == 2 || strstr(e.text, "'model.safetensors')\""), "truncated: %s", e.text);
        if (!strstr(of[i].name, ".json"))
            t_fails(model_locate(in(dir, of[i].name), found, sizeof found, &e), &e, DS_EFORMAT,
                    "convert it to safetensors");
        unlink(in(dir, of[i].name));
    }
    t_fails(st_set_open(&s, dir, &e), &e, DS_ENOTFOUND, "neither model.safetensors nor");
}

/* The low bytes of a header length are arbitrary; a pickle begins with 0x80 and its protocol
 * number. */
T(a_header_length_that_looks_like_a_pickle_is_read)
{
    const char *dir = t_tmpdir();
    struct err e = {0};
    struct st *s = NULL;
    for (int protocol = 2; protocol <= 5; protocol++) {
        char file[2000] = {0};
        size_t n = 0x80 + 256 * (size_t)protocol;
        file[0] = (char)0x80;
        file[1] = (char)protocol;
        memset(file + 8, ' ', n);
        memcpy(file + 8, "{}", 2);
        put(dir, "x.safetensors", file, 8 + n);
        t_ok(st_open(&s, in(dir, "x.safetensors"), &e), &e);
        st_close(s);
    }
}

/* A file with a hole for its data: only its header is written. */
static void write_sparse(const char *path, const struct model *m)
{
    struct str h = {0};
    uint64_t at = 0;
    for (int i = 0; i < m->params.n; i++) {
        const struct param *p = &m->params.p[i];
        str_addf(&h, "%s\"%s\": {\"dtype\": \"BF16\", \"shape\": [%d%s%.0d], ", i ? ", " : "{",
                 p->name, p->shape[0], p->rank > 1 ? ", " : "", p->rank > 1 ? p->shape[1] : 0);
        str_addf(&h, "\"data_offsets\": [%llu, %llu]}", (unsigned long long)at,
                 (unsigned long long)(at + 2 * p->n));
        at += 2 * p->n;
    }
    str_add(&h, "}");
    unsigned char length[8] = {0};
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)h.len >> 8 * i);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    t_true(fd >= 0 && write(fd, length, 8) == 8 && write(fd, h.p, h.len) == (ssize_t)h.len);
    int rc = ftruncate(fd, (off_t)(8 + h.len + at));
    close(fd);
    if (rc != 0)
        t_skip("the file system keeps no file of %.0f GB", (double)at / 1e9);
    t_skip_without_room(8 + h.len + at);
    str_release(&h);
}

T(a_model_larger_than_memory_is_refused_with_both_sizes)
{
    static const char text[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 65536, \"num_hidden_layers\": 1, "
        "\"num_attention_heads\": 1, \"head_dim\": 2, \"intermediate_size\": 1, "
        "\"vocab_size\": 4194304, \"tie_word_embeddings\": true}";
    const char *dir = t_tmpdir();
    struct err e = {0};
    struct model *m = NULL, *none = NULL;
    put(dir, "config.json", text, sizeof text - 1);
    t_ok(model_open_table(&m, dir, NULL, MODEL_INFERENCE, &e), &e);
    write_sparse(in(dir, "model.safetensors"), m);
    t_fails(model_open(&none, dir, NULL, MODEL_EDIT, &e), &e, DS_EMEM,
            "out of memory: 274878824448 parameters need 1.10TB, ");
    t_true(strstr(e.text, "B available") != NULL);
    t_ok(model_open(&none, dir, NULL, MODEL_INFERENCE, &e), &e); /* its matrices stay in the file */
    t_fails(weights_use(none, &(struct numeric_options){.compute = COMPUTE_BF16}, &e), &e, DS_EMEM,
            "out of memory: weights need ");
    t_true(strstr(e.text, "B available") != NULL);
    model_free(none);
    unlink(in(dir, "model.safetensors"));
    model_free(m);
}

/* File-backed matrices are copied from the file: a file that has changed must not be exported. */
T(a_base_that_changed_in_its_file_is_not_written_again)
{
    const char *dir = t_tmpdir();
    struct err e = {0};
    struct model *m = shaken(SHAPE, dir), *back = NULL;
    t_ok(model_write_weights(m, in(dir, "model.safetensors"), 0, &e), &e);
    t_ok(model_open(&back, dir, NULL, MODEL_INFERENCE, &e), &e);
    t_ok(model_write_weights(back, in(dir, "copy.safetensors"), 0, &e), &e);
    FILE *f = fopen(in(dir, "model.safetensors"), "r+b");
    t_true(f && fseek(f, -4, SEEK_END) == 0 && fputs("abcd", f) >= 0 && fclose(f) == 0);
    const struct timespec later[2] = {{.tv_nsec = UTIME_NOW}, {.tv_sec = 2000000000}};
    t_true(utimensat(AT_FDCWD, in(dir, "model.safetensors"), later, 0) == 0);
    t_fails(model_write_weights(back, in(dir, "copy.safetensors"), 0, &e), &e, DS_EFORMAT,
            "changed since it was opened");
    model_free(back);
    model_free(m);
}
