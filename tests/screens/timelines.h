/* Record streams for the tests of the Timeline and of Pareto: TEST FIXTURES, computed from formulas,
 * not from a model or a training run.  Nothing in them is a result. */
#ifndef DS_TESTS_SCREENS_TIMELINES_H
#define DS_TESTS_SCREENS_TIMELINES_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/record.h"
#include "io/runview.h"

struct fixture {
    struct record *record;
    struct str out;
    uint64_t seq;
    int failed;
};

static inline void fixture_put(struct fixture *f)
{
    struct err e = {0};
    if (record_end(f->record, ++f->seq, &f->out, &e) < 0)
        f->failed = 1;
}

static inline int fixture_begin(struct fixture *f)
{
    *f = (struct fixture){.record = record_new()};
    return f->record != NULL;
}

/* The stream so far; empty when something failed.  Release it with str_release. */
static inline struct str fixture_end(struct fixture *f)
{
    struct str out = f->out;
    record_free(f->record);
    if (f->failed)
        str_release(&out);
    *f = (struct fixture){0};
    return out;
}

/* A view of the stream. */
static inline struct runview *fixture_view(struct fixture *f)
{
    struct runview *r = runview_new();
    struct err e = {0};
    struct value body;
    uint64_t seq;
    for (size_t at = 0; r && at < f->out.len;) {
        int64_t n = record_parse(f->out.p + at, f->out.len - at, &seq, &body, &e);
        if (n <= 0)
            break;
        runview_take(r, body);
        at += (size_t)n;
    }
    return r;
}

struct fixture_head {
    const char *run, *method;
    int seed, layers, steps, resume,
        has_ends; /* has_ends: the first and last layer are always on */
    double params, flops_dense, budget;
    const char *ratio; /* METHOD.target_ratio, NULL = none */
};

static inline void fixture_head(struct fixture *f, int step, const struct fixture_head *h)
{
    struct record *r = f->record;
    char key[64], text[32];
    float on[64] = {0};
    record_begin(r, "head", step, 1000 + step);
    record_int(r, "format", 1);
    record_str(r, "version", "fixture");
    record_str(r, "run", h->run);
    record_str(r, "method", h->method);
    record_int(r, "layers", h->layers);
    record_int(r, "steps", h->steps);
    record_int(r, "seed", h->seed);
    record_num(r, "flops_dense", h->flops_dense > 0 ? h->flops_dense : 2e6);
    if (h->params > 0)
        record_int(r, "params_non_embedding", (int64_t)h->params);
    if (h->resume)
        record_int(r, "resume", h->resume);
    if (h->has_ends) {
        on[0] = on[h->layers - 1] = 1;
        record_f32s(r, "always_on", on, (size_t)h->layers);
    }
    record_map(r, "config");
    record_str(r, "model.method", h->method);
    snprintf(text, sizeof text, "%d", h->layers);
    record_str(r, "model.layers", text);
    snprintf(text, sizeof text, "%.0f", h->params);
    record_str(r, "model.dim", text); /* stands for the size */
    snprintf(text, sizeof text, "%d", h->seed);
    record_str(r, "seed", text);
    if (h->ratio) {
        snprintf(key, sizeof key, "%s.target_ratio", h->method);
        record_str(r, key, h->ratio);
    }
    if (h->budget > 0) {
        snprintf(text, sizeof text, "%g", h->budget);
        record_str(r, "train.flops_budget", text);
    }
    record_close(r);
    fixture_put(f);
}

static inline void fixture_probe(struct fixture *f, int step, int index, int layers, int tokens,
                                 const unsigned char *run, const float *kind)
{
    static const char *const words[8] = {"The", " cat", " sat", ".", " A", " dog", " ran", "!"};
    const char *piece[64];
    size_t len[64];
    int32_t id[64];
    struct record *r = f->record;
    for (int t = 0; t < tokens && t < 64; t++) {
        piece[t] = words[t % 8];
        len[t] = strlen(piece[t]);
        id[t] = 10 + t % 8;
    }
    record_begin(r, "probe", step, 1000 + step);
    record_int(r, "index", index);
    record_str(r, "name", index ? "fixture-b" : "fixture-a");
    record_str(r, "routing", "causal");
    record_int(r, "layers", layers);
    record_i32s(r, "ids", id, (size_t)tokens);
    record_pieces(r, "text", piece, len, (size_t)tokens);
    record_bytes(r, "run", run, (size_t)(layers * tokens));
    record_num(r, "flops_dense", 2e6);
    if (kind) {
        record_map(r, "token");
        record_f32s(r, "class", kind, (size_t)tokens);
        record_close(r);
    }
    fixture_put(f);
}

static inline void fixture_eval(struct fixture *f, int step, const char *task, const char *routing,
                                double loss, double flops_ratio, double time_ratio)
{
    struct record *r = f->record;
    record_begin(r, "eval", step, 1000 + step);
    record_str(r, "task", task);
    record_str(r, "routing", routing);
    record_num(r, "loss", loss);
    record_num(r, "bits_per_byte", loss / 2);
    if (isfinite(flops_ratio)) {
        record_num(r, "flops_ratio", flops_ratio);
        record_num(r, "flops_per_token", 2e6 * flops_ratio);
    }
    if (isfinite(time_ratio))
        record_num(r, "time_ratio", time_ratio);
    record_num(r, "accuracy", 1 / (1 + loss));
    fixture_put(f);
}

