/* depthscope pipeline: everything that a claim about a method needs, in one resumable command: the
 * dense baseline, the method, its controls at the measured rates, ablations, evaluation, every
 * figure and one table. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/pool.h"
#include "cli/batch/batch.h"
#include "cli/batch/batch_child.h"
#include "cli/batch/pipeline.h"
#include "engine/peak.h"
#include "figures/figure.h"
#include "figures/pen.h"
#include "training/cost.h"
#include "training/options.h"
#include "training/preset.h"

struct cli_option pipeline_options[] = {
    {.name = "o", .has_value = 1, .help = "DIR  output directory (default: exports/PRESET)"},
    {.name = "seeds", .has_value = 1, .help = "1,2,3  seeds of every run (quick: 1)"},
    {.name = "quick", .help = "few steps: all of it within about 10 minutes on two cores"},
    {.name = "format", .has_value = 1, .help = "png,svg,pdf  formats of the figures"},
    {.name = "venue", .has_value = 1, .help = "NAME  sizes and fonts of a venue (see figure list)"},
    {.name = "json", .help = "one JSON object: runs, evaluations, figures, skipped, tables"},
    {.name = "quiet", .help = "do not show progress"},
    {.name = "dry-run", .help = "list the runs with estimates; start nothing"},
    BATCH_OPTIONS,
    {.name = NULL},
};

enum { QUICK_SECONDS = 480, BAR_CELLS = 24 };
/* Share of the measured peak that training reaches, low so that estimates are rarely exceeded; and
 * what a run costs besides its steps: start, tokenizer, final evaluation. */
static const double efficiency = 0.2, overhead_s = 8;

/* ---- progress ---- */

void pipeline_show(struct pipeline *p, const char *name, const char *what)
{
    struct str line = {0};
    char left[16] = "";
    if (p->is_quiet)
        return;
    if (p->is_terminal && !p->is_dry) {
        char bar[BAR_CELLS + 1];
        size_t full = p->all ? p->at * BAR_CELLS / p->all : 0;
        for (size_t i = 0; i < BAR_CELLS; i++)
            bar[i] = i < full ? '#' : '.';
        bar[BAR_CELLS] = '\0';
        name += strncmp(name, "pipeline-", 9) == 0 ? 9 : 0;
        str_addf(&line, "[%s] %zu/%zu ", bar, p->at, p->all);
        if (p->at > 0)
            str_addf(&line, "%s left, ",
                     str_duration(left, (clock_mono() - p->started) / (double)p->at *
                                            (double)(p->all - p->at)));
    } else {
        str_addf(&line, "[%zu/%zu] ", p->at, p->all);
    }
    str_addf(&line, "%s: ", name);
    cli_add_safe(&line, what, strlen(what), -1);
    if (p->is_terminal && !p->is_dry) {
        struct str fit = {0};
        cli_add_safe(&fit, str_text(&line), line.len, cli_columns(80) - 1);
        fprintf(stderr, "\r\033[K%s", str_text(&fit));
        str_release(&fit);
    } else {
        fprintf(stderr, "%s\n", str_text(&line));
    }
    fflush(stderr);
    str_release(&line);
}

void pipeline_skip(struct pipeline *p, const char *name, const char *why)
{
    struct str line = {0};
    cli_add_safe(&line, why, strlen(why), -1);
    if (!p->is_quiet)
        fprintf(stderr, "%sskipped %s: %s\n", p->is_terminal ? "\r\033[K" : "", name,
                str_text(&line));
    json_key(&p->skipped, NULL);
    str_add(&p->skipped, "{");
    json_add_str(&p->skipped, "name", name);
    json_add_str(&p->skipped, "why", why);
    str_add(&p->skipped, "}");
    str_release(&line);
}

static void on_progress(struct batch_plan *b, size_t at, const char *name, const char *what)
{
    struct pipeline *p = b->ctx;
    size_t before = p->part == BASE ? 0 : 2 * b->seeds;
    p->at = before + at - (p->is_dry ? 0 : 1);
    pipeline_show(p, name, what);
}

/* ---- settings ---- */

/* Settings of another method mean nothing to a control. */
static int is_of_method(const struct pipeline *p, const char *override)
{
    size_t n = strlen(p->method);
    override += strspn(override, "+-");
    return (strncmp(override, p->method, n) == 0 && override[n] == '.') ||
           strncmp(override, "model.method=", 13) == 0;
}

