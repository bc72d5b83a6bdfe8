/* depthscope train: trains a run in this process. */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/process.h"
#include "base/ranks.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/keys.h"
#include "cli/cli.h"
#include "cli/version.h"
#include "data/corpus.h"
#include "data/shards.h"
#include "io/runconfig.h"
#include "training/fork.h"
#include "training/job.h"
#include "training/team.h"
#include "training/trainer.h"

struct cli_option train_options[] = {
    {"run", 1, NULL, 0, "NAME  name of the run (default: derived from the preset)"},
    {"resume", 1, NULL, 0, "RUN  continue this run from its newest checkpoint"},
    {"from", 1, NULL, 0,
     "best|STEP  with --resume: from that checkpoint, as a new run NAME-from-STEP (or --run) "
     "unless it is the newest"},
    {"allow-change", 0, NULL, 0,
     "with --resume: continue although data, tokenizer or keys changed"},
    {"quiet", 0, NULL, 0, "no progress on the terminal"},
    {"json", 0, NULL, 0, "one JSON object per step on stdout; with --keys, one array"},
    {"parent", 1, NULL, 0, "RUN  record this run as the parent in meta.json"},
    {"mode", 1, NULL, 0, "quick|scratch|transfer  appended as the last preset"},
    {"dry-run", 0, NULL, 0,
     "check the settings, print what the run will need, and start nothing; with --json, one "
     "object"},
    {"m", 0, NULL, 0, "multi-run: key=a,b,c is a list of values, as in depthscope sweep"},
    {"keys", 1, NULL, 0, "GROUP  list the keys of a method or group (model, train, all) and exit"},
    {NULL, 0, NULL, 0, NULL},
};

static atomic_int stop_signal;

static void on_signal(int sig)
{
    int none = 0;
    if (sig == SIGUSR1) {
        atomic_compare_exchange_strong(&stop_signal, &none, SIGNAL_CHECKPOINT);
        return;
    }
    if (atomic_load(&stop_signal) > 0 && sig == SIGXCPU)
        return; /* comes again every second of the time that is left */
    if (atomic_load(&stop_signal) > 0)
        _exit(128 + sig); /* second signal: safe, the log is append-only, checkpoints are atomic */
    atomic_store(&stop_signal, sig);
}

static void catch_signals(void)
{
    struct sigaction sa = {.sa_handler = on_signal};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGUSR1, &sa, NULL);
    for (int i = 0; process_end_signals[i]; i++)
        sigaction(process_end_signals[i], &sa, NULL);
    signal(SIGHUP, SIG_IGN); /* a dropped connection must not stop a run */
    signal(SIGPIPE, SIG_IGN);
}

enum shape { SHAPE_QUIET, SHAPE_JSON, SHAPE_BAR, SHAPE_LINES };
struct progress {
    enum shape shape;
    double last;
    double step_ms[ETA_STEPS]; /* ring buffer of the newest steps */
    size_t steps;              /* of this process */
    int drawn;
};

static void json_line(const struct step_report *s)
{
    struct str o = {0};
    str_add(&o, "{");
    step_report_json(s, &o);
    str_add(&o, "}\n");
    if (o.failed)
        log_warn("out of memory for a line of standard output");
    else
        fputs(str_text(&o), stdout);
    fflush(stdout);
    str_release(&o);
}

static int columns(void)
{
    struct winsize w;
    return ioctl(2, TIOCGWINSZ, &w) == 0 && w.ws_col > 20 ? w.ws_col : 80;
}

/* Seconds for the remaining steps, from the newest steps of this process. */
static double time_left(const struct progress *p, const struct trainer *t)
{
    double share = account_share(&t->account, ACCOUNT_EVALUATION) +
                   account_share(&t->account, ACCOUNT_CHECKPOINT);
    return eta_seconds(p->step_ms, p->steps < ETA_STEPS ? p->steps : ETA_STEPS, share,
                       (double)(t->config.train.steps - t->state.step));
}

