/* Two probes of one text: which tokens cover the same bytes, and how their values differ. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tui/compare.h"

/* ---- alignment ---- */

/* The text of a probe from token `skip` on: its bytes and where each token ends. */
struct bytes {
    char *p;
    size_t n, *end;
    int skip, tokens;
};

static int bytes_of(struct bytes *b, const struct probe *p)
{
    size_t n = 0;
    *b = (struct bytes){.tokens = p->tokens};
    for (int t = 0; t < p->tokens; t++)
        n += p->piece_len[t];
    b->p = mem_alloc(n + 1, 1);
    b->end = mem_alloc((size_t)p->tokens + 1, sizeof *b->end);
    if (!b->p || !b->end)
        return DS_EMEM;
    for (int t = 0; t < p->tokens; t++) {
        memcpy(b->p + b->n, p->piece[t], p->piece_len[t]);
        b->n += p->piece_len[t];
        b->end[t] = b->n;
    }
    return 0;
}

/* Compares the texts from the given offsets on; the length of what they share in *same. */
static int is_same(const struct bytes *a, size_t i, const struct bytes *b, size_t j, size_t *same)
{
    size_t n = a->n - i < b->n - j ? a->n - i : b->n - j;
    *same = 0;
    while (*same < n && a->p[i + *same] == b->p[j + *same])
        ++*same;
    return *same == a->n - i && *same == b->n - j;
}

/* Where the texts begin: after a first token that only one side has (begin of text), and after a
 * space that a vocabulary puts before a text. */
static int find_begin(struct bytes *a, struct bytes *b, size_t *from_a, size_t *from_b,
                      size_t *best)
{
    for (int way = 0; way < 4; way++) {
        size_t i = way & 1 ? a->end[0] : 0, j = way & 2 ? b->end[0] : 0, same;
        if (((way & 1) && a->tokens < 2) || ((way & 2) && b->tokens < 2))
            continue;
        if (i < a->n && j < b->n && (a->p[i] == ' ') != (b->p[j] == ' ')) {
            i += a->p[i] == ' ';
            j += b->p[j] == ' ';
        }
        int is_whole = is_same(a, i, b, j, &same);
        if (way == 0 || same > *best)
            *best = same;
        if (!is_whole)
            continue;
        a->skip = way & 1;
        b->skip = (way & 2) != 0;
        *from_a = i;
        *from_b = j;
        return 1;
    }
    return 0;
}

/* Cuts both texts where a token ends on both sides. */
static int cut(struct compare_match *m, const struct bytes *a, size_t i, const struct bytes *b,
               size_t j)
{
    int most = a->tokens < b->tokens ? a->tokens : b->tokens;
    m->group = mem_alloc((size_t)most + 1, sizeof *m->group);
    if (!m->group)
        return DS_EMEM;
    int s = a->skip, t = b->skip;
    struct compare_group g = {.first = {s, t}};
    while (s < a->tokens || t < b->tokens) {
        long at_a = g.n[0] ? (long)a->end[s - 1] - (long)i : 0,
             at_b = g.n[1] ? (long)b->end[t - 1] - (long)j : 0;
        int is_a = g.n[0] == 0 || (g.n[1] > 0 && at_a < at_b);
        if ((is_a && s < a->tokens) || t >= b->tokens) {
            at_a = (long)a->end[s++] - (long)i;
            g.n[0]++;
        } else {
            at_b = (long)b->end[t++] - (long)j;
            g.n[1]++;
        }
        if (g.n[0] && g.n[1] && at_a == at_b && m->groups < most) {
            m->group[m->groups++] = g;
            g = (struct compare_group){.first = {s, t}};
        }
    }
    if (m->groups > 0) { /* tokens without bytes at the end */
        m->group[m->groups - 1].n[0] += g.n[0];
        m->group[m->groups - 1].n[1] += g.n[1];
    }
    return m->groups > 0;
}

static int is_exact(const struct probe *a, const struct probe *b)
{
    if (a->tokens != b->tokens || memcmp(a->id, b->id, (size_t)a->tokens * sizeof *a->id) != 0)
        return 0;
    for (int t = 0; t < a->tokens; t++)
        if (a->piece_len[t] != b->piece_len[t] ||
            memcmp(a->piece[t], b->piece[t], a->piece_len[t]) != 0)
            return 0;
    return 1;
}

