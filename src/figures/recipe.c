/* Reads the recipe of a figure: JSON in the iTXt chunk of its PNG. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "figures/figure.h"
#include "figures/png_chunks.h"

static char *text_of(const struct json_node *root, const char *key)
{
    const char *t = json_str(json_get(root, key), NULL);
    return t ? mem_strdup(t) : NULL;
}

static int take_runs(struct figure_recipe *r, const struct json_node *runs)
{
    size_t n = json_len(runs);
    if (json_kind_of(runs) != JSON_KIND_ARRAY || n < 1 || n > FIGURE_RUNS_MAX)
        return DS_EFORMAT;
    r->path = mem_alloc(n, sizeof *r->path);
    r->run = mem_alloc(n, sizeof *r->run);
    if (!r->path || !r->run)
        return DS_EMEM;
    for (size_t i = 0; i < n; i++, r->runs++) {
        r->path[i] = text_of(json_at(runs, i), "path");
        r->run[i] = text_of(json_at(runs, i), "run");
        if (!r->path[i] || !r->run[i]) {
            r->runs++;
            return DS_EFORMAT;
        }
    }
    return 0;
}

static int take(struct figure_recipe *r, const struct json_node *root)
{
    r->name = text_of(root, "figure");
    r->venue = text_of(root, "venue");
    r->theme = text_of(root, "theme");
    r->metric = text_of(root, "metric");
    r->x = text_of(root, "x");
    r->log = text_of(root, "log");
    r->range = text_of(root, "range");
    r->version = text_of(root, "version");
    r->label = text_of(root, "label");
    r->data_hash = text_of(root, "data");
    r->smooth = json_num(json_get(root, "smooth"), -1);
    r->dpi = json_num(json_get(root, "dpi"), 0);
    r->probe = (int)fmax(-1, fmin(1e6, json_num(json_get(root, "probe"), -1)));
    r->step = json_int(json_get(root, "step"), -1);
    if (!r->name || !r->venue || !r->theme || !r->data_hash)
        return DS_EFORMAT;
    return take_runs(r, json_get(root, "runs"));
}

int figure_recipe_read(struct figure_recipe *r, const void *png, size_t n, const char *what,
                       struct err *e)
{
    struct pngfile info = {0};
    struct figure_recipe got = {0};
    struct json *j = NULL;
    int rc = pngfile_read(&info, png, n, what, e);
    if (rc < 0)
        return rc;
    if (info.recipe.len == 0)
        rc = err_set(e, DS_ENOTFOUND,
                     "%s: recipe not found; expected a PNG written by depthscope figure", what);
    else
        rc = json_parse(&j, info.recipe.p, info.recipe.len, what, e);
    if (rc == 0) {
        rc = take(&got, json_root(j));
        if (rc < 0)
            err_set(e, rc, "%s: recipe: missing or corrupt members", what);
    }
    if (rc == 0)
        *r = got;
    else
        figure_recipe_release(&got);
    json_free(j);
    str_release(&info.recipe);
    return rc;
}

void figure_recipe_release(struct figure_recipe *r)
{
    for (int i = 0; i < r->runs; i++) {
        mem_free(r->path[i]);
        mem_free(r->run[i]);
    }
    mem_free(r->path);
    mem_free(r->run);
    mem_free(r->name);
    mem_free(r->venue);
    mem_free(r->theme);
    mem_free(r->metric);
    mem_free(r->x);
    mem_free(r->log);
    mem_free(r->range);
    mem_free(r->version);
    mem_free(r->label);
    mem_free(r->data_hash);
    *r = (struct figure_recipe){0};
}
