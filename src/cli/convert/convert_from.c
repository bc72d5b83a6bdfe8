/* Opens the source model of a conversion, or streams random weights without holding them in
 * memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "cli/convert/convert.h"
#include "io/st_set.h"
#include "models/load.h"
#include "models/peft.h"
#include "training/preset.h"

static const char random_prefix[] = "random:";

/* ---- random weights ---- */

/* A preset's name, or a unique prefix of one: "tinyllama". */
static int full_name(char *out, size_t size, const char *name, struct err *e)
{
    char **names = NULL;
    size_t n = 0, found = 0;
    int rc = preset_names(&names, &n, e);
    str_copy(out, size, name);
    for (size_t i = 0; i < n && rc == 0; i++)
        if (strcmp(names[i], name) == 0) {
            found = 2;
            str_copy(out, size, name);
        } else if (found < 2 && strncmp(names[i], name, strlen(name)) == 0 && found++ == 0) {
            str_copy(out, size, names[i]);
        }
    if (found == 2 && strcmp(out, name) != 0)
        str_copy(out, size, name); /* ambiguous: the message names the nearest */
    if (rc == 0)
        fs_list_free(names, n);
    return rc;
}

/* A preset may contain training keys, but settings of the command may not. */
static int check_given(const struct config *given, const struct route_ops *ops, struct err *e)
{
    struct config bad = {0};
    char prefix[40];
    struct opt_group route = route_group(ops, prefix);
    const struct opt_group *const groups[] = {&model_group, &route};
    int rc = 0;
    for (size_t i = 0; i < given->n && rc == 0; i++) {
        const struct config_entry *x = &given->entry[i];
        if (!opt_find(&model_group, x->key) && !opt_find(&route, x->key))
            rc = config_set(&bad, x->key, x->value, x->where, e);
    }
    if (rc == 0)
        rc = config_check_unused(&bad, groups, DS_LEN(groups), e);
    config_release(&bad);
    return rc;
}

static int open_random(struct convert_from *f, const char *preset, struct config *given,
                       uint64_t seed, struct err *e)
{
    struct config c = {0};
    struct model_config shape = {0};
    char dir[1024], name[128];
    const char *list[] = {name};
    if (cli_data_dir(dir, sizeof dir, "data", NULL) == 0)
        train_config_preset_dir(dir);
    int rc = full_name(name, sizeof name, preset, e);
    if (rc < 0 || (rc = presets_read(&c, list, 1, e)) < 0 ||
        (rc = config_merge(&c, given, e)) < 0 || (rc = opt_defaults(&model_group, &shape, e)) < 0 ||
        (rc = config_apply(&c, &model_group, &shape, e)) < 0)
        goto out;
    if (!route_find(shape.method)) {
        rc = err_set(e, DS_EUSAGE, "model.method=%s: unknown method", shape.method);
        goto out;
    }
    rc = check_given(given, route_find(shape.method), e);
    if (rc == 0)
        rc = model_new_table(&f->m, &shape, &c, seed, MODEL_INFERENCE, e);
out:
    opt_release(&model_group, &shape);
    config_release(&c);
    if (rc < 0)
        return err_add(e, rc, "random:%s", preset);
    f->s = (struct export_source){.m = f->m, .is_random = 1, .seed = seed};
    f->type = GGUF_T_F32;
    snprintf(f->name, sizeof f->name, "%.100s", name);
    return 0;
}

/* ---- existing models ---- */

/* The common type of all matrices of a directory, fp32 when they differ. */
static uint32_t type_of_set(const char *dir)
{
    struct st_set *s = NULL;
    uint32_t type = GGUF_T_F32;
    int same = 1;
    if (st_set_open(&s, dir, NULL) < 0)
        return type;
    for (size_t i = 0; i < st_set_count(s); i++)
        same &= st_set_at(s, i)->dtype == st_set_at(s, 0)->dtype;
    if (same && st_set_count(s) > 0)
        type = st_set_at(s, 0)->dtype == ST_F16    ? GGUF_T_F16
               : st_set_at(s, 0)->dtype == ST_BF16 ? GGUF_T_BF16
                                                   : GGUF_T_F32;
    st_set_close(s);
    return type;
}

static uint32_t type_of_gguf(const char *path)
{
    struct gguf *g = NULL;
    uint32_t type = UINT32_MAX, known;
    char name[16];
    if (gguf_open(&g, path, NULL) < 0)
        return GGUF_T_F32;
    for (size_t i = 0; i < gguf_count(g); i++) {
        const struct gguf_tensor *t = gguf_at(g, i);
        if (t->rank == 2)
            type = type == UINT32_MAX || type == t->type ? t->type : GGUF_T_F32;
    }
    snprintf(name, sizeof name, "%s", type == UINT32_MAX ? "F32" : gguf_type_name(type));
    for (char *p = name; *p; p++)
        *p = *p >= 'A' && *p <= 'Z' ? (char)(*p - 'A' + 'a') : *p;
    gguf_close(g);
    return export_type(&known, name, NULL) == 0 ? known : GGUF_T_F32;
}

static int ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

