/* Validation with causal inference-time decisions and real skipping; at the end also timing and
 * controls.  Several ranks divide the batches of the text, add up in the order of the text what they
 * give, and measure the same bits as one; seconds are measured on rank 0. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/ranks.h"
#include "models/exits.h"
#include "training/team.h"
#include "training/trainer.h"

enum {
    PREFILL_TOKENS = 512,
    DECODE_TOKENS = 32,
    CONTROL_TOKENS = 1 << 16,   /* most tokens of the controls and the dense pass */
    CALIBRATE_TOKENS = 1 << 14, /* at each capacity of the grid */
    CALIBRATE_BATCHES_MIN = 2,
    CALIBRATE_BATCHES_MAX = 16,
};

/* Iterates over the windows of a split in batches; by default over the validation split from its
 * start.  Shared by `parts` ranks, which take turns: a round is a batch of each. */
struct walk {
    struct trainer *t;
    struct loader *text;
    struct loader_pos pos;
    uint64_t done, want;
    int part, parts, active; /* active: ranks 0..active - 1 have a batch of the current round */
    struct batch b;
};

static struct walk walk_begin(struct trainer *t, int64_t tokens)
{
    int64_t seq = t->config.train.seq;
    struct walk w = {.t = t,
                     .text = t->val,
                     .want = (uint64_t)((tokens + seq - 1) / seq),
                     .parts = 1};
    if (w.want > loader_windows(t->val))
        w.want = loader_windows(t->val);
    return w;
}

static struct walk walk_shared(struct trainer *t, int64_t tokens)
{
    struct walk w = walk_begin(t, tokens);
    w.part = ranks_rank();
    w.parts = ranks_size();
    return w;
}

/* Windows of the next batch. */
static int walk_windows(const struct walk *w)
{
    uint64_t left = w->want - w->done, batch = (uint64_t)w->t->config.train.batch;
    return (int)(left < batch ? left : batch);
}

/* Of a validation split, which is in order. */
static int walk_skip(struct walk *w)
{
    int n = walk_windows(w);
    w->pos.window += (uint64_t)n;
    w->done += (uint64_t)n;
    return n > 0;
}

/* Advances to the next batch; 0 at the end. */
static int walk_next(struct walk *w)
{
    struct trainer *t = w->t;
    int n = walk_windows(w);
    if (n == 0)
        return 0;
    loader_read(w->text, &w->pos, n,
                &(struct loader_rows){.input = t->input,
                                      .target = t->target,
                                      .doc_start = t->doc_start,
                                      .private_start = t->private_start,
                                      .true_entropy = t->true_entropy,
                                      .needed = t->needed,
                                      .class_of = t->class_of,
                                      .target_class = t->target_class});
    w->b = (struct batch){.B = n,
                          .T = (int)t->config.train.seq,
                          .id = t->input,
                          .target = t->target,
                          .doc_start = t->doc_start,
                          .private_start = t->private_start};
    w->done += (uint64_t)n;
    return n;
}

/* Advances to the next round; 0 at the end.  *own: this rank has a batch, whose end is `at` windows
 * after the beginning of the text. */
static int walk_round(struct walk *w, int *own, uint64_t *at)
{
    struct walk next = *w;
    next.active = *own = 0;
    for (int r = 0; r < w->parts; r++) {
        if (r == w->part && (*own = walk_next(&next)) > 0)
            *at = next.done;
        next.active += r == w->part ? *own > 0 : walk_skip(&next);
    }
    *w = next;
    return w->active;
}

static struct pass inference_pass(const struct trainer *t)
{
    return (struct pass){.kind = PASS_SPARSE, .seed = (uint64_t)t->config.run.seed};
}

/* Adds the loss of every exit to the report's sums, from the states of the last pass. */
static void add_exits(struct trainer *t, real *nll)
{
    struct model *m = t->model;
    double *sum = t->report.layer[LAYER_EXIT_LOSS];
    model_exits(m, &(struct exit_values){.nll = nll});
    for (int l = 0; l < t->report.layers; l++)
        for (int i = 0; i < m->R; i++)
            if (m->batch->target[i] >= 0)
                sum[l] += exit_is_candidate(&m->config, l)
                              ? (double)nll[(size_t)(l + 1) * (size_t)m->R + (size_t)i]
                              : (double)NAN;
}

