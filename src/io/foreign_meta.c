/* Configuration, JSON values and what is not shown, for the logs of other programs. */
#include "io/foreign_meta.h"

#include <inttypes.h>
#include <string.h>

#include "base/mem.h"

enum {
    KEYS_MAX = 4096,
    KEY_BYTES_MAX = 255,
    VALUE_BYTES_MAX = 4096,
    CONFIG_BYTES_MAX = 1 << 20,
    HIDDEN_MAX = 1 << 16
};

/* ---- JSON ---- */

/* After JSON_SCAN_OBJECT: its "_type", when that is text. */
static int find_type(struct json_scan s, struct json_scan *type)
{
    enum json_token t;
    while ((t = json_scan_next(&s)) == JSON_SCAN_KEY) {
        int is_type = json_scan_is(&s, "_type");
        t = json_scan_next(&s);
        if (is_type && t == JSON_SCAN_STRING) {
            *type = s;
            return 1;
        }
        if (t == JSON_SCAN_OBJECT || t == JSON_SCAN_ARRAY)
            json_scan_skip(&s);
    }
    return 0;
}

/* The value whose first token is t; the text is known to be JSON. */
static void walk(struct json_scan *s, enum json_token t, struct str *path,
                 const struct foreign_visitor *v)
{
    struct json_scan type, array;
    size_t n = path->len;
    if (t == JSON_SCAN_ARRAY) {
        const char *start = s->p - 1;
        json_scan_skip(s);
        array = *s;
        array.text = start;
        array.n = (size_t)(s->p - start);
        v->value(v->context, str_text(path), n, &array, t);
    } else if (t != JSON_SCAN_OBJECT) {
        v->value(v->context, str_text(path), n, s, t);
    } else if (v->media && find_type(*s, &type)) {
        v->media(v->context, str_text(path), n, type.text, type.n);
        json_scan_skip(s);
    } else {
        while (json_scan_next(s) == JSON_SCAN_KEY && !path->failed) {
            if (n > 0)
                str_add_char(path, '.');
            json_scan_text(s, path);
            walk(s, json_scan_next(s), path, v);
            path->len = n;
        }
    }
}

static int is_json(struct json_scan s)
{
    enum json_token t;
    do
        t = json_scan_next(&s);
    while (t != JSON_SCAN_BAD && t != JSON_SCAN_CUT && t != JSON_SCAN_DONE);
    while (s.p < s.end && strchr(" \t\r\n", *s.p) && *s.p)
        s.p++;
    return t == JSON_SCAN_DONE && s.p == s.end;
}

int foreign_json(const char *text, size_t n, const char *prefix, size_t prefix_n,
                 const struct foreign_visitor *visitor)
{
    struct json_scan s = {.p = text, .end = n ? text + n : text};
    struct str path = {0};
    if (n == 0 || !is_json(s))
        return 0;
    str_add_bytes(&path, prefix, prefix_n);
    if (!path.failed)
        walk(&s, json_scan_next(&s), &path, visitor);
    int rc = path.failed ? DS_EMEM : 1;
    str_release(&path);
    return rc;
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
        goto failed;
    if (is_known) {
        char *old = c->value[i];
        c->is_changed |= strcmp(old, v.p) != 0;
        c->value[i] = v.p;
        v.p = old;
        goto out;
    }
    if (mem_grow(&keys, &c->cap_keys, c->n + 1, sizeof *c->key) < 0)
        goto failed;
    c->key = keys;
    if (mem_grow(&values, &c->cap_values, c->n + 1, sizeof *c->value) < 0)
        goto failed;
    c->value = values;
    if (map_set(&c->index, key, n, (int64_t)c->n) < 0)
        goto failed;
    c->key[c->n] = k.p;
    c->value[c->n++] = v.p;
    c->bytes += n + value_n;
    c->is_changed = 1;
    return;
failed:
    c->is_failed = c->is_changed = 1;
out:
    str_release(&k);
    str_release(&v);
}

static void take_config(void *context, const char *path, size_t n, const struct json_scan *scan,
                        enum json_token token)
{
    struct str text = {0};
    if (token == JSON_SCAN_STRING)
        json_scan_text(scan, &text);
    else
        str_add_bytes(&text, scan->text, scan->n);
    struct foreign_config *c = context;
    if (text.failed)
        c->is_failed = c->is_changed = 1;
    else
        foreign_config_set(c, path, n, str_text(&text), text.len);
    str_release(&text);
}

void foreign_config_json(struct foreign_config *c, const char *prefix, size_t n, const char *text,
                         size_t text_n)
{
    int rc = foreign_json(text, text_n, prefix, n,
                          &(struct foreign_visitor){.value = take_config, .context = c});
    if (rc < 0)
        c->is_failed = c->is_changed = 1;
    else if (rc == 0)
        foreign_config_set(c, prefix, n, text, text_n);
}

void foreign_config_put(struct foreign_config *c, struct foreign_out *out, struct record *head)
{
    if (c->is_failed)
        foreign_no_memory(out);
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
    if (text.failed)
        foreign_no_memory(out);
    h->reported = h->names.n;
    str_release(&text);
}

void foreign_hidden_release(struct foreign_hidden *h)
{
    map_release(&h->names);
}
