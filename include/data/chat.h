/* Renders conversations as the model's chat template does.  Templates are Jinja programs; known
 * families are recognised by strings in them and implemented in C.  Turn markers become special
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
};
struct chat_messages {
    struct chat_message *v;
    size_t n, cap;
}; /* zero-initialise */
int chat_add(struct chat_messages *m, enum chat_role role, const char *text, size_t n,
             struct err *e) DS_CHECK;
/* [{"role": "user", "content": "..."}, ...] */
int chat_add_json(struct chat_messages *m, const struct json_node *list, const char *what,
                  struct err *e) DS_CHECK;
void chat_messages_release(struct chat_messages *m);

/* The chat format of a model. */
struct chat {
    enum chat_template kind;
    char bos[64], eos[64];  /* special tokens of the format */
    char system[512];       /* default system prompt; "" = none */
    int space_after_answer; /* Mistral's first template */
};
/* kind CHAT_AUTO: recognised from `text` (n), the template in the model's files (NULL: none); else
 * the requested family.  bos, eos: the tokenizer's, or NULL.  DS_EUSAGE suggesting template= when
 * it is unknown. */
int chat_init(struct chat *c, enum chat_template kind, const char *text, size_t n, const char *bos,
              const char *eos, struct err *e) DS_CHECK;
/* The same from the files of a model: chat_template.jinja or tokenizer_config.json of a directory,
 * or a GGUF file. */
int chat_open(struct chat *c, enum chat_template kind, const char *model, struct err *e) DS_CHECK;

/* Appends the template's text from a model's files; nothing if they have none. */
int chat_template_of(struct str *out, const char *model, struct err *e) DS_CHECK;

/* Renders the conversation with the template, up to the start of the next answer; for display and
 * tests.  from > 0: message from - 1 is an answer that the model has just given, and only what
 * follows its text is written.  DS_EUSAGE for an order of roles that the family does not
 * support. */
int chat_render(const struct chat *c, const struct chat_messages *m, size_t from, struct str *out,
                struct err *e) DS_CHECK;
/* The same as ids. */
int chat_encode(const struct chat *c, const struct tokenizer *t, const struct chat_messages *m,
                size_t from, struct ids *out, struct err *e) DS_CHECK;
/* The ids that end an answer in this family, as far as the tokenizer has them. */
int chat_ends(const struct chat *c, const struct tokenizer *t, struct ids *out,
              struct err *e) DS_CHECK;

#endif
