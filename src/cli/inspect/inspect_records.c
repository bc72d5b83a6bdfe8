/* depthscope inspect RUN, FILE.mp: records. */
#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "cli/inspect/inspect.h"
#include "io/run_state.h"
#include "io/runlog.h"
#include "io/runview.h"

enum { KINDS_MAX = 16 };

struct kinds {
    char name[KINDS_MAX][24];
    size_t count[KINDS_MAX], n, others;
    uint64_t gaps, lost, repeats;
};

static void count_kind(struct kinds *k, struct value body)
{
    size_t len, i;
    char name[24] = "?";
    const char *p = value_bytes(value_get(body, "kind"), &len);
    if (p && len < sizeof name && utf8_valid(p, len) == len) {
        memcpy(name, p, len);
        name[len] = '\0';
    }
    for (i = 0; i < k->n && strcmp(k->name[i], name) != 0; i++) {
    }
    if (i == k->n && k->n == KINDS_MAX) {
        k->others++;
        return;
    }
    if (i == k->n)
        str_copy(k->name[k->n++], sizeof k->name[0], name);
    k->count[i]++;
}

static int count_records(struct kinds *k, const char *path, struct err *e)
{
    struct runlog_reader *r = NULL;
    struct runlog_entry entry;
    int rc = runlog_reader_open(&r, path, e);
    if (rc < 0)
        return rc;
    while ((rc = runlog_next(r, &entry, e)) == 1) {
        k->lost += entry.lost;
        k->repeats += (uint64_t)entry.is_repeat;
        if (entry.is_gap)
            k->gaps++;
        else
            count_kind(k, entry.body);
    }
    runlog_reader_close(r);
    return rc;
}

/* ---- text ---- */

/* Text of a log after its word, where it is known. */
static void add_known(struct str *out, const char *word, const char *text)
{
    if (!text || !text[0])
        return;
    str_add(out, word);
    inspect_safe(out, text);
}

static void add_head(struct str *out, const struct runview *v)
{
    char params[16], source[512];
    const char *foreign = runview_foreign(v);
    str_add(out, "run ");
    inspect_safe(out, v->name);
    add_known(out, ", method ", v->method);
    if (v->layers > 0)
        str_addf(out, ", %d layer%s", v->layers, v->layers == 1 ? "" : "s");
    if (v->params > 0)
        str_addf(out, ", %s parameters", str_si(params, (double)v->params));
    str_addf(out, ", step %lld", (long long)v->step);
    if (v->steps_planned > 0)
        str_addf(out, " of %lld", (long long)v->steps_planned);
    if (v->has_seed)
        str_addf(out, ", seed %llu", (unsigned long long)v->seed);
    str_addf(out, ", %s", run_state_name(v->state));
    add_known(out, "; written by version ", v->version);
    add_known(out, v->version[0] ? " on " : "; host ", v->host);
    add_known(out, "; ", foreign);
    add_known(out, "; ", runview_source(v, source, sizeof source));
    str_add(out, "\n");
}

/* What of another program's log is not shown, each only where there is some. */
static void add_skipped(struct str *out, const struct runview *v)
{
    const char *between = "skipped: ";
    if (v->invalid) {
        str_addf(out, "%s%llu entr%s that could not be read", between,
                 (unsigned long long)v->invalid, v->invalid == 1 ? "y" : "ies");
        between = ", ";
    }
    if (v->others) {
        str_addf(out, "%s%llu value%s of metrics beyond the first %zu", between,
                 (unsigned long long)v->others, v->others == 1 ? "" : "s", v->n_series);
        between = ", ";
    }
    if (v->tail)
        str_addf(out, "%s%llu byte%s of an unfinished end", between, (unsigned long long)v->tail,
                 v->tail == 1 ? "" : "s");
    str_add(out, "\n");
}

/* "-": none is finite */
static void add_number(struct table *t, double x)
{
    if (isfinite(x))
        table_addf(t, "%.5g", x);
    else
        table_add(t, "-");
}

