/* Runs a plan of training runs, alone or as one of several workers, and prints the table of their
 * results. */
#include "cli/batch/batch.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/mem.h"
#include "cli/batch/batch_work.h"
#include "cli/report.h"
#include "training/job.h"
#include "training/preset.h"

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

/* ---- results ---- */

struct results {
    struct summary *run; /* borrowed texts: the units own them */
    size_t n;
    struct summary_group *group;
    struct batch_failure *failure;
    size_t failed;
};

void batch_say(struct batch_plan *p, size_t at, size_t all, const char *name, const char *what)
{
    struct str s = {0};
    if (p->say)
        p->say(p, at, name, what);
    if (p->quiet || p->say)
        return;
    if (at > 0)
        str_addf(&s, "[%zu/%zu] ", at, all);
    str_addf(&s, "%s: ", name);
    cli_add_safe(&s, what, strlen(what), -1);
    fprintf(stderr, "%s\n", str_text(&s));
    str_release(&s);
}

/* In the order of the plan, whoever trained what when. */
static void collect(struct results *x, const struct batch_unit *unit, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct batch_unit *u = &unit[i];
        struct summary_group *g = &x->group[u->one.row];
        if (u->state == UNIT_DONE) {
            if (g->n < DS_LEN(g->member))
                g->member[g->n++] = x->n;
            x->run[x->n++] = *u->result;
        } else if (u->state == UNIT_FAILED) {
            struct batch_failure *f = &x->failure[x->failed++];
            f->row = u->one.row;
            str_copy(f->name, sizeof f->name, u->one.name);
            str_copy(f->reason, sizeof f->reason, u->reason ? u->reason : "failed");
        }
    }
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
        if (out->len > 0)
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
    if (rc == 0)
        rc = fs_write_text(path, json, e);
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
        str_add_str(&out, &json);
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
    fflush(stdout);
    struct err why = {0};
    int shown = cli_write_text(&out, &why); /* also when the file could not be written */
    if (rc == 0 && shown < 0)
        rc = err_set(e, shown, "%s", why.text);
    str_release(&out);
    str_release(&json);
    return rc;
}

/* Resolves a row with the first seed.  hash: those of the rows before it, and of this one then; a
 * row with their settings would train the same runs again. */
static int check_row(struct batch_plan *p, size_t i, uint64_t *hash, struct err *e)
{
    struct batch_one o = {.row = i, .seed = p->seed[0]};
    struct str settings = {0};
    int rc = batch_one_resolve(&o, p, &settings, e);
    if (rc == 0 && settings.failed)
        rc = err_set(e, DS_EMEM, "settings");
    hash[i] = hash64(str_text(&settings), settings.len, 0);
    str_release(&settings);
    for (size_t k = 0; k < i && rc == 0; k++)
        if (!p->row[k].refused[0] && hash[k] == hash[i])
            rc = err_set(e, DS_EUSAGE, "same settings as %s", p->row[k].label);
    return rc;
}

/* Before anything starts: invalid rows are reported and skipped.  Fails when no row is valid, or
 * when the control of an ablation is not. */
static int check_rows(struct batch_plan *p, struct err *e)
{
    size_t refused = 0;
    struct err first = {0};
    uint64_t *hash = mem_alloc(p->n + 1, sizeof *hash);
    if (!hash)
        return err_set(e, DS_EMEM, "%zu runs", p->n);
    for (size_t i = 0; i < p->n && first.code != DS_EMEM; i++) {
        struct err why = {0};
        if (p->row[i].refused[0])
            err_set(&why, DS_EUSAGE, "%s", p->row[i].refused);
        else if (check_row(p, i, hash, &why) < 0)
            str_copy(p->row[i].refused, sizeof p->row[i].refused, why.text);
        if (p->row[i].refused[0])
            first = refused++ && why.code != DS_EMEM ? first : why;
    }
    mem_free(hash);
    if (first.code == DS_EMEM)
        return err_set(e, DS_EMEM, "%s", first.text);
    if (refused == p->n || (strcmp(p->kind, "ablate") == 0 && p->row[0].refused[0]))
        return err_set(e, DS_EUSAGE, "%s", first.text);
    for (size_t i = 0; i < p->n; i++)
        if (p->row[i].refused[0])
            batch_say(p, i + 1, p->n, p->row[i].label, p->row[i].refused);
    return 0;
}

