/* depthscope inspect FILE|DIR: what is in it. */
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "cli/inspect.h"
#include "data/tokenizer.h"
#include "figures/png_chunks.h"
#include "io/checkpoint.h"
#include "io/runlog.h"
#include "io/runview.h"
#include "io/safetensors.h"
#include "models/load.h"

static struct cli_option options[] = {{.name = NULL}};
enum { FIGURE_MAX = 256 << 20, KINDS_MAX = 16, TENSORS_SHOWN = 400 };

static void safe(struct str *out, const char *text)
{
    cli_add_safe(out, text ? text : "", text ? strlen(text) : 0, 200);
}

/* ---- record files ---- */

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
    if (p && len < sizeof name) {
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

static void add_head(struct str *out, const struct runview *v)
{
    static const char *const state[] = {"unknown", "live",    "paused", "stalled",
                                        "done",    "stopped", "failed"};
    char params[16];
    str_add(out, "run ");
    safe(out, v->name);
    str_add(out, ", method ");
    safe(out, v->method && v->method[0] ? v->method : "?");
    str_addf(out, ", %d layers, %s parameters, step %lld", v->layers,
             str_si(params, (double)v->params), (long long)v->step);
    if (v->steps_planned > 0)
        str_addf(out, " of %lld", (long long)v->steps_planned);
    str_addf(out, ", seed %llu, %s; written by version ", (unsigned long long)v->seed,
             state[v->state]);
    safe(out, v->version && v->version[0] ? v->version : "?");
    str_add(out, v->host && v->host[0] ? " on " : "");
    safe(out, v->host);
    str_add(out, "\n");
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
        table_addf(&t, "%.5g", x.min);
        table_addf(&t, "%.5g", x.max);
        table_addf(&t, "%.5g", x.last);
        table_addf(&t, "%zu", x.nonfinite);
    }
    table_print(&t, out);
    table_release(&t);
}

static void add_rest(struct str *out, const struct runview *v)
{
    for (size_t i = 0; i < v->n_layer; i++) {
        str_add(out, i ? ", " : "per layer: ");
        safe(out, v->layer[i].name);
        str_addf(out, " (%zu)", v->layer[i].n);
    }
    str_add(out, v->n_layer ? "\n" : "");
    const struct probe *p = runview_probe(v, -1);
    if (p) {
        str_addf(out, "newest probe: ");
        safe(out, p->name);
        str_addf(out, " at step %lld, %d layers x %d tokens; cells:", (long long)p->step, p->layers,
                 p->tokens);
        for (int i = 0; i < p->cells; i++) {
            str_add(out, " ");
            safe(out, p->cell[i].name);
        }
        str_add(out, "\n");
    }
    for (size_t i = 0; i < v->n_evals; i++) {
        if (i + 3 < v->n_evals)
            continue; /* the newest three */
        str_add(out, "evaluation ");
        safe(out, v->eval[i].task);
        str_addf(out, " at step %lld:", (long long)v->eval[i].step);
        for (int k = 0; k < v->eval[i].values; k++)
            if (v->eval[i].value[k].n == 1) {
                str_add(out, " ");
                safe(out, v->eval[i].value[k].name);
                str_addf(out, "=%.4g", (double)v->eval[i].value[k].v[0]);
            }
        str_add(out, "\n");
    }
}

static int inspect_records(const char *path, struct str *out, struct err *e)
{
    struct runview *v = NULL;
    struct kinds k = {0};
    int rc = runview_read(&v, path, e);
    if (rc == 0 && runlog_reader_fd(v->reader) >= 0)
        rc = err_set(e, DS_EUSAGE,
                     "%s: a pipe can be read only once; inspect wants a file or directory", path);
    if (rc == 0)
        rc = count_records(&k, v->path, e);
    if (rc == 0) {
        add_head(out, v);
        str_addf(out, "%llu bytes:", (unsigned long long)v->bytes);
        for (size_t i = 0; i < k.n; i++) {
            str_addf(out, "%s %zu ", i ? "," : "", k.count[i]);
            safe(out, k.name[i]);
        }
        if (k.others)
            str_addf(out, ", %zu of other kinds", k.others);
        str_add(out, "\n");
        if (k.gaps || k.lost || k.repeats || v->tail || v->invalid)
            str_addf(out,
                     "damage: %llu gaps, %llu records lost, %llu repeated, %llu fields of the "
                     "wrong type, %llu bytes of no "
                     "whole record at the end\n",
                     (unsigned long long)k.gaps, (unsigned long long)k.lost,
                     (unsigned long long)k.repeats, (unsigned long long)v->invalid,
                     (unsigned long long)v->tail);
        add_series(out, v);
        add_rest(out, v);
    }
    runview_free(v);
    return rc;
}

