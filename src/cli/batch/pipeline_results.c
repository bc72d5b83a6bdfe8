/* The results of a pipeline: evaluation, figures, tables and the JSON object. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/lease.h"
#include "base/mem.h"
#include "cli/batch/batch_child.h"
#include "cli/batch/pipeline.h"
#include "cli/report.h"
#include "cli/version.h"
#include "figures/figure.h"
#include "io/batch.h"
#include "training/job.h"

/* ---- evaluation ---- */

static const struct pipeline_run *first_run(const struct pipeline *p, int row)
{
    for (size_t i = 0; i < p->runs; i++)
        if (p->run[i].row == row)
            return &p->run[i];
    return NULL;
}

/* 1 when the file is an evaluation of this run: another pipeline may have left its own here. */
static int is_of(const char *path, const char *run)
{
    struct figure_run f;
    char part[96];
    if (figure_open(&f, path, path, NULL) < 0)
        return 0;
    snprintf(part, sizeof part, "/%s/", run);
    int same = f.view ? f.view->parent && strcmp(f.view->parent, run) == 0
                      : strstr(json_get_text(json_root(f.json), "checkpoint"), part) != NULL;
    figure_close(&f);
    return same;
}

/* Of two processes that run the same pipeline one makes the file: 1 it is ours to make and the lease
 * is held, 0 it is there by now, or a signal came. */
static int hold(const struct pipeline *p, const char *path, const char *run, struct lease *l,
                struct err *e)
{
    char dir[1024], leases[1100], name[LEASE_NAME];
    struct lease_watch watch = {0};
    struct lease_list list = {0};
    int rc = fs_join(dir, sizeof dir, job_root(), BATCH_FOLDER, e);
    if (rc == 0)
        rc = fs_join(leases, sizeof leases, dir, BATCH_LEASES, e);
    if (rc == 0)
        rc = fs_mkdirs(leases, e);
    snprintf(name, sizeof name, "evaluation-%016llx",
             (unsigned long long)hash64(path, strlen(path), 0));
    while (rc == 0 && !batch_signal && !is_of(path, run)) {
        struct lease_view v;
        rc = lease_list_read(&list, leases, e);
        if (rc == 0)
            rc = lease_look(&v, leases, name, lease_list_find(&list, name), e);
        if (rc == 0 && lease_judge(&watch, &v) == LEASE_ALIVE)
            clock_sleep(0.2);
        else if (rc == 0)
            rc = lease_claim(l, leases, name, v.generation, p->how.patience, e);
    }
    lease_list_release(&list);
    if (rc == 1 && is_of(path, run)) { /* its last owner finished just before */
        lease_release(l, "", NULL);
        rc = 0;
    }
    return rc;
}

/* Runs a subcommand about RUN whose standard output goes to DIR/NAME; a finished file is not made
 * again. */
static int evaluate_into(struct pipeline *p, const char *name, const char *run,
                         const char *const *argv, int is_out, struct err *e)
{
    char path[1200], part[1210], reason[512] = "";
    struct lease lease = LEASE_NONE;
    int fd = -1, rc = fs_join(path, sizeof path, p->dir, name, e);
    if (rc == 0)
        rc = hold(p, path, run, &lease, e);
    if (rc < 0)
        return rc;
    p->at++;
    if (rc == 0) {
        if (!batch_signal)
            pipeline_show(p, name, "already done");
    } else {
        rc = 0;
        pipeline_show(p, name, "starts");
        snprintf(part, sizeof part, "%s.part", path);
        if (is_out)
            rc = fs_open_write(&fd, part, O_CREAT | O_TRUNC, e);
        if (rc == 0)
            rc = batch_child(argv, fd, &lease, reason, sizeof reason, e);
        if (fd >= 0)
            fs_close(fd);
        if (is_out && rc == 0 && fs_rename(part, path) < 0)
            rc = err_set(e, DS_EIO, "%s: cannot rename", part);
        if (is_out && rc != 0)
            fs_unlink(part);
        lease_release(&lease, "", NULL);
    }
    if (rc < 0 || batch_signal)
        return rc;
    if (rc > 0) {
        pipeline_skip(p, name, reason);
        return 0;
    }
    json_key(&p->evaluations, NULL);
    str_add_json(&p->evaluations, path, strlen(path));
    return 0;
}

