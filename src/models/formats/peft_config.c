/* Reads adapter_config.json: every key is read, without effect on the result, or refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "models/adapters.h"
#include "models/load.h"
#include "models/peft.h"
#include "peft_names.h"

enum { CONFIG_MAX = 1 << 20 };

/* ---- names ---- */

const struct names *peft_names(const struct model_config *c)
{
    char dense[] = "dense";
    struct model_config base = *c;
    base.method = dense;
    base.lora_r = 0;
    return names_of_family(model_config_family(&base));
}

void peft_module(const struct model_config *c, const char *param, struct names_place *out)
{
    names_place(peft_names(c), c, param, out);
    char *end = strrchr(out->name, '.');
    if (end && (strcmp(end, ".weight") == 0 || strcmp(end, ".bias") == 0))
        *end = '\0';
}

void peft_target(const struct model_config *c, int l, int t, struct names_place *out)
{
    char param[NAMES_MAX];
    snprintf(param, sizeof param, "model.layers.%d.%s.weight", l, adapter_target[t].module);
    peft_module(c, param, out);
}

/* ---- the directory ---- */

static int read_json(struct json **j, const char *dir, char path[1200], struct err *e)
{
    int rc = fs_join(path, 1200, dir, PEFT_CONFIG, e);
    if (rc == 0)
        rc = json_read_file(j, path, CONFIG_MAX, e);
    if (rc == 0 && json_kind_of(json_root(*j)) != JSON_KIND_OBJECT) {
        json_free(*j);
        *j = NULL;
        rc = err_set(e, DS_EFORMAT, "%s: must be a JSON object", path);
    }
    return rc;
}

/* Looks for `name` relative to the adapter directory, then to the current one; DS_ENOTFOUND. */
static int find_base(const char *dir, const char *name, char *base, size_t size, struct err *e)
{
    char local[1200];
    struct err none = {0};
    if (name[0] != '/' && fs_join(local, sizeof local, dir, name, NULL) == 0 &&
        model_locate(local, base, size, &none) == 0)
        return 0;
    int rc = model_locate(name, base, size, &none);
    if (rc == DS_ENOTFOUND || (rc < 0 && !fs_exists(name)))
        return err_set(
            e, DS_ENOTFOUND,
            "base_model_name_or_path %.200s not found (looked next to the adapter and in .); "
            "set DEPTHSCOPE_BASE=PATH to its location",
            name);
    return rc < 0 ? err_set(e, rc, "base model: %s", none.text) : 0;
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
            "missing key base_model_name_or_path; set DEPTHSCOPE_BASE=PATH to the base model");
    else
        rc = find_base(dir, name, base, size, e);
    json_free(j);
    return rc < 0 ? err_add(e, rc, given && given[0] ? "DEPTHSCOPE_BASE" : "%s", path) : 0;
}

/* ---- keys ---- */

/* What a key means to the result of a forward pass. */
enum rule {
    READ,    /* taken into account, here or by peft_targets.c */
    IGNORED, /* none, whatever its value */
    REFUSED, /* another computation, unless null or false */
};

static const struct {
    const char *key;
    enum rule rule;
} rules[] = {
    // clang-format off
    {"peft_type", READ},             {"task_type", READ},            {"r", READ},
    {"lora_alpha", READ},            {"lora_dropout", READ},         {"target_modules", READ},
    {"exclude_modules", READ},       {"layers_to_transform", READ},  {"layers_pattern", READ},
    {"rank_pattern", READ},          {"alpha_pattern", READ},        {"use_rslora", READ},
    {"use_dora", READ},              {"lora_bias", READ},            {"bias", READ},
    {"modules_to_save", READ},       {"ensure_weight_tying", READ},  {"init_lora_weights", READ},
    {"base_model_name_or_path", READ},
    /* how it was made, trained or is executed */
    {"fan_in_fan_out", IGNORED} /* follows from the family */,       {"inference_mode", IGNORED},
    {"revision", IGNORED},           {"auto_mapping", IGNORED},      {"peft_version", IGNORED},
    {"megatron_core", IGNORED},      {"loftq_config", IGNORED},      {"eva_config", IGNORED},
    {"corda_config", IGNORED},       {"lora_ga_config", IGNORED},    {"qalora_group_size", IGNORED},
    {"runtime_config", IGNORED},     {"merge_weights", IGNORED},     {"base_model_class", IGNORED},
    {"parent_library", IGNORED},
    {"use_qalora", REFUSED},         {"use_bdlora", REFUSED},        {"velora_config", REFUSED},
    {"monteclora_config", REFUSED},  {"arrow_config", REFUSED},      {"kasa_config", REFUSED},
    {"megatron_config", REFUSED},    {"layer_replication", REFUSED},
    {"trainable_token_indices", REFUSED}, {"alora_invocation_tokens", REFUSED},
    // clang-format on
};

