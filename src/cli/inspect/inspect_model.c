/* depthscope inspect DIR: models, adapters, tokenizers, and tensors of safetensors files. */
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "cli/inspect/inspect.h"
#include "data/tokenizer.h"
#include "io/checkpoint.h"
#include "io/st_set.h"
#include "models/load.h"

enum { TENSORS_SHOWN = 400, CONFIG_MAX = 1 << 20, TEXT_MAX = 200 };

/* ---- tensors ---- */

struct sums {
    uint64_t values, bytes, odd;
};

static void add_tensor(struct table *t, const struct st_tensor *x, uint64_t odd)
{
    struct str shape = {0};
    inspect_shape(&shape, x->shape, x->rank);
    table_add(t, x->name);
    table_add(t, x->dtype_name);
    table_addf(t, "[%s]", str_text(&shape));
    if (odd)
        table_addf(t, "%llu not finite", (unsigned long long)odd);
    else
        table_add(t, "");
    t->failed |= shape.failed;
    str_release(&shape);
}

static void json_tensor(struct str *out, const struct st_tensor *x, uint64_t odd)
{
    json_key(out, NULL);
    str_add(out, "{");
    json_add_str(out, "name", x->name);
    json_add_str(out, "type", x->dtype_name);
    json_key(out, "shape");
    str_add(out, "[");
    inspect_shape(out, x->shape, x->rank);
    str_add(out, "]");
    json_add_int(out, "nonfinite", (int64_t)odd);
    str_add(out, "}");
}

static void print_tensors(struct inspect *x, const struct st_set *s, const char *path)
{
    struct sums sum = {0};
    struct str rows = {0};
    struct table t;
    table_init(&t, 4);
    for (size_t i = 0; i < st_set_count(s); i++) {
        const struct st_tensor *one = st_set_at(s, i);
        uint64_t odd = one->dtype <= ST_BF16 ? st_nonfinite(one) : 0;
        st_drop(one, 0, one->items);
        sum.values += one->items;
        sum.bytes += one->bytes;
        sum.odd += odd;
        if (x->json)
            json_tensor(&rows, one, odd);
        else if (i < TENSORS_SHOWN)
            add_tensor(&t, one, odd);
    }
    if (x->json) {
        inspect_begin(x, "safetensors", path);
        json_add_int(x->out, "files", (int64_t)st_set_shards(s));
        json_add_int(x->out, "values", (int64_t)sum.values);
        json_add_int(x->out, "bytes", (int64_t)sum.bytes);
        json_key(x->out, "tensors");
        str_addf(x->out, "[%s]}", str_text(&rows));
    } else {
        str_addf(x->out, "safetensors: %zu tensors, %llu values, %llu bytes%s\n", st_set_count(s),
                 (unsigned long long)sum.values, (unsigned long long)sum.bytes,
                 sum.odd ? ", some not finite" : "");
        table_print(&t, x->out);
        if (st_set_count(s) > TENSORS_SHOWN)
            str_addf(x->out, "and %zu more\n", st_set_count(s) - TENSORS_SHOWN);
    }
    x->out->failed |= rows.failed;
    str_release(&rows);
    table_release(&t);
}

int inspect_tensors(const char *path, struct inspect *x, struct err *e)
{
    struct st_set *s = NULL;
    size_t before = x->out->len;
    int rc = st_set_open(&s, path, e);
    if (rc < 0)
        return rc;
    print_tensors(x, s, path);
    rc = st_set_unchanged(s, e);
    st_set_close(s);
    if (rc < 0 && before < x->out->len)
        x->out->p[x->out->len = before] = '\0';
    return rc;
}

/* ---- tokenizers ---- */

static void add_piece(struct str *out, const struct tokenizer *t, int32_t id)
{
    size_t n = 0;
    const char *p = tokenizer_piece(t, id, &n);
    str_add(out, " \"");
    cli_add_safe(out, p ? p : "", n, 40);
    str_add(out, "\"");
}

