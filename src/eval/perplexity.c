#include "eval/perplexity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/corpus.h"
#include "data/loader.h"

enum { SEQ_OTHERWISE = 256, TOKENS_OTHERWISE = 65536, SAMPLES_MAX = 1 << 16, TIME_TOKENS = 512 };
/* Every run reads the stories of seed 1; asked for by name, they are stories that no run has seen. */
enum { STORY_SEED_RUN = 1, STORY_SEED_FRESH = 2 };

#define AT(field) offsetof(struct ppl_options, field)
static const struct opt ppl_opts[] = {
    // clang-format off
    {"task",          OPT_STRING, AT(task),      "ppl", 0, 0, NULL, "ppl: loss and bits per byte over a text", NULL},
    {"data.path",     OPT_STRING, AT(path),      "",  0, 0, NULL, "file, folder or synth; empty = the data of the run that made the model", NULL},
    {"data.format",   OPT_STRING, AT(format),    "",  0, 0, NULL, "auto, file, blocks, eot, jsonl, lines", NULL},
    {"data.text_key", OPT_STRING, AT(text_key),  "",  0, 0, NULL, "key of the text in JSON lines", NULL},
    {"data.max_bytes", OPT_INT,   AT(max_bytes), "0", 0, 1e15, NULL, "bytes of text to read; 0 = as the run", NULL},
    {"data.docs",     OPT_INT,    AT(docs),      "0", 0, 1e9, NULL, "documents to read; 0 = as the run", NULL},
    {"data.val_fraction", OPT_REAL, AT(val_fraction), "0", 0, 0.5, NULL, "share of documents held out; 0 = as the run", NULL},
    {"seed",          OPT_INT,    AT(seed),      "-1", -1, 1e15, NULL, "of synthetic stories and of routing by lot; -1 = as the run (data.path=synth: unseen stories)", NULL},
    {"split",         OPT_ENUM,   AT(split),     "auto", 0, 0, "auto|val|train|all", "auto: val of the run's data, all of other data", NULL},
    {"tokens",        OPT_INT,    AT(tokens),    "0", 0, 1e12, NULL, "at most so many, in whole windows; 0 = as the run's final validation", NULL},
    {"batch",         OPT_INT,    AT(batch),     "8", 1, 4096, NULL, "windows at a time", NULL},
    {"seq",           OPT_INT,    AT(seq),       "0", 0, 1 << 20, NULL, "tokens of a window; 0 = as the run", NULL},
    {"routing",       OPT_ENUM,   AT(routing),   "causal", 0, 0, "causal|topk|dense", "decisions of use; of the top-k training form; everything runs", NULL},
    {"threshold_offset", OPT_REAL, AT(threshold_offset), "0", -100, 100, NULL, "added to every threshold (what-if), in standard deviations of the signal", NULL},
    {"time_rounds",   OPT_INT,    AT(time_rounds), "5", 0, 1000, NULL, "rounds of the timing against the dense model; 0 = not timed", NULL},
    {"threads",       OPT_INT,    AT(threads),   "0", 0, 4096, NULL, "0 = what affinity and quota allow", NULL},
    NUMBER_OPTS(AT(numbers)),
    // clang-format on
};
const struct opt_group ppl_group = {
    .prefix = "", .title = "evaluation", .opts = ppl_opts, .n = DS_LEN(ppl_opts)};
const char *const ppl_routing_name[] = {"causal", "topk", "dense"};

static int64_t run_int(const struct subject *s, const char *key, int64_t otherwise)
{
    return strtoll(subject_key(s, key, ""), NULL, 10) > 0
               ? strtoll(subject_key(s, key, ""), NULL, 10)
               : otherwise;
}

static const char *or_run(const struct subject *s, const char *own, const char *key,
                          const char *otherwise)
{
    return own[0] ? own : subject_key(s, key, otherwise);
}

