/* The new-run form of the Home view: every key of a preset, validated before the run starts. */
#ifndef DS_TUI_FORM_H
#define DS_TUI_FORM_H

#include "io/runindex.h"
#include "training/job.h"
#include "tui/view.h"
#include "tui/widgets.h"

enum { FORM_KEYS_MAX = 400, FORM_ROWS_MAX = FORM_KEYS_MAX + 8, FORM_PRESETS_MAX = 16 };
enum form_section { FORM_ESSENTIALS, FORM_METHOD, FORM_ALL, FORM_SECTIONS };
enum form_row_kind { FORM_SECTION, FORM_NAME, FORM_PRESET, FORM_KEY };
struct form_row {
    enum form_row_kind kind;
    size_t at; /* a section or a key */
};

/* What may be typed into the open field: files, presets, methods or the choices of a key. */
struct form_choices {
    char **name; /* fs_list_free */
    size_t n;
    struct list list;
    int is_chosen;    /* one was selected with Up or Down: Enter takes it */
    struct area rows; /* of the last draw; no rows = hidden */
    int above;
};

struct form {
    int is_open;
    char preset[256]; /* one or several, separated by spaces */
    char name[65];    /* of the run, "" = derived from the preset */
    const struct job_key *key;
    size_t keys;
    char *base[FORM_KEYS_MAX];  /* from the preset; NULL = a key of another method, default */
    char *value[FORM_KEYS_MAX]; /* NULL = unchanged from the preset or default */
    int is_folded[FORM_SECTIONS];
    struct form_row row[FORM_ROWS_MAX];
    struct list list; /* over row[] */
    int is_editing;
    struct field field;
    struct form_choices choices;
    char error[512];              /* "" = no error */
    struct form_row wrong;        /* row of the error; kind FORM_SECTION: none */
    struct job_estimate estimate; /* of the values shown, the open field included */
    int has_estimate;
    double gflops;    /* measured peak of this machine, 0 = not yet */
    struct area rows; /* area of the rows, `above` rows below the top of the view */
    int above;
    int is_starting; /* the process was started but has not written its first record */
    struct job_launch launch;
};

/* Opens the form of one or several presets and reports errors.  Close an open form first. */
void form_open(struct form *f, struct view *v, const char *preset);
/* The form of the presets of a run, with its settings where they differ. */
void form_open_like(struct form *f, struct view *v, struct run_row *run);
/* A run that is starting continues. */
void form_close(struct form *f, struct view *v);
size_t form_changed(const struct form *f); /* number of values changed by the user */
void form_draw(struct form *f, struct area whole);
/* 1 = taken. */
int form_event(struct form *f, struct view *v, const struct event *ev);
/* Moves to the next row whose key or help has the text, and unfolds its section.  1 = moved. */
int form_search(struct form *f, const char *text, int direction);
/* The key under the cursor; 0 = a section. */
int form_subject(const struct form *f, struct subject *out);
/* Polls a run that is starting.  1 = started: path is its directory, the form is closed. */
int form_poll(struct form *f, struct view *v, char *path, size_t size);

/* ---- between home_form.c and home_form_draw.c ---- */
const char *form_value(const struct form *f, size_t key);
/* Text of a row's value, as saved. */
const char *form_row_value(const struct form *f, const struct form_row *r);
const char *form_row_name(const struct form *f, const struct form_row *r);
struct form_row form_at(const struct form *f); /* the row under the cursor */
int form_is_path(const char *key);             /* its value is a file or directory */

#endif
