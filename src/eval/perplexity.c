/* Options and measurement of task=ppl: loss, controls, timing and calibration text. */
#include "eval/perplexity.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "data/corpus.h"
#include "eval/oracle.h"
#include "eval/perplexity_windows.h"

enum {
    DEFAULT_SEQ = 256,
    DEFAULT_CONTEXT = 2048, /* documents, sliding: at most this much of the context */
    DEFAULT_TOKENS = 65536,
    SAMPLES_MAX = 1 << 16,
    TIME_TOKENS = 512,
    DECODE_TOKENS = 32,
    CONTROL_TOKENS = 1 << 16, /* most tokens of the controls and the dense pass */
};
/* Runs train on the stories of seed 1; data.path=synth evaluates on stories that no run has
 * seen. */
enum { STORY_SEED_RUN = 1, STORY_SEED_FRESH = 2 };

#define AT(field) offsetof(struct ppl_options, field)
static const struct opt ppl_opts[] = {
    // clang-format off
    {"task",          OPT_STRING, AT(task),      "ppl", 0, 0, NULL, "ppl: loss and bits per byte over a text; benchmarks read from data=DIRECTORY or FILE: mmlu (or mmlu_SUBJECT), arc_challenge, arc_easy, gsm8k, gsm8k_cot, hellaswag, piqa, lambada_openai, wikitext", NULL},
    {"shots",         OPT_INT,    AT(shots),     "-1", -1, 256, NULL, "tasks: few-shot examples in the prompt; -1 = the task's default", NULL},
    {"limit",         OPT_INT,    AT(limit),     "0", 0, 1e9, NULL, "tasks: most documents per subject; 0 = all", NULL},
    {"max_gen",       OPT_INT,    AT(max_gen),   "256", 1, 1 << 20, NULL, "tasks: most tokens of a generated answer", NULL},
    {"results",       OPT_STRING, AT(results),   "", 0, 0, NULL, "tasks: FILE that results are appended to; documents already in it are not evaluated again", NULL},
    {"data.path",     OPT_STRING, AT(path),      "",  0, 0, NULL, "file, directory, synth or hops; empty = the data of the model's run", "data"},
    {"data.format",   OPT_STRING, AT(format),    "",  0, 0, NULL, "auto, file, blocks, eot, jsonl, lines, tokens", NULL},
    {"data.text_key", OPT_STRING, AT(text_key),  "",  0, 0, NULL, "key of the text in JSON Lines records", NULL},
    {"data.max_bytes", OPT_INT,   AT(max_bytes), "0", 0, 1e15, NULL, "most bytes of text to read; 0 = as in the run", NULL},
    {"data.docs",     OPT_INT,    AT(docs),      "0", 0, 1e9, NULL, "most documents to read; 0 = as in the run", NULL},
    {"data.val_fraction", OPT_REAL, AT(val_fraction), "0", 0, 0.5, NULL, "fraction of documents held out for validation; 0 = as in the run", NULL},
    {"data.loss",     OPT_ENUM,   AT(loss),      "auto", 0, 0, "auto|all|answers", "tokens that count; auto: as in the run", NULL},
    {"seed",          OPT_INT,    AT(seed),      "-1", -1, 1e15, NULL, "random seed of generated documents and random routing; -1 = as in the run (data.path=synth or hops: unseen documents)", NULL},
    {"split",         OPT_ENUM,   AT(split),     "auto", 0, 0, "auto|val|train|all", "auto: val for the run's data, all for other data", NULL},
    {"tokens",        OPT_INT,    AT(tokens),    "0", 0, 1e12, NULL, "tokens to score, rounded up to whole windows; 0 = as in the run's final validation (documents, sliding: all that were read)", NULL},
    {"batch",         OPT_INT,    AT(batch),     "8", 1, 4096, NULL, "windows per batch", NULL},
    {"seq",           OPT_INT,    AT(seq),       "0", 0, 1 << 20, NULL, "tokens per window; 0 = as in the run, else 256 (documents, sliding: the model's context, at most 2048)", NULL},
    {"windows",       OPT_ENUM,   AT(windows),   "packed", 0, 0, "packed|documents|sliding", "task=ppl: packed: one stream of documents cut into windows; documents: each document alone, truncated after seq tokens; sliding: all of each document in overlapping windows", NULL},
    {"stride",        OPT_INT,    AT(stride),    "0", 0, 1 << 20, NULL, "windows=sliding: tokens scored per window, each after at least seq - stride others; 0 = half of seq", NULL},
    {"routing",       OPT_ENUM,   AT(routing),   "causal", 0, 0, "causal|topk|dense|oracle", "causal: inference-time decisions; topk: the top-k training form; dense: all cells; oracle: each token leaves where its loss plus a price per layer is least, at the capacity (not causal)", NULL},
    {"threshold_offset", OPT_REAL, AT(threshold_offset), "0", -100, 100, NULL, "offset added to every threshold (what-if), in standard deviations of the signal", NULL},
    {"capacity",      OPT_REAL,   AT(capacity),  "-1", 0, 0, NULL, "requested share of the routed cells, 0 to 1; -1 = what calibrate risk= stored, else the method's own", NULL},
    {"exit.layer",    OPT_STRING, AT(exit_layer), "0", 0, 0, NULL, "task=ppl: run the first E layers, then the head; 0 = all; 2..16: a table over exits", NULL},
    {"capacities",    OPT_STRING, AT(capacities), "0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1", 0, 0, NULL, "capacities of the rows of --benchmark", NULL, .is_list = 1},
    {"risk",          OPT_REAL,   AT(risk),      "0", 0, 0, NULL, "calibrate: stores the least capacity whose expected loss per token of a sequence rises by at most this many nats over dense, tested on text that no threshold was fitted to; above 0, below 1", NULL},
    {"delta",         OPT_REAL,   AT(delta),     "0.05", 0, 0, NULL, "calibrate risk=: probability that the text misleads the test; above 0, below 1", NULL},
    {"target_speedup", OPT_REAL,  AT(target_speedup), "0", 0, 1e6, NULL, "search for the capacity with this speedup over dense; 0 = off", NULL},
    {"speedup_by",    OPT_ENUM,   AT(speedup_by), "flops", 0, 0, "flops|time", "measure of target_speedup: FLOPs of the whole model, or prefill time", NULL},
    {"controls",      OPT_BOOL,   AT(controls),  "true", 0, 0, NULL, "also evaluate the controls at the same rates, dense, and top-k if the method has it", NULL},
    {"time_rounds",   OPT_INT,    AT(time_rounds), "5", 0, 1000, NULL, "timing rounds against the dense model; 0 = not timed", NULL},
    {"threads",       OPT_INT,    AT(threads),   "0", 0, 4096, NULL, "worker threads; 0 = as many as CPU affinity and quota allow", NULL},
    NUMERIC_OPTS(AT(numbers)),
    // clang-format on
};
const struct opt_group ppl_group = {
    .prefix = "", .title = "evaluation", .opts = ppl_opts, .n = DS_LEN(ppl_opts)};
