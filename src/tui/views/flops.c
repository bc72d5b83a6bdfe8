/* FLOPs: the compute of each token, next to measured time, because FLOPs are not latency. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/statistics.h"
#include "tui/view.h"
#include "tui/widgets.h"

enum { BINS_MAX = 400, LAYERS_SHOWN_MAX = 512 };

struct flops {
    int source; /* 0 newest sample, else newest probe */
    int page;
    int top;
};

/* The data of one picture, borrowed from the run. */
struct source {
    const float *flops, *class_of;
    size_t n;
    const char *name, *kind;
    int64_t step;
    double dense;
    const struct probe *probe;
};

static const float *column_of(const struct run_sample *s, const char *name, size_t *n)
{
    const struct vector *c = sample_column(s, name);
    if (c && n)
        *n = (size_t)c->n;
    return c ? c->v : NULL;
}

/* The newest sample that records FLOPs. */
static const struct run_sample *newest_sample(const struct runview *r)
{
    for (size_t i = r->n_samples; i-- > 0;)
        if (sample_column(&r->sample[i], "flops"))
            return &r->sample[i];
    return NULL;
}

/* FLOPs per token of the dense model.  The evaluation that the sample is from counts them over the
 * positions that it evaluated, the head over the training context: its FLOPs ratio needs the former. */
static double dense_of(const struct runview *r, const struct run_sample *s)
{
    for (size_t i = r->n_evals; s && i-- > 0;) {
        const struct run_eval *x = &r->eval[i];
        const struct vector *v =
            x->step == s->step && (strcmp(x->task, "final") == 0 || strcmp(x->task, s->name) == 0)
                ? run_eval_value(x, "flops_dense_per_token")
                : NULL;
        if (v && v->n == 1 && v->v[0] > 0 && isfinite(v->v[0]))
            return (double)v->v[0];
    }
    return r->flops_dense;
}

static int find_source(const struct runview *r, int wants_probe, struct source *out)
{
    const struct run_sample *s = newest_sample(r);
    const struct probe *p = runview_probe(r, -1);
    *out = (struct source){.dense = r->flops_dense, .probe = p};
    if (s && (!wants_probe || !p || !p->flops)) {
        out->flops = column_of(s, "flops", &out->n);
        size_t classes = 0;
        out->class_of = column_of(s, "class", &classes);
        if (classes < out->n)
            out->class_of = NULL;
        out->name = s->name;
        out->dense = dense_of(r, s);
        out->kind = "sample";
        out->step = s->step;
    }
    if (!out->flops && p && p->flops) {
        const struct vector *c = probe_token(p, "class");
        out->flops = p->flops;
        out->n = (size_t)p->tokens;
        out->class_of = c && c->n >= p->tokens ? c->v : NULL;
        out->name = p->name;
        out->kind = "probe";
        out->step = p->step;
        out->dense = p->flops_dense > 0 ? p->flops_dense : r->flops_dense;
    }
    return out->flops != NULL && out->n > 0;
}

static double mean_of(const struct source *s, double *lo, double *hi)
{
    double sum = 0;
    size_t k = 0;
    *lo = (double)INFINITY;
    *hi = -(double)INFINITY;
    for (size_t i = 0; i < s->n; i++) {
        double x = (double)s->flops[i];
        if (!isfinite(x))
            continue;
        sum += x;
        k++;
        *lo = x < *lo ? x : *lo;
        *hi = x > *hi ? x : *hi;
    }
    return k ? sum / (double)k : (double)NAN;
}

/* ---- histogram ---- */

/* The number of bins over `width`, from that of the tokens: the narrower of Freedman and Diaconis'
 * bins, 2 IQR / n^(1/3), and Sturges', range / (log2 n + 1).  The first alone are too wide for two
 * separate peaks. */
static int bins_for(const struct source *s, double width, int most)
{
    double *v = mem_alloc(s->n, sizeof *v), bins = 1;
    size_t n = 0;
    if (!v)
        return 1;
    for (size_t i = 0; i < s->n; i++)
        if (isfinite(s->flops[i]))
            v[n++] = (double)s->flops[i];
    if (n > 1) {
        stat_sort(v, n);
        double spread = 2 * (v[n - 1 - (n - 1) / 4] - v[(n - 1) / 4]) / cbrt((double)n),
               sturges = (v[n - 1] - v[0]) / (log2((double)n) + 1);
        double bin = spread > 0 && spread < sturges ? spread : sturges;
        bins = bin > 0 ? ceil(width / bin) : 1;
    }
    mem_free(v);
    return bins < 1 ? 1 : bins > most ? most : (int)bins;
}

