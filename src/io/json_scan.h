/* Tokens of JSON text, one after the other, without a tree: for logs of a million lines.  Strict as
 * RFC 8259 demands, and also what Python's json module writes: NaN, Infinity and -Infinity.
 * Strings are not checked to be UTF-8, and keys may repeat. */
#ifndef DS_IO_JSON_SCAN_H
#define DS_IO_JSON_SCAN_H

#include <stddef.h>

#include "base/str.h"

enum json_token {
    JSON_SCAN_BAD,  /* not JSON: p is where */
    JSON_SCAN_CUT,  /* the text ends inside the value */
    JSON_SCAN_DONE, /* the value is complete, p is after it */
    JSON_SCAN_OBJECT,
    JSON_SCAN_ARRAY,
    JSON_SCAN_CLOSE, /* of the innermost object or array */
    JSON_SCAN_KEY,   /* text: without its quotes, escapes as they are */
    JSON_SCAN_STRING,
    JSON_SCAN_NUMBER, /* value */
    JSON_SCAN_BOOL,   /* value: 0 or 1 */
    JSON_SCAN_NULL,
};

enum { JSON_SCAN_DEPTH = 64 };

/* Set p and end, zero the rest. */
struct json_scan {
    const char *p, *end;
    const char *text; /* of a key, string, number, bool or null */
    size_t n;
    double value;
    int depth, state, has_escape;
    char is_array[JSON_SCAN_DEPTH];
};

enum json_token json_scan_next(struct json_scan *s);
/* After OBJECT or ARRAY: passes over the rest of it; CLOSE, BAD or CUT. */
enum json_token json_scan_skip(struct json_scan *s);
/* Appends the key or string with its escapes replaced, as UTF-8 when it was; unpaired surrogates
 * become U+FFFD. */
void json_scan_text(const struct json_scan *s, struct str *out);
int json_scan_is(const struct json_scan *s, const char *text); /* without escapes */

#endif