static struct batch_row *add_row(struct pipeline *p, struct batch_plan *b, const char *label,
                                 int with_method, struct err *e)
{
    struct batch_row *r = batch_add(b, label);
    int rc = r ? 0 : err_set(e, DS_EMEM, "pipeline");
    for (int i = 0; rc == 0 && i < p->args.n_rest; i++)
        rc = batch_preset(r, p->args.rest[i], e);
    for (int i = 0; rc == 0 && i < p->args.n_override; i++)
        if (with_method || !is_of_method(p, p->args.override[i]))
            rc = batch_set(r, p->args.override[i], e);
    if (rc < 0)
        return NULL;
    char about[16];
    snprintf(r->note, sizeof r->note, "%" PRId64 " steps, about %s", p->steps,
             str_duration(about, p->run_s));
    return r;
}

static int set(struct batch_row *r, struct err *e, const char *fmt, ...) DS_PRINTF(3, 4);
static int set(struct batch_row *r, struct err *e, const char *fmt, ...)
{
    struct str s = {0};
    va_list ap;
    if (!r)
        return e->code;
    va_start(ap, fmt);
    str_vaddf(&s, fmt, ap);
    va_end(ap);
    int rc = s.failed ? err_set(e, DS_EMEM, "pipeline") : batch_set(r, str_text(&s), e);
    str_release(&s);
    return rc;
}

/* The settings that hold for every run; --quick first, so that the user's win. */
static int resolve(struct pipeline *p, struct train_config *c, struct err *e)
{
    return train_config_make(c, p->args.rest, (size_t)p->args.n_rest, p->args.override,
                             (size_t)p->args.n_override, e);
}

static int step_seconds(struct pipeline *p, double *seconds, struct err *e)
{
    struct train_config c = {0};
    struct train_cost cost;
    struct train_cost_cache cache = {0};
    int rc = resolve(p, &c, e);
    int threads = rc == 0 ? (int)c.run.threads : 0;
    if (rc == 0)
        rc = train_cost(&cost, &c, &cache, e);
    train_config_release(&c);
    if (rc == 0 && pool_threads() <= 1)
        rc = pool_start(threads, e);
    if (rc == 0)
        *seconds = cost.dense / (1e9 * efficiency * peak_gflops(PEAK_FP32, 0.2));
    pool_stop();
    return rc;
}

static size_t run_count(const struct pipeline *p, size_t seeds)
{
    enum { EDITS = 12 };
    return seeds * (5 + (strcmp(p->method, "edp") == 0 ? EDITS : 0));
}

/* The number of steps of --quick follows from the speed of this machine; it is kept in the output
 * directory, because a resumed pipeline must train the same runs. */
static int quick_steps(struct pipeline *p, int64_t planned, double step_s, size_t runs,
                       struct err *e)
{
    char path[1100];
    struct json *j = NULL;
    struct str text = {0};
    int rc = fs_join(path, sizeof path, p->dir, "pipeline.json", e);
    if (rc < 0)
        return rc;
    if (fs_exists(path)) {
        rc = json_read_file(&j, path, 1 << 20, e);
        const char *preset = rc == 0 ? json_str(json_get(json_root(j), "preset"), NULL) : NULL;
        p->steps = rc == 0 ? json_int(json_get(json_root(j), "steps"), 0) : 0;
        if (rc == 0 && (!preset || strcmp(preset, p->preset) != 0 || p->steps < 1))
            rc = err_set(e, DS_EEXIST, "%s: holds another pipeline; use -o DIR", p->dir);
        json_free(j);
        return rc;
    }
    double steps = floor((QUICK_SECONDS / (double)runs - overhead_s) / step_s);
    p->steps = (int64_t)fmin((double)planned, fmax(steps, 20));
    str_add(&text, "{");
    json_add_str(&text, "preset", p->preset);
    json_add_int(&text, "steps", p->steps);
    str_add(&text, "}\n");
    if (!p->is_dry && (rc = fs_mkdirs(p->dir, e)) == 0)
        rc = fs_write_text(path, &text, e);
    str_release(&text);
    return rc;
}

static void quick_settings(struct pipeline *p, int64_t warmup)
{
    const int64_t n = p->steps;
    const struct {
        const char *key;
        int64_t value;
    } set[] = {
        {"train.steps", n},
        {"train.warmup", warmup < n / 10 ? warmup : n / 10},
        {"train.eval_every", n / 5 > 0 ? n / 5 : 1},
        {"train.probe_every", n / 4 > 0 ? n / 4 : 1},
        {"train.checkpoint_every", n / 3 > 0 ? n / 3 : 1},
        {"train.eval_tokens", 2048},
        {"train.final_tokens", 8192},
        {"train.time_rounds", 3},
    };
    int k = 0;
    for (size_t i = 0; i < DS_LEN(set); i++) {
        snprintf(p->quick[i], sizeof p->quick[i], "%s=%" PRId64, set[i].key, set[i].value);
        p->override[k++] = p->quick[i];
    }
    for (int i = 0; i < p->args.n_override; i++)
        p->override[k++] = p->args.override[i];
    p->args.override = p->override;
    p->args.n_override = k;
}

