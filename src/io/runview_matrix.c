/* Matrices of a run view: a series per name, bounded in memory, and the collapse of experts. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "io/experts.h"
#include "io/runview_parts.h"

enum { LAYERS_MAX = 4096, POINT_OVERHEAD = 64 };

static size_t point_bytes(const struct matrix_series *s)
{
    return (size_t)s->rows * (size_t)s->cols * sizeof(float) + POINT_OVERHEAD;
}

void matrix_series_release(struct matrix_series *s)
{
    for (size_t i = 0; i < s->n; i++)
        mem_free(s->point[i].v);
    mem_free(s->point);
    mem_free(s->name);
    mem_free(s->layer);
    mem_free(s->collapsed);
}

static struct matrix_series *find(const struct runview *v, const char *name)
{
    for (size_t i = 0; i < v->n_matrices; i++)
        if (strcmp(v->matrix[i].name, name) == 0)
            return &v->matrix[i];
    return NULL;
}

const struct matrix_series *runview_matrix(const struct runview *v, const char *name)
{
    return find(v, name);
}

/* ---- steps that go back ---- */

static void supersede(struct matrix_series *s, int64_t step)
{
    int was = 0;
    for (size_t i = s->n; i-- > 0 && (s->point[i].is_old || s->point[i].step > step);) {
        was |= !s->point[i].is_old;
        s->point[i].is_old = 1;
    }
    if (was) /* a layer that is still collapsed is reported again */
        memset(s->collapsed, 0, (size_t)s->rows);
}

void matrices_supersede(struct runview *v, int64_t step)
{
    for (size_t i = 0; i < v->n_matrices; i++)
        supersede(&v->matrix[i], step);
}

/* ---- thinning ---- */

/* Drops every second point of the older half, so that the series keeps its whole length. */
static void thin(struct runview *v, struct matrix_series *s)
{
    size_t kept = 0, half = s->n / 2;
    for (size_t i = 0; i < s->n; i++) {
        if (s->n == 2 ? i == 0 : i < half && i % 2 == 1) {
            mem_free(s->point[i].v);
            v->index->matrix_bytes -= point_bytes(s);
            v->matrices_thinned++;
        } else {
            s->point[kept++] = s->point[i];
        }
    }
    s->n = kept;
}

static struct matrix_series *largest(struct runview *v)
{
    struct matrix_series *most = NULL;
    for (size_t i = 0; i < v->n_matrices; i++) {
        struct matrix_series *s = &v->matrix[i];
        if (s->n > 1 && (!most || s->n * point_bytes(s) > most->n * point_bytes(most)))
            most = s;
    }
    return most;
}

static void thin_all(struct runview *v, struct matrix_series *grown)
{
    if (grown->n > RUNVIEW_MATRIX_POINTS)
        thin(v, grown);
    for (struct matrix_series *s;
         v->index->matrix_bytes > RUNVIEW_MATRIX_BYTES && (s = largest(v)) != NULL;)
        thin(v, s);
}

/* ---- collapse of experts ---- */

/* Appends "; layer 3: expert 17 takes 96 % of the tokens", at most LISTED of them. */
struct report {
    char text[480];
    size_t len;
    int n;
};

static void report_add(struct report *r, int layer, const char *word, int expert, double share)
{
    enum { LISTED = 6 };
    if (r->n++ < LISTED)
        r->len += (size_t)snprintf(r->text + r->len, sizeof r->text - r->len,
                                   "%slayer %d: %s %d takes %.0f %% of the tokens",
                                   r->n > 1 ? "; " : "", layer, word, expert, 100 * share);
}

static void report_end(struct runview *v, const struct report *r, const struct record_common *c,
                       int level, const char *name)
{
    char text[sizeof r->text + 32];
    int listed = 0;
    for (const char *at = r->text; *at; at++)
        listed += strncmp(at, "layer ", 6) == 0;
    if (r->n == 0)
        return;
    snprintf(text, sizeof text, r->n > listed ? "%s; and %d more layers" : "%s", r->text,
             r->n - listed);
    runview_event_add(v, c->step, c->time, level, name, text);
}

