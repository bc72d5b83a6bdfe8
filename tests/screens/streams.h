/* The record streams of the screen tests: TEST FIXTURES, computed from a formula, not from a model
 * or a training run.  They exist to make every drawing path of the workbench repeatable; nothing in
 * them is a result.  test_screens.c checks that the committed .mp files are what this writes. */
#ifndef DS_TESTS_SCREENS_STREAMS_H
#define DS_TESTS_SCREENS_STREAMS_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/record.h"

struct stream {
    struct record *record;
    struct str out;
    uint64_t seq;
    int failed;
};

static double stream_noise(uint32_t a, uint32_t b) /* in -0.5..0.5, the same on every machine */
{
    uint32_t x = a * 2654435761u ^ b * 40503u ^ 0x9E3779B9u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return (double)(x & 0xFFFF) / 65536.0 - 0.5;
}

/* Four decimals, so that differences between compilers in the last bits do not matter. */
static double stream_round(double x)
{
    return isfinite(x) ? (double)llround(x * 1e4) / 1e4 : x;
}

static void stream_num(struct record *r, const char *key, double x)
{
    record_num(r, key, stream_round(x));
}

static void stream_put(struct stream *s)
{
    struct err e = {0};
    if (record_end(s->record, s->seq++, &s->out, &e) < 0)
        s->failed = 1;
}

static void stream_begin_head(struct stream *s, const char *run, const char *method, int seed,
                              int steps)
{
    struct record *r = s->record;
    char text[16];
    record_begin(r, "head", 0, 1000);
    record_int(r, "format", 1);
    record_str(r, "version", "fixture");
    record_str(r, "run", run);
    record_str(r, "method", method);
    record_int(r, "layers", 8);
    record_int(r, "steps", steps);
    record_int(r, "seed", seed);
    record_int(r, "vocab", 256);
    record_int(r, "params", 1234567);
    record_num(r, "flops_dense", 2.0e6);
    record_str(r, "peak_format", "fp32");
    record_num(r, "peak_gflops", 230.5);
    record_map(r, "arenas");
    record_int(r, "weights", 19753072);
    record_int(r, "stream", 12582912);
    record_int(r, "work", 88080384);
    record_close(r);
    record_map(r, "config");
    record_str(r, "model.method", method);
    record_str(r, "edp.target_ratio", "0.7");
    snprintf(text, sizeof text, "%d", seed);
    record_str(r, "seed", text);
    record_close(r);
}

static void stream_head(struct stream *s, const char *run, const char *method, int seed, int steps)
{
    stream_begin_head(s, run, method, seed, steps);
    stream_put(s);
}

/* Time of the parts of a step, about 400 ms in total. */
static void stream_account(struct record *r, double wobble)
{
    stream_num(r, "time_forward", 110 - 6 * wobble);
    stream_num(r, "time_loss", 61 - 3 * wobble);
    stream_num(r, "time_backward", 205 - 12 * wobble);
    stream_num(r, "time_optimizer", 16 - wobble);
    stream_num(r, "time_data", 0.4);
    stream_num(r, "time_record", 0.3 + 0.1 * wobble);
    stream_num(r, "mfu", 0.41 + 0.02 * wobble);
    stream_num(r, "evaluation_share", 0.062);
    stream_num(r, "checkpoint_share", 0.008);
}

/* A decreasing loss with the events of a real run: a NaN at step 60, a spike at step 101. */
static void stream_step(struct stream *s, int step, int seed, int is_full)
{
    struct record *r = s->record;
    double fall = exp(-step / 90.0), wobble = stream_noise((uint32_t)step, (uint32_t)seed);
    double loss = 1.4 + 4.1 * fall + 0.25 * wobble;
    record_begin(r, "metric", step, 1000 + 0.5 * step);
    stream_num(r, "loss", is_full && step == 60 ? (double)NAN : is_full && step == 101 ? 40 : loss);
    record_num(
        r, "lr",
        stream_round(step < 20 ? 300.0 * step / 20 : 300 * (0.1 + 0.9 * exp(-step / 150.0))) /
            1048576);
    stream_num(r, "grad_norm", 0.6 + 1.5 * fall + 0.4 * (wobble + 0.5));
    stream_num(r, "tok_s", 5200 + 300 * wobble);
    record_int(r, "tokens", 2048 * (int64_t)step);
    stream_num(r, "flops_ratio", 0.74 + 0.26 * fall + 0.01 * wobble);
    stream_num(r, "time_ratio", 0.83 + 0.17 * fall + 0.02 * wobble);
    stream_num(r, "block_ratio", 0.70 + 0.30 * fall + 0.01 * wobble);
    if (step % 20 == 0)
        stream_num(r, "val_loss", loss + 0.12 - 0.2 * wobble);
    if (is_full)
        stream_account(r, wobble);
    stream_put(s);
}

