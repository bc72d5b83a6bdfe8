/* Conditions on a run, for scripts that wait: `val_loss<2.1 and step>=1000 or state=failed`.
 *
 * KEY OP VALUE, OP one of = != > >= < <= ; `and` (or a blank) binds tighter than `or`.  KEY is a metric
 * as it was logged, `state`, `step`, `age` (seconds since the newest record), TASK.NAME of an
 * evaluation, or a configuration key; double quotes around a VALUE with blanks. */
#ifndef DS_CLI_UNTIL_H
#define DS_CLI_UNTIL_H

#include "io/runview.h"

enum { UNTIL_MAX = 32, UNTIL_KEY_MAX = 256, UNTIL_VALUE_MAX = 128 };

enum until_op { UNTIL_EQ, UNTIL_NE, UNTIL_GE, UNTIL_LE, UNTIL_GT, UNTIL_LT };

struct until {
    struct clause {
        char key[UNTIL_KEY_MAX], value[UNTIL_VALUE_MAX];
        enum until_op op;
        double number;   /* of the value; NaN when it is text */
        int alternative; /* clauses of one number hold together */
        size_t seen;     /* points of the metric that were compared */
    } clause[UNTIL_MAX];
    int n; /* 0: no condition */
};
/* DS_EUSAGE "--until: column N: ...". */
int until_parse(struct until *u, const char *text, struct err *e) DS_CHECK;
/* Does it hold?  A metric is compared by its newest point, and by those that came since the last
 * call; a missing value satisfies nothing. */
int until_holds(struct until *u, const struct runview *v, double now);
/* The first key that the run has no value of, NULL when there is none. */
const char *until_missing(const struct until *u, const struct runview *v, double now);

#endif
