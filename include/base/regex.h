/* Regular expressions by PCRE2 with limits, since patterns may come from files.  Exceeding a limit
 * is an error, never "no match". */
#ifndef DS_BASE_REGEX_H
#define DS_BASE_REGEX_H

#include <stddef.h>

#include "base/err.h"

struct regex;
/* UTF + UCP; \s is rewritten to \p{White_Space} so that classes equal Oniguruma's.  DS_EFORMAT over
 * 64 KiB, and for recursion or \C. */
int regex_new(struct regex **out, const char *pattern, size_t n, const char *what,
              struct err *e) DS_CHECK;
/* First match at or after `from`: 1 with *start,*end, 0 none, negative on a limit or bad UTF-8.
 * `valid` != 0: the caller has checked the UTF-8. Not thread-safe per regex. */
int regex_next(struct regex *r, const char *s, size_t n, size_t from, int valid, size_t *start,
               size_t *end, struct err *e) DS_CHECK;
void regex_free(struct regex *r);

#endif
