/* Derives a run's state from its records and the lock.  Knows nothing of metrics or screens. */
#include "io/run_state.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "io/runlog.h"

/* A head may carry a large configuration, and an end record is short and last. */
enum { FIRST_RECORDS = 64, TAIL_BYTES = 256 << 10, NOISE_MAX = 4 << 20 };

static const double live_age_s = 15;

const char *run_state_name(enum run_state state)
{
    static const char *const name[RUN_STATES] = {
        [RUN_EMPTY] = "empty",   [RUN_LIVE] = "live",   [RUN_PAUSED] = "paused",
        [RUN_SILENT] = "silent", [RUN_DONE] = "done",   [RUN_STOPPED] = "stopped",
        [RUN_FAILED] = "failed", [RUN_TRACE] = "trace",
    };
    return (unsigned)state < RUN_STATES ? name[state] : "";
}

static void take_end(struct run_phase *p, struct value body)
{
    struct value status = value_get(body, "status");
    p->has_end = p->is_log = 1;
    p->end = value_is(status, "done")     ? RUN_DONE
             : value_is(status, "failed") ? RUN_FAILED
                                          : RUN_STOPPED;
}

void run_phase_take(struct run_phase *p, struct value body)
{
    struct value kind = value_get(body, "kind");
    double time = value_num(value_get(body, "time"), (double)NAN);
    int64_t step = value_int(value_get(body, "step"), -1);
    p->records++;
    if (fabs(time) <= 1e12)
        p->last_time = time;
    if (step >= 0)
        p->step = step;
    if (value_is(kind, "head")) {
        int64_t planned = value_int(value_get(body, "steps"), -1);
        p->steps_planned = planned >= 0 ? planned : p->steps_planned;
        p->has_end = p->is_paused = 0;
    } else if (value_is(kind, "end")) {
        take_end(p, body);
    } else if (value_is(kind, "event")) {
        p->is_log = 1;
        p->is_paused = value_is(value_get(body, "name"), "pause");
    } else if (value_is(kind, "metric") || value_is(kind, "layer")) {
        p->is_log = 1;
        p->is_paused = p->is_paused && !value_is(kind, "metric");
    } else if (value_is(kind, "probe") || value_is(kind, "eval") || value_is(kind, "sample")) {
        p->is_pass = 1;
    }
}

enum run_state run_phase_state(const struct run_phase *p, int is_locked, double now)
{
    double age = now - p->last_time;
    int is_young = p->last_time > 0 && age < live_age_s && age > -live_age_s;
    if (p->has_end)
        return p->end;
    if (is_locked)
        return p->is_paused ? RUN_PAUSED : RUN_LIVE;
    if (p->records == 0)
        return RUN_EMPTY;
    if (p->is_pass && !p->is_log && p->steps_planned == 0)
        return RUN_TRACE;
    if (is_young)
        return p->is_paused ? RUN_PAUSED : RUN_LIVE;
    return RUN_SILENT;
}

static int take_some(struct run_phase *p, struct runlog_reader *r, int max, struct err *e)
{
    struct runlog_entry entry;
    int rc = 0;
    for (int i = 0; i < max && (rc = runlog_next(r, &entry, e)) > 0; i++)
        if (!entry.is_gap && !entry.is_repeat)
            run_phase_take(p, entry.body);
    return rc;
}

int run_glance_read(struct run_glance *g, const char *path, struct err *e)
{
    char log[4096];
    struct runlog_reader *r = NULL;
    struct run_phase p = {0};
    int rc = fs_is_dir(path)                   ? fs_join(log, sizeof log, path, "log.mp", e)
             : str_copy(log, sizeof log, path) ? err_set(e, DS_ERANGE, "path too long")
                                               : 0;
    if (rc == 0 && !fs_exists(log))
        rc = err_set(e, DS_ENOTFOUND, "%s: not found", log);
    if (rc == 0)
        rc = runlog_reader_open(&r, log, e);
    if (rc == 0) {
        runlog_reader_bound(r, NOISE_MAX);
        rc = take_some(&p, r, FIRST_RECORDS, e);
    }
    if (rc > 0 || (rc == 0 && runlog_reader_is_behind(r))) {
        runlog_reader_skip_to_tail(r, TAIL_BYTES);
        rc = take_some(&p, r, TAIL_BYTES, e);
    }
    runlog_reader_close(r);
    if (rc < 0)
        return rc;
    *g = (struct run_glance){
        .state = run_phase_state(&p, runlog_is_locked(log), clock_wall()),
        .step = p.step,
        .steps_planned = p.steps_planned,
        .last_time = p.last_time,
    };
    return 0;
}
