/* Out of the terminal: figures by the program's own `figure` command, texts by OSC 52. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"
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

/* In the child: nothing of the terminal, output to the pipe. */
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
    static const char text[] = "the program could not be started again\n";
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
        app_say(app, LOG_WARN, "an export is still running");
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

void app_export_reap(struct app *app)
{
    int status;
    if (app->export_pid <= 0 || waitpid(app->export_pid, &status, WNOHANG) != app->export_pid)
        return;
    char text[2048];
    ssize_t n = read(app->export_fd, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    while (n > 0 && text[n - 1] == '\n')
        text[--n] = '\0';
    const char *last = strrchr(text, '\n') ? strrchr(text, '\n') + 1 : text;
    int is_good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    app_say(app, is_good ? LOG_INFO : LOG_ERROR,
            is_good ? "figure written: %s" : "figure failed: %s",
            *last     ? last
            : is_good ? "exports/"
                      : "no message");
    close(app->export_fd);
    app->export_pid = 0;
    app->export_fd = -1;
}

void app_copy(struct app *app, const char *text, size_t n)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = (const unsigned char *)text;
    enum { COPY_MAX = 65536 }; /* terminals cut longer ones */
    n = n > COPY_MAX ? COPY_MAX : n;
    if (!app->term)
        return;
    str_add(&app->extra, "\x1b]52;c;");
    for (size_t i = 0; i < n; i += 3) {
        unsigned v = (unsigned)p[i] << 16 | (i + 1 < n ? (unsigned)p[i + 1] << 8 : 0) |
                     (i + 2 < n ? p[i + 2] : 0u);
        str_add_char(&app->extra, digit[v >> 18]);
        str_add_char(&app->extra, digit[v >> 12 & 63]);
        str_add_char(&app->extra, i + 1 < n ? digit[v >> 6 & 63] : '=');
        str_add_char(&app->extra, i + 2 < n ? digit[v & 63] : '=');
    }
    str_add(&app->extra, "\x07");
    app->is_dirty = 1;
}
