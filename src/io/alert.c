/* The rules of alerts, and when one begins and ends.  Knows no terminal, no list and no file. */
#include "io/alert.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/utf8.h"
#include "io/record.h"

static const double share_edge = 5e-4; /* shares nearer to 0 or 1 are there */
static const double disk_ease = 1.1;   /* as much above the threshold ends it, or it would flicker */
static const double gb = 1e9;

#define AT(field) offsetof(struct alert_options, field)
static const struct opt alert_opts[] = {
    // clang-format off
    {"nan", OPT_BOOL, AT(nan), "true", 0, 0, NULL, "alert when the loss is NaN or infinite; over after 10 finite ones in a row", NULL},
    {"loss_above", OPT_REAL, AT(loss_above), "0", 0, 1e30, NULL, "alert when the loss is above this; over after 10 values in a row that are not; 0 = off", NULL},
    {"stall_s", OPT_REAL, AT(stall_s), "600", 0, 1e9, NULL, "alert when no metric came for as many seconds; pauses do not count; 0 = off", NULL},
    {"layer_share", OPT_BOOL, AT(layer_share), "true", 0, 0, NULL, "alert when a layer that routed executes no token, or every one, in alert.layer_records records in a row", NULL},
    {"layer_records", OPT_INT, AT(layer_records), "40", 1, 1e6, NULL, "layer records in a row that alert.layer_share takes (train.layer_every steps each)", NULL},
    {"gpu_idle_s", OPT_REAL, AT(gpu_idle_s), "300", 0, 1e9, NULL, "alert when all GPUs of the run, busy before, are idle for as many seconds; 0 = off", NULL},
    {"gpu_below", OPT_REAL, AT(gpu_below), "5", 0, 100, NULL, "utilisation in per cent below which a GPU is idle", NULL},
    {"disk_free_gb", OPT_REAL, AT(disk_free_gb), "2", 0, 1e9, NULL, "alert when the disk of the run folder has less free space, in GB (10^9 bytes); 0 = off", NULL},
    // clang-format on
};
const struct opt_group alert_group = {
    .prefix = "alert.", .title = "alerts", .opts = alert_opts, .n = DS_LEN(alert_opts)};
#undef AT

#define AT(field) offsetof(struct notify_options, field)
static const struct opt notify_opts[] = {
    // clang-format off
    {"terminal", OPT_ENUM, AT(terminal), "bell", 0, 0, "bell|osc9|osc777|off", "what the terminal gets at an alert: bell, or a desktop notification by OSC 9 (iTerm2, kitty, WezTerm, Windows Terminal) or OSC 777 (foot, Ghostty, rxvt-unicode)", NULL},
    {"command", OPT_STRING, AT(command), "", 0, 0, NULL, "shell command for every alert: $1 run, $2 rule, $3 text, $4 value, $5 level; only from the user's settings file", NULL},
    {"every_s", OPT_REAL, AT(every_s), "5", 1, 86400, NULL, "least seconds between two notifications of the terminal", NULL},
    // clang-format on
};
const struct opt_group notify_group = {
    .prefix = "notify.", .title = "notify", .opts = notify_opts, .n = DS_LEN(notify_opts)};
#undef AT

/* ---- the rules ---- */

/* NONE: switched off, or nothing is known. */
enum verdict { VERDICT_NONE, VERDICT_GOOD, VERDICT_BAD };

static enum verdict judge_nan(const struct alert_watch *w, double *value)
{
    *value = w->loss;
    return !w->o.nan ? VERDICT_NONE : isfinite(w->loss) ? VERDICT_GOOD : VERDICT_BAD;
}

static void say_loss(const struct alert_watch *w, int is_over, char *out, size_t size)
{
    if (isnan(w->loss))
        str_copy(out, size, "loss is NaN");
    else if (isinf(w->loss))
        str_copy(out, size, "loss is infinite");
    else if (is_over)
        snprintf(out, size, "loss %.4g", w->loss);
    else
        snprintf(out, size, "loss %.4g, above %.4g", w->loss, w->o.loss_above);
}

