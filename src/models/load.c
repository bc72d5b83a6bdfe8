#include "models/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/checkpoint.h"
#include "io/safetensors.h"
#include "load_file.h"

static int read_tensor(const struct st_tensor *t, real *out, uint64_t n, struct err *e)
{
#if REAL_BITS == 64
    return st_read_f64(t, out, n, e);
#else
    return st_read_f32(t, out, n, e);
#endif
}

static int shape_fits(const struct param *p, const struct st_tensor *t)
{
    return t->rank == p->rank && t->shape[0] == (uint64_t)p->shape[0] &&
           (p->rank < 2 || t->shape[1] == (uint64_t)p->shape[1]);
}

static int shape_error(const struct param *p, const struct st_tensor *t, const char *path,
                       struct err *e)
{
    struct str have = {0};
    for (int i = 0; i < t->rank; i++)
        str_addf(&have, "%s%llu", i ? "," : "", (unsigned long long)t->shape[i]);
    err_set(e, DS_EFORMAT, "%s: tensor %s is [%s], the model's configuration says [%d%s%.0d]", path,
            p->name, str_text(&have), p->shape[0], p->rank > 1 ? "," : "",
            p->rank > 1 ? p->shape[1] : 0);
    str_release(&have);
    return DS_EFORMAT;
}

static int read_param(struct st *s, const char *path, const struct param *p, const char *suffix,
                      real *out, struct err *e)
{
    char name[128];
    snprintf(name, sizeof name, "%s%s", p->name, suffix);
    const struct st_tensor *t = st_find(s, name);
    if (!t && strcmp(p->name, "model.embed_tokens.weight") == 0)
        t = st_find(s, "lm_head.weight"); /* a tied matrix may be stored under either name */
    if (!t)
        return err_set(e, DS_EFORMAT, "%s: tensor %s is missing", path, name);
    if (!shape_fits(p, t))
        return shape_error(p, t, path, e);
    uint64_t bad = st_nonfinite(t);
    if (bad > 0)
        log_warn("%s: tensor %s holds %llu values that are not finite", path, name,
                 (unsigned long long)bad);
    int rc = read_tensor(t, out, p->n, e);
    return rc < 0 ? err_add(e, rc, "%s: tensor %s", path, name) : 0;
}

static int check_unused(const struct model *m, const struct st *s, const char *path, struct err *e)
{
    for (size_t i = 0; i < st_count(s); i++) {
        const char *name = st_at(s, i)->name;
        int is_head = strcmp(name, "lm_head.weight") == 0 && m->head < 0;
        if (params_find(&m->params, name) < 0 && !is_head)
            return err_set(e, DS_EFORMAT, "%s: tensor %s has no place in this model (method %s)",
                           path, name, m->config.method);
    }
    return 0;
}

int model_read_weights(struct model *m, const char *path, int optimizer, struct err *e)
{
    struct st *s = NULL;
    int rc = st_open(&s, path, e);
    if (rc < 0)
        return rc;
    for (int i = 0; i < m->params.n && rc == 0; i++) {
        struct param *p = &m->params.p[i];
        BUG_IF(!p->value, "%s: its values were given back", p->name);
        if (!optimizer) {
            rc = read_param(s, path, p, "", p->value, e);
        } else if (p->train) {
            rc = read_param(s, path, p, ".m", p->m, e);
            if (rc == 0)
                rc = read_param(s, path, p, ".v", p->v, e);
        }
    }
    if (rc == 0 && !optimizer)
        rc = check_unused(m, s, path, e);
    params_changed(&m->params);
    st_close(s);
    return rc;
}

/* ---- weights to start from ---- */

enum { NAMES_SHOWN = 4 };

/* Counts in words: "2 new (a, b)". */
struct named {
    int n;
    struct str names;
};

static void name_one(struct named *x, const char *name)
{
    if (x->n++ < NAMES_SHOWN)
        str_addf(&x->names, "%s%s", x->names.len ? ", " : "", name);
}

static const char *more(const struct named *x)
{
    return x->n > NAMES_SHOWN ? ", ..." : "";
}

static void tell_names(struct str *out, const struct named *x, const char *what)
{
    if (x->n > 0)
        str_addf(out, ", %d %s (%s%s)", x->n, what, str_text(&x->names), more(x));
}

