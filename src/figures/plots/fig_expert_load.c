/* Load of the experts relative to ideal: layers by experts, with the coefficient of variation of every
 * layer beside the map. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "figures/plot.h"
#include "io/experts.h"

enum { PANELS_MAX = 6, PLACES = 4, OCTAVES = 3 };

struct place {
    int run;
    size_t at;
};

/* How many places in time the run has up to --step. */
static size_t loads_of(const struct sheet *s, int run)
{
    const struct runview *v = s->run[run].view;
    size_t n = expert_loads(v), last = n > 0 ? expert_loads_find(v, data_last_step(s)) : 0;
    return n > 0 && expert_loads_step(v, last) <= data_last_step(s) ? last + 1 : 0;
}

/* The newest record of each run, or with --x step those of one run at even distances; up to --step. */
static int places_of(struct sheet *s, struct place *out, int *n, struct err *e)
{
    int by_step = s->opt.x && strcmp(s->opt.x, "step") == 0 && s->runs == 1;
    *n = 0;
    if (s->runs > PANELS_MAX)
        return err_set(e, DS_EUSAGE, "figure %s: too many runs, %d: expected at most %d",
                       s->ops->name, s->runs, PANELS_MAX);
    for (int i = 0; i < s->runs; i++) {
        size_t loads = loads_of(s, i), shown = by_step ? PLACES : 1;
        char step[40];
        data_step_words(s, step, sizeof step);
        if (loads == 0)
            return sheet_fail(s, i, e,
                              "no record 'matrix' named expert_load and no record 'probe' with the "
                              "cell 'expert' of kind category%s",
                              step);
        shown = shown > loads ? loads : shown;
        for (size_t k = 0; k < shown; k++)
            out[(*n)++] = (struct place){i, shown == 1 ? loads - 1 : k * (loads - 1) / (shown - 1)};
    }
    return 0;
}

static double octaves(double relative)
{
    double x = relative > 0 ? log2(relative) / OCTAVES : -1;
    return x < -1 ? -1 : x > 1 ? 1 : x;
}

/* Ticks at powers of two: an ideal load of 1 is the centre of the colours. */
static void scale_of(struct axis *a)
{
    static const char *const text[] = {"1/8", "1/4", "1/2", "1", "2", "4", "8"};
    *a = (struct axis){.lo = -OCTAVES, .hi = OCTAVES};
    for (int i = 0; i <= 2 * OCTAVES; i++) {
        a->tick[a->ticks].value = i - OCTAVES;
        str_copy(a->tick[a->ticks++].text, sizeof a->tick[0].text, text[i]);
    }
}

static void draw_cells(struct sheet *s, const struct panel *p, const struct expert_load *x)
{
    double h = p->h / x->rows, w = p->w / x->experts, cross = fmin(w, h) * 0.25;
    for (int i = 0; i < x->rows; i++) {
        double sum = expert_row_of(x, i).sum;
        for (int k = 0; sum > 0 && k < x->experts; k++) {
            double count = x->count[(size_t)i * (size_t)x->experts + (size_t)k], at = p->x + k * w,
                   y = p->y + i * h, unit = (octaves(count * x->experts / sum) + 1) / 2;
            pen_box(s->pen, at, y, w + (k + 1 < x->experts ? 0.25 : 0),
                    h + (i + 1 < x->rows ? 0.25 : 0), cmap_rgb(s->theme.diverging, unit), 1);
        }
    }
    pen_colour(s->pen, s->background, 1);
    pen_width(s->pen, s->venue->axis);
    for (int i = 0; cross >= 1 && i < x->rows; i++)
        for (int k = 0; expert_row_of(x, i).sum > 0 && k < x->experts; k++) {
            if (x->count[(size_t)i * (size_t)x->experts + (size_t)k] > 0)
                continue;
            double cx = p->x + (k + 0.5) * w, cy = p->y + (i + 0.5) * h;
            pen_segment(s->pen, cx - cross, cy - cross, cx + cross, cy + cross);
            pen_segment(s->pen, cx - cross, cy + cross, cx + cross, cy - cross);
        }
}

/* Bars of the coefficient of variation, from zero, beside the rows of the map. */
static void draw_variation(struct sheet *s, const struct panel *p, const struct expert_load *x)
{
    double most = 0, small = s->venue->small, left = p->x + p->w + small * 0.5,
           room = p->bar_gap - small * 0.5, h = p->h / x->rows;
    char text[24] = "";
    for (int i = 0; i < x->rows; i++)
        most = fmax(most, expert_row_of(x, i).cv);
    pen_width(s->pen, s->venue->axis);
    pen_colour(s->pen, sheet_colour(s, ROLE_AXIS), 1);
    pen_segment(s->pen, left, p->y, left, p->y + p->h);
    for (int i = 0; most > 0 && i < x->rows; i++) {
        double cv = expert_row_of(x, i).cv;
        if (isfinite(cv))
            pen_box(s->pen, left, p->y + i * h + h * 0.1, room * cv / most, h * 0.8,
                    sheet_colour(s, ROLE_REFERENCE), 1);
    }
    if (most > 0) /* else 0 alone is the scale */
        number_short(text, sizeof text, most);
    double y = p->y + p->h + small * 1.1;
    sheet_text(s, left, y, TEXT_LEFT, TEXT_BASELINE, 1, sheet_colour(s, ROLE_TEXT), "0");
    sheet_text(s, left + room, y, TEXT_CENTRE, TEXT_BASELINE, 1, sheet_colour(s, ROLE_TEXT), text);
    sheet_text(s, left + room / 2, y + small * 1.3, TEXT_CENTRE, TEXT_BASELINE, 1,
               sheet_colour(s, ROLE_TEXT), "CV");
}

