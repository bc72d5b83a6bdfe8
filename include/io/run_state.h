/* The state of a run, computed from its records alone: one answer for the status line, Home, lists
 * and scripts. */
#ifndef DS_IO_RUN_STATE_H
#define DS_IO_RUN_STATE_H

#include <stdint.h>

#include "base/err.h"
#include "io/record.h"

enum run_state {
    RUN_EMPTY,   /* no records and no writer process */
    RUN_LIVE,    /* a process is writing it */
    RUN_PAUSED,  /* a process holds it; the run waits for "resume" */
    RUN_SILENT,  /* no end record and no writer: the process was killed, or its host is gone */
    RUN_DONE,    /* end record: all planned steps */
    RUN_STOPPED, /* end record: stopped by the user */
    RUN_FAILED,  /* end record: the run failed */
    RUN_ENDED,   /* the pipe that it came through closed before an end record */
    RUN_TRACE,   /* not a run: decisions or results of forward passes over a text */
    RUN_STATES
};
/* "empty", "live", "paused", "silent", "done", "stopped", "failed", "ended", "trace"; "" for any
 * other value. */
const char *run_state_name(enum run_state state);

/* What the state depends on, gathered record by record.  Starts zeroed. */
struct run_phase {
    uint64_t records;
    int has_end, is_paused;
    int is_log;  /* something only a run writes: metric, layer, event or end */
    int is_pass; /* probe, eval, sample or matrix */
    enum run_state end;
    int64_t step, steps_planned;
    double last_time; /* wall seconds of the newest record that has a time; 0 = none */
};
void run_phase_update(struct run_phase *p, struct value body);
/* is_locked: a process holds the writer's lock.  A log without lock (another host, no flock) whose
 * newest record is younger than 15 s counts as live, too. */
enum run_state run_phase_state(const struct run_phase *p, int is_locked, double now);

#endif
