/* Adds one record to a run view: a reader for each kind, in a table at the end. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "io/foreign.h"
#include "io/metric.h"
#include "io/runview_parts.h"
#include "io/system.h"

enum {
    LAYER_METRICS = 256,
    LAYERS_MAX = 4096,
    EVALS_MAX = 1 << 14,
    SAMPLES_MAX = 64,
    VALUES_MAX = 256
};

static int is_common(struct value key)
{
    return value_is(key, "kind") || value_is(key, "step") || value_is(key, "time");
}

/* ---- metrics
 * ---------------------------------------------------------------------------------------- */

const char *runview_metric_name(const char *name)
{
    static const struct {
        const char *former, *now;
    } renamed[] = {{"skip_chance", "drop_probability"}};
    for (size_t i = 0; i < DS_LEN(renamed); i++)
        if (strcmp(renamed[i].former, name) == 0)
            return renamed[i].now;
    return name;
}

static const struct metric_meta *meta_find(const struct runview_index *x, const char *name)
{
    for (size_t i = 0; i < x->metas; i++)
        if (x->meta[i].name && strcmp(x->meta[i].name, name) == 0)
            return &x->meta[i];
    return NULL;
}

const char *runview_unit(const struct runview *v, const char *name)
{
    const struct layer_series *l = runview_layer(v, name);
    const struct series *s = runview_series(v, name);
    if (l && l->unit[0])
        return l->unit;
    if (s && s->unit[0])
        return s->unit;
    const struct metric_meta *m = meta_find(v->index, name);
    return m && m->unit ? m->unit : "";
}

const char *runview_help(const struct runview *v, const char *name)
{
    const struct metric_meta *m = meta_find(v->index, name);
    return m && m->help ? m->help : "";
}

/* The series of a name, a new one when it is the first value.  NULL: no memory, or beyond the cap. */
static struct series *series_named(struct runview *v, const char *name)
{
    struct runview_index *x = v->index;
    void *p = v->series;
    int64_t at;
    if (map_get(&x->series, name, strlen(name), &at)) {
        x->hint = (size_t)at + 1;
        return &v->series[at];
    }
    if (v->n_series == RUNVIEW_METRICS) {
        v->others++;
        return NULL;
    }
    if (!runview_room(v, &p, &x->series_cap, v->n_series, sizeof *v->series))
        return NULL;
    v->series = p;
    const struct metric_meta *m = meta_find(x, name);
    struct series s = {.name = mem_strdup(name),
                       .unit = mem_strdup(m && m->unit ? m->unit : ""),
                       .help = mem_strdup(m && m->help ? m->help : "")};
    s.canonical = metric_canonical(name, &s.rank);
    s.is_free_order = runview_foreign(v) != NULL;
    if (!s.name || !s.unit || !s.help ||
        map_set(&x->series, name, strlen(name), (int64_t)v->n_series) < 0) {
        series_release(&s);
        runview_no_memory(v);
        return NULL;
    }
    v->series[v->n_series] = s;
    return &v->series[v->n_series++];
}

/* The key's series: almost always the one after the last used. */
static struct series *series_of(struct runview *v, struct value key)
{
    struct runview_index *x = v->index;
    char name[64];
    for (size_t i = x->hint; i < v->n_series && i < x->hint + 2; i++)
        if (value_is(key, v->series[i].name)) {
            x->hint = i + 1;
            return &v->series[i];
        }
    if (!name_copy(name, key)) {
        v->invalid++;
        return NULL;
    }
    return series_named(v, name);
}

/* Training FLOPs up to this record: those of the newest valid point, and those of the tokens since.
 * Walking back over superseded points is bounded, as marking them is. */
static double flops_at(struct runview *v, const struct record_common *c)
{
    enum { WALKS_MAX = 1000 };
    const struct series *s = runview_series(v, "tokens");
    size_t i = s ? s->n : 0;
    if (i > 0 && (s->is_old[i - 1] || s->step[i - 1] > c->step) && ++v->index->walks > WALKS_MAX)
        return (double)NAN;
    while (i > 0 && (s->is_old[i - 1] || s->step[i - 1] > c->step))
        i--;
    double before = i > 0 ? s->flops[i - 1] : 0, tokens = i > 0 ? s->value[i - 1] : 0;
    double ratio = isnan(c->flops_ratio) ? 1 : c->flops_ratio;
    return v->flops_dense > 0 ? before + 3 * v->flops_dense * ratio * (c->tokens - tokens)
                              : (double)NAN;
}

