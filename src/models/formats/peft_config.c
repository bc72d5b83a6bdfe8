/* adapter_config.json: what of it is plain LoRA on a model of ours, and where that model is. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/regex.h"
#include "models/adapters.h"
#include "models/load.h"
#include "models/peft.h"
#include "peft_names.h"

enum { TARGETS_MAX = 4096, CONFIG_MAX = 1 << 20 };

/* ---- names ---- */

const struct names *peft_names(const struct model_config *c)
{
    char dense[] = "dense";
    struct model_config base = *c;
    base.method = dense;
    base.lora_r = 0;
    return names_of_family(model_config_family(&base));
}

void peft_module(const struct names *n, const char *param, struct names_place *out)
{
    static const char end[] = ".weight";
    names_place(n, param, out);
    size_t k = strlen(out->name), cut = sizeof end - 1;
    if (k > cut && strcmp(out->name + k - cut, end) == 0)
        out->name[k - cut] = '\0';
}

void peft_target(const struct names *n, int l, int t, struct names_place *out)
{
    char param[NAMES_MAX];
    snprintf(param, sizeof param, "model.layers.%d.%s.weight", l, adapter_target[t].module);
    peft_module(n, param, out);
}

/* ---- the directory ---- */

static int has(const char *dir, const char *name)
{
    char path[1200];
    return fs_join(path, sizeof path, dir, name, NULL) == 0 && fs_exists(path);
}

int peft_is_dir(const char *dir)
{
    return has(dir, PEFT_CONFIG) && !has(dir, "config.json");
}

static int read_json(struct json **j, const char *dir, char path[1200], struct err *e)
{
    int rc = fs_join(path, 1200, dir, PEFT_CONFIG, e);
    if (rc == 0)
        rc = json_read_file(j, path, CONFIG_MAX, e);
    if (rc == 0 && json_kind_of(json_root(*j)) != JSON_KIND_OBJECT) {
        json_free(*j);
        *j = NULL;
        rc = err_set(e, DS_EFORMAT, "%s: not an object", path);
    }
    return rc;
}

/* Beside the directory, then from here: `name` as it was found, or DS_ENOTFOUND. */
static int find_base(const char *dir, const char *name, char *base, size_t size, struct err *e)
{
    char beside[1200];
    struct err none = {0};
    if (name[0] != '/' && fs_join(beside, sizeof beside, dir, name, NULL) == 0 &&
        model_locate(beside, base, size, &none) == 0)
        return 0;
    int rc = model_locate(name, base, size, &none);
    if (rc == DS_ENOTFOUND || (rc < 0 && !fs_exists(name)))
        return err_set(
            e, DS_ENOTFOUND,
            "base_model_name_or_path %.200s is not here (looked beside it and from here); "
            "DEPTHSCOPE_BASE=PATH says where it is",
            name);
    return rc < 0 ? err_set(e, rc, "its base model: %s", none.text) : 0;
}

int peft_base(const char *dir, char *base, size_t size, struct err *e)
{
    char path[1200];
    struct json *j = NULL;
    const char *given = getenv("DEPTHSCOPE_BASE");
    int rc = read_json(&j, dir, path, e);
    if (rc < 0)
        return rc;
    const char *name = json_str(json_get(json_root(j), "base_model_name_or_path"), NULL);
    if (given && given[0])
        rc = model_locate(given, base, size, e);
    else if (!name || !name[0])
        rc = err_set(
            e, DS_EFORMAT,
            "base_model_name_or_path is missing; DEPTHSCOPE_BASE=PATH names the base model");
    else
        rc = find_base(dir, name, base, size, e);
    json_free(j);
    return rc < 0 ? err_add(e, rc, given && given[0] ? "DEPTHSCOPE_BASE" : "%s", path) : 0;
}

/* ---- what the file asks for ---- */

/* Keys that leave plain LoRA what it is. */
static int is_plain(const char *key)
{
    static const char *const plain[] = {
        "peft_type",       "task_type",          "r",
        "lora_alpha",      "lora_dropout",       "target_modules",
        "use_rslora",      "fan_in_fan_out",     "base_model_name_or_path",
        "inference_mode",  "init_lora_weights",  "revision",
        "auto_mapping",    "peft_version",       "megatron_core",
        "megatron_config", "loftq_config",       "qalora_group_size",
        "runtime_config",  "merge_weights",      "base_model_class",
        "parent_library",  "corda_config",       "eva_config",
        "lora_ga_config",  "ensure_weight_tying"};
    for (size_t i = 0; i < DS_LEN(plain); i++)
        if (strcmp(key, plain[i]) == 0)
            return 1;
    return 0;
}