/* Looks at every run and starts none.  is_silent: takes the results of those that are done, and
 * lists nothing. */
static int look_only(struct batch_plan *p, struct batch_unit *unit, size_t n, int is_silent,
                     struct err *e)
{
    static const char *const would[] = {[ONE_NEW] = "would start",
                                        [ONE_RESUME] = "would resume from its checkpoint",
                                        [ONE_DONE] = "already done",
                                        [ONE_BUSY] = "in training by another process; would wait"};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct batch_unit *u = &unit[i];
        enum batch_one_state state;
        char text[300], reason[512];
        if (u->state != UNIT_OPEN || (rc = batch_one_look(&u->one, 0, &state, e)) < 0)
            continue;
        const char *note = state == ONE_DONE ? "" : p->row[u->one.row].note;
        snprintf(text, sizeof text, "%s%s%s", would[state], note[0] ? ", " : "", note);
        if (!is_silent)
            batch_say(p, u->one.at, n, u->one.name, text);
        if (state != ONE_DONE || !(p->finish || is_silent))
            continue;
        u->result = mem_alloc(1, sizeof *u->result);
        if (!u->result)
            rc = err_set(e, DS_EMEM, "%s", p->kind);
        else if (batch_one_result(&u->one, u->result, reason, sizeof reason))
            u->state = UNIT_DONE;
    }
    return rc;
}

static int is_complete(const struct batch_unit *unit, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (unit[i].state == UNIT_OPEN)
            return 0;
    return 1;
}

/* What the options ask for, up to the results. */
static int do_runs(struct batch_plan *p, struct batch_share *s, struct batch_unit *unit, size_t n,
                   struct err *e)
{
    struct batch_one *one = mem_alloc(n + 1, sizeof *one);
    for (size_t i = 0; one && i < n; i++)
        one[i] = unit[i].one;
    int rc = one ? batch_share_plan(s, p, one, n, e) : err_set(e, DS_EMEM, "%s", p->kind);
    mem_free(one);
    if (rc < 0)
        return rc;
    if (p->how.status || p->how.slurm) {
        rc = look_only(p, unit, n, 1, e);
        if (rc == 0 && p->how.status)
            return batch_status(p, s, unit, n, e);
        if (rc == 0 && p->is_first_part && is_complete(unit, n))
            return 0; /* the script is for the next part */
        if (rc == 0)
            rc = batch_share_open(s, p, e);
        return rc < 0 ? rc : batch_slurm(p, s, unit, n, e);
    }
    if (p->dry)
        return look_only(p, unit, n, 0, e);
    rc = batch_share_open(s, p, e);
    if (rc == 0 && s->is_later)
        return look_only(p, unit, n, 1, e);
    return rc < 0 ? rc : batch_work(p, s, unit, n, e);
}

int batch_run(struct batch_plan *p)
{
    struct err e = {0};
    size_t all = p->n * p->seeds, units = 0;
    struct results x = {0};
    struct batch_unit *unit = NULL;
    struct batch_share *share = mem_alloc(1, sizeof *share);
    int is_report = p->how.status || p->how.slurm, rc = 0;
    if (all > BATCH_RUNS_MAX)
        rc = err_set(&e, DS_ERANGE, "%zu runs: must be at most %d per %s", all, BATCH_RUNS_MAX,
                     p->kind);
    if (rc == 0) {
        x.run = mem_alloc(all, sizeof *x.run);
        x.group = mem_alloc(p->n, sizeof *x.group);
        x.failure = mem_alloc(all, sizeof *x.failure);
        if (!x.run || !x.group || !x.failure || !share)
            rc = err_set(&e, DS_EMEM, "%s", p->kind);
    }
    if (rc == 0)
        rc = check_rows(p, &e);
    batch_catch_signals();
    if (rc == 0)
        rc = batch_units_make(&unit, &units, p, &e);
    if (rc == 0)
        rc = do_runs(p, share, unit, units, &e);
    p->is_later = share && share->is_later;
    p->is_complete = rc == 0 && is_complete(unit, units);
    if (rc == 0 && p->how.index == 0)
        collect(&x, unit, units);
    for (size_t i = 0; rc == 0 && p->how.index > 0 && i < units; i++)
        x.failed += unit[i].state == UNIT_FAILED;
    if (rc == 0 && (p->finish || !(p->dry || is_report || p->how.worker)))
        rc = finish(p, &x, &e);
    batch_units_release(unit, units);
    mem_free(x.run);
    mem_free(x.group);
    mem_free(x.failure);
    if (share)
        batch_share_release(share);
    mem_free(share);
    if (rc < 0)
        return command_fail(&e);
    if (batch_signal) {
        fprintf(stderr, "%sdepthscope: %s: interrupted; run the same command again to resume\n",
                p->say && isatty(STDERR_FILENO) ? "\r\033[K" : "", p->kind);
        return 128 + (int)batch_signal;
    }
    return x.failed ? 1 : 0;
}

