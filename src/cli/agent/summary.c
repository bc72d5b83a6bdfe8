/* See summary.h. */
#include "summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "io/record.h"
#include "io/runlog.h"
#include "io/runview.h"

enum {
    KEYS_MAX = RUNVIEW_METRICS, /* the other end shows no more */
    FIRST_KEYS = 10, /* of a record, which its writer put first: these are drawn at once */
    STRETCHES = 64,  /* of those; the others have a quarter */
    LAST_MAX = 40,   /* events, evaluations */
    NAMED_MAX = 8,   /* matrices and samples, the newest of each name */
    BODY_MAX = 16 << 10,
    NAMED_BODY_MAX = 64 << 10
};

struct point {
    uint64_t record; /* its place in the log */
    int64_t step;
    double time, tokens, value;
};
/* The extremes of `stride` records each, from record `base` on, and the ends: `last` is what is shown
 * as the current value. */
struct key {
    char name[64];
    struct point first, last, *high; /* low, high: (most) */
    uint64_t stride, base;
    int stretches, most;
    struct point low[];
};
struct keys {
    struct key *v[KEYS_MAX];
    int n, next; /* after the one found last: most records name the same in the same order */
};
struct body {
    unsigned char *p;
    size_t n;
    uint64_t record;
};
struct named {
    char kind[8], name[64];
    struct body body;
};
struct logsum {
    struct keys whole, detail; /* the steps of the range are in `detail` only */
    int64_t from, to;
    struct body first, head, layer, end, system, ranks, last[LAST_MAX];
    size_t lasts;
    struct named named[NAMED_MAX];
    uint64_t records;
    int is_out_of_memory;
};

/* ---- metrics ---- */

/* NaN: a stretch without values. */
static void merge(struct point *low, struct point *high, const struct point *l,
                  const struct point *h)
{
    if (isnan(l->value))
        return;
    if (!(low->value <= l->value))
        *low = *l;
    if (!(high->value >= h->value))
        *high = *h;
}

/* Halves the number of stretches. */
static void widen(struct key *k)
{
    int n = (k->stretches + 1) / 2;
    for (int i = 0; i < n; i++) {
        k->low[i] = k->low[2 * i];
        k->high[i] = k->high[2 * i];
        if (2 * i + 1 < k->stretches)
            merge(&k->low[i], &k->high[i], &k->low[2 * i + 1], &k->high[2 * i + 1]);
    }
    k->stretches = n;
    k->stride *= 2;
}

static struct key *key_of(struct keys *keys, const char *name, size_t n, uint64_t base)
{
    for (int i = 0; i < keys->n; i++) {
        int at = (keys->next + i) % keys->n;
        if (strncmp(keys->v[at]->name, name, n) == 0 && keys->v[at]->name[n] == '\0') {
            keys->next = at + 1;
            return keys->v[at];
        }
    }
    int most = keys->n < FIRST_KEYS ? STRETCHES : STRETCHES / 4;
    struct key *k = NULL;
    if (keys->n < KEYS_MAX && n < sizeof k->name)
        k = mem_alloc(1, sizeof *k + 2 * (size_t)most * sizeof k->low[0]);
    if (!k)
        return NULL;
    k->high = k->low + most;
    memcpy(k->name, name, n);
    k->stride = 1;
    k->base = base;
    k->first.value = (double)NAN;
    k->most = most;
    keys->v[keys->n++] = k;
    return k;
}

static void take_point(struct key *k, const struct point *p)
{
    k->last = *p;
    if (isnan(p->value))
        return;
    if (isnan(k->first.value))
        k->first = *p;
    while ((p->record - k->base) / k->stride >= (uint64_t)k->most)
        widen(k);
    int at = (int)((p->record - k->base) / k->stride);
    for (; k->stretches <= at; k->stretches++)
        k->low[k->stretches].value = k->high[k->stretches].value = (double)NAN;
    merge(&k->low[at], &k->high[at], p, p);
}

