/* Commands that only read, over two runs whose log has arbitrary records; the first byte says which.
 * They end with 0, 1 or 2, and leave their files. */
#include "cli/commands.h"
#include "records.h"

/* Those of the program are in its main file. */
const struct command commands[] = {{.name = NULL}};

int command_fail(const struct err *e)
{
    need(e->code && e->text[0] && !strchr(e->text, '\n'));
    return e->code == DS_EUSAGE ? 2 : 1;
}

enum { WORDS_MAX = 12 };
/* A, B: the runs; O: a file; D: a folder; R: the folder of the runs. */
static const struct {
    command_fn *run;
    struct cli_option *options;
    const char *words[WORDS_MAX];
} call[] = {
    {export_command, export_options, {"export", "A", "--to", "csv", "-o", "O"}},
    {export_command, export_options, {"export", "A", "--to", "jsonl", "-o", "O"}},
    {export_command, export_options, {"export", "A", "--to", "tfevents", "-o", "D"}},
    {compare_command, compare_options, {"compare", "A", "B", "--width", "80"}},
    {compare_command, compare_options, {"compare", "A", "B", "--json"}},
    {compare_command, compare_options, {"compare", "A", "B", "--latex"}},
    {compare_command, compare_options, {"compare", "A", "B", "--csv", "--each"}},
    {alerts_command, alerts_options, {"alerts", "A", "B"}},
    {alerts_command, alerts_options, {"alerts", "A", "--json"}},
    {runs_command, runs_options, {"runs", "R"}},
    {runs_command, runs_options, {"runs", "R", "--json"}},
    {stream_command, stream_options, {"stream", "A"}},
    {inspect_command,
     inspect_options,
     {"inspect", "A", "--until", "step>=3 or state=done", "--timeout", "0"}},
    {show_command, show_options, {"show", "monitor", "A", "--format", "html", "-o", "O"}},
    {show_command, show_options, {"show", "depth", "A", "--format", "ansi", "-o", "O"}},
    {show_command, show_options, {"show", "compare", "A", "B", "--size", "100x30", "-o", "O"}},
};

static const char *path_of(const char *word)
{
    static char path[WORDS_MAX][1024];
    static int turn;
    const char *name = strcmp(word, "A") == 0   ? "runs/a"
                       : strcmp(word, "B") == 0 ? "runs/b"
                       : strcmp(word, "R") == 0 ? "runs"
                       : strcmp(word, "O") == 0 ? "out"
                       : strcmp(word, "D") == 0 ? "folder"
                                                : NULL;
    if (!name)
        return word;
    char *p = path[turn++ % WORDS_MAX];
    snprintf(p, sizeof path[0], "%s", fuzz_path(name));
    return p;
}

static void run(int i)
{
    char *argv[WORDS_MAX + 1] = {NULL};
    int argc = 0, kept = dup(1), none = open("/dev/null", O_WRONLY);
    for (; call[i].words[argc]; argc++)
        argv[argc] = strdup(path_of(call[i].words[argc]));
    fflush(NULL);
    need(none >= 0 && dup2(none, 1) == 1);
    int rc = call[i].run(argc, argv);
    fflush(NULL);
    need(dup2(kept, 1) == 1);
    need(rc >= 0 && rc <= 3);
    for (struct cli_option *o = call[i].options; o->name; o++) { /* a process runs one command */
        o->value = NULL;
        o->is_set = 0;
    }
    close(none);
    close(kept);
    while (argc > 0)
        free(argv[--argc]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str log = {0};
    if (size < 1)
        return 0;
    log_to(fuzz_hush, NULL);
    setenv("DEPTHSCOPE_RUNS", fuzz_path("runs"), 1);
    setenv("XDG_CONFIG_HOME", fuzz_dir(), 1);
    setenv("XDG_STATE_HOME", fuzz_dir(), 1);
    need(fs_mkdirs(fuzz_path("runs/a"), NULL) == 0 && fs_mkdirs(fuzz_path("runs/b"), NULL) == 0);
    fuzz_frames(&log, data + 1, size - 1, 1);
    fuzz_put(fuzz_path("runs/a/log.mp"), str_text(&log), log.len);
    fuzz_put(fuzz_path("runs/b/log.mp"), str_text(&log), log.len);
    run(data[0] % (int)DS_LEN(call));
    unlink(fuzz_path("out"));
    (void)!fs_remove_tree(fuzz_path("folder"), NULL);
    str_release(&log);
    return 0;
}
