/* The thread that serves control.sock, and the queue between it and the trainer. */
#include "training/control.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/socket.h"

enum { CLIENTS_MAX = 8, LINE_MAX_BYTES = 512, WAITING_MAX = 16 };
/* Within this time a short step ends and the client gets the result itself; later it gets
 * "pending". */
static const double patience_s = 0.5;

struct client {
    int fd;
    char line[LINE_MAX_BYTES];
    size_t n;
    int64_t
        waits; /* ID of the command being answered, 0 = none; no further line is read meanwhile */
    double until, used; /* when to answer "pending"; time of the last input */
    int is_json;        /* the line was a JSON object, and so is its answer */
};

enum entry_state { ENTRY_FREE, ENTRY_WAITING, ENTRY_TAKEN, ENTRY_DONE };
struct entry {
    enum entry_state state;
    int64_t id;
    int is_pending; /* the client was answered "pending" */
    char line[LINE_MAX_BYTES], answer[LINE_MAX_BYTES];
};

struct control {
    int fd, wake[2];
    char path[1100];
    control_check_fn check;
    void *ctx;
    pthread_t thread;
    int has_thread;
    pthread_mutex_t lock; /* guards all fields below */
    pthread_cond_t arrived;
    int is_closing;
    char status[LINE_MAX_BYTES];
    struct entry entry[WAITING_MAX + 1]; /* the last is kept for "stop" */
    int64_t last_id;
    struct client client[CLIENTS_MAX]; /* control thread only, oldest connection first */
    int clients;
};

static int set_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
           fcntl(fd, F_SETFD, FD_CLOEXEC) < 0;
}

static int is_same_user(int fd)
{
#ifdef SO_PEERCRED
    struct socket_credentials cred;
    return socket_peer(fd, &cred) == 0 && (cred.uid == geteuid() || cred.uid == 0);
#else
    (void)fd;
    return 1; /* the socket's mode is 0600 */
#endif
}

/* ---- clients: the thread's side ---- */

static struct entry *entry_of(struct control *c, int64_t id)
{
    for (int i = 0; i <= WAITING_MAX; i++)
        if (c->entry[i].state != ENTRY_FREE && c->entry[i].id == id)
            return &c->entry[i];
    return NULL;
}

/* The command is still carried out; its result appears in the log only. */
static void abandon_entry(struct control *c, int64_t id)
{
    pthread_mutex_lock(&c->lock);
    struct entry *x = id ? entry_of(c, id) : NULL;
    if (x && x->state == ENTRY_DONE)
        x->state = ENTRY_FREE;
    else if (x)
        x->is_pending = 1;
    pthread_mutex_unlock(&c->lock);
}

static void drop(struct control *c, int i)
{
    abandon_entry(c, c->client[i].waits);
    close(c->client[i].fd);
    memmove(&c->client[i], &c->client[i + 1], (size_t)(--c->clients - i) * sizeof c->client[0]);
}

/* The client that has been silent longest, preferably one without a pending command. */
static int oldest_idle(const struct control *c)
{
    int best = 0;
    for (int i = 1; i < c->clients; i++) {
        const struct client *k = &c->client[i], *b = &c->client[best];
        if ((k->waits != 0) < (b->waits != 0) ||
            ((k->waits != 0) == (b->waits != 0) && k->used < b->used))
            best = i;
    }
    return best;
}

static void take_clients(struct control *c)
{
    int fd;
    while ((fd = accept(c->fd, NULL, NULL)) >= 0) {
        if (set_nonblocking(fd) || !is_same_user(fd)) {
            close(fd);
            continue;
        }
        if (c->clients == CLIENTS_MAX)
            drop(c, oldest_idle(c));
        c->client[c->clients++] = (struct client){.fd = fd, .used = clock_mono()};
    }
}

