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

/* Only settings that were made before the step are taken. */
struct taken {
    struct live_setting *v; /* LIVE_MAX */
    int *n;
    int64_t before;
};

static void take(const struct taken *t, const struct live_setting *s)
{
    if (s->step < t->before)
        (void)trainer_add_live(t->v, t->n, s->key, s->value, s->step);
}

static int is_in(const struct live_setting *v, int n, const struct live_setting *s)
{
    for (int i = 0; i < n; i++)
        if (v[i].step == s->step && v[i].value == s->value && strcmp(v[i].key, s->key) == 0)
            return 1;
    return 0;
}

/* "KEY VALUE after step N; ...", or "none": in place of all that was known before.  A full list may
 * lack what was overridden in it, which then stays known. */
static void read_settings(const char *text, int64_t step, const struct taken *t)
{
    struct live_setting list[LIVE_MAX], s;
    int n = 0, kept = 0, used = 0;
    while (sscanf(text, "%63s %lf after step %" SCNd64 "%n", s.key, &s.value, &s.step, &used) ==
           3) {
        (void)trainer_add_live(list, &n, s.key, s.value, s.step);
        text += used;
        text += strspn(text, "; ");
    }
    for (int i = 0; n == LIVE_MAX && i < *t->n; i++)
        if (t->v[i].step < step && !is_in(list, n, &t->v[i]))
            t->v[kept++] = t->v[i];
    *t->n = kept;
    for (int i = 0; i < n; i++)
        take(t, &list[i]);
}

static int read_event(struct value body, const struct taken *t, struct err *e)
{
    struct live_setting s = {.step = value_int(value_get(body, "step"), 0)};
    char key[64];
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
    if (!is_set) {
        read_settings(text, s.step, t);
    } else if (sscanf(text, "%63s %lf", key, &s.value) == 2) {
        str_copy(s.key, sizeof s.key, strcmp(key, "lr") == 0 ? "train.lr" : key);
        take(t, &s);
    }
    mem_free(text);
    return 0;
}

int trainer_live_from_log(const char *dir, int64_t before, struct live_setting v[LIVE_MAX], int *n,
                          struct err *e)
{
    char path[1100];
    struct runlog_reader *r = NULL;
    struct runlog_entry entry;
    const struct taken taken = {.v = v, .n = n, .before = before};
    int rc = fs_join(path, sizeof path, dir, "log.mp", e), more = 1;
    *n = 0;
    if (rc == 0)
        rc = runlog_reader_open(&r, path, e);
    while (rc == 0 && (more = runlog_next(r, &entry, e)) > 0)
        rc = entry.is_gap ? 0 : read_event(entry.body, &taken, e);
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
