/* data/known/known.yaml: NAME.kind, NAME.licence, NAME.about, and NAME.f1.. = "FILE BYTES SHA256
 * URL". */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "cli/get/get.h"
#include "cli/cli.h"

int get_names(const struct config *table, char ***names, size_t *n, struct err *e)
{
    char **list = mem_alloc(table->n + 1, sizeof *list);
    size_t k = 0;
    if (!list)
        return err_set(e, DS_EMEM, "names");
    for (size_t i = 0; i < table->n; i++) {
        const char *key = table->entry[i].key, *dot = strchr(key, '.');
        if (!dot || strcmp(dot, ".kind") != 0)
            continue;
        list[k] = mem_dup(key, (size_t)(dot - key) + 1);
        if (!list[k]) {
            fs_list_free(list, k);
            return err_set(e, DS_EMEM, "names");
        }
        list[k++][dot - key] = '\0';
    }
    *names = list;
    *n = k;
    return 0;
}

static int is_sha256(const char *s)
{
    return strlen(s) == 64 && strspn(s, "0123456789abcdef") == 64;
}

/* "FILE BYTES SHA256 URL" */
static int read_file(struct get_file *f, const struct config_entry *x, struct err *e)
{
    char bytes[24], sum[72], *end;
    int used = 0;
    *f = (struct get_file){.bytes = -1};
    if (sscanf(x->value, "%79s %23s %71s %n", f->name, bytes, sum, &used) != 3 || !x->value[used] ||
        strchr(x->value + used, ' '))
        return err_set(e, DS_EFORMAT, "%s: %s: expected FILE BYTES SHA256 URL", x->where, x->key);
    f->url = x->value + used;
    errno = 0;
    if (strcmp(bytes, "-") != 0) {
        f->bytes = strtoll(bytes, &end, 10);
        if (*end || errno || f->bytes < 0)
            return err_set(e, DS_EFORMAT, "%s: %s: size %s: must be a non-negative integer",
                           x->where, x->key, bytes);
    }
    if (strcmp(sum, "-") != 0) {
        if (!is_sha256(sum))
            return err_set(e, DS_EFORMAT, "%s: %s: SHA-256 %s: expected 64 hex digits", x->where,
                           x->key, sum);
        str_copy(f->sha256, sizeof f->sha256, sum);
    }
    if (!fs_name_ok(f->name))
        return err_set(e, DS_EFORMAT, "%s: %s: %s: not a valid file name", x->where, x->key,
                       f->name);
    if (strncmp(f->url, "https://", 8) != 0 && strncmp(f->url, "http://", 7) != 0)
        return err_set(e, DS_EFORMAT, "%s: %s: URL %s: must begin with https:// or http://",
                       x->where, x->key, f->url);
    return 0;
}

static const char *text_of(const struct config *table, const char *name, const char *what)
{
    char key[CONFIG_KEY_MAX + 1];
    snprintf(key, sizeof key, "%s.%s", name, what);
    const char *v = config_get(table, key);
    return v ? v : "";
}

static int unknown(const struct config *table, const char *name, struct err *e)
{
    char **names = NULL;
    size_t n = 0;
    int rc = get_names(table, &names, &n, e);
    if (rc < 0)
        return rc;
    char hint[NEAREST_MAX + 32];
    struct nearest best = nearest_to(name);
    for (size_t i = 0; i < n; i++)
        nearest_try(&best, names[i]);
    rc = err_set(e, DS_ENOTFOUND, "get: unknown name \"%.80s\"%s (depthscope get --list)", name,
                 nearest_hint(&best, hint, sizeof hint));
    fs_list_free(names, n);
    return rc;
}

int get_find(const struct config *table, const char *name, struct get_known *out, struct err *e)
{
    size_t len = strlen(name);
    int rc = 0;
    *out = (struct get_known){.kind = text_of(table, name, "kind"),
                              .licence = text_of(table, name, "licence"),
                              .about = text_of(table, name, "about")};
    if (len == 0 || strchr(name, '.') || !out->kind[0])
        return unknown(table, name, e);
    for (size_t i = 0; i < table->n && rc == 0; i++) {
        const struct config_entry *x = &table->entry[i];
        if (strncmp(x->key, name, len) != 0 || x->key[len] != '.' || x->key[len + 1] != 'f' ||
            strspn(x->key + len + 2, "0123456789") != strlen(x->key + len + 2))
            continue;
        if (out->n == GET_FILES)
            return err_set(e, DS_ERANGE, "%s: too many files, must be at most %d", name, GET_FILES);
        rc = read_file(&out->file[out->n++], x, e);
    }
    if (rc == 0 && out->n == 0)
        rc = err_set(e, DS_EFORMAT, "%s: missing files in the table", name);
    return rc;
}
