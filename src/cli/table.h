/* Tables of text for the terminal: rows of cells, columns as wide as their widest cell. */
#ifndef DS_CLI_TABLE_H
#define DS_CLI_TABLE_H

#include <stddef.h>

#include "base/compiler.h"
#include "base/str.h"

/* The first row holds the titles.  Columns after the first are right-aligned. */
struct table {
    struct str *cell;
    size_t columns, n, cap;
    int failed;
};
void table_init(struct table *t, size_t columns);
void table_add(struct table *t, const char *text); /* sanitised, at most 100 cells, fitted 48 */
void table_addf(struct table *t, const char *fmt, ...) DS_PRINTF(2, 3);
void table_print(const struct table *t, struct str *out);
/* At most `width` cells wide (0: no limit).  Cells are cut to 48; columns are dropped by rank, the
 * highest first and of equals the rightmost; rank 0 is kept.  Then the first column is shortened.
 * The last line names what was dropped. */
void table_fit(const struct table *t, struct str *out, int width, const int *rank);
/* At most `width` cells wide (0: no limit): columns that do not fit follow below, each block with
 * the first column. */
void table_wrap(const struct table *t, struct str *out, int width);
/* A line of words, broken between words where it is wider than `width` cells (0: never). */
void table_note(struct str *out, const char *text, int width);
int table_width(const struct table *t);
void table_release(struct table *t);

#endif