/* One event for all layers of a record, so that the collapse of a deep model hides no other. */
static void watch_collapse(struct runview *v, struct matrix_series *s, const float *count,
                           const struct record_common *c)
{
    struct report begun = {.n = 0}, ended = {.n = 0};
    int per_token = experts_per_token(v);
    for (int i = 0; i < s->rows; i++) {
        int expert;
        double share;
        int now = experts_collapsed(count + (size_t)i * (size_t)s->cols, s->cols, per_token,
                                    &expert, &share);
        if (now < 0 || now == s->collapsed[i])
            continue;
        s->collapsed[i] = (unsigned char)now;
        report_add(now ? &begun : &ended, s->layer[i],
                   expert_word(expert, s->cols, v->experts_noop), expert, share);
    }
    report_end(v, &begun, c, LOG_WARN, "expert_collapse");
    report_end(v, &ended, c, LOG_INFO, "expert_recovery");
}

/* ---- records ---- */

/* The rows' layers of a body: 1, or 0 when they are malformed. */
static int rows_layers(int32_t *layer, int rows, struct value v)
{
    if (value_kind(v) <= VALUE_NIL) {
        for (int i = 0; i < rows; i++)
            layer[i] = i;
        return 1;
    }
    if (value_i32s(v, NULL, 0) != rows || value_i32s(v, layer, (size_t)rows) != rows)
        return 0;
    for (int i = 0; i < rows; i++)
        if (layer[i] < 0 || layer[i] >= LAYERS_MAX)
            return 0;
    return 1;
}

/* The series of a name, with the shape and layers of its first record; takes `layer`. */
static struct matrix_series *series_of(struct runview *v, const char *name, int rows, int cols,
                                       int32_t *layer)
{
    void *p = v->matrix;
    struct matrix_series *s = find(v, name);
    if (s) {
        int is_same = s->rows == rows && s->cols == cols &&
                      memcmp(s->layer, layer, (size_t)rows * sizeof *layer) == 0;
        mem_free(layer);
        v->invalid += !is_same;
        return is_same ? s : NULL;
    }
    struct matrix_series new = {.name = mem_strdup(name),
                                .rows = rows,
                                .cols = cols,
                                .layer = layer,
                                .collapsed = mem_alloc((size_t)rows, 1)};
    if (v->n_matrices == RUNVIEW_MATRICES) {
        v->others++;
    } else if (!new.name || !new.collapsed) {
        runview_no_memory(v);
    } else if (runview_room(v, &p, &v->index->matrix_cap, v->n_matrices, sizeof *v->matrix)) {
        v->matrix = p;
        v->matrix[v->n_matrices] = new;
        return &v->matrix[v->n_matrices++];
    }
    matrix_series_release(&new);
    return NULL;
}

void runview_take_matrix(struct runview *v, struct value body, const struct record_common *c)
{
    char name[64];
    int64_t rows = value_int(value_get(body, "rows"), 0),
            cols = value_int(value_get(body, "cols"), 0);
    struct value value = value_get(body, "value");
    if (!name_copy(name, value_get(body, "name")) || rows < 1 || rows > RUNVIEW_MATRIX_SIDE ||
        cols < 1 || cols > RUNVIEW_MATRIX_SIDE || rows * cols > RUNVIEW_MATRIX_VALUES ||
        value_f32s(value, NULL, 0) != rows * cols) {
        v->invalid++;
        return;
    }
    int32_t *layer = mem_alloc((size_t)rows, sizeof *layer);
    float *values = mem_alloc((size_t)(rows * cols), sizeof *values);
    struct matrix_series *s = NULL;
    void *p;
    if (!layer || !values) {
        runview_no_memory(v);
        goto out;
    }
    if (!rows_layers(layer, (int)rows, value_get(body, "layer")) ||
        value_f32s(value, values, (size_t)(rows * cols)) != rows * cols) {
        v->invalid++;
        goto out;
    }
    s = series_of(v, name, (int)rows, (int)cols, layer);
    layer = NULL;
    if (!s)
        goto out;
    p = s->point;
    if (!runview_room(v, &p, &s->cap, s->n, sizeof *s->point))
        goto out;
    s->point = p;
    supersede(s, c->step - 1); /* a second record of a step replaces the first */
    s->point[s->n++] = (struct matrix_point){.step = c->step, .v = values};
    v->index->matrix_bytes += point_bytes(s);
    if (strcmp(name, "expert_load") == 0)
        watch_collapse(v, s, values, c);
    values = NULL;
    thin_all(v, s);
out:
    mem_free(layer);
    mem_free(values);
}
