/* Megatron-LM's RouterTracer: one file per rank, one JSON object per line with the top-k expert
 * indices of all tokens of a step in one layer.
 *
 * A text is a rank: its tokens are those of its steps, one after the other.  Within a rank, a
 * record of the same step, block and layer is another micro-batch when it differs, and the same one
 * once more (activations that were recomputed, a file given twice) when it does not.  Ranks whose
 * files are equal but for the rank saw the same tokens (tensor parallelism) and count once. */
#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "io/routing_parts.h"

enum { LINE_MAX_BYTES = 256 << 20, MTP_LAYERS = 64, RANKS_MAX = 1 << 16 };

struct megatron {
    struct routing_trace *t;
    const char *path;
    size_t line;
    struct map layers; /* key -> index of parts */
    struct part {
        uint64_t hash;
        int64_t n; /* micro-batches of this step and layer */
    } * part;
    size_t parts, part_cap;
    struct map steps; /* rank, step, micro-batch -> first token, and its number of tokens */
    struct map sizes;
    struct map ranks; /* rank -> tokens so far */
    struct str rest;  /* the line without its indices */
    uint64_t unplaced;
};

struct record_key {
    int64_t rank, step, layer, micro;
};

static int no_memory(struct err *e)
{
    return err_set(e, DS_EMEM, "out of memory for a routing trace");
}

/* ---- the array of indices ---- */

struct indices {
    const char *p, *end; /* inside the outer brackets */
};

static void skip_blanks(struct indices *x)
{
    while (x->p < x->end && (*x->p == ' ' || *x->p == '\t' || *x->p == '\r'))
        x->p++;
}

static int take(struct indices *x, char c)
{
    skip_blanks(x);
    if (x->p == x->end || *x->p != c)
        return 0;
    x->p++;
    return 1;
}

/* The next index of the current token, or the next token: 'i', 't', 0 at the end, -1 when malformed.
 * depth: 0 outside, 1 between tokens, 2 inside one. */
static int next_index(struct indices *x, int *depth, int64_t *expert)
{
    if (*depth == 2) {
        if (take(x, ']')) {
            *depth = 1;
            return next_index(x, depth, expert);
        }
        if (x->p[-1] != '[' && !take(x, ','))
            return -1;
        skip_blanks(x);
        return routing_int(&x->p, x->end, expert) ? 'i' : -1;
    }
    if (*depth == 1) {
        if (take(x, ']')) {
            *depth = 0;
            return 0;
        }
        if (x->p[-1] != '[' && !take(x, ','))
            return -1;
        *depth = 2;
        return take(x, '[') ? 't' : -1;
    }
    *depth = 1;
    return take(x, '[') ? next_index(x, depth, expert) : -1;
}

/* Finds the value of "top_indices" in a line; the rest of it, with null instead, goes to m->rest. */
static int split(struct megatron *m, const char *p, const char *end, struct indices *x)
{
    static const char key[] = "\"top_indices\"";
    const char *at = p;
    for (;; at++) {
        at = memchr(at, '"', (size_t)(end - at));
        if (!at || (size_t)(end - at) < sizeof key)
            return 0;
        if (memcmp(at, key, sizeof key - 1) == 0)
            break;
    }
    *x = (struct indices){at + sizeof key - 1, end};
    if (!take(x, ':'))
        return 0;
    skip_blanks(x);
    struct indices scan = *x;
    int64_t expert;
    int depth = 0, what;
    while ((what = next_index(&scan, &depth, &expert)) > 0)
        ;
    if (what < 0)
        return 0;
    str_reset(&m->rest);
    str_add_bytes(&m->rest, p, (size_t)(x->p - p));
    str_add(&m->rest, "null");
    str_add_bytes(&m->rest, scan.p, (size_t)(end - scan.p));
    x->end = scan.p;
    return 1;
}

/* ---- records ---- */

struct header {
    struct record_key key;
    int64_t tokens, topk;
};

