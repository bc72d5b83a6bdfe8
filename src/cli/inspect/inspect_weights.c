/* depthscope inspect FILE.gguf, FILE.bin: metadata and tensors. */
#include <string.h>

#include "cli/inspect/inspect.h"
#include "io/gguf.h"
#include "io/llama2c.h"

enum { TENSORS_SHOWN = 400, METAS_SHOWN = 200, ITEMS_SHOWN = 6, TEXT_SHOWN = 100 };

static void add_text(struct str *out, const struct gguf_text *t)
{
    str_add_char(out, '"');
    cli_add_safe(out, t->p, t->n, TEXT_SHOWN);
    str_add(out, "\"");
}

/* Formats a number or string, or the first items of an array. */
static void add_values(struct str *out, const struct gguf_meta *m)
{
    struct gguf_strings s = {m->data, m->count};
    struct gguf_text text;
    int64_t whole;
    uint64_t big;
    double number;
    for (uint64_t i = 0; i < m->count && i < ITEMS_SHOWN; i++) {
        str_add(out, i ? ", " : "");
        if (m->item == GGUF_STRING && gguf_strings_next(&s, &text))
            add_text(out, &text);
        else if (m->item == GGUF_BOOL && gguf_int(m, i, &whole))
            str_add(out, whole ? "true" : "false");
        else if (gguf_int(m, i, &whole))
            str_addf(out, "%lld", (long long)whole);
        else if (gguf_big(m, i, &big))
            str_addf(out, "%llu", (unsigned long long)big);
        else if (gguf_num(m, i, &number))
            str_addf(out, "%.9g", number);
        else
            str_add(out, "...");
    }
    str_add(out, m->count > ITEMS_SHOWN ? ", ..." : "");
}

static void add_meta(struct str *out, const struct gguf_meta *m)
{
    str_add(out, "  ");
    cli_add_safe(out, m->key, strlen(m->key), TEXT_SHOWN);
    if (m->kind == GGUF_ARRAY) {
        str_addf(out, " = %llu %s: [", (unsigned long long)m->count, gguf_kind_name(m->item));
        add_values(out, m);
        str_add(out, "]\n");
        return;
    }
    str_add(out, " = ");
    add_values(out, m);
    str_add(out, "\n");
}

static void add_tensor(struct table *t, const struct gguf_tensor *x)
{
    struct str shape = {0}, name = {0};
    cli_add_safe(&name, x->name, strlen(x->name), TEXT_SHOWN);
    inspect_shape(&shape, x->shape, x->rank);
    table_add(t, str_text(&name));
    table_add(t, x->type_name);
    table_addf(t, "[%s]", str_text(&shape));
    t->failed |= shape.failed || name.failed;
    str_release(&shape);
    str_release(&name);
}

/* ---- sums ---- */

struct type_sum {
    const char *name;
    uint64_t tensors, values, bytes;
};
enum { TYPES_MAX = 48, TOKEN_TYPES = 7 };
struct sums {
    struct type_sum type[TYPES_MAX];
    size_t n;
    uint64_t values, bytes;
};

static void sum_types(struct sums *s, const struct gguf *g)
{
    for (size_t i = 0; i < gguf_count(g); i++) {
        const struct gguf_tensor *t = gguf_at(g, i);
        size_t k = 0;
        while (k < s->n && s->type[k].name != t->type_name)
            k++;
        s->values += t->items;
        s->bytes += t->bytes;
        if (k == TYPES_MAX)
            continue;
        s->n += k == s->n;
        s->type[k].name = t->type_name;
        s->type[k].tensors++;
        s->type[k].values += t->items;
        s->type[k].bytes += t->bytes;
    }
}

/* End-of-text ids, including those of a turn and of a message. */
enum { ENDS = 3 };
static const char *const end_name[ENDS] = {"eos", "eot", "eom"};