/* phase: current activity other than a step, or NULL. */
static void describe_step(const struct progress *p, const struct trainer *t, char *out, size_t size,
                          const char *phase)
{
    char speed[16], eta[16], end[32] = "";
    double left = time_left(p, t);
    if (phase) { /* must fit on a line of 80 columns */
        snprintf(out, size, "step %lld/%lld  loss %.4f  %s ...", (long long)t->state.step,
                 (long long)t->config.train.steps, t->report.loss, phase);
        return;
    }
    if (t->state.step < t->config.train.steps && isfinite(left))
        snprintf(end, sizeof end, "  eta %s", str_duration(eta, left));
    snprintf(out, size, "step %lld/%lld  loss %.4f  blocks %2.0f%%  %s tok/s%s",
             (long long)t->state.step, (long long)t->config.train.steps, t->report.loss,
             100 * t->report.block_ratio, str_si(speed, t->report.tok_s), end);
}

static void bar(struct progress *p, const struct trainer *t, const char *phase)
{
    enum { BAR = 20 };
    char text[256], cells[BAR + 1];
    int done = (int)(BAR * t->state.step / t->config.train.steps);
    describe_step(p, t, text, sizeof text, phase);
    p->drawn = 1;
    for (int i = 0; i < BAR; i++)
        cells[i] = i < done ? '#' : '.';
    cells[BAR] = '\0';
    int room = columns() - BAR - 4;
    fprintf(stderr, "\r[%s] %.*s\x1b[K", cells, room > 0 ? room : 0, text);
    fflush(stderr);
}

static void on_step(void *ctx, const struct trainer *t)
{
    struct progress *p = ctx;
    double now = clock_mono();
    p->step_ms[p->steps++ % ETA_STEPS] = t->report.step_ms + t->report.ms[STEP_RECORD];
    int last = t->state.step == t->config.train.steps;
    if (p->shape == SHAPE_JSON)
        json_line(&t->report);
    if (p->shape == SHAPE_BAR && (now - p->last > 0.1 || last)) {
        bar(p, t, NULL);
        p->last = now;
    }
    if (p->shape == SHAPE_LINES && (t->report.has_val || now - p->last > 5 || last)) {
        char text[256];
        describe_step(p, t, text, sizeof text, NULL);
        printf("%s", text);
        if (t->report.has_val)
            printf("  val %.4f  %.3f bits/byte", t->report.val_loss, t->report.bits_per_byte);
        putchar('\n');
        fflush(stdout);
        p->last = now;
    }
}

static void on_phase(void *ctx, const struct trainer *t, const char *what)
{
    struct progress *p = ctx;
    if (p->shape == SHAPE_BAR && p->steps > 0) {
        bar(p, t, what);
        p->last = clock_mono();
    }
}

static void end_bar(struct progress *p)
{
    if (p->drawn)
        fputc('\n', stderr);
    p->drawn = 0;
}

/* Result of a finished run, its path, and suggested next commands. */
static void print_end(const struct trainer *t, struct progress *p)
{
    char now[1024];
    trainer_home_now(t, now, sizeof now);
    const struct step_report *s = &t->report;
    char took[16];
    end_bar(p);
    printf("%s: done, %lld step%s, %s of training\n", t->name, (long long)t->state.step,
           t->state.step == 1 ? "" : "s", str_duration(took, t->state.seconds));
    if (s->has_val) {
        printf("  val loss %.4f", s->val_loss);
        if (isfinite(s->bits_per_byte))
            printf(", %.3f bits/byte", s->bits_per_byte);
        printf("; FLOPs %.3f of the dense model", s->val_flops_ratio);
        if (isfinite(s->time_ratio))
            printf(", time %.3f", s->time_ratio);
        putchar('\n');
    }
    if (t->state.best_step >= 0 && t->state.best_step != t->state.step)
        printf("  %s/checkpoints/step-%08lld (best: step %lld)\n", now, (long long)t->state.step,
               (long long)t->state.best_step);
    else
        printf("  %s/checkpoints/step-%08lld\n", now, (long long)t->state.step);
    printf("  next: depthscope %s    depthscope generate %s --prompt TEXT\n", now, now);
    fflush(stdout);
}

static enum shape choose_shape(const struct cli_args *a)
{
    if (cli_flag(a, "json"))
        return SHAPE_JSON;
    if (cli_flag(a, "quiet"))
        return SHAPE_QUIET;
    return isatty(2) && isatty(1) ? SHAPE_BAR : SHAPE_LINES;
}

/* What fs_name_ok takes. */
static void make_name(char *name)
{
    for (char *p = name; *p; p++)
        if (!strchr("._-", *p) && ((unsigned char)*p >= 0x80 || !isalnum((unsigned char)*p)))
            *p = '_';
    if (name[0] == '.' || name[0] == '-')
        name[0] = '_';
}

