/* Opens models stored apart from their base: PEFT adapters, and checkpoints of runs with a frozen
 * base. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "load_file.h"
#include "models/formats/tensor_match.h"
#include "models/load.h"
#include "models/peft.h"

int model_adapted_config(struct model_config *c, struct config *route, const char *dir,
                         const char *base, struct err *e)
{
    static const char *const of_base[] = {"base.path", "base.absolute", "base.hash"};
    char path[1200];
    int is_peft = peft_is_dir(dir), rc = fs_join(path, sizeof path, dir, "config.json", e);
    if (rc == 0)
        rc = is_peft ? model_config_open(c, route, base, e)
                     : model_config_from_json(c, route, path, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < DS_LEN(of_base); i++)
        config_remove(route, of_base[i]);
    rc = is_peft ? peft_config(c, dir, e) : 0;
    if (rc < 0)
        opt_release(&model_group, c);
    return rc;
}

/* Parameters not in the base must be stored with the checkpoint; checked before allocating
 * memory. */
static int check_base(const struct model *m, const char *dir, const char *base, struct err *e)
{
    struct st_set *s = NULL;
    struct tensor_match v = {0};
    if (model_is_file(base))
        return 0; /* single-file formats store no method */
    int rc = st_set_open(&s, base, e);
    if (rc == 0)
        rc = tensor_match_init(&v, m, s, 0, e);
    if (rc == 0)
        rc = tensor_match_check(&v, m, s, e);
    if (rc == 0 && peft_is_dir(dir) && v.new_n != adapters_params(m))
        rc = err_set(e, DS_EFORMAT, "%s: parameters of method %s are missing: %s", base,
                     m->config.method, str_text(&v.new));
    tensor_match_release(&v);
    st_set_close(s);
    return rc;
}

static int read_values(struct model *m, const char *dir, const char *base, int train, struct err *e)
{
    struct str note = {0};
    int rc = check_base(m, dir, base, e);
    if (rc == 0 && train != MODEL_EDIT)
        rc = stored_mark(m, e);
    if (rc == 0)
        rc = load_check_memory(m, dir, e);
    if (rc == 0)
        rc = model_reserve_values(m, e);
    if (rc == 0)
        rc = load_values(m, base, &note, e);
    if (rc < 0)
        err_add(e, rc, "base model of %s", dir);
    else
        rc = model_read_own(m, dir, NULL, e);
    str_release(&note);
    return rc;
}

int model_start_adapted(struct model *m, const char *dir, const char *base, struct str *note,
                        struct err *e)
{
    struct str of_base = {0};
    int rc = load_values(m, base, &of_base, e);
    if (rc == 0)
        str_addf(note, "%.*s; ", (int)strcspn(str_text(&of_base), ","), str_text(&of_base));
    note->failed |= of_base.failed;
    str_release(&of_base);
    return rc < 0 ? err_add(e, rc, "base model of %s", dir) : model_read_own(m, dir, note, e);
}

/* The complete parameter table. */
static int open_table(struct model **out, const char *dir, const char *base,
                      struct config *overrides, int train, struct err *e)
{
    struct model_config c = {0};
    struct config route = {0};
    int rc = model_adapted_config(&c, &route, dir, base, e);
    struct load_extras extras = {0};
    if (rc == 0)
        rc = load_take_extras(&extras, &route, dir, e);
    if (rc == 0 && overrides)
        rc = config_merge(&route, overrides, e);
    if (rc == 0)
        rc = model_new_table(out, &c, &route, extras.seed, train, e);
    if (rc == 0 && (*out)->route.ops->flags & ROUTE_CAPACITY)
        (*out)->route.capacity = extras.capacity;
    opt_release(&model_group, &c); /* empty when it was taken */
    config_release(&route);
    return rc;
}

int model_adapted_tensor_match(const char *dir, const char *base, struct str *out, struct err *e)
{
    static const char lead[] = "weights: ";
    struct model *m = NULL;
    struct str of_base = {0};
    int rc = open_table(&m, dir, base, NULL, MODEL_INFERENCE, e);
    if (rc == 0 && !model_is_file(base))
        rc = model_tensor_match(base, &of_base, e);
    if (rc == 0) {
        const char *p = str_text(&of_base);
        size_t skip = strncmp(p, lead, sizeof lead - 1) == 0 ? sizeof lead - 1 : 0;
        const char *text = model_is_file(base) ? "one file" : p + skip;
        str_addf(out, "%sof the base %s: %.*s; stored apart from it: ", lead, base,
                 (int)strcspn(text, "\n"), text);
        out->failed |= of_base.failed;
        rc = model_own_tensor_match(m, dir, out, e);
    }
    str_release(&of_base);
    model_free(m);
    return rc;
}

int model_open_adapted(struct model **out, const char *dir, const char *base,
                       struct config *overrides, int train, struct err *e)
{
    struct model *m = NULL;
    int rc = open_table(&m, dir, base, overrides, train, e);
    if (rc == 0)
        rc = read_values(m, dir, base, train, e);
    if (rc == 0)
        *out = m;
    else
        model_free(m);
    return rc;
}