static int evaluate(struct pipeline *p, struct err *e)
{
    const struct pipeline_run *method = first_run(p, 1);
    char path[1200], only[200];
    snprintf(only, sizeof only, "only=prefill dense,prefill %s,decode dense,decode %s", p->method,
             p->method);
    if (!method)
        return err_set(e, DS_ENOTFOUND, "pipeline: no run of %s finished", p->method);
    int rc = fs_join(path, sizeof path, p->dir, "capacity.mp", e);
    if (rc < 0)
        return rc;
    const char *const capacity[] = {"depthscope",
                                    "eval",
                                    method->name,
                                    "--benchmark",
                                    "-o",
                                    path,
                                    p->is_quick ? "tokens=4096" : "tokens=0",
                                    p->is_quick ? "capacities=0.3,0.6,1" : NULL,
                                    NULL};
    const char *const bench[] = {
        "depthscope", "bench", method->name, only, p->is_quick ? "rounds=3" : "rounds=5",
        "--json",     NULL};
    rc = evaluate_into(p, "capacity.mp", method->name, capacity, 0, e);
    if (rc == 0 && !batch_signal)
        rc = evaluate_into(p, "bench.json", method->name, bench, 1, e);
    return rc;
}

/* ---- figures ---- */

struct inputs {
    struct figure_run *run;
    int n, methods, mains; /* the method's runs come first, then the other main runs */
};

static int open_input(struct inputs *in, const char *file, const char *given, struct err *e)
{
    int rc = figure_open(&in->run[in->n], file, given, e);
    in->n += rc == 0;
    return rc;
}

static int is_chosen(const struct pipeline_run *r, int pass)
{
    return pass == 0   ? r->row == 1
           : pass == 1 ? r->row != 1 && r->part != ABLATIONS
                       : r->part == ABLATIONS;
}

static int open_inputs(const struct pipeline *p, struct inputs *in, char (*path)[1200],
                       struct err *e)
{
    int rc = 0;
    for (int pass = 0; rc == 0 && pass < 3; pass++) {
        for (size_t i = 0; rc == 0 && i < p->runs; i++)
            if (is_chosen(&p->run[i], pass)) {
                rc = fs_join(path[in->n], sizeof path[0], job_root(), p->run[i].name, e);
                if (rc == 0)
                    rc = open_input(in, path[in->n], path[in->n], e);
            }
        if (pass == 0)
            in->methods = in->n;
        if (pass == 1)
            in->mains = in->n;
    }
    return rc;
}

static int write_figure(struct pipeline *p, const struct figure *f, struct err *e)
{
    char path[1200], name[96];
    int rc = 0;
    json_key(&p->figures, NULL);
    str_add(&p->figures, "{");
    json_add_str(&p->figures, "name", f->name);
    json_key(&p->figures, "files");
    str_add(&p->figures, "[");
    for (const char *at = p->formats; rc == 0 && *at;) {
        struct str bytes = {0};
        size_t len = strcspn(at, ",");
        int format = pen_format_find(at, len);
        snprintf(name, sizeof name, "%s.%s", f->name, pen_format_name((enum pen_format)format));
        rc = fs_join(path, sizeof path, p->dir, name, e);
        if (rc == 0)
            rc = figure_bytes(f, (enum pen_format)format, &bytes, e);
        if (rc == 0)
            rc = fs_write_text(path, &bytes, e);
        json_key(&p->figures, NULL);
        str_add_json(&p->figures, path, strlen(path));
        str_release(&bytes);
        at += len + (at[len] == ',');
    }
    str_add(&p->figures, "]}");
    return rc;
}

