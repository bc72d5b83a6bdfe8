/* depthscope help: prints help generated from the command and option tables. */
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/nearest.h"
#include "cli/keys.h"
#include "cli/manual.h"
#include "cli/cli.h"
#include "cli/version.h"
#include "eval/generation.h"
#include "eval/perplexity.h"
#include "eval/speed.h"
#include "io/foreign.h"
#include "io/metric.h"
#include "models/config.h"
#include "routing/route.h"
#include "training/job.h"
#include "training/options.h"
#include "tui/keymap.h"

struct cli_option help_options[] = {
    {.name = "markdown",
     .help = "for keys, views, metrics and formats: Markdown even on a terminal"},
    {.name = NULL},
};

static void list_workbench(struct str *out)
{
    size_t width = strlen("  depthscope [RUN|TRACE|MODEL|- ...]");
    size_t most = (size_t)cli_columns(80);
    str_add(out, "  depthscope [RUN|TRACE|MODEL|- ...]");
    for (const struct cli_option *o = workbench_options(); o->name; o++) {
        char word[64];
        int n = snprintf(word, sizeof word, " [--%s%s%.*s]", o->name, o->has_value ? " " : "",
                         o->has_value ? (int)strcspn(o->help, " ") : 0, o->help);
        if (width + (size_t)n >= most) {
            str_add(out, "\n     ");
            width = 5;
        }
        str_add(out, word);
        width += (size_t)n;
    }
    str_add(out, "\n      the workbench (depthscope help workbench)\n"
                 "  depthscope --version [--json]\n"
                 "      the version; --json adds commit, build, kernels and GPUs\n");
}

static void list_commands(struct str *out)
{
    str_add(out,
            "depthscope " DEPTHSCOPE_VERSION ": adaptive-depth transformers at a terminal\n\n");
    list_workbench(out);
    int width = cli_columns(0);
    for (const struct command *c = commands; c->name; c++) {
        str_addf(out, "  depthscope %s", c->name);
        cli_add_wrapped(out, c->args, 13 + (int)strlen(c->name), 8, width);
        str_add(out, "\n      ");
        cli_add_wrapped(out, c->summary, 6, 6, width);
        str_add_char(out, '\n');
    }
    str_add_char(out, '\n');
    cli_add_wrapped(out,
                    "Settings are key=value or --key value: depthscope help keys lists all of "
                    "them, depthscope help COMMAND the options of a command.",
                    0, 0, cli_columns(80));
    str_add(out, "\nExit status: 0 done, 1 failed, 2 usage.\n");
}

/* Text of a Markdown table cell, with '|' escaped. */
static void add_cell(struct str *out, const char *text)
{
    for (; *text; text++)
        str_addf(out, "%s%c", *text == '|' ? "\\" : "", *text);
}

/* For a terminal: descriptions wrapped next to their keys. */
static void plain_group(struct str *out, const struct opt_group *g, const char *heading)
{
    struct str plain = {0};
    for (const char *p = heading; *p; p++)
        if (*p != '`')
            str_add_char(&plain, *p);
    cli_add_lines(out, str_text(&plain), cli_columns(80));
    str_release(&plain);
    str_add(out, "\n");
    keys_lines(out, g, cli_columns(80));
    str_add(out, "\n");
}

static void markdown_group(struct str *out, const struct opt_group *g, const char *heading)
{
    str_addf(out, "### %s\n\n| key | default | description |\n|---|---|---|\n", heading);
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
        str_add(out, keys_live_note(o));
        str_add(out, " |\n");
    }
    str_add(out, "\n");
}

typedef void list_fn(struct str *out, const struct opt_group *g, const char *heading);

