/* Reads the configuration of a run, from config.yaml or from the head of its log. */
#include "io/runconfig.h"

#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "io/runlog.h"

enum { VALUE_MAX_BYTES = 511 }; /* the largest that fits in a head */

/* Config of the newest head of DIR/log.mp, or of its first one; empty when there is none. */
static int read_head(struct config *c, const char *dir, int is_first, struct err *e)
{
    char path[1100], name[CONFIG_KEY_MAX + 1], text[VALUE_MAX_BYTES + 1];
    struct runlog_reader *r = NULL;
    struct runlog_entry entry;
    int rc = fs_join(path, sizeof path, dir, "log.mp", e);
    if (rc < 0 || !fs_exists(path))
        return rc;
    rc = runlog_reader_open(&r, path, e);
    if (rc < 0)
        return rc;
    while ((rc = runlog_next(r, &entry, e)) > 0) {
        struct value key, item, map = value_get(entry.body, "config");
        struct value_iter it = {0};
        if (entry.is_gap || !value_is(value_get(entry.body, "kind"), "head") ||
            value_kind(map) != VALUE_MAP || value_len(map) == 0)
            continue;
        config_release(c);
        while (rc > 0 && value_next(map, &it, &key, &item)) {
            size_t k = 0, n = 0;
            const char *p = value_bytes(key, &k), *v = value_bytes(item, &n);
            if (!p || !v || k >= sizeof name || n >= VALUE_MAX_BYTES) {
                rc =
                    err_set(e, DS_EFORMAT, "%s: the configuration in its head is incomplete", path);
                break;
            }
            snprintf(name, sizeof name, "%.*s", (int)k, p);
            snprintf(text, sizeof text, "%.*s", (int)n, v);
            int set = config_set(c, name, text, "log.mp", e);
            rc = set < 0 ? set : rc;
        }
        if (rc < 0 || is_first)
            break;
    }
    runlog_reader_close(r);
    if (rc < 0)
        config_release(c);
    return rc < 0 ? rc : 0;
}

int runconfig_has_writer(const char *dir)
{
    char path[1100];
    struct runlog_reader *r = NULL;
    struct runlog_entry entry;
    int has_writer = 0;
    if (fs_join(path, sizeof path, dir, "log.mp", NULL) < 0 || !fs_exists(path) ||
        runlog_reader_open(&r, path, NULL) < 0)
        return 0;
    while (runlog_next(r, &entry, NULL) > 0)
        if (!entry.is_gap && value_is(value_get(entry.body, "kind"), "head")) {
            has_writer = value_kind(value_get(entry.body, "writer")) == VALUE_STR;
            break;
        }
    runlog_reader_close(r);
    return has_writer;
}

/* Keys that every run has; a method's keys disappear when the method changes. */
static int is_common(const char *key)
{
    return !strchr(key, '.') || strncmp(key, "train.", 6) == 0 || strncmp(key, "data.", 5) == 0 ||
           strncmp(key, "model.", 6) == 0;
}

/* How many keys of a head the file lacks.  The newest head is read only if the first one, which is
 * found at once, has more keys: the set of keys varies between versions. */
static size_t count_missing(const struct config *have, const char *dir)
{
    size_t n = 0;
    for (int is_first = 1; is_first >= 0; is_first--) {
        struct config head = {0};
        n = 0;
        if (read_head(&head, dir, is_first, NULL) == 0)
            for (size_t i = 0; i < head.n; i++)
                n += is_common(head.entry[i].key) && !config_get(have, head.entry[i].key);
        config_release(&head);
        if (n == 0)
            break;
    }
    return n;
}

/* 1 when `c` was filled from the file, 0 when the file is unusable; `why` has the reason. */
static int read_file(struct config *c, const char *dir, const char *path, struct err *why)
{
    size_t missing = 0;
    int rc = 0;
    if (!fs_exists(path))
        rc = err_set(why, DS_ENOTFOUND, "%s: missing", path);
    else if ((rc = config_read_yaml(c, path, why)) < 0)
        ;
    else if (c->n == 0)
        rc = err_set(why, DS_EFORMAT, "%s: empty", path);
    else if ((missing = count_missing(c, dir)) > 0)
        rc = err_set(why, DS_EFORMAT, "%s: truncated: %zu keys of log.mp's head are missing", path,
                     missing);
    if (rc < 0)
        config_release(c);
    return rc == 0;
}

int runconfig_read_head(struct config *c, const char *dir, struct err *e)
{
    return read_head(c, dir, 1, e);
}

int runconfig_read(struct config *c, const char *dir, int *is_lost, struct err *e)
{
    char path[1100];
    struct err why = {0}, head = {0};
    int rc = fs_join(path, sizeof path, dir, "config.yaml", e);
    if (is_lost)
        *is_lost = 0;
    if (rc < 0 || read_file(c, dir, path, &why))
        return rc;
    if (why.code == DS_EMEM || (is_lost && fs_is_unreadable(path, why.code)))
        return err_set(e, why.code, "%s", why.text);
    if (read_head(c, dir, 0, &head) < 0 || c->n == 0)
        return err_set(e, why.code,
                       "%s, and log.mp has no configuration either%s%s; restore config.yaml or "
                       "start a new run",
                       why.text, head.text[0] ? ": " : "", head.text);
    log_warn("%s; using the configuration in the newest head of log.mp", why.text);
    if (is_lost)
        *is_lost = 1;
    return 0;
}
