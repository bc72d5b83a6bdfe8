/* Step codes: a learned vector added on entry to a block. */
#include "routing/stepcode.h"

#include <string.h>

#include "base/mem.h"

static int rows_of(const struct stepcode *c, int gated)
{
    if (c->kind == STEPCODE_OFF)
        return 0;
    if (c->kind == STEPCODE_STATIC)
        return c->L;
    return c->buckets > 0 ? c->buckets : gated + 1;
}

int stepcode_init(struct stepcode *c, struct params *ps, const char *name,
                  const struct stepcode_shape *shape, struct err *e)
{
    c->kind = shape->kind;
    c->params = ps;
    c->L = shape->L;
    c->C = shape->C;
    c->buckets = shape->buckets;
    c->rows = rows_of(c, shape->gated);
    c->table = -1;
    if (c->rows == 0)
        return 0;
    c->table = params_add(ps, name, c->rows, c->C, PARAM_PLAIN, INIT_NORMAL, 0.02);
    return c->table < 0 ? err_set(e, DS_EMEM, "%s", name) : 0;
}

void stepcode_layout(struct stepcode *c, struct arena *a, int R)
{
    c->code = arena_zalloc(a, (size_t)c->L * (size_t)R, sizeof *c->code);
}

void stepcode_begin(struct stepcode *c, int R)
{
    memset(c->code, 0xff, (size_t)c->L * (size_t)R * sizeof *c->code); /* -1: none */
}

/* A forced pass may skip more blocks than the method would; they share the last row. */
static int row_of(const struct stepcode *c, int skipped)
{
    int row = c->buckets > 0 ? skipped * (c->buckets - 1) / c->L : skipped;
    return row < c->rows ? row : c->rows - 1;
}

void stepcode_choose(struct stepcode *c, int l, int R, int i, int runs, int is_gated, int skipped,
                     int in_row)
{
    int code = -1;
    if (c->kind == STEPCODE_LANDING && runs && in_row > 0)
        code = row_of(c, skipped);
    else if (c->kind == STEPCODE_EVERY && is_gated)
        code = row_of(c, skipped + !runs);
    else if (c->kind == STEPCODE_STATIC && is_gated)
        code = l;
    c->code[(size_t)l * (size_t)R + (size_t)i] = (int16_t)code;
}

void stepcode_fwd(const struct stepcode *c, int l, struct stream *st)
{
    if (c->table < 0)
        return;
    for (int i = 0; i < st->R; i++) {
        int code = c->code[(size_t)l * (size_t)st->R + (size_t)i];
        if (code < 0)
            continue;
        const real *from = c->params->p[c->table].value + (size_t)code * (size_t)c->C;
        real *h = st->h[l] + (size_t)i * (size_t)c->C;
        for (int k = 0; k < c->C; k++)
            h[k] += from[k];
    }
}

void stepcode_bwd(const struct stepcode *c, int l, const struct stream *st)
{
    if (c->table < 0 || !c->params->p[c->table].grad)
        return;
    for (int i = 0; i < st->R; i++) {
        int code = c->code[(size_t)l * (size_t)st->R + (size_t)i];
        if (code < 0)
            continue;
        real *to = c->params->p[c->table].grad + (size_t)code * (size_t)c->C;
        const real *dh = st->dh[l] + (size_t)i * (size_t)c->C;
        for (int k = 0; k < c->C; k++)
            to[k] += dh[k];
    }
}

int stepcode_used(const struct stepcode *c, int R)
{
    uint8_t seen[4096 + 64] = {0}; /* layers, or buckets */
    int n = 0;
    BUG_IF(c->rows > (int)sizeof seen, "step-code table of %d rows", c->rows);
    for (size_t i = 0; i < (size_t)c->L * (size_t)R; i++) {
        int code = c->code[i];
        if (code >= 0 && !seen[code])
            n += seen[code] = 1;
    }
    return n;
}
