/* Which terminal entry, how many colours, which glyphs: decided from words alone. */
#include <stdlib.h>
#include <string.h>

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

static const char *const plain[] = {"dumb", "vt1", "vt2", "vt5", "unknown", NULL};
static const char *const muxes[] = {"tmux", "screen", NULL};
static const char *const modern[] = {"xterm-kitty",   "kitty",   "foot",    "alacritty", "ghostty",
                                     "xterm-ghostty", "wezterm", "contour", "rio",       NULL};

static int colours_auto(const char *term, const char *colorterm, const char *no_color)
{
    if ((no_color && *no_color) || is_one_of(term, plain))
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
    if (is_one_of(name, plain)) {
        c->colours = 0;
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
    if (strcmp(want, "ascii") == 0 || !is_utf8 || !term || is_one_of(term, plain))
        return GLYPHS_ASCII;
    return begins(term, "linux") ? GLYPHS_SHADES
                                 : GLYPHS_BRAILLE; /* console fonts have no braille */
}
