/* Runs a plan of training runs one after another and prints the table of their results. */
#include "cli/batch/batch.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/mem.h"
#include "cli/batch/batch_child.h"
#include "cli/report.h"
#include "io/runlog.h"
#include "training/job.h"
#include "training/options.h"

struct batch_row *batch_add(struct batch_plan *p, const char *label)
{
    void *rows = p->row;
    if (mem_grow(&rows, &p->cap, p->n + 1, sizeof *p->row) < 0)
        return NULL;
    p->row = rows;
    struct batch_row *r = &p->row[p->n++];
    memset(r, 0, sizeof *r);
    str_copy(r->label, sizeof r->label, label);
    return r;
}

static int append(char ***list, size_t *n, const char *text, struct err *e)
{
    char **grown = mem_realloc(*list, *n + 1, sizeof *grown);
    if (grown)
        *list = grown;
    if (!grown || !(grown[*n] = mem_strdup(text)))
        return err_set(e, DS_EMEM, "settings");
    ++*n;
    return 0;
}

int batch_set(struct batch_row *r, const char *override, struct err *e)
{
    return append(&r->override, &r->n, override, e);
}

int batch_preset(struct batch_row *r, const char *preset, struct err *e)
{
    return append(&r->preset, &r->presets, preset, e);
}

static void list_release(char **list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mem_free(list[i]);
    mem_free(list);
}

void batch_release(struct batch_plan *p)
{
    for (size_t i = 0; i < p->n; i++) {
        list_release(p->row[i].preset, p->row[i].presets);
        list_release(p->row[i].override, p->row[i].n);
    }
    mem_free(p->row);
    mem_free(p->seed);
    p->row = NULL;
    p->seed = NULL;
    p->n = p->seeds = 0;
}

/* ---- one run of the plan ---- */

struct one {
    char name[65], dir[1024];
    char seed[32];
    char **preset; /* the row's */
    size_t presets;
    const char **arg; /* overrides of the row and the seed */
    size_t n;
};

static int one_args(struct one *o, const struct batch_row *r, int64_t seed, struct err *e)
{
    o->arg = mem_alloc(r->n + 1, sizeof *o->arg);
    if (!o->arg)
        return err_set(e, DS_EMEM, "settings");
    o->preset = r->preset;
    o->presets = r->presets;
    for (size_t i = 0; i < r->n; i++)
        o->arg[o->n++] = r->override[i];
    snprintf(o->seed, sizeof o->seed, "seed=%" PRId64, seed);
    o->arg[o->n++] = o->seed;
    return 0;
}

/* Resolves the run's configuration (DS_EUSAGE when invalid).  Its name contains a hash of every
 * setting. */
static int one_resolve(struct one *o, const struct batch_plan *p, const struct batch_row *r,
                       int64_t seed, struct err *e)
{
    struct train_config c = {0};
    struct str text = {0};
    char stem[44];
    int rc = train_config_make(&c, (const char *const *)o->preset, o->presets, o->arg, o->n, e);
    if (rc < 0)
        return rc;
    if (strcmp(p->kind, "ablate") == 0 && strcmp(c.model.method, "edp") != 0)
        rc = err_set(e, DS_EUSAGE, "model.method=%s: must be edp for ablations", c.model.method);
    c.run.threads = 0; /* results do not depend on it */
    train_config_print(&text, &c);
    snprintf(stem, sizeof stem, "%s-%.*s", p->kind, (int)(sizeof stem - 10), r->label);
    for (char *s = stem; *s; s++)
        if (!isalnum((unsigned char)*s) && !strchr("._-", *s))
            *s = '_';
    snprintf(o->name, sizeof o->name, "%.36s-s%" PRId64 "-%06x", stem, seed,
             (unsigned)(hash64(str_text(&text), text.len, 0) & 0xffffff));
    if (rc == 0 && text.failed)
        rc = err_set(e, DS_EMEM, "settings");
    if (rc == 0)
        rc = fs_join(o->dir, sizeof o->dir, job_root(), o->name, e);
    str_release(&text);
    train_config_release(&c);
    return rc;
}

enum progress { PROGRESS_NEW, PROGRESS_RESUME, PROGRESS_DONE, PROGRESS_BUSY };

static int one_look(const struct one *o, enum progress *state, struct err *e)
{
    char path[1100];
    struct summary s;
    *state = PROGRESS_NEW;
    if (!fs_exists(o->dir))
        return 0;
    if (fs_join(path, sizeof path, o->dir, "log.mp", e) < 0)
        return e->code;
    if (runlog_is_locked(path)) {
        *state = PROGRESS_BUSY;
        return 0;
    }
    if (fs_exists(path) && summary_read(&s, o->dir, NULL) == 0) {
        int is_done = strcmp(s.status, "done") == 0;
        summary_release(&s);
        if (is_done) {
            *state = PROGRESS_DONE;
            return 0;
        }
    }
    if (fs_join(path, sizeof path, o->dir, "config.yaml", NULL) == 0 && fs_exists(path)) {
        *state = PROGRESS_RESUME; /* without a checkpoint it restarts from step 0 */
        return 0;
    }
    /* killed during creation: the hash in the name matches these settings, and it holds no data */
    return fs_remove_tree(o->dir, e);
}

