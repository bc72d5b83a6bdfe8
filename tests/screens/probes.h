/* Probes for the tests of the Depth map, Signals and the Stepper: TEST FIXTURES, computed from a
 * formula, not from a model or a training run.  Nothing in them is a result. */
#ifndef DS_TESTS_SCREENS_PROBES_H
#define DS_TESTS_SCREENS_PROBES_H

#include <math.h>
#include <string.h>

#include "io/record.h"

struct stream {
    struct record *record;
    struct str out;
    uint64_t seq;
    int failed;
};

static double probe_noise(uint32_t a, uint32_t b) /* in -0.5..0.5, the same on every machine */
{
    uint32_t x = a * 2654435761u ^ b * 40503u ^ 0x9E3779B9u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return (double)(x & 0xFFFF) / 65536.0 - 0.5;
}

static void stream_put(struct stream *s)
{
    struct err e = {0};
    if (record_end(s->record, s->seq++, &s->out, &e) < 0)
        s->failed = 1;
}

static void stream_head(struct stream *s, const char *run, const char *method, int steps)
{
    struct record *r = s->record;
    record_begin(r, "head", 0, 1000);
    record_int(r, "format", 1);
    record_str(r, "version", "fixture");
    record_str(r, "run", run);
    record_str(r, "method", method);
    record_int(r, "layers", 8);
    record_int(r, "steps", steps);
    record_num(r, "flops_dense", 2.0e6);
    record_map(r, "config");
    record_str(r, "edp.kv", "plan");
    record_str(r, "train.probe_every", "10");
    if (strcmp(method, "halt") == 0) /* one block, eight times */
        record_str(r, "model.loop", "8");
    record_close(r);
    record_array(r, "metrics");
    record_map(r, NULL);
    record_str(r, "name", "threshold");
    record_str(r, "unit", "sd");
    record_str(r, "help", "threshold in force");
    record_str(r, "scope", "layer");
    record_close(r);
    record_close(r);
    stream_put(s);
}

static void stream_layers(struct stream *s, int step)
{
    float threshold[8];
    for (int l = 0; l < 8; l++)
        threshold[l] = (float)(0.1 + 0.02 * l);
    record_begin(s->record, "layer", step, 1000 + 0.5 * step);
    record_f32s(s->record, "threshold", threshold, 8);
    stream_put(s);
}

