/* llama.cpp's moe-trace: a line "layer,expert" per routing, without names and without tokens.
 * Layers ascend within one evaluation, so that a lower layer begins the next. */
#include <string.h>

#include "io/routing_parts.h"

struct lines {
    const char *path, *p, *end;
    size_t line;
};

static int is_break(char c)
{
    return c == '\n' || c == '\r';
}

/* 1: two numbers, 0: the end, or a last line that is cut off. */
static int next_pair(struct lines *s, struct routing_trace *t, int64_t *layer, int64_t *expert,
                     struct err *e)
{
    while (s->p < s->end && is_break(*s->p))
        s->line += *s->p++ == '\n';
    if (s->p == s->end)
        return 0;
    const char *from = s->p;
    int ok = routing_int(&s->p, s->end, layer);
    int has_comma = ok && s->p < s->end && *s->p == ',';
    s->p += has_comma;
    ok = has_comma && routing_int(&s->p, s->end, expert);
    if (ok && (s->p == s->end || is_break(*s->p))) {
        if (s->p == s->end)
            routing_note(t, ROUTING_UNENDED);
        return 1;
    }
    if (!memchr(from, '\n', (size_t)(s->end - from))) {
        routing_note(t, "the last line is incomplete: not counted");
        s->p = s->end;
        return 0;
    }
    return err_set(e, DS_EFORMAT, "%s:%zu: expected layer,expert", s->path, s->line);
}

static void skip_names(struct lines *s)
{
    static const char names[] = "layer,expert";
    if ((size_t)(s->end - s->p) >= sizeof names && memcmp(s->p, names, sizeof names - 1) == 0)
        s->p += sizeof names - 1;
}

static uint64_t common(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

struct counts {
    int64_t layer, step;
    uint64_t run, divisor; /* rows of the current layer; of all layers: their greatest divisor */
};

static int read_file(struct routing_trace *t, const struct routing_file *f, struct counts *c,
                     struct err *e)
{
    struct lines s = {f->path, (const char *)f->map.p, (const char *)f->map.p + f->map.n, 1};
    struct routing_row row = {.token = -1, .slot = -1, .id = -1};
    int rc;
    skip_names(&s);
    while ((rc = next_pair(&s, t, &row.layer, &row.expert, e)) == 1) {
        if (row.layer != c->layer) {
            c->divisor = common(c->divisor, c->run);
            c->run = 0;
        }
        rc = row.layer < c->layer || c->step < 0 ? routing_step(t, ++c->step, e) : 0;
        c->layer = row.layer;
        c->run++;
        if (rc == 0)
            rc = routing_put(t, &row, e);
        if (rc < 0)
            return err_add(e, rc, "%s:%zu", f->path, s.line);
    }
    return rc;
}

static int read_trace(struct routing_trace *t, const struct routing_file *file, size_t n,
                      const struct routing_options *o, struct err *e)
{
    struct counts c = {.layer = -1, .step = -1};
    int rc = 0;
    (void)o;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = read_file(t, &file[i], &c, e);
    /* Each layer of a decoded token has as many rows as a token has experts.  The last layer may
     * be cut off. */
    if (c.divisor <= ROUTING_SLOTS && c.step > 0)
        t->slots = (int)c.divisor;
    if (rc == 0)
        routing_note(t, "llama.cpp's moe-trace has no tokens: loads only");
    return rc;
}

static int recognise(const char *p, size_t n)
{
    struct lines s = {"", p, p + n, 1};
    int64_t layer, expert;
    skip_names(&s);
    while (s.p < s.end && is_break(*s.p))
        s.p++;
    return routing_int(&s.p, s.end, &layer) && s.p < s.end && *s.p++ == ',' &&
           routing_int(&s.p, s.end, &expert) && (s.p == s.end || is_break(*s.p));
}

const struct routing_format routing_llama = {
    .name = "llama", .title = "llama.cpp moe-trace", .recognise = recognise, .read = read_trace};
