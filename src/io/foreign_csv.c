/* CSV tables of metrics: one line of column names, then one line per step. */
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "io/foreign.h"

enum { COLUMNS_MAX = 512, CELL_MAX = 256 };

struct csv {
    char *name[COLUMNS_MAX];
    int columns, step, time; /* step, time: their columns, -1 none */
    int64_t line;
};

/* One cell of a line with its quotes removed (RFC 4180); returns what follows it, NULL after the
 * last. */
static const char *next_cell(const char *p, const char *end, char cell[CELL_MAX], size_t *n)
{
    int is_quoted = p < end && *p == '"';
    *n = 0;
    for (p += is_quoted; p < end; p++) {
        if (is_quoted && *p == '"') {
            if (p + 1 == end || p[1] != '"') {
                is_quoted = 0;
                continue;
            }
            p++;
        } else if (!is_quoted && *p == ',') {
            return p + 1;
        }
        if (*n < CELL_MAX - 1)
            cell[(*n)++] = *p;
    }
    return NULL;
}

static int64_t names_of(struct csv *c, const char *p, size_t n, struct err *e)
{
    char cell[CELL_MAX];
    size_t len;
    const char *end = p + n;
    c->step = c->time = -1;
    if (n >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0)
        p += 3;
    while (p && c->columns < COLUMNS_MAX) {
        p = next_cell(p, end, cell, &len);
        cell[len] = '\0';
        if (strcmp(cell, "step") == 0)
            c->step = c->columns;
        if (strcmp(cell, "time") == 0)
            c->time = c->columns;
        if (!(c->name[c->columns++] = mem_strdup(cell)))
            return err_set(e, DS_EMEM, "out of memory");
    }
    return 0;
}

static void line_of(struct csv *c, struct foreign_out *out, const char *p, size_t n)
{
    double v[COLUMNS_MAX], time, step;
    unsigned char has[COLUMNS_MAX];
    char cell[CELL_MAX];
    const char *end = p + n;
    int k = 0;
    size_t len;
    for (; p && k < c->columns; k++) {
        p = next_cell(p, end, cell, &len);
        if (!(has[k] = (unsigned char)foreign_number(cell, len, 0, &v[k])))
            foreign_invalid(out, len > 0);
    }
    time = c->time >= 0 && c->time < k && has[c->time] ? v[c->time] : (double)NAN;
    step = c->step >= 0 && c->step < k && has[c->step] ? v[c->step]
           : c->step < 0 && k > 0 && has[0]            ? v[0]
                                                       : -1;
    for (int i = c->step < 0; i < k; i++)
        if (i != c->step && i != c->time && has[i] && step >= 0 && step < 9e15)
            foreign_point(out, c->name[i], strlen(c->name[i]), (int64_t)step, time, v[i]);
}

static int64_t take(void *state, struct foreign_out *out, const struct foreign_bytes *b,
                    struct err *e)
{
    struct csv *c = state;
    size_t at = 0, used;
    for (;;) {
        size_t n = foreign_line(b->p + at, b->n - at, b->is_end, &used);
        if (used == 0)
            return (int64_t)at;
        int64_t rc = 0;
        if (c->columns == 0)
            rc = names_of(c, b->p + at, n, e);
        else if (n > 0)
            line_of(c, out, b->p + at, n);
        if (rc < 0)
            return rc;
        at += used;
    }
}

static int recognise(const unsigned char *p, size_t n, const char *file, int is_all)
{
    const unsigned char *end = memchr(p, '\n', n);
    (void)file;
    (void)is_all;
    if (!end || !memchr(p, ',', (size_t)(end - p)) || *p == '{' || *p == '[')
        return 0;
    for (const unsigned char *q = p; q < end; q++)
        if (*q < 32 && *q != '\r' && *q != '\t')
            return 0;
    return 20;
}

static void release(void *state)
{
    struct csv *c = state;
    for (int i = 0; i < c->columns; i++)
        mem_free(c->name[i]);
}

const struct foreign_format foreign_csv = {
    .name = "csv",
    .title = "CSV table",
    .help = "one line of column names, then one line per step",
    .recognise = recognise,
    .state_size = sizeof(struct csv),
    .take = take,
    .release = release,
};
