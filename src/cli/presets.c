/* depthscope presets: lists the presets in data/ with their parameters, FLOPs and memory. */
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "training/cost.h"
#include "training/options.h"

struct cli_option presets_options[] = {
    {.name = "json", .help = "one JSON document"},
    {.name = "markdown", .help = "print the list as a Markdown table"},
    {.name = NULL},
};

/* Facts about one preset. */
struct facts {
    char name[80], base[80];
    struct train_config config;
    struct train_size size;
};

static int facts_read(struct facts *f, const char *const *preset, size_t n, struct err *e)
{
    memset(f, 0, sizeof *f);
    int rc = train_config_preview(&f->config, preset, n, e);
    if (rc < 0)
        return rc;
    char *base = n == 1 ? preset_base(preset[0]) : NULL;
    str_copy(f->base, sizeof f->base, base ? base : "");
    mem_free(base);
    str_copy(f->name, sizeof f->name, f->config.preset);
    train_config_size(&f->size, &f->config);
    return 0;
}

static void add_json(struct str *out, const struct facts *f)
{
    json_add_str(out, "preset", f->name);
    json_add_str(out, "extends", f->base);
    json_add_str(out, "method", f->config.model.method);
    json_add_int(out, "params", f->size.params);
    json_add_int(out, "params_non_embedding", f->size.non_embedding);
    json_add_int(out, "params_layer", f->size.layer);
    json_add_int(out, "params_method", f->config.method_params);
    json_add_int(out, "layers", f->config.model.layers);
    json_add_int(out, "context", f->config.model.max_seq);
    json_add_num(out, "flops_token", f->size.flops);
    json_add_num(out, "train_bytes", f->size.bytes);
}

/* 494032768 -> "494,032,768". */
static const char *grouped(int64_t v, char out[32])
{
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%lld", (long long)v), k = 0;
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            out[k++] = ',';
        out[k++] = digits[i];
    }
    out[k] = '\0';
    return out;
}

static const char *const titles[] = {
    "preset",    "extends",           "method",  "parameters",      "non-embedding",
    "per layer", "router parameters", "context", "FLOPs per token", "bytes to train"};
enum { COLUMNS = DS_LEN(titles) };

static void cells(const struct facts *f, char cell[COLUMNS][80])
{
    char a[32];
    str_copy(cell[0], 80, f->name);
    str_copy(cell[1], 80, f->base);
    str_copy(cell[2], 80, f->config.model.method);
    str_copy(cell[3], 80, grouped(f->size.params, a));
    str_copy(cell[4], 80, grouped(f->size.non_embedding, a));
    str_copy(cell[5], 80, grouped(f->size.layer, a));
    str_copy(cell[6], 80, grouped(f->config.method_params, a));
    str_copy(cell[7], 80, grouped(f->config.model.max_seq, a));
    str_copy(cell[8], 80, str_si(a, f->size.flops));
    str_copy(cell[9], 80, str_si(a, f->size.bytes));
}

/* Calls back for every preset; unreadable ones are reported on stderr and skipped. */
static int each_preset(void (*each)(void *ctx, const struct facts *f), void *ctx, struct err *e)
{
    char **names = NULL, dir[1024];
    size_t n = 0;
    if (cli_data_dir(dir, sizeof dir, "data", NULL) == 0)
        train_config_preset_dir(dir);
    int rc = preset_names(&names, &n, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n; i++) {
        struct facts f;
        struct err why = {0};
        const char *name = names[i];
        int failed = facts_read(&f, &name, 1, &why);
        if (failed == DS_EMEM) {
            rc = err_set(e, failed, "preset %s: %s", name, why.text);
            break;
        }
        if (failed < 0) {
            fprintf(stderr, "depthscope: preset %s: %s\n", name, why.text);
            continue;
        }
        each(ctx, &f);
        train_config_release(&f.config);
    }
    fs_list_free(names, n);
    return rc;
}

static void to_table(void *ctx, const struct facts *f)
{
    char cell[COLUMNS][80];
    cells(f, cell);
    for (size_t i = 0; i < COLUMNS; i++)
        table_add(ctx, cell[i]);
}

static void to_json(void *ctx, const struct facts *f)
{
    json_key(ctx, NULL);
    str_add(ctx, "{");
    add_json(ctx, f);
    str_add(ctx, "}");
}

static void to_markdown(void *ctx, const struct facts *f)
{
    char cell[COLUMNS][80];
    cells(f, cell);
    str_addf(ctx, "| `%s` |", cell[0]);
    for (size_t i = 1; i < COLUMNS; i++)
        str_addf(ctx, " %s |", cell[i]);
    str_add(ctx, "\n");
}

static int list_markdown(struct str *out, struct err *e)
{
    for (size_t i = 0; i < COLUMNS; i++)
        str_addf(out, "| %s ", titles[i]);
    str_add(out, "|\n|---|---|---|--:|--:|--:|--:|--:|--:|--:|\n");
    return each_preset(to_markdown, out, e);
}

static int list_all(struct str *out, int json, struct err *e)
{
    struct table t;
    int rc;
    if (json) {
        str_add(out, "[");
        rc = each_preset(to_json, out, e);
        str_add(out, "]\n");
        return rc;
    }
    table_init(&t, COLUMNS);
    for (size_t i = 0; i < COLUMNS; i++)
        table_add(&t, titles[i]);
    rc = each_preset(to_table, &t, e);
    table_wrap(&t, out, cli_columns(0));
    table_release(&t);
    cli_add_lines(out,
                  "Presets combine, later ones override: depthscope train SIZE METHOD MODE.  "
                  "Parameters and FLOPs exclude adapters.\n"
                  "FLOPs: forward, mean over the context.  Bytes: weights, gradients and both "
                  "moments in fp32, with adapters; of a frozen base, weights only.\n",
                  cli_columns(0));
    return rc;
}

static void key_to_json(void *ctx, const char *key, const char *value)
{
    json_add_str(ctx, key, value);
}

static int show(struct str *out, const char *const *preset, size_t n, int json, struct err *e)
{
    struct facts f;
    char cell[COLUMNS][80];
    int rc = facts_read(&f, preset, n, e);
    if (rc < 0)
        return rc;
    if (json) {
        str_add(out, "{");
        add_json(out, &f);
        json_key(out, "keys");
        str_add(out, "{");
        train_config_for_each(&f.config, key_to_json, out);
        str_add(out, "}}\n");
    } else {
        cells(&f, cell);
        for (size_t i = 0; i < COLUMNS; i++)
            if (cell[i][0])
                str_addf(out, "# %s: %s\n", titles[i], cell[i]);
        train_config_print(out, &f.config);
    }
    train_config_release(&f.config);
    return 0;
}

static int make(const struct cli_args *a, struct str *out, struct err *e)
{
    char dir[1024];
    int json = cli_flag(a, "json");
    if (a->n_override > 0)
        return err_set(e, DS_EUSAGE, "presets: expected preset names, found setting %s",
                       a->override[0]);
    if (cli_flag(a, "markdown") && (json || a->n_rest > 0))
        return err_set(e, DS_EUSAGE, "presets: --markdown: unexpected %s with it",
                       json ? "--json" : a->rest[0]);
    if (cli_data_dir(dir, sizeof dir, "data", NULL) == 0)
        train_config_preset_dir(dir);
    if (cli_flag(a, "markdown"))
        return list_markdown(out, e);
    return a->n_rest > 0 ? show(out, a->rest, (size_t)a->n_rest, json, e) : list_all(out, json, e);
}

int presets_command(int argc, char **argv)
{
    return cli_report(argc, argv, presets_options, make);
}