/* "stories-mod": the presets, and the method unless a preset has its name. */
static void name_stem(char *stem, size_t size, const struct train_config *c)
{
    const char *method = c->model.method;
    int is_named = 0;
    str_copy(stem, size, c->preset);
    for (char *p = stem; *p; p++) {
        size_t n = strcspn(p, "+");
        is_named += n == strlen(method) && strncmp(p, method, n) == 0;
        p += n;
        if (!*p)
            break;
        *p = '-';
    }
    make_name(stem);
    size_t n = strlen(stem);
    if (!is_named)
        snprintf(stem + n, size - n, "-%s", method);
}

/* mkdir reserves the name. */
static int reserve(char *dir, size_t size, const char *name, int *is_taken, struct err *e)
{
    int rc = fs_join(dir, size, job_root(), name, e);
    *is_taken = 0;
    if (rc < 0 || fs_mkdir(dir, 0755) == 0)
        return rc;
    *is_taken = errno == EEXIST;
    return *is_taken ? 0 : err_errno(e, "%s", dir);
}

/* Without --run, the first free name: PRESET-METHOD-1, -2, ... */
static int choose_dir(const struct cli_args *a, const struct train_config *c, char *dir,
                      size_t size, struct err *e)
{
    char name[128], stem[56];
    const char *given = cli_value(a, "run");
    if (given && cli_run_name(&given, given, e) < 0)
        return DS_EUSAGE;
    if (given)
        return fs_join(dir, size, job_root(), given, e);
    name_stem(stem, sizeof stem, c);
    int rc = fs_mkdirs(job_root(), e), is_taken = 1;
    for (int i = 1; rc == 0 && is_taken && i < 100000; i++) {
        snprintf(name, sizeof name, "%s-%d", stem, i);
        rc = reserve(dir, size, name, &is_taken, e);
    }
    return rc == 0 && is_taken ? err_set(e, DS_EEXIST, "no free run name") : rc;
}

/* ---- resume and fork ---- */

struct origin {
    int is_fork; /* `dir` was made now, around a checkpoint of another run */
    int is_lost; /* config.yaml could not be read and comes from elsewhere */
};

/* A directory that is there may be the reservation of a start that was killed. */
static int check_is_empty(const char *dir, struct err *e)
{
    char **names = NULL;
    size_t n = 0;
    int rc = fs_list(dir, &names, &n, e);
    fs_list_free(names, n);
    return rc == 0 && n > 0
               ? err_set(e, DS_EEXIST, "%s: run exists; choose a new name with --run", dir)
               : rc;
}

/* NAME-from-STEP, -2, ...; a name given by --run must be free. */
static int choose_fork(const struct cli_args *a, const char *parent, int64_t step, char *dir,
                       size_t size, struct err *e)
{
    const char *given = cli_value(a, "run"), *slash = strrchr(parent, '/');
    char stem[64], name[80];
    int is_taken = 1, rc = given ? cli_run_name(&given, given, e) : 0;
    if (rc == 0)
        rc = fs_mkdirs(job_root(), e);
    if (rc == 0 && given)
        rc = reserve(dir, size, given, &is_taken, e);
    if (given || rc < 0)
        return rc == 0 && is_taken ? check_is_empty(dir, e) : rc;
    snprintf(stem, sizeof stem, "%.36s-from-%lld", slash ? slash + 1 : parent, (long long)step);
    make_name(stem);
    for (int i = 1; rc == 0 && is_taken && i < 1000; i++) {
        snprintf(name, sizeof name, i > 1 ? "%s-%d" : "%s", stem, i);
        rc = reserve(dir, size, name, &is_taken, e);
    }
    return rc == 0 && is_taken ? err_set(e, DS_EEXIST, "%s: no free name for a fork", stem) : rc;
}

static int check_overrides(const struct cli_args *a, struct err *e)
{
    return a->n_override == 0 || cli_flag(a, "allow-change")
               ? 0
               : err_set(e, DS_EUSAGE,
                         "--resume uses the run's own configuration; use --allow-change to set %s",
                         a->override[0]);
}

