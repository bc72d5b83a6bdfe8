/* "Did you mean": the name nearest in spelling to an unknown one. */
#ifndef DS_BASE_NEAREST_H
#define DS_BASE_NEAREST_H

#include <stddef.h>

enum { NEAREST_MAX = 200 };
struct nearest {
    const char *word;           /* borrowed */
    char name[NEAREST_MAX + 1]; /* the nearest so far; "" before the first */
    int distance;
};

struct nearest nearest_to(const char *word);
/* Offers one candidate.  A name that begins with the word counts as near, and so does a dotted key
 * whose last part is near.  Of equally near names the first wins. */
void nearest_try(struct nearest *n, const char *name);
/* 1 when the nearest name is near enough to be suggested. */
int nearest_is_close(const struct nearest *n);
/* ", did you mean NAME?" when it is close, else "".  Returns out. */
const char *nearest_hint(const struct nearest *n, char *out, size_t size);

#endif
