/* train.init and train.teacher: takes the shape when keys are resolved, the weights when the run
 * opens. */
#include "training/start.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"
#include "data/tokenizer.h"
#include "models/load.h"
#include "models/peft.h"
#include "training/trainer.h"

/* Which keys are taken from the source's config.json.  ALWAYS: tensors, or what they compute,
 * depend on it.  DEFAULT: taken unless given.  Method and initialisation are the new run's own. */
enum inherit { INHERIT_NEVER, INHERIT_ALWAYS, INHERIT_DEFAULT };

static enum inherit policy_of(const char *key, const struct model_config *source)
{
    static const char *const own[] = {"method", "init_std", "embed_std", "embed_init",
                                      "depth_init"};
    for (size_t i = 0; i < DS_LEN(own); i++)
        if (strcmp(key, own[i]) == 0)
            return INHERIT_NEVER;
    if (strcmp(key, "max_seq") == 0 && source->position != POS_LEARNED)
        return INHERIT_DEFAULT; /* no tensor dimension */
    if (strcmp(key, "end_ids") == 0)
        return INHERIT_DEFAULT; /* no tensor depends on it */
    return strncmp(key, "lora_", 5) == 0 ? INHERIT_DEFAULT : INHERIT_ALWAYS;
}

static void add_note(struct str *all, const char *text)
{
    str_addf(all, "%s%s", all->len ? "; " : "", text);
}

/* 0 = derived from other sizes: the source's value is used. */
static int is_open(const struct opt *o, const char *text)
{
    return !text || (o->type == OPT_INT && o->min == 0 && strcmp(text, "0") == 0 &&
                     strncmp(o->key, "lora_", 5) != 0);
}

/* Compares both values as the option table prints them. */
static int is_same(const struct opt *o, const char *text, const char *want)
{
    struct model_config probe = {0};
    char have[64];
    int rc = opt_set(o, &probe, text, NULL, NULL); /* an unreadable value is reported later */
    int is_equal = rc < 0 || strcmp(opt_text(o, &probe, have, sizeof have), want) == 0;
    opt_release(&model_group, &probe);
    return is_equal;
}

static void take_key(struct config *given, const struct opt *o, const struct model_config *source,
                     const char *dir, struct str *all)
{
    char key[64], space[64], text[700];
    const char *want = opt_text(o, source, space, sizeof space);
    enum inherit how = policy_of(o->key, source);
    snprintf(key, sizeof key, "%s%s", model_group.prefix, o->key);
    const char *have = config_get(given, key);
    for (int i = 0; !have && opt_alias(o, i, text, sizeof text); i++)
        have = config_get(given, text);
    if (how == INHERIT_NEVER || (how == INHERIT_DEFAULT && have))
        return;
    if (strcmp(o->key, "end_ids") == 0 && config_get(given, "data.tokenizer"))
        return; /* ids of a different vocabulary */
    if (is_open(o, have)) {
        if (config_set(given, key, want, "train.init", NULL) < 0)
            all->failed = 1;
    } else if (!is_same(o, have, want)) {
        snprintf(text, sizeof text, "%s=%.60s: expected %.60s from train.init=%.300s", key, have,
                 want, dir);
        add_note(all, text);
    }
}

/* The source's tokenizer, which its embedding was trained with. */
static void take_tokenizer(struct config *given, const char *dir, struct str *all)
{
    char path[1100], text[500], base[1024];
    if (config_get(given, "data.tokenizer"))
        return;
    if (tokenizer_find(path, sizeof path, dir, NULL) == 0 ||
        (model_base(dir, base, sizeof base, NULL) == 1 && /* adapters often lack a tokenizer */
         tokenizer_find(path, sizeof path, base, NULL) == 0)) {
        if (config_set(given, "data.tokenizer", path, "train.init", NULL) < 0)
            all->failed = 1;
        return;
    }
    snprintf(text, sizeof text, "train.init=%.300s: no tokenizer found; set data.tokenizer=PATH",
             dir);
    add_note(all, text);
}

