/* The layers executed by each token of a text: one box per cell, with the text below. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "figures/plot.h"

/* No router decides: by the probe's cell "forced", or else by the head of the run. */
static int is_set(const struct probe *p, const struct runview *v, int l, int t)
{
    const struct matrix *forced = probe_cell(p, "forced");
    return forced ? forced->v[l * p->tokens + t] > 0 : runview_always_on(v, l);
}

/* As in the Depth map: a layer is always on by the head or where no token's cell is decided; other
 * cells are forced. */
static const char *set_word(const struct probe *p, const struct runview *v)
{
    int always = 0, forced = 0;
    for (int l = 0; l < p->layers; l++) {
        int n = 0;
        for (int t = 0; t < p->tokens; t++)
            n += is_set(p, v, l, t) && p->run[l * p->tokens + t];
        if (n > 0 && (n == p->tokens || runview_always_on(v, l)))
            always = 1;
        else
            forced |= n > 0;
    }
    return always && forced ? "always on, forced" : forced ? "forced" : always ? "always on" : NULL;
}

static int cell_colour(const struct sheet *s, const struct probe *p, int l, int t, const void *ctx)
{
    enum role r = !p->run[l * p->tokens + t] ? ROLE_SKIP
                  : is_set(p, ctx, l, t)     ? ROLE_FORCED
                                             : ROLE_RUN;
    return sheet_colour(s, r);
}

static void note(struct sheet *s, const struct probe *p)
{
    char share[24], depth[24];
    int ran = 0;
    for (int i = 0; i < p->layers * p->tokens; i++)
        ran += p->run[i] ? 1 : 0;
    number_format(share, sizeof share, ran / ((double)p->layers * p->tokens), 3);
    number_format(depth, sizeof depth, ran / (double)p->tokens, 2);
    const char *word = sheet_layer_word(s, 0, p->layers);
    sheet_note(s,
               "Text '%s' at step %lld: %d tokens, %d %ss; %s of all cells executed, %s %ss per "
               "token.",
               p->name ? p->name : "", (long long)p->step, p->tokens, p->layers, word, share, depth,
               word);
    strips_caveat(s, p);
}

static int draw(struct sheet *s, struct err *e)
{
    const struct probe *p;
    const struct runview *v = s->run[0].view;
    int rc = strips_probe(s, 1, &p, e);
    if (rc < 0)
        return rc;
    const struct matrix *forced = probe_cell(p, "forced");
    size_t cells = (size_t)p->layers * (size_t)p->tokens;
    data_hash(s, "run", p->run, cells);
    if (forced)
        data_hash(s, "forced", forced->v, cells * sizeof *forced->v);
    const char *word = set_word(p, v);
    const struct strip_key key[] = {{sheet_colour(s, ROLE_RUN), "executed"},
                                    {sheet_colour(s, ROLE_SKIP), "skipped"},
                                    {sheet_colour(s, ROLE_FORCED), word}};
    double y = strips_key(s, key, word ? 3 : 2);
    rc = strips_draw(s, p, 0, y, cell_colour, v, e);
    if (rc == 0)
        note(s, p);
    return rc;
}

const struct figure_ops figure_routing_map = {
    .name = "routing_map",
    .title = "Layers executed by each token of a text",
    .needs = "a record 'probe': run, text",
    .options = FIGURE_PROBE | FIGURE_STEP,
    .draw = draw,
};