static int fork_run(const struct cli_args *a, struct train_config *c, const struct fork_point *p,
                    char *dir, size_t size, int argc, char **argv, struct err *e)
{
    char parent[1024];
    str_copy(parent, sizeof parent, dir);
    int rc = choose_fork(a, parent, p->step, dir, size, e);
    if (rc == 0)
        rc = fork_make(dir, parent, p, c, argc, argv, DEPTHSCOPE_VERSION, e);
    if (rc == 0)
        log_info("%s: new run from step %lld of %s", dir, (long long)p->step, parent);
    return rc;
}

/* The directory that was named, with a name of its own: "." has none, "NAME/" is NAME. */
static int find_run(char *dir, size_t size, const char *resume, struct err *e)
{
    char full[PATH_MAX];
    size_t n = fs_trimmed(resume);
    int is_dot =
        resume[n - 1] == '.' && (n == 1 || resume[n - 2] == '/' ||
                                 (resume[n - 2] == '.' && (n == 2 || resume[n - 3] == '/')));
    if (is_dot && realpath(resume, full))
        return str_copy(dir, size, full) ? err_set(e, DS_ERANGE, "path too long: %.80s", full) : 0;
    struct err why = {0};
    int rc = cli_run_path(dir, size, resume, &why);
    if (rc == 0 || rc == DS_EIO)
        return rc == 0 ? 0 : err_set(e, rc, "%s", why.text);
    rc = fs_join(dir, size, job_root(), resume, e);
    if (rc == 0)
        dir[fs_trimmed(dir)] = '\0';
    return rc;
}

static int prepare_resume(const struct cli_args *a, struct train_config *c, char *dir, size_t size,
                          struct origin *o, int argc, char **argv, struct err *e)
{
    const char *resume = cli_value(a, "resume"), *from = cli_value(a, "from");
    char path[1100], log[1100];
    struct fork_point p = {0};
    int rc = find_run(dir, size, resume, e);
    if (rc == 0)
        rc = fs_join(path, sizeof path, dir, "config.yaml", e);
    if (rc == 0)
        rc = fs_join(log, sizeof log, dir, "log.mp", e);
    if (rc == 0 && !fs_exists(path) && !fs_exists(log) && (rc = fs_check_reach(path, e)) == 0)
        rc = err_set(e, DS_ENOTFOUND, "--resume %s: run not found (missing %s)", resume, path);
    if (rc == 0 && runconfig_has_writer(dir))
        rc = err_set(e, DS_EUSAGE,
                     "--resume %s: not a run of depthscope train: the program that wrote it has to "
                     "continue it",
                     resume);
    if (rc == 0 && from)
        rc = fork_find(&p, dir, from, e);
    o->is_fork = from && (!p.is_newest || cli_value(a, "run"));
    if (rc == 0 && cli_value(a, "run") && !from)
        rc = err_set(e, DS_EUSAGE,
                     "--resume continues %s itself; use --from best|STEP to start a new "
                     "run named by --run",
                     resume);
    if (rc == 0 && !o->is_fork) /* a fork may change keys of its parent */
        rc = check_overrides(a, e);
    if (rc == 0)
        rc = train_config_read(c, dir, a->override, (size_t)a->n_override, &o->is_lost, e);
    if (rc == 0)
        rc = team_check_pieces(&c->train, 1, e);
    return rc == 0 && o->is_fork ? fork_run(a, c, &p, dir, size, argc, argv, e) : rc;
}

/* Of a new run: the pieces of a step are fixed when it starts, for this number of ranks. */
static int make_config(const struct cli_args *a, struct train_config *c, const char **preset,
                       size_t presets, struct err *e)
{
    int rc = train_config_make(c, preset, presets, a->override, (size_t)a->n_override, e);
    if (rc == 0)
        c->train.pieces = team_pieces(&c->train, ranks_size());
    return rc == 0 ? team_check_pieces(&c->train, 0, e) : rc;
}

/* Options of --resume alone. */
static int check_new(const struct cli_args *a, struct err *e)
{
    if (cli_value(a, "from"))
        return err_set(e, DS_EUSAGE, "--from %s: missing run; use --resume NAME",
                       cli_value(a, "from"));
    if (cli_flag(a, "allow-change"))
        return err_set(e, DS_EUSAGE, "--allow-change: missing run; use --resume NAME");
    return 0;
}

