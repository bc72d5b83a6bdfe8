/* Times speculative decoding against ordinary decoding at given acceptances.  The weights are
 * random, so seeded draws decide how many drafted tokens are accepted; drafting, verification and
 * rolling back are all executed. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "models/speculate.h"
#include "speed_impl.h"

enum { ACCEPTANCES = 5, DRAFT_MOST = 12 };
static const double acceptance[ACCEPTANCES] = {0.5, 0.6, 0.7, 0.8, 0.9};

struct use {
    struct speed *s;
    struct speed_subject *subject;
    struct spec_draft draft;
    struct pass pass;
    struct kv_cache *cache;
    struct kv_mark start; /* after the prefill */
    int32_t *id;          /* the text */
    real *logits;
    int tokens, length[ACCEPTANCES + 1]; /* per sample; tokens per draft, 0: ordinary decoding */
};

/* Weights that a drafted token reads, over those of all layers. */
static double draft_cost(const struct model *m, int exit)
{
    double V = (double)m->config.vocab * (double)m->config.dim,
           all = model_config_weights(&m->config);
    double layers = all - V * (m->head < 0 ? 1 : 2), L = (double)model_config_depth(&m->config);
    return (layers * exit / L + V) / (layers + V);
}

static int ordinary(struct use *u, double *seconds, struct speed_figures *f, struct err *e)
{
    struct model *m = u->subject->model;
    int at = u->cache->len, rc = 0;
    for (int i = 0; i < u->tokens && rc == 0; i++) {
        double start = clock_mono();
        rc = model_decode(m, u->cache, &u->id[at + i], 1, &u->pass, e);
        if (rc == 0)
            model_logits(m, 0, u->logits);
        *seconds += clock_mono() - start;
        f->flops[0] += flops_total(&m->flops);
    }
    f->dense[0] = f->flops[0];
    return rc;
}

/* Drafted tokens that are accepted before the first that is not. */
static int accepted(struct rng *r, double a, int length)
{
    int n = 0;
    while (n < length && rng_uniform(r) < a)
        n++;
    return n;
}

static int speculative(struct use *u, int k, int round, double *seconds, struct speed_figures *f,
                       struct err *e)
{
    struct spec *spec = NULL;
    struct rng draws;
    int made = 0, from = u->cache->len;
    int rc = spec_new(&spec, u->subject->model, &u->draft, &u->pass, u->cache, u->length[k], e);
    rng_init(&draws, 1, RNG_TEST, (uint64_t)round, (uint32_t)k);
    while (made < u->tokens && rc == 0) {
        struct spec_ask ask = {.id = u->id,
                               .n = (size_t)(from + made) + 1,
                               .most = u->length[k],
                               .sample.top_p = 1,
                               .forced = accepted(&draws, acceptance[k - 1], u->length[k])};
        struct spec_round r;
        double start = clock_mono();
        rc = spec_run(spec, &ask, &r, e);
        if (rc == 0)
            rc = spec_keep(spec, r.accepted + 1, e);
        *seconds += clock_mono() - start;
        made += rc == 0 ? r.accepted + 1 : 0;
    }
    *seconds *= (double)u->tokens / (made > 0 ? made : 1); /* the last round may make more */
    f->flops[k] = rc == 0 ? spec_counts(spec)->flops * u->tokens / made : 0;
    f->dense[k] = f->flops[0];
    spec_free(spec);
    return rc;
}

static int time_rounds(struct use *u, struct speed_figures *f, struct err *e)
{
    int rc = 0;
    for (int i = -1; i < u->s->o.rounds && rc == 0; i++) /* the first warms up */
        for (int k = 0; k < u->subject->n && rc == 0; k++) {
            double *seconds = &f->seconds[k][i < 0 ? 0 : i];
            *seconds = f->flops[k] = 0;
            kv_cache_return(u->cache, &u->start);
            rc = k == 0 ? ordinary(u, seconds, f, e) : speculative(u, k, i, seconds, f, e);
        }
    return rc;
}