static int open_corpus(struct corpus **c, const struct subject *s, const struct ppl_options *o,
                       int own_data, struct err *e)
{
    struct corpus_options co = {
        .path = own_data ? o->path : subject_key(s, "data.path", "synth"),
        .format = own_data ? (o->format[0] ? o->format : NULL)
                           : or_run(s, o->format, "data.format", NULL),
        .text_key = own_data ? (o->text_key[0] ? o->text_key : NULL)
                             : or_run(s, o->text_key, "data.text_key", NULL),
        .max_bytes =
            (uint64_t)(o->max_bytes || own_data ? o->max_bytes : run_int(s, "data.max_bytes", 0)),
        .max_docs = o->docs || own_data ? o->docs : run_int(s, "data.docs", 0),
        .seed = (uint64_t)(o->seed >= 0 ? o->seed
                           : own_data   ? STORY_SEED_FRESH
                                        : STORY_SEED_RUN),
    };
    return corpus_open(c, &co, e);
}

/* The corpus and the split of it, as a stream of windows. */
static int open_data(struct loader **l, struct corpus **c, struct ppl_result *r,
                     const struct subject *s, const struct ppl_options *o, struct err *e)
{
    int own_data = o->path[0] != '\0', split = o->split;
    if (!own_data && s->run.n == 0)
        return err_set(e, DS_EUSAGE,
                       "%s is not part of a run with a config.yaml: say data.path=FILE (or synth)",
                       s->dir);
    if (split == PPL_SPLIT_AUTO)
        split = own_data && o->val_fraction == 0 ? PPL_SPLIT_ALL : PPL_SPLIT_VAL;
    double fraction = o->val_fraction > 0 ? o->val_fraction
                      : own_data          ? 0.1
                                 : strtod(subject_key(s, "data.val_fraction", "0.1"), NULL);
    if (split == PPL_SPLIT_ALL)
        fraction = 0;
    else if (!(fraction > 0 && fraction <= 0.5))
        return err_set(e, DS_ERANGE,
                       "data.val_fraction=%g: a validation split needs more than 0 and at most 0.5",
                       fraction);
    r->seq = o->seq ? o->seq : run_int(s, "train.seq", SEQ_OTHERWISE);
    if (r->seq > s->model->config.max_seq) {
        if (o->seq)
            return err_set(e, DS_ERANGE, "seq=%lld: the model's context holds %lld tokens",
                           (long long)o->seq, (long long)s->model->config.max_seq);
        r->seq = s->model->config.max_seq;
    }
    int rc = open_corpus(c, s, o, own_data, e);
    if (rc == 0)
        rc = loader_open(l, *c, s->tokenizer, split == PPL_SPLIT_VAL, fraction, (int)r->seq,
                         (int)s->model->config.vocab, 0, e);
    snprintf(r->data, sizeof r->data, "%.200s%s",
             own_data ? o->path : subject_key(s, "data.path", "synth"),
             split == PPL_SPLIT_VAL     ? ", validation split"
             : split == PPL_SPLIT_TRAIN ? ", training split"
                                        : "");
    return rc;
}

struct rows {
    int32_t *input, *target, *start;
    float *true_entropy;
};

static int rows_alloc(struct rows *x, size_t n, struct err *e)
{
    x->input = mem_alloc(n, sizeof *x->input);
    x->target = mem_alloc(n, sizeof *x->target);
    x->start = mem_alloc(n, sizeof *x->start);
    x->true_entropy = mem_alloc(n, sizeof *x->true_entropy);
    return x->input && x->target && x->start && x->true_entropy
               ? 0
               : err_set(e, DS_EMEM, "a batch of %zu tokens", n);
}

static void rows_free(struct rows *x)
{
    mem_free(x->input);
    mem_free(x->target);
    mem_free(x->start);
    mem_free(x->true_entropy);
}

