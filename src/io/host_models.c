/* See host_models.h. */
#include "io/host_models.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/socket.h"

enum { LINE_MAX_BYTES = 4 << 20, SEND_MAX = 64 << 20 };

static int set_up(int fd)
{
    return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0 ||
           fcntl(fd, F_SETFD, FD_CLOEXEC) < 0;
}

int host_models_listen(struct host_models *m, const char *dir, const char *run, struct err *e)
{
    struct sockaddr_un addr;
    int holder = -1;
    if (m->sockets == HOST_SOCKETS)
        return err_set(e, DS_ERANGE, "%s: too many runs are open", run);
    struct host_socket *s = &m->socket[m->sockets];
    int rc = socket_address(&addr, dir, "serve.sock", &holder, e);
    if (rc < 0)
        return rc;
    unlink(addr.sun_path); /* of an earlier opening */
    s->fd = socket(AF_UNIX, SOCK_STREAM, 0);
    mode_t old = umask(0177);
    if (s->fd < 0 || bind(s->fd, (struct sockaddr *)&addr, sizeof addr) < 0 ||
        listen(s->fd, HOST_TALKS) < 0 || set_up(s->fd))
        rc = err_errno(e, "%s/serve.sock", dir);
    umask(old);
    if (holder >= 0)
        close(holder);
    if (rc < 0) {
        if (s->fd >= 0)
            close(s->fd);
        return rc;
    }
    str_copy(s->run, sizeof s->run, run);
    str_copy(s->dir, sizeof s->dir, dir);
    m->sockets++;
    return 0;
}

void host_models_close(struct host_models *m, const char *dir)
{
    for (int i = 0; i < m->sockets; i++) {
        if (strcmp(m->socket[i].dir, dir) != 0)
            continue;
        close(m->socket[i].fd);
        m->socket[i] = m->socket[--m->sockets];
        return;
    }
}

static void end(struct host_talk *t)
{
    close(t->fd);
    str_release(&t->in);
    str_release(&t->out);
    *t = (struct host_talk){0};
}

static void add_request(struct str *out, const char *what, int64_t id, const char *key,
                        const char *value)
{
    str_add(out, "{\"do\":");
    str_add_json(out, what, strlen(what));
    json_add_int(out, "id", id);
    if (key)
        json_add_str(out, key, value);
    str_add(out, "}\n");
}

static void take_connection(struct host_models *m, const struct host_socket *s, struct str *out)
{
    int fd = accept(s->fd, NULL, NULL), i = 0;
    if (fd < 0)
        return;
    while (i < HOST_TALKS && m->talk[i].id != 0)
        i++;
    if (i == HOST_TALKS || set_up(fd)) {
        close(fd);
        return;
    }
    m->talk[i] = (struct host_talk){.id = ++m->last_id, .fd = fd};
    add_request(out, "model", m->last_id, "run", s->run);
}

/* Another model of this host is named by its run: paths are those of mirrors here.  1: `own` is the
 * request instead. */
static int translate(const struct host_models *m, const char *line, struct str *own)
{
    struct json *j = NULL;
    const char *what = NULL, *other = NULL, *text = NULL, *run = NULL;
    if (!strstr(line, "compare") || json_parse(&j, line, strlen(line), "request", NULL) < 0)
        return 0;
    const struct json_node *q = json_root(j);
    what = json_str(json_get(q, "do"), NULL);
    other = json_str(json_get(q, "other"), NULL);
    text = json_str(json_get(q, "text"), NULL);
    int is_own = what && strcmp(what, "compare") == 0 && other && text;
    for (int i = 0; is_own && i < m->sockets; i++)
        run = strcmp(m->socket[i].dir, other) == 0 ? m->socket[i].run : run;
    if (is_own) {
        str_add(own, "{");
        json_add_str(own, "do", run ? "compare" : "refuse");
        json_add_str(own, run ? "run" : "text",
                     run ? run : "compare: the other model is not an open run of this host");
        if (run)
            json_add_str(own, "text", text);
        json_add_int(own, "lens", json_int(json_get(q, "lens"), 0));
        str_add(own, "}");
    }
    json_free(j);
    return is_own;
}

static void take_lines(const struct host_models *m, struct host_talk *t, struct str *out)
{
    char *newline;
    while ((newline = t->in.len ? memchr(t->in.p, '\n', t->in.len) : NULL)) {
        size_t n = (size_t)(newline - t->in.p) + 1;
        struct str own = {0};
        *newline = '\0';
        int is_own = translate(m, t->in.p, &own);
        add_request(out, "say", t->id, "line", is_own ? str_text(&own) : t->in.p);
        t->in.failed |= own.failed; /* ends the conversation */
        str_release(&own);
        memmove(t->in.p, t->in.p + n, t->in.len - n);
        t->in.len -= n;
    }
}

static void push(struct host_talk *t)
{
    while (t->out.len > 0) {
        ssize_t n = send(t->fd, t->out.p, t->out.len, MSG_NOSIGNAL);
        if (n <= 0)
            break;
        memmove(t->out.p, t->out.p + n, t->out.len - (size_t)n);
        t->out.len -= (size_t)n;
    }
}

void host_models_poll(struct host_models *m, struct str *out)
{
    char chunk[16384];
    for (int i = 0; i < m->sockets; i++)
        take_connection(m, &m->socket[i], out);
    for (int i = 0; i < HOST_TALKS; i++) {
        struct host_talk *t = &m->talk[i];
        if (t->id == 0)
            continue;
        push(t);
        ssize_t n = read(t->fd, chunk, sizeof chunk);
        if (n > 0) {
            str_add_bytes(&t->in, chunk, (size_t)n);
            take_lines(m, t, out);
        }
        int is_over = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
        int is_too_much = t->in.failed || t->out.failed || t->in.len > LINE_MAX_BYTES;
        if (is_over || is_too_much)
            add_request(out, "hang", t->id, NULL, NULL);
        if (is_over || is_too_much || (t->is_ended && t->out.len == 0))
            end(t);
    }
}

void host_models_take(struct host_models *m, struct value body)
{
    int64_t id = value_int(value_get(body, "id"), 0);
    for (int i = 0; i < HOST_TALKS; i++) {
        struct host_talk *t = &m->talk[i];
        size_t n = 0;
        const char *p = value_bytes(value_get(body, "bytes"), &n);
        if (id == 0 || t->id != id)
            continue;
        if (p && t->out.len + n <= SEND_MAX)
            str_add_bytes(&t->out, p, n);
        t->is_ended |= !p;
        push(t);
    }
}

void host_models_lost(struct host_models *m)
{
    for (int i = 0; i < HOST_TALKS; i++)
        if (m->talk[i].id != 0)
            end(&m->talk[i]);
}

void host_models_release(struct host_models *m)
{
    host_models_lost(m);
    while (m->sockets > 0)
        close(m->socket[--m->sockets].fd);
}

int host_models_watch(const struct host_models *m, struct pollfd w[HOST_SOCKETS + HOST_TALKS])
{
    int n = 0;
    for (int i = 0; i < m->sockets; i++)
        w[n++] = (struct pollfd){.fd = m->socket[i].fd, .events = POLLIN};
    for (int i = 0; i < HOST_TALKS; i++)
        if (m->talk[i].id != 0)
            w[n++] =
                (struct pollfd){.fd = m->talk[i].fd,
                                .events = (short)(POLLIN | (m->talk[i].out.len > 0 ? POLLOUT : 0))};
    return n;
}
