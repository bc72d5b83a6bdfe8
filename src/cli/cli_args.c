/* Parses command lines into options, overrides and positional arguments. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/keys.h"
#include "cli/cli.h"
#include "cli/version.h"

static struct cli_option *find_option(struct cli_option *o, const char *name, size_t len)
{
    for (; o->name; o++)
        if (strlen(o->name) == len && strncmp(o->name, name, len) == 0)
            return o;
    return NULL;
}

const char *cli_nearest(const char *word, const char *const *names, size_t n)
{
    struct nearest best = nearest_to(word);
    for (size_t i = 0; i < n; i++)
        nearest_try(&best, names[i]);
    for (size_t i = 0; i < n; i++)
        if (strcmp(best.name, names[i]) == 0)
            return names[i];
    return NULL;
}

/* Options before a command belong to the program itself. */
static int is_program(const char *command)
{
    return strcmp(command, "depthscope") == 0;
}

static const char *lead(const char *command, char text[48])
{
    snprintf(text, 48, "%.40s%s", is_program(command) ? "" : command,
             is_program(command) ? "" : ": ");
    return text;
}

/* A key of the command, or NULL. */
static const struct opt *find_key(const char *command, const char *name)
{
    const struct opt *o = NULL;
    for (const struct opt_group *g = keys_groups(command); g->title && !o; g++)
        o = opt_find(g, name);
    return o;
}

static int unknown_option(const struct cli_option *options, const char *command, const char *name,
                          const char *dashes, struct err *e)
{
    char text[48], hint[NEAREST_MAX + 40] = "";
    struct nearest option = nearest_to(name), key = nearest_to(name);
    for (const struct cli_option *o = options; o->name; o++)
        nearest_try(&option, o->name);
    nearest_try(&option, "help");
    nearest_try(&option, "version");
    for (const struct opt_group *g = keys_groups(command); g->title; g++)
        config_nearest_key(&key, g);
    if (nearest_is_close(&key) && key.distance < option.distance)
        snprintf(hint, sizeof hint, ", did you mean %s=...?", key.name);
    else /* options are few: always suggest the nearest */
        snprintf(hint, sizeof hint, ", did you mean %s%s?", option.name[1] ? "--" : "-",
                 option.name);
    return err_set(e, DS_EUSAGE, "%sunknown option %s%s%s (depthscope help%s%s)",
                   lead(command, text), dashes, name, hint, is_program(command) ? "" : " ",
                   is_program(command) ? "" : command);
}

/* "--a.b v" becomes the override "--a.b=v"; 0 when the word is not a key of the command. */
static int take_key(struct cli_args *a, int argc, char **argv, int *i, const char *name,
                    struct err *e)
{
    const char *word = argv[*i];
    int is_whole = strchr(word, '=') != NULL;
    if (word[1] != '-' || (!find_key(argv[0], name) && !(is_whole && strchr(name, '.'))))
        return 0;
    if (!is_whole && *i + 1 >= argc)
        return err_set(e, DS_EUSAGE, "%s: %s: missing value", argv[0], word);
    struct str s = {0};
    str_addf(&s, "%s%s%s", word, is_whole ? "" : "=", is_whole ? "" : argv[++*i]);
    char *made = s.failed ? NULL : mem_strdup(str_text(&s));
    str_release(&s);
    if (!made)
        return err_set(e, DS_EMEM, "%s", argv[0]);
    a->made[a->n_made++] = made;
    a->override[a->n_override++] = made;
    return 1;
}

/* One word that begins with '-'; *i advances when the value is the next word. */
static int take_option(struct cli_args *a, int argc, char **argv, int *i, struct cli_given *given,
                       struct err *e)
{
    const char *word = argv[*i], *dashes = word[1] == '-' ? "--" : "-", *equals = strchr(word, '=');
    char text[48], name[CONFIG_KEY_MAX + 1];
    size_t skip = strlen(dashes), len = equals ? (size_t)(equals - word) : strlen(word);
    snprintf(name, sizeof name, "%.*s", (int)(len - skip), word + skip);
    struct cli_option *o = find_option(a->option, word + skip, len - skip);
    if (!o || (skip == 1 && len > 2)) {
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            cli_usage(argv[0], a->option);
            exit(0);
        }
        if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
            puts("depthscope " DEPTHSCOPE_VERSION);
            exit(0);
        }
        int rc = take_key(a, argc, argv, i, name, e);
        return rc < 0 ? rc : rc > 0 ? 0 : unknown_option(a->option, argv[0], name, dashes, e);
    }
    o->is_set = 1;
    if (!o->has_value) {
        if (equals)
            return err_set(e, DS_EUSAGE, "%s--%s: unexpected value", lead(argv[0], text), o->name);
        return 0;
    }
    if (!equals && *i + 1 >= argc)
        return err_set(e, DS_EUSAGE, "%s%s%s: missing value", lead(argv[0], text),
                       o->name[1] ? "--" : "-", o->name);
    o->value = equals ? equals + 1 : argv[++*i];
    given[a->n_given++] = (struct cli_given){o, o->value};
    return 0;
}