/* The vocabulary according to the metadata keys, of which only the types are trusted. */
struct vocabulary {
    struct gguf_text model, pre;
    uint64_t tokens, merges, type[TOKEN_TYPES];
    int64_t bos, end[ENDS]; /* -1: none */
    struct gguf_text bos_text, end_text[ENDS];
    int has_template;
};

static struct gguf_text text_at(const struct gguf_meta *tokens, int64_t at)
{
    struct gguf_strings s = {tokens->data, tokens->count};
    struct gguf_text text = {"", 0};
    if (tokens->item != GGUF_STRING || at < 0 || (uint64_t)at >= tokens->count)
        return text;
    while (at-- >= 0 && gguf_strings_next(&s, &text)) {
    }
    return text;
}

static int64_t id_of(const struct gguf *g, const char *key)
{
    int64_t id = -1;
    const struct gguf_meta *m = gguf_meta_find(g, key);
    return m && m->kind != GGUF_ARRAY && gguf_int(m, 0, &id) ? id : -1;
}

/* 1 when the file has a vocabulary. */
static int read_vocabulary(struct vocabulary *v, const struct gguf *g)
{
    const struct gguf_meta *tokens = gguf_meta_find(g, "tokenizer.ggml.tokens"),
                           *types = gguf_meta_find(g, "tokenizer.ggml.token_type"),
                           *merges = gguf_meta_find(g, "tokenizer.ggml.merges");
    *v = (struct vocabulary){.model = {"?", 1}, .pre = {"", 0}};
    if (!tokens || tokens->kind != GGUF_ARRAY || tokens->item != GGUF_STRING)
        return 0;
    (void)gguf_string(gguf_meta_find(g, "tokenizer.ggml.model"), &v->model);
    (void)gguf_string(gguf_meta_find(g, "tokenizer.ggml.pre"), &v->pre);
    v->tokens = tokens->count;
    v->merges = merges && merges->kind == GGUF_ARRAY ? merges->count : 0;
    for (uint64_t i = 0; types && types->kind == GGUF_ARRAY && i < types->count; i++) {
        int64_t type;
        if (gguf_int(types, i, &type))
            v->type[type > 0 && type < TOKEN_TYPES ? type : 0]++;
    }
    v->bos = id_of(g, "tokenizer.ggml.bos_token_id");
    v->bos_text = text_at(tokens, v->bos);
    for (int i = 0; i < ENDS; i++) {
        char key[64];
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", end_name[i]);
        v->end[i] = id_of(g, key);
        v->end_text[i] = text_at(tokens, v->end[i]);
    }
    v->has_template = gguf_meta_find(g, "tokenizer.chat_template") != NULL;
    return 1;
}

static const char *const token_type[TOKEN_TYPES] = {
    "of unknown type", "normal", "unknown", "control", "user-defined", "unused", "bytes"};

static void print_vocabulary(struct str *out, const struct vocabulary *v)
{
    const char *between = " (";
    str_addf(out, "vocabulary: %llu tokens", (unsigned long long)v->tokens);
    for (int k = 0; k < TOKEN_TYPES; k++)
        if (v->type[k]) {
            str_addf(out, "%s%llu %s", between, (unsigned long long)v->type[k], token_type[k]);
            between = ", ";
        }
    str_add(out, between[0] == ',' ? "), model " : ", model ");
    cli_add_safe(out, v->model.p, v->model.n, 40);
    if (v->pre.n) {
        str_add(out, ", pre-tokenizer ");
        cli_add_safe(out, v->pre.p, v->pre.n, 40);
    }
    if (v->merges)
        str_addf(out, ", %llu merges", (unsigned long long)v->merges);
    if (v->bos >= 0) {
        str_addf(out, ", begin %lld ", (long long)v->bos);
        add_text(out, &v->bos_text);
    }
    for (int i = 0; i < ENDS; i++)
        if (v->end[i] >= 0) {
            str_addf(out, ", end%s%s %lld ", i ? " " : "", i ? end_name[i] : "",
                     (long long)v->end[i]);
            add_text(out, &v->end_text[i]);
        }
    str_add(out, v->has_template ? ", a chat template\n" : "\n");
}

