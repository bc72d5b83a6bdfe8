/* The Figures view: its state, and the child processes that check and draw figures. */
#ifndef DS_TUI_FIGURES_H
#define DS_TUI_FIGURES_H

#include "base/child.h"
#include "base/str.h"
#include "tui/view.h"
#include "tui/widgets.h"

enum { FIGURES_MAX = 64, FIGURES_VENUES = 32, FIGURES_FORMATS = 4 };
extern const char *const figures_format[FIGURES_FORMATS];

struct figure_entry {
    char name[48], title[128], needs[256];
    char why[256]; /* why the open runs do not allow it; "" when they do or are not checked */
    int is_checked;
};

/* One child at a time: the list of figures, which of them the runs allow, or a preview. */
enum figures_job { FIGURES_IDLE, FIGURES_LIST, FIGURES_CHECK, FIGURES_PREVIEW };

struct figures {
    struct list list;
    struct figure_entry figure[FIGURES_MAX];
    size_t n;
    char venue_name[FIGURES_VENUES][32];
    int venues;
    char **theme_name; /* sorted; fs_list_free */
    size_t themes;
    int venue, theme, format; /* settings: indices; theme -1 = light */
    int is_zoomed;            /* the preview has the whole view */
    enum figures_job job;
    struct child child;
    struct str out;                          /* its standard output */
    struct str runs_checked, key, key_shown; /* what the check, the child and the picture are of */
    double start_at;                         /* a preview starts when the cursor has rested */
    int has_moved, has_failed_list;
    /* the newest preview */
    struct str picture; /* PPM or PNG */
    const unsigned char *pixels;
    int width, height, is_png;
    unsigned serial;
    char error[256];
    struct str sixel_pixels; /* scaled to the area */
    int sixel_w, sixel_h;
    unsigned sixel_of;
    int list_cols;    /* width of the list in the last draw */
    int preview_cols; /* of the area, for the width that is asked for */
    enum graphics kind;
    int cell_w, cell_h;
};

/* Starts and reads children; 1 = something to draw changed.  Never blocks, except in scripts, where
 * it finishes everything that is due. */
int figures_work(struct view *v);
void figures_stop(struct figures *s);
double figures_due(struct view *v);
int figures_fd(struct view *v);
/* The figure under the cursor, NULL when the list is not known yet. */
const struct figure_entry *figures_at(const struct figures *s);
const char *figures_venue(const struct figures *s);
const char *figures_theme(const struct figures *s);
/* The runs figures are about: the current one and the marked ones. */
size_t figures_runs(struct view *v, const char **path, size_t max);

#endif
