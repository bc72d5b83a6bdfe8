/* Compares scripted screens of the Depth map, Signals and the Stepper with committed ones.  The worker
 * of the Stepper is a mock: it answers at once with fixtures, and exits on the prompt "worker exit".
 *
 *   GENERATE=1 test_screens_cells    regenerates the screens; inspect the diff.
 */
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "t.h"

#include "base/fs.h"
#include "base/mem.h"
#include "eval/job.h"
#include "screens/golden.h"
#include "screens/probes.h"
#include "tui/app.h"

/* ---- a worker without a model ---- */

enum { ANSWERS_MAX = 64 };
struct session {
    struct str answer[ANSWERS_MAX];
    int at, n, flip, tokens, is_dead;
    double offset;
    struct record *record;
};

int session_open(struct session **out, const char *model, struct err *e)
{
    if (strcmp(model, "missing") == 0)
        return err_set(e, DS_ENOTFOUND, "missing: no such model");
    struct session *s = mem_alloc(1, sizeof *s);
    if (!s || !(s->record = record_new()))
        return err_set(e, DS_EMEM, "session");
    s->flip = -1;
    s->tokens = 12;
    *out = s;
    return 0;
}

static void answer(struct session *s)
{
    struct err e = {0};
    t_true(s->n < ANSWERS_MAX);
    t_ok(record_end(s->record, (uint64_t)s->n + 1, &s->answer[s->n], &e), &e);
    s->n++;
}

int session_send(struct session *s, const char *json, struct err *e)
{
    (void)e;
    const char *value = strstr(json, "\"value\":");
    int layer, token, run;
    if (strstr(json, "worker exit")) {
        s->is_dead = 1;
        return 0;
    }
    if (strstr(json, "too long")) {
        record_begin(s->record, "error", 0, 0);
        record_str(s->record, "text", "the text has 9999 tokens, the model takes 512");
        answer(s);
        return 0;
    }
    if (strstr(json, "\"force\",\"layer\":1,") || strstr(json, "\"exit\",\"layers\":2}")) {
        record_begin(s->record, "error", 0, 0);
        record_str(s->record, "text", "layer 1 has no experts");
        answer(s);
        return 0;
    }
    if (value) {
        s->offset = strtod(value + 8, NULL);
        if (fabs(s->offset - 0.2) < 1e-9) /* never answers */
            return 0;
    }
    const char *drafted = strstr(json, "\"speculate\":");
    int made = drafted ? atoi(drafted + 12) + 1 : strstr(json, "\"next\"") != NULL;
    if (strstr(json, "\"trace\""))
        s->flip = -1;
    s->tokens += made;
    if (sscanf(json, "{\"do\":\"force\",\"layer\":%d,\"token\":%d,\"run\":%d}", &layer, &token,
               &run) == 3)
        s->flip = run < 0 ? -1 : layer * s->tokens + token;
    if (strstr(json, "\"option\"")) { /* of the method, or as stored */
        const char *set = strstr(json, "\"halt.rule=kl\"");
        record_begin(s->record, "head", 0, 0);
        record_str(s->record, "method", "halt");
        record_map(s->record, "options");
        if (set)
            record_str(s->record, "halt.rule", "kl");
        record_close(s->record);
        answer(s);
    }
    if (!strstr(json, "\"info\"")) {
        probe_body(s->record, 1, 0, s->tokens, drafted ? 0 : 1, s->offset, s->flip);
        if (drafted) {
            float mark[64] = {0};
            for (int t = s->tokens - made; t < s->tokens && t < 64; t++)
                mark[t] = t == s->tokens - 2 ? 2 : t > s->tokens - made;
            record_map(s->record, "token");
            record_f32s(s->record, "drafted", mark, (size_t)s->tokens);
            record_close(s->record);
        }
        answer(s);
    }
    record_begin(s->record, "done", 0, 0);
    answer(s);
    return 0;
}

/* No view here has a host. */
int session_save(struct session *s, const char *file, int lens, struct err *e)
{
    (void)s, (void)lens;
    return err_set(e, DS_EUSAGE, "%s", file);
}

