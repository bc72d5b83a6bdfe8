/* A routing trace as records: head, matrices of loads, probes (io/FORMATS.md). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "io/record.h"
#include "io/routing_parts.h"

enum { CELLS_MAX = 64 /* matrices of a probe */ };
#define PROBE_BYTES_MAX ((size_t)8 << 20)

struct writer {
    const struct routing_trace *t;
    const struct routing_head *h;
    struct record *rec;
    struct str *frames;
    uint64_t seq;
    int index;  /* of the next probe */
    float *v;   /* one matrix */
    int *place; /* (ROUTING_WINDOW): column of a token, -1: not in this probe */
};

static int end(struct writer *w, struct err *e)
{
    return record_end(w->rec, ++w->seq, w->frames, e);
}

static int write_head(struct writer *w, struct err *e)
{
    const struct routing_trace *t = w->t;
    char writer[64];
    snprintf(writer, sizeof writer, "depthscope %s", w->h->version);
    record_begin(w->rec, "head", 0, w->h->time);
    record_int(w->rec, "format", RECORD_FORMAT);
    record_str(w->rec, "version", w->h->version);
    record_str(w->rec, "run", w->h->run);
    record_str(w->rec, "writer", writer);
    record_str(w->rec, "framework", t->format->title);
    record_int(w->rec, "layers", t->layers);
    record_int(w->rec, "experts", t->experts);
    if (t->slots)
        record_int(w->rec, "experts_per_token", t->slots);
    if (w->h->vocab)
        record_int(w->rec, "vocab", w->h->vocab);
    return end(w, e);
}

static int write_load(struct writer *w, const struct routing_bin *bin, struct err *e)
{
    const struct routing_trace *t = w->t;
    size_t rows = (size_t)t->rows, experts = (size_t)t->experts;
    int32_t *layer = mem_alloc(rows, sizeof *layer);
    float *v = mem_alloc(rows * experts, sizeof *v);
    int rc = layer && v ? 0 : err_set(e, DS_EMEM, "out of memory for a routing trace");
    for (size_t r = 0; rc == 0 && r < rows; r++) {
        const uint64_t *count = bin->count + (size_t)t->order[r] * (size_t)t->expert_cap;
        layer[r] = routing_layer_of(t, t->order[r]);
        for (size_t x = 0; x < experts && x < (size_t)t->expert_cap; x++)
            v[r * experts + x] = (float)count[x];
    }
    if (rc == 0) {
        record_begin(w->rec, "matrix", bin->last, w->h->time);
        record_str(w->rec, "name", "expert_load");
        record_int(w->rec, "rows", t->rows);
        record_int(w->rec, "cols", t->experts);
        record_i32s(w->rec, "layer", layer, rows);
        record_f32s(w->rec, "value", v, rows * experts);
        rc = end(w, e);
    }
    mem_free(layer);
    mem_free(v);
    return rc;
}

/* ---- probes ---- */

struct span {
    const struct routing_window *from;
    int first, last; /* of the window: the first token and the one after the last */
    int n;           /* tokens between them that have a routing */
};

static int is_seen(const struct routing_window *from, int token)
{
    return (int)(from->seen[token / 64] >> token % 64 & 1);
}

/* The next tokens from `first` on that fit into one record; n = 0: there are none. */
static struct span take_span(struct writer *w, const struct routing_window *from, int first)
{
    const struct routing_trace *t = w->t;
    size_t per_token = (size_t)t->layers * (8 * (size_t)t->slots + 1);
    int fit = PROBE_BYTES_MAX / per_token > 1 ? (int)(PROBE_BYTES_MAX / per_token) : 1;
    struct span s = {.from = from, .first = first, .last = first};
    for (; s.last < ROUTING_WINDOW && s.n < fit; s.last++) {
        int seen = is_seen(from, s.last);
        w->place[s.last] = seen ? s.n : -1;
        s.n += seen;
        if (s.n == 0)
            s.first = s.last + 1;
    }
    while (s.last > s.first && !is_seen(from, s.last - 1))
        s.last--;
    return s;
}

/* Fills w->v with the expert (or its weight) of one slot; 1 when any is known. */
static int fill(struct writer *w, const struct span *s, int slot, int is_weight)
{
    size_t n = (size_t)w->t->layers * (size_t)s->n;
    int any = 0;
    for (size_t i = 0; i < n; i++)
        w->v[i] = NAN;
    for (size_t i = 0; i < s->from->n; i++) {
        const struct routing_entry *x = &s->from->entry[i];
        if (x->slot != slot || x->token < s->first || x->token >= s->last)
            continue;
        float v = is_weight ? x->weight : (float)x->expert;
        w->v[(size_t)routing_layer_of(w->t, x->row) * (size_t)s->n + (size_t)w->place[x->token]] =
            v;
        any |= !isnan(v);
    }
    return any;
}