/* Never blocks: a peer that does not read its answers is disconnected.  1: drop it. */
static int say(const struct client *k, const char *text)
{
    struct str line = {0};
    size_t word = strcspn(text, " ");
    int is_ok = strncmp(text, "ok", word) == 0 && word == 2;
    const char *rest = text[word] && (is_ok || strncmp(text, "error ", 6) == 0) ? text + word + 1
                       : is_ok                                                  ? ""
                                                                                : text;
    if (k->is_json) { /* "confirm ..." is not done yet either */
        str_addf(&line, "{\"ok\":%s", is_ok ? "true" : "false");
        json_add_str(&line, is_ok ? "text" : "error", rest);
        str_add(&line, "}\n");
    } else {
        str_addf(&line, "%s\n", text);
    }
    ssize_t sent = send(k->fd, str_text(&line), line.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    int lost = line.failed || sent != (ssize_t)line.len;
    str_release(&line);
    return lost;
}

/* {"command":"set","key":"train.lr","value":1e-4} as the line "set train.lr 1e-4". */
static int plain_line(char out[LINE_MAX_BYTES], const char *line, struct err *e)
{
    static const char *const member[] = {"command", "key", "value"};
    struct json *j = NULL;
    struct str text = {0};
    int rc = json_parse(&j, line, strlen(line), "command", e);
    const struct json_node *root = rc == 0 ? json_root(j) : NULL;
    for (size_t i = 0; rc == 0 && i < DS_LEN(member); i++) {
        const struct json_node *n = json_get(root, member[i]);
        const char *word = json_str(n, NULL);
        enum json_kind kind = json_kind_of(n);
        if (i == 0 && (!word || !word[0]))
            rc = err_set(e, DS_EFORMAT, "missing \"command\", a string");
        else if (word && (strchr(word, '\n') || strchr(word, '\r')))
            rc = err_set(e, DS_EFORMAT, "\"%s\": expected a single line", member[i]);
        else if (n && (word || kind == JSON_KIND_INT || kind == JSON_KIND_REAL))
            str_add(&text, i ? " " : "");
        if (rc == 0 && word)
            str_add(&text, word);
        else if (rc == 0 && n && (kind == JSON_KIND_INT || kind == JSON_KIND_REAL))
            str_addf(&text, "%.17g", json_num(n, 0));
    }
    if (rc == 0 && json_bool(json_get(root, "yes"), 0))
        str_add(&text, " yes");
    if (rc == 0 && (text.failed || str_copy(out, LINE_MAX_BYTES, str_text(&text))))
        rc = err_set(e, DS_ERANGE, "line too long");
    str_release(&text);
    json_free(j);
    return rc;
}

static const char *text_of(const struct str *answer)
{
    return answer->failed ? "error out of memory for the answer" : str_text(answer);
}

/* Queues a line for the trainer; 0 when the queue is full.  One place is kept for "stop". */
static int64_t add_entry(struct control *c, const char *line)
{
    int n = WAITING_MAX + (strcmp(line, "stop") == 0);
    for (int i = 0; i < n; i++) {
        struct entry *x = &c->entry[i];
        if (x->state != ENTRY_FREE)
            continue;
        *x = (struct entry){.state = ENTRY_WAITING, .id = ++c->last_id};
        str_copy(x->line, sizeof x->line, line);
        pthread_cond_signal(&c->arrived);
        return x->id;
    }
    return 0;
}

static int serve_line(struct control *c, struct client *k, const char *line)
{
    struct str answer = {0};
    struct err e = {0};
    char plain[LINE_MAX_BYTES];
    int is_answered = 1;
    k->is_json = line[0] == '{';
    if (k->is_json && plain_line(plain, line, &e) < 0) {
        str_addf(&answer, "error %s", e.text);
        int lost = say(k, text_of(&answer));
        str_release(&answer);
        return lost;
    }
    line = k->is_json ? plain : line;
    pthread_mutex_lock(&c->lock);
    if (strcmp(line, "status") == 0)
        str_add(&answer, c->status);
    else if (!c->check || !c->check(c->ctx, line, &answer))
        is_answered = 0;
    if (!is_answered && (k->waits = add_entry(c, line)) == 0) {
        is_answered = 1;
        str_addf(&answer, "error %d commands are already queued for the end of the current step",
                 WAITING_MAX);
    }
    pthread_mutex_unlock(&c->lock);
    k->until = clock_mono() + patience_s;
    int lost = is_answered && say(k, text_of(&answer));
    str_release(&answer);
    return lost;
}

/* Handles the received lines until one has to wait.  1: drop the client. */
static int serve_lines(struct control *c, struct client *k)
{
    while (k->waits == 0) {
        char *end = memchr(k->line, '\n', k->n);
        if (!end && k->n == LINE_MAX_BYTES - 1) { /* the start of the next line is unknown */
            (void)say(k, "error line too long");
            return 1;
        }
        if (!end)
            return 0;
        size_t used = (size_t)(end - k->line) + 1;
        *end = '\0';
        if (used > 1 && end[-1] == '\r')
            end[-1] = '\0';
        if (serve_line(c, k, k->line))
            return 1;
        memmove(k->line, k->line + used, k->n - used);
        k->n -= used;
    }
    return 0;
}

static int serve(struct control *c, struct client *k)
{
    ssize_t got = recv(k->fd, k->line + k->n, LINE_MAX_BYTES - 1 - k->n, MSG_DONTWAIT);
    if (got <= 0)
        return got == 0 || (errno != EAGAIN && errno != EINTR);
    k->used = clock_mono();
    k->n += (size_t)got;
    return serve_lines(c, k);
}

/* The answer that is due to a waiting client; "" = none yet. */
static void answer_now(struct control *c, struct client *k, char *text, size_t size)
{
    pthread_mutex_lock(&c->lock);
    struct entry *x = entry_of(c, k->waits);
    text[0] = '\0';
    if (x && x->state == ENTRY_DONE) {
        str_copy(text, size, x->answer);
        x->state = ENTRY_FREE;
    } else if (x && c->is_closing) {
        snprintf(text, size, "error the run ended before \"%.200s\" was carried out", x->line);
        x->state = ENTRY_FREE;
    } else if (x && clock_mono() >= k->until) {
        snprintf(text, size, "ok pending %" PRId64 ": %.400s: after the current step", x->id,
                 x->line);
        x->is_pending = 1;
    }
    pthread_mutex_unlock(&c->lock);
}

static void answer_clients(struct control *c)
{
    char text[LINE_MAX_BYTES];
    for (int i = c->clients - 1; i >= 0; i--) {
        struct client *k = &c->client[i];
        if (k->waits == 0)
            continue;
        answer_now(c, k, text, sizeof text);
        if (!text[0])
            continue;
        k->waits = 0;
        if (say(k, text) || serve_lines(c, k))
            drop(c, i);
    }
}

/* Milliseconds until the next "pending" answer is due; -1: none. */
static int next_due(const struct control *c)
{
    double now = clock_mono(), due = -1;
    for (int i = 0; i < c->clients; i++)
        if (c->client[i].waits && (due < 0 || c->client[i].until < due))
            due = c->client[i].until;
    return due < 0 ? -1 : due <= now ? 0 : (int)((due - now) * 1000) + 1;
}

/* Handles input that arrives within timeout_ms (-1: no limit); 1 when the socket is closing. */
static int listen_once(struct control *c, int timeout_ms)
{
    struct pollfd p[CLIENTS_MAX + 2] = {{.fd = c->fd, .events = POLLIN},
                                        {.fd = c->wake[0], .events = POLLIN}};
    char drain[64];
    for (int i = 0; i < c->clients; i++) /* a waiting client is only polled for hang-up */
        p[i + 2] =
            (struct pollfd){.fd = c->client[i].fd, .events = c->client[i].waits ? 0 : POLLIN};
    (void)poll(p, (nfds_t)c->clients + 2, timeout_ms);
    while (read(c->wake[0], drain, sizeof drain) > 0) {
    }
    pthread_mutex_lock(&c->lock);
    int is_over = c->is_closing;
    pthread_mutex_unlock(&c->lock);
    for (int i = c->clients - 1; i >= 0; i--)
        if (p[i + 2].revents && !c->client[i].waits && serve(c, &c->client[i]))
            drop(c, i);
        else if ((p[i + 2].revents & (POLLHUP | POLLERR)) && c->client[i].waits)
            drop(c, i);
    answer_clients(c);
    if (p[0].revents)
        take_clients(c);
    return is_over;
}

static void *listen_on(void *arg)
{
    struct control *c = arg;
    while (!listen_once(c, next_due(c))) {
    }
    return NULL;
}

static void wake(struct control *c)
{
    (void)(write(c->wake[1], "", 1) < 0); /* pipe full: already awake */
}

/* ---- start and end ---- */

static int open_socket(struct control *c, const char *dir, struct err *e)
{
    struct sockaddr_un addr;
    int holder = -1, rc = socket_address(&addr, dir, "control.sock", &holder, e);
    if (rc == 0) {
        /* we hold the log's lock, so an existing socket is a stale one */
        fs_unlink(c->path);
        c->fd = fault_fails(FAULT_SOCKET) ? -1 : socket(AF_UNIX, SOCK_STREAM, 0);
        mode_t old = umask(0177);
        if (c->fd < 0 || bind(c->fd, (struct sockaddr *)&addr, sizeof addr) < 0 ||
            listen(c->fd, CLIENTS_MAX) < 0 || set_nonblocking(c->fd))
            rc = err_errno(e, "%s", c->path);
        umask(old);
    }
    if (holder >= 0)
        close(holder);
    return rc;
}

/* All signals are blocked in the thread: the main thread handles them. */
static int start_thread(struct control *c, struct err *e)
{
    sigset_t all, before;
    if (fault_fails(FAULT_PIPE) || pipe(c->wake) < 0 || set_nonblocking(c->wake[0]) ||
        set_nonblocking(c->wake[1]))
        return err_errno(e, "control socket");
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&c->thread, NULL, listen_on, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    c->has_thread = !failed;
    if (failed)
        log_warn("control socket: no thread (%s); commands are answered between steps",
                 strerror(failed));
    return 0;
}

int control_open(struct control **out, const char *dir, const char *status, control_check_fn check,
                 void *ctx, struct err *e)
{
    pthread_condattr_t attr;
    struct control *c = mem_alloc(1, sizeof *c);
    if (!c)
        return err_set(e, DS_EMEM, "out of memory for control socket");
    c->fd = c->wake[0] = c->wake[1] = -1;
    c->check = check;
    c->ctx = ctx;
    str_copy(c->status, sizeof c->status, status);
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->arrived, &attr);
    pthread_condattr_destroy(&attr);
    int rc = fs_join(c->path, sizeof c->path, dir, "control.sock", e);
    if (rc == 0)
        rc = open_socket(c, dir, e);
    if (rc == 0)
        rc = start_thread(c, e);
    if (rc < 0) {
        control_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

void control_close(struct control *c)
{
    if (!c)
        return;
    if (c->has_thread) {
        control_lock(c);
        c->is_closing = 1;
        control_unlock(c);
        wake(c);
        pthread_join(c->thread, NULL);
    }
    while (c->clients > 0)
        drop(c, 0);
    for (int i = 0; i < 2; i++)
        if (c->wake[i] >= 0)
            close(c->wake[i]);
    if (c->fd >= 0) {
        close(c->fd);
        fs_unlink(c->path);
    }
    pthread_cond_destroy(&c->arrived);
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}

/* ---- the trainer's side ---- */

void control_lock(struct control *c)
{
    if (c)
        pthread_mutex_lock(&c->lock);
}

void control_unlock(struct control *c)
{
    if (c)
        pthread_mutex_unlock(&c->lock);
}

void control_set_status(struct control *c, const char *status)
{
    control_lock(c);
    str_copy(c->status, sizeof c->status, status);
    control_unlock(c);
}

/* The oldest waiting command. */
static struct entry *first_waiting(struct control *c)
{
    struct entry *first = NULL;
    for (int i = 0; i <= WAITING_MAX; i++)
        if (c->entry[i].state == ENTRY_WAITING && (!first || c->entry[i].id < first->id))
            first = &c->entry[i];
    return first;
}

static void wait_for_line(struct control *c, double wait_s)
{
    struct timespec due;
    clock_gettime(CLOCK_MONOTONIC, &due);
    due.tv_nsec += (long)(wait_s * 1e9);
    due.tv_sec += due.tv_nsec / 1000000000;
    due.tv_nsec %= 1000000000;
    if (wait_s > 0 && !first_waiting(c))
        pthread_cond_timedwait(&c->arrived, &c->lock, &due);
}

void control_poll(struct control *c, double wait_s, const struct control_calls *calls)
{
    struct entry *x;
    if (!c->has_thread) {
        listen_once(c, (int)(wait_s * 1000)); /* takes new clients */
        listen_once(c, 0);                    /* reads what they sent */
    }
    control_lock(c);
    if (c->has_thread)
        wait_for_line(c, wait_s);
    while ((x = first_waiting(c)) != NULL) {
        struct str answer = {0};
        struct entry copy;
        x->state = ENTRY_TAKEN;
        control_unlock(c);
        calls->handle(calls->ctx, x->line,
                      &answer); /* no other thread writes the line of a taken entry */
        control_lock(c);
        str_copy(x->answer, sizeof x->answer, text_of(&answer));
        x->state = x->is_pending ? ENTRY_FREE : ENTRY_DONE;
        copy = *x;
        control_unlock(c);
        wake(c);
        if (copy.is_pending)
            calls->applied(calls->ctx, copy.id, copy.line, copy.answer);
        str_release(&answer);
        control_lock(c);
    }
    control_unlock(c);
    if (!c->has_thread)
        listen_once(c, 0); /* sends the answers */
}