int session_next(struct session *s, struct value *body, struct err *e)
{
    uint64_t seq;
    if (s->at < s->n) {
        const struct str *a = &s->answer[s->at++];
        return record_parse(a->p, a->len, &seq, body, e) > 0 ? 1 : DS_EFORMAT;
    }
    return s->is_dead ? err_set(e, DS_EIO, "the model's process ended: out of \x1b[2J memory") : 0;
}

int session_fd(const struct session *s)
{
    (void)s;
    return -1;
}

int session_busy(const struct session *s)
{
    return s->n - s->at;
}

void session_close(struct session *s)
{
    for (int i = 0; s && i < s->n; i++)
        str_release(&s->answer[i]);
    if (s)
        record_free(s->record);
    mem_free(s);
}

/* ---- screens ---- */

struct screen {
    const char *name, *size, *view, *script, *glyphs, *color;
    int kind, is_empty; /* kind: 0 rich, 1 bare, 2 top-k, 3 trace, 4 required depth, 5 loop */
};

/* clang-format off */
static const struct screen screens[] = {
    {"depth-80x24",    "80x24",  "depth",   "keys l l j j\nshot\nkeys c Space l Space\nshot\nkeys w o", NULL, NULL, 0, 0},
    {"depth-200x50",   "200x50", "depth",   "keys G k",                              NULL,     NULL,    0, 0},
    {"depth-20x5",     "20x5",   "depth",   "keys l j",                              NULL,     NULL,    0, 0},
    {"depth-sizes",    "120x40", "depth",   "keys l j\nshot\nsize 80x24\ncommand theme light", NULL, NULL,  0, 0},
    {"depth-16",       "80x24",  "depth",   "keys l j",                              NULL,     "16",    0, 0},
    {"depth-time",     "100x30", "depth",   "keys ,\nshot\nkeys }\nshot\nkeys F { { ,\nshot\nkeys / m a t Enter", NULL, NULL, 0, 0},
    {"depth-ascii",    "80x24",  "depth",   "keys j j l\nshot\nkeys c",              "ascii",  "never", 0, 0},
    {"depth-shades",   "60x14",  "depth",   "keys j j l",                            "shades", "16",    0, 0},
    {"depth-bare",     "80x24",  "depth",   "keys j j l c",                          NULL,     NULL,    1, 0},
    {"depth-topk",     "80x24",  "depth",   "keys l",                                NULL,     NULL,    2, 0},
    {"depth-topk-20x5", "20x5",  "depth",   "keys l",                                NULL,     NULL,    2, 0},
    {"depth-needed",   "100x36", "depth",   "keys j j l l",                          NULL,     NULL,    4, 0},
    {"depth-loop",     "80x24",  "depth",   "keys j j l l\nshot\nsize 200x50\nshot\nsize 60x20", NULL, NULL,  5, 0},
    {"signals-needed", "100x40", "signals", "keys l l",                              NULL,     NULL,    4, 0},
    {"signals-topk",   "80x24",  "signals", "keys l",                                NULL,     NULL,    2, 0},
    {"depth-click",    "80x24",  "depth",   "click 5 20\nshot\nclick 12 14\nwheel down 12 14", NULL, NULL, 0, 0},
    {"depth-empty",    "80x24",  "depth",   "keys l j c Space , }",                  NULL,     NULL,    0, 1},
    {"trace",          "80x24",  NULL,      "",                                      NULL,     NULL,    3, 0},
    {"signals-80x24",  "80x24",  "signals", "keys l l l Space l l\nshot\nkeys p\nshot\nkeys c p\nshot\nkeys s", NULL, NULL, 0, 0},
    {"signals-200x50", "200x50", "signals", "keys l Space l l Space l",              NULL,     NULL,    0, 0},
    {"signals-sizes",  "120x40", "signals", "keys l l\nshot\nsize 20x5\nshot\nsize 80x24\ncommand theme light", NULL, NULL, 0, 0},
    {"signals-16",     "80x24",  "signals", "keys l l",                              NULL,     "16",    0, 0},
    {"signals-ascii",  "80x40",  "signals", "keys l l",                              "ascii",  "never", 0, 0},
    {"signals-bare",   "80x24",  "signals", "keys p p\nshot\nkeys p",                NULL,     NULL,    1, 0},
    {"signals-loop",   "80x24",  "signals", "keys l l",                              NULL,     NULL,    5, 0},
    {"monitor-loop",   "80x24",  "monitor", "",                                      NULL,     NULL,    5, 0},
    {"signals-empty",  "80x24",  "signals", "keys p c Space",                        NULL,     NULL,    0, 1},
    {"stepper-80x24",  "80x24",  "stepper", "command model fixture\nkeys l\nshot\nkeys j j j l l\nkeys f\nshot\nkeys f f x\nshot\nkeys > > >\nshot\nkeys >\nshot\nkeys c\nkeys x g", NULL, NULL, 0, 0},
    {"stepper-200x50", "200x50", "stepper", "command model fixture\nkeys l l j j j f c", NULL, NULL, 0, 0},
    {"stepper-sizes",  "120x40", "stepper", "command model fixture\nkeys l j\nshot\nsize 80x24\ncommand theme light", NULL, NULL, 0, 0},
    {"stepper-drafts", "120x40", "stepper", "command model fixture\nkeys l\ncommand exit 3\nshot\ncommand exit 99\nshot\ncommand exit 0\ncommand speculate 4\nkeys s", NULL, NULL, 0, 0},
    {"stepper-option", "80x24",  "stepper", "command model fixture\nkeys l\ncommand option halt.rule=kl \nkeys l\nshot\ncommand option\nkeys l\nshot\ncommand expert 1", NULL, NULL, 0, 0},
    {"stepper-refused", "80x24", "stepper", "command model fixture\nkeys l j f\nkeys l\nshot\ncommand exit 2\nkeys l\nshot\ncommand exit 3\ncommand exit 2\nkeys l\nshot\nkeys j f\nkeys l", NULL, NULL, 0, 0},
    {"stepper-16",     "80x24",  "stepper", "command model fixture\nkeys l j",       NULL,     "16",    0, 0},
    {"stepper-mono",   "80x24",  "stepper", "command model fixture\nkeys l j",       "ascii",  "never", 0, 0},
    {"stepper-typing", "80x24",  "stepper", "command model fixture\nkeys i C-u\ntype a\\nb \xC3\xA9 \x1b[2J\nshot\nkeys Enter\nshot\nkeys i C-u\ntype too long\nkeys Enter\nshot\nkeys i Esc", NULL, NULL, 0, 0},
    {"stepper-dies",   "80x24",  "stepper", "command model fixture\nkeys l\ncommand prompt worker exit\nkeys l\nshot\nkeys s\nshot\nkeys R l", NULL, NULL, 0, 0},
    {"stepper-none",   "80x24",  "stepper", "keys l f s <\nshot\ncommand model missing\nkeys l", NULL, NULL, 0, 0},
    {"stepper-20x5",   "20x5",   "stepper", "command model fixture\nkeys l j",       NULL,     NULL,    0, 0},
};
/* clang-format on */

