/* Derives a run's state from its records and the lock.  Knows nothing of metrics or screens. */
#include "io/run_state.h"

#include <math.h>

static const double live_age_s = 15;

const char *run_state_name(enum run_state state)
{
    static const char *const name[RUN_STATES] = {
        [RUN_EMPTY] = "empty",   [RUN_LIVE] = "live",   [RUN_PAUSED] = "paused",
        [RUN_SILENT] = "silent", [RUN_DONE] = "done",   [RUN_STOPPED] = "stopped",
        [RUN_FAILED] = "failed", [RUN_ENDED] = "ended", [RUN_TRACE] = "trace",
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

void run_phase_update(struct run_phase *p, struct value body)
{
    struct value kind = value_get(body, "kind");
    double time = value_num(value_get(body, "time"), (double)NAN);
    int64_t step = value_int(value_get(body, "step"), -1);
    int is_late = value_is(kind, "probe"); /* over a host they may come after newer records */
    p->records++;
    if (fabs(time) <= 1e12 && !(is_late && time < p->last_time))
        p->last_time = time;
    if (step >= 0 && !(is_late && step < p->step))
        p->step = step;
    if (value_is(kind, "head")) {
        int64_t planned = value_int(value_get(body, "steps"), -1);
        p->steps_planned = planned >= 0 ? planned : p->steps_planned;
        p->has_end = p->is_paused = 0;
    } else if (value_is(kind, "end")) {
        take_end(p, body);
    } else if (value_is(kind, "event")) {
        struct value name = value_get(body, "name");
        p->is_log = 1;
        /* a setting changed or a checkpoint saved while paused does not end the pause */
        p->is_paused = value_is(name, "pause") || (p->is_paused && !value_is(name, "resume"));
    } else if (value_is(kind, "metric") || value_is(kind, "layer")) {
        p->is_log = 1;
        p->is_paused = p->is_paused && !value_is(kind, "metric");
    } else if (value_is(kind, "probe") || value_is(kind, "eval") || value_is(kind, "sample") ||
               value_is(kind, "matrix")) {
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
