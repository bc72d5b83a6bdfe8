/* The man page and the completion scripts of shells, from the same tables as the help. */
#include "cli/manual.h"

#include <string.h>

#include "cli/cli.h"
#include "cli/version.h"

static const struct {
    const char *name, *about;
} variables[] = {
    {"DEPTHSCOPE_RUNS", "where runs are kept, instead of ./runs"},
    {"DEPTHSCOPE_CPU", "newest kernels to use: ref, avx2, avx512 or amx"},
    {"DEPTHSCOPE_GEMM", "matrix multiplication: blas uses OpenBLAS instead of the own kernels"},
    {"DEPTHSCOPE_BASE", "the base of an adapter whose own path to it does not exist"},
    {"DEPTHSCOPE_MIRROR", "scheme and host that replace those of every download"},
    {"NO_COLOR", "any value: no colour outside the workbench"},
    {"XDG_CONFIG_HOME", "where the user's settings.yaml and themes are looked for (depthscope/ in it)"},
    {"XDG_STATE_HOME",
     "where the workbench keeps what was looked at last, and get the checksums of first downloads"},
};

/* roff: a hyphen is a minus, and a line may not begin with a control character. */
static void add_text(struct str *out, const char *text)
{
    if (text[0] == '.' || text[0] == '\'')
        str_add(out, "\\&");
    for (; *text; text++) {
        if (*text == '-' || *text == '\\')
            str_add(out, *text == '-' ? "\\-" : "\\e");
        else
            str_add_char(out, *text);
    }
}

static void add_options(struct str *out, const struct cli_option *options)
{
    for (const struct cli_option *o = options; o && o->name; o++) {
        const char *help = o->help ? o->help : "", *text = strstr(help, "  ");
        size_t n = o->has_value && text ? (size_t)(text - help) : 0; /* "NAME  what it is" */
        str_addf(out, ".TP\n.BR \\-%s", strlen(o->name) > 1 ? "\\-" : "");
        add_text(out, o->name);
        if (n > 0)
            str_addf(out, " \" %.*s\"", (int)n, help);
        str_add(out, "\n");
        add_text(out, n > 0 ? text + 2 : help);
        str_add(out, "\n");
    }
}

void manual_page(struct str *out)
{
    str_add(out, ".TH DEPTHSCOPE 1 \"\" \"depthscope " DEPTHSCOPE_VERSION "\" \"User Commands\"\n"
                 ".SH NAME\ndepthscope \\- workbench for adaptive\\-depth transformers\n"
                 ".SH SYNOPSIS\n.B depthscope\n[RUN|TRACE|MODEL|\\- ...]\n.br\n.B depthscope\n"
                 "COMMAND [WORD ...] [key=value ...]\n"
                 ".SH DESCRIPTION\nTrains or loads transformers that spend a different amount of "
                 "compute on every token, shows live what every token costs in every layer, and "
                 "draws figures from logged data.  Without a command it opens the workbench.\n");
    add_options(out, workbench_options());
    str_add(out, ".TP\n.BR \\-\\-version \" [\" \\-\\-json ]\n"
                 "the version; with \\-\\-json also commit, build, kernels and GPUs\n");
    str_add(out, ".SH COMMANDS\nSettings are key=value or \\-\\-key value;\n.B depthscope help "
                 "keys\nlists all of them.\n");
    for (const struct command *c = commands; c->name; c++) {
        str_addf(out, ".SS %s ", c->name);
        add_text(out, c->args);
        str_add(out, "\n");
        add_text(out, c->summary);
        str_add(out, "\n");
        add_options(out, c->options);
    }
    str_add(out, ".SH ENVIRONMENT\n");
    for (size_t i = 0; i < DS_LEN(variables); i++) {
        str_addf(out, ".TP\n.B %s\n", variables[i].name);
        add_text(out, variables[i].about);
        str_add(out, "\n");
    }
    str_add(out,
            ".SH FILES\n.TP\n.I runs/NAME\na run: config.yaml, meta.json, log.mp, checkpoints\n"
            ".SH EXIT STATUS\n0 done, 1 failed, 2 usage, 128 + N ended by signal N\n");
}

const char *manual_script(const char *shell)
{
    static const struct {
        const char *shell, *text;
    } script[] = {
        {"bash", "# bash completion of depthscope\n"
                 "_depthscope() {\n"
                 "    local line=${COMP_LINE:0:COMP_POINT} IFS=$' \\t\\n' words last cut i\n"
                 "    read -ra words <<<\"$line\"\n"
                 "    [[ $line == *[[:space:]] ]] && words+=('')\n"
                 "    last=${words[-1]}\n"
                 "    cut=${last%\"${last##*[=:]}\"} # what the shell takes for earlier words\n"
                 "    IFS=$'\\n'\n"
                 "    COMPREPLY=($(depthscope complete \"${words[@]:1}\" 2>/dev/null | cut -f1))\n"
                 "    for i in \"${!COMPREPLY[@]}\"; do\n"
                 "        printf -v \"COMPREPLY[i]\" %q \"${COMPREPLY[i]#\"$cut\"}\"\n"
                 "    done\n"
                 "    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n"
                 "    return 0\n"
                 "}\n"
                 "complete -o default -F _depthscope depthscope\n"},
        {"zsh", "#compdef depthscope\n"
                "local -a word about\n"
                "local line\n"
                "for line in \"${(@f)$(depthscope complete \"${(@)words[2,CURRENT]}\" "
                "2>/dev/null)}\"; do\n"
                "    [[ -n $line ]] || continue\n"
                "    word+=(\"${line%%$'\\t'*}\")\n"
                "    about+=(\"${line/$'\\t'/  }\")\n"
                "done\n"
                "if (( $#word )); then\n"
                "    local end=' '\n"
                "    [[ $#word == 1 && $word[1] == *= ]] && end=''\n"
                "    compadd -S \"$end\" -l -d about -a word\n"
                "else\n"
                "    _files\n"
                "fi\n"},
        {"fish", "# fish completion of depthscope\n"
                 "complete -c depthscope -a '(depthscope complete (commandline -opc)[2..] "
                 "(commandline -ct) 2>/dev/null)'\n"},
    };
    for (size_t i = 0; i < DS_LEN(script); i++)
        if (strcmp(script[i].shell, shell) == 0)
            return script[i].text;
    return NULL;
}
