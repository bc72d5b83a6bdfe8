/* Shares of the probes over training, and the layers that have collapsed or specialised. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tui/timeline.h"

double timeline_share(const struct probe *p, int layer)
{
    size_t n = 0, tokens = (size_t)p->tokens;
    if (!p->run || p->tokens < 1 || layer >= p->layers)
        return (double)NAN;
    for (size_t t = 0; t < tokens; t++)
        n += p->run[(size_t)layer * tokens + t] != 0;
    return (double)n / (double)tokens;
}

/* Tokens of each class, and how many of them were executed. */
struct classes {
    double tokens[RUN_CLASSES], run[RUN_CLASSES];
};

static int count_classes(const struct probe *p, int layer, struct classes *c)
{
    const struct vector *kind = probe_token(p, "class");
    memset(c, 0, sizeof *c);
    if (!kind || kind->n < p->tokens || !p->run || layer >= p->layers)
        return 0;
    for (int t = 0; t < p->tokens; t++) {
        float k = kind->v[t];
        if (!(k >= 0 && k < RUN_CLASSES))
            continue;
        c->tokens[(int)k]++;
        c->run[(int)k] += p->run[(size_t)layer * (size_t)p->tokens + (size_t)t] != 0;
    }
    return 1;
}

double timeline_explained(const struct probe *p, int layer)
{
    struct classes c;
    double n = 0, ran = 0, between = 0;
    int kinds = 0;
    if (!count_classes(p, layer, &c))
        return (double)NAN;
    for (int k = 0; k < RUN_CLASSES; k++) {
        n += c.tokens[k];
        ran += c.run[k];
        kinds += c.tokens[k] > 0;
    }
    double mean = n > 0 ? ran / n : 0, total = n * mean * (1 - mean);
    if (kinds < 2 || n <= kinds || !(total > 0))
        return (double)NAN;
    for (int k = 0; k < RUN_CLASSES; k++)
        if (c.tokens[k] > 0) {
            double d = c.run[k] / c.tokens[k] - mean;
            between += c.tokens[k] * d * d;
        }
    double part = 1 - (1 - between / total) * (n - 1) / (n - kinds);
    return part > 0 ? part : 0;
}

/* ---- all probes of a text ---- */

static int is_of(const struct timeline *t, const struct runview *r, size_t i)
{
    return r->probe[i]->index == t->text;
}

/* Layers of the newest probe of the text; others are shown as far as they have them. */
static int layers_of(const struct runview *r, int text)
{
    const struct probe *p = runview_probe(r, text);
    return p ? p->layers : 0;
}

static int read_new(struct timeline *t, const struct runview *r)
{
    size_t row = 2 * (size_t)t->layers;
    void *p = t->known;
    if (mem_grow(&p, &t->cap, r->n_probes + 1, row * sizeof *t->known) < 0)
        return DS_EMEM;
    t->known = p;
    for (; t->seen < r->n_probes; t->seen++) {
        const struct probe *q = r->probe[t->seen];
        float *to = t->known + t->seen * row;
        for (int l = 0; l < t->layers && is_of(t, r, t->seen); l++) {
            to[l] = (float)timeline_share(q, l);
            to[t->layers + l] = (float)timeline_explained(q, l);
        }
    }
    return 0;
}

/* Forced in a probe: the cell "forced" holds for every token. */
static int is_forced(const struct probe *p, int layer)
{
    const struct matrix *m = probe_cell(p, "forced");
    int n = 0;
    for (int t = 0; m && layer < m->rows && t < m->cols; t++)
        n += m->v[(size_t)layer * (size_t)m->cols + (size_t)t] > 0;
    return m && m->cols > 0 && n == m->cols;
}

static int collect(struct timeline *t, const struct runview *r)
{
    size_t L = (size_t)t->layers, n = r->n_probes + 1;
    size_t *at = mem_realloc(t->at, n, sizeof *at);
    t->at = at ? at : t->at;
    float *share = mem_realloc(t->share, n * L, sizeof *share);
    t->share = share ? share : t->share;
    float *class_ = mem_realloc(t->class_, n * L, sizeof *class_);
    t->class_ = class_ ? class_ : t->class_;
    unsigned char *on = mem_realloc(t->always_on, L, 1);
    t->always_on = on ? on : t->always_on;
    if (!at || !share || !class_ || !on)
        return DS_EMEM;
    t->n = t->superseded = 0;
    t->has_classes = 0;
    for (size_t i = 0; i < r->n_probes; i++) {
        if (!is_of(t, r, i))
            continue;
        if (r->probe[i]->is_old) {
            t->superseded++;
            continue;
        }
        memcpy(t->share + t->n * L, t->known + i * 2 * L, L * sizeof *share);
        memcpy(t->class_ + t->n * L, t->known + i * 2 * L + L, L * sizeof *class_);
        t->has_classes |= probe_token(r->probe[i], "class") != NULL;
        t->at[t->n++] = i;
    }
    for (size_t l = 0; l < L; l++) {
        t->always_on[l] = (unsigned char)runview_always_on(r, (int)l);
        if (!t->always_on[l] && t->n > 0)
            t->always_on[l] = (unsigned char)is_forced(r->probe[t->at[t->n - 1]], (int)l);
    }
    return 0;
}