static int read_header(struct megatron *m, struct header *h, struct err *e)
{
    struct json *doc = NULL;
    if (m->rest.failed)
        return no_memory(e);
    int rc = json_parse(&doc, m->rest.p, m->rest.len, "this line", e);
    if (rc < 0)
        return rc;
    const struct json_node *root = json_root(doc);
    const char *block = json_str(json_get(root, "block"), NULL);
    int64_t layer = json_int(json_get(root, "layer"), -1);
    int64_t mtp = json_int(json_get(root, "mtp_idx"), -1);
    *h = (struct header){.key = {.rank = json_int(json_get(root, "rank"), 0),
                                 .step = json_int(json_get(root, "step"), -1),
                                 .layer = layer},
                         .tokens = json_int(json_get(root, "num_tokens"), -1),
                         .topk = json_int(json_get(root, "topk"), -1)};
    if (layer < 0 || layer >= ROUTING_LAYERS)
        rc = err_set(e, DS_ERANGE, "layer %lld: must be 0 to %d", (long long)layer,
                     ROUTING_LAYERS - 1);
    else if (h->key.step < 0)
        rc = err_set(e, DS_ERANGE, "step: expected a whole number, 0 or more");
    else if (h->key.rank < 0 || h->key.rank >= RANKS_MAX)
        rc = err_set(e, DS_ERANGE, "rank %lld: must be 0 to %d", (long long)h->key.rank,
                     RANKS_MAX - 1);
    else if (mtp >= 0 || (block && strcmp(block, "mtp") == 0)) {
        mtp = mtp < 0 ? 0 : mtp;
        if (mtp >= ROUTING_LAYERS / MTP_LAYERS || layer >= MTP_LAYERS)
            rc = err_set(e, DS_ERANGE, "layer %lld of mtp block %lld: must be below %d and %d",
                         (long long)layer, (long long)mtp, MTP_LAYERS, ROUTING_LAYERS / MTP_LAYERS);
        h->key.layer = ROUTING_EXTRA + mtp * MTP_LAYERS + layer;
    }
    json_free(doc);
    return rc;
}

/* Counts tokens and checks the declared shape; *hash: of the indices. */
static int measure(struct indices x, struct header *h, uint64_t *hash, struct err *e)
{
    int64_t expert, tokens = 0, indices = 0, most = 0;
    int depth = 0, what;
    *hash = hash64(x.p, (size_t)(x.end - x.p), 0);
    while ((what = next_index(&x, &depth, &expert)) > 0) {
        tokens += what == 't';
        indices = what == 't' ? 0 : indices + 1;
        most = indices > most ? indices : most;
    }
    if (h->tokens >= 0 && h->tokens != tokens)
        return err_set(e, DS_EFORMAT, "num_tokens %lld, but %lld lists of indices",
                       (long long)h->tokens, (long long)tokens);
    if (h->topk >= 0 && most > h->topk)
        return err_set(e, DS_EFORMAT, "topk %lld, but %lld indices of a token", (long long)h->topk,
                       (long long)most);
    h->tokens = tokens;
    return 0;
}

/* 1: a new micro-batch (or the first), 0: the record was there before. */
static int place(struct megatron *m, struct header *h, uint64_t hash, struct err *e)
{
    int64_t at;
    void *p = m->part;
    if (map_get(&m->layers, &h->key, 3 * sizeof(int64_t), &at)) {
        struct part *part = &m->part[at];
        if (part->hash == hash) {
            m->t->duplicates++;
            return 0;
        }
        part->hash = hash;
        h->key.micro = part->n++;
        return 1;
    }
    if (mem_grow(&p, &m->part_cap, m->parts + 1, sizeof *m->part) < 0)
        return no_memory(e);
    m->part = p;
    m->part[m->parts] = (struct part){.hash = hash, .n = 1};
    if (map_set(&m->layers, &h->key, 3 * sizeof(int64_t), (int64_t)m->parts) < 0)
        return no_memory(e);
    m->parts++;
    return 1;
}

/* Number of the micro-batch's first token in its rank; -1 when its layers differ in their tokens,
 * so that it is unknown which these are. */
static int first_token(struct megatron *m, const struct header *h, int64_t *first, struct err *e)
{
    int64_t key[3] = {h->key.rank, h->key.step, h->key.micro}, rank = h->key.rank, n = 0;
    if (map_get(&m->steps, key, sizeof key, first)) {
        if (map_get(&m->sizes, key, sizeof key, &n) && n != h->tokens) {
            m->unplaced += (uint64_t)h->tokens;
            *first = -1;
        }
        return 0;
    }
    if (!map_get(&m->ranks, &rank, sizeof rank, &n))
        n = 0;
    *first = n;
    if (map_set(&m->steps, key, sizeof key, n) < 0 ||
        map_set(&m->sizes, key, sizeof key, h->tokens) < 0 ||
        map_set(&m->ranks, &rank, sizeof rank, n + h->tokens) < 0)
        return no_memory(e);
    return 0;
}

static int put_indices(struct megatron *m, struct indices x, const struct header *h, int64_t first,
                       struct err *e)
{
    struct routing_row row = {
        .text = h->key.rank, .token = -1, .layer = h->key.layer, .weight = NAN, .id = -1};
    int depth = 0, what, rc = 0;
    int64_t token = -1;
    while (rc == 0 && (what = next_index(&x, &depth, &row.expert)) > 0) {
        if (what == 't') {
            row.token = first < 0 ? -1 : first + ++token;
            row.slot = 0;
            continue;
        }
        rc = routing_put(m->t, &row, e);
        row.slot++;
    }
    return rc;
}

