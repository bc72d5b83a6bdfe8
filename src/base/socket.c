/* Unix-domain socket addresses of any path length, and the peer's credentials. */
#define _GNU_SOURCE /* struct ucred */
#include "base/socket.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fs.h"

int socket_address(struct sockaddr_un *addr, const char *dir, const char *name, int *holder,
                   struct err *e)
{
    memset(addr, 0, sizeof *addr);
    addr->sun_family = AF_UNIX;
    *holder = -1;
    const char *rest;
    int held = fs_at(dir, &rest); /* the run's directory may have been renamed */
    if (held != AT_FDCWD && (!fs_is_held_at(held, dir) || fs_exists("/proc/self/fd"))) {
        snprintf(addr->sun_path, sizeof addr->sun_path, "/proc/self/fd/%d/%s%s%s", held,
                 strcmp(rest, ".") ? rest : "", strcmp(rest, ".") ? "/" : "", name);
        return 0;
    }
    int n = snprintf(addr->sun_path, sizeof addr->sun_path, "%s/%s", dir, name);
    if (n >= 0 && (size_t)n < sizeof addr->sun_path)
        return 0;
    *holder = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*holder < 0)
        return err_errno(e, "%s", dir);
    if (access("/proc/self/fd", X_OK) != 0) {
        close(*holder);
        *holder = -1;
        return err_set(e, DS_ERANGE,
                       "%s/%s: path too long: a socket address holds %zu bytes and "
                       "/proc is not mounted; "
                       "choose a shorter path",
                       dir, name, sizeof addr->sun_path - 1);
    }
    snprintf(addr->sun_path, sizeof addr->sun_path, "/proc/self/fd/%d/%s", *holder, name);
    return 0;
}

int socket_peer(int fd, struct socket_credentials *c)
{
#ifdef SO_PEERCRED
    struct ucred cred;
    socklen_t n = sizeof cred;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0)
        return -1;
    c->uid = cred.uid;
    c->pid = cred.pid;
    return 0;
#else
    (void)fd;
    (void)c;
    return -1;
#endif
}