static void stream_layers(struct stream *s, int step)
{
    double gate[8], threshold[8];
    for (int l = 0; l < 8; l++) {
        gate[l] = l == 0 || l == 7 ? 1 : 0.5 + 0.4 * cos(l * 0.9) + 0.2 * exp(-step / 90.0);
        gate[l] = stream_round(gate[l] > 1 ? 1 : gate[l]);
        threshold[l] = stream_round(0.1 + 0.02 * l);
    }
    record_begin(s->record, "layer", step, 1000 + 0.5 * step);
    record_nums(s->record, "gate_ratio", gate, 8);
    record_nums(s->record, "threshold", threshold, 8);
    stream_put(s);
}

static void stream_event(struct stream *s, int step, const char *level, const char *name,
                         const char *text)
{
    record_begin(s->record, "event", step, 1000 + 0.5 * step);
    record_str(s->record, "level", level);
    record_str(s->record, "name", name);
    record_str(s->record, "text", text);
    stream_put(s);
}

/* Twelve tokens, among them an incomplete character, an escape sequence and a wide rune. */
static void stream_probe(struct stream *s, int step)
{
    static const char *const piece[12] = {"The",  " cat",    " sat", " on", " the", " \xE7\x8C\xAB",
                                          "\xC3", "\x1b[2J", " mat", ".",   " 42",  "\n"};
    size_t len[12];
    int32_t id[12];
    unsigned char run[96];
    float depth[12], flops[12], nll[12], gate[96];
    for (int t = 0; t < 12; t++) {
        len[t] = strlen(piece[t]);
        id[t] = 10 + t;
        depth[t] = 0;
        for (int l = 0; l < 8; l++) {
            double g = 0.5 + stream_noise((uint32_t)l, (uint32_t)(t + step));
            run[l * 12 + t] = l == 0 || l == 7 || g > 0.35;
            gate[l * 12 + t] = (float)stream_round(g);
            depth[t] += (float)run[l * 12 + t];
        }
        flops[t] = depth[t] / 8 * 2.0e6f;
        nll[t] = t ? (float)stream_round(2 + stream_noise((uint32_t)t, 5u)) : (float)NAN;
    }
    record_begin(s->record, "probe", step, 1000 + 0.5 * step);
    record_int(s->record, "index", 0);
    record_str(s->record, "name", "fixture-0");
    record_int(s->record, "layers", 8);
    record_i32s(s->record, "ids", id, 12);
    record_pieces(s->record, "text", piece, len, 12);
    record_bytes(s->record, "run", run, 96);
    record_f32s(s->record, "depth", depth, 12);
    record_f32s(s->record, "flops", flops, 12);
    record_f32s(s->record, "nll", nll, 12);
    record_num(s->record, "flops_dense", 2.0e6);
    record_map(s->record, "cell");
    record_f32s(s->record, "gate", gate, 96);
    record_close(s->record);
    stream_put(s);
}

static void stream_sample(struct stream *s, int step)
{
    enum { N = 300 };
    float flops[N], kind[N];
    for (int i = 0; i < N; i++) {
        double mode = i % 3 == 0 ? 0.9 : 0.6;
        flops[i] = (float)(2.0e6 * stream_round(mode + 0.1 * stream_noise((uint32_t)i, 3) +
                                                0.1 * stream_noise((uint32_t)i, 4)));
        kind[i] = (float)(i % 5);
    }
    record_begin(s->record, "sample", step, 1000 + 0.5 * step);
    record_str(s->record, "name", "val");
    record_int(s->record, "n", N);
    record_map(s->record, "column");
    record_f32s(s->record, "flops", flops, N);
    record_f32s(s->record, "class", kind, N);
    record_close(s->record);
    stream_put(s);
}

