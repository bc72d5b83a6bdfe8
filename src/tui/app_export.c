/* Exports: figures through the program's own `figure` command, text through OSC 52. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/process.h"
#include "base/utf8.h"
#include "tui/appstate.h"

static void own_program(const struct app *app, char *out, size_t size)
{
    if (app->opt.program) {
        str_copy(out, size, app->opt.program);
        return;
    }
    if (!process_path(out, size))
        str_copy(out, size, "depthscope");
}

/* In the child: detaches from the terminal and sends the output to the pipe. */
static void run_child(char *const *argv, int out)
{
    int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    for (int s = 1; s < 32; s++)
        signal(s, SIG_DFL);
    setsid();
    execvp(argv[0], argv);
    static const char text[] = "depthscope: the figure command could not be started\n";
    ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
    (void)ignored;
    _exit(127);
}

void app_export(struct app *app)
{
    const struct view_ops *ops = app_focused(app);
    char program[1024], figure[64], *argv[APP_RUNS_MAX + 8];
    int n = 0, ends[2];
    if (!ops || !ops->figure || !app->runs) {
        app_say(app, LOG_WARN, "this view has no figure to export");
        return;
    }
    if (app->export_pid > 0) {
        app_say(app, LOG_WARN, "the previous export is still running");
        return;
    }
    own_program(app, program, sizeof program);
    str_copy(figure, sizeof figure, ops->figure);
    char command[] = "figure", flag[] = "-o", dir[] = "exports";
    argv[n++] = program;
    argv[n++] = command;
    argv[n++] = figure;
    for (size_t i = 0; i < app->runs; i++)
        if (i == app->current || app->run[i].is_marked)
            argv[n++] = app->run[i].path;
    argv[n++] = flag;
    argv[n++] = dir;
    argv[n] = NULL;
    if (pipe(ends) < 0) {
        app_say(app, LOG_ERROR, "export: %s", strerror(errno));
        return;
    }
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    pid_t pid = fork();
    if (pid == 0)
        run_child(argv, ends[1]);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        app_say(app, LOG_ERROR, "export: %s", strerror(errno));
        return;
    }
    app->export_pid = pid;
    app->export_fd = ends[0];
    app_say(app, LOG_INFO, "drawing figure %s into exports/ ...", figure);
}

/* Reads what is available and keeps its end: the last line names the file, or the error. */
static void take_output(struct app *app)
{
    enum { KEPT = 4096 };
    char buf[KEPT];
    ssize_t n;
    while (app->export_fd >= 0 && (n = read(app->export_fd, buf, sizeof buf)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return; /* nothing more to read for now */
        struct str *said = &app->export_said;
        if (said->len > KEPT) {
            memmove(said->p, said->p + said->len - KEPT, KEPT);
            said->len = KEPT;
        }
        str_add_bytes(said, buf, (size_t)n);
    }
    if (app->export_fd >= 0)
        close(app->export_fd);
    app->export_fd = -1;
}

static const char *last_line(struct str *s)
{
    char *text = s->p;
    size_t n = s->len;
    while (n > 0 && (unsigned char)text[n - 1] <= ' ')
        text[--n] = '\0';
    while (n > 0 && text[n - 1] != '\n')
        n--;
    return text ? text + n : "";
}

void app_export_reap(struct app *app)
{
    int status;
    if (app->export_pid <= 0)
        return;
    take_output(app);
    if (waitpid(app->export_pid, &status, WNOHANG) != app->export_pid)
        return;
    take_output(app);
    const char *last = last_line(&app->export_said);
    int is_good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    app_say(app, is_good ? LOG_INFO : LOG_ERROR,
            is_good ? "figure written: %s" : "figure failed: %s",
            *last     ? last
            : is_good ? "exports/"
                      : "no message");
    if (app->export_fd >= 0)
        close(app->export_fd);
    app->export_pid = 0;
    app->export_fd = -1;
    str_reset(&app->export_said);
}

void copy_add(struct str *out, const char *data)
{
    utf8_sanitise(out, data, strlen(data), -1, 0);
}

void app_copy(struct app *app, const char *text, size_t n)
{
    enum { COPY_MAX = 65536 }; /* terminals truncate longer text */
    struct str safe = {0};
    if (!app->term || !app->has_clipboard)
        return;
    for (size_t i = 0; i < n && safe.len < COPY_MAX;) {
        size_t from = i;
        while (i < n && text[i] != '\t' && text[i] != '\n')
            i++;
        utf8_sanitise(&safe, text + from, i - from, -1, 0);
        if (i < n)
            str_add_char(&safe, text[i++]);
    }
    if (safe.len > COPY_MAX)
        safe.len = utf8_valid(safe.p, COPY_MAX); /* never ends within a character */
    str_add(&app->extra, "\x1b]52;c;");
    base64_encode(&app->extra, str_text(&safe), safe.len);
    str_add(&app->extra, "\x07");
    str_release(&safe);
    app->is_dirty = 1;
}
