/* The form of a new run: its rows, validation of values, and a start that is watched until the
 * first record.  No tensors. */
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "io/runlog.h"
#include "training/cost.h"
#include "training/job.h"
#include "training/options.h"

enum { KEYS_MAX = 400, PRESETS_MAX = 16 };
static struct job_key keys[KEYS_MAX];
static size_t n_keys;

static void add_keys(const struct opt_group *g)
{
    for (size_t i = 0; i < g->n && n_keys < KEYS_MAX; i++) {
        char full[128];
        snprintf(full, sizeof full, "%s%s", g->prefix, g->opts[i].key);
        char *key = mem_strdup(full);
        if (key) /* never freed */
            keys[n_keys++] =
                (struct job_key){key, g->opts[i].otherwise, g->opts[i].help, g->opts[i].choices};
    }
}

const struct job_key *job_keys(size_t *n)
{
    if (n_keys == 0) {
        add_keys(&model_group);
        for (const struct route_ops *const *m = route_all(); *m; m++) {
            char prefix[40];
            struct opt_group g = route_group(*m, prefix);
            add_keys(&g);
        }
        add_keys(&data_group);
        add_keys(&hops_group);
        add_keys(&train_group);
        add_keys(&alert_group);
        add_keys(&run_group);
    }
    *n = n_keys;
    return keys;
}

int job_presets(char ***names, size_t *n, struct err *e)
{
    return preset_names(names, n, e);
}

struct values {
    char **value;
    size_t n;
};

static void take_value(void *ctx, const char *key, const char *value)
{
    struct values *v = ctx;
    for (size_t i = 0; i < v->n; i++)
        if (!v->value[i] && strcmp(keys[i].key, key) == 0)
            v->value[i] = mem_strdup(value);
}

size_t job_split_words(char *text, const char **word, size_t max)
{
    size_t n = 0;
    for (char *p = text + strspn(text, " "); *p && n < max; p += strspn(p, " ")) {
        word[n++] = p;
        p += strcspn(p, " ");
        if (*p)
            *p++ = '\0';
    }
    return n;
}

int job_preset_values(const char *presets, char **value, size_t n, struct err *e)
{
    struct train_config c;
    const char *word[PRESETS_MAX];
    char *text = mem_strdup(presets);
    size_t all;
    (void)job_keys(&all);
    struct values v = {value, n < all ? n : all};
    for (size_t i = 0; i < n; i++)
        value[i] = NULL;
    int rc = text ? train_config_preview(&c, word, job_split_words(text, word, PRESETS_MAX), e)
                  : err_set(e, DS_EMEM, "out of memory for presets");
    mem_free(text);
    if (rc < 0)
        return rc;
    train_config_for_each(&c, take_value, &v);
    train_config_release(&c);
    return 0;
}

/* ---- validation ---- */

static int check_row(const struct opt_group *g, size_t size, const char *key, const char *text,
                     struct err *e)
{
    const struct opt *o = opt_find(g, key);
    void *values = o ? mem_alloc(1, size ? size : 1) : NULL;
    if (!o)
        return 0;
    int rc = values ? opt_set_named(o, g->prefix, values, text, NULL, e)
                    : err_set(e, DS_EMEM, "%s: out of memory", key);
    if (values)
        opt_release(g, values);
    mem_free(values);
    return rc;
}

/* The option table has a plain string; only registered methods are valid. */
static int check_method(const char *text, struct err *e)
{
    char hint[NEAREST_MAX + 32];
    struct nearest best = nearest_to(text);
    for (const struct route_ops *const *m = route_all(); *m; m++)
        nearest_try(&best, (*m)->name);
    return route_find(text) ? 0
                            : err_set(e, DS_EUSAGE, "model.method: unknown method '%.80s'%s", text,
                                      nearest_hint(&best, hint, sizeof hint));
}

int job_check_value(const char *key, const char *text, struct err *e)
{
    if (strcmp(key, "model.method") == 0)
        return check_method(text, e);
    int rc = check_row(&model_group, sizeof(struct model_config), key, text, e);
    if (rc == 0)
        rc = check_row(&train_group, sizeof(struct train_options), key, text, e);
    if (rc == 0)
        rc = check_row(&data_group, sizeof(struct data_options), key, text, e);
    if (rc == 0)
        rc = check_row(&hops_group, sizeof(struct hops_options), key, text, e);
    if (rc == 0)
        rc = check_row(&alert_group, sizeof(struct alert_options), key, text, e);
    if (rc == 0)
        rc = check_row(&run_group, sizeof(struct run_options), key, text, e);
    for (const struct route_ops *const *m = route_all(); rc == 0 && *m; m++) {
        char prefix[40];
        struct opt_group g = route_group(*m, prefix);
        rc = check_row(&g, (*m)->opts_size, key, text, e);
    }
    return rc;
}