const char *const ppl_routing_name[] = {"causal", "topk", "dense", "oracle"};

static int64_t run_int(const struct subject *s, const char *key, int64_t fallback)
{
    return strtoll(subject_key(s, key, ""), NULL, 10) > 0
               ? strtoll(subject_key(s, key, ""), NULL, 10)
               : fallback;
}

static const char *or_setting(const struct subject *s, const char *own, const char *key,
                              const char *fallback)
{
    return own[0] ? own : subject_key(s, key, fallback);
}

/* Documents of hops are words that must be tokens; the run's own are. */
static int check_words(const struct subject *s, const struct hops_options *o, struct err *e)
{
    struct map have = {0};
    struct str word = {0};
    int64_t id = 0, n = hops_words(o);
    int rc = 0;
    for (int k = 0; k < tokenizer_vocab(s->tokenizer) && rc == 0; k++) {
        size_t len = 0;
        const char *piece = tokenizer_piece(s->tokenizer, k, &len);
        rc = piece ? map_set(&have, piece, len, k) : 0;
    }
    for (int64_t i = 0; i < n && rc == 0; i++) {
        str_reset(&word);
        hops_word(o, i, &word);
        rc = word.failed ? DS_EMEM : map_get(&have, str_text(&word), word.len, &id) ? 0 : DS_EUSAGE;
    }
    if (rc == DS_EUSAGE)
        err_set(e, rc,
                "hops.n=%lld hops.relations=%lld hops.k=%lld: \"%s\" is not a token of the model, "
                "which knows the words of the hops it was trained with",
                (long long)o->n, (long long)o->relations, (long long)o->k, str_text(&word));
    else if (rc < 0)
        err_set(e, rc, "out of memory for %lld words", (long long)n);
    map_release(&have);
    str_release(&word);
    return rc;
}