/* Does a key with this value ask for anything? */
static int is_on(const struct json_node *n)
{
    const char *text;
    switch (json_kind_of(n)) {
    case JSON_KIND_NULL: return 0;
    case JSON_KIND_BOOL: return json_bool(n, 1);
    case JSON_KIND_INT:
    case JSON_KIND_REAL: return json_num(n, 1) != 0;
    case JSON_KIND_STRING:
        text = json_str(n, NULL);
        return !text || (text[0] && strcmp(text, "none") != 0);
    default: return json_len(n) > 0;
    }
}

/* Layer 0 is a layer. */
static int is_layer(const char *key, const struct json_node *n)
{
    return strcmp(key, "layers_to_transform") == 0 && json_kind_of(n) == JSON_KIND_INT;
}

static int refuse_word(const struct json_node *root, const char *key, const char *const *known,
                       struct err *e)
{
    const struct json_node *n = json_get(root, key);
    const char *text = json_str(n, NULL);
    if (json_kind_of(n) == JSON_KIND_NULL)
        return 0;
    for (size_t i = 0; text && known[i]; i++)
        if (strcmp(text, known[i]) == 0)
            return 0;
    return err_set(e, DS_EFORMAT, "%s %.60s is not known here (%s)", key,
                   text ? text : "is no word; it", known[0]);
}

/* Initialisations that move the base itself leave adapters that fit no base as it is published. */
static int check_init(const struct json_node *root, struct err *e)
{
    static const char *const known[] = {"gaussian", "orthogonal", "eva", NULL};
    const struct json_node *n = json_get(root, "init_lora_weights");
    return json_kind_of(n) == JSON_KIND_BOOL ? 0 : refuse_word(root, "init_lora_weights", known, e);
}

static int check_plain(const struct json_node *root, struct err *e)
{
    static const char *const lora[] = {"LORA", NULL}, *const task[] = {"CAUSAL_LM", NULL};
    const char *key;
    const struct json_node *v;
    if (json_kind_of(json_get(root, "peft_type")) == JSON_KIND_NULL)
        return err_set(e, DS_EFORMAT, "peft_type is missing");
    int rc = refuse_word(root, "peft_type", lora, e);
    if (rc == 0)
        rc = refuse_word(root, "task_type", task, e);
    if (rc == 0)
        rc = check_init(root, e);
    for (void *at = NULL; rc == 0 && (v = json_next(root, &at, &key, NULL)) != NULL;)
        if (!is_plain(key) && (is_on(v) || is_layer(key, v)))
            rc = err_set(e, DS_EFORMAT,
                         "%.60s is not known here: adapters are plain LoRA of one rank on the "
                         "matrices of all blocks",
                         key);
    return rc;
}

static int set(struct model_config *c, const char *key, const char *text, struct err *e)
{
    return opt_set(opt_find(&model_group, key), c, text, NULL, e);
}

static int set_number(struct model_config *c, const struct json_node *root, const char *key,
                      double factor, struct err *e)
{
    const struct json_node *n = json_get(root, key);
    char full[64], text[40];
    if (json_kind_of(n) != JSON_KIND_INT && json_kind_of(n) != JSON_KIND_REAL)
        return err_set(e, DS_EFORMAT, "%s is %s", key,
                       json_kind_of(n) == JSON_KIND_NULL ? "missing" : "no number");
    snprintf(full, sizeof full, "model.%s", key);
    snprintf(text, sizeof text, "%.17g", json_num(n, 0) * factor);
    int rc = set(c, full, text, e);
    return rc < 0 ? err_add(e, rc, "%s", key) : 0;
}

/* PEFT's alpha / sqrt(r) of rank-stabilised adapters is our alpha' / r. */
static int set_numbers(struct model_config *c, const struct json_node *root, struct err *e)
{
    const struct json_node *r = json_get(root, "r"), *stable = json_get(root, "use_rslora");
    char text[32];
    if (json_kind_of(stable) != JSON_KIND_NULL && json_kind_of(stable) != JSON_KIND_BOOL)
        return err_set(e, DS_EFORMAT, "use_rslora is neither true nor false");
    if (json_kind_of(r) != JSON_KIND_INT || json_int(r, 0) < 1)
        return err_set(e, DS_EFORMAT, "r is %s",
                       json_kind_of(r) == JSON_KIND_NULL ? "missing" : "no whole number above 0");
    snprintf(text, sizeof text, "%lld", (long long)json_int(r, 0));
    int rc = set(c, "model.lora_r", text, e);
    double factor = json_bool(stable, 0) ? sqrt((double)json_int(r, 0)) : 1;
    if (rc == 0)
        rc = set_number(c, root, "lora_alpha", factor, e);
    if (rc == 0 && json_kind_of(json_get(root, "lora_dropout")) != JSON_KIND_NULL)
        rc = set_number(c, root, "lora_dropout", 1, e);
    return rc;
}

/* ---- which matrices ---- */

struct chooser {
    const struct json_node *list; /* of names, or NULL: */
    struct regex *pattern;        /* of whole names, or NULL: all */
};