/* Could this value of an unknown key change something? */
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

static void value_text(const struct json_node *n, char *out, size_t size)
{
    const char *text = json_str(n, NULL);
    switch (json_kind_of(n)) {
    case JSON_KIND_NULL: snprintf(out, size, "null"); break;
    case JSON_KIND_BOOL: snprintf(out, size, json_bool(n, 0) ? "true" : "false"); break;
    case JSON_KIND_INT:
    case JSON_KIND_REAL: snprintf(out, size, "%g", json_num(n, 0)); break;
    case JSON_KIND_STRING: snprintf(out, size, "%.60s", text ? text : "(not text)"); break;
    case JSON_KIND_ARRAY: snprintf(out, size, "a list of %zu", json_len(n)); break;
    default: snprintf(out, size, "an object of %zu", json_len(n)); break;
    }
}

static int check_key(const char *key, const struct json_node *n, struct err *e)
{
    char text[80];
    size_t i = 0;
    int is_null = json_kind_of(n) == JSON_KIND_NULL ||
                  (json_kind_of(n) == JSON_KIND_BOOL && !json_bool(n, 1));
    while (i < DS_LEN(rules) && strcmp(key, rules[i].key) != 0)
        i++;
    if (i < DS_LEN(rules) ? rules[i].rule != REFUSED || is_null : !is_on(n))
        return 0;
    value_text(n, text, sizeof text);
    return err_set(e, DS_EFORMAT,
                   "unsupported key %.60s = %s: expected LoRA or DoRA on the matrices of blocks",
                   key, text);
}

static int refuse_word(const struct json_node *root, const char *key, const char *const *known,
                       struct err *e)
{
    const struct json_node *n = json_get(root, key);
    const char *text = json_str(n, NULL);
    char value[80];
    if (json_kind_of(n) == JSON_KIND_NULL)
        return 0;
    for (size_t i = 0; text && known[i]; i++)
        if (strcmp(text, known[i]) == 0)
            return 0;
    value_text(n, value, sizeof value);
    return err_set(e, DS_EFORMAT, "%s: unsupported value %s: expected %s", key,
                   text ? value : "(not a string)", known[0]);
}

/* Initialisations that modify the base produce adapters that do not fit the published base. */
static int check_init(const struct json_node *root, struct err *e)
{
    static const char *const known[] = {"gaussian", "orthogonal", "eva", "mica", NULL};
    const struct json_node *n = json_get(root, "init_lora_weights");
    return json_kind_of(n) == JSON_KIND_BOOL ? 0 : refuse_word(root, "init_lora_weights", known, e);
}

static int check_keys(const struct json_node *root, struct err *e)
{
    static const char *const lora[] = {"LORA", NULL}, *const task[] = {"CAUSAL_LM", NULL};
    const char *key;
    const struct json_node *v;
    if (json_kind_of(json_get(root, "peft_type")) == JSON_KIND_NULL)
        return err_set(e, DS_EFORMAT, "missing key peft_type");
    int rc = refuse_word(root, "peft_type", lora, e);
    if (rc == 0)
        rc = refuse_word(root, "task_type", task, e);
    if (rc == 0)
        rc = check_init(root, e);
    for (void *at = NULL; rc == 0 && (v = json_next(root, &at, &key, NULL)) != NULL;)
        rc = check_key(key, v, e);
    return rc;
}