static enum verdict judge_loss(const struct alert_watch *w, double *value)
{
    *value = w->loss;
    if (!(w->o.loss_above > 0) || isnan(w->loss))
        return VERDICT_NONE;
    return w->loss > w->o.loss_above ? VERDICT_BAD : VERDICT_GOOD;
}

static enum verdict judge_stall(const struct alert_watch *w, double *value)
{
    *value = w->waited;
    if (!(w->o.stall_s > 0))
        return VERDICT_NONE;
    return w->waited >= w->o.stall_s ? VERDICT_BAD : VERDICT_GOOD;
}

static void say_stall(const struct alert_watch *w, int is_over, char *out, size_t size)
{
    char age[16];
    if (is_over)
        str_copy(out, size, "a metric came");
    else
        snprintf(out, size, "no metric for %s", str_duration(age, floor(w->waited)));
}

static int is_stuck(const struct alert_watch *w, int l)
{
    const struct alert_layer *x = &w->layer[l];
    return x->has_routed && (x->low >= w->o.layer_records || x->high >= w->o.layer_records);
}

static enum verdict judge_layer(const struct alert_watch *w, double *value)
{
    *value = w->stuck;
    return !w->o.layer_share ? VERDICT_NONE : w->stuck >= 0 ? VERDICT_BAD : VERDICT_GOOD;
}

static void say_layer(const struct alert_watch *w, int is_over, char *out, size_t size)
{
    const struct alert_layer *x = w->stuck >= 0 ? &w->layer[w->stuck] : NULL;
    char more[32] = "";
    if (is_over || !x) {
        str_copy(out, size, "every layer routes again");
        return;
    }
    if (w->more_stuck > 0)
        snprintf(more, sizeof more, " (and %d more)", w->more_stuck);
    snprintf(out, size, "layer %d%s: executed share %d in the last %d records", w->stuck, more,
             x->high > 0, x->high > 0 ? x->high : x->low);
}

/* Idle for this long; NaN: some GPU of the run is busy, or it uses none. */
static double idle_seconds(const struct alert_watch *w)
{
    double least = (double)NAN;
    for (int i = 0; i < MACHINE_GPUS; i++) {
        if (!w->gpu[i].is_used)
            continue;
        if (isnan(w->gpu[i].since))
            return (double)NAN;
        double s = w->gpu_time - w->gpu[i].since;
        least = isnan(least) || s < least ? s : least;
    }
    return least;
}

static enum verdict judge_gpu(const struct alert_watch *w, double *value)
{
    *value = idle_seconds(w);
    if (!(w->o.gpu_idle_s > 0))
        return VERDICT_NONE;
    return *value >= w->o.gpu_idle_s ? VERDICT_BAD : isnan(*value) ? VERDICT_GOOD : VERDICT_NONE;
}

static void say_gpu(const struct alert_watch *w, int is_over, char *out, size_t size)
{
    char age[16];
    int n = 0;
    for (int i = 0; i < MACHINE_GPUS; i++)
        n += w->gpu[i].is_used;
    if (is_over)
        str_copy(out, size, "the GPU is busy again");
    else
        snprintf(out, size, "%s below %.3g %% for %s", n > 1 ? "all GPUs" : "GPU", w->o.gpu_below,
                 str_duration(age, floor(idle_seconds(w))));
}

static enum verdict judge_disk(const struct alert_watch *w, double *value)
{
    double limit = w->o.disk_free_gb * gb;
    *value = w->disk / gb;
    if (!(limit > 0) || !isfinite(w->disk))
        return VERDICT_NONE;
    return w->disk < limit ? VERDICT_BAD : w->disk >= limit * disk_ease ? VERDICT_GOOD : VERDICT_NONE;
}

static void say_disk(const struct alert_watch *w, int is_over, char *out, size_t size)
{
    if (is_over)
        snprintf(out, size, "%.3g GB free on the disk of the run", w->disk / gb);
    else
        snprintf(out, size, "%.3g GB free on the disk of the run, below %.3g", w->disk / gb,
                 w->o.disk_free_gb);
}

/* A rule is a row: judge says whether the newest fact is bad, say puts it as text; calm: good
 * observations in a row that end an episode. */
