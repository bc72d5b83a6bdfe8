/* Metrics as an event file of TensorBoard: one Event for the values of a step and time. */
#include "io/tfevents.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "io/protobuf.h"
#include "io/tfevents_fields.h"

struct place {
    int64_t step;
    size_t series, i;
};

static int by_step(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    if (x->series != y->series)
        return x->series < y->series ? -1 : 1;
    return (x->i > y->i) - (x->i < y->i);
}

static void add_little(struct str *s, int bytes, uint64_t v)
{
    for (int i = 0; i < bytes; i++)
        str_add_char(s, (char)(v >> 8 * i & 0xff));
}

static void add_record(struct str *out, const struct str *event)
{
    size_t at = out->len;
    add_little(out, 8, event->len);
    if (!out->failed)
        add_little(out, 4, tfrecord_crc(out->p + at, 8));
    str_add_bytes(out, str_text(event), event->len);
    add_little(out, 4, tfrecord_crc(str_text(event), event->len));
}

static void begin_event(struct str *event, int64_t step, double time)
{
    str_reset(event);
    pb_add_double(event, EVENT_WALL_TIME, isnan(time) ? 0 : time);
    if (step != 0)
        pb_add_varint(event, EVENT_STEP, (uint64_t)step);
}

static void add_value(struct str *summary, struct str *value, const char *tag, double x)
{
    float rounded = (float)x;
    str_reset(value);
    pb_add_text(value, VALUE_TAG, tag);
    pb_add_float(value, VALUE_SIMPLE, rounded);
    if (!isnan(x) && (double)rounded != x)
        pb_add_double(value, VALUE_EXACT, x);
    pb_add_bytes(summary, SUMMARY_VALUE, str_text(value), value->len);
}

static size_t count_points(const struct runview *v)
{
    size_t n = 0;
    for (size_t k = 0; k < v->n_series; k++)
        n += v->series[k].n;
    return n;
}

/* The valid points in the order in which they are written; returns how many. */
static size_t order_points(const struct runview *v, struct place *place)
{
    size_t n = 0;
    for (size_t k = 0; k < v->n_series; k++)
        for (size_t i = 0; i < v->series[k].n; i++)
            if (!v->series[k].is_old[i])
                place[n++] = (struct place){v->series[k].step[i], k, i};
    qsort(place, n, sizeof *place, by_step);
    return n;
}

/* Can be in one event with the point before. */
static int is_together(const struct runview *v, const struct place *a, const struct place *b)
{
    double x = v->series[a->series].time[a->i], y = v->series[b->series].time[b->i];
    return a->step == b->step && a->series != b->series && (x == y || (isnan(x) && isnan(y)));
}

int tfevents_write(struct str *out, const struct runview *v, struct err *e)
{
    struct str event = {0}, summary = {0}, value = {0};
    struct place *place = mem_alloc(count_points(v) + 1, sizeof *place);
    size_t n = place ? order_points(v, place) : 0;
    begin_event(&event, 0, n ? v->series[place[0].series].time[place[0].i] : (double)NAN);
    pb_add_text(&event, EVENT_FILE_VERSION, "brain.Event:2");
    add_record(out, &event);
    for (size_t from = 0, to; from < n; from = to) {
        const struct series *first = &v->series[place[from].series];
        str_reset(&summary);
        for (to = from; to == from || (to < n && is_together(v, &place[to - 1], &place[to])); to++)
            add_value(&summary, &value, v->series[place[to].series].name,
                      v->series[place[to].series].value[place[to].i]);
        begin_event(&event, place[from].step, first->time[place[from].i]);
        pb_add_bytes(&event, EVENT_SUMMARY, str_text(&summary), summary.len);
        add_record(out, &event);
    }
    int failed = !place || out->failed || event.failed || summary.failed || value.failed;
    mem_free(place);
    str_release(&event);
    str_release(&summary);
    str_release(&value);
    return failed ? err_set(e, DS_EMEM, "tfevents: out of memory for %zu points", n) : 0;
}
