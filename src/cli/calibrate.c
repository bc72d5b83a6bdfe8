/* depthscope calibrate MODEL: fits inference thresholds per capacity on held-out text and stores
 * them with the model; with risk=, also the least capacity that a test certifies. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/pool.h"
#include "cli/cli.h"
#include "data/chat.h"
#include "eval/perplexity.h"
#include "eval/risk.h"
#include "io/checkpoint.h"
#include "io/runlog.h"
#include "models/load.h"
#include "models/peft.h"

struct cli_option calibrate_options[] = {
    {.name = "json", .help = "one JSON object on stdout"},
    {.name = "o",
     .has_value = 1,
     .help = "DIR  write the model into a new directory instead of its own checkpoint"},
    {.name = NULL},
};
/* With risk= the text after TOKENS_EACH is tested. */
enum { TOKENS_EACH = 1 << 15, TOKENS_RISK = 3 << 15 };

static const char model_file[] = "model.safetensors", config_file[] = "config.json";

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
    char path[1200], base[1024];
    int has_base = model_base(s->dir, base, sizeof base, NULL) == 1;
    int rc = fs_mkdirs(to, e);
    if (rc == 0)
        rc = fs_join(path, sizeof path, to, model_file, e);
    if (rc == 0)
        rc = model_write_weights(s->model, path, 0, e);
    if (rc == 0)
        rc = fs_join(path, sizeof path, to, "tokenizer.json", e);
    if (rc == 0)
        rc = tokenizer_save(s->tokenizer, path, e);
    if (rc == 0)
        rc = chat_copy(s->dir, has_base ? base : NULL, to, e);
    if (rc == 0) /* last: this file makes it a model */
        rc = fs_join(path, sizeof path, to, config_file, e);
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

/* Everything in the checkpoint except the weights and their configuration, so that a run can still
 * resume from it. */
static int copy_rest(const struct subject *s, const char *to, struct err *e)
{
    char **names = NULL;
    size_t n = 0;
    int rc = fs_list(s->dir, &names, &n, e);
    for (size_t i = 0; i < n && rc == 0; i++)
        if (strcmp(names[i], model_file) != 0 && strcmp(names[i], config_file) != 0 &&
            strcmp(names[i], "manifest.json") != 0)
            rc = copy_file(s->dir, to, names[i], e);
    fs_list_free(names, n);
    return rc;
}

