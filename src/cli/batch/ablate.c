/* depthscope ablate: the nine published edits of EDP that differ from the default, entropy-aware
 * sparsity, the fair variant, and the control they are compared with: the same options, steps,
 * seeds and order of data. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/batch/batch.h"
#include "training/options.h"
#include "training/preset.h"

struct cli_option ablate_options[] = {
    {.name = "only", .has_value = 1, .help = "a,b  only these rows (the control always runs)"},
    {.name = "seeds", .has_value = 1, .help = "1,2,3  seeds of every row"},
    {.name = "out", .has_value = 1, .help = "FILE  JSON summary (default: runs/ablate.json)"},
    {.name = "json", .help = "print the summary as JSON instead of the table"},
    {.name = "quiet", .help = "do not show progress"},
    {.name = "dry-run", .help = "list the runs and what would be done; start nothing"},
    BATCH_OPTIONS,
    {.name = NULL},
};

/* The control has every component enabled, so that each row disables exactly one. */
static const char *const base[] = {"model.method=edp", "edp.penalty=quadratic"};
static const struct edit {
    const char *name, *setting[4];
} edits[] = {
    {"control", {NULL}},
    {"first_order_signal", {"edp.signal=velocity"}},
    {"static_step_encoding", {"edp.step_code=static"}},
    {"no_warp_forward", {"edp.step_code=off"}},
    {"no_sparsity_loss", {"edp.penalty=off"}},
    {"fixed_threshold", {"edp.threshold=fixed"}},
    {"full_depth_routing", {"edp.early=0", "edp.late=0"}},
    {"target_ratio_0.4", {"edp.target_ratio=0.4"}},
    {"target_ratio_0.8", {"edp.target_ratio=0.8"}},
    {"no_budget_loss", {"edp.budget=off"}},
    {"entropy_aware", {"edp.penalty=entropy"}},
    {"fair", {"edp.signal=regret", "edp.spread=common", "edp.max_skip=0", "edp.min_runs=1"}},
};

enum { OVERRIDES_MAX = 256 };

static int check_only(const char *only, struct err *e)
{
    const char *names[DS_LEN(edits)];
    for (size_t i = 0; i < DS_LEN(edits); i++)
        names[i] = edits[i].name;
    for (const char *p = only;; p++) {
        char word[64];
        size_t len = strcspn(p, ","), known = 0;
        snprintf(word, sizeof word, "%.*s", (int)(len < 63 ? len : 63), p);
        for (size_t i = 0; i < DS_LEN(edits); i++)
            known += strcmp(word, names[i]) == 0;
        if (!known)
            return err_set(e, DS_EUSAGE, "ablate: unknown row \"%s\", did you mean %s?", word,
                           cli_nearest(word, names, DS_LEN(edits)));
        p += len;
        if (!*p)
            return 0;
    }
}

static int is_chosen(const char *only, const char *name)
{
    size_t n = strlen(name);
    if (!only || strcmp(name, "control") == 0)
        return 1;
    for (const char *p = only; *p; p += strcspn(p, ","), p += *p == ',')
        if (strncmp(p, name, n) == 0 && (p[n] == ',' || p[n] == '\0'))
            return 1;
    return 0;
}

/* ---- targets reachable with the presets' always-on layers ---- */

static const char target_key[] = "edp.target_ratio=";

/* 1 when this target is valid; *target: the resolved value ("" resolves to the control's). */
static int is_reachable(const struct cli_args *a, const char *setting, double *target)
{
    const char *override[OVERRIDES_MAX];
    struct train_config c = {0};
    size_t n = 0;
    for (size_t i = 0; i < DS_LEN(base); i++)
        override[n++] = base[i];
    for (int i = 0; i < a->n_override && n < OVERRIDES_MAX - 1; i++)
        override[n++] = a->override[i];
    if (setting[0])
        override[n++] = setting;
    if (train_config_make(&c, a->rest, (size_t)a->n_rest, override, n, NULL) < 0)
        return 0;
    const char *text = config_get(&c.route, "edp.target_ratio");
    *target = text ? strtod(text, NULL) : 0;
    train_config_release(&c);
    return 1;
}

/* A reachable target below the control's: the published one, else midway between the lowest
 * reachable one and the control's.  0: none exists, and the row reports why. */
static int fit_target(const struct cli_args *a, const struct edit *x, char *name, size_t name_size,
                      char *setting, size_t size)
{
    double control, target;
    char text[32], value[16];
    if (!x->setting[0] || strncmp(x->setting[0], target_key, sizeof target_key - 1) != 0 ||
        is_reachable(a, x->setting[0], &target) || !is_reachable(a, "", &control))
        return 0;
    for (double low = 0.05; low < control; low += 0.05) {
        snprintf(text, sizeof text, "%s%.2f", target_key, low);
        if (!is_reachable(a, text, &target))
            continue;
        snprintf(value, sizeof value, "%.3g", (low + control) / 2);
        snprintf(name, name_size, "target_ratio_%s", value);
        snprintf(setting, size, "%s%s", target_key, value);
        return is_reachable(a, setting, &target) && target < control;
    }
    return 0;
}

static int add_edit(struct batch_plan *p, const struct edit *x, const struct cli_args *a,
                    struct err *e)
{
    char label[96], name[64], target[64];
    int is_fitted = fit_target(a, x, name, sizeof name, target, sizeof target);
    if (is_fitted && !p->quiet)
        fprintf(stderr,
                "depthscope: ablate: %s cannot be reached with the layers that are always on or "
                "forced; using %s instead\n",
                x->name, name);
    if (!is_fitted)
        str_copy(name, sizeof name, x->name);
    struct batch_row *r = batch_add(p, name);
    int rc = r ? 0 : err_set(e, DS_EMEM, "ablate");
    for (int i = 0; i < a->n_rest && rc == 0; i++)
        rc = batch_preset(r, a->rest[i], e);
    for (size_t i = 0; i < DS_LEN(base) && rc == 0; i++)
        rc = batch_set(r, base[i], e);
    for (int i = 0; i < a->n_override && rc == 0; i++)
        rc = batch_set(r, a->override[i], e);
    for (size_t i = 0; i < DS_LEN(x->setting) && x->setting[i] && rc == 0; i++)
        rc = batch_set(r, is_fitted && i == 0 ? target : x->setting[i], e);
    snprintf(label, sizeof label, "edp.ablation=%s", name);
    return rc == 0 ? batch_set(r, label, e) : rc;
}

int ablate_rows(struct batch_plan *p, const struct cli_args *a, const char *only, struct err *e)
{
    int rc = only ? check_only(only, e) : 0;
    for (size_t i = 0; i < DS_LEN(edits) && rc == 0; i++)
        if (is_chosen(only, edits[i].name))
            rc = add_edit(p, &edits[i], a, e);
    return rc;
}

static int plan_ablations(struct batch_plan *p, const struct cli_args *a, struct err *e)
{
    const char *only = cli_value(a, "only"), *seeds = cli_value(a, "seeds");
    for (int i = 0; i < a->n_override; i++)
        if (cli_seed_setting(a->override[i], &(const char *){NULL}))
            return err_set(e, DS_EUSAGE, "ablate: unexpected setting seed; use --seeds 1,2,3");
    presets_label(p->preset, sizeof p->preset, a->rest, (size_t)a->n_rest);
    int rc = cli_seeds(&p->seed, &p->seeds, seeds ? seeds : "1,2,3", e);
    return rc == 0 ? ablate_rows(p, a, only, e) : rc;
}

int ablate_command(int argc, char **argv)
{
    return batch_command("ablate", argc, argv, ablate_options, plan_ablations);
}
