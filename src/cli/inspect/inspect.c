/* depthscope inspect FILE|DIR|PRESET: shows its contents. */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "cli/inspect/inspect.h"
#include "figures/png_chunks.h"
#include "io/foreign.h"
#include "models/load.h"
#include "training/preset.h"

struct cli_option inspect_options[] = {
    {.name = "json", .help = "one JSON object: kind, path and contents; with --follow one a line"},
    {.name = "follow", .help = "of a run: a line whenever it has changed, until it ends; also -"},
    {.name = "every",
     .has_value = 1,
     .help = "SECONDS  between these lines, at least (default: 1)"},
    {.name = "until",
     .has_value = 1,
     .help = "CONDITION  waits until it holds, e.g. 'val_loss<2.1 and step>=1000 or state=failed'"},
    {.name = "timeout", .has_value = 1, .help = "SECONDS  maximum wait (default: no limit)"},
    {.name = NULL},
};
static const char usage_after[] = "\nCONDITION: KEY OP VALUE joined by `and`, `or`; OP is one of = "
                                  "!= > >= < <=.  KEY is a metric as "
                                  "logged (its newest value), `state`, `step`, `age` in seconds, "
                                  "TASK.NAME of an evaluation, or a "
                                  "setting.  Exit status of --until: 0 it holds, 1 the run ended "
                                  "without it, 3 --timeout passed.\n";
enum { LATE = 3 };
enum { FIGURE_MAX = 256 << 20, TEXT_CELLS = 200 };

void inspect_safe(struct str *out, const char *text)
{
    cli_add_safe(out, text ? text : "", text ? strlen(text) : 0, TEXT_CELLS);
}

void inspect_begin(struct inspect *x, const char *kind, const char *path)
{
    str_add(x->out, "{");
    json_add_str(x->out, "kind", kind);
    json_add_str(x->out, "path", path);
}

void inspect_shape(struct str *out, const uint64_t *shape, int rank)
{
    for (int d = 0; d < rank; d++)
        str_addf(out, "%s%" PRIu64, d ? "," : "", shape[d]);
}

static int inspect_figure(const char *path, struct inspect *x, struct err *e)
{
    struct str file = {0};
    struct pngfile info = {0};
    int rc = fs_read_file(&file, path, FIGURE_MAX, e);
    if (rc == 0)
        rc = pngfile_read(&info, file.p, file.len, path, e);
    double dpi = (double)info.per_metre_x * 0.0254;
    if (rc == 0 && x->json) {
        inspect_begin(x, "figure", path);
        json_add_int(x->out, "width", info.width);
        json_add_int(x->out, "height", info.height);
        json_add_num(x->out, "dpi", dpi);
        json_key(x->out, "recipe");
        if (info.recipe.len > 0)
            str_add_json(x->out, info.recipe.p, info.recipe.len);
        else
            str_add(x->out, "null");
        str_add(x->out, "}");
    } else if (rc == 0) {
        str_addf(x->out, "figure: %u x %u pixels, %.0f dpi\n", info.width, info.height, dpi);
        str_add(x->out, info.recipe.len > 0 ? "recipe: " : "no recipe");
        cli_add_safe(x->out, str_text(&info.recipe), info.recipe.len, -1);
        str_add(x->out, "\n");
    }
    str_release(&info.recipe);
    str_release(&file);
    return rc;
}

/* ---- dispatch by kind ---- */

static int ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

static int has(const char *dir, const char *name)
{
    char path[1200];
    return fs_join(path, sizeof path, dir, name, NULL) == 0 && fs_exists(path);
}

/* llama2.c models and tokenizers share a file extension. */
static int inspect_bin(const char *path, struct inspect *x, struct err *e)
{
    int rc = inspect_llama2c(path, x, e);
    return rc < 0 && inspect_tokenizer(path, x, NULL) == 0 ? 0 : rc;
}

