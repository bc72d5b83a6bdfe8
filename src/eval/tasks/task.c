/* Runs benchmark tasks: prompts, scoring, aggregation and the results file. */
#include "eval/task.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/mt19937.h"
#include "base/nearest.h"
#include "eval/tasks/task_log.h"
#include "eval/tasks/task_score.h"

/* All tasks, one line each. */
/* clang-format off */
#define TASKS(X) \
    X(mmlu) \
    X(arc_challenge) \
    X(arc_easy) \
    X(gsm8k) \
    X(gsm8k_cot) \
    X(hellaswag) \
    X(piqa) \
    X(lambada) \
    X(wikitext)

#define DECLARE(name) extern const struct task task_##name;
#define ROW(name) &task_##name,

TASKS(DECLARE)

static const struct task *const tasks[] = { TASKS(ROW) NULL };
/* clang-format on */

const struct task *const *task_all(void)
{
    return tasks;
}

const struct task *task_find_name(const char *name, const char **subject)
{
    *subject = "";
    for (size_t i = 0; tasks[i]; i++) {
        size_t n = strlen(tasks[i]->name);
        if (strcmp(name, tasks[i]->name) == 0)
            return tasks[i];
        if (tasks[i]->has_parts && strncmp(name, tasks[i]->name, n) == 0 && name[n] == '_') {
            *subject = name + n + 1;
            return tasks[i];
        }
    }
    return strcmp(name, "lambada") == 0 ? &task_lambada : NULL;
}

static int unknown(const char *name, struct err *e)
{
    struct str list = {0};
    char hint[NEAREST_MAX + 32];
    struct nearest best = nearest_to(name);
    for (size_t i = 0; tasks[i]; i++) {
        str_addf(&list, ", %s", tasks[i]->name);
        nearest_try(&best, tasks[i]->name);
    }
    int rc = err_set(e, DS_EUSAGE, "unknown task=%.80s%s; expected one of ppl%s", name,
                     nearest_hint(&best, hint, sizeof hint), str_text(&list));
    str_release(&list);
    return rc;
}

/* ---- prompts ---- */

/* Few-shot examples drawn for each document. */
static uint32_t drawn(const struct task_set *s)
{
    return (uint32_t)s->shots + (s->shots > 0 && s->task->draws_spare);
}

static int check_shots(const struct task_set *s, struct err *e)
{
    if (s->shots > TASK_SHOTS_MAX)
        return err_set(e, DS_ERANGE, "shots=%lld: must be at most %d", (long long)s->shots,
                       TASK_SHOTS_MAX);
    for (size_t i = 0; i < s->parts.n; i++)
        if (s->parts.v[i].shots.n < drawn(s))
            return err_set(e, DS_ERANGE, "shots=%lld: %s has only %zu documents for %s",
                           (long long)s->shots, s->parts.v[i].name, s->parts.v[i].shots.n,
                           s->task->draws_spare ? "shots and a spare one" : "shots");
    return 0;
}

int task_set_open(struct task_set *out, const struct task_options *o, struct err *e)
{
    struct task_env env = {.path = o->path};
    struct task_set s = {.task = task_find_name(o->name, &env.subject)};
    if (!s.task)
        return unknown(o->name, e);
    if (!o->path[0])
        return err_set(e, DS_EUSAGE, "task=%s needs data=DIRECTORY or FILE: %s", s.task->name,
                       s.task->source);
    s.shots = o->shots >= 0 ? o->shots : s.task->shots;
    env.has_shots = s.shots > 0;
    int rc = s.task->read(&s.parts, s.task, &env, e);
    if (rc == 0)
        rc = check_shots(&s, e);
    if (rc < 0)
        task_set_close(&s);
    else
        *out = s;
    return rc;
}

void task_set_close(struct task_set *s)
{
    task_parts_release(&s->parts);
}

static int is_same(const struct task_doc *a, const struct task_doc *b)
{
    int same = a->choices == b->choices && a->gold == b->gold && strcmp(a->query, b->query) == 0;
    for (int k = 0; k < a->choices && same; k++)
        same = strcmp(a->choice[k], b->choice[k]) == 0;
    return same;
}

static int pick_shots(uint32_t *pick, const struct task_set *s, const struct task_part *part,
                      struct mt19937 *from, struct err *e)
{
    uint32_t n = drawn(s);
    for (uint32_t i = 0; i < n; i++)
        pick[i] = i;
    return n > 0 && !s->task->takes_first_shots
               ? mt19937_sample(from, (uint32_t)part->shots.n, n, pick, e)
               : 0;
}

