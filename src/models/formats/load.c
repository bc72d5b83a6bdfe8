/* Locates, opens and writes models in Hugging Face layout. */
#include "models/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "io/checkpoint.h"
#include "io/filekind.h"
#include "io/runconfig.h"
#include "io/safetensors.h"
#include "load_file.h"
#include "models/formats/tensor_match.h"
#include "models/peft.h"

/* Writes a tensor whose values stay in a file, row by row. */
struct row_of {
    const struct model *m;
    int i;
};

static void own_row(const void *data, uint64_t row, void *out)
{
    const struct row_of *r = data;
    model_values(r->m, r->i, (size_t)row, 1, out);
}

static struct st_out tensor_of(const struct param *p, const char *name, const real *data)
{
    struct st_out t = {
        .name = name, .dtype = REAL_BITS == 64 ? ST_F64 : ST_F32, .rank = p->rank, .data = data};
    t.shape[0] = (uint64_t)p->shape[0];
    t.shape[1] = p->rank > 1 ? (uint64_t)p->shape[1] : 0;
    return t;
}

/* A tensor in another family's layout: its parts, each one parameter.  File-backed values are read
 * whole while the tensor is written, because its rows may be our columns. */
struct foreign {
    const struct model *m;
    struct names_place place;
    int part[NAMES_PARTS];
    real *copy[NAMES_PARTS];
    struct row_of own;
};

static const real *foreign_values(struct foreign *f, int k)
{
    const struct param *p = &f->m->params.p[f->part[k]];
    if (p->value)
        return p->value;
    if (!f->copy[k]) {
        f->copy[k] = mem_reserve(p->n * sizeof(real));
        BUG_IF(!f->copy[k], "out of memory for writing %s", p->name);
        model_values(f->m, f->part[k], 0, (size_t)p->shape[0], f->copy[k]);
    }
    return f->copy[k];
}

static void foreign_free(struct foreign *f)
{
    for (int k = 0; k < NAMES_PARTS; k++) {
        mem_free_aligned(f->copy[k]);
        f->copy[k] = NULL;
    }
}

/* The part that has a row of the tensor; *row becomes the part's own. */
static int part_of(const struct foreign *f, uint64_t *row)
{
    uint64_t rows[NAMES_PARTS], left;
    for (int k = 0; k < f->place.parts; k++)
        rows[k] = (uint64_t)f->m->params.p[f->part[k]].shape[0];
    return names_part(&f->place, rows, row, &left);
}

static void foreign_done(struct foreign *f, uint64_t row)
{
    const struct param *p = &f->m->params.p[f->part[0]];
    if (row + 1 < (uint64_t)(f->place.is_transposed ? p->shape[1] : p->shape[0]))
        return;
    foreign_free(f);
}

/* Row i: in a transposed tensor input i of every output; a vector as a whole. */
static void foreign_row(const void *data, uint64_t i, void *out)
{
    struct foreign *f = (struct foreign *)(uintptr_t)data;
    real *to = out;
    if (!f->place.is_transposed && f->m->params.p[f->part[0]].rank > 1) {
        int k = part_of(f, &i);
        model_values(f->m, f->part[k], (size_t)i, 1, out);
        return;
    }
    uint64_t width =
        f->place.outputs ? f->place.outputs : (uint64_t)f->m->params.p[f->part[0]].shape[0];
    for (uint64_t at = 0, row = 0; at < width; row = ++at) {
        int k = part_of(f, &row);
        const struct param *p = &f->m->params.p[f->part[k]];
        size_t cols = p->rank > 1 ? (size_t)p->shape[1] : 1;
        *to++ = foreign_values(f, k)[row * cols + (p->rank > 1 ? (size_t)i : 0)];
    }
    foreign_done(f, i);
}