static void draw_histogram(struct area a, const struct source *s, double mean, double lo, double hi)
{
    double count[BINS_MAX] = {0}, unit = s->dense > 0 ? s->dense : 1;
    struct hist_mark mark[2];
    int marks = 0, most = a.cols - AXIS_COLS - 1;
    double x0 = lo / unit, x1 = hi / unit;
    if (s->dense > 0) {
        x0 = x0 < 0.95 ? floor(x0 * 20) / 20 : 0.9;
        x1 = x1 > 1.05 ? ceil(x1 * 20) / 20 : 1.05;
    } else if (!(x1 > x0)) {
        x0 -= 1;
        x1 += 1;
    }
    int bins = bins_for(s, (x1 - x0) * unit, most < BINS_MAX ? most : BINS_MAX);
    for (size_t i = 0; i < s->n && bins > 0; i++)
        if (isfinite(s->flops[i]))
            count[stat_bin((double)s->flops[i] / unit, x0, (x1 - x0) / bins, bins)]++;
    mark[marks++] = (struct hist_mark){mean / unit, "mean", ROLE_WARN};
    if (s->dense > 0)
        mark[marks++] = (struct hist_mark){1, "dense", ROLE_REFERENCE};
    area_text(a, 0, 0, AXIS_COLS, ink(ROLE_DIM), "tokens");
    hist_draw(a, count, bins, x0, x1, mark, marks, ROLE_RUN);
}

/* Where answers alone count, an evaluation samples the tokens that predict one. */
static int is_of_answers(const struct runview *r, const struct source *s)
{
    const char *loss = runview_config(r, "data.loss");
    return strcmp(s->kind, "sample") == 0 && loss && strcmp(loss, "answers") == 0;
}

static void draw_head(struct view *v, struct area a, const struct source *s, double mean)
{
    const struct runview *r = app_run(v->app);
    const struct series *time = runview_series(r, "time_ratio");
    double measured =
        time && time->n ? time->value[time->n - 1] : runview_eval(r, NULL, "time_ratio");
    char x[24], y[24];
    int at = area_text(a, 0, 1, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), "FLOPs per token") + 3;
    if (s->dense > 0)
        at += area_textf(a, 0, at, -1, ink(ROLE_TEXT), "mean %s of dense",
                         num_print(x, mean / s->dense)) +
              2;
    else
        at += area_textf(a, 0, at, -1, ink(ROLE_TEXT), "mean %s", num_print(x, mean)) + 2;
    if (isfinite(measured))
        at += area_textf(a, 0, at, -1, ink(ROLE_SERIES_1), "measured time %s",
                         num_print(y, measured)) +
              2;
    else
        at += area_text(a, 0, at, -1, ink(ROLE_DIM), "time not measured") + 2;
    char from[128];
    snprintf(from, sizeof from, "%s %.60s, step %lld, n = %zu%s", s->kind, s->name ? s->name : "",
             (long long)s->step, s->n, is_of_answers(r, s) ? " that predict answers" : "");
    if (at + (int)strlen(from) < a.cols)
        area_right(a, 0, a.cols - 1, ink(ROLE_DIM), from);
}

/* ---- classes ---- */

/* Rows of a list from `top` on, and a scroll bar where not all fit; returns how far they scroll. */
static int draw_rows(struct area a, const struct bar *bar, size_t n, double full, double reference,
                     int top, int margin)
{
    int last = (int)n > a.rows ? (int)n - a.rows : 0;
    top = top > last ? last : top;
    margin = last > 0 ? 1 : margin;
    bars_draw(area_sub(a, 0, 0, a.rows, a.cols - margin), bar, n, full, reference, (size_t)top);
    scrollbar_draw(a, a.cols - 1, n, (size_t)top, a.rows);
    return last;
}