/* Adds description and shots; d is the document itself, which must not be a shot. */
static int add_shots(struct str *out, const struct task_set *s, const struct task_part *part,
                     const struct task_doc *d, struct mt19937 *from, struct err *e)
{
    uint32_t pick[TASK_SHOTS_MAX + 1], n = drawn(s);
    int rc = pick_shots(pick, s, part, from, e);
    int64_t left = s->shots;
    if (rc < 0)
        return rc;
    str_reset(out);
    if (s->task->kind != TASK_ROLLING)
        str_add(out, part->description);
    for (uint32_t i = 0; i < n && left > 0; i++) {
        const struct task_doc *shot = &part->shots.v[pick[i]];
        if (s->task->draws_spare && is_same(shot, d))
            continue;
        str_addf(out, "%s %s\n\n", shot->query, shot->target);
        left--;
    }
    return out->failed ? err_set(e, DS_EMEM, "out of memory for a prompt") : 0;
}

int task_prompt(struct str *out, const struct task_set *s, const struct task_part *part,
                const struct task_doc *d, struct mt19937 *from, struct err *e)
{
    int rc = add_shots(out, s, part, d, from, e);
    if (rc < 0)
        return rc;
    str_add(out, d->query);
    return out->failed ? err_set(e, DS_EMEM, "out of memory for a prompt") : 0;
}

/* ---- numbers ---- */

void task_sum_add(struct task_sum *s, struct task_value x)
{
    double away = x.value - s->mean;
    s->n++;
    s->mean += away / s->n;
    s->ss += away * (x.value - s->mean);
    s->value += x.value;
    s->weight += x.weight;
}

void task_sum_end(const struct task_sum *s, enum task_mean how, double *value, double *error)
{
    double se = s->n > 1 ? sqrt(s->ss / (s->n - 1) / s->n) : (double)NAN;
    *error = (double)NAN;
    switch (how) {
    case TASK_MEAN:
        *value = s->mean;
        *error = se;
        break;
    case TASK_PERPLEXITY: *value = exp(-s->mean); break;
    case TASK_WEIGHTED_PERPLEXITY: *value = exp(-s->value / s->weight); break;
    case TASK_WEIGHTED_BITS: *value = -s->value / (s->weight * log(2)); break;
    }
}

void task_cost_add(struct task_cost *to, const struct task_cost *x)
{
    to->run += x->run;
    to->cells += x->cells;
    to->flops += x->flops;
    to->dense += x->dense;
    to->tokens += x->tokens;
    to->scored += x->scored;
    to->scored_depth += x->scored_depth;
}

double task_depth(const struct task_cost *s, int layers)
{
    return s->cells > 0 ? s->run / s->cells * layers : (double)NAN;
}

double task_scored_depth(const struct task_cost *s)
{
    return s->scored > 0 ? s->scored_depth / s->scored : (double)NAN;
}

double task_block_ratio(const struct task_cost *s)
{
    return s->cells > 0 ? s->run / s->cells : (double)NAN;
}

double task_flops_ratio(const struct task_cost *s)
{
    return s->dense > 0 ? s->flops / s->dense : (double)NAN;
}

/* ---- the run ---- */

struct run {
    const struct task_options *o;
    struct task_set set;
    struct scorer *scorer;
    struct task_log *log;
    task_progress_fn *each;
    void *ctx;
    struct task_progress at;
    struct str prompt, text;
    double *kept; /* values of a perplexity metric, for its standard error */
};

static size_t requested(const struct run *r, const struct task_part *p)
{
    size_t limit = (size_t)r->o->limit;
    return limit > 0 && limit < p->asked.n ? limit : p->asked.n;
}

static uint64_t hash_of(const struct str *prompt, const struct task_doc *d)
{
    uint64_t h = hash64(str_text(prompt), prompt->len, (uint64_t)d->gold);
    for (int k = 0; k < d->choices; k++)
        h = hash64(d->choice[k], strlen(d->choice[k]), h);
    return hash64(d->target, strlen(d->target), h);
}

static int ask(struct run *r, const struct task_doc *d, struct task_answer *a, struct task_done *x,
               struct err *e)
{
    const struct task *t = r->set.task;
    const char *prompt = str_text(&r->prompt);
    int rc = 0;
    switch (t->kind) {
    case TASK_CHOICE: rc = scorer_choices(r->scorer, prompt, d, a, &x->cost, e); break;
    case TASK_GENERATE:
        rc = scorer_text(r->scorer, prompt, t->until, &r->text, &x->cost, e);
        a->text = str_text(&r->text);
        break;
    case TASK_ROLLING: rc = scorer_rolling(r->scorer, prompt, &a->ll[0], &x->cost, e); break;
    }
    if (rc == 0 && t->judge(d, a, x->value) < 0)
        rc = err_set(e, DS_EMEM, "out of memory for an answer");
    return rc;
}

