/* depthscope complete WORD...: candidates for the last word, for completion scripts (depthscope
 * help bash). */
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "cli/keys.h"
#include "cli/cli.h"
#include "figures/figure.h"
#include "io/routing_trace.h"
#include "io/runindex.h"
#include "io/runquery.h"
#include "routing/route.h"
#include "training/job.h"
#include "training/options.h"
#include "tui/app.h"

struct cli_option complete_options[] = {{.name = NULL}};

struct candidates {
    struct str *out;
    const char *begin; /* of the word that is completed */
};

/* One line: the whole word, and after a tab what it is. */
static void offer(struct candidates *c, const char *word, const char *about)
{
    if (strncmp(word, c->begin, strlen(c->begin)) != 0)
        return;
    cli_add_safe(c->out, word, strlen(word), -1);
    if (about && about[0])
        str_addf(c->out, "\t%s", about);
    str_add_char(c->out, '\n');
}

static void offer_runs(struct candidates *c)
{
    struct runindex x = {0};
    if (runindex_refresh(&x, job_root(), NULL) < 0)
        return;
    for (size_t i = 0; i < x.n; i++)
        offer(c, x.row[i]->name, x.row[i]->is_live ? "live run" : "run");
    runindex_release(&x);
}

static void offer_trash(struct candidates *c)
{
    struct run_trashed *t = NULL;
    size_t n = 0;
    if (run_trash_list(job_root(), &t, &n, NULL) < 0)
        return;
    for (size_t i = 0; i < n; i++)
        offer(c, t[i].name, "run in the trash");
    mem_free(t);
}

/* --sort and --group take columns, --filter terms of columns and the values that runs have. */
static void offer_query(struct candidates *c, const char *option)
{
    struct runindex x = {0};
    char **word = NULL, text[300];
    size_t n = 0, from = 0;
    int is_sort = strcmp(option, "sort") == 0;
    if (strcmp(option, "filter") != 0) {
        for (const struct run_column *k = run_columns; k->key; k++) {
            snprintf(text, sizeof text, "%s%s", is_sort && c->begin[0] == '-' ? "-" : "", k->key);
            offer(c, text, k->help);
        }
        return;
    }
    if (runindex_refresh(&x, job_root(), NULL) == 0 &&
        runquery_complete(&word, &n, &from, c->begin, &x, clock_wall(), NULL) == 0)
        for (size_t i = 0; i < n; i++) {
            snprintf(text, sizeof text, "%.*s%s", (int)from, c->begin, word[i]);
            offer(c, text, NULL);
        }
    fs_list_free(word, n);
    runindex_release(&x);
}

static void offer_presets(struct candidates *c)
{
    char **names = NULL, dir[1024];
    size_t n = 0;
    if (cli_data_dir(dir, sizeof dir, "data", NULL) == 0)
        train_config_preset_dir(dir);
    if (job_presets(&names, &n, NULL) < 0)
        return;
    for (size_t i = 0; i < n; i++)
        offer(c, names[i], "preset");
    fs_list_free(names, n);
}

static void offer_methods(struct candidates *c, const char *lead)
{
    char word[200];
    for (const struct route_ops *const *m = route_all(); *m; m++) {
        snprintf(word, sizeof word, "%s%s", lead, (*m)->name);
        offer(c, word, (*m)->summary);
    }
}

static void offer_figures(struct candidates *c)
{
    offer(c, "all", "every figure that the runs have data for");
    offer(c, "list", "the figures there are");
    for (int i = 0; figure_name(i); i++)
        offer(c, figure_name(i), figure_title(i));
}

static void offer_commands(struct candidates *c)
{
    for (const struct command *k = commands; k->name; k++)
        offer(c, k->name, k->summary);
}

static void offer_views(struct candidates *c)
{
    struct str list = {0};
    char word[32];
    tui_list_views(&list);
    for (const char *p = str_text(&list); *p; p += strspn(p, ", ")) {
        size_t n = strcspn(p, ",");
        snprintf(word, sizeof word, "%.*s", (int)n, p);
        offer(c, word, "view");
        p += n;
    }
    c->out->failed |= list.failed;
    str_release(&list);
}

static void offer_words(struct candidates *c, enum command_word kind)
{
    static const char *const topics[] = {"workbench", "keys", "views", "metrics", "formats",
                                         "man",       "bash", "zsh",   "fish"};
    switch (kind) {
    case WORD_NONE: break;
    case WORD_RUN:
    case WORD_MODEL: offer_runs(c); break;
    case WORD_PRESET: offer_presets(c); break;
    case WORD_FIGURE: offer_figures(c); break;
    case WORD_VIEW: offer_views(c); break;
    case WORD_COMMAND:
        offer_commands(c);
        for (size_t i = 0; i < DS_LEN(topics); i++)
            offer(c, topics[i], "topic");
        break;
    case WORD_RUNS:
        for (int i = 0; runs_verb(i); i++)
            offer(c, runs_verb(i), "of a run");
        break;
    }
}

static void offer_choices(struct candidates *c, const char *lead, const char *choices)
{
    char word[200];
    for (const char *p = choices; *p; p += *p == '|') {
        size_t n = strcspn(p, "|");
        snprintf(word, sizeof word, "%s%.*s", lead, (int)n, p);
        offer(c, word, NULL);
        p += n;
    }
}