/* The first match applies. */
static const struct {
    const char *end;
    inspect_fn *inspect;
} endings[] = {
    {".safetensors", inspect_tensors},
    {".safetensors.index.json", inspect_tensors},
    {".pt", inspect_tensors},
    {".pth", inspect_tensors},
    {"pytorch_model.bin", inspect_tensors},
    {".gguf", inspect_gguf},
    {".png", inspect_figure},
    {"tokenizer.json", inspect_tokenizer},
    {"vocab.json", inspect_tokenizer},
    {"encoder.json", inspect_tokenizer},
    {".model", inspect_tokenizer},
    {".tiktoken", inspect_tokenizer},
    {".bin", inspect_bin},
};

/* A run: its records, and the model directory that other commands would load. */
static int inspect_run(const char *path, struct inspect *x, struct err *e)
{
    char dir[1024];
    struct err why = {0};
    int rc = inspect_records(path, x, e);
    if (rc < 0)
        return rc;
    if ((rc = model_locate(path, dir, sizeof dir, &why)) < 0) /* a run may have no model yet */
        return rc == DS_EMEM ? err_set(e, rc, "%s", why.text) : 0;
    if (x->json && x->out->len > 0 && x->out->p[x->out->len - 1] == '}') {
        x->out->p[--x->out->len] = '\0';
        json_add_str(x->out, "model", dir);
        str_add(x->out, "}");
    } else if (!x->json) {
        str_add(x->out, "current model: ");
        inspect_safe(x->out, dir);
        str_add(x->out, "\n");
    }
    return 0;
}

/* Checks that the parts of a directory that will be read are regular files. */
static int check_parts(const char *dir, struct err *e)
{
    static const char *const names[] = {
        "config.json",           "log.mp",        "adapter_config.json",
        "tokenizer.json",        "vocab.json",    "tokenizer.model",
        "model.safetensors",     "merges.txt",    "model.safetensors.index.json",
        "tokenizer_config.json", "tokenizer.bin", "adapter_model.safetensors",
    };
    char part[1200];
    int rc = 0;
    for (size_t i = 0; i < DS_LEN(names) && rc == 0; i++)
        if (fs_join(part, sizeof part, dir, names[i], NULL) == 0)
            rc = fs_is_dir(part) ? 0 : fs_check_regular(part, e);
    return rc;
}

static int inspect_dir(const char *path, struct inspect *x, struct err *e)
{
    static const struct {
        const char *name;
        inspect_fn *inspect;
    } parts[] = {
        {"config.json", inspect_model},           {"log.mp", inspect_run},
        {"adapter_config.json", inspect_adapter}, {"tokenizer.json", inspect_tokenizer},
        {"vocab.json", inspect_tokenizer},        {"tokenizer.model", inspect_tokenizer},
        {"model.safetensors", inspect_tensors},   {"model.safetensors.index.json", inspect_tensors},
        {"tokenizer.bin", inspect_tokenizer},
    };
    char log[1100];
    int rc = check_parts(path, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < DS_LEN(parts); i++)
        if (has(path, parts[i].name))
            return parts[i].inspect(path, x, e);
    if ((rc = fs_join(log, sizeof log, path, "log.mp", e)) < 0 || (rc = fs_check_reach(log, e)) < 0)
        return rc;
    return err_set(e, DS_ENOTFOUND, "%s: expected a run, model, adapter or tokenizer", path);
}

/* A checkpoint that another program left next to its log is a model first. */
static int is_model(const char *path)
{
    return has(path, "adapter_config.json") ||
           (has(path, "config.json") &&
            (has(path, "model.safetensors") || has(path, "model.safetensors.index.json")));
}

