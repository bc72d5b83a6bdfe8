/* State and parts of the Compare view, private to compare*.c: two probes of one text, A and B. */
#ifndef DS_TUI_COMPARE_H
#define DS_TUI_COMPARE_H

#include "base/child.h"
#include "tui/cells.h"
#include "tui/view.h"
#include "tui/widgets.h"
#include "tui/worker.h"

/* ---- alignment (compare_align.c) ---- */
/* Tokens of A and of B that cover the same bytes; one of each where the tokenizers agree. */
struct compare_group {
    int first[2], n[2];
};
struct compare_match {
    struct compare_group *group; /* in order; a leading special token of one side has none */
    int groups;
    int is_exact; /* the same tokens, one to one */
};
/* 1 = aligned, 0 = the texts differ, and `why` says where; DS_EMEM. */
int compare_align(struct compare_match *m, const struct probe *a, const struct probe *b, char *why,
                  size_t size) DS_CHECK;
void compare_match_release(struct compare_match *m);
/* The group of a token of a side, or the next one. */
int compare_group_at(const struct compare_match *m, int side, int token);

/* B - A of a group: executed share in a layer, in -1..1; with other layers (layer < 0), or where
 * the layers of A and B differ in number, of all layers. */
double compare_difference(const struct compare_match *m, const struct probe *a,
                          const struct probe *b, int group, int layer);
/* The next group in a direction, around the ends, whose decisions differ in any layer; -1 none. */
int compare_next(const struct compare_match *m, const struct probe *a, const struct probe *b,
                 int group, int direction);

/* Sums over the tokens of a group on one side; NaN when not recorded. */
struct compare_values {
    double nll, depth,
        flops; /* nats of the group's bytes; mean layers; mean share of the dense model */
};
struct compare_values compare_values(const struct compare_match *m, const struct probe *p, int side,
                                     int group);
/* Over the groups with a loss on both sides. */
struct compare_total {
    double loss[2];       /* nats per token if is_exact, else per byte */
    double run[2];        /* executed share of all cells               */
    double flops[2];      /* share of the dense model                  */
    double kl;            /* mean of the known ones, nats              */
    int is_bound;         /* kl: a lower bound                         */
    int differ, compared; /* cells, of A's layers; groups where the layers differ in number */
};
struct compare_total compare_total(const struct compare_match *m, const struct probe *a,
                                   const struct probe *b);

/* KL(A || B) of the predictions of the group's token given its past, nats.  From A's token vector
 * "kl" it is exact.  From the logit lens of both last layers it is that of a coarser distribution,
 * the tokens that both lists hold and one event for all others: a lower bound (*is_bound).  NaN:
 * not recorded, or the tokens differ. */
double compare_kl(const struct compare_match *m, const struct probe *a, const struct probe *b,
                  int group, int *is_bound);

/* ---- settings that differ ---- */
struct compare_setting {
    const char *key, *value[2]; /* borrowed; NULL: only the other side has the key */
};
/* Sorted by key; at most max, returns the number of all. */
size_t compare_settings(const struct runview *a, const struct runview *b,
                        struct compare_setting *out, size_t max);

/* ---- the view ---- */
enum { COMPARE_LENS = 5, COMPARE_SETTINGS_MAX = 256 };

struct compare_side {
    char path[1024];            /* "" = none */
    int there;                  /* it is a run of a host */
    const struct runview *view; /* borrowed: an open run; or `answered` */
    struct runview *answered;   /* head and probe from the process */
    const struct probe *probe;  /* of this draw, NULL none */
};

struct compare {
    struct compare_side side[2];
    char given[2][1024]; /* `:compare A B`; "" = the marked runs */
    struct cells cells[2], diff;
    struct runview *difference; /* a probe whose cells are B - A, by groups */
    struct compare_match match;
    struct compare_total total;
    char why[400]; /* nothing is shown: why */
    /* what `match` and `difference` were made of */
    const struct probe *made_of[2];
    const struct runview *made_view[2];
    uint64_t made_at[2];
    int text, texts, made_text; /* which of the texts that both have */
    int shown;                  /* enum compare_shown */
    /* the process with both models */
    struct session *session, *other; /* other: of B when the two cannot be asked in one process */
    char model[2][1024];
    int64_t best[2]; /* step of the model where a run has several */
    struct field prompt;
    struct str typed_over; /* what Esc brings back */
    int is_typing, is_live, asked, half, has_asked_text;
    char trouble[512];
    /* the settings that differ, and the table of several runs */
    int is_listing;
    struct list list;
    struct child table;
    struct str table_text, table_next; /* table_next: what the process has printed so far */
    char table_of[4096];
    uint64_t table_at; /* generations of its runs; is_behind: they have changed since */
    double table_started;
    int is_behind;
    struct scroll table_scroll;
    int head_rows;
};
enum compare_shown { COMPARE_ALL, COMPARE_MAPS, COMPARE_DIFFERENCE, COMPARE_SHOWN };

/* compare_work.c */
/* Chooses the pair and prepares the cells; 0: nothing to show, `why` says so. */
int compare_prepare(struct view *v);
/* How many runs are marked; more than two make a table. */
int compare_marked(struct view *v);
void compare_give(struct view *v, const char *a, const char *b); /* "" and "": the marked runs */
/* Path of the first side that has no weights to run on a text; NULL: both may have. */
const char *compare_without_weights(struct view *v);
/* Runs both models on a text. */
void compare_ask(struct view *v, const char *text);
int compare_take(struct view *v); /* 1 = something was received */
void compare_stop(struct compare *c);
/* The output of `depthscope compare` on the marked runs; starts it when they are others, and again
 * every few seconds while they grow.  NULL: none yet. */
const char *compare_table(struct view *v);

/* compare_draw.c */
void compare_draw(struct view *v, struct area a);

#endif