static int open_corpus(struct corpus **c, const struct subject *s, const struct ppl_options *o,
                       int own_data, struct err *e)
{
    struct hops_options hops = {0};
    struct corpus_options co = {
        .path = own_data ? o->path : subject_key(s, "data.path", "synth"),
        .format = own_data ? (o->format[0] ? o->format : NULL)
                           : or_setting(s, o->format, "data.format", NULL),
        .text_key = own_data ? (o->text_key[0] ? o->text_key : NULL)
                             : or_setting(s, o->text_key, "data.text_key", NULL),
        .max_bytes =
            (uint64_t)(o->max_bytes || own_data ? o->max_bytes : run_int(s, "data.max_bytes", 0)),
        .max_docs = o->docs || own_data ? o->docs : run_int(s, "data.docs", 0),
        .seed = (uint64_t)(o->seed >= 0 ? o->seed
                           : own_data   ? STORY_SEED_FRESH
                                        : STORY_SEED_RUN),
        .hops = &hops,
    };
    int rc = opt_defaults(&hops_group, &hops, e);
    for (size_t i = 0; i < hops_group.n && rc == 0; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s%s", hops_group.prefix, hops_group.opts[i].key);
        const char *text = subject_key(s, key, "");
        if (text[0])
            rc = opt_set(&hops_group.opts[i], &hops, text, "config.yaml of the run", e);
    }
    if (rc == 0 && strcmp(co.path, "hops") == 0 && (rc = hops_check(&hops, e)) == 0)
        rc = check_words(s, &hops, e);
    return rc < 0 ? rc : corpus_open(c, &co, e);
}

/* Chooses the tokens per window, and those that a sliding window scores. */
static int choose_seq(struct ppl_result *r, const struct subject *s, const struct ppl_options *o,
                      struct err *e)
{
    int64_t context = s->model->config.max_seq;
    int64_t fallback = o->windows == WINDOWS_PACKED ? DEFAULT_SEQ : DEFAULT_CONTEXT;
    if (o->seq > context)
        return err_set(e, DS_ERANGE, "seq=%lld: must be at most %lld, the model's context",
                       (long long)o->seq, (long long)context);
    r->seq = o->seq ? o->seq : run_int(s, "train.seq", fallback);
    r->seq = r->seq < context ? r->seq : context;
    if (o->stride && o->windows != WINDOWS_SLIDING)
        return err_set(e, DS_EUSAGE, "stride needs windows=sliding, not windows=%s",
                       windows_name[o->windows]);
    r->stride = o->windows != WINDOWS_SLIDING ? 0 : o->stride ? o->stride : (r->seq + 1) / 2;
    if (r->stride > r->seq)
        return err_set(e, DS_ERANGE, "stride=%lld: must be at most %lld, the tokens per window",
                       (long long)r->stride, (long long)r->seq);
    return 0;
}