static int read_count(int *out, const struct cli_args *a, const char *name, const char *command,
                      int most, struct err *e)
{
    const char *text = cli_value(a, name);
    char *end;
    if (!text)
        return 0;
    long n = strtol(text, &end, 10);
    if (end == text || *end || n < 1 || n > most)
        return err_set(e, DS_EUSAGE, "%s: --%s %.40s: must be an integer from 1 to %d", command,
                       name, text, most);
    *out = (int)n;
    return 0;
}

static int check_id(const char *id, const char *command, struct err *e)
{
    size_t n = strspn(id, "0123456789abcdef"),
           m = id[n] == '-' ? strspn(id + n + 1, "0123456789abcdef") : 0;
    return n == 16 && (!id[n] || (m == 16 && !id[n + 17]))
               ? 0
               : err_set(e, DS_EUSAGE,
                         "%s: --worker %.60s: expected the id that --launch or --slurm gives",
                         command, id);
}

int batch_how_read(struct batch_how *how, const struct cli_args *a, int argc, char **argv,
                   struct err *e)
{
    const char *lease = cli_value(a, "lease"), *command = argv[0];
    char *end;
    *how = (struct batch_how){.patience = 30,
                              .launch = cli_value(a, "launch"),
                              .sbatch = cli_value(a, "sbatch"),
                              .worker = cli_value(a, "worker"),
                              .status = cli_flag(a, "status"),
                              .slurm = cli_flag(a, "slurm"),
                              .argc = argc,
                              .argv = argv,
                              .option = a->option};
    int rc = read_count(&how->jobs, a, "jobs", command, BATCH_CHILDREN, e);
    if (rc == 0)
        rc = read_count(&how->index, a, "index", command, BATCH_RUNS_MAX, e);
    if (rc == 0 && lease) {
        how->patience = strtod(lease, &end);
        if (end == lease || *end || !(how->patience >= 1 && how->patience <= 86400))
            rc = err_set(e, DS_EUSAGE, "%s: --lease %.40s: must be seconds from 1 to 86400",
                         command, lease);
    }
    if (rc == 0 && how->launch && !strstr(how->launch, "{}"))
        rc = err_set(e, DS_EUSAGE,
                     "%s: --launch '%.200s': expected {} where the command line of the worker "
                     "goes, as in 'ssh box {}'",
                     command, how->launch);
    if (rc == 0 && how->worker)
        rc = check_id(how->worker, command, e);
    if (rc == 0 && how->index > 0 && !how->worker)
        rc = err_set(e, DS_EUSAGE, "%s: --index is for workers: expected --worker ID with it",
                     command);
    if (rc == 0 && how->sbatch && !how->slurm)
        rc =
            err_set(e, DS_EUSAGE,
                    "%s: --sbatch is for the script of --slurm: expected --slurm with it", command);
    if (rc == 0 && (how->launch != NULL) + (how->worker != NULL) + how->slurm + how->status > 1)
        rc = err_set(e, DS_EUSAGE,
                     "%s: expected only one of --launch, --slurm, --status and --worker", command);
    return rc;
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
    rc = batch_how_read(&p.how, &a, argc, argv, &e);
    if (rc == 0 && p.out) /* before hours of work */
        rc = cli_output_check(p.out, &e);
    if (rc == 0)
        rc = plan(&p, &a, &e);
    int status = rc < 0 ? command_fail(&e) : batch_run(&p);
    batch_release(&p);
    cli_release(&a);
    return status;
}
