/* Widths and type sizes of conferences and journals. */
#include <stdio.h>
#include <string.h>

#include "figures/plot.h"

/* clang-format off */
static const struct venue venues[] = {
    /* name         width  base small line axis  dpi */
    {"icml",        3.25,  8,   6.5,  1.2, 0.6,  300},
    {"icml-wide",   6.75,  8,   6.5,  1.2, 0.6,  300},
    {"neurips",     5.5,   9,   7,    1.3, 0.6,  300},
    {"iclr",        5.5,   9,   7,    1.3, 0.6,  300},
    {"acl",         3.03,  8,   6.5,  1.2, 0.6,  300},
    {"acl-wide",    6.3,   8,   6.5,  1.2, 0.6,  300},
    {"ieee",        3.3,   8,   6.5,  1.2, 0.6,  600},
    {"ieee-wide",   6.9,   8,   6.5,  1.2, 0.6,  600},
    {"nature",      3.5,   7,   6,    1.0, 0.5,  450},
    {"nature-wide", 7.2,   7,   6,    1.0, 0.5,  450},
    {"slide",       10,    18,  14,   2.4, 1.2,  300},
};
/* clang-format on */

const struct venue *venue_find(const char *name)
{
    for (size_t i = 0; i < DS_LEN(venues); i++)
        if (strcmp(venues[i].name, name) == 0)
            return &venues[i];
    return NULL;
}

const struct venue *venue_at(int i)
{
    return i >= 0 && (size_t)i < DS_LEN(venues) ? &venues[i] : NULL;
}

const char *figure_venue(int i, char *words, size_t size)
{
    const struct venue *v = venue_at(i);
    if (!v)
        return NULL;
    snprintf(words, size, "%g in wide, text %g and %g pt", v->width, v->base, v->small);
    return v->name;
}