/* The configuration of a command line: presets, then settings. */
static int config_of(struct train_config *c, const char *const *args, size_t n, struct err *e)
{
    const char **word = mem_alloc(n + 1, sizeof *word);
    size_t presets = 0;
    if (!word)
        return err_set(e, DS_EMEM, "out of memory for settings");
    while (presets < n && !override_is(args[presets]))
        presets++;
    for (size_t i = 0; i < n; i++)
        word[i] = args[i];
    int rc = train_config_make(c, word, presets, word + presets, n - presets, e);
    mem_free(word);
    return rc;
}

int job_check(const char *const *args, size_t n, struct err *e)
{
    struct train_config c;
    int rc = config_of(&c, args, n, e);
    if (rc == 0)
        train_config_release(&c);
    return rc;
}

size_t job_methods(const char **name, size_t max)
{
    size_t n = 0;
    for (const struct route_ops *const *m = route_all(); *m && n < max; m++)
        name[n++] = (*m)->name;
    return n;
}

/* ---- what a run will need ---- */

int job_estimate(struct job_estimate *s, const char *const *args, size_t n, struct err *e)
{
    struct train_config c;
    struct train_estimate t;
    *s = (struct job_estimate){0};
    int rc = config_of(&c, args, n, e);
    if (rc < 0)
        return rc;
    rc = train_estimate(&t, &c, e);
    str_copy(s->method, sizeof s->method, c.model.method);
    s->params = t.size.params;
    s->method_params = c.method_params;
    s->flops_token = t.size.flops;
    s->flops_run = t.size.work;
    s->memory = t.memory;
    s->checkpoint = t.checkpoint;
    s->checkpoints = t.checkpoints;
    s->disk = t.checkpoint * (double)t.checkpoints;
    train_config_release(&c);
    return rc;
}

double job_estimate_seconds(const struct job_estimate *s, double gflops)
{
    return gflops > 0 ? s->flops_run / (gflops * 1e9 * JOB_MFU) : (double)NAN;
}

void job_estimate_facts(const struct job_estimate *s, double gflops,
                        struct job_fact fact[JOB_FACTS])
{
    static const char *const name[JOB_FACTS] = {"parameters", "FLOPs/token", "memory", "disk",
                                                "time"};
    char a[16], b[16];
    double seconds = job_estimate_seconds(s, gflops);
    for (int i = 0; i < JOB_FACTS; i++)
        fact[i] = (struct job_fact){.name = name[i]};
    snprintf(fact[0].value, sizeof fact[0].value, "%s", str_si(a, (double)s->params));
    snprintf(fact[0].note, sizeof fact[0].note, "of the base model; %s adds %s", s->method,
             str_si(a, (double)s->method_params));
    snprintf(fact[1].value, sizeof fact[1].value, "%s", str_si(a, s->flops_token));
    snprintf(fact[1].note, sizeof fact[1].note,
             "forward, dense, mean over the context; %s for the run", str_si(a, s->flops_run));
    snprintf(fact[2].value, sizeof fact[2].value, "%sB", str_si(a, s->memory));
    snprintf(fact[2].note, sizeof fact[2].note,
             "weights, gradients, moments and the buffers of a step");
    snprintf(fact[3].value, sizeof fact[3].value, "%sB", str_si(a, s->disk));
    snprintf(fact[3].note, sizeof fact[3].note, "%lld checkpoint%s of %sB",
             (long long)s->checkpoints, s->checkpoints == 1 ? "" : "s", str_si(a, s->checkpoint));
    if (isfinite(seconds))
        snprintf(fact[4].value, sizeof fact[4].value, "~%s", str_duration(a, seconds));
    else
        snprintf(fact[4].value, sizeof fact[4].value, "-");
    snprintf(fact[4].note, sizeof fact[4].note,
             isfinite(seconds) ? "dense, at %.0f %% of the measured peak of %s GFLOP/s, fp32"
                               : "unknown until the peak of this machine is measured",
             100 * JOB_MFU, str_si(b, gflops));
}

