/* Arbitrary lines to a trainer of a tiny model, whose method is that of the first byte. Each line
 * is one command, as from control.sock, with one answer of one line; "step" trains a step. A
 * line that begins with "!" or "?" is the text of an event "set" or "settings" of its log. In
 * the end the settings that hold are read back from live.json and, without it, from the log. */
#include "tiny_run.h"

#include "training/command.c"

static const char *const method[] = {"mod",        "edp",    "gateskip",   "dtf",
                                     "dlr",        "hat",    "halt",       "layerskip",
                                     "stochastic", "random", "flexidepth", "ouro"};
enum { METHODS = 12, STEPS = 2, LINES = 100, LINE = 600 };

static struct trainer trainers[METHODS], *trainer;
static struct tiny_kept kept[METHODS];
static int is_whole; /* the log says every setting */

static const char *run_path(const char *name)
{
    static char path[1200];
    need(fs_join(path, sizeof path, trainer->dir, name, NULL) == 0);
    return path;
}

/* With the run's first values, an empty log and no live.json. */
static void begin(int m)
{
    char key[64];
    struct err e = {0};
    trainer = &trainers[m];
    if (!trainer->model) {
        snprintf(key, sizeof key, "model.method=%s", method[m]);
        tiny_open(trainer, method[m], key);
        tiny_keep(&kept[m], trainer);
    }
    tiny_reset(trainer, &kept[m]);
    trainer->is_paused = 0;
    unlink(run_path("live.json"));
    runlog_writer_close(trainer->log);
    unlink(run_path("log.mp"));
    tiny_ok(runlog_writer_open(&trainer->log, run_path("log.mp"), &e), &e);
}

static void check_answer(const struct str *answer, int is_done)
{
    const char *text = str_text(answer);
    need(!answer->failed && !strchr(text, '\n'));
    need(strncmp(text, "error ", 6) == 0 ||
         (is_done ? strncmp(text, "ok ", 3) == 0 : strncmp(text, "confirm ", 8) == 0));
}

static void command(const char *line)
{
    struct str answer = {0};
    int is_answered = check_command(trainer, line, &answer);
    need(is_answered == (answer.len > 0));
    if (!is_answered) {
        trainer_command_run(trainer, line, &answer);
        trainer_command_done(trainer, 1, line, str_text(&answer));
    }
    check_answer(&answer, !is_answered);
    str_release(&answer);
}

static void event(const char *name, const char *text)
{
    struct err e = {0};
    is_whole = 0;
    tiny_ok(trainer_log_event(trainer, LOG_INFO, name, text, &e), &e);
}

/* The same values of a key in the same order: live.json has them by key. */
static void check_same(const struct live_setting *was, int n, int i)
{
    int before = 0, k = 0;
    for (int j = 0; j < i; j++)
        before += strcmp(was[j].key, was[i].key) == 0;
    for (; k < n && (strcmp(trainer->live[k].key, was[i].key) != 0 || before-- > 0); k++) {
    }
    need(k < n && trainer->live[k].step == was[i].step);
    need(!(trainer->live[k].value < was[i].value) && !(trainer->live[k].value > was[i].value));
}

static void check_kept(void)
{
    static struct live_setting was[LIVE_MAX], log[LIVE_MAX];
    struct err e = {0};
    int n = trainer->n_live, logged = 0;
    memcpy(was, trainer->live, sizeof was);
    need(n >= 0 && n <= LIVE_MAX &&
         trainer_live_from_log(trainer->dir, INT64_MAX, log, &logged, &e) == 0 &&
         logged <= LIVE_MAX);
    for (int broken = 0; broken < 2; broken++) {
        if (broken && n + logged > 0)
            fuzz_put(run_path("live.json"), "{", 1);
        trainer->n_live = 0;
        int rc = trainer_apply_live(trainer, &e);
        need_line(rc, &e);
        if (broken && !is_whole)
            return;
        need(rc == 0 && trainer->n_live == n);
        for (int i = 0; i < n; i++)
            check_same(was, n, i);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = {0};
    if (size == 0)
        return 0;
    begin(data[0] % METHODS);
    is_whole = 1;
    int steps = 0, lines = 0;
    for (size_t at = 1, n; at < size && lines++ < LINES; at += n + 1) {
        char line[LINE];
        const uint8_t *end = memchr(data + at, '\n', size - at);
        n = end ? (size_t)(end - data) - at : size - at;
        snprintf(line, sizeof line, "%.*s", (int)(n < LINE ? n : LINE), (const char *)data + at);
        if (strcmp(line, "step") == 0 && steps++ < STEPS)
            need_line(train_step(trainer, &e), &e);
        else if (line[0] == '!' || line[0] == '?')
            event(line[0] == '!' ? "set" : "settings", line + 1);
        else
            command(line);
    }
    check_kept();
    return 0;
}
