/* Options, shapes, memory estimate and results of the benchmark. */
#include "eval/speed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/ranks.h"
#include "base/rng.h"
#include "base/statistics.h"
#include "base/str.h"
#include "models/load.h"
#include "speed_impl.h"

const double speed_ratios[SPEED_RATIOS] = {1, 0.75, 0.5, 0.25};

#define AT(field) offsetof(struct speed_options, field)
static const struct opt speed_opts[] = {
    // clang-format off
    {"quick",   OPT_BOOL, AT(quick),   "false", 0, 0, NULL, "small model and few rounds: seconds instead of a minute", NULL},
    {"only",    OPT_STRING, AT(only),  "",    0, 0, NULL, "groups (peaks, load, ops, sample, blocks, train, prefill, decode, speculate, ranks) or parts of names to measure, separated by commas", NULL},
    {"shape",   OPT_ENUM, AT(shape),   "default", 0, 0, "default|small|big|1.1b", "small, big: 6 x 256 and 12 x 512 as GPT-2 (batch 8 x 256); 1.1b: 22 x 2048 as Llama; model.* keys override it", NULL},
    NUMERIC_OPTS(AT(numbers)),
    {"rounds",  OPT_INT,  AT(rounds),  "0",   0, SPEED_ROUNDS_MAX, NULL, "measurement rounds; 0 = 5 (quick: 3)", NULL},
    {"layers",  OPT_INT,  AT(layers),  "0",   0, 256, NULL, "layers of the model; 0 = by shape, 8", NULL},
    {"dim",     OPT_INT,  AT(dim),     "0",   0, 16384, NULL, "width of the model; 0 = by shape, 192 (quick: 96)", NULL},
    {"heads",   OPT_INT,  AT(heads),   "0",   0, 512, NULL, "attention heads of the model; 0 = by shape, by dim", NULL},
    {"vocab",   OPT_INT,  AT(vocab),   "0",   0, 1 << 20, NULL, "vocabulary size of the model; 0 = by shape, 2048", NULL},
    {"prefill", OPT_INT,  AT(prefill), "512", 16, 32768, NULL, "tokens per prefill", NULL},
    {"decode",  OPT_INT,  AT(decode),  "16",  1, 4096, NULL, "tokens decoded one by one after the prefill", NULL},
    {"batch",   OPT_INT,  AT(batch),   "0",   0, 1024, NULL, "sequences per training step; 0 = by shape, 4", NULL},
    {"seq",     OPT_INT,  AT(seq),     "0",   0, 32768, NULL, "tokens per training sequence; 0 = by shape, 128", NULL},
    {"threads", OPT_INT,  AT(threads), "0",   0, 4096, NULL, "worker threads; 0 = as many as CPU affinity and quota allow", NULL},
    // clang-format on
};
const struct opt_group speed_group = {
    .prefix = "", .title = "bench", .opts = speed_opts, .n = DS_LEN(speed_opts)};

/* ---- shapes ---- */

static const struct shape {
    int64_t layers, dim, heads, vocab, batch, seq;
    const char *keys; /* further "key=value" words */
} shapes[] = {
    {8, 0, 0, 2048, 4, 128, ""},
    {6, 256, 4, 4096, 8, 256,
     "model.ffn=1024 model.norm=layer model.mlp=gelu_tanh model.position=learned "
     "model.attn_bias=true model.mlp_bias=true model.tied=true"},
    {12, 512, 8, 32000, 8, 256,
     "model.ffn=2048 model.norm=layer model.mlp=gelu_tanh model.position=learned "
     "model.attn_bias=true model.mlp_bias=true model.tied=true"},
    {22, 2048, 32, 32000, 1, 512,
     "model.kv_heads=4 model.ffn=5632 model.norm=rms model.mlp=swiglu model.position=rope "
     "model.tied=false"},
};

static int set_number(struct config *c, const char *key, int64_t v, struct err *e)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)v);
    return config_set(c, key, text, "bench", e);
}

static int set_words(struct config *c, const char *words, struct err *e)
{
    char word[64];
    int rc = 0;
    while (*words && rc == 0) {
        size_t n = strcspn(words, " ");
        snprintf(word, sizeof word, "%.*s", (int)n, words);
        rc = config_override(c, word, "shape", e);
        words += n + strspn(words + n, " ");
    }
    return rc;
}