/* A parameter of some method, or of an adapter: the model it starts may be without. */
static int is_extra(const char *name)
{
    if (strstr(name, ".lora_"))
        return 1;
    for (const struct route_ops *const *r = route_all(); *r; r++) {
        size_t n = strlen((*r)->name);
        if (strncmp(name, (*r)->name, n) == 0 && name[n] == '.')
            return 1;
    }
    return 0;
}

/* What the file has and the model takes not: extras are left behind, anything else is an error. */
static int name_left(const struct model *m, const struct st *s, const char *path,
                     struct named *left, struct err *e)
{
    struct named stray = {0};
    int rc = 0;
    for (size_t i = 0; i < st_count(s); i++) {
        const struct st_tensor *t = st_at(s, i);
        int at = params_find(&m->params, t->name);
        if (at >= 0 ? shape_fits(&m->params.p[at], t)
                    : m->head < 0 && strcmp(t->name, "lm_head.weight") == 0)
            continue;
        name_one(is_extra(t->name) ? left : &stray, t->name);
    }
    if (stray.n > 0)
        rc = err_set(e, DS_EFORMAT, "%s: %d tensors have no place in this model: %s%s", path,
                     stray.n, str_text(&stray.names), more(&stray));
    str_release(&stray.names);
    return rc;
}

static int name_missing(const struct model *m, struct st *s, const char *path, struct err *e)
{
    struct named missing = {0};
    int rc = 0;
    for (int i = 0; i < m->n_base; i++) {
        const char *name = m->params.p[i].name;
        if (!st_find(s, name) && !(i == m->embed && st_find(s, "lm_head.weight")))
            name_one(&missing, name);
    }
    if (missing.n > 0)
        rc = err_set(e, DS_EFORMAT, "%s: %d tensors of the base model are missing: %s%s", path,
                     missing.n, str_text(&missing.names), more(&missing));
    str_release(&missing.names);
    return rc;
}

int model_start_from(struct model *m, const char *dir, struct str *told, struct err *e)
{
    char path[1100];
    struct st *s = NULL;
    struct named fresh = {0}, left = {0};
    int taken = 0, rc = fs_join(path, sizeof path, dir, "model.safetensors", e);
    if (rc == 0)
        rc = st_open(&s, path, e);
    if (rc < 0)
        return rc;
    rc = name_missing(m, s, path, e);
    for (int i = 0; i < m->params.n && rc == 0; i++) {
        struct param *p = &m->params.p[i];
        const struct st_tensor *t = st_find(s, p->name);
        if (i >= m->n_base && !(t && shape_fits(p, t))) {
            name_one(&fresh, p->name);
            continue;
        }
        rc = read_param(s, path, p, "", p->value, e);
        taken++;
    }
    if (rc == 0)
        rc = name_left(m, s, path, &left, e);
    params_changed(&m->params);
    str_addf(told, "%d tensors from %s", taken, dir);
    tell_names(told, &fresh, "new");
    tell_names(told, &left, "left behind");
    str_release(&fresh.names);
    str_release(&left.names);
    st_close(s);
    return rc;
}

static struct st_out tensor_of(const struct param *p, const char *name, const real *data)
{
    struct st_out t = {
        .name = name, .dtype = REAL_BITS == 64 ? ST_F64 : ST_F32, .rank = p->rank, .data = data};
    t.shape[0] = (uint64_t)p->shape[0];
    t.shape[1] = p->rank > 1 ? (uint64_t)p->shape[1] : 0;
    return t;
}

int model_write_weights(const struct model *m, const char *path, int optimizer, struct err *e)
{
    static const char *const meta[] = {"format", "pt"};
    size_t n = 0, cap = 2 * (size_t)m->params.n;
    struct st_out *t = mem_alloc(cap, sizeof *t);
    char(*names)[128] = mem_alloc(cap, sizeof *names);
    int rc = t && names ? 0 : err_set(e, DS_EMEM, "%s", path);
    for (int i = 0; i < m->params.n && rc == 0; i++) {
        const struct param *p = &m->params.p[i];
        if (!optimizer) {
            t[n++] = tensor_of(p, p->name, p->value);
        } else if (p->train) {
            snprintf(names[n], sizeof names[n], "%s.m", p->name);
            t[n] = tensor_of(p, names[n], p->m);
            n++;
            snprintf(names[n], sizeof names[n], "%s.v", p->name);
            t[n] = tensor_of(p, names[n], p->v);
            n++;
        }
    }
    if (rc == 0)
        rc = st_write(path, t, n, meta, 1, e);
    mem_free(t);
    mem_free(names);
    return rc;
}

