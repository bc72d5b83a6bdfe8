/* Compares scripted screens of Compare and Generate with committed ones.  The models' process is a mock
 * that answers at once with fixtures: nothing in them is a result.
 *
 *   GENERATE=1 test_screens_models    regenerates the screens; inspect the diff.
 */
#include <stdio.h>
#include <string.h>

#include "t.h"

#include "base/fs.h"
#include "base/mem.h"
#include "eval/job.h"
#include "screens/golden.h"
#include "screens/probes.h"
#include "tui/app.h"

/* ---- a process without a model ---- */

enum { ANSWERS_MAX = 512, MADE = 9 };
struct session {
    struct str answer[ANSWERS_MAX];
    int at, n, is_dead;
    struct record *record;
};

int session_open(struct session **out, const char *model, struct err *e)
{
    if (strcmp(model, "missing") == 0)
        return err_set(e, DS_ENOTFOUND, "missing: no such model");
    struct session *s = mem_alloc(1, sizeof *s);
    if (!s || !(s->record = record_new()))
        return err_set(e, DS_EMEM, "session");
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

static void answer_head(struct session *s, const char *name, const char *ratio)
{
    struct record *r = s->record;
    record_begin(r, "head", 0, 1000);
    record_str(r, "run", name);
    record_str(r, "method", "edp");
    record_int(r, "layers", PROBE_L);
    record_map(r, "config");
    record_str(r, "edp.kv", "plan");
    record_str(r, "edp.target_ratio", ratio);
    record_str(r, "model.dim", "96");
    record_close(r);
    record_int(r, "context", 64);
    record_str(r, "chat", "chatml");
    answer(s);
}

/* Token i of a fixture text; the layers 2 to 6 take turns.  mark: NULL, or how it came to be. */
static void answer_token(struct session *s, int i, int is_prompt, const char *mark)
{
    struct record *r = s->record;
    unsigned char run[PROBE_L];
    const char *piece = probe_piece[i % PROBE_T], *top[3] = {piece, " the", "\x1b[2J"};
    size_t len[3] = {strlen(piece), 4, 4};
    const int32_t id[3] = {100 + i % PROBE_T, 7, 8};
    const double logprob[3] = {-0.35667494, -1.6094379, -4.6051702}; /* 0.7, 0.2, 0.01 */
    int depth = 0;
    for (int l = 0; l < PROBE_L; l++) {
        run[l] = l < 2 || l == PROBE_L - 1 || (l + i) % 3 != 0;
        depth += run[l];
    }
    record_begin(r, "token", 0, 1000 + 0.25 * i);
    record_int(r, "index", i);
    record_int(r, "id", 100 + i % PROBE_T);
    record_bytes(r, "text", piece, len[0]);
    record_bool(r, "is_prompt", is_prompt);
    if (mark)
        record_str(r, "mark", mark);
    record_num(r, "depth", depth);
    record_num(r, "flops", 250000.0 * depth);
    record_num(r, "flops_dense", 2.0e6);
    record_num(r, "logprob", i ? i == 5 ? -6 : logprob[0] : (double)NAN);
    record_bytes(r, "run", run, PROBE_L);
    if (i) {
        record_i32s(r, "top_id", i == 5 ? id + 1 : id, i == 5 ? 2 : 3);
        record_nums(r, "top_logprob", i == 5 ? logprob + 1 : logprob, i == 5 ? 2 : 3);
        record_pieces(r, "top_text", i == 5 ? top + 1 : top, i == 5 ? len + 1 : len,
                      i == 5 ? 2 : 3);
    }
    answer(s);
}

static void answer_text(struct session *s, const char *json)
{
    static const char *const mark[] = {"ordinary", "accepted", "accepted", "corrected", "accepted"};
    const char *keep = strstr(json, "\"keep\":");
    int has_drafts = strstr(json, "\"speculate\":4,\"draft_exit\":2") != NULL;
    int prompt = keep ? atoi(keep + 7) + (strstr(json, "\"ids\"") || strstr(json, "\"text\"")) : 4,
        n = prompt + MADE;
    for (int i = 0; i < n; i++)
        answer_token(s, i, i < prompt, has_drafts && i >= prompt ? mark[i % 5] : NULL);
    record_begin(s->record, "generated", 0, 1000 + n);
    record_str(s->record, "stop", "length");
    record_int(s->record, "prompt", prompt);
    record_int(s->record, "tokens", n);
    record_num(s->record, "tok_s", 12.5);
    record_num(s->record, "block_ratio", 0.7);
    record_num(s->record, "flops_ratio", has_drafts ? 1.25 : 0.72);
    record_bytes(s->record, "text", "x", 1);
    answer(s);
}

static void answer_error(struct session *s, const char *text)
{
    record_begin(s->record, "error", 0, 0);
    record_str(s->record, "text", text);
    answer(s);
}

int session_send(struct session *s, const char *json, struct err *e)
{
    char name[32] = "";
    (void)e;
    t_true(sscanf(json, "{\"do\":\"%31[a-z]", name) == 1);
    if (strstr(json, "worker exit")) {
        s->is_dead = 1;
        return 0;
    }
    if (strstr(json, "too long")) {
        answer_error(s, "the text has 9999 tokens, the model takes 512");
        return 0;
    }
    if (strcmp(name, "info") == 0) {
        answer_head(s, "fixture", "0.7");
    } else if (strcmp(name, "compare") == 0) {
        float kl[12] = {NAN, 0.5f, 0.01f, 0, 0.25f, 0.125f, 0.5f, 1, 2, 0, 0, 0.0625f};
        answer_head(s, "one", "0.7");
        probe_body(s->record, 1, 0, 12, 0, 0, -1);
        record_map(s->record, "token");
        record_f32s(s->record, "kl", kl, 12);
        record_close(s->record);
        answer(s);
        answer_head(s, "two", "0.5");
        probe_body(s->record, 2, 0, 12, 0, 0.1, -1);
        answer(s);
    } else if (strcmp(name, "generate") == 0 || strcmp(name, "chat") == 0) {
        answer_text(s, json);
    }
    record_begin(s->record, "done", 0, 0);
    record_str(s->record, "do", name);
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

/* ---- recorded pairs ---- */

static void head_of(struct stream *s, const char *name, const char *const (*config)[2], size_t n)
{
    struct record *r = s->record;
    record_begin(r, "head", 0, 1000);
    record_int(r, "format", 1);
    record_str(r, "run", name);
    record_str(r, "method", "edp");
    record_int(r, "layers", PROBE_L);
    record_int(r, "steps", 40);
    record_map(r, "config");
    for (size_t i = 0; i < n; i++)
        record_str(r, config[i][0], config[i][1]);
    record_close(r);
    stream_put(s);
}

static void probes_of(struct stream *s, int step, double shift, int flip)
{
    for (int index = 0; index < 2; index++) {
        probe_body(s->record, step, index, index ? 9 : PROBE_T, 1, shift, flip);
        stream_put(s);
    }
    stream_end(s, step);
}

static void first(struct stream *s)
{
    static const char *const config[][2] = {{"edp.kv", "plan"},    {"edp.target_ratio", "0.7"},
                                            {"model.dim", "96"},   {"train.lr", "0.003"},
                                            {"train.steps", "30"}, {"seed", "1"}};
    head_of(s, "fixture-one", config, DS_LEN(config));
    probes_of(s, 30, 0.1, -1);
}

static void second(struct stream *s)
{
    static const char *const config[][2] = {{"edp.kv", "all"},
                                            {"edp.target_ratio", "0.5"},
                                            {"model.dim", "96"},
                                            {"train.lr", "0.001"},
                                            {"train.steps", "40"},
                                            {"seed", "2"},
                                            {"data.path", "/a/long/path/\x1b[2J/of a file"}};
    head_of(s, "fixture-two", config, DS_LEN(config));
    probes_of(s, 40, 0.6, 3 * 9 + 5);
}

/* The same text in other tokens, and fewer layers. */
static void other_tokens(struct stream *s)
{
    static const char *const piece[] = {
        "Th",
        "e cat",
        " s",
        "at on",
        " the",
        " mat",
        ".\n",
        " \xE7\x8C\xAB\xC3\x1b[2J 42 e\xCC\x81\xCC\x82\xE2\x80\xAE and",
        " the dog ran un",
        "believably",
        " fast home."};
    enum { N = DS_LEN(piece), LAYERS = 4 };
    size_t len[N];
    int32_t id[N];
    float nll[N];
    unsigned char run[N * LAYERS];
    for (int i = 0; i < (int)N; i++) {
        len[i] = strlen(piece[i]);
        id[i] = i;
        nll[i] = i ? 3.5f : NAN;
        for (int l = 0; l < LAYERS; l++)
            run[l * (int)N + i] = l == 0 || (i + l) % 2;
    }
    stream_head(s, "fixture-other", "mod", 20);
    record_begin(s->record, "probe", 20, 1000);
    record_str(s->record, "name", "fixture-a");
    record_int(s->record, "layers", LAYERS);
    record_i32s(s->record, "ids", id, N);
    record_pieces(s->record, "text", piece, len, N);
    record_bytes(s->record, "run", run, sizeof run);
    record_f32s(s->record, "nll", nll, N);
    stream_put(s);
    stream_end(s, 20);
}

static void other_text(struct stream *s)
{
    stream_head(s, "fixture-text", "edp", 20);
    probe_body(s->record, 20, 3, 7, 1, 0, -1);
    stream_put(s);
}

static void no_probe(struct stream *s)
{
    stream_head(s, "fixture-empty", "mod", 100);
}

/* ---- screens ---- */

struct screen {
    const char *name, *size, *view, *script, *glyphs, *color, *theme;
    void (*make[2])(struct stream *); /* the second may be NULL */
};

/* clang-format off */
static const struct screen screens[] = {
    {"compare-80x24",   "80x24",  "compare", "keys ] d\nshot\nkeys ] d l j j\nshot\nkeys [ d m\nshot\nkeys m\nshot\nkeys m }\nshot\nkeys x s\nshot\nkeys =\nshot\nkeys Esc s ] d =", NULL, NULL, NULL, {first, second}},
    {"compare-120x40",  "120x40", "compare", "keys l l l j j",                         NULL,     NULL, NULL, {first, second}},
    {"compare-200x50",  "200x50", "compare", "keys G k k\nshot\ncommand text The cat sat\nkeys l l l ] d", NULL, NULL, NULL, {first, second}},
    {"compare-click",   "200x50", "compare", "keys |\nclick 13 130\nshot\nclick 33 150\nwheel down 40 150\nshot\nkeys |\nclick 9 20", NULL, NULL, NULL, {first, second}},
    {"compare-light",   "80x24",  "compare", "keys l l",                               NULL,     NULL, "light", {first, second}},
    {"compare-20x5",    "20x5",   "compare", "keys l j",                               NULL,     NULL, NULL, {first, second}},
    {"compare-ascii",   "80x24",  "compare", "keys l l j j",                           "ascii",  "never", NULL, {first, second}},
    {"compare-shades",  "100x30", "compare", "keys l l j j",                           "shades", "16", NULL, {first, second}},
    {"compare-tokens",  "80x24",  "compare", "keys l l\nshot\nkeys ] d k\nsize 120x40\nkeys l", NULL, NULL, NULL, {first, other_tokens}},
    {"compare-texts",   "80x24",  "compare", "keys l ] d m",                           NULL,     NULL, NULL, {first, other_text}},
    {"compare-loop",    "120x40", "compare", "keys l l",                               NULL,     NULL, NULL, {probes_loop, probes_loop}},
    {"compare-empty",   "80x24",  "compare", "keys l ] d s x\nshot\nkeys i C-u\ntype a b\nkeys Enter", NULL, NULL, NULL, {first, no_probe}},
    {"compare-one",     "80x24",  "compare", "keys l ] d m } x s p\nshot\ncommand compare only-one\nkeys l", NULL, NULL, NULL, {first, NULL}},
    {"compare-dies",    "80x24",  "compare", "command compare one two\nkeys l\nshot\ncommand text too long\nshot\ncommand text worker exit\nkeys l\nshot\ncommand compare missing two\nkeys l", NULL, NULL, NULL, {first, NULL}},
    {"generate-80x24",  "80x24",  "generate", "command model fixture\nkeys l\nshot\ncommand prompt The cat sat on\nkeys h\nshot\nkeys h h h j j\nshot\nkeys Enter\nshot\nkeys g g l l r\nshot\nkeys c\nshot\nkeys C-u\ntype X\\nY\nkeys Enter x", NULL, NULL, NULL, {first, NULL}},
    {"generate-120x40", "120x40", "generate", "command model fixture\ncommand prompt The cat sat on\nkeys h", NULL, NULL, NULL, {first, NULL}},
    {"generate-200x50", "200x50", "generate", "command model fixture\ncommand prompt The cat sat on\nkeys h h", NULL, NULL, NULL, {first, NULL}},
    {"generate-click",  "200x50", "generate", "command model fixture\ncommand prompt The cat sat on\nkeys h\nclick 5 10\nshot\nclick 12 60", NULL, NULL, NULL, {first, NULL}},
    {"generate-drafts", "120x40", "generate", "command model fixture\ncommand speculate 4\ncommand draft-exit 2\ncommand prompt The cat sat on\nshot\nkeys h\nshot\ncommand speculate 65", NULL, NULL, NULL, {first, NULL}},
    {"generate-light",  "80x24",  "generate", "command model fixture\ncommand prompt The cat sat on\nkeys h", NULL, NULL, "light", {first, NULL}},
    {"generate-20x5",   "20x5",   "generate", "command model fixture\ncommand prompt The cat sat on\nkeys h\nshot\nkeys i", NULL, NULL, NULL, {first, NULL}},
    {"generate-ascii",  "80x24",  "generate", "command model fixture\ncommand prompt The cat sat on\nkeys h", "ascii", "never", NULL, {first, NULL}},
    {"generate-form",   "80x24",  "generate", "command model fixture\nkeys s j j Enter C-u\ntype 2\nkeys Enter\nshot\nkeys C-u\ntype 0.5\nkeys Enter\nshot\nkeys Esc\ncommand temperature 0\nshot\ncommand seed x\nshot\nkeys t\nshot\nkeys i\ntype hello\nkeys Enter\nshot\nkeys C", NULL, NULL, NULL, {first, NULL}},
    {"generate-dies",   "80x24",  "generate", "command model fixture\ncommand prompt The cat\nkeys l\ncommand prompt too long\nshot\ncommand prompt worker exit\nkeys l\nshot\nkeys R l\nshot\ncommand model missing\nkeys l", NULL, NULL, NULL, {first, NULL}},
    {"generate-none",   "80x24",  "generate", "keys l Enter r c x S j\nshot\nkeys i Enter", NULL, NULL, NULL, {first, NULL}},
};
/* clang-format on */

static void write_run(const char *path, void (*make)(struct stream *))
{
    struct str log = {0};
    struct err e = {0};
    t_eq(probes_make(make, &log), 0);
    t_ok(fs_write_file(path, log.p, log.len, &e), &e);
    str_release(&log);
}

static void play(const struct screen *s)
{
    char script[256], dump[256], golden[256], run[2][256];
    const char *dir = t_tmpdir(), *paths[2] = {run[0], run[1]};
    struct tui_options o = {.view = s->view,
                            .size = s->size,
                            .glyphs = s->glyphs,
                            .color = s->color,
                            .theme = s->theme,
                            .paths = paths,
                            .n = s->make[1] ? 2 : 1,
                            .script = script,
                            .dump = dump};
    struct err e = {0};
    struct str got = {0};
    setenv("DEPTHSCOPE_RUNS", "/nonexistent/runs", 1);
    snprintf(script, sizeof script, "%s/keys.txt", dir);
    snprintf(dump, sizeof dump, "%s/out.screen", dir);
    snprintf(golden, sizeof golden, "tests/screens/%s.screen", s->name);
    for (size_t k = 0; k < o.n; k++) {
        snprintf(run[k], sizeof run[k], "%s/%s.mp", dir, k ? "two" : "one");
        write_run(run[k], s->make[k]);
    }
    t_ok(fs_write_file(script, s->script, strlen(s->script), &e), &e);
    t_ok(tui_run(&o, &e), &e);
    t_ok(fs_read_file(&got, dump, 16 << 20, &e), &e);
    golden_compare(golden, &got, 0);
    str_release(&got);
}

T_SECONDS(screens_of_models_are_as_committed, 120)
{
    const char *only = getenv("SCREEN");
    for (size_t i = 0; i < DS_LEN(screens); i++)
        if (!only || strcmp(only, screens[i].name) == 0)
            play(&screens[i]);
}

/* Every key of these views, at sizes from empty to large, with and without data. */
T_SECONDS(no_key_at_any_size_does_harm, 120)
{
    static const char *const views[] = {"compare", "generate"}, *const sizes[] = {"1x1", "7x3",
                                                                                  "33x8", "80x24",
                                                                                  "250x70"};
    static const char *const scripts[] = {
        "keys l l j ] d [ d m j m m } { x s j j G s w w w w o h k H L G g g / a Enter n N y "
        "i x Enter l ] d p i Esc u\nsize 30x9\nkeys l j m\nsize 80x24\nkeys k",
        "command model fixture\nkeys l j\ncommand prompt The cat\nkeys h h j j Enter r c Z Enter x "
        "s j Enter C-u 9 Enter Esc t i a Enter C t w w w w H L G g g k m R S y u\nsize 30x9\nkeys "
        "h "
        "j\nsize 80x24\nkeys k"};
    void (*const make[][2])(struct stream *) = {
        {first, second}, {first, other_tokens}, {first, no_probe}, {no_probe, NULL}};
    struct err e = {0};
    char script[256], run[2][256];
    const char *dir = t_tmpdir(), *paths[2] = {run[0], run[1]};
    setenv("DEPTHSCOPE_RUNS", "/nonexistent/runs", 1);
    snprintf(script, sizeof script, "%s/keys.txt", dir);
    for (size_t i = 0; i < DS_LEN(make); i++) {
        for (int k = 0; k < 2 && make[i][k]; k++) {
            snprintf(run[k], sizeof run[k], "%s/%d.mp", dir, k);
            write_run(run[k], make[i][k]);
        }
        for (size_t k = 0; k < DS_LEN(views) * DS_LEN(sizes); k++) {
            struct tui_options o = {.view = views[k % 2],
                                    .size = sizes[k / 2],
                                    .paths = paths,
                                    .n = make[i][1] ? 2 : 1,
                                    .script = script,
                                    .dump = "/dev/null"};
            t_ok(fs_write_file(script, scripts[k % 2], strlen(scripts[k % 2]), &e), &e);
            t_ok(tui_run(&o, &e), &e);
        }
    }
}