/* Tries the arguments a figure may be about, the widest set first: all main runs, the method's, and
 * its first; ablation_bars takes the ablations, the others may be about a file of the
 * evaluation. */
static int draw(struct pipeline *p, int i, const struct inputs *in, struct figure_run *extra,
                int extras, struct err *e)
{
    struct figure_options o;
    struct figure f = {0};
    const char *name = figure_name(i);
    int is_ablation = strcmp(name, "ablation_bars") == 0, rc = DS_ENOTFOUND;
    struct {
        const struct figure_run *run;
        int n;
    } set[8] = {{in->run, in->mains}, {in->run, in->methods}, {in->run, 1}};
    int sets = 3;
    if (is_ablation) {
        set[0].run = in->run + in->mains;
        set[0].n = in->n - in->mains;
        sets = 1;
    }
    for (int k = 0; k < extras && !is_ablation; k++)
        set[sets].run = &extra[k], set[sets++].n = 1;
    figure_options_default(&o);
    o.version = DEPTHSCOPE_VERSION;
    o.venue = p->venue;
    o.label = p->is_quick ? p->label : NULL;
    struct err first = {0};
    for (int k = 0; k < sets; k++) {
        struct err why = {0};
        if (set[k].n < 1 || !figure_takes(i, &set[k].run[0]))
            continue;
        rc = figure_make(&f, name, set[k].run, set[k].n, &o, &why);
        if (rc == 0)
            break;
        if (!first.code || k == 2) /* with one run of the method, what is missing is the reason */
            first = why;
    }
    if (rc < 0) {
        const char *text = first.text;
        char needs[200];
        snprintf(needs, sizeof needs, "needs %s", figure_needs(i));
        size_t skip = strlen("figure ") + strlen(name) + strlen(": ");
        pipeline_skip(p, name, !text[0] ? needs : strlen(text) > skip ? text + skip : text);
        return 0;
    }
    rc = write_figure(p, &f, e);
    figure_release(&f);
    return rc;
}

static int draw_figures(struct pipeline *p, struct err *e)
{
    struct inputs in = {.run = mem_alloc(PIPELINE_RUNS, sizeof *in.run)};
    char(*path)[1200] = mem_alloc(PIPELINE_RUNS, sizeof *path);
    struct figure_run extra[2] = {0};
    static const char *const file[] = {"capacity.mp", "bench.json"};
    char full[2][1200];
    int extras = 0, rc = in.run && path ? open_inputs(p, &in, path, e)
                                        : err_set(e, DS_EMEM, "pipeline: out of memory");
    for (size_t i = 0; rc == 0 && i < DS_LEN(file); i++) {
        rc = fs_join(full[i], sizeof full[i], p->dir, file[i], e);
        if (rc == 0 && is_of(full[i], first_run(p, 1)->name))
            extras += figure_open(&extra[extras], full[i], full[i], NULL) == 0;
    }
    for (int i = 0; rc == 0 && figure_name(i) && !batch_signal; i++) {
        if (i == 0 || p->is_terminal)
            pipeline_show(p, "figures", p->is_terminal ? figure_name(i) : p->dir);
        rc = draw(p, i, &in, extra, extras, e);
    }
    p->at++;
    for (int i = 0; in.run && i < in.n; i++)
        figure_close(&in.run[i]);
    for (int i = 0; i < extras; i++)
        figure_close(&extra[i]);
    mem_free(in.run);
    mem_free(path);
    return rc;
}

/* ---- table ---- */

static int write_table(struct pipeline *p, const char *name, struct str *text, struct err *e)
{
    char path[1200];
    int rc = fs_join(path, sizeof path, p->dir, name, e);
    if (rc == 0)
        rc = fs_write_text(path, text, e);
    json_key(&p->tables, NULL);
    str_add_json(&p->tables, path, strlen(path));
    str_release(text);
    return rc;
}