double runview_start(const struct runview *v)
{
    return v->n_series && v->series[0].n ? v->series[0].time[0] : (double)NAN;
}

static void take_metric(struct runview *v, struct value body, const struct record_common *c)
{
    struct runview_index *x = v->index;
    struct value_iter it = {0};
    struct value key, item;
    double value, tokens = (double)NAN, flops = (double)NAN;
    if (c->has_tokens) {
        x->tokens = c->tokens;
        x->flops = flops_at(v, c);
        x->tokens_step = c->step;
    }
    if (x->tokens_step == c->step) {
        tokens = x->tokens;
        flops = x->flops;
    }
    x->hint = 0;
    while (value_next(body, &it, &key, &item)) {
        if (is_common(key))
            continue;
        if (!value_is_num(item, &value)) {
            v->invalid++;
            continue;
        }
        struct series *s = series_of(v, key);
        if (s && series_add(s, c->step, value, tokens, flops, c->time) < 0)
            runview_no_memory(v);
    }
}

/* ---- points of other programs ---- */

static const uint32_t no_series = UINT32_MAX;

static struct series *series_of_point(struct runview *v, const struct foreign_point *p)
{
    struct runview_index *x = v->index;
    void *list = x->of_point;
    size_t before = x->cap_of_point;
    if (p->id >= x->cap_of_point) {
        if (mem_grow(&list, &x->cap_of_point, (size_t)p->id + 1, sizeof *x->of_point) < 0) {
            runview_no_memory(v);
            return NULL;
        }
        x->of_point = list;
        memset(x->of_point + before, 0, (x->cap_of_point - before) * sizeof *x->of_point);
    }
    if (x->of_point[p->id] == 0) {
        struct series *s = series_named(v, p->name);
        x->of_point[p->id] = s ? (uint32_t)(s - v->series) + 1 : no_series;
    } else if (x->of_point[p->id] == no_series) {
        v->others++;
    }
    return x->of_point[p->id] == no_series ? NULL : &v->series[x->of_point[p->id] - 1];
}

void runview_take_points(struct runview *v, const struct foreign_point *p, size_t n)
{
    struct runview_index *x = v->index;
    for (size_t i = 0; i < n; i++) {
        struct series *s = series_of_point(v, &p[i]);
        if (!s)
            continue;
        if (strcmp(p[i].name, "tokens") == 0) {
            x->tokens = p[i].value;
            x->tokens_step = p[i].step;
        }
        double tokens = x->tokens_step == p[i].step ? x->tokens : (double)NAN;
        if (series_add(s, p[i].step, p[i].value, tokens, (double)NAN, p[i].time) < 0)
            runview_no_memory(v);
        if (!isnan(p[i].time))
            v->last_time = x->phase.last_time = p[i].time;
        if (p[i].step > v->step)
            v->step = p[i].step;
    }
    x->phase.is_log = 1;
    x->phase.step = v->step;
    x->phase.records += n;
    v->records += n;
    v->generation++;
}

void runview_order(struct runview *v)
{
    for (size_t i = 0; i < v->n_series; i++)
        if (v->series[i].is_unordered && series_sort(&v->series[i]) < 0)
            runview_no_memory(v);
}

static struct layer_series *layer_of(struct runview *v, const char *name, int layers)
{
    struct runview_index *x = v->index;
    void *p = v->layer;
    int64_t at;
    if (map_get(&x->layer, name, strlen(name), &at))
        return &v->layer[at];
    if (v->n_layer == LAYER_METRICS) {
        v->others++;
        return NULL;
    }
    if (!runview_room(v, &p, &x->layer_cap, v->n_layer, sizeof *v->layer))
        return NULL;
    v->layer = p;
    const struct metric_meta *m = meta_find(x, name);
    struct layer_series *s = &v->layer[v->n_layer];
    *s = (struct layer_series){.name = mem_strdup(name),
                               .unit = mem_strdup(m && m->unit ? m->unit : ""),
                               .help = mem_strdup(m && m->help ? m->help : ""),
                               .layers = layers};
    v->n_layer++;
    if (!s->name || !s->unit || !s->help ||
        map_set(&x->layer, name, strlen(name), (int64_t)v->n_layer - 1) < 0)
        runview_no_memory(v);
    return s;
}

