/* The expert of each token of a text in each layer.  Experts are categories: the most used ones have a
 * colour each, all others share one. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "figures/plot.h"
#include "io/experts.h"

enum { COLOURS = 24, WORD = 32 };

struct map {
    const struct matrix *expert;
    int named[COLOURS], n; /* experts with a colour of their own, ascending */
    int used;              /* different experts */
    int others;            /* cells of experts without one */
};

/* Eight hues in three strengths, so that neighbours in the legend differ in hue. */
static int colour_at(const struct sheet *s, int i)
{
    static const double share[] = {1, 0.62, 0.34};
    return sheet_tint(s, sheet_series(s, i % ROLE_SERIES_COUNT), share[i / ROLE_SERIES_COUNT]);
}

static int cell_colour(const struct sheet *s, const struct probe *p, int l, int t, const void *ctx)
{
    const struct map *m = ctx;
    int expert = probe_expert_of(p, 0, l, t);
    for (int i = 0; i < m->n; i++)
        if (m->named[i] == expert)
            return colour_at(s, i);
    return expert < 0 ? -1 : sheet_colour(s, ROLE_SKIP);
}

/* The most used experts over all layers, in order of their numbers. */
static int choose(struct map *m, const struct probe *p, struct err *e)
{
    int *count = mem_alloc(EXPERTS_MAX, sizeof *count), cells = 0;
    if (!count)
        return err_set(e, DS_EMEM, "figure expert_map: out of memory");
    for (int l = 0; l < p->layers; l++)
        for (int t = 0; t < p->tokens; t++) {
            int expert = probe_expert_of(p, 0, l, t);
            if (expert >= 0) {
                m->used += count[expert]++ == 0;
                cells++;
            }
        }
    while (m->n < COLOURS && m->n < m->used) {
        int top = 0, at = m->n;
        for (int k = 0; k < EXPERTS_MAX; k++)
            top = count[k] > count[top] ? k : top;
        cells -= count[top];
        count[top] = 0;
        for (; at > 0 && m->named[at - 1] > top; at--)
            m->named[at] = m->named[at - 1];
        m->named[at] = top;
        m->n++;
    }
    m->others = cells;
    mem_free(count);
    return 0;
}

static double draw_key(struct sheet *s, const struct map *m)
{
    struct strip_key key[COLOURS + 2];
    char word[COLOURS + 1][WORD];
    int n = 0;
    key[n++] = (struct strip_key){-1, "expert"};
    for (int i = 0; i < m->n; i++) {
        snprintf(word[i], WORD, "%d", m->named[i]);
        key[n++] = (struct strip_key){colour_at(s, i), word[i]};
    }
    if (m->used > m->n) {
        snprintf(word[m->n], WORD, "%d others", m->used - m->n);
        key[n++] = (struct strip_key){sheet_colour(s, ROLE_SKIP), word[m->n]};
    }
    return strips_key(s, key, n);
}

static int draw(struct sheet *s, struct err *e)
{
    const struct probe *p;
    struct map m = {0};
    int rc = strips_probe(s, 0, &p, e);
    if (rc < 0)
        return rc;
    m.expert = probe_expert(p, 0);
    if (!m.expert)
        return sheet_fail(s, 0, e,
                          "record 'probe' of text '%s' has no cell 'expert' of kind category",
                          p->name ? p->name : "");
    rc = choose(&m, p, e);
    if (rc < 0)
        return rc;
    if (m.used == 0)
        return sheet_fail(s, 0, e, "record 'probe' of text '%s': no token has an expert",
                          p->name ? p->name : "");
    data_hash(s, "expert", m.expert->v, (size_t)p->layers * (size_t)p->tokens * sizeof(float));
    rc = strips_draw(s, p, 0, draw_key(s, &m), cell_colour, &m, e);
    if (rc < 0)
        return rc;
    sheet_note(s,
               "Text '%s' at step %lld: the first expert of each of %d tokens in %d layers; %d "
               "different experts. Empty: no expert.",
               p->name ? p->name : "", (long long)p->step, p->tokens, p->layers, m.used);
    if (m.others)
        sheet_note(s, "%d cells go to experts beyond the %d most used ones and share a colour.",
                   m.others, COLOURS);
    if (m.expert->is_inferred)
        sheet_note(s, "The experts were inferred by the writer of the record.");
    strips_caveat(s, p);
    return 0;
}

const struct figure_ops figure_expert_map = {
    .name = "expert_map",
    .title = "Expert of each token of a text",
    .needs = "a record 'probe': text, cell 'expert' of kind category",
    .options = FIGURE_PROBE | FIGURE_STEP,
    .draw = draw,
};