/* Returns how far its rows scroll; so does draw_ledger. */
static int draw_classes(struct area a, const struct source *s, double mean, int from)
{
    struct bar bar[RUN_CLASSES];
    double sum[RUN_CLASSES] = {0}, n[RUN_CLASSES] = {0}, unit = s->dense > 0 ? s->dense : 1;
    char label[RUN_CLASSES][40], count[24];
    size_t bars = 0;
    area_text(a, 0, 0, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), "by token class");
    if (!s->class_of) {
        area_text(a, 1, 0, -1, ink(ROLE_DIM), "no token classes recorded");
        return 0;
    }
    for (size_t i = 0; i < s->n; i++) {
        double c = (double)s->class_of[i], x = (double)s->flops[i];
        if (c >= 0 && c < RUN_CLASSES && isfinite(x)) {
            sum[(int)c] += x;
            n[(int)c]++;
        }
    }
    for (int c = 0; c < RUN_CLASSES; c++) {
        if (n[c] <= 0)
            continue;
        int room = a.cols * 2 / 5 - 1 - snprintf(count, sizeof count, "%.0f", n[c]);
        const char *name = runview_class(c); /* is cut rather than the count */
        int len = (int)strlen(name), is_cut = len > (room < 5 ? 5 : room);
        len = is_cut ? (room < 5 ? 5 : room) - 1 : len;
        snprintf(label[bars], sizeof label[bars], "%.*s%s %s", len, name, is_cut ? "." : "", count);
        bar[bars] = (struct bar){
            .label = label[bars], .value = sum[c] / n[c] / unit, .role = ROLE_SERIES_2};
        bars++;
    }
    double top = 0;
    for (size_t i = 0; i < bars; i++)
        top = bar[i].value > top ? bar[i].value : top;
    return draw_rows(area_sub(a, 1, 0, a.rows - 1, a.cols), bar, bars,
                     s->dense > 0 && top < 1 ? 1 : top, mean / unit, from, 0);
}

/* ---- ledger by layer ---- */

static double probe_share(const struct probe *p, int layer)
{
    size_t ran = 0;
    for (int t = 0; t < p->tokens && layer < p->layers; t++)
        ran += p->run[(size_t)layer * (size_t)p->tokens + (size_t)t] != 0;
    return layer < p->layers ? (double)ran / p->tokens : (double)NAN;
}

/* The capacity of each layer in the evaluation that the sample is from; NULL when not recorded. */
static const struct vector *capacity_of(const struct runview *r, const struct source *s)
{
    for (size_t i = r->n_evals; i-- > 0 && strcmp(s->kind, "sample") == 0;) {
        const struct vector *c =
            r->eval[i].step == s->step ? run_eval_value(&r->eval[i], "capacity") : NULL;
        if (c)
            return c;
    }
    return NULL;
}

/* The shares of the tokens above; of others, which *whose names, where those are not recorded. */
static double layer_share(const struct runview *r, const struct source *s, int layer,
                          const char **whose)
{
    const struct layer_series *g = runview_layer(r, "gate_ratio");
    const struct probe *p = s->probe && s->probe->run && s->probe->tokens > 0 ? s->probe : NULL;
    const struct vector *c = capacity_of(r, s);
    int is_probe = strcmp(s->kind, "probe") == 0;
    *whose = "";
    if (c)
        return layer < c->n ? (double)c->v[layer] : (double)NAN;
    if (p && is_probe)
        return probe_share(p, layer);
    if (g && g->n) {
        *whose = " in training";
        return layer < g->layers ? (double)g->value[(g->n - 1) * (size_t)g->layers + (size_t)layer]
                                 : (double)NAN;
    }
    *whose = p ? " in the probe" : "";
    return p ? probe_share(p, layer) : (double)NAN;
}