static inline void fixture_close(struct fixture *f, int step, const char *status)
{
    record_begin(f->record, "end", step, 1000 + step);
    record_str(f->record, "status", status);
    record_str(f->record, "text", "fixture ends");
    fixture_put(f);
}

static inline double fixture_noise(uint32_t a, uint32_t b) /* in 0..1, the same on every machine */
{
    uint32_t x = a * 2654435761u ^ b * 40503u ^ 0x9E3779B9u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return (double)(x & 0xFFFF) / 65536.0;
}

/* ---- a run whose layers collapse and specialise ---- */

enum { TIME_L = 8, TIME_T = 40 };

/* Layer 2 executes everything from 100 to 300, layer 3 punctuation only from 350 on, layer 5 nothing
 * from 400 on; the others settle at 0.6. */
static inline void time_probe(struct fixture *f, int step, int index, int end)
{
    unsigned char run[TIME_L * TIME_T];
    float kind[TIME_T];
    double done = (double)step / end;
    for (int t = 0; t < TIME_T; t++)
        kind[t] = t % 4 == 3 ? 2 : t % 4 == 0 ? 5 : 0;
    for (int l = 0; l < TIME_L; l++)
        for (int t = 0; t < TIME_T; t++) {
            double x = fixture_noise((uint32_t)(l * 64 + t + 7 * index), (uint32_t)step);
            int is_run = x < 1 - 0.4 * done;
            if (l == 0 || l == TIME_L - 1 || (l == 2 && done >= 1 / 6.0 && done <= 0.5))
                is_run = 1;
            else if (l == 3 && done >= 7 / 12.0)
                is_run = kind[t] == 2 || x < 0.1;
            else if (l == 5 && done >= 2 / 3.0)
                is_run = 0;
            run[l * TIME_T + t] = (unsigned char)is_run;
        }
    fixture_probe(f, step, index, TIME_L, TIME_T, run, kind);
}

/* Probes every `every` steps up to `end`; with is_resumed, the steps after 250 were trained twice. */
static inline void time_run(struct fixture *f, int end, int every, int is_resumed)
{
    struct fixture_head h = {.run = "fixture-time",
                             .method = "edp",
                             .seed = 1,
                             .layers = TIME_L,
                             .steps = end,
                             .has_ends = 1,
                             .ratio = "0.6"};
    fixture_head(f, 0, &h);
    for (int step = 0; is_resumed && step <= 350; step += every)
        time_probe(f, step, 0, end);
    h.resume = 1;
    if (is_resumed)
        fixture_head(f, 250, &h);
    for (int step = is_resumed ? 300 : 0; step <= end; step += every) {
        time_probe(f, step, 0, end);
        time_probe(f, step, 1, end);
    }
    fixture_close(f, end, "done");
}

/* ---- runs that trade loss for compute ---- */

/* Run i of the fixtures: three seeds each of four experiments, one run without an evaluation, one
 * that failed. */
enum { TRADE_RUNS = 14 };
static inline void trade_run(struct fixture *f, int i)
{
    static const struct {
        const char *method, *ratio;
        double flops, loss, spread, time;
    } row[] = {{"dense", NULL, 1, 2.30, 0.02, 1},
               {"edp", "0.6", 0.71, 2.33, 0.03, 0.82},
               {"edp", "0.5", 0.62, 2.41, 0.01, 0.75},
               {"mod", NULL, 0.74, 2.45, 0.02, 0.9}};
    int k = i / 3 % 4, seed = i % 3 + 1;
    char name[32];
    snprintf(name, sizeof name, "fixture-%s-%d",
             i == 12   ? "new"
             : i == 13 ? "failed"
                       : row[k].method,
             i >= 12 ? 1 : seed);
    const struct fixture_head h = {.run = name,
                                   .method = row[k].method,
                                   .seed = i >= 12 ? 9 : seed,
                                   .layers = 8,
                                   .steps = 100,
                                   .params = 1e6,
                                   .ratio = row[k].ratio};
    fixture_head(f, 0, &h);
    if (i != 12)
        fixture_eval(f, 100, "final", "causal", row[k].loss + row[k].spread * (seed - 2),
                     row[k].flops + 0.002 * (seed - 2), row[k].time);
    fixture_close(f, 100, i == 13 ? "failed" : i == 12 ? "stopped" : "done");
}

/* Size i (0..5) at two budgets: a parabola in the logarithm of the size, least at 10^6, and two
 * sizes only. */
enum { ISO_RUNS = 5 };
static inline void iso_run(struct fixture *f, int i)
{
    char name[32];
    double size = i < 3 ? 5 + i : 5 + 2 * (i - 3), off = size - 6;
    snprintf(name, sizeof name, "fixture-size-%d", i);
    const struct fixture_head h = {.run = name,
                                   .method = "dense",
                                   .seed = 1,
                                   .layers = 8,
                                   .steps = 100,
                                   .params = pow(10, size),
                                   .budget = i < 3 ? 1e15 : 1e16};
    fixture_head(f, 0, &h);
    fixture_eval(f, 100, "final", "causal", (i < 3 ? 2 : 1.5) + 0.5 * off * off, 1, 1);
    fixture_close(f, 100, "done");
}

#endif