static int one_to_one(struct compare_match *m, int n)
{
    m->group = mem_alloc((size_t)n + 1, sizeof *m->group);
    if (!m->group)
        return DS_EMEM;
    for (int t = 0; t < n; t++)
        m->group[t] = (struct compare_group){.first = {t, t}, .n = {1, 1}};
    m->groups = n;
    m->is_exact = 1;
    return 1;
}

int compare_align(struct compare_match *m, const struct probe *a, const struct probe *b, char *why,
                  size_t size)
{
    struct bytes x = {0}, y = {0};
    size_t i = 0, j = 0, same = 0;
    *m = (struct compare_match){0};
    int rc = bytes_of(&x, a);
    if (rc == 0)
        rc = bytes_of(&y, b);
    if (rc == 0 && is_exact(a, b)) {
        rc = one_to_one(m, a->tokens);
    } else if (rc == 0 && find_begin(&x, &y, &i, &j, &same)) {
        rc = cut(m, &x, i, &y, j);
        if (rc == 0)
            snprintf(why, size, "the texts are empty");
    } else if (rc == 0) {
        snprintf(why, size, "different texts: they agree up to byte %zu (A has %zu bytes, B %zu)",
                 same, x.n, y.n);
    }
    mem_free(x.p);
    mem_free(x.end);
    mem_free(y.p);
    mem_free(y.end);
    if (rc <= 0)
        compare_match_release(m);
    return rc;
}

void compare_match_release(struct compare_match *m)
{
    mem_free(m->group);
    *m = (struct compare_match){0};
}

int compare_group_at(const struct compare_match *m, int side, int token)
{
    int g = 0;
    while (g + 1 < m->groups && m->group[g].first[side] + m->group[g].n[side] <= token)
        g++;
    return g;
}

/* ---- decisions ---- */

/* Executed share of a group's cells in a layer, of all layers if layer < 0. */
static double share(const struct probe *p, const struct compare_group *g, int side, int layer)
{
    int n = 0, ran = 0;
    for (int l = layer < 0 ? 0 : layer; l < (layer < 0 ? p->layers : layer + 1); l++)
        for (int k = 0; k < g->n[side]; k++, n++)
            ran += p->run && p->run[(size_t)l * (size_t)p->tokens + (size_t)(g->first[side] + k)];
    return n && p->run ? (double)ran / n : (double)NAN;
}

double compare_difference(const struct compare_match *m, const struct probe *a,
                          const struct probe *b, int group, int layer)
{
    const struct compare_group *g = &m->group[group];
    int of = a->layers == b->layers ? layer : -1;
    return share(b, g, 1, of) - share(a, g, 0, of);
}

static int differs(const struct compare_match *m, const struct probe *a, const struct probe *b,
                   int group)
{
    for (int l = 0; l < a->layers; l++)
        if (fabs(compare_difference(m, a, b, group, l)) > 1e-9)
            return 1;
    return 0;
}

int compare_next(const struct compare_match *m, const struct probe *a, const struct probe *b,
                 int group, int direction)
{
    for (int k = 1; k <= m->groups; k++) {
        int g = ((group + k * direction) % m->groups + m->groups) % m->groups;
        if (differs(m, a, b, g))
            return g;
    }
    return -1;
}

/* ---- values ---- */

struct compare_values compare_values(const struct compare_match *m, const struct probe *p, int side,
                                     int group)
{
    const struct compare_group *g = &m->group[group];
    struct compare_values v = {0};
    for (int k = 0; k < g->n[side]; k++) {
        int t = g->first[side] + k;
        v.nll += p->nll ? (double)p->nll[t] : (double)NAN;
        v.depth += cells_depth(p, NULL, t) / g->n[side];
        v.flops += p->flops && p->flops_dense > 0
                       ? (double)p->flops[t] / p->flops_dense / g->n[side]
                       : (double)NAN;
    }
    return v;
}

/* The place of the group's token in the lens of the last layer, which predicts it; NULL: none. */
static const int32_t *lens_of(const struct probe *p, int token, const float **prob)
{
    if (p->lens_k < 1 || !p->lens_id || !p->lens_p || token < 1)
        return NULL;
    size_t cell =
        ((size_t)(p->layers - 1) * (size_t)p->tokens + (size_t)token - 1) * (size_t)p->lens_k;
    *prob = p->lens_p + cell;
    return p->lens_id + cell;
}

static double term(double p, double q)
{
    return p > 0 ? p * log(p / q) : 0;
}

