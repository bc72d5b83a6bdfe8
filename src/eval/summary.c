/* Reads runs into summary rows, groups them by configuration and compares groups. */
#include "eval/summary.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "io/experiment.h"

const struct summary_row summary_rows[SUMMARY_N] = {
    // clang-format off
    [SUMMARY_VAL_LOSS]         = {"val_loss",                "val loss",              4, 0},
    [SUMMARY_LOSS]             = {"loss",                    "train loss",            4, 1},
    [SUMMARY_TOPK_GAP]         = {"topk_gap",                "top-k gap",             2, 3},
    [SUMMARY_BPB]              = {"bits_per_byte",           "bits/byte",             4, 5},
    [SUMMARY_BLOCK]            = {"block_ratio",             "blocks",                3, 2},
    [SUMMARY_FLOPS]            = {"flops_ratio",             "FLOPs",                 3, 1},
    [SUMMARY_TIME]             = {"time_ratio",              "time",                  3, 1},
    [SUMMARY_DECODE]           = {"decode_time_ratio",       "decode time",           3, 4},
    [SUMMARY_RANDOM]           = {"control_random_loss",     "loss, random routing",  4, 1},
    [SUMMARY_STATIC]           = {"control_static_loss",     "static mask",           4, 1},
    [SUMMARY_DEPTH]            = {"depth_mean",              "depth",                 3, 0},
    [SUMMARY_DEPTH_SD]         = {"depth_sd",                "depth sd",              3, 4},
    [SUMMARY_DEPTH_VARIANCE]   = {"depth_variance",          "depth var",             3, 3},
    [SUMMARY_MI]               = {"mi_mean",                 "I(token; executed)",    3, 2},
    [SUMMARY_R_SIGNAL]         = {"corr_signal_depth",       "r(signal)",             3, 3},
    [SUMMARY_R_ENTROPY]        = {"corr_entropy_depth",      "r(entropy)",            3, 3},
    [SUMMARY_R_NLL]            = {"corr_nll_depth",          "r(loss)",               3, 2},
    [SUMMARY_R_TRUE]           = {"corr_true_entropy_depth", "r(true entropy)",       3, 5},
    [SUMMARY_ANSWER_LOSS]      = {"answer_loss",             "answer loss",           4, 1},
    [SUMMARY_ANSWER_ACCURACY]  = {"answer_accuracy",         "answer accuracy",       4, 0},
    [SUMMARY_R_NEEDED]         = {"corr_needed_depth",       "r(needed depth)",       3, 2},
    // clang-format on
};

static const char *status_of(const struct runview *v)
{
    switch (v->state) {
    case RUN_DONE: return "done";
    case RUN_STOPPED: return "stopped";
    case RUN_FAILED: return "failed";
    case RUN_LIVE:
    case RUN_PAUSED: return "running";
    case RUN_EMPTY:
    case RUN_TRACE: return run_state_name(v->state);
    default: return "unfinished";
    }
}

static int copy_settings(struct summary *s, const struct runview *v, struct err *e)
{
    size_t n = v->configs + (experiment_is_evaluation(v) != 0);
    s->key = mem_alloc(n + 1, sizeof *s->key);
    s->setting = mem_alloc(n + 1, sizeof *s->setting);
    if (!s->key || !s->setting)
        return err_set(e, DS_EMEM, "out of memory for the settings of %s", s->name);
    for (size_t i = 0; i < n; i++) {
        int is_own = i == v->configs; /* tells two evaluations of a model apart */
        const char *key = is_own ? "routing" : v->config_key[i],
                   *value = is_own ? experiment_routing(v) : v->config_value[i];
        s->key[i] = mem_strdup(key ? key : "");
        s->setting[i] = mem_strdup(value ? value : "");
        s->settings = i + 1;
        if (!s->key[i] || !s->setting[i])
            return err_set(e, DS_EMEM, "out of memory for the settings of %s", s->name);
    }
    return 0;
}