static int draw_ledger(struct view *v, struct area a, const struct source *s, int from)
{
    const struct runview *r = app_run(v->app);
    struct bar bar[LAYERS_SHOWN_MAX];
    char label[LAYERS_SHOWN_MAX][24];
    int layers = r->layers > 0 ? r->layers : s->probe ? s->probe->layers : 0, known = 0;
    const char *whose = "", *word = runview_layer_word(r, layers);
    layers = layers > LAYERS_SHOWN_MAX ? LAYERS_SHOWN_MAX : layers;
    for (int l = 0; l < layers; l++) {
        double x = layer_share(r, s, l, &whose);
        known += isfinite(x);
        snprintf(label[l], sizeof label[l], "%s %d", word, l);
        bar[l] =
            (struct bar){.label = label[l], .value = x, .role = x > 0.999 ? ROLE_FORCED : ROLE_RUN};
    }
    area_textf(a, 0, 0, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), "%s executed%s, by %s",
               whose[0]              ? "tokens"
               : is_of_answers(r, s) ? "share of all tokens"
                                     : "share of tokens",
               whose, word);
    if (!known) {
        area_text(a, 1, 0, -1, ink(ROLE_DIM), "no probe or gate ratios recorded");
        return 0;
    }
    return draw_rows(area_sub(a, 1, 0, a.rows - 1, a.cols), bar, (size_t)layers, 1, (double)NAN,
                     from, 1);
}

/* ---- the view ---- */

static void draw_empty(struct view *v, struct area a)
{
    int y = a.rows > 6 ? a.rows / 2 - 2 : 0;
    if (app_draw_nothing(v->app, a))
        return;
    area_text(a, y, 2, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), "No FLOPs per token yet");
    static const char in_python[] = "In PyTorch, run.probe(..., flops=...) records them.";
    int has_probe = runview_probe(app_run(v->app), -1) != NULL; /* as of ds.watch: without FLOPs */
    struct scroll lines = {0};
    if (has_probe)
        area_text(a, y + 2, 2, -1, ink(ROLE_TEXT), "The probes of this run have none.");
    else
        area_textf(a, y + 2, 2, -1, ink(ROLE_TEXT), "Probes%s and evaluations record them.",
                   runview_config(app_run(v->app), "train.probe_every") ? " (train.probe_every)"
                                                                        : "");
    scroll_text(&lines, area_sub(a, y + 3, 2, a.rows - y - 3, a.cols - 2),
                has_probe ? in_python : app_probe_hint(v->app, in_python), ink(ROLE_TEXT));
}

static void flops_draw(struct view *v, struct area a)
{
    struct flops *f = v->state;
    const struct runview *r = app_run(v->app);
    struct source s;
    double lo, hi;
    if (!r || !find_source(r, f->source, &s)) {
        draw_empty(v, a);
        return;
    }
    double mean = mean_of(&s, &lo, &hi);
    draw_head(v, a, &s, mean);
    if (!isfinite(mean)) {
        area_text(a, 2, 1, -1, ink(ROLE_BAD), "every value is NaN");
        return;
    }
    /* the histogram takes what the lists below leave, at least half */
    int layers = r->layers > 0 ? r->layers
                 : s.probe     ? s.probe->layers
                               : 0,
        lists = 2 + (layers > RUN_CLASSES ? layers : RUN_CLASSES),
        top = a.rows < 16          ? a.rows - 1
              : lists < a.rows / 2 ? a.rows - lists
                                   : a.rows / 2;
    draw_histogram(area_sub(a, 1, 1, top - 1, a.cols - 2), &s, mean, lo, hi);
    struct area low = area_sub(a, top + 1, 1, a.rows - top - 1, a.cols - 2);
    int half = low.cols / 2, last, other = 0;
    if (low.cols >= 70) {
        last = draw_classes(area_sub(low, 0, 0, low.rows, half - 2), &s, mean, f->top);
        other = draw_ledger(v, area_sub(low, 0, half, low.rows, low.cols - half), &s, f->top);
    } else if (f->page) {
        last = draw_ledger(v, low, &s, f->top);
    } else {
        last = draw_classes(low, &s, mean, f->top);
    }
    last = other > last ? other : last;
    f->top = f->top > last ? last : f->top;
}

static void key_source(struct view *v, const struct key *k, const char *args)
{
    struct flops *f = v->state;
    (void)k, (void)args;
    f->source = !f->source;
}

static void key_part(struct view *v, const struct key *k, const char *args)
{
    struct flops *f = v->state;
    (void)k, (void)args;
    f->page = !f->page;
}

/* Drawing stops at the last layers. */
static void scroll_by(struct flops *f, int layers)
{
    int top = f->top + layers;
    f->top = top < 0 ? 0 : top > LAYERS_SHOWN_MAX ? LAYERS_SHOWN_MAX : top;
}

