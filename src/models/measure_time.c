/* Measures prefill and decode time, alternating dense and routed in one process. */
#include <math.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/statistics.h"
#include "models/measure.h"

/* Dense seconds and the ratio of each pair.  The order alternates between pairs, so that drift of
 * the machine affects both. */
struct pairs {
    double *dense, *ratio;
    int rounds;
};

static int pairs_init(struct pairs *p, int rounds)
{
    *p = (struct pairs){.rounds = rounds, .dense = mem_alloc(2 * (size_t)rounds, sizeof(double))};
    p->ratio = p->dense ? p->dense + rounds : NULL;
    return p->dense != NULL;
}

/* The dense half of a pair runs all layers. */
static struct pass pair_pass(const struct pass *use, int round, int which)
{
    struct pass pass = *use;
    if ((round + which) % 2)
        return pass;
    pass.kind = PASS_DENSE;
    pass.inference.exit = 0;
    return pass;
}

static void pair_set(struct pairs *p, int round, const double seconds[2])
{
    double dense = seconds[round % 2], routed = seconds[1 - round % 2];
    p->dense[round] = dense;
    p->ratio[round] = dense > 0 ? routed / dense : (double)NAN;
}

static double prefill_seconds(struct model *m, const struct batch *b, struct pass pass,
                              real *logits)
{
    double t = clock_mono();
    model_forward(m, b, &pass);
    model_logits(m, m->R - 1, logits);
    return clock_mono() - t;
}

int measure_time(struct measure *s, struct model *m, const int32_t *id, int T, int rounds,
                 const struct pass *use, struct err *e)
{
    struct batch b = {.B = 1, .T = T, .id = id};
    struct pairs p = {0};
    if (rounds <= 0)
        return 0;
    int rc = 0;
    real *logits = mem_alloc((size_t)m->config.vocab, sizeof *logits);
    if (!logits || !pairs_init(&p, rounds)) {
        rc = err_set(e, DS_EMEM, "prefill timing: out of memory");
    } else {
        for (int which = 0; which < 2; which++) /* warm up */
            prefill_seconds(m, &b, pair_pass(use, 0, which), logits);
        for (int i = 0; i < rounds; i++) {
            double seconds[2];
            for (int which = 0; which < 2; which++)
                seconds[which] = prefill_seconds(m, &b, pair_pass(use, i, which), logits);
            pair_set(&p, i, seconds);
        }
        s->time_dense = stat_median(p.dense, (size_t)rounds) / T;
        s->time_ratio = stat_median(p.ratio, (size_t)rounds);
        m->batch = NULL;
    }
    mem_free(p.dense);
    mem_free(logits);
    return rc;
}

static double batch_seconds(struct model *m, const struct batch *b, struct pass pass)
{
    double t = clock_mono();
    model_forward(m, b, &pass);
    model_loss(m, 0, 0);
    return clock_mono() - t;
}

int measure_batch_time(struct measure *s, struct model *m, const struct batch *b, int rounds,
                       const struct pass *use, struct err *e)
{
    struct pairs p = {0};
    if (rounds <= 0)
        return 0;
    if (!pairs_init(&p, rounds))
        return err_set(e, DS_EMEM, "timing of whole batches: out of memory");
    for (int which = 0; which < 2; which++) /* warm up */
        batch_seconds(m, b, pair_pass(use, 0, which));
    for (int i = 0; i < rounds; i++) {
        double seconds[2];
        for (int which = 0; which < 2; which++)
            seconds[which] = batch_seconds(m, b, pair_pass(use, i, which));
        pair_set(&p, i, seconds);
    }
    s->batch_ratio = stat_median(p.ratio, (size_t)rounds);
    m->batch = NULL;
    mem_free(p.dense);
    return 0;
}

/* Runs one text with a cache: tokens before `from` in pieces that fit the buffers, the rest one by
 * one. */
struct walk {
    struct model *m;
    struct kv_cache *cache;
    const int32_t *id;
    int from, T;
    const struct pass *use;
    real *logits;
};

static int walk_seconds(struct walk *w, struct pass pass, double *seconds, struct err *e)
{
    int rc = 0;
    kv_cache_reset(w->cache);
    for (int at = 0, n; at < w->from && rc == 0; at += n) {
        n = w->from - at < w->m->R_max ? w->from - at : w->m->R_max;
        rc = model_decode(w->m, w->cache, w->id + at, n, &pass, e);
    }
    double t = clock_mono();
    for (int at = w->from; at < w->T && rc == 0; at++) {
        rc = model_decode(w->m, w->cache, w->id + at, 1, &pass, e);
        if (rc == 0)
            model_logits(w->m, 0, w->logits);
    }
    *seconds = clock_mono() - t;
    return rc;
}

static int walk_pairs(struct walk *w, struct pairs *p, struct err *e)
{
    double seconds[2];
    int rc = 0;
    for (int which = 0; which < 2 && rc == 0; which++) /* warm up */
        rc = walk_seconds(w, pair_pass(w->use, 0, which), seconds, e);
    for (int i = 0; i < p->rounds && rc == 0; i++) {
        for (int which = 0; which < 2 && rc == 0; which++)
            rc = walk_seconds(w, pair_pass(w->use, i, which), &seconds[which], e);
        if (rc == 0)
            pair_set(p, i, seconds);
    }
    return rc;
}

int measure_decode(struct measure *s, struct model *m, const int32_t *id, int from, int T,
                   int rounds, const struct pass *use, struct err *e)
{
    struct walk w = {.m = m, .id = id, .from = from, .T = T, .use = use};
    struct pairs p = {0};
    BUG_IF(from < 0 || from >= T, "decoding range %d to %d is invalid", from, T);
    if (rounds <= 0)
        return 0;
    int rc = kv_cache_new(&w.cache, m, T, e);
    w.logits = mem_alloc((size_t)m->config.vocab, sizeof *w.logits);
    if (rc == 0 && (!w.logits || !pairs_init(&p, rounds)))
        rc = err_set(e, DS_EMEM, "decode timing: out of memory");
    if (rc == 0)
        rc = walk_pairs(&w, &p, e);
    if (rc == 0) {
        s->decode_dense = stat_median(p.dense, (size_t)rounds) / (T - from);
        s->decode_ratio = stat_median(p.ratio, (size_t)rounds);
    }
    mem_free(p.dense);
    mem_free(w.logits);
    kv_cache_free(w.cache);
    return rc;
}
