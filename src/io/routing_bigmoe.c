/* BigMoeOnEdge's --route-trace, version 1: comments with the model's numbers, then one row per turn,
 * phase (0 prefill, 1 decode), step (position in the context), layer and slot (rank).  A routing
 * that the expert cache dropped was still the router's choice and is counted. */
#include <string.h>

#include "io/routing_parts.h"

struct bigmoe {
    int64_t turn, phase, position, iteration;
};

/* A prefill is one iteration, and so is each decoded token. */
static int adjust(struct routing_trace *t, struct routing_row *row, const int64_t *value, void *ctx,
                  struct err *e)
{
    struct bigmoe *b = ctx;
    int64_t phase = value[COLUMN_PHASE], position = value[COLUMN_STEP];
    int is_next =
        row->text != b->turn || phase != b->phase || (phase == 1 && position != b->position);
    b->turn = row->text;
    b->phase = phase;
    b->position = position;
    row->token = position >= 0 ? position : -1; /* below 0: not attributed to a token */
    if (!is_next)
        return 0;
    return routing_step(t, ++b->iteration, e);
}

static int declared(int *into, int64_t v, int most, const char *path, const char *key,
                    struct err *e)
{
    if (v < 0 || *into)
        return 0;
    if (v < 1 || v > most)
        return err_set(e, DS_ERANGE, "%s: %s=%lld: must be 1 to %d", path, key, (long long)v, most);
    *into = (int)v;
    return 0;
}

static int read_facts(struct routing_trace *t, const struct routing_file *f, struct err *e)
{
    const char *p = (const char *)f->map.p, *end = p + f->map.n;
    int rc = 0, slots = 0;
    while (rc == 0 && p < end && *p == '#') {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((nl ? nl : end) - p);
        if (n < 4096) {
            rc = declared(&t->layers, routing_fact(p, n, "n_layer"), ROUTING_LAYERS, f->path,
                          "n_layer", e);
            if (rc == 0)
                rc = declared(&t->experts, routing_fact(p, n, "n_expert"), ROUTING_EXPERTS, f->path,
                              "n_expert", e);
            if (rc == 0)
                rc = declared(&slots, routing_fact(p, n, "n_expert_used"), ROUTING_SLOTS, f->path,
                              "n_expert_used", e);
        }
        p += n + (nl != NULL);
    }
    t->slots = slots > t->slots ? slots : t->slots;
    return rc;
}

static int read_trace(struct routing_trace *t, const struct routing_file *file, size_t n,
                      const struct routing_options *o, struct err *e)
{
    struct bigmoe b = {.turn = -1, .iteration = -1};
    int rc = 0;
    routing_text_name(t, "turn");
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = read_facts(t, &file[i], e);
    return rc < 0 ? rc : routing_table_read(t, file, n, o, adjust, &b, e);
}

static int recognise(const char *p, size_t n)
{
    static const char first[] = "# route_trace v";
    return n >= sizeof first && memcmp(p, first, sizeof first - 1) == 0;
}

const struct routing_format routing_bigmoe = {.name = "bigmoe",
                                              .title = "BigMoeOnEdge route_trace",
                                              .recognise = recognise,
                                              .read = read_trace};