static void key_scroll(struct view *v, const struct key *k, const char *args)
{
    (void)args;
    scroll_by(v->state, k->value);
}

static int flops_event(struct view *v, const struct event *ev)
{
    if (ev->kind != EVENT_MOUSE || (ev->action != MOUSE_WHEEL_UP && ev->action != MOUSE_WHEEL_DOWN))
        return 0;
    scroll_by(v->state, ev->action == MOUSE_WHEEL_UP ? -3 : 3);
    return 1;
}

/* The figure is of the tokens of an evaluation. */
static int flops_words(struct view *v, const char **word, enum figure_runs *of)
{
    const struct runview *r = app_run(v->app);
    struct source s;
    (void)of;
    word[0] = "flops_hist";
    if (!r || !find_source(r, ((struct flops *)v->state)->source, &s) ||
        strcmp(s.kind, "probe") != 0)
        return 1;
    app_notify(v->app, LOG_WARN, "figure flops_hist: no tokens of a probe; %s",
               newest_sample(r) ? "s chooses those of the evaluation"
                                : "an evaluation records the tokens that it draws");
    return -1;
}

static void flops_copy(struct view *v, struct str *out)
{
    const struct runview *r = app_run(v->app);
    struct source s;
    for (size_t i = 0; r && find_source(r, ((struct flops *)v->state)->source, &s) && i < s.n; i++)
        str_addf(out, "%.6g\n", (double)s.flops[i]);
}

static int flops_subject(struct view *v, struct subject *out)
{
    const struct runview *r = app_run(v->app);
    struct source s;
    double lo, hi;
    if (!r || !find_source(r, ((struct flops *)v->state)->source, &s))
        return 0;
    str_copy(out->key, sizeof out->key, "flops");
    snprintf(out->where, sizeof out->where, "mean of %zu tokens of %s", s.n, s.name ? s.name : "?");
    out->value = mean_of(&s, &lo, &hi);
    out->step = s.step;
    out->record = strcmp(s.kind, "sample") == 0 ? "sample record" : "probe record";
    out->unit = "FLOPs/token";
    out->help = "floating-point operations that a token's decisions cost in the forward pass";
    out->formula = "sum over executed layers of 2 * multiply-adds, attention over visible keys, "
                   "router and head included";
    return 1;
}

/* clang-format off */
static const struct key flops_keys[] = {
    {"s", "source", NULL, "tokens of the newest evaluation or of the newest probe", "source", 60, KEY_VIEW_CHANGE, 0, key_source},
    {"p", "part",   NULL, "on narrow screens: token classes or layers",             NULL,      0, KEY_VIEW_CHANGE, 0, key_part},
    {"k Up",       "up",        NULL, "rows above",          NULL, 0, KEY_HIDDEN, -1,                key_scroll},
    {"j Down",     "down",      NULL, "rows below",          NULL, 0, KEY_HIDDEN, 1,                 key_scroll},
    {"PgUp C-u",   "page-up",   NULL, "eight rows up",       NULL, 0, KEY_HIDDEN, -8,                key_scroll},
    {"PgDn C-d",   "page-down", NULL, "eight rows down",     NULL, 0, KEY_HIDDEN, 8,                 key_scroll},
    {"gg Home",    "first",     NULL, "first row",           NULL, 0, KEY_HIDDEN, -LAYERS_SHOWN_MAX, key_scroll},
    {"G End",      "last",      NULL, "last row",            NULL, 0, KEY_HIDDEN, LAYERS_SHOWN_MAX,  key_scroll},
    {0},
};
static const struct setting flops_settings[] = {
    {"source", SETTING_INT, offsetof(struct flops, source), 0, 1},
    {"part",   SETTING_INT, offsetof(struct flops, page),   0, 1},
    {0},
};

const struct view_ops view_flops = {
    .name = "flops",  .title = "FLOPs",
    .summary = "FLOPs per token: distribution, by token class and by layer, compared with measured time.",
    .keys = flops_keys,  .settings = flops_settings,  .state_size = sizeof(struct flops),  .shows_probes = 1,
    .figure_words = flops_words,
    .draw = flops_draw,  .event = flops_event,  .copy = flops_copy,
    .subject = flops_subject,
};
/* clang-format on */
