/* The windows of task=ppl: which tokens they score, after which context, and that none attends to another. */
#include "../kit.h"
#include "base/fs.h"
#include "base/mem.h"
#include "eval/perplexity.h"
#include "eval/perplexity_windows.h"
#include "eval/tasks/task_score.h"

enum { MAX_SEQ = 48, V = 257, EOT = 256 };
static const char *const lines[] = {"A first line of text.", "Hm",
                                    "The third is longer than the window of it."};

static const char *text_file(void)
{
    static char path[1024];
    struct err e = {0};
    struct str text = {0};
    for (int i = 0; i < 3; i++)
        str_addf(&text, "%s\n", lines[i]);
    snprintf(path, sizeof path, "%s/lines.txt", t_tmpdir());
    t_ok(fs_write_file(path, text.p, text.len, &e), &e);
    str_release(&text);
    return path;
}

struct opened {
    struct corpus *c;
    struct tokenizer *t;
    struct windows *w;
    struct windows_rows x;
};

static struct opened windows(int kind, int seq, int stride)
{
    struct opened o = {0};
    struct err e = {0};
    struct windows_spec s = {.kind = kind, .seq = seq, .stride = stride, .vocab = V};
    struct corpus_options from = {.path = text_file(), .format = "lines"};
    t_ok(corpus_open(&o.c, &from, &e), &e);
    t_ok(tokenizer_new_bytes(&o.t, &e), &e);
    t_ok(windows_open(&o.w, o.c, o.t, &s, &e), &e);
    t_ok(windows_rows_new(&o.x, 80 * (size_t)seq, &e), &e);
    return o;
}

static void release(struct opened *o)
{
    windows_rows_free(&o->x);
    windows_close(o->w);
    tokenizer_free(o->t);
    corpus_close(o->c);
}

/* Every byte of every line is a target `times` times, with context from its own line only. */
static void check_targets(struct opened *o, int seq, int stride, const int *scored)
{
    struct batch b;
    struct loader_pos at = {0};
    int n = (int)windows_count(o->w), line = -1, done = 0, context = 0;
    uint64_t bytes = windows_next(o->w, &at, n, &o->x, &b), want = 0;
    t_eq(b.B, 1);
    for (int i = 0; i < b.T; i++) {
        if (b.doc_start[i] == i) { /* a window begins */
            if (line < 0 || done == scored[line]) {
                line++;
                done = 0;
                t_eq(b.id[i], EOT);
            }
            context = 0;
        }
        context++;
        t_true(context <= seq);
        if (b.target[i] < 0)
            continue;
        t_eq(b.target[i], (unsigned char)lines[line][done]);
        t_true(context == done + 1 || context >= seq - stride + 1);
        done++;
        want++;
    }
    t_eq(line, 2);
    t_eq(done, scored[2]);
    t_eq(bytes, want);
    t_eq(windows_tokens(o->w, 0, n), want);
}

T(sliding_windows_score_every_token_once_after_enough_others)
{
    const int all[] = {21, 2, 42};
    const int row[][2] = {{16, 4}, {16, 16}, {16, 1}, {64, 7}, {1, 1}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct opened o = windows(WINDOWS_SLIDING, row[i][0], row[i][1]);
        check_targets(&o, row[i][0], row[i][1], all);
        release(&o);
    }
}

T(documents_are_truncated_after_seq_tokens)
{
    const int cut[] = {15, 2, 15};
    struct opened o = windows(WINDOWS_DOCUMENTS, 16, 0);
    t_eq(windows_count(o.w), 3);
    t_eq(windows_for(o.w, 15), 1);
    t_eq(windows_for(o.w, 16), 2);
    t_eq(windows_for(o.w, 1000), 3);
    t_eq(windows_tokens(o.w, 2, 2), 30); /* wraps around to the first */
    check_targets(&o, 16, 16, cut);
    release(&o);
}

T(packed_windows_are_those_of_training)
{
    struct opened o = windows(WINDOWS_PACKED, 16, 0);
    struct batch b;
    struct loader_pos at = {0};
    t_eq(windows_count(o.w), (21 + 2 + 42 + 3 - 1) / 16);
    t_eq(windows_for(o.w, 17), 2);
    t_eq(windows_next(o.w, &at, 4, &o.x, &b), 64 - 2); /* two targets end a line */
    t_eq(b.B, 4);
    t_eq(b.T, 16);
    release(&o);
}

/* A piece of "<unk>" is none of the text's bytes, and neither is the space in front of it. */
static uint64_t bytes_of(const char *line, int kind, int seq, int stride)
{
    static const char model[] =
        "{\"added_tokens\": [{\"id\": 0, \"content\": \"<unk>\", \"special\": true},"
        " {\"id\": 1, \"content\": \"</s>\", \"special\": true}], \"normalizer\": {\"type\":"
        " \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", \"prepend\": \"\u2581\"},"
        " {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"\u2581\"}]},"
        " \"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\":"
        " {\"String\": \"\u2581\"}, \"content\": \" \"}, {\"type\": \"Fuse\"}, {\"type\": "
        "\"Strip\","
        " \"content\": \" \", \"start\": 1, \"stop\": 0}]},"
        " \"model\": {\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"vocab\": {\"<unk>\": 0,"
        " \"</s>\": 1, \"\u2581\": 2, \"a\": 3, \"b\": 4}, \"merges\": []}}";
    char path[1024], name[1024];
    const char *dir = t_tmpdir();
    struct opened o = {0};
    struct err e = {0};
    struct batch b;
    struct loader_pos at = {0};
    struct windows_spec s = {.kind = kind, .seq = seq, .stride = stride, .vocab = 5};
    struct corpus_options from = {.path = path, .format = "lines"};
    snprintf(path, sizeof path, "%s/line.txt", dir);
    snprintf(name, sizeof name, "%s/tokenizer.json", dir);
    t_ok(fs_write_file(path, line, strlen(line), &e), &e);
    t_ok(fs_write_file(name, model, sizeof model - 1, &e), &e);
    t_ok(tokenizer_load(&o.t, name, &e), &e);
    t_eq(tokenizer_unk(o.t), 0);
    t_ok(corpus_open(&o.c, &from, &e), &e);
    t_ok(windows_open(&o.w, o.c, o.t, &s, &e), &e);
    t_ok(windows_rows_new(&o.x, 80 * (size_t)seq, &e), &e);
    uint64_t bytes = windows_next(o.w, &at, (int)windows_count(o.w), &o.x, &b);
    release(&o);
    return bytes;
}