static void fill_sizes(struct speed_options *o)
{
    const struct shape *p = &shapes[o->shape];
    o->rounds = o->rounds ? o->rounds : o->quick ? 3 : 5;
    o->layers = o->layers ? o->layers : p->layers;
    if (o->dim == 0)
        o->dim = p->dim ? p->dim : o->quick ? 96 : 192;
    if (o->heads == 0)
        o->heads = p->heads && o->dim == p->dim ? p->heads : o->dim % 32 == 0 ? o->dim / 32 : 1;
    o->vocab = o->vocab ? o->vocab : p->vocab;
    o->batch = o->batch ? o->batch : p->batch;
    o->seq = o->seq ? o->seq : p->seq;
}

/* Tokens of the longest sequence that is measured. */
static int64_t longest(const struct speed_options *o)
{
    return o->prefill + o->decode > o->seq ? o->prefill + o->decode : o->seq;
}

static int make_keys(struct speed *s, const struct config *model_keys, struct err *e)
{
    const struct speed_options *o = &s->o;
    const struct {
        const char *key;
        int64_t v;
    } size[] = {
        {"model.layers", o->layers}, {"model.dim", o->dim},         {"model.heads", o->heads},
        {"model.vocab", o->vocab},   {"model.max_seq", longest(o)},
    };
    int rc = set_words(&s->keys, shapes[o->shape].keys, e);
    for (size_t i = 0; i < DS_LEN(size) && rc == 0; i++)
        rc = set_number(&s->keys, size[i].key, size[i].v, e);
    for (size_t i = 0; model_keys && i < model_keys->n && rc == 0; i++) {
        const struct config_entry *x = &model_keys->entry[i];
        if (x->value && opt_find(&model_group, x->key))
            rc = config_set(&s->keys, x->key, x->value, x->where, e);
    }
    return rc;
}

/* Chooses the number formats, and with them the peaks, of training and inference. */
static void resolve_numbers(struct speed *s)
{
    struct numeric_options *n = &s->o.numbers;
    if (n->compute == COMPUTE_AUTO)
        n->compute = COMPUTE_FP32;
    if (n->weights == WEIGHTS_AUTO && !s->from) /* random weights come from no file */
        n->weights = QUANT_NONE;
    s->unit = n->compute == COMPUTE_BF16 ? PEAK_BF16 : PEAK_FP32;
    int blocks = n->weights == WEIGHTS_AUTO ? QUANT_NONE : n->weights;
    s->use_unit = blocks == QUANT_NONE ? s->unit : PEAK_INT8;
    enum gemm_format format = s->unit == PEAK_BF16 ? GEMM_BF16 : GEMM_FP32;
    double packed = (double)gemm_packed_bytes(format, 256, 256) / 65536;
    s->held_bytes = packed > 0 ? packed : sizeof(real);
    s->use_bytes = blocks == QUANT_NONE
                       ? s->held_bytes
                       : (double)quant_row_bytes((enum quant_kind)blocks, 256) / 256;
}

/* Takes the shape of the model on disk; of model.* only the method may be set. */
static int shape_from(struct speed *s, const struct config *model_keys, struct err *e)
{
    struct config own = {0};
    const char *method = model_keys ? config_get(model_keys, "model.method") : NULL;
    int rc = method ? config_set(&s->keys, "model.method", method, "bench", e) : 0;
    for (size_t i = 0; model_keys && rc == 0 && i < model_keys->n; i++)
        if (opt_find(&model_group, model_keys->entry[i].key) &&
            strcmp(model_keys->entry[i].key, "model.method") != 0)
            rc = err_set(e, DS_EUSAGE, "%s cannot be set with MODEL, which has its own shape",
                         model_keys->entry[i].key);
    if (rc == 0)
        rc = model_config_open(&s->config, &own, s->from, e);
    config_release(&own);
    if (rc == 0 && s->config.max_seq < s->o.prefill + s->o.decode)
        rc =
            err_set(e, DS_ERANGE, "context of %lld tokens: prefill=%lld and decode=%lld do not fit",
                    (long long)s->config.max_seq, (long long)s->o.prefill, (long long)s->o.decode);
    return rc;
}

