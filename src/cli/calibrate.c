/* depthscope calibrate MODEL: fits inference thresholds per capacity on held-out text and stores
 * them with the model. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/pool.h"
#include "cli/cli.h"
#include "eval/perplexity.h"
#include "io/checkpoint.h"
#include "io/runlog.h"
#include "models/load.h"
#include "models/peft.h"

struct cli_option calibrate_options[] = {
    {.name = "o",
     .has_value = 1,
     .help = "DIR  write the model into a new directory instead of its own checkpoint"},
    {.name = NULL},
};
enum { TOKENS_EACH = 1 << 15 };

static const char model_file[] = "model.safetensors";

/* ---- destination ---- */

/* Chooses the destination; a run's log stays locked until the end, so that no other process writes
 * its checkpoints. */
static int claim_target(struct runlog_writer **lock, const struct subject *s, const char *to,
                        struct err *e)
{
    char log[1200];
    struct err why = {0};
    if (to)
        return fs_exists(to)
                   ? err_set(e, DS_EEXIST, "%s exists; use -o to name a new directory", to)
                   : 0;
    if (!s->run_dir[0])
        return err_set(e, DS_EUSAGE, "%s: not a checkpoint of a run; use -o DIR", s->dir);
    int rc = fs_join(log, sizeof log, s->run_dir, "log.mp", e);
    if (rc == 0)
        rc = runlog_writer_open(lock, log, &why);
    if (rc == DS_EBUSY)
        return err_set(
            e, DS_EBUSY,
            "%s: calibrate after training has ended (training calibrates at its end by itself)",
            why.text);
    return rc < 0 && why.code ? err_set(e, why.code, "%s", why.text) : rc;
}

static int write_to_directory(const struct subject *s, const char *to, struct err *e)
{
    char path[1200];
    int rc = fs_mkdirs(to, e);
    if (rc == 0)
        rc = fs_join(path, sizeof path, to, model_file, e);
    if (rc == 0)
        rc = model_write_weights(s->model, path, 0, e);
    if (rc == 0)
        rc = fs_join(path, sizeof path, to, "tokenizer.json", e);
    if (rc == 0)
        rc = tokenizer_save(s->tokenizer, path, e);
    if (rc == 0) /* last: this file makes it a model */
        rc = fs_join(path, sizeof path, to, "config.json", e);
    return rc == 0 ? model_write_config(s->model, path, e) : rc;
}

static int copy_file(const char *from, const char *to, const char *name, struct err *e)
{
    char a[1200], b[1200];
    struct fs_map map;
    int rc = fs_join(a, sizeof a, from, name, e);
    if (rc == 0)
        rc = fs_join(b, sizeof b, to, name, e);
    if (rc == 0)
        rc = fs_map_open(&map, a, e);
    if (rc < 0)
        return rc;
    rc = fs_write_file(b, map.p, map.n, e);
    fs_map_close(&map);
    return rc;
}

/* Everything in the checkpoint except the weights, so that a run can still resume from it. */
static int copy_rest(const struct subject *s, const char *to, struct err *e)
{
    char **names = NULL;
    size_t n = 0;
    int rc = fs_list(s->dir, &names, &n, e);
    for (size_t i = 0; i < n && rc == 0; i++)
        if (strcmp(names[i], model_file) != 0 && strcmp(names[i], "manifest.json") != 0)
            rc = copy_file(s->dir, to, names[i], e);
    fs_list_free(names, n);
    return rc;
}

/* The files that a checkpoint with an external base needs. */
static int write_weights(const struct subject *s, const char *to, struct err *e)
{
    char path[1200], base[1024];
    struct base_ref ref;
    int rc = model_base(s->dir, base, sizeof base, e);
    if (rc == 1) {
        rc = base_ref_make(&ref, base, e);
        return rc == 0 ? model_write_own(s->model, to, &ref, e) : rc;
    }
    if (rc == 0)
        rc = fs_join(path, sizeof path, to, model_file, e);
    return rc == 0 ? model_write_weights(s->model, path, 0, e) : rc;
}

static uint64_t bytes_written(const struct model *m)
{
    return (uint64_t)params_count(&m->params) * sizeof(float) + (1 << 20);
}

/* A new directory for the same step replaces the old one once all of it is on disk. */
static int write_to_run(const struct subject *s, struct err *e)
{
    struct checkpoint_tx tx = {0};
    char root[1024];
    const char *name = strrchr(s->dir, '/');
    int64_t step = -1;
    if (!name || sscanf(name, "/step-%" SCNd64, &step) != 1 || step < 0)
        return err_set(e, DS_EUSAGE, "%s: not a checkpoint name, expected step-N; use -o DIR",
                       s->dir);
    int rc = str_copy(root, sizeof root, s->dir) ? DS_ERANGE : 0;
    if (rc == 0) {
        *strrchr(root, '/') = '\0';
        rc = checkpoint_begin(&tx, root, step, bytes_written(s->model), e);
    }
    if (rc < 0)
        return rc;
    tx.replaces = 1;
    rc = copy_rest(s, tx.dir, e);
    if (rc == 0)
        rc = write_weights(s, tx.dir, e);
    if (rc == 0)
        rc = checkpoint_commit(&tx, e);
    checkpoint_abort(&tx);
    return rc;
}