/* Cuts off the last part of a path and returns it; the whole path if it has only one. */
static const char *last_part(char *path)
{
    path[fs_trimmed(path)] = '\0';
    char *slash = strrchr(path, '/');
    if (!slash || !slash[1])
        return path;
    *slash = '\0';
    return slash + 1;
}

/* That of its directory or file, for a checkpoint that of its run. */
static void set_name(struct convert_from *f)
{
    char path[4097];
    str_copy(path, sizeof path, f->dir);
    const char *name = last_part(path);
    if ((strcmp(name, ".") == 0 || strcmp(name, "..") == 0) && strlen(f->dir) < 4096 &&
        realpath(f->dir, path))
        name = last_part(path);
    if (strncmp(name, "step-", 5) == 0 && name != path) {
        const char *above = last_part(path);
        if (strcmp(above, "checkpoints") == 0 && above != path)
            name = last_part(path);
    }
    snprintf(f->name, sizeof f->name, "%.100s", name);
    char *dot = strrchr(f->name, '.');
    if (dot && (strcmp(dot, ".gguf") == 0 || strcmp(dot, ".bin") == 0))
        *dot = '\0';
}

/* The model's own, or the one next to its file; a missing or unsupported one is not an error. */
static int find_tokenizer(struct convert_from *f, struct err *e)
{
    char where[1024];
    struct err why = {0};
    int rc = DS_ENOTFOUND;
    if (fs_is_dir(f->dir) || ends_with(f->dir, ".gguf"))
        rc = tokenizer_load(&f->tokenizer, f->dir, &why);
    if (rc < 0 && rc != DS_EIO && rc != DS_EMEM &&
        model_base(f->dir, where, sizeof where, NULL) == 1)
        rc = tokenizer_load(&f->tokenizer, where, &why); /* adapters usually come without one */
    if (rc == DS_EIO || rc == DS_EMEM)
        return err_set(e, rc, "%s", why.text);
    if (rc == 0 || fs_is_dir(f->dir))
        return 0;
    str_copy(where, sizeof where, f->dir);
    char *slash = strrchr(where, '/');
    if (slash)
        slash[slash == where] = '\0';
    else
        str_copy(where, sizeof where, ".");
    rc = tokenizer_load(&f->tokenizer, where, e);
    return rc == DS_ENOTFOUND ? 0 : rc;
}

static int open_model(struct convert_from *f, const char *what, struct err *e)
{
    int rc = model_locate(what, f->dir, sizeof f->dir, e);
    if (rc == 0)
        rc = model_open(&f->m, f->dir, NULL, MODEL_INFERENCE, e);
    if (rc < 0)
        return rc;
    f->s = (struct export_source){.m = f->m};
    f->type = ends_with(f->dir, ".gguf") ? type_of_gguf(f->dir)
              : fs_is_dir(f->dir)        ? type_of_set(f->dir)
                                         : GGUF_T_F32;
    set_name(f);
    return find_tokenizer(f, e);
}

/* End-of-text ids are taken from the written vocabulary, where other programs look for them. */
static int settle_ends(struct convert_from *f, struct err *e)
{
    int32_t id[MODEL_EOS_MAX], eot = f->tokenizer ? tokenizer_eot(f->tokenizer) : -1;
    if (f->other_tokenizer)
        model_config_clear_eos(&f->m->config);
    if (model_config_eos_ids(&f->m->config, id) > 0 || eot < 0)
        return 0;
    int rc = model_config_add_eos(&f->m->config, eot);
    return rc < 0 ? err_set(e, rc, "end-of-text ids: out of memory") : 0;
}

int convert_open(struct convert_from *f, const char *what, struct config *given, uint64_t seed,
                 const char *tokenizer, struct err *e)
{
    size_t n = sizeof random_prefix - 1;
    memset(f, 0, sizeof *f);
    int rc = 0;
    if (strncmp(what, random_prefix, n) == 0)
        rc = open_random(f, what + n, given, seed, e);
    else if (given->n > 0)
        rc = err_set(e, DS_EUSAGE,
                     "%s: unexpected setting: only random:PRESET has model settings (depthscope "
                     "help convert lists the keys of convert)",
                     given->entry[0].key);
    else
        rc = open_model(f, what, e);
    if (rc == 0 && tokenizer[0]) {
        tokenizer_free(f->tokenizer);
        f->tokenizer = NULL;
        f->other_tokenizer = 1; /* files next to the model's own tokenizer use other ids */
        rc = strcmp(tokenizer, "bytes") == 0 ? tokenizer_new_bytes(&f->tokenizer, e)
                                             : tokenizer_load(&f->tokenizer, tokenizer, e);
    }
    if (rc == 0 && f->tokenizer && tokenizer_vocab(f->tokenizer) > f->s.m->config.vocab)
        rc = err_set(e, DS_EFORMAT,
                     "%s: tokenizer ids up to %d, expected fewer than the embedding's %lld rows",
                     what, tokenizer_vocab(f->tokenizer) - 1, (long long)f->s.m->config.vocab);
    if (rc == 0)
        rc = settle_ends(f, e);
    if (rc < 0)
        convert_close(f);
    return rc;
}

void convert_close(struct convert_from *f)
{
    model_free(f->m);
    tokenizer_free(f->tokenizer);
    memset(f, 0, sizeof *f);
}
