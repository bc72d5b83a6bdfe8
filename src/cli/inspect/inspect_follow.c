/* depthscope inspect RUN --follow, --until: a line whenever something changed, and waiting for a
 * condition. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/inspect/inspect.h"
#include "cli/inspect/until.h"
#include "cli/record_json.h"
#include "io/runlog.h"
#include "io/runview.h"

enum { SHOWN_MAX = 6 };
static const double poll_s = 0.2, gone_s = 60, foreign_gone_s = 600;

struct follow {
    struct runview *v;
    struct until until;
    const char *path, *condition; /* NULL: none */
    int is_json, is_quiet;        /* quiet: only the last line */
    double every_s, limit_s;
};

/* The newest value that counts; NaN when there is none. */
static double newest(const struct series *s)
{
    for (size_t i = s->n; i-- > 0;)
        if (!s->is_old[i])
            return s->value[i];
    return (double)NAN;
}

static void add_json(struct str *out, const struct runview *v, int holds)
{
    str_add(out, "{");
    json_add_str(out, "run", v->name);
    json_add_str(out, "state", run_state_name(v->state));
    if (v->method && v->method[0])
        json_add_str(out, "method", v->method);
    json_add_int(out, "step", v->step);
    if (v->steps_planned > 0)
        json_add_int(out, "steps", v->steps_planned);
    if (v->last_time > 0) {
        json_key(out, "time");
        str_add_real(out, v->last_time);
    }
    json_key(out, "metrics");
    str_add(out, "{");
    for (size_t i = 0; i < v->n_series; i++) {
        json_key(out, v->series[i].name);
        cli_add_json_real(out, newest(&v->series[i]));
    }
    str_add(out, "}");
    if (holds >= 0) {
        json_key(out, "holds");
        str_add(out, holds ? "true" : "false");
    }
    str_add(out, "}\n");
}

static void add_text(struct str *out, const struct runview *v)
{
    inspect_safe(out, v->name);
    str_addf(out, "  %s", run_state_name(v->state));
    str_addf(out, "  step %" PRId64, v->step);
    if (v->steps_planned > 0)
        str_addf(out, "/%" PRId64, v->steps_planned);
    for (size_t i = 0; i < v->n_series && i < SHOWN_MAX; i++) {
        str_add(out, "  ");
        inspect_safe(out, v->series[i].name);
        str_addf(out, " %.5g", newest(&v->series[i]));
    }
    str_add(out, "\n");
}

static int print_line(const struct follow *f, int holds, struct err *e)
{
    struct str line = {0};
    if (f->is_json)
        add_json(&line, f->v, f->condition ? holds : -1);
    else
        add_text(&line, f->v);
    int rc = cli_write_text(&line, e);
    str_release(&line);
    return rc;
}

/* Will nothing more come?  A silent run gets a minute: an evaluation may take that long where locks
 * do not travel.  Other programs take no locks at all. */
static int has_ended(const struct runview *v, double now)
{
    if (runlog_reader_fd(v->reader) >= 0)
        return runlog_reader_at_end(v->reader);
    if (v->state == RUN_SILENT)
        return !(runview_age(v, now) < (runview_foreign(v) ? foreign_gone_s : gone_s));
    return v->state == RUN_DONE || v->state == RUN_STOPPED || v->state == RUN_FAILED ||
           v->state == RUN_TRACE;
}

/* DS_ESTOP: the time is up. */
static int refuse(const struct follow *f, int is_late, double now, struct err *e)
{
    const char *key = until_missing(&f->until, f->v, now);
    char missing[UNTIL_KEY_MAX + 40] = "";
    if (key)
        snprintf(missing, sizeof missing, " (%s was not logged)", key);
    if (is_late)
        return err_set(e, DS_ESTOP, "%s: not %s after %g s, at step %" PRId64 "%s", f->path,
                       f->condition ? f->condition : "ended", f->limit_s, f->v->step, missing);
    return err_set(e, DS_ENOTFOUND, "%s: %s at step %" PRId64 " without %s%s", f->path,
                   run_state_name(f->v->state), f->v->step, f->condition, missing);
}

static int follow(struct follow *f, struct err *e)
{
    double start = clock_mono(), shown = -HUGE_VAL;
    uint64_t printed = UINT64_MAX;
    int rc = 0, state = -1;
    while (rc >= 0) {
        double now = clock_wall(), t = clock_mono();
        int holds = f->condition && !f->v->is_behind && until_holds(&f->until, f->v, now);
        int is_over = !f->v->is_behind && (holds || has_ended(f->v, now)),
            is_late = t - start >= f->limit_s;
        int is_news = f->v->records != printed || state != (int)f->v->state;
        int is_due = is_news && t - shown >= f->every_s && !f->is_quiet && !f->v->is_behind;
        if (is_due || is_over || is_late) {
            if (is_news)
                rc = print_line(f, holds, e);
            shown = t;
            printed = f->v->records;
            state = (int)f->v->state;
        }
        if (rc == 0 && holds)
            return 0;
        if (rc == 0 && is_over)
            return f->condition ? refuse(f, 0, now, e) : 0;
        if (rc == 0 && is_late)
            return refuse(f, 1, now, e);
        if (rc == 0 && cli_stdout_closed(f->v->is_behind ? 0 : (int)(1e3 * poll_s)))
            return f->condition ? err_set(e, DS_EIO, "standard output: closed") : 0;
        if (rc == 0 && (rc = runview_poll(f->v, poll_s, e)) > 0)
            rc = 0; /* records came */
    }
    return rc;
}

static int seconds(double *out, const struct cli_args *a, const char *name, double otherwise,
                   struct err *e)
{
    const char *text = cli_value(a, name);
    char *end;
    *out = text ? strtod(text, &end) : otherwise;
    if (text && (end == text || *end || !(*out >= 0)))
        return err_set(e, DS_EUSAGE, "--%s %s: must be a number of seconds", name, text);
    return 0;
}

int inspect_follow(const char *path, const struct cli_args *a, struct err *e)
{
    struct follow *f = mem_alloc(1, sizeof *f);
    int rc = f ? 0 : err_set(e, DS_EMEM, "inspect: out of memory");
    if (rc == 0) {
        f->path = path;
        f->condition = cli_value(a, "until");
        f->is_json = cli_flag(a, "json");
        f->is_quiet = !cli_flag(a, "follow");
        rc = seconds(&f->every_s, a, "every", 1, e);
    }
    if (rc == 0)
        rc = seconds(&f->limit_s, a, "timeout", HUGE_VAL, e);
    if (rc == 0 && f->condition)
        rc = until_parse(&f->until, f->condition, e);
    if (rc == 0)
        rc = runview_open(&f->v, path, e);
    if (rc == 0)
        rc = follow(f, e);
    if (f)
        runview_free(f->v);
    mem_free(f);
    return rc;
}
