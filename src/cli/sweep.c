/* depthscope sweep [PRESET] key=a,b,c ...: every combination, with every seed. */
#include <string.h>

#include "base/mem.h"
#include "cli/batch.h"

static struct cli_option options[] = {
    {.name = "seeds", .has_value = 1, .help = "1,2,3  of every combination (or seed=1,2,3)"},
    {.name = "out", .has_value = 1, .help = "FILE  of the JSON summary (runs/sweep.json)"},
    {.name = "json", .help = "print the summary as JSON instead of the table"},
    {.name = "quiet", .help = "no progress"},
    {.name = "dry-run", .help = "name the runs and their state, start nothing"},
    {.name = NULL},
};
enum { KEYS_MAX = 32 };

/* One key and its values, cut at commas outside brackets. */
struct axis {
    const char *text;
    size_t key;
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
    const char *p = a->text + a->key + 1, *end = value_end(p);
    for (; i > 0; i--) {
        p = end + 1;
        end = value_end(p);
    }
    *len = (size_t)(end - p);
    return p;
}

static int read_axis(struct axis *a, const char *text, struct err *e)
{
    const char *equals = strchr(text, '=');
    a->text = text;
    a->key = equals ? (size_t)(equals - text) : strlen(text);
    a->n = 1;
    if (!equals)
        return 0;
    const char *p = equals + 1;
    for (; *(p = value_end(p)); p++)
        a->n++;
    for (size_t i = 0; a->n > 1 && i < a->n; i++) {
        size_t len;
        axis_value(a, i, &len);
        if (len == 0)
            return err_set(e, DS_EUSAGE, "%s: one of its values is empty", text);
    }
    return 0;
}

static int add_one(struct batch_plan *p, const struct axis *axes, size_t n, size_t index,
                   struct err *e)
{
    struct str label = {0}, setting = {0};
    struct batch_row *r = batch_add(p, "");
    int rc = r ? 0 : err_set(e, DS_EMEM, "sweep");
    for (size_t i = 0; i < n && rc == 0; i++) {
        size_t at = index % axes[i].n, len = 0;
        const char *key = axes[i].text, *dot = key;
        index /= axes[i].n;
        str_reset(&setting);
        if (axes[i].n == 1) {
            rc = batch_set(r, axes[i].text, e);
            continue;
        }
        const char *value = axis_value(&axes[i], at, &len);
        for (const char *s = key; s < key + axes[i].key; s++)
            dot = *s == '.' ? s + 1 : dot;
        str_addf(&setting, "%.*s=%.*s", (int)axes[i].key, key, (int)len, value);
        str_addf(&label, "%s%.*s=%.*s", label.len ? "," : "", (int)(key + axes[i].key - dot), dot,
                 (int)len, value);
        rc = setting.failed || label.failed ? err_set(e, DS_EMEM, "sweep")
                                            : batch_set(r, str_text(&setting), e);
    }
    if (rc == 0)
        str_copy(r->label, sizeof r->label,
                 label.len   ? str_text(&label)
                 : p->preset ? p->preset
                             : "quick");
    str_release(&label);
    str_release(&setting);
    return rc;
}

static int plan_sweep(struct batch_plan *p, const struct cli_args *a, struct err *e)
{
    struct axis axes[KEYS_MAX];
    size_t n = 0, all = 1;
    const char *seeds = cli_value(a, "seeds");
    if (a->n_rest > 1)
        return err_set(e, DS_EUSAGE, "sweep: one preset, not also %s", a->rest[1]);
    if (a->n_override > KEYS_MAX)
        return err_set(e, DS_EUSAGE, "sweep: at most %d keys", KEYS_MAX);
    p->preset = a->n_rest ? a->rest[0] : NULL;
    for (int i = 0; i < a->n_override; i++) {
        if (strncmp(a->override[i], "seed=", 5) == 0) {
            if (seeds)
                return err_set(e, DS_EUSAGE, "sweep: seeds are given twice");
            seeds = a->override[i] + 5;
            continue;
        }
        int rc = read_axis(&axes[n], a->override[i], e);
        if (rc < 0)
            return rc;
        all *= axes[n++].n;
        if (all > BATCH_RUNS_MAX)
            return err_set(e, DS_ERANGE, "sweep: more than %d combinations", BATCH_RUNS_MAX);
    }
    int rc = cli_seeds(&p->seed, &p->seeds, seeds ? seeds : "1,2,3", e);
    for (size_t i = 0; i < all && rc == 0; i++)
        rc = add_one(p, axes, n, i, e);
    return rc;
}

int sweep_command(int argc, char **argv)
{
    return batch_command("sweep", argc, argv, options, plan_sweep);
}
