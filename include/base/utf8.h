/* UTF-8 decoding, and sanitising of text from files, network or models before it reaches a screen,
 * figure or log. */
#ifndef DS_BASE_UTF8_H
#define DS_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/* Decodes one code point; returns its length 1..4, or 0 for an invalid or truncated sequence
 * (then *cp holds the byte).  Strict: no overlong forms, no surrogates, nothing beyond
 * U+10FFFF. n > 0. */
int utf8_decode(const char *s, size_t n, uint32_t *cp);
int utf8_encode(char out[4], uint32_t cp); /* length, 0 if not encodable */
/* Offset of the first invalid byte, or n when all is valid. */
size_t utf8_valid(const char *s, size_t n);
/* Lower case or title case of cp; cp itself when there is none or it needs several code points. */
uint32_t utf8_lower(uint32_t cp);
uint32_t utf8_title(uint32_t cp);
/* 1 for combining marks (general category M). */
int utf8_is_mark(uint32_t cp);
/* 1 when no grapheme cluster (UAX 29) goes on from a to b; *state is 0 at the start of a text and
 * kept for the following pairs. */
int utf8_breaks_between(uint32_t a, uint32_t b, int32_t *state);
/* 1 for invisible characters that affect others: controls, bidi controls, zero-width characters,
 * tags, variation selectors, line and paragraph separators. */
int utf8_is_hidden(uint32_t cp);
/* Cells of one code point on a terminal: 0, 1, 2 (wcwidth; -1 never returned). */
int utf8_width(uint32_t cp);
/* Cells of a sanitised string. */
int utf8_cells(const char *s, size_t n);
/* Appends text made safe for a terminal, at most max_cells wide (truncated with "…", or ".." when
 * ascii); max_cells < 0 = no limit.  Control bytes and invalid bytes become <0xNN>, newline \n
 * becomes "\\n" and tab "\\t" (visible), controls beyond ASCII and bidi controls <U+XXXX>, private
 * and unassigned U+XXXX; zero-width joiners, tags and variation selectors are dropped; at most 3
 * combining marks per cell.  ascii != 0: everything beyond ASCII is <U+XXXX>. */
void utf8_sanitise(struct str *out, const char *s, size_t n, int max_cells, int ascii);
/* In place and without memory: every control, bidi control and invalid byte becomes '?', every
 * newline and tab a space; zero-width characters, tags and variation selectors are dropped. For
 * messages; the bytes of a truncated character become '?' too. */
void utf8_scrub(char *text);
/* Takes over the character set of the environment (LC_ALL, LC_CTYPE, LANG) when it is UTF-8, for
 * this thread and, but in a static program, all others.  Any other is taken for ASCII. */
void utf8_locale_begin(void);
int utf8_locale_is_utf8(void); /* the current one */

#endif
