/* depthscope tokenize MODEL|TOKENIZER: prints the ids and pieces of a text. */
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "cli/cli.h"
#include "data/tokenizer.h"
#include "models/load.h"
#include "models/peft.h"

struct cli_option tokenize_options[] = {
    {.name = "text", .has_value = 1, .help = "TEXT  text to tokenise (default: standard input)"},
    {.name = "file", .has_value = 1, .help = "FILE  read the text from a file; - = standard input"},
    {.name = "special",
     .help = "parse special tokens in the text instead of treating them as plain text"},
    {.name = "json",
     .help = "one JSON object: ids, pieces, dropped_bytes (the vocabulary has no token for them)"},
    {.name = NULL},
};
enum { TEXT_MAX = 64 << 20 };

int cli_tokenizer_open(struct tokenizer **t, const char *what, struct err *e)
{
    char path[1024], base[1024], found[1100];
    struct err own = {0};
    int rc = DS_ENOTFOUND;
    if (strcmp(what, "bytes") == 0)
        return tokenizer_new_bytes(t, e);
    if (fs_exists(what))
        rc = tokenizer_load(t, what, &own);
    /* llama2.c models and tokenizers share a suffix, and models may come without a vocabulary. */
    if (rc >= 0)
        return 0;
    int other = model_locate(what, path, sizeof path, e), is_there = other == 0;
    if (is_there)
        other = tokenizer_find(found, sizeof found, path, e);
    if (is_there && other == DS_ENOTFOUND && model_base(path, base, sizeof base, NULL) == 1)
        other = tokenizer_find(found, sizeof found, base, e); /* adapters may come without one */
    if (rc != DS_ENOTFOUND && (other < 0 || strcmp(found, what) == 0))
        return err_set(e, rc, "%s", own.text);
    return other < 0 ? other : tokenizer_load(t, found, e);
}

static void print_json(struct str *out, const struct tokenizer *t, const struct ids *ids)
{
    str_add(out, "{");
    json_add_ids(out, "ids", ids->v, ids->n);
    json_key(out, "pieces");
    str_add(out, "[");
    for (size_t i = 0; i < ids->n; i++) {
        size_t n = 0;
        const char *p = tokenizer_piece(t, ids->v[i], &n);
        json_key(out, NULL);
        str_add_json(out, p ? p : "", n);
    }
    str_add(out, "]");
    json_add_int(out, "dropped_bytes", (int64_t)tokenizer_dropped_bytes(t));
    str_add(out, "}\n");
}

static void print_lines(struct str *out, const struct tokenizer *t, const struct ids *ids)
{
    for (size_t i = 0; i < ids->n; i++) {
        size_t n = 0;
        const char *p = tokenizer_piece(t, ids->v[i], &n);
        str_addf(out, "%8d  ", ids->v[i]);
        cli_add_safe(out, p ? p : "", n, -1);
        str_add(out, "\n");
    }
}

static int tokenize(const struct cli_args *a, struct str *out, struct err *e)
{
    struct tokenizer *t = NULL;
    struct str text = {0};
    struct ids ids = {0};
    const char *what, *given = cli_value(a, "text"), *file = cli_value(a, "file");
    int rc = cli_single(a, "tokenize", "MODEL or tokenizer.json", &what, e);
    if (rc == 0 && a->n_override > 0)
        rc = err_set(e, DS_EUSAGE, "tokenize: unexpected setting %s", a->override[0]);
    if (rc == 0 && given && file)
        rc = err_set(e, DS_EUSAGE, "tokenize: expected only one of --text and --file");
    if (rc == 0)
        rc = cli_tokenizer_open(&t, what, e);
    if (rc == 0 && given)
        str_add(&text, given);
    else if (rc == 0)
        rc = cli_read_text(&text, file ? file : "-", TEXT_MAX, e);
    if (rc == 0 && text.failed)
        rc = err_set(e, DS_EMEM, "tokenize: out of memory for the text");
    if (rc == 0)
        rc = tokenizer_encode(t, str_text(&text), text.len, cli_flag(a, "special"), &ids, e);
    if (rc == 0 && cli_flag(a, "json"))
        print_json(out, t, &ids);
    else if (rc == 0)
        print_lines(out, t, &ids);
    if (t)
        tokenizer_free(t);
    str_release(&text);
    ids_release(&ids);
    return rc;
}

int tokenize_command(int argc, char **argv)
{
    return cli_report(argc, argv, tokenize_options, tokenize);
}