int summary_read(struct summary *s, const char *path, struct err *e)
{
    struct runview *v = NULL;
    memset(s, 0, sizeof *s);
    int rc = runview_read(&v, path, e);
    if (rc < 0)
        return rc;
    const char *slash = strrchr(path, '/');
    str_copy(s->name, sizeof s->name, v->name && v->name[0] ? v->name : slash ? slash + 1 : path);
    str_copy(s->method, sizeof s->method, v->method ? v->method : "");
    str_copy(s->status, sizeof s->status, status_of(v));
    s->seed = v->has_seed ? (long long)v->seed : -1;
    s->step = v->step;
    s->steps = v->steps_planned;
    for (int i = 0; i < SUMMARY_N; i++)
        s->value[i] = experiment_result(v, summary_rows[i].key);
    s->value[SUMMARY_LOSS] = experiment_newest(v, "loss"); /* an evaluation has one of that name */
    double dense = experiment_result(v, "flops_dense_per_token");
    dense = isfinite(dense) ? dense : v->flops_dense;
    s->dense_flops = isfinite(dense) && dense > 0 ? dense : 0;
    rc = copy_settings(s, v, e);
    runview_free(v);
    if (rc < 0)
        summary_release(s);
    return rc;
}

void summary_release(struct summary *s)
{
    for (size_t i = 0; i < s->settings; i++) {
        mem_free(s->key[i]);
        mem_free(s->setting[i]);
    }
    mem_free(s->key);
    mem_free(s->setting);
    memset(s, 0, sizeof *s);
}

static struct experiment_settings settings_of(const struct summary *s)
{
    return (struct experiment_settings){s->key, s->setting, s->settings};
}

const char *summary_setting(const struct summary *s, const char *key)
{
    const struct experiment_settings x = settings_of(s);
    return experiment_setting(&x, key);
}

static int same_setting(const struct summary *a, const struct summary *b, const char *key)
{
    const char *x = summary_setting(a, key), *y = summary_setting(b, key);
    return x && y ? strcmp(x, y) == 0 : x == y;
}

static int is_same(const struct summary *a, const struct summary *b)
{
    const struct experiment_settings x = settings_of(a), y = settings_of(b);
    if (strcmp(a->method, b->method) != 0 || a->settings == 0 || b->settings == 0)
        return 0; /* a run without a configuration forms a group of its own */
    return experiment_settings_same(&x, &y, experiment_ignores);
}

/* 1 when a run of this seed is in the group: another one is no further seed. */
static int has_seed(const struct summary_group *g, const struct summary *runs,
                    const struct summary *s)
{
    for (size_t i = 0; s->seed >= 0 && !summary_failed(s) && i < g->n; i++)
        if (runs[g->member[i]].seed == s->seed && !summary_failed(&runs[g->member[i]]))
            return 1;
    return 0;
}

int summary_group(struct summary_group **groups, size_t *n, const struct summary *runs,
                  size_t n_runs, struct err *e)
{
    struct summary_group *g = mem_alloc(n_runs + 1, sizeof *g);
    size_t count = 0;
    if (!g)
        return err_set(e, DS_EMEM, "out of memory for groups");
    for (size_t i = 0; i < n_runs; i++) {
        size_t k = 0;
        while (k < count &&
               (!is_same(&runs[g[k].member[0]], &runs[i]) || has_seed(&g[k], runs, &runs[i])))
            k++;
        if (k == count)
            str_copy(g[count++].label, sizeof g->label, runs[i].name);
        if (g[k].n == DS_LEN(g[k].member)) {
            mem_free(g);
            return err_set(e, DS_ERANGE, "more than %zu runs differ only in their seed",
                           DS_LEN(g->member));
        }
        g[k].member[g[k].n++] = i;
    }
    for (size_t k = 0; k < count; k++)
        summary_estimate(&g[k], runs);
    *groups = g;
    *n = count;
    return 0;
}

int summary_failed(const struct summary *s)
{
    return strcmp(s->status, "failed") == 0;
}

