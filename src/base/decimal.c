/* Reads decimal numbers: a few multiplications for nearly all of them, strtod for the rest. */
#include "base/decimal.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Powers of ten that a 64-bit mantissa holds exactly: 5^27 < 2^64. */
enum { EXACT_MAX = 27, DIGITS_MAX = 19 };

struct decimal {
    uint64_t digits; /* the first DIGITS_MAX significant ones */
    int exponent;    /* value = digits * 10^exponent */
    int significant; /* digits in `digits` */
    int is_negative, is_cut;
};

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The digits from p[i] on; returns where they end. */
static size_t read_digits(const char *p, size_t i, size_t n, int is_fraction, struct decimal *d)
{
    size_t from = i, kept;
    while (d->significant == 0 && i < n && p[i] == '0')
        i++;
    for (; i < n && is_digit(p[i]) && d->significant < DIGITS_MAX; i++, d->significant++)
        d->digits = d->digits * 10 + (uint64_t)(p[i] - '0');
    for (kept = i; i < n && is_digit(p[i]); i++)
        d->is_cut |= p[i] != '0';
    d->exponent += is_fraction ? -(int)(kept - from) : (int)(i - kept);
    return i;
}

/* Splits the text into digits and exponent; returns its bytes. */
static size_t split(const char *p, size_t n, char point, struct decimal *d)
{
    size_t i = 0, start, whole, end;
    if (i < n && (p[i] == '-' || p[i] == '+'))
        d->is_negative = p[i++] == '-';
    start = i;
    i = whole = read_digits(p, i, n, 0, d);
    if (i < n && p[i] == point)
        i = read_digits(p, i + 1, n, 1, d);
    end = i;
    if (whole == start && end <= start + 1) /* no digit: nothing, or a point alone */
        return 0;
    if (i < n && (p[i] == 'e' || p[i] == 'E')) {
        int down = 0, e = 0;
        i++;
        if (i < n && (p[i] == '-' || p[i] == '+'))
            down = p[i++] == '-';
        for (; i < n && is_digit(p[i]); end = ++i)
            e = e < 100000 ? e * 10 + (p[i] - '0') : e;
        if (is_digit(p[end - 1]) && end == i)
            d->exponent += down ? -e : e;
    }
    return end;
}

/* The product or quotient in extended precision is rounded once more to a double; that is right
 * unless it is exactly half-way between two doubles. */
static int read_fast(const struct decimal *d, double *out)
{
#if LDBL_MANT_DIG == 64 && LDBL_MAX_EXP == 16384
    static const long double ten[EXACT_MAX + 1] = {1e0L,  1e1L,  1e2L,  1e3L,  1e4L,  1e5L,  1e6L,
                                                   1e7L,  1e8L,  1e9L,  1e10L, 1e11L, 1e12L, 1e13L,
                                                   1e14L, 1e15L, 1e16L, 1e17L, 1e18L, 1e19L, 1e20L,
                                                   1e21L, 1e22L, 1e23L, 1e24L, 1e25L, 1e26L, 1e27L};
    volatile long double one = 1; /* an emulator, as valgrind, may compute with fewer bits */
    int e = d->exponent;
    uint64_t mantissa;
    if (d->is_cut || e < -EXACT_MAX || e > EXACT_MAX || one + LDBL_EPSILON == one)
        return 0;
    long double v = (long double)d->digits;
    v = e < 0 ? v / ten[-e] : v * ten[e];
    memcpy(&mantissa, &v, sizeof mantissa);
    if ((mantissa & 0x7ff) == 0x400)
        return 0;
    *out = (double)(d->is_negative ? -v : v);
    return 1;
#else
    (void)d;
    (void)out;
    return 0;
#endif
}

static double read_slow(const char *p, size_t n, char point)
{
    char text[DECIMAL_BYTES_MAX + 8];
    const char *local = localeconv()->decimal_point;
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] != point) {
            text[k++] = p[i];
            continue;
        }
        for (const char *c = local; *c && k < n + 6; c++)
            text[k++] = *c;
    }
    text[k] = '\0';
    return strtod(text, NULL);
}

size_t decimal_read(const char *p, size_t n, char point, double *out)
{
    struct decimal d = {0};
    size_t used = split(p, n < DECIMAL_BYTES_MAX + 1 ? n : DECIMAL_BYTES_MAX + 1, point, &d);
    if (used == 0 || used > DECIMAL_BYTES_MAX)
        return 0;
    if (!read_fast(&d, out))
        *out = read_slow(p, used, point);
    return used;
}

void decimal_print(double x, char out[DECIMAL_TEXT])
{
    int digits = 0;
    do
        snprintf(out, DECIMAL_TEXT, "%.*g", ++digits, x);
    while (digits < 17 && strtod(out, NULL) != x);
    if (strstr(out, "e+") && fabs(x) < 1e7) /* an exponent means fewer digits than the whole part */
        snprintf(out, DECIMAL_TEXT, "%.0f", x);
}
