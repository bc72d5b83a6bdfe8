/* Opens a model with its tokenizer and run configuration. */
#include "eval/subject.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "base/str.h"
#include "data/hops.h"
#include "io/runconfig.h"
#include "io/safetensors.h"
#include "models/load.h"
#include "models/peft.h"
#include "models/trace.h"

/* RUN/checkpoints/step-N belongs to RUN, whose configuration names the training data. */
static int read_run(struct subject *s, struct err *e)
{
    char path[1024], log[1024], run[1024];
    struct err why = {0};
    if (fs_join(run, sizeof run, s->dir, "../..", NULL) < 0 ||
        fs_join(path, sizeof path, run, "config.yaml", NULL) < 0 ||
        fs_join(log, sizeof log, run, "log.mp", NULL) < 0 || !(fs_exists(path) || fs_exists(log)))
        return 0;
    str_copy(s->run_dir, sizeof s->run_dir, s->dir);
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(s->run_dir, '/');
        if (!slash) {
            str_copy(s->run_dir, sizeof s->run_dir, run);
            break;
        }
        *slash = '\0';
    }
    int rc = runconfig_read(&s->run, s->run_dir, NULL, &why);
    if (rc == DS_EMEM)
        return err_set(e, rc, "%s", why.text);
    if (rc < 0) /* not an error: generation does not need the run's settings */
        log_warn("%s", why.text);
    return 0;
}

static int check_vocab(const struct subject *s, struct err *e)
{
    int have = tokenizer_vocab(s->tokenizer);
    if (have <= s->model->config.vocab)
        return 0;
    return err_set(e, DS_EFORMAT,
                   "%s: tokenizer has ids up to %d, but the embedding only %lld rows", s->dir,
                   have - 1, (long long)s->model->config.vocab);
}

/* By default use the number format that the run was trained with. */
static int use_numbers(struct subject *s, const struct numeric_options *numbers, struct err *e)
{
    struct numeric_options o =
        numbers ? *numbers : (struct numeric_options){.weights = WEIGHTS_AUTO};
    if (o.compute == COMPUTE_AUTO)
        o.compute =
            strcmp(subject_key(s, "compute", "fp32"), "bf16") == 0 ? COMPUTE_BF16 : COMPUTE_FP32;
    int rc = weights_use(s->model, &o, e);
    if (rc == 0)
        rc = weights_ready(s->model, e);
    return rc < 0 ? err_add(e, rc, "%s", s->dir) : 0;
}

/* Weights that cannot be read either come before a tokenizer that is missing: with one next to them
 * the model would still not open. */
static int check_weights(const struct subject *s, struct err *e)
{
    struct model *m = NULL;
    struct st_set *set = NULL;
    struct err why = {0};
    int rc = fs_is_dir(s->dir) ? st_set_open(&set, s->dir, &why)
                               : model_open(&m, s->dir, NULL, MODEL_INFERENCE, &why);
    model_free(m);
    st_set_close(set);
    return rc == DS_EFORMAT ? err_set(e, rc, "%s", why.text) : 0;
}

/* Opens the model's tokenizer; adapters without one use that of their base. */
static int open_tokenizer(struct subject *s, struct err *e)
{
    char path[1100], base[1024];
    int rc = tokenizer_find(path, sizeof path, s->dir, e);
    if (rc == DS_ENOTFOUND && model_base(s->dir, base, sizeof base, NULL) == 1) {
        rc = tokenizer_find(path, sizeof path, base, e);
    } else if (rc == DS_ENOTFOUND) {
        int weights = check_weights(s, e);
        rc = weights < 0 ? weights : rc;
    }
    return rc < 0 ? rc : tokenizer_load(&s->tokenizer, path, e);
}

int subject_chat(struct chat *c, const struct subject *s, enum chat_template kind, struct err *e)
{
    char base[1024];
    int has_base = model_base(s->dir, base, sizeof base, NULL) == 1;
    return chat_open(c, kind, s->dir, has_base ? base : NULL, e);
}