static int write_foreign(const struct model *m, const struct names *names, const char *path,
                         struct err *e)
{
    static const char *const meta[] = {"format", "pt"};
    size_t n = 0, cap = (size_t)m->params.n;
    struct st_out *t = mem_alloc(cap, sizeof *t);
    struct foreign *f = mem_alloc(cap, sizeof *f);
    int rc = t && f ? 0 : err_set(e, DS_EMEM, "%s: out of memory", path);
    for (int i = 0; i < m->params.n && rc == 0; i++) {
        const struct param *p = &m->params.p[i];
        struct names_place at;
        names_place(names, &m->config, p->name, &at);
        if (at.part > 0) { /* parts of a tensor are consecutive in the table */
            for (size_t k = n; k-- > 0;)
                if (strcmp(f[k].place.name, at.name) == 0) {
                    f[k].part[at.part] = i;
                    break;
                }
            continue;
        }
        f[n] = (struct foreign){.m = m, .place = at, .part = {i}};
        t[n] = tensor_of(p, f[n].place.name, p->value);
        names_shape(&at, p, t[n].shape);
        if (at.is_transposed || at.parts > 1) {
            t[n].data = &f[n];
            t[n].row = foreign_row;
        } else if (!p->value) {
            f[n].own = (struct row_of){m, i};
            t[n].data = &f[n].own;
            t[n].row = own_row;
        }
        n++;
    }
    if (rc == 0)
        rc = st_write(path, t, n, meta, 1, e);
    for (size_t k = 0; rc < 0 && f && k < n; k++)
        foreign_free(&f[k]);
    mem_free(t);
    mem_free(f);
    return rc;
}

static void own_tensor(struct st_out *t, struct row_of *r, const struct model *m, int i)
{
    const struct param *p = &m->params.p[i];
    *t = tensor_of(p, p->name, p->value);
    if (p->value)
        return;
    *r = (struct row_of){m, i};
    t->data = r;
    t->row = own_row;
}

