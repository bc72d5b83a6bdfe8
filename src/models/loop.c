/* Looped blocks: what settles, what is shared between iterations, what is injected. */
#include "models/loop.h"

#include <string.h>

#include "base/rng.h"

static int has_loop(const struct model *m)
{
    return m->config.loop > 1;
}

static int is_looped(const struct model *m, int l)
{
    const struct route_loop *x = &m->route.loop;
    return has_loop(m) && l >= x->start && l < x->end;
}

static size_t place_in_group(const struct model *m, int l)
{
    return (size_t)((l - m->route.loop.start) % m->route.loop.group);
}

void loop_layout(struct model *m, struct arena *a, size_t R)
{
    struct model_loop *x = &m->loop;
    size_t L = (size_t)model_config_depth(&m->config), G = (size_t)m->route.loop.group;
    size_t width = (size_t)(m->config.kv_heads * m->config.head_dim);
    *x = (struct model_loop){0};
    if (!has_loop(m))
        return;
    x->settled = arena_alloc(a, L * R, 1);
    x->moved = arena_alloc(a, G * R, 1);
    x->row = arena_alloc(a, R, sizeof *x->row);
    x->query = arena_alloc(a, R, sizeof *x->query);
    x->pos = arena_alloc(a, R, sizeof *x->pos);
    x->k = arena_alloc(a, G * R * width, sizeof(real));
    x->v = arena_alloc(a, G * R * width, sizeof(real));
    x->new_k = arena_alloc(a, R * width, sizeof(real));
    x->new_v = arena_alloc(a, R * width, sizeof(real));
}

void loop_begin(struct model *m)
{
    if (has_loop(m))
        memset(m->loop.moved, 1, (size_t)m->route.loop.group * (size_t)m->R);
}

void loop_settle(struct model *m, int l, struct plan *p)
{
    size_t R = (size_t)m->R;
    p->settled = NULL;
    if (!is_looped(m, l) || p->kv != KV_ALL)
        return;
    if (m->route.ops->enter && m->route.pass.kind != PASS_DENSE) /* it may add to every state */
        memset(m->loop.moved, 1, (size_t)m->route.loop.group * R);
    uint8_t *moved = m->loop.moved + place_in_group(m, l) * R;
    int before = l - m->route.loop.group;
    if (loop_enters(m, l) && before >= m->route.loop.start &&
        loop_norms(m, before) != loop_norms(m, l))
        memset(moved, 1, R); /* the same states, but another input */
    uint8_t *settled = m->loop.settled + (size_t)l * (size_t)m->R_max;
    for (size_t i = 0; i < R; i++)
        settled[i] = !moved[i];
    memset(moved, 0, R);
    p->settled = settled;
}

static void note_rows(struct model *m, const struct plan *p)
{
    for (int j = 0; j < m->route.loop.group; j++)
        for (int k = 0; k < p->n; k++)
            if (p->gate[k] != 0)
                m->loop.moved[(size_t)j * (size_t)m->R + (size_t)p->row[k]] = 1;
}

void loop_note(struct model *m, int l, const struct plan *p, const struct plan *ffn)
{
    if (!is_looped(m, l))
        return;
    if (p->kv != KV_ALL) /* this block's keys were not computed for every row */
        memset(m->loop.moved + place_in_group(m, l) * (size_t)m->R, 1, (size_t)m->R);
    note_rows(m, p);
    if (ffn)
        note_rows(m, ffn);
}

int loop_iterations(const struct model *m, const struct pass *pass)
{
    const struct model_config *c = &m->config;
    struct rng r;
    if (c->loop_min < 1 || pass->kind != PASS_TRAIN || pass->step < 1)
        return (int)c->loop;
    rng_init(&r, pass->seed, RNG_LOOP, (uint64_t)pass->step, 0);
    return (int)(c->loop_min + rng_below(&r, (uint32_t)(c->loop - c->loop_min + 1)));
}

int loop_norms(const struct model *m, int l)
{
    return m->loop_norm >= 0 &&
           (m->config.loop_norm != LOOP_NORM_FINAL || l != m->route.loop.start);
}

int loop_enters(const struct model *m, int l)
{
    return is_looped(m, l) && place_in_group(m, l) == 0 &&
           (loop_norms(m, l) || m->config.loop_inject != LOOP_INJECT_NONE);
}

const real *loop_injected(const struct model *m)
{
    return m->config.loop_inject == LOOP_INJECT_ADD ? m->stream.h[m->route.loop.start] : NULL;
}

real *loop_injected_grad(const struct model *m)
{
    return m->config.loop_inject == LOOP_INJECT_ADD ? m->stream.dh[m->route.loop.start] : NULL;
}

int loop_shares(const struct model *m, int l, const struct plan *p)
{
    return is_looped(m, l) && p->kv == KV_ALL && m->route.pass.kind == PASS_SPARSE;
}

void loop_keys(struct model *m, int l, real **k, real **v)
{
    size_t width = (size_t)(m->config.kv_heads * m->config.head_dim);
    size_t at = place_in_group(m, l) * (size_t)m->R_max * width;
    *k = m->loop.k + at;
    *v = m->loop.v + at;
}

int loop_fresh(struct model *m, const struct plan *p)
{
    struct model_loop *x = &m->loop;
    int n = 0;
    for (int i = 0, k = 0; i < m->R; i++) {
        int is_query = k < p->n && p->row[k] == i;
        if (!is_query && p->settled[i])
            continue;
        if (is_query)
            x->query[k++] = n;
        x->row[n] = i;
        x->pos[n++] = m->pos[i];
    }
    return n;
}