int inspect_path(const char *path, struct inspect *x, struct err *e)
{
    const struct foreign_format *format;
    char log[1100];
    int is_own = fs_join(log, sizeof log, path, "log.mp", NULL) == 0 && fs_exists(log);
    if (!is_own && !is_model(path) && foreign_find(path, &format))
        return inspect_records(path, x, e);
    if (fs_is_dir(path))
        return inspect_dir(path, x, e);
    for (size_t i = 0; i < DS_LEN(endings); i++)
        if (ends_with(path, endings[i].end))
            return endings[i].inspect(path, x, e);
    if (ends_with(path, ".json"))
        return err_set(e, DS_EFORMAT,
                       "%s: unsupported JSON file, expected tokenizer.json; for config.json "
                       "name its directory",
                       path);
    return inspect_records(path, x, e);
}

/* 1 when the name is a preset; those are shown by the presets command. */
static int is_preset(const char *what)
{
    char path[1200], dir[1024];
    if (cli_data_dir(dir, sizeof dir, "data", NULL) == 0)
        train_config_preset_dir(dir);
    return fs_exists(what) ? ends_with(what, ".yaml")
                           : preset_path(path, sizeof path, what, NULL) == 0;
}

static int print_preset(const char *what, int json)
{
    char command[] = "presets", flag[] = "--json", name[1024];
    char *words[] = {command, name, json ? flag : NULL, NULL};
    str_copy(name, sizeof name, what);
    return presets_command(json ? 3 : 2, words);
}

/* Exit status of --follow and --until. */
static int follow_run(const struct cli_args *a, const char *what, struct err *e)
{
    char path[1024];
    int rc = cli_run_path(path, sizeof path, what, e);
    if (rc == 0)
        rc = inspect_follow(path, a, e);
    int status = rc < 0 ? command_fail(e) : 0;
    return rc == DS_ESTOP ? LATE : status;
}

int inspect_command(int argc, char **argv)
{
    struct err e = {0};
    struct cli_args a;
    struct str out = {0};
    char path[1024];
    const char *what = NULL;
    cli_help_after(usage_after);
    int rc = cli_parse(&a, inspect_options, argc, argv, &e);
    if (rc < 0)
        return command_fail(&e);
    struct inspect x = {&out, cli_flag(&a, "json")};
    rc = cli_single(&a, "inspect", "FILE or DIR", &what, &e);
    if (rc == 0 && a.n_override > 0)
        rc = err_set(&e, DS_EUSAGE, "inspect: unexpected setting %s", a.override[0]);
    if (rc == 0 && (cli_flag(&a, "follow") || cli_value(&a, "until"))) {
        int status = follow_run(&a, what, &e);
        cli_release(&a);
        return status;
    }
    if (rc == 0 && (cli_value(&a, "every") || cli_value(&a, "timeout")))
        rc = err_set(&e, DS_EUSAGE, "inspect: --every and --timeout need --follow or --until");
    if (rc == 0 && strcmp(what, "-") == 0)
        rc = err_set(&e, DS_EUSAGE, "inspect: expected a file or directory, not standard input");
    if (rc == 0)
        rc = cli_run_path(path, sizeof path, what, &e);
    struct stat st;
    if (rc == 0 && fs_stat(path, &st) == 0 && S_ISFIFO(st.st_mode)) /* files are read twice */
        rc = err_set(&e, DS_EIO,
                     "%s: is a FIFO, expected a regular file; write a pipe to a file first", path);
    else if (rc == 0)
        rc = fs_is_dir(path) ? 0 : fs_check_regular(path, &e);
    if ((rc == 0 || rc == DS_ENOTFOUND) && is_preset(what) && (rc < 0 || strcmp(path, what) == 0)) {
        int status = print_preset(what, x.json);
        cli_release(&a);
        return status;
    }
    if (rc == 0)
        rc = inspect_path(path, &x, &e);
    str_add(&out, rc == 0 && x.json ? "\n" : "");
    cli_release(&a);
    if (rc < 0) {
        str_release(&out);
        return command_fail(&e);
    }
    if (x.json || cli_columns(0) == 0)
        return cli_print(&out);
    struct str lines = {0};
    cli_add_lines(&lines, str_text(&out), cli_columns(0));
    str_release(&out);
    return cli_print(&lines);
}