/* "train.lr=": the values of a key whose row names them. */
static void offer_values(struct candidates *c, const struct opt_group *groups)
{
    char key[120], lead[124];
    snprintf(key, sizeof key, "%.*s", (int)strcspn(c->begin, "="), c->begin);
    snprintf(lead, sizeof lead, "%s=", key);
    if (strcmp(key, "model.method") == 0)
        offer_methods(c, lead);
    for (const struct opt_group *g = groups; g->title; g++) {
        const struct opt *o = opt_find(g, key);
        if (!o)
            continue;
        if (o->choices)
            offer_choices(c, lead, o->choices);
        else if (o->type == OPT_BOOL)
            offer_choices(c, lead, "true|false");
        return;
    }
}

static void offer_keys(struct candidates *c, const struct opt_group *groups)
{
    for (const struct opt_group *g = groups; g->title; g++)
        for (size_t i = 0; i < g->n; i++) {
            char word[164], about[400];
            const struct opt *o = &g->opts[i];
            snprintf(word, sizeof word, "%s%s=", g->prefix, o->key);
            snprintf(about, sizeof about, "%s%s", o->help ? o->help : "", keys_live_note(o));
            offer(c, word, about);
        }
}

static void offer_options(struct candidates *c, const struct cli_option *options)
{
    for (const struct cli_option *o = options; o && o->name; o++) {
        char word[64];
        snprintf(word, sizeof word, "%s%s", strlen(o->name) > 1 ? "--" : "-", o->name);
        offer(c, word, o->help);
    }
    offer(c, "--help", "the command's help");
}

/* Does the word before take its value from this one? */
static const struct cli_option *open_option(const struct cli_option *options, const char *before)
{
    const char *name = before + strspn(before, "-");
    for (const struct cli_option *o = options; o && o->name && before[0] == '-'; o++)
        if (o->has_value && strcmp(o->name, name) == 0)
            return o;
    return NULL;
}

/* What the word names: a figure or a view comes first, the runs that it is about follow. */
static enum command_word kind_of_word(const struct command *k, int n, char **word)
{
    int before = 0;
    for (int i = 1; i < n - 1; i++)
        before += word[i][0] != '-' && !(i > 1 && open_option(k->options, word[i - 1]));
    return before > 0 && (k->word == WORD_FIGURE || k->word == WORD_VIEW) ? WORD_RUN : k->word;
}

/* Values of options that name something of ours; files are the shell's. */
static void offer_option_values(struct candidates *c, const char *command,
                                const struct cli_option *o)
{
    static const struct {
        const char *name, *choices;
    } fixed[] = {{"mode", "quick|scratch|transfer"},
                 {"theme", "dark|light|high-contrast|colour-blind|16-colour"},
                 {"color", "auto|never|16|256|truecolor"},
                 {"glyphs", "auto|braille|shades|ascii"},
                 {"from", "best"}};
    const char *name, *title;
    if (strcmp(o->name, "run") == 0 || strcmp(o->name, "resume") == 0)
        offer_runs(c);
    else if ((strcmp(o->name, "keys") == 0 && strcmp(command, "train") == 0) ||
             strcmp(o->name, "methods") == 0)
        offer_methods(c, "");
    else if (strcmp(command, "runs") == 0)
        offer_query(c, o->name);
    else if (strcmp(o->name, "format") == 0 && strcmp(command, "import") == 0)
        for (int i = 0; (name = routing_trace_format(i, &title)); i++)
            offer(c, name, title);
    for (size_t i = 0; i < DS_LEN(fixed); i++)
        if (strcmp(o->name, fixed[i].name) == 0)
            offer_choices(c, "", fixed[i].choices);
}

static int is_runs_verb(const char *word)
{
    for (int i = 0; runs_verb(i); i++)
        if (strcmp(runs_verb(i), word) == 0)
            return 1;
    return 0;
}

static void complete(struct candidates *c, int n, char **word)
{
    const struct command *k = commands;
    while (k->name && (n < 2 || strcmp(k->name, word[0]) != 0))
        k++;
    if (n == 1 && word[0][0] != '-') {
        offer_commands(c);
        offer_runs(c);
        return;
    }
    const struct cli_option *options = k->name ? k->options : workbench_options(),
                            *open = n > 1 ? open_option(options, word[n - 2]) : NULL;
    const struct opt_group *groups = keys_groups(k->name ? k->name : "");
    if (k->word == WORD_RUNS && n > 2 && is_runs_verb(word[1]))
        strcmp(word[1], "restore") == 0 ? offer_trash(c) : offer_runs(c);
    else if (open)
        offer_option_values(c, k->name ? k->name : "", open);
    else if (c->begin[0] == '-')
        offer_options(c, options);
    else if (strchr(c->begin, '='))
        offer_values(c, groups);
    else {
        offer_words(c, k->name ? kind_of_word(k, n, word) : WORD_RUN);
        offer_keys(c, groups);
    }
}

/* The words are a command line that is not finished: none of them is an option of ours. */
int complete_command(int argc, char **argv)
{
    struct str out = {0};
    struct candidates c = {&out, argc > 1 ? argv[argc - 1] : ""};
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        cli_usage("complete", complete_options);
        return 0;
    }
    static char nothing[] = "", *none[] = {nothing};
    complete(&c, argc > 1 ? argc - 1 : 1, argc > 1 ? argv + 1 : none);
    return cli_print(&out);
}
