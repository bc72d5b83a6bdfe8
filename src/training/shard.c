/* The optimiser's moments divided over the ranks (ZeRO, stage 1): each rank adds up the gradients of
 * its own spans, takes their step and sends the new values.  Memory of other ranks' moments is given
 * back; its addresses stay, so that nothing else knows. */
#include <string.h>

#include "base/mem.h"
#include "base/ranks.h"
#include "training/team.h"
#include "training/trainer.h"

struct shard {
    struct trainer *t;
    struct adamw_part part;
    int *first; /* (ranks + 1) spans */
    int rc;     /* of share */
    struct err why;
    size_t *bytes; /* (ranks) */
};

enum kind { VALUE, GRAD, M, V };

static real *place(const struct params *ps, int span, enum kind kind)
{
    size_t begin;
    const struct param *p = params_span(ps, span, &begin);
    real *const of[] = {p->value, p->grad, p->m, p->v};
    return of[kind] + begin;
}

/* Of rank r's elements of one kind, padding included. */
static real *range(const struct shard *s, int r, enum kind kind, size_t *n)
{
    const struct params *ps = &s->t->model->params;
    real *from = place(ps, s->first[r], kind);
    *n = (size_t)(place(ps, s->first[r + 1], kind) - from);
    return from;
}

static void share(void *ctx, void *of, size_t bytes)
{
    struct shard *s = ctx;
    for (int r = 0; r < ranks_size(); r++)
        s->bytes[r] = (size_t)(s->first[r + 1] - s->first[r]) * bytes;
    if (s->rc == 0)
        s->rc =
            ranks_gather_parts(of, (char *)of + (size_t)s->part.first * bytes, s->bytes, &s->why);
}

/* Spans of nearly equal numbers of elements. */
static void divide(struct shard *s, size_t *own)
{
    const struct params *ps = &s->t->model->params;
    int spans = params_spans(ps), ranks = ranks_size(), span = 0;
    real *begin;
    size_t n = params_grads(ps, &begin);
    for (int r = 0; r < ranks; r++) {
        while (span < spans &&
               (size_t)(place(ps, span, GRAD) - begin) < n / (size_t)ranks * (size_t)r)
            span++;
        s->first[r] = span;
        own[r] = (size_t)(place(ps, span, GRAD) - begin);
    }
    s->first[ranks] = spans;
    own[ranks] = n;
}

int shard_begin(struct trainer *t, struct err *e)
{
    size_t n = (size_t)ranks_size();
    if (t->config.train.shard != SHARD_OPTIMIZER || n == 1)
        return 0;
    struct shard *s = mem_alloc(1, sizeof *s);
    size_t *own = mem_alloc(n + 1, sizeof *own);
    t->team.shard = s;
    if (s) {
        *s = (struct shard){.t = t};
        s->first = mem_alloc(n + 1, sizeof *s->first);
        s->bytes = mem_alloc(n, sizeof *s->bytes);
    }
    if (!s || !own || !s->first || !s->bytes) {
        mem_free(own);
        return err_set(e, DS_EMEM, "out of memory for %zu ranks", n);
    }
    divide(s, own);
    s->part = (struct adamw_part){.first = s->first[ranks_rank()],
                                  .end = s->first[ranks_rank() + 1],
                                  .share = share,
                                  .ctx = s};
    pieces_divide(&t->pieces, own);
    shard_drop(t);
    return 0;
}

void shard_release(struct trainer *t)
{
    if (t->team.shard) {
        mem_free(t->team.shard->first);
        mem_free(t->team.shard->bytes);
    }
    mem_free(t->team.shard);
    t->team.shard = NULL;
}

const struct adamw_part *shard_part(const struct trainer *t)
{
    return t->team.shard ? &t->team.shard->part : NULL;
}

int shard_spread(struct trainer *t, struct err *e)
{
    struct shard *s = t->team.shard;
    size_t n;
    if (!s)
        return 0;
    if (s->rc < 0)
        return err_set(e, s->rc, "%s", s->why.text);
    for (int r = 0; r < ranks_size(); r++) {
        (void)range(s, r, VALUE, &n);
        s->bytes[r] = n * sizeof(real);
    }
    return ranks_gather_parts(place(&t->model->params, 0, VALUE), range(s, ranks_rank(), VALUE, &n),
                              s->bytes, e);
}

int shard_collect(struct trainer *t, struct err *e)
{
    struct shard *s = t->team.shard;
    int parts = 0, me = ranks_rank();
    if (!s)
        return 0;
    struct ranks_part *part = mem_alloc(2 * (size_t)ranks_size(), sizeof *part);
    if (!part)
        return err_set(e, DS_EMEM, "out of memory for %d ranks", ranks_size());
    for (int r = 1; r < ranks_size(); r++)
        for (enum kind k = M; k <= V && (me == 0 || me == r); k++) {
            size_t n;
            real *p = range(s, r, k, &n);
            part[parts++] = (struct ranks_part){me == 0 ? r : 0, p, n * sizeof *p};
        }
    int rc = ranks_exchange(part, me == 0 ? 0 : parts, part, me == 0 ? parts : 0, e);
    mem_free(part);
    return rc;
}

void shard_drop(struct trainer *t)
{
    const struct shard *s = t->team.shard;
    for (int r = 0; s && r < ranks_size(); r++)
        for (enum kind k = M; k <= V && r != ranks_rank(); k++) {
            size_t n;
            real *p = range(s, r, k, &n);
            mem_discard(p, n * sizeof *p);
        }
}