static void note(struct sheet *s, const struct expert_load *x, int run)
{
    char name[200], load[24], worst[24];
    int dead = 0, layers = 0, hot_row = 0, hot = 0;
    double most = -1, cv = 0;
    for (int i = 0; i < x->rows; i++) {
        struct expert_row r = expert_row_of(x, i);
        if (!(r.sum > 0))
            continue;
        double top = expert_relative(x, i, r.top);
        dead += r.dead;
        layers += r.dead > 0;
        cv = fmax(cv, r.cv);
        if (top > most) {
            most = top;
            hot = r.top;
            hot_row = i;
        }
    }
    sheet_run_name(s, run, name, sizeof name);
    number_short(load, sizeof load, most);
    number_short(worst, sizeof worst, cv);
    sheet_note(s, "%s at step %lld: %d layers with %s%d experts.", name, (long long)x->step,
               x->rows, x->is_least ? "at least " : "", x->experts - x->noops);
    if (x->noops)
        sheet_note(s, "The last %d of %d columns are no-ops, which run nothing.", x->noops,
                   x->experts);
    if (x->probes)
        sheet_note(s, "Counted from %d probe%s with %lld tokens.", x->probes,
                   x->probes > 1 ? "s" : "", (long long)x->tokens);
    if (most >= 0)
        sheet_note(s,
                   "Hottest: layer %d, %s %d at %s times its ideal load; %d expert%s without "
                   "tokens in %d layer%s; largest CV %s.",
                   x->layer[hot_row], expert_word(hot, x->experts, x->noops), hot, load, dead,
                   dead == 1 ? "" : "s", layers, layers == 1 ? "" : "s", worst);
}

static int draw_panel(struct sheet *s, const struct place *at, int i, int n, struct err *e)
{
    struct expert_load x = {0};
    struct panel *p = mem_alloc(1, sizeof *p);
    double box[4];
    struct axis scale;
    int rc = p ? expert_load_read(&x, s->run[at->run].view, at->at, e)
               : err_set(e, DS_EMEM, "out of memory");
    if (rc < 0) {
        char name[200];
        sheet_run_name(s, at->run, name, sizeof name);
        err_add(e, rc, "figure %s: run %s", s->ops->name, name);
        goto out;
    }
    data_hash(s, "step", &x.step, sizeof x.step);
    data_hash(s, "layer", x.layer, (size_t)x.rows * sizeof *x.layer);
    data_hash(s, "count", x.count, (size_t)x.rows * (size_t)x.experts * sizeof *x.count);
    p->ax = (struct axis){.lo = -0.5, .hi = x.experts - 0.5};
    p->ay = (struct axis){.lo = -x.rows + 0.5, .hi = 0.5};
    p->x_label = "Expert";
    p->y_label = "Layer";
    p->no_grid = 1;
    p->ticks_whole_x = p->ticks_whole_y = 1;
    scale_of(&scale);
    p->bar_map = s->theme.diverging;
    p->bar_gap = s->venue->small * 4;
    p->right = panel_bar_room(s, &scale) + p->bar_gap;
    if (n > 1 && s->runs > 1)
        sheet_run_name(s, at->run, p->title, sizeof p->title);
    else if (n > 1)
        snprintf(p->title, sizeof p->title, "Step %lld", (long long)x.step);
    s->height = panel_grid(s, n, 2, 0.62, i, box);
    panel_layout(s, p, box[0], box[1], box[2], box[3]);
    /* Row 0 is at the top: the axis is negated, and its labels are the layers of the rows. */
    for (int t = 0; t < p->ay.ticks; t++) {
        int row = (int)lround(fabs(p->ay.tick[t].value));
        if (p->ay.tick[t].text[0])
            number_format(p->ay.tick[t].text, sizeof p->ay.tick[t].text,
                          row < x.rows ? x.layer[row] : row, 0);
    }
    draw_cells(s, p, &x);
    panel_axes(s, p);
    draw_variation(s, p, &x);
    panel_colour_bar(s, p, &scale, "load relative to ideal");
    note(s, &x, at->run);
out:
    expert_load_release(&x);
    mem_free(p);
    return rc;
}

static int draw(struct sheet *s, struct err *e)
{
    struct place at[PANELS_MAX > PLACES ? PANELS_MAX : PLACES];
    int n, rc = places_of(s, at, &n, e);
    for (int i = 0; rc == 0 && i < n; i++)
        rc = draw_panel(s, &at[i], i, n, e);
    if (rc == 0)
        sheet_note(s, "Ideal: an even load of all experts of the layer. Colours end at 1/8 and 8; "
                      "the darkest blue, with crosses where they fit: no tokens. CV: coefficient "
                      "of variation over "
                      "the experts of a layer.");
    return rc;
}

const struct figure_ops figure_expert_load = {
    .name = "expert_load",
    .title = "Load of experts relative to ideal",
    .needs =
        "a record 'matrix' named expert_load, or records 'probe': cell 'expert' of kind category",
    .options = FIGURE_X | FIGURE_STEP,
    .draw = draw,
};