static void add_series(struct str *out, const struct runview *v)
{
    struct table t;
    table_init(&t, 6);
    for (size_t i = 0; i < v->n_series; i++) {
        const struct series *s = &v->series[i];
        struct series_span x = series_range(s, 0, s->n);
        if (i == 0) {
            static const char *const title[] = {"metric", "points", "min",
                                                "max",    "last",   "not finite"};
            for (size_t k = 0; k < DS_LEN(title); k++)
                table_add(&t, title[k]);
        }
        table_add(&t, s->name);
        table_addf(&t, "%zu", s->n);
        add_number(&t, x.min);
        add_number(&t, x.max);
        add_number(&t, x.last);
        table_addf(&t, "%zu", x.nonfinite);
    }
    table_print(&t, out);
    table_release(&t);
}

static void add_evals(struct str *out, const struct runview *v)
{
    for (size_t i = 0; i < v->n_evals; i++) {
        if (i + 3 < v->n_evals)
            continue; /* the newest three */
        str_add(out, "evaluation ");
        inspect_safe(out, v->eval[i].task);
        str_addf(out, " at step %lld:", (long long)v->eval[i].step);
        for (int k = 0; k < v->eval[i].values; k++)
            if (v->eval[i].value[k].n == 1) {
                str_add(out, " ");
                inspect_safe(out, v->eval[i].value[k].name);
                str_addf(out, "=%.4g", (double)v->eval[i].value[k].v[0]);
            }
        str_add(out, "\n");
    }
}

static void add_rest(struct str *out, const struct runview *v)
{
    for (size_t i = 0; i < v->n_layer; i++) {
        str_add(out, i ? ", " : "per layer: ");
        inspect_safe(out, v->layer[i].name);
        str_addf(out, " (%zu)", v->layer[i].n);
    }
    str_add(out, v->n_layer ? "\n" : "");
    for (size_t i = 0; i < v->n_matrices; i++) {
        str_add(out, i ? ", " : "matrices: ");
        inspect_safe(out, v->matrix[i].name);
        str_addf(out, " %d x %d (%zu)", v->matrix[i].rows, v->matrix[i].cols, v->matrix[i].n);
    }
    str_add(out, v->n_matrices ? "\n" : "");
    const struct probe *p = runview_probe(v, -1);
    if (p) {
        str_addf(out, "newest probe: ");
        inspect_safe(out, p->name);
        str_addf(out, " at step %lld, %d layers x %d tokens%s%s; cells:", (long long)p->step,
                 p->layers, p->tokens, *probe_caveat(p) ? "; " : "", probe_caveat(p));
        for (int i = 0; i < p->cells; i++) {
            str_add(out, " ");
            inspect_safe(out, p->cell[i].name);
            str_add(out, p->cell[i].is_category ? " (category)" : "");
        }
        str_add(out, "\n");
    }
    add_evals(out, v);
}

static void print_text(struct str *out, const struct runview *v, const struct kinds *k)
{
    add_head(out, v);
    str_addf(out, "%llu bytes:", (unsigned long long)v->bytes);
    for (size_t i = 0; i < k->n; i++) {
        str_addf(out, "%s %zu ", i ? "," : "", k->count[i]);
        inspect_safe(out, k->name[i]);
    }
    if (k->others)
        str_addf(out, ", %zu of unknown kinds", k->others);
    str_add(out, "\n");
    if (runview_foreign(v) && (v->tail || v->invalid || v->others))
        add_skipped(out, v);
    else if (k->gaps || k->lost || k->repeats || v->tail || v->invalid)
        str_addf(out,
                 "corrupt: %llu gap%s, %llu record%s lost, %llu repeated, %llu fields of the "
                 "wrong type, %llu bytes of an incomplete record at the end\n",
                 (unsigned long long)k->gaps, k->gaps == 1 ? "" : "s", (unsigned long long)k->lost,
                 k->lost == 1 ? "" : "s", (unsigned long long)k->repeats,
                 (unsigned long long)v->invalid, (unsigned long long)v->tail);
    add_series(out, v);
    add_rest(out, v);
}

/* ---- JSON ---- */

static void json_series(struct str *out, const struct runview *v)
{
    json_key(out, "series");
    str_add(out, "[");
    for (size_t i = 0; i < v->n_series; i++) {
        const struct series *s = &v->series[i];
        struct series_span x = series_range(s, 0, s->n);
        json_key(out, NULL);
        str_add(out, "{");
        json_add_str(out, "name", s->name);
        json_add_int(out, "points", (int64_t)s->n);
        json_add_num(out, "min", x.min);
        json_add_num(out, "max", x.max);
        json_add_num(out, "last", x.last);
        json_add_int(out, "nonfinite", (int64_t)x.nonfinite);
        str_add(out, "}");
    }
    str_add(out, "]");
}

