/* The sockets through which programs of this machine ask the models of a host. */
#include "t.h"

#include <sys/socket.h>
#include <unistd.h>

#include "base/socket.h"
#include "io/host_models.h"

static struct host_models models;
static struct str out;

/* A program that has connected to DIR/serve.sock. */
static int connected(const char *dir)
{
    struct sockaddr_un addr;
    int holder = -1, fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct err e = {0};
    t_ok(socket_address(&addr, dir, "serve.sock", &holder, &e), &e);
    t_true(fd >= 0 && connect(fd, (struct sockaddr *)&addr, sizeof addr) == 0);
    if (holder >= 0)
        close(holder);
    return fd;
}

/* What the agent is asked after the program has written `text`. */
static const char *asked(int fd, const char *text)
{
    t_true(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    str_reset(&out);
    host_models_poll(&models, &out);
    return str_text(&out);
}

T(a_line_of_a_program_goes_to_the_host_once_it_is_complete)
{
    const char *dir = t_tmpdir();
    struct err e = {0};
    t_ok(host_models_listen(&models, dir, "edp", &e), &e);
    int fd = connected(dir);
    t_str(asked(fd, ""), "{\"do\":\"model\",\"id\":1,\"run\":\"edp\"}\n");
    t_str(asked(fd, "{\"do\":"), "");
    t_str(asked(fd, "\"text\"}\nhalf"),
          "{\"do\":\"say\",\"id\":1,\"line\":\"{\\\"do\\\":\\\"text\\\"}\"}\n");
    t_str(asked(fd, " and half\n"), "{\"do\":\"say\",\"id\":1,\"line\":\"half and half\"}\n");
    close(fd);
    str_reset(&out);
    host_models_poll(&models, &out);
    t_str(str_text(&out), "{\"do\":\"hang\",\"id\":1}\n");
    host_models_release(&models);
    str_release(&out);
}
