/* Themes of both screen and figures: files NAME.theme with key = value lines, comments, `inherit =
 * dark`, named palette entries, and roles given as entries, RGB or 16-colour names. */
#ifndef DS_FIGURES_PALETTE_H
#define DS_FIGURES_PALETTE_H

#include <stddef.h>

#include "base/err.h"

/* The purpose of a colour.  Adding a role: one row here and one in palette.c's table. */
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
    char name[256]; /* as long as a file's */
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
/* The built-in light theme, the default of figures. */
void theme_default_light(struct theme *t);
/* Parses the text of a theme file into *t (`inherit` is resolved as in theme_load); `what` names
 * the text in warnings.  Errors: out of memory, a missing or circular `inherit`, or no role. */
int theme_parse(struct theme *t, const char *text, size_t n, const char *what, struct str *warnings,
                struct err *e) DS_CHECK;
/* 0xRRGGBB of a colour for a figure: rgb, else the typical value of its 16-colour number, else
 * `otherwise`. (rgb -1 with ansi 0..15 means that colour in the palette of the terminal.) */
int colour_rgb(const struct colour *c, int otherwise);
/* The 16 terminal colours by number: typical 0xRRGGBB, and name in theme files. */
int colour16_rgb(int i);
const char *colour16_name(int i);
/* NAME ("dark"), searched in the user's theme directory, then in themes/ next to the program; or a
 * path. Unknown keys, bad colours and missing roles are warnings in *warnings (one line each, may
 * be NULL), not errors. */
int theme_load(struct theme *t, const char *name, struct str *warnings, struct err *e) DS_CHECK;
/* Logs the first of such warnings, with how many more there are; nothing when there are none. */
void theme_warn(const struct str *warnings);
/* Names of all themes found, sorted; free with fs_list_free. */
int theme_list(char ***names, size_t *n, struct err *e) DS_CHECK;

/* x in [0,1] (clamped; NaN -> -1) through a named map -> 0xRRGGBB.  Unknown name: viridis. */
int cmap_rgb(const char *map, double x);
int cmap_known(const char *map);

#endif
