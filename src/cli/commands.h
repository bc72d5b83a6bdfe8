/* The command line.  A subcommand is one file in src/cli/ and one line in main.c's table. */
#ifndef DS_CLI_COMMANDS_H
#define DS_CLI_COMMANDS_H

#include <stddef.h>

#include "base/err.h"

/* Returns the exit status: 0 done, 1 failed, 2 usage.  argv[0] is the subcommand's name. */
struct cli_option;
typedef int command_fn(int argc, char **argv);
enum command_word {
    WORD_NONE,
    WORD_RUN,
    WORD_MODEL,
    WORD_PRESET,
    WORD_FIGURE,
    WORD_VIEW,
    WORD_COMMAND,
    WORD_RUNS
};
struct command {
    const char *name, *args, *summary;
    command_fn *run;
    const struct cli_option *options; /* ends with name NULL */
    enum command_word word;           /* what its words name, for completion */
};
extern const struct command commands[]; /* ends with name NULL */

/* Prints "depthscope: TEXT" on stderr and returns the exit status for e->code. */
int command_fail(const struct err *e);
/* Splits argv[1..] into options ("--name value", "--name=value", "--flag"), overrides
 * (base/config.h, and "--a.b v" for a key of the command, see cli/keys.h) and positional
 * arguments.  The error for an unknown option names the nearest option or key. */
struct cli_option {
    const char *name;
    int has_value;
    const char *value;
    int is_set;
    const char *help;
};
/* clang-format off */
/* All subcommands, one line each: name, arguments, summary, what its words name (for
 * completion). */
#define COMMANDS(X) \
    X(train, "[PRESET ...] [key=value ...]",\
        "train a model; PRESET is a name in data/ (quick) or a file; later presets override earlier ones", WORD_PRESET) \
    X(presets, "[PRESET ...]",\
        "list presets with their sizes; with names, every key they set", WORD_PRESET) \
    X(eval, "MODEL [task=ppl] [key=value ...]",\
        "evaluate a model: loss, bits per byte, compute and depth", WORD_MODEL) \
    X(generate, "MODEL --prompt TEXT|--chat [key=value ...]",\
        "generate text or chat, with the depth of every token", WORD_MODEL) \
    X(trace, "MODEL --text TEXT -o OUT.mp",\
        "record every routing decision of one forward pass", WORD_MODEL) \
    X(calibrate, "MODEL [risk=R delta=D] [key=value ...] [-o DIR]",\
        "calibrate inference thresholds per capacity on held-out text, or a capacity for a risk", WORD_MODEL) \
    X(figure, "NAME|all|list RUN|CSV|JSON... [-o DIR|FILE]",\
        "draw a paper figure from logged runs, CSV tables of metrics, or JSON results of bench and eval", WORD_FIGURE) \
    X(sweep, "[PRESET,PRESET ...] key=a,b,c ...",\
        "train over a grid of values and presets, with seeds; resumable", WORD_PRESET) \
    X(ablate, "[PRESET ...] [--seeds 1,2,3]",\
        "train the EDP ablations and a matched control; resumable", WORD_PRESET) \
    X(isoflop, "[PRESET ...] --budget F --sizes LxD",\
        "train sizes and methods at equal training FLOPs; resumable", WORD_PRESET) \
    X(pipeline, "[PRESET ...] [key=value ...] [--quick]",\
        "baseline, method, controls, ablations, evaluation, figures and a table in one resumable command", WORD_PRESET) \
    X(compare, "RUN RUN ...",\
        "compare runs, with confidence intervals over seeds", WORD_RUN) \
    X(runs, "[DIR]|tag|note|rename|rm|restore NAME ...",\
        "list, filter and sort runs; tag, annotate and rename them, move them to the trash and back", WORD_RUNS) \
    X(show, "VIEW [RUN ...]",\
        "print a view of the workbench without a terminal: text, ANSI, HTML or PNG", WORD_VIEW) \
    X(alerts, "RUN ...",\
        "list the alerts of runs: what they recorded, and what the rules of your settings find now", WORD_RUN) \
    X(stop, "RUN ...|--all",\
        "ask live runs to save a checkpoint and stop, and wait for them", WORD_RUN) \
    X(inspect, "FILE|DIR|PRESET",\
        "show the contents of a record file, checkpoint, model, adapter, tokenizer, figure or preset", WORD_MODEL) \
    X(convert, "MODEL|random:PRESET -o OUT [key=value ...]",\
        "export a model as a Hugging Face directory, GGUF or llama2.c file", WORD_MODEL) \
    X(import, "FILE ... [--tokenizer T] -o OUT.mp",\
        "import a routing trace of a mixture of experts: Megatron-LM, llama.cpp, vLLM, SGLang, BigMoeOnEdge, CSV", WORD_NONE) \
    X(get, "NAME|--list [-o DIR]",\
        "download a known model, tokenizer or corpus; resumable, checksummed", WORD_NONE) \
    X(tokenize, "MODEL|TOKENIZER --text TEXT",\
        "print the token ids and pieces of a text", WORD_MODEL) \
    X(stream, "RUN",\
        "write a run's records to stdout, following a live run", WORD_RUN) \
    X(export, "RUN --to csv|jsonl|tfevents [-o FILE]",\
        "write a run's metrics for notebooks and other tools", WORD_RUN) \
    X(bench, "[MODEL] [key=value ...]",\
        "measure matrix multiplications, training steps, prefill and decoding; with MODEL, loading and inference", WORD_MODEL) \
    X(doctor, "",\
        "report what this machine and terminal support", WORD_NONE) \
    X(agent, "[ROOT]",\
        "serve the runs of this machine to a workbench elsewhere (depthscope HOST:ROOT starts it through ssh)", WORD_NONE) \
    X(serve, "MODEL",\
        "serve the workbench's requests on stdin (JSON lines); MODEL may be the socket of a server", WORD_MODEL) \
    X(complete, "WORD ...",\
        "print candidates for the last word, for completion scripts", WORD_NONE) \
    X(help, "[COMMAND|workbench|keys|views|metrics|formats|man|bash|zsh|fish]",\
        "list commands; help on one command, all settings, the workbench's keys, all metrics, logs of other programs, the man page, completion scripts", WORD_COMMAND)
