/* Arbitrary bytes as a theme (warnings only), and as a PNG with a recipe. */
#include <stdint.h>
#include <stdlib.h>

#include "base/str.h"
#include "figures/figure.h"
#include "figures/palette.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct theme t;
    struct str warnings = {0};
    struct err e = {0};
    struct figure_recipe r;
    theme_default(&t);
    if (theme_parse(&t, (const char *)data, size, "input", &warnings, &e) < 0 && !e.text[0])
        abort();
    for (int i = 0; i < ROLE_COUNT; i++)
        if (t.role[i].rgb > 0xFFFFFF || t.role[i].ansi > 15 || t.role[i].rgb < -1 ||
            t.role[i].ansi < -1)
            abort();
    str_release(&warnings);
    if (figure_recipe_read(&r, data, size, "input", &e) == 0)
        figure_recipe_release(&r);
    return 0;
}