static void stream_end(struct stream *s, int step)
{
    record_begin(s->record, "end", step, 1000 + 0.5 * step);
    record_str(s->record, "status", "done");
    record_str(s->record, "text", "fixture ends");
    stream_put(s);
}

static void stream_training(struct stream *s)
{
    stream_head(s, "fixture-edp", "edp", 1, 200);
    for (int step = 1; step <= 150; step++) {
        stream_step(s, step, 1, 1);
        if (step % 25 == 0)
            stream_layers(s, step);
        if (step == 60)
            stream_event(s, step, "error", "nan", "loss is NaN: step skipped, 1 in a row");
        if (step == 100)
            stream_event(s, step, "info", "checkpoint", "checkpoints/step-00000100");
        if (step == 120)
            stream_event(s, step, "warn", "set", "lr 3e-4 -> 1e-4 by a viewer");
    }
    stream_probe(s, 150);
    stream_sample(s, 150);
    stream_end(s, 150);
}

static void stream_seed(struct stream *s, int seed)
{
    char name[32];
    snprintf(name, sizeof name, "fixture-seed-%d", seed);
    stream_head(s, name, "edp", seed, 120);
    for (int step = 1; step <= 60; step++)
        stream_step(s, step, seed, 0);
    stream_end(s, 60);
}

/* A run with live settings, one of them changed and one without a known value. */
static void stream_live(struct stream *s, int seed)
{
    static const struct {
        const char *key;
        double min, max;
    } live[] = {
        {"train.lr", 1e-12, 1}, {"edp.threshold_offset", -20, 20}, {"edp.target_ratio", 0, 1}};
    stream_begin_head(s, "fixture-live", "edp", seed, 120);
    record_array(s->record, "live");
    for (size_t i = 0; i < sizeof live / sizeof *live; i++) {
        record_map(s->record, NULL);
        record_str(s->record, "key", live[i].key);
        record_num(s->record, "min", live[i].min);
        record_num(s->record, "max", live[i].max);
        record_close(s->record);
    }
    record_close(s->record);
    stream_put(s);
    for (int step = 1; step <= 20; step++)
        stream_step(s, step, seed, 0);
    stream_event(s, 10, "info", "set", "lr 0.0005");
}

/* Hostile names: untrusted bytes must not reach the terminal. */
static void stream_hostile(struct stream *s)
{
    stream_head(s, "a\x1b]0;owned\x07\xE2\x80\xAE name", "edp\x1b[2J", 1, -5);
    for (int step = 1; step <= 3; step++) {
        record_begin(s->record, "metric", step, 1000);
        record_num(s->record, "loss", step == 2 ? (double)INFINITY : 1e308);
        record_num(s->record, "\x1b[31mred", -1e-300);
        record_num(s->record, "flat", 5);
        stream_put(s);
    }
    stream_event(s, 3, "warn",
                 "\x9b"
                 "2J",
                 "text with \x1b[2J and \xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9 in it");
}

struct stream_row {
    const char *name;
    void (*make)(struct stream *s, int seed);
};
static void make_training(struct stream *s, int seed)
{
    (void)seed;
    stream_training(s);
}
static void make_hostile(struct stream *s, int seed)
{
    (void)seed;
    stream_hostile(s);
}
static void make_empty(struct stream *s, int seed)
{
    (void)seed;
    stream_head(s, "fixture-empty", "mod", 1, 100);
}

static const struct stream_row stream_rows[] = {
    {"training", make_training}, {"seed1", stream_seed}, {"seed2", stream_seed},
    {"seed3", stream_seed},      {"empty", make_empty},  {"hostile", make_hostile},
    {"live", stream_live},
};
enum { STREAMS = (int)(sizeof stream_rows / sizeof stream_rows[0]) };

/* The bytes of fixture i in out; 0 on success. */
static int stream_make(int i, struct str *out)
{
    struct stream s = {.record = record_new(), .seq = 1};
    if (!s.record)
        return -1;
    stream_rows[i].make(&s, i);
    record_free(s.record);
    *out = s.out;
    return s.failed || s.out.failed ? -1 : 0;
}

#endif