/* The files that a checkpoint with an external base needs. */
static int write_model(const struct subject *s, const char *to, struct err *e)
{
    char path[1200], base[1024];
    struct base_ref ref;
    int rc = model_base(s->dir, base, sizeof base, e);
    if (rc == 1) {
        rc = base_ref_make(&ref, base, e);
        if (rc == 0)
            rc = model_write_own(s->model, to, &ref, e);
        return rc == 0 ? model_write_own_config(s->model, to, &ref, e) : rc;
    }
    if (rc == 0)
        rc = fs_join(path, sizeof path, to, model_file, e);
    if (rc == 0)
        rc = model_write_weights(s->model, path, 0, e);
    if (rc == 0)
        rc = fs_join(path, sizeof path, to, config_file, e);
    return rc == 0 ? model_write_config(s->model, path, e) : rc;
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
        rc = write_model(s, tx.dir, e);
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

/* Which methods have a capacity, for an error. */
static int check_capacity(const struct model *m, struct err *e)
{
    struct str names = {0};
    if (m->route.ops->flags & ROUTE_CAPACITY)
        return 0;
    for (size_t i = 0; route_all()[i]; i++)
        if (route_all()[i]->flags & ROUTE_CAPACITY)
            str_addf(&names, "%s%s", names.len ? ", " : "", route_all()[i]->name);
    int rc = err_set(e, DS_EUSAGE, "risk=: %s has no capacity setting; expected one of %s",
                     m->config.method, str_text(&names));
    str_release(&names);
    return rc;
}

/* Text that the final evaluation does not read: after its windows, else the training text.  *where
 * names which.  is_rest: of the text after those windows, what is left is enough. */
static int open_text(struct ppl **p, struct subject *s, struct ppl_options *o, int is_rest,
                     const char **where, struct err *e)
{
    int is_all = ppl_lacks_val(s, o);
    if (is_all)
        o->split = PPL_SPLIT_TRAIN;
    int rc = ppl_open(p, s, o, e);
    *where = is_all ? " (the run has no validation split)" : "";
    if (rc < 0 || !ppl_is_scored(*p))
        return rc;
    *where = " after the windows of the final evaluation";
    if (is_rest ? ppl_skip_to_rest(*p, 2 * o->batch) : ppl_skip_scored(*p))
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

/* Fits the thresholds and, with t, certifies a capacity. */
static int fit(struct subject *s, struct ppl *p, struct risk_table *t, struct err *e)
{
    struct model *m = s->model;
    m->route.capacity = -1; /* certified with other thresholds */
    if (!t)
        return model_calibrate(m, ppl_batches(p), ppl_batch, p, ppl_seed(p), NULL, e);
    int rc = risk_calibrate(t, p, e);
    if (rc < 0)
        return rc;
    if (isnan(t->capacity))
        return err_set(
            e, DS_ERANGE,
            t->least < 1 ? "risk=%g: no capacity meets it at delta=%g on %zu sequences; the lowest "
                           "risk that this text certifies is %.4f; use a higher risk=, or more "
                           "text (tokens=)"
                         : "risk=%g: no capacity meets it at delta=%g on %zu sequences, nor any "
                           "other risk; use more text (tokens=)",
            t->limit, t->delta, t->units, ceil(1e4 * t->least) / 1e4);
    m->route.capacity = t->capacity;
    return 0;
}

/* ---- output ---- */

struct outcome {
    const struct subject *s;
    const struct ppl *p;
    const struct risk_table *risk; /* NULL: thresholds only */
    const char *where, *target;
};

/* What a certified capacity promises. */
static void add_guarantee(struct str *out, const struct risk_table *t)
{
    str_addf(out,
             "with probability at least %g over the calibration text, the expected loss per token "
             "of a sequence rises by at most %g nats (a sequence's rise counted from 0 to 1)",
             1 - t->delta, t->limit);
}

static void add_table(struct str *out, const struct outcome *x)
{
    static const char *const title[] = {"capacity", "n", "loss", "mean rise", "p", ""};
    const struct risk_table *t = x->risk;
    struct table grid;
    cli_add_safe(out, x->s->dir, strlen(x->s->dir), -1);
    str_addf(out, ": %s, sequences of %lld tokens of ", x->s->model->config.method,
             (long long)t->seq);
    cli_add_safe(out, ppl_data(x->p), strlen(ppl_data(x->p)), -1);
    str_addf(out,
             "%s: the first %lld fit thresholds, the next %zu are tested; dense "
             "loss %.4f\n",
             x->where, (long long)t->fitted, t->units, t->dense);
    table_init(&grid, DS_LEN(title));
    for (size_t c = 0; c < DS_LEN(title); c++)
        table_add(&grid, title[c]);
    for (size_t i = 0; i < t->rows; i++) {
        table_addf(&grid, "%.2f", t->row[i].capacity);
        table_addf(&grid, "%zu", t->units);
        table_addf(&grid, "%.4f", t->row[i].loss);
        table_addf(&grid, "%.5f", t->row[i].risk);
        table_addf(&grid, "%.2g", t->row[i].p);
        table_add(&grid, t->row[i].is_certified ? "certified" : "not certified");
    }
    table_print(&grid, out);
    table_release(&grid);
    str_addf(out, "capacity=%g: ", t->capacity);
    add_guarantee(out, t);
    str_add(out, "\n");
}

static void add_json(struct str *out, const struct outcome *x)
{
    const struct risk_table *t = x->risk;
    struct str text = {0};
    str_add(out, "{");
    json_add_str(out, "model", x->s->dir);
    json_add_str(out, "method", x->s->model->config.method);
    json_add_str(out, "data", ppl_data(x->p));
    json_add_str(out, "wrote", x->target);
    json_add_int(out, "capacities", ROUTE_GRID);
    if (!t) {
        json_add_int(out, "tokens", ppl_tokens(x->p));
        str_add(out, "}\n");
        return;
    }
    add_guarantee(&text, t);
    json_add_int(out, "tokens", t->fitted * t->seq);
    json_add_num(out, "risk", t->limit);
    json_add_num(out, "delta", t->delta);
    json_add_num(out, "capacity", t->capacity);
    json_add_num(out, "dense_loss", t->dense);
    json_add_str(out, "guarantee", str_text(&text));
    json_add_int(out, "fitted_sequences", t->fitted);
    json_add_int(out, "tested_sequences", (int64_t)t->units);
    json_key(out, "rows");
    str_add(out, "[");
    for (size_t i = 0; i < t->rows; i++) {
        json_key(out, NULL);
        str_add(out, "{");
        json_add_num(out, "capacity", t->row[i].capacity);
        json_add_int(out, "n", (int64_t)t->units);
        json_add_num(out, "loss", t->row[i].loss);
        json_add_num(out, "risk", t->row[i].risk);
        json_add_num(out, "p", t->row[i].p);
        json_add_int(out, "certified", t->row[i].is_certified);
        str_add(out, "}");
    }
    str_add(out, "]}\n");
    out->failed |= text.failed;
    str_release(&text);
}

static void report(struct str *out, const struct outcome *x, int is_json)
{
    if (is_json)
        add_json(out, x);
    else if (x->risk)
        add_table(out, x);
    log_info("calibrated %d capacities on %lld tokens of %s%s; wrote %s", (int)ROUTE_GRID,
             (long long)(x->risk ? x->risk->fitted * x->risk->seq : ppl_tokens(x->p)),
             ppl_data(x->p), x->where, x->target);
}

/* ---- the command ---- */

struct order {
    const char *to; /* directory; NULL: the model's own checkpoint */
    int is_json;
    struct risk_table *risk; /* NULL: thresholds only */
};

static int calibrate(struct subject *s, struct ppl_options *o, const struct order *want,
                     struct str *out, struct err *e)
{
    struct ppl *p = NULL;
    struct runlog_writer *lock = NULL;
    struct numeric_options keep = s->model->weights.numbers;
    const char *where = "";
    int is_rest = want->risk && o->tokens == 0;
    int rc = want->risk ? check_capacity(s->model, e) : 0;
    if (rc == 0 && !s->model->route.ops->calibrate && !want->risk)
        rc = err_set(e, DS_EUSAGE, "%s: the method has nothing to calibrate",
                     s->model->config.method);
    if (rc < 0)
        return rc;
    o->routing = PPL_DENSE; /* only the text is needed: causal routing may not be calibrated yet */
    if (o->tokens == 0)
        o->tokens = want->risk ? TOKENS_RISK : TOKENS_EACH;
    rc = claim_target(&lock, s, want->to, e);
    if (rc < 0 || (rc = weights_use(s->model, &keep, e)) < 0 ||
        (rc = weights_ready(s->model, e)) < 0 ||
        (rc = open_text(&p, s, o, is_rest, &where, e)) < 0 || (rc = fit(s, p, want->risk, e)) < 0)
        goto out;
    rc = want->to ? write_to_directory(s, want->to, e) : write_to_run(s, e);
    const struct outcome x = {s, p, want->risk, where, want->to ? want->to : s->dir};
    if (rc == 0)
        report(out, &x, want->is_json);
out:
    ppl_close(p);
    runlog_writer_close(lock);
    return rc;
}

/* What the model is to become before it is calibrated. */
struct change {
    char method[40];
    struct config options;
};

/* Takes model.method=M and the method's options from the settings. */
static int take_change(struct cli_args *a, struct change *c, struct err *e)
{
    struct override o;
    int kept = 0, rc = cli_take_options(a, &c->options, e);
    for (int i = 0; i < a->n_override && rc == 0; i++) {
        const char *text = a->override[i];
        if (override_parse(&o, text, "", NULL) < 0 || strcmp(o.key, "model.method") != 0 ||
            !o.value)
            a->override[kept++] = text;
        else if (str_copy(c->method, sizeof c->method, o.value))
            rc = err_set(e, DS_EUSAGE, "model.method=%.40s: unknown method", o.value);
    }
    a->n_override = rc == 0 ? kept : a->n_override;
    return rc;
}

static int apply_change(struct subject *s, struct change *c, const char *to, struct err *e)
{
    if (!c->method[0] && c->options.n == 0)
        return 0;
    if (!to)
        return err_set(
            e, DS_EUSAGE,
            "%s: missing -o DIR: a model with another method or other options is written "
            "to a new directory",
            s->dir);
    return subject_remake(s, c->method[0] ? c->method : NULL, &c->options, e);
}

/* Fills the limits of *t; 1 when risk= is set. */
static int read_risk(struct risk_table *t, const struct cli_args *a, const struct ppl_options *o,
                     struct err *e)
{
    *t = (struct risk_table){.limit = o->risk, .delta = o->delta};
    if (cli_has_setting(a, &ppl_group, "risk")) {
        int rc = risk_check(t, e);
        return rc < 0 ? rc : 1;
    }
    return cli_has_setting(a, &ppl_group, "delta")
               ? err_set(e, DS_EUSAGE, "delta=: expected together with risk=")
               : 0;
}

int calibrate_command(int argc, char **argv)
{
    struct err e = {0};
    struct cli_args a;
    struct ppl_options o = {0};
    struct subject s = {0};
    struct change change = {0};
    struct str out = {0};
    struct risk_table risk = {0};
    const char *model;
    int rc = cli_parse(&a, calibrate_options, argc, argv, &e);
    if (rc < 0)
        return command_fail(&e);
    rc = take_change(&a, &change, &e);
    if (rc == 0)
        rc = cli_apply(&a, &ppl_group, &o, &e);
    if (rc == 0) {
        struct order want = {.to = cli_value(&a, "o"), .is_json = cli_flag(&a, "json")};
        rc = cli_single(&a, "calibrate", "MODEL", &model, &e);
        if (rc == 0)
            rc = check_settings(&a, &o, &e);
        if (rc == 0 && (rc = read_risk(&risk, &a, &o, &e)) > 0) {
            want.risk = &risk;
            rc = 0;
        }
        if (rc == 0)
            rc = pool_start((int)o.threads, &e);
        if (rc == 0)
            rc = subject_open(&s, model, &o.numbers, &e);
        if (rc == 0)
            rc = apply_change(&s, &change, cli_value(&a, "o"), &e);
        if (rc == 0)
            rc = calibrate(&s, &o, &want, &out, &e);
        opt_release(&ppl_group, &o);
    }
    subject_close(&s);
    config_release(&change.options);
    pool_stop();
    cli_release(&a);
    if (rc == 0)
        return cli_print(&out);
    str_release(&out);
    return command_fail(&e);
}
