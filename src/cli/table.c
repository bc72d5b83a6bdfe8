/* Prints tables, whole or fitted to the width of a terminal. */
#include "cli/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "cli/cli.h"

enum { CELL_MAX = 100, FITTED_MAX = 48, GAP = 2, LABEL_MIN = 8 };

void table_init(struct table *t, size_t columns)
{
    *t = (struct table){.columns = columns};
}

static struct str *new_cell(struct table *t)
{
    void *p = t->cell;
    if (t->failed || mem_grow(&p, &t->cap, t->n + 1, sizeof *t->cell) < 0) {
        t->failed = 1;
        return NULL;
    }
    t->cell = p;
    t->cell[t->n] = (struct str){0};
    return &t->cell[t->n++];
}

/* At most so many cells of safe text.  Prose loses its end; names, paths and settings lose their
 * middle, because they differ at their end. */
static void add_cut(struct str *out, const char *text, int most)
{
    const char *end = text + strlen(text);
    int cells = utf8_cells(text, (size_t)(end - text)), n;
    uint32_t cp;
    if (cells <= most || most < LABEL_MIN || strchr(text, ' ')) {
        cli_add_safe(out, text, (size_t)(end - text), most);
        return;
    }
    cli_add_safe(out, text, (size_t)(end - text), most - most / 2);
    for (; text < end && (n = utf8_decode(text, (size_t)(end - text), &cp)) > 0; text += n) {
        if (cells <= most / 2 && !utf8_is_mark(cp))
            break;
        cells -= utf8_width(cp);
    }
    str_add(out, text);
}

void table_add(struct table *t, const char *text)
{
    struct str *s = new_cell(t), safe = {0};
    cli_add_safe(&safe, text, strlen(text), -1);
    if (s)
        add_cut(s, str_text(&safe), CELL_MAX);
    t->failed |= safe.failed || (s && s->failed);
    str_release(&safe);
}

void table_addf(struct table *t, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    table_add(t, text);
}

static int cell_width(const struct table *t, size_t i)
{
    return utf8_cells(str_text(&t->cell[i]), t->cell[i].len);
}

/* Width of each column (mem_free), at most `most`; NULL when out of memory. */
static int *column_widths(const struct table *t, int most)
{
    int *width = mem_alloc(t->columns, sizeof *width);
    for (size_t i = 0; width && i < t->n; i++) {
        int w = cell_width(t, i);
        w = w < most ? w : most;
        if (w > width[i % t->columns])
            width[i % t->columns] = w;
    }
    return width;
}

static int total_width(const int *width, size_t n)
{
    int total = 0;
    for (size_t c = 0; c < n; c++)
        if (c == 0 || width[c] >= 0)
            total += width[c] + (c > 0 ? GAP : 0);
    return total;
}

/* Column c from `width[c]` cells; hidden where that is negative. */
static void print_columns(const struct table *t, struct str *out, const int *width)
{
    size_t last = 0;
    for (size_t c = 0; c < t->columns; c++)
        last = width[c] >= 0 ? c : last;
    for (size_t row = 0; row * t->columns < t->n; row++) {
        for (size_t c = 0; c < t->columns && row * t->columns + c < t->n; c++) {
            const struct str *s = &t->cell[row * t->columns + c];
            int w = cell_width(t, row * t->columns + c), pad = width[c] - w;
            if (width[c] < 0)
                continue;
            if (c > 0)
                str_addf(out, "%*s", GAP + (pad > 0 ? pad : 0), "");
            if (pad < 0)
                add_cut(out, str_text(s), width[c]);
            else
                str_add(out, str_text(s));
            if (c == 0 && last > 0 && pad > 0)
                str_addf(out, "%*s", pad, "");
        }
        str_add(out, "\n");
    }
}

void table_print(const struct table *t, struct str *out)
{
    int *width = column_widths(t, CELL_MAX);
    if (width && !t->failed)
        print_columns(t, out, width);
    else
        out->failed = 1;
    mem_free(width);
}

int table_width(const struct table *t)
{
    int *width = column_widths(t, FITTED_MAX), total = width ? total_width(width, t->columns) : 0;
    mem_free(width);
    return total;
}

void table_note(struct str *out, const char *text, int width)
{
    cli_add_wrapped(out, text + strspn(text, " "), 0, 0, width);
    str_add_char(out, '\n');
}

/* The column to drop next; 0: none. */
static size_t least_needed(const struct table *t, const int *width, const int *rank)
{
    size_t found = 0;
    for (size_t c = 1; c < t->columns; c++)
        if (width[c] >= 0 && rank[c] > 0 && (!found || rank[c] >= rank[found]))
            found = c;
    return found;
}

void table_fit(const struct table *t, struct str *out, int width, const int *rank)
{
    int *columns = column_widths(t, width > 0 ? FITTED_MAX : CELL_MAX), is_narrowed = 0;
    struct str dropped = {0};
    if (!columns || t->failed) {
        out->failed = 1;
        goto out;
    }
    for (size_t c; width > 0 && total_width(columns, t->columns) > width;) {
        if ((c = least_needed(t, columns, rank)) == 0)
            break;
        columns[c] = -1;
        is_narrowed = 1;
    }
    int excess = width > 0 ? total_width(columns, t->columns) - width : 0;
    if (excess > 0)
        columns[0] = columns[0] - excess > LABEL_MIN ? columns[0] - excess : LABEL_MIN;
    print_columns(t, out, columns);
    if (!is_narrowed)
        goto out;
    str_add(&dropped, "omitted to fit the terminal:");
    for (size_t c = 1, k = 0; c < t->columns; c++)
        if (columns[c] < 0)
            str_addf(&dropped, "%s %s", k++ ? "," : "", str_text(&t->cell[c]));
    table_note(out, str_text(&dropped), width);
    out->failed |= dropped.failed;
out:
    str_release(&dropped);
    mem_free(columns);
}

void table_wrap(const struct table *t, struct str *out, int width)
{
    int *columns = column_widths(t, width > 0 ? FITTED_MAX : CELL_MAX),
        *shown = mem_alloc(t->columns, sizeof *shown);
    if (!columns || !shown || t->failed) {
        out->failed = 1;
        goto out;
    }
    for (size_t begin = 1; begin < t->columns;) {
        size_t end = begin;
        int used = columns[0];
        while (end < t->columns &&
               (end == begin || width <= 0 || used + GAP + columns[end] <= width))
            used += GAP + columns[end++];
        for (size_t c = 1; c < t->columns; c++)
            shown[c] = c >= begin && c < end ? columns[c] : -1;
        shown[0] = columns[0];
        if (begin > 1)
            str_add(out, "\n");
        print_columns(t, out, shown);
        begin = end;
    }
out:
    mem_free(columns);
    mem_free(shown);
}

void table_release(struct table *t)
{
    for (size_t i = 0; i < t->n; i++)
        str_release(&t->cell[i]);
    mem_free(t->cell);
    *t = (struct table){0};
}
