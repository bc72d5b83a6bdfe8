/* Sockets beside mirrors, through which this machine's programs ask the models of a host: what
 * `depthscope serve SOCKET` sends goes to the agent, and its answers come back.  Private to io/host.c. */
#ifndef DS_SRC_IO_HOST_MODELS_H
#define DS_SRC_IO_HOST_MODELS_H

#include <poll.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "io/record.h"

enum { HOST_SOCKETS = 16, HOST_TALKS = 5 };
struct host_socket {
    char run[256], dir[1024];
    int fd; /* listens at DIR/serve.sock */
};
struct host_talk {
    int64_t id; /* 0: free */
    int fd, is_ended;
    struct str in, out; /* lines to send, answers to pass on */
};
struct host_models {
    struct host_socket socket[HOST_SOCKETS];
    int sockets;
    struct host_talk talk[HOST_TALKS];
    int64_t last_id;
};

/* From now on DIR/serve.sock stands for the model of the run of that name. */
int host_models_listen(struct host_models *m, const char *dir, const char *run,
                       struct err *e) DS_CHECK;
void host_models_close(struct host_models *m, const char *dir);
/* Takes new connections and their lines; what the agent is to be asked is added to `out`. */
void host_models_poll(struct host_models *m, struct str *out);
/* A record of kind "said". */
void host_models_take(struct host_models *m, struct value body);
/* The line to the host was lost: all connections end. */
void host_models_lost(struct host_models *m);
void host_models_release(struct host_models *m);
int host_models_watch(const struct host_models *m, struct pollfd w[HOST_SOCKETS + HOST_TALKS]);

#endif
