/* Checkpoints of a run: everything that the next step depends on, so that a resumed run is the same run. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "data/corpus.h"
#include "data/tokenizer.h"
#include "io/checkpoint.h"
#include "models/load.h"
#include "training/trainer.h"

static void print_state(struct str *s, const struct trainer *t)
{
    const struct train_state *x = &t->state;
    str_addf(s, "{\n  \"step\": %" PRId64 ",\n  \"tokens\": %" PRId64 ",\n  \"skipped\": %" PRId64 ",\n", x->step, x->tokens,
             x->skipped);
    str_addf(s, "  \"bad_in_row\": %" PRId64 ",\n  \"best_step\": %" PRId64 ",\n", x->bad_in_row, x->best_step);
    str_addf(s, "  \"best_loss\": \"%a\",\n  \"seconds\": \"%a\",\n  \"lr\": \"%a\",\n", x->best_loss, x->seconds,
             t->config.train.lr);
    str_addf(s, "  \"epoch\": \"%" PRIu64 "\",\n  \"window\": \"%" PRIu64 "\",\n", x->pos.epoch, x->pos.window);
    str_addf(s, "  \"corpus\": \"%016" PRIx64 "\",\n  \"tokenizer\": \"%016" PRIx64 "\",\n", corpus_hash(t->corpus),
             tokenizer_hash(t->tokenizer));
    str_add(s, "  \"live\": {");
    for (int i = 0; i < t->n_live; i++)
        str_addf(s, "%s\"%s\": \"%a\"", i ? ", " : "", t->live[i].key, t->live[i].value);
    str_add(s, "}\n}\n");
}

static int write_state(const struct trainer *t, const char *dir, struct err *e)
{
    char path[1200];
    struct str s = {0};
    print_state(&s, t);
    int rc = s.failed ? err_set(e, DS_EMEM, "state.json") : fs_join(path, sizeof path, dir, "state.json", e);
    if (rc == 0)
        rc = fs_write_file(path, s.p, s.len, e);
    str_release(&s);
    return rc;
}

static int write_files(const struct trainer *t, const char *dir, struct err *e)
{
    char path[1200];
    int rc = fs_join(path, sizeof path, dir, "model.safetensors", e);
    if (rc == 0)
        rc = model_write_weights(t->model, path, 0, e);
    if (rc == 0)
        rc = fs_join(path, sizeof path, dir, "optimizer.safetensors", e);
    if (rc == 0)
        rc = model_write_weights(t->model, path, 1, e);
    if (rc == 0)
        rc = fs_join(path, sizeof path, dir, "config.json", e);
    if (rc == 0)
        rc = model_write_config(t->model, path, e);
    if (rc == 0)
        rc = fs_join(path, sizeof path, dir, "tokenizer.json", e);
    if (rc == 0)
        rc = tokenizer_save(t->tokenizer, path, e);
    return rc == 0 ? write_state(t, dir, e) : rc;
}

/* best.json names the checkpoint that a run stands for when it is used as a model. */
static int write_best(const struct trainer *t, struct err *e)
{
    char path[1200], text[128];
    int rc = fs_join(path, sizeof path, t->dir, "best.json", e);
    if (rc < 0 || t->state.best_step < 0)
        return rc;
    int n = snprintf(text, sizeof text, "{\"step\": %" PRId64 ", \"val_loss\": %.9g}\n", t->state.best_step,
                     t->state.best_loss);
    return fs_write_file(path, text, (size_t)n, e);
}

int trainer_save(struct trainer *t, struct err *e)
{
    struct checkpoint_tx tx;
    char root[1100];
    uint64_t bytes = t->model->params.block_bytes + (1 << 20);
    int rc = fs_join(root, sizeof root, t->dir, "checkpoints", e);
    if (rc == 0)
        rc = fs_mkdirs(root, e);
    if (rc == 0)
        rc = checkpoint_begin(&tx, root, t->state.step, bytes, e);
    if (rc < 0)
        return err_add(e, rc, "checkpoint at step %" PRId64, t->state.step);
    rc = write_files(t, tx.dir, e);
    if (rc == 0)
        rc = runlog_writer_sync(t->log, e);
    if (rc == 0)
        rc = checkpoint_commit(&tx, e);
    if (rc == DS_EEXIST)
        rc = 0; /* this step is there and verifies */
    checkpoint_abort(&tx);
    if (rc == 0)
        rc = write_best(t, e);
    if (rc == 0)
        rc = checkpoint_prune(root, (int)t->config.train.keep, t->state.best_step, 0, e);
    return rc < 0 ? err_add(e, rc, "checkpoint at step %" PRId64, t->state.step) : 0;
}

