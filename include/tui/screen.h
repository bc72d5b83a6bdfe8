/* A screen of the workbench without a terminal: cells with their final colours. */
#ifndef DS_TUI_SCREEN_H
#define DS_TUI_SCREEN_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "tui/app.h"

struct screen_cell {
    uint32_t rune;    /* 0 = right half of a wide rune */
    uint32_t mark[3]; /* combining marks, 0 = none */
    int fg, bg;       /* 0xRRGGBB, -1 = the default below */
    unsigned bold : 1, dim : 1, underline : 1, reverse : 1;
};
struct screen {
    int rows, cols;
    int fg, bg;               /* 0xRRGGBB for cells without a colour of their own */
    struct screen_cell *cell; /* (rows, cols), owned */
};

/* Opens o->paths in o->view at o->size, plays o->keys (NULL: none) and draws once.  o->script is
 * ignored.  Keys are parts separated by ';' or newlines: a line of a key script (term_dump.c),
 * ":COMMAND", or key names separated by blanks. */
int screen_make(struct screen *s, const struct tui_options *o, struct err *e) DS_CHECK;
void screen_release(struct screen *s);
/* Foreground and background of a cell as they look: defaults, reverse and dim applied. */
void screen_colours(const struct screen *s, const struct screen_cell *c, int *fg, int *bg);

/* Plain UTF-8, one line per row, trailing blanks cut. */
void screen_text(const struct screen *s, struct str *out);
/* With SGR sequences in 24-bit colour; every line ends with a reset. */
void screen_ansi(const struct screen *s, struct str *out);
/* One self-contained page. */
void screen_html(const struct screen *s, const char *title, struct str *out);

#endif