/* clang-format on */

#define DECLARE(name, args, about, word)                                                           \
    command_fn name##_command;                                                                     \
    extern struct cli_option name##_options[];
COMMANDS(DECLARE)
#undef DECLARE
command_fn workbench_command; /* anything else: a run, a trace, a model or "-" */

struct cli_given {
    const struct cli_option *option;
    const char *value;
};
struct cli_args {
    struct cli_option *option; /* ends with name NULL */
    const char **rest;         /* heap, mem_free */
    const char **override;     /* heap, mem_free */
    int n_rest, n_override;
    char **made; /* heap: overrides that were written as "--a.b v" */
    int n_made;
    const struct cli_given *given; /* heap, mem_free: every option with a value, in order */
    int n_given;
};
int cli_parse(struct cli_args *a, struct cli_option *options, int argc, char **argv,
              struct err *e) DS_CHECK;
void cli_release(struct cli_args *a);
const char *cli_value(const struct cli_args *a, const char *name); /* the last; NULL when absent */
/* The i-th value of a repeatable option, NULL after the last. */
const char *cli_value_at(const struct cli_args *a, const char *name, int i);
int cli_flag(const struct cli_args *a, const char *name);
void cli_usage(const char *command, const struct cli_option *options);
/* The i-th verb of `runs` ("tag"), NULL after the last. */
const char *runs_verb(int i);
/* The options of the workbench, which is not in the table of commands. */
const struct cli_option *workbench_options(void);
/* Directory of data files ("data"): next to the program, else the installed path, else inside the
 * program (base/embedded.h); `out` has `size` bytes. */
int cli_data_dir(char *out, size_t size, const char *what, struct err *e) DS_CHECK;

#endif