static int prepare(const struct cli_args *a, struct train_config *c, char *dir, size_t size,
                   struct origin *o, int argc, char **argv, struct err *e)
{
    const char **preset = NULL;
    size_t presets = 0;
    int rc = cli_presets(a, &preset, &presets, e);
    if (rc == 0 && cli_value(a, "resume") && presets > 0)
        rc = err_set(e, DS_EUSAGE,
                     "--resume uses the run's own configuration; unexpected preset %s", preset[0]);
    else if (rc == 0 && cli_value(a, "resume"))
        rc = prepare_resume(a, c, dir, size, o, argc, argv, e);
    else if (rc == 0) {
        rc = check_new(a, e);
        if (rc == 0)
            rc = make_config(a, c, preset, presets, e);
        if (rc == 0)
            rc = choose_dir(a, c, dir, size, e);
        if (rc == 0)
            rc = trainer_create(dir, c, argc, argv, DEPTHSCOPE_VERSION, cli_value(a, "parent"), e);
    }
    mem_free(preset);
    return rc;
}

/* The configuration on a rank that follows: rank 0 has found or made the directory. */
static int prepare_to_follow(const struct cli_args *a, struct train_config *c, const char *dir,
                             struct err *e)
{
    const char **preset = NULL;
    size_t presets = 0;
    int is_lost, rc = cli_presets(a, &preset, &presets, e);
    if (rc == 0 && cli_value(a, "resume"))
        rc = train_config_read(c, dir, a->override, (size_t)a->n_override, &is_lost, e);
    else if (rc == 0)
        rc = make_config(a, c, preset, presets, e);
    mem_free(preset);
    return rc;
}

static int prepare_all(const struct cli_args *a, struct train_config *c, char *dir, size_t size,
                       struct origin *o, int argc, char **argv, struct err *e)
{
    int rc = team_follows() ? 0 : prepare(a, c, dir, size, o, argc, argv, e), is_made = rc == 0;
    rc = team_share(dir, size, rc, e);
    if (rc == 0)
        rc = team_agree(team_follows() ? prepare_to_follow(a, c, dir, e) : 0, e);
    if (rc < 0 && is_made && !team_follows() && o->is_fork)
        fork_discard(dir);
    else if (rc < 0 && is_made && !team_follows() && !cli_value(a, "resume"))
        trainer_discard(dir);
    return rc;
}

/* One rank reports what all have. */
static int fail(const struct err *e)
{
    return ranks_speaks() ? command_fail(e) : e->code == DS_EUSAGE ? 2 : 1;
}

static int exit_status(int rc, const struct err *e, struct progress *p, const char *dir)
{
    end_bar(p);
    if (rc == 0)
        return 0;
    if (rc != DS_ESTOP)
        return fail(e);
    log_info("%s; resume with: depthscope train --resume %s", e->text, dir);
    return stop_signal > 0 ? 128 + stop_signal : 0;
}

/* Memory by arena, and the peak GFLOP/s that utilisation is relative to. */
static void print_budget(const struct trainer *t)
{
    struct account_arena arena[ACCOUNT_ARENAS];
    struct str o = {0};
    char si[16];
    account_arenas(t->model, arena);
    for (int i = 0; i < ACCOUNT_ARENAS; i++)
        str_addf(&o, "%s%s %sB", i ? ", " : "", arena[i].name, str_si(si, (double)arena[i].bytes));
    log_info("%s: memory %s; %s peak %.4g GFLOP/s (%s)", t->name, str_text(&o),
             peak_name[t->account.unit], t->account.peak, peak_instruction(t->account.unit));
    str_release(&o);
}

/* Of a rank that follows: rank 0 says the same. */
static void errors_only(void *ctx, enum log_level level, const char *text)
{
    (void)ctx;
    if (level >= LOG_ERROR)
        fprintf(stderr, "depthscope: %s\n", text);
}

/* Of each rank: all arenas, blocks of gradients of pieces, and its part of the moments. */
static void print_rank_memory(const struct trainer *t)
{
    struct account_arena arena[ACCOUNT_ARENAS];
    double grads = (double)t->pieces.grads, moments = 2 * sizeof(real) * grads,
           own = t->team.shard ? moments / ranks_size() : moments,
           all = own - moments + pieces_bytes(t->pieces.n, ranks_size(), grads);
    char a[16], b[16];
    account_arenas(t->model, arena);
    for (int i = 0; i < ACCOUNT_ARENAS; i++)
        all += (double)arena[i].bytes;
    log_info("%s: about %sB per rank, %sB of it moments%s", t->name, str_si(a, all), str_si(b, own),
             t->team.shard ? "; rank 0 has all moments while it writes a checkpoint" : "");
}