int inspect_tokenizer(const char *path, struct inspect *x, struct err *e)
{
    struct tokenizer *t = NULL;
    int rc = tokenizer_load(&t, path, e);
    if (rc < 0)
        return rc;
    int special = 0;
    for (int32_t id = 0; id < tokenizer_vocab(t); id++)
        special += tokenizer_is_special(t, id);
    if (x->json) {
        char hash[20];
        snprintf(hash, sizeof hash, "%016llx", (unsigned long long)tokenizer_hash(t));
        inspect_begin(x, "tokenizer", path);
        json_add_str(x->out, "type", tokenizer_kind(t));
        json_add_int(x->out, "ids", tokenizer_vocab(t));
        json_add_int(x->out, "special", special);
        json_add_int(x->out, "eot", tokenizer_eot(t));
        json_add_int(x->out, "bos", tokenizer_bos(t));
        json_add_str(x->out, "hash", hash);
        str_add(x->out, "}");
    } else {
        str_addf(x->out, "tokenizer: %s, %d ids, %d of them special, end of text %d",
                 tokenizer_kind(t), tokenizer_vocab(t), special, tokenizer_eot(t));
        if (tokenizer_eot(t) >= 0)
            add_piece(x->out, t, tokenizer_eot(t));
        str_addf(x->out, ", begin of text %d", tokenizer_bos(t));
        if (tokenizer_bos(t) >= 0)
            add_piece(x->out, t, tokenizer_bos(t));
        str_addf(x->out, ", hash %016llx\n", (unsigned long long)tokenizer_hash(t));
    }
    tokenizer_free(t);
    return 0;
}

/* ---- directories ---- */

static int has(const char *dir, const char *name)
{
    char path[1200];
    return fs_join(path, sizeof path, dir, name, NULL) == 0 && fs_exists(path);
}

/* One setting. */
static void add_setting(struct inspect *x, const char *prefix, const char *key, const char *value)
{
    char full[300];
    snprintf(full, sizeof full, "%s%s", prefix, key);
    if (x->json) {
        json_add_str(x->out, full, value);
        return;
    }
    str_add(x->out, "  ");
    inspect_safe(x->out, full);
    str_add(x->out, " = ");
    inspect_safe(x->out, value);
    str_add(x->out, "\n");
}

static void add_settings(struct inspect *x, const struct model_config *c,
                         const struct config *route)
{
    char text[256];
    if (x->json) {
        json_key(x->out, "config");
        str_add(x->out, "{");
    }
    for (size_t i = 0; i < model_group.n; i++) {
        opt_print(&model_group.opts[i], c, text, sizeof text);
        add_setting(x, "model.", model_group.opts[i].key, text);
    }
    for (size_t i = 0; i < route->n; i++)
        add_setting(x, "", route->entry[i].key, route->entry[i].value);
    str_add(x->out, x->json ? "}" : "");
}

/* One line about a part: its description, or why it cannot be read. */
static void add_line(struct inspect *x, const char *key, const char *text)
{
    size_t n = strlen(text);
    while (n > 0 && text[n - 1] == '\n')
        n--;
    if (x->json) {
        json_key(x->out, key);
        str_add_json(x->out, text, n);
        return;
    }
    str_addf(x->out, "%s: ", key);
    cli_add_safe(x->out, text, n, -1);
    str_add(x->out, "\n");
}

/* A part that is an object of its own. */
static void add_part(struct inspect *x, const char *key, inspect_fn *part, const char *path)
{
    struct err why = {0};
    struct str text = {0};
    struct inspect inner = {&text, x->json};
    if (part(path, &inner, &why) < 0) {
        add_line(x, key, why.text);
    } else {
        if (x->json)
            json_key(x->out, key);
        str_add_str(x->out, &text);
    }
    str_release(&text);
}

static void add_coverage(struct inspect *x, const char *dir)
{
    static const char lead[] = "weights: ";
    struct err why = {0};
    struct str text = {0};
    const char *p;
    if (model_tensor_match(dir, &text, &why) < 0)
        str_renew(&text);
    p = text.len ? str_text(&text) : why.text;
    add_line(x, "weights", strncmp(p, lead, sizeof lead - 1) == 0 ? p + sizeof lead - 1 : p);
    x->out->failed |= text.failed;
    str_release(&text);
}