/* hops.* describe the data: they take the place of the run's. */
static int take_data_options(struct subject *s, const struct config *options, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; options && i < options->n && rc == 0; i++)
        if (opt_find(&hops_group, options->entry[i].key))
            rc = config_set(&s->run, options->entry[i].key, options->entry[i].value, "command line",
                            e);
    return rc;
}

static int check_options(const struct subject *s, const struct config *options, struct err *e)
{
    char prefix[40], hint[NEAREST_MAX + 32];
    struct opt_group g = route_group(s->model->route.ops, prefix);
    for (size_t i = 0; options && i < options->n; i++) {
        const char *key = options->entry[i].key;
        struct nearest best = nearest_to(key);
        if (!config_get(options, key) || opt_find(&g, key) || opt_find(&hops_group, key))
            continue;
        config_nearest_key(&best, &g);
        return err_set(e, DS_EUSAGE, "unknown key \"%s\" of a model whose method is %s%s", key,
                       s->model->config.method, nearest_hint(&best, hint, sizeof hint));
    }
    return 0;
}

int subject_open(struct subject *s, const char *model, const struct numeric_options *numbers,
                 struct err *e)
{
    return subject_open_with(s, model, numbers, NULL, e);
}

int subject_open_with(struct subject *s, const char *model, const struct numeric_options *numbers,
                      struct config *options, struct err *e)
{
    memset(s, 0, sizeof *s);
    int rc = model_locate(model, s->dir, sizeof s->dir, e);
    if (rc == 0)
        rc = open_tokenizer(s, e);
    if (rc == 0)
        rc = model_open(&s->model, s->dir, options, 0, e);
    if (rc == 0)
        rc = check_options(s, options, e);
    if (rc == 0 && options)
        rc = config_merge(&s->options, options, e);
    if (rc == 0)
        rc = check_vocab(s, e);
    if (rc == 0)
        rc = read_run(s, e);
    if (rc == 0)
        rc = take_data_options(s, options, e);
    if (rc == 0)
        rc = use_numbers(s, numbers, e);
    if (rc < 0)
        subject_close(s);
    return rc;
}

static int name_method(struct model_config *c, struct config *stored, const char *method,
                       struct err *e)
{
    struct nearest best = nearest_to(method);
    char hint[NEAREST_MAX + 32];
    if (!route_find(method)) {
        for (const struct route_ops *const *o = route_all(); *o; o++)
            nearest_try(&best, (*o)->name);
        return err_set(e, DS_EUSAGE, "model.method=%s: unknown method%s", method,
                       nearest_hint(&best, hint, sizeof hint));
    }
    if (strcmp(c->method, method) == 0)
        return 0;
    char *copy = mem_strdup(method);
    if (!copy)
        return err_set(e, DS_EMEM, "out of memory");
    mem_free(c->method);
    c->method = copy;
    config_release(stored);
    return 0;
}

int subject_remake(struct subject *s, const char *method, struct config *options, struct err *e)
{
    struct model_config c = {0};
    struct config stored = {0};
    struct model *m = NULL, *old = s->model;
    struct numeric_options numbers = old->weights.numbers;
    struct str note = {0};
    char base[1024];
    uint64_t seed = old->route.seed;
    int rc = model_base(s->dir, base, sizeof base, e);
    if (rc > 0)
        rc = err_set(e, DS_EUSAGE,
                     "%s: adapters on an external base keep their method and its options", s->dir);
    if (rc == 0)
        rc = model_config_open(&c, &stored, s->dir, e);
    if (rc == 0 && method)
        rc = name_method(&c, &stored, method, e);
    config_remove(&stored, "seed");
    if (rc == 0 && options)
        rc = config_merge(&stored, options, e);
    if (rc == 0)
        rc = model_new(&m, &c, &stored, seed, MODEL_EDIT, e);
    if (rc == 0)
        rc = model_start_from(m, s->dir, &note, e);
    if (rc == 0)
        rc = weights_use(m, &numbers, e);
    if (rc == 0) {
        s->model = m;
        m = old;
        rc = check_options(s, options, e);
    }
    model_free(m);
    opt_release(&model_group, &c);
    config_release(&stored);
    str_release(&note);
    return rc;
}

