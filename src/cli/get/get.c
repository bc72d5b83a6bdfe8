/* depthscope get NAME: downloads a known model, tokenizer or corpus. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "cli/batch/batch_child.h"
#include "cli/get/get.h"
#include "cli/cli.h"

struct cli_option get_options[] = {
    {.name = "o", .has_value = 1, .help = "DIR  output directory (default: ./NAME)"},
    {.name = "list", .help = "list known names with sizes and licences"},
    {.name = "json", .help = "one JSON document"},
    {.name = NULL},
};

struct get_options {
    char *base_url, *known;
};
#define AT(field) offsetof(struct get_options, field)
static const struct opt opts[] = {
    {"base_url", OPT_STRING, AT(base_url), "", 0, 0, NULL,
     "mirror: replaces scheme://host of every URL; default $DEPTHSCOPE_MIRROR", NULL},
    {"known", OPT_STRING, AT(known), "", 0, 0, NULL,
     "table to use instead of data/known/known.yaml", NULL},
};
const struct opt_group get_group = {.prefix = "", .title = "get", .opts = opts, .n = DS_LEN(opts)};

static int read_table(struct config *table, const struct get_options *o, struct err *e)
{
    char dir[1024], path[1200];
    if (o->known[0])
        return config_read_yaml(table, o->known, e);
    int rc = cli_data_dir(dir, sizeof dir, "data", e);
    if (rc == 0)
        rc = fs_join(path, sizeof path, dir, "known/known.yaml", e);
    return rc < 0 ? rc : config_read_yaml(table, path, e);
}

/* Total bytes of all files, -1 when any is unknown. */
static int64_t total(const struct get_known *k)
{
    int64_t n = 0;
    for (size_t i = 0; i < k->n; i++) {
        if (k->file[i].bytes < 0 || n > INT64_MAX - k->file[i].bytes)
            return -1;
        n += k->file[i].bytes;
    }
    return n;
}

/* ---- the list ---- */

/* Untrusted text of the table, sanitised, in a column of this many cells. */
static void safe_column(struct str *out, const char *words, int cells)
{
    struct str safe = {0};
    cli_add_safe(&safe, words, strlen(words), -1);
    str_add_bytes(out, str_text(&safe), safe.len);
    for (int n = utf8_cells(str_text(&safe), safe.len); n < cells; n++)
        str_add_char(out, ' ');
    out->failed |= safe.failed;
    str_release(&safe);
}

static int is_verified(const struct get_known *k)
{
    for (size_t i = 0; i < k->n; i++)
        if (!k->file[i].sha256[0])
            return 0;
    return 1;
}

static void list_row(struct str *out, const char *name, const struct get_known *k)
{
    char size[16] = "?";
    if (total(k) >= 0)
        str_si(size, (double)total(k));
    safe_column(out, name, 20);
    str_add_char(out, ' ');
    safe_column(out, k->kind, 10);
    str_addf(out, " %7s%s  ", size, total(k) >= 0 ? "B" : " ");
    safe_column(out, k->about, 0);
    str_add(out, " (");
    safe_column(out, k->licence, 0);
    str_add(out, is_verified(k) ? ")\n" : "; not verified yet)\n");
}

static void list_json(struct str *out, const char *name, const struct get_known *k)
{
    json_key(out, NULL);
    str_add(out, "{");
    json_add_str(out, "name", name);
    json_add_str(out, "kind", k->kind);
    json_add_str(out, "licence", k->licence);
    json_add_str(out, "about", k->about);
    json_key(out, "bytes");
    if (total(k) >= 0)
        str_addf(out, "%" PRId64, total(k));
    else
        str_add(out, "null");
    json_key(out, "files");
    str_add(out, "[");
    for (size_t i = 0; i < k->n; i++) {
        json_key(out, NULL);
        str_add(out, "{");
        json_add_str(out, "name", k->file[i].name);
        json_add_str(out, "sha256", k->file[i].sha256);
        json_key(out, "verified"); /* by a checksum of the table or of an earlier download */
        str_add(out, k->file[i].sha256[0] ? "true" : "false");
        json_add_str(out, "url", k->file[i].url);
        str_add(out, "}");
    }
    str_add(out, "]}");
}

static int list(const struct config *known, struct str *out, int json, struct err *e)
{
    char **names = NULL;
    size_t n = 0;
    struct get_known *k = mem_alloc(1, sizeof *k);
    int rc = k ? get_names(known, &names, &n, e) : err_set(e, DS_EMEM, "get");
    str_add(out, json ? "[" : "");
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = get_find(known, names[i], k, e);
        for (size_t f = 0; rc == 0 && f < k->n; f++)
            get_recall(&k->file[f]);
        if (rc == 0 && json)
            list_json(out, names[i], k);
        else if (rc == 0) {
            struct str row = {0};
            list_row(&row, names[i], k);
            cli_add_lines(out, str_text(&row), cli_columns(0));
            str_release(&row);
        }
    }
    str_add(out, json ? "]\n" : "");
    if (names)
        fs_list_free(names, n);
    mem_free(k);
    return rc;
}

