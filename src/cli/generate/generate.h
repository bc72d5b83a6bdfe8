/* Parts of `generate`: request, display and chat; for src/cli/generate only. */
#ifndef DS_CLI_GENERATE_H
#define DS_CLI_GENERATE_H

#include "base/str.h"
#include "cli/cli.h"
#include "data/chat.h"
#include "eval/generation.h"

/* Output of texts: a single text is streamed, several are written whole and in order. */
struct gen_show {
    struct subject *s;
    const struct gen_options *o;
    struct str *out;     /* (n) pending output of each text */
    struct str *certain; /* (n) --stream: bytes since the last token */
    int *is_done;
    const struct gen_result *result; /* (n) */
    size_t n, next;                  /* next: the first that is not written */
    int is_terminal, has_colour, truecolour, is_utf8, columns;
    int json, stream, quiet, depths, echo; /* options; echo: the prompt is shown */
    int least, most;                       /* depths seen */
    const struct gen_pair *pair;           /* of --compare; NULL: none */
    double seconds; /* wall time of several texts, prefill included; 0: unknown */
    int has_scale;  /* the colour scale has been shown */
    int ends_line;  /* the last byte written was a newline */
    struct err *e;
};
int gen_show_init(struct gen_show *w, const struct cli_args *a, struct subject *s,
                  const struct gen_options *o, const struct gen_result *result, size_t n,
                  int is_chat, struct err *e) DS_CHECK;
void gen_show_release(struct gen_show *w);
struct gen_watch gen_show_watch(struct gen_show *w);
/* One result as JSON on a line. */
void gen_add_json(struct str *out, struct gen_show *w, size_t k, const struct gen_result *r);
/* A dimmed note to the user on stderr; nothing with --quiet. */
void gen_note(const struct gen_show *w, const char *fmt, ...) DS_PRINTF(2, 3);
/* The colour scale, if colours are on, then the compute cost of the texts. */
void gen_show_cost(struct gen_show *w, const struct gen_result *r, size_t n);
/* A newline unless the text ended with one, so that later output starts on its own line. */
int gen_show_end_line(struct gen_show *w) DS_CHECK;

/* 1 once after Ctrl-C. */
int gen_interrupted(void);
void gen_interrupt_clear(void);

/* Chat: reads messages from standard input line by line and prints answers until it ends. */
int generate_chat(const struct cli_args *a, struct subject *s, const struct chat *chat,
                  struct chat_messages *m, const struct gen_options *o,
                  const struct gen_rules *rules, struct err *e) DS_CHECK;

#endif