/* The data-processing inequality: merging events never increases the divergence. */
static double kl_bound(const struct probe *a, const struct probe *b, int token)
{
    const float *p = NULL, *q = NULL;
    const int32_t *ia = lens_of(a, token, &p), *ib = lens_of(b, token, &q);
    double kl = 0, rest_p = 1, rest_q = 1;
    if (!ia || !ib)
        return (double)NAN;
    for (int i = 0; i < a->lens_k; i++) {
        for (int j = 0; j < b->lens_k; j++) {
            if (ia[i] != ib[j] || !(q[j] > 0))
                continue;
            kl += term((double)p[i], (double)q[j]);
            rest_p -= (double)p[i];
            rest_q -= (double)q[j];
        }
    }
    if (rest_p > 1e-6 && rest_q > 1e-6) /* below, single-precision rounding decides */
        kl += term(rest_p, rest_q);
    return kl > 0 ? kl : 0;
}

double compare_kl(const struct compare_match *m, const struct probe *a, const struct probe *b,
                  int group, int *is_bound)
{
    const struct vector *exact = probe_token(a, "kl");
    int t = m->group[group].first[0];
    *is_bound = 0;
    if (!m->is_exact)
        return (double)NAN;
    if (exact)
        return (double)exact->v[t];
    *is_bound = 1;
    return kl_bound(a, b, t);
}

static void add_costs(struct compare_total *x, const struct probe *p, int side)
{
    size_t n = (size_t)p->layers * (size_t)p->tokens, ran = 0;
    double flops = 0;
    for (size_t i = 0; p->run && i < n; i++)
        ran += p->run[i] != 0;
    for (int t = 0; t < p->tokens; t++)
        flops += p->flops ? (double)p->flops[t] : (double)NAN;
    x->run[side] = p->run ? (double)ran / (double)n : (double)NAN;
    x->flops[side] = p->flops_dense > 0 ? flops / p->flops_dense / p->tokens : (double)NAN;
}

/* Of the group, without a space that one side puts before the text. */
static size_t bytes_of_group(const struct compare_group *g, const struct probe *a,
                             const struct probe *b)
{
    size_t n[2] = {0};
    for (int k = 0; k < g->n[0]; k++)
        n[0] += a->piece_len[g->first[0] + k];
    for (int k = 0; k < g->n[1]; k++)
        n[1] += b->piece_len[g->first[1] + k];
    return n[0] < n[1] ? n[0] : n[1];
}

struct compare_total compare_total(const struct compare_match *m, const struct probe *a,
                                   const struct probe *b)
{
    struct compare_total x = {0};
    size_t bytes = 0;
    int counted = 0, known = 0;
    for (int g = 0; g < m->groups; g++) {
        double na = compare_values(m, a, 0, g).nll, nb = compare_values(m, b, 1, g).nll;
        int bound, layers = a->layers == b->layers ? a->layers : 1;
        double kl = compare_kl(m, a, b, g, &bound);
        if (isfinite(na) && isfinite(nb)) {
            x.loss[0] += na;
            x.loss[1] += nb;
            bytes += bytes_of_group(&m->group[g], a, b);
            counted++;
        }
        if (isfinite(kl)) {
            x.kl += kl;
            x.is_bound = bound;
            known++;
        }
        for (int l = 0; l < layers; l++, x.compared++)
            x.differ += fabs(compare_difference(m, a, b, g, l)) > 1e-9;
    }
    double n = m->is_exact ? counted : (double)bytes, per = n > 0 ? n : (double)NAN;
    x.loss[0] /= per;
    x.loss[1] /= per;
    x.kl = known ? x.kl / known : (double)NAN;
    add_costs(&x, a, 0);
    add_costs(&x, b, 1);
    return x;
}

/* ---- settings ---- */

static int by_key(const void *x, const void *y)
{
    return strcmp(((const struct compare_setting *)x)->key,
                  ((const struct compare_setting *)y)->key);
}

size_t compare_settings(const struct runview *a, const struct runview *b,
                        struct compare_setting *out, size_t max)
{
    size_t n = 0;
    for (int side = 0; side < 2; side++) {
        const struct runview *r = side ? b : a, *other = side ? a : b;
        for (size_t i = 0; i < r->configs; i++) {
            const char *value = runview_config(other, r->config_key[i]);
            if (value ? side || strcmp(value, r->config_value[i]) == 0 : 0)
                continue; /* equal, or taken from the first side */
            if (n < max) {
                out[n].key = r->config_key[i];
                out[n].value[side] = r->config_value[i];
                out[n].value[!side] = value;
            }
            n++;
        }
    }
    qsort(out, n < max ? n : max, sizeof *out, by_key);
    return n;
}
