/* See probes.h. */
#include "probes.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "io/record.h"
#include "io/runlog.h"

enum { BYTES_MAX = 96 << 10, KEPT_MAX = 256, TEXTS_MAX = 16, RECORD_BYTES_MAX = 8 << 20 };

struct kept {
    unsigned char *p; /* the body; NULL: none */
    size_t n;
    uint64_t place, at; /* among the probes of its text; in the log */
};
/* Every stride-th probe of each text, and its newest. */
struct probes {
    struct runlog_reader *reader;
    int64_t from, to;
    struct kept kept[KEPT_MAX + 1], newest[TEXTS_MAX];
    size_t n, bytes;
    uint64_t stride, seen[TEXTS_MAX];
};

static int set(struct kept *k, struct value body, uint64_t place, uint64_t at)
{
    mem_free(k->p);
    k->n = (size_t)(body.end - body.p);
    k->place = place;
    k->at = at;
    k->p = mem_alloc(k->n, 1);
    if (k->p)
        memcpy(k->p, body.p, k->n);
    return k->p ? 0 : DS_EMEM;
}

static void widen(struct probes *c)
{
    size_t left = 0;
    c->stride *= 2;
    for (size_t i = 0; i < c->n; i++) {
        struct kept k = c->kept[i];
        if (k.place % c->stride == 0) {
            c->kept[left++] = k;
        } else {
            c->bytes -= k.n;
            mem_free(k.p);
        }
    }
    for (size_t i = left; i < c->n; i++)
        c->kept[i] = (struct kept){0};
    c->n = left;
}

static int take(struct probes *c, struct value body, uint64_t at)
{
    int64_t index = value_int(value_get(body, "index"), 0);
    size_t text = (uint64_t)index < TEXTS_MAX ? (size_t)index : TEXTS_MAX - 1;
    uint64_t place = c->seen[text]++;
    int rc = set(&c->newest[text], body, place, at);
    if (rc == 0 && place % c->stride == 0) {
        rc = set(&c->kept[c->n], body, place, at);
        c->bytes += c->kept[c->n++].n;
    }
    while (c->n > KEPT_MAX || (c->bytes > BYTES_MAX && c->stride < place + 2))
        widen(c);
    return rc;
}

static struct kept *first_of(struct probes *c)
{
    struct kept *first = NULL;
    for (size_t i = 0; i < c->n + TEXTS_MAX; i++) {
        struct kept *k = i < c->n ? &c->kept[i] : &c->newest[i - c->n];
        if (k->p && (!first || k->at < first->at))
            first = k;
    }
    return first;
}

/* In the order of the log; a probe that is kept for two reasons is written once. */
static void write_out(struct probes *c, struct str *frames)
{
    uint64_t last = UINT64_MAX;
    for (struct kept *k; (k = first_of(c));) {
        if (frames && k->at != last)
            record_copy(frames, k->at, (struct value){k->p, k->p + k->n});
        last = k->at;
        mem_free(k->p);
        k->p = NULL;
    }
}

int probes_open(struct probes **out, const char *path, int64_t from, int64_t to, struct err *e)
{
    struct probes *c = mem_alloc(1, sizeof *c);
    if (!c)
        return err_set(e, DS_EMEM, "out of memory for probes");
    *c = (struct probes){.from = from, .to = to, .stride = 1};
    int rc = runlog_reader_open(&c->reader, path, e);
    if (rc < 0) {
        mem_free(c);
        return rc;
    }
    runlog_reader_limit(c->reader, 1 << 20);
    *out = c;
    return 0;
}

int probes_choose(struct probes *c, double seconds, struct str *frames, struct err *e)
{
    struct runlog_entry entry;
    double end = clock_mono() + seconds;
    int got = 0;
    while ((got = runlog_next(c->reader, &entry, e)) == 1 || runlog_reader_is_behind(c->reader)) {
        if (got < 0 || (got == 1 && (int64_t)entry.offset >= c->to))
            break;
        if (got == 1 && !entry.is_gap && entry.body.p && (int64_t)entry.offset >= c->from &&
            value_is(value_get(entry.body, "kind"), "probe") &&
            (size_t)(entry.body.end - entry.body.p) <= RECORD_BYTES_MAX &&
            take(c, entry.body, entry.offset) < 0)
            return err_set(e, DS_EMEM, "out of memory for probes");
        if (clock_mono() > end)
            return 0;
    }
    if (got < 0)
        return got;
    write_out(c, frames);
    return 1;
}

void probes_close(struct probes *c)
{
    if (!c)
        return;
    write_out(c, NULL);
    runlog_reader_close(c->reader);
    mem_free(c);
}
