/* Common parts of opening a model from a single file (GGUF, llama2.c). */
#include "load_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"

static int ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

/* PyTorch's .bin files are pickles and refused as such. */
int model_is_file(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    int is_bin = ends_with(path, ".bin") && strncmp(name, "pytorch_model", 13) != 0;
    return (ends_with(path, ".gguf") || is_bin) && fs_exists(path) && !fs_is_dir(path);
}

int model_open_file(struct model **out, const char *path, struct config *overrides, int train,
                    struct err *e)
{
    return ends_with(path, ".gguf") ? model_open_gguf(out, path, overrides, train, e)
                                    : model_open_llama2c(out, path, overrides, train, e);
}

int load_set_text(struct model_config *c, const char *key, const char *v, const char *from,
                  struct err *e)
{
    char full[64];
    snprintf(full, sizeof full, "model.%s", key);
    int rc = opt_set(opt_find(&model_group, full), c, v, from, e);
    if (rc == DS_EUSAGE) { /* not a number: the file's fault, not the user's */
        rc = DS_EFORMAT;
        if (e)
            e->code = rc;
    }
    return rc;
}

int load_set_int(struct model_config *c, const char *key, int64_t v, const char *from,
                 struct err *e)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, v);
    return load_set_text(c, key, text, from, e);
}

int load_set_real(struct model_config *c, const char *key, double v, const char *from,
                  struct err *e)
{
    char text[40];
    snprintf(text, sizeof text, "%.17g", v);
    return load_set_text(c, key, text, from, e);
}

int load_new(struct model **out, struct model_config *c, struct config *overrides, int train,
             const char *path, struct err *e)
{
    struct model *m = NULL;
    int rc = model_new_table(&m, c, overrides, 0, train, e);
    if (rc == 0 && train != MODEL_EDIT)
        rc = stored_mark(m, e);
    if (rc == 0)
        rc = load_check_memory(m, path, e);
    if (rc == 0)
        rc = model_reserve_values(m, e);
    if (rc < 0) {
        model_free(m);
        return err_add(e, rc, "%s", path);
    }
    params_init(&m->params, 0); /* parameters not in the file: the method's and adapters' */
    *out = m;
    return 0;
}

int model_config_open_file(struct model_config *c, const char *path, struct err *e)
{
    return ends_with(path, ".gguf") ? model_config_gguf(c, path, e)
                                    : model_config_llama2c(c, path, e);
}

int load_layer(const char *param, const char **rest)
{
    static const char prefix[] = "model.layers.";
    char *end;
    *rest = param;
    if (strncmp(param, prefix, sizeof prefix - 1) != 0)
        return -1;
    long l = strtol(param + sizeof prefix - 1, &end, 10);
    *rest = *end == '.' ? end + 1 : end;
    return (int)l;
}

int load_split_pairs(real *w, int rows, int C, int head_dim, struct err *e)
{
    size_t row = (size_t)C, size = (size_t)head_dim * row;
    real *head = mem_alloc(size, sizeof *head);
    if (!head)
        return err_set(e, DS_EMEM, "out of memory for the rows of a head");
    for (int h = 0; h < rows / head_dim; h++) {
        real *to = w + (size_t)h * size;
        memcpy(head, to, size * sizeof *head);
        for (int d = 0; d < head_dim; d++)
            memcpy(to + (size_t)(d / 2 + d % 2 * (head_dim / 2)) * row, head + (size_t)d * row,
                   row * sizeof *head);
    }
    mem_free(head);
    return 0;
}

void load_warn_odd(const char *path, const char *name, const real *w, size_t n)
{
    size_t bad = 0;
    for (size_t i = 0; i < n; i++)
        bad += !isfinite(w[i]);
    if (bad > 0)
        log_warn("%s: tensor %s holds %zu non-finite values", path, name, bad);
}
