/* depthscope convert MODEL -o OUT: exports a model in another program's format. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/pool.h"
#include "cli/batch/batch_child.h"
#include "cli/convert/convert.h"
#include "cli/convert/convert_job.h"

struct cli_option convert_options[] = {
    {.name = "o",
     .has_value = 1,
     .help = "OUT  a file if it ends in .gguf or .bin, else a directory"},
    {.name = "force", .help = "replace an existing file"},
    {.name = "json", .help = "one JSON object"},
    {.name = NULL},
};

#define AT(field) offsetof(struct convert_options, field)
static const struct opt opts[] = {
    // clang-format off
    {"to",         OPT_ENUM,   AT(to),         "auto", 0, 0, "auto|hf|gguf|llama2c", "format; auto: from the extension of OUT", NULL},
    {"weights",    OPT_STRING, AT(weights),    "auto", 0, 0, NULL, "f32, f16, bf16, in GGUF also q8_0, q4_0, q4_k, q5_k, q6_k; auto: unchanged", NULL},
    {"method",     OPT_ENUM,   AT(method),     "keep", 0, 0, "keep|dense", "dense: base model only, without routers and adapters", NULL},
    {"merge",      OPT_BOOL,   AT(merge),      "false", 0, 0, NULL, "merge adapters into the base matrices", NULL},
    {"adapter",    OPT_ENUM,   AT(adapter),    "keep", 0, 0, "keep|only", "only: adapters alone, in PEFT format", NULL},
    {"tokenizer",  OPT_STRING, AT(tokenizer),  "",     0, 0, NULL, "tokenizer to write instead of the model's own", NULL},
    {"shard_size", OPT_INT,    AT(shard_size), "5000000000", 1, 0x1p60, NULL, "maximum bytes of tensors per file of a directory", NULL},
    {"seed",       OPT_INT,    AT(seed),       "1",    0, 0x1p62, NULL, "random: seed of the weights, initialised as in training", NULL},
    {"threads",    OPT_INT,    AT(threads),    "0",    0, 1024, NULL, "threads; 0: all available processors", NULL},
    // clang-format on
};
const struct opt_group convert_group = {
    .prefix = "", .title = "convert", .opts = opts, .n = DS_LEN(opts)};

/* ---- arguments ---- */

/* Separates the command's own settings from the model's. */
static int split_settings(const struct cli_args *a, struct convert_options *o, struct config *given,
                          struct err *e)
{
    struct config own = {0};
    char where[32];
    int rc = opt_defaults(&convert_group, o, e);
    for (int i = 0; i < a->n_override && rc == 0; i++) {
        struct override x;
        snprintf(where, sizeof where, "setting %d", i + 1);
        rc = override_parse(&x, a->override[i], where, e);
        if (rc == 0)
            rc = config_override(opt_find(&convert_group, x.key) ? &own : given, a->override[i],
                                 where, e);
    }
    if (rc == 0)
        rc = config_apply(&own, &convert_group, o, e);
    config_release(&own);
    return rc;
}

static int ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n > k && strcmp(s + n - k, end) == 0;
}

static int choose_format(struct convert_job *j, struct err *e)
{
    j->out[fs_trimmed(j->out)] = '\0';
    if (!j->out[0])
        return err_set(e, DS_EUSAGE, "convert: -o: empty path");
    if (j->o.to == CONVERT_AUTO)
        j->o.to = ends_with(j->out, ".gguf")  ? CONVERT_GGUF
                  : ends_with(j->out, ".bin") ? CONVERT_LLAMA2C
                                              : CONVERT_HF;
    return 0;
}

static int choose_type(struct convert_job *j, struct err *e)
{
    int rc = 0;
    if (strcmp(j->o.weights, "auto") != 0)
        rc = export_type(&j->type, j->o.weights, e);
    else if (j->o.to == CONVERT_GGUF || j->from.type == GGUF_T_F16 || j->from.type == GGUF_T_BF16)
        j->type = j->from.type;
    else
        j->type = GGUF_T_F32;
    if (rc == 0 && j->o.to == CONVERT_LLAMA2C && j->type != GGUF_T_F32) {
        if (strcmp(j->o.weights, "auto") != 0)
            return err_set(e, DS_EUSAGE, "weights=%s: unsupported by llama2.c, expected f32",
                           j->o.weights);
        j->type = GGUF_T_F32;
    }
    return rc;
}

/* ---- report ---- */

static void type_text(char out[16], uint32_t type)
{
    size_t i = 0;
    for (const char *p = gguf_type_name(type); i < 15 && p[i]; i++)
        out[i] = p[i] >= 'A' && p[i] <= 'Z' ? (char)(p[i] - 'A' + 'a') : p[i];
    out[i] = '\0';
}