static void list_keys(struct str *out, list_fn *list)
{
    static const struct {
        const struct opt_group *group;
        const char *heading;
    } run[] = {{&run_group, "Run"},
               {&model_group, "Model"},
               {&train_group, "Training"},
               {&data_group, "Data"},
               {&hops_group, "`data.path=hops`"},
               {&alert_group, "Alerts, of a run and in the user's settings"}},
      other[] = {{&ppl_group, "`depthscope eval`, `depthscope calibrate`"},
                 {&gen_group, "`depthscope generate`"},
                 {&trace_group, "`depthscope trace`"},
                 {&speed_group, "`depthscope bench`"},
                 {&convert_group, "`depthscope convert`"},
                 {&get_group, "`depthscope get`"},
                 {&notify_group, "Notifications of the workbench, in the user's settings"}};
    char prefix[40], heading[160];
    for (size_t i = 0; i < DS_LEN(run); i++)
        list(out, run[i].group, run[i].heading);
    for (size_t i = 0; route_all()[i]; i++) {
        const struct route_ops *ops = route_all()[i];
        struct opt_group g = route_group(ops, prefix);
        snprintf(heading, sizeof heading, "`model.method=%s`: %s", ops->name, ops->summary);
        if (g.n > 0)
            list(out, &g, heading);
    }
    for (size_t i = 0; i < DS_LEN(other); i++)
        list(out, other[i].group, other[i].heading);
}

static void metric_line(struct str *out, int is_markdown, const char *name, const char *scope,
                        const char *unit, const char *help)
{
    char left[120];
    if (is_markdown) {
        str_addf(out, "| `%s` | %s | %s | ", name, scope, unit);
        add_cell(out, help);
        str_add(out, " |\n");
    } else {
        snprintf(left, sizeof left, "%-20s %-6s %-11s ", name, scope, unit);
        cli_add_entry(out, left, help, 40, cli_columns(0));
    }
}

static void metric_heading(struct str *out, int is_markdown, const char *heading)
{
    str_addf(out,
             is_markdown ? "### %s\n\n| name | per | unit | meaning |\n|---|---|---|---|\n"
                         : "%s\n\n",
             heading);
}

/* Every metric that a run records: those of each run, then those of each method. */
static void list_metrics(struct str *out, int is_markdown)
{
    metric_heading(out, is_markdown, "Every run");
    for (const struct run_metric *m = run_metrics; m->name; m++)
        metric_line(out, is_markdown, m->name, run_metric_scope(m), m->unit, m->help);
    for (size_t i = 0; route_all()[i]; i++) {
        const struct route_ops *ops = route_all()[i];
        char heading[80];
        snprintf(heading, sizeof heading, is_markdown ? "`model.method=%s`" : "model.method=%s",
                 ops->name);
        if (ops->n_metrics > 0) {
            str_add_char(out, '\n');
            metric_heading(out, is_markdown, heading);
        }
        for (size_t k = 0; k < ops->n_metrics; k++)
            metric_line(out, is_markdown, ops->metrics[k].name,
                        metric_scope_name[ops->metrics[k].scope], ops->metrics[k].unit,
                        ops->metrics[k].help);
    }
}

/* Logs of other programs that open like runs. */
static void list_formats(struct str *out, int is_markdown)
{
    if (is_markdown)
        str_add(out, "| format | what is read |\n|---|---|\n");
    for (const struct foreign_format *const *f = foreign_formats; *f; f++) {
        if (!is_markdown) {
            cli_add_entry(out, (*f)->title, (*f)->help, 27, cli_columns(0));
            continue;
        }
        str_addf(out, "| %s | ", (*f)->title);
        add_cell(out, (*f)->help);
        str_add(out, " |\n");
    }
}

static void list_presets(struct str *out)
{
    char **names = NULL, dir[1024];
    size_t n = 0;
    if (cli_data_dir(dir, sizeof dir, "data", NULL) == 0)
        train_config_preset_dir(dir);
    if (job_presets(&names, &n, NULL) < 0)
        return;
    struct str list = {0};
    for (size_t i = 0; i < n; i++) {
        str_add(&list, i ? " " : "");
        cli_add_safe(&list, names[i], strlen(names[i]), -1);
    }
    cli_add_entry(out, "presets:", str_text(&list), 9, cli_columns(0));
    str_release(&list);
    cli_add_wrapped(out,
                    "sizes: depthscope presets; keys: depthscope help keys, depthscope train "
                    "--keys METHOD",
                    0, 0, cli_columns(0));
    str_add_char(out, '\n');
    fs_list_free(names, n);
}

