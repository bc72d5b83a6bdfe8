/* depthscope import FILE... -o OUT.mp: routing traces of other programs as a record file. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/import/import.h"
#include "cli/records.h"
#include "cli/version.h"
#include "data/tokenizer.h"

struct cli_option import_options[] = {
    {.name = "o", .has_value = 1, .help = "OUT.mp  the record file to write"},
    {.name = "tokenizer",
     .has_value = 1,
     .help = "T  tokenizer or model of the traced model, for the text of its token ids"},
    {.name = "no-text", .help = "keep the token ids without their text"},
    {.name = "format",
     .has_value = 1,
     .help = "F  npy, megatron, bigmoe, llama or csv (default: by content)"},
    {.name = "experts",
     .has_value = 1,
     .help = "N  experts of a layer (default: as the file says, else the highest number + 1)"},
    {.name = "layers",
     .has_value = 1,
     .help =
         "N  layers of the model, which also tells (tokens, layers, k) from (layers, tokens, k)"},
    {.name = "json", .help = "one JSON object: what was read, loads, dead and hottest experts"},
    {.name = NULL},
};

static int count_option(const struct cli_args *a, const char *name, int *out, struct err *e)
{
    const char *v = cli_value(a, name);
    char *end;
    if (!v)
        return 0;
    errno = 0;
    long n = strtol(v, &end, 10);
    if (!*v || *end || errno || n < 1 || n > ROUTING_LAYERS)
        return err_set(e, DS_EUSAGE, "import: --%s %.40s: must be 1 to %d", name, v,
                       ROUTING_LAYERS);
    *out = (int)n;
    return 0;
}

static const char *piece_of(void *ctx, int32_t id, size_t *n)
{
    return tokenizer_piece(ctx, id, n);
}

static int take_tokenizer(const struct cli_args *a, const struct routing_trace *t,
                          struct tokenizer **tok, struct routing_head *h, struct err *e)
{
    const char *what = cli_value(a, "tokenizer");
    if (!what)
        return 0;
    if (!routing_trace_facts(t).has_ids) {
        fprintf(stderr,
                "depthscope: import: the trace has no token ids: --tokenizer has no effect\n");
        return 0;
    }
    int rc = cli_tokenizer_open(tok, what, e);
    if (rc < 0)
        return rc;
    h->vocab = tokenizer_vocab(*tok);
    int64_t bad = routing_trace_bad_id(t, h->vocab);
    if (cli_flag(a, "no-text"))
        return 0;
    if (bad >= 0)
        return err_set(e, DS_ERANGE,
                       "import: token id %lld: must be below the vocabulary of %lld of %s; use the "
                       "traced model's tokenizer, or --no-text",
                       (long long)bad, (long long)h->vocab, what);
    h->piece = piece_of;
    h->ctx = *tok;
    return 0;
}

static void name_of(char *out, size_t size, const char *path)
{
    const char *slash = strrchr(path, '/');
    str_copy(out, size, slash && slash[1] ? slash + 1 : path);
    char *dot = strrchr(out, '.');
    if (dot && dot > out)
        *dot = '\0';
}

static int write_trace(const struct cli_args *a, const struct routing_trace *t, struct err *e)
{
    char run[128];
    struct tokenizer *tok = NULL;
    struct str frames = {0};
    struct routing_head h = {.run = run, .version = DEPTHSCOPE_VERSION, .time = clock_wall()};
    name_of(run, sizeof run, cli_value(a, "o") ? cli_value(a, "o") : a->rest[0]);
    int rc = take_tokenizer(a, t, &tok, &h, e);
    if (rc == 0 && cli_value(a, "o"))
        rc = routing_trace_write(t, &h, &frames, e);
    if (rc == 0 && cli_value(a, "o"))
        rc = cli_records_write(cli_value(a, "o"), &frames, e);
    str_release(&frames);
    tokenizer_free(tok);
    return rc;
}

static int import(const struct cli_args *a, struct str *out, struct err *e)
{
    struct routing_options o = {.format = cli_value(a, "format"),
                                .has_tokenizer = cli_value(a, "tokenizer") != NULL};
    struct routing_trace *t = NULL;
    int rc = count_option(a, "experts", &o.experts, e);
    if (rc == 0)
        rc = count_option(a, "layers", &o.layers, e);
    if (rc == 0 && a->n_override > 0)
        rc = err_set(e, DS_EUSAGE, "import: %.80s: unexpected setting", a->override[0]);
    if (rc == 0 && a->n_rest == 0)
        rc = err_set(e, DS_EUSAGE, "import: missing FILE (depthscope help import)");
    if (rc == 0 && !cli_value(a, "o") && !cli_flag(a, "json"))
        rc = err_set(e, DS_EUSAGE, "import: missing output: use -o OUT.mp or --json");
    if (rc == 0)
        rc = routing_trace_read(&t, a->rest, (size_t)a->n_rest, &o, e);
    if (rc == 0)
        rc = write_trace(a, t, e);
    if (rc == 0)
        import_report(t, cli_value(a, "o"), cli_flag(a, "json"), out);
    routing_trace_free(t);
    return rc;
}

int import_command(int argc, char **argv)
{
    return cli_report(argc, argv, import_options, import);
}
