/* The selected probe, cursor position and marked tokens, shared by the Depth map and Signals and
 * saved with the settings of the views. */
#ifndef DS_TUI_CELLS_PICK_H
#define DS_TUI_CELLS_PICK_H

#include "io/runview.h"
#include "tui/view.h"

enum { PICK_MARKS_MAX = 16 };
struct pick {
    int text;     /* index of the probe text, -1 = the first one        */
    int64_t step; /* of the probe, while held                          */
    int is_held;  /* 0 = follow the newest probe                       */
    int token, layer;
    int mark[PICK_MARKS_MAX], marks;
};

void pick_load(struct pick *k, struct app *app);
void pick_save(const struct pick *k, struct app *app);
/* The selected probe, NULL when the run has none. */
const struct probe *pick_probe(const struct pick *k, const struct runview *r);
/* Index among the probes of the same text, and of the text among all texts; both count from 1. */
struct pick_place {
    int at, of, text, texts;
};
struct pick_place pick_place(const struct pick *k, const struct runview *r);
/* Moves to an earlier or later probe of the same text; at the newest it follows again.  1 =
 * moved. */
int pick_time(struct pick *k, const struct runview *r, int by);
int pick_text(struct pick *k, const struct runview *r, int by);
int pick_is_marked(const struct pick *k, int token);
/* 1 = done, 0 = too many marks. */
int pick_toggle(struct pick *k, int token);

#endif