static void empty_run(struct stream *s)
{
    stream_head(s, "fixture-empty", "mod", 100);
}

/* The output of `depthscope trace`: a head without planned steps, and one pass. */
static void trace_file(struct stream *s)
{
    stream_head(s, "fixture-trace", "edp", 0);
    probe_body(s->record, 0, 0, 6, 1, 0, -1);
    stream_put(s);
}

static void play(const struct screen *s)
{
    char script[256], dump[256], golden[256], run[256];
    const char *dir = t_tmpdir(), *paths[1] = {run};
    struct tui_options o = {.view = s->view,
                            .size = s->size,
                            .glyphs = s->glyphs,
                            .color = s->color,
                            .paths = paths,
                            .n = 1,
                            .script = script,
                            .dump = dump};
    struct err e = {0};
    struct str got = {0}, log = {0};
    setenv("DEPTHSCOPE_RUNS", "/nonexistent/runs", 1);
    snprintf(script, sizeof script, "%s/keys.txt", dir);
    snprintf(dump, sizeof dump, "%s/out.screen", dir);
    snprintf(run, sizeof run, "%s/run.mp", dir);
    snprintf(golden, sizeof golden, "tests/screens/%s.screen", s->name);
    void (*const make[])(struct stream *) = {probes_run, probes_bare, probes_topk, trace_file,
                                             probes_needed, probes_loop};
    t_eq(probes_make(s->is_empty ? empty_run : make[s->kind], &log), 0);
    t_ok(fs_write_file(run, log.p, log.len, &e), &e);
    t_ok(fs_write_file(script, s->script, strlen(s->script), &e), &e);
    t_ok(tui_run(&o, &e), &e);
    t_ok(fs_read_file(&got, dump, 16 << 20, &e), &e);
    golden_compare(golden, &got, 0);
    str_release(&got);
    str_release(&log);
}

