/* Opening what lies beside its base: adapters of PEFT, and checkpoints of runs over a frozen base. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "models/coverage.h"
#include "models/load.h"
#include "models/peft.h"

/* The shape of the whole, and the method's options. */
static int whole_config(struct model_config *c, struct config *route, const char *dir,
                        const char *base, struct err *e)
{
    static const char *const of_base[] = {"base.path", "base.absolute", "base.hash"};
    char path[1200];
    int rc = fs_join(path, sizeof path, peft_is_dir(dir) ? base : dir, "config.json", e);
    if (rc == 0)
        rc = model_config_from_json(c, route, path, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < DS_LEN(of_base); i++)
        config_remove(route, of_base[i]);
    rc = peft_is_dir(dir) ? peft_config(c, dir, e) : 0;
    if (rc < 0)
        opt_release(&model_group, c);
    return rc;
}

/* What the base does not bring has to lie beside it. */
static int check_base(const struct model *m, const char *dir, const char *base, struct err *e)
{
    struct st_set *s = NULL;
    struct coverage v = {0};
    int rc = st_set_open(&s, base, e);
    if (rc == 0)
        rc = coverage_make(&v, m, s, 0, e);
    if (rc == 0 && peft_is_dir(dir) && v.fresh_n != 2 * m->adapters)
        rc = err_set(e, DS_EFORMAT, "%s: parameters of method %s are missing: %s", base,
                     m->config.method, str_text(&v.fresh));
    coverage_release(&v);
    st_set_close(s);
    return rc;
}

static int read_values(struct model *m, const char *dir, const char *base, struct err *e)
{
    struct str told = {0};
    int rc = check_base(m, dir, base, e);
    if (rc == 0)
        rc = model_reserve_values(m, e);
    if (rc == 0)
        rc = model_start_from(m, base, &told, e);
    if (rc < 0)
        err_add(e, rc, "the base model of %s", dir);
    else
        rc = model_read_own(m, dir, NULL, e);
    str_release(&told);
    return rc;
}

int model_open_apart(struct model **out, const char *dir, const char *base,
                     struct config *overrides, int train, struct err *e)
{
    struct model *m = NULL;
    struct model_config c = {0};
    struct config route = {0};
    int rc = whole_config(&c, &route, dir, base, e);
    const char *seed_text = config_get(&route, "seed");
    uint64_t seed = seed_text ? strtoull(seed_text, NULL, 10) : 0;
    config_remove(&route, "seed");
    if (rc == 0 && overrides)
        rc = config_merge(&route, overrides, e);
    if (rc == 0)
        rc = model_new_table(&m, &c, &route, seed, train, e);
    opt_release(&model_group, &c); /* empty when it was taken */
    config_release(&route);
    if (rc == 0)
        rc = read_values(m, dir, base, e);
    if (rc == 0)
        *out = m;
    else
        model_free(m);
    return rc;
}
