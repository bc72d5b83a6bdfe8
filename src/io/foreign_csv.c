/* Reads a CSV table of metrics as a run: a record per line, as if it had been logged. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "io/foreign.h"
#include "io/record.h"

enum { COLUMNS_MAX = 512, FILE_BYTES_MAX = 256 << 20, CELL_BYTES_MAX = 256 };

struct csv {
    const char *path;
    const char *at, *end; /* the rest of the file */
    size_t line;
    char *name[COLUMNS_MAX];
    size_t columns;
    struct record *rec;
    struct str frame;
};

/* One cell with its quotes removed (RFC 4180); returns what ended it: ',', '\n', or 0 at the
 * end. */
static int next_cell(struct csv *c, char cell[CELL_BYTES_MAX], struct err *e)
{
    size_t n = 0;
    int is_quoted = c->at < c->end && *c->at == '"';
    c->at += is_quoted;
    for (; c->at < c->end; c->at++) {
        if (is_quoted && *c->at == '"') {
            if (c->at + 1 == c->end || c->at[1] != '"') {
                is_quoted = 0;
                continue;
            }
            c->at++;
        } else if (!is_quoted && (*c->at == ',' || *c->at == '\n'))
            break;
        if (*c->at == '\r' && !is_quoted)
            continue;
        if (n + 1 == CELL_BYTES_MAX || *c->at == '\0' || *c->at == '\n')
            return err_set(e, DS_EFORMAT, "%s:%zu: cell too long or not text", c->path, c->line);
        cell[n++] = *c->at;
    }
    if (is_quoted)
        return err_set(e, DS_EFORMAT, "%s:%zu: missing closing quote", c->path, c->line);
    while (n > 0 && (cell[n - 1] == ' ' || cell[n - 1] == '\t'))
        n--;
    cell[n] = '\0';
    size_t blanks = strspn(cell, " \t");
    memmove(cell, cell + blanks, n - blanks + 1);
    return c->at == c->end ? 0 : *c->at++;
}

static int number(const char *cell, double *out)
{
    char *end;
    *out = strtod(cell, &end);
    return end != cell && *end == '\0';
}

static int read_names(struct csv *c, struct err *e)
{
    char cell[CELL_BYTES_MAX];
    double v;
    int more = ',';
    if (c->end - c->at >= 3 && memcmp(c->at, "\xEF\xBB\xBF", 3) == 0)
        c->at += 3;
    for (c->line = 1; more == ',';) {
        if ((more = next_cell(c, cell, e)) < 0)
            return more;
        if (!cell[0] || number(cell, &v))
            return err_set(e, DS_EFORMAT, "%s:1: \"%s\": expected a column name", c->path, cell);
        if (c->columns == COLUMNS_MAX)
            return err_set(e, DS_ERANGE, "%s:1: more than %d columns", c->path, COLUMNS_MAX);
        for (size_t i = 0; i < c->columns; i++)
            if (strcmp(c->name[i], cell) == 0)
                return err_set(e, DS_EFORMAT, "%s:1: duplicate column \"%s\"", c->path, cell);
        if (!(c->name[c->columns] = mem_strdup(cell)))
            return err_set(e, DS_EMEM, "%s", c->path);
        c->columns++;
    }
    return c->columns >= 2
               ? 0
               : err_set(e, DS_EFORMAT, "%s:1: expected a step column and metrics", c->path);
}

static int add_line(struct csv *c, const double *v, const unsigned char *has, struct runview *out,
                    struct err *e)
{
    double time = (double)NAN;
    uint64_t seq;
    struct value body;
    for (size_t i = 1; i < c->columns; i++)
        if (has[i] && strcmp(c->name[i], "time") == 0)
            time = v[i];
    record_begin(c->rec, "metric", (int64_t)v[0], time);
    for (size_t i = 1; i < c->columns; i++)
        if (has[i] && strcmp(c->name[i], "time") != 0)
            record_num(c->rec, c->name[i], v[i]);
    str_reset(&c->frame);
    int rc = record_end(c->rec, c->line, &c->frame, e);
    if (rc == 0 && record_parse(c->frame.p, c->frame.len, &seq, &body, e) <= 0)
        return e ? e->code : DS_EFORMAT;
    if (rc == 0)
        runview_take(out, body);
    return rc;
}

