/* Chat: reads messages from standard input, prints answers, and keeps the conversation in the KV
 * cache. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "cli/generate/generate.h"

enum { LINE_MAX_BYTES = 1 << 20, WAIT_MS = 100 };

/* Standard input by lines; a signal interrupts the wait. */
struct lines {
    char buf[4096];
    size_t at, n;
    int is_end;
};
enum line { LINE_END, LINE_READ, LINE_BROKEN /* Ctrl-C */ };

/* Polls with a timeout: a signal between checking the flag and read() would go unnoticed until the
 * next key.  0: Ctrl-C. */
static int wait_for_input(void)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    while (!gen_interrupted())
        if (poll(&p, 1, WAIT_MS) > 0)
            return 1;
    return 0;
}

static int read_more(struct lines *in, enum line *what, struct err *e)
{
    if (!wait_for_input()) {
        in->at = in->n = 0;
        *what = LINE_BROKEN;
        return 0;
    }
    ssize_t k = read(STDIN_FILENO, in->buf, sizeof in->buf);
    *what = LINE_READ;
    in->at = 0;
    in->n = k > 0 ? (size_t)k : 0;
    if (k < 0 && errno == EINTR) {
        *what = gen_interrupted() ? LINE_BROKEN : LINE_READ;
        return 0;
    }
    in->is_end = k == 0;
    return k < 0 ? err_errno(e, "read standard input") : 0;
}

static int read_line(struct lines *in, struct str *line, enum line *what, struct err *e)
{
    str_reset(line);
    for (;;) {
        const char *from = in->buf + in->at, *hit = memchr(from, '\n', in->n - in->at);
        size_t n = hit ? (size_t)(hit - from) : in->n - in->at;
        str_add_bytes(line, from, n);
        in->at += n + (hit != NULL);
        if (line->failed || line->len > LINE_MAX_BYTES)
            return err_set(e, DS_ERANGE, "standard input: line too long, must be at most %d bytes",
                           (int)LINE_MAX_BYTES);
        if (hit && line->len > 0 && line->p[line->len - 1] == '\r')
            line->p[--line->len] = '\0';
        if (hit || in->is_end) {
            *what = hit || line->len > 0 ? LINE_READ : LINE_END;
            return 0;
        }
        int rc = read_more(in, what, e);
        if (rc < 0 || *what == LINE_BROKEN)
            return rc;
    }
}

struct talk {
    const struct chat *chat;
    struct chat_messages *m; /* the conversation, system prompt first */
    size_t first, known;     /* messages kept by /reset; messages in the cache */
    struct gen_chat *gen;
    struct gen_show show;
    struct subject *s;
    int is_cut;         /* the cache has more than the last answer: the stop string that ended it */
    int is_interactive; /* standard input is a terminal */
};

/* One message and its answer.  A message that does not fit the context is dropped, and the chat
 * continues. */
static int answer(struct talk *t, const struct str *line, struct err *e)
{
    struct ids more = {0};
    struct gen_result *r = NULL;
    size_t before = t->m->n;
    int rc = chat_add(t->m, CHAT_USER, str_text(line), line->len, e);
    if (rc == 0)
        rc = chat_continues(t->chat, t->m, t->known, e);
    if (rc >= 0 && t->known > 0 && (rc == 0 || t->is_cut)) { /* earlier turns have changed */
        gen_chat_reset(t->gen);
        t->known = 0;
    }
    if (rc >= 0)
        rc = chat_encode(t->chat, t->s->tokenizer, t->m, t->known, &more, e);
    if (rc == 0)
        rc = gen_chat_turn(t->gen, &more, &r, e);
    ids_release(&more);
    if (rc == DS_ERANGE && t->is_interactive) {
        fprintf(stderr, "depthscope: %s (/reset starts a new conversation)\n", e->text);
        *e = (struct err){0};
        chat_drop(t->m, before);
        return 0;
    }
    if (rc == 0)
        rc = chat_add(t->m, CHAT_ASSISTANT, str_text(&r->text), r->text.len, e);
    if (rc < 0)
        return rc;
    t->known = t->m->n;
    t->is_cut = r->stop == GEN_STOP_TEXT;
    t->show.result = r;
    rc = t->show.json || t->show.depths ? gen_show_watch(&t->show).done(&t->show, 0, r) : 0;
    t->show.is_done[0] = 0;
    t->show.next = 0;
    if (rc == 0)
        rc = gen_show_end_line(&t->show);
    if (rc == 0)
        gen_show_cost(&t->show, r, 1);
    return rc;
}

/* Handles commands with a leading slash.  1: the chat ends. */
static int run_slash_command(struct talk *t, const char *word)
{
    if (strcmp(word, "/quit") == 0 || strcmp(word, "/exit") == 0)
        return 1;
    if (strcmp(word, "/reset") == 0) {
        gen_chat_reset(t->gen);
        chat_drop(t->m, t->first);
        t->known = 0;
        gen_note(&t->show, "new conversation");
    } else {
        gen_note(&t->show,
                 "/reset starts a new conversation, /quit or Ctrl-D ends, Ctrl-C stops an answer");
    }
    return 0;
}

static int ask(const struct talk *t, struct err *e)
{
    const char *prompt = t->show.has_colour ? "\x1b[1m>\x1b[0m " : "> ";
    return t->is_interactive ? cli_write(prompt, strlen(prompt), e) : 0;
}

static int talk(struct talk *t, struct err *e)
{
    struct lines in = {0};
    struct str line = {0};
    int rc = 0, is_over = 0;
    while (rc == 0 && !is_over) {
        enum line what = LINE_END;
        gen_interrupt_clear();
        rc = ask(t, e);
        if (rc == 0)
            rc = read_line(&in, &line, &what, e);
        if (rc < 0)
            break;
        if (what == LINE_BROKEN)
            rc = t->is_interactive ? cli_write("\n", 1, e) : 0;
        if (what == LINE_BROKEN && !t->is_interactive)
            break;
        is_over = what == LINE_END;
        if (what != LINE_READ || strspn(str_text(&line), " \t\r") == line.len)
            continue;
        if (t->is_interactive && line.p[0] == '/') /* from a pipe every line is a message */
            is_over = run_slash_command(t, line.p);
        else
            rc = answer(t, &line, e);
        if (gen_interrupted() && !t->is_interactive)
            break;
    }
    if (rc == 0 && t->is_interactive && str_text(&line)[0] == '\0')
        rc = cli_write("\n", 1, e);
    str_release(&line);
    return rc;
}

int generate_chat(const struct cli_args *a, struct subject *s, const struct chat *chat,
                  struct chat_messages *m, const struct gen_options *o,
                  const struct gen_rules *rules, struct err *e)
{
    struct talk t = {.chat = chat, .m = m, .first = m->n, .s = s};
    struct gen_watch watch;
    int rc = gen_show_init(&t.show, a, s, o, NULL, 1, 1, e);
    watch = gen_show_watch(&t.show);
    t.is_interactive = isatty(STDIN_FILENO) && t.show.is_terminal;
    if (rc == 0)
        rc = gen_chat_open(&t.gen, s, o, rules, &watch, e);
    if (rc == 0 && t.is_interactive)
        gen_note(&t.show, "%s, template %s, context %lld; /reset, /quit, Ctrl-C stops an answer",
                 subject_name(s), chat_template_name[chat->kind],
                 (long long)s->model->config.max_seq);
    if (rc == 0)
        rc = talk(&t, e);
    gen_chat_close(t.gen);
    gen_show_release(&t.show);
    return rc;
}