/* Several ranks: how many, and what gives the same bits on one. */
static void print_ranks(const struct trainer *t)
{
    if (ranks_size() > 1)
        print_rank_memory(t);
    const char *first = ranks_host(0), *last = ranks_host(ranks_size() - 1);
    if (ranks_size() > 1 && t->config.train.reduce == REDUCE_FAST)
        log_info("%s: %d ranks, from %s to %s; train.reduce=fast: another number of ranks rounds "
                 "sums in another way",
                 t->name, ranks_size(), first, last);
    else if (ranks_size() > 1)
        log_info("%s: %d ranks, from %s to %s; train.pieces=%lld gives the same bits on any number "
                 "of ranks up to it",
                 t->name, ranks_size(), first, last, (long long)t->config.train.pieces);
}

static int run_ranked(const struct cli_args *a, int argc, char **argv)
{
    struct train_config config = {0};
    static struct trainer t;
    struct progress p = {.shape = team_follows() ? SHAPE_QUIET : choose_shape(a)};
    struct err e = {0};
    char dir[1024] = "";
    int resume = cli_value(a, "resume") != NULL;
    if (team_follows())
        log_to(errors_only, NULL);
    struct origin origin = {0};
    int rc = prepare_all(a, &config, dir, sizeof dir, &origin, argc, argv, &e);
    if (rc < 0) {
        train_config_release(&config);
        return fail(&e);
    }
    process_discard_stdout(); /* results are written to the run directory */
    t = (struct trainer){.stop_signal = &stop_signal,
                         .version = DEPTHSCOPE_VERSION,
                         .on_step = on_step,
                         .on_phase = on_phase,
                         .ctx = &p};
    if (resume) {
        t.override = a->override;
        t.n_override = a->n_override;
        t.config_is_lost = origin.is_lost;
    }
    catch_signals();
    rc = trainer_open(&t, dir, &config, resume, cli_flag(a, "allow-change"), &e);
    train_config_release(&config);
    if (rc < 0 && rc != DS_EBUSY && !resume && !team_follows())
        trainer_discard(dir);
    if (rc < 0 && rc != DS_EBUSY && origin.is_fork)
        fork_discard(dir);
    if (rc < 0)
        return fail(&e);
    if (p.shape == SHAPE_BAR || p.shape == SHAPE_LINES) {
        log_info("%s: %s, %lld parameters, %d thread%s; watch it with: depthscope %s", t.name,
                 t.model->config.method, (long long)params_count(&t.model->params), pool_threads(),
                 pool_threads() == 1 ? "" : "s", dir);
        print_budget(&t);
        print_ranks(&t);
    }
    if (resume && t.state.step >= t.config.train.steps && p.shape != SHAPE_JSON && !team_follows())
        log_info("%s: all %lld steps are done; continue with --allow-change train.steps=N", t.name,
                 (long long)t.config.train.steps);
    rc = team_follows() ? trainer_follow(&t, &e) : trainer_run(&t, &e);
    if (rc == 0 && p.steps > 0 && (p.shape == SHAPE_BAR || p.shape == SHAPE_LINES))
        print_end(&t, &p);
    trainer_home_now(&t, dir, sizeof dir);
    int is_torn = t.team.in_step && ranks_size() > 1;
    trainer_close(&t);
    int status = exit_status(rc, &e, &p, dir);
    if (is_torn) /* other ranks wait for what will not come */
        ranks_abort(status);
    return status;
}

static int run(const struct cli_args *a, int argc, char **argv)
{
    struct err e = {0};
    int status = ranks_begin(&e) < 0 ? fail(&e) : run_ranked(a, argc, argv);
    ranks_end();
    return status;
}

/* ---- --dry-run ---- */

static void add_estimate(struct str *out, const struct job_estimate *s, double gflops)
{
    struct job_fact fact[JOB_FACTS];
    job_estimate_facts(s, gflops, fact);
    for (int i = 0; i < JOB_FACTS; i++)
        str_addf(out, "%-12s %-8s %s\n", fact[i].name, fact[i].value, fact[i].note);
    str_add(out, "nothing was started\n");
}

