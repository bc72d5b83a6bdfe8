/* Renders conversations with the model's own chat template, a Jinja program (data/jinja), as
 * transformers does, or with the template of a family.  What the template writes can become special
 * tokens; message text never does. */
#ifndef DS_DATA_CHAT_H
#define DS_DATA_CHAT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"
#include "data/tokenizer.h"

enum chat_template {
    CHAT_AUTO,
    CHAT_CHATML,
    CHAT_LLAMA2,
    CHAT_LLAMA3,
    CHAT_LLAMA31,
    CHAT_MISTRAL,
    CHAT_ZEPHYR,
    CHAT_TEMPLATES
};
#define CHAT_CHOICES "auto|chatml|llama2|llama3|llama3.1|mistral|zephyr"
extern const char *const chat_template_name[CHAT_TEMPLATES];

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT };
struct chat_message {
    enum chat_role role;
    struct str text;
    struct str thought; /* of an answer, where it is kept apart ("reasoning_content") */
};
struct chat_messages {
    struct chat_message *v;
    size_t n, cap;
}; /* zero-initialise */
int chat_add(struct chat_messages *m, enum chat_role role, const char *text, size_t n,
             struct err *e) DS_CHECK;
/* [{"role": "user", "content": "..."}, ...]; "reasoning_content" (or "thinking", "reasoning") of an
 * answer.  Tool calls are refused. */
int chat_add_json(struct chat_messages *m, const struct json_node *list, const char *what,
                  struct err *e) DS_CHECK;
/* Keeps the first n. */
void chat_drop(struct chat_messages *m, size_t n);
void chat_messages_release(struct chat_messages *m);

enum chat_thinking {
    CHAT_THINKING_AUTO /* the template decides */,
    CHAT_THINKING_ON,
    CHAT_THINKING_OFF
};
#define CHAT_THINKING_CHOICES "auto|on|off"

/* The chat format of a model.  Zero-initialise; chat_release. */
struct chat {
    enum chat_template kind; /* CHAT_AUTO: the model's own */
    struct str text;         /* the template */
    char bos[64], eos[64];   /* bos_token and eos_token; "": undefined */
    /* Set after chat_init. */
    enum chat_thinking thinking; /* enable_thinking */
    int is_complete;             /* no start of a next answer follows the last message */
    int64_t now;                 /* Unix time of the template's dates; 0: the current time */
};
/* kind CHAT_AUTO: the template in the model's files, `text` (n; NULL: none); else the requested
 * family.  bos, eos: the tokenizer's, or NULL.  DS_EUSAGE suggesting template= when there is no
 * template, or it uses what is not supported. */
int chat_init(struct chat *c, enum chat_template kind, const char *text, size_t n, const char *bos,
              const char *eos, struct err *e) DS_CHECK;
/* The same from the files of a model: chat_template.jinja or tokenizer_config.json of a directory
 * (the "default" one of a list of named templates), or a GGUF file; where they have no template,
 * from those of its base (NULL: none). */
int chat_open(struct chat *c, enum chat_template kind, const char *model, const char *base,
              struct err *e) DS_CHECK;
void chat_release(struct chat *c);

/* Appends the template's text from a model's files or its base's; nothing if they have none. */
int chat_template_of(struct str *out, const char *model, const char *base, struct err *e) DS_CHECK;
/* Writes the template and its special tokens to a directory of a model's copy; nothing without
 * one. */
int chat_copy(const char *model, const char *base, const char *to, struct err *e) DS_CHECK;

/* Renders the conversation with the template, up to the start of the next answer; for display and
 * tests.  from > 0: message from - 1 is an answer that the model has just given, and only what
 * follows its text is written.  DS_EUSAGE when the template refuses the conversation, as for an
 * order of roles that it does not know. */
int chat_render(const struct chat *c, const struct chat_messages *m, size_t from, struct str *out,
                struct err *e) DS_CHECK;
/* The same as ids. */
int chat_encode(const struct chat *c, const struct tokenizer *t, const struct chat_messages *m,
                size_t from, struct ids *out, struct err *e) DS_CHECK;
/* Whether the conversation rendered anew is the part before answer from - 1, this answer and what
 * follows its text: 1, or 0 when the template changes earlier turns, as those that drop the thoughts
 * of earlier answers do. */
int chat_continues(const struct chat *c, const struct chat_messages *m, size_t from,
                   struct err *e) DS_CHECK;
/* The ids that end an answer in this format, as far as the tokenizer has them. */
int chat_ends(const struct chat *c, const struct tokenizer *t, struct ids *out,
              struct err *e) DS_CHECK;

#endif
