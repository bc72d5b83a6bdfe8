/* A run of a tiny model inside the fuzz target: the trainer itself (training/trainer.c), without
 * fsync. */
#ifndef DS_TESTS_FUZZ_TINY_RUN_H
#define DS_TESTS_FUZZ_TINY_RUN_H

#include "training/trainer.c"

#include "kit.h"

static int fuzz_no_sync(int fd)
{
    (void)fd;
    return 0;
}

static inline void tiny_ok(int rc, const struct err *e)
{
    if (rc < 0)
        fprintf(stderr, "%s\n", e->text);
    need(rc == 0);
}

/* Opens run NAME of the folder, of a method, and trains it for two steps of a hundred. */
static inline void tiny_open(struct trainer *t, const char *name, const char *method)
{
    static struct fs_ops ops;
    const char *key[] = {"model.layers=6",
                         "model.dim=8",
                         "model.heads=1",
                         "model.vocab=300",
                         "model.max_seq=32",
                         "data.docs=7",
                         "data.val_fraction=0.2",
                         "data.tokenizer=bytes",
                         "train.batch=2",
                         "train.seq=8",
                         "train.steps=100",
                         "train.warmup=2",
                         "train.probes=1",
                         "train.probe_tokens=8",
                         "train.eval_tokens=16",
                         "train.samples=4",
                         "train.time_rounds=1",
                         "train.system_every=0",
                         "threads=1",
                         method};
    struct train_config c;
    struct err e = {0};
    char dir[1024];
    ops = *fs_ops_get();
    ops.fsync = ops.fdatasync = fuzz_no_sync;
    fs_ops_set(&ops);
    log_to(fuzz_hush, NULL);
    snprintf(dir, sizeof dir, "%s", fuzz_path(name));
    tiny_ok(train_config_make(&c, NULL, 0, key, DS_LEN(key), &e), &e);
    tiny_ok(trainer_create(dir, &c, 0, NULL, "fuzz", NULL, &e), &e);
    *t = (struct trainer){.version = "fuzz"};
    tiny_ok(trainer_open(t, dir, &c, 0, 0, &e), &e);
    train_config_release(&c);
    trainer_home_close(t->home); /* only a few can be held */
    t->home = -1;
    account_begin(&t->account);
    tiny_ok(train_step(t, &e), &e);
    tiny_ok(train_step(t, &e), &e);
}

/* What an input may change: kept, and put back before the next input. */
struct tiny_kept {
    struct train_state state;
    struct train_options options;
    double live[16]; /* of the method's rows that can be set */
    void *block;
};

static inline double tiny_number(const struct trainer *t, const struct opt *row)
{
    char text[64];
    opt_print(row, t->model->route.opts, text, sizeof text);
    return strtod(text, NULL);
}

static inline void tiny_keep(struct tiny_kept *k, const struct trainer *t)
{
    const struct params *ps = &t->model->params;
    const struct route_ops *ops = t->model->route.ops;
    k->state = t->state;
    k->options = t->config.train;
    for (size_t i = 0, n = 0; i < ops->n_opts; i++)
        if (ops->opts[i].is_live)
            k->live[n++] = tiny_number(t, &ops->opts[i]);
    need((k->block = malloc(ps->block_bytes)) != NULL);
    memcpy(k->block, ps->block, ps->block_bytes);
}

static inline void tiny_reset(struct trainer *t, const struct tiny_kept *k)
{
    struct params *ps = &t->model->params;
    struct route *r = &t->model->route;
    struct err e = {0};
    t->state = k->state;
    t->config.train = k->options;
    for (size_t i = 0, n = 0; i < r->ops->n_opts; i++)
        if (r->ops->opts[i].is_live)
            tiny_ok(route_set(r, &r->ops->opts[i], k->live[n++], &e), &e);
    memcpy(ps->block, k->block, ps->block_bytes);
    params_changed(ps);
    t->n_live = 0;
    t->saved_step = -1;
}

#endif