/* Tokens of an evaluation: depth follows the loss, the constant column has no variance. */
static void stream_sample(struct stream *s, int step)
{
    enum { N = 300 };
    float depth[N], nll[N], signal[N], flat[N];
    for (int i = 0; i < N; i++) {
        nll[i] = (float)(2 + probe_noise((uint32_t)i, 3));
        depth[i] = (float)(5 + floor(3 * ((double)nll[i] - 2) + probe_noise((uint32_t)i, 4)));
        signal[i] = (float)probe_noise((uint32_t)i, 5);
        flat[i] = 1;
    }
    record_begin(s->record, "sample", step, 1000 + 0.5 * step);
    record_str(s->record, "name", "val");
    record_int(s->record, "n", N);
    record_map(s->record, "column");
    record_f32s(s->record, "depth", depth, N);
    record_f32s(s->record, "signal", signal, N);
    record_f32s(s->record, "constant", flat, N);
    record_f32s(s->record, "nll", nll, N);
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

enum { PROBE_L = 8, PROBE_T = 24, PROBE_K = 3 };

/* Words, a wide rune, an incomplete character, an escape sequence, a bidi override, combining marks. */
static const char *const probe_piece[PROBE_T] = {"The",
                                                 " cat",
                                                 " sat",
                                                 " on",
                                                 " the",
                                                 " mat",
                                                 ".",
                                                 "\n",
                                                 " \xE7\x8C\xAB",
                                                 "\xC3",
                                                 "\x1b[2J",
                                                 " 42",
                                                 " e\xCC\x81\xCC\x82",
                                                 "\xE2\x80\xAE",
                                                 " and",
                                                 " the",
                                                 " dog",
                                                 " ran",
                                                 " un",
                                                 "believ",
                                                 "ably",
                                                 " fast",
                                                 " home",
                                                 "."};

/* is_rich: with scores, thresholds, true entropy and lens, 2: also with the required depth and
 * classes of queries; else decisions alone. shift moves the
 * thresholds. */
static void probe_body(struct record *r, int step, int index, int tokens, int is_rich, double shift,
                       int flip)
{
    enum { CELLS = PROBE_L * PROBE_T };
    unsigned char run[CELLS];
    float score[CELLS], threshold[CELLS], forced[CELLS], velocity[CELLS], flops[CELLS],
        p[CELLS * PROBE_K];
    float depth[PROBE_T], nll[PROBE_T], entropy[PROBE_T], truth[PROBE_T], cost[PROBE_T];
    int32_t id[PROBE_T], lens[CELLS * PROBE_K];
    const char *text[PROBE_T], *said[CELLS * PROBE_K];
    size_t len[PROBE_T], said_len[CELLS * PROBE_K];
    for (int t = 0; t < tokens; t++) {
        int k = (t + 5 * index) % PROBE_T;
        text[t] = probe_piece[k];
        len[t] = strlen(text[t]);
        id[t] = 100 + k;
        depth[t] = cost[t] = 0;
        for (int l = 0; l < PROBE_L; l++) {
            int i = l * tokens + t, is_rule = l < 2 || l == PROBE_L - 1;
            double z = 2.5 * probe_noise((uint32_t)(l + 7 * index), (uint32_t)(t + 3 * step));
            score[i] = is_rule ? (float)NAN : (float)z;
            threshold[i] = is_rule ? (float)NAN : (float)(0.1 * (l - 4) + shift);
            forced[i] = is_rule;
            run[i] = is_rule || score[i] > threshold[i];
            if (i == flip) {
                run[i] = !run[i];
                forced[i] = 1;
            }
            velocity[i] = (float)(0.3 + 0.1 * z + 0.4 / (l + 1));
            flops[i] = run[i] ? 250000 : 4000;
            depth[t] += run[i];
            cost[t] += flops[i];
            for (int j = 0; j < PROBE_K; j++) {
                int c = i * PROBE_K + j;
                lens[c] = 100 + (k + 1 + j) % PROBE_T;
                said[c] = probe_piece[(k + 1 + j) % PROBE_T];
                said_len[c] = strlen(said[c]);
                p[c] = (float)((0.4 + 0.05 * l + (flip >= 0 ? 0.03 : 0)) / (1 + 2 * j));
            }
        }
        nll[t] = t ? (float)(2 + 1.5 * probe_noise((uint32_t)(t + index), 5u) +
                             0.1 * (PROBE_L - (double)depth[t]))
                   : (float)NAN;
        entropy[t] = t ? (float)(2.2 + probe_noise((uint32_t)t, 9u)) : (float)NAN;
        truth[t] = (float)(0.5 + probe_noise((uint32_t)t, 11u));
    }
    record_begin(r, "probe", step, 1000 + 0.5 * step);
    record_int(r, "index", index);
    record_str(r, "name", index ? "fixture-b" : "fixture-a");
    record_int(r, "layers", PROBE_L);
    record_i32s(r, "ids", id, (size_t)tokens);
    record_pieces(r, "text", text, len, (size_t)tokens);
    record_bytes(r, "run", run, (size_t)(PROBE_L * tokens));
    record_f32s(r, "depth", depth, (size_t)tokens);
    record_f32s(r, "nll", nll, (size_t)tokens);
    record_f32s(r, "entropy", entropy, (size_t)tokens);
    record_f32s(r, "flops", cost, (size_t)tokens);
    record_num(r, "flops_dense", 2.0e6);
    if (!is_rich)
        return;
    record_map(r, "token");
    record_f32s(r, "true_entropy", truth, (size_t)tokens);
    for (int t = 0; t < tokens; t++) {
        entropy[t] = (float)(t % 4 == 2 ? 1 + t / 4 : 0); /* required depth */
        nll[t] = (float)(t % 4 == 2 ? 10 : t % 4 == 3 ? 11 : 9);
    }
    if (is_rich > 1) {
        record_f32s(r, "needed", entropy, (size_t)tokens);
        record_f32s(r, "class", nll, (size_t)tokens);
    }
    record_close(r);
    record_map(r, "cell");
    record_f32s(r, "score", score, (size_t)(PROBE_L * tokens));
    record_f32s(r, "threshold", threshold, (size_t)(PROBE_L * tokens));
    record_f32s(r, "forced", forced, (size_t)(PROBE_L * tokens));
    record_f32s(r, "velocity", velocity, (size_t)(PROBE_L * tokens));
    record_f32s(r, "flops", flops, (size_t)(PROBE_L * tokens));
    record_close(r);
    record_int(r, "lens_k", PROBE_K);
    record_i32s(r, "lens_id", lens, (size_t)(PROBE_L * tokens * PROBE_K));
    record_f32s(r, "lens_p", p, (size_t)(PROBE_L * tokens * PROBE_K));
    record_pieces(r, "lens_text", said, said_len, (size_t)(PROBE_L * tokens * PROBE_K));
}

/* A finished run: three probes of two texts each, thresholds between them, and an evaluation. */
static inline void probes_run(struct stream *s)
{
    stream_head(s, "fixture-probes", "edp", 30);
    for (int step = 10; step <= 30; step += 10) {
        stream_layers(s, step);
        for (int index = 0; index < 2; index++) {
            probe_body(s->record, step, index, index ? 9 : PROBE_T, 1, 0.02 * step, -1);
            stream_put(s);
        }
    }
    stream_sample(s, 30);
    stream_end(s, 30);
}

/* Queries of known required depth. */
static inline void probes_needed(struct stream *s)
{
    stream_head(s, "fixture-hops", "edp", 10);
    probe_body(s->record, 10, 0, PROBE_T, 2, 0, -1);
    stream_put(s);
    stream_end(s, 10);
}

static inline void probes_loop(struct stream *s)
{
    stream_head(s, "fixture-loop", "halt", 10);
    stream_layers(s, 10);
    probe_body(s->record, 10, 0, PROBE_T, 2, 0, -1);
    stream_put(s);
    stream_end(s, 10);
}

static inline void probes_bare(struct stream *s)
{
    stream_head(s, "fixture-bare", "static", 10);
    probe_body(s->record, 10, 0, PROBE_T, 0, 0, -1);
    stream_put(s);
    stream_end(s, 10);
}

/* Top-k decisions as in training, which a view must report. */
static inline void probes_topk(struct stream *s)
{
    stream_head(s, "fixture-topk", "mod", 10);
    probe_body(s->record, 10, 0, PROBE_T, 0, 0, -1);
    record_str(s->record, "routing", "topk");
    stream_put(s);
    stream_end(s, 10);
}

/* The bytes of a stream; 0 on success. */
static int probes_make(void (*make)(struct stream *), struct str *out)
{
    struct stream s = {.record = record_new(), .seq = 1};
    if (!s.record)
        return -1;
    make(&s);
    record_free(s.record);
    *out = s.out;
    return s.failed || s.out.failed ? -1 : 0;
}

#endif