/* ---- weights, tokenizers, checkpoints, figures ---- */

static int inspect_tensors(const char *path, struct str *out, struct err *e)
{
    struct st *s = NULL;
    struct table t;
    uint64_t items = 0, bytes = 0, bad = 0;
    int rc = st_open(&s, path, e);
    if (rc < 0)
        return rc;
    table_init(&t, 4);
    for (size_t i = 0; i < st_count(s); i++) {
        const struct st_tensor *x = st_at(s, i);
        struct str shape = {0};
        uint64_t odd = x->dtype <= ST_BF16 ? st_nonfinite(x) : 0;
        items += x->items;
        bytes += x->bytes;
        bad += odd;
        if (i >= TENSORS_SHOWN)
            continue;
        for (int d = 0; d < x->rank; d++)
            str_addf(&shape, "%s%llu", d ? "," : "", (unsigned long long)x->shape[d]);
        table_add(&t, x->name);
        table_add(&t, x->dtype_name);
        table_addf(&t, "[%s]", str_text(&shape));
        table_add(&t, "");
        if (odd && t.n > 0)
            str_addf(&t.cell[t.n - 1], "%llu not finite", (unsigned long long)odd);
        str_release(&shape);
    }
    str_addf(out, "safetensors: %zu tensors, %llu values, %llu bytes%s\n", st_count(s),
             (unsigned long long)items, (unsigned long long)bytes, bad ? ", some not finite" : "");
    table_print(&t, out);
    if (st_count(s) > TENSORS_SHOWN)
        str_addf(out, "and %zu more\n", st_count(s) - TENSORS_SHOWN);
    table_release(&t);
    rc = st_unchanged(s, e);
    st_close(s);
    return rc;
}

static int inspect_tokenizer(const char *path, struct str *out, struct err *e)
{
    struct tokenizer *t = NULL;
    int rc = tokenizer_load(&t, path, e);
    if (rc < 0)
        return rc;
    str_addf(out, "tokenizer: %s, %d ids, end of text %d, begins with %d, hash %016llx\n",
             tokenizer_kind(t), tokenizer_vocab(t), tokenizer_eot(t), tokenizer_bos(t),
             (unsigned long long)tokenizer_hash(t));
    tokenizer_free(t);
    return 0;
}

static int inspect_model(const char *dir, struct str *out, struct err *e)
{
    struct model_config c;
    struct config route = {0};
    struct err why = {0};
    char path[1100], text[256];
    int rc = fs_join(path, sizeof path, dir, "config.json", e);
    if (rc == 0)
        rc = model_config_from_json(&c, &route, path, e);
    if (rc < 0) {
        config_release(&route);
        return rc;
    }
    if (fs_join(path, sizeof path, dir, "manifest.json", NULL) == 0 && fs_exists(path))
        str_addf(out, "checkpoint: %s\n",
                 checkpoint_verify(dir, &why) == 0 ? "every file is as its manifest says"
                                                   : why.text);
    for (size_t i = 0; i < model_group.n; i++) {
        opt_print(&model_group.opts[i], &c, text, sizeof text);
        str_addf(out, "  model.%s = ", model_group.opts[i].key);
        safe(out, text);
        str_add(out, "\n");
    }
    for (size_t i = 0; i < route.n; i++) {
        str_add(out, "  ");
        safe(out, route.entry[i].key);
        str_add(out, " = ");
        safe(out, route.entry[i].value);
        str_add(out, "\n");
    }
    opt_release(&model_group, &c);
    config_release(&route);
    if (model_coverage(dir, out, &why) < 0)
        str_addf(out, "weights: %s\n", why.text);
    if (fs_join(path, sizeof path, dir, "tokenizer.json", NULL) == 0 && fs_exists(path) &&
        inspect_tokenizer(dir, out, &why) < 0)
        str_addf(out, "tokenizer: %s\n", why.text);
    if (fs_join(path, sizeof path, dir, "model.safetensors", NULL) == 0 && fs_exists(path))
        rc = inspect_tensors(path, out, e);
    return rc;
}

