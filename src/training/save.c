/* Writes and reads a run's checkpoints: all state that the next step depends on. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "data/chat.h"
#include "data/corpus.h"
#include "data/tokenizer.h"
#include "io/checkpoint.h"
#include "models/load.h"
#include "training/start.h"
#include "training/team.h"
#include "training/trainer.h"

static void print_state(struct str *s, const struct trainer *t)
{
    const struct train_state *x = &t->state;
    str_addf(
        s, "{\n  \"step\": %" PRId64 ",\n  \"tokens\": %" PRId64 ",\n  \"skipped\": %" PRId64 ",\n",
        x->step, x->tokens, x->skipped);
    str_addf(s, "  \"bad_in_row\": %" PRId64 ",\n  \"best_step\": %" PRId64 ",\n", x->bad_in_row,
             x->best_step);
    str_addf(s, "  \"best_loss\": \"%a\",\n  \"seconds\": \"%a\",\n", x->best_loss, x->seconds);
    str_addf(s, "  \"epoch\": \"%" PRIu64 "\",\n  \"window\": \"%" PRIu64 "\",\n", x->pos.epoch,
             x->pos.window);
    str_addf(s, "  \"corpus\": \"%016" PRIx64 "\",\n  \"tokenizer\": \"%016" PRIx64 "\"\n}\n",
             corpus_hash(t->corpus), tokenizer_hash(t->tokenizer));
}

static int write_state(const struct trainer *t, const char *dir, struct err *e)
{
    struct str s = {0};
    print_state(&s, t);
    return fs_replace_text(dir, "state.json", &s, e);
}

/* ---- checkpoint contents ---- */

enum { OWN_ABOVE = 1000000000 }; /* bytes of a base as floats */

int train_saves_own(const struct train_config *c)
{
    const char *end = strrchr(c->train.init, '.');
    int is_of_run =
        strstr(c->train.init, "/checkpoints/step-") != NULL; /* that run removes old checkpoints */
    if (c->train.freeze != FREEZE_BASE || !c->train.init[0] || c->train.save == SAVE_ALL)
        return 0;
    return c->train.save == SAVE_OWN || (!is_of_run && end && strcmp(end, ".gguf") == 0) ||
           (!is_of_run && model_config_weights(&c->model) * 4 > OWN_ABOVE);
}

int trainer_find_base(struct trainer *t, struct err *e)
{
    char dir[1024];
    if (!train_saves_own(&t->config) || t->base.path[0])
        return 0;
    int rc = model_locate(t->config.train.init, dir, sizeof dir, e);
    if (rc == 0 && strstr(dir, "/checkpoints/step-"))
        log_warn(
            "%s: checkpoints depend on %s, which its run removes when it is resumed: keep a copy "
            "(depthscope convert) or set train.save=all",
            t->name, dir);
    if (rc == 0)
        rc = base_ref_make(&t->base, dir, e);
    return rc < 0 ? err_add(e, rc, "train.save=own") : 0;
}

static int write_all(const struct trainer *t, const char *dir, struct err *e)
{
    char path[1200];
    int rc = fs_join(path, sizeof path, dir, "model.safetensors", e);
    if (rc == 0)
        rc = model_write_weights(t->model, path, 0, e);
    if (rc == 0)
        rc = fs_join(path, sizeof path, dir, "config.json", e);
    return rc == 0 ? model_write_config(t->model, path, e) : rc;
}

static int write_own(const struct trainer *t, const char *dir, struct err *e)
{
    int rc = model_write_own(t->model, dir, &t->base, e);
    return rc == 0 ? model_write_own_config(t->model, dir, &t->base, e) : rc;
}

/* Bytes on disk: values, and moments of trained parameters. */
static uint64_t bytes_needed(const struct trainer *t)
{
    const struct params *ps = &t->model->params;
    uint64_t bytes = 1 << 20;
    for (int i = 0; i < ps->n; i++)
        if (!t->base.path[0] || adapters_is_own(t->model, i))
            bytes += ps->p[i].n * (ps->p[i].train ? 3 : 1) * sizeof(real);
    return bytes;
}

