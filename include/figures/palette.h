/* One palette for the screen and for the figures: files NAME.theme, key = value with comments,
 * `inherit = dark`, named palette entries, roles that refer to them, 16-colour names allowed. */
#ifndef DS_FIGURES_PALETTE_H
#define DS_FIGURES_PALETTE_H

#include <stddef.h>

#include "base/err.h"

/* What a colour is for.  Adding a role: one row here and one in palette.c's table. */
enum role {
    ROLE_TEXT,
    ROLE_BACKGROUND,
    ROLE_DIM,
    ROLE_TITLE,
    ROLE_BORDER,
    ROLE_HINT,
    ROLE_HINT_KEY,
    ROLE_STATUS,
    ROLE_CURSOR,
    ROLE_SELECTED,
    ROLE_MARKED,
    ROLE_GOOD,
    ROLE_WARN,
    ROLE_BAD,
    ROLE_LINK,
    ROLE_AXIS,
    ROLE_GRID,
    ROLE_REFERENCE, /* dense line, threshold */
    ROLE_RUN,
    ROLE_SKIP,
    ROLE_FORCED, /* executed / skipped / always-on cells */
    ROLE_SERIES_0,
    ROLE_SERIES_1,
    ROLE_SERIES_2,
    ROLE_SERIES_3,
    ROLE_SERIES_4,
    ROLE_SERIES_5,
    ROLE_SERIES_6,
    ROLE_SERIES_7,
    ROLE_COUNT
};
enum { ROLE_SERIES_COUNT = 8 };

/* rgb: 0xRRGGBB, or -1 = the terminal's default.  ansi: 0..15 for 16-colour terminals, -1 default.
 */
struct colour {
    int rgb, ansi;
    unsigned bold : 1, dim : 1, underline : 1, reverse : 1;
};

struct str;
enum cmap_kind { CMAP_SEQUENTIAL, CMAP_DIVERGING };
struct theme {
    char name[64];
    int is_light;
    struct colour role[ROLE_COUNT];
    char sequential[32],
        diverging[32]; /* names of colour maps: viridis, cividis, magma, grey; balance */
};
/* Role by the name used in theme files ("series.3"), -1 unknown; and back. */
int role_find(const char *name);
const char *role_name(enum role r);

/* The built-in dark theme: never fails. */
void theme_default(struct theme *t);
/* The built-in light theme, the one of paper figures. */
void theme_default_light(struct theme *t);
/* Reads the lines of a theme file onto *t (`inherit` is looked up as theme_load does); `what` names
 * the text in warnings.  Only memory and a missing or circular `inherit` are errors. */
int theme_parse(struct theme *t, const char *text, size_t n, const char *what, struct str *warnings,
                struct err *e) DS_CHECK;
/* 0xRRGGBB of a colour for a figure: rgb, else the usual value of its 16-colour number, else
 * `otherwise`. (rgb -1 with ansi 0..15 means: that colour of the terminal's own palette.) */
int colour_rgb(const struct colour *c, int otherwise);
/* The 16 terminal colours by number: their usual 0xRRGGBB and their name in theme files. */
int colour16_rgb(int i);
const char *colour16_name(int i);
/* NAME ("dark") searched in the user's theme folder, then themes/ beside the program, or a path.
 * Unknown keys, bad colours and missing roles are warnings in *warnings (one line each, may be
 * NULL), not errors. */
int theme_load(struct theme *t, const char *name, struct str *warnings, struct err *e) DS_CHECK;
/* Names of all themes found, sorted; free with fs_list_free. */
int theme_list(char ***names, size_t *n, struct err *e) DS_CHECK;

/* x in [0,1] (clamped; NaN -> -1) through a named map -> 0xRRGGBB.  Unknown name: viridis. */
int cmap_rgb(const char *map, double x);
int cmap_known(const char *map);

#endif
