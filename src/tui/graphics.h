/* Images in terminals: which protocol the terminal answers to, and one image on the screen beside
 * the cells.  Only the loop (app.c) writes what this produces. */
#ifndef DS_TUI_GRAPHICS_H
#define DS_TUI_GRAPHICS_H

#include "base/str.h"
#include "tui/canvas.h"
#include "tui/keymap.h"
#include "tui/term.h"
#include "tui/view.h"

struct placed {
    struct image image;
    int y, x, rows, cols; /* rows 0: none */
};
struct graphics_state {
    int is_asked;
    enum graphics kind;
    int cell_w, cell_h;
    struct placed want, shown; /* of this frame, and on the screen */
};

/* The questions: kitty graphics, cell size, and device attributes, which every terminal answers.
 * Inside tmux only those that tmux answers for itself: an image sent through it to the terminal
 * around it would not move with its pane. */
void graphics_probe(struct str *out, int is_in_tmux);
/* Changes when a reply arrived. */
int graphics_answers(const struct decoder *d);
enum graphics graphics_choose(const struct decoder *d, int cell_w, int cell_h);
/* Before the frame: removes the image on the screen unless the same one stays; drops the wanted one
 * when cells cover it. */
void graphics_begin(struct graphics_state *g, struct term *t, const struct canvas *c,
                    struct str *out);
/* After the frame: shows the wanted image. */
void graphics_end(struct graphics_state *g, struct str *out);

/* Appends a sixel picture of w x h pixels of 3 bytes, with at most 255 colours; *out is marked as
 * failed when out of memory. */
void sixel_encode(struct str *out, const unsigned char *rgb, int w, int h);
/* Mean colours of a w x h picture on a grid of cols x rows; out has 3 bytes each. */
void pixels_shrink(const unsigned char *rgb, int w, int h, unsigned char *out, int cols, int rows);

#endif
