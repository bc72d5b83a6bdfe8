/* Input: a chat template, a NUL, messages in JSON.  Either a one-line error, or a conversation that can be rendered in
 * two parts.  Then the same messages with every
 * template family. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "data/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_line(int rc, const struct err *e)
{
    if (rc < 0 && (!e->text[0] || strchr(e->text, '\n')))
        abort();
}

/* After an answer, a family writes a suffix of the whole. */
static void write_out(const struct chat *c, const struct chat_messages *m)
{
    struct str whole = {0}, rest = {0};
    struct err e = {0};
    int rc = chat_render(c, m, 0, &whole, &e);
    check_line(rc, &e);
    if (rc == 0 && m->n > 1 && m->v[m->n - 2].role == CHAT_ASSISTANT) {
        rc = chat_render(c, m, m->n - 1, &rest, &e);
        check_line(rc, &e);
        if (c->kind != CHAT_AUTO &&
            (rc < 0 || rest.len > whole.len ||
             memcmp(str_text(&whole) + whole.len - rest.len, str_text(&rest), rest.len) != 0))
            abort();
    }
    str_release(&whole);
    str_release(&rest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *zero = size ? memchr(text, 0, size) : NULL;
    size_t n = zero ? (size_t)(zero - text) : size;
    struct chat_messages m = {0};
    struct json *j = NULL;
    struct chat c = {0}, own;
    struct err e = {0};
    int known = chat_init(&c, CHAT_AUTO, text, n, NULL, NULL, &e);
    check_line(known, &e);
    if (zero && json_parse(&j, zero + 1, size - n - 1, "input", &e) == 0) {
        int rc = chat_add_json(&m, json_root(j), "input", &e);
        check_line(rc, &e);
        if (rc == 0 && known == 0)
            write_out(&c, &m);
        for (int kind = 1; rc == 0 && kind < CHAT_TEMPLATES; kind++)
            if (chat_init(&own, (enum chat_template)kind, text, n, "<s>", "</s>", &e) == 0) {
                write_out(&own, &m);
                chat_release(&own);
            }
    }
    chat_messages_release(&m);
    chat_release(&c);
    json_free(j);
    return 0;
}