/* ---- download ---- */

static void print_file(const struct get_job *j, struct str *out, int json)
{
    const struct get_file *f = j->file;
    char size[16];
    if (json) {
        json_key(out, NULL);
        str_add(out, "{");
        json_add_str(out, "name", f->name);
        json_add_int(out, "bytes", f->bytes);
        json_add_str(out, "sha256", f->sha256);
        json_key(out, "checked");
        str_add(out, j->checked ? "true" : "false");
        json_key(out, "was_there");
        str_add(out, j->was_there ? "true" : "false");
        if (f->is_recalled) {
            json_key(out, "first_download"); /* what it was compared with */
            str_add(out, "true");
        }
        str_add(out, "}");
        return;
    }
    str_add(out, "  ");
    cli_add_safe(out, f->name, strlen(f->name), -1);
    str_addf(out, "  %sB%s, ", str_si(size, (double)f->bytes),
             j->was_there ? ", already present" : "");
    str_addf(out,
             j->checked && f->is_recalled ? "equal to the first download\n"
             : j->checked                 ? "checksum verified\n"
             : j->was_there               ? "NOT VERIFIED: no known checksum; SHA-256 %s\n"
                            : "NOT VERIFIED: no known checksum; SHA-256 %s, recorded for later "
                              "downloads\n",
             f->sha256);
}

/* What was expected is not of the table. */
static int explain(const struct get_job *j, int rc, struct err *e)
{
    char path[1200];
    struct err why = *e;
    if ((rc != DS_EFORMAT && rc != DS_EEXIST) || !j->file->is_recalled ||
        !get_records_path(path, sizeof path))
        return rc;
    return err_set(e, rc, "%s (as at the first download; its line in %s can be removed)", why.text,
                   path);
}

static int fetch_all(struct get_known *k, const char *name, const char *dir, const char *mirror,
                     struct str *out, int json, struct err *e)
{
    int rc = fs_mkdirs(dir, e);
    if (json) {
        str_add(out, "{");
        json_add_str(out, "name", name);
        json_add_str(out, "dir", dir);
        json_add_str(out, "licence", k->licence);
        json_key(out, "files");
        str_add(out, "[");
    } else {
        const char *const words[] = {name, ": ", k->kind, ", licence ", k->licence, ", in ", dir};
        for (size_t i = 0; i < DS_LEN(words); i++)
            cli_add_safe(out, words[i], strlen(words[i]), -1);
        str_add(out, "\n");
    }
    batch_catch_signals();
    for (size_t i = 0; i < k->n && rc == 0; i++) {
        struct get_job j = {.dir = dir,
                            .mirror = mirror,
                            .is_terminal = isatty(STDERR_FILENO),
                            .file = &k->file[i]};
        get_recall(j.file);
        rc = get_fetch(&j, e);
        if (rc < 0)
            rc = explain(&j, rc, e);
        if (rc == 0 && !j.checked && !j.was_there)
            get_remember(j.file);
        if (rc == 0)
            print_file(&j, out, json);
    }
    str_add(out, json ? "]}\n" : "");
    return rc;
}

static int get(const struct cli_args *a, struct str *out, struct err *e)
{
    struct get_options o = {0};
    struct config table = {0};
    struct get_known *k = mem_alloc(1, sizeof *k);
    const char *name = NULL, *dir = cli_value(a, "o"), *mirror = getenv("DEPTHSCOPE_MIRROR");
    int rc = k ? cli_apply(a, &get_group, &o, e) : err_set(e, DS_EMEM, "get");
    int listing = cli_flag(a, "list"), json = cli_flag(a, "json");
    if (rc == 0 && listing && a->n_rest > 0)
        rc = err_set(e, DS_EUSAGE, "get: --list: unexpected name");
    if (rc == 0 && !listing)
        rc = cli_single(a, "get", "NAME", &name, e);
    if (rc == 0)
        rc = read_table(&table, &o, e);
    if (rc == 0 && listing)
        rc = list(&table, out, json, e);
    else if (rc == 0) {
        rc = get_find(&table, name, k, e);
        mirror = o.base_url[0] ? o.base_url : mirror && mirror[0] ? mirror : NULL;
        if (rc == 0)
            rc = fetch_all(k, name, dir ? dir : name, mirror, out, json, e);
    }
    opt_release(&get_group, &o);
    config_release(&table);
    mem_free(k);
    return rc;
}

int get_command(int argc, char **argv)
{
    return cli_report(argc, argv, get_options, get);
}