static int layer_add(struct layer_series *s, int64_t step, struct value v)
{
    size_t cap = s->cap, width = (size_t)s->layers;
    void *steps = s->step, *values = s->value;
    if (s->n == s->cap) {
        int rc = mem_grow(&steps, &cap, s->n + 1, sizeof *s->step);
        s->step = steps;
        if (rc < 0 || !(values = mem_realloc(s->value, cap, width * sizeof *s->value)))
            return DS_EMEM; /* the old blocks stay: the capacity is unchanged */
        s->value = values;
        s->cap = cap;
    }
    s->step[s->n] = step;
    if (value_f32s(v, s->value + s->n * width, width) != (int64_t)width)
        return DS_EFORMAT;
    s->n++;
    return 0;
}

static void take_layer(struct runview *v, struct value body, const struct record_common *c)
{
    struct value_iter it = {0};
    struct value key, item;
    char name[64];
    while (value_next(body, &it, &key, &item)) {
        enum value_kind kind = value_kind(item);
        if (is_common(key) || (kind != VALUE_ARRAY && kind != VALUE_BIN))
            continue; /* scalars may accompany the arrays */
        int64_t n = value_f32s(item, NULL, 0);
        struct layer_series *s = NULL;
        if (n > 0 && n <= LAYERS_MAX && name_copy(name, key) && (v->layers == 0 || n == v->layers))
            s = layer_of(v, runview_metric_name(name), (int)n);
        if (!s || s->layers != n) {
            v->invalid++;
            continue;
        }
        int rc = layer_add(s, c->step, item);
        if (rc == DS_EMEM)
            runview_no_memory(v);
        v->invalid += rc == DS_EFORMAT;
    }
}

/* ---- probes, evaluations, samples
 * ------------------------------------------------------------------- */

static void take_probe(struct runview *v, struct value body, const struct record_common *c)
{
    void *p = v->probe;
    struct probe *probe = probe_read(v, body, c->step);
    if (!probe)
        return;
    if (!runview_room(v, &p, &v->cap_probes, v->n_probes, sizeof *v->probe)) {
        probe_free(probe);
        return;
    }
    v->probe = p;
    probes_supersede(v, probe->index, c->step);
    v->probe[v->n_probes++] = probe;
    v->index->probe_bytes += probe_bytes(probe);
    probes_thin(v);
}

static void eval_release(struct run_eval *x)
{
    mem_free(x->task);
    mem_free(x->routing);
    vectors_release(x->value, x->values);
}

static void sample_release(struct run_sample *x)
{
    mem_free(x->name);
    vectors_release(x->column, x->columns);
}

static void take_eval(struct runview *v, struct value body, const struct record_common *c)
{
    struct value_iter it = {0};
    struct value key, item;
    char name[64];
    double number;
    void *p = v->eval;
    struct run_eval x = {.step = c->step,
                         .task = text_copy(value_get(body, "task"), 256),
                         .routing = text_copy(value_get(body, "routing"), 64),
                         .value = mem_alloc(VALUES_MAX, sizeof *x.value)};
    int rc = x.task && x.routing && x.value ? 0 : DS_EMEM;
    while (rc == 0 && x.values < VALUES_MAX && value_next(body, &it, &key, &item)) {
        if (is_common(key) || value_is(key, "task") || value_is(key, "routing") ||
            value_is(key, "options") || value_is(key, "method_options") ||
            (value_kind(item) == VALUE_STR && !value_is_num(item, &number)))
            continue;
        rc = name_copy(name, key) && !run_eval_value(&x, name)
                 ? vector_read(&x.value[x.values], name, item, RECORD_MAX)
                 : DS_EFORMAT;
        x.values += rc == 0;
        v->invalid += rc == DS_EFORMAT;
        rc = rc == DS_EFORMAT ? 0 : rc;
    }
    void *trimmed = rc == 0 ? mem_realloc(x.value, (size_t)x.values + 1, sizeof *x.value) : NULL;
    x.value = trimmed ? trimmed : x.value;
    if (v->n_evals == EVALS_MAX) {
        eval_release(&v->eval[0]);
        memmove(v->eval, v->eval + 1, --v->n_evals * sizeof *v->eval);
    }
    if (rc < 0 || !runview_room(v, &p, &v->index->eval_cap, v->n_evals, sizeof *v->eval)) {
        runview_no_memory(v);
        eval_release(&x);
        return;
    }
    v->eval = p;
    v->eval[v->n_evals++] = x;
}