T_SECONDS(screens_of_cells_are_as_committed, 120)
{
    const char *only = getenv("SCREEN");
    for (size_t i = 0; i < DS_LEN(screens); i++)
        if (!only || strcmp(only, screens[i].name) == 0)
            play(&screens[i]);
}

enum { DEEP_L = 1000 };

static void deep_run(struct stream *s)
{
    static float gate[DEEP_L];
    static unsigned char run[DEEP_L];
    const int32_t id[1] = {7};
    struct record *r = s->record;
    for (int l = 0; l < DEEP_L; l++)
        gate[l] = (float)(2.012e-4 + 0.99 * l / DEEP_L);
    stream_head(s, "fixture-deep", "mod", 100);
    record_begin(r, "probe", 1, 1001);
    record_int(r, "layers", DEEP_L);
    record_i32s(r, "ids", id, 1);
    record_bytes(r, "run", run, DEEP_L);
    const float depth[1] = {(float)NAN};
    record_f32s(r, "depth", depth, 1);
    record_map(r, "cell");
    record_f32s(r, "gate", gate, DEEP_L);
    record_close(r);
    stream_put(s);
}

T(labels_of_a_deep_model_stand_apart)
{
    struct err e = {0};
    char script[256], run[256], dump[256];
    const char *dir = t_tmpdir(), *paths[1] = {run}, *const keys = "shot\nkeys 3";
    struct str log = {0}, got = {0};
    snprintf(script, sizeof script, "%s/keys.txt", dir);
    snprintf(run, sizeof run, "%s/run.mp", dir);
    snprintf(dump, sizeof dump, "%s/out.screen", dir);
    t_eq(probes_make(deep_run, &log), 0);
    t_ok(fs_write_file(run, log.p, log.len, &e), &e);
    t_ok(fs_write_file(script, keys, strlen(keys), &e), &e);
    struct tui_options o = {
        .view = "signals", .size = "80x24", .paths = paths, .n = 1, .script = script, .dump = dump};
    t_ok(tui_run(&o, &e), &e);
    t_ok(fs_read_file(&got, dump, 1 << 20, &e), &e);
    t_truef(strstr(str_text(&got),
                   " 0   64   128 192 256  320 384  448 512  576 640 704  768 832  896 960") !=
                NULL,
            "%s", str_text(&got));
    t_truef(strstr(str_text(&got), "    0.8\u2524") && strstr(str_text(&got), "    0.2\u2524"),
            "%s", str_text(&got));
    t_truef(strstr(str_text(&got), "nan") == NULL, "%s", str_text(&got));
    str_release(&got);
    str_release(&log);
}

T(keys_and_glyphs_are_shown_in_the_smallest_window)
{
    struct err e = {0};
    char script[256], run[256], dump[256];
    const char *dir = t_tmpdir(), *paths[1] = {run}, *const keys = "keys ? j\nshot\nkeys ? C-g";
    struct str log = {0}, got = {0};
    snprintf(script, sizeof script, "%s/keys.txt", dir);
    snprintf(run, sizeof run, "%s/run.mp", dir);
    snprintf(dump, sizeof dump, "%s/out.screen", dir);
    t_eq(probes_make(empty_run, &log), 0);
    t_ok(fs_write_file(run, log.p, log.len, &e), &e);
    t_ok(fs_write_file(script, keys, strlen(keys), &e), &e);
    struct tui_options o = {
        .view = "depth", .size = "20x5", .paths = paths, .n = 1, .script = script, .dump = dump};
    t_ok(tui_run(&o, &e), &e);
    t_ok(fs_read_file(&got, dump, 1 << 20, &e), &e);
    t_truef(strstr(str_text(&got), "h Left") != NULL, "%s", str_text(&got));
    t_truef(strstr(str_text(&got), "braille") != NULL, "%s", str_text(&got));
    str_release(&got);
    str_release(&log);
}

