/* depthscope isoflop: trains models of several sizes with equal FLOPs, each for as many steps as
 * the budget allows, so that the cosine schedule of the learning rate spans exactly its own run. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/mem.h"
#include "cli/batch/batch.h"
#include "training/cost.h"
#include "training/preset.h"

struct cli_option isoflop_options[] = {
    {.name = "budget", .has_value = 1, .help = "1e12,4e12  training FLOPs per run"},
    {.name = "sizes", .has_value = 1, .help = "4x64,6x96  LAYERSxDIM[xHEADS], or presets"},
    {.name = "methods",
     .has_value = 1,
     .help = "dense,edp  routing methods (default: the preset's)"},
    {.name = "mode", .has_value = 1, .help = "quick|scratch|transfer  appended as the last preset"},
    {.name = "seeds", .has_value = 1, .help = "1,2,3  seeds of every run"},
    {.name = "max-tokens", .has_value = 1, .help = "N  refuse runs that need more training text"},
    {.name = "out", .has_value = 1, .help = "FILE  JSON summary (default: runs/isoflop.json)"},
    {.name = "json", .help = "print the summary as JSON instead of the table"},
    {.name = "quiet", .help = "do not show progress"},
    {.name = "dry-run", .help = "list the runs and what would be done; start nothing"},
    BATCH_OPTIONS,
    {.name = NULL},
};

enum { LIST_MAX = 64, WORD = 96, SETTINGS_MAX = 64, STEPS_LEAST = 20 };

struct words {
    char word[LIST_MAX][WORD];
    size_t n;
};
/* One model: a size and a method, and the cost of one step. */
struct candidate {
    const char *size, *method; /* method "": the preset's */
    const char **preset;       /* the command's presets, then the size if it is a preset */
    size_t presets;
    char **setting;
    size_t n;
    struct train_cost cost;
    int64_t warmup;
    char refused[256];
};
struct task {
    struct words budgets, sizes, methods;
    double budget[LIST_MAX], max_tokens;
    const struct cli_args *args;
    const char **preset;
    size_t presets;
    struct train_cost_cache cache;
    struct str costs; /* cost per step; printed before anything runs */
};

static int read_words(struct words *w, const char *name, const char *text, struct err *e)
{
    for (const char *at = text; at && *at;) {
        size_t len = strcspn(at, ",");
        if (len == 0 || len >= WORD || w->n == LIST_MAX)
            return err_set(e, DS_EUSAGE,
                           "isoflop: --%s \"%s\": expected 1 to %d values separated by commas",
                           name, text, LIST_MAX);
        snprintf(w->word[w->n++], WORD, "%.*s", (int)len, at);
        at += len + (at[len] == ',');
    }
    return 0;
}

static int read_number(double *out, const char *name, const char *word, struct err *e)
{
    char *end;
    *out = strtod(word, &end);
    if (end == word || *end || !(*out > 0) || !isfinite(*out))
        return err_set(e, DS_EUSAGE, "isoflop: --%s: \"%s\": must be a number greater than 0", name,
                       word);
    return 0;
}

static int parse_shape(const char *word, int *layers, int *dim, int *heads, struct err *e);

/* A key that LxD already sets must not be overridden: the row's label would then be wrong. */
static int check_override(const struct task *t, const char *override, struct err *e)
{
    static const char *const of_size[] = {"model.layers",   "model.dim",      "model.heads",
                                          "model.kv_heads", "model.head_dim", "model.ffn"};
    int layers, dim, heads;
    struct override o;
    int rc = override_parse(&o, override, "isoflop", e);
    if (rc < 0)
        return rc;
    if (strcmp(o.key, "train.steps") == 0 || strcmp(o.key, "train.flops_budget") == 0 ||
        strcmp(o.key, "seed") == 0)
        return err_set(
            e, DS_EUSAGE,
            "isoflop: %s: unexpected setting; steps follow from --budget, seeds from --seeds",
            override);
    for (size_t k = 0; k < DS_LEN(of_size); k++)
        for (size_t i = 0; strcmp(o.key, of_size[k]) == 0 && i < t->sizes.n; i++)
            if (parse_shape(t->sizes.word[i], &layers, &dim, &heads, NULL) == 1)
                return err_set(e, DS_EUSAGE,
                               "isoflop: %s: the shape is already set by --sizes %s; use a preset "
                               "for other shapes",
                               override, t->sizes.word[i]);
    return 0;
}

