/* Test fixture: runs with synthetic numbers, written through io/record.h into a temporary directory.
 * Nothing here is a result; it exists so that drawing can be tested. */
#ifndef DS_TESTS_FIG_FIXTURE_H
#define DS_TESTS_FIG_FIXTURE_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/rng.h"
#include "figures/figure.h"
#include "io/record.h"
#include "io/runview.h"

enum { FIX_STEPS = 400, FIX_TOKENS = 4000, FIX_POSITIONS = 48, FIX_PROBE = 64 };

struct fix {
    const char *dir, *method, *ablation;
    int layers, seed, early, late;
    double ratio, loss;
    int no_eval, no_sample, no_probe, nan_at, steps;
    const char *drop_scalar, *drop_column; /* omitted, to test the error */
    int flat_depth, is_looped;             /* is_looped: its layers are iterations of one */
    int has_forced;                        /* the probe says that no router decides layer 0 */
};

/* The box of all paths of a figure, and that of the frames of its panels: left, top, right,
 * bottom. */
static inline void fix_extent(const struct figure *f, double all[4], double frame[4])
{
    struct str text = {0};
    double x[3] = {0}, y[3] = {0}, w = 0, h = 0;
    pen_list_print(f->list, &text);
    for (int i = 0; i < 4; i++)
        all[i] = frame[i] = i < 2 ? 1e9 : -1e9;
    for (const char *at = str_text(&text); at; at = strchr(at, '\n'), at += at != NULL) {
        int is_rect = sscanf(at, "rect %lf %lf %lf %lf", &x[0], &y[0], &w, &h) == 4,
            is_corner = sscanf(at, "move %lf %lf line %lf %lf line %lf %lf", &x[0], &y[0], &x[1],
                               &y[1], &x[2], &y[2]) == 6 &&
                        x[0] == x[1] && y[1] == y[2] && y[1] > y[0] + 20 && x[2] > x[1] + 20;
        if (!is_rect && sscanf(at, "move %lf %lf", &x[0], &y[0]) != 2 &&
            sscanf(at, "line %lf %lf", &x[0], &y[0]) != 2)
            continue;
        const double box[4] = {x[0], y[0], is_rect ? x[0] + w : x[0], is_rect ? y[0] + h : y[0]};
        const double corner[4] = {x[0], y[0], x[2], y[1]};
        for (int i = 0; i < 4; i++) {
            all[i] = i < 2 ? fmin(all[i], box[i]) : fmax(all[i], box[i]);
            if (is_corner)
                frame[i] = i < 2 ? fmin(frame[i], corner[i]) : fmax(frame[i], corner[i]);
        }
    }
    str_release(&text);
}

static inline void fix_config(struct record *r, const char *key, double v)
{
    char text[32];
    snprintf(text, sizeof text, "%g", v);
    record_str(r, key, text);
}

static inline void fix_head(struct record *r, const struct fix *f, const char *name)
{
    record_begin(r, "head", 0, 1000);
    record_int(r, "format", 1);
    record_str(r, "version", "0.1.0");
    record_str(r, "run", name);
    record_str(r, "method", f->method);
    record_int(r, "layers", f->layers);
    record_int(r, "steps", FIX_STEPS);
    record_int(r, "seed", f->seed);
    record_num(r, "flops_dense", 1e6 * (1 + f->layers));
    record_map(r, "config");
    record_str(r, "model.method", f->method);
    fix_config(r, "model.layers", f->is_looped ? 1 : f->layers);
    if (f->is_looped)
        fix_config(r, "model.loop", f->layers);
    fix_config(r, "seed", f->seed);
    fix_config(r, "train.steps", f->steps ? f->steps : FIX_STEPS);
    if (strcmp(f->method, "edp") == 0) {
        fix_config(r, "edp.target_ratio", f->ratio);
        fix_config(r, "edp.early", f->early);
        fix_config(r, "edp.late", f->late);
        record_str(r, "edp.ablation", f->ablation ? f->ablation : "none");
    } else if (f->ratio < 1)
        fix_config(r, "random.target_ratio", f->ratio);
    record_close(r);
}