/* Columns of one length; a column of another length, or the second of a name, is counted and left
 * out. */
static int sample_columns(struct runview *v, struct run_sample *x, struct value map)
{
    struct value_iter it = {0};
    struct value key, item;
    char name[64];
    while (x->columns < VALUES_MAX && value_next(map, &it, &key, &item)) {
        struct vector got = {0};
        int rc = name_copy(name, key) && !sample_column(x, name)
                     ? vector_read(&got, name, item, RECORD_MAX)
                     : DS_EFORMAT;
        if (rc == DS_EMEM)
            return rc;
        if (rc == 0 && x->n == 0)
            x->n = (size_t)got.n;
        if (rc == 0 && (size_t)got.n == x->n && got.n > 0) {
            x->column[x->columns++] = got;
            continue;
        }
        vector_clear(&got);
        v->invalid += x->n > 0 || value_f32s(item, NULL, 0) != 0; /* else none were kept */
    }
    return 0;
}

static void take_sample(struct runview *v, struct value body, const struct record_common *c)
{
    void *p = v->sample;
    int64_t n = value_int(value_get(body, "n"), 0);
    struct run_sample x = {.step = c->step,
                           .n = n > 0 && n <= RECORD_MAX ? (size_t)n : 0,
                           .name = text_copy(value_get(body, "name"), 256),
                           .column = mem_alloc(VALUES_MAX, sizeof *x.column)};
    int rc = x.name && x.column ? sample_columns(v, &x, value_get(body, "column")) : DS_EMEM;
    if (v->n_samples == SAMPLES_MAX) {
        sample_release(&v->sample[0]);
        memmove(v->sample, v->sample + 1, --v->n_samples * sizeof *v->sample);
    }
    if (rc < 0 || !runview_room(v, &p, &v->index->sample_cap, v->n_samples, sizeof *v->sample)) {
        runview_no_memory(v);
        sample_release(&x);
        return;
    }
    v->sample = p;
    v->sample[v->n_samples++] = x;
}

/* ---- the machine ---- */

static void add_system_point(struct runview *v, const struct system_point *p,
                             const struct record_common *c)
{
    if (!isfinite(p->value))
        return;
    struct series *s = series_named(v, p->name);
    if (!s)
        return;
    if (!s->unit[0] && p->unit[0]) {
        char *unit = mem_strdup(p->unit);
        if (unit)
            mem_free(s->unit);
        else
            runview_no_memory(v);
        s->unit = unit ? unit : s->unit;
    }
    if (series_add(s, c->step, p->value, (double)NAN, (double)NAN, c->time) < 0)
        runview_no_memory(v);
}

/* The newest one is kept whole, of all the main numbers. */
static void take_system(struct runview *v, struct value body, const struct record_common *c)
{
    struct system_point p;
    if (!v->system && !(v->system = mem_alloc(1, sizeof *v->system))) {
        runview_no_memory(v);
        return;
    }
    system_read(v->system, body);
    v->system->time = c->time;
    v->system_step = c->step;
    for (int k = 0; k < SYSTEM_SERIES; k++) {
        p = system_point(v->system, (enum system_series)k);
        add_system_point(v, &p, c);
    }
    for (int i = 0; i < v->system->gpus; i++)
        for (int k = 0; k < SYSTEM_GPU_SERIES; k++) {
            p = system_gpu_point(v->system, i, (enum system_gpu_series)k);
            add_system_point(v, &p, c);
        }
}

/* ---- all
 * --------------------------------------------------------------------------------------------- */

