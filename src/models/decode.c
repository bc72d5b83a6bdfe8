/* Incremental decoding with a KV cache: each layer keeps keys and values of exactly the rows that
 * are keys. */
#include <string.h>

#include "base/checked.h"
#include "base/mem.h"
#include "engine/bf16.h"
#include "models/block.h"

static int wants_bf16(const struct model *m)
{
    int kind = m->weights.numbers.kv_cache;
    return REAL_BITS == 32 &&
           (kind == KV_CACHE_BF16 || (kind == KV_CACHE_AUTO && m->weights.format == GEMM_BF16));
}

/* Which layers of a new cache have memory of their own. */
struct layout {
    const struct kv_cache *base; /* its keys below `shared` are used; NULL: none */
    int shared;
    const uint8_t *closed; /* (L) layers without keys; NULL: none */
};

static int is_own(const struct layout *y, int l)
{
    return l >= y->shared && !(y->closed && y->closed[l]);
}

/* Keys of all tokens, then values, layer by layer; positions where there is a window. */
static void layers_place(struct kv_cache *c, const struct model *m, const struct layout *at,
                         size_t width, int is_bf16)
{
    size_t each = width * (size_t)c->cap, own = 0;
    for (int l = 0; l < c->L; l++) {
        struct kv_layer *y = &c->layer[l];
        if (c->places && m->block[l].window > 0)
            y->pos = (int32_t *)c->places + (size_t)l * (size_t)c->cap;
        if (l < at->shared) {
            *y = at->base->layer[l];
        } else if (is_own(at, l) && is_bf16) {
            y->k16 = (uint16_t *)c->block + 2 * each * own++;
            y->v16 = y->k16 + each;
        } else if (is_own(at, l)) {
            y->k = (real *)c->block + 2 * each * own++;
            y->v = y->k + each;
        }
    }
}

static int cache_new(struct kv_cache **out, const struct model *m, const struct layout *at, int cap,
                     struct err *e)
{
    size_t L = (size_t)model_config_depth(&m->config), own = 0,
           width = (size_t)(m->config.kv_heads * m->config.head_dim);
    size_t item = wants_bf16(m) ? sizeof(uint16_t) : sizeof(real);
    uint64_t items;
    for (size_t l = 0; l < L; l++)
        own += (size_t)is_own(at, (int)l);
    if (checked_mul(own * 2 * width, (uint64_t)cap, &items))
        return err_set(e, DS_ERANGE, "KV cache of %d tokens: must hold at least one", cap);
    struct kv_cache *c = mem_alloc(1, sizeof *c);
    if (!c)
        return err_set(e, DS_EMEM, "cache");
    c->L = (int)L;
    c->cap = cap;
    c->context = at->base ? at->base->context : cap;
    c->layer = mem_alloc(L, sizeof *c->layer);
    c->block = mem_alloc(items + 1, item);
    c->places = m->config.window > 0 ? mem_alloc(L * (size_t)cap + 1, sizeof(int32_t)) : NULL;
    c->memory_bytes = m->route.ops->memory ? m->route.ops->memory(&m->route) : 0;
    c->memory = c->memory_bytes ? mem_alloc(1, c->memory_bytes) : NULL;
    if (!c->layer || !c->block || (m->config.window > 0 && !c->places) ||
        (c->memory_bytes && !c->memory)) {
        kv_cache_free(c);
        return err_set(e, DS_EMEM, "KV cache of %d tokens: out of memory", cap);
    }
    layers_place(c, m, at, width, wants_bf16(m));
    *out = c;
    return 0;
}

int kv_cache_new(struct kv_cache **out, const struct model *m, int cap, struct err *e)
{
    return cache_new(out, m, &(struct layout){0}, cap, e);
}

int kv_cache_over(struct kv_cache **out, const struct model *m, const struct kv_cache *base,
                  int shared, const uint8_t *closed, struct err *e)
{
    return cache_new(out, m, &(struct layout){base, shared, closed}, base->cap, e);
}

void kv_cache_free(struct kv_cache *c)
{
    if (!c)
        return;
    mem_free(c->layer);
    mem_free(c->block);
    mem_free(c->places);
    mem_free(c->memory);
    mem_free(c);
}

void kv_cache_reset(struct kv_cache *c)
{
    c->len = 0;
    if (c->memory)
        memset(c->memory, 0, c->memory_bytes);
    for (int l = 0; l < c->L; l++)
        c->layer[l].n = 0;
}

/* ---- places to return to ---- */

int kv_mark_init(struct kv_mark *k, const struct kv_cache *c, struct err *e)
{
    *k = (struct kv_mark){.n = mem_alloc((size_t)c->L, sizeof *k->n),
                          .memory = c->memory ? mem_alloc(1, c->memory_bytes) : NULL};
    return k->n && (k->memory || !c->memory) ? 0 : err_set(e, DS_EMEM, "KV cache: out of memory");
}

void kv_mark_release(struct kv_mark *k)
{
    mem_free(k->n);
    mem_free(k->memory);
    *k = (struct kv_mark){0};
}