static void take_metric(struct logsum *s, struct value body)
{
    struct point p = {.record = s->records,
                      .step = value_int(value_get(body, "step"), -1),
                      .time = value_num(value_get(body, "time"), (double)NAN),
                      .tokens = value_num(value_get(body, "tokens"), (double)NAN)};
    struct keys *keys = p.step >= s->from && p.step <= s->to ? &s->detail : &s->whole;
    struct value_iter it = {0};
    struct value key, item;
    while (value_next(body, &it, &key, &item)) {
        size_t n = 0;
        const char *name = value_bytes(key, &n);
        if (!name || value_is(key, "step") || value_is(key, "time") || value_is(key, "tokens") ||
            !value_is_num(item, &p.value))
            continue;
        struct key *k = key_of(keys, name, n, s->records);
        if (k)
            take_point(k, &p);
    }
}

/* ---- the rest ---- */

static void keep(struct logsum *s, struct body *b, struct value body)
{
    mem_free(b->p);
    b->n = (size_t)(body.end - body.p);
    b->p = mem_alloc(b->n, 1);
    b->record = s->records;
    s->is_out_of_memory |= !b->p;
    if (b->p)
        memcpy(b->p, body.p, b->n);
}

/* In the place of the one with its name, else of the oldest. */
static void keep_named(struct logsum *s, const char *kind, struct value body)
{
    struct named *to = &s->named[0];
    char name[sizeof to->name];
    value_copy(name, sizeof name, value_get(body, "name"));
    for (int i = 0; i < NAMED_MAX; i++) {
        struct named *x = &s->named[i];
        if (x->body.p && strcmp(x->kind, kind) == 0 && strcmp(x->name, name) == 0) {
            to = x;
            break;
        }
        if (to->body.p && (!x->body.p || x->body.record < to->body.record))
            to = x;
    }
    str_copy(to->kind, sizeof to->kind, kind);
    str_copy(to->name, sizeof to->name, name);
    keep(s, &to->body, body);
}

static void take(struct logsum *s, struct value body)
{
    struct value kind = value_get(body, "kind");
    size_t n = (size_t)(body.end - body.p);
    if (value_is(kind, "metric"))
        take_metric(s, body);
    else if (value_is(kind, "head")) /* that of the log, and of the newest resume */
        keep(s, s->records == 0 ? &s->first : &s->head, body);
    else if (value_is(kind, "layer"))
        keep(s, &s->layer, body);
    else if (value_is(kind, "end"))
        keep(s, &s->end, body);
    else if (value_is(kind, "system") && n <= BODY_MAX)
        keep(s, &s->system, body);
    else if (value_is(kind, "ranks"))
        keep(s, &s->ranks, body);
    else if ((value_is(kind, "event") || value_is(kind, "eval")) && n <= BODY_MAX)
        keep(s, &s->last[s->lasts++ % LAST_MAX], body);
    else if (value_is(kind, "matrix") && n <= NAMED_BODY_MAX)
        keep_named(s, "matrix", body);
    else if (value_is(kind, "sample") && n <= NAMED_BODY_MAX)
        keep_named(s, "sample", body);
    s->records++;
}

/* ---- writing ---- */

struct item {
    uint64_t record;
    const char *key; /* NULL: a body */
    const struct point *point;
    const struct body *body;
};

static int by_record(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    int order = (x->record > y->record) - (x->record < y->record);
    return order || !x->key || !y->key ? order : strcmp(x->key, y->key);
}

static int is_same(const struct item *x, const struct item *y)
{
    return x->key && y->key && x->record == y->record && strcmp(x->key, y->key) == 0;
}

/* Sorted; a point that is the lowest and the last is there once. */
static size_t sort_items(struct item *v, size_t n)
{
    size_t kept = 0;
    qsort(v, n, sizeof *v, by_record);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || !is_same(&v[kept - 1], &v[i]))
            v[kept++] = v[i];
    return kept;
}

static size_t list_points(const struct keys *keys, struct item *to)
{
    size_t n = 0;
    for (int i = 0; i < keys->n; i++) {
        const struct key *k = keys->v[i];
        if (!isnan(k->first.value))
            to[n++] = (struct item){k->first.record, k->name, &k->first, NULL};
        to[n++] = (struct item){k->last.record, k->name, &k->last, NULL};
        for (int j = 0; j < k->stretches; j++) {
            if (isnan(k->low[j].value))
                continue;
            to[n++] = (struct item){k->low[j].record, k->name, &k->low[j], NULL};
            if (k->high[j].record != k->low[j].record)
                to[n++] = (struct item){k->high[j].record, k->name, &k->high[j], NULL};
        }
    }
    return n;
}