static double hex_num(const struct json_node *n, double otherwise)
{
    const char *s = json_str(n, NULL);
    return s ? strtod(s, NULL) : otherwise;
}

static int check_hash(const struct json_node *n, uint64_t now, const char *what, int allow_change, struct err *e)
{
    char text[17];
    const char *was = json_str(n, NULL);
    snprintf(text, sizeof text, "%016" PRIx64, now);
    if (!was || strcmp(was, text) == 0)
        return 0;
    if (!allow_change)
        return err_set(e, DS_EFORMAT, "the %s is not the one that the run was started with (hash %s, was %s); "
                                      "--allow-change goes on all the same", what, text, was);
    log_warn("the %s has changed since the run was started (hash %s, was %s)", what, text, was);
    return 0;
}

static int apply_live(struct trainer *t, const struct json_node *live, struct err *e)
{
    const char *key;
    const struct json_node *v;
    int rc = 0;
    for (size_t i = 0; rc == 0 && (v = json_member(live, i, &key, NULL)) != NULL; i++)
        rc = trainer_set(t, key, hex_num(v, 0), e);
    return rc;
}

static int read_state(struct trainer *t, const char *dir, int allow_change, struct err *e)
{
    char path[1200];
    struct json *j = NULL;
    struct train_state *x = &t->state;
    int rc = fs_join(path, sizeof path, dir, "state.json", e);
    if (rc == 0)
        rc = json_read_file(&j, path, 1 << 20, e);
    if (rc < 0)
        return rc;
    const struct json_node *n = json_root(j);
    const char *epoch = json_str(json_get(n, "epoch"), NULL), *window = json_str(json_get(n, "window"), NULL);
    if (!epoch || !window || json_int(json_get(n, "step"), -1) < 0)
        rc = err_set(e, DS_EFORMAT, "%s: step, epoch or window is missing", path);
    else
        rc = check_hash(json_get(n, "corpus"), corpus_hash(t->corpus), "corpus", allow_change, e);
    if (rc == 0)
        rc = check_hash(json_get(n, "tokenizer"), tokenizer_hash(t->tokenizer), "tokenizer", allow_change, e);
    if (rc == 0) {
        x->step = json_int(json_get(n, "step"), 0);
        x->tokens = json_int(json_get(n, "tokens"), 0);
        x->skipped = json_int(json_get(n, "skipped"), 0);
        x->bad_in_row = json_int(json_get(n, "bad_in_row"), 0);
        x->best_step = json_int(json_get(n, "best_step"), -1);
        x->best_loss = hex_num(json_get(n, "best_loss"), INFINITY);
        x->seconds = hex_num(json_get(n, "seconds"), 0);
        x->pos.epoch = strtoull(epoch, NULL, 10);
        x->pos.window = strtoull(window, NULL, 10);
        rc = apply_live(t, json_get(n, "live"), e);
        if (rc == 0)
            t->config.train.lr = hex_num(json_get(n, "lr"), t->config.train.lr);
    }
    json_free(j);
    return rc;
}

int trainer_restore(struct trainer *t, int allow_change, struct err *e)
{
    char root[1100], dir[1100], path[1200];
    int64_t step;
    int rc = fs_join(root, sizeof root, t->dir, "checkpoints", e);
    if (rc == 0 && !fs_is_dir(root))
        return 0; /* killed before the first checkpoint: from the beginning */
    if (rc == 0)
        rc = checkpoint_latest(root, dir, sizeof dir, &step, e);
    if (rc == DS_ENOTFOUND)
        return 0;
    if (rc == 0)
        rc = fs_join(path, sizeof path, dir, "model.safetensors", e);
    if (rc == 0)
        rc = model_read_weights(t->model, path, 0, e);
    if (rc == 0)
        rc = fs_join(path, sizeof path, dir, "optimizer.safetensors", e);
    if (rc == 0)
        rc = model_read_weights(t->model, path, 1, e);
    if (rc == 0)
        rc = read_state(t, dir, allow_change, e);
    return rc < 0 ? err_add(e, rc, "resume from %s", dir) : 0;
}
