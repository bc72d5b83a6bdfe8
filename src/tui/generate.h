/* State and parts of the Generate view, private to generate*.c. */
#ifndef DS_TUI_GENERATE_H
#define DS_TUI_GENERATE_H

#include "tui/cells.h"
#include "tui/view.h"
#include "tui/widgets.h"
#include "tui/worker.h"

enum { GENERATE_TOP = 10, GENERATE_SETTINGS = 7 };

/* One of the most likely tokens at a place. */
struct generate_choice {
    int32_t id;
    double p;
    char piece[32]; /* for display, possibly cut */
    size_t len;
};
struct generate_token {
    int32_t id;
    char *piece; /* owned */
    size_t len;
    int is_prompt, top;
    int has_mark, mark; /* of drafts, as in cells_mark_role */
    double depth, flops, dense, logprob, time;
    unsigned char *run; /* (layers), owned */
    struct generate_choice choice[GENERATE_TOP];
};
enum generate_typing {
    GENERATE_NOT_TYPING,
    GENERATE_PROMPT,
    GENERATE_CHANGE,
    GENERATE_VALUE,
    GENERATE_FILE
};

struct generate {
    struct cells cells;
    struct session *session; /* NULL: not running               */
    char model[1024], given[1024], trouble[512], chat[32];
    int64_t newest_step;
    int context, asked, is_started, had_model;
    int started_newest;          /* follows_newest when it was started: undo changes that */
    struct runview *about, *now; /* head of the model; the text as a probe */
    struct generate_token *token;
    size_t n, cap, keep;    /* keep: tokens that the answer in progress continues */
    int layers, is_changed; /* is_changed: `now` is out of date */
    /* of the last complete answer; stop "" = none yet */
    char stop[32];
    double tok_s, block_ratio, flops_ratio;
    /* set by the user */
    struct field field;
    enum generate_typing typing;
    int is_chat, is_new, follows_newest, choice, choice_at; /* choice_at: its token */
    double temperature, top_p;
    int top_k, seed, max_tokens, speculate, draft_exit;
    unsigned char *tone; /* (n) roles of the tokens' text, owned */
    size_t tone_cap;
    int has_form; /* the sampling settings are open */
    struct list form;
    char wrong[160];
    char saving[1024];
    int head_rows;
};

/* generate_work.c */
void generate_start(struct view *v);
void generate_stop_process(struct generate *g);
void generate_forget(struct generate *g); /* drops the text */
/* A prompt, or a message of a chat. */
void generate_ask_text(struct view *v, const char *text);
/* Continues after the first `keep` tokens, with a text or a token (id >= 0) after them; NULL:
 * nothing. */
void generate_ask_from(struct view *v, size_t keep, const char *text, int32_t id);
void generate_ask_stop(struct view *v);
void generate_ask_save(struct view *v, const char *file);
int generate_take(struct view *v);               /* 1 = something was received */
int generate_prepare(struct view *v);            /* 0: no text yet */
double generate_speed(const struct generate *g); /* tokens per second so far, NaN unknown */

/* Sampling settings, one row each. */
struct generate_setting {
    const char *name, *help;
    int is_int;
    size_t offset;
    double min, max;
};
extern const struct generate_setting generate_setting[GENERATE_SETTINGS];
void generate_print(const struct generate *g, int i, char *out, size_t size);
/* 1 = taken; else `wrong` says what was expected. */
int generate_set(struct generate *g, int i, const char *text);

/* generate_draw.c */
void generate_draw(struct view *v, struct area a);

#endif