static int write_files(const struct trainer *t, const char *dir, struct err *e)
{
    char path[1200];
    int rc = t->base.path[0] ? write_own(t, dir, e) : write_all(t, dir, e);
    if (rc == 0) /* weights may be mapped from a file, which must not have changed */
        rc = stored_unchanged(t->model, e);
    if (rc < 0 || (rc = fs_join(path, sizeof path, dir, "optimizer.safetensors", e)) < 0 ||
        (rc = model_write_weights(t->model, path, 1, e)) < 0 ||
        (rc = fs_join(path, sizeof path, dir, "tokenizer.json", e)) < 0 ||
        (rc = tokenizer_save(t->tokenizer, path, e)) < 0 ||
        (rc = chat_copy(t->dir, NULL, dir, e)) < 0)
        return rc;
    return write_state(t, dir, e);
}

/* best.json names the checkpoint that is loaded when the run is used as a model. */
static int write_best(const struct trainer *t, struct err *e)
{
    struct str s = {0};
    if (t->state.best_step < 0)
        return 0;
    str_addf(&s, "{\"step\": %" PRId64 ", \"val_loss\": %.9g}\n", t->state.best_step,
             t->state.best_loss);
    return fs_replace_text(t->dir, "best.json", &s, e);
}

/* Rewrites a damaged best.json from the state of the newest checkpoint. */
static int repair_best(const struct trainer *t, struct err *e)
{
    char path[1200];
    struct json *j = NULL;
    struct err why = {0};
    struct stat st;
    int rc = fs_join(path, sizeof path, t->dir, "best.json", e);
    if (rc < 0 || fs_lstat(path, &st) != 0)
        return rc;
    rc = json_read_file(&j, path, 1 << 16, &why);
    if (fs_is_unreadable(path, rc)) {
        rc = err_set(e, rc, "%s", why.text);
    } else if (rc < 0) {
        log_warn("%s; rewriting it", why.text);
        rc = trainer_rename_broken(path, e);
        if (rc == 0)
            rc = write_best(t, e);
    }
    json_free(j);
    return rc;
}

int trainer_save(struct trainer *t, struct err *e)
{
    struct checkpoint_tx tx;
    struct err why = {0};
    char root[1100];
    int rc = fs_join(root, sizeof root, t->dir, "checkpoints", e);
    if (rc == 0)
        rc = fs_mkdirs(root, e);
    if (rc == 0)
        rc = checkpoint_begin(&tx, root, t->state.step, bytes_needed(t), e);
    if (rc < 0)
        return rc;
    str_copy(tx.run_id, sizeof tx.run_id, t->run_id);
    rc = write_files(t, tx.dir, e);
    if (rc == 0)
        rc = runlog_writer_sync(t->log, e);
    if (rc == 0)
        rc = checkpoint_commit(&tx, e);
    int is_there = rc == DS_EEXIST; /* a valid checkpoint of this step */
    if (is_there)
        rc = 0;
    checkpoint_abort(&tx);
    if (rc == 0)
        rc = write_best(t, e);
    /* the checkpoint is complete; the next save tries again */
    if (rc == 0 &&
        checkpoint_prune_after(&tx, (int)t->config.train.keep, t->state.best_step, 0, &why) < 0)
        log_warn("step %" PRId64 ": old checkpoints are not removed: %s", t->state.step, why.text);
    return rc < 0 ? rc : is_there;
}

static double hex_num(const struct json_node *n, double fallback)
{
    const char *s = json_str(n, NULL);
    return s ? strtod(s, NULL) : fallback;
}

static int check_hash(const struct json_node *n, uint64_t now, const char *what, int allow_change,
                      struct err *e)
{
    char text[17];
    const char *was = json_str(n, NULL);
    snprintf(text, sizeof text, "%016" PRIx64, now);
    if (!was || strcmp(was, text) == 0)
        return 0;
    if (!allow_change)
        return err_set(e, DS_EFORMAT,
                       "the %s has changed since the run was started (hash %s, expected %s); "
                       "--allow-change resumes anyway",
                       what, text, was);
    log_warn("the %s has changed since the run was started (hash %s, was %s)", what, text, was);
    return 0;
}

