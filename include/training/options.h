/* Configuration of a run: option groups, presets and their resolution. */
#ifndef DS_TRAINING_OPTIONS_H
#define DS_TRAINING_OPTIONS_H

#include <stdint.h>

#include "base/config.h"
#include "base/err.h"
#include "base/opt.h"
#include "data/hops.h"
#include "io/alert.h"
#include "models/config.h"
#include "training/preset.h"

enum schedule { SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_CONSTANT };
/* Keys "train.*". */
struct train_options {
    int64_t steps, batch, seq, warmup, log_every, layer_every, eval_every, eval_tokens,
        final_tokens, probe_every, probes, probe_tokens, checkpoint_every, keep, nan_limit,
        time_rounds, samples, pieces;
    double lr, min_lr, weight_decay, beta1, beta2, clip, router_lr, flops_budget, system_every,
        rank_timeout;
    int schedule, recompute, allow_nonfinite;
    int reduce, wire, shard; /* enums below; training/pieces.h */
    char *init;              /* model to start from, "" = none */
    int freeze;              /* FREEZE_* */
    int base_weights;        /* as numeric_options.weights, for a frozen base */
    int save;                /* SAVE_* */
    char *teacher;           /* "off", "self", or a model */
    int no_kd;               /* as if teacher were off */
    int64_t kd_warmup;       /* steps */
    double kd_alpha, kd_temperature;
    int exit_loss, exit_weights; /* enums below; training/exit_loss.h */
    int64_t exit_every;          /* 0: the exits before the last layer, one a step */
    double exit_scale;
};
enum { REDUCE_EXACT, REDUCE_FAST };
enum { WIRE_FP32, WIRE_BF16 };
enum { SHARD_NONE, SHARD_OPTIMIZER };
enum exit_loss {
    EXIT_LOSS_NONE,
    EXIT_LOSS_ALL,
    EXIT_LOSS_ROTATE,
    EXIT_LOSS_GRADUAL,
    EXIT_LOSS_RANDOM
};
enum { EXIT_WEIGHTS_RISING, EXIT_WEIGHTS_EQUAL };
enum { FREEZE_NONE, FREEZE_BASE };
enum { SAVE_AUTO, SAVE_ALL, SAVE_OWN };
/* 1 when distillation from a teacher is enabled. */
int train_has_teacher(const struct train_options *o);
/* 1 when checkpoints hold only what is trained, and refer to a frozen base by its path. */
struct train_config;
int train_saves_own(const struct train_config *c);
/* Keys "data.*". */
struct data_options {
    char *path, *format, *text_key, *tokenizer;
    int64_t max_bytes, docs;
    double val_fraction;
    int loss;                 /* LOSS_* */
    struct hops_options hops; /* keys "hops.*", of path "hops" */
};
enum { LOSS_ALL, LOSS_ANSWERS };
/* Keys without a prefix. */
struct run_options {
    int64_t seed, threads;
    int compute;
};

extern const struct opt_group train_group, data_group, run_group;

struct train_config {
    struct train_options train;
    struct data_options data;
    struct run_options run;
    struct alert_options alert;
    struct model_config model;
    struct config route;   /* the method's options with its prefix, defaults included */
    int64_t method_params; /* number of parameters that the method adds to the base model */
    char preset[64];       /* names joined by +; "quick" if none were given */
};
/* Merges presets (names of data/NAME.yaml next to the program, or paths to .yaml files; none =
 * quick) in order, later ones win, then overrides. All errors of a kind are reported at once;
 * unknown keys name the nearest. */
int train_config_make(struct train_config *c, const char *const *preset, size_t presets,
                      const char *const *override, size_t n, struct err *e) DS_CHECK;
/* The same for display: keys that presets leave open (???) keep their default. */
int train_config_preview(struct train_config *c, const char *const *preset, size_t presets,
                         struct err *e) DS_CHECK;
/* Reads a run directory's configuration (resume; io/runconfig.h); overrides as above. */
int train_config_read(struct train_config *c, const char *dir, const char *const *override,
                      size_t n, int *is_lost, struct err *e) DS_CHECK;
/* config.yaml, every key. */
void train_config_print(struct str *out, const struct train_config *c);
/* Calls back for every key and value, in order. */
void train_config_for_each(const struct train_config *c,
                           void (*each)(void *ctx, const char *key, const char *value), void *ctx);
void train_config_release(struct train_config *c);
#endif