static int log_exits(struct trainer *t, double tokens, struct err *e)
{
    for (int l = 0; l < t->report.layers; l++)
        t->report.layer[LAYER_EXIT_LOSS][l] /= tokens;
    record_begin(t->record, "layer", t->state.step, clock_wall());
    step_report_record_validation(&t->report, t->record);
    return trainer_append(t, e);
}

/* What this rank's batch adds to the sums: those of the batches before it are there. */
static int add_batch(struct trainer *t, struct measure *s, real *nll, struct err *e)
{
    const struct batch *b = t->model->batch;
    int rc = measure_add(s, t->model,
                         &(struct measure_known){.true_entropy = t->true_entropy,
                                                 .needed = t->needed,
                                                 .class_of = t->class_of,
                                                 .target_class = t->target_class},
                         loader_target_bytes(t->val, t->target, (size_t)b->B * (size_t)b->T), e);
    if (rc < 0)
        return rc;
    if (s->contrast.sum[CONTRAST_CAUSAL].tokens < CONTROL_TOKENS)
        contrast_add(&s->contrast, CONTRAST_CAUSAL, t->model);
    if (nll)
        add_exits(t, nll);
    return 0;
}

/* A measure_spans half, and with the first one the losses of exits. */
static int sums_of(struct trainer *t, struct measure *s, int half, const real *nll,
                   struct measure_span out[MEASURE_SPANS])
{
    int n = measure_spans(s, half, out);
    if (half == 0 && nll) {
        BUG_IF(n == MEASURE_SPANS, "more than %d spans", MEASURE_SPANS);
        out[n++] = (struct measure_span){t->report.layer[LAYER_EXIT_LOSS],
                                         (size_t)t->report.layers * sizeof(double)};
    }
    return n;
}

static int take_turn(struct trainer *t, struct measure *s, real *nll, int active, struct err *e)
{
    struct measure_span v[MEASURE_SPANS];
    int rc = 0;
    for (int half = 0; half < 2 && rc == 0; half++)
        rc = team_turn_begin(v, sums_of(t, s, half, nll, v), e);
    if (rc == 0)
        rc = add_batch(t, s, nll, e);
    for (int half = 0; half < 2 && rc == 0; half++)
        rc = team_turn_end(v, sums_of(t, s, half, nll, v), active, e);
    for (int half = 0; half < 2 && rc == 0; half++)
        rc = team_turn_close(v, sums_of(t, s, half, nll, v), active, e);
    return rc;
}

static int run_contrast(struct trainer *t, struct measure *s, enum contrast_kind kind,
                        struct walk *w, uint64_t end, struct err *e)
{
    struct measure_span v[MEASURE_SPANS];
    struct pass pass = inference_pass(t);
    if (!measure_has_contrast(s, t->model, kind))
        return 0;
    int n = measure_contrast_spans(s, kind, v);
    int rc = measure_contrast_run(s, t->model, kind, &w->b, &pass, end, e);
    if (rc == 0)
        rc = team_turn_begin(v, n, e);
    if (rc == 0)
        measure_contrast_add(s, t->model, kind);
    if (rc == 0)
        rc = team_turn_end(v, n, w->active, e);
    return rc == 0 ? team_turn_close(v, n, w->active, e) : rc;
}

/* nll: (depth + 1, rows) scratch for the losses of exits; NULL: not measured. */
static int add_batches(struct trainer *t, struct measure *s, int64_t tokens, real *nll,
                       struct err *e)
{
    struct walk w = walk_shared(t, tokens);
    struct pass pass = inference_pass(t);
    uint64_t end = 0;
    int rc = 0, own;
    pass.record = 1;
    while (rc == 0 && walk_round(&w, &own, &end) > 0) {
        if (!own)
            continue;
        model_forward(t->model, &w.b, &pass);
        model_loss(t->model, 0, 1);
        rc = take_turn(t, s, nll, w.active, e);
        t->model->batch = NULL;
        if (rc == 0)
            rc = run_contrast(t, s, CONTRAST_TOPK, &w, end, e);
    }
    return rc;
}

