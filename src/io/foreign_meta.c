/* Configuration, JSON values and what is not shown, for the logs of other programs. */
#include "io/foreign_meta.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum {
    DEPTH_MAX = 16,
    PATH_MAX_BYTES = 1024,
    KEYS_MAX = 4096,
    KEY_BYTES_MAX = 255,
    VALUE_BYTES_MAX = 4096,
    CONFIG_BYTES_MAX = 1 << 20,
    HIDDEN_MAX = 1 << 16
};

/* ---- JSON ---- */

/* The same text with NaN, Infinity and -Infinity, which JSON lacks, in quotes. */
static void quote_constants(struct str *out, const char *p, size_t n)
{
    static const char *const word[] = {"NaN", "Infinity", "-Infinity"};
    int in_string = 0;
    for (size_t i = 0, k; i < n; i++) {
        for (k = 0; !in_string && k < DS_LEN(word); k++)
            if (n - i >= strlen(word[k]) && memcmp(p + i, word[k], strlen(word[k])) == 0)
                break;
        if (!in_string && k < DS_LEN(word)) {
            str_addf(out, "\"%s\"", word[k]);
            i += strlen(word[k]) - 1;
            continue;
        }
        if (in_string && p[i] == '\\' && i + 1 < n)
            str_add_char(out, p[i++]);
        else if (p[i] == '"')
            in_string = !in_string;
        str_add_char(out, p[i]);
    }
}

static int parse(struct json **json, const char *text, size_t n)
{
    struct str quoted = {0};
    int rc = json_parse_wide(json, text, n, "", NULL);
    if (rc < 0 && (memchr(text, 'N', n) || memchr(text, 'I', n))) {
        quote_constants(&quoted, text, n);
        if (!quoted.failed)
            rc = json_parse_wide(json, quoted.p, quoted.len, "", NULL);
        str_release(&quoted);
    }
    return rc;
}

static void walk(const struct json_node *node, char path[PATH_MAX_BYTES], size_t n, int depth,
                 const struct foreign_visitor *v)
{
    void *at = NULL;
    const char *key;
    size_t key_n;
    const struct json_node *item;
    if (json_kind_of(node) != JSON_KIND_OBJECT || (v->is_leaf && v->is_leaf(node))) {
        v->value(v->context, path, n, node);
        return;
    }
    while (depth < DEPTH_MAX && (item = json_next(node, &at, &key, &key_n))) {
        size_t dot = n > 0;
        if (n + dot + key_n > PATH_MAX_BYTES)
            continue;
        if (dot)
            path[n] = '.';
        memcpy(path + n + dot, key, key_n);
        walk(item, path, n + dot + key_n, depth + 1, v);
    }
}

int foreign_json(const char *text, size_t n, const char *prefix, size_t prefix_n,
                 const struct foreign_visitor *visitor)
{
    struct json *json = NULL;
    char path[PATH_MAX_BYTES];
    if (n == 0 || prefix_n > sizeof path || parse(&json, text, n) < 0)
        return 0;
    if (prefix_n)
        memcpy(path, prefix, prefix_n);
    walk(json_root(json), path, prefix_n, 0, visitor);
    json_free(json);
    return 1;
}

int foreign_json_number(const struct json_node *node, double *x)
{
    const char *text;
    size_t n;
    switch (json_kind_of(node)) {
    case JSON_KIND_BOOL: *x = json_bool(node, 0); return 1;
    case JSON_KIND_INT:
    case JSON_KIND_REAL: *x = json_num(node, (double)NAN); return 1;
    case JSON_KIND_STRING: /* any other number in quotes was logged as text */
        text = json_str(node, &n);
        return text && foreign_number(text, n, 0, x) && !isfinite(*x);
    case JSON_KIND_NULL:
    case JSON_KIND_ARRAY:
    case JSON_KIND_OBJECT: break;
    }
    return 0;
}

/* ---- configuration ---- */

void foreign_config_set(struct foreign_config *c, const char *key, size_t n, const char *value,
                        size_t value_n)
{
    int64_t i;
    if (n == 0 || n > KEY_BYTES_MAX || memchr(key, '\0', n))
        return;
    value_n = value_n < VALUE_BYTES_MAX ? value_n : VALUE_BYTES_MAX;
    int is_known = map_get(&c->index, key, n, &i);
    if (!is_known && (c->n == KEYS_MAX || c->bytes + n + value_n > CONFIG_BYTES_MAX))
        return;
    struct str k = {0}, v = {0};
    void *keys = c->key, *values = c->value;
    str_add_bytes(&k, key, n);
    str_add_bytes(&v, value, value_n);
    if (k.failed || v.failed)
        goto out;
    if (is_known) {
        char *old = c->value[i];
        c->is_changed |= strcmp(old, v.p) != 0;
        c->value[i] = v.p;
        v.p = old;
        goto out;
    }
    if (mem_grow(&keys, &c->cap_keys, c->n + 1, sizeof *c->key) < 0)
        goto out;
    c->key = keys;
    if (mem_grow(&values, &c->cap_values, c->n + 1, sizeof *c->value) < 0)
        goto out;
    c->value = values;
    if (map_set(&c->index, key, n, (int64_t)c->n) < 0)
        goto out;
    c->key[c->n] = k.p;
    c->value[c->n++] = v.p;
    c->bytes += n + value_n;
    c->is_changed = 1;
    return;
out:
    str_release(&k);
    str_release(&v);
}