static int read_task(struct task *t, const struct cli_args *a, struct err *e)
{
    t->args = a;
    int rc = cli_presets(a, &t->preset, &t->presets, e);
    if (rc == 0)
        rc = read_words(&t->budgets, "budget", cli_value(a, "budget"), e);
    if (rc == 0)
        rc = read_words(&t->sizes, "sizes", cli_value(a, "sizes"), e);
    if (rc == 0)
        rc = read_words(&t->methods, "methods", cli_value(a, "methods"), e);
    if (rc == 0 && (t->budgets.n == 0 || t->sizes.n == 0))
        rc = err_set(e, DS_EUSAGE, "isoflop: missing --%s (depthscope help isoflop)",
                     t->budgets.n == 0 ? "budget" : "sizes");
    if (rc == 0 && t->methods.n == 0)
        t->methods.n = 1; /* one that is "" */
    for (size_t i = 0; rc == 0 && i < t->budgets.n; i++)
        rc = read_number(&t->budget[i], "budget", t->budgets.word[i], e);
    if (rc == 0 && cli_value(a, "max-tokens"))
        rc = read_number(&t->max_tokens, "max-tokens", cli_value(a, "max-tokens"), e);
    for (int i = 0; rc == 0 && i < a->n_override; i++)
        rc = check_override(t, a->override[i], e);
    return rc;
}

/* ---- one model ---- */

static int set(struct candidate *c, const char *fmt, ...) DS_PRINTF(2, 3);
static int set(struct candidate *c, const char *fmt, ...)
{
    struct str s = {0};
    va_list ap;
    va_start(ap, fmt);
    str_vaddf(&s, fmt, ap);
    va_end(ap);
    char *copy = s.failed || c->n == SETTINGS_MAX ? NULL : mem_strdup(str_text(&s));
    if (copy)
        c->setting[c->n++] = copy;
    str_release(&s);
    return copy ? 0 : DS_EMEM;
}

static int resolve(const struct candidate *c, struct train_config *out, struct err *e)
{
    return train_config_make(out, c->preset, c->presets, (const char *const *)c->setting, c->n, e);
}

/* "6x96" or "6x96x3" -> 1; 0: not of this form, possibly a preset. */
static int parse_shape(const char *word, int *layers, int *dim, int *heads, struct err *e)
{
    int used = 0, more = 0;
    *heads = 0;
    if (sscanf(word, "%dx%d%n", layers, dim, &used) != 2)
        return 0;
    if (sscanf(word + used, "x%d%n", heads, &more) == 1)
        used += more;
    if (word[used] || *layers < 1 || *dim < 1 || *heads < 0 || (more && *heads < 1))
        return err_set(e, DS_EUSAGE,
                       "isoflop: --sizes: \"%s\": expected LAYERSxDIM or LAYERSxDIMxHEADS", word);
    return 1;
}

/* Head size is the preset's unless the number of heads is given; the ratio of query to key heads is
 * kept, and the MLP width scales with dim. */
static int set_shape(struct candidate *c, int layers, int dim, int heads, struct err *e)
{
    struct train_config base = {0};
    int rc = train_config_make(&base, c->preset, c->presets, NULL, 0, e);
    if (rc < 0)
        return rc;
    const struct model_config *m = &base.model;
    if (heads == 0 && dim % m->head_dim != 0)
        rc =
            err_set(e, DS_EUSAGE,
                    "isoflop: --sizes: %s: head size %lld does not divide %d; use LAYERSxDIMxHEADS",
                    c->size, (long long)m->head_dim, dim);
    heads = heads ? heads : dim / (int)m->head_dim;
    int64_t share = m->heads / m->kv_heads, kv = heads % share == 0 ? heads / share : heads;
    if (rc == 0 &&
        (set(c, "model.layers=%d", layers) < 0 || set(c, "model.dim=%d", dim) < 0 ||
         set(c, "model.heads=%d", heads) < 0 || set(c, "model.kv_heads=%lld", (long long)kv) < 0 ||
         set(c, "model.head_dim=0") < 0 || set(c, "model.ffn=0") < 0))
        rc = err_set(e, DS_EMEM, "isoflop");
    train_config_release(&base);
    return rc;
}