static int write_own(const struct model *m, const char *path, int optimizer, struct err *e)
{
    static const char *const meta[] = {"format", "pt"};
    size_t n = 0, cap = 2 * (size_t)m->params.n;
    struct st_out *t = mem_alloc(cap, sizeof *t);
    struct row_of *rows = mem_alloc(cap, sizeof *rows);
    char(*names)[128] = mem_alloc(cap, sizeof *names);
    int rc = t && rows && names ? 0 : err_set(e, DS_EMEM, "%s: out of memory", path);
    for (int i = 0; i < m->params.n && rc == 0; i++) {
        const struct param *p = &m->params.p[i];
        if (!optimizer) {
            own_tensor(&t[n], &rows[n], m, i);
            n++;
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
    mem_free(rows);
    mem_free(names);
    return rc;
}

int model_write_weights(const struct model *m, const char *path, int optimizer, struct err *e)
{
    const struct names *names = names_of_family(model_config_family(&m->config));
    int rc = optimizer || names_are_ours(names) ? write_own(m, path, optimizer, e)
                                                : write_foreign(m, names, path, e);
    /* fail if the source file has changed since it was opened */
    return rc == 0 && !optimizer ? stored_unchanged(m, e) : rc;
}

int model_write_config(const struct model *m, const char *path, struct err *e)
{
    return model_write_config_with(m, NULL, path, e);
}

int model_write_config_with(const struct model *m, const struct config *more, const char *path,
                            struct err *e)
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
    if (rc == 0) /* random routing draws the same cells wherever the model is used */
        rc = config_set(&options, "seed", value, path, e);
    if (rc == 0 && m->route.capacity >= 0) {
        snprintf(value, sizeof value, "%.17g", m->route.capacity);
        rc = config_set(&options, "inference.capacity", value, path, e);
    }
    if (rc == 0 && more)
        rc = config_merge(&options, more, e);
    if (rc == 0) {
        model_config_to_json(&text, &m->config, &options);
        rc = fs_write_text(path, &text, e);
    }
    str_release(&text);
    config_release(&options);
    return rc;
}

/* The checkpoint named by best.json: 1 if it exists and verifies, 0 if not.  Negative when the
 * system fails to read it: another model in its place would be a wrong result. */
static int best_of_run(const char *root, char *dir, size_t size, struct err *e)
{
    char path[1024], name[32];
    struct json *j = NULL;
    struct err why = {0};
    if (fs_join(path, sizeof path, root, "best.json", NULL) < 0 || !fs_exists(path))
        return 0; /* a run without validation has none */
    int rc = json_read_file(&j, path, 1 << 16, &why);
    if (fs_is_unreadable(path, rc))
        return err_set(e, rc, "%s", why.text);
    if (rc < 0) {
        log_warn("%s; using the newest checkpoint", why.text);
        return 0;
    }
    snprintf(name, sizeof name, "step-%08lld",
             (long long)json_int(json_get(json_root(j), "step"), -1));
    json_free(j);
    if ((rc = fs_join(path, sizeof path, root, "checkpoints", e)) < 0 ||
        (rc = fs_join(dir, size, path, name, e)) < 0)
        return rc;
    rc = checkpoint_verify(dir, &why);
    if (rc == 0)
        return 1;
    if (rc == DS_EIO || rc == DS_EMEM)
        return err_set(e, rc, "%s/best.json: %s cannot be used: %s", root, name, why.text);
    log_warn("%s/best.json: %s cannot be used: %s; using the newest checkpoint", root, name,
             why.text);
    return 0;
}

/* Does the file's name or content say that it is to hold weights, or something else by name? */
static int is_named_file(const char *path)
{
    static const char *const ends[] = {".safetensors", ".index.json", ".pt",
                                       ".pth",         ".bin",        ".ckpt"};
    unsigned char first[64];
    size_t n = strlen(path);
    int fd;
    for (size_t i = 0; i < DS_LEN(ends); i++)
        if (n > strlen(ends[i]) && strcmp(path + n - strlen(ends[i]), ends[i]) == 0)
            return 1;
    if (fs_open_read(&fd, path, NULL) < 0)
        return 0;
    if (fs_read_some(fd, first, sizeof first, &n, path, NULL) < 0)
        n = 0;
    fs_close(fd);
    const char *kind = file_kind(first, n);
    return kind && strcmp(kind, "JSON text") != 0;
}

/* Reports a weights file given instead of its directory, with its file type. */
static int refuse_file(const char *path, struct err *e)
{
    struct st_set *s = NULL;
    int rc = st_set_open(&s, path, e);
    st_set_close(s);
    if (rc == 0)
        return err_set(
            e, DS_EUSAGE,
            "%s: is a weights file; expected the directory that holds it and config.json", path);
    if (rc != DS_EFORMAT || is_named_file(path))
        return rc;
    return err_set(e, rc,
                   "%s: not a model: expected a run, a directory with config.json, or a GGUF or "
                   "llama2.c file",
                   path);
}

static int is_run(const char *root)
{
    char path[1200];
    return (fs_join(path, sizeof path, root, "log.mp", NULL) == 0 && fs_exists(path)) ||
           (fs_join(path, sizeof path, root, "config.yaml", NULL) == 0 && fs_exists(path));
}

int model_locate(const char *model, char *dir, size_t size, struct err *e)
{
    char path[1024], root[1024], given[1024];
    const char *runs = getenv("DEPTHSCOPE_RUNS");
    const char *where[] = {"", runs && runs[0] ? runs : "runs"};
    if (model_is_file(model) && !str_copy(dir, size, model))
        return 0;
    int is_long = str_copy(given, sizeof given, model);
    given[fs_trimmed(given)] = '\0';
    for (size_t i = 0; i < DS_LEN(where) && !is_long; i++) {
        if (i > 0 && !fs_name_ok(given))
            break;
        if (i > 0 ? fs_join(root, sizeof root, where[i], given, e) < 0
                  : str_copy(root, sizeof root, given))
            break;
        if ((fs_join(path, sizeof path, root, "config.json", e) == 0 && fs_exists(path)) ||
            peft_is_dir(root))
            return str_copy(dir, size, root) ? err_set(e, DS_ERANGE, "%s: path too long", root) : 0;
        if (fs_join(path, sizeof path, root, "checkpoints", e) == 0 && fs_is_dir(path)) {
            int64_t step;
            checkpoint_recover(path);
            int rc = best_of_run(root, dir, size, e);
            if (rc != 0)
                return rc < 0 ? rc : 0;
            return checkpoint_latest(path, dir, size, &step, e);
        }
        if (is_run(root) && runconfig_has_writer(root))
            return err_set(e, DS_ENOTFOUND,
                           "%s: a run of another program, which has no checkpoints; expected the "
                           "directory of its model",
                           root);
        if (is_run(root))
            return err_set(e, DS_ENOTFOUND,
                           "%s: no checkpoint yet; depthscope train --resume %s continues the run",
                           root, root);
        int rc = fs_check_reach(path, e);
        if (rc < 0)
            return rc;
    }
    if (fs_exists(model) && !fs_is_dir(model))
        return refuse_file(model, e);
    char **names = NULL, hint[NEAREST_MAX + 32];
    size_t n = 0;
    struct nearest best = nearest_to(model);
    if (fs_is_dir(where[1]) && fs_list(where[1], &names, &n, NULL) == 0)
        for (size_t i = 0; i < n; i++)
            if (strcmp(names[i], model) != 0) /* there, and no model */
                nearest_try(&best, names[i]);
    if (names)
        fs_list_free(names, n);
    return err_set(
        e, DS_ENOTFOUND,
        "%s: model not found: expected a directory with config.json or a run with checkpoints "
        "(looked in . and %s)%s",
        model, where[1], nearest_hint(&best, hint, sizeof hint));
}

int load_take_extras(struct load_extras *x, struct config *options, const char *path, struct err *e)
{
    static const struct opt capacity = {
        .key = "inference.capacity", .type = OPT_REAL, .otherwise = "-1", .min = 0, .max = 1};
    const char *seed = config_get(options, "seed"),
               *share = config_get(options, "inference.capacity");
    double stored = -1;
    int rc = share ? opt_set(&capacity, &stored, share, path, e) : 0;
    *x = (struct load_extras){.seed = seed ? strtoull(seed, NULL, 10) : 0, .capacity = stored};
    config_remove(options, "seed");
    config_remove(options, "inference.capacity");
    return rc;
}

int model_open_table(struct model **out, const char *dir, struct config *overrides, int train,
                     struct err *e)
{
    struct model_config c;
    struct config options = {0};
    char path[1024];
    if (model_is_file(dir))
        return model_open_file(out, dir, overrides, train, e);
    int rc = fs_join(path, sizeof path, dir, "config.json", e);
    if (rc == 0)
        rc = model_config_from_json(&c, &options, path, e);
    if (rc < 0)
        goto out;
    struct load_extras extras = {0};
    rc = load_take_extras(&extras, &options, path, e);
    if (rc == 0 && overrides)
        rc = config_merge(&options, overrides, e);
    if (rc == 0)
        rc = model_new_table(out, &c, &options, extras.seed, train, e);
    if (rc == 0 && (*out)->route.ops->flags & ROUTE_CAPACITY)
        (*out)->route.capacity = extras.capacity;
    opt_release(&model_group, &c); /* empty when it was taken */
out:
    config_release(&options);
    return rc;
}

/* An overcommitting system would kill the program later without a message. */
int load_check_memory(const struct model *m, const char *dir, struct err *e)
{
    double need = params_bytes(&m->params, m->is_training), left = mem_available();
    char a[16], b[16];
    if (left == 0 || need <= left)
        return 0;
    return err_set(e, DS_EMEM, "%s: out of memory: %lld parameters need %sB, %sB available", dir,
                   (long long)params_count(&m->params), str_si(a, need), str_si(b, left));
}

int model_open(struct model **out, const char *dir, struct config *overrides, int train,
               struct err *e)
{
    struct model *m = NULL;
    struct st_set *s = NULL;
    struct tensor_match v = {0};
    char base[1024];
    if (model_is_file(dir))
        return model_open_file(out, dir, overrides, train, e);
    int rc = model_base(dir, base, sizeof base, e);
    if (rc != 0)
        return rc < 0 ? rc : model_open_adapted(out, dir, base, overrides, train, e);
    rc = model_open_table(&m, dir, overrides, train, e);
    if (rc < 0 || (train != MODEL_EDIT && (rc = stored_mark(m, e)) < 0) ||
        (rc = st_set_open(&s, dir, e)) < 0)
        goto out;
    /* check the fit before allocating memory */
    if ((rc = tensor_match_init(&v, m, s, 1, e)) < 0 ||
        (rc = tensor_match_check(&v, m, s, e)) < 0 || (rc = load_check_memory(m, dir, e)) < 0 ||
        (rc = model_reserve_values(m, e)) < 0 || (rc = model_take_set(m, &s, e)) < 0)
        goto out;
    *out = m;
    m = NULL;
out:
    tensor_match_release(&v);
    st_set_close(s);
    model_free(m);
    return rc;
}

int model_config_open(struct model_config *c, struct config *route, const char *model,
                      struct err *e)
{
    char path[1024], base[1024];
    if (model_is_file(model))
        return model_config_open_file(c, model, e);
    int rc = model_base(model, base, sizeof base, e);
    if (rc != 0)
        return rc < 0 ? rc : model_adapted_config(c, route, model, base, e);
    rc = fs_join(path, sizeof path, model, "config.json", e);
    return rc == 0 ? model_config_from_json(c, route, path, e) : rc;
}