static int one_run(const struct one *o, enum progress state, char *reason, size_t size,
                   struct err *e)
{
    const char **argv = mem_alloc(o->presets + o->n + 10, sizeof *argv);
    size_t k = 0;
    if (!argv)
        return err_set(e, DS_EMEM, "run");
    argv[k++] = "depthscope";
    argv[k++] = "train";
    if (state == PROGRESS_RESUME) {
        argv[k++] = "--resume";
        argv[k++] = o->name;
    } else {
        for (size_t i = 0; i < o->presets; i++)
            argv[k++] = o->preset[i];
        for (size_t i = 0; i < o->n; i++)
            argv[k++] = o->arg[i];
        argv[k++] = "--run";
        argv[k++] = o->name;
    }
    argv[k++] = "--quiet";
    argv[k] = NULL;
    int rc = batch_child(argv, -1, reason, size, e);
    mem_free(argv);
    return rc;
}

/* ---- the whole plan ---- */

struct results {
    struct summary *run;
    size_t n;
    struct summary_group *group;
    struct batch_failure *failure;
    size_t failed;
};

static void say(struct batch_plan *p, size_t at, size_t all, const char *name, const char *what)
{
    struct str s = {0};
    if (p->say)
        p->say(p, at, name, what);
    if (p->quiet || p->say)
        return;
    str_addf(&s, "[%zu/%zu] %s: ", at, all, name);
    cli_add_safe(&s, what, strlen(what), -1);
    fprintf(stderr, "%s\n", str_text(&s));
    str_release(&s);
}

/* Another process trains it: a batch with the same runs, or the orphaned child of a killed one.
 * Its result is identical to that of our own child. */
static int wait_for_other(const struct one *o, enum progress *state, struct err *e)
{
    int rc = 0;
    while (rc == 0 && *state == PROGRESS_BUSY && !batch_signal) {
        clock_sleep(0.2);
        rc = one_look(o, state, e);
    }
    return rc;
}

/* Reads the results of a finished run: 1; else 0 and the reason. */
static int read_result(struct results *x, size_t row, const struct one *o, char *reason,
                       size_t size)
{
    struct err why = {0};
    struct summary *s = &x->run[x->n];
    if (summary_read(s, o->dir, &why) < 0) {
        str_copy(reason, size, why.text);
        return 0;
    }
    if (strcmp(s->status, "done") != 0) {
        snprintf(reason, size, "%s at step %lld of %lld", s->status, s->step, s->steps);
        summary_release(s);
        return 0;
    }
    struct summary_group *g = &x->group[row];
    if (g->n < DS_LEN(g->member))
        g->member[g->n++] = x->n;
    x->n++;
    return 1;
}

static void note_failure(struct results *x, size_t row, const char *name, const char *reason)
{
    struct batch_failure *f = &x->failure[x->failed++];
    f->row = row;
    str_copy(f->name, sizeof f->name, name);
    str_copy(f->reason, sizeof f->reason, reason);
}

/* Runs or resumes one run until it ends and reads its results; a failed run is reported and
 * counted. */
static int take_one(struct batch_plan *p, struct results *x, size_t row, int64_t seed, size_t at,
                    size_t all, struct err *e)
{
    static const char *const what[] = {"starts", "resumes from its checkpoint", "already done",
                                       "in training by another process; waiting"},
                             *const would[] = {"would start", "would resume from its checkpoint",
                                               "already done",
                                               "in training by another process; would wait"};
    struct one o = {0};
    enum progress state = PROGRESS_NEW;
    char reason[512] = "", text[600];
    int child = 0, rc = one_args(&o, &p->row[row], seed, e);
    if (rc == 0)
        rc = one_resolve(&o, p, &p->row[row], seed, e);
    if (rc == 0)
        rc = one_look(&o, &state, e);
    if (rc < 0)
        goto out;
    snprintf(text, sizeof text, "%s%s%s", p->dry ? would[state] : what[state],
             p->row[row].note[0] && state != PROGRESS_DONE ? ", " : "",
             state != PROGRESS_DONE ? p->row[row].note : "");
    say(p, at, all, o.name, text);
    if (p->dry && !(p->finish && state == PROGRESS_DONE))
        goto out;
    double t = clock_mono();
    if (state == PROGRESS_BUSY) {
        rc = wait_for_other(&o, &state, e);
        if (rc == 0 && state != PROGRESS_BUSY && !batch_signal)
            say(p, at, all, o.name, what[state]);
    }
    if (rc == 0 && !batch_signal && (state == PROGRESS_NEW || state == PROGRESS_RESUME))
        rc = child = one_run(&o, state, reason, sizeof reason, e);
    if (rc < 0 || (batch_signal && state == PROGRESS_BUSY))
        goto out;
    rc = 0;
    if (child == 0 && read_result(x, row, &o, reason, sizeof reason)) {
        const struct summary *s = &x->run[x->n - 1];
        if (p->dry)
            goto out;
        snprintf(text, sizeof text, "val loss %.4g, FLOPs %.3g (%.0f s)",
                 s->value[SUMMARY_VAL_LOSS], s->value[SUMMARY_FLOPS], clock_mono() - t);
        say(p, at, all, o.name, text);
        goto out;
    }
    say(p, at, all, o.name, reason[0] ? reason : "not finished");
    if (!batch_signal) /* an interrupted run did not fail */
        note_failure(x, row, o.name, reason[0] ? reason : "not finished");
out:
    mem_free(o.arg);
    return rc;
}