static int one_document(struct run *r, const struct task_part *p, size_t i, struct mt19937 *random,
                        struct task_done *x, struct err *e)
{
    const struct task_doc *d = &p->asked.v[i];
    struct task_answer a = {{0}, {0}, NULL};
    int rc = task_prompt(&r->prompt, &r->set, p, d, random, e);
    if (rc < 0)
        return rc;
    uint64_t hash = hash_of(&r->prompt, d);
    *x = (struct task_done){0};
    rc = task_log_get(r->log, p->name, i, hash, x, e);
    if (rc != 0) {
        r->at.resumed += rc > 0;
        return rc < 0 ? rc : 0;
    }
    rc = ask(r, d, &a, x, e);
    return rc < 0 ? err_add(e, rc, "%s: document %zu", p->name, i)
                  : task_log_add(r->log, p->name, i, hash, d, &a, x, e);
}

static void add_values(struct run *r, struct task_sum sum[TASK_METRICS_MAX],
                       const struct task_value x[TASK_METRICS_MAX], size_t i)
{
    const struct task *t = r->set.task;
    for (size_t k = 0; k < t->n_metrics; k++) {
        task_sum_add(&sum[k], x[k]);
        if (t->metrics[k].mean == TASK_PERPLEXITY)
            r->kept[i] = x[k].value;
    }
}

static int end_part(const struct run *r, const struct task_sum sum[TASK_METRICS_MAX],
                    struct task_score *out, struct err *e)
{
    const struct task *t = r->set.task;
    int rc = 0;
    for (size_t k = 0; k < t->n_metrics && rc == 0; k++) {
        task_sum_end(&sum[k], t->metrics[k].mean, &out->value[k], &out->error[k]);
        if (t->metrics[k].mean == TASK_PERPLEXITY)
            rc = task_bootstrap_error(&out->error[k], r->kept, out->n, e);
    }
    return rc;
}

/* With fixed shots every prompt of the part has the same prefix. */
static int share(struct run *r, const struct task_part *p, struct err *e)
{
    int alike = r->set.task->takes_first_shots || r->set.shots == 0;
    int rc = alike ? add_shots(&r->prompt, &r->set, p, NULL, NULL, e) : 0;
    return rc == 0 ? scorer_share(r->scorer, alike ? str_text(&r->prompt) : "", e) : rc;
}

static int one_part(struct run *r, const struct task_part *p, struct task_score *out, struct err *e)
{
    struct mt19937 random;
    struct task_sum sum[TASK_METRICS_MAX] = {{0}};
    int rc = 0;
    mt19937_init(&random, TASK_SHOTS_SEED);
    str_copy(out->name, sizeof out->name, p->name);
    out->group = p->group;
    out->n = requested(r, p);
    out->original = p->asked.n;
    r->at.part = p->name;
    mem_free(r->kept);
    r->kept = mem_alloc(out->n, sizeof *r->kept);
    if (!r->kept)
        return err_set(e, DS_EMEM, "out of memory for scores");
    if ((rc = share(r, p, e)) < 0)
        return rc;
    for (size_t i = 0; i < out->n && rc == 0; i++) {
        struct task_done x;
        if (r->each && r->each(r->ctx, &r->at))
            return err_set(e, DS_ESTOP, "stopped at document %zu of %s", i, p->name);
        rc = one_document(r, p, i, &random, &x, e);
        if (rc < 0)
            return rc;
        add_values(r, sum, x.value, i);
        task_cost_add(&out->cost, &x.cost);
        r->at.done++;
    }
    return end_part(r, sum, out, e);
}

/* Size-weighted means and pooled error of the parts of a group; NULL: of all parts. */
static void group_score(struct task_score *g, const char *group, const struct task_score *part,
                        size_t n, size_t metrics)
{
    double sizes = 0, members = 0, var[TASK_METRICS_MAX] = {0};
    for (size_t i = 0; i < n; i++) {
        const struct task_score *p = &part[i];
        double size = (double)p->n;
        if (group && strcmp(p->group, group) != 0)
            continue;
        for (size_t k = 0; k < metrics; k++) {
            g->value[k] += size * p->value[k];
            var[k] += (size - 1) * p->error[k] * p->error[k] * size;
        }
        sizes += size;
        members++;
        g->n += p->n;
        g->original += p->original;
        task_cost_add(&g->cost, &p->cost);
    }
    for (size_t k = 0; k < metrics; k++) {
        g->value[k] /= sizes;
        g->error[k] = sizes > members ? sqrt(var[k] / (sizes - members) / sizes) : (double)NAN;
    }
}