static inline void fix_metrics(struct record *r, const struct fix *f, int step, struct rng *g)
{
    double base = f->loss + 2.6 * exp(-step / 70.0);
    record_begin(r, "metric", step, 1000 + step);
    record_num(r, "loss",
               f->nan_at && step == f->nan_at ? (double)NAN : base + 0.06 * rng_normal(g));
    record_num(r, "lr", 1e-3 * exp(-step / 300.0));
    record_num(r, "grad_norm", 1 + 0.3 * rng_uniform(g));
    record_int(r, "tokens", step * 2048LL);
    if (step % 40 == 0)
        record_num(r, "val_loss", base + 0.05 + 0.01 * rng_normal(g));
}

static inline void fix_scalar(struct record *r, const struct fix *f, const char *key, double v)
{
    if (!f->drop_scalar || strcmp(f->drop_scalar, key) != 0)
        record_num(r, key, v);
}

static inline void fix_eval(struct record *r, const struct fix *f, struct rng *g)
{
    static float map[64 * FIX_POSITIONS];
    float capacity[64];
    record_begin(r, "eval", FIX_STEPS, 2000);
    record_str(r, "task", "final");
    record_str(r, "routing", "causal");
    fix_scalar(r, f, "loss", f->loss + 0.012 * rng_normal(g));
    fix_scalar(r, f, "bits_per_byte", f->loss / 0.693);
    fix_scalar(r, f, "flops_ratio", (1 + f->ratio * f->layers) / (1 + f->layers));
    fix_scalar(r, f, "time_ratio",
               f->ratio >= 1 ? 1 : 0.12 + 0.9 * f->ratio + 0.01 * rng_normal(g));
    fix_scalar(r, f, "time_per_token_ms", 0.01 * f->layers * (0.1 + 0.9 * f->ratio));
    for (int l = 0; l < f->layers; l++) {
        int on = l < f->early || l >= f->layers - f->late;
        capacity[l] = on ? 1 : (float)f->ratio;
        for (int p = 0; p < FIX_POSITIONS; p++)
            map[l * FIX_POSITIONS + p] =
                on ? 1
                   : (float)fmin(1, fmax(0, f->ratio - 0.2 + 0.5 * exp(-p / 10.0) +
                                                0.15 * sin(l * 2.1 + p * 0.2)));
    }
    record_f32s(r, "capacity", capacity, (size_t)f->layers);
    record_f32s(r, "map", map, (size_t)f->layers * FIX_POSITIONS);
    fix_scalar(r, f, "map_positions", FIX_POSITIONS);
}

static inline void fix_column(struct record *r, const struct fix *f, const char *key,
                              const float *v)
{
    if (!f->drop_column || strcmp(f->drop_column, key) != 0)
        record_f32s(r, key, v, FIX_TOKENS);
}

static inline void fix_sample(struct record *r, const struct fix *f, struct rng *g)
{
    static float depth[FIX_TOKENS], signal[FIX_TOKENS], entropy[FIX_TOKENS], flops[FIX_TOKENS],
        needed[FIX_TOKENS];
    for (int i = 0; i < FIX_TOKENS; i++) {
        double hard = rng_uniform(g) < 0.4 ? 1 : 0, noise = rng_normal(g);
        double d = floor(f->early + f->late + 0.5 +
                         (f->layers - f->early - f->late) * (0.25 + 0.5 * hard) + 0.8 * noise);
        depth[i] =
            f->flat_depth ? (float)f->layers : (float)fmin(f->layers, fmax(f->early + f->late, d));
        signal[i] = (float)(0.05 + 0.02 * (double)depth[i] + 0.03 * rng_normal(g));
        entropy[i] = (float)fmax(0, 0.8 + 0.2 * (double)depth[i] + 0.7 * rng_normal(g));
        needed[i] = (float)(i % 3 ? 0 : floor((double)depth[i] / 2));
        flops[i] = (float)(1e6 * (1 + (double)depth[i]) + 400.0 * (i % FIX_POSITIONS));
    }
    record_begin(r, "sample", FIX_STEPS, 2001);
    record_str(r, "name", "val");
    record_int(r, "n", FIX_TOKENS);
    record_map(r, "column");
    fix_column(r, f, "depth", depth);
    fix_column(r, f, "signal", signal);
    fix_column(r, f, "entropy", entropy);
    fix_column(r, f, "flops", flops);
    fix_column(r, f, "needed", needed);
    record_close(r);
}