static int choose_split(int *is_val, double *fraction, const struct subject *s,
                        const struct ppl_options *o, struct err *e)
{
    int own_data = o->path[0] != '\0', split = o->split;
    if (split == PPL_SPLIT_AUTO)
        split = own_data && o->val_fraction == 0 ? PPL_SPLIT_ALL : PPL_SPLIT_VAL;
    *fraction = o->val_fraction > 0 ? o->val_fraction
                : own_data          ? 0.1
                                    : strtod(subject_key(s, "data.val_fraction", "0.1"), NULL);
    *is_val = split == PPL_SPLIT_VAL;
    if (split == PPL_SPLIT_ALL)
        *fraction = 0;
    else if (!(*fraction >= 0 && *fraction <= 0.5))
        return err_set(e, DS_ERANGE, "data.val_fraction=%g: must be between 0 and 0.5", *fraction);
    else if (*is_val && *fraction == 0)
        return err_set(e, DS_ERANGE,
                       "data.val_fraction=0: the run has no validation split; use split=train");
    return 0;
}

int ppl_lacks_val(const struct subject *s, const struct ppl_options *o)
{
    int is_val;
    double fraction;
    return o->split == PPL_SPLIT_AUTO && choose_split(&is_val, &fraction, s, o, NULL) < 0;
}

/* Opens the corpus and splits it into windows. */
static int open_data(struct windows **w, struct ppl_result *r, const struct subject *s,
                     const struct ppl_options *o, struct err *e)
{
    struct corpus *c = NULL;
    int own_data = o->path[0] != '\0';
    struct windows_spec spec = {.kind = o->windows, .vocab = (int)s->model->config.vocab};
    if (!own_data && s->run.n == 0)
        return err_set(e, DS_EUSAGE,
                       "%s: not part of a run with a config.yaml; set data.path=FILE (or synth)",
                       s->dir);
    int rc = choose_split(&spec.is_val, &spec.val_fraction, s, o, e);
    if (rc == 0)
        rc = choose_seq(r, s, o, e);
    if (rc == 0)
        rc = open_corpus(&c, s, o, own_data, e);
    spec.seq = (int)r->seq;
    spec.stride = (int)r->stride;
    spec.answers_only = o->loss == PPL_LOSS_ANSWERS || s->model->out_id ||
                        (o->loss == PPL_LOSS_AUTO && !own_data &&
                         strcmp(subject_key(s, "data.loss", "all"), "answers") == 0);
    if (rc == 0)
        rc = windows_open(w, c, s->tokenizer, &spec, e);
    if (rc == 0 && windows_has_private(*w))
        rc = model_config_check_private(&s->model->config, e);
    corpus_close(c);
    r->kind = windows_name[o->windows];
    snprintf(r->data, sizeof r->data, "%.200s%s",
             own_data ? o->path : subject_key(s, "data.path", "synth"),
             spec.is_val             ? ", validation split"
             : spec.val_fraction > 0 ? ", training split"
                                     : "");
    return rc;
}

/* ---- measurement ---- */

struct ppl {
    struct subject *s;
    const struct ppl_options *o;
    struct windows *windows;
    struct windows_rows rows;
    struct ppl_result about; /* data, batch, seq, windows */
    struct loader_pos pos;
    uint64_t first; /* window that ppl_batch begins at */
    uint64_t seed;
    int is_scored, exit;
};

/* Position of a sweep over the windows. */
struct sweep {
    struct ppl *p;
    struct loader_pos pos;
    int64_t done, want;
    struct batch b;
    uint64_t bytes; /* of text that b predicts */
};

/* Loads the next batch and returns its tokens; 0 at the end. */
static int sweep_next(struct sweep *w)
{
    struct ppl *p = w->p;
    int64_t left = w->want - w->done;
    int B = (int)(left < p->about.batch ? left : p->about.batch);
    if (B <= 0)
        return 0;
    w->bytes = windows_next(p->windows, &w->pos, B, &p->rows, &w->b);
    w->done += B;
    return w->b.B * w->b.T;
}

