/* depthscope sweep [PRESET[,PRESET] ...] key=a,b,c ...: trains every combination with every
 * seed. */
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "cli/batch/batch.h"
#include "training/preset.h"

struct cli_option sweep_options[] = {
    {.name = "seeds", .has_value = 1, .help = "1,2,3  seeds of every combination (or seed=1,2,3)"},
    {.name = "out", .has_value = 1, .help = "FILE  JSON summary (default: runs/sweep.json)"},
    {.name = "json", .help = "print the summary as JSON instead of the table"},
    {.name = "quiet", .help = "do not show progress"},
    {.name = "dry-run", .help = "list the runs and what would be done; start nothing"},
    BATCH_OPTIONS,
    {.name = "mode", .has_value = 1, .help = "quick|scratch|transfer  appended as the last preset"},
    {.name = "m", .help = "multi-run, as in train -m (always on here)"},
    {.name = NULL},
};
enum { KEYS_MAX = 32 };

/* One axis of the grid: a key and its values, or preset alternatives, split at commas outside
 * brackets. */
struct axis {
    const char *text;
    size_t key; /* length with '='; 0: presets */
    size_t n;
};

static const char *value_end(const char *p)
{
    int depth = 0;
    for (; *p && (*p != ',' || depth > 0); p++)
        depth += (*p == '[') - (*p == ']' && depth > 0);
    return p;
}

static const char *axis_value(const struct axis *a, size_t i, size_t *len)
{
    const char *p = a->text + a->key, *end = value_end(p);
    for (; i > 0; i--) {
        p = end + 1;
        end = value_end(p);
    }
    *len = (size_t)(end - p);
    return p;
}

static int read_axis(struct axis *a, const char *text, int is_preset, struct err *e)
{
    const char *equals = is_preset ? NULL : strchr(text, '=');
    a->text = text;
    a->key = equals ? (size_t)(equals - text) + 1 : 0;
    a->n = 1;
    if (!equals && (!is_preset || fs_exists(text)))
        return 0; /* "~key"; a file with commas in its name */
    for (const char *p = text + a->key; *(p = value_end(p)); p++)
        a->n++;
    for (size_t i = 0; a->n > 1 && i < a->n; i++) {
        size_t len, other;
        const char *value = axis_value(a, i, &len);
        if (len == 0)
            return err_set(e, DS_EUSAGE, "%s: empty value in the list", text);
        for (size_t k = 0; k < i; k++) { /* its runs would be two rows of the table */
            const char *before = axis_value(a, k, &other);
            if (other == len && memcmp(before, value, len) == 0)
                return err_set(e, DS_EUSAGE, "%s: duplicate %.*s", text, (int)len, value);
        }
    }
    return 0;
}

/* Adds the axis value to the row, and to the label what distinguishes it from the other rows. */
static int add_value(struct batch_row *r, const struct axis *a, size_t at, struct str *label,
                     struct err *e)
{
    size_t len = 0;
    const char *value = axis_value(a, at, &len), *name = a->text + strspn(a->text, "+-");
    struct str s = {0};
    if (a->n == 1)
        return (a->key || a->text[0] == '~' || a->text[0] == '+' ? batch_set
                                                                 : batch_preset)(r, a->text, e);
    str_addf(&s, "%.*s%.*s", (int)a->key, a->text, (int)len, value);
    for (const char *p = name; p < a->text + a->key; p++)
        name = *p == '.' ? p + 1 : name;
    str_addf(label, "%s%.*s%.*s", label->len ? "," : "", (int)(a->text + a->key - name), name,
             (int)len, value);
    int rc = s.failed || label->failed ? err_set(e, DS_EMEM, "sweep")
                                       : (a->key ? batch_set : batch_preset)(r, str_text(&s), e);
    str_release(&s);
    return rc;
}

static int add_one(struct batch_plan *p, const struct axis *axes, size_t n, size_t index,
                   struct err *e)
{
    struct str label = {0};
    struct batch_row *r = batch_add(p, "");
    int rc = r ? 0 : err_set(e, DS_EMEM, "sweep");
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = add_value(r, &axes[i], index % axes[i].n, &label, e);
        index /= axes[i].n;
    }
    if (rc == 0)
        str_copy(r->label, sizeof r->label, label.len ? str_text(&label) : p->preset);
    str_release(&label);
    return rc;
}

struct axes {
    struct axis axis[KEYS_MAX];
    size_t n, combinations;
};

static int add_axis(struct axes *x, const char *text, int is_preset, struct err *e)
{
    if (x->n == KEYS_MAX)
        return err_set(e, DS_EUSAGE, "sweep: too many keys and presets, must be at most %d",
                       KEYS_MAX);
    int rc = read_axis(&x->axis[x->n], text, is_preset, e);
    if (rc < 0)
        return rc;
    x->combinations *= x->axis[x->n++].n;
    if (x->combinations > BATCH_RUNS_MAX)
        return err_set(e, DS_ERANGE, "sweep: too many combinations, must be at most %d",
                       BATCH_RUNS_MAX);
    return 0;
}

static int plan_sweep(struct batch_plan *p, const struct cli_args *a, struct err *e)
{
    struct axes x = {.combinations = 1};
    const char *seeds = cli_value(a, "seeds"), **preset = NULL;
    size_t presets = 0;
    int rc = cli_presets(a, &preset, &presets, e);
    if (rc == 0)
        presets_label(p->preset, sizeof p->preset, preset, presets);
    for (size_t i = 0; i < presets && rc == 0; i++)
        rc = add_axis(&x, preset[i], 1, e);
    for (int i = 0; i < a->n_override && rc == 0; i++) {
        const char *values;
        if (!cli_seed_setting(a->override[i], &values))
            rc = add_axis(&x, a->override[i], 0, e);
        else if (seeds)
            rc = err_set(e, DS_EUSAGE, "sweep: duplicate seeds: use either --seeds or seed=");
        else
            seeds = values;
    }
    if (rc == 0)
        rc = cli_seeds(&p->seed, &p->seeds, seeds ? seeds : "1,2,3", e);
    for (size_t i = 0; i < x.combinations && rc == 0; i++)
        rc = add_one(p, x.axis, x.n, i, e);
    mem_free(preset);
    return rc;
}

int sweep_command(int argc, char **argv)
{
    return batch_command("sweep", argc, argv, sweep_options, plan_sweep);
}
