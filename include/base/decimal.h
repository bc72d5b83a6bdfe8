/* Decimal numbers: read from text that need not end with a NUL, correctly rounded and fast, and
 * printed as a setting. */
#ifndef DS_BASE_DECIMAL_H
#define DS_BASE_DECIMAL_H

#include <stddef.h>

/* The longest decimal number at p: sign, digits with at most one point, exponent ("-1.5e3", ".5",
 * "5.").  Returns its bytes and *out, the nearest double; 0 when p does not begin with one, or it is
 * longer than DECIMAL_BYTES_MAX.  A number beyond the range is infinite.  `point`: '.' or ','. */
enum { DECIMAL_BYTES_MAX = 1023 };
size_t decimal_read(const char *p, size_t n, char point, double *out);

/* As short as it is exact; whole numbers below ten million in full ("300", not "3e+02"). */
enum { DECIMAL_TEXT = 32 };
void decimal_print(double x, char out[DECIMAL_TEXT]);

#endif