static void cell_name(char out[64], const char *what, int slot)
{
    snprintf(out, 64, slot ? "%s_%d" : "%s", what, slot + 1);
}

static void write_cells(struct writer *w, const struct span *s)
{
    size_t n = (size_t)w->t->layers * (size_t)s->n;
    int slots = w->t->slots, has_weight = 0;
    char name[64];
    record_map(w->rec, "cell");
    for (int k = 0; k < slots; k++) {
        cell_name(name, "expert", k);
        fill(w, s, k, 0);
        record_f32s(w->rec, name, w->v, n);
    }
    for (int k = 0; k < slots && 2 * slots <= CELLS_MAX; k++) {
        cell_name(name, "expert_weight", k);
        if (!fill(w, s, k, 1) && !has_weight)
            break;
        has_weight = 1;
        record_f32s(w->rec, name, w->v, n);
    }
    record_close(w->rec);
    record_map(w->rec, "cell_kind");
    for (int k = 0; k < slots; k++) {
        cell_name(name, "expert", k);
        record_str(w->rec, name, "category");
    }
    for (int k = 0; k < slots && has_weight; k++) {
        cell_name(name, "expert_weight", k);
        record_str(w->rec, name, "amount");
    }
    record_close(w->rec);
}

/* No format says that a token skips a layer: all are executed, which is inferred where a token
 * has no expert (a dense layer, or a row that was not written). */
static int write_run(struct writer *w, const struct span *s, struct err *e)
{
    size_t n = (size_t)w->t->layers * (size_t)s->n, known = 0;
    unsigned char *run = mem_alloc(n, 1);
    if (!run)
        return err_set(e, DS_EMEM, "out of memory for a routing trace");
    memset(run, 1, n);
    record_bytes(w->rec, "run", run, n);
    mem_free(run);
    fill(w, s, 0, 0);
    for (size_t i = 0; i < n; i++)
        known += !isnan(w->v[i]);
    if (known < n) {
        record_array(w->rec, "inferred");
        record_str(w->rec, NULL, "run");
        record_close(w->rec);
    }
    return 0;
}

static void write_tokens(struct writer *w, const struct span *s)
{
    int32_t id[ROUTING_WINDOW];
    const char *piece[ROUTING_WINDOW];
    size_t len[ROUTING_WINDOW];
    for (int k = s->first; k < s->last; k++) {
        int at = w->place[k];
        if (at < 0)
            continue;
        id[at] = s->from->id ? s->from->id[k] : -1;
        len[at] = 0;
        piece[at] = w->h->piece && id[at] >= 0 ? w->h->piece(w->h->ctx, id[at], &len[at]) : NULL;
        piece[at] = piece[at] ? piece[at] : "";
    }
    record_i32s(w->rec, "ids", id, (size_t)s->n);
    if (w->h->piece && s->from->id)
        record_pieces(w->rec, "text", piece, len, (size_t)s->n);
}

static int write_span(struct writer *w, const struct span *s, struct err *e)
{
    char name[160];
    int64_t base = s->from->index * ROUTING_WINDOW;
    snprintf(name, sizeof name, "%s %lld, tokens %lld-%lld", w->t->text_name,
             (long long)s->from->text, (long long)(base + s->first),
             (long long)(base + s->last - 1));
    record_begin(w->rec, "probe", s->from->step, w->h->time);
    record_int(w->rec, "index", w->index++);
    record_str(w->rec, "name", name);
    record_int(w->rec, "layers", w->t->layers);
    write_tokens(w, s);
    int rc = write_run(w, s, e);
    if (rc < 0)
        return rc;
    write_cells(w, s);
    return end(w, e);
}

static int write_window(struct writer *w, const struct routing_window *from, struct err *e)
{
    int rc = 0;
    for (int first = 0; rc == 0 && first < ROUTING_WINDOW;) {
        struct span s = take_span(w, from, first);
        if (s.n == 0)
            break;
        rc = write_span(w, &s, e);
        first = s.last;
    }
    return rc;
}

int routing_trace_write(const struct routing_trace *t, const struct routing_head *h,
                        struct str *frames, struct err *e)
{
    struct writer w = {.t = t, .h = h, .frames = frames, .rec = record_new()};
    w.v = mem_alloc((size_t)t->layers * ROUTING_WINDOW, sizeof *w.v);
    w.place = mem_alloc(ROUTING_WINDOW, sizeof *w.place);
    int rc = w.rec && w.v && w.place ? write_head(&w, e)
                                     : err_set(e, DS_EMEM, "out of memory for a routing trace");
    for (size_t i = 0; rc == 0 && i < t->bins; i++)
        rc = write_load(&w, &t->bin[i], e);
    for (size_t i = 0; rc == 0 && i < t->windows; i++)
        if (t->window[i].entry)
            rc = write_window(&w, &t->window[i], e);
    record_free(w.rec);
    mem_free(w.v);
    mem_free(w.place);
    return rc;
}
