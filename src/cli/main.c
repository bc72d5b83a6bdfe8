/* depthscope: a terminal workbench for adaptive-depth transformers. */
#include <stdio.h>
#include <string.h>

#include "base/process.h"
#include "cli/use.h"
#include "cli/version.h"

const struct command commands[] = {
    // clang-format off
    {"train",    "[PRESET ...] [key=value ...]",       "train a model; PRESET is a name in data/ (quick) or a file; a later one wins", train_command},
    {"presets",  "[PRESET ...]",                       "presets with their sizes; of those named, every key", presets_command},
    {"eval",     "MODEL [task=ppl] [key=value ...]",   "loss, bits per byte, compute and depth of a model", eval_command},
    {"generate", "MODEL --prompt TEXT|--chat [key=value ...]", "continue texts or talk, with the depth of every token", generate_command},
    {"trace",    "MODEL --text TEXT -o OUT.mp",        "one pass over a text, every decision recorded", trace_command},
    {"calibrate", "MODEL [key=value ...] [-o DIR]",    "fit the thresholds of use to capacities on held-out text, and keep them", calibrate_command},
    {"figure",   "NAME|all|list RUN... [-o DIR]",      "draw a paper figure from logged runs", figure_command},
    {"sweep",    "[PRESET,PRESET ...] key=a,b,c ...",  "runs over values of keys and presets, with seeds; resumable", sweep_command},
    {"ablate",   "[PRESET ...] [--seeds 1,2,3]",       "the EDP ablations and a matched control; resumable", ablate_command},
    {"isoflop",  "[PRESET ...] --budget F --sizes LxD", "sizes and methods at equal training FLOPs; resumable", isoflop_command},
    {"compare",  "RUN RUN ...",                        "runs side by side, with intervals over seeds", compare_command},
    {"runs",     "[DIR]",                              "list runs", runs_command},
    {"stop",     "RUN ...|--all",                      "ask live runs to write a checkpoint and stop; waits until they have", stop_command},
    {"inspect",  "FILE|DIR|PRESET",                    "what is in a record file, checkpoint, model, adapter, tokenizer, figure or preset", inspect_command},
    {"convert",  "MODEL|random:PRESET -o OUT [key=value ...]", "a model as a Hugging Face directory, a GGUF or a llama2.c file", convert_command},
    {"get",      "NAME|--list [-o DIR]",               "download a known model, tokenizer or corpus; resumable, checksummed", get_command},
    {"tokenize", "MODEL|TOKENIZER --text TEXT",        "ids and pieces of a text", tokenize_command},
    {"stream",   "RUN",                                "the record stream on stdout, following a live run", stream_command},
    {"bench",    "[MODEL] [key=value ...]",            "speed of products, steps, prefill and decode; of MODEL its loading and use", bench_command},
    {"doctor",   "",                                   "what this machine and terminal can do", doctor_command},
    {"serve",    "MODEL",                              "answer requests of the workbench on stdin (JSON lines)", serve_command},
    {"help",     "[COMMAND|workbench|keys|views]",     "this list; help of one command; all settings; the workbench's keys", help_command},
    {NULL, NULL, NULL, NULL},
    // clang-format on
};

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
    int is_version = strcmp(name, "--version") == 0, status = 0;
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    const struct command *c = find_command(name);
    /* anything else is a run, a trace, a model or "-": the workbench shows it */
    static char program[] = "depthscope";
    if (!c && argc > 0)
        argv[0] = program; /* whatever path it was called by */
    if (is_version)
        puts("depthscope " DEPTHSCOPE_VERSION);
    else
        status = c ? c->run(argc - 1, argv + 1) : workbench_command(argc, argv);
    /* a full disk is no success; a reader that has seen enough is no failure */
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == 0 && !cli_reader_gone(0)) {
        struct err e = {0};
        err_set(&e, DS_EIO, "standard output: not everything could be written");
        status = command_fail(&e);
    }
    return status;
}

int main(int argc, char **argv)
{
    process_begin(argc > 0 ? argv[0] : NULL);
    return process_run(run_command, argc, argv);
}
