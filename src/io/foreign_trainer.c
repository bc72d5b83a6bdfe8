/* trainer_state.json of the Hugging Face Trainer: log_history, and how far the run is. */
#include <math.h>
#include <string.h>

#include "base/decimal.h"
#include "base/fs.h"
#include "io/foreign_object.h"
#include "io/foreign_text.h"

struct trainer {
    struct foreign_object object;
    int64_t step, steps;
    int is_stopped; /* should_training_stop of the Trainer's control */
};

static const double no_time = (double)NAN;

static int begins(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* ---- reading ---- */

/* The value of the member that was just named, unless it is a container. */
static enum json_token skip_value(struct json_scan *s)
{
    enum json_token t = json_scan_next(s);
    return t == JSON_SCAN_OBJECT || t == JSON_SCAN_ARRAY ? json_scan_skip(s) : t;
}

static void take_history(struct trainer *w, struct json_scan *s, struct foreign_out *out)
{
    int depth = s->depth;
    enum json_token t;
    while ((t = json_scan_next(s)) != JSON_SCAN_CUT && t != JSON_SCAN_BAD && s->depth >= depth) {
        if (t == JSON_SCAN_OBJECT)
            foreign_object_take(&w->object, s, out);
        else if (t == JSON_SCAN_ARRAY)
            json_scan_skip(s);
    }
}

/* {"TrainerControl": {"args": {"should_training_stop": true, ...}}, ...}: callbacks' own states. */
static void take_callbacks(struct trainer *w, struct json_scan *s)
{
    int depth = s->depth, is_stop = 0;
    enum json_token t;
    while ((t = json_scan_next(s)) != JSON_SCAN_CUT && t != JSON_SCAN_BAD && s->depth >= depth) {
        if (t == JSON_SCAN_KEY)
            is_stop = json_scan_is(s, "should_training_stop");
        else if (t == JSON_SCAN_BOOL && is_stop)
            w->is_stopped |= s->value > 0;
    }
}

static void add_setting(struct trainer *w, struct record *r, const char *key,
                        const struct json_scan *s)
{
    struct str text = {0};
    json_scan_text(s, &text);
    if (!text.failed && text.len > 0)
        record_str(r, key, text.p);
    w->object.is_failed |= text.failed;
    str_release(&text);
}

/* What the file says of the run besides its log: `from` is the opened object. */
static void take_head(struct trainer *w, struct json_scan from, struct foreign_out *out)
{
    static const char *const settings[] = {
        "num_train_epochs", "train_batch_size", "logging_steps",         "eval_steps",
        "save_steps",       "best_metric",      "best_model_checkpoint", "num_input_tokens_seen",
        "total_flos",       "trial_name"};
    struct json_scan s = from;
    struct record *r = foreign_begin(out, "head", 0, no_time);
    enum json_token t;
    int is_key;
    record_map(r, "config");
    while ((t = json_scan_next(&s)) == JSON_SCAN_KEY) {
        struct json_scan key = s;
        t = skip_value(&s);
        is_key = t == JSON_SCAN_NUMBER || t == JSON_SCAN_STRING;
        for (size_t i = 0; is_key && i < DS_LEN(settings); i++)
            if (json_scan_is(&key, settings[i]))
                add_setting(w, r, settings[i], &s);
        if (t == JSON_SCAN_NUMBER && json_scan_is(&key, "global_step") &&
            !text_step(s.value, &w->step))
            w->step = 0;
        if (t == JSON_SCAN_NUMBER && json_scan_is(&key, "max_steps") &&
            !text_step(s.value, &w->steps))
            w->steps = 0;
    }
    record_close(r);
    if (w->steps > 0)
        record_int(r, "steps", w->steps);
    foreign_end(out);
}

static int64_t take(void *state, struct foreign_out *out, const struct foreign_bytes *b,
                    struct err *e)
{
    struct trainer *w = state;
    struct json_scan s = {.p = b->p, .end = b->p + b->n}, check = s;
    enum json_token t = json_scan_next(&check);
    if (t == JSON_SCAN_OBJECT)
        t = json_scan_skip(&check);
    if (t == JSON_SCAN_CUT) /* being written */
        return 0;
    if (t != JSON_SCAN_CLOSE)
        return err_set(e, DS_EFORMAT, "offset %zu: expected a JSON object",
                       (size_t)(check.p - b->p));
    json_scan_next(&s);
    take_head(w, s, out);
    while (json_scan_next(&s) == JSON_SCAN_KEY) {
        int is_log = json_scan_is(&s, "log_history");
        int is_callbacks = json_scan_is(&s, "stateful_callbacks");
        t = json_scan_next(&s);
        if (t == JSON_SCAN_ARRAY && is_log)
            take_history(w, &s, out);
        else if (t == JSON_SCAN_OBJECT && is_callbacks)
            take_callbacks(w, &s);
        else if (t == JSON_SCAN_OBJECT || t == JSON_SCAN_ARRAY)
            json_scan_skip(&s);
    }
    if (w->object.is_failed)
        return err_set(e, DS_EMEM, "out of memory");
    if (w->step > 0 && ((w->steps > 0 && w->step >= w->steps) || w->is_stopped)) {
        record_str(foreign_begin(out, "end", w->step, no_time), "status", "done");
        foreign_end(out);
    }
    return (int64_t)b->n;
}

static void release(void *state)
{
    foreign_object_release(&((struct trainer *)state)->object);
}

/* ---- recognising ---- */

static int recognise(const unsigned char *p, size_t n, const char *file, int is_all)
{
    struct json_scan s = {.p = (const char *)p, .end = (const char *)p + n};
    enum json_token t = json_scan_next(&s);
    int has_step = 0, has_log = 0;
    (void)file;
    (void)is_all;
    if (t != JSON_SCAN_OBJECT)
        return 0;
    while ((t = json_scan_next(&s)) == JSON_SCAN_KEY) {
        has_step |= json_scan_is(&s, "global_step");
        has_log |= json_scan_is(&s, "log_history");
        if ((t = skip_value(&s)) == JSON_SCAN_CUT)
            break;
    }
    return t != JSON_SCAN_BAD && has_log && has_step ? 95 : 0;
}

static int is_folder(const char *rel)
{
    return begins(rel, "checkpoint-") && !strchr(rel, '/');
}

static int is_member(const char *rel)
{
    const char *slash = strrchr(rel, '/');
    return strcmp(slash ? slash + 1 : rel, "trainer_state.json") == 0 &&
           (!slash || begins(rel, "checkpoint-"));
}

/* The step that a file was written at: in the name of its folder, or at its beginning.  The one in
 * the run's own folder is written last, but may be of an earlier part of the run. */
static int64_t place(const char *path, const char *rel)
{
    char head[4096];
    size_t n = 0;
    int64_t step = 0;
    int fd;
    if (begins(rel, "checkpoint-")) {
        const char *number = rel + strlen("checkpoint-");
        double x;
        size_t used = decimal_read(number, strspn(number, "0123456789"), '.', &x);
        return used > 0 && text_step(x, &step) ? 2 * step : -1;
    }
    if (fs_open_read(&fd, path, NULL) == 0) {
        (void)!fs_read_some(fd, head, sizeof head, &n, path, NULL);
        fs_close(fd);
    }
    struct json_scan s = {.p = head, .end = head + n};
    if (json_scan_next(&s) != JSON_SCAN_OBJECT)
        return 1;
    while (json_scan_next(&s) == JSON_SCAN_KEY) {
        int is_step = json_scan_is(&s, "global_step");
        enum json_token t = skip_value(&s);
        if (t == JSON_SCAN_CUT || t == JSON_SCAN_BAD ||
            (is_step && t == JSON_SCAN_NUMBER && text_step(s.value, &step)))
            break;
    }
    return 2 * step + 1;
}

const struct foreign_format foreign_trainer = {
    .name = "trainer",
    .title = "Hugging Face Trainer",
    .help = "trainer_state.json, alone or the newest in a folder of checkpoints",
    .recognise = recognise,
    .state_size = sizeof(struct trainer),
    .take = take,
    .release = release,
    .is_member = is_member,
    .is_folder = is_folder,
    .depth = 1,
    .is_whole = 1,
    .place = place,
};