void summary_estimate(struct summary_group *g, const struct summary *runs)
{
    double v[DS_LEN(g->member)], dense = 0;
    size_t known = 0;
    for (int row = 0; row < SUMMARY_N; row++) {
        size_t n = 0;
        for (size_t i = 0; i < g->n; i++)
            if (!summary_failed(&runs[g->member[i]]))
                v[n++] = runs[g->member[i]].value[row];
        g->value[row] = stat_interval(v, n);
        g->failed = g->n - n;
    }
    for (size_t i = 0; i < g->n; i++) {
        const struct summary *s = &runs[g->member[i]];
        int counts = s->dense_flops > 0 && !summary_failed(s);
        dense += counts ? s->dense_flops : 0;
        known += (size_t)counts;
    }
    g->dense_flops = known > 0 ? dense / (double)known : 0;
}

struct difference summary_paired(const struct summary_group *other,
                                 const struct summary_group *base, const struct summary *runs,
                                 int row)
{
    double a[DS_LEN(other->member)], b[DS_LEN(other->member)];
    size_t n = 0;
    for (size_t i = 0; i < other->n; i++)
        for (size_t k = 0; k < base->n; k++) {
            const struct summary *x = &runs[other->member[i]], *y = &runs[base->member[k]];
            if (x->seed < 0 || x->seed != y->seed || summary_failed(x) || summary_failed(y))
                continue;
            a[n] = x->value[row];
            b[n++] = y->value[row];
            break;
        }
    return stat_paired(a, b, n);
}

int summary_differences(const char ***keys, size_t *n, const struct summary *runs, size_t n_runs,
                        struct err *e)
{
    const char **k = NULL;
    void *p = NULL;
    size_t cap = 0, count = 0;
    for (size_t r = 0; r < n_runs; r++)
        for (size_t i = 0; i < runs[r].settings; i++) {
            const char *key = runs[r].key[i];
            int differs = 0, known = 0;
            for (size_t o = 0; o < n_runs && !differs; o++)
                differs = runs[o].settings > 0 && !same_setting(&runs[r], &runs[o], key);
            for (size_t j = 0; j < count && !known; j++)
                known = strcmp(k[j], key) == 0;
            if (!differs || known || experiment_ignores(key))
                continue;
            if (mem_grow(&p, &cap, count + 1, sizeof *k) < 0) {
                mem_free(p);
                return err_set(e, DS_EMEM, "out of memory for setting differences");
            }
            k = p;
            k[count++] = key;
        }
    *keys = k;
    *n = count;
    return 0;
}

void summary_run_json(struct str *out, const struct summary *s)
{
    str_add(out, "{");
    json_add_str(out, "name", s->name);
    json_add_str(out, "method", s->method);
    json_add_str(out, "status", s->status);
    if (s->seed >= 0)
        json_add_int(out, "seed", s->seed);
    else
        json_add_num(out, "seed", (double)NAN);
    json_add_int(out, "step", s->step);
    json_add_int(out, "steps", s->steps);
    for (int i = 0; i < SUMMARY_N; i++)
        json_add_num(out, summary_rows[i].key, s->value[i]);
    str_add(out, "}");
}

static void interval_json(struct str *out, const char *key, const struct interval *x)
{
    json_key(out, key);
    str_add(out, "{");
    json_add_int(out, "n", (int64_t)x->n);
    json_add_num(out, "mean", x->mean);
    json_add_num(out, "sd", x->sd);
    json_add_num(out, "lo", x->lo);
    json_add_num(out, "hi", x->hi);
    str_add(out, "}");
}

void summary_group_json(struct str *out, const struct summary_group *g, const struct summary *runs)
{
    str_add(out, "{");
    json_add_str(out, "label", g->label);
    json_add_int(out, "n", (int64_t)g->n);
    json_add_int(out, "failed", (int64_t)(g->failed + g->missing));
    json_key(out, "runs");
    str_add(out, "[");
    for (size_t i = 0; i < g->n; i++) {
        json_key(out, NULL);
        summary_run_json(out, &runs[g->member[i]]);
    }
    str_add(out, "]");
    for (int i = 0; i < SUMMARY_N; i++)
        interval_json(out, summary_rows[i].key, &g->value[i]);
    str_add(out, "}");
}