int ppl_exits(int *first, int *last, const struct ppl_options *o, const struct subject *s,
              struct err *e)
{
    const char *text = o->exit_layer && o->exit_layer[0] ? o->exit_layer : "0";
    char *end;
    long a = text[0] >= '0' && text[0] <= '9' ? strtol(text, &end, 10) : -1, b = a;
    if (a >= 0 && strncmp(end, "..", 2) == 0 && end[2] >= '0' && end[2] <= '9')
        b = strtol(end + 2, &end, 10);
    if (a < 0 || *end || b < a || (a == 0 && b > 0))
        return err_set(e, DS_EUSAGE,
                       "exit.layer=%s: expected a number of layers, or a range such as 2..16",
                       text);
    int rc = model_check_exit(s->model, b, e);
    *first = (int)a;
    *last = (int)b;
    return rc;
}

static struct pass inference_pass(const struct ppl *p, double capacity)
{
    int given = !isnan(capacity) && p->o->routing != PPL_ORACLE;
    return (struct pass){.kind = p->o->routing == PPL_DENSE ? PASS_DENSE : PASS_SPARSE,
                         .inference.topk = p->o->routing == PPL_TOPK,
                         .inference.offset = p->o->threshold_offset,
                         .inference.exit = p->exit,
                         .inference.has_capacity = given,
                         .inference.capacity = given ? capacity : 0,
                         .seed = p->seed};
}

/* Reads the whole text densely first, then knows where to leave. */
static int consult_oracle(struct oracle *x, struct ppl *p, int64_t windows, double capacity,
                          struct err *e)
{
    struct sweep w = {.p = p, .want = windows};
    int rc = 0;
    while (rc == 0 && sweep_next(&w) > 0)
        rc = oracle_add(x, p->s->model, &w.b, e);
    if (rc == 0)
        oracle_solve(x, isnan(capacity) ? 1 : capacity);
    return rc;
}

/* Evaluates each batch with inference-time decisions and with top-k.  *last: tokens of the last
 * batch in rows.input. */
static int measure_windows(struct ppl_result *r, struct ppl *p, const struct pass *pass,
                           const struct ppl_request *want, int *last, struct err *e)
{
    struct model *m = p->s->model;
    struct sweep w = {.p = p, .want = r->windows};
    struct oracle oracle;
    int is_oracle = p->o->routing == PPL_ORACLE, rc = 0;
    oracle_init(&oracle, m);
    if (is_oracle)
        rc = consult_oracle(&oracle, p, r->windows, r->capacity, e);
    r->measure.is_topk |= is_oracle;
    for (int n; rc == 0 && (n = sweep_next(&w)) > 0;) {
        struct pass recorded = *pass;
        recorded.record = 1;
        if (is_oracle && (rc = oracle_next(&oracle, m, &w.b, &recorded, e)) < 0)
            break;
        model_forward(m, &w.b, &recorded);
        model_loss(m, 0, 1);
        rc = measure_add(&r->measure, m, &p->rows.known, w.bytes, e);
        if (rc == 0 &&
            (want->is_whole || r->measure.contrast.sum[CONTRAST_CAUSAL].tokens < CONTROL_TOKENS))
            contrast_add(&r->measure.contrast, CONTRAST_CAUSAL, m);
        if (rc == 0 && want->topk && pass->kind == PASS_SPARSE && !pass->inference.topk)
            rc = measure_contrast(&r->measure, m, CONTRAST_TOPK, &w.b, pass, (uint64_t)w.done, e);
        m->batch = NULL;
        m->route.pass.inference.force = m->route.pass.inference.force_attention =
            NULL; /* the oracle's */
        *last = n;
    }
    oracle_release(&oracle);
    return rc < 0 ? rc : windows_check(p->windows, e);
}

