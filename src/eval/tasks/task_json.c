/* Writes results in the JSON format of lm-evaluation-harness. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "eval/task.h"

static void key(struct str *s, int *first, const char *name)
{
    str_add(s, *first ? "" : ", ");
    *first = 0;
    str_add_json(s, name, strlen(name));
    str_add(s, ": ");
}

static void number(struct str *s, int *first, const char *name, double x)
{
    key(s, first, name);
    str_add_json_num(s, x);
}

static void text(struct str *s, int *first, const char *name, const char *value)
{
    key(s, first, name);
    str_add_json(s, value, strlen(value));
}

static int is_group(const struct task_result *r, const struct task_score *x)
{
    return r->n > 1 && x->level < 2;
}

/* "mmlu_stem" under mmlu is " - stem", one space per level. */
static void alias(struct str *s, int *first, const struct task_result *r,
                  const struct task_score *x)
{
    char out[128];
    size_t n = strlen(r->task->name);
    if (x->level > 0)
        snprintf(out, sizeof out, "%*s- %s", x->level, "", x->name + n + 1);
    else
        snprintf(out, sizeof out, "%s", x->name);
    text(s, first, "alias", out);
}

static void scores(struct str *s, const struct task_result *r, const struct task_score *x)
{
    char name[96];
    int first = 1;
    str_add(s, "{");
    alias(s, &first, r, x);
    number(s, &first, "sample_len", (double)x->n);
    for (size_t k = 0; k < r->task->n_metrics; k++) {
        const struct task_metric *m = &r->task->metrics[k];
        snprintf(name, sizeof name, "%s,%s", m->name, m->filter);
        number(s, &first, name, x->value[k]);
        snprintf(name, sizeof name, "%s_stderr,%s", m->name, m->filter);
        if (isnan(x->error[k]))
            text(s, &first, name, "N/A");
        else
            number(s, &first, name, x->error[k]);
    }
    number(s, &first, "mean_depth", task_depth(&x->cost, r->layers));
    number(s, &first, "scored_depth", task_scored_depth(&x->cost));
    number(s, &first, "block_ratio", task_block_ratio(&x->cost));
    number(s, &first, "flops_ratio", task_flops_ratio(&x->cost));
    number(s, &first, "tokens", x->cost.tokens);
    str_add(s, "}");
}

enum section { RESULTS, GROUPS, CONFIGS, VERSIONS, SHOTS, HIGHER, SAMPLES };

static void config(struct str *s, const struct task_result *r, const struct task_score *x)
{
    int first = 1;
    const struct task *t = r->task;
    str_add(s, "{");
    text(s, &first, "task", x->name);
    text(s, &first, "output_type", t->output_type);
    key(s, &first, "num_fewshot");
    str_addf(s, "%lld", (long long)r->shots);
    text(s, &first, "target_delimiter", " ");
    text(s, &first, "fewshot_delimiter", "\n\n");
    if (t->until) {
        key(s, &first, "generation_kwargs");
        str_add(s, "{\"until\": [");
        for (size_t i = 0; t->until[i]; i++) {
            str_add(s, i ? ", " : "");
            str_add_json(s, t->until[i], strlen(t->until[i]));
        }
        str_add(s, "], \"do_sample\": false, \"temperature\": 0.0}");
    }
    str_add(s, "}");
}

static void entry(struct str *s, enum section what, const struct task_result *r,
                  const struct task_score *x)
{
    int first = 1;
    switch (what) {
    case RESULTS:
    case GROUPS: scores(s, r, x); break;
    case CONFIGS: config(s, r, x); break;
    case VERSIONS:
        str_add_json_num(s, is_group(r, x) ? r->task->group_version : r->task->version);
        break;
    case SHOTS: str_addf(s, "%lld", (long long)r->shots); break;
    case HIGHER:
        str_add(s, "{");
        for (size_t k = 0; k < r->task->n_metrics; k++) {
            if (k > 0 && strcmp(r->task->metrics[k].name, r->task->metrics[k - 1].name) == 0)
                continue; /* another filter of the same metric */
            key(s, &first, r->task->metrics[k].name);
            str_add(s, r->task->metrics[k].higher_is_better ? "true" : "false");
        }
        str_add(s, "}");
        break;
    case SAMPLES: str_addf(s, "{\"original\": %zu, \"effective\": %zu}", x->original, x->n); break;
    }
}

/* with: 1 groups, 2 parts, 3 both. */
static void section(struct str *s, int *top, const char *name, enum section what, int with,
                    const struct task_result *r)
{
    int first = 1;
    key(s, top, name);
    str_add(s, "{");
    for (size_t i = 0; i < r->n; i++)
        if (with & (is_group(r, &r->v[i]) ? 1 : 2)) {
            key(s, &first, r->v[i].name);
            entry(s, what, r, &r->v[i]);
        }
    str_add(s, "}");
}

static void subtasks(struct str *s, int *top, const struct task_result *r)
{
    int first = 1;
    key(s, top, "group_subtasks");
    str_add(s, "{");
    for (size_t i = 0; i < r->n; i++) {
        int inner = 1, level = r->v[i].level;
        if (r->n > 1 && !is_group(r, &r->v[i]))
            continue; /* parts are listed in their groups; a standalone task has an empty list */
        key(s, &first, r->v[i].name);
        str_add(s, "[");
        for (size_t k = i + 1; k < r->n && r->v[k].level > level; k++)
            if (r->v[k].level == level + 1) {
                str_add(s, inner ? "" : ", ");
                inner = 0;
                str_add_json(s, r->v[k].name, strlen(r->v[k].name));
            }
        str_add(s, "]");
    }
    str_add(s, "}");
}

void task_result_json(struct str *out, const struct task_result *r, const struct subject *s,
                      const struct task_options *o)
{
    int top = 1, first = 1;
    str_add(out, "{");
    section(out, &top, "results", RESULTS, 3, r);
    if (r->n > 1)
        section(out, &top, "groups", GROUPS, 1, r);
    subtasks(out, &top, r);
    section(out, &top, "configs", CONFIGS, 2, r);
    section(out, &top, "versions", VERSIONS, 3, r);
    section(out, &top, "n-shot", SHOTS, 2, r);
    section(out, &top, "higher_is_better", HIGHER, 3, r);
    section(out, &top, "n-samples", SAMPLES, 2, r);
    key(out, &top, "config");
    str_add(out, "{");
    text(out, &first, "model", "depthscope");
    text(out, &first, "model_args", s->dir);
    text(out, &first, "method", s->model->config.method);
    text(out, &first, "routing", o->is_dense ? "dense" : "causal");
    number(out, &first, "capacity", o->capacity == -1 ? (double)NAN : o->capacity);
    number(out, &first, "threshold_offset", o->threshold_offset);
    number(out, &first, "layers", r->layers);
    number(out, &first, "limit", o->limit > 0 ? (double)o->limit : (double)NAN);
    number(out, &first, "fewshot_seed", TASK_SHOTS_SEED);
    number(out, &first, "max_length",
           o->seq > 0 ? (double)o->seq : (double)s->model->config.max_seq);
    number(out, &first, "resumed", (double)r->resumed);
    str_add(out, "}}\n");
}
