/* Runs as other processes: start one detached, send commands to a live one.  Must not
 * know tensors. */
#ifndef DS_TRAINING_JOB_H
#define DS_TRAINING_JOB_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/* Directory of the runs: $DEPTHSCOPE_RUNS or "runs". */
const char *job_root(void);
/* 1 for the directory of a run, a model or another program's log. */
int job_is_run_or_model(const char *dir);
/* RUN as a path to a directory, log or trace, or a name that `runs` lists in the runs directory: 1
 * and the path in out, 0 when there is none.  A directory that holds neither a run nor a model does
 * not hide a run of its name.  DS_ERANGE: too long. */
int job_find(char *out, size_t size, const char *run, struct err *e) DS_CHECK;
/* Starts `depthscope train ARGS...` in its own session with output to RUN/train.out; returns the
 * run's name in name (made unique and reserved before the process starts). The child outlives the
 * caller. */
int job_start(const char *const *args, size_t n, char *name, size_t size, struct err *e) DS_CHECK;

/* The same; *ended is a descriptor (close it) that poll reports as hung up when the process
 * ends. */
int job_start_watched(const char *const *args, size_t n, char *name, size_t size, int *ended,
                      struct err *e) DS_CHECK;

/* Starts `depthscope train ARGS...` with output to DIR/train.out; *ended as above (may be NULL). */
int job_start_in(const char *dir, const char *const *args, size_t n, int *ended,
                 struct err *e) DS_CHECK;

/* Sends one command line ("pause", "resume", "checkpoint", "probe", "stop", "set lr 1e-4", "set
 * edp.threshold_offset 0.1", "set edp.target_ratio 0.7", "status") to RUN's control.sock and waits
 * up to timeout_s for the answer line (training/control.h).  During a long step the answer is "ok
 * pending ID: ..." at once, and an event "command" with the text "ID LINE: ANSWER" is logged after
 * execution.  DS_ENOTFOUND when no process listens, DS_EBUSY when one does but does not answer. */
int job_command(const char *run_dir, const char *command, double timeout_s, struct str *answer,
                struct err *e) DS_CHECK;

/* The same without blocking: sends the command, then is polled. */
struct job_request;
int job_request_open(struct job_request **out, const char *run_dir, const char *command,
                     double timeout_s, struct err *e) DS_CHECK;
/* 1: answered; 0: not yet; else as job_command.  After anything but 0 only job_request_close may
 * follow. */
int job_request_poll(struct job_request *r, struct str *answer, struct err *e) DS_CHECK;
int job_request_fd(const struct job_request *r); /* readable when it should be polled */
void job_request_close(struct job_request *r);
/* ID of an "ok pending ID: ..." answer; 0 = a different answer. */
long long job_pending(const char *answer);

/* The presets found (data/NAME.yaml), and the keys of the workbench's form with defaults and
 * help. */
struct job_key {
    const char *key, *otherwise, *help, *choices;
};
int job_presets(char ***names, size_t *n, struct err *e) DS_CHECK; /* free with fs_list_free */
/* One preset: what it is for (the first comment of its file), and what its run takes. */
struct job_preset {
    char about[160], method[32];
    int64_t params;
    double bytes, work; /* memory of weights, gradients and moments; FLOPs of the run, dense */
};
int job_preset_read(struct job_preset *p, const char *name, struct err *e) DS_CHECK;
/* GFLOP/s of this machine's processors in fp32: 0 until it has been measured, by a thread that the
 * first call starts. */
double job_peak(void);
/* Values of the first n rows of job_keys under one preset or several separated by spaces: heap
 * strings (mem_free); NULL for keys of other methods. */
int job_preset_values(const char *presets, char **value, size_t n, struct err *e) DS_CHECK;
/* Splits `text` in place at spaces into at most `max` words; returns their number. */
size_t job_split_words(char *text, const char **word, size_t max);
/* Validates one value against its option row; unknown keys pass.  Same message as on the command
 * line. */
int job_check_value(const char *key, const char *text, struct err *e) DS_CHECK;
/* Reports every error that `depthscope train ARGS...` (presets, then settings) finds before it
 * creates a run. */
int job_check(const char *const *args, size_t n, struct err *e) DS_CHECK;

/* Names of the methods: at most `max`; returns their number. */
size_t job_methods(const char **name, size_t max);
/* A name for a new run: valid, and not taken. */
int job_check_name(const char *name, struct err *e) DS_CHECK;

/* What `depthscope train ARGS...` will need; the errors are those of job_check. */
struct job_estimate {
    char method[32];
    int64_t params, method_params; /* of the base model; added by the method */
    double flops_token;            /* forward, dense, mean over a full context */
    double flops_run;              /* of the whole run, dense: 3 x forward */
    double memory;           /* bytes: weights, gradients, moments and the buffers of a step */
    double checkpoint, disk; /* bytes of one checkpoint, and of those kept */
    int64_t checkpoints;
};
int job_estimate(struct job_estimate *s, const char *const *args, size_t n, struct err *e) DS_CHECK;
/* Seconds of the run at JOB_MFU of a peak in GFLOP/s (job_peak); NaN when that is 0. */
#define JOB_MFU 0.3
double job_estimate_seconds(const struct job_estimate *s, double gflops);
/* The same for people: name, value and what it counts. */
enum { JOB_FACTS = 5 };
struct job_fact {
    const char *name;
    char value[48], note[128];
};
void job_estimate_facts(const struct job_estimate *s, double gflops,
                        struct job_fact fact[JOB_FACTS]);

/* A start, watched until the run has written its first record. */
struct job_launch {
    char name[65], dir[1024];
    int fd;        /* readable when the state may have changed */
    int is_resume; /* `dir` holds an earlier log of `log_bytes` bytes and is kept on failure */
    int64_t log_bytes;
    char output[1024]; /* directory of train.out */
};
enum launch_state { LAUNCH_STARTING, LAUNCH_RUNS, LAUNCH_FAILED };
int job_launch(struct job_launch *l, const char *const *args, size_t n, struct err *e) DS_CHECK;
/* The same with a name for the run, which must be free; "" = one derived from the preset. */
int job_launch_named(struct job_launch *l, const char *name, const char *const *args, size_t n,
                     struct err *e) DS_CHECK;
/* Starts `depthscope train --resume NAME` (from NULL), or `--from FROM` as a new run
 * NAME-from-FROM. */
int job_launch_resume(struct job_launch *l, const char *name, const char *from,
                      struct err *e) DS_CHECK;
/* Never blocks.  LAUNCH_FAILED: the process ended without a record; the directory of a new run is
 * removed and `words` is its last line of output. */
enum launch_state job_launch_state(struct job_launch *l, char *words, size_t size);
void job_launch_release(struct job_launch *l); /* does not stop the run */
/* The last line of RUN/train.out, the output of a run started in the background; 0 = none. */
int job_last_line(const char *dir, char *out, size_t size);

/* All option rows that a run accepts, static; common ones first. */
const struct job_key *job_keys(size_t *n);

#endif