static int resolve(struct speed *s, const struct config *model_keys, struct err *e)
{
    fill_sizes(&s->o);
    int rc = s->from ? shape_from(s, model_keys, e) : make_keys(s, model_keys, e);
    if (rc == 0 && !s->from)
        rc = opt_defaults(&model_group, &s->config, e);
    if (rc == 0 && !s->from)
        rc = config_apply(&s->keys, &model_group, &s->config, e);
    if (rc == 0 && !s->from && s->config.max_seq < longest(&s->o))
        rc = err_set(e, DS_ERANGE,
                     "model.max_seq=%lld: must be at least %lld, the larger of seq=%lld and "
                     "prefill + decode",
                     (long long)s->config.max_seq, (long long)longest(&s->o), (long long)s->o.seq);
    if (rc == 0)
        rc = model_config_check(&s->config, e);
    if (rc < 0)
        return rc;
    const struct model_config *c = &s->config;
    s->o.layers = c->layers;
    s->o.dim = c->dim;
    s->o.heads = c->heads;
    s->o.vocab = c->vocab;
    resolve_numbers(s);
    int weights = s->o.numbers.weights == WEIGHTS_AUTO ? QUANT_NONE : s->o.numbers.weights;
    s->out->gemm =
        gemm_name(gemm_provider(s->unit == PEAK_BF16 && REAL_BITS == 32 ? GEMM_BF16 : GEMM_FP32));
    char *text = s->out->model;
    int n = snprintf(text, sizeof s->out->model, "%lld x %lld, %lld heads, ffn %lld, vocab %lld, ",
                     (long long)c->layers, (long long)c->dim, (long long)c->heads,
                     (long long)c->ffn, (long long)c->vocab);
    if (!s->from)
        n += snprintf(text + n, sizeof s->out->model - (size_t)n, "batch %lld x %lld, ",
                      (long long)s->o.batch, (long long)s->o.seq);
    snprintf(text + n, sizeof s->out->model - (size_t)n, "%s%s%s", peak_name[s->unit],
             weights ? ", weights " : "", weights ? quant_name[weights] : "");
    return 0;
}

/* ---- memory ---- */

/* Buffers of a pass; infinite when they cannot even be measured.  Those of the dense model: the
 * methods differ from it by a few values per row, and not each of them takes every shape. */
static double buffers_of(const struct speed *s, int rows, int train)
{
    char dense[] = "dense";
    struct model_config c = s->config;
    size_t bytes;
    c.method = dense;
    int rc = model_bytes(&bytes, &c, NULL, rows, train, train, NULL);
    return rc < 0 ? (double)INFINITY : (double)bytes;
}

/* One model is loaded at a time: values, gradients and two moments when training, and the weights
 * packed for the matrix multiplications, when training for both forward and backward. */
static double memory_of(const struct speed *s, const char *group)
{
    const struct model_config *c = &s->config;
    if (s->from)
        return 0; /* counted when it is opened */
    double weights = model_config_weights(c),
           kv = 2.0 * sizeof(real) * (double)(model_config_depth(c) * c->kv_heads * c->head_dim);
    int rows = (int)(s->o.batch * s->o.seq), use = (int)s->o.prefill;
    if (strcmp(group, "train") == 0 || (strcmp(group, "ranks") == 0 && ranks_size() > 1))
        return weights * (4.0 * sizeof(real) + 2 * s->held_bytes) + buffers_of(s, rows, 1);
    if (strcmp(group, "prefill") == 0 || strcmp(group, "decode") == 0 ||
        strcmp(group, "speculate") == 0)
        return weights * (sizeof(real) + s->use_bytes) + buffers_of(s, use, 0) +
               kv * (double)(s->o.prefill + s->o.decode);
    if (strcmp(group, "blocks") == 0)
        return (weights - (double)c->vocab * (double)c->dim) / (double)c->layers *
                   (4.0 * sizeof(real) + 2 * s->held_bytes) +
               buffers_of(s, rows, 1) / (double)c->layers;
    return 0;
}

/* One word of only= at a time ("" = all); `about`: "train", "train step dense" and "tra" are all
 * about the group train. */
static int asks_for(const char *word, const char *group, const char *name, int about)
{
    return strcmp(word, group) == 0 || strstr(name, word) || (about && strstr(word, group));
}

static int is_asked(const struct speed *s, const char *group, const char *name, int about)
{
    char word[128];
    for (const char *p = s->o.only; *p; p += strcspn(p, ",") + (p[strcspn(p, ",")] == ',')) {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(p, ","), p);
        if (asks_for(word, group, name, about))
            return 1;
    }
    return 0;
}

int speed_request(const struct speed *s, const char *group, const char *name)
{
    return !s->o.only[0] || is_asked(s, group, name, 0);
}