static void json_matrices(struct str *out, const struct runview *v)
{
    json_key(out, "matrices");
    str_add(out, "[");
    for (size_t i = 0; i < v->n_matrices; i++) {
        const struct matrix_series *s = &v->matrix[i];
        json_key(out, NULL);
        str_add(out, "{");
        json_add_str(out, "name", s->name);
        json_add_int(out, "rows", s->rows);
        json_add_int(out, "cols", s->cols);
        json_add_int(out, "points", (int64_t)s->n);
        json_add_int(out, "last_step", s->n ? s->point[s->n - 1].step : -1);
        str_add(out, "}");
    }
    str_add(out, "]");
}

static void json_evals(struct str *out, const struct runview *v)
{
    json_key(out, "evaluations");
    str_add(out, "[");
    for (size_t i = 0; i < v->n_evals; i++) {
        json_key(out, NULL);
        str_add(out, "{");
        json_add_str(out, "task", v->eval[i].task ? v->eval[i].task : "");
        json_add_int(out, "step", v->eval[i].step);
        json_key(out, "values");
        str_add(out, "{");
        for (int k = 0; k < v->eval[i].values; k++)
            if (v->eval[i].value[k].n == 1)
                json_add_num(out, v->eval[i].value[k].name, (double)v->eval[i].value[k].v[0]);
        str_add(out, "}}");
    }
    str_add(out, "]");
}

static void print_json(struct str *out, const struct runview *v, const struct kinds *k)
{
    static const char *const key[] = {"format", "host", "framework", "gpu", "project", "writer"};
    const char *text[] = {runview_foreign(v), v->host, v->framework, v->gpu, v->project, v->writer};
    json_add_str(out, "run", v->name ? v->name : "");
    json_add_str(out, "method", v->method ? v->method : "");
    json_add_int(out, "layers", v->layers);
    json_add_int(out, "params", v->params);
    json_add_int(out, "step", v->step);
    json_add_int(out, "steps", v->steps_planned);
    if (v->has_seed)
        json_add_int(out, "seed", (int64_t)v->seed);
    json_add_str(out, "state", run_state_name(v->state));
    json_add_str(out, "version", v->version ? v->version : "");
    for (size_t i = 0; i < DS_LEN(key); i++) /* what was logged */
        if (text[i] && text[i][0])
            json_add_str(out, key[i], text[i]);
    if (v->world_size > 0)
        json_add_int(out, "world_size", v->world_size);
    json_add_int(out, "bytes", (int64_t)v->bytes);
    json_key(out, "records");
    str_add(out, "{");
    for (size_t i = 0; i < k->n; i++)
        json_add_int(out, k->name[i], (int64_t)k->count[i]);
    str_add(out, "}");
    json_key(out, "damage");
    str_add(out, "{");
    json_add_int(out, "gaps", (int64_t)k->gaps);
    json_add_int(out, "lost", (int64_t)k->lost);
    json_add_int(out, "repeated", (int64_t)k->repeats);
    json_add_int(out, "invalid", (int64_t)v->invalid);
    json_add_int(out, "tail", (int64_t)v->tail);
    str_add(out, "}");
    json_series(out, v);
    json_matrices(out, v);
    json_evals(out, v);
}

int inspect_records(const char *path, struct inspect *x, struct err *e)
{
    struct runview *v = NULL;
    struct kinds k = {0};
    int rc = runview_read(&v, path, e);
    if (rc == 0 && runlog_reader_fd(v->reader) >= 0)
        rc = err_set(e, DS_EUSAGE, "%s: is a pipe, expected a file or directory", path);
    if (rc == 0)
        rc = count_records(&k, v->path, e);
    if (rc == 0 && x->json) {
        inspect_begin(x, "records", path);
        print_json(x->out, v, &k);
        str_add(x->out, "}");
    } else if (rc == 0) {
        print_text(x->out, v, &k);
    }
    runview_free(v);
    return rc;
}