/* ---- JSON ---- */

static void json_text(struct str *out, const char *key, const struct gguf_text *t)
{
    json_key(out, key);
    str_add_json(out, t->p, t->n);
}

static void json_value(struct str *out, const struct gguf_meta *m, uint64_t i,
                       struct gguf_strings *s)
{
    struct gguf_text text;
    int64_t whole;
    uint64_t big;
    double number;
    if (m->item == GGUF_STRING && gguf_strings_next(s, &text))
        str_add_json(out, text.p, text.n);
    else if (m->item == GGUF_BOOL && gguf_int(m, i, &whole))
        str_add(out, whole ? "true" : "false");
    else if (gguf_int(m, i, &whole))
        str_addf(out, "%lld", (long long)whole);
    else if (gguf_big(m, i, &big))
        str_addf(out, "%llu", (unsigned long long)big);
    else if (gguf_num(m, i, &number))
        str_add_json_num(out, number);
    else
        str_add(out, "null");
}

/* A value; for an array its type, length and first items. */
static void json_meta(struct str *out, const struct gguf_meta *m)
{
    struct gguf_strings s = {m->data, m->count};
    json_key(out, m->key);
    if (m->kind != GGUF_ARRAY) {
        json_value(out, m, 0, &s);
        return;
    }
    str_add(out, "{");
    json_add_str(out, "type", gguf_kind_name(m->item));
    json_add_int(out, "count", (int64_t)m->count);
    json_key(out, "first");
    str_add(out, "[");
    for (uint64_t i = 0; i < m->count && i < ITEMS_SHOWN; i++) {
        json_key(out, NULL);
        json_value(out, m, i, &s);
    }
    str_add(out, "]}");
}

static void json_tensors(struct str *out, const struct gguf *g)
{
    json_key(out, "tensors");
    str_add(out, "[");
    for (size_t i = 0; i < gguf_count(g); i++) {
        const struct gguf_tensor *t = gguf_at(g, i);
        json_key(out, NULL);
        str_add(out, "{");
        json_add_str(out, "name", t->name);
        json_add_str(out, "type", t->type_name);
        json_key(out, "shape");
        str_add(out, "[");
        inspect_shape(out, t->shape, t->rank);
        str_add(out, "]}");
    }
    str_add(out, "]");
}

static void json_vocabulary(struct str *out, const struct vocabulary *v)
{
    json_key(out, "vocabulary");
    str_add(out, "{");
    json_add_int(out, "tokens", (int64_t)v->tokens);
    json_add_int(out, "merges", (int64_t)v->merges);
    json_text(out, "model", &v->model);
    json_text(out, "pre", &v->pre);
    json_add_int(out, "bos", v->bos);
    for (int i = 0; i < ENDS; i++)
        json_add_int(out, end_name[i], v->end[i]);
    json_key(out, "types");
    str_add(out, "{");
    for (int k = 0; k < TOKEN_TYPES; k++)
        if (v->type[k])
            json_add_int(out, token_type[k], (int64_t)v->type[k]);
    str_add(out, "}}");
}

static void json_gguf(struct inspect *x, const struct gguf *g, const char *path,
                      const struct sums *s, const struct vocabulary *v)
{
    inspect_begin(x, "gguf", path);
    json_add_int(x->out, "version", gguf_version(g));
    json_add_int(x->out, "values", (int64_t)s->values);
    json_add_int(x->out, "bytes", (int64_t)gguf_bytes(g));
    json_key(x->out, "types");
    str_add(x->out, "{");
    for (size_t i = 0; i < s->n; i++)
        json_add_int(x->out, s->type[i].name, (int64_t)s->type[i].tensors);
    str_add(x->out, "}");
    json_key(x->out, "metadata");
    str_add(x->out, "{");
    for (size_t i = 0; i < gguf_meta_count(g); i++)
        json_meta(x->out, gguf_meta_at(g, i));
    str_add(x->out, "}");
    if (v)
        json_vocabulary(x->out, v);
    json_tensors(x->out, g);
    str_add(x->out, "}");
}