void subject_close(struct subject *s)
{
    model_free(s->model);
    tokenizer_free(s->tokenizer);
    config_release(&s->run);
    config_release(&s->options);
    memset(s, 0, sizeof *s);
}

const char *subject_key(const struct subject *s, const char *key, const char *fallback)
{
    const char *v = config_get(&s->run, key);
    return v && v[0] ? v : fallback;
}

uint64_t subject_seed(const struct subject *s)
{
    const char *of_run = subject_key(s, "seed", NULL);
    return of_run ? strtoull(of_run, NULL, 10) : s->model->route.seed;
}

const char *subject_name(const struct subject *s)
{
    const char *path = s->run_dir[0] ? s->run_dir : s->dir, *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static void add_metrics(const struct route_ops *ops, struct record *rec)
{
    record_array(rec, "metrics");
    trace_metric_rows(ops, rec);
    record_close(rec);
}

/* The i-th entry that is in force, from *i on; NULL past the end. */
static const struct config_entry *next_entry(const struct config *c, size_t *i)
{
    while (*i < c->n) {
        const struct config_entry *x = &c->entry[(*i)++];
        if (config_get(c, x->key) == x->value)
            return x;
    }
    return NULL;
}

/* The value of the i-th option of the method, as text; NULL past the end. */
static const char *method_option(const struct subject *s, size_t i, char *key, size_t size,
                                 char *text, size_t text_size)
{
    char prefix[40];
    struct opt_group g = route_group(s->model->route.ops, prefix);
    if (i >= g.n)
        return NULL;
    snprintf(key, size, "%s%s", g.prefix, g.opts[i].key);
    opt_print(&g.opts[i], s->model->route.opts, text, text_size);
    return text;
}

void subject_options_json(const struct subject *s, struct str *out)
{
    const struct config_entry *x;
    char key[128], text[256];
    json_key(out, "options");
    str_add(out, "{");
    for (size_t i = 0; (x = next_entry(&s->options, &i)) != NULL;)
        json_add_str(out, x->key, x->value);
    str_add(out, "}");
    json_key(out, "method_options");
    str_add(out, "{");
    for (size_t i = 0; method_option(s, i, key, sizeof key, text, sizeof text); i++)
        json_add_str(out, key, text);
    str_add(out, "}");
}

uint64_t subject_hash(const struct subject *s)
{
    enum { VALUES = 4096 };
    char key[128], text[256];
    const char *value;
    const struct params *ps = &s->model->params;
    uint64_t h = 0;
    for (size_t i = 0; (value = method_option(s, i, key, sizeof key, text, sizeof text)); i++) {
        h = hash64(key, strlen(key), h);
        h = hash64(value, strlen(value), h);
    }
    for (int i = 0; i < ps->n; i++) {
        const struct param *p = &ps->p[i];
        if (p->value)
            h = hash64(p->value, (p->n < VALUES ? p->n : VALUES) * sizeof *p->value, h);
    }
    return h;
}

void subject_options_record(const struct subject *s, struct record *rec)
{
    const struct config_entry *x;
    char key[128], text[256];
    record_map(rec, "options");
    for (size_t i = 0; (x = next_entry(&s->options, &i)) != NULL;)
        record_str(rec, x->key, x->value);
    record_close(rec);
    record_map(rec, "method_options");
    for (size_t i = 0; method_option(s, i, key, sizeof key, text, sizeof text); i++)
        record_str(rec, key, text);
    record_close(rec);
}

/* Options given for this process replace those of the run: the head describes what is evaluated. */
static void add_config(const struct subject *s, struct record *rec)
{
    const struct config_entry *x;
    record_map(rec, "config");
    for (size_t i = 0; (x = next_entry(&s->run, &i)) != NULL;) {
        const char *given = config_get(&s->options, x->key);
        record_str(rec, x->key, given ? given : x->value);
    }
    if (s->run.n == 0) {
        char text[256], key[64];
        for (size_t i = 0; i < model_group.n; i++) {
            snprintf(key, sizeof key, "%s%s", model_group.prefix, model_group.opts[i].key);
            opt_print(&model_group.opts[i], &s->model->config, text, sizeof text);
            record_str(rec, key, text);
        }
    }
    record_close(rec);
}

void subject_head(const struct subject *s, struct record *rec, const char *version)
{
    const struct model_config *c = &s->model->config;
    struct flops_shape shape = model_config_flops(c);
    char host[256] = "";
    if (gethostname(host, sizeof host - 1) != 0)
        host[0] = '\0';
    record_begin(rec, "head", 0, clock_wall());
    record_int(rec, "format", RECORD_FORMAT);
    record_str(rec, "version", version);
    record_str(rec, "run", subject_name(s));
    record_str(rec, "method", c->method);
    record_int(rec, "layers", model_config_depth(c));
    record_int(rec, "steps", 0);
    record_int(rec, "seed", (int64_t)subject_seed(s));
    record_int(rec, "vocab", c->vocab);
    record_int(rec, "params", params_count(&s->model->params));
    record_int(rec, "params_non_embedding", model_non_embedding(s->model));
    record_num(rec, "flops_dense",
               flops_dense_token(&shape, (int)(c->max_seq < 512 ? c->max_seq : 512)));
    record_str(rec, "host", host);
    record_str(rec, "parent", s->run_dir[0] ? subject_name(s) : "");
    record_int(rec, "pid", (int64_t)getpid());
    trace_always_on(s->model, rec);
    add_config(s, rec);
    add_metrics(s->model->route.ops, rec);
}

int subject_is_end(const struct subject *s, int32_t id)
{
    int32_t end[MODEL_EOS_MAX];
    int n = model_config_eos_ids(&s->model->config, end);
    if (n == 0)
        return id == tokenizer_eot(s->tokenizer);
    while (n > 0 && end[n - 1] != id)
        n--;
    return n > 0;
}

int subject_encode(const struct subject *s, const char *text, size_t n, size_t cap, struct ids *out,
                   struct err *e)
{
    int32_t bos = tokenizer_bos(s->tokenizer);
    int rc = bos >= 0 ? ids_add(out, bos) : 0;
    if (rc < 0)
        return err_set(e, rc, "text");
    rc = tokenizer_encode(s->tokenizer, text, n, 0, out, e);
    if (rc == 0 && out->n == 0)
        rc = err_set(e, DS_EUSAGE, "empty text");
    if (rc == 0 && cap > 0 && out->n > cap)
        rc = err_set(e, DS_ERANGE,
                     "the text has %zu tokens, expected at most %zu, the model's context", out->n,
                     cap);
    return rc;
}

const char *subject_piece_of(const void *ctx, int32_t id, size_t *n)
{
    const struct subject *s = ctx;
    const char *p = tokenizer_piece(s->tokenizer, id, n);
    if (p)
        return p;
    *n = 0; /* the embedding may have more rows than the tokenizer has ids */
    return "";
}

int subject_pieces(const struct subject *s, const int32_t *id, size_t n, const char ***piece,
                   size_t **len, struct err *e)
{
    const char **p = mem_alloc(n + 1, sizeof *p);
    size_t *k = mem_alloc(n + 1, sizeof *k);
    if (!p || !k) {
        mem_free(p);
        mem_free(k);
        return err_set(e, DS_EMEM, "out of memory for %zu pieces", n);
    }
    for (size_t i = 0; i < n; i++)
        p[i] = subject_piece_of(s, id[i], &k[i]);
    *piece = p;
    *len = k;
    return 0;
}