static int measure_controls(struct ppl_result *r, struct ppl *p, const struct pass *pass,
                            const struct ppl_request *want, struct err *e)
{
    const int wanted[CONTRAST_KINDS] = {[CONTRAST_RANDOM] = want->controls > 0,
                                        [CONTRAST_STATIC] = want->controls > 1,
                                        [CONTRAST_DENSE] = want->dense};
    int64_t seen = (int64_t)r->measure.contrast.sum[CONTRAST_CAUSAL].batches * r->batch;
    struct sweep w = {.p = p, .want = seen < r->windows ? seen : r->windows};
    int rc = 0;
    if (pass->kind == PASS_DENSE || !r->measure.is_gated || !(want->controls || want->dense))
        return 0;
    while (rc == 0 && sweep_next(&w) > 0)
        for (int k = CONTRAST_RANDOM; k < CONTRAST_KINDS && rc == 0; k++)
            if (wanted[k])
                rc = measure_contrast(&r->measure, p->s->model, (enum contrast_kind)k, &w.b, pass,
                                      (uint64_t)w.done, e);
    return rc;
}

static int measure_speed(struct ppl_result *r, struct ppl *p, const struct pass *pass,
                         const struct ppl_request *want, int n, struct err *e)
{
    struct model *m = p->s->model;
    int T = n < TIME_TOKENS ? n : TIME_TOKENS;
    int is_all = pass->kind == PASS_DENSE && !pass->inference.exit;
    if (is_all || pass->inference.topk || p->o->routing == PPL_ORACLE)
        return 0;
    if (T > m->config.max_seq)
        T = (int)m->config.max_seq;
    int made = T / 2 < DECODE_TOKENS ? (T + 1) / 2 : DECODE_TOKENS;
    int rc = measure_time(&r->measure, m, p->rows.r.input, T, want->prefill_rounds, pass, e);
    if (rc == 0)
        rc = measure_decode(&r->measure, m, p->rows.r.input, T - made, T, want->decode_rounds,
                            pass, e);
    struct sweep w = {.p = p, .want = r->windows};
    if (rc == 0 && want->prefill_rounds > 0 && sweep_next(&w) > 0)
        rc = measure_batch_time(&r->measure, m, &w.b, want->prefill_rounds, pass, e);
    return rc;
}

int ppl_measure(struct ppl_result *out, struct ppl *p, const struct ppl_request *w, struct err *e)
{
    struct ppl_result r = p->about;
    struct pass pass = inference_pass(p, w->capacity);
    if (w->exit > 0)
        pass.inference.exit = w->exit;
    int64_t some = windows_for(p->windows, w->tokens);
    int last = 0;
    if (w->tokens > 0 && some < r.windows)
        r.windows = some;
    r.capacity = w->capacity;
    if (isnan(r.capacity) && pass.kind == PASS_SPARSE && p->s->model->route.capacity >= 0)
        r.capacity = p->s->model->route.capacity;
    r.exit = pass.inference.exit;
    int rc = route_ready(&p->s->model->route, &pass, e);
    if (rc < 0)
        return rc;
    int64_t total = windows_tokens(p->windows, 0, r.windows);
    rc = measure_init(&r.measure, p->s->model, (int)r.seq,
                      (size_t)(total < SAMPLES_MAX ? total : SAMPLES_MAX), e);
    if (rc < 0)
        return rc;
    rc = measure_windows(&r, p, &pass, w, &last, e);
    if (rc == 0 && r.measure.tokens == 0)
        rc = err_set(e, DS_ERANGE,
                     "the first %lld windows have no answers (data.loss=answers); raise tokens",
                     (long long)r.windows);
    if (rc == 0 && !(measure_loss(&r.measure) < 1e30))
        rc = err_set(e, DS_ENUMERIC, "%s: loss is %g: corrupt model weights", p->s->dir,
                     measure_loss(&r.measure));
    if (rc == 0) /* before the controls, whose last batch may be shorter */
        rc = measure_speed(&r, p, &pass, w, last, e);
    if (rc == 0)
        rc = measure_controls(&r, p, &pass, w, e);
    if (rc < 0)
        ppl_result_release(&r);
    else
        *out = r;
    return rc;
}