/* ---- files ---- */

static void print_gguf(struct str *out, const struct gguf *g, const struct sums *s,
                       const struct vocabulary *v)
{
    struct table t;
    table_init(&t, 3);
    for (size_t i = 0; i < gguf_count(g) && i < TENSORS_SHOWN; i++)
        add_tensor(&t, gguf_at(g, i));
    str_addf(out, "GGUF version %d: %zu keys, %zu tensors, %llu values, %zu bytes\n",
             gguf_version(g), gguf_meta_count(g), gguf_count(g), (unsigned long long)s->values,
             gguf_bytes(g));
    for (size_t i = 0; i < gguf_meta_count(g) && i < METAS_SHOWN; i++)
        add_meta(out, gguf_meta_at(g, i));
    if (gguf_meta_count(g) > METAS_SHOWN)
        str_addf(out, "and %zu more keys\n", gguf_meta_count(g) - METAS_SHOWN);
    if (v)
        print_vocabulary(out, v);
    for (size_t i = 0; i < s->n; i++) {
        const struct type_sum *k = &s->type[i];
        str_addf(out, "%s%llu %s (%.2f bits per weight)",
                 i ? ", " : "types: ", (unsigned long long)k->tensors, k->name,
                 k->values ? 8 * (double)k->bytes / (double)k->values : 0);
    }
    if (s->n)
        str_addf(out, "; overall %.2f bits per weight\n",
                 s->values ? 8 * (double)s->bytes / (double)s->values : 0);
    table_print(&t, out);
    if (gguf_count(g) > TENSORS_SHOWN)
        str_addf(out, "and %zu more\n", gguf_count(g) - TENSORS_SHOWN);
    table_release(&t);
}

int inspect_gguf(const char *path, struct inspect *x, struct err *e)
{
    struct gguf *g = NULL;
    struct sums s = {0};
    struct vocabulary v;
    int rc = gguf_open(&g, path, e);
    if (rc < 0)
        return rc;
    sum_types(&s, g);
    int has_vocabulary = read_vocabulary(&v, g);
    if (x->json)
        json_gguf(x, g, path, &s, has_vocabulary ? &v : NULL);
    else
        print_gguf(x->out, g, &s, has_vocabulary ? &v : NULL);
    gguf_close(g);
    return 0;
}

int inspect_llama2c(const char *path, struct inspect *x, struct err *e)
{
    struct llama2c m;
    int rc = llama2c_open(&m, path, e);
    if (rc < 0)
        return rc;
    const struct {
        const char *key;
        int64_t v;
    } sizes[] = {{"dim", m.dim},     {"hidden", m.hidden},     {"layers", m.layers},
                 {"heads", m.heads}, {"kv_heads", m.kv_heads}, {"vocab", m.vocab},
                 {"context", m.seq}, {"tied", m.tied},         {"bytes", (int64_t)m.file.n}};
    if (x->json) {
        inspect_begin(x, "llama2c", path);
        for (size_t i = 0; i < DS_LEN(sizes); i++)
            json_add_int(x->out, sizes[i].key, sizes[i].v);
        str_add(x->out, "}");
    } else {
        str_addf(x->out,
                 "llama2.c model: dim %lld, hidden %lld, %lld layers, %lld heads, %lld kv heads, "
                 "vocabulary %lld, context %lld, head %s; %zu bytes of fp32\n",
                 (long long)m.dim, (long long)m.hidden, (long long)m.layers, (long long)m.heads,
                 (long long)m.kv_heads, (long long)m.vocab, (long long)m.seq,
                 m.tied ? "tied" : "untied", m.file.n);
    }
    llama2c_close(&m);
    return 0;
}