/* Controls: the same tokens at the same rates with content-independent routing, and a dense
 * pass. */
static int add_controls(struct trainer *t, struct measure *s, int64_t tokens, struct err *e)
{
    static const enum contrast_kind kinds[] = {CONTRAST_RANDOM, CONTRAST_STATIC, CONTRAST_DENSE};
    struct measure_span v[MEASURE_SPANS];
    uint64_t end = 0;
    int own, rc = team_spread(v, measure_spans(s, 0, v), e); /* the rates */
    struct walk w = walk_shared(t, tokens);
    uint64_t batches = (uint64_t)s->contrast.sum[CONTRAST_CAUSAL].batches;
    uint64_t seen = batches * (uint64_t)t->config.train.batch;
    w.want = seen < w.want ? seen : w.want;
    while (s->is_gated && rc == 0 && walk_round(&w, &own, &end) > 0)
        for (size_t i = 0; own && i < DS_LEN(kinds) && rc == 0; i++)
            rc = run_contrast(t, s, kinds[i], &w, end, e);
    return rc;
}

/* Concatenates the windows into one text; returns its token count. */
static int read_text(struct trainer *t)
{
    struct loader_pos pos = {0};
    int seq = (int)t->config.train.seq,
        T = t->model->R_max < PREFILL_TOKENS ? t->model->R_max : PREFILL_TOKENS;
    T = T < t->model->config.max_seq ? T : (int)t->model->config.max_seq;
    for (int at = 0; at < T; at += seq) {
        int room = T - at < seq ? T - at : seq;
        int32_t *tail = t->target; /* scratch */
        loader_next(t->val, &pos, 1, tail, t->doc_start, NULL, NULL);
        for (int i = 0; i < room; i++)
            t->input[at + i] = tail[i];
    }
    return T;
}

static int add_times(struct trainer *t, struct measure *s, int final, struct err *e)
{
    int rounds = final ? (int)t->config.train.time_rounds : t->config.train.time_rounds > 0;
    struct pass pass = inference_pass(t);
    if (rounds == 0)
        return 0;
    int T = read_text(t), made = T / 2 < DECODE_TOKENS ? (T + 1) / 2 : DECODE_TOKENS;
    int rc = measure_time(s, t->model, t->input, T, rounds, &pass, e);
    return rc == 0 && final
               ? measure_decode(s, t->model, t->input, T - made, T, rounds, &pass, e)
               : rc;
}

/* ---- calibration ---- */

/* Position of the calibration text. */
struct calibration {
    struct walk from, now;
};

static void calibration_batch(void *ctx, int k, struct batch *b)
{
    struct calibration *c = ctx;
    if (k == 0)
        c->now = c->from;
    walk_next(&c->now);
    *b = c->now.b;
}

/* Text that the following evaluation does not score: later validation windows, else training
 * text. */
static struct walk calibration_text(struct trainer *t, int64_t batches, int64_t tokens)
{
    uint64_t scored = walk_begin(t, tokens).want;
    struct walk w = {.t = t,
                     .text = t->val,
                     .want = (uint64_t)(batches * t->config.train.batch),
                     .parts = 1};
    if (loader_windows(t->val) - scored >= w.want)
        w.pos.window = scored;
    else
        w.text = t->train;
    return w;
}

/* Calibrates the inference thresholds at the end of training.  tokens: size of the following
 * evaluation. */