int inspect_model(const char *dir, struct inspect *x, struct err *e)
{
    /* tensor files that replace or complement those of the base model */
    static const char *const extra[][2] = {{"adapter_tensors", "adapter_model.safetensors"},
                                           {"own_tensors", "own.safetensors"}};
    struct model_config c;
    struct config route = {0};
    struct err why = {0};
    char path[1100];
    int rc = model_config_open(&c, &route, dir, e);
    if (rc < 0) {
        config_release(&route);
        return rc;
    }
    if (x->json)
        inspect_begin(x, has(dir, "manifest.json") ? "checkpoint" : "model", dir);
    if (has(dir, "manifest.json"))
        add_line(x, "checkpoint",
                 checkpoint_verify(dir, &why) == 0 ? "all files match the manifest" : why.text);
    if (x->json)
        json_add_int(x->out, "parameters", model_config_params(&c));
    add_settings(x, &c, &route);
    opt_release(&model_group, &c);
    config_release(&route);
    add_coverage(x, dir);
    if (has(dir, "tokenizer.json") || has(dir, "vocab.json") || has(dir, "tokenizer.model"))
        add_part(x, "tokenizer", inspect_tokenizer, dir);
    if (has(dir, "model.safetensors") || has(dir, "model.safetensors.index.json"))
        add_part(x, "tensors", inspect_tensors, dir);
    for (size_t i = 0; i < DS_LEN(extra); i++)
        if (fs_join(path, sizeof path, dir, extra[i][1], NULL) == 0 && fs_exists(path))
            add_part(x, extra[i][0], inspect_tensors, path);
    if (has(dir, "adapter_config.json"))
        add_part(x, "adapter", inspect_adapter, dir);
    str_add(x->out, x->json ? "}" : "");
    return 0;
}

/* ---- adapters ---- */

static void add_value(struct str *out, const struct json_node *v)
{
    switch (json_kind_of(v)) {
    case JSON_KIND_STRING: str_add(out, json_str(v, NULL) ? json_str(v, NULL) : "?"); break;
    case JSON_KIND_INT: str_addf(out, "%lld", (long long)json_int(v, 0)); break;
    case JSON_KIND_REAL: str_addf(out, "%.9g", json_num(v, 0)); break;
    case JSON_KIND_BOOL: str_add(out, json_bool(v, 0) ? "true" : "false"); break;
    case JSON_KIND_ARRAY:
        for (size_t i = 0; i < json_len(v) && out->len < TEXT_MAX; i++) {
            str_add(out, i ? ", " : "");
            if (json_kind_of(json_at(v, i)) != JSON_KIND_ARRAY)
                add_value(out, json_at(v, i));
        }
        break;
    case JSON_KIND_OBJECT: str_addf(out, "%zu entries", json_len(v)); break;
    default: str_add(out, "null");
    }
}

int inspect_adapter(const char *dir, struct inspect *x, struct err *e)
{
    struct json *j = NULL;
    const struct json_node *v;
    const char *key;
    char path[1100];
    int rc = fs_join(path, sizeof path, dir, "adapter_config.json", e);
    if (rc == 0)
        rc = json_read_file(&j, path, CONFIG_MAX, e);
    if (rc < 0)
        return rc;
    if (x->json) {
        inspect_begin(x, "adapter", dir);
        json_key(x->out, "config");
        str_add(x->out, "{");
    } else {
        str_add(x->out, "adapter:\n");
    }
    for (void *at = NULL; (v = json_next(json_root(j), &at, &key, NULL)) != NULL;) {
        struct str text = {0};
        add_value(&text, v);
        if (x->json || json_kind_of(v) != JSON_KIND_NULL)
            add_setting(x, "", key, str_text(&text));
        x->out->failed |= text.failed;
        str_release(&text);
    }
    json_free(j);
    str_add(x->out, x->json ? "}" : "");
    if (!has(dir, "config.json"))
        add_coverage(x, dir);
    if (fs_join(path, sizeof path, dir, "adapter_model.safetensors", NULL) == 0 && fs_exists(path))
        add_part(x, "tensors", inspect_tensors, path);
    else
        add_line(x, "tensors", "missing adapter_model.safetensors");
    str_add(x->out, x->json ? "}" : "");
    return 0;
}