/* A number as print_state writes it, in a string because it may be beyond that of JSON. */
static int read_position(uint64_t *out, const struct json_node *n)
{
    char *end;
    const char *text = json_str(n, NULL);
    if (!text || *text < '0' || *text > '9')
        return 0;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *end == '\0' && errno == 0;
}

/* The next steps count on from these numbers: none may be one that no run reaches. */
static int parse_state(struct train_state *x, const struct json_node *n, const char *path,
                       struct err *e)
{
    const int64_t most = (int64_t)1 << 53;
    *x = (struct train_state){
        .step = json_int(json_get(n, "step"), -1),
        .tokens = json_int(json_get(n, "tokens"), 0),
        .skipped = json_int(json_get(n, "skipped"), 0),
        .bad_in_row = json_int(json_get(n, "bad_in_row"), 0),
        .best_step = json_int(json_get(n, "best_step"), -1),
        .best_loss = hex_num(json_get(n, "best_loss"), (double)INFINITY),
        .seconds = hex_num(json_get(n, "seconds"), 0),
    };
    if (x->step < 0 || !read_position(&x->pos.epoch, json_get(n, "epoch")) ||
        !read_position(&x->pos.window, json_get(n, "window")))
        return err_set(e, DS_EFORMAT, "%s: missing or malformed step, epoch or window", path);
    if (x->step > most || x->tokens < 0 || x->tokens > most || x->skipped < 0 ||
        x->skipped > x->step || x->bad_in_row < 0 || x->bad_in_row > x->skipped)
        return err_set(e, DS_EFORMAT,
                       "%s: step, tokens, skipped or bad_in_row is not that of a run", path);
    if (x->best_step < -1 || x->best_step > x->step || isnan(x->best_loss) ||
        !isfinite(x->seconds) || x->seconds < 0)
        return err_set(e, DS_EFORMAT, "%s: best_step, best_loss or seconds is not that of a run",
                       path);
    return 0;
}

static int read_state(struct trainer *t, const char *dir, int allow_change, struct err *e)
{
    char path[1200];
    struct json *j = NULL;
    struct train_state x;
    int rc = fs_join(path, sizeof path, dir, "state.json", e);
    if (rc == 0)
        rc = json_read_file(&j, path, 1 << 20, e);
    if (rc < 0)
        return rc;
    const struct json_node *n = json_root(j);
    rc = parse_state(&x, n, path, e);
    if (rc == 0)
        rc = check_hash(json_get(n, "corpus"), corpus_hash(t->corpus), "corpus", allow_change, e);
    if (rc == 0)
        rc = check_hash(json_get(n, "tokenizer"), tokenizer_hash(t->tokenizer), "tokenizer",
                        allow_change, e);
    if (rc == 0 && x.step > t->config.train.steps)
        rc = err_set(e, DS_EUSAGE,
                     "train.steps=%lld: must be at least %lld, the step of the newest checkpoint",
                     (long long)t->config.train.steps, (long long)x.step);
    if (rc == 0)
        t->state = x;
    json_free(j);
    return rc;
}

/* The newest step with a checkpoint directory, complete or not; -1 = none. */
static int newest_step(int64_t *out, const char *root, struct err *e)
{
    char **names = NULL;
    size_t n = 0;
    int64_t newest = -1, step;
    int used = 0, rc = fs_exists(root) ? fs_list(root, &names, &n, e) : 0;
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n; i++)
        if (sscanf(names[i], "step-%" SCNd64 "%n", &step, &used) == 1 && names[i][used] == '\0' &&
            step > newest)
            newest = step;
    fs_list_free(names, n);
    *out = newest;
    return 0;
}