/* Orders the scores: the task, then each group with its parts; `part` are the scores in the order
 * of the parts. */
static void arrange(struct task_result *r, const struct task_score *part, size_t n)
{
    size_t metrics = r->task->n_metrics, at = 0;
    struct task_score *top = &r->v[at++];
    str_copy(top->name, sizeof top->name, r->task->name);
    group_score(top, NULL, part, n, metrics);
    for (size_t i = 0; i < n; i++) {
        size_t earlier = 0;
        while (earlier < i && strcmp(part[earlier].group, part[i].group) != 0)
            earlier++;
        if (earlier < i)
            continue;
        struct task_score *g = &r->v[at++];
        str_copy(g->name, sizeof g->name, part[i].group);
        g->level = 1;
        group_score(g, part[i].group, part, n, metrics);
        for (size_t k = i; k < n; k++)
            if (strcmp(part[k].group, part[i].group) == 0) {
                r->v[at] = part[k];
                r->v[at++].level = 2;
            }
    }
    r->n = at;
}

static int all_parts(struct task_result *out, struct run *r, struct err *e)
{
    size_t n = r->set.parts.n;
    const char *subject;
    struct task_score *part = mem_alloc(n, sizeof *part);
    int is_group = r->set.task->has_parts && !(task_find_name(r->o->name, &subject), subject[0]);
    out->v = mem_alloc(2 * n + 1, sizeof *out->v);
    int rc = part && out->v ? 0 : err_set(e, DS_EMEM, "out of memory for scores");
    for (size_t i = 0; i < n && rc == 0; i++)
        r->at.total += requested(r, &r->set.parts.v[i]);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = one_part(r, &r->set.parts.v[i], &part[i], e);
    r->at.part = out->task->name;
    if (rc == 0 && r->each)
        r->each(r->ctx, &r->at);
    if (rc == 0 && is_group)
        arrange(out, part, n);
    else if (rc == 0) {
        out->v[0] = part[0];
        out->n = 1;
    }
    mem_free(part);
    return rc;
}

/* Opens the results file, whose header identifies everything that its documents share. */
static int open_log(struct run *r, const struct task_options *o, struct subject *s, struct err *e)
{
    char about[512], print[64];
    int rc = scorer_fingerprint(r->scorer, print, e);
    if (rc < 0)
        return rc;
    snprintf(about, sizeof about,
             "%s, shots=%lld, seq=%lld, max_gen=%lld, %s%s, capacity %g, offset %g, seed %llu, "
             "vocabulary %016llx, parameters %016llx, model %s",
             r->set.task->name, (long long)r->set.shots, (long long)o->seq, (long long)o->max_gen,
             s->model->config.method, o->is_dense ? " run dense" : "", o->capacity,
             o->threshold_offset, (unsigned long long)o->seed,
             (unsigned long long)tokenizer_hash(s->tokenizer), (unsigned long long)subject_hash(s),
             print);
    return task_log_open(&r->log, o->results, about, e);
}

int task_run(struct task_result *out, struct subject *s, const struct task_options *o,
             task_progress_fn *each, void *ctx, struct err *e)
{
    struct run r = {.o = o, .each = each, .ctx = ctx};
    struct task_result result = {.limit = o->limit, .layers = model_config_depth(&s->model->config)};
    int rc = task_set_open(&r.set, o, e);
    if (rc < 0)
        return rc;
    result.task = r.set.task;
    result.shots = r.set.shots;
    rc = scorer_open(&r.scorer, s, o, e);
    if (rc == 0)
        rc = open_log(&r, o, s, e);
    if (rc == 0)
        rc = all_parts(&result, &r, e);
    result.resumed = r.at.resumed;
    mem_free(r.kept);
    task_log_close(r.log);
    scorer_close(r.scorer);
    task_set_close(&r.set);
    str_release(&r.prompt);
    str_release(&r.text);
    if (rc < 0)
        task_result_release(&result);
    else
        *out = result;
    return rc;
}

void task_result_release(struct task_result *r)
{
    mem_free(r->v);
    r->v = NULL;
    r->n = 0;
}