/* ---- calibration ---- */

/* Evaluation settings without effect here are refused: the table of thresholds covers every
 * capacity. */
static int check_settings(const struct cli_args *a, const struct ppl_options *o, struct err *e)
{
    static const char *const unused[] = {
        "routing",     "capacity", "capacities", "controls",         "target_speedup", "speedup_by",
        "time_rounds", "windows",  "stride",     "threshold_offset", "task",           "shots",
        "limit",       "max_gen",  "results",    "exit.layer"};
    for (size_t i = 0; i < DS_LEN(unused); i++)
        if (cli_has_setting(a, &ppl_group, unused[i]))
            return err_set(
                e, DS_EUSAGE,
                "%s=: unsupported by calibrate, which fits thresholds for every capacity "
                "(use %s= with eval)",
                unused[i], unused[i]);
    if (o->numbers.weights != QUANT_NONE && o->numbers.weights != WEIGHTS_AUTO)
        return err_set(e, DS_EUSAGE,
                       "weights=%s: unsupported by calibrate, which writes the model's own weights "
                       "(use weights= with eval, generate or trace)",
                       quant_name[o->numbers.weights]);
    return 0;
}

/* Text that the final evaluation does not read: after its windows, else the training text.  *where
 * names which. */
static int open_text(struct ppl **p, struct subject *s, struct ppl_options *o, const char **where,
                     struct err *e)
{
    int rc = ppl_open(p, s, o, e);
    *where = "";
    if (rc < 0 || !ppl_is_scored(*p))
        return rc;
    *where = " after the windows of the final evaluation";
    if (ppl_skip_scored(*p))
        return 0;
    ppl_close(*p);
    *p = NULL;
    if (o->split == PPL_SPLIT_VAL)
        return err_set(e, DS_ERANGE,
                       "split=val: too few windows after those of the final evaluation; "
                       "use fewer tokens= or split=train");
    *where = " (too few windows in the validation split after those of the final evaluation)";
    o->split = PPL_SPLIT_TRAIN;
    return ppl_open(p, s, o, e);
}

static int calibrate(struct subject *s, struct ppl_options *o, const char *to, struct err *e)
{
    struct ppl *p = NULL;
    struct runlog_writer *lock = NULL;
    struct numeric_options keep = s->model->weights.numbers;
    const char *where = "";
    if (!s->model->route.ops->calibrate)
        return err_set(e, DS_EUSAGE, "%s: the method has nothing to calibrate",
                       s->model->config.method);
    o->routing = PPL_DENSE; /* only the text is needed: causal routing may not be calibrated yet */
    if (o->tokens == 0)
        o->tokens = TOKENS_EACH;
    int rc = claim_target(&lock, s, to, e);
    if (rc < 0 || (rc = weights_use(s->model, &keep, e)) < 0 ||
        (rc = weights_ready(s->model, e)) < 0 || (rc = open_text(&p, s, o, &where, e)) < 0 ||
        (rc = model_calibrate(s->model, ppl_batches(p), ppl_batch, p, ppl_seed(p), e)) < 0)
        goto out;
    rc = to ? write_to_directory(s, to, e) : write_to_run(s, e);
    if (rc == 0)
        log_info("calibrated %d capacities on %lld tokens of %s%s; wrote %s", (int)ROUTE_GRID,
                 (long long)ppl_tokens(p), ppl_data(p), where, to ? to : s->dir);
out:
    ppl_close(p);
    runlog_writer_close(lock);
    return rc;
}

int calibrate_command(int argc, char **argv)
{
    struct err e = {0};
    struct cli_args a;
    struct ppl_options o = {0};
    struct subject s = {0};
    const char *model;
    int rc = cli_parse(&a, calibrate_options, argc, argv, &e);
    if (rc < 0)
        return command_fail(&e);
    rc = cli_apply(&a, &ppl_group, &o, &e);
    if (rc == 0) {
        rc = cli_single(&a, "calibrate", "MODEL", &model, &e);
        if (rc == 0)
            rc = check_settings(&a, &o, &e);
        if (rc == 0)
            rc = pool_start((int)o.threads, &e);
        if (rc == 0)
            rc = subject_open(&s, model, &o.numbers, &e);
        if (rc == 0)
            rc = calibrate(&s, &o, cli_value(&a, "o"), &e);
        opt_release(&ppl_group, &o);
    }
    subject_close(&s);
    pool_stop();
    cli_release(&a);
    return rc < 0 ? command_fail(&e) : 0;
}
