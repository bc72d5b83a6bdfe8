/* A growing byte string, always NUL-terminated.  Zero-initialise, str_release at the end.
 * A failed growth sets `failed` and later calls do nothing, after str_reset too: check once, at
 * the end, or let str_add_str carry it into the string that is checked. */
#ifndef DS_BASE_STR_H
#define DS_BASE_STR_H

#include <stdarg.h>
#include <stddef.h>

#include "base/compiler.h"

struct str {
    char *p;
    size_t len, cap;
    int failed, is_fixed;
};

void str_add(struct str *s, const char *text);
void str_add_bytes(struct str *s, const void *bytes, size_t n);
void str_add_char(struct str *s, char c);
/* The text of `piece`; a piece that has failed fails `s` as well. */
void str_add_str(struct str *s, const struct str *piece);
void str_addf(struct str *s, const char *fmt, ...) DS_PRINTF(2, 3);
void str_vaddf(struct str *s, const char *fmt, va_list ap) DS_PRINTF(2, 0);
/* JSON string literal with quotes; invalid UTF-8 becomes U+FFFD, and characters that a terminal
 * would hide or interpret (utf8_is_hidden) are always escaped. */
void str_add_json(struct str *s, const char *text, size_t n);
/* One word of a command of sh, quoted where it has to be. */
void str_add_shell(struct str *s, const char *word);
/* Finite number in shortest %.9g form; NaN and Inf become null. */
void str_add_json_num(struct str *s, double x);
/* The shortest decimal that reads back as the same double; NaN, Infinity and -Infinity as Python's
 * json writes and reads them, and pandas reads them in CSV. */
void str_add_real(struct str *s, double x);
/* The same for what is stored as fp32: it reads back as the same float. */
void str_add_real32(struct str *s, float x);
/* Makes room for `more` bytes after the text and a NUL; 0 when the string has failed. */
int str_reserve(struct str *s, size_t more);
/* A string in the caller's `room`, which needs no memory: cut off, and failed, where it is full. */
struct str str_in(char *room, size_t size);
/* Empties it for more text; what failed stays failed. */
void str_reset(struct str *s);
/* Empties it for another use: a failure that was dealt with is forgotten. */
void str_renew(struct str *s);
void str_release(struct str *s);
const char *str_text(const struct str *s); /* never NULL */

/* 12,345,678 -> "12.3M"; for display only.  `out` at least 16 bytes. */
const char *str_si(char out[16], double x);
/* Seconds -> "3m12s"; `out` at least 16 bytes. */
const char *str_duration(char out[16], double seconds);

/* Copies with truncation, always terminated; returns 1 if truncated. */
int str_copy(char *dst, size_t size, const char *src);
/* Optimal string alignment distance of two short names, for "did you mean". */
int str_distance(const char *a, const char *b);

#endif
