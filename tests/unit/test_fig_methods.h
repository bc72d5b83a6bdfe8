/* Test fixture: runs of routed models with synthetic numbers, with all data that the figures of routing
 * methods read.  Nothing here is a result; it exists so that drawing can be tested. */
#ifndef DS_TESTS_FIG_METHODS_H
#define DS_TESTS_FIG_METHODS_H

#include "test_fig_fixture.h"

enum { METH_STEPS = 200, METH_TOKENS = 3000, METH_PROBE = 48 };

struct meth {
    const char *dir, *method;
    int layers, seed;
    double capacity, loss, budget, params; /* budget 0: without train.flops_budget */
    const char *drop;                      /* an omitted key, to test the error          */
    const char *drop_task;                 /* an omitted evaluation */
    int rates;                             /* exits as rates per layer, not in probes */
    int has_old_keys;                      /* as records of earlier versions */
    int is_control, is_topk; /* routed.stochastic is set; probes have top-k decisions */
    int is_forced;           /* a cell of each probe was forced to run */
    int is_looped;           /* its layers are iterations of one */
    int last;                /* layers after a loop: tokens that left it run them, too */
    double spread;           /* of the capacities and the exits over seeds, 0: little */
};

static inline int meth_has(const struct meth *m, const char *key)
{
    return !m->drop || strcmp(m->drop, key) != 0;
}

static inline void meth_num(struct record *r, const struct meth *m, const char *key, double v)
{
    if (meth_has(m, key))
        record_num(r, key, v);
}

static inline void meth_head(struct record *r, const struct meth *m, const char *name)
{
    record_begin(r, "head", 0, 1000);
    record_int(r, "format", 1);
    record_str(r, "run", name);
    record_str(r, "method", m->method);
    record_int(r, "layers", m->layers);
    record_int(r, "steps", METH_STEPS);
    record_int(r, "seed", m->seed);
    record_num(r, "flops_dense", 1e6 * (1 + m->layers));
    if (meth_has(m, "params_non_embedding"))
        record_int(r, "params_non_embedding", (int64_t)m->params);
    record_map(r, "config");
    record_str(r, "model.method", m->method);
    fix_config(r, "model.layers", m->is_looped ? 1 : m->layers);
    if (m->is_looped)
        fix_config(r, "model.loop", m->layers);
    fix_config(r, "model.dim", floor(m->params / 1e4));
    fix_config(r, "seed", m->seed);
    if (m->budget > 0)
        fix_config(r, "train.flops_budget", m->budget);
    if (strcmp(m->method, "dense") != 0) {
        fix_config(r, "routed.capacity", m->capacity);
        fix_config(r, "routed.stochastic", m->is_control);
    }
    record_close(r);
}

static inline void meth_metric(struct record *r, const struct meth *m, int step, struct rng *g)
{
    record_begin(r, "metric", step, 1000 + step);
    record_num(r, "loss", m->loss + 2 * exp(-step / 40.0) + 0.05 * rng_normal(g));
    record_int(r, "tokens", step * 1024LL);
    meth_num(r, m, "prior_loss", 0.02 + exp(-step / 30.0) * (1 + 0.3 * rng_uniform(g)));
    meth_num(r, m, "causal_accuracy", 0.95 - 0.4 * exp(-step / 25.0) + 0.01 * rng_normal(g));
}

/* Odd layers are routed, the others are always on (NaN in the metrics of the method). */
static inline int meth_is_routed(int l)
{
    return l % 2 == 1;
}

static inline void meth_layer(struct record *r, const struct meth *m, int step)
{
    static const struct {
        const char *key;
        double from, to, tilt;
    } row[] = {{"s_ce", 0.5, 0.35, 0.02}, {"s_cu", 0.5, 0.6, 0.02},         {"g", 0.75, 0.7, 0.02},
               {"beta_ce", 1, 3, 0.15},   {"beta_cu", 1, 2.2, 0.1},         {"o_ce", 1, 1.3, 0.03},
               {"m_cu", 1.1, 0.9, 0.02},  {"prior_error", 0.9, 0.03, 0.001}};
    double v[64], t = 1 - exp(-step / 60.0);
    record_begin(r, "layer", step, 1000 + step);
    for (int l = 0; l < m->layers; l++)
        v[l] = meth_is_routed(l) ? m->capacity + 0.1 * cos(step / 9.0 + l) * (1 - t) : 1;
    record_nums(r, "gate_ratio", v, (size_t)m->layers);
    for (int l = 0; m->rates && l < m->layers; l++)
        v[l] = l == m->layers / 2 ? 0.3 + m->spread * m->seed : l == m->layers - 2 ? 0.2 : 0;
    if (m->rates)
        record_nums(r, "exit_rate", v, (size_t)m->layers);
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        for (int l = 0; l < m->layers; l++)
            v[l] = meth_is_routed(l) ? row[k].from + (row[k].to - row[k].from) * t +
                                           row[k].tilt * (l - m->layers / 2.0)
                                     : (double)NAN;
        if (meth_has(m, row[k].key))
            record_nums(r, row[k].key, v, (size_t)m->layers);
    }
}

