/* Unix sockets at paths of any length. */
#ifndef DS_BASE_SOCKET_H
#define DS_BASE_SOCKET_H

#include <sys/types.h>
#include <sys/un.h>

#include "base/err.h"

/* The address of DIR/NAME.  Too long for a sockaddr: goes through /proc/self/fd of the directory,
 * held open in *holder (else -1), which the caller closes after bind or connect. */
int socket_address(struct sockaddr_un *addr, const char *dir, const char *name, int *holder,
                   struct err *e) DS_CHECK;
struct socket_credentials {
    uid_t uid;
    pid_t pid;
};
int socket_peer(int fd, struct socket_credentials *c); /* 0, or -1 when unknown */

#endif