static int take_line(struct megatron *m, const char *p, const char *end, struct err *e)
{
    struct indices x;
    struct header h;
    uint64_t hash;
    int64_t first = 0;
    if (!split(m, p, end, &x))
        return err_set(e, DS_EFORMAT, "expected \"top_indices\": [[EXPERT, ...], ...]");
    int rc = read_header(m, &h, e);
    if (rc == 0)
        rc = measure(x, &h, &hash, e);
    if (rc == 0)
        rc = place(m, &h, hash, e);
    if (rc <= 0)
        return rc;
    rc = first_token(m, &h, &first, e);
    if (rc == 0)
        rc = routing_step(m->t, h.key.step, e);
    return rc < 0 ? rc : put_indices(m, x, &h, first, e);
}

static int read_file(struct megatron *m, const struct routing_file *f, struct err *e)
{
    const char *p = (const char *)f->map.p, *end = p + f->map.n;
    m->path = f->path;
    for (m->line = 1; p < end; m->line++) {
        const char *nl = memchr(p, '\n', (size_t)(end - p)), *to = nl ? nl : end;
        int rc = 0;
        struct err own = {0};
        if ((size_t)(to - p) > LINE_MAX_BYTES)
            return err_set(e, DS_ERANGE, "%s:%zu: line longer than %d MiB", m->path, m->line,
                           LINE_MAX_BYTES >> 20);
        if (to > p && !(to == p + 1 && *p == '\r'))
            rc = take_line(m, p, to, &own);
        if (rc == DS_EFORMAT && !nl) /* a writer was stopped in the middle */
            routing_note(m->t, "%s", "the last line is incomplete: not counted");
        else if (rc < 0)
            return err_set(e, rc, "%s:%zu: %s", m->path, m->line, own.text);
        p = to + 1;
    }
    return 0;
}

/* ---- equal ranks ---- */

/* Of all lines, without the number of the rank and the places in files beside the trace. */
static uint64_t hash_file(const struct routing_file *f)
{
    static const char key[] = "\"rank\":";
    const char *p = (const char *)f->map.p, *end = p + f->map.n;
    uint64_t hash = 0;
    while (p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p)), *to = nl ? nl + 1 : end, *at = p;
        while ((at = memchr(at, '"', (size_t)(to - at))) != NULL) {
            if ((size_t)(to - at) > sizeof key && memcmp(at, key, sizeof key - 1) == 0)
                break;
            at++;
        }
        const char *rest = at ? at + sizeof key - 1 : p;
        if (at)
            hash = hash64(p, (size_t)(at - p), hash);
        while (at && rest < to && (*rest == ' ' || (*rest >= '0' && *rest <= '9')))
            rest++;
        hash = hash64(rest, (size_t)(to - rest), hash);
        p = to;
    }
    return hash;
}

static int is_copy(const uint64_t *hash, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (hash[k] == hash[i])
            return 1;
    return 0;
}

static int read_trace(struct routing_trace *t, const struct routing_file *file, size_t n,
                      const struct routing_options *o, struct err *e)
{
    struct megatron m = {.t = t};
    uint64_t *hash = mem_alloc(n, sizeof *hash);
    size_t copies = 0;
    int rc = hash ? 0 : no_memory(e);
    (void)o;
    routing_text_name(t, "rank");
    t->has_extra = 1;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        hash[i] = n > 1 ? hash_file(&file[i]) : 0;
        if (is_copy(hash, i))
            copies++;
        else
            rc = read_file(&m, &file[i], e);
    }
    if (rc == 0 && copies)
        routing_note(t, "%zu of %zu files equal another but for the rank: their tokens count once",
                     copies, n);
    if (rc == 0 && t->duplicates)
        routing_note(t, "%llu records that were there before: not counted again",
                     (unsigned long long)t->duplicates);
    if (rc == 0 && m.unplaced)
        routing_note(t, "%llu tokens of layers with another number of tokens: loads only",
                     (unsigned long long)m.unplaced);
    mem_free(hash);
    mem_free(m.part);
    map_release(&m.layers);
    map_release(&m.steps);
    map_release(&m.sizes);
    map_release(&m.ranks);
    str_release(&m.rest);
    return rc;
}

static int recognise(const char *p, size_t n)
{
    static const char key[] = "\"top_indices\"";
    if (n < sizeof key || *p != '{')
        return 0;
    for (size_t i = 0; i + sizeof key <= n; i++)
        if (p[i] == '"' && memcmp(p + i, key, sizeof key - 1) == 0)
            return 1;
    return 0;
}

const struct routing_format routing_megatron = {.name = "megatron",
                                                .title = "Megatron-LM RouterTracer",
                                                .recognise = recognise,
                                                .read = read_trace};