void kv_mark_set(struct kv_mark *k, const struct kv_cache *c)
{
    k->len = c->len;
    for (int l = 0; l < c->L; l++)
        k->n[l] = c->layer[l].n;
    if (k->memory)
        memcpy(k->memory, c->memory, c->memory_bytes);
}

void kv_cache_return(struct kv_cache *c, const struct kv_mark *k)
{
    c->len = k->len;
    for (int l = 0; l < c->L; l++)
        c->layer[l].n = k->n[l];
    if (k->memory)
        memcpy(c->memory, k->memory, c->memory_bytes);
}

/* Keys among the first `rows` rows of a plan. */
static int plan_keys(const struct plan *p, int rows)
{
    int n = 0;
    while (p->kv == KV_PLAN && n < p->n && p->row[n] < rows)
        n++;
    return p->kv == KV_ALL ? rows : n;
}

void kv_cache_keep(struct kv_cache *c, const struct kv_mark *before, const struct model *m,
                   int rows)
{
    c->len = before->len + rows;
    for (int l = 0; l < c->L; l++)
        c->layer[l].n = before->n[l] + plan_keys(&m->plan[l], rows);
}

void kv_cache_append(const struct model *m, struct kv_cache *c, int l, const struct block_work *w,
                     int from, int n)
{
    struct kv_layer *y = &c->layer[l];
    size_t width = (size_t)(m->config.kv_heads * m->config.head_dim), items = (size_t)n * width;
    size_t at = (size_t)y->n * width, row = (size_t)from * width;
    if (n == 0) /* a closed layer may have no memory at all */
        return;
    for (int j = 0; y->pos && j < n; j++)
        y->pos[y->n + j] = m->ranges.kpos[from + j];
    if (y->k16) {
        bf16_from_reals(y->k16 + at, w->k + row, items);
        bf16_from_reals(y->v16 + at, w->v + row, items);
    } else {
        memcpy(y->k + at, w->k + row, items * sizeof(real));
        memcpy(y->v + at, w->v + row, items * sizeof(real));
    }
    y->n += n;
}

static int check_room(const struct model *m, const struct kv_cache *c, int T, struct err *e)
{
    if (c->len + T > c->cap)
        return err_set(e, DS_ERANGE, "context is full: %d tokens, the KV cache holds %d",
                       c->len + T, c->cap);
    if (m->pos_embed >= 0 && c->len + T > m->config.max_seq)
        return err_set(e, DS_ERANGE,
                       "context is full: %d tokens, model.max_seq=%lld learned positions",
                       c->len + T, (long long)m->config.max_seq);
    return 0;
}

/* The rotary frequencies of a text are chosen once, for its context. */
static int check_context(const struct model *m, const struct kv_cache *a, const struct kv_cache *b,
                         struct err *e)
{
    if (model_config_rope_context(&m->config, a->context) ==
        model_config_rope_context(&m->config, b->context))
        return 0;
    return err_set(
        e, DS_ERANGE,
        "contexts of %d and %d tokens have other rotary frequencies (model.rope_scaling); "
        "decode them in separate batches",
        a->context, b->context);
}

static int decode(struct model *m, struct kv_cache *const *c, int n, const int32_t *id, int T,
                  int from, struct pass *pass, struct err *e)
{
    void *memory[DECODE_BATCH];
    int rc = 0;
    BUG_IF(n < 1 || n > DECODE_BATCH || n * T > m->R_max || pass->kind == PASS_MASKED,
           "decode: %d x %d rows exceed buffers for %d", n, T, m->R_max);
    for (int s = 0; s < n && rc == 0; s++) {
        rc = check_room(m, c[s], T, e);
        if (rc == 0)
            rc = check_context(m, c[0], c[s], e);
        memory[s] = c[s]->memory;
    }
    if (rc < 0)
        return rc;
    model_set_context(m, c[0]->context);
    m->B = pass->B = n;
    m->T = pass->T = T;
    m->R = pass->R = n * T;
    m->batch = NULL;
    m->private_row = NULL;
    for (int i = 0; i < m->R; i++) {
        m->pos[i] = c[i / T]->len + i % T;
        m->first_row[i] = i - m->pos[i];
    }
    pass->memory = c[0]->memory ? memory : NULL;
    model_run(m, id, pass, c, from);
    pass->memory = NULL; /* `memory` ends here */
    m->route.pass.memory = NULL;
    for (int s = 0; s < n; s++)
        c[s]->len += T;
    return 0;
}

int model_decode_batch(struct model *m, struct kv_cache *const *c, int n, const int32_t *id, int T,
                       struct pass *pass, struct err *e)
{
    return decode(m, c, n, id, T, 0, pass, e);
}

int model_decode(struct model *m, struct kv_cache *c, const int32_t *id, int n, struct pass *pass,
                 struct err *e)
{
    return decode(m, &c, 1, id, n, 0, pass, e);
}

int model_decode_from(struct model *m, struct kv_cache *c, const int32_t *id, int n, int from,
                      struct pass *pass, struct err *e)
{
    return decode(m, &c, 1, id, n, from, pass, e);
}