static inline void fix_probe(struct record *r, const struct fix *f, struct rng *g)
{
    static const char *const words[] = {"The",       " old",         " fox", " saw",
                                        " a",        " caf\xC3\xA9", ".",    "\n",
                                        " \xCF\x80", " \xE6\xBC\xA2"};
    static unsigned char run[64 * FIX_PROBE];
    const char *piece[FIX_PROBE];
    size_t len[FIX_PROBE];
    int32_t ids[FIX_PROBE];
    for (int t = 0; t < FIX_PROBE; t++) {
        piece[t] = words[t % 10];
        len[t] = strlen(piece[t]);
        ids[t] = t % 10;
        for (int l = 0; l < f->layers; l++)
            run[l * FIX_PROBE + t] =
                l < f->early || l >= f->layers - f->late || rng_uniform(g) < f->ratio;
    }
    record_begin(r, "probe", FIX_STEPS, 2002);
    record_int(r, "index", 0);
    record_str(r, "name", "synth-0");
    record_int(r, "layers", f->layers);
    record_i32s(r, "ids", ids, FIX_PROBE);
    record_pieces(r, "text", piece, len, FIX_PROBE);
    record_bytes(r, "run", run, (size_t)f->layers * FIX_PROBE);
    if (f->has_forced) {
        float forced[64 * FIX_PROBE] = {0};
        for (int t = 0; t < FIX_PROBE; t++)
            forced[t] = 1;
        record_map(r, "cell");
        record_f32s(r, "forced", forced, (size_t)f->layers * FIX_PROBE);
        record_close(r);
    }
}

/* Writes one log; returns its path (static: copy it), 0 on failure. */
static inline const char *fix_write(const struct fix *f, const char *name)
{
    static char path[1024];
    struct str out = {0};
    struct err e = {0};
    struct record *r = record_new();
    struct rng g;
    uint64_t seq = 0;
    int rc = r ? 0 : -1;
    rng_init(&g, (uint64_t)f->seed + 1, RNG_TEST, (uint64_t)f->layers, (uint32_t)(f->ratio * 100));
    fix_head(r, f, name);
    rc |= record_end(r, seq++, &out, &e);
    for (int step = 1; step <= FIX_STEPS; step++) {
        fix_metrics(r, f, step, &g);
        rc |= record_end(r, seq++, &out, &e);
    }
    if (!f->no_eval) {
        fix_eval(r, f, &g);
        rc |= record_end(r, seq++, &out, &e);
    }
    if (!f->no_sample) {
        fix_sample(r, f, &g);
        rc |= record_end(r, seq++, &out, &e);
    }
    if (!f->no_probe) {
        fix_probe(r, f, &g);
        rc |= record_end(r, seq++, &out, &e);
    }
    snprintf(path, sizeof path, "%s/%s.mp", f->dir, name);
    rc |= fs_write_file(path, out.p, out.len, &e);
    str_release(&out);
    record_free(r);
    return rc == 0 ? path : NULL;
}

static inline struct runview *fix_open(const struct fix *f, const char *name)
{
    struct runview *v = NULL;
    struct err e = {0};
    const char *path = fix_write(f, name);
    if (!path || runview_open(&v, path, &e) < 0)
        return NULL;
    while (runview_poll(v, 10, &e) > 0)
        ;
    return v;
}

static inline struct fix fix_edp(const char *dir, double ratio, int seed)
{
    return (struct fix){.dir = dir,
                        .method = "edp",
                        .layers = 12,
                        .seed = seed,
                        .early = 2,
                        .late = 2,
                        .ratio = ratio,
                        .loss = 1.55 + 0.25 * (1 - ratio) * (1 - ratio)};
}

static inline struct fix fix_dense(const char *dir, int layers, int seed)
{
    return (struct fix){.dir = dir,
                        .method = "dense",
                        .layers = layers,
                        .seed = seed,
                        .ratio = 1,
                        .loss = 1.54 + 0.03 * (12 - layers),
                        .no_probe = 0};
}

#endif
