/* The configuration store: keys with values, origins and overrides. */
#include "base/config.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static struct config_entry *find(const struct config *c, const char *key)
{
    int64_t at;
    if (!map_get(&c->index, key, strlen(key), &at) || at < 0)
        return NULL;
    return &c->entry[at];
}

const char *config_get(const struct config *c, const char *key)
{
    const struct config_entry *x = find(c, key);
    return x ? x->value : NULL;
}

static int key_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

/* A key consists of parts of letters, digits, '_' and '-', joined by single dots. */
static int key_ok(const char *key, size_t n)
{
    int fresh = 1; /* a part begins here */
    if (n == 0 || n > CONFIG_KEY_MAX)
        return 0;
    for (size_t i = 0; i < n; i++) {
        if (key[i] == '.' ? fresh : !key_char(key[i]))
            return 0;
        fresh = key[i] == '.';
    }
    return !fresh;
}

static int append(struct config *c, const char *key, char *value, char *where)
{
    void *p = c->entry;
    if (mem_grow(&p, &c->cap, c->n + 1, sizeof *c->entry) < 0)
        return DS_EMEM;
    c->entry = p;
    char *name = mem_strdup(key);
    if (!name || map_set(&c->index, key, strlen(key), (int64_t)c->n) < 0) {
        mem_free(name);
        return DS_EMEM;
    }
    c->entry[c->n++] =
        (struct config_entry){.key = name, .value = value, .where = where, .order = ++c->order};
    return 0;
}

int config_set(struct config *c, const char *key, const char *value, const char *where,
               struct err *e)
{
    if (!key_ok(key, strlen(key)))
        return err_set(e, DS_EUSAGE,
                       "%s: invalid key '%.80s': expected letters, digits, _ and -, "
                       "in parts joined by dots",
                       where, key);
    char *new_value = mem_strdup(value), *new_where = mem_strdup(where);
    struct config_entry *old = find(c, key);
    int rc = new_value && new_where ? 0 : DS_EMEM;
    if (rc == 0 && !old)
        rc = append(c, key, new_value, new_where);
    if (rc < 0) {
        mem_free(new_value);
        mem_free(new_where);
        return err_set(e, rc, "%s: out of memory for %s", where, key);
    }
    if (old) {
        mem_free(old->value);
        mem_free(old->where);
        old->value = new_value;
        old->where = new_where;
        old->used = 0;
        old->order = ++c->order;
    }
    return 0;
}

static void entry_release(struct config_entry *x)
{
    mem_free(x->key);
    mem_free(x->value);
    mem_free(x->where);
}

/* Sets a key that is in the index, so that map_set cannot fail. */
static void index_move(struct config *c, const char *key, int64_t at)
{
    int rc = map_set(&c->index, key, strlen(key), at);
    BUG_IF(rc < 0, "key %s is not in the index", key);
}

/* Removes `name` and, when `below`, every "name.*"; returns the number removed.  Keeps the
 * order. */
static size_t remove_keys(struct config *c, const char *name, int below)
{
    char key[CONFIG_KEY_MAX + 1]; /* the name may be owned by a removed entry */
    str_copy(key, sizeof key, name);
    size_t kept = 0, n = strlen(key), all = c->n;
    for (size_t i = 0; i < all; i++) {
        struct config_entry *x = &c->entry[i];
        int same =
            strncmp(x->key, key, n) == 0 && (x->key[n] == '\0' || (below && x->key[n] == '.'));
        if (same) {
            index_move(c, x->key, -1);
            entry_release(x);
            continue;
        }
        if (kept != i) {
            index_move(c, x->key, (int64_t)kept);
            c->entry[kept] = *x;
        }
        kept++;
    }
    c->n = kept;
    return all - kept;
}

void config_remove(struct config *c, const char *key)
{
    if (find(c, key))
        remove_keys(c, key, 0);
}

void config_release(struct config *c)
{
    for (size_t i = 0; i < c->n; i++)
        entry_release(&c->entry[i]);
    mem_free(c->entry);
    map_release(&c->index);
    *c = (struct config){0};
}