/* Before the runs: an output directory that cannot be written would be found hours later. */
static int check_output(const struct pipeline *p, size_t seeds, struct err *e)
{
    size_t runs = run_count(p, seeds);
    if (runs > PIPELINE_RUNS)
        return err_set(e, DS_EUSAGE, "pipeline: %zu runs for %zu seeds, expected at most %d", runs,
                       seeds, PIPELINE_RUNS);
    if (fs_exists(p->dir) && !fs_is_dir(p->dir))
        return err_set(e, DS_EUSAGE, "pipeline: -o %.400s: not a directory", p->dir);
    int rc = p->is_dry ? 0 : fs_mkdirs(p->dir, e);
    if (rc == 0 && fs_is_dir(p->dir) && access(p->dir, W_OK) != 0)
        rc = err_errno(e, "pipeline: -o %.400s", p->dir);
    return rc;
}

static int start(struct pipeline *p, const struct cli_args *a, size_t seeds, struct err *e)
{
    struct train_config c = {0};
    const char *out = cli_value(a, "o");
    double step_s = 0, target = 0;
    if (a->n_override + (int)DS_LEN(p->quick) > PIPELINE_SETTINGS)
        return err_set(e, DS_EUSAGE, "pipeline: too many settings");
    int rc = resolve(p, &c, e);
    if (rc < 0)
        return rc;
    char key[64];
    snprintf(key, sizeof key, "%s.target_ratio", c.model.method);
    const char *text = config_get(&c.route, key);
    target = text ? strtod(text, NULL) : 0;
    p->block_guess = target > 0 ? target : 0.6;
    p->layers = (int)c.model.layers;
    struct flops_shape shape = model_config_flops(&c.model), head = shape;
    head.L = head.windowed = head.dense_mlps = 0;
    p->stack =
        flops_dense_token(&shape, (int)c.train.seq) - flops_dense_token(&head, (int)c.train.seq);
    p->steps = c.train.steps;
    int64_t warmup = c.train.warmup;
    str_copy(p->method, sizeof p->method, c.model.method);
    train_config_release(&c);
    if (strcmp(p->method, "dense") == 0)
        return err_set(
            e, DS_EUSAGE,
            "pipeline: the preset is dense: expected a method, such as model.method=edp");
    presets_label(p->preset, sizeof p->preset, p->args.rest, (size_t)p->args.n_rest);
    if (out ? str_copy(p->dir, sizeof p->dir, out)
            : snprintf(p->dir, sizeof p->dir, "exports/%s%s", p->preset,
                       p->is_quick && strcmp(p->preset, "quick") != 0 ? "-quick" : "") >=
                  (int)sizeof p->dir)
        return err_set(e, DS_ERANGE, "pipeline: the path is too long");
    rc = check_output(p, seeds, e);
    if (rc == 0)
        rc = step_seconds(p, &step_s, e);
    if (rc == 0 && p->is_quick) {
        rc = quick_steps(p, p->steps, step_s, run_count(p, seeds), e);
        if (rc == 0)
            quick_settings(p, warmup);
        snprintf(p->label, sizeof p->label, "Quick: %" PRId64 " steps per run, not a result.",
                 p->steps);
    }
    p->run_s = overhead_s + (double)p->steps * step_s;
    return rc;
}

/* ---- runs ---- */

static int take(struct batch_plan *b, const struct batch_done *x, struct err *e)
{
    struct pipeline *p = b->ctx;
    (void)e;
    for (size_t row = 0; row < b->n; row++) {
        const struct summary_group *g = &x->group[row];
        if (p->rows == PIPELINE_ROWS)
            return err_set(e, DS_ERANGE, "pipeline: too many rows");
        str_copy(p->row[p->rows], sizeof p->row[0], b->row[row].label);
        for (size_t i = 0; i < g->n && p->runs < PIPELINE_RUNS; i++) {
            struct pipeline_run *r = &p->run[p->runs++];
            str_copy(r->name, sizeof r->name, x->run[g->member[i]].name);
            r->row = p->rows;
            r->part = p->part == BASE                                     ? BASE
                      : strncmp(b->row[row].label, "ablation: ", 10) == 0 ? ABLATIONS
                                                                          : CONTROLS;
        }
        p->rows++;
        if (b->row[row].refused[0])
            pipeline_skip(p, b->row[row].label, b->row[row].refused);
    }
    for (size_t i = 0; i < x->failed; i++)
        pipeline_skip(p, x->failure[i].name, x->failure[i].reason);
    if (p->part == BASE) {
        p->block = x->group[1].value[SUMMARY_BLOCK].mean;
        p->flops = x->group[1].value[SUMMARY_FLOPS].mean;
        p->dense = x->group[1].dense_flops;
    }
    return 0;
}

