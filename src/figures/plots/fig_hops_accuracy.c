/* Accuracy of answers by required depth and by executed depth: a heat map of models that are cut at
 * a depth, and one of models that were trained at it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "figures/evals.h"
#include "figures/glyphs.h"

enum { PANELS_MAX = 6, COLUMNS_MAX = 64, NEEDED_MAX = 64 };

/* Accuracies of one depth: sums and counts over seeds, by required depth from 1. */
struct column {
    int depth, seeds;
    double sum[NEEDED_MAX];
    int n[NEEDED_MAX];
};
struct map {
    enum eval_kind kind;
    int layers, is_loop, is_iterated; /* of models that are cut */
    int rows, columns;
    struct column c[COLUMNS_MAX];
};
struct maps {
    struct map m[PANELS_MAX];
    int n;
    int adaptive; /* evaluations without one depth */
};

/* ---- data ---- */

/* The same layers both as an exit and as the whole model count once. */
static int is_counted(const struct eval_list *l, const struct eval_item *x)
{
    for (int i = 0; i < l->n; i++)
        if (l->v[i].is_cut && l->v[i].depth == x->layers && strcmp(l->v[i].model, x->model) == 0)
            return 1;
    return 0;
}

static struct map *map_of(struct maps *all, const struct eval_item *x, enum eval_kind kind)
{
    int layers = kind == EVAL_CUT ? x->layers : 0;
    for (int i = 0; i < all->n; i++) {
        struct map *m = &all->m[i];
        if (m->kind == kind && m->layers == layers && m->is_loop == x->is_loop &&
            m->is_iterated == x->is_iterated)
            return m;
    }
    if (all->n == PANELS_MAX)
        return NULL;
    struct map *m = &all->m[all->n++];
    *m = (struct map){
        .kind = kind, .layers = layers, .is_loop = x->is_loop, .is_iterated = x->is_iterated};
    return m;
}

static struct column *column_of(struct map *m, int depth)
{
    int at = 0;
    while (at < m->columns && m->c[at].depth < depth)
        at++;
    if (at < m->columns && m->c[at].depth == depth)
        return &m->c[at];
    if (m->columns == COLUMNS_MAX)
        return NULL;
    memmove(&m->c[at + 1], &m->c[at], (size_t)(m->columns++ - at) * sizeof m->c[0]);
    m->c[at] = (struct column){.depth = depth};
    return &m->c[at];
}

static int take(struct sheet *s, struct maps *all, const struct eval_list *l,
                const struct eval_item *x, struct err *e)
{
    const struct json_node *v = eval_vector(x, "accuracy_by_k");
    enum eval_kind kind = x->is_cut || eval_is_last_exit(l, x) ? EVAL_CUT : EVAL_TRAINED;
    if (!x->is_cut && is_counted(l, x))
        return 0;
    if (!v || json_len(v) > NEEDED_MAX)
        return sheet_fail(s, x->run, e,
                          "no vector 'accuracy_by_k' (data.path=hops) of at most %d values",
                          NEEDED_MAX);
    struct map *m = map_of(all, x, kind);
    if (!m)
        return err_set(e, DS_EUSAGE, "figure %s: too many kinds of models: expected at most %d",
                       s->ops->name, PANELS_MAX);
    struct column *c = column_of(m, x->depth);
    if (!c)
        return err_set(e, DS_EUSAGE, "figure %s: too many depths: expected at most %d",
                       s->ops->name, COLUMNS_MAX);
    m->rows = (int)json_len(v) > m->rows ? (int)json_len(v) : m->rows;
    c->seeds++;
    for (size_t k = 0; k < json_len(v); k++) {
        double a = json_num(json_at(v, k), (double)NAN);
        if (isnan(a))
            continue;
        if (!(a >= 0 && a <= 1))
            return sheet_fail(s, x->run, e, "'accuracy_by_k' has %g, expected a number from 0 to 1",
                              a);
        c->sum[k] += a;
        c->n[k]++;
        data_hash(s, "accuracy_by_k", &a, sizeof a);
    }
    return 0;
}

static int gather(struct sheet *s, struct maps *all, const struct eval_list *l, struct err *e)
{
    int rc = 0;
    for (int is_cut = 1; is_cut >= 0; is_cut--)
        for (int i = 0; rc == 0 && i < l->n; i++)
            if (l->v[i].depth > 0 && l->v[i].is_cut == is_cut)
                rc = take(s, all, l, &l->v[i], e);
    for (int i = 0; i < l->n; i++)
        all->adaptive += l->v[i].depth == 0;
    if (rc == 0 && all->n == 0)
        return sheet_fail(
            s, 0, e,
            "no evaluation at a fixed depth (routing=dense, also with exit.layer=, or "
            "model.method=dense)");
    return rc;
}

/* ---- drawing ---- */

static double luminance(int rgb)
{
    return (0.299 * (rgb >> 16 & 255) + 0.587 * (rgb >> 8 & 255) + 0.114 * (rgb & 255)) / 255;
}

static void draw_cells(struct sheet *s, const struct panel *p, const struct map *m)
{
    double w = p->w / m->columns, h = p->h / m->rows;
    for (int k = 0; k < m->rows; k++)
        for (int i = 0; i < m->columns; i++) {
            const struct column *c = &m->c[i];
            double a = c->sum[k] / c->n[k], x = p->x + i * w, y = p->y + k * h;
            char text[24] = "-";
            int rgb = c->n[k] ? cmap_rgb(s->theme.sequential, a) : s->background;
            if (c->n[k]) {
                pen_box(s->pen, x, y, w + (i + 1 < m->columns ? 0.25 : 0),
                        h + (k + 1 < m->rows ? 0.25 : 0), rgb, 1);
                number_format(text, sizeof text, a, 2);
            }
            if (glyph_width(text, s->venue->small) < w * 0.95)
                sheet_text(s, x + w / 2, y + h / 2, TEXT_CENTRE, TEXT_MIDDLE, 1,
                           luminance(rgb) > 0.5 ? 0x000000 : 0xFFFFFF, text);
        }
}

