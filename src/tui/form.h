/* The new-run form of the Home view: every key of a preset, validated before the run starts. */
#ifndef DS_TUI_FORM_H
#define DS_TUI_FORM_H

#include "io/runindex.h"
#include "training/job.h"
#include "tui/view.h"
#include "tui/widgets.h"

enum { FORM_ROWS_MAX = 400, FORM_PRESETS_MAX = 16 };

struct form {
    int is_open;
    char preset[256]; /* one or several, separated by spaces */
    const struct job_key *key;
    size_t keys;
    char *base[FORM_ROWS_MAX];  /* from the preset; NULL = a key of another method, default */
    char *value[FORM_ROWS_MAX]; /* NULL = unchanged from the preset or default */
    struct list list;
    int is_editing;
    struct field field;
    char error[512];  /* "" = no error */
    size_t wrong;     /* row of the error; = keys: none */
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
int form_search(struct form *f, const char *text, int direction); /* 1 = moved to a hit */
/* Polls a run that is starting.  1 = started: path is its directory, the form is closed. */
int form_poll(struct form *f, struct view *v, char *path, size_t size);

#endif