/* As few digits as give the same number again. */
static void add_number(struct str *s, double x)
{
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    str_add(s, text);
}

static void add_scalar(struct str *s, const struct json_node *node)
{
    switch (json_kind_of(node)) {
    case JSON_KIND_NULL: str_add(s, "null"); break;
    case JSON_KIND_BOOL: str_add(s, json_bool(node, 0) ? "true" : "false"); break;
    case JSON_KIND_INT: str_addf(s, "%" PRId64, json_int(node, 0)); break;
    case JSON_KIND_REAL: add_number(s, json_num(node, 0)); break;
    case JSON_KIND_STRING: str_add(s, json_str(node, NULL) ? json_str(node, NULL) : ""); break;
    case JSON_KIND_ARRAY: str_add(s, "[...]"); break;
    case JSON_KIND_OBJECT: str_add(s, "{...}"); break;
    }
}

static void take_config(void *context, const char *path, size_t n, const struct json_node *node)
{
    struct str text = {0};
    if (json_kind_of(node) == JSON_KIND_ARRAY) {
        str_add_char(&text, '[');
        for (size_t i = 0; i < json_len(node) && text.len < VALUE_BYTES_MAX; i++) {
            str_add(&text, i ? ", " : "");
            add_scalar(&text, json_at(node, i));
        }
        str_add_char(&text, ']');
    } else {
        add_scalar(&text, node);
    }
    if (!text.failed)
        foreign_config_set(context, path, n, str_text(&text), text.len);
    str_release(&text);
}

void foreign_config_json(struct foreign_config *c, const char *prefix, size_t n, const char *text,
                         size_t text_n)
{
    if (!foreign_json(text, text_n, prefix, n,
                      &(struct foreign_visitor){.value = take_config, .context = c}))
        foreign_config_set(c, prefix, n, text, text_n);
}

void foreign_config_put(struct foreign_config *c, struct record *head)
{
    if (c->n == 0)
        return;
    record_map(head, "config");
    for (size_t i = 0; i < c->n; i++)
        record_str(head, c->key[i], c->value[i]);
    record_close(head);
    c->is_changed = 0;
}

void foreign_config_release(struct foreign_config *c)
{
    for (size_t i = 0; i < c->n; i++) {
        mem_free(c->key[i]);
        mem_free(c->value[i]);
    }
    mem_free(c->key);
    mem_free(c->value);
    map_release(&c->index);
}

/* ---- what is not shown ---- */

void foreign_hidden_add(struct foreign_hidden *h, const char *kind, size_t kind_n, const char *name,
                        size_t n, int64_t step, double time)
{
    int64_t known;
    int k;
    if (map_get(&h->names, name, n, &known) || h->names.n == HIDDEN_MAX)
        return;
    size_t keep = kind_n < sizeof h->kind[0].name ? kind_n : sizeof h->kind[0].name - 1;
    for (k = 0; k < h->kinds; k++)
        if (strncmp(h->kind[k].name, kind, keep) == 0 && h->kind[k].name[keep] == '\0')
            break;
    if (k == h->kinds && h->kinds == (int)DS_LEN(h->kind))
        k--; /* the last kind stands for the rest */
    else if (k == h->kinds)
        memcpy(h->kind[h->kinds++].name, kind, keep);
    if (map_set(&h->names, name, n, k) < 0)
        return;
    h->kind[k].n++;
    h->step = step;
    h->time = time;
}

void foreign_hidden_report(struct foreign_hidden *h, struct foreign_out *out, const char *noun,
                           int is_end)
{
    struct str text = {0};
    if (h->names.n == h->reported || (!is_end && h->names.n < 2 * h->reported))
        return;
    for (int k = 0; k < h->kinds; k++)
        str_addf(&text, "%s%" PRIu32 " %s %s%s", k ? ", " : "", h->kind[k].n, h->kind[k].name, noun,
                 h->kind[k].n == 1 ? "" : "s");
    str_add(&text, " not shown");
    foreign_event(out, h->step, h->time, "info", "not_shown", str_text(&text));
    h->reported = h->names.n;
    str_release(&text);
}

void foreign_hidden_release(struct foreign_hidden *h)
{
    map_release(&h->names);
}
