/* Recovers live settings in the log's events when live.json cannot be read. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/runlog.h"
#include "training/trainer.h"

/* ---- reading ---- */

/* "KEY VALUE after step N; ...", or "none": in place of all that was known before. */
static void read_settings(const char *text, struct live_setting v[LIVE_MAX], int *n)
{
    char key[64];
    double value;
    int64_t step;
    int used = 0;
    *n = 0;
    while (sscanf(text, "%63s %lf after step %" SCNd64 "%n", key, &value, &step, &used) == 3) {
        (void)trainer_add_live(v, n, key, value, step);
        text += used;
        text += strspn(text, "; ");
    }
}

static int read_event(struct value body, struct live_setting v[LIVE_MAX], int *n, struct err *e)
{
    char key[64];
    double value;
    size_t len = 0;
    int is_set = value_is(value_get(body, "name"), "set");
    if (!value_is(value_get(body, "kind"), "event") ||
        (!is_set && !value_is(value_get(body, "name"), "settings")))
        return 0;
    const char *p = value_bytes(value_get(body, "text"), &len);
    char *text = p ? mem_alloc(len + 1, 1) : NULL;
    if (!text)
        return p ? err_set(e, DS_EMEM, "settings of log.mp") : 0;
    memcpy(text, p, len);
    text[len] = '\0';
    if (!is_set)
        read_settings(text, v, n);
    else if (sscanf(text, "%63s %lf", key, &value) == 2)
        (void)trainer_add_live(v, n, strcmp(key, "lr") == 0 ? "train.lr" : key, value,
                               value_int(value_get(body, "step"), 0));
    mem_free(text);
    return 0;
}

int trainer_live_from_log(const char *dir, struct live_setting v[LIVE_MAX], int *n, struct err *e)
{
    char path[1100];
    struct runlog_reader *r = NULL;
    struct runlog_entry entry;
    int rc = fs_join(path, sizeof path, dir, "log.mp", e), more = 1;
    *n = 0;
    if (rc == 0)
        rc = runlog_reader_open(&r, path, e);
    while (rc == 0 && (more = runlog_next(r, &entry, e)) > 0)
        rc = entry.is_gap ? 0 : read_event(entry.body, v, n, e);
    runlog_reader_close(r);
    return rc < 0 ? rc : more < 0 ? more : 0;
}

/* ---- writing ---- */

/* As short as it is exact: a resume from the log has to be the same run. */
static void add_value(struct str *s, double value)
{
    char text[40];
    snprintf(text, sizeof text, "%.10g", value);
    if (strtod(text, NULL) != value)
        snprintf(text, sizeof text, "%.17g", value);
    str_add(s, text);
}

static int log_text(struct trainer *t, const char *name, struct str *s, struct err *e)
{
    int rc = s->failed ? err_set(e, DS_EMEM, "event %s", name)
                       : trainer_log_event(t, LOG_INFO, name, str_text(s), e);
    str_release(s);
    return rc;
}

int trainer_log_set(struct trainer *t, const char *key, double value, struct err *e)
{
    struct str s = {0};
    str_addf(&s, "%s ", key);
    add_value(&s, value);
    return log_text(t, "set", &s, e);
}

int trainer_log_live(struct trainer *t, struct err *e)
{
    struct str s = {0};
    for (int i = 0; i < t->n_live; i++) {
        str_addf(&s, "%s%s ", i ? "; " : "", t->live[i].key);
        add_value(&s, t->live[i].value);
        str_addf(&s, " after step %" PRId64, t->live[i].step);
    }
    str_add(&s, t->n_live ? "" : "none");
    return log_text(t, "settings", &s, e);
}