static int inspect_figure(const char *path, struct str *out, struct err *e)
{
    struct str file = {0};
    struct pngfile info = {0};
    int rc = fs_read_file(&file, path, FIGURE_MAX, e);
    if (rc == 0)
        rc = pngfile_read(&info, file.p, file.len, path, e);
    if (rc == 0) {
        str_addf(out, "figure: %u x %u pixels, %.0f dpi\n", info.width, info.height,
                 (double)info.per_metre_x * 0.0254);
        if (info.recipe.len > 0) {
            str_add(out, "recipe: ");
            cli_add_safe(out, info.recipe.p, info.recipe.len, -1);
            str_add(out, "\n");
        } else {
            str_add(out, "no recipe\n");
        }
    }
    str_release(&info.recipe);
    str_release(&file);
    return rc;
}

/* ---- which of them ---- */

static int ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

static int has(const char *dir, const char *name)
{
    char path[1200];
    return fs_join(path, sizeof path, dir, name, NULL) == 0 && fs_exists(path);
}

/* The first that fits. */
static const struct {
    const char *end;
    int (*inspect)(const char *path, struct str *out, struct err *e);
} endings[] = {
    {".safetensors", inspect_tensors},
    {".pt", inspect_tensors},
    {".pth", inspect_tensors},
    {"pytorch_model.bin", inspect_tensors},
    {".gguf", inspect_gguf},
    {".png", inspect_figure},
    {"tokenizer.json", inspect_tokenizer},
    {"tokenizer.bin", inspect_tokenizer},
    {".bin", inspect_llama2c},
};

int inspect_path(const char *path, struct str *out, struct err *e)
{
    char dir[1024];
    if (fs_is_dir(path)) {
        if (has(path, "config.json"))
            return inspect_model(path, out, e);
        if (has(path, "log.mp")) {
            int rc = inspect_records(path, out, e);
            if (rc < 0 || model_locate(path, dir, sizeof dir, NULL) < 0)
                return rc;
            str_add(out, "model in use: ");
            safe(out, dir);
            str_add(out, "\n");
            return 0;
        }
        return has(path, "tokenizer.json")
                   ? inspect_tokenizer(path, out, e)
                   : err_set(e, DS_ENOTFOUND, "%s: neither a run, nor a model, nor a tokenizer",
                             path);
    }
    for (size_t i = 0; i < DS_LEN(endings); i++)
        if (ends_with(path, endings[i].end))
            return endings[i].inspect(path, out, e);
    if (ends_with(path, ".json"))
        return err_set(e, DS_EFORMAT,
                       "%s: of JSON files only tokenizer.json is looked into; name the directory "
                       "of a config.json",
                       path);
    return inspect_records(path, out, e);
}

int inspect_command(int argc, char **argv)
{
    struct err e = {0};
    struct cli_args a;
    struct str out = {0};
    char path[1024];
    const char *what;
    int rc = cli_parse(&a, options, argc, argv, &e);
    if (rc < 0)
        return command_fail(&e);
    rc = cli_one(&a, "inspect", "FILE or DIR", &what, &e);
    if (rc == 0 && a.n_override > 0)
        rc = err_set(&e, DS_EUSAGE, "inspect: there are no keys to set (%s)", a.override[0]);
    if (rc == 0 && strcmp(what, "-") == 0)
        rc = err_set(&e, DS_EUSAGE, "inspect: a file or directory is wanted, not standard input");
    if (rc == 0)
        rc = cli_run_path(path, sizeof path, what, &e);
    if (rc == 0)
        rc = inspect_path(path, &out, &e);
    cli_release(&a);
    if (rc < 0) {
        str_release(&out);
        return command_fail(&e);
    }
    return cli_print(&out);
}
