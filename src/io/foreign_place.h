/* Where a line that a program printed is in its run: "iter 100/500", "Epoch: [0][ 10/5005]",
 * a progress bar, or just "Epoch 3". */
#ifndef DS_IO_FOREIGN_PLACE_H
#define DS_IO_FOREIGN_PLACE_H

#include <stddef.h>
#include <stdint.h>

enum { LEAD_MAX = 96 }; /* bytes before the step: a date, a rank, the name of a logger */

struct place {
    int64_t step, steps;   /* of how many, 0 = not said */
    int64_t epoch, epochs; /* -1 and 0 = not said */
    int weight;            /* how sure a line with it is one of a training */
    int is_epoch;          /* that is all it says: step is the epoch */
    int is_common;         /* many other programs print it too: its metrics have to tell */
    int is_aside;          /* of an evaluation, which counts for itself */
    int is_headed;         /* of an epoch that a line before it named */
    size_t from, to;       /* of it in the line; metrics come before and after */
};
int place_find(const char *line, struct place *at);

/* "step 10", "step:10/500", "iteration    10/  1000 |", "s:10": what follows it, or NULL. */
const char *place_at(const char *p, const char *word, int64_t *step, int64_t *steps);

#endif
