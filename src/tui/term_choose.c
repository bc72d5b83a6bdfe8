/* Chooses terminfo entry, number of colours and glyph set from names alone. */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "tui/term.h"

static int begins(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

static int is_one_of(const char *s, const char *const *list)
{
    for (; *list; list++)
        if (begins(s, *list))
            return 1;
    return 0;
}

/* Terminals with one byte per cell and without alternate screen, mouse or clipboard: they show
 * characters beyond ASCII and unknown private modes as garbage. */
static const struct {
    const char *begins;
    int colours;
} plain[] = {{"dumb", 0},   {"unknown", 0}, {"network", 0}, {"dialup", 0}, {"ansi", 8},
             {"pcansi", 8}, {"scoansi", 8}, {"cons25", 8},  {"wy", 0},     {"sun", 0},
             {"tvi", 0},    {"adm", 0},     {"hp", 0},      {"h19", 0},    {"vt0", 0},
             {"vt1", 0},    {"vt2", 0},     {"vt3", 0},     {"vt4", 0},    {"vt5", 0}};

static int plain_row(const char *term)
{
    for (size_t i = 0; i < DS_LEN(plain); i++)
        if (begins(term, plain[i].begins))
            return (int)i;
    return -1;
}

int term_is_plain(const char *term)
{
    return !term || !*term || plain_row(term) >= 0;
}

int term_holds_escape(const char *term, const char *sty, const char *tmux)
{
    return term && begins(term, "screen") && sty && *sty && !(tmux && *tmux);
}

int term_can_draw(const char *term)
{
    static const char *const none[] = {"dumb", "unknown", "network", "dialup", NULL};
    return term && *term && !is_one_of(term, none);
}

/* terminfo's names for monochrome variants are xterm-mono, ansi-m, linux-m. */
static int is_mono(const char *term)
{
    size_t n = strlen(term);
    return strstr(term, "-mono") || (n > 2 && strcmp(term + n - 2, "-m") == 0);
}

static const char *const muxes[] = {"tmux", "screen", NULL};
static const char *const modern[] = {"xterm-kitty",   "kitty",   "foot",    "alacritty", "ghostty",
                                     "xterm-ghostty", "wezterm", "contour", "rio",       NULL};

static int colours_auto(const char *term, const char *colorterm, const char *no_color)
{
    if ((no_color && *no_color) || is_mono(term))
        return 0;
    if (colorterm && (strstr(colorterm, "truecolor") || strstr(colorterm, "24bit")))
        return begins(term, "linux") ? 8 : 1 << 24;
    if (is_one_of(term, modern) || strstr(term, "direct"))
        return 1 << 24;
    if (strstr(term, "256color"))
        return 256;
    return begins(term, "linux") ? 8 : 16;
}

void term_choose(struct term_choice *c, const char *term, const char *colorterm,
                 const char *color_option, const char *no_color)
{
    const char *name = term && *term ? term : "dumb";
    const char *want = color_option ? color_option : "auto";
    memset(c, 0, sizeof *c);
    c->colours = strcmp(want, "never") == 0       ? 0
                 : strcmp(want, "16") == 0        ? 16
                 : strcmp(want, "256") == 0       ? 256
                 : strcmp(want, "truecolor") == 0 ? 1 << 24
                                                  : colours_auto(name, colorterm, no_color);
    c->entry = name;
    int row = plain_row(name);
    if (row >= 0) {
        c->colours = c->colours < plain[row].colours ? c->colours : plain[row].colours;
        return;
    }
    if (is_one_of(name, muxes)) {
        c->memory = c->colours > 256 ? terminfo_tmux_direct : terminfo_tmux_256;
        c->entry = c->colours > 256 ? "ds-tmux-direct" : "ds-tmux-256";
    } else if (begins(name, "xterm") || is_one_of(name, modern)) {
        c->memory = c->colours > 256 ? terminfo_xterm_direct : terminfo_xterm_256;
        c->entry = c->colours > 256 ? "ds-xterm-direct" : "ds-xterm-256";
    }
}

enum glyphs glyphs_choose(const char *option, int is_utf8, const char *term)
{
    const char *want = option ? option : "auto";
    if (strcmp(want, "braille") == 0)
        return GLYPHS_BRAILLE;
    if (strcmp(want, "shades") == 0)
        return GLYPHS_SHADES;
    if (strcmp(want, "ascii") == 0 || !is_utf8 || !term || plain_row(term) >= 0)
        return GLYPHS_ASCII;
    return begins(term, "linux") ? GLYPHS_SHADES
                                 : GLYPHS_BRAILLE; /* console fonts have no braille */
}

/* Replacements for glyphs that the fonts of the Linux console lack. */
uint32_t term_console_rune(uint32_t rune)
{
    static const struct {
        uint32_t rune;
        char ascii;
    } other[] = {{0x203A, '>'}, {0x2026, '.'},  {0x25CB, 'o'}, {0x25CF, '*'}, {0x25D0, '='},
                 {0x25C7, '~'}, {0x2713, '+'},  {0x25B4, '^'}, {0x25BE, 'v'}, {0x2504, '-'},
                 {0x2503, '|'}, {0x2575, '\''}, {0xD7, 'x'},   {0x256D, '+'}, {0x256E, '+'},
                 {0x256F, '+'}, {0x2570, '+'},  {0x25CC, 'o'}, {0x2424, '/'}};
    for (size_t i = 0; i < DS_LEN(other); i++)
        if (other[i].rune == rune)
            return (uint32_t)(unsigned char)other[i].ascii;
    return rune;
}
