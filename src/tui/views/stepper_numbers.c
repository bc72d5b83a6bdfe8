/* Values of the Stepper: exact ones from the newest answer, estimates from its stored scores. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "tui/stepper.h"

/* 1 while the requested offset has not been computed yet but can be estimated from the scores. */
int stepper_is_estimated(const struct stepper *s)
{
    const struct probe *p = worker_probe(s->now);
    return p && s->offset != s->offset_now && probe_cell(p, "score") && probe_cell(p, "threshold");
}

/* A cell is executed when its stored score exceeds the moved threshold.  This is approximate:
 * other decisions in earlier layers would change the scores of later ones. */
static void suppose(struct stepper *s, const struct probe *p)
{
    const struct matrix *score = probe_cell(p, "score"), *threshold = probe_cell(p, "threshold"),
                        *rule = probe_cell(p, "forced");
    double shift = s->offset - s->offset_now;
    size_t n = (size_t)p->layers * (size_t)p->tokens;
    for (size_t i = 0; i < n; i++) {
        double margin = (double)score->v[i] - ((double)threshold->v[i] + shift);
        int is_free = !isnan(margin) && !(rule && rule->v[i] > 0) && s->force[i] < 0;
        s->estimated[i] = is_free ? margin > 0 : p->run && p->run[i];
    }
}

static int make_room(struct stepper *s, size_t n)
{
    if (n <= s->cells_cap)
        return 1;
    int8_t *force = mem_realloc(s->force, n, 1);
    s->force = force ? force : s->force;
    unsigned char *estimated = mem_realloc(s->estimated, n, 1);
    s->estimated = estimated ? estimated : s->estimated;
    if (!force || !estimated)
        return 0;
    s->cells_cap = n;
    return 1;
}

/* Colours the text of drafted tokens, where the probe has any. */
static void fill_tones(struct stepper *s)
{
    const struct probe *p = s->cells.probe;
    const struct vector *drafted = probe_token(p, "drafted");
    void *grown = s->tone;
    s->cells.tone = NULL;
    memset(s->marks, 0, sizeof s->marks);
    if (!drafted || mem_grow(&grown, &s->tone_cap, (size_t)p->tokens, 1) < 0)
        return;
    s->tone = grown;
    for (int t = 0; t < p->tokens; t++) {
        int mark = drafted->v[t] > 0 && drafted->v[t] < 3 ? (int)drafted->v[t] : 0;
        s->tone[t] = (unsigned char)cells_mark_role(mark);
        s->marks[mark]++;
    }
    s->cells.tone = s->tone;
}

/* Up to its end the one is the other: only then are the values of a token comparable. */
static int is_same_text(const struct probe *p, const struct probe *q)
{
    size_t n = (size_t)(p->tokens < q->tokens ? p->tokens : q->tokens);
    return memcmp(p->id, q->id, n * sizeof *p->id) == 0;
}

int stepper_prepare(struct view *v)
{
    struct stepper *s = v->state;
    struct cells *c = &s->cells;
    c->probe = worker_probe(s->now);
    c->other = NULL;
    c->run = NULL;
    c->force = NULL;
    c->view = s->about;
    if (!c->probe || cells_fit(c) < 0)
        return 0;
    size_t n = (size_t)c->probe->layers * (size_t)c->probe->tokens;
    if (!make_room(s, n))
        return 0;
    memset(s->force, -1, n);
    for (int i = 0; i < s->n_forced; i++) {
        const struct stepper_forced *f = &s->forced[i];
        if (f->layer < c->probe->layers && f->token < c->probe->tokens)
            s->force[(size_t)f->layer * (size_t)c->probe->tokens + (size_t)f->token] =
                (int8_t)f->run;
    }
    c->force = s->force;
    fill_tones(s);
    if (s->n_forced > 0 || s->offset != 0 || s->exit > 0 || s->options[0])
        c->other = worker_probe(s->base);
    if (c->other && !is_same_text(c->probe, c->other))
        c->other = NULL; /* of the text before this one */
    if (stepper_is_estimated(s)) {
        suppose(s, c->probe);
        c->run = s->estimated;
    }
    return 1;
}

/* Mean cost of the executed (or skipped) cells of a layer; of all layers where the layer has
 * none. */
static double layer_cost(const struct probe *p, const struct matrix *m, int layer, int is_run)
{
    double sum = 0;
    int n = 0;
    for (int t = 0; t < p->tokens; t++) {
        size_t i = (size_t)layer * (size_t)p->tokens + (size_t)t;
        if ((p->run[i] != 0) == is_run) {
            sum += (double)m->v[i];
            n++;
        }
    }
    return n ? sum / n : (double)NAN;
}

/* The recorded FLOPs, corrected for the cells whose decision would change. */
static double supposed_flops(const struct probe *p, const unsigned char *run)
{
    const struct matrix *m = probe_cell(p, "flops");
    double moved = 0, any_run = (double)NAN, any_skip = 0;
    if (!m || !p->run)
        return (double)NAN;
    for (int l = 0; l < p->layers; l++) {
        double cost = layer_cost(p, m, l, 1);
        any_run = isnan(any_run) ? cost : any_run;
    }
    for (int l = 0; l < p->layers; l++) {
        double cost = layer_cost(p, m, l, 1), saved = layer_cost(p, m, l, 0);
        cost = isnan(cost) ? any_run : cost;
        saved = isnan(saved) ? any_skip : saved;
        for (int t = 0; t < p->tokens; t++) {
            size_t i = (size_t)l * (size_t)p->tokens + (size_t)t;
            moved += ((run[i] != 0) - (p->run[i] != 0)) * (cost - saved);
        }
    }
    return moved;
}

struct stepper_sum stepper_sum(const struct probe *p, const unsigned char *run)
{
    struct stepper_sum s = {(double)NAN, (double)NAN, (double)NAN};
    double loss = 0, flops = 0;
    size_t n = (size_t)p->layers * (size_t)p->tokens, ran = 0;
    int counted = 0;
    const unsigned char *shown = run ? run : p->run;
    for (size_t i = 0; shown && i < n; i++)
        ran += shown[i] != 0;
    if (shown)
        s.run = (double)ran / (double)n;
    for (int t = 0; p->nll && t < p->tokens; t++) {
        if (isfinite(p->nll[t])) {
            loss += (double)p->nll[t];
            counted++;
        }
    }
    if (counted && !run) /* the loss of estimated decisions is unknown until computed */
        s.loss = loss / counted;
    for (int t = 0; p->flops && t < p->tokens; t++)
        flops += (double)p->flops[t];
    if (run)
        flops += supposed_flops(p, run);
    if (p->flops && p->flops_dense > 0)
        s.flops = flops / p->flops_dense / p->tokens;
    return s;
}
