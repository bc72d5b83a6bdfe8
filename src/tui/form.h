/* The form of a new run, a part of Home: every key of a preset, checked before anything starts. */
#ifndef DS_TUI_FORM_H
#define DS_TUI_FORM_H

#include "training/job.h"
#include "tui/view.h"
#include "tui/widgets.h"

enum { FORM_ROWS_MAX = 400, FORM_PRESETS_MAX = 16 };

struct form {
    int is_open;
    char preset[256]; /* one, or several with spaces between */
    const struct job_key *key;
    size_t keys;
    char *base[FORM_ROWS_MAX]; /* the preset's; NULL = a key of another method, the default holds */
    char *value[FORM_ROWS_MAX]; /* NULL = as the preset or the default has it */
    struct list list;
    int is_editing;
    struct field field;
    char error[512];  /* what is wrong; "" = nothing known */
    size_t wrong;     /* the row it is about; = keys: none */
    struct area rows; /* where they were drawn, `above` rows below the top of the view */
    int above;
    int is_starting; /* a process was started and has not written its first record */
    struct job_launch launch;
};

/* Opens the form of a preset (or several); what is wrong with it is said.  An open form must be closed first. */
void form_open(struct form *f, struct view *v, const char *preset);
/* A run that is starting goes on. */
void form_close(struct form *f, struct view *v);
size_t form_changed(const struct form *f); /* values that are not the preset's */
void form_draw(struct form *f, struct area whole);
/* 1 = taken. */
int form_event(struct form *f, struct view *v, const struct event *ev);
int form_search(struct form *f, const char *text, int direction); /* 1 = moved to a hit */
/* Looks after a run that is starting.  1 = it has begun: path is its directory, and the form is closed. */
int form_poll(struct form *f, struct view *v, char *path, size_t size);

#endif
