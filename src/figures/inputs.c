/* Opens the arguments of a figure: runs, CSV tables of metrics, and JSON files of results. */
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "figures/figure.h"
#include "io/foreign.h"
#include "io/runlog.h"

enum { JSON_BYTES_MAX = 256 << 20 };

static int ends_in(const char *path, const char *suffix)
{
    size_t n = strlen(path), k = strlen(suffix);
    return n > k && strcmp(path + n - k, suffix) == 0;
}

/* A figure of extremes alone would mislead. */
static int is_summary(const struct runview *v)
{
    for (size_t i = 0; i < v->n_events; i++)
        if (v->event[i].name && strcmp(v->event[i].name, RUNLOG_SUMMARY) == 0)
            return 1;
    return 0;
}

int figure_open(struct figure_run *out, const char *file, const char *given, struct err *e)
{
    struct figure_run r = {.path = given};
    const struct foreign_format *format;
    int is_json = ends_in(file, ".json") && !foreign_find(file, &format);
    int rc =
        is_json ? json_read_wide(&r.json, file, JSON_BYTES_MAX, e) : runview_read(&r.view, file, e);
    if (rc < 0)
        return rc;
    if (r.view && is_summary(r.view)) {
        rc = err_set(e, DS_EFORMAT, "%s: only a summary of its log is here; draw it on its host",
                     r.view->name);
        runview_free(r.view);
        return rc;
    }
    if (r.view && r.view->gaps > 0)
        log_warn("%s: skipped %llu corrupt places (%llu records lost)", given,
                 (unsigned long long)r.view->gaps, (unsigned long long)r.view->lost);
    *out = r;
    return 0;
}

void figure_close(struct figure_run *r)
{
    runview_free(r->view);
    json_free(r->json);
    *r = (struct figure_run){0};
}