T(bytes_are_those_of_the_text_where_characters_are_unknown)
{
    t_eq(bytes_of("abab", WINDOWS_SLIDING, 1, 1), 4);
    for (int stride = 1; stride < 4; stride++)
        t_eq(bytes_of("a \u00e9 b \u65e5\u672c \u00e9", WINDOWS_SLIDING, 4, stride), 16);
    t_eq(bytes_of("ababab \u00e9 \u00e9 \u00e9 \u00e9 \u00e9", WINDOWS_DOCUMENTS, 8, 0), 6);
}

/* ---- scores ---- */

static struct subject subject(const char *method)
{
    char keys[256];
    struct subject s = {0};
    struct err e = {0};
    snprintf(keys, sizeof keys,
             "model.layers=5 model.dim=16 model.heads=2 model.vocab=%d model.max_seq=%d "
             "model.init_std=0.3 model.method=%s",
             V, MAX_SEQ, method);
    s.model = kit_model(keys, 7, MAX_SEQ, 0, 0);
    kit_shake(s.model, 0.1, 3);
    t_ok(tokenizer_new_bytes(&s.tokenizer, &e), &e);
    str_copy(s.dir, sizeof s.dir, "a model");
    return s;
}

/* By the windows that the tasks' own scorer makes: stride = seq. */
static void check_method(const char *method)
{
    struct subject s = subject(method);
    struct ppl_options o = {0};
    struct ppl_result r;
    struct err e = {0};
    struct scorer *c = NULL;
    struct task_options t = {.results = "", .seq = 16, .max_gen = 1, .capacity = -1};
    struct task_cost cost = {0};
    double ll, sum = 0;
    if (scorer_open(&c, &s, &t, &e) < 0) { /* what has to be calibrated */
        subject_close(&s);
        return;
    }
    for (int i = 0; i < 3; i++) {
        t_ok(scorer_rolling(c, lines[i], &ll, &cost, &e), &e);
        sum += ll;
    }
    t_ok(opt_defaults(&ppl_group, &o, &e), &e);
    mem_free(o.path);
    mem_free(o.format);
    o.path = mem_strdup(text_file());
    o.format = mem_strdup("lines");
    o.windows = WINDOWS_SLIDING;
    o.seq = o.stride = 16;
    o.time_rounds = 0;
    o.controls = 0;
    for (int batch = 1; batch < 10; batch += 3) {
        o.batch = batch;
        t_ok(ppl_run(&r, &s, &o, &e), &e);
        t_eq(r.measure.tokens, 65);
        t_eq(r.measure.bytes, 65);
        t_near(r.measure.nll, -sum, 1e-3);
        t_truef(r.measure.run == cost.run, "%s: %g cells ran, alone %g", method, r.measure.run,
                cost.run);
        ppl_result_release(&r);
    }
    opt_release(&ppl_group, &o);
    scorer_close(c);
    subject_close(&s);
}

T(concatenated_windows_score_as_alone_and_run_the_same_cells)
{
    int methods = 0;
    for (size_t i = 0; route_all()[i]; i++, methods++)
        if (strcmp(route_all()[i]->name, "random") != 0 &&
            strcmp(route_all()[i]->name, "stochastic") != 0) /* lots by the row */
            check_method(route_all()[i]->name);
    t_true(methods > 5);
}

T(what_does_not_go_together_is_refused)
{
    struct subject s = subject("dense");
    struct ppl_options o = {0};
    struct ppl_result r;
    struct err e = {0};
    t_ok(opt_defaults(&ppl_group, &o, &e), &e);
    mem_free(o.path);
    o.path = mem_strdup("synth");
    o.stride = 4;
    t_fails(ppl_run(&r, &s, &o, &e), &e, DS_EUSAGE, "windows=sliding");
    o.windows = WINDOWS_SLIDING;
    o.seq = 3;
    t_fails(ppl_run(&r, &s, &o, &e), &e, DS_ERANGE, "stride=4");
    o.seq = MAX_SEQ + 1;
    t_fails(ppl_run(&r, &s, &o, &e), &e, DS_ERANGE, "at most 48");
    o.windows = WINDOWS_DOCUMENTS;
    o.stride = 0;
    o.seq = 1;
    o.docs = 3;
    t_fails(ppl_run(&r, &s, &o, &e), &e, DS_ERANGE, "no document with a token to predict");
    opt_release(&ppl_group, &o);
    subject_close(&s);
}
