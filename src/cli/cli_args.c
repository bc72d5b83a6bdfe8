/* Words of the command line: options, overrides, the rest. */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "cli/use.h"

/* "a.b=v", "+a.b=v", "~a.b": a word of key characters before the equals sign, or a sign before it all. */
static int is_override(const char *s)
{
    if (s[0] == '+' || s[0] == '~')
        return s[1] != '\0';
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || (s[n] && strchr("._-", s[n])))
        n++;
    return s[n] == '=' && (n > 0 || s[1]) && s[0] != '-';
}

static struct cli_option *find_option(struct cli_option *o, const char *name, size_t len)
{
    for (; o->name; o++)
        if (strlen(o->name) == len && strncmp(o->name, name, len) == 0)
            return o;
    return NULL;
}

const char *cli_nearest(const char *word, const char *const *names, size_t n)
{
    const char *best = NULL;
    int least = INT_MAX;
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(word);
        int d = str_distance(word, names[i]);
        if (len > 2 && d > 1 && strncmp(names[i], word, len) == 0)
            d = 1; /* a name that was cut short */
        if (d < least) {
            least = d;
            best = names[i];
        }
    }
    return best;
}

/* Options before any command belong to the program itself. */
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

static int unknown_option(const struct cli_option *options, const char *command, const char *name,
                          size_t len, struct err *e)
{
    const char *names[64], *best;
    char word[64], text[48];
    size_t n = 0;
    snprintf(word, sizeof word, "%.*s", (int)(len < 63 ? len : 63), name);
    for (const struct cli_option *o = options; o->name && n < DS_LEN(names) - 1; o++)
        names[n++] = o->name;
    names[n++] = "help";
    best = cli_nearest(word, names, n);
    return err_set(e, DS_EUSAGE, "%sunknown option --%s, did you mean %s%s? (depthscope help%s%s)",
                   lead(command, text), word, strlen(best) > 1 ? "--" : "-", best,
                   is_program(command) ? "" : " ", is_program(command) ? "" : command);
}

/* One word that begins with '-'; *i moves on when the value is the next word. */
static int take_option(struct cli_option *options, int argc, char **argv, int *i,
                       struct cli_given *given, int *n_given, struct err *e)
{
    const char *word = argv[*i], *name = word + (word[1] == '-' ? 2 : 1),
               *equals = strchr(name, '=');
    size_t len = equals ? (size_t)(equals - name) : strlen(name);
    struct cli_option *o = find_option(options, name, len);
    char text[48];
    if (!o || (word[1] != '-' && len > 1)) {
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            cli_usage(argv[0], options);
            exit(0);
        }
        return unknown_option(options, argv[0], name, len, e);
    }
    o->is_set = 1;
    if (!o->has_value) {
        if (equals)
            return err_set(e, DS_EUSAGE, "%s--%s takes no value", lead(argv[0], text), o->name);
        return 0;
    }
    if (!equals && *i + 1 >= argc)
        return err_set(e, DS_EUSAGE, "%s%s%s needs a value", lead(argv[0], text),
                       len > 1 ? "--" : "-", o->name);
    o->value = equals ? equals + 1 : argv[++*i];
    given[(*n_given)++] = (struct cli_given){o, o->value};
    return 0;
}

int cli_parse(struct cli_args *a, struct cli_option *options, int argc, char **argv, struct err *e)
{
    int rc = 0, only_rest = 0;
    memset(a, 0, sizeof *a);
    a->option = options;
    a->rest = mem_alloc((size_t)argc + 1, sizeof *a->rest);
    a->override = mem_alloc((size_t)argc + 1, sizeof *a->override);
    struct cli_given *given = mem_alloc((size_t)argc + 1, sizeof *given);
    a->given = given;
    if (!a->rest || !a->override || !given)
        rc = err_set(e, DS_EMEM, "%s", argv[0]);
    for (int i = 1; i < argc && rc == 0; i++) {
        const char *word = argv[i];
        if (only_rest || strcmp(word, "-") == 0)
            a->rest[a->n_rest++] = word;
        else if (strcmp(word, "--") == 0)
            only_rest = 1;
        else if (word[0] == '-' && word[1] == '-' && is_override(word + 2) && strchr(word, '.') &&
                 strchr(word, '.') < strchr(word, '='))
            a->override[a->n_override++] = word;
        else if (word[0] == '-')
            rc = take_option(options, argc, argv, &i, given, &a->n_given, e);
        else if (is_override(word))
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
    mem_free(a->rest);
    mem_free(a->override);
    mem_free((void *)(uintptr_t)a->given);
    a->rest = a->override = NULL;
    a->given = NULL;
    a->n_rest = a->n_override = a->n_given = 0;
}

static struct cli_option *option_of(const struct cli_args *a, const char *name)
{
    struct cli_option *o = find_option(a->option, name, strlen(name));
    BUG_IF(!o, "option %s is in no table", name);
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

/* At the end of a command's help. */
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

void cli_usage(const char *command, const struct cli_option *options)
{
    const struct command *c = commands;
    while (c->name && strcmp(c->name, command) != 0)
        c++;
    if (is_program(command))
        printf("depthscope [RUN|TRACE|MODEL|-]\n    the workbench\n");
    else
        printf("depthscope %s %s\n", command, c->name ? c->args : "");
    if (c->name)
        printf("    %s\n", c->summary);
    for (const struct cli_option *o = options; o && o->name; o++)
        printf("  %s%-*s %s\n", strlen(o->name) > 1 ? "--" : "-", strlen(o->name) > 1 ? 14 : 15,
               o->name, o->help ? o->help : "");
    if (help_after)
        fputs(help_after, stdout);
    for (size_t i = 0; i < DS_LEN(examples); i++)
        if (strcmp(command, examples[i].command) == 0)
            fputs(examples[i].text, stdout);
}
