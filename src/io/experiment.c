/* Seeds of one experiment: which settings define it, its name, and the results of its runs. */
#include "io/experiment.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/utf8.h"

static int is_one_of(const char *key, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], key) == 0)
            return 1;
    return 0;
}

int experiment_ignores(const char *key)
{
    static const char *const names[] = {
        "seed",
        "threads",
        "preset",
        "run",
        "name",
        "note",
        "train.log_every",
        "train.layer_every",
        "train.probe_every",
        "train.eval_every",
        "train.eval_tokens",
        "train.checkpoint_every",
        "train.keep",
        "train.probes",
        "train.probe_tokens",
        "train.samples",
        "train.time_rounds",
        "train.system_every",
        "train.rank_timeout",
        "train.shard",
        "train.save",
        "train.recompute",
    };
    return is_one_of(key, names, DS_LEN(names)) || strncmp(key, "run.", 4) == 0 ||
           strncmp(key, "alert.", 6) == 0;
}

int experiment_ignores_size(const char *key)
{
    static const char *const names[] = {
        "model.layers", "model.dim",          "model.heads", "model.kv_heads", "model.head_dim",
        "model.ffn",    "train.flops_budget", "train.steps", "train.warmup",   "model.rope_dims",
    };
    return is_one_of(key, names, DS_LEN(names)) || experiment_ignores(key);
}

/* ---- settings ---- */

const char *experiment_setting(const struct experiment_settings *s, const char *key)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->key[i], key) == 0)
            return s->value[i];
    return NULL;
}

/* 1 when every relevant key of a has the same value in b. */
static int covers(const struct experiment_settings *a, const struct experiment_settings *b,
                  experiment_ignores_fn *ignores)
{
    for (size_t i = 0; i < a->n; i++) {
        /* most configurations list the same keys in the same order */
        int is_there = i < b->n && strcmp(b->key[i], a->key[i]) == 0;
        const char *other = is_there ? b->value[i] : experiment_setting(b, a->key[i]);
        if ((!other || strcmp(other, a->value[i]) != 0) && !ignores(a->key[i]))
            return 0;
    }
    return 1;
}

int experiment_settings_same(const struct experiment_settings *a,
                             const struct experiment_settings *b, experiment_ignores_fn *ignores)
{
    return covers(a, b, ignores) && covers(b, a, ignores);
}

/* ---- runs ---- */

const char *experiment_method(const struct runview *v)
{
    const char *m = runview_config(v, "model.method");
    m = m ? m : v->method;
    return m && *m ? m : v->configs == 0 && v->name && *v->name ? v->name : "run";
}

int experiment_same_but(const struct runview *a, const struct runview *b,
                        experiment_ignores_fn *ignores)
{
    const struct experiment_settings x = {a->config_key, a->config_value, a->configs},
                                     y = {b->config_key, b->config_value, b->configs};
    return a->configs > 0 && b->configs > 0 &&
           strcmp(experiment_method(a), experiment_method(b)) == 0 &&
           strcmp(experiment_routing(a), experiment_routing(b)) == 0 &&
           experiment_settings_same(&x, &y, ignores);
}

int experiment_same(const struct runview *a, const struct runview *b)
{
    return a->layers == b->layers && experiment_same_but(a, b, experiment_ignores);
}

int experiment_is_copy(const struct runview *a, const struct runview *b)
{
    return a->has_seed && b->has_seed && a->seed == b->seed && a->state != RUN_FAILED &&
           b->state != RUN_FAILED && experiment_same(a, b);
}

/* Label of a setting: "ratio 0.6" for METHOD.target_ratio=0.6. */
static void add_difference(struct str *out, const char *key, const char *value)
{
    const char *dot = strrchr(key, '.');
    const char *word = dot ? dot + 1 : key;
    if (strcmp(word, "layers") == 0)
        str_addf(out, "%s%s layer%s", out->len ? ", " : "", value, strcmp(value, "1") ? "s" : "");
    else if (strcmp(word, "target_ratio") == 0)
        str_addf(out, "%sratio %s", out->len ? ", " : "", value);
    else
        str_addf(out, "%s%s %s", out->len ? ", " : "", word, value);
}

/* 1 when another experiment of the method has another value of the key, or lacks it. */
static int distinguishes(const struct runview *const *run, int n, int i, const char *key,
                         const char *value)
{
    for (int o = 0; o < n; o++) {
        const char *theirs = strcmp(experiment_method(run[o]), experiment_method(run[i])) == 0
                                 ? runview_config(run[o], key)
                                 : value;
        if (!theirs || strcmp(theirs, value) != 0)
            return 1;
    }
    return 0;
}

const char *experiment_label(char *out, size_t size, const struct runview *const *run, int n, int i,
                             experiment_ignores_fn *ignores, const char *name)
{
    const struct runview *v = run[i];
    char room[2][1024];
    struct str words = str_in(room[0], sizeof room[0]), all = str_in(room[1], sizeof room[1]),
               clean = str_in(out, size);
    int is_alone = 1, is_copy = 0;
    for (int o = 0; o < i; o++)
        is_copy |= experiment_same(run[o], v);
    for (int o = 0; o < n; o++)
        is_alone &= o == i || strcmp(experiment_method(run[o]), experiment_method(v)) != 0 ||
                    experiment_same_but(run[o], v, ignores);
    for (size_t k = 0; !is_alone && k < v->configs; k++)
        if (!ignores(v->config_key[k]) &&
            distinguishes(run, n, i, v->config_key[k], v->config_value[k]))
            add_difference(&words, v->config_key[k], v->config_value[k]);
    str_addf(&all, "%s%s%s", experiment_method(v), words.len ? ", " : "", str_text(&words));
    if (is_copy || (!is_alone && words.len == 0))
        str_addf(&all, ", %s", name);
    utf8_sanitise(&clean, str_text(&all), all.len, 48, 0);
    return out;
}