static const char *const format_name[] = {"auto", "hf", "gguf", "llama2c"};

static void print_json(const struct convert_job *j, struct str *out)
{
    char type[16], head[16];
    type_text(type, j->type);
    type_text(head, j->r.head_type);
    str_add(out, "{");
    json_add_str(out, "path", j->out);
    json_add_str(out, "to", format_name[j->o.to]);
    json_add_str(out, "weights", type);
    json_add_str(out, "head", head);
    json_add_int(out, "parameters", j->parameters);
    json_add_int(out, "tensors", (int64_t)j->r.tensors);
    json_add_int(out, "files", (int64_t)j->r.files);
    json_add_int(out, "bytes", (int64_t)j->r.bytes);
    json_add_int(out, "fell_back", j->r.fallback_n);
    json_key(out, "tokenizer");
    str_add(out, j->has_vocabulary ? "true" : "false");
    json_add_num(out, "seconds", j->seconds);
    json_key(out, "notes");
    str_add(out, "[");
    for (size_t i = 0; i < j->notes; i++) {
        json_key(out, NULL);
        str_add_json(out, j->note[i], strlen(j->note[i]));
    }
    str_add(out, "]}\n");
}

static void print_text(const struct convert_job *j, struct str *out)
{
    char type[16], head[16], n[16], bytes[16], time[16];
    type_text(type, j->type);
    type_text(head, j->r.head_type);
    cli_add_safe(out, j->out, strlen(j->out), -1);
    str_addf(out, ": %s, %s", format_name[j->o.to], type);
    if (j->r.head_type != j->type)
        str_addf(out, " (embedding and head %s)", head);
    str_addf(out, ", %s parameters in %llu tensors", str_si(n, (double)j->parameters),
             (unsigned long long)j->r.tensors);
    if (j->r.files > 1)
        str_addf(out, " of %llu files", (unsigned long long)j->r.files);
    str_addf(out, ", %sB, %s\n", str_si(bytes, (double)j->r.bytes), str_duration(time, j->seconds));
    for (size_t i = 0; i < j->notes; i++) {
        str_add(out, "  ");
        cli_add_safe(out, j->note[i], strlen(j->note[i]), -1);
        str_add(out, "\n");
    }
}

/* ---- command ---- */

static int run(struct convert_job *j, const char *model, struct config *given, struct err *e)
{
    int rc = choose_format(j, e);
    if (rc == 0 && strcmp(j->o.weights, "auto") != 0)
        rc = choose_type(j, e); /* reject invalid arguments before anything is read */
    if (rc == 0)
        rc = pool_start((int)j->o.threads, e);
    if (rc == 0)
        rc = convert_open(&j->from, model, given, (uint64_t)j->o.seed, j->o.tokenizer, e);
    if (rc == 0)
        rc = convert_check_out(j, e);
    if (rc == 0)
        rc = choose_type(j, e);
    if (rc == 0) {
        double begun = clock_mono();
        batch_catch_signals();
        rc = convert_write(j, e);
        j->seconds = clock_mono() - begun;
    }
    convert_close(&j->from);
    return rc;
}

int convert_command(int argc, char **argv)
{
    struct err e = {0};
    struct cli_args a;
    struct convert_job j = {0};
    struct config given = {0};
    struct str out = {0};
    const char *model;
    int rc = cli_parse(&a, convert_options, argc, argv, &e);
    if (rc < 0)
        return command_fail(&e);
    rc = cli_single(&a, "convert", "MODEL", &model, &e);
    if (rc == 0)
        rc = split_settings(&a, &j.o, &given, &e);
    if (rc == 0 && strncmp(model, "random:", 7) != 0 && cli_has_setting(&a, &convert_group, "seed"))
        rc = err_set(&e, DS_EUSAGE,
                     "seed=: unsupported for an existing model, expected random:PRESET");
    if (rc == 0 && !cli_value(&a, "o"))
        rc = err_set(&e, DS_EUSAGE,
                     "convert: missing -o: expected OUT.gguf, OUT.bin or a directory");
    if (rc == 0 && str_copy(j.out, sizeof j.out, cli_value(&a, "o")))
        rc = err_set(&e, DS_ERANGE, "-o: path too long");
    j.force = cli_flag(&a, "force");
    if (rc == 0)
        rc = run(&j, model, &given, &e);
    if (rc == 0 && cli_flag(&a, "json"))
        print_json(&j, &out);
    else if (rc == 0)
        print_text(&j, &out);
    opt_release(&convert_group, &j.o);
    config_release(&given);
    cli_release(&a);
    if (rc < 0) {
        str_release(&out);
        return batch_signal ? 128 + (command_fail(&e), (int)batch_signal) : command_fail(&e);
    }
    return cli_print(&out);
}
