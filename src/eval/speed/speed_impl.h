/* Shared declarations of the benchmark's parts. */
#ifndef DS_EVAL_SPEED_IMPL_H
#define DS_EVAL_SPEED_IMPL_H

#include "engine/peak.h"
#include "eval/speed.h"
#include "models/model.h"

enum { SPEED_ROUNDS_MAX = 64, SPEED_RATIOS = 4 };
extern const double speed_ratios[SPEED_RATIOS];

struct speed {
    struct speed_options o;     /* zeros filled in */
    const char *from;           /* a model on disk; NULL: random weights */
    struct config keys;         /* model.* that are not defaults */
    struct model_config config; /* of the dense model, derived sizes filled in */
    struct speed_list *out;
    double peak[PEAK_UNITS], read_gbs;
    enum peak_unit unit, use_unit; /* of training, and of inference */
    double held_bytes, use_bytes;  /* bytes per weight as packed for them */
    void *lines;                   /* memory larger than the caches, for read rates */
    size_t line_bytes;
};

/* ---- results: speed.c ---- */
int speed_request(const struct speed *s, const char *group, const char *name);
/* Adds the median of n samples and their range; NULL when out of memory.  Valid until the next
 * call. */
struct speed_result *speed_add(struct speed *s, const char *group, const char *name,
                               const char *unit, const double *sample, int n, struct err *e);
void speed_set_limit(struct speed_result *r, double rate, const char *name, double limit);
double speed_median(const double *v, int n); /* v stays as it is */
double speed_median_ratio(const double *a, const double *b, int n);
/* Fills x with values that are neither all equal nor denormal. */
void speed_fill(real *x, size_t n, double scale);
void speed_fill_ids(int32_t *id, size_t n, int vocab);

/* ---- groups ---- */
int speed_load(struct speed *s, struct err *e) DS_CHECK;     /* speed_load.c */
int speed_gemm(struct speed *s, struct err *e) DS_CHECK;     /* speed_gemm.c */
int speed_quants(struct speed *s, struct err *e) DS_CHECK;   /* speed_quant.c */
int speed_ops(struct speed *s, struct err *e) DS_CHECK;      /* speed_ops.c */
int speed_sampling(struct speed *s, struct err *e) DS_CHECK; /* speed_sample.c */
int speed_blocks(struct speed *s, struct err *e) DS_CHECK;   /* speed_train.c */
int speed_training(struct speed *s, struct err *e) DS_CHECK;
int speed_inference(struct speed *s, int is_decode, struct err *e) DS_CHECK; /* speed_inference.c */
int speed_speculate(struct speed *s, struct err *e) DS_CHECK;                /* speed_speculate.c */
int speed_ranks(struct speed *s, struct err *e) DS_CHECK;                    /* speed_ranks.c */
/* Seconds of whole steps of the dense model, one per round, each after meet(); *weights: of the
 * model. */
int speed_dense_steps(struct speed *s, int (*meet)(struct err *e), double *seconds, double *weights,
                      struct err *e) DS_CHECK;

/* ---- a model in its measured configurations: speed_model.c ---- */

/* One way of running the model.  Methods whose ratio is a setting (the controls) decide themselves;
 * decisions of other untrained methods are meaningless, so random cells are forced. */
struct speed_way {
    char name[48]; /* "dense", "0.50", "0.50 masked" */
    double ratio;  /* of gated cells */
    int is_dense;  /* PASS_DENSE: the reference */
    int is_masked; /* training computes every row */
    int texts;     /* decoded in one batch; 0: one */
    int8_t *force; /* (L, cells), or NULL */
};
enum { SPEED_WAYS = SPEED_RATIOS + 2, SPEED_TEXTS = 16 };
struct speed_subject {
    const char *group;
    char what[64]; /* "train step edp" */
    struct model *model;
    int n, cells;
    struct speed_way way[SPEED_WAYS];
};
struct speed_plan {
    const char *group, *what, *method;
    int train, is_block; /* is_block: one layer, gated, without the vocabulary */
    int rows, cells;     /* of buffers; of forced cells */
    int has_texts;       /* also with several texts in one batch */
};
/* Opens only the requested ways; n = 0 (and no model) if none is. */
int speed_subject_open(struct speed_subject *u, const struct speed *s, const struct speed_plan *p,
                       struct err *e) DS_CHECK;
void speed_subject_close(struct speed_subject *u);
/* Opens the model on disk with this method for inference. */
int speed_model_from(struct model **out, const struct speed *s, const struct route_ops *ops,
                     struct err *e) DS_CHECK;
/* Prepares the subject and the pass for this way; train: PASS_TRAIN, else PASS_SPARSE. */
void speed_subject_set(struct speed_subject *u, const struct speed_way *w, struct pass *pass,
                       int train);
/* FLOPs of the last forward pass, with or without the head; whole: as if every cell had run. */
double speed_flops(const struct model *m, int whole, int head);

/* Measurements of a subject. */
struct speed_figures {
    double tokens; /* per sample of one text */
    double seconds[SPEED_WAYS][SPEED_ROUNDS_MAX];
    double flops[SPEED_WAYS], dense[SPEED_WAYS]; /* per sample: this way, and every cell */
    enum peak_unit unit;
    double bytes[SPEED_WAYS], read_gbs; /* weights read per sample; 0: compute-bound */
};
int speed_add_figures(struct speed *s, const struct speed_subject *u, const struct speed_figures *f,
                      struct err *e) DS_CHECK;
/* Calls measure() for dense, then for every method (or only that of model.method). */
int speed_each_method(struct speed *s,
                      int (*measure)(struct speed *s, const char *method, int which, struct err *e),
                      int which, struct err *e) DS_CHECK;

#endif