/* Between the cells whose depth suffices, one hop per layer, and the others. */
static void draw_steps(struct sheet *s, const struct panel *p, const struct map *m)
{
    double w = p->w / m->columns, h = p->h / m->rows;
    const int colour[2] = {s->background, sheet_colour(s, ROLE_TEXT)};
    for (int pass = 0; pass < 2; pass++) {
        pen_colour(s->pen, colour[pass], 1);
        pen_width(s->pen, s->venue->line * (pass ? 1 : 2.4));
        sheet_dash(s, 0);
        for (int i = 0, last = 0; i < m->columns && last < m->rows; i++) {
            int row = m->c[i].depth < m->rows ? m->c[i].depth : m->rows;
            (i == 0 ? pen_move : pen_line)(s->pen, p->x + i * w, p->y + row * h);
            if (row < m->rows)
                pen_line(s->pen, p->x + (i + 1) * w, p->y + row * h);
            last = row;
        }
        pen_stroke(s->pen);
    }
}

/* One tick per row and column: depths need not be contiguous. */
static void set_ticks(struct axis *a, int n)
{
    a->ticks = n < AXIS_TICKS_MAX ? n : AXIS_TICKS_MAX;
    for (int i = 0; i < a->ticks; i++)
        a->tick[i] = (struct tick){.value = i + 0.5};
}

static void name_panel(const struct map *m, char *out, size_t size)
{
    if (m->kind == EVAL_CUT)
        snprintf(out, size, m->is_loop ? "Loop of %d, cut" : "%d layers, cut", m->layers);
    else
        snprintf(out, size, "%s",
                 m->is_loop ? "Loops trained at each depth" : "Models trained at each depth");
}

static int draw_panel(struct sheet *s, const struct maps *all, int i, struct err *e)
{
    const struct map *m = &all->m[i];
    struct panel *p = mem_alloc(1, sizeof *p);
    struct axis scale = {.lo = 0, .hi = 1};
    double box[4];
    char label[40];
    if (!p)
        return err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    p->ax = (struct axis){.lo = 0, .hi = m->columns};
    p->ay = (struct axis){.lo = -m->rows, .hi = 0};
    snprintf(label, sizeof label, "%s depth (%s)", m->kind == EVAL_CUT ? "Executed" : "Trained",
             m->is_iterated ? "iterations" : "layers");
    p->x_label = label;
    p->y_label = "Required depth k";
    p->no_grid = 1;
    p->right = panel_bar_room(s, &scale);
    name_panel(m, p->title, sizeof p->title);
    s->height = panel_grid(s, all->n, 2, 0.62, i, box);
    panel_layout(s, p, box[0], box[1], box[2], box[3]);
    set_ticks(&p->ax, m->columns);
    set_ticks(&p->ay, m->rows);
    for (int t = 0; t < p->ax.ticks; t++)
        number_format(p->ax.tick[t].text, sizeof p->ax.tick[t].text, m->c[t].depth, 0);
    for (int t = 0; t < p->ay.ticks; t++) { /* k = 1 is at the top */
        p->ay.tick[t].value = -(t + 0.5);
        number_format(p->ay.tick[t].text, sizeof p->ay.tick[t].text, t + 1, 0);
    }
    draw_cells(s, p, m);
    draw_steps(s, p, m);
    panel_axes(s, p);
    panel_colour_bar(s, p, &scale, "accuracy");
    mem_free(p);
    return 0;
}

static void note(struct sheet *s, const struct eval_list *l, const struct maps *all)
{
    int lo = 0, hi = 0;
    for (int i = 0; i < all->n; i++)
        for (int c = 0; c < all->m[i].columns; c++) {
            int n = all->m[i].c[c].seeds;
            lo = lo == 0 || n < lo ? n : lo;
            hi = n > hi ? n : hi;
        }
    if (hi == 1)
        sheet_note(s, "Greedy accuracy of answers; one seed each.");
    else if (lo == hi)
        sheet_note(s, "Greedy accuracy of answers, mean over n = %d seeds.", hi);
    else
        sheet_note(s, "Greedy accuracy of answers, mean over n = %d to %d seeds.", lo, hi);
    sheet_note(s, "Above the line the depth is at least k, one hop per %s.",
               strcmp(evals_unit(l), "layers") == 0       ? "layer"
               : strcmp(evals_unit(l), "iterations") == 0 ? "iteration"
                                                          : "layer or iteration");
    if (all->adaptive > 0)
        sheet_note(s, "Evaluations of adaptive depth, %d, are not shown.", all->adaptive);
}

static int draw(struct sheet *s, struct err *e)
{
    struct eval_list l = {0};
    struct maps *all = mem_alloc(1, sizeof *all);
    int rc =
        all ? evals_take(&l, s, e) : err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    if (rc == 0)
        rc = gather(s, all, &l, e);
    for (int i = 0; rc == 0 && i < all->n; i++)
        rc = draw_panel(s, all, i, e);
    if (rc == 0)
        note(s, &l, all);
    evals_release(&l);
    mem_free(all);
    return rc;
}

const struct figure_ops figure_hops_accuracy = {
    .name = "hops_accuracy",
    .title = "Accuracy of answers by required and executed depth",
    .needs = "JSON files of depthscope eval --json (data.path=hops): accuracy_by_k at fixed depths",
    .draw = draw,
    .takes = evals_takes,
};