int cli_parse(struct cli_args *a, struct cli_option *options, int argc, char **argv, struct err *e)
{
    int rc = 0, only_rest = 0;
    memset(a, 0, sizeof *a);
    a->option = options;
    a->rest = mem_alloc((size_t)argc + 1, sizeof *a->rest);
    a->override = mem_alloc((size_t)argc + 1, sizeof *a->override);
    a->made = mem_alloc((size_t)argc + 1, sizeof *a->made);
    struct cli_given *given = mem_alloc((size_t)argc + 1, sizeof *given);
    a->given = given;
    if (!a->rest || !a->override || !a->made || !given)
        rc = err_set(e, DS_EMEM, "%s", argv[0]);
    for (int i = 1; i < argc && rc == 0; i++) {
        const char *word = argv[i];
        if (only_rest || strcmp(word, "-") == 0)
            a->rest[a->n_rest++] = word;
        else if (strcmp(word, "--") == 0)
            only_rest = 1;
        else if (word[0] == '-')
            rc = take_option(a, argc, argv, &i, given, e);
        else if (override_is(word))
            a->override[a->n_override++] = word;
        else
            a->rest[a->n_rest++] = word;
    }
    if (rc < 0)
        cli_release(a);
    return rc;
}

void cli_release(struct cli_args *a)
{
    for (int i = 0; i < a->n_made; i++)
        mem_free(a->made[i]);
    mem_free(a->made);
    mem_free(a->rest);
    mem_free(a->override);
    mem_free((void *)(uintptr_t)a->given);
    a->rest = a->override = NULL;
    a->given = NULL;
    a->made = NULL;
    a->n_rest = a->n_override = a->n_given = a->n_made = 0;
}

static struct cli_option *option_of(const struct cli_args *a, const char *name)
{
    struct cli_option *o = find_option(a->option, name, strlen(name));
    BUG_IF(!o, "option %s is not in the table", name);
    return o;
}

const char *cli_value(const struct cli_args *a, const char *name)
{
    return option_of(a, name)->value;
}

const char *cli_value_at(const struct cli_args *a, const char *name, int i)
{
    const struct cli_option *o = option_of(a, name);
    for (int k = 0; k < a->n_given; k++)
        if (a->given[k].option == o && i-- == 0)
            return a->given[k].value;
    return NULL;
}

int cli_flag(const struct cli_args *a, const char *name)
{
    return option_of(a, name)->is_set;
}

/* Printed at the end of a command's help. */
static const struct {
    const char *command, *text;
} examples[] = {
    {"generate",
     "examples:\n"
     "  depthscope generate first --prompt \"Once upon a time\" max_tokens=60 top_p=0.9\n"
     "  depthscope generate ./Qwen2.5-0.5B-Instruct --chat --system \"Be brief.\" weights=q8_0\n"},
};

static const char *help_after;

void cli_help_after(const char *text)
{
    help_after = text;
}

static void add_option(struct str *out, const struct cli_option *o, int width)
{
    const char *help = o->help ? o->help : "", *gap = o->has_value ? strstr(help, "  ") : NULL;
    char left[80];
    int n = gap ? (int)(gap - help) : o->has_value && !strchr(help, ' ') ? (int)strlen(help) : 0;
    snprintf(left, sizeof left, "  %s%s%s%.*s", strlen(o->name) > 1 ? "--" : "-", o->name,
             n > 0 ? " " : "", n, help);
    cli_add_entry(out, left, gap ? gap + 2 : help + n, 22, width);
}

void cli_usage(const char *command, const struct cli_option *options)
{
    static const struct cli_option every[] = {
        {.name = "help", .help = "show this help; also -h"},
        {.name = "version", .help = "show the version; also -V"},
    };
    const struct command *c = commands;
    struct str out = {0};
    int width = cli_columns(0), program = is_program(command);
    while (c->name && strcmp(c->name, command) != 0)
        c++;
    str_addf(&out, "depthscope%s%s", program ? "" : " ", program ? "" : command);
    cli_add_wrapped(&out,
                    program   ? "[RUN|TRACE|MODEL|- ...]"
                    : c->name ? c->args
                              : "",
                    10 + (program ? 0 : 1 + (int)strlen(command)), 6, width);
    str_add_char(&out, '\n');
    if (program || c->name) {
        str_add(&out, "    ");
        cli_add_wrapped(&out, program ? "the workbench; without arguments, its Home" : c->summary,
                        4, 4, width);
        str_add_char(&out, '\n');
    }
    for (const struct cli_option *o = options; o && o->name; o++)
        add_option(&out, o, width);
    for (size_t i = 0; i < DS_LEN(every); i++)
        add_option(&out, &every[i], width);
    cli_add_lines(&out, help_after ? help_after : "", width);
    for (size_t i = 0; i < DS_LEN(examples); i++)
        if (strcmp(command, examples[i].command) == 0)
            str_add(&out, examples[i].text);
    fputs(str_text(&out), stdout);
    str_release(&out);
}
