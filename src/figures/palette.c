/* Roles, their default colours, and the built-in themes. */
#include "figures/palette.h"

#include <string.h>

#include "base/str.h"

/* The 16 terminal colours: names and typical RGB values. */
static const struct {
    const char *name;
    int rgb;
} ansi_table[16] = {
    {"black", 0x000000},        {"red", 0xCD3131},
    {"green", 0x0DBC79},        {"yellow", 0xB8A010},
    {"blue", 0x2472C8},         {"magenta", 0xBC3FBC},
    {"cyan", 0x11A8CD},         {"white", 0xE5E5E5},
    {"bright-black", 0x666666}, {"bright-red", 0xF14C4C},
    {"bright-green", 0x23D18B}, {"bright-yellow", 0xF5E543},
    {"bright-blue", 0x3B8EEA},  {"bright-magenta", 0xD670D6},
    {"bright-cyan", 0x29B8DB},  {"bright-white", 0xFFFFFF},
};

enum { B = 1, D = 2, U = 4, R = 8 }; /* bold, dim, underline, reverse */

/* One row per role: name, then rgb, 16-colour number and attributes in the dark and the light
 * theme. */
/* clang-format off */
static const struct { const char *name; struct { int rgb, ansi, attr; } dark, light; } role_table[ROLE_COUNT] = {
    [ROLE_TEXT]       = {"text",       {0xD8DEE9, -1, 0},  {0x1B1F24, -1, 0}},
    [ROLE_BACKGROUND] = {"background", {-1, -1, 0},        {-1, -1, 0}},
    [ROLE_DIM]        = {"dim",        {0x7C8796, 8, 0},   {0x6A737D, 8, 0}},
    [ROLE_TITLE]      = {"title",      {0xE8EDF5, 15, B},  {0x0B1F33, 0, B}},
    [ROLE_BORDER]     = {"border",     {0x4A5462, 8, 0},   {0xB4BCC6, 8, 0}},
    [ROLE_HINT]       = {"hint",       {0x8F9BAA, 7, 0},   {0x5C6670, 8, 0}},
    [ROLE_HINT_KEY]   = {"hint.key",   {0xE3B341, 11, B},  {0x8A5A00, 3, B}},
    [ROLE_STATUS]     = {"status",     {0xAEB9C7, 7, 0},   {0x3D4752, 0, 0}},
    [ROLE_CURSOR]     = {"cursor",     {0xFFFFFF, 15, R},  {0x000000, 0, R}},
    [ROLE_SELECTED]   = {"selected",   {0x8FC7FF, 14, B},  {0x0550AE, 4, B}},
    [ROLE_MARKED]     = {"marked",     {0xF2CC60, 11, B},  {0x9A6700, 3, B}},
    [ROLE_GOOD]       = {"good",       {0x6BC790, 10, 0},  {0x1A7F4B, 2, 0}},
    [ROLE_WARN]       = {"warn",       {0xE3B341, 11, 0},  {0x9A6700, 3, 0}},
    [ROLE_BAD]        = {"bad",        {0xF0786C, 9, B},   {0xC0322B, 1, B}},
    [ROLE_LINK]       = {"link",       {0x6CA8F0, 12, U},  {0x0550AE, 4, U}},
    [ROLE_AXIS]       = {"axis",       {0x98A3B1, 7, 0},   {0x30363D, 0, 0}},
    [ROLE_GRID]       = {"grid",       {0x2C333D, 8, 0},   {0xE6E9ED, 7, 0}},
    [ROLE_REFERENCE]  = {"reference",  {0xB8C0CC, 7, 0},   {0x57606A, 8, 0}},
    [ROLE_RUN]        = {"run",        {0x5AA2F2, 12, 0},  {0x2F6DB5, 4, 0}},
    [ROLE_SKIP]       = {"skip",       {0x2A313B, 8, 0},   {0xE4E8EE, 7, 0}},
    [ROLE_FORCED]     = {"forced",     {0x5F7188, 6, 0},   {0x93A5BD, 6, 0}},
    [ROLE_SERIES_0]   = {"series.0",   {0x6CA8F0, 12, 0},  {0x2F6DB5, 4, 0}},
    [ROLE_SERIES_1]   = {"series.1",   {0xF0786C, 9, 0},   {0xC8452F, 1, 0}},
    [ROLE_SERIES_2]   = {"series.2",   {0x6BC790, 10, 0},  {0x23875A, 2, 0}},
    [ROLE_SERIES_3]   = {"series.3",   {0xC29BEA, 13, 0},  {0x8655B0, 5, 0}},
    [ROLE_SERIES_4]   = {"series.4",   {0xE3B341, 11, 0},  {0xB97A0B, 3, 0}},
    [ROLE_SERIES_5]   = {"series.5",   {0x56C8D8, 14, 0},  {0x1B8FA3, 6, 0}},
    [ROLE_SERIES_6]   = {"series.6",   {0xEE8FC0, 5, 0},   {0xBF4C8B, 13, 0}},
    [ROLE_SERIES_7]   = {"series.7",   {0xA5ADBA, 7, 0},   {0x666E78, 8, 0}},
};
/* clang-format on */

int role_find(const char *name)
{
    for (int i = 0; i < ROLE_COUNT; i++)
        if (strcmp(role_table[i].name, name) == 0)
            return i;
    return -1;
}

const char *role_name(enum role r)
{
    return (int)r >= 0 && r < ROLE_COUNT ? role_table[r].name : "?";
}

static void fill(struct theme *t, const char *name, int is_light, const char *sequential)
{
    memset(t, 0, sizeof *t);
    str_copy(t->name, sizeof t->name, name);
    str_copy(t->sequential, sizeof t->sequential, sequential);
    str_copy(t->diverging, sizeof t->diverging, "balance");
    t->is_light = is_light;
    for (int i = 0; i < ROLE_COUNT; i++) {
        int rgb = is_light ? role_table[i].light.rgb : role_table[i].dark.rgb;
        int ansi = is_light ? role_table[i].light.ansi : role_table[i].dark.ansi;
        int attr = is_light ? role_table[i].light.attr : role_table[i].dark.attr;
        t->role[i] = (struct colour){.rgb = rgb,
                                     .ansi = ansi,
                                     .bold = attr & B ? 1 : 0,
                                     .dim = attr & D ? 1 : 0,
                                     .underline = attr & U ? 1 : 0,
                                     .reverse = attr & R ? 1 : 0};
    }
}

void theme_default(struct theme *t)
{
    fill(t, "dark", 0, "viridis");
}

void theme_default_light(struct theme *t)
{
    fill(t, "light", 1, "viridis");
}

int colour_rgb(const struct colour *c, int otherwise)
{
    if (c->rgb >= 0)
        return c->rgb;
    return c->ansi >= 0 && c->ansi < 16 ? ansi_table[c->ansi].rgb : otherwise;
}

int colour16_rgb(int i)
{
    return i >= 0 && i < 16 ? ansi_table[i].rgb : -1;
}

const char *colour16_name(int i)
{
    return i >= 0 && i < 16 ? ansi_table[i].name : "default";
}