/* Returns how many tokens the last batch left in x->input, windows end to end. */
static int measure_windows(struct ppl_result *r, struct subject *s, struct loader *l,
                           const struct ppl_options *o, struct rows *x, uint64_t seed)
{
    struct loader_pos pos = {0};
    int last = 0;
    for (int64_t done = 0; done < r->windows;) {
        int B = (int)(r->windows - done < r->batch ? r->windows - done : r->batch);
        struct batch b = {
            .B = B, .T = (int)r->seq, .id = x->input, .target = x->target, .doc_start = x->start};
        struct pass pass = {.kind = o->routing == PPL_DENSE ? PASS_DENSE : PASS_SPARSE,
                            .offset = o->threshold_offset,
                            .seed = seed,
                            .record = 1};
        size_t n = (size_t)B * (size_t)r->seq;
        loader_next(l, &pos, B, x->input, x->target, x->start, x->true_entropy);
        model_forward(s->model, &b, &pass);
        model_loss(s->model, 0, 1);
        measure_add(&r->measure, s->model, x->true_entropy, loader_target_bytes(l, x->target, n));
        done += B;
        last = (int)n;
    }
    s->model->batch = NULL;
    return last;
}

static void measure_speed(struct ppl_result *r, struct subject *s, const struct rows *x, int n,
                          int rounds, uint64_t seed)
{
    int T = n < TIME_TOKENS ? n : TIME_TOKENS;
    if (T > s->model->config.max_seq)
        T = (int)s->model->config.max_seq;
    measure_time(&r->measure, s->model, x->input, T, rounds, seed);
}

static int check_options(const struct subject *s, const struct ppl_options *o, struct err *e)
{
    const char *method = s->model->config.method;
    if (strcmp(o->task, "ppl") != 0)
        return err_set(e, DS_EUSAGE, "task=%s is unknown; there is task=ppl", o->task);
    if (o->routing == PPL_TOPK)
        return err_set(e, DS_EUSAGE,
                       "routing=topk: %s has no top-k routing, its decisions are causal in "
                       "training too (routing=causal "
                       "or dense)",
                       method);
    return 0;
}

static int run_loader(struct ppl_result *out, struct subject *s, const struct ppl_options *o,
                      struct loader *l, struct err *e)
{
    struct rows x = {0};
    int64_t tokens = o->tokens ? o->tokens : run_int(s, "train.final_tokens", TOKENS_OTHERWISE);
    int64_t have = (int64_t)loader_windows(l), want = (tokens + out->seq - 1) / out->seq;
    uint64_t seed =
        o->seed >= 0 ? (uint64_t)o->seed : strtoull(subject_key(s, "seed", "0"), NULL, 10);
    out->windows = want < have ? want : have;
    out->batch = o->batch < out->windows ? o->batch : out->windows;
    int64_t n = out->batch * out->seq, total = out->windows * out->seq;
    int rc = n > 1 << 24 ? err_set(e, DS_ERANGE, "batch x seq = %lld tokens at once", (long long)n)
                         : rows_alloc(&x, (size_t)n, e);
    if (rc == 0)
        rc = model_reserve(s->model, (int)n, 0, 0, e);
    if (rc == 0)
        rc = measure_init(&out->measure, s->model, (int)out->seq,
                          (size_t)(total < SAMPLES_MAX ? total : SAMPLES_MAX), e);
    if (rc == 0) {
        int last = measure_windows(out, s, l, o, &x, seed);
        if (o->time_rounds > 0 && o->routing == PPL_CAUSAL)
            measure_speed(out, s, &x, last, (int)o->time_rounds, seed);
        if (!(measure_loss(&out->measure) < 1e30))
            rc = err_set(e, DS_ENUMERIC, "%s: the loss is %g: the model is damaged", s->dir,
                         measure_loss(&out->measure));
    }
    rows_free(&x);
    return rc;
}

int ppl_run(struct ppl_result *out, struct subject *s, const struct ppl_options *o, struct err *e)
{
    struct corpus *c = NULL;
    struct loader *l = NULL;
    memset(out, 0, sizeof *out);
    out->task = "ppl";
    out->routing = ppl_routing_name[o->routing];
    int rc = check_options(s, o, e);
    if (rc == 0)
        rc = open_data(&l, &c, out, s, o, e);
    if (rc == 0)
        rc = run_loader(out, s, o, l, e);
    if (l)
        loader_close(l);
    if (c)
        corpus_close(c);
    if (rc < 0)
        ppl_result_release(out);
    return rc;
}

void ppl_result_release(struct ppl_result *r)
{
    measure_release(&r->measure);
}