static int calibrate(struct trainer *t, int64_t tokens, struct err *e)
{
    char text[160];
    int64_t each = t->config.train.batch * t->config.train.seq, n = CALIBRATE_TOKENS / each;
    n = n < CALIBRATE_BATCHES_MIN ? CALIBRATE_BATCHES_MIN : n;
    n = n > CALIBRATE_BATCHES_MAX ? CALIBRATE_BATCHES_MAX : n;
    if (!t->model->route.ops->calibrate)
        return 0;
    struct calibration c = {.from = calibration_text(t, n, tokens)};
    struct calibrate_share share = {ranks_rank(), ranks_size(), team_join_counts, NULL};
    int rc = model_calibrate(t->model, (int)n, calibration_batch, &c,
                             (uint64_t)t->config.run.seed, &share, e);
    snprintf(text, sizeof text, "%d capacities, %lld tokens at each, of %s", (int)ROUTE_GRID,
             (long long)(n * each),
             c.from.text == t->val
                 ? "validation text after the scored windows"
                 : "training text (too little validation text is left after the scored windows)");
    return rc == 0 ? trainer_log_event(t, LOG_INFO, "calibrate", text, e) : rc;
}

/* ---- evaluation ---- */

/* While a method has no causal decisions yet there is no evaluation: reported once, and at the
 * end. */
static int report_unready(struct trainer *t, const struct err *why, int final, struct err *e)
{
    if (t->has_reported_unready && !final)
        return 0;
    t->has_reported_unready = 1;
    return trainer_log_event(t, final ? LOG_WARN : LOG_INFO, "evaluation", why->text, e);
}

static int write_records(struct trainer *t, struct measure *s, int final, struct err *e)
{
    measure_eval_record(s, t->record, final ? "final" : "val", "causal", t->state.step,
                        clock_wall());
    int rc = trainer_append(t, e);
    if (rc == 0 && final && s->n > 0) {
        measure_sample_record(s, t->record, "val", t->state.step, clock_wall());
        rc = trainer_append(t, e);
    }
    return rc;
}

/* The sums of the whole text on rank 0. */
static int measure_text(struct trainer *t, struct measure *s, int64_t tokens, int final, real *nll,
                        struct err *e)
{
    int rc = add_batches(t, s, tokens, nll, e);
    if (rc == 0)
        rc = loader_check(t->val, e);
    return rc == 0 && final ? add_controls(t, s, tokens, e) : rc;
}

static int report(struct trainer *t, struct measure *s, int final, const real *nll, struct err *e)
{
    int rc = add_times(t, s, final, e);
    if (rc < 0)
        return rc;
    t->report.has_val = 1;
    t->report.val_loss = measure_loss(s);
    t->report.bits_per_byte = measure_bits_per_byte(s);
    t->report.time_ratio = s->time_ratio;
    t->report.val_flops_ratio = measure_model_ratio(s);
    rc = write_records(t, s, final, e);
    return rc == 0 && nll ? log_exits(t, (double)s->tokens, e) : rc;
}

int trainer_evaluate(struct trainer *t, int final, struct err *e)
{
    int64_t tokens = final ? t->config.train.final_tokens : t->config.train.eval_tokens;
    struct measure s;
    struct err why = {0};
    struct pass pass = inference_pass(t);
    if (!t->val)
        return 0;
    t->team.in_step = 1; /* an error ends the run on all ranks, until rank 0 is alone */
    int rc = final ? calibrate(t, tokens, e) : 0;
    if (rc < 0)
        return rc;
    if (route_ready(&t->model->route, &pass, &why) < 0) {
        t->team.in_step = 0;
        return report_unready(t, &why, final, e);
    }
    rc = measure_init(&s, t->model, (int)t->config.train.seq,
                      final ? (size_t)t->config.train.samples : 1024, e);
    if (rc < 0)
        return rc;
    s.token_class = t->token_class;
    real *nll = NULL;
    if (t->exit_weight) {
        size_t L = (size_t)t->report.layers;
        memset(t->report.layer[LAYER_EXIT_LOSS], 0, L * sizeof(double));
        nll = mem_alloc((L + 1) * (size_t)t->rows, sizeof *nll);
        rc = nll ? 0 : err_set(e, DS_EMEM, "out of memory for the losses of %zu exits", L);
    }
    if (rc == 0)
        rc = measure_text(t, &s, tokens, final, nll, e);
    t->team.in_step = rc < 0;
    if (rc == 0 && !team_follows())
        rc = report(t, &s, final, nll, e);
    mem_free(nll);
    measure_release(&s);
    return rc;
}