/* Replaces a teacher's name by its directory. */
static void take_teacher(struct config *given, struct str *all)
{
    const char *teacher = config_get(given, "train.teacher");
    struct err e = {0};
    char dir[1024];
    if (!teacher || strcmp(teacher, "off") == 0 || strcmp(teacher, "self") == 0)
        return;
    int rc = model_locate(teacher, dir, sizeof dir, &e);
    if (rc == 0)
        rc = config_set(given, "train.teacher", dir, "train.teacher", &e);
    if (rc < 0) {
        err_add(&e, rc, "train.teacher (off, self, or a model)");
        add_note(all, e.text);
    }
}

void start_keys(struct config *given, struct str *all)
{
    take_teacher(given, all);
    const char *init = config_get(given, "train.init");
    struct model_config source = {0};
    struct config route = {0};
    struct err e = {0};
    char dir[1024];
    if (!init || !init[0] ||
        strcmp(init, "???") == 0) /* ???: left open by a preset, see options.c */
        return;
    int rc = model_locate(init, dir, sizeof dir, &e);
    if (rc == 0)
        rc = model_config_open(&source, &route, dir, &e);
    if (rc == 0) {
        for (size_t i = 0; i < model_group.n; i++)
            take_key(given, &model_group.opts[i], &source, dir, all);
        take_tokenizer(given, dir, all);
        rc = config_set(given, "train.init", dir, "train.init", &e);
    }
    if (rc < 0) {
        err_add(&e, rc, "train.init");
        add_note(all, e.text);
    }
    opt_release(&model_group, &source);
    config_release(&route);
}

/* ---- non-finite weights ---- */

enum { VALUES = 1 << 14 };

struct odd {
    const struct model *m;
    uint64_t *count; /* per parameter; UINT64_MAX: out of memory */
};

static void count_odd(void *ctx, int i, int worker)
{
    struct odd *x = ctx;
    const struct param *p = &x->m->params.p[i];
    size_t columns = p->rank > 1 ? (size_t)p->shape[1] : 1, rows = (size_t)p->shape[0];
    size_t step = columns < VALUES ? VALUES / columns : 1;
    real *v = mem_alloc(step * columns, sizeof *v);
    (void)worker;
    x->count[i] = v ? 0 : UINT64_MAX;
    for (size_t row = 0; v && row < rows; row += step) {
        size_t n = rows - row < step ? rows - row : step;
        model_values(x->m, i, row, n, v);
        for (size_t k = 0; k < n * columns; k++)
            x->count[i] += !isfinite(v[k]);
    }
    mem_free(v);
}

/* One NaN weight makes every loss NaN: reported before the first step instead of failing steps. */
static int check_finite(const struct model *m, int is_allowed, struct err *e)
{
    struct odd x = {m, mem_alloc((size_t)m->params.n + 1, sizeof *x.count)};
    struct str names = {0};
    int n = 0;
    if (!x.count)
        return err_set(e, DS_EMEM, "out of memory checking the weights");
    pool_run(m->params.n, count_odd, &x);
    for (int i = 0; i < m->params.n; i++)
        if (x.count[i] == UINT64_MAX) {
            mem_free(x.count);
            str_release(&names);
            return err_set(e, DS_EMEM, "out of memory checking the weights");
        }
    for (int i = 0; i < m->params.n; i++)
        if (x.count[i] > 0 && n++ < 3)
            str_addf(&names, "%s%s: %llu", n > 1 ? ", " : "", m->params.p[i].name,
                     (unsigned long long)x.count[i]);
    int rc = n == 0 || is_allowed ? 0
                                  : err_set(e, DS_ENUMERIC,
                                            "non-finite values in %d tensors: %s%s; "
                                            "train.allow_nonfinite=true trains anyway",
                                            n, str_text(&names), n > 3 ? ", ..." : "");
    str_release(&names);
    mem_free(x.count);
    return rc;
}

int start_weights(struct trainer *t, struct err *e)
{
    const char *init = t->config.train.init;
    struct str notes = {0};
    char dir[1024];
    if (!init[0])
        return 0;
    int rc = model_locate(init, dir, sizeof dir, e);
    if (rc == 0)
        rc = model_start_from(t->model, dir, &notes, e);
    if (rc == 0 && notes.failed)
        rc = err_set(e, DS_EMEM, "out of memory for tensor names");
    if (rc == 0) {
        str_copy(t->started, sizeof t->started, str_text(&notes));
        log_info("%s: %s", t->name, t->started);
        rc = check_finite(t->model, t->config.train.allow_nonfinite, e);
    }
    str_release(&notes);
    return rc < 0 ? err_add(e, rc, "train.init (required until the first checkpoint)") : 0;
}

