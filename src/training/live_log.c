/* Recovers live settings from the log's events when live.json cannot be read. */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "io/runlog.h"
#include "training/trainer.h"

int trainer_live_from_log(const char *dir,
                          void (*each)(void *ctx, const char *key, double value, int64_t step),
                          void *ctx, struct err *e)
{
    char path[1100], text[160], key[64];
    struct runlog_reader *r = NULL;
    struct runlog_entry entry;
    double value;
    int rc = fs_join(path, sizeof path, dir, "log.mp", e);
    if (rc == 0)
        rc = runlog_reader_open(&r, path, e);
    if (rc < 0)
        return rc;
    while ((rc = runlog_next(r, &entry, e)) > 0) {
        size_t n = 0;
        if (entry.is_gap || !value_is(value_get(entry.body, "kind"), "event") ||
            !value_is(value_get(entry.body, "name"), "set"))
            continue;
        const char *p = value_bytes(value_get(entry.body, "text"), &n);
        if (!p || n >= sizeof text)
            continue;
        snprintf(text, sizeof text, "%.*s", (int)n, p);
        if (sscanf(text, "%63s %lf", key, &value) == 2)
            each(ctx, key, value, value_int(value_get(entry.body, "step"), 0));
    }
    runlog_reader_close(r);
    return rc;
}
