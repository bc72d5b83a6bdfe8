/* Times drawing one token from the logits of a large vocabulary, on one core. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "models/sample.h"
#include "speed_impl.h"

enum { VOCAB = 151936 /* Qwen */, DRAWS = 16 };

static const struct mode {
    const char *name;
    struct sample_options o;
} modes[] = {
    {"sample greedy", {.top_p = 1}},
    {"sample temperature", {.temperature = 0.7, .top_p = 1, .seed = 1}},
    {"sample top_k=40", {.temperature = 0.7, .top_k = 40, .top_p = 1, .seed = 1}},
    {"sample top_p=0.9", {.temperature = 0.7, .top_p = 0.9, .seed = 1}},
    {"sample min_p=0.05", {.temperature = 0.7, .top_p = 1, .min_p = 0.05, .seed = 1}},
};

static int time_mode(struct speed *s, struct sampler *by, const struct mode *m, const real *logits,
                     struct err *e)
{
    double us[SPEED_ROUNDS_MAX];
    int rc = 0;
    for (int i = -1; i < s->o.rounds && rc == 0; i++) { /* the first warms up */
        double t = clock_mono();
        for (uint64_t k = 0; k < DRAWS && rc == 0; k++) {
            int32_t id;
            rc = sampler_pick(by, logits, &m->o, k, &id, NULL, e);
        }
        us[i < 0 ? 0 : i] = 1e6 * (clock_mono() - t) / DRAWS;
    }
    if (rc == 0 && !speed_add(s, "sample", m->name, "us/token", us, (int)s->o.rounds, e))
        rc = DS_EMEM;
    return rc;
}

int speed_sampling(struct speed *s, struct err *e)
{
    struct sampler by = {0};
    real *logits = NULL;
    struct rng r;
    int any = 0, rc = 0;
    for (size_t k = 0; k < DS_LEN(modes); k++)
        any |= speed_request(s, "sample", modes[k].name);
    if (!any)
        return 0;
    logits = mem_alloc(VOCAB, sizeof *logits);
    rc = logits ? sampler_init(&by, VOCAB, e)
                : err_set(e, DS_EMEM, "out of memory for the benchmark");
    rng_init(&r, 1, RNG_TEST, 0, 0);
    for (int v = 0; v < VOCAB && rc == 0; v++)
        logits[v] = (real)(3 * rng_normal(&r));
    for (size_t k = 0; k < DS_LEN(modes) && rc == 0; k++)
        if (speed_request(s, "sample", modes[k].name))
            rc = time_mode(s, &by, &modes[k], logits, e);
    sampler_release(&by);
    mem_free(logits);
    return rc;
}
