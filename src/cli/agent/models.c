/* See models.h. */
#include "models.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SEND_MAX = 4 << 20 };

static struct model_server *server_of(struct models *m, int64_t id)
{
    for (int i = 0; i < MODELS_MAX; i++)
        if (m->v[i].id == id)
            return &m->v[i];
    return NULL;
}

int models_open(struct models *m, int64_t id, const char *path, struct err *e)
{
    const char *argv[] = {"depthscope", "serve", "--", path, NULL};
    const struct child_setup how = {.argv = argv,
                                    .in = CHILD_SOCKET,
                                    .out = CHILD_PIPE,
                                    .err = CHILD_PIPE,
                                    .is_nonblocking = 1};
    struct model_server *s = server_of(m, 0);
    if (id <= 0 || server_of(m, id) || !s)
        return err_set(e, DS_EBUSY, "too many models are open");
    int rc = child_start(&s->child, &how, e);
    s->id = rc == 0 ? id : 0;
    return rc;
}

static void push(struct model_server *s)
{
    while (s->send.len > 0 && !s->send.failed) {
        ssize_t n = send(s->child.in, s->send.p, s->send.len, MSG_NOSIGNAL);
        if (n <= 0) /* full: later; dead: seen when reading */
            return;
        memmove(s->send.p, s->send.p + n, s->send.len - (size_t)n);
        s->send.len -= (size_t)n;
    }
}

void models_say(struct models *m, int64_t id, const char *line)
{
    struct model_server *s = id > 0 ? server_of(m, id) : NULL;
    if (!s || s->send.len + strlen(line) > SEND_MAX)
        return;
    str_add(&s->send, line);
    str_add_char(&s->send, '\n');
    if (s->send.failed)
        models_break(m, id);
    else
        push(s);
}

void models_break(struct models *m, int64_t id)
{
    struct model_server *s = id > 0 ? server_of(m, id) : NULL;
    if (s && s->child.pid > 0)
        kill(s->child.pid, SIGKILL);
}

static void hang(struct model_server *s)
{
    child_close(&s->child, SIGTERM);
    str_release(&s->send);
    s->id = 0;
}

void models_hang(struct models *m, int64_t id)
{
    struct model_server *s = id > 0 ? server_of(m, id) : NULL;
    if (s)
        hang(s);
}

void models_release(struct models *m)
{
    for (int i = 0; i < MODELS_MAX; i++)
        if (m->v[i].id > 0)
            hang(&m->v[i]);
}

int models_watch(const struct models *m, struct pollfd w[MODELS_MAX])
{
    int n = 0;
    for (int i = 0; i < MODELS_MAX; i++)
        if (m->v[i].id > 0)
            w[n++] = (struct pollfd){.fd = m->v[i].child.out, .events = POLLIN};
    return n;
}

int models_next(struct models *m, struct model_answer *a)
{
    for (int i = 0; i < MODELS_MAX; i++) {
        struct model_server *s = &m->v[i];
        if (s->id <= 0)
            continue;
        push(s);
        (void)child_tail(&s->child, s->child.err);
        ssize_t n = read(s->child.out, a->bytes, sizeof a->bytes);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        a->id = s->id;
        a->n = n > 0 ? (size_t)n : 0;
        a->why[0] = '\0';
        if (n > 0)
            return 1;
        while (child_tail(&s->child, s->child.err) > 0) {
        }
        child_wait(&s->child);
        if (child_verdict(&s->child, a->why, sizeof a->why) == 0)
            str_copy(a->why, sizeof a->why, "the model's process ended");
        hang(s);
        return 1;
    }
    return 0;
}
