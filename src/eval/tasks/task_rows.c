/* Reads rows from files: JSON Lines, a JSON array, or comma-separated values. */
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "eval/task_impl.h"

enum { FILE_MAX = 1 << 30, CELLS_MAX = 32 };

/* ---- unsupported files ---- */

static const struct foreign {
    const char *magic, *ending, *what, *help;
} foreign[] = {
    // clang-format off
    {"PAR1",          ".parquet", "parquet", "convert it to JSON Lines: pandas.read_parquet(FILE).to_json('NAME.jsonl', orient='records', lines=True)"},
    {"ARROW1",        ".arrow",   "an Arrow file", "convert it to JSON Lines: datasets.Dataset.from_file(FILE).to_json('NAME.jsonl')"},
    {"\x1f\x8b",      ".gz",      "compressed with gzip", "gunzip it first"},
    {"\x28\xb5\x2f\xfd", ".zst",  "compressed with zstd", "unzstd it first"},
    {"\xfd" "7zXZ",   ".xz",      "compressed with xz", "unxz it first"},
    {"BZh",           ".bz2",     "compressed with bzip2", "bunzip2 it first"},
    {"PK\x03\x04",    ".zip",     "a zip archive", "unzip it first"},
    // clang-format on
};

static int refuse(const char *path, const struct foreign *f, struct err *e)
{
    return err_set(e, DS_EFORMAT, "%.200s is %s: unsupported; %s", path, f->what, f->help);
}

int task_check_name(const char *path, struct err *e)
{
    size_t n = strlen(path);
    for (size_t i = 0; i < DS_LEN(foreign); i++) {
        size_t k = strlen(foreign[i].ending);
        if (n >= k && strcmp(path + n - k, foreign[i].ending) == 0)
            return refuse(path, &foreign[i], e);
    }
    return 0;
}

static int check_magic(const char *path, const char *text, size_t n, struct err *e)
{
    for (size_t i = 0; i < DS_LEN(foreign); i++) {
        size_t k = strlen(foreign[i].magic);
        if (n >= k && memcmp(text, foreign[i].magic, k) == 0)
            return refuse(path, &foreign[i], e);
    }
    return 0;
}

/* ---- text ---- */

int task_read_file(struct str *text, const char *path, struct err *e)
{
    int rc = fs_read_file(text, path, FILE_MAX, e);
    if (rc < 0)
        return rc;
    if ((rc = check_magic(path, str_text(text), text->len, e)) < 0)
        return rc;
    if (text->len >= 3 && memcmp(text->p, "\xef\xbb\xbf", 3) == 0) {
        text->len -= 3;
        memmove(text->p, text->p + 3, text->len + 1); /* a byte-order mark */
    }
    size_t bad = utf8_valid(str_text(text), text->len);
    if (bad < text->len)
        return err_set(e, DS_EFORMAT, "%s: byte %zu is not UTF-8", path, bad);
    const char *nul = text->len ? memchr(text->p, 0, text->len) : NULL;
    return nul ? err_set(e, DS_EFORMAT, "%s: byte %zu is 0: not a text file", path,
                         (size_t)(nul - text->p))
               : 0;
}

/* ---- JSON ---- */

static int add_row(struct task_docs *out, const struct json_node *node, const char *where,
                   task_row_fn *row, struct err *e)
{
    if (json_kind_of(node) != JSON_KIND_OBJECT)
        return err_set(e, DS_EFORMAT, "%s: not an object", where);
    struct task_doc *d = task_add_doc(out);
    return d ? row(d, node, where, e) : err_set(e, DS_EMEM, "out of memory for documents");
}

static int add_line(struct task_docs *out, const char *line, size_t n, const char *where,
                    task_row_fn *row, struct err *e)
{
    struct json *j = NULL;
    int rc = json_parse(&j, line, n, where, e);
    if (rc == 0)
        rc = add_row(out, json_root(j), where, row, e);
    json_free(j);
    return rc;
}

static int read_lines(struct task_docs *out, const struct str *text, const char *path,
                      task_row_fn *row, struct err *e)
{
    char where[1100];
    int rc = 0, line = 0;
    for (size_t at = 0; rc == 0 && at < text->len;) {
        const char *p = text->p + at, *end = memchr(p, '\n', text->len - at);
        size_t n = end ? (size_t)(end - p) : text->len - at, from = 0, to = n;
        at += n + 1;
        line++;
        task_strip(p, &from, &to);
        snprintf(where, sizeof where, "%.1000s:%d", path, line);
        if (from < to)
            rc = add_line(out, p + from, to - from, where, row, e);
    }
    return rc;
}

static int read_array(struct task_docs *out, const struct str *text, const char *path,
                      task_row_fn *row, struct err *e)
{
    char where[1100];
    struct json *j = NULL;
    int rc = json_parse(&j, text->p, text->len, path, e);
    for (size_t i = 0; rc == 0 && i < json_len(json_root(j)); i++) {
        snprintf(where, sizeof where, "%.1000s, row %zu", path, i + 1);
        rc = add_row(out, json_at(json_root(j), i), where, row, e);
    }
    json_free(j);
    return rc;
}

int task_text(const char **out, const struct json_node *row, const char *key, const char *where,
              struct err *e)
{
    size_t n;
    *out = json_str(json_get(row, key), &n);
    return *out ? 0 : err_set(e, DS_EFORMAT, "%s: missing string \"%s\"", where, key);
}

