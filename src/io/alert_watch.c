/* Feeds the rules of alerts from run views and from rows of lists: what is new since the last look. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "io/alert.h"
#include "io/runindex.h"
#include "io/runview.h"
#include "io/system.h"

/* Points of a long log that the first look takes: no rule depends on earlier ones. */
enum { BACK_MAX = 8192 };

static size_t from(size_t seen, size_t n)
{
    seen = seen <= n ? seen : 0; /* the log was replaced */
    return n - seen > BACK_MAX ? n - BACK_MAX : seen;
}

/* The trainer of this program computes on the CPU: what GPUs of its machine do is not its doing. */
static int uses_gpu(const struct runview *v)
{
    return v->writer[0] || v->framework[0] || v->gpu[0] || runview_foreign(v);
}

static void view_losses(struct alert_watch *w, const struct runview *v)
{
    const struct series *s = runview_series(v, "loss");
    if (!s)
        s = runview_series(v, "val_loss");
    for (size_t i = s ? from(w->seen.loss, s->n) : 0; s && i < s->n; i++)
        alert_take_loss(w, s->step[i], s->time[i], s->value[i]);
    w->seen.loss = s ? s->n : 0;
}

static void view_layers(struct alert_watch *w, const struct runview *v)
{
    const struct layer_series *s = runview_layer(v, "gate_ratio");
    const unsigned char *on = s && v->n_always_on >= s->layers ? v->always_on : NULL;
    for (size_t i = s ? from(w->seen.layer, s->n) : 0; s && i < s->n; i++)
        alert_take_layers(w, s->step[i], (double)NAN, s->value + i * (size_t)s->layers, s->layers, on);
    w->seen.layer = s ? s->n : 0;
}

static void view_system(struct alert_watch *w, const struct runview *v)
{
    for (int g = 0; g < MACHINE_GPUS && uses_gpu(v); g++) {
        char name[64];
        snprintf(name, sizeof name, "system/gpu.%d.gpu", g);
        const struct series *s = runview_series(v, name);
        for (size_t i = s ? from(w->seen.gpu[g], s->n) : 0; s && i < s->n; i++)
            alert_take_gpu(w, g, s->step[i], s->time[i], s->value[i] / 100);
        w->seen.gpu[g] = s ? s->n : 0;
    }
    if (v->system)
        alert_take_disk(w, v->system_step, v->system->time, v->system->disk_free);
}

static void view_events(struct alert_watch *w, const struct runview *v)
{
    uint64_t n = v->events_dropped + v->n_events;
    uint64_t seen = w->seen.events <= n ? w->seen.events : 0;
    size_t i = seen > v->events_dropped ? (size_t)(seen - v->events_dropped) : 0;
    if (v->head_time != w->seen.head_time) /* another process: it reports anew what holds */
        for (int r = 0; r < ALERT_RULES; r++) {
            w->episode[r].recorded = 0;
            w->episode[r].is_on = w->episode[r].judged;
        }
    w->seen.head_time = v->head_time;
    for (; i < v->n_events; i++) {
        const struct run_event *e = &v->event[i];
        int rule = e->alert < 0 ? -e->alert : e->alert;
        if (rule > 0 && rule <= ALERT_RULES && !(e->time < v->head_time))
            alert_take_event(w, (enum alert_rule)(rule - 1), e->alert < 0, e->level, e->step,
                             e->time, e->text);
    }
    w->seen.events = n;
}

/* By the watcher's clock, whatever the writer's: when something came.  For the first look the time
 * of the newest point has to do. */
static void progress(struct alert_watch *w, int is_new, double newest, double now)
{
    if (!w->has_clock)
        alert_take_progress(w, newest > 0 && newest < now ? newest : now);
    else if (is_new)
        alert_take_progress(w, now);
}

void alert_watch_view(struct alert_watch *w, const struct runview *v, double now)
{
    if (v->generation != w->seen.generation || !w->has_clock) {
        size_t losses = w->seen.loss;
        view_events(w, v);
        view_losses(w, v);
        view_layers(w, v);
        view_system(w, v);
        w->seen.generation = v->generation;
        const struct series *s = runview_series(v, "loss");
        double time = s && s->n > 0 ? s->time[s->n - 1] : v->last_time;
        progress(w, losses != w->seen.loss || v->step != w->seen.step, time - v->skew, now);
        w->seen.step = v->step;
    }
    alert_clock(w, v->state, now);
}

void alert_watch_row(struct alert_watch *w, const struct run_row *row, double now)
{
    double last = row->last_time > 0 ? row->last_time : row->modified;
    int64_t step = row->phase.step;
    unsigned set = 0;
    if (row->number[RUN_ALERTS] >= 0 && row->number[RUN_ALERTS] < 2 * ALERT_BAD_LOSS)
        set = (unsigned)row->number[RUN_ALERTS];
    if (last != w->seen.last_time || step != w->seen.step || !w->has_clock) {
        double loss = set & ALERT_BAD_LOSS ? (double)NAN : row->number[RUN_LOSS];
        for (int r = 0; r < ALERT_RULES; r++) {
            int is_on = (set >> r & 1) != 0;
            char text[ALERT_TEXT];
            snprintf(text, sizeof text, "%s, reported by the run",
                     alert_what((enum alert_rule)r));
            int is_known = is_on || !(row->alerts_unread >> r & 1);
            if (is_known && is_on != w->episode[r].recorded)
                alert_take_event(w, (enum alert_rule)r, !is_on, 0, step, last, text);
        }
        if (set & ALERT_BAD_LOSS || isfinite(loss))
            alert_take_loss(w, step, last, loss);
        if (isfinite(row->number[RUN_GPU_USE]))
            alert_take_gpu(w, 0, step, last, row->number[RUN_GPU_USE]);
        if (isfinite(row->number[RUN_DISK_FREE]))
            alert_take_disk(w, step, last, row->number[RUN_DISK_FREE]);
        /* records of the machine come from a run that hangs, too: the step counts where there is one */
        progress(w, step > 0 ? step != w->seen.step : last != w->seen.last_time, last, now);
        w->seen.last_time = last;
        w->seen.step = step;
    }
    alert_clock(w, row->state, now);
}

unsigned alert_set_of(const struct alert_options *o, const struct run_row *row, double now)
{
    struct alert_watch w;
    alert_watch_init(&w, o);
    alert_watch_row(&w, row, now);
    unsigned set = alert_set(&w);
    alert_watch_release(&w);
    return set;
}