/* ---- watched start ---- */

static int has_records(const struct job_launch *l)
{
    char path[1100];
    struct stat st;
    return fs_join(path, sizeof path, l->dir, "log.mp", NULL) == 0 && stat(path, &st) == 0 &&
           st.st_size > l->log_bytes;
}

int job_last_line(const char *dir, char *out, size_t size)
{
    enum { TAIL = 1 << 12 };
    char path[1200], text[TAIL];
    size_t n = 0;
    struct stat st;
    int fd = -1;
    out[0] = '\0';
    if (fs_join(path, sizeof path, dir, "train.out", NULL) < 0 || stat(path, &st) < 0 ||
        !S_ISREG(st.st_mode) || fs_open_read(&fd, path, NULL) < 0)
        return 0;
    if (st.st_size > TAIL && lseek(fd, st.st_size - TAIL, SEEK_SET) < 0)
        n = 0;
    for (size_t got = 1; got > 0 && n < TAIL; n += got)
        if (fs_read_some(fd, text + n, TAIL - n, &got, path, NULL) < 0)
            break;
    fs_close(fd);
    while (n > 0 && (unsigned char)text[n - 1] <= ' ')
        n--;
    size_t from = n;
    while (from > 0 && text[from - 1] != '\n')
        from--;
    snprintf(out, size, "%.*s", (int)(n - from), text + from);
    return out[0] != '\0';
}

int job_launch(struct job_launch *l, const char *const *args, size_t n, struct err *e)
{
    return job_launch_named(l, "", args, n, e);
}

/* A name that no run has: NAME-from-FROM, -2, ... */
static int free_name(char *out, size_t size, const char *name, const char *from, struct err *e)
{
    char path[1100];
    for (int i = 1; i < 10000; i++) {
        if (i == 1)
            snprintf(out, size, "%.40s-from-%.12s", name, from);
        else
            snprintf(out, size, "%.34s-from-%.12s-%d", name, from, i);
        int rc = fs_join(path, sizeof path, job_root(), out, e);
        if (rc < 0 || !fs_exists(path))
            return rc;
    }
    return err_set(e, DS_EEXIST, "%s: no free run name", name);
}

int job_launch_resume(struct job_launch *l, const char *name, const char *from, struct err *e)
{
    const char *args[8] = {"--resume", name};
    char log[1100];
    size_t n = 2;
    struct stat st;
    *l = (struct job_launch){.fd = -1, .is_resume = !from};
    int rc = fs_join(l->output, sizeof l->output, job_root(), name, e);
    if (rc == 0 && from)
        rc = free_name(l->name, sizeof l->name, name, from, e);
    else
        str_copy(l->name, sizeof l->name, name);
    if (rc == 0)
        rc = fs_join(l->dir, sizeof l->dir, job_root(), l->name, e);
    if (rc == 0)
        rc = fs_join(log, sizeof log, l->dir, "log.mp", e);
    if (rc < 0)
        return rc;
    if (!from && stat(log, &st) == 0)
        l->log_bytes = st.st_size;
    if (from) {
        args[n++] = "--from";
        args[n++] = from;
        args[n++] = "--run";
        args[n++] = l->name;
    }
    args[n++] = "--quiet";
    return job_start_in(l->output, args, n, &l->fd, e);
}

enum launch_state job_launch_state(struct job_launch *l, char *words, size_t size)
{
    struct pollfd p = {.fd = l->fd, .events = POLLIN};
    words[0] = '\0';
    int is_over = l->fd >= 0 && poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR));
    if (has_records(l)) /* checked after the end: records written before it count */
        return LAUNCH_RUNS;
    if (!is_over)
        return LAUNCH_STARTING;
    if (!job_last_line(l->output, words, size))
        str_copy(words, size, "the process ended at once without output");
    static const char own[] = "depthscope: ";
    if (strncmp(words, own, sizeof own - 1) == 0)
        memmove(words, words + sizeof own - 1, strlen(words) - sizeof own + 2);
    struct err e = {0};
    if (strcmp(l->output, l->dir) == 0 && !l->is_resume && fs_remove_tree(l->dir, &e) < 0)
        snprintf(words + strlen(words), size - strlen(words), " (%s)", e.text);
    return LAUNCH_FAILED;
}

void job_launch_release(struct job_launch *l)
{
    if (l->fd >= 0)
        fs_close(l->fd);
    l->fd = -1;
}