static int check_memory(struct speed *s, struct err *e)
{
    static const char *const group[] = {"blocks", "train",     "prefill",
                                        "decode", "speculate", "ranks"};
    char a[16], b[16], text[160] = "";
    double left = mem_available(), most = 0;
    int named = strcmp(s->o.only, "peaks") == 0 || strcmp(s->o.only, "ops") == 0;
    for (size_t i = 0; i < DS_LEN(group); i++)
        named |= is_asked(s, group[i], group[i], 1);
    for (size_t i = 0; i < DS_LEN(group); i++) {
        double need = memory_of(s, group[i]);
        size_t n = strlen(text);
        if (named && !is_asked(s, group[i], group[i], 1))
            continue;
        most = need > most ? need : most;
        snprintf(text + n, sizeof text - n, "%s%s %sB", n ? ", " : "", group[i], str_si(a, need));
    }
    s->line_bytes = s->o.quick ? (size_t)64 << 20 : (size_t)1 << 30;
    if (left > 0 && (double)s->line_bytes > left / 8)
        s->line_bytes = (size_t)16 << 20;
    s->out->memory_bytes = most + (double)s->line_bytes;
    if (left <= 0 || s->out->memory_bytes <= left)
        return 0;
    return err_set(
        e, DS_ERANGE,
        "bench: not enough memory: %sB free, need %s and %sB for read rates; use a smaller "
        "shape or only=GROUP",
        str_si(a, left), text, str_si(b, (double)s->line_bytes));
}

/* ---- results ---- */

double speed_median(const double *v, int n)
{
    double sorted[SPEED_ROUNDS_MAX];
    memcpy(sorted, v, (size_t)n * sizeof *v);
    return stat_median(sorted, (size_t)n);
}

double speed_median_ratio(const double *a, const double *b, int n)
{
    double ratio[SPEED_ROUNDS_MAX];
    for (int i = 0; i < n; i++)
        ratio[i] = b[i] > 0 ? a[i] / b[i] : (double)NAN;
    return stat_median(ratio, (size_t)n);
}

struct speed_result *speed_add(struct speed *s, const char *group, const char *name,
                               const char *unit, const double *sample, int n, struct err *e)
{
    struct speed_list *l = s->out;
    void *p = l->v;
    const double none = (double)NAN;
    if (mem_grow(&p, &l->cap, l->n + 1, sizeof *l->v) < 0) {
        (void)!err_set(e, DS_EMEM, "out of memory for results");
        return NULL;
    }
    l->v = p;
    struct speed_result *r = &l->v[l->n++];
    *r = (struct speed_result){.group = group,
                               .unit = unit,
                               .median = speed_median(sample, n),
                               .min = sample[0],
                               .max = sample[0],
                               .vs = none,
                               .gflops = none,
                               .gbs = none,
                               .share = none,
                               .tokens_s = none,
                               .time_ratio = none,
                               .flops_ratio = none,
                               .weights_bytes = none,
                               .stream_bytes = none,
                               .scratch_bytes = none};
    str_copy(r->name, sizeof r->name, name);
    for (int i = 1; i < n; i++) {
        r->min = sample[i] < r->min ? sample[i] : r->min;
        r->max = sample[i] > r->max ? sample[i] : r->max;
    }
    return r;
}

void speed_set_limit(struct speed_result *r, double rate, const char *name, double limit)
{
    r->limit = name;
    r->share = limit > 0 ? rate / limit : (double)NAN;
}

void speed_fill(real *x, size_t n, double scale)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (real)(((double)(i % 997) / 997 - 0.499) * scale);
}

void speed_fill_ids(int32_t *id, size_t n, int vocab)
{
    struct rng r;
    rng_init(&r, 1, RNG_TEST, 0, 0);
    for (size_t i = 0; i < n; i++)
        id[i] = (int32_t)rng_below(&r, (uint32_t)vocab);
}

/* ---- peaks ---- */

static int add_reading(struct speed *s, const char *name, size_t bytes, double *most, struct err *e)
{
    double sample[SPEED_ROUNDS_MAX];
    int again =
        bytes < s->line_bytes ? 8 : 1; /* small enough for a cache: repeat, so that it is filled */
    for (int i = -1; i < s->o.rounds; i++) {
        double best = 0;
        for (int k = 0; k < again; k++) {
            double g = peak_read_gbs(s->lines, bytes);
            best = g > best ? g : best;
        }
        sample[i < 0 ? 0 : i] = best;
    }
    struct speed_result *r = speed_add(s, "peaks", name, "GB/s", sample, (int)s->o.rounds, e);
    if (r && most)
        *most = r->max;
    return r ? 0 : DS_EMEM;
}