int timeline_update(struct timeline *t, const struct runview *r, int text)
{
    int layers = layers_of(r, text);
    int is_same = t->of == r && t->life == r->life && t->text == text && t->layers == layers &&
                  t->thinned == r->thinned;
    if (is_same && t->generation == r->generation && t->seen == r->n_probes)
        return 0;
    if (!is_same) {
        timeline_release(t);
        t->of = r;
        t->life = r->life;
        t->text = text;
        t->layers = layers;
        t->thinned = r->thinned;
    }
    t->generation = r->generation;
    if (layers < 1)
        return 0;
    int rc = read_new(t, r);
    return rc < 0 ? rc : collect(t, r);
}

void timeline_release(struct timeline *t)
{
    mem_free(t->at);
    mem_free(t->share);
    mem_free(t->class_);
    mem_free(t->always_on);
    mem_free(t->known);
    memset(t, 0, sizeof *t);
}

/* ---- collapse and specialisation ---- */

static int holds(const struct timeline *t, enum timeline_kind kind, size_t i, int layer)
{
    size_t at = i * (size_t)t->layers + (size_t)layer;
    switch (kind) {
    case TIMELINE_NEVER: return t->share[at] <= 0;
    case TIMELINE_EVERY: return t->share[at] >= 1;
    default: return t->class_[at] >= (float)TIMELINE_EXPLAINED;
    }
}

static int before(const struct timeline_finding *a, const struct timeline_finding *b)
{
    size_t na = a->last - a->first, nb = b->last - b->first;
    if (a->is_now != b->is_now)
        return a->is_now;
    if (a->kind != b->kind && (a->kind == TIMELINE_SPECIALISED || b->kind == TIMELINE_SPECIALISED))
        return b->kind == TIMELINE_SPECIALISED;
    return na != nb ? na > nb : a->layer < b->layer;
}

/* Keeps the first `max` in order. */
static void insert(struct timeline_finding *out, size_t *n, size_t max,
                   const struct timeline_finding *f)
{
    size_t i = *n;
    while (i > 0 && before(f, &out[i - 1]))
        i--;
    if (i >= max)
        return;
    size_t kept = *n < max ? *n : max - 1;
    memmove(out + i + 1, out + i, (kept - i) * sizeof *out);
    out[i] = *f;
    *n = kept + 1;
}

size_t timeline_findings(const struct timeline *t, struct timeline_finding *out, size_t max)
{
    size_t all = 0, n = 0;
    for (int l = 0; l < t->layers; l++) {
        if (t->always_on[l])
            continue;
        for (int kind = TIMELINE_NEVER; kind <= TIMELINE_SPECIALISED; kind++) {
            for (size_t i = 0, end; i<t->n; i = end> i ? end : i + 1) {
                for (end = i; end < t->n && holds(t, (enum timeline_kind)kind, end, l); end++)
                    ;
                if (end - i < TIMELINE_PROBES)
                    continue;
                const struct timeline_finding f = {(enum timeline_kind)kind, l, i, end - 1,
                                                   end == t->n};
                insert(out, &n, max, &f);
                all++;
            }
        }
    }
    return all;
}

/* "punctuation 0.95, word 0.10": the classes of the most and the least executed tokens. */
static void class_words(char *out, size_t size, const struct probe *p, int layer)
{
    struct classes c;
    int most = -1, least = -1;
    out[0] = '\0';
    if (!count_classes(p, layer, &c))
        return;
    for (int few = 5; few >= 1 && (most < 0 || most == least); few -= 4)
        for (int k = 0; k < RUN_CLASSES; k++) {
            double share = c.tokens[k] >= few ? c.run[k] / c.tokens[k] : (double)NAN;
            if (isnan(share))
                continue;
            most = most < 0 || share > c.run[most] / c.tokens[most] ? k : most;
            least = least < 0 || share < c.run[least] / c.tokens[least] ? k : least;
        }
    if (most >= 0 && most != least)
        snprintf(out, size, ": %s %.2f, %s %.2f", runview_class(most), c.run[most] / c.tokens[most],
                 runview_class(least), c.run[least] / c.tokens[least]);
}

const char *timeline_words(char *out, size_t size, int cols, const struct timeline *t,
                           const struct runview *r, const struct timeline_finding *f)
{
    static const char *const words[] = {
        [TIMELINE_NEVER] = "never executed",
        [TIMELINE_EVERY] = "executed for every token",
        [TIMELINE_SPECIALISED] = "specialised",
    };
    const struct probe *last = r->probe[t->at[f->last]];
    long long from = (long long)r->probe[t->at[f->first]]->step, to = (long long)last->step;
    char when[64], probes[32], more[96] = "";
    if (f->is_now)
        snprintf(when, sizeof when, "since step %lld", from);
    else
        snprintf(when, sizeof when, "from step %lld to %lld", from, to);
    if (f->kind == TIMELINE_SPECIALISED)
        class_words(more, sizeof more, last, f->layer);
    snprintf(probes, sizeof probes, " (%zu probes)", f->last - f->first + 1);
    /* whole, without the probes if there are classes, without the classes, without both */
    for (int k = 0; k < 4; k++) {
        int has_probes = k % 2 == 0, has_classes = k < 2 && more[0];
        if (k == 1 && !has_classes)
            continue;
        int n = snprintf(out, size, "%s %d: %s %s%s%s", runview_layer_word(r, t->layers), f->layer,
                         words[f->kind], when, has_probes ? probes : "", has_classes ? more : "");
        if (n <= cols)
            break;
    }
    return out;
}