static inline void meth_final(struct record *r, const struct meth *m, struct rng *g)
{
    double capacity[64], topk[64], loss = m->loss + 0.01 * rng_normal(g), mean = 0;
    for (int l = 0; l < m->layers; l++) {
        topk[l] = meth_is_routed(l) ? m->capacity : 1;
        capacity[l] = meth_is_routed(l) && m->capacity < 1
                          ? m->capacity + 0.06 * sin(l * 2.3) + (0.01 + m->spread) * rng_normal(g)
                          : 1;
        mean += capacity[l] / m->layers;
    }
    record_begin(r, "eval", METH_STEPS, 2000);
    record_str(r, "task", "final");
    record_str(r, "routing", "causal");
    meth_num(r, m, "loss", loss);
    meth_num(r, m, "topk_loss", loss - 0.04 - 0.1 * (1 - m->capacity) + 0.004 * rng_normal(g));
    meth_num(r, m, "accuracy", 2 - loss);
    meth_num(r, m, "predictor_f1", 0.9 + 0.01 * rng_normal(g));
    meth_num(r, m, "block_ratio", mean);
    meth_num(r, m, "flops_ratio", 0.1 + 0.9 * mean);
    meth_num(r, m, "time_ratio", 0.2 + 0.8 * mean);
    if (meth_has(m, "capacity"))
        record_nums(r, "capacity", capacity, (size_t)m->layers);
    if (meth_has(m, "capacity_topk"))
        record_nums(r, "capacity_topk", topk, (size_t)m->layers);
}

static inline void meth_asked(struct record *r, const struct meth *m, double asked, struct rng *g)
{
    double loss = m->loss + 0.5 * pow(1 - asked, 2) + 0.005 * rng_normal(g);
    record_begin(r, "eval", METH_STEPS, 2003);
    record_str(r, "task", "capacity");
    record_str(r, "routing", "causal");
    meth_num(r, m, m->has_old_keys ? "capacity_asked" : "capacity_target", asked);
    meth_num(r, m, "loss", loss);
    meth_num(r, m, "flops_ratio", 0.35 + 0.65 * asked);
    meth_num(r, m, "time_ratio", 0.5 + 0.52 * asked);
    meth_num(r, m, "control_random_loss", loss + 0.6 * (1 - asked));
    meth_num(r, m, "block_ratio", 0.5 + 0.5 * asked);
    meth_num(r, m, "dense_loss", m->loss - 0.03);
}

static inline void meth_column(struct record *r, const struct meth *m, const char *key,
                               const float *v)
{
    if (meth_has(m, key))
        record_f32s(r, key, v, METH_TOKENS);
}

static inline void meth_sample(struct record *r, const struct meth *m, struct rng *g)
{
    static float kind[METH_TOKENS], depth[METH_TOKENS], nll[METH_TOKENS];
    for (int i = 0; i < METH_TOKENS; i++) {
        kind[i] = (float)(rng_uniform(g) < 0.3 ? 0 : (i * 7) % 9);
        if (kind[i] == 6 && i % 200 != 0)
            kind[i] = 5; /* a class too rare to be shown */
        depth[i] = (float)fmax(0, m->layers * (0.4 + 0.05 * (double)kind[i]) + rng_normal(g));
        nll[i] = (float)fmax(0, 0.8 + 0.3 * (double)kind[i] + 0.8 * rng_normal(g));
    }
    record_begin(r, "sample", METH_STEPS, 2001);
    record_str(r, "name", "val");
    record_int(r, "n", METH_TOKENS);
    record_map(r, "column");
    meth_column(r, m, "class", kind);
    meth_column(r, m, "depth", depth);
    meth_column(r, m, "nll", nll);
    record_close(r);
}