int config_merge(struct config *c, const struct config *over, struct err *e)
{
    struct config all = {0};
    const struct config *part[2] = {c, over};
    int rc = 0;
    for (int k = 0; rc == 0 && k < 2; k++)
        for (size_t i = 0; rc == 0 && i < part[k]->n; i++) {
            const struct config_entry *x = &part[k]->entry[i];
            rc = config_set(&all, x->key, x->value, x->where, e);
            if (rc == 0)
                find(&all, x->key)->used = x->used;
        }
    if (rc < 0) {
        config_release(&all);
        return rc;
    }
    /* The order in which keys were set decides between aliases, not the order of rows. */
    for (size_t i = 0; i < c->n; i++)
        if (!find(over, c->entry[i].key))
            all.entry[i].order = c->entry[i].order;
    for (size_t i = 0; i < over->n; i++)
        find(&all, over->entry[i].key)->order = c->order + over->entry[i].order;
    all.order = c->order + over->order;
    config_release(c);
    *c = all;
    return 0;
}

int override_is(const char *word)
{
    size_t n = 0;
    if (word[0] == '+' || word[0] == '~') /* "~/runs/a", which a shell has left, is a path */
        return word[1] != '\0' && word[strcspn(word, "/=")] != '/';
    while (key_char(word[n]) || word[n] == '.')
        n++;
    size_t equals = n + (n > 0 && word[n] && strchr(":+?!", word[n]));
    return word[equals] == '=' && (n > 0 || word[1]) && word[0] != '-';
}

int override_parse(struct override *o, const char *text, const char *where, struct err *e)
{
    const char *p = text;
    o->op = *p == '~' ? OVERRIDE_REMOVE : p[0] == '+' && p[1] != '+' ? OVERRIDE_ADD : OVERRIDE_SET;
    p += o->op != OVERRIDE_SET ? 1 : strncmp(p, "++", 2) == 0 || strncmp(p, "--", 2) == 0 ? 2 : 0;
    const char *equals = strchr(p, '=');
    size_t n = equals ? (size_t)(equals - p) : strlen(p);
    if (!equals && o->op != OVERRIDE_REMOVE)
        return err_set(e, DS_EUSAGE, "%s: '%.80s': expected key=value", where, text);
    if (equals && n > 1 && strchr(":+?!", p[n - 1]) && key_ok(p, n - 1))
        return err_set(e, DS_EUSAGE, "%s: '%.80s': unsupported '%c=', expected %.*s=%.80s", where,
                       text, p[n - 1], (int)n - 1, p, equals + 1);
    if (!key_ok(p, n))
        return err_set(e, DS_EUSAGE,
                       "%s: '%.80s': invalid key before '=': expected letters, "
                       "digits, _ and -, in parts joined by dots",
                       where, text);
    memcpy(o->key, p, n);
    o->key[n] = '\0';
    o->value = equals ? equals + 1 : NULL;
    if (o->op != OVERRIDE_REMOVE && strstr(o->value, "${"))
        return err_set(e, DS_EUSAGE, "%s: '%.80s': unsupported reference ${...}", where, text);
    return 0;
}

static int override_remove(struct config *c, const struct override *o, const char *text,
                           const char *where, struct err *e)
{
    const char *key = o->key;
    const struct config_entry *x = find(c, key);
    if (o->value && x && strcmp(x->value, o->value) != 0)
        return err_set(e, DS_EUSAGE, "%s: '%.80s': cannot remove %s, its value is %.80s", where,
                       text, key, x->value);
    if ((o->value && !x) || remove_keys(c, key, !o->value) == 0)
        return err_set(e, DS_EUSAGE, "%s: '%.80s': cannot remove %s: not set", where, text, key);
    return 0;
}

int config_override(struct config *c, const char *text, const char *where, struct err *e)
{
    struct override o;
    int rc = override_parse(&o, text, where, e);
    if (rc < 0)
        return rc;
    if (o.op == OVERRIDE_REMOVE)
        return override_remove(c, &o, text, where, e);
    const struct config_entry *old = find(c, o.key);
    if (o.op == OVERRIDE_ADD && old)
        return err_set(e, DS_EUSAGE,
                       "%s: '%.80s': duplicate key %s (%s); "
                       "use %s=... or ++%s=...",
                       where, text, o.key, old->where, o.key, o.key);
    return config_set(c, o.key, o.value, where, e);
}
