/* depthscope: a terminal workbench for adaptive-depth transformers. */
#include <stdio.h>
#include <string.h>

#include "base/process.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/version.h"

#define ROW(name, args, about, word) {#name, args, about, name##_command, name##_options, word},
const struct command commands[] = {COMMANDS(ROW){.name = NULL}};

static const struct command *find_command(const char *name)
{
    for (const struct command *c = commands; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

int command_fail(const struct err *e)
{
    fprintf(stderr, "depthscope: %s\n", e->text[0] ? e->text : err_name(e->code));
    return e->code == DS_EUSAGE ? 2 : 1;
}

static int run_command(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    utf8_locale_begin();
    int is_version = strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0, status = 0;
    utf8_locale_begin(); /* names, notes and paths are printed as the terminal can show them */
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    const struct command *c = find_command(name);
    /* anything else is a run, a trace, a model or "-": opened in the workbench */
    static char program[] = "depthscope";
    if (!c && argc > 0)
        argv[0] = program; /* not the path it was called by */
    if (is_version)
        status = version_command(argc, argv);
    else
        status = c ? c->run(argc - 1, argv + 1) : workbench_command(argc, argv);
    /* a full disk is a failure; a reader that closed the pipe early is not */
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == 0 && !cli_stdout_closed(0)) {
        struct err e = {0};
        err_set(&e, DS_EIO, "standard output: write incomplete");
        status = command_fail(&e);
    }
    return status;
}

int main(int argc, char **argv)
{
    process_begin(argc > 0 ? argv[0] : NULL);
    return process_run(run_command, argc, argv);
}
