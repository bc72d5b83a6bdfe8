/* Starting and resuming runs on a host. */
#include <string.h>

#include "base/json.h"
#include "io/host_parts.h"

enum { REQUEST_MAX = 60 << 10 }; /* bytes, of the 64 KiB that an agent takes */

static int check(const struct host *h, const char *what, struct err *e)
{
    const struct host_info x = host_info(h);
    if (x.state != HOST_UP || host_can(h, what))
        return 0;
    if (strncmp(x.version, "Python", 6) == 0 || strcmp(x.version, "tail") == 0)
        return err_set(e, DS_EUSAGE, "%s has no depthscope: runs cannot be started there", x.name);
    return err_set(e, DS_EUSAGE, "%s: depthscope %s there starts no runs; update it", x.name,
                   x.version);
}

int64_t host_start(struct host *h, const char *name, const char *presets,
                   const char *const *setting, size_t n, struct err *e)
{
    struct str more = {0};
    int64_t rc = check(h, "start", e);
    json_add_str(&more, "name", name);
    json_add_str(&more, "preset", presets);
    str_add(&more, ",\"settings\":[");
    for (size_t i = 0; i < n; i++) {
        str_add(&more, i ? "," : "");
        str_add_json(&more, setting[i], strlen(setting[i]));
    }
    str_add(&more, "]");
    if (rc == 0 && (more.failed || more.len > REQUEST_MAX))
        rc = err_set(e, more.failed ? DS_EMEM : DS_ERANGE, "%s",
                     more.failed ? "out of memory for the request" : "the settings are too long");
    if (rc == 0)
        rc = host_ask(h, "start", &more, 0, e);
    str_release(&more);
    return rc;
}

static int64_t ask_of_run(struct host *h, const char *what, const char *path, const char *from,
                          struct err *e)
{
    const char *run = host_run(h, path);
    struct str more = {0};
    if (!run)
        return err_set(e, DS_ENOTFOUND, "%s: no such run on %s", path, host_info(h).name);
    int64_t rc = check(h, what, e);
    json_add_str(&more, "run", run);
    if (from)
        json_add_str(&more, "from", from);
    if (rc == 0)
        rc = host_ask(h, what, &more, !from, e);
    str_release(&more);
    return rc;
}

int64_t host_resume(struct host *h, const char *path, const char *from, struct err *e)
{
    return ask_of_run(h, "resume", path, from, e);
}

int64_t host_checkpoints(struct host *h, const char *path, struct err *e)
{
    return ask_of_run(h, "checkpoints", path, NULL, e);
}

const struct run_row *host_find(const struct host *h, const char *name)
{
    size_t n;
    const struct run_row *const *row = host_rows(h, &n);
    for (size_t i = 0; i < n; i++)
        if (row[i]->is_kept && strcmp(row[i]->name, name) == 0)
            return row[i];
    return NULL;
}