static void list_ways(struct use *u, int exit)
{
    struct speed_subject *x = u->subject;
    x->n = ACCEPTANCES + 1;
    x->way[0] = (struct speed_way){.name = "ordinary", .ratio = 1, .is_dense = 1};
    for (int k = 1; k < x->n; k++) {
        u->length[k] = spec_best_length(acceptance[k - 1], draft_cost(x->model, exit), DRAFT_MOST);
        x->way[k] = (struct speed_way){.ratio = 1};
        snprintf(x->way[k].name, sizeof x->way[k].name, "%.1f, exit %d, %d drafted",
                 acceptance[k - 1], exit, u->length[k]);
    }
}

static int open_use(struct use *u, struct err *e)
{
    struct model *m = u->subject->model;
    int L = model_config_depth(&m->config), prefill = (int)u->s->o.prefill;
    int n = prefill + u->tokens + DRAFT_MOST + 2;
    char text[32];
    if (n > m->config.max_seq) /* fewer tokens, from a shorter text */
        prefill -= n - (int)m->config.max_seq;
    u->id = mem_alloc((size_t)n, sizeof *u->id);
    u->logits = mem_alloc((size_t)m->config.vocab, sizeof *u->logits);
    if (!u->id || !u->logits)
        return err_set(e, DS_EMEM, "out of memory for the benchmark");
    snprintf(text, sizeof text, "exit:%d", L * 4 / 22 > 1 ? L * 4 / 22 : 1);
    speed_fill_ids(u->id, (size_t)n, (int)m->config.vocab);
    int rc = spec_draft_parse(&u->draft, text, m, &u->pass, e);
    if (rc == 0)
        rc = kv_cache_new(&u->cache, m, n, e);
    if (rc == 0)
        rc = kv_mark_init(&u->start, u->cache, e);
    if (rc == 0 && prefill > 0)
        rc = model_decode(m, u->cache, u->id, prefill, &u->pass, e);
    if (rc == 0)
        kv_mark_set(&u->start, u->cache);
    list_ways(u, u->draft.exit);
    return rc;
}

int speed_speculate(struct speed *s, struct err *e)
{
    struct speed_subject subject;
    struct speed_figures f = {.unit = s->use_unit};
    struct use u = {.s = s, .subject = &subject, .pass = {.kind = PASS_DENSE, .seed = 1}};
    const struct speed_plan p = {.group = "speculate",
                                 .what = "speculative",
                                 .method = "dense",
                                 .rows = (int)s->o.prefill,
                                 .cells = 1};
    int rc = speed_subject_open(&subject, s, &p, e);
    if (rc < 0 || subject.n == 0)
        return rc;
    enum gemm_format format = subject.model->weights.format;
    /* a draft that ends within a loop shares no layer and would need a prefill of its own */
    int can_draft = model_config_depth(&subject.model->config) > 1 &&
                    subject.model->config.loop == 1 &&
                    gemm_has_row_guarantee(gemm_provider(format));
    int64_t half = subject.model->config.max_seq / 2, tokens = 2 * s->o.decode;
    u.tokens = (int)(tokens < half || half < 1 ? tokens : half);
    f.tokens = u.tokens;
    if (strcmp(weights_quant_name(subject.model), "none") != 0)
        f.unit = PEAK_INT8;
    if (can_draft)
        rc = open_use(&u, e);
    if (rc == 0 && can_draft)
        rc = time_rounds(&u, &f, e);
    if (rc == 0 && can_draft)
        rc = speed_add_figures(s, &subject, &f, e);
    spec_draft_release(&u.draft);
    kv_mark_release(&u.start);
    kv_cache_free(u.cache);
    mem_free(u.id);
    mem_free(u.logits);
    speed_subject_close(&subject);
    return rc;
}
