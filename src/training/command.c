/* Commands from control.sock: checked at once on the control thread, executed by the trainer
 * between two steps. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "training/trainer.h"

struct set {
    char key[64];
    double value;
    int is_confirmed;
};

/* "KEY NUMBER", or "KEY NUMBER yes". */
static int parse_set(struct set *s, const char *rest)
{
    int end = 0;
    if (sscanf(rest, "%63s %lf %n", s->key, &s->value, &end) < 2)
        return 0;
    s->is_confirmed = strcmp(rest + end, "yes") == 0;
    return s->is_confirmed || rest[end] == '\0';
}

static int check_set(const struct trainer *t, const char *rest, struct str *answer)
{
    struct set s;
    char why[200];
    struct err e = {0};
    if (!parse_set(&s, rest)) {
        str_add(answer, "error set: expected KEY NUMBER, such as train.lr 1e-4");
        return 1;
    }
    if (trainer_check_set(t, s.key, s.value, &e) < 0) {
        str_addf(answer, "error %s", e.text);
        return 1;
    }
    if (s.is_confirmed || !trainer_is_large_change(t, s.key, s.value, why, sizeof why))
        return 0;
    str_addf(answer, "confirm %s; to set it: set %s %.10g yes", why, s.key, s.value);
    return 1;
}

static int check_command(void *ctx, const char *line, struct str *answer)
{
    static const char *const plain[] = {"pause", "resume", "checkpoint", "probe", "stop"};
    if (strncmp(line, "set ", 4) == 0)
        return check_set(ctx, line + 4, answer);
    for (size_t i = 0; i < DS_LEN(plain); i++)
        if (strcmp(line, plain[i]) == 0)
            return 0;
    str_add(answer, "error unknown command (pause, resume, checkpoint, probe, stop, set KEY "
                    "NUMBER, status)");
    return 1;
}

static void describe_status(const struct trainer *t, char *text, size_t size)
{
    char loss[32] = "-"; /* before the first step of this process */
    if (t->report.step > 0)
        snprintf(loss, sizeof loss, "%.4f", t->report.loss);
    snprintf(text, size, "ok step %" PRId64 " of %" PRId64 ", loss %s, lr %.3g, %s", t->state.step,
             t->config.train.steps, loss, t->report.lr, t->is_paused ? "paused" : "running");
}

int trainer_listen(struct trainer *t, struct err *e)
{
    char text[200];
    describe_status(t, text, sizeof text);
    return control_open(&t->control, t->dir, text, check_command, t, e);
}

void trainer_set_status(struct trainer *t)
{
    char text[200];
    describe_status(t, text, sizeof text);
    control_set_status(t->control, text);
}

static void command_set(struct trainer *t, const char *rest, struct str *answer)
{
    struct set s;
    struct err e = {0};
    if (!parse_set(&s, rest))
        return; /* check_command has refused it */
    control_lock(t->control);
    int rc = trainer_set(t, s.key, s.value, &e);
    control_unlock(t->control);
    if (rc < 0) {
        str_addf(answer, "error %s", e.text);
        return;
    }
    str_addf(answer, "ok %s %g", s.key, s.value);
    if (trainer_keep_live(t, &e) < 0)
        str_addf(answer, ", but not saved for resume: %s", e.text);
    if (trainer_log_set(t, s.key, s.value, &e) < 0)
        log_warn("%s", e.text);
}

void trainer_command_run(void *ctx, const char *line, struct str *answer)
{
    struct trainer *t = ctx;
    struct err e = {0};
    int rc = 0;
    if (strncmp(line, "set ", 4) == 0) {
        command_set(t, line + 4, answer);
        return;
    }
    if (strcmp(line, "pause") == 0 || strcmp(line, "resume") == 0) {
        int want = line[0] == 'p';
        if (want != t->is_paused)
            rc = trainer_log_event(t, LOG_INFO, line, "from the control socket", &e);
        t->is_paused = want;
        trainer_set_status(t); /* before the answer, so that a following status is up to date */
    } else if (strcmp(line, "checkpoint") == 0) {
        t->checkpoint_requested = 1;
    } else if (strcmp(line, "probe") == 0) {
        t->wants_probe = 1;
    } else if (strcmp(line, "stop") == 0) {
        t->wants_stop = 1;
    }
    str_addf(answer, rc < 0 ? "error %s" : "ok %s", rc < 0 ? e.text : line);
}

void trainer_command_done(void *ctx, int64_t id, const char *line, const char *answer)
{
    char text[600];
    struct err e = {0};
    snprintf(text, sizeof text, "%" PRId64 " %s: %s", id, line, answer);
    if (trainer_log_event(ctx, LOG_INFO, "command", text, &e) < 0)
        log_warn("%s", e.text);
}