static size_t list_items(const struct logsum *s, struct item *to)
{
    const struct body *single[] = {&s->first, &s->head, &s->layer, &s->end, &s->system, &s->ranks};
    size_t n = list_points(&s->whole, to);
    n += list_points(&s->detail, to + n);
    for (size_t i = 0; i < DS_LEN(single); i++)
        if (single[i]->p && (single[i] != &s->end || s->end.record > s->head.record))
            to[n++] = (struct item){single[i]->record, NULL, NULL, single[i]};
    for (size_t i = 0; i < LAST_MAX; i++)
        if (s->last[i].p)
            to[n++] = (struct item){s->last[i].record, NULL, NULL, &s->last[i]};
    for (size_t i = 0; i < NAMED_MAX; i++)
        if (s->named[i].body.p)
            to[n++] = (struct item){s->named[i].body.record, NULL, NULL, &s->named[i].body};
    return sort_items(to, n);
}

static int write_items(const struct item *item, size_t n, struct str *frames, struct err *e)
{
    struct record *r = record_new();
    int rc = r ? 0 : err_set(e, DS_EMEM, "out of memory for a summary");
    for (size_t i = 0; rc == 0 && i < n;) {
        size_t end = i + 1;
        if (!item[i].key) {
            const struct body *b = item[i++].body;
            record_copy(frames, 0, (struct value){b->p, b->p + b->n});
            continue;
        }
        while (end < n && item[end].key && item[end].record == item[i].record)
            end++;
        const struct point *p = item[i].point;
        record_begin(r, "metric", p->step, p->time);
        if (isfinite(p->tokens))
            record_num(r, "tokens", p->tokens);
        for (; i < end; i++)
            record_num(r, item[i].key, item[i].point->value);
        rc = record_end(r, 0, frames, e);
    }
    record_free(r);
    return rc;
}

static int write_all(const struct logsum *s, struct str *frames, struct err *e)
{
    size_t most =
        (size_t)(s->whole.n + s->detail.n) * 2 * (STRETCHES + 1) + LAST_MAX + NAMED_MAX + 8;
    struct item *item = mem_alloc(most, sizeof *item);
    if (!item)
        return err_set(e, DS_EMEM, "out of memory for a summary");
    int rc = write_items(item, list_items(s, item), frames, e);
    mem_free(item);
    return rc == 0 && frames->failed ? err_set(e, DS_EMEM, "out of memory for a summary") : rc;
}

struct logsum *logsum_new(int64_t from, int64_t to)
{
    struct logsum *s = mem_alloc(1, sizeof *s);
    if (s) {
        s->from = from;
        s->to = to;
    }
    return s;
}

void logsum_free(struct logsum *s)
{
    if (!s)
        return;
    struct body *single[] = {&s->first, &s->head, &s->layer, &s->end, &s->system, &s->ranks};
    for (int i = 0; i < s->whole.n; i++)
        mem_free(s->whole.v[i]);
    for (int i = 0; i < s->detail.n; i++)
        mem_free(s->detail.v[i]);
    for (size_t i = 0; i < DS_LEN(single); i++)
        mem_free(single[i]->p);
    for (size_t i = 0; i < LAST_MAX; i++)
        mem_free(s->last[i].p);
    for (size_t i = 0; i < NAMED_MAX; i++)
        mem_free(s->named[i].body.p);
    mem_free(s);
}

int logsum_read(struct logsum *s, struct runlog_reader *r, double seconds, struct err *e)
{
    struct runlog_entry entry;
    double end = clock_mono() + seconds;
    int got = 0;
    while ((got = runlog_next(r, &entry, e)) == 1 || runlog_reader_is_behind(r)) {
        if (got < 0)
            return got;
        if (got == 1 && entry.is_reset)
            return DS_EBUSY;
        if (got == 1 && !entry.is_gap && entry.body.p)
            take(s, entry.body);
        if (s->is_out_of_memory)
            return err_set(e, DS_EMEM, "out of memory for a summary");
        if (clock_mono() > end)
            return 0;
    }
    return got < 0 ? got : 1;
}

int logsum_write(const struct logsum *s, struct str *frames, uint64_t *records, struct err *e)
{
    *records = s->records;
    return write_all(s, frames, e);
}
