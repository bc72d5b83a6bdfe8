/* `generate` in parts: what is asked, how it is shown, and talk.  For src/cli/generate*.c. */
#ifndef DS_CLI_GENERATE_H
#define DS_CLI_GENERATE_H

#include "base/str.h"
#include "cli/use.h"
#include "data/chat.h"
#include "eval/generation.h"

/* Where texts go.  One text is written as it comes, several each whole and in order. */
struct gen_show {
    struct subject *s;
    const struct gen_options *o;
    struct str *out;     /* (n) what is not yet written of each */
    struct str *certain; /* (n) --stream: bytes since the last token */
    int *is_done;
    const struct gen_result *result; /* (n) */
    size_t n, next;                  /* next: the first that is not written */
    int is_terminal, has_colour, truecolour, is_utf8, columns;
    int json, stream, quiet, depths, echo; /* as asked; echo: the prompt is shown */
    int least, most;                       /* depths seen */
    double seconds;                        /* of several texts, prompts and all; 0: not known */
    int has_scale;                         /* the scale of colours has been shown */
    int ends_line;                         /* the last byte that was written ended a line */
    struct err *e;
};
int gen_show_init(struct gen_show *w, const struct cli_args *a, struct subject *s,
                  const struct gen_options *o, const struct gen_result *result, size_t n,
                  int is_chat, struct err *e) DS_CHECK;
void gen_show_release(struct gen_show *w);
struct gen_watch gen_show_watch(struct gen_show *w);
/* Everything that one result says, as JSON on a line. */
void gen_add_json(struct str *out, struct gen_show *w, size_t k, const struct gen_result *r);
/* Dim text for people, on stderr; nothing with --quiet. */
void gen_note(const struct gen_show *w, const char *fmt, ...) DS_PRINTF(2, 3);
/* The scale of colours, where there are some, then what the texts cost. */
void gen_show_cost(struct gen_show *w, const struct gen_result *r, size_t n);
/* A newline where the text has none, so that what follows stands on its own line. */
int gen_show_end_line(struct gen_show *w) DS_CHECK;

/* 1 once after Ctrl-C. */
int gen_interrupted(void);
void gen_interrupt_clear(void);

/* Lines of standard input are said, answers printed, until it ends. */
int generate_talk(const struct cli_args *a, struct subject *s, const struct chat *chat,
                  struct chat_messages *m, const struct gen_options *o,
                  const struct gen_rules *rules, struct err *e) DS_CHECK;

#endif
