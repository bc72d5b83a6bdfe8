/* A folder of runs on another machine.  One ssh child runs `depthscope agent` there; its list of
 * runs becomes rows, and the records of a followed run are appended to a log of this process's own
 * (a mirror), so that everything that reads runs reads remote ones, too.  What the other end sends is
 * untrusted: sizes are bounded, names never become paths as they are, and records pass the checks
 * that files pass. */
#ifndef DS_IO_HOST_H
#define DS_IO_HOST_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "io/runindex.h"

enum { HOST_PROTOCOL = 1, HOST_NAME = 128, HOSTS_MAX = 32, HOST_PRESETS = 2048 };

enum host_state { HOST_CONNECTING, HOST_UP, HOST_RECONNECTING, HOST_FAILED };
const char *host_state_name(enum host_state state); /* "connecting" */

struct host;
/* Is TARGET a host rather than a path: "ssh://[user@]box[:port]/path", or a colon before any slash
 * ("box:runs") and no such file here? */
int host_is_target(const char *target);
/* Starts to connect; TARGET as above.  DS_EUSAGE: not a host's name. */
int host_open(struct host **out, const char *target, int is_readonly, struct err *e) DS_CHECK;
void host_close(struct host *h); /* removes the mirror */
/* Never blocks: reads what has come, reconnects when it is time.  1 when anything changed. */
int host_poll(struct host *h);
/* Descriptors to wait for; returns their number, at most HOST_FDS. */
enum { HOST_FDS = 24 };
int host_watch(const struct host *h, struct pollfd w[HOST_FDS]);

struct host_info {
    const char *name, *root; /* "box", "runs"; as given by the user */
    enum host_state state;
    const char *why;              /* of the state, "" = nothing to say */
    const char *note;             /* what speaks instead of the program, and why; "" = it speaks */
    double latency_s;             /* of the newest exchange, NaN = unknown */
    double heard;                 /* monotonic seconds when something came last; NaN: never */
    double skew_s;                /* its clock minus ours, NaN = unknown */
    uint64_t bytes_in, bytes_out; /* through the pipes, before ssh compresses them */
    uint64_t listed;              /* grows whenever its list of runs changes */
    size_t runs;
    int is_listed; /* the list was complete once */
    int is_readonly;
    const char *version; /* of the program there, "" = unknown */
    const char
        *presets; /* that runs can be started from there, separated by spaces; "" = unknown */
};
struct host_info host_info(const struct host *h);
/* Its runs.  Paths are those of mirrors, times are in our clock; valid until the next poll. */
const struct run_row *const *host_rows(const struct host *h, size_t *n);
/* The path of its only run, when the target names a run rather than a folder, as soon as it is
 * listed; else NULL. */
const char *host_only(const struct host *h);
/* 1 when PATH is (in) a mirror of this host. */
int host_owns(const struct host *h, const char *path);
/* From now on, until host_drop, the records of the run whose row has this path are mirrored in
 * PATH/log.mp. */
int host_follow(struct host *h, const char *path, struct err *e) DS_CHECK;
void host_drop(struct host *h, const char *path);
/* Whether its probes are mirrored, too: those that it has, thinned when they are many, and new ones.  Not
 * at first, except for traces. */
void host_want_probes(struct host *h, const char *path, int wants);
/* Steps that a chart shows: when the run is held as a summary, they are fetched in detail as soon as this
 * has not changed for a moment. */
void host_want_detail(struct host *h, const char *path, double from, double to);
/* "box:first" of the run with that path.  Returns out. */
const char *host_label(const struct host *h, const char *path, char *out, size_t size);
/* Sends a control command (training/job.h) to a run; its number, or DS_*. */
int64_t host_command(struct host *h, const char *path, const char *line, struct err *e) DS_CHECK;
/* Starts a run there, with an empty name one that follows from the presets (separated by spaces); its
 * settings are "key=value" texts.  The number of the request, whose answer comes when the run has begun
 * and is the run's name; or DS_*: among others DS_EUSAGE when what speaks there starts no runs. */
int64_t host_start(struct host *h, const char *name, const char *presets,
                   const char *const *setting, size_t n, struct err *e) DS_CHECK;
/* The same for a run there that has ended: continues it from its newest checkpoint; from "best" or the
 * number of a step: as a new run. */
int64_t host_resume(struct host *h, const char *path, const char *from, struct err *e) DS_CHECK;
/* The answer is "STEP STEP ... best STEP LOSS": the newest first, the best only where it is known. */
int64_t host_checkpoints(struct host *h, const char *path, struct err *e) DS_CHECK;
/* Nobody will ask for that answer. */
void host_forget(struct host *h, int64_t id);
/* The run of that name, NULL: not listed. */
const struct run_row *host_find(const struct host *h, const char *name);
/* 1: answered; 0: not yet; else why it failed.  After anything but 0 the number is forgotten. */
int host_answer(struct host *h, int64_t id, struct str *text, struct err *e) DS_CHECK;

#endif
