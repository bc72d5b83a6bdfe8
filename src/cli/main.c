/* depthscope: a terminal workbench for adaptive-depth transformers. */
#include <stdio.h>
#include <string.h>

#include "base/process.h"
#include "cli/cli.h"
#include "cli/version.h"

const struct command commands[] = {
    // clang-format off
    {"train",    "[PRESET ...] [key=value ...]",       "train a model; PRESET is a name in data/ (quick) or a file; later presets override earlier ones", train_command, train_options, WORD_PRESET},
    {"presets",  "[PRESET ...]",                       "list presets with their sizes; with names, every key they set", presets_command, presets_options, WORD_PRESET},
    {"eval",     "MODEL [task=ppl] [key=value ...]",   "evaluate a model: loss, bits per byte, compute and depth", eval_command, eval_options, WORD_MODEL},
    {"generate", "MODEL --prompt TEXT|--chat [key=value ...]", "generate text or chat, with the depth of every token", generate_command, generate_options, WORD_MODEL},
    {"trace",    "MODEL --text TEXT -o OUT.mp",        "record every routing decision of one forward pass", trace_command, trace_options, WORD_MODEL},
    {"calibrate", "MODEL [key=value ...] [-o DIR]",    "calibrate inference thresholds per capacity on held-out text and save them", calibrate_command, calibrate_options, WORD_MODEL},
    {"figure",   "NAME|all|list RUN|CSV|JSON... [-o DIR]", "draw a paper figure from logged runs, CSV tables of metrics, or JSON results of bench and eval", figure_command, figure_options, WORD_FIGURE},
    {"sweep",    "[PRESET,PRESET ...] key=a,b,c ...",  "train over a grid of values and presets, with seeds; resumable", sweep_command, sweep_options, WORD_PRESET},
    {"ablate",   "[PRESET ...] [--seeds 1,2,3]",       "train the EDP ablations and a matched control; resumable", ablate_command, ablate_options, WORD_PRESET},
    {"isoflop",  "[PRESET ...] --budget F --sizes LxD", "train sizes and methods at equal training FLOPs; resumable", isoflop_command, isoflop_options, WORD_PRESET},
    {"pipeline", "[PRESET ...] [key=value ...] [--quick]", "baseline, method, controls, ablations, evaluation, figures and a table in one resumable command", pipeline_command, pipeline_options, WORD_PRESET},
    {"compare",  "RUN RUN ...",                        "compare runs, with confidence intervals over seeds", compare_command, compare_options, WORD_RUN},
    {"runs",     "[DIR]|tag|note|rename|rm|restore NAME ...", "list, filter and sort runs; tag, annotate and rename them, move them to the trash and back", runs_command, runs_options, WORD_RUNS},
    {"show",     "VIEW [RUN ...]",                     "print a view of the workbench without a terminal: text, ANSI, HTML or PNG", show_command, show_options, WORD_RUN},
    {"stop",     "RUN ...|--all",                      "ask live runs to save a checkpoint and stop, and wait for them", stop_command, stop_options, WORD_RUN},
    {"inspect",  "FILE|DIR|PRESET",                    "show the contents of a record file, checkpoint, model, adapter, tokenizer, figure or preset", inspect_command, inspect_options, WORD_MODEL},
    {"convert",  "MODEL|random:PRESET -o OUT [key=value ...]", "export a model as a Hugging Face directory, GGUF or llama2.c file", convert_command, convert_options, WORD_MODEL},
    {"get",      "NAME|--list [-o DIR]",               "download a known model, tokenizer or corpus; resumable, checksummed", get_command, get_options, WORD_NONE},
    {"tokenize", "MODEL|TOKENIZER --text TEXT",        "print the token ids and pieces of a text", tokenize_command, tokenize_options, WORD_MODEL},
    {"stream",   "RUN",                                "write a run's records to stdout, following a live run", stream_command, stream_options, WORD_RUN},
    {"bench",    "[MODEL] [key=value ...]",            "measure matrix multiplications, training steps, prefill and decoding; with MODEL, loading and inference", bench_command, bench_options, WORD_MODEL},
    {"doctor",   "",                                   "report what this machine and terminal support", doctor_command, doctor_options, WORD_NONE},
    {"serve",    "MODEL",                              "serve the workbench's requests on stdin (JSON lines)", serve_command, serve_options, WORD_MODEL},
    {"complete", "WORD ...",                            "print candidates for the last word, for completion scripts", complete_command, complete_options, WORD_NONE},
    {"help",     "[COMMAND|workbench|keys|views|metrics|man|bash|zsh|fish]",     "list commands; help on one command, all settings, the workbench's keys, all metrics, the man page, completion scripts", help_command, help_options, WORD_COMMAND},
    {.name = NULL},
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
    /* anything else is a run, a trace, a model or "-": opened in the workbench */
    static char program[] = "depthscope";
    if (!c && argc > 0)
        argv[0] = program; /* not the path it was called by */
    if (is_version)
        puts("depthscope " DEPTHSCOPE_VERSION);
    else
        status = c ? c->run(argc - 1, argv + 1) : workbench_command(argc, argv);
    /* a full disk is a failure; a reader that closed the pipe early is not */
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == 0 && !cli_reader_gone(0)) {
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
