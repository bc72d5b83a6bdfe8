/* task=ppl: loss over a text, and statistics of its routing. */
#ifndef DS_EVAL_PERPLEXITY_H
#define DS_EVAL_PERPLEXITY_H

#include <stdint.h>

#include "base/opt.h"
#include "eval/subject.h"
#include "models/measure.h"

/* Keys without a prefix, and data.*; empty strings and zeros mean "as in the model's run". */
struct ppl_options {
    char *task, *path, *format, *text_key;
    char *results;                 /* tasks other than ppl (eval/task.h) */
    int64_t shots, limit, max_gen; /* likewise                               */
    int64_t max_bytes, docs, seed, tokens, batch, seq, time_rounds, threads;
    double val_fraction, threshold_offset;
    double capacity;       /* requested; -1: the method's own */
    double target_speedup; /* 0: none */
    char *capacities;      /* of --benchmark */
    char *exit_layer;      /* "E" or "E..F"; NULL or "0": all layers */
    int64_t stride;
    int windows;        /* eval/perplexity_windows.h */
    double risk, delta; /* of calibrate */
    int routing, split, controls, speedup_by, loss;
    struct numeric_options numbers;
};
enum ppl_routing { PPL_CAUSAL, PPL_TOPK, PPL_DENSE, PPL_ORACLE };
enum speedup_by { SPEEDUP_FLOPS, SPEEDUP_TIME };
enum ppl_loss { PPL_LOSS_AUTO, PPL_LOSS_ALL, PPL_LOSS_ANSWERS };
enum ppl_split { PPL_SPLIT_AUTO, PPL_SPLIT_VAL, PPL_SPLIT_TRAIN, PPL_SPLIT_ALL };
extern const struct opt_group ppl_group;
extern const char *const ppl_routing_name[];

struct ppl_result {
    struct measure measure;
    char data[256];                    /* what was read, for tables: "synth, validation split" */
    const char *task, *routing, *kind; /* kind: of the windows */
    int64_t batch, seq, windows, stride;
    double capacity; /* requested; NaN: the method's own */
    int exit;        /* first layers only; 0: all */
};
/* Uses the run's own validation split unless the options name data.  DS_EUSAGE: unknown task, or
 * unsupported routing.  DS_ENUMERIC when the loss is not finite. */
int ppl_run(struct ppl_result *out, struct subject *s, const struct ppl_options *o,
            struct err *e) DS_CHECK;
void ppl_result_release(struct ppl_result *r);

/* ---- the same in steps, for several measurements over the same text ---- */
struct ppl;
/* Borrows the subject and the options until ppl_close. */
int ppl_open(struct ppl **out, struct subject *s, const struct ppl_options *o,
             struct err *e) DS_CHECK;
void ppl_close(struct ppl *p);
struct ppl_request {
    double capacity; /* NaN: the method's own */
    int exit;        /* first layers only; 0: as in the options */
    int64_t tokens;  /* to score, rounded up to whole windows; 0: all that were opened */
    int topk, controls,
        dense;    /* also: the top-k form; controls: random (1), and static mask (2); dense */
    int is_whole; /* dense and controls over all of these tokens, else the first 65,536 at most */
    int prefill_rounds, decode_rounds;
};
/* Result in *out, which the caller releases. */
int ppl_measure(struct ppl_result *out, struct ppl *p, const struct ppl_request *w,
                struct err *e) DS_CHECK;
/* The range of o->exit_layer; 0 and 0: all layers.  DS_EUSAGE, DS_ERANGE. */
int ppl_exits(int *first, int *last, const struct ppl_options *o, const struct subject *s,
              struct err *e) DS_CHECK;
/* The k-th batch of the text, for model_calibrate with ctx = the struct ppl; and the number of
 * batches. */
void ppl_batch(void *ctx, int k, struct batch *b);
int ppl_batches(const struct ppl *p);
/* 1 when split=auto is the validation split of a run that has none; ppl_open refuses that. */
int ppl_lacks_val(const struct subject *s, const struct ppl_options *o);
/* 1 when the text starts with the windows that a run's final evaluation scores. */
int ppl_is_scored(const struct ppl *p);
/* Makes ppl_batch start after the windows of that evaluation; 0 when fewer than ppl_batches
 * remain. */
int ppl_skip_scored(struct ppl *p);
/* The same, with fewer windows when fewer remain; 0 when not even `least` do. */
int ppl_skip_to_rest(struct ppl *p, int64_t least);
/* The text that ppl_batch walks over, and the model that it is for. */
struct ppl_text {
    struct model *model;
    int64_t windows, seq, batch; /* batch: windows of one, as asked for */
};
struct ppl_text ppl_text(const struct ppl *p);
/* Mean nats per token of windows [from, from + n) of that text at a capacity, executed (NaN: the
 * dense model); NaN for a window without a target.  Packed windows only.  DS_ENUMERIC when the dense
 * loss is not finite. */
int ppl_window_losses(struct ppl *p, int64_t from, int64_t n, double capacity, double *nll,
                      struct err *e) DS_CHECK;
uint64_t ppl_seed(const struct ppl *p);
int64_t ppl_tokens(const struct ppl *p);
/* Description of the opened data. */
const char *ppl_data(const struct ppl *p);

#endif