/* ---- the teacher ---- */

double start_teacher_bytes(const struct train_config *c)
{
    struct model_config by = {0};
    struct config route = {0};
    char dir[1024];
    int rows = (int)(c->train.batch * c->train.seq),
        is_self = strcmp(c->train.teacher, "self") == 0;
    if (!train_has_teacher(&c->train))
        return 0;
    size_t bytes = 0;
    int64_t C = c->model.dim;
    /* an unreadable teacher is reported when it is opened; weights_use counts its weights */
    if (!is_self && model_locate(c->train.teacher, dir, sizeof dir, NULL) == 0 &&
        model_config_open(&by, &route, dir, NULL) == 0 &&
        model_bytes(&bytes, &by, &route, rows, 0, 0, NULL) == 0)
        C = by.dim;
    opt_release(&model_group, &by);
    config_release(&route);
    return (double)bytes + (double)distill_bytes(rows, C, c->model.vocab);
}

static int fits_student(const struct trainer *t, const char *dir, struct err *e)
{
    const struct model_config *have = &t->teacher->config, *want = &t->model->config;
    struct tokenizer *own = NULL;
    struct err none = {0};
    struct pass pass = {.kind = PASS_SPARSE};
    if (have->vocab != want->vocab)
        return err_set(e, DS_EFORMAT, "vocabulary of %lld tokens, expected the student's %lld",
                       (long long)have->vocab, (long long)want->vocab);
    for (int k = 0; k < t->teacher->n_out; k++) {
        int id = t->teacher->out_id ? t->teacher->out_id[k] : k;
        if (model_column(t->model, id) < 0)
            return err_set(e, DS_EUSAGE,
                           "it predicts id %d, which model.outputs=%.60s does not; expected a "
                           "teacher with these outputs",
                           id, want->outputs);
    }
    if (have->position == POS_LEARNED && have->max_seq < t->config.train.seq)
        return err_set(e, DS_ERANGE, "context of %lld tokens, train.seq=%lld needs more",
                       (long long)have->max_seq, (long long)t->config.train.seq);
    if (tokenizer_load(&own, dir, &none) == 0 &&
        tokenizer_hash(own) != tokenizer_hash(t->tokenizer)) {
        tokenizer_free(own);
        return err_set(
            e, DS_EFORMAT,
            "its tokenizer.json and the student's assign different ids to the same %lld tokens",
            (long long)have->vocab);
    }
    tokenizer_free(own);
    return route_ready(&t->teacher->route, &pass, e);
}

static int open_teacher(struct trainer *t, struct err *e)
{
    const struct train_config *c = &t->config;
    struct numeric_options numbers = {.compute = COMPUTE_FP32 + c->run.compute,
                                      .weights = WEIGHTS_AUTO};
    char dir[1024];
    int rc = model_locate(c->train.teacher, dir, sizeof dir, e);
    if (rc < 0 || (rc = model_open(&t->teacher, dir, NULL, MODEL_INFERENCE, e)) < 0 ||
        (rc = check_finite(t->teacher, c->train.allow_nonfinite, e)) < 0 ||
        (rc = fits_student(t, dir, e)) < 0 || (rc = weights_use(t->teacher, &numbers, e)) < 0 ||
        (rc = weights_ready(t->teacher, e)) < 0 ||
        (rc = model_reserve(t->teacher, t->rows, 0, 0, e)) < 0)
        return err_add(e, rc, "train.teacher=%s", c->train.teacher);
    return 0;
}

int start_teacher(struct trainer *t, struct err *e)
{
    const struct train_options *o = &t->config.train;
    int rc = 0;
    if (!train_has_teacher(o))
        return 0;
    if (strcmp(o->teacher, "self") != 0)
        rc = open_teacher(t, e);
    if (rc == 0)
        rc = distill_new(&t->model->distill, t->model, t->teacher, t->rows, o->kd_alpha,
                         o->kd_temperature, e);
    return rc;
}