/* ---- values ---- */

int peft_set(struct model_config *c, const char *key, const char *text, struct err *e)
{
    return opt_set(opt_find(&model_group, key), c, text, NULL, e);
}

static int set_number(struct model_config *c, const struct json_node *root, const char *key,
                      struct err *e)
{
    const struct json_node *n = json_get(root, key);
    char full[64], text[40];
    if (json_kind_of(n) != JSON_KIND_INT && json_kind_of(n) != JSON_KIND_REAL)
        return err_set(e, DS_EFORMAT, "%s %s", key,
                       json_kind_of(n) == JSON_KIND_NULL ? "is missing" : "must be a number");
    snprintf(full, sizeof full, "model.%s", key);
    snprintf(text, sizeof text, "%.17g", json_num(n, 0));
    int rc = peft_set(c, full, text, e);
    return rc < 0 ? err_add(e, rc, "%s", key) : 0;
}

static int read_switch(int *out, const struct json_node *root, const char *key, struct err *e)
{
    const struct json_node *n = json_get(root, key);
    if (json_kind_of(n) != JSON_KIND_NULL && json_kind_of(n) != JSON_KIND_BOOL)
        return err_set(e, DS_EFORMAT, "%s must be true or false", key);
    *out = json_bool(n, 0);
    return 0;
}

static int set_numbers(struct model_config *c, const struct json_node *root, struct err *e)
{
    const struct json_node *r = json_get(root, "r");
    char text[32];
    if (json_kind_of(r) != JSON_KIND_INT || json_int(r, 0) < 1)
        return err_set(e, DS_EFORMAT, "r %s",
                       json_kind_of(r) == JSON_KIND_NULL ? "is missing"
                                                         : "must be a positive integer");
    snprintf(text, sizeof text, "%lld", (long long)json_int(r, 0));
    int rc = peft_set(c, "model.lora_r", text, e);
    if (rc == 0)
        rc = set_number(c, root, "lora_alpha", e);
    if (rc == 0 && json_kind_of(json_get(root, "lora_dropout")) != JSON_KIND_NULL)
        rc = set_number(c, root, "lora_dropout", e);
    return rc;
}

static int set_switches(struct model_config *c, const struct json_node *root, struct err *e)
{
    static const char *const bias[] = {"none", "all", "lora_only", NULL};
    const char *text = json_str(json_get(root, "bias"), NULL);
    int rc = read_switch(&c->lora_rslora, root, "use_rslora", e);
    if (rc == 0)
        rc = read_switch(&c->lora_dora, root, "use_dora", e);
    if (rc == 0)
        rc = read_switch(&c->lora_bias, root, "lora_bias", e);
    if (rc == 0)
        rc = refuse_word(root, "bias", bias, e);
    if (rc == 0 && text)
        rc = peft_set(c, "model.lora_train_bias", text, e);
    return rc;
}

int peft_config(struct model_config *c, const char *dir, struct err *e)
{
    char path[1200];
    struct json *j = NULL;
    if (c->lora_r > 0)
        return err_set(e, DS_EUSAGE, "%s: base model already has adapters (model.lora_r=%lld)", dir,
                       (long long)c->lora_r);
    int rc = read_json(&j, dir, path, e), is_tying = 0;
    if (rc < 0)
        return rc;
    rc = check_keys(json_root(j), e);
    if (rc == 0)
        rc = set_numbers(c, json_root(j), e);
    if (rc == 0)
        rc = set_switches(c, json_root(j), e);
    if (rc == 0)
        rc = read_switch(&is_tying, json_root(j), "ensure_weight_tying", e);
    if (rc == 0)
        rc = peft_set_modules(c, json_root(j), is_tying, e);
    if (rc == 0)
        rc = adapters_check(c, e);
    json_free(j);
    return rc < 0 ? err_add(e, rc, "%s", path) : 0;
}
