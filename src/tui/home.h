/* The state of the Home view, private to the views/home*.c files. */
#ifndef DS_TUI_HOME_H
#define DS_TUI_HOME_H

#include "io/batch.h"
#include "io/host.h"
#include "io/runindex.h"
#include "io/runquery.h"
#include "tui/form.h"
#include "tui/view.h"
#include "tui/widgets.h"

enum { HOME_UNDO_MAX = 16, HOME_FILES_MAX = 64, HOME_CHOICES_MAX = 64, HOME_COLUMNS = 16 };
enum { HOME_TYPED = 64, HOME_TYPED_MAX = 32 };

enum home_kind { HOME_HEADING, HOME_RUN, HOME_PRESET, HOME_FILE };
struct home_item {
    enum home_kind kind;
    size_t at;           /* of the preset or file */
    struct run_row *row; /* of the index */
    char text[120];      /* of a heading */
};

/* A model, trace or log of the current directory. */
struct home_file {
    char name[256], what[64];
};

struct home_checkpoint {
    int64_t step;
    double bytes; /* NaN: no readable manifest */
    int is_best;
};

/* What the details pane shows of one run, read while it stays selected. */
struct home_details {
    char path[1024]; /* "" = none */
    double since;    /* when it was selected */
    struct runview *view;
    struct home_checkpoint *checkpoint;
    size_t checkpoints;
    double disk_bytes; /* NaN: not counted yet */
    int is_disk_cut;   /* it is more than that */
    struct home_setting {
        const char *key; /* static */
        char *value, *otherwise;
    } * setting; /* settings that differ from the preset */
    size_t settings;
    struct timespec dir; /* of the row when it was read: a checkpoint changes it */
};

struct home {
    struct form form; /* first member: the callbacks of the form receive the state of the view */
    struct runindex index;
    struct batch_list batches; /* of the runs directory */
    struct home_item *item;
    size_t items, cap;
    struct list list;
    char **preset;
    struct job_preset *fact; /* of each preset */
    size_t presets;
    struct home_file file[HOME_FILES_MAX];
    size_t files;
    double listed;      /* time when the directory was last read */
    double rests_until; /* by clock_mono: before, no list is read again for new rows or long logs */
    uint64_t of_hosts; /* changes of the hosts' lists that it has seen */
    char error[256];
    char asked[256]; /* presets of the form to open after confirmation */
    /* order and filter */
    int sort, is_descending, group; /* 1 + index of home_sorts or home_groups, 0 = none; from
                                       HOME_TYPED on: of typed_key */
    int ordered[3];                 /* these, when the items were made */
    char typed_key[HOME_TYPED_MAX][CONFIG_KEY_MAX + 1]; /* other keys, of :sort and :group */
    int typed_keys;
    int is_filtering; /* the line takes the keys */
    struct field filter;
    char typed[512];       /* the filter before completion */
    int candidate;         /* number of Tab presses, -1 = none */
    char wrong[256];       /* "" = the filter holds */
    struct runquery query; /* the newest that parsed */
    int shows_details;
    struct home_details details;
    /* actions */
    char acting[256], acting_path[1100]; /* the run that a question is about */
    struct host *acting_there;           /* the host that it is on, NULL: here */
    char trashed[HOME_UNDO_MAX][65];
    int n_trashed;
    struct job_launch launch; /* of a resume */
    int is_launching;
    struct {
        struct host *host;
        char run[256], path[1100];
        int64_t id;      /* of a request to the host, 0 none: for the run's checkpoints, or */
        int is_resuming; /* to resume it */
    } there;
    int is_picking; /* the checkpoint to resume from */
    struct {
        char from[24], text[80];
    } choice[HOME_CHOICES_MAX];
    struct list choices;
    struct area choice_rows, body; /* of the last draw */
    double mfu;                    /* utilisation of the newest run of this host; NaN = unknown */
    /* layout of the last draw */
    int table_y, table_rows, head_y, width[HOME_COLUMNS], x[HOME_COLUMNS];
};

/* home_items.c */
void home_load(struct view *v);
void home_rebuild(struct view *v); /* the items, from the index, filter, order and group */
/* A heading is never selected: the cursor moves on in the direction of `by`. */
void home_skip_headings(struct home *h, int by);

/* home.c */
struct run_row *home_run(const struct home *h); /* the selected run, NULL when it is another item */
void home_open_path(struct view *v, const char *path);

/* home_table.c */
void home_draw_table(struct view *v, struct area a);
/* The column whose title is at x, or NULL. */
const char *home_column_at(const struct home *h, int x);
const char *home_sort_key(const struct home *h, char *out, size_t size); /* "-COLUMN", "" = none */
const char *home_group_key(const struct home *h);                        /* "" = none */
/* A name of home_sorts or home_groups, or another key, as a value of `sort` or `group`; "none" is
 * 0. */
int home_key_find(struct home *h, const char *const *names, const char *key);
int home_key_next(const char *const *names, int at); /* the next name in turn; 0 after the last */
extern const char *const home_groups[];                                  /* NULL-terminated */
extern const char *const home_sorts[];

/* home_details.c */
void home_draw_details(struct view *v, struct area a);
int home_poll_details(struct view *v); /* 1 = draw again */
/* When it is to be polled at the latest, by clock_mono; HUGE_VAL = any time. */
double home_details_due(const struct home *h);
void home_details_release(struct home_details *d);

/* home_filter.c: the line above the table. */
void home_filter_begin(struct view *v);
int home_filter_event(struct view *v, const struct event *ev);
void home_filter_apply(struct view *v);
void home_filter_draw(struct view *v, struct area line);

/* home_there.c: resuming a run on a host. */
void home_resume_there(struct view *v, const char *from); /* "": asks for the checkpoints first */
int home_poll_there(struct view *v);                      /* 1 = draw again */

/* home_actions.c: what is done to the selected run; the functions of key rows. */
key_fn home_rename, home_tag, home_note, home_trash, home_restore, home_stop, home_like,
    home_resume, home_undo;
int home_offers(struct view *v, const struct key *k);
void home_pick_begin(struct view *v); /* of the choices */
void home_add_choice(struct home *h, const char *from, const char *text);
int home_pick_event(struct view *v, const struct event *ev);
void home_pick_draw(struct view *v, struct area a);
int home_poll_launch(struct view *v);

#endif