static const struct rule {
    const char *name, *what;
    enum log_level level;
    int calm;
    enum verdict (*judge)(const struct alert_watch *w, double *value);
    void (*say)(const struct alert_watch *w, int is_over, char *out, size_t size);
} rules[ALERT_RULES] = {
    // clang-format off
    [ALERT_NAN]   = {"nan",   "loss is NaN or infinite",       LOG_ERROR, 10, judge_nan,   say_loss},
    [ALERT_LOSS]  = {"loss",  "loss above its limit",          LOG_WARN,  10, judge_loss,  say_loss},
    [ALERT_STALL] = {"stall", "no metric for long",            LOG_WARN,  1,  judge_stall, say_stall},
    [ALERT_LAYER] = {"layer", "a layer no longer routes",      LOG_WARN,  1,  judge_layer, say_layer},
    [ALERT_GPU]   = {"gpu",   "GPU idle",                      LOG_WARN,  1,  judge_gpu,   say_gpu},
    [ALERT_DISK]  = {"disk",  "disk nearly full",              LOG_ERROR, 1,  judge_disk,  say_disk},
    [ALERT_OTHER] = {"other", "an alert of the run's script",  LOG_WARN,  1,  NULL,        NULL},
    // clang-format on
};

const char *alert_name(enum alert_rule rule)
{
    return rules[rule].name;
}

const char *alert_what(enum alert_rule rule)
{
    return rules[rule].what;
}

enum alert_rule alert_find(const char *name, size_t n)
{
    int r = 0;
    while (r < ALERT_OTHER && !(strlen(rules[r].name) == n && memcmp(rules[r].name, name, n) == 0))
        r++;
    return (enum alert_rule)r;
}

const char *alert_names(unsigned set, char *out, size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    for (int r = 0; r < ALERT_RULES && n < size; r++)
        if (set & 1U << r)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n ? " " : "", rules[r].name);
    return out;
}

/* ---- episodes ---- */

void alert_watch_init(struct alert_watch *w, const struct alert_options *o)
{
    *w = (struct alert_watch){.o = *o, .stuck = -1};
    w->time = w->loss = w->disk = w->progress = w->waited = w->gpu_time = (double)NAN;
    for (int i = 0; i < MACHINE_GPUS; i++)
        w->gpu[i].since = (double)NAN;
}

void alert_watch_release(struct alert_watch *w)
{
    mem_free(w->layer);
    w->layer = NULL;
    w->layers = 0;
}

/* An episode that begins and ends between two looks is reported as both. */
static void turn(struct alert_watch *w, enum alert_rule r, const struct alert *a)
{
    struct alert_episode *x = &w->episode[r];
    int is_on = x->judged || x->recorded;
    if (is_on == x->is_on)
        return;
    x->is_on = is_on;
    if (is_on) {
        x->raise = *a;
        x->has_raise = 1;
        x->has_over = 0;
    } else {
        x->over = *a;
        x->over.is_over = x->has_over = 1;
        x->over.level = LOG_INFO;
    }
}

static void observe(struct alert_watch *w, enum alert_rule r)
{
    struct alert_episode *x = &w->episode[r];
    struct alert a = {.rule = r, .level = rules[r].level, .step = w->step, .time = w->time};
    enum verdict v = rules[r].judge(w, &a.value);
    int was = x->judged;
    if (v == VERDICT_NONE)
        return;
    x->good = v == VERDICT_BAD ? 0 : x->good + (x->good < rules[r].calm);
    x->judged = v == VERDICT_BAD || (was && x->good < rules[r].calm);
    if (x->judged == was)
        return;
    rules[r].say(w, !x->judged, a.text, sizeof a.text);
    turn(w, r, &a);
}

int alert_next(struct alert_watch *w, struct alert *out)
{
    for (int r = 0; r < ALERT_RULES; r++) {
        struct alert_episode *x = &w->episode[r];
        if (!x->has_raise && !x->has_over)
            continue;
        *out = x->has_raise ? x->raise : x->over;
        x->has_over = x->has_raise && x->has_over;
        x->has_raise = 0;
        return 1;
    }
    return 0;
}