/* *found: 1 when a checkpoint exists, damaged or not. */
static int find_checkpoint(struct trainer *t, int *found, const char *root, char *dir, size_t size,
                           struct err *e)
{
    checkpoint_recover(root);
    checkpoint_sweep(root);
    int64_t step = -1, newest = -1;
    int rc = newest_step(&newest, root, e);
    *found = newest >= 0;
    if (rc < 0)
        return rc;
    rc = *found ? checkpoint_latest(root, dir, size, &step, e) : 0;
    if (rc == 0 && *found)
        rc = checkpoint_check_run(dir, t->run_id, e);
    t->resumed_level = LOG_INFO;
    if (newest < 0 && runlog_writer_step(t->log) > 0) {
        t->resumed_level = LOG_WARN;
        snprintf(t->resumed_from, sizeof t->resumed_from,
                 "no checkpoint: from the start, although log.mp reaches step %" PRId64,
                 runlog_writer_step(t->log));
    } else if (newest < 0)
        snprintf(t->resumed_from, sizeof t->resumed_from, "no checkpoint yet: from the start");
    else if (rc == 0 && step == newest && t->parent[0] && !runlog_writer_has_head(t->log))
        snprintf(t->resumed_from, sizeof t->resumed_from, "begins with step %" PRId64 " of %s",
                 step, t->parent);
    else if (rc == 0 && step == newest && !runlog_writer_has_head(t->log)) {
        t->resumed_level = LOG_WARN;
        snprintf(t->resumed_from, sizeof t->resumed_from,
                 "from the checkpoint of step %" PRId64 "; log.mp had lost its records", step);
    } else if (rc == 0 && step == newest)
        snprintf(t->resumed_from, sizeof t->resumed_from, "from the checkpoint of step %" PRId64,
                 step);
    else if (rc == 0) {
        t->resumed_level = LOG_WARN;
        snprintf(t->resumed_from, sizeof t->resumed_from,
                 "the checkpoint of step %" PRId64 " is corrupt: from that of step %" PRId64,
                 newest, step);
    } else if (rc == DS_ENOTFOUND)
        return err_set(e, DS_EFORMAT,
                       "%s: all checkpoints are corrupt, the newest is of step %" PRId64, root,
                       newest);
    return rc;
}

/* Reads either kind of checkpoint; one without its base records the base's path, which overrides
 * train.init. */
static int read_model(struct trainer *t, const char *dir, struct err *e)
{
    char path[1200], base[1024];
    struct str notes = {0};
    int rc = model_base(dir, base, sizeof base, e);
    if (rc < 0)
        return rc;
    if (rc == 0) {
        rc = fs_join(path, sizeof path, dir, "model.safetensors", e);
        return rc == 0 ? model_read_weights(t->model, path, 0, e) : rc;
    }
    rc = model_start_from(t->model, base, &notes, e);
    if (rc == 0)
        rc = model_read_own(t->model, dir, NULL, e);
    str_release(&notes);
    return rc == 0 && train_saves_own(&t->config) ? base_ref_make(&t->base, base, e) : rc;
}

/* A forked run lacks earlier checkpoints: one that does not exist cannot be the best. */
static int forget_lost_best(struct trainer *t, const char *root, struct err *e)
{
    char dir[1200], name[40];
    snprintf(name, sizeof name, "step-%08" PRId64, t->state.best_step);
    int rc = fs_join(dir, sizeof dir, root, name, e);
    t->saved_step = t->state.step;
    if (rc == 0 && t->state.best_step != t->state.step && !fs_exists(dir)) {
        t->state.best_step = -1;
        t->state.best_loss = (double)INFINITY;
    }
    return rc;
}

int trainer_restore(struct trainer *t, int allow_change, struct err *e)
{
    char root[1100], dir[1100] = "", path[1200];
    int found = 0, rc = fs_join(root, sizeof root, t->dir, "checkpoints", e);
    if (rc == 0 && !team_follows() && (rc = trainer_apply_live(t, e)) == 0)
        rc = find_checkpoint(t, &found, root, dir, sizeof dir, e);
    if ((rc = team_share(&found, sizeof found, rc, e)) < 0 ||
        (rc = team_share(dir, sizeof dir, team_share_live(t, e), e)) < 0)
        goto out;
    if (!found)
        return start_weights(t, e); /* killed before the first checkpoint */
    if ((rc = read_model(t, dir, e)) < 0 ||
        (rc = fs_join(path, sizeof path, dir, "optimizer.safetensors", e)) < 0 ||
        (rc = model_read_weights(t->model, path, 1, e)) < 0 ||
        (rc = read_state(t, dir, allow_change, e)) < 0 || (rc = forget_lost_best(t, root, e)) < 0)
        goto out;
    if (!team_follows())
        rc = repair_best(t, e);
out:
    return rc < 0 ? err_add(e, rc, "resume of %s", t->dir) : 0;
}