static int make_settings(const struct task *t, struct candidate *c, struct err *e)
{
    c->setting = mem_alloc(SETTINGS_MAX, sizeof *c->setting);
    c->preset = mem_alloc(t->presets + 1, sizeof *c->preset);
    if (!c->setting || !c->preset)
        return err_set(e, DS_EMEM, "isoflop");
    int layers, dim, heads, rc = parse_shape(c->size, &layers, &dim, &heads, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < t->presets; i++)
        c->preset[c->presets++] = t->preset[i];
    if (rc == 0)
        c->preset[c->presets++] = c->size;
    if (rc == 1 && (rc = set_shape(c, layers, dim, heads, e)) < 0)
        return rc;
    rc = c->method[0] ? set(c, "model.method=%s", c->method) : 0;
    for (int i = 0; rc == 0 && i < t->args->n_override; i++)
        rc = set(c, "%s", t->args->override[i]);
    return rc < 0 ? err_set(e, DS_EUSAGE, "isoflop: too many settings, must be at most %d",
                            SETTINGS_MAX - 12)
                  : 0;
}

static void print_candidate(struct task *t, const struct candidate *c)
{
    char step[16], params[16];
    double share = c->cost.flops / c->cost.dense;
    str_addf(&t->costs,
             "isoflop: %s%s%s: %s non-embedding parameters, %sFLOPs per step: ", c->method,
             c->method[0] ? " " : "", c->size, str_si(params, (double)c->cost.parameters),
             str_si(step, c->cost.flops));
    if (share < 0.995)
        str_addf(&t->costs, "training skips rows, %.0f %% of dense\n", 100 * share);
    else
        str_add(&t->costs, "training computes every row\n");
}

/* An invalid model is reported in its row; only errors common to all rows (memory) end the
 * command. */
static int make_candidate(struct task *t, struct candidate *c, struct err *e)
{
    struct train_config config = {0};
    struct err why = {0};
    int rc = make_settings(t, c, e);
    if (rc < 0)
        return rc;
    rc = resolve(c, &config, &why);
    if (rc == 0) {
        c->warmup = config.train.warmup;
        rc = train_cost(&c->cost, &config, &t->cache, &why);
    }
    train_config_release(&config);
    if (rc < 0)
        str_copy(c->refused, sizeof c->refused, why.text);
    else
        print_candidate(t, c);
    return rc == DS_EMEM ? err_set(e, DS_EMEM, "%s", why.text) : 0;
}

static void release(struct candidate *c)
{
    for (size_t i = 0; i < c->n; i++)
        mem_free(c->setting[i]);
    mem_free(c->setting);
    mem_free(c->preset);
}

/* ---- rows ---- */

static void judge(const struct task *t, const struct candidate *c, struct batch_row *r,
                  double budget, double steps)
{
    double tokens = steps * (double)c->cost.tokens;
    if (c->refused[0])
        str_copy(r->refused, sizeof r->refused, c->refused);
    else if (steps < STEPS_LEAST)
        snprintf(r->refused, sizeof r->refused,
                 "%.3g FLOPs allow %.0f steps of %.3g, expected at least %d", budget, steps,
                 c->cost.flops, STEPS_LEAST);
    else if (steps > 1e15)
        snprintf(r->refused, sizeof r->refused, "%.3g FLOPs allow %.3g steps, too many", budget,
                 steps);
    else if (t->max_tokens > 0 && tokens > t->max_tokens)
        snprintf(r->refused, sizeof r->refused,
                 "%.0f steps need %.4g tokens of text, --max-tokens allows %.4g", steps, tokens,
                 t->max_tokens);
}