static int plan_base(struct pipeline *p, struct batch_plan *b, struct err *e)
{
    int rc = set(add_row(p, b, "dense", 0, e), e, "model.method=dense");
    if (rc == 0 && !add_row(p, b, p->method, 1, e))
        rc = e->code;
    return rc;
}

/* The controls execute what the method was measured to execute. */
static int plan_controls(struct pipeline *p, struct batch_plan *b, const struct cli_args *a,
                         struct err *e)
{
    static const char *const control[] = {"random", "static"};
    char label[96];
    int is_known = isfinite(p->block) && isfinite(p->flops) && p->dense > 0, rc = 0;
    double block = is_known ? p->block : p->block_guess;
    /* a shallower model keeps the head, whose rows the tokenizer decides: the rest are layers */
    double head = is_known ? fmax(0, p->dense - p->stack) : 0;
    double share = is_known ? (p->flops * p->dense - head) / (p->dense - head) : block;
    int layers = (int)fmax(1, floor(share * p->layers + 0.5));
    for (size_t i = 0; rc == 0 && i < DS_LEN(control); i++) {
        snprintf(label, sizeof label, "control: %s", control[i]);
        struct batch_row *r = add_row(p, b, label, 0, e);
        rc = set(r, e, "model.method=%s", control[i]);
        if (rc == 0)
            rc = set(r, e, "%s.target_ratio=%.4f", control[i], fmin(1, block));
    }
    snprintf(label, sizeof label, "control: dense, %d layers", layers);
    struct batch_row *r = rc == 0 ? add_row(p, b, label, 0, e) : NULL;
    if (rc == 0)
        rc = set(r, e, "model.method=dense");
    if (rc == 0)
        rc = set(r, e, "model.layers=%d", layers);
    for (size_t i = 0; rc == 0 && !is_known && i < b->n; i++)
        snprintf(b->row[i].note, sizeof b->row[i].note, "its size follows from %.20s's FLOPs",
                 p->method);
    size_t from = b->n;
    if (rc == 0 && strcmp(p->method, "edp") != 0)
        pipeline_skip(p, "ablations", "none are defined for this method");
    else if (rc == 0)
        rc = ablate_rows(b, a, NULL, e);
    for (size_t i = from; rc == 0 && i < b->n; i++) {
        char name[96], about[16];
        str_copy(name, sizeof name, b->row[i].label);
        snprintf(b->row[i].label, sizeof b->row[i].label, "ablation: %.80s", name);
        snprintf(b->row[i].note, sizeof b->row[i].note, "%" PRId64 " steps, about %s", p->steps,
                 str_duration(about, p->run_s));
    }
    return rc;
}

/* ---- command ---- */

static int run_part(struct pipeline *p, enum pipeline_part part, const int64_t *seed, size_t seeds,
                    struct err *e)
{
    struct batch_plan b = {.kind = "pipeline",
                           .seeds = seeds,
                           .how = p->how,
                           .dry = p->is_dry,
                           .json = p->is_json,
                           .is_first_part = part == BASE,
                           .quiet = 1, /* say and finish report */
                           .finish = take,
                           .say = on_progress,
                           .ctx = p};
    b.seed = mem_alloc(seeds, sizeof *b.seed);
    int rc = b.seed ? 0 : err_set(e, DS_EMEM, "pipeline: out of memory"), status = 1;
    p->part = part;
    str_copy(b.preset, sizeof b.preset, p->preset);
    for (size_t i = 0; rc == 0 && i < seeds; i++)
        b.seed[i] = seed[i];
    if (rc == 0)
        rc = part == BASE ? plan_base(p, &b, e) : plan_controls(p, &b, &p->args, e);
    if (rc == 0)
        status = batch_run(&b);
    p->is_complete = b.is_complete;
    p->is_later = b.is_later;
    if (part == CONTROLS)
        p->at = p->all - 3;
    batch_release(&b);
    return rc < 0 ? rc : status;
}

