/* The exit layer of each token of a text: its column ends there and has the colour of that
 * layer. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "figures/plot.h"

enum { LAYERS_MAX = 256, WORD = 16 };

/* Layers from light to dark, without the ends of the map, which are hardly visible. */
static int layer_colour(const struct sheet *s, int l, int layers)
{
    return cmap_rgb(s->theme.sequential, 0.12 + 0.8 * l / (layers > 1 ? layers - 1 : 1));
}

/* Layers before its exit; and those after a loop, which every token runs. */
static int is_reached(const struct probe *p, int exit, int l, int t)
{
    return exit < 0 || l < exit || p->run[(size_t)l * (size_t)p->tokens + (size_t)t] != 0;
}

static int cell_colour(const struct sheet *s, const struct probe *p, int l, int t, const void *ctx)
{
    int exit = data_exit_layer(ctx, t);
    if (exit < 0)
        return sheet_colour(s, ROLE_FORCED);
    return is_reached(p, exit, l, t) ? layer_colour(s, exit, p->layers)
                                     : sheet_colour(s, ROLE_SKIP);
}

/* Legend: "exited before layer", the layers where tokens exited, and "never". */
static double draw_key(struct sheet *s, const struct probe *p, const struct matrix *exited)
{
    struct strip_key key[LAYERS_MAX + 3];
    char(*word)[WORD] = mem_alloc(LAYERS_MAX, WORD);
    unsigned char seen[LAYERS_MAX] = {0};
    char first[40];
    int n = 0;
    for (int t = 0; t < p->tokens; t++) {
        int l = data_exit_layer(exited, t);
        if (l >= 0)
            seen[l] = 1;
    }
    snprintf(first, sizeof first, "exited before %s", sheet_layer_word(s, 0, p->layers));
    key[n++] = (struct strip_key){-1, first};
    for (int l = 0; word && l < p->layers; l++)
        if (seen[l]) {
            snprintf(word[l], WORD, "%d", l);
            key[n++] = (struct strip_key){layer_colour(s, l, p->layers), word[l]};
        }
    key[n++] = (struct strip_key){sheet_colour(s, ROLE_FORCED), "never exited"};
    key[n++] = (struct strip_key){sheet_colour(s, ROLE_SKIP), "after its exit"};
    s->caption.failed |= !word;
    double y = strips_key(s, key, n);
    mem_free(word);
    return y;
}

static void note(struct sheet *s, const struct probe *p, const struct matrix *exited)
{
    double sum = 0;
    int left = 0;
    char mean[24];
    for (int t = 0; t < p->tokens; t++) {
        int exit = data_exit_layer(exited, t);
        left += exit >= 0;
        for (int l = 0; l < p->layers; l++)
            sum += is_reached(p, exit, l, t);
    }
    number_format(mean, sizeof mean, sum / p->tokens, 2);
    sheet_note(s, "Text '%s' at step %lld: %d of %d tokens exited early; mean %s of %d %ss.",
               p->name ? p->name : "", (long long)p->step, left, p->tokens, mean, p->layers,
               sheet_layer_word(s, 0, p->layers));
    strips_caveat(s, p);
}

static int draw(struct sheet *s, struct err *e)
{
    const struct probe *p;
    int rc = strips_probe(s, 1, &p, e);
    if (rc < 0)
        return rc;
    const struct matrix *exited = probe_cell(p, "exited");
    if (!exited || exited->rows != p->layers || exited->cols != p->tokens)
        return sheet_fail(s, 0, e, "record 'probe' of text '%s' has no cell 'exited'",
                          p->name ? p->name : "");
    if (p->layers > LAYERS_MAX)
        return sheet_fail(s, 0, e, "too many layers, %d: expected at most %d", p->layers,
                          LAYERS_MAX);
    data_hash(s, "run", p->run, (size_t)p->layers * (size_t)p->tokens);
    data_hash(s, "exited", exited->v,
              (size_t)exited->rows * (size_t)exited->cols * sizeof *exited->v);
    rc = strips_draw(s, p, 0, draw_key(s, p, exited), cell_colour, exited, e);
    if (rc == 0)
        note(s, p, exited);
    return rc;
}

const struct figure_ops figure_exit_map = {
    .name = "exit_map",
    .title = "Exit layer of each token of a text",
    .needs = "a record 'probe': run, text, cell 'exited'",
    .options = FIGURE_PROBE | FIGURE_STEP,
    .draw = draw,
};