static int write_tables(struct pipeline *p, struct str *screen, struct err *e)
{
    struct summary *run = mem_alloc(p->runs + 1, sizeof *run);
    struct summary_group *group = mem_alloc((size_t)p->rows + 1, sizeof *group);
    struct str text = {0};
    char path[1200];
    size_t n = 0;
    int rc = run && group ? 0 : err_set(e, DS_EMEM, "pipeline: out of memory");
    for (int i = 0; rc == 0 && i < p->rows; i++)
        str_copy(group[i].label, sizeof group[i].label, p->row[i]);
    for (; rc == 0 && n < p->runs; n += rc == 0) {
        struct summary_group *g = &group[p->run[n].row];
        rc = fs_join(path, sizeof path, job_root(), p->run[n].name, e);
        if (rc == 0)
            rc = summary_read(&run[n], path, e);
        if (rc == 0)
            g->member[g->n++] = n;
    }
    for (int i = 0; rc == 0 && i < p->rows; i++)
        summary_estimate(&group[i], run);
    struct report r = {.group = group, .n = (size_t)p->rows, .runs = run};
    if (rc == 0) {
        if (p->is_quick)
            str_addf(&text, "%s\n\n", p->label);
        report_markdown(&text, &r);
        rc = write_table(p, "table.md", &text, e);
    }
    if (rc == 0) {
        if (p->is_quick)
            str_addf(&text, "%% %s\n", p->label);
        report_latex(&text, &r);
        rc = write_table(p, "table.tex", &text, e);
    }
    if (rc == 0) {
        report_csv(&text, &r);
        rc = write_table(p, "table.csv", &text, e);
    }
    if (rc == 0 && !p->is_json) {
        r.width = cli_columns(0);
        report_groups(screen, &r);
        report_paired(screen, &r);
    }
    for (size_t i = 0; run && i < n; i++)
        summary_release(&run[i]);
    mem_free(run);
    mem_free(group);
    return rc;
}

void pipeline_json(struct str *out, const struct pipeline *p)
{
    str_add(out, "{");
    json_add_str(out, "kind", "pipeline");
    json_add_str(out, "preset", p->preset);
    json_add_str(out, "method", p->method);
    json_add_str(out, "dir", p->dir);
    json_add_int(out, "steps", p->steps);
    json_add_num(out, "seconds_per_run", p->run_s);
    json_key(out, "quick");
    str_add(out, p->is_quick ? "true" : "false");
    json_key(out, "runs");
    str_add(out, "[");
    for (size_t i = 0; i < p->runs; i++) {
        json_key(out, NULL);
        str_add(out, "{");
        json_add_str(out, "row", p->row[p->run[i].row]);
        json_add_str(out, "name", p->run[i].name);
        str_add(out, "}");
    }
    str_addf(out, "],\"evaluations\":[%s],\"figures\":[%s],\"tables\":[%s],\"skipped\":[%s]}\n",
             str_text(&p->evaluations), str_text(&p->figures), str_text(&p->tables),
             str_text(&p->skipped));
    out->failed |= p->evaluations.failed | p->figures.failed | p->tables.failed | p->skipped.failed;
}

int pipeline_results(struct pipeline *p, struct err *e)
{
    struct str out = {0};
    int rc = fs_mkdirs(p->dir, e);
    if (rc == 0)
        rc = evaluate(p, e);
    if (rc == 0 && !batch_signal)
        rc = draw_figures(p, e);
    if (rc == 0 && !batch_signal)
        rc = write_tables(p, &out, e);
    if (rc == 0 && !batch_signal) {
        pipeline_show(p, "done", p->dir);
        if (p->is_terminal && !p->is_quiet)
            fputc('\n', stderr);
        if (p->is_json)
            pipeline_json(&out, p);
        rc = cli_write_text(&out, e);
    }
    if (batch_signal)
        fprintf(stderr,
                "%sdepthscope: pipeline: interrupted; run the same command again to resume\n",
                p->is_terminal ? "\r\033[K" : "");
    str_release(&out);
    return rc;
}