/* Reads the cells of one line; *is_blank when it has none. */
static int read_line(struct csv *c, double *v, unsigned char *has, int *is_blank, struct err *e)
{
    char cell[CELL_BYTES_MAX];
    size_t i = 0;
    int more = ',';
    *is_blank = 0;
    for (c->line++; more == ','; i++) {
        if ((more = next_cell(c, cell, e)) < 0)
            return more;
        if (i == 0 && more != ',' && !cell[0]) {
            *is_blank = 1;
            return 0;
        }
        if (i >= c->columns)
            return err_set(e, DS_EFORMAT, "%s:%zu: more cells than column names (%zu)", c->path,
                           c->line, c->columns);
        has[i] = cell[0] != '\0';
        if (has[i] && !number(cell, &v[i]))
            return err_set(e, DS_EFORMAT, "%s:%zu: column \"%s\": \"%.40s\": expected a number",
                           c->path, c->line, c->name[i], cell);
    }
    if (i != c->columns)
        return err_set(e, DS_EFORMAT, "%s:%zu: %zu cells, expected %zu", c->path, c->line, i,
                       c->columns);
    if (!has[0] || !(v[0] >= 0 && v[0] < 9e15) || v[0] != floor(v[0]))
        return err_set(e, DS_EFORMAT,
                       "%s:%zu: column \"%s\": expected a step, a non-negative integer", c->path,
                       c->line, c->name[0]);
    return 0;
}

static int add_head(struct csv *c, struct runview *out, struct err *e)
{
    const char *slash = strrchr(c->path, '/'), *name = slash ? slash + 1 : c->path;
    char stem[128];
    uint64_t seq;
    struct value body;
    str_copy(stem, sizeof stem, name);
    char *dot = strrchr(stem, '.');
    if (dot && dot > stem)
        *dot = '\0';
    record_begin(c->rec, "head", 0, (double)NAN);
    record_int(c->rec, "format", 1);
    record_str(c->rec, "run", stem);
    int rc = record_end(c->rec, 0, &c->frame, e);
    if (rc == 0 && record_parse(c->frame.p, c->frame.len, &seq, &body, e) <= 0)
        return e ? e->code : DS_EFORMAT;
    if (rc == 0)
        runview_take(out, body);
    return rc;
}

static int read_lines(struct csv *c, struct runview *out, struct err *e)
{
    double *v = mem_alloc(c->columns, sizeof *v);
    unsigned char *has = mem_alloc(c->columns, 1);
    int rc = v && has ? 0 : err_set(e, DS_EMEM, "%s", c->path), any = 0, is_blank;
    while (rc == 0 && c->at < c->end) {
        rc = read_line(c, v, has, &is_blank, e);
        if (rc == 0 && !is_blank) {
            any = 1;
            rc = add_line(c, v, has, out, e);
        }
    }
    if (rc == 0 && !any)
        rc = err_set(e, DS_ENOTFOUND, "%s: no lines after the column names", c->path);
    mem_free(v);
    mem_free(has);
    return rc;
}

int foreign_csv(struct runview **out, const char *path, struct err *e)
{
    struct csv c = {.path = path};
    struct str text = {0};
    struct runview *view = NULL;
    struct err own = {0};
    e = e ? e : &own;
    int rc = fs_read_file(&text, path, FILE_BYTES_MAX, e);
    if (rc == 0) {
        c.at = text.p;
        c.end = text.p + text.len;
        c.rec = record_new();
        view = runview_new();
        rc = c.rec && view ? read_names(&c, e) : err_set(e, DS_EMEM, "%s", path);
    }
    if (rc == 0)
        rc = add_head(&c, view, e);
    if (rc == 0)
        rc = read_lines(&c, view, e);
    if (rc == 0)
        *out = view;
    else
        runview_free(view);
    for (size_t i = 0; i < c.columns; i++)
        mem_free(c.name[i]);
    record_free(c.rec);
    str_release(&c.frame);
    str_release(&text);
    return rc;
}