static inline void meth_probe(struct record *r, const struct meth *m, int index, struct rng *g)
{
    static const char *const words[] = {"The", " old", " fox", " saw", " a", " caf\xC3\xA9", "."};
    static unsigned char run[64 * METH_PROBE];
    static float gate[64 * METH_PROBE], exited[64 * METH_PROBE];
    const char *piece[METH_PROBE];
    size_t len[METH_PROBE], cells = (size_t)m->layers * METH_PROBE;
    int32_t ids[METH_PROBE];
    for (int t = 0; t < METH_PROBE; t++) {
        double u = rng_uniform(g);
        int out = u < 0.25 ? m->layers / 2 : u < 0.45 ? m->layers - 2 : m->layers;
        piece[t] = words[t % 7];
        len[t] = strlen(piece[t]);
        ids[t] = t % 7;
        for (int l = 0; l < m->layers; l++) {
            int i = l * METH_PROBE + t;
            gate[i] = meth_is_routed(l)
                          ? (float)(1 / (1 + exp(-3 * rng_normal(g) - 4 * (m->capacity - 0.5))))
                          : 1;
            exited[i] = l >= out && l < m->layers - m->last;
            run[i] = (l < out && gate[i] > 0.5F) || l >= m->layers - m->last;
        }
    }
    record_begin(r, "probe", METH_STEPS, 2002);
    record_int(r, "index", index);
    record_str(r, "name", index ? "text-1" : "text-0");
    record_str(r, "routing", m->is_topk ? "topk" : "causal");
    if (m->is_forced) {
        record_map(r, "what_if");
        record_i32s(r, "forced", (const int32_t[]){1, 0, 1, -1}, 4);
        record_close(r);
    }
    record_int(r, "layers", m->layers);
    record_i32s(r, "ids", ids, METH_PROBE);
    record_pieces(r, "text", piece, len, METH_PROBE);
    record_bytes(r, "run", run, cells);
    record_map(r, "cell");
    if (meth_has(m, "gate"))
        record_f32s(r, "gate", gate, cells);
    if (meth_has(m, "exited") && !m->rates)
        record_f32s(r, "exited", exited, cells);
    record_close(r);
}

static inline int meth_evals(struct record *r, const struct meth *m, struct rng *g, struct str *out,
                             uint64_t *seq, struct err *e)
{
    int rc = 0;
    if (!m->drop_task || strcmp(m->drop_task, "final") != 0) {
        meth_final(r, m, g);
        rc |= record_end(r, (*seq)++, out, e);
    }
    for (int k = 0; k <= 8 && (!m->drop_task || strcmp(m->drop_task, "capacity") != 0); k++) {
        meth_asked(r, m, k / 8.0, g);
        rc |= record_end(r, (*seq)++, out, e);
    }
    return rc;
}

static inline struct runview *meth_open(const struct meth *m, const char *name)
{
    static char path[1024];
    struct str out = {0};
    struct err e = {0};
    struct record *r = record_new();
    struct rng g;
    struct runview *v = NULL;
    uint64_t seq = 0;
    int rc = r ? 0 : -1;
    rng_init(&g, (uint64_t)m->seed + 1, RNG_TEST, (uint64_t)m->layers,
             (uint32_t)(m->capacity * 100 + m->loss * 1000));
    meth_head(r, m, name);
    rc |= record_end(r, seq++, &out, &e);
    for (int step = 1; step <= METH_STEPS; step++) {
        meth_metric(r, m, step, &g);
        rc |= record_end(r, seq++, &out, &e);
        if (step % 5 == 0) {
            meth_layer(r, m, step);
            rc |= record_end(r, seq++, &out, &e);
        }
    }
    rc |= meth_evals(r, m, &g, &out, &seq, &e);
    meth_sample(r, m, &g);
    rc |= record_end(r, seq++, &out, &e);
    for (int i = 0; i < 2; i++) {
        meth_probe(r, m, i, &g);
        rc |= record_end(r, seq++, &out, &e);
    }
    snprintf(path, sizeof path, "%s/%s.mp", m->dir, name);
    rc |= fs_write_file(path, out.p, out.len, &e);
    str_release(&out);
    record_free(r);
    if (rc != 0 || runview_open(&v, path, &e) < 0)
        return NULL;
    while (runview_poll(v, 10, &e) > 0)
        ;
    return v;
}

static inline struct meth meth_routed(const char *dir, double capacity, int seed)
{
    return (struct meth){.dir = dir,
                         .method = "routed",
                         .layers = 8,
                         .seed = seed,
                         .capacity = capacity,
                         .loss = 1.6 + 0.3 * (1 - capacity) * (1 - capacity),
                         .params = 1e6};
}

static inline struct meth meth_dense(const char *dir, int seed)
{
    struct meth m = meth_routed(dir, 1, seed);
    m.method = "dense";
    m.loss = 1.58;
    return m;
}

/* Loss of a size at a budget: a parabola with its minimum at `best` parameters. */
static inline struct meth meth_iso(const char *dir, const char *method, double budget, double best,
                                   double params, int seed)
{
    struct meth m = meth_routed(dir, strcmp(method, "dense") == 0 ? 1 : 0.5, seed);
    double u = log10(params / best);
    m.method = method;
    m.budget = budget;
    m.params = params;
    m.layers = 4 + 2 * (int)(log10(params) * 2 - 10);
    m.loss = 3.2 - 0.25 * log10(budget / 1e12) + 0.5 * u * u;
    return m;
}

#endif
