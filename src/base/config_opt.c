/* Configuration and option tables: reads values, reports unknown keys, and prints values as
 * YAML. */
#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "base/utf8.h"

static struct config_entry *entry_of(const struct config *c, const char *key)
{
    int64_t at;
    if (!key || !map_get(&c->index, key, strlen(key), &at) || at < 0)
        return NULL;
    return &c->entry[at];
}

static int full_key(char *out, size_t size, const struct opt_group *g, const struct opt *o)
{
    int n = snprintf(out, size, "%s%s", g->prefix, o->key);
    return n > 0 && (size_t)n < size;
}

/* Appends one more message, up to the size of an error text. */
static void join(struct str *all, const char *text)
{
    if (all->len < ERR_TEXT_MAX)
        str_addf(all, "%s%s", all->len ? "; " : "", text);
}

/* The last set of the row's aliases; all of them are marked used. */
static struct config_entry *by_alias(struct config *c, const struct opt *o)
{
    char name[CONFIG_KEY_MAX + 1];
    struct config_entry *last = NULL;
    for (int i = 0; opt_alias(o, i, name, sizeof name); i++) {
        struct config_entry *x = entry_of(c, name);
        if (x)
            x->used = 1;
        if (x && (!last || x->order > last->order))
            last = x;
    }
    return last;
}

int config_apply(struct config *c, const struct opt_group *g, void *values, struct err *e)
{
    struct str errors = {0};
    int rc = 0;
    for (size_t i = 0; i < g->n && rc != DS_EMEM; i++) {
        char key[CONFIG_KEY_MAX + 1];
        struct err local = {0};
        const struct opt *o = &g->opts[i];
        BUG_IF(!full_key(key, sizeof key, g, o), "option key %s is too long", o->key);
        struct config_entry *x = entry_of(c, key), *y = by_alias(c, o);
        if (x)
            x->used = 1;
        if (!x || (y && y->order > x->order))
            x = y;
        int one = x ? opt_set_named(o, g->prefix, values, x->value, x->where, &local) : 0;
        if (one < 0) {
            join(&errors, local.text);
            rc = one == DS_EMEM ? DS_EMEM : DS_EUSAGE;
        }
    }
    if (rc < 0)
        err_set(e, rc, "%s", errors.failed ? "out of memory" : str_text(&errors));
    str_release(&errors);
    return rc;
}

void config_nearest_key(struct nearest *best, const struct opt_group *g)
{
    for (size_t i = 0; i < g->n; i++) {
        char key[CONFIG_KEY_MAX + 1];
        const struct opt *o = &g->opts[i];
        if (full_key(key, sizeof key, g, o))
            nearest_try(best, key);
        for (int a = 0; opt_alias(o, a, key, sizeof key); a++)
            nearest_try(best, key);
    }
}

int config_check_unused(const struct config *c, const struct opt_group *const *groups, size_t n,
                        struct err *e)
{
    struct str text = {0};
    size_t unused = 0, named = 0;
    for (size_t i = 0; i < c->n; i++) {
        const struct config_entry *x = &c->entry[i];
        if (x->used)
            continue;
        char hint[NEAREST_MAX + 32];
        struct nearest best = nearest_to(x->key);
        unused++;
        /* Search only while the answer can be shown. */
        if (text.len > ERR_TEXT_MAX - 150)
            continue;
        for (size_t k = 0; k < n; k++)
            config_nearest_key(&best, groups[k]);
        str_addf(&text, "%s%.100s: unknown key %s%s", named++ ? "; " : "", x->where, x->key,
                 nearest_hint(&best, hint, sizeof hint));
    }
    if (unused == 0)
        return 0;
    if (named < unused)
        str_addf(&text, "; and %zu more", unused - named);
    int rc = text.failed ? err_set(e, DS_EMEM, "out of memory while listing unknown keys")
                         : err_set(e, DS_EUSAGE, "%s", str_text(&text));
    str_release(&text);
    return rc;
}

/* 1 for text that every YAML parser reads as a string without quotes. */
static int is_plain(const char *text)
{
    static const char *const words[] = {"null", "Null", "NULL"};
    size_t n = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./+-");
    if (n == 0 || text[n] || (strchr("./+-", text[0]) && !strpbrk(text, "0123456789")))
        return 0;
    if (text[0] == '-' && (text[1] < '0' || text[1] > '9') && text[1] != '.')
        return 0;
    if (strcmp(text, "---") == 0 || strcmp(text, "...") == 0)
        return 0;
    for (size_t i = 0; i < DS_LEN(words); i++)
        if (strcmp(text, words[i]) == 0)
            return 0;
    return 1;
}

/* A double-quoted scalar on one line; invalid UTF-8 becomes U+FFFD. */
static void add_quoted(struct str *out, const char *text)
{
    size_t n = strlen(text);
    str_add_char(out, '"');
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = utf8_decode(text + i, n - i, &cp);
        if (len == 0)
            str_add(out, "\xef\xbf\xbd");
        else if (cp == '"' || cp == '\\')
            str_addf(out, "\\%c", (char)cp);
        else if (cp == '\n' || cp == '\t')
            str_add(out, cp == '\n' ? "\\n" : "\\t");
        else if (cp < 0x20 || (cp >= 0x7f && cp <= 0xa0))
            str_addf(out, "\\x%02X", (unsigned)cp);
        else if (cp == 0xfeff || cp == 0x2028 || cp == 0x2029 || (cp >= 0xfffe && cp <= 0xffff))
            str_addf(out, "\\u%04X", (unsigned)cp);
        else
            str_add_bytes(out, text + i, (size_t)len);
        i += len ? (size_t)len : 1;
    }
    str_add_char(out, '"');
}

static void add_value(struct str *out, const struct opt *o, const void *values)
{
    char text[256];
    const char *p = opt_text(o, values, text, sizeof text);
    if (is_plain(p))
        str_add(out, p);
    else
        add_quoted(out, p);
}

/* Length of the common prefix of two keys in whole parts ("a.b." for "a.b.c" and "a.b.d"). */
static size_t common_parts(const char *a, const char *b)
{
    size_t common = 0;
    for (size_t i = 0; a[i] && a[i] == b[i]; i++)
        if (a[i] == '.')
            common = i + 1;
    return common;
}

void config_print_group(struct str *out, const struct opt_group *g, const void *values)
{
    char before[CONFIG_KEY_MAX + 1] = "";
    for (size_t i = 0; i < g->n; i++) {
        char key[CONFIG_KEY_MAX + 1];
        if (!full_key(key, sizeof key, g, &g->opts[i]))
            continue;
        size_t shared = common_parts(before, key);
        int indent = 0;
        const char *part = key;
        for (const char *dot; (dot = strchr(part, '.')) != NULL; part = dot + 1, indent += 2)
            if ((size_t)(dot - key) >= shared)
                str_addf(out, "%*s%.*s:\n", indent, "", (int)(dot - part), part);
        str_addf(out, "%*s%s: ", indent, "", part);
        add_value(out, &g->opts[i], values);
        str_add_char(out, '\n');
        memcpy(before, key, sizeof before);
    }
}