static int chooser_open(struct chooser *x, const struct json_node *targets, struct err *e)
{
    const char *text = json_str(targets, NULL);
    struct str whole = {0};
    *x = (struct chooser){0};
    if (json_kind_of(targets) == JSON_KIND_ARRAY && json_len(targets) > 0) {
        x->list = targets;
        for (size_t i = 0; i < json_len(targets); i++)
            if (!json_str(json_at(targets, i), NULL))
                return err_set(e, DS_EFORMAT, "target_modules: entry %zu is no name", i + 1);
        return json_len(targets) <= TARGETS_MAX
                   ? 0
                   : err_set(e, DS_EFORMAT, "target_modules has %zu entries, at most %d are read",
                             json_len(targets), TARGETS_MAX);
    }
    if (!text || !text[0])
        return err_set(e, DS_EFORMAT, "target_modules is neither a list of names nor a pattern");
    if (strcmp(text, "all-linear") == 0)
        return 0;
    str_addf(&whole, "\\A(?:%s)\\z", text);
    int rc = whole.failed
                 ? err_set(e, DS_EMEM, "target_modules")
                 : regex_new(&x->pattern, str_text(&whole), whole.len, "target_modules", e);
    str_release(&whole);
    return rc;
}

/* 1, 0, or negative: the pattern went beyond its limits. */
static int chosen(struct chooser *x, const char *module, struct err *e)
{
    size_t n = strlen(module), start, end;
    if (x->pattern)
        return regex_next(x->pattern, module, n, 0, 0, &start, &end, e);
    for (size_t i = 0; x->list && i < json_len(x->list); i++) {
        const char *want = json_str(json_at(x->list, i), NULL);
        size_t k = strlen(want);
        if (k <= n && strcmp(module + n - k, want) == 0 && (k == n || module[n - k - 1] == '.'))
            return 1;
    }
    return !x->list;
}

/* Adapters are on all blocks or on none; the layers that one target is chosen in say which. */
static int choose_target(struct chooser *x, const struct model_config *c, int t, struct str *out,
                         struct err *e)
{
    const struct names *names = peft_names(c);
    struct names_place at;
    int layers = (int)c->layers, n = 0;
    for (int l = 0; l < layers && adapters_has(c, t); l++) {
        peft_target(names, l, t, &at);
        int rc = chosen(x, at.name, e);
        if (rc < 0)
            return rc;
        n += rc;
    }
    if (n > 0 && n < layers)
        return err_set(e, DS_EFORMAT,
                       "target_modules has %s in %d of %d layers; adapters on some layers only are "
                       "not known here",
                       adapter_target[t].module, n, layers);
    if (n > 0)
        str_addf(out, "%s%s", out->len ? "," : "", adapter_target[t].name);
    return 0;
}

/* What else a name may mean there: refused rather than left out. */
static int refuse_others(struct chooser *x, struct err *e)
{
    static const char *const other[] = {"lm_head", "model.embed_tokens", "transformer.wte",
                                        "transformer.wpe"};
    for (size_t i = 0; i < DS_LEN(other) && (x->list || x->pattern); i++) {
        int rc = chosen(x, other[i], e);
        if (rc != 0)
            return rc < 0 ? rc
                          : err_set(e, DS_EFORMAT,
                                    "target_modules has %s; adapters are known on the matrices of "
                                    "blocks only",
                                    other[i]);
    }
    return 0;
}

static int set_targets(struct model_config *c, const struct json_node *root, struct err *e)
{
    struct chooser x;
    struct str names = {0};
    int rc = chooser_open(&x, json_get(root, "target_modules"), e);
    if (rc == 0)
        rc = refuse_others(&x, e);
    for (int t = 0; t < ADAPTER_TARGETS && rc == 0; t++)
        rc = choose_target(&x, c, t, &names, e);
    if (rc == 0 && names.len == 0)
        rc = err_set(e, names.failed ? DS_EMEM : DS_EFORMAT,
                     "target_modules names no matrix of this model's blocks");
    if (rc == 0)
        rc = set(c, "model.lora_targets", str_text(&names), e);
    regex_free(x.pattern);
    str_release(&names);
    return rc;
}

int peft_config(struct model_config *c, const char *dir, struct err *e)
{
    char path[1200];
    struct json *j = NULL;
    if (c->lora_r > 0)
        return err_set(e, DS_EUSAGE, "%s: its base model has adapters (model.lora_r=%lld) already",
                       dir, (long long)c->lora_r);
    int rc = read_json(&j, dir, path, e);
    if (rc < 0)
        return rc;
    rc = check_plain(json_root(j), e);
    if (rc == 0)
        rc = set_numbers(c, json_root(j), e);
    if (rc == 0)
        rc = set_targets(c, json_root(j), e);
    if (rc == 0)
        rc = adapters_check(c, e);
    json_free(j);
    return rc < 0 ? err_add(e, rc, "%s", path) : 0;
}
