/* Runs as processes, seen from outside: start one detached, list them, talk to a living one.  No tensors here. */
#ifndef DS_TRAINING_JOB_H
#define DS_TRAINING_JOB_H

#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

/* Where runs live: $DEPTHSCOPE_RUNS or "runs". */
const char *job_root(void);
/* Starts `depthscope train ARGS...` in its own session with output to RUN/train.out; returns the run's name in
 * name (it is made unique and reserved before the process starts). The child outlives the caller. */
int job_start(const char *const *args, size_t n, char *name, size_t size, struct err *e) DS_CHECK;

/* The same; *ended is a descriptor (close it) that poll reports as hung up when the process is gone. */
int job_start_watched(const char *const *args, size_t n, char *name, size_t size, int *ended,
                      struct err *e) DS_CHECK;

struct job_info {
    char name[65], path[1024], method[32], preset[65];
    int is_live;     /* a process holds the log's lock */
    double modified; /* wall seconds of the newest write */
    long pid;        /* 0 unknown */
};
/* Runs below `root`, live first, then newest first; *jobs is heap (mem_free). */
int job_list(const char *root, struct job_info **jobs, size_t *n, struct err *e) DS_CHECK;

/* Sends one command line ("pause", "resume", "checkpoint", "probe", "stop", "set lr 1e-4",
 * "set edp.threshold_offset 0.1", "set edp.target_ratio 0.7", "status") to RUN's control.sock and waits up to
 * timeout_s for the answer line (training/control.h).  A run that computes a long step answers "ok pending ID: ..." at once
 * and records an event "command" with the text "ID LINE: ANSWER" when it has done it.  DS_ENOTFOUND when no process listens,
 * DS_EBUSY when one does and says nothing. */
int job_command(const char *run_dir, const char *command, double timeout_s, struct str *answer,
                struct err *e) DS_CHECK;

/* The same for those who must not wait: sends, and is asked now and then. */
struct job_request;
int job_request_open(struct job_request **out, const char *run_dir, const char *command,
                     double timeout_s, struct err *e) DS_CHECK;
/* 1: the answer is there; 0: not yet; else as job_command.  After anything but 0 it is only closed. */
int job_request_poll(struct job_request *r, struct str *answer, struct err *e) DS_CHECK;
int job_request_fd(const struct job_request *r); /* readable when there is something to ask for */
void job_request_close(struct job_request *r);
/* ID of an "ok pending ID: ..." answer; 0: it is another. */
long long job_pending(const char *answer);

/* The presets found (NAME.yaml in data) and the form: keys with defaults and help, for the workbench's editable form. */
struct job_key {
    const char *key, *otherwise, *help, *choices;
};
int job_presets(char ***names, size_t *n, struct err *e) DS_CHECK; /* free with fs_list_free */
/* What a preset, or several with spaces between, give the first n rows of job_keys: heap strings (mem_free), NULL for keys that do not belong to its
 * method. */
int job_preset_values(const char *presets, char **value, size_t n, struct err *e) DS_CHECK;
/* The first `max` words of `text` (cut in place) between spaces; how many. */
size_t job_cut_words(char *text, const char **word, size_t max);
/* One value by its row of the option tables; unknown keys pass.  The text is that of the command line. */
int job_check_value(const char *key, const char *text, struct err *e) DS_CHECK;
/* All that `depthscope train ARGS...` (presets, then settings) would refuse before it makes a run. */
int job_check(const char *const *args, size_t n, struct err *e) DS_CHECK;
/* The keys that a running run of this method takes with "set" ("lr", "edp.target_ratio"): how many. */
size_t job_live_keys(const char *method, char key[][64], size_t max);

/* A start that is watched until the run has written its first record. */
struct job_launch {
    char name[65], dir[1024];
    int fd; /* readable when there is news; poll it */
};
enum launch_state { LAUNCH_STARTING, LAUNCH_RUNS, LAUNCH_FAILED };
int job_launch(struct job_launch *l, const char *const *args, size_t n, struct err *e) DS_CHECK;
/* Never waits.  LAUNCH_FAILED: the process is gone and left no record; its directory is removed and `words` is the last
 * line it said. */
enum launch_state job_launch_state(struct job_launch *l, char *words, size_t size);
void job_launch_release(struct job_launch *l); /* the run goes on */
/* The last line in RUN/train.out: what a run said that was started in the background; 0 when there is none. */
int job_last_words(const char *dir, char *out, size_t size);

/* All option rows that a run accepts, static; common ones first. */
const struct job_key *job_keys(size_t *n);

#endif