/* The keys of a command with a single option group; training keys have their own list. */
static void list_settings(struct str *out, const char *command)
{
    const struct opt_group *g = keys_groups(command);
    for (size_t k = 0; g->title && g->prefix[0] == '\0' && g->title != run_group.title && k < g->n;
         k++) {
        const struct opt *o = &g->opts[k];
        char left[200];
        struct str text = {0};
        snprintf(left, sizeof left, "  %s=%s", o->key, o->otherwise);
        str_addf(&text, "%s%s%s%s", o->help, o->choices ? " (" : "", o->choices ? o->choices : "",
                 o->choices ? ")" : "");
        cli_add_entry(out, left, str_text(&text), 22, cli_columns(0));
        str_release(&text);
    }
}

/* The command prints its own options; its keys and presets follow. */
static int help_of(const char *command, command_fn *run, struct str *out)
{
    static const char *const with_presets[] = {"train", "sweep", "ablate", "isoflop", "pipeline"};
    char name[32], flag[] = "--help";
    char *argv[] = {name, flag, NULL};
    str_copy(name, sizeof name, command);
    list_settings(out, command);
    for (size_t i = 0; i < DS_LEN(with_presets); i++)
        if (strcmp(command, with_presets[i]) == 0)
            list_presets(out);
    cli_help_after(str_text(out));
    return run(2, argv);
}

static int help_on(const char *what, int is_markdown, struct err *e)
{
    struct str out = {0};
    char hint[NEAREST_MAX + 32];
    struct nearest best = nearest_to(what);
    if (strcmp(what, "keys") == 0) {
        str_add(&out, is_markdown ? "## Keys\n\n" : "");
        list_keys(&out, is_markdown ? markdown_group : plain_group);
        return cli_print(&out);
    }
    if (strcmp(what, "views") == 0) {
        struct str text = {0};
        (is_markdown ? keys_markdown : keys_text)(&text);
        cli_add_lines(&out, str_text(&text), is_markdown ? 0 : cli_columns(0));
        out.failed |= text.failed;
        str_release(&text);
        return cli_print(&out);
    }
    if (strcmp(what, "metrics") == 0) {
        list_metrics(&out, is_markdown);
        return cli_print(&out);
    }
    if (strcmp(what, "formats") == 0) {
        list_formats(&out, is_markdown);
        return cli_print(&out);
    }
    if (strcmp(what, "man") == 0) {
        manual_page(&out);
        return cli_print(&out);
    }
    if (manual_script(what)) {
        str_add(&out, manual_script(what));
        return cli_print(&out);
    }
    if (strcmp(what, "workbench") == 0) /* argv[0] is the program name here */
        return help_of("depthscope", workbench_command, &out);
    if (!what[0]) {
        list_commands(&out);
        return cli_print(&out);
    }
    if (strcmp(what, "help") == 0) {
        cli_usage("help", help_options);
        return 0;
    }
    for (const struct command *c = commands; c->name; c++) {
        if (strcmp(c->name, what) == 0)
            return help_of(c->name, c->run, &out);
        nearest_try(&best, c->name);
    }
    nearest_try(&best, "keys");
    nearest_try(&best, "views");
    nearest_try(&best, "metrics");
    nearest_try(&best, "formats");
    nearest_try(&best, "workbench");
    err_set(e, DS_EUSAGE, "help: unknown command %s%s (depthscope help lists them)", what,
            nearest_hint(&best, hint, sizeof hint));
    return command_fail(e);
}

int help_command(int argc, char **argv)
{
    static char name[] = "help";
    struct err e = {0};
    struct cli_args a;
    if (argc > 0)
        argv[0] = name; /* may be --help */
    if (cli_parse(&a, help_options, argc, argv, &e) < 0)
        return command_fail(&e);
    int is_markdown = cli_flag(&a, "markdown") || !isatty(STDOUT_FILENO);
    int status =
        a.n_rest > 1 || a.n_override > 0
            ? command_fail((err_set(&e, DS_EUSAGE, "help: expected one topic, found also %s",
                                    a.n_rest > 1 ? a.rest[1] : a.override[0]),
                            &e))
            : help_on(a.n_rest ? a.rest[0] : "", is_markdown, &e);
    cli_release(&a);
    return status;
}