int model_write_config(const struct model *m, const char *path, struct err *e)
{
    struct config options = {0};
    struct str text = {0};
    char prefix[40], value[256], key[128];
    struct opt_group g = route_group(m->route.ops, prefix);
    int rc = 0;
    for (size_t i = 0; i < g.n && rc == 0; i++) {
        snprintf(key, sizeof key, "%s%s", prefix, g.opts[i].key);
        opt_print(&g.opts[i], m->route.opts, value, sizeof value);
        rc = config_set(&options, key, value, path, e);
    }
    snprintf(value, sizeof value, "%llu", (unsigned long long)m->route.seed);
    if (rc == 0) /* routing by lot draws the same cells wherever the model is used */
        rc = config_set(&options, "seed", value, path, e);
    if (rc == 0) {
        model_config_to_json(&text, &m->config, &options);
        rc = text.failed ? err_set(e, DS_EMEM, "%s", path)
                         : fs_write_file(path, text.p, text.len, e);
    }
    str_release(&text);
    config_release(&options);
    return rc;
}

/* The checkpoint that best.json names, when it is there and whole. */
static int best_of_run(const char *root, char *dir, size_t size)
{
    char path[1024], name[32];
    struct json *j = NULL;
    if (fs_join(path, sizeof path, root, "best.json", NULL) < 0 ||
        json_read_file(&j, path, 1 << 16, NULL) < 0)
        return 0;
    snprintf(name, sizeof name, "step-%08lld",
             (long long)json_int(json_get(json_root(j), "step"), -1));
    json_free(j);
    return fs_join(path, sizeof path, root, "checkpoints", NULL) == 0 &&
           fs_join(dir, size, path, name, NULL) == 0 && fs_is_dir(dir) &&
           checkpoint_verify(dir, NULL) == 0;
}

int model_locate(const char *model, char *dir, size_t size, struct err *e)
{
    char path[1024], root[1024];
    const char *runs = getenv("DEPTHSCOPE_RUNS");
    const char *where[] = {"", runs ? runs : "runs"};
    if (model_is_file(model) && !str_copy(dir, size, model))
        return 0;
    for (size_t i = 0; i < DS_LEN(where); i++) {
        if (i > 0 && !fs_name_ok(model))
            break;
        if (i > 0 ? fs_join(root, sizeof root, where[i], model, e) < 0
                  : str_copy(root, sizeof root, model))
            break;
        if (fs_join(path, sizeof path, root, "config.json", e) == 0 && fs_exists(path))
            return str_copy(dir, size, root)
                       ? err_set(e, DS_ERANGE, "%s: the path is too long", root)
                       : 0;
        if (fs_join(path, sizeof path, root, "checkpoints", e) == 0 && fs_is_dir(path)) {
            int64_t step;
            checkpoint_recover(path);
            if (best_of_run(root, dir, size))
                return 0;
            return checkpoint_latest(path, dir, size, &step, e);
        }
    }
    return err_set(
        e, DS_ENOTFOUND,
        "%s: no such model: neither a directory with config.json nor a run with checkpoints "
        "(looked in . and %s)",
        model, where[1]);
}

int model_open(struct model **out, const char *dir, struct config *overrides, int train,
               struct err *e)
{
    struct model_config c;
    struct config options = {0};
    struct model *m = NULL;
    char path[1024];
    if (model_is_file(dir))
        return model_open_file(out, dir, overrides, train, e);
    int rc = fs_join(path, sizeof path, dir, "config.json", e);
    if (rc == 0)
        rc = model_config_from_json(&c, &options, path, e);
    if (rc < 0)
        goto out;
    const char *seed_text = config_get(&options, "seed");
    uint64_t seed = seed_text ? strtoull(seed_text, NULL, 10) : 0;
    config_remove(&options, "seed");
    if (overrides)
        rc = config_merge(&options, overrides, e);
    if (rc == 0)
        rc = model_new(&m, &c, &options, seed, train, e);
    opt_release(&model_group, &c); /* empty when it was taken */
    if (rc == 0)
        rc = fs_join(path, sizeof path, dir, "model.safetensors", e);
    if (rc == 0)
        rc = model_read_weights(m, path, 0, e);
    if (rc == 0)
        *out = m;
    else
        model_free(m);
out:
    config_release(&options);
    return rc;
}
