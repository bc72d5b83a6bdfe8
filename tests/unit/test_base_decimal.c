/* Decimal numbers: what is one, and the same double as strtod gives. */
#include "t.h"

#include <inttypes.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/decimal.h"
#include "base/rng.h"

/* The bytes used; the value must be strtod's, bit for bit. */
static size_t same(const char *text)
{
    double got = -1, want = strtod(text, NULL);
    size_t used = decimal_read(text, strlen(text), '.', &got);
    t_truef(used == 0 || memcmp(&got, &want, sizeof got) == 0, "%s: %.17g, expected %.17g", text,
            got, want);
    return used;
}

T(a_number_ends_where_its_digits_end)
{
    double v = 0;
    t_eq(same("12"), 2);
    t_eq(same("-1.5e3,"), 6);
    t_eq(same("+.5x"), 3);
    t_eq(same("5.]"), 2);
    t_eq(same("1e5"), 3);
    t_eq(same("1E+05 "), 5);
    t_eq(same("1e"), 1);
    t_eq(same("1e-"), 1);
    t_eq(same("1.2.3"), 3);
    t_eq(decimal_read("0x10", 4, '.', &v), 1);
    t_eq(same("-0"), 2);
    t_eq(same(""), 0);
    t_eq(same("-"), 0);
    t_eq(same("."), 0);
    t_eq(same("e5"), 0);
    t_eq(same("nan"), 0);
    t_eq(decimal_read("1,5;2", 5, ',', &v), 3);
    t_true(v == 1.5);
    t_eq(decimal_read("1.5", 2, '.', &v), 2);
    t_true(v == 1);
}

T(values_are_correctly_rounded)
{
    static const char *const hard[] = {"9007199254740993",
                                       "9007199254740992.5",
                                       "18446744073709551615",
                                       "1.7976931348623157e308",
                                       "1.7976931348623159e308",
                                       "1e400",
                                       "-1e400",
                                       "4.9e-324",
                                       "2.4703282292062327e-324",
                                       "2.2250738585072011e-308",
                                       "1e-400",
                                       "0.1e-1000000000000",
                                       "0e1000000000000",
                                       "123456789012345678901",
                                       "1.00000000000000011102230246251565",
                                       "0.500000000000000166533453693773481063544750213623046875",
                                       "1e22",
                                       "1e23",
                                       "7.2057594037927933e16",
                                       "0.000000000000000000000000000001234567",
                                       "3.14159265358979323846264338327950288",
                                       "00000000000000000000000000000012.5"};
    for (size_t i = 0; i < sizeof hard / sizeof hard[0]; i++)
        t_eq(same(hard[i]), strlen(hard[i]));
}

T(random_values_in_every_notation_are_those_of_strtod)
{
    struct rng r;
    char text[400];
    rng_init(&r, 7, RNG_TEST, 0, 0);
    for (int i = 0; i < 300000; i++) {
        uint64_t bits = (uint64_t)rng_below(&r, UINT32_MAX) << 32 | rng_below(&r, UINT32_MAX);
        double v;
        memcpy(&v, &bits, sizeof v);
        if (i % 3)
            v = (double)(bits >> 11) / (double)((uint64_t)1 << (30 + i % 30));
        if (!isfinite(v))
            continue;
        int digits = 3 + i % 16;
        if (i % 2)
            snprintf(text, sizeof text, "%.*g", digits, v);
        else
            snprintf(text, sizeof text, i % 4 ? "%.*e" : "%.*f", digits, v);
        t_eq(same(text), strlen(text));
    }
}

T(a_number_of_more_bytes_than_any_program_writes_is_refused)
{
    static char text[DECIMAL_BYTES_MAX + 2];
    double v = -1;
    memset(text, '7', sizeof text);
    t_eq(decimal_read(text, DECIMAL_BYTES_MAX, '.', &v), DECIMAL_BYTES_MAX);
    t_true(isinf(v) && v > 0);
    t_eq(decimal_read(text, sizeof text, '.', &v), 0);
}

T(printed_numbers_are_short_exact_and_plain_below_ten_million)
{
    static const struct {
        double x;
        const char *text;
    } cases[] = {{300, "300"},
                 {10000, "10000"},
                 {-50, "-50"},
                 {9999999, "9999999"},
                 {9.5e6, "9500000"},
                 {1e7, "1e+07"},
                 {3e18, "3e+18"},
                 {0.1, "0.1"},
                 {1e-6, "1e-06"},
                 {2.5, "2.5"},
                 {123456.5, "123456.5"},
                 {0, "0"},
                 {1.0 / 3, "0.3333333333333333"}};
    for (size_t i = 0; i < DS_LEN(cases); i++) {
        char text[DECIMAL_TEXT];
        decimal_print(cases[i].x, text);
        t_str(text, cases[i].text);
        t_true(strtod(text, NULL) == cases[i].x);
    }
}
