/* Incremental use: keys and values of what has been seen are kept per layer, of exactly the rows that are keys. */
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

/* Keys of all tokens, then values, layer by layer. */
static void layers_place(struct kv_cache *c, size_t width, int is_bf16)
{
    size_t each = width * (size_t)c->cap;
    for (int l = 0; l < c->L; l++) {
        struct kv_layer *y = &c->layer[l];
        if (is_bf16) {
            y->k16 = (uint16_t *)c->block + 2 * each * (size_t)l;
            y->v16 = y->k16 + each;
        } else {
            y->k = (real *)c->block + 2 * each * (size_t)l;
            y->v = y->k + each;
        }
    }
}

int kv_cache_new(struct kv_cache **out, const struct model *m, int cap, struct err *e)
{
    size_t L = (size_t)m->config.layers, width = (size_t)(m->config.kv_heads * m->config.head_dim);
    size_t item = wants_bf16(m) ? sizeof(uint16_t) : sizeof(real);
    uint64_t items;
    if (checked_mul(L * 2 * width, (uint64_t)cap, &items))
        return err_set(e, DS_ERANGE, "a cache of %d tokens", cap);
    struct kv_cache *c = mem_alloc(1, sizeof *c);
    if (!c)
        return err_set(e, DS_EMEM, "cache");
    c->L = (int)L;
    c->cap = cap;
    c->layer = mem_alloc(L, sizeof *c->layer);
    c->block = mem_alloc(items, item);
    c->memory_bytes = m->route.ops->memory ? m->route.ops->memory(&m->route) : 0;
    c->memory = c->memory_bytes ? mem_alloc(1, c->memory_bytes) : NULL;
    if (!c->layer || !c->block || (c->memory_bytes && !c->memory)) {
        kv_cache_free(c);
        return err_set(e, DS_EMEM, "a cache of %d tokens", cap);
    }
    layers_place(c, width, wants_bf16(m));
    *out = c;
    return 0;
}

void kv_cache_free(struct kv_cache *c)
{
    if (!c)
        return;
    mem_free(c->layer);
    mem_free(c->block);
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

void kv_cache_append(const struct model *m, struct kv_cache *c, int l, const struct plan *p,
                     const struct block_work *w)
{
    struct kv_layer *y = &c->layer[l];
    size_t width = (size_t)(m->config.kv_heads * m->config.head_dim);
    size_t n = (size_t)(p->kv == KV_ALL ? m->R : p->n), at = (size_t)y->n * width;
    if (y->k16) {
        bf16_from_reals(y->k16 + at, w->k, n * width);
        bf16_from_reals(y->v16 + at, w->v, n * width);
    } else {
        memcpy(y->k + at, w->k, n * width * sizeof(real));
        memcpy(y->v + at, w->v, n * width * sizeof(real));
    }
    y->n += (int)n;
}

int model_decode(struct model *m, struct kv_cache *c, const int32_t *id, int n, struct pass *pass,
                 struct err *e)
{
    if (c->len + n > c->cap)
        return err_set(e, DS_ERANGE, "the context is full: %d tokens of %d", c->len + n, c->cap);
    if (m->pos_embed >= 0 && c->len + n > m->config.max_seq)
        return err_set(e, DS_ERANGE,
                       "the context is full: %d tokens, model.max_seq=%lld learned positions",
                       c->len + n, (long long)m->config.max_seq);
    BUG_IF(n > m->R_max || pass->kind == PASS_MASKED, "decode: %d rows, buffers for %d", n,
           m->R_max);
    m->B = pass->B = 1;
    m->T = m->R = pass->T = pass->R = n;
    m->batch = NULL;
    for (int i = 0; i < n; i++) {
        m->pos[i] = c->len + i;
        m->first_row[i] = -c->len;
    }
    model_run(m, id, pass, c);
    c->len += n;
    return 0;
}
