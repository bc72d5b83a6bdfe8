/* State of a session and its answers; for serve*.c only. */
#ifndef DS_EVAL_SERVE_IMPL_H
#define DS_EVAL_SERVE_IMPL_H

#include "base/json.h"
#include "data/chat.h"
#include "eval/subject.h"
#include "models/sample.h"

/* The conversation whose ids are the current text; no messages: the text is not one. */
struct serve_talk {
    struct chat chat;
    struct ids end; /* ids that end an answer */
    struct chat_messages messages;
    size_t answer; /* where the last answer begins in the text */
    int is_edited; /* the text was changed before that: of the messages only the roles are true */
    int is_open;   /* chat and end are set */
};

/* One session: a text, its forced cells, and a what-if offset. */
struct serve {
    struct subject subject;
    struct subject other; /* of the last "compare"; model NULL: none */
    char other_path[1024];
    struct record *rec;
    struct str frame;
    uint64_t seq;
    int in, out;
    struct str lines; /* requests received, not yet answered */
    size_t looked;    /* bytes of them searched for "stop" */
    int must_stop;
    const char *version;
    struct ids ids;
    int8_t *force;   /* (L, force_n), -1 = the method decides */
    int16_t *expert; /* (L, force_n), -1 = the router decides */
    size_t force_n;  /* tokens that the table covers         */
    int forced;      /* values not -1                         */
    double offset;
    int lens_k, exit; /* exit: first layers only, 0: all */
    struct str marks; /* enum gen_mark of the first tokens of the text, a byte each */
    struct serve_talk talk;
};

/* A pass over a text. */
struct serve_pass {
    const struct subject *subject;
    const struct ids *ids;
    const int8_t *force;
    const int16_t *expert;
    double offset;
    int lens_k, exit;
    void (*more)(void *ctx, struct record *rec);
    void *ctx;
};
/* Fills rec with the probe, left open. */
int serve_trace(const struct serve_pass *a, struct record *rec, struct err *e) DS_CHECK;

/* Ends the record and sends it. */
int serve_answer(struct serve *s, struct record *rec, struct err *e) DS_CHECK;
/* Replaces the current text; its forced cells are freed.  Takes the ids. */
void serve_set_ids(struct serve *s, struct ids *ids);
/* The same from "text" or "ids" of a request. */
int serve_set_text(struct serve *s, const struct json_node *q, struct err *e) DS_CHECK;
/* Appends the items of a JSON array of ids, checked against the vocabulary. */
int serve_add_ids(const struct serve *s, const struct json_node *list, const char *what,
                  struct ids *out, struct err *e) DS_CHECK;
/* 1 when a "stop" request has arrived; stays so until must_stop is cleared. */
int serve_is_stopped(struct serve *s);
/* temperature, top_k, top_p and seed of request `what`. */
int serve_sampling(struct sample_options *o, const struct json_node *q, const char *what,
                   struct err *e) DS_CHECK;

int serve_compare(struct serve *s, const struct json_node *q, struct err *e) DS_CHECK;

/* serve_generate.c */
int serve_generate(struct serve *s, const struct json_node *q, struct err *e) DS_CHECK;
int serve_chat(struct serve *s, const struct json_node *q, struct err *e) DS_CHECK;
/* Appends sampled tokens to the current text with drafts: one more than "speculate" says. */
int serve_next_drafted(struct serve *s, const struct json_node *q, const struct sample_options *o,
                       struct err *e) DS_CHECK;
/* The format of the model's own chat template, NULL when it has none that is known. */
const char *serve_chat_name(const struct serve *s);
void serve_talk_forget(struct serve_talk *t);
void serve_talk_release(struct serve_talk *t);

#endif
