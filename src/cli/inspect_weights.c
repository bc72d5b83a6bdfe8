/* depthscope inspect FILE.gguf, FILE.bin: metadata and tensors. */
#include <string.h>

#include "cli/inspect.h"
#include "io/gguf.h"
#include "io/llama2c.h"

enum { TENSORS_SHOWN = 400, METAS_SHOWN = 200, ITEMS_SHOWN = 6, TEXT_SHOWN = 100 };

static void add_text(struct str *out, const struct gguf_text *t)
{
    str_add_char(out, '"');
    cli_add_safe(out, t->p, t->n, TEXT_SHOWN);
    str_add(out, "\"");
}

/* Numbers, or strings, of one value or of an array's beginning. */
static void add_values(struct str *out, const struct gguf_meta *m)
{
    struct gguf_strings s = {m->data, m->count};
    struct gguf_text text;
    int64_t whole;
    double number;
    for (uint64_t i = 0; i < m->count && i < ITEMS_SHOWN; i++) {
        str_add(out, i ? ", " : "");
        if (m->item == GGUF_STRING && gguf_strings_next(&s, &text))
            add_text(out, &text);
        else if (m->item == GGUF_BOOL && gguf_int(m, i, &whole))
            str_add(out, whole ? "true" : "false");
        else if (gguf_int(m, i, &whole))
            str_addf(out, "%lld", (long long)whole);
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
    for (int d = 0; d < x->rank; d++)
        str_addf(&shape, "%s%llu", d ? "," : "", (unsigned long long)x->shape[d]);
    table_add(t, str_text(&name));
    table_add(t, x->type_name);
    table_addf(t, "[%s]", str_text(&shape));
    str_release(&shape);
    str_release(&name);
}

int inspect_gguf(const char *path, struct str *out, struct err *e)
{
    struct gguf *g = NULL;
    struct table t;
    unsigned long long items = 0;
    int rc = gguf_open(&g, path, e);
    if (rc < 0)
        return rc;
    table_init(&t, 3);
    for (size_t i = 0; i < gguf_count(g); i++) {
        items += gguf_at(g, i)->items;
        if (i < TENSORS_SHOWN)
            add_tensor(&t, gguf_at(g, i));
    }
    str_addf(out, "GGUF version %d: %zu keys, %zu tensors, %llu values, %zu bytes\n",
             gguf_version(g), gguf_meta_count(g), gguf_count(g), items, gguf_bytes(g));
    for (size_t i = 0; i < gguf_meta_count(g) && i < METAS_SHOWN; i++)
        add_meta(out, gguf_meta_at(g, i));
    if (gguf_meta_count(g) > METAS_SHOWN)
        str_addf(out, "and %zu more keys\n", gguf_meta_count(g) - METAS_SHOWN);
    table_print(&t, out);
    if (gguf_count(g) > TENSORS_SHOWN)
        str_addf(out, "and %zu more\n", gguf_count(g) - TENSORS_SHOWN);
    table_release(&t);
    gguf_close(g);
    return 0;
}

int inspect_llama2c(const char *path, struct str *out, struct err *e)
{
    struct llama2c m;
    int rc = llama2c_open(&m, path, e);
    if (rc < 0)
        return rc;
    str_addf(out,
             "llama2.c model: dim %lld, hidden %lld, %lld layers, %lld heads, %lld kv heads, "
             "vocabulary %lld, context %lld, head %s; %zu bytes of fp32\n",
             (long long)m.dim, (long long)m.hidden, (long long)m.layers, (long long)m.heads,
             (long long)m.kv_heads, (long long)m.vocab, (long long)m.seq,
             m.tied ? "tied" : "of its own", m.file.n);
    llama2c_close(&m);
    return 0;
}