static void add_estimate_json(struct str *out, const struct job_estimate *s, double gflops)
{
    str_add(out, "{");
    json_add_str(out, "method", s->method);
    json_add_int(out, "params", s->params);
    json_add_int(out, "params_method", s->method_params);
    json_add_num(out, "flops_token", s->flops_token);
    json_add_num(out, "flops_run", s->flops_run);
    json_add_num(out, "memory_bytes", s->memory);
    json_add_num(out, "checkpoint_bytes", s->checkpoint);
    json_add_int(out, "checkpoints", s->checkpoints);
    json_add_num(out, "disk_bytes", s->disk);
    json_add_num(out, "peak_gflops", gflops);
    json_add_num(out, "seconds", job_estimate_seconds(s, gflops));
    str_add(out, "}\n");
}

/* What would stop the start at once: the name of the run, and missing data. */
static int check_start(const struct cli_args *a, const char **preset, size_t presets, struct err *e)
{
    struct train_config c = {0};
    const char *given = cli_value(a, "run");
    char dir[1024];
    int rc = given ? cli_run_name(&given, given, e) : 0;
    if (rc == 0 && given)
        rc = fs_join(dir, sizeof dir, job_root(), given, e);
    if (rc == 0 && given)
        rc = trainer_home_is_empty(dir, 0, e);
    if (rc == 0)
        rc = train_config_make(&c, preset, presets, a->override, (size_t)a->n_override, e);
    if (rc == 0 && !corpus_is_generated(c.data.path) && !fs_exists(c.data.path) &&
        !shards_at(c.data.path) && (rc = fs_check_reach(c.data.path, e)) == 0)
        rc = err_set(e, DS_ENOTFOUND, "data.path = %s: not found", c.data.path);
    train_config_release(&c);
    return rc;
}

static int dry_run(const struct cli_args *a, struct str *out, struct err *e)
{
    const char **preset = NULL, **arg;
    struct job_estimate s;
    size_t n = 0;
    if (cli_value(a, "resume"))
        return err_set(e, DS_EUSAGE, "--dry-run: expected a new run, not --resume");
    int rc = check_new(a, e);
    if (rc == 0)
        rc = cli_presets(a, &preset, &n, e);
    if (rc < 0)
        return rc;
    rc = check_start(a, preset, n, e);
    if (rc < 0) {
        mem_free(preset);
        return rc;
    }
    arg = mem_alloc(n + (size_t)a->n_override + 1, sizeof *arg);
    for (size_t i = 0; arg && i < n; i++)
        arg[i] = preset[i];
    for (int i = 0; arg && i < a->n_override; i++)
        arg[n++] = a->override[i];
    rc = arg ? job_estimate(&s, arg, n, e) : err_set(e, DS_EMEM, "out of memory for settings");
    double gflops = job_peak();
    for (double end = clock_mono() + 5; rc == 0 && !(gflops > 0) && clock_mono() < end;) {
        clock_sleep(0.01);
        gflops = job_peak();
    }
    if (rc == 0 && cli_flag(a, "json"))
        add_estimate_json(out, &s, gflops);
    else if (rc == 0)
        add_estimate(out, &s, gflops);
    mem_free(arg);
    mem_free(preset);
    return rc;
}

static int print_dry_run(const struct cli_args *a)
{
    struct str out = {0};
    struct err e = {0};
    int rc = dry_run(a, &out, &e);
    if (rc == 0)
        return cli_print(&out);
    str_release(&out);
    return command_fail(&e);
}

int train_command(int argc, char **argv)
{
    struct cli_args a = {0};
    struct err e = {0};
    char data[1024], sweep[] = "sweep";
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-m") == 0 || strcmp(argv[i], "--multirun") == 0) {
            argv[0] = sweep; /* several values: a sweep */
            argv[i][2] = '\0';
            argv[i][1] = 'm';
            return sweep_command(argc, argv);
        }
    if (cli_parse(&a, train_options, argc, argv, &e) < 0)
        return command_fail(&e);
    if (cli_data_dir(data, sizeof data, "data", NULL) == 0)
        train_config_preset_dir(data);
    int status = cli_value(&a, "keys")     ? keys_print(cli_value(&a, "keys"), cli_flag(&a, "json"))
                 : cli_flag(&a, "dry-run") ? print_dry_run(&a)
                                           : run(&a, argc, argv);
    cli_release(&a);
    return status;
}
