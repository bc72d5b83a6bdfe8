/* Validation: causal decisions of use, rows really skipped, counted and, at the end, timed. */
#include <math.h>

#include "base/clock.h"
#include "training/trainer.h"

enum { PREFILL_TOKENS = 512 };

static void add_batches(struct trainer *t, struct measure *s, int64_t tokens)
{
    struct loader_pos pos = {0};
    int seq = (int)t->config.train.seq, batch = (int)t->config.train.batch;
    uint64_t windows = loader_windows(t->val), want = (uint64_t)((tokens + seq - 1) / seq);
    if (want > windows)
        want = windows;
    for (uint64_t done = 0; done < want;) {
        int n = want - done < (uint64_t)batch ? (int)(want - done) : batch;
        loader_next(t->val, &pos, n, t->input, t->target, t->doc_start, t->true_entropy);
        struct batch b = {
            .B = n, .T = seq, .id = t->input, .target = t->target, .doc_start = t->doc_start};
        struct pass pass = {.kind = PASS_SPARSE, .seed = (uint64_t)t->config.run.seed, .record = 1};
        model_forward(t->model, &b, &pass);
        model_loss(t->model, 0, 1);
        measure_add(s, t->model, t->true_entropy,
                    loader_target_bytes(t->val, t->target, (size_t)n * (size_t)seq));
        t->model->batch = NULL;
        done += (uint64_t)n;
    }
}

static void time_prefill(struct trainer *t, struct measure *s, int rounds)
{
    struct loader_pos pos = {0};
    int seq = (int)t->config.train.seq,
        T = t->model->R_max < PREFILL_TOKENS ? t->model->R_max : PREFILL_TOKENS;
    T = T < t->model->config.max_seq ? T : (int)t->model->config.max_seq;
    for (int at = 0; at < T; at += seq) { /* windows end to end: one long text */
        int room = T - at < seq ? T - at : seq;
        int32_t *tail = t->target; /* scratch */
        loader_next(t->val, &pos, 1, tail, t->doc_start, NULL, NULL);
        for (int i = 0; i < room; i++)
            t->input[at + i] = tail[i];
    }
    measure_time(s, t->model, t->input, T, rounds, (uint64_t)t->config.run.seed);
}

int trainer_evaluate(struct trainer *t, int64_t tokens, int final, struct err *e)
{
    struct measure s;
    if (!t->val)
        return 0;
    int rc = measure_init(&s, t->model, (int)t->config.train.seq,
                          final ? (size_t)t->config.train.samples : 1024, e);
    if (rc < 0)
        return rc;
    s.token_class = t->token_class;
    add_batches(t, &s, tokens);
    int rounds = final ? (int)t->config.train.time_rounds : t->config.train.time_rounds > 0 ? 1 : 0;
    if (rounds > 0)
        time_prefill(t, &s, rounds);
    t->report.has_val = 1;
    t->report.val_loss = measure_loss(&s);
    t->report.bits_per_byte = measure_bits_per_byte(&s);
    t->report.time_ratio = s.time_ratio;
    measure_eval_record(&s, t->record, final ? "final" : "val", "causal", t->state.step,
                        clock_wall());
    rc = trainer_append(t, e);
    if (rc == 0 && final) {
        measure_sample_record(&s, t->record, "val", t->state.step, clock_wall());
        rc = trainer_append(t, e);
    }
    measure_release(&s);
    return rc;
}