static void add_failures(struct str *out, const struct results *x, size_t row)
{
    json_key(out, "failures");
    str_add(out, "[");
    for (size_t i = 0; i < x->failed; i++) {
        if (x->failure[i].row != row)
            continue;
        json_key(out, NULL);
        str_add(out, "{");
        json_add_str(out, "name", x->failure[i].name);
        json_add_str(out, "reason", x->failure[i].reason);
        str_add(out, "}");
    }
    str_add(out, "]");
}

static void add_json(struct str *out, const struct batch_plan *p, const struct results *x,
                     const struct report *r)
{
    str_add(out, "{");
    json_add_str(out, "kind", p->kind);
    json_add_str(out, "preset", p->preset);
    json_key(out, "seeds");
    str_add(out, "[");
    for (size_t i = 0; i < p->seeds; i++)
        json_add_int(out, NULL, p->seed[i]);
    str_add(out, "]");
    json_key(out, "rows");
    str_add(out, "[");
    for (size_t i = 0; i < p->n; i++) {
        json_key(out, NULL);
        summary_group_json(out, &x->group[i], x->run);
        out->len--; /* reopen the object */
        char preset[128];
        presets_label(preset, sizeof preset, (const char *const *)p->row[i].preset,
                      p->row[i].presets);
        json_add_str(out, "preset", preset);
        json_key(out, "settings");
        str_add(out, "[");
        for (size_t k = 0; k < p->row[i].n; k++) {
            json_key(out, NULL);
            str_add_json(out, p->row[i].override[k], strlen(p->row[i].override[k]));
        }
        str_add(out, "]");
        add_failures(out, x, i);
        if (p->row[i].refused[0])
            json_add_str(out, "refused", p->row[i].refused);
        str_add(out, "}");
    }
    str_add(out, "],\"paired\":");
    report_paired_json(out, r);
    str_add(out, "}\n");
}

static int write_summary(const struct batch_plan *p, const struct str *json, struct err *e)
{
    char path[1100], name[32];
    snprintf(name, sizeof name, "%s.json", p->kind);
    int rc = p->out ? (str_copy(path, sizeof path, p->out)
                           ? err_set(e, DS_ERANGE, "%s: the path is too long", p->out)
                           : 0)
                    : fs_join(path, sizeof path, job_root(), name, e);
    if (rc == 0 && !p->out)
        rc = fs_mkdirs(job_root(), e);
    if (rc == 0 && json->failed)
        rc = err_set(e, DS_EMEM, "summary");
    if (rc == 0)
        rc = fs_write_file(path, json->p, json->len, e);
    if (rc == 0 && !p->quiet)
        fprintf(stderr, "depthscope: summary in %s\n", path);
    return rc;
}

static int finish(struct batch_plan *p, struct results *x, struct err *e)
{
    struct str json = {0}, out = {0};
    struct report r = {.group = x->group, .n = p->n, .runs = x->run, .width = cli_columns(0)};
    for (size_t i = 0; i < p->n; i++) {
        str_copy(x->group[i].label, sizeof x->group[i].label, p->row[i].label);
        summary_estimate(&x->group[i], x->run);
    }
    for (size_t i = 0; i < x->failed; i++)
        x->group[x->failure[i].row].missing++;
    if (p->finish)
        return p->finish(p, &(struct batch_done){x->run, x->n, x->group, x->failure, x->failed}, e);
    add_json(&json, p, x, &r);
    int rc = write_summary(p, &json, e);
    if (p->json) {
        str_add_bytes(&out, json.p, json.len);
    } else {
        report_groups(&out, &r);
        report_paired(&out, &r);
        for (size_t i = 0; i < p->n; i++)
            if (p->row[i].refused[0]) {
                str_addf(&out, "not run: %s: ", p->row[i].label);
                cli_add_safe(&out, p->row[i].refused, strlen(p->row[i].refused), -1);
                str_add(&out, "\n");
            }
        for (size_t i = 0; i < x->failed; i++) {
            str_addf(&out, "failed, excluded from means: %s: ", x->failure[i].name);
            cli_add_safe(&out, x->failure[i].reason, strlen(x->failure[i].reason), -1);
            str_add(&out, "\n");
        }
    }
    if (rc == 0) {
        fflush(stdout);
        rc =
            out.failed ? err_set(e, DS_EMEM, "%s", p->kind) : cli_write(str_text(&out), out.len, e);
    }
    str_release(&out);
    str_release(&json);
    return rc;
}