unsigned alert_set(const struct alert_watch *w)
{
    unsigned set = 0;
    for (int r = 0; r < ALERT_RULES; r++)
        set |= w->episode[r].is_on ? 1U << r : 0;
    return set;
}

/* ---- facts ---- */

static void at(struct alert_watch *w, int64_t step, double time)
{
    w->step = step;
    w->time = time;
}

void alert_take_loss(struct alert_watch *w, int64_t step, double time, double loss)
{
    at(w, step, time);
    w->loss = loss;
    observe(w, ALERT_NAN);
    observe(w, ALERT_LOSS);
}

static int layers_fit(struct alert_watch *w, int n)
{
    if (w->layers == n)
        return 1;
    alert_watch_release(w); /* another model: nothing is known of its layers */
    w->layer = mem_alloc((size_t)n, sizeof *w->layer);
    w->layers = w->layer ? n : 0;
    return w->layer != NULL;
}

void alert_take_layers(struct alert_watch *w, int64_t step, double time, const float *share, int n,
                       const unsigned char *is_always_on)
{
    at(w, step, time);
    if (!w->o.layer_share || n <= 0 || !layers_fit(w, n))
        return;
    w->stuck = -1;
    w->more_stuck = 0;
    int routed = 0;
    for (int l = 0; l < n; l++) {
        struct alert_layer *x = &w->layer[l];
        double s = (double)share[l];
        if (isnan(s) || (is_always_on && is_always_on[l]))
            continue;
        x->low = s > share_edge ? 0 : x->low + (x->low < INT32_MAX);
        x->high = s < 1 - share_edge ? 0 : x->high + (x->high < INT32_MAX);
        x->has_routed |= x->low == 0 && x->high == 0;
        routed |= x->has_routed;
        if (!is_stuck(w, l))
            continue;
        w->more_stuck += w->stuck >= 0;
        w->stuck = w->stuck >= 0 ? w->stuck : l;
    }
    if (routed)
        observe(w, ALERT_LAYER);
}

static void take_gpu(struct alert_watch *w, int gpu, double time, double use, int is_used)
{
    if (gpu < 0 || gpu >= MACHINE_GPUS || !isfinite(use) || !isfinite(time))
        return;
    int is_idle = use * 100 < w->o.gpu_below;
    w->gpu[gpu].is_used |= is_used;
    w->gpu_time = time;
    if (!is_idle)
        w->gpu[gpu].since = (double)NAN;
    else if (!(w->gpu[gpu].since <= time)) /* the first one, or the clock was set back */
        w->gpu[gpu].since = time;
}

void alert_take_gpu(struct alert_watch *w, int gpu, int64_t step, double time, double use)
{
    at(w, step, time);
    take_gpu(w, gpu, time, use, isfinite(use) && use * 100 >= w->o.gpu_below);
    observe(w, ALERT_GPU);
}

void alert_take_disk(struct alert_watch *w, int64_t step, double time, double free_bytes)
{
    at(w, step, time);
    w->disk = free_bytes;
    observe(w, ALERT_DISK);
}

void alert_take_system(struct alert_watch *w, int64_t step, const struct machine_sample *s,
                       int64_t pid)
{
    for (int i = 0; i < s->gpus && i < MACHINE_GPUS; i++) {
        const struct machine_gpu *g = &s->gpu[i];
        int is_ours = 0;
        for (int k = 0; k < g->processes && k < MACHINE_PROCESSES; k++)
            is_ours |= g->process[k].pid == pid;
        take_gpu(w, i, s->time, g->use, is_ours);
    }
    at(w, step, s->time);
    observe(w, ALERT_GPU);
    alert_take_disk(w, step, s->time, s->disk_free);
}

void alert_take_progress(struct alert_watch *w, double now)
{
    w->progress = now > 0 ? now : (double)NAN;
    w->waited = w->is_left = 0;
    observe(w, ALERT_STALL);
}