/* Exit status: as of batch_run; a failed run leaves its row empty and the rest is still done. */
static int run_pipeline(struct pipeline *p, const int64_t *seed, size_t seeds, struct err *e)
{
    p->all = run_count(p, seeds) + 3;
    p->started = clock_mono();
    int status = run_part(p, BASE, seed, seeds, e);
    int is_report = p->how.status || p->how.slurm;
    int is_measured =
        status == 0 || (status == 1 && isfinite(p->block)); /* a run may have failed */
    if (!is_measured || (is_report && !p->is_complete) || /* the controls follow from the method */
        (p->how.worker && !p->is_later))
        return status;
    int rest = run_part(p, CONTROLS, seed, seeds, e);
    if (rest < 0 || rest > 1 || is_report || p->how.worker)
        return rest;
    if (p->is_dry) {
        char total[16];
        if (p->is_json) {
            struct str out = {0};
            pipeline_json(&out, p);
            return cli_print(&out);
        }
        struct str dir = {0};
        cli_add_safe(&dir, p->dir, strlen(p->dir), -1);
        fprintf(stderr, "then the evaluation, figures and table in %s; about %s in all\n",
                str_text(&dir), str_duration(total, p->run_s * (double)run_count(p, seeds)));
        str_release(&dir);
        return 0;
    }
    int rc = pipeline_results(p, e);
    return rc < 0 ? rc : rest > status ? rest : status;
}

static int check_formats(const char *list, struct err *e)
{
    for (const char *at = list;;) {
        size_t len = strcspn(at, ",");
        if (pen_format_find(at, len) < 0)
            return err_set(e, DS_EUSAGE,
                           "pipeline: unknown format \"%.*s\", expected png, svg or pdf",
                           (int)(len > 40 ? 40 : len), at);
        if (!at[len])
            return 0;
        at += len + 1;
    }
}

static int check_venue(const char *venue, struct err *e)
{
    char words[256];
    int i = 0;
    for (const char *known; venue && (known = figure_venue(i, words, sizeof words)); i++)
        if (strcmp(known, venue) == 0)
            return 0;
    return venue ? err_set(e, DS_EUSAGE,
                           "pipeline: unknown venue \"%.40s\" (depthscope figure list)", venue)
                 : 0;
}

int pipeline_command(int argc, char **argv)
{
    struct err e = {0};
    struct pipeline *p = mem_alloc(1, sizeof *p);
    struct cli_args a = {0};
    int64_t *seed = NULL;
    size_t seeds = 0;
    char data[1024];
    int rc = p ? cli_parse(&a, pipeline_options, argc, argv, &e)
               : err_set(&e, DS_EMEM, "pipeline: out of memory");
    if (rc < 0) {
        mem_free(p);
        return command_fail(&e);
    }
    if (cli_data_dir(data, sizeof data, "data", NULL) == 0)
        train_config_preset_dir(data);
    p->args = a;
    p->is_quick = cli_flag(&a, "quick");
    p->is_dry = cli_flag(&a, "dry-run");
    p->is_json = cli_flag(&a, "json");
    p->is_quiet = cli_flag(&a, "quiet");
    p->is_terminal = isatty(STDERR_FILENO);
    rc = batch_how_read(&p->how, &a, argc, argv, &e);
    p->formats = cli_value(&a, "format") ? cli_value(&a, "format") : "png,svg,pdf";
    p->venue = cli_value(&a, "venue");
    p->block = p->flops = (double)NAN;
    const char *list = cli_value(&a, "seeds");
    for (int i = 0; rc == 0 && i < a.n_override; i++)
        if (cli_seed_setting(a.override[i], &(const char *){NULL}))
            rc = err_set(&e, DS_EUSAGE, "pipeline: unexpected setting seed; use --seeds 1,2,3");
    if (rc == 0)
        rc = check_formats(p->formats, &e);
    if (rc == 0)
        rc = check_venue(p->venue, &e);
    if (rc == 0)
        rc = cli_seeds(&seed, &seeds, list ? list : p->is_quick ? "1" : "1,2,3", &e);
    if (rc == 0)
        rc = start(p, &a, seeds, &e);
    if (rc == 0)
        rc = run_pipeline(p, seed, seeds, &e);
    int status = rc < 0 ? command_fail(&e) : batch_signal ? 128 + (int)batch_signal : rc;
    str_release(&p->evaluations);
    str_release(&p->figures);
    str_release(&p->skipped);
    str_release(&p->tables);
    mem_free(seed);
    mem_free(p);
    cli_release(&a);
    return status;
}