/* ---- names ---- */

/* Where the last `parts` components of a path begin. */
static size_t tail_of(const char *path, size_t parts)
{
    size_t at = fs_trimmed(path);
    while (at > 0 && (path[at - 1] != '/' || --parts > 0))
        at--;
    return at;
}

static int has_same_tail(const char *a, const char *b, size_t parts)
{
    size_t i = tail_of(a, parts), k = tail_of(b, parts);
    size_t n = fs_trimmed(a) - i;
    return n == fs_trimmed(b) - k && memcmp(a + i, b + k, n) == 0;
}

/* Is b's name that of a, or that with folders in front of it? */
static int is_namesake(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    return m >= n && strcmp(b + (m - n), a) == 0 && (m == n || b[m - n - 1] == '/');
}

int experiment_name(char *out, size_t size, const char *const *name, const char *const *path,
                    size_t n, size_t i)
{
    size_t parts = 0, most = 1; /* components that are needed, that there are */
    for (const char *p = path[i]; *p; p++)
        most += *p == '/';
    for (size_t o = 0; o < n; o++)
        if (o != i && strcmp(path[o], path[i]) != 0 && is_namesake(name[i], name[o]))
            for (parts += parts == 0; parts <= most && has_same_tail(path[i], path[o], parts);)
                parts++;
    if (parts > most)
        parts = most > 1 ? most : 0;
    size_t end = fs_trimmed(path[i]), last = tail_of(path[i], 1), at = tail_of(path[i], parts);
    size_t own = strlen(name[i]) + 1;
    if (parts == 1 && end - last == own - 1 && memcmp(path[i] + last, name[i], own - 1) == 0)
        parts = 0; /* the others are named after it */
    if (last - at >= own && memcmp(path[i] + last - own, name[i], own - 1) == 0 &&
        (last - own == at || path[i][last - own - 1] == '/'))
        last -= own; /* the name is that of the folder */
    if (parts > 1)
        snprintf(out, size, "%.*s%s", (int)(last - at), path[i] + at, name[i]);
    else if (parts == 1)
        snprintf(out, size, "%s (%.*s)", name[i], (int)(end - last), path[i] + last);
    else
        str_copy(out, size, name[i]);
    return parts > 0;
}

void experiment_name_views(struct runview *const *view, const char *const *path, size_t n)
{
    const char **name = mem_alloc(n ? n : 1, sizeof *name);
    char **apart = mem_alloc(n ? n : 1, sizeof *apart);
    for (size_t i = 0; name && apart && i < n; i++)
        name[i] = view[i]->name ? view[i]->name : "";
    for (size_t i = 0; name && apart && i < n; i++) {
        char text[1024];
        if (experiment_name(text, sizeof text, name, path, n, i))
            apart[i] = mem_strdup(text);
    }
    for (size_t i = 0; name && apart && i < n; i++)
        if (apart[i]) {
            mem_free(view[i]->name);
            view[i]->name = apart[i];
        }
    mem_free(name);
    mem_free(apart);
}

/* ---- results ---- */

static const char *const result_task[] = {"final", "ppl", "val"};

int experiment_is_evaluation(const struct runview *v)
{
    return v->n_evals > 0 && v->n_series == 0 && v->steps_planned <= 0;
}

/* Where causal decisions were evaluated, dense and top-k evaluations do not describe the model at
 * inference. */
const char *experiment_routing(const struct runview *v)
{
    int has_dense = 0;
    for (size_t i = 0; i < v->n_evals; i++)
        for (size_t k = 0; k < DS_LEN(result_task); k++) {
            if (strcmp(v->eval[i].task, result_task[k]) != 0)
                continue;
            if (strcmp(v->eval[i].routing, "causal") == 0)
                return "causal";
            has_dense |= strcmp(v->eval[i].routing, "dense") == 0;
        }
    return has_dense && experiment_is_evaluation(v) ? "dense" : "causal";
}

static double newest(const struct runview *v, const char *task, const char *routing,
                     const char *key)
{
    for (size_t i = v->n_evals; i-- > 0;) {
        const struct run_eval *x = &v->eval[i];
        if (strcmp(x->task, task) != 0 || strcmp(x->routing, routing) != 0)
            continue;
        const struct vector *value = run_eval_value(x, key);
        if (value && value->n == 1)
            return (double)value->v[0];
    }
    return (double)NAN;
}

double experiment_newest(const struct runview *v, const char *metric)
{
    const struct series *s = runview_series(v, metric);
    for (size_t i = s ? s->n : 0; i-- > 0;)
        if (!s->is_old[i] && isfinite(s->value[i]))
            return s->value[i];
    return (double)NAN;
}

double experiment_result(const struct runview *v, const char *key)
{
    const char *name = strcmp(key, "val_loss") == 0 ? "loss" : key;
    const char *routing = experiment_routing(v);
    for (size_t i = 0; i < DS_LEN(result_task); i++) {
        double x = newest(v, result_task[i], routing, name);
        if (isfinite(x))
            return x;
    }
    return experiment_newest(v, key);
}