void alert_take_event(struct alert_watch *w, enum alert_rule rule, int is_over, int level,
                      int64_t step, double time, const char *text)
{
    struct alert a = {.rule = rule, .step = step, .time = time, .value = (double)NAN};
    a.level = level > LOG_INFO ? level : (int)rules[rule].level;
    str_copy(a.text, sizeof a.text, text);
    utf8_scrub(a.text);
    if (rule == ALERT_OTHER && !is_over) /* of a script: each one is news */
        w->episode[rule].is_on = 0;
    w->episode[rule].recorded = !is_over;
    turn(w, rule, &a);
}

static void forget(struct alert_watch *w)
{
    for (int r = 0; r < ALERT_RULES; r++) {
        struct alert_episode *x = &w->episode[r];
        x->judged = x->recorded = x->is_on = x->good = x->has_over = 0;
    }
    w->progress = (double)NAN;
}

void alert_clock(struct alert_watch *w, enum run_state state, double now)
{
    int is_first = !w->has_clock, is_live = state == RUN_LIVE || state == RUN_PAUSED;
    w->has_clock = 1;
    if (now > 0 && (isnan(w->progress) || w->progress > now || state == RUN_PAUSED))
        w->progress = now; /* the clock was set back, or nothing is expected now */
    w->waited = now > 0 ? now - w->progress : 0;
    w->is_left = !is_live && (w->is_left || (is_first && w->waited > ALERT_LEFT_S));
    int is_watched = is_live || (state == RUN_SILENT && !w->is_left);
    for (int r = 0; is_first && r < ALERT_RULES; r++) {
        w->episode[r].has_raise &= is_watched; /* old news of a run that has ended */
        w->episode[r].raise.is_old = 1;
    }
    if (!is_watched) {
        forget(w);
        return;
    }
    observe(w, ALERT_STALL);
    if (is_first)
        w->episode[ALERT_STALL].raise.is_old = 1;
}

void alert_hold(struct alert_watch *w, double now)
{
    if (w->has_clock)
        w->progress = now;
}

/* ---- records ---- */

void alert_record(struct record *r, const struct alert *a, double time)
{
    static const char *const level[] = {"debug", "info", "warn", "error"};
    record_begin(r, "event", a->step, time);
    record_str(r, "level", level[a->level & 3]);
    record_str(r, "name", "alert");
    record_str(r, "rule", alert_name(a->rule));
    if (!isnan(a->value))
        record_num(r, "value", a->value);
    record_bool(r, "over", a->is_over);
    record_str(r, "text", a->text);
}

int alert_of_event(struct value body)
{
    size_t n = 0;
    const char *rule = value_bytes(value_get(body, "rule"), &n);
    if (!value_is(value_get(body, "kind"), "event") || !value_is(value_get(body, "name"), "alert"))
        return 0;
    int r = 1 + (int)(rule ? alert_find(rule, n) : ALERT_OTHER);
    return value_num(value_get(body, "over"), 0) != 0 ? -r : r;
}

/* ---- settings ---- */

static int read_settings(struct alert_options *a, struct notify_options *n, const char *path,
                         struct err *e)
{
    const struct opt_group *groups[] = {&alert_group, &notify_group};
    struct config c = {0};
    int rc = config_read_yaml(&c, path, e);
    if (rc == 0)
        rc = config_apply(&c, &alert_group, a, e);
    if (rc == 0)
        rc = config_apply(&c, &notify_group, n, e);
    if (rc == 0)
        rc = config_check_unused(&c, groups, DS_LEN(groups), e);
    config_release(&c);
    return rc < 0 ? err_add(e, rc, "%s", path) : 0;
}

int alert_settings(struct alert_options *a, struct notify_options *n, struct err *e)
{
    char dir[900], path[1000];
    int rc = opt_defaults(&alert_group, a, e);
    if (rc == 0)
        rc = opt_defaults(&notify_group, n, e);
    if (rc < 0 || !fs_config_dir(dir, sizeof dir) ||
        fs_join(path, sizeof path, dir, "settings.yaml", NULL) < 0 || !fs_exists(path))
        return rc;
    rc = read_settings(a, n, path, e);
    if (rc < 0 &&
        (opt_defaults(&alert_group, a, NULL) < 0 || opt_defaults(&notify_group, n, NULL) < 0))
        n->terminal = NOTIFY_OFF; /* out of memory */
    return rc;
}