static int has_setting(const struct candidate *c, const char *key)
{
    for (size_t i = 0; i < c->n; i++)
        if (strncmp(c->setting[i], key, strlen(key)) == 0)
            return 1;
    return 0;
}

static int add_setting(struct batch_row *r, struct err *e, const char *key, double value)
{
    char text[64];
    snprintf(text, sizeof text, "%s=%.17g", key, value);
    return batch_set(r, text, e);
}

static int add_row(const struct task *t, struct batch_plan *p, const struct candidate *c, size_t k,
                   struct err *e)
{
    char label[96];
    double budget = t->budget[k], steps = c->refused[0] ? 0 : floor(budget / c->cost.flops + 0.5);
    snprintf(label, sizeof label, "%.24s%s%.40s %.20s", c->method, c->method[0] ? " " : "", c->size,
             t->budgets.word[k]);
    struct batch_row *r = batch_add(p, label);
    int rc = r ? 0 : err_set(e, DS_EMEM, "isoflop");
    if (rc < 0)
        return rc;
    judge(t, c, r, budget, steps);
    for (size_t i = 0; rc == 0 && i < c->presets; i++)
        rc = batch_preset(r, c->preset[i], e);
    for (size_t i = 0; rc == 0 && i < c->n; i++)
        rc = batch_set(r, c->setting[i], e);
    if (rc == 0)
        rc = add_setting(r, e, "train.flops_budget", budget);
    if (rc == 0 && !r->refused[0])
        rc = add_setting(r, e, "train.steps", steps);
    /* a warm-up chosen for longer runs could fill a short run entirely */
    if (rc == 0 && !r->refused[0] && (double)c->warmup > steps / 10 &&
        !has_setting(c, "train.warmup="))
        rc = add_setting(r, e, "train.warmup", floor(steps / 10));
    return rc;
}

static int add_rows(struct task *t, struct batch_plan *p, struct candidate *all, size_t n,
                    struct err *e)
{
    size_t fine = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        all[i].method = t->methods.word[i / t->sizes.n];
        all[i].size = t->sizes.word[i % t->sizes.n];
        rc = make_candidate(t, &all[i], e);
    }
    for (size_t k = 0; rc == 0 && k < t->budgets.n; k++)
        for (size_t i = 0; rc == 0 && i < n; i++) {
            rc = add_row(t, p, &all[i], k, e);
            fine += rc == 0 && !p->row[p->n - 1].refused[0];
        }
    if (rc == 0 && fine > 0 && !p->quiet)
        fputs(str_text(&t->costs), stderr);
    return rc;
}

static int plan_isoflop(struct batch_plan *p, const struct cli_args *a, struct err *e)
{
    struct task *t = mem_alloc(1, sizeof *t);
    const char *seeds = cli_value(a, "seeds");
    int rc = t ? read_task(t, a, e) : err_set(e, DS_EMEM, "isoflop");
    size_t n = rc == 0 ? t->methods.n * t->sizes.n : 0;
    struct candidate *all = n ? mem_alloc(n, sizeof *all) : NULL;
    if (rc == 0 && !all)
        rc = err_set(e, DS_EMEM, "isoflop");
    if (rc == 0)
        rc = cli_seeds(&p->seed, &p->seeds, seeds ? seeds : "1,2,3", e);
    if (rc == 0) {
        presets_label(p->preset, sizeof p->preset, t->preset, t->presets);
        rc = add_rows(t, p, all, n, e);
    }
    for (size_t i = 0; all && i < n; i++)
        release(&all[i]);
    mem_free(all);
    if (t) {
        str_release(&t->costs);
        mem_free(t->preset);
    }
    mem_free(t);
    return rc;
}

int isoflop_command(int argc, char **argv)
{
    return batch_command("isoflop", argc, argv, isoflop_options, plan_isoflop);
}