T(commands_to_a_run_are_not_offered_for_a_trace)
{
    struct err e = {0};
    char script[256], run[256], dump[256];
    const char *dir = t_tmpdir(), *paths[1] = {run}, *const keys = "shot\ncommand stop\nshot";
    struct str log = {0}, got = {0};
    snprintf(script, sizeof script, "%s/keys.txt", dir);
    snprintf(run, sizeof run, "%s/run.mp", dir);
    snprintf(dump, sizeof dump, "%s/out.screen", dir);
    t_eq(probes_make(trace_file, &log), 0);
    t_ok(fs_write_file(run, log.p, log.len, &e), &e);
    t_ok(fs_write_file(script, keys, strlen(keys), &e), &e);
    struct tui_options o = {.view = "monitor",
                            .size = "100x24",
                            .paths = paths,
                            .n = 1,
                            .script = script,
                            .dump = dump};
    t_ok(tui_run(&o, &e), &e);
    t_ok(fs_read_file(&got, dump, 1 << 20, &e), &e);
    t_truef(strstr(str_text(&got), "Enter one chart") && !strstr(str_text(&got), "P pause"), "%s",
            str_text(&got));
    t_truef(strstr(str_text(&got), "nothing to stop") && !strstr(str_text(&got), "y / n"), "%s",
            str_text(&got));
    str_release(&got);
    str_release(&log);
}

/* The process holds the log before it listens: text and tokenizer come first. */
T(a_run_that_is_starting_says_so_to_a_command)
{
    struct err e = {0};
    char script[256], log_path[256], dump[256];
    const char *dir = t_tmpdir(), *paths[1] = {dir}, *const keys = "command checkpoint\nshot";
    struct str log = {0}, got = {0};
    snprintf(script, sizeof script, "%s/keys.txt", dir);
    snprintf(log_path, sizeof log_path, "%s/log.mp", dir);
    snprintf(dump, sizeof dump, "%s/out.screen", dir);
    t_eq(probes_make(empty_run, &log), 0);
    t_ok(fs_write_file(log_path, log.p, log.len, &e), &e);
    t_ok(fs_write_file(script, keys, strlen(keys), &e), &e);
    int fd = open(log_path, O_RDWR);
    t_true(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0);
    struct tui_options o = {.view = "monitor",
                            .size = "100x24",
                            .paths = paths,
                            .n = 1,
                            .script = script,
                            .dump = dump};
    t_ok(tui_run(&o, &e), &e);
    close(fd);
    t_ok(fs_read_file(&got, dump, 1 << 20, &e), &e);
    t_truef(strstr(str_text(&got), "the run is starting and takes commands from its first step") !=
                NULL,
            "%s", str_text(&got));
    str_release(&got);
    str_release(&log);
}

/* Every key of these views, at sizes from empty to large, with and without data. */
T_SECONDS(no_key_at_any_size_does_harm, 120)
{
    static const char *const views[] = {"depth", "signals", "stepper"}, *const sizes[] = {
                                                                            "1x1", "7x3", "33x8",
                                                                            "80x24", "250x70"};
    static const char keys[] = "command model fixture\nkeys l l j c C c c w w w o J K H L G h , , "
                               ". F } } { Space X f f f x > ) < ( 0 t p p p s c n s m R p V Esc "
                               "PgUp PgDn Home End i x y z Enter i Esc l j k\nshot\nsize "
                               "30x9\nkeys l j c\nsize 80x24\nkeys k";
    struct err e = {0};
    char script[256], run[256];
    const char *dir = t_tmpdir(), *paths[1] = {run};
    struct str log = {0};
    snprintf(script, sizeof script, "%s/keys.txt", dir);
    snprintf(run, sizeof run, "%s/run.mp", dir);
    t_ok(fs_write_file(script, keys, strlen(keys), &e), &e);
    for (size_t k = 0; k < 3; k++) {
        str_release(&log);
        t_eq(probes_make(k == 0 ? probes_bare : k == 1 ? empty_run : probes_run, &log), 0);
        t_ok(fs_write_file(run, log.p, log.len, &e), &e);
        for (size_t i = 0; i < DS_LEN(views) * DS_LEN(sizes); i++) {
            struct tui_options o = {.view = views[i % 3],
                                    .size = sizes[i / 3],
                                    .paths = paths,
                                    .n = 1,
                                    .script = script,
                                    .dump = "/dev/null"};
            t_ok(tui_run(&o, &e), &e);
        }
    }
    str_release(&log);
}
