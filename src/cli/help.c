/* depthscope help: made from the tables. */
#include <string.h>

#include "base/fs.h"
#include "cli/use.h"
#include "cli/version.h"
#include "eval/generation.h"
#include "eval/perplexity.h"
#include "eval/speed.h"
#include "models/config.h"
#include "routing/route.h"
#include "training/job.h"
#include "training/options.h"
#include "tui/keymap.h"

static struct cli_option options[] = {{.name = NULL}};

static void list_commands(struct str *out)
{
    str_add(out, "depthscope " DEPTHSCOPE_VERSION ": adaptive-depth transformers at a terminal\n\n"
                 "  depthscope [RUN|TRACE|MODEL|-]\n      the workbench\n");
    for (const struct command *c = commands; c->name; c++)
        str_addf(out, "  depthscope %s %s\n      %s\n", c->name, c->args, c->summary);
    str_add(out, "\nSettings are key=value: depthscope help keys lists all of them, depthscope "
                 "help COMMAND the options of one.\n"
                 "Exit status: 0 done, 1 failed, 2 usage.\n");
}

/* Text in a cell of a Markdown table: '|' would end it. */
static void add_cell(struct str *out, const char *text)
{
    for (; *text; text++)
        str_addf(out, "%s%c", *text == '|' ? "\\" : "", *text);
}

static void list_group(struct str *out, const struct opt_group *g, const char *heading)
{
    str_addf(out, "### %s\n\n| key | default | what |\n|---|---|---|\n", heading);
    for (size_t i = 0; i < g->n; i++) {
        const struct opt *o = &g->opts[i];
        str_addf(out, "| `%s%s` | ", g->prefix, o->key);
        if (o->otherwise && o->otherwise[0])
            str_addf(out, "`%s`", o->otherwise);
        str_add(out, " | ");
        add_cell(out, o->help ? o->help : "");
        if (o->choices) {
            str_add(out, " (`");
            add_cell(out, o->choices);
            str_add(out, "`)");
        }
        if (o->alias)
            str_addf(out, "; also `%s`", o->alias);
        str_add(out, " |\n");
    }
    str_add(out, "\n");
}

static void list_keys(struct str *out)
{
    char prefix[40], heading[160];
    str_add(out, "## Keys\n\n");
    list_group(out, &run_group, "Run");
    list_group(out, &model_group, "Model");
    list_group(out, &train_group, "Training");
    list_group(out, &data_group, "Data");
    for (size_t i = 0; route_all()[i]; i++) {
        const struct route_ops *ops = route_all()[i];
        struct opt_group g = route_group(ops, prefix);
        snprintf(heading, sizeof heading, "`model.method=%s`: %s", ops->name, ops->summary);
        if (g.n > 0)
            list_group(out, &g, heading);
    }
    list_group(out, &ppl_group, "`depthscope eval`, `depthscope calibrate`");
    list_group(out, &gen_group, "`depthscope generate`");
    list_group(out, &trace_group, "`depthscope trace`");
    list_group(out, &speed_group, "`depthscope bench`");
    list_group(out, &convert_group, "`depthscope convert`");
    list_group(out, &get_group, "`depthscope get`");
}

static const struct {
    const char *command;
    const struct opt_group *group;
} keys_of[] = {
    {"eval", &ppl_group},    {"calibrate", &ppl_group}, {"generate", &gen_group},
    {"trace", &trace_group}, {"bench", &speed_group},   {"convert", &convert_group},
    {"get", &get_group},
};

static void list_presets(struct str *out)
{
    char **names = NULL, dir[1024];
    size_t n = 0;
    if (cli_data_dir(dir, sizeof dir, "data", NULL) == 0)
        train_config_preset_dir(dir);
    if (job_presets(&names, &n, NULL) < 0)
        return;
    str_add(out, "presets:");
    for (size_t i = 0; i < n; i++) {
        str_add(out, " ");
        cli_add_safe(out, names[i], strlen(names[i]), -1);
    }
    str_add(out, "\ntheir sizes: depthscope presets; keys: depthscope help keys, depthscope train "
                 "--keys METHOD\n");
    fs_list_free(names, n);
}

/* A command tells its options itself; its keys follow here. */
static int help_of(const struct command *c, struct str *out)
{
    char name[32], flag[] = "--help";
    char *argv[] = {name, flag, NULL};
    str_copy(name, sizeof name, c->name);
    for (size_t i = 0; i < DS_LEN(keys_of); i++)
        if (strcmp(keys_of[i].command, c->name) == 0)
            for (size_t k = 0; k < keys_of[i].group->n; k++) {
                const struct opt *o = &keys_of[i].group->opts[k];
                str_addf(out, "  %s=%-*s %s%s%s%s\n", o->key,
                         strlen(o->key) < 18 ? 18 - (int)strlen(o->key) : 1, o->otherwise, o->help,
                         o->choices ? " (" : "", o->choices ? o->choices : "",
                         o->choices ? ")" : "");
            }
    if (strcmp(c->name, "train") == 0 || strcmp(c->name, "sweep") == 0 ||
        strcmp(c->name, "ablate") == 0 || strcmp(c->name, "isoflop") == 0)
        list_presets(out);
    cli_help_after(str_text(out));
    return c->run(2, argv);
}

int help_command(int argc, char **argv)
{
    struct err e = {0};
    struct str out = {0};
    struct cli_args a;
    const char *names[64];
    size_t n = 0;
    if (argc < 2 || strcmp(argv[0], "help") != 0) {
        list_commands(&out);
        return cli_print(&out);
    }
    int rc = cli_parse(&a, options, argc, argv, &e);
    if (rc < 0)
        return command_fail(&e);
    const char *what = a.n_rest ? a.rest[0] : "";
    cli_release(&a);
    if (strcmp(what, "keys") == 0) {
        list_keys(&out);
        return cli_print(&out);
    }
    if (strcmp(what, "views") == 0) {
        keys_markdown(&out);
        return cli_print(&out);
    }
    for (const struct command *c = commands; c->name && n < DS_LEN(names) - 1; c++) {
        if (strcmp(c->name, what) == 0 && strcmp(what, "help") != 0)
            return help_of(c, &out);
        names[n++] = c->name;
    }
    if (!what[0] || strcmp(what, "help") == 0) {
        list_commands(&out);
        return cli_print(&out);
    }
    names[n++] = "keys";
    err_set(&e, DS_EUSAGE, "help: no command %s, did you mean %s?", what,
            cli_nearest(what, names, n));
    return command_fail(&e);
}
