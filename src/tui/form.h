/* The new-run form of the Home view: every key of a preset, validated before the run starts. */
#ifndef DS_TUI_FORM_H
#define DS_TUI_FORM_H

#include "io/host.h"
#include "io/runindex.h"
#include "training/job.h"
#include "tui/view.h"
#include "tui/widgets.h"

enum { FORM_KEYS_MAX = 400, FORM_ROWS_MAX = FORM_KEYS_MAX + 9, FORM_PRESETS_MAX = 16 };
enum form_section { FORM_ESSENTIALS, FORM_METHOD, FORM_ALL, FORM_SECTIONS };
enum form_row_kind { FORM_SECTION, FORM_NAME, FORM_HOST, FORM_PRESET, FORM_KEY };
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
    char preset[256];          /* one or several, separated by spaces */
    char name[65];             /* of the run, "" = derived from the preset */
    struct host *const *host;  /* the open ones, borrowed */
    size_t hosts, there, home; /* there: 0 = this machine, else host[there - 1]; home: at first */
    char where[HOST_NAME + 1024]; /* the name of that machine */
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
    int is_starting;          /* the process was started but has not written its first record */
    struct job_launch launch; /* on a host only its name and, once it is listed, its path */
    int64_t asked;            /* the request to the host, 0: the run is to be started here */
    double begun;             /* when the host's answer came, 0 = not yet */
};

/* Opens the form of one or several presets and reports errors.  Close an open form first. */
void form_open(struct form *f, struct view *v, const char *preset);
/* The form of the presets of a run, with its settings where they differ.  A run on a host must be open. */
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

/* ---- home_form_host.c: the run is to be started on another machine ---- */
struct host *form_host(const struct form *f); /* NULL: here */
const char *form_host_label(const struct form *f, size_t k, char *out, size_t size);
void form_set_host(struct form *f, size_t k); /* 0: here */
/* Where a new run starts at first: with hosts alone in Home the first one that is up, else here. */
size_t form_host_first(const struct form *f, struct view *v);
size_t form_host_of(const struct form *f, const char *path); /* the host of a run, 0: none */
/* A setting of an open run, NULL: none. */
const char *form_setting_there(struct view *v, const char *path, const char *key);
int form_host_find(const struct form *f, const char *text, size_t *k, struct err *e) DS_CHECK;
int form_check_name_there(const struct form *f, const char *name, struct err *e) DS_CHECK;
int form_check_presets_there(const struct form *f, const char *presets, struct err *e) DS_CHECK;
int form_start_there(struct form *f, struct view *v, const char *const *setting, size_t n,
                     struct err *e) DS_CHECK;
/* As job_launch_state; LAUNCH_RUNS with an empty launch.dir: it runs but is not listed yet. */
enum launch_state form_state_there(struct form *f, char *words, size_t size);
void form_forget_there(struct form *f);

/* ---- between home_form.c and home_form_draw.c ---- */
const char *form_value(const struct form *f, size_t key);
/* Text of a row's value, as saved. */
const char *form_row_value(const struct form *f, const struct form_row *r);
const char *form_row_name(const struct form *f, const struct form_row *r);
struct form_row form_at(const struct form *f); /* the row under the cursor */
int form_is_path(const char *key);             /* its value is a file or directory */

#endif