void ppl_batch(void *ctx, int k, struct batch *b)
{
    struct ppl *p = ctx;
    struct sweep w = {.p = p, .pos = p->pos, .want = INT64_MAX};
    if (k == 0)
        w.pos = (struct loader_pos){.window = p->first};
    sweep_next(&w);
    p->pos = w.pos;
    *b = w.b;
}

int ppl_batches(const struct ppl *p)
{
    return (int)((p->about.windows + p->about.batch - 1) / p->about.batch);
}

int ppl_is_scored(const struct ppl *p)
{
    return p->is_scored;
}

/* Windows that the final evaluation of the run scores. */
static int64_t scored_windows(const struct ppl *p)
{
    int64_t own = run_int(p->s, "train.seq", DEFAULT_SEQ), seq = p->about.seq;
    int64_t tokens = run_int(p->s, "train.final_tokens", DEFAULT_TOKENS);
    int64_t scored = (tokens + own - 1) / own * own;
    return (scored + seq - 1) / seq;
}

int ppl_skip_scored(struct ppl *p)
{
    int64_t first = scored_windows(p), used = (int64_t)ppl_batches(p) * p->about.batch;
    if (first + used > windows_count(p->windows))
        return 0;
    p->first = (uint64_t)first;
    return 1;
}

int ppl_skip_to_rest(struct ppl *p, int64_t least)
{
    int64_t first = scored_windows(p), left = windows_count(p->windows) - first;
    if (left < least)
        return 0;
    p->first = (uint64_t)first;
    p->about.windows = p->about.windows < left ? p->about.windows : left;
    return 1;
}

struct ppl_text ppl_text(const struct ppl *p)
{
    return (struct ppl_text){.model = p->s->model,
                             .windows = p->about.windows,
                             .seq = p->about.seq,
                             .batch = p->o->batch};
}

int ppl_window_losses(struct ppl *p, int64_t from, int64_t n, double capacity, double *nll,
                      struct err *e)
{
    struct model *m = p->s->model;
    struct sweep w = {.p = p, .pos = {.window = p->first + (uint64_t)from}, .want = n};
    struct pass pass = {.kind = isnan(capacity) ? PASS_DENSE : PASS_SPARSE,
                        .inference.has_capacity = !isnan(capacity),
                        .inference.capacity = isnan(capacity) ? 0 : capacity,
                        .seed = p->seed};
    BUG_IF(p->o->windows != WINDOWS_PACKED, "losses of windows=%s", windows_name[p->o->windows]);
    int rc = route_ready(&m->route, &pass, e);
    for (int64_t at = 0; rc == 0 && sweep_next(&w) > 0; at = w.done) {
        model_forward(m, &w.b, &pass);
        model_loss(m, 0, 0);
        for (int b = 0; b < w.b.B && rc == 0; b++) {
            double sum = 0, tokens = 0;
            for (int i = b * w.b.T; i < (b + 1) * w.b.T; i++) {
                if (w.b.target[i] < 0)
                    continue;
                sum += (double)m->nll[i];
                tokens++;
            }
            nll[at + b] = sum / tokens;
            if (pass.kind == PASS_DENSE && tokens > 0 && !(fabs(sum) < 1e30))
                rc = err_set(e, DS_ENUMERIC, "%s: loss is %g: corrupt model weights", p->s->dir,
                             sum / tokens);
        }
        m->batch = NULL;
    }
    return rc < 0 ? rc : windows_check(p->windows, e);
}

uint64_t ppl_seed(const struct ppl *p)
{
    return p->seed;
}

int64_t ppl_tokens(const struct ppl *p)
{
    return windows_tokens(p->windows, (int64_t)p->first, ppl_batches(p) * p->about.batch);
}

