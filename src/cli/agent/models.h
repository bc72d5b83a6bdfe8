/* Models of this machine that the other end of an agent asks: a `depthscope serve` each, its request lines
 * and the bytes of its answers passed on as they are. */
#ifndef DS_CLI_AGENT_MODELS_H
#define DS_CLI_AGENT_MODELS_H

#include <poll.h>
#include <stdint.h>

#include "base/child.h"
#include "base/err.h"
#include "base/str.h"

enum { MODELS_MAX = 6, MODELS_READ = 8 << 10 };

struct model_server {
    int64_t id; /* 0: free */
    struct child child;
    struct str send; /* what the child has not taken yet */
};
struct models {
    struct model_server v[MODELS_MAX];
};

/* Starts a server for the model at `path`.  DS_EBUSY: too many, or the id is taken. */
int models_open(struct models *m, int64_t id, const char *path, struct err *e) DS_CHECK;
/* One request line for it; unknown ids are ignored. */
void models_say(struct models *m, int64_t id, const char *line);
/* A request for it was lost: ends it, which models_next says. */
void models_break(struct models *m, int64_t id);
void models_hang(struct models *m, int64_t id);
void models_release(struct models *m);
/* Descriptors with answers to wait for; returns their number. */
int models_watch(const struct models *m, struct pollfd w[MODELS_MAX]);
/* The next answer of any: 1 with its id and bytes (n = 0: it ended, and `why` says how), 0 nothing now. */
struct model_answer {
    int64_t id;
    size_t n;
    char bytes[MODELS_READ], why[300];
};
int models_next(struct models *m, struct model_answer *a);

#endif