/* Before anything starts: invalid rows are reported and skipped.  Fails when no row is valid, or
 * when the control of an ablation is not. */
static int check_rows(struct batch_plan *p, struct err *e)
{
    size_t refused = 0;
    struct err first = {0};
    for (size_t i = 0; i < p->n; i++) {
        struct one o = {0};
        struct err why = {0};
        int rc = one_args(&o, &p->row[i], p->seed[0], e);
        if (p->row[i].refused[0])
            err_set(&why, DS_EUSAGE, "%s", p->row[i].refused);
        else if (rc == 0 && one_resolve(&o, p, &p->row[i], p->seed[0], &why) < 0)
            str_copy(p->row[i].refused, sizeof p->row[i].refused, why.text);
        if (rc == 0 && p->row[i].refused[0])
            first = refused++ ? first : why;
        mem_free(o.arg);
        if (rc < 0)
            return rc;
    }
    if (refused == p->n || (strcmp(p->kind, "ablate") == 0 && p->row[0].refused[0]))
        return err_set(e, DS_EUSAGE, "%s", first.text);
    for (size_t i = 0; i < p->n; i++)
        if (p->row[i].refused[0])
            say(p, i + 1, p->n, p->row[i].label, p->row[i].refused);
    return 0;
}

int batch_run(struct batch_plan *p)
{
    struct err e = {0};
    size_t all = p->n * p->seeds, at = 0;
    struct results x = {0};
    int rc = 0;
    if (all > BATCH_RUNS_MAX)
        rc = err_set(&e, DS_ERANGE, "%zu runs: must be at most %d per %s", all, BATCH_RUNS_MAX,
                     p->kind);
    if (rc == 0) {
        x.run = mem_alloc(all, sizeof *x.run);
        x.group = mem_alloc(p->n, sizeof *x.group);
        x.failure = mem_alloc(all, sizeof *x.failure);
        if (!x.run || !x.group || !x.failure)
            rc = err_set(&e, DS_EMEM, "%s", p->kind);
    }
    if (rc == 0)
        rc = check_rows(p, &e);
    batch_catch_signals();
    /* seeds in the outer loop: after the first pass every row has a result, and later passes narrow
     * the intervals */
    for (size_t s = 0; s < p->seeds && rc == 0; s++)
        for (size_t row = 0; row < p->n && rc == 0 && !batch_signal; row++) {
            at++;
            if (!p->row[row].refused[0])
                rc = take_one(p, &x, row, p->seed[s], at, all, &e);
        }
    if (rc == 0 && (!p->dry || p->finish))
        rc = finish(p, &x, &e);
    for (size_t i = 0; i < x.n; i++)
        summary_release(&x.run[i]);
    mem_free(x.run);
    mem_free(x.group);
    mem_free(x.failure);
    if (rc < 0)
        return command_fail(&e);
    if (batch_signal) {
        fprintf(stderr, "%sdepthscope: %s: interrupted; run the same command again to resume\n",
                p->say && isatty(STDERR_FILENO) ? "\r\033[K" : "", p->kind);
        return 128 + (int)batch_signal;
    }
    return x.failed ? 1 : 0;
}

int batch_command(const char *kind, int argc, char **argv, struct cli_option *options,
                  int (*plan)(struct batch_plan *p, const struct cli_args *a, struct err *e))
{
    struct err e = {0};
    struct cli_args a;
    struct batch_plan p = {.kind = kind};
    int rc = cli_parse(&a, options, argc, argv, &e);
    if (rc < 0)
        return command_fail(&e);
    char data[1024];
    if (cli_data_dir(data, sizeof data, "data", NULL) == 0)
        train_config_preset_dir(data);
    p.out = cli_value(&a, "out");
    p.json = cli_flag(&a, "json");
    p.quiet = cli_flag(&a, "quiet");
    p.dry = cli_flag(&a, "dry-run");
    rc = plan(&p, &a, &e);
    int status = rc < 0 ? command_fail(&e) : batch_run(&p);
    batch_release(&p);
    cli_release(&a);
    return status;
}
