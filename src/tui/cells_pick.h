/* Which probe is looked at, where the cursor stands in it and which tokens are marked: one choice
 * that the Depth map and Signals share, and that is kept with the views' settings. */
#ifndef DS_TUI_CELLS_PICK_H
#define DS_TUI_CELLS_PICK_H

#include "io/runview.h"
#include "tui/view.h"

enum { PICK_MARKS_MAX = 16 };
struct pick {
    int text;     /* index of the probe text, -1 = the first one        */
    int64_t step; /* of the probe, while held                          */
    int is_held;  /* 0 = the newest, following                         */
    int token, layer;
    int mark[PICK_MARKS_MAX], marks;
};

void pick_load(struct pick *k, struct app *app);
void pick_save(const struct pick *k, struct app *app);
/* The probe it stands for, NULL when the run has none. */
const struct probe *pick_probe(const struct pick *k, const struct runview *r);
/* Place among the probes of the same text, and of the text among the texts; both count from 1. */
struct pick_place {
    int at, of, text, texts;
};
struct pick_place pick_place(const struct pick *k, const struct runview *r);
/* Earlier or later probe of the same text: at the newest it follows again.  1 = moved. */
int pick_time(struct pick *k, const struct runview *r, int by);
int pick_text(struct pick *k, const struct runview *r, int by);
int pick_is_marked(const struct pick *k, int token);
/* 1 = done, 0 = all places are taken. */
int pick_toggle(struct pick *k, int token);

#endif