int64_t task_int(const struct json_node *row, const char *key)
{
    const struct json_node *x = json_get(row, key);
    const char *text = json_str(x, NULL);
    size_t n = text ? strlen(text) : 0;
    int64_t value =
        text ? (n == 1 && text[0] >= '0' && text[0] <= '9' ? text[0] - '0' : -1) : json_int(x, -1);
    return value >= 0 && value <= INT32_MAX ? value : -1;
}

/* ---- comma-separated values ---- */

struct csv {
    char *at, *end;
    int line;
};

/* Reads one cell and unquotes it in place.  *last: it ends its row. */
static int csv_cell(struct csv *c, char **cell, int *last, const char *path, struct err *e)
{
    char *to = c->at;
    int start = c->line, quoted = c->at < c->end && *c->at == '"';
    *cell = to;
    c->at += quoted;
    for (; c->at < c->end; c->at++) {
        if (quoted && *c->at == '"') {
            if (c->at + 1 < c->end && c->at[1] == '"')
                c->at++;
            else {
                quoted = 0;
                continue;
            }
        } else if (!quoted && (*c->at == ',' || *c->at == '\n'))
            break;
        c->line += *c->at == '\n';
        *to++ = *c->at;
    }
    if (quoted)
        return err_set(e, DS_EFORMAT, "%s:%d: truncated: a quote is never closed", path, start);
    *last = c->at >= c->end || *c->at == '\n';
    c->line += c->at < c->end && *c->at == '\n';
    if (*last && to > *cell && to[-1] == '\r')
        to--;
    c->at++; /* before *to is overwritten: it may be the comma itself */
    *to = '\0';
    return 0;
}

static int read_cells(struct task_docs *out, struct str *text, const char *path, task_cells_fn *row,
                      void *ctx, struct err *e)
{
    char *cell[CELLS_MAX];
    int rc = 0;
    struct csv c = {.at = text->p, .end = text->p ? text->p + text->len : NULL, .line = 1};
    while (rc == 0 && c.at < c.end) {
        size_t n = 0;
        int last = 0, line = c.line;
        while (rc == 0 && !last) {
            if (n == CELLS_MAX)
                rc = err_set(e, DS_EFORMAT, "%s:%d: too many columns: must be at most %d", path,
                             line, CELLS_MAX);
            else
                rc = csv_cell(&c, &cell[n++], &last, path, e);
        }
        if (rc == 0 && !(n == 1 && cell[0][0] == '\0'))
            rc = row(ctx, out, cell, n, line, path, e);
    }
    return rc;
}

int task_read_csv(struct task_docs *out, const char *path, task_cells_fn *row, struct err *e)
{
    struct str text = {0};
    int rc = task_read_file(&text, path, e);
    if (rc == 0)
        rc = read_cells(out, &text, path, row, NULL, e);
    if (rc == 0 && out->n == 0)
        rc = err_set(e, DS_EFORMAT, "%s: no documents", path);
    str_release(&text);
    return rc;
}

/* ---- rows of any kind ---- */

struct table {
    char *column[CELLS_MAX];
    size_t n;
    task_row_fn *row;
};

/* 1 for columns that hold a list; every other cell is a string. */
static int is_list(const char *column, const char *cell)
{
    struct json *j = NULL;
    if ((strcmp(column, "choices") != 0 && strcmp(column, "endings") != 0) ||
        json_parse(&j, cell, strlen(cell), "a cell", NULL) < 0)
        return 0;
    json_free(j);
    return 1;
}

static int header(struct table *t, char **cell, size_t n, struct err *e)
{
    for (t->n = 0; t->n < n; t->n++)
        if ((t->column[t->n] = mem_strdup(cell[t->n])) == NULL)
            return err_set(e, DS_EMEM, "out of memory for columns");
    return 0;
}

/* Converts a row to a JSON object. */
static int cells_row(void *ctx, struct task_docs *out, char **cell, size_t n, int line,
                     const char *path, struct err *e)
{
    struct table *t = ctx;
    struct str s = {0};
    char where[1100];
    if (t->n == 0)
        return header(t, cell, n, e);
    snprintf(where, sizeof where, "%.1000s:%d", path, line);
    if (n != t->n)
        return err_set(e, DS_EFORMAT, "%s: %zu columns, expected %zu as in the first line", where,
                       n, t->n);
    for (size_t i = 0; i < n; i++) {
        str_add(&s, i ? ", " : "{");
        str_add_json(&s, t->column[i], strlen(t->column[i]));
        str_add(&s, ": ");
        if (is_list(t->column[i], cell[i]))
            str_add(&s, cell[i]);
        else
            str_add_json(&s, cell[i], strlen(cell[i]));
    }
    str_add(&s, "}");
    int rc = s.failed ? err_set(e, DS_EMEM, "out of memory for a row")
                      : add_line(out, s.p, s.len, where, t->row, e);
    str_release(&s);
    return rc;
}

static int is_csv(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && strcmp(dot, ".csv") == 0;
}

int task_read_rows(struct task_docs *out, const char *path, task_row_fn *row, struct err *e)
{
    struct str text = {0};
    struct table t = {.row = row};
    int rc = task_read_file(&text, path, e);
    size_t from = 0, to = text.len;
    if (rc == 0)
        task_strip(str_text(&text), &from, &to);
    if (rc == 0)
        rc = is_csv(path)                       ? read_cells(out, &text, path, cells_row, &t, e)
             : from < to && text.p[from] == '[' ? read_array(out, &text, path, row, e)
                                                : read_lines(out, &text, path, row, e);
    if (rc == 0 && out->n == 0)
        rc = err_set(e, DS_EFORMAT, "%s: no documents", path);
    for (size_t i = 0; i < t.n; i++)
        mem_free(t.column[i]);
    str_release(&text);
    return rc;
}