const char *ppl_data(const struct ppl *p)
{
    return p->about.data;
}

static int check_options(const struct ppl_options *o, struct err *e)
{
    if (o->routing == PPL_ORACLE && o->capacity != -1 && !(o->capacity >= 0 && o->capacity <= 1))
        return err_set(e, DS_ERANGE, "capacity=%g: must be between 0 and 1", o->capacity);
    if (strcmp(o->task, "ppl") != 0)
        return err_set(e, DS_EUSAGE, "unknown task=%s; expected task=ppl", o->task);
    return 0;
}

/* Computes the number of windows and allocates a batch. */
static int size_up(struct ppl *p, struct err *e)
{
    const struct ppl_options *o = p->o;
    struct ppl_result *r = &p->about;
    int64_t tokens = o->tokens ? o->tokens
                     : o->windows == WINDOWS_PACKED
                         ? run_int(p->s, "train.final_tokens", DEFAULT_TOKENS)
                         : INT64_MAX;
    int by_rank =
        p->s->model->route.ops->flags & ROUTE_TOPK; /* top-k ranks within a row of the batch */
    p->seed = o->seed >= 0 ? (uint64_t)o->seed : subject_seed(p->s);
    r->windows = windows_for(p->windows, tokens);
    r->batch = o->windows != WINDOWS_PACKED && by_rank ? 1
               : o->batch < r->windows                 ? o->batch
                                                       : r->windows;
    int64_t n = r->batch * r->seq;
    int rc = n > 1 << 24
                 ? err_set(e, DS_ERANGE, "batch x seq = %lld tokens: must be at most 16,777,216",
                           (long long)n)
                 : windows_rows_new(&p->rows, (size_t)n, e);
    return rc == 0 ? model_reserve(p->s->model, (int)n, 0, 0, e) : rc;
}

int ppl_open(struct ppl **out, struct subject *s, const struct ppl_options *o, struct err *e)
{
    struct ppl *p = mem_alloc(1, sizeof *p);
    if (!p)
        return err_set(e, DS_EMEM, "out of memory for the evaluation");
    p->s = s;
    p->o = o;
    p->about.task = "ppl";
    p->about.routing = ppl_routing_name[o->routing];
    struct pass pass = inference_pass(p, o->capacity == -1 ? (double)NAN : o->capacity);
    int last, rc = check_options(o, e);
    if (rc == 0)
        rc = ppl_exits(&p->exit, &last, o, s, e);
    if (rc == 0) /* before any text is read */
        rc = route_ready(&s->model->route, &pass, e);
    if (rc == 0)
        rc = open_data(&p->windows, &p->about, s, o, e);
    if (rc == 0)
        rc = size_up(p, e);
    p->is_scored = !o->path[0] && (o->split == PPL_SPLIT_AUTO || o->split == PPL_SPLIT_VAL);
    if (rc < 0)
        ppl_close(p);
    else
        *out = p;
    return rc;
}

void ppl_close(struct ppl *p)
{
    if (!p)
        return;
    windows_close(p->windows);
    windows_rows_free(&p->rows);
    mem_free(p);
}

int ppl_run(struct ppl_result *out, struct subject *s, const struct ppl_options *o, struct err *e)
{
    struct ppl *p = NULL;
    struct ppl_request w = {.capacity = o->capacity == -1 ? (double)NAN : o->capacity,
                            .topk = o->controls,
                            .controls = o->controls ? 2 : 0,
                            .dense = o->controls,
                            .prefill_rounds = (int)o->time_rounds,
                            .decode_rounds = (int)o->time_rounds};
    memset(out, 0, sizeof *out);
    int rc = ppl_open(&p, s, o, e);
    if (rc == 0)
        rc = ppl_measure(out, p, &w, e);
    ppl_close(p);
    return rc;
}

void ppl_result_release(struct ppl_result *r)
{
    measure_release(&r->measure);
}