static struct record_common common_of(struct runview *v, struct value body)
{
    struct record_common c = {.step = -1, .time = (double)NAN, .flops_ratio = (double)NAN};
    struct value_iter it = {0};
    struct value key, item;
    while (value_next(body, &it, &key, &item)) {
        if (value_is(key, "kind"))
            c.kind = item;
        else if (value_is(key, "step"))
            c.step = value_int(item, -1);
        else if (value_is(key, "time"))
            c.time = value_num(item, (double)NAN);
        else if (value_is(key, "tokens"))
            c.has_tokens = value_is_num(item, &c.tokens);
        else if (value_is(key, "flops_ratio"))
            c.flops_ratio = value_num(item, (double)NAN);
    }
    if (!(fabs(c.time) <= 1e12)) { /* year 33658: later values are not timestamps */
        v->invalid += !isnan(c.time);
        c.time = (double)NAN;
    }
    return c;
}

/* An end record changes only the state. */
static void take_end(struct runview *v, struct value body, const struct record_common *c)
{
    (void)v;
    (void)body;
    (void)c;
}

static const struct {
    const char *kind;
    void (*take)(struct runview *v, struct value body, const struct record_common *c);
    int needs_step;
} takers[] = {
    {"metric", take_metric, 1},       {"layer", take_layer, 1}, {"probe", take_probe, 0},
    {"event", runview_take_event, 0}, {"eval", take_eval, 0},   {"sample", take_sample, 0},
    {"head", runview_take_head, 0},   {"end", take_end, 0},     {"matrix", runview_take_matrix, 1},
    {"system", take_system, 1},       {"ranks", runview_take_ranks, 1},
};

void runview_take(struct runview *v, struct value body)
{
    struct record_common c = common_of(v, body);
    /* other programs log settings late, with the time of the start; a restart says that it is one */
    int is_ordered = !runview_foreign(v) || value_num(value_get(body, "resume"), 0) > 0;
    run_phase_update(&v->index->phase, body);
    v->records++;
    v->generation++;
    is_ordered &= !value_is(c.kind, "probe"); /* over a host they may come after newer records */
    if (!isnan(c.time) && (is_ordered || !(c.time < v->last_time)))
        v->last_time = c.time;
    for (size_t i = 0; i < DS_LEN(takers); i++) {
        if (!value_is(c.kind, takers[i].kind))
            continue;
        if (c.step < 0 && takers[i].needs_step) {
            v->invalid++;
            return;
        }
        if (c.step >= 0 && (is_ordered || c.step > v->step))
            v->step = c.step;
        else if (c.step < 0)
            c.step = 0;
        takers[i].take(v, body, &c);
        return;
    }
    v->invalid +=
        value_kind(c.kind) != VALUE_STR; /* unknown kinds are ignored, a missing kind is an error */
}

static void layer_release(struct layer_series *s)
{
    mem_free(s->name);
    mem_free(s->unit);
    mem_free(s->help);
    mem_free(s->step);
    mem_free(s->value);
}

#define RELEASE_ALL(list, n, release)                                                              \
    do {                                                                                           \
        for (size_t i_ = 0; i_ < (n); i_++)                                                        \
            release(&(list)[i_]);                                                                  \
        mem_free(list);                                                                            \
    } while (0)

static _Atomic uint64_t lives;

void runview_clear(struct runview *v)
{
    struct runview_index *x = v->index;
    for (size_t i = 0; i < v->n_probes; i++)
        probe_free(v->probe[i]);
    mem_free(v->probe);
    RELEASE_ALL(v->series, v->n_series, series_release);
    RELEASE_ALL(v->layer, v->n_layer, layer_release);
    RELEASE_ALL(v->matrix, v->n_matrices, matrix_series_release);
    RELEASE_ALL(v->event, v->n_events, runview_event_release);
    RELEASE_ALL(v->eval, v->n_evals, eval_release);
    RELEASE_ALL(v->sample, v->n_samples, sample_release);
    runview_config_release(v);
    runview_metas_release(x);
    map_release(&x->series);
    map_release(&x->layer);
    mem_free(v->always_on);
    mem_free(v->system);
    mem_free(v->ranks.rank);
    mem_free(x->of_point);
    runview_head_release(v);
    struct runview kept = {.path = v->path,
                           .name = v->name,
                           .reader = v->reader,
                           .skew = v->skew,
                           .is_copy = v->is_copy,
                           .index = x,
                           .generation = v->generation + 1,
                           .life = atomic_fetch_add(&lives, 1) + 1};
    *v = kept;
    *x = (struct runview_index){
        .tokens_step = -1, .lock_asked = -1, .opened = x->opened, .is_directory = x->is_directory};
    runview_head_clear(v);
}
