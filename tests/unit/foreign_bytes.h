/* Logs of other programs for tests: bytes as a run view, and what it holds. */
#ifndef DS_TESTS_FOREIGN_BYTES_H
#define DS_TESTS_FOREIGN_BYTES_H

#include "t.h"

#include "base/mem.h"
#include "io/runview.h"

/* A file of these bytes, opened.  NULL: no format recognises it. */
static inline struct runview *open_bytes(const char *name, const void *p, size_t n)
{
    static char dir[1024];
    char path[2048];
    struct err e = {0};
    struct runview *v = NULL;
    if (!dir[0])
        snprintf(dir, sizeof dir, "%s", t_tmpdir());
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb"); /* without the fsync of base/fs.h: thousands of files */
    t_true(f && fwrite(p, 1, n, f) == n && fclose(f) == 0);
    return runview_open(&v, path, &e) == 0 ? v : NULL;
}

static int same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

/* Every point of `part` is the point of `whole` at the same place. */
static inline void t_is_beginning(const struct runview *part, const struct runview *whole)
{
    for (size_t i = 0; i < part->n_series; i++) {
        const struct series *a = &part->series[i], *b = runview_series(whole, a->name);
        t_truef(b && a->n <= b->n, "%s: %zu points", a->name, a->n);
        for (size_t k = 0; k < a->n; k++)
            t_truef(a->step[k] == b->step[k] && same_bits(a->time[k], b->time[k]) &&
                        same_bits(a->value[k], b->value[k]),
                    "%s: point %zu differs", a->name, k);
    }
}

/* Every point of `part` is some point of `whole`. */
static inline void t_is_subset(const struct runview *part, const struct runview *whole)
{
    for (size_t i = 0; i < part->n_series; i++) {
        const struct series *a = &part->series[i], *b = runview_series(whole, a->name);
        t_truef(b != NULL, "%s: no such metric", a->name);
        for (size_t k = 0; k < a->n; k++) {
            size_t j = 0;
            while (j < b->n && !(a->step[k] == b->step[j] && same_bits(a->value[k], b->value[j])))
                j++;
            t_truef(j < b->n, "%s: no value %g at step %lld", a->name, a->value[k],
                    (long long)a->step[k]);
        }
    }
}

/* Each allocation of opening this log fails once: the whole log, or one error of memory. */
static inline void t_fails_without_memory(const char *path)
{
    struct runview *whole = NULL;
    struct err e = {0};
    int failed = 0, is_done = 0;
    t_ok(runview_open(&whole, path, &e), &e);
    for (uint64_t k = 1; !is_done && k < 100000; k += 1 + k / 200) {
        struct runview *v = NULL;
        uint64_t last = mem_calls() + k;
        e = (struct err){0};
        mem_fail_at(last, 0);
        int rc = runview_open(&v, path, &e);
        is_done = mem_calls() < last;
        mem_fail_at(0, 0);
        failed += rc < 0;
        t_truef(rc == 0 || (rc == DS_EMEM && !v && strstr(e.text, "memory")), "%s, call %d: %d %s",
                path, (int)k, rc, e.text);
        if (rc < 0)
            continue;
        t_truef(v->n_series == whole->n_series && v->configs == whole->configs,
                "%s, call %d: %zu metrics, %zu settings", path, (int)k, v->n_series,
                (size_t)v->configs);
        for (size_t i = 0; i < v->n_series; i++)
            t_truef(v->series[i].n == whole->series[i].n, "%s, call %d: %s has %zu points", path,
                    (int)k, v->series[i].name, v->series[i].n);
        runview_free(v);
    }
    t_truef(is_done && failed > 10, "%s: %d calls failed", path, failed);
    runview_free(whole);
}

static inline const char *event_text(const struct runview *v, const char *name)
{
    for (size_t i = 0; i < v->n_events; i++)
        if (strcmp(v->event[i].name, name) == 0)
            return v->event[i].text;
    return "";
}

#endif
