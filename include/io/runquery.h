/* Filters of runs: `method=edp train.lr>1e-4 state=live tag=paper name~tiny val_loss<3.2`.
 *
 * Terms are separated by blanks and all must hold.  KEY OP VALUE: KEY is a column of the index or a
 * configuration key, OP one of = != > >= < <= and ~ (contains, case ignored); a VALUE with blanks
 * is put in double quotes.  A word alone is part of a name.  A missing value satisfies only !=.
 * Durations (age, eta) take a suffix s, m, h or d. */
#ifndef DS_IO_RUNQUERY_H
#define DS_IO_RUNQUERY_H

#include <stddef.h>

#include "base/err.h"
#include "io/runindex.h"

enum { RUNQUERY_TERMS_MAX = 32, RUNQUERY_VALUE_MAX = 255 };

enum runquery_op { QUERY_EQ, QUERY_NE, QUERY_GT, QUERY_GE, QUERY_LT, QUERY_LE, QUERY_HAS };

struct runquery_term {
    char key[CONFIG_KEY_MAX + 1];
    const struct run_column *column; /* NULL: a configuration key */
    enum runquery_op op;
    char value[RUNQUERY_VALUE_MAX + 1];
    double number; /* of the value; NaN when it is none */
    int at;        /* column of the key in the text, from 1 */
};
struct runquery {
    struct runquery_term term[RUNQUERY_TERMS_MAX];
    int n; /* 0: every run */
};
/* DS_EUSAGE "filter: column N: ..."; then *q is undefined. */
int runquery_parse(struct runquery *q, const char *text, struct err *e) DS_CHECK;
/* The same error for a key that is neither a column nor set in any run of the index. */
int runquery_check(const struct runquery *q, const struct runindex *x, struct err *e) DS_CHECK;
int runquery_match(const struct runquery *q, struct run_row *row, double now);
/* Candidates for the last word of `text`: keys with "=", then the values that runs have.  *word is
 * heap (fs_list_free); *from: where in `text` the word begins that they replace. */
int runquery_complete(char ***word, size_t *n, size_t *from, const char *text,
                      const struct runindex *x, double now, struct err *e) DS_CHECK;

#endif