static int time_peaks(struct speed *s, struct err *e)
{
    double sample[PEAK_UNITS][SPEED_ROUNDS_MAX];
    int rc = 0;
    s->lines = mem_reserve(s->line_bytes);
    if (!s->lines)
        return err_set(e, DS_EMEM, "out of memory for the read benchmark");
    memset(s->lines, 1, s->line_bytes);
    for (int i = 0; i < s->o.rounds; i++)
        for (int u = 0; u < PEAK_UNITS; u++)
            sample[u][i] = peak_gflops((enum peak_unit)u, s->o.quick ? 0.02 : 0.1);
    for (int u = 0; u < PEAK_UNITS && rc == 0; u++) {
        char name[64];
        snprintf(name, sizeof name, "peak %s, %s", peak_name[u],
                 peak_instruction((enum peak_unit)u));
        struct speed_result *r = speed_add(s, "peaks", name, u == PEAK_INT8 ? "GOP/s" : "GFLOP/s",
                                           sample[u], (int)s->o.rounds, e);
        s->peak[u] = r ? r->max : 0;
        rc = r ? 0 : DS_EMEM;
    }
    if (rc == 0)
        rc = add_reading(s, "peak read, memory", s->line_bytes, &s->read_gbs, e);
    if (rc == 0)
        rc = add_reading(s, "peak read, 8 MiB", (size_t)8 << 20, NULL, e);
    return rc;
}

/* The peaks are always measured, because the other results are compared with them. */
static int check_asked(const struct speed *s, struct err *e)
{
    for (size_t i = 0; i < s->out->n; i++)
        if (speed_request(s, s->out->v[i].group, s->out->v[i].name))
            return 0;
    return err_set(e, DS_EUSAGE, "bench: only=%s: no measurement has that name", s->o.only);
}

static int speed_random(struct speed *s, struct err *e)
{
    int rc = speed_gemm(s, e);
    if (rc == 0)
        rc = speed_quants(s, e);
    if (rc == 0)
        rc = speed_ops(s, e);
    if (rc == 0)
        rc = speed_sampling(s, e);
    if (rc == 0)
        rc = speed_blocks(s, e);
    return rc == 0 ? speed_training(s, e) : rc;
}

/* Processes that one launcher started measure what they have in common, and nothing else. */
static int run_ranks(struct speed *s, struct err *e)
{
    if (strcmp(s->o.only, "ranks") != 0)
        return err_set(e, DS_EUSAGE, "bench: %d ranks measure only=ranks, not %s%s", ranks_size(),
                       s->o.only[0] ? "only=" : "all groups", s->o.only);
    if (s->from)
        return err_set(e, DS_EUSAGE, "bench: only=ranks has no MODEL: shape= and model.* set it");
    return speed_ranks(s, e);
}

static int run_groups(struct speed *s, struct err *e)
{
    int rc = s->from ? speed_load(s, e) : 0; /* first, so that peak memory is that of the model */
    if (rc == 0)
        rc = time_peaks(s, e);
    if (rc == 0 && !s->from)
        rc = speed_random(s, e);
    for (int is_decode = 0; is_decode < 2 && rc == 0; is_decode++)
        rc = speed_inference(s, is_decode, e);
    if (rc == 0)
        rc = speed_speculate(s, e);
    return rc == 0 ? check_asked(s, e) : rc;
}

int speed_run(struct speed_list *out, const struct speed_options *given, const char *from,
              const struct config *model_keys, struct err *e)
{
    struct speed s = {.o = *given, .out = out, .from = from};
    memset(out, 0, sizeof *out);
    int rc = resolve(&s, model_keys, e);
    if (rc == 0)
        rc = check_memory(&s, e);
    if (rc == 0)
        rc = ranks_size() > 1 || strcmp(s.o.only, "ranks") == 0 ? run_ranks(&s, e)
                                                                : run_groups(&s, e);
    mem_free_aligned(s.lines);
    config_release(&s.keys);
    opt_release(&model_group, &s.config);
    if (rc < 0)
        speed_release(out);
    return rc;
}

void speed_release(struct speed_list *l)
{
    mem_free(l->v);
    memset(l, 0, sizeof *l);
}
